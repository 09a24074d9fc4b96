"""Lasting errors: thrust gain, heading offset, drifting velocity of the flight controller, misplaced bundle."""

import numpy as np
import pytest
from eskf_truth import HoverSimulation, boxminus, position_M, vector

from companion.core.clock import SimulatedStopwatch
from companion.core.enums import Sensor
from companion.core.frames import quat_exp, quat_multiply
from companion.core.messages import Markers
from companion.estimation.estimator import EstimatorNode
from companion.estimation.filter import Eskf
from companion.estimation.layout import ErrorIndex, StateIndex


@pytest.fixture
def node(vehicle):
    return EstimatorNode(vehicle, None, SimulatedStopwatch())


def relative_errors_m(flight, count):
    pairs = zip(flight.states[-count:], flight.truths[-count:], strict=True)
    return np.array([np.linalg.norm(position_M(vector(s)) - position_M(x)) for s, x in pairs])


@pytest.mark.parametrize("scale", [0.92, 1.05])
def test_a_wrong_thrust_gain_is_thrust_scale_and_not_vertical_disturbance(vehicle, node, scale):
    flight = HoverSimulation(vehicle, seed=21, disturbance=(0.5, -0.3, 0.0))
    flight.thrust_scale = scale
    state = flight.run(node, 25.0)
    assert abs(state.thrust_scale - scale) < 0.025 and abs(state.thrust_scale - scale) < 3 * state.thrust_scale_std
    assert state.thrust_scale_std < 0.5 * vehicle.estimator.thrust_scale.std
    # without the state the disturbance would be the whole of (scale - 1) g: 0.78 and 0.49 m/s²
    assert abs(np.mean([s.disturbance_W[2] for s in flight.states[-500:]])) < 0.2


def test_jitter_of_the_command_does_not_change_the_thrust_scale(vehicle, node):
    """The motors filter the jitter of the command out, so it is no evidence of the thrust's gain."""
    flight, rng = HoverSimulation(vehicle, seed=22, disturbance=(0.5, -0.3, 0.0)), np.random.default_rng(0)
    flight.thrust_jitter = lambda: 0.01 * rng.normal()
    state = flight.run(node, 20.0)
    assert abs(state.thrust_scale - 1.0) < 0.03


def test_slow_jitter_of_the_command_does_not_either_while_the_accelerometer_measures(vehicle, node):
    """Jitter of some tenths of a second stays in the mean of a window of the specific force."""
    flight, rng = HoverSimulation(vehicle, seed=22, disturbance=(0.5, -0.3, 0.0), imu=True), np.random.default_rng(0)
    jitter = np.repeat(0.03 * rng.normal(size=400), 10)
    flight.thrust_jitter = iter(jitter).__next__
    state = flight.run(node, 20.0)
    assert abs(state.thrust_scale - 1.0) < 0.05


def position_std_after_many_images(vehicle, noise_m, lasting_m):
    """Largest std [m] of the position in the bundle's frame; each image with white noise of its own and one error of all."""
    eskf = Eskf(vehicle, adapt=False)
    state = eskf.start(0.0, (0.0, 0.0, 1.5), (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0))
    pose = np.array([0.0, 0.0, 3.0]), np.array([0.0, 1.0, 0.0, 0.0])
    for _ in range(400):
        assert eskf.measure_marker(state, *pose, noise_m**2 * np.eye(6), slow=lasting_m**2 * np.eye(6)).accepted
    return float(eskf.relative(state)[1].diagonal().max()) ** 0.5


def test_the_noise_of_images_is_averaged_and_the_error_that_lasts_is_not(vehicle):
    averaged = position_std_after_many_images(vehicle, noise_m=0.02, lasting_m=0.001)
    lasting = position_std_after_many_images(vehicle, noise_m=0.001, lasting_m=0.02)
    assert lasting > 2 * averaged and lasting > 0.02


FEW, MANY = frozenset({("a", 1)}), frozenset(("a", i) for i in range(1, 5))
FACING = np.array([0.0, 0.0, 3.0]), np.array([0.0, 1.0, 0.0, 0.0])


def looked_at(vehicle, by_corners, images=600, noise_m=0.003, lasting_m=0.02):
    """(Filter, its state, std [m] relative to the bundle) after images of one source or the other; by_corners: of image i."""
    eskf = Eskf(vehicle, adapt=False)
    state = eskf.start(0.0, (0.0, 0.0, 1.5), (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0))
    noise, lasting = noise_m**2 * np.eye(6), lasting_m**2 * np.eye(6)
    for i in range(images):
        state.time_s += 1 / 30
        slow = lasting if by_corners(i) else None
        eskf.measure_marker(state, *FACING, noise, slow=slow, by_corners=by_corners(i))
    return eskf, state, float(eskf.relative(state)[1].diagonal().max()) ** 0.5


