"""Where a device is on the aircraft."""

from typing import Annotated

from companion.core.config import Section, check_unit_quaternion, number

Metres = Annotated[float, number(-5, 5, "m")]
Share = Annotated[float, number(-1, 1, "")]
Place = tuple[Metres, Metres, Metres]


class Mount(Section, frozen=True):
    """The true place of a device on the aircraft; a camera's axes are optical (x right, y down, z forward)."""

    p_B: Place
    q_B: tuple[Share, Share, Share, Share]  # rotates the device's axes into the body's

    def __post_init__(self) -> None:
        check_unit_quaternion("q_B", self.q_B)
