"""The telemetry of the emulator: one function for each message that it can stream, NED and FRD on the wire."""

import math
from collections.abc import Callable

from pymavlink.dialects.v20 import common

from companion.core.enums import FcuMode
from sitl.airframe import ROTORS_MAX
from sitl.autopilot.commander import BATTERY_CRITICAL
from sitl.autopilot.conversion import ORIGIN, Vec3, frd, geodetic, ned, q_ned
from sitl.autopilot.flight_stack import FlightStack, RateSetpoint
from sitl.autopilot.modes import AUTO_MODES, MANUAL_MODES, MODES, FlightMode, custom_mode
from sitl.autopilot.wire import Writer
from sitl.imu_faults import ImuSample

EPOCH_US = 1_760_000_000_000_000  # SYSTEM_TIME at boot

NAN = math.nan
_UNKNOWN_COVARIANCE = [NAN] * 21

# MAV_MODE_FLAG
CUSTOM_MODE_ENABLED, AUTO, GUIDED, STABILIZE, MANUAL_INPUT, ARMED = 1, 4, 8, 16, 64, 128
# MAV_SYS_STATUS_SENSOR: gyro, accelerometer, magnetometer, pressure, GPS, RC, AHRS, battery, motors, pre-arm check
GYRO, ACCEL, MAG, BARO, GPS, ATT, XY, MOTORS, RC, AHRS = 1, 2, 4, 8, 32, 2048, 16384, 32768, 65536, 2097152
BATTERY, PREARM = 33554432, 268435456
PRESENT = GYRO | ACCEL | MAG | BARO | GPS | ATT | XY | MOTORS | RC | AHRS | BATTERY

STATUS_PERIOD_S = 0.51  # measured on PX4 1.17: 0.503 to 0.514 s
BIAS_CHANGE_M_S2, BIAS_PERIOD_S = 0.001, 1.0  # EKF2 publishes its biases after such a change, and at this period

CAPABILITIES = 1 | 2 | 4 | 8 | 16 | 32 | 64 | 128 | 2048 | 8192 | 16384 | 32768
VERSION_1_17_0 = (1 << 24) | (17 << 16) | (0 << 8) | 255  # 255: official release


