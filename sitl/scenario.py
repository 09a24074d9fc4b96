"""The scenario file: what is flown, in which world, and what goes wrong (config/scenarios/*.toml).

A file may begin with ``base = "FILE"`` and then need only hold what differs (`companion.core.config.read_layered`).
"""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from companion.core.config import ConfigError, Section, load, number, read_toml
from companion.core.site import Site
from companion.core.vehicle import Vehicle
from companion.mission.plan import Plan, load_plan, site_of
from sitl.camera import CameraConfig
from sitl.scene import SceneConfig
from sitl.sensors import SensorConfig
from sitl.wind import WindConfig

FaultKind = Literal[
    "gnss_lost",  # no fixes
    "gnss_jump",  # value: offset east, north, up [m]
    "markers_hidden",  # the camera sees nothing
    "rc_lost",  # the receiver is silent
    "rc_mode_switch",  # the pilot moves the mode switch away and back to position mode
    "rc_sticks",  # the pilot moves the sticks
    "link_lost",  # no bytes either way
    "process_dead",  # name: process; starts again when the fault ends
    "solver_fails",  # every solve returns an error
    "controller_slow",  # value[0]: seconds each control cycle takes
    "battery_low",  # value: voltage [V] and remaining charge (0..1) that the autopilot measures
    "rc_channel",  # value: number of a channel and its pulse [µs]
    "second_companion",  # another computer on the link sends setpoints as well: level, with the thrust value[0]
    "timesync_lost",  # the autopilot's clock is no longer told
    "markers_garbage",  # value[0]: standard deviation [m] by which the camera is displaced, anew in every image
    "estimator_unsure",  # value: least standard deviations [m] that the state tells, in the world and to the bundle
    "estimator_reset",  # the state says that the filter started anew
    "gust",  # value: force over mass [m/s²] east, north, up
    "motors_weak",  # value: share of their commands that the six motors obey
    "cpu_starved",  # value[0]: share of their steps that the processes manage
    "cpu_hot",  # value[0]: temperature [°C]
    "cpu_throttled",  # the firmware lowers the clock
    "disk_full",  # value[0]: MB left
    "memory_low",  # value[0]: MB left
]
FAULT_PROCESSES = ("fcu", "tracker", "estimator", "mission", "controller")  # the nodes of a lockstep run
FAULT_NUMBERS = {  # how many numbers a fault needs; the others need none
    "gnss_jump": 3, "controller_slow": 1, "battery_low": 2, "rc_channel": 2, "markers_garbage": 1,
    "estimator_unsure": 2, "second_companion": 1, "gust": 3, "motors_weak": 6, "cpu_starved": 1, "cpu_hot": 1,
    "disk_full": 1, "memory_low": 1,
}  # fmt: skip


class Fault(Section):
    """Something that goes wrong from ``at_s`` on, for ``duration_s``."""

    at_s: Annotated[float, number(0, 3600, "s of simulated time")]
    kind: FaultKind
    duration_s: Annotated[float, number(0, 3600, "s")] = 3600.0
    value: list[float] = []
    name: str = ""


class Start(Section):
    """Where the aircraft stands at the beginning."""

    p_W: tuple[
        Annotated[float, number(-1e3, 1e3, "m")],
        Annotated[float, number(-1e3, 1e3, "m")],
        Annotated[float, number(-10, 1e3, "m")],
    ]
    yaw_rad: Annotated[float, number(-3.15, 3.15, "rad")]


class FcuClock(Section):
    """The flight controller's clock against ours; TIMESYNC has to find out."""

    boot_offset_s: Annotated[float, number(0, 1e5, "s")]
    drift_ppm: Annotated[float, number(-500, 500, "ppm")]


class Scenario(Section, kw_only=True):
    """A scenario file."""

    name: Annotated[str, Meta(min_length=1)]
    description: str
    mission: str  # relative to this file
    vehicle: str  # relative to this file
    airframe: str  # name in sitl/airframes
    duration_max_s: Annotated[float, number(1, 3600, "s")]
    camera_mode: Literal["images", "corners"]
    thrust_scale: Annotated[float, number(0.5, 1.5, "true thrust over what the airframe file says")] = 1.0
    command_delay_s: Annotated[
        float, number(0, 0.2, "s from attitude and thrust setpoint, whosever, to the autopilot's loops")
    ] = 0.0
    start: Start
    fcu_clock: FcuClock
    fcu_parameters: dict[str, int | float]  # what the crew has set on the flight controller, PX4's names
    wind: WindConfig
    sensors: SensorConfig
    camera: CameraConfig
    scene: SceneConfig
    fault: list[Fault] = []


class LoadedScenario(Section):
    """A scenario with the files it names."""

    path: Path
    scenario: Scenario
    vehicle: Vehicle
    plan: Plan
    site: Site
    vehicle_path: Path
    mission_path: Path


def load_scenario(path: str | Path, vehicle_path: Path | None = None, camera_mode: str | None = None) -> LoadedScenario:
    """Read a scenario and its vehicle and mission; raises `ConfigError`.

    vehicle_path: fly another vehicle file than the scenario names.
    camera_mode: "images" or "corners" instead of the scenario's.
    """
    path = Path(path)
    scenario = load(path, Scenario)
    if camera_mode is not None:
        scenario = msgspec.structs.replace(scenario, camera_mode=camera_mode)
    vehicle_path = vehicle_path or (path.parent / scenario.vehicle).resolve()
    mission_path = (path.parent / scenario.mission).resolve()
    for index, fault in enumerate(scenario.fault):
        if problem := fault_problem(fault):
            raise ConfigError(f"{path}: fault[{index}] ({fault.kind}): {problem}")
    plan = load_plan(mission_path)
    site = site_of(plan)
    for placed in scenario.scene.bundles:
        if site.find(placed.name) is None:
            raise ConfigError(f"{path}: scene.bundles: '{placed.name}' is not in the mission's marker file")
    return LoadedScenario(
        path=path,
        scenario=scenario,
        vehicle=load(vehicle_path, Vehicle),
        plan=plan,
        site=site,
        vehicle_path=vehicle_path,
        mission_path=mission_path,
    )


def fault_problem(fault: Fault) -> str:
    """What a fault lacks, "" when it is complete."""
    wanted = FAULT_NUMBERS.get(fault.kind, 0)
    if len(fault.value) != wanted:
        return f"value has {len(fault.value)} numbers, needs {wanted}"
    if fault.kind == "process_dead" and fault.name not in FAULT_PROCESSES:
        return f"name = {fault.name!r}: no such process (there are: {', '.join(FAULT_PROCESSES)})"
    return ""


def scenario_for(mission: Path) -> Path:
    """The scenario file of the same name beside the missions' folder, for ``--fcu sim``; raises `ConfigError`."""
    candidate = mission.resolve().parent.parent / "scenarios" / mission.name
    if not candidate.exists():
        raise ConfigError(f"{candidate}: no scenario for this mission; name one with --scenario")
    read_toml(candidate)
    return candidate
