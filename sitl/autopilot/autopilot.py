"""The built-in autopilot: sensor frames in, motor commands out, MAVLink bytes on the side.

Pure: no socket, no clock; time is what the frames say. It behaves as PX4 1.17 does on a hexrotor X (see the
modules of this package for what was followed); inside it is ENU/FLU, on the wire NED/FRD.
"""

import math

import numpy as np

from companion.core.frames import GRAVITY_M_S2
from sitl.autopilot.attitude import ATTITUDE, OFF, RATES, AttitudeControl
from sitl.autopilot.conversion import ORIGIN, frd
from sitl.autopilot.fence import Fence
from sitl.autopilot.guidance import CLIMB_RATE_MODES, Guidance, stick
from sitl.autopilot.home import has_left
from sitl.autopilot.land_detector import LandDetector
from sitl.autopilot.mavlink import Receiver
from sitl.autopilot.modes import Commander
from sitl.autopilot.observer import Observer
from sitl.autopilot.parameters import load_parameters
from sitl.autopilot.position import NAN, PositionControl, Setpoint, attitude_of
from sitl.autopilot.radio import read_channels, transmitter
from sitl.autopilot.streams import ONBOARD_RATES_HZ, Streams
from sitl.autopilot.telemetry import Telemetry
from sitl.autopilot.texts import Texts
from sitl.autopilot.wire import Writer

POSITION_DIVIDER = 2  # position control at half the rate of the attitude loop
COMMANDER_DIVIDER = 5
ACRO_RATE_RAD_S = math.radians(100.0)  # MC_ACRO_*_MAX of PX4


