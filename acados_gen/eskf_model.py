"""The error-state Kalman filter in symbols: prediction, measurement models, updates.

The prediction is built on `acados_gen.flight_model`, so estimator and controller cannot disagree about signs,
drag or gains. No Jacobian is written by hand: transition and measurement matrices are derivatives of

    x ⊞ e = (p + δp, v + δv, q ⊗ exp(δθ), …)        (error on the body side, q_true = q ⊗ exp(δθ))

by automatic differentiation at e = 0. What is the same for every model, the algebra of the covariance, is plain C in
`companion/estimation/eskf.c`. Sources: Kalaitzakis & Vitzilaios, Robotics 2023, 12(5), 123, section 2.2;
J. Solà, arXiv:1711.02508, sections 6 and 7.

Measurements (y: measured, ν: residual, measured minus expected):

    position   ν = y - (p + b)
    velocity   ν = y - (v + c)                   the paper measures Rᵀv without c; see `velocity_residual`
    attitude   ν = Log(q⁻¹ ⊗ exp(-β) ⊗ y)        three numbers, so S has full rank
    corners    ν = y - π(R_BCᵀ (R_WBᵀ (p_WM + R_WM c_i - p) - p_BC)), i = 0…3;  π: x/z, y/z, lens undone
    marker     ν = (p_CM - R_BCᵀ (R_WBᵀ (p_WM - p) - p_BC),  Log(q̂_CM⁻¹ ⊗ q_CM)),  q̂_CM = q_BC⁻¹ ⊗ q_WB⁻¹ ⊗ q_WM

with q_BC ⊗ exp(μ) in place of the vehicle file's q_BC: no mount is rigid, and in wind it sways. As white noise that
sway would either pull the attitude along or have to be so large that the sight of a bundle says little.

This module needs CasADi and is imported only where code is generated; the layout is in `companion.estimation.layout`.
"""

from pathlib import Path

import casadi as ca

from acados_gen import flight_model
from acados_gen.compile import CompileError, compile_functions
from companion.core.frames import GRAVITY_M_S2
from companion.estimation.layout import (
    ALGEBRA,
    BELIEF_GUST,
    BELIEF_P,
    E_A,
    E_B,
    E_C,
    E_D,
    E_PM,
    E_S,
    E_TH,
    E_THM,
    E_U,
    ERROR_SIZE,
    GUST_SIZE,
    MEASURED,
    MOTION_SIZE,
    NAME,
    PARAMETER_SIZE,
    PM,
    QM,
    RATES,
    SENSORS,
    STATE_SIZE,
    A,
    B,
    C,
    D,
    P,
    Q,
    S,
    U,
    V,
    eskf_fingerprint,
    kernel_name,
)

