"""Layout of the filter's state and the interface of its compiled kernels. Needs no CasADi.

The nominal state x has 53 numbers, the error state 51: an attitude is a quaternion (4 numbers) in the state and a
rotation vector δθ (3 numbers) in the error. Attitude errors are on the body side, q_true = q ⊗ exp(δθ).

- attitude_bias is a rotation vector β in W: the flight controller measures exp(β) ⊗ q.
- mount is a rotation vector μ in C: the camera looks along q_BC ⊗ exp(μ).

A filter state is the array that a kernel takes and returns: nominal state, covariance, memory of gusts.
"""

import hashlib
from pathlib import Path

from companion.core import frames
from companion.core.enums import Sensor
from companion.core.kernel import GENERATORS, fingerprint

NAME = "eskf"
ALGEBRA = Path(__file__).with_name("eskf.c")


class StateIndex:
    """Slices of the nominal state, 53 numbers."""

    POSITION = slice(0, 3)  # p_W [m]
    VELOCITY = slice(3, 6)  # v_W [m/s]
    ATTITUDE = slice(6, 10)  # q_WB
    DISTURBANCE = slice(10, 13)  # d_W [m/s²]
    GNSS_BIAS = slice(13, 16)  # b_W [m]
    MARKER_POSITION = slice(16, 19)  # p_WM [m]
    MARKER_ATTITUDE = slice(19, 23)  # q_WM
    VELOCITY_BIAS = slice(23, 26)  # c_W [m/s], of the flight controller's velocity
    ATTITUDE_BIAS = slice(26, 29)  # β_W [rad], of the flight controller's attitude
    THRUST_SCALE = slice(29, 30)  # s, true over modelled thrust
    MOUNT = slice(30, 33)  # μ_C [rad]
    GYRO_BIAS = slice(33, 36)  # of HIGHRES_IMU, in B [rad/s]
    ACCEL_BIAS = slice(36, 39)  # of HIGHRES_IMU, in B [m/s²]
    LEVER = slice(39, 42)  # error of the camera's position p_BC, in B [m]
    BUNDLE_SCALE = slice(42, 43)  # true over assumed size of the bundle, minus 1
    CAMERA_DELAY = slice(43, 44)  # true minus assumed time of an image [s]
    SLOW_POSE = slice(44, 50)  # slow error of the bundle's pose in the camera, in standard deviations of the tracker
    MOUNT_OFFSET = slice(50, 53)  # constant part of the mount's error, in C [rad]


class ErrorIndex:
    """Slices of the error state and of the rows and columns of its covariance, 51 numbers; units as `StateIndex`."""

    POSITION = slice(0, 3)
    VELOCITY = slice(3, 6)
    ATTITUDE = slice(6, 9)  # δθ [rad], body side
    DISTURBANCE = slice(9, 12)
    GNSS_BIAS = slice(12, 15)
    MARKER_POSITION = slice(15, 18)
    MARKER_ATTITUDE = slice(18, 21)  # δθ_M [rad]
    VELOCITY_BIAS = slice(21, 24)
    ATTITUDE_BIAS = slice(24, 27)
    THRUST_SCALE = slice(27, 28)
    MOUNT = slice(28, 31)
    GYRO_BIAS = slice(31, 34)
    ACCEL_BIAS = slice(34, 37)
    LEVER = slice(37, 40)
    BUNDLE_SCALE = slice(40, 41)
    CAMERA_DELAY = slice(41, 42)
    SLOW_POSE = slice(42, 48)
    MOUNT_OFFSET = slice(48, 51)


Layout = tuple[tuple[str, int, int], ...]  # (name, first, size) of each block, in order


def _blocks(index: type[StateIndex] | type[ErrorIndex]) -> Layout:
    slices = [(name.lower(), value) for name, value in vars(index).items() if isinstance(value, slice)]
    return tuple((name, value.start, value.stop - value.start) for name, value in slices)


# A log names these, so that its `State.covariance_diag` (in the order of ERROR_LAYOUT) can be read later.
STATE_LAYOUT = _blocks(StateIndex)
ERROR_LAYOUT = _blocks(ErrorIndex)
LAYOUT_VERSION = f"{NAME}-{hashlib.sha256(repr((STATE_LAYOUT, ERROR_LAYOUT)).encode()).hexdigest()[:8]}"

STATE_SIZE = StateIndex.MOUNT_OFFSET.stop
ERROR_SIZE = ErrorIndex.MOUNT_OFFSET.stop
MOTION_STATE_SIZE = StateIndex.ATTITUDE.stop  # position, velocity, attitude
MOTION_SIZE = ErrorIndex.ATTITUDE.stop  # their errors: these affect each other, the other errors only fade

