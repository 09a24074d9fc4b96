"""Figures of a camera calibration: positions and residuals of the corners, standard deviation of the projection."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from calibration.camera.views import CELLS, Calibration, projection_std
from companion.core.arrays import Array
from companion.core.config import ConfigError

DPI = 110
ARROW = 0.12  # length of the longest arrow, as a share of the width of the image or board
MIN_IN_CELL = 3  # corners; a smaller group gets no arrow


def write_plots(folder: Path, calibration: Calibration) -> list[Path]:
    """Write ``coverage.png`` and ``residuals.png``; make the folder. Raises `ConfigError` when writing fails."""
    pictures = {"coverage.png": _coverage(calibration), "residuals.png": _residuals(calibration)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, figure in pictures.items():
            figure.savefig(folder / name, dpi=DPI)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written: {error.strerror or error}") from None
    return [folder / name for name in pictures]


def _coverage(c: Calibration) -> Figure:
    figure = Figure(figsize=(12, 5), layout="constrained")
    seen, sure = figure.subplots(1, 2)
    for view in c.views:
        seen.plot(*view.pixels.T, ".", ms=2.5)
    for column in np.linspace(-0.5, c.size[0] - 0.5, CELLS[0] + 1):
        seen.axvline(column, color="0.85", lw=0.5)
    for row in np.linspace(-0.5, c.size[1] - 0.5, CELLS[1] + 1):
        seen.axhline(row, color="0.85", lw=0.5)
    _frame(seen, c, f"{c.corners} corners of {len(c.views)} views in {100 * c.coverage:.0f} % of the picture's cells")
    std = projection_std(c.fit.lens, c.fit.covariance, c.size)
    place = (-0.5, c.size[0] - 0.5, c.size[1] - 0.5, -0.5)
    drawn = sure.imshow(std, extent=place, cmap="viridis", vmin=0, interpolation="bilinear")
    figure.colorbar(drawn, ax=sure, label="px")
    _frame(sure, c, "deviation of the projection")
    return figure


def _residuals(c: Calibration) -> Figure:
    figure = Figure(figsize=(12, 9), layout="constrained")
    (by_view, cloud), (by_place, by_corner) = figure.subplots(2, 2)
    rms = c.fit.view_rms_px
    by_view.bar(range(len(rms)), rms, color="tab:blue")
    by_view.axhline(c.fit.rms_px, color="k", lw=0.8)
    by_view.set(title=f"each view, RMS; all {c.fit.rms_px:.3f} px", ylabel="px", xlim=(-1, len(rms)))
    by_view.set_xticks(range(len(rms)), [v.name for v in c.views], rotation=90, fontsize=6)

    residuals, pixels = np.concatenate(c.fit.residuals), np.concatenate([v.pixels for v in c.views])
    cloud.plot(*residuals.T, ".", ms=2, alpha=0.4)
    limit = 1.1 * float(np.quantile(np.abs(residuals), 0.999)) + 1e-3
    cloud.set(title="every corner, projected minus seen", xlabel="px right", ylabel="px down", aspect="equal")
    cloud.set(xlim=(-limit, limit), ylim=(limit, -limit))

    edges = [np.linspace(-0.5, s - 0.5, n + 1) for s, n in zip(c.size, CELLS, strict=True)]
    cell = [np.clip(np.digitize(pixels[:, i], edges[i]) - 1, 0, CELLS[i] - 1) for i in (0, 1)]
    cell = cell[1] * CELLS[0] + cell[0]
    _arrows(by_place, pixels, residuals, cell, c.size[0])
    _frame(by_place, c, "mean of each part of the picture: residual of the lens")

    numbers = np.concatenate([v.numbers for v in c.views])
    _arrows(by_corner, c.board.points_m[numbers, :2], residuals, numbers, np.ptp(c.board.points_m, axis=0).max())
    by_corner.invert_yaxis()
    by_corner.set(title="mean of each corner of the board: residual of its print", aspect="equal", xlabel="m")
    return figure


def _arrows(axes: Axes, places: Array, residuals: Array, group: NDArray[np.int64], width: float) -> None:
    """Mean residual of each group as an arrow from its mean place, all on one scale, which is annotated."""
    groups = [group == g for g in np.unique(group) if np.count_nonzero(group == g) >= MIN_IN_CELL]
    if not groups:
        return
    at = np.array([places[g].mean(0) for g in groups])
    mean = np.array([residuals[g].mean(0) for g in groups])
    longest = float(np.linalg.norm(mean, axis=1).max()) or 1.0
    axes.quiver(*at.T, *mean.T, angles="xy", scale_units="xy", scale=longest / (ARROW * width), width=0.003)
    axes.annotate(f"longest {longest:.2f} px", (0.01, 0.01), xycoords="axes fraction", fontsize=8)


def _frame(axes: Axes, c: Calibration, title: str) -> None:
    axes.set(title=title, xlim=(-0.5, c.size[0] - 0.5), ylim=(c.size[1] - 0.5, -0.5), aspect="equal")
