"""The lens of a drawn camera: an undistorted picture that is wide enough, and the remap through the distortion."""

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from companion.core.arrays import Image8
from companion.core.config import ConfigError
from sitl.camera import EDGE_MARGIN_PX, undistort
from sitl.views import Pinhole

WIDEST = 16  # an undistorted picture of more than this many pixels per pixel of the image is refused


class Lens:
    """Draw a picture of `view`, then bend it: corners lie where OpenCV's k1, k2, p1, p2, k3 put them.

    Without distortion the picture is the image. Raises `ConfigError` for a distortion that folds the image.
    """

    def __init__(self, image: Pinhole, distortion: tuple[float, float, float, float, float]) -> None:
        self.image = image
        self.view = image
        self._maps: tuple[Any, Any] | None = None
        if not any(distortion):
            return
        u, v = np.meshgrid(np.arange(image.width), np.arange(image.height))
        focal, centre = np.array([image.fx, image.fy]), np.array([image.cx, image.cy])
        ideal = undistort((np.column_stack([u.ravel(), v.ravel()]) - centre) / focal, distortion)
        low = ideal.min(axis=0) - EDGE_MARGIN_PX / focal
        high = ideal.max(axis=0) + EDGE_MARGIN_PX / focal
        width, height = (int(n) for n in np.ceil((high - low) * focal) + 1)
        if width * height > WIDEST * image.width * image.height:
            raise ConfigError(f"distortion = {list(distortion)}: widens the field of view more than {WIDEST} times")
        cx, cy = (float(n) for n in -low * focal)
        self.view = Pinhole(width, height, image.fx, image.fy, cx, cy)
        maps = (ideal * focal + (cx, cy)).astype(np.float32).reshape(image.height, image.width, 2)
        self._maps = maps[..., 0].copy(), maps[..., 1].copy()

    def bend(self, picture: Image8) -> Image8:
        """The image of a drawn picture, grey levels interpolated."""
        return self._remap(picture, cv2.INTER_LINEAR)

    def bend_depth(self, picture: NDArray[Any]) -> NDArray[Any]:
        """The image of drawn depths or materials: nothing is interpolated, as it would be across an edge."""
        return self._remap(picture, cv2.INTER_NEAREST)

    def _remap(self, picture: NDArray[Any], how: int) -> NDArray[Any]:
        if self._maps is None:
            return picture
        return cv2.remap(picture, *self._maps, how, borderMode=cv2.BORDER_REPLICATE)
