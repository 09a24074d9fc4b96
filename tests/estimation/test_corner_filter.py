"""The pose of a bundle from its corners over many images, in a world whose errors are not those of the vehicle file."""

from dataclasses import dataclass, field

import msgspec
import numpy as np
import pytest

from companion.core.camera_model import CameraModel
from companion.core.frames import quat_exp, quat_from_matrix, quat_log, rotation_matrix
from companion.core.messages import BundleObservation, MarkerCorners, PoseSolution
from companion.estimation.camera_turn import Turned
from companion.estimation.corner_filter import (
    BAD_IMAGES,
    DOUBTFUL_IMAGES,
    FIRST_IMAGES,
    MARKERS,
    MARKERS_MAX,
    MARKERS_SEEN_MAX,
    PER_MARKER,
    POSITION,
    ROTATION,
    SWAY,
    TURN_STD_RAD,
    CornerFilter,
    CornerFilters,
    SeenMarker,
)
from companion.estimation.observations import Pose, check, flipped
from companion.tracking.pose import PoseSolver

RATE_HZ = 20.0
FACING = np.diag([1.0, -1.0, -1.0])
SQUARE = np.array([[-0.5, 0.5, 0], [0.5, 0.5, 0], [0.5, -0.5, 0], [-0.5, -0.5, 0]])
PIER = [((-0.45, 0.3), 0.3), ((0.45, 0.3), 0.3), ((-0.45, -0.3), 0.3), ((0.45, -0.3), 0.3), ((0.0, 0.0), 0.15)]
ABOUT = np.array([0.0, 0.0, 3.0])


@dataclass
class World:
    """A camera that moves in front of a bundle, with the errors of its corners."""

    camera: CameraModel
    seed: int
    drift_px: float = 0.5
    drift_time_s: float = 8.0
    white_px: float = 0.4
    size_std: float = 0.012
    sway_rad: float = 0.004
    gyro_bias: np.ndarray = field(default_factory=lambda: np.array([0.0015, -0.001, 0.001]))
    markers: list = field(default_factory=lambda: PIER)
    seen: int | None = None  # markers that each image shows
    distance_m: float = 3.0

    def __post_init__(self):
        self.rng = np.random.default_rng(self.seed)
        self.corners_M = np.array([SQUARE * size + [*middle, 0.0] for middle, size in self.markers])
        n = len(self.markers)
        self.sizes = self.rng.uniform(-(3**0.5), 3**0.5, n) * self.size_std
        self.drift = self.rng.normal(0.0, self.drift_px, (n, 8))
        self.sway = np.zeros(3)
        self.R_CM = rotation_matrix(quat_exp((0.1, -0.08, 0.02))) @ FACING  # without the sway
        self.p_CM = ABOUT.copy()
        self.measured, self.time_s = np.eye(3), 0.0

    def step(self):
        """One image later: (what is seen, where the camera points by its gyroscopes)."""
        dt, rng = 1 / RATE_HZ, self.rng
        turn = rotation_matrix(quat_exp(rng.normal(0.0, 0.01, 3)))
        self.R_CM, self.measured = (
            turn @ self.R_CM,
            rotation_matrix(quat_exp(-self.gyro_bias * dt)) @ turn @ self.measured,
        )
        self.p_CM = ABOUT / ABOUT[2] * self.distance_m + 0.3 * np.sin(
            [0.7 * self.time_s, 1.1 * self.time_s, 0.4 * self.time_s]
        )
        keep = np.exp(-dt / self.drift_time_s)
        self.drift = keep * self.drift + np.sqrt(1 - keep**2) * self.drift_px * rng.normal(size=self.drift.shape)
        keep = np.exp(-dt / 0.5)
        self.sway = keep * self.sway + np.sqrt(1 - keep**2) * self.sway_rad * rng.normal(size=3)
        self.time_s += dt
        return self.image(), Turned(self.time_s, self.measured, 0.001**2 * self.time_s, self.time_s)

    @property
    def R(self):
        return rotation_matrix(quat_exp(self.sway)) @ self.R_CM

    def image(self):
        middle = self.corners_M.mean(axis=1, keepdims=True)
        printed = middle + (1 + self.sizes)[:, None, None] * (self.corners_M - middle)
        px = self.camera.project(printed.reshape(-1, 3) @ self.R.T + self.p_CM).reshape(-1, 8)
        px = px + self.drift + self.rng.normal(0.0, self.white_px, px.shape)
        return [SeenMarker(("aruco", i), px[i], self.corners_M[i]) for i in range(self.seen or len(px))]


