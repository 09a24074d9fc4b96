"""The published numbers of the prior stack: one row per aircraft, and the numbers of all aircraft.

Kalaitzakis & Vitzilaios, Robotics 2023, 12(5), 123, sections 2.2, 2.3 and 3, and the parameter files published with it.
Units stand in the names; roll, pitch and yaw as in `companion.core.frames` (the published frames are the same, ENU
and FLU). A row is one published file, not a mixture. The yaw PID of these files has no limit of its rate. A flight uses a row
as `sitl.baselines.tuning` adapts it to the aircraft.
"""

from typing import NamedTuple

from companion.core.config import ConfigError

Vec3 = tuple[float, float, float]


class PaperModel(NamedTuple):
    """What is identified of one aircraft."""

    roll_time_constant_s: float
    roll_gain: float
    pitch_time_constant_s: float
    pitch_gain: float
    drag_1_s: Vec3
    thrust_coefficient_m_s2: float

    @property
    def parameters(self) -> tuple[float, ...]:
        """In the order of `acados_gen.flight_model.PARAMETERS`; no battery in it, as published."""
        return (self.thrust_coefficient_m_s2, *self.drag_1_s, *self[:4])


class PaperVehicle(NamedTuple):
    """Model, weights and bounds of one aircraft."""

    control_rate_hz: float  # 20 on the Aurelia's NUC, 10 on the F550's Raspberry Pi 4B (section 3)
    model: PaperModel
    position_weights: Vec3
    velocity_weights: Vec3
    attitude_weights: Vec3  # roll, pitch, yaw
    thrust_weight: float
    roll_pitch_weights: tuple[float, float]
    thrust_bounds: tuple[float, float]
    tilt_command_max_rad: float
    yaw_gains: Vec3  # P, I, D
    position_walks: bool = True  # the position measurement contains a random walk (section 2.2)


TILT_STATE_MAX_RAD = 0.628
TERMINAL_FACTOR = 600.0
FALLBACK_KP, FALLBACK_KV = (0.95, 0.95, 0.6), (0.65, 0.65, 0.45)

PAPER_VEHICLES = {
    # The file that came with the trajectories of section 3.1. An earlier one has thrust 0.31 to 0.38 and ±0.1 rad, with which
    # the model cannot hold the 1.5 m/s² of section 3.1.2.
    "F550": PaperVehicle(
        control_rate_hz=10.0,
        model=PaperModel(0.13875, 0.97767, 0.13951, 0.96001, (0.12604, 0.12604, 0.0), 29.13360),
        position_weights=(25.0, 25.0, 21.0),
        velocity_weights=(11.0, 11.0, 11.0),
        attitude_weights=(1.0, 1.0, 1e-6),
        thrust_weight=900.0,
        roll_pitch_weights=(150.0, 150.0),
        thrust_bounds=(0.15, 0.65),
        tilt_command_max_rad=0.25,
        yaw_gains=(0.5, 0.0, 0.4),
    ),
    "Aurelia X6": PaperVehicle(
        control_rate_hz=20.0,
        model=PaperModel(0.23424, 0.96455, 0.25646, 0.96379, (0.10628, 0.10628, 0.0), 32.562),
        position_weights=(21.0, 21.0, 17.0),
        velocity_weights=(15.0, 15.0, 13.0),
        attitude_weights=(1.0, 1.0, 1e-6),
        thrust_weight=750.0,
        roll_pitch_weights=(250.0, 250.0),
        thrust_bounds=(0.27, 0.33),
        tilt_command_max_rad=0.1,
        yaw_gains=(0.3, 0.0, 0.4),
    ),
}


def paper_vehicle(name: str) -> PaperVehicle:
    """The row of an aircraft by its vehicle file's name; raises `ConfigError` for one without published parameters."""
    if name not in PAPER_VEHICLES:
        raise ConfigError(f"--stack paper: no published parameters for '{name}' (only {', '.join(PAPER_VEHICLES)})")
    return PAPER_VEHICLES[name]
