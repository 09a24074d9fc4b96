"""The flight stack of the PX4 emulator: sensor frames to motor commands, by estimator, commander and controllers.

It contains no MAVLink: `sitl.autopilot.autopilot` adds it. Everything here is ENU/FLU; the time is the stamp of the newest
frame. The other modules of this package say which parts of PX4 1.17 they follow.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from companion.core.arrays import Array
from companion.core.enums import FcuMode
from sitl.airframe import Airframe
from sitl.autopilot.attitude import ATTITUDE, OFF, RATES, AttitudeControl, AttitudeLoop
from sitl.autopilot.commander import Commander
from sitl.autopilot.conversion import ORIGIN, Quat, Vec3, Vector, frd
from sitl.autopilot.fence import Fence
from sitl.autopilot.guidance import CLIMB_RATE_MODES, GROUND_STATES, Guidance, TakeoffState
from sitl.autopilot.home import Home
from sitl.autopilot.hover_thrust import HoverThrust
from sitl.autopilot.land_detector import LandDetector
from sitl.autopilot.manual_selector import ManualSelector
from sitl.autopilot.modes import FlightMode
from sitl.autopilot.observer import Observer
from sitl.autopilot.parameters import Parameters
from sitl.autopilot.position import NAN, PositionControl, PositionSetpoint, attitude_of
from sitl.autopilot.rc import Sticks, rc_setup
from sitl.autopilot.sticks import StickYaw, stick, tilted
from sitl.autopilot.wire import MavSeverity
from sitl.imu_faults import ImuFault
from sitl.sensors import GnssFix, RangeReading, SensorFrame

IN_AIR_M = 1.0  # over the place of the start: from there on the hover thrust is learnt, until the next landing
POSITION_DIVIDER = 2  # position control at half the rate of the attitude loop
COMMANDER_DIVIDER = 5
ARMING_GESTURE = -0.9  # throttle stick below which Stabilized locks no heading
ACRO_RATE_RAD_S = math.radians(100.0)  # MC_ACRO_*_MAX of PX4


class AttitudeSetpoint(NamedTuple):
    """An offboard setpoint: attitude, yaw rate [rad/s] or NaN, thrust 0..1."""

    q_WB: Quat
    yaw_rate: float
    thrust: float


class RateSetpoint(NamedTuple):
    """An offboard setpoint: body rates [rad/s], NaN keeps the present rate, and thrust 0..1."""

    rates_B: Vec3
    thrust: float


class HoldPoint(NamedTuple):
    """A position to hold, from DO_REPOSITION; NaN members stay as they are."""

    p_W: Vec3
    yaw: float
    speed_m_s: float


OffboardSetpoint = AttitudeSetpoint | RateSetpoint | PositionSetpoint


class FlightStack:
    """One aircraft's flight control; `step` runs at 1 / dt_s.

    boot_offset_s and clock_drift_ppm: the boot clock reads boot_offset_s + t · (1 + drift) at simulated time t;
    send_text(severity, text, now_s): sends a STATUSTEXT; airframe: the places of the rotors, for the mixer.
    """

    def __init__(
        self,
        parameters: Parameters,
        dt_s: float,
        boot_offset_s: float,
        clock_drift_ppm: float,
        send_text: Callable[[MavSeverity, str, float], None],
        airframe: Airframe,
    ) -> None:
        self.parameters = parameters
        self.cells = parameters.integer("BAT1_N_CELLS")
        self._dt = dt_s
        self._boot_offset_s, self._clock_rate = boot_offset_s, 1.0 + clock_drift_ppm * 1e-6
        self._send_text = send_text
        self.now_s = 0.0
        self._steps = 0

        self.attitude = AttitudeControl(parameters, dt_s, airframe)
        self.observer = Observer(parameters, dt_s)
        self.position_control = PositionControl(parameters)
        self.guidance = Guidance(parameters)
        self.land_detector = LandDetector(parameters)
        self.commander = Commander(parameters, self.send_text)
        self.home = Home()
        self._fence = Fence(parameters)
        self._parameter_version = 0

        # the newest values, for telemetry
        self.gyro: Vec3 = (0.0, 0.0, 0.0)
        self.accel: Vec3 = (0.0, 0.0, 0.0)
        self._imu_sum, self._imu_count = [0.0] * 6, 0  # since the last HIGHRES_IMU
        self.imu_fault: ImuFault | None = None  # of HIGHRES_IMU; the autopilot itself is healthy
        self.trigger_camera: Callable[[float], None] | None = None  # connected to the trigger output; None: nothing is
        self.triggers = 0
        self.q: Quat = (1.0, 0.0, 0.0, 0.0)
        self.yaw = 0.0
        self.baro_height = 0.0
        self.battery_voltage_v, self.battery_remaining = 0.0, 1.0
        self.attitude_sp_s = -math.inf  # when the attitude setpoint that is flown was made or received
        self._offboard_s = -math.inf
        self.fix: GnssFix | None = None
        self.fixes = 0  # received so far
        self.range: RangeReading | None = None  # None: no range finder
        self.range_s = -math.inf
        self.position_sp: PositionSetpoint | None = None
        self._hover_thrust = HoverThrust(parameters)
        self._in_air, self._ground_z = False, 0.0  # in the air, the place of the start

        self.offboard: OffboardSetpoint = AttitudeSetpoint((1.0, 0.0, 0.0, 0.0), NAN, 0.0)
        self.hold_point: HoldPoint | None = None
        self._guided_mode: FlightMode | None = None  # the mode that flew at the last step
        self._stick_yaw = StickYaw(parameters)

        self.sticks = ManualSelector(self.commander.manual, parameters)
        self.rc = rc_setup(parameters)
        self.rc_us: list[int] | None = list(self.rc.neutral_us)

    # --- services -----------------------------------------------------------------------------------------------------

    def boot_s(self, now_s: float | None = None) -> float:
        """The boot clock [s]."""
        t = self.now_s if now_s is None else now_s
        return max(0.0, self._boot_offset_s + t * self._clock_rate)

    def take_imu_mean(self) -> tuple[Vec3, Vec3] | None:
        """Mean angular rate and specific force since the last call (PX4's vehicle_imu integrates); None: no new frame."""
        if not self._imu_count:
            return None
        gx, gy, gz, ax, ay, az = (s / self._imu_count for s in self._imu_sum)
        self._imu_sum, self._imu_count = [0.0] * 6, 0
        return (gx, gy, gz), (ax, ay, az)

    def boot_us(self, now_s: float | None = None) -> int:
        """The boot clock [µs]."""
        return int(self.boot_s(now_s) * 1e6)

    def boot_ms(self) -> int:
        """The boot clock [ms] in 32 bits."""
        return int(self.boot_s() * 1e3) & 0xFFFFFFFF

    def set_rc(self, channels_us: list[int] | None) -> None:
        """Set the output of the RC receiver from now on; None: RC is lost."""
        if channels_us is None:
            if self.rc_us is not None:
                self.sticks.lose_rc(self.now_s)
            self.rc_us = None
        else:
            self.rc_us = [int(c) for c in channels_us]

    def send_text(self, severity: MavSeverity, text: str) -> None:
        """Send a STATUSTEXT."""
        self._send_text(severity, text, self.now_s)

    def set_home(self, p_W: Vector | None = None, yaw: float | None = None) -> bool:
        """Set home, by default to the present position; False without a position."""
        if p_W is None and not self.observer.position_valid:
            return False
        yaw = self.yaw if yaw is None else yaw
        self.home.put(self.observer.p if p_W is None else p_W, yaw, by_command=p_W is not None)
        if self.home.p_W is not None:
            self.guidance.home = self.home.p_W
        return True

    def takeoff_height(self, amsl_m: float) -> float:
        """Height (ENU) of a take-off to an altitude, or by MIS_TAKEOFF_ALT if it is NaN; never downwards."""
        here = self.observer.p[2]
        if not math.isfinite(amsl_m):
            default = self.parameters["MIS_TAKEOFF_ALT"]
            self.send_text(MavSeverity.INFO, f"Using default takeoff altitude: {default:.1f} m\t")
            return here + default
        if amsl_m - ORIGIN[2] < here:
            self.send_text(MavSeverity.CRITICAL, "Already higher than takeoff altitude\t")
        return max(amsl_m - ORIGIN[2], here)

    def set_offboard(self, setpoint: OffboardSetpoint, now_s: float, needs_position: bool = False) -> None:
        """Take an offboard setpoint; needs_position: it can only be flown with a valid position."""
        self.offboard = setpoint
        self._offboard_s = now_s
        self.commander.offboard_setpoint(now_s, needs_position)

    def turn_to_ned(self, v_FRD: Vector, only_yaw: bool) -> Vec3:
        """A body vector (FRD) in NED, by yaw alone or the whole attitude."""
        if only_yaw:
            heading = math.pi / 2 - self.yaw
            c, s = math.cos(heading), math.sin(heading)
            return c * v_FRD[0] - s * v_FRD[1], s * v_FRD[0] + c * v_FRD[1], v_FRD[2]
        w, x, y, z = self.q
        fx, fy, fz = frd(v_FRD)
        cx, cy, cz = y * fz - z * fy, z * fx - x * fz, x * fy - y * fx
        east = fx + 2 * (w * cx + y * cz - z * cy)
        north = fy + 2 * (w * cy + z * cx - x * cz)
        up = fz + 2 * (w * cz + x * cy - y * cx)
        return north, east, -up

    # --- the loop -----------------------------------------------------------------------------------------------------

    def step(self, frame: SensorFrame) -> Array:
        """One sensor frame to motor commands 0..1 (a view that the next step overwrites)."""
        self.now_s = now_s = frame.stamp_s
        self.gyro, self.accel, self.q = frame.gyro_B, frame.accel_B, frame.q_WB
        self._imu_sum = [s + x for s, x in zip(self._imu_sum, (*frame.gyro_B, *frame.accel_B), strict=True)]
        self._imu_count += 1
        w, x, y, z = self.q
        self.yaw = math.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))
        observer = self.observer
        observer.predict(now_s, frame.accel_B, frame.q_WB)
        if frame.gnss is not None:
            self.fix = frame.gnss
            self.fixes += 1
            observer.correct_gnss(now_s, frame.gnss)
        if frame.baro_height_m is not None:
            self.baro_height = frame.baro_height_m
            observer.correct_baro(now_s, frame.baro_height_m)
        if frame.range is not None:
            self.range, self.range_s = frame.range, now_s
        if self._steps % COMMANDER_DIVIDER == 0:
            self._update_commander(frame, now_s)
        loop = self.attitude.loop
        loop.gyro[:] = frame.gyro_B
        loop.q[:] = frame.q_WB
        commander = self.commander
        offboard = self.offboard
        if not commander.armed or commander.killed or commander.terminated:
            loop.level, loop.thrust = OFF, 0.0
            self._guided_mode = self.position_sp = None
        elif commander.mode == FcuMode.OFFBOARD and not isinstance(offboard, PositionSetpoint):
            self._fly_offboard(loop, offboard)
        elif commander.mode in (FcuMode.MANUAL, FcuMode.STABILIZED, FcuMode.ACRO):
            self._fly_sticks(loop)
        elif self._steps % POSITION_DIVIDER == 0:
            self._fly_position(loop)
        if self._steps % POSITION_DIVIDER == 0:
            self._learn_hover(loop.thrust)
        loop.landed = 1.0 if self.land_detector.maybe_landed else 0.0
        self.attitude.step()
        self._steps += 1
        return self.attitude.motors

    def _update_commander(self, frame: SensorFrame, now_s: float) -> None:
        if self.parameters.version != self._parameter_version:
            self._parameter_version = self.parameters.version
            self.attitude.update_parameters(self.parameters)
            self.position_control.update_parameters()
            self.observer.update_parameters()
        observer, commander, guidance = self.observer, self.commander, self.guidance
        observer.check(now_s)
        self.battery_voltage_v, self.battery_remaining = frame.battery_voltage_v, frame.battery_remaining
        loop = self.attitude.loop
        climb_rate = commander.mode in CLIMB_RATE_MODES or (
            commander.mode == FcuMode.OFFBOARD and isinstance(self.offboard, PositionSetpoint)
        )
        self.land_detector.update(
            now_s,
            commander.armed,
            loop.thrust,
            self.position_control.hover,
            self._hover_thrust.valid and self.parameters["MPC_USE_HTE"] == 1,
            observer.v,
            observer.p[2] - observer.height_resets_m,
            tuple(loop.rate_filtered),
            climb_rate,
            self.position_sp.v[2] if climb_rate and self.position_sp is not None else NAN,
            observer.height_valid,
            observer.position_valid,
        )
        standing = not commander.armed and self.land_detector.landed
        if standing:
            observer.rest()
        standing = standing and observer.position_valid
        if self.home.outdated(standing, observer, now_s):
            self.set_home()
        inputs = commander.inputs
        inputs.attitude = True
        inputs.position, inputs.height, inputs.home = (
            observer.position_valid,
            observer.height_valid,
            self.home.p_W is not None,
        )
        inputs.landed, inputs.maybe_landed = self.land_detector.landed, self.land_detector.maybe_landed
        inputs.takeoff_finished = guidance.finished and guidance.mode == FcuMode.AUTO_TAKEOFF
        inputs.battery_remaining = self.battery_remaining
        _, x, y, _ = self.q
        inputs.tilt_rad = math.acos(max(-1.0, min(1.0, 1.0 - 2.0 * (x * x + y * y))))
        before = inputs.fence
        holding = commander.mode == FcuMode.AUTO_LOITER
        self._fence.check(observer.position_valid, holding, observer.p, self.home.p_W, now_s)
        inputs.fence = self._fence.breach
        if inputs.fence and not before:
            self.send_text(MavSeverity.CRITICAL, f"Geofence: {inputs.fence}")
        self.sticks.update(now_s, self.rc_us)
        commander.update(now_s)
        if commander.home_due:
            commander.home_due = False
            self.set_home()
        leaves_ground = self._leaves_ground(commander.manual.sticks)
        guidance.update_takeoff(now_s, commander.armed, self.land_detector.landed, leaves_ground)

    def _leaves_ground(self, sticks: Sticks) -> bool:
        """Whether the setpoint of the active mode commands the aircraft off the ground."""
        if self.commander.mode == FcuMode.OFFBOARD:
            sp = self.offboard
            return isinstance(sp, PositionSetpoint) and (sp.p[2] > self.observer.p[2] + 0.2 or sp.v[2] > 0.0)
        return self._guided_mode == self.commander.mode and self.guidance.leaves_ground(sticks)

    def _climb_rate(self, sp: PositionSetpoint) -> float:
        """Of the estimate [m/s]; where a climb rate is commanded and no height, PX4 blends in the derivative of the height."""
        rate, climb_sp = self.observer.v[2], sp.v[2]
        if math.isfinite(sp.p[2]) or not math.isfinite(climb_sp):
            return rate
        return rate + min(abs(climb_sp) / self.parameters["MPC_LAND_SPEED"], 1.0) * self.land_detector.rate_error_m_s

    def _learn_hover(self, thrust: float) -> None:
        """Follow the hover thrust in the air, in every mode, and use it while it is valid (MPC_USE_HTE)."""
        control, observer, estimate = self.position_control, self.observer, self._hover_thrust
        height = observer.p[2] - observer.height_resets_m
        if not self.commander.armed:
            estimate.reset()
        if self.land_detector.landed or not self.commander.armed:
            self._in_air, self._ground_z = False, height
        elif height > self._ground_z + IN_AIR_M:
            self._in_air = True
        if self._in_air:
            v_x, v_y, v_z = observer.v
            lift = thrust * (1.0 - 2.0 * (self.q[1] ** 2 + self.q[2] ** 2))
            dt = POSITION_DIVIDER * self._dt
            estimate.update(dt, lift, observer.acceleration[2], math.hypot(v_x, v_y), v_z)
        else:
            estimate.pause()
        if self.guidance.takeoff_state is not TakeoffState.FLIGHT:
            control.set_hover(self.parameters["MPC_THR_HOVER"])
        elif estimate.valid and self.parameters["MPC_USE_HTE"] == 1:
            control.set_hover(estimate.value)

    # --- setpoints of the active mode ---------------------------------------------------------------------------------

    def _fly_offboard(self, loop: AttitudeLoop, setpoint: AttitudeSetpoint | RateSetpoint) -> None:
        self._guided_mode, self.position_sp = FcuMode.OFFBOARD, None
        self.position_control.reset()
        loop.thrust = setpoint.thrust
        if isinstance(setpoint, RateSetpoint):
            loop.level = RATES
            loop.rate_sp_in[:] = setpoint.rates_B
        else:
            self.attitude_sp_s = self._offboard_s  # body rates are no attitude setpoint: PX4 does not echo them
            loop.level = ATTITUDE
            loop.q_sp[:] = setpoint.q_WB
            loop.yaw_rate_sp = setpoint.yaw_rate

    def _fly_sticks(self, loop: AttitudeLoop) -> None:
        get = self.parameters
        right, forward, up, turn = self.commander.manual.sticks
        mode = self.commander.mode
        self.attitude_sp_s = self.now_s
        self.position_control.reset()
        if self._guided_mode != mode:
            self._guided_mode, self.position_sp = mode, None
            self._stick_yaw.reset()
        low, hover, high = get["MPC_MANTHR_MIN"], self.position_control.hover, get["MPC_THR_MAX"]
        if get["MPC_THR_CURVE"] == 1:
            thrust = low + (up + 1) / 2 * (high - low)
        else:
            thrust = hover + up * ((high - hover) if up > 0 else (hover - low))
        loop.thrust = thrust if up > -0.99 or not self.land_detector.landed else 0.0
        if mode == FcuMode.ACRO:
            loop.level = RATES
            loop.rate_sp_in[:] = (right * ACRO_RATE_RAD_S, forward * ACRO_RATE_RAD_S, -turn * ACRO_RATE_RAD_S)
            return
        lock = up > ARMING_GESTURE and not self.land_detector.landed
        heading = self._stick_yaw.update(self._dt, stick(turn, get["MAN_DEADZONE"]), self.yaw, lock)
        tilt = math.radians(get["MPC_MAN_TILT_MAX"]) / max(math.hypot(right, forward), 1.0)
        loop.level = ATTITUDE
        loop.q_sp[:] = tilted(forward * tilt, right * tilt, heading.yaw)
        loop.yaw_rate_sp = heading.rate

    def _fly_position(self, loop: AttitudeLoop) -> None:
        commander, guidance, control, o = self.commander, self.guidance, self.position_control, self.observer
        dt, mode = POSITION_DIVIDER * self._dt, commander.mode
        self.attitude_sp_s = self.now_s
        if self._guided_mode != mode:
            control.change_mode()
            if self._guided_mode not in CLIMB_RATE_MODES:
                guidance.mode = None  # nothing to continue: the setpoints of the mode before offboard or sticks are old
            if mode != FcuMode.OFFBOARD:
                guidance.enter(mode, o.p, o.v, self.yaw)
            self._guided_mode = mode
        point = self.hold_point if mode == FcuMode.AUTO_LOITER else None
        self.hold_point = None
        if point is not None:
            guidance.go_to(point.p_W, point.yaw)
            if math.isfinite(point.speed_m_s) and point.speed_m_s > 0:
                guidance.cruise_m_s = point.speed_m_s
        if mode == FcuMode.OFFBOARD and isinstance(self.offboard, PositionSetpoint):
            sp = self.offboard
        else:
            sp = guidance.update(dt, o.p, self.yaw, commander.manual.sticks)
        self.position_sp = sp
        state = guidance.takeoff_state
        loop.level = ATTITUDE
        if state in GROUND_STATES or (self.land_detector.maybe_landed and state is TakeoffState.FLIGHT):
            control.reset()
            control.velocity_sp = (0.0, 0.0, -1.0)
            loop.thrust, loop.yaw_rate_sp = 0.0, NAN
            loop.q_sp[:] = attitude_of(0.0, 0.0, 1.0, self.yaw)
            return
        control.climb_limit = guidance.vertical_limit
        flying = state is TakeoffState.FLIGHT
        tilt = math.radians(self.parameters["MPC_TILTMAX_AIR" if flying else "MPC_TILTMAX_LND"])
        climb_rate = self._climb_rate(sp)
        q_sp, thrust, yaw_rate = control.update(dt, o.p, o.v, self.yaw, sp, tilt, flying, climb_rate)
        contact = flying and self.land_detector.contact
        if contact:
            # As PX4: on ground contact with a downward command, nothing is corrected any more. A vertical estimate that
            # drifts would otherwise keep part of the weight on the rotors, and the aircraft would never be landed.
            control.integral = [0.0, 0.0, 0.0]
            thrust = self.parameters["MPC_THR_MIN"]
            q_sp = attitude_of(0.0, 0.0, 1.0, self.yaw)
        loop.q_sp[:], loop.thrust, loop.yaw_rate_sp = q_sp, thrust, yaw_rate
