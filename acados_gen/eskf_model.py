"""The error-state Kalman filter in symbols: prediction, measurement models, updates.

The prediction is built on `acados_gen.flight_model`, so estimator and controller cannot disagree about signs,
drag or gains. No Jacobian is written by hand: transition and measurement matrices are derivatives of

    x ⊞ e = (p + δp, v + δv, q ⊗ exp(δθ), …)        (error on the body side, q_true = q ⊗ exp(δθ))

by automatic differentiation at e = 0. Sources: Kalaitzakis & Vitzilaios, Robotics 2023, 12(5), 123, section 2.2;
J. Solà, arXiv:1711.02508, sections 6 and 7.

Measurements (y: measured, ν: residual, measured minus expected):

    position   ν = y - (p + b)
    velocity   ν = y - (v + c)                   the paper measures Rᵀv without c; see `velocity_residual`
    attitude   ν = Log(q⁻¹ ⊗ exp(-β) ⊗ y)        three numbers, so S has full rank
    corners    ν = y - π(R_BCᵀ (R_WBᵀ (p_WM + R_WM c_i - p) - p_BC)), i = 0…3;  π: x/z, y/z, lens undone
    marker     ν = (p_CM - R_BCᵀ (R_WBᵀ (p_WM - p) - p_BC),  Log(q̂_CM⁻¹ ⊗ q_CM)),  q̂_CM = q_BC⁻¹ ⊗ q_WB⁻¹ ⊗ q_WM

This module needs CasADi and is imported only where code is generated; the layout is in `acados_gen.eskf_layout`.
"""

from pathlib import Path

import casadi as ca

from acados_gen import flight_model
from acados_gen.compile import compile_functions
from acados_gen.eskf_layout import (
    E_A,
    E_B,
    E_C,
    E_D,
    E_PM,
    E_S,
    E_TH,
    E_THM,
    ERROR_SIZE,
    NAME,
    PM,
    QM,
    SENSORS,
    STATE_SIZE,
    A,
    B,
    C,
    D,
    P,
    Q,
    S,
    V,
    eskf_fingerprint,
    kernel_name,
)
from companion.frames import GRAVITY_M_S2

RATES = 5  # of forgetting, see `forget`
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
    """x ⊞ e, shape (30,)."""
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


def forget(x_next, transition_, rates, dt):
    """ẋ_i = -rate x_i for what comes and goes within its correlation time: first-order Gauss-Markov states.

    rates [1/s]: of the disturbance, horizontal and vertical, the velocity bias, the attitude bias' tilt and heading.
    """
    keep = ca.exp(-rates * dt)
    for at, error, groups in ((D, E_D, (0, 0, 1)), (C, E_C, (2, 2, 2)), (A, E_A, (3, 3, 4))):
        for i, group in enumerate(groups):
            x_next[at.start + i] *= keep[group]
            transition_[error.start + i, error.start + i] = keep[group]
    return x_next, transition_


def transition():
    """(x, command, parameters, rates, dt) -> (x after dt, 28x28 transition of the error); rates: see `forget`."""
    x, e = ca.SX.sym("x", STATE_SIZE), ca.SX.sym("e", ERROR_SIZE)
    command, parameters, dt = ca.SX.sym("u", 4), ca.SX.sym("k", len(flight_model.PARAMETERS)), ca.SX.sym("dt")
    rates = ca.SX.sym("rates", RATES)
    reference = ca.SX.sym("r", 10)
    m = moved(x, command, parameters, dt)
    error = motion_error(moved(boxplus(x, e), command, parameters, dt), reference)
    F = ca.SX.eye(ERROR_SIZE)
    F[0:9, :] = derivative_at_zero(error, e, reference, m)
    x_next, F = forget(ca.vertcat(m, x[10:]), F, rates, dt)
    return ca.Function("transition", [x, command, parameters, rates, dt], [x_next, F])


def coast_transition():
    """(x, rates, dt) -> (x after dt, transition of the error) without a trustworthy command.

    ṗ = v, v̇ = 0, q̇ = 0: somebody else holds the aircraft, so thrust is taken to balance gravity, drag and
    disturbance. What is wrong with that goes into larger velocity and attitude noise; the measured attitude and
    velocity carry the state. The disturbance cannot be observed and is forgotten; the thrust scale stays.
    """
    x, rates, dt = ca.SX.sym("x", STATE_SIZE), ca.SX.sym("rates", RATES), ca.SX.sym("dt")
    F = ca.SX.eye(ERROR_SIZE)
    for i in range(3):
        F[i, 3 + i] = dt
    x_next, F = forget(ca.vertcat(x[P] + dt * x[V], x[3:]), F, rates, dt)
    return ca.Function("coast_transition", [x, rates, dt], [x_next, F])


def symmetric(M):
    """The symmetric matrix with the upper triangle of M."""
    return ca.triu2symm(ca.triu(M))


