"""Finds setpoints of another sender among those that PX4 follows, from PX4's own report.

PX4 reports each attitude setpoint that it takes in ATTITUDE_TARGET, with the time at which it took it (`echo` here). In
offboard that is a copy of a setpoint that it received; one that this stack has not sent is foreign. A sender on another
port of PX4 is seen in no other way.

Two rules, because an echo that is not ours has an innocent reason, too: PX4 has left offboard and follows its own
setpoints, which a late report of the mode does not show yet.

* Interleaved: a foreign echo between two of our own. PX4 followed us before and after, so it was in offboard. `FOREIGN`
  of them within `WINDOW_S` are another sender. In a flight with one sender there is none, whatever the delays, losses
  and the order of arrival are, because echoes are sorted by PX4's clock. The limit allows for the few that PX4's
  modules publish while its mode changes.
* Replaced: only foreign echoes arrive, `FOREIGN_ALONE` of them, each from before a report that PX4 is in offboard. While
  this stack sends nothing, those count that arrive `STREAM_S` after its last setpoint and after offboard began: PX4 has
  left offboard by then, if no other stream keeps it there.

Of setpoints that come at 20 Hz beside our 50 Hz PX4 follows each for 0 to 20 ms, and at `ECHO_RATE_HZ` it reports at
least every second one, in the worst phase of the two senders.
"""

import math
from bisect import insort
from collections import deque
from typing import NamedTuple

from companion.core.trajectory_messages import Quat
from companion.fcu.link.decoded import AttitudeTarget

ECHO_RATE_HZ = 100.0  # requested; PX4 reports no setpoint twice, so that our 50 Hz alone give 50 Hz
ECHO_EXPECTED_HZ = 25.0  # fewer while our setpoints are followed: another sender may stay unseen

WINDOW_S = 5.0  # of PX4's clock: setpoints at 1 Hz are found, too
FOREIGN = 3  # interleaved echoes in a window
FOREIGN_ALONE = 5
SETTLING_S = 0.3  # after PX4 has begun to follow us: its modules change over one after the other
STREAM_S = 1.0  # a younger stream may belong to a process that has restarted; PX4 may still follow the earlier one's
MODE_LAG_S = 0.2  # by which a report of the mode may be overtaken, or be older than an echo that arrived before it
DOUBT = 3  # foreign echoes after our last: PX4 has left offboard, or another has replaced us; its mode is requested

MEMORY_S = 10.0  # our setpoints are remembered for this long: a link that stalls delivers echoes late
LAG_MAX_S = 2.0  # age of a setpoint when PX4 takes it: COM_OF_LOSS_T and the delay of the link
# Error of the time at which PX4 took it. A computer that is too busy synchronises its clock badly, and a simulation that
# stands still for a moment has a clock that is behind. A setpoint is recognised by its five numbers, not by its time.
CLOCKS_S = 1.0
RECENT_S = 0.5  # without a setpoint this young PX4 may have left offboard already
TOLERANCE = 1e-4  # of thrust and of each number of the attitude; the wire has float32


class _Sent(NamedTuple):
    at_s: float
    q: Quat  # NED, FRD
    thrust: float


class _Echo(NamedTuple):
    boot_s: float  # when PX4 took the setpoint, by its own clock: the order of echoes
    arrival_s: float


