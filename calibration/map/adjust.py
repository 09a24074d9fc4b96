"""Bundle adjustment of one flight: the bundles relative to each other, from corners and the aircraft's motion.

Levenberg-Marquardt on the factors of `corners` and `motion`. Noise is not known beforehand: each kind is scaled so that its residuals have the
variance that they should (variance component estimation, Koch & Kusche, J. Geodesy 76, 2002, with random probes for the traces).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from calibration.map.combine import SiteMap, misplaced
from calibration.map.corners import (
    CORNERS,
    EARLIER,
    EARLIER_IMAGES,
    CornerNoise,
    Lens,
    Prints,
    Seen,
    Whitening,
    corner_factor,
    predict,
    whitening,
)
from calibration.map.exposures import Carried, carried
from calibration.map.motion import (
    FlightNoise,
    constant_factors,
    jitter_factor,
    plumb_factors,
    rotation_factor,
    slow_factors,
    translation_factor,
)
from calibration.map.normal_equations import Factor, Mask, NormalEquations, Solver, gradient
from calibration.map.pictures import (
    MISFIT_MAX_PX,
    NOISE_MIN_PX,
    WIDTH_PX,
    Fitted,
    Fitting,
    Photographs,
    Placed,
    cameras,
    fitted,
    fitting,
    own_root,
    payload_prior,
    picture_factors,
)
from calibration.map.preintegration import InertialSamples, preintegrate
from calibration.map.rotations import exp
from calibration.map.surveyed import survey_factors
from calibration.map.unknowns import ACCEL_BIAS, GYRO_BIAS, PER_IMAGE, POSE, SWAY, Unknowns
from calibration.results import DataError
from companion.core.arrays import Array
from companion.core.site import Plumb, Survey

ITERATIONS, CONVERGED, NEARLY = 30, 1e-5, 1e-3  # of the cost, relative; the second: while the noise is not known yet
DAMPING, DAMPING_MAX = 1e-7, 1e6
ROUNDS = 8  # of outliers and noise; the first one is robust and takes the noise as given
CAUCHY = 2.0  # in the first round: standard deviations at which a marker's weight is half
OUTLIER = 4.0  # times the median size of the error of a marker's corners
PROBES = 4
PRIOR_FREEDOM = 10.0  # residuals that the noise of the vehicle file is worth
PICTURE_FREEDOM = (
    1.0  # likewise, of the noise of the centres in pictures, which no file states: it is too large at first
)
SLOW_PAIRS_S = (0.15, 6.0)  # apart, of which the lasting part of the corners' error is found
SLOW_TIME_S = (2.0, 30.0)
RATE_WINDOW_S = 0.02  # over which the angular rate at an image is averaged


@dataclass(frozen=True)
class FlightData:
    """What the adjustment of a flight takes; k images, of which some see no bundle. t_s (k,): their stamps.

    plumb: of each bundle, what a spirit level says; () where none was levelled. photographs: of a payload camera, whose poses are wanted. surveys: by
    bundle, those that count; a site map has none, as it is compared with them.
    """

    name: str
    bundles: tuple[str, ...]
    t_s: Array
    seen: Seen
    prints: Prints
    lens: Lens
    samples: InertialSamples
    start: Unknowns
    noise: FlightNoise
    plumb: tuple[Plumb | None, ...] = ()
    photographs: Photographs | None = None
    surveys: Mapping[str, Survey] = field(default_factory=dict)


class Outliers(NamedTuple):
    """Of one bundle: markers that were seen in the images used, and those that were left out."""

    seen: int
    left_out: int


class Jump(NamedTuple):
    """The interval between two images in which the inertial samples fit worst.

    size: standard deviations of its worst residual; t_s: its beginning; bundles: those in sight then.
    """

    size: float
    t_s: float
    bundles: tuple[str, ...]


@dataclass(frozen=True)
class Adjusted:
    """covariance (6 b, 6 b): of each bundle's rotation (right) and place in the flight's frame; corner_px: root mean square.

    t_s (k,): the times of the unknowns, which are those of the exposures and not of the stamps; solver: of the normal equations at the solution.
    photographs: where they were taken; None without. misplaced: bundles whose survey does not count, with a clause that says how far they are from it.
    picture_freedom: residuals of the centres in pictures that show their noise.
    """

    data: FlightData
    unknowns: Unknowns
    noise: FlightNoise
    covariance: Array
    outliers: dict[str, Outliers]
    jump: Jump
    corner_px: float
    delay_s: float
    t_s: Array
    solver: Solver
    photographs: Placed | None = None
    misplaced: Mapping[str, str] = field(default_factory=dict)
    picture_freedom: float = 0.0


class _Shifted(NamedTuple):
    """Measurements at the times of the images; shifted_s: how much later than the stamps these are."""

    shifted_s: float
    t_s: Array
    rate_B: Array


Groups = dict[str, list[Factor]]


def adjust(data: FlightData, rounds: int = ROUNDS) -> Adjusted:
    """The bundles of a flight; raises `DataError` when the observations do not determine them."""
    u, noise, seen, photographs = data.start, data.noise, data.seen, data.photographs
    first_p_W, first_R_WB = u.p_W[0], u.R_WB[0]
    shift = _shift(data, 0.0)
    wrong: dict[str, str] = {}
    try:
        for turn in range(rounds):
            is_last = turn == rounds - 1
            weigh = _robust(seen, noise) if turn == 0 else _fixed(whitening(seen, shift.t_s, noise.corner))
            # The surveys count in the last round, when the map without them says which bundle stands elsewhere.
            surveys = {name: s for name, s in data.surveys.items() if name not in wrong} if is_last and turn > 0 else {}
            problem = _Problem(data, seen, photographs, shift, noise, weigh, turn == 0, surveys, first_p_W, first_R_WB)
            u, groups, solver = problem.descend(u, NEARLY if turn > 0 and not is_last else CONVERGED)
            if is_last:
                break
            errors = predict(u, seen, data.prints, data.lens, shift.rate_B).residual
            if turn > 0:
                noise = noise.scaled(_scales(groups, solver, u.size))
            if data.photographs is not None:
                photographs, noise = _fitting(data, data.photographs, problem, u, noise)
            if turn == 0:
                seen, errors = _without_outliers(seen, errors)
                shift = _shift(data, shift.shifted_s + u.delay_s)
                u = replace(
                    u,
                    p_W=u.p_W + u.v_W * u.delay_s,
                    R_WB=u.R_WB @ exp(shift.rate_B * u.delay_s),
                    delay_s=0.0,
                )
            noise = replace(noise, corner=_corner_noise(seen, errors, shift.t_s, noise.corner))
            if turn == rounds - 2:
                wrong = _misplaced(data, u, solver)
    except (np.linalg.LinAlgError, ValueError):  # singular, or no longer finite
        raise DataError(f"{data.name}: the motion between the bundles is not determined by this log") from None
    errors = predict(u, seen, data.prints, data.lens, shift.rate_B).residual
    return Adjusted(
        data,
        u,
        noise,
        _bundle_covariance(solver, u),
        {name: _counted(data.seen, seen, b) for b, name in enumerate(data.bundles)},
        _jump(data, groups),
        float(np.sqrt(np.sum(errors**2) / (CORNERS * _count(seen)))),
        shift.shifted_s + u.delay_s,
        shift.t_s,
        solver,
        problem.placed(u),
        wrong,
        _freedom(groups["picture_px"], solver, u.size, np.random.default_rng(1)) if "picture_px" in groups else 0.0,
    )


def _fitting(
    data: FlightData, every: Photographs, problem: "_Problem", u: Unknowns, noise: FlightNoise
) -> tuple[Photographs, FlightNoise]:
    """Of all markers in the pictures those that fit; raises `DataError` when the pictures as a whole do not.

    The noise of the centres is that of those that count now, where they are others than before.
    """
    found = problem.fitting(u, every)
    if found.median_px > MISFIT_MAX_PX:
        raise DataError(
            f"{data.name}: the markers in the pictures do not fit this flight by {found.median_px:.0f} px of {WIDTH_PX:.0f}: they are pictures "
            "of another flight, or the camera file is not that of the camera"
        )
    same = not problem.is_robust and problem.counts(found.photographs.seen)
    px = noise.picture_px if same else found.rms_px
    return found.photographs, replace(noise, picture_px=max(px, NOISE_MIN_PX))


def _misplaced(data: FlightData, u: Unknowns, solver: Solver) -> dict[str, str]:
    """Bundles that do not stand where their surveys say, by the map without surveys."""
    surveys = {name: survey for name, survey in data.surveys.items() if name in data.bundles}
    return misplaced(SiteMap(data.bundles, u.R_WM, u.p_WM, _bundle_covariance(solver, u)), surveys)


class _Problem:
    """The factors of a flight for given noise and outliers."""

    def __init__(
        self,
        data: FlightData,
        seen: Seen,
        photographs: Photographs | None,
        shift: _Shifted,
        noise: FlightNoise,
        weigh: Callable[[Array], Whitening],
        robust: bool,
        surveys: Mapping[str, Survey],
        first_p_W: Array,
        first_R_WB: Array,
    ) -> None:
        self._data, self._seen, self._shift, self._noise, self._weigh = data, seen, shift, noise, weigh
        self._photographs, self.is_robust, self._surveys = photographs, robust, surveys
        self._first = first_p_W, first_R_WB
        self._carried: tuple[Carried, Array] | None = None

    def factors(self, u: Unknowns) -> Groups:
        """By the names of `FlightNoise`; "": priors, whose noise is not estimated."""
        data, noise, t_s = self._data, self._noise, self._shift.t_s
        predicted = predict(u, self._seen, data.prints, data.lens, self._shift.rate_B)
        groups: Groups = {
            "corner": [corner_factor(u, self._seen, predicted, self._weigh(predicted.residual))],
            "gyro": [rotation_factor(u, self._motion, noise)],
            "accel": [translation_factor(u, self._motion, noise)],
            "accel_bias": slow_factors(u, t_s, u.accel_bias, ACCEL_BIAS, noise.accel_bias),
            "sway": slow_factors(u, t_s, u.sway, SWAY, noise.sway),
            "jitter_s": [jitter_factor(u, noise)],
            "": [
                *slow_factors(u, t_s, u.gyro_bias, GYRO_BIAS, noise.gyro_bias),
                *constant_factors(u, noise, *self._first, self._shift.shifted_s),
                *plumb_factors(u, data.plumb),
                *survey_factors(u, data.bundles, self._surveys),
            ],
        }
        if self._photographs is not None and self._carried is not None:
            found = picture_factors(u, self._carried[0], self.fit_pictures(u))
            groups["picture_px"] = [found.centres]
            groups[""] += [found.own, payload_prior(u, self._photographs)]
        return groups

    def fit_pictures(self, u: Unknowns) -> Fitted:
        """The photographs with their own errors at their best."""
        assert self._photographs is not None and self._carried is not None
        return fitted(u, self._photographs, *self._carried, self._noise.picture_px, self.is_robust)

    def fitting(self, u: Unknowns, every: Photographs) -> Fitting:
        """Of all markers in the pictures those that fit a solution."""
        assert self._carried is not None
        return fitting(u, every, *self._carried, self.fit_pictures(u), self._noise.picture_px)

    def counts(self, seen: Mask) -> bool:
        """Whether these markers (n, m) in the pictures are those that count here."""
        return self._photographs is not None and bool(np.array_equal(self._photographs.seen, seen))

    def placed(self, u: Unknowns) -> Placed | None:
        """The photographs by a solution."""
        if self._photographs is None or self._carried is None:
            return None
        fit = self.fit_pictures(u)
        return Placed(
            self._photographs, u, self._carried[0], fit, cameras(u, self._photographs, *self._carried, fit.own)
        )

    def _carry(self, u: Unknowns) -> tuple[Carried, Array] | None:
        """From the images to the exposures, and the roots of the covariances of the photographs' own errors."""
        if self._photographs is None:
            return None
        at = carried(self._data.samples, self._shift.t_s, u, self._photographs.stamp_s)
        rate_B = _rates(self._data.samples, self._photographs.stamp_s)
        return at, own_root(u, self._photographs, at, rate_B, self._noise)

    def descend(self, u: Unknowns, converged: float) -> tuple[Unknowns, Groups, Solver]:
        """The smallest cost from a start, the factors and the factorised normal equations there."""
        self._motion = preintegrate(self._data.samples, self._shift.t_s, u.gyro_bias[:-1], u.accel_bias[:-1])
        self._carried = self._carry(u)
        groups, damping = self.factors(u), DAMPING
        cost = _cost(groups)
        for _ in range(ITERATIONS):
            normal = _normal(groups, u)
            while damping < DAMPING_MAX:
                moved = u.moved(normal.factorised(damping).solve(-normal.g))
                tried = self.factors(moved)
                if (lower := _cost(tried)) < cost:
                    break
                damping *= 10
            else:
                break
            gain, cost, u, groups, damping = cost - lower, lower, moved, tried, max(DAMPING, damping / 10)
            if gain < converged * cost:
                break
        return u, groups, _normal(groups, u).factorised()


