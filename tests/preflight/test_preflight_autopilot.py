"""Checks of the flight controller: each passes a good one and reports the fault of a bad one."""

import dataclasses
from pathlib import Path

import pytest
from msgspec.structs import replace
from preflight_fakes import healthy

from companion.core.config import load
from companion.core.enums import ImuFault
from companion.core.vehicle import Vehicle
from companion.mission.plan import load_plan
from companion.preflight.autopilot import NAMES, autopilot_checks, without_link
from companion.preflight.observation import Unfit

ROOT = Path(__file__).parents[2]
F550 = load(ROOT / "config/vehicles/f550.toml", Vehicle)
BY_SWITCH = load_plan(ROOT / "config/missions/hover_marker.toml")
BY_ITSELF = load_plan(ROOT / "config/missions/bridge_hover.toml")


def checks(seen, plan=BY_ITSELF):
    return {check.name: check for check in autopilot_checks(seen, F550, plan)}


def without(flag: str) -> dict[str, bool]:
    return healthy().health | {flag: False}


def test_a_healthy_flight_controller_passes_every_check():
    found = checks(healthy())
    assert tuple(found) == NAMES
    assert {check.status for check in found.values()} == {"ok"}


def test_without_a_link_the_same_checks_are_skipped():
    assert [(check.name, check.status) for check in without_link()] == [(name, "skipped") for name in NAMES]


@pytest.mark.parametrize(
    ("name", "changes", "status", "words"),
    [
        ("autopilot", {"wrong": "MAV_AUTOPILOT_ARDUPILOTMEGA", "unfit": Unfit.AUTOPILOT}, "failed", "ARDUPILOT"),
        ("autopilot", {"firmware": None}, "failed", "version"),
        ("autopilot", {"firmware": (1, 13, 3)}, "failed", "0x0000000000000000: too old, must be 1.14 to 1.17"),
        ("autopilot", {"firmware": (1, 18, 0)}, "warning", "newer"),
        ("autopilot", {"release": "DEV"}, "warning", "not a release"),
        ("vehicle type", {"wrong": "MAV_TYPE_FIXED_WING", "unfit": Unfit.VEHICLE}, "failed", "FIXED_WING"),
        ("disarmed", {"armed": True}, "failed", "armed"),
        ("disarmed", {"landed": False}, "failed", "not landed"),
        ("disarmed", {"mode": "OFFBOARD"}, "warning", "mode is OFFBOARD"),
        ("sensors", {"unhealthy": "compass, GNSS"}, "failed", "not healthy: compass, GNSS"),
        ("sensors", {"health": without("is_gyrometer_calibration_ok")}, "failed", "gyro not calibrated"),
        ("ready to arm", {"health": without("is_home_position_ok")}, "failed", "no home position"),
        (
            "ready to arm",
            {"health": without("is_armable"), "texts": ["Preflight Fail: Accel 0 uncalibrated"]},
            "failed",
            "PX4 would not arm (Preflight Fail: Accel 0 uncalibrated)",
        ),
        ("gnss", {"gnss_fix": "FIX_2D"}, "failed", "no 3D fix"),
        ("gnss", {"satellites": 6}, "warning", "few satellites"),
        ("gnss", {"gnss_uncertainty_m": 9.0}, "failed", "must be below 3 m (safety.position_std_m)"),
        ("battery", {"battery_voltage_v": float("nan")}, "failed", "not measured"),
        ("battery", {"battery_voltage_v": 13.5}, "failed", "13.5 V, 95%: must be above 13.6 V (safety.battery_low_v)"),
        (
            "battery",
            {"battery_voltage_v": 17.6},
            "failed",
            "17.6 V, 95%: implausible in flight, which is 11.4 to 17.5 V",
        ),
        ("battery", {"battery_remaining": 0.5}, "warning", "50%: not full"),
        ("transmitter", {"rc_ok": False}, "warning", "no pilot can take over"),
        ("time sync", {"rtts_s": [], "offsets_s": []}, "failed", "no answer"),
        ("time sync", {"rtts_s": [0.002] * 3, "offsets_s": [1.0] * 3}, "failed", "3 answers"),
        ("time sync", {"rtts_s": [0.030] * 40}, "warning", "slow or busy link"),
        ("imu", {"imu_rate_hz": 0.0}, "warning", "does not arrive: the filter predicts by the commands"),
        ("imu", {"imu_rate_hz": 49.6}, "warning", "slower than 120 Hz: the line needs 921600 baud and MAV_1_RATE 0"),
        ("imu", {"imu_fault": ImuFault.DIRECTION, "imu_problem": "it points down"}, "failed", "it points down"),
        (
            "imu",
            {"imu_rate_hz": 20.0, "imu_fault": ImuFault.SLOW, "imu_problem": "slow"},
            "warning",
            "not used in flight",
        ),
        ("time sync", {"offsets_s": [1000.0 + 0.002 * i for i in range(40)]}, "warning", "not steady"),
    ],
)
def test_a_fault_is_reported_by_its_own_check_only(name, changes, status, words):
    found = checks(healthy(**changes))
    assert found[name].status == status
    assert words in found[name].detail
    assert {n for n, check in found.items() if check.status != "ok"} == {name}


