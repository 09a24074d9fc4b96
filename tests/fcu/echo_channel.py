"""PX4's echo of the setpoints that it follows, through a link with delays, losses and messages that overtake others."""

import heapq
import math
import random
from itertools import count
from typing import NamedTuple

from companion.fcu.guards.echoes import EchoWatch
from companion.fcu.link.decoded import AttitudeTarget

BOOT_S = 90.0  # PX4's clock at companion time 0
OWN_PERIOD_S = 0.02


class Link(NamedTuple):
    """What the way between companion and PX4 does to messages."""

    up_s: float = 0.003
    down_s: float = 0.003
    jitter_s: float = 0.002
    loss: float = 0.0
    late_share: float = 0.0  # of the echoes and reports, that are overtaken by others
    late_s: float = 0.1
    stall_s: tuple[float, float] = (math.inf, math.inf)  # begin and end of a time in which nothing arrives here
    step_s: tuple[float, float] = (math.inf, 0.0)  # from when on the delay each way is larger, and by how much
    clock_s: tuple[float, float] = (math.inf, 0.0)  # from when on PX4's synchronised clock is behind, and by how much


class Flight(NamedTuple):
    """Who sends setpoints, and when the mode changes."""

    duration_s: float = 8.0
    stops_s: float = math.inf  # this stack sends its last setpoint; PX4 leaves offboard `LOSS_S` later, if it may
    loss_s: float = 0.5
    silent: bool = False  # this stack sends nothing at all
    echo_hz: float = 100.0
    enters_s: float = 1.5  # PX4 enters offboard
    leaves_s: float = math.inf  # PX4 leaves it: a pilot's switch
    foreign_hz: float = 0.0
    foreign_s: tuple[float, float] = (3.5, math.inf)  # begin and end of the other sender
    follows_ours_s: float = math.nan  # delay of the other sender's setpoint after each of ours, in place of a rate
    restarts_s: float = math.inf  # this process is replaced by a new one


class Result(NamedTuple):
    found_s: float | None  # from the other sender's begin to the first alarm
    followed_s: float  # how long PX4 followed foreign setpoints until then
    left_s: float | None  # when this stack knows that PX4 has left offboard


def quaternion(rng: random.Random, tilt: float) -> tuple[float, float, float, float]:
    x, y, z = rng.gauss(0, tilt), rng.gauss(0, tilt), 0.3 + rng.gauss(0, 0.01)
    return math.sqrt(1 - x * x - y * y - z * z), x, y, z


