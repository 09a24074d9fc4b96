"""Who may command the gimbal: its manager obeys one controller, which must be this process (MAVLink gimbal protocol v2).

MAV_CMD_DO_GIMBAL_MANAGER_CONFIGURE takes the control. It is sent until the manager has acknowledged it, and again whenever
GIMBAL_MANAGER_STATUS names another controller or the manager has denied a command.
"""

from typing import Any

from pymavlink.dialects.v20 import common

from companion.payload.mavlink import RESULTS

CLAIM, TURN = common.MAV_CMD_DO_GIMBAL_MANAGER_CONFIGURE, common.MAV_CMD_DO_GIMBAL_MANAGER_PITCHYAW
ACCEPTED = (common.MAV_RESULT_ACCEPTED, common.MAV_RESULT_IN_PROGRESS)
REFUSED = (common.MAV_RESULT_DENIED, common.MAV_RESULT_UNSUPPORTED, common.MAV_RESULT_FAILED)
Controller = tuple[int, int]  # system, component; (0, 0): none


class GimbalManager:
    """What the manager has said about its control."""

    def __init__(self, own: Controller) -> None:
        """own: system and component of this process."""
        self._own = own
        self._controller: Controller | None = None  # None: not reported
        self._claimed = False
        self._refused: int | None = None  # the result by which it refused the last command

    def put_status(self, m: Any) -> None:
        """Take a GIMBAL_MANAGER_STATUS of the camera's gimbal."""
        self._controller = m.primary_control_sysid, m.primary_control_compid

    def put_ack(self, command: int, result: int) -> None:
        """Take the manager's acknowledgement. One that does not know the control obeys every controller."""
        if command == CLAIM:
            self._claimed = result in ACCEPTED or result == common.MAV_RESULT_UNSUPPORTED
        elif command != TURN:
            return
        elif result in REFUSED:
            self._refused = result
            self._claimed = self._claimed and result != common.MAV_RESULT_DENIED
        if result in ACCEPTED:
            self._refused = None

    @property
    def must_be_claimed(self) -> bool:
        """Control is to be taken."""
        return not self._claimed or self._is_anothers

    @property
    def _is_anothers(self) -> bool:
        return self._controller is not None and self._controller != self._own

    @property
    def problem(self) -> str:
        """Why it does not obey, "" when it does."""
        if self._is_anothers:
            system, component = self._controller or (0, 0)
            by = f"controlled by {system}/{component}" if system else "not controlled"
            return f"is {by}, and not by this process ({self._own[0]}/{self._own[1]})"
        return "" if self._refused is None else f"refused its command: {RESULTS[self._refused]}"
