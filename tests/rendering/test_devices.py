"""The devices of a simulated aircraft: clock, inertial sensor, range finder, and their messages in a flight."""

import math
import re
import threading
import tomllib
from pathlib import Path
from types import SimpleNamespace

import cv2
import msgspec
import numpy as np
import pytest

from companion.core.config import ConfigError, parse
from companion.core.frames import quat_from_rpy
from companion.core.messages import CameraImu, DepthImage, RangeReading, SentSetpoint, StereoImages, Truth
from sitl.camera import SceneCamera
from sitl.devices.arrivals import Arrival, ArrivalQueue
from sitl.devices.camera_imu import CameraImuConfig, CameraInertial
from sitl.devices.config import DevicesConfig
from sitl.devices.depth_camera import depths_of
from sitl.devices.devices import Devices, Surroundings, scene_of
from sitl.devices.range_finder import RangeFinder, RangeFinderConfig
from sitl.devices.stereo import images_of
from sitl.devices.timing import Clock, Timing
from sitl.lockstep import Lockstep
from sitl.scenario import Start, load_scenario
from sitl.scene import Backdrop, SceneConfig
from sitl.solids.solids import Solids
from sitl.solids.world_file import Box, Cylinder, WorldFile
from sitl.world import World
from tests.rendering.drawn_worlds import AHEAD, draws, wall

ROOT = Path(__file__).parents[2]
SCENARIO = ROOT / "config/scenarios/bridge_hover.toml"
FORWARD = {"p_B": [0.1, 0.0, 0.0], "q_B": [0.5, -0.5, 0.5, -0.5]}
LENS = {"fx": 320, "fy": 320, "cx": 319.5, "cy": 179.5}
STEREO = {"rate_hz": 20, "width": 640, "height": 360, **LENS, "mount": FORWARD, "baseline_m": 0.2, "noise_std": 0}
DEPTH = {"rate_hz": 15, "latency_s": 0.04, "fx": 230, "fy": 230, "cx": 229.5, "cy": 159.5, "mount": FORWARD}
IMU = {"latency_s": 0.002, "mount": FORWARD, "gyro_noise": 2e-4, "gyro_walk": 0, "accel_noise": 2e-3, "accel_walk": 0}
RANGE = {"rate_hz": 20, "latency_s": 0.01, "facing": "down", "noise_m": 0.0, "min_m": 0.1, "max_m": 12.0}
STEP_S = 0.004


def configured(kind, table, **changes):
    return parse(table | changes, kind, "scenario.toml")


def still(p_W=(0.0, 0.0, 2.0), rpy=(0.0, 0.0, 0.0), omega=(0.0, 0.0, 0.0), force=(0.0, 0.0, 9.81)):
    vectors = {"p_W": p_W, "v_W": (0.0, 0.0, 0.0), "omega_B": omega, "specific_force_B": force}
    return SimpleNamespace(q_WB=quat_from_rpy(*rpy), **{name: np.array(v, float) for name, v in vectors.items()})


def clock_of(config, seed=0):
    return Clock(config, np.random.default_rng(seed))


# --- clock


def test_a_device_measures_at_its_rate_and_skips_what_it_missed():
    clock = clock_of(Timing(rate_hz=30.0))
    times = [i * STEP_S for i in range(2500) if clock.due(i * STEP_S)]
    assert len(times) == 300
    assert np.abs(np.array(times) - np.arange(300) / 30.0).max() <= STEP_S
    assert clock.due(100.0) and not clock.due(100.01)


def test_stamps_have_the_error_of_the_calibrated_clock_and_messages_that_of_their_way():
    timing = Timing(
        rate_hz=20, latency_s=0.05, latency_jitter_s=0.01, lost=0.2, clock_offset_s=0.003, clock_drift_ppm=50
    )
    clock = clock_of(timing)
    assert clock.stamp_s(100.0) == pytest.approx(100.0 + 0.003 + 0.005)
    arrivals = [clock.arrival_s(0.05 * i) for i in range(4000)]
    delays = np.array([a - 0.05 * i for i, a in enumerate(arrivals) if a is not None])
    assert len(delays) / 4000 == pytest.approx(0.8, abs=0.02)
    assert delays.mean() == pytest.approx(0.05, abs=0.001) and delays.std() == pytest.approx(0.009, abs=0.001)