@dataclass
class Flown:
    single: np.ndarray  # errors of p_CM and of the rotation of each image's own pose, (n, 6)
    joint: np.ndarray  # of the filter's
    covariances: np.ndarray  # of the noise of one image
    slow: np.ndarray  # of the error that lasts


def errors(world, p_CM, q_CM):
    return [*(p_CM - world.p_CM), *-quat_log(quat_from_matrix(rotation_matrix(q_CM).T @ world.R))]


def fly(vehicle, world, duration_s=60.0, after_s=10.0):
    corners = CornerFilter(vehicle, world.camera)
    before, single, joint, covariances, slow = None, [], [], [], []
    while world.time_s < duration_s:
        seen, now = world.step()
        own = own_pose(vehicle, world.camera, seen)
        found = corners.update(seen, Pose(own.best.p_CM, own.best.q_CM), own.covariance, now.since(before or now))
        before = now
        if found is not None and world.time_s > after_s:
            single.append(errors(world, own.best.p_CM, own.best.q_CM))
            joint.append(errors(world, *found.pose))
            covariances.append(found.covariance)
            slow.append(found.slow)
    return Flown(np.array(single), np.array(joint), np.array(covariances), np.array(slow)), corners


def own_pose(vehicle, camera, seen):
    """What the tracker makes of one image."""
    tracking = vehicle.tracking
    solver = PoseSolver(camera, tracking.corner_noise_px, tracking.max_reprojection_px, 1.0, tracking.marker_size_std)
    return solver.solve(np.array([m.corners_px for m in seen]).reshape(-1, 4, 2), np.array([m.corners_M for m in seen]))


@pytest.fixture(scope="module")
def camera(vehicle):
    return CameraModel(vehicle.camera)


@pytest.fixture(scope="module")
def flights(vehicle, camera):
    return [fly(vehicle, World(camera, seed))[0] for seed in range(12)]


def rms(values):
    return np.sqrt(np.mean(np.square(values)))


def body_errors(flown, of):
    """Errors of the camera's position in the bundle's frame, range times the error of the rotation and of p_CM; and the rotation's."""
    values = np.array(getattr(flown, of))
    return np.array([[*(np.cross(ABOUT, FACING @ v[3:]) + v[:3]), *v[3:]] for v in values])


