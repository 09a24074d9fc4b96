"""A motor stops in the hold: an X8 lands upright, a quad cannot be held and PX4 must stop its motors."""

from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pytest

from companion.core.enums import FcuMode, Phase
from companion.core.frames import rotation_matrix
from sitl.kernels import build_missing
from sitl.lockstep import Lockstep
from sitl.scenario import Fault, FaultKind, load_scenario

CONFIG = Path(__file__).parents[2] / "config"
IN_HOLD_S = 2.0
OBSERVED_S = 15.0

pytestmark = pytest.mark.verify


class Ending(NamedTuple):
    """What was seen after the motor stopped, times since then [s]."""

    tilt_max_rad: float
    speed_at_ground_m_s: float
    hold_left_s: float | None
    motors_off_s: float | None
    modes: list[FcuMode]
    phase: Phase


def fly(name: str, motor: int, parameters: dict[str, int] | None = None) -> Ending:
    """Hold in front of the pier, then stop a motor."""
    loaded = load_scenario(
        CONFIG / "scenarios/safety/hold.toml",
        CONFIG / f"vehicles/{name}.toml",
        "corners",
        CONFIG / f"airframes/{name}.toml",
    )
    build_missing(loaded.vehicle_path, print)
    scenario = msgspec.structs.replace(
        loaded.scenario, fcu_parameters=loaded.scenario.fcu_parameters | (parameters or {})
    )
    run = Lockstep(msgspec.structs.replace(loaded, scenario=scenario), 1)
    run.start()
    run.run_until(lambda: run.pilot is not None and run.pilot.phase == Phase.HOLD)
    began_s = run.now_s + IN_HOLD_S
    run.faults.add(Fault(at_s=began_s, kind=FaultKind.MOTOR_STOPS, value=[float(motor)]))
    world, modes = run.world, []
    found = {"tilt": 0.0, "ground": 0.0, "off": None, "left": None}

    def ended() -> bool:
        since_s = run.now_s - began_s
        if since_s < 0.0:
            return False
        tilt = float(np.arccos(np.clip(rotation_matrix(world.plant.q_WB)[2, 2], -1.0, 1.0)))
        found["tilt"] = max(found["tilt"], tilt)
        if world.plant.on_ground and not found["ground"]:
            found["ground"] = float(np.linalg.norm(world.plant.v_W))
        if world.autopilot.mode not in modes:
            modes.append(world.autopilot.mode)
        if not world.autopilot.attitude.motors.any() and found["off"] is None:
            found["off"] = since_s
        if run.pilot.phase != Phase.HOLD and found["left"] is None:
            found["left"] = since_s
        return since_s > OBSERVED_S or (found["off"] is not None and world.plant.on_ground)

    run.run_until(ended)
    return Ending(found["tilt"], found["ground"], found["left"], found["off"], modes, run.pilot.phase)


def test_an_x8_without_an_upper_motor_stays_upright_and_lands():
    ending = fly("x8", 0)
    assert ending.tilt_max_rad < 0.6
    assert ending.modes[-1] == FcuMode.AUTO_LAND and ending.motors_off_s is not None
    assert ending.speed_at_ground_m_s < 1.5


def test_an_x8_without_a_lower_motor_holds_on_or_lands():
    """Its attitude is off by the limit of `tilt_error`, within 1 %: by which side decides the smallest change."""
    ending = fly("x8", 5)
    assert ending.tilt_max_rad < 0.4 and ending.phase in (Phase.HOLD, Phase.LAND, Phase.DONE)
    assert ending.speed_at_ground_m_s < 1.5


def test_a_quad_without_one_motor_falls_and_px4s_flight_termination_stops_its_motors():
    ending = fly("f450", 0, {"CBRK_FLIGHTTERM": 0})
    assert ending.tilt_max_rad > 1.5
    assert ending.phase == Phase.PX4_HOLD and ending.hold_left_s < 1.0  # setpoints stopped
    assert ending.motors_off_s is not None and ending.motors_off_s < 1.5
