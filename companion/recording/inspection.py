"""What an inspection photographed: the plan and the captures of one flight, or of several flights of one plan.

Everything is in the plan's coordinates, in which the surfaces stand: a pose in the frame of its item (the world from the
take-off point, or a bundle) is put where the plan assumes that frame. So flights with different take-off points and
different GNSS errors fit together.
"""

import math
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from companion.core.arrays import Array
from companion.core.config import parse
from companion.core.enums import CaptureOutcome
from companion.core.frames import rotation_matrix
from companion.core.messages import WORLD, Capture, CaptureTruth, PayloadStatus, State, Truth
from companion.core.refined_poses import RefinedPhotograph, is_pose_of, posed
from companion.core.site import Site
from companion.core.trajectory_messages import Quat, Vec3
from companion.planning.camera import CameraPose, PayloadCamera
from companion.planning.sections import Inspection, Origin, QgcItem, SurfaceItem
from companion.planning.stations import Photograph, Planning, frame_of, plan_item
from companion.planning.surfaces import Surface
from companion.recording import series as sr
from companion.recording.inspection_takeoff import take_off_of
from companion.recording.log import Log, LogError

# By which a second survey of one place may differ; it differs by centimetres and tenths of a degree.
SURVEY_M, SURVEY_RAD = 0.5, 0.1
PICTURES = (CaptureOutcome.TAKEN, CaptureOutcome.BLURRED)  # outcomes with a photograph
SAME_M = 1e-6  # of two places of one plan
SAME_RASTER_M = 0.05  # of the middles of two photographs with the same row and column
STATE_AGE_MAX_S = 0.5  # of the filter state that places an exposure in the frame of another bundle
Place = tuple[int, int]  # row and column of a photograph on its item
ShotKey = tuple[int, int, int]  # flight, id, attempt


class InspectedItem(NamedTuple):
    """An item of the plan that has photographs."""

    name: str
    frame: str
    item: Any  # of `companion.planning.sections`
    surface: Surface | None  # None: viewpoints
    standoff_m: float | None
    planned: dict[Place, Photograph]

    @property
    def gsd_max_m(self) -> float:
        """The largest GSD that the item allows [m]; inf for viewpoints."""
        return self.item.gsd_mm_px / 1e3 if isinstance(self.item, SurfaceItem) else math.inf


class FlownPlan(NamedTuple):
    """The plan that a flight followed."""

    name: str
    planning: Planning
    items: list[InspectedItem]
    satellites: bool

    @property
    def photographs(self) -> int:
        return sum(len(item.planned) for item in self.items)

    @property
    def origin(self) -> Origin | None:
        return self.planning.inspection.origin

    def find(self, name: str) -> InspectedItem | None:
        """The item of that name."""
        return next((item for item in self.items if item.name == name), None)


class PoseError(NamedTuple):
    """Estimated against true pose of one photograph."""

    position_m: float
    attitude_rad: float


class Shot(NamedTuple):
    """One capture, in the plan's coordinates."""

    capture: Capture
    flight: int  # index of the log
    utc_s: float | None
    pose: CameraPose | None  # as estimated; None: unknown
    true_pose: CameraPose | None = None  # of a simulated flight
    true_blur_px: float = math.nan
    error: PoseError | None = None  # in the frame of the nearest bundle seen
    site_error: PoseError | None = None  # in the frame of the site's first bundle
    adjusted: bool = False  # its pose was found after the flight
    format_px: tuple[int, int] | None = None  # size of its picture where that has another ratio than the camera file's

    @property
    def key(self) -> ShotKey:
        """Names it among all captures of all flights."""
        return self.flight, self.capture.id, self.capture.attempt

    @property
    def place(self) -> Place:
        return self.capture.row, self.capture.column

    @property
    def taken(self) -> bool:
        """There is a photograph, sharp or not."""
        return self.capture.outcome in PICTURES

    @property
    def sharp(self) -> bool:
        return self.capture.outcome == CaptureOutcome.TAKEN

    @property
    def shown_pose(self) -> CameraPose | None:
        """The pose by which it shows its surface: None for a picture of another format, which does not show what was planned."""
        return self.pose if self.format_px is None else None


