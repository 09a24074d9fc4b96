"""A recorded flight of the EuRoC MAV data set in the place of the devices: stereo pair, inertial samples and truth.

``python -m sitl.recorded FOLDER --bus DIR`` publishes `stereo`, `camera_imu` and `truth` as the process ``simulator`` does, at the
rate of the recording. M. Burri et al., "The EuRoC micro aerial vehicle datasets", IJRR 35(10), 2016, describes the folder:
``imu0/data.csv`` (or ``imu0.csv``), ``cam0/data/STAMP.png`` (or ``cam0/STAMP.png``), likewise ``cam1``,
``state_groundtruth_estimate0/data.csv`` (or ``groundtruth_*.txt``: time [s], position, quaternion x y z w),
``cam0/sensor.yaml`` (or ``cam0.yaml``). It may lie in ``mav0``. Images and truth may be absent, the samples may not.

The body B of the truth is the sensor of the samples, I, whose axes are those of that sensor: in EuRoC its x looks up. Stamps
of 19 digits are in ns; times count from the first sample on.
"""

import argparse
import heapq
import math
import re
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np

from companion.core.arrays import Array, Image8
from companion.core.clock import monotonic_s
from companion.core.config import ConfigError
from companion.core.errors import UserError
from companion.core.messages import CameraImu, Message, StereoImages, Truth
from companion.core.trajectory_messages import Quat, Vec3
from companion.runtime.process import StopFlag
from sitl.realtime import open_bus
from sitl.vectors import quat, vec3

IMU_FILES = ("imu0/data.csv", "imu0.csv")
TRUTH_FILES = ("state_groundtruth_estimate0/data.csv", "groundtruth_*.txt")
IMAGE_FOLDERS = ("{}/data", "{}")
CALIBRATIONS = ("{}/sensor.yaml", "{}.yaml")
NS = 1e-9
GAP_S = 0.3  # between two rows of the truth, above which no velocity is derived from them
SPEED_MAX = 100.0
UNKNOWN: Vec3 = (math.nan, math.nan, math.nan)


Entry = tuple[float, int, Callable[[float], Message]]  # time [s], order at one time, message of a stamp


class CameraCalibration(NamedTuple):
    """A camera of the recording."""

    width: int
    height: int
    intrinsics: tuple[float, ...]  # fx, fy, cx, cy [px]
    distortion: tuple[float, ...]  # k1, k2, p1, p2
    T_IC: Array  # (4, 4), camera in the axes of the inertial sensor


