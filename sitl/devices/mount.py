"""Where a device is on the aircraft."""

from typing import Annotated

from companion.core.config import Section, check_unit_quaternion, number


class Mount(Section, frozen=True):
    """The true place of a device on the aircraft; a camera's axes are optical (x right, y down, z forward)."""

    p_B: tuple[
        Annotated[float, number(-5, 5, "m")], Annotated[float, number(-5, 5, "m")], Annotated[float, number(-5, 5, "m")]
    ]
    q_B: tuple[
        Annotated[float, number(-1, 1, "")],
        Annotated[float, number(-1, 1, "")],
        Annotated[float, number(-1, 1, "")],
        Annotated[float, number(-1, 1, "")],
    ]  # rotates the device's axes into the body's

    def __post_init__(self) -> None:
        check_unit_quaternion("q_B", self.q_B)
