"""A node: the pure core of a process.

A node gets messages and the time and returns messages. It opens no socket, reads no clock, starts no thread.
`companion.runtime.process` runs one as a process on the bus; the lockstep runner moves the same object through
simulated time; a replay feeds it a recorded flight. What is tested is what flies.
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeVar

from companion.core.enums import TopicName
from companion.core.intake import Intake
from companion.core.messages import TOPIC_OF, TOPICS, Message

M = TypeVar("M", bound=Message)
Handler = Callable[[Any, float], Iterable[Message] | None]


class Node:
    """Base of all nodes.

    A subclass names its topics in `inputs`, defines one ``handle_<topic>(message, now_s)`` for each,
    and ``step(now_s)``, called `rate_hz` times a second. All of them return an iterable of messages to publish
    (or None). ``now_s`` is companion monotonic time [s].
    """

    name: ClassVar[str] = ""
    inputs: tuple[TopicName, ...] = ()
    rate_hz: float = 50.0
    batch_window_s: float = 0.0  # messages may wait this long, at most until the next step, to be taken together

    def __init__(self) -> None:
        self.intake = Intake()
        self._handlers: dict[type[Message], Handler] = {
            TOPICS[topic].type: getattr(self, f"handle_{topic}") for topic in self.inputs
        }

    def handle(self, message: Message, now_s: float) -> Iterable[Message]:
        """Take one message of the topics in `inputs` unless the `Intake` refuses it; KeyError for any other type."""
        if not self.intake.takes(message):
            return ()
        return self._handlers[type(message)](message, now_s) or ()

    @property
    def errors(self) -> int:
        """Messages that were refused, for the process's health message."""
        return self.intake.errors

    @property
    def last_error(self) -> str:
        """One line, "" without an error."""
        return self.intake.last_error

    def step(self, now_s: float) -> Iterable[Message]:
        """Do the periodic work."""
        return ()

    def close(self) -> None:
        """Release what the node holds, after its last step."""


class Latest:
    """The newest message of each type, and whether its age still permits using it.

    A message counts while it says it is valid and is no older than its row of `TOPICS` allows.
    """

    def __init__(self) -> None:
        self._messages: dict[type[Message], Message] = {}

    def put(self, message: Message) -> None:
        """Keep `message` in the place of the one before."""
        self._messages[type(message)] = message

    def get(self, kind: type[M]) -> M | None:
        """The newest message whatever its age, or None."""
        message = self._messages.get(kind)
        return message if isinstance(message, kind) else None

    def fresh(self, kind: type[M], now_s: float) -> M | None:
        """The newest message if it is valid and young enough, else None."""
        message = self.get(kind)
        if message is None or not message.valid or now_s - message.stamp_s > TOPICS[TOPIC_OF[kind]].max_age_s:
            return None
        return message

    def age_s(self, kind: type[Message], now_s: float) -> float:
        """Age of the newest message [s], inf before the first."""
        message = self._messages.get(kind)
        return float("inf") if message is None else now_s - message.stamp_s
