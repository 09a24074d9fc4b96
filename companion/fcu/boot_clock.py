"""The flight controller's boot time as its messages tell it: in order, gone back for good, or old.

A restart shows in every message that follows; a replayed or repeated message stands between others that are right. So a
boot time that falls counts as a restart when several messages in a row agree on it for a while, and everything else
that is not newer than its predecessor of the same kind is old.
"""

import math

BACKWARD_MS = 1000  # boot time that falls by more may be a restart, by less it is a late datagram
FORWARD_MS = 10_000  # a leap ahead that the synchronised clock denies
RESTART_MESSAGES = 3
RESTART_S = 0.04  # between the first and the last of them: two periods of a fast stream
OLD_WINDOW_S = 2.0
OLD_MAX = 20  # old messages in a window that a careless router does not explain


class BootClock:
    """Judges ``time_boot_ms`` of the messages that have one."""

    def __init__(self) -> None:
        self.old = 0  # messages that came again or too late, since the start
        self.reset()
        self._window_s = -math.inf
        self._window_old = 0

    def reset(self) -> None:
        """The flight controller restarted."""
        self._newest_ms = -math.inf
        self._last_ms: dict[int, int] = {}  # of each kind of message
        self._suspects = 0
        self._suspect_s = 0.0

    def judge(self, kind: int, boot_ms: int, now_s: float, plausible: bool = True) -> str:
        """ "new", "old" (to be dropped), or "restart": the flight controller has begun anew, this message is new.

        plausible: nothing is known of its clock that speaks against this time.
        """
        if not plausible and boot_ms > self._newest_ms + FORWARD_MS:
            return self._note_old(now_s)
        if boot_ms > self._last_ms.get(kind, -1) and boot_ms >= self._newest_ms - BACKWARD_MS:
            self._last_ms[kind] = boot_ms
            if boot_ms > self._newest_ms:
                self._newest_ms = boot_ms
            self._suspects = 0
            return "new"
        if boot_ms < self._newest_ms - BACKWARD_MS:
            if self._suspects == 0:
                self._suspect_s = now_s
            self._suspects += 1
            if self._suspects >= RESTART_MESSAGES and now_s - self._suspect_s >= RESTART_S:
                self.reset()
                self._last_ms[kind] = self._newest_ms = boot_ms
                return "restart"
        return self._note_old(now_s)

    def _note_old(self, now_s: float) -> str:
        self.old += 1
        if now_s - self._window_s > OLD_WINDOW_S:
            self._window_s, self._window_old = now_s, 0
        self._window_old += 1
        return "old"

    def two_senders(self, now_s: float) -> bool:
        """True when so much is old that a second flight controller with the same id must be speaking."""
        return self._window_old >= OLD_MAX and now_s - self._window_s <= 2 * OLD_WINDOW_S
