"""The analytic derivatives of the site map's factors against finite differences."""

from dataclasses import replace

import numpy as np
import pytest
from map_flights import ASSUMED, Course, PayloadTruth, fly, photographed
from payload_cameras import GIMBAL

from calibration.map.corners import corner_factor, predict, whitening
from calibration.map.exposures import carried
from calibration.map.motion import (
    constant_factors,
    jitter_factor,
    plumb_factors,
    rotation_factor,
    slow_factors,
    translation_factor,
)
from calibration.map.normal_equations import gradient
from calibration.map.photographs import with_photographs
from calibration.map.pictures import cameras, fitted, own_root, payload_prior, picture_factors
from calibration.map.pictures import predict as predict_pictures
from calibration.map.preintegration import preintegrate
from calibration.map.rotations import log
from calibration.map.surveyed import survey_factors
from calibration.map.unknowns import SWAY
from companion.core.site import Plumb, Survey

STEP = 1e-6
SURVEYS = {
    "bundle_0": Survey(p_S=(1.0, 2.0, 3.0), rpy_S_rad=(0.1, 0.2, 0.3), std_m=0.006, std_rad=0.0035),
    "bundle_1": Survey(p_S=(1.0, 5.0, 3.0), rpy_S_rad=(0.1, 0.3, 0.3), std_m=0.004, std_rad=0.002),
}


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
        "surveys": lambda u: survey_factors(u, flight.bundles, SURVEYS),
        "plumb": lambda u: plumb_factors(u, [Plumb("y", 0.0035), Plumb("z", 0.002)]),
    }


NAMES = ("corners", "rotation", "translation", "slow", "jitter", "constants", "plumb", "surveys")


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


class Pictures:
    """Photographs of the flight, with a camera that has errors, and unknowns near the truth."""

    def __init__(self, has_gimbal):
        rng = np.random.default_rng(5)
        flight = fly(1, Course(spacing_m=3.0, laps=1, stop_s=0.5))
        taken = photographed(flight, GIMBAL, 6, PayloadTruth.drawn(rng))
        data = with_photographs(flight.data, taken.captures, taken.states, GIMBAL, taken.centres)
        self.photographs = replace(data.photographs, has_gimbal=has_gimbal)
        if not has_gimbal:
            R_WB = data.start.R_WB[np.arange(8, len(data.t_s) - 8, 15)]
            self.photographs = replace(self.photographs, R_HC=R_WB.transpose(0, 2, 1) @ taken.R_WC)
        self.u = data.start.moved(0.01 * rng.standard_normal(data.start.size))
        # between images, before and behind them
        self.at = carried(data.samples, data.t_s + 0.03, self.u, self.photographs.stamp_s)
        rates = rng.normal(0, 0.3, (len(self.photographs), 3))
        self.root = own_root(self.u, self.photographs, self.at, rates, ASSUMED)
        self.own = 0.5 * rng.standard_normal((len(self.photographs), 6))
        self.direction = rng.standard_normal(self.u.size)
        self.own_direction = rng.standard_normal(self.own.shape)

    def predicted(self, step):
        own = self.own + step * self.own_direction
        u = self.u.moved(step * self.direction)
        return predict_pictures(u, self.photographs, self.at, self.root, own)


@pytest.fixture(scope="module", params=[True, False], ids=["gimbal", "fixed"])
def pictures(request):
    return Pictures(request.param)


def test_derivatives_of_marker_centres_are_those_of_finite_differences(pictures):
    p = pictures
    found = p.predicted(0.0)
    numeric = (p.predicted(STEP).residual - p.predicted(-STEP).residual) / (2 * STEP)
    analytic = np.einsum("nmc,nc->nm", found.by_own, p.own_direction)
    u = p.u
    bundles = np.concatenate([np.arange(u.first_of_bundle(b), u.first_of_bundle(b) + 7) for b in range(u.bundles)])
    analytic += found.by_bundles @ p.direction[bundles]
    analytic += found.by_payload @ p.direction[u.first_of_payload : u.first_of_payload + 10]
    image = 19 * p.at.image[:, None] + np.arange(9)
    analytic += np.einsum("nmc,nc->nm", found.by_image, p.direction[image])
    assert np.abs(numeric).max() > 100.0
    assert np.abs(analytic - numeric).max() < 1e-4 * np.abs(numeric).max() + 1e-6


def test_the_gradient_is_that_of_the_cost_with_the_own_errors_at_their_best(pictures):
    p = pictures

    def factors(u):
        found = picture_factors(u, p.at, fitted(u, p.photographs, p.at, p.root, 5.0, False))
        return [found.centres, found.own, payload_prior(u, p.photographs)]

    def cost(step):
        return sum(factor.cost for factor in factors(p.u.moved(step * p.direction)))

    numeric = (cost(STEP) - cost(-STEP)) / (2 * STEP)
    analytic = sum(gradient(f, p.u.size) for f in factors(p.u)) @ p.direction
    assert analytic == pytest.approx(numeric, rel=1e-4)


def test_derivatives_of_the_camera_are_those_of_finite_differences(pictures):
    p = pictures

    def camera(step):
        return cameras(p.u.moved(step * p.direction), p.photographs, p.at, p.root, p.own + step * p.own_direction)

    found, after, before = camera(0.0), camera(STEP), camera(-STEP)
    step = np.concatenate(
        [
            p.direction[19 * p.at.image[:, None] + np.arange(9)],
            np.tile(p.direction[p.u.first_of_payload : p.u.first_of_payload + 6], (len(p.own), 1)),
            p.own_direction,
        ],
        axis=1,
    )
    moved = np.einsum("nic,nc->ni", found.moved_by, step)
    turned = np.einsum("nic,nc->ni", found.turned_by, step)
    np.testing.assert_allclose(moved, (after.p_WC - before.p_WC) / (2 * STEP), atol=1e-5)
    np.testing.assert_allclose(turned, log(before.R_WC.transpose(0, 2, 1) @ after.R_WC) / (2 * STEP), atol=1e-5)
