"""The maps of several flights as one, and what contradicts it: flights each other, or the survey of the site file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.linalg import block_diag
from scipy.optimize import least_squares

from calibration.map.relative import Relative, difference, relative, relative_jacobian
from calibration.map.rotations import cross, exp, log
from calibration.results import DataError
from companion.core.arrays import Array
from companion.core.frames import quat_from_rpy, rotation_matrix
from companion.core.site import Site, Survey

# Mean squared normalised difference beyond which two places contradict each other: three standard deviations, as the covariance
# of a flight with errors that are not of its models may be too small.
CONTRADICTION = 9.0
POSE = 6


@dataclass(frozen=True)
class SiteMap:
    """Poses of n bundles in one frame: R (n, 3, 3), p (n, 3) [m]; covariance (6 n, 6 n): rotation (right) [rad²] and place [m²]
    of each, relative to the first bundle."""

    bundles: tuple[str, ...]
    R: Array
    p: Array
    covariance: Array

    def between(self, a: str, b: str) -> Relative:
        """Pose of the bundle b in the frame of a."""
        return relative(self.R, self.p, self.covariance, self.bundles.index(a), self.bundles.index(b))

    def of(self, names: Sequence[str]) -> "SiteMap":
        """A part of the map."""
        index = [self.bundles.index(name) for name in names]
        rows = np.concatenate([np.arange(POSE * i, POSE * (i + 1)) for i in index])
        return SiteMap(tuple(names), self.R[index], self.p[index], self.covariance[np.ix_(rows, rows)])

    def placed(self, R_S: Array, p_S: Array) -> "SiteMap":
        """Turned by R_S and moved by p_S: into a frame S."""
        T = np.eye(len(self.covariance))
        for i in range(len(self.bundles)):
            T[POSE * i + 3 : POSE * i + 6, POSE * i + 3 : POSE * i + 6] = R_S
        return SiteMap(self.bundles, R_S @ self.R, self.p @ R_S.T + p_S, T @ self.covariance @ T.T)


class FlightMap(NamedTuple):
    """The map of one flight with the name of its log."""

    log: str
    map: SiteMap


def combine(flights: Sequence[FlightMap]) -> SiteMap:
    """One map of all flights, in the frame of the first; bundles that are not connected to its first bundle are not in it.

    Raises `DataError` when flights contradict each other; it names them.
    """
    _check_flights(flights)
    if len(flights) == 1:
        return flights[0].map
    names = _connected(flights)
    start = _chained(flights, names)
    pairs = [
        (f.map, f.map.bundles[0], other) for f in flights for other in f.map.bundles[1:] if f.map.bundles[0] in names
    ]
    measured = [joint(f.map) for f in flights if f.map.bundles[0] in names]

    def moved(x: Array) -> SiteMap:
        step = x.reshape(-1, POSE)
        R, p = start.R.copy(), start.p.copy()
        R[1:], p[1:] = R[1:] @ exp(step[:, :3]), p[1:] + step[:, 3:]
        return SiteMap(names, R, p, start.covariance)

    def residuals(x: Array) -> Array:
        trial = moved(x)
        errors = iter([difference(f.between(a, b), trial.between(a, b)) for f, a, b in pairs])
        parts = [whitener @ np.concatenate([next(errors) for _ in range(count)]) for whitener, count in measured]
        return np.concatenate(parts)

    fit = least_squares(residuals, np.zeros(POSE * (len(names) - 1)), method="lm", x_scale="jac")
    found = moved(fit.x)
    covariance = np.zeros_like(start.covariance)
    covariance[POSE:, POSE:] = np.linalg.inv(fit.jac.T @ fit.jac)
    return SiteMap(names, found.R, found.p, covariance)


def joint(site: SiteMap) -> tuple[Array, int]:
    """Whitener of all poses relative to the first, and their number."""
    count = len(site.bundles) - 1
    J = np.concatenate([relative_jacobian(site.R, site.p, 0, b + 1) for b in range(count)])
    return np.linalg.inv(np.linalg.cholesky(J @ site.covariance @ J.T)), count


def _connected(flights: Sequence[FlightMap]) -> tuple[str, ...]:
    """The bundles that flights connect to the first of all."""
    names = list(flights[0].map.bundles)
    for _ in flights:
        for flight in flights:
            if set(flight.map.bundles) & set(names):
                names += [name for name in flight.map.bundles if name not in names]
    return tuple(names)


def _chained(flights: Sequence[FlightMap], names: tuple[str, ...]) -> SiteMap:
    """Poses of all bundles, each by the first flight that has it together with one that is known."""
    known: dict[str, tuple[Array, Array]] = {}
    first = flights[0].map
    for name, R, p in zip(first.bundles, first.R, first.p, strict=True):
        known[name] = R, p
    while len(known) < len(names):
        for _, site in flights:
            base = next((name for name in site.bundles if name in known), None)
            for name in site.bundles:
                if base is not None and name not in known:
                    pair, (R, p) = site.between(base, name), known[base]
                    known[name] = R @ pair.R_AB, p + R @ pair.p_AB
    R, p = (np.array([known[name][i] for name in names]) for i in range(2))
    return SiteMap(names, R, p, np.zeros((POSE * len(names), POSE * len(names))))


def _check_flights(flights: Sequence[FlightMap]) -> None:
    worst, sentence = CONTRADICTION, ""
    for one, other in combinations(flights, 2):
        common = [name for name in one.map.bundles if name in other.map.bundles]
        for a, b in combinations(common, 2):
            seen, also = one.map.between(a, b), other.map.between(a, b)
            misfit = _misfit(seen, also)
            if misfit > worst:
                worst = misfit
                sentence = f"{one.log} and {other.log} contradict each other: {_apart(a, b, seen, also)}"
    if sentence:
        raise DataError(f"{sentence}; a bundle was moved between the flights, or one of them does not see it well")


def check_survey(found: SiteMap, site: Site, file: str) -> None:
    """Raise `DataError` when a bundle does not stand where the site file's survey says; it names the bundle."""
    surveys = {b.name: b.survey for b in site.bundle if b.survey is not None and b.name in found.bundles}
    if sentences := misplaced(found, surveys):
        listed = " or ".join(f"'{name}'" for name in sentences)
        raise DataError(
            f"{listed} does not stand where {file} says: {next(iter(sentences.values()))}; nothing written: take its survey out of "
            "the file to survey it again"
        )


