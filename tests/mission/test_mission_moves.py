"""Conversions between world and bundle are inverse, and moves stay inside the limits."""

import math

import msgspec
import numpy as np
import pytest
from mission_world import PIER_Q_WM, bridge_plan

from companion.core.frames import quat_exp, wrap_angle
from companion.core.trajectory_messages import Hold, Move
from companion.mission import reference_geometry as geometry


def test_world_and_bundle_conversions_are_inverse_for_any_pose():
    rng = np.random.default_rng(1)
    for _ in range(50):
        q = tuple(quat_exp(rng.normal(size=3)))
        p_WM, p_W = tuple(rng.normal(size=3) * 5), tuple(rng.normal(size=3) * 5)
        yaw = float(rng.uniform(-math.pi, math.pi))
        back, yaw_back = geometry.to_world(*geometry.to_bundle(p_W, yaw, p_WM, q), p_WM, q)
        assert back == pytest.approx(p_W, abs=1e-9)
        assert wrap_angle(yaw_back - yaw) == pytest.approx(0.0, abs=1e-9)


def test_standoff_of_a_west_facing_pier_is_west_of_it_and_looks_east():
    p_W, yaw = geometry.to_world((0.5, 0.2, 3.0), 0.0, (12.0, 0.0, 4.0), PIER_Q_WM)
    assert p_W == pytest.approx((9.0, -0.5, 4.2))
    assert yaw == pytest.approx(0.0)
    assert geometry.face_normal(PIER_Q_WM) == pytest.approx((-1.0, 0.0, 0.0))


def test_a_move_turns_by_the_smaller_angle():
    move = geometry.move_or_hold((0.0, 0.0, 0.0), 3.0, (1.0, 0.0, 0.0), -3.0, 1.0, 1.0, 0.5)
    assert isinstance(move, Move)
    assert move.yaw_end_rad - move.yaw_start_rad == pytest.approx(2 * math.pi - 6.0)


def test_a_move_to_the_same_place_is_a_hold():
    assert isinstance(geometry.move_or_hold((1.0, 2.0, 3.0), 0.1, (1.0, 2.0, 3.0), 0.1, 1.0, 1.0, 0.5), Hold)


def test_clamp_keeps_points_inside_all_limits_and_leaves_allowed_points_alone():
    limits, home = bridge_plan().limits, (2.0, -1.0, 0.3)
    assert geometry.clamp((5.0, 0.0, 3.0), home, limits) == pytest.approx((5.0, 0.0, 3.0))
    x, y, z = (a - b for a, b in zip(geometry.clamp((99.0, -99.0, 99.0), home, limits), home, strict=True))
    assert (x, y) == pytest.approx((11.0, -6.0)) and z == pytest.approx(8.0)
    assert geometry.clamp((5.0, 0.0, -3.0), home, limits) == pytest.approx((5.0, 0.0, 0.8))
    low = msgspec.structs.replace(limits, height_min_m=-0.8)
    assert geometry.clamp((5.0, 0.0, -3.0), home, low) == pytest.approx((5.0, 0.0, -0.5))
