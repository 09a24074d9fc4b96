"""What every detector gives, and how it is asked.

All detectors agree on two conventions. Corners are those of the outer edge of the black square in the order top
left, top right, bottom right, bottom left *of the marker as printed* (see `families`). The centre of the top
left pixel is (0, 0), as everywhere in OpenCV; AprilTag's own library puts (0.5, 0.5) there.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

Region = tuple[int, int, int, int]  # x, y, width, height [px]


@dataclass(frozen=True)
class Detection:
    """One marker in an image; corners_px: (4, 2) float64, top left, top right, bottom right, bottom left."""

    family: str
    id: int
    corners_px: np.ndarray


class Detector(Protocol):
    """What a detector does; gray is (h, w) uint8. Raises ValueError for any other array."""

    def detect(self, gray: np.ndarray, region: Region | None = None, scale: float = 1.0) -> list[Detection]:
        """Markers in the image, or in a region of it, searched in a copy reduced to `scale` (≤ 1).

        Corners are always in pixels of the whole image at full resolution. Images come in the order of time; a
        region is asked for only when the image before was asked too.
        """


def check_image(gray: np.ndarray) -> np.ndarray:
    """The same array; raises ValueError unless it is (h, w) uint8."""
    if gray.ndim != 2 or gray.dtype != np.uint8:
        raise ValueError(f"image must be (h, w) uint8, not {gray.shape} {gray.dtype}")
    return gray