def test_messages_wait_for_their_time_and_come_in_its_order():
    waiting = ArrivalQueue()
    messages = [CameraImu(stamp_s=float(i), gyro_I=(0.0,) * 3, accel_I=(0.0,) * 3) for i in range(3)]
    waiting.keep(Arrival(at_s, lambda m=m: m) for at_s, m in zip((0.3, 0.1, 0.2), messages, strict=True))
    assert [m.stamp_s for m in waiting.arrived(0.25)] == [1.0, 2.0]
    assert [m.stamp_s for m in waiting.arrived(0.35)] == [0.0] and not list(waiting.arrived(9.0))


def test_a_picture_that_is_not_drawn_in_time_arrives_later():
    waiting, drawn = ArrivalQueue(), []
    late = CameraImu(stamp_s=1.0, gyro_I=(0.0,) * 3, accel_I=(0.0,) * 3)
    waiting.keep([Arrival(0.1, lambda: late, lambda: bool(drawn))])
    assert not list(waiting.arrived(0.2))
    drawn.append(True)
    assert list(waiting.arrived(0.3)) == [late]


# --- inertial sensor


def inertial(seconds, motion=None, seed=1, **changes):
    config = configured(CameraImuConfig, IMU, **changes)
    sensor = CameraInertial(config, np.random.default_rng(seed), clock_of(config))
    moves = motion or (lambda t_s: still())
    samples = []
    for i in range(1, round(seconds / STEP_S) + 1):
        samples += sensor.step(i * STEP_S, moves(i * STEP_S))
    gyro, accel = (np.array([getattr(m, name) for _, m in samples]) for name in ("gyro_I", "accel_I"))
    return np.array([t for t, _ in samples]), gyro, accel, sensor


def test_samples_are_200_a_second_at_even_times_though_the_world_has_250():
    times, _, _, _ = inertial(2.0)
    assert np.allclose(np.diff(times), 0.005) and times[0] == 0.005 and times[-1] == pytest.approx(2.0)


def test_white_noise_has_its_density():
    _, gyro, accel, _ = inertial(30.0)
    assert gyro.std(axis=0) == pytest.approx(2e-4 * math.sqrt(200), rel=0.04)
    assert accel.std(axis=0) == pytest.approx(2e-3 * math.sqrt(200), rel=0.04)
    assert accel.mean(axis=0) == pytest.approx([0.0, -9.81, 0.0], abs=2e-3)  # optical axes: y down


def test_biases_walk_with_the_square_root_of_time():
    walked = []
    for seed in range(60):
        _, _, _, sensor = inertial(0.6, seed=seed, gyro_walk=1e-3, accel_walk=2e-2)
        walked.append((sensor.gyro_bias / (1e-3 * math.sqrt(0.6)), sensor.accel_bias / (2e-2 * math.sqrt(0.6))))
    spread = np.array(walked).reshape(60, 2, 3).std(axis=(0, 2))
    assert spread == pytest.approx([1.0, 1.0], rel=0.2)


def test_a_bias_from_the_start_is_in_the_samples():
    _, gyro, accel, sensor = inertial(10.0, gyro_bias_rad_s=0.05, accel_bias_m_s2=0.3)
    assert np.abs(sensor.gyro_bias).max() > 0.005
    assert gyro.mean(axis=0) == pytest.approx(sensor.gyro_bias, abs=4e-4)
    assert accel.mean(axis=0) - (0.0, -9.81, 0.0) == pytest.approx(sensor.accel_bias, abs=4e-3)


def test_the_lever_arm_feels_the_rotation():
    mount = {"p_B": [0.3, 0.0, 0.0], "q_B": [1, 0, 0, 0]}
    quiet = {"gyro_noise": 0, "accel_noise": 0, "mount": mount}
    _, gyro, accel, _ = inertial(1.0, lambda t: still(omega=(0.0, 0.0, 2.0 * t), force=(0.0, 0.0, 0.0)), **quiet)
    times = 0.005 * np.arange(1, len(accel) + 1)
    assert gyro[:, 2] == pytest.approx(2.0 * times, abs=1e-9)
    assert accel[10:, 1] == pytest.approx(np.full(len(accel) - 10, 0.3 * 2.0), abs=1e-9)  # angular acceleration
    assert accel[10:, 0] == pytest.approx(-0.3 * (2.0 * times[10:]) ** 2, abs=1e-4)  # centripetal


# --- range finder


def finder(look, **changes):
    config = configured(RangeFinderConfig, RANGE, **changes)
    return RangeFinder(config, look, np.random.default_rng(1), clock_of(config))


