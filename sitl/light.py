"""The light on the meshes of a world."""

from typing import Annotated

import numpy as np

from companion.core.arrays import Array
from companion.core.config import Section, number


class LightConfig(Section, frozen=True):
    """The light on meshes: from all of the sky, and from the sun. Rectangles have theirs in their textures."""

    sky: Annotated[float, number(0, 2, "(share of the grey level on a face that looks up)")] = 0.75
    below: Annotated[float, number(0, 2, "(the same on a face that looks down)")] = 0.3
    sun: Annotated[float, number(0, 2, "(added where the sun shines at a right angle)")] = 0.25
    sun_W: tuple[
        Annotated[float, number(-1, 1, "")], Annotated[float, number(-1, 1, "")], Annotated[float, number(-1, 1, "")]
    ] = (-0.5, -0.4, 0.77)  # direction to the sun

    def on(self, normals_W: Array) -> Array:
        """Factor of the grey level on faces with these unit normals, (n, 3)."""
        towards = np.asarray(self.sun_W) / max(float(np.linalg.norm(self.sun_W)), 1e-9)
        diffuse = self.below + (self.sky - self.below) * (0.5 + 0.5 * normals_W[:, 2])
        factor: Array = diffuse + self.sun * np.maximum(normals_W @ towards, 0.0)
        return factor
