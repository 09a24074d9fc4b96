"""RC: the channels that the autopilot's parameters describe, and the sticks and switches read from them."""

from dataclasses import dataclass, field
from typing import NamedTuple

from companion.core.enums import FcuMode
from sitl.autopilot.modes import MODE_OF_SLOT, FlightMode
from sitl.autopilot.parameters import Parameters

RC_SLOTS_US = (1082, 1247, 1412, 1577, 1742, 1907)  # middles of the six positions of the mode switch
SWITCH_MODES = frozenset(
    (
        FcuMode.POSCTL,
        FcuMode.ALTCTL,
        FcuMode.STABILIZED,
        FcuMode.AUTO_LOITER,
        FcuMode.AUTO_RTL,
        FcuMode.MANUAL,
        FcuMode.OFFBOARD,
    )
)  # the modes that a simulated pilot chooses by the switch
Sticks = tuple[float, float, float, float]  # right, forward, up, right-turn in -1..1
STICK_FILTER_S = 0.1  # time constant of the low pass on the speed of a stick


class RcSetup(NamedTuple):
    """Channels in microseconds, AETR on 1 to 4 (high: right, forward, up, right)."""

    mode_channel: int  # counted from 1
    mode_positions_us: dict[FlightMode, int]  # by mode
    neutral_us: tuple[int, ...]  # sticks centred, position mode, no other switch on


def rc_setup(parameters: Parameters) -> RcSetup:
    """The channels that RC_MAP_FLTMODE and COM_FLTMODE1 to 6 describe."""
    neutral = [1500, 1500, 1500, 1500, 1500, 1000, 1000, 1000]
    channel = parameters.integer("RC_MAP_FLTMODE")
    positions: dict[FlightMode, int] = {}
    for i, position_us in enumerate(RC_SLOTS_US, 1):
        mode = MODE_OF_SLOT.get(parameters.integer(f"COM_FLTMODE{i}"))
        if mode in SWITCH_MODES:
            positions[mode] = position_us
    neutral[channel - 1] = positions[FcuMode.POSCTL]
    return RcSetup(channel, positions, tuple(neutral))


@dataclass
class ManualControl:
    """Sticks after mapping, and the switches; ``ok``: RC is received."""

    ok: bool = False
    sticks: Sticks = (0.0, 0.0, 0.0, 0.0)
    slot: int = 0  # position of the mode switch 1..6; 0: none
    kill: bool = False
    _slopes: list[float] = field(default_factory=lambda: [0.0] * 4)
    _last: tuple[float, ...] | None = None

    def moving(self, dt: float, percent_s: float) -> bool:
        """Whether a stick moves faster than COM_RC_STICK_OV (difference, low-passed over `STICK_FILTER_S`)."""
        if not self.ok:
            self._slopes, self._last = [0.0] * 4, None
            return False
        if self._last is not None:
            alpha = dt / (dt + STICK_FILTER_S)
            for i in range(4):
                self._slopes[i] += alpha * ((self.sticks[i] - self._last[i]) / dt - self._slopes[i])
        self._last = self.sticks
        return any(abs(s) > 0.01 * percent_s for s in self._slopes)


def read_channels(manual: ManualControl, channels_us: list[int], parameters: Parameters) -> None:
    """Sticks and switches from the output of the RC receiver, by RC_MAP_*; a channel that does not exist reads 0."""

    def read(name: str) -> int:
        index = parameters.integer(name)
        return channels_us[index - 1] if 0 < index <= len(channels_us) else 0

    def stick(name: str) -> float:
        return min(max((read(name) - 1500) / 500.0, -1.0), 1.0)

    manual.sticks = stick("RC_MAP_ROLL"), stick("RC_MAP_PITCH"), stick("RC_MAP_THROTTLE"), stick("RC_MAP_YAW")
    switch = read("RC_MAP_FLTMODE")
    manual.slot = min(max(int((switch - 1000) / 165.0), 0), 5) + 1 if switch else 0
    manual.kill = read("RC_MAP_KILL_SW") > 1750
    manual.ok = True
