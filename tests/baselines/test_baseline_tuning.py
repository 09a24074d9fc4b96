"""Each baseline has the tuning that its authors would make on the aircraft flown, by one rule, in every scenario."""

import math
from pathlib import Path

import numpy as np
import pytest

from companion.core.frames import GRAVITY_M_S2, quat_from_rpy, rotation_matrix
from sitl.airframe import Airframe, load_airframe, with_thrust
from sitl.autopilot.attitude import ATTITUDE, AttitudeControl
from sitl.autopilot.parameters import Parameters
from sitl.autopilot.step_response import hover_command
from sitl.baselines.identification import (
    LOOP_STEP_S,
    PLANT_STEPS,
    SAMPLE_STEPS,
    ManualFlight,
    fly_by_hand,
    identify,
)
from sitl.baselines.paper_tables import PAPER_VEHICLES, TILT_STATE_MAX_RAD, PaperVehicle
from sitl.baselines.tuning import main, paper_tuning
from sitl.plant import Plant
from sitl.scenario import LoadedScenario, SensorKind, load_scenario
from sitl.unkind import flown_parameters, with_sensors

ROOT = Path(__file__).parents[2]
# the authors of the other stacks published numbers of two aircraft; these are others
OTHER_AIRCRAFT = {"identification_own", "two_piers"}
SCENARIOS = sorted({path.stem for path in (ROOT / "config/scenarios").glob("*.toml")} - OTHER_AIRCRAFT)
DRAWN = (
    "bridge_field",
    "bridge_hover",
    "figure8_wind_12",
    "run_10",
)  # every vehicle and airframe of the scenarios' worlds
SEEDS = (101, 102)
FLOWN = [*((name, SensorKind.KIND, 101) for name in SCENARIOS)] + [
    (name, SensorKind.UNKIND, seed) for name in DRAWN for seed in SEEDS
]
SETTLED_S = 4.0


@pytest.fixture(params=FLOWN, ids=lambda p: f"{p[0]}-{p[1]}-{p[2]}", scope="module")
def loaded(request) -> LoadedScenario:
    name, sensors, seed = request.param
    return with_sensors(load_scenario(ROOT / f"config/scenarios/{name}.toml"), sensors, seed)


@pytest.fixture(scope="module")
def tuned(loaded) -> PaperVehicle:
    return paper_tuning(loaded)


@pytest.fixture(scope="module")
def hover(loaded) -> float:
    return hovering_thrust(*aircraft(loaded))


def aircraft(loaded: LoadedScenario) -> tuple[Airframe, Parameters]:
    scenario = loaded.scenario
    return with_thrust(load_airframe(scenario.airframe), scenario.thrust_scale), flown_parameters(scenario)


