"""What a real camera does to a picture: rolling shutter, glare, auto-exposure. Functions of the drawn picture.

They are options of a camera; without them a picture stays as it was drawn. The order is that of light: where the rows look
(shutter), what the lens spreads (glare), what the sensor counts (exposure).
"""

import math
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from companion.core.arrays import Array, Image8, Mask, Vector
from companion.core.config import Section, number
from sitl.views import Pinhole

GRID_PX = 16  # the shutter's shift is smooth: it is computed on a coarse grid and interpolated
SPREAD_STEP = 8  # the glare's light is spread in a picture that is reduced by this factor
WHITE = 255.0


class RollingShutter(Section, frozen=True):
    """The rows are exposed one after the other, the middle row at the stamp."""

    readout_s: Annotated[float, number(0.0, 0.1, "s from the first row to the last")]


class Glare(Section, frozen=True):
    """Veiling glare: a share of the light of every point is spread over the picture (ISO 9358).

    Under a deck the sky is many times brighter than the underside: its spread light covers the dark texture.
    """

    share: Annotated[float, number(0.0, 0.5, "of the light")]
    radius: Annotated[float, number(0.01, 1.0, "of the picture's width, standard deviation of the spread")] = 0.15
    sky: Annotated[float, number(1.0, 100.0, "times the grey level of the sky as drawn")] = 8.0


class AutoExposure(Section, frozen=True):
    """The gain follows the mean grey level of the images before, first-order in its logarithm."""

    target: Annotated[float, number(10, 240, "grey levels, mean of the middle half of the image")] = 110.0
    time_s: Annotated[float, number(0.01, 10, "s, time constant")] = 0.3
    gain_min: Annotated[float, number(0.01, 1.0, "times the light as drawn")] = 0.1
    gain_max: Annotated[float, number(1.0, 100.0, "times the light as drawn")] = 8.0


class EffectsConfig(Section, frozen=True):
    """The options of a camera; None: the camera does not do that."""

    rolling_shutter: RollingShutter | None = None
    glare: Glare | None = None
    auto_exposure: AutoExposure | None = None


class Frame(NamedTuple):
    """A picture as it was drawn, and the pixels in which nothing was."""

    grey: Image8
    sky: Mask


