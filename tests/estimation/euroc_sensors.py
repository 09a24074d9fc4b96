"""The messages of a flight controller and a camera on a recorded flight, with errors that the filter does not know.

Real are the motion and the inertial samples. Everything else is made from the true motion by the generators of the
simulator: the flight controller's attitude and receiver by `sitl.sensors`, its position and velocity by the observer of the PX4
emulator, the corners by `sitl.camera` with the tracker that flies, all with the errors that `sitl.unkind` draws for a seed.
The recording brings the noise of its own inertial sensors, so the generator adds none.

The tilt error turns with the aircraft: what EKF2 takes for a tilt is a bias of its accelerometer, and that is fixed in B. The
simulator's keeps its direction in W, which is the same in a hover. Here the sensors are therefore those of an aircraft that
does not yaw, and its attitude is turned by the true heading afterwards.

HIGHRES_IMU
PX4 1.17 sends the raw means less the biases that EKF2 estimates (`estimator_sensor_bias`, which EKF2 publishes when a bias has
changed by more than 0.001, and once a second). What is subtracted here:

- of the gyroscope: the true bias and an error, a first-order Gauss-Markov process with a standard deviation and a time that are
  drawn from GYRO_ERROR_RAD_S and GYRO_ERROR_S for each seed;
- of the accelerometer: the true bias, and the bias of the observer, which follows its fixes. As in the simulator the samples
  keep a constant (`ImuConfig.accel_bias_m_s2`) and the bias that explains the tilt error (`AttitudeConfig.tilt_in_accel`).

The observer integrates the same specific force, less the true bias. Its own bias keeps its direction in W: with the raw
samples, whose bias of 0.16 m/s² turns with the aircraft, its velocity would be worse than that of EKF2.

What is subtracted is held from one publication to the next, so it changes in steps.
"""

import heapq
import itertools
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from companion.core.arrays import Array
from companion.core.clock import SimulatedStopwatch
from companion.core.config_files import config_folder
from companion.core.enums import FcuMode
from companion.core.frames import quat_conjugate, quat_from_rpy, quat_multiply
from companion.core.messages import FcuAttitude, FcuImu, FcuPosition, FcuStatus, Message, Truth
from companion.core.trajectory_messages import Vec3
from companion.recording.series import Interval, interpolate, interpolate_quaternion, within
from companion.tracking.tracker import TrackerNode
from sitl.autopilot.conversion import geodetic
from sitl.autopilot.observer import Observer
from sitl.autopilot.telemetry import BIAS_CHANGE_M_S2, BIAS_PERIOD_S
from sitl.camera import SceneCamera
from sitl.corners import CornerCamera
from sitl.scenario import LoadedScenario, SensorKind, load_scenario
from sitl.scene import PlacedBundle
from sitl.sensors import FRAME_S, GnssFix, SensorFrame, Sensors
from sitl.unkind import flown_parameters, with_sensors
from sitl.vectors import quat, vec3
from sitl.wind import NormalNoise, OrnsteinUhlenbeck
from tests.estimation.euroc_recording import Motion, Recording

VEHICLE = Path(__file__).with_name("euroc.toml")
SCENARIO = Path("scenarios/bridge_hover.toml")  # its sensors, flight controller and markers
BUNDLE = "pier"
# A pier in the laboratory, beyond the flight's eastern end: seen from 2 to 5 m, in half of the flight.
PIER = PlacedBundle(name=BUNDLE, p_W=(2.8, -1.0, 0.8), rpy_rad=(math.pi / 2, 0.0, -math.pi / 2))

CAM0: dict[str, Any] = {  # the true lens: cam0.yaml
    **dict(zip(("width", "height"), (752, 480), strict=True)),
    **dict(zip(("fx", "fy", "cx", "cy"), (458.654, 457.296, 367.215, 248.375), strict=True)),
    "distortion": (-0.28340811, 0.07395907, 0.00019359, 1.76187114e-05, 0.0),
}

