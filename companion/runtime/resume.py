"""Which photographs of an inspection former flights have taken, from their logs; for ``--resume``.

A photograph is known by its item, row and column, which depend on the items of the mission and on the camera. What it shows depends on the
site: the take-off point, the places of bundles and the marker file. Speeds and batteries may change from flight to flight. A log of
other items, another camera or another site is one of another plan. A blurred photograph is taken again. So is one of a
flight that is older than `inspection.resume_days`, in a folder: the same inspection was flown before. A log that is named itself counts at any age.
The age is by the clock of the computer, which may have been wrong without a clock battery: where that shows, the newest flight counts.
So does one that is dated in the future, whose age is not known; an older one with such a date does not.

A rehearsal has the same mission and the same folder as the flight of the aircraft, and its log looks the same: an aircraft
goes on after flights of aircraft alone.
"""

import datetime
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from companion.core.config import ConfigError, Tables, read_layered
from companion.core.frames import quat_from_rpy, rotation_matrix
from companion.core.input_files import dictionary_files, plan_files, texts
from companion.planning.sections import RESUME_DAYS
from companion.planning.stations import HELD_M
from companion.recording.inspection import place_difference, rules_of_log
from companion.recording.log import Log, parts, read_log
from companion.recording.retention import StoredFlight, is_locked
from companion.runtime.log_readings import RUN_KEY as RUN_KEY
from companion.runtime.log_readings import Place as Place
from companion.runtime.log_readings import (
    Reading,
    Readings,
    flown_before,
    head_of,
    places_of,
    run_of,
    written_at,
)

LOGS = ("flight.mcap", "*/flight.mcap", "*.mcap")  # in a folder: of one flight, of flights, of an aircraft's recorder
AIRCRAFT = "aircraft"  # kind of a run, see `companion.runtime.flight_record`; all others are simulated
FIRST_YEAR = 2026  # no flight of this stack is older: a clock that says so was not set
AHEAD = datetime.timedelta(days=1)  # of the present clock: the age of a later flight is not known
PART = re.compile(r"(.+)_[1-9][0-9]{0,3}")  # name of a log that a restarted recorder went on with


class OtherPlan(ConfigError):
    """A log of a flight of another plan."""


class OtherKind(ConfigError):
    """A log of a simulated flight where those of aircraft count, or of an aircraft among simulated ones."""


class NoFormerFlight(ConfigError):
    """A folder holds no log of this plan."""


# Of an exception that a log of a folder ends with: what is wrong with the logs; the last one is that of all others.
SKIPPED: dict[type[ConfigError], str] = {
    OtherKind: "of {kind}",
    OtherPlan: "of another plan",
    ConfigError: "that cannot be read",
}


def photographed(
    mission: Path,
    named: Sequence[Path],
    simulated: bool = False,
    say: Callable[[str], None] = lambda line: None,
    now: datetime.datetime | None = None,
    kept: Path | None = None,
) -> list[Place]:
    """The sharp photographs that former flights of a mission have taken, in order.

    named: logs; or folders, of which the logs of this plan and kind count. simulated: for a simulated flight, of which simulated
    ones count, and an aircraft's where its log is named itself. say: called with a line on the logs of a folder that count, and on those
    that do not. now: by the clock, if not given. kept: a file that keeps what logs of a folder said, see `log_readings`.
    Raises `ConfigError`, one line, for a log of another plan or kind, a file that is no log, a folder without a log that counts but
    with a recent one that cannot be read; `NoFormerFlight` for a folder without a log of this plan and kind.
    """
    found: set[Place] = set()
    readings = Readings(kept)
    for path in named:
        if not path.is_dir():
            log = read_log(path, ("capture",))
            _require_plan(log, mission, (simulated, False) if simulated else (False,))
            found |= places_of(log)
            continue
        found |= _of_folder(path, mission, simulated, say, now or datetime.datetime.now(datetime.UTC), readings)
    return sorted(found)


