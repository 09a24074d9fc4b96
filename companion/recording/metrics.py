"""The figures of a flight, from a log or from lists of messages.

A position error is the length of a three-dimensional vector; its RMS is √(mean |e|²). Everything with "position",
"estimate" or "yaw" is measured over the mission's HOLD and TRAJECTORY phases. With a simulator's truth in the log,
position errors are true position minus reference, and estimate errors are estimated minus true; without it only the
figures that begin with "estimated" (estimate minus reference) are there, and the others are None.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from scipy.special import gammaincinv

from companion.core.messages import WORLD, EstimatorStatus, Message
from companion.recording import series as sr
from companion.recording.log import read_log

NIS_CONFIDENCE = 0.95  # two-sided, of the mean NIS of a consistent filter
Messages = Mapping[str, list[Message]]


def flight_metrics(path: str | Path, bundle: str | None = None) -> dict:
    """`metrics_from_messages` of a log; raises `LogError` if it is not one."""
    return metrics_from_messages(read_log(path), bundle)


def metrics_from_messages(messages: Messages, bundle: str | None = None) -> dict:
    """All figures as JSON-ready data: floats in the unit their name ends with, None for what the log does not tell.

    messages: by topic, each list in order of time; topics may be missing. bundle: whose frame to measure in; None:
    the bundle of the hold's reference, else the one the estimator described most, else the world.
    """
    log = {topic: messages.get(topic) or [] for topic in (*messages, *_USED)}
    holds = sr.hold_intervals(log["mission_status"])
    frame = measuring_frame(log, holds) if bundle is None else bundle
    result = {"frame": frame, "hold_s": sum(end - start for start, end in holds)}
    result |= _position(log, holds, frame)
    result |= _estimate(log, holds, frame)
    result |= _control(log, holds)
    result |= _filter(log, holds)
    result |= _mission(log)
    return _finite(result)


_USED = (
    "mission_status",
    "state",
    "truth",
    "reference",
    "fcu_position",
    "fcu_status",
    "control",
    "sent_setpoint",
    "estimator",
    "safety",
    "health",
    "markers",
)


def measuring_frame(log: Messages, holds: list[sr.Interval]) -> str:
    """The frame the hold is flown in: that of its references, else of the bundle seen most, else WORLD."""

    def most(names: list[str]) -> str:
        return max(sorted(set(names)), key=names.count) if names else ""

    asked = [r.frame for r in log["reference"] if any(a <= r.stamp_s <= b for a, b in holds)]
    return most(asked) or most([s.bundle for s in log["state"] if s.bundle]) or WORLD


def _rows(error: np.ndarray) -> np.ndarray:
    """Scalars as rows of one."""
    error = np.asarray(error, dtype=float)
    return error[:, None] if error.ndim == 1 else error


def rms(error: np.ndarray) -> float:
    """√(mean |e|²) of scalars or row vectors without NaN rows; NaN if there are none."""
    error = _rows(error)
    error = error[np.all(np.isfinite(error), axis=1)]
    return math.sqrt(float(np.mean(np.sum(error**2, axis=1)))) if len(error) else math.nan


def rms_per_axis(error: np.ndarray) -> list[float]:
    """RMS of each column."""
    return [rms(error[:, i]) for i in range(error.shape[1])]


def largest(error: np.ndarray) -> float:
    """The longest row vector; NaN if there is none."""
    lengths = np.linalg.norm(_rows(error), axis=1)
    lengths = lengths[np.isfinite(lengths)]
    return float(lengths.max()) if len(lengths) else math.nan


def tracking_error(track: sr.Track, log: Messages, holds: list[sr.Interval], frame: str) -> tuple[np.ndarray, ...]:
    """(times, position errors, yaw errors) of a track against the reference, over the holds."""
    at = sr.within(track.t, holds)
    points, yaws = sr.reference_at(log["reference"], track.t[at], frame)
    return track.t[at], track.p[at] - points, sr.wrap(track.yaw[at] - yaws)


def _position(log: Messages, holds: list[sr.Interval], frame: str) -> dict:
    truth = sr.truth_track(log["truth"], frame)
    estimate = sr.estimate_track(log["state"], frame)
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


def _turned_to_world(log: Messages, holds: list[sr.Interval], frame: str, error: np.ndarray) -> np.ndarray:
    """Errors in a bundle's frame, turned by its true attitude into the axes of the world."""
    if frame == WORLD or not len(error):
        return error
    used = [m for m in log["truth"] if frame in m.bundles]
    at = sr.within(sr.stamps(used), holds)
    q_WM = np.array([m.bundles[frame][1] for m, inside in zip(used, at, strict=True) if inside], dtype=float)
    return sr.rotate(q_WM, error)


