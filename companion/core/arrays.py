"""Names of the array types that the stack uses; the docstrings give the shapes."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Image8 = NDArray[np.uint8]  # grey or colour image, shape (h, w) or (h, w, 3)
Mask = NDArray[np.bool_]
Points2D = NDArray[np.complex128]  # points and directions of a plane as x + iy
Vector = Sequence[float] | Array  # a vector or a quaternion, as a message has it (a tuple) or as an array
