"""What a pilot did with the sticks and what the aircraft did, from PX4's ULog, a log of this stack or a path of `teleop`.

Everything is brought to one millisecond. Sticks hold until the next sample, as in the paper and as in a flight controller.
Attitude and height are interpolated between samples; the paper holds them, too (`Upsampling.HELD`), which adds a delay of half a
sample.
"""

import contextlib
import csv
import io
import math
import stat
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pymavlink.dialects.v20 import common

from companion.core.arrays import Array
from companion.core.enums import FcuMode
from companion.core.errors import UserError
from companion.core.frames import quat_from_rpy, rotation_matrix
from companion.core.messages import FcuAttitude, FcuPosition, FcuStatus, LinkRx, LinkTx
from companion.fcu.ned import swap_attitude
from companion.recording.log import read_log
from companion.recording.series import of, stamps
from sitl.teleop.flight import COLUMNS
from sitl.teleop.sources import from_manual_control

STEP_S = 1e-3
EDGE_S = 2.0  # left out after the take-off and before the landing
GAP_S = 1.0  # a longer gap of a signal divides the flight
MOVED = 0.02  # standard deviation of the sticks below which no pilot was at them
ULOG_MAGIC, MCAP_MAGIC = b"ULog\x01\x12\x35", b"\x89MCAP0\r\n"
HEAD_BYTES = 4096  # in which a text has no zero
FILE_MAX_BYTES = 2_000_000_000  # a ULog of an hour has some hundred megabytes
CUT = "the log is cut or damaged: what is whole is used"
BACK_S = 0.5  # by which a stamp may lie before the one before it: clocks are corrected
HEIGHT_MAX_M = 10_000.0
BY_HAND = (0, 1, 2, 15)  # vehicle_status.nav_state: Manual, Altitude, Position, Stabilized
HAND_MODES = (FcuMode.MANUAL, FcuMode.STABILIZED, FcuMode.ALTCTL, FcuMode.POSCTL)
MULTIROTOR = 1  # vehicle_status.vehicle_type
ARMED = 2  # vehicle_status.arming_state
SLOPE_S = 0.2  # over which the rates at the start of a window are measured
LONGEST_S = 3600.0

Span = tuple[float, float]
Dataset = dict[str, Any]


class Upsampling(StrEnum):
    """What attitude and height are between two samples."""

    LINEAR = "linear"
    HELD = "held"


class Signal(NamedTuple):
    """Samples over time: (n,) and (n, k)."""

    t_s: Array
    value: Array


class PilotLog(NamedTuple):
    """One flight. sticks: u of z, ψ (counter-clockwise), θ, φ in ±1; attitude: φ, θ, ψ of Rz(ψ) Rx(φ) Ry(θ)."""

    path: Path
    sticks: Signal
    attitude: Signal
    height: Signal  # m
    spans: list[Span]  # in the air, without gaps
    notes: list[str]

    @property
    def longest(self) -> Span:
        """The longest part in the air."""
        return max(self.spans, key=lambda span: span[1] - span[0])


class Window(NamedTuple):
    """A part of a log at every millisecond: sticks (n, 4), flown z, ψ, θ, φ (n, 4), and their rates at its start (4,)."""

    start_s: float
    sticks: Array
    flown: Array
    rates: Array

    @property
    def duration_s(self) -> float:
        """Its length [s]."""
        return len(self.sticks) * STEP_S


def read_pilot_log(path: Path) -> PilotLog:
    """A log by its content; raises `UserError` with one line when it cannot be used."""
    _check_file(path)
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if b"\0" in head and not head.startswith((ULOG_MAGIC, MCAP_MAGIC)):
        raise UserError(f"{path}: neither a ULog nor a log of this stack nor a CSV file")
    try:
        if head.startswith(ULOG_MAGIC):
            log = _from_ulog(path)
        elif head.startswith(MCAP_MAGIC):
            log = _from_flight_log(path)
        else:
            log = _from_path(path)
    except KeyError as error:
        raise UserError(f"{path}: a topic of the log has no field {error.args[0]}") from None
    except _TimeRunsBack as error:
        raise UserError(f"{path}: {error}") from None
    if not log.spans:
        why = f" ({'; '.join(log.notes)})" if log.notes else ""
        raise UserError(
            f"{path}: no part in the air by hand with sticks, attitude and height at the same time; flights in offboard, "
            f"missions and fixed wings do not count{why}"
        )
    return log


