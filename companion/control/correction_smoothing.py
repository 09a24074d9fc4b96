"""Corrections of the estimate reach the controller gradually.

When a bundle comes into sight after seconds without one, the estimated position relative to the reference jumps by decimetres although
the aircraft has not moved. A controller that takes the jump for a motion answers with a step of the attitude, the turning
aircraft makes the next image worse, and the next correction larger. Here the controller sees the position without the jump, and the
jump fades in over TIME_S. Small corrections, the ordinary work of the filter, pass at once.

In the seconds after the hand-over no correction passes at once. Far from a bundle the position in the world is known to decimetres, the
motion to centimetres per second. The reference began at the estimated position and has the same error: the aircraft stays.
"""

import math

import numpy as np

from companion.core.arrays import Array
from companion.core.bundle_poses import bundle_pose
from companion.core.frames import rotation_matrix
from companion.core.messages import WORLD, State

JUMP_M = 0.05  # in the hold 999 of 1000 corrections are below 0.03 m
LARGEST_M = 1.0  # held back at most: beyond this the aircraft must move at once
TIME_S = 1.0
GAP_S = 0.1  # states farther apart show no jump
HANDOVER_S = 5.0  # from the last cycle without acting setpoints; later a reference is flown to where it is in the world
HANDOVER_TIME_S = 5.0  # instead of TIME_S meanwhile


class CorrectionSmoothing:
    """What of past corrections the controller does not see yet."""

    def __init__(self) -> None:
        self._left_W = np.zeros(3)
        self._last: tuple[float, str, int, Array, Array] | None = None
        self._handover_ends_s = -math.inf
        self._reference_id: int | None = None

    def hand_over(self, stamp_s: float, reference_id: int) -> None:
        """The controller does not act yet; a new reference begins at the present estimate."""
        if reference_id != self._reference_id:
            self.forget()
        self._reference_id, self._handover_ends_s = reference_id, stamp_s + HANDOVER_S

    def forget(self) -> None:
        """Hold nothing back of what has been corrected so far."""
        self._left_W, self._last = np.zeros(3), None

    def offset_W(self, state: State, frame: str) -> Array:
        """What to subtract from the state's position [m], (3,); frame: of the reference.

        A jump is the change of the position in the reference's frame that the velocity does not explain.
        """
        p_W, v_W = np.array(state.p_W), np.array(state.v_W)
        pose = None if frame == WORLD else bundle_pose(state, frame)
        R_WF = np.eye(3) if pose is None else rotation_matrix(pose[1])
        p_F = p_W if pose is None else R_WF.T @ (p_W - pose[0])
        last, self._last = self._last, (state.stamp_s, frame, state.reset_count, p_F, R_WF.T @ v_W)
        if last is None or last[1:3] != self._last[1:3] or not 0 <= state.stamp_s - last[0] <= GAP_S:
            return self._left_W
        since_s = state.stamp_s - last[0]
        jump_W = R_WF @ (p_F - last[3] - since_s * (last[4] + self._last[4]) / 2)
        handover = frame == WORLD and state.stamp_s < self._handover_ends_s
        self._left_W = np.exp(-since_s / (HANDOVER_TIME_S if handover else TIME_S)) * self._left_W
        if handover or np.linalg.norm(jump_W) > JUMP_M:
            left_W = self._left_W + jump_W
            self._left_W = left_W * min(1.0, LARGEST_M / max(float(np.linalg.norm(left_W)), 1e-9))
        return self._left_W