SMALL = 1e-24  # rad², keeps square roots differentiable at zero; far below rounding for any real angle
DEPTH_MIN_M = 0.05  # a corner nearer than this has no useful image
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
    """x ⊞ e, shape (33,)."""
    return ca.vertcat(
        x[P] + e[0:3],
        x[V] + e[3:6],
        multiply(x[Q], exp(e[E_TH])),
        x[D] + e[E_D],
        x[B] + e[E_B],
        x[PM] + e[E_PM],
        multiply(x[QM], exp(e[E_THM])),
        x[C] + e[E_C],
        x[A] + e[E_A],
        x[S] + e[E_S],
        x[U] + e[E_U],
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
    """Nominal (p, v, q) after dt by RK4, quaternion at unit length; shape (10,).

    The thrust scale acts on the thrust of a hover: v̇ gains (s - 1) g along the thrust's axis. On the command itself it
    would learn from the command's jitter, which the motors' lag swallows, that thrust is weaker than it is (7 %).
    """

    def derivative(s):
        scaled = (x[S] - 1) * GRAVITY_M_S2 * rotation(s[6:10])[:, 2]
        return motion_derivative(s, x[D] + scaled, command, parameters)

    m = flight_model.rk4(derivative, x[0:10], dt)
    return ca.vertcat(m[0:6], m[6:10] / ca.norm_2(m[6:10]))


def motion_error(m, reference):
    """Error of m = (p, v, q) against a reference, 9 numbers."""
    return ca.vertcat(m[0:6] - reference[0:6], log(multiply(conjugate(reference[6:10]), m[6:10])))


def forget(rates, dt):
    """What each error after the first nine keeps in dt, shape (22,): first-order Gauss-Markov states fade, ẋ = -rate x.

    rates [1/s]: of the disturbance, horizontal and vertical, the velocity bias, the attitude bias' tilt and heading,
    the mount. What is not named stays.
    """
    keep = ca.SX.ones(ERROR_SIZE)
    fades = ca.exp(-rates * dt)
    for errors, groups in ((E_D, (0, 0, 1)), (E_C, (2, 2, 2)), (E_A, (3, 3, 4)), (E_U, (5, 5, 5))):
        for i, group in enumerate(groups):
            keep[errors.start + i] = fades[group]
    return keep[MOTION_SIZE:]


def faded(x, keep):
    """The states after position, velocity and attitude, those that fade a little smaller."""
    rest = x[Q.stop :]
    for state, error in ((D, E_D), (C, E_C), (A, E_A), (U, E_U)):
        for i in range(3):
            rest[state.start + i - Q.stop] *= keep[error.start + i - MOTION_SIZE]
    return rest


def transition():
    """(x, command, parameters, rates, dt) -> (x after dt, what moves the first nine errors, what the others keep).

    The error's transition is [[A], [0, diag(keep)]], A: (9, 31); rates: see `forget`.
    """
    x, e = ca.SX.sym("x", STATE_SIZE), ca.SX.sym("e", ERROR_SIZE)
    command, parameters, dt = ca.SX.sym("u", 4), ca.SX.sym("k", PARAMETER_SIZE), ca.SX.sym("dt")
    rates = ca.SX.sym("rates", RATES)
    reference = ca.SX.sym("r", 10)
    m = moved(x, command, parameters, dt)
    error = motion_error(moved(boxplus(x, e), command, parameters, dt), reference)
    moves, keep = derivative_at_zero(error, e, reference, m), forget(rates, dt)
    return _function("transition", [x, command, parameters, rates, dt], [ca.vertcat(m, faded(x, keep)), moves, keep])


def coast_transition():
    """(x, rates, dt) -> as `transition`, without a trustworthy command.

    ṗ = v, v̇ = 0, q̇ = 0: somebody else holds the aircraft, so thrust is taken to balance gravity, drag and
    disturbance. What is wrong with that goes into larger velocity and attitude noise; the measured attitude and
    velocity carry the state. The disturbance cannot be observed and is forgotten; the thrust scale stays.
    """
    x, rates, dt = ca.SX.sym("x", STATE_SIZE), ca.SX.sym("rates", RATES), ca.SX.sym("dt")
    moves, keep = ca.SX.eye(ERROR_SIZE)[:MOTION_SIZE, :], forget(rates, dt)
    for i in range(3):
        moves[i, 3 + i] = dt
    x_next = ca.vertcat(x[P] + dt * x[V], x[V], x[Q], faded(x, keep))
    return _function("coast_transition", [x, rates, dt], [x_next, moves, keep])


def _function(name, inputs, outputs):
    """A generated function that eskf.c calls: dense, common parts computed once."""
    return ca.Function(kernel_name(name), inputs, ca.cse([ca.densify(o) for o in outputs]))


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
    """ν = Log(q⁻¹ ⊗ exp(-β) ⊗ y), a rotation vector in B.

    β turns the flight controller's attitude in the world: its tilt is off by some tenths of a degree for minutes, its
    heading by a degree or more, and that of the site's plan again by something else. Nothing on board measures β by
    itself, but with it the filter knows that many attitudes in a row do not make the heading any better.
    """
    return log(multiply(conjugate(x[Q]), multiply(exp(-x[A]), y)))


def marker_residual(x, p_CM, q_CM, p_BC, q_BC):
    """ν of a bundle's pose in the camera frame, position [m] then rotation [rad], shape (6,)."""
    q_BC = multiply(q_BC, exp(x[U]))
    p_BM = rotation(x[Q]).T @ (x[PM] - x[P])
    p_expected = rotation(q_BC).T @ (p_BM - p_BC)
    q_expected = multiply(conjugate(q_BC), multiply(conjugate(x[Q]), x[QM]))
    return ca.vertcat(p_CM - p_expected, log(multiply(conjugate(q_expected), q_CM)))


def corners_residual(x, y, corners_M, p_BC, q_BC):
    """ν of the four corners of a marker in normalised image coordinates, x0 y0 … x3 y3, shape (8,).

    corners_M: the same corners on the bundle, shape (12,).
    """
    q_BC = multiply(q_BC, exp(x[U]))
    residual = []
    for i in range(4):
        p_B = rotation(x[Q]).T @ (x[PM] + rotation(x[QM]) @ corners_M[3 * i : 3 * i + 3] - x[P])
        p_C = rotation(q_BC).T @ (p_B - p_BC)
        residual.append(y[2 * i : 2 * i + 2] - p_C[0:2] / ca.fmax(p_C[2], DEPTH_MIN_M))
    return ca.vertcat(*residual)


def measurement(sensor):
    """(x, *measured) -> (ν, H) of one sensor; measured: see `companion.estimation.layout.MEASURED`; H = -∂ν/∂e, (m, 31)."""
    residual = {
        "position": position_residual,
        "velocity": velocity_residual,
        "attitude": attitude_residual,
        "marker": marker_residual,
        "corners": corners_residual,
    }[sensor]
    x, e = ca.SX.sym("x", STATE_SIZE), ca.SX.sym("e", ERROR_SIZE)
    measured = [ca.SX.sym(f"y{i}", size) for i, size in enumerate(MEASURED[sensor])]
    H = -derivative_at_zero(residual(boxplus(x, e), *measured), e)
    return _function(f"measure_{sensor}", [x, *measured], [residual(x, *measured), H])


def inject():
    """(x, correction) -> (x ⊞ correction, reset Jacobian of the attitude, of the bundle's attitude), 3x3 each."""
    x, e = ca.SX.sym("x", STATE_SIZE), ca.SX.sym("e", ERROR_SIZE)
    corrected = boxplus(x, e)
    for part in (Q, QM):
        corrected[part] = corrected[part] / ca.norm_2(corrected[part])
    return _function("inject", [x, e], [corrected, right_jacobian(e[E_TH]), right_jacobian(e[E_THM])])


def symmetric(M):
    """The symmetric matrix with the upper triangle of M."""
    return ca.triu2symm(ca.triu(M))


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
    if len(flight_model.PARAMETERS) != PARAMETER_SIZE:
        raise CompileError(
            "companion.estimation.layout.PARAMETER_SIZE is not the number of the flight model's parameters"
        )
    models = [transition(), coast_transition(), inject(), *(measurement(sensor) for sensor in SENSORS)]
    sizes = {
        "ERROR_SIZE": ERROR_SIZE,
        "MOTION_SIZE": MOTION_SIZE,
        "MEASURED_MAX": max(map(len, MEASURED.values())),
        "COVARIANCE": BELIEF_P.start,
        "GUST": BELIEF_GUST.start,
        "GUST_SIZE": GUST_SIZE,
        "DISTURBANCE": D.start,
        "DISTURBANCE_ERROR": E_D.start,
        "ATTITUDE_ERROR": E_TH.start,
        "BUNDLE_ATTITUDE_ERROR": E_THM.start,
        "WORK_SIZE": max(1, *(model.sz_w() for model in models)),
    }
    flags = [f"-D{name}={size}" for name, size in sizes.items()]
    return [compile_functions(NAME, eskf_fingerprint(), [*models, relative()], [ALGEBRA], flags)]
