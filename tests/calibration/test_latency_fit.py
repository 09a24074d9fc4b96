"""Delays are found from motion, with their deviation, and refused where the motion does not determine them."""

from dataclasses import replace

import numpy as np
import pytest
from mount_logs import CAMERA_S, FLOWN_S, fly

from calibration.mount.latency import find_camera_latency
from calibration.results import DataError


def test_the_cameras_delay_is_the_flown_one_and_the_missing_part():
    errors = []
    for seed in range(4):
        found = find_camera_latency(fly(seed))
        assert found.camera_s == pytest.approx(CAMERA_S, abs=0.003)
        assert found.late_s == pytest.approx(CAMERA_S - FLOWN_S, abs=0.003)
        errors.append((found.camera_s - CAMERA_S) / found.std_s)
    assert np.sqrt(np.mean(np.square(errors))) < 2.5


def test_neither_position_nor_a_right_mount_is_needed():
    log = replace(fly(7, with_position=False), q_BC=np.array([0.5, 0.5, 0.5, 0.5]))
    assert find_camera_latency(log).camera_s == pytest.approx(CAMERA_S, abs=0.003)


def test_an_attitude_that_drifts_does_not_shift_the_delay():
    assert find_camera_latency(fly(3, drift_rad=0.03)).camera_s == pytest.approx(CAMERA_S, abs=0.004)


def test_a_still_hover_is_refused():
    with pytest.raises(DataError, match="rotation does not follow the aircraft's .* turn and lean more"):
        find_camera_latency(fly(lean_rad=0.0003, yaw_span_rad=0.05))


def test_slow_motion_is_refused_with_the_rates_it_had():
    log = fly(2, lean_rad=0.004, yaw_span_rad=0.3, duration_s=20.0)
    with pytest.raises(DataError) as caught:
        find_camera_latency(log)
    assert "rad/s RMS" in str(caught.value) or "rotation does not follow" in str(caught.value)


def test_images_that_would_come_before_their_exposure_are_refused():
    log = fly(5)
    early = replace(log.observations, t_s=log.observations.t_s - 0.2)
    with pytest.raises(
        DataError,
        match=r"images come -1\d\d ms after their exposure, .* was the flight made with latency.camera_s = 0.06 s",
    ):
        find_camera_latency(replace(log, observations=early))
