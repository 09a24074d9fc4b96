"""Vectors and quaternions as plain tuples, as the messages have them."""

from companion.core.arrays import Array
from companion.core.trajectory_messages import Quat, Vec3


def vec3(values: Array) -> Vec3:
    """An array of shape (3,) as a tuple."""
    x, y, z = values.tolist()
    return x, y, z


def quat(values: Array) -> Quat:
    """An array of shape (4,), w first, as a tuple."""
    w, x, y, z = values.tolist()
    return w, x, y, z
