"""Setpoints on their way out: which may leave, how they look on the wire, and whether the flight controller obeys them.

PX4 tells with ATTITUDE_TARGET which attitude and thrust it flies by. In offboard that is a copy of the newest setpoint
it got; when it is none of those that left here, somebody else steers.
"""

import math
from collections import deque
from types import SimpleNamespace

from pymavlink.dialects.v20 import common

from companion.core.messages import TOPICS, Quat, Setpoint
from companion.fcu.ned import attitude_setpoint_ned

TILT_LIMIT_RAD = math.radians(60)  # beyond every vehicle file's tilt_max_rad: a setpoint like that is corrupt
YAW_RATE_LIMIT_RAD_S = math.pi
FUTURE_LIMIT_S = 0.5  # a setpoint stamped further ahead is corrupt (stamps may lie one actuation delay ahead)

# attitude, thrust and yaw rate are meant; PX4 takes the yaw rate as feed-forward (yaw_sp_move_rate)
TYPE_MASK = (
    common.ATTITUDE_TARGET_TYPEMASK_BODY_ROLL_RATE_IGNORE | common.ATTITUDE_TARGET_TYPEMASK_BODY_PITCH_RATE_IGNORE
)

RESUME_SHARE = 0.8  # of the silence after which PX4 leaves offboard: until then a stream may go on as if nothing was
NEW_STREAM_S = 2.0  # after a pause so long nobody streams on by himself: the mission asked for it anew

ECHO_MEMORY_S = 2.0  # setpoints that may still be flown by: COM_OF_LOSS_T and the way back
ECHO_RECENT_S = 0.5  # without a setpoint this young PX4 may have left offboard already
ECHO_MISSES = 10  # strange echoes in a row, a second of them: the news of a change of mode is faster
ECHO_TOLERANCE = 1e-3  # of thrust, and of the sine of half the angle between two attitudes; the wire has float32


class SetpointGate:
    """Judges setpoints, makes their messages, remembers what left."""

    def __init__(self, target_system: int, lost_s: float) -> None:
        """lost_s: silence after which PX4 leaves offboard [s]."""
        self._target = target_system
        self._resume_within_s = RESUME_SHARE * lost_s
        self._stamp_s = -math.inf  # of the newest that left
        self._arrived_s = -math.inf  # the newest, whether it left or not
        self._flown_by = False  # PX4 obeyed as the newest left
        self._interrupted = False
        self._sent: deque[tuple[float, Quat, float]] = deque()  # time, q_NED_FRD, thrust
        self._strange = 0  # echoes in a row that no setpoint explains

    def is_interrupted(self, now_s: float) -> bool:
        """Take the arrival of a setpoint; True while the stream it belongs to must not go on.

        A controller that was away comes back with what it was asked for before. PX4 may have left offboard meanwhile,
        and a stream that returns would put it back in, behind the pilot's back: such a stream is refused to its end.
        """
        pause_s, self._arrived_s = now_s - self._arrived_s, now_s
        if pause_s > self._resume_within_s:  # the first of a stream
            self._interrupted = self._flown_by and pause_s < NEW_STREAM_S
            self._flown_by = False
        return self._interrupted

    def fault(self, m: Setpoint, now_s: float) -> tuple[str, str] | None:
        """Why a setpoint must not leave: counter and text."""
        numbers = (m.stamp_s, m.expires_s, m.roll_rad, m.pitch_rad, m.yaw_rad, m.yaw_rate_rad_s, m.thrust)
        if not m.valid or not all(map(math.isfinite, numbers)):
            return "setpoints_invalid", "marked invalid or not finite"
        if m.stamp_s > now_s + FUTURE_LIMIT_S:
            return "setpoints_invalid", f"stamped {m.stamp_s - now_s:.2f} s ahead"
        if abs(m.roll_rad) > TILT_LIMIT_RAD or abs(m.pitch_rad) > TILT_LIMIT_RAD:
            return "setpoints_invalid", f"tilt of {math.degrees(max(abs(m.roll_rad), abs(m.pitch_rad))):.0f} degrees"
        if abs(m.yaw_rate_rad_s) > YAW_RATE_LIMIT_RAD_S or not 0.0 <= m.thrust <= 1.0:
            return "setpoints_invalid", f"yaw rate {m.yaw_rate_rad_s:.2f} rad/s, thrust {m.thrust:.3f} out of range"
        if now_s >= m.expires_s or now_s - m.stamp_s > TOPICS["setpoint"].max_age_s:
            return "setpoints_expired", f"{(now_s - m.stamp_s) * 1e3:.0f} ms old, expired"
        if m.stamp_s <= self._stamp_s:
            return "setpoints_out_of_order", "older than one already sent"
        return None

    def message(self, m: Setpoint, obeyed: bool, now_s: float) -> common.MAVLink_set_attitude_target_message:
        """The message that carries a setpoint without fault; it counts as sent from now on.

        obeyed: PX4 says that it is armed and in offboard.
        """
        self._stamp_s = m.stamp_s
        self._flown_by = obeyed
        q = attitude_setpoint_ned(m.roll_rad, m.pitch_rad, m.yaw_rad)
        sent = self._sent
        sent.append((now_s, q, m.thrust))
        while now_s - sent[0][0] > ECHO_MEMORY_S:
            sent.popleft()
        return common.MAVLink_set_attitude_target_message(
            int(now_s * 1000) & 0xFFFFFFFF, self._target, common.MAV_COMP_ID_AUTOPILOT1, TYPE_MASK, q,
            0.0, 0.0, -m.yaw_rate_rad_s, m.thrust,
        )  # fmt: skip

    def is_strange(self, echo: SimpleNamespace, offboard: bool, now_s: float) -> bool:
        """Take an ATTITUDE_TARGET; True when PX4 has been flying in offboard by setpoints that are not ours.

        offboard: PX4 says that it is armed and in that mode.
        """
        sent = self._sent
        if not offboard or not sent or now_s - sent[-1][0] > ECHO_RECENT_S:
            self._strange = 0
            return False
        if any(_alike(echo, q, thrust) for _, q, thrust in reversed(sent)):
            self._strange = 0
            return False
        self._strange += 1
        return self._strange >= ECHO_MISSES


def _alike(echo: SimpleNamespace, q: Quat, thrust: float) -> bool:
    """Whether an echoed attitude and thrust are those of a setpoint."""
    if not abs(echo.thrust - thrust) <= ECHO_TOLERANCE:
        return False
    e = echo.q
    dot = e[0] * q[0] + e[1] * q[1] + e[2] * q[2] + e[3] * q[3]
    return dot * dot >= 1.0 - ECHO_TOLERANCE * ECHO_TOLERANCE
