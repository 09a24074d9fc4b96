"""A part of a log, read fast enough to look at: the index of the file, and the rows of one window of time.

The file is scanned from the front by its records' lengths, so a log without its end (its recorder was killed) is read
like any other, and a log of many gigabytes costs memory and time for the window that is shown, not for its size. The
file is read, not mapped: it may become shorter while the view is open, and a map would end the process then. In a
chunk only the messages that the page draws are decoded: those of its packed topics, or in a log of before 2026-11-25 those that
the chunk's message indexes find.
"""

import gc
import os
import struct
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from zstandard import ZstdError

from companion.core import aliases
from companion.core.enums import TopicName
from companion.core.messages import TOPICS
from companion.estimation.layout import ErrorIndex
from companion.recording.batches import CHANNEL_ID, DICTIONARY, BatchReader, Unpacked
from companion.recording.chunks import (
    CHANNEL,
    CHUNK_MAX_BYTES,
    FRAME_HEAD_BYTES,
    MESSAGE,
    ChunkTooLarge,
    chunk_data,
    stated_size,
)
from companion.recording.codec import decode, from_plain
from companion.recording.log import Log, LogError, first_metadata, iterate, parts
from companion.view.digest import INPUTS, PERIODS_S, Digest

MAGIC = b"\x89MCAP0\r\n"
FOOTER, CHUNK, MESSAGE_INDEX = 0x02, 0x06, 0x07
WANTED = frozenset(INPUTS)
FORMER = frozenset(old for old, new in aliases.TOPICS.items() if new in WANTED)
RECORD_HEAD, MESSAGE_HEAD = 9, 9 + 22
SCANNED = RECORD_HEAD + 16  # bytes of a record that the scan reads: its head, and the times of a chunk
DAY_NS, CHUNK_MAX_NS = 86_400_000_000_000, 600_000_000_000  # a chunk holds seconds
NAME_MAX_BYTES = 100  # of a compression
DAMAGE = (ZstdError, struct.error, ValueError, OverflowError, RuntimeError, OSError)
WINDOW_S = 1800.0
STRETCH_FROM_S = 600.0  # windows longer than this are drawn from fewer rows: 20 Hz up to here, 10 Hz from twice
STRETCH_MAX = 2.0
DUE = 0.95  # part of a period after which a message is due: its arrival jitters
HORIZON = b'"horizon_W":[['  # in a message that holds a predicted path
NO_BLOCKS = b'"covariance_blocks":[]'  # in a message of the estimator without covariances
LENGTH, ROW = struct.Struct("<Q"), struct.Struct("<QQ")
AHEAD = 8  # chunks that are decompressed before they are needed


