"""Surveys as measurements in the adjustment of a flight."""

from dataclasses import replace

import numpy as np
import pytest
from map_flights import Course, fly
from scipy.spatial.transform import Rotation

from calibration.map.adjust import adjust
from calibration.map.relative import relative
from companion.core.frames import quat_from_matrix, rpy_from_quat
from companion.core.site import Survey

THREE = Course(spacing_m=3.0, standoff_m=2.5, sway_m=1.0, laps=1, stop_s=0.5, bundles=3)
STD_M, STD_RAD = 0.003, 0.002


@pytest.fixture(scope="module")
def flight():
    return fly(11, THREE)


def surveys(flight, moved_m=0.0):
    """Exact surveys but for their noise, in a frame of their own; moved_m: the last bundle was moved since."""
    rng, u = np.random.default_rng(1), flight.true
    R_SW, p_S = Rotation.from_euler("Z", 1.0).as_matrix(), np.array([10.0, 20.0, 30.0])
    found = {}
    for b, name in enumerate(flight.data.bundles):
        R = R_SW @ u.R_WM[b] @ Rotation.from_rotvec(STD_RAD * rng.standard_normal(3)).as_matrix()
        p = R_SW @ (u.p_WM[b] + [0.0, moved_m * (b == 2), 0.0]) + p_S + STD_M * rng.standard_normal(3)
        rpy = tuple(float(x) for x in rpy_from_quat(quat_from_matrix(R)))
        found[name] = Survey(p_S=tuple(p.tolist()), rpy_S_rad=rpy, std_m=STD_M, std_rad=STD_RAD)
    return found


def pair(found, b):
    u = found.unknowns
    return relative(u.R_WM, u.p_WM, found.covariance, 0, b)


def test_surveyed_bundles_are_as_certain_as_their_surveys(flight):
    without, found = adjust(flight.data, 4), adjust(replace(flight.data, surveys=surveys(flight)), 4)
    true = relative(flight.true.R_WM, flight.true.p_WM, np.zeros((18, 18)), 0, 2)
    by_survey, by_flight = pair(found, 2), pair(without, 2)
    assert not found.misplaced
    assert by_survey.std_m < 0.5 * by_flight.std_m and by_survey.std_m < 2 * np.hypot(STD_M, STD_M + 6 * STD_RAD)
    assert np.linalg.norm(by_survey.p_AB - true.p_AB) < 0.03


def test_a_bundle_that_stands_elsewhere_is_named_and_its_survey_left_out(flight):
    without, found = adjust(flight.data, 4), adjust(replace(flight.data, surveys=surveys(flight, moved_m=1.0)), 4)
    assert list(found.misplaced) == ["bundle_2"] and "m and" in found.misplaced["bundle_2"]
    true = relative(flight.true.R_WM, flight.true.p_WM, np.zeros((18, 18)), 0, 2)
    assert np.linalg.norm(pair(found, 2).p_AB - true.p_AB) < 0.3
    assert pair(found, 1).std_m < pair(without, 1).std_m


def test_one_survey_alone_says_nothing(flight):
    one = {"bundle_1": surveys(flight)["bundle_1"]}
    found, without = adjust(replace(flight.data, surveys=one), 3), adjust(flight.data, 3)
    np.testing.assert_array_equal(found.unknowns.p_WM, without.unknowns.p_WM)
