"""Meshes and views for the tests of rendering, and the mark of tests that draw."""

import functools
import os

import numpy as np
import pytest

from companion.core.frames import quat_from_rpy, rotation_matrix
from sitl.rendering.context import NoRenderer, OffScreen
from sitl.rendering.meshes import MeshPatch, rectangle
from sitl.views import Pinhole

os.environ.setdefault("LP_NUM_THREADS", "0")  # Mesa's renderer works in the thread that calls it
AHEAD = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])  # R_WC of a camera that looks along x of W
FACING = rotation_matrix(quat_from_rpy(np.pi / 2, 0.0, -np.pi / 2))  # R_WP of a face that looks against x of W
VIEW = Pinhole(320, 240, 200.0, 210.0, 158.3, 121.7)


@functools.cache
def why_not() -> str:
    """Why this machine cannot draw; "" when it can."""
    try:
        OffScreen().close()
    except NoRenderer as error:
        return str(error)
    return ""


draws = pytest.mark.skipif(bool(why_not()), reason=why_not() or "draws")


def wall(x_m, grey=140, size_m=(40.0, 40.0), m=0.5, y_m=0.0, z_m=0.0, R=FACING):
    """A grey wall ahead at this x."""
    return rectangle((x_m, y_m, z_m), R, size_m, np.full((8, 8), grey, np.uint8), m)


def box(centre, size, grey=100, m=0.5):
    """A closed box, faces seen from outside."""
    x, y, z = np.array(size) / 2
    corners = np.array([(i, j, k) for i in (-x, x) for j in (-y, y) for k in (-z, z)]) + centre
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    triangles = np.array([t for a, b, c, d in quads for t in ((a, b, c), (a, c, d))])
    return MeshPatch(corners, triangles, np.zeros((8, 2)), np.full((4, 4), grey, np.uint8), m)


def sphere(centre, radius_m, side, texture, inside=False):
    """About 2 side² triangles."""
    polar, azimuth = np.meshgrid(
        np.linspace(0.01, np.pi - 0.01, side + 1), np.linspace(0.0, 2 * np.pi, side + 1), indexing="ij"
    )
    places = np.stack([np.sin(polar) * np.cos(azimuth), np.sin(polar) * np.sin(azimuth), np.cos(polar)], -1)
    first = np.arange(side * (side + 1)).reshape(side, side + 1)[:, :side].ravel()
    a, b, c, d = first, first + side + 1, first + side + 2, first + 1
    triangles = np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])
    uv = np.stack([2 * azimuth / np.pi, 4 * polar / np.pi], -1).reshape(-1, 2)
    vertices = centre + radius_m * places.reshape(-1, 3)
    return MeshPatch(vertices, triangles[:, ::-1] if inside else triangles, uv, texture)


def many_spheres(side=34):
    """20 spheres before a camera that looks along x, within a large one: 42 side² triangles."""
    texture = np.random.default_rng(1).integers(0, 255, (512, 512)).astype(np.uint8)
    centres = [(6 + 2 * (i % 3), -3 + i % 5 * 1.5, -2 + i // 5 * 1.2) for i in range(20)]
    meshes = [sphere(np.array(centre), 1.0, side, texture) for centre in centres]
    return [*meshes, sphere(np.zeros(3), 30.0, side, texture, inside=True)]