class RecordedFolder:
    """A folder of the data set; raises `ConfigError`, one line, when it cannot be played."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise ConfigError(f"{folder}: no such folder")
        self._root = root = folder / "mav0" if (folder / "mav0").is_dir() else folder
        imu = _first(root, IMU_FILES)
        if imu is None:
            raise ConfigError(f"{root}: no {' or '.join(IMU_FILES)}")
        stamps_ns, self._samples = _rows(imu, ",", 6, "stamp [ns], three rates [rad/s], three specific forces [m/s²]")
        self._zero_ns = stamps_ns[0]
        self._sample_s = _ascending(imu, stamps_ns, self._zero_ns)
        self._truth = self._read_truth()
        self._pairs = self._find_pairs()

    @property
    def has_images(self) -> bool:
        return bool(self._pairs)

    @property
    def has_truth(self) -> bool:
        return self._truth is not None

    def messages(self, zero_s: float = 0.0) -> Iterator[Message]:
        """All messages by their stamps, which count from ``zero_s`` on; an image is read when its turn comes.

        Raises `ConfigError` for an image that cannot be read.
        """
        streams = (self._inertial(), self._truths(), self._stereo())
        for stamp_s, _, make in heapq.merge(*streams, key=lambda entry: entry[:2]):
            yield make(zero_s + stamp_s)

    def calibration(self, camera: str) -> CameraCalibration:
        """Of "cam0" or "cam1"; raises `ConfigError` when its file is absent or incomplete."""
        path = _first(self._root, tuple(name.format(camera) for name in CALIBRATIONS))
        if path is None:
            raise ConfigError(f"{self._root}: no calibration of {camera}")
        text = path.read_text(encoding="utf-8", errors="replace")
        width, height = _numbers(path, text, "resolution", 2)
        T_IC = np.array(_numbers(path, text, "data", 16)).reshape(4, 4)
        intrinsics, distortion = (
            _numbers(path, text, "intrinsics", 4),
            _numbers(path, text, "distortion_coefficients", 4),
        )
        return CameraCalibration(int(width), int(height), intrinsics, distortion, T_IC)

    @property
    def baseline_m(self) -> float:
        """Distance of the two cameras, by their calibration."""
        left, right = self.calibration("cam0").T_IC, self.calibration("cam1").T_IC
        return float(np.linalg.norm(right[:3, 3] - left[:3, 3]))

    # --- streams ------------------------------------------------------------------------------------------------

    def _inertial(self) -> Iterator[Entry]:
        for t_s, row in zip(self._sample_s.tolist(), self._samples, strict=True):
            yield t_s, 0, partial(_sample, vec3(row[:3]), vec3(row[3:]))

    def _truths(self) -> Iterator[Entry]:
        if self._truth is not None:
            for t_s, p, v, q, omega in zip(*self._truth, strict=True):
                yield float(t_s), 1, partial(_motion, vec3(p), vec3(v), quat(q), vec3(omega))

    def _stereo(self) -> Iterator[Entry]:
        for stamp_ns, left, right in self._pairs:
            yield NS * (stamp_ns - self._zero_ns), 2, partial(_images, left, right)

    # --- the folder -------------------------------------------------------------------------------------------------

    def _find_pairs(self) -> list[tuple[int, Path, Path]]:
        """Stamp [ns] and files of the images that both cameras have."""
        cameras = []
        for camera in ("cam0", "cam1"):
            folders = (self._root / pattern.format(camera) for pattern in IMAGE_FOLDERS)
            files = next((found for f in folders if (found := list(f.glob("*.png")))), [])
            cameras.append({int(f.stem): f for f in files if f.stem.isdigit()})
        left, right = cameras
        return [(stamp, left[stamp], right[stamp]) for stamp in sorted(left.keys() & right.keys())]

    def _read_truth(self) -> tuple[Array, Array, Array, Array, Array] | None:
        """Times [s], p_W, v_W, q_WB and omega_B; None: the folder has none."""
        path = _first(self._root, TRUTH_FILES)
        if path is None:
            return None
        if path.suffix == ".csv":
            stamps_ns, rows = _rows(path, ",", 16, "stamp [ns], p, q (w x y z), v, two biases")
            t, q = _ascending(path, stamps_ns, self._zero_ns), rows[:, 3:7]
            velocity = rows[:, 7:10]
        else:
            stamps_ns, rows = _rows(path, None, 7, "time [s], position [m], quaternion x y z w")
            t, q = _ascending(path, stamps_ns, self._zero_ns), rows[:, [6, 3, 4, 5]]
            velocity = _derivative(t, rows[:, :3])
        lengths = np.linalg.norm(q, axis=1, keepdims=True)
        if not np.all(np.abs(lengths - 1.0) < 0.01):
            raise ConfigError(f"{path}: its quaternions have not the length 1 ({lengths.min():.3g})")
        q = q / lengths
        inside = (t >= 0.0) & (t <= self._sample_s[-1])
        omega = np.column_stack([np.interp(t, self._sample_s, self._samples[:, i]) for i in range(3)])
        return t[inside], rows[inside, :3], velocity[inside], q[inside], omega[inside]


def _sample(gyro: Vec3, accel: Vec3, stamp_s: float) -> CameraImu:
    return CameraImu(stamp_s=stamp_s, gyro_I=gyro, accel_I=accel)


def _motion(p_W: Vec3, v_W: Vec3, q_WB: Quat, omega_B: Vec3, stamp_s: float) -> Truth:
    return Truth(
        stamp_s=stamp_s,
        p_W=p_W,
        v_W=v_W,
        q_WB=q_WB,
        omega_B=omega_B,
        disturbance_W=UNKNOWN,
        gnss_bias_W=UNKNOWN,
        bundles={},
        battery_voltage_v=math.nan,
        motor_thrust_n=(),
    )


def _images(left: Path, right: Path, stamp_s: float) -> StereoImages:
    images = [_image(left), _image(right)]
    if images[0].shape != images[1].shape:
        raise ConfigError(f"{right}: {images[1].shape[::-1]} px, the left one has {images[0].shape[::-1]} px")
    height, width = images[0].shape
    return StereoImages(stamp_s=stamp_s, width=width, height=height, data=b"".join(i.tobytes() for i in images))


def _image(path: Path) -> Image8:
    image = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
    if image is None:
        raise ConfigError(f"{path}: not an image")
    return image.astype(np.uint8, copy=False)


def _first(root: Path, patterns: tuple[str, ...]) -> Path | None:
    """The first file that exists; a pattern must fit one file alone."""
    for pattern in patterns:
        found = sorted(root.glob(pattern))
        if len(found) > 1:
            raise ConfigError(f"{root}: {len(found)} files {pattern}, one is needed")
        if found:
            return found[0]
    return None


def _rows(path: Path, separator: str | None, numbers: int, meaning: str) -> tuple[list[int], Array]:
    """Stamps [ns] and the numbers behind them, (n, numbers); raises `ConfigError` naming the line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    stamps, rows = [], []
    for count, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        fields = line.split(separator)
        if len(fields) != numbers + 1:
            raise ConfigError(f"{path}: line {count} has {len(fields)} columns, needs {numbers + 1}: {meaning}")
        try:
            stamps.append(_nanoseconds(fields[0].strip()))
            rows.append([float(field) for field in fields[1:]])
        except ValueError:
            raise ConfigError(f"{path}: line {count}: not numbers: {meaning}") from None
    values = np.array(rows)
    if not rows or not np.isfinite(values).all():
        raise ConfigError(f"{path}: is empty, or has numbers that are not finite")
    return stamps, values


