"""Maps of several flights as one map, and what contradicts it."""

from itertools import permutations

import msgspec
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from calibration.map.combine import (
    FlightMap,
    SiteMap,
    between_surveys,
    check_frame,
    check_survey,
    combine,
    into_survey_frame,
    with_surveyed,
)
from calibration.map.relative import difference
from calibration.map.site_file import surveys_of
from calibration.results import DataError
from companion.core.frames import quat_from_rpy, rotation_matrix
from companion.core.site import Bundle, Marker, Site, Survey

NAMES = ("first", "second", "third")
PLACES = np.array([[0.0, 0.0, 2.0], [12.0, 1.0, 2.5], [20.0, -6.0, 3.0]])
TURNS = Rotation.from_euler("ZYX", [[0.1, 0.2, 1.5], [-0.3, 0.1, 1.6], [0.8, 0.0, 1.4]]).as_matrix()
STD_RAD, STD_M = 0.003, 0.03


def flight(names, seed, std=1.0, moved=None):
    """A map with errors of `std` standard deviations, in a frame of its own; moved: bundle → metres along x."""
    rng = np.random.default_rng(seed)
    index = [NAMES.index(name) for name in names]
    frame, shift = Rotation.from_euler("z", rng.uniform(-3, 3)).as_matrix(), rng.uniform(-5, 5, 3)
    R = TURNS[index] @ Rotation.from_rotvec(std * STD_RAD * rng.standard_normal((len(names), 3))).as_matrix()
    p = PLACES[index] + std * STD_M * rng.standard_normal((len(names), 3))
    for name, metres in (moved or {}).items():
        p[names.index(name), 0] += metres
    covariance = np.diag(len(names) * [*3 * [STD_RAD**2], *3 * [STD_M**2]])
    return FlightMap(f"flight_{seed}.mcap", SiteMap(tuple(names), frame @ R, p @ frame.T + shift, covariance))


def truth():
    return SiteMap(NAMES, TURNS, PLACES, np.zeros((18, 18)))


def site(surveys):
    marker = Marker(family="aruco_6x6_250", id=1, size_m=0.3)
    return Site(bundle=[Bundle(name=name, markers=[marker], survey=survey) for name, survey in surveys.items()])


def test_flights_that_share_a_bundle_make_one_map():
    found = combine([flight(NAMES[:2], 1), flight(NAMES[1:], 2)])
    assert found.bundles == NAMES
    for a, b in (("first", "second"), ("second", "third"), ("first", "third")):
        pair = found.between(a, b)
        error = difference(pair, truth().between(a, b))
        assert error @ np.linalg.solve(pair.covariance, error) / 6 < 4.0


def test_more_flights_are_more_certain():
    one, four = combine([flight(NAMES, 1)]), combine([flight(NAMES, seed) for seed in range(4)])
    assert four.between("first", "third").std_m == pytest.approx(one.between("first", "third").std_m / 2, rel=0.05)


def test_flights_that_contradict_each_other_are_named():
    with pytest.raises(
        DataError,
        match=r"flight_1.mcap and flight_3.mcap contradict each other: seen from 'first', the places of 'second' are 0\.[3-7]",
    ):
        combine([flight(NAMES[:2], 1), flight(NAMES[:2], 3, moved={"second": 0.5})])


def test_a_bundle_that_does_not_stand_where_the_survey_has_it_is_named():
    surveys = surveys_of(truth())
    survey = surveys["third"]
    wrong = Survey(
        p_S=(survey.p_S[0] + 1.0, *survey.p_S[1:]),
        rpy_S_rad=survey.rpy_S_rad,
        std_m=survey.std_m,
        std_rad=survey.std_rad,
    )
    found = combine([flight(NAMES, 1)])
    check_survey(found, site(surveys), "site.toml")
    with pytest.raises(DataError, match=r"^'third' does not stand where site.toml says: seen from 'first'"):
        check_survey(found, site({**surveys, "third": wrong}), "site.toml")


