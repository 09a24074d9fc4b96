"""Keeps the flight controller's streams at their rates: requests them, measures them, and requests slow ones again.

Rates are lost when the flight controller restarts or another station changes them, so each stream is counted and
requested again when it is too slow. One request is pending at a time, because an ack does not say which message it is
for; the wait between two requests for the same stream doubles, because some streams have no source (no receiver bound,
no battery monitor) and never arrive.
"""

import math

from pymavlink.dialects.v20 import common

from companion.fcu.commands import Commands, Outcome
from companion.fcu.guards.echoes import ECHO_RATE_HZ
from companion.fcu.link.codec import LAYOUTS
from companion.fcu.link.framing import CURRENT_MODE

SLOW_FRACTION = 0.6  # of the requested rate, below which a stream counts as too slow
WINDOW_S = 2.0  # over which a rate is measured, at least
WINDOW_MESSAGES = 4  # messages expected in a window, at least
WAIT_FIRST_S = 2.0  # between two requests for one stream
WAIT_MAX_S = 16.0
SWITCHED_OFF = -1  # as the interval of MAV_CMD_SET_MESSAGE_INTERVAL
WAIT_REFUSED_S = 60.0  # after the flight controller refused a stream
REFUSALS = (common.MAV_RESULT_DENIED, common.MAV_RESULT_UNSUPPORTED, common.MAV_RESULT_FAILED)

# Without satellites these do not come, or their horizontal numbers mean nothing: PX4 1.17 sends LOCAL_POSITION_NED without
# saying that x and y are not valid. The other two are requested in another way then.
BY_POSITION = (
    common.MAVLINK_MSG_ID_LOCAL_POSITION_NED,
    common.MAVLINK_MSG_ID_GLOBAL_POSITION_INT,
    common.MAVLINK_MSG_ID_HOME_POSITION,
    common.MAVLINK_MSG_ID_ODOMETRY,
    common.MAVLINK_MSG_ID_ALTITUDE,
    common.MAVLINK_MSG_ID_GPS_RAW_INT,
)
# PX4 sends GLOBAL_POSITION_INT from its first global position on: its estimator watches the receiver for 10 s before
# (EKF2_REQ_GPS_H) and starts after that. Until then the absence of it is no loss.
FIRST_POSITION_S = 15.0
HEIGHT_RATE_HZ = 10.0  # of ALTITUDE without satellites, as the status that carries it


class Stream:
    """One message that the flight controller is requested to send; with a rate of 0, not to send."""

    def __init__(
        self,
        message_id: int,
        rate_hz: float,
        expected_hz: float | None = None,
        essential: bool = False,
        begins_s: float = 0.0,
    ) -> None:
        """expected_hz: the lowest good rate, where PX4 sends on change and not at the requested rate.

        essential: the stack cannot fly without it. begins_s: the first one may come so late.
        """
        self.essential, self.begins_s = essential, begins_s
        self.message_id = message_id
        self.name = LAYOUTS[message_id].name
        self.rate_hz = rate_hz
        self.expected_hz = SLOW_FRACTION * rate_hz if expected_hz is None else expected_hz
        self.window_s = max(WINDOW_S, WINDOW_MESSAGES / rate_hz) if rate_hz > 0.0 else WINDOW_S
        self.restart(0.0)

    def restart(self, now_s: float) -> None:
        """Request it at the next opportunity."""
        self.count = 0
        self.window_start_s = self.restarted_s = now_s
        self.has_begun = False
        self.measured_hz = 0.0
        self.is_measured = False
        self.due_s = now_s
        self.wait_s = WAIT_FIRST_S
        self.needs_request = self.rate_hz > 0.0
        self.slow = False  # in the newest window

    def refuse(self, now_s: float) -> None:
        """The flight controller refused it: request it rarely."""
        self.due_s = now_s + WAIT_REFUSED_S

    def measure(self, now_s: float) -> bool:
        """Close the window when it is over, and measure the rate; True when the stream has just become slow."""
        elapsed_s = now_s - self.window_start_s
        if elapsed_s < self.window_s:
            return False
        self.measured_hz, self.is_measured = self.count / elapsed_s, True
        if self.rate_hz == 0.0:
            self.needs_request = self.count > 0
            self.count, self.window_start_s = 0, now_s
            return False
        self.has_begun = self.has_begun or self.count > 0 or now_s >= self.restarted_s + self.begins_s
        self.count, self.window_start_s = 0, now_s
        if not self.has_begun:
            self.needs_request = True  # the request may be lost
            return False
        was_slow, self.slow = self.slow, self.measured_hz < self.expected_hz
        self.needs_request = self.slow
        if not self.slow:
            self.wait_s = WAIT_FIRST_S
        return self.slow and not was_slow

    def problem(self) -> str:
        """A slow stream, for the crew."""
        if self.measured_hz == 0.0:
            return f"{self.name} does not arrive ({self.rate_hz:g} Hz requested)"
        return f"{self.name} arrives at {self.measured_hz:.1f} Hz instead of {self.rate_hz:g} Hz"


