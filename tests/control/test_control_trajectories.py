import math

import msgspec
import numpy as np
import pytest

from companion.control.trajectories import duration_s, in_world, is_finite, sample
from companion.core.frames import quat_from_matrix, quat_from_rpy, rotation_matrix
from companion.core.messages import WORLD, MapBundle, Reference, State
from companion.core.trajectories import STOP_M_S2, STOP_MIN_S, begins_at, resumed, stop_point
from companion.core.trajectory_messages import FigureEight, Hold, Line, Move, Raster, Resumed, Spiral, Waypoints


def move(end=(3.0, -2.0, 1.0), yaw_end=2.0, **limits):
    defaults = {"speed_m_s": 1.0, "acceleration_m_s2": 0.8, "yaw_rate_rad_s": 0.5}
    return Move(p_start=(0.0, 0.0, 0.0), yaw_start_rad=0.5, p_end=end, yaw_end_rad=yaw_end, **(defaults | limits))


def reference(trajectory, frame=WORLD):
    return Reference(stamp_s=0.0, id=1, frame=frame, start_s=0.0, trajectory=trajectory)


def state(bundle="pier", p_WM=(5.0, 1.0, 2.0), q_WM=(1.0, 0.0, 0.0, 0.0)):
    return State(
        stamp_s=0.0, p_W=(0.0, 0.0, 0.0), v_W=(0.0, 0.0, 0.0), q_WB=(1.0, 0.0, 0.0, 0.0),
        disturbance_W=(0.0, 0.0, 0.0), gnss_bias_W=(0.0, 0.0, 0.0),
        velocity_bias_W=(0.0, 0.0, 0.0), bundle=bundle, p_WM=p_WM, q_WM=q_WM,
        marker_age_s=0.0, position_std_m=0.1, relative_std_m=0.1, covariance_diag=(), battery_voltage_v=15.0,
        reset_count=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("limits", "binding"),
    [
        ({"speed_m_s": 0.4}, "speed"),
        ({"acceleration_m_s2": 0.05}, "acceleration"),
        ({"yaw_rate_rad_s": 0.05}, "yaw"),
    ],
)
def test_a_move_keeps_its_limits_and_reaches_the_binding_one(limits, binding):
    trajectory = move(**limits)
    times = np.linspace(0, duration_s(trajectory), 4001)
    s = sample(trajectory, 0.0, times)
    peaks = {
        "speed": np.linalg.norm(s.v_W, axis=1).max() / trajectory.speed_m_s,
        "acceleration": np.linalg.norm(s.a_W, axis=1).max() / trajectory.acceleration_m_s2,
        "yaw": np.abs(s.yaw_rate).max() / trajectory.yaw_rate_rad_s,
    }
    assert max(peaks.values()) <= 1 + 1e-9
    assert peaks[binding] == pytest.approx(1, abs=1e-4)


def test_velocity_and_acceleration_are_the_derivatives_of_position():
    times = np.linspace(-1, duration_s(move()) + 1, 20001)
    s = sample(move(), 0.0, times)
    np.testing.assert_allclose(np.gradient(s.p_W, times, axis=0), s.v_W, atol=1e-5)
    np.testing.assert_allclose(np.gradient(s.v_W, times, axis=0), s.a_W, atol=1e-4)
    np.testing.assert_allclose(np.gradient(s.yaw, times), s.yaw_rate, atol=1e-5)


def test_a_move_rests_before_its_start_and_after_its_end():
    s = sample(move(), 5.0, np.array([0.0, 5.0, 5.0 + duration_s(move()), 100.0]))
    np.testing.assert_allclose(s.p_W[:2], 0)
    np.testing.assert_allclose(s.p_W[2:], [(3, -2, 1)] * 2)
    assert np.abs(s.v_W).max() < 1e-12
    assert np.abs(s.a_W).max() < 1e-12


def test_a_move_turns_in_the_shorter_direction():
    trajectory = Move(
        p_start=(0, 0, 0), yaw_start_rad=3.0, p_end=(0, 0, 0), yaw_end_rad=-3.0, speed_m_s=1, acceleration_m_s2=1,
        yaw_rate_rad_s=0.5,
    )  # fmt: skip
    s = sample(trajectory, 0.0, np.linspace(0, duration_s(trajectory), 100))
    assert s.yaw[-1] == pytest.approx(2 * math.pi - 3.0)
    assert (s.yaw_rate >= 0).all()


