"""Checks outgoing setpoints and encodes them; ends a stream that PX4 does not follow any more."""

import math
from typing import Literal, NamedTuple

from pymavlink.dialects.v20 import common

from companion.core.messages import TOPICS, Setpoint
from companion.fcu.guards.echoes import EchoWatch
from companion.fcu.ned import attitude_setpoint_ned

TILT_LIMIT_RAD = math.radians(60)  # above every vehicle file's tilt_max_rad: such a setpoint is corrupt
YAW_RATE_LIMIT_RAD_S = math.pi
FUTURE_LIMIT_S = 0.5  # a setpoint stamped further ahead is corrupt (stamps may lie one actuation delay ahead)

# attitude, thrust and yaw rate are used; PX4 takes the yaw rate as feed-forward (yaw_sp_move_rate)
TYPE_MASK = (
    common.ATTITUDE_TARGET_TYPEMASK_BODY_ROLL_RATE_IGNORE | common.ATTITUDE_TARGET_TYPEMASK_BODY_PITCH_RATE_IGNORE
)

NEW_STREAM_S = 2.0  # a pause longer than this starts a new stream
STREAMING_S = 0.25  # since the newest setpoint; a controller whose reference has ended is silent


SetpointCounter = Literal[
    "setpoints_sent",
    "setpoints_expired",
    "setpoints_invalid",
    "setpoints_out_of_order",
    "setpoints_conflict",
    "setpoints_interrupted",
]


class SetpointFault(NamedTuple):
    """Why a setpoint must not leave, and the counter of such setpoints."""

    counter: SetpointCounter
    reason: str


class SetpointGate:
    """Checks setpoints and encodes them; `echoes` compares those that left with what PX4 follows."""

    def __init__(self, target_system: int, pause_max_s: float) -> None:
        """pause_max_s: a longer pause ends a stream, because PX4 may leave offboard in it [s]."""
        self.echoes = EchoWatch()
        self._target = target_system
        self._pause_max_s = pause_max_s
        self._stamp_s = -math.inf  # of the newest that left
        self._arrived_s = -math.inf  # the newest, whether it left or not
        self._sent_s = -math.inf  # when the newest left
        self._followed = False  # PX4 followed setpoints when the newest left
        self._interrupted = False
        self._resume_after_s = self._pause_max_s  # pause that ends an interruption

    def is_interrupted(self, now_s: float) -> bool:
        """Take the arrival of a setpoint; True while its stream must not continue.

        A controller that has paused continues with its earlier task. PX4 may have left offboard meanwhile, and a
        returning stream would put PX4 back into offboard without a request: such a stream is refused until it ends.
        PX4 counts what leaves, so a pause in which setpoints arrived and none left (each had expired) is one, too.
        """
        pause_s, self._arrived_s = now_s - self._arrived_s, now_s
        if pause_s > self._resume_after_s:  # the first of a stream
            self._interrupted, self._resume_after_s = False, self._pause_max_s
        if self._followed and now_s - self._sent_s > self._pause_max_s:
            self._followed = False
            if pause_s < NEW_STREAM_S:
                self._interrupted, self._resume_after_s = True, NEW_STREAM_S
        return self._interrupted

    def is_streaming(self, now_s: float) -> bool:
        """The newest setpoint has left just now."""
        return now_s - self._sent_s <= STREAMING_S

    def end_stream(self, now_s: float) -> None:
        """PX4 has left offboard without our request: nothing leaves until this stream has paused and another begins.

        A pilot took over, or PX4's failsafe acts. The mission needs a few tenths of a second to end the stream, and
        a setpoint on the way would put PX4 back into offboard if the pilot returned the switch. After a pause that was
        long enough for PX4's failsafe, PX4 still wants offboard and enters it with the first setpoint: the same
        controller must not continue, so the stream has to end as after any such pause.
        """
        if self._followed and now_s - self._sent_s > self._pause_max_s:
            self._resume_after_s = NEW_STREAM_S
        self._interrupted, self._followed = True, False

    def fault(self, m: Setpoint, now_s: float) -> SetpointFault | None:
        """Why a setpoint must not leave; None when it may."""
        numbers = (m.stamp_s, m.expires_s, m.roll_rad, m.pitch_rad, m.yaw_rad, m.yaw_rate_rad_s, m.thrust)
        if not m.valid or not all(map(math.isfinite, numbers)):
            return SetpointFault("setpoints_invalid", "marked invalid or not finite")
        if m.stamp_s > now_s + FUTURE_LIMIT_S:
            return SetpointFault("setpoints_invalid", f"stamped {m.stamp_s - now_s:.2f} s ahead")
        if abs(m.roll_rad) > TILT_LIMIT_RAD or abs(m.pitch_rad) > TILT_LIMIT_RAD:
            return SetpointFault(
                "setpoints_invalid", f"tilt of {math.degrees(max(abs(m.roll_rad), abs(m.pitch_rad))):.0f} degrees"
            )
        if abs(m.yaw_rate_rad_s) > YAW_RATE_LIMIT_RAD_S or not 0.0 <= m.thrust <= 1.0:
            return SetpointFault(
                "setpoints_invalid", f"yaw rate {m.yaw_rate_rad_s:.2f} rad/s, thrust {m.thrust:.3f} out of range"
            )
        if now_s >= m.expires_s or now_s - m.stamp_s > TOPICS["setpoint"].max_age_s:
            return SetpointFault("setpoints_expired", f"{(now_s - m.stamp_s) * 1e3:.0f} ms old, expired")
        if m.stamp_s <= self._stamp_s:
            return SetpointFault("setpoints_out_of_order", "older than one already sent")
        return None

    def message(self, m: Setpoint, followed: bool, now_s: float) -> common.MAVLink_set_attitude_target_message:
        """The message for a setpoint without fault; the setpoint counts as sent.

        followed: PX4 reports that it is armed and in offboard.
        """
        self._stamp_s, self._sent_s = m.stamp_s, now_s
        self._followed = followed
        q = attitude_setpoint_ned(m.roll_rad, m.pitch_rad, m.yaw_rad)
        self.echoes.note_sent(q, m.thrust, now_s)
        return common.MAVLink_set_attitude_target_message(
            int(now_s * 1000) & 0xFFFFFFFF, self._target, common.MAV_COMP_ID_AUTOPILOT1, TYPE_MASK, q,
            0.0, 0.0, -m.yaw_rate_rad_s, m.thrust,
        )  # fmt: skip
