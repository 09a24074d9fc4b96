"""Camera sources for the camera process: a V4L2 device, a CSI camera of a Raspberry Pi, a folder of images, a video file.

The only module of this package that is not pure: it reads the clock, blocks and starts a thread. Opening a source may
fail (`open_source` raises `ConfigError` with one line for the user); an open source never raises. Errors in flight are
counted, and `last_error` has the newest. A device that stops delivering is opened again.

The stamp of an image is the middle of its exposure: its arrival minus latency.camera_s of the vehicle file.
"""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import cv2
import numpy as np
from cv2.typing import MatLike

from companion.core.clock import monotonic_s
from companion.core.config import ConfigError
from companion.core.messages import Image
from companion.core.opencv import limit_wait
from companion.core.vehicle import Camera, Vehicle
from companion.tracking.camera_controls import fix
from companion.tracking.rpicam import Report, is_rpicam, open_rpicam
from companion.tracking.stereo_devices import is_stereo_device, open_stereo_device

SUFFIXES = (".png", ".jpg", ".jpeg", ".pgm", ".bmp", ".tif", ".tiff")
READ_TIMEOUT_S = 0.5  # longest wait of `read` for an image of a device
SILENCE_S = 2.0  # a device that delivers no image for this time is opened again
REOPEN_PAUSE_S = 1.0
FIRST_IMAGE_S = 5.0  # some cameras need seconds for their first image
OPEN_S = 12.0  # for all formats together: with the program's own start well below TimeoutStartSec of the units, 20 s
OPENING_MAX_S = OPEN_S + 5.0  # with the last wait, the controls and a slow release; an opening that takes longer hangs
RATE_TOLERANCE = 0.1  # of the rate in the vehicle file
FORMATS = (None, "GREY", "YUYV", "MJPG")  # tried in turn until size and rate fit; None: the device's own choice

log = logging.getLogger(__name__)


class Source(Protocol):
    """A source of images."""

    finished: bool  # no more images will come
    errors: int
    last_error: str

    def read(self) -> Image | None:
        """The next image; None when there is none yet. Waits for it, never raises."""

    def close(self) -> None:
        """Free the device."""


def open_source(spec: str | None, vehicle: Vehicle, exposure: float | None = None) -> Source:
    """Open a source by name: "0", "/dev/video0", "rpicam", a folder of images, a video file, "realsense", "oak"; None: camera.device.

    exposure: the device's own unit (100 µs for most V4L2 cameras), None: automatic; for devices only.
    Raises `ConfigError` when it is absent or empty, when its images differ in size from the vehicle file, or when a device
    did not take `camera.controls`.
    """
    camera, spec = vehicle.camera, spec or vehicle.camera.device
    latency_s = vehicle.latency.camera_s
    if is_stereo_device(spec):
        if camera.controls is not None:
            raise ConfigError(f"camera {spec}: camera.controls: not for this device: it sets its own exposure")
        return open_stereo_device(spec, vehicle)
    if is_rpicam(spec):
        return DeviceSource(lambda report: open_rpicam(camera, spec, report), spec, latency_s)
    if spec.isdigit() or spec.startswith("/dev/"):
        path = f"/dev/video{spec}" if spec.isdigit() else spec
        if not Path(path).exists():
            raise ConfigError(f"camera {path}: no such device")
        return DeviceSource(lambda report: _open_device(path, camera, exposure, report), path, latency_s)
    size = camera.width_px, camera.height_px
    if Path(spec).is_dir():
        return FolderSource(Path(spec), *size, camera.rate_hz, latency_s)
    if Path(spec).is_file():
        return VideoSource(Path(spec), *size, camera.rate_hz, latency_s)
    raise ConfigError(f"camera {spec}: no such device, folder or video file")


