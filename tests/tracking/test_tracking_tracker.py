"""The tracker node: every image answered, regions followed, bad input counted."""

import cv2
import msgspec
import numpy as np
import pytest
from synthetic_view import ROOT, message, pose, render, vehicle, with_tracking

from companion.core.camera_model import CameraModel
from companion.core.clock import SimulatedStopwatch
from companion.core.frames import rotation_matrix
from companion.core.messages import TOPICS, Image, Markers, Photo, PhotoRequest
from companion.core.site import Bundle, Marker, Site, load_site
from companion.runtime.process import HealthMonitor
from companion.tracking.detectors import detector_for
from companion.tracking.tracker import FROZEN_IMAGES, TrackerNode

VEHICLE = vehicle()
CAMERA = CameraModel(VEHICLE.camera)
SITE = load_site(ROOT / "config/markers/pier.toml")
PIER = SITE.bundle[0]
EMPTY = np.full((480, 640), 120, np.uint8)
R, P = pose(0.1, 0.25, 0.05, (0.2, 0.1, 4.2))
VIEW = render(CAMERA, PIER, R, P)


def tracker(v=VEHICLE, site=SITE, cost_s=0.0):
    return TrackerNode(v, site, SimulatedStopwatch(cost_s))


def send(node, gray, stamp_s):
    return list(node.handle(message(gray, stamp_s), stamp_s + 0.05))


def markers(node, gray, stamp_s) -> Markers:
    return send(node, gray, stamp_s)[0]


def test_a_view_of_the_pier_gives_its_pose_within_a_few_millimetres():
    out = markers(tracker(), VIEW, 1.0)
    assert (out.stamp_s, out.valid, out.search, len(out.observations)) == (1.0, True, "full", 1)
    seen = out.observations[0]
    assert seen.bundle == "pier"
    assert {m.id for m in seen.markers} == {23, 40, 62, 98, 124}
    assert np.abs(np.array(seen.best.p_CM) - P).max() < 0.006
    assert np.abs(rotation_matrix(seen.best.q_CM) - R).max() < 0.01
    assert seen.best.reprojection_rms_px < 0.2
    assert not seen.ambiguous
    assert seen.corner_noise_px == VEHICLE.tracking.corner_noise_px
    covariance = np.reshape(seen.covariance, (6, 6))
    assert (np.linalg.eigvalsh(covariance) > 0).all()
    for m in seen.markers:
        expected = CAMERA.project(np.array(m.corners_M) @ R.T + P)
        assert np.abs(np.reshape(m.corners_px, (4, 2)) - expected).max() < 0.5


def with_noise(gray, number):
    """The picture with another grey level in one pixel, as no two images of a camera are the same."""
    changed = gray.copy()
    changed[0, 0] = number
    return changed


def test_an_image_without_markers_is_reported_too():
    out = markers(tracker(), EMPTY, 1.0)
    assert out.valid
    assert out.observations == []


def test_a_marker_that_fills_the_image_is_found_within_two_images():
    bent = vehicle(distortion=[-0.3, 0.1, 0.0, 0.0, 0.0])
    one = Bundle(name="one", markers=[Marker(family="aruco_4x4_50", id=3, size_m=0.6)])
    gray = render(CameraModel(bent.camera), one, *pose(0.0, 0.1, 0.05, (0.02, 0.01, 1.05)))
    node = tracker(bent, Site(bundle=[one]))
    markers(node, gray, 1.0)
    seen = markers(node, with_noise(gray, 1), 1.03).observations[0]
    assert np.abs(np.array(seen.best.p_CM) - (0.02, 0.01, 1.05)).max() < 0.003


def test_detection_time_comes_from_the_stopwatch():
    assert markers(tracker(cost_s=0.004), VIEW, 1.0).detect_time_s == pytest.approx(0.004)


def test_pose_errors_agree_with_the_reported_covariance_on_rendered_images():
    """The corner noise of the vehicle file covers the detector's real errors: mean NEES of p below its bound."""
    node, nees = tracker(), []
    for k in range(8):
        R_k, p_k = pose(0.1 * k - 0.3, 0.3 - 0.05 * k, 0.1 * k, (0.05 * k - 0.2, 0.1, 3.0 + 0.4 * k))
        seen = markers(node, render(CAMERA, PIER, R_k, p_k, seed=k), 1.0 + k).observations[0]
        e = np.array(seen.best.p_CM) - p_k
        nees.append(e @ np.linalg.solve(np.reshape(seen.covariance, (6, 6))[:3, :3], e))
    assert np.mean(nees) < 3.0


