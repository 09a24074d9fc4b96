"""Reading logs, complete or truncated.

A log whose writer was killed has no index, and its last chunk may be incomplete; it is read from the front up to the
break. Logs of earlier versions are read through the table of `companion.core.aliases`.
"""

import datetime
import glob
import math
import re
import struct
import tomllib
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import msgspec
import numpy as np
from mcap.exceptions import InvalidMagic, McapError
from mcap.records import Channel, Chunk, Footer, McapRecord, Metadata
from mcap.records import Message as Record
from mcap.stream_reader import StreamReader
from zstandard import ZstdError

from companion.core import aliases
from companion.core.arrays import Array
from companion.core.config import ConfigError, parse
from companion.core.enums import TopicName
from companion.core.messages import TOPIC_OF, TOPICS, Message
from companion.core.vehicle import Vehicle
from companion.recording.batches import DICTIONARY, ENCODING, BatchReader, Unpacked
from companion.recording.chunks import CHUNK_MAX_BYTES, ChunkTooLarge, chunk_data, chunk_records
from companion.recording.codec import decode, from_plain
from companion.recording.writer import METADATA

BROKEN = (McapError, struct.error, ZstdError, ValueError, MemoryError, OverflowError, EOFError, KeyError, RuntimeError)
EXPANSION_MAX = 200  # text of a log over the bytes of its file; a flight's is about 3
HEAD_MAX_BYTES = 4_000_000  # the metadata stand at the head of a log
M = TypeVar("M", bound=Message)


class LogError(ConfigError):
    """A file cannot be read as a log; the message is one line for the user."""


class LogEntry(NamedTuple):
    """One logged message and when it reached the recorder [s]."""

    arrival_s: float
    topic: TopicName
    message: Message


class Undecodable(NamedTuple):
    """Messages of one topic that this version cannot read."""

    messages: int
    reason: str  # of the first one


class Pause(NamedTuple):
    """Where a recorder was started again: what it wrote then, and the time without a message before it [s].

    NaN: some topics alone were read, or one of the parts has no message.
    """

    part: Path
    pause_s: float


class Log(dict[TopicName, list[Message]]):
    """Messages by topic in order of arrival; a topic without messages is an empty list.

    metadata: text by name, as `companion.runtime.flight_record` and `LogWriter` wrote it, of the first part; arrival_s:
    times of arrival by topic, in step with the messages; truncated: the end is missing; oversize: why the rest was not read,
    "" if it was; pauses: where further parts begin; undecodable: by topic as the log names it.
    """

    def __init__(self, path: Path) -> None:
        super().__init__({topic: [] for topic in TOPICS})
        self.path = path
        self.metadata: dict[str, str] = {}
        self.arrival_s: dict[TopicName, list[float]] = {topic: [] for topic in TOPICS}
        self.truncated = False
        self.oversize = ""
        self.pauses: list[Pause] = []
        self.undecodable: dict[str, Undecodable] = {}

    def of(self, kind: type[M]) -> list[M]:
        """The messages of one type, in order of arrival."""
        return [message for message in self[TOPIC_OF[kind]] if isinstance(message, kind)]

    def note_undecodable(self, topic: str, reason: str) -> None:
        """Count a message that cannot be read."""
        known = self.undecodable.get(topic)
        self.undecodable[topic] = (
            Undecodable(1, reason) if known is None else known._replace(messages=known.messages + 1)
        )

    def problems(self) -> list[str]:
        """One line for each thing that keeps this log from being complete: for every command that reads logs."""
        lines = [
            f"{self.path}: {count} messages of '{topic}' cannot be read by this version and are left out: {reason}"
            for topic, (count, reason) in sorted(self.undecodable.items())
        ]
        if before := self.metadata.get("continues"):
            first = self.path.with_name(before)
            where = (
                f"read {first}, which includes it" if first.exists() else f"its beginning, {before}, is not beside it"
            )
            lines.append(f"{self.path}: was begun by a recorder that was started again; {where}")
        lines += [
            f"{self.path}: the recorder was started again: {pause.part.name} goes on"
            + (f" after {pause.pause_s:.1f} s without a message" if math.isfinite(pause.pause_s) else "")
            for pause in self.pauses
        ]
        if self.oversize:
            lines.append(f"{self.path}: the log is not complete: {self.oversize}; what stands before it was read")
        elif self.truncated:
            lines.append(
                f"{self.path}: the log is not complete: its end is missing (the recorder was killed) or a part is damaged"
            )
        return lines

    def tables(self, name: str) -> dict[str, Any] | None:
        """The effective tables of "vehicle", "mission", "site" or "scenario" as flown, their bases merged.

        None where the log does not hold them: a log of before 2026-11-22 holds the text of the vehicle and mission
        files alone, and a file with a `base` is not complete without it. Raises `LogError` if they are corrupted.
        """
        effective = self.metadata.get(f"{name}_tables")
        try:
            if effective is not None:
                return msgspec.json.decode(effective, type=dict[str, Any])
            text = self.metadata.get(name)
            tables = tomllib.loads(text) if text else None
        except (msgspec.MsgspecError, tomllib.TOMLDecodeError) as error:
            raise LogError(f"{self.path}: the {name} tables in the log cannot be read: {error}") from None
        return None if tables is None or "base" in tables else tables

    def clock_offset_ns(self) -> int:
        """UTC minus companion time [ns]; 0 where the log does not hold it."""
        try:
            began = datetime.datetime.fromisoformat(self.metadata["start_time"]).timestamp()
            return round(began * 1e9) - round(float(self.metadata["start_s"]) * 1e9)
        except (KeyError, ValueError, OverflowError):
            return 0

    def vehicle(self) -> Vehicle | None:
        """The vehicle with which the flight was flown; None where the log does not hold it.

        Raises `LogError` if the vehicle of the log does not fit this version.
        """
        tables = self.tables("vehicle")
        if tables is None:
            return None
        try:
            return parse(aliases.completed("Vehicle", tables), Vehicle, f"{self.path}: vehicle in the log")
        except ConfigError as error:
            raise LogError(str(error)) from None


