"""The flights of a campaign: what each one is flown with, drawn and checked before the first one flies.

The draws of a flight follow from the name of the campaign, the scenario, the seed and the field alone: they do not depend on the
number or order of workers, nor on the other draws of the file. Stacks and sensors of the same seed share them.
"""

import copy
import hashlib
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from companion.core.config import ConfigError, Tables, parse, read_layered, read_toml
from companion.core.config_files import ConfigKind, config_folder
from companion.core.errors import UserError
from sitl.airframe import load_airframe
from sitl.autopilot.parameters import DEFAULTS, defaults_file, parameter_file
from sitl.campaign import fields as fl
from sitl.campaign.campaign_file import Campaign, load_campaign, named_file
from sitl.campaign.distributions import Draw, Drawn
from sitl.flight_files import SCENARIO_FILE, FlightFiles, files_of
from sitl.scenario import LoadedScenario, SensorKind, load_scenario
from sitl.unkind import RANGES_FILE, UnkindRanges, apply, check_draw, check_ranges, draw, flown_parameters

SOLVERS_MAX = 8  # that a campaign builds before its flights, a minute each
Chosen = Sequence[tuple[Draw, Drawn]]


class Flight(msgspec.Struct, frozen=True):
    """One flight, with everything that is needed to fly it on any machine."""

    number: int  # from 1
    campaign: str
    scenario: str  # as the campaign file names it
    sensors: SensorKind
    stack: str
    seed: int
    fields: dict[str, Any]  # what was drawn, by field
    files: FlightFiles
    ranges: Tables  # of config/sensors/unkind.toml
    wall_max_s: float
    memory_max_mb: float
    log: str = ""  # where the log goes on the machine that flies; "": no log

    def loaded(self, folder: Path) -> LoadedScenario:
        """The scenario with the drawn fields, written into a folder, before the sensors are drawn; raises `ConfigError`."""
        return load_scenario(self.files.write(folder))

    def in_its_world(self, loaded: LoadedScenario) -> LoadedScenario:
        """The scenario with its sensors; raises `ConfigError`."""
        if self.sensors == SensorKind.KIND:
            return loaded
        return apply(loaded, draw(self.own_ranges(), loaded, self.seed))

    def own_ranges(self) -> UnkindRanges:
        """Of its unkind sensors; raises `ConfigError`."""
        return parse(self.ranges, UnkindRanges, RANGES_FILE.name)


class CampaignPlan(NamedTuple):
    """A campaign that was read and checked. inputs: SHA-256 of each file that it was made of, by role and name."""

    path: Path
    campaign: Campaign
    flights: list[Flight]
    inputs: dict[str, str]


