"""A camera that freezes shows the image that it exposed last, however far the drawing is behind."""

import pytest

from companion.core.config_files import config_folder
from sitl.scenario import CameraMode, load_scenario
from sitl.world import World


@pytest.mark.parametrize("mode", ["images", "corners"])
@pytest.mark.parametrize("behind", [0, 1, 2])
def test_a_frozen_camera_shows_the_last_exposure(mode: CameraMode, behind: int):
    loaded = load_scenario(config_folder() / "scenarios/bridge_hover.toml", camera_mode=mode)
    world = World(loaded, 1, {})
    waiting, images = [], []
    for i in range(8):
        world.camera_frozen = 4 <= i < 7
        for _ in range(8):
            world.advance()
        waiting.append(world.exposure())
        while len(waiting) > behind:
            images.append(waiting.pop(0)())
    images += [draw() for draw in waiting]
    data = [image.data for image in images]
    assert data[4] == data[5] == data[6] == data[3]
    assert len({data[k] for k in (0, 1, 2, 3, 7)}) == 5
    assert [image.stamp_s for image in images] == sorted({image.stamp_s for image in images})
