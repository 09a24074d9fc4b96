"""What the calibration of a camera's mount and delay reads from a flight log: observations, attitude, position.

The stamps of observations were made with the latency.camera_s that flew, so that number is read from the log
(`calibration.flown_vehicle`).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d
from scipy.spatial.transform import Rotation

from calibration.flown_vehicle import FlownVehicle, flown_vehicle
from calibration.logs import log_warnings, messages, no_messages
from calibration.results import DataError
from companion.core.arrays import Array
from companion.core.enums import TopicName
from companion.core.frames import quat_normalized
from companion.core.messages import FcuAttitude, FcuPosition, Markers
from companion.recording.log import read_log

TOPICS: tuple[TopicName, ...] = ("markers", "fcu_attitude", "fcu_position")
MIN_OBSERVATIONS = 100
GAP_S = 0.3  # of attitude or position: observations in a longer gap are left out
MIN_POSITIONS = 50
SMOOTH_S = 0.07  # attitude that is faster than this is taken from the body rates
NO_POSITION = "the log has no position of the flight controller"
# PX4 then places the aircraft by the camera where the vehicle file has it, so its position confirms that number, whatever it is.
OWN_POSITION = (
    "the flight controller's position contains the estimate of this stack (fcu.send_odometry was true in this flight; fly without"
    " it to find the camera's position)"
)
RATES_EVERY_MAX_S = 0.03  # rates with longer intervals do not determine the attitude between two of them


@dataclass(frozen=True)
class Observations:
    """Poses of one bundle in the camera's frame: t_s (n,), R_CM (n, 3, 3), p_CM (n, 3) [m], covariance (n, 6, 6) as in
    `companion.core.messages.BundleObservation`; t_s are the stamps of the log."""

    t_s: Array
    R_CM: Array
    p_CM: Array
    covariance: Array

    def __len__(self) -> int:
        return len(self.t_s)

    def take(self, index: slice | NDArray[np.bool_] | NDArray[np.int64]) -> "Observations":
        """A part of the observations."""
        return Observations(self.t_s[index], self.R_CM[index], self.p_CM[index], self.covariance[index])


@dataclass(frozen=True)
class TimeSeries:
    """Samples of the flight controller over time: t_s (n,) rising, and value (n, k)."""

    t_s: Array
    value: Array

    def near(self, t_s: Array) -> NDArray[np.bool_]:
        """Which times (m,) lie between two samples that are not far apart, bool."""
        if len(self.t_s) < 2:
            return np.zeros(len(t_s), bool)
        after = np.clip(np.searchsorted(self.t_s, t_s), 1, len(self.t_s) - 1)
        inside: NDArray[np.bool_] = (t_s >= self.t_s[0]) & (t_s <= self.t_s[-1])
        return inside & (self.t_s[after] - self.t_s[after - 1] <= GAP_S)


@dataclass(frozen=True)
class MountLog:
    """A log for the calibration of a camera's mount: quaternions (w, x, y, z) in `attitude`, p_W in `position`.

    position is None where the flight controller had none of its own; no_position: why. camera_s, p_BC, q_BC: the numbers that flew.
    """

    path: Path
    bundle: str
    observations: Observations
    attitude: TimeSeries
    position: TimeSeries | None
    camera_s: float
    p_BC: Array
    q_BC: Array
    ambiguous: int  # observations left out: both poses explained the image
    notes: list[str]
    doubts: tuple[str, ...] = ()  # reasons to think that it is another aircraft's log
    no_position: str = NO_POSITION


def read_mount_log(path: Path, bundle: str | None, vehicle_file: Path | None) -> MountLog:
    """Observations of a bundle (None: the one seen most) with attitude and position.

    vehicle_file: the file of the command line, for what flew if the log does not hold it. Raises `DataError` or
    `LogError`, and `ConfigError` if the vehicle file cannot be read.
    """
    log = read_log(path, TOPICS)
    flown = flown_vehicle(log, vehicle_file)
    attitudes, markers = messages(log, FcuAttitude), messages(log, Markers)
    attitude = smoothed(_series(attitudes, "q_WB"), _series(attitudes, "omega_B"))
    if len(attitude.t_s) < 2:
        raise no_messages(log, (FcuAttitude,), "no attitude of the flight controller in the log")
    found = [(m.stamp_s, o) for m in markers if m.valid for o in m.observations]
    seen = Counter(o.bundle for _, o in found)
    if not seen:
        searched = f", in {len(markers)} images" if markers else ""
        raise no_messages(log, (Markers,), f"no marker was seen in this log{searched}")
    if bundle is not None and bundle not in seen:
        raise DataError(f"{path}: bundle '{bundle}' was not seen (seen: {', '.join(sorted(seen))})")
    bundle = bundle or seen.most_common(1)[0][0]
    mine = sorted(((t, o) for t, o in found if o.bundle == bundle), key=lambda item: item[0])
    clear = [(t, o) for t, o in mine if not o.ambiguous]
    observations = Observations(
        np.array([t for t, _ in clear]),
        _matrices(np.array([o.best.q_CM for _, o in clear]).reshape(-1, 4)),
        np.array([o.best.p_CM for _, o in clear]).reshape(-1, 3),
        np.array([o.covariance for _, o in clear]).reshape(-1, 6, 6),
    )
    observations = observations.take(attitude.near(observations.t_s) & np.isfinite(observations.covariance).all((1, 2)))
    if len(observations) < MIN_OBSERVATIONS:
        raise no_messages(
            log,
            (Markers,),
            f"bundle '{bundle}' was seen {len(observations)} times with a certain pose ({len(mine) - len(clear)} "
            f"ambiguous), {MIN_OBSERVATIONS} are needed: keep it in sight, larger in the picture",
        )
    position = _series(messages(log, FcuPosition), "p_W")
    own_position = flown.value("fcu.send_odometry") is True
    near = np.count_nonzero(position.near(observations.t_s)) >= MIN_POSITIONS
    return MountLog(
        path,
        bundle,
        observations,
        attitude,
        position if near and not own_position else None,
        *_flown_camera(flown, path),
        len(mine) - len(clear),
        [*log_warnings(log), *flown.notes],
        flown.doubts,
        OWN_POSITION if own_position else NO_POSITION,
    )


class _FlownCamera(NamedTuple):
    camera_s: float
    p_BC: Array
    q_BC: Array


def _flown_camera(flown: FlownVehicle, path: Path) -> _FlownCamera:
    """Delay and mount of the camera in the flight; raises `DataError` if they are not known.

    Only these numbers are read, so logs from before other keys were added can be used.
    """
    try:
        p_BC = np.array(flown.value("camera.p_BC"), dtype=float)
        q_BC = quat_normalized(flown.value("camera.q_BC"))
        camera_s = float(flown.value("latency.camera_s"))
    except (TypeError, ValueError):
        p_BC = q_BC = np.zeros(0)
        camera_s = 0.0
    if p_BC.shape != (3,) or q_BC.shape != (4,):
        raise DataError(f"{path}: the log does not hold its vehicle file: name that file with --vehicle")
    return _FlownCamera(camera_s, p_BC, q_BC)


def smoothed(attitude: TimeSeries, rates: TimeSeries) -> TimeSeries:
    """The attitude without the jitter that its rates contradict, i.e. that is faster than `SMOOTH_S`.

    Jitter does not average out. The mount is found from the correlation of observations with the attitude; an attitude
    that moves more than the aircraft did lowers it (regression dilution), which shows as a wrong height of the camera.
    Without rates, or with intervals above `RATES_EVERY_MAX_S`, the attitude is returned as it is.
    """
    if len(attitude.t_s) < 3 or not np.array_equal(attitude.t_s, rates.t_s):
        return attitude
    step_s = np.diff(attitude.t_s)
    every_s = float(np.median(step_s))
    if every_s > RATES_EVERY_MAX_S:
        return attitude
    R = Rotation.from_quat(np.roll(attitude.value, -1, axis=1))
    w = np.pad(
        rates.value, ((1, 1), (0, 0)), mode="edge"
    )  # cubic interpolation: a linear one cuts the peaks of fast rates
    mean_rate = (13 * (w[1:-2] + w[2:-1]) - w[:-3] - w[3:]) / 24
    turned = Rotation.from_rotvec(mean_rate * step_s[:, None])
    beyond = (turned.inv() * R[:-1].inv() * R[1:]).as_rotvec()  # rotation of the attitude beyond that of the rates
    beyond[step_s > GAP_S] = 0.0
    error_W = np.vstack([np.zeros(3), np.cumsum(R[1:].apply(beyond), axis=0)])
    jitter_W = error_W - gaussian_filter1d(error_W, SMOOTH_S / every_s, axis=0)
    clean = Rotation.from_rotvec(-jitter_W) * R
    return TimeSeries(attitude.t_s, np.roll(clean.as_quat(), 1, axis=1))


def _series(samples: Sequence[FcuAttitude] | Sequence[FcuPosition], field: str) -> TimeSeries:
    good = [m for m in samples if m.valid and np.isfinite(getattr(m, field)).all()]
    t_s = np.array([m.stamp_s for m in good])
    value = np.array([getattr(m, field) for m in good], dtype=float).reshape(len(good), -1 if good else 0)
    rising = np.ones(len(t_s), bool)
    if len(t_s) > 1:
        rising[1:] = t_s[1:] > np.maximum.accumulate(t_s)[:-1]
    return TimeSeries(t_s[rising], value[rising])


def _matrices(q: Array) -> Array:
    """Rotation matrices (n, 3, 3) of quaternions (n, 4)."""
    R: Array = Rotation.from_quat(q[:, [1, 2, 3, 0]]).as_matrix() if len(q) else np.zeros((0, 3, 3))
    return R
