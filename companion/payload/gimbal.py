"""The gimbal: its commands and what its reports mean (MAVLink gimbal protocol v2).

A gimbal reports its attitude level with the horizon: roll and pitch against the earth, yaw against the heading of the
body or against north, by its flags. So roll and pitch of the picture come from the gimbal's own inertial sensor, the
heading from the stack's state. MAVLink's axes are front, right, down; those of the stack front, left, up.

Yaw from north is by the compass of the flight controller, which sends its attitude to the gimbal
(AUTOPILOT_STATE_FOR_GIMBAL_DEVICE; MAVLink gimbal protocol v2). Less the heading of the flight controller at that time it is
yaw from the body, and an error of that compass drops out. Assumed is that the gimbal has no compass of its own.

An aircraft may carry other gimbals, which report on the same link. The camera's is the device that its manager names
(GIMBAL_MANAGER_INFORMATION, GIMBAL_MANAGER_STATUS), else the component of the camera file where that is a gimbal's own,
else the first that reports.

PX4 reports for gimbals on its servo outputs, under its own component, what it has commanded and not what a sensor has measured
(src/modules/gimbal/output_rc.cpp, output.cpp): without a flag for the frame of yaw, and with `MNT_DO_STAB` less roll and pitch of
the body, so that the servos level the camera. Such a gimbal gets the time of a slow servo for its way, and its attitude an error
of its own.
"""

import bisect
import math
from collections import deque
from typing import Any, NamedTuple

import numpy as np
from pymavlink.dialects.v20 import common

from companion.core.arrays import Array
from companion.core.frames import quat_conjugate, quat_from_rpy, quat_log, quat_multiply, rotation_matrix, rpy_from_quat
from companion.payload.history import GAP_MAX_S, KEPT_S, Moment, interpolated

REPORT_US = 40_000  # interval of the attitude that is requested
SLOW_S = 0.25  # of two intervals
SILENT_S = 1.5  # a gimbal without report for this long is not known
COMMAND_PERIOD_S = 1.0  # the command is repeated while the gimbal is not at its pitch
REACHED_RAD = math.radians(1.0)
ASIDE_RAD = math.radians(2.0)  # of yaw against the body's heading, and roll: beyond it, the command is repeated, too
# Beyond it a gimbal does not stand straight ahead: it was panned by hand, or keeps a direction (yaw lock). Less is no fault of it, and
# the pose has what it reports: in wind the aircraft leans by 3 to 6°, and a gimbal without a roll axis with it; the yaw of one without
# a compass drifts.
ASIDE_MAX_RAD = math.radians(10.0)
SERVO_RATE_RAD_S = math.radians(30.0)  # of a gimbal that reports its set-point: slow for a servo
SETPOINT_STD_RAD = 0.03  # of that set-point's attitude: backlash, and the scale of the servo
NORTH_RAD = math.pi / 2  # heading of north in the world, whose x axis points east
UNIT_MIN = 0.9  # length of a reported quaternion
COMPONENTS = frozenset((common.MAV_COMP_ID_GIMBAL, *range(common.MAV_COMP_ID_GIMBAL2, common.MAV_COMP_ID_GIMBAL6 + 1)))
WITHOUT_COMPONENT = range(1, 7)  # ids of devices that their manager reports for
Sender = tuple[int, int, int]  # system, component, gimbal_device_id


class GimbalReport(NamedTuple):
    """Attitude at the time of its arrival."""

    stamp_s: float
    q: Array  # front, left, up; in the level frame that `by_heading` names
    by_heading: bool  # yaw counts from the body's heading; else from north
    omega_G: Array  # reported rates in the gimbal, without those of that frame; NaN: not reported
    q_heading: (
        Array | None
    )  # in the level frame with the body's heading; None: from north, by a heading that is not known


