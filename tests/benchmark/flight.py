"""The real process graph in real time: cost of each process, and latency from a marker to the bytes of a setpoint.

The onboard processes of `companion fly --fcu sim` hold position in front of the pier; the simulator is a separate
process and is not counted. Latencies are computed from the messages: all stamps and arrivals use the same monotonic
clock, and the messages of a chain refer to each other,

    Markers ── EstimatorStatus with an innovation of that stamp, State of that step
            ── the first Setpoint computed after that State had arrived ── SentSetpoint with its numbers,

whose stamp is taken when the bytes are written to the socket. The controller runs at 50 Hz; the time from a state to
the next control step belongs to the control rate, not to the graph, and is subtracted.
"""

import statistics
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from companion.core.bus import ZmqBus
from companion.core.clock import monotonic_s
from companion.core.config import load
from companion.core.messages import EstimatorStatus, Health, Markers, SentSetpoint, Setpoint
from companion.core.vehicle import Vehicle
from companion.runtime.manager import wait_until
from tests.benchmark.control import VEHICLE
from tests.benchmark.figures import Figure
from tests.scenarios.real_flight import RealFlight

FLIGHT_S = 60.0
MATCH_S = 1.0  # a longer chain is broken: a message was lost
CHAINS_MIN = 200  # for a median and a 95 % quantile
ADDED_MS, CORES, RESIDENT_MB = 10.0, 0.5, 500.0


@dataclass
class Usage:
    """Processor time and memory of one process over the flight."""

    cpu_s: float
    resident_mb: float
    proportional_mb: float  # PSS: shared pages divided by the number of processes that share them


@dataclass
class Chain:
    """Messages of the flight, with their time of arrival at the observer."""

    markers: list[tuple[float, Markers]] = field(default_factory=list)
    fused: dict[float, float] = field(default_factory=dict)  # stamp of the image → arrival of the state with it
    setpoints: list[Setpoint] = field(default_factory=list)
    sent: dict[tuple, float] = field(default_factory=dict)  # numbers of a setpoint → time at which its bytes were sent
    health: dict[str, list[Health]] = field(default_factory=dict)

    def take(self, message, at_s: float) -> None:
        if isinstance(message, Markers):
            if message.observations:
                self.markers.append((at_s, message))
        elif isinstance(message, EstimatorStatus):
            for innovation in message.innovations:
                if innovation.sensor.startswith("marker"):
                    self.fused.setdefault(innovation.stamp_s, at_s)
        elif isinstance(message, Setpoint):
            self.setpoints.append(message)
        elif isinstance(message, SentSetpoint):
            self.sent.setdefault(_numbers(message), message.stamp_s)
        elif isinstance(message, Health):
            self.health.setdefault(message.process, []).append(message)

    def latencies_ms(self) -> dict[str, list[float]]:
        """Latencies of every marker message that can be followed to the setpoint's bytes [ms]."""
        out: dict[str, list[float]] = {"see": [], "fuse": [], "wait": [], "command": [], "added": [], "whole": []}
        starts = [s.stamp_s for s in self.setpoints]
        at = 0
        for seen_s, markers in self.markers:
            state_s = self.fused.get(markers.stamp_s)
            if state_s is None:
                continue
            while at < len(starts) and starts[at] < state_s:
                at += 1
            if at == len(starts):
                break
            bytes_s = self.sent.get(_numbers(self.setpoints[at]))
            if bytes_s is None or bytes_s - seen_s > MATCH_S:
                continue
            parts = {
                "see": seen_s - markers.stamp_s,
                "fuse": state_s - seen_s,
                "wait": starts[at] - state_s,
                "command": bytes_s - starts[at],
                "whole": bytes_s - markers.stamp_s,
            }
            parts["added"] = parts["fuse"] + parts["command"]
            for name, value in parts.items():
                out[name].append(value * 1e3)
        return out


def _numbers(message: Setpoint | SentSetpoint) -> tuple:
    return message.roll_rad, message.pitch_rad, message.yaw_rad, message.yaw_rate_rad_s, message.thrust


