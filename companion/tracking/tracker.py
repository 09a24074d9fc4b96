"""The tracker node: images in, bundle observations out."""

from collections import deque
from collections.abc import Iterable
from pathlib import Path

import cv2
import numpy as np

from companion.core import precision
from companion.core.arrays import Array, Image8
from companion.core.camera_model import CameraModel
from companion.core.clock import Stopwatch
from companion.core.config import ConfigError
from companion.core.enums import SearchArea
from companion.core.messages import (
    TOPICS,
    BundleObservation,
    Image,
    MarkerCorners,
    Markers,
    Message,
    Photo,
    PhotoRequest,
    PoseSolution,
)
from companion.core.node import Node
from companion.core.precision import near, rounded, significant
from companion.core.site import Bundle, Site
from companion.core.text import plain
from companion.core.trajectory_messages import Vec3
from companion.core.vehicle import Vehicle
from companion.tracking.detection import Detection, Detector, load_detector
from companion.tracking.detectors import detector_for
from companion.tracking.pose import BundlePose, CandidatePose, PoseSolver
from companion.tracking.region import Box, ImageSearch, RegionKeeper

MAX_PHOTO_REQUESTS = 16  # that wait for an image; older ones are dropped and counted
PNG_COMPRESSION = 1  # 0 to 9; fast, and still lossless
COPY_S = 2.0  # a bundle that was seen twice in one image is not used for this long, and the whole image is searched
APART_OF_SIDE = 0.5  # two finds of one marker that are nearer, over its side, are one marker found twice
# Repetitions that are a fault of camera or driver: so many in a row, or this share of the newest pictures. Single ones are left out
# without a word: a driver that drops a frame may fill the gap.
FROZEN_IMAGES, REPEATED_SHARE = 3, 0.25
AHEAD_MAX_S = 0.1  # of an image's stamp before its arrival: errors of latency and clock
LONGEST_ERROR = 200  # characters
ERRORS = ("unusable", "frozen", "failed", "photos_dropped")  # counters that the health of the process reports
FORMER_PICTURES = 32  # as many buffers as a driver may have (VIDEO_MAX_FRAME of V4L2)
MAX_BOX = 10.0  # of the image: a larger projection of a bundle gives no useful box