def lasting(errors_of_images):
    """Means over one second: what a filter that averages images is left with, (seconds, 6)."""
    size = int(RATE_HZ)
    return errors_of_images[: len(errors_of_images) // size * size].reshape(-1, size, 6).mean(axis=1)


def test_the_lasting_errors_of_the_corners_cost_a_fifth_less_than_in_single_images(flights):
    def lasting_rms(of):
        return rms(np.concatenate([lasting(body_errors(f, of)) for f in flights])[:, :3])

    assert lasting_rms("joint") < 0.8 * lasting_rms("single")


def per_number(error, covariance):
    return np.mean([e @ np.linalg.solve(c, e) for e, c in zip(error, covariance, strict=True)]) / 6


def test_the_covariances_are_honest_in_a_world_with_other_numbers(flights):
    """Drift, its time, noise, sizes, sway and bias of this world are all others than the vehicle file's."""
    both = [per_number(f.joint, f.covariances + f.slow) for f in flights]
    assert 0.6 < np.median(both) < 1.6, np.round(both, 2)
    # Of two images in a row the slow error is the same, so their difference has the noise of both.
    white = [per_number(np.diff(f.joint, axis=0), f.covariances[1:] + f.covariances[:-1]) for f in flights]
    assert 0.6 < np.median(white) < 1.6, np.round(white, 2)
    # Over a second the noise becomes small, and what stays is the slow error.
    slow = [per_number(lasting(f.joint), lasting_covariance(f)) for f in flights]
    assert 0.5 < np.median(slow) < 2.0, np.round(slow, 2)


def lasting_covariance(flown):
    size = int(RATE_HZ)
    count = len(flown.joint) // size * size
    return (flown.slow + flown.covariances / size)[:count].reshape(-1, size, 6, 6).mean(axis=1)


def test_the_noise_of_an_image_is_not_that_of_the_next(flights):
    """Less the slow error, which the mean of a second has, neighbours are as good as independent."""
    for flown in flights:
        size = int(RATE_HZ)
        error = flown.joint[: len(flown.joint) // size * size].reshape(-1, size, 6)
        noise = error - error.mean(axis=1, keepdims=True)
        neighbours = (noise[:, 1:] * noise[:, :-1]).sum(axis=(0, 1)) / (noise**2).sum(axis=(0, 1))
        assert (np.abs(neighbours) < 0.15).all(), np.round(neighbours, 2)


def test_the_sizes_of_the_markers_are_found(vehicle, camera):
    world = World(camera, 3)
    _, corners = fly(vehicle, world)
    found = corners._x[MARKERS::PER_MARKER]
    wrong, prior = found[:4] - world.sizes[:4], world.sizes[:4]  # the fifth is too small in the image to measure
    assert rms(wrong) < 0.3 * rms(prior)


def test_jacobian_against_finite_differences(vehicle, camera):
    world = World(camera, 1)
    _, corners = fly(vehicle, world, duration_s=5.0)
    corners._x[SWAY] = 0.0  # the rotation error and the sway are one rotation then
    markers, p_CM = world.image(), np.array([0.1, -0.2, 2.5])
    at, step = corners._expected(markers), 1e-6
    _, D = camera.project_with_jacobian(at.rays_C + p_CM)
    H = corners._jacobian(at, D)

    def expected(direction):
        moved = CornerFilter(vehicle, camera)
        moved.__dict__ |= corners.__dict__ | {"_x": corners._x + direction}
        moved._R_CM = rotation_matrix(quat_exp(direction[ROTATION])) @ corners._R_CM
        at = moved._expected(markers)
        px = camera.project(at.rays_C + p_CM + direction[POSITION]).ravel()
        return px - (at.px - np.concatenate([m.corners_px for m in markers]))

    for i in range(len(corners._x)):
        direction = np.zeros(len(corners._x))
        direction[i] = step
        difference = (expected(direction) - expected(-direction)) / (2 * step)
        np.testing.assert_allclose(H[:, i], difference, rtol=1e-5, atol=1e-4)


def after(vehicle, world, change, duration_s=1.0):
    """Poses (None: not used) after something has changed in the world."""
    corners = CornerFilter(vehicle, world.camera)
    before, found = None, []
    while world.time_s < 20.0 + duration_s:
        seen, now = world.step()
        if world.time_s > 20.0:
            seen, now = change(world, seen, now)
        own = own_pose(vehicle, world.camera, seen)
        result = corners.update(seen, Pose(own.best.p_CM, own.best.q_CM), own.covariance, now.since(before or now))
        before = now
        if world.time_s > 20.0:
            found.append(None if result is None else errors(world, *result.pose))
    return found, corners


def test_a_bundle_that_moves_is_followed_at_once(vehicle, camera):
    def moved(world, seen, now):
        world.p_CM = world.p_CM + [0.4, 0.0, 0.3]
        return world.image(), now

    found, _ = after(vehicle, World(camera, 2), moved)
    assert all(f is not None and np.linalg.norm(f[:3]) < 0.03 for f in found)


def test_a_camera_that_is_knocked_is_given_up_and_begun_again(vehicle, camera):
    def knocked(world, seen, now):
        world.p_CM = rotation_matrix(quat_exp((0.0, 0.2, 0.0))) @ world.p_CM
        at_rest, world.R_CM = world.R_CM, rotation_matrix(quat_exp((0.0, 0.2, 0.0))) @ world.R_CM
        seen = world.image()
        world.R_CM = at_rest
        return seen, now

    found, corners = after(vehicle, World(camera, 2), knocked, duration_s=3.0)
    again = BAD_IMAGES + FIRST_IMAGES
    assert all(f is None for f in found[:again])
    assert all(f is not None for f in found[again + 2 :])


def test_until_it_has_begun_and_where_an_image_does_not_fit_there_is_no_pose(vehicle, camera):
    world = World(camera, 5)
    corners, now = CornerFilter(vehicle, camera), None
    pose, covariance = Pose(ABOUT, quat_from_matrix(FACING)), np.eye(6) * 1e-6
    for _ in range(FIRST_IMAGES):
        seen, stamp = world.step()
        assert corners.update(seen, pose, covariance, stamp.since(now or stamp)) is None
        now = stamp
    assert corners.begun
    far_away = np.eye(6) * 0.1
    other = CornerFilter(vehicle, camera)
    for _ in range(3 * FIRST_IMAGES):
        seen, stamp = world.step()
        assert other.update(seen, pose, far_away, stamp.since(stamp)) is None
    assert not other.begun


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e300, -1e9])
def test_impossible_corners_do_no_harm(vehicle, camera, wrong):
    def broken(world, seen, now):
        px = seen[0].corners_px.copy()
        px[3] = wrong
        return [seen[0]._replace(corners_px=px), *seen[1:]], now

    world = World(camera, 2)
    corners, before = CornerFilter(vehicle, camera), None
    pose = Pose(ABOUT, quat_from_matrix(FACING))
    for i in range(200):
        seen, now = world.step()
        if i > 100 and i % 3 == 0:
            seen, now = broken(world, seen, now)
        own = Pose(world.p_CM, quat_from_matrix(world.R))
        found = corners.update(seen, own if i % 7 else pose, np.eye(6) * 1e-6, now.since(before or now))
        before = now
        if found is not None:
            assert np.isfinite(found.pose.p_CM).all()
            np.linalg.cholesky(found.covariance)
            np.linalg.cholesky(found.slow)


