"""The simulated aircraft: a six-rotor rigid body with motors, rotor drag, battery and ground, at 1 kHz.

The equations stand in physics.c. This module fills its parameters from an airframe, binds its buffers and keeps
the battery, which is slow enough for Python.
"""

import ctypes
import functools
import math
from enum import IntEnum
from pathlib import Path

import numpy as np

from acados_gen.compile import CFLAGS, compile_library
from companion.core.arrays import Array, Vector
from companion.core.frames import GRAVITY_M_S2, quat_from_rpy
from companion.core.kernel import fingerprint, short_calls
from sitl.airframe import ROTORS_MAX, Airframe
from sitl.battery import Battery

SOURCE = Path(__file__).with_name("physics.c")
STEP_S = 1e-3  # as STEP_S in physics.c
BATTERY_STEPS = 20  # the battery follows at 50 Hz: slow against its time constants, fast against a flight

# Contact with solids, of the lightest mass at one spring: 21 steps in a period, and a bounce to 0.37 of the speed.
SURFACE_RATE_RAD_S, SURFACE_DAMPING_RATIO = 300.0, 0.3
HULL_RATE_RAD_S = 600.0  # ten steps: 30 m/s end after 3.4 cm

FEET, DELAY_MAX = 4, 201
_ROTORS, _GROUND, _CONTACTS = ROTORS_MAX, FEET + ROTORS_MAX, FEET + ROTORS_MAX + 1  # places in the arrays of physics.c

_D = ctypes.c_double


class _DragModel(IntEnum):
    """As in physics.c."""

    BLADES_AND_BODY = 0
    LINEAR = 1
    TOTAL_THRUST = 2
    EACH_ROTOR = 3


class _Parameters(ctypes.Structure):
    """Mirror of parameters_t."""

    _fields_ = (
        ("rotors", ctypes.c_int64),
        ("gravity_m_s2", _D),
        ("mass_kg", _D),
        ("inertia_kg_m2", _D * 3),
        ("rotor_B", _D * 3 * _ROTORS),
        ("axis_B", _D * 3 * _ROTORS),
        ("rotor_spin", _D * _ROTORS),
        ("thrust_coefficient_n_s2", _D * _ROTORS),
        ("torque_per_thrust_m", _D * _ROTORS),
        ("rotor_inertia_kg_m2", _D),
        ("speed_max_rad_s", _D),
        ("speed_full_rad_s", _D),
        ("quadratic_fraction", _D),
        ("rise_decay", _D),
        ("fall_decay", _D),
        ("in_plane_drag", _D),
        ("axial_drag", _D),
        ("power_max_w", _D),
        ("drag_linear", _D * 3),
        ("drag_quadratic", _D * 3),
        ("drag_angular", _D * 3),
        ("drag_model", ctypes.c_int64),
        ("linear_drag", _D * 3),
        ("rotor_drag_k", _D),
        ("rotor_drag_b", _D),
        ("rotor_drag_c_d", _D),
        ("ground_effect", ctypes.c_int64),
        ("contact_B", _D * 3 * _GROUND),
        ("contact_stiffness_n_m", _D),
        ("contact_damping_n_s_m", _D),
        ("friction", _D),
        ("disc_radius_m", _D),
        ("hull_disc_m", _D),
        ("hull_ball_m", _D),
        ("surface_stiffness_n_m", _D * _CONTACTS),
        ("surface_damping_n_s_m", _D * _CONTACTS),
        ("delay_steps", ctypes.c_int64),
    )


class _State(ctypes.Structure):
    """Mirror of state_t."""

    _fields_ = (
        ("p_W", _D * 3),
        ("v_W", _D * 3),
        ("q_WB", _D * 4),
        ("omega_B", _D * 3),
        ("command", _D * _ROTORS),
        ("wind_W", _D * 3),
        ("force_W", _D * 3),
        ("speed_scale", _D),
        ("clearance_m", _D * 3 * _ROTORS),
        ("side_W", _D * 3 * _ROTORS),
        ("surface_W", _D * 4 * _CONTACTS),
        ("rotor_speed_rad_s", _D * _ROTORS),
        ("rotor_acceleration_rad_s2", _D * _ROTORS),
        ("anchor_W", _D * 2 * _GROUND),
        ("touching", ctypes.c_int64 * _GROUND),
        ("ring", _D * _ROTORS * DELAY_MAX),
        ("ring_head", ctypes.c_int64),
        ("held_W", _D * 4 * _CONTACTS),
        ("sunk_m", _D * _CONTACTS),
        ("slack_W", _D * 3 * _CONTACTS),
        ("specific_force_B", _D * 3),
        ("motor_thrust_n", _D * _ROTORS),
        ("free_thrust_n", _D * _ROTORS),
        ("disturbance_W", _D * 3),
        ("rotor_energy_j", _D),
        ("on_ground", ctypes.c_int64),
        ("contact_W", _D * 3 * _CONTACTS),
        ("contact_force_W", _D * 3 * _CONTACTS),
        ("contact_depth_m", _D * _CONTACTS),
        ("contact_peak_n", _D * _CONTACTS),
    )


