"""A log opens in viewers: well-known schemas as published, UTC, layouts that name only what exists."""

import datetime
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner
from mcap.reader import make_reader

from companion.cli import main
from companion.core.messages import TOPICS
from companion.recording import foxglove_types as fg
from companion.recording.codec import json_schema
from companion.recording.foxglove import CHANNELS

GOLDEN = Path(__file__).parent / "golden" / "2026-11-22_by_command.mcap"
LAYOUTS = Path(__file__).parents[2] / "docs" / "layouts"
TIME = {"sec": "integer", "nsec": "integer"}
VECTOR = dict.fromkeys("xyz", "number")
QUATERNION = dict.fromkeys("xyzw", "number")
COLOR = dict.fromkeys("rgba", "number")
POINT2 = dict.fromkeys("xy", "number")
POSE = {"position": VECTOR, "orientation": QUATERNION}
BOX = {"pose": POSE, "size": VECTOR, "color": COLOR}
# The fields of the published schemas, written by hand: a list of one is an array of that.
PUBLISHED = {
    "FrameTransforms": {
        "transforms": [
            {"timestamp": TIME, "parent_frame_id": "string", "child_frame_id": "string", "translation": VECTOR,
             "rotation": QUATERNION}
        ]
    },
    "PoseInFrame": {"timestamp": TIME, "frame_id": "string", "pose": POSE},
    "SceneUpdate": {
        "deletions": [{"timestamp": TIME, "type": "integer", "id": "string"}],
        "entities": [
            {
                "timestamp": TIME, "frame_id": "string", "id": "string", "lifetime": TIME, "frame_locked": "boolean",
                "metadata": [{"key": "string", "value": "string"}],
                "arrows": [{"pose": POSE, "shaft_length": "number", "shaft_diameter": "number",
                            "head_length": "number", "head_diameter": "number", "color": COLOR}],
                "cubes": [BOX],
                "spheres": [BOX],
                "cylinders": [BOX | {"bottom_scale": "number", "top_scale": "number"}],
                "lines": [{"type": "integer", "pose": POSE, "thickness": "number", "scale_invariant": "boolean",
                           "points": [VECTOR], "color": COLOR, "colors": [COLOR], "indices": ["integer"]}],
                "triangles": [{"pose": POSE, "points": [VECTOR], "color": COLOR, "colors": [COLOR],
                               "indices": ["integer"]}],
                "texts": [{"pose": POSE, "billboard": "boolean", "font_size": "number", "scale_invariant": "boolean",
                           "color": COLOR, "text": "string"}],
                "models": [{"pose": POSE, "scale": VECTOR, "color": COLOR, "override_color": "boolean",
                            "url": "string", "media_type": "string", "data": "string"}],
            }
        ],
    },
    "CompressedImage": {"timestamp": TIME, "frame_id": "string", "data": "string", "format": "string"},
    "ImageAnnotations": {
        "circles": [{"timestamp": TIME, "position": POINT2, "diameter": "number", "thickness": "number",
                     "fill_color": COLOR, "outline_color": COLOR}],
        "points": [{"timestamp": TIME, "type": "integer", "points": [POINT2], "outline_color": COLOR,
                    "outline_colors": [COLOR], "fill_color": COLOR, "thickness": "number"}],
        "texts": [{"timestamp": TIME, "position": POINT2, "text": "string", "font_size": "number",
                   "text_color": COLOR, "background_color": COLOR}],
    },
    "CameraCalibration": {"timestamp": TIME, "frame_id": "string", "width": "integer", "height": "integer",
                          "distortion_model": "string", "D": ["number"], "K": ["number"], "R": ["number"],
                          "P": ["number"]},
    "LocationFix": {"timestamp": TIME, "frame_id": "string", "latitude": "number", "longitude": "number",
                    "altitude": "number", "position_covariance": ["number"], "position_covariance_type": "integer"},
    "Log": {"timestamp": TIME, "level": "integer", "message": "string", "name": "string", "file": "string",
            "line": "integer"},
}  # fmt: skip


def strict(fields):
    """A JSON schema of fields by name, all required and no others."""
    if isinstance(fields, str):
        return {"type": fields}
    if isinstance(fields, list):
        return {"type": "array", "items": strict(fields[0])}
    properties = {name: strict(field) for name, field in fields.items()}
    return {"type": "object", "properties": properties, "required": list(fields), "additionalProperties": False}


def plain(schema):
    """The fields of a JSON schema, as in PUBLISHED."""
    if schema["type"] == "object":
        return {name: plain(field) for name, field in schema["properties"].items()}
    if schema["type"] == "array":
        return [plain(schema["items"])]
    return schema["type"]


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    out = tmp_path_factory.mktemp("foxglove") / "shown.mcap"
    result = CliRunner().invoke(main, ["log", "foxglove", str(GOLDEN), str(out)])
    assert result.exit_code == 0, result.output
    found = {}
    with out.open("rb") as stream:
        for schema, channel, message in make_reader(stream, validate_crcs=True).iter_messages():
            found.setdefault(channel.topic, []).append((schema.name, message.log_time, json.loads(message.data)))
    return found


