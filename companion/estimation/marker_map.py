"""Several bundles: the fixed pose of each other bundle relative to the filter's own, learned from common images.

The filter has one bundle, A. Another bundle B does not move relative to A, so T_AB is six constants that do not depend
on the aircraft's motion. They are averaged outside the filter, whose state keeps the size for one bundle. When an
image shows B but not A, the observation of B gives the pose of A, T_CA = T_CB T_AB⁻¹, and the filter uses it as an
observation of A.

Extrinsics that are rejected are learned again: prints of another size shift them with the range. `bundle_pairs` lets
only images through in which B stands where it stood, so a bundle that was moved in flight is not learned.

Errors follow the convention of the stack: a position error is in the frame of the position, a rotation error is on
the right side of the rotation.
"""

from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from companion.core.chi_square import quantile
from companion.core.frames import (
    quat_conjugate,
    quat_exp,
    quat_log,
    quat_multiply,
    quat_normalized,
    rotation_matrix,
    skew,
)
from companion.estimation.observations import CheckedObservation, Pose, is_ambiguous

GATE = quantile(0.999, 6)
CORRELATED_IMAGES = 10.0  # consecutive images share errors (calibration, light): this many count as one
IMAGES_MIN = 30  # common images before B may substitute for A: about one second
REJECTED_MAX = 10  # rejections in a row after which the extrinsics are learned again: see the module


class InterMarkerExtrinsics(NamedTuple):
    """The current estimate of T_AB."""

    p_AB: Array
    q_AB: Array
    covariance: Array  # (6, 6): position in A, rotation on the right
    images: int
    rejected: int = 0  # in a row


def relative_pose(a: CheckedObservation, b: CheckedObservation) -> tuple[Array, Array, Array]:
    """(p_AB, q_AB, covariance (6, 6)) from the observations of two bundles in one image."""
    back = rotation_matrix(a.best.q_CM).T
    p_AB = back @ (b.best.p_CM - a.best.p_CM)
    q_AB = quat_multiply(quat_conjugate(a.best.q_CM), b.best.q_CM)
    by_a, by_b = np.zeros((6, 6)), np.zeros((6, 6))
    by_a[:3, :3], by_a[:3, 3:], by_a[3:, 3:] = -back, skew(p_AB), -rotation_matrix(q_AB).T
    by_b[:3, :3], by_b[3:, 3:] = back, np.eye(3)
    return p_AB, q_AB, by_a @ a.covariance @ by_a.T + by_b @ b.covariance @ by_b.T


class MarkerMap:
    """The extrinsics of the other bundles relative to the filter's own."""

    def __init__(self) -> None:
        self._extrinsics: dict[str, InterMarkerExtrinsics] = {}

    def learn(self, name: str, a: CheckedObservation, b: CheckedObservation) -> None:
        """Use one image that shows both; a: the filter's bundle, b: the bundle `name`."""
        if is_ambiguous(a) or is_ambiguous(b):
            return  # a flipped pose would enter the map
        p_AB, q_AB, noise = relative_pose(a, b)
        noise = CORRELATED_IMAGES * noise
        known = self._extrinsics.get(name)
        if known is None or known.rejected >= REJECTED_MAX:
            self._extrinsics[name] = InterMarkerExtrinsics(p_AB, q_AB, noise, 1)
            return
        nu = np.concatenate([p_AB - known.p_AB, quat_log(quat_multiply(quat_conjugate(known.q_AB), q_AB))])
        gain = np.linalg.solve(known.covariance + noise, known.covariance).T
        if not nu @ np.linalg.solve(known.covariance + noise, nu) <= GATE:
            self._extrinsics[name] = known._replace(rejected=known.rejected + 1)
            return
        step = gain @ nu
        covariance = known.covariance - gain @ known.covariance
        self._extrinsics[name] = InterMarkerExtrinsics(
            known.p_AB + step[:3],
            quat_normalized(quat_multiply(known.q_AB, quat_exp(step[3:]))),
            (covariance + covariance.T) / 2,
            known.images + 1,
        )

    def substitute(self, observations: dict[str, CheckedObservation]) -> CheckedObservation | None:
        """An observation of the filter's bundle, computed from the visible other bundles.

        The one with the smallest position covariance; None before any visible bundle has reliable extrinsics.
        """
        found = [
            self._seen_through(self._extrinsics[name], b)
            for name, b in observations.items()
            if name in self._extrinsics and self._extrinsics[name].images >= IMAGES_MIN and not is_ambiguous(b)
        ]
        return min(found, key=lambda observation: float(np.trace(observation.covariance[:3, :3])), default=None)

    @staticmethod
    def _seen_through(known: InterMarkerExtrinsics, b: CheckedObservation) -> CheckedObservation:
        """The observation of A that follows from b: T_CA = T_CB T_AB⁻¹, with both covariances."""
        q_CA = quat_multiply(b.best.q_CM, quat_conjugate(known.q_AB))
        R_CA, R_AB = rotation_matrix(q_CA), rotation_matrix(known.q_AB)
        p_CA = b.best.p_CM - R_CA @ known.p_AB
        by_b, by_extrinsics = np.zeros((6, 6)), np.zeros((6, 6))
        lever = R_CA @ skew(known.p_AB) @ R_AB
        by_b[:3, :3], by_b[:3, 3:], by_b[3:, 3:] = np.eye(3), lever, R_AB
        by_extrinsics[:3, :3], by_extrinsics[:3, 3:], by_extrinsics[3:, 3:] = -R_CA, -lever, -R_AB
        covariance = by_b @ b.covariance @ by_b.T + by_extrinsics @ known.covariance @ by_extrinsics.T
        return CheckedObservation(Pose(p_CA, q_CA), None, (covariance + covariance.T) / 2)
