"""What a broken or wrongly fitted IMU stream sends: changes of HIGHRES_IMU where the autopilot sends it."""

from collections.abc import Callable
from typing import NamedTuple

from companion.core.trajectory_messages import Vec3

SECOND_US = 1_000_000


class ImuSample(NamedTuple):
    """The content of one HIGHRES_IMU."""

    boot_us: int
    gyro_B: Vec3
    accel_B: Vec3


class ImuFault:
    """One fault of the stream: which messages are sent, and what they say."""

    def __init__(
        self,
        interval_us: int = 0,
        change: Callable[[ImuSample], ImuSample] = lambda sample: sample,
        silent: bool = False,
        clipping_hz: float = 0.0,
    ) -> None:
        """interval_us: the shortest time between two messages; silent: there are none.

        clipping_hz: samples at the end of the accelerometer's range; not a matter of the stream, but of VIBRATION.
        """
        self.clipping_hz = clipping_hz
        self._interval_us, self._change, self._silent = interval_us, change, silent
        self._due_us = 0

    def due(self, boot_us: int) -> bool:
        """Whether a message is sent now."""
        if self._silent or boot_us < self._due_us:
            return False
        self._due_us = boot_us + self._interval_us
        return True

    def changed(self, sample: ImuSample) -> ImuSample:
        """What is sent in the place of a sample."""
        return self._change(sample)


def stops() -> ImuFault:
    """No messages."""
    return ImuFault(silent=True)


def slow(rate_hz: float) -> ImuFault:
    """Messages at a lower rate; each is the mean since the one before."""
    return ImuFault(interval_us=round(SECOND_US / rate_hz) - 1)


def time_jumps(jump_s: float) -> ImuFault:
    """Stamps in order for half a second, then ahead by jump_s, in order, and behind."""

    def change(sample: ImuSample) -> ImuSample:
        shift_s = (0.0, jump_s, 0.0, -jump_s)[sample.boot_us // (SECOND_US // 2) % 4]
        return sample._replace(boot_us=max(0, sample.boot_us + round(shift_s * SECOND_US)))

    return ImuFault(change=change)


def swapped(first: int, second: int) -> ImuFault:
    """Two axes, counted from 1, in each other's place."""
    order = [0, 1, 2]
    order[first - 1], order[second - 1] = order[second - 1], order[first - 1]

    def turned(v: Vec3) -> Vec3:
        return v[order[0]], v[order[1]], v[order[2]]

    return ImuFault(change=lambda s: s._replace(gyro_B=turned(s.gyro_B), accel_B=turned(s.accel_B)))


def inverted() -> ImuFault:
    """Every number has the wrong sign."""

    def negative(v: Vec3) -> Vec3:
        return -v[0], -v[1], -v[2]

    return ImuFault(change=lambda s: s._replace(gyro_B=negative(s.gyro_B), accel_B=negative(s.accel_B)))


def frozen(axis: int) -> ImuFault:
    """An axis keeps its value; counted from 1, the three of the accelerometer before those of the gyroscope."""
    kept: list[float] = []

    def change(sample: ImuSample) -> ImuSample:
        values = [*sample.accel_B, *sample.gyro_B]
        if not kept:
            kept.append(values[axis - 1])
        values[axis - 1] = kept[0]
        ax, ay, az, gx, gy, gz = values
        return sample._replace(gyro_B=(gx, gy, gz), accel_B=(ax, ay, az))

    return ImuFault(change=change)


def clips(clipping_hz: float) -> ImuFault:
    """A damaged propeller shakes the accelerometer to the end of its range; the means that are sent stay right."""
    return ImuFault(clipping_hz=clipping_hz)
