"""Messages as JSON, and their JSON schemas in the subset that log viewers read.

JSON has no infinity and no NaN, so such a number is written as null, and what it was is kept under one extra key:
``"_nonfinite": [["marker_age_s", "inf"]]`` (path of keys and indices, then the value). Reading restores it, so a
replay sees exactly what flew. The key is absent from the great majority of messages.
"""

import hashlib
import math
from typing import Any

import msgspec
import numpy as np

from companion.core import aliases
from companion.core.enums import TopicName
from companion.core.messages import TOPICS, Message

Path = list[str | int]  # keys and indices from the top of a message to one number

NONFINITE = "_nonfinite"
_MARK = b'"_nonfinite"'


def plain(value: Any) -> Any:
    """numpy scalars and arrays as plain data: a message whose sender did not convert them is logged all the same."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise NotImplementedError(f"{type(value).__name__} cannot be logged")


_encoder = msgspec.json.Encoder(enc_hook=plain)
_decoders = {topic: msgspec.json.Decoder(row.type) for topic, row in TOPICS.items()}


def encode(message: Message) -> bytes:
    """One message as JSON; bytes fields as base64."""
    data = _encoder.encode(message)
    if b"null" not in data:
        return data
    places: list[Path] = []
    _find(msgspec.to_builtins(message, enc_hook=plain), [], places)
    if not places:
        return data
    return data[:-1] + b"," + _MARK + b":" + _encoder.encode(places) + b"}"


def decode(topic: TopicName, data: bytes) -> Message:
    """The message that `encode` wrote, also an older version of it (`companion.core.aliases`).

    topic: its present name. Raises KeyError for an unknown topic, msgspec.MsgspecError for anything else.
    """
    try:
        return _decoded(topic, data)
    except msgspec.ValidationError:
        fields = _restored(data)
        renamed = aliases.renamed_message(topic, fields) if isinstance(fields, dict) else fields
        if renamed == fields:
            raise
        return msgspec.convert(renamed, TOPICS[topic].type)


def from_plain(topic: TopicName, fields: Any) -> Message:
    """The message of plain data, also of an older version of it; as `decode`."""
    try:
        return msgspec.convert(fields, TOPICS[topic].type)
    except msgspec.ValidationError:
        renamed = aliases.renamed_message(topic, fields) if isinstance(fields, dict) else fields
        if renamed == fields:
            raise
        return msgspec.convert(renamed, TOPICS[topic].type)


def _decoded(topic: TopicName, data: bytes) -> Message:
    if _MARK not in data:
        return _decoders[topic].decode(data)
    return msgspec.convert(_restored(data), TOPICS[topic].type)


def _restored(data: bytes) -> Any:
    """The plain data of a message, its infinities and NaN in place."""
    try:
        tables = msgspec.json.decode(data)
        if isinstance(tables, dict) and NONFINITE in tables:
            for *path, last, text in tables.pop(NONFINITE):
                place = tables
                for step in path:
                    place = place[step]
                place[last] = float(text)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise msgspec.ValidationError(f"bad {NONFINITE}: {error}") from None
    return tables


def _find(value: Any, path: Path, places: list[Path]) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            places.append([*path, str(value)])
    elif isinstance(value, dict):
        for key, item in value.items():
            _find(item, [*path, key], places)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            _find(item, [*path, i], places)


def schema_hashes() -> dict[str, str]:
    """For each logged topic the first 16 hex digits of the SHA-256 of its JSON schema."""
    encoder = msgspec.json.Encoder(order="deterministic")
    return {
        topic: hashlib.sha256(encoder.encode(json_schema(topic))).hexdigest()[:16]
        for topic, row in TOPICS.items()
        if row.logged
    }


def json_schema(topic: TopicName) -> dict[str, Any]:
    """JSON schema of a topic's messages: no references, tuples as arrays, unions as one object with all fields.

    That is the subset Foxglove, Lichtblick and PlotJuggler read. A field that is null has no value at that moment.
    """
    return flattened(TOPICS[topic].type)


def flattened(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """JSON schema of a type, as `json_schema`."""
    _, components = msgspec.json.schema_components([kind], ref_template="{name}")
    return _flatten(components[kind.__name__], components)


def _flatten(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return _flatten(components[schema["$ref"]], components)
    if "anyOf" in schema:
        options = [_flatten(s, components) for s in schema["anyOf"] if s != {"type": "null"}]
        if len(options) == 1:
            return options[0]
        merged: dict[str, Any] = {"type": "object", "properties": {}}
        for option in options:
            merged["properties"] |= {k: v for k, v in option["properties"].items() if k != "type"}
        tags = [tag for option in options for tag in option["properties"].get("type", {}).get("enum", [])]
        if tags:
            merged["properties"]["type"] = {"type": "string", "enum": tags}
        return merged
    kind = schema.get("type")
    if kind == "object":
        flat: dict[str, Any] = {"type": "object"}
        if "description" in schema:
            flat["description"] = schema["description"]
        if "properties" in schema:
            flat["properties"] = {k: _flatten(v, components) for k, v in schema["properties"].items()}
        if isinstance(schema.get("additionalProperties"), dict):
            flat["additionalProperties"] = _flatten(schema["additionalProperties"], components)
        return flat
    if kind == "array":
        items = schema["prefixItems"][0] if schema.get("prefixItems") else schema.get("items") or {}
        return {"type": "array", "items": _flatten(items, components)}
    if "enum" in schema and kind is None:
        return {"type": "string", "enum": schema["enum"]}
    return {k: schema[k] for k in ("type", "contentEncoding", "enum") if k in schema}
