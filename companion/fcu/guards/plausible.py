"""THE table of the quantities that come over the link and reach control: range, change and age of each.

A message with a value out of its range is dropped and counted. So is one that has changed by more than an aircraft can,
unless `CONFIRM` messages in a row agree on the new value for `CONFIRM_S`: then it is a reset of PX4's estimator, a jump
of the receiver or a new home position, which the filter and the safety table judge. One wrong message between good ones
therefore never reaches control. Content older than its age is absent: a message that is so late when it arrives is not
valid and counts, too, and a slow state is no longer published (`companion.fcu.status`). What was found lately is in
`FcuStatus.implausible`, which the safety table reads.

A voltage is reported as it is, because the battery's monitors read it; `companion.core.voltage` applies its range and its
change where it reaches the thrust model. Discrete states (mode, armed, landed) and the RC's channels have confirmations
of their own; forward ranges have the limits that their sensor reports.

The limits lie far outside of what these multirotors do (their vehicle files allow 1.05 rad of tilt and some m/s).
"""

import math
from enum import StrEnum
from typing import NamedTuple

from companion.core.geodesy import LocalFrame
from companion.core.trajectory_messages import Quat, Vec3
from companion.core.voltage import RANGE, RATE_1_S

CONFIRM, CONFIRM_S = 3, 0.04  # two periods of a fast stream
LATELY_S = 0.5  # a quantity counts as implausible for this long after a dropped message
FAR_M = 10_000.0  # from the origin of PX4's local frame, and of altitudes from sea level
# From the measurement to its arrival: twice the age up to which a consumer uses it, below the 0.5 s by which the clock
# filter takes a stamp for one of another boot.
LATE_S = 0.4


class Quantity(StrEnum):
    """What the table limits."""

    ATTITUDE = "attitude"
    RATES = "body rates"
    IMU_RATES = "body rates of the IMU"
    SPECIFIC_FORCE = "specific force"
    POSITION = "position"
    VELOCITY = "velocity"
    VOLTAGE = "battery voltage"
    HOME = "home position"
    ALTITUDE = "altitude"
    GNSS = "GNSS position"
    GNSS_VELOCITY = "GNSS velocity"
    BAROMETER = "pressure altitude"


class Limits(NamedTuple):
    """One row: `largest` of each number; `step` + `rate_1_s` · time is the largest change between two messages."""

    largest: float
    step: float
    rate_1_s: float
    age_s: float  # content older than this is treated as absent
    unit: str
    smallest: float = -math.inf  # besides -`largest`


TABLE: dict[Quantity, Limits] = {
    # a quaternion's numbers; change: the angle between two attitudes [rad], a flip takes 10 rad/s
    Quantity.ATTITUDE: Limits(1.01, 0.15, 15.0, LATE_S, "rad"),
    # The range of PX4's gyros, 2000 °/s. Rotors of full and no thrust on one side turn an aircraft by 100 rad/s².
    Quantity.RATES: Limits(35.0, 5.0, 300.0, LATE_S, "rad/s"),
    # HIGHRES_IMU comes at 200 Hz and is integrated, so its step is smaller: one wrong sample turns the attitude by at most 1°.
    Quantity.IMU_RATES: Limits(35.0, 2.0, 300.0, LATE_S, "rad/s"),
    # The range of PX4's accelerometers, 16 g. A blow of more than half of it from sample to sample is no flight: a landing,
    # which no filter needs, or a wrong sample, which changes the velocity by at most 0.4 m/s.
    Quantity.SPECIFIC_FORCE: Limits(160.0, 80.0, 0.0, LATE_S, "m/s²"),
    Quantity.POSITION: Limits(FAR_M, 1.0, 30.0, LATE_S, "m"),
    # 3 g between two messages, and 1 m/s for a correction of PX4's estimator
    Quantity.VELOCITY: Limits(40.0, 1.0, 30.0, LATE_S, "m/s"),
    # as shares of the vehicle's reference voltage; applied by `companion.core.voltage`
    Quantity.VOLTAGE: Limits(RANGE[1], 0.0, RATE_1_S, 5.0, "of the reference", RANGE[0]),
    # east, north, up and altitude; PX4 sets home at arming where the aircraft stands. Sent every 5 s at least.
    Quantity.HOME: Limits(FAR_M, 5.0, 1.0, 15.0, "m"),
    Quantity.ALTITUDE: Limits(FAR_M, 3.0, 30.0, 3.0, "m"),
    # Receivers jump by 3 m near structures; latitude and longitude have a range of their own.
    Quantity.GNSS: Limits(FAR_M, 10.0, 40.0, 3.0, "m"),
    Quantity.GNSS_VELOCITY: Limits(40.0, 5.0, 30.0, 3.0, "m/s"),
    # gusts and rotors near a structure change the pressure by that of 2 m
    Quantity.BAROMETER: Limits(FAR_M, 3.0, 30.0, 1.0, "m"),
}
ANGULAR = (Quantity.ATTITUDE,)  # changes are angles between quaternions
APPLIED_LATER = (Quantity.VOLTAGE,)  # no message is dropped