def _cost(groups: Groups) -> float:
    total = sum(factor.cost for factors in groups.values() for factor in factors)
    return total if np.isfinite(total) else np.inf


def _normal(groups: Groups, u: Unknowns) -> NormalEquations:
    normal = NormalEquations(u.size, u.first_of_flight, PER_IMAGE * (EARLIER_IMAGES + 1) - 1)
    for factors in groups.values():
        for factor in factors:
            normal.add(factor)
    return normal


def _shift(data: FlightData, shifted_s: float) -> _Shifted:
    t_s = data.t_s + shifted_s
    return _Shifted(shifted_s, t_s, _rates(data.samples, t_s))


def _rates(samples: InertialSamples, t_s: Array) -> Array:
    """Angular rates (n, 3) around times, in B."""
    total = np.vstack([np.zeros(3), np.cumsum(np.diff(samples.t_s)[:, None] * samples.gyro_B[1:], axis=0)])

    def at(times_s: Array, values: Array, when_s: Array) -> Array:
        return np.column_stack([np.interp(when_s, times_s, column) for column in values.T])

    half = RATE_WINDOW_S / 2
    rate: Array = (at(samples.t_s, total, t_s + half) - at(samples.t_s, total, t_s - half)) / RATE_WINDOW_S
    return rate


