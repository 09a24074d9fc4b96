"""The covariance of a bundle's pose over many images, for the filter.

The tracker computes the covariance of each pose at the pose that it has measured, so its entries carry the noise of that pose:
with a board a little off the optical axis the correlation of range and tilt follows the noise of the tilt by -0.76. Where the same
noise is in a measurement and in the matrix that weighs it, their product has a mean, and thousands of images add it up (errors in
variables; Fuller, "Measurement Error Models", section 1.1). The slow error of the pose, which is in units of this covariance,
wandered by 1.5 of its standard deviations in every flight, and a hold 1.5 m above a board by 2.4 cm to the same side.

So shape and size of the covariance, the size being the sixth root of the determinant, are averaged over some images. Few enough for
an aircraft that moves: the covariance is one in the camera's axes, which turn with it. An image whose size differs by more than noise
does, because the aircraft approaches or the corners fit badly, has its own size; one whose shape is another altogether is not averaged.
"""

import math
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from companion.estimation.observations import MarkerId

AVERAGE_S = 0.3  # time constant: ten images
FORGET_S = 1.0  # out of sight: another view may come after it
SAME_SIZE = 1.25  # ratio up to which the size is that of the average; the noise of a pose changes it by some percent
SHAPE_MAX = 6.0  # ratio of a variance to the average's in any direction; noise and motion change it by less
OTHER_IMAGES = 3  # so many of another shape in a row begin the average again
KEPT = 64  # bundles, and groups of their markers: a flickering marker makes several

LOG_SIZE_MAX = 100.0  # of a number in metres and radians; beyond it nothing is averaged

Key = tuple[str, frozenset[MarkerId]]


class _Average(NamedTuple):
    stamp_s: float
    images: int
    others: int  # images of another shape since
    log_size: float
    shape: Array  # (6, 6), determinant about 1


class PoseCovariances:
    """Averages by bundle and markers in view: other markers are another geometry."""

    def __init__(self) -> None:
        self._averages: dict[Key, _Average] = {}

    def smoothed(self, bundle: str, markers: frozenset[MarkerId], stamp_s: float, covariance: Array) -> Array:
        """The covariance (6, 6) with the average's shape and size, positive definite as the given one; units and order as given."""
        log_size = float(np.linalg.slogdet(covariance)[1]) / 6
        if not -LOG_SIZE_MAX < log_size < LOG_SIZE_MAX:
            return covariance
        key, present = (bundle, markers), covariance * math.exp(-log_size)
        last = self._averages.pop(key, None)
        if last is None or not -FORGET_S <= stamp_s - last.stamp_s <= FORGET_S:
            last = _Average(stamp_s, 0, 0, log_size, present)
        elif _is_another(present, last.shape):
            other = last.others + 1 >= OTHER_IMAGES
            again = _Average(stamp_s, 1, 0, log_size, present) if other else last._replace(others=last.others + 1)
            self._averages[key] = again
            return covariance
        share = max(1 / (last.images + 1), 1.0 - math.exp(-max(0.0, stamp_s - last.stamp_s) / AVERAGE_S))
        shape = last.shape + share * (present - last.shape)
        usual = last.log_size + share * (log_size - last.log_size)
        self._averages[key] = _Average(max(stamp_s, last.stamp_s), last.images + 1, 0, usual, shape)
        if len(self._averages) > KEPT:
            del self._averages[next(iter(self._averages))]  # the one that was not used for longest
        used = usual if abs(log_size - usual) < math.log(SAME_SIZE) else log_size
        return shape * math.exp(used - float(np.linalg.slogdet(shape)[1]) / 6)


def _is_another(present: Array, average: Array) -> bool:
    """The variance in some direction differs by more than `SHAPE_MAX`; True also where that cannot be computed."""
    try:
        root = np.linalg.inv(np.linalg.cholesky(average))
        ratios = np.linalg.eigvalsh(root @ present @ root.T)
    except np.linalg.LinAlgError:
        return True
    return not (ratios[0] * SHAPE_MAX > 1.0 and ratios[-1] < SHAPE_MAX)
