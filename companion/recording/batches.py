"""All messages of about a second as one record of a log.

Messages of one topic that differ in numbers only have one form, and their numbers are a table (`columns`). Bytes of the MAVLink
connection go another way (`link_frames`). Each topic is packed by itself, so a reader unpacks what it wants. The result is
compressed with a dictionary of the names of all fields, which stands in the head of the log: the names take no space in each record.
"""

import base64
import binascii
import enum
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import zstandard
from msgspec import inspect

from companion.core import enums
from companion.core.enums import TopicName
from companion.core.messages import TOPICS, Message
from companion.recording.codec import plain
from companion.recording.columns import DAMAGED, Table, packed, unpacked
from companion.recording.forms import Leaves, put_back, taken_out
from companion.recording.link_frames import GROUPS_MAX, Link, LinkPacker, unpack_link

CHANNEL, ENCODING = "packed", "companion-packed"
CHANNEL_ID = 1  # the first channel of each log
DICTIONARY = "packed_names"  # name of the dictionary in the metadata; base 85
MESSAGES_MAX, BATCH_MAX_BYTES = 4_000, 2_000_000  # of one batch; several follow each other
ROW_MAX_BYTES = 1_000_000  # a longer message is not logged
# What a batch may take that is read: numbers of all tables and one for each row, forms of all messages, frames of the connection.
NUMBERS_MAX, FORMS_MAX_BYTES, FRAMES_MAX = 2_000_000, 4_000_000, 50_000
RECORD_MAX_BYTES = 16_000_000  # decompressed
VERSION = 1
LEVEL = 6  # of zstd


class Group(msgspec.Struct, array_like=True):
    """Messages of one form, which is MessagePack; numbers: a row of each message."""

    form: bytes
    numbers: Table


class Section(msgspec.Struct, array_like=True):
    """The messages of one topic. order: the number of the group of each, two bytes; link: the bytes of all of them, one after another."""

    topic: str
    groups: list[Group]
    order: bytes
    link: Link | None


class Batch(msgspec.Struct, array_like=True):
    """A batch as it is written.

    sources: the number of the section of each message, in order of arrival; arrivals: each time of arrival [ns], and the
    number of messages in a row that have it.
    """

    version: int
    sources: bytes
    arrivals: Table
    sections: list[Section]


class Row(NamedTuple):
    """One message as a batch takes it."""

    topic: TopicName
    form: bytes
    leaves: Leaves
    arrival_ns: int

    @property
    def size(self) -> int:
        """About the bytes that it takes before it is packed."""
        numbers = len(self.leaves.floats) + len(self.leaves.integers)
        return len(self.form) + 8 * numbers + sum(map(len, self.leaves.texts))


class Unpacked(NamedTuple):
    """One message of a batch, as plain data."""

    arrival_ns: int
    topic: str  # as the log names it
    message: Any


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Batch)


def dictionary() -> bytes:
    """The names of all fields of this version, in the order in which messages hold them, and what enumerations hold."""
    words = [
        b"".join(_encoder.encode(member.value) + b"\xc1" for member in kind)
        for kind in vars(enums).values()
        if isinstance(kind, type) and issubclass(kind, enum.StrEnum)
    ]
    examples = [_encoder.encode(_example(inspect.type_info(row.type))) for row in TOPICS.values() if row.logged]
    return b"".join([*words, *examples])


def _example(kind: inspect.Type) -> Any:
    """The form of a message."""
    match kind:
        case inspect.StructType():
            tag = {kind.tag_field: kind.tag} if kind.tag_field else {}
            return tag | {field.encode_name: _example(field.type) for field in kind.fields}
        case inspect.UnionType():
            return _example(next(one for one in kind.types if not isinstance(one, inspect.NoneType)))
        case inspect.FloatType():
            return 0.0
        case inspect.IntType():
            return 0
        case inspect.BoolType():
            return False
        case inspect.BytesType():
            return b""
        case inspect.TupleType():
            return [_example(one) for one in kind.item_types]
        case inspect.ListType() | inspect.VarTupleType():
            return [_example(kind.item_type)]
        case inspect.DictType():
            return {}
        case _:
            return ""


