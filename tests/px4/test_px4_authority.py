"""Attacked on the link, or taken over by the pilot. Real PX4 in simulated time; skipped where none is found."""

import math
from collections.abc import Callable
from functools import partial

import pytest
from px4_flight import HOLD_S, excursion_m, modes_of, phases_of, simulated
from pymavlink.dialects.v20 import common

from companion.core.frames import quat_from_rpy
from companion.core.messages import LinkRx
from sitl.autopilot.conversion import q_ned
from sitl.lockstep import Lockstep
from sitl.scenario import Fault, FaultKind
from tests.attack import promises
from tests.attack.conversation import Conversation, Corrupted, Forged

pytestmark = pytest.mark.realtime
FACE_EAST_M = 12.0  # of the pier's face, which looks west
FOREIGN_S = 5.0
HOVER_THRUST = 0.32
TAKEN_AFTER_S = 2.5  # from the beginning of the phase to the other companion's request of offboard
TILT_RAD = math.radians(10.0)


def _foreign(lockstep: Lockstep, mavlink: common.MAVLink, message: common.MAVLink_message, heard: bool) -> None:
    """A message of another companion to PX4; heard: the stack gets it, too."""
    data = message.pack(mavlink)
    mavlink.seq = (mavlink.seq + 1) % 256
    lockstep.world.autopilot.receive(data, lockstep.now_s)
    if heard:
        lockstep.arrive(data)


def taking_companion(phase: str, heard: bool) -> Callable[[Lockstep], None]:
    """Schedules a companion that streams 10° of tilt for 8 s from the beginning of a phase, and requests offboard."""
    mavlink = common.MAVLink(None, srcSystem=1, srcComponent=common.MAV_COMP_ID_ONBOARD_COMPUTER2)
    attitude = q_ned(tuple(quat_from_rpy(0.0, TILT_RAD, 0.0)))
    offboard_s = TAKEN_AFTER_S

    def stream(lockstep: Lockstep, until_s: float) -> None:
        setpoint = common.MAVLink_set_attitude_target_message(
            int(lockstep.now_s * 1e3), 1, 1, 0b111, attitude, 0, 0, 0, HOVER_THRUST
        )
        _foreign(lockstep, mavlink, setpoint, heard)
        if lockstep.now_s < until_s:
            lockstep.at(lockstep.now_us + 20_000, partial(stream, lockstep, until_s))

    def request(lockstep: Lockstep) -> None:
        mode = common.MAVLink_command_long_message(1, 1, common.MAV_CMD_DO_SET_MODE, 0, 1, 6, 0, 0, 0, 0, 0)
        _foreign(lockstep, mavlink, mode, heard)

    def wait(lockstep: Lockstep) -> None:
        if lockstep.pilot is None or lockstep.pilot.phase != phase:
            lockstep.at(lockstep.now_us + 20_000, partial(wait, lockstep))
            return
        stream(lockstep, lockstep.now_s + FOREIGN_S + 3.0)
        lockstep.at(lockstep.now_us + round(offboard_s * 1e6), partial(request, lockstep))

    return wait


def second_companion(rate_hz: float, heard: bool) -> Callable[[Lockstep], None]:
    """Schedules 5 s of another companion's setpoints: 10° of tilt towards the pier, hover thrust.

    heard: the stack gets the frames, too, as behind a router.
    """
    mavlink = common.MAVLink(None, srcSystem=1, srcComponent=common.MAV_COMP_ID_ONBOARD_COMPUTER2)
    attitude = q_ned(tuple(quat_from_rpy(0.0, TILT_RAD, 0.0)))

    def send(lockstep: Lockstep) -> None:
        target = mavlink.set_attitude_target_encode(
            int(lockstep.now_s * 1e3), 1, 1, 0b111, attitude, 0, 0, 0, HOVER_THRUST
        )
        data = target.pack(mavlink)
        mavlink.seq = (mavlink.seq + 1) % 256
        lockstep.world.autopilot.receive(data, lockstep.now_s)
        if heard:
            lockstep.arrive(data)

    def begin(lockstep: Lockstep) -> None:
        for i in range(round(FOREIGN_S * rate_hz)):
            lockstep.at(round((HOLD_S + i / rate_hz) * 1e6), partial(send, lockstep))

    return begin


@pytest.mark.parametrize("rate_hz, heard", [(20.0, True), (50.0, True), (20.0, False), (50.0, False)])
def test_five_seconds_of_a_second_companion_in_the_hold_move_the_aircraft_little(tmp_path, rate_hz, heard):
    lockstep = simulated(tmp_path, HOLD_S + 10.0, begin=second_companion(rate_hz, heard))
    away_m = excursion_m(lockstep, HOLD_S, HOLD_S + 8.0)
    nearest_m = FACE_EAST_M - max(t.p_W[0] for t in lockstep.messages["truth"] if t.stamp_s >= HOLD_S)
    modes, phases = modes_of(lockstep), phases_of(lockstep)
    print(f"{rate_hz:g} Hz, heard {heard}: {away_m:.2f} m away, {nearest_m:.2f} m from the face, {modes}, {phases}")
    assert away_m <= 1.5
    assert nearest_m >= 1.0
    assert modes[-1][1] == "AUTO_LOITER"


