"""The camera's mount is found from motion, within the stated deviation, and refused without enough motion."""

from dataclasses import replace

import numpy as np
import pytest
from mount_logs import CAMERA_S, FLOWN_S, P_BC, R_BC, fly, rotation_error_rad
from scipy.spatial.transform import Rotation

from calibration.mount.extrinsics import as_result, find_extrinsics
from calibration.mount.fit import CONSTANTS, DELTA, LAG, MountProblem, Noise
from calibration.mount.initial_guess import delay, starts
from calibration.mount.observations import TimeSeries, smoothed
from calibration.results import DataError


@pytest.mark.parametrize("with_position", [True, False])
def test_jacobians_are_those_of_finite_differences(with_position):
    log = fly(duration_s=8.0, noisy=0.0, drift_rad=0.0, position_std_m=0.0)
    problem = MountProblem(log, with_position)
    start = starts(replace(log, q_BC=_quaternion(R_BC), p_BC=P_BC), problem, CAMERA_S - FLOWN_S)[-1]
    zero = np.zeros((problem.knots, 3))
    m = replace(start, attitude_error=zero, position_error=zero)
    seen = problem.seen.take(slice(None, None, 20))
    r, J, by_error = problem.linearise(m, seen)
    assert np.abs(r).max() < 0.01
    left, way = problem.between(seen)
    width = CONSTANTS + 3 * problem.knots * (2 if with_position else 1)
    for i in range(width):
        if not with_position and i in (*range(3, 6), *range(9, 12), 13):
            continue  # no unknowns without a position
        x = (1e-3 if i in (12, 13) else 1e-5) * np.eye(width)[i]
        ahead, behind = (problem.linearise(problem.moved(m, s * x), seen)[0] for s in (1, -1))
        slope = (ahead - behind) / (2 * x.sum())
        expected = J[..., i] if i < CONSTANTS else None
        if expected is None:
            kind, place = divmod(i - CONSTANTS, 3 * problem.knots)
            knot, axis = divmod(place, 3)
            share = np.where(left == knot, 1 - way, np.where(left + 1 == knot, way, 0.0))
            expected = share[:, None] * by_error[..., 3 * kind + axis]
        rows = slice(0, 6) if with_position else slice(3, 6)
        assert np.allclose(expected[:, rows], slope[:, rows], atol=0.03 * max(1.0, np.abs(slope).max())), i


def test_the_normal_equations_are_the_slope_and_the_curvature_of_the_cost():
    log = fly(duration_s=8.0)
    problem, noise = MountProblem(log, with_position=True), Noise()
    weights = np.linspace(0.2, 1.0, len(problem.seen))
    zero = np.zeros((problem.knots, 3))
    start = starts(log, problem, CAMERA_S - FLOWN_S)[0]
    m = problem.descend(replace(start, attitude_error=zero, position_error=zero), noise, weights)
    at_rest = problem.normal(m, noise, problem.seen, weights)
    rng = np.random.default_rng(1)
    for _ in range(3):
        x = 1e-3 * rng.standard_normal(len(at_rest.N))
        x[DELTA] *= 0.1
        x[LAG] *= 0.1
        ahead, behind = (problem.normal(problem.moved(m, s * x), noise, problem.seen, weights).cost for s in (1, -1))
        assert ahead - 2 * at_rest.cost + behind == pytest.approx(2 * x @ at_rest.N @ x, rel=0.02)
        moved = problem.moved(m, x)
        slope = problem.normal(moved, noise, problem.seen, weights).g
        step = 1e-3 * x
        up, down = (problem.normal(problem.moved(moved, s * step), noise, problem.seen, weights).cost for s in (1, -1))
        assert (up - down) / 2 == pytest.approx(2 * slope @ step, rel=0.02)


def test_the_body_rates_take_the_jitter_out_of_the_attitude_and_leave_its_motion_and_drift():
    rng = np.random.default_rng(4)
    t_s = np.arange(0.0, 30.0, 0.02)
    true = Rotation.from_euler("ZYX", np.column_stack([0.3 * t_s, 0.1 * np.sin(5 * t_s), 0.1 * np.cos(9 * t_s)]))
    ahead = Rotation.from_euler(
        "ZYX", np.column_stack([0.3 * (t_s + 1e-4), 0.1 * np.sin(5 * t_s + 5e-4), 0.1 * np.cos(9 * t_s + 9e-4)])
    )
    rates = (true.inv() * ahead).as_rotvec() / 1e-4 + 0.002
    drift = Rotation.from_rotvec(np.outer(0.01 * np.sin(0.1 * t_s), [1.0, 0.5, 0.0]))
    seen = drift * true * Rotation.from_rotvec(0.0015 * rng.standard_normal((len(t_s), 3)))

    def left(value: np.ndarray) -> float:
        error = Rotation.from_quat(np.roll(value, -1, axis=1)) * (drift * true).inv()
        return float(np.sqrt(np.mean(error.as_rotvec()[20:-20] ** 2)))

    noisy = TimeSeries(t_s, np.roll(seen.as_quat(), 1, axis=1))
    assert left(noisy.value) == pytest.approx(0.0015, rel=0.1)
    assert left(smoothed(noisy, TimeSeries(t_s, rates)).value) < 0.0006
    assert smoothed(noisy, TimeSeries(t_s[:0], rates[:0])) is noisy
    rare = TimeSeries(t_s[::3], noisy.value[::3])
    assert smoothed(rare, TimeSeries(t_s[::3], rates[::3])) is rare


