"""The tuning that the authors of a baseline would make on the aircraft that is flown: the one rule, for every scenario.

``python -m sitl.baselines.tuning SCENARIO --sensors kind --seed 101`` prints what the rule gives.

`paper`. Its published numbers belong to two aircraft on the days on which they were flown. On another aircraft, and for
another task, its authors do again what they describe:

1. **Model.** They identify it from one manual flight (`sitl.baselines.identification`). So thrust coefficient, response of
   roll and pitch, and drag are those of the simulated aircraft with its thrust, gains, delay and charged battery, in the
   kind and in the unkind world. This stack flies with the numbers of its vehicle file.
2. **Thrust bounds** lie around the hover command g / k_T: 0.9 to 1.1 of it in the first files of both aircraft, exactly
   0.8 to 1.2 in one of another hexarotor of the group. The shares of the published row are kept.
3. **Bounds that the task needs.** With the first ±0.1 rad the F550 cannot hold 1.5 m/s², the largest force of the paper; the
   file that came with the trajectories has ±0.25 rad. Where the strongest wind and the reference need more tilt than the
   published bound gives with the same reserve, the bound is wider, up to that of the roll and pitch states. A thrust that
   they need lies inside of the bounds with the reserve that the first files have around hover.
4. **Position source.** Under motion capture the authors take the random walk out of the position measurement (their branch
   for motion capture). Here: for every source whose random walk in the vehicle file is below `WALK_MAX_M_SQRT_S`.

Weights, noise values, rates and gains stay as published.

`px4`. Its authors ask a crew for MPC_THR_HOVER and for gains of the attitude loop, which the airframe's parameters have,
and for the noise of the position source, which the scenario's `fcu_parameters` have. PX4 estimates the hover thrust in
flight (MPC_USE_HTE), so a drawn thrust needs no other number. Nothing changes for it.
"""

import argparse
import math
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from companion.control.trajectories import Placed, duration_s, sample
from companion.core.arrays import Array
from companion.core.errors import UserError
from companion.core.frames import GRAVITY_M_S2, quat_from_rpy, rotation_matrix
from companion.core.messages import WORLD
from companion.mission.curves import CHECKED_EVERY_S, to_trajectory
from sitl.airframe import Airframe, load_airframe, with_thrust
from sitl.autopilot.step_response import hover_command
from sitl.baselines.identification import identify_aircraft
from sitl.baselines.paper_tables import PAPER_VEHICLES, TILT_STATE_MAX_RAD, PaperVehicle, paper_vehicle
from sitl.dryden import low_altitude
from sitl.plant import Plant
from sitl.scenario import LoadedScenario, SensorKind, load_scenario
from sitl.unkind import flown_parameters, with_sensors
from sitl.wind import WindConfig

# The F550's tilt bound over the tilt that holds the largest force of the paper (section 3.1.2).
TILT_RESERVE = PAPER_VEHICLES["F550"].tilt_command_max_rad / math.atan(1.5 / GRAVITY_M_S2)
THRUST_RESERVE = (0.9, 1.1)  # lowest and highest thrust over that of hover, of the first files of both aircraft
THRUST_MIN = 0.1  # the published node sends no less
WALK_MAX_M_SQRT_S = 0.01  # in 100 s as far as 0.1 m, the published standard deviation of a position
GUST_SIGMAS = 3.0  # of the strongest gust of a flight; bridge_field: 1.5 m/s², as much as the paper's largest force
SPIN_UP_MS = 300  # until the rotors turn at the speed of hover


class Need(NamedTuple):
    """What the strongest wind and the reference ask of an aircraft."""

    tilt_rad: float
    lift_m_s2: tuple[float, float]  # least and largest thrust over mass


def paper_tuning(loaded: LoadedScenario) -> PaperVehicle:
    """The paper's numbers, adapted to the aircraft of a scenario; raises `ConfigError` for one without published numbers."""
    scenario, published = loaded.scenario, paper_vehicle(loaded.vehicle.name)
    airframe = with_thrust(load_airframe(scenario.airframe, scenario.airframe_changes), scenario.thrust_scale)
    model = identify_aircraft(airframe, flown_parameters(scenario), scenario.command_delay_s)
    k_T, need = model.thrust_coefficient_m_s2, need_of(loaded, airframe)
    low, high = (bound * published.model.thrust_coefficient_m_s2 / k_T for bound in published.thrust_bounds)
    least, most = (reserve * lift / k_T for reserve, lift in zip(THRUST_RESERVE, need.lift_m_s2, strict=True))
    return published._replace(
        model=model,
        thrust_bounds=(max(min(low, least), THRUST_MIN), min(max(high, most), 1.0)),
        tilt_command_max_rad=min(max(published.tilt_command_max_rad, TILT_RESERVE * need.tilt_rad), TILT_STATE_MAX_RAD),
        position_walks=loaded.vehicle.estimator.process.gnss_bias_m_sqrt_s > WALK_MAX_M_SQRT_S,
    )


