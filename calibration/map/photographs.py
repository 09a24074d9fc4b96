"""Poses of an inspection's photographs by the bundle adjustment of the whole flight, in the frame of the nearest bundle.

The filter knows at each photograph what was measured until then. The adjustment also knows what came later: mount, lens, sizes of the prints
and biases are those that fit the whole flight, and the slow errors of the corners average. Where the pictures are there, the markers that they show are
measured in them (`pictures`): the heading of the navigation camera's mount, which only accelerations show otherwise, then follows from them.

The aircraft's pose at an exposure follows from the nearest image by the inertial samples between them (`exposures`). With a gimbal the picture is level by
the gimbal's own sensor, so the adjustment only changes its heading; a camera that is fixed to the body turns with it.
"""

import bisect
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from calibration.logs import messages
from calibration.map.adjust import Adjusted, FlightData, adjust
from calibration.map.camera_file import contradictions
from calibration.map.flight_log import MapLog, read_map_log, state_at
from calibration.map.picture_markers import Centre, PictureFolder, listed, read_pictures
from calibration.map.pictures import WIDTH_PX, PayloadErrors, Photographs
from calibration.map.rotations import exp, log
from calibration.map.unknowns import PER_PAYLOAD
from calibration.results import DataError
from companion.core.arrays import Array
from companion.core.config import parse
from companion.core.enums import CaptureOutcome
from companion.core.frames import quat_from_matrix, quat_normalized, rotation_matrix
from companion.core.messages import Capture, CaptureTruth, State
from companion.core.site import Site, load_site
from companion.payload.history import interpolated
from companion.planning.camera import PayloadCamera
from companion.recording.log import Log, read_log

EVERY_S = 0.5  # images that are used: half of those for a map, so that a flight with many markers takes a minute
FREEDOM_MIN = 5.0  # residuals beyond the unknowns, from which the noise of the centres is a figure
ROUNDS = 5  # of outliers and noise
FROM_IMAGE_S = 0.3  # between an exposure and the nearest image of the adjustment, at most
STATE_AGE_S = 0.1
PICTURES = (CaptureOutcome.TAKEN, CaptureOutcome.BLURRED)


class RefinedPose(NamedTuple):
    """The camera in the frame of the nearest bundle at one exposure.

    covariance (6, 6): of p_MC [m²], then of the rotation about the axes of M [rad²].
    """

    capture: Capture
    bundle: str
    p_MC: Array
    R_MC: Array
    covariance: Array

    @property
    def q_MC(self) -> Array:
        return quat_from_matrix(self.R_MC)

    @property
    def position_std_m(self) -> float:
        """The largest over all directions."""
        return float(np.sqrt(np.linalg.eigvalsh(self.covariance[:3, :3])[-1]))

    @property
    def attitude_std_rad(self) -> float:
        """The largest over all axes."""
        return float(np.sqrt(np.linalg.eigvalsh(self.covariance[3:, 3:])[-1]))


class PoseErrors(NamedTuple):
    """Of one photograph of a simulated flight, as taken in flight and refined [m], [rad]."""

    flown_m: float
    flown_rad: float
    refined_m: float
    refined_rad: float


@dataclass(frozen=True)
class RefinedPhotographs:
    """The photographs of a flight; left_out: reason by number; errors: of a simulated flight, empty of another; notes: what the
    log or the pictures lack; with_markers: numbers of the photographs in whose pictures markers count; picture_px: the noise of their centres in
    pixels of a picture of `WIDTH_PX`."""

    flight: Adjusted
    poses: list[RefinedPose]
    left_out: dict[int, str]
    errors: list[PoseErrors]
    notes: list[str]
    with_markers: tuple[int, ...] = ()

    @property
    def picture_px(self) -> float | None:
        """None where too few residuals show it, as with one marker in each picture."""
        shows = self.with_markers and self.flight.picture_freedom >= FREEDOM_MIN
        return self.flight.noise.picture_px if shows else None


