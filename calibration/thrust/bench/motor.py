"""One motor of a PX4 flight controller: driven by MAV_CMD_ACTUATOR_TEST, observed by telemetry.

PX4 (`Commander::handleCommandActuatorTest`, v1.17) refuses the command while armed, with the safety switch on, or with
COM_MOT_TEST_EN = 0; it runs it for the time that the command names (at most 3 s), so a motor stops by itself when the
commands end. The value is a relative thrust: THR_MDL_FAC acts on it (`ActuatorTest::update`), which is inverted here.
PX4 answers each command; what its output does in its other states is the table in `calibration.thrust.bench.output`.

A motor that stood still for any reason starts only by `release`, which belongs to a person's confirmation. No command
is written that is older than `PAUSE_S`, or whose predecessor is, or after the flight controller has answered none for
that long: the output may have gone off in the meantime.
"""

import fcntl
import math
import os
import struct
import termios
from contextlib import suppress

from pymavlink.dialects.v20 import common

from calibration.thrust.bench.bench_file import MotorConfig
from calibration.thrust.bench.pause import PAUSE_S, Clock, PauseWatch
from calibration.thrust.bench.scale import port_trouble
from companion.fcu.link.link import Link

REFRESH_S = 0.05  # period of the repeated command
TIMEOUT_S = 0.45  # after which it expires at the flight controller; `PAUSE_S` and the way there fit in
QUEUE_MAX = 100  # bytes that the port may hold back, two frames: what waits there is sent after a pause, too
HELD_S = 0.2  # without a command that left the port
ASK_S = 1.0  # between two requests of a missing message
STREAM_US = 100_000  # every message of interest at 10 Hz
SYSTEM, COMPONENT = 254, common.MAV_COMP_ID_MISSIONPLANNER  # a ground station's

_REFUSALS = {
    common.MAV_RESULT_TEMPORARILY_REJECTED: "temporarily rejected",
    common.MAV_RESULT_DENIED: "denied (armed, safety switch on, or COM_MOT_TEST_EN = 0)",
    common.MAV_RESULT_UNSUPPORTED: "unsupported: not PX4, or older than 1.13",
    common.MAV_RESULT_FAILED: "failed",
}
_NEVER = float("-inf")
DSHOT_MAX = 1999  # SERVO_OUTPUT_RAW of a DShot output: 0 is off, 1 to 1999 the throttle (48 to 2047 on the wire)


