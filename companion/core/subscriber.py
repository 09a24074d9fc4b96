"""The receiving end of the bus: connects to the sources of its topics and takes their messages, within limits.

Every source has a socket of its own, which takes only the topics that `TOPICS` lets this source publish: what a process
sends under the name of another's topic, as one that talks to browsers might when it is taken over, is not received.

One call of `Subscriber.receive` takes at most `CALL_MESSAGES` messages, `CALL_BYTES` bytes and `CALL_S` of time; the rest
waits in the queue. It takes `IN_A_ROW` from each source in turn, so that a flood from one process delays no other. Beyond
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
from companion.core.enums import ProcessName, TopicName
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
# Messages of a source before those of the next, and between two looks at the clock; a process that gets little time
# still takes so many of each a call.
IN_A_ROW = 16
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
class _Inlet:
    """The topics of one source that share a socket."""

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
        kinds: tuple[tuple[list[TopicName], int, int], ...] = (
            ([t for t in inputs if t not in BULK], HIGH_WATER_MARK, MESSAGE_MAX_BYTES),
            ([t for t in inputs if t in ("image", "stereo", "depth")], IMAGE_HIGH_WATER_MARK, BULK_MAX_BYTES),
            ([t for t in inputs if t == "photo"], PHOTO_HIGH_WATER_MARK, BULK_MAX_BYTES),
        )
        sources = sorted({source for topic in inputs for source in TOPICS[topic].sources if source != but})
        self._inlets = [
            self._subscribe(source, own, mark, size)
            for source in sources
            for topics, mark, size in kinds
            if (own := [topic for topic in topics if source in TOPICS[topic].sources])
        ]

    def _subscribe(self, source: ProcessName, topics: list[TopicName], mark: int, size_max: int) -> _Inlet:
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
        socket.connect(f"ipc://{self._folder}/{source}.sock")
        self.poller.register(socket, zmq.POLLIN)
        return _Inlet(socket, monitor)

    def receive(self, timeout_s: float) -> list[Message]:
        """The messages that have arrived, waiting up to ``timeout_s`` for the first; not more than one call may take."""
        ready = dict(self.poller.poll(max(0, math.ceil(timeout_s * 1e3))))
        messages: list[Message] = []
        now_s = monotonic_s()
        if now_s >= self._count_until_s:
            self._count_until_s = now_s + 1.0
            self._counts.clear()
        self._take([inlet.socket for inlet in self._inlets if inlet.socket in ready], messages, now_s + CALL_S)
        if now_s - self._looked_s >= LOST_CHECK_S:
            self._looked_s = now_s
            for inlet in self._inlets:
                self._restore(inlet, now_s)
        return messages

    def _take(self, waiting: "list[zmq.Socket[bytes]]", messages: list[Message], until_s: float) -> None:
        """Take from the sockets in turn until they are empty or the call has had enough; once from each at least."""
        bytes_left = CALL_BYTES
        while waiting and bytes_left > 0:
            unread: list[zmq.Socket[bytes]] = []
            for socket in waiting:
                most = min(IN_A_ROW, CALL_MESSAGES - len(messages))
                taken, size = self._take_from(socket, messages, most, bytes_left)
                bytes_left -= size
                if taken == IN_A_ROW:
                    unread.append(socket)
            waiting = unread
            if waiting and monotonic_s() >= until_s:
                return

    def _take_from(
        self, socket: "zmq.Socket[bytes]", messages: list[Message], most: int, bytes_left: int
    ) -> tuple[int, int]:
        """Take up to `most` messages from a socket that has some, the first whatever its size; their number and bytes."""
        taken = size = 0
        while taken < most and (size < bytes_left or not taken):
            # An exception for an empty queue costs as much time as a message, and so does reading the state: a call
            # that takes a few messages reads the state, a call that takes many ends with the exception.
            if 0 < taken < FEW and not cast(int, socket.getsockopt(zmq.EVENTS)) & READABLE:
                break
            try:
                frames = socket.recv_multipart(zmq.DONTWAIT)
                taken += 1
                size += len(frames[-1])
                if not self._too_many(frames[0]):
                    messages.append(decode(frames))
            except zmq.ZMQError:
                break
            except OtherVersion as error:
                self.other_versions += 1
                self._other_version = self._other_version or str(error)
                self.note_error(str(error))
            except BadMessage as error:
                self.note_error(str(error))
        return taken, size

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

    def _restore(self, inlet: _Inlet, now_s: float) -> None:
        """Open connections again that were cut and that ZeroMQ does not restore."""
        while cast(int, inlet.monitor.getsockopt(zmq.EVENTS)) & READABLE:
            event = recv_monitor_message(inlet.monitor, zmq.DONTWAIT)
            endpoint = os.fsdecode(event["endpoint"])
            file = file_identity(Path(endpoint.removeprefix("ipc://")))
            if event["event"] == zmq.EVENT_DISCONNECTED:
                inlet.lost[endpoint] = _Lost(now_s, file, False)
                continue
            lost = inlet.lost.pop(endpoint, None)
            if lost is not None and lost.reopened and lost.file == file is not None:  # its process had not ended
                self.note_error(f"{Path(endpoint).stem}: sent more than a message may have; connected again")
        for endpoint, lost in list(inlet.lost.items()):
            if now_s - lost.since_s >= LOST_S:
                inlet.lost[endpoint] = lost._replace(since_s=now_s, reopened=True)
                with contextlib.suppress(zmq.ZMQError):
                    inlet.socket.disconnect(endpoint)
                    inlet.socket.connect(endpoint)

    def note_error(self, text: str) -> None:
        """Count an error; `last_error` keeps the first message about another version."""
        self.errors += 1
        self.last_error = self._other_version or text

    def close(self) -> None:
        """Close the sockets; twice is once."""
        inlets, self._inlets = self._inlets, []
        for inlet in inlets:
            inlet.socket.disable_monitor()
            inlet.socket.close(linger=0)