def test_following_gives_the_same_corners_as_a_full_search():
    following, full = tracker(), tracker(with_tracking(VEHICLE, full_search_every=1))
    for k in range(4):
        R_k, p_k = pose(0.1, 0.2, 0.05, (0.2 + 0.05 * k, 0.1, 4.0 - 0.1 * k))
        gray = render(CAMERA, PIER, R_k, p_k, seed=k)
        a, b = markers(following, gray, 1 + k / 30), markers(full, gray, 1 + k / 30)
        assert (a.search, b.search) == ("full" if k == 0 else "roi", "full")
        assert [m.id for m in a.observations[0].markers] == [m.id for m in b.observations[0].markers]
        for m, n in zip(a.observations[0].markers, b.observations[0].markers, strict=True):
            np.testing.assert_allclose(m.corners_px, n.corners_px, atol=0.05)


def test_a_lost_bundle_is_searched_in_the_whole_of_the_same_image():
    node = tracker()
    markers(node, VIEW, 1.0)
    moved = render(CAMERA, PIER, *pose(0.0, 0.2, 0.0, (-1.6, -0.9, 5.0)))
    out = markers(node, moved, 1.03)
    assert out.search == "full"
    assert len(out.observations) == 1


def test_the_whole_image_is_searched_at_regular_intervals():
    node = tracker(with_tracking(VEHICLE, full_search_every=3))
    assert [markers(node, with_noise(VIEW, k), 1 + k / 30).search for k in range(7)] == ["full", "roi", "roi"] * 2 + [
        "full"
    ]


def test_a_second_bundle_is_found_while_the_first_is_followed():
    other = Bundle(name="other", markers=[Marker(family="apriltag_36h11", id=3, size_m=0.2)])
    node = tracker(with_tracking(VEHICLE, full_search_every=3), Site(bundle=[PIER, other]))
    assert [o.bundle for o in markers(node, VIEW, 1.0).observations] == ["pier"]
    two = VIEW.copy()
    patch = render(CAMERA, other, *pose(0.2, 0.2, 0.0, (1.2, 0.8, 2.8)))
    two[330:, 450:] = patch[330:, 450:]
    names = [[o.bundle for o in markers(node, with_noise(two, k), 1 + k / 30).observations] for k in range(1, 5)]
    assert names[-1] == ["pier", "other"]


def test_hidden_markers_of_a_bundle_do_not_harm_its_pose():
    gray = VIEW.copy()
    gray[:, :350] = 120  # the left half of the pier
    seen = markers(tracker(), gray, 1.0).observations[0]
    assert {m.id for m in seen.markers} == {40, 62}
    assert np.abs(np.array(seen.best.p_CM) - P).max() < 0.03


def test_a_hidden_marker_is_found_again_while_following():
    hidden = VIEW.copy()
    hidden[:, :350] = 120
    node = tracker()
    markers(node, hidden, 1.0)
    out = markers(node, VIEW, 1.03)
    assert out.search == "roi"
    assert len(out.observations[0].markers) == 5


def test_a_marker_mounted_in_the_wrong_place_is_left_out():
    wrong = [
        Marker(family=m.family, id=m.id, size_m=m.size_m, p_M=(-0.45, -0.22, 0.0) if m.id == 98 else m.p_M)
        for m in PIER.markers
    ]
    seen = markers(tracker(site=Site(bundle=[Bundle(name="pier", markers=wrong)])), VIEW, 1.0).observations[0]
    assert {m.id for m in seen.markers} == {23, 40, 62, 124}
    assert np.abs(np.array(seen.best.p_CM) - P).max() < 0.01


def test_a_bundle_of_which_an_id_is_seen_twice_is_not_used():
    """The marker apart may be the real bundle's, half hidden, and all others those of a copy."""
    gray = VIEW.copy()
    gray[300:430, 20:150] = render(CAMERA, Bundle(name="b", markers=PIER.markers[:1]), *pose(p=(0.45, 0.3, 3.0)))[
        175:305, 255:385
    ]
    seen = markers(tracker(), gray, 1.0)
    assert seen.observations == [] and seen.copied == ("pier",)