def test_a_range_finder_measures_against_what_is_there_along_its_axis():
    solid = {"texture": "concrete", "material": "cement"}
    wall_ahead = Box(name="wall", p_W=(7.5, 0.0, 0.0), size_m=(1.0, 40.0, 40.0), **solid)
    pillar = Cylinder(name="pillar", p_W=(4.0, 0.0, 2.0), radius_m=0.5, length_m=1.0, **solid)
    solids = Solids(WorldFile(name="two", description="", solid=[wall_ahead, pillar]), Path("two.toml"))
    loaded = load_scenario(SCENARIO, camera_mode="corners")
    upright = (math.pi / 2, 0.0, math.pi / 2)
    backdrop = Backdrop(p_W=(-6.0, 0.0, 2.0), rpy_rad=upright, size_m=(2, 2), texture="plain", seed=1)
    scene = SceneConfig(bundles=[], backdrops=[backdrop], light=1.0)
    camera = SceneCamera(loaded.scenario.camera, scene, loaded.site, 1, draw=False)
    look = scene_of(camera, scene, solids, draw=False).look
    p_W = np.array([0.0, 0.0, 2.0])
    forward, down = finder(look, facing="forward", p_B=[0.1, 0.0, 0.0]), finder(look)
    assert forward.read(0.0, p_W, quat_from_rpy(0, 0, 0)).range_m == pytest.approx(3.4)
    assert forward.read(0.0, p_W, quat_from_rpy(0, 0, 0.3)).range_m == pytest.approx(
        (7.0 - 0.1 * math.cos(0.3)) / math.cos(0.3)
    )
    assert down.read(0.0, p_W, quat_from_rpy(0.2, 0, 0)).range_m == pytest.approx(2.0 / math.cos(0.2))
    assert forward.read(0.0, p_W, quat_from_rpy(0, 0, math.pi)).range_m == pytest.approx(5.9)
    assert math.isnan(forward.read(0.0, p_W, quat_from_rpy(0, 0, math.pi / 2)).range_m)


def test_a_reading_outside_of_the_limits_is_none_and_noise_has_its_size():
    for true_m, seen in ((0.05, False), (0.2, True), (11.0, True), (13.0, False), (math.inf, False)):
        assert math.isnan(finder(lambda *_, d=true_m: d).read(0.0, np.zeros(3), quat_from_rpy(0, 0, 0)).range_m) != seen
    noisy = finder(lambda *_: 5.0, noise_m=0.03, noise_share=0.008)
    read = [noisy.read(0.0, np.zeros(3), quat_from_rpy(0, 0, 0)).range_m for _ in range(4000)]
    assert np.std(read) == pytest.approx(0.05, rel=0.05) and np.mean(read) == pytest.approx(5.0, abs=0.004)


# --- cameras


@draws
def test_a_stereo_pair_shows_a_wall_displaced_by_its_disparity_and_depth_shows_its_distance():
    texture = np.random.default_rng(1).integers(0, 255, (64, 64)).astype(np.uint8)
    meshes = [wall(4.1, size_m=(8.0, 8.0))._replace(texture=texture)]
    config = parse({"stereo": STEREO, "depth": DEPTH}, DevicesConfig, "scenario.toml")
    devices = Devices(config, Surroundings(meshes, list, lambda *_: math.inf), seed=1)
    arrivals = devices.step(0.0, still(p_W=(0.0, 0.0, 0.0)))
    assert [a.at_s for a in arrivals] == [0.0, 0.04]
    pair, depth = (a.message() for a in arrivals)
    left, right = images_of(pair)
    disparity = 320 * 0.2 / 4.0
    assert np.abs(left[:, 20:].astype(int) - right[:, 20 - int(disparity) : -int(disparity)]).max() <= 1
    depths = depths_of(depth)
    assert np.nanmedian(depths) == pytest.approx(4.0, abs=0.001)
    assert np.nanstd(depths) == pytest.approx(0.005 * math.exp(0.5 * 4.0), rel=0.02)
    assert not devices.step(0.004, still())
    devices.close()


@draws
def test_the_light_of_the_scene_and_that_of_the_stereo_camera_multiply():
    def mean_grey(brightness, light):
        devices = Devices(
            parse({"stereo": STEREO | {"light": light}}, DevicesConfig, "scenario.toml"),
            Surroundings([wall(4.1, size_m=(8.0, 8.0))], list, lambda *_: math.inf, brightness=brightness),
            seed=1,
        )
        (pair,) = (a.message() for a in devices.step(0.0, still(p_W=(0.0, 0.0, 0.0))))
        devices.close()
        return np.mean(images_of(pair)[0])

    full = mean_grey(1.0, 1.0)
    assert mean_grey(0.5, 1.0) == pytest.approx(0.5 * full, abs=0.6)
    assert mean_grey(0.5, 0.8) == pytest.approx(0.4 * full, abs=0.6)


