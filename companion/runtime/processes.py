"""The process table: one row for each process on the aircraft, and the start of one process.

``python -m companion.runtime.processes NAME --vehicle V --mission M --fcu URL --bus DIR --log FILE`` is one process.
The manager starts them all; on an aircraft each has a systemd unit of its own (there ``--log`` names a folder).
"""

import argparse
import contextlib
import math
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from companion.core.bus import ZmqBus
from companion.core.clock import monotonic_s
from companion.core.config import ConfigError, load
from companion.core.enums import ProcessName
from companion.core.errors import UserError
from companion.core.folders import Hold, own_folder
from companion.core.input_files import fingerprint
from companion.core.messages import TOPICS
from companion.core.site import Site
from companion.core.text import plain
from companion.core.vehicle import Vehicle
from companion.runtime.nodes import NodeOptions, build_node, payload_camera
from companion.runtime.notify import Notifier
from companion.runtime.process import Device, StopFlag, run_camera, run_node, settle_memory

if TYPE_CHECKING:
    from companion.mission.plan import Plan


# In the run of a flight: a start by itself was allowed; the switch by which it starts, in the place of the mission's start.
YES_AUTO, RC_SWITCH = "yes_auto", "rc_switch"
RESUME = "COMPANION_RESUME"  # of the units


@dataclass(frozen=True)
class Context:
    """The arguments of a process; also the files from which `companion.runtime.nodes` builds its node.

    A file is read when a node needs it, so a process does not depend on files that it does not use.
    log_file: of this flight; or a folder, which gets a log for each flight and is kept within the two limits.
    """

    vehicle_file: Path
    mission_file: Path
    fcu_url: str
    bus_folder: Path
    log_file: Path
    log_max_mb: float = 0.0  # 0: no limit
    log_max_days: float = 0.0
    scenario_file: Path | None = None  # of a simulated flight
    run: dict[str, Any] = field(default_factory=dict)  # how it is flown, see `companion.runtime.flight_record`
    former_file: Path | None = None  # what former flights took, see `runtime.former_flights`; None: as the run says
    resume: str = ""  # log or folder that it has to be of

    @property
    def photographed(self) -> list[tuple[str, int, int]]:
        """Photographs of the inspection that former flights took: item, row, column."""
        if self.former_file is not None and self.plan.inspection is not None:
            from companion.runtime.former_flights import read

            return read(self.former_file, self.mission_file, self.resume)
        return [(str(item), int(row), int(column)) for item, row, column in self.run.get("photographed", [])]

    @property
    def vehicle(self) -> Vehicle:
        return load(self.vehicle_file, Vehicle)

    @property
    def plan(self) -> "Plan":
        from companion.mission.plan import RcSwitch, handed_over, load_plan

        plan = load_plan(self.mission_file)
        if (switch := self.run.get(RC_SWITCH)) is None:
            return plan
        try:
            return handed_over(plan, msgspec.convert(switch, RcSwitch))
        except msgspec.ValidationError as error:
            raise ConfigError(f"--run: {RC_SWITCH}: {error}") from None

    @property
    def site(self) -> Site:
        from companion.mission.plan import site_of

        return site_of(self.plan)

    @property
    def photographs_folder(self) -> Path:
        """Where a local camera stores its pictures: beside the log."""
        folder = self.log_file if self.log_file.is_dir() else self.log_file.parent
        return folder / "photographs"


def _no_options(context: Context) -> NodeOptions:
    return NodeOptions()


def refuse_auto(context: Context) -> None:
    """Raise `ConfigError` for a mission that would take off by itself on an aircraft.

    Every link may lead to one, also over a network or a router on this computer, unless the flight has a scenario: then
    this stack has started the simulator.
    """
    link = context.fcu_url or context.vehicle.fcu.url
    if context.plan.start == "auto" and context.scenario_file is None and not context.run.get(YES_AUTO):
        raise ConfigError(
            f'{context.mission_file}: start = "auto" takes off as soon as all checks have passed, and link {link} may lead to an '
            'aircraft: fly a mission with start = "rc_switch", or give companion fly --yes-auto'
        )


def _mission_options(context: Context) -> NodeOptions:
    refuse_auto(context)
    plan = context.plan
    others = onboard_processes(plan.bundle, context.scenario_file is not None, plan.inspection is not None)
    return NodeOptions(
        required_processes=tuple(name for name in others if name != ProcessName.MISSION),
        files=fingerprint(context.vehicle_file, context.mission_file),
        photographed=tuple(context.photographed),
    )


def _estimator_options(context: Context) -> NodeOptions:
    # Tenths of a second since the machine started: a restarted process counts on from above all earlier counts.
    return NodeOptions(first_reset_count=int(10 * monotonic_s()))


