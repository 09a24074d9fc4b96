"""A log and PX4's ULog of the same flight on one clock, in one MCAP file.

The log holds the offset that TIMESYNC measured (companion time less PX4's boot time). Where it is absent, or belongs to
another boot, the offset is where the angular rates of both files fit best. Their cross-correlation also decides whether
both files are of one flight at all: it must exceed what two independent motions of the same spectra reach by chance. So
do the firmware and the flight controller that both files name, where they name one.

A file may be damaged: times far from all others are left out.
"""

import contextlib
import io
import re
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from mcap.writer import Writer

from companion.core.arrays import Array
from companion.core.messages import FcuAttitude, FcuImu, FcuInfo, FcuStatus
from companion.core.vehicle import hardware_id
from companion.recording.foxglove import Clock, mcap_file, write_messages
from companion.recording.log import Log, LogError, read_log

MAGIC = b"ULog\x01\x12\x35"
GRID_HZ = 100.0
NEAR_S = 1.0  # within this of TIMESYNC's offset the rates are compared
OVERLAP_MIN_S = 5.0
CORRELATION_MIN = 0.5  # of the angular rates; another flight has noise about 0
# And as many standard deviations of that noise: among all offsets, and within `NEAR_S` of the one that TIMESYNC measured.
DEVIATIONS, DEVIATIONS_NEAR = 5.0, 3.0
CONTRADICTED_MIN = 0.9  # of an offset that TIMESYNC contradicts: flights of one mission resemble each other
GAP_MAX_S = 60.0  # a longer pause in the times of a file ends what is used of it
LONGEST_S = 6 * 3600.0  # of the rates that are compared, which takes memory
ARRIVAL_S = 0.02  # without TIMESYNC the stamps of the log are times of arrival, less a typical delay
RATE_MIN_RAD_S = 0.01  # root mean square: below this there is nothing to compare
TURNED = np.array([1.0, -1.0, -1.0])  # FRD to FLU
PREFIX = "px4/"
COMMIT = re.compile("[0-9a-f]{40}")  # `ver_sw`
# `sys_uuid` of an STM32: family, zeros, the three words of its serial number, of which AUTOPILOT_VERSION.uid has two
# (PX4, board_identity.c and mavlink_main.cpp). Other processors number themselves otherwise.
STM32 = re.compile("000[126]0{8}([0-9a-f]{8})([0-9a-f]{8})([0-9a-f]{8})")


class Ulog(NamedTuple):
    """What is read of a ULog: pyulog's data sets that hold something, and its information by name."""

    topics: list[Any]
    info: dict[str, Any]


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


class Fit(NamedTuple):
    """An offset [s], the correlation there, and what it must be."""

    offset_s: float
    correlation: float
    least: float


def write_aligned(log_path: Path, ulog_path: Path, out: Path) -> str:
    """Write both into one file; returns the line that says how. Raises `LogError`, `OutputError`."""
    log = read_log(log_path)
    ulog = read_ulog(ulog_path)
    found = align(log, ulog, str(ulog_path))
    with mcap_file(out) as writer:
        write_messages(writer, log)
        count, left_out = _write_topics(writer, ulog.topics, Clock(log.clock_offset_ns() + round(found.offset_s * 1e9)))
    fit = "" if found.correlation is None else f", correlation of the angular rates {found.correlation:.2f}"
    lost = f"; {left_out} with a damaged time are left out" if left_out else ""
    return (
        f"{out}: {count} messages of PX4{lost}; offset {found.offset_s:.4f} s ± {1e3 * found.uncertainty_s:.1f} ms"
        f" by {found.method}{fit}"
    )


def read_ulog(path: Path) -> Ulog:
    """A ULog; raises `LogError` with one line if the file is none, or holds nothing."""
    from pyulog import ULog

    try:
        content = path.read_bytes()
    except OSError as error:
        raise LogError(f"{path}: cannot be read: {error.strerror}") from None
    if not content.startswith(MAGIC):
        raise LogError(f"{path}: not a ULog")
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # pyulog prints remarks
            whole = ULog(io.BytesIO(content))
            found = [d for d in whole.data_list if len(d.data.get("timestamp", ()))]
    except Exception as error:  # any: pyulog does not handle every kind of damage
        raise LogError(f"{path}: damaged beyond reading ({type(error).__name__})") from None
    if not found:
        raise LogError(f"{path}: a ULog without any data")
    return Ulog(found, dict(whole.msg_info_dict))


