"""The table that builds every node, for processes, lockstep runs, replay and preflight alike.

A builder imports its own package only when it is called: the controller's process holds no OpenCV, the tracker's no
solver. The camera is a driver and not a node, so it has no builder.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from companion.core.clock import Stopwatch
from companion.core.config import ConfigError
from companion.core.enums import ProcessName
from companion.core.messages import HostStatus
from companion.core.node import Node
from companion.core.site import Site
from companion.core.vehicle import Vehicle
from companion.planning.camera_control import BY_FLIGHT_CONTROLLER

if TYPE_CHECKING:
    from companion.control.solver import Nmpc
    from companion.fcu.link.signing import Signer
    from companion.mission.plan import Plan
    from companion.planning.camera import PayloadCamera
    from companion.recording.retention import Retention
    from companion.recording.writer import LogWriter
    from companion.tracking.detection import Detector


class NodeFiles(Protocol):
    """The files that a node is built from; a builder reads only those that its node needs."""

    @property
    def vehicle(self) -> Vehicle: ...

    @property
    def plan(self) -> "Plan": ...

    @property
    def site(self) -> Site: ...


@dataclass(frozen=True)
class LoadedFiles:
    """`NodeFiles` that a caller has read already."""

    vehicle: Vehicle
    plan: "Plan"
    site: Site


@dataclass(frozen=True)
class NodeOptions:
    """Options that differ between a process, a lockstep run and a replay; a node ignores those of other nodes.

    stopwatch: measures computing time; None: by the real clock.
    first_reset_count: of the estimator, more than any earlier estimator of the same flight had.
    signer: of MAVLink frames; None: frames are neither signed nor checked.
    nmpc: None: the solver of the vehicle file.
    detector: of markers; None: the vehicle file's or what the marker families of the site require.
    read_utc_offset_s: UTC minus companion time, by the computer's clock; None: unknown.
    required_processes: must publish `Health` before the mission starts, with the same `files`, "" for any.
    photographed: item, row and column of an inspection's photographs that former flights took.
    log_writer, read_host, next_log_writer, log_retention: see `companion.recording.recorder.RecorderNode`.
    """

    stopwatch: Stopwatch | None = None
    first_reset_count: int = 0
    signer: "Signer | None" = None
    nmpc: "Nmpc | None" = None
    detector: "Detector | None" = None
    required_processes: tuple[ProcessName, ...] = ()
    files: str = ""
    read_utc_offset_s: Callable[[], float] | None = None
    photographed: tuple[tuple[str, int, int], ...] = ()
    log_writer: "LogWriter | None" = None
    read_host: Callable[[float], HostStatus] | None = None
    next_log_writer: "Callable[[], LogWriter] | None" = None
    log_retention: "Retention | None" = None


NodeBuilder = Callable[[NodeFiles, NodeOptions], Node]


def _tracker(files: NodeFiles, options: NodeOptions) -> Node:
    from companion.tracking.tracker import TrackerNode

    return TrackerNode(files.vehicle, files.site, options.stopwatch, options.detector)


def _estimator(files: NodeFiles, options: NodeOptions) -> Node:
    from companion.estimation.estimator import EstimatorNode
    from companion.estimation.survey import surveyed

    return EstimatorNode(
        files.vehicle,
        files.plan.bundle,
        options.stopwatch,
        resets=options.first_reset_count,
        satellites=files.plan.satellites,
        survey=surveyed(files.site),
        plumb={bundle.name: bundle.plumb for bundle in files.site.bundle if bundle.plumb is not None},
        known={bundle.name: len(bundle.markers) for bundle in files.site.bundle},
    )


def _controller(files: NodeFiles, options: NodeOptions) -> Node:
    from companion.control.controller import ControllerNode

    return ControllerNode(files.vehicle, options.nmpc, options.stopwatch)


def _fcu(files: NodeFiles, options: NodeOptions) -> Node:
    from companion.fcu.fcu_node import FcuNode
    from companion.mission.planned_flight import planned_flight

    payload = None
    if (camera := payload_camera(files.plan)) is not None and by_flight_controller(camera):
        from companion.payload.identity import payload_component

        payload = payload_component(files.vehicle)
    return FcuNode(
        files.vehicle,
        options.stopwatch,
        options.signer,
        satellites=files.plan.satellites,
        payload_component=payload,
        flight=planned_flight(files.plan),
    )


def payload_camera(plan: "Plan") -> "PayloadCamera | None":
    """The payload camera of a loaded mission; None: it takes no photographs with one. Raises `ConfigError`."""
    if plan.inspection is None:
        return None
    from companion.planning.camera import load_camera

    return load_camera(plan.inspection.camera)


def by_flight_controller(camera: "PayloadCamera") -> bool:
    """Camera and gimbal are reached over the link to the flight controller."""
    return camera.control is not None and camera.control.link == BY_FLIGHT_CONTROLLER


def _payload(files: NodeFiles, options: NodeOptions) -> Node:
    from companion.payload.payload_node import PayloadNode

    if (camera := payload_camera(files.plan)) is None:
        raise ConfigError(f"{files.plan.name}: inspection: missing table: the payload camera has nothing to photograph")
    return PayloadNode(camera, files.vehicle, options.read_utc_offset_s)


def _mission(files: NodeFiles, options: NodeOptions) -> Node:
    from companion.mission.mission_node import MissionNode

    required = options.required_processes
    return MissionNode(files.vehicle, files.plan, files.site, required, options.photographed, options.files)


def _recorder(files: NodeFiles, options: NodeOptions) -> Node:
    from companion.recording.recorder import RecorderNode

    if options.log_writer is None:
        raise ValueError("a recorder needs a log writer")
    return RecorderNode(options.log_writer, options.read_host, options.next_log_writer, options.log_retention)


BUILDERS: dict[ProcessName, NodeBuilder] = {
    ProcessName.TRACKER: _tracker,
    ProcessName.ESTIMATOR: _estimator,
    ProcessName.CONTROLLER: _controller,
    ProcessName.FCU: _fcu,
    ProcessName.MISSION: _mission,
    ProcessName.PAYLOAD: _payload,
    ProcessName.RECORDER: _recorder,
}

_DEFAULTS = NodeOptions()


def build_node(name: ProcessName, files: NodeFiles, options: NodeOptions = _DEFAULTS) -> Node:
    """The node of a process; raises `ConfigError` or `ArtifactMissing` when it cannot start, KeyError for the camera."""
    return BUILDERS[name](files, options)
