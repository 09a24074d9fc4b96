"""Body-frame and headless modes: equations 16 and 22 to 24 of their source, and the sticks."""

import itertools
import math

import numpy as np
import pytest

from companion.core.arrays import Array
from companion.core.frames import quat_exp, quat_from_rpy, rotation_matrix
from companion.remote.flight_modes import (
    HEADING_HOLD_S,
    RANGE,
    SWITCH_S,
    EulerAngles,
    FlightMode,
    StickModes,
    from_flu,
    gamma_for_heading,
    headless_angles,
    headless_matrix,
    headless_sticks,
    stick_turns,
    to_flu,
    turned_sticks,
    zyx_matrix,
)

TILT_MAX_RAD = math.radians(35.0)
EDGE = math.radians(89.999)
TILTS = [-EDGE, *np.radians(np.arange(-85.0, 86.0, 17.0)), 0.0, EDGE]
TURNS = np.radians(np.arange(-180.0, 181.0, 15.0))
STICKS = [(a, r) for a, r in itertools.product(np.linspace(-1, 1, 9), repeat=2) if a or r]


def turn(axis: int, angle: float) -> Array:
    """Rotation about one axis, from the quaternion, not from the matrices under test."""
    vector = np.zeros(3)
    vector[axis] = angle
    return rotation_matrix(quat_exp(vector))


def px4_thrust_direction(ahead: float, right: float, yaw_rad: float) -> Array:
    """World direction (ENU) of the thrust that PX4 commands in Stabilized: a tilt vector in the heading frame."""
    tilt = rotation_matrix(quat_exp(np.array([right, ahead, 0.0]) * TILT_MAX_RAD))
    direction: Array = (turn(2, yaw_rad) @ tilt)[:, 2]
    return direction


def test_equation_16_is_three_turns_about_fixed_axes() -> None:
    for a, b, g in itertools.product(TILTS, TILTS, TURNS):
        assert np.abs(headless_matrix(a, b, g) - turn(0, a) @ turn(1, b) @ turn(2, g)).max() < 1e-12


def test_the_corrected_equation_1_is_yaw_then_roll_then_pitch() -> None:
    for phi, theta, psi in itertools.product(TILTS, TILTS, TURNS):
        expected = turn(2, psi) @ turn(1, theta) @ turn(0, phi)
        assert np.abs(zyx_matrix(EulerAngles(phi, theta, psi)) - expected).max() < 1e-12


def test_equations_22_to_24_give_the_attitude_of_equation_16_over_the_whole_range() -> None:
    worst = 0.0
    for a, b, g in itertools.product(TILTS, TILTS, TURNS):
        angles = headless_angles(a, b, g)
        worst = max(worst, np.abs(zyx_matrix(angles) - headless_matrix(a, b, g)).max())
        assert abs(angles.theta) < math.pi / 2
    assert worst < 1e-12


def test_the_arcsine_of_equation_23_is_the_same_angle() -> None:
    for a, b, g in itertools.product(TILTS[1:-1], TILTS[1:-1], TURNS):
        printed = math.asin(math.cos(a) * math.sin(b) * math.cos(g) - math.sin(a) * math.sin(g))
        assert headless_angles(a, b, g).theta == pytest.approx(printed, abs=1e-12)


@pytest.mark.parametrize("tilt", [math.pi / 2, -math.pi / 2, 2.0, math.nan])
def test_a_tilt_of_90_degrees_or_none_is_refused(tilt: float) -> None:
    for turns in ((tilt, 0.0), (0.0, tilt)):
        with pytest.raises(ValueError, match="90°"):
            headless_angles(*turns, 0.0)


def test_the_turn_for_a_heading_gives_that_heading() -> None:
    for a, b, psi in itertools.product(TILTS[1:-1], TILTS[1:-1], TURNS):
        got = headless_angles(a, b, gamma_for_heading(a, b, psi)).psi
        assert abs(math.remainder(got - psi, 2 * math.pi)) < 1e-9


