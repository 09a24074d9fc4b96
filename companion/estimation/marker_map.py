"""Several bundles: how the others stand to the one that is flown by, learned whenever both are in one image.

The filter has one bundle, A. Another one, B, does not move against it, so T_AB is six constants that no motion of the
aircraft enters: they are averaged outside the filter, which stays as small as with one bundle. When A is out of the
image and B is in it, what is seen of B says where A is, T_CA = T_CB T_AB⁻¹, and goes into the filter as a sighting of
A.

Errors as everywhere: of a position in the frame it is given in, of a rotation on its right side.
"""

from typing import NamedTuple

import numpy as np

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
from companion.estimation.observations import Pose, Sighting, unclear

GATE = quantile(0.999, 6)
ALIKE = 10.0  # images in a row err alike (calibration, light): so many of them count as one
LEARNED = 30  # images with both before B may stand for A: a second of them
WRONG = 10  # rejected ones in a row after which the relation is learned anew: a bundle was moved


class Relation(NamedTuple):
    """T_AB as known so far."""

    p_AB: np.ndarray
    q_AB: np.ndarray
    covariance: np.ndarray  # (6, 6): position in A, rotation on the right
    images: int
    rejected: int = 0  # in a row


def between(a: Sighting, b: Sighting) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(p_AB, q_AB, covariance (6, 6)) of two sightings in one image."""
    back = rotation_matrix(a.best.q_CM).T
    p_AB = back @ (b.best.p_CM - a.best.p_CM)
    q_AB = quat_multiply(quat_conjugate(a.best.q_CM), b.best.q_CM)
    by_a, by_b = np.zeros((6, 6)), np.zeros((6, 6))
    by_a[:3, :3], by_a[:3, 3:], by_a[3:, 3:] = -back, skew(p_AB), -rotation_matrix(q_AB).T
    by_b[:3, :3], by_b[3:, 3:] = back, np.eye(3)
    return p_AB, q_AB, by_a @ a.covariance @ by_a.T + by_b @ b.covariance @ by_b.T


class Relations:
    """What is known of the other bundles, relative to the one that the filter holds."""

    def __init__(self) -> None:
        self._known: dict[str, Relation] = {}

    def learn(self, name: str, a: Sighting, b: Sighting) -> None:
        """Both in one image; a: the filter's bundle, b: the one called `name`."""
        if unclear(a) or unclear(b):
            return  # a flipped one would be remembered
        p_AB, q_AB, noise = between(a, b)
        noise = ALIKE * noise
        known = self._known.get(name)
        if known is None or known.rejected >= WRONG:
            self._known[name] = Relation(p_AB, q_AB, noise, 1)
            return
        nu = np.concatenate([p_AB - known.p_AB, quat_log(quat_multiply(quat_conjugate(known.q_AB), q_AB))])
        gain = np.linalg.solve(known.covariance + noise, known.covariance).T
        if not nu @ np.linalg.solve(known.covariance + noise, nu) <= GATE:
            self._known[name] = known._replace(rejected=known.rejected + 1)
            return
        step = gain @ nu
        covariance = known.covariance - gain @ known.covariance
        self._known[name] = Relation(
            known.p_AB + step[:3],
            quat_normalized(quat_multiply(known.q_AB, quat_exp(step[3:]))),
            (covariance + covariance.T) / 2,
            known.images + 1,
        )

    def stand_in(self, sightings: dict[str, Sighting]) -> Sighting | None:
        """What the bundles in sight say of the filter's own, which is not: the surest of them; None: nothing yet."""
        found = [
            self._seen_through(self._known[name], b)
            for name, b in sightings.items()
            if name in self._known and self._known[name].images >= LEARNED and not unclear(b)
        ]
        return min(found, key=lambda sighting: np.trace(sighting.covariance[:3, :3]), default=None)

    @staticmethod
    def _seen_through(known: Relation, b: Sighting) -> Sighting:
        q_CA = quat_multiply(b.best.q_CM, quat_conjugate(known.q_AB))
        R_CA, R_AB = rotation_matrix(q_CA), rotation_matrix(known.q_AB)
        p_CA = b.best.p_CM - R_CA @ known.p_AB
        by_b, by_relation = np.zeros((6, 6)), np.zeros((6, 6))
        lever = R_CA @ skew(known.p_AB) @ R_AB
        by_b[:3, :3], by_b[:3, 3:], by_b[3:, 3:] = np.eye(3), lever, R_AB
        by_relation[:3, :3], by_relation[:3, 3:], by_relation[3:, 3:] = -R_CA, -lever, -R_AB
        covariance = by_b @ b.covariance @ by_b.T + by_relation @ known.covariance @ by_relation.T
        return Sighting(Pose(p_CA, q_CA), None, (covariance + covariance.T) / 2)