def _fcu_options(context: Context) -> NodeOptions:
    from companion.fcu.link.signing import open_signer

    return NodeOptions(signer=open_signer(context.vehicle.fcu.signing_key_file, context.vehicle_file.parent))


def _recorder_options(context: Context) -> NodeOptions:
    from companion.core.provenance import boot_id
    from companion.recording.continuation import flight_to_continue
    from companion.recording.disk import DiskThread
    from companion.recording.host import Host
    from companion.recording.log import first_metadata
    from companion.recording.retention import LogLimits, Retention, next_log_name
    from companion.recording.writer import LogWriter
    from companion.runtime.flight_record import flight_metadata
    from companion.runtime.resume import run_with

    metadata = flight_metadata(context.vehicle_file, context.mission_file, context.scenario_file, context.run)
    log, disk = context.log_file, DiskThread()
    files = fingerprint(None, context.mission_file)

    def run_known() -> dict[str, str] | None:
        """The run with what former flights of the mission of this log took; None: not known yet. A log waits for no other one."""
        if fingerprint(None, context.mission_file) != files:
            return None
        try:
            run = run_with(msgspec.json.decode(metadata["run"]), context.photographed)
        except ConfigError:  # the mission says what is wrong
            return None
        return {"run": msgspec.json.encode(run).decode()}

    def writer(path: Path, continued: Path | None = None) -> LogWriter:
        known = run_known()
        facts = metadata | (known or {}) | ({} if continued is None else {"continues": continued.name})
        return LogWriter(path, facts, start_s=monotonic_s(), disk=disk, later=run_known if known is None else None)

    if not log.is_dir():
        name = free_name(log)
        same_start = name != log and first_metadata(log).get("boot_id") == boot_id()
        return NodeOptions(log_writer=writer(name, log if same_start else None), read_host=Host(log.parent))

    def next_writer() -> LogWriter:
        return writer(free_name(log / next_log_name(log, datetime.now())))

    flying = flight_to_continue(log, boot_id(), monotonic_s())
    return NodeOptions(
        log_writer=next_writer() if flying is None else writer(free_name(flying), flying),
        read_host=Host(log),
        next_log_writer=next_writer,
        log_retention=Retention(log, LogLimits(context.log_max_mb, context.log_max_days)),
    )


def free_name(log_file: Path) -> Path:
    """``flight.mcap``, or ``flight_2.mcap`` … for a recorder that was started again: a log is never overwritten."""
    names = (log_file, *(log_file.with_stem(f"{log_file.stem}_{i}") for i in range(2, 1000)))
    return next((name for name in names if not name.exists()), log_file)


def _open_fcu_link(context: Context) -> Device:
    from companion.fcu.link.codec import AUTOPILOT_COMPONENT
    from companion.fcu.link.device import LinkDevice
    from companion.fcu.link.link import open_link
    from companion.fcu.link.sender import Sender
    from companion.fcu.link.signing import open_key

    fcu = context.vehicle.fcu
    key = open_key(fcu.signing_key_file, context.vehicle_file.parent)
    sender = Sender(fcu.autopilot_system_id, AUTOPILOT_COMPONENT, key)
    return LinkDevice(open_link(context.fcu_url or fcu.url, forward=fcu.forward, sender=sender))


def _payload_options(context: Context) -> NodeOptions:
    return NodeOptions(read_utc_offset_s=lambda: time.time() - monotonic_s())


def _open_camera(context: Context) -> Device | None:
    from companion.runtime.camera_device import open_camera

    camera = payload_camera(context.plan)
    return None if camera is None else open_camera(camera, context.vehicle, context.photographs_folder)


@dataclass(frozen=True)
class ProcessSpec:
    """One process of the table."""

    name: ProcessName
    niceness: int  # the higher, the later it gets a busy processor: tracking and logging wait, control does not
    options: Callable[[Context], NodeOptions] = _no_options  # of its node
    open_device: Callable[[Context], Device | None] | None = None  # the device whose bytes the process loop moves
    uses_opencv: bool = False
    simulated: bool = True  # runs when the world is the built-in simulator, too
    for_inspection: bool = False  # runs in a mission with an inspection only


PROCESSES = (
    ProcessSpec(ProcessName.RECORDER, niceness=10, options=_recorder_options),
    ProcessSpec(ProcessName.FCU, niceness=0, options=_fcu_options, open_device=_open_fcu_link),
    ProcessSpec(ProcessName.ESTIMATOR, niceness=0, options=_estimator_options),
    ProcessSpec(ProcessName.CONTROLLER, niceness=0),
    ProcessSpec(ProcessName.TRACKER, niceness=5, uses_opencv=True),
    ProcessSpec(ProcessName.CAMERA, niceness=2, uses_opencv=True, simulated=False),
    ProcessSpec(
        ProcessName.PAYLOAD, niceness=4, options=_payload_options, open_device=_open_camera, for_inspection=True
    ),
    ProcessSpec(ProcessName.MISSION, niceness=2, options=_mission_options),
)


