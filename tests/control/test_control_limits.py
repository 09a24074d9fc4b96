"""Soft limits of the NMPC: tilt, speed, and the distance to the face of the reference's bundle."""

import msgspec
import numpy as np
import pytest
from control_plant import PLANT_STEP_S, Loop

from acados_gen.ocp import keep_rows, row_nodes
from companion.control.attitude_inversion import tilt_and_thrust
from companion.control.horizon import GRAVITY_W, HELD_PART, Horizon
from companion.control.solver import Nmpc
from companion.control.trajectories import NO_PLANE, sample, standoff_plane
from companion.core.frames import GRAVITY_M_S2, quat_from_matrix
from companion.core.messages import WORLD, Reference
from companion.core.trajectory_messages import Hold

FACE_X_M = 4.0
# Face towards -x, y of the bundle up.
PIER = ("pier", (FACE_X_M, 0.0, 2.0), tuple(quat_from_matrix(np.array([[0, 0, -1], [-1, 0, 0], [0, 1, 0.0]])).tolist()))
FLOOR = ("floor", (0.0, 0.0, 0.5), (1.0, 0.0, 0.0, 0.0))


class RecordingNmpc(Nmpc):
    """A solver that records the status of every solution."""

    def __init__(self, vehicle):
        super().__init__(vehicle)
        self.statuses = []

    def solve(self, x0, references, parameters):
        result = super().solve(x0, references, parameters)
        self.statuses.append(result.status)
        return result


def with_speed_max(vehicle, speed_max_m_s):
    return msgspec.structs.replace(
        vehicle, controller=msgspec.structs.replace(vehicle.controller, speed_max_m_s=speed_max_m_s)
    )


def pier_flight(vehicle, offset_m, x=0.0, frame="pier"):
    """A hold offset_m out of the pier's face, given in its frame or as the same point of the world."""
    nmpc = RecordingNmpc(vehicle)
    loop = Loop(vehicle, nmpc, p=(x, 0.0, 2.0))
    loop.bundle = PIER
    loop.hold((0.0, 0.0, offset_m) if frame == "pier" else (FACE_X_M - offset_m, 0.0, 2.0), frame=frame)
    return loop, nmpc


def speeds_m_s(loop):
    period_s = 1.0 / loop.node.rate_hz
    assert period_s > PLANT_STEP_S
    return np.linalg.norm(np.diff(loop.positions, axis=0), axis=1) / period_s


@pytest.mark.parametrize("offset_m, through_m", [(0.7, 0.02), (0.0, 0.05), (-3.0, 0.1)])
def test_a_reference_behind_the_plane_is_not_flown_to(vehicle, offset_m, through_m):
    """The plane is soft: a reference metres behind it causes a violation of centimetres."""
    loop, nmpc = pier_flight(vehicle, offset_m)
    loop.run(5)
    nearest_m = FACE_X_M - np.array(loop.positions)[:, 0].max()
    assert vehicle.safety.standoff_min_m - through_m < nearest_m < vehicle.safety.standoff_min_m + 0.05
    assert set(nmpc.statuses) == {0}


def test_without_a_bundle_in_the_reference_there_is_no_plane(vehicle):
    loop, _ = pier_flight(vehicle, 0.3, frame=WORLD)
    loop.run(5)
    assert loop.positions[-1][0] == pytest.approx(FACE_X_M - 0.3, abs=0.05)


SWING_RAD = 0.4  # from one cycle to the next


@pytest.mark.parametrize(
    ("force_W", "step_m"),
    [
        ((0.0, 0.0, -9.0), (0.0, 0.0, 0.0)),  # more lift than there is
        ((0.0, 0.0, 9.0), (0.0, 0.0, 0.0)),
        ((0.0, 7.0, -7.0), (0.0, 0.0, 0.0)),
        ((0.0, 0.0, 0.0), (6.0, 0.0, -6.0)),
    ],
)
def test_commands_do_not_swing_while_the_thrust_is_at_its_limit(vehicle, nmpc, force_W, step_m):
    """Without the curvature of the thrust's direction: 60, 3, 45 and 14 swings between the bounds of roll and pitch."""
    loop = Loop(vehicle, nmpc, p=(0.0, 0.0, 20.0))
    loop.hold((0.0, 0.0, 20.0))
    loop.run(1.5)
    begin = len(loop.commands())
    loop.hold(tuple(np.array((0.0, 0.0, 20.0)) + step_m))
    loop.plant.disturbance_W = np.array(force_W)
    loop.run(1)
    loop.plant.disturbance_W = np.zeros(3)
    loop.run(3)
    steps = np.abs(np.diff(loop.commands()[begin:, 1:], axis=0))
    assert np.count_nonzero((steps > SWING_RAD).any(axis=1)) == 0


