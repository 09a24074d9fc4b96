"""A lithium battery: open-circuit curve, internal resistance, slow polarisation.

    E(z) = cells · e(z)                        open-circuit voltage at remaining charge z
    V = E - U - R I,  V I = P                  so V = ½ (E' + √(E'² - 4 R P)) with E' = E - U
    U̇ = (R_s I - U) / τ_s                      recovers without load
    ż = -I / Q

Beyond empty, e(z) falls in proportion from e(0) to zero over BEYOND_EMPTY of the capacity. E' is at least SOURCE_MIN_V: a
larger U in a short polarisation_time_s would make the source negative.

(First-order Thévenin model: G. Plett, "Battery Management Systems", volume 1, chapter 2.)
"""

import bisect
import math
from typing import Annotated

from companion.core.config import Section, integer, number

BEYOND_EMPTY = 0.03  # of the capacity; assumed: the curve of a lithium cell is steep below 3.3 V
SOURCE_MIN_V = 0.1  # so that every voltage and current is finite

CellVoltage = Annotated[float, number(2.5, 4.4, "V")]


class BatteryConfig(Section, frozen=True):
    """The `[battery]` table of an airframe."""

    cells: Annotated[int, integer(1, 14)]
    capacity_ah: Annotated[float, number(0.1, 200.0, "Ah")]
    internal_resistance_ohm: Annotated[float, number(1e-4, 0.5, "ohm, whole pack")]
    polarisation_resistance_ohm: Annotated[float, number(0.0, 0.5, "ohm, whole pack")]
    polarisation_time_s: Annotated[float, number(0.1, 1000.0, "s")]
    reference_voltage_v: Annotated[
        float, number(3.0, 60.0, "V, terminal voltage at which the rotors reach their thrust_max_n")
    ]
    initial_remaining: Annotated[float, number(0.0, 1.0, "of the capacity")]
    avionics_power_w: Annotated[float, number(0.0, 500.0, "W, everything but the rotors")]
    open_circuit_v: tuple[  # one cell at 0, 10, … 100 % remaining
        CellVoltage, CellVoltage, CellVoltage, CellVoltage, CellVoltage, CellVoltage,
        CellVoltage, CellVoltage, CellVoltage, CellVoltage, CellVoltage,
    ]  # fmt: skip


class Battery:
    """Terminal voltage and remaining charge under a load; deterministic, no noise."""

    def __init__(self, config: BatteryConfig) -> None:
        self._config = config
        self._grid = [i / 10 for i in range(11)]
        self._polarisation_v = 0.0
        self._overdrawn = 0.0  # beyond empty, of the capacity
        self.remaining = config.initial_remaining
        self.current_a = 0.0
        self.voltage_v = self.open_circuit_v

    @property
    def collapse(self) -> float:
        """Open-circuit voltage over that of the curve: 1 down to empty, 0 where BEYOND_EMPTY is drawn, too."""
        return max(1.0 - self._overdrawn / BEYOND_EMPTY, 0.0)

    @property
    def open_circuit_v(self) -> float:
        """Voltage of the rested pack at the present charge [V]."""
        curve = self._config.open_circuit_v
        i = min(max(bisect.bisect_right(self._grid, self.remaining) - 1, 0), 9)
        fraction = self.remaining * 10 - i
        return self._config.cells * (curve[i] + fraction * (curve[i + 1] - curve[i])) * self.collapse

    def step(self, rotor_power_w: float, step_s: float) -> float:
        """Deliver rotor and avionics power for a while; returns the terminal voltage [V].

        A load beyond the pack's limit gets the power of that limit, at half the source voltage.
        """
        c = self._config
        source_v = max(self.open_circuit_v - self._polarisation_v, SOURCE_MIN_V)
        power_w = min(rotor_power_w + c.avionics_power_w, source_v**2 / (4 * c.internal_resistance_ohm))
        self.voltage_v = 0.5 * (source_v + math.sqrt(max(source_v**2 - 4 * c.internal_resistance_ohm * power_w, 0.0)))
        self.current_a = power_w / self.voltage_v
        keep = math.exp(-step_s / c.polarisation_time_s)
        self._polarisation_v = keep * self._polarisation_v + (1 - keep) * c.polarisation_resistance_ohm * self.current_a
        left = self.remaining - self.current_a * step_s / (3600 * c.capacity_ah)
        self.remaining = max(left, 0.0)
        self._overdrawn += max(-left, 0.0)
        return self.voltage_v
