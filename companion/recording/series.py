"""Arrays from messages: interpolation to common times, positions in a bundle's frame, intervals of phases; counters.

Shapes: times (n,), vectors (n, 3), quaternions (n, 4) as (w, x, y, z).
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, pairwise
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from companion.core.arrays import Array
from companion.core.enums import FcuMode, Phase, TopicName
from companion.core.frames import facing_yaw
from companion.core.messages import TOPIC_OF, WORLD, FcuStatus, Health, Message, MissionStatus, Reference, State, Truth
from companion.core.trajectories import sample
from companion.core.trajectory_messages import Move

Interval = tuple[float, float]
Messages = Mapping[TopicName, list[Message]]  # by topic, in order of time; topics may be missing
M = TypeVar("M", bound=Message)


def of(messages: Messages, kind: type[M]) -> list[M]:
    """The messages of one type; an empty list where there are none."""
    return cast(list[M], messages.get(TOPIC_OF[kind], []))  # a topic has one type, see `TOPICS`


def column(messages: Sequence[Message], field: str, width: int = 3) -> Array:
    """One vector field of all messages, shape (n, width)."""
    numbers = chain.from_iterable(map(attrgetter(field), messages))
    return np.fromiter(numbers, dtype=float, count=width * len(messages)).reshape(len(messages), width)


def stamps(messages: Sequence[Message]) -> Array:
    """The stamps of all messages [s]."""
    return np.array([m.stamp_s for m in messages], dtype=float)


def runs(messages: Sequence[M], *counters: str) -> list[list[M]]:
    """The messages of one process, one list for each start of it: a process that is started again counts from zero.

    counters: names of fields that only rise in a run, numbers or dictionaries of numbers. A run begins where `seq` or one
    of them falls (`seq` goes on in older logs of simulated time), or where the `pid` of `Health` changes.
    """
    if not messages:
        return []
    counts = attrgetter("seq", *counters)
    found = [[messages[0]]]
    for before, after in pairwise(messages):
        other = isinstance(before, Health) and isinstance(after, Health) and before.pid != after.pid
        if other or _any_falls(counts(before), counts(after)):
            found.append([])
        found[-1].append(after)
    return found


def _any_falls(before: Any, after: Any) -> bool:
    """Whether one of these numbers is smaller than it was; a name that is absent from a dictionary counts 0."""
    if before == after:
        return False
    if isinstance(before, tuple):
        return any(map(_any_falls, before, after))
    if isinstance(before, dict):
        return any(after.get(name, 0) < count for name, count in before.items())
    return bool(after < before)


def totals(messages: Sequence[Message], *counters: str) -> dict[str, Any]:
    """Counters of one process by their names, summed over its `runs`; None: there are no messages.

    A dictionary of numbers is summed by name. What the first run counted before its first message is included.
    """
    ends = [run[-1] for run in runs(messages, *counters)]
    return {name: _sum([getattr(end, name) for end in ends]) if ends else None for name in counters}


def _sum(values: Sequence[Any]) -> Any:
    """Of numbers, or of dictionaries of numbers by name."""
    if not isinstance(values[0], dict):
        return sum(values)
    return {name: sum(value.get(name, 0) for value in values) for name in chain.from_iterable(values)}


def interpolate(t: Array, known_t: Array, known: Array) -> Array:
    """Linear interpolation of vectors, shape (len(t), k); NaN outside the known times."""
    columns = [np.interp(t, known_t, c, left=np.nan, right=np.nan) for c in known.T]
    return np.column_stack(columns)


def interpolate_quaternion(t: Array, known_t: Array, known: Array) -> Array:
    """Normalised linear interpolation along the shorter rotation, shape (len(t), 4); NaN outside the known times.

    Good for messages a few degrees apart: the error is of third order in the step.
    """
    signs = np.ones(len(known))
    if len(known) > 1:
        signs[1:] = np.cumprod(np.where(np.sum(known[1:] * known[:-1], axis=1) < 0, -1.0, 1.0))
    q = interpolate(t, known_t, known * signs[:, None])
    normalised: Array = q / np.linalg.norm(q, axis=1, keepdims=True)
    return normalised


def rotate(q: Array, v: Array) -> Array:
    """R(q) v row by row: v + 2w (u × v) + 2 u × (u × v), u the vector part of q."""
    w, u = q[:, :1], q[:, 1:]
    uv = np.cross(u, v)
    return v + 2.0 * (w * uv + np.cross(u, uv))


def rotate_back(q: Array, v: Array) -> Array:
    """R(q)ᵀ v row by row."""
    return rotate(q * np.array([1.0, -1.0, -1.0, -1.0]), v)


def relative_rotation(a: Array, b: Array) -> Array:
    """Log(a⁻¹ ⊗ b) row by row: the rotation vectors [rad] that turn a into b, in a's frame; (n, 3)."""
    w = np.sum(a * b, axis=1, keepdims=True)
    v = a[:, :1] * b[:, 1:] - b[:, :1] * a[:, 1:] - np.cross(a[:, 1:], b[:, 1:])
    sign = np.where(w < 0, -1.0, 1.0)
    length = np.linalg.norm(v, axis=1, keepdims=True)
    scale = 2 * np.arctan2(length, sign * w) / np.where(length > 1e-12, length, 1.0)
    rotation_vectors: Array = sign * np.where(length > 1e-12, scale, 2.0) * v
    return rotation_vectors


def rpy(q: Array) -> Array:
    """Roll, pitch, yaw [rad] row by row, shape (n, 3)."""
    w, x, y, z = q.T
    return np.column_stack(
        [
            np.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y)),
            np.arcsin(np.clip(2 * (w * y - z * x), -1.0, 1.0)),
            np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)),
        ]
    )


