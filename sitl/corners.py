"""Corners without pixels, for scenarios with ``camera_mode = "corners"``.

The simulated camera projects the markers' corners and adds noise; the image that travels through the stack is blank
but for its first eight bytes, which number the exposure. A detector that looks the number up takes the place of the
real one in the tracker, so everything behind detection is the code that flies, at a fraction of the cost.
"""

import struct

import numpy as np

from companion.core.messages import Image
from companion.tracking.detectors import Detection
from sitl.camera import SceneCamera

KEPT_EXPOSURES = 64  # more than are ever on the way between exposure and tracker


class CornerCamera:
    """Stands where `SceneCamera.render` and the tracker's detector stand."""

    def __init__(self, camera: SceneCamera) -> None:
        self._camera = camera
        # Made once: to make a new image of all zeros for every exposure would cost more than its corners.
        rest = bytes(camera.config.width * camera.config.height - 8)
        self._images = [struct.pack("<q", number) + rest for number in range(KEPT_EXPOSURES)]
        self._exposures: list[list[Detection]] = [[] for _ in range(KEPT_EXPOSURES)]
        self._number = 0

    def expose(self, t_s: float, p_WB, q_WB, hidden: bool) -> Image:
        """A numbered blank image; its corners are kept for `detect`."""
        visible = [] if hidden else self._camera.noisy_corners(t_s, p_WB, q_WB)
        self._number = (self._number + 1) % KEPT_EXPOSURES
        self._exposures[self._number] = [Detection(m.marker.family, m.marker.id, m.corners_px) for m in visible]
        config = self._camera.config
        return Image(stamp_s=t_s, width=config.width, height=config.height, data=self._images[self._number])

    def detect(self, gray: np.ndarray, region=None, scale: float = 1.0) -> list[Detection]:
        """The corners of the exposure that the image names (`companion.tracking.detectors.Detector`)."""
        (number,) = struct.unpack("<q", gray.ravel()[:8].tobytes())
        return self._exposures[number]
