"""The table of PX4 parameters: each rule accepts what it should, refuses what it should, and its fix satisfies it."""

import math
from pathlib import Path

import msgspec
import pytest

from companion.core.config import load
from companion.core.px4_parameters import PlannedFlight, Rule, rules
from companion.core.vehicle import Vehicle
from companion.preflight.parameters import parameter_checks, proposals
from sitl.autopilot.parameters import load_parameters

F550 = load(Path(__file__).parents[2] / "config/vehicles/f550.toml", Vehicle)
FLIGHT = PlannedFlight(height_m=8.0, distance_m=15.0, switch_channel=9)

GOOD = {
    "COM_OF_LOSS_T": 0.5, "COM_OBL_RC_ACT": 0, "COM_RC_OVERRIDE": 3, "COM_RC_STICK_OV": 30.0, "COM_RC_IN_MODE": 0,
    "COM_RCL_EXCEPT": 0, "RC_MAP_KILL_SW": 7, "RC_MAP_FLTMODE": 5, "COM_FLTMODE1": 8, "COM_FLTMODE2": 8,
    "COM_FLTMODE3": 1, "COM_FLTMODE4": 1, "COM_FLTMODE5": 4, "COM_FLTMODE6": 2, "NAV_RCL_ACT": 3, "NAV_DLL_ACT": 0,
    "COM_LOW_BAT_ACT": 2, "GF_ACTION": 2, "GF_MAX_HOR_DIST": 20.0, "GF_MAX_VER_DIST": 13.0, "GF_SOURCE": 0,
    "GF_PREDICT": 0, "FD_FAIL_R": 60, "FD_FAIL_P": 60, "MPC_TILTMAX_AIR": 45.0, "MPC_MAN_TILT_MAX": 35.0, "THR_MDL_FAC": 0.0, "MPC_THR_HOVER": 0.344, "MC_BAT_SCALE_EN": 0,
    "CBRK_SUPPLY_CHK": 0, "RTL_RETURN_ALT": 60.0, "EKF2_EV_CTRL": 15, "EKF2_EV_NOISE_MD": 0,
    "COM_FLT_TIME_MAX": -1, "COM_FLTT_LOW_ACT": 1, "COM_WIND_MAX_ACT": 1, "COM_ACT_FAIL_ACT": 0, "COM_IMB_PROP_ACT": 0,
    "RC_MAP_OFFB_SW": 0, "RC_MAP_RETURN_SW": 0, "RC_MAP_LOITER_SW": 0, "RC_MAP_ARM_SW": 0, "RC_MAP_TERM_SW": 0,
    "RC_MAP_FLTM_BTN": 0,
}  # fmt: skip

# name, a value that is refused or doubted, how, and what the fixed value is (None: only a person can choose)
BAD = [
    ("COM_OF_LOSS_T", 5.0, "failed", 0.5),
    ("COM_OF_LOSS_T", 0.0, "failed", 0.5),
    ("COM_OF_LOSS_T", 0.3, "failed", 0.5),
    ("COM_OBL_RC_ACT", 2, "failed", 0),
    ("COM_OBL_RC_ACT", 7, "failed", 0),
    ("COM_OBL_RC_ACT", 3, "failed", 0),
    ("COM_RC_OVERRIDE", 1, "failed", 3),
    ("COM_RC_OVERRIDE", 2, "warning", 3),
    ("COM_RC_STICK_OV", 60.0, "warning", 30.0),
    ("COM_RC_IN_MODE", 4, "failed", 0),
    ("COM_RC_IN_MODE", 1, "failed", 0),
    ("COM_RC_IN_MODE", 6, "failed", 0),
    ("COM_RC_IN_MODE", 8, "failed", 0),
    ("COM_RC_IN_MODE", 2, "warning", 0),
    ("COM_RC_IN_MODE", 3, "warning", 0),
    ("COM_RCL_EXCEPT", 5, "failed", 1),
    ("RC_MAP_KILL_SW", 0, "failed", None),
    ("RC_MAP_KILL_SW", 9, "failed", None),
    ("RC_MAP_FLTMODE", 0, "warning", None),
    ("RC_MAP_FLTMODE", 9, "warning", None),
    ("COM_FLTMODE1", 7, "failed", None),
    ("COM_FLTMODE6", 7, "failed", None),
    ("NAV_RCL_ACT", 2, "failed", 3),
    ("NAV_RCL_ACT", 6, "failed", 3),
    ("NAV_DLL_ACT", 2, "failed", 0),
    ("COM_LOW_BAT_ACT", 3, "failed", 2),
    ("COM_LOW_BAT_ACT", 0, "warning", 2),
    ("GF_ACTION", 4, "failed", 2),
    ("GF_ACTION", 3, "failed", 2),
    ("GF_ACTION", 1, "failed", 2),
    ("GF_ACTION", 0, "failed", 2),
    ("GF_SOURCE", 1, "warning", 0),
    ("GF_PREDICT", 1, "failed", 0),
    ("GF_MAX_HOR_DIST", 15.0, "failed", 20.0),
    ("GF_MAX_HOR_DIST", 0.0, "failed", 20.0),
    ("GF_MAX_HOR_DIST", 31.0, "failed", 20.0),
    ("GF_MAX_VER_DIST", 2.0, "failed", 13.0),
    ("GF_MAX_VER_DIST", 0.0, "failed", 13.0),
    ("GF_MAX_VER_DIST", 24.0, "failed", 13.0),
    ("FD_FAIL_R", 25, "failed", 60),
    ("FD_FAIL_P", 37, "failed", 60),
    ("MPC_TILTMAX_AIR", 20.0, "warning", 29.0),
    ("MPC_MAN_TILT_MAX", 10.0, "warning", 29.0),
    ("THR_MDL_FAC", 0.3, "failed", 0.0),
    ("MPC_THR_HOVER", 0.5, "warning", None),
    ("MC_BAT_SCALE_EN", 1, "warning", None),
    ("CBRK_SUPPLY_CHK", 894281, "failed", 0),
    ("COM_FLT_TIME_MAX", 600, "failed", -1),
    ("COM_FLTT_LOW_ACT", 3, "failed", 1),
    ("COM_WIND_MAX_ACT", 3, "failed", 1),
    ("COM_WIND_MAX_ACT", 4, "failed", 1),
    ("COM_ACT_FAIL_ACT", 3, "failed", 0),
    ("COM_ACT_FAIL_ACT", 4, "failed", 0),
    ("COM_IMB_PROP_ACT", 1, "failed", 0),
    ("RC_MAP_OFFB_SW", 12, "failed", 0),
    ("RC_MAP_RETURN_SW", 9, "failed", None),
    ("RC_MAP_LOITER_SW", 9, "failed", None),
    ("RC_MAP_ARM_SW", 9, "failed", None),
    ("RC_MAP_TERM_SW", 9, "failed", None),
    ("EKF2_EV_CTRL", 8, "failed", 9),
    ("EKF2_EV_NOISE_MD", 1, "warning", 0),
]