def test_more_markers_than_it_has_places_for(vehicle, camera):
    many = [((x, y), 0.1) for x in np.linspace(-0.8, 0.8, 6) for y in np.linspace(-0.5, 0.5, 3)]
    flown, corners = fly(vehicle, World(camera, 1, markers=many), duration_s=12.0, after_s=5.0)
    assert len(corners._x) == MARKERS + PER_MARKER * MARKERS_MAX
    assert rms(flown.joint[:, :3]) < 0.02
    world = World(camera, 1, markers=many)
    unknown = [SeenMarker(("other", i), m.corners_px, m.corners_M) for i, m in enumerate(world.image())]
    assert (
        corners.update(
            unknown, Pose(ABOUT, quat_from_matrix(FACING)), np.eye(6) * 1e-6, Turned(0.1, np.eye(3), 1e-6, 0.1)
        )
        is None
    )


def test_a_single_marker_keeps_the_range_of_its_size(vehicle, camera):
    world = World(camera, 4, markers=[((0.0, 0.0), 0.4)], size_std=0.0, distance_m=1.5)
    flown, _ = fly(vehicle, world, duration_s=30.0)
    assert rms(flown.joint[:, 2]) < 1.2 * rms(flown.single[:, 2])


@pytest.mark.parametrize("markers", [PIER, [((0.0, 0.0), 0.4)], [((0.0, 0.0), 0.1), ((0.2, 0.0), 0.1)]])
@pytest.mark.parametrize("away_m", [6.0, 12.0, 25.0])
def test_far_away_an_image_says_how_little_it_shows(vehicle, camera, markers, away_m):
    """After a beginning near the bundle: the rotation of one image from there is wrong by many degrees, and R knows it."""
    near, start_s = World(camera, 3, markers=markers, drift_px=0.3, size_std=0.0), 3.0
    corners, before, rows, turns = CornerFilter(vehicle, camera), None, [], []
    for _ in range(int(20.0 * RATE_HZ)):
        near.distance_m = 1.5 + (away_m - 1.5) * min(max(near.time_s - start_s, 0.0) / 5.0, 1.0)
        seen, now = near.step()
        own = Pose(near.p_CM, quat_from_matrix(near.R))
        found = corners.update(seen, own, np.eye(6) * 1e-4, now.since(before or now))
        before = now
        if found is not None and near.time_s > start_s + 6.0:
            error = np.array(errors(near, *found.pose))
            rows.append(error @ np.linalg.solve(found.covariance + found.slow, error) / 6)
            turns.append(np.linalg.norm(error[3:]))
    assert len(rows) > 200  # of 280
    assert 0.1 < np.mean(rows) < 2.0, np.mean(rows)
    assert max(turns) < 6 * TURN_STD_RAD


