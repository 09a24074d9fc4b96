"""The simulated aircraft: one TOML file in config/airframes.

These files are not the vehicle files of config/vehicles. A vehicle file holds the parameters that the stack assumes, an
airframe file the properties that the simulated aircraft has; neither is read in place of the other.
"""

import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from companion.core.arrays import Array
from companion.core.config import Section, Tables, load, number
from companion.core.config_files import ConfigKind, find_config
from companion.core.frames import GRAVITY_M_S2
from sitl.battery import BatteryConfig

ROTORS_MAX = 16  # as in physics.c
COAXIAL_RADII = 0.5  # two hubs nearer to each other than this across their axis are a coaxial pair
COAXIAL_GAP_RADII = 0.1  # least distance of their discs
BESIDE_RADII = (
    1.8  # least distance of two hubs at one height; discs of real aircraft overlap by up to a tenth of a radius
)
NOT_BALANCED = 0.1  # share of the rotors' torque that is left about z at equal thrusts
SINGULAR = 0.05  # least singular value of the normalised effectiveness over the largest one
FOOT_SINKS_M = 0.02  # twice as far as a landing on a solid presses the feet into it
FEET_DAMPING_MAX_1_S = 2000.0  # 2 / 1 ms of the feet's fastest motion; physics.c's Runge-Kutta steps diverge at 2.79
FEET_RATE_MAX_RAD_S = 1000.0  # 1 / 1 ms; they diverge at 2.83
FEET_SINK_MAX = 0.1  # of foot_height_m, standing
ROUNDED = 1.006  # so that a limit of three digits in an error is accepted
UPRIGHT = 2.0  # least righting torque of the feet's springs over the weight's
HOVER_SHARE_MAX = 0.85  # of a rotor's thrust: the rest must hold the aircraft in wind

_COS_30, _S, _L = math.sqrt(3) / 2, math.sqrt(0.5), math.cos(math.pi / 8)
_O = math.sin(math.pi / 8)


class Spin(StrEnum):
    """Sense of rotation of a rotor, seen from above."""

    CCW = "ccw"
    CW = "cw"

    @property
    def sign(self) -> int:
        """+1: counter-clockwise, as PX4's CA_ROTORx_KM."""
        return 1 if self is Spin.CCW else -1


class Frame(StrEnum):
    """PX4's flat airframes with equal arms; its numbering of the rotors is kept."""

    QUADROTOR_X = "quadrotor_x"
    HEXAROTOR_X = "hexarotor_x"
    OCTOROTOR_X = "octorotor_x"


# For each rotor: place over the arm's length (x forward, y left), sense of rotation.
FRAMES: dict[Frame, tuple[tuple[float, float, Spin], ...]] = {
    Frame.QUADROTOR_X: ((_S, -_S, Spin.CCW), (-_S, _S, Spin.CCW), (_S, _S, Spin.CW), (-_S, -_S, Spin.CW)),
    Frame.HEXAROTOR_X: (
        (_COS_30, -0.5, Spin.CCW),
        (0.0, -1.0, Spin.CW),
        (-_COS_30, -0.5, Spin.CCW),
        (-_COS_30, 0.5, Spin.CW),
        (0.0, 1.0, Spin.CCW),
        (_COS_30, 0.5, Spin.CW),
    ),
    Frame.OCTOROTOR_X: (
        (_L, -_O, Spin.CW),
        (-_L, _O, Spin.CW),
        (_O, -_L, Spin.CCW),
        (-_L, -_O, Spin.CCW),
        (_L, _O, Spin.CCW),
        (-_O, _L, Spin.CCW),
        (_O, _L, Spin.CW),
        (-_O, -_L, Spin.CW),
    ),
}


class Hub(Section, frozen=True):
    """One rotor that stands where no `Frame` has it."""

    p_m: tuple[
        Annotated[float, number(-5.0, 5.0, "m forward of the centre of mass")],
        Annotated[float, number(-5.0, 5.0, "m left of it")],
        Annotated[float, number(-1.0, 1.0, "m above it")],
    ]
    spin: Spin
    tilt_rad: Annotated[float, number(0.0, 1.0, "rad between its thrust and the body's z axis")] = 0.0
    tilt_toward_rad: Annotated[
        float, number(-math.pi, math.pi, "rad: heading of the tilt, 0: thrust also forward, π/2: also to the left")
    ] = 0.0

    @property
    def axis_B(self) -> tuple[float, float, float]:
        """Unit vector of its thrust."""
        across = math.sin(self.tilt_rad)
        return (
            across * math.cos(self.tilt_toward_rad),
            across * math.sin(self.tilt_toward_rad),
            math.cos(self.tilt_rad),
        )