def test_a_move_of_zero_length_or_zero_limits_is_finite():
    trajectory = move(end=(0.0, 0.0, 0.0), yaw_end=0.5, speed_m_s=0.0, acceleration_m_s2=0.0, yaw_rate_rad_s=0.0)
    assert all(np.isfinite(column).all() for column in sample(trajectory, 0.0, np.linspace(-1, 1, 5)))
    assert math.isfinite(duration_s(move(speed_m_s=0.0, acceleration_m_s2=-1.0)))


def test_a_reference_in_a_bundles_frame_becomes_world():
    """The face points along +x of W: z of M is x of W. 4 m in front of it, facing it, is x = 5 + 4 m and yaw π."""
    R = np.array([[0, 0, 1.0], [1, 0, 0], [0, 1, 0]])  # columns: x, y, z of M in W
    q_WM = tuple(quat_from_matrix(R))
    hold = in_world(reference(Hold(p=(0.5, 0.2, 4.0), yaw_rad=0.0), "pier"), state(q_WM=q_WM))
    np.testing.assert_allclose(hold.p, (9.0, 1.5, 2.2), atol=1e-12)
    assert abs(hold.yaw_rad) == pytest.approx(math.pi)


def test_a_bundle_move_equals_its_transformed_points():
    q_WM = quat_from_rpy(0.1, -0.2, 0.7)
    world = in_world(reference(move(), "pier"), state(q_WM=tuple(q_WM)))
    np.testing.assert_allclose(world.p_end, np.array([5, 1, 2]) + rotation_matrix(q_WM) @ (3.0, -2.0, 1.0))
    assert world.yaw_end_rad - world.yaw_start_rad == pytest.approx(1.5)
    assert duration_s(world) == pytest.approx(duration_s(move()))


def test_an_unknown_bundle_has_no_world_trajectory():
    assert in_world(reference(move(), "girder"), state("pier")) is None
    assert in_world(reference(move(), ""), state("")) is None


def test_a_reference_may_be_in_the_frame_of_any_bundle_of_the_map():
    q_WM = tuple(quat_from_rpy(math.pi / 2, 0.0, -math.pi / 2))  # faces west
    beside = MapBundle(name="beside", p_WM=(7.0, -3.0, 2.0), q_WM=q_WM, age_s=0.1)
    both = msgspec.structs.replace(state(q_WM=(1.0, 0.0, 0.0, 0.0)), bundles=(beside,))
    hold = in_world(reference(Hold(p=(0.5, 0.2, 4.0), yaw_rad=0.0), "beside"), both)
    assert hold.p == pytest.approx((3.0, -3.5, 2.2)) and hold.yaw_rad == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    "trajectory", [Hold(p=(math.nan, 0, 0), yaw_rad=0), Hold(p=(0, 0, 0), yaw_rad=math.inf), move(speed_m_s=math.nan)]
)
def test_numbers_that_are_not_finite_are_detected(trajectory):
    assert not is_finite(reference(trajectory))
    assert is_finite(reference(move()))


def waypoints(**changes):
    defaults = {
        "points": ((0.0, 0.0, 1.0), (2.0, 0.0, 1.5), (2.0, 3.0, 2.0), (-1.0, 3.0, 1.0), (0.0, 0.0, 1.0)),
        "yaws_rad": (0.0, 1.0, 3.0, -3.0, -2.0),
        "speed_m_s": 1.5, "acceleration_m_s2": 1.0, "yaw_rate_rad_s": 0.8,
    }  # fmt: skip
    return Waypoints(**(defaults | changes))


CURVES = {
    "line": Line(p_start=(1.0, 0.5, 1.5), p_end=(-1.0, 0.0, 1.0), yaw_rad=0.3, speed_m_s=0.8,
                 acceleration_m_s2=0.6, stop_s=2.0, laps=2),
    "spiral": Spiral(centre=(0.5, -0.5, 0.75), radius_m=1.0, height_end=2.25, angle_start_rad=0.4, turns=3.0,
                     duration_s=40.0, ramp_s=3.0),
    "figure eight": FigureEight(centre=(0.0, 0.0, 2.0), semi_long=(0.0, 1.25, 0.0), semi_cross=(0.0, 0.0, 0.75),
                                yaw_rad=0.0, period_s=6.28, laps=3, ramp_s=4.0),
    "raster": Raster(centre=(0.0, 1.0, 3.0), width_m=3.0, height_m=1.0, spacing_m=0.4, yaw_rad=0.0, speed_m_s=0.6,
                     acceleration_m_s2=0.5, stop_s=1.0),
    "waypoints": waypoints(),
}  # fmt: skip
CURVES |= {f"rest of {name}": resumed(curve, 0.4 * duration_s(curve)) for name, curve in CURVES.items()}
LIMITED = ("line", "raster", "waypoints")