def test_a_second_marker_frees_the_size_of_the_first(vehicle, camera):
    world = World(camera, 4, seen=1)
    corners, before = CornerFilter(vehicle, camera), None
    for i in range(3 * FIRST_IMAGES):
        world.seen = 1 if i < 2 * FIRST_IMAGES else None
        seen, now = world.step()
        corners.update(seen, Pose(world.p_CM, quat_from_matrix(world.R)), np.eye(6) * 1e-6, now.since(before or now))
        before = now
        if i == 2 * FIRST_IMAGES - 1:
            assert corners._P[MARKERS, MARKERS] < 1e-7
    assert corners._P[MARKERS, MARKERS] > 1e-7


# --- of all bundles


def observation(world, seen, own):
    markers = [MarkerCorners(*m.id, tuple(m.corners_px), tuple(map(tuple, m.corners_M))) for m in seen]
    best = PoseSolution(tuple(own.best.p_CM), tuple(own.best.q_CM), 0.3)
    other = PoseSolution(
        tuple(own.best.p_CM), tuple(quat_from_matrix(rotation_matrix(own.best.q_CM) @ flip(world))), 0.3
    )
    return BundleObservation("pier", markers, best, other, False, tuple(own.covariance.ravel()), 0.3)


def flip(world):
    """A turn about the bundle's vertical, as that between the two poses of a plane."""
    return rotation_matrix(quat_exp((0.0, 0.3, 0.0)))


def refine(vehicle, world, changed=lambda i, o: o, images=120):
    filters, results = CornerFilters(vehicle), []
    for i in range(images):
        seen, now = world.step()
        own = own_pose(vehicle, world.camera, seen)
        received = changed(i, observation(world, seen, own))
        checked = check(received)
        results.append((checked, filters.refined(received, checked, now), now))
    return results, filters


def test_an_ambiguous_image_gets_the_pose_that_the_filter_expects(vehicle, camera):
    def ambiguous(i, o):
        """The wrong pose explains the corners a little better."""
        return msgspec.structs.replace(o, best=o.alternative, alternative=o.best, ambiguous=True) if i > 140 else o

    world = World(camera, 6)
    results, _ = refine(vehicle, world, ambiguous, images=180)
    checked, refined, _ = results[-1]
    assert checked.alternative is not None
    assert refined.alternative is None
    assert np.linalg.norm(errors(world, *refined.best)[3:]) < 0.03


def test_a_rotation_that_began_with_flips_is_given_up(vehicle, camera, monkeypatch):
    """Far away the first images show the flip alone, and all later ones have two poses."""
    monkeypatch.setattr("companion.estimation.corner_filter.FIRST_STD_RAD", 0.05)  # so far that the corners fit to both
    world, flips, images = World(camera, 6, distance_m=10.0), 2 * FIRST_IMAGES, 160
    world.R_CM = rotation_matrix(quat_exp((0.3, 0.0, 0.0))) @ FACING

    def flipped_first(i, o):
        right = Pose(np.array(o.best.p_CM), np.array(o.best.q_CM))
        wrong = PoseSolution(o.best.p_CM, tuple(flipped(right).q_CM), 0.3)
        if i < flips:
            return msgspec.structs.replace(o, best=wrong, alternative=None)
        return msgspec.structs.replace(o, alternative=wrong, ambiguous=i < images)

    results, _ = refine(vehicle, world, flipped_first, images + 60)
    used = [refined for _, refined, _ in results]
    assert any(one.image is not None for one in used[:flips]), "it had begun with the flip"
    assert all(one.image is None for one in used[flips + 30 : images]), "it is given up after some images"
    assert used[-1].image is not None, "and begun again"
    assert np.linalg.norm(errors(world, *used[-1].best)[3:]) < 0.1