def read_log(path: str | Path, topics: Iterable[TopicName] | None = None) -> Log:
    """All messages of a log, or those of some topics; raises `LogError` if the file is not a log.

    A recorder that was started again in flight has gone on in ``<name>_2.mcap`` and so on; these parts are read too.
    """
    log = Log(Path(path))
    ended_s = math.nan  # the newest arrival
    for part in parts(log.path):
        first, metadata = part == log.path, log.metadata.copy()
        begun_s, before_s = math.nan, ended_s
        for entry in iterate(part, topics, log):
            log[entry.topic].append(entry.message)
            log.arrival_s[entry.topic].append(entry.arrival_s)
            begun_s, ended_s = (entry.arrival_s if math.isnan(begun_s) else begun_s), entry.arrival_s
        if not first:
            log.metadata = metadata
            log.pauses.append(Pause(part, begun_s - before_s if topics is None else math.nan))
    return log


def parts(path: Path) -> list[Path]:
    """The file itself and the parts that a restarted recorder wrote after it, in order.

    A part says in its metadata which log it continues, so that one that is missing or of another flight hides none behind
    it. A log of before 2026-11-22 does not; there the name decides, and the first that is missing is the end.
    """
    found = [path]
    if not path.name:
        return found
    numbered = re.compile(rf"{re.escape(path.stem)}_([1-9][0-9]{{0,3}}){re.escape(path.suffix)}")
    beside = ((numbered.fullmatch(file.name), file) for file in path.parent.glob(f"{glob.escape(path.stem)}_*"))
    for number, part in sorted((int(match[1]), file) for match, file in beside if match):
        metadata = first_metadata(part)
        if metadata.get("continues") == path.name or (
            metadata and "schemas" not in metadata and number == len(found) + 1
        ):
            found.append(part)
    return found


def side_cars(log_file: Path) -> list[Path]:
    """The side-cars of the photographs that the recorder wrote beside the parts of a log, as `LogWriter` names them."""
    folder = log_file.parent
    return [f for part in parts(log_file) for f in sorted(folder.glob(f"{glob.escape(part.stem)}_photo_*.json"))]


def first_metadata(path: Path) -> dict[str, str]:
    """The first metadata of a file; empty if it is no log."""
    try:
        with path.open("rb") as stream:
            for record in StreamReader(stream, emit_chunks=True, record_size_limit=HEAD_MAX_BYTES).records:
                if isinstance(record, Chunk):
                    break
                if isinstance(record, Metadata) and record.name == METADATA:
                    return dict(record.metadata)
    except (OSError, *BROKEN):
        pass
    return {}


def log_problems(path: str | Path) -> list[str]:
    """`Log.problems` of a file; raises `LogError` if it is not a log."""
    return read_log(path).problems()


