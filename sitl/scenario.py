"""The scenario file: mission, vehicle, world and faults of a flight (config/scenarios/*.toml).

A file may begin with ``base = "FILE"`` and then need only hold what differs (`companion.core.config.read_layered`).
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from companion.core.config import ConfigError, Section, load, number, read_toml
from companion.core.config_files import SUFFIX
from companion.core.enums import ProcessName
from companion.core.site import Site
from companion.core.vehicle import Vehicle
from companion.mission.inspection_files import load_inspection
from companion.mission.plan import Plan, RcSwitch, check_vehicle, handed_over, load_plan, site_of
from sitl.airframe import ROTORS_MAX, Airframe, load_airframe
from sitl.camera import CameraConfig
from sitl.devices.config import DevicesConfig
from sitl.payload_camera import PayloadConfig
from sitl.pilot import PilotConfig, TakeBack
from sitl.scene import SceneConfig
from sitl.sensors import SensorConfig
from sitl.solids.solids import GLUED_M, Solids
from sitl.solids.standing import obstacle
from sitl.wind import WindConfig

DEFAULT_PILOT = "default"  # of --pilot
PILOTED_S = 150.0  # longer than a mission that starts by itself
SWITCH = RcSwitch(channel=8, off_us=(900, 1300), on_us=(1700, 2100))  # of a pilot, where the mission has none

CameraMode = Literal["images", "corners"]  # drawn and searched for markers, or the markers' corners alone


class SensorKind(StrEnum):
    """Which errors the sensors and the aircraft have."""

    KIND = "kind"  # those of the scenario file
    UNKIND = "unkind"  # drawn for each seed (`sitl.unkind`)


class FaultKind(StrEnum):
    """The kinds of faults; ``value`` and ``name`` are fields of `Fault`. `sitl.faults` has their effects."""

    GNSS_LOST = "gnss_lost"  # no fixes
    GNSS_JUMP = "gnss_jump"  # value: offset east, north, up [m]
    GNSS_REFUSED = "gnss_refused"  # the flight controller does not use the fixes, for whatever reason
    MARKERS_HIDDEN = "markers_hidden"  # no camera sees anything
    CAMERA_FROZEN = "camera_frozen"  # every image is the last one before the fault, with a new stamp
    CAMERA_SLIPPED = "camera_slipped"  # value: rotation vector [rad] of the camera on its mount, in its own frame
    HEADING_DISTURBED = "heading_disturbed"  # value[0]: rad by which iron turns the compass
    MARKERS_OUTLIERS = "markers_outliers"  # value[0]: standard deviation [m] of the camera's displacement in each image
    # HIGHRES_IMU (`sitl.imu_faults`)
    IMU_STOPS = "imu_stops"  # none is sent
    IMU_SLOW = "imu_slow"  # value[0]: Hz
    IMU_TIME_JUMPS = "imu_time_jumps"  # value[0]: s by which the stamps are ahead, in order, behind, in order in turn
    IMU_SWAPPED = "imu_swapped"  # value: numbers of the two axes, 1 to 3
    IMU_INVERTED = "imu_inverted"  # rates and specific force have the wrong sign
    IMU_FROZEN = "imu_frozen"  # value[0]: number of the axis, 1 to 3 of the accelerometer, 4 to 6 of the gyroscope
    IMU_CLIPS = "imu_clips"  # value[0]: samples per second at the end of the accelerometer's range
    RC_LOST = "rc_lost"  # the receiver is silent
    RC_MODE_SWITCH = "rc_mode_switch"  # the pilot moves the mode switch away and back to position mode
    RC_STICKS = "rc_sticks"  # the pilot moves the sticks
    RC_CHANNEL = "rc_channel"  # value: number of a channel and its pulse [µs]
    LINK_LOST = "link_lost"  # no bytes either way
    SECOND_COMPANION = "second_companion"  # another computer on the link sends level setpoints with thrust value[0]
    TIMESYNC_LOST = "timesync_lost"  # the autopilot gets no TIMESYNC any longer
    PROCESS_DEAD = "process_dead"  # name: process; starts again when the fault ends
    SOLVER_FAILS = "solver_fails"  # every solve returns an error
    CONTROLLER_SLOW = "controller_slow"  # value[0]: seconds each control cycle takes
    BATTERY_LOW = "battery_low"  # value: voltage [V] and remaining charge (0..1) that the autopilot measures
    ESTIMATOR_UNCERTAIN = "estimator_uncertain"  # value: least standard deviations [m] of the state, W and bundle
    ESTIMATOR_RESET = "estimator_reset"  # the state's reset count is one higher
    GUST = "gust"  # value: force over mass [m/s²] east, north, up
    MOTORS_WEAK = "motors_weak"  # value: share of its command that each motor obeys, or one share for all
    MOTOR_STOPS = "motor_stops"  # value: numbers of the motors that stand still, from 0
    CPU_STARVED = "cpu_starved"  # value[0]: share of their steps that the processes manage
    CPU_HOT = "cpu_hot"  # value[0]: temperature [°C]
    CPU_THROTTLED = "cpu_throttled"  # the firmware lowers the clock
    DISK_FULL = "disk_full"  # value[0]: MB left
    MEMORY_LOW = "memory_low"  # value[0]: MB left
    # of the payload camera (`sitl.payload_camera`)
    PAYLOAD_SILENT = "payload_silent"  # camera and gimbal neither send nor receive
    PAYLOAD_REFUSES = "payload_refuses"  # every photograph
    PAYLOAD_LOSES = "payload_loses"  # it takes the photographs, its answers are lost
    PAYLOAD_LATE = "payload_late"  # value[0]: s by which its answers are late
    PAYLOAD_REPEATS = "payload_repeats"  # every answer comes twice
    PAYLOAD_WITHOUT_STORAGE = "payload_without_storage"
    GIMBAL_STUCK = "gimbal_stuck"  # it stays where it is
    # attacks on the link (`sitl.link_attacks`)
    FOREIGN_SETPOINTS = "foreign_setpoints"  # value: rate [Hz], tilt [rad], thrust, 1: seen by this companion, too
    FOREIGN_OFFBOARD = "foreign_offboard"  # the same, and it requests offboard itself
    VOLTAGE_WRONG = "voltage_wrong"  # value: up to four voltages [V] in turn, in place of the reported one
    FRAMES_WRONG = "frames_wrong"  # value: velocity [m/s], tilt [rad] added to copies of PX4's frames
    # Markers that are not what the marker file says (`sitl.marker_attacks`). ``name``: of a bundle; "": all bundles.
    BUNDLE_MOVES = "bundle_moves"  # value: velocity [m/s] east, north, up
    BUNDLE_JUMPS = "bundle_jumps"  # value: displacement [m]; also a copy that alone is in sight
    BUNDLE_COPIED = "bundle_copied"  # value: displacement [m] of a second bundle of the same name
    BUNDLE_ALTERNATES = "bundle_alternates"  # value: displacement [m] in every second image
    BUNDLE_RESIZED = "bundle_resized"  # value[0]: size as printed over the marker file's
    BUNDLE_GROWS = "bundle_grows"  # value[0]: change of that size per second
    BUNDLE_MIRRORED = "bundle_mirrored"  # printed left for right
    BUNDLE_FLICKERS = "bundle_flickers"  # value[0]: share of the images without the bundle
    MARKERS_FLICKER = "markers_flicker"  # value[0]: share of the images without a marker, each on its own

    @classmethod
    def _missing_(cls, value: object) -> "FaultKind | None":
        """The present kind of a name that older scenario files use."""
        return RENAMED_FAULTS.get(value) if isinstance(value, str) else None


RENAMED_FAULTS = {"markers_garbage": FaultKind.MARKERS_OUTLIERS, "estimator_unsure": FaultKind.ESTIMATOR_UNCERTAIN}
FAULT_PROCESSES = (  # the nodes of a lockstep run
    ProcessName.FCU,
    ProcessName.TRACKER,
    ProcessName.ESTIMATOR,
    ProcessName.MISSION,
    ProcessName.CONTROLLER,
    ProcessName.PAYLOAD,
)
IMU_FAULTS = (  # of the stream of the PX4 emulator; real PX4 sends what it measures
    FaultKind.IMU_STOPS,
    FaultKind.IMU_SLOW,
    FaultKind.IMU_TIME_JUMPS,
    FaultKind.IMU_SWAPPED,
    FaultKind.IMU_INVERTED,
    FaultKind.IMU_FROZEN,
    FaultKind.IMU_CLIPS,
)
FAULT_NUMBERS = {  # how many numbers a fault needs; the others need none
    FaultKind.GNSS_JUMP: 3,
    FaultKind.CAMERA_SLIPPED: 3,
    FaultKind.HEADING_DISTURBED: 1,
    FaultKind.MARKERS_OUTLIERS: 1,
    FaultKind.IMU_SLOW: 1,
    FaultKind.IMU_TIME_JUMPS: 1,
    FaultKind.IMU_SWAPPED: 2,
    FaultKind.IMU_FROZEN: 1,
    FaultKind.IMU_CLIPS: 1,
    FaultKind.RC_CHANNEL: 2,
    FaultKind.SECOND_COMPANION: 1,
    FaultKind.CONTROLLER_SLOW: 1,
    FaultKind.BATTERY_LOW: 2,
    FaultKind.ESTIMATOR_UNCERTAIN: 2,
    FaultKind.GUST: 3,
    FaultKind.CPU_STARVED: 1,
    FaultKind.CPU_HOT: 1,
    FaultKind.DISK_FULL: 1,
    FaultKind.MEMORY_LOW: 1,
    FaultKind.PAYLOAD_LATE: 1,
    FaultKind.FOREIGN_SETPOINTS: 4,
    FaultKind.FOREIGN_OFFBOARD: 4,
    FaultKind.FRAMES_WRONG: 2,
    FaultKind.BUNDLE_MOVES: 3,
    FaultKind.BUNDLE_JUMPS: 3,
    FaultKind.BUNDLE_COPIED: 3,
    FaultKind.BUNDLE_ALTERNATES: 3,
    FaultKind.BUNDLE_RESIZED: 1,
    FaultKind.BUNDLE_GROWS: 1,
    FaultKind.BUNDLE_FLICKERS: 1,
    FaultKind.MARKERS_FLICKER: 1,
}
FAULT_NUMBERS_MAX = {  # a fault that takes one number or more, up to this many
    FaultKind.VOLTAGE_WRONG: 4,
    FaultKind.MOTORS_WEAK: ROTORS_MAX,
    FaultKind.MOTOR_STOPS: ROTORS_MAX,
}


class Fault(Section, frozen=True):
    """A fault that begins at ``at_s`` and lasts ``duration_s``."""

    at_s: Annotated[float, number(0, 3600, "s of simulated time")]
    kind: FaultKind
    duration_s: Annotated[float, number(0, 3600, "s")] = 3600.0
    value: list[float] = []
    name: str = ""


class Start(Section, frozen=True):
    """The place of the aircraft at the beginning."""

    p_W: tuple[
        Annotated[float, number(-1e3, 1e3, "m")],
        Annotated[float, number(-1e3, 1e3, "m")],
        Annotated[float, number(-10, 1e3, "m")],
    ]
    yaw_rad: Annotated[float, number(-3.15, 3.15, "rad")]


class FcuClock(Section, frozen=True):
    """Offset and drift of the flight controller's clock against the companion's; TIMESYNC estimates both."""

    boot_offset_s: Annotated[float, number(0, 1e5, "s")]
    drift_ppm: Annotated[float, number(-500, 500, "ppm")]


class Scenario(Section, frozen=True, kw_only=True):
    """A scenario file."""

    name: Annotated[str, Meta(min_length=1)]
    description: str
    mission: str  # relative to this file
    vehicle: str  # relative to this file
    airframe: str  # name in config/airframes, or a path relative to this file
    airframe_changes: dict[str, Any] = {}  # tables that are laid over those of the airframe's file
    duration_max_s: Annotated[float, number(1, 3600, "s")]
    camera_mode: CameraMode
    thrust_scale: Annotated[float, number(0.5, 1.5, "true thrust over what the airframe file says")] = 1.0
    command_delay_s: Annotated[
        float, number(0, 0.2, "s from an attitude and thrust setpoint, of any sender, to the autopilot's loops")
    ] = 0.0
    gnss_gates_apart: bool = False  # EKF2 rejects place, height and velocity of a fix each by itself
    start: Start
    fcu_clock: FcuClock
    fcu_parameters: dict[str, int | float]  # set on the flight controller by the crew; PX4's names
    wind: WindConfig
    sensors: SensorConfig
    camera: CameraConfig
    scene: SceneConfig
    devices: DevicesConfig | None = None  # connected to the companion, besides the camera; None: there are none
    payload: PayloadConfig = PayloadConfig()  # the payload camera of a mission with an inspection
    pilot: PilotConfig | None = None  # who takes off and hands over; None: the sticks stay in their centres
    fault: list[Fault] = []
    world: str | None = None  # world file with solids, relative to this file; None: there are none


class LoadedScenario(Section, frozen=True):
    """A scenario with the files it names."""

    path: Path
    scenario: Scenario
    vehicle: Vehicle
    plan: Plan
    site: Site
    vehicle_path: Path
    mission_path: Path
    solids: Solids | None = None  # of the world file
    piloted: bool = False  # the pilot and the switch are not those of the files (`with_pilot`)
    drawn: Section | None = None  # the `sitl.unkind.UnkindWorld` that is in the scenario; None: kind sensors

    @property
    def sensors(self) -> SensorKind:
        return SensorKind.KIND if self.drawn is None else SensorKind.UNKIND


def load_scenario(
    path: str | Path,
    vehicle_path: Path | None = None,
    camera_mode: CameraMode | None = None,
    airframe: Path | None = None,
) -> LoadedScenario:
    """Read a scenario and its vehicle and mission; raises `ConfigError`.

    vehicle_path: fly another vehicle file than the scenario names.
    camera_mode: "images" or "corners" instead of the scenario's. airframe: fly another simulated aircraft.
    """
    path = Path(path)
    scenario = load(path, Scenario)
    if camera_mode is not None:
        scenario = msgspec.structs.replace(scenario, camera_mode=camera_mode)
    if airframe is not None:
        scenario = msgspec.structs.replace(scenario, airframe=str(airframe.absolute()), airframe_changes={})
    elif scenario.airframe.endswith(SUFFIX):
        scenario = msgspec.structs.replace(scenario, airframe=str((path.parent / scenario.airframe).resolve()))
    vehicle_path = vehicle_path or (path.parent / scenario.vehicle).resolve()
    mission_path = (path.parent / scenario.mission).resolve()
    flown = load_airframe(scenario.airframe, scenario.airframe_changes)
    for index, fault in enumerate(scenario.fault):
        if problem := fault_problem(fault) or motor_problem(fault, len(flown.hubs)):
            raise ConfigError(f"{path}: fault[{index}] ({fault.kind}): {problem}")
    plan = load_plan(mission_path)
    site = site_of(plan)
    for placed in scenario.scene.bundles:
        if site.find(placed.name) is None:
            raise ConfigError(f"{path}: scene.bundles: '{placed.name}' is not in the mission's marker file")
    solids = None if scenario.world is None else Solids.load((path.parent / scenario.world).resolve())
    if solids is not None and (problem := world_problem(scenario, plan, solids, flown)):
        raise ConfigError(f"{path}: {problem}")
    vehicle = load(vehicle_path, Vehicle)
    check_vehicle(plan, vehicle, f"{mission_path}: ")
    load_inspection(plan, site, vehicle, mission_path)
    return LoadedScenario(
        path=path,
        scenario=scenario,
        vehicle=vehicle,
        plan=plan,
        site=site,
        vehicle_path=vehicle_path,
        mission_path=mission_path,
        solids=solids,
    )


def with_pilot(loaded: LoadedScenario, named: str) -> LoadedScenario:
    """The scenario with a pilot who takes off and hands over by the switch, also where the mission would start by itself.

    named: a pilot file (the keys of `[pilot]`), or "default": to the first waypoint of the search in Position mode, hand-over, back
    by the sticks, hand-over. Raises `ConfigError`.
    """
    pilot = _default_pilot(loaded) if named == DEFAULT_PILOT else load(named, PilotConfig)
    return piloted(loaded, pilot, loaded.plan.rc_switch or SWITCH)


def piloted(loaded: LoadedScenario, pilot: PilotConfig, switch: RcSwitch) -> LoadedScenario:
    """The scenario flown by a pilot with a switch."""
    duration_s = min(loaded.scenario.duration_max_s + PILOTED_S, 3600.0)
    scenario = msgspec.structs.replace(loaded.scenario, pilot=pilot, duration_max_s=duration_s)
    return msgspec.structs.replace(loaded, scenario=scenario, plan=handed_over(loaded.plan, switch), piloted=True)


def _default_pilot(loaded: LoadedScenario) -> PilotConfig:
    """Flies to the first waypoint of the search; without one to above the take-off point."""
    start, search = loaded.scenario.start, loaded.plan.search
    p_m, yaw_rad = ((0.0, 0.0, loaded.plan.takeoff.height_m), start.yaw_rad)
    if search is not None:
        p_m, yaw_rad = search.waypoints[0].p_m, search.waypoints[0].yaw_rad
    x, y, z = (a + b for a, b in zip(start.p_W, p_m, strict=True))
    back = [TakeBack(after_s=30.0, by="sticks", again_s=5.0)]
    return PilotConfig(
        takes_off_s=8.0, goal_W=(x, y, z), yaw_rad=yaw_rad, reaction_s=1.0, mode="POSCTL", take_back=back
    )


def world_problem(scenario: Scenario, plan: Plan, solids: Solids, airframe: Airframe) -> str:
    """What in a scenario does not fit its world, beginning with the key; "" if nothing."""
    placed = [bundle.name for bundle in scenario.scene.bundles]
    if plan.bundle is not None and plan.bundle not in placed:
        return f"scene.bundles: the mission's bundle '{plan.bundle}' is not in the world (it has: {', '.join(placed)})"
    places = [("start.p_W", scenario.start.p_W)]
    places += [(f"scene.bundles: '{bundle.name}'", bundle.p_W) for bundle in scenario.scene.bundles]
    for key, p_W in places:
        near = solids.nearest(np.array([p_W]))
        if near.distance_m[0] < -GLUED_M:
            return f"{key}: {-near.distance_m[0]:.2f} m inside of the solid '{solids.names[near.solid[0]]}'"
    if name := obstacle(solids, airframe, scenario.start.p_W, scenario.start.yaw_rad):
        reach_m = airframe.arm_m + airframe.rotor.radius_m
        return f"start.p_W: the aircraft stands in the solid '{name}': its rotors reach {reach_m:.2f} m to the side"
    return ""


def fault_problem(fault: Fault) -> str:
    """Why a fault cannot be used, "" when it can."""
    needed = FAULT_NUMBERS.get(fault.kind, 0)
    if (most := FAULT_NUMBERS_MAX.get(fault.kind)) is not None:
        if not 1 <= len(fault.value) <= most:
            return f"value has {len(fault.value)} numbers, needs 1 to {most}"
    elif len(fault.value) != needed:
        return f"value has {len(fault.value)} numbers, needs {needed}"
    if fault.kind == FaultKind.IMU_SWAPPED and not set(fault.value) <= {1.0, 2.0, 3.0}:
        return f"value = {fault.value}: the axes are 1, 2 and 3"
    if fault.kind == FaultKind.IMU_FROZEN and fault.value[0] not in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0):
        return f"value = {fault.value}: the axes are 1 to 6"
    if fault.kind == FaultKind.IMU_SLOW and not fault.value[0] > 0.0:
        return f"value = {fault.value}: must be above 0 Hz"
    if fault.kind == FaultKind.PROCESS_DEAD and fault.name not in FAULT_PROCESSES:
        return f"name = {fault.name!r}: no such process (there are: {', '.join(FAULT_PROCESSES)})"
    return ""


def motor_problem(fault: Fault, rotors: int) -> str:
    """Why a fault does not fit an aircraft with so many rotors, "" when it does."""
    if fault.kind == FaultKind.MOTORS_WEAK and len(fault.value) not in (1, rotors):
        return f"value has {len(fault.value)} numbers, needs 1 or {rotors}: the airframe has {rotors} rotors"
    if fault.kind == FaultKind.MOTOR_STOPS and not set(fault.value) <= set(range(rotors)):
        return f"value = {fault.value}: the motors of the airframe are 0 to {rotors - 1}"
    return ""


def scenario_for(mission: Path) -> Path:
    """The scenario file of the same name beside the missions' folder, for ``--fcu sim``; raises `ConfigError`."""
    candidate = mission.resolve().parent.parent / "scenarios" / mission.name
    if not candidate.exists():
        raise ConfigError(f"{candidate}: no scenario for this mission; name one with --scenario")
    read_toml(candidate)
    return candidate