def _robust(seen: Seen, noise: FlightNoise) -> Callable[[Array], Whitening]:
    """Every corner for itself, less where a marker does not fit."""
    std = np.hypot(noise.corner.white_px, noise.corner.slow_px)
    earlier = np.tile(np.arange(len(seen))[:, None], len(EARLIER))

    def weigh(residual: Array) -> Whitening:
        size2 = np.mean(residual**2, axis=2) / (CAUCHY * std) ** 2
        weight = np.zeros((*seen.seen.shape, len(EARLIER)))
        return Whitening(earlier, weight, np.where(seen.seen, std * np.sqrt(1 + size2), np.inf))

    return weigh


def _fixed(white: Whitening) -> Callable[[Array], Whitening]:
    return lambda _residual: white


def _without_outliers(seen: Seen, errors: Array) -> tuple[Seen, Array]:
    size = np.sqrt(np.mean(errors**2, axis=2))
    usual = float(np.median(size[seen.seen]))
    kept = seen.seen & (size < OUTLIER * usual)
    return replace(seen, seen=kept), np.where(kept[:, :, None], errors, 0.0)


def _count(seen: Seen) -> int:
    return max(1, int(np.count_nonzero(seen.seen)))


def _jump(data: FlightData, groups: Groups) -> Jump:
    size = np.max(
        [np.abs(factor.residual).max(axis=1) for name in ("gyro", "accel") for factor in groups[name]], axis=0
    )
    worst = int(np.argmax(size))
    near = np.abs(data.seen.image - worst - 0.5) < 1.0
    names = tuple(data.bundles[b] for b in np.unique(data.seen.bundle[near]))
    return Jump(float(size[worst]), float(data.t_s[worst]), names)