class _Base:
    """A scenario of the campaign as its files have it."""

    def __init__(self, campaign_file: Path, campaign: Campaign, name: str) -> None:
        self.name = name
        vehicle = campaign.vehicle
        vehicle_file = None if vehicle is None else named_file(campaign_file, vehicle, ConfigKind.VEHICLE)
        path = named_file(campaign_file, name, ConfigKind.SCENARIO)
        self.loaded = loaded = load_scenario(path, vehicle_file, campaign.camera_mode)
        self.files = files_of(loaded)
        airframe = load_airframe(loaded.scenario.airframe, loaded.scenario.airframe_changes)
        self.tables: Tables = {
            fl.SCENARIO: self.files.scenario,
            fl.VEHICLE: self.files.vehicle,
            fl.MISSION: self.files.mission,
            fl.MARKERS: self.files.site or {},
            fl.WORLD: self.files.world or {},
            fl.AIRFRAME: _plain(airframe),
            fl.UNKIND: read_layered(config_folder() / RANGES_FILE),
        }
        # Keys that the files leave out have their defaults here.
        self.numbers: Tables = {
            fl.SCENARIO: _plain(loaded.scenario),
            fl.VEHICLE: _plain(loaded.vehicle),
            fl.MISSION: _plain(loaded.plan),
            fl.MARKERS: _plain(loaded.site),
            fl.WORLD: {} if loaded.solids is None else _plain(loaded.solids.file),
            fl.AIRFRAME: self.tables[fl.AIRFRAME],
            fl.UNKIND: {},
        }

    @property
    def shown(self) -> dict[str, str]:
        """The names of the files that a flight writes, and of those that they come from."""
        return {
            SCENARIO_FILE: self.loaded.path.name,
            "vehicle.toml": self.loaded.vehicle_path.name,
            "mission.toml": self.loaded.mission_path.name,
            "world.toml": "world.toml" if self.loaded.solids is None else self.loaded.solids.path.name,
            "site.toml": Path(self.loaded.plan.marker_file or "site.toml").name,
        }

    def changed(self, chosen: Chosen) -> tuple[Tables, dict[str, Any]]:
        """The tables with these draws, in order, and what is recorded of them; raises `ConfigError`."""
        tables, recorded = copy.deepcopy(self.tables), {}
        for drawer, drawn in chosen:
            for field in (drawer.field, *drawer.also):
                path = _path_of(field)
                found = list(fl.places(tables, path))
                if not found:
                    raise ConfigError(f"{field}: no such list, or an empty one")
                for place in found:
                    value = self._related(drawer, drawn, place, field)
                    fl.assign(tables, place, [value, value] if _is_range(place, value) else copy.deepcopy(value))
                recorded[field] = value if drawn.label is None else drawn.label
        return tables, recorded

    def _related(self, drawer: Draw, drawn: Drawn, place: fl.Path, field: str) -> Any:
        if drawer.relation == "value":
            return drawn.value
        own = fl.lookup(self.tables, place)
        own = fl.lookup(self.numbers, place) if own is None else own
        if isinstance(own, bool) or not isinstance(own, (int, float)):
            raise ConfigError(
                f'{field}: apply = "{drawer.relation}" needs a number in {self.name}, which has none here'
            )
        return own * drawn.value if drawer.relation == "factor" else own + drawn.value

    def files_with(self, tables: Tables) -> FlightFiles:
        """The files of a flight with changed tables."""
        scenario = tables[fl.SCENARIO]
        airframe, autopilot = self.files.airframe, self.files.autopilot
        if scenario.get("airframe") != self.files.scenario.get("airframe"):  # another one was drawn
            airframe = autopilot = None
        else:
            known = _plain(load_airframe(self.loaded.scenario.airframe))
            if changes := {key: value for key, value in tables[fl.AIRFRAME].items() if value != known.get(key)}:
                scenario = scenario | {"airframe_changes": changes}
        site = tables[fl.MARKERS] if self.files.site is not None else None
        world = tables[fl.WORLD] if self.files.world is not None else None
        changed = {"scenario": scenario, "vehicle": tables[fl.VEHICLE], "mission": tables[fl.MISSION]}
        changed |= {"airframe": airframe, "autopilot": autopilot}
        return msgspec.structs.replace(self.files, **changed, site=site, world=world)


def _plain(content: Any) -> Any:
    """Tables and lists, as of a file."""
    return msgspec.json.decode(msgspec.json.encode(content))


@cache
def _path_of(field: str) -> fl.Path:
    path = fl.parse_path(field)
    if path[:2] in (
        (fl.SCENARIO, "mission"),
        (fl.SCENARIO, "vehicle"),
        (fl.SCENARIO, "airframe"),
        (fl.SCENARIO, "world"),
        (fl.MISSION, "marker_file"),
    ):
        raise ConfigError(f"{field}: names a file and cannot be drawn; list several scenarios")
    return path


def _is_range(place: fl.Path, value: Any) -> bool:
    """A number for a row of the ranges."""
    return place[0] == fl.UNKIND and len(place) == 2 and not isinstance(value, (list, dict))


