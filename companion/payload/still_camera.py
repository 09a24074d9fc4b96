"""A local camera as the payload camera: full-resolution stills of a V4L2 device by OpenCV.

It answers the MAVLink messages of a camera component, inside the payload process, so that the node treats it like any other
camera. A thread holds the device: it takes frames without a break, because a device's buffers would otherwise deliver old
ones, keeps the first that was exposed after the command, and writes it. Its clock is the companion's. While the device delivers
no frame there is no heartbeat, as of a camera that was unplugged: nothing else can be asked about it.
"""

import math
import queue
import shutil
import threading
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pymavlink.dialects.v20 import common

from companion.core.clock import monotonic_s
from companion.core.config import ConfigError
from companion.core.errors import UserError
from companion.core.messages import CameraRx, CameraTx, Capture, Message
from companion.core.opencv import limit_wait
from companion.core.text import plain
from companion.payload.camera_clock import BOOT_MS_WRAP
from companion.payload.identity import STILL_COMPONENT
from companion.payload.mavlink import FILE_URL_MAX, Packable, decode, encode
from companion.payload.tags import tags_of, write_tags
from companion.planning.camera import PayloadCamera

SYSTEM = 1
HEARTBEAT_PERIOD_S = 1.0
OPEN_TRIES = 5  # frames that may fail after the device was opened
FRAME_WAIT_S = 2.0  # for a frame; a device that takes longer is silent
STAMP_AGE_MAX_S = 1.0
COMMAND_AGE_MAX_S = (
    1.0  # and the delay of the camera file; a frame that is exposed later after its command is another moment's
)
JPEG_QUALITY = 95
REOPEN_S = 1.0