def dictionary_text(names: bytes) -> str:
    """A dictionary as text for the metadata of a log."""
    return base64.b85encode(names).decode()


def row_of(topic: TopicName, message: Message, arrival_ns: int) -> Row:
    """A message for a batch.

    Raises what msgspec raises for one that cannot be encoded, OverflowError for a number beyond 64 bits, ValueError for one beyond
    `ROW_MAX_BYTES`.
    """
    leaves = Leaves([], [], [])
    form = taken_out(msgspec.to_builtins(message, builtin_types=(bytes,), enc_hook=plain), leaves)
    if leaves.integers and not -(2**63) <= min(leaves.integers) <= max(leaves.integers) < 2**63:
        raise OverflowError("a number is beyond 64 bits")
    row = Row(topic, _encoder.encode(form), leaves, arrival_ns)
    if row.size > ROW_MAX_BYTES:
        raise ValueError(f"{row.size} bytes, more than {ROW_MAX_BYTES}")
    return row


class BatchPacker:
    """Packs batches of one log."""

    def __init__(self, names: bytes) -> None:
        self._links: dict[TopicName, LinkPacker] = {}
        held = zstandard.ZstdCompressionDict(names, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        self._compressor = zstandard.ZstdCompressor(level=LEVEL, dict_data=held)

    def pack(self, rows: Sequence[Row]) -> bytes:
        """Pack messages in order of arrival."""
        by_topic: dict[TopicName, list[Row]] = {}
        for row in rows:
            by_topic.setdefault(row.topic, []).append(row)
        numbers = {topic: number for number, topic in enumerate(by_topic)}
        sources = bytes([numbers[row.topic] for row in rows])
        stamps = np.array([row.arrival_ns for row in rows], np.int64)
        new = np.flatnonzero(np.diff(stamps, prepend=stamps[0] - 1))
        arrivals = np.column_stack((stamps[new], np.diff(new, append=len(rows))))
        sections = [self._section(topic, own) for topic, own in by_topic.items()]
        batch = Batch(VERSION, sources, packed(np.zeros((len(new), 0)), arrivals), sections)
        return self._compressor.compress(_encoder.encode(batch))

    def _section(self, topic: TopicName, rows: list[Row]) -> Section:
        by_form: dict[bytes, list[Leaves]] = {}
        for row in rows:
            by_form.setdefault(row.form, []).append(row.leaves)
        numbers = {form: number for number, form in enumerate(by_form)}
        order = np.array([numbers[row.form] for row in rows], np.uint16)
        groups = [
            Group(
                form, packed(np.array([one.floats for one in own]), np.array([one.integers for one in own], np.int64))
            )
            for form, own in by_form.items()
        ]
        texts = [text for row in rows for text in row.leaves.texts]
        link = self._links.setdefault(topic, LinkPacker()).pack(texts) if texts else None
        return Section(topic, groups, order.tobytes(), link)


class BatchReader:
    """Reads batches of one log."""

    def __init__(self, text: str) -> None:
        """text: the dictionary as it stands in the metadata; raises ValueError if it is damaged."""
        try:
            names = base64.b85decode(text)
        except (ValueError, binascii.Error):
            raise ValueError(DAMAGED) from None
        held = zstandard.ZstdCompressionDict(names, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        self._decompressor = zstandard.ZstdDecompressor(dict_data=held)

    def read(self, data: bytes, topics: Collection[str] | None = None) -> list[Unpacked]:
        """The messages of a batch, or those of some topics, in order of arrival.

        Raises ValueError for damaged bytes. What a batch may take is judged before anything is unpacked.
        """
        try:
            return self._read(data, topics)
        except (
            zstandard.ZstdError,
            msgspec.MsgspecError,
            UnicodeDecodeError,
            LookupError,
            OverflowError,
            TypeError,
            RecursionError,
            MemoryError,
        ):
            raise ValueError(DAMAGED) from None

    def _read(self, data: bytes, topics: Collection[str] | None) -> list[Unpacked]:
        if not 0 <= zstandard.frame_content_size(data) <= RECORD_MAX_BYTES:
            raise ValueError(DAMAGED)
        batch = _decoder.decode(self._decompressor.decompress(data))
        if batch.version != VERSION:
            raise ValueError(f"packed by another version ({batch.version})")
        _check(batch)
        arrivals = unpacked(batch.arrivals)[1]
        if arrivals.shape[1] != 2 or (arrivals[:, 1] < 0).any() or arrivals[:, 1].sum() != len(batch.sources):
            raise ValueError(DAMAGED)
        stamps = np.repeat(*arrivals.T).tolist()
        wanted = [topics is None or section.topic in topics for section in batch.sections]
        messages = [_messages(section) if w else iter(()) for section, w in zip(batch.sections, wanted, strict=True)]
        found = [
            Unpacked(arrival_ns, batch.sections[number].topic, next(messages[number], None))
            for number, arrival_ns in zip(batch.sources, stamps, strict=True)
            if wanted[number]
        ]
        if any(one.message is None for one in found) or any(next(rest, None) is not None for rest in messages):
            raise ValueError(DAMAGED)
        return found


def _check(batch: Batch) -> None:
    """Raise ValueError for a batch that takes more than any that was written, or whose counts do not agree."""
    links = [section.link for section in batch.sections if section.link is not None]
    groups = [group for section in batch.sections for group in section.groups]
    frames = [group.table for link in links for group in link.groups]
    tables = [batch.arrivals, *(group.numbers for group in groups), *(link.lengths for link in links), *frames]
    good = (
        len(batch.sources) <= MESSAGES_MAX
        and all(0 <= table.rows <= FRAMES_MAX for table in tables)
        and sum(table.rows * (len(table.kinds) + 1) for table in tables) <= NUMBERS_MAX
        and sum(group.numbers.rows * len(group.form) for group in groups) <= FORMS_MAX_BYTES
        and sum(table.rows for table in frames) <= FRAMES_MAX
        and max(batch.sources, default=-1) < len(batch.sections)
        and all(_agrees(section, batch.sources.count(i)) for i, section in enumerate(batch.sections))
    )
    if not good:
        raise ValueError(DAMAGED)


def _agrees(section: Section, messages: int) -> bool:
    """Whether the counts of a section are those of so many messages."""
    rows = [group.numbers.rows for group in section.groups]
    if len(section.order) != 2 * messages or not messages:
        return False
    if np.bincount(np.frombuffer(section.order, np.uint16), minlength=len(rows)).tolist() != rows:
        return False
    link = section.link
    return link is None or (
        0 <= link.pieces <= messages and len(link.groups) <= GROUPS_MAX and len(link.order) <= 2 * FRAMES_MAX
    )


def _messages(section: Section) -> Iterator[Any]:
    texts = iter(unpack_link(section.link) if section.link is not None else [])
    forms = [msgspec.msgpack.decode(group.form) for group in section.groups]
    tables = [unpacked(group.numbers) for group in section.groups]
    rows = [zip(floats.tolist(), integers.tolist(), strict=True) for floats, integers in tables]
    if not all(isinstance(form, dict) for form in forms):
        raise ValueError(DAMAGED)
    for number in np.frombuffer(section.order, np.uint16).tolist():
        row = next(rows[number])
        floats, integers = iter(row[0]), iter(row[1])
        try:
            yield put_back(forms[number], floats, integers, texts)
        except StopIteration:
            raise ValueError(DAMAGED) from None
        if next(floats, None) is not None or next(integers, None) is not None:
            raise ValueError(DAMAGED)
    if next(texts, None) is not None:
        raise ValueError(DAMAGED)
