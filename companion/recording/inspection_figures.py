"""The figures of an inspection: coverage, ground sampling distance (GSD), overlap, and what is missing.

Geometry as in the plan (`companion.planning`), at the poses of the photographs that were taken. Coverage counts sharp
photographs alone. GSD is that of the sensor, also where a simulated picture is drawn smaller.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from companion.core.arrays import Array, Mask
from companion.core.enums import CaptureOutcome
from companion.core.trajectory_messages import Vec3
from companion.planning.camera import CameraPose
from companion.planning.planner import best_gsd_m
from companion.planning.sections import along_x
from companion.planning.surfaces import Footprint, Surface, grid
from companion.recording.inspection import FlownPlan, InspectedItem, Place, PoseError, Shot, best_shots
from companion.recording.inspection_surface import footprint, overlap

CONFIDENCE = 95.0  # percentile of errors
BLUR_MAX_PX = 1.0  # of a sharp photograph, where the simulator knows its true blur
Figures = dict[str, Any]  # JSON-ready
Indices = NDArray[np.signedinteger[Any]]


class Gap(NamedTuple):
    """A connected part of a surface that no sharp photograph shows within the GSD limit."""

    surface: str
    centre_uv: tuple[float, float]
    size_m: tuple[float, float]  # of the box around it, along u and v
    area_m2: float
    p_plan: Vec3  # of the middle of its box, on the surface
    coarse: bool  # photographs show it, with too large a GSD
    missing: list[Place]  # photographs of the plan that would show a part of it, the largest part first
    ring: bool = False  # it goes all around


class SurfaceResult(NamedTuple):
    """How one surface was photographed; NaN or None: not known."""

    item: InspectedItem
    surface: Surface
    area_m2: float
    planned: int
    taken: int  # photographs of the plan with a sharp picture
    blurred: int  # with a blurred one alone
    refused: int  # refused or lost requests
    missing: list[Place]  # photographs of the plan without a picture
    coverage: float
    gsd_median_mm_px: float | None
    gsd_p95_mm_px: float | None
    overlap_along: float | None
    overlap_between: float | None
    best_gsd_m: Array  # (columns along u, rows along v) of cells; inf: not shown by a sharp photograph
    gaps: list[Gap]


def surface_results(plan: FlownPlan, shots: Sequence[Shot], true: bool = False) -> list[SurfaceResult]:
    """All surfaces of a plan. true: at the simulator's poses; a photograph without one is left out."""
    best = best_shots(shots)
    return [_result(plan, item, shots, best, true) for item in plan.items if item.surface is not None]


def _result(
    plan: FlownPlan, item: InspectedItem, shots: Sequence[Shot], best: dict[tuple[str, Place], Shot], true: bool
) -> SurfaceResult:
    surface = item.surface
    assert surface is not None
    own = [shot for shot in shots if shot.capture.item == item.name]
    kept = {place: shot for (name, place), shot in best.items() if name == item.name and place in item.planned}
    poses = [pose for shot in own if is_sharp(shot, true) and (pose := _pose(shot, true)) is not None]
    cells = cells_of(surface.size_m)
    gsd_m = best_gsd_m(surface, plan.planning, poses).reshape(cells)
    within = gsd_m <= item.gsd_max_m * (1 + 1e-9)
    shown = gsd_m[np.isfinite(gsd_m)] * 1e3
    placed: dict[Place, Footprint] = {}
    for place, shot in kept.items():
        pose, planned = _pose(shot, true), item.planned[place].footprint
        if pose is not None and planned is not None and is_sharp(shot, true):
            found = footprint(plan.planning.camera, surface, pose, item.gsd_max_m, planned)
            if found is not None:
                placed[place] = found
    along = 0 if along_x(item.item) else 1
    missing = [place for place in sorted(item.planned) if place not in kept or not kept[place].taken]
    return SurfaceResult(
        item,
        surface,
        math.prod(surface.size_m),
        len(item.planned),
        sum(is_sharp(shot, true) for shot in kept.values()),
        sum(shot.taken and not is_sharp(shot, true) for shot in kept.values()),
        sum(not shot.taken for shot in own),
        missing,
        float(within.mean()),
        float(np.median(shown)) if len(shown) else None,
        float(np.percentile(shown, 95)) if len(shown) else None,
        _smallest_overlap(placed, surface, along, same_row=True),
        _smallest_overlap(placed, surface, 1 - along, same_row=False),
        gsd_m,
        _gaps(item, surface, gsd_m, within, set(item.planned) - set(placed)),
    )


