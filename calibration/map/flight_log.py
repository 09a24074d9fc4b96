"""What the site map takes from a flight log: corners, inertial samples, the filter's states as a start."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from calibration.flown_vehicle import FlownVehicle, differences, flown_vehicle
from calibration.logs import log_warnings, messages, no_messages
from calibration.map.adjust import FlightData
from calibration.map.corners import CornerNoise, Lens, Prints, Seen
from calibration.map.motion import FlightNoise, SlowError
from calibration.map.preintegration import InertialSamples
from calibration.map.relative import Relative, relative
from calibration.map.rotations import matrices
from calibration.map.unknowns import Unknowns
from calibration.results import DataError
from companion.core.arrays import Array
from companion.core.camera_model import CameraModel
from companion.core.config import load
from companion.core.enums import TopicName
from companion.core.frames import quat_normalized, rotation_matrix
from companion.core.messages import BundleObservation, FcuImu, Markers, State, Truth
from companion.core.site import Bundle, Site
from companion.core.trajectory_messages import Quat, Vec3
from companion.core.vehicle import Vehicle
from companion.recording.log import Log, read_log

TOPICS: tuple[TopicName, ...] = ("markers", "fcu_imu", "state", "truth")
EVERY_S = 0.25  # images that are used: the errors of corners last for seconds, so more would add little
MOST_IMAGES = 1500
LONGEST_S = 0.5  # between two sets of unknowns of the motion
IMU_GAP_S = 0.1  # a longer time without samples ends the stretch that is used
EDGE_S = 1.0  # images at both ends of the stretch that are not used
NAMED_SHARE = 0.1  # of the images; fewer that are left out are not named
STATE_AGE_S = 0.1
BUNDLES_MIN = 2  # of a map
MIN_IMAGES = 20  # of a bundle, of those used
SAME_PRINT_M = 0.002  # corners of a marker in the log and in the site file
INTEGRATED_S = 0.005  # interval over which PX4 averages an inertial sample
OUTSIDE = 0.1  # share of the picture by which corners may be outside of it
JITTER_S = 0.008  # of the images' stamps [estimate]: USB and scheduling
# A MEMS gyro with vibration. The vehicle file's number is larger: the filter's propagation needs it, and the residuals cannot tell a gyro's
# noise from the camera's sway when it is that large.
GYRO_RAD_SQRT_S = 0.0005
ACCEL_BIAS_TIME_S = 30.0  # [estimate]: what the flight controller takes off a sample follows its tilt error


class Gap(NamedTuple):
    """A time without inertial samples."""

    start_s: float
    duration_s: float


class Stretch(NamedTuple):
    """A time with inertial samples; gaps: those at its ends, if samples follow behind them."""

    start_s: float
    end_s: float
    gaps: tuple[Gap, ...]


@dataclass(frozen=True)
class Poses:
    """Poses (R_WM, p_WM) by bundle in any frame: the filter's map, or the truth of a simulated flight."""

    by_bundle: Mapping[str, tuple[Array, Array]]

    def relative(self, first: str) -> Iterator[tuple[str, Relative]]:
        """Name and pose of every other bundle in the frame of the first, as if they were exact."""
        if first in self.by_bundle:
            for name in self.by_bundle:
                if name != first:
                    R, p = (np.array([self.by_bundle[n][i] for n in (first, name)]) for i in range(2))
                    yield name, relative(R, p, np.zeros((12, 12)), 0, 1)


@dataclass(frozen=True)
class MapLog:
    """A log for a site map; data: None where it sees fewer bundles long enough than are needed; left_out: reason by bundle.

    filter_map: at the end of the flight; truth: of a simulated flight.
    """

    path: Path
    data: FlightData | None
    filter_map: Poses
    truth: Poses | None
    left_out: dict[str, str]
    notes: list[str]