def fly(flight: Flight, link: Link, seed: int, synced: bool = True) -> Result:
    """One flight; the setpoints of both senders and of PX4's own modes are those of a quiet hover."""
    rng, watch, order = random.Random(seed), EchoWatch(), count()
    events: list[tuple] = []
    newest: list = [None]  # the setpoint that PX4 follows and when it took it
    sent_echo = [None]
    offboard = [False]  # as this stack knows it
    request_s = [-1.0]
    found = left = None
    followed_s = 0.0
    foreign_since = [None]
    lost_s = [math.inf]  # when PX4 left offboard because no setpoint came

    def at(time_s, kind, *content):
        heapq.heappush(events, (time_s, next(order), kind, content))

    def delay(base_s, now_s):
        extra_s = link.step_s[1] if now_s >= link.step_s[0] else 0.0
        return base_s + extra_s + rng.random() * link.jitter_s

    def down(now_s, kind, *content):
        if rng.random() < link.loss:
            return
        arrival_s = now_s + delay(link.down_s, now_s) + (link.late_s if rng.random() < link.late_share else 0.0)
        begin_s, end_s = link.stall_s
        at(end_s + 1e-4 * rng.random() if begin_s <= arrival_s < end_s else arrival_s, kind, *content)

    def in_offboard(now_s):
        lost = newest[0] is not None and now_s > flight.stops_s and now_s - newest[0][0] > flight.loss_s
        if lost or lost_s[0] < now_s:
            lost_s[0] = min(lost_s[0], now_s)
            return False
        return flight.enters_s <= now_s < flight.leaves_s

    at(rng.random() * 0.02, "own")
    at(rng.random() / flight.echo_hz, "poll")
    at(0.0, "px4")
    at(flight.enters_s, "mode")
    if flight.leaves_s < math.inf:
        at(flight.leaves_s, "mode")
    at(rng.random() * 0.5, "modes")
    if flight.foreign_hz:
        at(flight.foreign_s[0] + rng.random() / flight.foreign_hz, "foreign")
    if flight.restarts_s < math.inf:
        at(flight.restarts_s, "restart")
    while events:
        now_s, _, kind, content = heapq.heappop(events)
        if now_s > flight.duration_s:
            break
        if kind == "own" and (flight.silent or now_s >= flight.stops_s):
            continue
        if kind == "own":
            q, thrust = quaternion(rng, 0.02), 0.34 + rng.gauss(0, 0.005)
            watch.note_sent(q, thrust, now_s)
            if rng.random() >= link.loss:
                at(now_s + delay(link.up_s, now_s), "taken", q, thrust)
                begin_s, end_s = flight.foreign_s
                if not math.isnan(flight.follows_ours_s) and begin_s <= now_s < end_s:
                    at(
                        now_s + link.up_s + link.jitter_s + flight.follows_ours_s,
                        "taken",
                        quaternion(rng, 0.02),
                        0.34,
                        1,
                    )
            at(now_s + OWN_PERIOD_S + rng.gauss(0, 0.0005), "own")
        elif kind == "foreign" and now_s < flight.foreign_s[1]:
            at(now_s, "taken", quaternion(rng, 0.02), 0.34 + rng.gauss(0, 0.005), 1)
            at(now_s + 1.0 / flight.foreign_hz + rng.gauss(0, 0.0002), "foreign")
        elif kind == "taken" and in_offboard(now_s):
            newest[0] = (now_s, *content[:2])
            if foreign_since[0] is not None and found is None:
                followed_s += now_s - foreign_since[0]
            foreign_since[0] = now_s if len(content) == 3 else None
        elif kind == "px4":  # its own modes publish, and once more just after offboard has begun
            if not in_offboard(now_s) or now_s < flight.enters_s + 0.02:
                newest[0] = (now_s, quaternion(rng, 0.02), 0.34 + rng.gauss(0, 0.005))
            at(now_s + 0.01, "px4")
        elif kind == "poll":
            if newest[0] is not None and newest[0] is not sent_echo[0]:
                sent_echo[0] = newest[0]
                down(now_s, "echo", *newest[0])
            at(now_s + 1.0 / flight.echo_hz + rng.gauss(0, 0.0003), "poll")
        elif kind in ("mode", "modes"):
            down(now_s, "report", in_offboard(now_s))
            if kind == "modes":
                at(now_s + 0.5, "modes")
        elif kind == "report":
            watch.note_mode(content[0], now_s)
            if offboard[0] and not content[0] and now_s > flight.leaves_s and left is None:
                left = now_s - flight.leaves_s
            offboard[0] = content[0]
        elif kind == "restart":
            watch = EchoWatch()
        elif kind == "echo":
            taken_s, q, thrust = content
            echo = AttitudeTarget(int((taken_s + BOOT_S) * 1e3), q, 0.0, 0.0, 0.0, thrust, 0)
            known = synced and now_s - taken_s < 0.5
            behind_s = link.clock_s[1] if taken_s > link.clock_s[0] else 0.0
            shown_s = taken_s - behind_s + rng.gauss(0, 0.002)
            alarm = watch.take(echo, offboard[0], shown_s if known else None, now_s)
            if alarm and found is None:
                found = now_s - flight.foreign_s[0]
            if watch.doubtful and now_s - request_s[0] > 0.1:  # a heartbeat is requested
                request_s[0] = now_s
                if rng.random() >= link.loss:
                    answered_s = now_s + delay(link.up_s, now_s)
                    down(answered_s, "report", in_offboard(answered_s))
    return Result(found, followed_s, left)
