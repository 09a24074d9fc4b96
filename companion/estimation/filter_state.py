"""The complete state of the filter at one time, and the bundles of its map.

The bundle of the mission has a fixed place in the state (`companion.estimation.layout`). Every further bundle that is seen adds
its pose with all correlations, up to OTHERS_MAX; then the one that was unseen for longest is dropped. For the time of its
observation a bundle is exchanged with the mission's, so that one set of equations and monitors serves all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from companion.core.enums import Sensor
from companion.core.kernel import address_of
from companion.estimation.adaptation import Window
from companion.estimation.innovation_monitor import BiasTest, ContradictionTest, RejectionRun
from companion.estimation.layout import (
    BUNDLE_ERROR,
    ERROR_SIZE,
    OTHERS_MAX,
    POSE_SIZE,
    POSE_STATE_SIZE,
    SLOW_MAX,
    SLOW_SIZE,
    ErrorIndex,
    FilterStateIndex,
    StateIndex,
    covariance_of,
    poses_of,
    slow_errors_of,
)
from companion.estimation.noise import Propagation
from companion.estimation.observations import FlipTest, MarkerId

BUNDLE_SENSORS = (Sensor.MARKER, Sensor.CORNERS)
ESTABLISHED = 15  # placement score from which on a bundle's position is used without a further check
IN_SIGHT_S = 1.0  # a bundle that was observed since then keeps its slow error


class SlowSource(NamedTuple):
    """Whose lasting error ξ is: that of the poses of some markers, from corrected corners or of each image alone."""

    by_corners: bool
    markers: frozenset[MarkerId]
    begun_s: float
    seen_s: float  # time of the newest observation with this error that was used
    other_s: float = -inf  # and of the newest one with another error

    def is_of(self, by_corners: bool, markers: frozenset[MarkerId]) -> bool:
        """Whether a pose of these markers is wrong in the same way: two thirds of the corners are the same."""
        common, most = len(self.markers & markers), max(len(self.markers), len(markers))
        return self.by_corners == by_corners and 3 * common >= 2 * most


class BundleRecord(NamedTuple):
    """What the monitors know about a bundle; the fields are those of `FilterState`."""

    marker_known: bool = False
    placement_score: int = 0
    bias_test: BiasTest = BiasTest()
    contradiction: ContradictionTest = ContradictionTest()
    flips: FlipTest = FlipTest()
    windows: tuple[Window, ...] = ()  # of BUNDLE_SENSORS, as the two dictionaries below
    rejection_runs: tuple[RejectionRun | None, ...] = (None, None)
    accepted_s: tuple[float, ...] = (-inf, -inf)
    slow_source: SlowSource | None = None
    surveyed_from: str | None = None


def _rows(errors: slice) -> range:
    return range(errors.start, errors.stop)


@dataclass(slots=True)
class FilterState:
    """A copy is a snapshot for a later run."""

    time_s: float
    numbers: Array  # nominal state, covariance and memory of gusts in one array, as the kernels take it
    windows: dict[Sensor, Window]
    rejection_runs: dict[Sensor, RejectionRun]
    accepted_s: dict[Sensor, float]  # time of the last accepted measurement of each sensor
    marker_known: bool = False
    bias_test: BiasTest = BiasTest()
    contradiction: ContradictionTest = ContradictionTest()
    flips: FlipTest = FlipTest()
    bias_before: Array | None = None  # low-pass of the GNSS bias [m], (3,), while the bundle is out of sight
    by: Propagation = Propagation.COAST  # what the newest prediction was driven by
    placement_score: int = 0  # accepted minus rejected observations since the bundle was placed, up to ESTABLISHED
    slow_source: SlowSource | None = None  # whose slow error ξ is; None: of no observation yet
    others: dict[str, BundleRecord] = field(default_factory=dict)  # further bundles, in the order of their poses
    slow: tuple[str, ...] = ()  # those with a slow error, in their order
    # The bundle from which the survey gave or confirmed the place of this one; None: its own images placed it.
    surveyed_from: str | None = None
    nominal: Array = field(init=False)  # x (53,), a view; see `layout.StateIndex`
    covariance: Array = field(init=False)  # P, (51, 51) and more with further bundles, a view; see `layout.ErrorIndex`
    address: int = field(init=False)  # of the numbers, for kernels

    def __post_init__(self) -> None:
        self._bind()

    def _bind(self) -> None:
        self.nominal = self.numbers[FilterStateIndex.NOMINAL]
        where, rows = covariance_of(len(self.others), len(self.slow))
        self.covariance = self.numbers[where].reshape(rows, rows)
        self.address = address_of(self.numbers)

    def copy(self) -> "FilterState":
        windows, accepted_s = self.windows.copy(), self.accepted_s.copy()
        copy = self.with_numbers(self.time_s, self.numbers.copy(), windows, accepted_s, self.by)
        copy.rejection_runs = self.rejection_runs.copy()
        return copy

    def with_numbers(
        self,
        time_s: float,
        numbers: Array,
        windows: dict[Sensor, Window],
        accepted_s: dict[Sensor, float],
        by: Propagation,
    ) -> "FilterState":
        """A state after this one that differs only in these, and shares the rest: copy it before changing it."""
        return FilterState(
            time_s,
            numbers,
            windows,
            self.rejection_runs,
            accepted_s,
            self.marker_known,
            self.bias_test,
            self.contradiction,
            self.flips,
            self.bias_before,
            by,
            self.placement_score,
            self.slow_source,
            self.others,
            self.slow,
            self.surveyed_from,
        )

    # --- the map

    def last_sight(self) -> tuple[float, Array] | None:
        """When and where [m] an established bundle that is not refused was last observed; None before the first."""
        own = self.accepted_s.get(Sensor.MARKER, -inf), self.nominal[StateIndex.MARKER_POSITION]
        sights = (
            [own]
            if self.marker_known and self.placement_score >= ESTABLISHED and not self.contradiction.refused
            else []
        )
        for name, record in self.others.items():
            if record.marker_known and record.placement_score >= ESTABLISHED and not record.contradiction.refused:
                sights.append((record.accepted_s[0], self.pose(name)[:3]))
        return max(sights, key=lambda sight: sight[0], default=None)

    def refused(self) -> list[str]:
        """Names of the bundles that contradict the filter; "": the mission's."""
        return [
            *([""] if self.contradiction.refused else []),
            *(name for name, record in self.others.items() if record.contradiction.refused),
        ]

    def pose(self, name: str) -> Array:
        """p_WM and q_WM of a further bundle, (7,), a view."""
        first = FilterStateIndex.REST + POSE_STATE_SIZE * list(self.others).index(name)
        return self.numbers[first : first + POSE_STATE_SIZE]

    def slow_error(self, name: str) -> Array:
        """The slow error of a further bundle, (6,), a view."""
        first = slow_errors_of(len(self.others), 0).start + SLOW_SIZE * self.slow.index(name)
        return self.numbers[first : first + SLOW_SIZE]

    def errors_of(self, name: str) -> slice:
        """Rows of the covariance that belong to the pose of a further bundle."""
        first = ERROR_SIZE + POSE_SIZE * list(self.others).index(name)
        return slice(first, first + POSE_SIZE)

    def slow_errors_of(self, name: str) -> slice:
        """Rows of the covariance that belong to the slow error of a further bundle."""
        first = ERROR_SIZE + POSE_SIZE * len(self.others) + SLOW_SIZE * self.slow.index(name)
        return slice(first, first + SLOW_SIZE)

    def allocate(self, name: str, variances: Array, windows: tuple[Window, ...]) -> bool:
        """Give a further bundle a pose and a slow error, where it has none; False while too many others are in sight.

        variances: diagonal of the covariance at the start, (51,); windows: empty ones of BUNDLE_SENSORS.
        """
        if name in self.slow:
            return True
        others, slow = dict(self.others), list(self.slow)
        if name not in others:
            if len(others) >= OTHERS_MAX:
                del others[min(others, key=lambda n: others[n].accepted_s[0])]
            others[name] = BundleRecord(windows=windows)
        slow = [n for n in slow if n in others]
        if len(slow) >= SLOW_MAX:
            oldest = min(slow, key=lambda n: others[n].accepted_s[0])
            if self.time_s - others[oldest].accepted_s[0] < IN_SIGHT_S:
                return False
            slow.remove(oldest)
        self._arrange(others, (*slow, name), variances)
        return True

    def _arrange(self, others: dict[str, BundleRecord], slow: tuple[str, ...], variances: Array) -> None:
        """Change which bundles have a place in the state; new ones are uncertain and correlated with nothing."""
        rows = [*range(ERROR_SIZE)]  # where each error is now; −1: nowhere
        for name in others:
            rows += _rows(self.errors_of(name)) if name in self.others else POSE_SIZE * [-1]
        for name in slow:
            rows += _rows(self.slow_errors_of(name)) if name in self.slow else SLOW_SIZE * [-1]
        where, size = covariance_of(len(others), len(slow))
        numbers, index = np.zeros(where.stop), np.array(rows)
        numbers[: FilterStateIndex.REST] = self.numbers[: FilterStateIndex.REST]
        numbers[FilterStateIndex.COUNTS] = len(others), len(slow)
        identity = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
        numbers[poses_of(len(others))] = [x for n in others for x in (self.pose(n) if n in self.others else identity)]
        errors = dict(zip(self.slow, self._slow_errors(), strict=True))
        zero = np.zeros(SLOW_SIZE)
        numbers[slow_errors_of(len(others), len(slow))] = [x for n in slow for x in errors.get(n, zero)]
        covariance, kept = numbers[where].reshape(size, size), np.flatnonzero(index >= 0)
        start = [*variances, *np.tile(variances[BUNDLE_ERROR], len(others))]
        start += [*np.tile(variances[ErrorIndex.SLOW_POSE], len(slow))]
        covariance[range(size), range(size)] = start
        covariance[np.ix_(kept, kept)] = self.covariance[np.ix_(index[kept], index[kept])]
        self.numbers, self.others, self.slow = numbers, others, slow
        self._bind()

    def set_placed(self, name: str, score: int, surveyed_from: str) -> None:
        """A bundle has a pose that no observation of it gave, but the survey and the place of another one; "": the mission's."""
        placed = self.record(name)._replace(
            marker_known=True,
            placement_score=score,
            bias_test=BiasTest(),
            flips=FlipTest(),
            rejection_runs=(None,) * len(BUNDLE_SENSORS),
            surveyed_from=surveyed_from,
        )
        self.set_record(name, placed)

    def _slow_errors(self) -> Sequence[Array]:
        errors = self.numbers[slow_errors_of(len(self.others), len(self.slow))]
        return list(errors.reshape(len(self.slow), SLOW_SIZE))

    def exchange_records(self, name: str) -> None:
        """Let the fields of a bundle be those of the further bundle `name`, and the reverse."""
        own, record = self.record(""), self.others[name]
        self.others = self.others | {name: own}
        self.set_record("", record)

    def record(self, name: str) -> BundleRecord:
        """What the monitors know about a further bundle; "": about the one in the place of the mission's."""
        if name:
            return self.others[name]
        return BundleRecord(
            self.marker_known,
            self.placement_score,
            self.bias_test,
            self.contradiction,
            self.flips,
            tuple(self.windows[s] for s in BUNDLE_SENSORS),
            tuple(self.rejection_runs.get(s) for s in BUNDLE_SENSORS),
            tuple(self.accepted_s.get(s, -inf) for s in BUNDLE_SENSORS),
            self.slow_source,
            self.surveyed_from,
        )

    def set_record(self, name: str, record: BundleRecord) -> None:
        """The reverse of `record`."""
        if name:
            self.others = self.others | {name: record}
            return
        self.marker_known, self.placement_score = record.marker_known, record.placement_score
        self.bias_test, self.contradiction = record.bias_test, record.contradiction
        self.flips = record.flips
        self.slow_source, self.surveyed_from = record.slow_source, record.surveyed_from
        self.windows |= zip(BUNDLE_SENSORS, record.windows, strict=True)
        for sensor, run, at_s in zip(BUNDLE_SENSORS, record.rejection_runs, record.accepted_s, strict=True):
            self.rejection_runs.pop(sensor, None)
            self.accepted_s.pop(sensor, None)
            if run is not None:
                self.rejection_runs[sensor] = run
            if at_s > -inf:
                self.accepted_s[sensor] = at_s