START_S = 10.0  # time of the first sample
AIRBORNE_M = 0.1  # above the lowest pose
GYRO_ERROR_RAD_S, GYRO_ERROR_S = (0.0005, 0.004), (10.0, 60.0)  # of EKF2's estimate; drawn between both
BIAS_CHANGE_RAD_S = 0.001
CLOCK_ERROR_S = 0.001  # of TIMESYNC, either way: half of what a serial link's two ways may differ
LINK_DELAY_S, LINK_JITTER_S = 0.003, 0.002  # least delay of a message, mean of what comes on top
MILLISECOND_S = 0.001  # resolution of the stamps of attitude and position
STATUS_EVERY, OBSERVER_CHECK_EVERY = 25, 5  # frames


class Arrival(NamedTuple):
    """A message and when it reaches the estimator."""

    at_s: float
    message: Message


class Instant:
    """The true motion at one time, as `sitl.sensors.TrueMotion`, with the specific force that was recorded."""

    battery_voltage_v, battery_remaining = 15.2, 0.8

    def __init__(self, p_W: Array, v_W: Array, q_WB: Array, omega_B: Array, specific_force_B: Array) -> None:
        self.p_W, self.v_W, self.q_WB = p_W, v_W, q_WB
        self.omega_B, self.specific_force_B = omega_B, specific_force_B


def world(sensors: SensorKind, seed: int, duration_s: float) -> LoadedScenario:
    """The sensors and the camera of a seed; raises `ConfigError`."""
    loaded = load_scenario(config_folder() / SCENARIO, VEHICLE, camera_mode="corners")
    scenario, mount, replace = loaded.scenario, loaded.vehicle.camera, msgspec.structs.replace
    scenario = replace(
        scenario,
        duration_max_s=max(duration_s, 1.0),
        sensors=replace(
            scenario.sensors, imu=replace(scenario.sensors.imu, gyro_noise_rad_s=0.0, accel_noise_m_s2=0.0)
        ),
        camera=replace(scenario.camera, **CAM0, p_BC=mount.p_BC, q_BC=mount.q_BC, rate_hz=mount.rate_hz),
        scene=replace(scenario.scene, bundles=[PIER], backdrops=[]),
    )
    return with_sensors(replace(loaded, scenario=scenario), sensors, seed)


def truth_messages(motion: Motion, recording: Recording) -> list[Truth]:
    """The true motion as the simulator's log has it."""
    pose = (PIER.p_W, quat(quat_from_rpy(*PIER.rpy_rad)))
    omega_B = recording.gyro_B - motion.gyro_bias_B
    return [
        Truth(
            stamp_s=START_S + float(t),
            p_W=vec3(p_W),
            v_W=vec3(v_W),
            q_WB=quat(q_WB),
            omega_B=vec3(omega),
            disturbance_W=(0.0, 0.0, 0.0),  # not known
            gnss_bias_W=(0.0, 0.0, 0.0),  # see `FcuPosition`
            bundles={BUNDLE: pose},
            battery_voltage_v=Instant.battery_voltage_v,
            motor_thrust_n=(),
        )
        for t, p_W, v_W, q_WB, omega in zip(motion.t, motion.p_W, motion.v_W, motion.q_WB, omega_B, strict=True)
    ]


def airborne(motion: Motion) -> Interval:
    """From take-off to landing [s], in the estimator's time."""
    above = np.flatnonzero(motion.p_W[:, 2] > motion.p_W[:, 2].min() + AIRBORNE_M)
    return (START_S + float(motion.t[above[0]]), START_S + float(motion.t[above[-1]])) if len(above) else (0.0, 0.0)


def arrivals(
    recording: Recording, motion: Motion, loaded: LoadedScenario, seed: int, hidden: Iterable[Interval] = ()
) -> Iterator[Arrival]:
    """All messages in the order of their arrival. hidden: when the camera sees no marker."""
    made = _Made(recording, motion, loaded, seed, list(hidden))
    waiting: list[tuple[float, int, Message]] = []
    number = itertools.count()
    for now_s, arriving in made.frames():
        for arrival in arriving:
            heapq.heappush(waiting, (arrival.at_s, next(number), arrival.message))
        while waiting and waiting[0][0] <= now_s:  # what is made later arrives later
            at_s, _, message = heapq.heappop(waiting)
            yield Arrival(at_s, message)


