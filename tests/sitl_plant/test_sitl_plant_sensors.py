"""The sensors' errors have the configured size; rates and delays are as configured."""

import math
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from companion.core.config import ConfigError, parse
from companion.core.frames import quat_conjugate, quat_from_rpy, quat_log, quat_multiply
from sitl.airframe import load_airframe
from sitl.plant import Plant
from sitl.sensors import FRAME_S, PAPER, Face, RangeFinderConfig, SensorConfig, Sensors

replace = msgspec.structs.replace


def motion(p_W=(1.0, -2.0, 3.0), v_W=(0.5, 0.0, -0.5), rpy=(0.1, -0.2, 2.0)):
    return SimpleNamespace(
        p_W=np.array(p_W),
        v_W=np.array(v_W),
        q_WB=quat_from_rpy(*rpy),
        omega_B=np.array([0.1, 0.2, -0.3]),
        specific_force_B=np.array([0.5, -0.4, 9.7]),
        battery_voltage_v=15.0,
        battery_remaining=0.7,
    )


def fly(config, seed, seconds, truth=None):
    sensors, truth = Sensors(config, seed), truth or motion()
    return sensors, [sensors.sample(i * FRAME_S, truth) for i in range(round(seconds / FRAME_S))]


def attitude_errors(frames, truth):
    """Rotation vector in W from truth to solution, (n, 3) [rad]."""
    inverse = quat_conjugate(truth.q_WB)
    return np.array([quat_log(quat_multiply(frame.q_WB, inverse)) for frame in frames])


def test_gnss_white_noise_and_random_walk_have_their_variances():
    white, walk = [], []
    for seed in range(20):
        sensors, truth, biases, errors = Sensors(PAPER, seed), motion(), [], []
        undelayed = replace(PAPER, gnss=replace(PAPER.gnss, delay_s=0.0))
        sensors = Sensors(undelayed, seed)
        for i in range(25 * 100):
            frame = sensors.sample(i * FRAME_S, truth)
            if frame.gnss:
                biases.append(sensors.gnss_bias_W)
                errors.append(np.array(frame.gnss.p_W) - truth.p_W - sensors.gnss_bias_W)
        walk.append(np.diff(biases, axis=0))
        white.append(errors)
    assert np.var(np.concatenate(white)) == pytest.approx(1e-3, rel=0.06)
    assert np.var(np.concatenate(walk)) == pytest.approx(1e-3, rel=0.06)
    assert abs(np.mean(np.concatenate(white))) < 2e-3


def test_gnss_walk_spreads_with_the_square_root_of_time():
    ends = [fly(PAPER, seed, 4.0)[0].gnss_bias_W for seed in range(150)]
    assert np.var(np.array(ends)) == pytest.approx(40 * 1e-3, rel=0.25)


def test_gnss_reports_the_accuracy_that_its_errors_have():
    """Over many starts the errors of one age have the standard deviation that the receiver reports then."""
    truth, errors = motion(), []
    for seed in range(60):
        sensors = Sensors(PAPER, seed)
        fixes = [f.gnss for i in range(300) if (f := sensors.sample(0.1 * i, truth)).gnss]
        errors.append(np.array(fixes[-1].p_W) - truth.p_W)
    rms = np.sqrt(np.mean(np.square(errors), axis=0))
    assert math.hypot(rms[0], rms[1]) == pytest.approx(fixes[-1].h_acc_m, rel=0.2)
    assert rms[2] == pytest.approx(fixes[-1].v_acc_m, rel=0.25)
    assert fixes[0].h_acc_m < 0.1 < fixes[150].h_acc_m < fixes[-1].h_acc_m
    assert fixes[-1].speed_acc_m_s == pytest.approx(0.05 * math.sqrt(3.0))


def test_gnss_velocity_noise_has_its_variance():
    truth = motion()
    _, frames = fly(PAPER, 1, 60.0, truth)
    errors = np.array([frame.gnss.v_W for frame in frames if frame.gnss]) - truth.v_W
    assert errors.std() == pytest.approx(0.05, rel=0.08)