def is_sharp(shot: Shot, true: bool = False) -> bool:
    """Sharp as it was reported; true: also by the simulator's own blur."""
    return shot.sharp and not (true and shot.true_blur_px > BLUR_MAX_PX)


def _pose(shot: Shot, true: bool) -> CameraPose | None:
    return shot.true_pose if true else shot.shown_pose


def cells_of(size_m: tuple[float, float]) -> tuple[int, int]:
    """How many cells `grid` has along u and v."""
    uv = grid(size_m)
    columns = len(np.unique(uv[:, 0]))
    return columns, len(uv) // columns


def _smallest_overlap(placed: dict[Place, Footprint], surface: Surface, axis: int, same_row: bool) -> float | None:
    """Over all neighbours that there are: where one is missing, the next one is the neighbour. None: no pair.

    same_row: consecutive photographs of a path, else photographs at the same place of neighbouring paths.
    """
    lines: dict[int, list[tuple[int, Footprint]]] = {}
    for (row, column), found in placed.items():
        line, position = (row, column) if same_row else (column, row)
        lines.setdefault(line, []).append((position, found))
    around_m = surface.size_m[0] if surface.closed and axis == 0 else math.inf
    overlaps = []
    for members in lines.values():
        ordered = [found for _, found in sorted(members, key=lambda member: member[0])]
        pairs = list(zip(ordered, ordered[1:], strict=False))
        if math.isfinite(around_m) and len(ordered) > 2:
            pairs.append((ordered[-1], ordered[0]))
        overlaps += [overlap(a, b, axis, around_m) for a, b in pairs]
    return min(overlaps, default=None)


# --- gaps -----------------------------------------------------------------------------------------------------------


def _gaps(item: InspectedItem, surface: Surface, gsd_m: Array, within: Mask, absent: set[Place]) -> list[Gap]:
    """Connected cells that are not within the limit, the largest first."""
    columns, rows = within.shape
    step = np.array([surface.size_m[0] / columns, surface.size_m[1] / rows])
    labels = _labels(~within, surface.closed)
    gaps = []
    for label in range(1, int(labels.max(initial=0)) + 1):
        u, v = np.nonzero(labels == label)
        if not len(u):  # joined with another one over the seam
            continue
        ring = surface.closed and len(np.unique(u)) == columns
        if surface.closed and not ring and u.min() == 0 and u.max() == columns - 1:
            u = _over_the_seam(u, columns)
        low, high = np.array([u.min(), v.min()]), np.array([u.max() + 1, v.max() + 1])
        centre = (low + high) / 2 * step - np.array(surface.size_m) / 2
        if surface.closed:
            centre[0] = (centre[0] + surface.size_m[0] / 2) % surface.size_m[0] - surface.size_m[0] / 2
        size = (high - low) * step
        point = surface.points(centre[None, :])[0]
        cells = (np.column_stack([u % columns, v]) + 0.5) * step - np.array(surface.size_m) / 2
        shown = {p: _shown(item.planned[p].footprint, cells, surface) for p in absent}
        gaps.append(
            Gap(
                item.name,
                (float(centre[0]), float(centre[1])),
                (float(size[0]), float(size[1])),
                float(len(u) * step[0] * step[1]),
                (float(point[0]), float(point[1]), float(point[2])),
                bool(np.isfinite(gsd_m[u % columns, v]).any()),
                sorted((p for p in absent if shown[p]), key=lambda p: (-shown[p], p)),
                ring,
            )
        )
    return sorted(gaps, key=lambda gap: -gap.area_m2)


def _labels(open_: Mask, closed: bool) -> Array:
    """Connected cells get the same number above 0; the ends of a closed surface are beside each other."""
    _, labels = cv2.connectedComponents(open_.astype(np.uint8), connectivity=8)
    if closed:
        for a, b in zip(labels[0], labels[-1], strict=True):
            if a and b and a != b:
                labels[labels == b] = a
    return np.asarray(labels)


def _over_the_seam(u: Indices, columns: int) -> Indices:
    """Column numbers that go on over the end of a closed surface: split at the widest empty part."""
    used = np.unique(u)
    widest = int(np.argmax(np.diff(used)))
    shifted: Indices = np.where(u <= used[widest], u + columns, u)
    return shifted


