"""The picture of docs/inspection_report.md: the page of a made-up inspection with gaps, in a headless Chromium.

python -m tests.recording.inspection_screenshot docs/inspection_report.jpg
"""

import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

from companion.recording.inspection_report import read_inspection, write_inspection_report
from companion.recording.log import read_log
from tests.browser import Browser
from tests.recording.inspection_world import Made, make_log

MADE = Made(skipped=frozenset({15, 16, 17, 18, 24, 25, 26, 27}), blurred=frozenset({31}), width_px=1500)
SIZE = (1360, 1160)
PAINTED_S = 1.0
QUALITY = 88


def main(target: Path) -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inspection = read_inspection([read_log(make_log(folder / "flight.mcap", MADE))])
        assert inspection is not None
        page = write_inspection_report(inspection, folder).page
        browser = Browser(folder / "profile", *SIZE)
        try:
            browser.open(page)
            browser.js("document.querySelector('button[data-surface=\"1\"]').click()")
            browser.wait_requested("/tiles/1/")
            left, top, width, height = browser.place("#surface")
            browser.click(left + width * 0.36, top + height * 0.52)
            browser.wait("document.getElementById('photograph')?.naturalWidth > 0")
            time.sleep(PAINTED_S)
            browser.screenshot(folder / "page.png")
        finally:
            browser.close()
        Image.open(folder / "page.png").convert("RGB").save(target, quality=QUALITY, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