# --- the plan -------------------------------------------------------------------------------------------------------


def make_plan_of(name: str, planning: Planning, satellites: bool, where: str) -> FlownPlan:
    """The items of an inspection with their photographs; raises `ConfigError`, beginning with `where`."""
    items = []
    for index, item in enumerate(planning.inspection.item):
        made = plan_item(index, planning, f"{where}: inspection.item[{index}] '{item.name}': ")
        planned = {(p.row, p.column): p for s in made.orders[0] if (p := s.photograph) is not None}
        if planned:
            items.append(InspectedItem(item.name, item.frame, item, made.surface, made.standoff_m, planned))
    return FlownPlan(name, planning, items, satellites)


def plan_of_log(log: Log) -> FlownPlan | None:
    """The plan that a flight followed, from its log alone; None: it had no inspection.

    Raises `LogError` or `ConfigError` when the log holds an inspection that cannot be read.
    """
    mission = log.tables("mission")
    if mission is None or "inspection" not in mission:
        return None
    where = f"{log.path}: mission in the log"
    inspection = parse(mission["inspection"], Inspection, f"{where}: inspection")
    tables = log.tables("payload_camera")
    if tables is None:
        raise LogError(
            f"{log.path}: holds an inspection without its camera file (an earlier version): it has no figures"
        )
    camera = parse(tables, PayloadCamera, f"{log.path}: camera in the log")
    site_tables = log.tables("site")
    site = Site(bundle=[]) if site_tables is None else parse(site_tables, Site, f"{log.path}: site in the log")
    vehicle = log.vehicle()
    standoff_min_m = 0.0 if vehicle is None else vehicle.safety.standoff_min_m
    with tempfile.TemporaryDirectory(prefix="companion-plan-") as folder:
        inspection = _with_plan_files(inspection, log, Path(folder))
        planning = Planning(inspection, camera, site, Path(folder), standoff_min_m, *rules_of_log(log))
        return make_plan_of(str(mission.get("name", "")), planning, bool(mission.get("satellites", True)), where)


class PlanningRules(NamedTuple):
    """What of the planning has changed since the first logs, as `companion.planning.stations.Planning` has it."""

    held_m: float  # on which default stand-offs depend
    beyond_sector: bool


def rules_of_log(log: Log) -> PlanningRules:
    """By which the plan of a flight was made; raises `LogError` when they cannot be read."""
    try:
        said = msgspec.json.decode(log.metadata.get("planning", "{}"), type=dict[str, float])
    except msgspec.MsgspecError as error:
        raise LogError(f"{log.path}: the planning in the log cannot be read: {error}") from None
    return PlanningRules(said.get("held_m", 0.0), bool(said.get("beyond_sector", 0.0)))


def _with_plan_files(inspection: Inspection, log: Log, folder: Path) -> Inspection:
    """The inspection, its `.plan` files written into a folder; raises `LogError` for one that the log does not hold."""
    try:
        texts = msgspec.json.decode(log.metadata.get("plans", "{}"), type=dict[str, str])
    except msgspec.MsgspecError as error:
        raise LogError(f"{log.path}: the plan files in the log cannot be read: {error}") from None
    items = []
    for number, item in enumerate(inspection.item):
        if isinstance(item, QgcItem):
            if item.file not in texts:  # the log does not choose a file of this computer in its place
                raise LogError(f"{log.path}: does not hold the file {item.file} of inspection.item '{item.name}'")
            (folder / f"{number}.plan").write_text(texts[item.file], encoding="utf-8")
            item = msgspec.structs.replace(item, file=f"{number}.plan")
        items.append(item)
    return msgspec.structs.replace(inspection, item=items)