def _counted(before: Seen, after: Seen, bundle: int) -> Outliers:
    mine = before.bundle == bundle
    count = int(np.count_nonzero(before.seen[mine]))
    return Outliers(count, count - int(np.count_nonzero(after.seen[mine])))


def _corner_noise(seen: Seen, errors: Array, t_s: Array, assumed: CornerNoise) -> CornerNoise:
    """Of the residuals: their variance, and their covariance with those of the same corner some time before."""
    variance = float(np.sum(errors**2) / (CORNERS * _count(seen)))
    apart, products, counts = [], [], []
    for back in range(1, 16):
        for bundle in np.unique(seen.bundle):
            rows = np.flatnonzero(seen.bundle == bundle)
            first, second = rows[:-back], rows[back:]
            both = seen.seen[first] & seen.seen[second]
            apart.append(t_s[seen.image[second]] - t_s[seen.image[first]])
            products.append(np.sum(errors[first] * errors[second], axis=(1, 2)))
            counts.append(CORNERS * np.count_nonzero(both, axis=1))
    times, product, count = (np.concatenate(part) for part in (apart, products, counts))
    near = (times > SLOW_PAIRS_S[0]) & (times < SLOW_PAIRS_S[1]) & (count > 0)
    if np.count_nonzero(near) < 50:
        return assumed
    best = (np.inf, assumed)
    for time_s in np.geomspace(*SLOW_TIME_S, 12):
        shape = np.exp(-times[near] / time_s)
        slow = float(np.clip(product[near] @ shape / (count[near] @ shape**2), 0.02 * variance, 0.98 * variance))
        misfit = float(np.sum((product[near] - slow * count[near] * shape) ** 2 / count[near]))
        noise = CornerNoise(float(np.sqrt(variance - slow)), float(np.sqrt(slow)), float(time_s))
        best = min(best, (misfit, noise), key=lambda item: item[0])
    return best[1]


