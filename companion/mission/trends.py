"""What the safety monitors need over time: shares and medians of the last second."""

from collections import deque
from statistics import median

from companion.core.enums import Sensor
from companion.core.messages import ControlStatus, EstimatorStatus

WINDOW_S = 1.0
MIN_INNOVATIONS = 5  # with fewer in a window there is no median
MIN_CYCLES = 10


class InnovationTrend:
    """How well measurements agree with the filter: median over a window of NIS / degrees of freedom, by sensor.

    NIS, the normalised innovation squared νᵀ S⁻¹ ν, is chi-square distributed with as many degrees of freedom as the
    residual has numbers while the filter is consistent (Bar-Shalom, Li, Kirubarajan, "Estimation with Applications to
    Tracking and Navigation", section 5.4): about 1 per degree. The median, because the filter's gate rejects single
    outliers; a median shows a disagreement that lasts.
    """

    def __init__(self) -> None:
        self._windows: dict[Sensor, deque[tuple[float, float]]] = {}

    def take(self, status: EstimatorStatus) -> None:
        for innovation in status.innovations:
            window = self._windows.setdefault(innovation.sensor, deque())
            window.append((status.stamp_s, innovation.nis / max(innovation.dof, 1)))

    def medians(self, now_s: float) -> dict[Sensor, float]:
        """By sensor; without sensors of too few updates in the last `WINDOW_S`. NaN counts as inf."""
        result = {}
        for sensor, window in self._windows.items():
            while window and window[0][0] < now_s - WINDOW_S:
                window.popleft()
            if len(window) >= MIN_INNOVATIONS:
                result[sensor] = median(value if value == value else float("inf") for _, value in window)
        return result


class ControlTrend:
    """Shares of the controller's last cycles whose solve failed, or which missed their deadline."""

    def __init__(self) -> None:
        self._cycles: deque[tuple[float, int, int]] = deque()

    def take(self, control: ControlStatus) -> None:
        counts = (control.solver_failures, control.deadline_misses)
        if self._cycles and any(new < old for new, old in zip(counts, self._cycles[-1][1:], strict=True)):
            self._cycles.clear()  # a restarted controller counts from zero
        self._cycles.append((control.stamp_s, *counts))

    def shares(self, now_s: float) -> tuple[float, float]:
        """(solver failures, deadline misses) per cycle of the last `WINDOW_S`, 0 to 1; 0 while there are too few."""
        cycles = self._cycles
        while cycles and cycles[0][0] < now_s - WINDOW_S:
            cycles.popleft()
        if len(cycles) <= MIN_CYCLES:
            return 0.0, 0.0
        steps = len(cycles) - 1
        failures, misses = (min((cycles[-1][i] - cycles[0][i]) / steps, 1.0) for i in (1, 2))
        return failures, misses
