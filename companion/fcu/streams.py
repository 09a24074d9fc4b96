"""Keeps the flight controller's streams at their rates: asks, measures, asks again, and tells of those that fall short.

Rates are lost when the flight controller restarts or another station changes them, so each stream is counted and
asked for anew when it falls short. One request is on its way at a time, because an ack does not say which
message it is for; the wait between two requests for the same stream doubles, because some streams have no
source (no receiver bound, no battery monitor) and never come.
"""

from pymavlink.dialects.v20 import common

from companion.fcu.commands import Commands
from companion.fcu.link.codec import LAYOUTS
from companion.fcu.link.framing import CURRENT_MODE
from companion.fcu.modes import RESULT_TEXTS

SHORT_FRACTION = 0.6  # of the rate asked for, below which a stream counts as lost
WINDOW_S = 2.0  # over which a rate is measured, at least
WINDOW_MESSAGES = 4  # messages expected in a window, at least
WAIT_FIRST_S = 2.0  # between two requests for one stream
WAIT_MAX_S = 16.0
WAIT_REFUSED_S = 60.0  # after the flight controller said no
REFUSALS = tuple(RESULT_TEXTS[result] for result in (2, 3, 4))  # denied, unsupported, failed


class Stream:
    """One message the flight controller is asked to send."""

    def __init__(
        self, message_id: int, rate_hz: float, expected_hz: float | None = None, essential: bool = False
    ) -> None:
        """expected_hz: what must come at least, where PX4 sends on change and not at the rate asked for.

        essential: nothing flies without it.
        """
        self.essential = essential
        self.message_id = message_id
        self.name = LAYOUTS[message_id].name
        self.rate_hz = rate_hz
        self.expected_hz = SHORT_FRACTION * rate_hz if expected_hz is None else expected_hz
        self.window_s = max(WINDOW_S, WINDOW_MESSAGES / rate_hz)
        self.restart(0.0)

    def restart(self, now_s: float) -> None:
        """Ask at the next opportunity."""
        self.count = 0
        self.window_start_s = now_s
        self.measured_hz = 0.0
        self.due_s = now_s
        self.wait_s = WAIT_FIRST_S
        self.wanted = True
        self.short = False  # measured, and found too slow

    def refuse(self, now_s: float) -> None:
        """The flight controller said no: ask rarely."""
        self.due_s = now_s + WAIT_REFUSED_S

    def measure(self, now_s: float) -> bool:
        """Close the window when it is over, and judge the rate; True when it has fallen short just now."""
        elapsed_s = now_s - self.window_start_s
        if elapsed_s < self.window_s:
            return False
        self.measured_hz = self.count / elapsed_s
        self.count, self.window_start_s = 0, now_s
        was_short, self.short = self.short, self.measured_hz < self.expected_hz
        self.wanted = self.short
        if not self.wanted:
            self.wait_s = WAIT_FIRST_S
        return self.short and not was_short

    def words(self) -> str:
        """What is wrong with it."""
        if self.measured_hz == 0.0:
            return f"{self.name} does not come, asked for at {self.rate_hz:g} Hz"
        return f"{self.name} comes at {self.measured_hz:.1f} Hz instead of {self.rate_hz:g}"


class Streams:
    """All streams of one vehicle."""

    def __init__(self, attitude_rate_hz: float, position_rate_hz: float) -> None:
        m = common
        self.streams = [
            Stream(m.MAVLINK_MSG_ID_ATTITUDE_QUATERNION, attitude_rate_hz, essential=True),
            Stream(m.MAVLINK_MSG_ID_LOCAL_POSITION_NED, position_rate_hz, essential=True),
            Stream(CURRENT_MODE, 10.0, 0.3),  # sent on change: a heartbeat may be a second late with the mode
            Stream(m.MAVLINK_MSG_ID_EXTENDED_SYS_STATE, 5.0, 0.6),
            Stream(m.MAVLINK_MSG_ID_RC_CHANNELS, 5.0),
            Stream(m.MAVLINK_MSG_ID_SYS_STATUS, 2.0, 0.3),
            Stream(m.MAVLINK_MSG_ID_BATTERY_STATUS, 2.0, 0.3),
            Stream(m.MAVLINK_MSG_ID_GPS_RAW_INT, 2.0, 0.3),
            Stream(m.MAVLINK_MSG_ID_HOME_POSITION, 1.0, 0.2),
        ]
        self._by_id = {s.message_id: s for s in self.streams}
        self.requests = 0
        self.losses = 0  # times a stream fell short
        self._news: list[Stream] = []

    def restart(self, now_s: float) -> None:
        """Ask for everything anew: the link came back or the flight controller restarted."""
        for stream in self.streams:
            stream.restart(now_s)
        self._news.clear()

    def count(self, message_id: int) -> None:
        """A message came."""
        if stream := self._by_id.get(message_id):
            stream.count += 1

    def short(self) -> tuple[str, ...]:
        """Names of the streams that come too slowly or not at all."""
        return tuple(s.name for s in self.streams if s.short)

    def news(self) -> list[Stream]:
        """The streams that have fallen short since the last call."""
        news, self._news = self._news, []
        return news

    def _measure(self, now_s: float) -> None:
        for stream in self.streams:
            if stream.measure(now_s):
                self.losses += 1
                self._news.append(stream)

    def ask(self, commands: Commands, now_s: float) -> None:
        """Send MAV_CMD_SET_MESSAGE_INTERVAL for the stream that needs it most, one at a time."""
        command = common.MAV_CMD_SET_MESSAGE_INTERVAL
        if commands.busy(command):
            return
        stream = self._next_request(now_s)
        if stream is None:
            return

        def answer(accepted: bool, reason: str) -> None:
            if not accepted and reason.startswith(REFUSALS):
                stream.refuse(now_s)

        interval_us = round(1e6 / stream.rate_hz)
        commands.start(command, (stream.message_id, interval_us, 0, 0, 0, 0, 0), answer, now_s)

    def _next_request(self, now_s: float) -> Stream | None:
        self._measure(now_s)
        for stream in self.streams:
            if stream.wanted and now_s >= stream.due_s:
                stream.due_s = now_s + stream.wait_s
                stream.wait_s = min(2.0 * stream.wait_s, WAIT_MAX_S)
                stream.count, stream.window_start_s, stream.wanted = 0, now_s, False
                self.requests += 1
                return stream
        return None
