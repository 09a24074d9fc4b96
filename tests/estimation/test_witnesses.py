"""The witnesses of a bundle: still, moving, displaced and resized bundles, and the errors of the flight controller."""

from collections.abc import Callable

import numpy as np
import pytest

from companion.core.frames import quat_from_rpy, rotation_matrix
from companion.estimation.bundle_witnesses import BundleWitnesses
from companion.estimation.witnesses import (
    GNSS_OFFSET_M,
    UNKNOWN_MAX_S,
    Expected,
    MotionRecord,
    PlaceWitness,
)

P_BC, Q_BC = (0.12, 0.0, 0.0), (0.5, -0.5, 0.5, -0.5)  # a camera that looks forward
FCU_S, IMAGE_S, LATE_S = 0.02, 1 / 30, 0.06
ALL, FEW = frozenset({23, 40, 62, 98, 124}), frozenset({124})
FACE_W = np.array([6.0, 0.0, 3.0])
WALK = 0.1  # m/√s
Vector3 = Callable[[float], object]


class Judged:
    """What the witness said about each image."""

    def __init__(self) -> None:
        self.motion = MotionRecord()
        self.witness = PlaceWitness(P_BC, Q_BC, WALK, self.motion)
        self.times_s, self.agreed, self.reports = [], [], []

    def displaced_s(self, after_s: float = 0.0) -> list[float]:
        """Times of the displaced observations."""
        return [t for t, ok in zip(self.times_s, self.agreed, strict=True) if not ok and t >= after_s]

    def first_s(self, number: str) -> float:
        """When a number of the report was first above zero."""
        above = (t for t, r in zip(self.times_s, self.reports, strict=True) if getattr(r, number) > 0)
        return next(above, np.inf)


def hover(t: float) -> np.ndarray:
    """Held by the aircraft in gusts: a few centimetres about a point 3 m in front of the face."""
    return np.array([3.0 + 0.05 * np.sin(2 * t), 0.05 * np.sin(1.5 * t + 1), 3.0 + 0.02 * np.sin(3 * t)])


def fly(
    bundle_W: Vector3 = lambda t: FACE_W,
    aircraft_W: Vector3 = hover,
    velocity_error: Vector3 = lambda t: np.zeros(3),
    gnss_error: Vector3 = lambda t: np.zeros(3),
    seen: Callable[[float], frozenset | None] = lambda t: ALL,
    seconds: float = 12.0,
    scale: float = 1.0,
    fix: Callable[[float], bool] = lambda t: True,
    heading_rad: float = 0.0,
    accuracy_m: float = float("nan"),
    receiver_error: Vector3 = lambda t: np.zeros(3),
    gap: Callable[[float], bool] = lambda t: False,
    taking_off: Callable[[float], bool] = lambda t: False,
    seed: int = 1,
    walk_m_sqrt_s: float = 0.0,
    range_std_m: float = 0.01,
    std_m: float = 0.01,
    filter_W: Vector3 | None = None,
    filter_std_m: Callable[[float], float] = lambda t: 0.1,
) -> Judged:
    """Judge the images of a flight. scale: seen over true distance; heading_rad: error of the reported heading.

    gap: nothing arrives from the flight controller. range_std_m: true noise of the range; std_m: what the tracker says.
    filter_W: where the filter expects the bundle, filter_std_m: with this standard deviation.
    """
    judged, rng = Judged(), np.random.default_rng(seed)
    witness = judged.witness
    witness.set_measured_walk(walk_m_sqrt_s)
    q_WB, reported_q = quat_from_rpy(0.02, 0.03, 0.1), quat_from_rpy(0.02, 0.03, 0.1 + heading_rad)
    R_WB, R_BC = rotation_matrix(q_WB), rotation_matrix(Q_BC)
    fcu_s, image_s = 0.0, 0.0
    while image_s < seconds:
        while fcu_s <= image_s + LATE_S:
            if gap(fcu_s):
                fcu_s += FCU_S
                continue
            p, before = np.array(aircraft_W(fcu_s)), np.array(aircraft_W(fcu_s - 1e-3))
            v = (p - before) / 1e-3 + np.array(velocity_error(fcu_s))
            witness.add_attitude(fcu_s, reported_q)
            witness.add_position(fcu_s, p + np.array(gnss_error(fcu_s)), v)
            witness.add_receiver(fcu_s, np.array(aircraft_W(fcu_s - 0.12)) + np.array(receiver_error(fcu_s)))
            if fix(fcu_s):
                witness.add_fix(fcu_s, accuracy_m)
            fcu_s += FCU_S
        judged.motion.taking_off = taking_off(image_s)
        markers = seen(image_s)
        if markers is not None:
            r_B = R_WB.T @ (np.array(bundle_W(image_s)) - np.array(aircraft_W(image_s)))
            p_CM = scale * R_BC.T @ (r_B - np.array(P_BC)) + rng.normal(0, (0.01, 0.01, range_std_m))
            judged.times_s.append(image_s)
            expected = None
            if filter_W is not None:
                range_W = np.array(filter_W(image_s)) - np.array(aircraft_W(image_s))
                expected = Expected(rotation_matrix(reported_q) @ R_WB.T @ range_W, filter_std_m(image_s))
            judged.agreed.append(witness.agrees(image_s, p_CM, markers, std_m, expected))
            judged.reports.append(witness.report(image_s + LATE_S))
        image_s += IMAGE_S
    return judged


