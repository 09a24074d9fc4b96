"""The CSI cameras of a Raspberry Pi through ``rpicam-vid`` of Raspberry Pi OS (Bookworm, Trixie).

``camera.device = "rpicam"`` opens the first camera, ``"rpicam:1"`` the second. The program writes frames of YUV 4:2:0 to its standard
output, of which the brightness is used, and one entry of metadata for each, from which exposure and gain are read back. It was
written by the program's documentation and is tested with a program that takes its place; it was not run on the hardware.
"""

import os
import re
import select
import subprocess
from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from companion.core.clock import monotonic_s
from companion.core.config import ConfigError
from companion.core.vehicle import Camera, CameraControls

PROGRAM = "rpicam-vid"
PREFIX = "rpicam"
ALIGNMENT_PX = 64  # rows of other widths are padded, which the program does not tell
FIRST_FRAME_S = 8.0  # it starts its camera stack
FRAME_TIMEOUT_S = 2.0
END_S = 2.0  # until a program that does not end is killed
READ_BACK_FRAMES = 20  # at most, until the metadata of a frame have come
TOLERANCE = 0.1  # share of exposure and gain
PIPE_BYTES = 65536
TEXT_BYTES = 20000  # of metadata that are kept: some frames
EXPOSURE = re.compile(rb'"?ExposureTime"?\s*[:=]\s*([0-9.]+)')  # µs
Report = Callable[[str], None]  # takes one line for the user
GAIN = re.compile(rb'"?AnalogueGain"?\s*[:=]\s*([0-9.]+)')


def is_rpicam(device: str) -> bool:
    """Whether a device name of the vehicle file means such a camera."""
    return device == PREFIX or (device.startswith(f"{PREFIX}:") and device[len(PREFIX) + 1 :].isdigit())


def arguments(camera: Camera, device: str, metadata: str) -> list[str]:
    """The command line for a camera; metadata: the file that gets them."""
    number = device.partition(":")[2] or "0"
    found = [PROGRAM, "--camera", number, "--timeout", "0", "--nopreview", "--flush", "--codec", "yuv420"]
    found += ["--width", str(camera.width_px), "--height", str(camera.height_px), "--framerate", f"{camera.rate_hz:g}"]
    found += ["--metadata", metadata, "--metadata-format", "json", "--output", "-"]
    controls = camera.controls or CameraControls()
    if controls.exposure_s is not None:
        found += ["--shutter", str(round(controls.exposure_s * 1e6))]
    if controls.gain is not None:
        found += ["--gain", f"{controls.gain:g}"]
    if controls.focus is not None:
        found += ["--autofocus-mode", "manual", "--lens-position", f"{controls.focus:g}"]
    return found


