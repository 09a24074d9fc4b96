"""The process table: what runs on the aircraft, a row each, and how one row is started.

``python -m companion.runtime.processes NAME --vehicle V --mission M --fcu URL --bus DIR --log FILE`` is one process;
the
manager starts them all, and a systemd unit each does the same on an aircraft (there ``--log`` names a folder).
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from companion.core.bus import ZmqBus
from companion.core.clock import monotonic_s
from companion.core.config import ConfigError, load
from companion.core.kernel import ArtifactMissing
from companion.core.messages import ESTIMATOR, TOPICS
from companion.core.node import Node
from companion.core.site import Site
from companion.core.vehicle import Vehicle
from companion.runtime.notify import Notifier
from companion.runtime.process import StopFlag, run_camera, run_node, settle_memory


@dataclass(frozen=True)
class Context:
    """What a process is told at its start.

    log_file: of this flight; or a folder, which gets a log for each flight and is kept within the two limits.
    """

    vehicle_file: Path
    mission_file: Path
    fcu_url: str
    bus_folder: Path
    log_file: Path
    log_max_mb: float = 0.0  # 0: no limit
    log_max_days: float = 0.0

    @property
    def vehicle(self) -> Vehicle:
        return load(self.vehicle_file, Vehicle)

    @property
    def plan(self):
        from companion.mission.plan import load_plan

        return load_plan(self.mission_file)

    @property
    def site(self) -> Site:
        from companion.mission.plan import site_of

        return site_of(self.plan)


# A process imports its own room only: the controller's memory holds no OpenCV, the tracker's no solver.


def _tracker(context: Context) -> Node:
    from companion.tracking.tracker import TrackerNode

    _one_opencv_thread()
    return TrackerNode(context.vehicle, context.site)


def _one_opencv_thread() -> None:
    """OpenCV's pool takes cores that others need; on small pictures, waking it costs more than it saves."""
    import cv2

    cv2.setNumThreads(1)


def _estimator(context: Context) -> Node:
    from companion.estimation.estimator import EstimatorNode

    # Tenths of a second since the machine started: a restarted process counts on from above all that was before.
    return EstimatorNode(context.vehicle, context.plan.bundle, resets=int(10 * monotonic_s()))


def _controller(context: Context) -> Node:
    from companion.control.controller import ControllerNode

    return ControllerNode(context.vehicle)


def _fcu(context: Context) -> Node:
    from companion.fcu.fcu_node import FcuNode
    from companion.fcu.link.signing import open_signer

    vehicle = context.vehicle
    return FcuNode(vehicle, signer=open_signer(vehicle.fcu.signing_key_file, context.vehicle_file.parent))


def _mission(context: Context) -> Node:
    from companion.mission.mission_node import MissionNode

    return MissionNode(context.vehicle, context.plan, context.site)


def _recorder(context: Context) -> Node:
    from companion.recording.host import Host
    from companion.recording.recorder import RecorderNode, flight_metadata
    from companion.recording.retention import LogLimits, Retention
    from companion.recording.writer import LogWriter

    metadata = flight_metadata(context.vehicle_file, context.mission_file)
    log = context.log_file
    if not log.is_dir():
        return RecorderNode(LogWriter(free_name(log), metadata), Host(log.parent))

    def next_writer() -> LogWriter:
        return LogWriter(free_name(log / f"{datetime.now():%Y-%m-%d_%H-%M-%S}.mcap"), metadata)

    retention = Retention(log, LogLimits(context.log_max_mb, context.log_max_days))
    return RecorderNode(next_writer(), Host(log), next_writer, retention)


def free_name(log_file: Path) -> Path:
    """``flight.mcap``, or ``flight_2.mcap`` … for a recorder that was started again: a log is never overwritten."""
    names = (log_file, *(log_file.with_stem(f"{log_file.stem}_{i}") for i in range(2, 1000)))
    return next((name for name in names if not name.exists()), log_file)


@dataclass(frozen=True)
class Row:
    """One process of the table."""

    name: str
    build: Callable[[Context], Node] | None  # None: the camera, which is a driver and no node
    niceness: int  # who waits when the processor is short: seeing and writing down, never the loop that holds still
    simulated: bool = True  # runs when the world is the built-in simulator, too


