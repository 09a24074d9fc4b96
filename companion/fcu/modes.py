"""PX4's flight modes: numbers of HEARTBEAT.custom_mode and of MAV_CMD_DO_SET_MODE, and their names in the stack.

custom_mode is four bytes: two reserved, main mode, sub mode (PX4 `px4_custom_mode.h`).
"""

MAIN_AUTO = 4
MAIN_POSCTL = 3

_MAIN = {
    1: "MANUAL",
    2: "ALTCTL",
    3: "POSCTL",
    5: "ACRO",
    6: "OFFBOARD",
    7: "STABILIZED",
    8: "RATTITUDE",
    10: "TERMINATION",
}
_POSCTL = {0: "POSCTL", 1: "POSCTL_ORBIT", 2: "POSCTL_SLOW"}
_AUTO = {
    1: "AUTO_READY",
    2: "AUTO_TAKEOFF",
    3: "AUTO_LOITER",
    4: "AUTO_MISSION",
    5: "AUTO_RTL",
    6: "AUTO_LAND",
    8: "AUTO_FOLLOW",
    9: "AUTO_PRECLAND",
    10: "AUTO_VTOL_TAKEOFF",
}

# action of FcuCommand: (main mode, sub mode)
MODE_OF_ACTION = {"offboard": (6, 0), "hold": (MAIN_AUTO, 3), "return": (MAIN_AUTO, 5), "land": (MAIN_AUTO, 6)}

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


def mode_name(number: int) -> str:
    """Name of a custom_mode, "UNKNOWN(n)" for one not known here."""
    main, sub = number >> 16 & 0xFF, number >> 24 & 0xFF
    if main == MAIN_AUTO:
        name = _AUTO.get(sub)
    elif main == MAIN_POSCTL:
        name = _POSCTL.get(sub)
    else:
        name = _MAIN.get(main)
    return name or f"UNKNOWN({number})"
