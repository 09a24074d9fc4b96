"""A log and PX4's ULog of the same flight on one clock, in one MCAP file.

The log holds the offset that TIMESYNC measured (companion time less PX4's boot time). Where it is absent, or belongs to
another boot, the offset is where the angular rates of both files fit best. Their cross-correlation also decides whether
both files are of one flight at all.
"""

import contextlib
import io
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from mcap.writer import Writer

from companion.core.arrays import Array
from companion.core.messages import FcuAttitude, FcuImu, FcuStatus
from companion.recording.foxglove import Clock, mcap_file, write_messages
from companion.recording.log import Log, LogError, read_log

MAGIC = b"ULog\x01\x12\x35"
GRID_HZ = 100.0
NEAR_S = 1.0  # within this of TIMESYNC's offset the rates are compared
OVERLAP_MIN_S = 5.0
CORRELATION_MIN = 0.5  # of the angular rates; another flight has noise about 0
ARRIVAL_S = 0.02  # without TIMESYNC the stamps of the log are times of arrival, less a typical delay
RATE_MIN_RAD_S = 0.01  # root mean square: below this there is nothing to compare
TURNED = np.array([1.0, -1.0, -1.0])  # FRD to FLU
PREFIX = "px4/"


class Alignment(NamedTuple):
    """PX4's boot time plus `offset_s` is companion time."""

    offset_s: float
    uncertainty_s: float
    method: str
    correlation: float | None  # of the angular rates at this offset; None: not compared


class Rates(NamedTuple):
    """Angular rates [rad/s] in FLU, times [s] by the file's own clock."""

    t_s: Array
    omega_B: Array


def write_aligned(log_path: Path, ulog_path: Path, out: Path) -> str:
    """Write both into one file; returns the line that says how. Raises `LogError`, `OutputError`."""
    log = read_log(log_path)
    ulog = read_topics(ulog_path)
    found = align(log, ulog, str(ulog_path))
    with mcap_file(out) as writer:
        write_messages(writer, log)
        count = _write_ulog(writer, ulog, Clock(log.clock_offset_ns() + round(found.offset_s * 1e9)))
    fit = "" if found.correlation is None else f", correlation of the angular rates {found.correlation:.2f}"
    return (
        f"{out}: {count} messages of PX4; offset {found.offset_s:.4f} s ± {1e3 * found.uncertainty_s:.1f} ms"
        f" by {found.method}{fit}"
    )


def read_topics(path: Path) -> list[Any]:
    """All data sets of a ULog; raises `LogError` with one line if the file is none."""
    from pyulog import ULog

    try:
        content = path.read_bytes()
    except OSError as error:
        raise LogError(f"{path}: cannot be read: {error.strerror}") from None
    if not content.startswith(MAGIC):
        raise LogError(f"{path}: not a ULog")
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # pyulog prints remarks
            found = [d for d in ULog(io.BytesIO(content)).data_list if len(d.data.get("timestamp", ()))]
    except Exception as error:  # any: pyulog does not handle every kind of damage
        raise LogError(f"{path}: damaged beyond reading ({type(error).__name__})") from None
    if not found:
        raise LogError(f"{path}: a ULog without any data")
    return found


def align(log: Log, ulog: list[Any], name: str) -> Alignment:
    """Find the offset of the clocks; raises `LogError` when these are not two files of one flight."""
    ours, theirs = log_rates(log), ulog_rates(ulog)
    synced = [s for s in log.of(FcuStatus) if s.timesync_rtt_s > 0 and np.isfinite(s.timesync_offset_s)]
    if synced:
        offsets = np.array([s.timesync_offset_s for s in synced])
        offset_s = float(np.median(offsets))
        # Half a round trip is what TIMESYNC cannot know; the drift of the clocks over the flight adds to it.
        uncertainty_s = 0.5 * float(np.median([s.timesync_rtt_s for s in synced])) + float(np.ptp(offsets)) / 2
        if ours is None or theirs is None:
            return Alignment(offset_s, uncertainty_s, "TIMESYNC alone (no angular rates to compare)", None)
        if _overlap(ours, theirs, offset_s):
            _, correlation = _best(ours, theirs, offset_s, NEAR_S)
            if correlation >= CORRELATION_MIN:
                return Alignment(offset_s, uncertainty_s, "TIMESYNC", correlation)
    if ours is None or theirs is None:
        raise LogError(f"{name}: the log holds no TIMESYNC offset, and one of the files no angular rates to compare")
    middle_s = (ours.t_s[0] + ours.t_s[-1] - theirs.t_s[0] - theirs.t_s[-1]) / 2
    span_s = (np.ptp(ours.t_s) + np.ptp(theirs.t_s)) / 2
    offset_s, correlation = _best(ours, theirs, middle_s, span_s)
    if correlation < CORRELATION_MIN:
        raise LogError(
            f"{name}: not of the flight of {log.path.name}: the angular rates correlate by {correlation:.2f} at best,"
            f" must be {CORRELATION_MIN:g}"
        )
    method = (
        "angular rates (TIMESYNC's offset is of another boot)" if synced else "angular rates (no TIMESYNC in the log)"
    )
    uncertainty_s = 0.5 / GRID_HZ + (0.0 if synced else ARRIVAL_S)
    return Alignment(offset_s, uncertainty_s, method, correlation)


