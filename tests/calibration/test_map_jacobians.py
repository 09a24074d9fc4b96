"""The analytic derivatives of the site map's factors against finite differences."""

import numpy as np
import pytest
from map_flights import ASSUMED, Course, fly

from calibration.map.corners import corner_factor, predict, whitening
from calibration.map.motion import (
    constant_factors,
    jitter_factor,
    plumb_factors,
    rotation_factor,
    slow_factors,
    translation_factor,
)
from calibration.map.preintegration import preintegrate
from calibration.map.unknowns import SWAY
from companion.core.site import Plumb

STEP = 1e-6


@pytest.fixture(scope="module")
def flight():
    return fly(1, Course(spacing_m=3.0, laps=1, stop_s=0.5)).data


@pytest.fixture(scope="module")
def unknowns(flight):
    rng = np.random.default_rng(2)
    return flight.start.moved(0.01 * rng.standard_normal(flight.start.size))


@pytest.fixture(scope="module")
def rate_B(flight):
    return np.random.default_rng(3).normal(0, 0.3, (len(flight.t_s), 3))


def factors(flight, rate_B):
    """name → function of the unknowns that gives factors."""
    zero = 0.01 * np.ones((len(flight.t_s) - 1, 3))
    motion = preintegrate(flight.samples, flight.t_s, zero, zero)
    white = whitening(flight.seen, flight.t_s, ASSUMED.corner)

    def corners(u):
        seen = predict(u, flight.seen, flight.prints, flight.lens, rate_B)
        return [corner_factor(u, flight.seen, seen, white)]

    return {
        "corners": corners,
        "rotation": lambda u: [rotation_factor(u, motion, ASSUMED)],
        "translation": lambda u: [translation_factor(u, motion, ASSUMED)],
        "slow": lambda u: slow_factors(u, flight.t_s, u.sway, SWAY, ASSUMED.sway),
        "jitter": lambda u: [jitter_factor(u, ASSUMED)],
        "constants": lambda u: constant_factors(u, ASSUMED, flight.start.p_W[0], flight.start.R_WB[0], 0.01),
        "plumb": lambda u: plumb_factors(u, [Plumb("y", 0.0035), Plumb("z", 0.002)]),
    }


NAMES = ("corners", "rotation", "translation", "slow", "jitter", "constants", "plumb")


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_are_those_of_finite_differences(flight, unknowns, rate_B, name):
    made = factors(flight, rate_B)[name]
    direction = np.random.default_rng(4).standard_normal(unknowns.size)
    for i, factor in enumerate(made(unknowns)):
        after = made(unknowns.moved(STEP * direction))[i].residual
        before = made(unknowns.moved(-STEP * direction))[i].residual
        numeric = (after - before) / (2 * STEP)
        analytic = np.einsum("nmc,nc->nm", factor.jacobian, direction[factor.columns])
        assert np.abs(analytic - numeric).max() < 1e-4 * np.abs(numeric).max() + 1e-6
