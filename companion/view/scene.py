"""What stands still in the view: structure, fence, plan, markers, aircraft and photographs, as plain data for the page.

The tables are those that a log holds ("vehicle", "mission", "site", "scenario", "world"), or the files of a flight that
is under way. A table that is missing or of another version is left out: a view shows what it can.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from companion.core.config import ConfigError, Tables, read_layered
from companion.core.frames import quat_from_rpy
from companion.core.input_files import input_files
from companion.core.trajectories import duration_s, sample
from companion.mission.curves import Curve, to_trajectory
from companion.recording.log import Log, LogError, side_cars

if TYPE_CHECKING:
    from companion.planning.planner import InspectionPlan

Drawn = dict[str, Any]  # JSON-ready

DRAWN_FROM = ("vehicle", "mission", "site", "scenario", "world")
CURVE_POINTS = 400
PHOTOGRAPHS_MAX = 2000
UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, OSError)  # by this version
TEXTURE_SHADES = {"concrete": 0.62, "grass": 0.40, "plain": 0.72, "wallpaper": 0.66}


def scene_of(
    tables: dict[str, Tables], photographs: list[Drawn] | None = None, meshes: list[Drawn] | None = None
) -> Drawn:
    """The scene of a flight from its tables, by name. Its "notes" are shown to the person."""
    vehicle, mission, scenario = (tables.get(name) or {} for name in ("vehicle", "mission", "scenario"))
    drawn: Drawn = {
        "title": str(mission.get("name") or scenario.get("name") or "flight"),
        "vehicle": {}, "solids": [], "site": [], "plan": {}, "photographs": photographs or [], "meshes": meshes or [],
        "notes": [],
    }  # fmt: skip
    with _left_out():
        drawn["vehicle"] = _vehicle(vehicle, scenario)
    with _left_out():
        drawn["solids"] = [*_solids(tables.get("world") or {}), *_backdrops(scenario)]
    with _left_out():
        drawn["site"] = [_bundle(bundle) for bundle in (tables.get("site") or {}).get("bundle", [])]
    with _left_out():
        drawn["plan"] = _plan(mission)
    return drawn


def tables_of_log(log: Log) -> dict[str, Tables]:
    """The tables that a log holds; those that cannot be read are absent."""
    found = {}
    for name in DRAWN_FROM:
        with contextlib.suppress(LogError):
            tables = log.tables(name)
            if tables is not None:
                found[name] = tables
    return found


def tables_of_files(
    vehicle: Path | None, mission: Path | None, scenario: Path | None
) -> tuple[dict[str, Tables], Path | None]:
    """The tables of a flight's files and the world file, if its scenario names one; raises `ConfigError`."""
    files = input_files(vehicle, mission, scenario).tables
    return {name: read_layered(files[name]) for name in DRAWN_FROM if name in files}, files.get("world")


def photographs_beside(log_file: Path) -> list[Drawn]:
    """The photographs that the recorder wrote beside a log, with the pose of the aircraft at each."""
    found = []
    for path in side_cars(log_file)[:PHOTOGRAPHS_MAX]:
        with _left_out():
            facts = msgspec.json.decode(path.read_bytes())
            picture = path.with_suffix(".png")
            if picture.is_file():
                found.append(
                    {
                        "id": int(facts["id"]),
                        "stamp": float(facts["stamp_s"]),
                        "file": picture.name,
                        "p": [float(v) for v in facts["p_WB"]],
                        "q": [float(v) for v in facts["q_WB"]],
                    }  # fmt: skip
                )
    return found


def inspection_of(mission: Path, vehicle: Path) -> Drawn | None:
    """Path and photographs of a mission's inspection plan; None where it has none, or where it cannot be planned."""
    from companion.view.inspection_plan import Loaded

    with _left_out():
        return _inspection(Loaded(mission, vehicle).plan)
    return None


def inspection_of_log(log: Log) -> Drawn | None:
    """Path and photographs of the inspection that a flight was flown with; None where it had none.

    Raises `ConfigError`, one line, where its log does not hold what the plan needs.
    """
    from companion.view.inspection_of_log import flown_inspection

    try:
        plan = flown_inspection(log)
        return None if plan is None else _inspection(plan)
    except UNREADABLE as error:
        raise LogError(f"{log.path}: its inspection cannot be planned by this version: {error}") from None