def estimate_errors(log: Messages, frame: str) -> tuple[np.ndarray, np.ndarray]:
    """(times, estimated minus true position) in a frame, truth interpolated to the estimates' stamps."""
    estimate, truth = sr.estimate_track(log["state"], frame), sr.truth_track(log["truth"], frame)
    if not len(truth.t) or not len(estimate.t):
        return np.zeros(0), np.zeros((0, 3))
    return estimate.t, estimate.p - sr.interpolate(estimate.t, truth.t, truth.p)


def state_errors(log: Messages, topic: str, field: str, true_field: str) -> tuple[np.ndarray, np.ndarray]:
    """(times, a vector field of a topic's valid messages minus a field of the truth at the same time)."""
    used = [m for m in log[topic] if m.valid]
    if not used or not log["truth"]:
        return np.zeros(0), np.zeros((0, 3))
    t = sr.stamps(used)
    true = sr.interpolate(t, sr.stamps(log["truth"]), sr.column(log["truth"], true_field))
    return t, sr.column(used, field) - true


def _estimate(log: Messages, holds: list[sr.Interval], frame: str) -> dict:
    def over_hold(t: np.ndarray, error: np.ndarray) -> np.ndarray:
        return error[sr.within(t, holds)]

    relative = over_hold(*estimate_errors(log, frame))
    return {
        "estimate_rms_m": rms(relative),
        "estimate_rms_axis_m": rms_per_axis(relative),
        "estimate_max_m": largest(relative),
        "estimate_abs_rms_m": rms(over_hold(*estimate_errors(log, WORLD))),
        "gnss_rms_m": rms(over_hold(*state_errors(log, "fcu_position", "p_W", "p_W"))),
        "velocity_rms_m_s": rms(over_hold(*state_errors(log, "state", "v_W", "v_W"))),
        "disturbance_rms_m_s2": rms(over_hold(*state_errors(log, "state", "disturbance_W", "disturbance_W"))),
    }


def _control(log: Messages, holds: list[sr.Interval]) -> dict:
    control, sent = log["control"], np.sort(sr.stamps(log["sent_setpoint"]))
    solve = np.array([m.solve_time_s for m in control if m.solver_status >= 0])
    cycle = np.array([m.cycle_time_s for m in control if m.active != "idle"])
    offboard = sr.offboard_intervals(log["fcu_status"])
    gaps = [np.diff(sent[sr.within(sent, [span])]) for span in offboard] if offboard else [np.diff(sent)]
    gaps = np.concatenate(gaps) if gaps else np.zeros(0)
    last = control[-1] if control else None
    return {
        "setpoint_rate_hz": 1.0 / float(gaps.mean()) if len(gaps) and gaps.mean() > 0 else math.nan,
        "setpoint_gap_s": float(gaps.max()) if len(gaps) else math.nan,
        "offboard_s": sum(end - start for start, end in offboard),
        "solve_ms": _percentiles_ms(solve),
        "cycle_ms": _percentiles_ms(cycle),
        "fallback_cycles": last.fallback_cycles if last else None,
        "deadline_misses": last.deadline_misses if last else None,
        "solver_failures": last.solver_failures if last else None,
        "control_cycles": sum(m.active != "idle" for m in control),
    }


def _percentiles_ms(times_s: np.ndarray) -> dict | None:
    if not np.any(times_s > 0):
        return None  # nothing recorded, or simulated computing that takes no time
    p50, p99 = np.percentile(times_s, [50, 99])
    return {"p50": 1e3 * float(p50), "p99": 1e3 * float(p99), "max": 1e3 * float(times_s.max())}


def nis_by_sensor(statuses: list[EstimatorStatus], spans: list[sr.Interval] | None = None) -> dict[str, dict]:
    """Consistency of the filter: mean normalised innovation squared of the accepted updates of each sensor.

    For a consistent filter n·mean is χ²-distributed with the sum of all degrees of freedom, which gives the bounds
    "low" and "high" (95 %). Successive innovations of a filter that adapts its noise are not quite independent, so
    the bounds are somewhat too narrow. (Y. Bar-Shalom et al., "Estimation with Applications to Tracking and
    Navigation", 2001, section 5.4.)
    """
    found: dict[str, dict] = {}
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