def plan_campaign(path: Path, only: int | None = None) -> CampaignPlan:
    """Read a campaign file, draw all its flights and check each one; raises `ConfigError` with one line.

    only: the number of the one flight that is checked, and then flown.
    """
    campaign = load_campaign(path)
    bases = [_Base(path, campaign, name) for name in campaign.scenarios]
    for index, drawer in enumerate(campaign.draw):
        for field in (drawer.field, *drawer.also):
            try:
                root = _path_of(field)[0]
            except ConfigError as error:
                raise ConfigError(f"{path}: draw[{index}]: {error}") from None
            if root == fl.UNKIND and campaign.sensor_kinds == [SensorKind.KIND]:
                raise ConfigError(f'{path}: draw[{index}]: {field} has no use with sensors = "kind"')
            if root == fl.WORLD and (bare := next((base.name for base in bases if base.files.world is None), None)):
                raise ConfigError(f"{path}: draw[{index}]: {field}: scenario {bare} names no world file")
    with tempfile.TemporaryDirectory(prefix="companion-campaign-") as folder:
        for base in bases:
            _check_extremes(path, campaign, base, Path(folder))
        flights = []
        checked: dict[bytes, set[int]] = {}  # seeds whose unkind world can be drawn, by the content of the files
        combined = product(campaign.all_seeds, bases, campaign.sensor_kinds, campaign.stacks)
        for number, (seed, base, sensors, stack) in enumerate(combined, 1):
            chosen = chosen_for(campaign, base.name, seed)
            where = f"{path}: flight {number} of {base.name}"
            flight = _flight(campaign, base, chosen, (number, sensors, stack, seed), where)
            flights.append(flight)
            content = msgspec.json.encode((flight.files, flight.ranges))
            drawable = sensors == SensorKind.KIND or seed in checked.get(content, ())
            if only in (None, number) and not (content in checked and drawable):
                _check(flight, base, Path(folder), where, drawn=not drawable)
                checked.setdefault(content, set()).update(() if drawable else (seed,))
            if sensors == SensorKind.UNKIND and seed == campaign.all_seeds[0]:
                _check_kept(flight, base, Path(folder), where)
    return CampaignPlan(path, campaign, flights, _inputs(path, bases))


def chosen_for(campaign: Campaign, scenario: str, seed: int) -> Chosen:
    """The draws of a seed in a scenario."""
    place = campaign.all_seeds.index(seed)
    chosen = []
    for drawer in campaign.draw:
        words = (campaign.name, scenario, drawer.field)
        rng = np.random.default_rng(np.random.SeedSequence((seed, *(zlib.crc32(word.encode()) for word in words))))
        chosen.append((drawer, drawer.draw(rng, place)))
    return chosen


def _flight(
    campaign: Campaign, base: _Base, chosen: Chosen, which: tuple[int, SensorKind, str, int], where: str
) -> Flight:
    number, sensors, stack, seed = which
    try:
        tables, recorded = base.changed(chosen)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    if sensors == SensorKind.KIND:
        recorded = {field: value for field, value in recorded.items() if _path_of(field)[0] != fl.UNKIND}
    limits = campaign.limits
    return Flight(
        number=number,
        campaign=campaign.name,
        scenario=base.name,
        sensors=sensors,
        stack=stack,
        seed=seed,
        fields=recorded,
        files=base.files_with(tables),
        ranges=tables[fl.UNKIND],
        wall_max_s=limits.wall_s,
        memory_max_mb=limits.memory_mb,
    )


def _check_extremes(path: Path, campaign: Campaign, base: _Base, folder: Path) -> None:
    """Each draw at its ends, the others in their middle: a range that the configuration forbids is refused in any case."""
    middle = [(drawer, drawer.typical()) for drawer in campaign.draw]
    sensors, seed = campaign.sensor_kinds[-1], campaign.all_seeds[0]
    for index, drawer in enumerate(campaign.draw):
        for extreme in drawer.extremes():
            chosen = [*middle[:index], (drawer, extreme), *middle[index + 1 :]]
            shown = extreme.label or (extreme.value if isinstance(extreme.value, (int, float, str)) else "…")
            where = f"{path}: draw[{index}] {drawer.field} = {shown} in {base.name}"
            _check(_flight(campaign, base, chosen, (0, sensors, campaign.stacks[0], seed), where), base, folder, where)


def _check(flight: Flight, base: _Base, folder: Path, where: str, drawn: bool = False) -> None:
    """Load what a flight loads; raises `ConfigError` with one line that names campaign, draw or flight, file and key.

    drawn: also whether the world of its unkind sensors can be drawn, which takes longer.
    """
    with _refused(base, folder, where):
        loaded = flight.loaded(folder)
        scenario = loaded.scenario
        load_airframe(scenario.airframe, scenario.airframe_changes)
        ranges = flight.own_ranges()
        parameters = flown_parameters(scenario)
        for name, value in scenario.fcu_parameters.items():
            if name not in parameters or not parameters.set(name, value):
                raise ConfigError(f"{SCENARIO_FILE}: fcu_parameters.{name} = {value}: no such parameter or wrong type")
        if flight.sensors == SensorKind.UNKIND:
            check_ranges(ranges, loaded)
        if drawn:
            check_draw(ranges, loaded, flight.seed)


