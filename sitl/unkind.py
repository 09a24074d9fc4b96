"""Unkind sensors: a world for each seed that the stack does not know.

`draw` takes every number from the ranges of config/sensors/unkind.toml, `apply` puts them into a scenario. A row of the
ranges has a random stream of its own: a new row leaves the draws of the others as they were. No number of the vehicle
file's estimator is read. What is drawn *against* the vehicle file is what a crew measured: mount and latency of the
camera.

Relative to the scenario
- The position source. Jumps, velocity error and heading offset are those of an ordinary receiver with a compass (`PAPER`). A
  better source (RTK, motion capture) gets the same share of them as the scenario has of the ordinary receiver's noise;
  a random walk is a multiple of the scenario's, and a source without one keeps none.
- The air. A scenario with a mean wind and gusts is outdoors: it gets the drawn wind from its own direction, and Dryden turbulence
  in place of its gusts. All others (still air, fans that are timed steps, jets) are experiments and keep their air.

The flight controller's velocity
Its error comes from its inputs through the observer, so position and velocity stay consistent. A tilt error of EKF2 that
lasts comes with a bias of the accelerometer that explains it (`AttitudeConfig.tilt_in_accel`); the rest of the tilt error is a
false acceleration. That rest causes at most half of the variance, a slow error of the receiver's velocity the remainder.
With a strong random walk the observer's noise alone may exceed a small draw; then that is the error. And with a good source no
error lasts that EKF2's gates would reject: both are reduced until the innovations stay inside of them. A jump beyond the gate is
rejected without the velocity of its fix, as EKF2 does it (`Scenario.gnss_gates_apart`).
"""

import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from companion.core.config import ConfigError, Section, load, number
from companion.core.config_files import config_folder
from companion.core.frames import GRAVITY_M_S2, quat_exp, quat_from_rpy, quat_multiply, quat_normalized, rpy_from_quat
from companion.core.trajectory_messages import Vec3
from sitl.airframe import load_airframe, with_thrust
from sitl.autopilot.observer_error import velocity_error
from sitl.autopilot.parameters import Parameters, load_parameters
from sitl.autopilot.step_response import overshoot
from sitl.dryden import DrydenConfig
from sitl.scenario import LoadedScenario, Scenario, SensorKind
from sitl.scene import PlacedBundle, marker_name
from sitl.sensors import PAPER, GnssConfig, GnssJump, SensorConfig
from sitl.vectors import quat, vec3

RANGES_FILE = Path("sensors/unkind.toml")  # in the folder of the configuration files
GAINS = ("_P", "RATE_P", "RATE_I", "RATE_D")  # of MC_ROLL… and MC_PITCH…
GAIN_DRAWS = 20  # the one whose overshoot is nearest to the drawn overshoot is taken
TILT_SHARE = 0.5  # of the variance of the velocity error, at most, by tilt
GATE_SIGMAS = 4.0  # standard deviations of the innovations, noise and slow errors together, inside EKF2's gates
STEEPEST_JUMP = math.radians(45)  # of a jump against the horizon
HOVER_HEIGHT_M = 5.0  # for the turbulence of a scenario without a bundle
CAMERA_LATENCY_MIN_S = 0.005

Angle = Annotated[float, number(-0.5, 0.5, "rad")]
Tilt = Annotated[float, number(0.0, 0.5, "rad, standard deviation")]
Time = Annotated[float, number(0.1, 1000.0, "s")]
Latency = Annotated[float, number(-1.0, 1.0, "s")]
Jitter = Annotated[float, number(0.0, 0.2, "s, standard deviation")]
Shift = Annotated[float, number(-1.0, 1.0, "m")]
Jump = Annotated[float, number(0.0, 100.0, "m")]
Error = Annotated[float, number(0.0, 5.0, "m/s, standard deviation")]
Wind = Annotated[float, number(0.5, 30.0, "m/s")]
Pixels = Annotated[float, number(0.0, 10.0, "px, standard deviation")]
Thrust = Annotated[float, number(0.5, 1.5, "as thrust_scale of a scenario")]
Factor = Annotated[float, number(0.1, 100.0, "")]
Share = Annotated[float, number(0.0, 0.9, "(share)")]
Size = Annotated[float, number(-0.3, 0.3, "(share)")]


