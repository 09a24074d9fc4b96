"""The pictures of a simulated payload camera, drawn after the flight from the true pose of each exposure.

They are smaller than the sensor, which the GSD and all figures count for. The lens is not that of the camera file: its errors are
drawn for the seed (`sitl.payload_camera.true_lens`), and the pictures have blur and noise. Names and tags are those of a real camera's
card after `companion photographs tag`.
"""

from collections.abc import Iterable
from pathlib import Path

import cv2
import numpy as np

from companion.core.arrays import Image8
from companion.core.command_line import check_output_folder, os_error_line
from companion.core.config import ConfigError
from companion.core.errors import OutputError
from companion.core.frames import rotation_matrix
from companion.core.messages import Capture, CaptureTruth, Message
from companion.payload.matching import photographs_of
from companion.payload.tags import tags_of, write_tags
from companion.planning.camera import PayloadCamera
from companion.runtime.nodes import payload_camera
from sitl.camera import SceneCamera
from sitl.payload_camera import UTC_AT_START_S, TrueLens, file_name, true_lens
from sitl.scenario import LoadedScenario
from sitl.views import Pinhole

WIDTH_PX = 2000
JPEG_QUALITY = 90
BLUR_PX = 0.6  # standard deviation of the lens's point spread in this width [estimate]
NOISE_STREAM = 12  # of the random numbers of a seed
EXACT_LENS = TrueLens(0.0, (0.0, 0.0), 0.0)
NOISE_STD = 2.0  # grey levels, of the sensor and its readout [estimate]


def check_drawable(loaded: LoadedScenario, folder: Path) -> None:
    """Make the folder; raise `ConfigError` or `OutputError`, one line, when no photographs of a scenario can be drawn into it."""
    if loaded.plan.inspection is None:
        raise ConfigError(f"{loaded.mission_path}: inspection: missing table: the mission takes no photographs to draw")
    if loaded.solids is None:
        raise ConfigError(f"{loaded.path}: world: missing key: without solids there is nothing to draw")
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise OutputError(f"{folder}: is not an empty folder; photographs are never overwritten")
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written: {os_error_line(error)}") from None
    check_output_folder(folder)


def draw_photographs(
    loaded: LoadedScenario,
    seed: int,
    truths: Iterable[Message],
    captures: Iterable[Message],
    folder: Path,
    tags: bool = True,
) -> int:
    """Draw every exposure of a seed's flight into a folder, with the tags that the stack's pose gives it; returns how many.

    truths, captures: `CaptureTruth` and `Capture` of the flight. A photograph that the stack did not count has no tags.
    tags: need Pillow. Raises `NoRenderer` where this machine cannot draw.
    """
    from sitl.rendering.lens import Lens  # here: a flight without pictures loads no renderer
    from sitl.rendering.rasteriser import DrawnPlane, Rasteriser

    check_drawable(loaded, folder)
    camera = payload_camera(loaded.plan)
    assert camera is not None and loaded.solids is not None
    scene = SceneCamera(loaded.scenario.camera, loaded.scenario.scene, loaded.site, 0, True, loaded.solids, None)
    planes = [DrawnPlane(plane) for plane in scene.placed.planes]
    error = true_lens(loaded.scenario.payload, seed)
    lens = Lens(view_of(camera, error), (error.k1, 0.0, 0.0, 0.0, 0.0))
    rng = np.random.default_rng((seed, NOISE_STREAM))
    rasteriser = Rasteriser(loaded.solids.meshes())
    known = {c.image_index: c for c in photographs_of([c for c in captures if isinstance(c, Capture)])}
    count = 0
    try:
        for truth in truths:
            if not isinstance(truth, CaptureTruth):
                continue
            pose = np.array(truth.p_WC), rotation_matrix(truth.q_WC)
            picture = lens.bend(rasteriser.draw(lens.view, *pose, planes, depth=False).grey)
            path = folder / file_name(truth.image_index)
            if not cv2.imwrite(str(path), developed(picture, rng), [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY]):
                raise OutputError(f"{path}: cannot be written")
            if tags and (capture := known.get(truth.image_index)) is not None:
                write_tags(path, path, tags_of(capture, camera, UTC_AT_START_S))
            count += 1
    finally:
        rasteriser.close()
    return count


def view_of(camera: PayloadCamera, error: TrueLens = EXACT_LENS) -> Pinhole:
    """The payload camera's picture, reduced to `WIDTH_PX`, without its distortion."""
    scale = min(1.0, WIDTH_PX / camera.width_px)
    width, height = round(scale * camera.width_px), round(scale * camera.height_px)
    fx, fy = (scale * (1 + error.focal) * f for f in camera.focal_px)
    x, y = error.principal_point
    return Pinhole(width, height, fx, fy, (width - 1) / 2 + width * x, (height - 1) / 2 + width * y)


def developed(picture: Image8, rng: np.random.Generator) -> Image8:
    """A drawn picture with the blur of a lens and the noise of a sensor."""
    soft = cv2.GaussianBlur(picture, (0, 0), BLUR_PX)
    noisy = soft + NOISE_STD * rng.standard_normal(soft.shape, dtype=np.float32)
    image: Image8 = np.clip(np.round(noisy), 0, 255).astype(np.uint8)
    return image
