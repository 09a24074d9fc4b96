"""QGroundControl's `.plan` (JSON): written from the stops of a flight, read into stations; only what both can say.

Format: QGroundControl developer guide, "Plan File Format" (mission version 2, SimpleItem); commands: MAVLink common.xml.
A waypoint carries the stop and the compass heading, MAV_CMD_DO_GIMBAL_MANAGER_PITCHYAW the elevation of the camera,
MAV_CMD_IMAGE_START_CAPTURE (read also: MAV_CMD_DO_DIGICAM_CONTROL) the photograph. Heights are above the take-off point.
"""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from companion.core.config import ConfigError, read_file
from companion.core.frames import wrap_angle
from companion.core.geodesy import EARTH_RADIUS_M, between
from companion.core.trajectory_messages import Vec3
from companion.planning.sections import Origin

SIZE_MAX_BYTES = 10_000_000  # 20,000 waypoints
INTEGER_MAX = 2**63  # beyond it a whole number may have no value as a floating-point number
WAYPOINT, LOITER_TIME, RETURN, LAND, TAKEOFF, DELAY, CONDITION_DELAY = 16, 19, 20, 21, 22, 93, 112
SPEED, DIGICAM, MOUNT, CAMERA_MODE, GIMBAL, IMAGE = 178, 203, 205, 530, 1000, 2000
FRAME_AMSL, FRAME_MISSION, FRAME_RELATIVE = 0, 2, 3  # MAV_FRAME
FRAMES_AMSL, FRAMES_RELATIVE = (0, 5), (3, 6)  # also as the _INT frames
PX4 = 12  # MAV_AUTOPILOT_PX4
# PX4 turns at this distance from a waypoint, else at NAV_ACC_RAD, which cuts the corners of a checked way.
REACHED_M = 0.5
EXPOSED_S = (
    1.0  # from the command of a photograph to its exposure at most: so long aircraft and gimbal stay where they are
)
GROUND_SPEED, UNCHANGED = 1, -1  # of MAV_CMD_DO_CHANGE_SPEED: its kind, and the throttle
ALTITUDE_RELATIVE = 1  # QGroundControl's AltitudeMode
LOCK = 4 + 8  # GIMBAL_MANAGER_FLAGS_ROLL_LOCK and PITCH_LOCK: against the horizon
MOUNT_TARGETING = 2  # MAV_MOUNT_MODE_MAVLINK_TARGETING
NAMES = {
    17: "MAV_CMD_NAV_LOITER_UNLIM",
    18: "MAV_CMD_NAV_LOITER_TURNS",
    82: "MAV_CMD_NAV_SPLINE_WAYPOINT",
    84: "MAV_CMD_NAV_VTOL_TAKEOFF",
    85: "MAV_CMD_NAV_VTOL_LAND",
    177: "MAV_CMD_DO_JUMP",
    183: "MAV_CMD_DO_SET_SERVO",
    195: "MAV_CMD_DO_SET_ROI_LOCATION",
    201: "MAV_CMD_DO_SET_ROI",
    206: "MAV_CMD_DO_SET_CAM_TRIGG_DIST",
    214: "MAV_CMD_DO_SET_CAM_TRIGG_INTERVAL",
    2001: "MAV_CMD_IMAGE_STOP_CAPTURE",
    2500: "MAV_CMD_VIDEO_START_CAPTURE",
}


class QgcStation(NamedTuple):
    """A stop of a `.plan`, from the take-off point."""

    p_W: Vec3
    yaw_rad: float
    pitch_rad: float | None  # elevation of the camera; None: the plan has no gimbal
    stop_s: float
    photograph: bool


def geographic(p_W: Vec3, origin: Origin) -> Vec3:
    """Latitude, longitude [°] and altitude [m] of a point from the take-off point; inverse of `local`."""
    east, north, up = p_W
    latitude = origin.latitude_deg + math.degrees(north / EARTH_RADIUS_M)
    scale = math.cos(math.radians((origin.latitude_deg + latitude) / 2))
    longitude = origin.longitude_deg + math.degrees(east / EARTH_RADIUS_M / scale)
    return latitude, (longitude + 180.0) % 360.0 - 180.0, origin.altitude_m + up


def local(position: Vec3, origin: Origin) -> Vec3:
    """A geographic position from the take-off point, east, north and up [m]."""
    return between((origin.latitude_deg, origin.longitude_deg, origin.altitude_m), position)


def compass_deg(yaw_rad: float) -> float:
    """Compass heading of a yaw of the plan, 0 to 360."""
    return (90.0 - math.degrees(yaw_rad)) % 360.0


def yaw_of(heading_deg: float) -> float:
    """The inverse of `compass_deg` [rad]."""
    return wrap_angle(math.radians(90.0 - heading_deg))


# --- writing --------------------------------------------------------------------------------------------------------