@pytest.mark.parametrize("hardware, status", [(0x1F003B34385119, "ok"), (0x1F003B3438511A, "failed"), (0, "failed")])
def test_a_vehicle_file_of_one_flight_controller_is_for_that_one_alone(hardware, status):
    vehicle = replace(F550, fcu=replace(F550.fcu, hardware_id="0x001f003b34385119"))
    check = autopilot_checks(healthy(hardware=hardware), vehicle, BY_ITSELF)[0]
    assert check.status == status and f"0x{hardware:016x}" in check.detail
    assert ("wrong aircraft or wrong file" in check.detail) == (status == "failed")


def test_a_mission_that_waits_for_the_pilots_switch_needs_a_transmitter():
    assert BY_SWITCH.start == "rc_switch"
    check = checks(healthy(rc_ok=False), BY_SWITCH)["transmitter"]
    assert check.status == "failed" and "rc_switch" in check.detail


def test_a_battery_of_unknown_charge_is_judged_by_its_voltage():
    check = checks(healthy(battery_remaining=float("nan")))["battery"]
    assert (check.status, check.detail) == ("ok", "16.4 V")


def test_an_imu_that_the_vehicle_file_does_not_request_is_not_judged():
    vehicle = replace(F550, fcu=replace(F550.fcu, imu_rate_hz=0.0))
    check = autopilot_checks(healthy(imu_rate_hz=50.0), vehicle, BY_ITSELF)[-1]
    assert (check.name, check.status) == ("imu", "skipped") and "fcu.imu_rate_hz = 0" in check.detail


def test_missing_health_is_a_failure():
    found = checks(healthy(health={}))
    assert found["sensors"].status == found["ready to arm"].status == "failed"


def test_without_satellites_neither_fix_nor_position_is_asked_for_and_the_imu_is_essential():
    alone = load_plan(ROOT / "config/missions/bridge_no_satellites.toml")
    health = healthy().health | dict.fromkeys(
        ("is_local_position_ok", "is_global_position_ok", "is_home_position_ok"), False
    )
    seen = dataclasses.replace(healthy(), health=health, gnss_fix="NO_GPS", satellites=0)
    found = checks(seen, alone)
    assert found["gnss"].status == "skipped" and found["ready to arm"].status == "ok"
    assert not {"failed", "warning"} & {check.status for check in found.values()}
    silent = checks(dataclasses.replace(seen, imu_rate_hz=0.0), alone)["imu"]
    assert silent.status == "failed" and "HIGHRES_IMU does not arrive" in silent.detail
    assert checks(dataclasses.replace(healthy(), imu_rate_hz=0.0))["imu"].status == "warning"
