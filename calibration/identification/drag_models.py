"""How much of the acceleration each model of drag explains: linear drag, and rotor drag that grows with thrust.

An accelerometer feels thrust and drag alone, in B:

    f = t (1 + c (t/t̄ - 1) + e) e_z + a(v_B) + R^T g_W + β,      v_B = R^T v_W

t: thrust over mass, k_T (U/U_ref)^n u_f from the fit of the forces; e, c: its remaining error and curvature; g_W: constant,
horizontal, for the mean wind; β: constant bias. The models of W. Kim et al., "High-Fidelity Drone Simulation with Depth Camera Noise
and Improved Air Drag Force Models", Applied Sciences 13, 10631, 2023, all over mass:

- *linear* (equation 5): a = -D v_B, D = diag(x, y, z);
- *rotor* (equation 13): a = -(k t + b) c_d (I - e_z e_z^T) v_B. k t + b is the line that stands for √t over the thrusts
  flown (equation 7), so the flight determines c_d. For rotors of equal thrust T = m t / n in newtons the paper's numbers
  are k √(n/m), b √(m/n) and c_d √(m/n);
- *rotor and vertical*: the same and -d_z v_z e_z, because a rotor that moves along its axis loses thrust.

Everything enters linearly and is fitted by least squares to the first part of the flight; the errors are those on the
rest. "none" is the same without any drag.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from calibration.identification.flight_data import FlightData, Span
from calibration.identification.forces import Forces
from calibration.identification.response import block_covariance, student_half_width
from calibration.identification.windows import Windows
from companion.core.arrays import Array

HELD_OUT = 1.0 / 3.0  # of the windows, the last ones
THRUST_SPREAD_MIN = 0.1  # of the mean thrust to each side, at least, for the line of its root
WINDOWS_MIN = 6


@dataclass(frozen=True)
class DragModels:
    """Both models of one flight; drags are over mass, half-widths those of 95 % intervals.

    rmse: of the acceleration, root of the mean squared length [m/s²], held out, mean over 0.02 s. explained: the share of
    the squared error without drag that the model removes, held out; negative where it is worse than none.
    """

    linear_1_s: tuple[float, float, float]
    linear_half_1_s: tuple[float, float, float]
    k_s_sqrt_m: float  # s/√m
    b_sqrt_m_s: float  # √m/s
    c_d_1_sqrt_m: float  # 1/√m
    c_d_half_1_sqrt_m: float
    thrust_range_m_s2: tuple[float, float]  # for which the line stands
    rmse_none_m_s2: float
    rmse_linear_m_s2: float
    rmse_rotor_m_s2: float
    rmse_rotor_vertical_m_s2: float
    vertical_1_s: float  # d_z of rotor and vertical; its k, b and c_d are those of rotor
    vertical_half_1_s: float

    @property
    def explained_linear(self) -> float:
        return 1.0 - (self.rmse_linear_m_s2 / self.rmse_none_m_s2) ** 2

    @property
    def explained_rotor(self) -> float:
        return 1.0 - (self.rmse_rotor_m_s2 / self.rmse_none_m_s2) ** 2

    @property
    def explained_rotor_vertical(self) -> float:
        return 1.0 - (self.rmse_rotor_vertical_m_s2 / self.rmse_none_m_s2) ** 2


def compare_drags(flight: FlightData, spans: Sequence[Span], forces: Forces) -> tuple[DragModels | None, str]:
    """(both models over the spans (`windows.usable_spans`), why there are none)."""
    if forces.drag_horizontal_1_s is None:
        return None, forces.missing.get("drag_horizontal", "the log does not determine any drag")
    imu = flight.imu_B if len(flight.imu_B) else flight.accelerometer_B
    w = Windows(replace(flight, accelerometer_B=imu), spans)
    if w.accelerometer is None:
        return None, "the log has no accelerometer at 25 Hz or more"
    if len(w) < WINDOWS_MIN:
        return None, f"{len(w)} windows of flight with all signals; at least {WINDOWS_MIN} are needed"
    thrust = _thrust(w, forces)
    v_B = np.einsum("wnji,wnj->wni", w.R_WB, w.velocity)
    k, b, low, high = root_line(thrust)
    none = _without_drag(w, thrust)
    linear = np.concatenate([none, -v_B[..., None, :] * np.eye(3)], axis=-1)
    rotor_share = -(k * thrust + b)[..., None] * v_B * [1.0, 1.0, 0.0]
    rotor = np.concatenate([none, rotor_share[..., None]], axis=-1)
    both = np.concatenate([rotor, linear[..., -1:]], axis=-1)
    errors = [_held_out(columns, w.accelerometer) for columns in (none, linear, rotor, both)]
    d, d_half = _fitted(linear, w, none.shape[-1])
    c_d, c_d_half = _fitted(rotor, w, none.shape[-1])
    d_z, d_z_half = _fitted(both, w, none.shape[-1] + 1)
    return DragModels(
        linear_1_s=(float(d[0]), float(d[1]), float(d[2])),
        linear_half_1_s=(float(d_half[0]), float(d_half[1]), float(d_half[2])),
        k_s_sqrt_m=k,
        b_sqrt_m_s=b,
        c_d_1_sqrt_m=float(c_d[0]),
        c_d_half_1_sqrt_m=float(c_d_half[0]),
        thrust_range_m_s2=(low, high),
        rmse_none_m_s2=errors[0],
        rmse_linear_m_s2=errors[1],
        rmse_rotor_m_s2=errors[2],
        rmse_rotor_vertical_m_s2=errors[3],
        vertical_1_s=float(d_z[0]),
        vertical_half_1_s=float(d_z_half[0]),
    ), ""


def root_line(thrust: Array) -> tuple[float, float, float, float]:
    """(k, b, from, to): the line k t + b that stands for √t between the lowest and highest thrust flown."""
    mean = float(thrust.mean())
    low, high = np.percentile(thrust, [1, 99]).tolist()
    low, high = min(low, (1 - THRUST_SPREAD_MIN) * mean), max(high, (1 + THRUST_SPREAD_MIN) * mean)
    t = np.linspace(max(low, 0.0), high, 100)
    k, b = np.polyfit(t, np.sqrt(t), 1)
    return float(k), float(b), float(t[0]), float(t[-1])


def _thrust(w: Windows, forces: Forces) -> Array:
    """Thrust over mass by the fit of the forces, (windows, samples) [m/s²]."""
    scale = 1.0 if w.voltage is None else (w.voltage / forces.reference_voltage_v) ** forces.voltage_exponent
    force: Array = w.thrust(0.5 * forces.thrust_lag_s, 0.5 * forces.thrust_lag_s) * scale
    return forces.thrust_coefficient_m_s2 * force


def _without_drag(w: Windows, thrust: Array) -> Array:
    """Columns (windows, samples, 3, 7): thrust, its curvature, two constants of W, three of B."""
    up = np.array([0.0, 0.0, 1.0])
    columns = [thrust[..., None] * up, (thrust * (thrust / thrust.mean() - 1.0))[..., None] * up]
    columns += [w.R_WB[..., i, :] for i in (0, 1)]  # R^T e_i
    columns += [np.broadcast_to(axis, columns[0].shape) for axis in np.eye(3)]
    return np.stack(columns, axis=-1)


def _solve(columns: Array, measured: Array) -> Array:
    p, *_ = np.linalg.lstsq(columns.reshape(-1, columns.shape[-1]), measured.ravel(), rcond=None)
    return np.asarray(p, dtype=np.float64)


def _held_out(columns: Array, measured: Array) -> float:
    """RMSE on the last windows of a fit to the others."""
    cut = round((1.0 - HELD_OUT) * len(measured))
    p = _solve(columns[:cut], measured[:cut])
    rest = measured[cut:] - columns[cut:] @ p
    return float(np.sqrt(np.mean(np.sum(rest**2, axis=-1))))


def _fitted(columns: Array, w: Windows, first: int) -> tuple[Array, Array]:
    """(parameters from `first` on by all windows, half-widths of their intervals)."""
    assert w.accelerometer is not None
    p = _solve(columns, w.accelerometer)
    flat = columns.reshape(-1, columns.shape[-1])
    residual = w.accelerometer.ravel() - flat @ p
    covariance, blocks = block_covariance(flat, residual, np.repeat(w.grid.ravel(), 3))
    half = student_half_width(blocks, len(p)) * np.sqrt(np.maximum(np.diag(covariance), 0.0))
    return p[first:], half[first:]
