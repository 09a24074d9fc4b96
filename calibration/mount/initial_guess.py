"""Where to begin the search for a camera's mount: its turn and delay from rotations alone, whatever was believed.

Over any interval aircraft and camera turn by the same angle, about axes that the mount maps onto each other. The angles
give the delay (their correlation over time), then the axes the mount (Horn, J. Opt. Soc. Am. A 4, 1987; A X = X B).
"""

import numpy as np
from scipy.spatial.transform import Rotation

from calibration.mount.fit import Mount, MountProblem
from calibration.mount.observations import MountLog

BASE_S = 0.15  # over which a turn is taken for the delay: less is noise, more blurs the peak
DELAYS_S = np.arange(-0.3, 0.5, 0.005)
FLIP_OF_FASTEST, FLIP_RAD_S = 1.5, 0.2
PAIR_S = (0.5, 1.5, 4.0)  # over which turns are taken for the mount
MIN_TURN_RAD = 0.05
TWO_AXES = 0.001  # second over first singular value of the turns' axes: less is turning about a single one
MIN_PAIRS = 20


def delay(problem: MountProblem) -> tuple[float, float]:
    """(delay of the stamps [s], correlation of the two courses of angles there, -1 … 1)."""
    seen = problem.seen
    first, last = _pairs(seen.t_s, BASE_S)
    if len(first) < MIN_PAIRS:
        return 0.0, 0.0
    angle = _angles(seen.R_CM[first] @ seen.R_CM[last].transpose(0, 2, 1)) / (seen.t_s[last] - seen.t_s[first])
    fastest = np.quantile(np.linalg.norm(problem.rates(seen.t_s), axis=1), 0.99)
    real = angle < FLIP_OF_FASTEST * fastest + FLIP_RAD_S  # a pose that flips turns faster than any aircraft
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
    """Mounts to begin with: what the turns say, if they were about more than one axis, and what was believed."""
    turns = [_from_turns(problem, delta_s), Rotation.from_quat(np.roll(log.q_BC, -1)).as_matrix()]
    return [_complete(log, problem, R, delta_s) for R in turns if R is not None]


def _from_turns(problem: MountProblem, delta_s: float) -> np.ndarray | None:
    seen = problem.seen
    Q = problem.attitude(seen.t_s - delta_s)
    body, camera = [], []
    for base_s in PAIR_S:
        first, last = _pairs(seen.t_s, base_s)
        body.append(Rotation.from_matrix(Q[first].transpose(0, 2, 1) @ Q[last]).as_rotvec())
        camera.append(Rotation.from_matrix(seen.R_CM[first] @ seen.R_CM[last].transpose(0, 2, 1)).as_rotvec())
    body, camera = np.concatenate(body), np.concatenate(camera)
    lengths = np.linalg.norm(body, axis=1), np.linalg.norm(camera, axis=1)
    good = (np.minimum(*lengths) > MIN_TURN_RAD) & (np.abs(lengths[0] - lengths[1]) < 0.3 * lengths[0] + 0.01)
    if np.count_nonzero(good) < MIN_PAIRS:
        return None
    U, spread, Vt = np.linalg.svd(body[good].T @ camera[good])
    if spread[1] < TWO_AXES * spread[0]:
        return None
    return U @ np.diag([1.0, 1.0, np.linalg.det(U @ Vt)]) @ Vt


def _complete(log: MountLog, problem: MountProblem, R: np.ndarray, delta_s: float) -> Mount:
    """The bundle's pose that goes with a mount, as the mean over the log."""
    seen = problem.seen
    Q = problem.attitude(seen.t_s - delta_s)
    R_WM = Rotation.from_matrix(Q @ R @ seen.R_CM).mean().as_matrix()
    p_WM = np.zeros(3)
    if problem.with_position:
        P = problem.position(seen.t_s - delta_s)
        p_WM = np.median(P + (Q @ (seen.p_CM @ R.T + log.p_BC)[..., None])[..., 0], axis=0)
    return Mount(R, log.p_BC.copy(), R_WM, p_WM, delta_s)


def _pairs(t_s: np.ndarray, base_s: float) -> tuple[np.ndarray, np.ndarray]:
    """Indices of sightings about base_s apart."""
    last = np.searchsorted(t_s, t_s + base_s)
    first = np.flatnonzero(last < len(t_s))
    last = last[first]
    near = t_s[last] - t_s[first] < 1.5 * base_s
    return first[near], last[near]


def _angles(R: np.ndarray) -> np.ndarray:
    return Rotation.from_matrix(R).magnitude()


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a - a.mean(), b - b.mean()
    return float(a @ b / max(np.linalg.norm(a) * np.linalg.norm(b), 1e-12))