@pytest.mark.parametrize("name", CURVES)
def test_velocity_and_acceleration_of_every_curve_are_derivatives(name):
    curve = CURVES[name]
    times = np.linspace(-1, duration_s(curve) + 1, 60001)
    s = sample(curve, 0.0, times)
    np.testing.assert_allclose(np.gradient(s.p_W, times, axis=0), s.v_W, atol=2e-5)
    np.testing.assert_allclose(np.gradient(s.v_W, times, axis=0), s.a_W, atol=2e-3)
    np.testing.assert_allclose(np.gradient(s.yaw, times), s.yaw_rate, atol=2e-5)
    jump = np.abs(np.diff(s.a_W, axis=0)).max()
    assert jump < 0.02, "the acceleration jumps"


@pytest.mark.parametrize("name", CURVES)
def test_every_curve_rests_before_its_start_and_after_its_end(name):
    curve = CURVES[name]
    s = sample(curve, 5.0, np.array([0.0, 5.0, 5.0 + duration_s(curve), 1e4]))
    assert np.abs(s.v_W).max() < 1e-9 and np.abs(s.a_W).max() < 1e-9 and np.abs(s.yaw_rate).max() < 1e-9
    np.testing.assert_allclose(s.p_W[0], begins_at(curve)[0], atol=1e-9)
    np.testing.assert_allclose(s.p_W[2], s.p_W[3], atol=1e-9)


@pytest.mark.parametrize("name", LIMITED)
def test_curves_with_limits_keep_them_and_reach_one(name):
    curve = CURVES[name]
    s = sample(curve, 0.0, np.linspace(0, duration_s(curve), 40001))
    speed = np.linalg.norm(s.v_W, axis=1).max() / curve.speed_m_s
    acceleration = np.linalg.norm(s.a_W, axis=1).max() / curve.acceleration_m_s2
    yaw_rate = np.abs(s.yaw_rate).max() / getattr(curve, "yaw_rate_rad_s", 1.0)
    assert max(speed, acceleration, yaw_rate) == pytest.approx(1.0, abs=5e-3)


@pytest.mark.parametrize("name", [name for name in CURVES if not name.startswith("rest")])
@pytest.mark.parametrize("part", [-0.1, 0.0, 0.3, 0.97, 1.0, 1.5])
def test_the_rest_of_an_interrupted_curve_goes_from_where_it_was_to_its_end_on_its_path(name, part):
    curve = CURVES[name]
    flown_s = part * duration_s(curve)
    rest = resumed(curve, flown_s)
    s = sample(rest, 3.0, 3.0 + np.linspace(0.0, duration_s(rest), 20001))
    there = sample(curve, 0.0, np.array([flown_s, duration_s(curve)]))
    np.testing.assert_allclose(s.p_W[[0, -1]], there.p_W, atol=1e-9)
    np.testing.assert_allclose(s.yaw[[0, -1]], there.yaw, atol=1e-9)
    path = sample(curve, 0.0, np.linspace(0.0, duration_s(curve), 20001)).p_W
    from_path = [np.linalg.norm(path - p, axis=1).min() for p in s.p_W[::500]]
    assert max(from_path) < 1e-3
    whole = sample(curve, 0.0, np.linspace(0.0, duration_s(curve), 20001))
    assert np.linalg.norm(s.v_W, axis=1).max() <= np.linalg.norm(whole.v_W, axis=1).max() + 1e-5
    assert np.linalg.norm(s.a_W, axis=1).max() <= np.linalg.norm(whole.a_W, axis=1).max() + STOP_M_S2


def test_a_curve_interrupted_again_goes_on_at_the_second_interruption():
    eight = CURVES["figure eight"]
    once = resumed(eight, 8.0)
    for flown_s in (0.0, 0.5 * once.ramp_s, once.ramp_s + 2.0):
        again = resumed(once, flown_s)
        assert again.curve == eight
        at, begin = sample(once, 0.0, np.array([flown_s])), sample(again, 0.0, np.zeros(1))
        np.testing.assert_allclose(begin.p_W, at.p_W, atol=1e-9)
    assert resumed(once, once.ramp_s + 2.0).from_s == pytest.approx(8.0 + once.ramp_s / 2 + 2.0)


