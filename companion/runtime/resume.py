"""Which photographs of an inspection former flights have taken, from their logs; for ``--resume``.

A photograph is known by its item, row and column, which depend on the items of the mission and on the camera. What it shows depends on the
site: the take-off point, the places of bundles and the marker file. Speeds and batteries may change from flight to flight. A log of
other items, another camera or another site is one of another plan. A blurred photograph is taken again. So is one of a
flight that is older than `inspection.resume_days`, in a folder: the same inspection was flown before. A log that is named itself counts at any age.
The age is by the clock of the computer, which may have been wrong without a clock battery: where that shows, the newest flight counts.

A rehearsal has the same mission and the same folder as the flight of the aircraft, and its log looks the same: an aircraft
goes on after flights of aircraft alone.
"""

import datetime
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from companion.core.config import ConfigError, Tables, read_layered
from companion.core.enums import CaptureOutcome
from companion.core.frames import quat_from_rpy, rotation_matrix
from companion.core.input_files import dictionary_files, plan_files, texts
from companion.core.messages import Capture, PayloadStatus
from companion.planning.sections import RESUME_DAYS
from companion.planning.stations import HELD_M
from companion.recording.inspection import place_difference, rules_of_log, utc_offset_of
from companion.recording.log import Log, read_log
from companion.recording.retention import StoredFlight

Place = tuple[str, int, int]
LOGS = ("flight.mcap", "*/flight.mcap", "*.mcap")  # in a folder: of one flight, of flights, of an aircraft's recorder
AIRCRAFT = "aircraft"  # kind of a run, see `companion.runtime.flight_record`; all others are simulated
RUN_KEY = "photographed"  # in the run of a log: what the flights before had taken
FIRST_YEAR = 2026  # no flight of this stack is older: a clock that says so was not set
CLOCK_SET_S = 60.0  # the clock moved by more in a flight: it was set, not slewed


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
) -> list[Place]:
    """The sharp photographs that former flights of a mission have taken, in order.

    named: logs; or folders, of which the logs of this plan and kind count. simulated: for a simulated flight, of which simulated
    ones count, and an aircraft's where its log is named itself. say: called with a line on the logs of a folder that count, and on those
    that do not. now: by the clock, if not given.
    Raises `ConfigError`, one line, for a log of another plan or kind, a file that is no log, a folder without a log that counts but
    with a recent one that cannot be read; `NoFormerFlight` for a folder without a log of this plan and kind.
    """
    found: set[Place] = set()
    for path in named:
        if not path.is_dir():
            found |= _of_log(read_log(path, ("capture",)), mission, (simulated, False) if simulated else (False,))
            continue
        found |= _of_folder(path, mission, simulated, say, now or datetime.datetime.now(datetime.UTC))
    return sorted(found)


class _Flight(NamedTuple):
    """A flight of the plan. at: when it was flown, None unknown; clock_set: the clock was set in it, which makes `at` right."""

    places: set[Place]
    at: datetime.datetime | None
    clock_set: bool


def _of_folder(
    folder: Path, mission: Path, simulated: bool, say: Callable[[str], None], now: datetime.datetime
) -> set[Place]:
    """The photographs of the logs in a folder that count; see `photographed`."""
    logs = sorted({file for pattern in LOGS for file in folder.glob(pattern)})
    days = _resume_days(mission)
    oldest = now - datetime.timedelta(days=days)
    flights: dict[Path, _Flight] = {}
    skipped: Counter[str] = Counter()
    unreadable = ""
    for log in logs:
        try:
            read = read_log(log, ("capture", "payload"))
            flights[log] = _Flight(_of_log(read, mission, (simulated,)), *_flown_at(read, simulated))
        except ConfigError as error:
            kind, why = next((kind, text) for kind, text in SKIPPED.items() if isinstance(error, kind))
            skipped[why.format(kind="aircraft" if simulated else "simulated flights")] += 1
            if kind is ConfigError and _may_be_recent(log, oldest):
                unreadable = unreadable or str(error)
    old = {log for log, flight in flights.items() if flight.at is not None and flight.at < oldest}
    newest = max(flights, key=_place_in_order, default=None)
    if newest in old and (doubt := _doubt(flights[newest], logs, now)):
        old.remove(newest)
        say(f"{newest}: counts at its age, because {doubt}")
    if old:
        skipped[f"older than inspection.resume_days = {days} (of {_days(flights[log].at for log in old)})"] = len(old)
    counting = [flight for log, flight in flights.items() if log not in old]
    if counting:
        say(f"{folder}: {len(counting)} of {len(logs)} logs count, of {_days(flight.at for flight in counting)}")
    if skipped:
        detail = ", ".join(f"{count} {why}" for why, count in sorted(skipped.items()))
        say(f"{folder}: {skipped.total()} of {len(logs)} logs do not count: {detail}")
    if unreadable and not counting:
        raise ConfigError(
            f"{unreadable}; it may be of a flight of {mission.name}: move it out of the folder, or name the logs"
        )
    if not counting:
        raise NoFormerFlight(
            f"{folder}: no log of a flight of {mission.name} with its present items, camera and site, "
            f"{'simulated' if simulated else 'flown by an aircraft'}"
        )
    return set().union(*(flight.places for flight in counting))


