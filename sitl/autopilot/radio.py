"""The pilot's transmitter: what its channels mean by the autopilot's parameters."""

from typing import NamedTuple

from sitl.autopilot.mode_table import Manual
from sitl.autopilot.parameters import Parameters

RC_SLOTS_US = (1082, 1247, 1412, 1577, 1742, 1907)  # middles of the six positions of the mode switch
_SLOT_NAMES = {
    2: "POSCTL", 1: "ALTCTL", 8: "STABILIZED", 4: "AUTO_LOITER", 5: "AUTO_RTL", 0: "MANUAL", 7: "OFFBOARD",
}  # fmt: skip


class Transmitter(NamedTuple):
    """Channels in microseconds, AETR on 1 to 4 (high: right, forward, up, right)."""

    mode_channel: int  # counted from 1
    mode_positions_us: dict[str, int]  # by mode
    neutral_us: tuple[int, ...]  # sticks centred, position mode, nothing switched


def transmitter(parameters: Parameters) -> Transmitter:
    """The transmitter that RC_MAP_FLTMODE and COM_FLTMODE1 to 6 describe."""
    neutral = [1500, 1500, 1500, 1500, 1500, 1000, 1000, 1000]
    channel = int(parameters["RC_MAP_FLTMODE"])
    positions = {
        _SLOT_NAMES[int(parameters[f"COM_FLTMODE{i}"])]: us
        for i, us in enumerate(RC_SLOTS_US, 1)
        if int(parameters[f"COM_FLTMODE{i}"]) in _SLOT_NAMES
    }
    neutral[channel - 1] = positions["POSCTL"]
    return Transmitter(channel, positions, tuple(neutral))


def read_channels(manual: Manual, channels_us: list[int], parameters: Parameters) -> None:
    """Sticks and switches from what the receiver outputs, by RC_MAP_*; a channel that is not there reads 0."""

    def read(name: str) -> int:
        index = int(parameters[name])
        return channels_us[index - 1] if 0 < index <= len(channels_us) else 0

    manual.sticks = tuple(
        min(max((read(f"RC_MAP_{name}") - 1500) / 500.0, -1.0), 1.0) for name in ("ROLL", "PITCH", "THROTTLE", "YAW")
    )
    switch = read("RC_MAP_FLTMODE")
    manual.slot = min(max(int((switch - 1000) / 165.0), 0), 5) + 1 if switch else 0
    manual.kill = read("RC_MAP_KILL_SW") > 1750
    manual.ok = True
