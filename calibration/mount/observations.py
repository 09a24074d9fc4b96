"""What the calibration of a camera's mount and delay takes from a flight log: sightings, attitude, position.

The stamps of sightings were made with the latency.camera_s that the aircraft believed in when it flew, so that number
comes from the log itself: taken from a vehicle file that was corrected meanwhile, the correction would be made twice.
"""

import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.ndimage import gaussian_filter1d
from scipy.spatial.transform import Rotation

from calibration.results import DataError
from companion.core.config import ConfigError, read_layered, read_toml
from companion.core.frames import quat_normalized
from companion.core.vehicle import Vehicle
from companion.recording.log import read_log

TOPICS = ("markers", "fcu_attitude", "fcu_position")
MIN_SIGHTINGS = 100
GAP_S = 0.3  # of attitude or position: what was seen in a longer gap is left out
MIN_POSITIONS = 50
SMOOTH_S = 0.07  # over which the rates are believed more than the attitude
RATES_EVERY_MAX_S = 0.03  # rates that come more rarely do not tell the course between two of them


@dataclass(frozen=True)
class Sightings:
    """Poses of one bundle in the camera's frame: t_s (n,), R_CM (n, 3, 3), p_CM (n, 3) [m], covariance (n, 6, 6) as in
    `companion.core.messages.BundleObservation`; t_s are the stamps of the log."""

    t_s: np.ndarray
    R_CM: np.ndarray
    p_CM: np.ndarray
    covariance: np.ndarray

    def __len__(self) -> int:
        return len(self.t_s)

    def take(self, index) -> "Sightings":
        return Sightings(self.t_s[index], self.R_CM[index], self.p_CM[index], self.covariance[index])


@dataclass(frozen=True)
class Track:
    """Samples of the flight controller over time: t_s (n,) rising, and value (n, k)."""

    t_s: np.ndarray
    value: np.ndarray

    def near(self, t_s: np.ndarray) -> np.ndarray:
        """Which times (m,) lie between two samples that are not far apart, bool."""
        if len(self.t_s) < 2:
            return np.zeros(len(t_s), bool)
        after = np.clip(np.searchsorted(self.t_s, t_s), 1, len(self.t_s) - 1)
        inside = (t_s >= self.t_s[0]) & (t_s <= self.t_s[-1])
        return inside & (self.t_s[after] - self.t_s[after - 1] <= GAP_S)


@dataclass(frozen=True)
class MountLog:
    """A log for the calibration of a camera's mount: quaternions (w, x, y, z) in `attitude`, p_W in `position`.

    position is None where the flight controller had none. camera_s, p_BC, q_BC: what the aircraft believed in.
    """

    path: Path
    bundle: str
    sightings: Sightings
    attitude: Track
    position: Track | None
    camera_s: float
    p_BC: np.ndarray
    q_BC: np.ndarray
    ambiguous: int  # sightings left out, because the image did not tell which of two poses was right
    notes: list[str]


def read_mount_log(path: Path, bundle: str | None, believed: Vehicle | None) -> MountLog:
    """Sightings of a bundle (None: the one seen most) with attitude and position; raises `DataError` or `LogError`.

    believed: the vehicle to take for the one that flew where the log does not tell.
    """
    log = read_log(path, TOPICS)
    notes = ["the end of the log is missing; what can be read is used"] if log.truncated else []
    attitude = smoothed(_track(log["fcu_attitude"], "q_WB"), _track(log["fcu_attitude"], "omega_B"))
    if len(attitude.t_s) < 2:
        raise DataError(f"{path}: no attitude of the flight controller in the log")
    observations = [(m.stamp_s, o) for m in log["markers"] if m.valid for o in m.observations]
    seen = Counter(o.bundle for _, o in observations)
    if not seen:
        looked = f", though {len(log['markers'])} images were looked at" if log["markers"] else ""
        raise DataError(f"{path}: no marker was seen in this log{looked}")
    if bundle is not None and bundle not in seen:
        raise DataError(f"{path}: bundle '{bundle}' was not seen (seen: {', '.join(sorted(seen))})")
    bundle = bundle or seen.most_common(1)[0][0]
    mine = sorted(((t, o) for t, o in observations if o.bundle == bundle), key=lambda item: item[0])
    clear = [(t, o) for t, o in mine if not o.ambiguous]
    sightings = Sightings(
        np.array([t for t, _ in clear]),
        _matrices(np.array([o.best.q_CM for _, o in clear]).reshape(-1, 4)),
        np.array([o.best.p_CM for _, o in clear]).reshape(-1, 3),
        np.array([o.covariance for _, o in clear]).reshape(-1, 6, 6),
    )
    sightings = sightings.take(attitude.near(sightings.t_s) & np.isfinite(sightings.covariance).all((1, 2)))
    if len(sightings) < MIN_SIGHTINGS:
        raise DataError(
            f"{path}: bundle '{bundle}' was seen {len(sightings)} times without doubt about its pose "
            f"({len(mine) - len(clear)} in doubt), {MIN_SIGHTINGS} are needed: keep it in sight, larger in the picture"
        )
    position = _track(log["fcu_position"], "p_W")
    flown = _flown(log.metadata, believed, path, notes)
    return MountLog(
        path,
        bundle,
        sightings,
        attitude,
        position if np.count_nonzero(position.near(sightings.t_s)) >= MIN_POSITIONS else None,
        *flown,
        len(mine) - len(clear),
        notes,
    )