def iterate(path: str | Path, topics: Iterable[TopicName] | None = None, log: Log | None = None) -> Iterator[LogEntry]:
    """The messages of a log one by one, in order of arrival.

    log: receives metadata, truncation and what could not be read. Raises `LogError`.
    """
    log = Log(Path(path)) if log is None else log
    wanted = set(TOPICS if topics is None else topics)
    if unknown := wanted - set(TOPICS):
        raise LogError(f"{path}: there is no topic '{sorted(unknown)[0]}'")
    try:
        stream = Path(path).open("rb")  # noqa: SIM115 (closed by the with below)
        size = Path(path).stat().st_size
    except OSError as error:
        raise LogError(f"{path}: cannot be read: {error.strerror}") from None
    with stream:
        names: dict[int, TopicName] = {}
        unknown_names: dict[int, str] = {}
        channels = 0
        for record in _records(stream, size, path, log, None if topics is None else wanted):
            if isinstance(record, Channel):
                channels += 1
                topic = _known(aliases.topic_of(record.topic))
                if record.message_encoding != "json" or "copy" in record.metadata:
                    continue
                if topic is not None:
                    names[record.id] = topic
                else:
                    unknown_names[record.id] = record.topic
            elif isinstance(record, Metadata) and record.name == METADATA:
                log.metadata.update(record.metadata)
            elif isinstance(record, Unpacked):
                topic = _known(aliases.topic_of(record.topic))
                if topic is None:
                    log.note_undecodable(record.topic, "no such topic in this version")
                    continue
                try:
                    message = from_plain(topic, record.message)
                except msgspec.MsgspecError as error:
                    log.note_undecodable(topic, str(error))
                    continue
                yield LogEntry(record.arrival_ns / 1e9, topic, message)
            elif isinstance(record, Record):
                topic = names.get(record.channel_id)
                if topic is None:
                    if record.channel_id in unknown_names and topics is None:
                        log.note_undecodable(unknown_names[record.channel_id], "no such topic in this version")
                elif topic in wanted:
                    try:
                        message = decode(topic, record.data)
                    except msgspec.MsgspecError as error:
                        log.note_undecodable(topic, str(error))
                        continue
                    yield LogEntry(record.log_time / 1e9, topic, message)
        if not log.metadata and not names:
            raise LogError(
                f"{path}: not a flight log of this stack" + (" (MCAP of something else)" if channels else "")
            )


def _known(name: str) -> TopicName | None:
    return next((topic for topic in TOPICS if topic == name), None)


def _records(
    stream: BinaryIO, size: int, path: str | Path, log: Log, wanted: set[TopicName] | None
) -> Iterator[McapRecord | Unpacked]:
    """MCAP records up to the end or the first break; in place of packed messages these one by one."""
    limit = min(max(size, 1024), CHUNK_MAX_BYTES + 1024)  # [bytes] of a record: its head beside its content
    records = StreamReader(stream, emit_chunks=True, record_size_limit=limit, validate_crcs=True).records
    left = CHUNK_MAX_BYTES + EXPANSION_MAX * size  # [bytes] that the chunks may hold together
    complete = False
    reader: BatchReader | None = None
    packed: set[int] = set()
    names = None if wanted is None else {*wanted, *(old for old, new in aliases.TOPICS.items() if new in wanted)}
    try:
        for record in records:
            if isinstance(record, Chunk):
                data = _checked(record)
                left -= len(data)
                if left < 0:
                    raise ChunkTooLarge
                for one in chunk_records(data):
                    if isinstance(one, Channel) and one.message_encoding == ENCODING:
                        packed.add(one.id)
                    if not (isinstance(one, Record) and one.channel_id in packed):
                        yield one
                        continue
                    if reader is None:
                        raise ValueError("packed without names")
                    found = reader.read(one.data, names)
                    yield from found
            else:
                if isinstance(record, Metadata) and DICTIONARY in record.metadata:
                    reader = BatchReader(record.metadata[DICTIONARY])
                complete = complete or isinstance(record, Footer)
                yield record
    except InvalidMagic:
        if stream.tell() <= 16 or not log.metadata:
            raise LogError(f"{path}: not a flight log (not an MCAP file)") from None
    except BROKEN as error:
        if stream.tell() < 8 or size < 8:
            raise LogError(f"{path}: not a flight log ({size} bytes)") from error
        log.oversize = str(error) if isinstance(error, ChunkTooLarge) else log.oversize
        complete = complete and not isinstance(error, ChunkTooLarge)
    log.truncated = not complete


def _checked(chunk: Chunk) -> bytes:
    """The records of a chunk; raises what `chunk_data` raises, ValueError for a wrong checksum."""
    data = chunk_data(chunk.compression, chunk.data, chunk.uncompressed_size)
    if chunk.uncompressed_crc and zlib.crc32(data) != chunk.uncompressed_crc:
        raise ValueError("checksum of a chunk")
    return data


def series(messages: Iterable[Message], field: str) -> tuple[Array, Array]:
    """(stamps [s], values) of one field, shapes (n,) and (n,) or (n, k); empty arrays for no messages."""
    messages = list(messages)
    if not messages:
        return np.zeros(0), np.zeros(0)
    stamps = np.array([m.stamp_s for m in messages])
    return stamps, np.array([getattr(m, field) for m in messages], dtype=float)
