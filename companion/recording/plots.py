"""The figures of a report, drawn from a log. Each function returns a matplotlib figure, or None when the log holds
nothing to draw. Times on all axes are seconds since the start of the flight.
"""

import math
from dataclasses import dataclass
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from scipy.special import gammaincinv

from companion.core.arrays import Array
from companion.core.enums import Phase, Sensor
from companion.core.messages import (
    WORLD,
    ControlStatus,
    EstimatorStatus,
    FcuAttitude,
    FcuStatus,
    Innovation,
    Markers,
    Message,
    MissionStatus,
    Reference,
    SentSetpoint,
    State,
    Truth,
)
from companion.core.trajectory_messages import Hold
from companion.recording import series as sr
from companion.recording.metrics import (
    estimate_errors,
    measuring_frame,
    state_errors,
    tracking_error,
)

LINE_POINTS = 1200  # per line: what a screen can show; extremes are kept
HOLD_MARGIN_S = 5.0  # shown before and after the hold
NIS_POINTS = 4000  # per sensor
WIDTH_IN, LEFT_IN, TOP_IN, BOTTOM_IN = 9.6, 0.75, 0.5, 0.5

INK, QUIET, GRID = "#1f2933", "#7b8794", "#e4e7eb"
TRUTH, ESTIMATE, REFERENCE, THIRD = "#1f2933", "#2f7fc1", "#d9822b", "#2a9d6f"
AXES = ("#2f7fc1", "#d9822b", "#2a9d6f")
BANDS = {
    Phase.HOLD: "#dcefe3",
    Phase.APPROACH: "#e8eef7",
    Phase.SEARCH: "#eef1f5",
    Phase.PAUSE: "#fbf1d9",
    Phase.RETREAT: "#fbe9d9",
    Phase.PX4_HOLD: "#f8dcdc",
    Phase.PILOT: "#f8dcdc",
    Phase.FAILED: "#f3c6c6",
}
STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.labelcolor": INK,
    "axes.edgecolor": "#cbd2d9",
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "lines.linewidth": 1.2,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "text.parse_math": False,  # names of bundles are free text: two dollar signs are no formula
    "svg.fonttype": "none",
    "svg.hashsalt": "companion",
}


@dataclass
class ShownFlight:
    """A log and what all figures need of it."""

    log: sr.Messages
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        self.holds = sr.hold_intervals(sr.of(self.log, MissionStatus))
        self.frame = measuring_frame(self.log, self.holds)
        self.phases = sr.phases(sr.of(self.log, MissionStatus))
        first = [messages[0].stamp_s for topic, messages in self.log.items() if messages and topic != "link_rx"]
        last = [messages[-1].stamp_s for topic, messages in self.log.items() if messages and topic != "link_rx"]
        self.start_s = self.phases[0][0] if self.phases else min(first, default=0.0)
        self.end_s = max(last, default=0.0)

    @property
    def where(self) -> str:
        return "in the world" if self.frame == WORLD else f"in the frame of “{self.frame}”"

    def hold_window(self) -> tuple[float, float]:
        """(start, end) to show of the hold, or of the whole flight without one; since the start of the flight."""
        if not self.holds:
            return 0.0, self.end_s - self.start_s
        low = self.holds[0][0] - self.start_s - HOLD_MARGIN_S
        return max(low, 0.0), self.holds[-1][1] - self.start_s + HOLD_MARGIN_S


