"""Several bundles: learned extrinsics, their covariance, and their use while the filter's bundle is out of sight."""

import numpy as np
import pytest
from eskf_truth import HoverSimulation, observation, position_M, vector

from companion.core.frames import quat_conjugate, quat_exp, quat_from_rpy, quat_log, quat_multiply, rotation_matrix
from companion.estimation.estimator import EstimatorNode
from companion.estimation.marker_map import IMAGES_MIN, REJECTED_MAX, MarkerMap, relative_pose
from companion.estimation.observations import CheckedObservation, Pose

P_AB, Q_AB = np.array([1.2, -0.3, 0.1]), quat_from_rpy(0.1, -0.2, 0.4)
STD = np.array([0.01, 0.012, 0.02, 0.01, 0.015, 0.008])


def pose_of_a(rng):
    return Pose(rng.normal(0, 0.3, 3) + [0, 0, 3], quat_from_rpy(3.1, *rng.normal(0, 0.1, 2)))


def pose_of_b(a):
    return Pose(a.p_CM + rotation_matrix(a.q_CM) @ P_AB, quat_multiply(a.q_CM, Q_AB))


def seen(pose, rng=None, error=None, std=STD, **more):
    e = std * rng.normal(size=6) if error is None else error
    return CheckedObservation(
        Pose(pose.p_CM + e[:3], quat_multiply(pose.q_CM, quat_exp(e[3:]))), more.get("alternative"), np.diag(std**2)
    )


def learned(rng, images=300):
    marker_map = MarkerMap()
    for _ in range(images):
        a = pose_of_a(rng)
        marker_map.learn("b", seen(a, rng), seen(pose_of_b(a), rng))
    return marker_map


def difference(observation, pose):
    turned = quat_log(quat_multiply(quat_conjugate(pose.q_CM), observation.best.q_CM))
    return np.concatenate([observation.best.p_CM - pose.p_CM, turned])


@pytest.mark.parametrize("which", ["a", "b"])
def test_covariance_of_the_extrinsics_is_that_of_finite_differences(which):
    rng = np.random.default_rng(1)
    a = pose_of_a(rng)
    b, none = pose_of_b(a), np.zeros(6)
    columns = []
    for i in range(6):
        e = np.zeros(6)
        e[i] = 1e-6
        ends = []
        for sign in (1, -1):
            p, q, _ = relative_pose(
                seen(a, error=sign * e if which == "a" else none), seen(b, error=sign * e if which == "b" else none)
            )
            ends.append(np.concatenate([p - P_AB, quat_log(quat_multiply(quat_conjugate(Q_AB), q))]))
        columns.append((ends[0] - ends[1]) / 2e-6)
    J = np.array(columns).T
    exact = seen(b if which == "a" else a, error=none, std=1e-9 * np.ones(6))
    noisy = seen(a if which == "a" else b, error=none)
    covariance = relative_pose(*((noisy, exact) if which == "a" else (exact, noisy)))[2]
    np.testing.assert_allclose(covariance, J @ np.diag(STD**2) @ J.T, rtol=1e-5, atol=1e-11)


def test_a_substitute_observation_is_consistent_with_its_covariance():
    rng = np.random.default_rng(2)
    nees = []
    for _ in range(60):
        marker_map = learned(rng, images=40)
        a = pose_of_a(rng)
        substitute = marker_map.substitute({"b": seen(pose_of_b(a), rng)})
        e = difference(substitute, a)
        nees.append(e @ np.linalg.solve(substitute.covariance, e))
    # About six or less: consecutive images are assumed to share errors, so the covariance is conservative.
    assert 3.0 < np.mean(nees) < 6.8


def test_there_is_no_substitute_before_the_extrinsics_are_learned_or_while_ambiguous():
    rng = np.random.default_rng(3)
    a = pose_of_a(rng)
    b = seen(pose_of_b(a), rng)
    assert MarkerMap().substitute({"b": b}) is None
    assert learned(rng, images=IMAGES_MIN - 1).substitute({"b": b}) is None
    known = learned(rng, images=IMAGES_MIN)
    assert known.substitute({}) is None and known.substitute({"c": b}) is None
    flipped = Pose(b.best.p_CM, quat_multiply(b.best.q_CM, quat_exp((0.8, 0, 0))))
    assert known.substitute({"b": b._replace(alternative=flipped)}) is None


def test_an_outlier_is_not_learned_and_a_moved_bundle_is_learned_again():
    rng = np.random.default_rng(4)
    marker_map, a = learned(rng), pose_of_a(rng)
    true, moved = pose_of_b(a), Pose(pose_of_b(a).p_CM + [0.5, 0, 0], pose_of_b(a).q_CM)
    for _ in range(REJECTED_MAX):
        marker_map.learn("b", seen(a, rng), seen(moved, rng))
    assert np.linalg.norm(difference(marker_map.substitute({"b": seen(true, rng)}), a)[:3]) < 0.12
    for _ in range(IMAGES_MIN + 1):
        marker_map.learn("b", seen(a, rng), seen(moved, rng))
    assert np.linalg.norm(difference(marker_map.substitute({"b": seen(moved, rng)}), a)[:3]) < 0.12


class TwoBundles(HoverSimulation):
    """The hover in front of the pier, with a second bundle beside it."""

    def __init__(self, vehicle, seed):
        super().__init__(vehicle, seed)
        self.first_seen = self.second_seen = True
        self.edit = self.with_second

    def with_second(self, message):
        """Adds the second bundle to the observations, and removes the bundles that are out of sight."""
        for first in list(getattr(message, "observations", ())):
            a = Pose(np.array(first.best.p_CM), np.array(first.best.q_CM))
            b = pose_of_b(a)
            turned = quat_multiply(b.q_CM, quat_exp(0.006 * self.rng.normal(size=3)))
            second = observation(b.p_CM + 0.004 * self.rng.normal(size=3), turned, self.marker_std, bundle="beside")
            message.observations = [*([first] if self.first_seen else []), *([second] if self.second_seen else [])]
        return message


def test_the_second_bundle_substitutes_for_the_first_while_that_is_out_of_sight(vehicle):
    flight, node = TwoBundles(vehicle, seed=5), EstimatorNode(vehicle, "pier")
    flight.run(node, 6.0)
    flight.first_seen = False
    blind, blind_node = TwoBundles(vehicle, seed=5), EstimatorNode(vehicle, "pier")
    blind.run(blind_node, 6.0)
    blind.first_seen = blind.second_seen = False
    state, alone = flight.run(node, 20.0), blind.run(blind_node, 20.0)
    assert state.bundle == "pier" and state.marker_age_s < 0.3 and alone.marker_age_s > 19
    error = np.linalg.norm(position_M(vector(state)) - position_M(flight.truth()))
    assert error < 0.05 and state.relative_std_m < 0.05
    assert error < 3 * state.relative_std_m
    assert alone.relative_std_m > 3 * state.relative_std_m