class UnkindRanges(Section, frozen=True):
    """A file of ranges: for every row the lowest and the highest number."""

    tilt_std_rad: tuple[Tilt, Tilt]
    tilt_time_s: tuple[Time, Time]
    heading_offset_rad: tuple[Angle, Angle]
    heading_walk_std_rad: tuple[Tilt, Tilt]
    heading_walk_time_s: tuple[Time, Time]
    fcu_velocity_std_m_s: tuple[Error, Error]
    fcu_velocity_time_s: tuple[Time, Time]
    gnss_walk_factor: tuple[Factor, Factor]
    gnss_jump_m: tuple[Jump, Jump]
    gnss_jump_interval_s: tuple[Time, Time]
    gnss_jump_duration_s: tuple[Time, Time]
    corner_noise_px: tuple[Pixels, Pixels]
    corner_drift_px: tuple[Pixels, Pixels]
    corner_drift_time_s: tuple[Time, Time]
    latency_error_s: tuple[Latency, Latency]
    latency_jitter_s: tuple[Jitter, Jitter]
    images_lost: tuple[Share, Share]
    mount_rotation_rad: tuple[Angle, Angle]
    mount_shift_m: tuple[Shift, Shift]
    mount_sway_std_rad: tuple[Tilt, Tilt]
    mount_sway_time_s: tuple[Time, Time]
    marker_size_error: tuple[Size, Size]
    print_size_error: tuple[Size, Size]
    bundle_tilt_rad: tuple[Angle, Angle]
    thrust_scale: tuple[Thrust, Thrust]
    attitude_gain_factor: tuple[Factor, Factor]
    attitude_overshoot: tuple[Share, Share]
    wind_m_s: tuple[Wind, Wind]

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            low, high = getattr(self, name)
            if low > high:
                raise ValueError(f"{name} = [{low:g}, {high:g}]: the first number must not be above the second")


class UnkindWorld(Section, frozen=True):
    """What was drawn for a seed and a scenario."""

    tilt_std_rad: float
    tilt_time_s: float
    heading_offset_rad: float
    heading_walk_std_rad: float
    heading_walk_time_s: float
    fcu_velocity_std_m_s: float  # as the observer will have it in a hover, horizontally, each axis
    fcu_velocity_time_s: float  # of the receiver's slow error
    gnss_velocity_drift_m_s: float  # the standard deviation of that slow error
    tilt_in_accel: float  # share
    gnss_walk_variance_m2: float  # of a sample
    gnss_jumps: list[GnssJump]
    corner_noise_px: float
    corner_drift_px: float
    corner_drift_time_s: float
    camera_latency_s: float
    camera_latency_jitter_s: float
    images_lost: float  # share
    mount_rotation_rad: Vec3  # rotation vector in the camera's frame, against the vehicle file
    mount_shift_m: Vec3  # in B, against the vehicle file
    mount_sway_std_rad: float
    mount_sway_time_s: float
    marker_scale: dict[str, float]  # size of each marker over the marker file's, by "family/id"
    print_scale: float
    thrust_scale: float
    attitude_gains: dict[str, float]  # by PX4's names
    attitude_overshoot: float  # share of a step, with these gains and this thrust
    wind_m_s: float | None  # None: the scenario's own air
    bundle_tilt_rad: dict[str, Vec3] = {}  # rotation vectors in M of bundles without a survey, by name


class Rows:
    """Even draws from the rows of the ranges, each row with its own stream."""

    def __init__(self, ranges: UnkindRanges, seed: int) -> None:
        self._ranges, self._seed = ranges, seed

    def stream(self, row: str) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence((self._seed, zlib.crc32(row.encode()))))

    def one(self, row: str, least: float = -math.inf) -> float:
        """least: the part of the range below it is impossible. Raises `ConfigError` when that is all of it."""
        return self.several(row, 1, least)[0]

    def several(self, row: str, count: int, least: float = -math.inf) -> list[float]:
        low, high = getattr(self._ranges, row)
        low = max(low, least)
        if low > high:
            raise ConfigError(f"{row}: its highest number is {high:g}, less than {low:g} is impossible")
        return self.stream(row).uniform(low, high, count).tolist()  # type: ignore[no-any-return]


def load_ranges(path: Path | None = None) -> UnkindRanges:
    """The ranges of a file, by default of the configuration's own; raises `ConfigError`."""
    return load(path or config_folder() / RANGES_FILE, UnkindRanges)


def with_sensors(loaded: LoadedScenario, sensors: SensorKind, seed: int) -> LoadedScenario:
    """The scenario as it is (kind), or with the world that this seed draws (unkind)."""
    if sensors == SensorKind.KIND:
        return loaded
    return apply(loaded, draw(load_ranges(), loaded, seed))


