"""The picture of the README: ``python -m tests.view.picture LOG docs/view.png [SECONDS]``, at a moment of a log.

The page is drawn with twice the pixels and reduced, because a headless Chromium without a graphics processor draws edges
that are not smooth.
"""

import io
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # as pytest has it

SIZE = (1600, 900)
CAMERA = "Object.assign(view.camera, {distance: 4.4, azimuth: -2.66, elevation: 0.30})"


def take(log: Path, out: Path, at_s: float, script: str = CAMERA) -> None:
    """Write the view of a log at a time as PNG."""
    from headless import browser
    from PIL import Image
    from running_view import running_view

    with running_view(str(log)) as view, tempfile.TemporaryDirectory() as folder, browser(Path(folder), SIZE) as page:
        page.call(
            "Emulation.setDeviceMetricsOverride", width=SIZE[0], height=SIZE[1], deviceScaleFactor=2, mobile=False
        )
        page.open(view.url)
        page.wait("window.view && view.loaded", 60)
        page.run(f"view.renderer.fixed = true; view.time.playing = false; view.time.to({at_s}); {script}; 1")
        page.wait("view.shownAt && Math.hypot(...view.camera.target.map((v, i) => v - view.shownAt.p[i])) < 0.02", 60)
        page.run("view.charts.draw(view.data, view.time.t, true); view.frames = 0")
        time.sleep(2.0)
        picture = Image.open(io.BytesIO(page.picture())).convert("RGB").resize(SIZE, Image.Resampling.LANCZOS)
        assert page.errors == [], page.errors
    picture.save(out, optimize=True)


if __name__ == "__main__":
    take(Path(sys.argv[1]), Path(sys.argv[2]), float([*sys.argv, "31"][3]))