def test_a_distant_single_marker_is_reported_as_ambiguous():
    single = Bundle(name="one", markers=[Marker(family="aruco_6x6_250", id=7, size_m=0.3)])
    gray = render(CAMERA, single, *pose(0.1, 0.05, 0.0, (0.2, 0.1, 6.0)))
    seen = markers(tracker(site=Site(bundle=[single])), gray, 1.0).observations[0]
    assert seen.ambiguous
    assert seen.alternative is not None
    assert seen.alternative.reprojection_rms_px >= seen.best.reprojection_rms_px


@pytest.mark.parametrize(
    "bad",
    [
        Image(stamp_s=1.0, width=640, height=480, data=b"\0" * 1000),
        Image(stamp_s=1.0, width=640, height=480, data=b""),
        Image(stamp_s=1.0, width=320, height=240, data=b"\0" * 320 * 240),
        Image(stamp_s=1.0, width=480, height=640, data=b"\0" * 640 * 480),
        Image(stamp_s=1.0, width=-640, height=-480, data=b"\0" * 640 * 480),
        Image(stamp_s=1.0, width=640, height=480, data=VIEW.tobytes(), valid=False),
    ],
)
def test_an_unusable_image_is_answered_invalid_and_counted(bad):
    node = tracker()
    out = list(node.handle(bad, 1.05))
    assert [(type(m), m.valid, m.stamp_s) for m in out] == [(Markers, False, 1.0)]
    assert node.counters["unusable"] == 1
    assert markers(node, VIEW, 1.03).valid


def test_old_and_repeated_images_are_dropped():
    node = tracker()
    assert len(send(node, VIEW, 2.0)) == 1
    assert send(node, VIEW, 2.0) == []
    assert send(node, VIEW, 1.9) == []
    assert send(node, VIEW, float("nan")) == []  # refused by `companion.core.intake`
    assert node.counters["old"] == 2
    assert len(send(node, VIEW, 2.03)) == 1


def test_an_image_stamped_far_ahead_does_not_make_the_later_ones_old():
    node = tracker()
    assert list(node.handle(message(VIEW, 1000.0), 2.0)) == [] and node.counters["old"] == 1
    assert len(send(node, VIEW, 2.03)) == 1


def test_a_picture_that_comes_again_and_again_is_no_observation():
    node = tracker()
    again = [markers(node, VIEW, 1.0 + 0.03 * i) for i in range(FROZEN_IMAGES + 3)]
    assert [m.valid for m in again] == [True] + [False] * (FROZEN_IMAGES + 2)
    assert not any(m.observations for m in again[1:])
    assert (node.counters["repeated"], node.counters["frozen"]) == (FROZEN_IMAGES + 2, 3)
    assert len(markers(node, with_noise(VIEW, 1), 1.5).observations) == 1


@pytest.mark.parametrize("buffers", [2, 4, 32])
def test_a_ring_of_buffers_that_comes_again_and_again_is_not_used(buffers):
    node, ring = tracker(), [with_noise(VIEW, i) for i in range(buffers)]
    first = [markers(node, picture, 1.0 + 0.03 * i) for i, picture in enumerate(ring)]
    assert all(m.valid for m in first)
    again = [markers(node, ring[i % buffers], 3.0 + 0.03 * i) for i in range(3 * buffers)]
    assert not any(m.valid or m.observations for m in again) and node.counters["frozen"] > 0
    assert markers(node, with_noise(VIEW, 99), 9.0).valid


