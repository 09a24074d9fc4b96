"""Bounds of the filter's constant and slow states: one that runs away is put back to its prior.

Such a state has explained something that is no error of its sensor. The filter goes on without it: the state has its
prior value and variance again and is correlated with nothing, so what it had explained has to be explained by others.
"""

from math import hypot, inf, radians, sqrt
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from companion.core.enums import FilterOffset
from companion.estimation.filter_state import FilterState
from companion.estimation.layout import STATE_SIZE, ErrorIndex, StateIndex


class Bound(NamedTuple):
    """The largest distance of a state from its prior value."""

    offset: FilterOffset
    state: slice
    error: slice
    prior: float
    limit: float


BOUNDS = (
    # PX4 subtracts its own estimate; what is left of a calibrated gyroscope is its drift by temperature since the last
    # estimate, 0.01 rad/s.
    Bound(FilterOffset.GYRO_BIAS, StateIndex.GYRO_BIAS, ErrorIndex.GYRO_BIAS, 0.0, 0.05),
    # PX4 subtracts its own estimate, up to 0.4 m/s² (EKF2_ABL_LIM). Poor sensors keep 0.3, an attitude 1.5° wrong looks
    # like 0.26 more, and vibration may add as much.
    Bound(FilterOffset.ACCEL_BIAS, StateIndex.ACCEL_BIAS, ErrorIndex.ACCEL_BIAS, 0.0, 1.0),
    # Two images at 30 Hz; the latency of a vehicle file is wrong by 30 ms at most.
    Bound(FilterOffset.CAMERA_DELAY, StateIndex.CAMERA_DELAY, ErrorIndex.CAMERA_DELAY, 0.0, 0.06),
    # A load of a third or a wrong propeller; with half or one and a half of the thrust hover is outside of the limits.
    Bound(FilterOffset.THRUST_SCALE, StateIndex.THRUST_SCALE, ErrorIndex.THRUST_SCALE, 1.0, 0.5),
    # A mount is fitted by hand to 2 or 3 degrees about each axis.
    Bound(FilterOffset.MOUNT_OFFSET, StateIndex.MOUNT_OFFSET, ErrorIndex.MOUNT_OFFSET, 0.0, radians(10.0)),
)
# Of every number of the state: its prior, and the distance from it at which a state cannot be beyond its bound.
PRIOR, WITHIN = np.zeros(STATE_SIZE), np.full(STATE_SIZE, inf)
for _bound in BOUNDS:
    PRIOR[_bound.state] = _bound.prior
    WITHIN[_bound.state] = _bound.limit / sqrt(_bound.state.stop - _bound.state.start)


def put_back(filter_state: FilterState, initial_variances: Array) -> tuple[FilterOffset, ...]:
    """Put every state beyond its bound back to its prior, in place; returns their names.

    initial_variances: diagonal of the covariance at the start, (51,).
    """
    if not (np.abs(filter_state.nominal - PRIOR) > WITHIN).any():
        return ()
    numbers = filter_state.nominal.tolist()
    beyond = [bound for bound in BOUNDS if hypot(*(x - bound.prior for x in numbers[bound.state])) > bound.limit]
    for bound in beyond:
        rows, covariance = bound.error, filter_state.covariance
        filter_state.nominal[bound.state] = bound.prior
        covariance[rows, :] = covariance[:, rows] = 0.0
        covariance[range(rows.start, rows.stop), range(rows.start, rows.stop)] = initial_variances[rows]
    return tuple(bound.offset for bound in beyond)
