"""A gamepad at the ground computer, by Linux' joystick device (/dev/input/js0): no package is needed.

The device sends an event when an axis moves. A gamepad that is unplugged is gone, which stops the sticks. One whose radio or
battery fails keeps its device, which sends nothing: a stick that is held still sends nothing either, so a deflected stick without
an event for `SILENT_S` stops the sticks, too. A hand on an analogue stick moves it by some counts all the time. Pressed
against its end stop it is still on a gamepad that is well, and is not asked: there a failed radio is not noticed.
"""

import contextlib
import fcntl
import math
import os
import struct
from typing import NamedTuple

from companion.core.config import ConfigError
from companion.remote.sticks import CENTRED, Sticks

EVENT = struct.Struct("=IhBB")  # time [ms], value, type, number
AXIS, INITIAL = 0x02, 0x80  # types of an event
FULL = 32767
SILENT_S = 1.0  # 10 m at 10 m/s; a hand that holds a stick between its ends is seldom still for so long
END_STOP = (
    0.98  # of an axis that a hand presses against its end: the device clips it to one value and has nothing to say
)
GONE = "the gamepad of the ground computer is gone"
READ_MAX = 64 * EVENT.size
READS_MAX = 64  # at a time: a device that never ends must not hold up the sticks
JSIOCGAXES = 0x80016A11  # of linux/joystick.h
DEFAULT_AXES = "0,-1,3,-4"  # of the usual drivers of gamepads with two sticks


class Axis(NamedTuple):
    """A number of the device, and whether its positive direction is the stick's."""

    number: int
    sign: float


class Axes(NamedTuple):
    """The axes of turn, up, right and ahead, in this order."""

    turn: Axis
    up: Axis
    right: Axis
    ahead: Axis


def parse_axes(text: str) -> Axes:
    """Four numbers with signs, as "0,-1,3,-4"; raises `ConfigError`."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 4 or not all(
        part.removeprefix("-").isdecimal() and int(part.removeprefix("-")) < 64 for part in parts
    ):
        raise ConfigError(f'--axes "{text}": must be the four axes turn, up, right, ahead, as "{DEFAULT_AXES}"')
    if len({int(part.removeprefix("-")) for part in parts}) < len(parts):
        raise ConfigError(f'--axes "{text}": one axis would move two sticks')
    return Axes(*(Axis(int(part.removeprefix("-")), -1.0 if part.startswith("-") else 1.0) for part in parts))


def axes_of(file: int) -> int:
    """Number of axes of an open joystick device; OSError for anything else."""
    count = bytearray(1)
    fcntl.ioctl(file, JSIOCGAXES, count)
    return count[0]


class Gamepad:
    """The newest position of every axis; call it for the sticks, or for why there are none."""

    def __init__(self, device: str, axes: Axes) -> None:
        self._axes = axes
        self._values: dict[int, float] = {}
        self._heard_s = -math.inf  # the newest event
        self._file: int | None = None
        try:
            self._file = os.open(device, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            reason = os.strerror(error.errno).lower() if error.errno else str(error)
            raise ConfigError(f"--gamepad {device}: {reason}") from None
        if problem := self._problem(axes):
            self.close()
            raise ConfigError(f"--gamepad {device}: {problem}")

    def _problem(self, axes: Axes) -> str:
        """Why the device is not the gamepad of these axes; "" when it is."""
        assert self._file is not None
        try:
            count = axes_of(self._file)
        except OSError:
            return "not a joystick device, such as /dev/input/js0"
        missing = [axis.number for axis in axes if axis.number >= count]
        return f"has {count} axes, none with number {missing[0]} (--axes)" if missing else ""

    def __call__(self, now_s: float) -> Sticks | str:
        """Read what has arrived; the sticks, or one line on why there are none."""
        self._read(now_s)
        if self._file is None:
            return GONE
        sticks = Sticks(
            **{name: axis.sign * self._values.get(axis.number, 0.0) for name, axis in self._axes._asdict().items()}
        )
        if now_s - self._heard_s > SILENT_S and self._must_be_heard(sticks):
            return f"a stick is deflected, and the gamepad of the ground computer has sent nothing for {SILENT_S:g} s"
        return sticks

    def _must_be_heard(self, sticks: Sticks) -> bool:
        return any(CENTRED <= abs(stick) < END_STOP for stick in sticks)

    def _read(self, now_s: float) -> None:
        for _ in range(READS_MAX):
            if self._file is None:
                break
            try:
                data = os.read(self._file, READ_MAX)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.close()
                break
            self.take(data)
            self._heard_s = now_s

    def take(self, data: bytes) -> None:
        """Take events of the device; an incomplete one is dropped."""
        whole = len(data) - len(data) % EVENT.size
        for _, value, kind, number in EVENT.iter_unpack(data[:whole]):
            if kind & ~INITIAL == AXIS:
                self._values[number] = min(max(value / FULL, -1.0), 1.0)

    def close(self) -> None:
        """Release the device."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None