def goes(velocity: tuple[float, float, float], from_s: float = 3.0) -> Vector3:
    return lambda t: FACE_W + max(0.0, t - from_s) * np.array(velocity)


def approach(t: float) -> np.ndarray:
    """From 9 m to 3 m at 0.7 m/s with 0.5 m/s², then the hover."""
    ramp_s, way_m, top = 1.4, 6.0, 0.7
    cruise_s = way_m / top - ramp_s
    s = min(max(t - 2.0, 0.0), cruise_s + 2 * ramp_s)
    gone = 0.5 * 0.5 * min(s, ramp_s) ** 2 + top * min(max(s - ramp_s, 0.0), cruise_s)
    left = max(s - ramp_s - cruise_s, 0.0)
    gone += top * left - 0.25 * left**2
    return hover(t) - np.array([way_m - gone, 0.0, 0.0])


# --- no alarm ----------------------------------------------------------------------------------------------------------

UNKIND = {
    "velocity 20 cm/s wrong": {"velocity_error": lambda t: (0.14, -0.14, 0.0)},
    "velocity error that turns": {"velocity_error": lambda t: (0.2 * np.sin(t / 3), 0.2 * np.cos(t / 3), 0.0)},
    "GNSS jumps by 3 m": {
        "gnss_error": lambda t: (0.0, 3.0 * (1 - np.exp(-max(0.0, t - 5))), 0.0),
        "velocity_error": lambda t: (0.0, 0.6 * np.exp(-max(0.0, t - 5)) * (t > 5), 0.0),
    },
    "GNSS drifts by 3 m": {"gnss_error": lambda t: (0.25 * t, 0.0, 0.0)},
    "heading 5° wrong": {"heading_rad": 0.087, "aircraft_W": approach, "seconds": 25.0},
    "prints 3 % wrong": {"scale": 1.03, "aircraft_W": approach, "seconds": 25.0},
    "other markers, prints 3 % apart": {"seen": lambda t: ALL if int(t / 3) % 2 else FEW},
    "every second image empty": {"seen": lambda t: ALL if int(t / IMAGE_S) % 2 else None},
    "out of sight for 8 s": {"seen": lambda t: None if 3 < t < 11 else ALL, "seconds": 20.0},
    "no GNSS, the velocity runs away": {
        "fix": lambda t: t < 3,
        "velocity_error": lambda t: (0.15 * max(0.0, t - 3), 0.0, 0.0),
    },
}


@pytest.mark.parametrize("errors", UNKIND.values(), ids=UNKIND)
def test_errors_of_the_flight_controller_and_of_good_prints_are_no_evidence_against_the_bundle(errors):
    judged = fly(**errors)
    assert not judged.displaced_s()
    for report in judged.reports:
        assert report.moving_m_s == report.displaced_m == 0.0
        assert not report.gnss_offset_m > report.gnss_offset_max_m
        assert abs(report.size_error) - 3.5 * report.size_error_std < 0.08


def test_a_fifth_of_outliers_is_no_displaced_bundle():
    rng = np.random.default_rng(3)
    places = {}

    def outliers(t: float) -> np.ndarray:
        return places.setdefault(t, FACE_W + (rng.normal(0, 1.0, 3) if t > 1 and rng.random() < 0.2 else 0.0))

    judged = fly(outliers, seconds=30.0)
    assert judged.displaced_s(), "outliers do not reach the filter"
    assert judged.first_s("displaced_m") == judged.first_s("moving_m_s") == np.inf


def from_far(t: float) -> np.ndarray:
    return hover(t) - np.array([6.0, 0.0, 0.0])


