"""RealSense and OAK as sources of the camera process, against modules that behave like their packages."""

import importlib
import time
from datetime import timedelta
from types import SimpleNamespace

import numpy as np
import pytest
from synthetic_view import vehicle

from companion.core.clock import monotonic_s
from companion.core.config import ConfigError
from companion.core.messages import CameraImu, DepthImage, Image, StereoImages
from companion.runtime.process import run_camera
from companion.tracking import stereo_devices
from companion.tracking.cameras import open_source
from companion.tracking.stereo_devices import DeviceClock

VEHICLE = vehicle(width_px=160, height_px=120, rate_hz=30.0)
LEFT, RIGHT = np.full((120, 160), 50, np.uint8), np.full((120, 160), 60, np.uint8)
DEPTH = np.full((120, 160), 1500, np.uint16)


class FakeRealSense:
    """librealsense with one device; `frames` are given to the callback when it starts."""

    stream = SimpleNamespace(infrared="infrared", depth="depth", gyro="gyro", accel="accel")
    format = SimpleNamespace(y8="y8", z16="z16")
    option = SimpleNamespace(global_time_enabled="global time")

    def __init__(self, depth_scale=0.001):
        self.depth_scale, self.started, self.stopped, self.wrong = depth_scale, [], 0, None
        self.callback, self.set_options = None, []

    def config(self):
        streams = []
        return SimpleNamespace(
            streams=streams,
            enable_stream=lambda *arguments: streams.append(arguments),
            enable_device=lambda serial: streams.append(("device", serial)),
        )

    def pipeline(self):
        return SimpleNamespace(start=self._start, stop=self._stop)

    def _start(self, config, callback):
        if self.wrong:
            raise RuntimeError(self.wrong)
        self.started.append(config.streams)
        self.callback = callback
        sensor = SimpleNamespace(
            get_depth_scale=lambda: self.depth_scale, supports=lambda option: True, set_option=self._set
        )
        motion = SimpleNamespace(supports=lambda option: False, set_option=self._set)
        device = SimpleNamespace(first_depth_sensor=lambda: sensor, query_sensors=lambda: [sensor, motion])
        return SimpleNamespace(get_device=lambda: device)

    def _set(self, option, value):
        self.set_options.append((option, value))

    def _stop(self):
        self.stopped += 1

    def images(self, device_s, left=LEFT, right=RIGHT, depth=DEPTH):
        frames = [SimpleNamespace(get_data=lambda data=data: data) for data in (left, right)]
        depths = None if depth is None else SimpleNamespace(get_data=lambda: depth)
        these = SimpleNamespace(get_infrared_frame=lambda index: frames[index - 1], get_depth_frame=lambda: depths)
        self.callback(self._frame(device_s, True, as_frameset=lambda: these))

    def motion(self, device_s, stream, x, y, z):
        data = SimpleNamespace(x=x, y=y, z=z)
        self.callback(
            self._frame(
                device_s,
                False,
                as_motion_frame=lambda: SimpleNamespace(get_motion_data=lambda: data),
                get_profile=lambda: SimpleNamespace(stream_type=lambda: stream),
            )
        )

    @staticmethod
    def _frame(device_s, is_set, **parts):
        stamp = {"get_timestamp": lambda: 1e3 * device_s, "is_frameset": lambda: is_set}
        return SimpleNamespace(**stamp, is_motion_frame=lambda: not is_set, **parts)


class FakeOak:
    """depthai 3 with one device; the queues are filled by the test."""

    CameraBoardSocket = SimpleNamespace(CAM_B="B", CAM_C="C")
    IMUSensor = SimpleNamespace(ACCELEROMETER_RAW="a", GYROSCOPE_RAW="g")
    ImgFrame = SimpleNamespace(Type=SimpleNamespace(GRAY8="grey"))
    node = SimpleNamespace(StereoDepth="StereoDepth", Camera="Camera", IMU="IMU")

    def __init__(self):
        self.queues, self.cameras, self.stopped = {}, [], 0
        self.Device = lambda info=None: SimpleNamespace(info=info)
        self.DeviceInfo = lambda id: id

    def Pipeline(self, device):
        return SimpleNamespace(
            create=lambda kind: getattr(self, f"_{kind}")(), start=lambda: None, stop=self._stop, device=device
        )

    def _stop(self):
        self.stopped += 1

    def _output(self, name):
        self.queues[name] = items = []
        queue = SimpleNamespace(tryGet=lambda: items.pop(0) if items else None)
        return SimpleNamespace(createOutputQueue=lambda maxSize, blocking: queue)

    def _StereoDepth(self):
        outputs = {name: self._output(name) for name in ("rectifiedLeft", "rectifiedRight", "depth")}
        return SimpleNamespace(left="left", right="right", **outputs)

    def _Camera(self):
        def build(socket, sensorFps):
            self.cameras.append((socket, sensorFps))
            return SimpleNamespace(requestOutput=lambda size, kind: SimpleNamespace(link=lambda entry: None))

        return SimpleNamespace(build=build)

    def _IMU(self):
        nothing = {
            name: lambda *_: None for name in ("enableIMUSensor", "setBatchReportThreshold", "setMaxBatchReports")
        }
        return SimpleNamespace(out=self._output("imu"), **nothing)

    def image(self, name, number, device_s, picture):
        self.queues[name].append(
            SimpleNamespace(getSequenceNum=lambda: number, getFrame=lambda: picture, **stamped(device_s))
        )

    def sample(self, device_s, gyro, accel):
        parts = [SimpleNamespace(x=v[0], y=v[1], z=v[2], **stamped(device_s)) for v in (gyro, accel)]
        self.queues["imu"].append(
            SimpleNamespace(packets=[SimpleNamespace(gyroscope=parts[0], acceleroMeter=parts[1])])
        )


