"""The unknowns of a flight's bundle adjustment and their places in the error vector.

First those of each image (`PER_IMAGE` numbers), then those of the flight, then those of each bundle. Rotations take a
perturbation on the right, everything else adds.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from calibration.map.normal_equations import Index
from calibration.map.rotations import exp
from companion.core.arrays import Array

# Errors of one image.
ATTITUDE, POSITION, VELOCITY = slice(0, 3), slice(3, 6), slice(6, 9)
GYRO_BIAS, ACCEL_BIAS = slice(9, 12), slice(12, 15)
SWAY, JITTER = slice(15, 18), slice(18, 19)
PER_IMAGE = 19

# Errors of the flight, counted from the first of them.
MOUNT, LEVER, DELAY, LENS = slice(0, 3), slice(3, 6), slice(6, 7), slice(7, 11)
PER_FLIGHT = 11

# Errors of the payload camera, behind those of the flight where its photographs are adjusted: rotation of its mount (right, in its own axes),
# place in B, relative focal length, principal point [px] and radial distortion.
PAYLOAD_MOUNT, PAYLOAD_LEVER, PAYLOAD_LENS = slice(0, 3), slice(3, 6), slice(6, 10)
PER_PAYLOAD = 10

# Errors of a bundle, counted from its first: pose, scale of the print, then the scale of each marker.
TURN, PLACE, SCALE = slice(0, 3), slice(3, 6), slice(6, 7)
POSE = 6
PER_BUNDLE = 7  # and one for each marker


@dataclass(frozen=True)
class Unknowns:
    """Of k images and b bundles; m: markers of the bundle with the most.

    R_WB (k, 3, 3), p_W, v_W (k, 3): the aircraft at the stamps of the images; gyro_bias, accel_bias (k, 3) in B; sway (k, 3): rotation of the camera on its mount [rad], in C; jitter_s (k,):
    how much later than its stamp and delay_s an image was exposed; mount (3,): constant rotation of the camera [rad], in C; lever_m (3,): error of p_BC;
    lens (4,): relative error of the focal length, of the principal point [px], of the radial distortion; R_WM (b, 3, 3), p_WM
    (b, 3); print_scale (b,), marker_scale (b, m): relative errors of sizes; payload: errors of the payload camera (`PER_PAYLOAD`,), (0,) without one.
    """

    R_WB: Array
    p_W: Array
    v_W: Array
    gyro_bias: Array
    accel_bias: Array
    sway: Array
    jitter_s: Array
    mount: Array
    lever_m: Array
    delay_s: float
    lens: Array
    R_WM: Array
    p_WM: Array
    print_scale: Array
    marker_scale: Array
    payload: Array = field(default_factory=lambda: np.zeros(0))

    @property
    def images(self) -> int:
        return len(self.p_W)

    @property
    def bundles(self) -> int:
        return len(self.p_WM)

    @property
    def markers(self) -> int:
        return int(self.marker_scale.shape[1])

    @property
    def size(self) -> int:
        """Length of the error vector."""
        return self.first_of_bundle(self.bundles)

    @property
    def first_of_flight(self) -> int:
        return PER_IMAGE * self.images

    @property
    def first_of_payload(self) -> int:
        return self.first_of_flight + PER_FLIGHT

    def first_of_bundle(self, bundle: int) -> int:
        return self.first_of_payload + len(self.payload) + bundle * (PER_BUNDLE + self.markers)

    def moved(self, step: Array) -> "Unknowns":
        """With an error vector applied."""
        image = step[: self.first_of_flight].reshape(-1, PER_IMAGE)
        flight = step[self.first_of_flight : self.first_of_bundle(0)]
        bundle = step[self.first_of_bundle(0) :].reshape(self.bundles, -1)
        return replace(
            self,
            R_WB=self.R_WB @ exp(image[:, ATTITUDE]),
            p_W=self.p_W + image[:, POSITION],
            v_W=self.v_W + image[:, VELOCITY],
            gyro_bias=self.gyro_bias + image[:, GYRO_BIAS],
            accel_bias=self.accel_bias + image[:, ACCEL_BIAS],
            sway=self.sway + image[:, SWAY],
            jitter_s=self.jitter_s + image[:, JITTER][:, 0],
            mount=self.mount + flight[MOUNT],
            lever_m=self.lever_m + flight[LEVER],
            delay_s=self.delay_s + float(flight[DELAY][0]),
            lens=self.lens + flight[LENS],
            R_WM=self.R_WM @ exp(bundle[:, TURN]),
            p_WM=self.p_WM + bundle[:, PLACE],
            print_scale=self.print_scale + bundle[:, SCALE][:, 0],
            marker_scale=self.marker_scale + bundle[:, PER_BUNDLE:],
            payload=self.payload + flight[PER_FLIGHT:],
        )


def columns(first: Index, *parts: slice) -> Index:
    """Columns (n, c) of the error vector: the parts behind each first column (n,)."""
    offsets = np.concatenate([np.arange(part.start, part.stop) for part in parts])
    index: Index = np.asarray(first)[:, None] + offsets
    return index
