"""Stereo cameras with depth and an inertial sensor: Intel RealSense (pyrealsense2) and Luxonis OAK (depthai 3).

``camera.device = "realsense"`` or ``"oak"`` in the vehicle file opens the first one; ``"realsense:SERIAL"`` and
``"oak:DEVICE_ID"`` one of several. The left frame is the `image` that the tracker searches; `StereoImages`, `DepthImage` and
`CameraImu` come beside it. Both devices deliver rectified frames: the camera of the vehicle file has no distortion then.

The packages are imported when such a device is opened; they are no dependency of the project. As in
`companion.tracking.cameras`, opening may fail with one line, and an open source never raises.
"""

import importlib
import logging
import math
import queue
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from companion.core.arrays import Image8
from companion.core.clock import monotonic_s
from companion.core.config import ConfigError
from companion.core.messages import CameraImu, DepthImage, Image, Message, StereoImages
from companion.core.text import plain
from companion.core.trajectory_messages import Vec3
from companion.core.vehicle import Camera, Vehicle

READ_S = 0.02  # longest wait of `read`: samples of the inertial sensor are not kept back for an image
SILENCE_S = 2.0  # a device that delivers no image for this time is opened again
REOPEN_PAUSE_S = 1.0
CLOCK_WINDOW_S = 30.0  # over which the clocks are compared: at 100 ppm they drift apart by 3 ms in it
STEP_MIN_S = 0.1  # by which a device's clock must have stepped to be compared again from the beginning
STEP_SAME_S = 0.05  # the differences after a step are equal to this; those of a queue that is worked off fall
STEP_LASTS_S = 0.3  # for this time, and this many stamps
STEP_STAMPS = 5
WAITING_MAX = 400  # items of a device that were not read yet; the oldest are dropped
IMU_RATE_HZ = 200
MM = 1000.0
DEPTH_MAX_MM = 65535

log = logging.getLogger(__name__)


class Pair(NamedTuple):
    """A pair of grey frames; device_s: the device's stamp, arrival_s: companion time of the arrival."""

    device_s: float
    arrival_s: float
    left: Image8
    right: Image8


class Depth(NamedTuple):
    """A depth frame [mm], 0: no value."""

    device_s: float
    arrival_s: float
    depth_mm: NDArray[np.uint16]


class Inertial(NamedTuple):
    """A sample of the inertial sensor: rad/s, m/s²."""

    device_s: float
    arrival_s: float
    gyro: Vec3
    accel: Vec3


Item = Pair | Depth | Inertial


class Backend(Protocol):
    """An open device."""

    def take(self, timeout_s: float) -> list[Item]:
        """What has arrived, waiting for the first; may raise anything."""

    def close(self) -> None: ...


class DeviceClock:
    """Companion time of a device's stamps.

    The smallest difference between arrival and stamp over the last `CLOCK_WINDOW_S` is the offset of the clocks and the shortest
    way of a message. latency_s: that way, as it was calibrated. Where a stamp falls behind those before and the difference stays
    larger by a step, the device's clock was set back or has wrapped, and the comparison begins again; a smaller one counts at once.
    """

    def __init__(self, latency_s: float) -> None:
        self._latency_s = latency_s
        self._least: deque[tuple[float, float]] = deque()  # arrival, difference; differences ascend
        self._step: list[tuple[float, float]] = []  # those since the clock may have stepped back
        self._newest_s = -math.inf  # the highest stamp since the comparison began

    def stamp_s(self, device_s: float, arrival_s: float) -> float:
        """Companion time of a measurement [s]."""
        difference_s = arrival_s - device_s
        if self._has_stepped(device_s, difference_s, arrival_s):
            self._least, self._step = deque([min(self._step, key=lambda entry: entry[1])]), []
            self._newest_s = device_s
        self._newest_s = max(self._newest_s, device_s)
        while self._least and self._least[-1][1] >= difference_s:
            self._least.pop()
        self._least.append((arrival_s, difference_s))
        while self._least[0][0] < arrival_s - CLOCK_WINDOW_S:
            self._least.popleft()
        return device_s + self._least[0][1] - self._latency_s

    def _has_stepped(self, device_s: float, difference_s: float, arrival_s: float) -> bool:
        """The stamps have fallen, and the difference has been larger for a while, always by the same.

        Messages that are held up have a larger difference, too, but their stamps go on.
        """
        if not self._least or difference_s <= self._least[0][1] + STEP_MIN_S:
            self._step = []
            return False
        if self._step and abs(difference_s - self._step[0][1]) > STEP_SAME_S:
            self._step = []
        if not self._step and device_s >= self._newest_s:
            return False
        self._step.append((arrival_s, difference_s))
        return len(self._step) >= STEP_STAMPS and arrival_s - self._step[0][0] >= STEP_LASTS_S