def read_map_log(
    path: Path,
    site: Site,
    site_file: Path,
    vehicle_file: Path | None,
    bundles_min: int = BUNDLES_MIN,
    every_s: float = EVERY_S,
) -> MapLog:
    """A flight over bundles of a site; raises `DataError` or `LogError` where it cannot be used."""
    log = read_log(path, TOPICS)
    flown = flown_vehicle(log, vehicle_file)
    vehicle, vehicle_notes = _vehicle(flown, path, vehicle_file)
    camera, lens = CameraModel(vehicle.camera), _lens(vehicle)
    samples = _samples(log)
    states = [s for s in messages(log, State) if s.valid]
    if not states:
        raise no_messages(log, (State,), "the filter was never valid in this flight")
    images = [m for m in messages(log, Markers) if m.valid and m.observations]
    if not images:
        raise no_messages(log, (Markers,), "no marker was seen in this log")
    _check_bundles(path, images, site, site_file)
    _check_camera(path, images, vehicle)
    notes = [*log_warnings(log), *vehicle_notes]
    stretch = _longest_stretch(samples.t_s)
    within = [m for m in images if stretch.start_s + EDGE_S < m.stamp_s < stretch.end_s - EDGE_S]
    inside = [m for m in within if _near(states, m.stamp_s)]
    notes += [f"{path}: {note}" for note in _left_out_notes(stretch, len(images), len(within), len(inside))]
    used = _thinned(inside, every_s)
    count = Counter(o.bundle for m in used for o in m.observations)
    left_out = {
        name: f"seen in {count[name]} of the images used, {MIN_IMAGES} are needed"
        for name in sorted({o.bundle for m in images for o in m.observations})
        if count[name] < MIN_IMAGES
    }
    names = tuple(bundle.name for bundle in site.bundle if count[bundle.name] >= MIN_IMAGES)
    if len(names) < bundles_min:
        return MapLog(path, None, _filter_map(states[-1]), _truth(log), left_out, notes)
    bundles = [bundle for bundle in site.bundle if bundle.name in names]
    data = _flight_data(path, bundles, used, camera, lens, vehicle, samples, states)
    return MapLog(path, data, _filter_map(states[-1]), _truth(log), left_out, notes)


def _vehicle(flown: FlownVehicle, path: Path, vehicle_file: Path | None) -> tuple[Vehicle, tuple[str, ...]]:
    """The vehicle of a flight, with notes; the file of the command line where this version does not read that of the log."""
    if flown.vehicle is not None:
        return flown.vehicle, flown.notes
    if not flown.problem:
        raise DataError(f"{path}: the log does not hold its vehicle file: name that file with --vehicle")
    if vehicle_file is None:
        raise DataError(f"{flown.problem}: name a vehicle file that this version reads with --vehicle")
    taken = f"{flown.problem}; {vehicle_file} is taken for the vehicle that flew"
    difference = differences(flown.tables, vehicle_file)
    return load(vehicle_file, Vehicle), (taken, difference) if difference else (taken,)


def _lens(vehicle: Vehicle) -> Lens:
    camera = vehicle.camera
    R_BC = rotation_matrix(quat_normalized(camera.q_BC))
    return Lens(np.array([camera.fx_px, camera.fy_px]), R_BC, np.array(camera.p_BC))


def _samples(log: Log) -> InertialSamples:
    found = [m for m in messages(log, FcuImu) if m.valid and np.isfinite([*m.gyro_B, *m.accel_B]).all()]
    found.sort(key=lambda m: m.stamp_s)
    found = [m for m, after in zip(found, found[1:], strict=False) if after.stamp_s > m.stamp_s]
    if len(found) < 100:
        raise no_messages(log, (FcuImu,), "no inertial samples of the flight controller in the log (fcu.imu_rate_hz)")
    stamps = np.array([m.stamp_s for m in found])
    middle = min(INTEGRATED_S, float(np.median(np.diff(stamps)))) / 2
    return InertialSamples(stamps - middle, np.array([m.gyro_B for m in found]), np.array([m.accel_B for m in found]))


def _longest_stretch(t_s: Array) -> Stretch:
    """The longest time without a gap in the samples."""
    after = np.flatnonzero(np.diff(t_s) > IMU_GAP_S) + 1
    edges = [0, *after.tolist(), len(t_s)]
    first = int(np.argmax([t_s[b - 1] - t_s[a] for a, b in zip(edges[:-1], edges[1:], strict=True)]))
    gaps = [Gap(float(t_s[i - 1]), float(t_s[i] - t_s[i - 1])) for i in edges[first : first + 2] if 0 < i < len(t_s)]
    return Stretch(float(t_s[edges[first]]), float(t_s[edges[first + 1] - 1]), tuple(gaps))


def _left_out_notes(stretch: Stretch, images: int, within: int, valid: int) -> list[str]:
    """Why images are not used; within: images of the stretch; valid: those of them with a valid state."""
    notes = []
    beside = images - within
    if stretch.gaps:
        gaps = " and ".join(f"for {gap.duration_s:.2f} s at {gap.start_s:.1f} s" for gap in stretch.gaps)
        notes.append(
            f"{stretch.start_s:.0f} to {stretch.end_s:.0f} s are used, {beside} of {images} images are not: "
            f"no inertial samples {gaps}"
        )
    elif beside > NAMED_SHARE * images:
        notes.append(f"{beside} of {images} images before or after the inertial samples are left out")
    if within - valid > NAMED_SHARE * images:
        notes.append(f"{within - valid} of {images} images without a valid state are left out")
    return notes


