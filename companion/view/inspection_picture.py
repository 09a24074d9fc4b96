"""The picture of an inspection's plan: path from above, and each surface with the footprints of its photographs."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from companion.core.arrays import Array
from companion.mission.plan import Limits
from companion.planning.planner import InspectionPlan
from companion.planning.surfaces import Surface

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OUTLINE = 200  # points along a side of a surface
COLUMNS = 2
WIDTH_IN, ROW_IN = 11.0, 4.5
DPI = 110
PATH, PHOTOGRAPH, STRUCTURE, FENCE = "#1f5fa8", "#d1495b", "#555555", "#2a9d5c"


def draw(plan: InspectionPlan, limits: Limits, files: dict[str, Path]) -> None:
    """Write the picture. files: by kind, "svg" or "png"."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    surfaces = [(f.name, surface, index) for f, (index, surface) in zip(plan.figures, _with_surface(plan), strict=True)]
    rows = math.ceil((1 + len(surfaces)) / COLUMNS)
    figure = Figure(figsize=(WIDTH_IN, ROW_IN * rows), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
    _from_above(grid[0], plan, limits)
    for axes, (name, surface, index) in zip(grid[1:], surfaces, strict=False):
        _unrolled(axes, plan, name, surface, index)
    for axes in grid[1 + len(surfaces) :]:
        axes.set_axis_off()
    for kind, path in files.items():
        figure.savefig(path, format=kind, dpi=DPI)


def _with_surface(plan: InspectionPlan) -> list[tuple[int, Surface]]:
    return [(index, item.surface) for index, item in enumerate(plan.items) if item.surface is not None]


def _from_above(axes: "Axes", plan: InspectionPlan, limits: Limits) -> None:
    x0, y0, _ = limits.fence_min_m
    x1, y1, _ = limits.fence_max_m
    axes.plot([x0, x1, x1, x0, x0], [y0, y0, y1, y1, y0], "--", color=FENCE, linewidth=1, label="fence")
    for _, surface in _with_surface(plan):
        edge = _outline(surface)
        axes.fill(edge[:, 0], edge[:, 1], facecolor=STRUCTURE, edgecolor=STRUCTURE, alpha=0.35, linewidth=2)
    corners = np.array(plan.path)
    axes.plot(corners[:, 0], corners[:, 1], color=PATH, linewidth=1, label="path")
    taken = [s for s in plan.stations if s.photograph is not None]
    if taken:
        places = np.array([s.p_W for s in taken])
        axes.plot(places[:, 0], places[:, 1], ".", color=PHOTOGRAPH, markersize=4, label="photographs")
        looks = np.array([s.photograph.pose.R_WC[:2, 2] for s in taken if s.photograph is not None])
        axes.quiver(places[:, 0], places[:, 1], looks[:, 0], looks[:, 1], color=PHOTOGRAPH, width=0.002, angles="xy")
    for first in plan.flights[1:]:
        x, y, _ = plan.stations[first.first].p_W
        axes.plot([x], [y], "s", color=PATH, markersize=7, fillstyle="none")
    axes.plot([0], [0], "k^", markersize=7, label="take-off")
    axes.set(title=f"{plan.name}, from above", xlabel="x, m", ylabel="y, m", aspect="equal")
    axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize="small")


def _outline(surface: Surface) -> Array:
    (width, height), t = surface.size_m, np.linspace(-0.5, 0.5, OUTLINE)
    half = np.full(OUTLINE, 0.5)
    u = np.concatenate([t, half, -t, -half]) * width
    v = np.concatenate([-half, t, half, -t]) * height
    return surface.points(np.column_stack([u, v]))


def _unrolled(axes: "Axes", plan: InspectionPlan, name: str, surface: Surface, index: int) -> None:
    width, height = surface.size_m
    axes.fill(
        np.array([-1, 1, 1, -1]) * width / 2,
        np.array([-1, -1, 1, 1]) * height / 2,
        facecolor="#eeeeee",
        edgecolor=STRUCTURE,
    )
    taken = [s.photograph for s in plan.stations if s.item == index and s.photograph is not None]
    for photograph in taken:
        if photograph.footprint is not None:
            u0, u1, v0, v1 = photograph.footprint
            axes.fill([u0, u1, u1, u0], [v0, v0, v1, v1], facecolor=PHOTOGRAPH, alpha=0.06, edgecolor="none")
            axes.plot([u0, u1, u1, u0, u0], [v0, v0, v1, v1, v0], color=PHOTOGRAPH, linewidth=0.4)
    middles = np.array([p.uv for p in taken if p.uv is not None])
    axes.plot(middles[:, 0], middles[:, 1], ".-", color=PATH, markersize=4, linewidth=0.8)
    axes.set(title=f"{name}: {len(taken)} photographs", xlabel="u, m", ylabel="v, m", aspect="equal")
