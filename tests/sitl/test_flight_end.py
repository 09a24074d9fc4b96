"""How a flight ended, from its truth."""

import math

import pytest

from companion.core.enums import Phase
from companion.core.frames import quat_exp
from companion.core.messages import MissionStatus, Truth
from companion.mission.plan import Limits
from sitl.flight_end import FlightEnd, judge

LIMITS = Limits(fence_min_m=(-5.0, -5.0, -1.0), fence_max_m=(10.0, 5.0, 8.0), height_m=8.0, distance_m=15.0)
WALL = ((6.0, 0.0, 3.0), (0.5, 0.5, -0.5, -0.5))  # its normal points back to the take-off point
FLOOR = ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0))


def truth(*places, sinking=0.0, q_WB=(1.0, 0.0, 0.0, 0.0), bundles=None):
    return [
        Truth(
            stamp_s=0.1 * i, p_W=place, v_W=(0.0, 0.0, -sinking), q_WB=q_WB, omega_B=(0.0, 0.0, 0.0),
            disturbance_W=(0.0, 0.0, 0.0), gnss_bias_W=(0.0, 0.0, 0.0), bundles=bundles or {"pier": WALL},
            battery_voltage_v=16.0, motor_thrust_n=(),
        )
        for i, place in enumerate(places)
    ]  # fmt: skip


def status(success=True, finished=True):
    return MissionStatus(
        stamp_s=1.0, phase=Phase.DONE, reason="", phase_time_s=0.0, finished=finished, success=success, photographs=0
    )


UP_AND_DOWN = ((0.0, 0.0, 0.0), (0.0, 0.0, 3.0), (0.0, 0.0, 0.0))


@pytest.mark.parametrize(("success", "end"), [(True, FlightEnd.COMPLETED), (False, FlightEnd.EARLY)])
def test_a_flight_that_ends_well_is_complete_or_early(success, end):
    assert judge(truth(*UP_AND_DOWN), status(success), LIMITS) == (end, "")


@pytest.mark.parametrize(
    ("flown", "said"),
    [
        (truth((0.0, 0.0, 0.0), (5.7, 0.5, 3.0)), "contact with the structure at bundle pier"),
        (truth((0.0, 0.0, 0.0), (0.0, 8.0, 3.0)), "3.0 m beyond a limit of the mission"),
        (truth(*UP_AND_DOWN, sinking=2.0), "met the ground with 2.0 m/s"),
        (truth(*UP_AND_DOWN, q_WB=tuple(quat_exp((math.radians(80), 0.0, 0.0)))), "tilted beyond 70°"),
        (
            [*truth(*UP_AND_DOWN), *truth((0.0, 0.0, 0.1), q_WB=tuple(quat_exp((math.radians(57), 0.0, 0.0))))],
            "tipped over on the ground (57°)",
        ),
        ([], "the time of the scenario ran out"),
    ],
)
def test_a_success_that_was_none_has_failed(flown, said):
    assert judge(flown, status(), LIMITS) == (FlightEnd.FAILED, said)


def test_a_mission_that_never_ends_has_failed():
    assert judge(truth(*UP_AND_DOWN), status(finished=False), LIMITS)[0] is FlightEnd.FAILED


def test_a_board_on_the_floor_is_no_structure():
    assert judge(truth(*UP_AND_DOWN, (0.2, 0.0, 0.35), bundles={"floor": FLOOR}), status(), LIMITS)[1] == ""
