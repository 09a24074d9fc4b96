"""Made-up flights past bundles of a site, with the sensors' errors and without what the adjustment assumes of them."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from calibration_paths import F550
from scipy.ndimage import gaussian_filter1d
from scipy.spatial.transform import Rotation

from calibration.map.adjust import FlightData
from calibration.map.corners import CornerNoise, Lens, Prints, Seen
from calibration.map.motion import FlightNoise, SlowError
from calibration.map.picture_markers import Centre
from calibration.map.pictures import WIDTH_PX
from calibration.map.preintegration import InertialSamples
from calibration.map.unknowns import Unknowns
from companion.core.camera_model import CameraModel
from companion.core.config import load, parse
from companion.core.enums import CaptureOutcome, SearchArea
from companion.core.frames import GRAVITY_M_S2, quat_from_matrix
from companion.core.messages import (
    BundleObservation,
    Capture,
    FcuImu,
    MarkerCorners,
    Markers,
    Message,
    PoseSolution,
    State,
)
from companion.core.site import Site
from companion.core.vehicle import Vehicle
from companion.planning.camera import PayloadCamera
from companion.recording.writer import LogWriter

FORWARD = Rotation.from_quat([-0.5, 0.5, -0.5, 0.5])  # the camera looks along x of the body
FACING = Rotation.from_euler("ZYX", [-np.pi / 2, 0.0, np.pi / 2])  # of a bundle that looks to -x
RATE_HZ, FOCAL_PX, HALF_PX = 200, 610.0, np.array([320.0, 240.0])
IMAGE_S = 0.25

ASSUMED = FlightNoise(  # as of an F550 (config/vehicles/f550.toml)
    gyro=0.0005,
    accel=0.03,
    gyro_bias=SlowError(0.003, 100.0),
    accel_bias=SlowError(0.2, 30.0),
    sway=SlowError(0.01, 1.0),
    jitter_s=0.008,
    mount_rad=0.02,
    lever_m=0.012,
    delay_s=0.02,
    lens=(1.5 / 610, 1.5, 1.5, 0.009),
    print_scale=0.004,
    marker_scale=0.015,
    corner=CornerNoise(0.3, 0.3, 10.0),
)


@dataclass(frozen=True)
class Sensors:
    """True errors of a flight: standard deviations as in `FlightNoise`, in ranges like those of config/sensors/unkind.toml."""

    gyro: float = 0.0005
    accel: float = 0.012
    accel_bias: tuple[float, float] = (0.08, 30.0)
    sway: tuple[float, float] = (0.006, 0.7)
    jitter_s: float = 0.008
    corner: tuple[float, float, float] = (0.4, 0.4, 8.0)  # white [px], slow [px], time [s]

    @staticmethod
    def drawn(rng: np.random.Generator) -> "Sensors":
        return Sensors(
            gyro=rng.uniform(0.0003, 0.001),
            accel=rng.uniform(0.008, 0.02),
            accel_bias=(rng.uniform(0.02, 0.12), rng.uniform(15, 60)),
            sway=(rng.uniform(0.001, 0.01), rng.uniform(0.3, 2.0)),
            jitter_s=rng.uniform(0.002, 0.008),
            corner=(rng.uniform(0.2, 0.6), rng.uniform(0.2, 0.6), rng.uniform(5, 20)),
        )


@dataclass(frozen=True)
class Flight:
    """A made-up flight and the truth, in a world with another heading."""

    data: FlightData
    true: Unknowns


@dataclass(frozen=True)
class Course:
    """Back and forth along a row of bundles; standoff_m from them, sway_m to both sides of each before it goes on."""

    spacing_m: float = 12.0
    standoff_m: float = 3.0
    sway_m: float = 1.5
    speed_m_s: float = 2.0
    laps: int = 2
    stop_s: float = 1.0
    bundles: int = 2


def gauss_markov(rng, t, shape, std, time_s) -> np.ndarray:
    """A slow error (len(t), *shape)."""
    keep = np.exp(-np.diff(t) / time_s)
    x = np.empty((len(t), *shape))
    x[0] = std * rng.standard_normal(shape)
    for i, a in enumerate(keep):
        x[i + 1] = a * x[i] + std * np.sqrt(1 - a * a) * rng.standard_normal(shape)
    return x


def path(course: Course) -> tuple[np.ndarray, np.ndarray]:
    """Times and positions (n, 3) in front of bundles along y, from rest to rest between points."""
    places = [-course.spacing_m * b for b in range(course.bundles)]
    one_way = [y + s for y in places for s in (0.0, course.sway_m, -course.sway_m, 0.0)]
    points = [y for _ in range(course.laps) for y in (*one_way, *reversed(one_way))]
    pieces = [np.full(round(2 * course.stop_s * RATE_HZ), points[0])]
    for start, end in zip(points[:-1], points[1:], strict=True):
        duration_s = max(1.5, abs(end - start) / course.speed_m_s + 1.5)
        s = np.linspace(0, 1, round(duration_s * RATE_HZ))
        pieces += [
            start + (end - start) * (10 * s**3 - 15 * s**4 + 6 * s**5),
            np.full(round(course.stop_s * RATE_HZ), end),
        ]
    y = np.concatenate(pieces)
    t = np.arange(len(y)) / RATE_HZ
    return t, np.column_stack([np.zeros_like(y), y, np.full_like(y, 4.0)])


def fly(
    seed: int, course: Course = Course(), sensors: Sensors | None = None, outliers: float = 0.0, moved_m: float = 0.0
) -> Flight:
    """Data of a flight; sensors: None draws them; outliers: share of the markers that are seen in a wrong place;
    moved_m: how far the last bundle moves along its face in the middle of the flight."""
    rng = np.random.default_rng(seed)
    true = sensors or Sensors.drawn(rng)
    t, p = path(course)
    n, dt = len(t), 1 / RATE_HZ

    def smooth(std, smooth_s, size):
        x = gaussian_filter1d(rng.standard_normal((n, size)), smooth_s * RATE_HZ, axis=0, truncate=8.0)
        return std * x / x.std()

    p = p + smooth(0.15, 1.0, 3)
    v = np.gradient(p, dt, axis=0)
    a = np.gradient(v, dt, axis=0)
    lean = np.column_stack([smooth(0.05, 3.0, 1)[:, 0], a[:, 0] / GRAVITY_M_S2, -a[:, 1] / GRAVITY_M_S2])
    q = Rotation.from_euler("ZYX", lean + smooth(0.02, 0.3, 3))
    R = q.as_matrix()

    gyro = (q[:-1].inv() * q[1:]).as_rotvec() / dt
    middle = q[:-1] * Rotation.from_rotvec(gyro * dt / 2)
    force = middle.inv().apply((v[1:] - v[:-1]) / dt + [0, 0, GRAVITY_M_S2])
    samples_s = t[:-1] + dt / 2
    gyro = gyro + 0.002 * rng.standard_normal(3) + true.gyro / np.sqrt(dt) * rng.standard_normal(gyro.shape)
    force = force + gauss_markov(rng, samples_s, (3,), *true.accel_bias)
    force = force + true.accel / np.sqrt(dt) * rng.standard_normal(force.shape)

    b = course.bundles
    R_WM = (Rotation.from_rotvec(0.05 * rng.standard_normal((b, 3))) * FACING).as_matrix()
    p_WM = np.column_stack([np.full(b, course.standoff_m), -course.spacing_m * np.arange(b), np.full(b, 4.0)])
    p_WM = p_WM + 0.2 * rng.standard_normal((b, 3))
    centre = np.array([[-0.45, 0.3, 0], [0.45, 0.3, 0], [0.45, -0.3, 0], [-0.45, -0.3, 0], [0, 0, 0.0]])
    square = np.array([[-0.5, 0.5, 0], [0.5, 0.5, 0], [0.5, -0.5, 0], [-0.5, -0.5, 0.0]])
    corners = np.array([0.3, 0.3, 0.3, 0.3, 0.12])[:, None, None] * square
    prints = Prints(np.tile(centre, (b, 1, 1)), np.tile(corners, (b, 1, 1, 1)))
    sizes = 1 + rng.uniform(-0.02, 0.02, (b, 5))
    print_scale = rng.uniform(-0.005, 0.005)
    printed = (1 + print_scale) * (prints.centre_M[:, :, None] + sizes[..., None, None] * prints.corners_M)

    index = np.arange(RATE_HZ // 2, n - RATE_HZ, round(IMAGE_S * RATE_HZ))
    jitter_s = np.clip(true.jitter_s * rng.standard_normal(len(index)), -0.016, 0.016)
    delay_s = rng.uniform(-0.03, 0.03)
    R_BC = FORWARD.as_matrix()
    mount_rad = rng.uniform(-0.03, 0.03, 3)
    mount = R_BC @ Rotation.from_rotvec(mount_rad).as_matrix()
    p_BC = np.array([0.12, 0, 0])
    lever = p_BC + rng.uniform(-0.02, 0.02, 3)
    sway_rad = gauss_markov(rng, t[index], (3,), *true.sway)
    sway = Rotation.from_rotvec(sway_rad).as_matrix()
    focal, centre_px = FOCAL_PX * (1 + 0.003 * rng.standard_normal()), rng.standard_normal(2)
    white, slow, slow_s = true.corner
    drift = gauss_markov(rng, t[index], (b, 5, 4, 2), slow, slow_s)
    rows = []
    for k, i in enumerate(index):
        when = t[i] + delay_s + jitter_s[k]
        j = int(np.floor(when / dt))
        part = when / dt - j
        R_now = R[j] @ Rotation.from_rotvec((q[j].inv() * q[j + 1]).as_rotvec() * part).as_matrix()
        p_now = p[j] + part * (p[j + 1] - p[j])
        for m in range(b):
            moved = np.array([0.0, moved_m if m == b - 1 and k > len(index) / 2 else 0.0, 0.0])
            X_B = (printed[m] @ R_WM[m].T + p_WM[m] + moved - p_now) @ R_now
            X_C = (X_B - lever) @ mount @ sway[k]
            ahead = X_C[..., 2] > 0.3
            px = focal * X_C[..., :2] / np.where(ahead, X_C[..., 2], 1.0)[..., None] + centre_px
            seen = (ahead[..., None] & (np.abs(px) < HALF_PX)).all(axis=(1, 2))
            if seen.any():
                px = px + drift[k, m] + white * rng.standard_normal(px.shape)
                px = px + (60 * rng.standard_normal((5, 1, 2))) * (rng.random(5) < outliers)[:, None, None]
                rows.append((k, m, seen, px / FOCAL_PX))
    seen = np.array([row[2] for row in rows])
    xy = np.where(seen[:, :, None, None], [row[3] for row in rows], 0.0)

    k, zero = len(index), np.zeros((len(index), 3))
    turned = Rotation.from_euler("Z", 0.3).as_matrix()  # the flight's world has another heading
    wrong = Rotation.from_rotvec(0.05 * rng.standard_normal((b, 3))).as_matrix()
    start = Unknowns(
        turned @ R[index] @ Rotation.from_rotvec(0.01 * rng.standard_normal(3)).as_matrix(),
        (p[index] + gauss_markov(rng, t[index], (3,), 0.3, 20.0)) @ turned.T,
        (v[index] + 0.05 * rng.standard_normal((k, 3))) @ turned.T,
        *(zero, zero, zero, np.zeros(k), np.zeros(3), np.zeros(3), 0.0, np.zeros(4)),
        turned @ R_WM @ wrong,
        (p_WM + 0.3 * rng.standard_normal((b, 3))) @ turned.T,
        *(np.zeros(b), np.zeros((b, 5))),
    )
    data = FlightData(
        f"flight {seed}",
        tuple(f"bundle_{m}" for m in range(b)),
        t[index],
        Seen(np.array([row[0] for row in rows]), np.array([row[1] for row in rows]), seen, xy),
        prints,
        Lens(np.array([FOCAL_PX, FOCAL_PX]), R_BC, p_BC),
        InertialSamples(samples_s, gyro, force),
        start,
        ASSUMED,
    )
    exact = Unknowns(
        *(R[index], p[index], v[index], zero, zero, sway_rad, jitter_s, mount_rad, lever - p_BC, delay_s),
        np.array([focal / FOCAL_PX - 1, *centre_px, 0.0]),
        *(R_WM, p_WM, np.full(b, print_scale), sizes - 1),
    )
    return Flight(data, exact)


@dataclass(frozen=True)
class PayloadTruth:
    """True errors of a payload camera with a gimbal, as `Unknowns.payload`, and standard deviations of what differs from photograph to photograph."""

    payload: np.ndarray
    own_rad: float = 0.002
    time_s: float = 0.001
    noise_px: float = 0.1

    @staticmethod
    def drawn(rng: np.random.Generator) -> "PayloadTruth":
        lens = [rng.uniform(-0.01, 0.01), *(WIDTH_PX * rng.uniform(-0.003, 0.003, 2)), rng.uniform(-0.02, 0.02)]
        return PayloadTruth(np.array([*(0.0035 * rng.standard_normal(3)), *(0.005 * rng.standard_normal(3)), *lens]))


class Photographed(NamedTuple):
    """Photographs of a made-up flight at images of it, every so many: what the log has of them, the markers in their pictures, and their true poses."""

    captures: list[Capture]
    states: list[State]
    centres: dict[tuple[int, int], list[Centre]]
    R_WC: np.ndarray
    p_WC: np.ndarray


def photographed(flight: Flight, camera: PayloadCamera, seed: int, true: PayloadTruth, every: int = 15) -> Photographed:
    """Photographs by a camera on a gimbal that looks forward."""
    rng = np.random.default_rng(seed)
    data, exact = flight.data, flight.true
    images = np.arange(8, len(data.t_s) - 8, every)
    n, mount, lever, lens = len(images), true.payload[:3], true.payload[3:6], true.payload[6:]
    own = Rotation.from_rotvec(true.own_rad * rng.standard_normal((n, 3))).as_matrix()
    R_HC = FORWARD.as_matrix()
    R_WC = _headed(exact.R_WB[images]) @ R_HC @ Rotation.from_rotvec(mount).as_matrix() @ own
    p_WC = exact.p_W[images] + exact.R_WB[images] @ (camera.p_BC + lever)
    flown_WC = _headed(data.start.R_WB[images]) @ R_HC
    late_s = true.time_s * rng.standard_normal(n)
    nan = (float("nan"),) * 3
    captures, centres = [], {}
    for i, k in enumerate(images):
        captures.append(
            Capture(
                stamp_s=float(data.t_s[k] + late_s[i]), valid=True, id=i + 1, item="face", row=0, column=i, attempt=1,
                outcome=CaptureOutcome.TAKEN, reason="", image_index=i, file=f"{i + 1:05d}.jpg", blur_px=0.1, gsd_m=0.001, p_WC=nan,
                q_WC=_quat(flown_WC[i]), bundle="bundle_0", p_MC=nan, q_MC=(*nan, float("nan")), position_std_m=0.1,
                attitude_std_rad=0.02, time_std_s=true.time_s,
            )
        )  # fmt: skip
        found = []
        for b, name in enumerate(data.bundles):
            for p_M in data.prints.centre_M[b]:
                X_W = exact.R_WM[b] @ p_M * (1 + exact.print_scale[b]) + exact.p_WM[b]
                x, y, z = R_WC[i].T @ (X_W - p_WC[i])
                flat = np.array([x / z, y / z])
                px = (
                    flat * (1 + lens[0] + lens[3] * (flat @ flat)) * camera.focal_px[0] * WIDTH_PX / camera.width_px
                    + lens[1:3]
                )
                if z > 0.3 and np.abs(px[0]) < 950 and np.abs(px[1]) < 600:
                    found.append(Centre(name, p_M, px + true.noise_px * rng.standard_normal(2)))
        centres[i + 1, 1] = found
    states = [
        State(stamp_s=t, **STATE, p_W=tuple(p), v_W=tuple(v), q_WB=_quat(R))
        for t, p, v, R in zip(data.t_s.tolist(), data.start.p_W, data.start.v_W, data.start.R_WB, strict=True)
    ]
    return Photographed(captures, states, centres, R_WC, p_WC)


def _headed(R_WB: np.ndarray) -> np.ndarray:
    heading = np.arctan2(R_WB[:, 1, 0], R_WB[:, 0, 0])
    return Rotation.from_euler("Z", heading[:, None]).as_matrix()


def site_text(bundles: int = 2, families: str = "aruco_6x6_250") -> str:
    """The marker file of the made-up flights."""
    places, sizes = [(-0.45, 0.3), (0.45, 0.3), (0.45, -0.3), (-0.45, -0.3), (0.0, 0.0)], [0.3, 0.3, 0.3, 0.3, 0.12]
    text = "# A made-up site.\n"
    for b in range(bundles):
        text += f'\n[[bundle]]\nname = "bundle_{b}" # the {b + 1}. pier\nmarkers = [\n'
        for m, ((x, y), size) in enumerate(zip(places, sizes, strict=True)):
            text += f'    {{ family = "{families}", id = {10 * b + m}, size_m = {size}, p_M = [{x}, {y}, 0.0] }},\n'
        text += "]\n"
    return text


def write_log(
    path: Path, flight: Flight, metadata: dict[str, str], inertial: bool = True, markers: bool = True
) -> Path:
    """The flight as a log of the F550; metadata: of the log, with the vehicle."""
    data, exact = flight.data, flight.true
    camera = CameraModel(load(F550, Vehicle).camera)
    site = [bundle.markers for bundle in parse(tomllib.loads(site_text(len(data.bundles))), Site, "site").bundle]
    R_WC = exact.R_WB @ data.lens.R_BC
    entries: list[tuple[float, str, Message]] = []
    for k, t in enumerate(data.t_s.tolist()):
        pose = {"p_W": tuple(data.start.p_W[k]), "v_W": tuple(data.start.v_W[k]), "q_WB": _quat(data.start.R_WB[k])}
        entries.append((t, "state", State(stamp_s=t, **STATE, **pose)))
        observations = []
        for row in np.flatnonzero(data.seen.image == k):
            b = int(data.seen.bundle[row])
            p_CM = R_WC[k].T @ (exact.p_WM[b] - exact.p_W[k]) - data.lens.R_BC.T @ data.lens.p_BC
            corners = []
            for m in np.flatnonzero(data.seen.seen[row]):
                px = camera.project(np.column_stack([data.seen.xy[row, m], np.ones(4)]))
                corners_M = tuple(map(tuple, site[b][m].corners_M().tolist()))
                corners.append(MarkerCorners(site[b][m].family, site[b][m].id, tuple(px.ravel().tolist()), corners_M))
            best = PoseSolution(tuple(p_CM.tolist()), _quat(R_WC[k].T @ exact.R_WM[b]), 0.3)
            covariance = tuple((1e-4 * np.eye(6)).ravel().tolist())
            observations.append(BundleObservation(data.bundles[b], corners, best, None, False, covariance, 0.3))
        seen = Markers(
            stamp_s=t, observations=observations if markers else [], detect_time_s=0.0, search=SearchArea.FULL
        )
        entries.append((t + 0.01, "markers", seen))
    if inertial:
        for t, gyro, accel in zip(*(part.tolist() for part in data.samples), strict=True):
            stamp = t + 0.0025
            entries.append((stamp, "fcu_imu", FcuImu(stamp_s=stamp, gyro_B=tuple(gyro), accel_B=tuple(accel))))
    writer = LogWriter(path, metadata)
    for arrival_s, topic, message in sorted(entries, key=lambda entry: entry[0]):
        writer.put(topic, message, arrival_s)
    writer.close()
    return path


STATE = {
    "valid": True,
    "disturbance_W": (0.0, 0.0, 0.0),
    "gnss_bias_W": (0.0, 0.0, 0.0),
    "velocity_bias_W": (0.0, 0.0, 0.0),
    "bundle": "",
    "p_WM": (0.0, 0.0, 0.0),
    "q_WM": (1.0, 0.0, 0.0, 0.0),
    "marker_age_s": 0.0,
    "position_std_m": 0.1,
    "relative_std_m": 0.1,
    "covariance_diag": (0.0,) * 51,
    "battery_voltage_v": 15.0,
    "reset_count": 0,
}


def _quat(R: np.ndarray) -> tuple[float, ...]:
    return tuple(quat_from_matrix(R).tolist())
