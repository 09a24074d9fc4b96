"""The message table over ZeroMQ between processes, and the same interface in memory.

Every process binds one PUB socket, ``ipc://<folder>/<process>.sock``; a subscriber connects to the sources that
`companion.core.messages.TOPICS` names for its topics. There is no broker: a restarted process binds the same path
and ZeroMQ connects its subscribers again.

On the wire: [topic + "/" + process, version of the type's schema, MessagePack]. Messages of a peer whose type differs,
and bytes that do not decode, are counted and dropped; one line names the peer and both versions.
"""

import hashlib
import math
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import msgspec
import zmq

from companion.core.enums import TopicName
from companion.core.messages import TOPIC_OF, TOPICS, Message

# Messages that wait for a slow subscriber; ZeroMQ drops further ones. Images are large, and only the newest is useful.
HIGH_WATER_MARK = 2000
IMAGE_HIGH_WATER_MARK = 3
READABLE = int(zmq.POLLIN)  # a plain number: combining enumerations takes longer than reading the socket's state
BULK_BYTES = 4096  # from this size on, ZeroMQ sends without a copy


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
    """Bytes that are not a message of the table; the text is one line."""


class OtherVersion(BadMessage):
    """A peer's table has another type for this topic."""


def encode(message: Message, process: str = "") -> list[bytes]:
    """The frames of a message on the wire; process: name of the publisher."""
    topic = TOPIC_OF[type(message)]
    return [_HEADS[topic] + process.encode(), VERSIONS[topic], _ENCODER.encode(message)]


def decode(frames: list[bytes]) -> Message:
    """The message in frames from the wire; raises `BadMessage`, and `OtherVersion` for a peer with another table."""
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
    """A name given by an unknown sender, as at most 40 printable characters."""
    return _line(raw[:40].decode("utf-8", "replace"), 40)


def _line(text: str, length: int) -> str:
    return "".join(c if c.isprintable() else "?" for c in text[:length])


class ZmqBus:
    """One process's end of the bus.

    folder: where the sockets lie; only its owner gets access to it.
    process: the name under which this process publishes.
    inputs: topics to receive.
    """

    def __init__(self, folder: Path, process: str, inputs: Iterable[TopicName]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        self.process = process
        self.errors = 0
        self.last_error = ""
        self.other_versions = 0  # messages of peers whose table differs
        self._other_version = ""  # stays in `last_error`: mixed versions of an installation do not change in flight
        self._sequence: dict[TopicName, int] = {}
        # One context for the process: a separate one that is collected before its sockets waits for them for ever.
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        self._publisher = self._context.socket(zmq.PUB)
        self._publisher.setsockopt(zmq.LINGER, 0)
        self._publisher.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK)
        self._file = folder / f"{process}.sock"
        self._publisher.bind(f"ipc://{self._file}")
        self._file_identity = _identity(self._file)
        self.poller = zmq.Poller()
        self._subscribers: list[zmq.Socket[bytes]] = []
        inputs = list(inputs)
        groups: list[tuple[list[TopicName], int]] = [
            ([t for t in inputs if t != "image"], HIGH_WATER_MARK),
            ([t for t in inputs if t == "image"], IMAGE_HIGH_WATER_MARK),
        ]
        for topics, mark in groups:
            if topics:
                self._subscribers.append(self._subscribe(folder, topics, mark))

    def _subscribe(self, folder: Path, topics: list[TopicName], mark: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.SUB)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, mark)
        # Pauses [ms] between attempts to reach a restarted publisher; ZeroMQ's defaults grow to seconds.
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
        """Send to all subscribers; never blocks."""
        topic = TOPIC_OF[type(message)]
        self._sequence[topic] = message.seq = self._sequence.get(topic, 0) + 1
        copy = len_of(message) < BULK_BYTES
        try:
            self._publisher.send_multipart(encode(message, self.process), zmq.DONTWAIT, copy=copy)
        except zmq.ZMQError as error:
            self.note_error(f"{topic}: not sent: {error}")

    def receive(self, timeout_s: float) -> list[Message]:
        """All messages that have arrived, waiting up to ``timeout_s`` for the first."""
        ready = dict(self.poller.poll(max(0, math.ceil(timeout_s * 1e3))))
        messages = []
        for socket in self._subscribers:
            # The state is read first: an exception for an empty queue costs as much time as a message.
            while socket in ready and cast(int, socket.getsockopt(zmq.EVENTS)) & READABLE:
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
        """Count an error; `last_error` keeps the first message about another version."""
        self.errors += 1
        self.last_error = self._other_version or text

    def close(self) -> None:
        """Close the sockets and delete this process's socket file."""
        # The file is compared while its socket is open: until then no other file can get the same inode number.
        # A process that was started in this one's place has bound a new file to the same path; that file stays.
        if self._file_identity is not None and _identity(self._file) == self._file_identity:
            self._file.unlink(missing_ok=True)
        self._file_identity = None
        for socket in (self._publisher, *self._subscribers):
            socket.close(linger=0)


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file at a path; None when there is no readable entry."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def len_of(message: Message) -> int:
    """Size of the bulk data a message carries [bytes]; 0 for all but images and photographs."""
    return len(getattr(message, "data", b"") or getattr(message, "png", b""))


class MemoryHub:
    """Connects in-memory ends of the bus; a published message is in all inboxes of its topic at once.

    ``waiting`` becomes True whenever a message enters an inbox; the code that empties the inboxes may clear it.
    """

    def __init__(self) -> None:
        self._inboxes: dict[TopicName, list[deque[Message]]] = {topic: [] for topic in TOPICS}
        self.waiting = False

    def connect(self, inputs: Iterable[TopicName]) -> "MemoryBus":
        """A new end that receives these topics."""
        bus = MemoryBus(self)
        for topic in inputs:
            self._inboxes[topic].append(bus.inbox)
        return bus

    def deliver(self, topic: TopicName, message: Message) -> None:
        """Put a message into the inboxes of its topic."""
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
        self._sequence: dict[TopicName, int] = {}

    def publish(self, message: Message) -> None:
        """Deliver to all subscribers at once."""
        topic = TOPIC_OF[type(message)]
        self._sequence[topic] = message.seq = self._sequence.get(topic, 0) + 1
        self._hub.deliver(topic, message)

    def receive(self, timeout_s: float = 0.0) -> list[Message]:
        """All messages of the inbox; never waits."""
        messages = list(self.inbox)
        self.inbox.clear()
        return messages

    def close(self) -> None:
        self.inbox.clear()