class StereoDeviceSource:
    """A `companion.tracking.cameras.Source` whose device delivers more than images; see `take_others`."""

    def __init__(self, opener: Callable[[], Backend], name: str, size: tuple[int, int], latency_s: float) -> None:
        """size: (width, height) of the camera in the vehicle file. Raises `ConfigError` when it cannot be opened."""
        self._opener, self._name, self._size, self._latency_s = opener, name, size, latency_s
        self.finished, self.errors, self.last_error, self.reopened = False, 0, "", 0
        self._items: deque[Item] = deque()
        self._others: list[Message] = []
        self._backend: Backend | None = opener()
        self._reopen_s = -math.inf
        self._new_clocks()

    def _new_clocks(self) -> None:
        # Frames and samples reach the companion by ways of their own. A sample's is short against its age limit.
        self._frame_clock, self._sample_clock = DeviceClock(self._latency_s), DeviceClock(0.0)
        self._image_s = monotonic_s()

    def read(self) -> Image | None:
        """The next left frame; None when none arrived within `READ_S`, or other messages did."""
        if self.finished:
            return None
        if not self._items:
            self._fetch()
        while self._items:
            item = self._items.popleft()
            if isinstance(item, Pair):
                image = self._take_pair(item)
                if image is not None:
                    return image
            elif isinstance(item, Depth):
                stamp_s = self._frame_clock.stamp_s(item.device_s, item.arrival_s)
                height, width = item.depth_mm.shape
                data = item.depth_mm.astype("<u2", copy=False).tobytes()
                self._others.append(DepthImage(stamp_s=stamp_s, width=width, height=height, data=data))
            else:
                stamp_s = self._sample_clock.stamp_s(item.device_s, item.arrival_s)
                self._others.append(CameraImu(stamp_s=stamp_s, gyro_I=item.gyro, accel_I=item.accel))
        return None

    def take_others(self) -> list[Message]:
        """The messages besides images since the last call, oldest first."""
        others, self._others = self._others, []
        return others

    def close(self) -> None:
        self.finished = True
        self._release()

    def _take_pair(self, pair: Pair) -> Image | None:
        height, width = pair.left.shape
        if (width, height) != self._size or pair.right.shape != pair.left.shape:
            self._report(f"{width} x {height} px, the vehicle file says {self._size[0]} x {self._size[1]} px")
            return None
        self._image_s = pair.arrival_s
        stamp_s = self._frame_clock.stamp_s(pair.device_s, pair.arrival_s)
        left, right = np.ascontiguousarray(pair.left).tobytes(), np.ascontiguousarray(pair.right).tobytes()
        self._others.append(StereoImages(stamp_s=stamp_s, width=width, height=height, data=left + right))
        return Image(stamp_s=stamp_s, width=width, height=height, data=left)

    def _fetch(self) -> None:
        now_s = monotonic_s()
        try:
            if self._backend is None:
                if now_s < self._reopen_s:
                    time.sleep(READ_S)
                    return
                self._backend = self._opener()
                self.reopened += 1
                self._new_clocks()
            self._items.extend(self._backend.take(READ_S))
            if now_s - self._image_s <= SILENCE_S:
                return
            why = f"no image for {SILENCE_S:g} s"
        except Exception as error:  # an error of a driver must not end the camera process
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
        self._report(why)
        self._release()
        self._reopen_s = now_s + REOPEN_PAUSE_S

    def _report(self, why: str) -> None:
        self.errors += 1
        self.last_error = f"camera {self._name}: {plain(why.removeprefix(f'camera {self._name}: '))}"
        log.warning("%s", self.last_error)

    def _release(self) -> None:
        backend, self._backend = self._backend, None
        if backend is not None:
            try:
                backend.close()
            except Exception as error:
                log.warning("camera %s: cannot be released: %s", self._name, error)


