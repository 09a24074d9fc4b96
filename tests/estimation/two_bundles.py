"""A hover in front of two bundles, for tests of the estimator node."""

import numpy as np
from eskf_truth import HoverSimulation, observation

from companion.core.frames import quat_exp, quat_from_rpy, quat_multiply, rotation_matrix
from companion.estimation.observations import Pose

P_AB, Q_AB = np.array([1.2, -0.3, 0.1]), quat_from_rpy(0.1, -0.2, 0.4)


def pose_of_b(a):
    return Pose(a.p_CM + rotation_matrix(a.q_CM) @ P_AB, quat_multiply(a.q_CM, Q_AB))


class TwoBundles(HoverSimulation):
    """The hover in front of the pier, with a second bundle beside it."""

    def __init__(self, vehicle, seed):
        super().__init__(vehicle, seed)
        self.first_seen = self.second_seen = True
        self.second_turned_rad = 0.0  # error of the observed attitude of the second, about its upright axis
        self.edit = self.with_second

    def with_second(self, message):
        """Adds the second bundle to the observations, and removes the bundles that are out of sight."""
        for first in list(getattr(message, "observations", ())):
            a = Pose(np.array(first.best.p_CM), np.array(first.best.q_CM))
            b = pose_of_b(a)
            wrong = (0.0, self.second_turned_rad, 0.0) + 0.006 * self.rng.normal(size=3)
            turned = quat_multiply(b.q_CM, quat_exp(wrong))
            second = observation(b.p_CM + 0.004 * self.rng.normal(size=3), turned, self.marker_std, bundle="beside")
            message.observations = [*([first] if self.first_seen else []), *([second] if self.second_seen else [])]
        return message
