"""Writes the log: an MCAP file that is readable at any moment, even after kill -9.

`LogWriter.flush` packs all messages since the last call into one record (`batches`), closes the chunk and hands everything
to the operating system, so what was flushed survives the death of the process. Beside the packed messages the log holds copies of
some as JSON for the programs of others: all messages of topics on events, and one in `COPY_PERIOD_S` of the others. A full disk or a broken one never raises: bytes that could not be
written wait in the spool (so the file never gets a hole), photographs wait likewise, and what finds no space there is
dropped and counted. A log that is deleted while it is written begins again. What survives a loss of power is up to the
`Disk`.
"""

import contextlib
import datetime
import fcntl
import math
import os
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import msgspec
from mcap.writer import CompressionType, Writer

from companion.core import provenance
from companion.core.config import ConfigError
from companion.core.disk import synchronise_file, synchronise_folder
from companion.core.enums import TopicName
from companion.core.messages import TOPICS, Message
from companion.recording import batches
from companion.recording.batches import BatchPacker, Row, row_of
from companion.recording.codec import encode, json_schema, schema_hashes
from companion.recording.disk import DirectDisk, Disk, write_whole

SPOOL_MAX_BYTES = 16_000_000  # minutes of flight, for a disk that comes back
PHOTOGRAPHS_MAX_BYTES = 64_000_000  # that wait for the disk
CHUNK_BYTES = 4_000_000  # larger than any flush interval fills, so a chunk ends when `flush` says so
COPY_PERIOD_S = 5.0
ARRIVAL_UNIT_NS = 1000
FLOWN_SUFFIX = ".flown"  # of the file beside the log of a flight in which the aircraft was armed; empty, or
BEGUN_ARMED = "begun armed"  # where it was armed when the log began
METADATA = "flight"  # name of the metadata record


def software_facts() -> dict[str, str]:
    """What identifies the code, the computer and the format of the messages; in every log."""
    software, computer = provenance.software(), provenance.computer()
    return {
        "software_version": software.version,
        "commit": software.commit,
        "modified": str(software.modified).lower(),
        "source_hash": software.source_hash,
        "host": computer.host,
        "processor": computer.processor,
        "system": computer.system,
        "python": computer.python,
        "boot_id": provenance.boot_id(),
        "command_line": msgspec.json.encode(provenance.command_line()).decode(),
        "schemas": msgspec.json.encode(schema_hashes()).decode(),
    }


class Spool:
    """The file object under the MCAP writer: buffers all bytes, writes on `drain`, keeps what the disk refused.

    The file is locked (flock(2)) while it is open, so that no other process takes it for a finished log.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        self._locked = False
        self._lock()
        self._waiting = bytearray()
        self._count = 0
        self._synchronised = True  # nothing was written since `synchronise` began

    def _lock(self) -> None:
        with contextlib.suppress(OSError):  # a process that looks for the lock holds it for a moment
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._locked = True

    def write(self, data: bytes) -> int:
        self._waiting += data
        self._count += len(data)
        return len(data)

    def tell(self) -> int:
        return self._count

    def flush(self) -> None:
        """Nothing: the MCAP writer may flush at any time, the disk is touched only by `drain`."""

    def drain(self) -> None:
        """Hand all waiting bytes to the operating system; raises OSError, keeping what is left."""
        if not self._locked:
            self._lock()
        while self._waiting:
            written = os.write(self._fd, self._waiting)
            del self._waiting[:written]
            self._synchronised = False

    def synchronise(self) -> None:
        """Bring onto the disk what was written since the last call; in another thread than `drain`. Raises OSError."""
        if not self._synchronised:
            self._synchronised = True
            os.fdatasync(self._fd)

    @property
    def deleted(self) -> bool:
        """Whether the file has no name any more: it will be lost when it is closed."""
        try:
            return os.fstat(self._fd).st_nlink == 0
        except OSError:
            return False

    @property
    def waiting_bytes(self) -> int:
        return len(self._waiting)

    def close(self) -> None:
        os.close(self._fd)


class _Photograph(NamedTuple):
    """One that waits for the disk: name without number of the copy, picture and side-car's content."""

    name: str
    png: bytes
    facts: dict[str, Any]