@contextmanager
def _refused(base: _Base, folder: Path, where: str) -> Iterator[None]:
    """Make the refusal of a flight one line that says which it is and names the files as they are."""
    try:
        yield
    except UserError as error:
        text = str(error).replace(f"{folder}/", "")
        for written, own in base.shown.items():
            text = text.replace(written, own, 1) if text.startswith(written) else text
        raise ConfigError(f"{where}: {text}") from None


def _check_kept(flight: Flight, base: _Base, folder: Path, where: str) -> None:
    """Raise `ConfigError` for a drawn field of the scenario that unkind sensors would replace."""
    with _refused(base, folder, where):
        before = flight.loaded(folder)
        after = flight.in_its_world(before)
    old, new = ({fl.SCENARIO: _plain(loaded.scenario)} for loaded in (before, after))
    for field in flight.fields:
        path = _path_of(field)
        if path[0] == fl.SCENARIO and any(fl.lookup(old, p) != fl.lookup(new, p) for p in fl.places(old, path)):
            raise ConfigError(f"{where}: {field}: unkind sensors replace it; draw a field of unkind. in its place")


def solver_vehicles(flights: list[Flight]) -> list[Flight]:
    """One flight for each solver that the flights need; raises `ConfigError` when there are too many to build."""
    found: dict[tuple[Any, ...], Flight] = {}
    for flight in flights:
        controller = flight.files.vehicle.get("controller", {})
        found.setdefault(tuple(controller.get(key) for key in ("nodes", "horizon_s", "condensed_nodes")), flight)
    if len(found) > SOLVERS_MAX:
        raise ConfigError(
            f"vehicle.controller: the flights need {len(found)} different solvers, and each is built for a minute: "
            f"draw nodes, horizon_s and condensed_nodes from at most {SOLVERS_MAX} combinations"
        )
    return list(found.values())


def _inputs(path: Path, bases: list[_Base]) -> dict[str, str]:
    """SHA-256 of the effective content of every file that the flights are made of, by its role: a mission is often called as its scenario."""
    found: dict[str, Any] = {
        f"campaign {path.name}": read_layered(path),
        f"ranges {RANGES_FILE}": read_layered(config_folder() / RANGES_FILE),
        f"autopilot {DEFAULTS}": read_toml(defaults_file()),
    }
    for base in bases:
        found |= {f"{name} of scenario {base.name}": content for name, content in _inputs_of(base).items()}
    return {
        name: hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()
        for name, content in found.items()
    }


def _inputs_of(base: _Base) -> dict[str, Any]:
    """What is in the files of a scenario, by role and name. The first one that has changed is the one that is named, so a file comes
    before the entry in which its content is a part."""
    loaded, files, shown = base.loaded, base.files, base.shown
    found: dict[str, Any] = {
        f"scenario {loaded.path.name}": files.scenario,
        f"vehicle {loaded.vehicle_path.name}": files.vehicle,
        f"mission {loaded.mission_path.name}": files.mission,
        f"airframe {loaded.scenario.airframe}": base.tables[fl.AIRFRAME],
        f"autopilot {parameter_file(loaded.scenario.airframe).name}": files.autopilot,
    }
    found |= {f"marker dictionary {name}": text for name, text in files.dictionaries.items()}
    if files.site is not None:
        found[f"markers {shown['site.toml']}"] = [files.site, files.dictionaries]
    found |= {f"mesh or image {name}": content for name, content in files.world_files.items()}
    if files.world is not None:
        found[f"world {shown['world.toml']}"] = [files.world, files.world_files]
    inspection = files.mission.get("inspection", {})
    for key, table in (("camera", files.payload_camera), ("battery", files.payload_battery)):
        if table is not None:
            found[f"payload {key} {Path(inspection[key]).name}"] = table
    return found | {f"plan {name}": text for name, text in files.plans.items()}
