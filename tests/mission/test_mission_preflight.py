"""A mission starts only when every check passes, and every failing check says what is missing."""

import math

import msgspec
import pytest
from mission_world import World, switch_plan

from companion.core.enums import FcuMode
from companion.core.messages import ControlStatus, FcuAttitude, FcuPosition, FcuStatus, Health, Markers, State


def lacking(kind, **fields):
    return lambda world: world.edit.update({kind: lambda m: msgspec.structs.replace(m, **fields) if fields else None})


CASES = {
    "no link": (lacking(FcuStatus), "link: no data"),
    "link says disconnected": (lacking(FcuStatus, connected=False), "link: no data"),
    "in offboard already": (lacking(FcuStatus, mode="OFFBOARD"), "mode: mode is OFFBOARD"),
    "in the mode of a landing": (lacking(FcuStatus, mode="AUTO_LAND"), "mode: mode is AUTO_LAND"),
    "unknown mode": (lacking(FcuStatus, mode=FcuMode.UNKNOWN), "mode: mode is UNKNOWN"),
    "no fix": (lacking(FcuStatus, gnss_ok=False), "gnss: no fix"),
    "battery low": (lacking(FcuStatus, battery_voltage_v=13.2), "battery: 13.2 V, must be above 13.6 V"),
    "battery impossible": (
        lacking(FcuStatus, battery_voltage_v=65.0),
        "battery: 65.0 V is not possible with thrust.reference_voltage_v = 15.2: wrong battery or file",
    ),
    "battery not measured": (lacking(FcuStatus, battery_voltage_v=0.0), "battery: voltage not measured"),
    "no home": (lacking(FcuStatus, home_W=None), "home: the flight controller has no home position"),
    "armed": (lacking(FcuStatus, armed=True), "on the ground: must be landed, disarmed"),
    "no position": (lacking(FcuPosition), "position: no position"),
    "no attitude": (lacking(FcuAttitude), "attitude: no attitude"),
    "no state": (lacking(State), "state: no state"),
    "state not converged": (lacking(State, valid=False), "state: not converged"),
    "state uncertain": (lacking(State, position_std_m=4.0), "state: uncertain by 4.0 m"),
    "state not a number": (lacking(State, p_W=(math.nan, 0.0, 0.0)), "take-off point: not known"),
    "no controller": (lacking(ControlStatus), "controller: no status"),
    "no tracker": (lacking(Markers), "tracker: no markers message"),
    "no recorder": (lacking(Health), "recorder: no health"),
    "recorder with errors": (lacking(Health, errors=3, last_error="disk full"), "recorder: 3 errors, last: disk full"),
}


@pytest.mark.parametrize("case", CASES)
def test_failing_check_keeps_the_aircraft_on_the_ground_and_is_named(case):
    break_input, words = CASES[case]
    world = World(required_processes=("recorder",))
    break_input(world)
    world.run(10.0)
    assert world.phase == "WAIT_READY" and not [c for c in world.commands if c.action != "text"]
    assert world.status.reason.startswith("waiting: ") and words in world.status.reason
    world.edit.clear()
    world.run_until("DONE")
    assert world.status.success


def test_rc_is_required_when_the_pilot_starts_by_switch():
    world = World(switch_plan())
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(m, rc_ok=False)
    world.run(2.0)
    assert "rc: no RC" in world.status.reason


def test_mission_that_waits_reports_ready_when_every_check_passed():
    world = World(switch_plan()).run(2.0)
    assert world.status.reason == "ready: fly, then turn the mission switch on"
