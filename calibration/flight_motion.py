"""Thrust and drag from how the velocity goes on: k_T against voltage, linear drag, rotor drag.

    v̇ = k_T (U / U_ref)^n u_f R e_z - g e_z - D v + c,     u_f: the command after its delay and lag

with the attitude R that was measured, the thrust command u, the battery's voltage U, and a constant c that takes mean
wind and the error of the horizon. It is the flight model of docs/method.md. The flight is cut into windows; in each the
model runs from a velocity of its own through the whole window (a hundred steps; nothing measured but attitude, command
and voltage goes in), and the parameters are those with the least squared difference to

- the velocity of the autopilot's estimator, and
- where there is one, the accelerometer: R^T (v̇ + g e_z) + b with an unknown bias b. It sees drag directly (R. Leishman,
  J. Macdonald, R. Beard, T. McLain, IEEE Control Systems 34(1), 2014) and thrust without the estimator's lag.

Each is weighted by what the model leaves of it. k_T, c, b and the velocities at the start of the windows enter linearly
and are solved for (variable projection).

The exponent n of the voltage is told by few logs alone. So the vehicle file's counts as one more measurement of it,
uncertain by EXPONENT_PRIOR_STD, and what is used is the mean of both, weighted by certainty.

Two forms of drag are compared: *linear*, D v in the world's axes, as the vehicle file has it, and *rotor drag*, which
acts in the plane of the rotors and grows with their speed, -d_r √(T / T_mean) (I - e_z e_z^T) v in B (for the form:
M. Faessler, A. Franchi, D. Scaramuzza, IEEE RA-L 3(2), 2018; rotor speed as √T).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import least_squares
from scipy.stats import theilslopes

from calibration.flight_data import Flight, Span
from calibration.flight_windows import STEP_S, Windows, run
from calibration.response import at_bound, block_covariance, jacobian, student_half_width
from companion.frames import GRAVITY_M_S2

RANGES = {  # as the vehicle file's
    "exponent": (0.0, 3.0),
    "thrust_lag_s": (0.0, 0.3),
    "drag_horizontal": (0.0, 5.0),
    "drag_vertical": (0.0, 5.0),
}
START = {"exponent": 1.0, "thrust_lag_s": 0.06, "drag_horizontal": 0.3, "drag_vertical": 0.1}
STEPS = {"exponent": 0.02, "thrust_lag_s": 0.004, "drag_horizontal": 0.01, "drag_vertical": 0.01}
NOISE = (0.1, 1.0)  # velocity [m/s], accelerometer [m/s²]: weights to begin with
PASSES = 3  # of weighting anew

VOLTAGE_SPREAD_MIN = 0.02  # of the voltage, 5 to 95 %: with less its exponent is noise
EXPONENT_PRIOR_STD = 0.75  # between PX4's own compensation (0) and bare motors (1.5), either may be meant
EXPONENT_SURE = 0.5  # half-width of its interval: one that is less certain is not written
SPEED_MIN_M_S = 0.5  # RMS, for a horizontal drag
CLIMB_MIN_M_S = 0.5  # RMS, for a vertical one
THRUST_SPREAD_MIN = 0.02  # standard deviation of the command over its mean, for the lag of thrust


@dataclass(frozen=True)
class Trend:
    """k_T of every window against its mean voltage, and the slope d ln k_T / d ln U with its 95 % interval."""

    voltage_v: np.ndarray
    coefficient_m_s2: np.ndarray
    exponent: float
    low: float
    high: float


@dataclass(frozen=True)
class Motion:
    """What was found; None: the log does not tell it, and `missing` says why. Intervals: half-widths of 95 %."""

    thrust_coefficient_m_s2: float  # at reference_voltage_v, the middle of the log's
    reference_voltage_v: float
    voltage_exponent: float
    exponent_fitted: bool
    thrust_lag_s: float  # half of it delay, half of it lag
    drag_horizontal_1_s: float | None
    drag_vertical_1_s: float | None
    constant_m_s2: tuple[float, float]  # east, north
    velocity_rms_m_s: float  # error at all times of the windows it was tried on
    speed_rms_m_s: float
    voltage_spread_v: tuple[float, float]
    rotor_drag_1_s: float | None = None
    rotor_velocity_rms_m_s: float | None = None
    trend: Trend | None = None
    intervals: dict[str, float] = field(default_factory=dict)
    at_bound: tuple[str, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)
    windows: Windows | None = None
    velocity_W: np.ndarray | None = None  # simulated, (windows, samples, 3)


class _Problem:
    """Residuals over the nonlinear parameters p, by name; the linear ones are solved for.

    Rows: velocity samples of every used axis, then the accelerometer's. `weights`: one per row.
    rotor_velocity: velocities (windows, samples, 3) that make rotor drag; with it linear drag in the plane is left out.
    """

    def __init__(self, windows: Windows, axes: tuple[bool, bool], reference_v: float) -> None:
        self.w, self.reference_v = windows, reference_v
        self.axes = [i for i, used in enumerate((axes[0], axes[0], axes[1])) if used]
        n, grid = len(windows.t_s), windows.grid
        self.group = np.zeros(n * len(self.axes), dtype=int)
        self.t_s = np.tile(windows.t_s, len(self.axes))
        self.window = np.tile(windows.window, len(self.axes))
        if windows.accelerometer is not None:
            m = grid.size * len(self.axes)
            self.group = np.concatenate([self.group, np.ones(m, dtype=int)])
            self.t_s = np.concatenate([self.t_s, np.tile(grid.ravel(), len(self.axes))])
            index = np.repeat(np.arange(len(windows)), grid.shape[1])
            self.window = np.concatenate([self.window, np.tile(index, len(self.axes))])
        self.weights = 1.0 / np.array(NOISE)[self.group]
        self.rotor_velocity: np.ndarray | None = None

    def force(self, p: dict[str, float]) -> np.ndarray:
        """Thrust over k_T, (windows, samples)."""
        w = self.w
        scale = 1.0 if w.voltage is None else (w.voltage / self.reference_v) ** p["exponent"]
        return w.thrust(0.5 * p["thrust_lag_s"], 0.5 * p["thrust_lag_s"]) * scale

    def _accelerations(self, p: dict[str, float]) -> list[np.ndarray]:
        """What makes the velocity, each (windows, samples, 3) for one unit: gravity, then the linear parameters."""
        force = self.force(p)
        gravity = np.zeros((*force.shape, 3))
        gravity[..., 2] = -GRAVITY_M_S2
        parts = [gravity, force[..., None] * self.w.axis]
        for i in self.axes[:-1] if 2 in self.axes else self.axes:
            constant = np.zeros_like(gravity)
            constant[..., i] = 1.0
            parts.append(constant)
        if self.rotor_velocity is not None:
            share = np.sqrt(np.maximum(force, 0.0) / max(float(force.mean()), 1e-9))
            v, axis = self.rotor_velocity, self.w.axis
            parts.append(-share[..., None] * (v - np.sum(v * axis, axis=2, keepdims=True) * axis))
        return parts

    def drags(self, p: dict[str, float]) -> tuple[float, float, float]:
        flat = 0.0 if self.rotor_velocity is not None else p["drag_horizontal"]
        return flat, flat, p["drag_vertical"]

    def velocities(self, p: dict[str, float]) -> list[np.ndarray]:
        """From rest, for one unit of each of `_accelerations`."""
        drags = self.drags(p)
        return [np.stack([run(a[..., i], drags[i]) for i in range(3)], axis=2) for a in self._accelerations(p)]

    def starts(self, p: dict[str, float]) -> np.ndarray:
        """How much of a start velocity is left, (samples, 3)."""
        return np.exp(-np.outer(STEP_S * np.arange(self.w.grid.shape[1]), self.drags(p)))

    def rows(self, p: dict[str, float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Weighted (measurement less what is known (n,), linear parameters (n, m), start velocities (n, 3))."""
        w, drags = self.w, self.drags(p)
        parts, accelerations = self.velocities(p), self._accelerations(p)
        left = np.broadcast_to(self.starts(p), w.velocity.shape)
        known, columns, starts = [], [], []
        for i in self.axes:
            values = [w.at_samples(part[..., i]) for part in parts]
            known.append(w.measured[:, i] - values[0])
            columns.append(np.column_stack(values[1:]))
            starts.append(np.outer(w.at_samples(left[..., i]), np.eye(3)[i]))
        if w.accelerometer is not None:
            biases = len(self.axes)
            columns = [np.column_stack([c, np.zeros((len(c), biases))]) for c in columns]
            # Felt is all but gravity: in W, then seen in B. The constant counts as horizon error and is not felt.
            felt = [a - np.array(drags) * v for a, v in zip(accelerations, parts, strict=True)]
            felt[0] = felt[0] - accelerations[0]
            for j in range(2, 2 + len([i for i in self.axes if i < 2])):
                felt[j] = felt[j] - accelerations[j]
            seen = [np.einsum("wtij,wti->wtj", w.R_WB, f) for f in felt]
            for number, i in enumerate(self.axes):
                known.append((w.accelerometer[..., i] - seen[0][..., i]).ravel())
                ones = np.outer(np.ones(w.grid.size), np.eye(biases)[number])
                columns.append(np.column_stack([*(s[..., i].ravel() for s in seen[1:]), ones]))
                starts.append((-w.R_WB[..., :, i] * np.array(drags) * left).reshape(-1, 3))
        weights = self.weights[:, None]
        return np.concatenate(known) * self.weights, np.concatenate(columns) * weights, np.concatenate(starts) * weights

    def reduced(self, p: dict[str, float]) -> tuple[np.ndarray, np.ndarray]:
        """`rows` with the start velocity of every window that suits best taken out of both."""
        known, columns, starts = self.rows(p)
        both = np.column_stack([known, columns])
        both = both - np.einsum("ni,nij->nj", starts, self._start_solutions(starts, both)[self.window])
        return both[:, 0], both[:, 1:]

    def _start_solutions(self, starts: np.ndarray, both: np.ndarray) -> np.ndarray:
        """Least-squares start velocities of every window for every column, (windows, 3, columns)."""
        count = len(self.w)
        normal = np.stack(
            [np.stack([self._sum(starts[:, i] * starts[:, j], count) for j in range(3)]) for i in range(3)]
        )
        right = np.stack([np.stack([self._sum(starts[:, i] * c, count) for c in both.T]) for i in range(3)])
        normal = np.moveaxis(normal, 2, 0) + 1e-9 * np.eye(3)
        return np.linalg.solve(normal, np.moveaxis(right, 2, 0))

    def _sum(self, values: np.ndarray, count: int) -> np.ndarray:
        return np.bincount(self.window, values, count)

    def solve(self, p: dict[str, float]) -> tuple[np.ndarray, np.ndarray]:
        """(linear parameters, weighted residual)."""
        known, columns = self.reduced(p)
        linear, *_ = np.linalg.lstsq(columns, known, rcond=None)
        return linear, columns @ linear - known

    def weigh(self, residual: np.ndarray) -> None:
        """Weights from what the model leaves of each kind of measurement."""
        left = residual / self.weights
        rms = [np.sqrt(np.mean(left[self.group == g] ** 2)) for g in range(self.group.max() + 1)]
        self.weights = 1.0 / np.maximum(rms, 1e-4)[self.group]

    def simulated(self, p: dict[str, float], linear: np.ndarray) -> np.ndarray:
        """Velocities with the parameters found, from the start that suits each window, (windows, samples, 3)."""
        known, columns, starts = self.rows(p)
        rest = known - columns @ linear
        start = self._start_solutions(starts, rest[:, None])[..., 0]
        parts = self.velocities(p)
        total = parts[0] + sum(k * part for k, part in zip(linear, parts[1:], strict=False))
        return total + start[:, None, :] * self.starts(p)

    def velocity_rms(self, p: dict[str, float], linear: np.ndarray) -> float:
        """Error of the simulated velocity over all used axes [m/s]."""
        simulated = self.simulated(p, linear)
        errors = [self.w.at_samples(simulated[..., i]) - self.w.measured[:, i] for i in self.axes]
        return float(np.sqrt(np.mean(np.square(errors))))