def _nanoseconds(text: str) -> int:
    """A stamp in ns, or in s with a decimal point; a float has too few digits for it."""
    if text.isdigit():
        return int(text)
    whole, _, part = text.partition(".")
    if not (whole.isdigit() and part.isdigit()):
        raise ValueError(text)
    return int(whole) * 10**9 + int(part[:9].ljust(9, "0"))


def _ascending(path: Path, stamps_ns: list[int], zero_ns: int) -> Array:
    t = np.array([NS * (stamp - zero_ns) for stamp in stamps_ns])
    if np.any(np.diff(t) <= 0.0):
        raise ConfigError(f"{path}: the stamps do not ascend")
    return t


def _derivative(t: Array, values: Array) -> Array:
    """Central differences; NaN beside a gap."""
    if len(t) < 3:
        return np.full_like(values, np.nan)
    slope: Array = np.gradient(values, t, axis=0)
    gaps = np.flatnonzero(np.diff(t) > GAP_S)
    slope[gaps] = slope[gaps + 1] = np.nan
    return slope


def _numbers(path: Path, text: str, key: str, count: int) -> tuple[float, ...]:
    """The list behind a key of a calibration file, which is YAML of the simplest kind."""
    found = re.search(rf"^\s*{key}:\s*\[([^\]]*)\]", text, flags=re.M)
    try:
        numbers = tuple(float(part) for part in found.group(1).split(",")) if found else ()
    except ValueError:
        numbers = ()
    if len(numbers) != count:
        raise ConfigError(f"{path}: {key}: {count} numbers are needed")
    return numbers


def play(recorded: RecordedFolder, publish: Callable[[Message], None], stop: Callable[[], bool], speed: float) -> None:
    """Publish all messages at their times from now on, until ``stop()``; speed: times that of the recording."""
    zero_s = monotonic_s()
    for message in recorded.messages():
        due_s = zero_s + message.stamp_s / speed
        while not stop() and (wait_s := due_s - monotonic_s()) > 0.0:
            time.sleep(min(wait_s, 0.1))
        if stop():
            return
        message.stamp_s = due_s
        publish(message)


def main() -> int:
    """Entry of the player; exit status 2 with one line when it cannot start or go on."""
    parser = argparse.ArgumentParser(
        prog="python -m sitl.recorded",
        description="Publish a recorded flight in the EuRoC layout, until its end or SIGTERM.",
    )
    parser.add_argument("folder", type=Path, help="with imu0.csv or imu0/data.csv, or with mav0")
    parser.add_argument("--bus", type=Path, required=True, help="folder of the processes' sockets")
    parser.add_argument("--speed", type=float, default=1.0, help="times that of the recording (default: 1)")
    given = parser.parse_args()
    try:
        if not 0.0 < given.speed <= SPEED_MAX:
            raise ConfigError(f"--speed {given.speed:g}: must be above 0 and at most {SPEED_MAX:g}")
        recorded = RecordedFolder(given.folder)
        bus = open_bus(given.bus)
        stop = StopFlag()
        play(recorded, bus.publish, lambda: bool(stop), given.speed)
    except UserError as error:
        print(f"recorded: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