def test_the_surroundings_have_the_light_of_the_scene():
    loaded = load_scenario(SCENARIO, camera_mode="corners")
    camera = SceneCamera(loaded.scenario.camera, loaded.scenario.scene, loaded.site, 1, draw=False)
    assert scene_of(camera, loaded.scenario.scene, draw=False).brightness == loaded.scenario.scene.light == 0.9


@draws
def test_where_markers_are_hidden_stereo_images_are_even_and_depth_images_empty():
    devices = parse({"stereo": STEREO, "depth": DEPTH}, DevicesConfig, "scenario.toml")
    loaded = load_scenario(SCENARIO, camera_mode="corners")
    world = World(
        msgspec.structs.replace(loaded, scenario=msgspec.structs.replace(loaded.scenario, devices=devices)), 1
    )
    world.plant.p_W[:] = 9.0, 0.0, 4.0  # before the pier
    seen = []
    for hidden in (True, False):
        world.markers_hidden = hidden
        for _ in range(25):
            world.advance()
            seen += [(hidden, a.message()) for a in world.measured()]
    world.devices.close()
    for hidden, message in seen:
        if isinstance(message, StereoImages):
            assert (np.std(images_of(message)[0]) == np.std(images_of(message)[1]) == 0.0) == hidden
        else:
            assert np.isnan(depths_of(message)).all() == hidden
    assert {(hidden, type(m)) for hidden, m in seen} == {
        (h, k) for h in (True, False) for k in (StereoImages, DepthImage)
    }


def flown(devices=None, seconds=0.5):
    loaded = load_scenario(SCENARIO, camera_mode="corners")
    table = None if devices is None else parse(devices, DevicesConfig, "scenario.toml")
    changed = msgspec.structs.replace(loaded.scenario, devices=table, duration_max_s=seconds)
    messages = []
    lockstep = Lockstep(
        msgspec.structs.replace(loaded, scenario=changed),
        1,
        record=lambda message, now_s: messages.append((message, now_s)),
    )
    lockstep.run()
    return messages


def test_devices_that_draw_nothing_fly_with_markers_that_cannot_be_drawn_and_without_opengl():
    loaded = load_scenario(SCENARIO.with_name("spiral_calm.toml"))  # STag
    devices = parse({"imu": IMU, "range_finder": RANGE}, DevicesConfig, "scenario.toml")
    world = World(
        msgspec.structs.replace(loaded, scenario=msgspec.structs.replace(loaded.scenario, devices=devices)), 1
    )
    for _ in range(3):
        world.advance()
        arrivals = world.measured()
    assert [type(a.message()) for a in arrivals] == [CameraImu]


def of(messages, *kinds):
    return [(repr(m), now_s) for m, now_s in messages if isinstance(m, kinds)]


@draws
def test_the_same_seed_and_motion_give_the_same_messages():
    config = parse({"stereo": STEREO | {"noise_std": 2}, "depth": DEPTH, "imu": IMU}, DevicesConfig, "scenario.toml")

    def measured(seed):
        devices = Devices(config, Surroundings([wall(4.0)], list, lambda *_: math.inf), seed)
        arrivals = [a for i in range(1, 30) for a in devices.step(i * STEP_S, still())]
        messages = [(a.at_s, repr(a.message())) for a in arrivals]
        devices.close()
        return messages

    first = measured(1)
    assert first == measured(1)
    assert all(one != other for one, other in zip(first, measured(2), strict=True))


@draws
def test_devices_deliver_their_topics_and_change_nothing_else_of_a_flight():
    alone, both = flown(), flown({"stereo": STEREO, "depth": DEPTH, "imu": IMU, "range_finder": RANGE})
    counts = {kind: len(of(both, kind)) for kind in (StereoImages, DepthImage, CameraImu, RangeReading)}
    assert counts == {StereoImages: 11, DepthImage: 7, CameraImu: 99, RangeReading: 10}
    assert not of(alone, *counts) and of(alone, Truth, SentSetpoint) == of(both, Truth, SentSetpoint)
    delays = [now_s - m.stamp_s for m, now_s in both if isinstance(m, DepthImage)]
    assert delays == pytest.approx([0.04] * len(delays), abs=1e-6)
    stamps = [m.stamp_s for m, _ in both if isinstance(m, CameraImu)]
    assert np.allclose(np.diff(stamps), 0.005)