class _Believed(NamedTuple):
    camera_s: float
    p_BC: np.ndarray
    q_BC: np.ndarray


def _flown(metadata: dict[str, str], vehicle: Vehicle | None, path: Path, notes: list[str]) -> _Believed:
    """What the aircraft of the flight believed of its camera. The log has its file's text, but not that of its base.

    Only these numbers are read, so logs from before other keys were added can be used.
    """
    try:
        tables = tomllib.loads(metadata.get("vehicle", ""))
        file = Path(metadata.get("vehicle_file", ""))
        if "base" in tables and read_toml(file) == tables:  # the file still is what it was then
            tables = read_layered(file)
        camera = tables["camera"]
        p_BC, q_BC = np.array(camera["p_BC"], dtype=float), quat_normalized(camera["q_BC"])
        if p_BC.shape == (3,) and q_BC.shape == (4,):
            return _Believed(float(tables["latency"]["camera_s"]), p_BC, q_BC)
    except (tomllib.TOMLDecodeError, ConfigError, KeyError, TypeError, ValueError):
        pass
    if vehicle is None:
        raise DataError(f"{path}: does not tell the vehicle file that flew: name it with --vehicle")
    notes.append("the log does not tell the vehicle file that flew: it is taken to be the one named")
    return _Believed(vehicle.latency.camera_s, np.array(vehicle.camera.p_BC), quat_normalized(vehicle.camera.q_BC))


def smoothed(attitude: Track, rates: Track) -> Track:
    """The attitude without what its rates contradict: jitter that is faster than `SMOOTH_S`.

    Jitter does not average out: the mount is found from how sightings go with the attitude, and a course that moves by
    more than the aircraft did makes them go less (regression dilution), which shows as a wrong height of the camera.
    Where the rates lack or come too rarely the attitude is returned as it is.
    """
    if len(attitude.t_s) < 3 or not np.array_equal(attitude.t_s, rates.t_s):
        return attitude
    step_s = np.diff(attitude.t_s)
    every_s = float(np.median(step_s))
    if every_s > RATES_EVERY_MAX_S:
        return attitude
    R = Rotation.from_quat(np.roll(attitude.value, -1, axis=1))
    w = np.pad(rates.value, ((1, 1), (0, 0)), mode="edge")  # a cubic: a straight line cuts the peaks off fast rates
    mean_rate = (13 * (w[1:-2] + w[2:-1]) - w[:-3] - w[3:]) / 24
    turned = Rotation.from_rotvec(mean_rate * step_s[:, None])
    beyond = (turned.inv() * R[:-1].inv() * R[1:]).as_rotvec()  # what the attitude turned more than the rates say
    beyond[step_s > GAP_S] = 0.0
    error_W = np.vstack([np.zeros(3), np.cumsum(R[1:].apply(beyond), axis=0)])
    jitter_W = error_W - gaussian_filter1d(error_W, SMOOTH_S / every_s, axis=0)
    clean = Rotation.from_rotvec(-jitter_W) * R
    return Track(attitude.t_s, np.roll(clean.as_quat(), 1, axis=1))


def _track(messages: list, field: str) -> Track:
    good = [m for m in messages if m.valid and np.isfinite(getattr(m, field)).all()]
    t_s = np.array([m.stamp_s for m in good])
    value = np.array([getattr(m, field) for m in good], dtype=float).reshape(len(good), -1)
    rising = np.ones(len(t_s), bool)
    if len(t_s) > 1:
        rising[1:] = t_s[1:] > np.maximum.accumulate(t_s)[:-1]
    return Track(t_s[rising], value[rising])


def _matrices(q: np.ndarray) -> np.ndarray:
    """Rotation matrices (n, 3, 3) of quaternions (n, 4)."""
    return Rotation.from_quat(q[:, [1, 2, 3, 0]]).as_matrix() if len(q) else np.zeros((0, 3, 3))