def misplaced(found: SiteMap, surveys: Mapping[str, Survey]) -> dict[str, str]:
    """The bundles that do not stand where their surveys say, each with a clause that says how far off; the surveys are of bundles of the map.

    Of three or more surveyed bundles, one is named that disagrees with more of the others than it agrees with; of two, both.
    """
    against: dict[str, list[str]] = {name: [] for name in surveys}
    sentences: dict[str, str] = {}
    for a, b in combinations(surveys, 2):
        seen, by_survey = found.between(a, b), between_surveys(surveys[a], surveys[b])
        if _misfit(seen, by_survey) > CONTRADICTION:
            against[a].append(b)
            against[b].append(a)
            for name in (a, b):
                sentences.setdefault(name, _apart(a, b, seen, by_survey))
    named = [name for name, names in against.items() if 2 * len(names) > len(surveys) - 1] or list(sentences)
    return {name: sentences[name] for name in named}


def check_frame(found: SiteMap, site: Site, file: str, left_out: Mapping[str, str]) -> None:
    """Raise `DataError` when surveys of other bundles stay in the file and none of the map gives it their frame.

    left_out: the reason by bundle.
    """
    surveyed = [bundle.name for bundle in site.bundle if bundle.survey is not None]
    if not surveyed or set(surveyed) & set(found.bundles):
        return
    own, others = (", ".join(f"'{name}'" for name in names) for names in (found.bundles, surveyed))
    reasons = "".join(f"; '{name}': {left_out[name]}" for name in surveyed if name in left_out)
    raise DataError(
        f"{file}: of the bundles of this map ({own}) none is surveyed, and the new "
        f"surveys would be in another frame than those of the file; nothing written: fly in sight of one that is ({others}), too, or take "
        f"all surveys out of the file{reasons}"
    )


def between_surveys(a: Survey, b: Survey) -> Relative:
    """The pose of b in the frame of a by two surveys, with the covariance that the filter assumes for it."""
    R_SA, R_SB = (rotation_matrix(quat_from_rpy(*survey.rpy_S_rad)) for survey in (a, b))
    p_AB = R_SA.T @ (np.array(b.p_S) - np.array(a.p_S))
    variance_m2 = a.std_m**2 + b.std_m**2 + float(p_AB @ p_AB) * a.std_rad**2
    covariance = np.diag(3 * [a.std_rad**2 + b.std_rad**2] + 3 * [variance_m2])
    return Relative(R_SA.T @ R_SB, p_AB, covariance)