class _PublishedBias:
    """What EKF2 has published last of its two biases."""

    def __init__(self) -> None:
        self.gyro: Vec3 = (0.0, 0.0, 0.0)
        self.accel: Vec3 = (0.0, 0.0, 0.0)
        self._s = -math.inf

    def update(self, now_s: float, gyro: Vec3, accel: Vec3) -> None:
        changed = math.dist(gyro, self.gyro) > BIAS_CHANGE_RAD_S or math.dist(accel, self.accel) > BIAS_CHANGE_M_S2
        if changed or now_s - self._s >= BIAS_PERIOD_S:
            self.gyro, self.accel, self._s = gyro, accel, now_s


class _Made:
    """Makes the messages of one flight, frame by frame."""

    def __init__(
        self, recording: Recording, motion: Motion, loaded: LoadedScenario, seed: int, hidden: list[Interval]
    ) -> None:
        scenario, vehicle = loaded.scenario, loaded.vehicle
        self._vehicle, self._hidden = vehicle, hidden
        self._sensors = Sensors(scenario.sensors, seed)
        self._observer = Observer(flown_parameters(scenario), FRAME_S)
        self._observer.gates_apart = scenario.gnss_gates_apart
        camera = SceneCamera(scenario.camera, scenario.scene, loaded.site, seed, draw=False)
        self._corners, self._transport = CornerCamera(camera), camera.transport
        self._tracker = TrackerNode(vehicle, loaded.site, SimulatedStopwatch(), self._corners)
        self._rng = np.random.default_rng((seed, 8))
        draw = self._rng.uniform
        self._clock_error_s = draw(-CLOCK_ERROR_S, CLOCK_ERROR_S)
        self._gyro_error = OrnsteinUhlenbeck(
            draw(*GYRO_ERROR_RAD_S, 3).tolist(),
            draw(*GYRO_ERROR_S, 3).tolist(),
            NormalNoise(np.random.default_rng((seed, 9))),
        )
        self._published = _PublishedBias()
        self._link_free_s = -math.inf
        self._fix: GnssFix | None = None
        self._fix_s = math.nan
        self._airborne = airborne(motion)
        self._t = START_S + np.arange(math.ceil(motion.t[0] / FRAME_S), math.floor(motion.t[-1] / FRAME_S)) * FRAME_S
        at = self._t - START_S
        self._p, self._v = interpolate(at, motion.t, motion.p_W), interpolate(at, motion.t, motion.v_W)
        self._q = interpolate_quaternion(at, motion.t, motion.q_WB)
        self._rates = interpolate(at, motion.t, recording.gyro_B - motion.gyro_bias_B)
        self._force = interpolate(at, motion.t, recording.accel_B - motion.accel_bias_B)
        self._true_gyro_bias = interpolate(at, motion.t, motion.gyro_bias_B)
        # A sample is that of the middle of its interval.
        self._sample_end_s = START_S + recording.t + 0.5 * float(np.median(np.diff(recording.t)))
        self._gyro, self._accel = recording.gyro_B, recording.accel_B - motion.accel_bias_B

    def frames(self) -> Iterator[tuple[float, list[Arrival]]]:
        """The time of each frame and the messages that are sent or exposed in it."""
        samples = 0
        attitude_every = round(1.0 / (self._vehicle.fcu.attitude_rate_hz * FRAME_S))
        position_every = round(1.0 / (self._vehicle.fcu.position_rate_hz * FRAME_S))
        image_every = round(1.0 / (self._vehicle.camera.rate_hz * FRAME_S))
        for i, now_s in enumerate(self._t.tolist()):
            frame = self._observe(i, now_s)
            out: list[Arrival] = []
            while samples < len(self._sample_end_s) and self._sample_end_s[samples] <= now_s:
                out.append(self._sent(now_s, self._imu(samples, i, frame)))
                samples += 1
            stamp_s = math.floor(now_s / MILLISECOND_S + 1e-6) * MILLISECOND_S + self._clock_error_s
            if i % attitude_every == 0:
                out.append(
                    self._sent(now_s, FcuAttitude(stamp_s=stamp_s, q_WB=frame.q_WB, omega_B=vec3(self._rates[i])))
                )
            if i % position_every == 0 and self._observer.position_valid:
                p_W, v_W = vec3(np.array(self._observer.p)), vec3(np.array(self._observer.v))
                out.append(self._sent(now_s, FcuPosition(stamp_s=stamp_s, p_W=p_W, v_W=v_W)))
            if i % STATUS_EVERY == 0:
                out.append(self._sent(now_s, self._status(now_s)))
            if i % image_every == 0:
                out += self._image(i, now_s)
            yield now_s, out

    def _sent(self, now_s: float, message: Message) -> Arrival:
        """Over the link: one message after the other."""
        at_s = now_s + LINK_DELAY_S + self._rng.exponential(LINK_JITTER_S)
        self._link_free_s = max(self._link_free_s, at_s)
        return Arrival(self._link_free_s, message)

    def _observe(self, i: int, now_s: float) -> SensorFrame:
        w, _, _, z = self._q[i]
        heading = np.array([w, 0.0, 0.0, z]) / math.hypot(w, z)
        turned = quat_multiply(quat_conjugate(heading), self._q[i])
        instant = Instant(self._p[i], self._v[i], turned, self._rates[i], self._force[i])
        frame = self._sensors.sample(now_s, instant)
        frame = frame._replace(q_WB=quat(quat_multiply(heading, np.array(frame.q_WB))))
        observer = self._observer
        observer.predict(now_s, frame.accel_B, frame.q_WB)
        if frame.gnss is not None:
            self._fix, self._fix_s = frame.gnss, now_s
            observer.correct_gnss(now_s, frame.gnss)
        if frame.baro_height_m is not None:
            observer.correct_baro(now_s, frame.baro_height_m)
        if i % OBSERVER_CHECK_EVERY == 0:
            observer.check(now_s)
        error = self._gyro_error.advance(FRAME_S)
        gyro_bias = vec3(self._true_gyro_bias[i] + error)
        self._published.update(now_s, gyro_bias, observer.accel_bias_B(frame.q_WB))
        return frame

    def _imu(self, sample: int, i: int, frame: SensorFrame) -> FcuImu:
        wrong = np.array(frame.accel_B) - self._force[i]  # constant, and by the bias that explains the tilt error
        return FcuImu(
            stamp_s=float(self._sample_end_s[sample]) + self._clock_error_s,
            gyro_B=vec3(self._gyro[sample] - self._published.gyro),
            accel_B=vec3(self._accel[sample] + wrong - self._published.accel),
        )

    def _status(self, now_s: float) -> FcuStatus:
        """Flown by a pilot: no setpoint of the companion is known."""
        fix = self._fix
        start_s, end_s = self._airborne
        position: Vec3 | None = None if fix is None else geodetic(fix.p_W)
        return FcuStatus(
            stamp_s=now_s,
            connected=True,
            armed=True,
            mode=FcuMode.POSCTL,
            landed=not start_s <= now_s <= end_s,
            battery_voltage_v=Instant.battery_voltage_v,
            battery_remaining=Instant.battery_remaining,
            rc_ok=True,
            rc_channels_us=(),
            gnss_ok=self._observer.gnss_ok,
            home_W=None,
            timesync_offset_s=0.0,
            timesync_rtt_s=0.001,
            link_errors=0,
            gnss_position=position,
            gnss_v_W=None if fix is None else (fix.v_W[0], fix.v_W[1]),
            gnss_s=self._fix_s,
            gnss_h_acc_m=math.nan if fix is None else fix.h_acc_m,
            gnss_v_acc_m=math.nan if fix is None else fix.v_acc_m,
        )

    def _image(self, i: int, now_s: float) -> list[Arrival]:
        latency_s = self._transport.latency_s(now_s)
        if latency_s is None:
            return []
        is_hidden = bool(within(np.array([now_s]), self._hidden)[0])
        image = self._corners.expose(now_s, self._p[i], self._q[i], is_hidden)
        # Stamped as on an aircraft: the arrival less the delay of the vehicle file.
        at_s = now_s + latency_s
        image = msgspec.structs.replace(image, stamp_s=at_s - self._vehicle.latency.camera_s)
        return [Arrival(at_s, message) for message in self._tracker.handle(image, at_s)]