CONSIDERED = slice(ErrorIndex.LEVER.start, ErrorIndex.BUNDLE_SCALE.stop)  # never corrected, see `update` in eskf.c
CARRIED_SIZE = ErrorIndex.MARKER_ATTITUDE.stop  # errors that a turn of everything moves are among these, see `inject`

GUST_SIZE = 6  # see `follow_gusts` in eskf.c


class FilterStateIndex:
    """Slices of a filter state, the array that a kernel takes and returns."""

    NOMINAL = slice(0, STATE_SIZE)
    COVARIANCE = slice(STATE_SIZE, STATE_SIZE + ERROR_SIZE**2)
    GUST = slice(STATE_SIZE + ERROR_SIZE**2, STATE_SIZE + ERROR_SIZE**2 + GUST_SIZE)


FILTER_STATE_SIZE = FilterStateIndex.GUST.stop

SENSORS = {  # size of each residual
    Sensor.POSITION: 3,
    Sensor.VELOCITY: 3,
    Sensor.ATTITUDE: 3,
    Sensor.MARKER: 6,
    Sensor.CORNERS: 8,
    Sensor.SPECIFIC_FORCE: 3,
}
MEASURED = {  # sizes of a kernel's measured arguments: numbers of the sensor, then those of the camera or of the model
    Sensor.POSITION: (3,),
    Sensor.VELOCITY: (3,),
    Sensor.ATTITUDE: (4,),
    Sensor.MARKER: (3, 4, 3, 4, 3, 36),
    Sensor.CORNERS: (8, 12, 3, 4, 3),
    Sensor.SPECIFIC_FORCE: (3, 1, 8),
}
RATES = 9  # forgetting rates, see `acados_gen.eskf_model.forget`
IMU_SIZE = 6  # angular rate [rad/s], specific force [m/s²], both in B
SAMPLES_MAX = 32  # IMU samples in one call of `predict_imu`
COMMAND_SIZE, PARAMETER_SIZE = 4, 8  # (thrust, roll, pitch, yaw rate); `acados_gen.flight_model.PARAMETERS`

Shapes = tuple[tuple[int, ...], ...]  # one shape for each array


def kernel_name(function: str) -> str:
    """Name of a kernel in the library: predict, predict_imu, predict_coast, relative, update_<sensor>."""
    return f"{NAME}_{function}"


def predict_shapes() -> tuple[Shapes, Shapes]:
    """Shapes of the arguments and results of `predict`, as `companion.core.kernel.Kernel` binds them.

    (filter state, command, parameters, rates, noise, factor_max, dt) -> (filter state,). noise: variances per second
    in still air; factor_max: largest factor on the disturbance's variance in gusts.
    """
    filter_state, number = (FILTER_STATE_SIZE,), (1,)
    arguments = (filter_state, (COMMAND_SIZE,), (PARAMETER_SIZE,), (RATES,), (ERROR_SIZE,), number, number)
    return arguments, (filter_state,)


def imu_shapes() -> tuple[Shapes, Shapes]:
    """Shapes of `predict_imu`: (filter state, samples, count, rates, noise) -> (filter state,).

    samples: rows of duration [s], angular rate, specific force; the first ``count`` of SAMPLES_MAX are used.
    """
    filter_state, samples = (FILTER_STATE_SIZE,), (SAMPLES_MAX * (1 + IMU_SIZE),)
    return (filter_state, samples, (1,), (RATES,), (ERROR_SIZE,)), (filter_state,)


def coast_shapes() -> tuple[Shapes, Shapes]:
    """Shapes of `predict_coast`: (filter state, rates, noise, dt) -> (filter state,)."""
    filter_state = (FILTER_STATE_SIZE,)
    return (filter_state, (RATES,), (ERROR_SIZE,), (1,)), (filter_state,)


def update_shapes(sensor: Sensor) -> tuple[Shapes, Shapes]:
    """Shapes of `update_<sensor>`: (filter state, *measured, R) -> (ν, whitened, NIS, filter state, matched, expected)."""
    filter_state, number = (FILTER_STATE_SIZE,), (1,)
    m = SENSORS[sensor]
    measured = tuple((n,) for n in MEASURED[sensor])
    return (filter_state, *measured, (m, m)), ((m,), (m,), number, filter_state, (m,), (m,))


def sources() -> list[Path]:
    """The files that determine the kernels."""
    own = [Path(__file__), ALGEBRA]
    generators = [GENERATORS / file for file in ("eskf_model.py", "flight_model.py", "compile.py")]
    return [*own, *generators, Path(frames.__file__)]


def eskf_fingerprint() -> str:
    """Fingerprint of the kernels; all vehicles share them, because the vehicle's parameters are arguments."""
    return fingerprint(sources(), {"sensors": list(map(str, SENSORS))})