def envelope(t: Array, y: Array, points: int = LINE_POINTS) -> tuple[Array, Array]:
    """A line with fewer points and the same look: of each bin its smallest and its largest value, in order."""
    if len(t) <= points:
        return t, y
    size = math.ceil(len(t) / (points // 2))
    padded = np.concatenate([y, np.full(-len(y) % size, y[-1])]).reshape(-1, size)
    empty = np.isnan(padded)
    first = np.arange(len(padded)) * size
    lowest = first + np.argmin(np.where(empty, np.inf, padded), axis=1)
    highest = first + np.argmax(np.where(empty, -np.inf, padded), axis=1)
    kept = np.unique(np.minimum(np.concatenate([lowest, highest]), len(t) - 1))
    return t[kept], y[kept]


def _figure(rows: int, row_in: float = 1.35) -> tuple[Figure, list[Axes]]:
    height = TOP_IN + BOTTOM_IN + row_in * rows
    figure = Figure(figsize=(WIDTH_IN, height))
    axes = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    # fixed margins: the same for all figures, and several times faster than a layout engine
    figure.subplots_adjust(
        left=LEFT_IN / WIDTH_IN,
        right=1 - 0.1 / WIDTH_IN,
        bottom=BOTTOM_IN / height,
        top=1 - TOP_IN / height,
        hspace=0.16,
    )
    return figure, list(axes)


def _log_scale(axis: Axes) -> None:
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())


def _finish(flight: ShownFlight, axes: list[Axes], window: tuple[float, float] | None = None) -> None:
    """Phase bands, names of the wide ones, limits, label and legend."""
    low, high = window or (0.0, flight.end_s - flight.start_s)
    axes[-1].set_xlim(low, max(high, low + 1e-3))
    axes[-1].set_xlabel("time [s]")
    for axis in axes:
        axis.yaxis.set_label_coords(-0.055, 0.5)
        axis.margins(y=0.12)
    for start, end, phase, _ in flight.phases:
        a, b = start - flight.start_s, end - flight.start_s
        for axis in axes:
            axis.axvspan(a, b, color=BANDS.get(phase, "#f7f8fa"), lw=0, zorder=0)
        shown = min(b, high) - max(a, low)
        if shown > 0.07 * (high - low):
            text = phase.replace("_", " ").lower()
            axes[0].text((max(a, low) + min(b, high)) / 2, 1.02, text, transform=axes[0].get_xaxis_transform(),
                         ha="center", va="bottom", fontsize=7.5, color=QUIET)  # fmt: skip
    handles, labels = axes[0].get_legend_handles_labels()
    if handles:
        axes[0].figure.legend(handles, labels, loc="upper right", ncols=len(labels), borderaxespad=0.1)


def _line(flight: ShownFlight, axis: Axes, t: Array, y: Array, **options: Any) -> None:
    if len(t):
        axis.plot(*envelope(t - flight.start_s, y), **options)


def position(flight: ShownFlight) -> Figure | None:
    """Reference, estimate and truth per axis in the frame of the hold."""
    estimate = sr.estimate_track(sr.of(flight.log, State), flight.frame)
    truth = sr.truth_track(sr.of(flight.log, Truth), flight.frame)
    if not len(estimate.t) and not len(truth.t):
        return None
    low, high = (edge + flight.start_s for edge in flight.hold_window())
    figure, axes = _figure(3)
    grid = np.linspace(low, high, LINE_POINTS)
    points, _ = sr.reference_at(sr.of(flight.log, Reference), grid, flight.frame)
    for i, axis in enumerate(axes):
        for track, name, color, width in ((truth, "true", TRUTH, 1.0), (estimate, "estimated", ESTIMATE, 1.2)):
            shown = (track.t >= low) & (track.t <= high)
            _line(flight, axis, track.t[shown], track.p[shown, i], label=name, color=color, lw=width)
        if np.any(np.isfinite(points[:, i])):
            axis.plot(grid - flight.start_s, points[:, i], label="reference", color=REFERENCE, ls="--", lw=1.0)
        axis.set_ylabel(f"{'xyz'[i]} [m]")
    _finish(flight, axes, flight.hold_window())
    return figure


def errors(flight: ShownFlight) -> Figure | None:
    """Distance from the reference (true, or as estimated) and error of the estimate, in centimetres."""
    truth = sr.truth_track(sr.of(flight.log, Truth), flight.frame)
    own = not len(truth.t)
    track = sr.estimate_track(sr.of(flight.log, State), flight.frame) if own else truth
    t, error, yaw_error = tracking_error(track, flight.log, flight.holds, flight.frame)
    if not np.any(np.isfinite(error)):
        return None
    rows = [("estimated [cm]" if own else "true error [cm]", t, 100 * error)]
    t_e, estimate_error = estimate_errors(flight.log, flight.frame)
    if len(t_e):
        inside = sr.within(t_e, flight.holds)
        rows.append(("estimate error [cm]", t_e[inside], 100 * estimate_error[inside]))
    figure, axes = _figure(len(rows) + 1, 1.5)
    for axis, (name, times, values) in zip(axes, rows, strict=False):
        for i in range(3):
            _line(flight, axis, times, values[:, i], color=AXES[i], label="xyz"[i])
        _line(flight, axis, times, np.linalg.norm(values, axis=1), color=INK, lw=0.9, alpha=0.6, label="distance")
        axis.set_ylabel(name)
    _line(flight, axes[-1], t, np.degrees(yaw_error), color=INK)
    axes[-1].set_ylabel("yaw error [°]")
    _finish(flight, axes, flight.hold_window())
    return figure


def _compare(flight: ShownFlight, field: str, unit: str) -> Figure | None:
    """A vector of the state, estimated and true."""
    states = [s for s in sr.of(flight.log, State) if s.valid]
    if not states:
        return None
    truth = sr.of(flight.log, Truth)
    figure, axes = _figure(3)
    for i, axis in enumerate(axes):
        if truth:
            _line(flight, axis, sr.stamps(truth), sr.column(truth, field)[:, i], label="true", color=TRUTH, lw=0.9)
        _line(flight, axis, sr.stamps(states), sr.column(states, field)[:, i], label="estimated", color=ESTIMATE)
        axis.set_ylabel(f"{('east', 'north', 'up')[i]} [{unit}]")
    _finish(flight, axes)
    return figure


def disturbance(flight: ShownFlight) -> Figure | None:
    """Disturbance acceleration, estimated and true."""
    return _compare(flight, "disturbance_W", "m/s²")


def gnss_bias(flight: ShownFlight) -> Figure | None:
    """GNSS position bias, estimated and true."""
    return _compare(flight, "gnss_bias_W", "m")


def confidence(flight: ShownFlight) -> Figure | None:
    """What the filter says of its own error, beside the error; age of the marker."""
    states = [s for s in sr.of(flight.log, State) if s.valid]
    if not states:
        return None
    t = sr.stamps(states)
    figure, axes = _figure(3)
    for axis, field, name, error in (
        (axes[0], "position_std_m", "world", state_errors(flight.log, State, "p_W", "p_W")),
        (axes[1], "relative_std_m", "bundle", estimate_errors(flight.log, flight.frame)),
    ):
        std = np.array([getattr(s, field) for s in states])
        std[~np.isfinite(std)] = np.nan
        if axis is axes[0] or flight.frame != WORLD:
            _line(flight, axis, error[0], np.linalg.norm(error[1], axis=1), color=TRUTH, lw=0.9, label="true error")
        _line(flight, axis, t, 3 * std, color=ESTIMATE, label="3 standard deviations")
        axis.set_ylabel(f"{name} [m]")
        _log_scale(axis)
    age = np.array([s.marker_age_s for s in states])
    age[~np.isfinite(age)] = np.nan
    _line(flight, axes[2], t, age, color=THIRD)
    axes[2].set_ylabel("marker age [s]")
    _finish(flight, axes)
    return figure


def nis(flight: ShownFlight) -> Figure | None:
    """Normalised innovation squared of each sensor with its 95 % band, rejected ones marked."""
    by_sensor: dict[Sensor, list[Innovation]] = {}
    for status in sr.of(flight.log, EstimatorStatus):
        for update in status.innovations:
            by_sensor.setdefault(update.sensor, []).append(update)
    if not by_sensor:
        return None
    figure, axes = _figure(len(by_sensor), 1.3)
    for axis, (sensor, updates) in zip(axes, sorted(by_sensor.items()), strict=True):
        updates = updates[:: max(1, len(updates) // NIS_POINTS)]
        t = np.array([u.stamp_s for u in updates]) - flight.start_s
        values = np.maximum([u.nis for u in updates], 1e-3)
        accepted = np.array([u.accepted for u in updates])
        dof = updates[0].dof
        axis.plot(t[accepted], values[accepted], ".", ms=1.6, color=ESTIMATE, alpha=0.6, rasterized=True)
        axis.plot(t[~accepted], values[~accepted], "x", ms=4, color="#c0392b", label="rejected")
        for probability in (0.025, 0.975):
            axis.axhline(2 * gammaincinv(dof / 2, probability), color=REFERENCE, lw=0.9, ls="--")
        axis.axhline(dof, color=REFERENCE, lw=0.9)
        _log_scale(axis)
        axis.set_ylabel(f"{sensor} ({dof})")
    _finish(flight, axes)
    return figure


def times(flight: ShownFlight) -> Figure | None:
    """Computing times: solver, control cycle, filter, detector."""
    log = flight.log
    rows: list[tuple[str, list[Message], str, str]] = [
        ("solver", [m for m in sr.of(log, ControlStatus) if m.solver_status >= 0], "solve_time_s", ESTIMATE),
        ("control cycle", [m for m in sr.of(log, ControlStatus) if m.active != "idle"], "cycle_time_s", TRUTH),
        ("filter", sr.of(log, EstimatorStatus), "update_time_s", THIRD),
        ("detector", sr.of(log, Markers), "detect_time_s", REFERENCE),
    ]
    figure, axes = _figure(1, 2.4)
    drawn = False
    for name, messages, field, color in rows:
        values = np.array([getattr(m, field) for m in messages]) * 1e3
        if len(values) and values.max() > 0:
            _line(flight, axes[0], sr.stamps(messages), np.maximum(values, 1e-3), label=name, color=color, lw=0.9)
            drawn = True
    if not drawn:
        return None  # simulated computing takes no time
    if flight.deadline_s:
        axes[0].axhline(1e3 * flight.deadline_s, color="#c0392b", lw=1.0, ls="--", label="deadline")
    _log_scale(axes[0])
    axes[0].set_ylabel("time [ms]")
    _finish(flight, axes)
    return figure


def attitude(flight: ShownFlight) -> Figure | None:
    """Attitude and thrust commands and the response."""
    sent, attitude_ = sr.of(flight.log, SentSetpoint), sr.of(flight.log, FcuAttitude)
    if not sent and not attitude_:
        return None
    figure, axes = _figure(4, 1.2)
    response = np.degrees(sr.rpy(sr.column(attitude_, "q_WB", 4))) if attitude_ else np.zeros((0, 3))
    for i, name in enumerate(("roll", "pitch", "yaw")):
        _line(flight, axes[i], sr.stamps(attitude_), _unwrapped(response[:, i]), label="response", color=ESTIMATE)
        command = np.degrees([getattr(m, f"{name}_rad") for m in sent])
        reference = _unwrapped(command)
        if name == "yaw" and len(sent) and len(attitude_):  # same turn as the response
            nearest = np.interp(sent[0].stamp_s, sr.stamps(attitude_), _unwrapped(response[:, i]))
            reference = reference + 360 * round((nearest - reference[0]) / 360)
        _line(flight, axes[i], sr.stamps(sent), reference, label="command", color=REFERENCE, lw=0.9)
        axes[i].set_ylabel(f"{name} [°]")
    _line(flight, axes[3], sr.stamps(sent), np.array([m.thrust for m in sent]), color=REFERENCE, lw=0.9)
    axes[3].set_ylabel("thrust [1]")
    _finish(flight, axes)
    return figure


def _unwrapped(degrees: Array) -> Array:
    return np.degrees(np.unwrap(np.radians(degrees))) if len(degrees) else np.asarray(degrees)


def battery(flight: ShownFlight) -> Figure | None:
    """Battery voltage."""
    status = sr.of(flight.log, FcuStatus)
    if not status:
        return None
    figure, axes = _figure(1, 1.3)
    truth = sr.of(flight.log, Truth)
    if truth:
        true = np.array([m.battery_voltage_v for m in truth])
        _line(flight, axes[0], sr.stamps(truth), true, color=TRUTH, label="true", lw=0.9)
    _line(flight, axes[0], sr.stamps(status), np.array([m.battery_voltage_v for m in status]), color=ESTIMATE,
          label="measured")  # fmt: skip
    axes[0].set_ylabel("battery [V]")
    _finish(flight, axes)
    return figure


def overview(flight: ShownFlight) -> Figure:
    """One picture of the flight: path from above, error during the hold, disturbance, GNSS bias."""
    figure = Figure(figsize=(12, 7), layout="constrained")
    axes = figure.subplots(2, 2)
    states = [s for s in sr.of(flight.log, State) if s.valid]
    truth = sr.of(flight.log, Truth)
    path = axes[0, 0]
    for messages, color, name in ((truth, TRUTH, "true"), (states, ESTIMATE, "estimated")):
        if messages:
            p = sr.column(messages, "p_W")[:: max(1, len(messages) // LINE_POINTS)]
            path.plot(p[:, 0], p[:, 1], color=color, label=name, lw=1.0)
    for bundle, (p_WM, _) in (truth[-1].bundles if truth else {}).items():
        path.plot(*p_WM[:2], "s", color=REFERENCE)
        path.annotate(bundle, p_WM[:2], xytext=(6, 4), textcoords="offset points", color=QUIET)
    path.set(title="path from above", xlabel="east [m]", ylabel="north [m]", aspect="equal")
    path.set_adjustable("datalim")

    error_axis = axes[0, 1]
    track = sr.truth_track(truth, flight.frame)
    own = not len(track.t)
    track = sr.estimate_track(sr.of(flight.log, State), flight.frame) if own else track
    t, error, _ = tracking_error(track, flight.log, flight.holds, flight.frame)
    for i in range(3):
        _line(flight, error_axis, t, 100 * error[:, i], color=AXES[i], label="xyz"[i], lw=1.0)
    kind = "position error as estimated" if own else "true position error"
    error_axis.set(title=f"{kind} during the hold, {flight.where}", xlabel="time [s]", ylabel="error [cm]")

    for axis, field, title, unit in (
        (axes[1, 0], "disturbance_W", "disturbance", "m/s²"),
        (axes[1, 1], "gnss_bias_W", "GNSS bias", "m"),
    ):
        for i in range(3):
            name = ("east", "north", "up")[i]
            if truth:
                _line(flight, axis, sr.stamps(truth), sr.column(truth, field)[:, i], color=AXES[i], lw=0.8, alpha=0.45)
            if states:
                _line(flight, axis, sr.stamps(states), sr.column(states, field)[:, i], color=AXES[i], label=name)
        note = " (pale: true)" if truth else ""
        axis.set(title=f"{title}, estimated{note}", xlabel="time [s]", ylabel=f"[{unit}]")
    for axis in axes.flat:
        if axis.get_legend_handles_labels()[0]:
            axis.legend(loc="best", ncols=3)
        else:
            axis.text(0.5, 0.5, "nothing recorded", transform=axis.transAxes, ha="center", color=QUIET)
    return figure


def asked_point(flight: ShownFlight) -> str:
    """The point of the hold in words, or an empty string."""
    for reference in sr.of(flight.log, Reference):
        if reference.frame == flight.frame and any(a <= reference.stamp_s <= b for a, b in flight.holds):
            goal = reference.trajectory
            point = goal.p if isinstance(goal, Hold) else getattr(goal, "p_end", ())  # a curve is no point
            if point and all(map(math.isfinite, point)):
                return "({:.2f}, {:.2f}, {:.2f}) m".format(*point)
    return ""
