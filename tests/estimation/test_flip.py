"""A bundle that was placed by a flipped pose is placed again."""

import numpy as np
from eskf_truth import HoverSimulation, observation, position_M, vector

from companion.core.frames import quat_conjugate, quat_exp, quat_log, quat_multiply
from companion.core.site import Plumb
from companion.estimation.estimator import EstimatorNode, Rejection
from companion.estimation.layout import StateIndex

FLIP_RAD = 0.5
FLIPPED_S = 1.0  # the first images are clear and wrong


class FlippedStart(HoverSimulation):
    """Images with two poses; the first ones show only the wrong one, the others prefer the right one by `preference`."""

    def __init__(self, vehicle, seed, preference=1.0):
        super().__init__(vehicle, seed)
        self.edit, self.preference, self.begin_s = self.with_two_poses, preference, None

    def with_two_poses(self, message):
        for seen in list(getattr(message, "observations", ())):
            if self.begin_s is None:
                self.begin_s = message.stamp_s
            p, right = np.array(seen.best.p_CM), np.array(seen.best.q_CM)
            wrong = quat_multiply(right, quat_exp((0.0, FLIP_RAD, 0.0)))
            if message.stamp_s < self.begin_s + FLIPPED_S:
                changed = observation(p, wrong, self.marker_std)
            else:
                best, other = (right, wrong) if self.rng.random() < self.preference else (wrong, right)
                changed = observation(p, best, self.marker_std, alternative=other, ambiguous=True)
            message.observations = [changed]
        return message


def restarts(flight):
    return flight.statuses[-1].rejected[Rejection.MARKER_RESTART]


def relative(x):
    """q_BM."""
    return quat_multiply(quat_conjugate(x[StateIndex.ATTITUDE]), x[StateIndex.MARKER_ATTITUDE])


def test_a_bundle_placed_by_a_flip_is_placed_again(vehicle):
    flight, node = FlippedStart(vehicle, seed=3), EstimatorNode(vehicle, "pier")
    flight.run(node, FLIPPED_S)
    assert restarts(flight) == 0
    flight.run(node, 2.0)
    assert restarts(flight) >= 1
    flight.edit = None  # a clear image places it again, rightly
    state = flight.run(node, 3.0)
    turned = quat_log(quat_multiply(quat_conjugate(relative(flight.truth())), relative(vector(state))))
    assert np.linalg.norm(turned) < 0.1


def test_a_right_placement_stays_while_the_image_often_prefers_the_wrong_pose(vehicle):
    flight, node = FlippedStart(vehicle, seed=4, preference=0.5), EstimatorNode(vehicle, "pier")
    flight.begin_s = -10.0
    flight.edit = None  # placed by clear and right images
    flight.run(node, 2.0)
    flight.edit = flight.with_two_poses
    state = flight.run(node, 8.0)
    assert restarts(flight) == 0
    assert np.linalg.norm(position_M(vector(state)) - position_M(flight.truth())) < 0.1


def test_a_bundle_whose_images_all_show_another_rotation_is_placed_again(vehicle):
    """It was placed by a flip from below; from the front the two poses of an image are nearly one, and neither is expected."""
    flight, node = FlippedStart(vehicle, seed=5), EstimatorNode(vehicle, "pier")
    flight.run(node, FLIPPED_S)
    flight.edit = None
    state = flight.run(node, 3.0)
    assert restarts(flight) >= 1
    turned = quat_log(quat_multiply(quat_conjugate(relative(flight.truth())), relative(vector(state))))
    assert np.linalg.norm(turned) < 0.1


class TwoPosesFromBelow(HoverSimulation):
    """Every image has two poses, and explains the flip a little better."""

    def __init__(self, vehicle, seed):
        super().__init__(vehicle, seed)
        self.edit = self.with_two_poses

    def with_two_poses(self, message):
        for seen in list(getattr(message, "observations", ())):
            p, right = np.array(seen.best.p_CM), np.array(seen.best.q_CM)
            leaning = quat_multiply(right, quat_exp((FLIP_RAD, 0.0, 0.0)))
            message.observations = [observation(p, leaning, self.marker_std, alternative=right, ambiguous=True)]
        return message


def test_a_plumb_bundle_is_placed_rightly_by_images_with_two_poses(vehicle):
    flight = TwoPosesFromBelow(vehicle, seed=6)
    state = flight.run(EstimatorNode(vehicle, "pier", plumb={"pier": Plumb("y", 0.01)}), 1.0)
    turned = quat_log(quat_multiply(quat_conjugate(relative(flight.truth())), relative(vector(state))))
    assert state.bundle == "pier" and np.linalg.norm(turned) < 0.1
    without = TwoPosesFromBelow(vehicle, seed=6).run(EstimatorNode(vehicle, "pier"), 1.0)
    assert without.bundle == "", "nothing says which of the two it is"


HIGHER_M = 1.3  # than the aircraft: the bundle is seen from below


def seen_from_below(message):
    for seen in getattr(message, "observations", ()):
        seen.best.p_CM = tuple(np.array(seen.best.p_CM) - (0.0, HIGHER_M, 0.0))  # y of the camera points down
    return message


def test_a_bundle_that_leans_although_it_is_said_to_be_plumb_is_placed_all_the_same(vehicle):
    """Its flip is plumb, so each of its images is taken for the flip of a plumb one; not for long."""
    right = HoverSimulation(vehicle, seed=7).run(EstimatorNode(vehicle, "pier"), 1.0)
    sight = np.array(right.p_WM) - right.p_W
    leans = quat_exp((2 * np.arctan2(sight[2] + HIGHER_M, np.hypot(*sight[:2])), 0.0, 0.0))  # by twice the elevation
    flight, node = HoverSimulation(vehicle, seed=7), EstimatorNode(vehicle, "pier", plumb={"pier": Plumb("y", 0.01)})
    flight.edit, flight.marker_turn = seen_from_below, leans
    assert flight.run(node, 1.0).bundle == "" and flight.statuses[-1].rejected[Rejection.MARKER_AMBIGUOUS] > 20
    assert flight.run(node, 2.0).bundle == "pier" and flight.statuses[-1].rejected["plumb"] == 1
    assert flight.statuses[-1].note == "pier is not plumb as in the marker file, which is ignored"