class Motor:
    """Measurements of motor and battery with their times; `release`, `drive` and `stop`. No method raises."""

    def __init__(self, link: Link, config: MotorConfig, clock: Clock) -> None:
        self._link, self._config = link, config
        self._released = self._driven = self._held = False
        self._written = PauseWatch(clock)  # the newest command that left
        self._clock = clock
        self._answered_s = _NEVER  # the newest accepted motor test
        self.refused_s = _NEVER  # the newest refused one, or a refused stop
        self.paused_s = 0.0  # a pause that ended the motor test, 0 without one
        self.unanswered_s = 0.0  # the time without an accepted command that ended it, 0 without one
        self._mav = common.MAVLink(None, srcSystem=SYSTEM, srcComponent=COMPONENT)
        self._parser = common.MAVLink(None)
        self._parser.robust_parsing = True
        self._asked_s = self._heartbeat_s = _NEVER
        self._full_battery_status = False
        self.received_s = self.heartbeat_s = self.pwm_s = self.battery_s = _NEVER
        self.pwm_us = self.voltage_v = self.current_a = math.nan
        self.armed = False
        self.killed = False  # kill switch, lockdown or termination: the output is off whatever is commanded
        self.refusal = ""  # of a command since the release, even if later ones were accepted
        self.factor: float | None = None  # THR_MDL_FAC, once received

    @property
    def trouble(self) -> str:
        """The fault of the port, "" without one."""
        if self._held and self._released and self._written.age_s() > HELD_S:
            return f"{self._config.url}: the port does not take the commands"
        return port_trouble(self._link)

    def poll(self, now_s: float) -> None:
        """Take received messages; send the heartbeat; request missing messages."""
        for message in self._parser.parse_buffer(self._link.read()) or []:
            if message.get_srcSystem() == self._config.autopilot_system_id:
                self._take(message, now_s)
        if now_s - self._heartbeat_s >= 1.0:
            self._heartbeat_s = now_s
            self._send(common.MAVLink_heartbeat_message(common.MAV_TYPE_GCS, common.MAV_AUTOPILOT_INVALID, 0, 0, 0, 3))
        if now_s - self._asked_s >= ASK_S:
            self._asked_s = now_s
            self._ask(now_s)

    def release(self) -> None:
        """Allow `drive`; a person has confirmed that the motor may turn."""
        self._released, self._driven, self._held = True, False, False
        self.paused_s, self.unanswered_s, self.refusal = 0.0, 0.0, ""
        self._written.look()

    def drive(self, pwm_us: float, cycle: PauseWatch) -> None:
        """Hold a pulse width that was computed since the last look of `cycle`; to be called every `REFRESH_S`.

        After a pause nothing is written but the stop, and the motor stays off until it is released again.
        """
        if not self._released or (self._driven and self._written.age_s() < REFRESH_S - 1e-6):
            return
        self._held = self._waiting() > QUEUE_MAX
        if self._paused(cycle) or self._held or self._unanswered():
            return
        span = self._config.pwm_max_us - self._config.pwm_min_us
        signal = min(max((pwm_us - self._config.pwm_min_us) / span, 0.0), 1.0)
        factor = self.factor or 0.0
        self._held = not self._test(factor * signal**2 + (1 - factor) * signal, TIMEOUT_S)
        if not self._paused(cycle) and not self._held:  # paused while it was written: the stop has followed at once
            if not self._driven:
                self._answered_s = self._clock.now_s()
            self._driven = True
            self._written.look()

    def rest(self) -> None:
        """Send no further command: the output goes off by itself."""
        self._released = False

    def stop(self) -> None:
        """End the motor test: disarmed output at once. What waits in the port is not sent any more."""
        self._released = False
        descriptor = self._link.fileno()
        with suppress(OSError, ValueError, termios.error):
            if descriptor >= 0 and os.isatty(descriptor):
                termios.tcflush(descriptor, termios.TCOFLUSH)
        self._test(math.nan, 0.0)

    def _paused(self, cycle: PauseWatch) -> bool:
        """Whether cycle or last command are too old; then the motor is stopped."""
        age_s = max(cycle.age_s(), self._written.age_s())
        if age_s <= PAUSE_S:
            return False
        self.paused_s = age_s
        self.stop()
        return True

    def _unanswered(self) -> bool:
        """Whether no command was accepted for too long; then the motor is stopped."""
        self._note_gap(self._clock.now_s())
        if self.unanswered_s:
            self.stop()
        return self.unanswered_s > 0.0

    def _note_gap(self, now_s: float) -> None:
        gap_s = now_s - self._answered_s
        if self._released and self._driven and gap_s > PAUSE_S and not self.unanswered_s:
            self.unanswered_s = gap_s

    def request_state(self) -> None:
        """Ask for a heartbeat now, which says whether the flight controller is armed; PX4 sends one a second."""
        self._command(common.MAV_CMD_REQUEST_MESSAGE, common.MAVLINK_MSG_ID_HEARTBEAT)

    def _waiting(self) -> int:
        """Bytes that the operating system holds back (serial port, socket); 0 if it does not say."""
        descriptor = self._link.fileno()
        try:
            return int(struct.unpack("i", fcntl.ioctl(descriptor, termios.TIOCOUTQ, b"\0" * 4))[0])
        except (OSError, ValueError, TypeError):
            return 0

    def close(self) -> None:
        self._link.close()

    def _test(self, value: float, timeout_s: float) -> bool:
        return self._command(common.MAV_CMD_ACTUATOR_TEST, value, timeout_s, 0, 0, self._config.number)

    def _command(self, command: int, *parameters: float) -> bool:
        padded = (*parameters, *([0.0] * (7 - len(parameters))))
        target = self._config.autopilot_system_id, common.MAV_COMP_ID_AUTOPILOT1
        return self._send(common.MAVLink_command_long_message(*target, command, 0, *padded))

    def _send(self, message: common.MAVLink_message) -> bool:
        left = self._link.write(message.pack(self._mav))
        self._mav.seq = (self._mav.seq + 1) % 256
        return left

    def _ask(self, now_s: float) -> None:
        streams = (
            (common.MAVLINK_MSG_ID_SERVO_OUTPUT_RAW, self.pwm_s),
            (common.MAVLINK_MSG_ID_BATTERY_STATUS, self.battery_s),
            (common.MAVLINK_MSG_ID_SYS_STATUS, self.battery_s),
        )
        for number, received_s in streams:
            if now_s - received_s > ASK_S:
                self._command(common.MAV_CMD_SET_MESSAGE_INTERVAL, number, STREAM_US)
        if self.factor is None:
            target = self._config.autopilot_system_id, common.MAV_COMP_ID_AUTOPILOT1
            self._send(common.MAVLink_param_request_read_message(*target, b"THR_MDL_FAC", -1))

    def _take(self, m: common.MAVLink_message, now_s: float) -> None:
        kind = m.get_type()
        if kind == "HEARTBEAT" and m.get_srcComponent() == common.MAV_COMP_ID_AUTOPILOT1:
            self.received_s = self.heartbeat_s = now_s
            self.armed = bool(m.base_mode & common.MAV_MODE_FLAG_SAFETY_ARMED)
            self.killed = m.system_status == common.MAV_STATE_FLIGHT_TERMINATION
        elif kind == "SERVO_OUTPUT_RAW" and m.port == self._config.port:
            self.received_s = self.pwm_s = now_s
            raw = float(getattr(m, f"servo{self._config.output}_raw"))
            self.pwm_us = 1000.0 + 1000.0 * raw / DSHOT_MAX if self._config.read_back == "dshot" else raw
        elif kind == "BATTERY_STATUS" and m.id == 0:
            cells = [v for v in (*m.voltages, *m.voltages_ext) if v not in (0, 65535)]
            if cells:
                self._full_battery_status = True
                self._battery(sum(cells) / 1000, m.current_battery, now_s)
        elif kind == "SYS_STATUS" and not self._full_battery_status and m.voltage_battery not in (0, 65535):
            self._battery(m.voltage_battery / 1000, m.current_battery, now_s)
        elif kind == "COMMAND_ACK" and m.command == common.MAV_CMD_ACTUATOR_TEST and m.target_system in (0, SYSTEM):
            accepted = m.result in (common.MAV_RESULT_ACCEPTED, common.MAV_RESULT_IN_PROGRESS)
            if accepted:
                self._note_gap(now_s)
                self._answered_s = now_s
            else:
                self.refused_s = now_s
                self.refusal = _REFUSALS.get(m.result, f"result {m.result}")
        elif kind == "PARAM_VALUE" and m.param_id == "THR_MDL_FAC" and math.isfinite(m.param_value):
            self.factor = min(max(float(m.param_value), 0.0), 1.0)

    def _battery(self, voltage_v: float, current_ca: int, now_s: float) -> None:
        self.received_s = self.battery_s = now_s
        self.voltage_v = voltage_v
        self.current_a = current_ca / 100 if current_ca >= 0 else math.nan
