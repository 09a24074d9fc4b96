"""Who may command the gimbal: its manager obeys one controller, which must be this process (MAVLink gimbal protocol v2).

MAV_CMD_DO_GIMBAL_MANAGER_CONFIGURE takes the control. It is sent until the manager has acknowledged it, and again whenever
GIMBAL_MANAGER_STATUS names another controller, or none, or the manager has denied a command. A manager that does not support
it obeys every controller, whichever it reports.

A refused command says how the manager is now, not how it stays: the command is sent again each second while it counts, and it
counts for `REFUSED_S`.
"""

import math
from typing import Any

from pymavlink.dialects.v20 import common

from companion.payload.mavlink import RESULTS

CLAIM, TURN = common.MAV_CMD_DO_GIMBAL_MANAGER_CONFIGURE, common.MAV_CMD_DO_GIMBAL_MANAGER_PITCHYAW
ACCEPTED = (common.MAV_RESULT_ACCEPTED, common.MAV_RESULT_IN_PROGRESS)
REFUSED = (common.MAV_RESULT_DENIED, common.MAV_RESULT_UNSUPPORTED, common.MAV_RESULT_FAILED)
WITHOUT_CONTROL: int = common.MAV_RESULT_UNSUPPORTED  # to a claim
REFUSED_S = 3.0  # two acknowledgements of commands that are repeated each second may be lost
Controller = tuple[int, int]  # system, component
NO_CONTROLLER: Controller = (0, 0)


class GimbalManager:
    """What the manager has said about its control."""

    def __init__(self, own: Controller) -> None:
        """own: system and component of this process."""
        self._own = own
        self._controller: Controller | None = None  # None: not reported
        self._claim: int | None = None  # the result of the last claim; None: it is to be made
        self._refused: int | None = None  # the result by which it refused the last command
        self._refused_s = -math.inf

    def put_status(self, m: Any) -> None:
        """Take a GIMBAL_MANAGER_STATUS of the camera's gimbal."""
        self._controller = m.primary_control_sysid, m.primary_control_compid

    def put_ack(self, command: int, result: int, now_s: float) -> None:
        """Take the manager's acknowledgement."""
        if command == CLAIM:
            self._claim = result
        elif command != TURN:
            return
        elif result in REFUSED:
            self._refused, self._refused_s = result, now_s
            if result == common.MAV_RESULT_DENIED:
                self._claim = None
        if result in ACCEPTED:
            self._refused = None

    @property
    def must_be_claimed(self) -> bool:
        """Control is to be taken."""
        claimed = self._claim in ACCEPTED and self._controller in (None, self._own)
        return not (claimed or self._obeys_all)

    @property
    def _obeys_all(self) -> bool:
        """It has no control that could be taken."""
        return self._claim == WITHOUT_CONTROL

    def refuses(self, now_s: float) -> bool:
        """It refused the last command, not long ago."""
        return self._refused is not None and now_s - self._refused_s <= REFUSED_S

    def problem(self, now_s: float) -> str:
        """Why it does not obey, "" when it does."""
        by, own = self._controller, self._own
        if by is not None and by not in (NO_CONTROLLER, own) and not self._obeys_all:
            return f"is controlled by {by[0]}/{by[1]}, and not by this process ({own[0]}/{own[1]})"
        if self._refused is not None and self.refuses(now_s):
            return f"refused its command: {RESULTS[self._refused]}"
        return ""
