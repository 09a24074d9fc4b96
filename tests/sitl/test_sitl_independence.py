"""Simulator and filter are independent: no noise number of the filter is one that generates the world.

A number of the vehicle file *equals* a generator's when the two differ by less than `EQUAL`. In the kind world each
quantity is one number, and several do equal the filter's: `EQUAL_IN_KIND` lists them, so that another one cannot come and one that
goes must be struck off. In the unkind world each quantity is drawn: there the filter's number may equal only few of the draws.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pytest

from companion.core.config import load
from companion.core.vehicle import Vehicle
from sitl.scenario import LoadedScenario, Scenario, load_scenario
from sitl.sensors import PAPER
from sitl.unkind import RANGES_FILE, Rows, apply, draw, load_ranges

ROOT = Path(__file__).parents[2]
VEHICLES = sorted((ROOT / "config/vehicles").glob("*.toml"))
SCENARIOS = sorted((ROOT / "config/scenarios").glob("*.toml"))
RANGES = load_ranges(ROOT / "config" / RANGES_FILE)
EQUAL = 0.05
FEW = 0.2  # share of the draws that may equal a filter's number
DRAWS = 400


class Pair(NamedTuple):
    """A number of the filter and the same quantity of the generator, in a kind scenario and in one draw."""

    filter: Callable[[Vehicle], float]
    kind: Callable[[Scenario], float]
    unkind: Callable[[Vehicle, Rows], float]


PAIRS = {
    "mount sway": Pair(
        lambda v: v.estimator.mount.std_rad,
        lambda s: s.camera.sway_std_rad,
        lambda v, rows: rows.one("mount_sway_std_rad"),
    ),
    "GNSS walk": Pair(
        lambda v: v.estimator.process.gnss_bias_m_sqrt_s,
        lambda s: math.sqrt(s.sensors.gnss.walk_variance_m2 * s.sensors.gnss.rate_hz),
        lambda v, rows: math.sqrt(PAPER.gnss.walk_variance_m2 * PAPER.gnss.rate_hz * rows.one("gnss_walk_factor")),
    ),
    "tilt": Pair(
        lambda v: v.estimator.attitude_bias.tilt_std_rad,
        lambda s: s.sensors.attitude.tilt_std_rad,
        lambda v, rows: rows.one("tilt_std_rad"),
    ),
    "tilt time": Pair(
        lambda v: v.estimator.attitude_bias.tilt_time_s,
        lambda s: s.sensors.attitude.tilt_time_s,
        lambda v, rows: rows.one("tilt_time_s"),
    ),
    "heading": Pair(
        lambda v: v.estimator.attitude_bias.heading_std_rad,
        lambda s: math.hypot(s.sensors.attitude.heading_offset_std_rad, s.sensors.attitude.heading_std_rad),
        lambda v, rows: math.hypot(rows.one("heading_offset_rad"), rows.one("heading_walk_std_rad")),
    ),
    "corner noise": Pair(
        lambda v: v.tracking.corner_noise_px,
        lambda s: s.camera.corner_noise_px,
        lambda v, rows: math.hypot(rows.one("corner_noise_px"), rows.one("corner_drift_px")),
    ),
    "camera latency": Pair(
        lambda v: v.latency.camera_s,
        lambda s: s.camera.latency_s,
        lambda v, rows: v.latency.camera_s + rows.one("latency_error_s"),
    ),
}

# The pairs that are equal in the scenario files, each with the vehicle file that it names. The kind world is friendly;
# this list may become shorter, not longer.
EVERYWHERE = {"camera latency", "corner noise"}
WITH_PAPER_1S_GNSS = EVERYWHERE | {"GNSS walk"}
EQUAL_IN_KIND = {
    **{path.stem: EVERYWHERE for path in SCENARIOS},
    **dict.fromkeys(
        ("bridge_field", "bridge_hover", "bridge_no_satellites", "figure_eight_pier", "hover_marker"),
        WITH_PAPER_1S_GNSS,
    ),
    "hover_wind": WITH_PAPER_1S_GNSS,
}


def equal(a: float, b: float) -> bool:
    return abs(a - b) < EQUAL * max(abs(a), abs(b))


def equal_pairs(loaded: LoadedScenario) -> set[str]:
    return {name for name, pair in PAIRS.items() if equal(pair.filter(loaded.vehicle), pair.kind(loaded.scenario))}


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_filters_numbers_that_equal_a_kind_generators_are_on_record(path):
    assert equal_pairs(load_scenario(path)) == EQUAL_IN_KIND[path.stem]


@pytest.mark.parametrize("path", VEHICLES, ids=lambda path: path.stem)
def test_few_unkind_draws_equal_the_filters_number(path):
    vehicle = load(path, Vehicle)
    draws = [Rows(RANGES, seed) for seed in range(DRAWS)]
    share = {
        name: float(np.mean([equal(pair.filter(vehicle), pair.unkind(vehicle, rows)) for rows in draws]))
        for name, pair in PAIRS.items()
    }
    assert {name: each for name, each in share.items() if each > FEW} == {}


def test_a_range_that_shrinks_around_the_filters_number_is_found():
    vehicle = load(ROOT / "config/vehicles/f550.toml", Vehicle)
    narrow = msgspec.structs.replace(RANGES, latency_error_s=(-0.004, 0.004), corner_noise_px=(0.24, 0.3))
    pair = PAIRS["camera latency"]
    assert np.mean([equal(pair.filter(vehicle), pair.unkind(vehicle, Rows(narrow, s))) for s in range(50)]) > FEW


def test_the_drawn_world_does_not_depend_on_the_filters_numbers():
    """Another estimator, tracker and controller: the same world."""
    replace = msgspec.structs.replace
    loaded = load_scenario(ROOT / "config/scenarios/hover_wind.toml")
    vehicle, e = loaded.vehicle, loaded.vehicle.estimator
    estimator = replace(
        e,
        mount=replace(e.mount, std_rad=0.05),
        process=replace(e.process, gnss_bias_m_sqrt_s=0.7),
        attitude_bias=replace(e.attitude_bias, tilt_std_rad=0.03, heading_std_rad=0.2, tilt_time_s=5.0),
        velocity_bias=replace(e.velocity_bias, std_m_s=0.4, time_constant_s=2.0),
    )
    other = replace(vehicle, estimator=estimator, tracking=replace(vehicle.tracking, corner_noise_px=2.0))
    worlds = [draw(RANGES, replace(loaded, vehicle=each), 5) for each in (vehicle, other)]
    assert worlds[0] == worlds[1]
    assert apply(loaded, worlds[0]).scenario == apply(replace(loaded, vehicle=other), worlds[0]).scenario
