"""Dryden turbulence has the lengths, intensities and spectra of MIL-F-8785C."""

import math

import msgspec
import numpy as np
import pytest
from scipy import signal

from sitl.dryden import FOOT_M, DrydenConfig, DrydenTurbulence, low_altitude
from sitl.wind import CALM, Wind

STEP_S = 0.05
MODEL = DrydenConfig(wind_at_20_ft_m_s=8.0, height_m=10.0, airspeed_m_s=8.0)


def flown(config: DrydenConfig, seconds: float, step_s: float = STEP_S, direction_rad: float = 0.0, seed: int = 1):
    """Turbulence over time, shape (n, 3): along, across, up for direction 0 [m/s]."""
    air = DrydenTurbulence(config, direction_rad, np.random.default_rng(seed))
    return np.array([air.at(i * step_s) for i in range(round(seconds / step_s))])


def published(config: DrydenConfig, omega):
    """Φ_u, Φ_v, Φ_w of the standard over the circular frequency [m²/s² per rad/s], one-sided: the integral is σ²."""
    std, length = low_altitude(config)
    V = config.airspeed_m_s
    spectra = []
    for axis in range(3):
        x = length[axis] * omega / V
        shape = 2.0 / (1.0 + x**2) if axis == 0 else (1.0 + 3.0 * x**2) / (1.0 + x**2) ** 2
        spectra.append(std[axis] ** 2 * length[axis] / (math.pi * V) * shape)
    return spectra


def test_lengths_and_intensities_of_the_low_altitude_model():
    std, length = low_altitude(msgspec.structs.replace(MODEL, height_m=100 * FOOT_M))
    assert std[2] == pytest.approx(0.8)  # a tenth of the wind at 20 ft
    assert length[2] == pytest.approx(100 * FOOT_M)
    # h = 100 ft: 0.177 + 0.0823 = 0.2593; 0.2593^0.4 = 0.5828, 0.2593^1.2 = 0.1980
    assert std[0] == std[1] == pytest.approx(0.8 / 0.5828, rel=1e-3)
    assert length[0] == length[1] == pytest.approx(100 / 0.1980 * FOOT_M, rel=1e-3)


def test_at_1000_ft_all_axes_have_the_same_intensity_and_length():
    std, length = low_altitude(msgspec.structs.replace(MODEL, height_m=1000 * FOOT_M))
    assert max(std) == pytest.approx(min(std), rel=1e-3) and max(length) == pytest.approx(min(length), rel=1e-3)


@pytest.mark.parametrize("step_s", [0.05, 0.2])
def test_variances_are_the_published_ones_at_any_step(step_s):
    std, _ = low_altitude(MODEL)
    variance = np.mean([flown(MODEL, 1500.0, step_s, seed=seed).var(axis=0) for seed in range(2)], axis=0)
    assert variance == pytest.approx(np.square(std), rel=0.15)


def test_the_first_value_has_the_stationary_variance_already():
    std, _ = low_altitude(MODEL)
    first = [DrydenTurbulence(MODEL, 0.0, np.random.default_rng(seed)).at(0.0) for seed in range(3000)]
    assert np.std(first, axis=0) == pytest.approx(std, rel=0.08)


def test_spectra_are_the_published_ones():
    values = np.concatenate([flown(MODEL, 1600.0, seed=seed) for seed in range(2)])
    hertz, density = signal.welch(values, fs=1 / STEP_S, nperseg=2048, axis=0)
    for axis, expected in enumerate(published(MODEL, 2 * math.pi * hertz)):
        for low, high in ((0.05, 0.2), (0.2, 0.6), (0.6, 2.0)):
            band = (hertz >= low) & (hertz < high)
            assert density[band, axis].mean() == pytest.approx(2 * math.pi * expected[band].mean(), rel=0.12)


def test_u_blows_along_the_mean_wind_and_the_other_axes_are_independent_of_it():
    values = flown(msgspec.structs.replace(MODEL, height_m=3.0), 1500.0, direction_rad=0.5 * math.pi, seed=4)
    _, length = low_altitude(msgspec.structs.replace(MODEL, height_m=3.0))
    assert length[0] > 2 * length[2]
    half_a_second = round(0.5 / STEP_S)

    def kept(x) -> float:
        return float(np.corrcoef(x[:-half_a_second], x[half_a_second:])[0, 1])

    assert kept(values[:, 1]) == pytest.approx(math.exp(-0.5 * MODEL.airspeed_m_s / length[0]), abs=0.05)  # u is north
    assert kept(values[:, 0]) < kept(values[:, 1]) - 0.02
    assert abs(np.corrcoef(values.T)[0, 1]) < 0.15 and abs(np.corrcoef(values.T)[1, 2]) < 0.15


def test_turbulence_leaves_the_gusts_of_the_wind_as_they_were():
    gusty = msgspec.structs.replace(CALM, mean_m_s=(3.0, 0.0, 0.0), gust_std_m_s=(1.0, 1.0, 0.5))
    still = msgspec.structs.replace(MODEL, wind_at_20_ft_m_s=0.0)
    plain, with_still = Wind(gusty, 3), Wind(msgspec.structs.replace(gusty, dryden=still), 3)
    for i in range(100):
        assert with_still.sample(0.01 * i, (0, 0, 0)) == pytest.approx(plain.sample(0.01 * i, (0, 0, 0)), abs=1e-12)
    turbulent = Wind(msgspec.structs.replace(gusty, dryden=MODEL), 3)
    assert turbulent.sample(0.0, (0, 0, 0)) != pytest.approx(plain.sample(0.0, (0, 0, 0)), abs=1e-3)