def _resume_days(mission: Path) -> int:
    """Of the mission file; the default where it cannot be read: the file is read in full after this."""
    days = read_layered(mission).get("inspection", {}).get("resume_days", RESUME_DAYS)
    return days if isinstance(days, int) and 0 < days < 10_000 else RESUME_DAYS


def _flown_at(log: Log, simulated: bool) -> tuple[datetime.datetime | None, bool]:
    """When a log was flown, and whether the clock was set in the flight, so that this is right.

    By the clock at the end of the flight, which may have been set after the log was begun; else at its beginning; else by the time of the
    file. A simulated camera may have a clock of its own, the same in each flight.
    """
    offset_s = math.nan if simulated else utc_offset_of(log)
    began_ns = log.clock_offset_ns()
    clock_set = bool(began_ns) and abs(offset_s - began_ns * 1e-9) > CLOCK_SET_S  # NaN: no
    try:
        if math.isfinite(offset_s):
            stamp_s = max(status.stamp_s for status in log.of(PayloadStatus) if math.isfinite(status.utc_offset_s))
            return datetime.datetime.fromtimestamp(stamp_s + offset_s, datetime.UTC), clock_set
        return datetime.datetime.fromisoformat(log.metadata["start_time"]).astimezone(datetime.UTC), False
    except (KeyError, ValueError, OverflowError, OSError):
        return _written(log.path), False


def _doubt(flight: _Flight, logs: Iterable[Path], now: datetime.datetime) -> str:
    """Why the age of the newest flight of the plan is not known; "" it is. logs: all of the folder."""
    if flight.at is not None and flight.at.year < FIRST_YEAR:
        return f"the clock said {flight.at.date()}: it was not set"
    latest = max((at for log in logs if (at := _written(log)) is not None), default=now)
    if now < latest and not flight.clock_set:
        return f"the clock says {now.date()}, before a log of {latest.date()}: one of them is wrong"
    return ""


def _may_be_recent(log: Path, oldest: datetime.datetime) -> bool:
    """Whether a log that cannot be read may be of the battery before. An empty file holds no photograph."""
    written = _written(log)
    return written is None or (written >= oldest and log.stat().st_size > 0)


def _written(log: Path) -> datetime.datetime | None:
    """When a file was last written to, by the clock of that moment; None: it cannot be asked."""
    try:
        return datetime.datetime.fromtimestamp(log.stat().st_mtime, datetime.UTC)
    except (OSError, ValueError, OverflowError):
        return None


def _place_in_order(log: Path) -> tuple[int, float, str]:
    """By the number in the name, as the recorder orders flights; without one by the time of the file."""
    written = _written(log)
    return StoredFlight(log, (), 0.0, 0.0 if written is None else written.timestamp()).place


def _days(times: Iterable[datetime.datetime | None]) -> str:
    """The first and the last day."""
    dates = ["an unknown day" if at is None else str(at.date()) for at in times]
    return " to ".join(dict.fromkeys((min(dates), max(dates))))


def _of_log(log: Log, mission: Path, kinds: Sequence[bool]) -> set[Place]:
    """kinds: that count; True: simulated."""
    path = log.path
    if difference := _other_plan(log, mission):
        raise OtherPlan(f"{path}: a log of another plan: {difference}")
    try:
        run = msgspec.json.decode(log.metadata.get("run", "{}"), type=dict[str, Any])
        before = {(str(item), int(row), int(column)) for item, row, column in run.get(RUN_KEY, [])}
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: the run in the log cannot be read: {error}") from None
    if _is_simulated(log, run) not in kinds:
        raise OtherKind(f"{path}: a log of a simulated flight: an aircraft goes on after flights of aircraft alone")
    # The best capture of a photograph counts, as in the report: a sharp one that came after a blurred one.
    now = {(m.item, m.row, m.column) for m in log.of(Capture) if m.outcome == CaptureOutcome.TAKEN}
    return now | before


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
