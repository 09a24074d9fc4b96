"""Attacks on the link in the hold, with nothing touched and no unsafe end."""

import math
from collections.abc import Callable

import pytest
from link_attack_flights import attack

from companion.core.enums import FcuMode
from sitl.link_attacks import ForeignSetpoints
from sitl.lockstep import Lockstep
from sitl.scenario import Fault, FaultKind

TILT_RAD, HOVER = math.radians(10.0), 0.344
ROUTED, UNSEEN = 1, 0
CLEARANCE_M = 0.4  # rotor tips of the F550 from its centre


def second_companion(rate_hz: float, routed: int) -> tuple:
    """A second companion that sends for 5 s."""
    return "foreign_setpoints", 5.0, rate_hz, TILT_RAD, HOVER, routed


@pytest.mark.parametrize(
    ("rate_hz", "routed"),
    [
        (20, UNSEEN),
        pytest.param(50, UNSEEN, marks=pytest.mark.verify),
        pytest.param(20, ROUTED, marks=pytest.mark.verify),
        pytest.param(50, ROUTED, marks=pytest.mark.verify),
        pytest.param(10, UNSEEN, marks=pytest.mark.verify),
        pytest.param(5, UNSEEN, marks=pytest.mark.verify),
    ],
)
def test_against_a_second_companion_px4_is_asked_for_hold_once(rate_hz, routed):
    """It flew 16 m away and past the face: PX4 stayed in offboard on the other stream."""
    outcome = attack(second_companion(rate_hz, routed), seconds=12.0)
    assert outcome.excursion_m <= 1.5 and outcome.nearest_m > CLEARANCE_M
    assert [action for _, action in outcome.requests] == ["hold"]
    assert [(old, new) for _, old, new in outcome.modes] == [("OFFBOARD", "AUTO_LOITER")]
    assert outcome.phases[-1][1] == "PILOT" and outcome.cause.startswith("another sender on the link (")
    if rate_hz >= 20:
        assert outcome.last_setpoint_s <= 0.5


def _offboard_again(lockstep: Lockstep) -> None:
    """The second companion requests offboard when PX4 has left it."""
    commander = lockstep.world.autopilot.commander
    lockstep.at(lockstep.now_us + 1_500_000, lambda: commander.request_mode(FcuMode.OFFBOARD, lockstep.now_s))


@pytest.mark.verify
def test_a_second_companion_that_requests_offboard_again_is_held_again():
    """No person decides so soon after our Hold."""
    outcome = attack(second_companion(50, UNSEEN), seconds=4.0, prepare=_offboard_again)
    assert [action for _, action in outcome.requests] == ["hold", "hold"]
    assert [new for _, _, new in outcome.modes] == ["AUTO_LOITER", "OFFBOARD", "AUTO_LOITER"]
    assert outcome.excursion_m <= 1.5 and outcome.nearest_m > CLEARANCE_M


def _takes_the_aircraft(phase: str, rate_hz: float, routed: int, after_s: float = 2.5) -> Callable[[Lockstep], None]:
    """A second companion that streams from a phase on and requests offboard `after_s` later."""

    def prepare(lockstep: Lockstep) -> None:
        def wait() -> None:
            if lockstep.pilot.phase != phase:
                lockstep.at(lockstep.now_us + 20_000, wait)
                return
            other = ForeignSetpoints(lockstep.faults.target, rate_hz, TILT_RAD, HOVER, bool(routed))
            lockstep.at(lockstep.now_us + round(after_s * 1e6), other.request_offboard)
            lockstep.at(lockstep.now_us + 8_000_000, other.stop)

        wait()

    return prepare


def _sends_body_rates(roll_rad_s: float, rate_hz: float = 50.0) -> Callable[[Lockstep], None]:
    """A second companion on another port of PX4, whose setpoints no echo shows, for 8 s."""

    def prepare(lockstep: Lockstep) -> None:
        other = ForeignSetpoints(lockstep.faults.target, rate_hz, 0.0, HOVER, False, roll_rad_s)
        lockstep.at(lockstep.now_us + 8_000_000, other.stop)

    return prepare


