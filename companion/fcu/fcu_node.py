"""The node for MAVLink: decodes the flight controller's bytes to attitude, position and status, and encodes setpoints.

Bytes arrive as LinkRx and leave as LinkTx; the process moves them to and from a `companion.fcu.link.link.Link`.

Four rules (PX4 is the second pipeline; the stack never fights the pilot):
* a setpoint is sent when it arrives, once, and never after it has expired; this node never repeats one, so a silent
  controller is silence on the wire and triggers PX4's offboard-loss failsafe;
* a mode changes only by an FcuCommand, and each FcuCommand is answered once;
* until the clocks are synchronised, FcuAttitude and FcuPosition carry ``valid=False`` and a stamp estimated from
  their arrival;
* while another controller is detected on the link, no setpoint leaves and no flight begins.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from pymavlink.dialects.v20 import common

from companion.core import precision
from companion.core.clock import Stopwatch
from companion.core.config import ConfigError
from companion.core.enums import CommandAction, FcuMode, TopicName
from companion.core.messages import (
    FCU,
    TOPICS,
    CameraRx,
    CameraTx,
    FcuAttitude,
    FcuCommand,
    FcuImu,
    FcuPosition,
    FcuStatus,
    FcuText,
    LinkRx,
    LinkTx,
    Message,
    SentSetpoint,
    Setpoint,
    State,
)
from companion.core.node import Node
from companion.core.precision import near, rounded
from companion.core.px4_parameters import PlannedFlight
from companion.core.vehicle import Vehicle
from companion.fcu.actions import Actions
from companion.fcu.boot_clock import BootClock, BootTime
from companion.fcu.camera_pass import RELEVANT, CameraFrame, RawMessage, concerns_camera, may_leave
from companion.fcu.commands import Commands
from companion.fcu.guards.conflict import Conflict
from companion.fcu.guards.echoes import ECHO_EXPECTED_HZ
from companion.fcu.guards.foreign_messages import ForeignMessages
from companion.fcu.guards.ground_filter import GroundFilter
from companion.fcu.guards.parameter_watch import ParameterWatch
from companion.fcu.guards.plausible import Plausibility, Quantity
from companion.fcu.guards.setpoints import NEW_STREAM_S, SetpointCounter, SetpointFault, SetpointGate
from companion.fcu.identity import Identity
from companion.fcu.link.codec import AUTOPILOT_COMPONENT, Codec, OutgoingMessage
from companion.fcu.link.decoded import (
    Altitude,
    AttitudeQuaternion,
    AttitudeTarget,
    AutopilotVersion,
    BatteryStatus,
    CommandAck,
    CurrentMode,
    Decoded,
    DistanceSensor,
    ExtendedSysState,
    GlobalPositionInt,
    GpsRawInt,
    Heartbeat,
    HighresImu,
    HomePosition,
    LocalPositionNed,
    Odometry,
    ParamValue,
    RcChannels,
    StatusText,
    SysStatus,
    Timesync,
    Vibration,
)
from companion.fcu.link.influence import ForeignMessage, Influence
from companion.fcu.link.peer_monitor import PeerMonitor
from companion.fcu.link.rate_limiter import RateLimiter
from companion.fcu.link.signing import Signer
from companion.fcu.link.statustext import CRITICAL, ERROR, INFO, WARNING, TextJoiner
from companion.fcu.ned import swap_attitude, swap_body, swap_world
from companion.fcu.odometry import OdometrySource
from companion.fcu.reports import Reports
from companion.fcu.status import VehicleStatus
from companion.fcu.streams import Streams
from companion.fcu.timesync import TimeSync

SILENCE_S = 1.0  # without any frame of the autopilot the link counts as lost
HEARTBEAT_SILENCE_S = 3.0  # without its heartbeat (1 Hz) mode and armed are unknown, whatever else arrives
HEARTBEAT_PERIOD_S = 1.0
STATUS_PERIOD_S = 0.1
TIMESYNC_PERIOD_S = 0.1  # until the filter has settled
TIMESYNC_SETTLED_PERIOD_S = 0.5
UNKNOWN_MODES_MAX = 16  # different numbers that are reported; more come from a faulty sender
NO_FLIGHT_CONTROLLER = "no flight controller on the link"
RESTARTED = "the flight controller restarted"
PAUSED = f"PX4 has left offboard, or the stream paused in it; a new stream may begin after {NEW_STREAM_S:g} s"
INERTIAL_FIELDS = 0x3F  # of HIGHRES_IMU.fields_updated: accelerometer and gyroscope
NAN = math.nan

Counter = SetpointCounter | Literal["commands_expired", "bad_content", "reboots", "link_losses", "camera_refused"]
COUNTERS: tuple[Counter, ...] = (
    "setpoints_sent",
    "setpoints_expired",
    "setpoints_invalid",
    "setpoints_out_of_order",
    "setpoints_conflict",
    "setpoints_interrupted",
    "commands_expired",
    "bad_content",
    "reboots",
    "link_losses",
    "camera_refused",
)

D = TypeVar("D", bound=Decoded)
Reader = Callable[[Any, float], None]  # of one kind of message; `_reader` checks the kind


def _reader(kind: type[D], read: Callable[[D, float], None]) -> tuple[type[object], Reader]:
    """A row of the dispatch table."""
    return kind, read


class FcuNode(Node):
    """One flight controller. `counters` has the numbers of sent, dropped and lost messages since the start."""

    name = FCU
    inputs: tuple[TopicName, ...] = ("link_rx", "setpoint", "fcu_command", "camera_tx")
    rate_hz = 100.0

    def __init__(
        self,
        vehicle: Vehicle,
        stopwatch: Stopwatch | None = None,
        signer: Signer | None = None,
        own_attitudes: bool = True,
        satellites: bool = True,
        payload_component: int | None = None,
        flight: PlannedFlight | None = None,
    ) -> None:
        """signer: with the key of the vehicle file; None: frames are neither signed nor checked.

        own_attitudes: PX4 follows no attitude but those that this node sends, and another is another sender's. False for
        a stack that commands positions: PX4 then reports the attitudes of its own position control.

        satellites: False: the flight controller has no horizontal position (EKF2_GPS_CTRL 0). What it sends as one is
        ignored, no `FcuPosition` is published, and the height is that by pressure in `FcuStatus`.

        payload_component: id of the payload process, whose messages to and from cameras pass; None: there is none.

        flight: what PX4's parameters have to suit before a flight begins; None where no mission is known.

        Raises `ConfigError` when the vehicle file gives the companion the flight controller's ids.
        """
        fcu = vehicle.fcu
        if (fcu.system_id, fcu.component_id) == (fcu.autopilot_system_id, AUTOPILOT_COMPONENT):
            raise ConfigError(f"{vehicle.name}: fcu.component_id = {fcu.component_id}: that is the flight controller")
        self.odometry = OdometrySource() if fcu.send_odometry else None
        if self.odometry is not None:
            self.inputs = (*self.inputs, "state")
        super().__init__()
        self._target = fcu.autopilot_system_id
        self.codec = Codec(fcu.system_id, fcu.component_id, fcu.autopilot_system_id, signer)
        self._payload_ids = (fcu.system_id, payload_component or 0)
        self._payload_codec = None
        if payload_component is not None:
            self.codec.passed_numbers = RELEVANT
            self._payload_codec = Codec(fcu.system_id, payload_component, fcu.autopilot_system_id, signer)
        self.timesync = TimeSync()
        self._takes_imu = fcu.imu_rate_hz > 0.0
        self.streams = Streams(fcu.attitude_rate_hz, fcu.position_rate_hz, fcu.imu_rate_hz, satellites)
        self.plausible = Plausibility(vehicle.thrust.reference_voltage_v)
        self.status = VehicleStatus(self.plausible)
        self.parameters = ParameterWatch(vehicle, self._send, satellites, flight)
        self._identity = Identity(vehicle, self._send, self.parameters.names)
        self.conflict = Conflict()
        self._own_attitudes = own_attitudes
        self.foreign = ForeignMessages(fcu.senders_of_measurements)
        self.ground = GroundFilter(self.codec, self._target)
        self.boot_clock = BootClock()
        self.connected = False
        self.counters: dict[Counter, int] = dict.fromkeys(COUNTERS, 0)
        self._peers = PeerMonitor(self.codec, self._target)
        self._setpoints = SetpointGate(self._target, vehicle.safety.setpoint_pause_s)
        self._commands = Commands(self._target, self._send)
        self._actions = Actions(
            self._commands,
            self.status,
            self._publish,
            self._request_heartbeat,
            lambda: self.refused,
            lambda: self._setpoints.is_streaming(self._now_s),
        )
        self._limiter = RateLimiter()
        self._reports = Reports(self._limiter, self._publish, self._send)
        self._joiner = TextJoiner()
        self._out: list[Message] = []
        self._now_s = 0.0
        self._frame_s = self._heartbeat_s = -math.inf  # arrival of the newest frame, of the newest heartbeat
        self._reported_conflict = ""
        self._reported_old = 0  # repeated or late frames, at the last report
        self._reported_modes: set[int] = set()
        self._first_step_s: float | None = None
        readers = (
            _reader(Heartbeat, self._on_heartbeat),
            _reader(AttitudeQuaternion, self._on_attitude),
            _reader(LocalPositionNed, self._on_position),
            _reader(HighresImu, self._on_imu),
            _reader(AttitudeTarget, self._on_attitude_target),
            _reader(ParamValue, self._on_parameter),
            _reader(AutopilotVersion, lambda m, now_s: self._identity.put_version(m)),
            _reader(Timesync, self._on_timesync),
            _reader(CommandAck, self._on_ack),
            _reader(StatusText, self._on_text),
            _reader(ExtendedSysState, self.status.put_extended_sys_state),
            _reader(SysStatus, self._on_sys_status),
            _reader(BatteryStatus, self._on_battery_status),
            _reader(RcChannels, self.status.put_rc_channels),
            _reader(GpsRawInt, self.status.put_gps_raw_int),
            _reader(HomePosition, self.status.put_home_position),
            _reader(CurrentMode, self._on_current_mode),
            _reader(GlobalPositionInt, self.status.put_global_position_int),
            _reader(Altitude, self.status.put_altitude),
            _reader(Odometry, self.status.put_odometry),
            _reader(Vibration, self.status.put_vibration),
            _reader(DistanceSensor, self.status.put_distance_sensor),
        )  # fmt: skip
        by_position = () if satellites else (LocalPositionNed, GlobalPositionInt, HomePosition, Odometry)
        self._readers: dict[type[object], Reader] = {kind: read for kind, read in readers if kind not in by_position}

    # --- from the flight controller --------------------------------------------------------------------------

    def handle_link_rx(self, message: LinkRx, now_s: float) -> list[Message]:
        """Decode bytes; their stamp is the time when they were read, the arrival of every message in them."""
        self._begin(now_s)
        if message.ground:
            return self._filter_ground(message.data, now_s)
        arrival_s = min(message.stamp_s, now_s)
        codec = self.codec
        before = codec.frames
        messages = codec.decode(message.data, now_s)
        if codec.frames != before:
            self._frame_s = arrival_s
        self._peers.note_bytes(len(message.data), now_s)
        self.conflict.check(codec, now_s)
        self._note_foreign(codec.take_foreign(), now_s)
        for number, content in messages:
            self.streams.count(number)
            if reader := self._readers.get(type(content)):
                reader(content, arrival_s)
        for passed in codec.take_passed():
            frame = CameraFrame(*passed)
            if concerns_camera(frame, self._target, self._payload_ids):
                self._out.append(CameraRx(stamp_s=arrival_s, **frame._asdict()))
        return self._take_out()

    def _filter_ground(self, data: bytes, now_s: float) -> list[Message]:
        """Bytes of a ground station, for the flight controller."""
        ground = self.ground
        before = ground.blocked + ground.unsigned
        if frames := ground.filter(data, now_s):
            self._out.append(LinkTx(stamp_s=now_s, data=b"".join(frames)))
        self._note_foreign(ground.take_changes(), now_s)
        if (count := ground.blocked + ground.unsigned) != before:
            text = f"blocked on the forward, not sent to the flight controller: {ground.reason} ({count} so far)"
            self._reports.warn("ground", text, WARNING, now_s)
        return self._take_out()

    def _note_foreign(self, messages: list[ForeignMessage], now_s: float) -> None:
        """What other senders do to the flight controller."""
        for message in messages:
            if message.influence is Influence.SETPOINT:
                self.conflict.note_setpoint(message, now_s)
                continue
            self.foreign.note(message, now_s)
            if message.influence is Influence.CHANGE:
                self._reports.log(message.text, f"the flight controller was changed by {message.text}", INFO, now_s)

    def _on_heartbeat(self, m: Heartbeat, now_s: float) -> None:
        before = self.status.mode
        if other := self.status.put_heartbeat(m, now_s):
            text = (
                f"a second component sends heartbeats as the flight controller ({other}): left out; give it other ids"
            )
            self._reports.log("second_heartbeat", text, WARNING, now_s)
            return
        self._heartbeat_s = now_s
        self._check_mode(before, now_s)
        if self.status.wrong:
            text = f"system {self._target} cannot be flown: {self.status.wrong}; no connection"
            self._reports.log("wrong", text, CRITICAL, now_s, once=True)
            return
        if not self.connected:
            self.connected = True
            self.streams.restart(now_s)
        self._report_unknown_mode(now_s)

    def _on_current_mode(self, m: CurrentMode, now_s: float) -> None:
        before = self.status.mode
        if self.status.put_current_mode(m, now_s):
            self._request_heartbeat(now_s)
        self._check_mode(before, now_s)
        self._report_unknown_mode(now_s)

    def _check_mode(self, before: FcuMode, now_s: float) -> None:
        """Follow a report of the mode: the stream ends when PX4 has left offboard without a request of the mission."""
        mode = self.status.mode
        self._setpoints.echoes.note_mode(mode == FcuMode.OFFBOARD, now_s)
        if before == FcuMode.OFFBOARD != mode and self.status.armed and not self._actions.is_requested(mode):
            self._setpoints.end_stream(now_s)
            self._limiter.force_due("status")
        self._commands.review()

    def _report_unknown_mode(self, now_s: float) -> None:
        """Report each unknown number once: `FcuMode.UNKNOWN` does not have it."""
        number = self.status.unknown_mode
        if number is None or self.status.wrong or number in self._reported_modes:
            return
        if len(self._reported_modes) >= UNKNOWN_MODES_MAX:
            return
        text = f"flight mode {number} is not known to this version; no mission starts in it: choose another mode"
        if self._reports.warn("mode", text, WARNING, now_s):
            self._reported_modes.add(number)

    def _request_heartbeat(self, now_s: float) -> None:
        """Request an extra heartbeat: only it has mode and armed together, and PX4 sends it at no more than 1 Hz."""
        request = common.MAV_CMD_REQUEST_MESSAGE
        if self.connected and not self._commands.busy(request):
            parameters = (common.MAVLINK_MSG_ID_HEARTBEAT, 0, 0, 0, 0, 0, 0)
            self._commands.start(request, parameters, lambda outcome: None, now_s)

    def _on_attitude(self, m: AttitudeQuaternion, now_s: float) -> None:
        stamp = self._stamp(common.MAVLINK_MSG_ID_ATTITUDE_QUATERNION, m.time_boot_ms, now_s)
        if stamp is None:
            return
        length = math.sqrt(m.q1 * m.q1 + m.q2 * m.q2 + m.q3 * m.q3 + m.q4 * m.q4)
        rates = swap_body((m.rollspeed, m.pitchspeed, m.yawspeed))
        if not abs(length - 1.0) < 0.01 or not all(map(math.isfinite, rates)):
            self.counters["bad_content"] += 1
            return
        q_WB = swap_attitude((m.q1 / length, m.q2 / length, m.q3 / length, m.q4 / length))
        if not self.plausible.attitude(q_WB, rates, now_s):
            return
        valid = stamp[1] and self.connected and self.plausible.in_time(Quantity.ATTITUDE, stamp[0], now_s)
        q_WB, rates = rounded(q_WB, precision.ATTITUDE), rounded(rates, precision.RATE)
        self._out.append(FcuAttitude(stamp_s=stamp[0], valid=valid, q_WB=q_WB, omega_B=rates))

    def _on_position(self, m: LocalPositionNed, now_s: float) -> None:
        stamp = self._stamp(common.MAVLINK_MSG_ID_LOCAL_POSITION_NED, m.time_boot_ms, now_s)
        if stamp is None:
            return
        p_W, v_W = swap_world((m.x, m.y, m.z)), swap_world((m.vx, m.vy, m.vz))
        if not all(map(math.isfinite, p_W + v_W)):
            self.counters["bad_content"] += 1
            return
        if not self.plausible.position(p_W, v_W, now_s):
            return
        self.status.height_m = p_W[2]
        valid = stamp[1] and self.connected and self.plausible.in_time(Quantity.POSITION, stamp[0], now_s)
        p_W, v_W = rounded(p_W, precision.POSITION), rounded(v_W, precision.SPEED)
        self._out.append(FcuPosition(stamp_s=stamp[0], valid=valid, p_W=p_W, v_W=v_W))

    def _on_imu(self, m: HighresImu, now_s: float) -> None:
        if not self._takes_imu:
            return  # PX4 sends it unasked until it is switched off: the commands propagate
        stamp = self._stamp(common.MAVLINK_MSG_ID_HIGHRES_IMU, m.time_usec * 1e-3, now_s)
        if stamp is None:
            return
        gyro_B, accel_B = swap_body((m.xgyro, m.ygyro, m.zgyro)), swap_body((m.xacc, m.yacc, m.zacc))
        if m.fields_updated & INERTIAL_FIELDS != INERTIAL_FIELDS or not all(map(math.isfinite, gyro_B + accel_B)):
            self.counters["bad_content"] += 1
            return
        if not self.plausible.imu(gyro_B, accel_B, now_s):
            return
        valid = stamp[1] and self.connected and self.plausible.in_time(Quantity.IMU_RATES, stamp[0], now_s)
        gyro_B, accel_B = rounded(gyro_B, precision.RATE), rounded(accel_B, precision.FORCE)
        self._out.append(FcuImu(stamp_s=stamp[0], valid=valid, gyro_B=gyro_B, accel_B=accel_B))

    def _stamp(self, kind: int, boot_ms: float, now_s: float) -> tuple[float, bool] | None:
        """Companion time of a message and whether it is valid; None for an old message."""
        stamp = self.timesync.stamp(boot_ms * 1e-3, now_s)
        future = self.timesync.is_future(boot_ms * 1e-3, now_s)
        boot_time = self.boot_clock.check(kind, boot_ms, now_s, stamp[1] or not self.timesync.synced, future)
        if boot_time is BootTime.NEW:
            return near(stamp[0], precision.TIME), stamp[1]
        if boot_time is BootTime.RESTART:
            self.timesync.reset()
            self._restarted(now_s)
            stamp = self.timesync.stamp(boot_ms * 1e-3, now_s)
            return near(stamp[0], precision.TIME), stamp[1]
        self._limiter.force_due("timesync")  # its answer is the first message that shows a restart
        if self.boot_clock.two_senders(now_s):
            self.conflict.note(f"a second flight controller with system id {self._target} is on the link", now_s)
        return None

    def _restarted(self, now_s: float) -> None:
        """Discard all content from before the restart; the next heartbeat connects again."""
        self.boot_clock.reset()
        self._setpoints.echoes.reset()
        self.counters["reboots"] += 1
        self._reports.log("reboot", f"{RESTARTED}; its state is invalid until its next heartbeat", ERROR, now_s)
        self.connected = False
        self.status.reset()
        self.plausible.reset()
        self.parameters.reset()
        self._identity.reset()
        self._commands.cancel_all(RESTARTED)

    @property
    def _follows_setpoints(self) -> bool:
        return self.connected and self.status.armed and self.status.mode == FcuMode.OFFBOARD

    def _on_attitude_target(self, m: AttitudeTarget, now_s: float) -> None:
        boot_s, echoes = m.time_boot_ms * 1e-3, self._setpoints.echoes
        if not self._own_attitudes or self.timesync.is_future(boot_s, now_s):
            return
        taken_s, known = self.timesync.stamp(boot_s, now_s)
        if echoes.take(m, self._follows_setpoints, taken_s if known else None, now_s):
            self.conflict.note("the flight controller follows setpoints of another sender", now_s)
        elif echoes.doubtful and not self._commands.busy(common.MAV_CMD_DO_SET_MODE):
            self._request_heartbeat(now_s)

    def _on_battery_status(self, m: BatteryStatus, now_s: float) -> None:
        batteries = self.status.batteries
        self.status.put_battery_status(m, now_s)
        if m.id == 0:
            self.plausible.voltage(self.status.voltage_v, now_s)
        elif batteries.left_out:
            self._reports.log("battery", batteries.left_out, WARNING, now_s, once=True)

    def _on_sys_status(self, m: SysStatus, now_s: float) -> None:
        self.status.put_sys_status(m, now_s)
        self.plausible.voltage(self.status.voltage_v, now_s)

    def _on_parameter(self, m: ParamValue, now_s: float) -> None:
        self._identity.put_parameter(m)
        if self.parameters.put(m):
            self._report_parameters(now_s)

    def _report_parameters(self, now_s: float) -> None:
        if self.parameters.problem:
            text = f"no flight with this flight controller: {self.parameters.problem}; check with companion preflight"
            self._reports.warn("parameters", text, ERROR, now_s)

    def _on_timesync(self, m: Timesync, now_s: float) -> None:
        if m.tc1 == 0:  # PX4 sends requests, too; without answers its log lacks the offset
            self._send(common.MAVLink_timesync_message(round(now_s * 1e9), m.ts1))
        else:
            restarts = self.timesync.restarts
            self.timesync.answer(m.tc1, m.ts1, now_s)
            if self.timesync.restarts != restarts:
                self._restarted(now_s)

    def _on_ack(self, m: CommandAck, now_s: float) -> None:
        if m.target_system not in (0, self.codec.system_id) or m.target_component not in (0, self.codec.component_id):
            return
        self._commands.acknowledge(m.command, m.result, now_s)

    def _on_text(self, m: StatusText, now_s: float) -> None:
        self._publish_texts(self._joiner.put(m.severity, m.text, m.id, m.chunk_seq, now_s), now_s)

    def _publish_texts(self, texts: list[tuple[int, str]], now_s: float) -> None:
        for severity, text in texts:
            self._out.append(FcuText(stamp_s=now_s, severity=severity, text=text))
            if severity <= WARNING:
                self._actions.note_warning(text)

    # --- to the flight controller ----------------------------------------------------------------------------

    def handle_setpoint(self, message: Setpoint, now_s: float) -> list[Message]:
        """Send a setpoint at once as LinkTx and SentSetpoint, or drop and count it."""
        self._begin(now_s)
        interrupted = self._setpoints.is_interrupted(now_s)
        fault = self._setpoints.fault(message, now_s)
        if not fault and interrupted:
            fault = SetpointFault("setpoints_interrupted", PAUSED)
        elif not fault and self.status.wrong:
            fault = SetpointFault("setpoints_invalid", self.status.wrong)
        elif not fault and self.conflict.text:
            fault = SetpointFault("setpoints_conflict", self.conflict.text)
        if fault:
            self.counters[fault.counter] += 1
            self._reports.log(fault.counter, f"setpoint not sent: {fault.reason}", WARNING, now_s)
            return self._take_out()
        self._send(self._setpoints.message(message, self._follows_setpoints, now_s))
        self.counters["setpoints_sent"] += 1
        self._out.append(SentSetpoint(
            stamp_s=now_s, valid=self.connected, roll_rad=message.roll_rad, pitch_rad=message.pitch_rad,
            yaw_rad=message.yaw_rad, yaw_rate_rad_s=message.yaw_rate_rad_s, thrust=message.thrust,
        ))  # fmt: skip
        return self._take_out()

    def handle_fcu_command(self, message: FcuCommand, now_s: float) -> list[Message]:
        """Start a request of the mission; one FcuCommandAck answers it, now or after the flight controller's answer."""
        self._begin(now_s)
        if not message.valid or not now_s - message.stamp_s <= TOPICS["fcu_command"].max_age_s:
            self.counters["commands_expired"] += 1
            self._actions.answer(message, False, "request expired before it could be sent")
        elif message.action == CommandAction.TEXT:
            self._reports.send_text(message.severity, message.text)
            self._actions.answer(message, True, "sent")
        elif not self.connected:
            self._actions.answer(message, False, self.status.wrong or NO_FLIGHT_CONTROLLER)
        else:
            self._actions.begin(message)
        return self._take_out()

    def handle_camera_tx(self, message: CameraTx, now_s: float) -> list[Message]:
        """Send a message of the payload process to a camera or gimbal; one for anything else is counted and dropped."""
        self._begin(now_s)
        if self._payload_codec is None or not may_leave(message, self._target):
            self.counters["camera_refused"] += 1
            return []
        frame = self._payload_codec.encode(RawMessage(message.number, message.payload), now_s)
        return [LinkTx(stamp_s=now_s, data=frame)]

    def handle_state(self, message: State, now_s: float) -> list[Message]:
        """Send the estimate to PX4's estimator, where the vehicle file says so (`fcu.send_odometry`)."""
        self._begin(now_s)
        if self.odometry is not None and self.connected and not self.conflict.text:
            odometry = self.odometry.message(message, now_s)
            if odometry is not None:
                self._send(odometry)
        return self._take_out()

    @property
    def refused(self) -> str:
        """Why no flight may begin, "" when one may."""
        other = "" if self.odometry is None else self.foreign.position(self._now_s)
        twice = f"{other} beside this stack's ODOMETRY (fcu.send_odometry): PX4 follows one; stop the other sender"
        refused = self.status.wrong or self.conflict.text or self._identity.problem or self.parameters.problem
        return refused or (twice if other else "")

    # --- periodic work ---------------------------------------------------------------------------------------

    def step(self, now_s: float) -> list[Message]:
        """Heartbeat, clock, streams, retries and status; never a setpoint."""
        self._begin(now_s)
        if self._first_step_s is None:
            self._first_step_s = now_s
        self._check_link(self._first_step_s, now_s)
        if self._limiter.is_due("heartbeat", HEARTBEAT_PERIOD_S, now_s):
            self._send(
                common.MAVLink_heartbeat_message(
                    common.MAV_TYPE_ONBOARD_CONTROLLER, common.MAV_AUTOPILOT_INVALID, 0, 0, common.MAV_STATE_ACTIVE, 3
                )
            )
        if self.connected:
            period_s = TIMESYNC_SETTLED_PERIOD_S if self.timesync.settled else TIMESYNC_PERIOD_S
            if self._limiter.is_due("timesync", period_s, now_s):
                self._send(common.MAVLink_timesync_message(0, self.timesync.request(now_s)))
            echoed = self._follows_setpoints and self._setpoints.echoes.is_streaming(now_s)
            self.streams.expect(common.MAVLINK_MSG_ID_ATTITUDE_TARGET, ECHO_EXPECTED_HZ if echoed else 0.0)
            self.streams.request(self._commands, now_s)
            if self.parameters.step(now_s):
                self._report_parameters(now_s)
            if info := self._identity.step(self.status.armed, now_s):
                self._out.append(info)
            self._commands.step(now_s)
            if self.status.mode_to_confirm(now_s):
                self._request_heartbeat(now_s)
            if self.status.arming.doubtful and self._limiter.is_due("disarmed", STATUS_PERIOD_S, now_s):
                self._request_heartbeat(now_s)
        self._actions.step(now_s)
        self._publish_texts(self._joiner.expire(now_s), now_s)
        if self._limiter.is_due("status", STATUS_PERIOD_S, now_s):
            self._out.append(self._status(now_s))
        return self._take_out()

    def _status(self, now_s: float) -> FcuStatus:
        sync = self.timesync
        status = self.status.message(now_s, self.connected)
        self.intake.flying = status.armed and not status.landed
        status.timesync_offset_s, status.timesync_rtt_s = sync.offset_at(now_s), sync.rtt_s
        status.timesync_age_s = now_s - sync.answered_s
        status.link_errors = self.codec.errors
        status.refused = self.refused if self.connected else self.status.wrong or NO_FLIGHT_CONTROLLER
        status.conflict = self.conflict.text
        status.foreign_estimate, status.foreign_change = self.foreign.estimate(now_s), self.foreign.change(now_s)
        status.slow_streams = self.streams.slow()
        status.imu_rate_hz = self.streams.measured_hz(common.MAVLINK_MSG_ID_HIGHRES_IMU)
        status.implausible = self.plausible.lately(now_s)
        status.implausible_messages = sum(self.plausible.counts.values())
        heard_s = max(self.ground.station_s, self.codec.station_s)
        status.ground_station_age_s = now_s - heard_s if math.isfinite(heard_s) else NAN
        return status

    def _check_link(self, first_step_s: float, now_s: float) -> None:
        """Detect a lost link, and report problems of the link, its senders and its streams."""
        silent = now_s - self._frame_s > SILENCE_S or now_s - self._heartbeat_s > HEARTBEAT_SILENCE_S
        if self.connected and (silent or self.status.wrong):
            self.connected = False
            self.counters["link_losses"] += 1
            lost = self.status.wrong or "the flight controller is silent"
            self._reports.log(
                "silent", f"{lost}: link lost, its state is invalid; check cable and power", CRITICAL, now_s
            )
            self._commands.cancel_all("link to the flight controller lost")
        for problem in self._peers.new_problems(self._heartbeat_s, first_step_s, now_s):
            self._reports.warn(problem.kind, problem.text, problem.severity, now_s)
        conflict, old = self.conflict.text, self.codec.replayed_frames + self.boot_clock.old
        self.conflict.step(self.status.armed, now_s)
        for stream in self.streams.take_new_slow():
            severity = WARNING if stream.essential else INFO
            self._reports.log(stream.name, f"{stream.problem()}; requested again", severity, now_s)
        if conflict and conflict != self._reported_conflict:
            self._limiter.force_due("status")
            text = (
                f"no setpoints and no new flight: {conflict}; remove the other sender, the conflict ends when disarmed"
            )
            self._reports.warn("conflict", text, CRITICAL, now_s)
        self._reported_conflict = self.conflict.text
        if old != self._reported_old:
            self._reported_old = old
            text = f"repeated or late frames of the flight controller dropped ({old} so far); check routers on the link"
            self._reports.log("replayed", text, WARNING, now_s)

    def _begin(self, now_s: float) -> None:
        self._now_s = self._actions.now_s = now_s
        self._actions.px4_sends_texts = self.ground.has_station(now_s)

    def _send(self, message: OutgoingMessage) -> None:
        self._out.append(LinkTx(stamp_s=self._now_s, data=self.codec.encode(message, self._now_s)))

    def _publish(self, message: Message) -> None:
        self._out.append(message)

    def _take_out(self) -> list[Message]:
        out, self._out = self._out, []
        return out