def log_rates(log: Log) -> Rates | None:
    """The angular rates of a log, of its IMU or else of its attitude; None where they say nothing."""
    imu, attitude = log.of(FcuImu), log.of(FcuAttitude)
    if imu:
        return _usable(np.array([m.stamp_s for m in imu]), np.array([m.gyro_B for m in imu]))
    return _usable(np.array([m.stamp_s for m in attitude]), np.array([m.omega_B for m in attitude]).reshape(-1, 3))


def ulog_rates(ulog: list[Any]) -> Rates | None:
    """The angular rates of a ULog, by its boot time."""
    for topic, fields in (
        ("vehicle_angular_velocity", [f"xyz[{i}]" for i in range(3)]),
        ("sensor_combined", [f"gyro_rad[{i}]" for i in range(3)]),
        ("vehicle_attitude", ["rollspeed", "pitchspeed", "yawspeed"]),
    ):
        for data in (d.data for d in ulog if d.name == topic):
            if all(field in data for field in fields):
                at = data.get("timestamp_sample", data["timestamp"])
                rates = np.column_stack([data[field] for field in fields]).astype(float) * TURNED
                return _usable(at.astype(float) * 1e-6, rates)
    return None


def _usable(t_s: Array, omega_B: Array) -> Rates | None:
    good = np.isfinite(omega_B).all(axis=1) & np.isfinite(t_s)
    t_s, omega_B = t_s[good], omega_B[good]
    if len(t_s) < 2 or np.ptp(t_s) < OVERLAP_MIN_S or np.sqrt(np.mean(omega_B**2)) < RATE_MIN_RAD_S:
        return None
    order = np.argsort(t_s, kind="stable")
    return Rates(t_s[order], omega_B[order])


def _overlap(ours: Rates, theirs: Rates, offset_s: float) -> bool:
    begin = max(ours.t_s[0], theirs.t_s[0] + offset_s)
    return bool(min(ours.t_s[-1], theirs.t_s[-1] + offset_s) - begin >= OVERLAP_MIN_S)


def _best(ours: Rates, theirs: Rates, around_s: float, within_s: float) -> tuple[float, float]:
    """(offset [s], correlation) where the rates fit best, among offsets within_s of around_s.

    The correlation at each lag is normalised by the parts that overlap there; FFT of both on a grid of `GRID_HZ`.
    """
    a, b = _on_grid(ours), _on_grid(theirs)
    size = 1 << (len(a) + len(b)).bit_length()
    covered_a, covered_b = np.ones(len(a)), np.ones(len(b))

    def correlate(x: Array, y: Array) -> Array:
        product: Array = np.fft.irfft(np.fft.rfft(x, size) * np.conj(np.fft.rfft(y, size)), size)
        return product

    shared = sum(correlate(a[:, i], b[:, i]) for i in range(3))
    energy_a = correlate(np.sum(a * a, axis=1), covered_b)
    energy_b = correlate(covered_a, np.sum(b * b, axis=1))
    overlap = correlate(covered_a, covered_b)
    lags = np.arange(size)
    lags = np.where(lags >= size // 2, lags - size, lags)
    offsets = ours.t_s[0] - theirs.t_s[0] + lags / GRID_HZ
    with np.errstate(invalid="ignore", divide="ignore"):
        value = shared / np.sqrt(np.maximum(energy_a * energy_b, 1e-12))
    allowed = (np.abs(offsets - around_s) <= within_s) & (overlap >= OVERLAP_MIN_S * GRID_HZ - 0.5)
    # An aircraft at rest gives no energy, and a ratio of roundings.
    allowed &= np.minimum(energy_a, energy_b) > RATE_MIN_RAD_S**2 * np.maximum(overlap, 1.0)
    if not allowed.any():
        return around_s, 0.0
    best = int(np.argmax(np.where(allowed, value, -1.0)))
    return float(offsets[best]), float(value[best])


def _on_grid(rates: Rates) -> Array:
    t = np.arange(rates.t_s[0], rates.t_s[-1], 1 / GRID_HZ)
    values = np.column_stack([np.interp(t, rates.t_s, column) for column in rates.omega_B.T])
    centred: Array = values - values.mean(axis=0)
    return centred


def _write_ulog(writer: Writer, ulog: list[Any], clock: Clock) -> int:
    """All topics of the ULog as JSON under `PREFIX`, with PX4's own names, frames and units."""
    count = 0
    for data in ulog:
        fields = {name: values.tolist() for name, values in data.data.items()}
        kinds = {
            name: {"type": "integer" if values.dtype.kind in "iu" else "number"} for name, values in data.data.items()
        }
        schema = writer.register_schema(
            f"px4.{data.name}", "jsonschema", msgspec.json.encode({"type": "object", "properties": kinds})
        )
        topic = f"{PREFIX}{data.name}" + (f"/{data.multi_id}" if data.multi_id else "")
        channel = writer.register_channel(topic, "json", schema)
        for row in zip(*fields.values(), strict=True):
            message = dict(zip(fields, row, strict=True))
            at = clock.ns(message["timestamp"] * 1e-6)
            writer.add_message(channel, at, msgspec.json.encode(message), at)
            count += 1
    return count
