"""Wind has the configured statistics and timing."""

import math

import msgspec
import numpy as np
import pytest

from companion.core.config import ConfigError, parse
from sitl.wind import CALM, ForceStep, Jet, Wind, WindConfig, WindShear, WindStep

ORIGIN = (0.0, 0.0, 0.0)
JET = Jet(
    start_s=0.0,
    end_s=1e6,
    nozzle_m=(1.0, 2.0, 3.0),
    direction=(0.0, -0.5, 0.0),
    speed_at_1m_m_s=12.0,
    decay_exponent=1.0,
    core_m=0.3,
    width_at_1m_m=0.1,
    turbulence=0.0,
    turbulence_time_s=0.2,
)


def calm_but(**changes):
    return msgspec.structs.replace(CALM, **changes)


def series(config, seed, count, step_s=0.02):
    wind = Wind(config, seed)
    return np.array([wind.sample(i * step_s, ORIGIN) for i in range(count)])


GUSTY = calm_but(mean_m_s=(5.0, -2.0, 0.0), gust_std_m_s=(1.5, 1.0, 0.5), gust_time_s=(2.0, 1.0, 0.5))


def test_gusts_have_the_configured_mean_and_variance():
    wind = series(GUSTY, 1, 100_000)  # 2000 s: about 1000 independent samples on the slowest axis
    np.testing.assert_allclose(wind.mean(axis=0), [5.0, -2.0, 0.0], atol=0.2)
    np.testing.assert_allclose(wind.std(axis=0), [1.5, 1.0, 0.5], rtol=0.06)


def test_gusts_decorrelate_with_their_time_constant():
    gust = series(GUSTY, 2, 100_000) - [5.0, -2.0, 0.0]
    for axis, time_s in enumerate(GUSTY.gust_time_s):
        lag = round(time_s / 0.02)
        correlation = np.mean(gust[:-lag, axis] * gust[lag:, axis]) / np.mean(gust[:, axis] ** 2)
        assert correlation == pytest.approx(math.exp(-1), abs=0.08)


def test_gust_spectrum_is_that_of_a_first_order_process():
    gust = series(GUSTY, 3, 131_072)[:, 0] - 5.0
    segments = gust.reshape(-1, 4096) * np.hanning(4096)
    density = (np.abs(np.fft.rfft(segments, axis=1)) ** 2).mean(axis=0) * 2 * 0.02 / (np.hanning(4096) ** 2).sum()
    frequency_hz = np.fft.rfftfreq(4096, 0.02)
    for f in (0.05, 0.2, 1.0, 4.0):
        band = (frequency_hz > 0.8 * f) & (frequency_hz < 1.25 * f)
        expected = 4 * 1.5**2 * 2.0 / (1 + (2 * math.pi * frequency_hz[band] * 2.0) ** 2)
        assert density[band].mean() == pytest.approx(expected.mean(), rel=0.3)


def test_gust_statistics_do_not_depend_on_the_sampling_step():
    for step_s in (0.004, 0.1, 1.0):
        gust = series(calm_but(gust_std_m_s=(1.0, 1.0, 1.0), gust_time_s=(0.05,) * 3), 4, 20_000, step_s)
        assert gust.std() == pytest.approx(1.0, rel=0.06)


def test_gusts_start_in_their_stationary_state():
    first = np.array([Wind(GUSTY, seed).sample(0.0, ORIGIN) for seed in range(2000)])
    np.testing.assert_allclose(first.std(axis=0), [1.5, 1.0, 0.5], rtol=0.06)


def test_same_seed_same_wind_other_seed_other_wind():
    np.testing.assert_array_equal(series(GUSTY, 7, 500), series(GUSTY, 7, 500))
    assert not np.array_equal(series(GUSTY, 7, 500), series(GUSTY, 8, 500))


def test_a_second_sample_of_the_same_or_an_earlier_time_does_not_change_the_gust():
    wind = Wind(GUSTY, 1)
    wind.sample(0.0, ORIGIN)
    now = wind.sample(1.0, ORIGIN)
    assert wind.sample(1.0, ORIGIN) == now
    assert wind.sample(0.5, ORIGIN) == now


def test_steps_begin_and_end_at_their_times_along_their_ramps():
    config = calm_but(
        mean_m_s=(1.0, 0.0, 0.0),
        steps=[
            WindStep(start_s=10, end_s=20, ramp_s=0, wind_m_s=(0.0, 4.0, 0.0)),
            WindStep(start_s=30, end_s=40, ramp_s=2, wind_m_s=(0.0, 0.0, 6.0)),
        ],
        force_steps=[ForceStep(start_s=5, end_s=6, ramp_s=0, acceleration_m_s2=(0.0, -1.8, 0.0))],
    )
    wind = Wind(config, 1)
    for t_s, expected in [
        (9.99, (1, 0, 0)),
        (10.0, (1, 4, 0)),
        (19.99, (1, 4, 0)),
        (20.0, (1, 0, 0)),
        (31.0, (1, 0, 3)),
        (35.0, (1, 0, 6)),
        (40.5, (1, 0, 4.5)),
        (42.0, (1, 0, 0)),
    ]:
        assert wind.sample(t_s, ORIGIN) == pytest.approx(expected)
    assert wind.force(4.9, ORIGIN) == (0, 0, 0)
    assert wind.force(5.5, ORIGIN) == pytest.approx((0, -1.8, 0))
    assert wind.force(6.0, ORIGIN) == (0, 0, 0)