def test_the_axes_of_the_source_have_the_nose_along_y() -> None:
    nose_down = from_flu(rotation_matrix(quat_from_rpy(0.0, 0.3, 0.0)))
    assert np.allclose(nose_down, zyx_matrix(EulerAngles(-0.3, 0.0, 0.0)), atol=1e-15)
    right_side_down = from_flu(rotation_matrix(quat_from_rpy(0.3, 0.0, 0.0)))
    assert np.allclose(right_side_down, zyx_matrix(EulerAngles(0.0, 0.3, 0.0)), atol=1e-15)
    anything = rotation_matrix(quat_from_rpy(0.3, -0.2, 1.0))
    assert np.allclose(to_flu(from_flu(anything)), anything, atol=1e-15)


@pytest.mark.parametrize(("ahead", "right"), STICKS)
def test_headless_sticks_tilt_the_thrust_as_equation_16_wherever_the_nose_is(ahead: float, right: float) -> None:
    """Length up to PX4's limit of the tilt; the direction always, far within 1°."""
    wanted = headless_matrix(*stick_turns(ahead, right, TILT_MAX_RAD), 0.0)[:, 2]  # (right, ahead, up)
    tilt = math.acos(wanted[2])
    if tilt > TILT_MAX_RAD:
        level = math.sin(TILT_MAX_RAD) / math.sin(tilt)
        wanted = np.array([level * wanted[0], level * wanted[1], math.cos(TILT_MAX_RAD)])
    for yaw in TURNS:
        got = px4_thrust_direction(*headless_sticks(ahead, right, yaw, TILT_MAX_RAD), yaw)
        assert np.abs(np.array([-got[1], got[0], got[2]]) - wanted).max() < 1e-12


def test_sticks_of_a_velocity_keep_their_length_and_direction_of_the_world() -> None:
    for (ahead, right), yaw in itertools.product(STICKS, TURNS):
        a, r = turned_sticks(ahead, right, yaw)
        in_world = (a - 1j * r) * np.exp(1j * yaw)  # x ahead, y left
        assert in_world == pytest.approx(ahead - 1j * right, abs=1e-12)


def test_body_mode_passes_the_stick_and_headless_turns_it() -> None:
    modes = StickModes(TILT_MAX_RAD)
    assert modes.turn(0.5, -0.25, 2.0, 0.0) == (0.5, -0.25)
    assert modes.set_ahead(0.4)
    modes.mode = FlightMode.HEADLESS
    modes.turn(0.5, 0.0, 0.4 + math.pi / 2, 1.0)
    assert modes.turn(0.5, 0.0, 0.4 + math.pi / 2, 2.0) == pytest.approx((0.0, 0.5), abs=1e-12)
    assert not modes.set_ahead(0.0)


@pytest.mark.parametrize("tilts", [True, False])
def test_a_switch_with_the_stick_held_does_not_jump(tilts: bool) -> None:
    modes = StickModes(TILT_MAX_RAD)
    step_s, last, largest = 0.02, (0.8, 0.3), 0.0
    for i in range(400):
        if i % 60 == 10:
            modes.mode = FlightMode.HEADLESS
        if i % 60 == 22:  # in the middle of the change
            modes.mode = FlightMode.BODY
        now = modes.turn(0.8, 0.3, 3.0, i * step_s, tilts)
        largest, last = max(largest, math.dist(now, last)), now
    assert 0.0 < largest <= 2.0 * step_s / SWITCH_S


def test_bad_sticks_and_a_missing_heading_give_no_stick_beyond_the_range() -> None:
    modes = StickModes(TILT_MAX_RAD, FlightMode.HEADLESS)
    assert modes.turn(1.0, 0.0, math.nan, 0.0) == (0.0, 0.0)
    assert modes.turn(math.nan, math.inf, 0.0, 0.1) == (0.0, 0.0)
    for bad, yaw in itertools.product((5.0, -7.0), TURNS):
        assert max(map(abs, modes.turn(bad, bad, yaw, 0.2))) <= 1.0
    for tilt in (0.0, math.pi / 2, math.nan):
        with pytest.raises(ValueError, match="90°"):
            StickModes(tilt)