def test_a_line_stops_at_both_ends_and_comes_back():
    line = CURVES["line"]
    leg_s = (duration_s(line) - 4 * line.stop_s) / 4  # the last stop is part of it
    at_ends = np.array([leg_s, leg_s + 2.0, 2 * leg_s + 2.0, 2 * leg_s + 4.0])
    s = sample(line, 0.0, at_ends)
    np.testing.assert_allclose(s.p_W, [line.p_end, line.p_end, line.p_start, line.p_start], atol=1e-12)
    assert np.abs(s.v_W).max() < 1e-12


def test_a_spiral_faces_its_axis_and_ends_at_its_height():
    spiral = CURVES["spiral"]
    s = sample(spiral, 0.0, np.linspace(0, duration_s(spiral), 200))
    ways = np.asarray(spiral.centre)[:2] - s.p_W[:, :2]
    np.testing.assert_allclose(np.linalg.norm(ways, axis=1), 1.0)
    np.testing.assert_allclose(np.column_stack([np.cos(s.yaw), np.sin(s.yaw)]), ways, atol=1e-9)
    assert s.yaw[-1] - s.yaw[0] == pytest.approx(6 * math.pi)
    assert s.p_W[-1, 2] == pytest.approx(2.25)


def test_a_figure_eight_has_its_size_and_its_period_at_full_speed():
    eight = CURVES["figure eight"]
    s = sample(eight, 0.0, np.linspace(0, duration_s(eight), 20001))
    assert np.ptp(s.p_W, axis=0) == pytest.approx((0.0, 2.5, 1.5), abs=1e-4)
    lap = sample(eight, 0.0, np.array([5.0, 5.0 + 6.28]))
    np.testing.assert_allclose(lap.p_W[0], lap.p_W[1], atol=1e-9)
    np.testing.assert_allclose(lap.v_W[0], lap.v_W[1], atol=1e-9)


def test_a_raster_covers_its_face_with_lines_within_its_spacing():
    s = sample(CURVES["raster"], 0.0, np.linspace(0, duration_s(CURVES["raster"]), 20001))
    assert s.p_W[:, 0].min() == pytest.approx(-1.5) and s.p_W[:, 0].max() == pytest.approx(1.5)
    heights = np.unique(np.round(s.p_W[np.abs(s.v_W[:, 0]) > 0.1, 1], 6))
    np.testing.assert_allclose(np.sort(heights), np.linspace(0.5, 1.5, 4), atol=1e-6)


def test_waypoints_are_passed_and_yaw_takes_the_shorter_turn():
    s = sample(waypoints(), 0.0, np.linspace(0, duration_s(waypoints()), 20001))
    for point in waypoints().points:
        assert np.linalg.norm(s.p_W - point, axis=1).min() < 2e-3
    assert np.abs(np.diff(s.yaw)).max() < 0.01 and s.yaw.max() < 2 * math.pi


def test_waypoints_have_less_snap_than_any_other_path_through_them():
    """Least snap: the product of the snaps vanishes for every h that is zero at all points and at rest at the ends."""
    track = waypoints()
    T = duration_s(track)
    times = np.linspace(0, T, 400001)
    p = sample(track, 0.0, times).p_W[:, 0]
    passed = [0.0, T] + [
        times[np.argmin(np.linalg.norm(sample(track, 0.0, times).p_W - q, axis=1))] for q in track.points[1:-1]
    ]
    x = times / T
    h = (x * (1 - x)) ** 4
    for t in passed[2:]:
        h = h * (x - t / T)
    coarse = slice(None, None, 80)
    step = times[80]
    snap = lambda f: np.diff(f[coarse], 4) / step**4  # noqa: E731
    cross = float(np.mean(snap(p) * snap(h)))
    assert abs(cross) < 0.02 * math.sqrt(float(np.mean(snap(p) ** 2) * np.mean(snap(h) ** 2)))


