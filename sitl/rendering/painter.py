"""The picture of the tracker's camera where the world has more than rectangles."""

from collections.abc import Sequence

import numpy as np

from companion.core.arrays import Array, Image8
from sitl.camera import Displaced
from sitl.light import LightConfig
from sitl.rendering.meshes import Drawable
from sitl.rendering.rasteriser import DrawnPlane, Rasteriser
from sitl.views import Pinhole


class ScenePainter:
    """Draws meshes and the planes of a scene for `sitl.camera.SceneCamera`, which adds lens, blur, light and noise.

    Raises `NoRenderer` when this machine cannot draw.
    """

    def __init__(self, meshes: Sequence[Drawable], light: LightConfig | None = None) -> None:
        self._rasteriser = Rasteriser(meshes, light)

    def paint(self, picture: Image8, view: Pinhole, p_WC: Array, R_WC: Array, planes: Displaced) -> None:
        """Fill the undistorted picture of this view."""
        drawn = [DrawnPlane(plane, displacement) for plane, displacement in planes]
        np.copyto(picture, self._rasteriser.draw(view, p_WC, R_WC, drawn, depth=False).grey)