def plan_document(
    stations: Iterable[QgcStation], origin: Origin, takeoff_height_m: float, speed_m_s: float, mav_type: int
) -> dict[str, Any]:
    """The JSON document of a `.plan`: take-off, speed, a waypoint for each stop, its photograph, and the landing.

    The speed is a command: `cruiseSpeed` and `hoverSpeed` stay in QGroundControl, and PX4 flies without it at MPC_XY_CRUISE.
    The aircraft stays until the exposure is over, as PX4 goes on with the command of a photograph. The gimbal is commanded before the waypoint, whose stop lets it settle: PX4 waits for it by MIS_COMMAND_TOUT alone, 0 s by
    default.
    stations: with the corners of the way home, of which the last is above the take-off point: `NAV_RETURN_TO_LAUNCH` would
    climb straight up first, also below a deck. mav_type: MAV_TYPE of the aircraft, as its flight controller sends it.
    """
    items: list[dict[str, Any]] = []

    def add(command: int, params: list[float | None], up_m: float | None = None) -> None:
        item: dict[str, Any] = {
            "autoContinue": True,
            "command": command,
            "doJumpId": len(items) + 1,
            "frame": FRAME_MISSION if up_m is None else FRAME_RELATIVE,
            "params": params,
            "type": "SimpleItem",
        }
        if up_m is not None:
            item |= {"AMSLAltAboveTerrain": None, "Altitude": up_m, "AltitudeMode": ALTITUDE_RELATIVE}
        items.append(item)

    add(TAKEOFF, [0, 0, 0, None, origin.latitude_deg, origin.longitude_deg, takeoff_height_m], takeoff_height_m)
    add(SPEED, [GROUND_SPEED, speed_m_s, UNCHANGED, 0, 0, 0, 0])
    pitch_rad = None
    for station in stations:
        latitude, longitude, _ = geographic(station.p_W, origin)
        up_m = station.p_W[2]
        place: list[float | None] = [latitude, longitude, up_m]
        if station.pitch_rad is not None and station.pitch_rad != pitch_rad:
            pitch_rad = station.pitch_rad
            add(GIMBAL, [math.degrees(pitch_rad), 0, None, None, LOCK, 0, 0])
        add(WAYPOINT, [station.stop_s, REACHED_M, 0, compass_deg(station.yaw_rad), *place], up_m)
        if station.photograph:
            add(IMAGE, [0, 0, 1, 0, 0, 0, None])
            add(DELAY, [EXPOSED_S, -1, -1, -1, 0, 0, 0])
    add(LAND, [0, 0, 0, None, origin.latitude_deg, origin.longitude_deg, 0.0], 0.0)
    return {
        "fileType": "Plan",
        "geoFence": {"circles": [], "polygons": [], "version": 2},
        "groundStation": "QGroundControl",
        "mission": {
            "cruiseSpeed": speed_m_s,
            "firmwareType": PX4,
            "globalPlanAltitudeMode": ALTITUDE_RELATIVE,
            "hoverSpeed": speed_m_s,
            "items": items,
            "plannedHomePosition": [origin.latitude_deg, origin.longitude_deg, origin.altitude_m],
            "vehicleType": mav_type,
            "version": 2,
        },
        "rallyPoints": {"points": [], "version": 2},
        "version": 1,
    }


# --- reading --------------------------------------------------------------------------------------------------------


def read_plan(path: Path, origin: Origin) -> list[QgcStation]:
    """The stops of a `.plan`. Take-off and return are the mission's own: its points before and after are not read.

    Raises `ConfigError`, one line with file, item and reason, for what cannot be flown: complex items, other commands,
    photographs without end or before the first waypoint, other altitude frames.
    """
    items = _items(path)
    reader = _Reader(origin)
    for index, item in enumerate(items):
        where = f"{path}: mission.items[{index}]"
        if not isinstance(item, dict):
            raise ConfigError(f"{where}: is not an item")
        if item.get("type") != "SimpleItem":
            kind = item.get("complexItemType", item.get("type", "?"))
            raise ConfigError(f"{where}: complex item {str(kind)[:40]!r} cannot be flown; only simple items")
        if problem := reader.take(item, last=index == len(items) - 1):
            raise ConfigError(f"{where}: {problem}")
    if not reader.stations:
        raise ConfigError(f"{path}: mission.items: no waypoint")
    return reader.stations


def _items(path: Path) -> list[Any]:
    data = read_file(path, SIZE_MAX_BYTES)
    if data is None:
        raise ConfigError(f"{path}: larger than {SIZE_MAX_BYTES / 1e6:g} MB")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid JSON: {' '.join(str(error).split())[:100]}") from None
    if not isinstance(document, dict) or document.get("fileType") != "Plan" or document.get("version") != 1:
        raise ConfigError(f'{path}: not a plan of QGroundControl: needs fileType = "Plan" and version = 1')
    mission = document.get("mission")
    if not isinstance(mission, dict) or mission.get("version") != 2 or not isinstance(mission.get("items"), list):
        raise ConfigError(f"{path}: mission: needs version = 2 and a list of items")
    items: list[Any] = mission["items"]
    return items


