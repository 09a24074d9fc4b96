"""How fast the view is: ``python -m tests.view.speed LOG``, seconds until a log is shown and pictures a second.

In a headless Chromium without a graphics processor.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # as pytest has it
SIZES = ((1280, 720), (1600, 900))


def main(log: str) -> None:
    from headless import browser
    from running_view import running_view

    with tempfile.TemporaryDirectory() as folder, browser(Path(folder), SIZES[-1]) as page:
        began_s = time.monotonic()
        with running_view(log) as view:
            started_s = time.monotonic()
            page.open(view.url)
            page.wait("window.view && view.loaded", 120)
            shown_s = time.monotonic()
            print(view.printed[0])
            print(
                f"{started_s - began_s:.1f} s until the view listens, {shown_s - started_s:.1f} s until the page shows the log"
            )
            print(f"processor time of the view: {view.cpu_s():.1f} s; load of the machine {os.getloadavg()[0]:.1f}")
            for width, height in SIZES:
                page.call(
                    "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
                )
                page.run("view.time.to(0.5 * view.time.end); view.time.playing = true; 1")
                time.sleep(12.0)
                frames, then_s, cpu_s = page.run("view.frames"), time.monotonic(), page.cpu_s()
                time.sleep(8.0)
                drawn, took_s = page.run("view.frames") - frames, time.monotonic() - then_s
                cost_ms, detail = 1e3 * (page.cpu_s() - cpu_s) / max(drawn, 1), page.run("view.renderer.detail")
                print(
                    f"{width} x {height}: {drawn / took_s:.0f} pictures a second, {cost_ms:.0f} ms of processor time each, "
                    f"{detail:.2f} of the pixels a side; load {os.getloadavg()[0]:.1f}"
                )


if __name__ == "__main__":
    main(sys.argv[1])
