"""Poses of an inspection's photographs by the bundle adjustment of the whole flight, in the frame of the nearest bundle.

The filter knows at each photograph what was measured until then. The adjustment also knows what came later: mount, lens, sizes of the prints
and biases are those that fit the whole flight, and the slow errors of the corners average.

The aircraft's pose at an exposure follows from the nearest image by the inertial samples between them. With a gimbal the picture is level by
the gimbal's own sensor, so the adjustment only changes its heading; a camera that is fixed to the body turns with it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from calibration.logs import messages
from calibration.map.adjust import Adjusted, adjust
from calibration.map.flight_log import read_map_log, state_at
from calibration.map.motion import GRAVITY_W
from calibration.map.preintegration import preintegrate
from calibration.map.rotations import cross, exp, log
from calibration.map.unknowns import ATTITUDE, PER_IMAGE, PLACE, POSITION, TURN, VELOCITY
from calibration.results import DataError
from companion.core.arrays import Array
from companion.core.config import parse
from companion.core.enums import CaptureOutcome
from companion.core.frames import quat_from_matrix, quat_normalized, rotation_matrix
from companion.core.messages import Capture, CaptureTruth, State
from companion.core.site import Site, load_site
from companion.planning.camera import PayloadCamera
from companion.recording.log import Log, read_log

EVERY_S = 0.5  # images that are used: half of those for a map, so that a flight with many markers takes a minute
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
    log lacks."""

    flight: Adjusted
    poses: list[RefinedPose]
    left_out: dict[int, str]
    errors: list[PoseErrors]
    notes: list[str]


def refine(path: Path, site_file: Path | None = None, vehicle_file: Path | None = None) -> RefinedPhotographs:
    """The refined poses of a flight's photographs; site_file: None takes the marker file that the log holds.

    Raises `DataError` or `LogError` where the flight has no photographs, or sees no bundle long enough.
    """
    flight = read_log(path, ("capture", "capture_truth", "state"))
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
    read = read_map_log(path, site, site_file, vehicle_file, bundles_min=1, every_s=EVERY_S)
    if read.data is None:
        raise DataError(f"{path}: no bundle was seen long enough for poses of photographs")
    adjusted = adjust(read.data, ROUNDS)
    states = [s for s in messages(flight, State) if s.valid]
    poses, left_out = [], {}
    for capture in captures:
        found = refined_pose(capture, adjusted, camera, states)
        if isinstance(found, str):
            left_out[capture.id] = found
        else:
            poses.append(found)
    return RefinedPhotographs(adjusted, poses, left_out, _errors(flight, poses), read.notes)


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


def refined_pose(capture: Capture, adjusted: Adjusted, camera: PayloadCamera, states: list[State]) -> RefinedPose | str:
    """The pose of one photograph; a sentence where the flight does not determine it. states: valid ones, in their order."""
    u, data, t_s = adjusted.unknowns, adjusted.data, adjusted.t_s
    image = int(np.argmin(np.abs(t_s - capture.stamp_s)))
    apart_s = capture.stamp_s - float(t_s[image])
    state = state_at(states, capture.stamp_s)
    if abs(apart_s) > FROM_IMAGE_S or abs(state.stamp_s - capture.stamp_s) > STATE_AGE_S:
        return "no image near its exposure"
    R_WB, p_W = carried(adjusted, image, capture.stamp_s)
    distances = np.linalg.norm(u.p_WM - p_W, axis=1)
    b = data.bundles.index(capture.bundle) if capture.bundle in data.bundles else int(np.argmin(distances))
    R_WM, p_WM = u.R_WM[b], u.p_WM[b]
    # the state lies a few milliseconds beside the exposure: its rotation since then is in both
    flown_R_WB = rotation_matrix(quat_normalized(state.q_WB))
    at_state, _ = carried(adjusted, image, state.stamp_s)
    change = at_state @ flown_R_WB.T
    control = camera.control
    gimbal = control is not None and control.gimbal_component_id is not None
    if gimbal:
        change = exp(np.array([0.0, 0.0, _heading(at_state) - _heading(flown_R_WB)]))
    R_WC = change @ rotation_matrix(quat_normalized(capture.q_WC))
    lever_B = np.array(camera.p_BC)
    R_MC, p_MC = R_WM.T @ R_WC, R_WM.T @ (p_W + R_WB @ lever_B - p_WM)
    by_turn = R_WM.T @ R_WB if not gimbal else np.outer(R_WM.T[:, 2], R_WB[2])
    J = np.zeros((6, u.size))
    at, bundle = PER_IMAGE * image, u.first_of_bundle(b)
    J[:3, _of(at, ATTITUDE)] = -R_WM.T @ R_WB @ cross(lever_B)
    J[:3, _of(at, POSITION)], J[:3, _of(at, VELOCITY)] = R_WM.T, apart_s * R_WM.T
    J[:3, _of(bundle, PLACE)], J[:3, _of(bundle, TURN)] = -R_WM.T, cross(p_MC)
    J[3:, _of(at, ATTITUDE)], J[3:, _of(bundle, TURN)] = by_turn, -np.eye(3)
    covariance = J @ adjusted.solver.solve(J.T)
    if control is not None:
        own = control.mount_std_rad**2 + (control.gimbal_std_rad or 0.0) ** 2 * gimbal
        covariance[3:, 3:] += own * np.eye(3)
    return RefinedPose(capture, data.bundles[b], p_MC, R_MC, covariance)


def _of(first: int, part: slice) -> slice:
    return slice(first + part.start, first + part.stop)


def carried(adjusted: Adjusted, image: int, to_s: float) -> tuple[Array, Array]:
    """Attitude and position at a time near an image, by the inertial samples between."""
    u, from_s = adjusted.unknowns, float(adjusted.t_s[image])
    R, p, v = u.R_WB[image], u.p_W[image], u.v_W[image]
    if abs(to_s - from_s) < 1e-4:
        return R, p
    times = np.array(sorted((from_s, to_s)))
    step = preintegrate(adjusted.data.samples, times, u.gyro_bias[image : image + 1], u.accel_bias[image : image + 1])
    dt = to_s - from_s
    if dt > 0:
        return R @ step.R[0], p + v * dt + GRAVITY_W * dt**2 / 2 + R @ step.p[0]
    # backwards: p_0 = p_1 - v_0 Δt - g Δt²/2 - R_0 Δp with v_0 = v_1 - g Δt - R_0 Δv
    R_0 = R @ step.R[0].T
    v_0 = v + GRAVITY_W * dt - R_0 @ step.v[0]
    return R_0, p + v_0 * dt - GRAVITY_W * dt**2 / 2 - R_0 @ step.p[0]


def _heading(R_WB: Array) -> float:
    return float(np.arctan2(R_WB[1, 0], R_WB[0, 0]))


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
