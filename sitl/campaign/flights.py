"""The flights of a campaign: what each one is flown with, drawn and checked before the first one flies.

The draws of a flight follow from the name of the campaign, the scenario, the seed and the field alone: they do not depend on the
number or order of workers, nor on the other draws of the file. Stacks and sensors of the same seed share them.
"""

import copy
import hashlib
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
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
from sitl.unkind import (
    RANGES_FILE,
    UnkindRanges,
    UnkindWorld,
    apply,
    check_draw,
    check_ranges,
    draw,
    flown_parameters,
    is_outdoors,
)

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
        self._drawn = [field for draw in campaign.draw for field in draw.fields]
        self._unkind: dict[tuple[bool, tuple[str, ...]], UnkindWorld] = {}
        self._own_airframe = _plain(load_airframe(loaded.scenario.airframe))
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

    def changed(self, chosen: Chosen, sensors: SensorKind) -> tuple[Tables, dict[str, Any]]:
        """The tables with these draws, in order, and what is recorded of them; raises `ConfigError`.

        Recorded is the value of a field. Where a factor or an offset changes every element of a list, each of which has its own
        number, that is the draw itself.
        """
        paths = {field: _path_of(field) for drawer, _ in chosen for field in drawer.fields}
        tables = self.tables | {root: copy.deepcopy(self.tables[root]) for root in {str(p[0]) for p in paths.values()}}
        recorded: dict[str, Any] = {}
        for drawer, drawn in chosen:
            for field in drawer.fields:
                path = paths[field]
                found = list(fl.places(tables, path))
                if not found:
                    raise ConfigError(f"{field}: no such list, or an empty one")
                for place in found:
                    value = self._related(drawer, drawn, place, field)
                    fl.assign(tables, place, [value, value] if _is_range(place, value) else copy.deepcopy(value))
                if path[0] == fl.UNKIND and sensors == SensorKind.KIND:
                    continue
                if fl.EVERY in path and drawer.relation != "value":
                    recorded[f"{field} ({drawer.relation})"] = drawn.value
                else:
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
            known, flown = self._own_airframe, tables[fl.AIRFRAME]
            if changes := {key: value for key, value in flown.items() if value != known.get(key)}:
                scenario = scenario | {"airframe_changes": changes}
        site = tables[fl.MARKERS] if self.files.site is not None else None
        world = tables[fl.WORLD] if self.files.world is not None else None
        changed = {"scenario": scenario, "vehicle": tables[fl.VEHICLE], "mission": tables[fl.MISSION]}
        changed |= {"airframe": airframe, "autopilot": autopilot}
        return msgspec.structs.replace(self.files, **changed, site=site, world=world)

    def replaced_field(self, flight: Flight, loaded: LoadedScenario) -> str:
        """A drawn field of the scenario that unkind sensors would replace, "" when there is none.

        Which fields they replace follows from the air and from the bundles without a survey alone, so that one world, which takes
        long to draw, serves for all such flights.
        """
        paths = [(field, path) for field in self._drawn if (path := _path_of(field))[0] == fl.SCENARIO]
        if not paths:
            return ""
        bundles = {bundle.name: bundle for bundle in loaded.site.bundle}
        hung = [p.name for p in loaded.scenario.scene.bundles if p.name in bundles and bundles[p.name].survey is None]
        alike = (is_outdoors(loaded.scenario), tuple(hung))
        if alike not in self._unkind:
            self._unkind[alike] = draw(flight.own_ranges(), loaded, flight.seed)
        after = apply(loaded, self._unkind[alike])
        old, new = ({fl.SCENARIO: _plain(one.scenario)} for one in (loaded, after))
        for field, path in paths:
            if any(fl.lookup(old, place) != fl.lookup(new, place) for place in fl.places(old, path)):
                return field
        return ""


def _plain(content: Any) -> Any:
    """Tables and lists, as of a file: a key without a value is not there."""
    return _without_none(msgspec.json.decode(msgspec.json.encode(content)))


def _without_none(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without_none(value) for key, value in content.items() if value is not None}
    return [_without_none(value) for value in content] if isinstance(content, list) else content


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

    only: the number of the one flight that is drawn and checked; there is none when the campaign has fewer.
    """
    campaign = load_campaign(path)
    bases = [_Base(path, campaign, name) for name in campaign.scenarios]
    _check_fields(path, campaign, bases)
    flights = []
    with tempfile.TemporaryDirectory(prefix="companion-campaign-") as name:
        folder = Path(name)
        for base in bases:
            _check_extremes(path, campaign, base, folder)
        checked: dict[bytes, set[int]] = {}  # seeds whose unkind world can be drawn, by the content of the files
        combined = product(enumerate(campaign.all_seeds), bases, campaign.sensor_kinds, campaign.stacks)
        for number, ((place, seed), base, sensors, stack) in enumerate(combined, 1):
            if only not in (None, number):
                continue
            chosen = chosen_for(campaign, base.name, seed, place)
            where = f"{path}: flight {number} of {base.name}"
            flight = _flight(campaign, base, chosen, (number, sensors, stack, seed), where)
            flights.append(flight)
            content = hashlib.sha256(msgspec.json.encode((flight.files, flight.ranges))).digest()
            drawable = sensors == SensorKind.KIND or seed in checked.get(content, ())
            if not (content in checked and drawable):
                _check(flight, base, folder, where, drawn=not drawable)
                checked.setdefault(content, set()).update(() if drawable else (seed,))
    return CampaignPlan(path, campaign, flights, _inputs(path, bases))


def _check_fields(path: Path, campaign: Campaign, bases: list[_Base]) -> None:
    """Raise `ConfigError` for a field that cannot be drawn in this campaign, or that a later draw replaces."""
    before: dict[str, fl.Path] = {}
    for index, drawer in enumerate(campaign.draw):
        for field in drawer.fields:
            try:
                own = _path_of(field)
            except ConfigError as error:
                raise ConfigError(f"{path}: draw[{index}]: {error}") from None
            if own[0] == fl.UNKIND and campaign.sensor_kinds == [SensorKind.KIND]:
                raise ConfigError(f'{path}: draw[{index}]: {field} has no use with sensors = "kind"')
            if own[0] == fl.WORLD and (bare := next((base.name for base in bases if base.files.world is None), None)):
                raise ConfigError(f"{path}: draw[{index}]: {field}: scenario {bare} names no world file")
            if lost := next((other for other, place in before.items() if fl.replaces(own, place)), None):
                raise ConfigError(f"{path}: draw[{index}]: {field}: replaces {lost}, which is drawn before it")
            before[field] = own


def chosen_for(campaign: Campaign, scenario: str, seed: int, place: int) -> Chosen:
    """The draws of a seed in a scenario. place: of the seed in the campaign's list."""
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
        tables, recorded = base.changed(chosen, sensors)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
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

    drawn: also whether the world of its unkind sensors can be drawn, which takes longer. A drawn field that they would replace is
    refused; where no world can be drawn at the end of a range, that is left to the flights.
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
        replaced = ""
        if flight.sensors == SensorKind.UNKIND:
            with nullcontext() if drawn else suppress(ConfigError):
                replaced = base.replaced_field(flight, loaded)
        if replaced:
            raise ConfigError(f"{replaced}: unkind sensors replace it; draw a field of unkind. in its place")


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