def _shown(planned: Footprint | None, uv: Array, surface: Surface) -> int:
    """How many places a photograph of the plan shows; uv: (n, 2)."""
    if planned is None:
        return 0
    turns = (-1, 0, 1) if surface.closed else (0,)
    inside = (planned.v_low <= uv[:, 1]) & (uv[:, 1] <= planned.v_high)
    across = [uv[:, 0] + turn * surface.size_m[0] for turn in turns]
    return int((inside & np.any([(planned.u_low <= u) & (u <= planned.u_high) for u in across], axis=0)).sum())


# --- a whole inspection ---------------------------------------------------------------------------------------------


class Totals(NamedTuple):
    """All surfaces and viewpoints together."""

    planned: int
    taken: int
    blurred: int
    refused: int
    missing: int
    coverage: float | None  # by area
    gsd_p95_mm_px: float | None  # the worst surface's
    overlap_along: float | None  # the worst
    overlap_between: float | None


def totals(plan: FlownPlan, shots: Sequence[Shot], results: Sequence[SurfaceResult], true: bool = False) -> Totals:
    """The totals of a plan with the results of its surfaces."""
    best = best_shots(shots)
    kept = [best.get((item.name, place)) for item in plan.items for place in item.planned]
    there = [shot for shot in kept if shot is not None and shot.taken]
    area_m2 = sum(result.area_m2 for result in results)
    covered_m2 = sum(result.coverage * result.area_m2 for result in results)
    return Totals(
        len(kept),
        sum(is_sharp(shot, true) for shot in there),
        sum(not is_sharp(shot, true) for shot in there),
        sum(not shot.taken for shot in shots),
        len(kept) - len(there),
        covered_m2 / area_m2 if results else None,
        _most([result.gsd_p95_mm_px for result in results]),
        _least([result.overlap_along for result in results]),
        _least([result.overlap_between for result in results]),
    )


def simulated_figures(plan: FlownPlan, shots: Sequence[Shot]) -> Figures:
    """The figures of a simulated inspection at the true poses, JSON-ready; None: not measured.

    overlap_min: the smallest of both directions. Errors of poses: 95th percentile over the photographs that were taken, in
    the frame of the nearest bundle seen ("photo"), and in that of the marker file's first bundle ("photo_site").
    """
    results = surface_results(plan, shots, true=True)
    all_ = totals(plan, shots, results, true=True)
    best = [shot for shot in best_shots(shots).values() if shot.taken]
    return {
        "coverage": all_.coverage,
        "gsd_p95_mm_px": all_.gsd_p95_mm_px,
        "overlap_min": _least([all_.overlap_along, all_.overlap_between]),
        "overlap_along_min": all_.overlap_along,
        "overlap_between_min": all_.overlap_between,
        "planned": all_.planned,
        "photographs": all_.taken + all_.blurred,
        "blurred": all_.blurred,
        "missing": all_.missing,
        "refused": sum(shot.capture.outcome == CaptureOutcome.REFUSED for shot in shots),
        "lost": sum(shot.capture.outcome == CaptureOutcome.LOST for shot in shots),
        "blur_max_px": _most([shot.true_blur_px for shot in best if math.isfinite(shot.true_blur_px)]),
        "without_bundle": sum(not shot.capture.bundle for shot in best),
        **_errors("photo", [shot.error for shot in best]),
        **_errors("photo_site", [shot.site_error for shot in best]),
        "surfaces": {
            result.item.name: {
                "coverage": result.coverage,
                "gsd_p95_mm_px": result.gsd_p95_mm_px,
                "overlap_along": result.overlap_along,
                "overlap_between": result.overlap_between,
                "gaps": len(result.gaps),
            }
            for result in results
        },
    }


def _errors(name: str, errors: Sequence[PoseError | None]) -> Figures:
    known = [error for error in errors if error is not None]
    figures: Figures = {f"{name}_position_p95_m": None, f"{name}_attitude_p95_deg": None}
    if known:
        position, attitude = (np.percentile(values, CONFIDENCE) for values in zip(*known, strict=True))
        figures = {f"{name}_position_p95_m": float(position), f"{name}_attitude_p95_deg": math.degrees(float(attitude))}
    return figures


def _most(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _least(values: Sequence[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)
