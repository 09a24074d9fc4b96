"""Body-frame and headless flight modes: what the sticks mean in each, as matrices, Euler angles and stick positions.

Source: E. V. Strashnov, I. N. Mironenko, L. A. Finagin, "Simulation of quadcopter flight modes in virtual environment
systems" (in Russian), 2020, doi 10.14357/20718632200109. Numbers of equations are those of the source.

Axes of the source, in the aircraft and in the world: x to the right, y ahead, z up. Its φ turns about x, its θ about y,
its ψ about z. `to_flu` and `from_flu` change to the axes of this stack (x ahead, y left).

Body-frame mode: the sticks are φ, θ and ψ themselves. Headless mode: the sticks are turns α, β, γ about the fixed axes
X, Y, Z, so that the aircraft moves where the stick points, wherever the nose is.
"""

import cmath
import math
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array

# From one end of the stick's range to the other, for every change that the pilot's hand did not make: PX4's stick filters
# settle in about half of it. A nose that turns at up to 229°/s is followed without delay (MC_YAWRATE_MAX of PX4: 200°/s).
SWITCH_S = 0.5
RANGE = 2.0  # of a stick, -1 to 1
# The last heading counts for this long after its end. With the age at which the link ends it (0.3 s) it is half a second: a
# few lost messages do not move the stick, and a nose that turns at 45°/s is 22° further.
HEADING_HOLD_S = 0.2
TILT_LIMIT_RAD = math.pi / 2  # |α| and |β| stay below: equations 22 to 24 hold there only
FROM_FLU = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])  # (ahead, left, up) to (right, ahead, up)


class FlightMode(StrEnum):
    """Whose axes the sticks for tilt belong to."""

    BODY = "body"
    HEADLESS = "headless"


class EulerAngles(NamedTuple):
    """R = Rz(ψ) Ry(θ) Rx(φ) in the axes of the source [rad]."""

    phi: float
    theta: float
    psi: float


def zyx_matrix(angles: EulerAngles) -> Array:
    """R = Rz(ψ) Ry(θ) Rx(φ), shape (3, 3): equation 1 as it should be.

    The source prints θ in place of φ in four of its terms: -s_ψ c_θ, s_ψ s_θ, c_ψ c_θ and -c_ψ s_θ in rows 1 and 2.
    """
    c_phi, s_phi = math.cos(angles.phi), math.sin(angles.phi)
    c_theta, s_theta = math.cos(angles.theta), math.sin(angles.theta)
    c_psi, s_psi = math.cos(angles.psi), math.sin(angles.psi)
    return np.array(
        [
            [c_psi * c_theta, -s_psi * c_phi + c_psi * s_theta * s_phi, s_psi * s_phi + c_psi * s_theta * c_phi],
            [s_psi * c_theta, c_psi * c_phi + s_psi * s_theta * s_phi, -c_psi * s_phi + s_psi * s_theta * c_phi],
            [-s_theta, c_theta * s_phi, c_theta * c_phi],
        ]
    )


def headless_matrix(alpha: float, beta: float, gamma: float) -> Array:
    """R = Rx(α) Ry(β) Rz(γ), shape (3, 3): equation 16, turns about fixed axes, first γ, then β, then α [rad]."""
    c_a, s_a = math.cos(alpha), math.sin(alpha)
    c_b, s_b = math.cos(beta), math.sin(beta)
    c_g, s_g = math.cos(gamma), math.sin(gamma)
    return np.array(
        [
            [c_b * c_g, -c_b * s_g, s_b],
            [c_a * s_g + s_a * s_b * c_g, c_a * c_g - s_a * s_b * s_g, -s_a * c_b],
            [s_a * s_g - c_a * s_b * c_g, s_a * c_g + c_a * s_b * s_g, c_a * c_b],
        ]
    )


def headless_angles(alpha: float, beta: float, gamma: float) -> EulerAngles:
    """The Euler angles of the attitude that headless sticks ask for: equations 22 to 24 [rad].

    Raises ValueError unless |α| and |β| are below 90°; then |θ| is below 90°, too.
    """
    if not (abs(alpha) < TILT_LIMIT_RAD and abs(beta) < TILT_LIMIT_RAD):
        raise ValueError("headless tilt of 90° or more")
    c_a, s_a = math.cos(alpha), math.sin(alpha)
    c_b, s_b = math.cos(beta), math.sin(beta)
    c_g, s_g = math.cos(gamma), math.sin(gamma)
    sine = c_a * s_b * c_g - s_a * s_g
    row = math.hypot(c_b * c_g, c_a * s_g + s_a * s_b * c_g)  # cos θ: near 90° the arcsine alone loses half the digits
    return EulerAngles(
        phi=math.atan2(s_a * c_g + c_a * s_b * s_g, c_a * c_b),
        theta=math.atan2(sine, row),
        psi=math.atan2(c_a * s_g + s_a * s_b * c_g, c_b * c_g),
    )


def gamma_for_heading(alpha: float, beta: float, psi: float) -> float:
    """The turn γ with which equation 24 gives the heading ψ [rad]: a mode changes without a turn of the nose."""
    c_a, s_a = math.cos(alpha), math.sin(alpha)
    c_b, s_b = math.cos(beta), math.sin(beta)
    return math.atan2(c_b * math.sin(psi) - s_a * s_b * math.cos(psi), c_a * math.cos(psi))


def to_flu(R: Array) -> Array:
    """A rotation in the axes of the source, in this stack's axes, shape (3, 3)."""
    turned: Array = FROM_FLU.T @ R @ FROM_FLU
    return turned