class TrackerNode(Node):
    """Finds the bundles of a site in the images of a vehicle's camera.

    Every image is answered by one Markers message with the image's stamp, also when no bundle was seen. An unusable
    image (wrong size, truncated) is answered with ``valid=False``, and so is one of the newest pictures that a camera or
    driver delivers again; an image that is not newer than the last one is dropped. So is one
    that has waited too long, when the tracker is slower than the camera: the next ones are newer. `counters` never decrease.

    detector: replaces the vehicle file's `tracking.detector` and the built-in detectors of the site's marker families.
    vehicle_file: for errors.

    Raises `ConfigError` when a marker, the camera's distortion or the vehicle file's detector is unusable.
    """

    name = "tracker"
    inputs = ("image", "photo_request")
    rate_hz = 10.0

    def __init__(
        self,
        vehicle: Vehicle,
        site: Site,
        stopwatch: Stopwatch | None = None,
        detector: Detector | None = None,
        vehicle_file: str | Path | None = None,
    ) -> None:
        super().__init__()
        camera, tracking = vehicle.camera, vehicle.tracking
        # The delay of the camera itself is no waiting.
        self._age_max_s = TOPICS["image"].max_age_s + vehicle.latency.camera_s
        self._size = (camera.width_px, camera.height_px)
        self._noise_px = tracking.corner_noise_px
        self._camera = CameraModel(camera)
        self._with_xy = vehicle.estimator.marker_mode == "corners"
        self._solver = PoseSolver(
            self._camera,
            tracking.corner_noise_px,
            tracking.max_reprojection_px,
            tracking.flip_ratio,
            tracking.marker_size_std,
        )
        self._regions = RegionKeeper(*self._size, tracking.roi_margin, tracking.full_search_every)
        self._bundles = [_BundleCorners(bundle) for bundle in site.bundle]
        self._home = {key: bundle for bundle in self._bundles for key in bundle.corners_M}
        if len(self._home) != sum(len(b.markers) for b in site.bundle):
            raise ConfigError("site: a marker is in two bundles or twice in one")
        if detector is None and tracking.detector is not None:
            detector = load_detector(tracking.detector, str(vehicle_file or f"vehicle file of '{vehicle.name}'"))
        self._detector = detector or detector_for(self._home)
        self._stopwatch = stopwatch or Stopwatch()
        self._last_stamp_s = -np.inf
        self._pictures: dict[int, None] = {}  # hashes of the newest, in the order in which each came last
        self._repeated: deque[bool] = deque(FORMER_PICTURES * [False], FORMER_PICTURES)  # whether they had come before
        self._photo_requests: list[int] = []
        self._copied_s: dict[str, float] = {}  # of the last image with two bundles of this name
        self.counters = dict.fromkeys(
            (
                "images",
                "unusable",
                "repeated",
                "frozen",
                "old",
                "late",
                "failed",
                "rejected_bundles",
                "photos_dropped",
                "copies",
                "mirrored",
            ),
            0,
        )

    def handle_photo_request(self, message: PhotoRequest, now_s: float) -> Iterable[Message]:
        """The next usable image becomes the photo."""
        if not message.valid or message.id in self._photo_requests:
            return ()
        self._photo_requests.append(message.id)
        if len(self._photo_requests) > MAX_PHOTO_REQUESTS:
            self._note("photos_dropped", f"photo {self._photo_requests.pop(0)}: too many requests wait for an image")
        return ()

    def handle_image(self, message: Image, now_s: float) -> Iterable[Message]:
        """The markers of the image, and the requested photos."""
        stamp_s = message.stamp_s
        if not self._last_stamp_s < stamp_s <= now_s + AHEAD_MAX_S:  # one far ahead would make all later ones old
            self.counters["old"] += 1
            return ()
        if now_s - stamp_s > self._age_max_s:
            self.counters["late"] += 1
            return ()
        self._last_stamp_s = stamp_s
        self.counters["images"] += 1
        size = (message.width, message.height)
        usable = message.valid and size == self._size and len(message.data) == size[0] * size[1]
        if not usable:
            self._note("unusable", f"unusable image of {size[0]} x {size[1]} px and {len(message.data)} bytes")
        if not usable or self._is_repeated(message.data):
            return [Markers(stamp_s=stamp_s, valid=False, observations=[], detect_time_s=0.0, search=SearchArea.FULL)]
        gray = np.frombuffer(message.data, dtype=np.uint8).reshape(message.height, message.width)
        started_s = self._stopwatch.read_s()
        valid = True
        try:
            observations, search, copied = self._track(gray, stamp_s)
        except Exception as error:  # the content of an image must not end the flight; the count reports it
            self._note("failed", plain(f"detector: {type(error).__name__} {error}".strip(), LONGEST_ERROR))
            self._regions.seen(stamp_s, {})
            observations, search, copied, valid = [], SearchArea.FULL, (), False
        elapsed_s = self._stopwatch.read_s() - started_s
        markers = Markers(
            stamp_s=stamp_s,
            valid=valid,
            observations=observations,
            detect_time_s=elapsed_s,
            search=search,
            copied=copied,
        )
        return [markers, *self._photos(gray, stamp_s)]

    @property
    def errors(self) -> int:
        """Messages that were refused, images without a result and photo requests that were dropped."""
        return self.intake.errors + sum(self.counters[name] for name in ERRORS)

    def _note(self, counter: str, text: str) -> None:
        """Count an error; `last_error` names the newest, of messages that are refused too."""
        self.counters[counter] += 1
        self.intake.last_error = text

    def _is_repeated(self, data: bytes) -> bool:
        """Whether the picture has come before, and so says nothing about the present; a fault is counted where it lasts.

        A driver repeats its last picture, or its ring of buffers, also between new ones. The noise of a sensor never gives the
        same picture twice, but in the dark, where it shows nothing anyway.
        """
        picture = hash(data)
        repeated = picture in self._pictures
        self._pictures.pop(picture, None)
        self._pictures[picture] = None
        if len(self._pictures) > FORMER_PICTURES:
            del self._pictures[next(iter(self._pictures))]
        self._repeated.append(repeated)
        if not repeated:
            return False
        self.counters["repeated"] += 1
        recent = list(self._repeated)
        if all(recent[-FROZEN_IMAGES:]) or sum(recent) > REPEATED_SHARE * len(recent):
            self._note("frozen", "camera repeats its picture")
        return True

    def _track(self, gray: Image8, stamp_s: float) -> tuple[list[BundleObservation], SearchArea, tuple[str, ...]]:
        """The observations, the part of the image that was searched, and the bundles that were seen twice."""
        # One of two bundles of the same name may be outside of the region in which the other is followed.
        search = self._regions.full_search() if self._copied_s else self._regions.next_search(stamp_s)
        found, copied = self._find(gray, search)
        if not found and search.regions is not None:  # lost: search this image as a whole, too
            search = self._regions.full_search()
            found, copied = self._find(gray, search)
        self.counters["copies"] += bool(copied)
        self._copied_s = {name: at_s for name, at_s in self._copied_s.items() if stamp_s - at_s < COPY_S}
        self._copied_s.update(dict.fromkeys(copied, stamp_s))
        observations, boxes = [], {}
        for bundle in self._bundles:
            if bundle.name in self._copied_s:
                continue  # which of the two is the real one is not known
            seen = [found[key] for key in bundle.corners_M if key in found]
            if not seen:
                continue
            corners_M = np.array([bundle.corners_M[d.family, d.id] for d in seen])
            result = self._solver.solve(np.array([d.corners_px for d in seen]), corners_M)
            if result is None:
                self.counters["rejected_bundles"] += 1
                continue
            observation = _observation(bundle.name, seen, corners_M, result, self._noise_px)
            if self._with_xy:
                for marker in observation.markers:
                    xy = self._camera.undistort(np.reshape(marker.corners_px, (4, 2)))
                    marker.corners_xy = tuple(xy.ravel().tolist())
            observations.append(observation)
            boxes[bundle.name] = self._box(bundle, seen, result.best)
        self._regions.seen(stamp_s, boxes)
        return observations, SearchArea.FULL if search.regions is None else SearchArea.ROI, tuple(sorted(copied))

    def _find(self, gray: Image8, search: ImageSearch) -> tuple[dict[tuple[str, int], Detection], set[str]]:
        """The markers in the image, and the names of bundles of which a marker is in two places.

        A marker that is found twice is ambiguous and is left out. A marker whose corners run the wrong way round is a
        mirror image: no view of a print from its front shows it.
        """
        places = [(None, search.scale)] if search.regions is None else search.regions
        detections = [d for region, scale in places for d in self._detector.detect(gray, region, scale)]
        upright = [d for d in detections if not _is_mirrored(d.corners_px)]
        self.counters["mirrored"] += len(detections) - len(upright)
        keys = [(d.family, d.id) for d in upright]
        found = {key: d for key, d in zip(keys, upright, strict=True) if keys.count(key) == 1}
        if len(found) == len(keys):
            return found, set()
        copied = set()
        for key in set(keys) - set(found):
            twice = [d.corners_px for k, d in zip(keys, upright, strict=True) if k == key]
            if key in self._home and any(_are_apart(twice[0], other) for other in twice[1:]):
                copied.add(self._home[key].name)
        return found, copied

    def _box(self, bundle: "_BundleCorners", seen: list[Detection], pose: CandidatePose) -> Box:
        """Box around the whole bundle; around the seen markers where the projection by the pose is unusable."""
        seen_px = np.concatenate([d.corners_px for d in seen])
        pixels = self._solver.project(pose, bundle.points_M)
        usable = np.isfinite(pixels).all() and (np.ptp(pixels, axis=0) < MAX_BOX * np.array(self._size)).all()
        pixels = np.concatenate([pixels, seen_px]) if usable else seen_px
        quads = pixels.reshape(-1, 4, 2)
        sides = quads - quads[:, (3, 0, 1, 2)]
        shortest_px = float(np.sqrt((sides * sides).sum(axis=2).min()))
        low, high = np.maximum(pixels.min(0), 0), np.minimum(pixels.max(0), self._size)
        return Box(0.5 * (low + high), high - low, shortest_px)

    def _photos(self, gray: Image8, stamp_s: float) -> list[Message]:
        """The image for all waiting requests."""
        if not self._photo_requests:
            return []
        ok, png = cv2.imencode(".png", gray, [cv2.IMWRITE_PNG_COMPRESSION, PNG_COMPRESSION])
        if not ok:
            self._note("failed", "photo: cannot be encoded")
            return []
        ids, self._photo_requests = self._photo_requests, []
        return [Photo(stamp_s=stamp_s, id=i, png=png.tobytes()) for i in ids]


