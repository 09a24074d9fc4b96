"""Bundles as witnesses of each other: unkind sensors are no contradiction, a bundle that moves is one."""

from collections.abc import Callable

import numpy as np
import pytest
from two_bundles import TwoBundles

from companion.core.frames import quat_from_rpy, rotation_matrix
from companion.core.messages import FcuStatus, Markers
from companion.estimation.bundle_pairs import BundlePairs
from companion.estimation.estimator import EstimatorNode
from companion.estimation.witnesses import Observed

IMAGE_S = 1 / 30
PLACES_W = {"left": (6.0, 1.0, 3.0), "right": (6.0, -1.0, 3.0), "above": (6.0, 0.0, 4.2)}
TWO = ("left", "right")
DEPTH_NOISE = 0.0007  # of range²: corners of 0.6 px, a bundle of 1 m, 610 px
FROM_S = 4.0


def hover(t: float) -> np.ndarray:
    return np.array([3.0 + 0.1 * np.sin(2 * t), 0.1 * np.sin(1.5 * t), 3.0])


def approach(t: float) -> np.ndarray:
    """From 9 m to 2 m in front of the bundles at 0.7 m/s."""
    return np.array([min(4.0, -3.0 + 0.7 * max(0.0, t - 1.0)), 0.0, 3.0])


class Judged:
    """What was said about each image."""

    def __init__(self) -> None:
        self.pairs = BundlePairs()
        self.times_s: list[float] = []
        self.contradicting: list[frozenset[str]] = []
        self.apart: list[tuple[float, tuple[str, ...]]] = []

    def first_s(self) -> float:
        """When a contradiction was first reported."""
        return next((t for t, (m, _) in zip(self.times_s, self.apart, strict=True) if m > 0), np.inf)


def fly(
    names: tuple[str, ...] = TWO,
    aircraft_W: Callable[[float], np.ndarray] = hover,
    moved_W: Callable[[str, float], object] = lambda name, t: np.zeros(3),
    scale: Callable[[str, float], float] = lambda name, t: 1.0,
    seen: Callable[[str, int], bool] = lambda name, image: True,
    rpy_rad: Callable[[float], tuple[float, float, float]] = lambda t: (0.0, 0.0, 0.0),
    velocity_error: tuple[float, float, float] = (0.0, 0.0, 0.0),
    seconds: float = 15.0,
    judged: Judged | None = None,
) -> Judged:
    """Judge the images of a flight. scale: seen over true distance; rpy_rad: error of the reported attitude."""
    judged, rng = judged or Judged(), np.random.default_rng(2)
    start_s = judged.times_s[-1] + IMAGE_S if judged.times_s else 0.0
    for i in range(round(seconds / IMAGE_S)):
        t, image = i * IMAGE_S, {}
        p = np.array(aircraft_W(t))
        speed = float(np.linalg.norm(p - aircraft_W(t - 1e-3))) / 1e-3
        travelled = p + t * np.array(velocity_error)
        for name in names:
            if not seen(name, i):
                continue
            r = np.array(PLACES_W[name]) + np.array(moved_W(name, t)) - p
            range_m = float(np.linalg.norm(r))
            factor = scale(name, t) * (1.0 + DEPTH_NOISE * range_m * rng.normal())
            r = factor * rotation_matrix(quat_from_rpy(*rpy_rad(t))) @ r + 0.005 * rng.normal(size=3)
            image[name] = Observed(start_s + t, r, travelled, travelled + r, p + r, speed, frozenset())
        judged.times_s.append(start_s + t)
        judged.contradicting.append(judged.pairs.contradicting(image, (), 0))
        judged.apart.append(judged.pairs.report(start_s + t))
    return judged


def goes(name: str, velocity: tuple[float, float, float]):
    return lambda n, t: max(0.0, t - FROM_S) * np.array(velocity) if n == name else np.zeros(3)


