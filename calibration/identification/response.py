"""The response of an attitude axis: first order plus delay, by simulation error, with 95 % intervals.

    y(t) = gain · z(t) + offset,   time_constant · ż + z = u(t - delay)

u is the setpoint, y the measured angle. The model is simulated over a whole stretch from its setpoints alone (no
measured output enters after the start), and the parameters minimise the squared difference: the output error method
(L. Ljung, System Identification, 2nd ed., ch. 7; R. Jategaonkar, Flight Vehicle System Identification,
2nd ed., ch. 4). Gain and offset enter linearly and are solved for at every step (variable projection, Golub & Pereyra,
SIAM J. Numer. Anal. 10, 1973).

**A loop of higher order.** A real attitude loop is not first order, and the nearest first order depends on the flight:
smooth flight gives a shorter time constant than steps do. So where the data determine it, a second order and a delay
are fitted, b z̈ + a ż + z = u(t - delay), and the result is the first order plus delay nearest to *its step response*,
which does not depend on the flight. Otherwise the result is the direct fit.

**Intervals.** Residuals of a flight are not independent from sample to sample, and σ² (JᵀJ)⁻¹ would be too small.
It is (JᵀJ)⁻¹ (Σ_b s_b s_bᵀ) (JᵀJ)⁻¹ with s_b = Σ Jᵀr over blocks of some seconds (K.-Y. Liang, S. Zeger, Biometrika 73,
1986: independent between blocks, anything within), and Student's t for the number of blocks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.signal import cont2discrete, lfilter, lfilter_zi
from scipy.stats import t as student_t

from calibration.identification.flight_data import Signal, Span
from companion.core.arrays import Array

STEP_S = 0.005  # of the simulation; delays are not rounded to it
WARM_UP_S = 1.0  # simulated but not counted: the commands before a stretch are not known
RATE_MAX_HZ = 100.0  # of measured samples that are compared; more only cost time
BLOCK_S = 4.0  # of the confidence intervals: longer than the correlation of residuals
CONFIDENCE = 0.95

TIME_CONSTANT_S = (0.005, 1.0)
DELAY_S = (0.0, 0.5)
GAIN = (0.5, 1.5)
SECOND_ORDER_S2 = (1e-5, 0.1)
NEAR_BOUND = 0.01  # of a range: a value closer to its edge counts as being on it
SECOND_ORDER_WORTH = 0.03  # of the squared error: the least reduction for which it is taken

START_TIME_CONSTANTS_S = (0.05, 0.12, 0.3)
START_DELAYS_S = (0.01, 0.06, 0.12, 0.25)


@dataclass(frozen=True)
class Stretch:
    """One uninterrupted piece of flight: setpoint u(t) and measured samples t_s, y of shape (n,)."""

    setpoint: Signal
    t_s: Array
    y: Array

    @property
    def counted(self) -> NDArray[np.bool_]:
        """The samples after the warm-up, (n,)."""
        after: NDArray[np.bool_] = self.t_s >= self.t_s[0] + WARM_UP_S
        return after


@dataclass(frozen=True)
class Response:
    """First order plus delay, with half-widths of its 95 % intervals."""

    time_constant_s: float
    delay_s: float
    gain: float
    offset: float
    second_order_s2: float = 0.0  # b of a second order, 0: first order
    intervals: dict[str, float] = field(
        default_factory=dict
    )  # by the names of the parameters above; empty: not computed
    at_bound: tuple[str, ...] = ()


def stretches(setpoint: Signal, measured: Signal, spans: Sequence[Span]) -> list[Stretch]:
    """Stretches of two signals (n,) over the given spans, thinned to RATE_MAX_HZ; too short ones are left out."""
    found = []
    for span in spans:
        part, commanded = measured.within(span), setpoint.within((span[0] - 2.0, span[1]))
        every = max(1, int(part.rate_hz / RATE_MAX_HZ + 0.5))
        t_s, y = part.t_s[::every], part.value[::every]
        if len(commanded) >= 3 and len(t_s) >= 10 and t_s[-1] - t_s[0] > WARM_UP_S + 1.0:
            found.append(Stretch(commanded, t_s, y))
    return found


def simulate(stretch: Stretch, time_constant_s: float, delay_s: float, second_order_s2: float = 0.0) -> Array:
    """Unit-gain response at the measured times, from rest at the first setpoint; shape (n,)."""
    t_s = stretch.t_s
    grid = np.arange(t_s[0] - delay_s, t_s[-1] - delay_s + 2 * STEP_S, STEP_S)
    u = np.diff(_integral(stretch.setpoint, grid)) / STEP_S  # mean over every step: smooth in the delay
    return np.interp(t_s - delay_s, grid[1:], _lag(u, time_constant_s, second_order_s2, STEP_S))


def _lag(u: Array, a_s: float, b_s2: float, step_s: float) -> Array:
    """The output at the end of every step of 1 / (b s² + a s + 1), from rest at u[0]; u is constant over a step."""
    if b_s2 <= 0:
        pole = np.exp(-step_s / a_s)
        z: Array = lfilter([1 - pole], [1, -pole], u, zi=[pole * u[0]])[0]
        return z
    numerator, denominator, _ = cont2discrete(([1.0], [b_s2, a_s, 1.0]), step_s, "zoh")
    numerator = numerator.ravel()[1:]  # the first is 0: output at the end, not at the beginning of the step
    response: Array = lfilter(numerator, denominator, u, zi=lfilter_zi(numerator, denominator) * u[0])[0]
    return response


def _integral(signal: Signal, t_s: Array) -> Array:
    """Integral of the signal from its first sample to t_s; before it and after its end it keeps its value."""
    t, u = signal.t_s, signal.value
    steps = np.diff(t)
    pieces = u[:-1] * steps if signal.held else 0.5 * (u[:-1] + u[1:]) * steps
    sums = np.concatenate([[0.0], np.cumsum(pieces)])
    i = np.clip(np.searchsorted(t, t_s, side="right") - 1, 0, len(t) - 1)
    h = t_s - t[i]
    area = sums[i] + u[i] * h
    if not signal.held and len(t) > 1:
        slopes = np.append(np.diff(u) / steps, 0.0)
        area += 0.5 * np.where(h > 0, slopes[i], 0.0) * h * h
    return area


def predict(stretch: Stretch, response: Response) -> Array:
    """Simulated output at the measured times, shape (n,)."""
    z = simulate(stretch, response.time_constant_s, response.delay_s, response.second_order_s2)
    return response.gain * z + response.offset


def fit_percent(pieces: Sequence[Stretch], responses: Response | Sequence[Response]) -> float:
    """100 (1 - ‖y - ŷ‖ / ‖y - mean‖) of the simulated output; 100 is perfect, 0 as good as a constant.

    responses: one for all stretches, or one for each.
    """
    each = [responses] * len(pieces) if isinstance(responses, Response) else responses
    y = np.concatenate([s.y[s.counted] for s in pieces])
    model = np.concatenate([predict(s, response)[s.counted] for s, response in zip(pieces, each, strict=True)])
    return 100.0 * (1.0 - float(np.linalg.norm(y - model) / max(float(np.linalg.norm(y - y.mean())), 1e-12)))


def fit_response(
    pieces: Sequence[Stretch], intervals: bool = True, second_order: bool = True, near: Response | None = None
) -> Response:
    """First order plus delay of at least one stretch; see the head of this module.

    second_order: whether one may be fitted; slowly sampled setpoints look like an additional order. near: the start
    value; None: a search on a grid.
    """
    first = fitted = _fit(pieces, False, near)
    if second_order:
        fitted = _fit(pieces, True, first)
    if fitted is not first and _cost(pieces, fitted) < (1.0 - SECOND_ORDER_WORTH) * _cost(pieces, first):
        nearest = nearest_first_order(fitted.time_constant_s, fitted.second_order_s2, fitted.delay_s)
        first = _levels(pieces, replace(first, time_constant_s=nearest[0], delay_s=nearest[1]))
    else:
        fitted = first
    if intervals:
        first = replace(first, intervals=_intervals(pieces, fitted))
    return replace(first, at_bound=_at_bound(first))


def nearest_first_order(a_s: float, b_s2: float, delay_s: float) -> tuple[float, float]:
    """(time constant, delay) nearest in the least-squares sense to the unit step response of 1 / (b s² + a s + 1)
    after a delay, until it has settled."""
    step_s = a_s / 100.0
    t = step_s * np.arange(1, 1501)
    step = _lag(np.concatenate([[0.0], np.ones(1500)]), a_s, b_s2, step_s)[1:]

    def error(p: Array) -> Array:
        difference: Array = np.where(t > p[1], 1 - np.exp(-np.maximum(t - p[1], 0.0) / p[0]), 0.0) - step
        return difference

    best = least_squares(error, [0.8 * a_s, 0.2 * a_s], x_scale=a_s, bounds=([0.01 * a_s, 0.0], [2 * a_s, 2 * a_s]))
    return float(best.x[0]), delay_s + float(best.x[1])


def _basis(pieces: Sequence[Stretch], p: Sequence[float]) -> Array:
    """Unit response and constant, (n, 2); p: time constant, delay, and second order if there is one."""
    z = np.concatenate([simulate(s, *p)[s.counted] for s in pieces])
    return np.column_stack([z, np.ones_like(z)])


def _levels(pieces: Sequence[Stretch], response: Response) -> Response:
    """The response with the gain and offset that fit best to its other parameters."""
    basis = _basis(pieces, (response.time_constant_s, response.delay_s, response.second_order_s2))
    (gain, offset), *_ = np.linalg.lstsq(basis, np.concatenate([s.y[s.counted] for s in pieces]), rcond=None)
    return replace(response, gain=float(gain), offset=float(offset))


def _cost(pieces: Sequence[Stretch], response: Response) -> float:
    return sum(float(np.sum((s.y - predict(s, response))[s.counted] ** 2)) for s in pieces)


def _fit(pieces: Sequence[Stretch], second_order: bool, near: Response | None = None) -> Response:
    y = np.concatenate([s.y[s.counted] for s in pieces])

    def residual(p: Array) -> Array:
        basis = _basis(pieces, p.tolist())
        levels, *_ = np.linalg.lstsq(basis, y, rcond=None)
        difference: Array = basis @ levels - y
        return difference

    low, high = np.array([TIME_CONSTANT_S, DELAY_S, *([SECOND_ORDER_S2] if second_order else [])]).T
    last, scale = ([0.002], [0.005]) if second_order else ([], [])
    if near is None:
        starts = [np.array([tau, delay, *last]) for tau in START_TIME_CONSTANTS_S for delay in START_DELAYS_S]
        start = min(starts, key=lambda p: float(np.sum(residual(p) ** 2)))
    else:
        late = (
            min(0.3 * near.delay_s, 0.03) if second_order else 0.0
        )  # part of the delay of a first order belongs to the second order
        start = np.clip([near.time_constant_s + late, near.delay_s - late, *last], 1.01 * low + 1e-6, 0.99 * high)
    best = least_squares(residual, start, bounds=(low, high), x_scale=[0.05, 0.05, *scale], diff_step=1e-3)
    time_constant_s, delay_s = float(best.x[0]), float(best.x[1])
    return _levels(pieces, Response(time_constant_s, delay_s, 1.0, 0.0, float(best.x[2]) if second_order else 0.0))


def _at_bound(response: Response) -> tuple[str, ...]:
    ranges = {"time_constant_s": TIME_CONSTANT_S, "delay_s": DELAY_S, "gain": GAIN}
    return tuple(name for name, allowed in ranges.items() if at_bound(getattr(response, name), allowed))


def at_bound(value: float, allowed: tuple[float, float]) -> bool:
    """Whether a fitted value lies on the edge of its range or beyond it."""
    margin = NEAR_BOUND * (allowed[1] - allowed[0])
    low = allowed[0] + margin * (0.01 if allowed[0] == 0.0 else 1.0)  # a small lag or drag is not suspicious
    return not low < value < allowed[1] - margin


def _intervals(pieces: Sequence[Stretch], fitted: Response) -> dict[str, float]:
    """Half-widths of the 95 % intervals of the first order plus delay, fitted or nearest to the fitted second order."""
    names = ["time_constant_s", "delay_s", "gain", "offset", *(["second_order_s2"] if fitted.second_order_s2 else [])]

    def model(p: Array) -> Array:
        changed = replace(fitted, **dict(zip(names, p.tolist(), strict=True)))
        return np.concatenate([predict(s, changed)[s.counted] for s in pieces])

    p = np.array([getattr(fitted, name) for name in names])
    steps = np.array([1e-3, 1e-3, 1e-3, 1e-3, 0.02 * fitted.second_order_s2][: len(p)])
    residual = model(p) - np.concatenate([s.y[s.counted] for s in pieces])
    t_s = np.concatenate([s.t_s[s.counted] for s in pieces])
    covariance, blocks = block_covariance(jacobian(model, p, steps), residual, t_s)
    if fitted.second_order_s2:  # propagated through the step response
        J = jacobian(lambda p: np.array([*nearest_first_order(p[0], p[4], p[1]), p[2], p[3]]), p, steps)
        covariance = J @ covariance @ J.T
    half = student_half_width(blocks, len(names)) * np.sqrt(np.maximum(np.diag(covariance), 0.0))
    return dict(zip(names[:4], half[:4].tolist(), strict=True))


def jacobian(function: Callable[[Array], Array], p: Array, steps: Array) -> Array:
    """Derivatives by central differences of the given steps (p,), shape (n, p)."""
    columns = [(function(p + h) - function(p - h)) / (2 * h.sum()) for h in np.diag(steps)]
    return np.column_stack(columns)


def block_covariance(J: Array, residual: Array, t_s: Array) -> tuple[Array, int]:
    """(Covariance of least-squares parameters with residuals that are correlated within BLOCK_S, number of blocks).

    J (n, p), residual (n,), t_s (n,).
    """
    _, block = np.unique(np.floor((t_s - t_s[0]) / BLOCK_S), return_inverse=True)
    scores = np.zeros((block.max() + 1, J.shape[1]))
    np.add.at(scores, block, J * residual[:, None])
    bread = np.linalg.pinv(J.T @ J)
    count = len(scores)
    return bread @ (scores.T @ scores) @ bread * count / max(count - J.shape[1], 1), count


def student_half_width(blocks: int, parameters: int) -> float:
    """Half-width of the 95 % interval over the standard deviation."""
    return float(student_t.ppf(0.5 + CONFIDENCE / 2, max(blocks - parameters, 1)))
