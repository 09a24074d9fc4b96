"""A log as Foxglove and Lichtblick show it without configuration: all messages as JSON and their well-known schemas.

Made from a log after the flight: the recorder stays as fast and the log as small as it is. Times are UTC.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from mcap.writer import CompressionType, Writer

from companion.core.arrays import Array
from companion.core.enums import SafetyAction
from companion.core.errors import OutputError
from companion.core.messages import (
    TOPICS,
    WORLD,
    FcuStatus,
    FcuText,
    Markers,
    Reference,
    SafetyEvent,
    State,
    Truth,
)
from companion.core.trajectories import duration_s, sample
from companion.core.vehicle import Camera, Vehicle
from companion.recording import foxglove_types as fg
from companion.recording.codec import encode, json_schema
from companion.recording.log import Log, LogError, read_log, side_cars

BODY, CAMERA, TRUE_BODY = "body", "camera", "body_true"
TRANSFORM_PERIOD_S, PATH_PERIOD_S, CALIBRATION_PERIOD_S = 1 / 30, 1.0, 5.0
PATH_POINTS, PATH_STEP_S, PLAN_POINTS = 600, 0.2, 60
NO_FIX_M = 1e3  # standard deviation where the receiver reports none
ORANGE, GREEN, BLUE, WHITE = (
    fg.Color(1.0, 0.5, 0.0),
    fg.Color(0.1, 0.8, 0.2),
    fg.Color(0.2, 0.5, 1.0),
    fg.Color(1.0, 1.0, 1.0, 0.9),
)
ARM_M, ARM_WIDTH_M = 0.3, 0.03
FACE_M = (0.4, 0.4, 0.01)  # of a bundle, where its markers are not known
# Topic → well-known type.
CHANNELS: dict[str, type[msgspec.Struct]] = {
    "/tf": fg.FrameTransforms,
    "/pose/estimate": fg.PoseInFrame,
    "/pose/truth": fg.PoseInFrame,
    "/scene": fg.SceneUpdate,
    "/camera/calibration": fg.CameraCalibration,
    "/camera/corners": fg.ImageAnnotations,
    "/camera/image": fg.CompressedImage,
    "/gnss/fix": fg.LocationFix,
    "/log": fg.Log,
}
# MAV_SEVERITY 0 … 7 as `fg.Log.level`
LEVELS = (fg.FATAL, fg.FATAL, fg.FATAL, fg.ERROR, fg.WARNING, fg.INFO, fg.INFO, fg.DEBUG)


class Shown(NamedTuple):
    """One message with a well-known schema, at companion time [s]."""

    time_s: float
    topic: str
    message: msgspec.Struct


class Clock(NamedTuple):
    """Companion time to UTC."""

    offset_ns: int

    def ns(self, time_s: float) -> int:
        """Nanoseconds since 1970."""
        return max(self.offset_ns + round(time_s * 1e9), 0) if np.isfinite(time_s) else 0

    def time(self, time_s: float) -> fg.Time:
        """The same as Foxglove's time."""
        return fg.Time(*divmod(self.ns(time_s), 1_000_000_000))


def write_foxglove(log_path: Path, out: Path) -> int:
    """Write the log as MCAP for viewers; returns the number of messages. Raises `LogError`, `OutputError`."""
    log = read_log(log_path)
    if not any(log.values()):
        raise LogError(f"{log_path}: holds no messages")
    with mcap_file(out) as writer:
        return write_messages(writer, log)


@contextmanager
def mcap_file(out: Path) -> Iterator[Writer]:
    """An MCAP file that is written; raises `OutputError` with one line when it cannot be. A former file is replaced."""
    try:
        with out.open("wb") as stream:
            writer = Writer(stream, compression=CompressionType.ZSTD)
            writer.start(profile="", library="companion")
            yield writer
            writer.finish()  # type: ignore[no-untyped-call]  # mcap leaves it without annotations
    except OSError as error:
        raise OutputError(f"{out}: cannot be written: {error.strerror or error}") from None


def write_messages(writer: Writer, log: Log) -> int:
    """All messages of a log as JSON, and the well-known ones."""
    clock = Clock(log.clock_offset_ns())
    written = 0
    for topic, messages in log.items():
        if not messages:
            continue
        schema = msgspec.json.encode(json_schema(topic))
        kind = TOPICS[topic].type.__name__
        channel = writer.register_channel(
            topic, "json", writer.register_schema(f"companion.{kind}", "jsonschema", schema)
        )
        for arrival_s, message in zip(log.arrival_s[topic], messages, strict=True):
            arrived, true = clock.ns(arrival_s), clock.ns(message.stamp_s)
            writer.add_message(channel, arrived, encode(message), true, message.seq & 0xFFFFFFFF)
        written += len(messages)
    channels: dict[str, int] = {}
    for time_s, name, shown in sorted(shown_messages(log, clock), key=lambda one: one.time_s):
        if name not in channels:
            kind_shown = CHANNELS[name]
            text = msgspec.json.encode(fg.schema(kind_shown))
            number = writer.register_schema(f"foxglove.{kind_shown.__name__}", "jsonschema", text)
            channels[name] = writer.register_channel(name, "json", number)
        at = clock.ns(time_s)
        writer.add_message(channels[name], at, msgspec.json.encode(shown), at)
        written += 1
    return written


