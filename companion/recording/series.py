"""Arrays from messages: interpolation to common times, positions in a bundle's frame, intervals of phases.

Shapes: times (n,), vectors (n, 3), quaternions (n, 4) as (w, x, y, z).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from companion.core.frames import facing_yaw
from companion.core.messages import WORLD, FcuStatus, Message, MissionStatus, Reference, State, Truth
from companion.core.trajectories import sample
from companion.core.trajectory_messages import Move

Interval = tuple[float, float]


def column(messages: list[Message], field: str, width: int = 3) -> np.ndarray:
    """One vector field of all messages, shape (n, width)."""
    return np.array([getattr(m, field) for m in messages], dtype=float).reshape(len(messages), width)


def stamps(messages: list[Message]) -> np.ndarray:
    """The stamps of all messages [s]."""
    return np.array([m.stamp_s for m in messages], dtype=float)


def interpolate(t: np.ndarray, known_t: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Linear interpolation of vectors, shape (len(t), k); NaN outside the known times."""
    columns = [np.interp(t, known_t, c, left=np.nan, right=np.nan) for c in known.T]
    return np.column_stack(columns)


def interpolate_quaternion(t: np.ndarray, known_t: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Normalised linear interpolation the short way round, shape (len(t), 4); NaN outside the known times.

    Good for messages a few degrees apart: the error is of third order in the step.
    """
    signs = np.ones(len(known))
    if len(known) > 1:
        signs[1:] = np.cumprod(np.where(np.sum(known[1:] * known[:-1], axis=1) < 0, -1.0, 1.0))
    q = interpolate(t, known_t, known * signs[:, None])
    return q / np.linalg.norm(q, axis=1, keepdims=True)


def rotate(q: np.ndarray, v: np.ndarray) -> np.ndarray:
    """R(q) v row by row: v + 2w (u × v) + 2 u × (u × v), u the vector part of q."""
    w, u = q[:, :1], q[:, 1:]
    uv = np.cross(u, v)
    return v + 2.0 * (w * uv + np.cross(u, uv))


def rotate_back(q: np.ndarray, v: np.ndarray) -> np.ndarray:
    """R(q)ᵀ v row by row."""
    return rotate(q * np.array([1.0, -1.0, -1.0, -1.0]), v)


def relative_rotation(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Log(a⁻¹ ⊗ b) row by row: the rotation vectors [rad] that turn a into b, in a's frame; (n, 3)."""
    w = np.sum(a * b, axis=1, keepdims=True)
    v = a[:, :1] * b[:, 1:] - b[:, :1] * a[:, 1:] - np.cross(a[:, 1:], b[:, 1:])
    sign = np.where(w < 0, -1.0, 1.0)
    length = np.linalg.norm(v, axis=1, keepdims=True)
    scale = 2 * np.arctan2(length, sign * w) / np.where(length > 1e-12, length, 1.0)
    return sign * np.where(length > 1e-12, scale, 2.0) * v


def rpy(q: np.ndarray) -> np.ndarray:
    """Roll, pitch, yaw [rad] row by row, shape (n, 3)."""
    w, x, y, z = q.T
    return np.column_stack(
        [
            np.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y)),
            np.arcsin(np.clip(2 * (w * y - z * x), -1.0, 1.0)),
            np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)),
        ]
    )


def wrap(angle: np.ndarray) -> np.ndarray:
    """The same angles in [-π, π)."""
    return (angle + np.pi) % (2 * np.pi) - np.pi


def intervals(messages: list[Message], inside: Callable[[Message], bool]) -> list[Interval]:
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


MEASURED_PHASES = ("HOLD", "TRAJECTORY")


def hold_intervals(pilot: list[MissionStatus]) -> list[Interval]:
    """When the mission did what it was there for: held its point, or flew its trajectory."""
    return intervals(pilot, lambda m: m.phase in MEASURED_PHASES)


def offboard_intervals(status: list[FcuStatus]) -> list[Interval]:
    """When the flight controller obeyed the companion."""
    return intervals(status, lambda m: m.mode == "OFFBOARD")


def phases(pilot: list[MissionStatus]) -> list[tuple[float, float, str, str]]:
    """(start, end, phase, reason) in order of time."""
    spans: list[tuple[float, float, str, str]] = []
    for message in pilot:
        if spans and spans[-1][2] == message.phase:
            spans[-1] = (spans[-1][0], message.stamp_s, *spans[-1][2:])
        else:
            if spans:
                spans[-1] = (spans[-1][0], message.stamp_s, *spans[-1][2:])
            spans.append((message.stamp_s, message.stamp_s, message.phase, message.reason))
    return spans


def within(t: np.ndarray, spans: list[Interval]) -> np.ndarray:
    """Which times lie in any of the spans, as a mask."""
    mask = np.zeros(len(t), dtype=bool)
    for start, end in spans:
        mask |= (t >= start) & (t <= end)
    return mask


class Track(NamedTuple):
    """Position and yaw over time in one frame: WORLD, or a bundle (yaw relative to facing it)."""

    t: np.ndarray
    p: np.ndarray
    yaw: np.ndarray


def _relative(t, p_W, q_WB, p_WM, q_WM) -> Track:
    """p_MB = R(q_WM)ᵀ (p_W - p_WM), yaw minus the yaw that faces the bundle."""
    facing = np.array([facing_yaw(q) for q in q_WM])
    return Track(t, rotate_back(q_WM, p_W - p_WM), wrap(rpy(q_WB)[:, 2] - facing))


def _empty() -> Track:
    return Track(np.zeros(0), np.zeros((0, 3)), np.zeros(0))


def estimate_track(states: list[State], frame: str) -> Track:
    """The estimated track; only states that are valid and, in a bundle's frame, describe that bundle."""
    used = [s for s in states if s.valid and (frame == WORLD or s.bundle == frame)]
    if not used:
        return _empty()
    t, p_W, q_WB = stamps(used), column(used, "p_W"), column(used, "q_WB", 4)
    if frame == WORLD:
        return Track(t, p_W, rpy(q_WB)[:, 2])
    return _relative(t, p_W, q_WB, column(used, "p_WM"), column(used, "q_WM", 4))


def truth_track(truth: list[Truth], frame: str) -> Track:
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


def reference_at(references: list[Reference], t: np.ndarray, frame: str) -> tuple[np.ndarray, np.ndarray]:
    """(points, yaws) the mission asked for at the times t, in `frame`; NaN where it asked in another frame.

    A move counts as its end point, so this is the reference of a hold or trajectory and not of the way to it.
    """
    points, yaws = np.full((len(t), 3), np.nan), np.full(len(t), np.nan)
    if not references:
        return points, yaws
    index = np.searchsorted(stamps(references), t, side="right") - 1
    # The mission repeats a reference many times a second: all its copies at once.
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