def test_the_lasting_error_of_the_corners_is_not_taken_for_that_of_the_tracker(vehicle):
    """After a change of the source nothing of the error that was found is in the next pose, nor known of it."""
    eskf, state, _ = looked_at(vehicle, lambda i: i > 20)
    slow, noise, unit = ErrorIndex.SLOW_POSE, 1e-4 * np.eye(6), vehicle.estimator.camera.slow_pose
    state.nominal[StateIndex.SLOW_POSE] = 0.3
    assert state.slow_source.by_corners and np.abs(state.covariance[slow, : slow.start]).max() > 1e-4
    state.time_s += vehicle.estimator.camera.slow_pose_time_s
    before = state.copy()
    eskf.measure_marker(state, (5.0, 0.0, 3.0), FACING[1], noise)  # an outlier changes nothing
    np.testing.assert_array_equal(state.numbers, before.numbers)
    assert state.slow_source is before.slow_source

    assert eskf.measure_marker(state, *FACING, noise, slow=1e-8 * np.eye(6)).accepted
    assert not state.slow_source.by_corners and np.abs(state.nominal[StateIndex.SLOW_POSE]).max() < 0.05
    np.testing.assert_allclose(state.covariance[slow, slow].diagonal(), unit**2, rtol=0.05)
    np.testing.assert_allclose(
        state.nominal[StateIndex.POSITION], before.nominal[StateIndex.POSITION], rtol=0.0, atol=0.01
    )


def test_another_group_of_markers_is_used_beside_the_first_one_and_shows_nothing_of_its_error(vehicle):
    """Images of both alternate: each image of the other group is used, weighs little, and leaves the lasting error alone."""
    eskf, state, _ = looked_at(vehicle, lambda i: True, images=60)
    slow, before = ErrorIndex.SLOW_POSE, state.copy()
    state.time_s += 1 / 30
    p_CM, noise, lasting = FACING[0] + [0.05, 0.0, 0.0], 1e-6 * np.eye(6), 0.06**2 * np.eye(6)
    update = eskf.measure_marker(state, p_CM, FACING[1], noise, slow=lasting, markers=FEW)
    assert update.accepted and state.accepted_s[Sensor.MARKER] == state.time_s
    assert state.slow_source.by_corners and state.slow_source.other_s == state.time_s
    moved = state.nominal[StateIndex.POSITION] - before.nominal[StateIndex.POSITION]
    assert np.linalg.norm(moved) < 0.01
    np.testing.assert_allclose(state.nominal[StateIndex.SLOW_POSE], before.nominal[StateIndex.SLOW_POSE], atol=0.1)
    assert (state.covariance[slow, slow].diagonal() > 0.9 * before.covariance[slow, slow].diagonal()).all()


def test_a_wrong_pose_of_more_markers_keeps_the_right_one_of_few_in_use(vehicle):
    """One image in 25 shows all markers, turned by 20 degrees: a loose one, or a reflection. The others show half of them."""
    eskf, state, _ = looked_at(vehicle, lambda i: False, images=0)
    turned, oldest_s = quat_multiply(FACING[1], quat_exp((0.0, 0.35, 0.0))), 0.0
    for i in range(300):
        state.time_s += 1 / 30
        pose, markers = ((FACING[0], turned), MANY) if i % 25 == 24 else (FACING, FEW)
        eskf.measure_marker(state, *pose, 1e-5 * np.eye(6), slow=1e-4 * np.eye(6), markers=markers)
        oldest_s = max(oldest_s, state.time_s - state.accepted_s[Sensor.MARKER])
    assert oldest_s < 0.1 and not state.contradiction.refused
    p_M, _ = eskf.relative(state)
    eskf, state, _ = looked_at(vehicle, lambda i: False, images=300)
    assert np.linalg.norm(p_M - eskf.relative(state)[0]) < 0.02