@pytest.mark.parametrize("force_m_s2", [6.0, 8.0])
def test_an_aircraft_far_behind_the_plane_does_not_climb_away(vehicle, force_m_s2):
    """Pushed through it for five seconds: with the whole return at once the plan climbed 14 m and 49 m."""
    loop, nmpc = pier_flight(vehicle, 1.8, x=FACE_X_M - 1.8)
    loop.run(1.5)
    loop.plant.disturbance_W = np.array([force_m_s2, 0.0, 0.0])
    loop.run(5)
    loop.plant.disturbance_W = np.zeros(3)
    loop.run(6)
    heights = np.array(loop.positions)[:, 2]
    assert heights.max() < 2.0 + 9.0 and heights.min() > 2.0 - 1.0
    assert loop.positions[-1] == pytest.approx((FACE_X_M - 1.8, 0.0, 2.0), abs=0.3)
    assert set(nmpc.statuses) == {0}


@pytest.mark.parametrize("x", [3.3, 3.9])
def test_an_aircraft_behind_the_plane_returns_and_stays_outside(vehicle, x):
    loop, nmpc = pier_flight(vehicle, 0.5, x=x)
    loop.run(4)
    assert loop.positions[-1][0] == pytest.approx(FACE_X_M - vehicle.safety.standoff_min_m, abs=0.03)
    assert set(nmpc.statuses) == {0}


def test_a_reference_too_fast_is_followed_at_the_limit(vehicle):
    top = {}
    for limit_m_s in (1.0, 12.0):
        limited = with_speed_max(vehicle, limit_m_s)
        nmpc = RecordingNmpc(limited)
        loop = Loop(limited, nmpc, p=(0.0, 0.0, 2.0))
        loop.move((0.0, 0.0, 2.0), (20.0, 0.0, 2.0), speed=3.0, acceleration=2.0)
        loop.run(6)
        top[limit_m_s] = speeds_m_s(loop).max()
        assert set(nmpc.statuses) == {0}
    assert 0.9 < top[1.0] < 1.3  # soft: at the end the reference is metres ahead
    assert top[12.0] > 2.5


def test_at_the_speed_limit_the_commands_stay_smooth(vehicle):
    """Without its curvature the limit would not bound the velocity across the plan's, and tilt would jump."""
    limited = with_speed_max(vehicle, 1.5)
    loop = Loop(limited, RecordingNmpc(limited), p=(0.0, 0.0, 2.0))
    loop.plant.v[:] = (1.2, 0.0, 0.0)
    loop.hold((0.0, 6.0, 2.0))
    loop.run(4)
    assert speeds_m_s(loop)[50:].max() < 1.9
    jumps_rad = np.abs(np.diff(loop.commands()[:, 1:], axis=0)).max(axis=1)
    assert np.quantile(jumps_rad[5:], 0.95) < 0.375 * vehicle.controller.tilt_max_rad


@pytest.mark.parametrize("axis", [0, 1])
def test_wind_beyond_the_tilt_bound_does_not_make_the_other_axis_swing(vehicle, axis):
    """Tilting the other axis takes lift and so allows more thrust; the plan must not swing between both bounds of it."""
    nmpc = RecordingNmpc(vehicle)
    loop, noise = Loop(vehicle, nmpc, p=(0.0, 0.0, 3.0)), np.random.default_rng(1)
    loop.edit_state = lambda state: msgspec.structs.replace(
        state, disturbance_W=tuple(np.array(state.disturbance_W) + 0.1 * noise.normal(size=3))
    )
    loop.hold((0.0, 0.0, 3.0))
    loop.run(2)
    beyond_m_s2 = 1.15 * GRAVITY_M_S2 * np.tan(vehicle.controller.tilt_max_rad)

    def rise(loop):
        loop.plant.disturbance_W[axis] = -beyond_m_s2 * min(1.0, (loop.now_s - begin_s) / 1.5)

    begin_s = loop.now_s
    loop.run(4, rise)
    commands = loop.commands()[-100:]
    bound, other = (2, 1) if axis == 0 else (1, 2)
    assert np.abs(commands[:, bound]).max() == pytest.approx(vehicle.controller.tilt_max_rad, rel=0.02)
    assert np.abs(commands[:, other]).max() < 0.15
    assert np.array(loop.positions)[:, 2].min() > 2.5
    assert set(nmpc.statuses) == {0}


