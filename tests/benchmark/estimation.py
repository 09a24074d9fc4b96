"""Times of the filter as the estimator calls it from Python, compared with the same filter in plain NumPy."""

from collections.abc import Callable

import numpy as np

from acados_gen.eskf_model import generate
from companion.core.config import load
from companion.core.enums import Sensor
from companion.core.frames import quat_conjugate, quat_exp, quat_from_rpy, quat_multiply, rotation_matrix
from companion.core.vehicle import Vehicle
from companion.estimation.filter import Eskf, FilterState
from companion.estimation.layout import SENSORS, StateIndex
from companion.estimation.noise import forgetting_rates, process_variances
from tests.benchmark.control import VEHICLE
from tests.benchmark.figures import Figure
from tests.benchmark.numpy_eskf import NumpyEskf
from tests.benchmark.timing import in_turns

CALLS = 100
STEP_S = 0.01
MARKER_M, CORNER_STD = 0.3, 1e-3  # a corner's noise in normalised image coordinates: 0.6 pixels
PREDICT_US, UPDATE_US = 5.0, 15.0
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
            self.truth.nominal, self.truth.covariance, process_variances(vehicle, coast=False),
            forgetting_rates(vehicle, coast=False), self.eskf.p_BC, self.eskf.q_BC,
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
        self.marker_noise = np.diag([1e-4] * 3 + [4e-4] * 3)

    def rewind(self) -> None:
        """Return to the filter state with which both began."""
        self.filter_state = self.truth.copy()
        self.numpy.x, self.numpy.P = self.truth.nominal.copy(), self.truth.covariance.copy()

    def calls(self) -> dict[str, tuple[Callable, Callable]]:
        """name → (the compiled filter's call, the NumPy filter's call)."""
        eskf, other = self.eskf, self.numpy
        factor = self.vehicle.estimator.marker.std**2
        coasting = process_variances(self.vehicle, coast=True), forgetting_rates(self.vehicle, coast=True)

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
            **{f"update, {name}": sensor(name) for name in self.y},
            "update, marker": (
                lambda: eskf.measure_marker(self.filter_state, self.p_CM, self.q_CM, self.marker_noise),
                lambda: other.marker(self.p_CM, self.q_CM, factor * self.marker_noise),
            ),
            "update, corners of one marker": (
                lambda: eskf.measure_corners(self.filter_state, self.corners_xy, self.corners_M.ravel(), CORNER_STD),
                lambda: other.corners(
                    self.corners_xy, self.corners_M.ravel(), factor * CORNER_STD**2 * np.eye(SENSORS[Sensor.CORNERS])
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
        out.append(Figure(f"ESKF {name}, from Python", times["ours"] * 1e6, "µs", "the same filter in NumPy",
                          times["numpy"] * 1e6, limit))  # fmt: skip
    return out


def _seen(eskf: Eskf, x) -> tuple[np.ndarray, np.ndarray]:
    """The bundle's pose in the camera frame that the state x expects."""
    p_BM = rotation_matrix(x[StateIndex.ATTITUDE]).T @ (x[StateIndex.MARKER_POSITION] - x[StateIndex.POSITION])
    w, i, j, k = q_BC = quat_multiply(eskf.q_BC, quat_exp(x[StateIndex.MOUNT]))
    back = quat_conjugate(x[StateIndex.ATTITUDE])
    q_CM = quat_multiply((w, -i, -j, -k), quat_multiply(back, x[StateIndex.MARKER_ATTITUDE]))
    return rotation_matrix(q_BC).T @ (p_BM - eskf.p_BC), q_CM


def _converged(eskf: Eskf, command, parameters) -> FilterState:
    """A filter state with biases and a visible bundle, after a second of measurements that agree with it."""
    filter_state = eskf.start(0.0, (2.0, -1.0, 4.0), (0.3, -0.2, 0.1), quat_from_rpy(0.04, -0.02, 0.3))
    x = filter_state.nominal
    x[StateIndex.DISTURBANCE], x[StateIndex.GNSS_BIAS] = (0.3, -0.2, 0.1), (0.8, -0.5, 0.4)
    # not zero, so that forgetting has an effect
    x[StateIndex.VELOCITY_BIAS], x[StateIndex.ATTITUDE_BIAS] = (0.04, -0.03, 0.02), (0.004, -0.003, 0.02)
    x[StateIndex.THRUST_SCALE], x[StateIndex.MOUNT] = 0.97, (0.001, -0.002, 0.001)
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
                p_CM, q_CM = _seen(eskf, x)
            eskf.measure_marker(filter_state, p_CM, q_CM, noise)
    return filter_state
