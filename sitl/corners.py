"""Corners without pixels, for scenarios with ``camera_mode = "corners"``.

The simulated camera projects the markers' corners and adds noise. The image that goes through the stack is blank
except its first eight bytes, which number the exposure. In the tracker a detector that looks the number up takes the
place of the real one, so everything behind detection is the code that flies, at a fraction of the cost.
"""

import struct

from companion.core.arrays import Image8, Vector
from companion.core.messages import Image
from companion.tracking.detection import Detection, Region
from sitl.camera import SceneCamera

KEPT_EXPOSURES = 64  # more than are ever between exposure and tracker


class CornerCamera:
    """Takes the place of `SceneCamera.render` and of the tracker's detector."""

    def __init__(self, camera: SceneCamera) -> None:
        self._camera = camera
        # Made once: a new blank image for every exposure would cost more than its corners.
        rest = bytes(camera.config.width * camera.config.height - 8)
        self._images = [struct.pack("<q", number) + rest for number in range(KEPT_EXPOSURES)]
        self._exposures: list[list[Detection]] = [[] for _ in range(KEPT_EXPOSURES)]
        self._number = 0

    def expose(self, t_s: float, p_WB: Vector, q_WB: Vector, hidden: bool) -> Image:
        """A numbered blank image; its corners are kept for `detect`."""
        visible = [] if hidden else self._camera.noisy_corners(t_s, p_WB, q_WB)
        self._number = (self._number + 1) % KEPT_EXPOSURES
        self._exposures[self._number] = [Detection(m.marker.family, m.marker.id, m.corners_px) for m in visible]
        config = self._camera.config
        return Image(stamp_s=t_s, width=config.width, height=config.height, data=self._images[self._number])

    def detect(self, gray: Image8, region: Region | None = None, scale: float = 1.0) -> list[Detection]:
        """The corners of the exposure that the image names (`companion.tracking.detection.Detector`)."""
        (number,) = struct.unpack("<q", gray.ravel()[:8].tobytes())
        return self._exposures[number]
