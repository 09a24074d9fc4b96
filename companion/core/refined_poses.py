"""Poses of photographs from `companion calibrate photographs --json FILE`, in the place of those as taken in flight."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from companion.core.errors import UserError
from companion.core.messages import Capture
from companion.core.trajectory_messages import Quat, Vec3

SAME_S = 1e-3  # of one exposure's stamp, as the log and the file have it


class PosesError(UserError):
    """A file of poses cannot be used; one line."""


class RefinedPhotograph(msgspec.Struct, frozen=True):
    """One photograph: the camera in the frame of a bundle; covariance (6, 6): place [m²], rotation about its axes [rad²]."""

    id: int
    attempt: int
    bundle: str
    p_MC: Vec3
    q_MC: Quat
    position_std_m: float
    attitude_std_rad: float
    covariance: list[list[float]]
    stamp_s: float | None = None  # of its exposure, companion time; None: a file of an earlier version


class _Details(msgspec.Struct):
    photographs: list[RefinedPhotograph]


class _File(msgspec.Struct):
    command: str
    details: _Details


class Posed(NamedTuple):
    """A photograph with its pose; covariance: the diagonal, position [m²] and rotation [rad²]; None: as taken in flight."""

    capture: Capture
    covariance: tuple[float, ...] | None


def pose_source(adjusted: bool) -> str:
    """What tags and tables call the origin of a pose."""
    return "adjustment" if adjusted else "flight"


def read_poses(path: Path) -> list[RefinedPhotograph]:
    """The poses of a file; raises `PosesError`."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_File).details.photographs
    except OSError as error:
        raise PosesError(f"{path}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise PosesError(f"{path}: holds no poses of photographs (companion calibrate photographs): {error}") from None


def with_poses(captures: Sequence[Capture], poses: Sequence[RefinedPhotograph], path: Path) -> list[Posed]:
    """The photographs with the poses of the file where it has them.

    Raises `PosesError` when it has none of them, or one that was taken at another time: plans give the same numbers in each flight.
    """
    known = {(pose.id, pose.attempt): pose for pose in poses}
    for capture in captures:
        pose = known.get((capture.id, capture.attempt))
        if pose is not None and pose.stamp_s is not None and abs(pose.stamp_s - capture.stamp_s) > SAME_S:
            raise PosesError(f"{path}: its photograph {capture.id} was taken at another time: it is of another flight")
    found = [posed(capture, known.get((capture.id, capture.attempt))) for capture in captures]
    if captures and all(one.covariance is None for one in found):
        raise PosesError(f"{path}: holds none of these photographs: it is of another flight")
    return found


def poses_by_flight(files: Sequence[Path], flights: Sequence[Sequence[Capture]]) -> list[list[RefinedPhotograph]]:
    """The poses of the files, for each flight those of its photographs; flights: the captures of each.

    Raises `PosesError` for a file without times, or one that has no photograph of these flights.
    """
    found: list[list[RefinedPhotograph]] = [[] for _ in flights]
    for file in files:
        poses = read_poses(file)
        if not are_dated(poses):
            raise PosesError(
                f"{file}: an earlier version wrote it, without times: make it again (companion calibrate photographs)"
            )
        own = [
            [pose for pose in poses if any(is_pose_of(pose, capture) for capture in captures)] for captures in flights
        ]
        if not any(own):
            raise PosesError(f"{file}: holds no photograph of these flights: it is of another flight")
        for mine, more in zip(found, own, strict=True):
            mine += more
    return found


def is_pose_of(pose: RefinedPhotograph, capture: Capture) -> bool:
    """They are of one exposure. A pose without a time is of none."""
    same = (pose.id, pose.attempt) == (capture.id, capture.attempt)
    return same and pose.stamp_s is not None and abs(pose.stamp_s - capture.stamp_s) <= SAME_S


def are_dated(poses: Sequence[RefinedPhotograph]) -> bool:
    """The file says when each photograph was taken, so that `with_poses` knows another flight."""
    return all(pose.stamp_s is not None for pose in poses)


def posed(capture: Capture, pose: RefinedPhotograph | None) -> Posed:
    """A photograph with a pose of its exposure; None: as taken in flight."""
    if pose is None:
        return Posed(capture, None)
    changed = msgspec.structs.replace(
        capture,
        bundle=pose.bundle,
        p_MC=pose.p_MC,
        q_MC=pose.q_MC,
        position_std_m=pose.position_std_m,
        attitude_std_rad=pose.attitude_std_rad,
    )
    return Posed(changed, tuple(row[i] for i, row in enumerate(pose.covariance)))
