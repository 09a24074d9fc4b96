"""What takes the place of the flight controller's position and velocity in a flight without satellites.

The flight controller has attitude and height then, and no horizontal position or velocity. World W begins where the filter
starts, with the heading of the flight controller. While the aircraft stands disarmed it has no velocity; that keeps the
filter's velocity and position known until the motors start. In flight the barometer gives the height, the inertial
measurements carry velocity and position, and the bundle in sight makes both known. Between the take-off and the first
sight of the bundle the horizontal position is lost; the bundle is then placed relative to the aircraft, as always, and
the velocity follows from the next observations.
"""

from math import isfinite
from typing import NamedTuple

import msgspec
import numpy as np

from companion.core.arrays import Array
from companion.core.enums import Sensor
from companion.core.messages import FcuStatus
from companion.core.vehicle import Vehicle
from companion.estimation.filter_state import FilterState
from companion.estimation.history import HistoryEntry
from companion.estimation.layout import ErrorIndex

# White part of the height by pressure, with the propellers' pressure on the sensor. What changes slowly is in the bias of
# the position, as the error of GNSS is in other flights.
HEIGHT_STD_M = 0.3
UNUSED_AXIS_M = 1e4  # std of an axis that is no measurement: hundreds of them say nothing about a drift of metres
# The bias of the position is the barometer's here, its change with the weather and the wind on the sensor; there is no error
# of a velocity that the flight controller does not have.
HEIGHT_BIAS_M, HEIGHT_WALK_M_SQRT_S = 0.3, 0.02
VELOCITY_BIAS_M_S = 0.001
ANCHOR_STD_M = 1e-3  # of a place that is right by definition
HEIGHT_AGE_S = 1.0  # of the height with which the filter starts
# Largest std of the velocity of a valid state, also in offboard after satellites were lost; the position's follows from it.
# Out of sight of the bundle the choice is between this estimate and none: PX4's Descend drifts with the wind, by 18 m in
# 4 m/s, and inertial sensors by a metre.
ALONE_VELOCITY_STD_MAX_M_S = 1.2
# Of a start in flight, after a restart of the process: the pilot or the wind moves the aircraft.
VELOCITY_STD_M_S = 2.0


def height_noise() -> Array:
    """Measurement noise of `Sensor.POSITION` with a height alone, (3, 3)."""
    return np.diag([UNUSED_AXIS_M**2, UNUSED_AXIS_M**2, HEIGHT_STD_M**2])


def settings_of(vehicle: Vehicle) -> Vehicle:
    """The vehicle with the errors of such a flight in the filter's settings."""
    replace, settings = msgspec.structs.replace, vehicle.estimator
    settings = replace(
        settings,
        initial=replace(settings.initial, gnss_bias_m=HEIGHT_BIAS_M),
        process=replace(settings.process, gnss_bias_m_sqrt_s=HEIGHT_WALK_M_SQRT_S),
        velocity_bias=replace(settings.velocity_bias, std_m_s=VELOCITY_BIAS_M_S),
    )
    return replace(vehicle, estimator=settings)


class _Height(NamedTuple):
    stamp_s: float
    above_start_m: float


class HeightAiding:
    """Measurements for the filter from the status of a flight controller that has no position."""

    def __init__(self) -> None:
        self._zero_m: float | None = None  # height by pressure at the first measurement
        self._barometer_m = float("nan")
        self._newest: _Height | None = None
        self.at_rest = True

    def entries(self, status: FcuStatus, stamp_s: float) -> list[HistoryEntry]:
        """What a status measures: a new height, and on the ground no velocity."""
        found: list[HistoryEntry] = []
        self.at_rest = status.landed and not status.armed
        height_m = status.baro_altitude_m
        if isfinite(height_m) and height_m != self._barometer_m:
            self._zero_m = height_m if self._zero_m is None else self._zero_m
            self._barometer_m, self._newest = height_m, _Height(stamp_s, height_m - self._zero_m)
            found.append(HistoryEntry(stamp_s, Sensor.POSITION, np.array([0.0, 0.0, self._newest.above_start_m])))
        if self.at_rest:
            found.append(HistoryEntry(stamp_s, Sensor.VELOCITY, np.zeros(3)))
        return found

    def start_height_m(self, now_s: float) -> float | None:
        """Height over the first measurement for a start of the filter; None while it is not known."""
        newest = self._newest
        return None if newest is None or now_s - newest.stamp_s > HEIGHT_AGE_S else newest.above_start_m

    @staticmethod
    def anchor(filter_state: FilterState) -> None:
        """Move the uncertainty of the world's origin out of the position, while the pilot flies; in place.

        Nothing measures where the origin is, so a position that is uncertain to tens of metres after minutes out of sight
        would move with every observation, and with it every reference in the world. The world stands where the
        bundle is (δp − δp_M is the new error of the position), or, before one is placed, where the aircraft is.
        The height by pressure, p + b, keeps its error.
        """
        T = np.eye(len(filter_state.covariance))
        others = [filter_state.errors_of(name).start for name in filter_state.others]
        position, bias, bundle = ErrorIndex.POSITION, ErrorIndex.GNSS_BIAS, ErrorIndex.MARKER_POSITION
        if filter_state.marker_known:
            T[position, bundle], T[bias, bundle], T[bundle, bundle] = -np.eye(3), np.eye(3), 0.0
            for first in others:
                T[first : first + 3, bundle] = -np.eye(3)
            fixed = range(bundle.start, bundle.stop)
        else:
            fixed = range(position.start, position.start + 2)
            for axis, index in enumerate(fixed):
                T[index, index], T[bias.start + axis, index] = 0.0, 1.0
                T[[first + axis for first in others], index] = -1.0
        anchored = T @ filter_state.covariance @ T.T
        anchored[fixed, fixed] += ANCHOR_STD_M**2
        filter_state.covariance[:] = (anchored + anchored.T) / 2

    def doubt_motion(self, filter_state: FilterState) -> None:
        """A start in flight: the velocity is not known."""
        if not self.at_rest:
            diagonal = np.arange(*ErrorIndex.VELOCITY.indices(ErrorIndex.VELOCITY.stop))
            filter_state.covariance[diagonal, diagonal] = VELOCITY_STD_M_S**2
