"""The flight controller's status, collected from its slow messages into one FcuStatus."""

import math

from pymavlink.dialects.v20 import common

from companion.core.enums import FcuMode
from companion.core.messages import FcuStatus
from companion.core.trajectory_messages import Vec3
from companion.fcu.guards.armed import ArmedState
from companion.fcu.link.decoded import (
    BatteryStatus,
    CurrentMode,
    ExtendedSysState,
    GpsRawInt,
    Heartbeat,
    HomePosition,
    RcChannels,
    SysStatus,
)
from companion.fcu.modes import MULTIROTOR_TYPES, mode_name
from companion.fcu.ned import swap_world

# oldest content that still counts; each is a few periods of the requested stream
BATTERY_AGE_S = 5.0
RC_AGE_S = 1.0
GNSS_AGE_S = 3.0
LANDED_AGE_S = 2.0
SYSTEM_AGE_S = 5.0

CELL_UNKNOWN_MV = 65535
_RC = common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER
RC_CHANNELS_MAX = 18  # fields of RC_CHANNELS
# MAV_SYS_STATUS_SENSOR as text, for a refusal of PX4; PX4 sends its own texts to ground stations only
_SYSTEMS = {
    common.MAV_SYS_STATUS_SENSOR_3D_GYRO: "gyro",
    common.MAV_SYS_STATUS_SENSOR_3D_ACCEL: "accelerometer",
    common.MAV_SYS_STATUS_SENSOR_3D_MAG: "compass",
    common.MAV_SYS_STATUS_SENSOR_ABSOLUTE_PRESSURE: "barometer",
    common.MAV_SYS_STATUS_SENSOR_GPS: "GNSS",
    common.MAV_SYS_STATUS_AHRS: "attitude and position estimate",
    common.MAV_SYS_STATUS_SENSOR_MOTOR_OUTPUTS: "motors",
    common.MAV_SYS_STATUS_SENSOR_BATTERY: "battery",
}
_NEVER = -math.inf