class Coaxial(Section, frozen=True):
    """What the rotors of coaxial pairs do to each other."""

    lower_thrust_share: Annotated[float, number(0.2, 1.0, "thrust of the lower rotor over that of a free one")]


class Rotor(Section, frozen=True, kw_only=True):
    """One of the aircraft's equal rotors with motor and speed controller."""

    thrust_max_n: Annotated[float, number(0.5, 500.0, "N, at full command and reference voltage")]
    thrust_spread: Annotated[float, number(0.0, 0.1, "standard deviation of single rotors, as a fraction")]
    quadratic_fraction: Annotated[float, number(0.0, 1.0, "of thrust over command, as PX4's THR_MDL_FAC")]
    speed_max_rad_s: Annotated[float, number(50.0, 5000.0, "rad/s, at full command and reference voltage")]
    speed_voltage_exponent: Annotated[float, number(0.0, 1.0, "")]
    rise_time_s: Annotated[float, number(0.002, 1.0, "s")]
    fall_time_s: Annotated[float, number(0.002, 1.0, "s")]
    torque_per_thrust_m: Annotated[float, number(0.001, 0.5, "m")]
    inertia_kg_m2: Annotated[float, number(0.0, 0.1, "kg m²")]
    height_m: Annotated[float, number(-1.0, 1.0, "m above the centre of mass, with frame")] | None = None
    radius_m: Annotated[float, number(0.02, 1.0, "m, of the propeller's disc")]
    in_plane_drag_n_s2_m_rad: Annotated[float, number(0.0, 0.1, "N per (m/s · rad/s)")]
    axial_drag_n_s2_m_rad: Annotated[float, number(0.0, 0.1, "N per (m/s · rad/s)")]
    power_max_w: Annotated[float, number(1.0, 20000.0, "W electrical, at thrust_max_n")]


LinearDrag = Annotated[float, number(0.0, 50.0, "N s/m")]
QuadraticDrag = Annotated[float, number(0.0, 10.0, "N s²/m²")]
AngularDrag = Annotated[float, number(0.0, 10.0, "N m s")]
Inertia = Annotated[float, number(1e-5, 100.0, "kg m²")]


class Drag(Section, frozen=True):
    """The body without its rotors, along the axes of B."""

    linear_n_s_m: tuple[LinearDrag, LinearDrag, LinearDrag]
    quadratic_n_s2_m2: tuple[QuadraticDrag, QuadraticDrag, QuadraticDrag]
    angular_n_m_s: tuple[AngularDrag, AngularDrag, AngularDrag]


class LinearDragModel(Section, frozen=True):
    """AirSim's drag, D·Rᵀv, in place of the drag of body and rotors: equation 5 of the source in physics.c."""

    d_n_s_m: tuple[LinearDrag, LinearDrag, LinearDrag]


class RotorDragModel(Section, frozen=True):
    """Drag (k T + b)·c_d in the plane of each rotor, in place of the drag of body and rotors: equations 11 and 13.

    k T + b is the line that stands for the root of a rotor's thrust (equation 7), which makes the units what they are.
    """

    k: Annotated[float, number(0.0, 10.0, "1/√N")]
    b: Annotated[float, number(0.0, 100.0, "√N, of one rotor")]
    c_d: Annotated[float, number(0.0, 10.0, "√N s/m")]
    each_rotor: bool  # at each hub with its velocity ω × d (equation 11), or the sum at the centre of mass (13)


class Motor(Section, frozen=True):
    """Motors I·dΩ/dt = M_s (U - Ω/Ω_idle), in place of rise and fall times; U: duty times battery over reference voltage.

    I is the rotor's inertia_kg_m2, so that the time constant is I Ω_idle / M_s. At full command a rotor turns with Ω_idle, and has
    its thrust_max_n times (Ω_idle / speed_max_rad_s)².
    """

    starting_torque_n_m: Annotated[float, number(0.001, 100.0, "N m")]
    idle_speed_rad_s: Annotated[float, number(50.0, 5000.0, "rad/s, at full command and reference voltage")]


