"""Thrust and drag from the course of the velocity: k_T over voltage, linear drag, rotor drag.

    v̇ = k_T (U / U_ref)^n u_f R e_z - g e_z - D v + c,     u_f: the command after its delay and lag

with the measured attitude R, the thrust command u, the battery's voltage U, and a constant c for mean wind and the
error of the horizon. It is the flight model of docs/method.md. The flight is cut into windows. In each the model runs
from a start velocity of its own through the whole window (a hundred steps; of the measurements only attitude, command
and voltage enter), and the parameters minimise the squared difference to

- the velocity of the autopilot's estimator, and
- the accelerometer, if there is one: R^T (v̇ + g e_z) + b with unknown bias b. It measures drag directly (R. Leishman,
  J. Macdonald, R. Beard, T. McLain, IEEE Control Systems 34(1), 2014) and thrust without the estimator's lag.

Each is weighted by its residual. k_T, c, b and the velocities at the start of the windows enter linearly
and are solved for (variable projection).

Drag is fitted in a second step, together with the curvature of thrust over command: a climb needs more thrust by its drag,
so a thrust that is 20 % flatter or steeper than its level says makes the vertical drag wrong by a third. Its interval
contains, besides that of the fit, the distance to a third fit in which every window has constants of its own. They absorb
slow wind and slow errors of attitude and velocity, so the distance shows how much of the drag these may have made.

Few logs determine the exponent n of the voltage. So that of the vehicle that flew counts as one more measurement,
uncertain by EXPONENT_PRIOR_STD, and the weighted mean of both is used.

Two forms of drag are compared: *linear*, D v in the world's axes, as the vehicle file has it, and *rotor drag*, which
acts in the plane of the rotors and grows with their speed, -d_r √(T / T_mean) (I - e_z e_z^T) v in B (for the form:
M. Faessler, A. Franchi, D. Scaramuzza, IEEE RA-L 3(2), 2018; rotor speed as √T).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import least_squares
from scipy.stats import theilslopes

from calibration.identification.flight_data import FlightData, Span
from calibration.identification.model import FlightModel
from calibration.identification.response import at_bound, block_covariance, jacobian, student_half_width
from calibration.identification.windows import Windows
from companion.core.arrays import Array

RANGES = {  # as the vehicle file's
    "exponent": (0.0, 3.0),
    "thrust_lag_s": (0.0, 0.3),
    "drag_horizontal": (0.0, 5.0),
    "drag_vertical": (0.0, 5.0),
}
START = {"exponent": 1.0, "thrust_lag_s": 0.06, "drag_horizontal": 0.3, "drag_vertical": 0.1}
STEPS = {"exponent": 0.02, "thrust_lag_s": 0.004, "drag_horizontal": 0.01, "drag_vertical": 0.01}
DRAGS = ("drag_horizontal", "drag_vertical")
PASSES = 3  # of fitting and weighting
STEPS_MAX = 6  # of a fit that begins at the result of another

VOLTAGE_SPREAD_MIN = 0.02  # of the voltage, 5 to 95 %: with less its exponent is noise
EXPONENT_PRIOR_STD = 0.75  # between PX4's own compensation (0) and uncompensated motors (1.5)
EXPONENT_SURE = 0.5  # half-width of its interval: a less certain one is not written
SPEED_MIN_M_S = 0.5  # RMS, for a horizontal drag
CLIMB_MIN_M_S = 0.5  # RMS, for a vertical one
THRUST_SPREAD_MIN = 0.02  # standard deviation of the command over its mean, for the lag of thrust


@dataclass(frozen=True)
class Trend:
    """k_T of every window against its mean voltage, and the slope d ln k_T / d ln U with its 95 % interval."""

    voltage_v: Array
    coefficient_m_s2: Array
    exponent: float
    low: float
    high: float


@dataclass(frozen=True)
class Forces:
    """The result; None: the log does not determine it, and `missing` says why. Intervals: half-widths of 95 %."""

    thrust_coefficient_m_s2: float  # at reference_voltage_v, the middle of the log's
    reference_voltage_v: float
    voltage_exponent: float
    exponent_fitted: bool
    thrust_lag_s: float  # half of it delay, half of it lag
    drag_horizontal_1_s: float | None
    drag_vertical_1_s: float | None
    constant_m_s2: tuple[float, float]  # east, north
    velocity_rms_m_s: float  # error in the windows on which the fit was checked
    speed_rms_m_s: float
    voltage_spread_v: tuple[float, float]
    windows: Windows
    velocity_W: Array  # simulated, (windows, samples, 3)
    rotor_drag_1_s: float | None = None
    rotor_velocity_rms_m_s: float | None = None
    trend: Trend | None = None
    curvature: float = 0.0  # c / k_T of thrust k_T u + c (u / ū - 1) u: 0 is a line, ū about the hover command
    intervals: dict[str, float] = field(default_factory=dict)
    at_bound: tuple[str, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)


def fit_forces(
    flight: FlightData,
    spans: Sequence[Span],
    exponent: float,
    check: tuple[Sequence[Span], Sequence[Span]] | None = None,
) -> Forces:
    """k_T, drag and the lag of thrust over the spans (`windows.usable_spans`; at least two windows).

    exponent: of the voltage, of the vehicle that flew. check: (spans of a separate fit, spans on which its error is
    measured); None: the error is that on the spans of the fit.
    """
    windows = Windows(flight, spans)
    model = FlightModel(windows, flight.velocity_axes, _middle_voltage(windows))
    missing = _missing(flight, windows)
    exponent = 0.0 if windows.voltage is None else exponent
    p, free = _fit(model, missing, exponent)
    linear, residual = model.solve(p)
    intervals = _intervals(model, p, free, linear, residual)
    if "exponent" in intervals:
        weight = EXPONENT_PRIOR_STD**2 / (EXPONENT_PRIOR_STD**2 + (intervals["exponent"] / 2.0) ** 2)
        if intervals["exponent"] > EXPONENT_SURE:
            missing["exponent"] = (
                f"uncertain by {intervals['exponent']:.1f}: too little change of voltage, or too quick"
            )
        exponent = weight * p["exponent"] + (1.0 - weight) * exponent
        p, _ = _fit(model, {*missing, "exponent"}, exponent, p)
        linear, _ = model.solve(p)
    curvature, half = _curvature(model, p)
    drags = [name for name in DRAGS if name in free]
    if drags:
        p, fitted, curvature, half = _drags(model, p, free, drags)
        intervals |= fitted
        linear, _ = model.solve(p)
    volts = (0.0, 0.0) if windows.voltage is None else tuple(np.percentile(windows.voltage, [5, 95]).tolist())
    horizontal = windows.velocity[..., :2] if flight.velocity_axes[0] else np.zeros(1)
    simulated = model.simulated(p, linear)
    forces = Forces(
        thrust_coefficient_m_s2=float(linear[0]),
        reference_voltage_v=model.reference_v,
        voltage_exponent=p["exponent"],
        exponent_fitted="exponent" not in missing,
        thrust_lag_s=p["thrust_lag_s"],
        drag_horizontal_1_s=p["drag_horizontal"] if "drag_horizontal" in free else None,
        drag_vertical_1_s=p["drag_vertical"] if "drag_vertical" in free else None,
        constant_m_s2=tuple(linear[1:3].tolist()) if flight.velocity_axes[0] else (0.0, 0.0),
        velocity_rms_m_s=model.velocity_rms(p, linear),
        speed_rms_m_s=float(np.sqrt(np.mean(np.sum(horizontal**2, axis=-1)))),
        voltage_spread_v=volts,
        trend=None if windows.voltage is None else _trend(model, p, windows.voltage),
        intervals=intervals,
        at_bound=tuple(name for name in free if at_bound(p[name], RANGES[name])),
        missing=missing,
        windows=windows,
        velocity_W=simulated,
    )
    rotor, rotor_rms = None, None
    if forces.drag_horizontal_1_s is not None:
        rotor, rotor_rms = _rotor(model, p, simulated)
    forces = replace(forces, rotor_drag_1_s=rotor, rotor_velocity_rms_m_s=rotor_rms, curvature=curvature)
    forces.intervals["curvature"] = half
    return forces if check is None else _checked(forces, flight, p, *check)


def _checked(
    forces: Forces, flight: FlightData, p: dict[str, float], seen: Sequence[Span], held_out: Sequence[Span]
) -> Forces:
    """The same, with the errors on the held-out spans of a fit to the others that started at p."""
    fit = FlightModel(Windows(flight, seen), flight.velocity_axes, forces.reference_voltage_v)
    p, _ = _fit(fit, {*forces.missing, "exponent"}, forces.voltage_exponent, p)
    linear, _ = fit.solve(p)
    rest = FlightModel(Windows(flight, held_out), flight.velocity_axes, forces.reference_voltage_v)
    forces = replace(forces, velocity_rms_m_s=rest.velocity_rms(p, linear))
    if forces.rotor_drag_1_s is None:
        return forces
    fit.rotor_velocity, rest.rotor_velocity = fit.simulated(p, linear), rest.simulated(p, linear)
    linear, _ = fit.solve(p)
    return replace(forces, rotor_velocity_rms_m_s=rest.velocity_rms(p, linear))


def _fit(
    model: FlightModel, missing: Collection[str], exponent: float, near: dict[str, float] | None = None
) -> tuple[dict[str, float], list[str]]:
    """(all nonlinear parameters, names of those that were fitted). near: start values; None: `START`."""
    fixed = {"exponent": exponent, "thrust_lag_s": START["thrust_lag_s"], "drag_horizontal": 0.0, "drag_vertical": 0.0}
    free = [name for name in RANGES if name not in missing]
    if not free:
        model.weigh(model.solve(fixed)[1])
        return fixed, free

    def full(p: Array) -> dict[str, float]:
        return fixed | dict(zip(free, p.tolist(), strict=True))

    low, high = np.array([RANGES[name] for name in free]).T
    at = np.array([(near or START)[name] for name in free])
    scale = [STEPS[name] * 10 for name in free]
    for _ in range(PASSES if near is None else 1):
        model.weigh(model.solve(full(at))[1])
        at = np.clip(at, low + 1e-6, high - 1e-6)
        best = least_squares(
            lambda p: model.solve(full(p))[1], at, bounds=(low, high), x_scale=scale, diff_step=1e-3, xtol=1e-6
        )
        at = best.x
    return full(at), free


def _drags(
    model: FlightModel, p: dict[str, float], free: Sequence[str], drags: Sequence[str]
) -> tuple[dict[str, float], dict[str, float], float, float]:
    """(p with the drags of the second step, half-widths of their intervals, curvature, its half-width)."""
    weights, model.curved = model.weights, True
    varied = [name for name in free if name != "exponent"]
    found = _refit(model, p, varied)
    linear, residual = model.solve(found)
    intervals = _intervals(model, found, varied, linear, residual)
    curvature = float(linear[model.extra] / linear[0])
    model.adrift = True
    other = _refit(model, found, drags)
    loose, _ = model.solve(other)
    model.adrift = model.curved = False
    model.weights = weights
    halves = {name: float(np.hypot(intervals[name], other[name] - found[name])) for name in drags}
    half = float(np.hypot(intervals["curvature"], loose[model.extra] / loose[0] - curvature))
    return p | {name: found[name] for name in drags}, halves, curvature, half


def _refit(model: FlightModel, p: dict[str, float], free: Sequence[str]) -> dict[str, float]:
    """p with the parameters `free` fitted again, from p on."""

    def full(x: Array) -> dict[str, float]:
        return p | dict(zip(free, x.tolist(), strict=True))

    model.weigh(model.solve(p)[1])
    low, high = np.array([RANGES[name] for name in free]).T
    best = least_squares(
        lambda x: model.solve(full(x))[1],
        np.clip([p[name] for name in free], low + 1e-6, high - 1e-6),
        bounds=(low, high),
        x_scale=[STEPS[name] * 10 for name in free],
        diff_step=1e-3,
        xtol=1e-4,
        max_nfev=STEPS_MAX,
    )
    return full(best.x)


def _rotor(model: FlightModel, p: dict[str, float], simulated: Array) -> tuple[float, float]:
    """(rotor drag [1/s] at the mean thrust, error of the velocity with it instead of linear drag in the plane)."""
    model.rotor_velocity = simulated
    linear, _ = model.solve(p)
    rms = model.velocity_rms(p, linear)
    model.rotor_velocity = None
    return float(linear[model.extra]), rms


def _curvature(model: FlightModel, p: dict[str, float]) -> tuple[float, float]:
    """(curvature of thrust, half-width of its interval), with all other parameters as fitted."""
    model.curved = True
    linear, residual = model.solve(p)
    _, columns = model.reduced(p)
    model.curved = False
    covariance, blocks = block_covariance(columns, residual, model.t_s)
    half = student_half_width(blocks, len(linear)) * np.sqrt(max(covariance[model.extra, model.extra], 0.0))
    return float(linear[model.extra] / linear[0]), float(half / linear[0])


def _middle_voltage(windows: Windows) -> float:
    return 1.0 if windows.voltage is None else float(np.percentile(windows.voltage, [5, 95]).mean())


def _missing(flight: FlightData, windows: Windows) -> dict[str, str]:
    """The parameters that this log does not determine, and why."""
    horizontal, vertical = flight.velocity_axes
    missing = {}
    speed = float(np.sqrt(np.mean(np.sum(windows.velocity[..., :2] ** 2, axis=2))))
    climb = float(np.sqrt(np.mean(windows.velocity[..., 2] ** 2)))
    if not horizontal:
        missing["drag_horizontal"] = "the log has no valid horizontal velocity (no GNSS or other source)"
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
        missing["thrust_lag_s"] = "the thrust command was nearly constant"
    return missing


def _trend(model: FlightModel, p: dict[str, float], voltage: Array) -> Trend | None:
    """k_T of each window, without any assumption on voltage, and its slope by Theil and Sen (robust)."""
    known, columns = model.reduced(p | {"exponent": 0.0})
    linear, *_ = np.linalg.lstsq(columns, known, rcond=None)
    rest = known - columns[:, 1:] @ linear[1:]
    count = len(model.w)
    top = np.bincount(model.window, rest * columns[:, 0], count)
    bottom = np.bincount(model.window, columns[:, 0] ** 2, count)
    good = bottom > 0.1 * np.median(bottom)
    k, volts = top[good] / bottom[good], voltage.mean(axis=1)[good]
    if len(k) < 4 or (k <= 0).any() or np.ptp(volts) < 1e-3:
        return None
    slope, _, low, high = theilslopes(np.log(k), np.log(volts), 0.95)
    return Trend(volts, k, float(slope), float(low), float(high))


def _intervals(
    model: FlightModel, found: dict[str, float], free: list[str], linear: Array, residual: Array
) -> dict[str, float]:
    """Half-widths of the 95 % intervals; residuals of one block, all axes together, may be correlated."""
    names = [*free, "thrust_coefficient"]

    def error(p: Array) -> Array:
        known, columns = model.reduced(found | dict(zip(free, p[: len(free)].tolist(), strict=True)))
        difference: Array = columns @ p[len(free) :] - known
        return difference

    p = np.concatenate([[found[name] for name in free], linear])
    steps = np.concatenate([[STEPS[name] for name in free], np.full(len(linear), 1e-3)])
    covariance, blocks = block_covariance(jacobian(error, p, steps), residual, model.t_s)
    half = student_half_width(blocks, len(p)) * np.sqrt(np.maximum(np.diag(covariance), 0.0))
    found_half = dict(zip(names, half[: len(names)].tolist(), strict=True))
    if model.curved:
        found_half["curvature"] = float(half[len(free) + model.extra] / linear[0])
    return found_half
