"""The reference that the mission publishes in every step while it controls the aircraft."""

import math

import msgspec
import numpy as np

from companion.core.arrays import Array
from companion.core.frames import rotation_matrix
from companion.core.messages import WORLD, ControlStatus, Reference
from companion.core.trajectories import duration_s, sample, stop_s
from companion.core.trajectory_messages import Hold, Move, Quat, Trajectory, Vec3

MOVE_SPARE_S = 15.0  # over the computed duration of a move before it counts as failed


class ReferenceStream:
    """The present reference, with an id of its own, and how far it has been flown.

    `current` is None while nothing is streamed. `timeout_s`: time after which the present move counts as failed.
    """

    def __init__(self) -> None:
        self.current: Reference | None = None
        self.timeout_s = math.inf
        self._id = 0

    def start(
        self,
        frame: str,
        trajectory: Trajectory,
        now_s: float,
        time_s: float | None = None,
        q_WM: Quat | None = None,
        before_face: bool = True,
    ) -> None:
        """Stream `trajectory` from now on. time_s: how long it is flown, if not to its own end; before_face: see `Reference`.

        A move that replaces the stop at the hand-over before its end begins with what is left of its motion. q_WM: rotation
        of the frame, for a move in a bundle's frame that may replace a stop in the world.
        """
        trajectory = self._continued(frame, trajectory, now_s, q_WM)
        self._id += 1
        self.current = Reference(
            stamp_s=now_s, id=self._id, frame=frame, start_s=now_s, trajectory=trajectory, before_face=before_face
        )
        self.timeout_s = (duration_s(trajectory) if time_s is None else time_s) + MOVE_SPARE_S

    def _continued(self, frame: str, trajectory: Trajectory, now_s: float, q_WM: Quat | None) -> Trajectory:
        present = self.current
        if present is None or not isinstance(trajectory, Move) or any(trajectory.v_start):
            return trajectory
        stop, turned = present.trajectory, present.frame == WORLD and q_WM is not None
        if (
            not isinstance(stop, Move)
            or now_s - present.start_s >= stop_s(stop)
            or not (turned or frame == present.frame)
        ):
            return trajectory
        at = sample(stop, present.start_s, np.array([now_s]))
        p, v, a = at.p_W[0], at.v_W[0], at.a_W[0]
        if frame != present.frame and q_WM is not None:
            R = rotation_matrix(q_WM)
            p, v, a = np.asarray(trajectory.p_start), R.T @ v, R.T @ a
        return msgspec.structs.replace(trajectory, p_start=_vec3(p), v_start=_vec3(v), a_start=_vec3(a))

    def stop(self) -> None:
        """Stream nothing any more."""
        self.current = None

    def message(self, now_s: float) -> Reference | None:
        """The message of this step, None while nothing is streamed."""
        r = self.current
        if r is None:
            return None
        return msgspec.structs.replace(r, stamp_s=now_s)

    def finished(self, control: ControlStatus | None) -> bool:
        """The controller reports that it has flown the present reference to its end."""
        if control is None or self.current is None or control.reference_id != self.current.id:
            return False
        return isinstance(self.current.trajectory, Hold) or control.reference_finished

    def move_time_s(self, control: ControlStatus | None, now_s: float) -> float:
        """How long the present move has taken [s], 0 when it has finished."""
        return 0.0 if self.current is None or self.finished(control) else now_s - self.current.start_s


def _vec3(v: Array) -> Vec3:
    x, y, z = v.tolist()
    return x, y, z
