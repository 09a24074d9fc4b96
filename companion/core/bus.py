"""The message table over ZeroMQ between processes, and the same interface in memory.

Every process binds one PUB socket, ``ipc://<folder>/<process>.sock``; a subscriber connects to the sources that
`companion.core.messages.TOPICS` names for its topics. There is no broker: a restarted process binds the same path
and ZeroMQ connects its subscribers again. `companion.core.wire` has the bytes, `companion.core.subscriber` the limits of
what is received.
"""

import os
from collections import deque
from collections.abc import Iterable
from pathlib import Path

import zmq

from companion.core.config import ConfigError
from companion.core.enums import TopicName
from companion.core.folders import Hold, file_identity, own_folder
from companion.core.messages import TOPIC_OF, TOPICS, Message
from companion.core.subscriber import HIGH_WATER_MARK, Subscriber
from companion.core.text import plain
from companion.core.wire import VERSIONS as VERSIONS
from companion.core.wire import BadMessage as BadMessage
from companion.core.wire import OtherVersion as OtherVersion
from companion.core.wire import decode as decode
from companion.core.wire import encode as encode
from companion.core.wire import len_of, size_max
from companion.core.wire import schema_version as schema_version

# Messages that wait in a process for a slow subscriber. A process that sends images keeps fewer: a subscriber that was
# stopped would make it grow by 10 MB a second.
IMAGES_WAIT = 60
BULK_BYTES = 4096  # from this size on, ZeroMQ sends without a copy


class ZmqBus:
    """One process's end of the bus.

    folder: where the sockets lie; it is made if it is absent, must belong to this user, and only its owner gets access.
    process: the name under which this process publishes.
    inputs: topics to receive.
    hold: of the process's name in the folder, for `restore`.
    Raises `ConfigError` when the folder cannot be used.
    """

    def __init__(self, folder: Path, process: str, inputs: Iterable[TopicName], hold: Hold | None = None) -> None:
        self._hold = hold
        self._file = folder / f"{process}.sock"
        if len(os.fsencode(self._file)) > zmq.IPC_PATH_MAX_LEN:
            raise ConfigError(f"bus {self._file}: the path is longer than {zmq.IPC_PATH_MAX_LEN} bytes")
        own_folder(folder)
        self.process = process
        self._own_errors = 0
        self._own_error = ""
        self._sequence: dict[TopicName, int] = {}
        # One context for the process: a separate one that is collected before its sockets waits for them for ever.
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        self._publisher = context.socket(zmq.PUB)
        self._publisher.setsockopt(zmq.LINGER, 0)
        self._publisher.setsockopt(zmq.SNDHWM, IMAGES_WAIT if process in TOPICS["image"].sources else HIGH_WATER_MARK)
        try:
            self._publisher.bind(f"ipc://{self._file}")
            self._file.chmod(0o600)
        except (OSError, zmq.ZMQError) as error:
            self._publisher.close(linger=0)
            raise ConfigError(f"bus {self._file}: cannot be opened: {plain(str(error.strerror or error))}") from None
        self._file_identity = file_identity(self._file)
        self._subscriber = Subscriber(folder, inputs, process)

    @property
    def poller(self) -> zmq.Poller:
        """Watches the sockets of `receive`; a process may register its device there."""
        return self._subscriber.poller

    @property
    def errors(self) -> int:
        """Messages that were not sent, dropped or undecodable, and sockets that were deleted."""
        return self._own_errors + self._subscriber.errors

    @property
    def last_error(self) -> str:
        """One line, "" without an error."""
        return self._subscriber.last_error or self._own_error

    @property
    def other_versions(self) -> int:
        """Messages of peers whose table differs."""
        return self._subscriber.other_versions

    def publish(self, message: Message) -> None:
        """Send to all subscribers; never blocks."""
        topic = TOPIC_OF[type(message)]
        self._sequence[topic] = message.seq = self._sequence.get(topic, 0) + 1
        frames = encode(message, self.process)
        if len(frames[2]) > size_max(topic):
            self._note_not_sent(topic, f"{len(frames[2]) / 1e6:.0f} MB, at most {size_max(topic) / 1e6:.0f} MB")
            return
        try:
            self._publisher.send_multipart(frames, zmq.DONTWAIT, copy=len_of(message) < BULK_BYTES)
        except zmq.ZMQError as error:
            self._note_not_sent(topic, str(error))

    def _note_not_sent(self, topic: TopicName, why: str) -> None:
        self._note(f"{topic}: not sent: {why}")

    def _note(self, error: str) -> None:
        self._own_errors += 1
        self._own_error = error

    def receive(self, timeout_s: float) -> list[Message]:
        """The messages that have arrived, waiting up to ``timeout_s`` for the first; see `Subscriber.receive`."""
        return self._subscriber.receive(timeout_s)

    def restore(self) -> str:
        """Bind again where the socket's file has been deleted, alone or with its folder, and hold the name again.

        A process that starts later would not reach this one, or would not find that it runs. Peers that are connected stay
        connected. A file of another process stays. Returns in one line what was done or could not be, "" for nothing; it
        is counted. Nothing raises.
        """
        found = [self._restore_socket(), "" if self._hold is None else self._hold.restore()]
        for line in filter(None, found):
            self._note(line)
        return "; ".join(filter(None, found))

    def _restore_socket(self) -> str:
        if self._file_identity is None or os.path.lexists(self._file):
            return ""
        try:
            own_folder(self._file.parent)
            self._publisher.bind(f"ipc://{self._file}")
            self._file.chmod(0o600)
        except (OSError, zmq.ZMQError, ConfigError) as error:
            return f"{self._file}: was deleted, cannot be opened again: {plain(str(error))}"
        self._file_identity = file_identity(self._file)
        return f"{self._file}: was deleted, opened again"

    def close(self) -> None:
        """Close the sockets and delete this process's socket file."""
        # The file is compared while its socket is open: until then no other file can get the same inode number.
        # A process that was started in this one's place has bound a new file to the same path; that file stays.
        if self._file_identity is not None and file_identity(self._file) == self._file_identity:
            self._file.unlink(missing_ok=True)
        self._file_identity = None
        self._publisher.close(linger=0)
        self._subscriber.close()


class MemoryHub:
    """Connects in-memory ends of the bus; a published message is in all ``inboxes`` of its topic at once.

    ``waiting`` becomes True whenever a message enters an inbox; the code that empties the inboxes may clear it.
    """

    def __init__(self) -> None:
        self.inboxes: dict[TopicName, list[deque[Message]]] = {topic: [] for topic in TOPICS}
        self.waiting = False

    def connect(self, inputs: Iterable[TopicName]) -> "MemoryBus":
        """A new end that receives these topics."""
        bus = MemoryBus(self)
        for topic in inputs:
            self.inboxes[topic].append(bus.inbox)
        return bus


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
        for inbox in self._hub.inboxes[topic]:
            inbox.append(message)
            self._hub.waiting = True

    def receive(self, timeout_s: float = 0.0) -> list[Message]:
        """All messages of the inbox; never waits."""
        messages = list(self.inbox)
        self.inbox.clear()
        return messages

    def restart(self) -> None:
        """Become the end of a new process: the inbox is empty, and its messages count from 1."""
        self.inbox.clear()
        self._sequence.clear()

    def close(self) -> None:
        self.inbox.clear()
