"""One scenario in lockstep, and its result as plain data; the body of ``companion sim``."""

import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import cv2
import msgspec
import numpy as np
from rich.table import Table

from companion.core.enums import Phase
from companion.core.messages import Contact, MissionStatus, Truth
from companion.core.text import plain
from companion.planning.camera import load_camera
from companion.planning.stations import Planning
from companion.recording import series as sr
from companion.recording.inspection import FlownPlan, make_plan_of, shots_of
from companion.recording.inspection_figures import simulated_figures
from companion.recording.metrics import metrics_from_messages
from companion.runtime.flight_record import open_recorder
from companion.runtime.fly import ending_line
from companion.runtime.processes import RC_SWITCH
from companion.runtime.resume import Place, run_with
from sitl.flight_end import FlightEnd, Structure, judge
from sitl.flight_files import metadata_of
from sitl.lockstep import Lockstep
from sitl.scenario import CameraMode, LoadedScenario, SensorKind, load_scenario
from sitl.unkind import with_sensors
from sitl.wind import WindConfig

Result = dict[str, Any]  # JSON-ready
LOCKSTEP, REALTIME, PX4 = "lockstep", "realtime", "px4"  # "kind" of a run in the log's metadata
LINE_PERIOD_S = 5.0  # between two progress lines when the output is not a terminal


class SimulatedFlight(NamedTuple):
    """A finished simulated flight."""

    loaded: LoadedScenario
    result: Result
    lockstep: Lockstep
    log_problem: str  # why the log is incomplete, "" when it is complete

    @property
    def status(self) -> MissionStatus | None:
        """The mission's last status."""
        return self.lockstep.pilot


def simulate(
    scenario: Path,
    seed: int,
    stack: str = "full",
    vehicle: Path | None = None,
    camera: CameraMode | None = None,
    log_file: Path | None = None,
    sensors: SensorKind = SensorKind.KIND,
) -> Result:
    """Fly and measure; returns the result as JSON-ready data. Raises `ConfigError` when the start is refused.

    sensors: those of the scenario file, or drawn for the seed. Errors are against the simulator's truth over the autonomous hold, in the frame of the mission's bundle.
    """
    return fly(scenario, seed, stack, vehicle, camera, log_file, sensors)[0]


def fly(
    scenario: Path,
    seed: int,
    stack: str = "full",
    vehicle: Path | None = None,
    camera: CameraMode | None = None,
    log_file: Path | None = None,
    sensors: SensorKind = SensorKind.KIND,
) -> tuple[Result, Lockstep]:
    """The result of `simulate`, and the finished run itself with its messages."""
    loaded = with_sensors(load_scenario(scenario, vehicle, camera), sensors, seed)
    flight = fly_loaded(loaded, seed, stack, log_file)
    return flight.result, flight.lockstep


def fly_loaded(
    loaded: LoadedScenario,
    seed: int,
    stack: str = "full",
    log_file: Path | None = None,
    progress: Callable[[Lockstep], None] | None = None,
    photographed: Sequence[Place] = (),
) -> SimulatedFlight:
    """Fly a scenario that has been read; progress: called once per simulated second; photographed: by former flights.

    The log is complete up to the end of the flight also when the flight is interrupted.
    """
    cv2.setNumThreads(1)
    if log_file is None:
        lockstep = Lockstep(loaded, seed, stack=stack, photographed=photographed)
        lockstep.run(progress)
        return SimulatedFlight(loaded, _result(loaded, lockstep, stack, seed), lockstep, "")
    recorder = open_recorder(log_file, log_metadata(loaded, seed, stack, photographed=photographed))
    try:
        lockstep = Lockstep(loaded, seed, record=recorder.handle, stack=stack, photographed=photographed)
        lockstep.run(progress)
    finally:
        recorder.close()
    problem = recorder.last_error if recorder.errors else ""
    return SimulatedFlight(loaded, _result(loaded, lockstep, stack, seed), lockstep, problem)


def log_metadata(
    loaded: LoadedScenario, seed: int, stack: str = "full", kind: str = LOCKSTEP, photographed: Sequence[Place] = ()
) -> dict[str, str]:
    """What the log of a simulated flight holds besides its messages; see `companion.runtime.flight_record`."""
    run = run_with({"kind": kind, "seed": seed, "stack": stack, **drawn_facts(loaded)}, photographed)
    return metadata_of(loaded, run)


