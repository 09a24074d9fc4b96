"""A bundle that sets off is found by the inertial measurements; errors of attitude, accelerometer and prints are not."""

import math

import numpy as np
import pytest

from companion.core.frames import GRAVITY_M_S2, quat_conjugate, quat_exp, quat_multiply, rotation_matrix
from companion.estimation.inertial_witness import InertialMotion, SettingOff

IMU_S = 0.02
RANGE_M = 3.0
LEVEL = np.array((1.0, 0.0, 0.0, 0.0))


class Flight:
    """A hover in gusts 3 m in front of a bundle in the direction of x."""

    def __init__(self, seed: int = 1) -> None:
        self.rng = np.random.default_rng(seed)
        self.motion = InertialMotion()
        self.test = SettingOff(self.motion)
        self.p, self.v, self.now_s = np.zeros(3), np.zeros(3), 0.0
        self.bundle = np.array((RANGE_M, 0.0, 0.0))
        self.bundle_v = np.zeros(3)
        self.markers = frozenset({1, 2})
        self.tilt = np.zeros(3)  # error of the flight controller's attitude
        self.in_accelerometer = False  # a bias of the accelerometer explains it
        self.gyro_bias = np.zeros(3)
        self.image_s, self.every_s = 0.0, 1 / 30
        self.missed = 0.0  # share of the images in which one of the markers is not seen
        self.found_s = math.nan

    def run(self, duration_s: float, images: bool = True) -> "Flight":
        for _ in range(round(duration_s / IMU_S)):
            a = 0.4 * np.array((math.sin(2.0 * self.now_s), math.cos(1.3 * self.now_s), 0.3)) - 0.4 * self.v - self.p
            roll_pitch = np.array((-a[1], a[0], 0.0)) / GRAVITY_M_S2
            q_WB = quat_exp(roll_pitch)
            omega = np.zeros(3) if self.now_s == 0 else self._rate(q_WB)
            q_fcu = quat_multiply(quat_exp(self.tilt), q_WB)
            by_attitude = q_fcu if self.in_accelerometer else q_WB
            f_B = rotation_matrix(by_attitude).T @ (a + np.array((0.0, 0.0, GRAVITY_M_S2)))
            f_B = f_B + self.rng.normal(0.0, 0.05, 3)
            begin_s, self.now_s = self.now_s, self.now_s + IMU_S
            self.p = self.p + IMU_S * self.v + IMU_S**2 / 2 * a
            self.v = self.v + IMU_S * a
            self.bundle = self.bundle + IMU_S * self.bundle_v
            self.motion.add(begin_s, self.now_s, omega + self.gyro_bias, f_B, q_fcu)
            if images and self.now_s - self.image_s >= self.every_s - 1e-6:
                self.image_s = self.now_s
                seen = self.bundle - self.p + self.rng.normal(0.0, 0.008, 3)
                markers = self.markers - ({1} if self.rng.random() < self.missed else set())
                self.test.add(self.now_s, seen, markers, 0.008)
                if self.test.speed_m_s(self.now_s) and math.isnan(self.found_s):
                    self.found_s = self.now_s
        return self

    def _rate(self, q_WB) -> np.ndarray:
        turn = quat_multiply(quat_conjugate(self._q_WB), q_WB) if hasattr(self, "_q_WB") else LEVEL
        self._q_WB = q_WB
        return 2 * turn[1:] / IMU_S

    @property
    def found(self) -> bool:
        return not math.isnan(self.found_s)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("speed_m_s", [0.5, -0.5, 1.5])
def test_a_bundle_that_sets_off_is_found_within_a_second(seed, speed_m_s):
    flight = Flight(seed).run(10.0)
    assert not flight.found
    flight.bundle_v[0] = speed_m_s
    flight.run(2.0)
    assert flight.found_s - 10.0 < 1.0
    assert flight.test.speed_m_s(flight.found_s) == pytest.approx(abs(speed_m_s), rel=0.6)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("every_s", "missed"), [(1 / 30, 0.02), (1 / 30, 0.2), (0.1, 0.0), (0.1, 0.05)])
def test_it_is_found_with_few_images_and_markers_that_are_missed_now_and_then(seed, every_s, missed):
    flight = Flight(seed)
    flight.every_s, flight.missed = every_s, missed
    flight.run(20.0)
    assert not flight.found
    flight.bundle_v[0] = 0.8
    flight.run(2.0)
    assert flight.found_s - 20.0 < 1.1


def test_the_finding_lasts_for_two_seconds():
    flight = Flight().run(5.0)
    flight.bundle_v[0] = 1.0
    flight.run(1.0)
    flight.bundle_v[0] = 0.0
    flight.run(2.5, images=False)
    assert flight.found and flight.test.speed_m_s(flight.now_s + 2.0) == 0.0


@pytest.mark.parametrize("in_accelerometer", [False, True])
def test_a_tilt_error_that_changes_is_no_motion(in_accelerometer):
    """1.5° within two seconds: the flight controller's attitude is corrected, or the accelerometer's bias changes."""
    flight = Flight()
    flight.in_accelerometer = in_accelerometer
    for step in range(300):
        flight.tilt = math.radians(1.5) * np.array((0.0, math.sin(2 * math.pi * 0.1 * step / 4), 0.0))
        flight.run(0.1)
        assert not flight.found, step


def test_a_tilt_error_and_a_gyroscope_bias_that_stay_are_no_motion():
    flight = Flight()
    flight.tilt, flight.gyro_bias = np.array((0.02, 0.026, 0.0)), np.array((0.002, 0.002, 0.002))
    assert not flight.run(30.0).found


def test_other_markers_that_are_printed_larger_are_no_motion():
    flight = Flight()
    for turn in range(10):
        flight.run(1.0)
        flight.markers = frozenset({1, 2} if turn % 2 else {3})
        flight.bundle[0] = RANGE_M * (1.0 if turn % 2 else 1.06)
    assert not flight.found


def test_a_bundle_elsewhere_after_a_gap_is_no_motion_for_this_test():
    """How far it may be is a question for the other witnesses."""
    flight = Flight().run(5.0)
    flight.run(1.5, images=False)
    flight.bundle[0] += 1.0
    assert not flight.run(5.0).found


def test_missing_inertial_measurements_begin_another_integral():
    flight = Flight().run(5.0)
    flight.motion.interrupt()
    assert flight.motion.at(flight.now_s) is None
    flight.bundle[0] += 1.0
    assert not flight.run(5.0).found


def test_outliers_do_not_count():
    flight = Flight()
    for _ in range(200):
        flight.run(0.1)
        flight.test.add(
            flight.now_s + 1e-4, flight.bundle - flight.p + flight.rng.normal(0.0, 1.0, 3), flight.markers, 0.008
        )
    assert not flight.found


def test_the_integral_is_the_motion():
    flight = Flight()
    flight.v = np.array((1.0, 0.0, 0.0))
    flight.run(1.5)
    s_W, u_W = flight.motion.at(flight.now_s)
    assert s_W[0] == pytest.approx(flight.p - np.array((1.5, 0.0, 0.0)), abs=0.03)
    assert u_W[1] == pytest.approx(flight.v - np.array((1.0, 0.0, 0.0)), abs=0.03)
    assert flight.motion.at(flight.now_s + 0.2) is None and flight.motion.at(-1.0) is None
