"""The room that speaks MAVLink: bytes of the flight controller in, its attitude, position and status out, and back.

Bytes come as LinkRx and leave as LinkTx; the process moves them to and from a `companion.fcu.link.link.Link`.

Four rules (PX4 is the second pipeline, it never fights the pilot):
* a setpoint leaves the moment it comes, once, and never when it has expired; nothing here repeats one, so a
  silent controller is silence on the wire and PX4's offboard-loss failsafe sees it;
* no mode is ever changed but by an FcuCommand, and each FcuCommand is answered once;
* until the clocks are synchronised, FcuAttitude and FcuPosition carry ``valid=False`` and a stamp guessed from
  their arrival;
* where somebody else steers or speaks in our place, no setpoint leaves and no flight is begun.
"""

import math
from types import SimpleNamespace

from pymavlink.dialects.v20 import common

from companion.core.clock import Stopwatch
from companion.core.config import ConfigError
from companion.core.messages import (
    FCU,
    TOPICS,
    FcuAttitude,
    FcuCommand,
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
from companion.core.vehicle import Vehicle
from companion.fcu.actions import Actions
from companion.fcu.boot_clock import BootClock
from companion.fcu.commands import Commands
from companion.fcu.ground import GroundFilter
from companion.fcu.guards.conflict import Conflict
from companion.fcu.guards.parameter_watch import ParameterWatch
from companion.fcu.guards.setpoints import SetpointGate
from companion.fcu.link.codec import AUTOPILOT_COMPONENT, Codec
from companion.fcu.link.framing import CURRENT_MODE
from companion.fcu.link.peer_monitor import Listener
from companion.fcu.link.rate_limiter import Pace
from companion.fcu.link.signing import Signer
from companion.fcu.ned import swap_attitude, swap_body, swap_world
from companion.fcu.odometry import OdometrySource
from companion.fcu.status import VehicleStatus
from companion.fcu.streams import Streams
from companion.fcu.texts import TextJoiner, TextSplitter
from companion.fcu.timesync import TimeSync

SILENCE_S = 1.0  # without any frame of the autopilot the link counts as lost
HEARTBEAT_SILENCE_S = 3.0  # without its heartbeat (1 Hz) mode and armed are unknown, whatever else comes
HEARTBEAT_PERIOD_S = 1.0
STATUS_PERIOD_S = 0.1
TIMESYNC_PERIOD_S = 0.1  # until the filter has settled
TIMESYNC_SETTLED_PERIOD_S = 0.5
NAN = math.nan


class FcuNode(Node):
    """One flight controller. `counters` says how many of what was dropped since the start."""

    name = FCU
    inputs = ("link_rx", "setpoint", "fcu_command")
    rate_hz = 100.0

    def __init__(self, vehicle: Vehicle, stopwatch: Stopwatch | None = None, signer: Signer | None = None) -> None:
        """signer: with the key of the vehicle file; None: frames are neither signed nor checked.

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
        self.timesync = TimeSync()
        self.streams = Streams(fcu.attitude_rate_hz, fcu.position_rate_hz)
        self.status = VehicleStatus()
        self.parameters = ParameterWatch(vehicle, self._send)
        self.conflict = Conflict()
        self.ground = GroundFilter(self.codec, self._target)
        self.boot_clock = BootClock()
        self.connected = False
        self.counters = dict.fromkeys(
            ("setpoints_sent", "setpoints_expired", "setpoints_invalid", "setpoints_out_of_order", "setpoints_conflict",
             "setpoints_interrupted", "commands_expired", "bad_content", "reboots", "link_losses"), 0,
        )  # fmt: skip
        self._listener = Listener(self.codec, self._target)
        self._setpoints = SetpointGate(self._target, vehicle.safety.setpoints_lost_s)
        self._commands = Commands(self._target, self._send)
        self._actions = Actions(self._commands, self.status, lambda m: self._out.append(m), self._ask_for_heartbeat)
        self._splitter, self._joiner = TextSplitter(), TextJoiner()
        self._out: list[Message] = []
        self._now_s = 0.0
        self._heard_s = self._heartbeat_s = -math.inf
        self._height_m = NAN  # of the newest position, in the local frame
        self._pace = Pace()
        self._told_conflict = ""
        self._replayed = 0  # old frames, when they were last told
        self._first_step_s: float | None = None
        self._readers = {
            common.MAVLINK_MSG_ID_HEARTBEAT: self._on_heartbeat,
            common.MAVLINK_MSG_ID_ATTITUDE_QUATERNION: self._on_attitude,
            common.MAVLINK_MSG_ID_LOCAL_POSITION_NED: self._on_position,
            common.MAVLINK_MSG_ID_ATTITUDE_TARGET: self._on_attitude_target,
            common.MAVLINK_MSG_ID_PARAM_VALUE: self._on_parameter,
            common.MAVLINK_MSG_ID_TIMESYNC: self._on_timesync,
            common.MAVLINK_MSG_ID_COMMAND_ACK: self._on_ack,
            common.MAVLINK_MSG_ID_STATUSTEXT: self._on_text,
            common.MAVLINK_MSG_ID_EXTENDED_SYS_STATE: self.status.put_extended_sys_state,
            common.MAVLINK_MSG_ID_SYS_STATUS: self.status.put_sys_status,
            common.MAVLINK_MSG_ID_BATTERY_STATUS: self.status.put_battery_status,
            common.MAVLINK_MSG_ID_RC_CHANNELS: self.status.put_rc_channels,
            common.MAVLINK_MSG_ID_GPS_RAW_INT: self.status.put_gps_raw_int,
            common.MAVLINK_MSG_ID_HOME_POSITION: lambda m, now_s: self.status.put_home_position(m),
            CURRENT_MODE: self._on_current_mode,
        }

    # --- from the flight controller --------------------------------------------------------------------------

    def handle_link_rx(self, message: LinkRx, now_s: float) -> list[Message]:
        """Decode bytes; their stamp is when they were read, which is the arrival of everything in them."""
        self._begin(now_s)
        if message.ground:
            return self._pass_on(message.data, now_s)
        arrival_s = min(message.stamp_s, now_s)
        codec = self.codec
        before = codec.frames
        messages = codec.decode(message.data, now_s)
        if codec.frames != before:
            self._heard_s = arrival_s
        self._listener.bytes_came(len(message.data), now_s)
        self.conflict.look_at(codec, now_s)
        for number, content in messages:
            self.streams.count(number)
            if reader := self._readers.get(number):
                reader(content, arrival_s)
        return self._take_out()

    def _pass_on(self, data: bytes, now_s: float) -> list[Message]:
        """Bytes of a ground station, for the flight controller."""
        ground = self.ground
        before = ground.blocked + ground.unsigned
        if frames := ground.pass_on(data, now_s):
            self._out.append(LinkTx(stamp_s=now_s, data=b"".join(frames)))
        if (count := ground.blocked + ground.unsigned) != before:
            self._warn("ground", f"ground station on the forward: not passed on: {ground.reason} ({count} so far)", 4)
        return self._take_out()

    def _on_heartbeat(self, m: SimpleNamespace, now_s: float) -> None:
        self._heartbeat_s = now_s
        self.status.put_heartbeat(m)
        if self.status.wrong:
            self._complain("wrong", f"system {self._target} cannot be flown: {self.status.wrong}", 2, now_s, once=True)
        elif not self.connected:
            self.connected = True
            self.streams.restart(now_s)

    def _on_current_mode(self, m: SimpleNamespace, now_s: float) -> None:
        if self.status.put_current_mode(m, now_s):
            self._ask_for_heartbeat(now_s)

    def _ask_for_heartbeat(self, now_s: float) -> None:
        """One out of turn: it alone tells mode and armed together, and PX4 refuses to send it at more than 1 Hz."""
        request = common.MAV_CMD_REQUEST_MESSAGE
        if self.connected and not self._commands.busy(request):
            parameters = (common.MAVLINK_MSG_ID_HEARTBEAT, 0, 0, 0, 0, 0, 0)
            self._commands.start(request, parameters, lambda accepted, reason: None, now_s)

    def _on_attitude(self, m: SimpleNamespace, now_s: float) -> None:
        stamp = self._stamp(common.MAVLINK_MSG_ID_ATTITUDE_QUATERNION, m.time_boot_ms, now_s)
        if stamp is None:
            return
        length = math.sqrt(m.q1 * m.q1 + m.q2 * m.q2 + m.q3 * m.q3 + m.q4 * m.q4)
        rates = swap_body((m.rollspeed, m.pitchspeed, m.yawspeed))
        if not abs(length - 1.0) < 0.01 or not all(map(math.isfinite, rates)):
            self.counters["bad_content"] += 1
            return
        q_WB = swap_attitude((m.q1 / length, m.q2 / length, m.q3 / length, m.q4 / length))
        self._out.append(FcuAttitude(stamp_s=stamp[0], valid=stamp[1] and self.connected, q_WB=q_WB, omega_B=rates))

    def _on_position(self, m: SimpleNamespace, now_s: float) -> None:
        stamp = self._stamp(common.MAVLINK_MSG_ID_LOCAL_POSITION_NED, m.time_boot_ms, now_s)
        if stamp is None:
            return
        p_W, v_W = swap_world((m.x, m.y, m.z)), swap_world((m.vx, m.vy, m.vz))
        if not all(map(math.isfinite, p_W + v_W)):
            self.counters["bad_content"] += 1
            return
        self._height_m = p_W[2]
        self._out.append(FcuPosition(stamp_s=stamp[0], valid=stamp[1] and self.connected, p_W=p_W, v_W=v_W))

    def _stamp(self, kind: int, boot_ms: int, now_s: float) -> tuple[float, bool] | None:
        """Companion time of a message and whether it may be trusted; None for one that is old."""
        stamp = self.timesync.stamp(boot_ms * 1e-3, now_s)
        verdict = self.boot_clock.judge(kind, boot_ms, now_s, stamp[1] or not self.timesync.synced)
        if verdict == "new":
            return stamp
        if verdict == "restart":
            self.timesync.reset()
            self._restarted(now_s)
            return self.timesync.stamp(boot_ms * 1e-3, now_s)
        self._pace.hurry("timesync")  # a restart shows there soonest
        if self.boot_clock.two_senders(now_s):
            self.conflict.note(f"a second flight controller with system id {self._target} on the link", now_s)
        return None

    def _restarted(self, now_s: float) -> None:
        """Nothing the flight controller said before its restart holds; its next heartbeat connects anew."""
        self.boot_clock.reset()
        self.counters["reboots"] += 1
        self._complain("reboot", "the flight controller restarted", 3, now_s)
        self.connected = False
        self.status.forget()
        self.parameters.forget()
        self._commands.cancel_all("the flight controller restarted")

    @property
    def _obeyed(self) -> bool:
        return self.connected and self.status.armed and self.status.mode == "OFFBOARD"

    def _on_attitude_target(self, m: SimpleNamespace, now_s: float) -> None:
        if self._setpoints.is_strange(m, self._obeyed, now_s):
            self.conflict.note("the flight controller follows setpoints of somebody else", now_s)

    def _on_parameter(self, m: SimpleNamespace, now_s: float) -> None:
        if self.parameters.put(m) and self.parameters.problem:
            self._warn("parameters", f"no flight with this flight controller: {self.parameters.problem}", 3)

    def _on_timesync(self, m: SimpleNamespace, now_s: float) -> None:
        if m.tc1 == 0:  # PX4 asks too; a peer that does not answer leaves its log without the offset
            self._send(common.MAVLink_timesync_message(round(now_s * 1e9), m.ts1))
        else:
            restarts = self.timesync.restarts
            self.timesync.answer(m.tc1, m.ts1, now_s)
            if self.timesync.restarts != restarts:
                self._restarted(now_s)

    def _on_ack(self, m: SimpleNamespace, now_s: float) -> None:
        if m.target_system not in (0, self.codec.system_id) or m.target_component not in (0, self.codec.component_id):
            return
        self._commands.acknowledge(m.command, m.result, now_s)

    def _on_text(self, m: SimpleNamespace, now_s: float) -> None:
        self._publish_texts(self._joiner.put(m.severity, m.text, m.id, m.chunk_seq, now_s), now_s)

    def _publish_texts(self, texts: list[tuple[int, str]], now_s: float) -> None:
        for severity, text in texts:
            self._out.append(FcuText(stamp_s=now_s, severity=severity, text=text))
            if severity <= common.MAV_SEVERITY_WARNING:
                self._actions.note_warning(text)

    # --- to the flight controller ----------------------------------------------------------------------------

    def handle_setpoint(self, message: Setpoint, now_s: float) -> list[Message]:
        """Send a setpoint now or never: LinkTx and SentSetpoint, or nothing and a count."""
        self._begin(now_s)
        interrupted = self._setpoints.is_interrupted(now_s)
        fault = self._setpoints.fault(message, now_s)
        if not fault and interrupted:
            fault = ("setpoints_interrupted", "the stream had paused, the flight controller has the aircraft")
        elif not fault and self.status.wrong:
            fault = ("setpoints_invalid", self.status.wrong)
        elif not fault and self.conflict.text:
            fault = ("setpoints_conflict", self.conflict.text)
        if fault:
            kind, text = fault
            self.counters[kind] += 1
            self._complain(kind, f"setpoint not sent: {text}", 4, now_s)
            return self._take_out()
        self._send(self._setpoints.message(message, self._obeyed, now_s))
        self.counters["setpoints_sent"] += 1
        self._out.append(SentSetpoint(
            stamp_s=now_s, valid=self.connected, roll_rad=message.roll_rad, pitch_rad=message.pitch_rad,
            yaw_rad=message.yaw_rad, yaw_rate_rad_s=message.yaw_rate_rad_s, thrust=message.thrust,
        ))  # fmt: skip
        return self._take_out()

    def handle_fcu_command(self, message: FcuCommand, now_s: float) -> list[Message]:
        """Begin what the mission asks; answered by one FcuCommandAck, now or when the flight controller has."""
        self._begin(now_s)
        if not message.valid or not now_s - message.stamp_s <= TOPICS["fcu_command"].max_age_s:
            self.counters["commands_expired"] += 1
            self._actions.answer(message, False, "request expired before it could be sent")
        elif message.action == "text":
            self._send_text(message.severity, message.text)
            self._actions.answer(message, True, "sent")
        elif not self.connected:
            self._actions.answer(message, False, self.status.wrong or "no flight controller on the link")
        else:
            self._actions.begin(message, self.refused, self._height_m)
        return self._take_out()

    def handle_state(self, message: State, now_s: float) -> list[Message]:
        """The estimate, where the vehicle file wants PX4 to have it."""
        self._begin(now_s)
        if self.connected and not self.conflict.text and (m := self.odometry.message(message, now_s)) is not None:
            self._send(m)
        return self._take_out()

    @property
    def refused(self) -> str:
        """Why no flight is begun, "" when one may be."""
        return self.status.wrong or self.conflict.text or self.parameters.problem

    # --- periodic work ---------------------------------------------------------------------------------------

    def step(self, now_s: float) -> list[Message]:
        """Heartbeat, clock, streams, retries and status; no setpoint ever."""
        self._begin(now_s)
        if self._first_step_s is None:
            self._first_step_s = now_s
        self._judge_link(now_s)
        if self._pace.is_due("heartbeat", HEARTBEAT_PERIOD_S, now_s):
            self._send(
                common.MAVLink_heartbeat_message(
                    common.MAV_TYPE_ONBOARD_CONTROLLER, common.MAV_AUTOPILOT_INVALID, 0, 0, common.MAV_STATE_ACTIVE, 3
                )
            )
        if self.connected:
            period_s = TIMESYNC_SETTLED_PERIOD_S if self.timesync.settled else TIMESYNC_PERIOD_S
            if self._pace.is_due("timesync", period_s, now_s):
                self._send(common.MAVLink_timesync_message(0, self.timesync.request(now_s)))
            self.streams.ask(self._commands, now_s)
            self.parameters.step(now_s)
            self._commands.step(now_s)
        self._actions.step(now_s)
        self._publish_texts(self._joiner.expire(now_s), now_s)
        if self._pace.is_due("status", STATUS_PERIOD_S, now_s):
            self._out.append(self._status(now_s))
        return self._take_out()

    def _status(self, now_s: float) -> FcuStatus:
        sync = self.timesync
        status = self.status.message(now_s, self.connected)
        status.timesync_offset_s, status.timesync_rtt_s = sync.offset_at(now_s), sync.rtt_s
        status.timesync_age_s = now_s - sync.heard_s
        status.link_errors = self.codec.errors
        status.refused = self.refused if self.connected else self.status.wrong or "no flight controller on the link"
        status.conflict = self.conflict.text
        status.slow_streams = self.streams.short()
        return status

    def _judge_link(self, now_s: float) -> None:
        silent = now_s - self._heard_s > SILENCE_S or now_s - self._heartbeat_s > HEARTBEAT_SILENCE_S
        if self.connected and (silent or self.status.wrong):
            self.connected = False
            self.counters["link_losses"] += 1
            self._complain("silent", self.status.wrong or "the flight controller is silent", 2, now_s)
            self._commands.cancel_all("link to the flight controller lost")
        for remark in self._listener.remarks(self._heartbeat_s, self._first_step_s, now_s):
            self._warn(remark.kind, remark.text, remark.severity)
        told, old = self.conflict.text, self.codec.replayed_frames + self.boot_clock.old
        self.conflict.step(self.status.armed, now_s)
        for short in self.streams.news():
            self._complain(short.name, f"{short.words()}; asked again", 4 if short.essential else 6, now_s)
        if told and told != self._told_conflict:
            self._warn("conflict", f"no setpoints and no new flight: {told}", 2)
        self._told_conflict = self.conflict.text
        if old != self._replayed:
            self._replayed = old
            self._complain(
                "replayed", f"frames of the flight controller came again or too late ({old} so far)", 4, now_s
            )

    def _complain(self, kind: str, text: str, severity: int, now_s: float, once: bool = False) -> bool:
        """Tell the stack, unless it was told just now."""
        if not self._pace.may_tell(kind, now_s, once):
            return False
        self._out.append(FcuText(stamp_s=now_s, severity=severity, text=text))
        return True

    def _warn(self, kind: str, text: str, severity: int) -> None:
        """Tell the stack and the ground station."""
        if self._complain(kind, text, severity, self._now_s):
            self._send_text(severity, text)

    def _send_text(self, severity: int, text: str) -> None:
        for chunk in self._splitter.split(severity, text):
            self._send(chunk)

    def _begin(self, now_s: float) -> None:
        self._now_s = self._actions.now_s = now_s
        self._actions.texts_come = self.ground.has_station(now_s)

    def _send(self, message: object) -> None:
        self._out.append(LinkTx(stamp_s=self._now_s, data=self.codec.encode(message, self._now_s)))

    def _take_out(self) -> list[Message]:
        out, self._out = self._out, []
        return out