class VehicleStatus:
    """The newest of every slow message with its arrival time. ``put_<message>`` take decoded messages."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """The flight controller restarted: its earlier messages are no longer valid."""
        self.mode = FcuMode.UNKNOWN
        self.unknown_mode: int | None = None  # custom_mode of the newest message with a mode, when it is unknown
        self.arming = ArmedState()
        self.wrong = ""  # why the stack cannot fly this vehicle, "" when it can
        self.home_W: Vec3 | None = None
        self.home_altitude_m: float | None = None  # above mean sea level
        self.origin_altitude_m: float | None = None  # of the local frame's origin, above mean sea level
        self._landed = False
        self._landed_s = _NEVER
        self._voltage_v = math.nan
        self._remaining = math.nan
        self._battery_s = _NEVER
        self._battery_from_monitor_s = _NEVER
        self._channels_us: tuple[int, ...] = ()
        self._rc_s = _NEVER
        self._rc_healthy = True
        self._system_s = _NEVER
        self._unhealthy = 0
        self._ready = False
        self._gnss_fix = 0
        self._gnss_s = _NEVER

    @property
    def armed(self) -> bool:
        return self.arming.armed

    def put_heartbeat(self, m: Heartbeat, now_s: float) -> None:
        if m.autopilot != common.MAV_AUTOPILOT_PX4:
            self.wrong = f"its autopilot is {_enum('MAV_AUTOPILOT', m.autopilot)}, not PX4"
        elif m.type not in MULTIROTOR_TYPES:
            self.wrong = f"its vehicle is {_enum('MAV_TYPE', m.type)}, not a multirotor"
        else:
            self.wrong = ""
        armed = bool(m.base_mode & common.MAV_MODE_FLAG_SAFETY_ARMED)
        self.arming.take_heartbeat(armed, now_s - self._landed_s <= LANDED_AGE_S)
        self.mode = self._known_mode(m.custom_mode)

    def put_current_mode(self, m: CurrentMode, now_s: float) -> bool:
        """Take the mode; returns True for a new mode, which a heartbeat should confirm soon.

        On the ground while armed a new mode waits for the heartbeat: PX4 returns to an earlier mode when it disarms,
        and a mode that changes before "armed" does would look like a change by the pilot.
        """
        mode = self._known_mode(m.custom_mode)
        changed = mode != self.mode
        if not (self.armed and self.landed(now_s)):
            self.mode = mode
        return changed

    def _known_mode(self, number: int) -> FcuMode:
        mode = mode_name(number)
        self.unknown_mode = number if mode is FcuMode.UNKNOWN else None
        return mode

    def put_extended_sys_state(self, m: ExtendedSysState, now_s: float) -> None:
        self._landed, self._landed_s = m.landed_state == common.MAV_LANDED_STATE_ON_GROUND, now_s
        self.arming.take_landed(self._landed)

    def put_battery_status(self, m: BatteryStatus, now_s: float) -> None:
        if m.id != 0:
            return
        cells = [v for v in m.voltages if v != CELL_UNKNOWN_MV]
        cells += [v for v in m.voltages_ext if v not in (0, CELL_UNKNOWN_MV)]
        self._set_battery(sum(cells) / 1000 if cells else math.nan, m.battery_remaining, now_s)
        self._battery_from_monitor_s = now_s

    def put_sys_status(self, m: SysStatus, now_s: float) -> None:
        watched = m.onboard_control_sensors_present & m.onboard_control_sensors_enabled & _RC
        self._rc_healthy = not watched or bool(m.onboard_control_sensors_health & _RC)
        self._system_s = now_s
        self._unhealthy = m.onboard_control_sensors_enabled & ~m.onboard_control_sensors_health
        # PX4 never sets this bit in present or enabled: in health it reports whether it could arm in its present mode
        self._ready = bool(m.onboard_control_sensors_health & common.MAV_SYS_STATUS_PREARM_CHECK)
        if now_s - self._battery_from_monitor_s > BATTERY_AGE_S:  # BATTERY_STATUS is more precise while it arrives
            voltage = m.voltage_battery
            self._set_battery(math.nan if voltage == CELL_UNKNOWN_MV else voltage / 1000, m.battery_remaining, now_s)

    def _set_battery(self, voltage_v: float, percent: int, now_s: float) -> None:
        self._voltage_v = voltage_v
        self._remaining = percent / 100 if 0 <= percent <= 100 else math.nan
        self._battery_s = now_s

    def put_rc_channels(self, m: RcChannels, now_s: float) -> None:
        count = min(m.chancount, RC_CHANNELS_MAX)
        self._channels_us = tuple(getattr(m, f"chan{i}_raw") for i in range(1, count + 1))
        self._rc_s = now_s

    def put_gps_raw_int(self, m: GpsRawInt, now_s: float) -> None:
        self._gnss_fix, self._gnss_s = m.fix_type, now_s

    def put_home_position(self, m: HomePosition) -> None:
        self.home_altitude_m = m.altitude / 1000
        local = swap_world((m.x, m.y, m.z))
        known = all(map(math.isfinite, local))
        self.home_W = local if known else None
        self.origin_altitude_m = self.home_altitude_m - local[2] if known else None

    def standing_altitude_m(self, height_m: float) -> float | None:
        """Altitude over mean sea level of a height in the local frame [m]; home's altitude while unknown; or None.

        In PX4 1.17 the altitude of the home position follows GNSS, by a metre and more; the origin of the local frame,
        which PX4 uses to climb, stays.
        """
        if self.origin_altitude_m is not None and math.isfinite(height_m):
            return self.origin_altitude_m + height_m
        return self.home_altitude_m

    def landed(self, now_s: float) -> bool:
        """PX4 has reported recently that it stands on the ground."""
        return self._landed and now_s - self._landed_s <= LANDED_AGE_S

    def unhealthy(self, now_s: float) -> str:
        """Names of the systems that PX4 reports as unhealthy; "" when there are none or the report is old."""
        if now_s - self._system_s > SYSTEM_AGE_S:
            return ""
        return ", ".join(name for bit, name in _SYSTEMS.items() if self._unhealthy & bit)

    def rc_ok(self, now_s: float) -> bool:
        """The receiver delivers channels, and PX4's own check of the receiver passes."""
        channels = bool(self._channels_us) and now_s - self._rc_s <= RC_AGE_S
        return channels and (self._rc_healthy or now_s - self._system_s > SYSTEM_AGE_S)

    def ready_to_arm(self, now_s: float) -> bool | None:
        """Whether PX4's own checks permit arming in its present mode; None without a recent report."""
        return self._ready if now_s - self._system_s <= SYSTEM_AGE_S else None

    def message(self, now_s: float, connected: bool) -> FcuStatus:
        """The status at `now_s`; old content counts as unknown. The fields of the link are left empty."""
        battery = now_s - self._battery_s <= BATTERY_AGE_S
        rc = self.rc_ok(now_s)
        return FcuStatus(
            stamp_s=now_s,
            valid=connected,
            connected=connected,
            armed=self.armed,
            mode=self.mode,
            landed=self.landed(now_s),
            battery_voltage_v=self._voltage_v if battery else math.nan,
            battery_remaining=self._remaining if battery else math.nan,
            rc_ok=rc,
            rc_channels_us=self._channels_us if now_s - self._rc_s <= RC_AGE_S else (),
            gnss_ok=self._gnss_fix >= common.GPS_FIX_TYPE_3D_FIX and now_s - self._gnss_s <= GNSS_AGE_S,
            home_W=self.home_W,
            timesync_offset_s=math.nan,
            timesync_rtt_s=math.nan,
            link_errors=0,
            ready_to_arm=self.ready_to_arm(now_s),
            unhealthy=self.unhealthy(now_s),
        )


def _enum(kind: str, number: int) -> str:
    entry = common.enums[kind].get(number)
    return entry.name if entry else f"{kind} {number}"