def test_an_aircraft_above_the_speed_limit_slows_down_and_always_has_a_plan(vehicle):
    late_m_s = {}
    for limit_m_s in (1.0, 12.0):
        limited = with_speed_max(vehicle, limit_m_s)
        nmpc = RecordingNmpc(limited)
        loop = Loop(limited, nmpc, p=(0.0, 0.0, 2.0))
        loop.plant.v[:] = (2.0, 1.0, 0.0)
        loop.hold((5.0, 2.5, 2.0))
        loop.run(1.6)
        late_m_s[limit_m_s] = speeds_m_s(loop)[-30:].max()
        assert set(nmpc.statuses) == {0}
    assert late_m_s[1.0] < 1.3
    assert late_m_s[12.0] > 2.0


def test_limits_that_are_not_reached_change_nothing(vehicle):
    """Cycle by cycle over a whole flight, compared with a solver without them."""
    bound, free = Nmpc(vehicle), Nmpc(with_speed_max(vehicle, 30.0))
    bound.set_plane((0.0, 0.6, 0.8), -3.0)
    horizon, parameters = Horizon(vehicle, bound.times_s), np.array(vehicle.model_parameters())
    x = np.array([0.1, -0.1, 1.9, 0.0, 0.0, 0.0, 0.0, 0.0, 0.4])
    samples = sample(Hold(p=(0.0, 0.0, 2.0), yaw_rad=0.0), 0.0, bound.times_s)
    horizon.fill(samples, 0.4, np.array([0.5, 0.0, 0.0]), parameters)
    for _ in range(60):
        results = []
        for nmpc in (bound, free):
            nmpc.shift(0.02)
            results.append(nmpc.solve(x, horizon.references, horizon.parameters))
        np.testing.assert_allclose(results[0].inputs[0], results[1].inputs[0], atol=1e-5)
        x = x + 0.4 * (results[1].states[1] - x)


def test_the_warm_start_does_not_change_the_converged_solution(vehicle):
    """Random problems, each solved from the plan of the one before and from a cold start; many touch the plane."""
    warm, cold = Nmpc(vehicle), Nmpc(vehicle)
    rng, parameters = np.random.default_rng(11), np.array(vehicle.model_parameters())
    horizon = Horizon(vehicle, warm.times_s)
    for scale_m in (0.05, 0.1) * 10:
        x = np.array([*rng.normal(size=3) * scale_m, *rng.normal(size=3) * 0.2, *rng.uniform(-0.2, 0.2, 2), 0.3])
        normal_W = rng.normal(size=3)
        disturbance_W = rng.normal(size=3)
        trajectory = Hold(p=(0.0, 0.0, 0.0), yaw_rad=0.0)
        horizon.fill(sample(trajectory, 0.0, warm.times_s), 0.3, disturbance_W, parameters)
        cold.reset()
        for each in (warm, cold):
            each.set_plane(normal_W / np.linalg.norm(normal_W), 0.1)
            for _ in range(12):
                result = each.solve(x, horizon.references, horizon.parameters)
                assert result.status == 0
            each.last = result.inputs[0]
        np.testing.assert_allclose(warm.last, cold.last, atol=1e-3)


def test_the_plane_keeps_the_distance_from_the_face_of_the_references_bundle(vehicle):
    loop = Loop(vehicle)
    loop.bundle = PIER
    state = loop.state()
    reference = Reference(stamp_s=0.0, id=1, frame="pier", start_s=0.0, trajectory=Hold(p=(0, 0, 2.0), yaw_rad=0.0))
    normal_W, least_m = standoff_plane(reference, state, 1.2)
    np.testing.assert_allclose(normal_W, (-1, 0, 0), atol=1e-12)
    assert least_m == pytest.approx(-FACE_X_M + 1.2)
    loop.bundle = FLOOR
    floor = msgspec.structs.replace(reference, frame="floor")
    normal_W, least_m = standoff_plane(floor, loop.state(), 1.2)
    np.testing.assert_allclose(normal_W, (0, 0, 1), atol=1e-12)
    assert least_m == pytest.approx(1.7)
    assert standoff_plane(msgspec.structs.replace(reference, frame=WORLD), loop.state(), 1.2) is NO_PLANE
    assert standoff_plane(reference, loop.state(), 1.2) is NO_PLANE  # the state describes another bundle
    beside = msgspec.structs.replace(reference, before_face=False)
    assert standoff_plane(beside, state, 1.2) is NO_PLANE  # a station beside or behind the face


def test_a_descent_over_a_floor_bundle_is_not_stopped_by_the_plane(vehicle):
    """The descent is flown in the world frame; only a reference in the bundle's frame keeps the distance."""
    heights_m = {}
    for frame in (WORLD, "floor"):
        loop = Loop(vehicle, p=(0.0, 0.0, 2.0))
        loop.bundle = FLOOR
        loop.hold((0.0, 0.0, 0.8) if frame == WORLD else (0.0, 0.0, 0.3), frame=frame)
        loop.run(4)
        heights_m[frame] = loop.positions[-1][2]
    assert heights_m[WORLD] == pytest.approx(0.8, abs=0.05)
    assert heights_m["floor"] == pytest.approx(0.5 + vehicle.safety.standoff_min_m, abs=0.05)


