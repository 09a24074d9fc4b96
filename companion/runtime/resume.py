"""Which photographs of an inspection former flights have taken, from their logs; for ``--resume``.

A photograph is known by its item, row and column, which depend on the items of the mission and on the camera. What it shows depends on the
site: the take-off point, the places of bundles and the marker file. Speeds and batteries may change from flight to flight. A log of
other items, another camera or another site is one of another plan.
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from companion.core.config import ConfigError, Tables, read_layered
from companion.core.enums import CaptureOutcome
from companion.core.input_files import dictionary_files, plan_files, texts
from companion.core.messages import Capture
from companion.recording.log import Log, LogError, read_log

Place = tuple[str, int, int]
LOGS = ("flight.mcap", "*/flight.mcap", "*.mcap")  # in a folder: of one flight, of flights, of an aircraft's recorder
SURVEY_M = 0.5  # a second survey of one place differs by centimetres
RUN_KEY = "photographed"  # in the run of a log: what the flights before had taken


class NoFormerFlight(ConfigError):
    """A folder holds no log of this plan."""


def photographed(mission: Path, named: Sequence[Path]) -> list[Place]:
    """The photographs that former flights of a mission have taken, in order.

    named: logs; or folders, of which the logs of this plan count. Raises `ConfigError`, one line, for a log of another plan, a
    file that is no log; `NoFormerFlight` for a folder without a log of this plan.
    """
    found: set[Place] = set()
    for path in named:
        if not path.is_dir():
            found |= _of_log(path, mission)
            continue
        flights = 0
        for log in sorted({file for pattern in LOGS for file in path.glob(pattern)}):
            try:
                found |= _of_log(log, mission)
                flights += 1
            except (ConfigError, LogError):
                continue
        if not flights:
            raise NoFormerFlight(
                f"{path}: no log of a flight of {mission.name} with its present items, camera and site"
            )
    return sorted(found)


def _of_log(path: Path, mission: Path) -> set[Place]:
    log = read_log(path, ("capture",))
    if difference := _other_plan(log, mission):
        raise ConfigError(f"{path}: a log of another plan: {difference}")
    taken = (CaptureOutcome.TAKEN, CaptureOutcome.BLURRED)
    now = {(m.item, m.row, m.column) for m in log.of(Capture) if m.outcome in taken}
    try:
        run = msgspec.json.decode(log.metadata.get("run", "{}"), type=dict[str, Any])
        before = {(str(item), int(row), int(column)) for item, row, column in run.get(RUN_KEY, [])}
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: the run in the log cannot be read: {error}") from None
    return now | before


def _other_plan(log: Log, mission: Path) -> str:
    """What of the plan that a log was flown by differs from the mission's; "" nothing."""
    plan_flown, plan = log.tables("mission") or {}, read_layered(mission)
    flown, present = plan_flown.get("inspection"), plan.get("inspection")
    if not isinstance(flown, dict):
        return "its mission has no [inspection]"
    if not isinstance(present, dict):
        return f"{mission} has no [inspection]"
    items = {str(item.get("name")): item for item in present.get("item", [])}
    for item in flown.get("item", []):
        if items.pop(str(item.get("name")), None) != item:
            return f"inspection.item '{item.get('name')}' is not that of {mission.name}"
    if items:
        return f"it has no inspection.item '{next(iter(items))}'"
    camera = mission.parent / str(present.get("camera"))
    if log.tables("payload_camera") != read_layered(camera):
        return f"inspection.camera is not {camera.name} as it is now"
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
    different = [bundle for bundle in {**then, **now} if then.get(bundle) != now.get(bundle)]
    return f"[[inspection.bundle]] '{different[0]}' is not that of {name}" if different else ""


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
        places = [bundle["survey"]["p_S"] for bundle in (a, b) if "survey" in bundle]
        if len(places) == 2 and math.dist(*places) > SURVEY_M:
            return f"bundle.survey of '{name}' is {math.dist(*places):.1f} m from that of {file.name}"
    return _other_texts(log, "dictionaries", texts(dictionary_files(file)))


def _by_name(tables: Tables) -> dict[str, Tables]:
    return {str(bundle.get("name")): bundle for bundle in tables.get("bundle", [])}


def run_with(run: dict[str, Any], places: Iterable[Place]) -> dict[str, Any]:
    """The run of a flight that goes on after others."""
    found = [list(place) for place in places]
    return run | {RUN_KEY: found} if found else run
