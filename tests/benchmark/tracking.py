"""The tracker: processor time of one image at first detection and while following, compared with OpenCV's detector."""

import statistics
import time

import cv2
import numpy as np

from companion.core.camera_model import CameraModel
from companion.core.clock import Stopwatch
from companion.core.site import load_site
from companion.tracking.tracker import TrackerNode
from tests.benchmark.figures import Figure
from tests.benchmark.timing import one_core
from tests.tracking.synthetic_view import ROOT, message, pose, render, vehicle

SIZES = ((640, 480), (1280, 720), (1920, 1080))
REPEATS = {"first": 11, "following": 45}
FOCAL_LENGTH_PER_HEIGHT = 610 / 480  # of the F550's camera
LIMIT_720P_FOLLOWING_MS = 3.0


def clutter(width: int, height: int) -> np.ndarray:
    """600 random boxes of different sizes and brightness."""
    rng = np.random.default_rng(0)
    image = np.full((height, width), 120, np.uint8)
    for _ in range(600):
        x, y = (int(v) for v in rng.integers(0, [width, height]))
        w, h = (int(v) for v in rng.integers(4, height // 8, 2))
        cv2.rectangle(image, (x, y), (x + w, y + h), int(rng.integers(0, 256)), -1)
    return image


class Case:
    """A tracker and one image; `measure` is one call of each, the tracker's and OpenCV's."""

    def __init__(self, v, site, gray, search: str, detector) -> None:
        self.node = TrackerNode(v, site, Stopwatch())
        self.gray, self.search, self.detector = gray, search, detector
        self.stamp_s = 1.0
        self.count = 0
        self.times_ms: list[float] = []
        self.opencv_ms: list[float] = []

    def measure(self) -> None:
        # "first": each image is long after the last one, so that the tracker cannot follow
        self.stamp_s += 1.0 if self.search == "first" else 0.033
        self.gray[0, 0] = self.count % 256  # the tracker uses no picture twice
        image = message(self.gray, self.stamp_s)
        begun = time.thread_time()
        (markers,) = self.node.handle(image, self.stamp_s)
        middle = time.thread_time()
        _, found, _ = self.detector.detectMarkers(self.gray)
        ended = time.thread_time()
        if len(markers.observations) != 1 or len(markers.observations[0].markers) != 5 or len(found) < 5:
            raise RuntimeError("the tracker did not find the five markers of the image")
        self.count += 1
        # a tracker that follows still searches the whole image at times; such an image does not count
        if self.count > 1 and (self.search == "first" or markers.search == "roi"):
            self.times_ms.append((middle - begun) * 1e3)
            self.opencv_ms.append((ended - middle) * 1e3)


def figures() -> list[Figure]:
    """Times for the pier's five markers in front of a cluttered background."""
    cv2.setNumThreads(1)
    site = load_site(ROOT / "config/markers/pier.toml")
    detector = cv2.aruco.ArucoDetector(cv2.aruco.getPredefinedDictionary(cv2.aruco.DICT_6X6_250))  # the pier's family
    R, p = pose(0.1, 0.25, 0.05, (0.2, 0.1, 4.2))
    out = []
    for width, height in SIZES:
        f = FOCAL_LENGTH_PER_HEIGHT * height
        v = vehicle(width_px=width, height_px=height, fx_px=f, fy_px=f, cx_px=width / 2, cy_px=height / 2)
        gray = render(CameraModel(v.camera), site.bundle[0], R, p, background=clutter(width, height))
        for search, repeats in REPEATS.items():
            case = Case(v, site, gray, search, detector)
            with one_core():
                for _ in range(repeats):
                    case.measure()
            limit = LIMIT_720P_FOLLOWING_MS if (height, search) == (720, "following") else None
            name = f"{'first detection' if search == 'first' else 'following'}, {height}p: image in, five markers and pose out"
            out.append(Figure(name, statistics.median(case.times_ms), "ms", "OpenCV's detector alone, no pose",
                              statistics.median(case.opencv_ms), limit))  # fmt: skip
    return out