def is_stereo_device(spec: str) -> bool:
    """Whether a camera's name is that of a stereo device."""
    return spec.split(":", 1)[0] in BACKENDS


def open_stereo_device(spec: str, vehicle: Vehicle) -> StereoDeviceSource:
    """Open "realsense[:SERIAL]" or "oak[:DEVICE_ID]"; raises `ConfigError`, one line, when that fails."""
    kind, _, which = spec.partition(":")
    camera = vehicle.camera
    module_name, backend = BACKENDS[kind]
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(
            f"camera {spec}: the package {module_name} cannot be imported: pip install {module_name} ({plain(str(error))})"
        ) from None

    def opener() -> Backend:
        try:
            return backend(module, camera, which)
        except Exception as error:  # of the device's package, which has no common base
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ConfigError(f"camera {spec}: cannot be opened: {plain(why)}") from None

    return StereoDeviceSource(opener, spec, (camera.width_px, camera.height_px), vehicle.latency.camera_s)


class RealSense:
    """librealsense: both infrared frames (Y8, rectified), depth (Z16), gyroscope and accelerometer."""

    def __init__(self, rs: Any, camera: Camera, serial: str) -> None:
        self._rs = rs
        self._items: queue.Queue[Item] = queue.Queue(WAITING_MAX)
        self._accel: Vec3 | None = None
        config, self._pipeline = rs.config(), rs.pipeline()
        if serial:
            config.enable_device(serial)
        size = camera.width_px, camera.height_px
        for index in (1, 2):
            config.enable_stream(rs.stream.infrared, index, *size, rs.format.y8, round(camera.rate_hz))
        config.enable_stream(rs.stream.depth, *size, rs.format.z16, round(camera.rate_hz))
        for stream in (rs.stream.gyro, rs.stream.accel):
            config.enable_stream(stream)
        device = self._pipeline.start(config, self._arrived).get_device()
        self._mm = MM * float(device.first_depth_sensor().get_depth_scale())
        self._use_own_clock(device)

    def _use_own_clock(self, device: Any) -> None:
        """Stamp by the device's own clock: librealsense's global time is that of the computer's wall clock, which NTP sets."""
        option = getattr(self._rs.option, "global_time_enabled", None)
        for sensor in device.query_sensors():
            if option is not None and sensor.supports(option):
                try:
                    sensor.set_option(option, 0.0)
                except Exception as error:  # of librealsense; a step of the wall clock then costs a moment
                    log.warning("camera realsense: global time stays on: %s", error)

    def take(self, timeout_s: float) -> list[Item]:
        return _take(self._items, timeout_s)

    def close(self) -> None:
        self._pipeline.stop()

    def _arrived(self, frame: Any) -> None:
        """Called in a thread of librealsense with a set of frames, or one sample of the inertial sensor."""
        arrival_s = monotonic_s()
        device_s = frame.get_timestamp() * 1e-3
        if frame.is_frameset():
            frames = frame.as_frameset()
            left, right = frames.get_infrared_frame(1), frames.get_infrared_frame(2)
            if left and right:
                _put(self._items, Pair(device_s, arrival_s, _copy(left.get_data()), _copy(right.get_data())))
            if depth := frames.get_depth_frame():
                mm = np.minimum(np.round(np.asanyarray(depth.get_data()) * self._mm), DEPTH_MAX_MM)
                _put(self._items, Depth(device_s, arrival_s, mm.astype(np.uint16)))
        elif frame.is_motion_frame():
            data = frame.as_motion_frame().get_motion_data()
            value = float(data.x), float(data.y), float(data.z)
            if frame.get_profile().stream_type() == self._rs.stream.accel:
                self._accel = value
            elif self._accel is not None:  # the slower sensor's newest value goes with each sample of the faster one
                _put(self._items, Inertial(device_s, arrival_s, value, self._accel))


