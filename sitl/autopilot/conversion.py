"""Conversion between the autopilot (ENU, FLU, metres) and the wire (NED, FRD, degrees)."""

import math
from collections.abc import Iterator
from typing import Protocol

EARTH_RADIUS_M = 6371000.0  # the sphere of PX4's map projection
ORIGIN = (34.0007, -81.0348, 60.0)  # latitude, longitude [deg], altitude [m] of the local origin

Vec3 = tuple[float, float, float]
Quat = tuple[float, float, float, float]


class Vector(Protocol):
    """Numbers by index: a tuple, a list, an array of NumPy or of ctypes."""

    def __getitem__(self, index: int, /) -> float: ...

    def __iter__(self) -> Iterator[float]: ...


def ned(v: Vector) -> Vec3:
    """ENU to NED; its own inverse."""
    return v[1], v[0], -v[2]


def frd(v: Vector) -> Vec3:
    """FLU to FRD; its own inverse."""
    return v[0], -v[1], -v[2]


_H = math.sqrt(0.5)


def q_ned(q: Vector) -> Quat:
    """q_WB (ENU, FLU) as PX4's attitude (NED, FRD); w ≥ 0.

    q_NED_FRD = q_NED_ENU ⊗ q ⊗ q_FLU_FRD with q_NED_ENU = (0, √½, √½, 0), q_FLU_FRD = (0, 1, 0, 0).
    """
    w, x, y, z = q
    a, b, c, d = _H * (w + z), _H * (x + y), _H * (x - y), _H * (w - z)
    return (a, b, c, d) if a >= 0 else (-a, -b, -c, -d)


def q_enu(q: Vector) -> Quat:
    """PX4's attitude (NED, FRD) as q_WB; the transformation is its own inverse."""
    a, b, c, d = q
    return _H * (a + d), _H * (b + c), _H * (b - c), _H * (a - d)


def geodetic(p_W: Vector) -> Vec3:
    """Latitude, longitude [deg] and altitude [m] of a local point near the origin."""
    lat = ORIGIN[0] + math.degrees(p_W[1] / EARTH_RADIUS_M)
    lon = ORIGIN[1] + math.degrees(p_W[0] / (EARTH_RADIUS_M * math.cos(math.radians(ORIGIN[0]))))
    return lat, lon, ORIGIN[2] + p_W[2]


def local(lat_deg: float, lon_deg: float, alt_m: float) -> Vec3:
    """Inverse of `geodetic`."""
    north = math.radians(lat_deg - ORIGIN[0]) * EARTH_RADIUS_M
    east = math.radians(lon_deg - ORIGIN[1]) * EARTH_RADIUS_M * math.cos(math.radians(ORIGIN[0]))
    return east, north, alt_m - ORIGIN[2]
