"""A grey stereo camera: two pictures of the same moment, `baseline_m` apart along the x axis of the left one.

The baseline is the scenario's, as all of the camera's geometry: the scenario has the true device, and a vehicle file what the
stack takes it for. Nothing on board reads a baseline yet, so no vehicle file has one.
"""

from typing import Annotated

import cv2
import numpy as np

from companion.core.arrays import Array, Image8
from companion.core.config import integer, number
from companion.core.messages import StereoImages
from sitl.camera_effects import EffectsConfig
from sitl.devices.mount import Mount
from sitl.devices.timing import Timing
from sitl.views import Pinhole

NOISE_MARGIN_PX = 128  # the noise of a frame is a random window of one larger field
Coefficient = Annotated[float, number(-2, 2, "")]


class StereoConfig(Timing, frozen=True, kw_only=True):
    """The true stereo camera; both of its cameras have the same lens. Paper 3 has no distortion."""

    width: Annotated[int, integer(64, 2048, "px")]
    height: Annotated[int, integer(48, 2048, "px")]
    fx: Annotated[float, number(50, 5000, "px")]
    fy: Annotated[float, number(50, 5000, "px")]
    cx: Annotated[float, number(0, 2048, "px")]
    cy: Annotated[float, number(0, 2048, "px")]
    distortion: tuple[Coefficient, Coefficient, Coefficient, Coefficient, Coefficient] = (0.0, 0.0, 0.0, 0.0, 0.0)
    mount: Mount  # of the left camera
    baseline_m: Annotated[float, number(0.01, 2.0, "m")]
    noise_std: Annotated[float, number(0, 50, "grey levels")] = 2.0
    blur_px: Annotated[float, number(0, 5, "px, standard deviation of the lens blur")] = 0.0
    light: Annotated[float, number(0.02, 3.0, "(1: as drawn)")] = 1.0
    effects: EffectsConfig = EffectsConfig()

    @property
    def view(self) -> Pinhole:
        return Pinhole(self.width, self.height, self.fx, self.fy, self.cx, self.cy)


class PixelNoise:
    """White noise of images: a random window of one larger field, as `sitl.camera` has it."""

    def __init__(self, std: float, width: int, height: int, rng: np.random.Generator) -> None:
        self._rng, self._size = rng, (height, width)
        size = (height + NOISE_MARGIN_PX, width + NOISE_MARGIN_PX)
        # dithered by half a level so that a standard deviation below one level survives the rounding
        noise = np.floor(rng.normal(0.0, std, size) + rng.random(size)) if std > 0 else np.zeros((0, 0))
        self._field = np.clip(noise, -127, 127).astype(np.int16)

    def add(self, image: Image8) -> Image8:
        """The image with noise; the next call adds another window."""
        if not self._field.size:
            return image
        i, j = self._rng.integers(0, NOISE_MARGIN_PX, 2)
        h, w = self._size
        return cv2.add(image, self._field[i : i + h, j : j + w], dtype=cv2.CV_8U).astype(np.uint8, copy=False)


def finished(image: Image8, config: StereoConfig, light: float, noise: PixelNoise) -> Image8:
    """A picture with the blur of the lens, the light and the noise of the sensor."""
    if config.blur_px > 0:
        image = cv2.GaussianBlur(image, (0, 0), config.blur_px, borderType=cv2.BORDER_REPLICATE).astype(np.uint8)
    if light != 1.0:
        image = cv2.convertScaleAbs(image, alpha=light).astype(np.uint8, copy=False)
    return noise.add(image)


def right_of(p_WC: Array, R_WC: Array, baseline_m: float) -> Array:
    """Place of the right camera of a left one."""
    place: Array = p_WC + baseline_m * R_WC[:, 0]
    return place


def stereo_message(stamp_s: float, left: Image8, right: Image8) -> StereoImages:
    """The message of two images of one size."""
    height, width = left.shape
    return StereoImages(stamp_s=stamp_s, width=width, height=height, data=left.tobytes() + right.tobytes())


def images_of(message: StereoImages) -> tuple[Image8, Image8]:
    """The left and the right image of a message, shape (height, width)."""
    both = np.frombuffer(message.data, dtype=np.uint8).reshape(2, message.height, message.width)
    return both[0], both[1]
