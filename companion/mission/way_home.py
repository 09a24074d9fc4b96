"""The way home to the take-off point, over places that are known to be free, and how long it takes."""

from itertools import pairwise

from companion.core.trajectories import duration_s
from companion.mission import reference_geometry as geometry
from companion.mission.inspection_progress import Waypoint
from companion.mission.mission_context import MissionContext


def way_home(mission: MissionContext, yaw_rad: float) -> list[Waypoint]:
    """From here to above the take-off point; yaw_rad: heading where no waypoint gives one.

    Empty while the take-off point is not known.
    """
    behind = way_behind_inspection(mission, yaw_rad)
    progress, here = mission.flight.inspection, mission.inputs.aircraft_point()
    if not behind or here is None or progress is None or not progress.begun:
        return behind
    poses = progress.poses(mission.inputs.state, mission.inputs.home_W)
    return [*progress.return_path(here[0], behind[0][0], poses), *behind]


def way_behind_inspection(mission: MissionContext, yaw_rad: float) -> list[Waypoint]:
    """Over the waypoints that were flown on the way out, and the pilot's way before them, to above the take-off point."""
    flight, search, home_W = mission.flight, mission.plan.search, mission.inputs.home_W
    if home_W is None:
        return []
    flown = search.waypoints[: flight.waypoints_reached] if search is not None else []
    yaw_rad = flown[0].yaw_rad if flown else yaw_rad
    return [
        *((geometry.added(w.p_m, home_W), w.yaw_rad) for w in reversed(flown)),
        *((geometry.added(p, home_W), yaw_rad) for p in reversed(mission.inputs.way_out)),
        (geometry.added((0.0, 0.0, mission.plan.return_.height_m), home_W), yaw_rad),
    ]


def way_home_s(mission: MissionContext) -> float | None:
    """How long the return takes from here [s]; None: not known. In a return, what is left of it."""
    here, back, flight = mission.inputs.aircraft_point(), mission.plan.return_, mission.flight
    if here is None or mission.inputs.home_W is None:
        return None
    places = way_home(mission, here[1]) if flight.return_path is None else flight.return_path
    limits = (back.speed_m_s, back.acceleration_m_s2, mission.plan.yaw_rate_rad_s)
    return sum(duration_s(geometry.move_or_hold(*a, *b, *limits)) for a, b in pairwise([here, *places]))
