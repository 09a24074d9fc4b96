"""The motion in a log, and what to fly when it does not determine the camera's mount."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from calibration.mount.fit import MountFit, MountProblem
from companion.recording.series import rpy

LEAN_MIN_RAD = float(np.radians(3.0))  # standard deviation of roll or pitch; below it the advice is to lean more
TURN_MIN_RAD = float(np.radians(120.0))  # span of yaw
DRIFT_MAX_M_SQRT_S = 0.004  # of the position source
FAST_S = 1.0  # slower motion counts as drift


@dataclass(frozen=True)
class Motion:
    """How the aircraft moved: standard deviation of fast roll and pitch, span of yaw [rad], rates RMS [rad/s], time."""

    lean_rad: tuple[float, float]
    yaw_span_rad: float
    rate_rad_s: float
    duration_s: float

    def __str__(self) -> str:
        roll, pitch = np.degrees(self.lean_rad)
        return (
            f"{self.duration_s:.0f} s, roll and pitch {roll:.1f}° and {pitch:.1f}° RMS, "
            f"yaw over {np.degrees(self.yaw_span_rad):.0f}°"
        )


def motion_of(problem: MountProblem) -> Motion:
    """The motion of the aircraft while the bundle was in sight."""
    t_s = problem.seen.t_s
    R = problem.attitude(t_s)
    q = np.roll(Rotation.from_matrix(R).as_quat(), 1, axis=1)
    roll, pitch, yaw = rpy(q).T
    width = max(1, round(len(t_s) * FAST_S / max(t_s[-1] - t_s[0], FAST_S)))
    fast_roll, fast_pitch = (
        a - np.convolve(a, np.ones(2 * width + 1) / (2 * width + 1), mode="same") for a in (roll, pitch)
    )
    inner = slice(width, -width) if len(t_s) > 4 * width else slice(None)
    lean = float(np.std(fast_roll[inner])), float(np.std(fast_pitch[inner]))
    rates = np.sqrt(np.mean(np.sum(problem.rates(t_s) ** 2, axis=1)))
    return Motion(lean, float(np.ptp(np.unwrap(yaw))), float(rates), float(t_s[-1] - t_s[0]))


def rotation_advice(weak: NDArray[np.bool_], motion: Motion) -> str:
    """What to fly for rotations about body axes that are uncertain; weak (3,)."""
    advice = []
    if weak[2] or min(motion.lean_rad) < LEAN_MIN_RAD:
        advice.append("lean quickly to all sides (short fast moves forward, back, left, right)")
    if weak[:2].any() and motion.yaw_span_rad < TURN_MIN_RAD:
        advice.append("turn about the vertical meanwhile, a full turn if the camera looks up or down")
    return " and ".join(advice) or "keep the bundle in sight for longer, nearer and whole"


def translation_advice(weak: NDArray[np.bool_], motion: Motion, fit: MountFit) -> str:
    """What to fly, or with which position source, for an uncertain position of the camera; weak (3,), body axes."""
    advice = []
    if weak[:2].any() and motion.yaw_span_rad < TURN_MIN_RAD:
        advice.append("turn about the vertical above the bundle")
    if weak[2] and min(motion.lean_rad) < LEAN_MIN_RAD:
        advice.append("lean quickly to all sides")
    if fit.noise.position_walk > DRIFT_MAX_M_SQRT_S:
        drift_mm = 1e3 * fit.noise.position_walk
        advice.append(
            f"use a position source that drifts by less than these {drift_mm:.0f} mm in a second (motion capture, RTK)"
        )
    return " and ".join(advice) or "fly for longer"
