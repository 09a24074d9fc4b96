"""The error-state Kalman filter in symbols: prediction, measurement models, updates.

The prediction is built on `acados_gen.flight_model`, so estimator and controller cannot disagree about signs,
drag or gains. No Jacobian is written by hand: transition and measurement matrices are derivatives of

    x ⊞ e = (p + δp, v + δv, q ⊗ exp(δθ), …)        (error on the body side, q_true = q ⊗ exp(δθ))

by automatic differentiation at e = 0. Sources: Kalaitzakis & Vitzilaios, Robotics 2023, 12(5), 123, section 2.2;
J. Solà, arXiv:1711.02508, sections 6 and 7.

Measurements (y: measured, ν: residual, measured minus expected):

    position   ν = y - (p + b)
    velocity   ν = y - (v + c)                   the paper measures Rᵀv without c; see `velocity_residual`
    attitude   ν = Log(q⁻¹ ⊗ y)                  three numbers, so S has full rank
    marker     ν = (p_CM - R_BCᵀ (R_WBᵀ (p_WM - p) - p_BC),  Log(q̂_CM⁻¹ ⊗ q_CM)),  q̂_CM = q_BC⁻¹ ⊗ q_WB⁻¹ ⊗ q_WM

This module needs CasADi and is imported only where code is generated; the layout is in `acados_gen.eskf_layout`.
"""

from pathlib import Path

import casadi as ca

from acados_gen import flight_model
from acados_gen.compile import compile_functions
from acados_gen.eskf_layout import (
    E_B,
    E_C,
    E_D,
    E_PM,
    E_TH,
    E_THM,
    ERROR_SIZE,
    NAME,
    PM,
    QM,
    SENSORS,
    STATE_SIZE,
    B,
    C,
    D,
    P,
    Q,
    V,
    eskf_fingerprint,
    kernel_name,
)

SMALL = 1e-24  # rad², keeps square roots differentiable at zero; far below rounding for any real angle
SIN_PITCH_MAX = 0.999999  # the Euler rates of the flight model do not exist at a pitch of 90°


# --- rotations -------------------------------------------------------------------------------------------


def multiply(a, b):
    """Hamilton product a ⊗ b."""
    return ca.vertcat(
        a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
        a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
        a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
        a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
    )


def conjugate(q):
    return ca.vertcat(q[0], -q[1], -q[2], -q[3])


