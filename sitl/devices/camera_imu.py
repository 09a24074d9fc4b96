"""The inertial sensor inside a stereo camera: white noise, and biases that walk.

ω_m = ω + b_ω + n_ω, a_m = a + b_a + n_a with white n and random-walk b: S. Chen et al., "An End-to-End UAV
Simulation Platform for Visual SLAM and Navigation", Aerospace 2022, 9(2), 48, section 3.3.2. a is the specific force where the sensor is: the body's, and what its rotation
adds at the lever arm.
"""

import math
from typing import Annotated, NamedTuple, Protocol

import numpy as np

from companion.core.arrays import Array
from companion.core.config import number
from companion.core.frames import quat_normalized, rotation_matrix, skew
from companion.core.messages import CameraImu
from sitl.devices.mount import Mount
from sitl.devices.timing import TIME_EPSILON_S, Clock, Timing
from sitl.vectors import vec3


class CameraImuConfig(Timing, frozen=True, kw_only=True):
    """Noise densities as a data sheet or an Allan deviation has them."""

    rate_hz: Annotated[float, number(10, 240, "Hz")] = 200.0
    mount: Mount
    gyro_noise: Annotated[float, number(0, 0.1, "rad/s/√Hz")]
    gyro_walk: Annotated[float, number(0, 0.1, "rad/s²/√Hz, random walk of the bias")]
    accel_noise: Annotated[float, number(0, 1, "m/s²/√Hz")]
    accel_walk: Annotated[float, number(0, 1, "m/s³/√Hz, random walk of the bias")]
    gyro_bias_rad_s: Annotated[float, number(0, 0.5, "rad/s, standard deviation from start to start")] = 0.0
    accel_bias_m_s2: Annotated[float, number(0, 2, "m/s², standard deviation from start to start")] = 0.0


class BodyMotion(Protocol):
    """What the sensor feels; `sitl.plant.Plant` has it."""

    omega_B: Array
    specific_force_B: Array


class _Motion(NamedTuple):
    t_s: float
    omega_B: Array
    force_B: Array  # at the sensor


class CameraInertial:
    """Samples of the motion; call `step` after every step of the world. The same seed and motion give the same samples.

    A sample between two steps of the world is interpolated between them: 200 Hz have no common step with 250 Hz.
    """

    def __init__(self, config: CameraImuConfig, rng: np.random.Generator, clock: Clock) -> None:
        self._config, self._rng, self._clock = config, rng, clock
        self._R_IB = rotation_matrix(quat_normalized(config.mount.q_B)).T
        self._p_B = np.asarray(config.mount.p_B)
        self._lever = -skew(self._p_B)
        self.gyro_bias = config.gyro_bias_rad_s * rng.standard_normal(3)
        self.accel_bias = config.accel_bias_m_s2 * rng.standard_normal(3)
        self._before: _Motion | None = None

    def step(self, now_s: float, motion: BodyMotion) -> list[tuple[float, CameraImu]]:
        """The samples since the last step, each with its true time."""
        before, omega = self._before, motion.omega_B.copy()
        turn = np.zeros(3) if before is None else (omega - before.omega_B) / (now_s - before.t_s)
        # turn x p + omega x (omega x p), without `numpy.cross`, which takes most of a step's time
        lever = self._lever @ turn + omega * (omega @ self._p_B) - self._p_B * (omega @ omega)
        after = self._before = _Motion(now_s, omega, motion.specific_force_B + lever)
        samples: list[tuple[float, CameraImu]] = []
        while (t_s := self._clock.next_s()) <= now_s + TIME_EPSILON_S:
            self._clock.due(t_s)
            if before is None:  # the motion before the first step is not known
                continue
            share = (t_s - before.t_s) / (now_s - before.t_s)
            omega_B = before.omega_B + share * (after.omega_B - before.omega_B)
            force_B = before.force_B + share * (after.force_B - before.force_B)
            samples.append((t_s, self._sample(t_s, omega_B, force_B)))
        return samples

    def _sample(self, t_s: float, omega_B: Array, force_B: Array) -> CameraImu:
        c, draw = self._config, self._rng.standard_normal((4, 3))
        step = math.sqrt(1.0 / c.rate_hz)
        gyro = self._R_IB @ omega_B + self.gyro_bias + c.gyro_noise / step * draw[0]
        accel = self._R_IB @ force_B + self.accel_bias + c.accel_noise / step * draw[1]
        self.gyro_bias += c.gyro_walk * step * draw[2]
        self.accel_bias += c.accel_walk * step * draw[3]
        return CameraImu(stamp_s=self._clock.stamp_s(t_s), gyro_I=vec3(gyro), accel_I=vec3(accel))
