"""The position estimate: smooth, consistent with the errors of its inputs, invalid after a loss of GNSS."""

import math

import numpy as np
import pytest

from sitl.autopilot.observer import GNSS_CHECK_S, AxisNoise, Gains, Observer, axis_noises
from sitl.autopilot.parameters import load_parameters
from sitl.sensors import GnssFix

STEP_S = 0.004
LEVEL = (1.0, 0.0, 0.0, 0.0)


def drive(observer, seconds, start_s=0.0, gnss=True, noise=0.0, bias=0.0, seed=1, amplitude=2.0, delay_s=0.1):
    """A sway along x with fixes of 10 Hz that arrive late; returns true and estimated x."""
    rng = np.random.default_rng(seed)
    w = 0.8

    def truth(t):
        return amplitude * (1 - math.cos(w * t)), amplitude * w * math.sin(w * t), amplitude * w * w * math.cos(w * t)

    true, seen = [], []
    for i in range(round(seconds / STEP_S)):
        t = start_s + i * STEP_S
        x, v, a = truth(t)
        observer.predict(t, (a + bias + noise * rng.normal(), 0.0, 9.80665), LEVEL)
        if gnss and i % 25 == 0 and t > start_s + 0.2:
            px, vx, _ = truth(t - delay_s)
            n = noise * rng.normal(size=2)
            observer.correct_gnss(t, GnssFix(t - delay_s, (px + n[0], 0.0, 0.0), (vx + 0.3 * n[1], 0.0, 0.0), True))
        if i % 5 == 0:
            observer.correct_baro(t, 0.05 * rng.normal())
        observer.check(t)
        true.append(x)
        seen.append(observer.p[0])
    return np.array(true), np.array(seen)


def new() -> Observer:
    return Observer(load_parameters("f550"), STEP_S)


def test_late_fixes_are_fused_at_their_own_time():
    true, seen = drive(new(), 30.0)
    assert np.abs(true - seen)[4000:].max() < 0.06  # 0.1 s of uncompensated delay would be 0.16 m


def test_estimate_is_smoother_than_the_fixes_and_learns_the_accelerometer_bias():
    observer = new()
    true, seen = drive(observer, 120.0, noise=0.2, bias=0.05)
    error = (true - seen)[20000:]
    assert error.std() < 0.12  # fixes have 0.2
    assert np.abs(np.diff(error)).max() < 0.05
    assert observer.bias[0] == pytest.approx(-0.05, abs=0.03)


def test_position_is_valid_some_seconds_after_gnss_is_good_and_invalid_some_seconds_after_its_loss():
    observer = new()
    drive(observer, GNSS_CHECK_S)
    assert not observer.position_valid
    drive(observer, 1.0, start_s=GNSS_CHECK_S)
    assert observer.position_valid and observer.gnss_ok
    drive(observer, 4.5, start_s=4.0, gnss=False)
    assert observer.position_valid and not observer.gnss_ok  # dead reckoning
    assert observer.position_std_m(8.5) > 1.0
    drive(observer, 1.0, start_s=8.5, gnss=False)
    assert not observer.position_valid
    assert observer.height_valid  # from the barometer


def test_outlier_is_rejected_and_a_lasting_jump_resets():
    observer = new()
    drive(observer, 10.0, amplitude=0.0)
    observer.correct_gnss(10.0, GnssFix(9.9, (50.0, 0.0, 0.0), (0.0, 0.0, 0.0), True))
    assert abs(observer.p[0]) < 0.2 and observer.resets == 0
    for i in range(80):
        t = 10.1 + 0.1 * i
        observer.predict(t, (0.0, 0.0, 9.80665), LEVEL)
        observer.correct_gnss(t, GnssFix(t, (50.0, 0.0, 0.0), (0.0, 0.0, 0.0), True))
    assert observer.p[0] == pytest.approx(50.0, abs=0.5) and observer.resets == 2  # position and velocity


def jump(observer, seconds: float, fix_p_W=(5.0, 0.0, 0.0), axis: int = 0) -> list[tuple[float, bool]]:
    """A still aircraft whose GNSS position is off, with a true velocity; one axis of the position and validity at each fix."""
    drive(observer, 10.0, amplitude=0.0)
    seen = []
    for i in range(round(seconds / STEP_S)):
        t = 10.0 + i * STEP_S
        observer.predict(t, (0.0, 0.0, 9.80665), LEVEL)
        if i % 25 == 0:
            observer.correct_gnss(t, GnssFix(t, fix_p_W, (0.0, 0.0, 0.0), True))
            observer.check(t)
            seen.append((observer.p[axis], observer.position_valid))
        if i % 5 == 0:
            observer.correct_baro(t, 0.0)
    return seen