def plan_difference(first: FlownPlan, second: FlownPlan) -> str:
    """What keeps the photographs of two plans from being shown together; "" if nothing."""
    if first.origin != second.origin:
        return "inspection.origin is another one"
    names = [[item.name for item in plan.items] for plan in (first, second)]
    if names[0] != names[1]:
        return f"its items are {', '.join(names[1])}"
    for a, b in zip(first.items, second.items, strict=True):
        if isinstance(a.item, QgcItem) and isinstance(b.item, QgcItem):
            if not _same_photographs(a, b):
                return f"inspection.item '{a.name}' has other photographs in its .plan file"
        elif a.item != b.item:
            keys = [key for key in a.item.__struct_fields__ if getattr(a.item, key) != getattr(b.item, key, None)]
            return f"inspection.item '{a.name}' has another {keys[0] if keys else 'kind'}"
        one, other = (frame_of(item.frame, plan.planning, "") for item, plan in ((a, first), (b, second)))
        if apart := place_difference(one.p_W, one.R_WF, other.p_W, other.R_WF):
            return f"the bundle '{a.frame}' is {apart} that of the first"
    for a, b in zip(first.items, second.items, strict=True):
        if a.standoff_m is not None and b.standoff_m is not None and not math.isclose(a.standoff_m, b.standoff_m):
            return (
                f"inspection.item '{a.name}' is photographed from {b.standoff_m:.2f} m, not from {a.standoff_m:.2f} m"
            )
        if a.surface is not None and not _same_raster(a, b):
            return f"inspection.item '{a.name}' is photographed in another raster"
    cameras = [msgspec.structs.replace(plan.planning.camera, control=None) for plan in (first, second)]
    if cameras[0] != cameras[1]:
        return f"its camera {cameras[1].name} is another one, or has another lens or mount"
    return ""


def _same_raster(a: InspectedItem, b: InspectedItem) -> bool:
    """Row and column name the same places of a surface in both plans."""
    return a.planned.keys() == b.planned.keys() and all(
        math.dist(a.planned[place].uv or (), b.planned[place].uv or ()) < SAME_RASTER_M for place in a.planned
    )


def _same_photographs(a: InspectedItem, b: InspectedItem) -> bool:
    """Both plans have the same photographs, from the same places in the same directions."""
    return a.planned.keys() == b.planned.keys() and all(
        np.allclose(one, other, rtol=0.0, atol=SAME_M)
        for place in a.planned
        for one, other in zip(a.planned[place].pose, b.planned[place].pose, strict=True)
    )


def place_difference(p_a: Array, R_a: Array, p_b: Array, R_b: Array) -> str:
    """How much a bundle's place differs when it is another one: "3.0 m from", "turned by 12° against"; "" for a second survey.

    Each flight counts in the frame of its own bundle, wherever that was measured to stand.
    """
    apart = _difference(CameraPose(p_a, R_a), CameraPose(p_b, R_b))
    if apart.position_m > SURVEY_M:
        return f"{apart.position_m:.1f} m from"
    return f"turned by {math.degrees(apart.attitude_rad):.0f}° against" if apart.attitude_rad > SURVEY_RAD else ""


# --- captures -------------------------------------------------------------------------------------------------------


