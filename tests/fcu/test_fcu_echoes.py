"""Setpoints of another sender are found in PX4's echoes, and no healthy flight raises an alarm."""

import math

import pytest
from echo_channel import Flight, Link, fly
from pymavlink.dialects.v20 import common

from companion.core.messages import FcuStatus
from companion.fcu.guards.echoes import ECHO_RATE_HZ

PLAIN, LOSS = Link(), Link(loss=0.2)
LINKS = {
    "plain": PLAIN,
    "a fifth lost": LOSS,
    "slow, with jitter": Link(up_s=0.3, down_s=0.3, jitter_s=0.2),
    "echoes overtake each other": Link(late_share=0.2),
    "all of it": Link(up_s=0.03, down_s=0.05, jitter_s=0.04, loss=0.2, late_share=0.2, late_s=0.15),
    "nothing arrives for 2.5 s": Link(stall_s=(4.0, 6.5)),
    "the delay grows by 0.4 s": Link(step_s=(4.0, 0.4)),
    "PX4's clock is 0.6 s behind": Link(clock_s=(4.0, 0.6)),
}
HEALTHY = {
    "flight": Flight(),
    "the pilot takes over": Flight(leaves_s=5.0),
    "this process restarts": Flight(restarts_s=5.0),
    "the stream ends": Flight(stops_s=5.0),
    "the stream ends, PX4 waits for 1 s": Flight(stops_s=5.0, loss_s=1.0),
    "PX4 never in offboard": Flight(silent=True, enters_s=99.0),
}
RATES_HZ = (10, 20, 30, 50, 100)
THOROUGH = pytest.mark.verify


def seeds(few, many):
    return [pytest.param(range(few), id="sample"), pytest.param(range(few, many), id="many", marks=THOROUGH)]


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("flight", HEALTHY)
@pytest.mark.parametrize("runs", seeds(1, 20))
def test_no_alarm_in_a_healthy_flight(flight, link, runs):
    """At every rate of the echo; without synchronised clocks, too, in every second flight."""
    for seed in runs:
        for rate_hz in RATES_HZ if len(runs) > 1 else (RATES_HZ[list(LINKS).index(link) % len(RATES_HZ)],):
            result = fly(HEALTHY[flight]._replace(echo_hz=rate_hz), LINKS[link], seed, synced=seed % 2 == 0)
            assert result.found_s is None, (rate_hz, seed)


@pytest.mark.parametrize(("link", "within_s"), [(PLAIN, 0.5), (LOSS, 0.6)], ids=["plain", "a fifth lost"])
@pytest.mark.parametrize("runs", seeds(6, 60))
def test_setpoints_at_20_hz_beside_ours_are_found_within_half_a_second(link, within_s, runs):
    """Before, ten echoes in a row had to be foreign: with ours in between that never happened."""
    results = [fly(Flight(echo_hz=ECHO_RATE_HZ, foreign_hz=20), link, seed) for seed in runs]
    assert max(r.found_s for r in results) <= within_s
    assert max(r.followed_s for r in results) <= 0.25


@pytest.mark.parametrize("runs", seeds(6, 60))
def test_at_50_hz_px4_follows_the_other_sender_for_0_6_s_at_most(runs):
    """In phase with ours they may be found late: then PX4 follows each for a millisecond or less."""
    results = [fly(Flight(echo_hz=ECHO_RATE_HZ, foreign_hz=50), LOSS, seed) for seed in runs]
    assert max(r.followed_s for r in results) <= 0.6


@pytest.mark.parametrize(("foreign_hz", "median_s"), [(10, 0.6), (5, 1.0), (2, 3.0)])
def test_slower_setpoints_are_found_later(foreign_hz, median_s):
    found = [
        fly(Flight(echo_hz=ECHO_RATE_HZ, foreign_hz=foreign_hz, duration_s=12), PLAIN, s).found_s for s in range(7)
    ]
    assert None not in found and sorted(found)[3] <= median_s


@pytest.mark.parametrize("behind_s", [0.0005, 0.002, 0.006])
def test_a_sender_that_replaces_each_of_our_setpoints_is_found(behind_s):
    """PX4 follows ours for so short a time that none is echoed: its mode is asked for, and it is still offboard."""
    for seed in range(3):
        assert fly(Flight(follows_ours_s=behind_s), Link(jitter_s=0.0), seed).found_s <= 0.5


def test_a_pilots_takeover_is_known_soon_although_its_report_is_lost():
    """PX4's own setpoints are the first sign; a heartbeat is requested, and no alarm is raised."""
    results = [fly(Flight(leaves_s=5.0), LOSS, seed) for seed in range(10)]
    assert all(r.found_s is None for r in results)
    left_s = sorted(r.left_s for r in results)
    assert left_s[5] < 0.1 and left_s[-1] < 0.5


SILENT = {
    "nothing was sent": Flight(silent=True, foreign_hz=20, foreign_s=(0.5, math.inf), enters_s=1.5),
    "the last setpoint left before": Flight(stops_s=3.5, foreign_hz=20),
}


@pytest.mark.parametrize("link", ["plain", "a fifth lost", "all of it"])
@pytest.mark.parametrize("flight", SILENT)
@pytest.mark.parametrize("runs", seeds(3, 30))
def test_a_sender_on_another_port_is_found_while_this_stack_sends_nothing(flight, link, runs):
    """Before, echoes did not count without our own setpoints: during take-off and landing there was no conflict."""
    for seed in runs:
        for rate_hz in (20, 50):
            case = SILENT[flight]._replace(foreign_hz=rate_hz)
            begin_s = case.enters_s if case.silent else case.stops_s
            result = fly(case, LINKS[link], seed, synced=seed % 2 == 0)
            assert result.found_s is not None, (rate_hz, seed)
            assert case.foreign_s[0] + result.found_s - begin_s <= (2.0 if link == "plain" else 3.5)


@pytest.mark.parametrize(("mode", "found"), [(6 << 16, True), (3 << 16, False), (4 << 16 | 2 << 24, False)])
def test_the_node_reports_a_conflict_by_echoes_alone_only_in_offboard(flying, mode, found):
    """PX4 reports the setpoints of its own modes in the same way."""
    flying.armed, flying.custom_mode = True, mode
    flying.run(1.0)
    for i in range(80):
        q = [math.cos(i / 500), math.sin(i / 500), 0.0, 0.0]
        flying.deliver(common.MAVLink_attitude_target_message(flying.boot_ms, 0, q, 0.0, 0.0, 0.0, 0.4))
        flying.run(0.05)
    conflicts = {m.conflict for _, m in flying.out if isinstance(m, FcuStatus)}
    assert ("the flight controller follows setpoints of another sender" in conflicts) == found