class _Reader:
    """Takes the items one after the other."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._pitch_rad: float | None = None
        self._after_s = 0.0  # delay after the last photograph
        self.stations: list[QgcStation] = []

    def take(self, item: dict[str, Any], last: bool) -> str:
        """Read one simple item; returns what is wrong with it, "" if nothing."""
        command, params = item.get("command"), item.get("params")
        if not isinstance(command, int) or not isinstance(params, list) or len(params) != 7:
            return "needs a command and 7 params"
        numbers = []
        for value in params:
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
                return f"params: {str(value)[:40]!r} is not a number"
            if isinstance(value, int) and abs(value) > INTEGER_MAX or value in (math.inf, -math.inf):
                return "params: a number is too large"
            numbers.append(math.nan if value is None else float(value))
        match command:
            case 22:
                return "" if not self.stations else "a take-off in the middle of a plan cannot be flown"
            case 20 | 21:
                return "" if last else "a landing or return in the middle of a plan cannot be flown"
            case 16 | 19:
                return self._waypoint(item.get("frame"), numbers)
            case 178:  # of the whole plan; the mission has its own
                return "" if not self.stations else "another speed in the middle of a plan cannot be flown"
            case 93 | 112:
                return self._delay(numbers)
            case 530:
                return "" if numbers[1] == 0 else "a camera mode other than photographs cannot be flown"
            case 205 | 1000:
                return self._gimbal(command, numbers)
            case 203:
                return self._photograph() if numbers[4] == 1 else "a camera command that takes no photograph"
            case 2000:
                if numbers[2] != 1:
                    return f"takes {numbers[2]:g} photographs at one place (0: without end), 1 can be flown"
                return self._photograph()
        return f"command {command if abs(command) <= INTEGER_MAX else '?'}{f' ({NAMES[command]})' if command in NAMES else ''} cannot be flown"

    def _waypoint(self, frame: Any, numbers: list[float]) -> str:
        stop_s, heading_deg, latitude, longitude, altitude_m = numbers[0], *numbers[3:]
        if frame not in (*FRAMES_AMSL, *FRAMES_RELATIVE):
            return (
                f"frame = {str(frame)[:40]}: heights above the take-off point (3) or above sea level (0) can be flown"
            )
        if not all(map(math.isfinite, (latitude, longitude, altitude_m))):
            return "a waypoint without latitude, longitude or altitude"
        if math.isfinite(stop_s) and not 0 <= stop_s <= 3600:
            return f"stop of {stop_s:g} s: 0 to 3600 s can be flown"
        p_W = local((latitude, longitude, altitude_m), self._origin)
        if frame in FRAMES_RELATIVE:
            p_W = (p_W[0], p_W[1], altitude_m)
        yaw_rad = yaw_of(heading_deg) if math.isfinite(heading_deg) else self._along(p_W)
        stop_s = stop_s if math.isfinite(stop_s) else 0.0
        self.stations.append(QgcStation(p_W, yaw_rad, self._pitch_rad, stop_s, False))
        return ""

    def _along(self, p_W: Vec3) -> float:
        """Heading of the way to a point, as PX4 flies a waypoint without one (MPC_YAW_MODE 0)."""
        before = self.stations[-1].p_W if self.stations else (0.0, 0.0, 0.0)
        if math.hypot(p_W[0] - before[0], p_W[1] - before[1]) < 0.1:
            return self.stations[-1].yaw_rad if self.stations else 0.0
        return math.atan2(p_W[1] - before[1], p_W[0] - before[0])

    def _delay(self, numbers: list[float]) -> str:
        if not 0 <= numbers[0] <= 3600:
            return f"delay of {numbers[0]:g} s: 0 to 3600 s can be flown"
        if not self.stations:
            return "a delay before the first waypoint cannot be flown"
        if self.stations[-1].photograph:  # the stop of a station is before its photograph
            self._after_s += numbers[0]
        else:
            self.stations[-1] = self.stations[-1]._replace(stop_s=self.stations[-1].stop_s + numbers[0])
        return ""

    def _gimbal(self, command: int, numbers: list[float]) -> str:
        yaw_deg = numbers[2] if command == MOUNT else numbers[1]
        if command == MOUNT and numbers[6] != MOUNT_TARGETING:
            return f"mount mode {numbers[6]:g} cannot be flown; angles (2) can"
        if not -90 <= numbers[0] <= 90:
            return f"gimbal pitch of {numbers[0]:g}°: -90° to 90° can be flown"
        if math.isfinite(yaw_deg) and yaw_deg != 0:
            return f"gimbal yaw of {yaw_deg:g}° cannot be flown: the aircraft turns its nose"
        self._pitch_rad = math.radians(numbers[0])
        if self.stations and not self.stations[-1].photograph:
            self.stations[-1] = self.stations[-1]._replace(pitch_rad=self._pitch_rad)
        return ""

    def _photograph(self) -> str:
        if not self.stations:
            return "a photograph before the first waypoint cannot be flown"
        station = self.stations[-1]._replace(photograph=True, pitch_rad=self._pitch_rad)
        if self.stations[-1].photograph:  # another one from the same place
            self.stations.append(station._replace(stop_s=self._after_s))
        else:
            self.stations[-1] = station
        self._after_s = 0.0
        return ""