NEED_A_BUNDLE = (ProcessName.CAMERA, ProcessName.TRACKER)  # not started for a mission without a bundle


def onboard_processes(bundle: str | None, simulated: bool, inspection: bool = False) -> list[ProcessName]:
    """The processes of the table that a mission starts; bundle: the mission's, None without."""
    started = (row for row in PROCESSES if (row.simulated or not simulated) and (inspection or not row.for_inspection))
    return [ProcessName(row.name) for row in started if bundle is not None or row.name not in NEED_A_BUNDLE]


# When memory runs out, the kernel ends the process with the largest score: memory in thousandths of the machine's, and
# this adjustment. 30 for each step of niceness puts the tracker (5) above a control loop that is 15 % of memory larger.
OOM_SCORE = Path("/proc/self/oom_score_adj")
OOM_SCORE_MAX = 1000
OOM_SCORE_PER_NICENESS = 30

FROM_DEVICE = ("link_rx", "camera_rx")  # topics of which a process with a device is itself the source
IDLE_S = 0.2  # well below the watchdog's time
MISSION_STOPS_S = 0.1  # two steps of the mission, from a limit passed to the last reference


def silence_s(name: str, context: Context) -> float:
    """How long a process only listens after its start [s].

    An estimator that is restarted in flight has another origin than the one before it and no wind estimate. It
    publishes nothing until the mission has missed its states and stopped, and the last reference made in the old world
    has expired. Otherwise the controller would fly the old reference with the new state: the setpoint would jump.
    """
    if name != ProcessName.ESTIMATOR:
        return 0.0
    return context.vehicle.safety.state_age_s + MISSION_STOPS_S + TOPICS["reference"].max_age_s


def run(name: str, context: Context, notifier: Notifier | None = None) -> None:
    """Be the process ``name`` until a signal ends it; raises `UserError` at the start. notifier: of the supervisor, if any."""
    spec = next((spec for spec in PROCESSES if spec.name == name), None)
    if spec is None:
        raise ConfigError(f"{name}: no such process (there are: {', '.join(spec.name for spec in PROCESSES)})")
    stop = StopFlag()
    own_folder(context.bus_folder)
    link = context.fcu_url or context.vehicle.fcu.url if spec.name == ProcessName.FCU else ""
    with Hold(context.bus_folder, spec.name, link) as hold:
        _run(spec, context, stop, hold, notifier or Notifier({}))


def _run(spec: ProcessSpec, context: Context, stop: StopFlag, hold: Hold, notifier: Notifier) -> None:
    _yield_when_scarce(spec)
    files = fingerprint(context.vehicle_file, context.mission_file)
    if spec.uses_opencv:
        _one_opencv_thread()
    if spec.name == ProcessName.CAMERA:
        _run_camera(context, stop, files, hold, notifier)
        return
    if spec.for_inspection and context.plan.inspection is None:
        _idle(stop, hold, notifier)
        return
    node = build_node(spec.name, context, spec.options(context))
    device = spec.open_device(context) if spec.open_device is not None else None
    own = () if device is None else FROM_DEVICE
    inputs = (topic for topic in node.inputs if topic not in own)
    bus = ZmqBus(context.bus_folder, spec.name, inputs, hold)
    settle_memory()
    try:
        run_node(node, bus, lambda: bool(stop), device, notifier, silence_s(spec.name, context), files)
    finally:
        node.close()
        bus.close()


def _idle(stop: StopFlag, hold: Hold, notifier: Notifier) -> None:
    """Be a process that the mission does not need: systemd starts them all."""
    status = "nothing to do in this mission"
    while not stop:
        notifier.stepped(monotonic_s())
        status = hold.restore() or status
        notifier.status(status)
        time.sleep(IDLE_S)


def _yield_when_scarce(spec: ProcessSpec) -> None:
    """Where processor or memory run short, the control loop is served first and ended last."""
    os.nice(spec.niceness)
    with contextlib.suppress(OSError, ValueError):
        score = int(OOM_SCORE.read_text())  # the units of systemd have set it lower for the control loop
        OOM_SCORE.write_text(str(min(OOM_SCORE_MAX, score + OOM_SCORE_PER_NICENESS * spec.niceness)))


def _one_opencv_thread() -> None:
    """OpenCV's thread pool takes cores from other processes; on small images, waking it costs more than it saves."""
    import cv2

    cv2.setNumThreads(1)


