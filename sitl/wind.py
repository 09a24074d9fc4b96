"""Wind and disturbing forces of a scenario: mean, gusts, timed steps, jets.

Gusts are one Ornstein-Uhlenbeck process per axis of W, discretised exactly: over a time h

    n ← e^(-h/τ) n + σ √(1 - e^(-2h/τ)) w,   w ~ N(0, 1),

which has the exponential autocorrelation of Dryden's longitudinal turbulence, with τ = length scale / airspeed
(MIL-F-8785C, section 3.7.2). `sitl.dryden` has that turbulence whole. A jet is a round turbulent jet: Gaussian across, falling with a power of the
distance along (S. Pope, "Turbulent Flows", section 5.1).

The mean is the same at every height unless the scenario has `[wind.shear]`. Then it has the logarithmic profile of a
neutral boundary layer (MIL-F-8785C, section 3.7.3.1; R. Stull, "An Introduction to Boundary Layer Meteorology",
section 9.7): with the height h over the ground and the roughness z₀

    u(h) = u(h_ref) ln(h / z₀) / ln(h_ref / z₀),   0 below z₀, u(h_ref) above h_ref.

Gusts and turbulence are left as they are: near the ground they fall much less than the mean.
"""

import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np

from companion.core.arrays import Vector
from companion.core.config import ConfigError, Section, number
from companion.core.trajectory_messages import Vec3
from sitl.dryden import DrydenConfig, DrydenTurbulence

Speed = Annotated[float, number(-60.0, 60.0, "m/s, the air moves towards +x (east), +y (north), +z (up)")]
Std = Annotated[float, number(0.0, 30.0, "m/s")]
TimeScale = Annotated[float, number(0.01, 1000.0, "s")]
Acceleration = Annotated[float, number(-20.0, 20.0, "m/s²")]
Coordinate = Annotated[float, number(-1e4, 1e4, "m")]
Component = Annotated[float, number(-1.0, 1.0, "")]
Time = Annotated[float, number(0.0, 1e6, "s")]

LOWEST_REFERENCE = 10.0  # of the roughness: nearer to it the profile does not hold
NOISE_BLOCK = 1024  # normal numbers drawn at a time; one by one would cost more than the rest of a sample


class WindStep(Section, frozen=True):
    """Wind that is added between two times; it rises and falls linearly within ``ramp_s``."""

    start_s: Time
    end_s: Time
    ramp_s: Annotated[float, number(0.0, 1e4, "s")]
    wind_m_s: tuple[Speed, Speed, Speed]


class ForceStep(Section, frozen=True):
    """Force over mass that acts between two times; it rises and falls linearly within ``ramp_s``."""

    start_s: Time
    end_s: Time
    ramp_s: Annotated[float, number(0.0, 1e4, "s")]
    acceleration_m_s2: tuple[Acceleration, Acceleration, Acceleration]


class Jet(Section, frozen=True):
    """A stream of air from a nozzle, such as a leaf blower's."""

    start_s: Time
    end_s: Time
    nozzle_m: tuple[Coordinate, Coordinate, Coordinate]
    direction: tuple[Component, Component, Component]  # of any length but zero
    speed_at_1m_m_s: Annotated[float, number(0.0, 60.0, "m/s on the axis, 1 m from the nozzle")]
    decay_exponent: Annotated[float, number(0.0, 3.0, "of the distance; 1: a free round jet")]
    core_m: Annotated[float, number(0.05, 10.0, "m, nearer to the nozzle speed and width no longer change")]
    width_at_1m_m: Annotated[
        float, number(0.01, 5.0, "m, standard deviation across, grows in proportion to the distance")
    ]
    turbulence: Annotated[float, number(0.0, 1.0, "standard deviation of the speed over its mean")]
    turbulence_time_s: TimeScale


