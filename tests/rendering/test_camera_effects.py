"""Rolling shutter, glare and auto-exposure as functions of a drawn picture."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from companion.core.config import ConfigError, parse
from companion.core.frames import quat_exp, rotation_matrix
from sitl.camera import SceneCamera
from sitl.camera_effects import (
    AutoExposure,
    Effects,
    EffectsConfig,
    Frame,
    Glare,
    RollingShutter,
    shutter_maps,
    spread,
)
from sitl.scenario import load_scenario
from sitl.views import Pinhole

ROOT = Path(__file__).parents[2]

VIEW = Pinhole(320, 240, 200.0, 210.0, 158.3, 121.7)
STILL = np.zeros(3)
rng = np.random.default_rng(3)


def frame(grey=None, sky=None):
    grey = np.full((240, 320), 100, np.uint8) if grey is None else grey
    return Frame(grey, np.zeros(grey.shape, bool) if sky is None else sky)


def test_without_options_a_picture_stays_as_it_was_drawn():
    drawn = frame(rng.integers(0, 255, (240, 320)).astype(np.uint8))
    assert Effects(EffectsConfig(), VIEW).apply(0.0, [drawn], (3.0, 0.0, 0.0), (1.0, 0.0, 0.0))[0] is drawn.grey


def test_the_shutter_looks_where_a_turning_and_moving_camera_looked_in_each_row():
    omega, v, distance_m, readout_s = np.array([0.8, -1.5, 2.0]), np.array([2.0, -1.0, 0.5]), 5.0, 0.03
    x, y = shutter_maps(VIEW, readout_s, omega, v, distance_m)
    for row, column in ((0, 0), (0, 319), (60, 200), (120, 30), (239, 0), (239, 319)):
        tau = (row / 239 - 0.5) * readout_s
        # a point at this distance along the axis, seen at time tau, in the camera of time 0
        ray = np.array([(column - VIEW.cx) / VIEW.fx, (row - VIEW.cy) / VIEW.fy, 1.0])
        point = rotation_matrix(quat_exp(omega * tau)) @ (ray * distance_m) + v * tau
        expected = point[:2] / point[2] * (VIEW.fx, VIEW.fy) + (VIEW.cx, VIEW.cy)
        assert (x[row, column], y[row, column]) == pytest.approx(expected, abs=0.05)


def test_a_yaw_leans_a_vertical_edge_by_the_readout_time():
    grey = np.full((240, 320), 40, np.uint8)
    grey[:, 160:] = 200
    effects = Effects(EffectsConfig(rolling_shutter=RollingShutter(readout_s=0.02)), VIEW)
    image = effects.apply(0.0, [frame(grey)], (0.0, 1.0, 0.0), STILL)[0]
    first, last = (np.argmax(image[row] > 120) for row in (0, 239))
    assert last - first == pytest.approx(-1.0 * 0.02 * VIEW.fx, abs=1.0)
    assert np.array_equal(effects.apply(0.1, [frame(grey)], STILL, STILL)[0], grey)
    assert shutter_maps(VIEW, 0.02, STILL, (1.0, 0.0, 0.0), np.inf) is None


def test_glare_moves_light_and_makes_none():
    light = np.full((240, 320), 20, np.float32)
    light[:80] = 2000.0
    veiled = spread(light, 0.1, 0.15)
    assert veiled.mean() == pytest.approx(light.mean(), rel=0.01)
    assert veiled[100, 160] > veiled[200, 160] > 20.0
    assert np.array_equal(spread(light, 0.0, 0.15), light)


def test_the_sky_beside_a_deck_takes_contrast_from_its_dark_underside():
    grey = np.full((240, 320), 30, np.uint8)
    grey[::2] = 60  # texture of the underside
    sky = np.zeros((240, 320), bool)
    sky[200:] = True

    def contrast(image):
        row = image[160:162, 100:200].astype(float).mean(axis=1)
        return abs(row[0] - row[1]) / row.mean()

    effects = Effects(EffectsConfig(glare=Glare(share=0.1, sky=20.0)), VIEW)
    veiled = effects.apply(0.0, [frame(np.where(sky, 205, grey).astype(np.uint8), sky)], STILL, STILL)[0]
    assert contrast(veiled) < 0.7 * contrast(grey)
    assert veiled[230].min() == 255


def exposed(level, count, **keys):
    effects = Effects(EffectsConfig(auto_exposure=AutoExposure(**keys)), VIEW)
    image = np.full((240, 320), level, np.uint8)
    return [effects.apply(0.05 * i, [frame(image)], STILL, STILL)[0].mean() for i in range(count)], effects


def test_the_exposure_reaches_its_target_with_its_time_constant():
    means, effects = exposed(40, 60, target=110.0, time_s=0.3)
    assert means[0] == 40 and means[-1] == pytest.approx(110.0, abs=1.0)
    after_s = 0.05 * next(i for i, mean in enumerate(means) if np.log(110 / mean) < np.log(110 / 40) / np.e)
    assert after_s == pytest.approx(0.3, abs=0.06)
    assert effects.gain == pytest.approx(110 / 40, rel=0.01)


def test_the_gain_has_limits_and_both_frames_of_a_pair_have_the_same():
    means, effects = exposed(2, 200, gain_max=3.0)
    assert effects.gain == 3.0 and means[-1] == 6.0
    left, right = effects.apply(100.0, [frame(), frame(np.full((240, 320), 20, np.uint8))], STILL, STILL)
    assert (left.max(), right.max()) == (255, 60)


@pytest.mark.parametrize(
    ("table", "names"),
    [
        ({"glare": {"share": 0.7}}, "glare.share"),
        ({"auto_exposure": {"gain_max": 0.5}}, "auto_exposure.gain_max"),
        ({"rolling_shutter": {}}, "readout_s"),
        ({"shutter": {}}, "shutter"),
    ],
)
def test_a_wrong_option_is_refused_with_its_key(table, names):
    with pytest.raises(ConfigError, match=names):
        parse(table, EffectsConfig, "scenario.toml")


def test_the_trackers_camera_has_the_same_options():
    loaded = load_scenario(ROOT / "config/scenarios/bridge_hover.toml")
    scenario = loaded.scenario

    def image(omega_B=(0.0, 0.0, 0.0), light=1.0, times=(0.0,), **options):
        scene = msgspec.structs.replace(scenario.scene, light=light)
        config = msgspec.structs.replace(scenario.camera, noise_std=0.0, effects=EffectsConfig(**options))
        camera = SceneCamera(config, scene, loaded.site, 1)
        for t_s in times:
            drawn = camera.render(t_s, (6.0, 0.0, 4.0), (1.0, 0.0, 0.0, 0.0), STILL, omega_B)
        return np.frombuffer(drawn.data, np.uint8).reshape(480, 640).astype(float)

    plain = image()
    assert np.array_equal(image(), plain)
    assert (
        np.abs(image(light=0.3, times=0.1 * np.arange(40), auto_exposure=AutoExposure(target=110.0)).mean() - 110) < 20
    )
    assert image(light=0.3).mean() < 0.4 * plain.mean()
    assert image(glare=Glare(share=0.05)).mean() > plain.mean()
    turned = image(omega_B=(0.0, 0.0, 0.6), rolling_shutter=RollingShutter(readout_s=0.03))
    still = image(omega_B=(0.0, 0.0, 0.6))
    assert np.abs(turned[235:246] - still[235:246]).mean() < 1.0 < np.abs(turned[:100] - still[:100]).mean()
