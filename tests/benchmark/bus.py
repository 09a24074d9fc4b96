"""One hop of the bus between two processes, compared with the same bytes over bare ZeroMQ sockets.

The other process answers with the time at which it had received the message; both use the same monotonic clock.
"""

import multiprocessing
import statistics
import tempfile
import time
from pathlib import Path

import zmq

from companion.core.bus import ZmqBus, encode
from companion.core.clock import monotonic_s
from companion.core.messages import FcuText, Image, Message, Truth
from tests.benchmark.figures import Figure

HOPS = 300
PAUSE_S = 0.002  # between two hops, so that the receiver waits as it does in flight


def echo(folder: Path) -> None:
    """The other process: answers each message with its time of reception."""
    bus = ZmqBus(folder, "fcu", ("truth", "image"))
    bare = zmq.Context.instance().socket(zmq.SUB)
    bare.subscribe(b"")
    bare.connect(f"ipc://{folder}/bare.sock")
    bus.poller.register(bare, zmq.POLLIN)
    while True:
        seqs = [message.seq for message in bus.receive(1.0)]
        at_s = monotonic_s()
        while bare.poll(0):
            bare.recv_multipart()
            at_s = monotonic_s()
            seqs.append(-1)
        for seq in seqs:
            bus.publish(FcuText(stamp_s=at_s, severity=seq % 2, text=str(seq)))


def small() -> Truth:
    zero = (0.0, 0.0, 0.0)
    q = (1.0, 0.0, 0.0, 0.0)
    return Truth(stamp_s=1.0, p_W=zero, v_W=zero, q_WB=q, omega_B=zero, disturbance_W=zero, gnss_bias_W=zero,
                 bundles={"pier": (zero, q)}, battery_voltage_v=15.0, motor_thrust_n=(1.0,) * 6)  # fmt: skip


def image() -> Image:
    return Image(stamp_s=1.0, width=640, height=480, data=bytes(640 * 480))


def figures() -> list[Figure]:
    """Medians of the time from `publish` to reception."""
    with tempfile.TemporaryDirectory(prefix="companion-") as scratch:
        folder = Path(scratch)
        other = multiprocessing.get_context("spawn").Process(target=echo, args=(folder,), daemon=True)
        other.start()
        bus = ZmqBus(folder, "simulator", ("fcu_text",))
        bare = zmq.Context.instance().socket(zmq.PUB)
        bare.bind(f"ipc://{folder}/bare.sock")
        try:
            return [
                _hop(bus, bare, small(), "message of the size of a state"),
                _hop(bus, bare, image(), "640x480 image"),
            ]
        finally:
            other.kill()
            other.join()
            bus.close()
            bare.close(linger=0)


def _hop(bus: ZmqBus, bare: zmq.Socket, message: Message, name: str) -> Figure:
    frames = encode(message)
    hops: dict[str, list[float]] = {"bus": [], "bare": []}
    sends = {"bus": lambda: bus.publish(message), "bare": lambda: bare.send_multipart(frames, copy=False)}
    _connect(bus, sends)
    for turn in range(HOPS + 10):
        for kind, send in sends.items():
            begun_s = monotonic_s()
            send()
            answers = bus.receive(1.0)
            if turn >= 10 and answers:
                hops[kind].append(answers[-1].stamp_s - begun_s)
            time.sleep(PAUSE_S)
    ours, other = (statistics.median(hops[kind]) * 1e6 for kind in ("bus", "bare"))
    return Figure(f"bus hop, {name}: publish to reception", ours, "µs", "bare ZeroMQ, same bytes", other)


def _connect(bus: ZmqBus, sends: dict) -> None:
    """Send on each socket until an answer arrives, because the sockets connect at an unknown time."""
    for send in sends.values():
        deadline_s = monotonic_s() + 20.0
        while True:
            send()
            if bus.receive(0.05):
                break
            if monotonic_s() > deadline_s:
                raise RuntimeError("the other process does not answer")
    while bus.receive(0.1):
        pass