def from_flu(R: Array) -> Array:
    """A rotation in this stack's axes, in the axes of the source, shape (3, 3)."""
    turned: Array = FROM_FLU @ R @ FROM_FLU.T
    return turned


def limited(stick: float) -> float:
    """A stick position within ±1; one that is not a number is the centre."""
    return max(-1.0, min(1.0, stick)) if math.isfinite(stick) else 0.0


def stick_turns(ahead: float, right: float, tilt_max_rad: float) -> tuple[float, float]:
    """(α, β) [rad] of the right stick, both ±1: ahead turns about -X, to the right about Y."""
    return -limited(ahead) * tilt_max_rad, limited(right) * tilt_max_rad


def headless_tilt(ahead: float, right: float, tilt_max_rad: float) -> tuple[float, float]:
    """Stick (ahead, right) in the pilot's axes that tilts the thrust as headless sticks ask: third column of equation 16.

    tilt_max_rad: tilt at full stick, below 90°. For a controller that tilts by the stick's length towards where the stick
    points, as PX4 does in Stabilized.
    """
    alpha, beta = stick_turns(ahead, right, tilt_max_rad)
    to_right, to_ahead = math.sin(beta), -math.sin(alpha) * math.cos(beta)
    level = math.hypot(to_right, to_ahead)
    if level < 1e-12:
        return 0.0, 0.0
    length = min(1.0, math.atan2(level, math.cos(alpha) * math.cos(beta)) / tilt_max_rad) / level
    return length * to_ahead, length * to_right


def headless_sticks(ahead: float, right: float, heading_rad: float, tilt_max_rad: float) -> tuple[float, float]:
    """`headless_tilt` as a body-frame stick. heading_rad: of the nose from the pilot's "ahead", counter-clockwise."""
    return turned_sticks(*headless_tilt(ahead, right, tilt_max_rad), heading_rad)


def turned_sticks(ahead: float, right: float, heading_rad: float) -> tuple[float, float]:
    """The same direction of the world as a stick in the heading frame; for sticks that command a velocity."""
    c, s = math.cos(heading_rad), math.sin(heading_rad)
    return ahead * c - right * s, right * c + ahead * s


class StickModes:
    """Turns the right stick for the mode; the mode may change in the air with the stick held.

    With a stick as a complex number (ahead + i right) the output is ``body * stick + headless * stick in the pilot's axes``.
    The two factors have a target: (1, 0) in body mode, (0, exp(i heading)) in headless mode, (0, 0) in headless mode without
    a heading. They move there at no more than `RANGE` in `SWITCH_S`. So no event moves a held stick faster: neither a change of
    the mode, nor a heading that ends or returns, nor a step of the heading when PX4's estimator resets it. A released stick
    is the centre at once, because the factors multiply the stick.
    """

    def __init__(self, tilt_max_rad: float, mode: FlightMode = FlightMode.BODY) -> None:
        if not 0.0 < tilt_max_rad < TILT_LIMIT_RAD:
            raise ValueError("tilt at full stick outside of 0 to 90°")
        self.mode = mode
        self._tilt_max_rad = tilt_max_rad
        self._ahead_rad = 0.0
        self._body = 1.0 if mode is FlightMode.BODY else 0.0
        self._headless = 0j
        self._yaw_rad = math.nan  # the newest that is known
        self._yaw_s = -math.inf
        self._last_s: float | None = None
        self._has_heading = True

    @property
    def centred(self) -> bool:
        """The right stick moves to the centre, or is there: headless mode has no heading."""
        return self.mode is FlightMode.HEADLESS and not self._has_heading

    def set_ahead(self, yaw_rad: float) -> bool:
        """Choose the direction in the world that is "ahead" in headless mode; only in body mode, so that nothing jumps."""
        if self._headless != 0j or self.mode is not FlightMode.BODY or not math.isfinite(yaw_rad):
            return False
        self._ahead_rad = yaw_rad
        return True

    def turn(self, ahead: float, right: float, yaw_rad: float, now_s: float, tilts: bool = True) -> tuple[float, float]:
        """The stick (ahead, right) to send; input beyond ±1 is limited.

        yaw_rad: of the aircraft, ENU; not finite: unknown. The newest counts for `HEADING_HOLD_S`; then a headless stick has
        no direction and moves to the centre. tilts: whether the stick commands a tilt (Stabilized, Altitude) or a velocity
        (Position).
        """
        ahead, right = limited(ahead), limited(right)
        elapsed_s = 0.0 if self._last_s is None else max(0.0, now_s - self._last_s)
        self._last_s = now_s
        if math.isfinite(yaw_rad):
            self._yaw_rad, self._yaw_s = yaw_rad, now_s
        self._has_heading = now_s - self._yaw_s <= HEADING_HOLD_S
        self._move(elapsed_s)
        if self._headless == 0j:
            return self._body * ahead, self._body * right
        pilots = headless_tilt(ahead, right, self._tilt_max_rad) if tilts else (ahead, right)
        sent = self._body * complex(ahead, right) + self._headless * complex(*pilots)
        return limited(sent.real), limited(sent.imag)

    def _move(self, elapsed_s: float) -> None:
        """Move the factors towards their target."""
        body, headless = 1.0, 0j
        if self.mode is FlightMode.HEADLESS:
            body, headless = 0.0, cmath.rect(1.0, self._yaw_rad - self._ahead_rad) if self._has_heading else 0j
        distance = abs(body - self._body) + abs(headless - self._headless)
        share = RANGE * elapsed_s / SWITCH_S / distance if distance > 0.0 else 1.0
        if share >= 1.0:
            self._body, self._headless = body, headless
        else:
            self._body += share * (body - self._body)
            self._headless += share * (headless - self._headless)