class Gimbal:
    """Reports of the last seconds, and whether the gimbal stands at the wanted pitch and straight ahead.

    foreign: reports of other gimbals, which are not used.
    """

    def __init__(self, manager: int) -> None:
        """manager: its component, as in the camera file."""
        self.foreign = 0
        self._manager = manager
        self._device: int | None = None  # as the manager names it
        self._sender: Sender | None = None
        self._reports: deque[GimbalReport] = deque()
        self._wanted_rad: float | None = None
        self._way_s = 0.0  # that a servo may take there
        self._reached_s = math.inf  # since when it stands there
        self._commanded = False  # since the last `want`
        self._due_s = -math.inf

    @property
    def device(self) -> int:
        """As the manager names it, 0 when it named none: then a command is for all of its devices."""
        return self._device or 0

    def name_device(self, device: int) -> None:
        """Take the `gimbal_device_id` of the manager; the first one counts, 0 names none."""
        if self._device is not None or not (device in COMPONENTS or device in WITHOUT_COMPONENT):
            return
        self._device = device
        if self._sender is not None and not self._is_own(self._sender):
            self._forget()

    def _is_own(self, sender: Sender) -> bool:
        """It may be the camera's gimbal."""
        _, component, device = sender
        named = self._device
        if named is None:
            return component == self._manager or self._manager not in COMPONENTS
        return (component == named and named in COMPONENTS) or (component == self._manager and device in (0, named))

    def _is_used(self, sender: Sender, now_s: float) -> bool:
        """Whether a report counts; the first own gimbal stays the one, unless it is silent and the manager named the other."""
        if sender == self._sender:
            return True
        replaced = self._device is not None and not self.is_reporting(now_s)
        if not self._is_own(sender) or (self._sender is not None and not replaced):
            return False
        self._forget()
        self._sender = sender
        return True

    def _forget(self) -> None:
        """The reports so far were of another gimbal."""
        self._reports.clear()
        self._sender, self._reached_s = None, math.inf

    @property
    def reports_setpoint(self) -> bool:
        """Its reports are PX4's own: what was commanded, whatever the gimbal does."""
        return self._sender is not None and self._sender[1] == common.MAV_COMP_ID_AUTOPILOT1

    def put(
        self, m: Any, system: int, component: int, now_s: float, q_WB: Array | None, fcu_yaw_rad: float | None
    ) -> bool:
        """Take a GIMBAL_DEVICE_ATTITUDE_STATUS and who sent it; returns whether it is used.

        q_WB: attitude of the body. fcu_yaw_rad: its heading as the flight controller has it now, from which the gimbal has
        north. None: not known.
        """
        q = np.array([m.q[0], m.q[1], -m.q[2], -m.q[3]])
        length = math.sqrt(float(q @ q))
        if not UNIT_MIN < length < 1 / UNIT_MIN:  # NaN, too
            return False
        if not self._is_used((system, component, m.gimbal_device_id), now_s):
            self.foreign += 1
            return False
        in_vehicle = bool(m.flags & common.GIMBAL_DEVICE_FLAGS_YAW_IN_VEHICLE_FRAME)
        in_earth = bool(m.flags & common.GIMBAL_DEVICE_FLAGS_YAW_IN_EARTH_FRAME)
        # It decides where neither is set, as before 2022. PX4 sets neither for servo outputs, and in earlier versions the lock
        # always: the yaw is that which was commanded here, against the body.
        locked = bool(m.flags & common.GIMBAL_DEVICE_FLAGS_YAW_LOCK) and not self.reports_setpoint
        rates = np.array([m.angular_velocity_x, -m.angular_velocity_y, -m.angular_velocity_z])
        q, by_heading = q / length, in_vehicle or not (in_earth or locked)
        if self.reports_setpoint and by_heading and q_WB is not None:
            q = self._against_horizon(q, q_WB)
        q_heading: Array | None = q if by_heading else None
        if not by_heading and fcu_yaw_rad is not None:
            q_heading = quat_multiply(quat_from_rpy(0.0, 0.0, NORTH_RAD - fcu_yaw_rad), q)
        report = GimbalReport(now_s, q, by_heading, rates, q_heading)
        self._reports.append(report)
        while self._reports[0].stamp_s < now_s - KEPT_S:
            self._reports.popleft()
        self._note_direction(report)
        return True

    def _against_horizon(self, q: Array, q_WB: Array) -> Array:
        """A set-point of PX4 against the horizon, with the body's heading.

        With `MNT_DO_STAB` it is that of the servos on the leaning body, else that of a mount that levels itself. No report says
        which: the one is meant that is nearer to the wanted direction.
        """
        roll, pitch, _ = rpy_from_quat(q_WB)
        on_body = quat_multiply(quat_from_rpy(roll, pitch, 0.0), q)
        return min(q, on_body, key=lambda each: math.hypot(*self._off_rad(each)))

    def _note_direction(self, report: GimbalReport) -> None:
        if self._wanted_rad is None:
            return
        pitch_rad, aside_rad = self.off_rad
        if pitch_rad <= REACHED_RAD and aside_rad <= ASIDE_MAX_RAD:
            self._reached_s = min(self._reached_s, report.stamp_s)
        else:
            self._reached_s = math.inf

    @property
    def off_rad(self) -> tuple[float, float]:
        """By which it is off the wanted direction: in pitch; in yaw and roll. The latter 0 where the heading is not known.

        From the rotation between both, because yaw and roll alone have no meaning for a camera that looks straight up.
        """
        if not self._reports or (q := self._reports[-1].q_heading) is None:
            return abs(self.pitch_rad - (self._wanted_rad or 0.0)), 0.0
        return self._off_rad(q)

    def _off_rad(self, q: Array) -> tuple[float, float]:
        wanted = quat_from_rpy(0.0, -(self._wanted_rad or 0.0), 0.0)
        x, y, z = quat_log(quat_multiply(quat_conjugate(wanted), q)).tolist()
        return abs(y), math.hypot(x, z)

    def why_not_settled(self) -> str:
        """What is wrong with its direction, as a clause."""
        pitch_rad, aside_rad = self.off_rad
        if pitch_rad <= REACHED_RAD and aside_rad > ASIDE_MAX_RAD:
            return f"the gimbal is turned by {math.degrees(aside_rad):.0f}° in yaw or roll"
        pitch, wanted = math.degrees(self.pitch_rad), math.degrees(self._wanted_rad or 0.0)
        return f"the gimbal stands at {pitch:.0f}° and not at {wanted:.0f}°"

    @property
    def pitch_rad(self) -> float:
        """Elevation of the gimbal's axis, up is positive; NaN without a report."""
        if not self._reports:
            return math.nan
        forward = rotation_matrix(self._reports[-1].q)[:, 0]
        return math.asin(max(-1.0, min(1.0, float(forward[2]))))

    def is_reporting(self, now_s: float) -> bool:
        return bool(self._reports) and now_s - self._reports[-1].stamp_s <= SILENT_S

    def is_slow(self, now_s: float) -> bool:
        """It reports less often than was requested, or not at all."""
        reports = self._reports
        return len(reports) < 2 or max(now_s, reports[-1].stamp_s) - reports[-2].stamp_s > SLOW_S

    def want(self, pitch_rad: float) -> None:
        """Set the pitch that `command` asks for; it is sent at least once, wherever the gimbal stands."""
        self._commanded, self._due_s = False, -math.inf
        if self._wanted_rad is None or abs(pitch_rad - self._wanted_rad) > 1e-6:
            self._way_s = abs(pitch_rad - self.pitch_rad) / SERVO_RATE_RAD_S if self._reports else 0.0
            self._wanted_rad, self._reached_s = pitch_rad, math.inf
            if self._reports:
                self._note_direction(self._reports[-1])

    def has_settled(self, settle_s: float, now_s: float) -> bool:
        """It has stood at the wanted pitch for a time; a set-point says nothing of the way there."""
        way_s = self._way_s if self.reports_setpoint else 0.0
        return self.is_reporting(now_s) and now_s - self._reached_s >= way_s + settle_s

    def command_due(self, now_s: float, refused: bool = False) -> bool:
        """A command is to be sent now; it then counts as sent. refused: the last one was, so it is repeated wherever the gimbal stands."""
        if self._wanted_rad is None or now_s < self._due_s:
            return False
        if self._commanded and not refused and math.isfinite(self._reached_s) and self.off_rad[1] <= ASIDE_RAD:
            return False
        self._commanded = True
        self._due_s = now_s + COMMAND_PERIOD_S
        return True

    def parameters(self) -> tuple[float, ...]:
        """Of MAV_CMD_DO_GIMBAL_MANAGER_PITCHYAW: pitch against the horizon, yaw with the body."""
        flags = (
            common.GIMBAL_MANAGER_FLAGS_ROLL_LOCK
            | common.GIMBAL_MANAGER_FLAGS_PITCH_LOCK
            | common.GIMBAL_MANAGER_FLAGS_YAW_IN_VEHICLE_FRAME
        )
        return (math.degrees(self._wanted_rad or 0.0), 0.0, math.nan, math.nan, float(flags), 0.0, float(self.device))

    def attitude(self, moment: Moment) -> tuple[Array, Array] | None:
        """q_WG and the rates in W [rad/s] at a time; None: no report near it, or from north by a heading that is not known."""
        reports = self._reports
        i = bisect.bisect_left(reports, moment.stamp_s, key=lambda report: report.stamp_s)
        if i == len(reports):
            if not reports or moment.stamp_s - reports[-1].stamp_s > GAP_MAX_S:
                return None
            before = after = reports[-1]
        else:
            after = reports[i]
            before = reports[i - 1] if i > 0 else after
            if after.stamp_s - before.stamp_s > GAP_MAX_S or after.stamp_s - moment.stamp_s > GAP_MAX_S:
                return None
        if before.q_heading is None or after.q_heading is None:
            return None
        span_s = after.stamp_s - before.stamp_s
        share = (moment.stamp_s - before.stamp_s) / span_s if span_s > 0 else 0.0
        q = interpolated(before.q_heading, after.q_heading, share)
        omega = after.omega_G
        if not np.isfinite(omega).all():
            turned = quat_log(quat_multiply(quat_conjugate(before.q), after.q))
            omega = turned / span_s if span_s > 0 else np.zeros(3)
        roll, pitch, yaw = rpy_from_quat(moment.q_WB)
        heading_rate = 0.0
        if after.by_heading:
            _, q_rate, r = moment.omega_B
            heading_rate = (q_rate * math.sin(roll) + r * math.cos(roll)) / max(0.1, math.cos(pitch))
            heading_rate = heading_rate if math.isfinite(heading_rate) else 0.0
        q_WG = quat_multiply(quat_from_rpy(0.0, 0.0, yaw), q)
        return q_WG, rotation_matrix(q_WG) @ omega + np.array([0.0, 0.0, heading_rate])