def shots_of(
    messages: sr.Messages,
    plan: FlownPlan,
    flight: int = 0,
    utc_offset_s: float | None = None,
    poses: Sequence[RefinedPhotograph] = (),
) -> list[Shot]:
    """All captures of a flight, one for each attempt, in the order of their stamps.

    A late answer replaces the one that says "lost". In logs of before 2026-11-29 a payload process that was restarted counted
    attempts from 1 again: of two with the same number the one with the better photograph stays.
    utc_offset_s: UTC minus companion time; None: unknown. poses: found after the flight, of these exposures; they count where
    the item's frame is their bundle's.
    """
    latest: dict[tuple[int, int], Capture] = {}
    for capture in sr.of(messages, Capture):
        key = (capture.id, capture.attempt)
        if key not in latest or _worth(capture) >= _worth(latest[key]):
            latest[key] = capture
    places = _Places(messages, plan)
    truths = {truth.image_index: truth for truth in sr.of(messages, CaptureTruth)}
    shots = []
    for capture in sorted(latest.values(), key=lambda c: c.stamp_s):
        utc_s = None if utc_offset_s is None else capture.stamp_s + utc_offset_s
        item = plan.find(capture.item)
        frame = "" if item is None else item.frame
        pose = next((pose for pose in poses if pose.bundle == frame and is_pose_of(pose, capture)), None)
        capture, covariance = posed(capture, pose)
        shot = Shot(capture, flight, utc_s, places.estimated(capture), adjusted=covariance is not None)
        truth = truths.get(capture.image_index) if capture.image_index >= 0 else None
        if truth is not None and shot.taken:
            shot = shot._replace(
                true_pose=places.true(capture, truth),
                true_blur_px=truth.blur_px,
                error=_bundle_error(capture, truth),
                site_error=places.site_error(capture, truth),
            )
        shots.append(shot)
    return shots


def utc_offset_of(log: Log) -> float:
    """UTC minus companion time in a flight [s]: the last that the payload process reported, NaN unknown.

    A computer without a clock of its own is set by the network or the receiver after it has begun to log.
    """
    known = [status.utc_offset_s for status in log.of(PayloadStatus) if math.isfinite(status.utc_offset_s)]
    return known[-1] if known else math.nan


def _worth(capture: Capture) -> int:
    """Sharp before blurred before none."""
    return (capture.outcome in PICTURES) + (capture.outcome == CaptureOutcome.TAKEN)


def best_shots(shots: Iterable[Shot]) -> dict[tuple[str, Place], Shot]:
    """The best capture of each photograph of the plan: sharp, placed, least blurred; by name of the item and place."""
    best: dict[tuple[str, Place], Shot] = {}
    for shot in shots:
        key = (shot.capture.item, shot.place)
        if key not in best or _rank(shot) > _rank(best[key]):
            best[key] = shot
    return best


def _rank(shot: Shot) -> tuple[bool, bool, bool, float]:
    blur_px = shot.capture.blur_px
    return shot.taken, shot.sharp, shot.shown_pose is not None, -blur_px if math.isfinite(blur_px) else -math.inf


