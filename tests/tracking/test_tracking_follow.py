"""Following finds the same corners as a search, and uses the search whenever a marker is not confirmed."""

import numpy as np
import pytest
from synthetic_view import pose, render, vehicle

from companion.core.camera_model import CameraModel
from companion.core.site import Bundle, Marker
from companion.tracking.detectors import SquareDetector
from companion.tracking.follow import SEARCH_EVERY, Follower

CAMERA = CameraModel(vehicle().camera)
WANTED = {"aruco_6x6_250": {23, 40, 62, 98}, "apriltag_36h11": {7}}
PLACES = {23: (-0.45, 0.3), 40: (0.45, 0.3), 62: (0.45, -0.3), 98: (-0.45, -0.3)}
MARKERS = [Marker(family="aruco_6x6_250", id=i, size_m=0.3, p_M=(*xy, 0.0)) for i, xy in PLACES.items()]
MARKERS += [Marker(family="apriltag_36h11", id=7, size_m=0.2)]
WHOLE = (0, 0, CAMERA.width_px, CAMERA.height_px)


class CountingSearch:
    def __init__(self, wanted):
        self.search, self.calls = SquareDetector(wanted), 0

    def detect(self, gray, region=None, scale=1.0):
        self.calls += 1
        return self.search.detect(gray, region, scale)


def follower():
    search = CountingSearch(WANTED)
    return Follower(search, search.search.second_decoders, WANTED), search


def view(p, markers=MARKERS, tilt=0.1, seed=0):
    R, p = pose(tilt, 0.2, 0.05, p)
    truth = {(m.family, m.id): CAMERA.project(m.corners_M() @ R.T + p) for m in markers}
    return render(CAMERA, Bundle(name="b", markers=markers), R, p, seed=seed), truth


def errors(found, truth):
    assert {(d.family, d.id) for d in found} == set(truth)
    return np.array([d.corners_px - truth[d.family, d.id] for d in found])


def test_a_swaying_bundle_is_followed_with_the_accuracy_of_the_search():
    f, counting = follower()
    search, followed, searched = SquareDetector(WANTED), [], []
    for k in range(12):  # up to 11 px from image to image
        gray, truth = view((0.3 * np.sin(0.2 * k), 0.1 * np.cos(0.3 * k), 3.2 + 0.02 * k), seed=k)
        before = counting.calls
        found = f.detect(gray, WHOLE if k else None)
        if counting.calls == before:
            followed.append(errors(found, truth))
            searched.append(errors(sorted(search.detect(gray), key=lambda d: [x.id for x in found].index(d.id)), truth))
    assert len(followed) >= 9
    assert np.sqrt(np.mean(np.square(followed))) < 1.05 * np.sqrt(np.mean(np.square(searched)))
    assert np.abs(np.array(followed) - np.array(searched)).max() < 0.15
    assert np.abs(np.mean(followed, axis=(0, 1, 2))).max() < 0.02


@pytest.mark.parametrize("jump_m", [0.06, 0.15, 0.3, 0.5])
def test_a_jump_is_found_at_the_right_place(jump_m):
    f, _ = follower()
    f.detect(view((0.0, 0.0, 3.0))[0])
    f.detect(view((0.0, 0.0, 3.0))[0], WHOLE)
    gray, truth = view((jump_m, 0.05, 3.0))
    assert np.abs(errors(f.detect(gray, WHOLE), truth)).max() < 0.3


@pytest.mark.verify
def test_sudden_accelerations_never_leave_a_corner_on_a_wrong_edge():
    """Unpredicted shifts of 1 to 16 px: small ones are followed, larger ones searched, and all corners are right."""
    followed = []
    for k in range(16):
        f, search = follower()
        for _ in range(2):
            gray, _ = view((0.0, 0.0, 3.6))
            f.detect(gray, WHOLE if search.calls else None)
        gray, truth = view((0.006 * k, 0.0045 * k, 3.6), seed=k)
        assert np.abs(errors(f.detect(gray, WHOLE), truth)).max() < 0.25
        followed.append(search.calls == 1)
    assert all(followed[:5])
    assert not all(followed)


def test_a_marker_that_is_hidden_is_not_reported_and_the_others_are():
    f, search = follower()
    f.detect(view((0, 0, 3.0))[0])
    f.detect(view((0, 0, 3.0))[0], WHOLE)
    assert search.calls == 1
    gray, truth = view((0, 0, 3.0), MARKERS[1:])
    errors(f.detect(gray, WHOLE), truth)
    assert search.calls == 2


def test_another_or_a_rotated_marker_at_the_same_place_is_not_followed():
    f, _ = follower()
    gray, truth = view((0, 0, 3.0))
    f.detect(gray)
    other = [Marker(family="aruco_6x6_250", id=99, size_m=0.3, p_M=MARKERS[0].p_M), *MARKERS[1:]]
    found = f.detect(view((0, 0, 3.0), other)[0], WHOLE)
    assert ("aruco_6x6_250", 23) not in {(d.family, d.id) for d in found}
    f, _ = follower()
    f.detect(gray)
    turned = [Marker(family="aruco_6x6_250", id=23, size_m=0.3, p_M=MARKERS[0].p_M, rpy_rad=(0, 0, 1.5707963))]
    gray, truth = view((0, 0, 3.0), [*turned, *MARKERS[1:]])
    assert np.abs(errors(f.detect(gray, WHOLE), truth)).max() < 0.3


def test_a_marker_that_comes_into_view_is_found_within_some_images():
    f, search = follower()
    part = view((0, 0, 3.0), MARKERS[1:])[0]
    f.detect(part)
    for _ in range(2):  # the first region is always searched while something is missing
        assert len(f.detect(part, WHOLE)) == 4
    assert search.calls == 2
    whole = view((0, 0, 3.0))[0]
    counts = [len(f.detect(whole, WHOLE)) for _ in range(SEARCH_EVERY)]
    assert counts[-1] == 5


def test_markers_outside_the_region_are_not_reported_but_stay_known():
    f, search = follower()
    gray, truth = view((0, 0, 3.0))
    f.detect(gray)
    left = (0, 0, CAMERA.width_px // 2 - 60, CAMERA.height_px)
    assert {d.id for d in f.detect(gray, left)} == {23, 98}
    errors(f.detect(gray, WHOLE), truth)
    assert search.calls == 1


def test_a_marker_seen_twice_is_searched_not_followed():
    f, search = follower()
    gray = view((-0.9, 0.0, 4.5), [MARKERS[0]])[0]
    gray[:, 320:] = gray[:, :320]
    assert len(f.detect(gray)) == 2
    assert len(f.detect(gray, WHOLE)) == 2
    assert search.calls == 2


def test_following_into_corrupted_images_or_out_of_the_image_raises_nothing():
    rng = np.random.default_rng(0)
    for corrupted in (np.zeros((480, 640), np.uint8), rng.integers(0, 256, (480, 640), np.uint8)):
        f, _ = follower()
        for k in range(3):  # towards the right edge
            f.detect(view((0.5 + 0.2 * k, 0, 3.0))[0], WHOLE if k else None)
        assert f.detect(corrupted, WHOLE) == []
        assert f.detect(corrupted, WHOLE) == []
    f, _ = follower()
    f.detect(view((0, 0, 3.0))[0])
    with pytest.raises(ValueError, match="image must be"):
        f.detect(np.zeros((480, 640, 3), np.uint8), WHOLE)
