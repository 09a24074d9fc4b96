"""Time of the tracker per image, one thread: ``python tests/tracking/bench_tracking.py``.

The pier's five markers at three image sizes, before a plain and before a cluttered background; first find (whole
image) and following (region). Prints the median and the 95 % quantile of the processor time of the whole
`handle_image`, which is its time on an otherwise idle core.
"""

import time

import cv2
import numpy as np
from synthetic_view import ROOT, message, pose, render, vehicle

from companion.clock import Stopwatch
from companion.site import load_site
from companion.tracking.camera_model import CameraModel
from companion.tracking.tracker import TrackerNode

REPEATS = 40


def clutter(width, height):
    """Some hundred random boxes and strokes of all sizes and brightnesses."""
    rng = np.random.default_rng(0)
    image = np.full((height, width), 120, np.uint8)
    for _ in range(600):
        x, y = (int(v) for v in rng.integers(0, [width, height]))
        w, h = (int(v) for v in rng.integers(4, height // 8, 2))
        cv2.rectangle(image, (x, y), (x + w, y + h), int(rng.integers(0, 256)), -1)
    return image


def times_ms(node, gray, first):
    """Times of `handle_image`; `first`: every image far from the last one in time, so nothing can be followed."""
    out, stamp_s = [], 1.0
    for k in range(REPEATS + 1):
        stamp_s += 1.0 if first else 0.033
        begun = time.thread_time()
        (markers,) = node.handle(message(gray, stamp_s), stamp_s)
        out.append((time.thread_time() - begun) * 1e3)
        assert len(markers.observations) == 1
        assert len(markers.observations[0].markers) == 5
        assert k == 0 or markers.search == ("full" if first or k % 30 == 0 else "roi")
    return np.array(out[1:])


def main():
    cv2.setNumThreads(1)
    site = load_site(ROOT / "config/markers/pier.toml")
    R, p = pose(0.1, 0.25, 0.05, (0.2, 0.1, 4.2))
    print("image       background  search     median ms  95 % ms")
    for width, height in ((640, 480), (1280, 720), (1920, 1080)):
        f = 610.0 * height / 480
        v = vehicle(width_px=width, height_px=height, fx_px=f, fy_px=f, cx_px=width / 2, cy_px=height / 2)
        for name, background in (("plain", None), ("cluttered", clutter(width, height))):
            gray = render(CameraModel(v.camera), site.bundle[0], R, p, background=background)
            for search in ("first", "following"):
                t = times_ms(TrackerNode(v, site, Stopwatch()), gray, search == "first")
                print(f"{width}x{height:<6} {name:11} {search:10} {np.median(t):9.2f} {np.quantile(t, 0.95):8.2f}")


if __name__ == "__main__":
    main()