def align(log: Log, ulog: Ulog, name: str) -> Alignment:
    """Find the offset of the clocks; raises `LogError` when these are not two files of one flight."""
    if other := _other_controller(log, ulog.info):
        raise LogError(f"{name}: not of the flight of {log.path.name}: {other}")
    ours, theirs = log_rates(log), ulog_rates(ulog.topics)
    for file, rates in ((log.path, ours), (name, theirs)):
        if rates is not None and np.ptp(rates.t_s) > LONGEST_S:
            hours = np.ptp(rates.t_s) / 3600
            raise LogError(f"{file}: its angular rates last {hours:.0f} h, must be {LONGEST_S / 3600:.0f} h at most")
    boots = timesync(log)
    if ours is None or theirs is None:
        return _by_timesync_alone(log, ulog, boots, name)
    for boot in boots:
        if _overlap(ours, theirs, boot.offset_s):
            fit = best_fit(ours, theirs, boot.offset_s, NEAR_S, DEVIATIONS_NEAR)
            if fit.correlation >= fit.least:
                return boot._replace(correlation=fit.correlation)
    middle_s = (ours.t_s[0] + ours.t_s[-1] - theirs.t_s[0] - theirs.t_s[-1]) / 2
    span_s = (np.ptp(ours.t_s) + np.ptp(theirs.t_s)) / 2
    fit = best_fit(ours, theirs, middle_s, span_s, DEVIATIONS)
    least = max(fit.least, CONTRADICTED_MIN) if boots else fit.least
    if fit.correlation < least:
        raise LogError(
            f"{name}: not of the flight of {log.path.name}, or too little motion in common: the angular rates correlate"
            f" by {fit.correlation:.2f} at best, must be {least:.2f}"
        )
    method = (
        "angular rates (TIMESYNC's offset is of another boot)" if boots else "angular rates (no TIMESYNC in the log)"
    )
    uncertainty_s = 0.5 / GRID_HZ + (0.0 if boots else ARRIVAL_S)
    return Alignment(fit.offset_s, uncertainty_s, method, fit.correlation)


def timesync(log: Log) -> list[Alignment]:
    """What TIMESYNC measured, for each boot of the flight controller in the log, the longest first."""
    synced = [s for s in log.of(FcuStatus) if s.timesync_rtt_s > 0 and np.isfinite(s.timesync_offset_s)]
    if not synced:
        return []
    offsets = np.array([s.timesync_offset_s for s in synced])
    round_trips = np.array([s.timesync_rtt_s for s in synced])
    order = np.argsort(offsets, kind="stable")
    boots = []
    for one in sorted(np.split(order, np.flatnonzero(np.diff(offsets[order]) > NEAR_S) + 1), key=len, reverse=True):
        # Half a round trip is what TIMESYNC cannot know; the drift of the clocks over the flight adds to it.
        uncertainty_s = 0.5 * float(np.median(round_trips[one])) + float(np.ptp(offsets[one])) / 2
        boots.append(Alignment(float(np.median(offsets[one])), uncertainty_s, "TIMESYNC", None))
    return boots


def _by_timesync_alone(log: Log, ulog: Ulog, boots: list[Alignment], name: str) -> Alignment:
    """The boot in which both files have a time in common; raises `LogError` without one."""
    if not boots:
        raise LogError(f"{name}: the log holds no TIMESYNC offset, and one of the files no angular rates to compare")
    begin_s, end_s = times_of(ulog.topics)
    stamps = [s.stamp_s for s in log.of(FcuStatus) if np.isfinite(s.stamp_s)]
    for boot in boots:
        common_s = min(max(stamps), end_s + boot.offset_s) - max(min(stamps), begin_s + boot.offset_s)
        if common_s >= OVERLAP_MIN_S:
            return boot._replace(method="TIMESYNC alone (no angular rates to compare)")
    raise LogError(
        f"{name}: not of the flight of {log.path.name}: by TIMESYNC they have no time in common, and one of the files has"
        " no angular rates to compare"
    )


def _other_controller(log: Log, info: dict[str, Any]) -> str:
    """Why a ULog is of none of the flight controllers of a log, "" when it may be of one."""
    problems = [_other_than(known, info) for known in log.of(FcuInfo)]
    return problems[0] if problems and all(problems) else ""


