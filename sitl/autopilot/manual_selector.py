"""PX4's choice among several sources of sticks: the RC receiver and the MAVLink links with a joystick.

It follows `ManualControlSelector` of PX4 1.17: COM_RC_IN_MODE chooses, and a source that was not heard for COM_RC_LOSS_T
is lost. The switches of the transmitter count only while RC is the source.
"""

import math
from enum import IntEnum

from sitl.autopilot.parameters import Parameters
from sitl.autopilot.rc import ManualControl, Sticks, read_channels

NO_SOURCE, RC, FIRST_LINK = 0, 1, 2  # numbers of the sources; MAVLink instance n is FIRST_LINK + n
LINKS_MAX = 6  # MAVLink instances that are sources of their own
CENTRED: Sticks = (0.0, 0.0, 0.0, 0.0)


class InMode(IntEnum):
    """COM_RC_IN_MODE."""

    RC_ONLY = 0
    MAVLINK_ONLY = 1
    FALLBACK = 2  # any source; another one only when it is lost
    KEEP_FIRST = 3  # the first source since power-on
    NONE = 4
    RC_THEN_LINKS_UP = 5  # the source with the highest priority, named from high to low
    LINKS_UP_THEN_RC = 6
    RC_THEN_LINKS_DOWN = 7
    LINKS_DOWN_THEN_RC = 8


class ManualSelector:
    """Keeps the sticks of the chosen source in ``manual``; `update` runs with the commander."""

    def __init__(self, manual: ManualControl, parameters: Parameters) -> None:
        self._manual, self._get = manual, parameters
        self.source = NO_SOURCE
        self._first = NO_SOURCE
        self._heard_s = -math.inf  # when the chosen source was last heard
        self._joysticks: dict[int, Sticks] = {}  # new samples by source

    def put_joystick(self, instance: int, sticks: Sticks) -> None:
        """Take MANUAL_CONTROL of the MAVLink link with this instance number."""
        self._joysticks[FIRST_LINK + min(max(instance, 0), LINKS_MAX - 1)] = sticks

    def lose_rc(self, now_s: float) -> None:
        """The RC receiver was heard until now."""
        if self.source == RC:
            self._heard_s = now_s

    def update(self, now_s: float, channels_us: list[int] | None) -> None:
        """Choose the source; channels_us: the output of the RC receiver, None while RC is lost."""
        manual, in_mode = self._manual, self._get.integer("COM_RC_IN_MODE")
        if now_s - self._heard_s >= self._get["COM_RC_LOSS_T"] or not self._matches(self.source, in_mode):
            self.source, manual.ok, manual.sticks = NO_SOURCE, False, CENTRED
        if channels_us is not None and self._choose(RC, now_s, in_mode):
            read_channels(manual, channels_us, self._get)
        joysticks, self._joysticks = self._joysticks, {}
        for source in sorted(joysticks):
            if self._choose(source, now_s, in_mode):
                manual.ok, manual.sticks, manual.slot, manual.kill = True, joysticks[source], 0, False

    def _choose(self, source: int, now_s: float, in_mode: int) -> bool:
        if not self._matches(source, in_mode):
            return False
        self.source, self._heard_s = source, now_s
        self._first = self._first or source
        return True

    def _matches(self, source: int, in_mode: int) -> bool:
        """Whether a new sample of a source may be taken while ``self.source`` is chosen."""
        chosen = self.source
        free = chosen in (NO_SOURCE, source)
        match in_mode:
            case InMode.RC_ONLY:
                return source == RC
            case InMode.MAVLINK_ONLY:
                return source != RC and free
            case InMode.FALLBACK:
                return free
            case InMode.KEEP_FIRST:
                return self._first in (NO_SOURCE, source)
            case InMode.RC_THEN_LINKS_UP:
                return free or source < chosen
            case InMode.LINKS_UP_THEN_RC:
                return free or (source != RC and (chosen == RC or source < chosen))
            case InMode.RC_THEN_LINKS_DOWN:
                return free or source == RC or (chosen != RC and source > chosen)
            case InMode.LINKS_DOWN_THEN_RC:
                return free or source > chosen
        return False
