"""All messages of about a second as one record of a log.

Each topic is packed by itself (`packing`, `link_packing`), so a reader unpacks what it wants. The result is compressed with a
dictionary of the names of all fields, which stands in the head of the log: the names take no space in each record.
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
from companion.recording.link_packing import Link, pack_link, unpack_link
from companion.recording.packing import (
    DAMAGED,
    INTEGER,
    PLAIN_MAX_BYTES,
    Coder,
    Decoder,
    Packed,
    Packer,
    template_of,
    unpack,
)

CHANNEL, ENCODING = "packed", "companion-packed"
CHANNEL_ID = 1  # the first channel of each log
DICTIONARY = "packed_names"  # name of the dictionary in the metadata; base64
MESSAGES_MAX, BYTES_MAX = 20_000, 2_000_000  # of one batch; several follow each other
VERSION = 1
LEVEL = 6  # of zstd
# Topics with raw bytes, and the field that holds them.
BYTES_FIELDS: dict[TopicName, str] = {
    topic: field.name
    for topic, row in TOPICS.items()
    if row.logged
    for field in msgspec.structs.fields(row.type)
    if field.type is bytes
}


class Section(msgspec.Struct, array_like=True):
    """The messages of one topic."""

    topic: str
    packed: Packed
    field: str  # of raw bytes, which are empty in the messages; "": none
    link: Link | None


class Record(msgspec.Struct, array_like=True):
    """A batch as it is written."""

    version: int
    sources: bytes  # for each message, in order of arrival, the number of its section
    first_ns: int  # times of arrival: `arrivals` different ones, in units since this one, each with the number of its messages
    unit_ns: int
    arrivals: int
    head: bytes
    data: bytes
    sections: list[Section]


class Unpacked(NamedTuple):
    """One message of a batch: MessagePack, and the raw bytes that belong into a field of it."""

    arrival_ns: int
    place: int  # in the order of arrival
    topic: str  # as the log names it
    data: bytes
    field: str
    raw: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)


def dictionary() -> bytes:
    """The names of all fields of this version, in the order in which messages hold them."""
    words = [
        b"".join(_encoder.encode(member.value) + b"\xc1" for member in kind)
        for kind in vars(enums).values()
        if isinstance(kind, type) and issubclass(kind, enum.StrEnum)
    ]
    examples = [
        template_of(_encoder.encode(_example(inspect.type_info(row.type)))) for row in TOPICS.values() if row.logged
    ]
    return b"".join([*words, *examples])


def _example(kind: inspect.Type) -> Any:
    """Plain data of the form of a message."""
    match kind:
        case inspect.StructType():
            tag = {kind.tag_field: kind.tag} if kind.tag_field else {}
            return tag | {field.encode_name: _example(field.type) for field in kind.fields}
        case inspect.UnionType():
            return _example(next(one for one in kind.types if not isinstance(one, inspect.NoneType)))
        case inspect.FloatType():
            return 0.5
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


class BatchPacker:
    """Packs batches of one log."""

    def __init__(self, names: bytes) -> None:
        self._packers: dict[TopicName, Packer] = {}
        held = zstandard.ZstdCompressionDict(names, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        self._compressor = zstandard.ZstdCompressor(level=LEVEL, dict_data=held)

    def pack(self, messages: Sequence[tuple[TopicName, bytes, bytes, int]]) -> bytes:
        """Pack messages in order of arrival: topic, MessagePack, raw bytes apart, time of arrival [ns]."""
        numbers: dict[TopicName, int] = {}
        sources = bytes([numbers.setdefault(topic, len(numbers)) for topic, _, _, _ in messages])
        by_topic: dict[TopicName, list[tuple[bytes, bytes]]] = {topic: [] for topic in numbers}
        for topic, data, raw, _ in messages:
            by_topic[topic].append((data, raw))
        sections = []
        for topic, own in by_topic.items():
            packer = self._packers.setdefault(topic, Packer())
            field = BYTES_FIELDS.get(topic, "")
            link = pack_link([raw for _, raw in own]) if field else None
            packed = packer.pack([data for data, _ in own])
            sections.append(Section(topic, packed, field, link))
        stamps = np.array([arrival_ns for *_, arrival_ns in messages], np.int64)
        new = np.flatnonzero(np.diff(stamps, prepend=stamps[0] - 1))
        counts = np.diff(new, append=len(stamps))
        coder = Coder()
        unit = int(np.gcd.reduce(stamps[new] - stamps[0])) or 1
        table = np.stack(((stamps[new] - stamps[0]) // unit, counts), axis=1)
        coder.add(table, np.full(2, INTEGER, np.uint8), np.zeros(2, np.uint8))
        record = Record(VERSION, sources, int(stamps[0]), unit, len(new), *coder.data(), sections)
        return self._compressor.compress(_encoder.encode(record))


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

        Raises ValueError for damaged bytes.
        """
        try:
            return self._read(data, topics)
        except (zstandard.ZstdError, LookupError, OverflowError, TypeError):
            raise ValueError(DAMAGED) from None

    def _read(self, data: bytes, topics: Collection[str] | None) -> list[Unpacked]:
        if not 0 <= zstandard.frame_content_size(data) <= PLAIN_MAX_BYTES:
            raise ValueError(DAMAGED)
        try:
            record = _decoder.decode(self._decompressor.decompress(data))
        except msgspec.MsgspecError:
            raise ValueError(DAMAGED) from None
        if record.version != VERSION:
            raise ValueError(f"packed by another version ({record.version})")
        sources = np.frombuffer(record.sources, np.uint8)
        stamps = _arrivals(record, len(sources))
        found: list[Unpacked] = []
        if sources.max(initial=0) >= len(record.sections):
            raise ValueError(DAMAGED)
        for number, section in enumerate(record.sections):
            if topics is None or section.topic in topics:
                places = np.flatnonzero(sources == number)
                found += _unpacked(section, places.tolist(), stamps[places].tolist())
        return sorted(found, key=lambda one: one.place)


def _arrivals(record: Record, messages: int) -> Any:
    if not 1 <= record.arrivals <= messages:
        raise ValueError(DAMAGED)
    decoder = Decoder(record.head, record.data, np.full(2, record.arrivals, np.int64))
    table = decoder.take(record.arrivals, 2)
    counts = table[:, 1]
    if (counts < 0).any() or counts.sum() != messages:
        raise ValueError(DAMAGED)
    return np.repeat(record.first_ns + record.unit_ns * table[:, 0], counts)


def _unpacked(section: Section, places: list[int], stamps: list[int]) -> Iterator[Unpacked]:
    messages = unpack(section.packed)
    raws = unpack_link(section.link) if section.link is not None else [b""] * len(messages)
    if not len(messages) == len(raws) == len(places):
        raise ValueError(DAMAGED)
    for place, arrival_ns, data, raw in zip(places, stamps, messages, raws, strict=True):
        yield Unpacked(arrival_ns, place, section.topic, data, section.field, raw)


def without_raw(topic: TopicName, message: Message) -> tuple[Message, bytes]:
    """A message without its raw bytes, and these."""
    field = BYTES_FIELDS.get(topic)
    if field is None:
        return message, b""
    return msgspec.structs.replace(message, **{field: b""}), getattr(message, field)