def _other_than(known: FcuInfo, info: dict[str, Any]) -> str:
    commit, firmware = known.commit.lower(), str(info.get("ver_sw", "")).lower()
    named = commit.strip("0") and firmware.strip("0") and COMMIT.fullmatch(firmware)
    if named and not firmware.startswith(commit):
        return f"its firmware is {firmware[: len(commit)]}, that of the log {commit}"
    serial = STM32.fullmatch(str(info.get("sys_uuid", "")).lower())
    own = f"{known.hardware_id:016x}"
    if serial and known.hardware_id and not {own[:8], own[8:]} <= set(serial.groups()):
        return f"its flight controller is {serial[0]}, the hardware id of the log {hardware_id(known.hardware_id)}"
    return ""


def times_of(topics: list[Any]) -> tuple[float, float]:
    """Begin and end of a ULog [s], boot time, without times that lie far from all others."""
    every = np.concatenate([_seconds(data.data["timestamp"]) for data in topics])
    return _main_stretch(every[np.isfinite(every)])


def _seconds(timestamps: Any) -> Array:
    found: Array = np.asarray(timestamps).astype(float) * 1e-6
    return found


def _main_stretch(t_s: Array) -> tuple[float, float]:
    """Begin and end of the stretch without a pause of `GAP_MAX_S` that holds most of the times; (n,), of any order."""
    if not len(t_s):
        return np.inf, -np.inf
    stretches = np.split(ordered := np.sort(t_s), np.flatnonzero(np.diff(ordered) > GAP_MAX_S) + 1)
    longest = max(stretches, key=len)
    return float(longest[0]), float(longest[-1])


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
                return _usable(_seconds(at), rates)
    return None


def _usable(t_s: Array, omega_B: Array) -> Rates | None:
    """Rates in order of time, without those that are not finite and times far from the others; None: too few or too slow."""
    good = np.isfinite(omega_B).all(axis=1) & np.isfinite(t_s)
    begin_s, end_s = _main_stretch(t_s[good])
    good &= (t_s >= begin_s) & (t_s <= end_s)
    t_s, omega_B = t_s[good], omega_B[good]
    if len(t_s) < 2 or np.ptp(t_s) < OVERLAP_MIN_S or np.sqrt(np.mean(omega_B**2)) < RATE_MIN_RAD_S:
        return None
    order = np.argsort(t_s, kind="stable")
    return Rates(t_s[order], omega_B[order])


def _overlap(ours: Rates, theirs: Rates, offset_s: float) -> bool:
    begin = max(ours.t_s[0], theirs.t_s[0] + offset_s)
    return bool(min(ours.t_s[-1], theirs.t_s[-1] + offset_s) - begin >= OVERLAP_MIN_S)


def best_fit(ours: Rates, theirs: Rates, around_s: float, within_s: float, deviations: float) -> Fit:
    """Where the rates fit best, among offsets within_s of around_s.

    The correlation at each lag is normalised by the parts that overlap there; FFT of both on a grid of `GRID_HZ`. It must
    reach `CORRELATION_MIN`, and as many deviations of what two independent motions with these autocorrelations have. With the
    normalised ones r of each axis the variance is the sum of r_a r_b over axes and lags, by the samples that overlap
    (M. S. Bartlett, Journal of the Royal Statistical Society 98, 1935): slow motions resemble each other by chance.
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
        return Fit(around_s, 0.0, CORRELATION_MIN)
    own = [(correlate(x, x), correlate(y, y)) for x, y in zip(a.T, b.T, strict=True)]
    chance = sum(float(np.sum(r_a * r_b)) for r_a, r_b in own) / (np.sum(a * a) * np.sum(b * b))
    least = np.maximum(deviations * np.sqrt(max(chance, 0.0) / np.maximum(overlap, 1.0)), CORRELATION_MIN)
    best = int(np.argmax(np.where(allowed, value - least, -np.inf)))
    return Fit(float(offsets[best]), float(value[best]), float(least[best]))


def _on_grid(rates: Rates) -> Array:
    t = np.arange(rates.t_s[0], rates.t_s[-1], 1 / GRID_HZ)
    values = np.column_stack([np.interp(t, rates.t_s, column) for column in rates.omega_B.T])
    centred: Array = values - values.mean(axis=0)
    return centred


def _write_topics(writer: Writer, topics: list[Any], clock: Clock) -> tuple[int, int]:
    """All topics of the ULog as JSON under `PREFIX`, with PX4's own names, frames and units.

    Returns how many messages were written, and how many have a time that lies far from all others.
    """
    count = left_out = 0
    begin_s, end_s = times_of(topics)
    for data in topics:
        at_s = _seconds(data.data["timestamp"])
        good = (at_s >= begin_s) & (at_s <= end_s)
        left_out += int(np.sum(~good))
        fields = {name: values[good].tolist() for name, values in data.data.items()}
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
    return count, left_out
