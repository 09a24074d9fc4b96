"""Names of the array types that the stack uses; shapes stand in the docstrings."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Image8 = NDArray[np.uint8]  # grey or colour image, shape (h, w) or (h, w, 3)
