"""Whether a log shows a vehicle in free flight: held vehicles give smooth fits of wrong numbers.

A vehicle on a stand, a tether or the ground has a constant specific force of g whatever its motors do, so that
g / command is fitted as thrust coefficient with a small interval. In free flight the specific force follows the thrust:

- *lift*: the accelerometer along the thrust axis changes by about 1 % (propellers without PX4's thrust model: by 2 %)
  for 1 % of command; by nothing while something else carries the vehicle.
- *climb*: the same by the velocity, for a log without a usable accelerometer. Errors of the estimated velocity, to which
  the command reacts, make it too small in a quiet hover.
- *lean*: horizontal acceleration over what the lean of the thrust axis commands; 1 in free flight, 0 on a gimbal. A hover
  in gusts has a small one, too: there the lean balances the wind.

Each is a slope of least squares over windows of seconds, in deviations from the mean of the window, with the interval of
`response.block_covariance`. A log is used if at least one of them is certainly that of a free vehicle and the
accelerometer does not contradict it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from calibration.identification.flight_data import FlightData, Signal, Span, nothing
from calibration.identification.response import block_covariance, student_half_width
from calibration.identification.windows import STEP_S, WINDOW_S, Windows, run, usable_spans
from companion.core.arrays import Array
from companion.core.frames import GRAVITY_M_S2

LAGS_S = np.arange(0.0, 0.31, 0.03)  # of thrust, half delay and half lag, that are tried
SLOPE_MIN, SURE_MIN = 0.5, 0.3  # of a free vehicle: the slope, and the lower end of its interval
SLOPE_MAX = 3.0  # a command cannot act more: 2 is a thrust that grows with its square, the rest is margin
HELD_MAX, HELD_HALF = 0.3, 0.2  # upper end and half-width of the interval of a vehicle that is held
FULL_MARGIN = 0.35  # from 1, with its interval: a lean that confirms the thrust coefficient by itself
MOVED_SHARE = 0.3  # of the commanded change of the vertical velocity: less is held
COMMANDED_MIN_M_S = 0.2  # RMS in a window: a smaller change a quiet hover has, too, where gusts and errors cancel it
SPEED_MIN_M_S = 0.2  # RMS in a window of a vehicle that moves
SPREAD_MAX = 0.3  # of the command over a flight, 5 to 95 %: a battery changes it by half of that
WINDOWS_MIN = 4


class Motion(StrEnum):
    """What the log shows."""

    FREE = "free flight"
    HELD = "held"  # the thrust moved, the vehicle did not
    STILL = "still"  # neither moved
    CARRIED = "carried"  # the vehicle moved, and not as its thrust and lean command
    UNKNOWN = "unknown"  # the log has no signal that could show it


@dataclass(frozen=True)
class Slope:
    """A slope and the half-width of its 95 % interval."""

    value: float
    half: float

    @property
    def free(self) -> bool:
        """Whether it is certainly that of a free vehicle."""
        return SLOPE_MIN < self.value < SLOPE_MAX and self.value - self.half > SURE_MIN

    @property
    def full(self) -> bool:
        """Whether it is certainly near 1."""
        return abs(self.value - 1.0) + self.half < FULL_MARGIN

    @property
    def held(self) -> bool:
        """Whether it is certainly that of a vehicle that something holds or carries."""
        return self.half < HELD_HALF and self.value + self.half < HELD_MAX

    @property
    def against(self) -> bool:
        """Whether the vehicle certainly moves against the command: signals of another log, or an axis upside down."""
        return self.value + self.half < -SURE_MIN

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.half:.2f}"


@dataclass(frozen=True)
class Evidence:
    """The slopes (None: the log has no signal for it), and how much command and vehicle moved within windows."""

    lift: Slope | None
    climb: Slope | None
    lean: Slope | None
    thrust_share: float  # standard deviation of the command over its mean
    thrust_spread: float  # 5 to 95 % of the command of all windows over its mean
    commanded_m_s: float  # RMS change of the vertical velocity that the thrust command alone would make
    climbed_m_s: float  # RMS change of the vertical velocity
    speed_m_s: float  # RMS change of the velocity

    @property
    def motion(self) -> Motion:
        """The judgement."""
        slopes = [slope for slope in (self.lift, self.climb, self.lean) if slope is not None]
        if not slopes:
            return Motion.UNKNOWN
        if self._held:
            return Motion.HELD
        if any(slope.free for slope in slopes) and not any(slope.against for slope in slopes):
            return Motion.FREE
        if self.speed_m_s > SPEED_MIN_M_S:
            return Motion.CARRIED
        return Motion.HELD if self.thrust_spread > SPREAD_MAX else Motion.STILL

    @property
    def _held(self) -> bool:
        if self.lift is not None and self.lift.held:
            return True
        if self.lean is not None and self.lean.full:
            return False  # in fast forward flight the air carries, too, and the command makes up for it
        return self.commanded_m_s > COMMANDED_MIN_M_S and self.climbed_m_s < MOVED_SHARE * self.commanded_m_s

    @property
    def reason(self) -> str:
        """One sentence for a log that is refused: what it shows, and what to do; "" for free flight."""
        moved = f"the thrust command moved by {100 * max(self.thrust_share, self.thrust_spread):.0f} %"
        advice = "free flight with climbs and fast leans is needed (a part of the log: --from, --to)"
        match self.motion:
            case Motion.FREE:
                return ""
            case Motion.HELD:
                shown = (
                    f"the specific force followed by {self.lift} % for 1 %"
                    if self.lift is not None and self.lift.held
                    else f"the vertical velocity by {self.climbed_m_s:.2f} of {self.commanded_m_s:.2f} m/s"
                )
                return f"the vehicle was held (stand, tether, hand or ground): {moved}, {shown}; {advice}"
            case Motion.CARRIED:
                return f"the vehicle moved, but not as its thrust and its lean command (carried by hand?); {advice}"
            case Motion.UNKNOWN:
                return (
                    "the log has neither a velocity nor an accelerometer: it does not show that the vehicle flew freely"
                )
            case Motion.STILL:
                return (
                    f"neither the thrust command ({100 * self.thrust_share:.1f} %) nor the vehicle"
                    f" ({self.speed_m_s:.2f} m/s) moved enough to tell a flight from a vehicle on a stand; {advice}"
                )


def refusal(flight: FlightData) -> str:
    """Why a log does not show free flight, as one sentence; "" if it does.

    Every part of the flight by itself must not be that of a held vehicle.
    """
    whole = evidence(flight, flight.airborne)
    if whole is None:
        return "too little flight without gaps to tell a flight from a vehicle on a stand"
    if whole.motion is not Motion.FREE:
        return whole.reason
    for span in flight.airborne if len(flight.airborne) > 1 else ():
        part = evidence(flight, [span])
        if part is not None and part.motion is Motion.HELD:
            return f"from {span[0] - flight.start_s:.0f} to {span[1] - flight.start_s:.0f} s {part.reason}"
    return ""


def evidence(flight: FlightData, airborne: Sequence[Span]) -> Evidence | None:
    """What parts of a flight show; None where they are shorter than WINDOWS_MIN windows."""
    if len(flight.velocity_W) < 2:
        standing = Signal(flight.attitude.t_s, np.zeros((len(flight.attitude), 3)))
        flight = replace(flight, velocity_W=standing, velocity_axes=(False, False))
    # The voltage is not needed here: a gap of it must not hide that the aircraft was held.
    flight = replace(flight, airborne=list(airborne), voltage=nothing())
    spans = usable_spans(flight)
    if sum(int((b - a + 1e-6) // WINDOW_S) for a, b in spans) < WINDOWS_MIN:
        return None
    w = Windows(flight, spans)
    horizontal, vertical = flight.velocity_axes
    command = w.thrust(0.0, 0.0)
    lift = climb = lean = None
    if w.accelerometer is not None:
        lift = _best([_lift(w, lag_s) for lag_s in LAGS_S])
    if vertical:
        climb = _best([_climb(w, lag_s) for lag_s in LAGS_S])
    if horizontal:
        lean = _lean(w)[1]
    used = w.velocity[..., [i for i, valid in enumerate((horizontal, horizontal, vertical)) if valid]]
    return Evidence(
        lift=lift,
        climb=climb,
        lean=lean,
        thrust_share=float(_changes(command).std() / command.mean()),
        thrust_spread=float(np.ptp(np.percentile(command, [5, 95])) / command.mean()),
        commanded_m_s=_commanded_m_s(w),
        climbed_m_s=float(_changes(w.velocity[..., 2]).std()) if vertical else float("nan"),
        speed_m_s=float(np.sqrt(np.sum(_changes(used) ** 2, axis=-1).mean())),
    )


def _changes(values: Array) -> Array:
    """Deviations from the mean of each window, (windows, samples, …)."""
    difference: Array = values - values.mean(axis=1, keepdims=True)
    return difference


def _best(found: Sequence[tuple[float, Slope]]) -> Slope:
    """Of the lag with the smallest residual."""
    return min(found, key=lambda item: item[0])[1]


def _relative_thrust(w: Windows, lag_s: float) -> Array:
    u = w.thrust(0.5 * lag_s, 0.5 * lag_s)
    relative: Array = u / u.mean()
    return relative


def _lift(w: Windows, lag_s: float) -> tuple[float, Slope]:
    """Specific force along the thrust axis over g, and its part by the velocity along that axis (drag)."""
    assert w.accelerometer is not None
    along = np.einsum("wtij,wti->wtj", w.R_WB, w.velocity)[..., 2]
    columns = [GRAVITY_M_S2 * _relative_thrust(w, lag_s), along]
    return _slope([columns], [w.accelerometer[..., 2]], w.grid)


def _commanded_m_s(w: Windows) -> float:
    """RMS change of the vertical velocity within windows that the thrust and its lean command, less a constant force."""
    force = GRAVITY_M_S2 * _relative_thrust(w, 0.0) * w.axis[..., 2]
    return float(_changes(run(force - force.mean(), 0.0)).std())


def _climb(w: Windows, lag_s: float) -> tuple[float, Slope]:
    """Vertical velocity over the integral of the commanded force; free: a constant acceleration, and drag."""
    force = GRAVITY_M_S2 * _relative_thrust(w, lag_s) * w.axis[..., 2]
    v = w.velocity[..., 2]
    return _slope([[run(force, 0.0), _time(w), run(v, 0.0)]], [v], w.grid)


def _lean(w: Windows) -> tuple[float, Slope]:
    """Horizontal velocity over the integral of the commanded force; free: a constant acceleration, and drag."""
    force = GRAVITY_M_S2 * _relative_thrust(w, 0.0)[..., None] * w.axis
    none, t = np.zeros_like(w.grid), _time(w)
    columns = [
        [run(force[..., i], 0.0), *times, run(w.velocity[..., i], 0.0)] for i, times in ((0, (t, none)), (1, (none, t)))
    ]
    return _slope(columns, [w.velocity[..., 0], w.velocity[..., 1]], w.grid)


def _time(w: Windows) -> Array:
    return np.broadcast_to(STEP_S * np.arange(w.grid.shape[1]), w.grid.shape)


def _slope(columns: Sequence[Sequence[Array]], measured: Sequence[Array], grid: Array) -> tuple[float, Slope]:
    """(Residual, slope of the first column) of a fit to the measurements of several axes, each (windows, samples)."""
    A = np.concatenate([np.column_stack([_changes(c).ravel() for c in axis]) for axis in columns])
    y = np.concatenate([_changes(m).ravel() for m in measured])
    x, *_ = np.linalg.lstsq(A, y, rcond=None)
    residual = A @ x - y
    covariance, blocks = block_covariance(A, residual, np.tile(grid.ravel(), len(measured)))
    half = student_half_width(blocks, A.shape[1]) * np.sqrt(max(float(covariance[0, 0]), 0.0))
    return float(residual.std()), Slope(float(x[0]), float(half))