def _inspection(plan: "InspectionPlan") -> Drawn:
    poses = [station.photograph.pose for station in plan.stations if station.photograph is not None]
    looks = [[*np.round(pose.p_W, 3).tolist(), *np.round(pose.R_WC[:, 2], 3).tolist()] for pose in poses]
    return {"path": [[round(v, 3) for v in corner] for corner in plan.path], "photographs": looks[:PHOTOGRAPHS_MAX]}


@contextlib.contextmanager
def _left_out() -> Iterator[None]:
    """A part whose table has another form than this version knows is not drawn."""
    with contextlib.suppress(*UNREADABLE, ConfigError):
        yield


def _vehicle(vehicle: Tables, scenario: Tables) -> Drawn:
    camera, safety, control = (vehicle.get(name) or {} for name in ("camera", "safety", "controller"))
    drawn: Drawn = {
        "name": str(vehicle.get("name", "")),
        "wheelbase": float(vehicle.get("wheelbase_m", 0.55)),
        "horizon": float(control.get("horizon_s", 2.0)),
        "latency": float((vehicle.get("latency") or {}).get("actuation_s", 0.0)),
        "low": safety.get("battery_low_v"),
        "critical": safety.get("battery_critical_v"),
        "simulated": bool(scenario),
    }
    if "fx_px" in camera:
        numbers = ("width_px", "height_px", "fx_px", "fy_px", "cx_px", "cy_px")
        drawn["camera"] = {
            "K": [float(camera[name]) for name in numbers],
            "p": list(camera["p_BC"]),
            "q": list(camera["q_BC"]),
        }
    return drawn


def _solids(world: Tables) -> list[Drawn]:
    drawn = []
    for solid in world.get("solid", []):
        if solid["kind"] == "mesh":
            continue
        size = solid.get("size_m") or [solid["radius_m"], solid["length_m"]]
        drawn.append(_placed(solid, solid["kind"], [float(v) for v in size], str(solid["name"])))
    return drawn


def _backdrops(scenario: Tables) -> list[Drawn]:
    backdrops = (scenario.get("scene") or {}).get("backdrops", [])
    return [_placed(b, "plate", [float(v) for v in b["size_m"]], "") for b in backdrops]


def _placed(table: Tables, kind: str, size: list[float], name: str) -> Drawn:
    q = quat_from_rpy(*(float(v) for v in table.get("rpy_rad", (0.0, 0.0, 0.0)))).tolist()
    texture = str(table.get("texture", ""))
    return {
        "kind": kind, "name": name, "p": [float(v) for v in table["p_W"]], "q": q, "size": size,
        "shade": TEXTURE_SHADES.get(texture, 0.6), "grass": texture == "grass",
    }  # fmt: skip


def _bundle(bundle: Tables) -> Drawn:
    markers = [
        {
            "p": [float(v) for v in m.get("p_M", (0.0, 0.0, 0.0))],
            "q": quat_from_rpy(*(float(v) for v in m.get("rpy_rad", (0.0, 0.0, 0.0)))).tolist(),
            "size": float(m["size_m"]),
            "id": int(m["id"]),
        }
        for m in bundle["markers"]
    ]
    return {"name": str(bundle["name"]), "markers": markers}


def _plan(mission: Tables) -> Drawn:
    """Fence, waypoints of the search, stand-off and trajectory; in the take-off point's frame but for the stand-off."""
    drawn: Drawn = {"bundle": mission.get("bundle")}
    limits = mission.get("limits")
    if limits:
        top = min(float(limits["fence_max_m"][2]), float(limits["height_m"]))
        low, high = [float(v) for v in limits["fence_min_m"]], [float(v) for v in limits["fence_max_m"]]
        drawn["fence"] = {"min": low, "max": [*high[:2], top]}
    if takeoff := mission.get("takeoff"):
        drawn["takeoff"] = float(takeoff["height_m"])
    if search := mission.get("search"):
        drawn["search"] = [[float(v) for v in w["p_m"]] for w in search["waypoints"]]
    if standoff := mission.get("standoff"):
        drawn["standoff"] = [float(v) for v in standoff["offset_M"]]
    if table := mission.get("trajectory"):
        with _left_out():
            curve: Any = msgspec.convert(table, Curve)
            trajectory = to_trajectory(curve, (0.0, 0.0, 0.0))
            times_s = np.linspace(0.0, duration_s(trajectory), CURVE_POINTS)
            points = np.round(sample(trajectory, 0.0, times_s).p_W, 3)
            drawn["trajectory"] = {"frame": curve.frame, "points": points.tolist()}
    return drawn