def rotation(q):
    """R(q) of a unit quaternion, 3x3."""
    w, x, y, z = q[0], q[1], q[2], q[3]
    return ca.vertcat(
        ca.horzcat(1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        ca.horzcat(2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        ca.horzcat(2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )


def exp(r):
    """Quaternion of a rotation vector [rad]."""
    angle = ca.sqrt(ca.dot(r, r) + SMALL)
    return ca.vertcat(ca.cos(angle / 2), ca.sin(angle / 2) / angle * r)


def log(q):
    """Rotation vector [rad] of a unit quaternion, the short way round."""
    sign = ca.if_else(q[0] < 0, -1, 1)
    w, v = sign * q[0], sign * q[1:4]
    n = ca.sqrt(ca.dot(v, v) + SMALL)
    return 2 * ca.atan2(n, w) / n * v


def right_jacobian(r):
    """Derivative of the error after a correction by r was injected: Log(exp(-r) ⊗ exp(r + ε)) = J_r(r) ε.

    Series to third order; corrections are small. Solà, section 7.2.3 (the paper stops at I - [r]×/2).
    """
    s = ca.skew(r)
    s2 = s @ s
    return ca.SX.eye(3) - s / 2 + s2 / 6 - s2 @ s / 24


# --- the manifold ----------------------------------------------------------------------------------------


def boxplus(x, e):
    """x ⊞ e, shape (26,)."""
    return ca.vertcat(
        x[P] + e[0:3],
        x[V] + e[3:6],
        multiply(x[Q], exp(e[E_TH])),
        x[D] + e[E_D],
        x[B] + e[E_B],
        x[PM] + e[E_PM],
        multiply(x[QM], exp(e[E_THM])),
        x[C] + e[E_C],
    )


def derivative_at_zero(expression, error, extra=None, value=None):
    """∂expression/∂error at error = 0, with the symbols `extra` replaced by `value` after differentiating."""
    jacobian = ca.jacobian(expression, error)
    symbols, values = [error], [ca.SX.zeros(error.shape)]
    if extra is not None:
        symbols, values = [*symbols, extra], [*values, value]
    return ca.substitute([jacobian], symbols, values)[0]


# --- prediction ------------------------------------------------------------------------------------------


def roll_pitch(q):
    """(roll, pitch) [rad] of a unit quaternion."""
    w, x, y, z = q[0], q[1], q[2], q[3]
    sin_pitch = ca.fmin(ca.fmax(2 * (w * y - z * x), -SIN_PITCH_MAX), SIN_PITCH_MAX)
    return ca.atan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y)), ca.asin(sin_pitch)


def motion_derivative(m, disturbance_W, command, parameters):
    """ṁ of m = (p_W, v_W, q_WB) under command = (thrust, roll, pitch, yaw rate); shape (10,).

    q̇ = ½ q ⊗ (0, ω_B); ω_B is what the flight model says the flight controller does with the command.
    """
    q = m[6:10] / ca.norm_2(m[6:10])
    roll, pitch = roll_pitch(q)
    rates = flight_model.euler_rates(roll, pitch, command[1:4], parameters)
    omega_B = flight_model.body_rates(roll, pitch, rates)
    v_dot = flight_model.acceleration(m[3:6], rotation(q)[:, 2], command[0], disturbance_W, parameters)
    return ca.vertcat(m[3:6], v_dot, multiply(m[6:10], ca.vertcat(0, omega_B)) / 2)


def moved(x, command, parameters, dt):
    """Nominal (p, v, q) after dt by RK4, quaternion at unit length; shape (10,)."""
    m = flight_model.rk4(lambda s: motion_derivative(s, x[D], command, parameters), x[0:10], dt)
    return ca.vertcat(m[0:6], m[6:10] / ca.norm_2(m[6:10]))


def motion_error(m, reference):
    """Error of m = (p, v, q) against a reference, 9 numbers."""
    return ca.vertcat(m[0:6] - reference[0:6], log(multiply(conjugate(reference[6:10]), m[6:10])))


def forget_velocity_bias(x_next, A, rate, dt):
    """ċ = -rate c: the flight controller's velocity error comes and goes within its correlation time."""
    keep = ca.exp(-rate * dt)
    x_next[C] = keep * x_next[C]
    A[E_C, E_C] = keep * ca.SX.eye(3)
    return x_next, A


def transition():
    """(x, command, parameters, rate, dt) -> (x after dt, 24x24 transition A of the error).

    rate: of the velocity bias, one over its correlation time [1/s].
    """
    x, e = ca.SX.sym("x", STATE_SIZE), ca.SX.sym("e", ERROR_SIZE)
    command, parameters, dt = ca.SX.sym("u", 4), ca.SX.sym("k", len(flight_model.PARAMETERS)), ca.SX.sym("dt")
    rate = ca.SX.sym("rate")
    reference = ca.SX.sym("r", 10)
    m = moved(x, command, parameters, dt)
    error = motion_error(moved(boxplus(x, e), command, parameters, dt), reference)
    A = ca.SX.eye(ERROR_SIZE)
    A[0:9, 0:12] = derivative_at_zero(error, e, reference, m)[:, 0:12]
    x_next, A = forget_velocity_bias(ca.vertcat(m, x[10:]), A, rate, dt)
    return ca.Function("transition", [x, command, parameters, rate, dt], [x_next, A])


def coast_transition():
    """(x, decay, rate, dt) -> (x after dt, A) without a trustworthy command.

    ṗ = v, v̇ = 0, q̇ = 0: somebody else holds the aircraft, so thrust is taken to balance gravity, drag and
    disturbance. What is wrong with that goes into larger velocity and attitude noise; the measured attitude and
    velocity carry the state. The disturbance cannot be observed and forgets: ḋ = -decay d.
    """
    x, decay, dt = ca.SX.sym("x", STATE_SIZE), ca.SX.sym("decay"), ca.SX.sym("dt")
    rate = ca.SX.sym("rate")
    keep = ca.exp(-decay * dt)
    A = ca.SX.eye(ERROR_SIZE)
    for i in range(3):
        A[i, 3 + i] = dt
        A[9 + i, 9 + i] = keep
    x_next = ca.vertcat(x[P] + dt * x[V], x[3:10], keep * x[D], x[13:])
    x_next, A = forget_velocity_bias(x_next, A, rate, dt)
    return ca.Function("coast_transition", [x, decay, rate, dt], [x_next, A])


def symmetric(M):
    """The symmetric matrix with the upper triangle of M."""
    return ca.triu2symm(ca.triu(M))


def _propagation(name, step, x, inputs, dt):
    """A kernel (x, P, *inputs, noise, dt) -> (x, A P Aᵀ + diag(noise) dt); noise: 24 variances per second."""
    covariance, noise = ca.SX.sym("P", ERROR_SIZE, ERROR_SIZE), ca.SX.sym("noise", ERROR_SIZE)
    x_next, A = step(x, *inputs, dt)
    propagated = A @ symmetric(covariance) @ A.T + ca.diag(noise * dt)
    outputs = ca.cse([ca.densify(x_next), ca.densify(symmetric(propagated))])
    return ca.Function(kernel_name(name), [x, covariance, *inputs, noise, dt], outputs)


def predict():
    """Kernel (x, P, command, parameters, rate, noise, dt) -> (x, P)."""
    x, dt = ca.SX.sym("x", STATE_SIZE), ca.SX.sym("dt")
    inputs = [ca.SX.sym("u", 4), ca.SX.sym("k", len(flight_model.PARAMETERS)), ca.SX.sym("rate")]
    return _propagation("predict", transition(), x, inputs, dt)


def predict_coast():
    """Kernel (x, P, decay, rate, noise, dt) -> (x, P)."""
    x, dt = ca.SX.sym("x", STATE_SIZE), ca.SX.sym("dt")
    return _propagation("predict_coast", coast_transition(), x, [ca.SX.sym("decay"), ca.SX.sym("rate")], dt)


# --- measurements ----------------------------------------------------------------------------------------


def position_residual(x, y):
    """ν = y - (p + b): the flight controller's position carries the GNSS bias."""
    return y - (x[P] + x[B])


def velocity_residual(x, y):
    """ν = y - (v + c).

    The flight controller's velocity is smooth but off by some centimetres a second for seconds at a time (its
    accelerometer and tilt errors, satellite velocities). Taken as white noise that error would either pull the
    estimate along or have to be so large that the smoothness is lost; as a first-order Gauss-Markov state c it does
    neither: the marker sees slow errors, the FCU's velocity shows fast changes.

    The paper's odometry gives y_B = R_FCUᵀ v, rotated with the flight controller's own attitude. LOCAL_POSITION_NED
    is that same vector before the rotation, v = R_FCU y_B, so it is compared in W: the information is the same, and
    the error of the FCU's attitude, which the rotation would mix into the residual, stays out.
    """
    return y - (x[V] + x[C])


def attitude_residual(x, y):
    """ν = Log(q⁻¹ ⊗ y), a rotation vector in B."""
    return log(multiply(conjugate(x[Q]), y))


def marker_residual(x, p_CM, q_CM, p_BC, q_BC):
    """ν of a bundle's pose in the camera frame, position [m] then rotation [rad], shape (6,)."""
    p_BM = rotation(x[Q]).T @ (x[PM] - x[P])
    p_expected = rotation(q_BC).T @ (p_BM - p_BC)
    q_expected = multiply(conjugate(q_BC), multiply(conjugate(x[Q]), x[QM]))
    return ca.vertcat(p_CM - p_expected, log(multiply(conjugate(q_expected), q_CM)))


def measurement(sensor):
    """(x, *measured) -> (ν, H) of one sensor; H = -∂ν/∂e, (m, 24)."""
    x, e = ca.SX.sym("x", STATE_SIZE), ca.SX.sym("e", ERROR_SIZE)
    if sensor == "marker":
        measured = [ca.SX.sym(n, size) for n, size in (("p_CM", 3), ("q_CM", 4), ("p_BC", 3), ("q_BC", 4))]
        residual = marker_residual
    else:
        measured = [ca.SX.sym("y", 4 if sensor == "attitude" else 3)]
        residual = {
            "position": position_residual,
            "velocity": velocity_residual,
            "attitude": attitude_residual,
        }[sensor]
    H = -derivative_at_zero(residual(boxplus(x, e), *measured), e)
    return ca.Function(f"measurement_{sensor}", [x, *measured], [residual(x, *measured), H])


def cholesky(S, size):
    """Lower triangular L with L Lᵀ = S."""
    L = ca.SX.zeros(size, size)
    for j in range(size):
        L[j, j] = ca.sqrt(S[j, j] - ca.sumsqr(L[j, :j]))
        for i in range(j + 1, size):
            L[i, j] = (S[i, j] - ca.dot(L[i, :j], L[j, :j])) / L[j, j]
    return L


def solve_lower(L, rhs, size):
    """L⁻¹ rhs by forward substitution."""
    rows = []
    for i in range(size):
        row = rhs[i, :]
        for k in range(i):
            row = row - L[i, k] * rows[k]
        rows.append(row / L[i, i])
    return ca.vertcat(*rows)


def solve_upper(L, rhs, size):
    """L⁻ᵀ rhs by back substitution."""
    rows = [None] * size
    for i in reversed(range(size)):
        row = rhs[i, :]
        for k in range(i + 1, size):
            row = row - L[k, i] * rows[k]
        rows[i] = row / L[i, i]
    return ca.vertcat(*rows)


def update(sensor):
    """Kernel (x, P, *measured, R) -> (ν, S, NIS, x corrected, P corrected, matched, expected).

    K = P Hᵀ S⁻¹; P = (I - K H) P (I - K H)ᵀ + K R Kᵀ (Joseph), multiplied out factor by factor because H has few
    rows; the correction K ν is injected on the manifold and the covariance carried over with the reset Jacobian.
    For the adaptation, per axis: matched z_i (R z)_i with z = S⁻¹ ν, and its expected value (S⁻¹ R)_ii.
    """
    m = SENSORS[sensor]
    model = measurement(sensor)
    x, covariance = ca.SX.sym("x", STATE_SIZE), ca.SX.sym("P", ERROR_SIZE, ERROR_SIZE)
    measured = [ca.SX.sym(model.name_in(i), *model.size_in(i)) for i in range(1, model.n_in())]
    noise = ca.SX.sym("R", m, m)

    nu, H = model(x, *measured)
    prior, R = symmetric(covariance), symmetric(noise)
    PHt = prior @ H.T
    HPHt = H @ PHt
    S = symmetric(HPHt + R)
    L = cholesky(S, m)
    whitened = solve_lower(L, nu, m)
    K = solve_upper(L, solve_lower(L, PHt.T, m), m).T

    correction = K @ nu
    left = prior - K @ PHt.T
    joseph = symmetric(left - (PHt - K @ HPHt) @ K.T + K @ R @ K.T)
    G = ca.SX.eye(ERROR_SIZE)
    G[E_TH, E_TH] = right_jacobian(correction[E_TH])
    G[E_THM, E_THM] = right_jacobian(correction[E_THM])
    corrected = boxplus(x, correction)
    for part in (Q, QM):
        corrected[part] = corrected[part] / ca.norm_2(corrected[part])
    z = solve_upper(L, whitened, m)
    expected = ca.diag(solve_upper(L, solve_lower(L, R, m), m))
    outputs = [nu, S, ca.sumsqr(whitened), corrected, symmetric(G @ joseph @ G.T), z * (R @ z), expected]
    outputs = ca.cse([ca.densify(o) for o in outputs])
    return ca.Function(kernel_name(f"update_{sensor}"), [x, covariance, *measured, noise], outputs)


def relative():
    """Kernel (x, P) -> (R_WMᵀ (p - p_M), its 3x3 covariance): where the aircraft is in the bundle's frame."""
    x, e = ca.SX.sym("x", STATE_SIZE), ca.SX.sym("e", ERROR_SIZE)
    covariance = ca.SX.sym("P", ERROR_SIZE, ERROR_SIZE)

    def position_M(s):
        return rotation(s[QM]).T @ (s[P] - s[PM])

    J = derivative_at_zero(position_M(boxplus(x, e)), e)
    outputs = [position_M(x), ca.densify(symmetric(J @ symmetric(covariance) @ J.T))]
    return ca.Function(kernel_name("relative"), [x, covariance], ca.cse(outputs))


def generate(vehicle=None) -> list[Path]:
    """Build the estimator's kernels unless they exist; returns the library's path.

    vehicle: not used, all vehicles share the kernels. Raises `acados_gen.compile.CompileError`.
    """
    functions = [predict(), predict_coast(), relative(), *(update(sensor) for sensor in SENSORS)]
    return [compile_functions(NAME, eskf_fingerprint(), functions)]