def test_it_does_not_begin_with_an_ambiguous_image(vehicle, camera):
    results, _ = refine(vehicle, World(camera, 6), lambda i, o: msgspec.structs.replace(o, ambiguous=True))
    assert all(refined is checked for checked, refined, _ in results)


def test_an_observation_without_corners_is_used_as_it_is(vehicle, camera):
    results, _ = refine(vehicle, World(camera, 6), lambda i, o: msgspec.structs.replace(o, markers=[]), images=30)
    assert all(refined is checked for checked, refined, _ in results)


def with_one_false_corner(o):
    """Of the first marker, by 6 px: too little for the tracker to see it."""
    first = o.markers[0]
    px = np.array(first.corners_px) + [6.0, *7 * [0.0]]
    return msgspec.structs.replace(o, markers=[msgspec.structs.replace(first, corners_px=tuple(px)), *o.markers[1:]])


def test_an_image_with_a_false_corner_is_doubtful_and_the_ones_after_a_few_such_are_as_they_are(vehicle, camera):
    single, first = 80, 90

    def changed(i, o):
        return with_one_false_corner(o) if i == single or i in range(first, first + DOUBTFUL_IMAGES + 2) else o

    results, _ = refine(vehicle, World(camera, 6, drift_px=0.2), changed, images=first + DOUBTFUL_IMAGES + 4)
    used = ["doubtful" if r.doubtful else "own" if r.slow is None else "corrected" for _, r, _ in results]
    assert used[single - 1 : single + 2] == ["corrected", "doubtful", "corrected"]
    assert used[first:] == DOUBTFUL_IMAGES * ["doubtful"] + 2 * ["own"] + 2 * ["corrected"]
    assert all(r.best is c.best for c, r, _ in results if r.doubtful), "it is judged by its own pose"


def test_a_bundle_that_flickers_has_corrected_corners(vehicle, camera):
    """Of 18 markers, so that all places of the filter are taken, each is missed in one image of twenty."""
    grid = [((x, y), 0.15) for x in np.linspace(-0.8, 0.8, 6) for y in np.linspace(-0.6, 0.6, 3)]
    rng = np.random.default_rng(1)

    def missing(_, o):
        return msgspec.structs.replace(o, markers=[m for m in o.markers if rng.random() > 0.05])

    results, _ = refine(vehicle, World(camera, 6, markers=grid), missing, images=8 * FIRST_IMAGES)
    assert np.mean([r.slow is not None for _, r, _ in results[2 * FIRST_IMAGES :]]) > 0.95


def test_of_a_bundle_with_very_many_markers_in_view_the_pose_of_all_is_used(vehicle, camera):
    grid = [((x, y), 0.15) for x in np.linspace(-0.8, 0.8, 5) for y in np.linspace(-0.6, 0.6, 4)]
    for count, corrected in ((MARKERS_SEEN_MAX, True), (MARKERS_SEEN_MAX + 1, False)):
        results, _ = refine(vehicle, World(camera, 6, markers=grid[:count]), images=2 * FIRST_IMAGES)
        assert (results[-1][1] is not results[-1][0]) == corrected


def test_a_late_image_is_used_as_it_is(vehicle, camera):
    world = World(camera, 6)
    results, filters = refine(vehicle, world)
    checked, _, now = results[-1]
    seen, next_ = world.step()
    received = observation(world, seen, own_pose(vehicle, camera, seen))
    assert filters.refined(received, checked, now._replace(time_s=now.time_s - 0.01)) is checked
    assert filters.refined(received, checked, next_) is not checked