def check_ranges(ranges: UnkindRanges, loaded: LoadedScenario) -> None:
    """Raise `ConfigError` when a row is impossible for the scenario, whatever the seed."""
    _latency_error_s(Rows(ranges, 0), loaded)


def check_draw(ranges: UnkindRanges, loaded: LoadedScenario, seed: int) -> None:
    """Raise `ConfigError` when `draw` does; takes a small part of its time, as one set of gains that is allowed is enough."""
    check_ranges(ranges, loaded)
    rows, scenario = Rows(ranges, seed), loaded.scenario
    next(_allowed_gains(rows, ranges, scenario, flown_parameters(scenario), rows.one("thrust_scale")))


def draw(ranges: UnkindRanges, loaded: LoadedScenario, seed: int) -> UnkindWorld:
    """The world of a seed; raises `ConfigError` when no attitude gains of the range are inside the allowed overshoot."""
    rows, scenario = Rows(ranges, seed), loaded.scenario
    one, sensors = rows.one, scenario.sensors
    gnss, attitude = sensors.gnss, sensors.attitude
    position_ratio = math.sqrt(gnss.white_variance_m2 / PAPER.gnss.white_variance_m2)
    velocity_ratio = gnss.velocity_std_m_s / PAPER.gnss.velocity_std_m_s
    heading_ratio = attitude.heading_offset_std_rad / PAPER.attitude.heading_offset_std_rad
    thrust_scale = one("thrust_scale")
    parameters = flown_parameters(scenario)
    gains, overshot = _gains(rows, ranges, scenario, parameters, thrust_scale)
    sight = [marker for placed in scenario.scene.bundles for marker in _markers(loaded, placed.name)]
    sizes = [1.0 + error for error in rows.several("marker_size_error", len(sight))]
    hung = [placed.name for placed in scenario.scene.bundles if not _is_surveyed(loaded, placed.name)]
    tilts = rows.several("bundle_tilt_rad", 3 * len(hung))
    world = UnkindWorld(
        tilt_std_rad=one("tilt_std_rad"),
        tilt_time_s=one("tilt_time_s"),
        heading_offset_rad=heading_ratio * one("heading_offset_rad"),
        heading_walk_std_rad=heading_ratio * one("heading_walk_std_rad"),
        heading_walk_time_s=one("heading_walk_time_s"),
        fcu_velocity_std_m_s=velocity_ratio * one("fcu_velocity_std_m_s"),
        fcu_velocity_time_s=one("fcu_velocity_time_s"),
        gnss_velocity_drift_m_s=0.0,
        tilt_in_accel=1.0,
        gnss_walk_variance_m2=gnss.walk_variance_m2 * one("gnss_walk_factor"),
        gnss_jumps=_jumps(rows, position_ratio, scenario.duration_max_s),
        corner_noise_px=one("corner_noise_px"),
        corner_drift_px=one("corner_drift_px"),
        corner_drift_time_s=one("corner_drift_time_s"),
        camera_latency_s=loaded.vehicle.latency.camera_s + _latency_error_s(rows, loaded),
        camera_latency_jitter_s=one("latency_jitter_s"),
        images_lost=one("images_lost"),
        mount_rotation_rad=vec3(np.array(rows.several("mount_rotation_rad", 3))),
        mount_shift_m=vec3(np.array(rows.several("mount_shift_m", 3))),
        mount_sway_std_rad=one("mount_sway_std_rad"),
        mount_sway_time_s=one("mount_sway_time_s"),
        marker_scale=dict(zip(sight, sizes, strict=True)),
        print_scale=1.0 + one("print_size_error"),
        thrust_scale=thrust_scale,
        attitude_gains=gains,
        attitude_overshoot=overshot,
        wind_m_s=one("wind_m_s") if is_outdoors(scenario) else None,
        bundle_tilt_rad={name: vec3(np.array(tilts[3 * i : 3 * i + 3])) for i, name in enumerate(hung)},
    )
    return _with_velocity_error(world, sensors, parameters)


def _latency_error_s(rows: Rows, loaded: LoadedScenario) -> float:
    """An image arrives after its exposure: a vehicle file with a short delay is wrong by less in that direction."""
    return rows.one("latency_error_s", CAMERA_LATENCY_MIN_S - loaded.vehicle.latency.camera_s)


def _is_surveyed(loaded: LoadedScenario, name: str) -> bool:
    bundle = loaded.site.find(name)
    return bundle is not None and bundle.survey is not None


