"""Parameter checks and --fix: it shows, asks, sets what was agreed to, reads back, and leaves an armed aircraft."""

import itertools
import math
from pathlib import Path

import pytest
from preflight_fakes import ParameterServer
from test_px4_parameters import F550, FLIGHT
from test_px4_parameters import GOOD as GOOD_WITH_ODOMETRY

from companion.core.px4_parameters import rules
from companion.mission.plan import load_plan
from companion.preflight.parameters import fix, flight_of, names_of, parameter_checks, proposals
from companion.preflight.report import ParameterChange

MISSIONS = Path(__file__).parents[2] / "config/missions"
RULES = rules(F550, FLIGHT)
GOOD = GOOD_WITH_ODOMETRY | {"EKF2_EV_CTRL": 0}
BAD = GOOD | {"COM_OF_LOSS_T": 5.0, "COM_RC_OVERRIDE": 1, "NAV_RCL_ACT": 2, "RC_MAP_KILL_SW": 0}
FIXABLE = ["COM_OF_LOSS_T", "COM_RC_OVERRIDE", "NAV_RCL_ACT"]


def run(server, *answers):
    """Answers to the questions in turn; afterwards changes and what was said."""
    left, said = list(answers), []
    return fix(server, proposals(RULES, server.values), lambda question: left.pop(0), said.append), said


def test_every_rule_is_a_check_of_its_own_name():
    found = {check.name: check.status for check in parameter_checks(RULES, BAD)}
    assert list(found) == [rule.name for rule in RULES]
    assert [name for name, status in found.items() if status == "failed"] == [
        "COM_OF_LOSS_T", "COM_RC_OVERRIDE", "RC_MAP_KILL_SW", "NAV_RCL_ACT",
    ]  # fmt: skip


def test_a_parameter_the_flight_controller_does_not_know_is_a_warning():
    (check,) = [
        c for c in parameter_checks(RULES, {k: v for k, v in GOOD.items() if k != "GF_ACTION"}) if c.status != "ok"
    ]
    assert (check.name, check.status) == ("GF_ACTION", "warning") and "has no such parameter" in check.detail


def test_a_parameter_that_not_every_firmware_has_may_be_missing():
    values = {name: value for name, value in GOOD.items() if name != "CBRK_SUPPLY_CHK"}
    (check,) = [check for check in parameter_checks(RULES, values) if check.status != "ok"]
    assert (check.name, check.status) == ("CBRK_SUPPLY_CHK", "skipped")


def test_everything_that_rules_ask_for_is_read():
    assert set(names_of(RULES)) <= set(GOOD)
    assert "RTL_RETURN_ALT" in names_of(RULES)


def test_only_what_needs_no_persons_choice_is_proposed():
    assert [p.rule.name for p in proposals(RULES, BAD)] == FIXABLE
    assert proposals(RULES, GOOD) == []


def test_yes_sets_no_does_not():
    server = ParameterServer(BAD)
    changes, said = run(server, "y", "n", "Y")
    assert changes == [ParameterChange("COM_OF_LOSS_T", 5.0, 0.5), ParameterChange("NAV_RCL_ACT", 2, 3)]
    assert server.written == ["COM_OF_LOSS_T", "NAV_RCL_ACT"] and server.values["COM_RC_OVERRIDE"] == 1
    assert said[0].startswith("COM_OF_LOSS_T: 5 → 0.5 ") and "emergency exit" in said[0]


def test_all_sets_this_one_and_those_that_follow():
    server = ParameterServer(BAD)
    changes, _ = run(server, "", "a")
    assert [change.parameter for change in changes] == FIXABLE[1:]


@pytest.mark.parametrize("answer", ["", "\n", "no", "maybe", "N"])
def test_every_other_answer_is_a_no(answer):
    server = ParameterServer(BAD)
    assert run(server, answer, answer, answer)[0] == [] and server.written == []