class FolderSource:
    """Images of a folder in the order of their names, at the camera's rate."""

    def __init__(self, folder: Path, width_px: int, height_px: int, rate_hz: float, latency_s: float) -> None:
        self._paths = sorted((p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES), key=_natural)
        if not self._paths:
            raise ConfigError(f"camera {folder}: the folder holds no images ({' '.join(SUFFIXES)})")
        self._size, self._latency_s = (width_px, height_px), latency_s
        self._clock = _PlaybackClock(rate_hz)
        self._next = 0
        self.finished, self.errors, self.last_error = False, 0, ""
        first = cv2.imread(str(self._paths[0]), cv2.IMREAD_GRAYSCALE)
        if first is None:
            raise ConfigError(f"camera {self._paths[0]}: not an image")
        _check_size(str(self._paths[0]), first, self._size)

    def read(self) -> Image | None:
        """The next image at its time; an unreadable one is counted and skipped."""
        if self._next >= len(self._paths):
            self.finished = True
            return None
        path, self._next = self._paths[self._next], self._next + 1
        gray = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
        arrival_s = self._clock.wait()
        if gray is None or gray.shape[::-1] != self._size:
            self.errors += 1
            self.last_error = f"camera {path}: not an image of {self._size[0]} x {self._size[1]} px"
            return None
        return _image(gray, arrival_s - self._latency_s)

    def close(self) -> None:
        self.finished = True


class VideoSource:
    """Frames of a video file at the camera's rate."""

    def __init__(self, path: Path, width_px: int, height_px: int, rate_hz: float, latency_s: float) -> None:
        self._capture = cv2.VideoCapture(str(path))
        ok, frame = self._capture.read()
        if not ok:
            raise ConfigError(f"camera {path}: not a video that can be read")
        self._waiting: MatLike | None = frame
        self._path, self._size, self._latency_s = path, (width_px, height_px), latency_s
        self._clock = _PlaybackClock(rate_hz)
        self.finished, self.errors, self.last_error = False, 0, ""
        _check_size(str(path), frame, self._size)

    def read(self) -> Image | None:
        """The next frame at its time."""
        frame, self._waiting = self._waiting, None
        if frame is None and not self.finished:
            try:
                ok, frame = self._capture.read()
            except cv2.error as error:
                self.errors, self.last_error = self.errors + 1, f"camera {self._path}: {error}"
                ok = False
            self.finished = not ok
        if self.finished or frame is None:
            return None
        arrival_s = self._clock.wait()
        if frame.shape[1::-1] != self._size:
            self.errors, self.last_error = self.errors + 1, f"camera {self._path}: the frame size changed"
            return None
        return _image(_gray(frame), arrival_s - self._latency_s)

    def close(self) -> None:
        self.finished = True
        self._capture.release()


class Capture(Protocol):
    """An open device (`cv2.VideoCapture`)."""

    def read(self) -> tuple[bool, MatLike | None]:
        """The next frame; False when there is none."""

    def release(self) -> None:
        """Free the device."""