def shown_messages(log: Log, clock: Clock) -> Iterator[Shown]:
    """The messages with well-known schemas, topic by topic."""
    vehicle = log.vehicle()
    yield from _poses(log, clock, vehicle)
    yield from _scene(log, clock)
    if vehicle is not None:
        yield from _calibration(log, clock, vehicle.camera)
    yield from _corners(log, clock)
    yield from _images(log, clock)
    yield from _fixes(log, clock)
    yield from _texts(log, clock)


def _vector(v: Any) -> fg.Vector3:
    return fg.Vector3(*(float(x) for x in v))


def _quaternion(q: Any) -> fg.Quaternion:
    w, x, y, z = (float(a) for a in q)
    return fg.Quaternion(x, y, z, w)


def _pose(p: Any = (0.0, 0.0, 0.0), q: Any = (1.0, 0.0, 0.0, 0.0)) -> fg.Pose:
    return fg.Pose(_vector(p), _quaternion(q))


def frame_of(bundle: str) -> str:
    """Name of a bundle's frame."""
    return f"bundle/{bundle}"


def _every(messages: list[Any], period_s: float) -> Iterator[Any]:
    """Messages at most once in a period."""
    last_s = -np.inf
    for message in messages:
        if message.stamp_s - last_s >= period_s - 1e-4:
            last_s = message.stamp_s
            yield message


def _poses(log: Log, clock: Clock, vehicle: Vehicle | None) -> Iterator[Shown]:
    def transform(time_s: float, parent: str, child: str, p: Any, q: Any) -> fg.FrameTransform:
        return fg.FrameTransform(clock.time(time_s), parent, child, _vector(p), _quaternion(q))

    for s in _every([s for s in log.of(State) if s.valid], TRANSFORM_PERIOD_S):
        t = s.stamp_s
        moved = [transform(t, WORLD, BODY, s.p_W, s.q_WB)]
        if vehicle is not None:
            moved.append(transform(t, BODY, CAMERA, vehicle.camera.p_BC, vehicle.camera.q_BC))
        if s.bundle:
            moved.append(transform(t, WORLD, frame_of(s.bundle), s.p_WM, s.q_WM))
        moved += [transform(t, WORLD, frame_of(b.name), b.p_WM, b.q_WM) for b in s.bundles if b.name != s.bundle]
        yield Shown(t, "/tf", fg.FrameTransforms(moved))
        yield Shown(t, "/pose/estimate", fg.PoseInFrame(clock.time(t), WORLD, _pose(s.p_W, s.q_WB)))
    for m in _every(log.of(Truth), TRANSFORM_PERIOD_S):
        t = m.stamp_s
        yield Shown(t, "/tf", fg.FrameTransforms([transform(t, WORLD, TRUE_BODY, m.p_W, m.q_WB)]))
        yield Shown(t, "/pose/truth", fg.PoseInFrame(clock.time(t), WORLD, _pose(m.p_W, m.q_WB)))


def _line(points: Array, color: fg.Color) -> fg.LinePrimitive:
    return fg.LinePrimitive(fg.LINE_STRIP, _pose(), 2.0, True, [_vector(p) for p in points], color)


def _scene(log: Log, clock: Clock) -> Iterator[Shown]:
    """Aircraft, bundles, the flown path of the last minutes, and the plan of each reference."""
    forever = fg.Time(0, 0)

    def shown(time_s: float, frame: str, name: str, locked: bool, **primitives: Any) -> Shown:
        entity = fg.SceneEntity(clock.time(time_s), frame, name, forever, locked, **primitives)
        return Shown(time_s, "/scene", fg.SceneUpdate([], [entity]))

    states = [s for s in log.of(State) if s.valid]
    known: set[str] = set()
    path: list[Any] = []
    drawn_s = -np.inf
    if states:
        arms = [
            fg.CubePrimitive(_pose(q=(np.cos(a / 2), 0.0, 0.0, np.sin(a / 2))), fg.Vector3(2 * ARM_M, w, w), ORANGE)
            for a, w in ((np.pi / 4, ARM_WIDTH_M), (-np.pi / 4, ARM_WIDTH_M))
        ]
        nose = fg.ArrowPrimitive(_pose(), ARM_M, ARM_WIDTH_M, ARM_M / 3, 2 * ARM_WIDTH_M, GREEN)
        yield shown(states[0].stamp_s, BODY, "aircraft", True, cubes=arms, arrows=[nose])
    for s in _every(states, PATH_STEP_S):
        path = [*path[-PATH_POINTS + 1 :], s.p_W]
        for name in {s.bundle, *(b.name for b in s.bundles)} - known - {""}:
            known.add(name)
            face = fg.CubePrimitive(_pose(), _vector(FACE_M), WHITE)
            label = fg.TextPrimitive(_pose((0.0, FACE_M[1], 0.0)), True, 14.0, True, WHITE, name)
            yield shown(s.stamp_s, frame_of(name), frame_of(name), True, cubes=[face], texts=[label])
        if s.stamp_s - drawn_s >= PATH_PERIOD_S and len(path) > 1:
            drawn_s = s.stamp_s
            yield shown(s.stamp_s, WORLD, "path", False, lines=[_line(np.array(path), BLUE)])
    plan = None
    for r in log.of(Reference):
        if not r.valid or (r.id, r.frame) == plan:
            continue
        plan = (r.id, r.frame)
        times = r.start_s + np.linspace(0.0, duration_s(r.trajectory), PLAN_POINTS)
        frame = WORLD if r.frame == WORLD else frame_of(r.frame)
        yield shown(r.stamp_s, frame, "plan", True, lines=[_line(sample(r.trajectory, r.start_s, times).p_W, GREEN)])