class Autopilot:
    """One aircraft's flight controller.

    airframe_name: a file in params/; seed: kept for whatever is random here (start of the message counters);
    rate_hz: of `step`; boot_offset_s and clock_drift_ppm: the boot clock reads boot_offset_s + t · (1 + drift) at
    simulated time t; stream_rates_hz: telemetry in place of PX4's onboard rates. Raises
    `companion.core.config.ConfigError` for an unknown airframe.

    Radio: eighteen or fewer channels in microseconds, AETR on 1 to 4 (high: right, forward, up, right), mode switch on
    ``rc_mode_channel`` (six positions, COM_FLTMODE1 to 6), kill switch on RC_MAP_KILL_SW.
    """

    def __init__(
        self,
        airframe_name: str,
        seed: int = 0,
        rate_hz: float = 250.0,
        boot_offset_s: float = 12.0,
        clock_drift_ppm: float = 0.0,
        stream_rates_hz: dict[str, float] | None = None,
    ) -> None:
        self.parameters = load_parameters(airframe_name)
        self.system_id, self.component_id = int(self.parameters["MAV_SYS_ID"]), int(self.parameters["MAV_COMP_ID"])
        self.cells = int(self.parameters["BAT1_N_CELLS"])
        self._dt = 1.0 / rate_hz
        self._boot_offset_s, self._clock_rate = boot_offset_s, 1.0 + clock_drift_ppm * 1e-6
        self.now_s = 0.0
        self._steps = 0

        self.writer = Writer(self.system_id, self.component_id)
        self.texts = Texts(self.writer)
        self.attitude = AttitudeControl(self.parameters, self._dt)
        self.observer = Observer(self.parameters, self._dt)
        self.position_control = PositionControl(self.parameters)
        self.guidance = Guidance(self.parameters)
        self.land_detector = LandDetector(self.parameters)
        self._fence = Fence(self.parameters)
        self.commander = Commander(self.parameters, self.say)
        self.streams = Streams(Telemetry(self, self.writer).functions, dict(stream_rates_hz or ONBOARD_RATES_HZ))
        self.receiver = Receiver(self)
        self._parameter_version = 0

        # the last of everything, for telemetry
        self.gyro = self.accel = (0.0, 0.0, 0.0)
        self.q = (1.0, 0.0, 0.0, 0.0)
        self.yaw = 0.0
        self.baro_height = 0.0
        self.battery_voltage_v, self.battery_remaining = 0.0, 1.0
        self.fix = None
        self.new_fix = False
        self.home: tuple[float, float, float] | None = None
        self.home_yaw = 0.0
        self._home_by_hand = False
        self.position_sp: Setpoint | None = None
        self.hold_point: tuple | None = None
        self._guided_mode = ""
        self._manual_yaw = NAN

        # offboard
        self.offboard_rates = False
        self._offboard_kind = ""
        self._offboard_q = (1.0, 0.0, 0.0, 0.0)
        self._offboard_yaw_rate = NAN
        self._offboard_rate_sp = (0.0, 0.0, 0.0)
        self._offboard_thrust = 0.0
        self._offboard_setpoint = Setpoint()

        radio = transmitter(self.parameters)
        self.rc_mode_channel, self.rc_mode_positions_us = radio.mode_channel, radio.mode_positions_us
        self.rc_neutral_us = radio.neutral_us
        self.rc_us: list[int] | None = list(radio.neutral_us)
        self._rc_lost_s = -math.inf

    # --- what others ask --------------------------------------------------------------------------------------------

    @property
    def armed(self) -> bool:
        return self.commander.armed

    @property
    def mode(self) -> str:
        """PX4's mode that flies: "OFFBOARD", "POSCTL", "ALTCTL", "AUTO_LOITER", "AUTO_TAKEOFF", "DESCEND", …"""
        return self.commander.mode

    @property
    def landed(self) -> bool:
        return self.land_detector.landed

    def boot_s(self, now_s: float | None = None) -> float:
        """The boot clock [s]."""
        t = self.now_s if now_s is None else now_s
        return max(0.0, self._boot_offset_s + t * self._clock_rate)

    def boot_us(self, now_s: float | None = None) -> int:
        return int(self.boot_s(now_s) * 1e6)

    def boot_ms(self) -> int:
        return int(self.boot_s() * 1e3) & 0xFFFFFFFF

    def receive(self, data: bytes, now_s: float) -> None:
        """Bytes that reached the autopilot at simulated time now_s [s]."""
        self.receiver.receive(data, now_s)

    def take_output(self) -> bytes:
        """Bytes to send since the last call."""
        return self.writer.take()

    def set_rc(self, channels_us: list[int] | None) -> None:
        """What the radio receiver outputs from now on; None: the receiver is lost."""
        if channels_us is None:
            if self.rc_us is not None:
                self._rc_lost_s = self.now_s
            self.rc_us = None
        else:
            self.rc_us = [int(c) for c in channels_us]

    def say(self, severity: int, text: str) -> None:
        """Tell the ground station."""
        self.texts.say(severity, text, self.now_s)

    def set_home(self, p_W=None, yaw: float | None = None) -> bool:
        """Put home to a place, by default here; False without a position."""
        if p_W is None and not self.observer.position_valid:
            return False
        self.home = tuple(self.observer.p if p_W is None else p_W)
        self._home_by_hand = p_W is not None
        self.home_yaw = self.yaw if yaw is None else yaw
        self.guidance.home = self.home
        return True

    def takeoff_height(self, amsl_m: float) -> float:
        """Height (ENU) of a take-off: what was asked for, else MIS_TAKEOFF_ALT over here; never downwards."""
        here = self.observer.p[2]
        if not math.isfinite(amsl_m):
            default = self.parameters["MIS_TAKEOFF_ALT"]
            self.say(6, f"Using default takeoff altitude: {default:.1f} m\t")
            return here + default
        if amsl_m - ORIGIN[2] < here:
            self.say(2, "Already higher than takeoff altitude\t")
        return max(amsl_m - ORIGIN[2], here)

    # --- offboard setpoints -----------------------------------------------------------------------------------------

    def offboard_attitude(self, q_WB, yaw_rate: float, thrust: float, now_s: float) -> None:
        self._offboard_kind, self.offboard_rates = "attitude", False
        self._offboard_q, self._offboard_yaw_rate, self._offboard_thrust = q_WB, yaw_rate, thrust
        self.commander.offboard_setpoint(now_s, None)

    def offboard_body_rates(self, rates_B, thrust: float, now_s: float) -> None:
        self._offboard_kind, self.offboard_rates = "rates", True
        self._offboard_rate_sp, self._offboard_thrust = rates_B, thrust
        self.commander.offboard_setpoint(now_s, None)

    def offboard_position(self, setpoint: Setpoint, needs_position: bool, now_s: float) -> None:
        self._offboard_kind, self.offboard_rates = "position", False
        self._offboard_setpoint = setpoint
        self.commander.offboard_setpoint(now_s, "position" if needs_position else None)

    def turn_to_ned(self, v_FRD, only_yaw: bool) -> list[float]:
        """A body vector (FRD) in NED, by yaw alone or the whole attitude."""
        if only_yaw:
            heading = math.pi / 2 - self.yaw
            c, s = math.cos(heading), math.sin(heading)
            return [c * v_FRD[0] - s * v_FRD[1], s * v_FRD[0] + c * v_FRD[1], v_FRD[2]]
        w, x, y, z = self.q
        fx, fy, fz = frd(v_FRD)
        cx, cy, cz = y * fz - z * fy, z * fx - x * fz, x * fy - y * fx
        east = fx + 2 * (w * cx + y * cz - z * cy)
        north = fy + 2 * (w * cy + z * cx - x * cz)
        up = fz + 2 * (w * cz + x * cy - y * cx)
        return [north, east, -up]

    # --- the loop -----------------------------------------------------------------------------------------------------

    def step(self, frame) -> np.ndarray:
        """One sensor frame to six motor commands 0..1 (a view that the next step overwrites)."""
        self.now_s = now_s = frame.stamp_s
        self.gyro, self.accel, self.q = frame.gyro_B, frame.accel_B, frame.q_WB
        w, x, y, z = self.q
        self.yaw = math.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))
        observer = self.observer
        observer.predict(now_s, frame.accel_B, frame.q_WB)
        if frame.gnss is not None:
            self.fix, self.new_fix = frame.gnss, True
            observer.correct_gnss(now_s, frame.gnss)
        if frame.baro_height_m is not None:
            self.baro_height = frame.baro_height_m
            observer.correct_baro(now_s, frame.baro_height_m)
        if self._steps % COMMANDER_DIVIDER == 0:
            self._slow(frame, now_s)
        loop = self.attitude.loop
        loop.gyro[:] = frame.gyro_B
        loop.q[:] = frame.q_WB
        commander = self.commander
        if not commander.armed or commander.killed or commander.terminated:
            loop.level, loop.thrust = OFF, 0.0
        elif commander.mode == "OFFBOARD" and self._offboard_kind != "position":
            self._fly_offboard(loop)
        elif commander.mode in ("MANUAL", "STABILIZED", "ACRO"):
            self._fly_sticks(loop)
        elif self._steps % POSITION_DIVIDER == 0:
            self._fly_position(loop)
        loop.landed = 1.0 if self.land_detector.maybe_landed else 0.0
        self.attitude.step()
        self._steps += 1
        self.receiver.run(now_s)
        self.texts.run(now_s)
        self.streams.run(now_s)
        return self.attitude.motors

    def _slow(self, frame, now_s: float) -> None:
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
            commander.mode == "OFFBOARD" and self._offboard_kind == "position"
        )
        self.land_detector.update(
            now_s,
            commander.armed,
            loop.thrust,
            self.position_control.hover,
            observer.v,
            self.gyro,
            climb_rate,
            self.position_control.velocity_sp[2] if climb_rate else NAN,
            observer.height_valid,
            observer.position_valid,
        )
        standing = not commander.armed and self.landed and observer.position_valid
        if self.home is None or (standing and not self._home_by_hand and has_left(self.home, observer, now_s)):
            self.set_home()
        c = commander.conditions
        c.attitude = True
        c.position, c.height, c.home = observer.position_valid, observer.height_valid, self.home is not None
        c.landed, c.maybe_landed = self.land_detector.landed, self.land_detector.maybe_landed
        c.takeoff_finished = guidance.finished and guidance.mode == "AUTO_TAKEOFF"
        c.battery_remaining = self.battery_remaining
        _, x, y, _ = self.q
        c.tilt_rad = math.acos(max(-1.0, min(1.0, 1.0 - 2.0 * (x * x + y * y))))
        before = c.fence
        self._fence.check(c, commander.mode == "AUTO_LOITER", observer.p, self.home, now_s)
        if c.fence and not before:
            self.say(2, f"Geofence: {c.fence}")
        if self.rc_us is not None:
            read_channels(commander.manual, self.rc_us, self.parameters)
        elif now_s - self._rc_lost_s >= self.parameters["COM_RC_LOSS_T"]:
            commander.manual.ok = False
        commander.update(now_s)
        if commander.home_wanted:
            commander.home_wanted = False
            self.set_home()
        guidance.update_takeoff(
            now_s, commander.armed, self.land_detector.landed, self._wants_up(commander.manual.sticks)
        )

    def _wants_up(self, sticks) -> bool:
        if self.commander.mode == "OFFBOARD":
            sp = self._offboard_setpoint
            return self._offboard_kind == "position" and (sp.p[2] > self.observer.p[2] + 0.2 or sp.v[2] > 0.0)
        return self._guided_mode == self.commander.mode and self.guidance.wants_up(sticks)

    # --- who flies ----------------------------------------------------------------------------------------------------

    def _fly_offboard(self, loop) -> None:
        self._guided_mode, self.position_sp = "OFFBOARD", None
        loop.thrust = self._offboard_thrust
        if self._offboard_kind == "rates":
            loop.level = RATES
            loop.rate_sp_in[:] = self._offboard_rate_sp
        else:
            loop.level = ATTITUDE
            loop.q_sp[:] = self._offboard_q
            loop.yaw_rate_sp = self._offboard_yaw_rate

    def _fly_sticks(self, loop) -> None:
        get = self.parameters
        right, forward, up, turn = self.commander.manual.sticks
        mode = self.commander.mode
        if self._guided_mode != mode:
            self._guided_mode, self._manual_yaw, self.position_sp = mode, self.yaw, None
        low, hover, high = get["MPC_MANTHR_MIN"], self.position_control.hover, get["MPC_THR_MAX"]
        if get["MPC_THR_CURVE"] == 1:
            thrust = low + (up + 1) / 2 * (high - low)
        else:
            thrust = hover + up * ((high - hover) if up > 0 else (hover - low))
        loop.thrust = thrust if up > -0.99 or not self.land_detector.landed else 0.0
        if mode == "ACRO":
            loop.level = RATES
            loop.rate_sp_in[:] = (right * ACRO_RATE_RAD_S, forward * ACRO_RATE_RAD_S, -turn * ACRO_RATE_RAD_S)
            return
        yaw_rate = -stick(turn, get["MAN_DEADZONE"]) * math.radians(get["MPC_MAN_Y_MAX"])
        if yaw_rate or self.land_detector.landed:
            self._manual_yaw = self.yaw
        tilt = math.radians(get["MPC_MAN_TILT_MAX"])
        size = math.hypot(right, forward)
        scale = tilt / max(size, 1.0)
        c, s = math.cos(self._manual_yaw), math.sin(self._manual_yaw)
        f, left = math.tan(forward * scale), -math.tan(right * scale)
        loop.level = ATTITUDE
        loop.q_sp[:] = attitude_of(c * f - s * left, s * f + c * left, 1.0, self._manual_yaw)
        loop.yaw_rate_sp = yaw_rate

    def _fly_position(self, loop) -> None:
        commander, guidance, control, o = self.commander, self.guidance, self.position_control, self.observer
        dt, mode = POSITION_DIVIDER * self._dt, commander.mode
        if self._guided_mode != mode:
            if self._guided_mode not in CLIMB_RATE_MODES:
                control.resume()
            if mode != "OFFBOARD":
                guidance.enter(mode, o.p, o.v, self.yaw)
            self._guided_mode = mode
        if self.hold_point is not None and mode == "AUTO_LOITER":
            here, yaw, speed = self.hold_point
            guidance.go_to(here, yaw)
            if math.isfinite(speed) and speed > 0:
                guidance.cruise_m_s = speed
            self.hold_point = None
        if mode == "OFFBOARD":
            sp = self._offboard_setpoint
        else:
            sp = guidance.update(dt, o.p, o.v, self.yaw, commander.manual.sticks, self.now_s)
        self.position_sp = sp
        state = guidance.takeoff_state
        loop.level = ATTITUDE
        if state in ("landed", "spoolup") or (self.land_detector.maybe_landed and state == "flight"):
            control.reset()
            control.velocity_sp = (0.0, 0.0, -1.0)
            loop.thrust, loop.yaw_rate_sp = 0.0, NAN
            loop.q_sp[:] = attitude_of(0.0, 0.0, 1.0, self.yaw)
            return
        control.climb_limit = guidance.vertical_limit
        flying = state == "flight"
        tilt = math.radians(self.parameters["MPC_TILTMAX_AIR" if flying else "MPC_TILTMAX_LND"])
        q_sp, thrust, yaw_rate = control.update(dt, o.p, o.v, self.yaw, sp, tilt, flying)
        contact = flying and self.land_detector.contact
        if contact:
            # As PX4: a craft that feels the ground while it wants to go down corrects nothing any more. A vertical
            # estimate that drifts would otherwise keep it half hanging on its rotors, never landed.
            control.integral = [0.0, 0.0, 0.0]
            thrust = self.parameters["MPC_THR_MIN"]
            q_sp = attitude_of(0.0, 0.0, 1.0, self.yaw)
        loop.q_sp[:], loop.thrust, loop.yaw_rate_sp = q_sp, thrust, yaw_rate
        stuck = control.velocity_sp[2] < -0.3 and o.v[2] > -0.1
        if flying and not contact and not stuck:
            lift_share = 1.0 - 2.0 * (self.q[1] ** 2 + self.q[2] ** 2)
            control.learn_hover(dt, thrust, min(o.acceleration[2], GRAVITY_M_S2), lift_share)