@pytest.mark.parametrize("roll_rad_s", [0.3, pytest.param(1.0, marks=pytest.mark.verify)])
def test_body_rates_beside_our_setpoints_move_it_little_or_end_the_flight_by_the_tilt(roll_rad_s):
    """They take part of the time from our attitudes, of which PX4 echoes each one: it is no conflict."""
    outcome = attack(seconds=12.0, excursion_until_s=1.0, prepare=_sends_body_rates(roll_rad_s))
    assert outcome.nearest_m > 2.0 and outcome.excursion_m <= 0.3
    assert outcome.phases[-1][1] == "HOLD" or outcome.cause.startswith("attitude does not follow the command")


def test_body_rates_that_alone_keep_px4_in_offboard_are_held_by_the_mode():
    """No echo shows them: PX4 stayed on them for as long as they came."""

    def prepare(lockstep: Lockstep) -> None:
        _sends_body_rates(0.02)(lockstep)
        controller = Fault(at_s=lockstep.now_s, kind=FaultKind.PROCESS_DEAD, duration_s=30.0, name="controller")
        lockstep.faults.add(controller)

    outcome = attack(seconds=8.0, prepare=prepare)
    assert [action for _, action in outcome.requests] == ["hold"] and outcome.requests[0][0] < 2.5
    assert outcome.modes[-1][2] == "AUTO_LOITER" and outcome.nearest_m > CLEARANCE_M


BATTERY_CRITICAL = ("battery_low", 60.0, 12.8, 0.06)


@pytest.mark.parametrize(
    ("phase", "routed"),
    [
        ("TAKEOFF", UNSEEN),
        ("LAND", ROUTED),
        pytest.param("TAKEOFF", ROUTED, marks=pytest.mark.verify),
        pytest.param("LAND", UNSEEN, marks=pytest.mark.verify),
    ],
)
@pytest.mark.parametrize("rate_hz", [20, pytest.param(50, marks=pytest.mark.verify)])
def test_a_second_companion_that_takes_the_aircraft_in_px4s_modes_loses_it_by_one_hold(phase, routed, rate_hz):
    """It was called a pilot's mode change: nothing was requested, and PX4 followed its stream."""
    own = (BATTERY_CRITICAL,) if phase == "LAND" else ()
    begins = "takeoff" if phase == "TAKEOFF" else "hold"
    outcome = attack(*own, seconds=14.0, prepare=_takes_the_aircraft(phase, rate_hz, routed), begins=begins)
    taken_s = next(at_s for at_s, _, new in outcome.modes if new == "OFFBOARD")
    left_s, left_to = next((at_s, new) for at_s, old, new in outcome.modes if old == "OFFBOARD" and at_s > taken_s)
    assert left_s - taken_s <= 0.5 and left_to == "AUTO_LOITER"
    assert [action for at_s, action in outcome.requests if at_s > taken_s] == ["hold"]
    assert outcome.phases[-1][1] == "PILOT" and outcome.nearest_m > CLEARANCE_M
    assert "rc_takeover" not in [monitor for _, monitor, _, _ in outcome.events]


@pytest.mark.verify
@pytest.mark.parametrize("routed", [ROUTED, UNSEEN])
def test_an_offboard_of_a_second_companion_before_our_own_is_not_flown_on(routed):
    """In ENTER_OFFBOARD it looked like the mode that this stack was about to request."""
    outcome = attack(seconds=20.0, prepare=_takes_the_aircraft("ENTER_OFFBOARD", 20, routed, 1.1), begins="takeoff")
    actions = [action for _, action in outcome.requests]
    assert actions[-1] == "hold" and actions.count("hold") == 1 and "offboard" not in actions
    assert outcome.phases[-1][1] == "PILOT" and outcome.modes[-1][2] == "AUTO_LOITER"