def _of_folder(
    folder: Path, mission: Path, simulated: bool, say: Callable[[str], None], now: datetime.datetime, readings: Readings
) -> set[Place]:
    """The photographs of the logs in a folder that count; see `photographed`."""
    logs = _logs_in(folder)
    days = _resume_days(mission)
    oldest = now - datetime.timedelta(days=days)
    skipped: Counter[str] = Counter()
    unreadable: list[str] = []

    def skip(log: Path, error: ConfigError) -> None:
        kind, why = next((kind, text) for kind, text in SKIPPED.items() if isinstance(error, kind))
        skipped[why.format(kind="aircraft" if simulated else "simulated flights")] += 1
        if kind is ConfigError and _may_be_recent(log, oldest):
            unreadable.append(str(error))

    of_plan: list[Path] = []
    for log in logs:
        try:
            _require_plan(head_of(log), mission, (simulated,))
            of_plan.append(log)
        except ConfigError as error:
            skip(log, error)
    flights: dict[Path, Reading] = {}
    for log in sorted(of_plan, key=_place_in_order, reverse=True):
        try:  # the newest that can be read is read in any case: it may count at any age
            before = flown_before(log, oldest) if flights else None
            flights[log] = readings.of(log, simulated) if before is None else Reading([], before.timestamp())
        except ConfigError as error:
            skip(log, error)
    readings.forget_all_but(logs)
    old = {log for log, flight in flights.items() if flight.at is not None and flight.at < oldest}
    ahead = {log for log, flight in flights.items() if flight.at is not None and flight.at > now + AHEAD}
    newest = next(iter(flights), None)
    if newest in ahead:
        ahead.remove(newest)
        say(f"{newest}: counts, though it is dated {_days([flights[newest].at])}, after the present clock")
    if newest in old and (doubt := _doubt(newest, flights[newest], logs, now)):
        old.remove(newest)
        say(f"{newest}: counts at its age, because {doubt}")
    for left_out, why in (
        (old, f"older than inspection.resume_days = {days}"),
        (ahead, "dated after the present clock, and not the newest"),
    ):
        if left_out:
            skipped[f"{why} (of {_days(flights[log].at for log in left_out)})"] = len(left_out)
    counting = [flight for log, flight in flights.items() if log not in old | ahead]
    if counting:
        say(f"{folder}: {len(counting)} of {len(logs)} logs count, of {_days(flight.at for flight in counting)}")
    if skipped:
        detail = ", ".join(f"{count} {why}" for why, count in sorted(skipped.items()))
        say(f"{folder}: {skipped.total()} of {len(logs)} logs do not count: {detail}")
    if unreadable and not counting:
        raise ConfigError(
            f"{unreadable[0]}; it may be of a flight of {mission.name}: move it out of the folder, or name the logs"
        )
    if not counting:
        raise NoFormerFlight(
            f"{folder}: no log of a flight of {mission.name} with its present items, camera and site, "
            f"{'simulated' if simulated else 'flown by an aircraft'}"
        )
    return set().union(*(flight.places for flight in counting))


def ended_logs(folder: Path) -> set[Path]:
    """The files of the logs of a folder that no process writes any more."""
    return {file for pattern in LOGS for file in folder.glob(pattern) if not _is_locked(file)}


def _logs_in(folder: Path) -> list[Path]:
    """The logs of a folder that have ended; a part that a restarted recorder wrote is no log of its own."""
    logs = ended_logs(folder)
    begun = {log.with_name(f"{match[1]}{log.suffix}") for log in logs if (match := PART.fullmatch(log.stem))}
    further = {part for log in begun & logs for part in parts(log)[1:]}
    return sorted(logs - further)


def _is_locked(log: Path) -> bool:
    try:
        return is_locked(log)
    except OSError:  # what is wrong with it is said where it is read
        return False


