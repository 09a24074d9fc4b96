"""A mission starts only when every check passes, and every failing check says what is missing."""

import itertools
import math

import msgspec
import pytest
from mission_world import ON_US, World, switch_plan

from companion.core.enums import FcuMode, ImuFault
from companion.core.messages import (
    ControlStatus,
    EstimatorStatus,
    FcuAttitude,
    FcuPosition,
    FcuStatus,
    Health,
    ImuReport,
    Markers,
    State,
)


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
    "inertial measurements wrong": (
        lacking(EstimatorStatus, imu=ImuReport(200.0, ImuFault.DIRECTION, "they do not point up")),
        "inertial measurements: they do not point up",
    ),
    "bundle upside down": (
        lacking(EstimatorStatus, upside_down=("pier",)),
        "bundle upright: 'pier' hangs upside down: turn the print, or correct plumb in the marker file",
    ),
    "no controller": (lacking(ControlStatus), "controller: no status"),
    "no tracker": (lacking(Markers), "tracker: no markers message"),
    "no recorder": (lacking(Health), "recorder: no health"),
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


def test_no_mission_starts_while_a_required_process_counts_errors():
    world = World(required_processes=("recorder",))
    counts = itertools.count(1)
    world.edit[Health] = lambda m: msgspec.structs.replace(m, errors=next(counts), last_error="disk full")
    world.run(20.0)
    assert world.phase == "WAIT_READY" and "errors, last: disk full" in world.status.reason
    last = next(counts)
    world.edit[Health] = lambda m: msgspec.structs.replace(m, errors=last, last_error="disk full")
    quiet_s = world.now_s
    world.run_until("ARM")
    assert world.now_s - quiet_s == pytest.approx(10.0, abs=1.0)


def test_no_mission_starts_with_a_process_that_was_started_with_other_files():
    world = World(required_processes=("recorder", "estimator"), files="ba9876543210")
    with_files = lambda m, files: msgspec.structs.replace(m, files=files)  # noqa: E731
    others = {"estimator": "0123456789ab", "fcu": ""}
    world.edit[Health] = lambda m: with_files(m, others.get(m.process, "ba9876543210"))
    world.run(10.0)
    assert world.phase == "WAIT_READY"
    assert "estimator: a file of this flight was changed" in world.status.reason
    assert "recorder" not in world.status.reason
    world.edit[Health] = lambda m: with_files(m, "ba9876543210")
    assert world.run_until("DONE").status.success


def test_rc_is_required_when_the_pilot_starts_by_switch():
    world = World(switch_plan())
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(m, rc_ok=False)
    world.run(2.0)
    assert "rc: no RC" in world.status.reason


def test_mission_that_waits_reports_ready_when_every_check_passed():
    world = World(switch_plan()).run(2.0)
    assert world.status.reason == "ready: fly, then turn the mission switch on"


@pytest.mark.parametrize(
    "imu, rate, plan",
    [
        (ImuReport(20.0, ImuFault.SLOW, "too slow"), "20 of 200 Hz", None),
        (ImuReport(20.0, ImuFault.SLOW, "too slow"), "20 of 200 Hz", switch_plan()),
        (ImuReport(0.0), "0 of 200 Hz", None),
        (ImuReport(0.0, ImuFault.STOPPED, "stopped"), "0 of 200 Hz", None),
        (ImuReport(200.0), None, None),
        (None, None, None),
    ],
    ids=["slow", "slow, by switch", "absent", "stopped", "good", "not reported"],
)
def test_a_slow_or_absent_stream_of_inertial_measurements_is_warned_of_and_flown(imu, rate, plan):
    world = World(plan)
    world.edit[EstimatorStatus] = lambda m: msgspec.structs.replace(m, imu=imu)
    if plan is None:
        world.run_until("TAKEOFF")
    else:
        world.run(2.0).pilot_takes_off()
        world.channel_us = ON_US
        world.run_until("SEARCH")
    texts = [c.text for c in world.commands if c.action == "text" and "inertial measurements at" in c.text]
    assert len(texts) == (rate is not None) and all(rate in text for text in texts)
