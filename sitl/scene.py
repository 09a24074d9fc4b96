"""The scene in front of the simulated camera: bundles of markers, textured planes, light.

Everything in a scene is a rectangle in space with a grey texture. A plane's frame has x right, y up and z out of the
face, as a marker bundle's. Texture pixels follow the image convention: the centre of the top left one is (0, 0).
"""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import cv2
import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from companion.core.arrays import Array, Image8, Vector
from companion.core.config import ConfigError, Section, integer, number
from companion.core.frames import quat_from_rpy, rotation_matrix
from companion.core.site import CUSTOM_PREFIX, Marker, Radians3, Site, check_bundle_name

BLACK, WHITE = 25, 220  # grey levels of printed ink and paper: neither is 0 or 255 in front of a real camera
SKY = 205  # grey level where no plane is hit
MODULE_PX = 32  # texture pixels per module of a marker: sharp until a module covers that many image pixels
QUIET_MODULES = 1  # white margin around the black square
BACKDROP_PX_PER_M = 200.0  # finest texture of a backdrop
BACKDROP_PX_MAX = 1536  # longest side of a backdrop's texture, keeps large grounds small in memory

DICTIONARIES = {
    "aruco_4x4_50": cv2.aruco.DICT_4X4_50,
    "aruco_5x5_100": cv2.aruco.DICT_5X5_100,
    "aruco_6x6_250": cv2.aruco.DICT_6X6_250,
    "aruco_6x6_1000": cv2.aruco.DICT_6X6_1000,
    "aruco_mip_36h12": cv2.aruco.DICT_ARUCO_MIP_36h12,
    "apriltag_16h5": cv2.aruco.DICT_APRILTAG_16h5,
    "apriltag_25h9": cv2.aruco.DICT_APRILTAG_25h9,
    "apriltag_36h11": cv2.aruco.DICT_APRILTAG_36h11,
}
# Rows of AprilRobotics' pictures of tag number 0 without its black border (1: white).
APRILTAG_0 = {
    "apriltag_16h5": ("0010", "0011", "0001", "1011"),
    "apriltag_25h9": ("10101", "01011", "10010", "11111", "10001"),
    "apriltag_36h11": ("110101", "011101", "011000", "101000", "010110", "000100"),
}

World3 = tuple[
    Annotated[float, number(-1e4, 1e4, "m")],
    Annotated[float, number(-1e4, 1e4, "m")],
    Annotated[float, number(-1e4, 1e4, "m")],
]


class PlacedBundle(Section, frozen=True):
    """Where a bundle of the marker file stands: pose of its frame M in the world."""

    name: Annotated[str, Meta(min_length=1)]
    p_W: World3
    rpy_rad: Radians3

    def __post_init__(self) -> None:
        check_bundle_name(self.name)


class Backdrop(Section, frozen=True):
    """A textured rectangle centred at ``p_W``; visible from both sides."""

    p_W: World3
    rpy_rad: Radians3
    size_m: tuple[
        Annotated[float, number(0.05, 500, "m")], Annotated[float, number(0.05, 500, "m")]
    ]  # along its x and y
    texture: Literal["concrete", "grass", "plain"]
    seed: Annotated[int, integer(0, 2**31 - 1)]


class SceneConfig(Section, frozen=True):
    """A scene; ``light`` scales all grey levels before noise."""

    bundles: list[PlacedBundle]
    backdrops: list[Backdrop]
    light: Annotated[float, number(0.02, 3.0, "(1: as printed)")]
    # How the print differs from the marker file: everything on it, and the size of single markers ("family/id")
    # around their true centres.
    print_scale: Annotated[float, number(0.5, 2.0, "as printed over the marker file")] = 1.0
    marker_scale: dict[str, Annotated[float, number(0.5, 2.0, "as printed over the marker file")]] = {}