def _resume_days(mission: Path) -> int:
    """Of the mission file; the default where it cannot be read: the file is read in full after this."""
    days = read_layered(mission).get("inspection", {}).get("resume_days", RESUME_DAYS)
    return days if isinstance(days, int) and 0 < days < 10_000 else RESUME_DAYS


def _doubt(newest: Path, flight: Reading, logs: Iterable[Path], now: datetime.datetime) -> str:
    """Why the age of the newest flight of the plan is not known; "" it is. logs: all of the folder.

    A log dated in the future is a reason only where it was written after the flight, by its number: one of before, and one
    without a number, would make flights of any age count for ever.
    """
    if flight.at is not None and flight.at.year < FIRST_YEAR:
        return f"the clock said {flight.at.date()}: it was not set"
    number, *_ = _place_in_order(newest)
    since = [log for log in logs if log == newest or _place_in_order(log)[0] > number]
    latest = max((at for log in since if (at := written_at(log)) is not None), default=now)
    if now < latest and not flight.clock_set:
        return f"the clock says {now.date()}, before a log of {latest.date()}: one of them is wrong"
    return ""


def _may_be_recent(log: Path, oldest: datetime.datetime) -> bool:
    """Whether a log that cannot be read may be of the battery before. An empty file holds no photograph."""
    written = written_at(log)
    return written is None or (written >= oldest and log.stat().st_size > 0)


def _place_in_order(log: Path) -> tuple[int, float, str]:
    """By the number in the name, as the recorder orders flights; without one by the time of the file."""
    written = written_at(log)
    return StoredFlight(log, (), 0.0, 0.0 if written is None else written.timestamp()).place


def _days(times: Iterable[datetime.datetime | None]) -> str:
    """The first and the last day."""
    dates = ["an unknown day" if at is None else str(at.date()) for at in times]
    return " to ".join(dict.fromkeys((min(dates), max(dates))))


def _require_plan(log: Log, mission: Path, kinds: Sequence[bool]) -> None:
    """Raise `ConfigError` for a log of another plan or kind. log: its head is enough. kinds: that count; True: simulated."""
    path = log.path
    if difference := _other_plan(log, mission):
        raise OtherPlan(f"{path}: a log of another plan: {difference}")
    if _is_simulated(log, run_of(log)) not in kinds:
        raise OtherKind(f"{path}: a log of a simulated flight: an aircraft goes on after flights of aircraft alone")


def _is_simulated(log: Log, run: dict[str, Any]) -> bool:
    """The units of an aircraft name no kind, former simulated flights neither, but their scenario."""
    return bool(run.get("kind", AIRCRAFT) != AIRCRAFT or "scenario" in log.metadata)


def _other_plan(log: Log, mission: Path) -> str:
    """What of the plan that a log was flown by differs from the mission's; "" nothing."""
    plan_flown, plan = log.tables("mission") or {}, read_layered(mission)
    flown, present = plan_flown.get("inspection"), plan.get("inspection")
    if not isinstance(flown, dict):
        return "its mission has no [inspection]"
    if not isinstance(present, dict):
        return f"{mission} has no [inspection]"
    items = _by_name(present, "item")
    for item in flown.get("item", []):
        if items.pop(str(item.get("name")), None) != item:
            return f"inspection.item '{item.get('name')}' is not that of {mission.name}"
    if items:
        return f"it has no inspection.item '{next(iter(items))}'"
    camera = mission.parent / str(present.get("camera"))
    if log.tables("payload_camera") != read_layered(camera):
        return f"inspection.camera is not {camera.name} as it is now"
    rules = rules_of_log(log)
    automatic = [name for name, item in _by_name(present, "item").items() if _has_default_standoff(item)]
    if automatic and rules.held_m != HELD_M:
        return f"its version took another stand-off for inspection.item '{automatic[0]}', which has no standoff_m"
    parts = [name for name, item in _by_name(present, "item").items() if _is_part_of_cylinder(item)]
    if parts and not rules.beyond_sector:
        return f"its version took another raster for inspection.item '{parts[0]}', a part of a cylinder"
    return (
        _other_texts(log, "plans", texts(plan_files(present, mission)))
        or _other_place(flown, present, mission.name)
        or _other_boards(log, plan, mission)
    )


