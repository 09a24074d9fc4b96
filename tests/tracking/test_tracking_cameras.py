"""Camera sources: order, stamps, errors of one line at the start, no exception afterwards."""

import threading
import time

import cv2
import numpy as np
import pytest
from synthetic_view import vehicle

from companion.core.clock import monotonic_s
from companion.core.config import ConfigError
from companion.tracking import cameras
from companion.tracking.cameras import DeviceSource, open_source

VEHICLE = vehicle(width_px=160, height_px=120, rate_hz=100.0)


def picture(value, shape=(120, 160)):
    return np.full(shape, value % 256, np.uint8)


def folder(tmp_path, names=("1.png", "2.png", "10.png")):
    for i, name in enumerate(names):
        cv2.imwrite(str(tmp_path / name), picture(10 * (i + 1)))
    return str(tmp_path)


def test_a_folder_is_read_in_the_order_of_its_numbers_at_the_cameras_rate(tmp_path):
    source = open_source(folder(tmp_path), VEHICLE)
    start_s = monotonic_s()
    images = [source.read() for _ in range(3)]
    assert [i.data[0] for i in images] == [10, 20, 30]
    assert [(i.width, i.height, len(i.data)) for i in images] == [(160, 120, 19200)] * 3
    assert images[2].stamp_s - images[0].stamp_s >= 0.019
    assert images[0].stamp_s == pytest.approx(start_s - VEHICLE.latency.camera_s, abs=0.05)
    assert source.read() is None
    assert source.finished


def test_a_digit_that_is_no_number_in_the_name_of_an_image_is_a_letter(tmp_path):
    where = folder(tmp_path)
    cv2.imwrite(str(tmp_path / "wall_5m².png"), picture(9))
    assert open_source(where, VEHICLE).read() is not None


def test_an_unreadable_image_in_a_folder_is_counted_and_skipped(tmp_path):
    where = folder(tmp_path)
    (tmp_path / "2.png").write_bytes(b"not an image")
    cv2.imwrite(str(tmp_path / "10.png"), picture(9, (60, 80)))
    source = open_source(where, VEHICLE)
    assert [source.read() is None for _ in range(3)] == [False, True, True]
    assert source.errors == 2
    assert "10.png" in source.last_error


def test_a_video_file_is_played_to_its_end(tmp_path):
    path = str(tmp_path / "flight.avi")
    writer = cv2.VideoWriter(path, cv2.VideoWriter.fourcc(*"MJPG"), 30, (160, 120))
    if not writer.isOpened():
        pytest.skip("this OpenCV cannot write MJPG")
    for value in (50, 100, 150):
        writer.write(cv2.cvtColor(picture(value), cv2.COLOR_GRAY2BGR))
    writer.release()
    source = open_source(path, VEHICLE)
    images = [source.read() for _ in range(3)]
    assert [round(i.data[0], -1) for i in images] == [50, 100, 150]
    assert source.read() is None
    assert source.finished
    source.close()


@pytest.mark.parametrize("spec", ["/dev/video97", "97", "no/such/folder"])
def test_an_absent_camera_stops_the_start_and_is_named(spec):
    with pytest.raises(ConfigError, match=r"^camera (/dev/video97|no/such/folder): no such device.*$"):
        open_source(spec, VEHICLE)


def test_the_device_of_the_vehicle_file_is_the_default():
    with pytest.raises(ConfigError, match="camera /dev/video98: no such device"):
        open_source(None, vehicle(device="/dev/video98"))


def test_empty_folders_wrong_sizes_and_unreadable_files_stop_the_start(tmp_path):
    with pytest.raises(ConfigError, match="holds no images"):
        open_source(str(tmp_path), VEHICLE)
    cv2.imwrite(str(tmp_path / "a.png"), picture(1, (100, 100)))
    with pytest.raises(ConfigError, match=r"a.png: 100 x 100 px, the vehicle file says 160 x 120 px"):
        open_source(str(tmp_path), VEHICLE)
    (tmp_path / "a.png").write_bytes(b"nothing")
    with pytest.raises(ConfigError, match="a.png: not an image"):
        open_source(str(tmp_path), VEHICLE)
    (tmp_path / "x.mp4").write_bytes(b"nothing")
    with pytest.raises(ConfigError, match="x.mp4: not a video"):
        open_source(str(tmp_path / "x.mp4"), VEHICLE)


class FakeCapture:
    """Delivers some images, then fails like a real driver: end, exception or hang."""

    def __init__(self, count, failure="end"):
        self.left, self.failure, self.released = count, failure, False

    def read(self):
        time.sleep(0.002)
        if self.left > 0:
            self.left -= 1
            return True, picture(self.left)
        if self.failure == "raise":
            raise RuntimeError("driver gone")
        if self.failure == "hang":
            time.sleep(0.4)
        return False, None

    def release(self):
        self.released = True


