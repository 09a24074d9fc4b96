"""The whole stack and its world in one process and in simulated time.

The nodes are the ones that fly; only the wires differ. Time is an integer number of microseconds, events at the
same time run in a fixed order, computing takes no simulated time, and everything random follows from the seed: the
same scenario and seed give the same flight, bit for bit, as fast as the machine allows.
"""

import gc
import heapq
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from companion.core.bus import MemoryBus, MemoryHub
from companion.core.clock import SimulatedStopwatch
from companion.core.messages import TOPICS, Health, LinkRx, LinkTx, Message, MissionStatus
from companion.core.node import Node
from sitl.faults import FailableNmpc, FaultInjector
from sitl.scenario import LoadedScenario
from sitl.world import STEP_S, World

WORLD_STEP_US = round(STEP_S * 1e6)
TRUTH_EVERY = 2  # world steps between two Truth messages (125 Hz)
# What the autopilot sends unasked. PX4's onboard link has as much again that this stack never reads; to make and to
# parse it would only take time.
STREAM_RATES_HZ = {"HEARTBEAT": 1.0, "TIMESYNC": 10.0, "SYSTEM_TIME": 1.0, "ESTIMATOR_STATUS": 1.0, "ODOMETRY": 1.0}
HEALTH_PERIOD_US = 500_000  # as companion.runtime.process tells
HOST_PERIOD_US = 1_000_000
AFTER_END_S = 0.5  # keep running this long after the mission has finished, so that the log shows the end


class Runner:
    """One node on its in-memory end of the bus."""

    def __init__(self, build: Callable[[], Node], hub: MemoryHub) -> None:
        self._build = build
        self.node = build()
        self.bus: MemoryBus = hub.connect(self.node.inputs)
        self.period_us = round(1e6 / self.node.rate_hz)
        self.alive = True
        self.share = 1.0  # of its steps that it manages
        self._due = 0.0
        self._steps = 0

    def wants_step(self) -> bool:
        """Whether this step is done: always, but in a process that is starved."""
        self._due += self.share
        if not self.alive or self._due < 1.0:
            return False
        self._due -= 1.0
        self._steps += 1
        return True

    def health(self, now_s: float) -> Health:
        """What `companion.runtime.process` tells of a process; there is none here, so computing costs nothing."""
        steps, self._steps = self._steps, 0
        return Health(
            stamp_s=now_s,
            process=self.node.name,
            pid=0,
            steps_per_s=steps / (HEALTH_PERIOD_US * 1e-6),
            nominal_steps_per_s=self.node.rate_hz,
            late_steps=0,
            errors=0,
            last_error="",
            step_time_max_s=0.0,
            cpu_s=0.0,
            memory_mb=0.0,
        )

    def kill(self) -> None:
        self.alive = False

    def restart(self) -> None:
        """A new process: nothing of the old node's state survives."""
        self.node = self._build()
        self.bus.inbox.clear()
        self.alive = True