class FileBytes:
    """The bytes of a file, read when they are asked for; fewer where the file has become shorter."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._file)
        self.size = os.fstat(self._file).st_size

    def read(self, begin: int, size: int) -> bytes:
        return os.pread(self._file, size, begin)


class ChunkPlace(NamedTuple):
    """A chunk of a file: times of arrival [ns], where its bytes are, how it began, and its message indexes by channel."""

    part: int
    start_ns: int
    end_ns: int
    begin: int
    head: bytes  # of its record: another one there is another log
    indexes: tuple[tuple[int, int, int], ...]  # channel, first byte, bytes


class LogIndex:
    """Where everything of a log is; raises `LogError` for a file that is not one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.truncated = False
        self.oversize = ""  # why a part of it was not read
        self.changed = False  # the file is no longer the one that was opened
        self.closed = False  # set by another thread: `read` ends early
        self.chunks: list[ChunkPlace] = []
        self.metadata = _metadata(path)
        self._bundle_errors = _bundle_errors(self.metadata)
        self.bytes = 0
        self._files: list[FileBytes] = []
        self._names: list[dict[int, TopicName]] = []
        self._readers: list[BatchReader | None] = []  # of each part; None: its messages are not packed
        for part, file in enumerate(parts(path)):
            self._scan(part, file)
        if not self.chunks:
            raise LogError(f"{path}: holds no messages")
        self._correct_times()
        self.start_s = min(chunk.start_ns for chunk in self.chunks) / 1e9
        self.end_s = max(chunk.end_ns for chunk in self.chunks) / 1e9

    @property
    def windows(self) -> int:
        """How many windows of `WINDOW_S` the log has."""
        return max(1, int(np.ceil((self.end_s - self.start_s) / WINDOW_S)))

    def window_s(self, number: int) -> tuple[float, float]:
        """Begin and end of a window [s]."""
        begin_s = self.start_s + number * WINDOW_S
        return begin_s, min(begin_s + WINDOW_S, self.end_s + 1e-3)

    def _scan(self, part: int, file: Path) -> None:
        data = FileBytes(file)
        self._files.append(data)
        self._names.append({})
        names = first_metadata(file).get(DICTIONARY)
        try:
            self._readers.append(None if names is None else BatchReader(names))
        except ValueError:
            self._readers.append(None)
            self.truncated = True
        self.bytes += data.size
        at, end, complete = len(MAGIC), data.size, False
        while len(head := data.read(at, SCANNED)) >= RECORD_HEAD:
            kind, length = struct.unpack_from("<BQ", head)
            begin = at + RECORD_HEAD
            if begin + length > end:
                break
            if kind == CHUNK and length >= 28 and len(head) == SCANNED:
                start_ns, end_ns = struct.unpack_from("<QQ", head, RECORD_HEAD)
                self.chunks.append(ChunkPlace(part, start_ns, end_ns, begin, head, ()))
                self._note_size(data, begin)
            elif kind == MESSAGE_INDEX and self.chunks and length >= 6 and len(head) >= RECORD_HEAD + 6:
                channel, size = struct.unpack_from("<HI", head, RECORD_HEAD)
                last = self.chunks[-1]
                if size + 6 <= length:
                    self.chunks[-1] = last._replace(indexes=(*last.indexes, (channel, begin + 6, size)))
            complete = complete or kind == FOOTER
            at = begin + length
        self.truncated |= not complete

    def _correct_times(self) -> None:
        """Chunks whose times cannot be true get those of their messages; without any they are left out."""
        middle_ns = sorted(chunk.start_ns for chunk in self.chunks)[len(self.chunks) // 2]
        first_ns, last_ns = middle_ns - DAY_NS, middle_ns + DAY_NS
        kept: list[ChunkPlace] = []
        for chunk in self.chunks:
            span_ns = chunk.end_ns - chunk.start_ns
            if first_ns <= chunk.start_ns <= last_ns and 0 <= span_ns <= CHUNK_MAX_NS:
                kept.append(chunk)
                continue
            self.truncated = True
            data = self._files[chunk.part]
            stamps = [
                stamp_ns
                for _, begin, size in chunk.indexes
                for stamp_ns, _ in _index_rows(data, begin, size)
                if first_ns <= stamp_ns <= last_ns
            ]
            if stamps:
                kept.append(chunk._replace(start_ns=min(stamps), end_ns=max(stamps)))
        self.chunks = kept

    def _note_size(self, data: FileBytes, begin: int) -> None:
        """Say at once, not when its window is shown, that a chunk states a size that is not read."""
        try:
            compression, size, at, _ = _chunk_head(data, begin)
            if stated_size(compression, data.read(at, FRAME_HEAD_BYTES), size) > CHUNK_MAX_BYTES:
                self.oversize, self.truncated = str(ChunkTooLarge()), True
        except DAMAGE:  # `read` will find the same
            pass

    def read(self, begin_s: float, end_s: float, stretch: float | None = None) -> Digest:
        """The rows and events of a window; what this version cannot read is left out."""
        if stretch is None:
            stretch = min(max((end_s - begin_s) / STRETCH_FROM_S, 1.0), STRETCH_MAX)
        digest = Digest(begin_s, stretch, tolerance=0.5)
        digest.bundle_errors = self._bundle_errors
        chunks = [c for c in self.chunks if c.end_ns / 1e9 >= begin_s and c.start_ns / 1e9 <= end_s]
        due_ns: dict[TopicName, int] = {}
        collects = gc.isenabled()
        gc.disable()  # what is read here is kept: looking through it again and again takes a fifth of the time
        try:
            for chunk, data in self._decompressed(chunks):
                if self.closed:
                    break
                if data is None:
                    self.truncated = True
                    continue
                try:
                    self._read_chunk(chunk, data, digest, due_ns)
                except (struct.error, ValueError, OverflowError, OSError):
                    self.truncated = True
        finally:
            if collects:
                gc.enable()
        return digest

    def _decompressed(self, chunks: list[ChunkPlace]) -> Iterator[tuple[ChunkPlace, bytes | None]]:
        """Chunks and their records; None for one that is damaged. A thread decompresses while the caller decodes."""

        def records(chunk: ChunkPlace) -> bytes | None:
            try:
                return self._records_of(chunk)
            except ChunkTooLarge as error:
                self.oversize = str(error)
                return None
            except DAMAGE:
                return None

        with ThreadPoolExecutor(1) as worker:
            waiting: deque[Future[bytes | None]] = deque(worker.submit(records, chunk) for chunk in chunks[:AHEAD])
            for number, chunk in enumerate(chunks):
                data = waiting.popleft().result()
                if number + AHEAD < len(chunks):
                    waiting.append(worker.submit(records, chunks[number + AHEAD]))
                yield chunk, data

    def _records_of(self, chunk: ChunkPlace) -> bytes:
        source = self._files[chunk.part]
        if source.read(chunk.begin - RECORD_HEAD, SCANNED) != chunk.head:
            self.changed = True
            raise ValueError("another file")
        compression, size, at, held = _chunk_head(source, chunk.begin)
        if max(size, held) > CHUNK_MAX_BYTES:  # before the copy
            raise ChunkTooLarge
        return chunk_data(compression, source.read(at, held), size)

    def _read_chunk(self, chunk: ChunkPlace, data: bytes, digest: Digest, due_ns: dict[TopicName, int]) -> None:
        reader = self._readers[chunk.part]
        if reader is not None:
            self._read_packed(data, reader, digest, due_ns)
            return
        source, names = self._files[chunk.part], self._names[chunk.part]
        due: list[tuple[int, TopicName]] = []
        if any(channel not in names for channel, _, _ in chunk.indexes) or not chunk.indexes:
            for kind, offset in _records(data):
                if kind == CHANNEL:
                    names.update(_channel(data, offset))
                elif kind == MESSAGE and not chunk.indexes:  # the file ends after this chunk
                    topic = names.get(struct.unpack_from("<H", data, offset + RECORD_HEAD)[0])
                    due += [(offset, topic)] if topic is not None and topic in WANTED else []
        for channel, begin, held in chunk.indexes:
            topic = names.get(channel)
            if topic in WANTED and topic is not None:
                due += _due(_index_rows(source, begin, held), topic, data, digest.stretch, due_ns)
        for offset, topic in sorted(due):
            _take(data, offset, topic, digest)

    @staticmethod
    def _read_packed(data: bytes, reader: BatchReader, digest: Digest, due_ns: dict[TopicName, int]) -> None:
        for kind, offset in _records(data):
            if kind != MESSAGE or struct.unpack_from("<H", data, offset + RECORD_HEAD)[0] != CHANNEL_ID:
                continue
            for one in reader.read(data[offset + MESSAGE_HEAD : _end(data, offset)], WANTED | FORMER):
                topic = _topic(one.topic)
                if topic is None or not _packed_due(one, topic, digest.stretch, due_ns):
                    continue
                try:
                    message = from_plain(topic, one.message)
                except (msgspec.MsgspecError, KeyError):
                    continue
                if topic == "control" or digest.wants(topic, message.stamp_s):
                    digest.take(message)


def _packed_due(one: Unpacked, topic: TopicName, stretch: float, due_ns: dict[TopicName, int]) -> bool:
    """Whether a message may be drawn; as `_due`."""
    period_s = PERIODS_S.get(topic)
    if not period_s:
        return True
    if one.arrival_ns < due_ns.get(topic, 0):
        return topic == "control" and bool(one.message.get("horizon_W"))
    if topic == "estimator" and not one.message.get("covariance_blocks"):
        return False
    due_ns[topic] = one.arrival_ns + int(period_s * stretch * DUE * 1e9)
    return True


def _chunk_head(data: FileBytes, begin: int) -> tuple[str, int, int, int]:
    """Compression, bytes decompressed, and place and bytes of the data of the chunk at `begin`, as the chunk states them."""
    size, _crc, name_bytes = struct.unpack("<QII", data.read(begin + 16, 16))
    at = begin + 32
    compression = data.read(at, min(name_bytes, NAME_MAX_BYTES)).decode()
    (held,) = LENGTH.unpack(data.read(at + name_bytes, LENGTH.size))
    return compression, size, at + name_bytes + 8, held


def _index_rows(data: FileBytes, begin: int, size: int) -> Iterator[tuple[int, int]]:
    """Time of arrival [ns] and offset of each message of a message index."""
    rows = data.read(begin, size)
    return ROW.iter_unpack(rows[: len(rows) // ROW.size * ROW.size])


def _due(
    rows: Iterable[tuple[int, int]], topic: TopicName, data: bytes, stretch: float, due_ns: dict[TopicName, int]
) -> list[tuple[int, TopicName]]:
    """Of the rows of a message index (time of arrival [ns], offset) those that may be drawn: one in each period.

    due_ns: when the next one of each topic is due; kept from chunk to chunk. A predicted path and the covariances are in some
    messages of their topics only: all of the former are taken, and of the latter the first after they are due.
    """
    period_s = PERIODS_S.get(topic)
    if not period_s:
        return [(offset, topic) for _, offset in rows]
    period_ns, next_ns = int(period_s * stretch * DUE * 1e9), due_ns.get(topic, 0)
    found = []
    for stamp_ns, offset in rows:
        if stamp_ns < next_ns:
            if topic != "control" or data.find(HORIZON, offset, _end(data, offset)) < 0:
                continue
        elif topic == "estimator" and data.find(NO_BLOCKS, offset, _end(data, offset)) >= 0:
            continue
        else:
            next_ns = stamp_ns + period_ns
        found.append((offset, topic))
    due_ns[topic] = next_ns
    return found


def _end(data: bytes, offset: int) -> int:
    """Where the record at an offset ends."""
    length: int = LENGTH.unpack_from(data, offset + 1)[0]
    return offset + RECORD_HEAD + length


def _take(data: bytes, offset: int, topic: TopicName, digest: Digest) -> None:
    """Decode one message of a chunk if the page is due to draw it."""
    kind, length = struct.unpack_from("<BQ", data, offset)
    (stamp_ns,) = struct.unpack_from("<Q", data, offset + RECORD_HEAD + 14)
    if kind != MESSAGE:
        return
    if topic != "control" and not digest.wants(topic, stamp_ns / 1e9):
        return
    text = data[offset + MESSAGE_HEAD : offset + RECORD_HEAD + length]
    try:
        digest.take(decode(topic, text))
    except (msgspec.MsgspecError, KeyError):
        return


def _records(data: bytes) -> Iterator[tuple[int, int]]:
    """Kind and place of the records of a chunk."""
    at = 0
    while at + RECORD_HEAD <= len(data):
        kind, length = struct.unpack_from("<BQ", data, at)
        yield kind, at
        at += RECORD_HEAD + length


def _channel(data: bytes, offset: int) -> dict[int, TopicName]:
    """The channel that a record defines, under the present name of its topic; empty for a topic that is not known."""
    channel, _schema, size = struct.unpack_from("<HHI", data, offset + RECORD_HEAD)
    begin = offset + RECORD_HEAD + 8
    topic = _topic(data[begin : begin + size].decode())
    return {} if topic is None else {channel: topic}


def _topic(name: str) -> TopicName | None:
    """The present name of a topic; None if it is not known."""
    present = aliases.topic_of(name)
    return next((topic for topic in TOPICS if topic == present), None)


def _metadata(path: Path) -> Log:
    """The metadata of a log; raises `LogError`."""
    log = Log(path)
    for _ in iterate(path, ("host", "mission_status"), log):
        break
    return log


def _bundle_errors(log: Log) -> slice:
    """Where the errors of the bundle's place are in the covariance of a log's states; the first is the position's."""
    try:
        rows = msgspec.json.decode(log.metadata["state_layout"])["error"]
        start, size = next((int(row[1]), int(row[2])) for row in rows if row[0] == "marker_position")
    except (KeyError, TypeError, ValueError, IndexError, StopIteration, msgspec.MsgspecError):
        return ErrorIndex.MARKER_POSITION
    return slice(start, start + size) if start >= 0 and size == 3 else ErrorIndex.MARKER_POSITION
