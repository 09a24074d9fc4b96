"""How the aircraft follows the attitude that was commanded."""

import math

import pytest

from companion.core.frames import quat_from_rpy
from companion.core.messages import SentSetpoint
from companion.mission.tilt_error import WINDOW_S, TiltErrorTrend, tilt_error

STEP_S = 0.05
LIMIT_RAD = 0.35


def sent(roll_rad: float = 0.0, pitch_rad: float = 0.0, yaw_rad: float = 0.0) -> SentSetpoint:
    angles = {"roll_rad": roll_rad, "pitch_rad": pitch_rad, "yaw_rad": yaw_rad}
    return SentSetpoint(stamp_s=0.0, yaw_rate_rad_s=0.0, thrust=0.3, **angles)


def error_rad(roll_rad: float, yaw_rad: float, command: SentSetpoint) -> float:
    return math.hypot(*tilt_error(tuple(quat_from_rpy(roll_rad, 0.0, yaw_rad)), command))


def test_the_error_is_the_angle_between_the_axes_whatever_the_heading():
    for yaw_rad in (-3.0, 0.0, 1.0, 2.5):
        assert error_rad(0.25, yaw_rad, sent(roll_rad=0.25, yaw_rad=0.3)) == pytest.approx(0.0, abs=1e-6)
        assert error_rad(0.2, yaw_rad, sent(roll_rad=-0.16)) == pytest.approx(0.36)
    assert error_rad(0.0, 1.0, sent(pitch_rad=3.0)) == pytest.approx(3.0)
    assert math.isnan(error_rad(0.2, 0.0, sent(roll_rad=math.nan)))


def test_the_error_is_the_rotation_to_the_command():
    level = tuple(quat_from_rpy(0.0, 0.0, 0.7))
    assert tilt_error(level, sent(roll_rad=0.3)) == pytest.approx((0.3, 0.0, 0.0))
    assert tilt_error(level, sent(pitch_rad=-0.2)) == pytest.approx((0.0, -0.2, 0.0))


def acts_after_s(rolls) -> float:
    """When the lasting error exceeds the limit; rolls(t): error from 0 on, of roll or a vector; none before."""
    trend = TiltErrorTrend(LIMIT_RAD)
    for i in range(-20, 60):
        t = i * STEP_S
        error = rolls(t) if i > 0 else 0.0
        trend.take(t, error if isinstance(error, tuple) else (error, 0.0, 0.0))
        lasting = trend.lasting_rad(t)
        if lasting is not None and not lasting <= LIMIT_RAD:
            return t
    return math.inf


def test_an_error_beyond_the_limit_acts_within_half_a_second():
    assert 0.4 <= acts_after_s(lambda t: LIMIT_RAD + 0.01) <= 0.56
    assert acts_after_s(lambda t: LIMIT_RAD - 0.01) == math.inf


def test_a_command_that_passes_the_attitude_does_not_hide_the_error():
    assert acts_after_s(lambda t: 0.1 if 0.28 < t < 0.32 else 0.55) <= 0.56


def test_an_error_that_turns_acts():
    assert acts_after_s(lambda t: (0.45 * math.cos(12 * t), 0.45 * math.sin(12 * t), 0.0)) <= 0.6


def test_commands_that_alternate_faster_than_an_attitude_follows_do_not_act():
    """A healthy flight with unkind sensors had a mean of the absolute error of 0.37 rad, of the vectors 0.21 rad."""
    assert acts_after_s(lambda t: 0.6 * math.sin(16.0 * t)) == math.inf


def test_a_short_error_does_not_act_however_large():
    assert acts_after_s(lambda t: 3.0 if t < 0.32 else 0.0) == math.inf
    reversal = (1.09, 1.08, 0.95, 0.84, 0.63, 0.46, 0.32, 0.25, 0.23, 0.22)  # of a full command, in a gust of 6.5 m/s²
    assert acts_after_s(lambda t: reversal[round(t / STEP_S) - 1] if t < 0.52 else 0.2) == math.inf


def test_a_number_that_is_none_counts_as_beyond():
    assert acts_after_s(lambda t: math.nan) == pytest.approx(STEP_S)


def test_nothing_is_known_before_half_a_second_and_after_a_gap():
    trend = TiltErrorTrend(0.6)
    for i in range(9):
        trend.take(i * STEP_S, (0.6, 0.0, 0.0))
    assert trend.lasting_rad(8 * STEP_S) is None
    for i in range(9, 12):
        trend.take(i * STEP_S, (0.6, 0.0, 0.0))
    assert trend.lasting_rad(11 * STEP_S) == pytest.approx(0.6)
    assert trend.lasting_rad(11 * STEP_S + WINDOW_S) is None
    trend.take(11 * STEP_S + WINDOW_S, (0.6, 0.0, 0.0))
    assert trend.lasting_rad(11 * STEP_S + WINDOW_S) is None
    trend.reset()
    assert trend.lasting_rad(2.0) is None
