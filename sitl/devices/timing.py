"""Clock and way of a simulated device's messages: when it measures, how they are stamped, when they arrive."""

import math
from typing import Annotated

import numpy as np

from companion.core.config import Section, number
from sitl.camera_errors import ImageTransport

TIME_EPSILON_S = 1e-6  # times are multiples of a step up to rounding


class Timing(Section, frozen=True):
    """Rate, delay and clock of a device."""

    rate_hz: Annotated[float, number(0.5, 240, "Hz")]
    latency_s: Annotated[float, number(0.0, 1.0, "s from the measurement to its arrival")] = 0.0
    latency_jitter_s: Annotated[float, number(0.0, 0.2, "s, standard deviation")] = 0.0
    lost: Annotated[float, number(0.0, 0.95, "(share of the messages that do not arrive)")] = 0.0
    # The device stamps by its own clock, which a calibration maps to the companion's; this is what the calibration misses.
    clock_offset_s: Annotated[float, number(-1.0, 1.0, "s, added to every stamp")] = 0.0
    clock_drift_ppm: Annotated[float, number(-500, 500, "ppm")] = 0.0


class Clock:
    """The times of one device."""

    def __init__(self, timing: Timing, rng: np.random.Generator) -> None:
        self._timing = timing
        self._transport = ImageTransport(timing.latency_s, timing.latency_jitter_s, timing.lost, rng)
        self._count = 0

    def next_s(self) -> float:
        """Time of the next measurement."""
        return self._count / self._timing.rate_hz

    def due(self, now_s: float) -> bool:
        """Whether to measure now; True once for each measurement. Times that were missed are skipped."""
        if now_s < self.next_s() - TIME_EPSILON_S:
            return False
        self._count = max(self._count, math.floor((now_s + TIME_EPSILON_S) * self._timing.rate_hz)) + 1
        return True

    def arrival_s(self, measured_s: float) -> float | None:
        """When a message arrives; None: it is lost."""
        latency_s = self._transport.latency_s(measured_s)
        return None if latency_s is None else measured_s + latency_s

    def stamp_s(self, measured_s: float) -> float:
        """The stamp of a measurement: its time as the calibrated clock of the device has it."""
        return measured_s * (1.0 + 1e-6 * self._timing.clock_drift_ppm) + self._timing.clock_offset_s
