"""The marker file: which markers form which bundle (config/markers/*.toml).

A marker's family is one of `FAMILIES`, or ``dictionary:PATH`` for printed boards with the user's own codes.
A bundle is one rigid body with one or more markers; its frame M has x right, y up, z out of the face. The pose of a
bundle in the world is not an input: the estimator finds it. Poses of bundles relative to each other may be given by a survey.
"""

from itertools import combinations
from math import hypot
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from companion.core.arrays import Array
from companion.core.config import ConfigError, Section, Tables, integer, number, parse, read_layered
from companion.core.frames import quat_from_rpy, rotation_matrix
from companion.core.messages import WORLD

CUSTOM_PREFIX = "dictionary:"  # then the path of a dictionary in OpenCV's YAML format, relative to the marker file
SQUARE_FAMILIES = (
    *("aruco_4x4_50", "aruco_5x5_100", "aruco_6x6_250", "aruco_6x6_1000", "aruco_mip_36h12"),
    *("apriltag_16h5", "apriltag_25h9", "apriltag_36h11"),
)
STAG_PREFIX, STAG_LIBRARIES = "stag_hd", (11, 13, 15, 17, 19, 21, 23)
FAMILIES = (*SQUARE_FAMILIES, *(f"{STAG_PREFIX}{n}" for n in STAG_LIBRARIES))
KNOWN_FAMILIES = ", ".join([*FAMILIES, f"{CUSTOM_PREFIX}PATH"])
Metres = Annotated[float, number(-50, 50, "m")]
SiteMetres = Annotated[float, number(-2000, 2000, "m")]
Radians = Annotated[float, number(-3.15, 3.15, "rad")]
Metres3 = tuple[Metres, Metres, Metres]
Radians3 = tuple[Radians, Radians, Radians]
SIGMAS = 3.0  # of two surveyed places, beyond which they contradict each other
# Two prints that face the same way cannot overlap by more than the rounding of their places, but for a small one that is drawn into
# a cell of a large one. Beyond a share of the smaller print apart they are on two faces, of which the nearer may hide the other.
ROUNDING_M, IN_A_CELL, FACES_APART = 0.001, 0.25, 0.25


def check_bundle_name(name: str) -> None:
    """Raise ValueError, which becomes a `ConfigError`, for a bundle with the name of the frame that belongs to no bundle.

    A reference in the frame `WORLD` is flown from the take-off point: a bundle of this name would never be flown at.
    """
    if name.strip().casefold() == WORLD:
        raise ValueError(f"name = {name!r}: reserved for the frame of the take-off point: a bundle needs another name")


class Marker(Section):
    """One marker: black square of ``size_m`` (outer black edge), at ``p_M``, turned by ``rpy_rad``."""

    family: Annotated[str, Meta(min_length=1, description=KNOWN_FAMILIES)]
    id: Annotated[int, integer(0, 100000)]
    size_m: Annotated[float, number(0.005, 5, "m")]
    p_M: Metres3 = (0.0, 0.0, 0.0)
    rpy_rad: Radians3 = (0.0, 0.0, 0.0)

    def corners_M(self) -> Array:
        """Corners on the bundle [m], shape (4, 3): top left, top right, bottom right, bottom left."""
        h = self.size_m / 2
        square = np.array([[-h, h, 0.0], [h, h, 0.0], [h, -h, 0.0], [-h, -h, 0.0]])
        corners: Array = square @ rotation_matrix(quat_from_rpy(*self.rpy_rad)).T + np.asarray(self.p_M)
        return corners


class Survey(Section):
    """Where a bundle was measured to stand, in the surveyor's frame S, which all surveyed bundles of a site have in common."""

    p_S: tuple[SiteMetres, SiteMetres, SiteMetres]
    rpy_S_rad: Radians3
    std_m: Annotated[float, number(0.001, 1, "m")]  # of each axis
    std_rad: Annotated[float, number(0.001, 0.5, "rad")]  # of a rotation about each axis


class Plumb(Section):
    """An axis of a bundle that points up: by a spirit level, or because the face is known to stand upright or to lie level."""

    axis: Annotated[str, Meta(pattern="^[yz]$", description="y, of a bundle on a wall; z, of one on the ground")]
    std_rad: Annotated[float, number(0.001, 0.2, "rad, about each horizontal axis")]


class Bundle(Section):
    """Markers on one rigid body."""

    name: Annotated[str, Meta(min_length=1)]
    markers: Annotated[list[Marker], Meta(min_length=1)]
    survey: Survey | None = None
    plumb: Plumb | None = None

    def __post_init__(self) -> None:
        check_bundle_name(self.name)