def test_an_honest_pose_of_other_markers_is_no_outlier(vehicle):
    """A bundle that leaves the picture is seen by ever fewer markers; each group is wrong by three times as much as the one before."""
    refused = 0
    for seed in range(15):
        rng = np.random.default_rng(seed)
        eskf, state, _ = looked_at(vehicle, lambda i: False, images=0)
        for size, count in ((0.01, 9), (0.03, 4), (0.09, 1)):
            error, markers = size * rng.normal(size=3), frozenset(("a", i) for i in range(count))
            for _ in range(90):
                state.time_s += 1 / 30
                eskf.measure_marker(
                    state, FACING[0] + error, FACING[1], 1e-6 * np.eye(6), slow=size**2 * np.eye(6), markers=markers
                )
            refused += state.contradiction.refused
    assert refused == 0


def relative_errors_in_turns(vehicle, draws, swap_images, images=600):
    """Normalised squared errors, per number, of the place beside a bundle of which few markers and many come into the picture in turns.

    The pose by each group of markers is wrong by an error of its own that lasts; the filter knows the size of both.
    """
    large, small, white = 0.06, 0.01, 0.003
    found = []
    for seed in [None, *range(draws)]:
        rng = np.random.default_rng(seed)
        eskf = Eskf(vehicle, adapt=False)
        state = eskf.start(0.0, (0.0, 0.0, 1.5), (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0))
        lasting = {FEW: large * rng.normal(size=3), MANY: small * rng.normal(size=3)}
        if seed is None:  # without errors, where the place is
            lasting = dict.fromkeys(lasting, np.zeros(3))
        for i in range(images):
            state.time_s += 1 / 30
            markers = FEW if i // swap_images % 2 else MANY
            size = large if markers is FEW else small
            p_CM = FACING[0] + lasting[markers] + white * rng.normal(size=3)
            eskf.measure_marker(state, p_CM, FACING[1], white**2 * np.eye(6), slow=size**2 * np.eye(6), markers=markers)
        p_M, covariance = eskf.relative(state)
        found.append((p_M, covariance))
    (true_p_M, _), *drawn = found
    return [(p_M - true_p_M) @ np.linalg.solve(covariance, p_M - true_p_M) / 3 for p_M, covariance in drawn]


@pytest.mark.parametrize("swap_images", [1, 15, 60])
def test_errors_of_other_markers_do_not_make_the_place_too_certain(vehicle, swap_images):
    """With one error for both groups their difference would show it: the mean squared error would be 1.8 times what the filter states."""
    assert np.mean(relative_errors_in_turns(vehicle, 12, swap_images)) < 1.0


def test_a_doubtful_image_is_judged_and_corrects_nothing(vehicle):
    eskf, state, _ = looked_at(vehicle, lambda i: True, images=100)
    eskf.adapts, scales = True, state.windows[Sensor.MARKER].scales
    before, turned = state.copy(), quat_multiply(FACING[1], quat_exp((0.0, 0.3, 0.0)))
    for _ in range(60):
        state.time_s += 1 / 30
        update = eskf.judge_marker(state, FACING[0], turned, 1e-4 * np.eye(6))
        assert not update.accepted and update.nis > 100
    np.testing.assert_array_equal(state.nominal, before.nominal)
    np.testing.assert_array_equal(state.covariance, before.covariance)
    assert state.contradiction.refused, "a bundle that is another one is found"
    assert state.windows[Sensor.MARKER].scales == scales, "the noise does not follow images that correct nothing"
    fresh = eskf.start(0.0, (0.0, 0.0, 1.5), (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0))
    assert eskf.judge_marker(fresh, *FACING, 1e-4 * np.eye(6)) is None and not fresh.marker_known


def test_leaving_and_entering_offboard_again_keeps_the_thrust_scale(vehicle, node):
    flight = HoverSimulation(vehicle, seed=23, noise=0.0, disturbance=(0.5, -0.3, 0.0))
    flight.thrust_scale = 0.92
    flight.run(node, 20.0)
    flight.offboard = False
    flight.run(node, 4.0)
    flight.offboard = True
    flight.run(node, 4.0)
    scales = np.array([s.thrust_scale for s in flight.states[1500:]])
    assert np.abs(np.diff(scales)).max() < 0.005
    assert np.abs(scales - 0.92).max() < 0.03


@pytest.fixture(scope="module", params=[False, True], ids=["by command", "by IMU"])
def heading_offset(request, vehicle):
    flight = HoverSimulation(vehicle, seed=24, imu=request.param)
    flight.attitude_bias = np.array([0.004, -0.003, 0.025])
    flight.run(EstimatorNode(vehicle, None, SimulatedStopwatch()), 10.0)
    return flight