@functools.cache
def _library() -> ctypes.PyDLL:
    """physics.c, compiled when its sources or flags have changed; raises `CompileError`."""
    print_ = fingerprint([SOURCE], {"flags": CFLAGS})
    library = short_calls(compile_library("physics", print_, [SOURCE]))
    for name, mirror in (("parameters_size", _Parameters), ("state_size", _State)):
        size = getattr(library, name)
        size.restype = ctypes.c_int64
        if size() != ctypes.sizeof(mirror):
            raise RuntimeError(f"{SOURCE}: {name} is {size()} bytes, plant.py's mirror {ctypes.sizeof(mirror)}")
    library.advance.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    library.advance.restype = None
    return library


class Plant:
    """One aircraft in the simulated world (W: ENU, ground at z = 0; B: FLU, origin in the centre of mass).

    The arrays are views on the memory of the C code and stay the same objects: copy what must last longer than one
    step. Writing to p_W, v_W, q_WB, omega_B and rotor_speed_rad_s sets the state.

        p_W, v_W [m, m/s]     q_WB (w, x, y, z)     omega_B [rad/s]
        specific_force_B      output of an ideal accelerometer in the centre of mass [m/s²]
        motor_thrust_n        of each of the `rotors`, PX4's order; free_thrust_n: what it would be far from all surfaces
        disturbance_W         what moving air, surfaces near the rotors and extra force add to the still-air drag [m/s²]
        battery_voltage_v, battery_remaining, on_ground, time_s, mass_kg, rest_height_m

    Solids: each of the `contacts` shapes can have one plane beside it, valid until it is written again: four feet,
    which are points, the rotors, which are discs, and the hull: all points near a disc around the origin. To the side it
    ends where the rotors begin; up and down it reaches neither above the hubs nor below the feet.
    The ground z = 0 is always there and carries feet and hubs.

        surfaces_W            input (contacts, 4): unit normal n into the free space and offset d [m]: free where
                              n·x ≥ d; all zeros: none. A shape that touches must keep its face until it is free again,
                              or it can leave a thin solid on the other side.
        shapes_B              centres of the shapes (contacts, 3), shape_radius_m (contacts,): of the discs, and
                              shape_ball_m (contacts,): how far from its disc a shape reaches; 0 but for the hull
        shape_axis_B          normals of the discs (contacts, 3); of the feet z
        contact_force_W       of the surface on each shape (contacts, 3) [N]; contact_depth_m: how deep it is (contacts,)
        contact_W             its deepest point (contacts, 3) [m], defined where contact_depth_m > 0
        contact_peak_n        largest force in the last call of `step` (contacts,) [N]

    Air near surfaces: for each rotor the free distance from its hub to the next solid, valid until it is written again.

        clearance_m           input (rotors, 3): down and up the rotor's axis, sideways to the nearest wall [m]; inf: none,
                              the beginning. The ground z = 0 counts only where the airframe says `ground_effect`.
        side_W                input (rotors, 3): unit vector towards that wall, less its part along the rotor's axis

    No contact adds energy: a surface that appears or turns around a shape leaves the energy of its spring as it was.
    """

    def __init__(self, airframe: Airframe, seed: int, p_W: Vector = (0.0, 0.0, 0.0), yaw_rad: float = 0.0) -> None:
        """Put the aircraft level at p_W with still rotors; it is raised to the height at which it stands if p_W is lower.

        seed: draws the differences between the thrusts of the rotors (their mean is exact).
        """
        self.airframe = airframe
        self.rotors = n = len(airframe.hubs)
        self.contacts = FEET + n + 1
        self.mass_kg = airframe.mass_kg
        ground = airframe.ground
        self.rest_height_m = ground.foot_height_m - airframe.mass_kg * GRAVITY_M_S2 / (FEET * ground.stiffness_n_m)
        self.battery = Battery(airframe.battery)
        self.steps = 0

        self._parameters = _parameters(airframe, np.random.default_rng(seed))
        self._state = state = _State()
        self.p_W = np.frombuffer(state.p_W)
        self.v_W = np.frombuffer(state.v_W)
        self.q_WB = np.frombuffer(state.q_WB)
        self.omega_B = np.frombuffer(state.omega_B)
        self.rotor_speed_rad_s = np.frombuffer(state.rotor_speed_rad_s)[:n]
        self.specific_force_B = np.frombuffer(state.specific_force_B)
        self.motor_thrust_n = np.frombuffer(state.motor_thrust_n)[:n]
        self.free_thrust_n = np.frombuffer(state.free_thrust_n)[:n]
        self.disturbance_W = np.frombuffer(state.disturbance_W)
        self.clearance_m = np.frombuffer(state.clearance_m).reshape(-1, 3)[:n]
        self.clearance_m[:] = np.inf
        self.side_W = np.frombuffer(state.side_W).reshape(-1, 3)[:n]
        self.surfaces_W = np.frombuffer(state.surface_W).reshape(-1, 4)[: self.contacts]
        feet_and_hubs = np.frombuffer(self._parameters.contact_B).reshape(-1, 3)[: FEET + n]
        self.shapes_B = np.vstack([feet_and_hubs, np.zeros((1, 3))])
        radii = (0.0, self._parameters.disc_radius_m, self._parameters.hull_disc_m)
        self.shape_radius_m = np.repeat(radii, (FEET, n, 1))
        self.shape_ball_m = np.repeat((0.0, 0.0, self._parameters.hull_ball_m), (FEET, n, 1))
        self.shape_axis_B = np.tile((0.0, 0.0, 1.0), (self.contacts, 1))
        self.shape_axis_B[FEET : FEET + n] = [hub.axis_B for hub in airframe.hubs]
        self.contact_W = np.frombuffer(state.contact_W).reshape(-1, 3)[: self.contacts]
        self.contact_force_W = np.frombuffer(state.contact_force_W).reshape(-1, 3)[: self.contacts]
        self.contact_depth_m = np.frombuffer(state.contact_depth_m)[: self.contacts]
        self.contact_peak_n = np.frombuffer(state.contact_peak_n)[: self.contacts]
        self._command = np.frombuffer(state.command)[:n]
        self._wind_W = np.frombuffer(state.wind_W)
        self._force_W = np.frombuffer(state.force_W)
        self._advance = _library().advance
        self._addresses = ctypes.addressof(self._parameters), ctypes.addressof(state)

        self.p_W[:] = p_W
        self.p_W[2] = max(self.p_W[2], self.rest_height_m)
        self.q_WB[:] = quat_from_rpy(0.0, 0.0, yaw_rad)
        self._power_up()
        self._advance(*self._addresses, 0)

    def step(
        self,
        motor_commands: Vector,
        steps: int,
        wind_W: Vector = (0.0, 0.0, 0.0),
        force_W: Vector = (0.0, 0.0, 0.0),
    ) -> None:
        """Advance by `steps` milliseconds; 0 only updates the measurements, after the state was set or the wind changed.

        motor_commands: for each rotor a number 0..1 (clipped) in PX4's order; wind_W: velocity of the air [m/s];
        force_W: extra force at the centre of mass [N].
        """
        self._command[:] = motor_commands
        self._wind_W[:] = wind_W
        self._force_W[:] = force_W
        self.contact_peak_n[:] = 0.0
        if steps <= 0:
            self._advance(*self._addresses, 0)
        while steps > 0:
            chunk = min(steps, BATTERY_STEPS - self.steps % BATTERY_STEPS)
            self._advance(*self._addresses, chunk)
            self.steps += chunk
            steps -= chunk
            if self.steps % BATTERY_STEPS == 0:
                self._power_up()

    def _power_up(self) -> None:
        duration_s = BATTERY_STEPS * STEP_S
        voltage_v = self.battery.step(self._state.rotor_energy_j / duration_s, duration_s)
        self._state.rotor_energy_j = 0.0
        ratio = voltage_v / self.airframe.battery.reference_voltage_v
        exponent = 1.0 if self.airframe.motor else self.airframe.rotor.speed_voltage_exponent
        # Beyond empty no speed controller holds the speed: it falls with the voltage, whatever the exponent is.
        self._state.speed_scale = ratio**exponent * self.battery.collapse ** (1.0 - exponent)

    @property
    def time_s(self) -> float:
        return self.steps * STEP_S

    @property
    def on_ground(self) -> bool:
        """Whether the ground, or a surface under the feet, carries some of the weight."""
        return bool(self._state.on_ground)

    @property
    def battery_voltage_v(self) -> float:
        return self.battery.voltage_v

    @property
    def battery_remaining(self) -> float:
        return self.battery.remaining


