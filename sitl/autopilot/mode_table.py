"""PX4's flight modes as a table: their codes on the wire, what each needs, who flies; and what is known to decide.

`Conditions` and `Manual` are the commander's inputs.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

CUSTOM_MODE = {  # PX4's (main, sub)
    "MANUAL": (1, 0),
    "ALTCTL": (2, 0),
    "POSCTL": (3, 0),
    "AUTO_TAKEOFF": (4, 2),
    "AUTO_LOITER": (4, 3),
    "AUTO_MISSION": (4, 4),
    "AUTO_RTL": (4, 5),
    "AUTO_LAND": (4, 6),
    "ACRO": (5, 0),
    "OFFBOARD": (6, 0),
    "STABILIZED": (7, 0),
    "DESCEND": (4, 6),
    "TERMINATION": (1, 0),
}
MODE_OF = {v: k for k, v in CUSTOM_MODE.items() if k not in ("DESCEND", "TERMINATION")}
SLOT_MODES = {0: "MANUAL", 1: "ALTCTL", 2: "POSCTL", 3: "AUTO_MISSION", 4: "AUTO_LOITER", 5: "AUTO_RTL"}
SLOT_MODES |= {6: "ACRO", 7: "OFFBOARD", 8: "STABILIZED", 10: "AUTO_TAKEOFF", 11: "AUTO_LAND"}

_ATT = ("attitude",)
_AUTO = ("attitude", "position", "height")
REQUIREMENTS: dict[str, tuple[str, ...]] = {
    "MANUAL": ("manual control",),
    "ACRO": ("manual control",),
    "STABILIZED": ("attitude", "manual control"),
    "ALTCTL": ("attitude", "height", "manual control"),
    "POSCTL": ("attitude", "height", "position", "manual control"),
    "AUTO_MISSION": (*_AUTO, "mission"),
    "AUTO_LOITER": _AUTO,
    "AUTO_RTL": (*_AUTO, "home"),
    "AUTO_TAKEOFF": _AUTO,
    "AUTO_LAND": _AUTO,
    "DESCEND": _ATT,
    "OFFBOARD": ("attitude", "offboard signal"),
    "TERMINATION": (),
}
PREVENT_ARMING = frozenset(("AUTO_RTL", "AUTO_LAND", "DESCEND", "TERMINATION"))
MANUAL_MODES = frozenset(("MANUAL", "ACRO", "STABILIZED", "ALTCTL", "POSCTL"))
AUTO_MODES = frozenset(("AUTO_MISSION", "AUTO_LOITER", "AUTO_RTL", "AUTO_TAKEOFF", "AUTO_LAND", "DESCEND"))
CLIMB_RATE = frozenset(("ALTCTL", "POSCTL"))

RCL_EXCEPT = {"AUTO_MISSION": 1, "AUTO_LOITER": 2, "AUTO_TAKEOFF": 2, "OFFBOARD": 4}  # bits of COM_RCL_EXCEPT

ACCEPTED, TEMPORARILY_REJECTED, DENIED, UNSUPPORTED, FAILED = 0, 1, 2, 3, 4  # MAV_RESULT
EMERGENCY, ALERT, CRITICAL, ERROR, WARNING, NOTICE, INFO = range(7)  # MAV_SEVERITY


class Transition(NamedTuple):
    """One change of the flying mode, kept for logs and tests."""

    time_s: float
    old: str
    new: str
    reason: str


@dataclass
class Conditions:
    """What the commander must know of the rest of the autopilot at an update."""

    attitude: bool = False
    position: bool = False
    height: bool = False
    home: bool = False
    landed: bool = True
    maybe_landed: bool = True
    takeoff_finished: bool = False
    battery_remaining: float = 1.0
    tilt_rad: float = 0.0
    fence: str = ""  # how PX4's own fence is broken


@dataclass
class Manual:
    """Sticks after mapping: right, forward, up, right-turn in -1..1, and the switches."""

    ok: bool = False
    sticks: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    slot: int = 0
    kill: bool = False
    _slopes: list[float] = field(default_factory=lambda: [0.0] * 4)
    _last: tuple[float, ...] | None = None

    def moving(self, dt: float, percent_s: float) -> bool:
        """Whether a stick moves faster than COM_RC_STICK_OV allows (difference, low-passed over 0.1 s)."""
        if not self.ok:
            self._slopes, self._last = [0.0] * 4, None
            return False
        if self._last is not None:
            alpha = dt / (dt + 0.1)
            for i in range(4):
                self._slopes[i] += alpha * ((self.sticks[i] - self._last[i]) / dt - self._slopes[i])
        self._last = self.sticks
        return any(abs(s) > 0.01 * percent_s for s in self._slopes)