class RpicamCapture:
    """A running ``rpicam-vid``; read and release as `cv2.VideoCapture` has them."""

    def __init__(self, camera: Camera, device: str) -> None:
        """Start the program and wait for its first frame; raises `ConfigError` with what it said when none comes."""
        self._name, self._shape = f"camera {device}", (camera.height_px, camera.width_px)
        self._frame_bytes = camera.width_px * camera.height_px * 3 // 2
        self._frame, self._metadata = bytearray(), b""
        self._said: deque[bytes] = deque(maxlen=50)
        check(camera, device)
        metadata_read, metadata_write = os.pipe()
        try:
            self._process = subprocess.Popen(
                arguments(camera, device, f"/dev/fd/{metadata_write}"),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(metadata_write,),
                bufsize=0,
            )
        except OSError as error:
            os.close(metadata_read)
            raise ConfigError(
                f"{self._name}: {PROGRAM} cannot be started ({error.strerror}): install rpicam-apps"
            ) from None
        finally:
            os.close(metadata_write)
        stdout, stderr = self._process.stdout, self._process.stderr
        if stdout is None or stderr is None:
            raise ConfigError(f"{self._name}: {PROGRAM} has no output")
        self._output, self._errors, self._metadata_fd = stdout.fileno(), stderr.fileno(), metadata_read
        self._open = {self._output, self._errors, self._metadata_fd}
        for fd in self._open:
            os.set_blocking(fd, False)
        ok, _ = self.read(FIRST_FRAME_S)
        if not ok:
            said = self.last_line
            self.release()
            raise ConfigError(f"{self._name}: {PROGRAM} delivers no image" + (f": {said}" if said else ""))

    @property
    def last_line(self) -> str:
        """The last line that the program wrote about itself."""
        lines = b"".join(self._said).decode(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def read(self, timeout_s: float = FRAME_TIMEOUT_S) -> tuple[bool, NDArray[np.uint8] | None]:
        """The next frame, (height, width); False when none comes in time or the program ended."""
        until_s = monotonic_s() + timeout_s
        while self._output in self._open and (left_s := until_s - monotonic_s()) > 0.0:
            for fd in select.select(list(self._open), [], [], left_s)[0]:
                self._take(fd)
            if len(self._frame) == self._frame_bytes:
                whole, self._frame = self._frame, bytearray()
                height, width = self._shape
                return True, np.frombuffer(whole, np.uint8, height * width).reshape(self._shape)
        return False, None

    def _take(self, fd: int) -> None:
        wanted = min(PIPE_BYTES, self._frame_bytes - len(self._frame)) if fd == self._output else PIPE_BYTES
        try:
            data = os.read(fd, wanted)
        except BlockingIOError:
            return
        if not data:
            self._open.discard(fd)
        elif fd == self._output:
            self._frame += data
        elif fd == self._metadata_fd:
            self._metadata = (self._metadata + data)[-TEXT_BYTES:]
        else:
            self._said.append(data)

    def refused(self, controls: CameraControls) -> str:
        """A sentence that names the controls that the camera did not take, "" if it took all; reads some frames."""
        wanted = [
            (name, value, pattern, unit)
            for name, value, pattern, unit in (
                ("exposure_s", controls.exposure_s, EXPOSURE, 1e-6),
                ("gain", controls.gain, GAIN, 1.0),
            )
            if value is not None
        ]
        missing: list[str] = []
        for _ in range(READ_BACK_FRAMES if wanted else 0):
            missing = []
            for name, value, pattern, unit in wanted:
                found = pattern.findall(self._metadata)
                has = float(found[-1]) * unit if found else None
                if has is None or abs(has - value) > TOLERANCE * value:
                    missing.append(f"{name} = {value:g} ({'not reported' if has is None else f'it has {has:g}'})")
            if not missing or not self.read()[0]:
                break
        return f"did not take camera.controls: {', '.join(missing)}" if missing else ""

    def release(self) -> None:
        """End the program."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        if self._metadata_fd >= 0:
            os.close(self._metadata_fd)
            self._metadata_fd = -1
        self._open.clear()


def check(camera: Camera, device: str) -> None:
    """Raise `ConfigError` for what the program cannot deliver."""
    if camera.width_px % ALIGNMENT_PX or camera.height_px % 2:
        raise ConfigError(
            f"camera {device}: camera.width_px = {camera.width_px}, camera.height_px = {camera.height_px}: the width must be a "
            f"multiple of {ALIGNMENT_PX} and the height even"
        )
    if camera.controls is not None and camera.controls.white_balance_k is not None:
        raise ConfigError(
            f"camera {device}: camera.controls.white_balance_k: not for this camera, only brightness is used"
        )


def open_rpicam(camera: Camera, device: str, report: Report | None) -> RpicamCapture:
    """A running camera.

    report: called with the controls of the vehicle file that it did not take; None: that raises `ConfigError`.
    """
    capture = RpicamCapture(camera, device)
    if camera.controls is not None and (problem := capture.refused(camera.controls)):
        if report is None:
            capture.release()
            raise ConfigError(f"camera {device}: {problem}")
        report(problem)
    return capture
