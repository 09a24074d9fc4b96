"""The symbolic flight model from which the controller's OCP and the estimator's prediction are generated.

    ṗ = v
    v̇ = -D v - (r_0 + r_T t) (v - (v·n) n) + t n - (0, 0, g) + d,   t = k_T u_T, n = R(q) (0, 0, 1)
    φ̇ = (k_φ φ_c - φ) / τ_φ        roll and pitch follow their commands as first-order lags:
    θ̇ = (k_θ θ_c - θ) / τ_θ        the response of the flight controller's attitude loop
    ψ̇ = commanded yaw rate

(Kalaitzakis & Vitzilaios, Robotics 2023, 12(5), 123, section 2.1; D and d are mass-normalised, D diagonal in
the world frame, d a force in m/s²; r_0 and r_T are the rotors' drag in their plane, W. Kim et al., Applied Sciences
13, 10631, 2023, equation 13, zero where the vehicle file has none.) Frames: W is ENU, B is FLU, R = Rz(ψ) Ry(θ) Rx(φ).

This module needs CasADi and is imported only where code is generated.
"""

from collections.abc import Callable
from typing import TypeAlias

import casadi as ca

from companion.core.frames import GRAVITY_M_S2

# A scalar, vector or matrix of symbols. CasADi has no type information: for the type checker this alias is `Any`.
SX: TypeAlias = ca.SX

# The vehicle's parameters in the order in which every kernel takes them.
PARAMETERS = (
    "thrust_coefficient_m_s2",  # k_T: mass-normalised thrust per unit of command
    "drag_x_1_s",
    "drag_y_1_s",
    "drag_z_1_s",
    "roll_time_constant_s",
    "roll_gain",
    "pitch_time_constant_s",
    "pitch_gain",
    "rotor_drag_1_s",  # r_0: of rotors without thrust
    "rotor_drag_s_m",  # r_T: per specific thrust
)


def acceleration(v_W: SX, thrust_axis_W: SX, thrust: SX, disturbance_W: SX, parameters: SX) -> SX:
    """v̇ in W [m/s²]. thrust: command 0..1; thrust_axis_W: the body's z axis in W; parameters: `PARAMETERS`."""
    specific_thrust = parameters[0] * thrust
    gravity = ca.vertcat(0, 0, GRAVITY_M_S2)
    drag = drag_acceleration(v_W, thrust_axis_W, specific_thrust, parameters)
    return drag + specific_thrust * thrust_axis_W - gravity + disturbance_W


def drag_acceleration(v_W: SX, thrust_axis_W: SX, specific_thrust: SX, parameters: SX) -> SX:
    """Acceleration by the drag of hull and rotors in W [m/s²]; specific_thrust: [m/s²]."""
    in_plane = v_W - ca.dot(v_W, thrust_axis_W) * thrust_axis_W
    return -parameters[1:4] * v_W - (parameters[8] + parameters[9] * specific_thrust) * in_plane


def rotation_from_rpy(roll: SX, pitch: SX, yaw: SX) -> SX:
    """R = Rz(yaw) Ry(pitch) Rx(roll), 3x3."""
    cr, sr, cp, sp, cy, sy = ca.cos(roll), ca.sin(roll), ca.cos(pitch), ca.sin(pitch), ca.cos(yaw), ca.sin(yaw)
    return ca.vertcat(
        ca.horzcat(cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr),
        ca.horzcat(sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr),
        ca.horzcat(-sp, cp * sr, cp * cr),
    )


def euler_rates(roll: SX, pitch: SX, commands: SX, parameters: SX) -> SX:
    """(φ̇, θ̇, ψ̇). commands: roll [rad], pitch [rad], yaw rate [rad/s]."""
    tau_r, k_r, tau_p, k_p = parameters[4], parameters[5], parameters[6], parameters[7]
    return ca.vertcat((k_r * commands[0] - roll) / tau_r, (k_p * commands[1] - pitch) / tau_p, commands[2])


def body_rates(roll: SX, pitch: SX, rates: SX) -> SX:
    """ω_B of the Euler rates: ω = E(φ, θ) (φ̇, θ̇, ψ̇)."""
    cr, sr, cp, sp = ca.cos(roll), ca.sin(roll), ca.cos(pitch), ca.sin(pitch)
    return ca.vertcat(
        rates[0] - sp * rates[2],
        cr * rates[1] + sr * cp * rates[2],
        -sr * rates[1] + cr * cp * rates[2],
    )


def euler_model(state: SX, command: SX, disturbance_W: SX, parameters: SX) -> SX:
    """ẋ of x = (p_W, v_W, roll, pitch, yaw) under command = (thrust, roll, pitch, yaw rate); shape (9,)."""
    v_W, roll, pitch, yaw = state[3:6], state[6], state[7], state[8]
    thrust_axis_W = rotation_from_rpy(roll, pitch, yaw)[:, 2]
    return ca.vertcat(
        v_W,
        acceleration(v_W, thrust_axis_W, command[0], disturbance_W, parameters),
        euler_rates(roll, pitch, command[1:4], parameters),
    )


def rk4(derivative: Callable[[SX], SX], state: SX, step_s: SX | float) -> SX:
    """One step of the classic Runge-Kutta method; all inputs are constant over the step."""
    k1 = derivative(state)
    k2 = derivative(state + step_s / 2 * k1)
    k3 = derivative(state + step_s / 2 * k2)
    k4 = derivative(state + step_s * k3)
    return state + step_s / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def discrete_model(
    state: SX, command: SX, yaw: SX, yaw_rate: SX, disturbance_W: SX, parameters: SX, step_s: SX | float
) -> SX:
    """x of x = (p_W, v_W, roll, pitch) one step later, under command = (thrust, roll, pitch); shape (8,).

    `euler_model` with a given heading: roll and pitch have a closed form, so the acceleration is a function of time and
    velocity alone, and the classic Runge-Kutta method for p and v needs three attitudes instead of four.
    """
    p_W, v_W, angles = state[0:3], state[3:6], state[6:8]
    tau, goal = parameters[4:8:2], parameters[5:8:2] * command[1:3]

    def thrust_acceleration(part: float) -> Callable[[SX], SX]:
        roll, pitch = ca.vertsplit(goal + (angles - goal) * ca.exp(-part * step_s / tau))
        axis_W = rotation_from_rpy(roll, pitch, yaw + part * step_s * yaw_rate)[:, 2]
        return lambda v_W: acceleration(v_W, axis_W, command[0], disturbance_W, parameters)

    begin, middle, end = (thrust_acceleration(part) for part in (0, 0.5, 1))
    k1 = begin(v_W)
    k2 = middle(v_W + step_s / 2 * k1)
    k3 = middle(v_W + step_s / 2 * k2)
    k4 = end(v_W + step_s * k3)
    return ca.vertcat(
        p_W + step_s * v_W + step_s**2 / 6 * (k1 + k2 + k3),
        v_W + step_s / 6 * (k1 + 2 * k2 + 2 * k3 + k4),
        goal + (angles - goal) * ca.exp(-step_s / tau),
    )
