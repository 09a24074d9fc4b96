"""The errors that unkind worlds add to sensors and camera have their size, their time and no effect on others."""

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import cv2
import msgspec
import numpy as np
import pytest

from companion.core.frames import GRAVITY_M_S2, rotation_matrix
from sitl.camera import SceneCamera
from sitl.camera_errors import CornerDrift, ImageTransport
from sitl.lockstep import Lockstep
from sitl.realtime import CameraFeed
from sitl.scenario import load_scenario
from sitl.sensors import FRAME_S, PAPER, GnssJump, Sensors
from sitl.world import World

ROOT = Path(__file__).parents[2]
HOLD = ROOT / "config/scenarios/safety/hold.toml"  # a pier 6 m from the take-off point
BEFORE_THE_PIER = (3.0, 0.0, 3.0)
LEVEL = (1.0, 0.0, 0.0, 0.0)
DETECTOR_PX = 0.5  # OpenCV's error on a sheared marker of 25 px; the drawn errors are three times as large
replace = msgspec.structs.replace


def hovering() -> SimpleNamespace:
    return SimpleNamespace(
        p_W=np.array([1.0, -2.0, 3.0]),
        v_W=np.zeros(3),
        q_WB=np.array([0.8, 0.0, 0.0, 0.6]),  # turned by 74°: W and B differ
        omega_B=np.zeros(3),
        specific_force_B=np.array([0.0, 0.0, GRAVITY_M_S2]),
        battery_voltage_v=15.0,
        battery_remaining=0.7,
    )


def fly(config, seconds, seed=1):
    sensors, truth = Sensors(config, seed), hovering()
    return [sensors.sample(i * FRAME_S, truth) for i in range(round(seconds / FRAME_S))]


def correlation(x, lag: int) -> float:
    return float(np.corrcoef(x[:-lag], x[lag:])[0, 1])


# --- GNSS and IMU ---------------------------------------------------------------------------------------------------


def test_vibration_is_above_40_hz_while_propellers_turn_and_leaves_the_other_noise_as_it_was():
    imu = replace(PAPER.imu, vibration_m_s2=4.0, vibration_rad_s=0.3)
    truth, forces = hovering(), {}
    for name, config in (("still", PAPER), ("shaken", replace(PAPER, imu=imu))):
        sensors = Sensors(config, 1)
        for speed in (0.0, 500.0):
            truth.rotor_speed_rad_s = np.array(6 * [speed])
            frames = [sensors.sample(i * FRAME_S, truth) for i in range(5000)]
            forces[name, speed] = np.array([frame.gyro_B + frame.accel_B for frame in frames])
    np.testing.assert_array_equal(forces["still", 0.0], forces["shaken", 0.0])
    vibration = forces["shaken", 500.0] - forces["still", 500.0]
    assert vibration.std(axis=0) == pytest.approx([*3 * [0.3], *3 * [4.0]], rel=0.05)
    power = np.abs(np.fft.rfft(vibration, axis=0)) ** 2
    below_40_hz = np.fft.rfftfreq(len(vibration), FRAME_S) < 40.0
    assert (power[below_40_hz].sum(axis=0) < 0.03 * power.sum(axis=0)).all()


def test_a_slow_error_of_the_velocity_has_its_size_and_time_and_the_receiver_does_not_know_it():
    quick = replace(PAPER.gnss, velocity_drift_m_s=0.3, velocity_drift_time_s=2.0, velocity_std_m_s=0.01)
    fixes = [f.gnss for f in fly(replace(PAPER, gnss=quick), 120.0) if f.gnss]
    v = np.array([fix.v_W for fix in fixes])
    assert v.std() == pytest.approx(0.3, rel=0.2)
    assert correlation(v[:, 0], 20) == pytest.approx(math.exp(-1), abs=0.2)
    assert fixes[0].speed_acc_m_s == pytest.approx(math.sqrt(3) * 0.01)


def test_a_jump_moves_the_position_between_its_times_and_the_receiver_does_not_know_it():
    jump = GnssJump(at_s=4.0, duration_s=3.0, offset_m=(2.0, -1.0, 0.5))
    plain = [f.gnss for f in fly(PAPER, 10.0) if f.gnss]
    jumped = [f.gnss for f in fly(replace(PAPER, gnss=replace(PAPER.gnss, jumps=[jump])), 10.0) if f.gnss]
    for a, b in zip(plain, jumped, strict=True):
        expected = jump.offset_m if 4.0 <= b.stamp_s < 7.0 else (0.0, 0.0, 0.0)
        assert np.subtract(b.p_W, a.p_W) == pytest.approx(expected, abs=1e-9)
        assert (b.h_acc_m, b.v_acc_m, b.v_W) == (a.h_acc_m, a.v_acc_m, a.v_W)


