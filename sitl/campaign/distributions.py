"""Distributions of a campaign file: one ``[[draw]]`` table for each field that differs from flight to flight."""

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from msgspec import Meta

from companion.core.config import Section

TRIES = 1000  # draws of a normal distribution with bounds until one is inside
Values = Annotated[list[Any], Meta(min_length=1)]


class Drawn(NamedTuple):
    """A value, and its name where the campaign file gives one."""

    value: Any
    label: str | None = None


class _Draw(Section, frozen=True, kw_only=True, tag_field="distribution"):
    """field: dotted path, e.g. "vehicle.mass_kg", "fault[0].at_s", "fault[*].at_s". also: further fields with the same draw."""

    field: Annotated[str, Meta(min_length=1)]
    also: list[str] = []

    @property
    def fields(self) -> list[str]:
        """All fields that get the draw."""
        return [self.field, *self.also]

    @property
    def relation(self) -> str:
        """How the draw enters the field: "value", or against the scenario's own number "factor" or "offset"."""
        return "value"

    def draw(self, rng: np.random.Generator, place: int) -> Drawn:
        """place: of the seed in the campaign's list."""
        raise NotImplementedError

    def extremes(self) -> list[Drawn]:
        """Values between which every draw is, as far as there are such."""
        raise NotImplementedError

    def typical(self) -> Drawn:
        """A value in the middle."""
        raise NotImplementedError


class _Number(_Draw, frozen=True, kw_only=True):
    """apply: the draw is the value of the field, or multiplies it, or is added to it."""

    apply: Literal["value", "factor", "offset"] = "value"

    @property
    def relation(self) -> str:
        return self.apply


class _Range(_Number, frozen=True, kw_only=True):
    low: float
    high: float

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low = {self.low:g}: must not be above high = {self.high:g}")
        if not math.isfinite(self.high - self.low):
            raise ValueError(f"low = {self.low:g}: too far from high = {self.high:g}")

    def extremes(self) -> list[Drawn]:
        return [Drawn(self.low), Drawn(self.high)]

    def typical(self) -> Drawn:
        return Drawn(0.5 * (self.low + self.high))


class Uniform(_Range, frozen=True, kw_only=True, tag="uniform"):
    """Evenly between low and high."""

    def draw(self, rng: np.random.Generator, place: int) -> Drawn:
        return Drawn(float(rng.uniform(self.low, self.high)))


class LogUniform(_Range, frozen=True, kw_only=True, tag="log_uniform"):
    """Its logarithm evenly between those of low and high."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low <= 0.0:
            raise ValueError(f"low = {self.low:g}: a logarithm needs a number above 0")

    def draw(self, rng: np.random.Generator, place: int) -> Drawn:
        exponent = rng.uniform(math.log(self.low), math.log(self.high))
        return Drawn(min(max(math.exp(exponent), self.low), self.high))

    def typical(self) -> Drawn:
        return Drawn(math.sqrt(self.low * self.high))


class Normal(_Number, frozen=True, kw_only=True, tag="normal"):
    """Gaussian; with low or high, drawn again until it is inside."""

    mean: float
    std: Annotated[float, Meta(ge=0.0, description="0 or more")]
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        for name, bound, inside in (
            ("low", self.low, self.low is None or self.mean >= self.low),
            ("high", self.high, self.high is None or self.mean <= self.high),
        ):
            if not inside:
                raise ValueError(f"{name} = {bound:g}: the mean {self.mean:g} must be inside")

    def draw(self, rng: np.random.Generator, place: int) -> Drawn:
        low, high = self._bounds()
        values = rng.normal(self.mean, self.std, TRIES)
        inside = values[(values >= low) & (values <= high)]
        return Drawn(float(inside[0]) if len(inside) else self.mean)

    def _bounds(self) -> tuple[float, float]:
        return -math.inf if self.low is None else self.low, math.inf if self.high is None else self.high

    def extremes(self) -> list[Drawn]:
        return [Drawn(bound) for bound in (self.mean, self.low, self.high) if bound is not None]

    def typical(self) -> Drawn:
        return Drawn(self.mean)


class _OneOf(_Draw, frozen=True, kw_only=True):
    """labels: names of the values for the table of results, where the values are tables or lists."""

    values: Values
    labels: list[str] | None = None

    def __post_init__(self) -> None:
        if self.labels is not None and len(self.labels) != len(self.values):
            raise ValueError(f"labels: has {len(self.labels)} names for {len(self.values)} values")

    def one(self, index: int) -> Drawn:
        return Drawn(self.values[index], None if self.labels is None else self.labels[index])

    def extremes(self) -> list[Drawn]:
        return [self.one(i) for i in range(len(self.values))]

    def typical(self) -> Drawn:
        return self.one(0)


class Choice(_OneOf, frozen=True, kw_only=True, tag="choice"):
    """One of the values, with equal chances or by weights."""

    weights: list[Annotated[float, Meta(ge=0.0, description="0 or more")]] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights is not None and len(self.weights) != len(self.values):
            raise ValueError(f"weights: has {len(self.weights)} numbers for {len(self.values)} values")
        if self.weights is not None and not sum(self.weights) > 0.0:
            raise ValueError("weights: one must be above 0")

    def draw(self, rng: np.random.Generator, place: int) -> Drawn:
        shares: Sequence[float] | None = None
        if self.weights is not None:
            shares = [weight / sum(self.weights) for weight in self.weights]
        return self.one(int(rng.choice(len(self.values), p=shares)))


class Cycle(_OneOf, frozen=True, kw_only=True, tag="list"):
    """The values in turn, from seed to seed."""

    def draw(self, rng: np.random.Generator, place: int) -> Drawn:
        return self.one(place % len(self.values))


class Fixed(_Draw, frozen=True, kw_only=True, tag="fixed"):
    """The same value in every flight: what the campaign changes in its scenarios."""

    value: Any

    def draw(self, rng: np.random.Generator, place: int) -> Drawn:
        return self.typical()

    def extremes(self) -> list[Drawn]:
        return [self.typical()]

    def typical(self) -> Drawn:
        return Drawn(self.value)


Draw = Uniform | LogUniform | Normal | Choice | Cycle | Fixed
