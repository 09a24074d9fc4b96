"""Times of the filter as the estimator calls it from Python, compared with the same filter in plain NumPy."""

from collections.abc import Callable

import numpy as np

from acados_gen.eskf_model import generate
from companion.core.config import load
from companion.core.enums import Sensor
from companion.core.frames import quat_conjugate, quat_exp, quat_from_rpy, quat_multiply, rotation_matrix
from companion.core.vehicle import Vehicle
from companion.estimation.filter import UNUSED_AXIS_M_S2, Eskf
from companion.estimation.filter_state import FilterState
from companion.estimation.inputs import ActingThrust
from companion.estimation.layout import OTHERS_MAX, SENSORS, StateIndex
from companion.estimation.noise import Propagation, forgetting_rates, process_variances
from tests.benchmark.control import VEHICLE
from tests.benchmark.figures import Figure
from tests.benchmark.numpy_eskf import NumpyEskf
from tests.benchmark.timing import in_turns

CALLS = 100
STEP_S = 0.01
IMU_STEP_S, SAMPLES = 0.005, 10
OMEGA_B = np.array([0.2, -0.1, 0.3])
MARKER_M, CORNER_STD = 0.3, 1e-3  # a corner's noise in normalised image coordinates: 0.6 pixels
PREDICT_US, UPDATE_US, MAP_US = 5.0, 15.0, 30.0
AGREE = 1e-9  # largest difference of state and covariance between the two filters after one call


class Pair:
    """Both filters at the same filter state in the middle of a flight, and the same calls for each."""

    def __init__(self, vehicle: Vehicle) -> None:
        self.vehicle, self.eskf = vehicle, Eskf(vehicle)
        self.parameters = np.array(vehicle.model_parameters())
        self.command = np.array([0.36, 0.05, -0.03, 0.1])
        self.truth = _converged(self.eskf, self.command, self.parameters)
        self.filter_state = self.truth.copy()
        self.numpy = NumpyEskf(
            self.truth.nominal, self.truth.covariance, process_variances(vehicle, Propagation.COMMAND),
            forgetting_rates(vehicle, Propagation.COMMAND), self.eskf.p_BC, self.eskf.q_BC,
        )  # fmt: skip
        x = self.truth.nominal
        self.y = {
            Sensor.POSITION: x[StateIndex.POSITION] + x[StateIndex.GNSS_BIAS] + [0.02, -0.01, 0.03],
            Sensor.VELOCITY: x[StateIndex.VELOCITY] + x[StateIndex.VELOCITY_BIAS] + [0.01, 0.02, -0.01],
            Sensor.ATTITUDE: quat_multiply(
                quat_exp(x[StateIndex.ATTITUDE_BIAS]),
                quat_multiply(x[StateIndex.ATTITUDE], quat_from_rpy(0.002, -0.001, 0.003)),
            ),
        }
        self.p_CM, self.q_CM = _seen(self.eskf, x)
        self.p_CM = self.p_CM + [0.004, -0.003, 0.005]
        self.q_CM = quat_multiply(self.q_CM, quat_from_rpy(0.003, 0.002, -0.002))
        half = MARKER_M / 2
        self.corners_M = np.array([(-half, half, 0), (half, half, 0), (half, -half, 0), (-half, -half, 0)])
        seen_C = self.corners_M @ rotation_matrix(self.q_CM).T + self.p_CM
        self.corners_xy = (seen_C[:, :2] / seen_C[:, 2:]).ravel()
        self.acting = ActingThrust(self.command[0], self.parameters)
        thrust_B = np.array([0.0, 0.0, x[StateIndex.THRUST_SCALE].item() * self.parameters[0] * self.acting.mean])
        air_W = x[StateIndex.DISTURBANCE] - self.parameters[1:4] * x[StateIndex.VELOCITY]
        expected_B = x[StateIndex.ACCEL_BIAS] + thrust_B + rotation_matrix(x[StateIndex.ATTITUDE]).T @ air_W
        self.force_B = expected_B + [0.1, -0.2, 0.15]
        self.sample = (IMU_STEP_S, *OMEGA_B, *self.force_B)
        self.marker_noise = np.diag([1e-4] * 3 + [4e-4] * 3)

    def rewind(self) -> None:
        """Return to the filter state with which both began."""
        self.filter_state = self.truth.copy()
        self.numpy.x, self.numpy.P = self.truth.nominal.copy(), self.truth.covariance.copy()

    def calls(self) -> dict[str, tuple[Callable, Callable]]:
        """name → (the compiled filter's call, the NumPy filter's call)."""
        eskf, other = self.eskf, self.numpy
        factor = self.vehicle.estimator.marker.std**2
        coasting, by_imu = (
            (process_variances(self.vehicle, by), forgetting_rates(self.vehicle, by))
            for by in (Propagation.COAST, Propagation.IMU)
        )
        one, many = [self.sample], SAMPLES * [self.sample]
        root, force_noise = np.linalg.cholesky(self.marker_noise), self.eskf.nominal[Sensor.SPECIFIC_FORCE].copy()
        force_noise[0, 0] = force_noise[1, 1] = UNUSED_AXIS_M_S2**2  # along the thrust

        def sensor(name: Sensor):
            R = self.eskf.nominal[name]
            return (
                lambda: eskf.measure(self.filter_state, name, self.y[name]),
                lambda: getattr(other, name)(self.y[name], R),
            )

        return {
            "predict": (
                lambda: eskf.predict(self.filter_state, self.command, self.parameters, STEP_S),
                lambda: other.predict(self.command, self.parameters, STEP_S),
            ),
            "predict without a command": (
                lambda: eskf.coast(self.filter_state, STEP_S),
                lambda: other.coast(*coasting, STEP_S),
            ),
            "predict by one IMU sample": (
                lambda: eskf.predict_imu(self.filter_state, one),
                lambda: other.predict_imu(one, *by_imu),
            ),
            f"predict by {SAMPLES} IMU samples": (
                lambda: eskf.predict_imu(self.filter_state, many),
                lambda: other.predict_imu(many, *by_imu),
            ),
            **{f"update, {name}": sensor(name) for name in self.y},
            "update, specific force": (
                lambda: eskf.measure_force(self.filter_state, self.force_B, self.acting),
                lambda: other.specific_force(self.force_B, self.acting.mean, self.acting.parameters, force_noise),
            ),
            "update, marker": (
                lambda: eskf.measure_marker(self.filter_state, self.p_CM, self.q_CM, self.marker_noise, OMEGA_B),
                lambda: other.marker(self.p_CM, self.q_CM, factor * self.marker_noise, OMEGA_B, root),
            ),
            "update, corners of one marker": (
                lambda: eskf.measure_corners(
                    self.filter_state, self.corners_xy, self.corners_M.ravel(), CORNER_STD, OMEGA_B
                ),
                lambda: other.corners(
                    self.corners_xy,
                    self.corners_M.ravel(),
                    factor * CORNER_STD**2 * np.eye(SENSORS[Sensor.CORNERS]),
                    OMEGA_B,
                ),
            ),
        }

    def difference(self) -> float:
        """Largest difference between the two filters, in units of the initial numbers."""
        return max(
            np.abs(self.filter_state.nominal - self.numpy.x).max(),
            np.abs(self.filter_state.covariance - self.numpy.P).max(),
        )


