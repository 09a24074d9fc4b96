"""A node: the pure core of a process.

A node gets messages and the time and returns messages. It opens no socket, reads no clock, starts no thread.
`companion.process` runs one as a process on the bus; the lockstep runner moves the same object through
simulated time; a replay feeds it a recorded flight. What is tested is what flies.
"""

from collections.abc import Iterable

from companion.messages import TOPIC_OF, TOPICS, Message


class Node:
    """Base of all nodes.

    A subclass names the topics it wants in `inputs`, defines one ``handle_<topic>(message, now_s)`` for each,
    and ``step(now_s)``, called `rate_hz` times a second. All of them return an iterable of messages to publish
    (or None). ``now_s`` is companion monotonic time [s].
    """

    name: str = ""
    inputs: tuple[str, ...] = ()
    rate_hz: float = 50.0
    gather_s: float = 0.0  # messages may wait so long, at most until the next step, to be taken together

    def __init__(self) -> None:
        self._handlers = {topic: getattr(self, f"handle_{topic}") for topic in self.inputs}

    def handle(self, message: Message, now_s: float) -> Iterable[Message]:
        """Take one message of the topics in `inputs`; KeyError for any other type."""
        return self._handlers[TOPIC_OF[type(message)]](message, now_s) or ()

    def step(self, now_s: float) -> Iterable[Message]:
        """Do the periodic work."""
        return ()


class Latest:
    """The newest message of some topics, each with the question whether it may still be trusted.

    One place for decision "nothing is trusted without its age": a message counts while it says it is valid and
    is no older than its row of `TOPICS` allows.
    """

    def __init__(self) -> None:
        self._messages: dict[str, Message] = {}

    def put(self, message: Message) -> None:
        self._messages[TOPIC_OF[type(message)]] = message

    def get(self, topic: str) -> Message | None:
        """The newest message whatever its age, or None."""
        return self._messages.get(topic)

    def fresh(self, topic: str, now_s: float) -> Message | None:
        """The newest message if it is valid and young enough, else None."""
        message = self._messages.get(topic)
        if message is None or not message.valid or now_s - message.stamp_s > TOPICS[topic].max_age_s:
            return None
        return message

    def age_s(self, topic: str, now_s: float) -> float:
        """Age of the newest message [s], inf before the first."""
        message = self._messages.get(topic)
        return float("inf") if message is None else now_s - message.stamp_s