class Telemetry:
    """One function for each message, by name in ``functions``.

    A function writes its message and returns True, or returns False when it has no data yet.
    """

    def __init__(self, stack: FlightStack, writer: Writer) -> None:
        self._stack, self._writer = stack, writer
        self._ping_seq = 0
        self._sent_fixes = 0
        self._sent_range_s = -math.inf
        self._sent_attitude_sp_s = -math.inf
        self._sent_status: tuple[FlightMode, FlightMode, bool, bool] | None = None
        self._sent_status_s = -math.inf
        self._bias: Vec3 = (0.0, 0.0, 0.0)  # of the accelerometer, as published
        self._bias_s = -math.inf
        self._clipped, self._clipped_s = 0.0, 0.0  # samples of the accelerometer until this time
        self.functions: dict[str, Callable[[], bool]] = {
            "HEARTBEAT": self._heartbeat,
            "CURRENT_MODE": self._current_mode,
            "SYS_STATUS": self._sys_status,
            "EXTENDED_SYS_STATE": self._extended_sys_state,
            "BATTERY_STATUS": self._battery_status,
            "GPS_RAW_INT": self._gps_raw_int,
            "GPS_GLOBAL_ORIGIN": self._gps_global_origin,
            "HOME_POSITION": self._home_position,
            "GLOBAL_POSITION_INT": self._global_position_int,
            "LOCAL_POSITION_NED": self._local_position_ned,
            "ATTITUDE": self._attitude,
            "ATTITUDE_QUATERNION": self._attitude_quaternion,
            "ODOMETRY": self._odometry,
            "DISTANCE_SENSOR": self._distance_sensor,
            "ATTITUDE_TARGET": self._attitude_target,
            "POSITION_TARGET_LOCAL_NED": self._position_target_local_ned,
            "HIGHRES_IMU": self._highres_imu,
            "ALTITUDE": self._altitude,
            "VFR_HUD": self._vfr_hud,
            "ESTIMATOR_STATUS": self._estimator_status,
            "RC_CHANNELS": self._rc_channels,
            "SERVO_OUTPUT_RAW": self._servo_output_raw,
            "TIMESYNC": self._timesync,
            "SYSTEM_TIME": self._system_time,
            "PING": self._ping,
            "AUTOPILOT_VERSION": self._autopilot_version,
            "FLIGHT_INFORMATION": self._flight_information,
            "VIBRATION": self._vibration,
        }

    # --- messages -------------------------------------------------------------------------------------------------

    def _heartbeat(self) -> bool:
        stack = self._stack
        c = stack.commander
        mode = c.mode
        base = CUSTOM_MODE_ENABLED | (ARMED if c.armed else 0)
        if mode in MANUAL_MODES:
            base |= MANUAL_INPUT
        by_rates = mode == FcuMode.OFFBOARD and isinstance(stack.offboard, RateSetpoint)
        if mode not in (FcuMode.ACRO, FcuMode.TERMINATION) and not by_rates:
            base |= STABILIZE
        if mode in AUTO_MODES:
            base |= AUTO | GUIDED | STABILIZE
        if c.terminated or c.killed:
            state = common.MAV_STATE_FLIGHT_TERMINATION
        elif c.armed:
            state = common.MAV_STATE_CRITICAL if c.failsafe else common.MAV_STATE_ACTIVE
        else:
            state = common.MAV_STATE_STANDBY if c.can_arm(stack.now_s) else common.MAV_STATE_UNINIT
        self._writer.send(
            "HEARTBEAT",
            custom_mode(mode),
            stack.parameters.integer("MAV_TYPE"),
            common.MAV_AUTOPILOT_PX4,
            base,
            state,
            3,
        )
        return True

    def _current_mode(self) -> bool:
        """With every vehicle_status of PX4: on a change, and about twice a second."""
        c, now_s = self._stack.commander, self._stack.now_s
        status = (c.mode, c.intended, c.armed, c.failsafe)
        if status == self._sent_status and now_s - self._sent_status_s < STATUS_PERIOD_S:
            return False
        self._sent_status, self._sent_status_s = status, now_s
        self._writer.send("CURRENT_MODE", custom_mode(c.mode), custom_mode(c.intended), MODES[c.mode].standard_mode)
        return True

    def _sys_status(self) -> bool:
        stack = self._stack
        health = GYRO | ACCEL | MAG | BARO | ATT | AHRS | MOTORS
        health |= GPS if stack.observer.gnss_ok or not stack.observer.uses_gnss else 0
        health |= XY if stack.observer.position_valid else 0
        health |= RC if stack.commander.manual.ok else 0
        health |= BATTERY if stack.commander.battery_warning < BATTERY_CRITICAL else 0
        health |= PREARM if stack.commander.can_arm(stack.now_s) else 0
        remaining = math.ceil(min(max(stack.battery_remaining, 0.0), 1.0) * 100)
        voltage_mv = min(max(int(stack.battery_voltage_v * 1000), 0), 65535)
        self._writer.send(
            "SYS_STATUS",
            PRESENT,
            PRESENT,  # PX4 never reports its pre-arm check as present or enabled, only when it passes
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

    def _extended_sys_state(self) -> bool:
        stack = self._stack
        if stack.land_detector.landed:
            state = common.MAV_LANDED_STATE_ON_GROUND
        elif stack.commander.mode == FcuMode.AUTO_TAKEOFF:
            state = common.MAV_LANDED_STATE_TAKEOFF
        elif stack.commander.mode in AUTO_MODES and stack.guidance.land_phase:
            state = common.MAV_LANDED_STATE_LANDING
        else:
            state = common.MAV_LANDED_STATE_IN_AIR
        self._writer.send("EXTENDED_SYS_STATE", 0, state)
        return True

    def _battery_status(self) -> bool:
        stack = self._stack
        cells = stack.cells
        each = min(max(int(stack.battery_voltage_v / cells * 1000), 0), 65534)
        volts = [each] * cells + [65535] * (10 - cells)
        warning = stack.commander.battery_warning
        remaining = round(min(max(stack.battery_remaining, 0.0), 1.0) * 100)
        self._writer.send(
            "BATTERY_STATUS", -1, -1, 32767, *volts, -1, 0, 1, 1, remaining, 0, (1, 2, 3, 4)[warning], 0, 0, 0, 0, 0, 0
        )
        return True

    def _gps_raw_int(self) -> bool:
        stack = self._stack
        fix = stack.fix
        if fix is None or stack.fixes == self._sent_fixes:
            return False
        self._sent_fixes = stack.fixes
        time_us = stack.boot_us(fix.stamp_s)
        if not fix.ok:
            self._writer.send("GPS_RAW_INT", time_us, 0, 0, 0, 65535, 65535, 65535, 65535, 1, 0, 0, 0, 0, 0, 0, 0)
            return True
        lat, lon, alt = geodetic(fix.p_W)
        east, north, _ = fix.v_W
        course = int(math.degrees(math.atan2(east, north)) % 360.0 * 100) % 36000
        speed = min(int(math.hypot(*fix.v_W) * 100), 65534)
        mm = round(alt * 1000)
        self._writer.send(
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
            max(round(fix.h_acc_m * 1e3), 1),  # 0: not known
            max(round(fix.v_acc_m * 1e3), 1),
            max(round(fix.speed_acc_m_s * 1e3), 1),
            0,
            0,
        )
        return True

    def _gps_global_origin(self) -> bool:
        if not (self._stack.observer.initialised and self._stack.observer.uses_gnss):
            return False
        lat, lon, alt = ORIGIN
        self._writer.send(
            "GPS_GLOBAL_ORIGIN", round(lat * 1e7), round(lon * 1e7), round(alt * 1e3), self._stack.boot_us()
        )
        return True

    def _home_position(self) -> bool:
        stack = self._stack
        home = stack.home.p_W
        if home is None:
            return False
        lat, lon, alt = geodetic(home)
        half = 0.5 * (math.pi / 2 - stack.home.yaw)
        q = (math.cos(half), 0.0, 0.0, math.sin(half))
        self._writer.send(
            "HOME_POSITION",
            round(lat * 1e7),
            round(lon * 1e7),
            round(alt * 1e3),
            *ned(home),
            *q,
            0.0,
            0.0,
            0.0,
            stack.boot_us(),
        )
        return True

    def _global_position_int(self) -> bool:
        stack = self._stack
        if not stack.observer.position_valid:
            return False
        lat, lon, alt = geodetic(stack.observer.p)
        above = stack.observer.p[2] - (stack.home.p_W[2] if stack.home.p_W else 0.0)
        vx, vy, vz = (min(max(int(v * 100), -32768), 32767) for v in ned(stack.observer.v))
        heading = int(math.degrees(math.pi / 2 - stack.yaw) % 360.0 * 100) % 36000
        self._writer.send(
            "GLOBAL_POSITION_INT",
            stack.boot_ms(),
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

    def _local_position_ned(self) -> bool:
        o = self._stack.observer
        if not o.initialised:
            return False
        p, v = o.p, o.v
        self._writer.send("LOCAL_POSITION_NED", self._stack.boot_ms(), p[1], p[0], -p[2], v[1], v[0], -v[2])
        return True

    def _attitude(self) -> bool:
        stack = self._stack
        w, x, y, z = q_ned(stack.q)
        roll = math.atan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
        pitch = math.asin(max(-1.0, min(1.0, 2 * (w * y - z * x))))
        yaw = math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
        g = stack.gyro
        self._writer.send("ATTITUDE", stack.boot_ms(), roll, pitch, yaw, g[0], -g[1], -g[2])
        return True

    def _attitude_quaternion(self) -> bool:
        stack = self._stack
        g = stack.gyro
        self._writer.send(
            "ATTITUDE_QUATERNION", stack.boot_ms(), *q_ned(stack.q), g[0], -g[1], -g[2], 0.0, 0.0, 0.0, 0.0
        )
        return True

    def _odometry(self) -> bool:
        stack = self._stack
        o = stack.observer
        if not o.initialised:
            return False
        pose, twist = _UNKNOWN_COVARIANCE.copy(), _UNKNOWN_COVARIANCE.copy()
        var = o.position_std_m(stack.now_s) ** 2
        pose[0] = pose[6] = var
        pose[11] = o.gains[2].position_std ** 2
        pose[15] = pose[18] = 3e-5
        pose[20] = 3e-4
        twist[0] = twist[6] = o.gains[0].velocity_std ** 2
        twist[11] = o.gains[2].velocity_std ** 2
        g = stack.gyro
        self._writer.send(
            "ODOMETRY",
            stack.boot_us(),
            *ned(o.p),
            *q_ned(stack.q),
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

    def _distance_sensor(self) -> bool:
        stack = self._stack
        reading = stack.range
        if reading is None or stack.range_s == self._sent_range_s:
            return False
        self._sent_range_s = stack.range_s
        centimetres = (min(int(100.0 * m), 65535) for m in (reading.min_m, reading.max_m, reading.range_m))
        boot_ms = stack.boot_us(stack.range_s) // 1000
        forward = common.MAV_SENSOR_ROTATION_NONE
        self._writer.send(
            "DISTANCE_SENSOR", boot_ms, *centimetres, common.MAV_DISTANCE_SENSOR_LASER, 0, forward, 0, *[0.0] * 6, 0
        )
        return True

    def _attitude_target(self) -> bool:
        stack = self._stack
        loop = stack.attitude.loop
        if not loop.level or stack.attitude_sp_s == self._sent_attitude_sp_s:
            return False  # PX4 sends each attitude setpoint once, with the time at which it came
        self._sent_attitude_sp_s = stack.attitude_sp_s
        r = loop.rate_sp
        boot_ms = stack.boot_us(stack.attitude_sp_s) // 1000
        self._writer.send("ATTITUDE_TARGET", boot_ms, *q_ned(loop.q_sp), r[0], -r[1], -r[2], loop.thrust, 0)
        return True

    def _position_target_local_ned(self) -> bool:
        stack = self._stack
        sp = stack.position_sp
        if sp is None:
            return False
        yaw = math.pi / 2 - sp.yaw
        self._writer.send(
            "POSITION_TARGET_LOCAL_NED", stack.boot_ms(), *ned(sp.p), *ned(sp.v), *ned(sp.a), yaw, -sp.yaw_rate, 0, 1
        )
        return True

    def _highres_imu(self) -> bool:
        stack = self._stack
        boot_us, fault = stack.boot_us(), stack.imu_fault
        if (fault is not None and not fault.due(boot_us)) or (mean := stack.take_imu_mean()) is None:
            return False
        (gyro, raw), (bx, by, bz) = mean, self._published_bias(stack.now_s)
        sample = ImuSample(boot_us, gyro, (raw[0] - bx, raw[1] - by, raw[2] - bz))
        if fault is not None:
            sample = fault.changed(sample)
        height = stack.baro_height
        pressure = 1013.25 * (1 - 2.25577e-5 * (height + ORIGIN[2])) ** 5.25588
        # fields_updated: accelerometer, gyro, pressure, its altitude and temperature; there is no magnetometer
        self._writer.send(
            "HIGHRES_IMU",
            sample.boot_us,
            *frd(sample.accel_B),
            *frd(sample.gyro_B),
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

    def _published_bias(self, now_s: float) -> Vec3:
        """The accelerometer's bias that PX4 subtracts in HIGHRES_IMU: EKF2's, as of its last publication."""
        bias = self._stack.observer.accel_bias_B(self._stack.q)
        if math.dist(bias, self._bias) > BIAS_CHANGE_M_S2 or now_s - self._bias_s >= BIAS_PERIOD_S:
            self._bias, self._bias_s = bias, now_s
        return self._bias

    def _vibration(self) -> bool:
        """Zeros for the vibrations, which the simulated sensors do not have."""
        stack = self._stack
        if stack.imu_fault is not None:
            self._clipped += stack.imu_fault.clipping_hz * (stack.now_s - self._clipped_s)
        self._clipped_s = stack.now_s
        self._writer.send("VIBRATION", stack.boot_us(), 0.0, 0.0, 0.0, int(self._clipped), 0, 0)
        return True

    def _altitude(self) -> bool:
        stack = self._stack
        if not stack.observer.initialised:
            return False
        z = stack.observer.p[2]
        above = z - stack.home.p_W[2] if stack.home.p_W else NAN
        self._writer.send("ALTITUDE", stack.boot_us(), stack.baro_height + ORIGIN[2], z + ORIGIN[2], z, above, NAN, NAN)
        return True

    def _vfr_hud(self) -> bool:
        stack = self._stack
        v = stack.observer.v
        heading = int(math.degrees(math.pi / 2 - stack.yaw) % 360.0)
        throttle = int(100 * stack.attitude.loop.thrust) if stack.commander.armed else 0
        self._writer.send(
            "VFR_HUD", NAN, math.hypot(v[0], v[1]), stack.observer.p[2] + ORIGIN[2], v[2], heading, throttle
        )
        return True

    def _estimator_status(self) -> bool:
        stack = self._stack
        o = stack.observer
        flags = 1 | (2 | 8 | 16 | 256 | 512 if o.position_valid else 128) | (4 | 32 if o.height_valid else 0)
        self._writer.send(
            "ESTIMATOR_STATUS", stack.boot_us(), o.ratio_v, o.ratio_p, o.ratio_height, 0.05, 0.0, 0.0,
            o.position_std_m(stack.now_s), o.gains[2].position_std, flags,
        )  # fmt: skip
        return True

    def _rc_channels(self) -> bool:
        stack = self._stack
        if stack.rc_us is None:
            return False
        channels = [*stack.rc_us, *[65535] * 18][:18]
        self._writer.send("RC_CHANNELS", stack.boot_ms(), *channels, min(len(stack.rc_us), 18), 100)
        return True

    def _servo_output_raw(self) -> bool:
        stack = self._stack
        raw = [round(1000 + 1000 * m) if stack.commander.armed else 900 for m in stack.attitude.motors]
        raw += [0] * (ROTORS_MAX - len(raw))  # the port number stands between the eighth and the ninth
        self._writer.send("SERVO_OUTPUT_RAW", stack.boot_us() & 0xFFFFFFFF, *raw[:8], 0, *raw[8:])
        return True

    def _timesync(self) -> bool:
        self._writer.send("TIMESYNC", 0, self._stack.boot_us() * 1000)
        return True

    def _system_time(self) -> bool:
        self._writer.send("SYSTEM_TIME", EPOCH_US + self._stack.boot_us(), self._stack.boot_ms())
        return True

    def _ping(self) -> bool:
        self._writer.send("PING", self._stack.boot_us(), self._ping_seq, 0, 0)
        self._ping_seq += 1
        return True

    def _autopilot_version(self) -> bool:
        commit = [0] * 8  # the emulator is not built from a PX4 commit
        self._writer.send(
            "AUTOPILOT_VERSION", CAPABILITIES, 0x5349544C00000001, VERSION_1_17_0, VERSION_1_17_0, 0x060800FF, 0, 0, 0,
            *commit, *commit, *[0] * 8, *[0] * 18,
        )  # fmt: skip
        return True

    def _flight_information(self) -> bool:
        stack = self._stack
        armed_us = stack.boot_us(stack.commander.armed_since_s) if stack.commander.armed else 0
        uuid = stack.parameters.integer("COM_FLIGHT_UUID")
        # in PX4 the fields named UTC carry the boot clock
        self._writer.send("FLIGHT_INFORMATION", armed_us, armed_us, uuid, stack.boot_ms(), 0)
        return True
