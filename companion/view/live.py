"""A running stack as a source of the view: subscribes as any process, publishes only what a person asks for."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

from companion.core.bus import ZmqBus
from companion.core.clock import monotonic_s
from companion.core.enums import OperatorAction, ProcessName, TopicName
from companion.core.folders import Hold
from companion.core.messages import Image, OperatorRequest
from companion.core.subscriber import Subscriber
from companion.view.digest import INPUTS, Cursor, Digest

if TYPE_CHECKING:
    from companion.view.server import Page

ROWS_PER_PACKET = 2000
PICTURE_PERIOD_S = 0.2
PICTURE_WIDTH = 480
JPEG_QUALITY = 70
# Without a page these alone are received: the path, the phase and what was said; nothing else is needed later.
ASLEEP: tuple[TopicName, ...] = (
    "mission_status",
    "safety",
    "fcu_text",
    "fcu_command",
    "fcu_status",
    "operator_request",
)
RESTORE_PERIOD_S = 0.5  # as the processes of the stack
BACKLOG = 4  # calls of the subscriber in one piece of work


class LiveSource:
    """The bus of a running stack. scene: of `companion.view.scene`; raises `ConfigError` if a view runs there already."""

    live = True

    def __init__(self, bus: Path, scene: dict[str, Any]) -> None:
        self._folder, self._scene = bus, scene
        self._hold = Hold(bus, ProcessName.VIEW)
        self._bus = ZmqBus(bus, ProcessName.VIEW, (), self._hold)
        self.digest = Digest(monotonic_s())
        self._awake = False
        self._subscriber = Subscriber(bus, ASLEEP, ProcessName.VIEW)
        self._images: Subscriber | None = None
        self._image: Image | None = None
        self._jpeg: tuple[int, bytes] | None = None
        self._pictured_s = 0.0
        self._restored_s = monotonic_s()

    def hello(self) -> dict[str, Any]:
        return {"scene": self._scene, "live": True, "base": self.digest.base_s, "windows": 1, "window": 0, "notes": []}

    def wake(self, pages: int, cameras: int) -> None:
        if (pages > 0) != self._awake:
            before = self._subscriber
            self._subscriber = Subscriber(self._folder, INPUTS if pages > 0 else ASLEEP, ProcessName.VIEW)
            self._awake = pages > 0  # not where there was no file left for the sockets: then as before
            before.close()
        if (cameras > 0) != (self._images is not None):
            if self._images is not None:
                self._images.close()
            self._images = Subscriber(self._folder, ("image",), ProcessName.VIEW) if cameras else None

    def work(self) -> None:
        if (now_s := monotonic_s()) - self._restored_s >= RESTORE_PERIOD_S:
            self._restored_s = now_s
            self._bus.restore()
        for _ in range(BACKLOG):
            messages = self._subscriber.receive(0.0)
            for message in messages:
                self.digest.take(message)
            if len(messages) < 500:
                break
        if self._images is not None:
            for message in self._images.receive(0.0):
                self._image = message if isinstance(message, Image) else self._image

    def packet(self, page: "Page") -> bytes | None:
        if page.state is None:
            page.state = Cursor()
        now_s = monotonic_s()
        packet: bytes = page.state.packet(self.digest, ROWS_PER_PACKET, stamp=now_s, silent=self.digest.silent(now_s))
        return packet

    @property
    def phase(self) -> str:
        return self.digest.phase

    def picture(self, page: "Page") -> bytes | None:
        now_s = monotonic_s()
        if self._image is not None and now_s - self._pictured_s >= PICTURE_PERIOD_S:
            self._pictured_s = now_s
            self._jpeg = (self._image.seq, _jpeg(self._image))
        if self._jpeg is None or self._jpeg[0] == page.picture_seq:
            return None
        page.picture_seq = self._jpeg[0]
        return b"JPEG" + self._jpeg[1]

    def file(self, name: str) -> bytes | None:
        return None

    def ask(self, action: OperatorAction, who: str) -> str:
        self._bus.publish(OperatorRequest(stamp_s=monotonic_s(), action=action, who=who))
        return "sent to the mission"

    def close(self) -> None:
        """Close the sockets."""
        self._subscriber.close()
        if self._images is not None:
            self._images.close()
        self._bus.close()
        self._hold.release()


def _jpeg(image: Image) -> bytes:
    """A small JPEG of a frame; empty for a frame whose bytes do not fit its size."""
    if len(image.data) != image.width * image.height or not image.data:
        return b""
    frame = np.frombuffer(image.data, np.uint8).reshape(image.height, image.width)
    step = max(1, round(image.width / PICTURE_WIDTH))
    _, data = cv2.imencode(
        ".jpg", np.ascontiguousarray(frame[::step, ::step]), [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY]
    )
    return data.tobytes()
