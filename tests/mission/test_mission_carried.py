"""Does the wind carry the aircraft? `companion.mission.trends.CarriedTrend`."""

import math

import pytest

from companion.core.frames import quat_from_rpy
from companion.core.messages import SentSetpoint, State
from companion.mission.trends import CarriedTrend

TILT_MAX_RAD = 0.5
STEP_S = 0.05


def state(roll_rad: float, pitch_rad: float, yaw_rad: float, x: float, y: float) -> State:
    return State(
        stamp_s=0.0,
        p_W=(x, y, 4.0),
        v_W=(0.0, 0.0, 0.0),
        q_WB=tuple(quat_from_rpy(roll_rad, pitch_rad, yaw_rad).tolist()),
        disturbance_W=(0.0, 0.0, 0.0),
        gnss_bias_W=(0.0, 0.0, 0.0),
        velocity_bias_W=(0.0, 0.0, 0.0),
        bundle="",
        p_WM=(0.0, 0.0, 0.0),
        q_WM=(1.0, 0.0, 0.0, 0.0),
        marker_age_s=math.inf,
        position_std_m=0.1,
        relative_std_m=math.inf,
        covariance_diag=(0.01,) * 24,
        battery_voltage_v=15.0,
        reset_count=1,
    )


def flown(
    speed_m_s=0.5,
    sent_rad=(0.5, 0.0),
    true_rad=(0.5, 0.0),
    yaw_rad=0.0,
    direction_rad=math.pi / 2,
    cone=False,
    last_s=2.2,
) -> CarriedTrend:
    """A straight motion with a lean: roll of 0.5 rad leans to the right, so that north is against it with yaw 0."""
    trend = CarriedTrend(TILT_MAX_RAD)
    for i in range(round(last_s / STEP_S) + 1):
        s = speed_m_s * i * STEP_S
        sent = SentSetpoint(
            stamp_s=0.0, roll_rad=sent_rad[0], pitch_rad=sent_rad[1], yaw_rad=yaw_rad, yaw_rate_rad_s=0.0, thrust=0.5
        )
        place = (s * math.cos(direction_rad), s * math.sin(direction_rad))
        trend.take(i * STEP_S, sent, state(*true_rad, yaw_rad, *place), cone)
    return trend


def test_what_is_moved_against_the_lean_counts():
    assert flown().moved_m(2.2) == pytest.approx(1.0, abs=0.03)
    assert flown(yaw_rad=math.pi / 2, direction_rad=math.pi).moved_m(2.2) == pytest.approx(1.0, abs=0.03)
    assert flown(sent_rad=(0.0, -0.5), true_rad=(0.0, -0.5), direction_rad=0.0).moved_m(2.2) == pytest.approx(
        1.0, abs=0.03
    )


def test_a_return_that_makes_way_is_not_carried():
    assert flown(direction_rad=-math.pi / 2).moved_m(2.2) < 0.0
    assert flown(direction_rad=0.0).moved_m(2.2) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("roll_rad", [0.45, 0.47])
def test_nothing_is_moved_while_there_is_tilt_left(roll_rad):
    assert flown(sent_rad=(roll_rad, 0.0), true_rad=(roll_rad, 0.0)).moved_m(2.2) == 0.0


@pytest.mark.parametrize("error_rad", [-0.035, -0.02, 0.0, 0.02, 0.035])
def test_an_error_of_the_flight_controllers_attitude_hides_no_limit(error_rad):
    """Its commands make up for it, within the bound: either they or the true attitude are at the limit."""
    sent = min(0.5 + error_rad, 0.5)
    assert flown(sent_rad=(sent, 0.0), true_rad=(sent - error_rad, 0.0)).moved_m(2.2) > 0.9


@pytest.mark.parametrize("azimuth_rad", [0.0, 0.4, math.pi / 4, 1.2])
def test_the_fallback_is_at_its_limit_with_the_whole_tilt(azimuth_rad):
    """Its bound is a cone: roll and pitch of a tilt of 0.5 rad towards an azimuth."""
    x, y, z = math.sin(0.5) * math.cos(azimuth_rad), math.sin(0.5) * math.sin(azimuth_rad), math.cos(0.5)
    lean = (math.asin(-y), math.atan2(x, z))
    trend = flown(sent_rad=lean, true_rad=lean, direction_rad=azimuth_rad + math.pi, cone=True)
    assert trend.moved_m(2.2) == pytest.approx(1.0, abs=0.03)


def test_an_aircraft_that_does_not_lean_is_not_carried():
    """Commands at the limit, an attitude that does not follow them at all: `tilt_error` sees that."""
    assert flown(true_rad=(0.0, 0.0)).moved_m(2.2) == 0.0


def test_a_break_begins_the_two_seconds_again():
    trend = flown(last_s=1.9)
    assert trend.moved_m(1.9) is None
    trend = flown(last_s=2.2)
    assert trend.moved_m(2.6) is None  # nothing for 0.4 s
    trend.reset()
    assert trend.moved_m(2.2) is None
