"""What the view costs: ``python -m tests.view.cost``, processor time per second beside a simulated flight in real time."""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # as pytest has it
SPAN_S = 15.0


def main() -> None:
    from running_view import running_view
    from websockets.sync.client import connect

    from tests.scenarios.real_flight import RealFlight

    with tempfile.TemporaryDirectory() as name, RealFlight(Path(name), camera=True) as flight:
        assert flight.until_hold(), flight.phases
        with running_view(str(Path(name) / "bus")) as view:
            time.sleep(2.0)
            print(f"no page: {_measured(view, lambda: flight.run(SPAN_S)):.1%} of a core")
            for camera in (False, True):
                with connect(view.url.replace("http", "ws") + "live", max_size=None) as page:
                    page.recv(10.0)
                    page.send(json.dumps({"camera": camera}))
                    counts = [0, 0]

                    def watch(page=page, counts=counts) -> None:
                        until_s = time.monotonic() + SPAN_S
                        while time.monotonic() < until_s:
                            data = page.recv(10.0)
                            counts[0] += 1
                            counts[1] += len(data)
                            page.send(json.dumps({"ack": counts[0]}))

                    share = _measured(view, watch)
                    words = "one page with camera" if camera else "one page"
                    rate = f"{counts[0] / SPAN_S:.0f} packets and {counts[1] / SPAN_S / 1e3:.0f} kB a second"
                    print(f"{words}: {share:.1%} of a core, {rate}")
            print(f"memory: {_memory_mb(view.process.pid):.0f} MB; load of the machine {os.getloadavg()[0]:.1f}")


def _measured(view, work) -> float:
    began_s, cpu_s = time.monotonic(), view.cpu_s()
    work()
    return (view.cpu_s() - cpu_s) / (time.monotonic() - began_s)


def _memory_mb(pid: int) -> float:
    rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("VmRSS")) / 1e3


if __name__ == "__main__":
    main()