def _check_bundles(path: Path, images: list[Markers], site: Site, site_file: Path) -> None:
    """Raise `DataError` for a bundle that the site file does not have, or has with other markers."""
    shown: dict[tuple[str, int], tuple[str, Array]] = {}
    for image in images:
        for observation in image.observations:
            for marker in observation.markers:
                shown.setdefault((marker.family, marker.id), (observation.bundle, np.array(marker.corners_M)))
    for (family, number), (name, corners_M) in sorted(shown.items(), key=lambda item: item[0]):
        bundle = site.find(name)
        if bundle is None:
            raise DataError(f"{path}: bundle '{name}' of this flight is not in {site_file}")
        known = next((m for m in bundle.markers if m.id == number and _kind(m.family) == _kind(family)), None)
        if known is None:
            raise DataError(f"{path}: marker {number} of bundle '{name}' is not in that bundle of {site_file}")
        if float(np.abs(known.corners_M() - corners_M).max()) > SAME_PRINT_M:
            raise DataError(
                f"{path}: marker {number} of bundle '{name}' had another place or size in this flight than in {site_file}"
            )


def _kind(family: str) -> str:
    """A family without the path of its dictionary, which may have another place today."""
    return family.partition(":")[0]


def _check_camera(path: Path, images: list[Markers], vehicle: Vehicle) -> None:
    size = np.array([vehicle.camera.width_px, vehicle.camera.height_px])
    corners = np.array([m.corners_px for image in images for o in image.observations for m in o.markers]).reshape(-1, 2)
    if (corners < -OUTSIDE * size).any() or (corners > (1 + OUTSIDE) * size).any():
        raise DataError(
            f"{path}: markers were seen outside of the picture of {size[0]} x {size[1]} px of the vehicle file: "
            "these observations are of another camera"
        )


def _near(states: list[State], t_s: float) -> bool:
    return abs(state_at(states, t_s).stamp_s - t_s) < STATE_AGE_S


def state_at(states: list[State], t_s: float) -> State:
    """The state whose stamp is nearest; states in the order of their stamps."""
    low, high = 0, len(states) - 1
    while low < high:
        middle = (low + high) // 2
        if states[middle].stamp_s < t_s:
            low = middle + 1
        else:
            high = middle
    before = states[max(0, low - 1)]
    return min(before, states[low], key=lambda s: abs(s.stamp_s - t_s))


def _thinned(images: list[Markers], every_s: float) -> list[Markers]:
    if not images:
        return []
    images = sorted(images, key=lambda m: m.stamp_s)
    every_s = max(every_s, (images[-1].stamp_s - images[0].stamp_s) / MOST_IMAGES)
    used: list[Markers] = []
    for image in images:
        if not used or image.stamp_s > used[-1].stamp_s + every_s - 0.01:
            used.append(image)
    return used


def _flight_data(
    path: Path,
    bundles: list[Bundle],
    images: list[Markers],
    camera: CameraModel,
    lens: Lens,
    vehicle: Vehicle,
    samples: InertialSamples,
    states: list[State],
) -> FlightData:
    names = tuple(bundle.name for bundle in bundles)
    images = [m for m in images if any(o.bundle in names for o in m.observations)]
    t_s, number = _with_gaps_filled(np.array([m.stamp_s for m in images]))
    seen = _seen(images, number, bundles, camera)
    known = [state_at(states, t) for t in t_s]
    R_WB = matrices(np.array([s.q_WB for s in known]))
    p_W, v_W = np.array([s.p_W for s in known]), np.array([s.v_W for s in known])
    k, zero = len(t_s), np.zeros((len(t_s), 3))
    R_WM, p_WM = _first_poses(images, names, lens, states)
    start = Unknowns(
        *(R_WB, p_W, v_W, zero, zero, zero, np.zeros(k)),
        *(np.zeros(3), np.zeros(3), 0.0, np.zeros(4)),
        *(R_WM, p_WM, np.zeros(len(names)), np.zeros((len(names), seen.seen.shape[1]))),
    )
    return FlightData(
        *(str(path), names, t_s, seen, _prints(bundles), lens, samples),
        start,
        flight_noise(vehicle),
        tuple(bundle.plumb for bundle in bundles),
    )


def _with_gaps_filled(stamps: Array) -> tuple[Array, Array]:
    """Times of the unknowns, at most `LONGEST_S` apart, and which of them are the stamps."""
    times, number = [stamps[0]], [0]
    for before, stamp in zip(stamps[:-1], stamps[1:], strict=True):
        pieces = int(np.ceil((stamp - before) / LONGEST_S))
        times.extend(np.linspace(before, stamp, pieces + 1)[1:])
        number.append(len(times) - 1)
    return np.array(times), np.array(number)