class Ground(Section, frozen=True):
    """Four feet and the ground under them."""

    foot_radius_m: Annotated[float, number(0.01, 5.0, "m from the centre, at 45, 135, 225 and 315 degrees")]
    foot_height_m: Annotated[float, number(0.01, 5.0, "m below the centre of mass")]
    stiffness_n_m: Annotated[float, number(10.0, 1e5, "N/m of each foot")]
    damping_n_s_m: Annotated[float, number(0.0, 1e3, "N s/m of each foot")]
    friction: Annotated[float, number(0.0, 2.0, "")]


class Airframe(Section, frozen=True):
    """An airframe file. Its rotors stand as in a `frame` of PX4 with `wheelbase_m`, or at the places of `hub`."""

    name: str
    autopilot: str  # parameter file of the built-in autopilot, relative to this file
    mass_kg: Annotated[float, number(0.1, 100.0, "kg")]
    inertia_kg_m2: tuple[Inertia, Inertia, Inertia]
    command_delay_s: Annotated[float, number(0.0, 0.2, "s from command to the speed controller's output")]
    rotor: Rotor
    drag: Drag
    ground: Ground
    battery: BatteryConfig
    frame: Frame | None = None
    wheelbase_m: Annotated[float, number(0.1, 5.0, "m, motor to opposite motor, with frame")] | None = None
    hub: tuple[Hub, ...] = ()
    coaxial: Coaxial | None = None
    ground_effect: bool | None = None  # of the ground z = 0 on the rotors; without the key: none
    linear_drag: LinearDragModel | None = None
    rotor_drag: RotorDragModel | None = None
    motor: Motor | None = None

    @property
    def hubs(self) -> tuple[Hub, ...]:
        """The rotors in PX4's order."""
        if self.frame is None or self.wheelbase_m is None or self.rotor.height_m is None:
            return self.hub
        arm_m, height_m = self.wheelbase_m / 2, self.rotor.height_m
        return tuple(Hub(p_m=(x * arm_m, y * arm_m, height_m), spin=spin) for x, y, spin in FRAMES[self.frame])

    @property
    def arm_m(self) -> float:
        """Horizontal distance of the farthest hub from the centre of mass."""
        if self.frame is not None and self.wheelbase_m is not None:
            return self.wheelbase_m / 2
        return max(math.hypot(*hub.p_m[:2]) for hub in self.hub)

    @property
    def feet_B(self) -> tuple[tuple[float, float, float], ...]:
        """The four feet, at 45, 135, 225 and 315 degrees [m]."""
        side, z = self.ground.foot_radius_m / math.sqrt(2), -self.ground.foot_height_m
        return (side, side, z), (-side, side, z), (-side, -side, z), (side, -side, z)

    @property
    def hull_radius_m(self) -> float:
        """How far the hull reaches to the side: what the discs of the rotors leave free."""
        return max(self.arm_m - self.rotor.radius_m, 0.0)

    @property
    def hull_half_height_m(self) -> float:
        """How far it reaches up and down: not above the highest hub, and so that the feet touch a surface before it."""
        above_m = max(0.0, *(hub.p_m[2] for hub in self.hubs))
        return min(self.hull_radius_m, above_m, max(self.ground.foot_height_m - FOOT_SINKS_M, 0.0))

    def upper_of(self, k: int) -> int | None:
        """The rotor over rotor k in a coaxial pair, None if rotor k has free air above."""
        hubs, reach_m = self.hubs, COAXIAL_RADII * self.rotor.radius_m
        for i, other in enumerate(hubs):
            gap = np.subtract(other.p_m, hubs[k].p_m)
            along = float(gap @ hubs[k].axis_B)
            if i != k and along > 0 and float(np.linalg.norm(gap - along * np.array(hubs[k].axis_B))) < reach_m:
                return i
        return None

    @property
    def thrust_shares(self) -> tuple[float, ...]:
        """Thrust of each rotor over that of a free one at the same speed."""
        share = 1.0 if self.coaxial is None else self.coaxial.lower_thrust_share
        return tuple(1.0 if self.upper_of(k) is None else share for k in range(len(self.hubs)))

    @property
    def rotor_thrust_n(self) -> float:
        """Of a free rotor, at full command and reference voltage."""
        if self.motor is None:
            return self.rotor.thrust_max_n
        return self.rotor.thrust_max_n * (self.motor.idle_speed_rad_s / self.rotor.speed_max_rad_s) ** 2

    @property
    def thrust_max_n(self) -> float:
        """Of all rotors along the body's z axis, at full command and reference voltage."""
        of_one = sum(share * hub.axis_B[2] for share, hub in zip(self.thrust_shares, self.hubs, strict=True))
        return of_one * self.rotor_thrust_n

    def contradiction(self) -> str:
        if self.linear_drag and self.rotor_drag:
            return "linear_drag: the file has rotor_drag, too, and an aircraft has one model of drag: leave one out"
        if self.motor and not self.rotor.inertia_kg_m2 > 0:
            return "motor: needs rotor.inertia_kg_m2 > 0, the inertia that its torque speeds up"
        return (
            self._form_problem()
            or self._pair_problem()
            or self._legs_problem()
            or _balance_problem(self)
            or _ground_problem(self)
        )

    def _form_problem(self) -> str:
        if (self.frame is None) == (not self.hub):
            return (
                "frame: one of frame and [[hub]] says where the rotors are; the file has "
                f"{'none of them' if self.frame is None else 'both'}"
            )
        of_frame = {"wheelbase_m": self.wheelbase_m, "rotor.height_m": self.rotor.height_m}
        for key, value in of_frame.items():
            if (value is None) == (self.frame is not None):
                return f"{key}: {'needed with frame' if value is None else 'belongs to frame; the file has [[hub]]'}"
        if len(self.hubs) > ROTORS_MAX:
            return f"hub: {len(self.hubs)} rotors, at most {ROTORS_MAX} are simulated"
        return ""

    def _legs_problem(self) -> str:
        for k, hub in enumerate(self.hubs):
            below_m = self.rotor.radius_m * math.sin(hub.tilt_rad) - hub.p_m[2]
            if below_m >= self.ground.foot_height_m:
                return (
                    f"ground.foot_height_m = {self.ground.foot_height_m:g}: must be above {below_m:.3f}, which is how far "
                    f"the disc of rotor {k} reaches below the centre of mass"
                )
        return ""

    def _pair_problem(self) -> str:
        hubs, radius_m = self.hubs, self.rotor.radius_m
        for k, hub in enumerate(hubs):
            for i, other in enumerate(hubs[:k]):
                apart_m = math.dist(hub.p_m, other.p_m)
                if apart_m < COAXIAL_GAP_RADII * radius_m:
                    return f"hub[{k}].p_m: that of hub[{i}]: two rotors cannot be at one place"
                level = abs(hub.p_m[2] - other.p_m[2]) < COAXIAL_GAP_RADII * radius_m
                if level and apart_m < BESIDE_RADII * radius_m:
                    return (
                        f"rotor.radius_m = {radius_m:g}: rotors {i} and {k} are {apart_m:.3f} m apart: their discs cut"
                    )
        for k, hub in enumerate(hubs):
            i_upper = self.upper_of(k)
            if i_upper is None:
                continue
            if hubs[i_upper].spin == hub.spin:
                return (
                    f"hub[{k}].spin = {hub.spin}: as that of hub[{i_upper}] over it; a coaxial pair needs both senses"
                )
            if self.coaxial is None:
                return f"coaxial.lower_thrust_share: missing, and hub[{k}] works in the downwash of hub[{i_upper}]"
        if self.coaxial is not None and not any(self.upper_of(k) is not None for k in range(len(hubs))):
            return "coaxial: no rotor stands under another one"
        return ""


