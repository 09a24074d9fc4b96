"""Fits a model to a pilot's log by differential evolution, as the teleoperation paper does.

rand/1/bin with F = CR = 0.5, 20 candidates, 1000 generations; the cost is the sum over the axes of the integral of the squared
error (equations 32 to 36 of M. E. Mora-Soto et al., Applied Sciences 11(24), 12018, 2021).
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from scipy.optimize import OptimizeResult, differential_evolution

from companion.core.arrays import Array
from companion.core.errors import UserError
from sitl.teleop import response, tello
from sitl.teleop.pilot_log import PilotLog, Upsampling, Window, window

CANDIDATES, GENERATIONS, FACTOR, CROSSOVER = 20, 1000, 0.5, 0.5
PUBLISHED_BOUNDS, PUBLISHED_START = (0.0, 30.0), 15.0
HELD_OUT_MIN_S = 5.0
SMALLEST = 1e-4  # m² or rad²: an axis that moved less does not decide
AXES = tello.AXES


class SetName(StrEnum):
    """Named sets of parameters."""

    GAINS = "gains"
    DELAY = "delay"
    DRAG = "drag"
    EMULATOR = "emulator"


class ParameterSet(NamedTuple):
    """What is fitted: names, bounds and start of the free parameters, and the model that they belong to."""

    name: SetName
    free: tuple[str, ...]
    low: Array
    high: Array
    start: Array
    base: dict[str, float]  # all parameters of the model; those that are not free stay as they are here
    is_tello: bool

    def full(self, values: Array) -> Array:
        """All parameters of the model, (c, p), for free ones (c, f)."""
        rows = np.tile(np.array(list(self.base.values())), (len(values), 1))
        rows[:, [list(self.base).index(name) for name in self.free]] = values
        return rows

    def errors(self, values: Array, part: Window, limits: Array | None = None) -> Array:
        """Integral of the squared error by axis, (c, 4), of candidates (c, f); limits: of the sum over the axes, (c,)."""
        errors, start_state = (
            (tello.errors, tello.start_state) if self.is_tello else (response.errors, response.start_state)
        )
        return errors(self.full(values), start_state(part.flown[0], part.rates), part.sticks, part.flown, limits)

    def path(self, values: Array, part: Window) -> tuple[Array, bool]:
        """What the model flies, (n, 4), and whether it diverged."""
        row = self.full(values[None])[0]
        if self.is_tello:
            followed = tello.follow(row, tello.start_state(part.flown[0], part.rates), part.sticks)
            return followed.path, followed.diverged
        return response.follow(row, response.start_state(part.flown[0], part.rates), part.sticks), False


def parameter_set(
    name: SetName, base: dict[str, float] | None = None, bounds: dict[str, tuple[float, float]] | None = None
) -> ParameterSet:
    """A named set. base: parameters to start from that are not free; bounds: others than its own, by name.

    Raises `UserError` for a bound of a parameter that is not in the set, or a start outside of the bounds.
    """
    if name is SetName.EMULATOR:
        own = {n: (low, high) for n, low, high, _ in response.NUMBERS}
        start = {n: 0.0 if low < 0.0 else 0.5 * (low + high) for n, (low, high) in own.items()}
        everything = dict(start)
    else:
        everything = {**tello.PUBLISHED, **(base or {})}
        free = {
            SetName.GAINS: tello.GAINS,
            SetName.DELAY: ("delay_s",),
            SetName.DRAG: ("b_z", "b_phi", "b_theta", "b_psi"),
        }[name]
        own = dict.fromkeys(
            free, PUBLISHED_BOUNDS if name is SetName.GAINS else (0.0, 0.5 if name is SetName.DELAY else 5.0)
        )
        start = dict.fromkeys(free, PUBLISHED_START) if name is SetName.GAINS else {n: everything[n] for n in free}
    for key, (low, high) in (bounds or {}).items():
        if key not in own:
            raise UserError(f"--bound {key}: not in the set '{name}' (there are: {', '.join(own)})")
        own[key] = low, high
        start[key] = min(max(start[key], low), high)
    lows, highs = (np.array([own[key][side] for key in own]) for side in (0, 1))
    begin = np.array([start[key] for key in own])
    if (outside := (begin < lows) | (begin > highs)).any():
        key = list(own)[int(np.argmax(outside))]
        raise UserError(f"{key} = {start[key]:g}: outside of its bounds {own[key][0]:g} to {own[key][1]:g}")
    return ParameterSet(name, tuple(own), lows, highs, begin, everything, name is not SetName.EMULATOR)


class Part(NamedTuple):
    """A fitted part of one log, and the same with the held-out part after it.

    A model flies the held-out part from the state in which it ends the fitted one: integrals and references are those of its
    own past, which a log does not contain.
    """

    log: PilotLog
    fitted: Window
    whole: Window

    @property
    def held_out_s(self) -> float:
        """Length of the held-out part [s]."""
        return self.whole.duration_s - self.fitted.duration_s


class Tuned(NamedTuple):
    """The result. Errors by axis z, ψ, θ, φ [m² s, rad² s], summed over the logs."""

    what: ParameterSet
    values: Array
    start_errors: Array  # of the start on the fitted parts
    errors: Array  # of the result on the fitted parts
    held_out_errors: Array  # of the result on the held-out parts
    start_held_out_errors: Array
    fitted_s: float
    held_out_s: float
    start_diverged: bool
    published_errors: Array | None  # of tables 1 and 2 on the fitted parts; None for another model
    generations: int
    parts: list[Part]
    interrupted: bool  # by Ctrl-C: the best candidate until then

    @property
    def gain(self) -> float:
        """How many times smaller the cost is than at the start."""
        return float(self.start_errors.sum() / max(self.errors.sum(), 1e-300))

    @property
    def held_out_ratio(self) -> float:
        """Cost per second of the held-out parts over that of the fitted ones."""
        return float((self.held_out_errors.sum() / self.held_out_s) / max(self.errors.sum() / self.fitted_s, 1e-300))

    def parameters(self) -> dict[str, float]:
        """The free parameters by name."""
        return dict(zip(self.what.free, self.values.tolist(), strict=True))


def divide(
    log: PilotLog,
    fit_s: float,
    held_out_s: float,
    from_s: float = 0.0,
    upsampling: Upsampling = Upsampling.LINEAR,
) -> Part:
    """A fitted part and, after it, the held-out one, of the longest part in the air; raises `UserError` if it is shorter.

    from_s: start of the fitted part, after the start of the longest part in the air.
    """
    start_s, end_s = log.longest
    start_s += from_s
    left_s = end_s - start_s - fit_s
    if left_s < HELD_OUT_MIN_S:
        raise UserError(
            f"{log.path}: {max(0.0, end_s - start_s):.1f} s in the air without gaps; {fit_s:g} s to fit and"
            f" {HELD_OUT_MIN_S:g} s to check are needed (--fit SECONDS)"
        )
    fitted = window(log, start_s, fit_s, upsampling)
    return Part(log, fitted, window(log, start_s, fit_s + min(held_out_s, left_s), upsampling))


def tune(
    parts: Sequence[Part],
    what: ParameterSet,
    seed: int = 1,
    generations: int = GENERATIONS,
    progress: Callable[[int, float], None] | None = None,
) -> Tuned:
    """Fit a set to logs. progress: gets the generation and the best cost."""
    rng = np.random.default_rng(seed)
    first = rng.uniform(what.low, what.high, (CANDIDATES, len(what.free)))
    first[0] = what.start

    # A trial is compared with the candidate in its place and with nothing else: it need not be followed beyond its cost.
    limits, done, best = np.full(CANDIDATES, np.inf), 0, what.start

    def cost(columns: Array) -> Array:
        values, left = columns.T, limits.copy() if columns.shape[1] == CANDIDATES else np.full(columns.shape[1], np.inf)
        total = np.zeros(len(values))
        for part in parts:
            if what.is_tello:
                total += what.errors(values, part.fitted, left - total).sum(axis=1)
            else:  # few numbers of one axis each: every axis counts by what it moved, or the height alone would decide
                total += (what.errors(values, part.fitted) / (part.fitted.flown.var(axis=0) + SMALLEST)).sum(axis=1)
        return total

    def after_generation(intermediate_result: OptimizeResult) -> None:
        nonlocal limits, done, best
        done, best = done + 1, np.array(intermediate_result.x)
        limits = np.array(intermediate_result.population_energies)
        if progress is not None:
            progress(done, float(intermediate_result.fun))

    interrupted = False
    try:
        differential_evolution(
            cost,
            list(zip(what.low, what.high, strict=True)),
            strategy="rand1bin",
            init=first,
            mutation=FACTOR,
            recombination=CROSSOVER,
            maxiter=generations,
            tol=0.0,
            atol=0.0,
            polish=False,
            updating="deferred",
            vectorized=True,
            rng=rng,
            callback=after_generation,
        )
    except KeyboardInterrupt:  # what has been found is not lost
        if done == 0:
            raise
        interrupted = True
    values = best

    def total(candidate: Array, held_out: bool) -> Array:
        rows = [what.errors(candidate[None], part.fitted)[0] for part in parts]
        if held_out:  # the model runs on: what the whole has more than its beginning
            rows = [what.errors(candidate[None], p.whole)[0] - row for p, row in zip(parts, rows, strict=True)]
        summed: Array = np.maximum(np.sum(rows, axis=0), 0.0)
        return summed

    return Tuned(
        what=what,
        values=values,
        start_errors=total(what.start, False),
        errors=total(values, False),
        held_out_errors=total(values, True),
        start_held_out_errors=total(what.start, True),
        fitted_s=sum(part.fitted.duration_s for part in parts),
        held_out_s=sum(part.held_out_s for part in parts),
        start_diverged=any(what.path(what.start, part.fitted)[1] for part in parts),
        published_errors=_published(what, parts),
        generations=done,
        parts=list(parts),
        interrupted=interrupted,
    )


def _published(what: ParameterSet, parts: Sequence[Part]) -> Array | None:
    if not what.is_tello:
        return None
    values = np.array([tello.PUBLISHED[name] for name in what.free])
    published = what._replace(base={**tello.PUBLISHED})
    summed: Array = np.sum([published.errors(values[None], part.fitted)[0] for part in parts], axis=0)
    return summed
