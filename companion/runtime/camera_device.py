"""What the payload process reads and writes besides the bus: the camera's own link, or a local camera."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from companion.core.clock import monotonic_s
from companion.core.messages import CameraRx, CameraTx, Capture, Message
from companion.core.vehicle import Vehicle
from companion.fcu.camera_pass import CameraFrame, RawMessage, concerns_camera
from companion.fcu.link.codec import Codec
from companion.fcu.link.framing import Framer
from companion.fcu.link.link import Link, open_link
from companion.fcu.link.sender import ANY_SENDER
from companion.payload.identity import payload_component
from companion.planning.camera import PayloadCamera
from companion.planning.camera_control import BY_FLIGHT_CONTROLLER

if TYPE_CHECKING:
    from companion.payload.still_camera import StillCamera


def open_camera(camera: PayloadCamera, vehicle: Vehicle, folder: Path) -> "CameraLink | StillDevice | None":
    """The camera's own link or the local camera; None: the fcu process has the link. Raises `ConfigError`.

    folder: for the pictures of a local camera.
    """
    control = camera.control
    if control is None or control.link == BY_FLIGHT_CONTROLLER:
        return None
    if control.trigger == "still":
        from companion.payload.still_camera import StillCamera

        return StillDevice(StillCamera(camera, folder))
    return CameraLink(open_link(control.link or "", sender=ANY_SENDER), vehicle)


class CameraLink:
    """A camera on a link of its own; `companion.runtime.process.Device`.

    Its system id may be any; messages to and from it need no signature.
    """

    def __init__(self, link: Link, vehicle: Vehicle) -> None:
        self._link = link
        self._ids = (vehicle.fcu.system_id, payload_component(vehicle))
        self._codec = Codec(*self._ids, vehicle.fcu.autopilot_system_id)  # of what is sent
        self._framer = Framer()

    @property
    def trouble(self) -> str:
        """One line, "" while the link works."""
        return self._link.trouble

    def close(self) -> None:
        """Release the link."""
        self._link.close()

    def fileno(self) -> int:
        """Descriptor to poll for reading, -1 while there is none."""
        return self._link.fileno()

    def read(self) -> Iterable[Message]:
        """The messages of camera and gimbal that have arrived."""
        data = self._link.read()
        if not data:
            return
        now_s = monotonic_s()
        buffer, frames = self._framer.frames(data)
        for frame, known in frames:
            found = CameraFrame(frame.system, frame.component, frame.number, buffer[frame.payload : frame.tail])
            if known and concerns_camera(found, frame.system, self._ids):
                yield CameraRx(stamp_s=now_s, **found._asdict())

    def write(self, messages: Iterable[Message]) -> Iterable[Message]:
        """Send each `CameraTx`; returns all messages, for the log."""
        for message in messages:
            if isinstance(message, CameraTx):
                self._link.write(self._codec.encode(RawMessage(message.number, message.payload)))
            yield message


class StillDevice:
    """A local camera inside the payload process; `companion.runtime.process.Device`.

    Each picture gets its tags when its pose is known.
    """

    def __init__(self, camera: "StillCamera") -> None:
        self._camera = camera

    @property
    def trouble(self) -> str:
        """One line, "" while the camera works."""
        return self._camera.trouble

    def close(self) -> None:
        """Release the camera."""
        self._camera.close()

    def fileno(self) -> int:
        """-1: its answers wait until the next step of the node."""
        return -1

    def read(self) -> Iterable[Message]:
        """The camera's answers."""
        return self._camera.answers()

    def write(self, messages: Iterable[Message]) -> Iterable[Message]:
        """Give each `CameraTx` to the camera and each `Capture` to its picture; returns all messages, for the log."""
        for message in messages:
            if isinstance(message, CameraTx):
                self._camera.command(message)
            elif isinstance(message, Capture):
                self._camera.tag(message)
            yield message
