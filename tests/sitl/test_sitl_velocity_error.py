"""The flight controller's velocity is as wrong as was drawn, and its position by what follows from that."""

import functools
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from companion.core.frames import GRAVITY_M_S2
from sitl.autopilot.observer import Observer
from sitl.scenario import SensorKind, load_scenario
from sitl.sensors import FRAME_S, Sensors
from sitl.unkind import UnkindWorld, apply, flown_parameters, with_sensors
from sitl.velocity_error import statistic

ROOT = Path(__file__).parents[2]
HOVER = load_scenario(ROOT / "config/scenarios/bridge_hover.toml")
EXCITATION = ROOT.parent / "shared/data/ulog/px4_v117_hexa_excitation.ulg"
SETTLED_S, EVERY = 20.0, 25  # a sample each 0.1 s
TRUTH = SimpleNamespace(
    p_W=np.zeros(3),
    v_W=np.zeros(3),
    q_WB=np.array([1.0, 0.0, 0.0, 0.0]),
    omega_B=np.zeros(3),
    specific_force_B=np.array([0.0, 0.0, GRAVITY_M_S2]),
    battery_voltage_v=15.0,
    battery_remaining=0.7,
)


def hover(world: UnkindWorld | None, seed: int, seconds: float, lost_at_s: float = math.inf, scenario=HOVER):
    """Errors of the observer in a hover, velocity and position, and the walk of GNSS; each of shape (n, 3)."""
    loaded = scenario if world is None else apply(scenario, world)
    sensors, observer = Sensors(loaded.scenario.sensors, seed), Observer(flown_parameters(loaded.scenario), FRAME_S)
    v, p, walk = [], [], []
    for i in range(round(seconds / FRAME_S)):
        if i * FRAME_S >= lost_at_s:
            sensors.set_fault("gnss_lost", True)
        frame = sensors.sample(i * FRAME_S, TRUTH)
        observer.predict(frame.stamp_s, frame.accel_B, frame.q_WB)
        if frame.gnss is not None:
            observer.correct_gnss(frame.stamp_s, frame.gnss)
        if frame.baro_height_m is not None:
            observer.correct_baro(frame.stamp_s, frame.baro_height_m)
        observer.check(frame.stamp_s)
        assert frame.stamp_s < SETTLED_S or observer.position_valid or lost_at_s < math.inf
        if i % EVERY == 0 and frame.stamp_s > SETTLED_S:
            v.append(list(observer.v))
            p.append(list(observer.p))
            walk.append(sensors.gnss_bias_W)
    return np.array(v), np.array(p), np.array(walk)


@functools.cache
def drawn(seed: int) -> UnkindWorld:
    """The world of a seed without its jumps, which come on top."""
    world = with_sensors(HOVER, SensorKind.UNKIND, seed).drawn
    return without_jumps(world)


def without_jumps(world) -> UnkindWorld:
    assert isinstance(world, UnkindWorld)
    return msgspec.structs.replace(world, gnss_jumps=[])


@pytest.mark.parametrize("seed", [3, 6])
def test_the_velocity_has_the_drawn_error_for_seconds_at_a_time(seed):
    """Horizontally; vertically EKF2 trusts GNSS less, and no tilt error moves it, but barometer and GNSS contradict each other."""
    world = drawn(seed)
    v, p, walk = hover(world, seed, 300.0)
    east, north, up = (statistic(axis, EVERY * FRAME_S) for axis in v.T)
    horizontal = math.sqrt((east.std_m_s**2 + north.std_m_s**2) / 2)
    assert horizontal == pytest.approx(world.fcu_velocity_std_m_s, rel=0.25)
    assert 1.0 < east.time_s < 12.0 and 1.0 < north.time_s < 12.0
    assert up.std_m_s > 0.35 * world.fcu_velocity_std_m_s
    # the integral of a velocity that is wrong for seconds, bounded by GNSS
    assert horizontal < (p - walk)[:, :2].std() < 12.0 * horizontal


def test_unkind_velocity_is_worse_than_kind():
    kind, unkind = hover(None, 1, 120.0)[0], hover(drawn(3), 3, 120.0)[0]
    assert unkind[:, :2].std() > 2.0 * kind[:, :2].std()


@pytest.mark.parametrize("name", ["run_10", "spiral_side"])
def test_a_precise_source_is_never_rejected_and_gives_its_precise_velocity(name):
    """RTK and motion capture, for which the crew has lowered EKF2's noise: its gates are narrow."""
    precise = load_scenario(ROOT / f"config/scenarios/{name}.toml")
    world = without_jumps(with_sensors(precise, SensorKind.UNKIND, 1).drawn)
    v, p, _ = hover(world, 1, 60.0, scenario=precise)
    assert 0.005 < v[:, :2].std() < 0.03
    assert np.abs(p[:, :2]).max() < 0.1


def test_without_gnss_the_position_is_the_integral_of_the_wrong_velocity():
    v, p, _ = hover(drawn(6), 6, 60.0, lost_at_s=45.0)
    after = round((46.0 - SETTLED_S) / (EVERY * FRAME_S))
    integral = np.trapezoid(v[after:], dx=EVERY * FRAME_S, axis=0)
    assert (p[-1] - p[after])[:2] == pytest.approx(integral[:2], rel=0.02, abs=0.02)
    assert np.abs(integral[:2]).max() > 0.3, "the error does not grow"


def test_statistics_of_a_known_error():
    rng, keep = np.random.default_rng(1), math.exp(-0.1 / 3.0)
    x = [0.0]
    for n in rng.standard_normal(40_000):
        x.append(keep * x[-1] + 0.15 * math.sqrt(1 - keep**2) * n)
    s = statistic(np.array(x) + 0.02, 0.1)
    assert s.mean_m_s == pytest.approx(0.02, abs=0.02)
    assert (s.std_m_s, s.time_s) == pytest.approx((0.15, 3.0), rel=0.2)


def command(*words) -> subprocess.CompletedProcess:
    words = [sys.executable, "-m", "sitl.velocity_error", *map(str, words)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_the_command_refuses_in_one_line(tmp_path):
    (tmp_path / "broken.ulg").write_bytes(b"not a log")
    for name in ("broken.ulg", "nowhere.mcap", "nowhere.ulg"):
        result = command(tmp_path / name)
        assert result.returncode == 2 and name in result.stderr and len(result.stderr.splitlines()) == 1, result.stderr


@pytest.mark.skipif(not EXCITATION.exists(), reason="no ../shared/data")
def test_px4s_own_velocity_in_simulation_is_wrong_by_more_than_the_ranges_begin_with():
    result = command(EXCITATION)
    assert result.returncode == 0
    lines = result.stdout.splitlines()[1:]
    std = [float(line.split("standard deviation ")[1].split()[0]) for line in lines]
    assert len(std) == 3 and min(std) > 0.15
