"""The room that speaks MAVLink: bytes of the flight controller in, its attitude, position and status out, and back.

Bytes come as LinkRx and leave as LinkTx; the process moves them to and from a `companion.fcu.link.Link`.

Three rules (PX4 is the second pipeline, it never fights the pilot):
* a setpoint leaves the moment it comes, once, and never when it has expired; nothing here repeats one, so a
  silent controller is silence on the wire and PX4's offboard-loss failsafe sees it;
* no mode is ever changed but by an FcuCommand, and each FcuCommand is answered once;
* until the clocks are synchronised, FcuAttitude and FcuPosition carry ``valid=False`` and a stamp guessed from
  their arrival.
"""

import math
from types import SimpleNamespace

from pymavlink.dialects.v20 import common

from companion.clock import Stopwatch
from companion.fcu.codec import CURRENT_MODE, Codec
from companion.fcu.commands import Commands
from companion.fcu.modes import MODE_OF_ACTION, RESULT_TEXTS, custom_mode, mode_name
from companion.fcu.ned import attitude_setpoint_ned, swap_attitude, swap_body, swap_world
from companion.fcu.status import VehicleStatus
from companion.fcu.streams import Streams
from companion.fcu.texts import TextJoiner, TextSplitter
from companion.fcu.timesync import TimeSync
from companion.messages import (
    FCU,
    TOPICS,
    FcuAttitude,
    FcuCommand,
    FcuCommandAck,
    FcuPosition,
    FcuText,
    LinkRx,
    LinkTx,
    Message,
    SentSetpoint,
    Setpoint,
)
from companion.node import Node
from companion.vehicle import Vehicle

SILENCE_S = 1.0  # without any frame of the autopilot the link counts as lost
HEARTBEAT_SILENCE_S = 3.0  # without its heartbeat (1 Hz) mode and armed are unknown, whatever else comes
HEARTBEAT_PERIOD_S = 1.0
STATUS_PERIOD_S = 0.1
TIMESYNC_PERIOD_S = 0.1  # until the filter has settled
TIMESYNC_SETTLED_PERIOD_S = 0.5
REBOOT_BACKWARD_MS = 1000  # FCU boot time that falls by more is a restart, not a late datagram
TILT_LIMIT_RAD = math.radians(60)  # beyond every vehicle file's tilt_max_rad: a setpoint like that is corrupt
YAW_RATE_LIMIT_RAD_S = math.pi
FUTURE_LIMIT_S = 0.5  # a setpoint stamped further ahead is corrupt (stamps may lie one actuation delay ahead)
TAKEOFF_HEIGHT_MAX_M = 120.0
COMPLAINT_PERIOD_S = 5.0  # between two texts of one kind
SECOND_WORD_S = 0.15  # PX4's commander answers some 10 ms after its receiver, at most one cycle of a slow link later
REASON_AGE_S = 2.0  # a warning of PX4 this young explains its refusal

# attitude, thrust and yaw rate are meant; PX4 takes the yaw rate as feed-forward (yaw_sp_move_rate)
TYPE_MASK = (
    common.ATTITUDE_TARGET_TYPEMASK_BODY_ROLL_RATE_IGNORE | common.ATTITUDE_TARGET_TYPEMASK_BODY_PITCH_RATE_IGNORE
)
NAN = math.nan


