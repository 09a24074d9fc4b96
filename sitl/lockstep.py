"""The whole stack and its world in one process and in simulated time.

The nodes are the ones that fly; only the transport of their messages differs. Time is an integer number of
microseconds, events at the same time run in a fixed order, computing takes no simulated time, and everything random
follows from the seed: the same scenario and seed give the same flight, bit for bit, as fast as the machine allows.
"""

import gc
import heapq
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec

from companion.core.bus import MemoryBus, MemoryHub
from companion.core.clock import SimulatedStopwatch
from companion.core.enums import ProcessName, TopicName
from companion.core.messages import TOPICS, FcuStatus, Health, LinkRx, LinkTx, Message, MissionStatus
from companion.core.node import Node
from companion.runtime.nodes import NodeOptions, build_node
from sitl.baselines.stacks import baseline_nodes
from sitl.faults import FailableNmpc, FaultInjector
from sitl.payload_camera import UTC_AT_START_S
from sitl.pilot import PERIOD_S as PILOT_PERIOD_S
from sitl.scenario import LoadedScenario
from sitl.world import STEP_S, World

WORLD_STEP_US = round(STEP_S * 1e6)
TRUTH_EVERY = 2  # world steps between two Truth messages (125 Hz)
# Rates of the messages that the autopilot sends without a request. PX4's onboard link sends as much again that this stack never reads;
# encoding and parsing it would only take time.
STREAM_RATES_HZ = {"HEARTBEAT": 1.0, "TIMESYNC": 10.0, "SYSTEM_TIME": 1.0, "ESTIMATOR_STATUS": 1.0, "ODOMETRY": 1.0}
HEALTH_PERIOD_US = 500_000  # as `companion.runtime.process`
HOST_PERIOD_US = 1_000_000
AFTER_END_S = 0.5  # keep running this long after the mission has finished, so that the log shows the end


class Runner:
    """One node on its in-memory end of the bus."""

    def __init__(self, name: ProcessName, build: Callable[[], Node], hub: MemoryHub) -> None:
        self.name = name
        self._build = build
        self.node = build()
        self.bus: MemoryBus = hub.connect(self.node.inputs)
        self.period_us = round(1e6 / self.node.rate_hz)
        self.alive = True
        self.share = 1.0  # of its steps that it manages
        self._due = 0.0
        self._steps = 0

    def takes_step(self) -> bool:
        """Whether this step is done: always, except in a process that is starved."""
        self._due += self.share
        if not self.alive or self._due < 1.0:
            return False
        self._due -= 1.0
        self._steps += 1
        return True

    def health(self, now_s: float) -> Health:
        """The process's health message. There is no process here, so its time and memory are zero."""
        steps, self._steps = self._steps, 0
        return Health(
            stamp_s=now_s,
            process=self.name,
            pid=0,
            steps_per_s=steps / (HEALTH_PERIOD_US * 1e-6),
            nominal_steps_per_s=self.node.rate_hz,
            late_steps=0,
            errors=getattr(self.node, "errors", 0),
            last_error=getattr(self.node, "last_error", ""),
            step_time_max_s=0.0,
            cpu_s=0.0,
            memory_mb=0.0,
        )

    def kill(self) -> None:
        self.alive = False

    def restart(self) -> None:
        """A new process: nothing of the old node's state survives."""
        self.node = self._build()
        self.bus.restart()
        self.alive = True


