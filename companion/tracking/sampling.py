"""Brightness between pixels."""

import cv2
import numpy as np
from numpy.typing import NDArray

from companion.core.arrays import Image8


def interpolate(gray: Image8, places: NDArray[np.float32]) -> Image8:
    """Bilinear brightness at places (n, m, 2) [px], shape (n, m); outside the image that of its nearest pixel."""
    return cv2.remap(  # type: ignore[call-overload,no-any-return]  # OpenCV's stub does not allow None as second map
        gray, places, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE
    )
