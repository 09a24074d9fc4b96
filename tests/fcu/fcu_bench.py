"""Computing time of the FCU node: ``python tests/fcu/fcu_bench.py`` (medians of five runs, µs per call)."""

import statistics
import time
from pathlib import Path

from fcu_peer import Peer
from pymavlink.dialects.v20 import common

from companion.config import load
from companion.fcu.fcu_node import FcuNode
from companion.messages import LinkRx, Setpoint
from companion.vehicle import Vehicle

RUNS, CALLS = 5, 4000


def microseconds(call):
    """Median time of one call."""
    times = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        for i in range(CALLS):
            call(i)
        times.append((time.perf_counter() - begin) / CALLS * 1e6)
    return statistics.median(times)


def main():
    vehicle = load(Path(__file__).parents[2] / "config/vehicles/f550.toml", Vehicle)
    peer = Peer(FcuNode(vehicle))
    peer.run(3.0)
    node, now_s, boot_ms = peer.node, peer.now_s, peer.boot_ms
    messages = {
        "attitude": common.MAVLink_attitude_quaternion_message(boot_ms, 1, 0, 0, 0, 0.1, 0.2, 0.3),
        "position": common.MAVLink_local_position_ned_message(boot_ms, 1, 2, 3, 4, 5, 6),
        "of no interest": common.MAVLink_vfr_hud_message(1, 1, 1, 1, 1, 1),
    }
    for name, message in messages.items():
        received = LinkRx(stamp_s=now_s, data=peer.frame(message))
        print(f"message, {name}: {microseconds(lambda i, r=received: node.handle(r, now_s)):.1f} us")

    stamps = iter(range(1, 2 * RUNS * CALLS))

    def setpoint(i):
        at_s = now_s + next(stamps) * 1e-6
        node.handle(
            Setpoint(
                stamp_s=at_s, expires_s=at_s + 0.1, roll_rad=0.1, pitch_rad=0.1, yaw_rad=1.0, yaw_rate_rad_s=0.1,
                thrust=0.4, source="nmpc",
            ),
            at_s,
        )  # fmt: skip

    print(f"setpoint: {microseconds(setpoint):.1f} us, {node.counters['setpoints_sent']} of {RUNS * CALLS} sent")


if __name__ == "__main__":
    main()
