"""Validity and divergence checks of the estimate."""

import ctypes
import functools
from collections.abc import Callable
from math import acos, cos, inf, isfinite, sqrt

from companion.core.arrays import Array
from companion.core.enums import Sensor
from companion.core.kernel import short_calls
from companion.estimation.filter_state import FilterState
from companion.estimation.innovation_monitor import RejectionRun
from companion.estimation.layout import ErrorIndex, require_eskf
from companion.estimation.replay import ReplayedState

# Limits of a valid state; that of the position is safety.position_std_m of the vehicle file. Without satellites that of the
# velocity is another one, and the position has none: see `without_satellites`.
ATTITUDE_STD_MAX_RAD = 0.1
VELOCITY_STD_MAX_M_S = 0.5
ATTITUDE_AGE_MAX_S = 0.5  # only measurements keep the attitude's error small

# Beyond these limits the filter has diverged and restarts.
SPEED_MAX_M_S = 40.0
DISTURBANCE_MAX_M_S2 = 15.0
REJECTED_MAX_S = 2.0  # all attitudes or all velocities rejected for this long
REJECTED_MIN_COUNT = 10
ATTITUDE_STD_LOST_RAD = 1.5
VELOCITY_STD_LOST_M_S = 50.0

REASONS = (  # of validity.c, which has these limits from here
    "",
    "not finite",
    "covariance not positive",
    "state beyond any flight",
    "covariance grown without bound",
)
_LIMITS = (ctypes.c_double * 4)(SPEED_MAX_M_S, DISTURBANCE_MAX_M_S2, ATTITUDE_STD_LOST_RAD**2, VELOCITY_STD_LOST_M_S**2)


@functools.cache
def _check() -> Callable[[int], int]:
    """validity.c with these limits; raises `companion.core.kernel.ArtifactMissing` when it is not built."""
    function = short_calls(require_eskf()).eskf_divergence
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return lambda address: int(function(address, ctypes.addressof(_LIMITS)))


def largest_std(covariance: Array) -> float:
    """Largest standard deviation over all directions of a 3x3 covariance; inf when a number in it is not finite.

    The largest root of the characteristic polynomial in closed form (O. Smith, Communications of the ACM 4(4), 1961):
    every state needs four of these, and LAPACK takes five times as long.
    """
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = covariance.tolist()
    if not isfinite(xx + xy + xz + yx + yy + yz + zx + zy + zz):
        return inf
    mean = (xx + yy + zz) / 3
    xx, yy, zz = xx - mean, yy - mean, zz - mean
    spread = sqrt((xx * xx + yy * yy + zz * zz + 2 * (xy * xy + xz * xz + yz * yz)) / 6)
    largest = mean
    if spread > 0:
        det = xx * (yy * zz - yz * yz) - xy * (xy * zz - yz * xz) + xz * (xy * yz - yy * xz)
        # the cosine of three times the angle; only rounding takes it out of its range
        largest += 2 * spread * cos(acos(max(-1.0, min(1.0, det / (2 * spread**3)))) / 3)
    return sqrt(max(largest, 0.0))


def persistently_rejected(filter_state: FilterState | ReplayedState, sensor: Sensor) -> bool:
    """True when all measurements of a sensor were rejected for REJECTED_MAX_S, at least REJECTED_MIN_COUNT of them."""
    return is_persistent(filter_state.rejection_runs.get(sensor), filter_state.time_s)


def is_persistent(run: RejectionRun | None, now_s: float) -> bool:
    """True when a run of rejections has lasted for REJECTED_MAX_S, with at least REJECTED_MIN_COUNT of them."""
    return run is not None and run.length >= REJECTED_MIN_COUNT and now_s - run.start_s > REJECTED_MAX_S


def divergence(filter_state: FilterState | ReplayedState) -> str:
    """The reason why the filter must restart, "" when there is none."""
    if reason := REASONS[_check()(filter_state.address)]:
        return reason
    sensors = (Sensor.ATTITUDE, Sensor.VELOCITY)
    return next((f"{sensor} rejected" for sensor in sensors if persistently_rejected(filter_state, sensor)), "")


def converged(
    filter_state: FilterState,
    now_s: float,
    position_std_m: float,
    position_std_max_m: float,
    velocity_std_max_m_s: float = VELOCITY_STD_MAX_M_S,
) -> bool:
    """True while the estimate is accurate enough for flight.

    position_std_m: the smaller of the standard deviations in the world and relative to the bundle.
    """
    covariance = filter_state.covariance
    return (
        isfinite(position_std_m)
        and position_std_m <= position_std_max_m
        and largest_std(covariance[ErrorIndex.ATTITUDE, ErrorIndex.ATTITUDE]) <= ATTITUDE_STD_MAX_RAD
        and largest_std(covariance[ErrorIndex.VELOCITY, ErrorIndex.VELOCITY]) <= velocity_std_max_m_s
        and now_s - filter_state.accepted_s.get(Sensor.ATTITUDE, -inf) <= ATTITUDE_AGE_MAX_S
    )