def figures() -> list[Figure]:
    """Processor time of one call, after a check that both filters give the same numbers."""
    vehicle = load(VEHICLE, Vehicle)
    generate()
    pair = Pair(vehicle)
    out = []
    for name, (ours, other) in pair.calls().items():
        pair.rewind()
        ours(), other()
        if (apart := pair.difference()) > AGREE:
            raise RuntimeError(f"{name}: the NumPy filter differs from the compiled one by {apart:.2g}")
        pair.rewind()
        times = in_turns({"ours": ours, "numpy": other}, CALLS)
        limit = PREDICT_US if name.startswith("predict") else UPDATE_US
        name, each = (f"{name}, each", SAMPLES) if name.endswith("samples") else (name, 1)
        out.append(Figure(f"ESKF {name}, from Python", times["ours"] / each * 1e6, "µs", "the same filter in NumPy",
                          times["numpy"] / each * 1e6, limit))  # fmt: skip
    return out + _with_twenty_bundles(pair)


def _with_twenty_bundles(pair: Pair) -> list[Figure]:
    """The same calls while the state has the mission's bundle and OTHERS_MAX others."""
    eskf, filter_state = pair.eskf, pair.truth.copy()
    names = [f"bundle {i}" for i in range(OTHERS_MAX)]
    for i, name in enumerate(names):
        filter_state.time_s += 2.0  # one after the other, not in one image
        eskf.begin_bundle(filter_state, name)
        eskf.measure_marker(filter_state, pair.p_CM + [0.1 * i, 0.0, 0.0], pair.q_CM, pair.marker_noise, OMEGA_B)
        eskf.end_bundle(filter_state, name)
    before = filter_state.numbers.copy()

    def of_a_further_bundle() -> None:
        filter_state.numbers[:] = before  # else the same image again and again would be hundreds of them
        eskf.begin_bundle(filter_state, names[-1])
        eskf.measure_marker(
            filter_state, pair.p_CM + [0.1 * OTHERS_MAX, 0.0, 0.0], pair.q_CM, pair.marker_noise, OMEGA_B
        )
        eskf.end_bundle(filter_state, names[-1])

    many = SAMPLES * [pair.sample]
    calls = {
        f"predict by {SAMPLES} IMU samples, each": (lambda: eskf.predict_imu(filter_state, many), SAMPLES, PREDICT_US),
        "update, attitude": (lambda: eskf.measure(filter_state, Sensor.ATTITUDE, pair.y[Sensor.ATTITUDE]), 1, MAP_US),
        "update, marker of a further bundle": (of_a_further_bundle, 1, MAP_US),
        "copy of the state": (filter_state.copy, 1, None),
    }
    out = []
    for name, (call, each, limit) in calls.items():
        filter_state.numbers[:] = before
        times = in_turns({"ours": call, "one": call}, CALLS)
        us = min(times.values()) / each * 1e6
        out.append(Figure(f"ESKF with {1 + OTHERS_MAX} bundles, {name}, from Python", us, "µs", "", None, limit))
    return out


