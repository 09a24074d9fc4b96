"""The process noise of the camera's mount follows the innovations at the bundles."""

import math

import numpy as np
import pytest

from companion.core.frames import quat_exp
from companion.estimation.estimator import EstimatorNode
from companion.estimation.mount_noise import FACTOR_MAX, LEAST, NIS_MAX, STEP, MountNoise
from tests.estimation.eskf_truth import HoverSimulation

IMAGES_HZ = 30


def after(seconds, nis, noise=None, begin_s=100.0):
    """The noise after so many seconds of innovations; nis: per number, of each image."""
    noise = noise or MountNoise(keep_s=2.0)
    for k in range(1, seconds * IMAGES_HZ + 1):
        noise.add(nis)
        noise.close(begin_s + k / IMAGES_HZ)
    return noise, begin_s + seconds


def test_a_consistent_filter_keeps_the_vehicle_files_noise():
    noise, now_s = after(20, 0.5)
    assert noise.at(now_s) == 1.0


def test_contradicting_innovations_raise_the_noise_second_by_second_up_to_the_limit():
    noise, now_s = after(3, 2.2)
    assert noise.at(now_s) == pytest.approx(STEP**3)
    noise, now_s = after(60, 2.2, noise, now_s)
    assert noise.at(now_s) == FACTOR_MAX


def test_the_noise_falls_to_the_files_when_the_mount_is_still_again():
    noise, now_s = after(60, 2.2)
    noise, now_s = after(30, 0.5, noise, now_s)
    assert noise.at(now_s) == 1.0


def test_an_outlier_counts_as_a_bounded_innovation_and_nan_as_none():
    noise = MountNoise(keep_s=2.0)
    for nis in (1e9, math.nan, *[1.0] * 28):
        noise.add(nis)
    noise.close(100.0)
    assert noise.at(100.0) == pytest.approx((NIS_MAX + 28) / 29)


def test_a_bundle_that_is_refused_is_not_the_mount(vehicle):
    """It was turned by 20° in flight."""
    flight, node = HoverSimulation(vehicle, seed=5, imu=True), EstimatorNode(vehicle)
    flight.run(node, 15.0)
    flight.marker_turn = quat_exp(np.array([0.0, 0.35, 0.0]))
    refused, factors = 0, []
    for _ in range(16):
        flight.run(node, 0.5)
        refused += bool(node.history.newest.refused())
        factors.append(node.acting_inputs.mount_noise.at(flight.t))
    assert refused > 2
    assert max(factors) < 1.6, "what was counted before it was refused"


def test_a_few_innovations_change_nothing():
    noise = MountNoise(keep_s=2.0)
    for _ in range(LEAST - 1):
        noise.add(5.0)
    noise.close(100.0)
    assert noise.at(100.0) == 1.0


def test_a_value_applies_from_its_time_on():
    """A filter that runs again from an earlier time finds the noise of that time."""
    noise, now_s = after(3, 2.2)
    assert noise.at(now_s - 1.5) < noise.at(now_s)