def drawn_facts(loaded: LoadedScenario) -> Result:
    """Which sensors a flight has, what was drawn for them, and a pilot who is not the scenario's; JSON-ready."""
    facts = {"sensors": str(loaded.sensors), "drawn": msgspec.to_builtins(loaded.drawn)}
    if loaded.piloted:
        facts |= {
            "pilot": msgspec.to_builtins(loaded.scenario.pilot),
            RC_SWITCH: msgspec.to_builtins(loaded.plan.rc_switch),
        }
    return facts


def _result(loaded: LoadedScenario, lockstep: Lockstep, stack: str, seed: int) -> Result:
    status = lockstep.pilot
    metrics = metrics_from_messages(lockstep.messages, bundle=loaded.plan.bundle)
    contacts = lockstep.world.contacts
    end, failure = judge(
        sr.of(lockstep.messages, Truth),
        status,
        loaded.plan.limits,
        None if loaded.plan.satellites else _taken_s(lockstep),
        contacts or (),
        Structure.of(loaded.scenario.scene, lockstep.world.airframe) if contacts is None else None,
    )
    return {
        "scenario": loaded.scenario.name,
        "stack": stack,
        "seed": seed,
        **drawn_facts(loaded),
        "duration_s": round(lockstep.now_s, 3),
        "completed": end is FlightEnd.COMPLETED,
        "end": str(end),
        "failure": failure,
        "contacts": [_fields(contact) for contact in contacts or ()],
        **metrics,
        **({} if (plan := flown_plan(loaded)) is None else {"inspection": inspection_figures(plan, lockstep.messages)}),
        "realtime_factor": round(lockstep.now_s / lockstep.wall_s, 2),
    }


def flown_plan(loaded: LoadedScenario) -> FlownPlan | None:
    """The inspection of a scenario's mission, None: it has none."""
    inspection, folder = loaded.plan.inspection, loaded.mission_path.parent
    if inspection is None:
        return None
    camera = load_camera(str((folder / inspection.camera).resolve()))
    planning = Planning(inspection, camera, loaded.site, folder, loaded.vehicle.safety.standoff_min_m)
    return make_plan_of(loaded.plan.name, planning, loaded.plan.satellites, str(loaded.mission_path))


def inspection_figures(plan: FlownPlan, messages: sr.Messages) -> Result:
    """Coverage, GSD, overlap and errors of the poses of a simulated inspection, at the true poses."""
    return simulated_figures(plan, shots_of(messages, plan))


def _fields(contact: Contact) -> Result:
    """A contact without what only a message needs."""
    return {key: value for key, value in msgspec.structs.asdict(contact).items() if key not in ("seq", "valid")}


def _taken_s(lockstep: Lockstep) -> float:
    """When the mission took the aircraft from the pilot [s]; inf: never."""
    statuses = sr.of(lockstep.messages, MissionStatus)
    return next((m.stamp_s for m in statuses if m.phase == Phase.ENTER_OFFBOARD), math.inf)


class FlightProgress:
    """Shows how far a lockstep run is: one line that is rewritten on a terminal, else a line every few seconds."""

    def __init__(self, stream: TextIO = sys.stderr, period_s: float = LINE_PERIOD_S) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._period_s = period_s
        self._next_s = time.monotonic() + period_s

    def __call__(self, lockstep: Lockstep) -> None:
        status = lockstep.pilot
        line = f"{lockstep.now_s:6.0f} s  {status.phase if status else 'starting':<15}"
        if self._terminal:
            self._stream.write(f"\r{line}")
        elif time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + self._period_s
            self._stream.write(f"{line.rstrip()}\n")
        self._stream.flush()

    def end(self) -> None:
        """Leave the line of a terminal."""
        if self._terminal:
            self._stream.write("\r\033[K")
            self._stream.flush()


# --- the table ------------------------------------------------------------------------------------------------------


