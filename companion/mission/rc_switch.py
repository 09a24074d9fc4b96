"""The mission switch on the pilot's RC."""

from companion.core.messages import FcuStatus
from companion.mission.plan import RcSwitch

SETTLE_S = 0.25  # a position counts after this long; one corrupted frame must not start or end a mission


class SwitchReader:
    """Position of the switch with hysteresis: between the two ranges, or without RC, it keeps its position."""

    def __init__(self, switch: RcSwitch) -> None:
        self._switch = switch
        self._candidate: bool | None = None
        self._since_s = 0.0
        self.on: bool | None = None  # None until a position was seen
        self.turned_on_s: float | None = None  # when it last went from off to on

    def read(self, status: FcuStatus, now_s: float) -> None:
        """Take the channels of a status message."""
        position = self._position(status)
        if position is None or position != self._candidate:
            self._candidate, self._since_s = position, now_s
            return
        if position != self.on and now_s - self._since_s >= SETTLE_S:
            if position and self.on is False:
                self.turned_on_s = now_s
            self.on = position

    def _position(self, status: FcuStatus) -> bool | None:
        index = self._switch.channel - 1
        if not status.rc_ok or index >= len(status.rc_channels_us):
            return None
        pulse_us = status.rc_channels_us[index]
        if self._switch.on_us[0] <= pulse_us <= self._switch.on_us[1]:
            return True
        if self._switch.off_us[0] <= pulse_us <= self._switch.off_us[1]:
            return False
        return None