class Plane:
    """A textured rectangle: point of texture pixel (u, v) is ``origin_W + u · right_W + v · down_W`` [m]."""

    def __init__(self, p_W: Vector, R_WP: Array, size_m: tuple[float, float], texture: Image8, two_sided: bool) -> None:
        rows, columns = texture.shape
        step_x, step_y = size_m[0] / columns, size_m[1] / rows
        self.p_W = np.asarray(p_W, dtype=float)
        self.normal_W = R_WP[:, 2].copy()
        self.right_W = R_WP[:, 0] * step_x
        self.down_W = -R_WP[:, 1] * step_y
        top_left = self.p_W - R_WP[:, 0] * size_m[0] / 2 + R_WP[:, 1] * size_m[1] / 2
        self.origin_W = top_left + 0.5 * self.right_W + 0.5 * self.down_W
        self.two_sided = two_sided
        self.marker: tuple[str, int] | None = None  # family and id of a marker
        self.outline_px = np.array(
            [[-0.5, -0.5], [columns - 0.5, -0.5], [columns - 0.5, rows - 0.5], [-0.5, rows - 0.5]]
        )
        self.levels: list[Image8] = [texture]  # each half the size of the one before
        while min(self.levels[-1].shape) >= 4:
            last = self.levels[-1]
            half = (max(1, last.shape[1] // 2), max(1, last.shape[0] // 2))
            self.levels.append(cv2.resize(last, half, interpolation=cv2.INTER_AREA).astype(np.uint8, copy=False))
        self._half_px = np.array([columns / 2, rows / 2])
        low, right, bottom = QUIET_MODULES * MODULE_PX - 0.5, columns - 0.5, rows - 0.5
        right, bottom = right - QUIET_MODULES * MODULE_PX, bottom - QUIET_MODULES * MODULE_PX
        # corners of a marker's black square, (u, v, 1): top left, top right, bottom right, bottom left
        self.marker_px = np.array([[low, low, 1.0], [right, low, 1.0], [right, bottom, 1.0], [low, bottom, 1.0]])

    def placed(self, p_W: Array, R_WP: Array, scale: float, mirrored: bool) -> "Plane":
        """The same rectangle in another place, `scale` times as large as now; mirrored: left for right."""
        other = copy.copy(self)
        length_x, length_y = scale * np.linalg.norm(self.right_W), scale * np.linalg.norm(self.down_W)
        other.p_W = p_W
        other.normal_W = R_WP[:, 2].copy()
        other.right_W = R_WP[:, 0] * (-length_x if mirrored else length_x)
        other.down_W = -R_WP[:, 1] * length_y
        columns, rows = 2 * self._half_px
        other.origin_W = p_W - 0.5 * (columns - 1) * other.right_W - 0.5 * (rows - 1) * other.down_W
        return other

    def hides(self, camera_W: Array, points_W: Array) -> NDArray[np.bool_]:
        """Which of the points, shape (…, 3), the plane hides from the camera: bool, shape (…)."""
        rays = points_W - camera_W
        along = rays @ self.normal_W
        with np.errstate(divide="ignore", invalid="ignore"):
            fraction = ((self.p_W - camera_W) @ self.normal_W) / along
            # less than 1: a marker that is glued to the plane is not hidden by it
            between: NDArray[np.bool_] = (fraction > 0) & (fraction < 0.995)
            if not between.any():
                return between
            offset = camera_W + fraction[..., None] * rays - self.p_W
            u = np.abs(offset @ self.right_W) / (self.right_W @ self.right_W)
            v = np.abs(offset @ self.down_W) / (self.down_W @ self.down_W)
        hidden: NDArray[np.bool_] = between & (u < self._half_px[0]) & (v < self._half_px[1])
        return hidden


class SceneMarker:
    """A marker in the world: its corners [m], shape (4, 3), its centre and its rotation (z out of the face).

    p_WM, R_WM: of its bundle; scale: size of the bundle as printed over that of the marker file; mirrored: printed
    left for right.
    """

    def __init__(
        self, bundle: str, marker: Marker, p_WM: Array, R_WM: Array, scale: float = 1.0, mirrored: bool = False
    ) -> None:
        self.bundle = bundle
        self.marker = marker
        self.p_WM, self.R_WM, self.scale, self.mirrored = p_WM, R_WM, scale, mirrored
        corners_M = marker.corners_M()
        if scale != 1.0 or mirrored:
            corners_M = corners_M * (-scale if mirrored else scale, scale, scale)
        self.corners_W = corners_M @ R_WM.T + p_WM
        self.R_WF = R_WM @ rotation_matrix(quat_from_rpy(*marker.rpy_rad))
        self.centre_W = self.corners_W.mean(axis=0)


def place_markers(config: SceneConfig, site: Site) -> list[SceneMarker]:
    """The markers of all placed bundles; raises `ConfigError` for a bundle that the marker file does not have."""
    markers = []
    for placed in config.bundles:
        bundle = site.find(placed.name)
        if bundle is None:
            known = ", ".join(b.name for b in site.bundle)
            raise ConfigError(f"scene: bundles: '{placed.name}' is not in the marker file (it has: {known})")
        R_WM = rotation_matrix(quat_from_rpy(*placed.rpy_rad))
        printed = (_as_printed(config, m) for m in bundle.markers)
        markers += [SceneMarker(bundle.name, m, np.asarray(placed.p_W), R_WM) for m in printed]
    return markers


def _as_printed(config: SceneConfig, marker: Marker) -> Marker:
    """A marker of the marker file with the size and place that its print has."""
    size, scale = config.marker_scale.get(marker_name(marker), 1.0), config.print_scale
    if size == scale == 1.0:
        return marker
    x, y, z = marker.p_M
    return msgspec.structs.replace(marker, size_m=marker.size_m * size * scale, p_M=(x * scale, y * scale, z * scale))


def marker_name(marker: Marker) -> str:
    """The key of a marker in `SceneConfig.marker_scale`."""
    return f"{marker.family}/{marker.id}"


def marker_plane(placed: SceneMarker) -> Plane:
    """The marker with its quiet zone as a textured plane."""
    texture, modules = marker_texture(placed.marker)
    size_m = placed.marker.size_m * (modules + 2 * QUIET_MODULES) / modules
    plane = Plane(placed.centre_W, placed.R_WF, (size_m, size_m), texture, two_sided=False)
    plane.marker = placed.marker.family, placed.marker.id
    return plane


def backdrop_plane(backdrop: Backdrop) -> Plane:
    """A backdrop with its texture."""
    R = rotation_matrix(quat_from_rpy(*backdrop.rpy_rad))
    return Plane(backdrop.p_W, R, backdrop.size_m, backdrop_texture(backdrop), two_sided=True)


def marker_texture(marker: Marker) -> tuple[Image8, int]:
    """Grey image of a marker with quiet zone and the modules of its black square's side.

    Raises `ConfigError` for a family that cannot be drawn or an id the family does not have.
    """
    bits = np.pad(_printed_bits(marker), 1) * np.uint8(255)
    modules = len(bits)
    bits = np.pad(bits, QUIET_MODULES, constant_values=255)
    grey = np.where(bits > 127, WHITE, BLACK).astype(np.uint8)
    return np.kron(grey, np.ones((MODULE_PX, MODULE_PX), dtype=np.uint8)), modules


def _printed_bits(marker: Marker) -> Image8:
    """The cells inside the black border, as on the publisher's picture held upright; 1: white."""
    where = f"scene: marker {marker.family} {marker.id}"
    if marker.family.startswith(CUSTOM_PREFIX):
        return _bits_of_file(Path(marker.family.removeprefix(CUSTOM_PREFIX)), marker.id, where)
    if marker.family not in DICTIONARIES:
        raise ConfigError(f"{where}: the renderer draws only {', '.join(DICTIONARIES)}, {CUSTOM_PREFIX}PATH")
    dictionary = cv2.aruco.getPredefinedDictionary(DICTIONARIES[marker.family])
    count = len(dictionary.bytesList)
    if marker.id >= count:
        raise ConfigError(f"{where}: the family has ids 0 to {count - 1}")
    bits = _bits_of(dictionary, marker.id)
    if marker.family in APRILTAG_0:
        # OpenCV's table of these families is half a turn off the tags that AprilRobotics prints (opencv#28823, corrected
        # in later versions), so the turn is found with a tag whose picture is known
        first, printed = _bits_of(dictionary, 0), np.array([[int(c) for c in row] for row in APRILTAG_0[marker.family]])
        bits = np.rot90(bits, next(k for k in range(4) if np.array_equal(np.rot90(first, k), printed)))
    return bits


def _bits_of(dictionary: cv2.aruco.Dictionary, id: int) -> Image8:
    picture = cv2.aruco.generateImageMarker(dictionary, id, dictionary.markerSize + 2)
    return (picture[1:-1, 1:-1] // 255).astype(np.uint8, copy=False)


def _bits_of_file(path: Path, id: int, where: str) -> Image8:
    try:
        storage = cv2.FileStorage(str(path), cv2.FILE_STORAGE_READ)
        size, code = storage.getNode("markersize").real(), storage.getNode(f"marker_{id}").string()
    except (cv2.error, SystemError, ValueError):
        size, code = 0, ""
    if size < 1 or len(code) != size * size or set(code) - {"0", "1"}:
        raise ConfigError(f"{where}: {path}: no usable marker_{id}")
    return np.array([int(c) for c in code], dtype=np.uint8).reshape(int(size), int(size))


def backdrop_texture(backdrop: Backdrop) -> Image8:
    """Grey image of a backdrop; the same seed gives the same image."""
    scale = min(BACKDROP_PX_PER_M, BACKDROP_PX_MAX / max(backdrop.size_m))
    columns, rows = (max(8, round(side * scale)) for side in backdrop.size_m)
    rng = np.random.default_rng(backdrop.seed)
    if backdrop.texture == "plain":
        return np.full((rows, columns), 150, dtype=np.uint8)
    if backdrop.texture == "grass":
        image = 95 + _octaves(rng, rows, columns, (2, 4, 16, 64), (22, 16, 10, 8))
    else:
        image = 140 + _octaves(rng, rows, columns, (2, 8, 40, 200), (5, 5, 8, 10))
        board = max(4, round(0.5 * scale))  # seams of the formwork every half metre
        image[board // 2 :: board] -= 22
    return np.clip(image, 0, 255).astype(np.uint8)


def _octaves(
    rng: np.random.Generator, rows: int, columns: int, cells_px: Sequence[int], amplitudes: Sequence[float]
) -> NDArray[np.float32]:
    """Sum of smooth random fields, one per cell size."""
    total = np.zeros((rows, columns), dtype=np.float32)
    for cell, amplitude in zip(cells_px, amplitudes, strict=True):
        field = rng.standard_normal((rows // cell + 2, columns // cell + 2)).astype(np.float32)
        total += amplitude * cv2.resize(field, (columns, rows), interpolation=cv2.INTER_CUBIC)
    return total