def _run_camera(context: Context, stop: StopFlag, files: str, hold: Hold, notifier: Notifier) -> None:
    from companion.tracking.cameras import open_source
    from companion.tracking.stereo_devices import StereoDeviceSource

    camera = context.vehicle.camera
    source = open_source(camera.device, context.vehicle)
    bus = ZmqBus(context.bus_folder, ProcessName.CAMERA, (), hold)
    others = source.take_others if isinstance(source, StereoDeviceSource) else None
    settle_memory()
    try:
        stopped, name = lambda: bool(stop), ProcessName.CAMERA
        run_camera(source, bus, stopped, name, camera.rate_hz, notifier, others, files)
    finally:
        bus.close()


def arguments(context: Context) -> list[str]:
    """The command-line arguments that give a context to a child process."""
    words = [
        "--vehicle", str(context.vehicle_file), "--mission", str(context.mission_file), "--fcu", context.fcu_url,
        "--bus", str(context.bus_folder), "--log", str(context.log_file),
    ]  # fmt: skip
    if context.scenario_file is not None:
        words += ["--scenario", str(context.scenario_file)]
    if context.run:
        words += ["--run", msgspec.json.encode(context.run).decode()]
    return words


def _run_facts(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


class _Parser(argparse.ArgumentParser):
    """Arguments whose refusal is an error of the user like that of a file: argparse ends the process."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def _limit(variable: str, text: str) -> float:
    """A limit of an environment variable: finite, 0 or more."""
    try:
        limit = float(text)
    except ValueError:
        limit = math.nan
    if not (math.isfinite(limit) and limit >= 0.0):
        raise argparse.ArgumentTypeError(f"{variable} = '{text}': must be a number, 0 (no limit) or more")
    return limit


def main() -> int:
    """Entry of one process. A start that fails is one line for ``systemctl status``, then a pause.

    systemd restarts the process at once: without the pause, eight processes that cannot start would keep the machine busy. One that has made
    a step is started again without it. Exit status 2 when the user can mend the start, 1 for any other error.
    """
    pausing = _Parser(add_help=False, allow_abbrev=False)
    pausing.add_argument("--pause-when-refused", type=float, default=0.0, help="seconds before a failed start ends")
    pause_s, notifier = 0.0, Notifier()
    try:
        pause_s = pausing.parse_known_args()[0].pause_when_refused  # first: the other arguments may be wrong
        name, context = _arguments(pausing)
        run(name, context, notifier)
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit) and not error.code:
            raise
        line = plain(str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}")
        with contextlib.suppress(OSError):  # a full disk: the exit status says enough
            if not isinstance(error, UserError):
                traceback.print_exc()
            print(f"{sys.argv[1] if len(sys.argv) > 1 else 'companion'}: {line}", file=sys.stderr)
        if not notifier.has_stepped:
            notifier.status(line)
            time.sleep(pause_s)
        return 2 if isinstance(error, UserError) else 1
    return 0


def _arguments(pausing: argparse.ArgumentParser) -> tuple[str, Context]:
    """Name and context of the process by the command line; raises `ConfigError`."""
    parser = _Parser(prog="companion.runtime.processes", parents=[pausing])
    parser.add_argument("name")
    parser.add_argument("--vehicle", type=Path, required=True)
    parser.add_argument("--mission", type=Path, required=True)
    parser.add_argument("--fcu", default="")
    parser.add_argument("--bus", type=Path, required=True)
    parser.add_argument("--log", type=Path, required=True, help="file, or a folder that gets one for each flight")
    mb, days = (partial(_limit, f"COMPANION_LOG_MAX_{unit}") for unit in ("MB", "DAYS"))
    parser.add_argument("--log-max-mb", type=mb, default=0.0, help="with a folder: delete the oldest flights beyond")
    parser.add_argument("--log-max-days", type=days, default=0.0, help="likewise; 0: no limit")
    parser.add_argument("--scenario", type=Path, default=None, help="of a simulated flight, for its log")
    parser.add_argument("--run", type=_run_facts, default={}, help="how it is flown, as JSON, for the log")
    parser.add_argument("--former", type=Path, default=None, help="file of what former flights photographed")
    parser.add_argument(
        "--resume", default=os.environ.get(RESUME, ""), help=f"with --former: as ${RESUME}, the default"
    )
    given = parser.parse_args()
    files = given.vehicle, given.mission, given.fcu, given.bus, given.log
    limits = given.log_max_mb, given.log_max_days
    return given.name, Context(*files, *limits, given.scenario, given.run, given.former, given.resume)


if __name__ == "__main__":
    sys.exit(main())