class Site(Section):
    """A marker file."""

    bundle: Annotated[list[Bundle], Meta(min_length=1)]

    def find(self, name: str) -> Bundle | None:
        """The bundle of that name, or None."""
        return next((b for b in self.bundle if b.name == name), None)

    def contradiction(self) -> str:
        """A sentence when two markers of a bundle, or the surveyed places of two bundles, cannot both be true; "" otherwise.

        Two prints that face the same way cannot overlap. Prints on the two sides of one board face opposite ways.
        """
        for bundle in self.bundle:
            for m, n in combinations(bundle.markers, 2):
                if _overlap(m, n):
                    apart_m = float(np.linalg.norm(np.subtract(m.p_M, n.p_M)))
                    return (
                        f"bundle '{bundle.name}': markers {m.family} {m.id} and {n.family} {n.id} overlap ({apart_m:.3f} m apart):"
                        " p_M, rpy_rad or size_m of one of them is wrong"
                    )
        return self._survey_contradiction()

    def _survey_contradiction(self) -> str:
        surveyed = [(bundle, bundle.survey) for bundle in self.bundle if bundle.survey is not None]
        for (a, survey_a), (b, survey_b) in combinations(surveyed, 2):
            std_m = hypot(survey_a.std_m, survey_b.std_m)
            for m, (centre_m, normal_m) in zip(a.markers, _centres_and_normals(a, survey_a), strict=True):
                for n, (centre_n, normal_n) in zip(b.markers, _centres_and_normals(b, survey_b), strict=True):
                    apart_m = float(np.linalg.norm(centre_m - centre_n))
                    least_m = min(m.size_m, n.size_m) / 2
                    if normal_m @ normal_n > 0.0 and apart_m < least_m - SIGMAS * std_m:
                        return (
                            f"bundle.survey: marker {n.id} of '{b.name}' stands on marker {m.id} of '{a.name}' ({apart_m:.3f} m apart): "
                            "measure one of the two bundles again, or take its survey out"
                        )
        return ""


def load_site(path: str | Path) -> Site:
    """Read a marker file; dictionary paths become absolute.

    Raises `ConfigError`, also when a family is unknown, a dictionary file is missing, a bundle has a reserved name, a
    marker or a bundle name occurs twice, one of several markers of a bundle has no place, or two prints are in one place. The tracker's
    detector checks the content of a dictionary file, and whether one print can be two of the markers.
    """
    tables = read_layered(path)
    site = _with_absolute_paths(parse(tables, Site, str(path)), Path(path))
    names: set[str] = set()
    seen: dict[tuple[str, int], str] = {}
    for bundle in site.bundle:
        if bundle.name in names:
            raise ConfigError(f"{path}: bundle '{bundle.name}' is defined twice")
        names.add(bundle.name)
        for marker in bundle.markers:
            key = (marker.family, marker.id)
            if key in seen:
                raise ConfigError(f"{path}: marker {key[0]} {key[1]} stands in '{seen[key]}' and in '{bundle.name}'")
            seen[key] = bundle.name
    if problem := _without_place(tables) or site.contradiction():
        raise ConfigError(f"{path}: {problem}")
    return site


def _without_place(tables: Tables) -> str:
    """The second marker of a bundle that does not say where it is; one is at the origin."""
    for b, bundle in enumerate(tables["bundle"]):
        without = [m for m, marker in enumerate(bundle["markers"]) if "p_M" not in marker]
        if len(without) > 1:
            return (
                f"bundle[{b}].markers[{without[1]}].p_M: missing key: marker {without[0]} of bundle '{bundle['name']}' is at the "
                "origin already"
            )
    return ""


def _overlap(m: Marker, n: Marker) -> bool:
    """Whether two prints of one bundle cover the same place of one face."""
    large, small = (m, n) if m.size_m >= n.size_m else (n, m)
    R_large, R_small = (rotation_matrix(quat_from_rpy(*marker.rpy_rad)) for marker in (large, small))
    apart_m = float(R_large[:, 2] @ np.subtract(small.p_M, large.p_M))
    if R_large[:, 2] @ R_small[:, 2] <= 0.0 or abs(apart_m) > FACES_APART * small.size_m:
        return False
    first, second = (((marker.corners_M() - large.p_M) @ R_large)[:, :2] for marker in (large, small))
    if small.size_m <= IN_A_CELL * large.size_m and (np.abs(second) <= large.size_m / 2).all():
        return False
    # Two convex shapes are apart where their shadows on the normal of one of their sides are.
    sides = np.vstack([first[1:3] - first[:2], second[1:3] - second[:2]])
    for side in sides / np.linalg.norm(sides, axis=1)[:, None]:
        a, b = first @ (-side[1], side[0]), second @ (-side[1], side[0])
        if min(a.max(), b.max()) - max(a.min(), b.min()) < ROUNDING_M:
            return False
    return True


def _centres_and_normals(bundle: Bundle, survey: Survey) -> list[tuple[Array, Array]]:
    """Centre [m] and normal of each marker in the frame S."""
    R_SM = rotation_matrix(quat_from_rpy(*survey.rpy_S_rad))
    return [
        (
            R_SM @ np.array(marker.p_M) + survey.p_S,
            R_SM @ rotation_matrix(quat_from_rpy(*marker.rpy_rad))[:, 2],
        )
        for marker in bundle.markers
    ]


def _with_absolute_paths(site: Site, path: Path) -> Site:
    bundles = []
    for b, bundle in enumerate(site.bundle):
        markers = []
        for m, marker in enumerate(bundle.markers):
            key = f"{path}: bundle[{b}].markers[{m}].family = {marker.family!r}"
            if marker.family.startswith(CUSTOM_PREFIX):
                file = (path.parent / marker.family.removeprefix(CUSTOM_PREFIX)).resolve()
                if not file.is_file():
                    raise ConfigError(f"{key}: {file}: no such marker dictionary")
                marker = msgspec.structs.replace(marker, family=f"{CUSTOM_PREFIX}{file}")
            elif marker.family not in FAMILIES:
                raise ConfigError(f"{key}: unknown family (allowed: {KNOWN_FAMILIES})")
            markers.append(marker)
        bundles.append(msgspec.structs.replace(bundle, markers=markers))
    return msgspec.structs.replace(site, bundle=bundles)
