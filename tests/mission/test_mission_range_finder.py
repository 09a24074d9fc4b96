"""The forward range against the face of the bundle."""

import math

import pytest
from msgspec.structs import replace

from companion.core.frames import quat_from_rpy
from companion.core.messages import State
from companion.mission.range_finder import DELAY_S, TOLERANCE_M, face_ahead, shortfall

HOME = (0.0, 0.0, 0.0)
FACE = tuple(quat_from_rpy(math.pi / 2, 0.0, -math.pi / 2))  # its z points at −x


def state(p_W=(0.0, 0.0, 3.0), rpy=(0.0, 0.0, 0.0)) -> State:
    """The aircraft 6 m before a bundle at a height of 3 m."""
    return State(
        stamp_s=1.0, p_W=p_W, v_W=(0.0,) * 3, q_WB=tuple(quat_from_rpy(*rpy)), disturbance_W=(0.0,) * 3,
        gnss_bias_W=(0.0,) * 3, velocity_bias_W=(0.0,) * 3,
        bundle="pier", p_WM=(6.0, 0.0, 3.0), q_WM=FACE, marker_age_s=0.1, position_std_m=0.3, relative_std_m=0.05,
        covariance_diag=(0.01,) * 31, battery_voltage_v=15.5, reset_count=1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("p_W", "rpy", "range_m"),
    [
        ((0.0, 0.0, 3.0), (0.0, 0.0, 0.0), 6.0),
        ((3.0, 1.0, 2.0), (0.2, 0.0, 0.0), 3.0),
        ((0.0, 0.0, 3.0), (0.0, 0.0, 0.4), 6.0 / math.cos(0.4)),
        ((0.0, 0.0, 3.0), (0.0, 0.1, 0.2), 6.0 / (math.cos(0.1) * math.cos(0.2))),
    ],
)
def test_the_ray_hits_the_plane_of_the_face(p_W, rpy, range_m):
    assert face_ahead(state(p_W, rpy)).range_m == pytest.approx(range_m)


def test_the_hit_has_its_place_on_the_face():
    face = face_ahead(state(rpy=(0.0, -0.2, 0.0)))  # the nose is up
    assert face.aside_m == pytest.approx(6.0 * math.tan(0.2)) and face.height_m == pytest.approx(3.0 + face.aside_m)


@pytest.mark.parametrize(
    "other",
    [
        state(rpy=(0.0, 0.0, 0.6)),  # more than 30° aside
        state(rpy=(0.0, 0.0, math.pi)),
        state(p_W=(7.0, 0.0, 3.0)),  # behind it
        state(p_W=(0.0, 3.5, 3.0)),  # beside the bundle's surroundings
        replace(state(p_W=(0.0, 0.0, 1.5)), p_WM=(6.0, 0.0, 1.5)),
        state(p_W=(-12.0, 0.0, 3.0), rpy=(0.0, 0.13, 0.0)),  # the ray may hit the ground before
        replace(state(), q_WB=(math.nan,) * 4),
    ],
)
def test_no_value_where_the_face_is_not_ahead(other):
    assert shortfall(1.0, other, HOME if other.p_W[2] > 2.0 else (0.0, 0.0, 1.0)) is None


def test_no_value_without_a_take_off_point():
    assert shortfall(3.0, state(), None) is None


def test_a_delayed_range_is_not_too_short_while_the_aircraft_flies_away():
    away = replace(state(), v_W=(-3.0, 1.0, 0.5))
    assert face_ahead(away).away_m_s == pytest.approx(3.0)
    assert shortfall(6.0 - 3.0 * DELAY_S, away, HOME) == pytest.approx(0.0)
    toward = replace(state(), v_W=(3.0, 0.0, 0.0))
    assert shortfall(6.0, toward, HOME) == pytest.approx(0.0)


def test_the_tolerance_is_half_a_metre_and_a_tenth_of_the_range():
    near = state(p_W=(3.0, 0.0, 3.0))
    assert shortfall(3.0 - TOLERANCE_M, near, HOME) == pytest.approx(1.0)
    far = state(p_W=(-4.0, 0.0, 3.0))
    assert shortfall(9.0, far, HOME) == pytest.approx(1.0)
    assert shortfall(12.0, far, HOME) < 0.0  # past the edge of the structure
    assert math.isnan(shortfall(9.0, replace(far, p_W=(math.nan, 0.0, 3.0)), HOME))
