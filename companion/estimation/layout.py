"""Layout of the filter's state and the interface of its compiled kernels. Needs no CasADi.

The nominal state x has 53 numbers, the error state 51: an attitude is a quaternion (4 numbers) in the state and a
rotation vector δθ (3 numbers) in the error. Attitude errors are on the body side, q_true = q ⊗ exp(δθ).

- attitude_bias is a rotation vector β in W: the flight controller measures exp(β) ⊗ q.
- mount is a rotation vector μ in C: the camera looks along q_BC ⊗ exp(μ).

These are the numbers of the aircraft, its sensors and one bundle, that of the mission. Each further bundle of the map adds a pose
(7 numbers, 6 errors), and while it is in sight the slow error of its pose (6 and 6), after all others. The algebra of the
kernels has any number of bundles; the models are those of one, whose place in the state a further bundle takes for the time of
its observation (`exchange` in eskf.c).

A filter state is the array that a kernel changes; it describes itself, see `FilterStateIndex`.
"""

import hashlib
from pathlib import Path

from companion.core import frames
from companion.core.enums import Sensor
from companion.core.kernel import GENERATORS, fingerprint, require
from companion.core.vehicle import MODEL_PARAMETERS

NAME = "eskf"
SOURCES = [Path(__file__).with_name(file) for file in ("eskf.c", "replay.c", "validity.c")]


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
    SLOW_POSE = slice(44, 50)  # slow error of the bundle's pose in the camera, in units of its std
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

# The map: bundles beside the mission's, and how many of them can have a slow error of their own.
OTHERS_MAX = 19
SLOW_MAX = 4
POSE_STATE_SIZE, POSE_SIZE, SLOW_SIZE = 7, 6, 6  # numbers and errors of a pose, both of a slow error
ERROR_SIZE_MAX = ERROR_SIZE + POSE_SIZE * OTHERS_MAX + SLOW_SIZE * SLOW_MAX
BUNDLE_ERROR = slice(ErrorIndex.MARKER_POSITION.start, ErrorIndex.MARKER_ATTITUDE.stop)
BUNDLE_STATE = slice(StateIndex.MARKER_POSITION.start, StateIndex.MARKER_ATTITUDE.stop)


class FilterStateIndex:
    """Slices of a filter state. After them: a pose of each further bundle, then slow errors, then the covariance by rows."""

    COUNTS = slice(0, 2)  # further bundles, slow errors
    NOMINAL = slice(2, 2 + STATE_SIZE)
    GUST = slice(2 + STATE_SIZE, 2 + STATE_SIZE + GUST_SIZE)
    REST = 2 + STATE_SIZE + GUST_SIZE


def poses_of(others: int) -> slice:
    """The poses of so many further bundles in a filter state."""
    return slice(FilterStateIndex.REST, FilterStateIndex.REST + POSE_STATE_SIZE * others)


def slow_errors_of(others: int, slow: int) -> slice:
    """The slow errors after the poses."""
    start = poses_of(others).stop
    return slice(start, start + SLOW_SIZE * slow)


def covariance_of(others: int, slow: int) -> tuple[slice, int]:
    """The covariance's numbers in a filter state, and its number of rows."""
    start, rows = slow_errors_of(others, slow).stop, ERROR_SIZE + POSE_SIZE * others + SLOW_SIZE * slow
    return slice(start, start + rows * rows), rows


SENSORS = {  # size of each residual
    Sensor.POSITION: 3,
    Sensor.VELOCITY: 3,
    Sensor.ATTITUDE: 3,
    Sensor.MARKER: 6,
    Sensor.CORNERS: 8,
    Sensor.SPECIFIC_FORCE: 3,
    Sensor.PLUMB: 2,
}
MEASURED = {  # sizes of a kernel's measured arguments: numbers of the sensor, then those of the camera or of the model
    Sensor.POSITION: (3,),
    Sensor.VELOCITY: (3,),
    Sensor.ATTITUDE: (4,),
    Sensor.MARKER: (3, 4, 3, 4, 3, 36),
    Sensor.CORNERS: (8, 12, 3, 4, 3),
    Sensor.SPECIFIC_FORCE: (3, 1, MODEL_PARAMETERS),
    Sensor.PLUMB: (6,),
}
RATES = 9  # forgetting rates, see `acados_gen.eskf_model.forget`
IMU_SIZE = 6  # angular rate [rad/s], specific force [m/s²], both in B
SAMPLES_MAX = 32  # IMU samples in one call of `predict_imu`
COMMAND_SIZE = 4  # (thrust, roll, pitch, yaw rate)
PARAMETER_SIZE = MODEL_PARAMETERS  # `acados_gen.flight_model.PARAMETERS`
SCALE_MAX = 5.0  # ceiling of the adapted over the nominal standard deviation; blur and lens error stay below 3