class WindShear(Section, frozen=True):
    """The `[wind.shear]` table of a scenario: how the mean falls from a height towards the ground, z = 0 of W.

    Above that height it is left as it is: a scenario states the wind where its aircraft flies.
    """

    roughness_m: Annotated[float, number(1e-4, 1.0, "m; short grass 0.01, meadow 0.03, crops and bushes 0.1")]
    reference_height_m: Annotated[float, number(1.0, 300.0, "m over the ground, where the mean is wind.mean_m_s")]

    def __post_init__(self) -> None:
        if self.reference_height_m < LOWEST_REFERENCE * self.roughness_m:
            raise ValueError(
                f"reference_height_m = {self.reference_height_m:g}: must be at least "
                f"{LOWEST_REFERENCE:g} times roughness_m = {self.roughness_m:g}"
            )

    def factor(self, height_m: float) -> float:
        """Mean at a height over that of the scenario: 0 below the roughness, 1 above the reference height."""
        if height_m <= self.roughness_m:
            return 0.0
        factor = math.log(height_m / self.roughness_m) / math.log(self.reference_height_m / self.roughness_m)
        return min(factor, 1.0)


class WindConfig(Section, frozen=True):
    """The `[wind]` table of a scenario."""

    mean_m_s: tuple[Speed, Speed, Speed]
    gust_std_m_s: tuple[Std, Std, Std]
    gust_time_s: tuple[TimeScale, TimeScale, TimeScale]
    steps: list[WindStep]
    force_steps: list[ForceStep]
    jets: list[Jet]
    dryden: DrydenConfig | None = None  # turbulence in addition to the gusts, along and across mean_m_s
    shear: WindShear | None = None  # None: the mean is the same down to the ground


CALM = WindConfig(
    mean_m_s=(0.0, 0.0, 0.0),
    gust_std_m_s=(0.0, 0.0, 0.0),
    gust_time_s=(1.0, 1.0, 1.0),
    steps=[],
    force_steps=[],
    jets=[],
)


