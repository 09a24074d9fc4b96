"""The mount of the camera on the aircraft and the delay of its images, from observations of a bundle that stays put.

One least-squares problem over the whole log. For an observation with stamp s, made at t = s - δ:

    R_CM = R_BCᵀ Qᵀ exp(e) R_WM
    p_CM = R_BCᵀ (Qᵀ exp(e) (p_WM - P + b) - p_BC)

Q and P are attitude and position as the flight controller has them at t, e(t) and b(t) their slow errors. Unknown are
R_BC, p_BC, the bundle's pose R_WM, p_WM, δ, a delay of P against Q, and the errors e and b as lines between knots, each
a random walk. Without the errors this is the robot-world hand-eye problem A X B = Z (Dornaika & Horaud, IEEE Trans.
Robotics and Automation 14, 1998). With them, slow errors of the flight controller's attitude and position do not enter
the mount: only motion faster than their drift does. δ is found together with the rest, as in Kalibr (Furgale, Rehder,
Siegwart, IROS 2013).

Noise and drift of Q and P are not known beforehand. Their four numbers are those of the largest marginal likelihood of
the linearised problem; the noise of the observations is the tracker's covariance.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.spatial.transform import Rotation

from calibration.mount.observations import MountLog, Observations
from companion.core.arrays import Array

KNOTS_S = 2.0  # apart
MAX_OBSERVATIONS, MAX_FOR_NOISE = 6000, 600  # used for the result, and to find how noisy the data are
ITERATIONS, STEP_DONE = 30, 1e-7
OUTLIER = 5.0  # times its deviation, beyond which an observation does not count; nearer it weighs less (Tukey)
BLOCK = 2  # intervals of knots: residuals do not depend on each other for longer
ROUNDS = 2  # of estimating noise and weights
LAG_STD_S = 0.1  # prior of the lag of P against Q
GAUGE_STD = 1.0  # [rad, m] of the errors at the beginning of the log; the bundle's pose takes their mean
POSE, TURN = slice(0, 3), slice(3, 6)  # of a residual: position [m], rotation [rad], as the tracker's covariance

# columns of the constants
R_BC, P_BC, R_WM, P_WM, DELTA, LAG = slice(0, 3), slice(3, 6), slice(6, 9), slice(9, 12), 12, 13
CONSTANTS = 14

Linearised = tuple[Array, Array, Array]  # residuals, Jacobian by the constants, Jacobian by the errors


@dataclass(frozen=True)
class Noise:
    """Of the flight controller: white and random walk of attitude [rad, rad/√s] and position [m, m/√s]."""

    attitude: float = 0.003
    attitude_walk: float = 0.001
    position: float = 0.01
    position_walk: float = 0.005


@dataclass(frozen=True)
class Mount:
    """The unknowns; delta_s: how late the stamps are (an image is older than its stamp); lag_s: of P against Q."""

    R_BC: Array
    p_BC: Array
    R_WM: Array
    p_WM: Array
    delta_s: float = 0.0
    lag_s: float = 0.0
    attitude_error: Array | None = None  # (knots, 3) [rad]
    position_error: Array | None = None  # (knots, 3) [m]


@dataclass(frozen=True)
class MountFit:
    """covariance (14, 14) of R_BC [rad, right-multiplied], p_BC [m], R_WM, p_WM, delta_s, lag_s; chi2: mean squared
    normalised residual, 1 when the noise is right; weights (n,): 0 for observations that do not fit."""

    mount: Mount
    covariance: Array
    noise: Noise
    chi2: float
    weights: Array
    residuals: Array  # (n, 6)
    t_s: Array

    @property
    def std(self) -> Array:
        std: Array = np.sqrt(np.maximum(np.diag(self.covariance), 0.0))
        return std


class Normal(NamedTuple):
    """Normal equations N x = -g of constants and knots; cost; -2 log of the other factors of the likelihood; chi2 (n,):
    mean squared residual of each observation, normalised; scores (knots - 1, k): contribution of each interval of knots
    to g."""

    N: Array
    g: Array
    cost: float
    log_det: float
    chi2: Array
    scores: Array


class MountProblem:
    """The least-squares problem of a log; with_position: False leaves p_CM and position out.

    Raises ValueError with with_position for a log without position.
    """

    def __init__(self, log: MountLog, with_position: bool, margin_s: float = 0.3) -> None:
        seen = log.observations
        inside = (seen.t_s > log.attitude.t_s[0] + margin_s) & (seen.t_s < log.attitude.t_s[-1] - margin_s)
        if with_position:
            if log.position is None:
                raise ValueError(f"{log.path}: no position")
            inside &= log.position.near(seen.t_s)
        self.seen = _thinned(seen.take(inside), MAX_OBSERVATIONS)
        self.with_position = with_position
        self._attitude_t, q = log.attitude.t_s, log.attitude.value
        signs = np.ones(len(q))
        signs[1:] = np.cumprod(np.where(np.sum(q[1:] * q[:-1], axis=1) < 0, -1.0, 1.0))
        self._q = q * signs[:, None]
        self._position = log.position if with_position else None
        first, last = self.seen.t_s[0], self.seen.t_s[-1]
        self.knots = max(2, int(np.ceil((last - first) / KNOTS_S)) + 1)
        self._knot_t = np.linspace(first, last, self.knots)

    # --- measurements -------------------------------------------------------------------------------------------

    def attitude(self, t_s: Array) -> Array:
        """Q (n, 3, 3) at times t_s: normalised linear interpolation of the samples."""
        q = np.column_stack([np.interp(t_s, self._attitude_t, c) for c in self._q.T])
        Q: Array = Rotation.from_quat(q[:, [1, 2, 3, 0]]).as_matrix()
        return Q

    def rates(self, t_s: Array, step_s: float = 0.02) -> Array:
        """Body rates [rad/s] (n, 3) by differences of the attitude, which is its derivative by δ."""
        before, after = self.attitude(t_s - step_s), self.attitude(t_s + step_s)
        omega: Array = Rotation.from_matrix(before.transpose(0, 2, 1) @ after).as_rotvec() / (2 * step_s)
        return omega

    def position(self, t_s: Array) -> Array:
        """P (n, 3) at times t_s, linearly interpolated; NaN without position."""
        if self._position is None:
            return np.full((len(t_s), 3), np.nan)
        return np.column_stack([np.interp(t_s, self._position.t_s, c) for c in self._position.value.T])

    def between(self, seen: Observations) -> tuple[NDArray[np.int64], Array]:
        """The knot before each observation (n,), and the share of the interval to the next that has passed, (n,)."""
        place = np.clip((seen.t_s - self._knot_t[0]) / (self._knot_t[1] - self._knot_t[0]), 0, self.knots - 1 - 1e-9)
        left = place.astype(int)
        return left, place - left

    def error_at(self, seen: Observations, knots: Array | None) -> Array:
        """The error (n, 3) at each observation, from its values at the knots (knots, 3); None: no error."""
        if knots is None:
            return np.zeros((len(seen), 3))
        left, share = self.between(seen)
        error: Array = (1 - share)[:, None] * knots[left] + share[:, None] * knots[left + 1]
        return error

    # --- the linearised problem -----------------------------------------------------------------------------------

    def linearise(self, m: Mount, seen: Observations) -> Linearised:
        """Residuals (n, 6), Jacobian by the constants (n, 6, 14), and by attitude and position error (n, 6, 6)."""
        n = len(seen)
        t_s = seen.t_s - m.delta_s
        Qt = self.attitude(t_s).transpose(0, 2, 1)
        e = self.error_at(seen, m.attitude_error)
        E = Rotation.from_rotvec(e).as_matrix()
        QtE, Ct = Qt @ E, m.R_BC.T
        A = Ct @ QtE @ m.R_WM
        omega = self.rates(t_s)
        r, J, by_error = np.zeros((n, 6)), np.zeros((n, 6, CONSTANTS)), np.zeros((n, 6, 6))
        At = A.transpose(0, 2, 1)
        r[:, TURN] = Rotation.from_matrix(seen.R_CM.transpose(0, 2, 1) @ A).as_rotvec()
        J[:, TURN, R_BC] = -At
        J[:, TURN, R_WM] = np.eye(3)
        J[:, TURN, DELTA] = (At @ (Ct @ omega[..., None]))[..., 0]
        by_error[:, TURN, :3] = (E @ m.R_WM).transpose(0, 2, 1)
        if self.with_position:
            P = self.position(t_s + m.lag_s)
            velocity = (self.position(t_s + m.lag_s + 0.05) - self.position(t_s + m.lag_s - 0.05)) / 0.1
            b = self.error_at(seen, m.position_error)
            reach = m.p_WM - P + b
            u = (QtE @ reach[..., None])[..., 0]
            p = (u - m.p_BC) @ m.R_BC
            moving = (QtE @ velocity[..., None])[..., 0]
            r[:, POSE] = p - seen.p_CM
            J[:, POSE, R_BC] = _skew(p)
            J[:, POSE, P_BC] = -Ct
            J[:, POSE, P_WM] = by_error[:, POSE, 3:] = Ct @ QtE
            J[:, POSE, DELTA] = (np.cross(omega, u) + moving) @ m.R_BC
            J[:, POSE, LAG] = -moving @ m.R_BC
            by_error[:, POSE, :3] = -(Ct @ Qt) @ _skew((E @ reach[..., None])[..., 0])
        return r, J, by_error

    def normal(
        self, m: Mount, noise: Noise, seen: Observations, weights: Array, parts: Linearised | None = None
    ) -> Normal:
        """The normal equations at m; parts: the linearised problem, if it was computed before."""
        r, J, by_error = self.linearise(m, seen) if parts is None else parts
        S = seen.covariance + by_error[..., :3] @ by_error[..., :3].transpose(0, 2, 1) * noise.attitude**2
        rows = slice(0, 6) if self.with_position else TURN
        if self.with_position:
            S = S + by_error[..., 3:] @ by_error[..., 3:].transpose(0, 2, 1) * noise.position**2
        S, r, J, by_error = S[:, rows, rows], r[:, rows], J[:, rows], by_error[:, rows]
        L = np.linalg.cholesky(S)
        both = np.linalg.solve(L, np.concatenate([r[..., None], J, by_error], axis=2))
        white = both[..., 0]
        chi2 = (white * white).sum(1)
        root = np.sqrt(weights)[:, None, None]
        kinds = 2 if self.with_position else 1
        left, share = self.between(seen)
        errors = both[..., 1 + CONSTANTS : 1 + CONSTANTS + 3 * kinds]
        near = [both[..., 1 : 1 + CONSTANTS], (1 - share)[:, None, None] * errors, share[:, None, None] * errors]
        rows_of = root * np.concatenate([*near, white[..., None]], axis=2)
        size = CONSTANTS + 3 * kinds * self.knots
        N, scores = np.zeros((size, size)), np.zeros((self.knots - 1, size))
        ends = np.searchsorted(left, np.arange(self.knots))
        for i, (begin, end) in enumerate(
            zip(ends[:-1], ends[1:], strict=True)
        ):  # an observation touches two knots only
            flat = rows_of[begin:end].reshape(-1, rows_of.shape[2])
            at = self._columns(i, kinds)
            product = flat.T @ flat
            N[np.ix_(at, at)] += product[:-1, :-1]
            scores[i, at] = product[:-1, -1]
        g = scores.sum(0)
        cost = float(weights @ chi2)
        N, g, cost, log_prior = self._with_priors(m, noise, N, g, cost, kinds)
        log_det = 2 * float(weights @ np.log(np.diagonal(L, axis1=1, axis2=2)).sum(1))
        return Normal(N, g, cost, log_det + log_prior, chi2 / S.shape[1], scores)

    def _columns(self, interval: int, kinds: int) -> NDArray[np.int64]:
        """The unknowns of the observations between two knots: constants, errors at the first knot, at the second."""
        knots = [CONSTANTS + 3 * (self.knots * kind + interval) + np.arange(3) for kind in range(kinds)]
        return np.concatenate([np.arange(CONSTANTS), *knots, *(k + 3 for k in knots)])

    def _with_priors(
        self, m: Mount, noise: Noise, N: Array, g: Array, cost: float, kinds: int
    ) -> tuple[Array, Array, float, float]:
        """Adds the random walks of the errors from knot to knot, and weak priors of what the data may not determine."""
        step = np.sqrt(self._knot_t[1] - self._knot_t[0])
        D = np.diff(np.eye(self.knots), axis=0)
        mean = np.ones((self.knots, self.knots)) / (self.knots * GAUGE_STD) ** 2
        log_prior = 0.0
        errors = ((noise.attitude_walk, m.attitude_error), (noise.position_walk, m.position_error))
        for kind, (walk, value) in enumerate(errors[:kinds]):
            value = np.zeros((self.knots, 3)) if value is None else value
            information = D.T @ D / (walk * step) ** 2 + mean
            at = CONSTANTS + 3 * self.knots * kind
            block = slice(at, at + 3 * self.knots)
            N[block, block] += np.kron(information, np.eye(3))
            g[block] += (information @ value).ravel()
            cost += float(np.sum(value * (information @ value)))
            log_prior += 3 * 2 * (self.knots - 1) * np.log(walk * step)
        if self.with_position:
            N[LAG, LAG] += 1 / LAG_STD_S**2
            g[LAG] += m.lag_s / LAG_STD_S**2
        else:  # they are not unknowns then
            unused = [*range(P_BC.start, P_BC.stop), *range(P_WM.start, P_WM.stop), LAG]
            N[unused, unused] += 1.0
        return N, g, cost, log_prior

    # --- the solution ---------------------------------------------------------------------------------------------

    def moved(self, m: Mount, x: Array) -> Mount:
        """The mount after a step x of constants and knots."""
        at = CONSTANTS + 3 * self.knots
        zero = np.zeros((self.knots, 3))
        e = (zero if m.attitude_error is None else m.attitude_error) + x[CONSTANTS:at].reshape(-1, 3)
        b = m.position_error
        if self.with_position:
            b = (zero if b is None else b) + x[at:].reshape(-1, 3)
        return Mount(
            _orthonormal(m.R_BC @ Rotation.from_rotvec(x[R_BC]).as_matrix()),
            m.p_BC + x[P_BC],
            _orthonormal(m.R_WM @ Rotation.from_rotvec(x[R_WM]).as_matrix()),
            m.p_WM + x[P_WM],
            m.delta_s + float(np.clip(x[DELTA], -0.05, 0.05)),
            m.lag_s + float(np.clip(x[LAG], -0.05, 0.05)),
            e,
            b,
        )

    def descend(self, m: Mount, noise: Noise, weights: Array) -> Mount:
        """Gauss-Newton; a step that does not lower the cost is halved, up to five times."""
        cost = np.inf
        for _ in range(ITERATIONS):
            equations = self.normal(m, noise, self.seen, weights)
            x = -_solve(equations.N, equations.g)
            if not equations.cost < cost:
                break
            cost = equations.cost
            for _ in range(5):
                trial = self.moved(m, x)
                if self.normal(trial, noise, self.seen, weights).cost < cost:
                    m = trial
                    break
                x = 0.5 * x
            else:
                break
            if np.abs(x[:CONSTANTS]).max() < STEP_DONE:
                break
        return m

    def likely_noise(self, m: Mount, start: Noise, weights: Array) -> Noise:
        """The noise of the largest marginal likelihood, the problem linearised at m."""
        index = np.unique(np.linspace(0, len(self.seen) - 1, MAX_FOR_NOISE).astype(int))
        seen, kept = self.seen.take(index), weights[index]
        parts = self.linearise(m, seen)
        names = ["attitude", "attitude_walk"] + (["position", "position_walk"] if self.with_position else [])

        def unlikely(logs: Array) -> float:
            noise = replace(start, **dict(zip(names, np.exp(np.clip(logs, -14, 1)), strict=True)))
            at = self.normal(m, noise, seen, kept, parts)
            sign, log_N = np.linalg.slogdet(at.N)
            return at.cost - float(at.g @ _solve(at.N, at.g)) + at.log_det + log_N if sign > 0 else 1e12

        x0 = np.log([getattr(start, name) for name in names])
        simplex = np.vstack([x0, x0 + 0.7 * np.eye(len(x0))])
        options = {"maxfev": 20 * len(x0), "xatol": 0.1, "fatol": 0.5, "initial_simplex": simplex}
        best = minimize(unlikely, x0, method="Nelder-Mead", options=options)
        return replace(start, **dict(zip(names, np.exp(np.clip(best.x, -14, 1)).tolist(), strict=True)))

    def solve(self, start: Mount, noise: Noise | None = None) -> MountFit:
        """The mount nearest to a start, with the estimated noise and robust weights."""
        noise = noise or Noise()
        weights = np.ones(len(self.seen))
        m = self.descend(start, noise, weights)
        for _ in range(ROUNDS):
            chi = np.sqrt(self.normal(m, noise, self.seen, weights).chi2)
            weights = np.maximum(0.0, 1.0 - (chi / (OUTLIER * max(1.0, float(np.median(chi))))) ** 2) ** 2
            noise = self.likely_noise(m, noise, weights)
            m = self.descend(m, noise, weights)
        equations = self.normal(m, noise, self.seen, weights)
        r = self.linearise(m, self.seen)[0]
        scale = max(1.0, float(np.average(equations.chi2, weights=weights)))
        return MountFit(m, scale * self._covariance(equations), noise, scale, weights, r, self.seen.t_s)

    def _covariance(self, equations: Normal) -> Array:
        """Of the constants (14, 14): that of the model, widened where residuals depend on each other within seconds.

        Σ_b i_b i_bᵀ, i_b the influence of a block of time on the constants, is the covariance that the residuals show;
        where it is larger than the model's, it is used.
        """
        inverse = _inverse(equations.N)[:CONSTANTS]
        sums = np.add.reduceat(equations.scores, np.arange(0, self.knots - 1, BLOCK), axis=0)
        real = np.sum((sums @ inverse.T) ** 2, axis=0)
        covariance = inverse[:, :CONSTANTS]
        wider = np.sqrt(np.maximum(1.0, real / np.maximum(np.diag(covariance), 1e-300)))
        return covariance * np.outer(wider, wider)


def _thinned(seen: Observations, most: int) -> Observations:
    return seen if len(seen) <= most else seen.take(np.linspace(0, len(seen) - 1, most).astype(int))


def _solve(N: Array, g: Array) -> Array:
    """N⁻¹ g, scaled; undetermined unknowns stay at zero."""
    scale = 1 / np.sqrt(np.maximum(np.diag(N), 1e-12))
    scaled = N * np.outer(scale, scale)
    try:
        return scale * np.linalg.solve(scaled + 1e-12 * np.eye(len(N)), scale * g)
    except np.linalg.LinAlgError:
        return scale * np.linalg.lstsq(scaled, scale * g, rcond=1e-12)[0]


def _inverse(N: Array) -> Array:
    scale = 1 / np.sqrt(np.maximum(np.diag(N), 1e-12))
    return np.linalg.inv(N * np.outer(scale, scale) + 1e-13 * np.eye(len(N))) * np.outer(scale, scale)


def _skew(v: Array) -> Array:
    """[v]× of vectors (n, 3), shape (n, 3, 3)."""
    x, y, z = v.T
    o = np.zeros_like(x)
    return np.stack([np.stack([o, -z, y], -1), np.stack([z, o, -x], -1), np.stack([-y, x, o], -1)], -2)


def _orthonormal(R: Array) -> Array:
    nearest: Array = Rotation.from_matrix(R).as_matrix()
    return nearest