def _seen(eskf: Eskf, x, omega_B=OMEGA_B) -> tuple[np.ndarray, np.ndarray]:
    """The bundle's pose in the camera frame that the state x expects."""
    delay = x[StateIndex.CAMERA_DELAY].item()
    q_WB = quat_multiply(x[StateIndex.ATTITUDE], quat_exp(delay * np.asarray(omega_B)))
    q_WC = quat_multiply(q_WB, eskf.q_BC)
    for turn in (StateIndex.MOUNT_OFFSET, StateIndex.MOUNT):
        q_WC = quat_multiply(q_WC, quat_exp(x[turn]))
    p_WB = x[StateIndex.POSITION] + delay * x[StateIndex.VELOCITY]
    p_WC = p_WB + rotation_matrix(q_WB) @ (eskf.p_BC + x[StateIndex.LEVER])
    p_CM = (1 - x[StateIndex.BUNDLE_SCALE].item()) * rotation_matrix(q_WC).T @ (x[StateIndex.MARKER_POSITION] - p_WC)
    return p_CM, quat_multiply(quat_conjugate(q_WC), x[StateIndex.MARKER_ATTITUDE])


def _converged(eskf: Eskf, command, parameters) -> FilterState:
    """A filter state with biases and a visible bundle, after a second of measurements that agree with it."""
    filter_state = eskf.start(0.0, (2.0, -1.0, 4.0), (0.3, -0.2, 0.1), quat_from_rpy(0.04, -0.02, 0.3))
    x = filter_state.nominal
    x[StateIndex.DISTURBANCE], x[StateIndex.GNSS_BIAS] = (0.3, -0.2, 0.1), (0.8, -0.5, 0.4)
    # not zero, so that forgetting has an effect
    x[StateIndex.VELOCITY_BIAS], x[StateIndex.ATTITUDE_BIAS] = (0.04, -0.03, 0.02), (0.004, -0.003, 0.02)
    x[StateIndex.THRUST_SCALE], x[StateIndex.MOUNT] = 0.97, (0.001, -0.002, 0.001)
    x[StateIndex.GYRO_BIAS], x[StateIndex.ACCEL_BIAS] = (0.002, -0.001, 0.003), (0.1, -0.05, 0.15)
    x[StateIndex.LEVER], x[StateIndex.BUNDLE_SCALE], x[StateIndex.CAMERA_DELAY] = (0.01, -0.005, 0.004), 0.002, 0.01
    x[StateIndex.SLOW_POSE], x[StateIndex.MOUNT_OFFSET] = (0.5, -0.4, 0.3, 0.2, -0.3, 0.4), (0.01, -0.02, 0.01)
    p_CM, q_CM = np.array([0.2, 0.1, 3.0]), quat_from_rpy(3.0, 0.1, 0.05)
    noise = np.diag([1e-4] * 3 + [4e-4] * 3)
    for turn in range(100):
        eskf.predict(filter_state, command, parameters, STEP_S)
        filter_state.time_s += STEP_S
        eskf.measure(
            filter_state, Sensor.ATTITUDE, quat_multiply(quat_exp(x[StateIndex.ATTITUDE_BIAS]), x[StateIndex.ATTITUDE])
        )
        eskf.measure(filter_state, Sensor.VELOCITY, x[StateIndex.VELOCITY] + x[StateIndex.VELOCITY_BIAS])
        eskf.measure(filter_state, Sensor.POSITION, x[StateIndex.POSITION] + x[StateIndex.GNSS_BIAS])
        if turn % 3 == 0:
            if filter_state.marker_known:
                p_CM, q_CM = _seen(eskf, x, np.zeros(3))
            eskf.measure_marker(filter_state, p_CM, q_CM, noise)
    return filter_state