@pytest.mark.parametrize(("rate_hz", "delay_s"), [(10.0, 0.1), (5.0, 0.22), (8.0, 0.0), (50.0, 0.05)])
def test_fixes_arrive_at_their_rate_after_their_delay(rate_hz, delay_s):
    config = replace(PAPER, gnss=replace(PAPER.gnss, rate_hz=rate_hz, delay_s=delay_s))
    _, frames = fly(config, 1, 10.0)
    arrivals = [frame for frame in frames if frame.gnss]
    assert len(arrivals) == pytest.approx((10.0 - delay_s) * rate_hz, abs=1)
    for frame in arrivals:
        assert delay_s - 1e-6 <= frame.stamp_s - frame.gnss.stamp_s <= delay_s + FRAME_S
    assert np.diff([f.gnss.stamp_s for f in arrivals]).max() <= 1 / rate_hz + FRAME_S


def test_a_fix_has_the_position_at_its_stamp_and_not_at_its_arrival():
    exact = replace(PAPER, gnss=replace(PAPER.gnss, white_variance_m2=0.0, walk_variance_m2=0.0, velocity_std_m_s=0.0))
    sensors, truth = Sensors(exact, 1), motion()
    seen = 0
    for i in range(500):
        truth.p_W[:] = i * FRAME_S * 2.0, 0.0, 0.0
        fix = sensors.sample(i * FRAME_S, truth).gnss
        if fix:
            assert fix.p_W[0] == pytest.approx(2.0 * fix.stamp_s)
            seen += 1
    assert seen >= 18


def test_gnss_lost_keeps_fixes_coming_without_a_solution_until_cleared():
    sensors, truth = Sensors(PAPER, 1), motion()

    def run(start, count):
        fixes = [sensors.sample((start + i) * FRAME_S, truth).gnss for i in range(count)]
        return [fix for fix in fixes if fix][2:]  # without the fixes that were already taken

    assert all(fix.ok for fix in run(0, 500))
    sensors.set_fault("gnss_lost", True)
    lost = run(500, 500)
    assert lost and not any(fix.ok for fix in lost)
    assert len({fix.p_W for fix in lost}) == 1
    sensors.set_fault("gnss_lost", None)
    assert all(fix.ok for fix in run(1000, 500))


def test_gnss_jump_moves_the_fixes_and_is_part_of_the_bias_until_cleared():
    config = replace(PAPER, gnss=replace(PAPER.gnss, walk_variance_m2=0.0, delay_s=0.0))
    sensors, truth = Sensors(config, 1), motion()
    sensors.sample(0.0, truth)
    sensors.set_fault("gnss_jump", (3.0, -2.0, 0.5))
    assert sensors.gnss_bias_W == (3.0, -2.0, 0.5)
    fix = next(f for f in (sensors.sample(0.1 + i * FRAME_S, truth).gnss for i in range(30)) if f)
    np.testing.assert_allclose(np.array(fix.p_W) - truth.p_W, [3.0, -2.0, 0.5], atol=0.2)
    sensors.set_fault("gnss_jump", None)
    assert sensors.gnss_bias_W == (0.0, 0.0, 0.0)


def test_an_unknown_fault_is_refused():
    with pytest.raises(ValueError, match="gnss_spoofed"):
        Sensors(PAPER, 1).set_fault("gnss_spoofed", True)


def test_tilt_and_heading_errors_have_their_spread_from_start_to_start():
    truth = motion()
    errors = np.array([attitude_errors(fly(PAPER, seed, FRAME_S, truth)[1], truth)[0] for seed in range(1500)])
    a = PAPER.attitude
    tilt = math.hypot(a.tilt_std_rad, a.white_std_rad)
    heading = math.sqrt(a.heading_offset_std_rad**2 + a.heading_std_rad**2 + a.white_std_rad**2)
    np.testing.assert_allclose(errors.std(axis=0), [tilt, tilt, heading], rtol=0.07)


