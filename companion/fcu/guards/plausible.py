"""THE table of the quantities that come over the link and reach control: range, change and age of each.

A message with a value out of its range is dropped and counted. So is one that has changed by more than an aircraft can,
unless `CONFIRM` messages in a row agree on the new value for `CONFIRM_S`: then it is a reset of PX4's estimator, which
the filter and the safety table judge. One wrong message between good ones therefore never reaches control. What was
dropped lately is in `FcuStatus.implausible`, which the safety table reads. A voltage and a charge are reported as they
are; `companion.core.voltage` keeps an implausible voltage out of the thrust model.

The limits lie far outside of what these multirotors do (their vehicle files allow 1.05 rad of tilt and some m/s).
"""

import math
from enum import StrEnum
from typing import NamedTuple

from companion.core.messages import TOPICS
from companion.core.trajectory_messages import Quat, Vec3
from companion.core.voltage import is_plausible

CONFIRM, CONFIRM_S = 3, 0.04  # two periods of a fast stream
LATELY_S = 0.5  # a quantity counts as implausible for this long after a dropped message
FAR_M = 10_000.0  # from the origin of PX4's local frame


class Quantity(StrEnum):
    """What the table limits."""

    ATTITUDE = "attitude"
    RATES = "body rates"
    SPECIFIC_FORCE = "specific force"
    POSITION = "position"
    VELOCITY = "velocity"
    VOLTAGE = "battery voltage"
    HOME = "home position"


class Limits(NamedTuple):
    """One row: `largest` of each number; `step` + `rate` · time is the largest change between two messages."""

    largest: float
    step: float
    rate_1_s: float
    age_s: float  # content older than this is treated as absent
    unit: str


UNLIMITED = math.inf
TABLE: dict[Quantity, Limits] = {
    # a quaternion's numbers; change: the angle between two attitudes [rad], a flip takes 10 rad/s
    Quantity.ATTITUDE: Limits(1.01, 0.15, 15.0, TOPICS["fcu_attitude"].max_age_s, "rad"),
    # the range of PX4's gyros, 2000 °/s
    Quantity.RATES: Limits(35.0, UNLIMITED, UNLIMITED, TOPICS["fcu_attitude"].max_age_s, "rad/s"),
    # the range of PX4's accelerometers, 16 g
    Quantity.SPECIFIC_FORCE: Limits(160.0, UNLIMITED, UNLIMITED, TOPICS["fcu_imu"].max_age_s, "m/s²"),
    Quantity.POSITION: Limits(FAR_M, 1.0, 30.0, TOPICS["fcu_position"].max_age_s, "m"),
    # 3 g between two messages, and 1 m/s for a correction of PX4's estimator
    Quantity.VELOCITY: Limits(40.0, 1.0, 30.0, TOPICS["fcu_position"].max_age_s, "m/s"),
    Quantity.VOLTAGE: Limits(
        UNLIMITED, UNLIMITED, UNLIMITED, 5.0, "V"
    ),  # the range is relative to the vehicle's reference
    Quantity.HOME: Limits(FAR_M, UNLIMITED, UNLIMITED, UNLIMITED, "m"),
}


class _Step:
    """The change of one quantity from message to message."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
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
        if len(a) == 4:  # a quaternion and its negative are one attitude; chord to angle
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
        self._steps = {quantity: _Step(limits) for quantity, limits in TABLE.items() if limits.step < UNLIMITED}

    def attitude(self, q: Quat, rates: Vec3, now_s: float) -> bool:
        """Whether an attitude and body rates [rad/s] may be used."""
        inside = self._in_range(Quantity.RATES, rates, now_s) and self._in_range(Quantity.ATTITUDE, q, now_s)
        return inside and self._near(Quantity.ATTITUDE, q, now_s)

    def imu(self, rates: Vec3, force: Vec3, now_s: float) -> bool:
        """Whether an inertial measurement, [rad/s] and [m/s²], may be used."""
        return self._in_range(Quantity.RATES, rates, now_s) and self._in_range(Quantity.SPECIFIC_FORCE, force, now_s)

    def position(self, p: Vec3, v: Vec3, now_s: float) -> bool:
        """Whether a position [m] and velocity [m/s] may be used; both are judged, because they come together."""
        if not (self._in_range(Quantity.POSITION, p, now_s) and self._in_range(Quantity.VELOCITY, v, now_s)):
            return False
        near_p, near_v = self._near(Quantity.POSITION, p, now_s), self._near(Quantity.VELOCITY, v, now_s)
        return near_p and near_v

    def home(self, p: Vec3, now_s: float) -> bool:
        """Whether a home position may be used; NaN (PX4: not set) is judged where it is read."""
        return any(map(math.isnan, p)) or self._in_range(Quantity.HOME, p, now_s)

    def voltage(self, voltage_v: float, now_s: float) -> None:
        """Note a voltage as it was reported; NaN and 0 mean "not measured"."""
        if voltage_v > 0 and not is_plausible(voltage_v, self._reference_v):
            self._drop(Quantity.VOLTAGE, now_s)

    def lately(self, now_s: float) -> tuple[Quantity, ...]:
        """The quantities that had an implausible value within `LATELY_S`."""
        return tuple(name for name, at_s in self._dropped_s.items() if now_s - at_s <= LATELY_S)

    def _in_range(self, quantity: Quantity, values: tuple[float, ...], now_s: float) -> bool:
        if all(abs(value) <= TABLE[quantity].largest for value in values):  # False for NaN
            return True
        self._drop(quantity, now_s)
        return False

    def _near(self, quantity: Quantity, value: tuple[float, ...], now_s: float) -> bool:
        if self._steps[quantity].accepts(value, now_s):
            return True
        self._drop(quantity, now_s)
        return False

    def _drop(self, quantity: Quantity, now_s: float) -> None:
        self.counts[quantity] += 1
        self._dropped_s[quantity] = now_s
