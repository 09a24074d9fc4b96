"""PX4's flight modes as one table: numbers on the wire, requirements, source of the setpoints."""

from enum import Enum, StrEnum, auto
from typing import NamedTuple

from companion.core.enums import FcuMode


class CommanderMode(StrEnum):
    """Modes of PX4's commander that HEARTBEAT does not distinguish from others, so `FcuMode` has no member for them."""

    DESCEND = "DESCEND"  # down without a position; HEARTBEAT says AUTO_LAND


FlightMode = FcuMode | CommanderMode
DESCEND = CommanderMode.DESCEND


class Requirement(StrEnum):
    """What a mode can need; the values are used in the reasons of failsafes."""

    ATTITUDE = "attitude"
    POSITION = "position"
    HEIGHT = "height"
    HOME = "home"
    MANUAL_CONTROL = "manual control"
    OFFBOARD_SIGNAL = "offboard signal"
    MISSION = "mission"


class SetpointSource(Enum):
    """The source of the setpoints of a mode."""

    MANUAL_THRUST = auto()  # sticks; the throttle stick is thrust
    MANUAL_CLIMB_RATE = auto()  # sticks; the throttle stick is a climb rate
    AUTO = auto()  # PX4 itself
    EXTERNAL = auto()  # the companion
    NONE = auto()  # motors off


class ModeRow(NamedTuple):
    """One flight mode."""

    custom_mode: tuple[int, int]  # (main, sub) of HEARTBEAT.custom_mode
    source: SetpointSource
    requirements: tuple[Requirement, ...]  # in the order in which they are checked
    slot: int | None = None  # value of COM_FLTMODE1 to 6
    standard_mode: int = 0  # MAV_STANDARD_MODE; 0: none
    rc_loss_bit: int = 0  # of COM_RCL_EXCEPT: the mode flies on without RC
    arming: bool = True  # the aircraft may be armed in it


_MANUAL, _ATTITUDE, _HEIGHT = Requirement.MANUAL_CONTROL, Requirement.ATTITUDE, Requirement.HEIGHT
_AUTO = (Requirement.ATTITUDE, Requirement.POSITION, Requirement.HEIGHT)

MODES: dict[FlightMode, ModeRow] = {
    FcuMode.MANUAL: ModeRow((1, 0), SetpointSource.MANUAL_THRUST, (_MANUAL,), slot=0),
    FcuMode.ALTCTL: ModeRow(
        (2, 0), SetpointSource.MANUAL_CLIMB_RATE, (_ATTITUDE, _HEIGHT, _MANUAL), slot=1, standard_mode=4
    ),
    FcuMode.POSCTL: ModeRow(
        (3, 0),
        SetpointSource.MANUAL_CLIMB_RATE,
        (_ATTITUDE, _HEIGHT, Requirement.POSITION, _MANUAL),
        slot=2,
        standard_mode=1,
    ),
    FcuMode.AUTO_TAKEOFF: ModeRow((4, 2), SetpointSource.AUTO, _AUTO, slot=10, standard_mode=8, rc_loss_bit=2),
    FcuMode.AUTO_LOITER: ModeRow((4, 3), SetpointSource.AUTO, _AUTO, slot=4, rc_loss_bit=2),
    FcuMode.AUTO_MISSION: ModeRow(
        (4, 4), SetpointSource.AUTO, (*_AUTO, Requirement.MISSION), slot=3, standard_mode=6, rc_loss_bit=1
    ),
    FcuMode.AUTO_RTL: ModeRow(
        (4, 5), SetpointSource.AUTO, (*_AUTO, Requirement.HOME), slot=5, standard_mode=5, arming=False
    ),
    FcuMode.AUTO_LAND: ModeRow((4, 6), SetpointSource.AUTO, _AUTO, slot=11, standard_mode=7, arming=False),
    FcuMode.ACRO: ModeRow((5, 0), SetpointSource.MANUAL_THRUST, (_MANUAL,), slot=6),
    FcuMode.OFFBOARD: ModeRow(
        (6, 0), SetpointSource.EXTERNAL, (_ATTITUDE, Requirement.OFFBOARD_SIGNAL), slot=7, rc_loss_bit=4
    ),
    FcuMode.STABILIZED: ModeRow((7, 0), SetpointSource.MANUAL_THRUST, (_ATTITUDE, _MANUAL), slot=8),
    DESCEND: ModeRow((4, 6), SetpointSource.AUTO, (_ATTITUDE,), arming=False),
    FcuMode.TERMINATION: ModeRow((1, 0), SetpointSource.NONE, (), arming=False),
}

# The modes that a command can request. HEARTBEAT shows DESCEND and TERMINATION with the numbers of other modes.
MODE_OF_CUSTOM_MODE = {
    row.custom_mode: mode for mode, row in MODES.items() if mode not in (DESCEND, FcuMode.TERMINATION)
}
MODE_OF_SLOT = {row.slot: mode for mode, row in MODES.items() if row.slot is not None}
MANUAL_CLIMB_RATE_MODES = frozenset(m for m, row in MODES.items() if row.source is SetpointSource.MANUAL_CLIMB_RATE)
MANUAL_MODES = MANUAL_CLIMB_RATE_MODES | {m for m, row in MODES.items() if row.source is SetpointSource.MANUAL_THRUST}
AUTO_MODES = frozenset(m for m, row in MODES.items() if row.source is SetpointSource.AUTO)


def custom_mode(mode: FlightMode) -> int:
    """The number of a flight mode in HEARTBEAT.custom_mode."""
    main, sub = MODES[mode].custom_mode
    return main << 16 | sub << 24