# --- what a review broke


def poses_after(vehicle, world, until_s, change):
    """Poses of the filter while something is different in the world: (time, single image's errors, the filter's or None)."""
    corners, before, rows = CornerFilter(vehicle, world.camera), None, []
    while world.time_s < until_s:
        seen, now = world.step()
        change(world)
        own = own_pose(vehicle, world.camera, seen)
        found = corners.update(seen, Pose(own.best.p_CM, own.best.q_CM), own.covariance, now.since(before or now))
        before = now
        rows.append(
            (
                world.time_s,
                errors(world, own.best.p_CM, own.best.q_CM),
                None if found is None else errors(world, *found.pose),
            )
        )
    return rows, corners, before


@pytest.mark.parametrize("away_s", [60.0, 120.0])
def test_after_a_long_time_out_of_sight_it_begins_again(vehicle, camera, away_s):
    """The bias of the gyroscopes has turned the expectation too far for corners that are linearised about it."""
    world = World(camera, 2)
    _, corners, before = poses_after(vehicle, world, 4.0, lambda w: None)
    assert corners.begun
    world.time_s += away_s
    world.measured = rotation_matrix(quat_exp((0.0, 0.1, 0.05))) @ world.measured
    seen, now = world.step()
    pose = Pose(world.p_CM, quat_from_matrix(world.R))
    assert corners.update(seen, pose, np.eye(6) * 1e-4, now.since(before)) is None
    assert not corners.begun


def test_a_mount_that_sways_far_beyond_the_vehicle_file_leaves_single_images(vehicle, camera):
    world = World(camera, 4, sway_rad=0.0)

    def shaken(w):
        w.sway = w.rng.normal(0.0, 0.06, 3)

    rows, _, _ = poses_after(vehicle, world, 20.0, shaken)
    late = [joint for t, _, joint in rows if t > 10.0]
    assert sum(joint is not None for joint in late) < 0.05 * len(late)


def test_along_a_board_of_many_markers_those_in_view_count(vehicle, camera):
    many = [((x, y), 0.15) for x in np.linspace(-3.0, 3.0, 13) for y in (-0.3, 0.3)]
    world, corners, before, used = World(camera, 1, markers=many), CornerFilter(vehicle, camera), None, []
    for i in range(300):
        _, now = world.step()
        middle = int(12 * i / 300)  # of the columns in view
        seen = [m for m in world.image() if abs(m.id[1] // 2 - middle) <= 2]
        found = corners.update(
            seen, Pose(world.p_CM, quat_from_matrix(world.R)), np.eye(6) * 1e-4, now.since(before or now)
        )
        before = now
        used.append(found is not None)
    assert sum(used[200:]) > 30


def test_a_marker_in_a_wrong_place_widens_the_covariance(vehicle, camera):
    right, wrong = World(camera, 3, drift_px=0.1), World(camera, 3, drift_px=0.1)
    displaced = 3.0  # [px] of one marker, which the displacements take

    def misplaced():
        first, *others = World.image(wrong)
        return [first._replace(corners_px=first.corners_px + displaced), *others]

    wrong.image = misplaced
    as_right, as_wrong = (fly(vehicle, world, duration_s=15.0, after_s=5.0)[0] for world in (right, wrong))
    assert len(as_wrong.joint) > 100
    assert as_wrong.slow[-1][0, 0] > 3 * as_right.slow[-1][0, 0]


def test_one_corner_that_cannot_be_costs_one_image(vehicle, camera):
    world = World(camera, 2)
    _, corners, before = poses_after(vehicle, world, 5.0, lambda w: None)
    seen, now = world.step()
    broken = [seen[0]._replace(corners_px=np.full(8, np.nan)), *seen[1:]]
    pose = Pose(world.p_CM, quat_from_matrix(world.R))
    assert corners.update(broken, pose, np.eye(6) * 1e-4, now.since(before)) is None
    seen, later = world.step()
    assert corners.update(seen, pose, np.eye(6) * 1e-4, later.since(now)) is not None
