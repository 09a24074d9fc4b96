"""The figures of a flight, from a log or from lists of messages.

A position error is the length of a three-dimensional vector; its RMS is √(mean |e|²). Everything with "position",
"estimate" or "yaw" is measured over the mission's HOLD and TRAJECTORY phases. With a simulator's truth in the log,
position errors are true position minus reference, and estimate errors are estimated minus true; without it only the
figures that begin with "estimated" (estimate minus reference) are there, and the others are None.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import gammaincinv

from companion.core.arrays import Array
from companion.core.enums import ControlSource, ProcessName
from companion.core.messages import (
    TOPICS,
    WORLD,
    ControlStatus,
    EstimatorStatus,
    FcuPosition,
    FcuStatus,
    Health,
    Markers,
    Message,
    MissionStatus,
    Reference,
    SafetyEvent,
    SentSetpoint,
    State,
    Truth,
)
from companion.recording import series as sr
from companion.recording.log import read_log

NIS_CONFIDENCE = 0.95  # two-sided, of the mean NIS of a consistent filter
STATUS_PERIOD_S = 1.0 / TOPICS["fcu_status"].rate_hz
Figures = dict[str, Any]  # JSON-ready


def flight_metrics(path: str | Path, bundle: str | None = None) -> Figures:
    """`metrics_from_messages` of a log; raises `LogError` if it is not one."""
    return metrics_from_messages(read_log(path), bundle)


def metrics_from_messages(messages: sr.Messages, bundle: str | None = None) -> Figures:
    """All figures as JSON-ready data: floats in the unit their name ends with, None for what the log does not hold.

    messages: by topic, each list in order of time; topics may be missing. bundle: whose frame to measure in; None:
    the bundle of the hold's reference, else the one the estimator described most, else the world.
    """
    log = messages
    holds = sr.hold_intervals(sr.of(log, MissionStatus))
    frame = measuring_frame(log, holds) if bundle is None else bundle
    result: Figures = {"frame": frame, "hold_s": sum(end - start for start, end in holds)}
    result |= _position(log, holds, frame)
    result |= _estimate(log, holds, frame)
    result |= _control(log, holds)
    result |= _filter(log, holds)
    result |= _mission(log)
    return {name: _finite(value) for name, value in result.items()}


def measuring_frame(log: sr.Messages, holds: list[sr.Interval]) -> str:
    """The frame the hold is flown in: that of its references, else of the bundle seen most, else WORLD."""

    def most(names: list[str]) -> str:
        return max(sorted(set(names)), key=names.count) if names else ""

    frames = [r.frame for r in sr.of(log, Reference) if any(a <= r.stamp_s <= b for a, b in holds)]
    return most(frames) or most([s.bundle for s in sr.of(log, State) if s.bundle]) or WORLD


def _rows(error: Array) -> Array:
    """Scalars as rows of one."""
    error = np.asarray(error, dtype=float)
    return error[:, None] if error.ndim == 1 else error


def rms(error: Array) -> float:
    """√(mean |e|²) of scalars or row vectors without NaN rows; NaN if there are none."""
    error = _rows(error)
    error = error[np.all(np.isfinite(error), axis=1)]
    return math.sqrt(float(np.mean(np.sum(error**2, axis=1)))) if len(error) else math.nan


def rms_per_axis(error: Array) -> list[float]:
    """RMS of each column."""
    return [rms(error[:, i]) for i in range(error.shape[1])]


def largest(error: Array) -> float:
    """The longest row vector; NaN if there is none."""
    lengths = np.linalg.norm(_rows(error), axis=1)
    lengths = lengths[np.isfinite(lengths)]
    return float(lengths.max()) if len(lengths) else math.nan


def tracking_error(track: sr.Track, log: sr.Messages, holds: list[sr.Interval], frame: str) -> tuple[Array, ...]:
    """(times, position errors, yaw errors) of a track against the reference, over the holds."""
    at = sr.within(track.t, holds)
    points, yaws = sr.reference_at(sr.of(log, Reference), track.t[at], frame)
    return track.t[at], track.p[at] - points, sr.wrap(track.yaw[at] - yaws)


def _position(log: sr.Messages, holds: list[sr.Interval], frame: str) -> Figures:
    truth = sr.truth_track(sr.of(log, Truth), frame)
    estimate = sr.estimate_track(sr.of(log, State), frame)
    _, true_error, yaw_error = tracking_error(truth, log, holds, frame)
    _, own_error, own_yaw_error = tracking_error(estimate, log, holds, frame)
    mean = np.nanmean(true_error, axis=0) if np.any(np.isfinite(true_error)) else np.full(3, np.nan)
    return {
        "position_rms_m": rms(true_error),
        "position_rms_axis_m": rms_per_axis(true_error),
        "position_mean_xyz_m": mean.tolist(),
        "position_max_m": largest(true_error),
        "position_rms_world_xyz_m": rms_per_axis(_turned_to_world(log, holds, frame, true_error)),
        "yaw_rms_deg": math.degrees(rms(yaw_error)),
        "estimated_position_rms_m": rms(own_error),
        "estimated_position_rms_axis_m": rms_per_axis(own_error),
        "estimated_position_max_m": largest(own_error),
        "estimated_yaw_rms_deg": math.degrees(rms(own_yaw_error)),
    }


def _turned_to_world(log: sr.Messages, holds: list[sr.Interval], frame: str, error: Array) -> Array:
    """Errors in a bundle's frame, turned by its true attitude into the axes of the world."""
    if frame == WORLD or not len(error):
        return error
    used = [m for m in sr.of(log, Truth) if frame in m.bundles]
    at = sr.within(sr.stamps(used), holds)
    q_WM = np.array([m.bundles[frame][1] for m, inside in zip(used, at, strict=True) if inside], dtype=float)
    return sr.rotate(q_WM, error)