def _calibration(log: Log, clock: Clock, camera: Camera) -> Iterator[Shown]:
    fx, fy, cx, cy = camera.fx_px, camera.fy_px, camera.cx_px, camera.cy_px
    # The published models: 5 and 8 numbers of the pinhole lens; a fisheye lens goes by its OpenCV name in ROS.
    lens = (
        "kannala_brandt"
        if camera.model == "fisheye"
        else ("plumb_bob" if len(camera.distortion) <= 5 else "rational_polynomial")
    )
    D = [*camera.distortion, 0.0][:5] if lens == "plumb_bob" else list(camera.distortion)
    matrix = [fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0]
    projection = [fx, 0.0, cx, 0.0, 0.0, fy, cy, 0.0, 0.0, 0.0, 1.0, 0.0]
    for m in _every(log.of(Markers) or log.of(State), CALIBRATION_PERIOD_S):
        yield Shown(
            m.stamp_s,
            "/camera/calibration",
            fg.CameraCalibration(
                clock.time(m.stamp_s), CAMERA, camera.width_px, camera.height_px, lens, D, matrix,
                np.eye(3).ravel().tolist(), projection,
            ),
        )  # fmt: skip


def _corners(log: Log, clock: Clock) -> Iterator[Shown]:
    for m in log.of(Markers):
        outlines, labels = [], []
        at = clock.time(m.stamp_s)
        for observation in m.observations:
            for marker in observation.markers:
                corners = [fg.Point2(*uv) for uv in np.reshape(marker.corners_px, (4, 2)).tolist()]
                outlines.append(fg.PointsAnnotation(at, fg.LINE_LOOP, corners, GREEN, 1.0))
                text = f"{observation.bundle} {marker.id}"
                labels.append(fg.TextAnnotation(at, corners[0], text, 12.0, GREEN, fg.Color(0.0, 0.0, 0.0, 0.5)))
        yield Shown(m.stamp_s, "/camera/corners", fg.ImageAnnotations(outlines, labels))


def _images(log: Log, clock: Clock) -> Iterator[Shown]:
    """The navigation camera's photographs beside the log."""
    for sidecar in side_cars(log.path):
        try:
            stamp_s = float(msgspec.json.decode(sidecar.read_bytes())["stamp_s"])
            data = sidecar.with_suffix(".png").read_bytes()
        except (OSError, msgspec.MsgspecError, KeyError, TypeError, ValueError):
            continue  # a picture that was not completed
        yield Shown(stamp_s, "/camera/image", fg.CompressedImage(clock.time(stamp_s), CAMERA, data, "png"))


def _fixes(log: Log, clock: Clock) -> Iterator[Shown]:
    last = None
    for s in log.of(FcuStatus):
        if s.gnss_position is None or s.gnss_position == last:
            continue
        last = s.gnss_position
        h, v = (a if np.isfinite(a) else NO_FIX_M for a in (s.gnss_h_acc_m, s.gnss_v_acc_m))
        covariance = [h * h / 2, 0.0, 0.0, 0.0, h * h / 2, 0.0, 0.0, 0.0, v * v]
        fix = fg.LocationFix(clock.time(s.stamp_s), BODY, *last, covariance, fg.DIAGONAL_KNOWN)
        yield Shown(s.stamp_s, "/gnss/fix", fix)


def _texts(log: Log, clock: Clock) -> Iterator[Shown]:
    for m in log.of(FcuText):
        level = LEVELS[min(max(m.severity, 0), 7)]
        yield Shown(m.stamp_s, "/log", fg.Log(clock.time(m.stamp_s), level, m.text, "fcu"))
    for e in log.of(SafetyEvent):
        level = fg.INFO if not e.active else fg.WARNING if e.action == SafetyAction.NONE else fg.ERROR
        text = f"{e.monitor}: {e.text}" if e.active else f"{e.monitor}: over"
        yield Shown(e.stamp_s, "/log", fg.Log(clock.time(e.stamp_s), level, text, "safety"))