def _refuses_hold(lockstep: Lockstep) -> None:
    commander = lockstep.world.autopilot.commander
    granted = commander.request_mode

    def request(mode, *rest, **options):
        return mode != FcuMode.AUTO_LOITER and granted(mode, *rest, **options)

    commander.request_mode = request


@pytest.mark.verify
def test_a_refused_hold_is_followed_by_one_request_to_land():
    outcome = attack(second_companion(20, UNSEEN), seconds=20.0, excursion_until_s=2.0, prepare=_refuses_hold)
    assert [action for _, action in outcome.requests] == ["hold", "land"]
    assert outcome.excursion_m <= 1.5 and outcome.nearest_m > CLEARANCE_M and outcome.landed


@pytest.mark.verify
def test_a_pilot_who_takes_over_is_not_disturbed_by_the_other_senders_stream():
    """PX4 is not in offboard any more: nothing is requested, whatever the other sender does."""
    takeover = ("rc_mode_switch", 30.0)
    outcome = attack(takeover, ("foreign_setpoints", 5.0, 20, TILT_RAD, HOVER, ROUTED), seconds=6.0)
    assert outcome.requests == [] and outcome.phases[-1][1] == "PILOT"


@pytest.mark.parametrize("stagger_s", [0.0, 0.007, 0.013])
def test_after_a_pilots_takeover_the_last_setpoint_leaves_within_0_15_s(stagger_s):
    """The link node stops by itself; the mission needed 0.40 s to end the stream."""

    def wait(lockstep: Lockstep) -> None:
        until_s = lockstep.now_s + stagger_s
        lockstep.run_until(lambda: lockstep.now_s >= until_s)

    outcome = attack(("rc_mode_switch", 30.0), seconds=2.0, prepare=wait)
    (switched_s, _, _) = outcome.modes[0]
    assert outcome.last_setpoint_s - switched_s <= 0.15


VOLTAGES = {
    "65 V for 0.6 s": (0.6, 65.0),
    "65 V": (60.0, 65.0),
    "1 V": (60.0, 1.0),
    "not a number": (60.0, math.nan),
    "0 V": (60.0, 0.0),
    "65 V and 1 V in turn": (60.0, 65.0, 1.0),
    "a full battery": (60.0, 17.3),
    "an empty battery": (60.0, 11.6),
    "a full and an empty battery in turn": (60.0, 17.3, 11.6),
}
ENDS = {"HOLD", "RETURN", "LAND", "DONE"}  # by the battery's monitors, or none


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "65 V for 0.6 s" else pytest.mark.verify) for n in VOLTAGES]
)
def test_a_wrong_voltage_moves_a_hover_by_0_3_m_at_most(name):
    """65 V for 0.6 s: the aircraft fell from 3 m to 0.15 m; 1 V for longer: it climbed."""
    lasts_s, *voltages_v = VOLTAGES[name]
    outcome = attack(("voltage_wrong", lasts_s, *voltages_v), seconds=8.0, excursion_until_s=1.0)
    assert outcome.excursion_m <= 0.3 and outcome.nearest_m > CLEARANCE_M
    assert {phase for _, phase in outcome.phases} <= ENDS
    if outcome.phases[-1][1] == "HOLD":
        whole = attack(("voltage_wrong", lasts_s, *voltages_v), seconds=8.0)
        assert whole.excursion_m <= 0.3


@pytest.mark.verify
@pytest.mark.parametrize(("velocity_m_s", "tilt_rad"), [(8.0, 0.0), (0.0, 0.5), (8.0, 0.5)])
def test_wrong_copies_of_every_frame_do_not_reach_control(velocity_m_s, tilt_rad):
    outcome = attack(("frames_wrong", 60.0, velocity_m_s, tilt_rad), seconds=8.0)
    assert outcome.excursion_m <= 0.3 and outcome.phases == [(0.1, "HOLD")]
    assert "implausible" in [monitor for _, monitor, _, _ in outcome.events]