def estimate_errors(log: sr.Messages, frame: str) -> tuple[Array, Array]:
    """(times, estimated minus true position) in a frame, truth interpolated to the estimates' stamps."""
    estimate, truth = sr.estimate_track(sr.of(log, State), frame), sr.truth_track(sr.of(log, Truth), frame)
    if not len(truth.t) or not len(estimate.t):
        return np.zeros(0), np.zeros((0, 3))
    return estimate.t, estimate.p - sr.interpolate(estimate.t, truth.t, truth.p)


def state_errors(log: sr.Messages, kind: type[Message], field: str, true_field: str) -> tuple[Array, Array]:
    """(times, a vector field of the valid messages of a type minus a field of the truth at the same time)."""
    used = [m for m in sr.of(log, kind) if m.valid]
    if not used or not sr.of(log, Truth):
        return np.zeros(0), np.zeros((0, 3))
    t = sr.stamps(used)
    true = sr.interpolate(t, sr.stamps(sr.of(log, Truth)), sr.column(sr.of(log, Truth), true_field))
    return t, sr.column(used, field) - true


def _estimate(log: sr.Messages, holds: list[sr.Interval], frame: str) -> Figures:
    def over_hold(t: Array, error: Array) -> Array:
        return error[sr.within(t, holds)]

    relative = over_hold(*estimate_errors(log, frame))
    return {
        "estimate_rms_m": rms(relative),
        "estimate_rms_axis_m": rms_per_axis(relative),
        "estimate_max_m": largest(relative),
        "estimate_abs_rms_m": rms(over_hold(*estimate_errors(log, WORLD))),
        "gnss_rms_m": rms(over_hold(*state_errors(log, FcuPosition, "p_W", "p_W"))),
        "velocity_rms_m_s": rms(over_hold(*state_errors(log, State, "v_W", "v_W"))),
        "disturbance_rms_m_s2": rms(over_hold(*state_errors(log, State, "disturbance_W", "disturbance_W"))),
    }


def _control(log: sr.Messages, holds: list[sr.Interval]) -> Figures:
    control, sent = sr.of(log, ControlStatus), np.sort(sr.stamps(sr.of(log, SentSetpoint)))
    solve = np.array([m.solve_time_s for m in control if m.solver_status >= 0])
    cycle = np.array([m.cycle_time_s for m in control if m.active != ControlSource.IDLE])
    offboard = sr.offboard_intervals(sr.of(log, FcuStatus))
    spans = offboard or [(-math.inf, math.inf)]
    listened = [sent[sr.within(sent, [span])] for span in spans]
    gaps = np.concatenate([np.diff(t) for t in listened])
    # When a process of the stream has died, the flight controller leaves offboard: that gap has no setpoint at its end.
    # Offboard may have ended one period before the status that says so.
    ends = [end - STATUS_PERIOD_S - t[-1] for t, (_, end) in zip(listened, offboard, strict=False) if len(t)]
    return {
        "setpoint_rate_hz": 1.0 / float(gaps.mean()) if len(gaps) and gaps.mean() > 0 else math.nan,
        "setpoint_gap_s": max([float(gaps.max()), *ends]) if len(gaps) else math.nan,
        "offboard_s": sum(end - start for start, end in offboard),
        "solve_ms": _percentiles_ms(solve),
        "cycle_ms": _percentiles_ms(cycle),
        **sr.totals(control, "fallback_cycles", "deadline_misses", "solver_failures"),
        "control_cycles": sum(m.active != ControlSource.IDLE for m in control),
    }