@pytest.mark.parametrize("phase, end_s", [("TAKEOFF", 45.0), ("LAND", 130.0)])
@pytest.mark.parametrize("heard", [True, False], ids=["heard", "unheard"])
def test_a_second_companion_that_requests_offboard_in_px4s_modes_gets_hold(tmp_path, phase, end_s, heard):
    """It was taken for a pilot: nothing was requested, and PX4 followed the other stream as long as it came."""
    lockstep = simulated(tmp_path, end_s, begin=taking_companion(phase, heard))
    modes, phases = modes_of(lockstep), phases_of(lockstep)
    (taken_s,) = [at_s for i, (at_s, now) in enumerate(modes) if now == "OFFBOARD" and modes[i - 1][1] != "AUTO_LOITER"]
    left_s, left_to = next((at_s, now) for at_s, now in modes if at_s > taken_s)
    requests = [c.action for c in lockstep.messages["fcu_command"] if c.action != "text" and c.stamp_s > taken_s]
    away_m = excursion_m(lockstep, taken_s - 0.2, taken_s + 6.0)
    cause = lockstep.messages["mission_status"][-1].cause
    print(f"{phase}, heard {heard}: {left_s - taken_s:.2f} s, {away_m:.2f} m, {modes}, {phases}, {requests}, {cause}")
    assert left_s - taken_s <= 0.6 and left_to == "AUTO_LOITER"
    assert requests == ["hold"] and phases[-1][1] == "PILOT"
    assert "PX4 is in offboard, which this stack did not request" in cause and "pilot" not in cause
    assert away_m <= 2.5


@pytest.mark.parametrize(
    "kind, mode", [(FaultKind.RC_MODE_SWITCH, "ALTCTL"), (FaultKind.RC_STICKS, "POSCTL")], ids=["switch", "sticks"]
)
def test_the_pilot_takes_over_at_once_and_keeps_the_aircraft(tmp_path, kind, mode):
    lockstep = simulated(tmp_path, HOLD_S + 6.0, [Fault(at_s=HOLD_S, kind=kind, duration_s=0.4)])
    modes, phases = modes_of(lockstep), phases_of(lockstep)
    taken_s = next(at_s for at_s, now in modes if at_s > HOLD_S and now == mode)
    last_s = lockstep.messages["sent_setpoint"][-1].stamp_s
    print(f"{mode} after {taken_s - HOLD_S:.2f} s, last setpoint {last_s - taken_s:.2f} s later; {modes}, {phases}")
    assert taken_s - HOLD_S < 0.8
    assert last_s - taken_s <= 0.2
    assert phases[-1][1] == "PILOT"
    assert "OFFBOARD" not in [now for at_s, now in modes if at_s > taken_s]
    if kind == FaultKind.RC_STICKS:  # in altitude mode the wind moves the aircraft, which is the pilot's to fly
        # the stick moves it for 0.4 s, and PX4 begins with an empty integrator in this wind: 1.85 to 2.02 m in four flights
        assert excursion_m(lockstep, HOLD_S, HOLD_S + 3.0) < 2.5


@pytest.mark.parametrize(
    "conversation",
    [Corrupted(11, 0.1), Corrupted(12, 0.4), Forged(13, 2.0), Forged(14, 8.0)],
    ids=["tenth-corrupted", "two-fifths-corrupted", "forged-2-hz", "forged-8-hz"],
)
def test_attacked_conversations_break_no_promise_with_px4(tmp_path, conversation: Conversation):
    """Three seconds of bytes from PX4 that are lost, cut, flipped, repeated or forged, in the hold."""

    def begin(lockstep: Lockstep) -> None:
        lockstep.at(round(HOLD_S * 1e6), lambda: lockstep.faults.change(LinkRx, conversation.change))
        lockstep.at(round((HOLD_S + 3.0) * 1e6), lambda: lockstep.faults.change(LinkRx, None))

    lockstep = simulated(tmp_path, HOLD_S + 12.0, begin=begin)
    truth, statuses = (
        [m for m in lockstep.messages[topic] if m.stamp_s >= HOLD_S - 0.2] for topic in ("truth", "mission_status")
    )
    loaded = lockstep.loaded
    judged = promises.judge(truth, statuses, loaded.plan.limits, loaded.scenario.start.p_W, FACE_EAST_M)
    print(judged, modes_of(lockstep), phases_of(lockstep), statuses[-1].cause)
    assert not judged.broken
