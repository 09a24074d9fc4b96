"""The picture of docs/remote.md: ``python -m tests.remote.picture docs/remote.png``."""

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.remote.browser import Browser
from tests.remote.test_remote_browser import remote, take_off


def main(file: Path, width: int, height: int) -> None:
    """Fly with the nose turned away, headless, the right stick held ahead."""
    with TemporaryDirectory() as folder, remote(72) as (_, url):
        browser = Browser(Path(folder))
        try:
            page = browser.page(url, width, height)
            take_off(page)
            page.click("#set-ahead")
            page.mouse("mousePressed", *page.point("left", 0.0, 0.0))
            page.mouse("mouseMoved", *page.point("left", 0.55, 0.0))
            time.sleep(3.0)
            page.mouse("mouseReleased", *page.point("left", 0.0, 0.0))
            page.click("[data-frame=headless]")
            page.wait("state.frame === 'headless'")
            page.mouse("mousePressed", *page.point("right", 0.0, 0.0))
            page.mouse("mouseMoved", *page.point("right", 0.3, 0.62))
            time.sleep(2.5)
            page.screenshot(file)
        finally:
            browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(int(word) for word in sys.argv[2:] or ("1200", "800")))