class _Step:
    """The change of one quantity from message to message."""

    def __init__(self, limits: Limits, angular: bool) -> None:
        self._limits, self._angular = limits, angular
        self._value: tuple[float, ...] | None = None  # the newest that was accepted
        self._at_s = -math.inf
        self._other: tuple[float, ...] = ()  # the newest that was not
        self._other_s = self._other_since_s = -math.inf
        self._others = 0  # in a row that agree

    def accepts(self, value: tuple[float, ...], now_s: float) -> bool:
        if self._value is None or self._is_near(value, self._value, now_s - self._at_s):
            return self._accept(value, now_s)
        if self._others and self._is_near(value, self._other, now_s - self._other_s):
            self._others += 1
        else:
            self._others, self._other_since_s = 1, now_s
        self._other, self._other_s = value, now_s
        if self._others >= CONFIRM and now_s - self._other_since_s >= CONFIRM_S:
            return self._accept(value, now_s)
        return False

    def _accept(self, value: tuple[float, ...], now_s: float) -> bool:
        self._value, self._at_s, self._others = value, now_s, 0
        return True

    def _is_near(self, a: tuple[float, ...], b: tuple[float, ...], dt_s: float) -> bool:
        change = math.dist(a, b)
        if self._angular:  # a quaternion and its negative are one attitude; chord to angle
            change = 4.0 * math.asin(min(1.0, 0.5 * min(change, math.dist(a, [-x for x in b]))))
        return change <= self._limits.step + self._limits.rate_1_s * max(0.0, dt_s)


