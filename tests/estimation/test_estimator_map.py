"""The estimator node with several bundles: guidance by the map, surveyed places, and a bundle that stands elsewhere."""

import numpy as np
import pytest
from eskf_truth import position_M, vector
from two_bundles import P_AB, Q_AB, TwoBundles

from companion.core.frames import quat_conjugate, quat_log, quat_multiply, rotation_matrix
from companion.estimation.estimator import EstimatorNode
from companion.estimation.survey import Surveyed

UPRIGHT = np.array([1.0, 0.0, 0.0, 0.0])


def survey(offset_m=0.0):
    """Both bundles in the frame of the first; the second may be off."""
    return {
        "pier": Surveyed(np.zeros(3), UPRIGHT, 0.005, 0.002),
        "beside": Surveyed(P_AB + (offset_m, 0.0, 0.0), Q_AB, 0.005, 0.002),
    }


def error_m(flight, state):
    return np.linalg.norm(position_M(vector(state)) - position_M(flight.truth()))


def test_the_second_bundle_guides_while_the_first_is_out_of_sight(vehicle):
    flight, node = TwoBundles(vehicle, seed=5), EstimatorNode(vehicle, "pier")
    flight.run(node, 6.0)
    flight.first_seen = False
    blind, blind_node = TwoBundles(vehicle, seed=5), EstimatorNode(vehicle, "pier")
    blind.run(blind_node, 6.0)
    blind.first_seen = blind.second_seen = False
    state, alone = flight.run(node, 20.0), blind.run(blind_node, 20.0)
    assert state.bundle == "pier" and state.marker_age_s < 0.3 and alone.marker_age_s > 19
    # Slow errors of both poses and the direction over the distance between the bundles remain.
    assert error_m(flight, state) < 0.05 and state.relative_std_m < 0.10
    assert error_m(flight, state) < 3 * state.relative_std_m
    assert alone.relative_std_m > 3 * state.relative_std_m


def test_the_map_has_the_pose_of_the_second_bundle_relative_to_the_first(vehicle):
    flight, node = TwoBundles(vehicle, seed=6), EstimatorNode(vehicle, "pier")
    state = flight.run(node, 12.0)
    (beside,) = state.bundles
    R_WA = rotation_matrix(state.q_WM)
    p_AB = R_WA.T @ (np.array(beside.p_WM) - state.p_WM)
    turned = quat_log(quat_multiply(quat_conjugate(Q_AB), quat_multiply(quat_conjugate(state.q_WM), beside.q_WM)))
    assert np.linalg.norm(p_AB - P_AB) < 0.03 and np.linalg.norm(turned) < 0.03
    assert beside.name == "beside" and beside.age_s < 0.3
    assert 0.0 < beside.relative_std_m < 0.1
    # The error of its attitude in the world: with that of the mission's bundle it covers the one between both.
    own = max(state.covariance_diag[18:21]) ** 0.5
    assert 0.5 * own < beside.attitude_std_rad < 2 * own
    assert np.linalg.norm(turned) < 3 * (own + beside.attitude_std_rad)


def test_a_survey_gives_the_place_of_a_bundle_that_was_never_seen(vehicle):
    flight, node = TwoBundles(vehicle, seed=7), EstimatorNode(vehicle, "pier", survey=survey())
    flight.first_seen = False
    state = flight.run(node, 6.0)
    assert state.bundle == "pier" and state.marker_age_s < 0.3
    assert error_m(flight, state) < 0.06 and state.relative_std_m < 0.08


@pytest.mark.parametrize("later", [True, False])  # both are seen from the first image on, or one after the other
def test_a_bundle_that_is_not_where_surveyed_is_named_and_not_averaged_in(vehicle, later):
    flight, node = TwoBundles(vehicle, seed=8), EstimatorNode(vehicle, "pier", survey=survey(offset_m=0.4))
    flight.second_seen = not later
    flight.run(node, 4.0)
    flight.second_seen = True
    state = flight.run(node, 8.0)
    assert any("beside contradicts" in message.note for message in flight.statuses)
    assert error_m(flight, state) < 0.04 and state.marker_age_s < 0.3


def turned_rad(flight, state):
    """Error of the second bundle's attitude relative to the first's, (3,)."""
    (beside,) = state.bundles
    return quat_log(quat_multiply(quat_conjugate(Q_AB), quat_multiply(quat_conjugate(state.q_WM), beside.q_WM)))


def test_a_surveyed_bundle_that_its_sights_turned_is_placed_by_the_survey_again(vehicle):
    flight, node = TwoBundles(vehicle, seed=9), EstimatorNode(vehicle, "pier", survey=survey())
    flight.run(node, 4.0)
    for _ in range(40):  # 11° in 8 s, as errors of the corners of one far marker may
        flight.second_turned_rad += 0.005
        flight.run(node, 0.2)
    flight.second_turned_rad = 0.0
    flight.statuses.clear()
    state = flight.run(node, 8.0)
    contradicted = ["beside contradicts" in message.note for message in flight.statuses]
    assert any(contradicted) and not contradicted[-1]
    (beside,) = state.bundles
    q_AB = quat_multiply(quat_conjugate(state.q_WM), beside.q_WM)
    assert np.linalg.norm(quat_log(quat_multiply(quat_conjugate(Q_AB), q_AB))) < 0.03
    assert error_m(flight, state) < 0.04
