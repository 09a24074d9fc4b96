"""Which photographs of an inspection former flights have taken, from their logs; for ``--resume``.

A photograph is known by its item, row and column, which depend on the items of the mission and on the camera alone: speeds, batteries
and the take-off may change from flight to flight. A log whose items or camera differ is one of another plan.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from companion.core.config import ConfigError, read_layered
from companion.core.enums import CaptureOutcome
from companion.core.messages import Capture
from companion.recording.log import Log, LogError, read_log

Place = tuple[str, int, int]
LOGS = ("flight.mcap", "*/flight.mcap", "*.mcap")  # in a folder: of one flight, of flights, of an aircraft's recorder
RUN_KEY = "photographed"  # in the run of a log: what the flights before had taken


def photographed(mission: Path, named: Sequence[Path]) -> list[Place]:
    """The photographs that former flights of a mission have taken, in order.

    named: logs; or folders, of which the logs of this plan count. Raises `ConfigError`, one line, for a log of another plan, a
    file that is no log, and a folder without a log of this plan.
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
            raise ConfigError(f"{path}: no log of a flight of {mission.name} with its present items and camera")
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
    flown = (log.tables("mission") or {}).get("inspection")
    present = read_layered(mission).get("inspection")
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
    return ""


def run_with(run: dict[str, Any], places: Iterable[Place]) -> dict[str, Any]:
    """The run of a flight that goes on after others."""
    found = [list(place) for place in places]
    return run | {RUN_KEY: found} if found else run
