"""Faults that a trainer chooses for a flight: KIND@START, KIND@START-END, with =VALUE where the kind has a size."""

import math
import re
from enum import StrEnum
from typing import NamedTuple

from companion.core.errors import UserError
from companion.core.suggestions import did_you_mean, listed
from sitl.teleop.sticks import Air, Sticks

FORM = re.compile(r"([a-z_]+)@([0-9.]+)(?:-([0-9.]+))?(?:=([-+0-9.e]+))?")


class FaultKind(StrEnum):
    """What fails."""

    THRUST_LOSS = "thrust_loss"
    TORQUE_ROLL = "torque_roll"
    TORQUE_PITCH = "torque_pitch"
    TORQUE_YAW = "torque_yaw"
    STICKS_LOST = "sticks_lost"
    STICKS_HELD = "sticks_held"


# Of those kinds that have one: (smallest, largest, unit).
SIZES: dict[FaultKind, tuple[float, float, str]] = {
    FaultKind.THRUST_LOSS: (0.0, 1.0, "of the thrust"),
    FaultKind.TORQUE_ROLL: (-1.0, 1.0, "N m"),
    FaultKind.TORQUE_PITCH: (-1.0, 1.0, "N m"),
    FaultKind.TORQUE_YAW: (-1.0, 1.0, "N m"),
}
TORQUES = (FaultKind.TORQUE_ROLL, FaultKind.TORQUE_PITCH, FaultKind.TORQUE_YAW)


class TrainingFault(NamedTuple):
    """One fault with its time."""

    kind: FaultKind
    start_s: float
    end_s: float
    size: float

    def acts(self, now_s: float) -> bool:
        """Whether it acts at a time."""
        return self.start_s <= now_s < self.end_s


def parse_fault(text: str) -> TrainingFault:
    """A fault as it is written on the command line; raises `UserError` with one line."""
    found = FORM.fullmatch(text.strip())
    if found is None:
        raise UserError(f"--fault {text}: write KIND@START[-END][=VALUE], such as thrust_loss@10-12=0.3")
    name, start, end, value = found.groups()
    try:
        kind = FaultKind(name)
    except ValueError:
        raise UserError(f"--fault {text}: unknown kind{did_you_mean(name, FaultKind) or listed(FaultKind)}") from None
    try:
        start_s, end_s = float(start), float(end) if end else math.inf
        size = float(value) if value else math.nan
    except ValueError:
        raise UserError(f"--fault {text}: a time or the value is not a number") from None
    if end_s <= start_s:
        raise UserError(f"--fault {text}: ends before it starts")
    if kind not in SIZES:
        if value:
            raise UserError(f"--fault {text}: {kind} has no value")
        return TrainingFault(kind, start_s, end_s, 0.0)
    low, high, unit = SIZES[kind]
    if not low <= size <= high:
        raise UserError(f"--fault {text}: needs a value (allowed: {low:g} to {high:g} {unit})")
    return TrainingFault(kind, start_s, end_s, size)


class Faults:
    """All faults of a flight: what they make of the sticks and of the air."""

    def __init__(self, faults: list[TrainingFault]) -> None:
        self._faults = faults
        self._held: Sticks | None = None

    def sticks(self, now_s: float, given: Sticks | None) -> Sticks | None:
        """The sticks that reach the vehicle; None: lost."""
        acting = {fault.kind for fault in self._faults if fault.acts(now_s)}
        if FaultKind.STICKS_LOST in acting:
            return None
        if FaultKind.STICKS_HELD not in acting:
            self._held = given
        return self._held

    def air(self, now_s: float, wind_W: tuple[float, float, float]) -> Air:
        """Wind, thrust and torques with the faults that act."""
        factor, torque = 1.0, [0.0, 0.0, 0.0]
        for fault in self._faults:
            if fault.acts(now_s):
                if fault.kind is FaultKind.THRUST_LOSS:
                    factor *= 1.0 - fault.size
                elif fault.kind in TORQUES:
                    torque[TORQUES.index(fault.kind)] += fault.size
        return Air(wind_W, factor, (torque[0], torque[1], torque[2]))
