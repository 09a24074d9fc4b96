"""Two bundles of one name in an image, markers found twice, mirrored markers: what the tracker leaves out and reports."""

import numpy as np
from synthetic_view import ROOT, message, pose, vehicle

from companion.core.camera_model import CameraModel
from companion.core.messages import Markers
from companion.core.site import load_site
from companion.tracking.detection import Detection
from companion.tracking.tracker import COPY_S, TrackerNode

VEHICLE = vehicle()
CAMERA = CameraModel(VEHICLE.camera)
SITE = load_site(ROOT / "config/markers/pier.toml")
PIER = SITE.bundle[0]
EMPTY = np.full((480, 640), 120, np.uint8)
REAL = pose(0.0, 0.1, 0.0, (-0.6, 0.1, 5.0))
COPY = pose(0.0, 0.1, 0.0, (1.0, 0.1, 7.0))


def view(R, P, markers=PIER.markers) -> list[Detection]:
    return [Detection(m.family, m.id, CAMERA.project(m.corners_M() @ R.T + P)) for m in markers]


class Shown:
    """A detector that finds what a test shows; remembers the regions that it was asked for."""

    def __init__(self) -> None:
        self.detections: list[Detection] = []
        self.regions: list[object] = []

    def detect(self, gray, region=None, scale=1.0) -> list[Detection]:
        self.regions.append(region)
        return [d for d in self.detections if region is None or inside(d, region)]


def inside(detection: Detection, region) -> bool:
    (x, y, w, h), (u, v) = region, detection.corners_px.mean(0)
    return x <= u < x + w and y <= v < y + h


class Camera:
    """Sends images at 30 Hz to a tracker."""

    def __init__(self) -> None:
        self.shown = Shown()
        self.tracker = TrackerNode(VEHICLE, SITE, detector=self.shown)
        self.images = 0

    def see(self, detections: list[Detection], images: int = 1) -> Markers:
        self.shown.detections = detections
        for _ in range(images):
            self.images += 1
            picture = EMPTY.copy()
            picture[0, 0] = self.images % 256  # the same picture again and again is a frozen camera
            (out,) = self.tracker.handle(message(picture, self.images / 30), self.images / 30)
        return out


def test_a_bundle_that_is_in_view_twice_is_reported_and_has_no_observation():
    camera = Camera()
    out = camera.see(view(*REAL) + view(*COPY))
    assert out.copied == ("pier",) and not out.observations and camera.tracker.counters["copies"] == 1


def test_the_rest_of_a_copy_is_not_taken_for_the_bundle():
    """The real bundle is half hidden: the markers that only the copy shows are its, too."""
    camera = Camera()
    out = camera.see(view(*REAL, PIER.markers[:2]) + view(*COPY))
    assert out.copied == ("pier",) and not out.observations


def test_a_copy_outside_of_the_followed_region_is_found_within_a_second_and_stays_found():
    camera = Camera()
    assert camera.see(view(*COPY), 10).observations
    copied = [bool(camera.see(view(*REAL) + view(*COPY)).copied) for _ in range(45)]
    first = copied.index(True)
    assert first <= VEHICLE.tracking.full_search_every and all(copied[first:])


def test_after_the_copy_has_gone_the_bundle_is_used_again():
    camera = Camera()
    camera.see(view(*REAL) + view(*COPY))
    assert not camera.see(view(*REAL), round(COPY_S * 30) - 2).observations
    assert camera.see(view(*REAL), 3).observations


def test_a_marker_that_is_found_twice_in_one_place_is_no_copy():
    camera = Camera()
    again = [Detection(d.family, d.id, d.corners_px + 1.5) for d in view(*REAL, PIER.markers[:1])]
    out = camera.see(view(*REAL) + again)
    assert out.copied == () and len(out.observations) == 1
    assert PIER.markers[0].id not in {m.id for m in out.observations[0].markers}


def test_a_mirrored_marker_is_left_out_and_counted():
    camera = Camera()
    mirrored = [Detection(d.family, d.id, d.corners_px[[1, 0, 3, 2]]) for d in view(*REAL)]
    out = camera.see(mirrored)
    assert not out.observations and camera.tracker.counters["mirrored"] == 5