def test_nothing_is_set_while_armed():
    server = ParameterServer(BAD, armed=True)
    changes, said = run(server, "a")
    assert changes == [] and server.written == [] and "armed" in said[-1]


def test_arming_in_between_ends_it():
    server = ParameterServer(BAD)
    answers = iter(["y", "y", "y"])

    def ask(_question):
        server.is_armed = bool(server.written)
        return next(answers)

    assert len(fix(server, proposals(RULES, BAD), ask, lambda line: None)) == 1


def test_a_write_without_an_answer_is_reported_and_the_others_follow():
    server = ParameterServer(BAD, deaf=["COM_OF_LOSS_T"])
    changes, said = run(server, "a")
    assert [change.parameter for change in changes] == FIXABLE[1:]
    assert "COM_OF_LOSS_T: not set: timeout" in said


def test_a_value_that_did_not_take_is_no_change():
    server = ParameterServer(BAD, stubborn=["COM_OF_LOSS_T"])
    changes, said = run(server, "a")
    assert [change.parameter for change in changes] == FIXABLE[1:]
    assert "COM_OF_LOSS_T: the flight controller kept 5" in said


def test_the_missions_limits_and_switch_reach_the_rules():
    hover, lab = load_plan(MISSIONS / "hover_marker.toml"), load_plan(MISSIONS / "lab_line.toml")
    assert flight_of(hover)[2] == hover.rc_switch.channel and flight_of(lab)[2] is None
    assert flight_of(None) is None


def test_a_flight_without_satellites_has_rules_of_its_own():
    """PX4's fence and its Return need a position; EKF2_GPS_CTRL must say that there is none."""
    flight = flight_of(load_plan(MISSIONS / "bridge_no_satellites.toml"))
    alone, usual = ({r.name: r for r in rules(F550, f)} for f in (flight, flight._replace(satellites=True)))
    assert "EKF2_GPS_CTRL" in alone and "EKF2_GPS_CTRL" not in usual
    assert not any(name.startswith("GF_") for name in alone) and {"RC_MAP_KILL_SW", "FD_FAIL_R"} <= set(alone)
    wrong = {
        "EKF2_GPS_CTRL": 7,
        "COM_OBL_RC_ACT": 5,
        "NAV_RCL_ACT": 2,
        "NAV_DLL_ACT": 1,
        "COM_ARM_WO_GPS": 0,
        "COM_LOW_BAT_ACT": 3,
    }
    for name, value in wrong.items():
        assert alone[name].judge({name: value})[0] == "failed", name
        assert alone[name].judge({name: alone[name].fix(value, {})})[0] == "ok", name
    assert alone["COM_RCL_EXCEPT"].judge({"COM_RCL_EXCEPT": 0})[0] == "warning"


@pytest.mark.parametrize(
    "mission", sorted(m for m in MISSIONS.glob("*.toml") if load_plan(m).satellites), ids=lambda path: path.stem
)
def test_px4_s_fence_lies_outside_of_every_place_inside_the_stack_s(mission):
    """A box in a corner of which the distance limit is not reached must not have a fence of that distance."""
    plan = load_plan(mission)
    flight, limits = flight_of(plan), plan.limits
    corners = list(itertools.product(*zip(limits.fence_min_m, limits.fence_max_m, strict=True)))
    distance_m = min(limits.distance_m, max(math.hypot(x, y) for x, y, _ in corners))
    height_m = min(limits.height_m, max(z for _, _, z in corners))
    fixed = {r.name: r.fix(0.0, {}) for r in rules(F550, flight) if r.name.startswith("GF_MAX")}
    assert distance_m + 5.0 <= fixed["GF_MAX_HOR_DIST"] < distance_m + 6.0
    assert height_m + 5.0 <= fixed["GF_MAX_VER_DIST"] < height_m + 6.0
    for rule in rules(F550, flight):
        if rule.name in fixed:
            assert rule.judge(fixed)[0] == "ok" and rule.judge({rule.name: 0.0})[0] == "failed"
