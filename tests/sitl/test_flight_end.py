"""How a flight ended, from its truth."""

import math

import pytest

from companion.core.enums import Phase
from companion.core.frames import quat_exp
from companion.core.messages import MissionStatus, Truth
from companion.mission.plan import Limits
from sitl.airframe import load_airframe
from sitl.flight_end import FlightEnd, Structure, judge
from sitl.scene import Backdrop, PlacedBundle, SceneConfig

LIMITS = Limits(fence_min_m=(-5.0, -5.0, -1.0), fence_max_m=(10.0, 5.0, 8.0), height_m=8.0, distance_m=15.0)
FACING_WEST = (math.pi / 2, 0.0, -math.pi / 2)  # an upright face that looks back to the take-off point
LEVEL = (0.0, 0.0, 0.0)
SCENE = SceneConfig(
    bundles=[PlacedBundle("pier", (6.0, 0.0, 3.0), FACING_WEST), PlacedBundle("floor", (0.0, 0.0, 0.0), LEVEL)],
    backdrops=[
        Backdrop((6.02, 0.0, 4.0), FACING_WEST, (4.0, 8.0), "concrete", 1),
        Backdrop((0.0, 0.0, 0.0), LEVEL, (60.0, 60.0), "grass", 2),
    ],
    light=1.0,
)
STRUCTURE = Structure.of(SCENE, load_airframe("f550"))


def truth(*places, sinking=0.0, q_WB=(1.0, 0.0, 0.0, 0.0)):
    return [
        Truth(
            stamp_s=0.1 * i, p_W=place, v_W=(0.0, 0.0, -sinking), q_WB=q_WB, omega_B=(0.0, 0.0, 0.0),
            disturbance_W=(0.0, 0.0, 0.0), gnss_bias_W=(0.0, 0.0, 0.0), bundles={},
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
    assert judge(truth(*UP_AND_DOWN), status(success), LIMITS, structure=STRUCTURE) == (end, "")


@pytest.mark.parametrize(
    ("flown", "said"),
    [
        (truth((0.0, 0.0, 0.0), (5.7, 0.5, 3.0)), "contact with the structure at bundle pier"),
        (truth((0.0, 0.0, 0.0), (5.7, 1.9, 3.0)), "contact with the structure at backdrop 0"),
        (truth((0.0, 0.0, 0.0), (6.0, 2.3, 7.0)), "contact with the structure at backdrop 0"),
        (
            truth((0.0, 0.0, 0.0), (6.6, 1.0, 1.0), (8.0, 1.0, 1.0), (6.1, 1.0, 1.0)),
            "contact with the structure at backdrop 0",
        ),
        ([*truth((0.0, 0.0, 0.0), (0.0, 0.0, 3.0), (0.0, 0.0, 2.0), sinking=4.9)], "ended in the air, with 4.9 m/s"),
        (truth(*UP_AND_DOWN, (0.0, math.nan, 3.0)), "the simulated motion is not finite at 0.30 s"),
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
    assert judge(flown, status(), LIMITS, structure=STRUCTURE) == (FlightEnd.FAILED, said)


def test_a_mission_that_never_ends_has_failed():
    assert judge(truth(*UP_AND_DOWN), status(finished=False), LIMITS)[0] is FlightEnd.FAILED


@pytest.mark.parametrize("place", [(0.2, 0.0, 0.35), (5.5, 0.0, 3.0), (6.0, 2.5, 3.0), (6.0, 0.0, 8.3)])
def test_what_is_no_contact(place):
    """Over a board on the floor, 0.5 m in front of the face, beside the pier and over it."""
    assert judge(truth((0.0, 0.0, 0.0), place, (0.0, 0.0, 0.0)), status(), LIMITS, structure=STRUCTURE)[1] == ""


def test_larger_rotors_reach_farther():
    near = truth((0.0, 0.0, 0.0), (5.3, 0.0, 3.0), (0.0, 0.0, 0.0))
    assert judge(near, status(), LIMITS, structure=STRUCTURE)[0] is FlightEnd.COMPLETED
    large = Structure.of(SCENE, load_airframe("aurelia_x6"))
    assert judge(near, status(), LIMITS, structure=large)[1] == "contact with the structure at bundle pier"


def test_an_aircraft_that_stands_on_something_high_has_landed():
    assert (
        judge(truth((0.0, 0.0, 0.0), (0.0, 0.0, 3.0), (0.0, 0.0, 3.0)), status(), LIMITS, structure=STRUCTURE)[1] == ""
    )
