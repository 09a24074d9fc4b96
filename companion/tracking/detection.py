"""The interface of every detector, and how the user's own detector is found.

All detectors keep two conventions. Corners are those of the outer edge of the black square in the order top left, top
right, bottom right, bottom left *of the marker as printed* (see `families`). The centre of the top left pixel is
(0, 0), as everywhere in OpenCV; AprilTag's own library puts (0.5, 0.5) there.

A vehicle file may name a detector of the user's own: ``tracking.detector = "module:Class"``. The tracker imports the
module from the installed packages or from the current folder and calls ``Class()`` without arguments. The object
replaces the built-in detectors in every command that runs the tracker.
"""

import importlib
import inspect
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from companion.core.arrays import Array, Image8
from companion.core.config import ConfigError

Region = tuple[int, int, int, int]  # x, y, width, height [px]


@dataclass(frozen=True)
class Detection:
    """One marker in an image; corners_px: (4, 2) float64, top left, top right, bottom right, bottom left."""

    family: str
    id: int
    corners_px: Array


@runtime_checkable
class Detector(Protocol):
    """The interface of a detector; gray is (h, w) uint8. Raises ValueError for any other array."""

    def detect(self, gray: Image8, region: Region | None = None, scale: float = 1.0) -> list[Detection]:
        """Markers in the image, or in a region of it, searched in a copy reduced to `scale` (≤ 1).

        Corners are always in pixels of the whole image at full resolution. Images come in the order of time; a
        region is given only when the image before was searched too.
        """


def check_image(gray: Image8) -> Image8:
    """The same array; raises ValueError unless it is (h, w) uint8."""
    if gray.ndim != 2 or gray.dtype != np.uint8:
        raise ValueError(f"image must be (h, w) uint8, not {gray.shape} {gray.dtype}")
    return gray


def load_detector(name: str, where: str) -> Detector:
    """An object of the class that ``tracking.detector`` names, "module:Class".

    where: the vehicle file, for errors. Raises `ConfigError` with one line that has the file, the key and the reason.
    """
    key = f"{where}: tracking.detector = {name!r}"
    module_name, _, class_name = name.partition(":")
    if not (module_name and class_name):
        raise ConfigError(f'{key}: must be "module:Class"')
    folder = str(Path.cwd())
    if folder not in sys.path and "" not in sys.path:
        sys.path.append(folder)  # the command `companion` has the folder of its script there instead
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the module is the user's code
        if isinstance(error, ModuleNotFoundError) and error.name == module_name.split(".")[0]:
            raise ConfigError(f"{key}: no module {module_name!r} in the installed packages or in {folder}") from None
        raise ConfigError(f"{key}: the module cannot be imported: {_one_line(error)}") from None
    found = getattr(module, class_name, None)
    if not inspect.isclass(found):
        raise ConfigError(f"{key}: module {module_name!r} has no class {class_name!r}")
    try:
        detector = found()
    except Exception as error:
        raise ConfigError(f"{key}: {class_name}() failed: {_one_line(error)}") from None
    if not isinstance(detector, Detector):
        raise ConfigError(f"{key}: the class has no method detect(gray, region, scale)")
    return detector


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
