"""Figures of a tuning: what the aircraft flew and what the model flies with the same sticks."""

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from companion.core.errors import OutputError
from sitl.teleop.pilot_log import STEP_S
from sitl.teleop.tune import Part, Tuned

FLOWN, MODEL, STICK, HELD_OUT = "#1f2933", "#d9822b", "#9aa5b1", "#e8eef7"
EVERY = 10  # milliseconds between two points of a curve
LABELS = ("height, m", "yaw, rad", "pitch, rad", "roll, rad")


def write_plots(tuned: Tuned, folder: Path) -> list[Path]:
    """Write one figure per log into a folder; raises `OutputError`."""
    matplotlib.use("Agg")
    written = []
    for number, part in enumerate(tuned.parts, start=1):
        name = f"{tuned.what.name}_{part.log.path.stem}" + (f"_{number}" if len(tuned.parts) > 1 else "")
        path = folder / f"{name}.png"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _figure(tuned, part).savefig(path, dpi=110)
        except OSError as error:
            raise OutputError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from None
        written.append(path)
    return written


def _figure(tuned: Tuned, part: Part) -> Figure:
    figure = Figure(figsize=(9.6, 8.4), layout="constrained")
    rows = figure.subplots(4, 1, sharex=True)
    path, _ = tuned.what.path(tuned.values, part.whole)
    t_s = STEP_S * np.arange(len(part.whole.flown))
    for axis, row in enumerate(rows):
        row.axvspan(part.fitted.duration_s, part.whole.duration_s, color=HELD_OUT, lw=0)
        row.plot(t_s[::EVERY], part.whole.flown[::EVERY, axis], color=FLOWN, lw=0.9, label="flown")
        row.plot(t_s[: len(path) : EVERY], path[::EVERY, axis], color=MODEL, lw=0.9, label="model")
    for axis, (row, label) in enumerate(zip(rows, LABELS, strict=True)):
        row.set_ylabel(label)
        fitted, checked = tuned.errors[axis] / tuned.fitted_s, tuned.held_out_errors[axis] / tuned.held_out_s
        row.set_title(f"RMS {np.sqrt(fitted):.3g} fitted, {np.sqrt(checked):.3g} held out", fontsize=9, loc="right")
    rows[0].legend(loc="upper left", fontsize=8)
    rows[-1].set_xlabel("time, s; shaded: held out")
    figure.suptitle(f"{part.log.path.name}, set {tuned.what.name}", fontsize=10)
    return figure
