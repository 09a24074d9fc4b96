"""Prediction of the state to the time at which the command of this cycle acts.

A setpoint acts `latency.actuation_s` after it was sent. The state message describes a moment in the past. The model
runs from there, with the setpoints that were really sent, to now + actuation latency.
"""

import math
from collections import deque
from pathlib import Path
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array, Vector
from companion.core.control_artifacts import PREDICT, require_prediction
from companion.core.kernel import Kernel
from companion.core.messages import SentSetpoint

STEP_MAX_S = 0.025  # of the Runge-Kutta integration
KEPT_S = 1.0  # length of the setpoint history; a fresh state never needs older ones

Command = tuple[float, float, float, float]  # thrust, roll [rad], pitch [rad], yaw rate [rad/s]


class _ActingSetpoint(NamedTuple):
    from_s: float
    command: Command


class Predictor:
    """Keeps the history of sent setpoints and runs the flight model through it.

    history: the recorded setpoints, oldest first; at most `KEPT_S` long.
    """

    def __init__(self, actuation_s: float, library: Path | None = None) -> None:
        """Raises `companion.core.kernel.ArtifactMissing` with one line."""
        self.actuation_s = actuation_s
        self._kernel = Kernel(library or require_prediction(), PREDICT)
        self.history: deque[_ActingSetpoint] = deque()

    def sent(self, setpoint: SentSetpoint) -> None:
        """Record a sent setpoint; it is dropped when it is not younger than the last one, or not finite."""
        from_s = setpoint.stamp_s + self.actuation_s
        if self.history and from_s <= self.history[-1].from_s:
            return
        command = (setpoint.thrust, setpoint.roll_rad, setpoint.pitch_rad, setpoint.yaw_rate_rad_s)
        if not all(map(math.isfinite, command)):
            return
        self.history.append(_ActingSetpoint(from_s, command))
        while self.history[0].from_s < from_s - KEPT_S:
            self.history.popleft()

    def forget(self) -> None:
        """Clear the history: the setpoints sent so far do not act (another flight mode is active)."""
        self.history.clear()

    def predict(
        self,
        state: Vector,
        disturbance_W: Array,
        parameters: Array,
        from_s: float,
        to_s: float,
        offset: Vector = (0.0, 0.0, 0.0),
    ) -> Array:
        """x = (p_W, v_W, roll, pitch, yaw) at to_s, shape (9,), from x at from_s.

        Before the first known setpoint acts, velocity and attitude count as constant. parameters: (10,)
        `flight_model.PARAMETERS`; disturbance_W: (3,) [m/s²]; offset: part of the sent thrust, roll and pitch that
        the aircraft does not follow, (3,).
        """
        x = np.array(state, dtype=float)
        time_s = from_s
        current = None
        for acting in self.history:
            if acting.from_s >= to_s:
                break
            if acting.from_s > time_s:
                x = self._run(x, current, disturbance_W, parameters, acting.from_s - time_s, offset)
                time_s = acting.from_s
            current = acting.command
        return self._run(x, current, disturbance_W, parameters, max(to_s - time_s, 0.0), offset)

    def _run(
        self,
        x: Array,
        command: Command | None,
        disturbance_W: Array,
        parameters: Array,
        duration_s: float,
        offset: Vector,
    ) -> Array:
        if command is None:
            x[0:3] += duration_s * x[3:6]
            return x
        steps = int(np.ceil(duration_s / STEP_MAX_S - 1e-9))
        if steps < 1:
            return x
        state, u, d, p, h = self._kernel.inputs
        state[:], u[:], d[:], p[:], h[:] = x, command, disturbance_W, parameters, duration_s / steps
        u[:3] -= offset
        (after,) = self._kernel.outputs
        for _ in range(steps):
            self._kernel()
            state[:] = after
        return after.copy()
