"""What the safety monitors need over time: shares and medians of the last second, trends of the last minute."""

import math
from collections import deque
from statistics import linear_regression, median

from companion.core.enums import Sensor
from companion.core.frames import GRAVITY_M_S2, rotation_matrix, rpy_from_quat
from companion.core.messages import ControlStatus, EstimatorStatus, SentSetpoint, State
from companion.core.trajectory_messages import Quat, Vec3

WINDOW_S = 1.0
MIN_INNOVATIONS = 5  # with fewer in a window there is no median
MIN_CYCLES = 10
TREND_S = 60.0  # over which battery and wind are followed: many gusts
TREND_MIN_S = 30.0  # with less there is no trend
TREND_PERIOD_S = 0.5
WIND_S = (
    10.0  # over which the disturbance is averaged: a gust is shorter, and in a longer one the aircraft is carried away
)
WIND_MIN_S = 2.5  # less than PX4 climbs and holds before offboard
WIND_PERIOD_S = 0.1
CARRIED_S = 2.0  # longer than a gust that the aircraft comes back from
CARRIED_GAP_S = 0.3  # between two samples; the mission takes one in each step
CARRIED_SHARE = 0.97  # of the tilt, in the mean of that time: the controller has no more
LEAN_MIN = 0.1  # horizontal part of the mean body z: an aircraft that swings, or does not follow, leans in no direction
UPRIGHT_COS = 0.3  # an aircraft that lies over by more than 72° does not hover
REMAINING_MIN = 0.1  # charge at which PX4's estimate is no longer good for a landing


class InnovationTrend:
    """How well measurements agree with the filter: median over a window of NIS / degrees of freedom, by sensor.

    The mission's bundle speaks for its sensor while it is in sight. Of the others one may not stand where the map has
    it, and is refused: the one that agrees best shows whether the estimate is right.

    NIS, the normalised innovation squared νᵀ S⁻¹ ν, is chi-square distributed with as many degrees of freedom as the
    residual has numbers while the filter is consistent (Bar-Shalom, Li, Kirubarajan, "Estimation with Applications to
    Tracking and Navigation", section 5.4): about 1 per degree. The median, because the filter's gate rejects single
    outliers; a median shows a disagreement that lasts.
    """

    def __init__(self) -> None:
        self._windows: dict[tuple[Sensor, str], deque[tuple[float, float]]] = {}

    def take(self, status: EstimatorStatus) -> None:
        for innovation in status.innovations:
            window = self._windows.setdefault((innovation.sensor, innovation.bundle), deque())
            value = innovation.nis / max(innovation.dof, 1)
            window.append((status.stamp_s, value if value == value else math.inf))

    def medians(self, now_s: float) -> dict[Sensor, float]:
        """By sensor; without sensors of too few updates in the last `WINDOW_S`. NaN counts as inf."""
        own: dict[Sensor, float] = {}
        further: dict[Sensor, float] = {}
        for (sensor, bundle), window in self._windows.items():
            while window and window[0][0] < now_s - WINDOW_S:
                window.popleft()
            if len(window) < MIN_INNOVATIONS:
                continue
            found = median([value for _, value in window])
            if bundle:
                further[sensor] = min(found, further.get(sensor, math.inf))
            else:
                own[sensor] = found
        return further | own


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


class BatteryTrend:
    """How long the battery lasts: straight lines through voltage and charge of the last minute, to their ends.

    The voltage must not fall below battery_critical_v and the charge not below `REMAINING_MIN`; the earlier of the two
    counts. The voltage of a lithium battery falls faster at its end than such a line: its end is the critical voltage,
    not an empty battery.
    """

    def __init__(self, critical_v: float) -> None:
        self._critical_v = critical_v
        self._samples: deque[tuple[float, float, float]] = deque()  # time, voltage, charge (NaN: not measured)
        self.time_left_s: float | None = None  # to the end [s], inf while it does not fall; None: too few samples

    def reset(self) -> None:
        self._samples.clear()
        self.time_left_s = None

    def take(self, now_s: float, voltage_v: float, remaining: float) -> None:
        samples = self._samples
        if not voltage_v > 0 or (samples and now_s - samples[-1][0] < TREND_PERIOD_S):
            return
        samples.append((now_s, voltage_v, remaining))
        while samples[0][0] < now_s - TREND_S:
            samples.popleft()
        self.time_left_s = self._time_left_s()

    def _time_left_s(self) -> float | None:
        samples = self._samples
        if samples[-1][0] - samples[0][0] < TREND_MIN_S:
            return None
        times_s, voltages_v, charges = zip(*samples, strict=True)
        left_s = _reaches_s(times_s, voltages_v, self._critical_v)
        if not any(map(math.isnan, charges)):
            left_s = min(left_s, _reaches_s(times_s, charges, REMAINING_MIN))
        return left_s


def _reaches_s(times_s: tuple[float, ...], values: tuple[float, ...], end: float) -> float:
    """When the line of least squares through the values, which falls, reaches its end: seconds from the last one."""
    slope, intercept = linear_regression(times_s, values)
    present = slope * times_s[-1] + intercept
    return max(0.0, (present - end) / -slope) if slope < 0 else math.inf


