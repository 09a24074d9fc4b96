"""A made-up inspection: a flight of a plan with known pose errors, its photographs drawn from known textures."""

import math
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np

from companion.core import messages as ms
from companion.core.config import load
from companion.core.frames import quat_exp, quat_from_matrix, quat_from_rpy, rotation_matrix
from companion.core.vehicle import Vehicle
from companion.mission.plan import Plan, load_plan, site_of
from companion.planning.camera import CameraPose, load_camera
from companion.planning.stations import Planning, frame_of
from companion.recording.inspection import FlownPlan, make_plan_of
from companion.recording.recorder import RecorderNode
from companion.recording.writer import LogWriter
from companion.runtime.flight_record import flight_metadata

ROOT = Path(__file__).parents[2]
MISSION = Path(__file__).with_name(
    "inspection_mission.toml"
)  # the figures of these tests are those of its 36 photographs
VEHICLE = ROOT / "config/vehicles/f550_transit.toml"
TEXEL_M = 0.02
MARGIN_M = 3.0  # of the textures beyond their surfaces
START_S = 1000.0
TAKEOFF_W = (0.4, -0.3, 0.2)  # in the estimator's world
HOLD_STD_M, HOLD_STD_RAD = 0.04, 0.01  # true pose against the plan


class Made(NamedTuple):
    """What to make of a plan."""

    skipped: frozenset[int] = frozenset()  # ids
    refused: frozenset[int] = frozenset()
    blurred: frozenset[int] = frozenset()
    late: frozenset[int] = frozenset()  # first "lost", then answered
    only: frozenset[int] | None = None
    error: tuple[float, float] = (0.01, 0.002)  # estimated against true [m, rad], standard deviations
    width_px: int = 300  # of a drawn photograph; the sensor has twenty times as many pixels along a side
    truth: bool = True
    gnss: tuple[float, float, float] | None = (34.0007, -81.0348, 60.0)
    clocks_s: tuple[float, ...] = ()  # UTC minus companion time as the payload process reports it, one after the other


ALL = Made()


def plan_of(mission: Path = MISSION) -> tuple[Plan, FlownPlan]:
    plan = load_plan(mission)
    assert plan.inspection is not None
    camera = load_camera(str(mission.parent / plan.inspection.camera))
    planning = Planning(
        plan.inspection, camera, site_of(plan), mission.parent, load(VEHICLE, Vehicle).safety.standoff_min_m
    )
    return plan, make_plan_of(plan.name, planning, plan.satellites, str(mission))


