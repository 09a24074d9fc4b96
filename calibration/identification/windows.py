"""A flight cut into windows of seconds on a common grid of times, for models that are run through a whole window."""

from collections.abc import Sequence

import numpy as np
from scipy.signal import lfilter

from calibration.identification.flight_data import FlightData, Signal, Span, intersection, without_gaps
from companion.core.arrays import Array

STEP_S = 0.02
WINDOW_S = 2.0  # drag acts within it; in a longer one slow errors of the estimated velocity look like drag
WINDOWS_MAX = 300  # ten minutes; windows of a longer flight are thinned out to save time
HISTORY_S = 1.0  # of thrust commands before a window
VELOCITY_MAX_HZ = 25.0  # of samples that are compared; more add no information
# A longer gap of the battery voltage divides the flight: logs have it once or twice a second, and a battery falls slowly.
VOLTAGE_GAP_S = 5.0
ACCELEROMETER_MIN_HZ = 25.0  # slower ones are aliased vibration


def usable_spans(flight: FlightData) -> list[Span]:
    """Airborne parts with attitude, thrust, velocity and, if the log has it, voltage, long enough for a window."""
    signals = [flight.attitude, flight.thrust, flight.velocity_W]
    return without_gaps(with_voltage(flight), *signals, shortest_s=WINDOW_S)


def with_voltage(flight: FlightData) -> list[Span]:
    """Airborne parts with the battery voltage; all of them when the log has none.

    Across a gap the voltage would be a straight line, after its end the last one, and k_T and the exponent of the voltage
    would follow from it.
    """
    t_s = flight.voltage.t_s
    if not len(t_s):
        return list(flight.airborne)
    cuts = np.flatnonzero(np.diff(t_s) > VOLTAGE_GAP_S)
    firsts, lasts = t_s[np.concatenate([[0], cuts + 1])], t_s[np.concatenate([cuts, [len(t_s) - 1]])]
    near_s = VOLTAGE_GAP_S / 2  # so that the parts beside a gap do not overlap
    known = [(float(a) - near_s, float(b) + near_s) for a, b in zip(firsts, lasts, strict=True)]
    return intersection(flight.airborne, known)


class Windows:
    """Arrays on the grid have the shape (windows, samples) or (windows, samples, 3).

    axis: e_z of B in W. R_WB: (windows, samples, 3, 3). velocity: measured, on the grid. voltage: None without battery.
    t_s, window, measured: times (n,), window and value (n, 3) of the velocity samples. accelerometer: in B, mean over a
    step; None if it is missing or too slow.
    """

    def __init__(self, flight: FlightData, spans: Sequence[Span]) -> None:
        count = round(WINDOW_S / STEP_S)
        starts = np.array([s + WINDOW_S * i for s, e in spans for i in range(int((e - s + 1e-6) // WINDOW_S))])
        if len(starts) > WINDOWS_MAX:
            starts = starts[np.linspace(0, len(starts) - 1, WINDOWS_MAX).astype(int)]
        self.grid = starts[:, None] + STEP_S * np.arange(count + 1)
        flat, shape = self.grid.ravel(), self.grid.shape
        self.R_WB = _rotations(flight.attitude.at(flat)).reshape(*shape, 3, 3)
        self.axis = self.R_WB[..., 2]
        self.velocity = flight.velocity_W.at(flat).reshape(*shape, 3)
        self.voltage: Array | None = flight.voltage.at(flat).reshape(shape) if len(flight.voltage) else None
        self._thrust = flight.thrust

        every = max(1, round(flight.velocity_W.rate_hz / VELOCITY_MAX_HZ))
        inside = [flight.velocity_W.within((start, start + WINDOW_S)) for start in starts]
        self.window = np.concatenate([np.full(len(part.t_s[::every]), i) for i, part in enumerate(inside)])
        self.t_s = np.concatenate([part.t_s[::every] for part in inside])
        self.measured = np.concatenate([part.value[::every] for part in inside])
        place = (self.t_s - starts[self.window]) / STEP_S
        self._low = np.clip(place.astype(int), 0, count - 1)
        self._share = place - self._low
        slow = flight.accelerometer_B.rate_hz < ACCELEROMETER_MIN_HZ
        self.accelerometer: Array | None = None if slow else _means(flight.accelerometer_B, self.grid)

    def __len__(self) -> int:
        return len(self.grid)

    def thrust(self, delay_s: float, lag_s: float) -> Array:
        """The command after a delay and a first-order lag, (windows, samples)."""
        history = round(HISTORY_S / STEP_S)
        before = self.grid[:, :1] + STEP_S * np.arange(-history, 0)
        u = self._thrust.at((np.concatenate([before, self.grid], axis=1) - delay_s).ravel()).reshape(len(self), -1)
        if lag_s > 1e-4:
            pole = np.exp(-STEP_S / lag_s)
            u = lfilter([1 - pole], [1, -pole], u, axis=1, zi=pole * u[:, :1])[0]
        return u[:, history:]

    def at_samples(self, values: Array) -> Array:
        """(windows, samples) at the times of the measured velocities, (n,)."""
        low, high = values[self.window, self._low], values[self.window, self._low + 1]
        between: Array = low + self._share * (high - low)
        return between


def run(acceleration: Array, drag_1_s: float) -> Array:
    """Velocity from rest under an acceleration (windows, samples) with linear drag; trapezoidal, the same shape."""
    mean = 0.5 * (acceleration[:, 1:] + acceleration[:, :-1])
    decay = np.exp(-drag_1_s * STEP_S)
    step = STEP_S if drag_1_s < 1e-9 else (1.0 - decay) / drag_1_s
    return np.concatenate([np.zeros((len(mean), 1)), lfilter([step], [1, -decay], mean, axis=1)], axis=1)


def _rotations(rpy: Array) -> Array:
    """R_WB of roll, pitch, yaw (n, 3), shape (n, 3, 3); `companion.core.frames.quat_from_rpy` has the convention."""
    (sr, sp, sy), (cr, cp, cy) = np.sin(rpy).T, np.cos(rpy).T
    rows = [
        [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
        [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
        [-sp, cp * sr, cp * cr],
    ]
    return np.moveaxis(np.array(rows), 2, 0)


def _means(signal: Signal, grid: Array) -> Array:
    """Mean of the samples within half a step of every grid time, or the line between samples where there are none."""
    sums = np.concatenate([np.zeros((1, 3)), np.cumsum(signal.value, axis=0)])
    first = np.searchsorted(signal.t_s, grid - STEP_S / 2)
    last = np.searchsorted(signal.t_s, grid + STEP_S / 2)
    counts = (last - first)[..., None]
    means = (sums[last] - sums[first]) / np.maximum(counts, 1)
    return np.where(counts > 0, means, signal.at(grid.ravel()).reshape(*grid.shape, 3))