def test_every_picture_that_comes_twice_is_used_once_and_the_fault_is_named():
    node = tracker()
    out = [markers(node, with_noise(VIEW, i // 2), 1.0 + 0.03 * i) for i in range(40)]
    assert [m.valid for m in out] == [True, False] * 20 and all(bool(m.observations) is m.valid for m in out)
    assert node.counters["repeated"] == 20 and node.last_error == "camera repeats its picture"


@pytest.mark.parametrize("former", [0, 1, 9])  # pictures ago among the new ones; 0: always the same one
def test_former_pictures_between_new_ones_are_not_used(former):
    node = tracker()
    for i in range(60):
        assert markers(node, with_noise(VIEW, i), 1.0 + 0.06 * i).valid
        stale = with_noise(VIEW, max(0, i - former) if former else 0)
        assert not markers(node, stale, 1.03 + 0.06 * i).valid
    assert node.counters["frozen"] > 30


def test_a_single_picture_that_comes_again_is_no_fault():
    node = tracker()
    out = [markers(node, with_noise(VIEW, i - (i >= 10)), 1.0 + 0.03 * i) for i in range(30)]
    assert [m.valid for m in out] == [i != 10 for i in range(30)]
    assert (node.counters["repeated"], node.errors) == (1, 0)


def test_a_tracker_slower_than_the_camera_drops_images_that_waited_too_long():
    node, late_s = tracker(), TOPICS["image"].max_age_s + VEHICLE.latency.camera_s
    waiting = [message(with_noise(VIEW, k), 1.0 + k / 30) for k in range(30)]
    now_s, ages_s = waiting[-1].stamp_s + VEHICLE.latency.camera_s, []
    for image in waiting:
        if list(node.handle(image, now_s)):
            ages_s.append(now_s - image.stamp_s)
            now_s += 0.1  # that the work on an image takes
    assert 1 <= len(ages_s) < 5 and max(ages_s) <= late_s
    assert node.counters["late"] == 30 - len(ages_s)
    assert send(node, VIEW, now_s)[0].observations


def test_the_delay_of_a_slow_camera_is_no_waiting():
    latency = msgspec.structs.replace(VEHICLE.latency, camera_s=0.4)
    node = tracker(msgspec.structs.replace(VEHICLE, latency=latency))
    assert list(node.handle(message(VIEW, 1.0), 1.45))


class FailsOnce:
    """The built-in detector with an exception at the first image."""

    def __init__(self):
        self.detector, self.failed = detector_for((m.family, m.id) for m in PIER.markers), False

    def detect(self, gray, region=None, scale=1.0):
        if not self.failed:
            self.failed = True
            raise ZeroDivisionError
        return self.detector.detect(gray, region, scale)


def test_an_error_while_tracking_is_counted_and_not_raised():
    node = TrackerNode(VEHICLE, SITE, SimulatedStopwatch(), FailsOnce())
    out = markers(node, VIEW, 1.0)
    assert not out.valid
    assert node.counters["failed"] == 1
    assert (node.errors, node.last_error) == (1, "detector: ZeroDivisionError")
    assert len(markers(node, with_noise(VIEW, 1), 1.03).observations) == 1


def test_a_photo_is_the_next_image_without_loss():
    node = tracker()
    assert list(node.handle(PhotoRequest(stamp_s=0.9, id=7), 0.9)) == []
    first, photo = send(node, VIEW, 1.0)
    assert isinstance(photo, Photo)
    assert (photo.id, photo.stamp_s) == (7, 1.0)
    decoded = cv2.imdecode(np.frombuffer(photo.png, np.uint8), cv2.IMREAD_UNCHANGED)
    np.testing.assert_array_equal(decoded, VIEW)
    assert len(send(node, VIEW, 1.03)) == 1


def test_a_photo_waits_for_a_usable_image_and_requests_are_bounded():
    node = tracker()
    for i in range(20):
        node.handle(PhotoRequest(stamp_s=0.9, id=i), 0.9)
        node.handle(PhotoRequest(stamp_s=0.9, id=i), 0.9)  # a repeated request is one
    assert len(list(node.handle(Image(stamp_s=1.0, width=640, height=480, data=b""), 1.0))) == 1
    photos = send(node, VIEW, 1.03)[1:]
    assert [p.id for p in photos] == list(range(4, 20))
    assert node.counters["photos_dropped"] == 4
    assert (node.errors, node.last_error) == (5, "unusable image of 640 x 480 px and 0 bytes")


def test_what_the_tracker_counts_reaches_the_health_of_its_process():
    node = tracker()
    for k in range(1 + FROZEN_IMAGES):
        markers(node, VIEW, 1.0 + k / 30)
    assert (node.errors, node.last_error) == (1, "camera repeats its picture")
    for i in range(17):
        node.handle(PhotoRequest(stamp_s=1.5, id=i), 1.5)
    assert (node.errors, node.last_error) == (2, "photo 0: too many requests wait for an image")
    node.handle(message(VIEW, float("nan")), 2.0)
    assert (node.errors, node.last_error) == (3, "image has no time")
    health = HealthMonitor("tracker", node.rate_hz).message(1e9, None, node)
    assert (health.errors, health.last_error) == (3, "image has no time")


def test_two_runs_on_the_same_images_are_equal():
    a, b = tracker(), tracker()
    for k in range(3):
        assert send(a, VIEW, 1 + k / 30) == send(b, VIEW, 1 + k / 30)
    assert list(a.step(2.0)) == []