def test_the_noisy_range_of_a_single_marker_far_away_is_neither_displaced_nor_moving():
    # deck_north of two_piers, seen from 9 m: the tracker says 0.15 m, the range was wrong by 0.27 m (RMS)
    def seen(std_m: float) -> Judged:
        return fly(aircraft_W=from_far, seen=lambda t: FEW, range_std_m=0.27, std_m=std_m, seconds=20.0)

    judged = seen(0.15)
    assert len(judged.displaced_s()) < 0.01 * len(judged.agreed)
    assert judged.first_s("displaced_m") == judged.first_s("moving_m_s") == np.inf
    assert len(seen(0.01).displaced_s()) > 0.01 * len(judged.agreed), "its stated deviation is what explains it"


def test_a_bundle_far_away_that_moves_is_found_behind_its_noise():
    judged = fly(goes((0, 1.0, 0)), from_far, seen=lambda t: FEW, range_std_m=0.15, std_m=0.15)
    assert judged.first_s("moving_m_s") - 3.0 < 2.5


JUMP = {  # of GNSS by 2.5 m at 5 s, as PX4 follows it
    "gnss_error": lambda t: (2.5 * (1 - np.exp(-max(0.0, t - 5))), 0.0, 0.0),
    "velocity_error": lambda t: (0.6 * np.exp(-max(0.0, t - 5)) * (t > 5), 0.0, 0.0),
    "receiver_error": lambda t: (2.5 * (t > 5), 0.0, 0.0),
}


def steps(metres: float, at_s: float) -> Vector3:
    return lambda t: FACE_W + (metres * (t >= at_s), 0.0, 0.0)


def test_a_bundle_first_seen_without_a_fix_is_compared_from_the_first_fix_on():
    # two_piers, unkind seed 3: the flight controller had drifted 20 m when it saw the second pier, and came back with the fix
    judged = fly(
        seen=lambda t: None if t < 6 else ALL,
        fix=lambda t: t < 3 or t > 9,
        gnss_error=lambda t: (20.0 * (3 < t < 10), 0.0, 0.0),
        receiver_error=lambda t: (20.0 * (3 < t < 10), 0.0, 0.0),  # says nothing without a fix: as the other
        seconds=25.0,
    )
    offsets = [r.gnss_offset_m for r in judged.reports]
    assert max(o for o in offsets if not np.isnan(o)) < 1.0 and not np.isnan(offsets[-1])


@pytest.mark.parametrize(
    "place, hidden",
    [(steps(2.0, 5.0), (5.0, 7.0)), (steps(1.0, 6.0), (6.0, 6.0)), (steps(-1.2, 6.0), (5.5, 8.0))],
    ids=["a copy behind the face after 2 s out of sight", "a step in sight", "a copy before the face"],
)
def test_a_jump_of_gnss_does_not_hide_that_the_bundle_is_elsewhere(place, hidden):
    def judged(filter_W: Vector3 | None) -> Judged:
        begin_s, end_s = hidden
        return fly(place, seen=lambda t: None if begin_s <= t < end_s else ALL, filter_W=filter_W, seconds=11.0, **JUMP)

    assert judged(None).first_s("displaced_m") == np.inf, "the motion of the flight controller cannot tell"
    drifting = judged(lambda t: FACE_W + (0.1 * min(max(0.0, t - 5.0), 3.0), 0.0, 0.0))
    assert drifting.first_s("displaced_m") - hidden[1] < 1.5


@pytest.mark.parametrize("out_of_sight_s", [0.0, 2.0, 4.0])
def test_a_filter_that_drifts_through_a_jump_of_gnss_displaces_no_bundle(out_of_sight_s):
    def expected(t: float) -> np.ndarray:
        return FACE_W + (0.1, 0.05, 0.0) + (0.12 * min(max(0.0, t - 5.0), out_of_sight_s), 0.0, 0.0)

    judged = fly(seen=lambda t: None if 5 <= t < 5 + out_of_sight_s else ALL, filter_W=expected, seconds=14.0, **JUMP)
    assert not judged.displaced_s()


def test_a_filter_that_the_first_image_corrects_displaces_no_bundle():
    def hidden(t: float) -> bool:
        return 5 <= t < 13

    def expected(t: float) -> np.ndarray:
        corrected = t >= 13 + IMAGE_S
        return FACE_W + (0.0 if corrected else 0.1 * max(0.0, t - 5.0), 0.0, 0.0)

    judged = fly(
        seen=lambda t: None if hidden(t) else ALL,
        filter_W=expected,
        filter_std_m=lambda t: 0.02 + (0.05 * (t - 5) if 5 <= t < 13 + IMAGE_S else 0.0),
        seconds=20.0,
        **JUMP | {"receiver_error": lambda t: (1.0 * (t > 13), 0.0, 0.0)},
    )
    assert not judged.displaced_s()