class DeviceSource:
    """A camera device, read by a thread that keeps the newest image only and opens a silent device again.

    opener: opens the device and raises `ConfigError` when that fails; its argument is None the first time: only then a
    device with wrong settings is refused. In flight it is better than none, and what is wrong goes to the argument. The
    first error goes to the user; later ones are counted, and the device is tried again.
    """

    def __init__(self, opener: Callable[[Report | None], Capture], name: str, latency_s: float) -> None:
        self._opener, self._name, self._latency_s = opener, name, latency_s
        self.finished, self.errors, self.last_error, self.reopened = False, 0, "", 0
        self._newest: tuple[MatLike, float] | None = None
        self._fresh = threading.Condition()
        capture = opener(None)
        self._wait_s, self._wait_until_s = SILENCE_S, monotonic_s() + SILENCE_S
        self._start(capture)

    def read(self) -> Image | None:
        """The newest image that was not read yet; None after READ_TIMEOUT_S without one."""
        with self._fresh:
            if self._newest is None:
                self._fresh.wait(READ_TIMEOUT_S)
            newest, self._newest = self._newest, None
        if newest is None:
            # The driver may hang inside its read: then a new thread takes over, and the old one ends after that read.
            if not self.finished and monotonic_s() > self._wait_until_s:
                self._reopen(f"no image for {self._wait_s:g} s")
            return None
        frame, arrival_s = newest
        return _image(_gray(frame), arrival_s - self._latency_s)

    def close(self) -> None:
        self.finished = True
        self._stop.set()
        self._thread.join(READ_TIMEOUT_S)

    def _start(self, capture: Capture | None) -> None:
        self._stop = threading.Event()
        if capture is None:
            self._wait(OPENING_MAX_S, self._stop)
        self._thread = threading.Thread(
            target=self._grab, args=(capture, self._stop), name=f"camera {self._name}", daemon=True
        )
        self._thread.start()

    def _reopen(self, why: str) -> None:
        self._report(why)
        with self._fresh:
            self._stop.set()
        self._start(None)

    def _wait(self, wait_s: float, stop: threading.Event) -> None:
        """Let `read` wait so long from now [s] before it opens the device again; a thread that was stopped changes nothing."""
        with self._fresh:
            if not stop.is_set():
                self._wait_s, self._wait_until_s = wait_s, monotonic_s() + wait_s

    def _open(self, stop: threading.Event) -> Capture:
        """Open the device again; `read` starts no second opening meanwhile: on one device each would end the other."""
        self._wait(OPENING_MAX_S, stop)
        problems: list[str] = []
        capture = self._opener(problems.append)
        if not stop.is_set():
            self.reopened += 1
            for problem in problems:
                self._report(problem)
        self._wait(SILENCE_S, stop)
        return capture

    def _report(self, why: str) -> None:
        self.errors += 1
        self.last_error = f"camera {self._name}: {why}"
        log.warning("%s", self.last_error)

    def _grab(self, capture: Capture | None, stop: threading.Event) -> None:
        size = None
        while not stop.is_set():
            try:
                if capture is None:
                    capture = self._open(stop)
                    if stop.is_set():
                        break
                ok, frame = capture.read()
                arrival_s = monotonic_s()
                if ok and frame is not None and (size is None or frame.shape == size):
                    size = frame.shape
                    with self._fresh:
                        if stop.is_set():
                            break
                        self._newest = frame, arrival_s
                        self._wait_s, self._wait_until_s = SILENCE_S, arrival_s + SILENCE_S
                        self._fresh.notify()
                    continue
                why = "the image size changed" if ok else "stopped delivering"
            except Exception as error:  # an error of a driver must not end the camera process
                why = str(error).splitlines()[0] if str(error) else type(error).__name__
            if not stop.is_set():
                self._report(why.removeprefix(f"camera {self._name}: "))
            _release(capture)
            capture, size = None, None
            self._wait(REOPEN_PAUSE_S + SILENCE_S, stop)
            stop.wait(REOPEN_PAUSE_S)
        _release(capture)


class _PlaybackClock:
    """Waits for the next of equally spaced times; missed times are skipped."""

    def __init__(self, rate_hz: float) -> None:
        self._period_s = 1.0 / rate_hz
        self._next_s: float | None = None

    def wait(self) -> float:
        """Wait for the next time; returns the time after the wait [s]."""
        now_s = monotonic_s()
        if self._next_s is not None and self._next_s > now_s:
            time.sleep(self._next_s - now_s)
            now_s = monotonic_s()
        due_s = now_s if self._next_s is None else self._next_s
        self._next_s = max(due_s, now_s - self._period_s) + self._period_s
        return now_s