class NormalNoise:
    """Standard normal numbers one by one, drawn in blocks; the sequence depends on the seed alone."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._draw = rng.standard_normal
        self._left: list[float] = []

    def __call__(self) -> float:
        if not self._left:
            self._left = self._draw(NOISE_BLOCK).tolist()
        return self._left.pop()

    def take(self, count: int) -> list[float]:
        """As many numbers as so many calls give, in one."""
        left = self._left
        if len(left) < count:
            return [self() for _ in range(count)]
        taken = left[: -count - 1 : -1]
        del left[-count:]
        return taken


class OrnsteinUhlenbeck:
    """Independent processes with standard deviations std and correlation times time_s, stationary from the start."""

    def __init__(self, std: Sequence[float], time_s: Sequence[float], noise: NormalNoise) -> None:
        self._std = [float(s) for s in std]
        self._time_s = [float(t) for t in time_s]
        self._noise = noise
        self.value = [s * noise() for s in self._std]
        self._step_s = -1.0
        self._keep: list[float] = []
        self._add: list[float] = []
        self._draws = 0  # of them that are not zero

    def advance(self, step_s: float) -> list[float]:
        """The values a time later, (n,); step_s ≥ 0."""
        if abs(step_s - self._step_s) > 1e-9:  # the step seldom changes: keep its factors
            self._step_s = step_s
            self._keep = [math.exp(-step_s / t) for t in self._time_s]
            self._add = [s * math.sqrt(1 - k * k) for s, k in zip(self._std, self._keep, strict=True)]
            self._draws = len(self._add) - self._add.count(0.0)
        noise = iter(self._noise.take(self._draws))
        self.value = [
            k * v + (a * next(noise) if a else 0.0) for k, v, a in zip(self._keep, self.value, self._add, strict=True)
        ]
        return self.value


class Wind:
    """Wind and force of a scenario as functions of time and place.

    Gusts are the same everywhere. Time must not run backwards (an earlier time gets the present gust); the gusts'
    sequence depends on the seed and on the times at which it is sampled.
    """

    def __init__(self, config: WindConfig, seed: int) -> None:
        """Raises `ConfigError` when a jet has no direction or something ends before it starts."""
        _check(config)
        self._config = config
        noise = NormalNoise(np.random.default_rng(seed))
        self._gust = OrnsteinUhlenbeck(config.gust_std_m_s, config.gust_time_s, noise)
        self._jets = [_JetFlow(jet, noise) for jet in config.jets]
        self._random = any(config.gust_std_m_s) or any(jet.turbulence for jet in config.jets)
        self._dryden: DrydenTurbulence | None = None
        if config.dryden is not None:
            rng = np.random.default_rng(np.random.SeedSequence((seed, 1)))  # leaves the gusts as they were
            self._dryden = DrydenTurbulence(config.dryden, math.atan2(config.mean_m_s[1], config.mean_m_s[0]), rng)
        self._time_s: float | None = None

    def sample(self, t_s: float, p_W: Vector) -> Vec3:
        """Velocity of the air at a time and place [m/s]."""
        self._advance(t_s)
        c = self._config
        mean, gust = c.mean_m_s, self._gust.value
        if c.shear is not None:
            factor = c.shear.factor(float(p_W[2]))
            mean = (factor * mean[0], factor * mean[1], factor * mean[2])
        x, y, z = mean[0] + gust[0], mean[1] + gust[1], mean[2] + gust[2]
        if self._dryden is not None:
            dx, dy, dz = self._dryden.at(t_s)
            x, y, z = x + dx, y + dy, z + dz
        for step in c.steps:
            if weight := _weight(step, t_s):
                dx, dy, dz = step.wind_m_s
                x, y, z = x + weight * dx, y + weight * dy, z + weight * dz
        for jet in self._jets:
            if speed := jet.speed(t_s, p_W):
                dx, dy, dz = jet.direction
                x, y, z = x + speed * dx, y + speed * dy, z + speed * dz
        return x, y, z

    def force(self, t_s: float, p_W: Vector) -> Vec3:
        """Extra force over mass at a time [m/s²]; it is the same at every place."""
        x = y = z = 0.0
        for step in self._config.force_steps:
            if weight := _weight(step, t_s):
                dx, dy, dz = step.acceleration_m_s2
                x, y, z = x + weight * dx, y + weight * dy, z + weight * dz
        return x, y, z

    def _advance(self, t_s: float) -> None:
        if not self._random:
            return
        step_s = 0.0 if self._time_s is None else t_s - self._time_s
        if step_s > 0.0:
            self._gust.advance(step_s)
            for jet in self._jets:
                jet.turbulence.advance(step_s)
        if self._time_s is None or step_s > 0.0:
            self._time_s = t_s


class _JetFlow:
    """A jet with its unit vector and turbulence."""

    def __init__(self, config: Jet, noise: NormalNoise) -> None:
        self._config = config
        length = math.hypot(*config.direction)
        self.direction = tuple(d / length for d in config.direction)
        self.turbulence = OrnsteinUhlenbeck((config.turbulence,), (config.turbulence_time_s,), noise)

    def speed(self, t_s: float, p_W: Vector) -> float:
        """Speed along the jet's direction at a place [m/s]; nothing behind the nozzle."""
        c = self._config
        if not c.start_s <= t_s < c.end_s:
            return 0.0
        x, y, z = (float(p_W[i]) - c.nozzle_m[i] for i in range(3))
        dx, dy, dz = self.direction
        along = x * dx + y * dy + z * dz
        if along <= 0.0:
            return 0.0
        across2 = max(x * x + y * y + z * z - along * along, 0.0)
        distance = max(along, c.core_m)
        width = c.width_at_1m_m * distance
        profile = math.exp(-0.5 * across2 / (width * width))
        speed: float = c.speed_at_1m_m_s * distance**-c.decay_exponent * profile * (1.0 + self.turbulence.value[0])
        return speed


def _weight(step: WindStep | ForceStep, t_s: float) -> float:
    """0..1: the share of a step that acts at a time; 0 after the ramp that follows end_s."""
    if t_s < step.start_s or t_s >= step.end_s + step.ramp_s:
        return 0.0
    if not step.ramp_s:
        return 1.0
    return min((t_s - step.start_s) / step.ramp_s, 1.0, 1.0 - (t_s - step.end_s) / step.ramp_s)


def _check(config: WindConfig) -> None:
    tables: dict[str, Sequence[WindStep | ForceStep | Jet]] = {
        "steps": config.steps,
        "force_steps": config.force_steps,
        "jets": config.jets,
    }
    for table, entries in tables.items():
        for i, entry in enumerate(entries):
            if entry.end_s < entry.start_s:
                raise ConfigError(f"wind.{table}[{i}].end_s = {entry.end_s:g}: is before start_s = {entry.start_s:g} s")
    for i, jet in enumerate(config.jets):
        if math.hypot(*jet.direction) < 1e-6:
            raise ConfigError(f"wind.jets[{i}].direction: has no length")