def _percentiles_ms(times_s: Array) -> dict[str, float] | None:
    if not np.any(times_s > 0):
        return None  # nothing recorded, or simulated computing that takes no time
    p50, p99 = np.percentile(times_s, [50, 99])
    return {"p50": 1e3 * float(p50), "p99": 1e3 * float(p99), "max": 1e3 * float(times_s.max())}


def nis_by_sensor(
    statuses: Sequence[EstimatorStatus], spans: Sequence[sr.Interval] | None = None
) -> dict[str, Figures]:
    """Consistency of the filter: mean normalised innovation squared of the accepted updates of each sensor.

    For a consistent filter n·mean is χ²-distributed with the sum of all degrees of freedom, which gives the bounds
    "low" and "high" (95 %). Successive innovations of a filter that adapts its noise are not quite independent, so
    the bounds are somewhat too narrow. (Y. Bar-Shalom et al., "Estimation with Applications to Tracking and
    Navigation", 2001, section 5.4.)
    """
    found: dict[str, Figures] = {}
    for status in statuses:
        for update in status.innovations:
            if spans and not any(start <= update.stamp_s <= end for start, end in spans):
                continue
            row = found.setdefault(update.sensor, {"nis": [], "dof": 0, "rejected": 0, "late": []})
            row["late"].append(update.late_s)
            if update.accepted:
                row["nis"].append(update.nis)
                row["dof"] += update.dof
            else:
                row["rejected"] += 1
    result = {}
    for sensor, row in sorted(found.items()):
        n, dof = len(row["nis"]), row["dof"]
        low, high = (2 * gammaincinv(dof / 2, p) / n for p in _TAILS) if n and dof else (math.nan, math.nan)
        result[sensor] = {
            "mean": float(np.mean(row["nis"])) if n else math.nan,
            "dof": dof / n if n else math.nan,
            "low": float(low),
            "high": float(high),
            "accepted": n,
            "rejected": row["rejected"],
            "late_max_s": max(row["late"]),
        }
    return result


NEES_BLOCKS = ("position", "velocity", "attitude", "disturbance", "bias")  # of EstimatorStatus.covariance_blocks


def nees_by_block(log: sr.Messages, spans: list[sr.Interval]) -> dict[str, float]:
    """Mean normalised estimation error squared eᵀ P⁻¹ e of each block of the state, where truth is known.

    A consistent filter has 3. Errors within a flight are correlated over all of it (a GNSS bias, a heading offset), so
    bounds hold for the mean over flights: χ²(3 n)/n of n seeds, 2.0 to 4.2 for twenty of them. The attitude's error is
    the rotation vector in B; the bias' truth is the flight controller's position error. Source: as `nis_by_sensor`.
    """
    states = {m.stamp_s: m for m in sr.of(log, State)}
    used = [m for m in sr.of(log, EstimatorStatus) if m.covariance_blocks and m.stamp_s in states]
    used = [m for m in used if any(a <= m.stamp_s <= b for a, b in spans)]
    if not used or not sr.of(log, Truth) or not sr.of(log, FcuPosition):
        return {}
    t, estimates = sr.stamps(used), [states[m.stamp_s] for m in used]
    true_t, fcu_t = sr.stamps(sr.of(log, Truth)), sr.stamps(sr.of(log, FcuPosition))

    def true(field: str) -> Array:
        return sr.interpolate(t, true_t, sr.column(sr.of(log, Truth), field))

    q_true = sr.interpolate_quaternion(t, true_t, sr.column(sr.of(log, Truth), "q_WB", 4))
    turned = sr.relative_rotation(sr.column(estimates, "q_WB", 4), q_true)
    fcu_error = sr.interpolate(t, fcu_t, sr.column(sr.of(log, FcuPosition), "p_W")) - true("p_W")
    errors = (
        true("p_W") - sr.column(estimates, "p_W"),
        true("v_W") - sr.column(estimates, "v_W"),
        turned,
        true("disturbance_W") - sr.column(estimates, "disturbance_W"),
        fcu_error - sr.column(estimates, "gnss_bias_W"),
    )
    triangles = np.array([m.covariance_blocks for m in used]).reshape(len(used), len(NEES_BLOCKS), 6)
    covariances = triangles[:, :, [0, 1, 2, 1, 3, 4, 2, 4, 5]].reshape(len(used), len(NEES_BLOCKS), 3, 3)
    result = {}
    for i, (name, e) in enumerate(zip(NEES_BLOCKS, errors, strict=True)):
        values = np.einsum("ni,ni->n", e, np.linalg.solve(covariances[:, i], e[:, :, None])[:, :, 0])
        values = values[np.isfinite(values)]
        result[name] = float(values.mean()) if len(values) else math.nan
    return result