class Lockstep:
    """Runs one scenario.

    stack: "full" for the nodes that fly, or the name of an opponent (`sitl.baselines.stacks`);
    record: called with (message, now_s) for every message, in order; the log writer's entry;
    world: the scenario's, at time 0, in the place of one with the built-in autopilot.
    """

    def __init__(
        self,
        loaded: LoadedScenario,
        seed: int,
        record: Callable[[Message, float], None] | None = None,
        stack: str = "full",
        world: World | None = None,
    ) -> None:
        self.loaded = loaded
        self.stack = stack
        self.world = world or World(loaded, seed, STREAM_RATES_HZ)
        self.messages: dict[str, list[Message]] = {topic: [] for topic in TOPICS}
        self._logs = {row.type: self.messages[topic] for topic, row in TOPICS.items() if row.logged}
        self._record = record
        self._hub = MemoryHub()
        self._bus = self._hub.connect(())  # what the simulator itself publishes
        self.controller_watch = SimulatedStopwatch()
        self.faults = FaultInjector(self, loaded.scenario.fault)
        self.now_us = 0
        self.runners = self._build_runners()
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._expose_every = round(1.0 / (self.world.camera.config.rate_hz * STEP_S))  # world steps between images
        self._end_us = round(loaded.scenario.duration_max_s * 1e6)
        self._finishing = False
        # Corners are there at once, without anything to draw.
        self._darkroom = ThreadPoolExecutor(max_workers=1) if self.world.corners is None else None
        self.wall_s = 0.0

    def _build_runners(self) -> dict[str, Runner]:
        # Imported here so that a run in another process pays only for what it uses.
        from companion.control.controller import ControllerNode
        from companion.estimation.estimator import EstimatorNode
        from companion.fcu.fcu_node import FcuNode
        from companion.mission.mission_node import MissionNode
        from companion.tracking.tracker import TrackerNode

        vehicle, plan, site = self.loaded.vehicle, self.loaded.plan, self.loaded.site
        still = SimulatedStopwatch()
        images = self.loaded.scenario.camera_mode == "images"
        builders: dict[str, Callable[[], Node]] = {
            "fcu": lambda: FcuNode(vehicle),
            "tracker": lambda: TrackerNode(vehicle, site, still, None if images else self.world.corners),
            "estimator": lambda: EstimatorNode(vehicle, plan.bundle, still, resets=self.now_us // 100_000),
            "mission": lambda: MissionNode(vehicle, plan, site),
            "controller": lambda: ControllerNode(vehicle, FailableNmpc(vehicle, self.faults), self.controller_watch),
        }
        if self.stack != "full":
            from sitl.baselines.stacks import baseline_nodes

            builders |= baseline_nodes(self.stack, vehicle, plan.bundle, self.faults)
        return {name: Runner(build, self._hub) for name, build in builders.items()}

    # --- time ---------------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        return self.now_us * 1e-6

    def at(self, time_us: int, action: Callable[[], None]) -> None:
        """Run an action at a simulated time; actions of the same time run in the order they were asked for."""
        self._order += 1
        heapq.heappush(self._events, (time_us, self._order, action))

    def _every(self, period_us: int, action: Callable[[], None], start_us: int) -> None:
        def again() -> None:
            action()
            self.at(self.now_us + period_us, again)

        self.at(start_us, again)

    # --- messages -----------------------------------------------------------------------------------------

    def publish(self, messages: Iterable[Message], bus: MemoryBus) -> None:
        for message in messages or ():
            if (change := self.faults.changes.get(type(message))) is not None:
                message = change(message)
            if type(message) is LinkTx and not self.faults.link_down:
                self.world.autopilot.receive(message.data, self.now_s)
            bus.publish(message)
            if (log := self._logs.get(type(message))) is not None:
                log.append(message)
            if self._record is not None:
                self._record(message, self.now_s)

    def _pump(self) -> None:
        """Hand every message to its consumers until all inboxes are empty."""
        while self._hub.waiting:
            self._hub.waiting = False
            for runner in self.runners.values():
                inbox = runner.bus.inbox
                while inbox:
                    message = inbox.popleft()
                    if runner.alive:
                        self.publish(runner.node.handle(message, self.now_s), runner.bus)

    # --- the loop -----------------------------------------------------------------------------------------

    def _step_node(self, runner: Runner) -> None:
        if runner.wants_step():
            self.publish(runner.node.step(self.now_s), runner.bus)

    def _tell_health(self) -> None:
        for runner in self.runners.values():
            if runner.alive:
                self.publish([runner.health(self.now_s)], runner.bus)

    def _step_world(self) -> None:
        self.world.advance()
        output = self.world.autopilot.take_output()
        if output and not self.faults.link_down:
            self.arrive(output)
        if self.world.steps % TRUTH_EVERY == 0:
            self.publish([self.world.truth()], self._bus)
        # Here and not as an event of its own, which might come before the world's step of the same time: the image
        # would be of the step before and its way a step longer than the camera's latency.
        if self.world.steps % self._expose_every == 0:
            self._expose()

    def arrive(self, data: bytes) -> None:
        """Bytes come over the link, for the FCU room."""
        self.publish([LinkRx(stamp_s=self.now_s, data=data)], self._bus)

    def _expose(self) -> None:
        # The image is due only after the camera's latency: a second thread draws it while the world goes on. It
        # draws one image after the other from what it was given here, so the result does not depend on its pace.
        image = self.world.exposure()
        if self._darkroom is not None:
            image = self._darkroom.submit(image).result
        latency_s = self.world.camera.config.latency_s
        # Stamped as on an aircraft: its arrival less the delay that the vehicle file believes in.
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
            if self._darkroom is not None:
                self._darkroom.shutdown()

    def start(self, progress: Callable[["Lockstep"], None] | None = None) -> None:
        """Schedule everything that happens by itself; once, before `run_until`."""
        self.faults.schedule()
        self._every(WORLD_STEP_US, self._step_world, WORLD_STEP_US)
        for offset, runner in enumerate(self.runners.values()):
            self._every(runner.period_us, lambda r=runner: self._step_node(r), 1000 + 137 * offset)
        self._every(HEALTH_PERIOD_US, self._tell_health, HEALTH_PERIOD_US)
        self._every(HOST_PERIOD_US, lambda: self.publish([self.world.host_status()], self._bus), HOST_PERIOD_US)
        if progress is not None:
            self._every(1_000_000, lambda: progress(self), 1_000_000)

    def run_until(self, there: Callable[[], bool]) -> bool:
        """Fly on until ``there()``, looked at after every event, or to the end; returns whether it came."""
        started = time.perf_counter()
        # The messages of a flight are a million objects without cycles; to look through them again and again for
        # garbage takes a tenth of a run.
        gc.disable()
        try:
            while self._events and self._events[0][0] <= self._end_us:
                if there():
                    return True
                self.now_us, _, action = heapq.heappop(self._events)
                action()
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
        statuses = self.messages["mission_status"]
        return statuses[-1] if statuses else None

    @property
    def finished(self) -> bool:
        return self.pilot is not None and self.pilot.finished