def result_table(flight: SimulatedFlight, log_file: Path | None) -> Table:
    """The result in about ten rows."""
    result = flight.result
    title = f"{result['scenario']}, {flight.loaded.vehicle.name}, seed {result['seed']}, {result['sensors']} sensors"
    table = Table(title=plain(title), show_header=False)
    table.add_row("flown", f"{result['duration_s']:.1f} s, {result['hold_s']:.1f} s of them measured")
    table.add_row("position error, RMS / max", _pair(result["position_rms_m"], result["position_max_m"], 100, "cm"))
    table.add_row("yaw error, RMS", _figure(result["yaw_rms_deg"], 1, "°", 2))
    table.add_row("estimate error, RMS / max", _pair(result["estimate_rms_m"], result["estimate_max_m"], 100, "cm"))
    table.add_row("wind", wind_text(flight.loaded.scenario.wind))
    table.add_row("disturbance, largest", _figure(_largest_disturbance(flight.lockstep), 1, "m/s²"))
    solve = result.get("solve_ms") or {}
    table.add_row("solve time, median / 99 %", _pair(solve.get("p50"), solve.get("p99"), 1, "ms", 2))
    table.add_row("setpoints, longest gap", _figure(result["setpoint_gap_s"], 1e3, "ms", 0))
    table.add_row("filter resets", _figure(result["filter_resets"], 1, "", 0))
    if "inspection" in result:
        table.add_row("inspection", inspection_text(result["inspection"]))
    table.add_row("safety events", events_text(result["events"]))
    if result["failure"]:
        table.add_row("failed", plain(result["failure"]))
    table.add_row("ended early", "no" if result["completed"] else plain(early_end(flight.status)))
    table.add_row("log", "none (--log FILE)" if log_file is None else plain(str(log_file)))
    return table


def inspection_text(figures: Result) -> str:
    """The figures of an inspection in a few words."""
    parts = [f"{figures['photographs']} of {figures['planned']} photographs", f"{figures['blurred']} blurred"]
    if figures["coverage"] is not None:
        parts.append(f"coverage {figures['coverage'] * 100:.1f} %")
    parts.append(f"GSD {_figure(figures['gsd_p95_mm_px'], 1, 'mm/px', 2)}")
    position = _figure(figures["photo_position_p95_m"], 100, "cm")
    parts.append(f"pose in flight {position}, {_figure(figures['photo_attitude_p95_deg'], 1, '°', 2)} (95 %)")
    if (refined_m := figures.get("photo_refined_position_p95_m")) is not None:
        attitude = _figure(figures["photo_refined_attitude_p95_deg"], 1, "°", 2)
        parts.append(f"found again after it {_figure(refined_m, 100, 'cm')}, {attitude}")
    return ", ".join(parts)


def early_end(status: MissionStatus | None) -> str:
    """The cause of an early end."""
    return ending_line(status).removeprefix("mission ended early: ")


def wind_text(wind: WindConfig) -> str:
    """The wind of a scenario in a few words."""
    parts = [f"{float(np.linalg.norm(wind.mean_m_s)):.1f} m/s"]
    if any(wind.gust_std_m_s):
        parts.append(f"gusts {max(wind.gust_std_m_s):.1f} m/s (σ)")
    if wind.dryden is not None:
        parts.append("Dryden turbulence")
    for items, noun in ((wind.steps, "wind step"), (wind.force_steps, "force step"), (wind.jets, "jet")):
        if items:
            parts.append(f"{len(items)} {noun}{'s' if len(items) > 1 else ''}")
    return ", ".join(parts)


def events_text(events: list[dict[str, Any]]) -> str:
    """The safety monitors that became active, with how often and their actions."""
    active = [event for event in events if event["active"]]
    counts = Counter(event["monitor"] for event in active)
    actions: dict[str, list[str]] = {}
    for event in active:
        taken = actions.setdefault(event["monitor"], [])
        if event["action"] not in taken:
            taken.append(event["action"])
    texts = (
        f"{name}{f' ×{count}' if count > 1 else ''} → {', '.join(actions[name])}" for name, count in counts.items()
    )
    return "; ".join(texts) or "none"


def _largest_disturbance(lockstep: Lockstep) -> float | None:
    vectors = [message.disturbance_W for message in lockstep.messages["truth"] if isinstance(message, Truth)]
    return float(np.linalg.norm(vectors, axis=1).max()) if vectors else None


def _figure(value: float | None, scale: float, unit: str, digits: int = 1) -> str:
    return "–" if value is None else f"{value * scale:.{digits}f} {unit}".rstrip()


def _pair(first: float | None, second: float | None, scale: float, unit: str, digits: int = 1) -> str:
    if first is None or second is None:
        return "–"
    return f"{first * scale:.{digits}f} / {second * scale:.{digits}f} {unit}"
