"""Messages as bytes: [topic + "/" + process, version of the type's schema, MessagePack].

Messages of a peer whose type differs, and bytes that do not decode, raise `BadMessage`; one line names the peer and both
versions.
"""

import hashlib

import msgspec

from companion.core.enums import TopicName
from companion.core.messages import TOPIC_OF, TOPICS, Message
from companion.core.text import plain

BULK: frozenset[TopicName] = frozenset(("image", "photo", "stereo", "depth"))  # topics with pictures
# The largest payload that is sent and accepted [bytes]. A picture of the largest camera of a vehicle file (8192 x 8192)
# has 67 MB; every other message has less than 100 kB.
MESSAGE_MAX_BYTES = 1_000_000
BULK_MAX_BYTES = 80_000_000


def schema_version(kind: type[Message]) -> bytes:
    """8 bytes that change whenever the fields of a message type change."""
    schema = msgspec.json.encode(msgspec.json.schema(kind), order="deterministic")
    return hashlib.sha256(schema).digest()[:8]


VERSIONS = {topic: schema_version(row.type) for topic, row in TOPICS.items()}
_HEADS = {topic: topic.encode() + b"/" for topic in TOPICS}
_READERS = {
    topic.encode(): (topic, VERSIONS[topic], msgspec.msgpack.Decoder(row.type)) for topic, row in TOPICS.items()
}
_ENCODER = msgspec.msgpack.Encoder()


class BadMessage(Exception):
    """Bytes that are not a message of the table; the text is one line."""


class OtherVersion(BadMessage):
    """A peer's table has another type for this topic."""


def encode(message: Message, process: str = "") -> list[bytes]:
    """The frames of a message on the wire; process: name of the publisher."""
    topic = TOPIC_OF[type(message)]
    return [_HEADS[topic] + process.encode(), VERSIONS[topic], _ENCODER.encode(message)]


def decode(frames: list[bytes]) -> Message:
    """The message in frames from the wire; raises `BadMessage`, and `OtherVersion` for a peer with another table."""
    if len(frames) != 3:
        raise BadMessage(f"bus message of {len(frames)} frames instead of 3")
    head, _, process = frames[0].partition(b"/")
    entry = _READERS.get(head)
    if entry is None:
        raise BadMessage(f"unknown topic {_shown(head)!r} on the bus")
    topic, version, decoder = entry
    if frames[1] != version:
        raise OtherVersion(
            f"{topic}: {_shown(process) or 'a peer'} speaks version {frames[1][:8].hex()} of this message, "
            f"this process {version.hex()}; restart both from one installation"
        )
    try:
        return decoder.decode(frames[2])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage(f"{topic}: undecodable message: {plain(str(error), 200)}") from None


def topic_of(head: bytes) -> TopicName | None:
    """The topic that the first frame of a message names, None when the table has none of that name."""
    entry = _READERS.get(head.partition(b"/")[0])
    return None if entry is None else entry[0]


def _shown(raw: bytes) -> str:
    """A name given by an unknown sender, as at most 40 printable characters."""
    return plain(raw[:40].decode("utf-8", "replace"))


def size_max(topic: TopicName) -> int:
    """The largest payload of a topic [bytes]."""
    return BULK_MAX_BYTES if topic in BULK else MESSAGE_MAX_BYTES


def len_of(message: Message) -> int:
    """Size of the bulk data a message carries [bytes]; 0 for all but images and photographs."""
    return len(getattr(message, "data", b"") or getattr(message, "png", b""))