def fly() -> tuple[Chain, dict[str, Usage], float]:
    """Hold for a minute; returns the messages, the usage by process, and the duration [s]."""
    chain = Chain()
    topics = ("markers", "estimator", "setpoint", "sent_setpoint", "health")
    with tempfile.TemporaryDirectory(prefix="companion-") as scratch, RealFlight(Path(scratch)) as flight:
        if not flight.until_hold():
            raise RuntimeError(f"the flight did not reach its hold: {flight.phases}")
        bus = ZmqBus(Path(scratch) / "bus", "benchmark", topics)
        try:
            wait_until(lambda: any(isinstance(m, Setpoint) for m in bus.receive(0.1)), 10.0, 0.0)
            names = [c.name for c in flight.manager.children if c.name != "simulator"]
            processes = {name: psutil.Process(flight.manager.pid(name)) for name in names}
            before = {name: _cpu_s(process) for name, process in processes.items()}
            begun_s = monotonic_s()
            while monotonic_s() < begun_s + FLIGHT_S:
                for message in bus.receive(0.1):
                    chain.take(message, monotonic_s())
            length_s = monotonic_s() - begun_s
            usage = {name: _usage(process, before[name]) for name, process in processes.items()}
        finally:
            bus.close()
    return chain, usage, length_s


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _usage(process: psutil.Process, before_s: float) -> Usage:
    memory = process.memory_full_info()
    return Usage(_cpu_s(process) - before_s, memory.rss / 1e6, memory.pss / 1e6)


def figures() -> list[Figure]:
    """Processor seconds per minute of flight, memory, and latencies of the real process graph."""
    vehicle = load(VEHICLE, Vehicle)
    chain, usage, length_s = fly()
    latencies = chain.latencies_ms()
    if len(latencies["whole"]) < CHAINS_MIN:
        raise RuntimeError(f"only {len(latencies['whole'])} markers could be followed to the setpoint's bytes")
    median = {name: statistics.median(values) for name, values in latencies.items()}
    p95 = statistics.quantiles(latencies["added"], n=20)[-1]
    camera_ms = vehicle.latency.camera_s * 1e3
    cycle_ms = 1e3 / vehicle.controller.rate_hz
    out = [
        Figure("exposure to markers on the bus", median["see"], "ms", "of which the camera's own latency", camera_ms),
        Figure("markers to state, three processes and the time to the estimator's step", median["fuse"], "ms"),
        Figure("state to the next control step (the control rate, not the graph)", median["wait"], "ms",
               "control period", cycle_ms),
        Figure("control step to setpoint bytes, two processes", median["command"], "ms"),
        Figure("corners to setpoint bytes, added by the graph (median)", median["added"], "ms", "control period",
               cycle_ms, ADDED_MS),
        Figure("corners to setpoint bytes, added by the graph (95 %)", p95, "ms", "control period", cycle_ms),
        Figure("exposure to setpoint bytes, total", median["whole"], "ms", "of which the camera's own latency",
               camera_ms),
    ]  # fmt: skip
    minute = 60.0 / length_s
    for name, used in usage.items():
        out.append(Figure(f"processor time per minute of flight, {name}", used.cpu_s * minute, "s", "one core", 60.0))
    total_s = sum(used.cpu_s for used in usage.values()) * minute
    out.append(Figure("processor time per minute of flight, all onboard processes", total_s, "s", "one core", 60.0,
                      CORES, limits_ratio=True))  # fmt: skip
    for name, used in usage.items():
        out.append(Figure(f"resident memory, {name}", used.resident_mb, "MB", "its share (PSS)", used.proportional_mb))
    resident, share = (sum(getattr(u, f) for u in usage.values()) for f in ("resident_mb", "proportional_mb"))
    out.append(
        Figure("resident memory, all onboard processes", resident, "MB", "their share (PSS)", share, RESIDENT_MB)
    )
    return out