def fit_motion(
    flight: Flight, spans: Sequence[Span], exponent: float, check: tuple[Sequence[Span], Sequence[Span]] | None = None
) -> Motion:
    """k_T, drag and the lag of thrust over the spans (`flight_windows.usable_spans`; at least two windows).

    exponent: the vehicle file's, of the voltage. check: (spans of a fit of its own, spans on which its error is
    measured); without it the error is that on the spans of the fit.
    """
    windows = Windows(flight, spans)
    problem = _Problem(windows, flight.velocity_axes, _middle_voltage(windows))
    missing = _missing(flight, windows)
    exponent = 0.0 if windows.voltage is None else exponent
    p, free = _fit(problem, missing, exponent)
    linear, residual = problem.solve(p)
    intervals = _intervals(problem, p, free, linear, residual)
    if "exponent" in intervals:
        weight = EXPONENT_PRIOR_STD**2 / (EXPONENT_PRIOR_STD**2 + (intervals["exponent"] / 2.0) ** 2)
        if intervals["exponent"] > EXPONENT_SURE:
            missing["exponent"] = (
                f"uncertain by {intervals['exponent']:.1f}: too little change of voltage, or too quick"
            )
        exponent = weight * p["exponent"] + (1.0 - weight) * exponent
        p, _ = _fit(problem, missing | {"exponent": "known now"}, exponent)
        linear, _ = problem.solve(p)
    volts = (0.0, 0.0) if windows.voltage is None else tuple(np.percentile(windows.voltage, [5, 95]).tolist())
    horizontal = windows.velocity[..., :2] if flight.velocity_axes[0] else np.zeros(1)
    simulated = problem.simulated(p, linear)
    motion = Motion(
        thrust_coefficient_m_s2=float(linear[0]),
        reference_voltage_v=problem.reference_v,
        voltage_exponent=p["exponent"],
        exponent_fitted="exponent" not in missing,
        thrust_lag_s=p["thrust_lag_s"],
        drag_horizontal_1_s=p["drag_horizontal"] if "drag_horizontal" in free else None,
        drag_vertical_1_s=p["drag_vertical"] if "drag_vertical" in free else None,
        constant_m_s2=tuple(linear[1:3].tolist()) if flight.velocity_axes[0] else (0.0, 0.0),
        velocity_rms_m_s=problem.velocity_rms(p, linear),
        speed_rms_m_s=float(np.sqrt(np.mean(np.sum(horizontal**2, axis=-1)))),
        voltage_spread_v=volts,
        trend=_trend(problem, p) if windows.voltage is not None else None,
        intervals=intervals,
        at_bound=tuple(name for name in free if at_bound(p[name], RANGES[name])),
        missing=missing,
        windows=windows,
        velocity_W=simulated,
    )
    rotor, rotor_rms = None, None
    if motion.drag_horizontal_1_s is not None:
        rotor, rotor_rms = _rotor(problem, p, simulated)
    motion = replace(motion, rotor_drag_1_s=rotor, rotor_velocity_rms_m_s=rotor_rms)
    return motion if check is None else _checked(motion, flight, *check)