def refine(
    path: Path,
    site_file: Path | None = None,
    vehicle_file: Path | None = None,
    pictures: PictureFolder | None = None,
) -> RefinedPhotographs:
    """The refined poses of a flight's photographs; site_file: None takes the marker file that the log holds.

    Raises `UserError` where the flight has no photographs, sees no bundle long enough, or the pictures are not its own.
    """
    flight = read_log(path, ("capture", "capture_truth", "state", "payload"))
    captures = newest({(c.id, c.attempt): c for c in messages(flight, Capture)}.values())
    if not captures:
        raise DataError(f"{path}: holds no photographs of a payload camera")
    camera_tables, site_tables = flight.tables("payload_camera"), flight.tables("site")
    if camera_tables is None:
        raise DataError(f"{path}: holds no camera file (an earlier version)")
    camera = parse(camera_tables, PayloadCamera, f"{path}: camera in the log")
    if site_file is not None:
        site = load_site(site_file)
    elif site_tables is not None:
        site, site_file = parse(site_tables, Site, f"{path}: site in the log"), path
    else:
        raise DataError(f"{path}: holds no marker file (an earlier version): name it with --site")
    found = None if pictures is None else read_pictures(pictures, flight, captures, camera, site, vehicle_file)
    read = read_map_log(path, site, site_file, vehicle_file, bundles_min=1, every_s=EVERY_S)
    if read.data is None:
        raise DataError(f"{path}: no bundle was seen long enough for poses of photographs")
    states = [s for s in messages(flight, State) if s.valid]
    taken = usable(captures, read.data.t_s, states)
    left_out = {c.id: "no image near its exposure" for c in captures if c not in taken}
    surveys = {b.name: b.survey for b in site.bundle if b.survey is not None and b.name in read.data.bundles}
    data = replace(read.data, surveys=surveys)
    adjusted = adjust(with_photographs(data, taken, states, camera, found.centres if found else {}), ROUNDS)
    poses = refined(adjusted, taken)
    notes = [*read.notes, *(found.notes if found else ())]
    notes += [
        f"{site_file}: bundle '{name}' does not stand where its survey says: {clause}: that survey is not used"
        for name, clause in adjusted.misplaced.items()
    ]
    counted = seen_in(adjusted, taken)
    if found is not None:
        notes += unused_markers(read, taken, found.centres, counted)
        notes += contradictions(adjusted, camera, path)
    return RefinedPhotographs(adjusted, poses, left_out, _errors(flight, poses), notes, counted)


def newest(captures: Iterable[Capture]) -> list[Capture]:
    """The best picture of each photograph, a sharp one before a blurred one, the last of several."""
    best: dict[int, Capture] = {}
    for capture in captures:
        if capture.outcome not in PICTURES or not capture.valid:
            continue
        known = best.get(capture.id)
        if known is None or capture.outcome == CaptureOutcome.TAKEN or known.outcome != CaptureOutcome.TAKEN:
            best[capture.id] = capture
    return [best[number] for number in sorted(best)]


def usable(captures: Sequence[Capture], t_s: Array, states: list[State]) -> list[Capture]:
    """The photographs that an image of the adjustment and a valid state are near; t_s (k,): of the images, states in their order."""
    return [
        c
        for c in captures
        if np.abs(t_s - c.stamp_s).min() <= FROM_IMAGE_S
        and abs(state_at(states, c.stamp_s).stamp_s - c.stamp_s) <= STATE_AGE_S
    ]


def with_photographs(
    data: FlightData,
    captures: Sequence[Capture],
    states: list[State],
    camera: PayloadCamera,
    centres: Mapping[tuple[int, int], Sequence[Centre]],
) -> FlightData:
    """A flight with its usable photographs, unchanged where there are none; centres: of the markers in their pictures, by number and attempt."""
    if not captures:
        return data  # the flight alone: a camera without photographs has no unknowns
    n, control = len(captures), camera.control
    has_gimbal = control is not None and control.gimbal_component_id is not None
    late_s = 0.0 if control is None else control.shutter_delay_std_s
    time_s = np.array([c.time_std_s if math.isfinite(c.time_std_s) else late_s for c in captures])
    mount_rad = 0.0 if control is None else control.mount_std_rad
    gimbal_rad = (control.gimbal_std_rad or 0.0) if control is not None and has_gimbal else 0.0
    R_HC = np.zeros((n, 3, 3))
    for i, capture in enumerate(captures):
        R_WB = _flown(states, capture.stamp_s)
        R_WH = exp(np.array([0.0, 0.0, np.arctan2(R_WB[1, 0], R_WB[0, 0])])) if has_gimbal else R_WB
        R_HC[i] = R_WH.T @ rotation_matrix(quat_normalized(capture.q_WC))
    seen = [[c for c in centres.get((c_.id, c_.attempt), ()) if c.bundle in data.bundles] for c_ in captures]
    m = max([1, *(len(found) for found in seen)])
    bundle, is_seen = np.zeros((n, m), dtype=np.int64), np.zeros((n, m), dtype=bool)
    centre_M, xy_px = np.zeros((n, m, 3)), np.zeros((n, m, 2))
    for i, found in enumerate(seen):
        for j, centre in enumerate(found):
            bundle[i, j], is_seen[i, j] = data.bundles.index(centre.bundle), True
            centre_M[i, j], xy_px[i, j] = centre.p_M, centre.xy_px
    photographs = Photographs(
        np.array([c.stamp_s for c in captures]),
        R_HC,
        has_gimbal,
        np.array(camera.p_BC),
        np.array(camera.focal_px) * WIDTH_PX / camera.width_px,
        PayloadErrors(mount_rad, gimbal_rad, time_s),
        *(bundle, centre_M, is_seen, xy_px),
    )
    return replace(data, photographs=photographs, start=replace(data.start, payload=np.zeros(PER_PAYLOAD)))