class TiltTrend:
    """Mean tilt of the last minute over the tilt that the controller may use: the part of it that wind takes."""

    def __init__(self, tilt_max_rad: float) -> None:
        self._most = math.sin(tilt_max_rad)
        self._samples: deque[tuple[float, float, float]] = deque()  # time, horizontal part of body z

    def reset(self) -> None:
        self._samples.clear()

    def take(self, now_s: float, q_WB: Quat) -> None:
        samples = self._samples
        if samples and now_s - samples[-1][0] < TREND_PERIOD_S:
            return
        w, x, y, z = q_WB
        samples.append((now_s, 2.0 * (x * z + w * y), 2.0 * (y * z - w * x)))
        while samples[0][0] < now_s - TREND_S:
            samples.popleft()

    def share(self, now_s: float) -> float | None:
        """0 to 1; None: not enough samples."""
        samples = self._samples
        if not samples or samples[-1][0] - samples[0][0] < TREND_MIN_S:
            return None
        _, easts, norths = zip(*samples, strict=True)
        east, north = sum(easts) / len(samples), sum(norths) / len(samples)
        return math.hypot(east, north) / self._most


def balanced_W(q_WB: Quat) -> Vec3:
    """The disturbance that an attitude balances without acceleration [m/s²]: horizontal, where the thrust carries the weight."""
    x, y, z = rotation_matrix(q_WB)[:, 2].tolist()
    per_height = -GRAVITY_M_S2 / max(z, UPRIGHT_COS)
    return (per_height * x, per_height * y, 0.0)


class WindTrend:
    """The part of the controller's tilt that the mean disturbance of the last seconds takes."""

    def __init__(self, tilt_max_rad: float) -> None:
        self._most = math.sin(tilt_max_rad)
        self._samples: deque[tuple[float, Vec3]] = deque()  # time, disturbance [m/s²]

    def reset(self) -> None:
        self._samples.clear()

    def take(self, now_s: float, disturbance_W: Vec3) -> None:
        samples = self._samples
        if samples and now_s - samples[-1][0] < WIND_PERIOD_S:
            return
        samples.append((now_s, disturbance_W))
        while samples[0][0] < now_s - WIND_S:
            samples.popleft()

    def share(self) -> float | None:
        """Sine of the tilt that balances it, over that of the most that the controller may use; None: too few samples.

        Without acceleration the thrust per mass is g − d, so that the tilt is atan(|d_xy| / (g − d_z)).
        """
        samples = self._samples
        if not samples or samples[-1][0] - samples[0][0] < WIND_MIN_S:
            return None
        axes = zip(*(d for _, d in samples), strict=True)
        east, north, up = (math.fsum(axis) / len(samples) for axis in axes)
        return math.sin(math.atan2(math.hypot(east, north), GRAVITY_M_S2 - up)) / self._most


class CarriedTrend:
    """How far the wind carries the aircraft while the controller has no tilt left: over two seconds, against its own lean.

    At the limit is what the controller asks for or what the filter says, whichever leans more: the commands contain what
    the flight controller's own attitude is wrong by. The NMPC bounds roll and pitch each (`acados_gen.ocp`), the fallback the
    whole tilt. A return that makes way with all of the tilt moves with its lean, and is not carried.
    """

    def __init__(self, tilt_max_rad: float) -> None:
        self._most_rad = tilt_max_rad
        self._samples: deque[tuple[float, float, Vec3, Vec3]] = deque()  # time, share of the tilt, position, body z

    def reset(self) -> None:
        self._samples.clear()

    def take(self, now_s: float, sent: SentSetpoint, state: State, cone: bool) -> None:
        """cone: the fallback flies."""
        samples = self._samples
        if samples and now_s - samples[-1][0] > CARRIED_GAP_S:
            samples.clear()
        roll, pitch, _ = rpy_from_quat(state.q_WB)
        leans = (_lean_rad(sent.roll_rad, sent.pitch_rad, cone), _lean_rad(roll, pitch, cone))
        x, y, z = rotation_matrix(state.q_WB)[:, 2].tolist()
        samples.append((now_s, max(leans) / self._most_rad, state.p_W, (x, y, z)))
        while len(samples) > 1 and samples[1][0] <= now_s - CARRIED_S:
            samples.popleft()

    def moved_m(self, now_s: float) -> float | None:
        """Against the mean lean [m]; 0 while there is tilt left; None: not known for two seconds."""
        samples = self._samples
        if not samples or samples[0][0] > now_s - CARRIED_S or samples[-1][0] < now_s - CARRIED_GAP_S:
            return None
        if math.fsum(share for _, share, _, _ in samples) < CARRIED_SHARE * len(samples):
            return 0.0
        lean_x, lean_y = (math.fsum(z_W[axis] for _, _, _, z_W in samples) for axis in (0, 1))
        lean = math.hypot(lean_x, lean_y)
        if lean < LEAN_MIN * len(samples):
            return 0.0
        (_, _, before, _), (_, _, now, _) = samples[0], samples[-1]
        return -((now[0] - before[0]) * lean_x + (now[1] - before[1]) * lean_y) / lean


def _lean_rad(roll_rad: float, pitch_rad: float, cone: bool) -> float:
    """The larger of roll and pitch, or the whole tilt."""
    if cone:
        return math.acos(max(-1.0, min(1.0, math.cos(roll_rad) * math.cos(pitch_rad))))
    return max(abs(roll_rad), abs(pitch_rad))