GAIN_SIZE = (
    max(SENSORS.values()) + 1
) * ERROR_SIZE_MAX  # P Hᵀ L⁻ᵀ by rows, correction: what `update` leaves for `correct`

Shape = tuple[int, ...] | None  # None: memory of the caller, see `companion.core.kernel.Kernel.point`
Shapes = tuple[Shape, ...]  # one shape for each array


def kernel_name(function: str) -> str:
    """Name of a kernel: predict, predict_imu, predict_coast, update_<sensor>, correct, exchange, relative."""
    return f"{NAME}_{function}"


# The first result of every kernel is the filter state, which it changes in place.


def predict_shapes() -> tuple[Shapes, Shapes]:
    """Shapes of the arguments and results of `predict`, as `companion.core.kernel.Kernel` binds them.

    (command, parameters, rates, noise, factor_max, dt) -> (filter state,). noise: variances per second in still air;
    factor_max: largest factor on the disturbance's variance in gusts.
    """
    number = (1,)
    return ((COMMAND_SIZE,), (PARAMETER_SIZE,), (RATES,), (ERROR_SIZE,), number, number), (None,)


def imu_shapes() -> tuple[Shapes, Shapes]:
    """Shapes of `predict_imu`: (samples, count, rates, noise) -> (filter state,).

    samples: rows of duration [s], angular rate, specific force; the first ``count`` of SAMPLES_MAX are used.
    """
    return ((SAMPLES_MAX * (1 + IMU_SIZE),), (1,), (RATES,), (ERROR_SIZE,)), (None,)


def coast_shapes() -> tuple[Shapes, Shapes]:
    """Shapes of `predict_coast`: (rates, noise, dt) -> (filter state,)."""
    return ((RATES,), (ERROR_SIZE,), (1,)), (None,)


def update_shapes(sensor: Sensor) -> tuple[Shapes, Shapes]:
    """Shapes of `update_<sensor>`: (*measured, R) -> (filter state, ν, whitened, NIS, matched, expected, gain).

    It only judges; `correct` with its gain changes the filter state.
    """
    m = SENSORS[sensor]
    measured = tuple((n,) for n in MEASURED[sensor])
    return (*measured, (m, m)), (None, (m,), (m,), (1,), (m,), (m,), None)


def correct_shapes() -> tuple[Shapes, Shapes]:
    """Shapes of `correct`: (size of ν, gain) -> (filter state,)."""
    return ((1,), (GAIN_SIZE,)), (None,)


def exchange_shapes() -> tuple[Shapes, Shapes]:
    """Shapes of `exchange`: (number of the further bundle's pose, of its slow error) -> (filter state,)."""
    return ((1,), (1,)), (None,)


def sources() -> list[Path]:
    """The files that determine the kernels."""
    own = [Path(__file__), *SOURCES]
    generators = [GENERATORS / file for file in ("eskf_model.py", "flight_model.py", "compile.py")]
    return [*own, *generators, Path(frames.__file__)]


def eskf_fingerprint() -> str:
    """Fingerprint of the kernels; all vehicles share them, because the vehicle's parameters are arguments."""
    return fingerprint(sources(), {"sensors": list(map(str, SENSORS))})


def require_eskf() -> Path:
    """Path of the kernels' library; raises `companion.core.kernel.ArtifactMissing` when it is not built."""
    return require(NAME, eskf_fingerprint())
