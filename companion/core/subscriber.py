"""The receiving end of the bus: connects to the sources of its topics and takes their messages, within limits.

One call of `Subscriber.receive` takes at most `CALL_MESSAGES` messages, `CALL_BYTES` bytes and `CALL_S` of time; the rest
waits in the queue. ZeroMQ takes from each source in turn, so that a flood from one process delays no other. Beyond
`TOPIC_PER_S` messages of a topic in a second, further ones are dropped before they are decoded, which is faster than a
process can send them: so a flood of one topic delays no other topic of the same process either. What is dropped is
counted.

A frame larger than the limits of `companion.core.wire` is never held in memory: ZeroMQ cuts the connection. It does not
connect again by itself; this module does.
"""

import contextlib
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, cast

import zmq
from zmq.utils.monitor import recv_monitor_message

from companion.core.clock import monotonic_s
from companion.core.enums import TopicName
from companion.core.folders import FileIdentity, file_identity
from companion.core.messages import TOPICS, Message
from companion.core.wire import (
    BULK,
    BULK_MAX_BYTES,
    MESSAGE_MAX_BYTES,
    BadMessage,
    OtherVersion,
    decode,
    topic_of,
)

# Messages that wait for a slow subscriber; ZeroMQ drops further ones. Of images only the newest is useful; photographs
# come one by one.
HIGH_WATER_MARK = 2000
IMAGE_HIGH_WATER_MARK = 3
PHOTO_HIGH_WATER_MARK = 20
READABLE = int(zmq.POLLIN)  # a plain number: combining enumerations takes longer than reading the socket's state

CALL_MESSAGES = 500  # half a second of everything that a flight publishes
CALL_BYTES = 2 * BULK_MAX_BYTES
CALL_S = 0.005  # half a period of the fastest process
LOOK_EVERY = 32  # messages between two looks at the clock; a process that gets little time still takes so many a call
TOPIC_PER_S = HIGH_WATER_MARK  # twenty times the fastest topic; a subscriber that was stopped gets no more at once

FEW = 4  # messages

LOST_CHECK_S = 0.1  # between two looks at the connections
LOST_S = 0.5  # a connection that ZeroMQ has not restored by then is opened again


class _Lost(NamedTuple):
    """A connection that ended."""

    since_s: float
    file: "FileIdentity | None"  # of the publisher's socket
    reopened: bool


@dataclass
class _Group:
    """Topics that share a socket."""

    socket: "zmq.Socket[bytes]"
    monitor: "zmq.Socket[bytes]"  # reports its connections
    lost: dict[str, _Lost] = field(default_factory=dict)  # by endpoint