def into_survey_frame(found: SiteMap, surveys: Mapping[str, Survey]) -> SiteMap:
    """The map in the frame S of surveys of some of its bundles, where it fits them best.

    Its covariance is then that of the poses in S, with the error that the surveys give the frame.
    """
    names = [name for name in found.bundles if name in surveys]
    index = [found.bundles.index(name) for name in names]
    R_S = np.array([rotation_matrix(quat_from_rpy(*surveys[name].rpy_S_rad)) for name in names])
    p_S = np.array([surveys[name].p_S for name in names])
    std_rad, std_m = (np.array([[getattr(surveys[name], key)] for name in names]) for key in ("std_rad", "std_m"))
    R_0 = R_S[0] @ found.R[index[0]].T
    p_0 = p_S[0] - R_0 @ found.p[index[0]]

    def frame(x: Array) -> tuple[Array, Array]:
        return R_0 @ exp(x[:3]), p_0 + x[3:]

    def residuals(x: Array) -> Array:
        R, p = frame(x)
        turned = log(np.swapaxes(R_S, 1, 2) @ R @ found.R[index]) / std_rad
        return np.concatenate([turned.ravel(), ((found.p[index] @ R.T + p - p_S) / std_m).ravel()])

    placed = found.placed(*frame(least_squares(residuals, np.zeros(POSE), method="lm").x))
    weights = np.hstack([std_rad, std_rad, std_rad, std_m, std_m, std_m]).ravel() ** -2
    return _with_frame_error(placed, index, weights)


def _with_frame_error(placed: SiteMap, index: Sequence[int], weights: Array) -> SiteMap:
    """The covariance in the frame to which the bundles of an index were fitted, with the weights (6 n,) of their poses.

    A motion x of the frame moves all poses by T x. The fit takes x = G (s - m) of the errors s of the surveys and m of the map, so
    that the poses are wrong by m + T G (s - m). Poses relative to each other have the same covariance as before.
    """
    T = np.concatenate(
        [np.block([[R.T, np.zeros((3, 3))], [-cross(p), np.eye(3)]]) for R, p in zip(placed.R, placed.p, strict=True)]
    )
    rows = np.concatenate([np.arange(POSE * i, POSE * (i + 1)) for i in index])
    normal = T[rows].T @ (weights[:, None] * T[rows])
    gain = np.zeros((POSE, len(T)))
    gain[:, rows] = np.linalg.solve(normal, T[rows].T * weights)
    by_map = np.eye(len(T)) - T @ gain
    covariance = by_map @ placed.covariance @ by_map.T + T @ np.linalg.inv(normal) @ T.T
    return replace(placed, covariance=covariance)


def with_surveyed(found: SiteMap, surveys: Mapping[str, Survey]) -> SiteMap:
    """A map in the frame S with the surveys of more bundles."""
    R = [rotation_matrix(quat_from_rpy(*survey.rpy_S_rad)) for survey in surveys.values()]
    variances = [np.repeat([survey.std_rad**2, survey.std_m**2], 3) for survey in surveys.values()]
    return SiteMap(
        (*found.bundles, *surveys),
        np.array([*found.R, *R]),
        np.array([*found.p, *(survey.p_S for survey in surveys.values())]),
        block_diag(found.covariance, *map(np.diag, variances)),
    )


def _misfit(found: Relative, other: Relative) -> float:
    d = difference(found, other)
    return float(d @ np.linalg.solve(found.covariance + other.covariance, d)) / len(d)


def _apart(a: str, b: str, found: Relative, other: Relative) -> str:
    d = difference(found, other)
    std = Relative(found.R_AB, found.p_AB, found.covariance + other.covariance)
    return (
        f"seen from '{a}', the places of '{b}' are {np.linalg.norm(d[3:]):.2f} m and {np.degrees(np.linalg.norm(d[:3])):.1f}° "
        f"apart (± {std.std_m:.2f} m, {np.degrees(std.std_rad):.1f}°)"
    )
