"""Inputs of PX4's drivers from a `SensorFrame`: magnetic field, air pressure and GNSS fix.

The frame's attitude has the error that a scenario gives the autopilot's attitude solution. Real PX4 computes its own
solution with its own tilt error; only the compass is turned by the frame's error, so that the heading error is that of
the scenario.
"""

import math
from collections.abc import Callable

import numpy as np

from companion.core.arrays import Array, Vector
from companion.core.frames import rotation_matrix
from sitl.autopilot.conversion import Vec3, frd, geodetic
from sitl.sensors import GnssConfig, GnssFix

# The field at `conversion.ORIGIN` (World Magnetic Model 2025, at the resolution of PX4's table): PX4 takes the
# declination from that table, so another field would be a heading error.
DECLINATION_RAD = math.radians(-7.695)
INCLINATION_RAD = math.radians(61.36)
FIELD_GAUSS = 0.4809
MAG_NOISE_GAUSS = 0.003  # of a sample; a magnetometer such as the IST8310
# Accuracy that an ordinary receiver reports, whatever its error; PX4 takes a fix as no better than reported.
CLAIMED_HORIZONTAL_M, CLAIMED_VERTICAL_M = 0.9, 1.8
SATELLITES = 14

_FIELD_W: Array = FIELD_GAUSS * np.array(
    [
        math.cos(INCLINATION_RAD) * math.sin(DECLINATION_RAD),
        math.cos(INCLINATION_RAD) * math.cos(DECLINATION_RAD),
        -math.sin(INCLINATION_RAD),
    ]
)


def magnetic_field(q_WB: Vector, noise: Callable[[], float]) -> Vec3:
    """Field in FRD [gauss] at an attitude q_WB (w, x, y, z)."""
    x, y, z = (rotation_matrix(q_WB).T @ _FIELD_W).tolist()
    n = MAG_NOISE_GAUSS
    return frd((x + n * noise(), y + n * noise(), z + n * noise()))


def pressure_hpa(altitude_m: float) -> float:
    """Pressure of the standard atmosphere (ISO 2533, troposphere) at an altitude over sea level [m]."""
    ratio: float = (1.0 - 0.0065 * altitude_m / 288.15) ** 5.25588
    return 1013.25 * ratio


def claimed_accuracy_m(config: GnssConfig) -> tuple[float, float]:
    """Accuracy that the receiver reports, horizontal and vertical [m]; precise only if its error has no random walk."""
    if config.walk_variance_m2 > 0.0:
        return CLAIMED_HORIZONTAL_M, CLAIMED_VERTICAL_M
    std = max(0.01, math.sqrt(config.white_variance_m2))
    return std, 2 * std


def hil_gps(time_us: int, fix: GnssFix, accuracy_m: tuple[float, float]) -> tuple[int, ...]:
    """Values of HIL_GPS in wire order; the fix already contains its error."""
    lat, lon, alt = geodetic(fix.p_W)
    east, north, up = fix.v_W
    speed = math.hypot(east, north)
    course = round(math.degrees(math.atan2(east, north)) * 100) % 36000 if speed > 0.1 else 65535
    eph, epv = (min(65535, max(1, round(a * 100))) for a in accuracy_m)
    return (
        time_us, round(lat * 1e7), round(lon * 1e7), round(alt * 1e3), eph, epv,
        round(speed * 100), round(north * 100), round(east * 100), round(-up * 100), course,
        3 if fix.ok else 0, SATELLITES if fix.ok else 0, 0, 0,
    )  # fmt: skip
