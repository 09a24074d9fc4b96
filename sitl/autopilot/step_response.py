"""Step response of the attitude loop on a simulated aircraft, for gains that a crew has tuned badly."""

import math

from companion.core.frames import GRAVITY_M_S2, quat_from_rpy
from sitl.airframe import Airframe
from sitl.autopilot.attitude import ATTITUDE, AttitudeControl
from sitl.autopilot.parameters import Parameters
from sitl.plant import Plant

LOOP_STEP_S, PLANT_STEPS = 0.004, 4
HEIGHT_M = 200.0
SETTLE_S, RESPONSE_S = 0.4, 0.9
STEP_RAD = 0.2  # far from every limit of rates and motors


def hover_command(airframe: Airframe) -> float:
    """Command of every motor that carries the aircraft at the battery's reference voltage."""
    rotor = airframe.rotor
    share, f = airframe.mass_kg * GRAVITY_M_S2 / airframe.thrust_max_n, rotor.quadratic_fraction
    return (math.sqrt((1 - f) ** 2 + 4 * f * share) - (1 - f)) / (2 * f) if f > 0 else share


def overshoot(airframe: Airframe, parameters: Parameters) -> float:
    """The larger one of roll and pitch in hover, still air, with perfect sensors; as a share of the step."""
    return max(_overshoot(airframe, parameters, axis) for axis in (0, 1))


def _overshoot(airframe: Airframe, parameters: Parameters, axis: int) -> float:
    plant, control = Plant(airframe, 0, (0.0, 0.0, HEIGHT_M)), AttitudeControl(parameters, LOOP_STEP_S, airframe)
    loop = control.loop
    loop.level = ATTITUDE
    loop.thrust = hover_command(airframe)
    largest = 0.0
    for step in range(round((SETTLE_S + RESPONSE_S) / LOOP_STEP_S)):
        if step == round(SETTLE_S / LOOP_STEP_S):
            rpy = [0.0, 0.0, 0.0]
            rpy[axis] = STEP_RAD
            loop.q_sp[:] = quat_from_rpy(*rpy).tolist()
        loop.gyro[:] = plant.omega_B.tolist()
        loop.q[:] = plant.q_WB.tolist()
        control.step()
        plant.step(control.motors, PLANT_STEPS)
        w, x, y, z = plant.q_WB.tolist()
        angle = (
            math.atan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y)) if axis == 0 else math.asin(2 * (w * y - x * z))
        )
        largest = max(largest, angle / STEP_RAD)
    return max(largest - 1.0, 0.0)
