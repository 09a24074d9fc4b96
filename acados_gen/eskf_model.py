"""The error-state Kalman filter in symbols: prediction, measurement models, injection of a correction.

The prediction uses `acados_gen.flight_model`, so estimator and controller have the same signs, drag and gains. No
Jacobian is written by hand: transition and measurement matrices are derivatives of

    x ⊞ e = (p + δp, v + δv, q ⊗ exp(δθ), …)        (error on the body side, q_true = q ⊗ exp(δθ))

by automatic differentiation at e = 0. The algebra of the covariance is the same for every model and is plain C in
`companion/estimation/eskf.c`. Sources: Kalaitzakis & Vitzilaios, Robotics 2023, 12(5), 123, section 2.2;
J. Solà, arXiv:1711.02508, sections 6 and 7.

Measurements (y: measured, ν: residual, measured minus expected):

    position   ν = y - (p + b)
    velocity   ν = y - (v + c)                   the paper measures Rᵀv without c; see `velocity_residual`
    attitude   ν = Log(q⁻¹ ⊗ exp(-β) ⊗ y)        three numbers, so S has full rank
    corners    ν = y - π(R_BCᵀ (R_WBᵀ (p_WM + R_WM c_i - p) - p_BC)), i = 0…3;  π: x/z, y/z, lens undone
    marker     ν = (p_CM - R_BCᵀ (R_WBᵀ (p_WM - p) - p_BC),  Log(q̂_CM⁻¹ ⊗ q_CM)),  q̂_CM = q_BC⁻¹ ⊗ q_WB⁻¹ ⊗ q_WM

with q_BC ⊗ exp(μ) in place of the vehicle file's q_BC: no mount is rigid, and in wind it sways. With white noise
instead of the state μ, the sway would either bias the attitude or require so much noise that an observation of a bundle
carries little information.

This module needs CasADi and is imported only where code is generated. The layout of the state belongs to
`companion.estimation.layout`.
"""

from collections.abc import Callable
from pathlib import Path

import casadi as ca
import numpy as np

from acados_gen import flight_model
from acados_gen.compile import CompileError, compile_functions
from acados_gen.flight_model import SX
from companion.core.enums import Sensor
from companion.core.frames import GRAVITY_M_S2
from companion.estimation.layout import (
    BUNDLE_ERROR,
    BUNDLE_STATE,
    CARRIED_SIZE,
    COMMAND_SIZE,
    CONSIDERED,
    ERROR_SIZE,
    ERROR_SIZE_MAX,
    IMU_SIZE,
    MEASURED,
    MOTION_SIZE,
    MOTION_STATE_SIZE,
    NAME,
    PARAMETER_SIZE,
    POSE_SIZE,
    POSE_STATE_SIZE,
    RATES,
    SAMPLES_MAX,
    SCALE_MAX,
    SENSORS,
    SLOW_SIZE,
    SOURCES,
    STATE_SIZE,
    ErrorIndex,
    FilterStateIndex,
    StateIndex,
    eskf_fingerprint,
    kernel_name,
)

SMALL = 1e-24  # rad²; keeps square roots differentiable at zero, far below the rounding of any real angle
DEPTH_MIN_M = 0.05  # a corner nearer than this has no usable image
PITCH_MAX = 1.4  # rad, 80°: the Euler angles of the flight model are singular at a pitch of 90°


# --- rotations -------------------------------------------------------------------------------------------


def multiply(a: SX, b: SX) -> SX:
    """Hamilton product a ⊗ b."""
    return ca.vertcat(
        a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
        a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
        a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
        a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
    )


def conjugate(q: SX) -> SX:
    """Inverse of a unit quaternion."""
    return ca.vertcat(q[0], -q[1], -q[2], -q[3])