class Subscriber:
    """Receives topics from the sockets in a folder; creates nothing there.

    inputs: topics to receive. but: the process whose own messages are not received.
    """

    def __init__(self, folder: Path, inputs: Iterable[TopicName], but: str = "") -> None:
        self.errors = 0
        self.last_error = ""
        self.other_versions = 0  # messages of peers whose table differs
        self._other_version = ""  # stays in `last_error`: mixed versions of an installation do not change in flight
        self.poller = zmq.Poller()
        self._folder = folder
        # One context for the process: a separate one that is collected before its sockets waits for them for ever.
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        self._counts: dict[TopicName, int] = {}  # messages in the present second
        self._count_until_s = -math.inf
        self._looked_s = -math.inf
        inputs = list(inputs)
        groups: tuple[tuple[list[TopicName], int, int], ...] = (
            ([t for t in inputs if t not in BULK], HIGH_WATER_MARK, MESSAGE_MAX_BYTES),
            ([t for t in inputs if t in ("image", "stereo", "depth")], IMAGE_HIGH_WATER_MARK, BULK_MAX_BYTES),
            ([t for t in inputs if t == "photo"], PHOTO_HIGH_WATER_MARK, BULK_MAX_BYTES),
        )
        self._groups = [self._subscribe(topics, mark, size, but) for topics, mark, size in groups if topics]

    def _subscribe(self, topics: list[TopicName], mark: int, size_max: int, but: str) -> _Group:
        socket = self._context.socket(zmq.SUB)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, mark)
        socket.setsockopt(zmq.MAXMSGSIZE, size_max)
        # Pauses [ms] between attempts to reach a restarted publisher; ZeroMQ's defaults grow to seconds.
        socket.setsockopt(zmq.RECONNECT_IVL, 20)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 200)
        for topic in topics:
            socket.subscribe(topic.encode() + b"/")
        monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED)
        for source in sorted({source for topic in topics for source in TOPICS[topic].sources}):
            if source != but:
                socket.connect(f"ipc://{self._folder}/{source}.sock")
        self.poller.register(socket, zmq.POLLIN)
        return _Group(socket, monitor)

    def receive(self, timeout_s: float) -> list[Message]:
        """The messages that have arrived, waiting up to ``timeout_s`` for the first; not more than one call may take."""
        ready = dict(self.poller.poll(max(0, math.ceil(timeout_s * 1e3))))
        messages: list[Message] = []
        now_s = monotonic_s()
        if now_s >= self._count_until_s:
            self._count_until_s = now_s + 1.0
            self._counts.clear()
        for group in self._groups:
            if group.socket in ready:
                self._take(group.socket, messages, now_s + CALL_S)
        if now_s - self._looked_s >= LOST_CHECK_S:
            self._looked_s = now_s
            for group in self._groups:
                self._restore(group, now_s)
        return messages

    def _take(self, socket: "zmq.Socket[bytes]", messages: list[Message], until_s: float) -> None:
        left, bytes_left, taken = CALL_MESSAGES, CALL_BYTES, 0
        while left > 0 and bytes_left > 0:
            # An exception for an empty queue costs as much time as a message, and so does reading the state: a call
            # that takes a few messages reads the state, a call that takes many ends with the exception.
            if taken < FEW and not cast(int, socket.getsockopt(zmq.EVENTS)) & READABLE:
                return
            try:
                frames = socket.recv_multipart(zmq.DONTWAIT)
                bytes_left -= len(frames[-1])
                taken += 1
                if not self._too_many(frames[0]):
                    left -= 1
                    messages.append(decode(frames))
            except zmq.ZMQError:
                return
            except OtherVersion as error:
                self.other_versions += 1
                self._other_version = self._other_version or str(error)
                self.note_error(str(error))
            except BadMessage as error:
                self.note_error(str(error))
            if taken % LOOK_EVERY == 0 and monotonic_s() >= until_s:
                return

    def _too_many(self, head: bytes) -> bool:
        topic = topic_of(head)
        if topic is None:
            return False
        count = self._counts.get(topic, 0) + 1
        self._counts[topic] = count
        if count <= TOPIC_PER_S:
            return False
        if count == TOPIC_PER_S + 1:
            self.note_error(f"{topic}: more than {TOPIC_PER_S} messages in a second; further ones are dropped")
        else:
            self.errors += 1
        return True

    def _restore(self, group: _Group, now_s: float) -> None:
        """Open connections again that were cut and that ZeroMQ does not restore."""
        while cast(int, group.monitor.getsockopt(zmq.EVENTS)) & READABLE:
            event = recv_monitor_message(group.monitor, zmq.DONTWAIT)
            endpoint = os.fsdecode(event["endpoint"])
            file = file_identity(Path(endpoint.removeprefix("ipc://")))
            if event["event"] == zmq.EVENT_DISCONNECTED:
                group.lost[endpoint] = _Lost(now_s, file, False)
                continue
            lost = group.lost.pop(endpoint, None)
            if lost is not None and lost.reopened and lost.file == file is not None:  # its process had not ended
                self.note_error(f"{Path(endpoint).stem}: sent more than a message may have; connected again")
        for endpoint, lost in list(group.lost.items()):
            if now_s - lost.since_s >= LOST_S:
                group.lost[endpoint] = lost._replace(since_s=now_s, reopened=True)
                with contextlib.suppress(zmq.ZMQError):
                    group.socket.disconnect(endpoint)
                    group.socket.connect(endpoint)

    def note_error(self, text: str) -> None:
        """Count an error; `last_error` keeps the first message about another version."""
        self.errors += 1
        self.last_error = self._other_version or text

    def close(self) -> None:
        """Close the sockets; twice is once."""
        groups, self._groups = self._groups, []
        for group in groups:
            group.socket.disable_monitor()
            group.socket.close(linger=0)