def effectiveness(hubs: tuple[Hub, ...], torque_per_thrust_m: float) -> Array:
    """Torque about x, y and z of B [m] and force along z of 1 N of each rotor, shape (4, n)."""
    columns = []
    for hub in hubs:
        axis = np.array(hub.axis_B)
        columns.append([*(np.cross(hub.p_m, axis) - hub.spin.sign * torque_per_thrust_m * axis), axis[2]])
    return np.array(columns).T


def _balance_problem(airframe: Airframe) -> str:
    """What keeps the rotors from hovering the aircraft, beginning with the key; "" if nothing."""
    rotor, shares = airframe.rotor, np.array(airframe.thrust_shares)
    arm_m, torque_m, n = airframe.arm_m, rotor.torque_per_thrust_m, len(shares)
    key = "hub" if airframe.frame is None else "frame"
    if not arm_m > 0:
        return f"{key}: all rotors are at the centre of mass"
    # unit: of torque the arm's length or the rotor's, so that the rows can be compared
    scale = np.array([arm_m, arm_m, torque_m, 1.0])
    rows = effectiveness(airframe.hubs, torque_m) / scale[:, None]
    sizes = np.linalg.svd(rows, compute_uv=False)
    if n < len(rows) or sizes[-1] < SINGULAR * sizes[0]:
        return f"{key}: {n} rotors so placed and so turning cannot roll, pitch, yaw and lift independently (rank < 4)"
    left = abs(float(rows[2].sum())) / n
    if left > NOT_BALANCED:
        return f"{key}: the spins do not balance: at equal thrust {left:.0%} of the rotors' torque is left about z"
    hover = np.linalg.pinv(rows)[:, 3]  # in the proportions of the mixer
    hover *= airframe.mass_kg * GRAVITY_M_S2 / (float(rows[3] * shares @ hover) * airframe.rotor_thrust_n)
    strength = "rotor.thrust_max_n" if airframe.motor is None else "rotor.thrust_max_n, motor.idle_speed_rad_s"
    for k, share in enumerate(hover):
        if not 0.0 <= share <= HOVER_SHARE_MAX:
            return (
                f"{key}: a hover needs {share:.0%} of the thrust of rotor {k}, must be 0 to {HOVER_SHARE_MAX:.0%}: "
                f"see mass_kg, {strength} and the places"
            )
    return ""