@pytest.mark.parametrize("hidden_s", [8.0, 12.0, 18.0])
def test_a_filter_that_has_drifted_for_long_displaces_no_bundle(hidden_s):
    """Without a fix, PX4's velocity goes astray, and the filter's with it, by more than it knows."""
    judged = fly(
        seen=lambda t: None if 5 <= t < 5 + hidden_s else ALL,
        fix=lambda t: t < 5,
        velocity_error=lambda t: (0.15 * max(0.0, t - 5.0), 0.0, 0.0),
        filter_W=lambda t: FACE_W + (0.06 * min(max(0.0, t - 5.0), hidden_s) ** 2, 0.0, 0.0),
        filter_std_m=lambda t: 0.02 + 0.1 * max(0.0, t - 5.0),
        seconds=30.0,
    )
    assert not judged.displaced_s()


def test_a_doubt_by_the_filter_ends():
    """The filter is wrong by more than it knows after a short time: the bundle must be able to correct it."""
    judged = fly(
        seen=lambda t: None if 5 <= t < 8 else ALL,
        filter_W=lambda t: FACE_W + (3.0 * (t >= 6), 0.0, 0.0),
        seconds=30.0,
    )
    assert 12.5 < judged.displaced_s()[-1] < 13.5


def test_a_step_while_satellites_and_flight_controller_drift_together_is_found():
    drift = {"gnss_error": lambda t: (0.8 * min(max(0.0, t - 5.0), 3.0), 0.0, 0.0)}
    drift["receiver_error"] = drift["gnss_error"]
    judged = fly(
        bundle_W=steps(1.0, 7.0), filter_W=lambda t: FACE_W, filter_std_m=lambda t: 0.04, seconds=11.0, **drift
    )
    assert judged.displaced_s()[0] == pytest.approx(7.0, abs=2 * IMAGE_S)


def test_what_the_filter_contradicts_stays_elsewhere_when_the_filter_knows_less():
    judged = fly(
        seen=lambda t: None if 5 <= t < 7 else ALL,
        bundle_W=steps(2.0, 6.0),
        filter_W=lambda t: FACE_W,
        filter_std_m=lambda t: 0.1 + 0.3 * max(0.0, t - 7.0),
        seconds=11.0,
        **JUMP,
    )
    assert judged.displaced_s()[0] < 7 + 2 * IMAGE_S
    assert not any(ok for t, ok in zip(judged.times_s, judged.agreed, strict=True) if t >= 7)


def test_the_report_is_about_the_bundle_that_is_seen_best():
    witnesses = BundleWitnesses(P_BC, Q_BC, WALK)
    for t in np.arange(0.0, 3.0, FCU_S):
        witnesses.add_attitude(t, quat_from_rpy(0.0, 0.0, 0.0))
        witnesses.add_position(t, np.zeros(3), np.zeros(3))
        witnesses.add_fix(t, 0.5)
        away_m = 0.0 if t < 2.0 else 3.0  # the far one jumps
        witnesses.agrees("far", t, np.array([away_m, 0.0, 9.0]), ALL, 0.15, None)
        witnesses.agrees("near", t, np.array([0.0, 0.0, 4.0]), ALL, 0.02, None)
    assert witnesses.report("far", 3.0).displaced_m > 2.0
    assert witnesses.report("out of sight", 3.0).displaced_m == 0.0


# --- moving ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "velocity, within_s",
    [((0, 2.0, 0), 0.7), ((0, 1.0, 0), 0.9), ((1.0, 0, 0), 0.9), ((0, 0, -1.0), 0.9), ((0, 0.5, 0), 1.9)],
)
def test_a_moving_bundle_is_found(velocity, within_s):
    assert fly(goes(velocity)).first_s("moving_m_s") - 3.0 < within_s


def test_an_aircraft_that_follows_the_bundle_is_no_excuse():
    def follow(t: float) -> np.ndarray:
        return hover(t) + goes((0, 1.0, 0), 3.3)(t) - FACE_W

    assert fly(goes((0, 1.0, 0)), follow).first_s("moving_m_s") - 3.0 < 0.8


def test_flickering_markers_do_not_hide_a_motion():
    rng = np.random.default_rng(2)
    sets = {}
    judged = fly(goes((0, 1.0, 0)), seen=lambda t: sets.setdefault(t, ALL if rng.random() < 0.5 else FEW))
    assert judged.first_s("moving_m_s") - 3.0 < 1.2


def test_a_drift_below_the_error_of_the_velocity_is_found_against_gnss():
    judged = fly(goes((0, 0.2, 0)), seconds=30.0)
    assert judged.first_s("moving_m_s") == np.inf
    beyond = [t for t, r in zip(judged.times_s, judged.reports, strict=True) if r.gnss_offset_m > r.gnss_offset_max_m]
    assert beyond[0] - 3.0 < GNSS_OFFSET_M / 0.2 + 2.0


