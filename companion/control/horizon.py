"""The horizon: references and parameters of all shooting nodes, from the sampled trajectory.

The cost compares the inputs with those that hold the aircraft on the reference. They come from the force-to-attitude
inversion of the reference acceleration, the drag at the reference velocity and the estimated disturbance,

    f_k = a_r + drag(v_r) - d̂ + (0, 0, g),   tilt and thrust of f_k in the predicted heading.

At rest on the reference the cost is therefore zero in any wind, and the weights do not trade position for effort. The
NMPC does not choose the heading: the yaw controller's law predicts it, and each node gets it as a parameter.
"""

import math

import numpy as np

from companion.control.attitude_inversion import tilt_and_thrust, with_rotor_drag
from companion.control.trajectories import Samples
from companion.core.arrays import Array
from companion.core.frames import GRAVITY_M_S2, wrap_angle
from companion.core.trajectory_messages import Vec3
from companion.core.vehicle import MODEL_PARAMETERS, Vehicle

GRAVITY_W = np.array([0.0, 0.0, GRAVITY_M_S2])
HELD_PART = 0.9  # of the largest tilt, against a disturbance: the rest brings the aircraft back in the plan
STATUS_POINTS = 16  # of a predicted path in a message, at most


class Horizon:
    """Owns and refills the two arrays for `companion.control.solver.Nmpc.solve`."""

    def __init__(self, vehicle: Vehicle, times_s: Array) -> None:
        """times_s: (N + 1,) times of the nodes after the first one [s]."""
        controller = vehicle.controller
        n = len(times_s)
        self.references = np.zeros((n, 12))  # p, v, roll, pitch, yaw, thrust, roll command, pitch command
        self.parameters = np.zeros((n, MODEL_PARAMETERS + 4))  # flight_model.PARAMETERS, disturbance_W, yaw rate
        self._step_s = times_s[1] - times_s[0]
        self._decay = controller.yaw.kp * np.exp(-controller.yaw.kp * times_s)
        self._rate_max = controller.yaw.rate_max_rad_s
        self._tilt_max = controller.tilt_max_rad
        self._thrust_min, self._thrust_max = controller.thrust_min, controller.thrust_max

    def fill(self, samples: Samples, yaw: float, disturbance_W: Array, parameters: Array) -> None:
        """Compute both arrays for one cycle.

        samples: at the nodes; yaw: heading at the first node [rad]; disturbance_W: (3,) [m/s²]; parameters: (10,)
        `flight_model.PARAMETERS`.
        """
        error = wrap_angle(samples.yaw[0] - yaw)
        rates = samples.yaw_rate + error * self._decay
        _clip(rates, -self._rate_max, self._rate_max, rates)
        headings = np.empty_like(rates)
        headings[0] = yaw
        np.cumsum(rates[:-1], out=headings[1:])
        headings[1:] *= self._step_s
        headings[1:] += yaw

        force = samples.a_W + samples.v_W * parameters[1:4] + (GRAVITY_W - disturbance_W)
        force = with_rotor_drag(force, samples.v_W, parameters)
        roll, pitch, _ = tilt_and_thrust(force, headings)
        tilt = self._tilt_max
        r, p = self.references, self.parameters
        r[:, 0:3] = samples.p_W
        r[:, 3:6] = samples.v_W
        _clip(roll / parameters[5], -tilt, tilt, r[:, 10])
        _clip(pitch / parameters[7], -tilt, tilt, r[:, 11])
        np.multiply(r[:, 10], parameters[5], out=r[:, 6])
        np.multiply(r[:, 11], parameters[7], out=r[:, 7])
        # Where the tilt is at its limit the thrust is what holds the height, as in the fallback.
        lift = force[:, 2] / (np.cos(r[:, 6]) * np.cos(r[:, 7]))
        _clip(lift / parameters[0], self._thrust_min, self._thrust_max, r[:, 9])
        # The reference heading is within half a turn of the aircraft's: a whole turn is not a yaw error.
        np.add(samples.yaw, yaw + error - samples.yaw[0], out=r[:, 8])
        p[:, :MODEL_PARAMETERS] = parameters
        p[:, MODEL_PARAMETERS:-1] = self._held(disturbance_W, yaw)
        p[:, -1] = rates

    def _held(self, disturbance_W: Array, yaw: float) -> Array:
        """The disturbance for the plan, (3,) [m/s²]: at most what the tilt can hold without a loss of height.

        With more, the plan would foresee a drift that grows over the whole horizon, and dive to gather thrust against it.
        The references keep all of it, so that the aircraft leans as far as it may.
        """
        lift = GRAVITY_M_S2 - float(disturbance_W[2])
        wanted = tilt_and_thrust(np.array([-disturbance_W[0], -disturbance_W[1], lift]), yaw)
        roll, pitch = float(wanted[0]), float(wanted[1])
        most = HELD_PART * self._tilt_max
        if lift <= 0.0 or (abs(roll) <= most and abs(pitch) <= most):
            return disturbance_W
        roll, pitch = min(max(roll, -most), most), min(max(pitch, -most), most)
        forward, left = lift * math.tan(pitch), -lift * math.tan(roll) / math.cos(pitch)
        c, s = math.cos(yaw), math.sin(yaw)
        return np.array([-(c * forward - s * left), -(s * forward + c * left), disturbance_W[2]])


def status_stride(nodes: int) -> int:
    """Every how many nodes a predicted path in a message has a point, for a horizon of so many nodes."""
    return -(-nodes // (STATUS_POINTS - 1))


def predicted_path(states: Array, offset_W: Array) -> tuple[Vec3, ...]:
    """At most `STATUS_POINTS` positions of a plan, to the millimetre. states: (N + 1, 9); offset_W: (3,), added to each [m]."""
    points = states[:: status_stride(len(states) - 1), :3] + offset_W
    return tuple((x, y, z) for x, y, z in np.round(points, 3).tolist())


def _clip(values: Array, low: float, high: float, out: Array) -> None:
    """np.clip in a third of its time; for arrays this short np.clip is all overhead."""
    np.maximum(values, low, out=out)
    np.minimum(out, high, out=out)
