"""The mission switch on the pilot's RC.

A receiver that loses its transmitter may set preset channels and report no loss. When the preset of the switch is "off",
the end of the loss looks like a movement from off to on. Presets stand still: a movement to on counts as that of a
person only if a stick moved while the switch was off.
"""

import math

from companion.core.messages import FcuStatus
from companion.mission.plan import RcSwitch

SETTLE_S = 0.25  # a position counts after this long; one corrupted frame must not start or end a mission
OFF_S = 1.0  # least time off before a movement to on; a weak link alternates faster between presets and the transmitter
STICKS = 4  # the first channels, those of the sticks by PX4's defaults; a later one may carry the link's quality
MOVED_US = 10  # the pulses of an analogue receiver vary by less
MOVES = 2  # a stick goes and comes back; one preset that replaces another is one step
NOT_A_PERSON = (
    f"as after a loss of the transmitter: leave the switch off for {OFF_S:g} s, move a stick "
    f"(channels 1 to {STICKS}), then turn it on"
)


class SwitchReader:
    """Position of the switch with hysteresis: between the two ranges, or without RC, it keeps its position."""

    def __init__(self, switch: RcSwitch) -> None:
        self._switch = switch
        self._candidate: bool | None = None
        self._since_s = 0.0
        self.on: bool | None = None  # None until a position was seen
        self.turned_on_s: float | None = None  # when it last went from off to on
        self.doubt = ""  # why that movement may not be a person's
        self._off_since_s = self._off_until_s = -math.inf  # the newest time in which every frame said "off"
        self._off_last = False  # in the newest frame
        self._sticks: tuple[int, ...] = ()
        self._moves = 0  # of the sticks in that time

    def read(self, status: FcuStatus, now_s: float) -> None:
        """Take the channels of a status message."""
        position = self._position(status)
        self._note_off(status, position is False, now_s)
        if position is None or position != self._candidate:
            self._candidate, self._since_s = position, now_s
            return
        if position != self.on and now_s - self._since_s >= SETTLE_S:
            if position and self.on is False:
                self.turned_on_s, self.doubt = now_s, self._doubt()
            self.on = position

    def _note_off(self, status: FcuStatus, off: bool, now_s: float) -> None:
        """Follow the sticks while the switch is off."""
        sticks = status.rc_channels_us[:STICKS]
        if off and not self._off_last:
            self._off_since_s, self._sticks, self._moves = now_s, sticks, 0
        elif off and self._moved(sticks):
            self._sticks = sticks
            self._moves += 1
        if off:
            self._off_until_s = now_s
        self._off_last = off

    def _moved(self, sticks: tuple[int, ...]) -> bool:
        pairs = enumerate(zip(sticks, self._sticks, strict=False), start=1)
        return any(abs(a - b) > MOVED_US for channel, (a, b) in pairs if channel != self._switch.channel)

    def _doubt(self) -> str:
        if self._off_until_s - self._off_since_s < OFF_S:
            return f"the switch was off for less than {OFF_S:g} s, {NOT_A_PERSON}"
        return "" if self._moves >= MOVES else f"no stick moved while the switch was off, {NOT_A_PERSON}"

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