def _tilted(placed: PlacedBundle, tilt: Vec3 | None) -> PlacedBundle:
    """A bundle that was not hung as exactly as the scenario says."""
    if tilt is None:
        return placed
    q = quat_multiply(quat_from_rpy(*placed.rpy_rad), quat_exp(np.array(tilt)))
    return msgspec.structs.replace(placed, rpy_rad=vec3(np.array(rpy_from_quat(q))))


def is_outdoors(scenario: Scenario) -> bool:
    """Whether the scenario's air is weather: a mean wind with gusts."""
    return any(scenario.wind.mean_m_s[:2]) and any(scenario.wind.gust_std_m_s)


def flown_parameters(scenario: Scenario) -> Parameters:
    """The flight controller's parameters as the scenario's crew has set them."""
    parameters = load_parameters(scenario.airframe)
    for name, value in scenario.fcu_parameters.items():
        parameters.set(name, value)  # an unknown one is refused where the world is built
    return parameters


def _markers(loaded: LoadedScenario, bundle: str) -> list[str]:
    found = loaded.site.find(bundle)
    return [] if found is None else [marker_name(marker) for marker in found.markers]


def _jumps(rows: Rows, ratio: float, flight_s: float) -> list[GnssJump]:
    """Jumps at random times over the longest flight, one after the other."""
    rng, mean_s = rows.stream("gnss_jumps"), rows.one("gnss_jump_interval_s")
    count = math.ceil(4 * flight_s / mean_s) + 10  # more than there is time for
    sizes, durations = rows.several("gnss_jump_m", count), rows.several("gnss_jump_duration_s", count)
    jumps: list[GnssJump] = []
    at_s = 0.0
    for size, duration_s in zip(sizes, durations, strict=True):
        at_s += rng.exponential(mean_s)
        if at_s >= flight_s:
            break
        azimuth, elevation = rng.uniform(-math.pi, math.pi), rng.uniform(-STEEPEST_JUMP, STEEPEST_JUMP)
        level, length = math.cos(elevation), ratio * size
        offset = (length * level * math.cos(azimuth), length * level * math.sin(azimuth), length * math.sin(elevation))
        jumps.append(GnssJump(at_s=at_s, duration_s=duration_s, offset_m=offset))
        at_s += duration_s
    return jumps


def _gains(
    rows: Rows, ranges: UnkindRanges, scenario: Scenario, parameters: Parameters, thrust_scale: float
) -> tuple[dict[str, float], float]:
    """PX4's gains of roll and pitch, and the overshoot that they cause."""
    wanted = rows.one("attitude_overshoot")
    allowed = _allowed_gains(rows, ranges, scenario, parameters, thrust_scale)
    return min(allowed, key=lambda found: abs(found[1] - wanted))


def _allowed_gains(
    rows: Rows, ranges: UnkindRanges, scenario: Scenario, parameters: Parameters, thrust_scale: float
) -> Iterator[tuple[dict[str, float], float]]:
    """Draws of the gains whose overshoot is inside its range, with it; raises `ConfigError` when there is none.

    ``parameters`` gets every draw.
    """
    airframe = with_thrust(load_airframe(scenario.airframe, scenario.airframe_changes), thrust_scale)
    low, high = ranges.attitude_overshoot
    factors = iter(rows.several("attitude_gain_factor", GAIN_DRAWS * len(GAINS)))
    original = {f"MC_{axis}{gain}": gain for axis in ("ROLL", "PITCH") for gain in GAINS}
    before = {name: float(parameters[name]) for name in original}
    found = False
    for _ in range(GAIN_DRAWS):
        factor = {gain: next(factors) for gain in GAINS}
        gains = {name: before[name] * factor[gain] for name, gain in original.items()}
        for name, value in gains.items():
            parameters.set(name, value)
        overshot = overshoot(airframe, parameters)
        if low <= overshot <= high:
            found = True
            yield gains, overshot
    if not found:
        raise ConfigError(
            f"{RANGES_FILE}: attitude_overshoot = [{low:g}, {high:g}]: {GAIN_DRAWS} draws of attitude_gain_factor for the "
            f"airframe '{scenario.airframe}' are all outside"
        )


