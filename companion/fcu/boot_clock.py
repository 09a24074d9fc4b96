"""Checks the flight controller's boot time in its messages: in order, restarted, or old.

After a restart every message has a lower boot time; a replayed or repeated message stands between correct ones. A lower
boot time therefore counts as a restart when several messages in a row agree on it for a while. Every other
message that is not newer than its predecessor of the same kind is old.
"""

import math
from enum import Enum

from pymavlink.dialects.v20 import common

BACKWARD_MS = 1000  # a boot time lower by more may be a restart, by less it is a late datagram
FORWARD_MS = 10_000  # a boot time ahead by more, against the synchronised clock, is wrong
RESTART_MESSAGES = 3
RESTART_S = 0.04  # between the first and the last of them: two periods of a fast stream
OLD_WINDOW_S = 2.0
# Streams that nothing is flown by. Old messages of these alone are wrong stamps, not a second flight controller.
ALONE = (common.MAVLINK_MSG_ID_HIGHRES_IMU,)
OLD_MAX = 20  # so many old messages in a window are not explained by a router that repeats datagrams


class BootTime(Enum):
    """What the boot time of a message says about it."""

    NEW = "new"
    OLD = "old"  # to be dropped
    RESTART = "restart"  # the flight controller has restarted, this message is new


class BootClock:
    """Checks ``time_boot_ms`` of the messages that have one."""

    def __init__(self) -> None:
        self.old = 0  # repeated or late messages since the start
        self.reset()
        self._window_s = -math.inf
        self._window_old = 0

    def reset(self) -> None:
        """The flight controller restarted."""
        self._newest_ms = -math.inf
        self._last_ms: dict[int, float] = {}  # of each kind of message
        self._suspects = 0
        self._suspect_s = 0.0

    def check(self, kind: int, boot_ms: float, now_s: float, plausible: bool = True, future: bool = False) -> BootTime:
        """Take the boot time of a message.

        kind: message id; plausible: the synchronised clock does not contradict this time; future: by that clock the
        message was made after its arrival. Such a message is no measure for those that follow, which would be old, or
        a restart, by comparison.
        """
        if not plausible and boot_ms > self._newest_ms + FORWARD_MS:
            return self._note_old(kind, now_s)
        if future and boot_ms > self._newest_ms:
            return BootTime.NEW
        if boot_ms > self._last_ms.get(kind, -1) and boot_ms >= self._newest_ms - BACKWARD_MS:
            self._last_ms[kind] = boot_ms
            if boot_ms > self._newest_ms:
                self._newest_ms = boot_ms
            self._suspects = 0
            return BootTime.NEW
        if boot_ms < self._newest_ms - BACKWARD_MS:
            if self._suspects == 0:
                self._suspect_s = now_s
            self._suspects += 1
            if self._suspects >= RESTART_MESSAGES and now_s - self._suspect_s >= RESTART_S:
                self.reset()
                self._last_ms[kind] = self._newest_ms = boot_ms
                return BootTime.RESTART
        return self._note_old(kind, now_s)

    def _note_old(self, kind: int, now_s: float) -> BootTime:
        self.old += 1
        if kind in ALONE:
            return BootTime.OLD
        if now_s - self._window_s > OLD_WINDOW_S:
            self._window_s, self._window_old = now_s, 0
        self._window_old += 1
        return BootTime.OLD

    def two_senders(self, now_s: float) -> bool:
        """True when so many messages are old that a second flight controller must use the same id."""
        return self._window_old >= OLD_MAX and now_s - self._window_s <= 2 * OLD_WINDOW_S