def rule(name: str, flight: PlannedFlight | None = FLIGHT, vehicle: Vehicle = F550) -> Rule:
    (found,) = [r for r in rules(vehicle, flight, send_odometry=True) if r.name == name]
    return found


@pytest.mark.parametrize("name", [r.name for r in rules(F550, FLIGHT, send_odometry=True)])
def test_every_rule_accepts_a_good_value_and_has_a_bad_one_below(name):
    assert rule(name).judge(GOOD) == ("ok", f"{GOOD[name]:g}")
    assert name in {bad[0] for bad in BAD} or name.startswith("COM_FLTMODE") or name == "RC_MAP_FLTM_BTN"


@pytest.mark.parametrize(("name", "value", "status", "fixed"), BAD)
def test_a_bad_value_is_reported_with_its_reason_and_the_fixed_one_passes(name, value, status, fixed):
    row, values = rule(name), {**GOOD, name: value}
    judged, words = row.judge(values)
    assert judged == status
    assert words.startswith(f"{value:g}, {'must' if status == 'failed' else 'should'} be ") and row.why in words
    assert row.fix(value, values) == fixed
    if fixed is not None:
        assert type(fixed) is type(GOOD[name])
        assert row.judge({**values, name: fixed})[0] == "ok"


def test_a_mode_button_on_the_missions_channel_is_refused_where_px4_reads_buttons():
    row, both = rule("RC_MAP_FLTM_BTN"), {**GOOD, "RC_MAP_FLTM_BTN": 0b1_1000_0000}
    assert row.judge({**both, "RC_MAP_FLTMODE": 0})[0] == "failed"
    assert row.judge({**both, "RC_MAP_FLTMODE": 5})[0] == "ok", "PX4 reads the mode switch in place of buttons"
    assert row.fix(0b1_1000_0000, both) == 0b1000_0000


@pytest.mark.parametrize(
    "name",
    ["COM_OBL_RC_ACT", "NAV_RCL_ACT", "NAV_DLL_ACT", "COM_LOW_BAT_ACT", "GF_ACTION", "COM_FLTT_LOW_ACT",
     "COM_FLT_TIME_MAX", "COM_WIND_MAX_ACT", "COM_ACT_FAIL_ACT", "COM_IMB_PROP_ACT"],
)  # fmt: skip
def test_return_is_allowed_where_it_does_not_climb_out_of_the_missions_heights(name):
    returns = {"NAV_RCL_ACT": 2, "NAV_DLL_ACT": 2, "COM_IMB_PROP_ACT": 1, "COM_FLT_TIME_MAX": 600}.get(name, 3)
    low = {**GOOD, name: returns, "RTL_RETURN_ALT": 8.0}
    assert rule(name).judge(low)[0] == "ok"
    assert rule(name).judge({**low, "RTL_RETURN_ALT": 8.5})[0] == "failed"
    del low["RTL_RETURN_ALT"]
    assert rule(name).judge(low)[0] == "failed"
    assert rule(name, flight=None).judge({**GOOD, name: returns})[0] == "ok"