class Plausibility:
    """Applies the table; `counts` has the dropped messages by quantity."""

    def __init__(self, reference_v: float) -> None:
        """reference_v: battery voltage of the thrust model."""
        self._reference_v = reference_v
        self.counts: dict[Quantity, int] = dict.fromkeys(Quantity, 0)
        self._dropped_s: dict[Quantity, float] = {}
        self.reset()

    def reset(self) -> None:
        """The flight controller restarted: its next values need not be near its last ones."""
        self._steps = {
            quantity: _Step(limits, quantity in ANGULAR)
            for quantity, limits in TABLE.items()
            if quantity not in APPLIED_LATER
        }
        self._receiver = LocalFrame()

    def attitude(self, q: Quat, rates: Vec3, now_s: float) -> bool:
        """Whether an attitude and body rates [rad/s] may be used."""
        if not (self._in_range(Quantity.RATES, rates, now_s) and self._in_range(Quantity.ATTITUDE, q, now_s)):
            return False
        near_q, near_rates = self._near(Quantity.ATTITUDE, q, now_s), self._near(Quantity.RATES, rates, now_s)
        return near_q and near_rates

    def imu(self, rates: Vec3, force: Vec3, now_s: float) -> bool:
        """Whether an inertial measurement, [rad/s] and [m/s²], may be used."""
        if not (
            self._in_range(Quantity.IMU_RATES, rates, now_s) and self._in_range(Quantity.SPECIFIC_FORCE, force, now_s)
        ):
            return False
        near_rates, near_force = (
            self._near(Quantity.IMU_RATES, rates, now_s),
            self._near(Quantity.SPECIFIC_FORCE, force, now_s),
        )
        return near_rates and near_force

    def position(self, p: Vec3, v: Vec3, now_s: float) -> bool:
        """Whether a position [m] and velocity [m/s] may be used; both are judged, because they come together."""
        if not (self._in_range(Quantity.POSITION, p, now_s) and self._in_range(Quantity.VELOCITY, v, now_s)):
            return False
        near_p, near_v = self._near(Quantity.POSITION, p, now_s), self._near(Quantity.VELOCITY, v, now_s)
        return near_p and near_v

    def home(self, p: Vec3, altitude_m: float, now_s: float) -> bool:
        """Whether a home position [m] may be used; a local one of NaN (PX4: not set) is judged where it is read."""
        if any(map(math.isnan, p)):
            return self._in_range(Quantity.HOME, (altitude_m,), now_s)
        return self._passes(Quantity.HOME, (*p, altitude_m), now_s)

    def altitude(self, altitude_m: float, now_s: float) -> bool:
        """Whether PX4's altitude over mean sea level may be used."""
        return self._passes(Quantity.ALTITUDE, (altitude_m,), now_s)

    def barometer(self, altitude_m: float, now_s: float) -> bool:
        """Whether a pressure altitude may be used; NaN (PX4: none) is judged where it is read."""
        return math.isnan(altitude_m) or self._passes(Quantity.BAROMETER, (altitude_m,), now_s)

    def gnss(self, position: Vec3, v: tuple[float, float] | None, now_s: float) -> bool:
        """Whether a fix may be used: latitude, longitude [°], altitude [m]; east and north [m/s], None: not reported."""
        latitude, longitude, altitude_m = position
        if not (abs(latitude) <= 90.0 and abs(longitude) <= 180.0):
            self._drop(Quantity.GNSS, now_s)
            return False
        if not self._in_range(Quantity.GNSS, (altitude_m,), now_s):
            return False
        near_p = self._near(Quantity.GNSS, self._receiver.metres(position), now_s)
        near_v = v is None or self._passes(Quantity.GNSS_VELOCITY, v, now_s)
        return near_p and near_v

    def voltage(self, voltage_v: float, now_s: float) -> None:
        """Note a voltage as it was reported; NaN and 0 mean "not measured"."""
        if voltage_v > 0:
            self._in_range(Quantity.VOLTAGE, (voltage_v / self._reference_v,), now_s)

    def is_battery(self, voltage_v: float) -> bool:
        """Whether the battery of this aircraft can have a voltage; nothing is counted."""
        limits = TABLE[Quantity.VOLTAGE]
        return limits.smallest <= voltage_v / self._reference_v <= limits.largest

    def in_time(self, quantity: Quantity, stamp_s: float, now_s: float) -> bool:
        """Whether a measurement of `stamp_s` is not too old when it arrives; else it is counted."""
        if now_s - stamp_s <= TABLE[quantity].age_s:
            return True
        self._drop(quantity, now_s)
        return False

    def lately(self, now_s: float) -> tuple[Quantity, ...]:
        """The quantities that had an implausible value within `LATELY_S`."""
        return tuple(name for name, at_s in self._dropped_s.items() if now_s - at_s <= LATELY_S)

    def _in_range(self, quantity: Quantity, values: tuple[float, ...], now_s: float) -> bool:
        limits = TABLE[quantity]
        low, high = max(limits.smallest, -limits.largest), limits.largest
        for value in values:
            if not low <= value <= high:  # nor for NaN
                self._drop(quantity, now_s)
                return False
        return True

    def _passes(self, quantity: Quantity, values: tuple[float, ...], now_s: float) -> bool:
        return self._in_range(quantity, values, now_s) and self._near(quantity, values, now_s)

    def _near(self, quantity: Quantity, value: tuple[float, ...], now_s: float) -> bool:
        if self._steps[quantity].accepts(value, now_s):
            return True
        self._drop(quantity, now_s)
        return False

    def _drop(self, quantity: Quantity, now_s: float) -> None:
        self.counts[quantity] += 1
        self._dropped_s[quantity] = now_s
