"""PX4's flight modes (HEARTBEAT.custom_mode, MAV_CMD_DO_SET_MODE), and MAVLink's results of commands in text.

custom_mode is four bytes: two reserved, main mode, sub mode (PX4 `px4_custom_mode.h`).
"""

from pymavlink.dialects.v20 import common

from companion.core.enums import CommandAction, FcuMode

MAIN_POSCTL = 3
MAIN_AUTO = 4
MAIN_OFFBOARD = 6

_MAIN = {
    1: FcuMode.MANUAL,
    2: FcuMode.ALTCTL,
    3: FcuMode.POSCTL,
    5: FcuMode.ACRO,
    MAIN_OFFBOARD: FcuMode.OFFBOARD,
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

_NUMBERS = (
    {mode: (main, 0) for main, mode in _MAIN.items()}
    | {mode: (MAIN_POSCTL, sub) for sub, mode in _POSCTL.items()}
    | {mode: (MAIN_AUTO, sub) for sub, mode in _AUTO.items()}
)

# action of FcuCommand: (main mode, sub mode)
MODE_OF_ACTION = {
    CommandAction.OFFBOARD: (MAIN_OFFBOARD, 0),
    CommandAction.HOLD: (MAIN_AUTO, 3),
    CommandAction.RETURN: (MAIN_AUTO, 5),
    CommandAction.LAND: (MAIN_AUTO, 6),
}

# of a pilot; PX4 flies the next simpler one where the chosen one needs a position or a height that it does not have
STICK_MODES = frozenset((FcuMode.POSCTL, FcuMode.ALTCTL, FcuMode.STABILIZED))

# the vehicles that can follow this stack's setpoints of attitude and thrust
MULTIROTOR_TYPES = frozenset(
    (
        common.MAV_TYPE_QUADROTOR,
        common.MAV_TYPE_COAXIAL,
        common.MAV_TYPE_HEXAROTOR,
        common.MAV_TYPE_OCTOROTOR,
        common.MAV_TYPE_TRICOPTER,
        common.MAV_TYPE_DECAROTOR,
        common.MAV_TYPE_DODECAROTOR,
        common.MAV_TYPE_GENERIC_MULTIROTOR,
    )
)

# MAV_RESULT as text; this version of pymavlink has no names for 6, 9 and 10
RESULT_TEXTS: dict[int, str] = {
    common.MAV_RESULT_ACCEPTED: "accepted",
    common.MAV_RESULT_TEMPORARILY_REJECTED: "temporarily rejected",
    common.MAV_RESULT_DENIED: "denied",
    common.MAV_RESULT_UNSUPPORTED: "unsupported",
    common.MAV_RESULT_FAILED: "failed",
    common.MAV_RESULT_IN_PROGRESS: "in progress",
    6: "cancelled",
    common.MAV_RESULT_COMMAND_LONG_ONLY: "only accepted as COMMAND_LONG",
    common.MAV_RESULT_COMMAND_INT_ONLY: "only accepted as COMMAND_INT",
    9: "unsupported frame",
    10: "not in control",
}


def custom_mode(main: int, sub: int = 0) -> int:
    """The number in HEARTBEAT.custom_mode."""
    return main << 16 | sub << 24


def mode_number(mode: FcuMode) -> tuple[int, int]:
    """Main and sub mode of a mode in the tables; KeyError for `FcuMode.UNKNOWN`."""
    return _NUMBERS[mode]


def mode_name(number: int) -> FcuMode:
    """Mode of a custom_mode; `FcuMode.UNKNOWN` for a number that is not in the tables."""
    main, sub = number >> 16 & 0xFF, number >> 24 & 0xFF
    if main == MAIN_AUTO:
        name = _AUTO.get(sub)
    elif main == MAIN_POSCTL:
        name = _POSCTL.get(sub)
    else:
        name = _MAIN.get(main)
    return name or FcuMode.UNKNOWN