def need_of(loaded: LoadedScenario, airframe: Airframe) -> Need:
    """Tilt and thrust of the scenario's holds and trajectory in each of its winds and lasting forces.

    Jets are not in it: those of the scenarios are the paper's own, of about its largest force. Drag is that of level air on the aircraft with its rotors at hover speed.
    """
    v_W, a_W = _motion(loaded)
    needs: list[Array] = []
    for wind_W, force_W in _airs(loaded.scenario.wind):
        air_W = wind_W - v_W
        air_W[:, 2] = 0.0
        speeds = np.linalg.norm(air_W, axis=1)
        steps = np.linspace(0.0, float(speeds.max()), 20)
        pushes = np.interp(speeds, steps, [_push_m_s2(airframe, speed) for speed in steps])
        along = air_W / np.maximum(speeds, 1e-9)[:, None]
        needs.append(a_W - pushes[:, None] * along - force_W + (0.0, 0.0, GRAVITY_M_S2))
    lift_W = np.concatenate(needs)
    sizes = np.linalg.norm(lift_W, axis=1)
    tilt = np.arctan2(np.hypot(lift_W[:, 0], lift_W[:, 1]), lift_W[:, 2])
    return Need(float(tilt.max()), (float(sizes.min()), float(sizes.max())))


def _motion(loaded: LoadedScenario) -> tuple[Array, Array]:
    """Velocities and accelerations of the reference, W, (n, 3); the first row is a hold."""
    still = np.zeros((1, 3))
    curve = loaded.plan.trajectory
    if curve is None:
        return still, still
    trajectory = to_trajectory(curve, (0.0, 0.0, 0.0))
    times_s = np.arange(0.0, duration_s(trajectory) + CHECKED_EVERY_S, CHECKED_EVERY_S)
    samples = sample(trajectory, 0.0, times_s)
    if curve.frame != WORLD:
        placed = next(p for p in loaded.scenario.scene.bundles if p.name == curve.frame)
        R_WM = rotation_matrix(quat_from_rpy(*placed.rpy_rad))
        samples = sample(Placed(trajectory, R_WM, np.zeros(3), 0.0), 0.0, times_s)
    return np.concatenate([still, samples.v_W]), np.concatenate([still, samples.a_W])


def _airs(wind: WindConfig) -> list[tuple[Array, Array]]:
    """Every pair of wind with its strongest gust [m/s] and lasting force over mass [m/s²], W."""
    mean, none = np.array(wind.mean_m_s), np.zeros(3)
    airs = [(_strongest(wind, mean), none)]
    airs += [(_strongest(wind, mean + np.array(step.wind_m_s)), none) for step in wind.steps]
    airs += [(_strongest(wind, mean), np.array(step.acceleration_m_s2)) for step in wind.force_steps]
    return airs


def _strongest(wind: WindConfig, mean_m_s: Array) -> Array:
    """A mean wind with a gust of `GUST_SIGMAS` along it."""
    speed = float(np.linalg.norm(mean_m_s))
    if speed == 0.0:
        return mean_m_s
    along = mean_m_s / speed
    std = float(np.linalg.norm(along * wind.gust_std_m_s))
    if wind.dryden is not None:
        std = math.hypot(std, low_altitude(wind.dryden).std_m_s[0])
    gusty: Array = mean_m_s + GUST_SIGMAS * std * along
    return gusty


def _push_m_s2(airframe: Airframe, speed_m_s: float) -> float:
    """Force over mass of a level wind on the aircraft in hover."""
    plant = Plant(airframe, 0, (0.0, 0.0, 100.0))
    motors = np.full(plant.rotors, hover_command(airframe))
    plant.step(motors, SPIN_UP_MS)
    plant.v_W[:] = 0.0
    plant.step(motors, 0, (speed_m_s, 0.0, 0.0))
    return float(np.hypot(plant.disturbance_W[0], plant.disturbance_W[1]))


def main() -> int:
    """Print the tuned numbers; exit status 2 with one line for a scenario that cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m sitl.baselines.tuning", description=__doc__.partition("\n")[0])
    parser.add_argument("scenario", type=Path)
    parser.add_argument("--sensors", type=SensorKind, choices=list(SensorKind), default=SensorKind.UNKIND)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    try:
        loaded = with_sensors(load_scenario(given.scenario), given.sensors, given.seed)
        paper = paper_tuning(loaded)
    except UserError as refused:
        print(f"tuning: {refused}", file=sys.stderr)
        return 2
    model, (low, high) = paper.model, paper.thrust_bounds
    print(f"{loaded.scenario.name}, {given.sensors} sensors, seed {given.seed}: {loaded.vehicle.name}")
    print(f"thrust coefficient {model.thrust_coefficient_m_s2:.2f} m/s², drag {model.drag_1_s[0]:.3f} 1/s")
    print(
        f"roll {model.roll_time_constant_s:.3f} s, {model.roll_gain:.3f}; pitch {model.pitch_time_constant_s:.3f} s, {model.pitch_gain:.3f}"
    )
    print(
        f"hover {GRAVITY_M_S2 / model.thrust_coefficient_m_s2:.3f}, thrust {low:.3f} to {high:.3f}, tilt {paper.tilt_command_max_rad:.3f} rad"
    )
    print(f"position source: {'with' if paper.position_walks else 'without'} random walk")
    return 0


if __name__ == "__main__":
    sys.exit(main())