def test_a_heading_offset_of_the_flight_controller_is_within_the_published_uncertainty(heading_offset):
    flight = heading_offset
    for state, truth in zip(flight.states[-200::20], flight.truths[-200::20], strict=True):
        error = boxminus(truth, vector(state))[ErrorIndex.ATTITUDE]
        assert (np.abs(error) < 3 * np.sqrt(np.array(state.covariance_diag)[ErrorIndex.ATTITUDE])).all()


def test_a_heading_offset_of_the_flight_controller_has_no_effect_in_the_bundles_frame(heading_offset):
    assert relative_errors_m(heading_offset, 200).max() < 0.06


class Ramp:
    """A velocity error that grows by 1 m/s within one second along x and then stays."""

    def __init__(self, start_s):
        self.start_s, self.t, self.c = start_s, 0.0, np.zeros(3)

    def step(self, dt):
        self.t += dt
        self.c = np.array([np.clip(self.t - self.start_s, 0.0, 1.0), 0.0, 0.0])


def test_a_drifting_velocity_error_does_not_move_the_position_relative_to_the_visible_bundle(vehicle, node):
    """In an earlier filter the position moved by 1.6 m while the state was valid, and no velocity was rejected."""
    flight = HoverSimulation(vehicle, seed=25)
    flight.velocity_error = Ramp(6.0)
    flight.run(node, 12.0)
    assert relative_errors_m(flight, 700).max() < 0.15
    assert relative_errors_m(flight, 200).max() < 0.05
    assert flight.states[-1].marker_age_s < 0.2 and flight.states[-1].reset_count == 0
    np.testing.assert_allclose(vector(flight.states[-1])[StateIndex.VELOCITY_BIAS], [1.0, 0.0, 0.0], atol=0.15)


def corrupted(rng, share):
    """An `edit` that corrupts a share of the observations: half become flips, half become random poses."""

    def edit(message):
        if isinstance(message, Markers) and message.observations and rng.random() < share:
            best = message.observations[0].best
            if rng.random() < 0.5:
                best.q_CM = tuple(quat_multiply(best.q_CM, quat_exp((0.0, 0.6 * rng.choice([-1, 1]), 0.0))))
            else:
                best.p_CM = tuple(np.array(best.p_CM) + rng.normal(0, 1.0, 3))
                best.q_CM = tuple(quat_multiply(best.q_CM, quat_exp(rng.normal(0, 0.5, 3))))
        return message

    return edit


@pytest.mark.parametrize("seed", [31, 32])
def test_a_fifth_of_corrupted_observations_raises_the_error_by_less_than_half(vehicle, seed):
    rms_m = {}
    for share in (0.0, 0.2):
        flight = HoverSimulation(vehicle, seed=seed)
        flight.edit = corrupted(np.random.default_rng(seed), share)
        flight.run(EstimatorNode(vehicle, None, SimulatedStopwatch()), 12.0)
        rms_m[share] = np.sqrt(np.mean(relative_errors_m(flight, 900) ** 2))
    assert rms_m[0.2] < 1.5 * rms_m[0.0]


def test_a_bundle_placed_by_one_false_pose_is_placed_again_after_two_more(vehicle, node):
    flight = HoverSimulation(vehicle, seed=33)
    false_s = []

    def first(message):
        if isinstance(message, Markers) and message.observations and len(false_s) < 1:
            best = message.observations[0].best
            best.p_CM = tuple(np.array(best.p_CM) + (0.5, 0.8, 1.0))
            false_s.append(message.stamp_s)
        return message

    flight.edit = first
    flight.run(node, 3.0)
    errors = [boxminus(x, vector(s))[:3] for s, x in zip(flight.states[-100:], flight.truths[-100:], strict=True)]
    assert np.linalg.norm(errors, axis=1).max() < 0.5, "the false pose did not move the aircraft"
    assert relative_errors_m(flight, 100).max() < 0.05


def test_without_the_bundle_the_published_uncertainty_bounds_the_error(vehicle):
    inside = []
    for seed in range(40, 42):
        flight = HoverSimulation(vehicle, seed=seed)
        node = EstimatorNode(vehicle, None, SimulatedStopwatch())
        flight.run(node, 4.0)
        flight.marker_seen = False
        flight.run(node, 12.0)
        std = np.array([s.relative_std_m for s in flight.states[-1200:]])
        inside.append(relative_errors_m(flight, 1200) < 3 * std)
    assert np.mean(inside) >= 0.99
