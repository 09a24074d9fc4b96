"""Whether a recorder that starts in a folder of logs goes on with the flight of the recorder before it.

It does when the newest flight of the folder was written since the last start of the computer (only then its times are on
the same clock), no other process writes it, the last known state of the flight controller is armed, and the log ended a
short time ago. All of this is in the logs themselves: a recorder that was killed leaves nothing else behind.
"""

import struct
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import msgspec
from mcap.data_stream import ReadDataStream
from mcap.records import Chunk
from mcap.records import Message as Record

from companion.core.messages import TOPIC_OF, FcuStatus
from companion.recording.batches import CHANNEL_ID, DICTIONARY, BatchReader
from companion.recording.chunks import CHUNK_MAX_BYTES, chunk_data, chunk_records
from companion.recording.codec import from_plain
from companion.recording.log import BROKEN, first_metadata
from companion.recording.retention import flights_in, is_written

PAUSE_MAX_S = (
    60.0  # a supervisor restarts a recorder within seconds; in a minute an aircraft can land and another flight begin
)
CHUNKS_MAX = 60  # about a minute of the log's end, in which a state of the flight controller is looked for
MAGIC_BYTES, HEAD_BYTES, CHUNK = 8, 9, 0x06  # of the file, of a record, and the kind of a chunk


class LogEnd(NamedTuple):
    """The end of a log: its last arrival [s], and whether the flight controller was armed; None: not known."""

    end_s: float
    armed: bool | None


def flight_to_continue(folder: Path, boot_id: str, now_s: float) -> Path | None:
    """The log of the flight that is in the air according to the newest logs of a folder; None without one.

    boot_id: of this start of the computer, "" is no start. now_s: companion time. Nothing raises.
    """
    flights = flights_in(folder)
    if not flights or not boot_id:
        return None
    newest_s = -float("inf")
    for part in reversed(flights[-1].logs):
        metadata = first_metadata(part)
        if not metadata:
            continue  # its recorder was killed before it had written anything
        if metadata.get("boot_id") != boot_id or is_written(part):
            return None
        end = log_end(part, metadata)
        newest_s = max(newest_s, end.end_s)
        if now_s - newest_s > PAUSE_MAX_S or end.armed is False:
            return None
        if end.armed:
            return flights[-1].log
    return None


def log_end(path: Path, metadata: dict[str, str]) -> LogEnd:
    """The end of a log, complete or not, without reading what stands before it. metadata: of its head."""
    chunks = _chunk_places(path)
    try:
        started_s = float(metadata.get("start_s", "-inf"))
    except ValueError:
        started_s = -float("inf")
    end_s = max([started_s, *(chunk.end_ns / 1e9 for chunk in chunks)])
    for chunk in reversed(chunks[-CHUNKS_MAX:]):
        if (status := _last_status(path, chunk, metadata)) is not None:
            return LogEnd(end_s, status.armed)
    return LogEnd(end_s, None)


class _ChunkPlace(NamedTuple):
    begin: int  # of its content, in bytes of the file
    size: int
    end_ns: int  # last arrival


def _chunk_places(path: Path) -> list[_ChunkPlace]:
    """The complete chunks of a file, from the heads of its records alone."""
    places: list[_ChunkPlace] = []
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            at = MAGIC_BYTES
            while at + HEAD_BYTES <= size:
                stream.seek(at)
                kind, length = struct.unpack("<BQ", stream.read(HEAD_BYTES))
                at += HEAD_BYTES
                if kind == CHUNK and 16 <= length <= min(size - at, CHUNK_MAX_BYTES):
                    _, end_ns = struct.unpack("<QQ", stream.read(16))
                    places.append(_ChunkPlace(at, length, end_ns))
                at += length
    except (OSError, struct.error, OverflowError):
        pass
    return places


def _last_status(path: Path, place: _ChunkPlace, metadata: dict[str, str]) -> FcuStatus | None:
    """The last status in a chunk that came over a connection; None without one."""
    found = None
    topic = TOPIC_OF[FcuStatus]
    try:
        with path.open("rb") as stream:
            stream.seek(place.begin)
            chunk = Chunk.read(ReadDataStream(BytesIO(stream.read(place.size))))
        reader = BatchReader(metadata[DICTIONARY])
        for record in chunk_records(chunk_data(chunk.compression, chunk.data, chunk.uncompressed_size)):
            if isinstance(record, Record) and record.channel_id == CHANNEL_ID:
                for row in reader.read(record.data, (topic,)):
                    status = from_plain(topic, row.message)
                    if isinstance(status, FcuStatus) and status.valid and status.connected:
                        found = status
    except (OSError, msgspec.MsgspecError, *BROKEN):
        return found
    return found
