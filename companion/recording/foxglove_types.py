"""Foxglove's well-known schemas as far as this stack writes them: facts of the published JSON schemas, our own types.

Fields that may stay absent in a message have a default. `schema` gives the JSON schema that stands in the log.
"""

from typing import Any

import msgspec

from companion.recording.codec import flattened

LINE_LOOP, LINE_STRIP = 2, 0  # PointsAnnotation.type LINE_LOOP; LinePrimitive.type LINE_STRIP
DIAGONAL_KNOWN = 2  # LocationFix.position_covariance_type
DEBUG, INFO, WARNING, ERROR, FATAL = 1, 2, 3, 4, 5  # Log.level


class Time(msgspec.Struct):
    sec: int
    nsec: int


class Vector3(msgspec.Struct):
    x: float
    y: float
    z: float


class Point2(msgspec.Struct):
    x: float
    y: float


class Quaternion(msgspec.Struct):
    x: float
    y: float
    z: float
    w: float


class Color(msgspec.Struct, frozen=True):
    r: float
    g: float
    b: float
    a: float = 1.0


class Pose(msgspec.Struct):
    position: Vector3
    orientation: Quaternion


class FrameTransform(msgspec.Struct):
    timestamp: Time
    parent_frame_id: str
    child_frame_id: str
    translation: Vector3
    rotation: Quaternion


class FrameTransforms(msgspec.Struct):
    transforms: list[FrameTransform]


class PoseInFrame(msgspec.Struct):
    timestamp: Time
    frame_id: str
    pose: Pose


class ArrowPrimitive(msgspec.Struct):
    pose: Pose
    shaft_length: float
    shaft_diameter: float
    head_length: float
    head_diameter: float
    color: Color


class CubePrimitive(msgspec.Struct):
    pose: Pose
    size: Vector3
    color: Color


class LinePrimitive(msgspec.Struct):
    type: int
    pose: Pose
    thickness: float
    scale_invariant: bool
    points: list[Vector3]
    color: Color
    colors: list[Color] = []
    indices: list[int] = []


class SpherePrimitive(msgspec.Struct):
    pose: Pose
    size: Vector3
    color: Color


class CylinderPrimitive(msgspec.Struct):
    pose: Pose
    size: Vector3
    bottom_scale: float
    top_scale: float
    color: Color


class TriangleListPrimitive(msgspec.Struct):
    pose: Pose
    points: list[Vector3]
    color: Color
    colors: list[Color]
    indices: list[int]


class ModelPrimitive(msgspec.Struct):
    pose: Pose
    scale: Vector3
    color: Color
    override_color: bool
    url: str
    media_type: str
    data: bytes


class TextPrimitive(msgspec.Struct):
    pose: Pose
    billboard: bool
    font_size: float
    scale_invariant: bool
    color: Color
    text: str


class KeyValuePair(msgspec.Struct):
    key: str
    value: str


class SceneEntity(msgspec.Struct):
    timestamp: Time
    frame_id: str
    id: str
    lifetime: Time
    frame_locked: bool
    metadata: list[KeyValuePair] = []
    arrows: list[ArrowPrimitive] = []
    cubes: list[CubePrimitive] = []
    spheres: list[SpherePrimitive] = []
    cylinders: list[CylinderPrimitive] = []
    lines: list[LinePrimitive] = []
    triangles: list[TriangleListPrimitive] = []
    texts: list[TextPrimitive] = []
    models: list[ModelPrimitive] = []


class SceneEntityDeletion(msgspec.Struct):
    timestamp: Time
    type: int
    id: str


class SceneUpdate(msgspec.Struct):
    deletions: list[SceneEntityDeletion]
    entities: list[SceneEntity]


class CompressedImage(msgspec.Struct):
    timestamp: Time
    frame_id: str
    data: bytes
    format: str


class PointsAnnotation(msgspec.Struct):
    timestamp: Time
    type: int
    points: list[Point2]
    outline_color: Color
    thickness: float
    outline_colors: list[Color] = []
    fill_color: Color = Color(0.0, 0.0, 0.0, 0.0)


class TextAnnotation(msgspec.Struct):
    timestamp: Time
    position: Point2
    text: str
    font_size: float
    text_color: Color
    background_color: Color


class CircleAnnotation(msgspec.Struct):
    timestamp: Time
    position: Point2
    diameter: float
    thickness: float
    fill_color: Color
    outline_color: Color


class ImageAnnotations(msgspec.Struct):
    points: list[PointsAnnotation]
    texts: list[TextAnnotation]
    circles: list[CircleAnnotation] = []


class CameraCalibration(msgspec.Struct):
    timestamp: Time
    frame_id: str
    width: int
    height: int
    distortion_model: str
    D: list[float]
    K: list[float]
    R: list[float]
    P: list[float]


class LocationFix(msgspec.Struct):
    timestamp: Time
    frame_id: str
    latitude: float
    longitude: float
    altitude: float
    position_covariance: list[float]
    position_covariance_type: int


class Log(msgspec.Struct):
    timestamp: Time
    level: int
    message: str
    name: str
    file: str = ""
    line: int = 0


def schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """JSON schema of a type, without references, under its well-known name."""
    return {"title": f"foxglove.{kind.__name__}", **flattened(kind)}