def hovering_thrust(airframe: Airframe, parameters: Parameters) -> float:
    """The command that carries the aircraft with its charged battery, found by flying."""
    plant, control = Plant(airframe, 0, (0.0, 0.0, 100.0)), AttitudeControl(parameters, LOOP_STEP_S, airframe)
    control.loop.level, climbed_m, commands = ATTITUDE, 0.0, []
    for _ in range(round(2 * SETTLED_S / LOOP_STEP_S)):
        climbed_m += plant.v_W[2] * LOOP_STEP_S
        control.loop.thrust = hover_command(airframe) - 0.1 * plant.v_W[2] - 0.1 * climbed_m
        commands.append(control.loop.thrust)
        advance(plant, control)
    assert abs(plant.v_W[2]) < 0.05
    return float(np.mean(commands[-len(commands) // 4 :]))


def advance(plant: Plant, control: AttitudeControl, wind_W=(0.0, 0.0, 0.0), force_n=(0.0, 0.0, 0.0)) -> None:
    control.loop.gyro[:], control.loop.q[:] = plant.omega_B.tolist(), plant.q_WB.tolist()
    control.step()
    plant.step(control.motors, PLANT_STEPS, wind_W, force_n)


def test_hover_lies_inside_the_thrust_bounds_with_reserve(tuned, hover):
    low, high = tuned.thrust_bounds
    assert low < 0.93 * hover and 1.07 * hover < high
    assert GRAVITY_M_S2 / tuned.model.thrust_coefficient_m_s2 == pytest.approx(hover, rel=0.05)  # the battery sags


def test_the_tilt_bound_carries_the_aircraft_into_the_mean_wind(loaded, tuned, hover):
    airframe, parameters = aircraft(loaded)
    wind = loaded.scenario.wind
    winds = [np.array(wind.mean_m_s), *(np.add(wind.mean_m_s, step.wind_m_s) for step in wind.steps)]
    strongest = max(winds, key=lambda w: float(np.hypot(w[0], w[1])))
    forces = [np.array(step.acceleration_m_s2) for step in wind.force_steps]
    push = max(forces, key=lambda a: float(np.hypot(a[0], a[1])), default=np.zeros(3)) * (1.0, 1.0, 0.0)
    plant, control = Plant(airframe, 0, (0.0, 0.0, 100.0)), AttitudeControl(parameters, LOOP_STEP_S, airframe)
    against = -(strongest + push)
    yaw, tilt = math.atan2(against[1], against[0]), tuned.tilt_command_max_rad
    loop = control.loop
    loop.level, loop.q_sp[:] = ATTITUDE, quat_from_rpy(0.0, tilt, yaw).tolist()
    plant.q_WB[:] = quat_from_rpy(0.0, 0.0, yaw)
    ahead = np.array([math.cos(yaw), math.sin(yaw), 0.0])
    for step in range(round(SETTLED_S / LOOP_STEP_S)):
        loop.thrust = hover / rotation_matrix(plant.q_WB)[2, 2] - 0.1 * plant.v_W[2]
        if step == round(1.0 / LOOP_STEP_S):
            plant.v_W[:] = 0.0
        advance(plant, control, tuple(strongest), tuple(push * airframe.mass_kg))
    assert plant.v_W @ ahead > 0.2


def test_the_published_limit_of_the_tilt_states_is_kept_and_no_bound_is_narrowed(loaded, tuned):
    published = PAPER_VEHICLES[loaded.vehicle.name]
    assert published.tilt_command_max_rad <= tuned.tilt_command_max_rad <= TILT_STATE_MAX_RAD
    low, high = (
        b * tuned.model.thrust_coefficient_m_s2 / published.model.thrust_coefficient_m_s2 for b in tuned.thrust_bounds
    )
    assert low <= published.thrust_bounds[0] + 1e-9 and high >= published.thrust_bounds[1] - 1e-9


def test_nothing_but_model_bounds_and_position_source_is_tuned(loaded, tuned):
    published = PAPER_VEHICLES[loaded.vehicle.name]
    changed = {name for name in published._fields if getattr(tuned, name) != getattr(published, name)}
    assert changed <= {"model", "thrust_bounds", "tilt_command_max_rad", "position_walks"}


def test_the_position_walks_where_satellites_are_the_source(loaded, tuned):
    walks = loaded.scenario.sensors.gnss.walk_variance_m2 > 0.0
    # Motion capture, but a vehicle file for satellites: its crew does not say so.
    assert tuned.position_walks == (walks or loaded.scenario.name == "calibration")


def test_the_autopilot_knows_the_hover_thrust_within_what_a_crew_sees(loaded, hover):
    _, parameters = aircraft(loaded)
    assert parameters["MPC_THR_MIN"] < 0.8 * hover and 1.5 * hover < parameters["MPC_THR_MAX"]
    assert parameters["MPC_THR_HOVER"] == pytest.approx(hover, abs=0.1)
    assert parameters["MPC_USE_HTE"] == 1


def test_the_identification_finds_the_model_of_an_exact_flight():
    dt, n, rng = SAMPLE_STEPS * LOOP_STEP_S, 3000, np.random.default_rng(3)
    tau, gain, drag, drag_z, k_T = (0.2, 0.3), (0.95, 1.05), 0.3, 0.1, 30.0
    commands = np.repeat(rng.uniform(-0.2, 0.2, (n // 50, 3)), 50, axis=0)
    commands[:, 0] = GRAVITY_M_S2 / k_T * (1.0 + 0.3 * commands[:, 0])
    angles, v, lift = np.zeros((n, 2)), np.zeros((n, 3)), np.zeros((n, 3))
    for k in range(n):
        lift[k] = rotation_matrix(quat_from_rpy(angles[k, 0], angles[k, 1], 0.4))[:, 2]
        if k + 1 < n:
            force = k_T * commands[k, 0] * lift[k] - (0.0, 0.0, GRAVITY_M_S2) - np.multiply((drag, drag, drag_z), v[k])
            v[k + 1] = v[k] + dt * force
            for i in (0, 1):
                a = math.exp(-dt / tau[i])
                angles[k + 1, i] = a * angles[k, i] + (1.0 - a) * gain[i] * commands[k, 1 + i]
    found = identify(ManualFlight(commands, angles, v, lift))
    assert found[:4] == pytest.approx((tau[0], gain[0], tau[1], gain[1]), rel=1e-3)
    assert found.drag_1_s == pytest.approx((drag, drag, drag_z), rel=1e-3)
    assert found.thrust_coefficient_m_s2 == pytest.approx(k_T, rel=1e-4)


def test_less_thrust_and_slower_gains_are_identified():
    airframe, parameters = aircraft(load_scenario(ROOT / "config/scenarios/bridge_hover.toml"))
    whole = identify(fly_by_hand(airframe, parameters, 0.0))
    parameters.set("MC_ROLL_P", 0.6 * parameters["MC_ROLL_P"])
    weak = identify(fly_by_hand(with_thrust(airframe, 0.8), parameters, 0.0))
    assert weak.thrust_coefficient_m_s2 / whole.thrust_coefficient_m_s2 == pytest.approx(0.8, abs=0.02)
    assert weak.roll_time_constant_s > 1.3 * whole.roll_time_constant_s
    assert weak.pitch_time_constant_s < 1.2 * whole.pitch_time_constant_s


def test_the_command_prints_the_tuned_numbers(monkeypatch, capsys):
    path = ROOT / "config/scenarios/bridge_field.toml"
    monkeypatch.setattr("sys.argv", ["tuning", str(path), "--sensors", "kind"])
    assert main() == 0
    tuned = paper_tuning(load_scenario(path))
    assert f"tilt {tuned.tilt_command_max_rad:.3f} rad" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["tuning", str(path.with_name("none.toml"))])
    assert main() == 2
    assert "none.toml" in capsys.readouterr().err
