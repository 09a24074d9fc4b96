"""A bundle of which an axis is vertical: the tilt of bundle and aircraft become known, and a wrong statement is ignored."""

import numpy as np
import pytest
from eskf_truth import FACING, HoverSimulation

from companion.core.clock import SimulatedStopwatch
from companion.core.config import ConfigError
from companion.core.frames import quat_exp, quat_multiply, rotation_matrix
from companion.core.site import Plumb, load_site
from companion.estimation.estimator import EstimatorNode
from companion.estimation.layout import ErrorIndex

TILT_RAD = 0.015  # of the flight controller's attitude, 0.9°
STATED = {"pier": Plumb("y", 0.005)}


def flown(vehicle, seed, plumb, hangs=(0.0, 0.0, 0.0)):
    """(state, status) after a hover; hangs: rotation vector of the bundle in its own frame, against plumb."""
    flight = HoverSimulation(vehicle, seed=seed, imu=True)
    flight.attitude_bias = TILT_RAD * np.array([np.cos(seed), np.sin(seed), 0.0])
    flight.marker_turn = quat_exp(np.array(hangs))
    state = flight.run(EstimatorNode(vehicle, None, SimulatedStopwatch(), plumb=plumb), 12.0)
    return state, flight.statuses[-1]


def tilt_of_bundle(state, hangs=(0.0, 0.0, 0.0)):
    """Error of the vertical in the bundle's frame, about x and z [rad]."""
    up_M = rotation_matrix(state.q_WM).T @ (0.0, 0.0, 1.0)
    true_M = rotation_matrix(quat_multiply(FACING, quat_exp(np.array(hangs)))).T @ (0.0, 0.0, 1.0)
    return (up_M - true_M)[[0, 2]]


def test_the_tilt_of_the_bundle_is_known_better_and_as_well_as_the_filter_says(vehicle):
    square, without, nees = [], [], []
    for seed in range(8):
        hangs = 0.005 * np.random.default_rng(seed).normal(size=3)  # as exactly as stated
        state, status = flown(vehicle, seed, STATED, hangs)
        error = tilt_of_bundle(state, hangs)
        square.append(error @ error)
        variance = np.array(state.covariance_diag)[ErrorIndex.MARKER_ATTITUDE]
        nees.append(error @ (error / variance[[2, 0]]) / 2)
        without.append(np.sum(tilt_of_bundle(flown(vehicle, seed, None, hangs)[0], hangs) ** 2))
        assert status.rejected["plumb"] == 0 and status.note == ""
    assert np.mean(square) < 0.7**2 * np.mean(without)
    assert 0.3 < np.mean(nees) < 2.0


def test_the_filter_never_becomes_more_certain_than_the_statement(vehicle):
    flight = HoverSimulation(vehicle, seed=1, imu=True)
    flight.run(EstimatorNode(vehicle, None, SimulatedStopwatch(), plumb=STATED), 30.0)
    stds = np.sqrt([np.array(s.covariance_diag)[ErrorIndex.MARKER_ATTITUDE] for s in flight.states[200:]])[:, [0, 2]]
    assert stds.min() > 0.95 * STATED["pier"].std_rad and stds.max() < 1.3 * STATED["pier"].std_rad


def test_a_statement_that_is_wrong_is_ignored_and_named(vehicle):
    hangs = (0.15, 0.0, 0.0)  # leans forward by 9°
    state, status = flown(vehicle, 2, STATED, hangs)
    assert status.rejected["plumb"] == 1
    assert status.note == "pier is not plumb as in the marker file, which is ignored"
    assert np.abs(tilt_of_bundle(state, hangs)).max() < 0.05


OVER = (0.0, 0.0, np.pi)  # the print was hung the wrong way up


@pytest.mark.parametrize("delays", [{}, {"attitude": 0.15}], ids=["", "attitude_late"])
def test_a_bundle_that_hangs_upside_down_is_named_and_not_used(vehicle, delays):
    """Its axis is as vertical as one that points up, and every position in its frame has the wrong sign."""
    flight = HoverSimulation(vehicle, seed=2, imu=True, delays=delays)
    flight.marker_turn = quat_exp(np.array(OVER))
    node = EstimatorNode(vehicle, None, SimulatedStopwatch(), plumb=STATED)
    flight.run(node, 4.0)
    status, established = flight.statuses[-1], flight.states[200:]
    assert status.note == "pier hangs upside down: its y axis points down; its observations are not used"
    assert status.upside_down == ("pier",) and status.rejected["marker_upside_down"] > 80
    assert {state.bundle for state in established} == {""}
    flight.marker_turn = None  # the crew has turned the print
    state = flight.run(node, 3.0)
    if not delays:  # with a late attitude no image shows that it hangs rightly now
        assert state.bundle == "pier" and flight.statuses[-1].upside_down == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{ axis = "x", std_rad = 0.01 }', r"plumb.axis = 'x'"),
        ('{ axis = "y", std_rad = 0.0 }', r"plumb.std_rad = 0"),
        ('{ axis = "y" }', r"plumb.std_rad: missing key"),
    ],
)
def test_a_statement_that_cannot_be_is_refused(tmp_path, text, expected):
    file = tmp_path / "site.toml"
    file.write_text(
        f'[[bundle]]\nname = "pier"\nplumb = {text}\nmarkers = [{{ family = "aruco_6x6_250", id = 1, size_m = 0.2 }}]\n'
    )
    with pytest.raises(ConfigError, match=expected):
        load_site(file)