def test_new_errors_leave_the_noise_of_all_other_sensors_as_it_was():
    attitude = replace(PAPER.attitude, heading_offset_rad=0.05)
    gnss = replace(PAPER.gnss, velocity_drift_m_s=0.1)
    for a, b in zip(fly(PAPER, 3.0), fly(replace(PAPER, gnss=gnss, attitude=attitude), 3.0), strict=True):
        assert (a.gyro_B, a.accel_B, a.baro_height_m, a.battery_voltage_v) == (
            b.gyro_B, b.accel_B, b.baro_height_m, b.battery_voltage_v,
        )  # fmt: skip
        if a.gnss:
            assert a.gnss.p_W == b.gnss.p_W


def test_an_accelerometer_that_explains_the_tilt_error_gives_the_true_acceleration_with_it():
    """Turned by the wrong attitude, its output is gravity alone: the observer's velocity does not move."""
    silent = replace(PAPER.imu, accel_noise_m_s2=0.0, accel_bias_m_s2=0.0)
    wrong = replace(PAPER.attitude, tilt_std_rad=0.03, white_std_rad=0.0)
    level = []
    for share in (0.0, 1.0):
        config = replace(PAPER, imu=silent, attitude=replace(wrong, tilt_in_accel=share))
        level.append([(rotation_matrix(np.array(f.q_WB)) @ f.accel_B)[:2] for f in fly(config, 2.0)])
    unexplained, explained = (np.abs(each).max() for each in level)
    assert unexplained > 0.1 and explained < 0.02 * unexplained


# --- camera ---------------------------------------------------------------------------------------------------------


def test_the_slow_error_of_a_corner_has_its_size_and_time_and_is_its_own():
    drift = CornerDrift(0.5, 2.0, 0.0, seed=3)
    values = np.array([[drift.at(0.1 * i, ("a", marker)) for marker in (1, 2)] for i in range(6000)])  # (n, 2, 4, 2)
    assert values.std(axis=0) == pytest.approx(np.full((2, 4, 2), 0.5), rel=0.25)
    assert correlation(values[:, 0, 1, 0], 20) == pytest.approx(math.exp(-1), abs=0.15)
    every = values.reshape(len(values), 16)
    assert np.abs(np.corrcoef(every.T) - np.eye(16)).max() < 0.35


def test_the_drift_of_a_marker_does_not_depend_on_which_others_are_seen():
    alone, both = CornerDrift(0.5, 2.0, 0.2, seed=3), CornerDrift(0.5, 2.0, 0.2, seed=3)
    for i in range(5):
        both.at(0.1 * i, ("a", 2))
        assert np.array_equal(alone.at(0.1 * i, ("a", 1)), both.at(0.1 * i, ("a", 1)))


def pier_camera(draw: bool, **changes) -> SceneCamera:
    loaded = load_scenario(HOLD)
    clean = replace(loaded.scenario.camera, noise_std=0.0, blur_px=0.0, vignetting=0.0, sway_std_rad=0.0, **changes)
    return SceneCamera(clean, loaded.scenario.scene, loaded.site, 5, draw)


def detected(camera: SceneCamera, t_s: float) -> dict[int, np.ndarray]:
    image = camera.render(t_s, BEFORE_THE_PIER, LEVEL, (0, 0, 0), (0, 0, 0))
    pixels = np.frombuffer(image.data, np.uint8).reshape(image.height, image.width)
    options = cv2.aruco.DetectorParameters()
    options.cornerRefinementMethod = cv2.aruco.CORNER_REFINE_SUBPIX
    dictionary = cv2.aruco.getPredefinedDictionary(cv2.aruco.DICT_6X6_250)
    corners, ids, _ = cv2.aruco.ArucoDetector(dictionary, options).detectMarkers(pixels)
    return {int(i): c[0] for i, c in zip(ids.ravel(), corners, strict=True)}


def test_drawn_corners_are_displaced_by_their_drift():
    true, wrong = pier_camera(True), pier_camera(True, corner_drift_px=1.5)
    expected = CornerDrift(1.5, wrong.config.corner_drift_time_s, 0.0, seed=5)
    before, after = detected(true, 0.0), detected(wrong, 0.0)
    assert set(before) == set(after) and len(before) >= 4
    for marker, corners in after.items():
        error = corners - before[marker] - expected.at(0.0, ("aruco_6x6_250", marker))
        assert np.sqrt(np.mean(error**2)) < DETECTOR_PX