class _TimeRunsBack(Exception):
    """A topic's stamps jump back: which sample belongs to which is not known any more."""


def _check_file(path: Path) -> None:
    """Raises `UserError` for what is no file of a size that a log of a flight has."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise UserError(f"{path}: not a file")
    if found.st_size > FILE_MAX_BYTES:
        raise UserError(f"{path}: {found.st_size / 1e9:.1f} GB; at most {FILE_MAX_BYTES / 1e9:.0f} GB are read")


def window(log: PilotLog, start_s: float, duration_s: float, upsampling: Upsampling = Upsampling.LINEAR) -> Window:
    """A part of the log that lies within one of its spans."""
    t_s: Array = start_s + STEP_S * np.arange(round(duration_s / STEP_S), dtype=float)
    angles, height = (_resampled(signal, t_s, upsampling) for signal in (log.attitude, log.height))
    flown = np.column_stack([height[:, 0], angles[:, 2], angles[:, 1], angles[:, 0]])
    sticks = _resampled(log.sticks, t_s, Upsampling.HELD)
    some = min(round(SLOPE_S / STEP_S), len(flown))
    rates = np.polyfit(t_s[:some] - start_s, flown[:some], 1)[0]
    return Window(start_s, sticks, flown, rates)


def _resampled(signal: Signal, t_s: Array, upsampling: Upsampling) -> Array:
    if upsampling is Upsampling.HELD:
        at = np.clip(np.searchsorted(signal.t_s, t_s, side="right") - 1, 0, None)
        held: Array = signal.value[at]
        return held
    return np.column_stack([np.interp(t_s, signal.t_s, column) for column in signal.value.T])


# --- common to all kinds of logs ----------------------------------------------------------------------------------


def zxy_angles(R: Array) -> Array:
    """φ, θ, ψ of rotations R = Rz(ψ) Rx(φ) Ry(θ), shape (n, 3) from (n, 3, 3); ψ without jumps of 2π."""
    phi = np.arcsin(np.clip(R[:, 2, 1], -1.0, 1.0))
    theta = np.arctan2(-R[:, 2, 0], R[:, 2, 2])
    psi = np.unwrap(np.arctan2(-R[:, 0, 1], R[:, 1, 1]))
    return np.column_stack([phi, theta, psi])


def _clean(t_s: Array, value: Array) -> Signal:
    """Finite samples in order of time, one for each time."""
    value = value if value.ndim == 2 else value[:, None]
    good = np.isfinite(t_s) & np.isfinite(value).all(axis=1)
    t_s, value = t_s[good], value[good]
    if len(t_s) > 1 and (back_s := float(np.diff(t_s).min())) < -BACK_S:
        raise _TimeRunsBack(f"time runs back by {-back_s:.1f} s within the log: two flights in one file?")
    t_s, first = np.unique(t_s, return_index=True)
    return Signal(t_s, value[first])


def _attitude(t_s: Array, quaternions: Iterable[Iterable[float]]) -> Signal:
    rows = np.array([list(q) for q in quaternions], dtype=float).reshape(len(t_s), 4)
    good = np.abs(np.linalg.norm(rows, axis=1) - 1.0) < 0.1
    R = np.array([rotation_matrix(q / np.linalg.norm(q)) for q in rows[good]]).reshape(-1, 3, 3)
    return _clean(t_s[good], zxy_angles(R))


def _log(
    path: Path, sticks: Signal, attitude: Signal, height: Signal, allowed: list[Span] | None, notes: list[str]
) -> PilotLog:
    high = np.abs(height.value[:, 0]) > HEIGHT_MAX_M
    if high.any():
        notes.append(f"{int(high.sum())} heights beyond {HEIGHT_MAX_M / 1e3:g} km left out")
        height = Signal(height.t_s[~high], height.value[~high])
    for signal, name in ((sticks, "stick positions"), (attitude, "attitude"), (height, "height")):
        if len(signal.t_s) < 2:
            raise UserError(f"{path}: no usable {name} in the log{_said(notes)}")
    if (over := int((np.abs(sticks.value) > 1.0).any(axis=1).sum())) > 0:
        notes.append(f"{over} stick samples beyond ±1, limited")
        sticks = Signal(sticks.t_s, np.clip(sticks.value, -1.0, 1.0))
    if sticks.value.std(axis=0).max() < MOVED:
        raise UserError(f"{path}: the sticks do not move in this log; it needs a flight by hand")
    spans = allowed if allowed is not None else [(-math.inf, math.inf)]
    for signal in (sticks, attitude, height):
        spans = _both(spans, _without_gaps(signal.t_s))
    rates = ", ".join(f"{1.0 / np.median(np.diff(s.t_s)):.0f} Hz" for s in (sticks, attitude, height))
    notes.append(f"sticks, attitude and height at {rates}")
    return PilotLog(path, sticks, attitude, height, [s for s in spans if s[1] - s[0] > STEP_S], notes)


def _said(notes: list[str]) -> str:
    return f" ({'; '.join(notes)})" if notes else ""


def _without_gaps(t_s: Array) -> list[Span]:
    ends = np.flatnonzero(np.diff(t_s) > GAP_S)
    starts = np.concatenate([[0], ends + 1])
    return [(float(t_s[a]), float(t_s[b])) for a, b in zip(starts, [*ends, len(t_s) - 1], strict=True)]


def _both(one: list[Span], other: list[Span]) -> list[Span]:
    parts = ((max(a, c), min(b, d)) for a, b in one for c, d in other)
    return sorted((start, end) for start, end in parts if end > start)


def _where(t_s: Array, true: NDArray[np.bool_], end_s: float) -> list[Span]:
    """Runs of true samples; each lasts until the next sample."""
    until = np.append(t_s[1:], max(end_s, float(t_s[-1])))
    edges = np.flatnonzero(np.diff(np.concatenate([[0], true.astype(int), [0]])))
    return [(float(t_s[a]), float(until[b - 1])) for a, b in zip(edges[::2], edges[1::2], strict=True)]


# --- a path of `companion teleop` ---------------------------------------------------------------------------------


def _from_path(path: Path) -> PilotLog:
    names = ("t_s", "climb", "yaw", "ahead", "right", "z_m", "roll_rad", "pitch_rad", "yaw_rad", "on_floor")
    rows = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            if missing := [name for name in names if name not in (reader.fieldnames or ())]:
                raise UserError(
                    f"{path}: neither a ULog nor a log of this stack, and as a CSV file it has no column {missing[0]};"
                    f" `companion teleop --csv` writes: {', '.join(COLUMNS)}"
                )
            for number, row in enumerate(reader, start=2):
                try:
                    rows.append([float(row[name]) for name in names])
                except (TypeError, ValueError):
                    raise UserError(f"{path}: row {number}: a value is missing or not a number") from None
                if not all(map(math.isfinite, rows[-1])):
                    raise UserError(f"{path}: row {number}: a value is not a finite number")
    except (UnicodeDecodeError, csv.Error):
        raise UserError(f"{path}: neither a ULog nor a log of this stack nor a CSV file") from None
    data = np.array(rows).reshape(-1, len(names))
    t_s = data[:, 0]
    if len(t_s) < 2 or (np.diff(t_s) <= 0.0).any():
        raise UserError(f"{path}: t_s does not rise from row to row")
    sticks = _clean(t_s, data[:, 1:5] * [1.0, -1.0, 1.0, 1.0])
    attitude = _attitude(t_s, (quat_from_rpy(*rpy) for rpy in data[:, 6:9]))
    flying = _where(t_s, data[:, 9] == 0.0, float(t_s[-1]))
    return _log(path, sticks, attitude, _clean(t_s, data[:, 5]), flying, [])


# --- a flight log of this stack -----------------------------------------------------------------------------------


def _from_flight_log(path: Path) -> PilotLog:
    log = read_log(path, ("fcu_attitude", "fcu_position", "fcu_status", "link_rx", "link_tx"))
    notes = [CUT] if log.truncated else []
    pieces = [(m.stamp_s, m.data) for m in of(log, LinkTx)] + [(m.stamp_s, m.data) for m in of(log, LinkRx)]
    sticks = _manual_control(pieces)
    if not len(sticks.t_s):
        raise UserError(
            f"{path}: no MANUAL_CONTROL in the log: no person flew, or by a transmitter alone; give the ULog{_said(notes)}"
        )
    attitude = [m for m in of(log, FcuAttitude) if m.valid]
    position = [m for m in of(log, FcuPosition) if m.valid]
    status = [m for m in of(log, FcuStatus) if m.valid]
    angles = _attitude(stamps(attitude), (m.q_WB for m in attitude))
    height = _clean(stamps(position), np.array([m.p_W[2] for m in position]))
    flying = None
    if status:
        in_air = np.array([m.armed and not m.landed and m.mode in HAND_MODES for m in status])
        flying = _where(stamps(status), in_air, status[-1].stamp_s)
    return _log(path, sticks, angles, height, flying, notes)


def _manual_control(pieces: Iterable[tuple[float, bytes]]) -> Signal:
    """Sticks of the MANUAL_CONTROL messages in raw bytes of a link."""
    parser = common.MAVLink(None)
    parser.robust_parsing = True
    t_s, rows = [], []
    for stamp_s, data in sorted(pieces):
        for message in parser.parse_buffer(data) or ():
            if message.get_type() != "MANUAL_CONTROL":
                continue
            sticks = from_manual_control(message.x, message.y, message.z, message.r)
            if sticks is not None:
                t_s.append(stamp_s)
                rows.append([sticks.climb, -sticks.yaw, sticks.ahead, sticks.right])
    return _clean(np.array(t_s), np.array(rows).reshape(-1, 4))


# --- PX4's ULog ---------------------------------------------------------------------------------------------------


def _from_ulog(path: Path) -> PilotLog:
    from pyulog import ULog

    wanted = ["manual_control_setpoint", "vehicle_attitude", "vehicle_local_position", "vehicle_land_detected"]
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # pyulog prints remarks
            ulog = ULog(str(path), [*wanted, "vehicle_status"])
    except Exception as error:  # any: pyulog does not handle every kind of damage
        raise UserError(f"{path}: damaged beyond reading ({type(error).__name__})") from None
    found: dict[str, list[Dataset]] = {}
    for dataset in ulog.data_list:
        if len(dataset.data.get("timestamp", ())) > 1:
            found.setdefault(dataset.name, []).append(dataset.data)
    for name in wanted[:3]:
        if name not in found:
            hint = "; set SDLOG_PROFILE to the default set" if name == wanted[0] else ""
            raise UserError(f"{path}: no {name} in the log{hint}")
    zero_us = float(found["vehicle_attitude"][0]["timestamp"][0])

    def time_s(data: Dataset) -> Array:
        t_s: Array = (data["timestamp"].astype(float) - zero_us) * 1e-6
        return t_s

    notes: list[str] = [CUT] if ulog.file_corruption else []
    sticks, instance = _ulog_sticks(path, found["manual_control_setpoint"], time_s)
    if len(found["manual_control_setpoint"]) > 1:
        notes.append(
            f"{len(found['manual_control_setpoint'])} instances of manual_control_setpoint: that with moving sticks,"
            f" number {instance}, is used"
        )
    data = found["vehicle_attitude"][0]
    attitude = _attitude(
        time_s(data), map(swap_attitude, np.column_stack([data[f"q[{i}]"] for i in range(4)]).tolist())
    )
    turns = _attitude_resets(data, time_s) if "quat_reset_counter" in data else Signal(np.empty(0), np.empty((0, 1)))
    data = found["vehicle_local_position"][0]
    if "quat_reset_counter" not in found["vehicle_attitude"][0]:
        turns = _resets(time_s(data), data, "heading_reset_counter", "delta_heading")
    attitude.value[:, 2] += _since(turns, attitude.t_s)  # PX4's heading is clockwise, ψ is not
    lifts = _resets(time_s(data), data, "z_reset_counter", "delta_z")
    good = np.asarray(data.get("z_valid", np.ones(len(data["z"])))).astype(bool)
    height = _clean(time_s(data)[good], -data["z"][good].astype(float))
    height.value[:, 0] += _since(lifts, height.t_s)  # z is down
    for what, resets, unit in (("heading", turns, "rad"), ("height", lifts, "m")):
        if len(resets.t_s):
            size = ", ".join(f"{abs(v):.2f} {unit}" for v in resets.value[:, 0])
            notes.append(f"PX4 set its {what} again while it flew: undone ({size})")
    end_s = float(attitude.t_s[-1]) if len(attitude.t_s) else 0.0
    flying: list[Span] | None = None
    if "vehicle_land_detected" in found:
        data = found["vehicle_land_detected"][0]
        flying = _where(time_s(data), data["landed"] == 0, end_s)
    if "vehicle_status" in found:
        data = found["vehicle_status"][0]
        right = data["arming_state"] == ARMED
        for field, values, words in (
            ("nav_state", BY_HAND, "in other modes than Manual, Stabilized, Altitude and Position"),
            ("vehicle_type", (MULTIROTOR,), "as another vehicle than a multirotor"),
        ):
            other = right & ~np.isin(data[field], values) if field in data else np.zeros(len(right), dtype=bool)
            if other.any():
                lost_s = sum(end - start for start, end in _where(time_s(data), other, end_s))
                notes.append(f"{lost_s:.1f} s {words} left out")
            right = right & ~other
        armed = _where(time_s(data), right, end_s)
        flying = armed if flying is None else _both(flying, armed)
    if flying is not None:
        flying = [(start + EDGE_S, end - EDGE_S) for start, end in flying if end - start > 2 * EDGE_S]
    return _log(path, sticks, attitude, height, flying, notes)


def _resets(t_s: Array, data: Dataset, counter: str, delta: str) -> Signal:
    """When a reset counter of PX4's estimator rose, and by how much the quantity jumped; empty where they are not logged."""
    if counter not in data or delta not in data:
        return Signal(np.empty(0), np.empty((0, 1)))
    at = np.flatnonzero(np.diff(data[counter].astype(int)) != 0) + 1
    return _clean(t_s[at], data[delta][at].astype(float))


