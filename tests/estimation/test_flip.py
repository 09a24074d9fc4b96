"""A bundle that was placed by a flipped pose is placed again."""

import numpy as np
import pytest
from eskf_truth import P_WM, HoverSimulation, observation, position_M, vector

from companion.core.frames import quat_conjugate, quat_exp, quat_log, quat_multiply, rotation_matrix
from companion.core.site import Plumb
from companion.estimation.estimator import EstimatorNode, Rejection
from companion.estimation.layout import StateIndex
from companion.estimation.observations import Pose
from companion.estimation.survey import Surveyed

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


UPRIGHT, P_FAR = np.array([1.0, 0.0, 0.0, 0.0]), np.array([12.0, 0.0, 0.0])  # in the frame of the pier
PIER, FAR = Surveyed(np.zeros(3), UPRIGHT, 0.005, 0.002), Surveyed(P_FAR, UPRIGHT, 0.005, 0.002)
SURVEYS = {"none": {}, "pier": {"pier": PIER}, "both": {"pier": PIER, "far": FAR}}


class FlippedBesideAnother(FlippedStart):
    """The pier is seen for `pier_s` as in `FlippedStart`; after that the other surveyed bundle alone, rightly, without noise."""

    pier_s = np.inf

    def with_two_poses(self, message):
        for seen in list(getattr(message, "observations", ())):
            if self.begin_s is not None and message.stamp_s > self.begin_s + self.pier_s:
                a = Pose(np.array(seen.best.p_CM), np.array(seen.best.q_CM))
                p_CM = a.p_CM + rotation_matrix(a.q_CM) @ P_FAR
                message.observations = [observation(p_CM, a.q_CM, self.marker_std, bundle="far")]
                return message
        return super().with_two_poses(message)


def error_m(flight, state):
    return np.linalg.norm(position_M(vector(state)) - position_M(flight.truth()))


@pytest.mark.parametrize("plumb", [{}, {"pier": Plumb("y", 0.01)}], ids=["", "plumb"])
@pytest.mark.parametrize("survey", list(SURVEYS))
@pytest.mark.parametrize(
    "flipped_s", [FLIPPED_S, 4.0]
)  # before and after enough images have agreed with the wrong place
def test_a_surveyed_bundle_placed_by_a_flip_is_placed_again(vehicle, survey, plumb, flipped_s):
    flight = FlippedStart(vehicle, seed=3)
    flight.begin_s = flight.t + flipped_s - FLIPPED_S
    node = EstimatorNode(vehicle, "pier", survey=SURVEYS[survey], plumb=plumb)
    flight.run(node, flipped_s)
    assert error_m(flight, flight.states[-1]) > 1.5
    flight.run(node, 2.0)
    flight.edit = None
    state = flight.run(node, 6.0)
    assert restarts(flight) >= 1 and flight.statuses[-1].note == ""
    assert error_m(flight, state) < 0.1 and error_m(flight, state) < 3 * state.relative_std_m


@pytest.mark.parametrize("own", ["pier", "far"])
def test_places_that_a_survey_derived_from_a_flip_go_with_it(vehicle, own):
    """The further bundle 12 m away is 6 m off with the flip, and seen only after it has ended."""
    flight, node = FlippedBesideAnother(vehicle, seed=3), EstimatorNode(vehicle, own, survey=SURVEYS["both"])
    flight.run(node, FLIPPED_S)
    place = {b.name: b.p_WM for b in flight.states[-1].bundles} | {own: flight.states[-1].p_WM}
    right_m = rotation_matrix(flight.truth()[StateIndex.MARKER_ATTITUDE]) @ P_FAR + P_WM
    assert np.linalg.norm(place["far"] - right_m) > 4.0
    flight.pier_s = 3.0
    flight.run(node, 1.0)
    assert restarts(flight) >= 1 and flight.states[-1].bundles == () and flight.states[-1].bundle == ""
    state = flight.run(node, 6.0)
    pose = {b.name: (b.p_WM, b.q_WM) for b in state.bundles} | {own: (state.p_WM, state.q_WM)}
    right_m = position_M(flight.truth())  # of the aircraft, in the frame of the pier
    for name, place_m in (("pier", np.zeros(3)), ("far", P_FAR)):
        p_WM, q_WM = pose[name]
        seen_m = rotation_matrix(q_WM).T @ (np.array(state.p_W) - p_WM)
        assert np.linalg.norm(seen_m - (right_m - place_m)) < 0.2, name
    assert flight.statuses[-1].note == ""


def test_a_bundle_that_the_survey_confirmed_and_that_moved_is_refused_for_good(vehicle):
    """The images of the far one have shown it where the survey has it from the pier: so it was the pier that moved."""
    flight, node = FlippedBesideAnother(vehicle, seed=3), EstimatorNode(vehicle, "pier", survey=SURVEYS["both"])
    flight.edit = None
    flight.run(node, 4.0)
    flight.edit, flight.begin_s, flight.pier_s = flight.with_two_poses, 0.0, 0.0
    flight.run(node, 4.0)
    flight.edit = moved
    state = flight.run(node, 6.0)
    assert restarts(flight) == 0 and "pier contradicts" in flight.statuses[-1].note
    assert np.linalg.norm(np.array(state.bundles[0].p_WM) - state.p_WM) == pytest.approx(12.0, abs=0.1)


def moved(message):
    for seen in getattr(message, "observations", ()):
        seen.best.q_CM = tuple(quat_multiply(seen.best.q_CM, quat_exp((0.0, FLIP_RAD, 0.0))))
    return message


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
