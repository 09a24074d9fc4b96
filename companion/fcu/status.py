"""What the flight controller says of itself, gathered from its slow messages into one FcuStatus."""

import math
from types import SimpleNamespace

from pymavlink.dialects.v20 import common

from companion.core.messages import FcuStatus, Vec3
from companion.fcu.modes import MULTIROTOR_TYPES, mode_name
from companion.fcu.ned import swap_world

# oldest content that still counts; each is a few periods of the stream asked for
BATTERY_AGE_S = 5.0
RC_AGE_S = 1.0
GNSS_AGE_S = 3.0
LANDED_AGE_S = 2.0
SYSTEM_AGE_S = 5.0

CELL_UNKNOWN_MV = 65535
_RC = common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER
# MAV_SYS_STATUS_SENSOR in words, for what PX4 refuses; it sends its own words to ground stations alone
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
    """The newest of every slow message with the time it came. ``put_<message>`` take decoded messages."""

    def __init__(self) -> None:
        self.mode = "UNKNOWN"
        self.armed = False
        self.wrong = ""  # why this is no vehicle for the stack, "" when it is one
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

    def forget(self) -> None:
        """The flight controller restarted: nothing it said before holds."""
        self.__init__()

    def put_heartbeat(self, m: SimpleNamespace) -> None:
        if m.autopilot != common.MAV_AUTOPILOT_PX4:
            self.wrong = f"its autopilot is {_enum('MAV_AUTOPILOT', m.autopilot)}, not PX4"
        elif m.type not in MULTIROTOR_TYPES:
            self.wrong = f"its vehicle is {_enum('MAV_TYPE', m.type)}, not a multirotor"
        else:
            self.wrong = ""
        self.armed = bool(m.base_mode & common.MAV_MODE_FLAG_SAFETY_ARMED)
        self.mode = mode_name(m.custom_mode)

    def put_current_mode(self, m: SimpleNamespace, now_s: float) -> bool:
        """Take the mode; returns whether it is news, which a heartbeat should confirm soon.

        On the ground the news is kept back for the heartbeat: PX4 returns to an earlier mode in disarming, and a mode
        that changes before "armed" does would look like somebody's doing.
        """
        mode = mode_name(m.custom_mode)
        news = mode != self.mode
        if not (self.armed and self.landed(now_s)):
            self.mode = mode
        return news

    def put_extended_sys_state(self, m: SimpleNamespace, now_s: float) -> None:
        self._landed, self._landed_s = m.landed_state == common.MAV_LANDED_STATE_ON_GROUND, now_s

    def put_battery_status(self, m: SimpleNamespace, now_s: float) -> None:
        if m.id != 0:
            return
        cells = [v for v in m.voltages if v != CELL_UNKNOWN_MV]
        cells += [v for v in m.voltages_ext if v not in (0, CELL_UNKNOWN_MV)]
        self._set_battery(sum(cells) / 1000 if cells else math.nan, m.battery_remaining, now_s)
        self._battery_from_monitor_s = now_s

    def put_sys_status(self, m: SimpleNamespace, now_s: float) -> None:
        watched = m.onboard_control_sensors_present & m.onboard_control_sensors_enabled & _RC
        self._rc_healthy = not watched or bool(m.onboard_control_sensors_health & _RC)
        self._system_s = now_s
        self._unhealthy = m.onboard_control_sensors_enabled & ~m.onboard_control_sensors_health
        # PX4 never calls this one present or enabled: it says in health whether its present mode could be armed in
        self._ready = bool(m.onboard_control_sensors_health & common.MAV_SYS_STATUS_PREARM_CHECK)
        if now_s - self._battery_from_monitor_s > BATTERY_AGE_S:  # BATTERY_STATUS knows better while it comes
            voltage = m.voltage_battery
            self._set_battery(math.nan if voltage == CELL_UNKNOWN_MV else voltage / 1000, m.battery_remaining, now_s)

    def _set_battery(self, voltage_v: float, percent: int, now_s: float) -> None:
        self._voltage_v = voltage_v
        self._remaining = percent / 100 if 0 <= percent <= 100 else math.nan
        self._battery_s = now_s

    def put_rc_channels(self, m: SimpleNamespace, now_s: float) -> None:
        count = min(m.chancount, 18)
        self._channels_us = tuple(getattr(m, f"chan{i}_raw") for i in range(1, count + 1))
        self._rc_s = now_s

    def put_gps_raw_int(self, m: SimpleNamespace, now_s: float) -> None:
        self._gnss_fix, self._gnss_s = m.fix_type, now_s

    def put_home_position(self, m: SimpleNamespace) -> None:
        self.home_altitude_m = m.altitude / 1000
        local = swap_world((m.x, m.y, m.z))
        known = all(map(math.isfinite, local))
        self.home_W = local if known else None
        self.origin_altitude_m = self.home_altitude_m - local[2] if known else None

    def standing_altitude_m(self, height_m: float) -> float | None:
        """Altitude over mean sea level of a height in the local frame [m]; home's while that is not known; or None.

        PX4 1.17 lets the altitude of its home position follow the satellites, by a metre and more; the origin of the
        local frame, by which it climbs, stays.
        """
        known = self.origin_altitude_m is not None and math.isfinite(height_m)
        return self.origin_altitude_m + height_m if known else self.home_altitude_m

    def landed(self, now_s: float) -> bool:
        """PX4 says that it stands on the ground, and said so just now."""
        return self._landed and now_s - self._landed_s <= LANDED_AGE_S

    def unhealthy(self, now_s: float) -> str:
        """What PX4 watches and finds wanting, in words; "" when nothing is or nothing is known."""
        if now_s - self._system_s > SYSTEM_AGE_S:
            return ""
        return ", ".join(name for bit, name in _SYSTEMS.items() if self._unhealthy & bit)

    def rc_ok(self, now_s: float) -> bool:
        """The receiver delivers channels and PX4's own check of it does not object."""
        channels = bool(self._channels_us) and now_s - self._rc_s <= RC_AGE_S
        return channels and (self._rc_healthy or now_s - self._system_s > SYSTEM_AGE_S)

    def ready_to_arm(self, now_s: float) -> bool | None:
        """Whether PX4's own checks let its present mode be armed in; None when it has not said so lately."""
        return self._ready if now_s - self._system_s <= SYSTEM_AGE_S else None

    def message(self, now_s: float, connected: bool) -> FcuStatus:
        """Everything as of now; what is too old counts as unknown. What the link itself knows is not in it."""
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