class EchoWatch:
    """Compares PX4's echoes with the setpoints that left."""

    def __init__(self) -> None:
        self._sent: deque[_Sent] = deque()
        self._stream_since_s = math.inf
        self._offboard_since_s = math.inf  # the first of the reports in a row that PX4 is in offboard
        self._in_offboard_s = -math.inf  # the newest of them
        self.reset()

    def reset(self) -> None:
        """PX4 is not in offboard, or has restarted: its earlier echoes say nothing about the next."""
        self._foreign: list[_Echo] = []
        self._first_own_s = math.inf  # boot time
        self._last_own_s = self._newest_s = -math.inf

    def note_sent(self, q: Quat, thrust: float, now_s: float) -> None:
        """Remember a setpoint that left."""
        sent = self._sent
        if not sent or now_s - sent[-1].at_s > RECENT_S:
            self._stream_since_s = now_s
            self.reset()
        sent.append(_Sent(now_s, q, thrust))
        while now_s - sent[0].at_s > MEMORY_S:
            sent.popleft()

    def note_mode(self, offboard: bool, now_s: float) -> None:
        """Take a report of PX4's mode."""
        if offboard:
            self._offboard_since_s = min(self._offboard_since_s, now_s)
            self._in_offboard_s = now_s
        else:
            self._offboard_since_s = math.inf
            self.reset()

    def is_streaming(self, now_s: float) -> bool:
        """Our setpoints have left for a while without a pause."""
        return bool(self._sent) and now_s - self._sent[-1].at_s <= RECENT_S and now_s - self._stream_since_s >= STREAM_S

    @property
    def doubtful(self) -> bool:
        """Only foreign echoes arrive; a fresh report of the mode decides whether PX4 is still in offboard."""
        return sum(1 for echo in self._foreign if echo.boot_s > self._last_own_s) >= DOUBT

    def take(self, echo: AttitudeTarget, offboard: bool, taken_s: float | None, now_s: float) -> bool:
        """Take an echo; True when PX4 follows setpoints of another sender.

        offboard: PX4 reports that it is armed and in that mode; taken_s: companion time at which PX4 took the setpoint,
        None where it is not known.
        """
        if not offboard:
            self.reset()
            return False
        boot_s = echo.time_boot_ms * 1e-3
        self._newest_s = max(self._newest_s, boot_s)
        if self._is_own(echo, taken_s):
            self._first_own_s = min(self._first_own_s, boot_s)
            self._last_own_s = max(self._last_own_s, boot_s)
        else:
            insort(self._foreign, _Echo(boot_s, now_s))
        while self._foreign and self._foreign[0].boot_s < self._newest_s - WINDOW_S:
            self._foreign.pop(0)
        return self._is_interleaved() or self._is_replaced(now_s)

    def _is_interleaved(self) -> bool:
        begin_s, end_s = self._first_own_s + SETTLING_S, self._last_own_s
        return sum(1 for echo in self._foreign if begin_s < echo.boot_s < end_s) >= FOREIGN

    def _is_replaced(self, now_s: float) -> bool:
        last_s = self._sent[-1].at_s if self._sent else -math.inf
        sending = now_s - last_s <= RECENT_S
        begin_s = (self._stream_since_s if sending else max(last_s, self._offboard_since_s)) + STREAM_S
        end_s = self._in_offboard_s - MODE_LAG_S
        alone = (echo for echo in self._foreign if echo.boot_s > self._last_own_s)
        return sum(1 for echo in alone if begin_s < echo.arrival_s < end_s) >= FOREIGN_ALONE

    def _is_own(self, echo: AttitudeTarget, taken_s: float | None) -> bool:
        newest_s = math.inf if taken_s is None else taken_s + CLOCKS_S
        oldest_s = -math.inf if taken_s is None else taken_s - LAG_MAX_S
        for sent in reversed(self._sent):
            if sent.at_s > newest_s:
                continue
            if sent.at_s < oldest_s:
                return False
            if _matches(echo, sent):
                return True
        return False


def _matches(echo: AttitudeTarget, sent: _Sent) -> bool:
    """True when an echoed attitude (or its negative, the same rotation) and thrust are those of a setpoint."""
    if not abs(echo.thrust - sent.thrust) <= TOLERANCE:
        return False
    pairs = list(zip(echo.q, sent.q, strict=True))
    return all(abs(e - s) <= TOLERANCE for e, s in pairs) or all(abs(e + s) <= TOLERANCE for e, s in pairs)