class _Places:
    """Puts the exposures of one flight into the plan's coordinates."""

    def __init__(self, messages: sr.Messages, plan: FlownPlan) -> None:
        self._plan = plan
        self._states = [state for state in sr.of(messages, State) if state.valid]
        self._stamps = sr.stamps(self._states)
        take_off = take_off_of(messages, plan.satellites)
        self._takeoff_W = take_off.p_W
        truths = sr.of(messages, Truth)
        self._true_takeoff_W: Array | None = None
        if truths and self._takeoff_W is not None:
            at = int(np.searchsorted(sr.stamps(truths), take_off.noted_s))
            self._true_takeoff_W = np.array(truths[min(at, len(truths) - 1)].p_W)

    def estimated(self, capture: Capture) -> CameraPose | None:
        """The camera as the filter estimated it; None: unknown."""
        item = self._plan.find(capture.item)
        if item is None or not capture.valid:
            return None
        return self._in_plan(item.frame, self._in_frame(capture, item.frame))

    def _in_frame(self, capture: Capture, frame: str) -> CameraPose | None:
        if frame == WORLD:
            pose = _pose(capture.p_WC, capture.q_WC)
            return None if pose is None or self._takeoff_W is None else pose._replace(p_W=pose.p_W - self._takeoff_W)
        if capture.bundle == frame:
            return _pose(capture.p_MC, capture.q_MC)
        bundle = self._bundle(frame, capture.stamp_s)
        pose = _pose(capture.p_WC, capture.q_WC)
        return None if bundle is None or pose is None else _relative(*bundle, pose)

    def true(self, capture: Capture, truth: CaptureTruth) -> CameraPose | None:
        """Where the camera truly was, the frames of the plan standing where they truly stand."""
        item, pose = self._plan.find(capture.item), _pose(truth.p_WC, truth.q_WC)
        if item is None or pose is None:
            return None
        if item.frame != WORLD:
            bundle = truth.bundles.get(item.frame)
            return None if bundle is None else self._in_plan(item.frame, _relative(*bundle, pose))
        if self._true_takeoff_W is None:
            return None
        return pose._replace(p_W=pose.p_W - self._true_takeoff_W)

    def site_error(self, capture: Capture, truth: CaptureTruth) -> PoseError | None:
        """In the frame of the marker file's first bundle, which stands for the site: over its map."""
        bundles = self._plan.planning.site.bundle
        name = bundles[0].name if bundles else ""
        estimated, true = _pose(capture.p_WC, capture.q_WC), _pose(truth.p_WC, truth.q_WC)
        mapped = self._bundle(name, capture.stamp_s)
        if name not in truth.bundles or mapped is None or estimated is None or true is None:
            return None
        return _difference(_relative(*mapped, estimated), _relative(*truth.bundles[name], true))

    def _in_plan(self, frame: str, pose: CameraPose | None) -> CameraPose | None:
        if pose is None:
            return None
        place = frame_of(frame, self._plan.planning, "")
        return CameraPose(place.p_W + place.R_WF @ pose.p_W, place.R_WF @ pose.R_WC)

    def _bundle(self, name: str, stamp_s: float) -> tuple[Vec3, Quat] | None:
        """Where the filter estimated a bundle to stand; None: it did not know."""
        if not self._states:
            return None
        after = int(np.searchsorted(self._stamps, stamp_s))
        near = [i for i in (after - 1, after) if 0 <= i < len(self._states)]
        state = self._states[min(near, key=lambda i: abs(self._stamps[i] - stamp_s))]
        if abs(state.stamp_s - stamp_s) > STATE_AGE_MAX_S:
            return None
        if state.bundle == name:
            return state.p_WM, state.q_WM
        return next(((b.p_WM, b.q_WM) for b in state.bundles if b.name == name), None)


def _pose(p: Vec3, q: Quat) -> CameraPose | None:
    """None where it is not known."""
    if not all(map(math.isfinite, (*p, *q))) or not any(q):
        return None
    return CameraPose(np.array(p), rotation_matrix(q))


def _relative(p_WM: Vec3, q_WM: Quat, pose: CameraPose) -> CameraPose:
    """A pose of the world in the frame M."""
    R = rotation_matrix(q_WM)
    return CameraPose(R.T @ (pose.p_W - np.array(p_WM)), R.T @ pose.R_WC)


def _bundle_error(capture: Capture, truth: CaptureTruth) -> PoseError | None:
    """In the frame of the nearest bundle seen."""
    estimated, true = _pose(capture.p_MC, capture.q_MC), _pose(truth.p_WC, truth.q_WC)
    if capture.bundle not in truth.bundles or estimated is None or true is None:
        return None
    return _difference(estimated, _relative(*truth.bundles[capture.bundle], true))


def _difference(estimated: CameraPose, true: CameraPose) -> PoseError:
    turn = true.R_WC.T @ estimated.R_WC
    sine = 0.5 * math.sqrt(sum((turn[i, j] - turn[j, i]) ** 2 for i, j in ((0, 1), (0, 2), (1, 2))))
    angle = math.atan2(sine, (float(np.trace(turn)) - 1) / 2)
    return PoseError(float(np.linalg.norm(estimated.p_W - true.p_W)), angle)