class LogWriter:
    """Writes one flight: messages into ``path``, photographs beside it. Not thread safe.

    metadata: text by name, e.g. the vehicle and mission files; `software_facts` and the start time are added.
    start_s: companion time of the start [s], None: the arrival of the first message; start_wall: the same moment on
    the wall clock, default now. disk: brings what was written onto the disk; None: that is left to the operating system.
    later: metadata that may not be known when the log begins; asked at each `flush` until it returns them.
    Raises `ConfigError` if the log cannot be created; nothing raises afterwards.
    """

    def __init__(
        self,
        path: str | Path,
        metadata: dict[str, str],
        start_s: float | None = None,
        start_wall: datetime.datetime | None = None,
        disk: Disk | None = None,
        later: Callable[[], dict[str, str] | None] | None = None,
    ) -> None:
        self.path = Path(path)
        self._later = later
        self.continues = metadata.get("continues", "")  # log of the flight that this one is a part of
        self._disk = disk or DirectDisk()
        self._photographs: deque[_Photograph] = deque()  # that wait for the disk
        self._unsynchronised: deque[Path] = deque()  # files of photographs
        self._failures: deque[str] = deque()  # of jobs of the disk
        self.errors = 0  # failed writes
        self.dropped = 0  # messages that found the spool full or could not be encoded
        self.last_error = ""
        self.written = 0  # messages
        self._start_s = start_s
        self._start_wall = (start_wall or datetime.datetime.now(datetime.UTC)).astimezone(datetime.UTC)
        self._pending: list[tuple[TopicName, Message, float]] = []
        self._closed = self._file_closed = False  # no more messages; no more bytes
        self._metadata = {str(k): _encodable(str(v)) for k, v in (metadata | software_facts()).items()}
        try:
            spool = self._create()
        except FileExistsError:
            raise ConfigError(f"{self.path}: log exists already; logs are never overwritten") from None
        except OSError as error:
            raise ConfigError(f"{self.path}: log cannot be created: {error.strerror}") from None
        self._begin(spool)
        self._drain()

    def _create(self) -> Spool:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        spool = Spool(self.path)
        self._synchronise_folder()
        return spool

    def _begin(self, spool: Spool) -> None:
        """Write the beginning of a log."""
        self._spool = spool
        self._channels: dict[TopicName, int] = {}
        self._mcap = Writer(cast(IO[bytes], spool), chunk_size=CHUNK_BYTES, compression=CompressionType.ZSTD)
        self._mcap.start(profile="", library=f"companion {provenance.package_version()}")
        facts = self._metadata | {"start_time": self._start_wall.isoformat()}
        if self._start_s is not None:
            facts["start_s"] = repr(self._start_s)
        names = batches.dictionary()
        facts[batches.DICTIONARY] = batches.dictionary_text(names)
        self._packer = BatchPacker(names)
        self._copied_s: dict[TopicName, float] = {}  # arrival of the last copy
        self._mcap.add_metadata(METADATA, facts)
        self._mcap.register_channel(batches.CHANNEL, batches.ENCODING, 0)

    def _begin_again(self) -> None:
        """Begin the log again under its name, after it or its folder was deleted; what it had is lost."""
        try:
            spool = self._create()
        except OSError as error:
            self.note_error(f"{self.path}: deleted in flight, cannot be created again: {error.strerror or error}")
            return
        self._close_file()
        self._metadata["deleted_in_flight"] = "true"
        self._begin(spool)
        self.note_error(f"{self.path}: deleted in flight, begun again")

    def put(self, topic: TopicName, message: Message, arrival_s: float) -> None:
        """Take a message for the next `flush`; cheap."""
        if self._start_s is None:
            self._start_s = arrival_s
            self._mcap.add_metadata(METADATA, {"start_s": repr(arrival_s)})
        self._pending.append((topic, message, arrival_s))

    def flush(self) -> None:
        """Pack all messages taken since the last call as one chunk and hand it to the operating system.

        After `finish` it hands over what the disk has refused until then.
        """
        if self._file_closed:
            return
        if not self._closed:
            if self._spool.deleted:
                self._begin_again()
            self._add_later()
            self._pack()
        self._drain()
        self._save_photographs()
        self._note_failures()

    def _add_later(self) -> None:
        """Write the metadata that are known now, also into a log that begins again."""
        try:
            facts = None if self._later is None else self._later()
        except Exception as error:  # nothing raises in flight
            facts = {}
            self.note_error(f"{self.path}: further metadata: {error}")
        if facts is not None:
            self._later = None
            self._metadata |= facts
            if facts:
                self._mcap.add_metadata(METADATA, facts)

    def _pack(self) -> None:
        pending, self._pending = self._pending, []
        if pending and self._spool.waiting_bytes > SPOOL_MAX_BYTES:
            self.dropped += len(pending)
        else:
            rows: list[Row] = []
            size = 0
            for topic, message, arrival_s in pending:
                if (row := self._row(topic, message, arrival_s)) is not None:
                    rows.append(row)
                    size += row.size
                if len(rows) >= batches.MESSAGES_MAX or size >= batches.BATCH_MAX_BYTES:
                    self._write(rows)
                    rows, size = [], 0
            self._write(rows)

    def _row(self, topic: TopicName, message: Message, arrival_s: float) -> Row | None:
        """A message as a batch takes it; None if it cannot be encoded, which is counted. Writes the copy of it, if one is due."""
        log_time = _nanoseconds(arrival_s, ARRIVAL_UNIT_NS)
        try:
            row = row_of(topic, message, log_time)
            if not row.leaves.texts and TOPICS[topic].rate_hz == 0:
                due = True
            else:
                due = not abs(arrival_s - self._copied_s.get(topic, math.inf)) < COPY_PERIOD_S
            text = encode(message) if due else b""
        except (
            msgspec.MsgspecError,
            NotImplementedError,
            TypeError,
            ValueError,
            OverflowError,
            RecursionError,
        ) as error:
            self.dropped += 1
            self.note_error(f"{topic}: cannot be encoded: {error}")
            return None
        if due:
            self._copied_s[topic] = arrival_s
            channel = self._channels.get(topic) or self._open_channel(topic)
            self._mcap.add_message(channel, log_time, text, _nanoseconds(message.stamp_s), message.seq & 0xFFFFFFFF)
        self.written += 1
        return row

    def _write(self, rows: list[Row]) -> None:
        """Write a batch as a chunk; what cannot be packed is dropped and counted, whatever the reason."""
        try:
            packed = self._packer.pack(rows) if rows else b""
        except Exception as error:
            self.dropped += len(rows)
            self.note_error(f"{len(rows)} messages cannot be packed: {error}")
            packed = b""
        if packed:
            self._mcap.add_message(batches.CHANNEL_ID, rows[-1].arrival_ns, packed, rows[0].arrival_ns)
        self._mcap.flush()  # type: ignore[no-untyped-call]  # mcap leaves it without annotations

    def _open_channel(self, topic: TopicName) -> int:
        schema = msgspec.json.encode(json_schema(topic))
        schema_id = self._mcap.register_schema(f"companion.{TOPICS[topic].type.__name__}", "jsonschema", schema)
        self._channels[topic] = self._mcap.register_channel(topic, "json", schema_id, {"copy": "true"})
        return self._channels[topic]

    def _drain(self) -> None:
        try:
            self._spool.drain()
        except OSError as error:
            self.note_error(f"{self.path}: {error.strerror or error}")
        if self._disk.synchronised:
            self._disk.run((self._spool, "log"), self._reporting(self._spool.synchronise))

    def _close_file(self) -> None:
        """Close the file after what the disk has to do with it."""
        self._disk.run((self._spool, "close"), self._reporting(self._spool.close))

    def _synchronise_folder(self) -> None:
        """Bring the names of the log and of the files beside it onto the disk."""
        if self._disk.synchronised:
            folder = self.path.parent
            self._disk.run((folder, "folder"), self._reporting(lambda: synchronise_folder(folder)))

    def _reporting(self, job: Callable[[], None]) -> Callable[[], None]:
        """The same job; what it raises becomes an error of this log."""

        def run() -> None:
            try:
                job()
            except Exception as error:  # nothing ends the disk's thread
                self._failures.append(f"{self.path}: {getattr(error, 'strerror', None) or error}")

        return run

    def _note_failures(self) -> None:
        while self._failures:
            self.note_error(self._failures.popleft())

    def mark_flown(self, begun_armed: bool = False) -> None:
        """Leave a file beside the log: in this flight the aircraft was armed. begun_armed: also when the log began."""
        mark = self.path.with_suffix(FLOWN_SUFFIX)
        try:
            mark.write_text(BEGUN_ARMED if begun_armed else "")
        except OSError as error:
            self.note_error(f"{mark}: {error.strerror or error}")
        self._synchronise_folder()

    def note_error(self, text: str) -> None:
        """Count an error of this log and remember its text."""
        self.errors += 1
        self.last_error = text

    @property
    def size_mb(self) -> float:
        """Of the log so far, with what waits in memory."""
        return self._spool.tell() / 1e6

    def wall_time(self, stamp_s: float) -> str:
        """Companion time as wall clock time (ISO 8601, UTC), counted from the start."""
        return (self._start_wall + datetime.timedelta(seconds=stamp_s - (self._start_s or 0.0))).isoformat()

    def save_photograph(self, number: int, png: bytes, facts: dict[str, Any]) -> None:
        """Write a photograph and its side-car beside the log: ``<log>_photo_001.png`` and ``.json``.

        The side-car comes second and by renaming, so one that exists belongs to a complete picture. One that the disk refuses
        is tried again with each `flush`.
        """
        if len(png) + self._photograph_bytes > PHOTOGRAPHS_MAX_BYTES and self._photographs:
            self.dropped += 1
            self.note_error(f"{self.path.stem}_photo_{number:03d}: dropped, too many photographs wait for the disk")
            return
        self._photographs.append(_Photograph(f"{self.path.stem}_photo_{number:03d}", png, facts))
        self._save_photographs()
        self._note_failures()

    def _save_photographs(self) -> None:
        """Hand those that wait to the operating system, until it refuses one: from there on they survive the end of the process."""
        while self._photographs:
            try:
                self._save(self._photographs[0])
            except Exception as error:  # nothing raises in flight
                name = self.path.with_name(self._photographs[0].name)
                self.note_error(f"{name}: {getattr(error, 'strerror', None) or error}")
                if isinstance(error, OSError):
                    break
            self._photographs.popleft()
        if self._unsynchronised:
            self._disk.run((self.path, "photographs"), self._synchronise_photographs)

    def _synchronise_photographs(self) -> None:
        """Bring the files of photographs onto the disk, then their names; in the disk's thread."""
        while self._unsynchronised:
            target = self._unsynchronised.popleft()
            self._reporting(partial(synchronise_file, target))()
        self._reporting(partial(synchronise_folder, self.path.parent))()

    def _save(self, photograph: _Photograph) -> None:
        name, copy = photograph.name, 1
        while self.path.with_name(f"{name}.json").exists():  # an id that comes twice must not overwrite a picture
            copy += 1
            name = f"{photograph.name}_{copy}"
        part = self.path.with_name(f"{name}.part")
        part.parent.mkdir(parents=True, exist_ok=True)
        text = msgspec.json.encode({"file": f"{name}.png", **photograph.facts})
        picture, side_car = self.path.with_name(f"{name}.png"), self.path.with_name(f"{name}.json")
        try:
            write_whole(picture, photograph.png, part)
            write_whole(side_car, msgspec.json.format(text, indent=2), part)
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise
        if self._disk.synchronised:
            self._unsynchronised.extend((picture, side_car))

    @property
    def _photograph_bytes(self) -> int:
        return sum(len(photograph.png) for photograph in self._photographs)

    @property
    def unwritten_bytes(self) -> int:
        """What the disk has refused or not taken yet: of the log, and photographs."""
        return self._spool.waiting_bytes + self._photograph_bytes

    def finish(self) -> None:
        """Take no more messages: write what is left and the index, as far as the disk takes it; safe to call twice."""
        if self._closed:
            return
        self.flush()
        self._closed = True
        self._mcap.finish()  # type: ignore[no-untyped-call]  # likewise
        self._drain()

    def close(self, patience_s: float = 0.0) -> None:
        """Finish the log and close its file; safe to call twice. What the disk still refuses is lost, and counted.

        patience_s: how long to wait for what the disk has not taken yet, and for the file to be closed.
        """
        if self._file_closed:
            return
        self.finish()
        self.flush()
        self._disk.wait(patience_s)
        if (lost := self.unwritten_bytes) > 0:
            self.note_error(f"{self.path}: {lost} bytes could not be written and are lost")
        self._file_closed = True
        self._close_file()
        self._disk.wait(patience_s)
        self._note_failures()


def _encodable(text: str) -> str:
    """A text that UTF-8 can carry: a file name may hold bytes that it cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _nanoseconds(time_s: float, unit_ns: int = 1) -> int:
    """Time for an MCAP record, a multiple of the unit; what is not a time ≥ 0 counts as 0 (the message itself keeps the true value)."""
    return unit_ns * round(time_s * 1e9 / unit_ns) if math.isfinite(time_s) and 0 <= time_s < 9e9 else 0
