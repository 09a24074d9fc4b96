"""What the autopilot says: one function for each message it can stream, NED and FRD on the wire.

Each function writes the message and returns True, or returns False when there is nothing to say yet.
"""

import math

from sitl.autopilot.conversion import ORIGIN, frd, geodetic, ned, q_ned
from sitl.autopilot.mode_table import AUTO_MODES, CUSTOM_MODE, MANUAL_MODES
from sitl.autopilot.wire import Writer

EPOCH_US = 1_760_000_000_000_000  # what SYSTEM_TIME says at boot

NAN = math.nan
_COVARIANCE_GAPS = [NAN] * 21

# MAV_SYS_STATUS_SENSOR: gyro, accelerometer, magnetometer, pressure, GPS, RC, AHRS, battery, motors, pre-arm check
GYRO, ACCEL, MAG, BARO, GPS, ATT, XY, MOTORS, RC, AHRS = 1, 2, 4, 8, 32, 2048, 16384, 32768, 65536, 2097152
BATTERY, PREARM = 33554432, 268435456
PRESENT = GYRO | ACCEL | MAG | BARO | GPS | ATT | XY | MOTORS | RC | AHRS | BATTERY

STATUS_PERIOD_S = 0.5
# MAV_STANDARD_MODE of the modes that have one
STANDARD_MODE = {"POSCTL": 1, "ALTCTL": 4, "AUTO_RTL": 5, "AUTO_MISSION": 6, "AUTO_LAND": 7, "AUTO_TAKEOFF": 8}

CAPABILITIES = 1 | 2 | 4 | 8 | 16 | 32 | 64 | 128 | 2048 | 8192 | 16384 | 32768
VERSION_1_17_0 = (1 << 24) | (17 << 16) | (0 << 8) | 255  # 255: official release


def custom_mode(mode: str) -> int:
    """The custom_mode word of a flight mode."""
    main, sub = CUSTOM_MODE[mode]
    return main << 16 | sub << 24


