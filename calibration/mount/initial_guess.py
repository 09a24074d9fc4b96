"""Start values of a camera's mount: its rotation and delay from rotations alone, independent of the flown numbers.

Over any interval aircraft and camera turn by the same angle, about axes that the mount maps onto each other. The
correlation of the angles over time gives the delay, the axes give the mount (Horn, J. Opt. Soc. Am. A 4, 1987;
A X = X B).
"""

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from calibration.mount.fit import Mount, MountProblem
from calibration.mount.observations import MountLog
from companion.core.arrays import Array

BASE_S = 0.15  # interval of the rotations for the delay: a shorter one is noisy, a longer one blurs the peak
DELAYS_S = np.arange(-0.3, 0.5, 0.005)
FLIP_OF_FASTEST, FLIP_RAD_S = 1.5, 0.2  # of the fastest body rate, and beyond: faster is a flip
PAIR_S = (0.5, 1.5, 4.0)  # intervals of the rotations for the mount
MIN_TURN_RAD = 0.05
TWO_AXES = 0.001  # second over first singular value of the rotation axes: less is a rotation about one axis
MIN_PAIRS = 20


def delay(problem: MountProblem) -> tuple[float, float]:
    """(delay of the stamps [s], correlation of the angles of aircraft and camera at that delay, -1 … 1)."""
    seen = problem.seen
    first, last = _pairs(seen.t_s, BASE_S)
    if len(first) < MIN_PAIRS:
        return 0.0, 0.0
    angle = _angles(seen.R_CM[first] @ seen.R_CM[last].transpose(0, 2, 1)) / (seen.t_s[last] - seen.t_s[first])
    fastest = np.quantile(np.linalg.norm(problem.rates(seen.t_s), axis=1), 0.99)
    real = angle < FLIP_OF_FASTEST * fastest + FLIP_RAD_S  # a flipped pose turns faster than any aircraft
    if np.count_nonzero(real) < MIN_PAIRS:
        return 0.0, 0.0
    first, last, angle = first[real], last[real], angle[real]
    score = []
    for shift in DELAYS_S:
        turned = problem.attitude(seen.t_s[first] - shift).transpose(0, 2, 1) @ problem.attitude(seen.t_s[last] - shift)
        score.append(_correlation(angle, _angles(turned) / (seen.t_s[last] - seen.t_s[first])))
    best = int(np.argmax(score))
    return float(DELAYS_S[best]), float(score[best])


def starts(log: MountLog, problem: MountProblem, delta_s: float) -> list[Mount]:
    """Start values: the mount from the rotations, if they were about more than one axis, and the flown mount."""
    turns = [_from_turns(problem, delta_s), Rotation.from_quat(np.roll(log.q_BC, -1)).as_matrix()]
    return [_complete(log, problem, R, delta_s) for R in turns if R is not None]


def _from_turns(problem: MountProblem, delta_s: float) -> Array | None:
    seen = problem.seen
    Q = problem.attitude(seen.t_s - delta_s)
    body_turns, camera_turns = [], []
    for base_s in PAIR_S:
        first, last = _pairs(seen.t_s, base_s)
        body_turns.append(Rotation.from_matrix(Q[first].transpose(0, 2, 1) @ Q[last]).as_rotvec())
        camera_turns.append(Rotation.from_matrix(seen.R_CM[first] @ seen.R_CM[last].transpose(0, 2, 1)).as_rotvec())
    body, camera = np.concatenate(body_turns), np.concatenate(camera_turns)
    lengths = np.linalg.norm(body, axis=1), np.linalg.norm(camera, axis=1)
    good = (np.minimum(*lengths) > MIN_TURN_RAD) & (np.abs(lengths[0] - lengths[1]) < 0.3 * lengths[0] + 0.01)
    if np.count_nonzero(good) < MIN_PAIRS:
        return None
    U, spread, Vt = np.linalg.svd(body[good].T @ camera[good])
    if spread[1] < TWO_AXES * spread[0]:
        return None
    R: Array = U @ np.diag([1.0, 1.0, np.linalg.det(U @ Vt)]) @ Vt
    return R


def _complete(log: MountLog, problem: MountProblem, R: Array, delta_s: float) -> Mount:
    """The mount with the pose of the bundle that follows from it, over the log: the mean of its rotation, the median of its position."""
    seen = problem.seen
    Q = problem.attitude(seen.t_s - delta_s)
    R_WM = Rotation.from_matrix(Q @ R @ seen.R_CM).mean().as_matrix()
    p_WM = np.zeros(3)
    if problem.with_position:
        P = problem.position(seen.t_s - delta_s)
        p_WM = np.median(P + (Q @ (seen.p_CM @ R.T + log.p_BC)[..., None])[..., 0], axis=0)
    return Mount(R, log.p_BC.copy(), R_WM, p_WM, delta_s)


def _pairs(t_s: Array, base_s: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of observations about base_s apart."""
    last = np.searchsorted(t_s, t_s + base_s)
    first = np.flatnonzero(last < len(t_s))
    last = last[first]
    near = t_s[last] - t_s[first] < 1.5 * base_s
    return first[near], last[near]


def _angles(R: Array) -> Array:
    angles: Array = Rotation.from_matrix(R).magnitude()
    return angles


def _correlation(a: Array, b: Array) -> float:
    a, b = a - a.mean(), b - b.mean()
    return float(a @ b / max(float(np.linalg.norm(a)) * float(np.linalg.norm(b)), 1e-12))