def rotation(q: SX) -> SX:
    """R(q) of a unit quaternion, 3x3."""
    w, x, y, z = q[0], q[1], q[2], q[3]
    return ca.vertcat(
        ca.horzcat(1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        ca.horzcat(2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        ca.horzcat(2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )


def exp(r: SX) -> SX:
    """Quaternion of a rotation vector [rad]."""
    angle = ca.sqrt(ca.dot(r, r) + SMALL)
    return ca.vertcat(ca.cos(angle / 2), ca.sin(angle / 2) / angle * r)


def log(q: SX) -> SX:
    """Rotation vector [rad] of a unit quaternion, the short way round."""
    sign = ca.if_else(q[0] < 0, -1, 1)
    w, v = sign * q[0], sign * q[1:4]
    n = ca.sqrt(ca.dot(v, v) + SMALL)
    return 2 * ca.atan2(n, w) / n * v


def right_jacobian(r: SX) -> SX:
    """Derivative of the error after a correction by r was injected: Log(exp(-r) ⊗ exp(r + ε)) = J_r(r) ε.

    Series to third order; corrections are small. Solà, section 7.2.3 (the paper stops at I - [r]×/2).
    """
    s = ca.skew(r)
    s2 = s @ s
    return ca.SX.eye(3) - s / 2 + s2 / 6 - s2 @ s / 24


# --- the manifold ----------------------------------------------------------------------------------------


def boxplus(x: SX, e: SX) -> SX:
    """x ⊞ e, shape (53,)."""
    return ca.vertcat(
        x[StateIndex.POSITION] + e[ErrorIndex.POSITION],
        x[StateIndex.VELOCITY] + e[ErrorIndex.VELOCITY],
        multiply(x[StateIndex.ATTITUDE], exp(e[ErrorIndex.ATTITUDE])),
        x[StateIndex.DISTURBANCE] + e[ErrorIndex.DISTURBANCE],
        x[StateIndex.GNSS_BIAS] + e[ErrorIndex.GNSS_BIAS],
        x[StateIndex.MARKER_POSITION] + e[ErrorIndex.MARKER_POSITION],
        multiply(x[StateIndex.MARKER_ATTITUDE], exp(e[ErrorIndex.MARKER_ATTITUDE])),
        x[StateIndex.VELOCITY_BIAS] + e[ErrorIndex.VELOCITY_BIAS],
        x[StateIndex.ATTITUDE_BIAS] + e[ErrorIndex.ATTITUDE_BIAS],
        x[StateIndex.THRUST_SCALE] + e[ErrorIndex.THRUST_SCALE],
        x[StateIndex.MOUNT] + e[ErrorIndex.MOUNT],
        x[StateIndex.GYRO_BIAS] + e[ErrorIndex.GYRO_BIAS],
        x[StateIndex.ACCEL_BIAS] + e[ErrorIndex.ACCEL_BIAS],
        x[StateIndex.LEVER] + e[ErrorIndex.LEVER],
        x[StateIndex.BUNDLE_SCALE] + e[ErrorIndex.BUNDLE_SCALE],
        x[StateIndex.CAMERA_DELAY] + e[ErrorIndex.CAMERA_DELAY],
        x[StateIndex.SLOW_POSE] + e[ErrorIndex.SLOW_POSE],
        x[StateIndex.MOUNT_OFFSET] + e[ErrorIndex.MOUNT_OFFSET],
    )


def derivative_at_zero(expression: SX, error: SX, constant: tuple[SX, SX] | None = None) -> SX:
    """∂expression/∂error at error = 0.

    constant: (symbols, value) that the derivative holds constant; the value replaces the symbols afterwards.
    """
    jacobian = ca.jacobian(expression, error)
    symbols, values = [error], [ca.SX.zeros(error.shape)]
    if constant is not None:
        symbols, values = [*symbols, constant[0]], [*values, constant[1]]
    return ca.substitute([jacobian], symbols, values)[0]


# --- prediction ------------------------------------------------------------------------------------------


def roll_pitch(q: SX) -> tuple[SX, SX]:
    """(roll, pitch) [rad] of a unit quaternion; its derivative stays bounded where the Euler angles are singular.

    Beyond a pitch of PITCH_MAX the angles are no more than a direction to turn to: no command of this stack is that steep,
    and an infinite derivative would make the covariance indefinite.
    """
    w, x, y, z = q[0], q[1], q[2], q[3]
    sin_pitch, cos_pitch_max = 2 * (w * y - z * x), float(np.cos(PITCH_MAX))
    up, side = 1 - 2 * (x * x + y * y), 2 * (w * x + y * z)  # cos(pitch) times the cosine and the sine of the roll
    length = ca.sqrt(up * up + side * side + SMALL)
    limited = ca.fmin(length / cos_pitch_max, 1)  # 1 but for steep attitudes
    limit = float(np.sin(PITCH_MAX))
    return limited * ca.atan2(side, up), ca.asin(ca.fmin(ca.fmax(sin_pitch, -limit), limit))


def motion_derivative(m: SX, disturbance_W: SX, command: SX, parameters: SX) -> SX:
    """ṁ of m = (p_W, v_W, q_WB) under command = (thrust, roll, pitch, yaw rate); shape (10,).

    m has the order of the first ten numbers of x. q̇ = ½ q ⊗ (0, ω_B); ω_B is the flight controller's response to the
    command in the flight model.
    """
    q = m[StateIndex.ATTITUDE] / ca.norm_2(m[StateIndex.ATTITUDE])
    roll, pitch = roll_pitch(q)
    rates = flight_model.euler_rates(roll, pitch, command[1:4], parameters)
    omega_B = flight_model.body_rates(roll, pitch, rates)
    v_dot = flight_model.acceleration(m[StateIndex.VELOCITY], rotation(q)[:, 2], command[0], disturbance_W, parameters)
    return ca.vertcat(m[StateIndex.VELOCITY], v_dot, multiply(m[StateIndex.ATTITUDE], ca.vertcat(0, omega_B)) / 2)


def moved(x: SX, command: SX, parameters: SX, dt: SX) -> SX:
    """Nominal (p, v, q) after dt by RK4, quaternion at unit length; shape (10,).

    The thrust scale s multiplies k_T as in `specific_force_residual` and in the controller, at the thrust of a hover:
    s k_T u = g, so v̇ gains (1 - 1/s) g along the thrust's axis. If it multiplied the command itself, it would be estimated
    too small (by 7 %): the motors' lag filters the jitter of the command out, so the jitter has no effect on the motion.
    """

    def derivative(m: SX) -> SX:
        scaled = (1 - 1 / x[StateIndex.THRUST_SCALE]) * GRAVITY_M_S2 * rotation(m[StateIndex.ATTITUDE])[:, 2]
        return motion_derivative(m, x[StateIndex.DISTURBANCE] + scaled, command, parameters)

    m = flight_model.rk4(derivative, x[:MOTION_STATE_SIZE], dt)
    return ca.vertcat(m[: StateIndex.VELOCITY.stop], m[StateIndex.ATTITUDE] / ca.norm_2(m[StateIndex.ATTITUDE]))


def motion_error(m: SX, reference: SX) -> SX:
    """Error of m = (p, v, q) against a reference, 9 numbers."""
    return ca.vertcat(
        m[: StateIndex.VELOCITY.stop] - reference[: StateIndex.VELOCITY.stop],
        log(multiply(conjugate(reference[StateIndex.ATTITUDE]), m[StateIndex.ATTITUDE])),
    )


def forget(rates: SX, dt: SX) -> SX:
    """Factor on each error after the first nine over dt, shape (42,): first-order Gauss-Markov states, ẋ = -rate x.

    rates [1/s]: of the disturbance, horizontal and vertical, of the velocity bias, of the attitude bias' tilt and
    heading, of the mount, of the biases of gyroscope and accelerometer, of the bundle's slow pose error. All other factors are 1.
    """
    keep = ca.SX.ones(ERROR_SIZE)
    fades = ca.exp(-rates * dt)
    rate_of_axis = (
        (ErrorIndex.DISTURBANCE, (0, 0, 1)),
        (ErrorIndex.VELOCITY_BIAS, (2, 2, 2)),
        (ErrorIndex.ATTITUDE_BIAS, (3, 3, 4)),
        (ErrorIndex.MOUNT, (5, 5, 5)),
        (ErrorIndex.GYRO_BIAS, (6, 6, 6)),
        (ErrorIndex.ACCEL_BIAS, (7, 7, 7)),
        (ErrorIndex.SLOW_POSE, (8, 8, 8, 8, 8, 8)),
    )
    for errors, groups in rate_of_axis:
        for i, group in enumerate(groups):
            keep[errors.start + i] = fades[group]
    return keep[MOTION_SIZE:]


def faded(x: SX, keep: SX) -> SX:
    """The states after position, velocity and attitude, with the factors of `forget`."""
    rest = x[MOTION_STATE_SIZE:]
    fading = (
        (StateIndex.DISTURBANCE, ErrorIndex.DISTURBANCE),
        (StateIndex.VELOCITY_BIAS, ErrorIndex.VELOCITY_BIAS),
        (StateIndex.ATTITUDE_BIAS, ErrorIndex.ATTITUDE_BIAS),
        (StateIndex.MOUNT, ErrorIndex.MOUNT),
        (StateIndex.GYRO_BIAS, ErrorIndex.GYRO_BIAS),
        (StateIndex.ACCEL_BIAS, ErrorIndex.ACCEL_BIAS),
        (StateIndex.SLOW_POSE, ErrorIndex.SLOW_POSE),
    )
    for state, error in fading:
        for i in range(error.stop - error.start):
            rest[state.start + i - MOTION_STATE_SIZE] *= keep[error.start + i - MOTION_SIZE]
    return rest


def transition() -> ca.Function:
    """(x, command, parameters, rates, dt) -> (x after dt, A, keep).

    The transition of the error is [[A], [0, diag(keep)]]; A: (9, 51), rows of position, velocity and attitude;
    keep: (42,), see `forget`.
    """
    x, e = ca.SX.sym("x", STATE_SIZE), ca.SX.sym("e", ERROR_SIZE)
    command, parameters, dt = ca.SX.sym("u", COMMAND_SIZE), ca.SX.sym("k", PARAMETER_SIZE), ca.SX.sym("dt")
    rates = ca.SX.sym("rates", RATES)
    reference = ca.SX.sym("r", MOTION_STATE_SIZE)
    m = moved(x, command, parameters, dt)
    error = motion_error(moved(boxplus(x, e), command, parameters, dt), reference)
    moves, keep = derivative_at_zero(error, e, (reference, m)), forget(rates, dt)
    return _function("transition", [x, command, parameters, rates, dt], [ca.vertcat(m, faded(x, keep)), moves, keep])


def imu_moved(x: SX, imu: SX, dt: SX) -> SX:
    """Nominal (p, v, q) after dt with the mean angular rate and specific force of the interval; shape (10,).

    imu: (ω_B [rad/s], f_B [m/s²]). v̇ = R f + g at the attitude of the middle, and the same acceleration over the whole
    interval; at 100 Hz and turns of 3 rad/s the error is below 1e-5 of the acceleration. Solà (arXiv 1711.02508),
    section 5.4.1, with the midpoint's attitude.
    """
    turn = (imu[0:3] - x[StateIndex.GYRO_BIAS]) * dt
    q = x[StateIndex.ATTITUDE]
    specific_force_B = imu[3:6] - x[StateIndex.ACCEL_BIAS]
    acceleration = rotation(multiply(q, exp(turn / 2))) @ specific_force_B - ca.vertcat(0, 0, GRAVITY_M_S2)
    p, v, after = x[StateIndex.POSITION], x[StateIndex.VELOCITY], multiply(q, exp(turn))
    return ca.vertcat(p + dt * v + dt**2 / 2 * acceleration, v + dt * acceleration, after / ca.norm_2(after))


def imu_transition() -> ca.Function:
    """(x, imu, rates, dt) -> as `transition`. imu: (6,), see `imu_moved`.

    The disturbance has no part in the motion: the accelerometer feels it. It is what specific force remains without the
    thrust, see `specific_force_residual`.
    """
    x, e = ca.SX.sym("x", STATE_SIZE), ca.SX.sym("e", ERROR_SIZE)
    imu, rates, dt = ca.SX.sym("imu", IMU_SIZE), ca.SX.sym("rates", RATES), ca.SX.sym("dt")
    reference = ca.SX.sym("r", MOTION_STATE_SIZE)
    m = imu_moved(x, imu, dt)
    error = motion_error(imu_moved(boxplus(x, e), imu, dt), reference)
    moves, keep = derivative_at_zero(error, e, (reference, m)), forget(rates, dt)
    return _function("imu_transition", [x, imu, rates, dt], [ca.vertcat(m, faded(x, keep)), moves, keep])


def coast_transition() -> ca.Function:
    """(x, rates, dt) -> as `transition`, without a known command.

    ṗ = v, v̇ = 0, q̇ = 0: another controller flies the aircraft, so thrust is assumed to balance gravity, drag and
    disturbance. Larger velocity and attitude noise covers the error of this assumption, and the measured attitude and
    velocity correct the state. The disturbance is not observable and is forgotten; the thrust scale stays.
    """
    x, rates, dt = ca.SX.sym("x", STATE_SIZE), ca.SX.sym("rates", RATES), ca.SX.sym("dt")
    moves, keep = ca.SX.eye(ERROR_SIZE)[:MOTION_SIZE, :], forget(rates, dt)
    for i in range(3):
        moves[i, 3 + i] = dt
    p, v, q = x[StateIndex.POSITION], x[StateIndex.VELOCITY], x[StateIndex.ATTITUDE]
    x_next = ca.vertcat(p + dt * v, v, q, faded(x, keep))
    return _function("coast_transition", [x, rates, dt], [x_next, moves, keep])


def _function(name: str, inputs: list[SX], outputs: list[SX]) -> ca.Function:
    """A generated function that eskf.c calls: dense outputs, common subexpressions computed once."""
    return ca.Function(kernel_name(name), inputs, ca.cse([ca.densify(o) for o in outputs]))


# --- measurements ----------------------------------------------------------------------------------------


def position_residual(x: SX, y: SX) -> SX:
    """ν = y - (p + b): the flight controller's position contains the GNSS bias."""
    return y - (x[StateIndex.POSITION] + x[StateIndex.GNSS_BIAS])


def velocity_residual(x: SX, y: SX) -> SX:
    """ν = y - (v + c).

    The flight controller's velocity is smooth but has errors of some centimetres per second for seconds at a time (its
    accelerometer and tilt errors, GNSS velocities). Modelled as white noise, this error would either bias the estimate
    or require so much noise that the smoothness is lost. Modelled as a first-order Gauss-Markov state c, it does
    neither: the marker observes slow errors, the flight controller's velocity observes fast changes.

    The paper's odometry gives y_B = R_FCUᵀ v, rotated with the flight controller's own attitude. LOCAL_POSITION_NED
    is the same vector before the rotation, v = R_FCU y_B, so the residual is formed in W: the information is the same,
    and the error of the flight controller's attitude does not enter the residual.
    """
    return y - (x[StateIndex.VELOCITY] + x[StateIndex.VELOCITY_BIAS])


def attitude_residual(x: SX, y: SX) -> SX:
    """ν = Log(q⁻¹ ⊗ exp(-β) ⊗ y), a rotation vector in B.

    β is the slow error of the flight controller's attitude in the world: its tilt has an error of some tenths of a degree
    for minutes, its heading of a degree or more, and the heading in the site's plan has another error. No sensor measures
    β by itself. With β as a state, many attitudes in a row do not reduce the heading's variance below that of β.
    """
    return log(multiply(conjugate(x[StateIndex.ATTITUDE]), multiply(exp(-x[StateIndex.ATTITUDE_BIAS]), y)))


def specific_force_residual(x: SX, f_B: SX, thrust: SX, parameters: SX) -> SX:
    """ν = f_B - (b_a + t e_z + Rᵀ (d - drag of v)), t = s k_T u, the accelerometer's mean over some hundredths of a second [m/s²].

    thrust: u, the command that the rotors follow; parameters: of the flight model.
    """
    specific_thrust, R = x[StateIndex.THRUST_SCALE] * parameters[0] * thrust, rotation(x[StateIndex.ATTITUDE])
    drag = flight_model.drag_acceleration(x[StateIndex.VELOCITY], R[:, 2], specific_thrust, parameters)
    force_W = x[StateIndex.DISTURBANCE] + drag
    return f_B - (x[StateIndex.ACCEL_BIAS] + ca.vertcat(0, 0, specific_thrust) + R.T @ force_W)


def camera_pose(x: SX, p_BC: SX, q_BC: SX, omega_B: SX) -> tuple[SX, SX]:
    """(p_WC, q_WC) when the image was taken: mount, lever arm and the camera's delay are states."""
    delay = x[StateIndex.CAMERA_DELAY]
    q_WB = multiply(x[StateIndex.ATTITUDE], exp(omega_B * delay))
    p_WB = x[StateIndex.POSITION] + x[StateIndex.VELOCITY] * delay
    q_BC = multiply(multiply(q_BC, exp(x[StateIndex.MOUNT_OFFSET])), exp(x[StateIndex.MOUNT]))
    return p_WB + rotation(q_WB) @ (p_BC + x[StateIndex.LEVER]), multiply(q_WB, q_BC)


def marker_residual(x: SX, p_CM: SX, q_CM: SX, p_BC: SX, q_BC: SX, omega_B: SX, root: SX) -> SX:
    """ν of a bundle's pose in the camera frame, position [m] then rotation [rad], shape (6,).

    omega_B: body rates at the time of the image [rad/s]; root: L of the slow error's covariance L Lᵀ, 36 numbers by columns.

    Corners have errors that stay for many images: edges of pixels, light, the lens. They move the pose most where the
    geometry is weakest. L Lᵀ is what the corner filter does not know of them or, without it, has the shape of the
    tracker's covariance. The state ξ is such an error in units of its standard deviations, and L ξ the pose's error.
    A print larger than assumed by ς looks nearer, by 1 - ς.
    """
    p_WC, q_WC = camera_pose(x, p_BC, q_BC, omega_B)
    p_expected = (1 - x[StateIndex.BUNDLE_SCALE]) * (rotation(q_WC).T @ (x[StateIndex.MARKER_POSITION] - p_WC))
    q_expected = multiply(conjugate(q_WC), x[StateIndex.MARKER_ATTITUDE])
    residual = ca.vertcat(p_CM - p_expected, log(multiply(conjugate(q_expected), q_CM)))
    return residual - ca.reshape(root, 6, 6) @ x[StateIndex.SLOW_POSE]


def corners_residual(x: SX, y: SX, corners_M: SX, p_BC: SX, q_BC: SX, omega_B: SX) -> SX:
    """ν of the four corners of a marker in normalised image coordinates, x0 y0 … x3 y3, shape (8,).

    corners_M: the same corners in the bundle's frame, shape (12,).
    """
    p_WC, q_WC = camera_pose(x, p_BC, q_BC, omega_B)
    p_WM, q_WM = x[StateIndex.MARKER_POSITION], x[StateIndex.MARKER_ATTITUDE]
    size = 1 + x[StateIndex.BUNDLE_SCALE]
    residual = []
    for i in range(4):
        p_C = rotation(q_WC).T @ (p_WM + rotation(q_WM) @ (size * corners_M[3 * i : 3 * i + 3]) - p_WC)
        residual.append(y[2 * i : 2 * i + 2] - p_C[0:2] / ca.fmax(p_C[2], DEPTH_MIN_M))
    return ca.vertcat(*residual)


def plumb_residual(x: SX, level_M: SX) -> SX:
    """ν = -(a·u, b·u) of two axes of the bundle that are level and u = R_WMᵀ e_z, the vertical in M; shape (2,).

    level_M: a and b, (6,). Written in M, a turn of everything about the vertical does not change it.
    """
    up_M = rotation(x[StateIndex.MARKER_ATTITUDE])[2, :].T
    return -ca.reshape(level_M, 3, 2).T @ up_M


RESIDUALS: dict[Sensor, Callable[..., SX]] = {  # of (x, *measured)
    Sensor.POSITION: position_residual,
    Sensor.VELOCITY: velocity_residual,
    Sensor.ATTITUDE: attitude_residual,
    Sensor.MARKER: marker_residual,
    Sensor.CORNERS: corners_residual,
    Sensor.SPECIFIC_FORCE: specific_force_residual,
    Sensor.PLUMB: plumb_residual,
}


def measurement(sensor: Sensor) -> ca.Function:
    """(x, *measured) -> (ν, H) of one sensor; H = -∂ν/∂e, (m, 51).

    measured: see `companion.estimation.layout.MEASURED`. The thrust scale is learned at the thrust of a hover, s k_T u = g: with
    ∂ν/∂s = -k_T u, jitter of u that the rotors do not follow would teach a scale that is too small (by 26 % with inertial sensors
    as noisy as those of PX4's SIH), because noise in a regressor always flattens the slope.
    """
    residual = RESIDUALS[sensor]
    x, e = ca.SX.sym("x", STATE_SIZE), ca.SX.sym("e", ERROR_SIZE)
    measured = [ca.SX.sym(f"y{i}", size) for i, size in enumerate(MEASURED[sensor])]
    H = -derivative_at_zero(residual(boxplus(x, e), *measured), e)
    if sensor is Sensor.SPECIFIC_FORCE:
        _, thrust, parameters = measured
        H = ca.substitute(H, thrust, GRAVITY_M_S2 / (x[StateIndex.THRUST_SCALE] * parameters[0]))
    return _function(f"measure_{sensor}", [x, *measured], [residual(x, *measured), H])


def inject() -> ca.Function:
    """(x, correction) -> (x ⊞ correction, C, J_M): the estimate moves, and with it what its errors are counted from.

    The covariance after the correction is G P Gᵀ with δ ← δ + C δθ for the first CARRIED_SIZE errors, after δθ_M ← J_M δθ_M.

    No sensor but the flight controller's sees the heading of W, so turning everything (aircraft, disturbance, bundle) about
    the vertical must change no expected image. In W that turn φ moves a position p by φ × p: it depends on the estimate, and a
    filter that linearises about estimates that jump (a distant bundle's rotation is poor) gains heading from nothing. Here errors
    are carried so that the turn φ = R δθ stays the turn: δp ← δp + φ × Δp and so on with the correction Δp. This is the invariant
    filter of A. Barrau and S. Bonnabel (arXiv 1510.06263) in the coordinates of this one.
    """
    x, e = ca.SX.sym("x", STATE_SIZE), ca.SX.sym("e", ERROR_SIZE)
    corrected = boxplus(x, e)
    for part in (StateIndex.ATTITUDE, StateIndex.MARKER_ATTITUDE):
        corrected[part] = corrected[part] / ca.norm_2(corrected[part])
    before, after = rotation(x[StateIndex.ATTITUDE]), rotation(corrected[StateIndex.ATTITUDE])
    bundle_before, bundle_after = (
        rotation(x[StateIndex.MARKER_ATTITUDE]),
        rotation(corrected[StateIndex.MARKER_ATTITUDE]),
    )
    J_M = right_jacobian(e[ErrorIndex.MARKER_ATTITUDE])
    carried = ca.SX.zeros(CARRIED_SIZE, 3)
    for block in (ErrorIndex.POSITION, ErrorIndex.VELOCITY, ErrorIndex.DISTURBANCE, ErrorIndex.MARKER_POSITION):
        carried[block, :] = -ca.skew(e[block]) @ before
    carried[ErrorIndex.ATTITUDE, :] = after.T @ before - ca.SX.eye(3)
    carried[ErrorIndex.MARKER_ATTITUDE, :] = (bundle_after.T - J_M @ bundle_before.T) @ before
    return _function("inject", [x, e], [corrected, carried, J_M])


def inject_bundle() -> ca.Function:
    """(q_WB, pose, correction) -> (pose ⊞ correction, C, J_M) of a further bundle, as `inject`; C: (6, 3).

    q_WB: before the correction; pose: p_WM, q_WM.
    """
    q_WB, pose, e = ca.SX.sym("q", 4), ca.SX.sym("pose", POSE_STATE_SIZE), ca.SX.sym("e", POSE_SIZE)
    turned = multiply(pose[3:], exp(e[3:]))
    turned = turned / ca.norm_2(turned)
    before, J_M = rotation(q_WB), right_jacobian(e[3:])
    carried = ca.vertcat(-ca.skew(e[:3]), rotation(turned).T - J_M @ rotation(pose[3:]).T) @ before
    return _function("inject_bundle", [q_WB, pose, e], [ca.vertcat(pose[:3] + e[:3], turned), carried, J_M])


def symmetric(M: SX) -> SX:
    """The symmetric matrix with the upper triangle of M."""
    return ca.triu2symm(ca.triu(M))


def relative() -> ca.Function:
    """Kernel (x, P) -> (R_WMᵀ (p - p_M), its 3x3 covariance): the aircraft's position in the bundle's frame."""
    x, e = ca.SX.sym("x", STATE_SIZE), ca.SX.sym("e", ERROR_SIZE)
    covariance = ca.SX.sym("P", ERROR_SIZE, ERROR_SIZE)

    def position_M(x: SX) -> SX:
        p_WB, p_WM = x[StateIndex.POSITION], x[StateIndex.MARKER_POSITION]
        return rotation(x[StateIndex.MARKER_ATTITUDE]).T @ (p_WB - p_WM)

    J = derivative_at_zero(position_M(boxplus(x, e)), e)
    outputs = [position_M(x), ca.densify(symmetric(J @ symmetric(covariance) @ J.T))]
    return ca.Function(kernel_name("relative"), [x, covariance], ca.cse(outputs))


def generate() -> list[Path]:
    """Build the estimator's kernels unless they exist; returns the library's path.

    All vehicles share the kernels. Raises `acados_gen.compile.CompileError`.
    """
    if len(flight_model.PARAMETERS) != PARAMETER_SIZE:
        raise CompileError(
            "companion.estimation.layout.PARAMETER_SIZE is not the number of the flight model's parameters"
        )
    models = [
        transition(),
        imu_transition(),
        coast_transition(),
        inject(),
        inject_bundle(),
        *(measurement(sensor) for sensor in SENSORS),
    ]
    sizes = {
        "ERROR_SIZE": ERROR_SIZE,
        "ERROR_SIZE_MAX": ERROR_SIZE_MAX,
        "MOTION_SIZE": MOTION_SIZE,
        "STATE_SIZE": STATE_SIZE,
        "POSE_SIZE": POSE_SIZE,
        "POSE_STATE_SIZE": POSE_STATE_SIZE,
        "SLOW_SIZE": SLOW_SIZE,
        "MEASURED_MAX": max(map(len, MEASURED.values())),
        "NOMINAL": FilterStateIndex.NOMINAL.start,
        "GUST": FilterStateIndex.GUST.start,
        "REST": FilterStateIndex.REST,
        "IMU_SIZE": IMU_SIZE,
        "SAMPLES_MAX": SAMPLES_MAX,
        "PARAMETER_SIZE": PARAMETER_SIZE,
        "SCALE_MAX": SCALE_MAX,
        "ATTITUDE": StateIndex.ATTITUDE.start,
        "VELOCITY": StateIndex.VELOCITY.start,
        "DISTURBANCE": StateIndex.DISTURBANCE.start,
        "BUNDLE_STATE": BUNDLE_STATE.start,
        "SLOW_STATE": StateIndex.SLOW_POSE.start,
        "CARRIED_SIZE": CARRIED_SIZE,
        "CONSIDERED": CONSIDERED.start,
        "CONSIDERED_END": CONSIDERED.stop,
        "DISTURBANCE_ERROR": ErrorIndex.DISTURBANCE.start,
        "ATTITUDE_ERROR": ErrorIndex.ATTITUDE.start,
        "VELOCITY_ERROR": ErrorIndex.VELOCITY.start,
        "BUNDLE_ERROR": BUNDLE_ERROR.start,
        "SLOW_ERROR": ErrorIndex.SLOW_POSE.start,
        "WORK_SIZE": max(1, *(model.sz_w() for model in models)),
    }
    flags = [f"-D{name}={size}" for name, size in sizes.items()]
    return [compile_functions(NAME, eskf_fingerprint(), [*models, relative()], SOURCES, flags)]
