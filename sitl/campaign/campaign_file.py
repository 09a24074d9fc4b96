"""The campaign file: which flights with which distributions (config/campaigns/*.toml)."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from companion.core.config import ConfigError, Section, integer, load, number
from companion.core.config_files import ConfigKind, check_kind, find_config
from sitl.campaign.distributions import Draw
from sitl.scenario import CameraMode, SensorKind

Seed = Annotated[int, integer(0, 2**31 - 1)]
Stack = Literal["full", "paper", "px4"]  # of `sitl.baselines.stacks`
SensorChoice = Literal["kind", "unkind", "both"]


class SeedRange(Section, frozen=True):
    """Successive seeds."""

    first: Seed
    count: Annotated[int, integer(1, 100_000)]


class FlightLimits(Section, frozen=True):
    """What one flight may take; a flight beyond it is ended and counts as crashed."""

    wall_s: Annotated[float, number(1.0, 86400.0, "s of real time")] = 3600.0
    memory_mb: Annotated[float, number(100.0, 1e6, "MB of memory in use")] = 4000.0


class Campaign(Section, frozen=True, kw_only=True):
    """A campaign file. Every seed is flown in every scenario, with every kind of sensors and every stack."""

    name: Annotated[str, Meta(min_length=1)]
    description: str
    scenarios: Annotated[list[str], Meta(min_length=1)]  # names, or paths relative to this file
    vehicle: str | None = None  # another vehicle file than the scenarios'
    sensors: SensorChoice
    stacks: Annotated[list[Stack], Meta(min_length=1)]
    seeds: SeedRange | Annotated[list[Seed], Meta(min_length=1)]
    camera_mode: CameraMode | None = None  # in place of the scenarios' own
    limits: FlightLimits = FlightLimits()
    draw: list[Draw] = []

    def contradiction(self) -> str:
        for key, given in (("scenarios", self.scenarios), ("stacks", self.stacks), ("seeds", self.all_seeds)):
            if (twice := _first_twice(given)) is not None:
                return f"{key}: {twice!r} stands there twice"
        if (field := _first_twice(field for draw in self.draw for field in draw.fields)) is not None:
            return f"draw: {field} is drawn twice"
        return ""

    @property
    def all_seeds(self) -> list[int]:
        """The seeds in order."""
        seeds = self.seeds
        return list(range(seeds.first, seeds.first + seeds.count)) if isinstance(seeds, SeedRange) else seeds

    @property
    def size(self) -> int:
        """Number of flights."""
        return len(self.all_seeds) * len(self.scenarios) * len(self.sensor_kinds) * len(self.stacks)

    @property
    def sensor_kinds(self) -> list[SensorKind]:
        return list(SensorKind) if self.sensors == "both" else [SensorKind(self.sensors)]


def _first_twice(values: Iterable[Any]) -> Any:
    """The first value that was there before; None when all differ."""
    seen: set[Any] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None


def load_campaign(path: Path) -> Campaign:
    """Read a campaign file; raises `ConfigError` with one line."""
    return load(path, Campaign)


def named_file(campaign_file: Path, given: str, kind: ConfigKind) -> Path:
    """A file that a campaign file names: by its path from the campaign file, else by name. Raises `ConfigError`."""
    try:
        beside = campaign_file.parent / given
        path = beside if beside.is_file() else find_config(given, kind)
        check_kind(path, kind, "companion campaign")
    except ConfigError as error:
        raise ConfigError(f"{campaign_file}: {kind.singular}: {error}") from None
    return path