@pytest.mark.parametrize("yaw", [0.0, 1.2, -2.5])
@pytest.mark.parametrize("disturbance_W", [(1.0, -2.0, 0.5), (6.0, 0.0, 0.0), (-3.0, 7.0, 2.0), (5.0, 5.0, -4.0)])
def test_a_plan_contains_at_most_the_disturbance_that_the_tilt_holds(vehicle, nmpc, yaw, disturbance_W):
    horizon = Horizon(vehicle, nmpc.times_s)
    samples = sample(Hold(p=(0.0, 0.0, 2.0), yaw_rad=yaw), 0.0, nmpc.times_s)
    horizon.fill(samples, yaw, np.array(disturbance_W), np.array(vehicle.model_parameters()))
    most = HELD_PART * vehicle.controller.tilt_max_rad
    wanted, held = (
        tilt_and_thrust(GRAVITY_W - np.array(d), yaw)[:2] for d in (disturbance_W, horizon.parameters[0, -4:-1])
    )
    np.testing.assert_allclose(held, np.clip(wanted, -most, most), atol=1e-12)  # roll and pitch
    assert horizon.parameters[0, -2] == disturbance_W[2]
    if np.abs(wanted).max() < most:
        assert tuple(horizon.parameters[0, -4:-1]) == disturbance_W


def test_an_upward_force_beyond_the_weight_leaves_the_plan_finite(vehicle, nmpc):
    horizon = Horizon(vehicle, nmpc.times_s)
    samples = sample(Hold(p=(0.0, 0.0, 2.0), yaw_rad=0.0), 0.0, nmpc.times_s)
    for upward in (9.8, 9.81, 12.0):
        disturbance_W = np.array([3.0, 0.0, upward])
        horizon.fill(samples, 0.0, disturbance_W, np.array(vehicle.model_parameters()))
        assert np.isfinite(horizon.parameters).all() and np.isfinite(horizon.references).all()
        assert nmpc.solve(np.zeros(9), horizon.references, horizon.parameters).status == 0


def test_the_tilt_of_a_plan_is_within_the_bound_whatever_the_gain_of_the_axis(vehicle):
    """Between the nodes with a soft constraint the bounds of the commands limit the tilt."""
    strong = msgspec.structs.replace(vehicle.attitude.roll, gain=1.2)
    vehicle = msgspec.structs.replace(vehicle, attitude=msgspec.structs.replace(vehicle.attitude, roll=strong))
    nmpc = Nmpc(vehicle)
    horizon = Horizon(vehicle, nmpc.times_s)
    parameters = np.array(vehicle.model_parameters())
    horizon.fill(sample(Hold(p=(0.0, 30.0, 0.0), yaw_rad=0.0), 0.0, nmpc.times_s), 0.0, np.zeros(3), parameters)
    for _ in range(5):
        result = nmpc.solve(np.zeros(9), horizon.references, horizon.parameters)
    tilts = np.abs(result.states[:, 6])
    assert tilts.max() == pytest.approx(vehicle.controller.tilt_max_rad, rel=0.01)
    assert np.argmax(tilts) > 0


def test_constraint_rows_are_a_tilt_response_ahead_and_at_the_start_of_each_block():
    assert row_nodes(60, 3.0, 10) == [3, 6, 12, 18, 24, 30, 36, 42, 48, 54, 60]
    assert row_nodes(11, 0.9, 3) == [2, 4, 8, 11]  # blocks of 4, 4, 3
    assert row_nodes(10, 6.0, 20) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]


def test_generated_code_of_another_form_is_refused():
    with pytest.raises(ValueError, match="acados_template"):
        keep_rows("int main(void) { return 0; }", [3])


def test_a_heading_is_integrated_from_its_rates(vehicle, nmpc):
    horizon = Horizon(vehicle, nmpc.times_s)
    samples = sample(Hold(p=(0.0, 0.0, 2.0), yaw_rad=1.0), 0.0, nmpc.times_s)
    horizon.fill(samples, 0.2, np.zeros(3), np.array(vehicle.model_parameters()))
    result = nmpc.solve(np.array([0, 0, 2.0, 0, 0, 0, 0, 0, 0.2]), horizon.references, horizon.parameters)
    expected = 0.2 + nmpc.step_s * np.cumsum([0.0, *horizon.parameters[:-1, -1]])
    np.testing.assert_allclose(result.states[:, 8], expected, atol=1e-12)
