"""PX4's modes in which the pilot's sticks move the aircraft."""

from companion.core.enums import FcuMode

MANUAL_MODES = (
    FcuMode.MANUAL,
    FcuMode.STABILIZED,
    FcuMode.ACRO,
    FcuMode.RATTITUDE,
    FcuMode.ALTCTL,
    FcuMode.POSCTL,
    FcuMode.POSCTL_SLOW,
)
