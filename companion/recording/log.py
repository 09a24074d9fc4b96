"""Reading logs, whole or cut off.

A log whose writer was killed has no index and maybe half a chunk at its end; it is read from the front and gives
everything up to the break.
"""

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from mcap.exceptions import InvalidMagic, McapError
from mcap.records import Channel, Footer, Metadata
from mcap.records import Message as Record
from mcap.stream_reader import StreamReader
from zstandard import ZstdError

from companion.core.config import ConfigError
from companion.core.messages import TOPICS, Message
from companion.recording.codec import decode
from companion.recording.writer import METADATA

BROKEN = (McapError, struct.error, ZstdError, ValueError, MemoryError, OverflowError, EOFError, KeyError)


class LogError(ConfigError):
    """A file cannot be read as a log; the message is one line for the user."""


class Entry(NamedTuple):
    """One logged message and when it reached the recorder [s]."""

    arrival_s: float
    topic: str
    message: Message


class Log(dict[str, list[Message]]):
    """Messages by topic in order of arrival; a topic without messages is an empty list.

    metadata: text by name (vehicle and mission files, software version, start time); arrival_s: times of arrival by
    topic, in step with the messages; truncated: the end is missing; undecodable: messages per topic that this
    version cannot read.
    """

    def __init__(self, path: Path) -> None:
        super().__init__({topic: [] for topic in TOPICS})
        self.path = path
        self.metadata: dict[str, str] = {}
        self.arrival_s: dict[str, list[float]] = {topic: [] for topic in TOPICS}
        self.truncated = False
        self.undecodable: dict[str, int] = {}


def read_log(path: str | Path, topics: Iterable[str] | None = None) -> Log:
    """All messages of a log, or those of some topics; raises `LogError` if the file is not a log.

    A recorder that was started again in flight has gone on in ``<name>_2.mcap`` and so on; these parts are read too.
    """
    log = Log(Path(path))
    for part in parts(Path(path)):
        for entry in iterate(part, topics, log):
            log[entry.topic].append(entry.message)
            log.arrival_s[entry.topic].append(entry.arrival_s)
    return log


def parts(path: Path) -> list[Path]:
    """The file itself and the parts that a restarted recorder wrote after it, in order."""
    found = [path]
    while (following := path.with_stem(f"{path.stem}_{len(found) + 1}")).exists():
        found.append(following)
    return found


def iterate(path: str | Path, topics: Iterable[str] | None = None, log: Log | None = None) -> Iterator[Entry]:
    """The messages of a log one by one, in order of arrival.

    log: receives metadata, truncation and counts of what could not be read. Raises `LogError`.
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
        names: dict[int, str] = {}
        channels = 0
        for record in _records(stream, size, path, log):
            if isinstance(record, Channel):
                channels += 1
                if record.topic in TOPICS and record.message_encoding == "json":
                    names[record.id] = record.topic
            elif isinstance(record, Metadata) and record.name == METADATA:
                log.metadata.update(record.metadata)
            elif isinstance(record, Record):
                topic = names.get(record.channel_id)
                if topic in wanted:
                    try:
                        message = decode(topic, record.data)
                    except msgspec.MsgspecError:
                        log.undecodable[topic] = log.undecodable.get(topic, 0) + 1
                        continue
                    yield Entry(record.log_time / 1e9, topic, message)
        if not log.metadata and not names:
            raise LogError(
                f"{path}: not a flight log of this stack" + (" (MCAP of something else)" if channels else "")
            )


def _records(stream, size: int, path, log: Log) -> Iterator:
    """MCAP records up to the end or the first break."""
    reader = StreamReader(stream, record_size_limit=max(size, 1024), validate_crcs=True)
    records = reader.records
    complete = False
    while True:
        try:
            record = next(records)
        except StopIteration:
            break
        except InvalidMagic:
            if stream.tell() <= 16 or not log.metadata:
                raise LogError(f"{path}: not a flight log (not an MCAP file)") from None
            break
        except BROKEN as error:
            if stream.tell() < 8 or size < 8:
                raise LogError(f"{path}: not a flight log ({size} bytes)") from error
            break
        complete = complete or isinstance(record, Footer)
        yield record
    log.truncated = not complete


def series(messages: list[Message], field: str) -> tuple[np.ndarray, np.ndarray]:
    """(stamps [s], values) of one field, shapes (n,) and (n,) or (n, k); empty arrays for no messages."""
    if not messages:
        return np.zeros(0), np.zeros(0)
    stamps = np.array([m.stamp_s for m in messages])
    return stamps, np.array([getattr(m, field) for m in messages], dtype=float)