def test_the_limit_against_gnss_grows_with_the_reported_accuracy_and_with_time():
    coarse, fine = fly(accuracy_m=5.0).reports[-1], fly(accuracy_m=0.02).reports[-1]
    assert coarse.gnss_offset_max_m == 15.0 and fine.gnss_offset_max_m == GNSS_OFFSET_M


def test_without_a_fix_gnss_is_no_witness():
    assert np.isnan(fly(fix=lambda t: t < 5, seconds=8.0).reports[-1].gnss_offset_m)


def test_a_position_that_drifted_without_a_fix_is_no_evidence_when_the_fix_is_back():
    """PX4 dead-reckons for half a minute, tens of metres away, and resets to the first fix."""
    without = (5.0, 35.0)

    def drift(t):
        return (0.8 * (t - without[0]) if without[0] < t < without[1] else 0.0, 0.0, 0.0)

    judged = fly(fix=lambda t: not without[0] < t < without[1], gnss_error=drift, receiver_error=drift, seconds=45.0)
    known = [r for r in judged.reports if not np.isnan(r.gnss_offset_m)]
    assert max(r.gnss_offset_m for r in known) < 1.0 and judged.reports[-1] is known[-1]


def test_a_velocity_dead_reckoned_for_long_shows_no_motion_of_the_bundle():
    """No fix for 20 s, and a velocity that becomes wrong by 4 m/s."""
    judged = fly(
        fix=lambda t: t < 2.0,
        velocity_error=lambda t: (0.0, 2.0 * min(max(t - 20.0, 0.0), 2.0), 0.0),
        seconds=28.0,
    )
    assert all(report.moving_m_s == 0.0 and report.displaced_m == 0.0 for report in judged.reports)


# --- displaced -----------------------------------------------------------------------------------------------------------


def jumps(displacement: tuple[float, float, float], at_s: float = 3.0) -> Vector3:
    return lambda t: FACE_W + (np.array(displacement) if t >= at_s else 0.0)


@pytest.mark.parametrize("displacement", [(2.0, 0, 0), (0, 1.0, 0), (-0.6, 0, 0)])
def test_the_first_observation_of_a_displaced_bundle_does_not_count_and_no_later_one(displacement):
    judged = fly(jumps(displacement), seconds=40.0)
    times = [t for t in judged.times_s if t >= 3.0]
    assert judged.displaced_s() == times
    assert judged.first_s("displaced_m") - 3.0 < 0.5
    assert judged.reports[-1].displaced_m == pytest.approx(np.linalg.norm(displacement), abs=0.1)


def test_the_real_bundle_counts_again_although_the_velocity_was_wrong_meanwhile():
    def back(t: float) -> np.ndarray:
        return FACE_W + (np.array([2.0, 0, 0]) if 3 <= t < 8 else 0.0)

    judged = fly(back, velocity_error=lambda t: (0.0, 0.2, 0.0), seconds=15.0)
    assert not judged.displaced_s(8.6)
    assert judged.reports[-1].displaced_m == 0.0


RESET = {"gnss_error": lambda t: (4.0 * (t > 9), 0.0, 0.0), "receiver_error": lambda t: (3.0 * (t > 3), 0.0, 0.0)}


def test_a_bundle_that_was_elsewhere_is_not_excused_by_a_later_reset_of_the_flight_controller():
    """The way home of a flight that ended behind the face: bundle and GNSS jumped by 3 m, PX4 followed GNSS five seconds later."""
    judged = fly(jumps((3.0, 0, 0)), seconds=25.0, **RESET)
    assert judged.displaced_s() == [t for t in judged.times_s if t >= 3.0]
    given_up = [t for t, r in zip(judged.times_s, judged.reports, strict=True) if r.given_up]
    assert 5.0 < given_up[0] < 6.5 and given_up[-1] == judged.times_s[-1]


def test_a_bundle_that_was_given_up_counts_again_where_it_stood():
    judged = fly(lambda t: FACE_W + (3.0 * (3 <= t < 8), 0.0, 0.0), seconds=25.0, **RESET)
    assert not judged.displaced_s(8.6) and not judged.reports[-1].given_up