STEP_S = 0.02
# what happens to a held headless stick: yaw [rad] at a time [s], NaN for unknown
HEADINGS = {
    "lost for a moment": lambda t: math.nan if 1.0 <= t < 1.1 else 0.7,
    "lost and back": lambda t: math.nan if 1.0 <= t < 2.0 else 0.7,
    "back elsewhere": lambda t: math.nan if 1.0 <= t < 2.0 else 0.7 + 2.5 * (t >= 2.0),
    "back elsewhere while it is held": lambda t: math.nan if 1.0 <= t < 1.1 else 0.7 + 1.5 * (t >= 1.1),
    "every second message": lambda t: math.nan if t >= 1.0 and round(t / STEP_S) % 2 else 0.7,
    "rarely": lambda t: math.nan if round(t / STEP_S) % 20 else 0.7,
    "a reset by 20 degrees": lambda t: 0.7 + math.radians(20.0) * (t >= 1.0),
    "a reset by 180 degrees": lambda t: 0.7 + math.pi * (t >= 1.0),
    "resets in a row": lambda t: 0.7 + 2.0 * int(10.0 * t),
    "a reset across 360 degrees": lambda t: 0.7 + 2.0 * math.pi * (t >= 1.0),
}


def held(yaw, tilts: bool, stick=(0.8, 0.3), duration_s: float = 4.0, switch_s: float = math.inf):
    """The output of a held headless stick, every `STEP_S`; switch_s: then the mode changes every 0.3 s."""
    modes = StickModes(TILT_MAX_RAD, FlightMode.HEADLESS)
    for i in range(50):
        modes.turn(*stick, 0.7, (i - 50) * STEP_S, tilts)
    found = []
    for i in range(round(duration_s / STEP_S)):
        t = i * STEP_S
        if t >= switch_s:
            modes.mode = FlightMode.BODY if int(t / 0.3) % 2 else FlightMode.HEADLESS
        found.append((modes.turn(*stick, yaw(t), t, tilts), modes.centred))
    return found


@pytest.mark.parametrize("tilts", [True, False])
@pytest.mark.parametrize("switch_s", [math.inf, 0.5])
@pytest.mark.parametrize("name", HEADINGS)
def test_no_event_moves_a_held_stick_faster_than_a_switch_of_the_mode(name, switch_s, tilts) -> None:
    sent = [stick for stick, _ in held(HEADINGS[name], tilts, switch_s=switch_s)]
    largest = max(itertools.starmap(math.dist, itertools.pairwise(sent)))
    assert largest <= RANGE * STEP_S / SWITCH_S + 1e-9


def test_a_few_lost_attitudes_do_not_move_the_stick() -> None:
    found = held(HEADINGS["lost for a moment"], tilts=True)
    assert max(math.dist(stick, found[0][0]) for stick, _ in found) < 1e-12
    assert not any(centred for _, centred in found)


def test_without_a_heading_the_stick_moves_to_the_centre_and_back_and_says_so() -> None:
    found = held(HEADINGS["back elsewhere"], tilts=False)
    at = {round(i * STEP_S, 2): entry for i, entry in enumerate(found)}
    assert at[round(1.0 + HEADING_HOLD_S + SWITCH_S, 2)] == ((0.0, 0.0), True)
    assert at[round(2.0 + SWITCH_S, 2)][0] == pytest.approx(turned_sticks(0.8, 0.3, 0.7 + 2.5))
    assert not at[2.0][1] and not at[round(1.0 + HEADING_HOLD_S / 2, 2)][1]


def test_a_step_of_the_heading_is_over_after_the_switching_time() -> None:
    for name, yaw in HEADINGS.items():
        if name.startswith("a reset"):
            found = held(yaw, tilts=False)
            after = found[round((1.0 + SWITCH_S) / STEP_S)][0]
            assert after == pytest.approx(turned_sticks(0.8, 0.3, yaw(2.0)), abs=1e-9), name


@pytest.mark.parametrize("rate_deg_s", [-200.0, -150.0, 45.0, 200.0])
def test_a_nose_that_turns_is_followed_without_delay(rate_deg_s: float) -> None:
    def yaw(t: float) -> float:
        return 0.7 + math.radians(rate_deg_s) * t

    for i, (stick, _) in enumerate(held(yaw, tilts=False)):
        assert stick == pytest.approx(turned_sticks(0.8, 0.3, yaw(i * STEP_S)), abs=1e-9)


def test_a_released_stick_is_the_centre_also_during_a_change() -> None:
    modes = StickModes(TILT_MAX_RAD)
    modes.turn(1.0, 0.0, 2.0, 0.0)
    modes.mode = FlightMode.HEADLESS
    assert modes.turn(1.0, 0.0, 2.0, 0.2) != (1.0, 0.0)
    assert modes.turn(0.0, 0.0, 2.0, 0.22) == (0.0, 0.0)