class Oak:
    """depthai 3: both rectified grey frames, depth, gyroscope and accelerometer."""

    def __init__(self, dai: Any, camera: Camera, device_id: str) -> None:
        device = dai.Device(dai.DeviceInfo(device_id)) if device_id else dai.Device()
        self._pipeline = pipeline = dai.Pipeline(device)
        size, node = (camera.width_px, camera.height_px), dai.node
        stereo = pipeline.create(node.StereoDepth)
        for socket, entry in ((dai.CameraBoardSocket.CAM_B, stereo.left), (dai.CameraBoardSocket.CAM_C, stereo.right)):
            source = pipeline.create(node.Camera).build(socket, sensorFps=camera.rate_hz)
            source.requestOutput(size, dai.ImgFrame.Type.GRAY8).link(entry)
        imu = pipeline.create(node.IMU)
        imu.enableIMUSensor([dai.IMUSensor.ACCELEROMETER_RAW, dai.IMUSensor.GYROSCOPE_RAW], IMU_RATE_HZ)
        imu.setBatchReportThreshold(1)
        imu.setMaxBatchReports(10)
        outputs = (stereo.rectifiedLeft, stereo.rectifiedRight, stereo.depth, imu.out)
        self._left, self._right, self._depth, self._imu = (
            output.createOutputQueue(maxSize=length, blocking=False)
            for output, length in zip(outputs, (4, 4, 4, 50), strict=True)
        )
        self._lefts: dict[int, Any] = {}  # frames without their right one, by number
        pipeline.start()

    def take(self, timeout_s: float) -> list[Item]:
        until_s = monotonic_s() + timeout_s
        while True:
            items = [*self._inertial(), *self._pairs(), *self._depths()]
            if items or monotonic_s() >= until_s:
                return items
            time.sleep(1e-3)

    def close(self) -> None:
        self._pipeline.stop()

    def _pairs(self) -> list[Item]:
        pairs: list[Item] = []
        while (left := self._left.tryGet()) is not None:
            self._lefts[left.getSequenceNum()] = left
        while (right := self._right.tryGet()) is not None:
            number = right.getSequenceNum()
            if (left := self._lefts.pop(number, None)) is not None:
                arrival_s = monotonic_s()
                pairs.append(Pair(_device_s(left), arrival_s, _copy(left.getFrame()), _copy(right.getFrame())))
            self._lefts = {n: frame for n, frame in self._lefts.items() if n > number}
        return pairs

    def _depths(self) -> list[Item]:
        depths: list[Item] = []
        while (frame := self._depth.tryGet()) is not None:
            depths.append(Depth(_device_s(frame), monotonic_s(), _copy(frame.getFrame()).astype(np.uint16)))
        return depths

    def _inertial(self) -> list[Item]:
        samples: list[Item] = []
        while (data := self._imu.tryGet()) is not None:
            arrival_s = monotonic_s()
            for packet in data.packets:
                gyro, accel = packet.gyroscope, packet.acceleroMeter
                values = (gyro.x, gyro.y, gyro.z), (accel.x, accel.y, accel.z)
                samples.append(Inertial(_device_s(gyro), arrival_s, *values))
        return samples


BACKENDS: dict[str, tuple[str, Callable[[Any, Camera, str], Backend]]] = {
    "realsense": ("pyrealsense2", RealSense),
    "oak": ("depthai", Oak),
}


def _device_s(stamped: Any) -> float:
    """A stamp of depthai's own clock [s]."""
    return float(stamped.getTimestampDevice().total_seconds())


def _copy(data: Any) -> NDArray[Any]:
    """An array of its own: the device's package uses its buffers again."""
    return np.array(np.asanyarray(data))


def _put(items: "queue.Queue[Item]", item: Item) -> None:
    """Add without waiting; a full queue loses its oldest item."""
    while True:
        try:
            items.put_nowait(item)
            return
        except queue.Full:
            try:
                items.get_nowait()
            except queue.Empty:
                continue


def _take(items: "queue.Queue[Item]", timeout_s: float) -> list[Item]:
    """All items, waiting for the first."""
    taken: list[Item] = []
    try:
        taken.append(items.get(timeout=timeout_s))
        while True:
            taken.append(items.get_nowait())
    except queue.Empty:
        return taken