def jumps(name: str, displacement: tuple[float, float, float]):
    return lambda n, t: np.array(displacement) if n == name and t > FROM_S else np.zeros(3)


UNKIND = {
    "prints 3 % apart": {"scale": lambda n, t: 1.03 if n == "left" else 0.97, "aircraft_W": approach},
    "other markers, prints 3 % apart": {
        "scale": lambda n, t: 1.03 if (int(t / 2) % 2 == 0) == (n == "left") else 0.97,
        "aircraft_W": lambda t: hover(t) - (3.0, 0.0, 0.0),
    },
    "tilt error that turns by 1.5°": {"rpy_rad": lambda t: (0.026 * np.sin(t), 0.026 * np.cos(t), 0.0)},
    "heading that changes by 5°": {"rpy_rad": lambda t: (0.0, 0.0, 0.087 * np.sin(t / 2))},
    "heading, tilt and prints": {
        "rpy_rad": lambda t: (0.026, 0.026 * np.cos(t), 0.087 * np.sin(t / 2)),
        "scale": lambda n, t: 1.03 if (int(t / 2) % 2 == 0) == (n == "left") else 0.97,
    },
    "never in one image, velocity 20 cm/s wrong": {
        "seen": lambda n, i: (n == "left") == (i // 15 % 2 == 0),
        "velocity_error": (0.14, -0.14, 0.0),
    },
    "one out of sight for 5 s": {"seen": lambda n, i: n == "left" or not 120 < i < 270, "velocity_error": (0.2, 0, 0)},
}


@pytest.mark.parametrize("errors", UNKIND.values(), ids=UNKIND)
def test_unkind_sensors_and_good_prints_are_no_contradiction(errors):
    judged = fly(**errors)
    assert not any(judged.contradicting) and judged.first_s() == np.inf


CONTRADICTIONS = {
    "moved by 1 m": ({"moved_W": jumps("right", (1.0, 0.0, 0.0))}, 0.5),
    "moves with 0.2 m/s": ({"moved_W": goes("right", (0.2, 0.0, 0.0))}, 4.5),
    "moves while the aircraft comes nearer": (
        {"moved_W": goes("right", (-0.2, 0.0, 0.0)), "aircraft_W": approach},
        6.0,
    ),
    "print of 0.7 of its size takes its place": (
        {"scale": lambda n, t: 1 / 0.7 if n == "right" and t > FROM_S else 1.0},
        0.5,
    ),
    "in every second image": (
        {"moved_W": lambda n, t: (2.0 * (n == "right" and t > FROM_S and round(t / IMAGE_S) % 2), 0, 0)},
        2.0,
    ),
    "never in one image": (
        {"moved_W": jumps("right", (2.0, 0.0, 0.0)), "seen": lambda n, i: (n == "left") == (i % 2 == 0)},
        0.5,
    ),
}


@pytest.mark.parametrize("attack, within_s", CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_a_bundle_that_left_its_place_is_reported_and_neither_of_two_is_used(attack, within_s):
    judged = fly(**attack)
    assert FROM_S < judged.first_s() <= FROM_S + within_s
    assert judged.apart[-1].bundles == TWO and judged.apart[-1].apart_m > 0.4
    last = judged.contradicting[-30:]
    assert frozenset.union(*last) == set(TWO)
    assert not any(c for t, c in zip(judged.times_s, judged.contradicting, strict=True) if t <= FROM_S)


def test_of_three_bundles_the_one_that_moved_is_not_used():
    judged = fly(names=tuple(PLACES_W), moved_W=jumps("above", (0.0, 1.5, 0.0)))
    assert judged.contradicting[-1] == {"above"}
    assert judged.apart[-1].apart_m == pytest.approx(1.5, abs=0.1) and "above" in judged.apart[-1].bundles


def test_single_outliers_are_not_used_and_not_reported():
    judged = fly(moved_W=lambda n, t: (2.0 * (n == "left" and round(t / IMAGE_S) % 6 == 5), 0.0, 0.0))
    assert judged.first_s() == np.inf
    used = [not c for t, c in zip(judged.times_s, judged.contradicting, strict=True) if t > 1.0]
    assert np.mean(used) == pytest.approx(5 / 6, abs=0.01)


def test_an_ambiguous_observation_is_judged_like_the_last_clear_one():
    judged = fly(moved_W=jumps("right", (1.0, 0.0, 0.0)))
    assert judged.pairs.contradicting({}, TWO, 0) == set(TWO)
    assert fly().pairs.contradicting({}, TWO, 0) == frozenset()


def test_bundles_placed_again_on_the_ground_agree():
    judged = fly()
    judged.pairs.forget()
    fly(moved_W=lambda n, t: (0.0, 3.0 * (n == "right"), 0.0), judged=judged)
    assert not any(judged.contradicting) and judged.first_s() == np.inf


# --- in the estimator --------------------------------------------------------------------------------------------------


class Moved(TwoBundles):
    """From a time on, bundles are displaced in the camera frame."""

    def __init__(self, vehicle, displaced, from_s=16.0, armed=lambda t: True):
        super().__init__(vehicle, seed=5)
        self.edit = self.attacked
        self.displaced, self.from_s, self.armed = displaced, from_s, armed

    def attacked(self, message):
        message = self.with_second(message)
        if isinstance(message, FcuStatus):
            message.armed = self.armed(message.stamp_s)
        if isinstance(message, Markers):
            for o in message.observations:
                shift = np.array(self.displaced.get(o.bundle, (0, 0, 0))) * (message.stamp_s > self.from_s)
                if callable(self.displaced.get("rate")):
                    shift = shift * self.displaced["rate"](message.stamp_s - self.from_s)
                o.best.p_CM = tuple(np.array(o.best.p_CM) + shift)
        return message


def test_the_estimate_does_not_follow_a_bundle_that_another_one_contradicts(vehicle):
    slowly = {"pier": (0.25, 0.0, 0.0), "rate": lambda t: max(0.0, t)}  # slower than the velocity may be wrong
    flight, node = Moved(vehicle, slowly), EstimatorNode(vehicle, "pier")
    flight.run(node, 16.0)
    apart_m = np.array([s.witness.bundles_apart_m for s in flight.statuses])
    assert apart_m[-1] > 2.0 and flight.statuses[-1].witness.bundles_apart == ("beside", "pier")
    first = int(np.argmax(apart_m > 0))
    assert flight.statuses[first].stamp_s < 16.0 + 4.5
    counted = flight.statuses[-1].rejected["marker_contradicted"]
    assert counted > 200
    assert flight.states[-1].marker_age_s > 4.0, "no observation of either was used since"


def test_a_bundle_that_was_moved_in_flight_does_not_substitute_for_the_other(vehicle):
    flight, node = Moved(vehicle, {"beside": (1.5, 0.0, 0.0)}), EstimatorNode(vehicle, "pier")
    flight.run(node, 9.0)
    assert flight.statuses[-1].witness.bundles_apart_m == pytest.approx(1.5, abs=0.1)
    flight.first_seen = False
    error_m = np.linalg.norm(np.array(flight.run(node, 3.0).p_WM) - flight.states[-600].p_WM)
    assert error_m < 0.2 and flight.states[-1].marker_age_s > 3.0


def test_a_bundle_that_was_placed_again_on_the_ground_is_used_again(vehicle):
    flight = Moved(vehicle, {"beside": (1.5, 0.0, 0.0)}, from_s=16.0, armed=lambda t: not 16.0 < t < 18.0)
    node = EstimatorNode(vehicle, "pier")
    flight.run(node, 12.0)
    assert all(s.witness.bundles_apart_m == 0.0 for s in flight.statuses)
    before = flight.states[-1].p_WM
    flight.first_seen = False
    state = flight.run(node, 3.0)
    assert state.marker_age_s < 0.3 and np.linalg.norm(np.array(state.p_WM) - before) < 0.1