class Lockstep:
    """Runs one scenario.

    stack: "full" for the nodes that fly, or the name of a baseline (`sitl.baselines.stacks`).
    record: called with (message, now_s) for every message, in order; the entry of the log writer.
    world: the scenario's, at time 0, in the place of one with the PX4 emulator.
    photographed: item, row and column of an inspection's photographs that former flights took.
    """

    def __init__(
        self,
        loaded: LoadedScenario,
        seed: int,
        record: Callable[[Message, float], object] | None = None,
        stack: str = "full",
        world: World | None = None,
        photographed: Iterable[tuple[str, int, int]] = (),
    ) -> None:
        self.loaded = loaded
        self._photographed = tuple(photographed)
        self.stack = stack
        self.world = world or World(loaded, seed, STREAM_RATES_HZ)
        self.messages: dict[TopicName, list[Message]] = {topic: [] for topic in TOPICS}
        self._mission_status: MissionStatus | None = None
        self._logs = {row.type: self.messages[topic] for topic, row in TOPICS.items() if row.logged}
        self._record = record
        self._hub = MemoryHub()
        self._bus = self._hub.connect(())  # publishes the simulator's messages
        self.controller_watch = SimulatedStopwatch()
        self.faults = FaultInjector(self, loaded.scenario.fault)
        self.now_us = 0
        self.now_s = 0.0  # the same; an attribute, because it is read ten thousand times in a second of flight
        self.runners = self._build_runners()
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._expose_every = round(1.0 / (self.world.camera.config.rate_hz * STEP_S))  # world steps between images
        self._end_us = round(loaded.scenario.duration_max_s * 1e6)
        self._finishing = False
        # Corners need no drawing.
        self._render_thread = ThreadPoolExecutor(max_workers=1) if self.world.corners is None else None
        self.wall_s = 0.0

    def _build_runners(self) -> dict[str, Runner]:
        no_time = SimulatedStopwatch()
        options: dict[ProcessName, Callable[[], NodeOptions]] = {  # called at the start and at every restart
            ProcessName.FCU: NodeOptions,
            ProcessName.TRACKER: lambda: NodeOptions(stopwatch=no_time, detector=self.world.corners),
            ProcessName.ESTIMATOR: lambda: NodeOptions(stopwatch=no_time, first_reset_count=self.now_us // 100_000),
            ProcessName.MISSION: lambda: NodeOptions(photographed=self._photographed),
            ProcessName.CONTROLLER: lambda: NodeOptions(
                stopwatch=self.controller_watch,
                nmpc=FailableNmpc(self.loaded.vehicle, lambda: self.faults.solver_fails),
            ),
        }
        if self.world.payload is not None:
            options[ProcessName.PAYLOAD] = lambda: NodeOptions(read_utc_offset_s=lambda: UTC_AT_START_S)
        replaced = baseline_nodes(self.stack, self.loaded, lambda: self.faults.solver_fails)

        def build(name: ProcessName) -> Node:
            return replaced[name]() if name in replaced else build_node(name, self.loaded, options[name]())

        return {name: Runner(name, partial(build, name), self._hub) for name in options}

    # --- time ---------------------------------------------------------------------------------------------

    def at(self, time_us: int, action: Callable[[], None]) -> None:
        """Run an action at a simulated time; actions of the same time run in the order of these calls."""
        self._order += 1
        heapq.heappush(self._events, (time_us, self._order, action))

    def _every(self, period_us: int, action: Callable[[], None], start_us: int) -> None:
        def again() -> None:
            action()
            self.at(self.now_us + period_us, again)

        self.at(start_us, again)

    # --- messages -----------------------------------------------------------------------------------------

    def publish(self, messages: Iterable[Message], bus: MemoryBus) -> None:
        faults, logs, record = self.faults, self._logs, self._record
        for message in messages:
            if faults.changes:
                message = faults.changed(message)
            if isinstance(message, LinkTx):
                if not faults.link_down:
                    self.world.receive(message.data, self.now_s)
            elif isinstance(message, MissionStatus):
                self._mission_status = message
            bus.publish(message)
            if (log := logs.get(type(message))) is not None:
                log.append(message)
            if record is not None:
                record(message, self.now_s)

    def _pump(self) -> None:
        """Hand every message to its consumers until all inboxes are empty."""
        while self._hub.waiting:
            self._hub.waiting = False
            for runner in self.runners.values():
                inbox = runner.bus.inbox
                while inbox:
                    message = inbox.popleft()
                    if runner.alive and (answers := runner.node.handle(message, self.now_s)):
                        self.publish(answers, runner.bus)

    # --- the loop -----------------------------------------------------------------------------------------

    def _step_node(self, runner: Runner) -> None:
        if runner.takes_step():
            self.publish(runner.node.step(self.now_s), runner.bus)

    def _publish_health(self) -> None:
        for runner in self.runners.values():
            if runner.alive:
                self.publish([runner.health(self.now_s)], runner.bus)

    def _step_world(self) -> None:
        self.world.advance()
        output = self.world.take_output()
        if output and not self.faults.link_down:
            self.arrive(output)
        if self.world.steps % TRUTH_EVERY == 0:
            self.publish([self.world.truth()], self._bus)
        for arrival in self.world.measured():
            arrives_us = max(round(arrival.at_s * 1e6), self.now_us)
            self.at(arrives_us, partial(self._arrived, arrival.message))
        if captures := self.world.take_captures():
            self.publish(captures, self._bus)
        if contacts := self.world.take_contacts():
            self.publish(contacts, self._bus)
        # Not an event of its own: that might come before the world's step of the same time. The image would then show
        # the step before, and arrive a step later than the camera's latency says.
        if self.world.steps % self._expose_every == 0:
            self._expose()

    def _arrived(self, message: Callable[[], Message]) -> None:
        self.publish([message()], self._bus)

    def _step_pilot(self) -> None:
        """The pilot sees the aircraft, and its mode on the ground station."""
        if statuses := self.messages["fcu_status"]:
            status = statuses[-1]
            assert isinstance(status, FcuStatus)
            self.world.step_pilot(status.mode, status.armed)

    def arrive(self, data: bytes) -> None:
        """Bytes come over the link, for the FCU node."""
        self.publish([LinkRx(stamp_s=self.now_s, data=data)], self._bus)

    def _expose(self) -> None:
        # The image is due only after the camera's latency: the render thread draws it while the world goes on. It
        # draws one image after the other from the data of the exposure, so its speed does not change the result.
        latency_s = self.world.camera.transport.latency_s(self.now_s)
        if latency_s is None:
            return
        image = self.world.exposure()
        if self._render_thread is not None:
            image = self._render_thread.submit(image).result
        # Stamped as on an aircraft: the arrival less the delay of the vehicle file.
        stamp_error_s = latency_s - self.loaded.vehicle.latency.camera_s

        def deliver() -> None:
            arrived = image()
            if stamp_error_s:
                arrived = msgspec.structs.replace(arrived, stamp_s=arrived.stamp_s + stamp_error_s)
            self.publish([arrived], self._bus)

        self.at(self.now_us + round(latency_s * 1e6), deliver)

    def run(self, progress: Callable[["Lockstep"], None] | None = None) -> None:
        """Fly until the mission has finished or the scenario's time is over."""
        self.start(progress)
        try:
            self.run_until(lambda: False)
        finally:
            if self._render_thread is not None:
                self._render_thread.shutdown()
            if self.world.devices is not None:
                self.world.devices.close()

    def start(self, progress: Callable[["Lockstep"], None] | None = None) -> None:
        """Schedule all periodic work and the faults; once, before `run_until`."""
        self.faults.schedule()
        self._every(WORLD_STEP_US, self._step_world, WORLD_STEP_US)
        for offset, runner in enumerate(self.runners.values()):
            self._every(runner.period_us, partial(self._step_node, runner), 1000 + 137 * offset)
        self._every(HEALTH_PERIOD_US, self._publish_health, HEALTH_PERIOD_US)
        self._every(HOST_PERIOD_US, lambda: self.publish([self.world.host_status()], self._bus), HOST_PERIOD_US)
        if self.world.pilot is not None:
            self._every(round(PILOT_PERIOD_S * 1e6), self._step_pilot, 0)
        if progress is not None:
            self._every(1_000_000, lambda: progress(self), 1_000_000)

    def sleep(self, duration_s: float) -> None:
        """The computer of all nodes sleeps, and its clock counts on; the world goes on, and what it sends is lost."""
        self._events = [(time_us + round(duration_s * 1e6), order, action) for time_us, order, action in self._events]
        for _ in range(round(duration_s * 1e6 / WORLD_STEP_US)):
            self.world.advance()
            self.world.take_output()
            self.world.measured()

    def run_until(self, there: Callable[[], bool]) -> bool:
        """Fly on until ``there()``, called after every event, or to the end; returns the last ``there()``."""
        started = time.perf_counter()
        # The messages of a flight are a million objects without cycles; collecting garbage among them takes a tenth of
        # a run.
        gc.disable()
        try:
            while self._events and self._events[0][0] <= self._end_us:
                if there():
                    return True
                self.now_us, _, action = heapq.heappop(self._events)
                self.now_s = self.now_us * 1e-6
                action()
                if self._hub.waiting:
                    self._pump()
                if not self._finishing and self.finished:
                    self._finishing = True
                    self._end_us = min(self._end_us, self.now_us + round(AFTER_END_S * 1e6))
            return there()
        finally:
            gc.enable()
            self.wall_s += time.perf_counter() - started

    @property
    def pilot(self) -> MissionStatus | None:
        """The newest status of the mission."""
        return self._mission_status

    @property
    def finished(self) -> bool:
        pilot = self.pilot
        return pilot is not None and pilot.finished