def _scales(groups: Groups, solver: Solver, size: int) -> dict[str, float]:
    """Factors on the standard deviations by which each group has the variance that it should."""
    rng = np.random.default_rng(1)
    found = {}
    for name, factors in groups.items():
        if name in ("", "corner"):
            continue
        freedom = _freedom(factors, solver, size, rng)
        squares = 2 * sum(factor.cost for factor in factors)
        prior = PICTURE_FREEDOM if name == "picture_px" else PRIOR_FREEDOM
        found[name] = float(np.sqrt((squares + prior) / (freedom + prior)))
    return found


def _freedom(factors: list[Factor], solver: Solver, size: int, rng: np.random.Generator) -> float:
    """Number of residuals less the unknowns that they determine."""
    signs = [[rng.choice([-1.0, 1.0], factor.residual.shape) for _ in range(PROBES)] for factor in factors]
    right = np.column_stack(
        [sum(gradient(f, size, s[i]) for f, s in zip(factors, signs, strict=True)) for i in range(PROBES)]
    )
    trace = float(np.mean(np.sum(right * solver.solve(right), axis=0)))
    count = sum(np.count_nonzero(factor.jacobian.any(axis=2)) - factor.eliminated for factor in factors)
    return max(0.0, float(count) - trace)


def _bundle_covariance(solver: Solver, u: Unknowns) -> Array:
    """Covariance (6 b, 6 b) of the poses of the bundles."""
    first = [u.first_of_bundle(b) - u.first_of_flight for b in range(u.bundles)]
    index = np.concatenate([np.arange(start, start + POSE) for start in first])
    found: Array = solver.covariance[np.ix_(index, index)]
    return found
