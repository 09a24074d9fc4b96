"""How well one image of markers places the camera, against how far they are spread: `python -m tests.tracking.marker_spread`.

Standard deviations of least squares (`companion.tracking.pose.PoseSolver.covariance`) for a camera 5 m in front of a wall, level and
facing it, with the lens of the F550's vehicle file and corners that are wrong by 0.5 px each, which does not average from image to image.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from companion.core.camera_model import CameraModel
from companion.core.config import load
from companion.core.site import Marker
from companion.core.vehicle import Vehicle
from companion.tracking.pose import CandidatePose, PoseSolver

F550 = Path(__file__).parents[2] / "config/vehicles/f550.toml"
CORNER_PX, DISTANCE_M = 0.5, 5.0
FACING = np.diag([1.0, -1.0, -1.0])  # R_CM: the camera's z into the face


class Certainty(NamedTuple):
    """Standard deviations of the camera in the bundle's frame: sideways, along the view [m], heading [rad]."""

    sideways_m: float
    along_m: float
    heading_rad: float


def markers(places: list[tuple[float, float, float]], size_m: float = 0.3) -> list[Marker]:
    """Markers of a bundle at places (x, y, z) [m]."""
    return [Marker("aruco_6x6_250", i, size_m, place) for i, place in enumerate(places)]


def rectangle(width_m: float, height_m: float, depth_m: float = 0.0) -> list[Marker]:
    """Six markers: two columns of three; depth_m: how far the second column stands behind the first."""
    x, y = width_m / 2, height_m / 2
    return markers([(side * x, row * y, -depth_m * (side > 0)) for side in (-1, 1) for row in (-1, 0, 1)])


def certainty(bundle: list[Marker], distance_m: float = DISTANCE_M) -> Certainty:
    """Of a camera in front of the middle of a bundle."""
    camera = CameraModel(load(F550, Vehicle).camera)
    solver = PoseSolver(camera, CORNER_PX, 10.0, 3.0)
    pose = CandidatePose(FACING, np.array([0.0, 0.0, distance_m]), 0.0)
    corners_M = np.array([marker.corners_M() for marker in bundle])
    corners_px = solver.project(pose, corners_M.reshape(-1, 3)).reshape(-1, 4, 2)
    covariance = solver.covariance(pose, corners_px, corners_M)
    assert covariance is not None
    p_MC = -FACING.T @ pose.p_CM
    J = np.hstack([-FACING.T, _cross(p_MC)])
    place, turn = J @ covariance @ J.T, covariance[3:, 3:]
    return Certainty(*np.sqrt([place[0, 0], place[2, 2], turn[1, 1]]).tolist())


def _cross(v: Array) -> Array:
    return np.array([[0, -v[2], v[1]], [v[2], 0, -v[0]], [-v[1], v[0], 0]])


BUNDLES = {
    "board 0.9 x 0.6 m, 5 markers": [
        *markers([(-0.45, 0.3, 0.0), (0.45, 0.3, 0.0), (0.45, -0.3, 0.0), (-0.45, -0.3, 0.0)]),
        Marker("aruco_6x6_250", 9, 0.12),
    ],
    "0.9 x 0.9 m, 6 markers": rectangle(0.9, 0.9),
    "1.7 x 1.6 m": rectangle(1.7, 1.6),
    "2.5 x 2.4 m": rectangle(2.5, 2.4),
    "3.4 x 3.2 m": rectangle(3.4, 3.2),
    "2.5 x 2.4 m, one column 2 m behind the other": rectangle(2.5, 2.4, 2.0),
}


def main() -> None:
    """Print the table of docs/inspection_plan.md."""
    print("| markers of a bundle | sideways cm | along cm | heading ° |\n|---|---|---|---|")
    for name, bundle in BUNDLES.items():
        found = certainty(bundle)
        print(
            f"| {name} | {100 * found.sideways_m:.1f} | {100 * found.along_m:.1f} | {np.degrees(found.heading_rad):.2f} |"
        )


if __name__ == "__main__":
    main()