def test_tilt_error_decorrelates_with_its_time_constant_and_heading_keeps_its_offset():
    fast = replace(PAPER.attitude, tilt_time_s=1.0, heading_std_rad=0.0, white_std_rad=0.0)
    truth = motion()
    _, frames = fly(replace(PAPER, attitude=fast), 3, 200.0, truth)
    errors = attitude_errors(frames[::25], truth)  # every 0.1 s
    tilt, lag = errors[:, :2], 10
    correlation = np.mean(tilt[:-lag] * tilt[lag:]) / np.mean(tilt**2)
    assert correlation == pytest.approx(math.exp(-1), abs=0.12)
    assert tilt.std() == pytest.approx(fast.tilt_std_rad, rel=0.15)
    # heading stays but for the second order of rotations that do not commute
    assert np.ptp(errors[:, 2]) < 1e-3 and abs(errors[:, 2].mean()) > 1e-3


def test_attitude_white_noise_is_new_in_every_frame():
    truth = motion()
    _, frames = fly(PAPER, 5, 20.0, truth)
    steps = np.diff(attitude_errors(frames, truth), axis=0)
    assert steps.std() / math.sqrt(2) == pytest.approx(PAPER.attitude.white_std_rad, rel=0.05)


def test_attitude_solutions_are_unit_quaternions():
    _, frames = fly(PAPER, 5, 1.0)
    norms = [math.hypot(*frame.q_WB) for frame in frames]
    np.testing.assert_allclose(norms, 1.0, atol=1e-12)


def test_imu_noise_is_white_around_a_bias_that_stays():
    truth = motion()
    offsets = []
    for seed in range(60):
        _, frames = fly(PAPER, seed, 2.0, truth)
        gyro = np.array([f.gyro_B for f in frames]) - truth.omega_B
        accel = np.array([f.accel_B for f in frames]) - truth.specific_force_B
        assert gyro.std(axis=0).mean() == pytest.approx(PAPER.imu.gyro_noise_rad_s, rel=0.1)
        assert accel.std(axis=0).mean() == pytest.approx(PAPER.imu.accel_noise_m_s2, rel=0.1)
        offsets.append(np.concatenate([gyro.mean(axis=0), accel.mean(axis=0)]))
    spread = np.array(offsets).std(axis=0)
    np.testing.assert_allclose(spread[:3].mean(), PAPER.imu.gyro_bias_rad_s, rtol=0.2)
    np.testing.assert_allclose(spread[3:].mean(), PAPER.imu.accel_bias_m_s2, rtol=0.2)


def test_barometer_has_its_rate_noise_and_drift():
    truth = motion()
    _, frames = fly(PAPER, 2, 100.0, truth)
    readings = np.array([f.baro_height_m for f in frames if f.baro_height_m is not None]) - 3.0
    assert len(readings) == pytest.approx(5000, abs=2)
    assert np.diff(readings).std() / math.sqrt(2) == pytest.approx(PAPER.baro.noise_m, rel=0.05)
    quiet = replace(PAPER, baro=replace(PAPER.baro, noise_m=0.0))
    ends = [fly(quiet, seed, 2.0, truth)[1][-5:] for seed in range(150)]
    drift = [next(f.baro_height_m for f in end if f.baro_height_m is not None) - 3.0 for end in ends]
    assert np.std(drift) == pytest.approx(0.02 * math.sqrt(2.0), rel=0.2)


def test_the_same_seed_gives_the_same_frames_and_another_seed_other_frames():
    assert fly(PAPER, 4, 1.0)[1] == fly(PAPER, 4, 1.0)[1]
    assert fly(PAPER, 4, 1.0)[1] != fly(PAPER, 5, 1.0)[1]