class FcuNode(Node):
    """One flight controller. `counters` says how many of what was dropped since the start."""

    name = FCU
    inputs = ("link_rx", "setpoint", "fcu_command")
    rate_hz = 100.0

    def __init__(self, vehicle: Vehicle, stopwatch: Stopwatch | None = None) -> None:
        super().__init__()
        fcu = vehicle.fcu
        self._target = fcu.autopilot_system_id
        self.codec = Codec(fcu.system_id, fcu.component_id, fcu.autopilot_system_id)
        self.timesync = TimeSync()
        self.streams = Streams(fcu.attitude_rate_hz, fcu.position_rate_hz)
        self.status = VehicleStatus()
        self.connected = False
        self.counters = dict.fromkeys(
            ("setpoints_sent", "setpoints_expired", "setpoints_invalid", "setpoints_out_of_order",
             "commands_expired", "bad_content", "reboots", "link_losses"), 0,
        )  # fmt: skip
        self._commands = Commands(self._target, self._send)
        self._splitter, self._joiner = TextSplitter(), TextJoiner()
        self._out: list[Message] = []
        self._now_s = 0.0
        self._heard_s = self._heartbeat_s = -math.inf
        self._boot_ms = 0
        self._height_m = NAN  # of the newest position, in the local frame
        self._setpoint_stamp_s = -math.inf
        self._due_s = {"heartbeat": -math.inf, "status": -math.inf, "timesync": -math.inf}
        self._complained_s: dict[str, float] = {}
        self._warning = (-math.inf, "")
        self._first_step_s: float | None = None
        self._readers = {
            common.MAVLINK_MSG_ID_HEARTBEAT: self._on_heartbeat,
            common.MAVLINK_MSG_ID_ATTITUDE_QUATERNION: self._on_attitude,
            common.MAVLINK_MSG_ID_LOCAL_POSITION_NED: self._on_position,
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
        self._now_s = now_s
        arrival_s = min(message.stamp_s, now_s)
        before = self.codec.frames
        messages = self.codec.decode(message.data)
        if self.codec.frames != before:
            self._heard_s = arrival_s
        for number, content in messages:
            self.streams.count(number)
            if reader := self._readers.get(number):
                reader(content, arrival_s)
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
        self._watch_boot_time(m.time_boot_ms, now_s)
        length = math.sqrt(m.q1 * m.q1 + m.q2 * m.q2 + m.q3 * m.q3 + m.q4 * m.q4)
        rates = swap_body((m.rollspeed, m.pitchspeed, m.yawspeed))
        if not abs(length - 1.0) < 0.01 or not all(map(math.isfinite, rates)):
            self.counters["bad_content"] += 1
            return
        stamp_s, synced = self.timesync.stamp(m.time_boot_ms * 1e-3, now_s)
        q_WB = swap_attitude((m.q1 / length, m.q2 / length, m.q3 / length, m.q4 / length))
        self._out.append(FcuAttitude(stamp_s=stamp_s, valid=synced and self.connected, q_WB=q_WB, omega_B=rates))

    def _on_position(self, m: SimpleNamespace, now_s: float) -> None:
        self._watch_boot_time(m.time_boot_ms, now_s)
        p_W, v_W = swap_world((m.x, m.y, m.z)), swap_world((m.vx, m.vy, m.vz))
        if not all(map(math.isfinite, p_W + v_W)):
            self.counters["bad_content"] += 1
            return
        self._height_m = p_W[2]
        stamp_s, synced = self.timesync.stamp(m.time_boot_ms * 1e-3, now_s)
        self._out.append(FcuPosition(stamp_s=stamp_s, valid=synced and self.connected, p_W=p_W, v_W=v_W))

    def _watch_boot_time(self, boot_ms: int, now_s: float) -> None:
        if boot_ms < self._boot_ms - REBOOT_BACKWARD_MS:
            self.timesync.reset()
            self._restarted(now_s)
            self._boot_ms = boot_ms
        self._boot_ms = max(self._boot_ms, boot_ms)

    def _restarted(self, now_s: float) -> None:
        """Nothing the flight controller said before its restart holds; its next heartbeat connects anew."""
        self._boot_ms = 0
        self.counters["reboots"] += 1
        self._complain("reboot", "the flight controller restarted", 3, now_s)
        self.connected = False
        self.status.forget()
        self._commands.cancel_all("the flight controller restarted")

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
                self._warning = (now_s, text)

    # --- to the flight controller ----------------------------------------------------------------------------

    def handle_setpoint(self, message: Setpoint, now_s: float) -> list[Message]:
        """Send a setpoint now or never: LinkTx and SentSetpoint, or nothing and a count."""
        self._now_s = now_s
        fault = self._fault(message, now_s)
        if fault:
            kind, text = fault
            self.counters[kind] += 1
            self._complain(kind, f"setpoint not sent: {text}", 4, now_s)
            return self._take_out()
        self._setpoint_stamp_s = message.stamp_s
        roll, pitch, yaw = message.roll_rad, message.pitch_rad, message.yaw_rad
        rate = message.yaw_rate_rad_s
        self._send(
            common.MAVLink_set_attitude_target_message(
                int(now_s * 1000) & 0xFFFFFFFF, self._target, common.MAV_COMP_ID_AUTOPILOT1, TYPE_MASK,
                attitude_setpoint_ned(roll, pitch, yaw), 0.0, 0.0, -rate, message.thrust,
            )
        )  # fmt: skip
        self.counters["setpoints_sent"] += 1
        sent = SentSetpoint(
            stamp_s=now_s, valid=self.connected,
            roll_rad=roll, pitch_rad=pitch, yaw_rad=yaw, yaw_rate_rad_s=rate, thrust=message.thrust,
        )  # fmt: skip
        self._out.append(sent)
        return self._take_out()

    def _fault(self, m: Setpoint, now_s: float) -> tuple[str, str] | None:
        """Why a setpoint must not leave: counter and text."""
        numbers = (m.stamp_s, m.expires_s, m.roll_rad, m.pitch_rad, m.yaw_rad, m.yaw_rate_rad_s, m.thrust)
        if not m.valid or not all(map(math.isfinite, numbers)):
            return "setpoints_invalid", "marked invalid or not finite"
        if m.stamp_s > now_s + FUTURE_LIMIT_S:
            return "setpoints_invalid", f"stamped {m.stamp_s - now_s:.2f} s ahead"
        if abs(m.roll_rad) > TILT_LIMIT_RAD or abs(m.pitch_rad) > TILT_LIMIT_RAD:
            return "setpoints_invalid", f"tilt of {math.degrees(max(abs(m.roll_rad), abs(m.pitch_rad))):.0f} degrees"
        if abs(m.yaw_rate_rad_s) > YAW_RATE_LIMIT_RAD_S or not 0.0 <= m.thrust <= 1.0:
            return "setpoints_invalid", f"yaw rate {m.yaw_rate_rad_s:.2f} rad/s, thrust {m.thrust:.3f} out of range"
        if now_s >= m.expires_s or now_s - m.stamp_s > TOPICS["setpoint"].max_age_s:
            return "setpoints_expired", f"{(now_s - m.stamp_s) * 1e3:.0f} ms old, expired"
        if m.stamp_s <= self._setpoint_stamp_s:
            return "setpoints_out_of_order", "older than one already sent"
        if self.status.wrong:
            return "setpoints_invalid", self.status.wrong
        return None

    def handle_fcu_command(self, message: FcuCommand, now_s: float) -> list[Message]:
        """Begin what the mission asks; answered by one FcuCommandAck, now or when the flight controller has."""
        self._now_s = now_s
        action = message.action
        if not message.valid or not now_s - message.stamp_s <= TOPICS["fcu_command"].max_age_s:
            self.counters["commands_expired"] += 1
            self._answer(message, False, "request expired before it could be sent")
        elif action == "text":
            for chunk in self._splitter.split(message.severity, message.text):
                self._send(chunk)
            self._answer(message, True, "sent")
        elif not self.connected:
            self._answer(message, False, self.status.wrong or "no flight controller on the link")
        elif action in MODE_OF_ACTION:
            main, sub = MODE_OF_ACTION[action]
            custom = float(common.MAV_MODE_FLAG_CUSTOM_MODE_ENABLED)

            def answer(accepted: bool, reason: str) -> None:
                # The heartbeat with the news may be a second away; until then the estimator would believe in
                # setpoints that the autopilot no longer follows.
                if accepted:
                    self.status.mode = mode_name(custom_mode(main, sub))
                self._answer(message, accepted, reason)

            parameters = (custom, main, sub, 0, 0, 0, 0)
            self._commands.start(common.MAV_CMD_DO_SET_MODE, parameters, answer, self._now_s, SECOND_WORD_S)
        elif action in ("arm", "disarm"):
            # the second parameter would force it in the air; it stays 0
            arm = 1.0 if action == "arm" else 0.0
            self._arm(message, (arm, 0, 0, 0, 0, 0, 0))
        elif action == "takeoff":
            self._takeoff(message)
        else:
            self._answer(message, False, f"unknown action {action!r}")
        return self._take_out()

    def _arm(self, message: FcuCommand, parameters: tuple) -> None:
        def answer(accepted: bool, reason: str) -> None:
            if accepted:
                self._ask_for_heartbeat(self._now_s)
            elif parameters[0] and not self._px4s_words() and (unhealthy := self.status.unhealthy(self._now_s)):
                reason = f"{reason} (not in order: {unhealthy})"
            self._answer(message, accepted, reason)

        self._commands.start(common.MAV_CMD_COMPONENT_ARM_DISARM, parameters, answer, self._now_s)

    def _takeoff(self, message: FcuCommand) -> None:
        """MAV_CMD_NAV_TAKEOFF: PX4 wants the altitude over mean sea level; NaN means here and with this heading."""
        ground_m, height_m = self.status.standing_altitude_m(self._height_m), message.height_m
        if not 0.0 < height_m <= TAKEOFF_HEIGHT_MAX_M:
            self._answer(message, False, f"take-off height {height_m:g} m is not in 0 to {TAKEOFF_HEIGHT_MAX_M:g} m")
        elif ground_m is None:
            self._answer(message, False, "home position not known yet")
        else:
            self._command(message, common.MAV_CMD_NAV_TAKEOFF, (NAN, 0, 0, NAN, NAN, NAN, ground_m + height_m))

    def _command(self, message: FcuCommand, command: int, parameters: tuple) -> None:
        self._commands.start(command, parameters, lambda ok, why: self._answer(message, ok, why), self._now_s)

    def _answer(self, message: FcuCommand, accepted: bool, reason: str) -> None:
        if not accepted and reason in RESULT_TEXTS.values() and (warning := self._px4s_words()):
            reason = f"{reason}: {warning}"
        self._out.append(FcuCommandAck(stamp_s=self._now_s, id=message.id, accepted=accepted, reason=reason))

    def _px4s_words(self) -> str:
        """A warning it sent just now; PX4 1.17 sends texts to links with a ground station alone."""
        warned_s, warning = self._warning
        return warning if self._now_s - warned_s <= REASON_AGE_S else ""

    # --- periodic work ---------------------------------------------------------------------------------------

    def step(self, now_s: float) -> list[Message]:
        """Heartbeat, clock, streams, retries and status; no setpoint ever."""
        self._now_s = now_s
        if self._first_step_s is None:
            self._first_step_s = now_s
        self._judge_link(now_s)
        if self._is_due("heartbeat", HEARTBEAT_PERIOD_S, now_s):
            self._send(
                common.MAVLink_heartbeat_message(
                    common.MAV_TYPE_ONBOARD_CONTROLLER, common.MAV_AUTOPILOT_INVALID, 0, 0, common.MAV_STATE_ACTIVE, 3
                )
            )
        if self.connected:
            period_s = TIMESYNC_SETTLED_PERIOD_S if self.timesync.settled else TIMESYNC_PERIOD_S
            if self._is_due("timesync", period_s, now_s):
                self._send(common.MAVLink_timesync_message(0, self.timesync.request(now_s)))
            self._ask_for_streams(now_s)
            self._commands.step(now_s)
        self._publish_texts(self._joiner.expire(now_s), now_s)
        if self._is_due("status", STATUS_PERIOD_S, now_s):
            sync = self.timesync
            self._out.append(
                self.status.message(now_s, self.connected, sync.offset_at(now_s), sync.rtt_s, self.codec.errors)
            )
        return self._take_out()

    def _judge_link(self, now_s: float) -> None:
        silent = now_s - self._heard_s > SILENCE_S or now_s - self._heartbeat_s > HEARTBEAT_SILENCE_S
        if self.connected and (silent or self.status.wrong):
            self.connected = False
            self.counters["link_losses"] += 1
            self._complain("silent", self.status.wrong or "the flight controller is silent", 2, now_s)
            self._commands.cancel_all("link to the flight controller lost")
        if self._heartbeat_s == -math.inf and now_s - self._first_step_s > HEARTBEAT_SILENCE_S:
            others = sorted(self.codec.foreign_autopilots)
            if others:
                text = f"heard flight controllers with system id {others}, but the vehicle file says {self._target}"
                self._complain("others", text, 3, now_s, once=True)

    def _ask_for_streams(self, now_s: float) -> None:
        command = common.MAV_CMD_SET_MESSAGE_INTERVAL
        if self._commands.busy(command):
            return
        stream = self.streams.next_request(now_s)
        if stream is None:
            return

        def answer(accepted: bool, reason: str) -> None:
            if not accepted and reason.startswith((RESULT_TEXTS[2], RESULT_TEXTS[3], RESULT_TEXTS[4])):
                stream.refuse(self._now_s)

        interval_us = round(1e6 / stream.rate_hz)
        self._commands.start(command, (stream.message_id, interval_us, 0, 0, 0, 0, 0), answer, now_s)

    def _is_due(self, what: str, period_s: float, now_s: float) -> bool:
        due_s = self._due_s[what]
        if now_s < due_s - 1e-6:
            return False
        # keep the phase, unless whole periods were missed
        self._due_s[what] = due_s + period_s if now_s - due_s < period_s else now_s + period_s
        return True

    def _complain(self, kind: str, text: str, severity: int, now_s: float, once: bool = False) -> None:
        last_s = self._complained_s.get(kind)
        if last_s is None or (not once and now_s - last_s >= COMPLAINT_PERIOD_S):
            self._complained_s[kind] = now_s
            self._out.append(FcuText(stamp_s=now_s, severity=severity, text=text))

    def _send(self, message: object) -> None:
        self._out.append(LinkTx(stamp_s=self._now_s, data=self.codec.encode(message)))

    def _take_out(self) -> list[Message]:
        out, self._out = self._out, []
        return out