def stamped(device_s):
    return {"getTimestampDevice": lambda: timedelta(seconds=device_s)}


@pytest.fixture
def installed(monkeypatch):
    """Install a module under the name of a package."""

    def install(name, module):
        real = importlib.import_module
        monkeypatch.setattr(importlib, "import_module", lambda n: module if n == name else real(n))
        return module

    return install


def everything(source):
    """The next image and all other messages."""
    images = [image for _ in range(10) if (image := source.read()) is not None]
    return images, source.take_others()


def test_a_realsense_gives_image_pair_depth_and_samples(installed):
    device = installed("pyrealsense2", FakeRealSense(depth_scale=0.0001))
    source = open_source("realsense:123", VEHICLE)
    streams = device.started[0]
    assert ("device", "123") in streams and ("infrared", 2, 160, 120, "y8", 30) in streams
    device.motion(5.000, "gyro", 1.0, 2.0, 3.0)  # no accelerometer yet
    device.motion(5.001, "accel", 0.1, 9.8, 0.2)
    device.motion(5.005, "gyro", 1.5, 2.0, 3.0)
    before_s = monotonic_s()
    device.images(5.010, depth=10 * DEPTH)
    images, others = everything(source)
    assert [type(m) for m in others] == [CameraImu, StereoImages, DepthImage] and len(images) == 1
    sample, pair, depth = others
    assert sample.gyro_I == (1.5, 2.0, 3.0) and sample.accel_I == (0.1, 9.8, 0.2)
    assert isinstance(images[0], Image) and images[0].data == LEFT.tobytes()
    assert pair.data == LEFT.tobytes() + RIGHT.tobytes()
    assert np.frombuffer(depth.data, "<u2").max() == 1500
    assert images[0].stamp_s == pair.stamp_s == depth.stamp_s
    assert pair.stamp_s == pytest.approx(before_s - VEHICLE.latency.camera_s, abs=0.05)
    source.close()
    assert device.stopped == 1 and source.read() is None


def test_an_oak_pairs_its_frames_by_their_number(installed):
    device = installed("depthai", FakeOak())
    source = open_source("oak", VEHICLE)
    assert device.cameras == [("B", 30.0), ("C", 30.0)]
    device.image("rectifiedLeft", 1, 7.0, LEFT)  # its right frame is lost
    device.image("rectifiedLeft", 2, 7.03, LEFT)
    device.image("rectifiedRight", 2, 7.03, RIGHT)
    device.image("depth", 2, 7.03, DEPTH)
    device.sample(7.02, (1.0, 2.0, 3.0), (0.0, 9.8, 0.0))
    images, others = everything(source)
    assert len(images) == 1 and images[0].data == LEFT.tobytes()
    assert sorted(type(m).__name__ for m in others) == ["CameraImu", "DepthImage", "StereoImages"]
    source.close()
    assert device.stopped == 1