@pytest.mark.parametrize(("speed_m_s", "fix"), [(0.2, True), (0.3, True), (0.3, False), (0.8, False)])
def test_a_copy_that_was_given_up_does_not_take_the_place_along(speed_m_s, fix):
    """It drifted for ten seconds, and after one step back by its distance it stood where the bundle had stood: 8 m behind."""

    def place(t: float) -> np.ndarray:
        behind_m = 0.0 if t < 3.0 else 2.0 + speed_m_s * min(max(t - 6.0, 0.0), 10.0) - (2.0 if t >= 16.0 else 0.0)
        return FACE_W + [behind_m, 0.0, 0.0]

    judged = fly(place, seconds=19.0, fix=lambda t: fix or t < 2.5)
    assert judged.displaced_s(16.0) == [t for t in judged.times_s if t >= 16.0] and judged.reports[-1].given_up


@pytest.mark.parametrize("silent_s", [0.4, 0.9, 2.0, 5.0])
@pytest.mark.parametrize("begins_s", [4.0, 6.5])
def test_a_copy_is_not_used_when_the_flight_controllers_motion_is_not_known(silent_s, begins_s):
    """Otherwise the bundle is the only sensor, and is used after 0.8 s: that led into the face."""
    judged = fly(jumps((3.0, 0, 0)), gap=lambda t: begins_s <= t < begins_s + silent_s, seconds=25.0)
    assert judged.displaced_s() == [t for t in judged.times_s if t >= 3.0]


@pytest.mark.parametrize("metres", [2.5, -1.0])
def test_a_copy_that_was_given_up_is_not_used_after_many_short_times_out_of_sight_without_satellites(metres):
    judged = fly(
        jumps((metres, 0, 0)),
        seen=lambda t: None if t > 7 and t % 1.0 < 0.9 else ALL,
        fix=lambda t: t < 5.6,
        velocity_error=lambda t: (0.15 * max(0.0, t - 5.6), 0.0, 0.0),
        seconds=30.0,
    )
    assert judged.displaced_s() == [t for t in judged.times_s if t >= 3.0] and judged.reports[-1].given_up


@pytest.mark.parametrize("hidden_s", [1.5, 25.0])
def test_a_bundle_that_was_given_up_and_went_out_of_sight_is_not_used_again_in_this_flight(hidden_s):
    judged = fly(jumps((3.0, 0, 0)), seen=lambda t: None if 7 <= t < 7 + hidden_s else ALL, seconds=45.0)
    assert judged.displaced_s() == [t for t in judged.times_s if t >= 3.0] and judged.reports[-1].given_up
    judged.witness.disarmed()
    assert not judged.witness.report(judged.times_s[-1]).given_up


def test_a_copy_in_every_second_image_is_found_and_does_not_count():
    judged = fly(lambda t: FACE_W + (2.0 if t > 3 and round(t / IMAGE_S) % 2 else 0.0) * np.array([1.0, 0, 0]))
    times = [t for t in judged.times_s if t > 3 and round(t / IMAGE_S) % 2]
    given_up_s = next(t for t, r in zip(judged.times_s, judged.reports, strict=True) if r.given_up)
    assert [t for t in judged.displaced_s() if t < given_up_s] == [t for t in times if t < given_up_s]
    assert judged.first_s("displaced_m") - 3.0 < 2.0
    assert set(t for t in judged.times_s if t > given_up_s) <= set(judged.displaced_s()), (
        "which of the two is not known"
    )


def test_two_copies_in_turns_are_no_scatter_and_do_not_count():
    places = (FACE_W, FACE_W + (0.0, -1.0, 0.8), FACE_W + (-2.5, 1.5, 0.0))

    def turns(t: float) -> np.ndarray:
        return places[0] if t < 3.0 else places[1 + int(t / IMAGE_S) % 2]

    judged = fly(turns)
    assert judged.first_s("displaced_m") < 4.0
    assert len(judged.displaced_s(3.0)) == sum(t >= 3.0 for t in judged.times_s)


@pytest.mark.parametrize(("walk_m_sqrt_s", "refused"), [(0.1, True), (0.3, False)])
def test_satellites_that_walk_out_of_sight_displace_no_bundle_once_their_walk_is_known(walk_m_sqrt_s, refused):
    def walked(t):
        return np.array([3.0 * min(max(t - 3.0, 0.0) / 12.0, 1.0), 0.0, 0.0])

    judged = fly(
        gnss_error=walked,
        velocity_error=lambda t: np.array([0.25 if 3 < t < 15 else 0.0, 0.0, 0.0]),
        seen=lambda t: None if 3 < t < 15 else ALL,
        receiver_error=walked,
        seconds=20.0,
        walk_m_sqrt_s=walk_m_sqrt_s,
    )
    assert (judged.witness.report(20.0).displaced_m > 0.0) == refused


@pytest.mark.parametrize("hidden_s", [2.5, 8.0])
def test_a_bundle_is_not_at_another_place_after_it_was_out_of_sight(hidden_s):
    judged = fly(jumps((2.0, 0, 0)), seen=lambda t: None if 3 < t < 3 + hidden_s else ALL, seconds=6 + hidden_s, seed=4)
    assert judged.displaced_s(3.0) == [t for t in judged.times_s if t > 3]