def _other_texts(log: Log, name: str, now: dict[str, str]) -> str:
    """The first of the files named in others, kept in the log's metadata as texts, that has changed; "" if none."""
    try:
        then = msgspec.json.decode(log.metadata.get(name, "{}"), type=dict[str, str])
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{log.path}: the {name} in the log cannot be read: {error}") from None
    return next((f"{file} is not as it is now" for file in {**then, **now} if then.get(file) != now.get(file)), "")


def _other_place(flown: Tables, present: Tables, name: str) -> str:
    """What of the places in [inspection] differs: another site, or another take-off point."""
    for key in ("origin", "takeoff"):
        if _place(flown, key) != _place(present, key):
            return f"inspection.{key} is not that of {name}"
    then, now = _by_name(flown), _by_name(present)
    for bundle in {**then, **now}:
        if bundle not in then or bundle not in now:
            return f"[[inspection.bundle]] '{bundle}' is not that of {name}"
        if apart := _apart(then[bundle], now[bundle], "p_m", "rpy_rad"):
            return f"[[inspection.bundle]] '{bundle}' is {apart} that of {name}"
    return ""


def _apart(a: Tables, b: Tables, place: str, attitude: str) -> str:
    """How much two surveys differ, where they are of two places. place, attitude: their keys."""
    try:
        (p_a, R_a), (p_b, R_b) = (
            (np.array(table[place], dtype=float), rotation_matrix(quat_from_rpy(*table[attitude]))) for table in (a, b)
        )
    except (KeyError, TypeError, ValueError):  # the mission file is read in full after this
        return "" if a == b else "other than"
    return place_difference(p_a, R_a, p_b, R_b)


def _place(inspection: Tables, key: str) -> Tables:
    """A table of [inspection]; without `heading_deg = 0`, which files before it could be left out have."""
    return {k: v for k, v in inspection.get(key, {}).items() if (k, v) != ("heading_deg", 0)}


def _other_boards(log: Log, plan: Tables, mission: Path) -> str:
    """What of the marker file differs. A survey may be new, or better than before, but not that of another site."""
    flown = log.tables("site")
    file = mission.parent / str(plan["marker_file"]) if "marker_file" in plan else None
    if flown is None or file is None:
        return "" if flown is None and file is None else f"marker_file is not that of {mission.name}"
    then, now = _by_name(flown), _by_name(read_layered(file))
    for name in {**then, **now}:
        a, b = then.get(name, {}), now.get(name, {})
        if a.get("markers") != b.get("markers"):
            return f"the markers of bundle '{name}' are not those of {file.name}"
        surveys = [bundle["survey"] for bundle in (a, b) if "survey" in bundle]
        if len(surveys) == 2 and (apart := _apart(surveys[0], surveys[1], "p_S", "rpy_S_rad")):
            return f"bundle.survey of '{name}' is {apart} that of {file.name}"
    return _other_texts(log, "dictionaries", texts(dictionary_files(file)))


def _has_default_standoff(item: Tables) -> bool:
    return "gsd_mm_px" in item and "standoff_m" not in item


def _is_part_of_cylinder(item: Tables) -> bool:
    """No photograph shows more of a cylinder than its half: of a larger part the raster is the same as ever."""
    angle_rad = item.get("angle_rad")
    return isinstance(angle_rad, int | float) and angle_rad < math.pi


def _by_name(tables: Tables, key: str = "bundle") -> dict[str, Tables]:
    return {str(table.get("name")): table for table in tables.get(key, [])}


def run_with(run: dict[str, Any], places: Iterable[Place]) -> dict[str, Any]:
    """The run of a flight that goes on after others."""
    found = [list(place) for place in places]
    return run | {RUN_KEY: found} if found else run
