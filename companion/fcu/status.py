"""The flight controller's status, collected from its slow messages into one FcuStatus."""

import math
from collections import deque
from statistics import median
from typing import Any

from pymavlink.dialects.v20 import common

from companion.core.enums import FcuMode, FcuSystem
from companion.core.messages import FcuStatus
from companion.core.trajectory_messages import Vec3
from companion.fcu.batteries import CELL_UNKNOWN_MV, Batteries
from companion.fcu.guards.armed import ArmedState
from companion.fcu.guards.plausible import TABLE, Plausibility, Quantity
from companion.fcu.link.decoded import (
    Altitude,
    BatteryStatus,
    CurrentMode,
    DistanceSensor,
    ExtendedSysState,
    GlobalPositionInt,
    GpsRawInt,
    Heartbeat,
    HomePosition,
    Odometry,
    RcChannels,
    SysStatus,
    Vibration,
)
from companion.fcu.modes import MULTIROTOR_TYPES, mode_name
from companion.fcu.ned import swap_world

# oldest content that still counts; each is a few periods of the requested stream
RC_AGE_S = 1.0
GNSS_AGE_S = TABLE[Quantity.GNSS].age_s
LANDED_AGE_S = 2.0
# From PX4's acceptance of a mode to the last report of the former one: PX4's commander publishes its status up to 0.1 s
# after the acceptance, and a heartbeat of the old status may be on its way.
MODE_SETTLES_S = 0.3
SYSTEM_AGE_S = 5.0

GLOBAL_POSITION_AGE_S = TABLE[Quantity.ALTITUDE].age_s
BARO_AGE_S = TABLE[Quantity.BAROMETER].age_s
HOME_AGE_S = TABLE[Quantity.HOME].age_s
ODOMETRY_AGE_S = 1.0
INTENDED_AGE_S = 2.0  # PX4 sends CURRENT_MODE on change, and every half second or a little later; one may be lost
CLIPS_AGE_S = 3.0  # of VIBRATION, requested at 2 Hz
CLIPS_PERIOD_MIN_S = 0.1  # a shorter one is no measure of a rate
RANGE_AGE_S = 0.5

# Home's altitude follows GNSS by a metre and more in PX4 1.17, and both altitudes are compared on the ground.
ALTITUDE_DIFFERENCE_MAX_M = 5.0
ALTITUDE_SAME_M = 0.25  # of one origin: noise of a standing aircraft's height
U16_UNKNOWN = 65535
ACCURACY_UNKNOWN_MM = 1_000_000  # a kilometre: PX4 converts NaN into such numbers
RANGE_UNKNOWN_CM = 65535
RANGE_INVALID = 1  # signal quality [%]; 0: not known
RANGE_SENSORS_MAX = 8  # PX4 has four: another number is not one of them
ALTITUDES = 5  # the median of so many is the ground's altitude: a jump of one message does not count
_RC = common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER
_POSITION = common.MAV_SYS_STATUS_SENSOR_XY_POSITION_CONTROL
OTHER_BEATS = 3
RC_CHANNELS_MAX = 18  # fields of RC_CHANNELS
# MAV_SYS_STATUS_SENSOR as text, for a refusal of PX4; PX4 sends its own texts to ground stations only
_SYSTEMS = {
    common.MAV_SYS_STATUS_SENSOR_3D_GYRO: FcuSystem.GYRO,
    common.MAV_SYS_STATUS_SENSOR_3D_ACCEL: FcuSystem.ACCELEROMETER,
    common.MAV_SYS_STATUS_SENSOR_3D_MAG: FcuSystem.COMPASS,
    common.MAV_SYS_STATUS_SENSOR_ABSOLUTE_PRESSURE: FcuSystem.BAROMETER,
    common.MAV_SYS_STATUS_SENSOR_GPS: FcuSystem.GNSS,
    common.MAV_SYS_STATUS_AHRS: FcuSystem.ATTITUDE,
    common.MAV_SYS_STATUS_SENSOR_MOTOR_OUTPUTS: FcuSystem.MOTORS,
    common.MAV_SYS_STATUS_SENSOR_BATTERY: FcuSystem.BATTERY,
}
_NEVER = -math.inf