@pytest.mark.parametrize(("spec", "package"), [("realsense", "pyrealsense2"), ("oak", "depthai")])
def test_without_the_package_the_line_names_it(spec, package, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(ConfigError, match=f"camera {spec}: .*pip install {package}") as refused:
        open_source(spec, VEHICLE)
    assert "\n" not in str(refused.value)


def test_a_device_that_cannot_be_opened_is_one_line(installed):
    installed("pyrealsense2", FakeRealSense()).wrong = "No device connected\nsecond line"
    with pytest.raises(ConfigError, match="^camera realsense: cannot be opened: No device connected$"):
        open_source("realsense", VEHICLE)


def test_an_image_of_another_size_is_counted_and_nothing_of_it_is_used(installed):
    device = installed("pyrealsense2", FakeRealSense())
    source = open_source("realsense", VEHICLE)
    device.images(1.0, left=LEFT[:60], right=RIGHT[:60], depth=None)
    assert everything(source) == ([], []) and source.errors == 1
    assert "160 x 60 px, the vehicle file says 160 x 120 px" in source.last_error


def test_a_silent_or_failing_device_is_opened_again(installed, monkeypatch):
    device = installed("pyrealsense2", FakeRealSense())
    source = open_source("realsense", VEHICLE)
    monkeypatch.setattr(stereo_devices, "SILENCE_S", -1.0)
    monkeypatch.setattr(stereo_devices, "REOPEN_PAUSE_S", 0.0)
    assert source.read() is None and source.errors == 1 and device.stopped == 1
    device.wrong = "lost"
    assert source.read() is None and source.errors == 2 and "lost" in source.last_error
    device.wrong = None
    monkeypatch.setattr(stereo_devices, "SILENCE_S", 2.0)
    assert source.read() is None and source.reopened == 1
    device.images(9.0)
    assert source.read() is not None


def test_a_full_queue_loses_its_oldest_items(installed, monkeypatch):
    monkeypatch.setattr(stereo_devices, "WAITING_MAX", 3)
    device = installed("pyrealsense2", FakeRealSense())
    source = open_source("realsense", VEHICLE)
    device.motion(0.0, "accel", 0.0, 9.8, 0.0)
    for i in range(8):
        device.motion(1.0 + 0.005 * i, "gyro", float(i), 0.0, 0.0)
    assert [m.gyro_I[0] for m in everything(source)[1]] == [5.0, 6.0, 7.0]


def test_the_clocks_offset_is_the_shortest_way_of_the_last_half_minute():
    clock, rng = DeviceClock(latency_s=0.02), np.random.default_rng(1)
    for i in range(3000):
        device_s = 0.03 * i * (1.0 + 50e-6)  # its quartz is fast
        arrival_s = 1000.0 + 0.03 * i + 0.02 + abs(rng.normal(0.0, 0.005))
        error_s = clock.stamp_s(device_s, arrival_s) - (1000.0 + 0.03 * i)
        assert abs(error_s) < 0.002 or i < 20


@pytest.mark.parametrize("rate_hz", [30.0, 200.0], ids=["frames", "samples"])
def test_a_clock_that_steps_back_is_compared_again_after_a_moment(rate_hz):
    clock, rng = DeviceClock(latency_s=0.01), np.random.default_rng(1)
    wrong_s = []
    for i in range(round(60.0 * rate_hz)):
        taken_s = 100.0 + i / rate_hz
        device_s = taken_s + 1.7e9 - (2.0 if taken_s >= 110.0 else 0.0)
        stamp_s = clock.stamp_s(device_s, taken_s + 0.01 + abs(rng.normal(0.0, 0.003)))
        if abs(stamp_s - taken_s) > 0.02:
            wrong_s.append(taken_s)
    assert min(wrong_s) >= 110.0 and max(wrong_s) < 110.0 + stereo_devices.STEP_LASTS_S + 0.1


@pytest.mark.parametrize(
    "held_s", [lambda since_s: 1.0 - since_s, lambda since_s: 0.5], ids=["at once", "late by the same"]
)
@pytest.mark.parametrize("rate_hz", [30.0, 200.0], ids=["frames", "samples"])
def test_what_was_held_up_for_a_second_keeps_its_stamps(rate_hz, held_s):
    clock = DeviceClock(latency_s=0.01)
    for i in range(round(20.0 * rate_hz)):
        taken_s = 100.0 + i / rate_hz
        since_s = taken_s - 110.0
        late_s = held_s(since_s) if 0.0 <= since_s < 1.0 else 0.0
        assert clock.stamp_s(taken_s + 5.0, taken_s + 0.01 + late_s) == pytest.approx(taken_s, abs=1e-6)


def test_a_realsense_stamps_by_its_own_clock(installed):
    device = installed("pyrealsense2", FakeRealSense())
    open_source("realsense", VEHICLE).close()
    assert device.set_options == [("global time", 0.0)]


def test_the_camera_process_publishes_all_of_a_devices_messages(installed):
    device = installed("pyrealsense2", FakeRealSense())
    source = open_source("realsense", VEHICLE)
    device.images(1.0)
    published = []
    bus = SimpleNamespace(publish=published.append, errors=0, last_error="", other_versions=0)
    until_s = time.monotonic() + 0.2
    run_camera(source, bus, lambda: time.monotonic() > until_s, "camera", 30.0, others=source.take_others)
    assert {Image, StereoImages, DepthImage} <= {type(m) for m in published}
