"""Between the autopilot (ENU, FLU, metres) and the wire (NED, FRD, degrees)."""

import math

EARTH_RADIUS_M = 6371000.0  # the sphere PX4 projects with
ORIGIN = (34.0007, -81.0348, 60.0)  # latitude, longitude [deg], altitude [m] of the local origin


def ned(v) -> tuple[float, float, float]:
    """ENU to NED, or FLU to FRD with `frd`."""
    return v[1], v[0], -v[2]


def frd(v) -> tuple[float, float, float]:
    return v[0], -v[1], -v[2]


_H = math.sqrt(0.5)


def q_ned(q) -> tuple[float, float, float, float]:
    """q_WB (ENU, FLU) as PX4's attitude (NED, FRD); w ≥ 0.

    q_NED_FRD = q_NED_ENU ⊗ q ⊗ q_FLU_FRD with q_NED_ENU = (0, √½, √½, 0), q_FLU_FRD = (0, 1, 0, 0).
    """
    w, x, y, z = q
    a, b, c, d = _H * (w + z), _H * (x + y), _H * (x - y), _H * (w - z)
    return (a, b, c, d) if a >= 0 else (-a, -b, -c, -d)


def q_enu(q) -> tuple[float, float, float, float]:
    """PX4's attitude (NED, FRD) as q_WB; the transformation is its own inverse."""
    a, b, c, d = q
    return _H * (a + d), _H * (b + c), _H * (b - c), _H * (a - d)


def geodetic(p_W) -> tuple[float, float, float]:
    """Latitude, longitude [deg] and altitude [m] of a local point near the origin."""
    lat = ORIGIN[0] + math.degrees(p_W[1] / EARTH_RADIUS_M)
    lon = ORIGIN[1] + math.degrees(p_W[0] / (EARTH_RADIUS_M * math.cos(math.radians(ORIGIN[0]))))
    return lat, lon, ORIGIN[2] + p_W[2]


def local(lat_deg: float, lon_deg: float, alt_m: float) -> tuple[float, float, float]:
    """Inverse of `geodetic`."""
    north = math.radians(lat_deg - ORIGIN[0]) * EARTH_RADIUS_M
    east = math.radians(lon_deg - ORIGIN[1]) * EARTH_RADIUS_M * math.cos(math.radians(ORIGIN[0]))
    return east, north, alt_m - ORIGIN[2]