def wrap(angle: Array) -> Array:
    """The same angles in [-π, π)."""
    return (angle + np.pi) % (2 * np.pi) - np.pi


def intervals(messages: Sequence[M], inside: Callable[[M], bool]) -> list[Interval]:
    """The spans of time from each message that is inside to the next that is not (or to the last message)."""
    spans: list[Interval] = []
    start = None
    for message in messages:
        if inside(message):
            start = message.stamp_s if start is None else start
        elif start is not None:
            spans.append((start, message.stamp_s))
            start = None
    if start is not None:
        spans.append((start, messages[-1].stamp_s))
    return spans


MEASURED_PHASES = (Phase.HOLD, Phase.TRAJECTORY)


def hold_intervals(statuses: Sequence[MissionStatus]) -> list[Interval]:
    """When the mission held its point or flew its trajectory; until its last status where its process was restarted."""
    return [span for run in runs(statuses) for span in intervals(run, lambda m: m.phase in MEASURED_PHASES)]


def offboard_intervals(statuses: Sequence[FcuStatus]) -> list[Interval]:
    """When the flight controller followed the setpoints of the companion.

    A process of the link that was restarted does not know the mode until it hears the flight controller; until then the
    mode before counts.
    """
    known = [m for m in statuses if m.connected or m.mode != FcuMode.UNKNOWN]
    return intervals(known, lambda m: m.mode == FcuMode.OFFBOARD)


def phases(statuses: Sequence[MissionStatus]) -> list[tuple[float, float, Phase, str]]:
    """(start, end, phase, reason) in order of time."""
    spans: list[tuple[float, float, Phase, str]] = []
    for message in statuses:
        if spans and spans[-1][2] == message.phase:
            spans[-1] = (spans[-1][0], message.stamp_s, *spans[-1][2:])
        else:
            if spans:
                spans[-1] = (spans[-1][0], message.stamp_s, *spans[-1][2:])
            spans.append((message.stamp_s, message.stamp_s, message.phase, message.reason))
    return spans


def within(t: Array, spans: Sequence[Interval]) -> NDArray[np.bool_]:
    """Which times lie in any of the spans, as a mask."""
    mask = np.zeros(len(t), dtype=bool)
    for start, end in spans:
        mask |= (t >= start) & (t <= end)
    return mask


class Track(NamedTuple):
    """Position and yaw over time in one frame: WORLD, or a bundle (yaw relative to facing it)."""

    t: Array
    p: Array
    yaw: Array


def _relative(t: Array, p_W: Array, q_WB: Array, p_WM: Array, q_WM: Array) -> Track:
    """p_MB = R(q_WM)ᵀ (p_W - p_WM), yaw minus the yaw that faces the bundle."""
    facing = np.array([facing_yaw(q) for q in q_WM])
    return Track(t, rotate_back(q_WM, p_W - p_WM), wrap(rpy(q_WB)[:, 2] - facing))


def _empty() -> Track:
    return Track(np.zeros(0), np.zeros((0, 3)), np.zeros(0))


def estimate_track(states: Sequence[State], frame: str) -> Track:
    """The estimated track; only states that are valid and, in a bundle's frame, describe that bundle."""
    used = [s for s in states if s.valid and (frame == WORLD or s.bundle == frame)]
    if not used:
        return _empty()
    t, p_W, q_WB = stamps(used), column(used, "p_W"), column(used, "q_WB", 4)
    if frame == WORLD:
        return Track(t, p_W, rpy(q_WB)[:, 2])
    return _relative(t, p_W, q_WB, column(used, "p_WM"), column(used, "q_WM", 4))


def truth_track(truth: Sequence[Truth], frame: str) -> Track:
    """The true track; empty if the simulator does not know the bundle."""
    used = [m for m in truth if frame == WORLD or frame in m.bundles]
    if not used:
        return _empty()
    t, p_W, q_WB = stamps(used), column(used, "p_W"), column(used, "q_WB", 4)
    if frame == WORLD:
        return Track(t, p_W, rpy(q_WB)[:, 2])
    p_WM = np.array([m.bundles[frame][0] for m in used], dtype=float)
    q_WM = np.array([m.bundles[frame][1] for m in used], dtype=float)
    return _relative(t, p_W, q_WB, p_WM, q_WM)


def reference_at(references: Sequence[Reference], t: Array, frame: str) -> tuple[Array, Array]:
    """(points, yaws) of the mission's references at the times t, in `frame`; NaN where the reference is in another frame.

    A move counts as its end point, so this is the reference of a hold or trajectory and not of the way to it.
    """
    points, yaws = np.full((len(t), 3), np.nan), np.full(len(t), np.nan)
    if not references:
        return points, yaws
    index = np.asarray(np.searchsorted(stamps(references), t, side="right")) - 1
    # The mission repeats a reference many times a second; all copies are handled at once.
    first: dict[tuple[int, float], int] = {}
    number = np.array([first.setdefault((r.id, r.start_s), i) for i, r in enumerate(references)])
    number = np.where(index >= 0, number[index], -1)
    for i in np.unique(number[number >= 0]):
        reference = references[i]
        if reference.frame != frame:
            continue
        goal, at = reference.trajectory, number == i
        if isinstance(goal, Move):
            points[at], yaws[at] = goal.p_end, goal.yaw_end_rad
        else:
            asked = sample(goal, reference.start_s, t[at])
            points[at], yaws[at] = asked.p_W, asked.yaw
    return points, yaws
