"""The message table over ZeroMQ between processes, and the same interface in memory.

Every process binds one PUB socket, ``ipc://<folder>/<process>.sock``; a subscriber connects to the sources that
`companion.messages.TOPICS` names for the topics it wants. There is no broker to die: a restarted process binds
the same path and its subscribers are connected again by themselves.

On the wire: [topic + "/", version of the type's schema, MessagePack]. A peer whose message type differs, and
bytes that do not decode, are counted and dropped.
"""

import hashlib
import math
from collections import deque
from collections.abc import Iterable
from pathlib import Path

import msgspec
import zmq

from companion.messages import TOPIC_OF, TOPICS, Message

# Messages a slow subscriber may fall behind before new ones are dropped for it. Images are large and only the
# newest is of use.
HIGH_WATER_MARK = 2000
IMAGE_HIGH_WATER_MARK = 3
READABLE = int(zmq.POLLIN)  # a plain number: to combine enumerations takes longer than to ask the socket


def schema_version(kind: type[Message]) -> bytes:
    """8 bytes that change whenever the fields of a message type change."""
    schema = msgspec.json.encode(msgspec.json.schema(kind), order="deterministic")
    return hashlib.sha256(schema).digest()[:8]


VERSIONS = {topic: schema_version(row.type) for topic, row in TOPICS.items()}
_DECODERS = {topic: msgspec.msgpack.Decoder(row.type) for topic, row in TOPICS.items()}
_ENCODER = msgspec.msgpack.Encoder()


class BadMessage(Exception):
    """Bytes that are no message of the table; the text is one line."""


def encode(message: Message) -> list[bytes]:
    """The frames of a message on the wire."""
    topic = TOPIC_OF[type(message)]
    return [topic.encode() + b"/", VERSIONS[topic], _ENCODER.encode(message)]


def decode(frames: list[bytes]) -> Message:
    """The message in frames from the wire; raises `BadMessage`."""
    if len(frames) != 3:
        raise BadMessage(f"bus message of {len(frames)} frames instead of 3")
    topic = frames[0].rstrip(b"/").decode("utf-8", "replace")
    decoder = _DECODERS.get(topic)
    if decoder is None:
        raise BadMessage(f"unknown topic {topic!r} on the bus")
    if frames[1] != VERSIONS[topic]:
        raise BadMessage(f"{topic}: a peer speaks another version of this message; update both")
    try:
        return decoder.decode(frames[2])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage(f"{topic}: undecodable message: {error}") from None


class ZmqBus:
    """One process's end of the bus.

    folder: where the sockets lie; made readable by the owner alone.
    process: the name this process publishes under.
    inputs: topics to receive.
    """

    def __init__(self, folder: Path, process: str, inputs: Iterable[str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        self.process = process
        self.errors = 0
        self.last_error = ""
        self._sequence: dict[str, int] = {}
        # One context for the process: a context of its own, collected before its sockets, waits for them for ever.
        self._context = zmq.Context.instance()
        self._publisher = self._context.socket(zmq.PUB)
        self._publisher.setsockopt(zmq.LINGER, 0)
        self._publisher.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK)
        self._publisher.bind(f"ipc://{folder}/{process}.sock")
        self.poller = zmq.Poller()
        self._subscribers = []
        inputs = list(inputs)
        for topics, mark in (
            ([t for t in inputs if t != "image"], HIGH_WATER_MARK),
            ([t for t in inputs if t == "image"], IMAGE_HIGH_WATER_MARK),
        ):
            if topics:
                self._subscribers.append(self._subscribe(folder, topics, mark))

    def _subscribe(self, folder: Path, topics: list[str], mark: int) -> zmq.Socket:
        socket = self._context.socket(zmq.SUB)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, mark)
        # A restarted publisher is found again within these; the defaults grow to seconds.
        socket.setsockopt(zmq.RECONNECT_IVL, 20)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 200)
        for topic in topics:
            socket.subscribe(topic.encode() + b"/")
        for source in sorted({source for topic in topics for source in TOPICS[topic].sources}):
            if source != self.process:
                socket.connect(f"ipc://{folder}/{source}.sock")
        self.poller.register(socket, zmq.POLLIN)
        return socket

    def publish(self, message: Message) -> None:
        """Send to whoever subscribes; never blocks."""
        topic = TOPIC_OF[type(message)]
        self._sequence[topic] = message.seq = self._sequence.get(topic, 0) + 1
        try:
            self._publisher.send_multipart(encode(message), zmq.DONTWAIT, copy=len_of(message) < 4096)
        except zmq.ZMQError as error:
            self.note_error(f"{topic}: not sent: {error}")

    def receive(self, timeout_s: float) -> list[Message]:
        """All messages that are there, waiting up to ``timeout_s`` for the first."""
        ready = dict(self.poller.poll(max(0, math.ceil(timeout_s * 1e3))))
        messages = []
        for socket in self._subscribers:
            # Asked and not tried: an exception for "nothing there" costs as much as a message.
            while socket in ready and socket.getsockopt(zmq.EVENTS) & READABLE:
                try:
                    messages.append(decode(socket.recv_multipart(zmq.DONTWAIT)))
                except zmq.ZMQError:
                    break
                except BadMessage as error:
                    self.note_error(str(error))
        return messages

    def note_error(self, text: str) -> None:
        self.errors += 1
        self.last_error = text

    def close(self) -> None:
        for socket in (self._publisher, *self._subscribers):
            socket.close(linger=0)


def len_of(message: Message) -> int:
    """Size of the bulk data a message carries [bytes]; 0 for all but images and photographs."""
    return len(getattr(message, "data", b"") or getattr(message, "png", b""))


class MemoryHub:
    """Joins in-memory ends of the bus; what one publishes lies in the inboxes of the others at once.

    ``waiting`` becomes True whenever a message is laid into an inbox; who empties the inboxes may set it back.
    """

    def __init__(self) -> None:
        self._inboxes: dict[str, list[deque]] = {topic: [] for topic in TOPICS}
        self.waiting = False

    def connect(self, inputs: Iterable[str]) -> "MemoryBus":
        bus = MemoryBus(self)
        for topic in inputs:
            self._inboxes[topic].append(bus.inbox)
        return bus

    def deliver(self, topic: str, message: Message) -> None:
        for inbox in self._inboxes[topic]:
            inbox.append(message)
            self.waiting = True


class MemoryBus:
    """The interface of `ZmqBus` without processes, for lockstep, replay and tests.

    Messages are passed by reference: receivers must not change them.
    """

    def __init__(self, hub: MemoryHub) -> None:
        self.inbox: deque[Message] = deque()
        self._hub = hub
        self._sequence: dict[str, int] = {}

    def publish(self, message: Message) -> None:
        topic = TOPIC_OF[type(message)]
        self._sequence[topic] = message.seq = self._sequence.get(topic, 0) + 1
        self._hub.deliver(topic, message)

    def receive(self, timeout_s: float = 0.0) -> list[Message]:
        messages = list(self.inbox)
        self.inbox.clear()
        return messages

    def close(self) -> None:
        self.inbox.clear()
