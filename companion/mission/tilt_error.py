"""Does the attitude follow the setpoints that were sent?"""

import math
from collections import deque

from companion.core.frames import rotation_matrix
from companion.core.messages import SentSetpoint
from companion.core.trajectory_messages import Quat, Vec3

WINDOW_S = 0.5  # a step of the command is followed within 0.3 s
STEP_MAX_S = 0.1  # between two errors; a step of the mission takes half of it
# Over the limit: as which a larger error counts in the mean. A healthy attitude answers the reversal of a full command, of 1.1 rad,
# within 0.3 s; the mean counts such an error for its time, not for its size.
MOST = 1.1


def angle(cosine: float) -> float:
    """Angle [rad] of a cosine that rounding may have led beyond ±1; NaN for NaN."""
    return math.acos(float(cosine) if math.isnan(cosine) else max(-1.0, min(1.0, float(cosine))))


def tilt_error(q_WB: Quat, sent: SentSetpoint) -> Vec3:
    """Rotation vector [rad] from body z to the z axis of the setpoint that was sent, each in its own heading frame."""
    R = rotation_matrix(q_WB)
    heading = math.atan2(R[1, 0], R[0, 0])
    c, d = math.cos(heading), math.sin(heading)
    x, y, z = c * R[0, 2] + d * R[1, 2], c * R[1, 2] - d * R[0, 2], R[2, 2]
    roll, pitch = sent.roll_rad, sent.pitch_rad  # of Ry(pitch) Rx(roll)
    sent_x, sent_y, sent_z = math.sin(pitch) * math.cos(roll), -math.sin(roll), math.cos(pitch) * math.cos(roll)
    axis = (y * sent_z - z * sent_y, z * sent_x - x * sent_z, x * sent_y - y * sent_x)
    sine = math.hypot(*axis)
    ratio = math.atan2(sine, x * sent_x + y * sent_y + z * sent_z) / sine if sine != 0.0 else 1.0
    return float(ratio * axis[0]), float(ratio * axis[1]), float(ratio * axis[2])


class TiltErrorTrend:
    """The error that lasts: the larger of the length of the mean over `WINDOW_S` and of the smallest error in it.

    The mean is of vectors. An aircraft that does not follow has an error in one direction, which a short passage of the
    command through its attitude does not end; commands that alternate faster than any attitude follows have errors that
    cancel out. The smallest error finds one that turns.
    """

    def __init__(self, limit_rad: float) -> None:
        """limit_rad: of the monitor."""
        self._most_rad = MOST * limit_rad
        self._errors: deque[tuple[float, Vec3]] = deque()

    def reset(self) -> None:
        self._errors.clear()

    def take(self, now_s: float, error: Vec3) -> None:
        """error: rotation vector [rad]."""
        errors = self._errors
        if errors and now_s - errors[-1][0] > STEP_MAX_S:
            errors.clear()
        errors.append((now_s, error))
        while errors[0][0] <= now_s - WINDOW_S - STEP_MAX_S / 2:
            errors.popleft()

    def lasting_rad(self, now_s: float) -> float | None:
        """None: there are not enough errors; NaN if one of them is."""
        errors = self._errors
        if not errors or now_s - errors[-1][0] > STEP_MAX_S or errors[-1][0] - errors[0][0] < WINDOW_S - STEP_MAX_S / 2:
            return None
        lengths = [math.hypot(*error) for _, error in errors]
        if any(map(math.isnan, lengths)):
            return math.nan
        shares = [min(1.0, self._most_rad / max(length, self._most_rad)) / len(errors) for length in lengths]
        mean = [sum(share * error[i] for share, (_, error) in zip(shares, errors, strict=True)) for i in range(3)]
        return max(math.hypot(*mean), min(lengths))
