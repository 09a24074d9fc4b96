"""Where the camera is and how much the picture moves: from the aircraft's and the gimbal's motion to pixels."""

import math
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from companion.core.frames import quat_conjugate, quat_multiply, quat_normalized, rotation_matrix
from companion.core.messages import State
from companion.core.trajectory_messages import Quat, Vec3
from companion.payload.gimbal import SETPOINT_STD_RAD, Gimbal
from companion.payload.history import Moment
from companion.planning.camera import PayloadCamera

DISTANCE_M = 2.0  # to the surface, where neither the request nor a bundle gives one
IN_SIGHT_S = 0.5  # since the last observation of a bundle that is in sight
# Of the error state's covariance (State.covariance_diag): attitude of the body, attitude of the mission's bundle.
ATTITUDE, BUNDLE_ATTITUDE = slice(6, 9), slice(18, 21)


def as_vec3(array: Array) -> Vec3:
    """An array of three numbers as a message has it."""
    return float(array[0]), float(array[1]), float(array[2])


def as_quat(q: Array) -> Quat:
    """Likewise a quaternion."""
    return float(q[0]), float(q[1]), float(q[2]), float(q[3])


class CameraMotion(NamedTuple):
    """Pose and motion of the camera at one time."""

    p_W: Array
    q_WC: Array
    v_W: Array
    omega_W: Array  # rad/s


class BundlePose(NamedTuple):
    """A bundle and the camera in its frame."""

    name: str
    p_MC: Array
    q_MC: Array
    position_std_m: float  # of the body in the bundle's frame
    attitude_std_rad: float = math.nan  # of a further bundle's own attitude; NaN: not known, or it is the mission's


def camera_motion(camera: PayloadCamera, moment: Moment, gimbal: Gimbal | None) -> CameraMotion | None:
    """The camera at a moment; None: the gimbal's attitude at that time is not known.

    gimbal: None for a camera that is fixed to the body.
    """
    R_WB = rotation_matrix(moment.q_WB)
    lever_W = R_WB @ np.array(camera.p_BC)
    omega_W = R_WB @ np.nan_to_num(moment.omega_B)
    q_WG, omega_camera_W = moment.q_WB, omega_W
    if gimbal is not None:
        attitude = gimbal.attitude(moment)
        if attitude is None:
            return None
        q_WG, omega_camera_W = attitude
    q_WC = quat_normalized(quat_multiply(q_WG, quat_normalized(camera.q_BC)))
    return CameraMotion(moment.p_W + lever_W, q_WC, moment.v_W + np.cross(omega_W, lever_W), omega_camera_W)


def blur_px(camera: PayloadCamera, motion: CameraMotion, distance_m: float) -> float:
    """The largest motion of a point of the picture during the exposure [px].

    The points are centre and corners of a plane at `distance_m` that faces the camera and stands still: they move by
    ṗ_C = −v_C − ω_C × p_C, and their pictures by its projection (P. Corke, "Robotics, Vision and Control", section 15.2).
    """
    R_CW = rotation_matrix(motion.q_WC).T
    v_C, omega_C = R_CW @ motion.v_W, R_CW @ motion.omega_W
    fx, fy = camera.focal_px
    x, y = 0.5 * camera.width_px / fx, 0.5 * camera.height_px / fy
    largest = 0.0
    for sx, sy in ((0, 0), (1, 1), (1, -1), (-1, 1), (-1, -1)):
        ray = np.array([sx * x, sy * y, 1.0])
        rate = -v_C / distance_m - np.cross(omega_C, ray)
        flow = (fx * (rate[0] - ray[0] * rate[2]), fy * (rate[1] - ray[1] * rate[2]))
        largest = max(largest, math.hypot(*flow))
    return largest * camera.exposure_s


def nearest_bundle(state: State, p_W: Array, q_WC: Array) -> BundlePose | None:
    """The camera in the frame of the nearest bundle in sight, without one of the nearest that was seen; None: none was.

    A bundle that is out of sight may be nearer, but the camera's place in its frame has the error of the map between both.
    """
    seen: list[tuple[bool, float, str, Vec3, Quat, float, float]] = []

    def add(name: str, p_WM: Vec3, q_WM: Quat, age_s: float, std_m: float, std_rad: float = math.nan) -> None:
        away_m = float(np.linalg.norm(p_W - np.array(p_WM)))
        seen.append((age_s > IN_SIGHT_S, away_m, name, p_WM, q_WM, std_m, std_rad))

    if state.bundle and math.isfinite(state.relative_std_m):
        age_s = state.bundle_age_s if math.isfinite(state.bundle_age_s) else state.marker_age_s
        add(state.bundle, state.p_WM, state.q_WM, age_s, state.relative_std_m)
    for bundle in state.bundles:
        if math.isfinite(bundle.age_s):
            std_m = bundle.relative_std_m if math.isfinite(bundle.relative_std_m) else state.position_std_m
            add(bundle.name, bundle.p_WM, bundle.q_WM, bundle.age_s, std_m, bundle.attitude_std_rad)
    if not seen:
        return None
    *_, name, p_WM, q_WM, std_m, std_rad = min(seen, key=lambda entry: entry[:2])
    p_MC = rotation_matrix(q_WM).T @ (p_W - np.array(p_WM))
    return BundlePose(name, p_MC, quat_normalized(quat_multiply(quat_conjugate(q_WM), q_WC)), std_m, std_rad)


def attitude_std_rad(camera: PayloadCamera, state: State, bundle: BundlePose | None, gimbal: Gimbal | None) -> float:
    """Standard deviation of the camera's attitude in the bundle's frame, the largest over all directions.

    gimbal: None for a camera that is fixed to the body. bundle: None: in the world. NaN where the state does not say how well the bundle's own attitude is known.
    """
    control = camera.control
    assert control is not None
    variances = list(state.covariance_diag[ATTITUDE])
    # The bundle's own is correlated with the body's: the sum is too large rather than too small.
    if bundle is not None and bundle.name != state.bundle:
        variances = [a + bundle.attitude_std_rad**2 for a in variances]
    elif bundle is not None:
        variances = [a + b for a, b in zip(variances, state.covariance_diag[BUNDLE_ATTITUDE], strict=False)]
    body = max(variances, default=math.nan)
    gimbal_rad = 0.0
    if gimbal is not None:
        gimbal_rad = max(control.gimbal_std_rad or 0.0, SETPOINT_STD_RAD if gimbal.reports_setpoint else 0.0)
    return math.sqrt(body + control.mount_std_rad**2 + gimbal_rad**2)