def _flown(states: list[State], t_s: float) -> Array:
    """R_WB by the states of the flight at a time, between the two around it."""
    after = min(max(bisect.bisect_left(states, t_s, key=lambda state: state.stamp_s), 1), len(states) - 1)
    first, second = states[max(0, after - 1)], states[after]
    span_s = second.stamp_s - first.stamp_s
    share = min(max((t_s - first.stamp_s) / span_s, 0.0), 1.0) if 0.0 < span_s <= STATE_AGE_S else 0.0
    near = state_at(states, t_s) if not share else first
    return rotation_matrix(interpolated(quat_normalized(near.q_WB), quat_normalized(second.q_WB), share))


def refined(adjusted: Adjusted, captures: Sequence[Capture]) -> list[RefinedPose]:
    """The poses of the photographs of an adjusted flight, in the frames of their bundles, or of the nearest."""
    placed, u, names = adjusted.photographs, adjusted.unknowns, adjusted.data.bundles
    if placed is None:
        return []
    poses = []
    for i, capture in enumerate(captures):
        distances = np.linalg.norm(u.p_WM - placed.cameras.p_WC[i], axis=1)
        b = names.index(capture.bundle) if capture.bundle in names else int(np.argmin(distances))
        found = placed.in_bundle(i, b)
        covariance = found.jacobian @ adjusted.solver.solve(found.jacobian.T) + found.own
        poses.append(RefinedPose(capture, names[b], found.p_MC, found.R_MC, covariance))
    return poses


def seen_in(adjusted: Adjusted, captures: Sequence[Capture]) -> tuple[int, ...]:
    """The numbers of the photographs in whose pictures markers count."""
    placed = adjusted.photographs
    if placed is None:
        return ()
    return tuple(c.id for c, seen in zip(captures, placed.photographs.seen, strict=True) if seen.any())


def unused_markers(
    read: MapLog,
    captures: Sequence[Capture],
    centres: Mapping[tuple[int, int], Sequence[Centre]],
    counted: Sequence[int],
) -> list[str]:
    """Why markers in the pictures do not count: their bundle is not in the adjustment, or none of a picture fits; counted: as of `seen_in`."""
    assert read.data is not None
    of_bundle: dict[str, list[Capture]] = {}
    misfits = []
    for capture in captures:
        names = {centre.bundle for centre in centres.get((capture.id, capture.attempt), ())}
        for name in sorted(names.difference(read.data.bundles)):
            of_bundle.setdefault(name, []).append(capture)
        if names.intersection(read.data.bundles) and capture.id not in counted:
            misfits.append(capture)
    notes = [
        f"{read.path}: bundle '{name}', {read.left_out.get(name, 'not seen by the navigation camera')}: its markers in the pictures of "
        f"{listed(shown)} are not used"
        for name, shown in of_bundle.items()
    ]
    if misfits:
        notes.append(f"{listed(misfits)}: no marker of the picture fits the flight: not used")
    return notes


def _errors(flight: Log, poses: list[RefinedPose]) -> list[PoseErrors]:
    truths = {truth.image_index: truth for truth in messages(flight, CaptureTruth)}
    found = []
    for pose in poses:
        capture = pose.capture
        truth = truths.get(capture.image_index)
        if truth is None or pose.bundle not in truth.bundles:
            continue
        p_WM, q_WM = truth.bundles[pose.bundle]
        R_MW = rotation_matrix(q_WM).T
        p_MC, R_MC = R_MW @ (np.array(truth.p_WC) - p_WM), R_MW @ rotation_matrix(truth.q_WC)
        flown_m = float(np.linalg.norm(np.array(capture.p_MC) - p_MC)) if capture.bundle == pose.bundle else np.nan
        flown_rad = float(np.linalg.norm(log(R_MC.T @ rotation_matrix(quat_normalized(capture.q_MC)))))
        refined = float(np.linalg.norm(pose.p_MC - p_MC)), float(np.linalg.norm(log(R_MC.T @ pose.R_MC)))
        found.append(PoseErrors(flown_m, flown_rad, *refined))
    return found