def _open_device(path: str, camera: Camera, exposure: float | None, report: Report | None) -> cv2.VideoCapture:
    """Open and set a V4L2 device; the first of FORMATS that reaches size and rate is taken, within OPEN_S and one wait.

    report: called with the controls of the vehicle file that it did not take; None: that raises `ConfigError`.
    """
    got, width_px, height_px, rate_hz = "nothing", camera.width_px, camera.height_px, camera.rate_hz
    limit_wait()  # it counts for each format
    until_s = monotonic_s() + OPEN_S
    gave_up = ""
    for form in FORMATS:
        if monotonic_s() >= until_s:
            gave_up = f"; gave up after {OPEN_S:g} s"
            break
        capture = cv2.VideoCapture(path, cv2.CAP_V4L2)
        if not capture.isOpened():
            raise ConfigError(f"camera {path}: cannot be opened (in use, no permission, or not a camera)")
        if form is not None:
            capture.set(cv2.CAP_PROP_FOURCC, cv2.VideoWriter.fourcc(*form))
        capture.set(cv2.CAP_PROP_FRAME_WIDTH, width_px)
        capture.set(cv2.CAP_PROP_FRAME_HEIGHT, height_px)
        capture.set(cv2.CAP_PROP_FPS, rate_hz)
        capture.set(cv2.CAP_PROP_BUFFERSIZE, 1)  # an old image is of no use
        if exposure is not None:
            capture.set(cv2.CAP_PROP_AUTO_EXPOSURE, 1)  # V4L2: manual
            capture.set(cv2.CAP_PROP_EXPOSURE, exposure)
        real_hz = capture.get(cv2.CAP_PROP_FPS)
        size = round(capture.get(cv2.CAP_PROP_FRAME_WIDTH)), round(capture.get(cv2.CAP_PROP_FRAME_HEIGHT))
        rate_fits = real_hz <= 0 or abs(real_hz - rate_hz) <= RATE_TOLERANCE * rate_hz
        if not rate_fits or (min(size) > 0 and size != (width_px, height_px)):
            # The driver says so before it streams: its first image would cost seconds and change nothing.
            got = f"{size[0]} x {size[1]} px at {real_hz:g} Hz"
            capture.release()
            continue
        frame = _first_frame(capture, min(monotonic_s() + FIRST_IMAGE_S, until_s))
        if frame is not None:
            got = f"{frame.shape[1]} x {frame.shape[0]} px at {real_hz:g} Hz"
            if frame.shape[1::-1] == (width_px, height_px):
                # Set while it streams: some drivers begin a stream with their own settings.
                if camera.controls is not None and (problem := fix(capture, camera.controls)):
                    if report is None:
                        capture.release()
                        raise ConfigError(f"camera {path}: {problem}")
                    report(problem)
                return capture
        capture.release()
    raise ConfigError(
        f"camera {path}: delivers {got}, the vehicle file says {width_px} x {height_px} px at {rate_hz:g} Hz{gave_up}"
    )


def _first_frame(capture: cv2.VideoCapture, until_s: float) -> MatLike | None:
    while monotonic_s() < until_s:
        ok, frame = capture.read()
        if ok:
            return frame
        time.sleep(0.05)
    return None


def _release(capture: Capture | None) -> None:
    if capture is not None:
        try:
            capture.release()
        except Exception as error:
            log.warning("camera: cannot be released: %s", error)


def _check_size(name: str, frame: MatLike, size: tuple[int, int]) -> None:
    h, w = frame.shape[:2]
    if (w, h) != size:
        raise ConfigError(f"camera {name}: {w} x {h} px, the vehicle file says {size[0]} x {size[1]} px")


def _gray(frame: MatLike) -> MatLike:
    if frame.ndim == 2:
        return frame
    if frame.shape[2] == 1:
        return frame[:, :, 0]
    return cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY)


def _image(gray: MatLike, stamp_s: float) -> Image:
    height, width = gray.shape
    return Image(stamp_s=stamp_s, width=width, height=height, data=np.ascontiguousarray(gray).tobytes())


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """A sort key that puts 2.jpg before 10.jpg."""
    parts: list[tuple[int, int, str]] = []
    number = ""
    for c in path.name + "\0":
        if c.isdecimal():
            number += c
            continue
        if number:
            parts.append((0, int(number), ""))
            number = ""
        parts.append((1, 0, c))
    return parts