class _BundleCorners:
    """A bundle's corners by (family, id), and all of them as one array (n, 3)."""

    def __init__(self, bundle: Bundle) -> None:
        self.name = bundle.name
        self.corners_M = {(m.family, m.id): m.corners_M() for m in bundle.markers}
        self.points_M = np.concatenate(list(self.corners_M.values()))


def _is_mirrored(corners_px: Array) -> bool:
    """True when the corners run against the clock in the image; z of the cross product of the diagonals."""
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = corners_px.tolist()
    return bool((x2 - x0) * (y3 - y1) - (y2 - y0) * (x3 - x1) < 0)


def _are_apart(a: Array, b: Array) -> bool:
    """True for two squares, (4, 2) [px], that are not the same one found twice."""
    side_px = max(float(np.linalg.norm(c[0] - c[2])) for c in (a, b)) / 2**0.5
    return float(np.linalg.norm(a.mean(0) - b.mean(0))) > APART_OF_SIDE * side_px


def _observation(
    name: str, seen: list[Detection], corners_M: Array, result: BundlePose, noise_px: float
) -> BundleObservation:
    return BundleObservation(
        bundle=name,
        markers=[
            MarkerCorners(
                family=seen[i].family,
                id=seen[i].id,
                corners_px=_pixels(seen[i].corners_px),
                corners_M=_points(corners_M[i]),
            )
            for i in result.used
        ],
        best=_solution(result.best),
        alternative=None if result.alternative is None else _solution(result.alternative),
        ambiguous=result.ambiguous,
        covariance=tuple(significant(result.covariance.ravel(), precision.COVARIANCE_BITS).tolist()),
        corner_noise_px=near(noise_px, precision.RATIO),
    )


def _pixels(corners_px: Array) -> tuple[float, float, float, float, float, float, float, float]:
    u0, v0, u1, v1, u2, v2, u3, v3 = rounded(corners_px.ravel().tolist(), precision.PIXEL)
    return u0, v0, u1, v1, u2, v2, u3, v3


def _points(corners_M: Array) -> tuple[Vec3, Vec3, Vec3, Vec3]:
    a, b, c, d = ((x, y, z) for x, y, z in corners_M.tolist())
    return a, b, c, d


def _solution(pose: CandidatePose) -> PoseSolution:
    return PoseSolution(
        p_CM=rounded(pose.p_CM.tolist(), precision.POSITION),
        q_CM=rounded(pose.q_CM.tolist(), precision.ATTITUDE),
        reprojection_rms_px=near(pose.rms_px, precision.PIXEL),
    )