def test_a_map_without_a_surveyed_bundle_is_refused_where_other_surveys_stay():
    surveys, found = surveys_of(truth()), combine([flight(NAMES[:2], 1)])
    with pytest.raises(DataError) as refused:
        check_frame(
            found, site({"first": None, "third": surveys["third"]}), "site.toml", {"third": "flight: seen once"}
        )
    assert str(refused.value).startswith("site.toml: of the bundles of this map ('first', 'second') none is surveyed")
    assert (
        "fly in sight of one that is ('third'), too, or take all surveys out of the file; 'third': flight: seen once"
        in str(refused.value)
    )
    check_frame(found, site({"first": None, "third": None}), "site.toml", {})
    check_frame(found, site({"first": surveys["first"], "third": surveys["third"]}), "site.toml", {})


def test_the_map_comes_into_the_frame_of_the_surveys():
    surveys = surveys_of(truth())
    placed = into_survey_frame(flight(NAMES, 4, std=0.0).map, {name: surveys[name] for name in NAMES[:2]})
    np.testing.assert_allclose(placed.p, PLACES, atol=1e-3)
    np.testing.assert_allclose(placed.R, TURNS, atol=1e-4)


def test_surveys_are_no_more_certain_than_the_map():
    found = combine([flight(NAMES, 1), flight(NAMES[:2], 2)])
    surveys = surveys_of(found)
    for a in NAMES:
        for b in NAMES:
            if a != b:
                pair, written = found.between(a, b), between_surveys(surveys[a], surveys[b])
                assert written.std_m > 0.99 * pair.std_m and written.std_rad > 0.99 * pair.std_rad
                np.testing.assert_allclose(written.p_AB, pair.p_AB, atol=1e-3)


def test_a_bundle_out_of_sight_stays_as_uncertain_as_it_was():
    """The pose of the map in the surveys' frame is as uncertain as the survey of its only surveyed bundle."""
    true = surveys_of(truth())
    old = {name: msgspec.structs.replace(true[name], std_m=0.02, std_rad=0.05) for name in ("first", "third")}
    found = into_survey_frame(combine([flight(NAMES[:2], 1)]), {"first": old["first"]})
    kept = {"third": old["third"]}
    surveys = surveys_of(found, kept)
    assert surveys["first"].std_rad >= 0.05 and surveys["first"].std_m >= 0.02
    before, after = (between_surveys(known["first"], old["third"]).std_m for known in (old, surveys))
    assert before > 1.0 and after > 0.99 * before
    # The second bundle's place beside the third one comes from the survey of the first one, whatever the map says.
    R_SA = rotation_matrix(quat_from_rpy(*old["first"].rpy_S_rad))
    rng = np.random.default_rng(1)
    errors = []
    for _ in range(4000):
        turn, shift = Rotation.from_rotvec(0.05 * rng.standard_normal(3)).as_matrix(), 0.02 * rng.standard_normal(3)
        seen = found.between("first", "second")
        R_SB, p_SB = R_SA @ turn @ seen.R_AB, np.array(old["first"].p_S) + shift + R_SA @ turn @ seen.p_AB
        errors.append(R_SB.T @ (np.array(old["third"].p_S) - p_SB))
    drawn_m = np.sqrt(np.linalg.eigvalsh(np.cov(np.array(errors).T))[-1])
    assert between_surveys(surveys["second"], old["third"]).std_m > 0.99 * drawn_m
    # What is known of the pairs of the map does not change.
    for std in ("std_m", "std_rad"):
        own = combine([flight(NAMES[:2], 1)]).between("first", "second")
        assert getattr(found.between("first", "second"), std) == pytest.approx(getattr(own, std))


def test_surveys_are_no_more_certain_than_the_map_beside_those_that_stay():
    true = surveys_of(truth())
    old = {name: msgspec.structs.replace(true[name], std_m=0.03, std_rad=0.01) for name in NAMES}
    found = into_survey_frame(combine([flight(NAMES[:2], 1)]), {name: old[name] for name in NAMES[:2]})
    kept = {"third": old["third"]}
    surveys, whole = surveys_of(found, kept) | kept, with_surveyed(found, kept)
    assert surveys["third"] == old["third"]
    for a, b in permutations(NAMES, 2):
        pair, written = whole.between(a, b), between_surveys(surveys[a], surveys[b])
        assert written.std_m > 0.99 * pair.std_m and written.std_rad > 0.99 * pair.std_rad
    assert surveys["first"].std_rad < 0.01  # two surveys give the frame together