def _checked(motion: Motion, flight: Flight, seen: Sequence[Span], held_out: Sequence[Span]) -> Motion:
    """The motion with the errors of a fit that saw only a part, on the rest."""
    fit = _Problem(Windows(flight, seen), flight.velocity_axes, motion.reference_voltage_v)
    p, _ = _fit(fit, motion.missing | {"exponent": "known"}, motion.voltage_exponent)
    linear, _ = fit.solve(p)
    rest = _Problem(Windows(flight, held_out), flight.velocity_axes, motion.reference_voltage_v)
    motion = replace(motion, velocity_rms_m_s=rest.velocity_rms(p, linear))
    if motion.rotor_drag_1_s is None:
        return motion
    fit.rotor_velocity, rest.rotor_velocity = fit.simulated(p, linear), rest.simulated(p, linear)
    linear, _ = fit.solve(p)
    return replace(motion, rotor_velocity_rms_m_s=rest.velocity_rms(p, linear))


def _fit(problem: _Problem, missing: dict[str, str], exponent: float) -> tuple[dict[str, float], list[str]]:
    """(all nonlinear parameters, names of those that were fitted)."""
    fixed = {"exponent": exponent, "thrust_lag_s": START["thrust_lag_s"], "drag_horizontal": 0.0, "drag_vertical": 0.0}
    free = [name for name in RANGES if name not in missing]
    if not free:
        problem.weigh(problem.solve(fixed)[1])
        return fixed, free

    def full(p: np.ndarray) -> dict[str, float]:
        return fixed | dict(zip(free, p.tolist(), strict=True))

    low, high = np.array([RANGES[name] for name in free]).T
    at = np.array([START[name] for name in free])
    scale = [STEPS[name] * 10 for name in free]
    for _ in range(PASSES):
        best = least_squares(
            lambda p: problem.solve(full(p))[1], at, bounds=(low, high), x_scale=scale, diff_step=1e-3, xtol=1e-6
        )
        at = np.clip(best.x, low + 1e-6, high - 1e-6)
        problem.weigh(best.fun)
    return full(best.x), free