def test_changing_one_sensor_leaves_the_others_as_they_were():
    other = replace(PAPER, gnss=replace(PAPER.gnss, rate_hz=5.0), baro=replace(PAPER.baro, rate_hz=25.0))
    for a, b in zip(fly(PAPER, 4, 1.0)[1], fly(other, 4, 1.0)[1], strict=True):
        assert (a.gyro_B, a.accel_B, a.q_WB, a.battery_voltage_v) == (b.gyro_B, b.accel_B, b.q_WB, b.battery_voltage_v)


def test_sensors_read_the_plant():
    plant, sensors = Plant(load_airframe("f550"), 1, yaw_rad=1.0), Sensors(PAPER, 1)
    for i in range(50):
        plant.step(np.zeros(6), 4)
        frame = sensors.sample(i * FRAME_S, plant)
    assert abs(frame.battery_voltage_v - plant.battery_voltage_v) < 0.1
    assert frame.battery_remaining == plant.battery_remaining
    assert abs(frame.accel_B[2] - 9.8) < 1.0


FINDER = RangeFinderConfig(rate_hz=20.0, noise_m=0.02, min_m=0.2, max_m=12.0)
WITH_FINDER = replace(PAPER, range_finder=FINDER)
FACE = Face((6.0, 0.0, 3.0), (-1.0, 0.0, 0.0))


def ranges(truth, ahead=FACE):
    sensors = Sensors(WITH_FINDER, 1, ahead)
    frames = [sensors.sample(i * FRAME_S, truth) for i in range(round(20.0 / FRAME_S))]
    return np.array([frame.range.range_m for frame in frames if frame.range is not None])


@pytest.mark.parametrize(
    ("rpy", "true_m"), [((0.3, 0.0, 0.0), 5.0), ((0.0, 0.1, 0.4), 5.0 / np.cos(0.1) / np.cos(0.4))]
)
def test_the_range_finder_measures_along_the_nose_with_its_rate_and_noise(rpy, true_m):
    measured_m = ranges(motion(p_W=(1.0, -2.0, 3.0), rpy=rpy))
    assert len(measured_m) == 400
    assert measured_m.mean() == pytest.approx(true_m, abs=0.005) and measured_m.std() == pytest.approx(0.02, rel=0.15)


@pytest.mark.parametrize("truth", [motion(p_W=(-9.0, 0.0, 3.0), rpy=(0, 0, 0)), motion(rpy=(0, 0, 2.0))])
def test_the_range_finder_reports_its_maximum_when_nothing_is_in_range(truth):
    assert set(ranges(truth)) == {12.0}
    assert set(ranges(motion(rpy=(0, 0, 0)), ahead=None)) == {12.0}


def test_the_range_finder_measures_along_body_x_what_the_world_has_ahead():
    asked = []

    def look(origin_W, direction_W):
        asked.append((origin_W.tolist(), direction_W))
        return 7.0

    measured_m = ranges(motion(p_W=(1.0, -2.0, 3.0), rpy=(0.0, 0.1, 0.4)), look)
    assert measured_m.mean() == pytest.approx(7.0, abs=0.005)
    along_W = (np.cos(0.1) * np.cos(0.4), np.cos(0.1) * np.sin(0.4), -np.sin(0.1))
    assert asked[0][0] == [1.0, -2.0, 3.0] and asked[0][1] == pytest.approx(along_W)


def test_a_range_finder_leaves_the_other_sensors_as_they_were():
    for a, b in zip(fly(PAPER, 4, 1.0)[1], fly(WITH_FINDER, 4, 1.0)[1], strict=True):
        assert a.range is None and a == b._replace(range=None)


def test_sensor_tables_are_strict():
    tables = msgspec.to_builtins(PAPER)
    assert parse(tables, SensorConfig, "scenario") == PAPER
    tables["gnss"]["delay_s"] = 9.0
    with pytest.raises(ConfigError, match=r"gnss.delay_s = 9.0.*0 to 2"):
        parse(tables, SensorConfig, "scenario")
    del tables["gnss"]["delay_s"]
    with pytest.raises(ConfigError, match="gnss.delay_s: missing key"):
        parse(tables, SensorConfig, "scenario")