def test_with_gates_apart_a_jump_leaves_the_velocity_and_the_position_alone_is_reset():
    observer = new()
    observer.gates_apart = True
    seen = jump(observer, 18.0)
    before, after = seen[: round(6.5 * 10)], seen[round(7.5 * 10) :]
    assert all(valid for _, valid in seen) and max(abs(x) for x, _ in before) < 0.2
    assert min(x for x, _ in after) == pytest.approx(5.0, abs=0.2) and observer.resets == 1


def test_with_gates_apart_a_height_that_jumps_leaves_the_place_and_is_taken_after_five_seconds():
    observer = new()
    observer.gates_apart = True
    seen = jump(observer, 12.0, (1.0, 0.0, 9.0), axis=2)
    moved = next(i for i, (z, _) in enumerate(seen) if z > 1.0)
    assert moved == pytest.approx(50, abs=2) and seen[moved][0] == pytest.approx(9.0, abs=0.1)
    assert all(z == pytest.approx(9.0, abs=0.3) for z, _ in seen[moved:])  # the barometer does not draw it back
    assert all(valid for _, valid in seen) and observer.resets == 1
    assert observer.p[0] == pytest.approx(1.0, abs=0.2)  # fused all the time


def test_with_gates_apart_the_height_stays_when_the_place_is_reset():
    observer = new()
    observer.gates_apart = True
    seen = jump(observer, 18.0, (5.0, 0.0, 1.0), axis=2)
    assert observer.resets == 1 and observer.p[0] == pytest.approx(5.0, abs=0.2)
    before, after = (seen[i][0] for i in (65, 75))  # the reset comes between the two
    assert after == pytest.approx(before, abs=0.1)


def test_a_receiver_that_reports_a_larger_error_than_the_parameter_has_a_wider_gate_and_is_followed_slowly():
    """As EKF2: with a reported 0.9 m a jump of 3 m is inside of five standard deviations; with 0.1 m the parameter's 0.5 m counts."""
    moved = []
    for h_acc_m in (0.1, 0.9):
        observer = new()
        drive(observer, 10.0, amplitude=0.0)
        for i in range(30):
            observer.predict(10.0 + 0.1 * i, (0.0, 0.0, 9.80665), LEVEL)
            fix = GnssFix(10.0 + 0.1 * i, (3.0, 0.0, 0.0), (0.0, 0.0, 0.0), True, h_acc_m)
            observer.correct_gnss(fix.stamp_s, fix)
        moved.append(observer.p[0])
    refused, followed = moved
    assert abs(refused) < 0.1 and 0.8 < followed < 2.5


def test_a_height_that_walks_is_followed_without_a_false_climb_rate():
    """10 m in 120 s by the receiver, the barometer stands: EKF2 lets the barometer's bias walk and follows to 0.2 m."""
    observer = new()
    drive(observer, 10.0, amplitude=0.0)
    for i in range(round(120.0 / STEP_S)):
        t = 10.0 + i * STEP_S
        observer.predict(t, (0.0, 0.0, 9.80665), LEVEL)
        if i % 25 == 0:
            observer.correct_gnss(t, GnssFix(t, (0.0, 0.0, (t - 10.0) / 12.0), (0.0, 0.0, 0.0), True, 0.8, 0.78))
        if i % 5 == 0:
            observer.correct_baro(t, 0.0)
    assert observer.p[2] == pytest.approx(10.0, abs=0.4) and abs(observer.v[2]) < 0.12


def test_gates_and_noises_that_are_set_later_are_used():
    parameters = load_parameters("f550")
    observer = Observer(parameters, STEP_S)
    drive(observer, 10.0, amplitude=0.0)
    parameters.set("EKF2_GPS_P_GATE", 20.0)
    observer.update_parameters()
    observer.correct_gnss(10.0, GnssFix(10.0, (6.0, 0.0, 0.0), (0.0, 0.0, 0.0), True, 0.5))
    assert observer.ratio_p < 1.0 and observer.p[0] > 0.1


@pytest.mark.parametrize("accuracy", [0.0, math.nan, math.inf, 1e-9, 500.0])
def test_an_accuracy_that_is_none_raises_nothing(accuracy):
    parameters = load_parameters("f550")
    for name in ("EKF2_GPS_P_NOISE", "EKF2_GPS_V_NOISE"):
        parameters.set(name, 0.0)
    observer = Observer(parameters, STEP_S)
    for i in range(3):
        fix = GnssFix(0.1 * i, (1.0, 0.0, 0.0), (0.0, 0.0, 0.0), True, accuracy, accuracy, accuracy)
        observer.correct_gnss(0.1 * i, fix)
    assert math.isfinite(observer.p[0])


