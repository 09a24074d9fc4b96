"""Plain data of pictures, for modules that do not draw."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from companion.core.arrays import Image8


class Pinhole(NamedTuple):
    """Size and intrinsic parameters of a picture [px]; the centre of the top left pixel is (0, 0)."""

    width: int
    height: int
    fx: float
    fy: float
    cx: float
    cy: float


class Picture(NamedTuple):
    """What was drawn; the arrays are new ones for each picture."""

    grey: Image8  # (height, width)
    depth_m: NDArray[np.float32] | None  # (height, width), along the optical axis; inf: nothing there; None: not asked
    material: Image8  # (height, width), index of `Rasteriser.depth_noise_per_m`; 0: nothing there