class Effects:
    """The effects of one camera; only the exposure has a memory."""

    def __init__(self, config: EffectsConfig, view: Pinhole) -> None:
        self._config, self._view = config, view
        self.gain = 1.0  # of the exposure
        self._exposed_s: float | None = None
        self._mean: float | None = None

    @property
    def needs_distance(self) -> bool:
        """Whether the distance of what is in sight changes an image."""
        return self._config.rolling_shutter is not None

    @property
    def develops(self) -> bool:
        """Whether the light of the scene is applied here; else by the caller."""
        return self._config.glare is not None or self._config.auto_exposure is not None

    def apply(
        self,
        t_s: float,
        frames: Sequence[Frame],
        omega_C: Vector,
        v_C: Vector,
        distance_m: float = math.inf,
        light: float = 1.0,
    ) -> list[Image8]:
        """The images of pictures that were exposed together at t_s; the first one is metered for the next exposure.

        omega_C [rad/s], v_C [m/s]: motion of the camera in its own axes; distance_m: of what it looks at, for the part
        of the shutter's shift that comes from v_C. light: times that of the pictures, when this camera `develops`.
        """
        c = self._config
        if c.rolling_shutter is not None:
            maps = shutter_maps(self._view, c.rolling_shutter.readout_s, omega_C, v_C, distance_m)
            if maps is not None:
                skies = [_moved(f.sky.astype(np.uint8), maps) > 0 if self.develops else f.sky for f in frames]
                frames = [Frame(_moved(f.grey, maps), sky) for f, sky in zip(frames, skies, strict=True)]
        if not self.develops:
            return [frame.grey for frame in frames]
        if c.auto_exposure is not None:
            self._expose(t_s, c.auto_exposure)
        images = [self._developed(frame, light) for frame in frames]
        h, w = images[0].shape
        self._mean = float(images[0][h // 4 : h - h // 4, w // 4 : w - w // 4].mean())
        return images

    def _developed(self, frame: Frame, brightness: float) -> Image8:
        c, light = self._config, frame.grey.astype(np.float32) * np.float32(brightness)
        if c.glare is not None:
            light[frame.sky] *= c.glare.sky
            light = spread(light, c.glare.share, c.glare.radius)
        light *= self.gain
        image: Image8 = np.minimum(light + 0.5, WHITE).astype(np.uint8)
        return image

    def _expose(self, t_s: float, c: AutoExposure) -> None:
        """Gain of this image, from the mean of the last one."""
        if self._mean is not None and self._exposed_s is not None and t_s > self._exposed_s:
            error = math.log(c.target / max(self._mean, 1.0))
            self.gain *= math.exp(error * -math.expm1(-(t_s - self._exposed_s) / c.time_s))
            self.gain = min(max(self.gain, c.gain_min), c.gain_max)
        self._exposed_s = t_s


def _moved(picture: Image8, maps: tuple[NDArray[np.float32], NDArray[np.float32]]) -> Image8:
    return cv2.remap(picture, *maps, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE).astype(np.uint8, copy=False)


def shutter_maps(
    view: Pinhole, readout_s: float, omega_C: Vector, v_C: Vector, distance_m: float
) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
    """Where in the picture of the middle of the exposure each pixel of the image looks; None: nowhere else.

    A row at time τ sees in direction x what the camera saw in exp(ω τ) x + v τ / d at time 0: the rotation of the
    camera, and its displacement over the distance of what it looks at. Pixels (rows, columns), for `cv2.remap`.
    """
    omega, v = np.asarray(omega_C, dtype=float), np.asarray(v_C, dtype=float)
    drift = v / distance_m if math.isfinite(distance_m) and distance_m > 0 else np.zeros(3)
    if readout_s <= 0 or not (omega.any() or drift.any()):
        return None
    # the middles of blocks that cover the picture and a block more on each side
    rows, columns = (math.ceil(n / GRID_PX) + 2 for n in (view.height, view.width))
    u, v_px = np.meshgrid((np.arange(columns) - 0.5) * GRID_PX - 0.5, (np.arange(rows) - 0.5) * GRID_PX - 0.5)
    rays = np.stack([(u - view.cx) / view.fx, (v_px - view.cy) / view.fy, np.ones_like(u)], axis=-1)
    tau = ((v_px / max(view.height - 1, 1) - 0.5) * readout_s)[..., None]
    turned = rays + np.cross(omega, rays) * tau + 0.5 * np.cross(omega, np.cross(omega, rays)) * tau**2 + drift * tau
    x = view.cx + view.fx * turned[..., 0] / turned[..., 2]
    y = view.cy + view.fy * turned[..., 1] / turned[..., 2]
    return _finer(x, view), _finer(y, view)


def _finer(coarse: Array, view: Pinhole) -> NDArray[np.float32]:
    """A field given in the middles of blocks at every pixel of the picture, interpolated linearly."""
    rows, columns = coarse.shape
    size = columns * GRID_PX, rows * GRID_PX
    fine = cv2.resize(coarse.astype(np.float32), size, interpolation=cv2.INTER_LINEAR)
    inside = fine[GRID_PX : GRID_PX + view.height, GRID_PX : GRID_PX + view.width]
    return np.ascontiguousarray(inside, dtype=np.float32)


def spread(light: NDArray[np.float32], share: float, radius: float) -> NDArray[np.float32]:
    """The light with a share of it spread by a normal distribution of this radius [widths]; the sum stays."""
    h, w = light.shape
    small = cv2.resize(light, (max(1, w // SPREAD_STEP), max(1, h // SPREAD_STEP)), interpolation=cv2.INTER_AREA)
    sigma = max(radius * small.shape[1], 0.1)
    veil = cv2.GaussianBlur(small, (0, 0), sigma, borderType=cv2.BORDER_REFLECT)
    veil = cv2.resize(veil, (w, h), interpolation=cv2.INTER_LINEAR)
    result: NDArray[np.float32] = (1.0 - share) * light + share * veil
    return result.astype(np.float32, copy=False)