def test_a_barometer_before_the_first_fix_does_not_draw_the_height():
    observer = new()
    for i in range(round(5.0 / STEP_S)):
        t = i * STEP_S
        observer.predict(t, (0.0, 0.0, 9.80665), LEVEL)
        if i % 5 == 0:
            observer.correct_baro(t, 0.0)
        if i % 25 == 0 and t > 1.0:
            observer.correct_gnss(t, GnssFix(t, (0.0, 0.0, 5.0), (0.0, 0.0, 0.0), True))
    assert observer.p[2] == pytest.approx(5.0, abs=0.01)


def test_the_bias_of_the_accelerometer_is_a_share_of_what_is_learnt():
    observer = new()
    drive(observer, 120.0, bias=0.1)
    assert observer.bias[0] == pytest.approx(-0.1, abs=0.01)
    assert observer.sensor_bias[0] == pytest.approx(observer.bias[0] / 2)


def test_the_gains_follow_the_parameters_and_the_accuracy_whichever_is_larger():
    level, up = axis_noises(load_parameters("f550"))
    assert level[:2] == pytest.approx((0.5, 0.3)) and up[:2] == pytest.approx((0.75, 0.45)) and up.tilt_rad_s == 0.0
    level, up = axis_noises(load_parameters("f550"), 2.0, 30.0, 0.1)
    assert level[:2] == pytest.approx((2.0, 0.3)) and up[:2] == pytest.approx((10.0, 0.45))


def test_the_velocity_heals_at_the_rate_of_ekf2s_noise():
    """The Riccati equation of a continuous filter of velocity and tilt: v' = a + n, n of density (σ_a² T), a of (g σ_ω)² T.

    Its gain of the velocity is √(q/r + 2 √(w/r)); positions are as good as unmeasured here.
    """
    noise = AxisNoise(1e3, 0.3, 0.35, 0.015, 0.0)
    q, w, r = 0.35**2 * 0.01, (9.80665 * 0.015) ** 2 * 0.01, 0.3**2 * 0.02
    assert Gains(noise, 0.02).vv / 0.02 == pytest.approx(math.sqrt(q / r + 2 * math.sqrt(w / r)), rel=0.05)


def test_with_joint_gates_the_same_jump_is_followed_two_seconds_after_the_position_was_lost():
    observer = new()
    seen = jump(observer, 18.0)
    lost = next(i for i, (_, valid) in enumerate(seen) if not valid)
    moved = next(i for i, (x, _) in enumerate(seen) if x > 1.0)
    valid_again = next(i for i, (_, valid) in enumerate(seen) if valid and i > lost)
    assert lost == pytest.approx(50, abs=2) and moved == pytest.approx(70, abs=2)  # fixes of 10 Hz
    assert valid_again - moved <= 1  # the fixes never stopped: EKF2 checks nothing again
    assert seen[moved][0] == pytest.approx(5.0, abs=0.5) and observer.resets == 2  # position and velocity


@pytest.mark.parametrize(("gap_s", "resets"), [(4.0, 0), (8.0, 2)])
def test_a_fix_far_away_after_a_gap_resets_at_once_when_the_gap_was_long(gap_s: float, resets: int):
    observer = new()
    drive(observer, 10.0, amplitude=0.0)
    end_s = 10.0 + gap_s
    observer.predict(end_s, (0.0, 0.0, 9.80665), LEVEL)
    observer.correct_gnss(end_s, GnssFix(end_s, (50.0, 0.0, 0.0), (0.0, 0.0, 0.0), True))
    assert observer.resets == resets


def follow_fast(observer, seconds: float, bias: float) -> float:
    """Motion capture: 100 Hz, 1 mm, 12 ms late, on a swaying craft; RMS of the position error after settling [m]."""
    rng = np.random.default_rng(3)
    w, errors = 0.8, []
    for i in range(round(seconds / STEP_S)):
        t = i * STEP_S
        observer.predict(t, (2 * w * w * math.cos(w * t) + bias, 0.0, 9.80665), LEVEL)
        if i % 2 == 0:
            s, n = t - 0.012, rng.normal(size=2)
            x, v = 2 * (1 - math.cos(w * s)) + 1e-3 * n[0], 2 * w * math.sin(w * s) + 0.02 * n[1]
            observer.correct_gnss(t, GnssFix(s, (x, 0.0, 0.0), (v, 0.0, 0.0), True))
        if i % 5 == 0:
            observer.correct_baro(t, 0.1 * rng.normal() + 0.5)
        observer.check(t)
        if t > seconds / 2:
            errors.append((observer.p[0] - 2 * (1 - math.cos(w * t)), observer.p[2]))
    return math.sqrt(float(np.mean(np.sum(np.square(errors), axis=1))))


def test_motion_capture_is_followed_to_millimetres_once_its_noise_is_set():
    parameters = load_parameters("f550")
    for name, value in (("EKF2_GPS_P_NOISE", 0.01), ("EKF2_GPS_V_NOISE", 0.02)):
        assert parameters.set(name, value)
    assert follow_fast(Observer(parameters, STEP_S), 30.0, bias=0.05) < 0.004
