"""The depth camera's noise: deviation by material and distance, pixels without a value, repeatable by seed."""

import numpy as np
import pytest
from scipy import stats

from companion.core.config import ConfigError, parse
from sitl.devices.depth_camera import DepthCameraConfig, DepthNoise, DepthNoiseField, depth_image, depths_of

SHAPE = (320, 460)
MATERIALS = {"plastic": 0.85, "cement": 0.50, "foam board": 0.55}


def field(seed=1, min_m=0.2, max_m=60.0, **noise):
    return DepthNoiseField(DepthNoise(**noise), min_m, max_m, seed)


def readings(noise, distance_m, m=0.5, image=0):
    depth = np.full(SHAPE, distance_m, np.float32)
    return noise.readings(depth, np.ones(SHAPE, np.uint8), np.array([0.0, m], np.float32), image)


@pytest.mark.parametrize("m", MATERIALS.values(), ids=MATERIALS.keys())
@pytest.mark.parametrize("distance_m", [0.5, 2.0, 5.0])
def test_the_deviation_is_that_of_equation_4(m, distance_m):
    sigma_m = 0.005 * np.exp(m * distance_m)
    values = 1e-3 * readings(field(max_m=60.0), distance_m, m)
    values = values[values > 0]
    assert values.std() == pytest.approx(sigma_m, rel=0.01)  # 3 standard errors of 146,000 pixels are 0.6 %
    assert values.mean() == pytest.approx(distance_m, abs=4 * sigma_m / np.sqrt(values.size))


def test_the_noise_is_normal_and_neither_pixels_nor_images_depend_on_each_other():
    noise = field(without=0.0, base_m=0.1)  # 100 steps of a reading: rounding does not matter
    first, second = ((1e-3 * readings(noise, 10.0, m=0.0, image=i) - 10.0) / 0.1 for i in range(2))
    assert stats.kstest(first.ravel(), "norm").statistic < 1.63 / np.sqrt(first.size)  # 1 %
    limit = 4.0 / np.sqrt(first.size)
    for other in (second, np.roll(first, 1, 1), np.roll(first, 1, 0), np.roll(first, SHAPE[0] // 2, 0)):
        assert abs(np.corrcoef(first.ravel(), other.ravel())[0, 1]) < limit


def test_one_percent_of_the_pixels_has_no_value_wherever_they_are():
    noise = field()
    empty = np.array([readings(noise, 3.0, image=i) == 0 for i in range(40)])
    assert empty.mean() == pytest.approx(0.01, abs=0.0005)
    assert stats.binomtest(int(empty[:, :160].sum()), int(empty.sum()), 0.5).pvalue > 1e-3
    assert field(without=0.0).readings(np.ones(SHAPE), np.ones(SHAPE), np.zeros(2, np.float32), 0).all()


def test_an_image_depends_on_the_seed_and_its_number_alone():
    noise = field()
    images = [readings(noise, 3.0, image=i) for i in (4, 5)]
    assert np.array_equal(readings(field(), 3.0, image=5), images[1])
    assert not np.array_equal(*images)
    assert not np.array_equal(readings(field(seed=2), 3.0, image=5), images[1])


def test_surfaces_outside_of_the_range_have_no_value():
    depth = np.array([0.1, 0.3, 9.9, 10.1, np.inf, np.nan], np.float32).repeat(1000).reshape(60, 100)
    values = field(max_m=10.0, without=0.0).readings(depth, np.ones((60, 100)), np.array([0, 0.1], np.float32), 0)
    assert ((values > 0).reshape(6, -1).all(axis=1) == [False, True, True, False, False, False]).all()
    assert ((values == 0).reshape(6, -1).all(axis=1) == [True, False, False, True, True, True]).all()


@pytest.mark.parametrize(("distance_m", "without"), [(0.2, 0.5), (10.0, 0.5 + 0.345)])
def test_readings_outside_of_the_range_have_no_value(distance_m, without):
    # At 0.2 m half of them are below min_m; at 10 m, with 24.6 m of deviation, half above max_m and a third below min_m.
    values = readings(field(max_m=10.0, without=0.0), distance_m, m=0.85)
    assert (values == 0).mean() == pytest.approx(without, abs=0.05)
    assert values[values > 0].min() >= 200 and values.max() <= 10_000


@pytest.mark.parametrize(("m", "distance_m"), [(1.5, 59.0), (1.5, 60.0), (5.0, 18.0), (5.0, 60.0)])
def test_the_largest_exponents_leave_no_reading_in_the_range(m, distance_m):
    assert not readings(field(without=0.0), distance_m, m).any()


def test_an_odd_number_of_pixels_is_complete():
    values = field(without=0.0).readings(np.full((3, 5), 4.0), np.ones((3, 5)), np.array([0, 0.5], np.float32), 0)
    assert (np.abs(values - 4000.0) < 250).all()


def test_a_message_gives_the_depths_back():
    values = np.array([[0, 1500, 65535]], np.uint16)
    assert depths_of(depth_image(1.0, values)).ravel().tolist() == pytest.approx([np.nan, 1.5, 65.535], nan_ok=True)


def test_arrays_that_do_not_belong_together_are_refused():
    with pytest.raises(ValueError, match="shape"):
        field().readings(np.ones((3, 4)), np.ones((3, 5)), np.zeros(2, np.float32), 0)


CAMERA = {"rate_hz": 30, "fx": 230, "fy": 230, "cx": 230, "cy": 160, "mount": {"p_B": [0, 0, 0], "q_B": [1, 0, 0, 0]}}


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"min_m": 4.0, "max_m": 3.0}, "min_m"),
        ({"rate_hz": 0}, "rate_hz"),
        ({"noise": {"without": 1.5}}, "without"),
        ({"width": 100000}, "width"),
        ({"colour": 1}, "colour"),
        ({"mount": {"p_B": [0, 0, 0], "q_B": [1, 1, 0, 0]}}, "q_B"),
    ],
)
def test_a_wrong_configuration_is_refused_with_its_key(change, names):
    with pytest.raises(ConfigError, match=names):
        parse(CAMERA | change, DepthCameraConfig, "scenario.toml")
