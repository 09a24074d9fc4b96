"""A depth camera: the true depth with a noise that grows with distance, by the material, and pixels without a value.

The standard deviation of a pixel is σ = 0.005 m · exp(m · d) with its true depth d along the optical axis and the m of its
material, and 1 % of the pixels have no value, wherever they are: W. Kim et al., "High-Fidelity Drone Simulation with Depth
Camera Noise and Improved Air Drag Force Models", Applied Sciences 2023, 13(19), 10631, equation 4 and section 2.3
(Intel RealSense D435, 0.5 to 8 m). As with such devices, a reading outside of the range has no value, either. The noise is
computed in depth_noise.c.
"""

import ctypes
import functools
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from acados_gen.compile import CFLAGS, compile_library
from companion.core.arrays import Image8
from companion.core.config import Section, number
from companion.core.kernel import fingerprint
from companion.core.messages import DepthImage
from sitl.devices.mount import Mount
from sitl.devices.timing import Timing
from sitl.views import Pinhole

SOURCE = Path(__file__).with_name("depth_noise.c")
FLAGS = ("-fno-trapping-math",)  # without it the compiler does not vectorise the comparisons
UNIT_M = 1e-3  # of a reading
READING_MAX_M = 65.535
MATERIALS = 256
WITHOUT_STEPS = 65536  # of the share of pixels without a value

Depths = NDArray[np.float32]
Readings = NDArray[np.uint16]


class DepthNoise(Section, frozen=True):
    """The noise of an image; the materials have their m in the world."""

    base_m: Annotated[float, number(0.0, 0.1, "m, standard deviation at no distance")] = 0.005
    without: Annotated[float, number(0.0, 1.0, "(share of the pixels without a value)")] = 0.01


class DepthCameraConfig(Timing, frozen=True, kw_only=True):
    """A depth camera without distortion, as such devices deliver their images."""

    width: Annotated[int, number(16, 1920, "px")] = 460
    height: Annotated[int, number(16, 1080, "px")] = 320
    fx: Annotated[float, number(10, 5000, "px")]
    fy: Annotated[float, number(10, 5000, "px")]
    cx: Annotated[float, number(0, 1920, "px")]
    cy: Annotated[float, number(0, 1080, "px")]
    mount: Mount
    min_m: Annotated[float, number(0.01, 5.0, "m, nothing nearer has a value")] = 0.2
    max_m: Annotated[float, number(0.5, 60.0, "m, nothing farther has a value")] = 10.0
    noise: DepthNoise = DepthNoise()

    def __post_init__(self) -> None:
        if self.min_m >= self.max_m:
            raise ValueError(f"min_m = {self.min_m:g}: must be below max_m = {self.max_m:g}")

    @property
    def view(self) -> Pinhole:
        return Pinhole(self.width, self.height, self.fx, self.fy, self.cx, self.cy)


class _Parameters(ctypes.Structure):
    """Mirror of parameters_t."""

    _fields_ = (
        ("base_m", ctypes.c_float),
        ("min_m", ctypes.c_float),
        ("max_m", ctypes.c_float),
        ("unit_m", ctypes.c_float),
        ("key", ctypes.c_uint32 * 4),
        ("without", ctypes.c_uint32),
    )


@functools.cache
def _library() -> ctypes.CDLL:
    """depth_noise.c, compiled when its source or flags have changed; raises `CompileError`."""
    print_ = fingerprint([SOURCE], {"flags": (*CFLAGS, *FLAGS)})
    library = ctypes.CDLL(str(compile_library("depth_noise", print_, [SOURCE], FLAGS)))
    library.parameters_size.restype = ctypes.c_int64
    if library.parameters_size() != ctypes.sizeof(_Parameters):
        raise RuntimeError(f"{SOURCE}: parameters_t and its mirror differ in size")
    library.depth_noise.argtypes = [ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * 4]
    library.depth_noise.restype = None
    return library


class DepthNoiseField:
    """The noise of the images of one camera; image k of a seed is the same, whatever was drawn before it."""

    def __init__(self, noise: DepthNoise, min_m: float, max_m: float, seed: int) -> None:
        self._parameters = _Parameters(
            base_m=noise.base_m,
            min_m=min_m,
            max_m=max_m,
            unit_m=UNIT_M,
            without=round(noise.without * WITHOUT_STEPS),
        )
        self._seed = seed
        self._library = _library()

    def readings(self, depth_m: Depths, material: Image8, per_m: Depths, image: int) -> Readings:
        """What the camera reports [mm], 0: no value; shape of depth_m.

        depth_m: true depths, inf: nothing there. material: numbers of entries of per_m, m [1/m]. image: its number.
        """
        depth_m = np.ascontiguousarray(depth_m, dtype=np.float32)
        material = np.ascontiguousarray(material, dtype=np.uint8)
        if material.shape != depth_m.shape:
            raise ValueError(f"depths have the shape {depth_m.shape}, materials {material.shape}")
        table = np.zeros(MATERIALS, dtype=np.float32)
        table[: len(per_m)] = per_m
        readings = np.empty(depth_m.shape, dtype=np.uint16)
        key = np.random.SeedSequence((self._seed, image)).generate_state(4, np.uint32)
        self._parameters.key[:] = key.tolist()
        addresses = (depth_m.ctypes.data, material.ctypes.data, table.ctypes.data, readings.ctypes.data)
        self._library.depth_noise(ctypes.byref(self._parameters), depth_m.size, *addresses)
        return readings


def depth_image(stamp_s: float, readings: Readings) -> DepthImage:
    """The message of an image."""
    height, width = readings.shape
    return DepthImage(stamp_s=stamp_s, width=width, height=height, data=readings.astype("<u2", copy=False).tobytes())


def depths_of(image: DepthImage) -> Depths:
    """The depths [m] of a message, shape (height, width); NaN: no value."""
    readings = np.frombuffer(image.data, dtype="<u2").reshape(image.height, image.width)
    return np.where(readings > 0, readings * np.float32(UNIT_M), np.float32(np.nan)).astype(np.float32, copy=False)