class Telemetry:
    """One function for each message, by name in ``functions``.

    autopilot: the `Autopilot` whose state is told.
    """

    def __init__(self, autopilot, writer: Writer) -> None:
        self._a, self._w = autopilot, writer
        self._ping = 0
        self._told_status: tuple = ()
        self._told_status_s = -math.inf
        prefix = "_say_"
        self.functions = {n.removeprefix(prefix).upper(): getattr(self, n) for n in dir(self) if n.startswith(prefix)}

    # --- messages -------------------------------------------------------------------------------------------------

    def _say_heartbeat(self) -> bool:
        a = self._a
        c = a.commander
        mode = c.mode
        base = 1 | (128 if c.armed else 0)
        if mode in MANUAL_MODES:
            base |= 64
        if mode not in ("ACRO", "TERMINATION") and not (mode == "OFFBOARD" and a.offboard_rates):
            base |= 16
        if mode in AUTO_MODES:
            base |= 4 | 8 | 16
        if c.terminated or c.killed:
            state = 8
        elif c.armed:
            state = 5 if c.failsafe else 4
        else:
            state = 3 if c.can_arm(a.now_s) else 0
        self._w.send("HEARTBEAT", custom_mode(mode), 13, 12, base, state, 3)
        return True

    def _say_current_mode(self) -> bool:
        """With every vehicle_status of PX4: on a change, and twice a second."""
        c, now_s = self._a.commander, self._a.now_s
        status = (c.mode, c.intended, c.armed, c.failsafe)
        if status == self._told_status and now_s - self._told_status_s < STATUS_PERIOD_S:
            return False
        self._told_status, self._told_status_s = status, now_s
        self._w.send("CURRENT_MODE", custom_mode(c.mode), custom_mode(c.intended), STANDARD_MODE.get(c.mode, 0))
        return True

    def _say_sys_status(self) -> bool:
        a = self._a
        health = GYRO | ACCEL | MAG | BARO | ATT | AHRS | MOTORS
        health |= GPS if a.observer.gnss_ok else 0
        health |= XY if a.observer.position_valid else 0
        health |= RC if a.commander.manual.ok else 0
        health |= BATTERY if a.commander.battery_warning < 2 else 0
        health |= PREARM if a.commander.can_arm(a.now_s) else 0
        remaining = math.ceil(min(max(a.battery_remaining, 0.0), 1.0) * 100)
        voltage_mv = min(max(int(a.battery_voltage_v * 1000), 0), 65535)
        self._w.send(
            "SYS_STATUS",
            PRESENT,
            PRESENT,  # PX4 never calls its pre-arm check present or enabled, it only says when it passes
            health,
            300,
            voltage_mv,
            -1,
            0,
            0,
            0,
            0,
            0,
            0,
            remaining,
            0,
            0,
            0,
        )
        return True

    def _say_extended_sys_state(self) -> bool:
        a = self._a
        if a.land_detector.landed:
            state = 1
        elif a.commander.mode == "AUTO_TAKEOFF":
            state = 3
        elif a.commander.mode in AUTO_MODES and a.guidance.land_phase:
            state = 4
        else:
            state = 2
        self._w.send("EXTENDED_SYS_STATE", 0, state)
        return True

    def _say_battery_status(self) -> bool:
        a = self._a
        cells = a.cells
        each = min(max(int(a.battery_voltage_v / cells * 1000), 0), 65534)
        volts = [each] * cells + [65535] * (10 - cells)
        warning = a.commander.battery_warning
        remaining = round(min(max(a.battery_remaining, 0.0), 1.0) * 100)
        self._w.send(
            "BATTERY_STATUS", -1, -1, 32767, *volts, -1, 0, 1, 1, remaining, 0, (1, 2, 3, 4)[warning], 0, 0, 0, 0, 0, 0
        )
        return True

    def _say_gps_raw_int(self) -> bool:
        a = self._a
        if not a.new_fix:
            return False
        a.new_fix = False
        fix = a.fix
        time_us = a.boot_us(fix.stamp_s)
        if not fix.ok:
            self._w.send("GPS_RAW_INT", time_us, 0, 0, 0, 65535, 65535, 65535, 65535, 1, 0, 0, 0, 0, 0, 0, 0)
            return True
        lat, lon, alt = geodetic(fix.p_W)
        east, north, _ = fix.v_W
        course = int(math.degrees(math.atan2(east, north)) % 360.0 * 100) % 36000
        speed = min(int(math.hypot(*fix.v_W) * 100), 65534)
        mm = round(alt * 1000)
        self._w.send(
            "GPS_RAW_INT",
            time_us,
            round(lat * 1e7),
            round(lon * 1e7),
            mm,
            70,
            110,
            speed,
            course,
            3,
            14,
            mm,
            800,
            1200,
            200,
            0,
            0,
        )
        return True

    def _say_gps_global_origin(self) -> bool:
        if not self._a.observer.initialised:
            return False
        lat, lon, alt = ORIGIN
        self._w.send("GPS_GLOBAL_ORIGIN", round(lat * 1e7), round(lon * 1e7), round(alt * 1e3), self._a.boot_us())
        return True

    def _say_home_position(self) -> bool:
        a = self._a
        if a.home is None:
            return False
        lat, lon, alt = geodetic(a.home)
        half = 0.5 * (math.pi / 2 - a.home_yaw)
        q = (math.cos(half), 0.0, 0.0, math.sin(half))
        self._w.send(
            "HOME_POSITION",
            round(lat * 1e7),
            round(lon * 1e7),
            round(alt * 1e3),
            *ned(a.home),
            *q,
            0.0,
            0.0,
            0.0,
            a.boot_us(),
        )
        return True

    def _say_global_position_int(self) -> bool:
        a = self._a
        if not a.observer.position_valid:
            return False
        lat, lon, alt = geodetic(a.observer.p)
        above = a.observer.p[2] - (a.home[2] if a.home else 0.0)
        vx, vy, vz = (min(max(int(v * 100), -32768), 32767) for v in ned(a.observer.v))
        heading = int(math.degrees(math.pi / 2 - a.yaw) % 360.0 * 100) % 36000
        self._w.send(
            "GLOBAL_POSITION_INT",
            a.boot_ms(),
            round(lat * 1e7),
            round(lon * 1e7),
            round(alt * 1e3),
            round(above * 1e3),
            vx,
            vy,
            vz,
            heading,
        )
        return True

    def _say_local_position_ned(self) -> bool:
        o = self._a.observer
        if not o.initialised:
            return False
        p, v = o.p, o.v
        self._w.send("LOCAL_POSITION_NED", self._a.boot_ms(), p[1], p[0], -p[2], v[1], v[0], -v[2])
        return True

    def _say_attitude(self) -> bool:
        a = self._a
        w, x, y, z = q_ned(a.q)
        roll = math.atan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
        pitch = math.asin(max(-1.0, min(1.0, 2 * (w * y - z * x))))
        yaw = math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
        g = a.gyro
        self._w.send("ATTITUDE", a.boot_ms(), roll, pitch, yaw, g[0], -g[1], -g[2])
        return True

    def _say_attitude_quaternion(self) -> bool:
        a = self._a
        g = a.gyro
        self._w.send("ATTITUDE_QUATERNION", a.boot_ms(), *q_ned(a.q), g[0], -g[1], -g[2], 0.0, 0.0, 0.0, 0.0)
        return True

    def _say_odometry(self) -> bool:
        a = self._a
        o = a.observer
        if not o.initialised:
            return False
        pose, twist = _COVARIANCE_GAPS.copy(), _COVARIANCE_GAPS.copy()
        var = o.position_std_m(a.now_s) ** 2
        pose[0] = pose[6] = var
        pose[11] = o.gains[2].position_std ** 2
        pose[15] = pose[18] = 3e-5
        pose[20] = 3e-4
        twist[0] = twist[6] = o.gains[0].velocity_std ** 2
        twist[11] = o.gains[2].velocity_std ** 2
        g = a.gyro
        self._w.send(
            "ODOMETRY",
            a.boot_us(),
            *ned(o.p),
            *q_ned(a.q),
            *ned(o.v),
            g[0],
            -g[1],
            -g[2],
            *pose,
            *twist,
            1,
            1,
            o.resets & 255,
            8,
            0,
        )
        return True

    def _say_attitude_target(self) -> bool:
        a = self._a
        loop = a.attitude.loop
        if not loop.level:
            return False
        r = loop.rate_sp
        self._w.send("ATTITUDE_TARGET", a.boot_ms(), *q_ned(loop.q_sp), r[0], -r[1], -r[2], loop.thrust, 0)
        return True

    def _say_position_target_local_ned(self) -> bool:
        a = self._a
        sp = a.position_sp
        if sp is None:
            return False
        yaw = math.pi / 2 - sp.yaw
        self._w.send(
            "POSITION_TARGET_LOCAL_NED", a.boot_ms(), *ned(sp.p), *ned(sp.v), *ned(sp.a), yaw, -sp.yaw_rate, 0, 1
        )
        return True

    def _say_highres_imu(self) -> bool:
        a = self._a
        height = a.baro_height
        pressure = 1013.25 * (1 - 2.25577e-5 * (height + ORIGIN[2])) ** 5.25588
        # fields_updated: accelerometer, gyro, pressure, its altitude and temperature; there is no magnetometer
        self._w.send(
            "HIGHRES_IMU",
            a.boot_us(),
            *frd(a.accel),
            *frd(a.gyro),
            NAN,
            NAN,
            NAN,
            pressure,
            0.0,
            height + ORIGIN[2],
            35.0,
            0x1A3F,
            0,
        )
        return True

    def _say_altitude(self) -> bool:
        a = self._a
        if not a.observer.initialised:
            return False
        z = a.observer.p[2]
        above = z - a.home[2] if a.home else NAN
        self._w.send("ALTITUDE", a.boot_us(), a.baro_height + ORIGIN[2], z + ORIGIN[2], z, above, NAN, NAN)
        return True

    def _say_vfr_hud(self) -> bool:
        a = self._a
        v = a.observer.v
        heading = int(math.degrees(math.pi / 2 - a.yaw) % 360.0)
        throttle = int(100 * a.attitude.loop.thrust) if a.commander.armed else 0
        self._w.send("VFR_HUD", NAN, math.hypot(v[0], v[1]), a.observer.p[2] + ORIGIN[2], v[2], heading, throttle)
        return True

    def _say_estimator_status(self) -> bool:
        a = self._a
        o = a.observer
        flags = 1 | (2 | 8 | 16 | 256 | 512 if o.position_valid else 128) | (4 | 32 if o.height_valid else 0)
        self._w.send(
            "ESTIMATOR_STATUS", a.boot_us(), o.ratio_v, o.ratio_p, o.ratio_p, 0.05, 0.0, 0.0,
            o.position_std_m(a.now_s), o.gains[2].position_std, flags,
        )  # fmt: skip
        return True

    def _say_rc_channels(self) -> bool:
        a = self._a
        if a.rc_us is None:
            return False
        channels = [*a.rc_us, *[65535] * 18][:18]
        self._w.send("RC_CHANNELS", a.boot_ms(), *channels, min(len(a.rc_us), 18), 100)
        return True

    def _say_servo_output_raw(self) -> bool:
        a = self._a
        raw = [round(1000 + 1000 * m) if a.commander.armed else 900 for m in a.attitude.loop.motors]
        self._w.send("SERVO_OUTPUT_RAW", a.boot_us() & 0xFFFFFFFF, *raw, 0, 0, 0, *[0] * 8)
        return True

    def _say_timesync(self) -> bool:
        self._w.send("TIMESYNC", 0, self._a.boot_us() * 1000)
        return True

    def _say_system_time(self) -> bool:
        self._w.send("SYSTEM_TIME", EPOCH_US + self._a.boot_us(), self._a.boot_ms())
        return True

    def _say_ping(self) -> bool:
        self._w.send("PING", self._a.boot_us(), self._ping, 0, 0)
        self._ping += 1
        return True

    def _say_autopilot_version(self) -> bool:
        commit = [0] * 8  # there is no PX4 commit to name
        self._w.send(
            "AUTOPILOT_VERSION", CAPABILITIES, 0x5349544C00000001, VERSION_1_17_0, VERSION_1_17_0, 0x060800FF, 0, 0, 0,
            *commit, *commit, *[0] * 8, *[0] * 18,
        )  # fmt: skip
        return True

    def _say_flight_information(self) -> bool:
        a = self._a
        armed_us = a.boot_us(a.commander.armed_since_s) if a.commander.armed else 0
        uuid = int(a.parameters["COM_FLIGHT_UUID"])
        # fields called UTC carry the boot clock in PX4
        self._w.send("FLIGHT_INFORMATION", armed_us, armed_us, uuid, a.boot_ms(), 0)
        return True