def test_without_a_mission_nothing_is_asked_that_depends_on_one():
    assert not {r.name for r in rules(F550)} & {"GF_MAX_HOR_DIST", "GF_MAX_VER_DIST", "RC_MAP_RETURN_SW"}


@pytest.mark.parametrize(
    ("name", "value"),
    [("COM_FLTT_LOW_ACT", 3), ("COM_FLT_TIME_MAX", 600), ("COM_WIND_MAX_ACT", 2), ("COM_ACT_FAIL_ACT", 1),
     ("COM_IMB_PROP_ACT", 1)],
)  # fmt: skip
def test_without_satellites_no_failsafe_may_hold_or_return(name, value):
    row, values = rule(name, FLIGHT._replace(satellites=False)), {**GOOD, name: value, "RTL_RETURN_ALT": 5.0}
    assert row.judge(GOOD)[0] == "ok" and row.judge(values)[0] == "failed"
    assert row.judge({**values, name: row.fix(value, values)})[0] == "ok"


def test_a_foreign_position_should_not_be_fused_when_the_stack_sends_no_odometry():
    (found,) = [r for r in rules(F550, FLIGHT) if r.name.startswith("EKF2_EV")]
    assert found.judge({"EKF2_EV_CTRL": 0})[0] == "ok"
    for value in (1, 8, 15):
        judged, words = found.judge({"EKF2_EV_CTRL": value})
        assert judged == "warning" and "fcu.send_odometry" in words and "motion capture" in words
        assert found.fix(value, {"EKF2_EV_CTRL": value}) == 0
    (change,) = proposals([found], {"EKF2_EV_CTRL": 15})
    assert (change.old, change.new) == (15, 0)
    assert rule("EKF2_EV_CTRL").judge({"EKF2_EV_CTRL": 0})[0] == "failed"  # with ODOMETRY it must be used


def test_tilt_limits_follow_the_vehicle_file():
    steep = msgspec.structs.replace(F550, controller=msgspec.structs.replace(F550.controller, tilt_max_rad=0.8))
    judged, _ = rule("FD_FAIL_R", vehicle=steep).judge(GOOD)
    assert judged == "failed"  # 46° and 15° spare are more than 60°
    assert rule("FD_FAIL_R", vehicle=steep).fix(60, GOOD) == math.ceil(math.degrees(0.8) + 15)


def test_the_thrust_model_factor_is_the_vehicle_files():
    bent = msgspec.structs.replace(F550, thrust=msgspec.structs.replace(F550.thrust, model_factor=0.3))
    assert rule("THR_MDL_FAC", vehicle=bent).judge({**GOOD, "THR_MDL_FAC": 0.30000001192092896})[0] == "ok"
    assert rule("THR_MDL_FAC", vehicle=bent).judge(GOOD)[0] == "failed"
    assert rule("THR_MDL_FAC", vehicle=bent).fix(0.0, GOOD) == 0.3


def test_a_battery_that_px4_compensates_must_not_be_compensated_again():
    flat = msgspec.structs.replace(F550, thrust=msgspec.structs.replace(F550.thrust, voltage_exponent=0.0))
    assert rule("MC_BAT_SCALE_EN", vehicle=flat).judge({**GOOD, "MC_BAT_SCALE_EN": 1})[0] == "ok"
    assert rule("MC_BAT_SCALE_EN", vehicle=flat).judge({**GOOD, "MC_BAT_SCALE_EN": 0})[0] == "warning"


@pytest.mark.parametrize("rounded_s", [0.3999999762, 0.40000000596])
def test_a_value_that_was_rounded_on_the_wire_is_the_value(rounded_s):
    assert rule("COM_OF_LOSS_T").judge({**GOOD, "COM_OF_LOSS_T": rounded_s})[0] == "ok"


def test_px4_waits_for_setpoints_as_long_as_a_pause_that_the_stack_accepts():
    slow = msgspec.structs.replace(F550, safety=msgspec.structs.replace(F550.safety, setpoints_lost_s=0.9))
    timeout = rule("COM_OF_LOSS_T", vehicle=slow)
    assert timeout.judge(GOOD)[0] == "failed"
    assert timeout.judge({**GOOD, "COM_OF_LOSS_T": timeout.fix(0.5, GOOD)})[0] == "ok"


@pytest.mark.parametrize("airframe", ["f550", "aurelia_x6"])
def test_the_built_in_autopilot_has_every_parameter_of_the_table_in_px4s_type(airframe):
    known = load_parameters(airframe)
    checks = parameter_checks(
        rules(F550, FLIGHT, send_odometry=True), {name: known[name] for name in GOOD if name in known}
    )
    assert [check.name for check in checks if "has no such" in check.detail or "not know it" in check.detail] == []
    assert {name: known.is_integer(name) for name in GOOD} == {n: isinstance(v, int) for n, v in GOOD.items()}
