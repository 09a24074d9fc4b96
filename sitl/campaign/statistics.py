"""Statistics of a campaign: shares with their confidence intervals, and which field explains a figure.

Flights of one seed fly in the same world and share their draws: they are no independent flights. So a share over them has the
interval of fewer flights (`share_of`), and a drawn field is compared with one figure of each seed in each scenario.

Sensitivity: each field is compared with the figure by ranks. For a number the measure is the larger of two absolute
rank correlations (Spearman), of the field itself and of its distance from its median: an error may harm in one direction or in both.
For a name it is the correlation ratio η of the ranks, √(variance between the names / whole variance). The significance
comes from permutations of the figure: every measure is standardised by its mean and standard deviation over
the permutations, and a field's p is the share of permutations in which the largest standardised measure of *all* fields
reaches the field's own (maxT: P. Westfall, S. Young, "Resampling-Based Multiple Testing", 1993). So p holds for the whole list.

Of a drawn field the seeds are exchanged, by one order in all scenarios, because the draws of unkind sensors follow from the seed
alone. The figure of a seed in a scenario is the mean of its flights' ranks, each less the mean of its scenario, sensors and stack.
Scenario, sensors and stack are no draws: every seed is flown with each of them. There the flights of one seed are exchanged that differ in
this name alone. (A. Winkler et al., "Multi-level block permutation", NeuroImage 123, 2015, has both as whole-block and within-block.)

A flight without a field takes no part in the comparison of that field. Such flights are mostly crashed: any number in the place
of the field would tie all fields that they lack to the crashes. For the same reason the figure is ranked and permuted among the
flights that have the field, not among all: what the others have cannot have come together with the field. The order of the seeds
is followed until it leads to a seed that has such a flight. Among these every order is equally likely, so
that each field is standardised over valid permutations of its own. Fields that the same flights lack keep their dependence
in the largest measure exactly, all others as far as their flights are the same.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata
from scipy.stats import t as student_t

from companion.core.arrays import Array

PERMUTATIONS = 2000
AT_A_TIME = 2_000_000  # numbers of permuted figures in memory
SEED = 1  # of the permutations: the same results give the same report
FEWEST = 8  # flights with the figure, and of a drawn field seeds, below which nothing is said
ABSENT_MAX = 0.2  # share of the flights that may lack a field
TIE = 1e-9  # of measures: two that differ by less are equal, and differ by the rounding of their sums
Z_95 = 1.959964


class Share(NamedTuple):
    """Part of the flights, with the Wilson interval of 95 %. independent: flights without a common seed that are as certain."""

    hits: int
    of: int
    low: float
    high: float
    independent: float

    @property
    def share(self) -> float:
        return self.hits / self.of if self.of else math.nan


def wilson(count: int, of: int, z: float = Z_95, independent: float | None = None) -> Share:
    """E. B. Wilson, "Probable inference, the law of succession, and statistical inference", 1927. independent: None: all."""
    if of == 0:
        return Share(0, 0, 0.0, 1.0, 0.0)
    n = of if independent is None else independent
    p, z2 = count / of, z * z
    middle = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = z / (1 + z2 / n) * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    low = 0.0 if count == 0 else max(0.0, middle - half)
    return Share(count, of, low, 1.0 if count == of else min(1.0, middle + half), n)


def share_of(hits: Sequence[bool], seeds: Sequence[int]) -> Share:
    """Share of the flights that are hits, where flights of the same seed need not be independent.

    Wilson's interval with the effective number of flights: that of independent ones with the variance between the seeds,
    times the squared ratio of Student's quantiles for all flights and for the seeds, because few seeds tell little about
    their variance (E. Korn, B. Graubard, "Confidence intervals for proportions with small expected number of positive counts
    estimated from survey data", 1998). With no hit, or nothing else, there is no variance: one flight for each seed.
    """
    n, count = len(hits), sum(map(bool, hits))
    flown, hit = Counter(seeds), Counter(seed for seed, one in zip(seeds, hits, strict=True) if one)
    k = len(flown)
    if k == n:
        return wilson(count, n)
    if count in (0, n) or k == 1:
        return wilson(count, n, independent=k)
    p = count / n
    variance = k / (k - 1) * sum((hit[seed] - p * flights) ** 2 for seed, flights in flown.items()) / n**2
    effective = min(p * (1 - p) / variance, n) if variance > 0.0 else n
    few_seeds = student_t.ppf(0.975, n - 1) / student_t.ppf(0.975, k - 1)
    return wilson(count, n, independent=max(1.0, float(effective * few_seeds**2)))


class Influence(NamedTuple):
    """How far a field explains a figure. measure: 0 to 1. p: of the whole list. how: in which direction."""

    field: str
    measure: float
    p: float
    how: str


class Place(NamedTuple):
    """Where a flight stands in a campaign, in which every seed is flown with all of the others."""

    seed: int
    scenario: str = ""
    sensors: str = ""
    stack: str = ""


CROSSED = Place._fields[1:]  # fields that are no draws


def influences(
    fields: dict[str, list[Any]], figure: list[float | None], places: Sequence[Place] | None = None
) -> list[Influence]:
    """All fields that vary, the strongest first; none when fewer than `FEWEST` flights have the figure, or all have the same.

    fields: a number or name of every flight, None where a flight has none. A field is left out that many flights lack, or that fewer than
    `FEWEST` flights or seeds have together with the figure, or whose flights all have the same figure. places: of the flights;
    None: each has a seed of its own.
    """
    have = np.array([value is not None and math.isfinite(value) for value in figure])
    target = np.array([value for value, ok in zip(figure, have, strict=True) if ok], dtype=float)
    if len(target) < FEWEST or np.ptp(target) == 0.0:
        return []
    columns = {field: [v for v, ok in zip(values, have, strict=True) if ok] for field, values in fields.items()}
    all_places = [Place(number) for number in range(len(figure))] if places is None else places
    own_places = [place for place, ok in zip(all_places, have, strict=True) if ok]
    groups = [group for group in _groups_of(columns, target, own_places) if group.ranks.any()]
    if not groups:
        return []
    rng = np.random.default_rng(SEED)
    parts = []
    for count in _batches(len(target)):
        orders = rng.permuted(np.tile(np.arange(len(own_places)), (count, 1)), axis=1)
        parts.append(np.vstack([group.permuted(orders, rng) for group in groups]))
    matrix = np.hstack(parts)  # fields x permutations
    mean, std = matrix.mean(axis=1), matrix.std(axis=1)
    std[std < TIE] = math.inf  # the field is the same for every permutation
    largest = ((matrix - mean[:, None]) / std[:, None]).max(axis=0)
    result = []
    compared = [(column, group.ranks) for group in groups for column in group.columns]
    for (column, ranks), m, s in zip(compared, mean, std, strict=True):
        measure = float(column.measured(ranks[None, :])[0])
        reached = int(np.sum(largest >= (measure - m) / s - TIE))
        result.append(Influence(column.field, measure, (1 + reached) / (1 + PERMUTATIONS), column.how(ranks)))
    return sorted(result, key=lambda influence: (influence.p, -influence.measure))


def _batches(flights: int) -> Iterator[int]:
    """Numbers of permutations, together all of them."""
    most = max(1, AT_A_TIME // flights)
    for done in range(0, PERMUTATIONS, most):
        yield min(most, PERMUTATIONS - done)


def _codes(values: Sequence[Any]) -> Array:
    """Whole numbers from 0, equal ones for equal values."""
    place: dict[Any, int] = {}
    return np.array([place.setdefault(value, len(place)) for value in values])


# --- fields ---------------------------------------------------------------------------------------------------------


class _Numbers:
    """A field of numbers."""

    def __init__(self, field: str, values: list[Any]) -> None:
        self.field = field
        numbers = np.array(values, dtype=float)
        self._along = _standardised(rankdata(numbers))
        self._apart = _standardised(rankdata(np.abs(numbers - np.median(numbers))))

    def measured(self, ranks: Array) -> Array:
        """The measure for each row of ranks, which have mean 0 and length 1."""
        found: Array = np.maximum(np.abs(ranks @ self._along), np.abs(ranks @ self._apart))
        return found

    def how(self, ranks: Array) -> str:
        """In which direction the figure is larger."""
        r, r_apart = float(ranks @ self._along), float(ranks @ self._apart)
        if abs(r_apart) > abs(r) + TIE:
            return "far from its median" if r_apart > 0 else "near its median"
        return "high" if r > 0 else "low"


class _Names:
    """A field of names."""

    def __init__(self, field: str, values: list[Any]) -> None:
        self.field = field
        texts = [str(value) for value in values]
        self._groups = {one: np.array([text == one for text in texts]) for one in sorted(set(texts))}

    def measured(self, ranks: Array) -> Array:
        """η of each row of ranks, which have mean 0 and length 1."""
        between = np.zeros(len(ranks))
        for group in self._groups.values():
            between += group.sum() * ranks[:, group].mean(axis=1) ** 2
        found: Array = np.sqrt(between)
        return found

    def how(self, ranks: Array) -> str:
        """The name with the largest figure."""
        return max(self._groups, key=lambda one: float(ranks[self._groups[one]].mean()))


def _are_numbers(values: list[Any]) -> bool:
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def _standardised(ranks: Array) -> Array:
    """Mean 0, length 1; zeros where all are equal."""
    centred: Array = ranks - ranks.mean()
    length = float(np.linalg.norm(centred))
    return np.asarray(centred / length) if length > 0.0 else centred


# --- permutations ---------------------------------------------------------------------------------------------------


class _Group:
    """Fields whose figures are exchanged in the same way. ranks: of the figures, with mean 0 and length 1."""

    def __init__(self, columns: list[_Numbers | _Names], figures: Array) -> None:
        self.columns = columns
        self.ranks = _standardised(rankdata(figures))

    def exchanged(self, orders: Array, rng: np.random.Generator) -> Array:
        """For each permutation, whose figure each one gets, shape (permutations, figures)."""
        raise NotImplementedError

    def permuted(self, orders: Array, rng: np.random.Generator) -> Array:
        """The measures of the fields, shape (fields, permutations). orders: of the seeds, shape (permutations, seeds)."""
        shuffled = self.ranks[self.exchanged(orders, rng)]
        return np.array([column.measured(shuffled) for column in self.columns])


class _BySeed(_Group):
    """Drawn fields: the seeds are exchanged, in each scenario by the same order. A seed has one figure in a scenario at most."""

    def __init__(
        self, columns: list[_Numbers | _Names], figures: Array, seeds: Array, scenarios: Sequence[str]
    ) -> None:
        super().__init__(columns, figures)
        self._seeds, self._scenarios = seeds, _codes(scenarios)

    def exchanged(self, orders: Array, rng: np.random.Generator) -> Array:
        found = np.empty((len(orders), len(self._seeds)), dtype=int)
        row = np.arange(len(orders))[:, None]
        for scenario in np.unique(self._scenarios):
            (own,) = np.nonzero(self._scenarios == scenario)
            place_of = np.full(orders.shape[1], -1)
            place_of[self._seeds[own]] = own
            seeds = orders[:, self._seeds[own]]
            while (absent := place_of[seeds] < 0).any():  # the order goes on from a seed without a figure
                seeds = np.where(absent, orders[row, seeds], seeds)
            found[:, own] = place_of[seeds]
        return found


class _WithinSeed(_Group):
    """Scenario, sensors or stack: flights of the same stratum are exchanged, which differ in this name alone."""

    def __init__(self, columns: list[_Numbers | _Names], figures: Array, strata: Array) -> None:
        super().__init__(columns, figures)
        self._strata = strata

    def exchanged(self, orders: Array, rng: np.random.Generator) -> Array:
        found = np.empty((len(orders), len(self._strata)), dtype=int)
        keys = self._strata + rng.random(found.shape)
        found[:, np.argsort(self._strata, kind="stable")] = np.argsort(keys, axis=1)
        return found


def _groups_of(columns: dict[str, list[Any]], target: Array, places: list[Place]) -> Iterator[_Group]:
    """The fields that can be compared. columns, target, places: of the flights with the figure."""
    alike: dict[bytes, dict[str, list[Any]]] = defaultdict(dict)  # drawn fields by the flights that have them
    for field, values in columns.items():
        given = [value for value in values if value is not None]
        if len(set(given)) < 2 or len(values) - len(given) > ABSENT_MAX * len(values):
            continue
        if field in CROSSED:
            yield _WithinSeed([_Names(field, values)], target, _codes([_without(p, field) for p in places]))
        else:
            alike[np.array([value is not None for value in values]).tobytes()][field] = values
    seed_code = dict(zip((place.seed for place in places), _codes([place.seed for place in places]), strict=True))
    for mask, some in alike.items():
        own = np.flatnonzero(np.frombuffer(mask, dtype=bool))
        if np.ptp(target[own]) == 0.0 or len({places[i].seed for i in own}) < FEWEST:
            continue
        above = _above_its_cell(rankdata(target[own]), [places[i] for i in own])
        flights: dict[tuple[int, str], list[int]] = defaultdict(list)  # by seed and scenario
        for at, i in enumerate(own):
            flights[places[i].seed, places[i].scenario].append(at)
        firsts = [own[members[0]] for members in flights.values()]
        shared = [(field, [values[i] for i in firsts]) for field, values in some.items()]
        compared = [(_Numbers if _are_numbers(v) else _Names)(field, v) for field, v in shared if len(set(v)) > 1]
        figures = np.array([above[members].mean() for members in flights.values()])
        seeds = np.array([seed_code[seed] for seed, _ in flights])
        if compared:
            yield _BySeed(compared, _without_rounding(figures), seeds, [scenario for _, scenario in flights])


def _without(place: Place, field: str) -> tuple[Any, ...]:
    return tuple(value for name, value in place._asdict().items() if name != field)


def _above_its_cell(ranks: Array, places: list[Place]) -> Array:
    """The ranks of flights less the mean of those with the same scenario, sensors and stack."""
    cells = _codes([place[1:] for place in places])
    means = np.bincount(cells, ranks) / np.bincount(cells)
    above: Array = ranks - means[cells]
    return above


def _without_rounding(figures: Array) -> Array:
    """Means that differ by the rounding of their sums are equal, and get equal ranks."""
    rounded: Array = np.round(figures / TIE) * TIE
    return rounded


def quantiles(values: list[float], shares: tuple[float, ...] = (0.05, 0.5, 0.95)) -> list[float]:
    """Quantiles of values, at least one."""
    return [float(q) for q in np.quantile(values, shares)]
