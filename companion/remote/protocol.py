"""What the page and the process behind it send each other: JSON texts over a WebSocket, one message each.

`PROTOCOL` is raised with every change; a page of another version is refused. A number that is not finite or not within
its range makes its message invalid: it is answered, and does nothing.
"""

import math
from typing import Any, ClassVar

import msgspec

from companion.core.enums import FcuMode
from companion.remote.flight_modes import FlightMode
from companion.remote.sticks import Sticks

PROTOCOL = 2
MESSAGE_MAX = 1024  # characters of a message of the page
# the modes that the page can choose
MODES = (
    FcuMode.STABILIZED,
    FcuMode.ALTCTL,
    FcuMode.POSCTL,
    FcuMode.AUTO_LOITER,
    FcuMode.AUTO_RTL,
    FcuMode.AUTO_LAND,
)


class ProtocolError(Exception):
    """A message that is not used; the text is one line for the person at the page."""


class PageMessage(msgspec.Struct, frozen=True, tag_field="type", forbid_unknown_fields=True):
    """Base of the messages of a page."""


class Hello(PageMessage, frozen=True, tag="hello", forbid_unknown_fields=False):
    """The first message."""

    protocol: int
    token: str = ""


class Stamped(PageMessage, frozen=True):
    """Base of what a person decides by what the page shows.

    seen_s: the stamp of the newest `state` that the page has received. It shows how old the picture was, and how long the
    message waited on its way.
    """

    seen_s: float


class Command(Stamped, frozen=True):
    """Base of the requests; each is answered."""

    request: ClassVar[str]  # named by the answer


class Take(Command, frozen=True, tag="take"):
    """The person wants the sticks."""

    request: ClassVar[str] = "take"


class Release(PageMessage, frozen=True, tag="release"):
    """The person gives the sticks back, or the page has lost the focus. Without a stamp: it counts however late it comes."""

    reason: str = ""


class StickSample(Stamped, frozen=True, tag="sticks"):
    """Positions of the sticks."""

    ahead: float
    right: float
    up: float
    turn: float

    @property
    def sticks(self) -> Sticks:
        return Sticks(self.ahead, self.right, self.up, self.turn)


class ChooseMode(Command, frozen=True, tag="mode"):
    """A flight mode of PX4."""

    request: ClassVar[str] = "mode"
    mode: FcuMode


class ChooseFrame(Command, frozen=True, tag="frame"):
    """Body frame or headless."""

    request: ClassVar[str] = "frame"
    frame: FlightMode


class SetAhead(Command, frozen=True, tag="ahead"):
    """Headless: ahead is where the nose points now."""

    request: ClassVar[str] = "ahead"


class Arm(Command, frozen=True, tag="arm"):
    """Arm or disarm; answered by a question."""

    request: ClassVar[str] = "arm"
    arm: bool


class Confirm(Command, frozen=True, tag="confirm"):
    """Yes to the question with this number."""

    request: ClassVar[str] = "arm"
    question: int


AnyPageMessage = Hello | Take | Release | StickSample | ChooseMode | ChooseFrame | SetAhead | Arm | Confirm
_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder(AnyPageMessage)


def decode(text: str | bytes) -> AnyPageMessage:
    """The message in a text; raises `ProtocolError` with one line."""
    if isinstance(text, bytes):
        raise ProtocolError("a binary message: the page sends texts")
    if len(text) > MESSAGE_MAX:
        raise ProtocolError(f"a message of {len(text)} characters, at most {MESSAGE_MAX}")
    try:
        message: AnyPageMessage = _DECODER.decode(text)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeError) as error:
        raise ProtocolError(f"not a message of this version: {error}") from None
    if isinstance(message, StickSample):
        for name, stick in zip(Sticks._fields, message.sticks, strict=True):
            if not -1.0 <= stick <= 1.0:  # also for NaN
                raise ProtocolError(f"stick {name} = {stick:g} is not in -1 to 1")
    if isinstance(message, Stamped) and not math.isfinite(message.seen_s):
        raise ProtocolError("the time of the state that the page has seen is not a number")
    if isinstance(message, ChooseMode) and message.mode not in MODES:
        raise ProtocolError(f"mode {message.mode} cannot be chosen here")
    return message


def encode(kind: str, **fields: Any) -> str:
    """A message for the page; a number that is not finite becomes null."""
    return msgspec.json.encode({"type": kind, **fields}).decode()
