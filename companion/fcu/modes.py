"""PX4's flight modes: numbers of HEARTBEAT.custom_mode and of MAV_CMD_DO_SET_MODE, and their names in the stack.

custom_mode is four bytes: two reserved, main mode, sub mode (PX4 `px4_custom_mode.h`).
"""

from companion.core.enums import CommandAction, FcuMode

MAIN_AUTO = 4
MAIN_POSCTL = 3

_MAIN = {
    1: FcuMode.MANUAL,
    2: FcuMode.ALTCTL,
    3: FcuMode.POSCTL,
    5: FcuMode.ACRO,
    6: FcuMode.OFFBOARD,
    7: FcuMode.STABILIZED,
    8: FcuMode.RATTITUDE,
    10: FcuMode.TERMINATION,
}
_POSCTL = {0: FcuMode.POSCTL, 1: FcuMode.POSCTL_ORBIT, 2: FcuMode.POSCTL_SLOW}
_AUTO = {
    1: FcuMode.AUTO_READY,
    2: FcuMode.AUTO_TAKEOFF,
    3: FcuMode.AUTO_LOITER,
    4: FcuMode.AUTO_MISSION,
    5: FcuMode.AUTO_RTL,
    6: FcuMode.AUTO_LAND,
    8: FcuMode.AUTO_FOLLOW,
    9: FcuMode.AUTO_PRECLAND,
    10: FcuMode.AUTO_VTOL_TAKEOFF,
}

# action of FcuCommand: (main mode, sub mode)
MODE_OF_ACTION = {
    CommandAction.OFFBOARD: (6, 0),
    CommandAction.HOLD: (MAIN_AUTO, 3),
    CommandAction.RETURN: (MAIN_AUTO, 5),
    CommandAction.LAND: (MAIN_AUTO, 6),
}

# MAV_TYPEs the stack's attitude-and-thrust setpoints make sense for
MULTIROTOR_TYPES = {2: "quadrotor", 3: "coaxial", 13: "hexarotor", 14: "octorotor", 15: "tricopter", 29: "dodecarotor"}

# MAV_RESULT in words
RESULT_TEXTS = {
    0: "accepted",
    1: "temporarily rejected",
    2: "denied",
    3: "unsupported",
    4: "failed",
    5: "in progress",
    6: "cancelled",
    7: "only accepted as COMMAND_LONG",
    8: "only accepted as COMMAND_INT",
    9: "unsupported frame",
    10: "not in control",
}


def custom_mode(main: int, sub: int = 0) -> int:
    """The number in HEARTBEAT.custom_mode."""
    return main << 16 | sub << 24


def mode_name(number: int) -> FcuMode:
    """Mode of a custom_mode; `FcuMode.UNKNOWN` for a number not known here."""
    main, sub = number >> 16 & 0xFF, number >> 24 & 0xFF
    if main == MAIN_AUTO:
        name = _AUTO.get(sub)
    elif main == MAIN_POSCTL:
        name = _POSCTL.get(sub)
    else:
        name = _MAIN.get(main)
    return name or FcuMode.UNKNOWN