PROCESSES = (
    Row("recorder", _recorder, niceness=10),
    Row("fcu", _fcu, niceness=0),
    Row("estimator", _estimator, niceness=0),
    Row("controller", _controller, niceness=0),
    Row("tracker", _tracker, niceness=5),
    Row("camera", None, niceness=2, simulated=False),
    Row("mission", _mission, niceness=2),
)


MISSION_STOPS_S = 0.1  # two steps of the mission, from a limit passed to the last reference


def silence_s(name: str, context: Context) -> float:
    """How long a process only listens after its start [s].

    An estimator that starts anew in flight knows another world than the one before it: another origin, no wind. It
    says nothing until the mission has missed its states and stopped, and the last reference made in the old world has
    expired. Else the controller would fly the old reference with the new state, which is a jump of the setpoint.
    """
    if name != ESTIMATOR:
        return 0.0
    return context.vehicle.safety.state_age_s + MISSION_STOPS_S + TOPICS["reference"].max_age_s


def run(name: str, context: Context) -> None:
    """Be the process ``name`` until a signal ends it; raises `ConfigError` or `ArtifactMissing` at the start."""
    row = next((row for row in PROCESSES if row.name == name), None)
    if row is None:
        raise ConfigError(f"{name}: no such process (there are: {', '.join(r.name for r in PROCESSES)})")
    stop = StopFlag()
    os.nice(row.niceness)
    if row.build is None:
        _run_camera(context, stop)
        return
    node = row.build(context)
    link = None
    if name == "fcu":
        from companion.fcu.link.link import open_link

        fcu = context.vehicle.fcu
        link = open_link(context.fcu_url or fcu.url, forward=fcu.forward)
    bus = ZmqBus(context.bus_folder, name, (topic for topic in node.inputs if topic != "link_rx"))
    settle_memory()
    try:
        run_node(node, bus, lambda: bool(stop), link, Notifier(), silence_s(name, context))
    finally:
        close = getattr(node, "close", None)
        if close is not None:
            close()
        bus.close()


def _run_camera(context: Context, stop: StopFlag) -> None:
    from companion.tracking.cameras import open_source

    _one_opencv_thread()
    camera = context.vehicle.camera
    source = open_source(camera.device, context.vehicle)
    bus = ZmqBus(context.bus_folder, "camera", ())
    settle_memory()
    try:
        run_camera(source, bus, lambda: bool(stop), "camera", camera.rate_hz, Notifier())
    finally:
        bus.close()


def arguments(context: Context) -> list[str]:
    """The command line words that carry a context to a child process."""
    return [
        "--vehicle", str(context.vehicle_file), "--mission", str(context.mission_file), "--fcu", context.fcu_url,
        "--bus", str(context.bus_folder), "--log", str(context.log_file),
    ]  # fmt: skip


def main() -> int:
    """Entry of one process; exit status 2 with one line when the start is refused."""
    parser = argparse.ArgumentParser(prog="companion.runtime.processes")
    parser.add_argument("name")
    parser.add_argument("--vehicle", type=Path, required=True)
    parser.add_argument("--mission", type=Path, required=True)
    parser.add_argument("--fcu", default="")
    parser.add_argument("--bus", type=Path, required=True)
    parser.add_argument("--log", type=Path, required=True, help="file, or a folder that gets one for each flight")
    parser.add_argument("--log-max-mb", type=float, default=0.0, help="with a folder: delete the oldest flights beyond")
    parser.add_argument("--log-max-days", type=float, default=0.0, help="likewise; 0: no limit")
    parser.add_argument("--pause-when-refused", type=float, default=0.0, help="seconds before a refused start ends")
    given = parser.parse_args()
    limits = given.log_max_mb, given.log_max_days
    try:
        run(given.name, Context(given.vehicle, given.mission, given.fcu, given.bus, given.log, *limits))
    except (ConfigError, ArtifactMissing) as error:
        print(f"{given.name}: {error}", file=sys.stderr)
        Notifier().status(str(error))
        # Who is started again whatever happens (systemd) must not keep the machine busy with being refused.
        time.sleep(given.pause_when_refused)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