def _rotor(problem: _Problem, p: dict[str, float], simulated: np.ndarray) -> tuple[float, float]:
    """(rotor drag [1/s] at the mean thrust, error of the velocity with it instead of linear drag in the plane)."""
    problem.rotor_velocity = simulated
    linear, _ = problem.solve(p)
    rms = problem.velocity_rms(p, linear)
    problem.rotor_velocity = None
    return float(linear[3]), rms


def _middle_voltage(windows: Windows) -> float:
    return 1.0 if windows.voltage is None else float(np.percentile(windows.voltage, [5, 95]).mean())


def _missing(flight: Flight, windows: Windows) -> dict[str, str]:
    """What this log cannot tell, and why."""
    horizontal, vertical = flight.velocity_axes
    missing = {}
    speed = float(np.sqrt(np.mean(np.sum(windows.velocity[..., :2] ** 2, axis=2))))
    climb = float(np.sqrt(np.mean(windows.velocity[..., 2] ** 2)))
    if not horizontal:
        missing["drag_horizontal"] = "the log has no valid horizontal velocity (no satellites or other source)"
    elif speed < SPEED_MIN_M_S:
        missing["drag_horizontal"] = f"flown at {speed:.1f} m/s RMS; at least {SPEED_MIN_M_S:g} m/s is needed"
    if not vertical:
        missing["drag_vertical"] = "the log has no valid vertical velocity"
    elif climb < CLIMB_MIN_M_S:
        missing["drag_vertical"] = f"climbed at {climb:.2f} m/s RMS; at least {CLIMB_MIN_M_S:g} m/s is needed"
    if windows.voltage is None:
        missing["exponent"] = "no battery voltage in the log"
    else:
        low, high = np.percentile(windows.voltage, [5, 95])
        if high - low < VOLTAGE_SPREAD_MIN * high:
            need = f"a spread of {100 * VOLTAGE_SPREAD_MIN:.0f} % is needed"
            missing["exponent"] = f"the voltage stayed between {low:.2f} and {high:.2f} V; {need}"
    command = windows.thrust(0.0, 0.0)
    if command.std() < THRUST_SPREAD_MIN * command.mean():
        missing["thrust_lag_s"] = "the thrust command hardly moved"
    return missing


