"""The input of the prediction: the setpoints that were really sent, as a piecewise-constant function of time.

A setpoint acts from `actuation_s` after it was sent until the next one acts, for COMMAND_MAX_AGE_S at most. It counts
only while the flight controller reports OFFBOARD. Otherwise, or without a setpoint, no input is known (None) and the
filter coasts.
"""

from bisect import bisect_right
from collections.abc import Iterator
from math import ceil, inf
from typing import NamedTuple

from companion.core.arrays import Array
from companion.core.messages import TOPICS
from companion.estimation.gnss_walk import GnssWalk
from companion.estimation.imu import SHORTEST_S, ImuSamples
from companion.estimation.imu_noise import ImuNoise
from companion.estimation.mount_noise import MountNoise
from companion.estimation.schedule import Schedule

COMMAND_MAX_AGE_S = 0.5  # PX4 ends offboard mode after about this time without a setpoint
MODE_MAX_AGE_S = TOPICS["fcu_status"].max_age_s
ACCURACY_PERIOD_S = 1.0  # between two that are kept
STEP_MAX_S = 0.02  # longest step of the integration; a seventh of the attitude time constant


class Command(NamedTuple):
    """An input of the flight model."""

    control: Array  # thrust 0..1, roll [rad], pitch [rad], yaw rate [rad/s]
    parameters: Array  # of the flight model, at the battery voltage of that moment


class ActingThrust(NamedTuple):
    """The thrust command that the rotors followed."""

    mean: float  # 0..1
    parameters: Array  # of the flight model


class _Mode:
    """An interval in which every report gave the same mode."""

    __slots__ = ("start_s", "seen_s", "offboard")

    def __init__(self, stamp_s: float, offboard: bool) -> None:
        self.start_s = self.seen_s = stamp_s
        self.offboard = offboard


class Inputs:
    """The inputs of the last seconds.

    actuation_s: delay from sending a setpoint to its force, in addition to the attitude lag of the model;
    keep_s: how long inputs are kept. Its length is the number of setpoints and mode intervals. accuracy_m: standard deviations of
    the receiver's position, horizontal of each axis and vertical.
    """

    def __init__(self, actuation_s: float, keep_s: float) -> None:
        self._actuation_s = actuation_s
        self._keep_s = keep_s + COMMAND_MAX_AGE_S + MODE_MAX_AGE_S
        self._times: list[float] = []  # when each command starts to act, ascending
        self._commands: list[Command] = []
        self._modes: list[_Mode] = []
        self.imu, self.imu_noise = ImuSamples(self._keep_s), ImuNoise(self._keep_s)
        self.gnss_walk, self.mount_noise = GnssWalk(self._keep_s), MountNoise(self._keep_s)
        self.accuracy_m = Schedule[tuple[float, float]](self._keep_s, ACCURACY_PERIOD_S)
        self._settled_s, self._settles_s = -inf, keep_s

    def __len__(self) -> int:
        return len(self._times) + len(self._modes) + len(self.imu)

    def add_setpoint(self, sent_s: float, command: Command) -> float:
        """Insert a setpoint; returns the time from which the input has changed."""
        acts_s = sent_s + self._actuation_s
        at = bisect_right(self._times, acts_s)
        self._times.insert(at, acts_s)
        self._commands.insert(at, command)
        return acts_s

    def set_mode(self, stamp_s: float, offboard: bool) -> float | None:
        """Insert the mode reported at stamp_s; returns the time from which the input has changed, or None."""
        last = self._modes[-1] if self._modes else None
        if last and stamp_s < last.seen_s:
            return None  # a later report arrived first
        if last and last.offboard == offboard and stamp_s - last.seen_s <= MODE_MAX_AGE_S:
            last.seen_s = stamp_s
            return None
        self._modes.append(_Mode(stamp_s, offboard))
        return stamp_s

    def noise_changes_s(self, t: float) -> float:
        """When other noise applies than at t; inf: not known yet."""
        return min(self.imu_noise.changes_s(t), self.gnss_walk.changes_s(t), self.mount_noise.changes_s(t))

    def settle(self, now_s: float, flying: bool) -> None:
        """Measure the noise of the inertial samples that no later message can change."""
        until_s = now_s - self._settles_s
        for stamp_s, values in self.imu.between(self._settled_s, until_s):
            self.imu_noise.add(stamp_s, values[:3], values[3:], flying)
        self._settled_s = max(self._settled_s, until_s)
        self.imu_noise.close(now_s)
        self.gnss_walk.close(now_s)
        self.mount_noise.close(now_s)

    def discard_old(self, now_s: float) -> None:
        """Discard what no later run of the history can need."""
        self.imu.discard_old(now_s)
        oldest_s = now_s - self._keep_s
        drop = max(0, bisect_right(self._times, oldest_s) - 1)
        if drop:
            del self._times[:drop], self._commands[:drop]
        while len(self._modes) > 1 and self._modes[1].start_s < oldest_s:
            del self._modes[0]

    def mean_thrust(self, start_s: float, end_s: float) -> ActingThrust | None:
        """The thrust command of an interval; None where no command is known in all of it."""
        total, parameters = 0.0, None
        for dt, command in self.segments(start_s, end_s):
            if command is None:
                return None
            total, parameters = total + dt * float(command.control[0]), command.parameters
        return None if parameters is None else ActingThrust(total / (end_s - start_s), parameters)

    def segments(self, start_s: float, end_s: float) -> Iterator[tuple[float, Command | None]]:
        """Steps (dt, command or None) that fill the interval, none longer than STEP_MAX_S."""
        t = start_s
        while end_s - t > SHORTEST_S:
            command, until = self._command(t)
            offboard, mode_until = self._offboard(t)
            until = min(until, mode_until, end_s)
            duration = until - t
            if duration > SHORTEST_S:
                count = max(1, ceil(duration / STEP_MAX_S - 1e-6))
                for _ in range(count):
                    yield duration / count, command if offboard else None
            t = until if until > t else t + SHORTEST_S

    def _command(self, t: float) -> tuple[Command | None, float]:
        i = bisect_right(self._times, t) - 1
        until = self._times[i + 1] if i + 1 < len(self._times) else float("inf")
        if i < 0:
            return None, until
        expires = self._times[i] - self._actuation_s + COMMAND_MAX_AGE_S
        return (self._commands[i], min(until, expires)) if t < expires else (None, until)

    def _offboard(self, t: float) -> tuple[bool, float]:
        until = float("inf")
        for mode in reversed(self._modes):
            if mode.start_s <= t:
                expires = mode.seen_s + MODE_MAX_AGE_S
                return (mode.offboard, min(until, expires)) if t < expires else (False, until)
            until = mode.start_s
        return False, until