SHEAR = WindShear(roughness_m=0.03, reference_height_m=10.0)


@pytest.mark.parametrize(
    ("height_m", "share"),
    # ln(h / 0.03) / ln(10 / 0.03), by hand
    [(10.0, 1.0), (30.0, 1.0), (4.0, 0.8423), (1.0, 0.6036), (0.18, 0.3084), (0.03, 0.0), (0.0, 0.0), (-2.0, 0.0)],
)
def test_the_mean_falls_towards_the_ground_like_a_logarithm(height_m, share):
    wind = Wind(calm_but(mean_m_s=(5.0, -2.0, 0.0), shear=SHEAR), 1)
    assert wind.sample(0.0, (3.0, 4.0, height_m)) == pytest.approx((5.0 * share, -2.0 * share, 0.0), abs=1e-3)


def test_shear_leaves_gusts_as_they_are():
    sheared, level = (Wind(msgspec.structs.replace(GUSTY, shear=shear), 3) for shear in (SHEAR, None))
    for i in range(50):
        low, high = sheared.sample(0.02 * i, (0.0, 0.0, 0.0)), level.sample(0.02 * i, (0.0, 0.0, 0.0))
        assert np.subtract(high, low) == pytest.approx(GUSTY.mean_m_s)


def test_a_roughness_as_high_as_the_reference_is_refused():
    with pytest.raises(ValueError, match=r"reference_height_m = 2: must be at least 10 times roughness_m = 0\.5"):
        WindShear(roughness_m=0.5, reference_height_m=2.0)


def test_a_jet_decays_along_and_across_and_blows_only_forward():
    wind = Wind(calm_but(jets=[JET]), 1)
    assert wind.sample(0.0, (1.0, 1.0, 3.0)) == pytest.approx((0, -12, 0))
    assert wind.sample(0.0, (1.0, -2.0, 3.0)) == pytest.approx((0, -3, 0))
    assert wind.sample(0.0, (1.2, 0.0, 3.0)) == pytest.approx((0, -6 * math.exp(-0.5), 0))  # one width off the axis
    assert wind.sample(0.0, (1.0, 1.9, 3.0)) == pytest.approx((0, -40, 0))  # core: as at 0.3 m
    assert wind.sample(0.0, (1.0, 2.1, 3.0)) == (0, 0, 0)


def test_a_jet_blows_only_in_its_time():
    wind = Wind(calm_but(jets=[msgspec.structs.replace(JET, start_s=2.0, end_s=3.0)]), 1)
    assert [wind.sample(t, (1.0, 1.0, 3.0))[1] for t in (1.9, 2.0, 2.9, 3.0)] == pytest.approx([0, -12, -12, 0])


def test_a_turbulent_jet_varies_by_its_fraction():
    wind = Wind(calm_but(jets=[msgspec.structs.replace(JET, turbulence=0.2)]), 1)
    speed = np.array([wind.sample(i * 0.1, (1.0, 1.0, 3.0))[1] for i in range(20_000)])
    assert speed.mean() == pytest.approx(-12, rel=0.02)
    assert speed.std() == pytest.approx(2.4, rel=0.05)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (calm_but(jets=[msgspec.structs.replace(JET, direction=(0.0, 0.0, 0.0))]), "jets.0..direction"),
        (calm_but(jets=[msgspec.structs.replace(JET, start_s=5.0, end_s=1.0)]), "jets.0..end_s"),
        (calm_but(steps=[WindStep(start_s=2, end_s=1, ramp_s=0, wind_m_s=(1.0, 0.0, 0.0))]), "steps.0..end_s"),
    ],
)
def test_impossible_wind_stops_the_start(config, message):
    with pytest.raises(ConfigError, match=message):
        Wind(config, 1)


def test_wind_tables_are_strict():
    tables = msgspec.to_builtins(calm_but(jets=[JET]))
    assert parse(tables, WindConfig, "scenario").jets == [JET]
    tables["jets"][0]["speed_at_1m_m_s"] = 900.0
    with pytest.raises(ConfigError, match=r"jets\[0\]\.speed_at_1m_m_s = 900.0"):
        parse(tables, WindConfig, "scenario")
    del tables["gust_time_s"]
    with pytest.raises(ConfigError, match="gust_time_s: missing key"):
        parse({**tables, "jets": []}, WindConfig, "scenario")
