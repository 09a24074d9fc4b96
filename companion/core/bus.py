"""The message table over ZeroMQ between processes, and the same interface in memory.

Every process binds one PUB socket, ``ipc://<folder>/<process>.sock``; a subscriber connects to the sources that
`companion.core.messages.TOPICS` names for the topics it wants. There is no broker to die: a restarted process binds
the same path and its subscribers are connected again by themselves.

On the wire: [topic + "/" + process, version of the type's schema, MessagePack]. Messages of a peer whose type differs,
and bytes that do not decode, are counted and dropped; one line names the peer and both versions.
"""

import hashlib
import math
from collections import deque
from collections.abc import Iterable
from pathlib import Path

import msgspec
import zmq

from companion.core.messages import TOPIC_OF, TOPICS, Message

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
_HEADS = {topic: topic.encode() + b"/" for topic in TOPICS}
_READERS = {
    topic.encode(): (topic, VERSIONS[topic], msgspec.msgpack.Decoder(row.type)) for topic, row in TOPICS.items()
}
_ENCODER = msgspec.msgpack.Encoder()


class BadMessage(Exception):
    """Bytes that are no message of the table; the text is one line."""


class OtherVersion(BadMessage):
    """A peer's table has another type for this topic."""


def encode(message: Message, process: str = "") -> list[bytes]:
    """The frames of a message on the wire; process: who publishes it."""
    topic = TOPIC_OF[type(message)]
    return [_HEADS[topic] + process.encode(), VERSIONS[topic], _ENCODER.encode(message)]


def decode(frames: list[bytes]) -> Message:
    """The message in frames from the wire; raises `BadMessage`, `OtherVersion` of a peer with another table."""
    if len(frames) != 3:
        raise BadMessage(f"bus message of {len(frames)} frames instead of 3")
    head, _, process = frames[0].partition(b"/")
    entry = _READERS.get(head)
    if entry is None:
        raise BadMessage(f"unknown topic {_shown(head)!r} on the bus")
    topic, version, decoder = entry
    if frames[1] != version:
        raise OtherVersion(
            f"{topic}: {_shown(process) or 'a peer'} speaks version {frames[1][:8].hex()} of this message, "
            f"this process {version.hex()}; restart both from one installation"
        )
    try:
        return decoder.decode(frames[2])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage(f"{topic}: undecodable message: {_line(str(error), 200)}") from None


def _shown(raw: bytes) -> str:
    """A name that a stranger gives, as at most 40 characters of one line."""
    return _line(raw[:40].decode("utf-8", "replace"), 40)


def _line(text: str, length: int) -> str:
    return "".join(c if c.isprintable() else "?" for c in text[:length])


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
        self.other_versions = 0  # messages of peers whose table differs
        self._other_version = ""  # stays told: the parts of one installation do not mend themselves in flight
        self._sequence: dict[str, int] = {}
        # One context for the process: a context of its own, collected before its sockets, waits for them for ever.
        self._context = zmq.Context.instance()
        self._publisher = self._context.socket(zmq.PUB)
        self._publisher.setsockopt(zmq.LINGER, 0)
        self._publisher.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK)
        self._file = folder / f"{process}.sock"
        self._publisher.bind(f"ipc://{self._file}")
        self._own = _identity(self._file)
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
            self._publisher.send_multipart(encode(message, self.process), zmq.DONTWAIT, copy=len_of(message) < 4096)
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
                except OtherVersion as error:
                    self.other_versions += 1
                    self._other_version = self._other_version or str(error)
                    self.note_error(str(error))
                except BadMessage as error:
                    self.note_error(str(error))
        return messages

    def note_error(self, text: str) -> None:
        self.errors += 1
        self.last_error = self._other_version or text

    def close(self) -> None:
        """Leave the bus, and no file of ours behind."""
        # Before the sockets: while ours is open, no other file can have its number. A process that was started in our
        # place has bound a new file to the same path, and that one stays.
        if self._own is not None and _identity(self._file) == self._own:
            self._file.unlink(missing_ok=True)
        self._own = None
        for socket in (self._publisher, *self._subscribers):
            socket.close(linger=0)


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file lies at a path; None: none that can be seen."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


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