def test_waypoints_that_coincide_or_are_too_few_are_harmless():
    same = waypoints(points=((1.0, 1.0, 1.0),) * 3, yaws_rad=(0.0, 0.0, 0.0))
    assert all(np.isfinite(column).all() for column in sample(same, 0.0, np.linspace(-1, 1, 5)))
    assert not is_finite(reference(waypoints(points=((0.0, 0.0, 1.0),), yaws_rad=(0.0,))))
    assert not is_finite(reference(waypoints(yaws_rad=(0.0, 1.0))))
    assert not is_finite(reference(waypoints(yaws_rad=(0.0, 1.0, 2.0, 3.0, math.nan))))
    assert not is_finite(reference(Resumed(waypoints(yaws_rad=(0.0, 1.0)), 0.0, 1.0)))
    assert not is_finite(reference(Resumed(waypoints(), math.nan, 1.0)))
    assert is_finite(reference(Resumed(waypoints(), 1.0, 1.0)))


@pytest.mark.parametrize("name", CURVES)
def test_a_curve_in_a_bundles_frame_is_turned_and_shifted_into_the_world(name):
    q_WM = quat_from_rpy(0.1, -0.2, 0.7)
    placed = in_world(reference(CURVES[name], "pier"), state(q_WM=tuple(q_WM)))
    times = np.linspace(0, duration_s(placed), 7)
    world, local = sample(placed, 0.0, times), sample(CURVES[name], 0.0, times)
    R = rotation_matrix(q_WM)
    np.testing.assert_allclose(world.p_W, np.array([5, 1, 2]) + local.p_W @ R.T)
    np.testing.assert_allclose(world.a_W, local.a_W @ R.T)
    assert duration_s(placed) == duration_s(CURVES[name])
    assert in_world(reference(CURVES[name]), state()) is CURVES[name]


def stopping(v=(1.2, -0.9, 0.1), a=(0.5, 0.0, 0.2), **changes):
    return move(end=(2.0, 1.0, 0.0), v_start=v, a_start=a, **changes)


def test_a_move_that_begins_in_motion_continues_it_and_ends_at_its_goal():
    trajectory = stopping()
    T = duration_s(trajectory)
    times = np.linspace(-1, T + 1, 40001)
    s = sample(trajectory, 0.0, times)
    np.testing.assert_allclose(np.gradient(s.p_W, times, axis=0), s.v_W, atol=2e-4)
    within = times >= 0
    slope = np.gradient(s.v_W[within], times[within], axis=0)
    np.testing.assert_allclose(slope[1:-1], s.a_W[within][1:-1], atol=1e-3)
    begins = sample(trajectory, 5.0, np.array([5.0]))
    np.testing.assert_allclose(begins.p_W[0], trajectory.p_start, atol=1e-12)
    np.testing.assert_allclose(begins.v_W[0], trajectory.v_start, atol=1e-12)
    np.testing.assert_allclose(begins.a_W[0], trajectory.a_start, atol=1e-12)
    np.testing.assert_allclose(s.p_W[-1], trajectory.p_end, atol=1e-9)
    assert np.abs(s.v_W[-1]).max() < 1e-9 and np.abs(s.a_W[-1]).max() < 1e-9
    before = sample(trajectory, 0.0, np.array([-0.1]))
    np.testing.assert_allclose(before.p_W[0], -0.1 * np.array(trajectory.v_start), atol=1e-12)


@pytest.mark.parametrize("speed", [0.01, 0.3, 1.5, 8.0])
def test_a_stop_keeps_its_limit(speed):
    trajectory = stopping(v=(0.0, speed, 0.0), a=(0.0, 0.0, 0.0), yaw_end=0.5)
    trajectory.p_end = stop_point(trajectory)
    T = duration_s(trajectory)
    s = sample(trajectory, 0.0, np.linspace(0, T, 4001))
    largest = np.linalg.norm(s.a_W, axis=1).max()
    assert largest <= STOP_M_S2 * (1 + 1e-6)
    assert largest == pytest.approx(STOP_M_S2, rel=1e-4) or math.isclose(T, STOP_MIN_S)
    np.testing.assert_allclose(s.p_W[-1] - s.p_W[0], [0.0, speed * T / 2, 0.0], atol=1e-9)
    assert s.v_W[:, 1].min() > -1e-9, "it goes back"


def test_a_motion_in_a_bundles_frame_is_turned_into_the_world():
    q_WM = quat_from_rpy(0.1, -0.2, 0.7)
    world = in_world(reference(stopping(), "pier"), state(q_WM=tuple(q_WM)))
    np.testing.assert_allclose(world.v_start, rotation_matrix(q_WM) @ stopping().v_start)
    np.testing.assert_allclose(world.a_start, rotation_matrix(q_WM) @ stopping().a_start)