@lru_cache
def texture(number: int, size_m: tuple[float, float]) -> np.ndarray:
    """A concrete face with joints and stains; row 0 is its upper edge. (h, w, 3)."""
    rng = np.random.default_rng(number)
    width, height = (math.ceil((length + 2 * MARGIN_M) / TEXEL_M) for length in size_m)
    base = np.full((height, width), 168.0)
    for cells, amount in ((6, 16), (20, 12), (70, 10)):
        noise = rng.normal(size=(max(2, height * cells // width), cells)).astype(np.float32)
        base += amount * cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC)
    picture = np.dstack([base - 6, base - 1, base + 3])
    for offset in range(0, max(width, height), round(1.0 / TEXEL_M)):
        cv2.line(picture, (0, offset), (width, offset), (118, 122, 126), 1)
        cv2.line(picture, (offset, 0), (offset, height), (118, 122, 126), 1)
    for _ in range(12):
        centre = (int(rng.integers(width)), int(rng.integers(height)))
        axes = (int(rng.integers(3, 18)), int(rng.integers(8, 50)))
        cv2.ellipse(picture, centre, axes, float(rng.uniform(-20, 20)), 0, 360, (96, 108, 122), -1)
    return np.clip(cv2.GaussianBlur(picture, (0, 0), 1.0), 0, 255).astype(np.uint8)


def textures(plan: FlownPlan) -> list[np.ndarray | None]:
    """By item; None for viewpoints."""
    return [None if item.surface is None else texture(n, item.surface.size_m) for n, item in enumerate(plan.items)]


def colour_at(picture: np.ndarray, size_m: tuple[float, float], uv: np.ndarray) -> np.ndarray:
    """The texture at coordinates of its surface; uv: (h, w, 2)."""
    x = (uv[..., 0] + size_m[0] / 2 + MARGIN_M) / TEXEL_M - 0.5
    y = (size_m[1] / 2 + MARGIN_M - uv[..., 1]) / TEXEL_M - 0.5
    return cv2.remap(
        picture, x.astype(np.float32), y.astype(np.float32), cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT
    )


def photograph(plan: FlownPlan, pictures: list[np.ndarray], number: int, pose: CameraPose, width_px: int) -> np.ndarray:
    """What the camera sees of one surface and the plane that it lies in."""
    surface, camera = plan.items[number].surface, plan.planning.camera
    if surface is None:
        return np.full((2 * width_px // 3, width_px, 3), 128, np.uint8)
    fx, fy = camera.focal_px
    height_px = round(width_px * camera.height_px / camera.width_px)
    x = ((np.arange(width_px) + 0.5) / width_px - 0.5) * camera.width_px / fx
    y = ((np.arange(height_px) + 0.5) / height_px - 0.5) * camera.height_px / fy
    rays = np.dstack([*np.meshgrid(x, y), np.ones((height_px, width_px))]) @ pose.R_WC.T
    along = (surface.n @ (surface.centre - pose.p_W)) / (rays @ surface.n)
    offset = pose.p_W + along[..., None] * rays - surface.centre
    return colour_at(pictures[number], surface.size_m, np.dstack([offset @ surface.x, offset @ surface.y]))


def disturbed(pose: CameraPose, rng: np.random.Generator, std: tuple[float, float]) -> CameraPose:
    turn = rotation_matrix(quat_exp(rng.normal(size=3) * std[1]))
    return CameraPose(pose.p_W + rng.normal(size=3) * std[0], pose.R_WC @ turn)


def make_log(path: Path, made: Made = ALL, seed: int = 1, mission: Path = MISSION, folder: Path | None = None) -> Path:
    """Write the log of a flight, and its photographs into a folder beside it (or another one)."""
    plan, flown = plan_of(mission)
    rng = np.random.default_rng(seed)
    pictures = textures(flown)
    beside = folder or path.parent / f"{path.stem}_camera"
    beside.mkdir(parents=True, exist_ok=True)
    bundles = {place.name: (place.p_m, place.rpy_rad) for place in plan.inspection.bundle}
    messages: list[ms.Message] = [
        state(START_S, bundles),
        status(START_S + 0.5, made, armed=False),
        status(START_S + 1, made, True),
    ]
    if made.truth:
        messages.append(truth(START_S))
    number, stamp_s, count = 0, START_S + 20.0, 0
    for index, item in enumerate(flown.items):
        for place in sorted(item.planned):
            number += 1
            stamp_s += 4.0
            if number in made.skipped or (made.only is not None and number not in made.only):
                continue
            messages.append(state(stamp_s, bundles))
            common = {"id": number, "item": item.name, "row": place[0], "column": place[1]}
            if number in made.refused:
                unknown = capture_fields(None, None, bundles, flown, item.frame)
                messages.append(ms.Capture(stamp_s=stamp_s, attempt=1, outcome="refused", reason="the camera is busy", valid=False,
                                           image_index=-1, file="", blur_px=0.2, gsd_m=math.nan, **common, **unknown))  # fmt: skip
                continue
            true = disturbed(item.planned[place].pose, rng, (HOLD_STD_M, HOLD_STD_RAD))
            estimated = disturbed(true, rng, made.error)
            count += 1
            name = f"{beside.name}/IMG_{count:04d}.JPG"
            cv2.imwrite(str(beside / f"IMG_{count:04d}.JPG"), photograph(flown, pictures, index, true, made.width_px))
            poses = capture_fields(estimated, true, bundles, flown, item.frame)
            blurred = number in made.blurred
            found = ms.Capture(stamp_s=stamp_s, attempt=1, outcome="blurred" if blurred else "taken",
                               reason="the aircraft moved" if blurred else "", image_index=count, file=name,
                               blur_px=1.6 if blurred else 0.3, gsd_m=8.5e-4, distance_m=5.0, **common, **poses)  # fmt: skip
            if number in made.late:
                lost = {"outcome": "lost", "reason": "no answer", "file": "", "image_index": -1}
                messages.append(ms.Capture(**{f: getattr(found, f) for f in found.__struct_fields__} | lost))
            messages.append(found)
            if made.truth:
                q = tuple(quat_from_matrix(true.R_WC).tolist())
                messages.append(ms.CaptureTruth(stamp_s=stamp_s, image_index=count, p_WC=tuple(true.p_W.tolist()), q_WC=q,
                                                blur_px=1.7 if blurred else 0.4, bundles=in_world(bundles)))  # fmt: skip
    messages += [
        ms.PayloadStatus(stamp_s=stamp_s + 1.0 + n, connected=True, problem="", utc_offset_s=offset_s)
        for n, offset_s in enumerate(made.clocks_s)
    ]
    metadata = flight_metadata(VEHICLE, mission, run={"kind": "lockstep", "seed": seed})
    recorder = RecorderNode(
        LogWriter(path, metadata | {"start_s": str(START_S), "start_time": "2026-11-23T09:00:00+00:00"})
    )
    for message in messages:
        recorder.handle(message, message.stamp_s)
    recorder.close()
    return path


def in_world(bundles: dict) -> dict:
    return {name: (p, tuple(quat_from_rpy(*rpy).tolist())) for name, (p, rpy) in bundles.items()}


def capture_fields(estimated, true, bundles: dict, flown: FlownPlan, frame: str) -> dict:
    """Poses of a capture: in the world, which is shifted, and in the frame of the bundle of its item."""
    nan3, nan4 = (math.nan,) * 3, (math.nan,) * 4
    std = {"position_std_m": 0.01, "attitude_std_rad": 0.002}
    if estimated is None:
        return {"p_WC": nan3, "q_WC": nan4, "bundle": "", "p_MC": nan3, "q_MC": nan4, **std}
    bundle = frame if frame in bundles else next(iter(bundles))
    place = frame_of(bundle, flown.planning, "")
    q = tuple(quat_from_matrix(estimated.R_WC).tolist())
    p_M = place.R_WF.T @ (estimated.p_W - place.p_W)
    q_M = quat_from_matrix(place.R_WF.T @ estimated.R_WC)
    shifted = tuple((estimated.p_W + TAKEOFF_W).tolist())
    return {
        "p_WC": shifted,
        "q_WC": q,
        "bundle": bundle,
        "p_MC": tuple(p_M.tolist()),
        "q_MC": tuple(q_M.tolist()),
        **std,
    }


def state(stamp_s: float, bundles: dict) -> ms.State:
    shifted = {name: (tuple((np.array(p) + TAKEOFF_W).tolist()), q) for name, (p, q) in in_world(bundles).items()}
    (first, place), *others = shifted.items()
    zero = (0.0, 0.0, 0.0)
    return ms.State(stamp_s=stamp_s, p_W=TAKEOFF_W, v_W=zero, q_WB=(1.0, 0.0, 0.0, 0.0), disturbance_W=zero, gnss_bias_W=zero,
                    velocity_bias_W=zero, bundle=first, p_WM=place[0], q_WM=place[1], marker_age_s=0.1, position_std_m=0.1,
                    relative_std_m=0.02, covariance_diag=(0.01,) * 31, battery_voltage_v=15.0, reset_count=0,
                    bundles=tuple(ms.MapBundle(name, p, q, 0.1) for name, (p, q) in others))  # fmt: skip


def status(stamp_s: float, made: Made, armed: bool) -> ms.FcuStatus:
    return ms.FcuStatus(stamp_s=stamp_s, connected=True, armed=armed, mode="OFFBOARD", landed=not armed, battery_voltage_v=15.1,
                        battery_remaining=0.9, rc_ok=True, rc_channels_us=(1500,) * 8, gnss_ok=True, home_W=None,
                        timesync_offset_s=0.0, timesync_rtt_s=0.002, link_errors=0, gnss_position=made.gnss)  # fmt: skip


def truth(stamp_s: float) -> ms.Truth:
    zero = (0.0, 0.0, 0.0)
    return ms.Truth(stamp_s=stamp_s, p_W=zero, v_W=zero, q_WB=(1.0, 0.0, 0.0, 0.0), omega_B=zero, disturbance_W=zero,
                    gnss_bias_W=zero, bundles={}, battery_voltage_v=15.0, motor_thrust_n=(3.0,) * 6)  # fmt: skip