def _trend(problem: _Problem, p: dict[str, float]) -> Trend | None:
    """k_T window by window, without any assumption on voltage, and its slope by Theil and Sen (robust)."""
    known, columns = problem.reduced(p | {"exponent": 0.0})
    linear, *_ = np.linalg.lstsq(columns, known, rcond=None)
    rest = known - columns[:, 1:] @ linear[1:]
    count = len(problem.w)
    top = np.bincount(problem.window, rest * columns[:, 0], count)
    bottom = np.bincount(problem.window, columns[:, 0] ** 2, count)
    good = bottom > 0.1 * np.median(bottom)
    k, volts = top[good] / bottom[good], problem.w.voltage.mean(axis=1)[good]
    if len(k) < 4 or (k <= 0).any() or np.ptp(volts) < 1e-3:
        return None
    slope, _, low, high = theilslopes(np.log(k), np.log(volts), 0.95)
    return Trend(volts, k, float(slope), float(low), float(high))


def _intervals(
    problem: _Problem, found: dict[str, float], free: list[str], linear: np.ndarray, residual: np.ndarray
) -> dict[str, float]:
    """Half-widths of the 95 % intervals; residuals of a block may depend on each other, of all axes together."""
    names = [*free, "thrust_coefficient"]

    def model(p: np.ndarray) -> np.ndarray:
        known, columns = problem.reduced(found | dict(zip(free, p[: len(free)].tolist(), strict=True)))
        return columns @ p[len(free) :] - known

    p = np.concatenate([[found[name] for name in free], linear])
    steps = np.concatenate([[STEPS[name] for name in free], np.full(len(linear), 1e-3)])
    covariance, blocks = block_covariance(jacobian(model, p, steps), residual, problem.t_s)
    half = student_half_width(blocks, len(p)) * np.sqrt(np.maximum(np.diag(covariance), 0.0))
    return dict(zip(names, half[: len(names)].tolist(), strict=True))