def _propagation(name, step, x, inputs, dt):
    """A kernel (x, P, *inputs, noise, dt) -> (x, F P Fᵀ + diag(noise) dt); noise: 28 variances per second."""
    covariance, noise = ca.SX.sym("P", ERROR_SIZE, ERROR_SIZE), ca.SX.sym("noise", ERROR_SIZE)
    x_next, F = step(x, *inputs, dt)
    propagated = F @ symmetric(covariance) @ F.T + ca.diag(noise * dt)
    outputs = ca.cse([ca.densify(x_next), ca.densify(symmetric(propagated))])
    return ca.Function(kernel_name(name), [x, covariance, *inputs, noise, dt], outputs)


def predict():
    """Kernel (x, P, command, parameters, rates, noise, dt) -> (x, P)."""
    x, dt = ca.SX.sym("x", STATE_SIZE), ca.SX.sym("dt")
    inputs = [ca.SX.sym("u", 4), ca.SX.sym("k", len(flight_model.PARAMETERS)), ca.SX.sym("rates", RATES)]
    return _propagation("predict", transition(), x, inputs, dt)


def predict_coast():
    """Kernel (x, P, rates, noise, dt) -> (x, P)."""
    x, dt = ca.SX.sym("x", STATE_SIZE), ca.SX.sym("dt")
    return _propagation("predict_coast", coast_transition(), x, [ca.SX.sym("rates", RATES)], dt)


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
    p_BM = rotation(x[Q]).T @ (x[PM] - x[P])
    p_expected = rotation(q_BC).T @ (p_BM - p_BC)
    q_expected = multiply(conjugate(q_BC), multiply(conjugate(x[Q]), x[QM]))
    return ca.vertcat(p_CM - p_expected, log(multiply(conjugate(q_expected), q_CM)))


def corners_residual(x, y, corners_M, p_BC, q_BC):
    """ν of the four corners of a marker in normalised image coordinates, x0 y0 … x3 y3, shape (8,).

    corners_M: the same corners on the bundle, shape (12,).
    """
    residual = []
    for i in range(4):
        p_B = rotation(x[Q]).T @ (x[PM] + rotation(x[QM]) @ corners_M[3 * i : 3 * i + 3] - x[P])
        p_C = rotation(q_BC).T @ (p_B - p_BC)
        residual.append(y[2 * i : 2 * i + 2] - p_C[0:2] / ca.fmax(p_C[2], DEPTH_MIN_M))
    return ca.vertcat(*residual)


def measurement(sensor):
    """(x, *measured) -> (ν, H) of one sensor; H = -∂ν/∂e, (m, 28)."""
    x, e = ca.SX.sym("x", STATE_SIZE), ca.SX.sym("e", ERROR_SIZE)
    if sensor == "marker":
        measured = [ca.SX.sym(n, size) for n, size in (("p_CM", 3), ("q_CM", 4), ("p_BC", 3), ("q_BC", 4))]
        residual = marker_residual
    elif sensor == "corners":
        measured = [ca.SX.sym(n, size) for n, size in (("y", 8), ("corners_M", 12), ("p_BC", 3), ("q_BC", 4))]
        residual = corners_residual
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
    """Kernel (x, P, *measured, R) -> (ν, whitened, NIS, x corrected, P corrected, matched, expected).

    With S = H P Hᵀ + R = L Lᵀ and W = P Hᵀ L⁻ᵀ: K ν = W L⁻¹ ν and P corrected = P - W Wᵀ, which equals Joseph's form
    for this gain, is symmetric in every rounding, and takes a third of its time. The correction is injected on the
    manifold and the covariance carried over with the reset Jacobian. whitened: L⁻¹ ν, of a marker its rotation first,
    so that the last three are its position given its rotation.
    For the adaptation, per axis: matched z_i (R z)_i with z = S⁻¹ ν, and its expected value (S⁻¹ R)_ii.
    """
    m = SENSORS[sensor]
    model = measurement(sensor)
    x, covariance = ca.SX.sym("x", STATE_SIZE), ca.SX.sym("P", ERROR_SIZE, ERROR_SIZE)
    measured = [ca.SX.sym(model.name_in(i), *model.size_in(i)) for i in range(1, model.n_in())]
    noise = ca.SX.sym("R", m, m)

    order = [3, 4, 5, 0, 1, 2] if sensor == "marker" else list(range(m))
    nu, H = model(x, *measured)
    nu, H = nu[order], H[order, :]
    prior, R = symmetric(covariance), symmetric(noise)[order, order]
    PHt = prior @ H.T
    innovation = symmetric(H @ PHt + R)
    L = cholesky(innovation, m)
    whitened = solve_lower(L, nu, m)
    W = solve_lower(L, PHt.T, m).T

    correction = W @ whitened
    posterior = symmetric(prior - W @ W.T)
    G = ca.SX.eye(ERROR_SIZE)
    G[E_TH, E_TH] = right_jacobian(correction[E_TH])
    G[E_THM, E_THM] = right_jacobian(correction[E_THM])
    corrected = boxplus(x, correction)
    for part in (Q, QM):
        corrected[part] = corrected[part] / ca.norm_2(corrected[part])
    z = solve_upper(L, whitened, m)
    expected = ca.diag(solve_upper(L, solve_lower(L, R, m), m))
    matched, back = z * (R @ z), [order.index(i) for i in range(m)]
    outputs = [nu[back], whitened, ca.sumsqr(whitened), corrected, symmetric(G @ posterior @ G.T)]
    outputs += [matched[back], expected[back]]
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
