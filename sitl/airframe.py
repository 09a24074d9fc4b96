"""The simulated aircraft: one TOML file in sitl/airframes.

These files are not the vehicle files of config/vehicles. A vehicle file holds the parameters that the stack assumes, an
airframe file the properties that the simulated aircraft has; neither is read in place of the other.
"""

from pathlib import Path
from typing import Annotated

import msgspec

from companion.core.config import Section, Tables, load, number
from sitl.battery import BatteryConfig

FOLDER = Path(__file__).parent / "airframes"


class Rotor(Section, frozen=True):
    """One of six equal rotors with motor and speed controller."""

    thrust_max_n: Annotated[float, number(0.5, 500.0, "N, at full command and reference voltage")]
    thrust_spread: Annotated[float, number(0.0, 0.1, "standard deviation of single rotors, as a fraction")]
    quadratic_fraction: Annotated[float, number(0.0, 1.0, "of thrust over command, as PX4's THR_MDL_FAC")]
    speed_max_rad_s: Annotated[float, number(50.0, 5000.0, "rad/s, at full command and reference voltage")]
    speed_voltage_exponent: Annotated[float, number(0.0, 1.0, "")]
    rise_time_s: Annotated[float, number(0.002, 1.0, "s")]
    fall_time_s: Annotated[float, number(0.002, 1.0, "s")]
    torque_per_thrust_m: Annotated[float, number(0.001, 0.5, "m")]
    inertia_kg_m2: Annotated[float, number(0.0, 0.1, "kg m²")]
    height_m: Annotated[float, number(-1.0, 1.0, "m above the centre of mass")]
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

    I is the rotor's inertia_kg_m2, so that the time constant is I Ω_idle / M_s.
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
    """An airframe file. Rotors stand and turn as in PX4's "Hexarotor X"."""

    name: str
    mass_kg: Annotated[float, number(0.1, 100.0, "kg")]
    wheelbase_m: Annotated[float, number(0.1, 5.0, "m, motor to opposite motor")]
    inertia_kg_m2: tuple[Inertia, Inertia, Inertia]
    command_delay_s: Annotated[float, number(0.0, 0.2, "s from command to the speed controller's output")]
    rotor: Rotor
    drag: Drag
    ground: Ground
    battery: BatteryConfig
    ground_effect: bool | None = None  # of the ground z = 0 on the rotors; without the key: none
    linear_drag: LinearDragModel | None = None
    rotor_drag: RotorDragModel | None = None
    motor: Motor | None = None

    def contradiction(self) -> str:
        if self.linear_drag and self.rotor_drag:
            return "linear_drag: the file has rotor_drag, too, and an aircraft has one model of drag: leave one out"
        if self.motor and not self.rotor.inertia_kg_m2 > 0:
            return "motor: needs rotor.inertia_kg_m2 > 0, the inertia that its torque speeds up"
        return ""


def with_thrust(airframe: Airframe, scale: float) -> Airframe:
    """The airframe with this many times the thrust of its file."""
    rotor = msgspec.structs.replace(airframe.rotor, thrust_max_n=airframe.rotor.thrust_max_n * scale)
    return msgspec.structs.replace(airframe, rotor=rotor)


def airframe_file(name: str) -> Path:
    """The file of an airframe that is given by name or by path."""
    path = Path(name)
    return path if path.suffix == ".toml" else FOLDER / f"{name}.toml"


def load_airframe(name: str, changes: Tables | None = None) -> Airframe:
    """Airframe by the name of its file in sitl/airframes, or by path; raises `ConfigError`.

    changes: tables that are laid over those of the file, `airframe_changes` of a scenario.
    """
    return load(airframe_file(name), Airframe, changes)