@pytest.mark.parametrize("kind", CHANNELS.values(), ids=lambda kind: kind.__name__)
def test_a_type_has_the_published_fields(kind):
    schema = fg.schema(kind)
    assert schema["title"] == f"foxglove.{kind.__name__}"
    assert plain(schema) == PUBLISHED[kind.__name__]


def test_every_message_fits_the_published_schema(shown):
    present = {topic for topic in CHANNELS if topic in shown}
    assert present >= {
        "/tf",
        "/pose/estimate",
        "/pose/truth",
        "/scene",
        "/camera/calibration",
        "/camera/corners",
        "/log",
    }
    for topic in present:
        validator = jsonschema.Draft202012Validator(strict(PUBLISHED[CHANNELS[topic].__name__]))
        for name, _, message in shown[topic][:200]:
            assert name == f"foxglove.{CHANNELS[topic].__name__}"
            validator.validate(message)


def test_frames_form_one_tree_and_the_scene_has_its_parts(shown):
    parents = {t["child_frame_id"]: t["parent_frame_id"] for _, _, m in shown["/tf"] for t in m["transforms"]}
    assert parents == {"body": "world", "camera": "body", "body_true": "world", "bundle/floor": "world"}
    entities = {e["id"]: e for _, _, m in shown["/scene"] for e in m["entities"]}
    assert set(entities) == {"aircraft", "bundle/floor", "path", "plan"}
    assert {e["frame_id"] for e in entities.values()} <= set(parents) | {"world"}


def test_times_are_utc_and_our_own_messages_stand_beside_them(shown):
    first = datetime.datetime.fromtimestamp(min(at for _, at, _ in shown["state"]) / 1e9, datetime.UTC)
    assert first.date() == datetime.date(2026, 11, 22)
    assert shown["state"][0][0] == "companion.State"


def test_what_cannot_be_shown_is_one_line(tmp_path):
    for content in (b"", b"hello", GOLDEN.read_bytes()[:100]):
        (tmp_path / "x.mcap").write_bytes(content)
        result = CliRunner().invoke(main, ["log", "foxglove", str(tmp_path / "x.mcap"), str(tmp_path / "out.mcap")])
        assert result.exit_code == 2 and len(result.output.strip().splitlines()) == 1
    (tmp_path / "copy.mcap").write_bytes(GOLDEN.read_bytes())
    result = CliRunner().invoke(main, ["log", "foxglove", str(tmp_path / "copy.mcap"), str(tmp_path / "copy.mcap")])
    assert result.exit_code == 2 and "logs are never overwritten" in result.output
    assert (tmp_path / "copy.mcap").read_bytes() == GOLDEN.read_bytes()


def schemas():
    known = {topic: fg.schema(kind) for topic, kind in CHANNELS.items()}
    return known | {topic: json_schema(topic) for topic, row in TOPICS.items() if row.logged}


def assert_exists(path):
    """`topic.field.field[0]`, the topic possibly with slashes."""
    topic = next((t for t in sorted(schemas(), key=len, reverse=True) if path == t or path.startswith(t + ".")), None)
    assert topic is not None, path
    at = schemas()[topic]
    for step in re.findall(r"[^.\[\]]+", path[len(topic) :]):
        at = at["items"] if step.isdigit() else at["properties"].get(step)
        assert at is not None, path


NAMING = ("topic", "imageTopic", "calibrationTopic", "topicToRender", "value")  # keys of a layout


def strings(value):
    """Topics and paths that a part of a layout names."""
    if isinstance(value, list):
        for item in value:
            yield from strings(item)
    if not isinstance(value, dict):
        return
    for key, item in value.items():
        if key in ("topics", "annotations"):
            yield from item
        elif key in NAMING and item:
            yield item
        else:
            yield from strings(item)


def test_the_foxglove_layout_names_only_what_exists():
    layout = json.loads((LAYOUTS / "foxglove.json").read_text())
    assert {"configById", "globalVariables", "userNodes", "playbackConfig", "layout"} <= set(layout)
    paths = list(strings(layout["configById"]))
    assert len(paths) > 10
    for path in paths:
        assert_exists(path)

    def panels(node):
        return [node] if isinstance(node, str) else [p for side in ("first", "second") for p in panels(node[side])]

    assert set(panels(layout["layout"])) == set(layout["configById"])


def test_the_plotjuggler_layout_names_only_what_exists():
    root = ET.parse(LAYOUTS / "plotjuggler.xml").getroot()
    curves = [curve.get("name") for curve in root.iter("curve")]
    assert len(curves) > 10
    for curve in curves:
        topic, *fields = curve.strip("/").split("/")
        assert_exists(".".join([topic, *fields]).replace(".[", "["))