def _attitude_resets(data: Dataset, time_s: Callable[[Dataset], Array]) -> Signal:
    """The same of the attitude: the heading's part of `delta_q_reset`, the rotation from before to after in the NED frame."""
    w, z = (data[f"delta_q_reset[{i}]"].astype(float) for i in (0, 3))
    turned = {"delta": np.remainder(2.0 * np.arctan2(z, w) + math.pi, math.tau) - math.pi}
    return _resets(time_s(data), {**turned, "counter": data["quat_reset_counter"]}, "counter", "delta")


def _since(resets: Signal, t_s: Array) -> Array:
    """The sum of all jumps until each time, (n,)."""
    total = np.concatenate([[0.0], np.cumsum(resets.value[:, 0])])
    summed: Array = total[np.searchsorted(resets.t_s, t_s, side="right")]
    return summed


def _ulog_sticks(path: Path, instances: list[Dataset], time_s: Callable[[Dataset], Array]) -> tuple[Signal, int]:
    """The instance whose sticks move most, and its number. Names before PX4 1.14: x, y, z (0 to 1), r."""
    read = []
    for data in instances:
        if all(name in data for name in ("pitch", "roll", "throttle", "yaw")):
            columns = [data["throttle"], -data["yaw"], data["pitch"], data["roll"]]
        elif all(name in data for name in ("x", "y", "z", "r")):
            columns = [2.0 * data["z"].astype(float) - 1.0, -data["r"], data["x"], data["y"]]
        else:
            raise UserError(f"{path}: manual_control_setpoint has neither x, y, z, r nor roll, pitch, yaw, throttle")
        valid = np.asarray(data["valid"] if "valid" in data else np.ones(len(columns[0]))).astype(bool)
        read.append(_clean(time_s(data)[valid], np.column_stack(columns).astype(float)[valid]))
    moved = [float(signal.value.std(axis=0).sum()) if len(signal.t_s) else 0.0 for signal in read]
    chosen = int(np.argmax(moved))
    return read[chosen], chosen