@pytest.mark.parametrize(
    ("table", "names"),
    [
        ({"stereo": STEREO | {"baseline_m": 0}}, "stereo.baseline_m"),
        ({"stereo": {k: v for k, v in STEREO.items() if k != "baseline_m"}}, "baseline_m"),
        ({"imu": IMU | {"rate_hz": 1000}}, "imu.rate_hz"),
        ({"range_finder": RANGE | {"facing": "up"}}, "range_finder.facing"),
        ({"range_finder": RANGE | {"min_m": 9.0, "max_m": 3.0}}, "min_m"),
        ({"lidar": {}}, "lidar"),
    ],
)
def test_a_wrong_device_is_refused_with_its_key(table, names):
    with pytest.raises(ConfigError, match=names):
        parse(table, DevicesConfig, "scenario.toml")


def test_the_devices_of_the_page_are_possible():
    page = (ROOT / "docs/simulated_sensors.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"<!-- checked by tests/rendering/test_devices.py -->\n```toml\n(.*?)```", page, flags=re.S)
    config = parse(tomllib.loads(block)["devices"], DevicesConfig, "page")
    assert config.draws and None not in (config.stereo, config.depth, config.imu, config.range_finder)
    assert (config.depth.width, config.depth.height, config.imu.rate_hz) == (460, 320, 200.0)


def test_the_camera_looks_ahead_as_the_tests_say():
    from companion.core.frames import rotation_matrix

    assert np.allclose(rotation_matrix(np.array(FORWARD["q_B"])), AHEAD)


@draws
def test_the_trackers_camera_and_the_devices_see_the_solids_of_a_world():
    loaded = load_scenario(SCENARIO.with_name("bridge_solid.toml"), camera_mode="images")
    near = {
        "devices": parse({"depth": DEPTH}, DevicesConfig, "scenario.toml"),
        "start": Start(p_W=(7.0, 0.0, 4.0), yaw_rad=0.0),
    }
    world = World(msgspec.structs.replace(loaded, scenario=msgspec.structs.replace(loaded.scenario, **near)), 1)
    p_W, q_WB = np.array([8.0, 0.0, 4.0]), quat_from_rpy(0.0, 0.0, 0.0)
    image = world.camera.render(0.0, p_W, q_WB, np.zeros(3), np.zeros(3))
    parameters = cv2.aruco.DetectorParameters()
    dictionary = cv2.aruco.getPredefinedDictionary(cv2.aruco.DICT_6X6_250)
    grey = np.frombuffer(image.data, np.uint8).reshape(480, 640)
    corners, ids, _ = cv2.aruco.ArucoDetector(dictionary, parameters).detectMarkers(grey)
    true = {seen.marker.id: seen.corners_px for seen in world.camera.project_corners(0.0, p_W, q_WB)}
    assert len(true) >= 4 and set(ids.ravel()) == set(true)
    assert all(np.abs(c[0] - true[i]).max() < 3.0 for c, i in zip(corners, ids.ravel(), strict=True))
    world.plant.p_W[:], world.plant.q_WB[:] = p_W, q_WB
    world.devices.step(0.0, world.plant)[0].message()
    depth = depths_of(world.devices.step(1.0, world.plant)[0].message())
    ahead_m = float(loaded.solids.first_hit(p_W + (0.1, 0.0, 0.0), np.array([1.0, 0.0, 0.0])))
    assert 3.0 < ahead_m < 5.0
    assert np.nanmedian(depth[155:165, 215:225]) == pytest.approx(ahead_m, abs=0.02)
    world.devices.close()


@draws
def test_in_real_time_a_slow_machine_leaves_exposures_out():
    config = parse({"stereo": STEREO, "depth": DEPTH}, DevicesConfig, "scenario.toml")

    def exposures(in_real_time):
        devices = Devices(config, Surroundings([wall(4.0)], list, lambda *_: math.inf), 1)
        devices.in_real_time, hold = in_real_time, threading.Event()
        devices.draw(0.0, lambda: hold.wait(30.0))  # a picture that takes long
        count = sum(len(devices.step(0.05 * i, still())) for i in range(10))
        hold.set()
        devices.close()
        return count

    assert (exposures(True), exposures(False)) == (3, 17)
