"""Statistics of a campaign: shares with their confidence intervals, and which field explains a figure.

Sensitivity: each field is compared with the figure by ranks. For a number the measure is the larger of two absolute
rank correlations (Spearman), of the field itself and of its distance from its median: an error may harm in one direction or in both.
For a name it is the correlation ratio η of the ranks, √(variance between the names / whole variance). The significance
comes from permutations of the figure: every measure is standardised by its mean and standard deviation over
the permutations, and a field's p is the share of permutations in which the largest standardised measure of *all* fields
reaches the field's own (maxT: P. Westfall, S. Young, "Resampling-Based Multiple Testing", 1993). So p holds for the whole list.

A flight without a field takes no part in the comparison of that field. Such flights are mostly crashed: any number in the place
of the field would tie all fields that they lack to the crashes. For the same reason the figure is ranked and permuted among the
flights that have the field, not among all: what the others have cannot have come together with the field. One random order of all flights
gives the permutation of every field, as the order of those flights that have it. Among these every order is equally likely, so
that each field is standardised over valid permutations of its own. Fields that the same flights lack keep their dependence
in the largest measure exactly, all others as far as their flights are the same.
"""

import math
from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from companion.core.arrays import Array

PERMUTATIONS = 2000
SEED = 1  # of the permutations: the same results give the same report
FEWEST = 8  # flights with the figure, below which nothing is said
ABSENT_MAX = 0.2  # share of the flights that may lack a field
Z_95 = 1.959964


class Share(NamedTuple):
    """Part of the flights, with the Wilson interval of 95 %."""

    hits: int
    of: int
    low: float
    high: float

    @property
    def share(self) -> float:
        return self.hits / self.of if self.of else math.nan


def wilson(count: int, of: int, z: float = Z_95) -> Share:
    """E. B. Wilson, "Probable inference, the law of succession, and statistical inference", 1927."""
    if of == 0:
        return Share(0, 0, 0.0, 1.0)
    p, z2 = count / of, z * z
    middle = (p + z2 / (2 * of)) / (1 + z2 / of)
    half = z / (1 + z2 / of) * math.sqrt(p * (1 - p) / of + z2 / (4 * of * of))
    low = 0.0 if count == 0 else max(0.0, middle - half)
    return Share(count, of, low, 1.0 if count == of else min(1.0, middle + half))


class Influence(NamedTuple):
    """How far a field explains a figure. measure: 0 to 1. p: of the whole list. how: in which direction."""

    field: str
    measure: float
    p: float
    how: str


def influences(fields: dict[str, list[Any]], figure: list[float | None]) -> list[Influence]:
    """All fields that vary, the strongest first; none when fewer than `FEWEST` flights have the figure, or all have the same.

    fields: a number or name of every flight, None where a flight has none. A field is left out that many flights lack, or that fewer than
    `FEWEST` flights have together with the figure, or whose flights all have the same figure.
    """
    have = np.array([value is not None and math.isfinite(value) for value in figure])
    target = np.array([value for value, ok in zip(figure, have, strict=True) if ok], dtype=float)
    if len(target) < FEWEST or np.ptp(target) == 0.0:
        return []
    rng = np.random.default_rng(SEED)
    orders = [rng.permutation(len(target)) for _ in range(PERMUTATIONS)]
    alike: dict[bytes, dict[str, list[Any]]] = defaultdict(dict)  # fields by the flights that have them
    for field, values in fields.items():
        chosen = [value for value, ok in zip(values, have, strict=True) if ok]
        given = [value for value in chosen if value is not None]
        if len(set(given)) > 1 and len(chosen) - len(given) <= ABSENT_MAX * len(chosen):
            alike[np.array([value is not None for value in chosen]).tobytes()][field] = given
    found: list[tuple[str, float, str]] = []
    measures: list[Array] = []
    for mask, some in alike.items():
        own = np.frombuffer(mask, dtype=bool)
        if own.sum() < FEWEST or np.ptp(target[own]) == 0.0:
            continue
        ranks = np.zeros(len(own))
        ranks[own] = _standardised(rankdata(target[own]))
        shuffled = np.array([ranks[order[own[order]]] for order in orders])
        for field, given in some.items():
            compared = _compared(given, ranks[own], shuffled)
            found.append((field, *compared[:2]))
            measures.append(compared[2])
    if not found:
        return []
    matrix = np.array(measures)  # fields x permutations
    mean, std = matrix.mean(axis=1), np.maximum(matrix.std(axis=1), 1e-12)
    largest = ((matrix - mean[:, None]) / std[:, None]).max(axis=0)
    result = []
    for (field, measure, how), m, s in zip(found, mean, std, strict=True):
        reached = int(np.sum(largest >= (measure - m) / s))
        result.append(Influence(field, measure, (1 + reached) / (1 + PERMUTATIONS), how))
    return sorted(result, key=lambda influence: (influence.p, -influence.measure))


def _compared(values: list[Any], ranks: Array, shuffled: Array) -> tuple[float, str, Array]:
    """(measure, direction, the measure in each permutation)."""
    if _are_numbers(values):
        numbers = np.array(values, dtype=float)
        along = _standardised(rankdata(numbers))
        apart = _standardised(rankdata(np.abs(numbers - np.median(numbers))))
        r, r_apart = float(along @ ranks), float(apart @ ranks)
        measures = np.maximum(np.abs(shuffled @ along), np.abs(shuffled @ apart))
        if abs(r_apart) > abs(r):
            return abs(r_apart), "far from its median" if r_apart > 0 else "near its median", measures
        return abs(r), "high" if r > 0 else "low", measures
    names = [str(value) for value in values]
    groups = [np.array([name == one for name in names]) for one in sorted(set(names))]
    ratio = _correlation_ratio(groups, ranks[None, :])
    highest = max(groups, key=lambda group: float(ranks[group].mean()))
    return float(ratio[0]), names[int(np.argmax(highest))], _correlation_ratio(groups, shuffled)


def _are_numbers(values: list[Any]) -> bool:
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def _correlation_ratio(groups: list[Array], ranks: Array) -> Array:
    """η of each row; the ranks have mean 0 and length 1."""
    between = np.zeros(len(ranks))
    for group in groups:
        between += group.sum() * ranks[:, group].mean(axis=1) ** 2
    found: Array = np.sqrt(between)
    return found


def _standardised(ranks: Array) -> Array:
    """Mean 0, length 1; zeros where all are equal."""
    centred: Array = ranks - ranks.mean()
    length = float(np.linalg.norm(centred))
    return np.asarray(centred / length) if length > 0.0 else centred


def quantiles(values: list[float], shares: tuple[float, ...] = (0.05, 0.5, 0.95)) -> list[float]:
    """Quantiles of values, at least one."""
    return [float(q) for q in np.quantile(values, shares)]