def test_images_and_corners_have_the_same_drift():
    """The same seed in both camera modes."""
    drawn, corners = (
        pier_camera(True, corner_drift_px=1.5),
        pier_camera(False, corner_drift_px=1.5, corner_noise_px=0.0),
    )
    seen = {m.marker.id: m.corners_px for m in corners.noisy_corners(0.0, BEFORE_THE_PIER, LEVEL)}
    for marker, pixels in detected(drawn, 0.0).items():
        assert np.sqrt(np.mean((pixels - seen[marker]) ** 2)) < DETECTOR_PX


def test_latency_varies_and_images_stay_in_order():
    transport = ImageTransport(0.06, 0.008, 0.0, np.random.default_rng(1))
    exposed = np.arange(3000) / 60.0  # 60 Hz: two standard deviations are as long as the period
    latency = np.array([transport.latency_s(t) for t in exposed])
    assert latency.mean() == pytest.approx(0.06, abs=1e-3) and latency.std() == pytest.approx(0.007, rel=0.15)
    assert np.diff(exposed + latency).min() > 0.0


def test_the_share_of_lost_images_is_as_configured_and_without_errors_nothing_is_drawn():
    lossy = ImageTransport(0.06, 0.0, 0.1, np.random.default_rng(1))
    assert np.mean([lossy.latency_s(i / 30) is None for i in range(4000)]) == pytest.approx(0.1, abs=0.02)
    rng = np.random.default_rng(1)
    assert ImageTransport(0.06, 0.0, 0.0, rng).latency_s(0.0) == 0.06
    assert rng.random() == np.random.default_rng(1).random()


@pytest.mark.parametrize("error_s", [0.0, 0.02])
def test_a_wrong_latency_is_a_wrong_stamp_in_real_time_too(error_s):
    loaded = load_scenario(HOLD)
    camera = replace(loaded.scenario.camera, latency_s=loaded.vehicle.latency.camera_s + error_s)
    world = World(replace(loaded, scenario=replace(loaded.scenario, camera=camera)), 1)
    with ThreadPoolExecutor(max_workers=1) as render_thread:
        feed = CameraFeed(world, render_thread)
        feed.expose(100.0)
    while world.now_s < camera.latency_s:
        world.advance()
    assert [m.stamp_s for m in feed.arrived()] == [pytest.approx(100.0 + error_s)]


def test_lost_images_do_not_reach_the_tracker():
    counts = []
    for share in (0.0, 0.5):
        loaded = load_scenario(HOLD)
        camera = replace(loaded.scenario.camera, images_lost=share)
        changed = replace(loaded.scenario, camera=camera, duration_max_s=1.5)
        lockstep = Lockstep(replace(loaded, scenario=changed), 1)
        lockstep.run()
        counts.append(len(lockstep.messages["markers"]))
    assert 0.35 * counts[0] < counts[1] < 0.65 * counts[0]


# --- markers --------------------------------------------------------------------------------------------------------


def test_a_marker_of_another_size_keeps_its_centre_and_a_print_of_another_scale_its_shape():
    loaded = load_scenario(HOLD)
    scene, site, config = loaded.scenario.scene, loaded.site, loaded.scenario.camera
    true = SceneCamera(config, scene, site, 1, draw=False).printed
    first = f"{true[0].marker.family}/{true[0].marker.id}"
    sized = SceneCamera(config, replace(scene, marker_scale={first: 1.03}), site, 1, draw=False).printed
    assert sized[0].centre_W == pytest.approx(true[0].centre_W)
    assert np.ptp(sized[0].corners_W, axis=0) == pytest.approx(1.03 * np.ptp(true[0].corners_W, axis=0))
    assert np.array_equal(sized[1].corners_W, true[1].corners_W)
    scaled = SceneCamera(config, replace(scene, print_scale=1.005), site, 1, draw=False).printed
    origin = np.array(scene.bundles[0].p_W)
    for a, b in zip(true, scaled, strict=True):
        assert b.corners_W - origin == pytest.approx(1.005 * (a.corners_W - origin), abs=1e-9)


def test_a_resized_marker_is_drawn_in_its_size():
    def side_px(corners) -> float:
        return float(np.linalg.norm(corners - np.roll(corners, 1, axis=0), axis=1).mean())

    loaded = load_scenario(HOLD)
    scene = replace(loaded.scenario.scene, print_scale=1.2)
    clean = replace(loaded.scenario.camera, noise_std=0.0, blur_px=0.0)
    camera = SceneCamera(clean, scene, loaded.site, 5, draw=True)
    seen = {m.marker.id: m.corners_px for m in camera.project_corners(0.0, BEFORE_THE_PIER, LEVEL)}
    for marker, pixels in detected(camera, 0.0).items():
        assert side_px(pixels) == pytest.approx(side_px(seen[marker]), rel=0.04)