class StillCamera:
    """One device. `command` and `answers` carry MAVLink messages; nothing of them blocks or raises."""

    def __init__(self, camera: PayloadCamera, folder: Path, device: Any = None) -> None:
        """folder: for the pictures; it is made with the first. device: in the place of OpenCV's, for tests.

        Raises `ConfigError` when the device cannot be opened or delivers pictures of another size than the camera file says.
        """
        control = camera.control
        assert control is not None and control.device is not None
        limit_wait()
        self._trouble = ""
        self._waiting_s = math.inf  # since when the thread waits for a frame
        self._camera, self._folder, self._name = camera, folder, control.device
        self._late_s = COMMAND_AGE_MAX_S + control.shutter_delay_s
        self._device = _unopened() if device is None else device
        if problem := self._open():
            raise ConfigError(f"camera {camera.name}: control.device {self._name}: {problem}")
        self._requests: queue.Queue[tuple[int, float]] = queue.Queue()
        self._tags: queue.Queue[Capture] = queue.Queue()
        self._out: deque[Packable] = deque()
        self._timesync: deque[int] = deque()
        self._sequence = -1.0
        self._count = 0
        self._paths: dict[int, Path] = {}  # of the pictures, by count
        self._heartbeat_s = -math.inf
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="still camera")
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join(5.0)

    @property
    def trouble(self) -> str:
        """One line, "" while the device delivers frames."""
        if not self._trouble and monotonic_s() - self._waiting_s > FRAME_WAIT_S:
            return plain(f"still camera {self._name}: delivers no frame for {FRAME_WAIT_S:g} s", 200)
        return self._trouble

    # --- messages -------------------------------------------------------------------------------------------------

    def command(self, message: CameraTx) -> None:
        """Take a message of the node."""
        m = decode(CameraRx(stamp_s=0.0, system=SYSTEM, component=0, number=message.number, payload=message.payload))
        if m is None:
            return
        if message.number == common.MAVLINK_MSG_ID_TIMESYNC and m.tc1 == 0:
            self._timesync.append(m.ts1)
        elif message.number == common.MAVLINK_MSG_ID_COMMAND_LONG and m.target_component == STILL_COMPONENT:
            self._out.append(common.MAVLink_command_ack_message(m.command, self._execute(m)))

    def _execute(self, m: Any) -> int:
        boot_ms, camera = _boot_ms(monotonic_s()), self._camera
        if m.command == common.MAV_CMD_IMAGE_START_CAPTURE:
            if self.trouble:
                return int(common.MAV_RESULT_FAILED)
            if m.param4 != self._sequence:
                self._sequence = m.param4
                self._requests.put((self._count, monotonic_s()))
                self._count += 1
            return int(common.MAV_RESULT_ACCEPTED)
        if m.command != common.MAV_CMD_REQUEST_MESSAGE:
            return int(common.MAV_RESULT_UNSUPPORTED)
        number = round(m.param1)
        if number == common.MAVLINK_MSG_ID_CAMERA_INFORMATION:
            vendor, model = (list(word.encode()[:32].ljust(32, b"\0")) for word in ("local", camera.name))
            sizes = (camera.focal_length_mm or 0.0, 0.0, 0.0, camera.width_px, camera.height_px)
            self._out.append(common.MAVLink_camera_information_message(boot_ms, vendor, model, 0, *sizes, 0, 0, 0, b""))
        elif number == common.MAVLINK_MSG_ID_STORAGE_INFORMATION:
            free_mb, total_mb, status = self._storage()
            self._out.append(
                common.MAVLink_storage_information_message(
                    boot_ms, 1, 1, status, total_mb, total_mb - free_mb, free_mb, 0.0, 0.0
                )
            )
        elif number == common.MAVLINK_MSG_ID_CAMERA_CAPTURE_STATUS:
            self._out.append(
                common.MAVLink_camera_capture_status_message(boot_ms, 0, 0, 0.0, 0, self._storage()[0], self._count)
            )
        else:
            return int(common.MAV_RESULT_UNSUPPORTED)
        return int(common.MAV_RESULT_ACCEPTED)

    def _storage(self) -> tuple[float, float, int]:
        """Free and total MB of the folder's disk, and its status."""
        there = next((folder for folder in (self._folder, *self._folder.parents) if folder.is_dir()), Path("/"))
        try:
            usage = shutil.disk_usage(there)
        except OSError:
            return 0.0, 1.0, int(common.STORAGE_STATUS_EMPTY)
        return usage.free / 1e6, usage.total / 1e6, int(common.STORAGE_STATUS_READY)

    def answers(self) -> Iterable[Message]:
        """What the camera has sent since the last call."""
        now_s = monotonic_s()
        if now_s - self._heartbeat_s >= HEARTBEAT_PERIOD_S and not self.trouble:
            self._heartbeat_s = now_s
            self._out.append(
                common.MAVLink_heartbeat_message(
                    common.MAV_TYPE_CAMERA, common.MAV_AUTOPILOT_INVALID, 0, 0, common.MAV_STATE_ACTIVE, 3
                )
            )
        while self._timesync:  # both ends have one clock: half of the round trip was before now
            ts1 = self._timesync.popleft()
            self._out.append(common.MAVLink_timesync_message((ts1 + round(now_s * 1e9)) // 2, ts1))
        out = []
        while self._out:
            sent = encode(self._out.popleft(), now_s)
            out.append(
                CameraRx(
                    stamp_s=now_s, system=SYSTEM, component=STILL_COMPONENT, number=sent.number, payload=sent.payload
                )
            )
        return out

    def tag(self, capture: Capture) -> None:
        """Write the tags of a photograph into its picture, when the thread comes to it."""
        if capture.image_index in self._paths:
            self._tags.put(capture)

    # --- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        wanted: tuple[int, float] | None = None
        while not self._stop.is_set():
            try:
                if wanted is None and not self._requests.empty():
                    wanted = self._requests.get_nowait()
                if not self._grab():
                    if wanted is not None:  # what comes after the device was opened again is another moment's
                        self._answer(wanted[0], monotonic_s(), "", 0)
                        wanted = None
                    self._open_again("delivers no frame")
                    continue
                self._trouble = ""
                exposed_s = self._exposed_s()
                if wanted is not None and exposed_s >= wanted[1]:
                    problem = self._take(*wanted, exposed_s)
                    wanted = None
                    if problem:
                        self._open_again(problem)
                while wanted is None and not self._tags.empty():
                    self._write_tags(self._tags.get_nowait())
            except Exception as error:  # noqa: BLE001 - in flight nothing ends the thread
                self._trouble = plain(f"still camera {self._name}: {error}", 200)
                if wanted is not None:
                    self._answer(wanted[0], monotonic_s(), "", 0)
                    wanted = None

    def _grab(self) -> bool:
        self._waiting_s = monotonic_s()
        try:
            return bool(self._device.grab())
        finally:
            self._waiting_s = math.inf

    def _open(self) -> str:
        """Open the device with the size of the camera file; returns what is wrong with it, "" nothing."""
        import cv2

        device, camera = self._device, self._camera
        device.open(self._name, cv2.CAP_V4L2 if self._name.startswith("/dev/") else cv2.CAP_ANY)
        device.set(cv2.CAP_PROP_FOURCC, cv2.VideoWriter.fourcc(*"MJPG"))
        device.set(cv2.CAP_PROP_FRAME_WIDTH, camera.width_px)
        device.set(cv2.CAP_PROP_FRAME_HEIGHT, camera.height_px)
        if not device.isOpened() or not any(device.grab() for _ in range(OPEN_TRIES)):
            return "cannot be opened or delivers no frame"
        size = (round(device.get(cv2.CAP_PROP_FRAME_WIDTH)), round(device.get(cv2.CAP_PROP_FRAME_HEIGHT)))
        if problem := self._wrong_size(*size):
            device.release()
        return problem

    def _open_again(self, problem: str) -> None:
        """Say what is wrong, until the device is as it was at the start."""
        while problem and not self._stop.is_set():
            self._trouble = plain(f"still camera {self._name}: {problem}; trying again every {REOPEN_S:g} s", 200)
            self._stop.wait(REOPEN_S)
            problem = self._open()

    def _wrong_size(self, width_px: int, height_px: int) -> str:
        camera = self._camera
        if (width_px, height_px) == (camera.width_px, camera.height_px):
            return ""
        return f"delivers {width_px} x {height_px} px, the camera file says {camera.width_px} x {camera.height_px}"

    def _exposed_s(self) -> float:
        """Mid-exposure of the frame just taken: the driver's time, where it is the monotonic clock's."""
        import cv2

        now_s = monotonic_s()
        driver_s = 1e-3 * float(self._device.get(cv2.CAP_PROP_POS_MSEC))
        return driver_s if 0.0 <= now_s - driver_s <= STAMP_AGE_MAX_S else now_s - 0.5 * self._camera.exposure_s

    def _take(self, index: int, commanded_s: float, exposed_s: float) -> str:
        """Keep the frame unless it comes too late for its command; returns what is wrong with its size."""
        if exposed_s - commanded_s <= self._late_s:
            return self._keep(index, exposed_s)
        self._answer(index, exposed_s, "", 0)
        return ""

    def _keep(self, index: int, exposed_s: float) -> str:
        """Write the picture and answer; returns what is wrong with its size, for then it is no photograph."""
        import cv2

        taken, frame = self._device.retrieve()
        if taken and (problem := self._wrong_size(frame.shape[1], frame.shape[0])):
            self._answer(index, exposed_s, "", 0)
            return problem
        done, jpeg = cv2.imencode(".jpg", frame, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY]) if taken else (False, None)
        if not done or jpeg is None:
            self._answer(index, exposed_s, "", 0)
            return ""
        self._folder.mkdir(parents=True, exist_ok=True)
        names = (self._folder / f"{index + 1:05d}{suffix}.jpg" for suffix in ("", *(f"_{i}" for i in range(2, 1000))))
        path = next(name for name in names if not name.exists())
        path.write_bytes(jpeg.tobytes())
        self._paths[index] = path
        self._answer(index, exposed_s, self._reported(path), 1)
        return ""

    def _reported(self, path: Path) -> str:
        """A picture's path; where that is too long for the message, from the folder of the log, from which a relative one counts."""
        whole = str(path)
        return whole if len(whole.encode()) <= FILE_URL_MAX else str(Path(self._folder.name) / path.name)

    def _answer(self, index: int, exposed_s: float, file: str, result: int) -> None:
        self._out.append(
            common.MAVLink_camera_image_captured_message(
                _boot_ms(exposed_s), 0, 0, 0, 0, 0, 0, [1.0, 0.0, 0.0, 0.0], index, result, file.encode()
            )
        )

    def _write_tags(self, capture: Capture) -> None:
        path = self._paths.pop(capture.image_index)
        try:
            write_tags(path, path, tags_of(capture, self._camera, time.time() - monotonic_s()))
        except UserError as error:
            self._trouble = plain(str(error), 200)


def _boot_ms(now_s: float) -> int:
    return round(now_s * 1e3) % BOOT_MS_WRAP


def _unopened() -> Any:
    import cv2

    return cv2.VideoCapture()