def nees_by_block(log: Messages, spans: list[sr.Interval]) -> dict[str, float]:
    """Mean normalised estimation error squared eᵀ P⁻¹ e of each block of the state, where truth is known.

    A consistent filter has 3. Errors within a flight are correlated over all of it (a GNSS bias, a heading offset), so
    bounds hold for the mean over flights: χ²(3 n)/n of n seeds, 2.0 to 4.2 for twenty of them. The attitude's error is
    the rotation vector in B; the bias' truth is the flight controller's position error. Source: as `nis_by_sensor`.
    """
    states = {m.stamp_s: m for m in log["state"]}
    used = [m for m in log["estimator"] if m.covariance_blocks and m.stamp_s in states]
    used = [m for m in used if any(a <= m.stamp_s <= b for a, b in spans)]
    if not used or not log["truth"] or not log["fcu_position"]:
        return {}
    t, estimates = sr.stamps(used), [states[m.stamp_s] for m in used]
    true_t, fcu_t = sr.stamps(log["truth"]), sr.stamps(log["fcu_position"])

    def true(field: str) -> np.ndarray:
        return sr.interpolate(t, true_t, sr.column(log["truth"], field))

    q_true = sr.interpolate_quaternion(t, true_t, sr.column(log["truth"], "q_WB", 4))
    turned = sr.relative_rotation(sr.column(estimates, "q_WB", 4), q_true)
    fcu_error = sr.interpolate(t, fcu_t, sr.column(log["fcu_position"], "p_W")) - true("p_W")
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


def _filter(log: Messages, holds: list[sr.Interval]) -> dict:
    statuses, states = log["estimator"], log["state"]
    update = np.array([m.update_time_s for m in statuses])
    observed = [m for m in log["markers"] if not holds or any(a <= m.stamp_s <= b for a, b in holds)]
    seen = sum(bool(m.observations) for m in observed)
    return {
        "nis": nis_by_sensor(statuses, holds),
        "nees": nees_by_block(log, holds),
        "rejected": dict(statuses[-1].rejected) if statuses else {},
        "dropped_late": statuses[-1].dropped_late if statuses else None,
        "update_ms": _percentiles_ms(update),
        "filter_resets": states[-1].reset_count if states else None,
        "marker_seen_fraction": seen / len(observed) if observed else math.nan,
        "detect_ms": _percentiles_ms(np.array([m.detect_time_s for m in log["markers"]])),
    }


def _mission(log: Messages) -> dict:
    pilot = log["mission_status"]
    last = pilot[-1] if pilot else None
    return {
        "success": last.success if last else None,
        "final_phase": last.phase if last else None,
        "final_reason": last.reason if last else None,
        "photographs": last.photographs if last else None,
        "phases": [
            {"start_s": start, "end_s": end, "phase": phase, "reason": reason}
            for start, end, phase, reason in sr.phases(pilot)
        ],
        "events": [
            {
                "t_s": e.stamp_s,
                "row": e.monitor,
                "active": e.active,
                "value": e.value,
                "limit": e.limit,
                "action": e.action,
                "text": e.text,
            }
            for e in log["safety"]
        ],
        "processes": process_health(log),
    }


def process_health(log: Messages) -> list[dict]:
    """One row per process from its health messages: rate, CPU share, memory, what went wrong."""
    by_process: dict[str, list] = {}
    for message in log["health"]:
        by_process.setdefault(message.process, []).append(message)
    rows = []
    for process, seen in sorted(by_process.items()):
        first, last = seen[0], seen[-1]
        span = last.stamp_s - first.stamp_s
        rows.append(
            {
                "process": process,
                "steps_per_s": float(np.median([m.steps_per_s for m in seen])),
                "nominal_steps_per_s": last.nominal_steps_per_s,
                "late_steps": last.late_steps,
                "step_time_max_s": max(m.step_time_max_s for m in seen),
                "cpu_percent": 100 * (last.cpu_s - first.cpu_s) / span if span > 0 else math.nan,
                "memory_mb": max(m.memory_mb for m in seen),
                "errors": last.errors,
                "last_error": last.last_error,
            }
        )
    return rows


def _finite(value):
    """The same data with None for what is not finite, at any depth."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return value