def test_a_jump_is_found_without_gnss():
    judged = fly(jumps((2.0, 0, 0), 8.0), fix=lambda t: t < 3)
    assert judged.displaced_s() == [t for t in judged.times_s if t >= 8.0]


def test_a_velocity_that_runs_away_while_the_flight_controller_rejects_fixes_is_no_moving_bundle():
    """A GNSS jump beyond PX4's gate: seven seconds of dead reckoning with a fix."""

    alone = {
        "velocity_error": lambda t: (0.15 * max(0.0, t - 3), 0.0, 0.0),
        "gnss_error": lambda t: (0.075 * max(0.0, t - 3) ** 2, 0.0, 0.0),  # of PX4's position, which runs away, too
        "seconds": 10.0,
    }
    jumped = fly(receiver_error=lambda t: np.array((0.0, 3.0 * (t > 3), 0.0)), **alone)
    assert jumped.first_s("moving_m_s") == jumped.first_s("displaced_m") == np.inf
    without_a_jump = fly(receiver_error=lambda t: np.array(alone["gnss_error"](t)), **alone)
    assert without_a_jump.first_s("moving_m_s") < np.inf


def test_a_jump_of_the_receiver_is_reported_while_the_bundle_is_out_of_sight_only():
    def jump(t: float) -> np.ndarray:
        return np.array((0.0, 6.0 * (t > 3), 0.0))

    hidden = fly(receiver_error=jump, seen=lambda t: ALL if t < 2 else None, seconds=5.0)
    assert hidden.witness.report(5.0).gnss_jump_m == pytest.approx(6.0, abs=0.7)
    assert fly(receiver_error=jump, seconds=5.0).reports[-1].gnss_jump_m == 0.0


# --- interruptions of the link ------------------------------------------------------------------------------------------


def once(t: float) -> bool:
    return 5.0 <= t < 5.6


def often(t: float) -> bool:
    return t > 4.0 and t % 2.0 < 0.6


def cruise(t: float) -> np.ndarray:
    return hover(t) - np.array([max(0.0, 8.0 - 1.0 * t), 0.0, 0.0])


UNKIND_GAPS = {
    **UNKIND,
    "link interrupted": {},
    "approach at 1 m/s": {"aircraft_W": cruise},
}


@pytest.mark.parametrize("gap", [once, often, lambda t: 5.0 <= t < 9.0], ids=["once", "often", "long"])
@pytest.mark.parametrize("errors", UNKIND_GAPS.values(), ids=UNKIND_GAPS)
def test_an_interrupted_link_is_no_evidence_against_a_bundle_that_stands_still(errors, gap):
    judged = fly(**errors, gap=gap)
    for report in judged.reports:
        assert report.moving_m_s == report.displaced_m == 0.0
        assert not report.gnss_offset_m > report.gnss_offset_max_m
        assert abs(report.size_error) - 3.5 * report.size_error_std < 0.08
    assert not [t for t in judged.displaced_s() if not (gap(t + LATE_S) or gap(t) or gap(t - FCU_S))]


@pytest.mark.parametrize("displacement", [(2.0, 0, 0), (0, 1.4, 0), (-1.4, 0, 0)])
@pytest.mark.parametrize("gap_s", [0.6, 1.5])
@pytest.mark.parametrize("fraction", [0.05, 0.5, 0.95])
def test_a_bundle_that_is_moved_while_the_link_is_interrupted_is_displaced(displacement, gap_s, fraction):
    """Once its place was learned again after a gap of 0.5 s, wherever it was then."""
    judged = fly(jumps(displacement, 5.0 + fraction * gap_s), gap=lambda t: 5.0 <= t < 5.0 + gap_s, seconds=20.0)
    assert judged.displaced_s(5.0 + gap_s) == [t for t in judged.times_s if t >= 5.0 + gap_s]
    assert judged.first_s("displaced_m") < 5.0 + gap_s + 0.6
    moved = [(t, ok) for t, ok in zip(judged.times_s, judged.agreed, strict=True) if 5.0 + fraction * gap_s <= t]
    used = [t for t, ok in moved if ok]
    assert all(5.0 + UNKNOWN_MAX_S < t < 5.0 + gap_s + LATE_S for t in used), "only where it is the only sensor"


def test_an_interruption_while_the_bundle_is_out_of_sight_hides_no_move():
    judged = fly(jumps((2.0, 0, 0)), seen=lambda t: None if 3 < t < 10 else ALL, gap=once, seconds=13.0)
    assert judged.displaced_s(10.0) == [t for t in judged.times_s if t >= 10.0]