def _prints(bundles: list[Bundle]) -> Prints:
    most = max(len(bundle.markers) for bundle in bundles)
    centre, corners = np.zeros((len(bundles), most, 3)), np.zeros((len(bundles), most, 4, 3))
    for b, bundle in enumerate(bundles):
        for m, marker in enumerate(bundle.markers):
            centre[b, m] = marker.p_M
            corners[b, m] = marker.corners_M() - centre[b, m]
    return Prints(centre, corners)


def _seen(images: list[Markers], number: Array, bundles: list[Bundle], camera: CameraModel) -> Seen:
    most = max(len(bundle.markers) for bundle in bundles)
    place = {
        (bundle.name, _kind(marker.family), marker.id): m
        for bundle in bundles
        for m, marker in enumerate(bundle.markers)
    }
    numbers = {bundle.name: b for b, bundle in enumerate(bundles)}
    pairs: list[tuple[int, int, BundleObservation]] = [
        (int(k), numbers[o.bundle], o)
        for image, k in zip(images, number, strict=True)
        for o in image.observations
        if o.bundle in numbers
    ]
    seen, xy = np.zeros((len(pairs), most), bool), np.zeros((len(pairs), most, 4, 2))
    for row, (_, _, observation) in enumerate(pairs):
        for marker in observation.markers:
            m = place[observation.bundle, _kind(marker.family), marker.id]
            xy[row, m] = camera.undistort(np.reshape(marker.corners_px, (4, 2)))
            seen[row, m] = bool(np.isfinite(xy[row, m]).all())
    xy[~seen] = 0.0
    return Seen(np.array([k for k, _, _ in pairs]), np.array([b for _, b, _ in pairs]), seen, xy)


def _first_poses(images: list[Markers], names: tuple[str, ...], lens: Lens, states: list[State]) -> tuple[Array, Array]:
    """Poses (b, 3, 3), (b, 3) [m] of the bundles by their most certain observation."""
    R, p = np.zeros((len(names), 3, 3)), np.zeros((len(names), 3))
    for b, name in enumerate(names):
        found = [(m.stamp_s, o) for m in images for o in m.observations if o.bundle == name]
        stamp_s, best = min(found, key=lambda item: (item[1].ambiguous, sum(item[1].covariance[::7])))
        state = state_at(states, stamp_s)
        R_WB = rotation_matrix(quat_normalized(state.q_WB))
        R[b] = R_WB @ lens.R_BC @ rotation_matrix(quat_normalized(best.best.q_CM))
        p[b] = np.array(state.p_W) + R_WB @ (lens.p_BC + lens.R_BC @ np.array(best.best.p_CM))
    return R, p


def flight_noise(vehicle: Vehicle) -> FlightNoise:
    """What the vehicle file says of the sensors, as the start of the estimate."""
    estimator, camera = vehicle.estimator, vehicle.camera
    imu, errors, mount = estimator.imu, estimator.camera, estimator.mount
    pixels = estimator.camera_calibration_px
    edge = np.hypot(camera.width_px, camera.height_px) / 2 / camera.fx_px
    return FlightNoise(
        gyro=GYRO_RAD_SQRT_S,
        accel=imu.accel_m_s_sqrt_s,
        gyro_bias=SlowError(imu.gyro_bias_rad_s, imu.bias_time_s),
        accel_bias=SlowError(imu.accel_bias_m_s2, ACCEL_BIAS_TIME_S),
        sway=SlowError(mount.std_rad, mount.time_constant_s),
        jitter_s=JITTER_S,
        mount_rad=errors.rotation_rad,
        lever_m=errors.lever_m,
        delay_s=errors.delay_s,
        lens=(pixels / camera.fx_px, pixels, pixels, pixels / camera.fx_px / edge**3),
        print_scale=errors.bundle_scale,
        marker_scale=max(vehicle.tracking.marker_size_std, 1e-4),
        corner=CornerNoise(vehicle.tracking.corner_noise_px, vehicle.tracking.corner_noise_px, 10.0),
    )


def _filter_map(state: State) -> Poses:
    poses = {b.name: _pose(b.p_WM, b.q_WM) for b in state.bundles}
    if state.bundle:
        poses[state.bundle] = _pose(state.p_WM, state.q_WM)
    return Poses(poses)


def _truth(log: Log) -> Poses | None:
    true = messages(log, Truth)
    return Poses({name: _pose(p, q) for name, (p, q) in true[-1].bundles.items()}) if true else None


def _pose(p: Vec3, q: Quat) -> tuple[Array, Array]:
    return rotation_matrix(quat_normalized(q)), np.array(p)
