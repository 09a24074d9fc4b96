"""Every message survives the log: JSON that any tool reads, and back to what flew."""

import json
import math
import random
import types
from enum import StrEnum
from typing import Union, get_args, get_origin

import msgspec
import numpy as np
import pytest

from companion.core.messages import TOPICS, FcuAttitude, MapBundle, State
from companion.recording.codec import decode, encode, json_schema


def random_value(kind, rng: random.Random, special: bool):
    """A value of a field's type; special: with infinities, NaN and None where the type allows them."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is float:
        return rng.choice([math.inf, -math.inf, math.nan]) if special and rng.random() < 0.3 else rng.uniform(-1e3, 1e3)
    if kind is int:
        return rng.randrange(-(2**40), 2**40)
    if kind is bool:
        return rng.random() < 0.5
    if kind is str:
        return rng.choice(["", "pier", "null", 'quote " and \\', "ü € 🚁", "_nonfinite", '"_nonfinite"'])
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return rng.choice(list(kind))
    if kind is bytes:
        return rng.randbytes(rng.randrange(40))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return random_message(kind, rng, special)
    if origin in (Union, types.UnionType):
        options = [a for a in arguments if special or a is not type(None)]
        choice = rng.choice(options)
        return None if choice is type(None) else random_value(choice, rng, special)
    if origin is list:
        return [random_value(arguments[0], rng, special) for _ in range(rng.randrange(3))]
    if origin is dict:
        return {rng.choice("abc"): random_value(arguments[1], rng, special) for _ in range(rng.randrange(3))}
    if origin is tuple:
        if arguments[1:] == (...,):
            return tuple(random_value(arguments[0], rng, special) for _ in range(rng.randrange(4)))
        return tuple(random_value(a, rng, special) for a in arguments)
    raise AssertionError(f"no idea how to fill {kind}")


def random_message(kind: type, rng: random.Random, special: bool):
    hints = {f.name: f.type for f in msgspec.structs.fields(kind)}
    return kind(**{name: random_value(t, rng, special) for name, t in hints.items()})


def same(a, b) -> bool:
    """Equality that calls NaN equal to NaN."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def check(schema: dict, value, where: str) -> None:
    """The part of JSON Schema that `json_schema` may use, strictly; null stands for a value that is not there."""
    assert set(schema) <= {
        "type",
        "description",
        "properties",
        "additionalProperties",
        "items",
        "enum",
        "contentEncoding",
    }
    if value is None:
        return
    python = {
        "object": dict,
        "array": list,
        "string": str,
        "boolean": bool,
        "integer": int,
        "number": (int, float),
    }[schema["type"]]
    assert isinstance(value, python), where
    assert isinstance(value, bool) == (schema["type"] == "boolean"), where
    if "enum" in schema:
        assert value in schema["enum"], where
    if isinstance(value, list):
        for i, item in enumerate(value):
            check(schema["items"], item, f"{where}[{i}]")
    if isinstance(value, dict):
        for key, item in value.items():
            inner = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
            assert inner, f"{where}.{key} is not in the schema"
            check(inner, item, f"{where}.{key}")


@pytest.mark.parametrize("topic", list(TOPICS))
def test_every_message_comes_back_and_is_strict_json_that_fits_its_schema(topic):
    rng = random.Random(topic)
    schema = json_schema(topic)
    assert schema["type"] == "object"
    assert "$" not in json.dumps({k: v for k, v in schema.items() if k != "description"})
    for i in range(60):
        message = random_message(TOPICS[topic].type, rng, special=i % 2 == 1)
        data = encode(message)

        def refuse(word):
            raise AssertionError(f"{word} is not JSON")

        tables = json.loads(data, parse_constant=refuse)
        tables.pop("_nonfinite", None)
        check(schema, tables, topic)
        back = decode(topic, data)
        assert type(back) is TOPICS[topic].type
        assert same(msgspec.to_builtins(back), msgspec.to_builtins(message))


def test_infinity_is_null_for_viewers_and_infinity_for_replay(flight):
    message = flight["state"][0]
    assert math.isinf(message.marker_age_s)
    tables = json.loads(encode(message))
    assert tables["marker_age_s"] is None
    unknown = ["bundle_age_s", "marker_age_s", "relative_std_m"]
    assert sorted(tables["_nonfinite"]) == [[name, "inf"] for name in unknown]
    assert decode("state", encode(message)) == message


def test_the_attitude_of_a_bundle_of_the_map_is_unknown_in_a_log_that_does_not_have_it(flight):
    bundle = MapBundle(name="beside", p_WM=(7.0, -3.0, 2.0), q_WM=(1.0, 0.0, 0.0, 0.0), age_s=0.1, relative_std_m=0.03)
    message = msgspec.structs.replace(flight["state"][-1], bundles=(bundle,))
    tables = json.loads(encode(message))
    del tables["bundles"][0]["attitude_std_rad"]
    tables["_nonfinite"] = [entry for entry in tables["_nonfinite"] if "attitude_std_rad" not in entry[0]]
    (read,) = decode("state", json.dumps(tables).encode()).bundles
    assert read.relative_std_m == 0.03 and math.isnan(read.attitude_std_rad)


def test_numpy_numbers_are_logged_as_numbers():
    message = FcuAttitude(
        stamp_s=np.float64(1.5), q_WB=np.array([1.0, 0, 0, 0]), omega_B=(np.float32(0.5), 0.0, np.nan)
    )
    back = decode("fcu_attitude", encode(message))
    assert back.stamp_s == 1.5
    assert back.q_WB == (1.0, 0.0, 0.0, 0.0)
    assert back.omega_B[0] == 0.5
    assert math.isnan(back.omega_B[2])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"stamp_s": 1}',
        b'{"_nonfinite": [["q_WB", 7, "inf"]]}',
        b'{"_nonfinite": 3}',
        b'{"_nonfinite": [[]]}',
        b'["_nonfinite"]',
        b'"_nonfinite"',
        b"\xff\xfe",
    ],
)
def test_broken_json_is_refused_with_one_kind_of_error(data):
    with pytest.raises(msgspec.MsgspecError):
        decode("fcu_attitude", data)


def test_schema_describes_unions_tuples_and_bytes():
    schema = json_schema("reference")["properties"]
    assert schema["trajectory"]["properties"]["p_end"] == {"type": "array", "items": {"type": "number"}}
    assert schema["trajectory"]["properties"]["type"]["enum"][:2] == ["hold", "move"]
    assert json_schema("link_rx")["properties"]["data"] == {"type": "string", "contentEncoding": "base64"}
    assert json_schema("state")["properties"]["p_W"]["items"] == {"type": "number"}
    assert set(json_schema("state")["properties"]) == {f.name for f in msgspec.structs.fields(State)}