def test_a_bundle_that_is_moved_a_little_in_each_of_many_interruptions_is_found():
    """0.6 m in each gap of 0.6 s every two seconds; less than 0.3 m/s is not found by the velocity, but against GNSS."""

    def stepwise(t: float) -> np.ndarray:
        return FACE_W + np.array([step_m * max(0.0, np.floor((t - 2.3) / 2.0)), 0.0, 0.0])

    step_m = 0.6
    judged = fly(stepwise, gap=often, seconds=20.0)
    found_s = min(judged.first_s("displaced_m"), judged.first_s("moving_m_s"))
    assert found_s < 10.0
    accepted = [t for t, ok in zip(judged.times_s, judged.agreed, strict=True) if ok]
    assert stepwise(accepted[-1])[0] - FACE_W[0] <= 1.2
    step_m = 0.4
    judged = fly(stepwise, gap=often, seconds=30.0)
    assert any(r.gnss_offset_m > r.gnss_offset_max_m or r.displaced_m > 0 for r in judged.reports)


def test_a_bundle_that_was_moved_while_it_was_forgotten_is_found_against_gnss():
    """Out of sight for longer than a place is remembered."""
    judged = fly(jumps((0, 8.0, 0), 10.0), seen=lambda t: None if 3 < t < 26 else ALL, seconds=30.0)
    assert judged.reports[-1].gnss_offset_m > judged.reports[-1].gnss_offset_max_m
    drift = {"gnss_error": lambda t: (0.1 * t, 0, 0), "receiver_error": lambda t: (0.1 * t, 0, 0)}
    still = fly(seen=lambda t: None if 3 < t < 26 else ALL, **drift, seconds=30.0)
    assert still.reports[-1].gnss_offset_m < still.reports[-1].gnss_offset_max_m


# --- the ground ------------------------------------------------------------------------------------------------------------


def test_on_the_ground_the_bundle_may_be_carried():
    judged = fly(seconds=3.0)
    witness = judged.witness
    witness.disarmed()
    assert all(witness.agrees(3.0 + 0.01 * i, np.array([1.0, 1.0, 4.0]), ALL) for i in range(5))


def test_nothing_is_judged_without_the_flight_controller():
    witness = PlaceWitness(P_BC, Q_BC, WALK)
    assert all(witness.agrees(0.1 * i, np.array([0.0, 0.0, 3.0 + i]), ALL) for i in range(20))
    assert np.isnan(witness.report(2.0).gnss_offset_m)


def test_positions_out_of_order_and_a_gap_start_the_integral_again():
    judged = fly(seconds=3.0)
    witness = judged.witness
    witness.add_position(2.0, np.zeros(3), np.zeros(3))  # older than the newest
    for t in (6.0, 6.02, 6.04):
        witness.add_position(t, np.zeros(3), np.zeros(3))
        witness.add_attitude(t, np.array([1.0, 0, 0, 0]))
    assert witness.agrees(6.04, np.array([5.0, 0.0, 9.0]), ALL), "nothing is known after the gap"


# --- size --------------------------------------------------------------------------------------------------------------------


def test_a_print_of_four_fifths_is_found_by_the_way_flown():
    judged = fly(
        aircraft_W=approach, scale=1 / 0.8, seconds=40.0, velocity_error=lambda t: (0.05 * np.sin(t / 5), 0, 0)
    )
    last = judged.reports[-1]
    assert last.size_error == pytest.approx(0.2, abs=0.06)
    assert last.size_error_std < 0.06


def test_the_size_is_not_measured_while_px4_takes_off():
    """Its velocity has an error of a fifth of the climb then, and a true print would look too large or too small."""

    def climb(t: float) -> np.ndarray:
        return np.array([-6.0, 0.0, min(max(t - 2.0, 0.0), 4.0)])

    def too_fast(t: float) -> tuple[float, float, float]:
        return 0.0, 0.0, 0.2 * (2.0 < t < 6.0)

    measured = fly(aircraft_W=climb, velocity_error=too_fast, seconds=10.0).reports[-1]
    assert measured.size_error < -0.1, "the fault would be there"
    rested = fly(aircraft_W=climb, velocity_error=too_fast, seconds=10.0, taking_off=lambda t: t < 6.5).reports[-1]
    assert rested.size_error_std > 0.2 and abs(rested.size_error) < 0.01


def test_the_size_is_unknown_without_motion():
    last = fly(aircraft_W=lambda t: np.array([3.0, 0.0, 3.0]), scale=1 / 0.8, seconds=20.0).reports[-1]
    assert last.size_error_std > 0.2