def _ground_problem(airframe: Airframe) -> str:
    """What keeps the aircraft from standing still on its feet, beginning with the key; "" if nothing.

    With all feet on the ground the motions are those of equal springs and dampers at the feet: accelerations are
    -M⁻¹ G (k x + c ẋ), G = Σ Jᵀ J over the feet, J the velocity of a foot by that of the body, (v, ω).
    """
    ground = airframe.ground
    masses = np.array([airframe.mass_kg] * 3 + list(airframe.inertia_kg_m2))
    coupling = np.zeros((6, 6))
    for foot_B in airframe.feet_B:
        turning = np.cross(np.eye(3), foot_B).T  # times ω: ω × p
        J = np.hstack([np.eye(3), turning])
        coupling += J.T @ J
    fastest = float(np.linalg.eigvals(coupling / masses[:, None]).real.max())  # 1/kg
    weight_n = airframe.mass_kg * GRAVITY_M_S2
    for key, value, limit, why in (
        ("damping_n_s_m", ground.damping_n_s_m, FEET_DAMPING_MAX_1_S / fastest, "it would rock for ever"),
        ("stiffness_n_m", ground.stiffness_n_m, FEET_RATE_MAX_RAD_S**2 / fastest, "it would bounce for ever"),
    ):
        if value > limit:
            return f"ground.{key} = {value:g}: must be at most {limit / ROUNDED:.3g} with this mass_kg and inertia_kg_m2: {why}"
    for limit, why in (
        (weight_n / (4 * FEET_SINK_MAX * ground.foot_height_m), "it would sink by more than a tenth of foot_height_m"),
        (UPRIGHT * weight_n * ground.foot_height_m / (2 * ground.foot_radius_m**2), "it would tip over its feet"),
    ):
        if ground.stiffness_n_m < limit:
            return f"ground.stiffness_n_m = {ground.stiffness_n_m:g}: must be at least {limit * ROUNDED:.3g} with this mass_kg: {why}"
    return ""


def with_thrust(airframe: Airframe, scale: float) -> Airframe:
    """The airframe with this many times the thrust of its file."""
    rotor = msgspec.structs.replace(airframe.rotor, thrust_max_n=airframe.rotor.thrust_max_n * scale)
    return msgspec.structs.replace(airframe, rotor=rotor)


def airframe_file(name: str) -> Path:
    """The file of an airframe that is given by name or by path; raises `ConfigError`."""
    return find_config(name, ConfigKind.AIRFRAME)


def load_airframe(name: str, changes: Tables | None = None) -> Airframe:
    """Airframe by the name of its file in config/airframes, or by path; raises `ConfigError`.

    changes: tables that are laid over those of the file, `airframe_changes` of a scenario.
    """
    return load(airframe_file(name), Airframe, changes)
