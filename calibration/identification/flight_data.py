"""The data of a flight for identification, from any kind of log: signals over time, and when the aircraft flew.

World W is ENU, body B is FLU, as everywhere in the stack; times are seconds on one clock of the log. A signal that the
log does not have is empty.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator

from calibration.flown_vehicle import FlownVehicle
from companion.core.arrays import Array

Span = tuple[float, float]  # from, to [s]


class LogKind(StrEnum):
    """The two kinds of logs, by the names in messages."""

    ULOG = "ULog"
    FLIGHT_LOG = "flight log"


GAP_S = 0.5  # a longer gap of a signal divides the flight
EDGE_S = 1.5  # after take-off and before landing: ground effect, and possible contact of the feet
AIRBORNE_MIN_S = 3.0  # shorter hops are not flights
HOVER_SHARE = (
    0.92  # of the median thrust in the air: a flight begins and ends with it; below, the feet still carry weight
)
FALLING_SHARE = 0.5  # less than this for longer than LOW_THRUST_S is a landing
LOW_THRUST_S = 1.0


@dataclass(frozen=True)
class Signal:
    """Samples over time: t_s (n,) rising, value (n,) or (n, k).

    held: constant between samples; otherwise samples of a faster signal, interpolated linearly.
    """

    t_s: Array
    value: Array
    held: bool = False

    def __len__(self) -> int:
        return len(self.t_s)

    @property
    def rate_hz(self) -> float:
        """Samples per second, by the median interval; 0 without samples."""
        return 0.0 if len(self) < 2 else 1.0 / max(float(np.median(np.diff(self.t_s))), 1e-9)

    def column(self, index: int) -> "Signal":
        return Signal(self.t_s, self.value[:, index], self.held)

    def at(self, t_s: Array) -> Array:
        """The value at times t_s (m,), interpolated or held; outside the samples the first or last one."""
        if self.held:
            last: Array = self.value[np.clip(np.searchsorted(self.t_s, t_s, side="right") - 1, 0, len(self) - 1)]
            return last
        if self.value.ndim == 1:
            return np.interp(t_s, self.t_s, self.value)
        return np.column_stack([np.interp(t_s, self.t_s, column) for column in self.value.T])

    def between(self, step_s: float) -> "Signal":
        """Samples step_s apart of the monotone cubic interpolation (F. Fritsch, R. Carlson, SIAM J. Numer. Anal. 17,
        1980). Linear interpolation would cut off peaks between two samples."""
        if len(self) < 3:
            return self
        t_s = np.arange(self.t_s[0], self.t_s[-1], step_s)
        return Signal(t_s, PchipInterpolator(self.t_s, self.value)(t_s))

    def within(self, span: Span) -> "Signal":
        first, last = np.searchsorted(self.t_s, span)
        return Signal(self.t_s[first:last], self.value[first:last], self.held)


def nothing(columns: int = 1) -> Signal:
    """An empty signal."""
    return Signal(np.zeros(0), np.zeros(0) if columns == 1 else np.zeros((0, columns)))


def clean(t_s: Array, value: Array, held: bool = False) -> Signal:
    """A signal of the usable samples: finite, with rising times near those of the others.

    Samples with a time far from all others (a damaged record) are left out first: otherwise every sample after them
    would be left out, too. Where a clock steps back, samples up to its old reading are left out.
    """
    t_s, value = np.asarray(t_s, dtype=float), np.asarray(value, dtype=float)
    good = np.isfinite(t_s) & np.isfinite(value).reshape(len(t_s), -1).all(axis=1)
    t_s, value = t_s[good], value[good]
    if len(t_s):
        low, middle, high = np.percentile(t_s, [2, 50, 98])
        near = np.abs(t_s - middle) <= 2.0 * (high - low) + 1.0
        t_s, value = t_s[near], value[near]
    if len(t_s):
        before = np.maximum.accumulate(np.concatenate([[-np.inf], t_s[:-1]]))
        t_s, value = t_s[t_s > before], value[t_s > before]
    return Signal(t_s, value, held)


@dataclass
class FlightData:
    """The data of one log; an empty signal is not in the log. notes: sentences for the user, one for each finding."""

    path: Path
    kind: LogKind
    aircraft: str = ""  # by the log, e.g. "hexarotor"
    rotors: int | None = None
    attitude: Signal = field(default_factory=lambda: nothing(3))  # roll, pitch, yaw [rad], yaw continuous
    setpoint: Signal = field(default_factory=lambda: nothing(3))  # roll, pitch, yaw [rad] in the attitude's heading
    yaw_rate: Signal = field(default_factory=nothing)  # [rad/s] about z of B
    yaw_rate_setpoint: Signal = field(default_factory=nothing)
    thrust: Signal = field(default_factory=nothing)  # command 0..1
    velocity_W: Signal = field(default_factory=lambda: nothing(3))  # [m/s]; see velocity_axes
    velocity_axes: tuple[bool, bool] = (
        False,
        False,
    )  # horizontal, vertical: whether the estimator of the log declares it valid
    accelerometer_B: Signal = field(default_factory=lambda: nothing(3))  # specific force [m/s²]
    imu_B: Signal = field(
        default_factory=lambda: nothing(3)
    )  # the same of a flight log, for the comparison of drags alone
    voltage: Signal = field(default_factory=nothing)
    battery_compensated: bool = False  # the autopilot scales thrust with the battery itself
    model_factor: float | None = None  # THR_MDL_FAC with which the log was flown, None: not in the log
    flown: FlownVehicle | None = None  # None: a kind of log that does not know vehicle files
    airborne: list[Span] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)  # reasons to think that it is another aircraft's log

    @property
    def signals(self) -> tuple[Signal, ...]:
        """All signals, empty ones too."""
        attitude = self.attitude, self.setpoint, self.yaw_rate, self.yaw_rate_setpoint
        return (*attitude, self.thrust, self.velocity_W, self.accelerometer_B, self.voltage)

    @property
    def start_s(self) -> float:
        """Time of the first sample of any signal [s]; times that a user sees are counted from it."""
        return min((float(signal.t_s[0]) for signal in self.signals if len(signal)), default=0.0)

    @property
    def end_s(self) -> float:
        """Time of the last sample of any signal [s]."""
        return max((float(signal.t_s[-1]) for signal in self.signals if len(signal)), default=0.0)

    @property
    def airborne_s(self) -> float:
        """Time in the air [s]."""
        return sum(end - start for start, end in self.airborne)


def without_gaps(spans: Sequence[Span], *signals: Signal, gap_s: float = GAP_S, shortest_s: float = 0.0) -> list[Span]:
    """The parts of spans without a gap in any signal, at least shortest_s long."""
    for signal in signals:
        parts = []
        for start, end in spans:
            t_s = signal.within((start, end)).t_s
            if len(t_s) < 2:
                continue
            cuts = np.flatnonzero(np.diff(t_s) > gap_s)
            firsts, lasts = np.concatenate([[0], cuts + 1]), np.concatenate([cuts, [len(t_s) - 1]])
            parts += [(float(t_s[a]), float(t_s[b])) for a, b in zip(firsts, lasts, strict=True)]
        spans = parts
    return [(start, end) for start, end in spans if end - start >= max(shortest_s, 1e-9)]


def spans_where(t_s: Array, true: NDArray[np.bool_], end_s: float | None = None) -> list[Span]:
    """From the first to the last sample of every run of true samples.

    end_s: each sample is a state that lasts until the next sample, or to the end of the log at end_s.
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[0], np.asarray(true, dtype=int), [0]])))
    last = t_s if end_s is None else np.concatenate([t_s[1:], [max(end_s, t_s[-1])]]) if len(t_s) else t_s
    return [(float(t_s[a]), float(last[b - 1])) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def intersection(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    """The parts that are in both."""
    both = [(max(a, c), min(b, d)) for a, b in one for c, d in other]
    return sorted((start, end) for start, end in both if end > start)


def airborne_spans(thrust: Signal, allowed: Sequence[Span]) -> list[Span]:
    """When the aircraft flew: within `allowed` (not landed, armed, attitude controlled) and with the thrust of flight.

    The land detector alone is not enough: it reports flight as soon as the throttle rises, seconds before the feet
    leave the ground. The thrust of a flight is nearly constant, so samples far below its median are not flight.
    """
    inside = [thrust.within(span) for span in allowed]
    values = np.concatenate([part.value for part in inside]) if inside else np.zeros(0)
    values = values[values > 0.05]
    if len(values) < 10:
        return []
    usual = np.median(values[values >= 0.5 * np.median(values)])
    found = []
    for part in inside:
        joined: list[list[float]] = []
        for start, end in spans_where(part.t_s, part.value >= FALLING_SHARE * usual):
            if joined and start - joined[-1][1] <= LOW_THRUST_S:
                joined[-1][1] = end
            else:
                joined.append([start, end])
        for span in joined:
            stretch = part.within((span[0], np.nextafter(span[1], np.inf)))
            carrying = stretch.t_s[stretch.value >= HOVER_SHARE * usual]
            if len(carrying):
                found.append((float(carrying[0]) + EDGE_S, float(carrying[-1]) - EDGE_S))
    return [(start, end) for start, end in found if end - start >= AIRBORNE_MIN_S]


def model_factor(value: object) -> float | None:
    """THR_MDL_FAC as PX4 uses it: 0 to 1; None for anything else."""
    if not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        return None
    return round(float(value), 4)  # the parameter is a float32: 0.3 arrives as 0.300000012


def rpy_of(q: Array) -> Array:
    """Roll, pitch, yaw [rad] of quaternions (n, 4), yaw continuous; shape (n, 3). As `companion.core.frames`."""
    w, x, y, z = (q / np.linalg.norm(q, axis=1, keepdims=True)).T
    roll = np.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    pitch = np.arcsin(np.clip(2 * (w * y - z * x), -1, 1))
    yaw = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return np.column_stack([roll, pitch, np.unwrap(yaw)])


def tilt_in_heading(setpoint: Array, yaw: Array) -> Array:
    """Setpoints (n, 3) with roll and pitch [rad] relative to another heading (n,), their own yaw kept; shape (n, 3).

    PX4 aligns the thrust axis first and yaw after it. While the heading lags its setpoint, PX4 therefore controls roll
    and pitch of the commanded thrust axis in the present heading
    (PX4, src/modules/mc_att_control/AttitudeControl: the reduced attitude).
    """
    roll, pitch, yaw_sp = setpoint.T
    x = np.sin(pitch) * np.cos(roll)  # of z_B in the heading of the setpoint
    y = -np.sin(roll)
    z = np.cos(pitch) * np.cos(roll)
    turn = yaw_sp - yaw
    forward, left = x * np.cos(turn) - y * np.sin(turn), x * np.sin(turn) + y * np.cos(turn)
    return np.column_stack([np.arcsin(np.clip(-left, -1, 1)), np.arctan2(forward, z), yaw_sp])