def _with_velocity_error(world: UnkindWorld, sensors: SensorConfig, parameters: Parameters) -> UnkindWorld:
    """Choose the errors of the observer's inputs for the drawn error of its velocity."""
    walking = _gnss(sensors.gnss, world)
    error = velocity_error(
        parameters, msgspec.structs.replace(sensors, gnss=walking), world.fcu_velocity_time_s, world.tilt_time_s
    )
    by_noise, by_drift, by_acceleration = error
    wanted2 = max(world.fcu_velocity_std_m_s**2 - by_noise.velocity_m_s**2, 0.0)
    whole_tilt_m_s2 = GRAVITY_M_S2 * world.tilt_std_rad
    acceleration_m_s2 = min(whole_tilt_m_s2, math.sqrt(TILT_SHARE * wanted2) / by_acceleration.velocity_m_s)
    drift2 = wanted2 - (acceleration_m_s2 * by_acceleration.velocity_m_s) ** 2
    drift_m_s = math.sqrt(max(drift2, 0.0)) / by_drift.velocity_m_s
    reduced = 1.0
    for noise, drift, acceleration in zip(by_noise.of_gates, by_drift.of_gates, by_acceleration.of_gates, strict=True):
        slow = math.hypot(acceleration_m_s2 * acceleration, drift_m_s * drift)
        if slow > 0.0:
            reduced = min(reduced, max(1.0 / GATE_SIGMAS - noise, 0.0) / slow)
    return msgspec.structs.replace(
        world,
        fcu_velocity_std_m_s=math.hypot(by_noise.velocity_m_s, reduced * math.sqrt(wanted2)),
        gnss_velocity_drift_m_s=reduced * drift_m_s,
        tilt_in_accel=1.0 - reduced * acceleration_m_s2 / whole_tilt_m_s2 if whole_tilt_m_s2 > 0.0 else 1.0,
    )


def apply(loaded: LoadedScenario, world: UnkindWorld) -> LoadedScenario:
    """The scenario in this world."""
    replace = msgspec.structs.replace
    scenario = loaded.scenario
    sensors, camera, scene, wind = scenario.sensors, scenario.camera, scenario.scene, scenario.wind
    mount = loaded.vehicle.camera
    attitude = replace(
        sensors.attitude,
        tilt_std_rad=world.tilt_std_rad,
        tilt_time_s=world.tilt_time_s,
        heading_offset_std_rad=0.0,
        heading_offset_rad=world.heading_offset_rad,
        heading_std_rad=world.heading_walk_std_rad,
        heading_time_s=world.heading_walk_time_s,
        tilt_in_accel=world.tilt_in_accel,
    )
    camera = replace(
        camera,
        p_BC=vec3(np.asarray(mount.p_BC) + world.mount_shift_m),
        q_BC=quat(quat_multiply(quat_normalized(mount.q_BC), quat_exp(np.array(world.mount_rotation_rad)))),
        latency_s=world.camera_latency_s,
        latency_jitter_s=world.camera_latency_jitter_s,
        images_lost=world.images_lost,
        corner_noise_px=world.corner_noise_px,
        image_corner_noise_px=world.corner_noise_px,
        corner_drift_px=world.corner_drift_px,
        corner_drift_time_s=world.corner_drift_time_s,
        sway_std_rad=world.mount_sway_std_rad,
        sway_time_constant_s=world.mount_sway_time_s,
    )
    scene = replace(
        scene,
        print_scale=world.print_scale,
        marker_scale=world.marker_scale,
        bundles=[_tilted(placed, world.bundle_tilt_rad.get(placed.name)) for placed in scene.bundles],
    )
    if world.wind_m_s is not None:
        east, north, _ = wind.mean_m_s
        scale = world.wind_m_s / math.hypot(east, north)
        height_m = scene.bundles[0].p_W[2] if scene.bundles else HOVER_HEIGHT_M
        dryden = DrydenConfig(wind_at_20_ft_m_s=world.wind_m_s, height_m=height_m, airspeed_m_s=world.wind_m_s)
        calm = (0.0, 0.0, 0.0)
        wind = replace(wind, mean_m_s=(scale * east, scale * north, 0.0), gust_std_m_s=calm, dryden=dryden)
    changed = replace(
        scenario,
        thrust_scale=world.thrust_scale,
        gnss_gates_apart=True,
        fcu_parameters={**scenario.fcu_parameters, **world.attitude_gains},
        sensors=replace(sensors, attitude=attitude, gnss=_gnss(sensors.gnss, world)),
        camera=camera,
        scene=scene,
        wind=wind,
    )
    return replace(loaded, scenario=changed, drawn=world)


def _gnss(gnss: GnssConfig, world: UnkindWorld) -> GnssConfig:
    return msgspec.structs.replace(
        gnss,
        walk_variance_m2=world.gnss_walk_variance_m2,
        velocity_drift_m_s=world.gnss_velocity_drift_m_s,
        velocity_drift_time_s=world.fcu_velocity_time_s,
        jumps=world.gnss_jumps,
    )