_TAILS = ((1 - NIS_CONFIDENCE) / 2, (1 + NIS_CONFIDENCE) / 2)


def _filter(log: sr.Messages, holds: list[sr.Interval]) -> Figures:
    statuses, states = sr.of(log, EstimatorStatus), sr.of(log, State)
    update = np.array([m.update_time_s for m in statuses])
    observed = [m for m in sr.of(log, Markers) if not holds or any(a <= m.stamp_s <= b for a, b in holds)]
    seen = sum(bool(m.observations) for m in observed)
    counted = sr.totals(statuses, "rejected", "dropped_late")
    return {
        "nis": nis_by_sensor(statuses, holds),
        "nees": nees_by_block(log, holds),
        "rejected": counted["rejected"] or {},
        "dropped_late": counted["dropped_late"],
        "update_ms": _percentiles_ms(update),
        "filter_resets": _resets(states) if states else None,
        "marker_seen_fraction": seen / len(observed) if observed else math.nan,
        "detect_ms": _percentiles_ms(np.array([m.detect_time_s for m in sr.of(log, Markers)])),
    }


def _resets(states: Sequence[State]) -> int:
    """How often the filter started again: changes of its count, which itself begins at any number."""
    counts = [state.reset_count for state in states]
    return sum(a != b for a, b in zip(counts, counts[1:], strict=False))


def _mission(log: sr.Messages) -> Figures:
    statuses = sr.of(log, MissionStatus)
    last = statuses[-1] if statuses else None
    return {
        "success": last.success if last else None,
        "final_phase": last.phase if last else None,
        "final_reason": last.reason if last else None,
        "cause": last.cause if last else None,
        # By `seq` alone: one that is taken again is not counted meanwhile.
        "photographs": sum(run[-1].photographs for run in sr.runs(statuses)) if last else None,
        "phases": [
            {"start_s": start, "end_s": end, "phase": phase, "reason": reason}
            for start, end, phase, reason in sr.phases(statuses)
        ],
        "events": [
            {
                "t_s": e.stamp_s,
                "monitor": e.monitor,
                "active": e.active,
                "value": e.value,
                "limit": e.limit,
                "action": e.action,
                "text": e.text,
            }
            for e in sr.of(log, SafetyEvent)
        ],
        "processes": process_health(log),
    }


def process_health(log: sr.Messages) -> list[Figures]:
    """One row per process from its health messages: rate, CPU share, memory, errors; over all starts of the process."""
    by_process: dict[ProcessName, list[Health]] = {}
    for message in sr.of(log, Health):
        by_process.setdefault(message.process, []).append(message)
    rows: list[Figures] = []
    for process, seen in sorted(by_process.items()):
        first, last = seen[0], seen[-1]
        span = last.stamp_s - first.stamp_s
        counters = ("late_steps", "errors", "cpu_s")
        counted = sr.totals(seen, *counters)
        last_errors = [run[-1].last_error for run in sr.runs(seen, *counters)]
        rows.append(
            {
                "process": process,
                "steps_per_s": float(np.median([m.steps_per_s for m in seen])),
                "nominal_steps_per_s": last.nominal_steps_per_s,
                "late_steps": counted["late_steps"],
                "step_time_max_s": max(m.step_time_max_s for m in seen),
                "cpu_percent": 100 * (counted["cpu_s"] - first.cpu_s) / span if span > 0 else math.nan,
                "memory_mb": max(m.memory_mb for m in seen),
                "errors": counted["errors"],
                "last_error": next(filter(None, reversed(last_errors)), ""),
            }
        )
    return rows


def _finite(value: Any) -> Any:
    """The same data with None for what is not finite, at any depth."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return value
