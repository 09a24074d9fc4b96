"""The FCU node: processor time of a message from the autopilot and of a setpoint to it, compared with pymavlink alone."""

import itertools

from pymavlink.dialects.v20 import common

from companion.core.config import load
from companion.core.messages import LinkRx, Setpoint
from companion.core.vehicle import Vehicle
from companion.fcu.fcu_node import FcuNode
from tests.benchmark.control import VEHICLE
from tests.benchmark.figures import Figure
from tests.benchmark.timing import ROUNDS, in_turns
from tests.fcu.fcu_peer import Peer

CALLS = 500


def figures() -> list[Figure]:
    """Medians per message."""
    peer = Peer(FcuNode(load(VEHICLE, Vehicle)))
    peer.run(3.0)
    node = peer.node
    messages = {
        "attitude": lambda ms: common.MAVLink_attitude_quaternion_message(ms, 1, 0, 0, 0, 0.1, 0.2, 0.3),
        "position": lambda ms: common.MAVLink_local_position_ned_message(ms, 1, 2, 3, 4, 5, 6),
        "unused message": lambda ms: common.MAVLink_vfr_hud_message(1, 1, 1, 1, 1, 1),
    }
    out = []
    for name, make in messages.items():
        # Messages a millisecond apart, because the node drops repeated messages.
        stream = []
        for _ in range(CALLS * (ROUNDS + 1)):
            peer.now_s += 0.001
            stream.append(LinkRx(stamp_s=peer.now_s, data=peer.frame(make(peer.boot_ms))))
        received, frame, parser = iter(stream), stream[0].data, common.MAVLink(None)

        def receive(received=received) -> None:
            message = next(received)
            node.handle(message, message.stamp_s)

        times = in_turns({"node": receive, "bare": lambda p=parser, f=frame: p.parse_buffer(f)}, CALLS)
        if node.boot_clock.old or node.codec.errors:
            raise RuntimeError("the node dropped messages")
        out.append(Figure(f"FCU node, {name}: bytes in, bus message out", times["node"] * 1e6, "µs",
                          "pymavlink's parser alone", times["bare"] * 1e6))  # fmt: skip
    stamps, now_s = itertools.count(1), peer.now_s

    def setpoint() -> None:
        at_s = now_s + next(stamps) * 1e-6
        node.handle(
            Setpoint(stamp_s=at_s, expires_s=at_s + 0.1, roll_rad=0.1, pitch_rad=0.1, yaw_rad=1.0, yaw_rate_rad_s=0.1,
                     thrust=0.4, source="nmpc"), at_s,
        )  # fmt: skip

    packer = common.MAVLink(None)

    def bare() -> None:
        q = [1.0, 0.0, 0.0, 0.0]
        common.MAVLink_set_attitude_target_message(1, 1, 1, 3, q, 0.0, 0.0, 0.1, 0.4).pack(packer)

    times = in_turns({"node": setpoint, "bare": bare}, CALLS)
    if node.counters["setpoints_sent"] < next(stamps) - 1:
        raise RuntimeError("the node refused setpoints")
    return [*out, Figure("FCU node, setpoint: bus message in, bytes out", times["node"] * 1e6, "µs",
                         "pymavlink's packing alone", times["bare"] * 1e6)]  # fmt: skip
