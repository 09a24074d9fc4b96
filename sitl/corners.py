"""Corners without pixels, for scenarios with ``camera_mode = "corners"``.

The simulated camera projects the markers' corners and adds noise; the image that travels through the stack is blank
but for its first eight bytes, which number the exposure. A detector that looks the number up takes the place of the
real one in the tracker, so everything behind detection is the code that flies, at a fraction of the cost.
"""

import struct
from collections import OrderedDict

import numpy as np

from companion.messages import Image
from companion.tracking.detectors import Detection
from sitl.camera import SceneCamera

KEPT_EXPOSURES = 64  # more than are ever on the way between exposure and tracker


class CornerCamera:
    """Stands where `SceneCamera.render` and the tracker's detector stand."""

    def __init__(self, camera: SceneCamera) -> None:
        self._camera = camera
        self._blank = bytes(camera.config.width * camera.config.height - 8)
        self._exposures: OrderedDict[int, list[Detection]] = OrderedDict()
        self._count = 0

    def expose(self, t_s: float, p_WB, q_WB, hidden: bool) -> Image:
        """A numbered blank image; its corners are kept for `detect`."""
        visible = [] if hidden else self._camera.noisy_corners(t_s, p_WB, q_WB)
        self._count += 1
        self._exposures[self._count] = [Detection(m.marker.family, m.marker.id, m.corners_px) for m in visible]
        if len(self._exposures) > KEPT_EXPOSURES:
            self._exposures.popitem(last=False)
        config = self._camera.config
        data = struct.pack("<q", self._count) + self._blank
        return Image(stamp_s=t_s, width=config.width, height=config.height, data=data)

    def detect(self, gray: np.ndarray, region=None, scale: float = 1.0) -> list[Detection]:
        """The corners of the exposure that the image names (`companion.tracking.detectors.Detector`)."""
        (number,) = struct.unpack("<q", gray.ravel()[:8].tobytes())
        return self._exposures.get(number, [])
