"""The site map of made-up flights: its error, its covariance, and markers seen in a wrong place."""

import numpy as np
import pytest
from map_flights import Course, Sensors, fly

from calibration.map.adjust import adjust
from calibration.map.combine import SiteMap
from calibration.map.preintegration import preintegrate
from calibration.map.relative import difference, relative
from calibration.map.rotations import log

SHORT = Course(spacing_m=6.0, standoff_m=2.5, sway_m=1.0, laps=1, stop_s=0.5)


def errors(flight, found):
    """Error (6,) of the second bundle in the frame of the first, and its covariance."""
    u = found.unknowns
    pair = SiteMap(found.data.bundles, u.R_WM, u.p_WM, found.covariance).between("bundle_0", "bundle_1")
    true = relative(flight.true.R_WM, flight.true.p_WM, np.zeros((12, 12)), 0, 1)
    return difference(pair, true), pair.covariance


@pytest.mark.verify
def test_good_sensors_give_a_good_map():
    good = Sensors(accel=0.003, accel_bias=(0.01, 60.0), gyro=0.0003, sway=(0.001, 1.0), corner=(0.05, 0.03, 8.0))
    flight = fly(1, SHORT, good)
    error, _ = errors(flight, adjust(flight.data))
    assert np.linalg.norm(error[3:]) < 0.02 and np.degrees(np.linalg.norm(error[:3])) < 0.1


@pytest.mark.verify
def test_markers_in_a_wrong_place_are_left_out_and_counted():
    flight = fly(2, SHORT, outliers=0.05)
    found = adjust(flight.data)
    seen = sum(count.seen for count in found.outliers.values())
    left_out = sum(count.left_out for count in found.outliers.values())
    error, covariance = errors(flight, found)
    assert 0.03 < left_out / seen < 0.07
    assert error @ np.linalg.solve(covariance, error) / 6 < 4.0


def test_preintegration_follows_the_biases_as_its_derivatives_say():
    samples = fly(3, SHORT).data.samples
    t_s, zero = np.linspace(1.0, 3.0, 6), np.zeros((5, 3))
    at_zero = preintegrate(samples, t_s, zero, zero)
    step = 1e-4 * np.array([1.0, -2.0, 3.0])
    gyro, accel = preintegrate(samples, t_s, zero + step, zero), preintegrate(samples, t_s, zero, zero + step)
    turned = log(np.swapaxes(at_zero.R, 1, 2) @ gyro.R)
    np.testing.assert_allclose(turned, at_zero.R_by_gyro @ step, atol=1e-7)
    np.testing.assert_allclose(gyro.v - at_zero.v, at_zero.v_by_gyro @ step, atol=1e-6)
    np.testing.assert_allclose(gyro.p - at_zero.p, at_zero.p_by_gyro @ step, atol=1e-6)
    np.testing.assert_allclose(accel.v - at_zero.v, at_zero.v_by_accel @ step, atol=1e-9)
    np.testing.assert_allclose(accel.p - at_zero.p, at_zero.p_by_accel @ step, atol=1e-9)


@pytest.mark.verify
def test_the_covariance_is_that_of_the_errors():
    """Twenty sites with sensors that the adjustment does not know: mean normalised squared error between 0.5 and 2."""
    found = []
    for seed in range(101, 121):
        flight = fly(seed, SHORT)
        error, covariance = errors(flight, adjust(flight.data))
        found.append(error @ np.linalg.solve(covariance, error) / 6)
    assert 0.5 < np.mean(found) < 2.0