def _parameters(airframe: Airframe, rng: np.random.Generator) -> _Parameters:
    """The airframe in the form of physics.c."""
    rotor, ground, drag, motor = airframe.rotor, airframe.ground, airframe.drag, airframe.motor
    rise_s, fall_s = rotor.rise_time_s, rotor.fall_time_s
    if motor:
        rise_s = fall_s = rotor.inertia_kg_m2 * motor.idle_speed_rad_s / motor.starting_torque_n_m
    hubs, shares = [hub.p_m for hub in airframe.hubs], np.array(airframe.thrust_shares)
    spread = rng.standard_normal(len(hubs))
    factors = 1 + rotor.thrust_spread * (spread - spread.mean())
    c = _Parameters(
        rotors=len(hubs),
        gravity_m_s2=GRAVITY_M_S2,
        mass_kg=airframe.mass_kg,
        rotor_inertia_kg_m2=rotor.inertia_kg_m2,
        speed_max_rad_s=rotor.speed_max_rad_s,
        quadratic_fraction=rotor.quadratic_fraction,
        speed_full_rad_s=motor.idle_speed_rad_s if motor else rotor.speed_max_rad_s,
        rise_decay=math.exp(-STEP_S / rise_s),
        fall_decay=math.exp(-STEP_S / fall_s),
        in_plane_drag=rotor.in_plane_drag_n_s2_m_rad,
        axial_drag=rotor.axial_drag_n_s2_m_rad,
        power_max_w=rotor.power_max_w,
        contact_stiffness_n_m=ground.stiffness_n_m,
        contact_damping_n_s_m=ground.damping_n_s_m,
        friction=ground.friction,
        disc_radius_m=rotor.radius_m,
        hull_disc_m=airframe.hull_radius_m - airframe.hull_half_height_m,
        hull_ball_m=airframe.hull_half_height_m,
        delay_steps=round(airframe.command_delay_s / STEP_S),
    )
    c.ground_effect = bool(airframe.ground_effect)
    if linear := airframe.linear_drag:
        c.drag_model = _DragModel.LINEAR
        c.linear_drag[:] = linear.d_n_s_m
    elif rotors := airframe.rotor_drag:
        c.drag_model = _DragModel.EACH_ROTOR if rotors.each_rotor else _DragModel.TOTAL_THRUST
        c.rotor_drag_k, c.rotor_drag_b, c.rotor_drag_c_d = rotors.k, rotors.b, rotors.c_d
    stiffness_n_m, damping_n_s_m = _surface_springs(airframe)
    for name, value in (
        ("surface_stiffness_n_m", stiffness_n_m),
        ("surface_damping_n_s_m", damping_n_s_m),
        ("inertia_kg_m2", airframe.inertia_kg_m2),
        ("rotor_B", hubs),
        ("axis_B", [hub.axis_B for hub in airframe.hubs]),
        ("rotor_spin", [hub.spin.sign for hub in airframe.hubs]),
        ("thrust_coefficient_n_s2", rotor.thrust_max_n / rotor.speed_max_rad_s**2 * factors * shares),
        ("torque_per_thrust_m", rotor.torque_per_thrust_m / shares),  # downwash takes thrust and leaves the torque
        ("drag_linear", drag.linear_n_s_m),
        ("drag_quadratic", drag.quadratic_n_s2_m2),
        ("drag_angular", drag.angular_n_m_s),
        ("contact_B", [*airframe.feet_B, *hubs]),
    ):
        numbers = np.asarray(value, dtype=float).ravel()
        np.frombuffer(getattr(c, name))[: len(numbers)] = numbers
    return c


def _surface_springs(airframe: Airframe) -> tuple[Array, Array]:
    """Stiffness [N/m] and damping [N s/m] of each contact shape: as stiff as the step allows, so that a fast craft stops soon.

    The lightest way to push the craft is at the rim of a rotor, where it has the mass (1/m + r²/J)^-1. The hull has
    nearly no lever and carries the whole mass, with twice the rate: at 30 m/s the origin stays out of a solid though the
    hull is only a few centimetres high.
    """
    reach_m = airframe.arm_m + airframe.rotor.radius_m
    light_kg = 1 / (1 / airframe.mass_kg + reach_m**2 / min(airframe.inertia_kg_m2))
    pushed_kg = np.append(np.full(FEET + len(airframe.hubs), light_kg), airframe.mass_kg)
    rate_rad_s = np.full(len(pushed_kg), SURFACE_RATE_RAD_S)
    rate_rad_s[-1] = HULL_RATE_RAD_S
    return pushed_kg * rate_rad_s**2, 2 * SURFACE_DAMPING_RATIO * pushed_kg * rate_rad_s