class Streams:
    """All streams of one vehicle."""

    def __init__(
        self, attitude_rate_hz: float, position_rate_hz: float, imu_rate_hz: float = 0.0, satellites: bool = True
    ) -> None:
        """imu_rate_hz: 0 for a link that is too slow; the estimator then propagates by the commands.

        satellites: False: PX4 has no horizontal position. What depends on one is not requested, and the height by pressure,
        the only one, is essential.
        """
        m = common
        # The lowest good rates are such that one message may be lost within the age of the content (`companion.fcu.status`).
        self.streams = [
            Stream(m.MAVLINK_MSG_ID_ATTITUDE_QUATERNION, attitude_rate_hz, essential=True),
            Stream(m.MAVLINK_MSG_ID_LOCAL_POSITION_NED, position_rate_hz, essential=True),
            Stream(CURRENT_MODE, 10.0, 0.3),  # sent on change: a heartbeat may be a second late with the mode
            Stream(m.MAVLINK_MSG_ID_EXTENDED_SYS_STATE, 5.0, 1.0),
            Stream(m.MAVLINK_MSG_ID_RC_CHANNELS, 5.0),
            Stream(m.MAVLINK_MSG_ID_SYS_STATUS, 2.0, 0.5),
            Stream(m.MAVLINK_MSG_ID_BATTERY_STATUS, 2.0, 0.5),
            Stream(m.MAVLINK_MSG_ID_GPS_RAW_INT, 5.0, 0.8),  # a receiver's rate may be lower
            Stream(m.MAVLINK_MSG_ID_HOME_POSITION, 1.0, 0.2),
            Stream(m.MAVLINK_MSG_ID_GLOBAL_POSITION_INT, 2.0, 0.8, begins_s=FIRST_POSITION_S),
            Stream(m.MAVLINK_MSG_ID_ODOMETRY, 10.0, 3.0),
            Stream(m.MAVLINK_MSG_ID_ALTITUDE, 5.0, 2.5),
            Stream(m.MAVLINK_MSG_ID_ATTITUDE_TARGET, ECHO_RATE_HZ, 0.0),  # sent while PX4 follows attitude setpoints
            Stream(m.MAVLINK_MSG_ID_DISTANCE_SENSOR, 10.0, 0.0),  # few aircraft have a range finder
        ]
        self.streams.append(Stream(m.MAVLINK_MSG_ID_HIGHRES_IMU, imu_rate_hz))
        self.streams.append(Stream(m.MAVLINK_MSG_ID_VIBRATION, 2.0, 0.5))
        if not satellites:
            self.streams = [stream for stream in self.streams if stream.message_id not in BY_POSITION]
            self.streams.append(Stream(m.MAVLINK_MSG_ID_ALTITUDE, HEIGHT_RATE_HZ, essential=True))
            self.streams.append(Stream(m.MAVLINK_MSG_ID_GPS_RAW_INT, 5.0, 0.0))  # there may be no receiver
        self._by_id = {s.message_id: s for s in self.streams}
        self.requests = 0
        self.losses = 0  # how often a stream became slow
        self._new_slow: list[Stream] = []

    def restart(self, now_s: float) -> None:
        """Request all streams again: the link came back or the flight controller restarted."""
        for stream in self.streams:
            stream.restart(now_s)
        self._new_slow.clear()

    def expect(self, message_id: int, rate_hz: float) -> None:
        """Set the lowest good rate of a stream that PX4 does not always send."""
        self._by_id[message_id].expected_hz = rate_hz

    def count(self, message_id: int) -> None:
        """A message has arrived."""
        if stream := self._by_id.get(message_id):
            stream.count += 1

    def slow(self) -> tuple[str, ...]:
        """Names of the streams that arrive too slowly or not at all."""
        return tuple(s.name for s in self.streams if s.slow)

    def measured_hz(self, message_id: int) -> float:
        """Rate of a stream in its newest whole window [Hz]; NaN: it is not requested, or not measured yet."""
        stream = self._by_id.get(message_id)
        if stream is None or stream.rate_hz == 0.0 or not stream.is_measured:
            return math.nan
        return stream.measured_hz

    def take_new_slow(self) -> list[Stream]:
        """The streams that have become slow since the last call."""
        new, self._new_slow = self._new_slow, []
        return new

    def _measure(self, now_s: float) -> None:
        for stream in self.streams:
            if stream.measure(now_s):
                self.losses += 1
                self._new_slow.append(stream)

    def request(self, commands: Commands, now_s: float) -> None:
        """Send MAV_CMD_SET_MESSAGE_INTERVAL for the first stream that needs it, one at a time."""
        command = common.MAV_CMD_SET_MESSAGE_INTERVAL
        if commands.busy(command):
            return
        stream = self._next_request(now_s)
        if stream is None:
            return

        def answer(outcome: Outcome) -> None:
            if outcome.result in REFUSALS:
                stream.refuse(now_s)

        interval_us = round(1e6 / stream.rate_hz) if stream.rate_hz > 0.0 else SWITCHED_OFF
        commands.start(command, (stream.message_id, interval_us, 0, 0, 0, 0, 0), answer, now_s)

    def _next_request(self, now_s: float) -> Stream | None:
        self._measure(now_s)
        for stream in self.streams:
            if stream.needs_request and now_s >= stream.due_s:
                stream.due_s = now_s + stream.wait_s
                stream.wait_s = min(2.0 * stream.wait_s, WAIT_MAX_S)
                stream.count, stream.window_start_s, stream.needs_request = 0, now_s, False
                self.requests += 1
                return stream
        return None