@pytest.mark.parametrize("failure", ["end", "raise", "hang"])
def test_a_device_that_stops_is_reported_and_opened_again(monkeypatch, failure):
    monkeypatch.setattr(cameras, "REOPEN_PAUSE_S", 0.01)
    monkeypatch.setattr(cameras, "READ_TIMEOUT_S", 0.05)
    monkeypatch.setattr(cameras, "SILENCE_S", 0.1)
    opened = [FakeCapture(3, failure)]
    tries = []

    def opener(_first):
        tries.append(1)
        if len(tries) == 1:
            return opened[0]
        if len(tries) == 2:
            raise ConfigError("camera fake: cannot be opened")
        opened.append(FakeCapture(10**6))
        return opened[-1]

    source = DeviceSource(opener, "fake", 0.06)
    until_s = monotonic_s() + 3.0
    while not (source.reopened and source.read()) and monotonic_s() < until_s:
        source.read()
    image = source.read()
    assert image is not None
    assert image.stamp_s < monotonic_s() - 0.05
    assert source.errors >= 2
    assert source.last_error.startswith("camera fake: ")
    source.close()
    time.sleep(0.45 if failure == "hang" else 0.02)
    assert opened[0].released


def test_a_device_that_cannot_be_opened_at_the_start_is_the_users_error():
    def opener(_first):
        raise ConfigError("camera fake: cannot be opened")

    with pytest.raises(ConfigError, match="cannot be opened"):
        DeviceSource(opener, "fake", 0.0)


def test_a_device_keeps_only_the_newest_image():
    class Counting(FakeCapture):
        def read(self):
            time.sleep(0.002)
            self.left += 1
            return True, picture(min(self.left, 255))

    source = DeviceSource(lambda _first: Counting(0), "fake", 0.0)
    first = source.read().data[0]
    time.sleep(0.1)
    second = source.read().data[0]
    source.close()
    assert second - first > 10


class OneHolder:
    """A device that one opening at a time may hold, as V4L2 lets one stream; a second one is refused.

    opening_s: that each opening after the first one takes.
    """

    def __init__(self, opening_s):
        self.opening_s, self.plugged, self.held, self.refused, self.lock = opening_s, True, False, 0, threading.Lock()

    def open(self, report):
        with self.lock:
            if self.held:
                self.refused += 1
                raise ConfigError("camera fake: in use")
            self.held = True
        time.sleep(0.0 if report is None else self.opening_s)
        return self

    def read(self):
        time.sleep(0.005)
        return (True, picture(1)) if self.plugged else (False, None)

    def release(self):
        self.held = False


def test_a_device_that_opens_longer_than_the_silence_comes_back_by_one_opening(monkeypatch):
    monkeypatch.setattr(cameras, "REOPEN_PAUSE_S", 0.05)
    monkeypatch.setattr(cameras, "READ_TIMEOUT_S", 0.02)
    monkeypatch.setattr(cameras, "SILENCE_S", 0.1)
    device = OneHolder(0.5)
    source = DeviceSource(device.open, "fake", 0.0)
    assert source.read() is not None
    device.plugged = False
    while source.errors == 0:
        source.read()
    device.plugged = True
    until_s = monotonic_s() + 2.0
    while not (source.reopened and source.read()) and monotonic_s() < until_s:
        source.read()
    source.close()
    assert (source.reopened, source.errors, device.refused) == (1, 1, 0)
    assert source.last_error == "camera fake: stopped delivering"


def test_an_opening_that_hangs_is_given_up_and_what_it_opens_late_is_released(monkeypatch):
    monkeypatch.setattr(cameras, "READ_TIMEOUT_S", 0.02)
    monkeypatch.setattr(cameras, "SILENCE_S", 0.1)
    monkeypatch.setattr(cameras, "REOPEN_PAUSE_S", 0.01)
    monkeypatch.setattr(cameras, "OPENING_MAX_S", 0.3)
    late, tries = FakeCapture(10**6), []

    def opener(_first):
        tries.append(1)
        if len(tries) == 2:
            time.sleep(0.6)
            return late
        return FakeCapture(3 if len(tries) == 1 else 10**6)

    source = DeviceSource(opener, "fake", 0.0)
    until_s = monotonic_s() + 1.2
    while monotonic_s() < until_s:
        source.read()
    source.close()
    assert (len(tries), source.reopened, late.released, late.left) == (3, 1, True, 10**6)
    assert source.last_error == "camera fake: no image for 0.3 s"


def test_a_device_that_comes_back_with_other_settings_is_used_and_reported(monkeypatch):
    monkeypatch.setattr(cameras, "REOPEN_PAUSE_S", 0.01)

    def opener(report):
        if report is None:
            return FakeCapture(3)
        report("did not take camera.controls: gain = 4 (it has 16)")
        return FakeCapture(10**6)

    source = DeviceSource(opener, "fake", 0.0)
    until_s = monotonic_s() + 3.0
    while not (source.reopened and source.read()) and monotonic_s() < until_s:
        source.read()
    assert source.read() is not None
    source.close()
    assert (source.reopened, source.errors) == (1, 2)
    assert source.last_error == "camera fake: did not take camera.controls: gain = 4 (it has 16)"


def test_a_first_opening_that_takes_long_is_no_silence(monkeypatch):
    monkeypatch.setattr(cameras, "READ_TIMEOUT_S", 0.01)
    monkeypatch.setattr(cameras, "SILENCE_S", 0.2)

    class SlowFirst(FakeCapture):
        def read(self):
            time.sleep(0.1)
            return super().read()

    source = DeviceSource(lambda _first: time.sleep(0.3) or SlowFirst(10**6), "fake", 0.0)
    assert source.read() is None
    source.close()
    assert source.errors == 0
