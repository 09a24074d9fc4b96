"""The campaign of kills, stops and hangs: its cases, what it judges, and that it goes on where it was stopped."""

import math
import random
from types import SimpleNamespace

import pytest
from ground_observer import ModeChange
from kill_campaign import (
    EXCURSION_S,
    FLIGHT_S,
    KINDS,
    PROCESSES,
    Case,
    Outcome,
    cases,
    excursion_m,
    fault_time_s,
    modes_in_the_air,
    read,
    table,
    write,
)

from companion.core.messages import Truth
from companion.runtime.processes import PROCESSES as TABLE

GOOD = Outcome(
    process="tracker", kind="kill", number=0, at_s=10.0, stopped_s=math.nan, phase="HOLD", ended="DONE",
    modes=("OFFBOARD", "LAND"), excursion_m=0.2, nearest_m=2.8, fence_m=-1.0, touchdown_m_s=0.8, children_end_s=0.5,
    left=0, log_problem="", load=1.0,
)  # fmt: skip
MANAGER_KILLED = GOOD._replace(process="manager", modes=("OFFBOARD", "POSCTL"), ended="HOLD")


def test_every_process_of_the_table_and_the_manager_are_in_the_campaign():
    # the payload process runs in inspections, which the campaign does not fly
    assert {*PROCESSES, "payload"} == {row.name for row in TABLE} | {"manager"}
    assert len(cases(PROCESSES, KINDS, 4)) == 4 * 3 * 8
    assert {case.number for case in cases(PROCESSES, KINDS, 4)[:24]} == {0}  # each once before any twice


def test_the_times_of_a_fault_are_random_and_spread_over_the_flight():
    times = [fault_time_s(Case("fcu", "kill", i), 4, random.Random(f"{i}")) for i in range(4)]
    assert [int(t / (FLIGHT_S / 4)) for t in times] == [0, 1, 2, 3]
    assert times != [fault_time_s(Case("fcu", "kill", i), 4, random.Random(f"x{i}")) for i in range(4)]


@pytest.mark.parametrize(
    ("outcome", "problem"),
    [
        (GOOD, ""),
        (MANAGER_KILLED, ""),
        (GOOD._replace(excursion_m=1.01), "from the hold point"),
        (GOOD._replace(excursion_m=math.nan), "from the hold point"),
        (GOOD._replace(phase="RETURN", excursion_m=math.nan), ""),
        (GOOD._replace(nearest_m=0.4), "contact"),
        (GOOD._replace(nearest_m=math.nan), "contact"),
        (GOOD._replace(fence_m=0.1), "outside of the fence"),
        (GOOD._replace(touchdown_m_s=3.0), "fell"),
        (GOOD._replace(modes=("OFFBOARD", "POSCTL", "OFFBOARD")), "entered again"),
        (GOOD._replace(phase="TAKEOFF", modes=("AUTO_TAKEOFF", "OFFBOARD")), ""),
        (MANAGER_KILLED._replace(modes=("OFFBOARD",)), "did not take over"),
        (GOOD._replace(left=2), "outlived"),
        (GOOD._replace(log_problem="no state in the log"), "log: no state"),
    ],
)
def test_an_outcome_reports_what_must_not_happen(outcome, problem):
    problems = outcome.problems()
    assert (problems == []) if problem == "" else (len(problems) == 1 and problem in problems[0])


def test_the_results_of_a_stopped_campaign_are_read_again(tmp_path):
    file = tmp_path / "kills.json"
    assert read(file) == {}
    write(file, [GOOD, MANAGER_KILLED])
    again = read(file)
    assert list(again) == [Case("tracker", "kill", 0), Case("manager", "kill", 0)]
    assert again[Case("tracker", "kill", 0)].modes == GOOD.modes
    assert "2 flights, 0 with a problem, farthest in the hold 0.20 m" in table(again.values())
    assert "1 flights, 1 with a problem" in table([GOOD._replace(left=1)])


def truth(stamp_s: float, x: float) -> Truth:
    return Truth(stamp_s=stamp_s, p_W=(x, 0.0, 3.0), v_W=(0, 0, 0), q_WB=(1, 0, 0, 0), omega_B=(0, 0, 0),
                 disturbance_W=(0, 0, 0), gnss_bias_W=(0, 0, 0), bundles={}, battery_voltage_v=16.0,
                 motor_thrust_n=())  # fmt: skip


@pytest.mark.parametrize(
    ("phases", "farthest_m"),
    [([], 6.0), ([(103.05, "RETURN")], 3.0), ([(101.0, "PX4_HOLD")], 6.0), ([(103.05, "LAND")], 3.0)],
)
def test_the_excursion_ends_where_the_aircraft_leaves_on_purpose(phases, farthest_m):
    flown = SimpleNamespace(
        phases=phases, truth=[truth(99.9, 0.0)] + [truth(100.0 + i / 10, i / 10) for i in range(100)]
    )
    assert excursion_m(flown, "HOLD", 1, 100.0) == pytest.approx(farthest_m, abs=0.15) and EXCURSION_S == 6.0
    assert math.isnan(excursion_m(flown, "RETURN", 1, 100.0))


def test_modes_on_the_ground_do_not_count():
    changes = [ModeChange(90.0, "OFFBOARD"), ModeChange(104.0, "AUTO_LAND"), ModeChange(109.0, "OFFBOARD")]
    flown = SimpleNamespace(observer=SimpleNamespace(modes=changes), truth=[truth(100.0 + i, 0.0) for i in range(8)])
    assert modes_in_the_air(flown, 100.0) == ("OFFBOARD", "AUTO_LAND")
