"""The battery voltage that the thrust model may use: within the range of a battery, and not faster than one changes.

Thrust grows with a power of the voltage, so that a wrong voltage is a wrong thrust: 65 V in the place of 15 for 0.6 s let
an aircraft fall by 3 m. A voltage out of range is not used, and the last one stays. A wrong one within the range moves
the model slowly, and the filter's disturbance follows. The safety table judges the voltage as it was reported.
"""

import math

RANGE = (0.75, 1.15)  # of the reference: for a cell of 3.8 V 2.85 V, below the emptiest, to 4.37 V, above the fullest
# Of the reference, per second: twice the largest change of a smoothed voltage in simulated flights (1.3 %/s, take-off).
RATE_1_S = 0.025
# Of one lithium cell [V]: charged; discharged under load, below which it is damaged; at the critical voltage of a vehicle.
FULL_CELL_V, EMPTY_CELL_V, CRITICAL_CELL_V = 4.2, 3.0, 3.3


class ThrustVoltage:
    """The voltage for the thrust model; `value_v` is the reference until one was taken."""

    def __init__(self, reference_v: float) -> None:
        self._reference_v = reference_v
        self._stamp_s = -math.inf
        self.value_v = reference_v
        self.rejected = 0  # out of range

    @property
    def stamp_s(self) -> float:
        """Of the newest voltage that was used, -inf before the first."""
        return self._stamp_s

    def take(self, voltage_v: float, stamp_s: float, smoothing_s: float = 0.0, free: bool = False) -> bool:
        """Take a voltage of `stamp_s`; returns whether it was used.

        smoothing_s: time constant of a first-order filter; free: no limit of the rate, on the ground.
        """
        if not is_plausible(voltage_v, self._reference_v):
            self.rejected += 1
            return False
        if self._stamp_s == -math.inf or free:
            self.value_v = voltage_v
        else:
            dt_s = max(0.0, stamp_s - self._stamp_s)
            share = 1 - math.exp(-dt_s / smoothing_s) if smoothing_s else 1.0
            limit_v = RATE_1_S * self._reference_v * dt_s
            self.value_v += min(limit_v, max(-limit_v, share * (voltage_v - self.value_v)))
        self._stamp_s = stamp_s
        return True


def cells(critical_v: float) -> int:
    """Number of lithium cells in series of a battery that is critical at this voltage."""
    return max(1, round(critical_v / CRITICAL_CELL_V))


def is_plausible(voltage_v: float, reference_v: float) -> bool:
    """Whether a battery in flight can have this voltage; NaN and 0 mean "not measured"."""
    return RANGE[0] * reference_v <= voltage_v <= RANGE[1] * reference_v


def outside_range_v(voltage_v: float, reference_v: float) -> float:
    """How far a voltage lies outside of the range [V]; 0 within it."""
    low_v, high_v = (share * reference_v for share in RANGE)
    return max(low_v - voltage_v, voltage_v - high_v, 0.0)