@pytest.mark.verify
def test_the_mount_is_found_from_any_flown_number():
    log = fly()
    for turn in ([0, 0, 0], [0, 0, 3.0]):
        flown = Rotation.from_rotvec(turn).as_quat()
        found = find_extrinsics(replace(log, q_BC=np.roll(flown, 1), p_BC=np.array([0.5, 0.5, 0.0])))
        assert np.degrees(np.linalg.norm(rotation_error_rad(found.fit.mount.R_BC))) < 0.15
        assert found.fit.mount.p_BC == pytest.approx(P_BC, abs=0.005)
        assert found.fit.mount.delta_s == pytest.approx(CAMERA_S - FLOWN_S, abs=0.002)


@pytest.mark.verify
def test_the_stated_deviations_are_those_of_many_flights():
    errors = []
    for seed in range(4):
        found = find_extrinsics(fly(seed))
        turn = rotation_error_rad(found.fit.mount.R_BC) / found.rotation_std_rad
        errors.append([*turn, *((found.fit.mount.p_BC - P_BC) / found.translation_std_m)])
    spread = np.sqrt(np.mean(np.square(errors), axis=0))
    assert (spread > 0.2).all() and (spread < 2.6).all(), spread


@pytest.mark.verify
def test_slow_errors_of_the_attitude_do_not_move_the_mount():
    calm = find_extrinsics(fly(2, drift_rad=0.0))
    drifting = find_extrinsics(fly(2, drift_rad=0.02))
    assert drifting.fit.noise.attitude_walk > 3 * calm.fit.noise.attitude_walk
    assert np.degrees(np.linalg.norm(rotation_error_rad(drifting.fit.mount.R_BC))) < 0.3
    assert drifting.rotation_std_rad.max() > 1.2 * calm.rotation_std_rad.max()


def test_a_still_hover_is_refused_with_what_to_fly():
    with pytest.raises(DataError) as caught:
        find_extrinsics(fly(lean_rad=0.0005, yaw_span_rad=0.1))
    text = str(caught.value)
    assert (
        text.startswith("flight.mcap: the camera's rotation does not follow the aircraft's")
        and "turn and lean more" in text
    )


def test_turning_alone_is_refused_with_the_lean_that_is_missing():
    with pytest.raises(DataError) as caught:
        find_extrinsics(replace(fly(lean_rad=0.0008), q_BC=_quaternion(R_BC)))
    text = str(caught.value)
    assert "the camera's rotation about the body's z ± " in text and "lean quickly to all sides" in text
    assert "\n" not in text


@pytest.mark.verify
def test_little_motion_gives_the_rotation_and_names_what_the_position_needs():
    found = find_extrinsics(fly(lean_rad=0.02, yaw_span_rad=0.3, drift_rad=0.001, position_std_m=0.005))
    assert np.degrees(np.linalg.norm(rotation_error_rad(found.fit.mount.R_BC))) < 1.5
    (warning,) = [w for w in found.warnings if "position is not determined" in w]
    assert "x ± " in warning and "y ± " in warning and "turn about the vertical above the bundle" in warning
    assert set(as_result(found)["values"]) == {"camera.q_BC"}


@pytest.mark.verify
def test_a_drifting_position_source_gives_no_position_and_a_warning():
    log = fly(3)
    rng = np.random.default_rng(1)
    drift = np.cumsum(0.02 * rng.standard_normal((len(log.position.t_s), 3)), axis=0)  # 14 cm in a second
    found = find_extrinsics(replace(log, position=TimeSeries(log.position.t_s, log.position.value + drift)))
    assert np.degrees(np.linalg.norm(rotation_error_rad(found.fit.mount.R_BC))) < 0.3
    off = np.abs(found.fit.mount.p_BC - P_BC)
    assert (off < 4 * found.translation_std_m).all()
    (warning,) = [w for w in found.warnings if "position is not determined" in w]
    assert "motion capture, RTK" in warning


def test_without_a_position_source_the_rotation_is_found_and_the_position_kept():
    found = find_extrinsics(fly(with_position=False))
    assert np.degrees(np.linalg.norm(rotation_error_rad(found.fit.mount.R_BC))) < 0.2
    assert set(as_result(found)["values"]) == {"camera.q_BC"}
    assert any("no position" in w for w in found.warnings)


@pytest.mark.verify
def test_flipped_observations_hardly_matter_and_many_give_a_warning():
    log = fly(4)
    seen = log.observations
    flip = np.arange(len(seen)) % 12 == 0
    R = seen.R_CM.copy()
    R[flip] = R[flip] @ Rotation.from_rotvec([0.5, 0.2, 0.0]).as_matrix()
    found = find_extrinsics(replace(log, observations=replace(seen, R_CM=R)))
    assert np.degrees(np.linalg.norm(rotation_error_rad(found.fit.mount.R_BC))) < 0.3
    assert any("of the observations do not fit" in w for w in found.warnings)


def test_the_delay_is_found_before_anything_else_is_known():
    for late_s in (-0.1, 0.0, 0.25):
        log = fly(5)
        stamps = log.observations.t_s + late_s - (CAMERA_S - FLOWN_S)
        problem = MountProblem(replace(log, observations=replace(log.observations, t_s=stamps)), False)
        found, correlation = delay(problem)
        assert found == pytest.approx(late_s, abs=0.015) and correlation > 0.6


def _quaternion(R: np.ndarray) -> np.ndarray:
    return np.roll(Rotation.from_matrix(R).as_quat(), 1)