class VehicleStatus:
    """The newest of every slow message with its arrival time. ``put_<message>`` take decoded messages.

    plausible: drops implausible content; None: everything is taken, as for a display.
    """

    def __init__(self, plausible: Plausibility | None = None) -> None:
        self._plausible = plausible
        self.reset()

    def reset(self) -> None:
        """The flight controller restarted: its earlier messages are no longer valid."""
        self.mode = FcuMode.UNKNOWN
        self.unknown_mode: int | None = None  # custom_mode of the newest message with a mode, when it is unknown
        self._former_mode: FcuMode | None = None  # before the newest mode that PX4 accepted from this stack
        self._former_until_s = _NEVER
        self._confirm_mode = False  # a report of the former mode was left out: ask again when it counts
        self.mode_doubted = False  # likewise, and no report has counted since
        self.arming = ArmedState()
        self.wrong = ""  # why the stack cannot fly this vehicle, "" when it can
        self._other_beats = 0  # heartbeats of something that is no PX4 multirotor, in a row
        self.home_W: Vec3 | None = None
        self.home_altitude_m: float | None = None  # above mean sea level
        self._home_s = _NEVER
        self.origin_altitude_m: float | None = None  # of the local frame's origin by HOME_POSITION, likewise
        self.height_m = math.nan  # of the newest position, in the local frame
        self._altitudes: deque[tuple[float, float]] = deque(maxlen=ALTITUDES)  # arrival, altitude: GLOBAL_POSITION_INT
        self._landed = False
        self._landed_s = _NEVER
        self.batteries = Batteries(None if self._plausible is None else self._plausible.is_battery)
        self._channels_us: tuple[int, ...] = ()
        self._rc_s = _NEVER
        self._rc_healthy = True
        self._system_s = _NEVER
        self._unhealthy = 0
        self._checks_position = False
        self._ready = False
        self._gnss_fix = 0
        self._gnss_s = _NEVER
        self._gnss: GpsRawInt | None = None  # the newest with a fix
        self._baro_m, self._baro_s = math.nan, _NEVER
        self._intended: FcuMode | None = None
        self._intended_s = _NEVER
        self._intended_changes = 0
        self._intended_beside: FcuMode | None = None  # the mode of the CURRENT_MODE with `_intended`
        self.mode_report_s = self.armed_report_s = _NEVER  # arrival of the newest report of each
        self.mode_waits = False  # CURRENT_MODE has named another mode, which counts with the next heartbeat
        self._resets, self._resets_s = 0, _NEVER
        self._clips: tuple[tuple[int, ...], float] = (), _NEVER  # of each accelerometer, and their arrival
        self._clipping_hz = math.nan
        # by forward range finder: newest range, the one before (inf: none), arrival of the newest
        self._ranges: dict[int, tuple[float, float, float]] = {}

    @property
    def voltage_v(self) -> float:
        """Of the first battery module, as it was reported; NaN: not measured."""
        return self.batteries.first.voltage_v

    @property
    def armed(self) -> bool:
        return self.arming.armed

    def put_heartbeat(self, m: Heartbeat, now_s: float) -> str:
        """Take a heartbeat; returns why it was left out, "" when it was taken.

        No flight controller becomes another in flight: a component with its ids beats, too. Only `OTHER_BEATS` in a row,
        without one of the flight controller between them, are taken there.
        """
        if m.autopilot != common.MAV_AUTOPILOT_PX4:
            wrong = f"its autopilot is {_enum('MAV_AUTOPILOT', m.autopilot)}, not PX4"
        elif m.type not in MULTIROTOR_TYPES:
            wrong = f"its vehicle is {_enum('MAV_TYPE', m.type)}, not a multirotor"
        else:
            wrong = ""
        self._other_beats = self._other_beats + 1 if wrong else 0
        if wrong and self.armed and not self.wrong and self._other_beats < OTHER_BEATS:
            return wrong
        self.wrong = wrong
        armed = bool(m.base_mode & common.MAV_MODE_FLAG_SAFETY_ARMED)
        self.arming.take_heartbeat(armed, now_s - self._landed_s <= LANDED_AGE_S)
        self.armed_report_s = now_s
        self.mode_waits = False
        self.mode = self._reported_mode(m.custom_mode, now_s)
        return ""

    def accept_mode(self, mode: FcuMode, now_s: float) -> None:
        """PX4 has accepted this mode. Its reports name the former mode for a moment longer; see `MODE_SETTLES_S`."""
        if mode != self.mode:
            self._former_mode, self._former_until_s = self.mode, now_s + MODE_SETTLES_S
        self.mode = mode

    def mode_to_confirm(self, now_s: float) -> bool:
        """Whether a heartbeat must be requested, because a report of the former mode was left out; True once."""
        if not self._confirm_mode or now_s < self._former_until_s:
            return False
        self._confirm_mode = False
        return True

    def put_current_mode(self, m: CurrentMode, now_s: float) -> bool:
        """Take the mode; returns True for a new mode, which a heartbeat should confirm soon.

        On the ground while armed a new mode waits for the heartbeat: PX4 returns to an earlier mode when it disarms,
        and a mode that changes before "armed" does would look like a change by the pilot.
        """
        intended = mode_name(m.intended_custom_mode)
        self._intended_changes += intended != self._intended
        self._intended, self._intended_s = intended, now_s
        mode = self._reported_mode(m.custom_mode, now_s)
        changed = mode != self.mode
        if not (self.armed and self.landed(now_s)):
            self.mode = mode
        self._intended_beside = mode_name(m.custom_mode)
        self.mode_waits = mode != self.mode
        return changed

    def named(self, now_s: float) -> tuple[FcuMode, FcuMode | None]:
        """The mode of the newest report, also where it waits for its heartbeat, and what PX4 was asked for beside it."""
        if self.mode_waits and self._intended_beside is not None:
            return self._intended_beside, self._intended
        return self.mode, self.intended(now_s)

    def intended_age_s(self, now_s: float) -> float:
        """Age of the newest report of what PX4 was asked for [s]; inf: none."""
        return now_s - self._intended_s

    def intended(self, now_s: float) -> FcuMode | None:
        """The mode that PX4 was asked for, whichever its failsafe flies; None: not reported with the present one."""
        known = self._intended_beside == self.mode and now_s - self._intended_s <= INTENDED_AGE_S
        return self._intended if known else None

    def awaits_intended(self, now_s: float) -> bool:
        """PX4 reports what it was asked for, and has not with the present mode."""
        return self._intended_beside != self.mode and now_s - self._intended_s <= INTENDED_AGE_S

    def _reported_mode(self, number: int, now_s: float) -> FcuMode:
        """The mode of a report; the accepted one, where the report was written before PX4 changed its mode."""
        mode = self._known_mode(number)
        if mode == self._former_mode and now_s < self._former_until_s:
            self._confirm_mode = self.mode_doubted = True
            return self.mode
        self._former_mode, self.mode_doubted = None, False
        self.mode_report_s = now_s
        return mode

    def _known_mode(self, number: int) -> FcuMode:
        mode = mode_name(number)
        self.unknown_mode = number if mode is FcuMode.UNKNOWN else None
        return mode

    def put_extended_sys_state(self, m: ExtendedSysState, now_s: float) -> None:
        self._landed, self._landed_s = m.landed_state == common.MAV_LANDED_STATE_ON_GROUND, now_s
        self.arming.take_landed(self._landed)

    def put_battery_status(self, m: BatteryStatus, now_s: float) -> None:
        self.batteries.put(m, self.armed, now_s)

    def put_sys_status(self, m: SysStatus, now_s: float) -> None:
        watched = m.onboard_control_sensors_present & m.onboard_control_sensors_enabled & _RC
        self._rc_healthy = not watched or bool(m.onboard_control_sensors_health & _RC)
        self._system_s = now_s
        self._unhealthy = m.onboard_control_sensors_enabled & ~m.onboard_control_sensors_health
        self._checks_position = bool(m.onboard_control_sensors_enabled & _POSITION)
        # PX4 never sets this bit in present or enabled: in health it reports whether it could arm in its present mode
        self._ready = bool(m.onboard_control_sensors_health & common.MAV_SYS_STATUS_PREARM_CHECK)
        voltage = m.voltage_battery
        voltage_v = math.nan if voltage == CELL_UNKNOWN_MV else voltage / 1000
        self.batteries.put_sys_status(voltage_v, m.battery_remaining, now_s)

    def put_rc_channels(self, m: RcChannels, now_s: float) -> None:
        count = min(m.chancount, RC_CHANNELS_MAX)
        self._channels_us = tuple(getattr(m, f"chan{i}_raw") for i in range(1, count + 1))
        self._rc_s = now_s

    def put_gps_raw_int(self, m: GpsRawInt, now_s: float) -> None:
        if m.fix_type >= common.GPS_FIX_TYPE_3D_FIX:
            if self._plausible is not None and not self._plausible.gnss(_place(m), _velocity(m), now_s):
                return
            self._gnss = m
        self._gnss_fix, self._gnss_s = m.fix_type, now_s

    def put_altitude(self, m: Altitude, now_s: float) -> None:
        if self._plausible is not None and not self._plausible.barometer(m.altitude_monotonic, now_s):
            return
        if math.isfinite(m.altitude_monotonic):
            self._baro_m, self._baro_s = m.altitude_monotonic, now_s

    def put_odometry(self, m: Odometry, now_s: float) -> None:
        self._resets, self._resets_s = m.reset_counter, now_s

    def put_vibration(self, m: Vibration, now_s: float) -> None:
        """Take the clipped samples since the message before; counts that fall, as after a restart, say nothing."""
        counts = (m.clipping_0, m.clipping_1, m.clipping_2)
        before, before_s = self._clips
        self._clips = counts, now_s
        more = [count - old for count, old in zip(counts, before, strict=False)]
        known = more and min(more) >= 0 and CLIPS_PERIOD_MIN_S <= now_s - before_s <= CLIPS_AGE_S
        self._clipping_hz = max(more) / (now_s - before_s) if known else math.nan

    def put_distance_sensor(self, m: DistanceSensor, now_s: float) -> None:
        """Take a forward range; one out of the sensor's own limits, or not valid by its signal, ends the one before."""
        if m.orientation != common.MAV_SENSOR_ROTATION_NONE or m.id >= RANGE_SENSORS_MAX:
            return
        within = m.min_distance <= m.current_distance < m.max_distance  # at its maximum a sensor has seen nothing
        if within and 0 < m.current_distance < RANGE_UNKNOWN_CM and m.signal_quality != RANGE_INVALID:
            newest_m, _, arrival_s = self._ranges.get(m.id, (math.inf, math.inf, -math.inf))
            before_m = newest_m if now_s - arrival_s <= RANGE_AGE_S else math.inf
            self._ranges[m.id] = m.current_distance / 100, before_m, now_s
        else:
            self._ranges.pop(m.id, None)

    def range_m(self, now_s: float) -> float:
        """The shortest recent forward range [m]; NaN: none.

        Of each sensor the longer of two readings in a row: a drop of water or an insect is one reading.
        """
        recent = [max(pair) for *pair, arrival_s in self._ranges.values() if now_s - arrival_s <= RANGE_AGE_S]
        return min((range_m for range_m in recent if range_m < math.inf), default=math.nan)

    def put_global_position_int(self, m: GlobalPositionInt, now_s: float) -> None:
        if self._plausible is None or self._plausible.altitude(m.alt / 1000, now_s):
            self._altitudes.append((now_s, m.alt / 1000))

    def put_home_position(self, m: HomePosition, now_s: float) -> None:
        if self._plausible is not None and not self._plausible.home((m.x, m.y, m.z), m.altitude / 1000, now_s):
            return
        self._home_s = now_s
        self.home_altitude_m = m.altitude / 1000
        local = swap_world((m.x, m.y, m.z))
        known = all(map(math.isfinite, local))
        self.home_W = local if known else None
        self.origin_altitude_m = self.home_altitude_m - local[2] if known else None

    def ground_altitude_m(self, now_s: float) -> tuple[float, str]:
        """Altitude over mean sea level [m] of the aircraft that stands on the ground, and why it is not known, or "".

        It is the altitude by which PX4 itself climbs (GLOBAL_POSITION_INT). HOME_POSITION, whose altitude follows GNSS
        in PX4 1.17 and which ground stations may set, has to agree with it. Where both say the same, the origin of the
        local frame by HOME_POSITION is used: with the newest height it is more recent than the other.
        """
        recent = [altitude for arrival_s, altitude in self._altitudes if now_s - arrival_s <= GLOBAL_POSITION_AGE_S]
        if not recent:
            return math.nan, "the flight controller sends no altitude (GLOBAL_POSITION_INT)"
        if self.home_altitude_m is None or now_s - self._home_s > HOME_AGE_S:
            return math.nan, "home position not known yet; wait until PX4 has a global position"
        altitude_m, by_home_m = median(recent), self.home_altitude_m
        if self.origin_altitude_m is not None and math.isfinite(self.height_m):
            by_home_m = self.origin_altitude_m + self.height_m
        if not abs(altitude_m - by_home_m) <= ALTITUDE_DIFFERENCE_MAX_M:
            difference = f"differ by {abs(altitude_m - by_home_m):.1f} m, limit {ALTITUDE_DIFFERENCE_MAX_M:g} m"
            return math.nan, f"altitudes of HOME_POSITION and GLOBAL_POSITION_INT {difference}; set home again"
        return by_home_m if abs(altitude_m - by_home_m) <= ALTITUDE_SAME_M else altitude_m, ""

    def landed(self, now_s: float) -> bool:
        """PX4 has reported recently that it stands on the ground."""
        return self._landed and now_s - self._landed_s <= LANDED_AGE_S

    def unhealthy_systems(self, now_s: float) -> tuple[FcuSystem, ...]:
        """The systems that PX4 reports as unhealthy; empty when there are none or the report is old."""
        if now_s - self._system_s > SYSTEM_AGE_S:
            return ()
        return tuple(system for bit, system in _SYSTEMS.items() if self._unhealthy & bit)

    def unhealthy(self, now_s: float) -> str:
        """The same as text, "" when there are none."""
        return ", ".join(self.unhealthy_systems(now_s))

    def rc_ok(self, now_s: float) -> bool:
        """The receiver delivers channels, and PX4's own check of the receiver passes."""
        channels = bool(self._channels_us) and now_s - self._rc_s <= RC_AGE_S
        return channels and (self._rc_healthy or now_s - self._system_s > SYSTEM_AGE_S)

    def ready_to_arm(self, now_s: float) -> bool | None:
        """Whether PX4's own checks permit arming in its present mode; None without a recent report."""
        return self._ready if now_s - self._system_s <= SYSTEM_AGE_S else None

    def position_ok(self, now_s: float) -> bool | None:
        """Whether PX4's own check of its horizontal position passes; None: it reports none, or none recently.

        A position that was lost stays lost until PX4 reports another. LOCAL_POSITION_NED comes without a valid one, too.
        """
        if not self._checks_position:
            return None
        if self._unhealthy & _POSITION:
            return False
        return True if now_s - self._system_s <= SYSTEM_AGE_S else None

    def message(self, now_s: float, connected: bool) -> FcuStatus:
        """The status at `now_s`; old content counts as unknown. The fields of the link are left empty."""
        battery = self.batteries.lowest(now_s)
        rc = self.rc_ok(now_s)
        return FcuStatus(
            stamp_s=now_s,
            valid=connected,
            connected=connected,
            armed=self.armed,
            mode=self.mode,
            landed=self.landed(now_s),
            battery_voltage_v=battery.voltage_v,
            battery_remaining=battery.remaining,
            thrust_voltage_v=self.batteries.thrust_voltage_v(now_s),
            rc_ok=rc,
            rc_channels_us=self._channels_us if now_s - self._rc_s <= RC_AGE_S else (),
            gnss_ok=self._gnss_fix >= common.GPS_FIX_TYPE_3D_FIX and now_s - self._gnss_s <= GNSS_AGE_S,
            home_W=self.home_W if now_s - self._home_s <= HOME_AGE_S else None,
            timesync_offset_s=math.nan,
            timesync_rtt_s=math.nan,
            link_errors=0,
            ready_to_arm=self.ready_to_arm(now_s),
            unhealthy=self.unhealthy(now_s),
            unhealthy_systems=self.unhealthy_systems(now_s),
            baro_altitude_m=self._baro_m if now_s - self._baro_s <= BARO_AGE_S else math.nan,
            position_resets=self._resets if now_s - self._resets_s <= ODOMETRY_AGE_S else None,
            position_resets_s=self._resets_s if now_s - self._resets_s <= ODOMETRY_AGE_S else math.nan,
            cells_v=battery.cells_v,
            position_ok=self.position_ok(now_s),
            intended_mode=self._intended if now_s - self._intended_s <= INTENDED_AGE_S else None,
            intended_known=self.intended(now_s) is not None,
            intended_changes=self._intended_changes,
            mode_s=self.mode_report_s if math.isfinite(self.mode_report_s) else math.nan,
            clipping_hz=self._clipping_hz if now_s - self._clips[1] <= CLIPS_AGE_S else math.nan,
            range_m=self.range_m(now_s),
            **self._receiver(now_s),
        )

    def _receiver(self, now_s: float) -> dict[str, Any]:
        """The fields of `FcuStatus` that begin with gnss_ and hold the receiver's solution; none when it is old."""
        m = self._gnss
        if m is None or self._gnss_fix < common.GPS_FIX_TYPE_3D_FIX:
            return {}
        if now_s - self._gnss_s > GNSS_AGE_S:
            return {}
        return {
            "gnss_position": _place(m),
            "gnss_v_W": _velocity(m),
            "gnss_s": self._gnss_s,
            "gnss_h_acc_m": _accuracy_m(m.h_acc),
            "gnss_v_acc_m": _accuracy_m(m.v_acc),
            "gnss_hdop": m.eph / 100 if m.eph not in (0, U16_UNKNOWN) else math.nan,
        }


def _place(m: GpsRawInt) -> Vec3:
    """Latitude, longitude [°] and altitude [m]."""
    return m.lat / 1e7, m.lon / 1e7, m.alt / 1000


def _velocity(m: GpsRawInt) -> tuple[float, float] | None:
    """East and north [m/s]; None: not reported."""
    if U16_UNKNOWN in (m.vel, m.cog):
        return None
    speed_m_s, course_rad = m.vel / 100, math.radians(m.cog / 100)
    return speed_m_s * math.sin(course_rad), speed_m_s * math.cos(course_rad)


def _accuracy_m(millimetres: int) -> float:
    """0, as of a message without this field, and absurd numbers are not known."""
    return millimetres / 1000 if 0 < millimetres < ACCURACY_UNKNOWN_MM else math.nan


def _enum(kind: str, number: int) -> str:
    entry = common.enums[kind].get(number)
    return entry.name if entry else f"{kind} {number}"
