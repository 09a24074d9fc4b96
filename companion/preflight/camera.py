"""Checks of the camera on live images: it opens, its rate, its delay, and whether the markers are visible."""

import statistics
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from companion.core.clock import monotonic_s
from companion.core.config import ConfigError
from companion.core.enums import ProcessName
from companion.core.messages import TOPICS, Image, Markers
from companion.core.vehicle import Vehicle
from companion.mission.plan import Plan, site_of
from companion.preflight.observation import within
from companion.preflight.report import PreflightCheck, failed, ok, skipped, warning, worst
from companion.preflight.running_stack import RESTART
from companion.runtime.nodes import LoadedFiles, build_node
from companion.tracking.cameras import RATE_TOLERANCE, Source
from companion.tracking.tracker import FROZEN_IMAGES, REPEATED_SHARE, TrackerNode

NAMES = ("camera", "camera latency", "camera shutter", "marker")
NO_BUNDLE = "the mission flies without a bundle"
OPEN_TIMEOUT_S = 30.0  # a device is tried in several formats, and some need seconds for their first image
WATCH_S = 3.0
SLOW = 0.5  # of the wanted rate
JITTER_MAX_S = 0.010  # at 1 m/s a centimetre
SHUTTER_RATE_RAD_S = 0.4  # a turn of a search, or a gust
SHUTTER_SHARE = 1 / 3  # of the height of the picture: a bundle that is seen well
SHUTTER_NOISE = 3.0  # times the noise of a corner, below which the skew does not count
LATENCY_MIN_S = 0.005  # no camera is faster from mid-exposure to arrival: half an exposure and the transfer
CONTRAST_MIN = 2.0  # standard deviation of the grey values; less is a lens cap, night, or glare
SEEN_SHARE = 0.5  # of the images; from this share on the bundle counts as visible


class Images(NamedTuple):
    """What a camera delivered."""

    images: list[Image]  # the newest, one in every `every`
    arrivals_s: list[float]  # of all
    trouble: str  # the source's last error, or ""
    ended: bool


def camera_checks(
    vehicle: Vehicle,
    plan: Plan | None,
    opener: Callable[[Vehicle], Source],
    watch_s: float = WATCH_S,
    file: str = "the vehicle file",
) -> list[PreflightCheck]:
    """Open the camera, read images for a while, close it. A mission without a bundle needs no camera.

    file: name of the vehicle file, for a user.
    """
    if plan is not None and plan.bundle is None:
        return [skipped(name, NO_BUNDLE) for name in NAMES]
    try:
        source = within(OPEN_TIMEOUT_S, lambda: opener(vehicle))
    except (ConfigError, TimeoutError) as error:
        why = str(error).removeprefix("camera").lstrip(": ")
        return [failed("camera", why), *(skipped(name, "no camera") for name in NAMES[1:])]
    try:
        seen = watch(source, watch_s, vehicle.camera.rate_hz)
    finally:
        source.close()
    checks = [rate(seen, vehicle, file), latency(seen, vehicle), shutter(vehicle)]
    if seen.images and not fits(seen.images[0], vehicle):
        return [*checks, skipped("marker", "images of another size")]
    return [*checks, marker(seen.images, vehicle, plan)]


def watch(source: Source, duration_s: float, rate_hz: float) -> Images:
    """Read images for a while; keeps about ten a second, enough for the tracker on a slow machine."""
    images: list[Image] = []
    arrivals_s: list[float] = []
    every = max(1, round(rate_hz / TrackerNode.rate_hz))
    until_s = monotonic_s() + duration_s
    while monotonic_s() < until_s and not source.finished:
        image = source.read()
        if image is None:
            continue
        if len(arrivals_s) % every == 0:
            images.append(image)
        arrivals_s.append(monotonic_s())
    return Images(images, arrivals_s, source.last_error, source.finished)


def fits(image: Image, vehicle: Vehicle) -> bool:
    """Whether an image has the size of the vehicle file; that of a running stack may have another."""
    return (image.width, image.height) == (vehicle.camera.width_px, vehicle.camera.height_px)


def rate(seen: Images, vehicle: Vehicle, file: str = "the vehicle file") -> PreflightCheck:
    """Size, rate and contrast of the images. file: name of the vehicle file, for a user."""
    camera = vehicle.camera
    if not seen.arrivals_s:
        return failed("camera", f"{camera.device}: no image" + (f": {seen.trouble}" if seen.trouble else ""))
    size = f"{seen.images[0].width} x {seen.images[0].height} px"
    if not fits(seen.images[0], vehicle):
        return failed("camera", f"{size}, {file} says {camera.width_px} x {camera.height_px} px: {RESTART}")
    if len(seen.arrivals_s) < 3:
        return warning("camera", f"{camera.device}: {len(seen.arrivals_s)} image(s) of {size} and no more")
    duration_s = seen.arrivals_s[-1] - seen.arrivals_s[0]
    rate_hz = (len(seen.arrivals_s) - 1) / max(duration_s, 1e-6)
    failures: list[str] = []
    doubts: list[str] = []
    slowest_hz = max(SLOW * camera.rate_hz, 1.0 / TOPICS["image"].max_age_s)
    if rate_hz < slowest_hz:
        failures.append(f"slower than {slowest_hz:g} Hz")
    elif abs(rate_hz - camera.rate_hz) > RATE_TOLERANCE * camera.rate_hz:
        doubts.append(f"the vehicle file says {camera.rate_hz:g} Hz")
    repeated = len(seen.images) - len({image.data for image in seen.images})
    enough = not seen.ended and len(seen.images) > FROZEN_IMAGES
    if enough and repeated == len(seen.images) - 1:
        failures.append("every image is the same to the last pixel: camera or driver hangs")
    elif enough and repeated > REPEATED_SHARE * len(seen.images):
        failures.append(
            f"{repeated} of {len(seen.images)} images had come before, to the last pixel: camera or driver repeats them"
        )
    elif np.frombuffer(seen.images[-1].data, np.uint8).std() < CONTRAST_MIN:
        doubts.append("the image is uniform: lens cap, darkness or glare?")
    if seen.trouble:
        doubts.append(seen.trouble)
    if seen.ended:
        doubts.append("a recording that ends")
    return worst("camera", failures, doubts, f"{size} at {rate_hz:.1f} Hz")


def latency(seen: Images, vehicle: Vehicle) -> PreflightCheck:
    """Whether the delay can be constant, and whether the vehicle file's number can have been measured.

    The delay itself can only be measured in motion (`companion calibrate latency`); here the aircraft stands still.
    """
    camera_s = vehicle.latency.camera_s
    detail = f"latency.camera_s is {camera_s * 1e3:.0f} ms"
    if camera_s < LATENCY_MIN_S:
        return warning("camera latency", f"{detail}: no camera is so fast, it was never measured")
    if len(seen.arrivals_s) < 10:
        return skipped("camera latency", f"{detail}; too few images to judge how steady it is")
    intervals_s = np.diff(seen.arrivals_s)
    period_s = statistics.median(intervals_s)
    jitter_s = float(np.percentile(np.abs(intervals_s - period_s), 95))
    detail += f", images arrive within {jitter_s * 1e3:.1f} ms of their time"
    if jitter_s > JITTER_MAX_S:
        return warning("camera latency", f"{detail}: this is no constant delay")
    return ok("camera latency", detail)


def shutter(vehicle: Vehicle) -> PreflightCheck:
    """How far a rolling shutter pulls the corners of a bundle apart while the aircraft turns."""
    camera, tracking = vehicle.camera, vehicle.tracking
    if camera.rolling_shutter_s is None:
        return skipped("camera shutter", "camera.rolling_shutter_s is not in the vehicle file")
    if camera.rolling_shutter_s == 0.0:
        return ok("camera shutter", "global shutter")
    skew_px = SHUTTER_RATE_RAD_S * camera.fx_px * camera.rolling_shutter_s * SHUTTER_SHARE
    detail = (
        f"rows within {camera.rolling_shutter_s * 1e3:.0f} ms: {skew_px:.1f} px over a bundle in a turn of "
        f"{SHUTTER_RATE_RAD_S:g} rad/s"
    )
    limit_px, harmless_px = tracking.max_reprojection_px, SHUTTER_NOISE * tracking.corner_noise_px
    failures = [f"tracking.max_reprojection_px is {limit_px:g}: use a global shutter"] if skew_px > limit_px else []
    doubts = [f"more than {harmless_px:g} px: turn slowly, or use a global shutter"] if skew_px > harmless_px else []
    return worst("camera shutter", failures, [] if failures else doubts, detail)


def marker(images: list[Image], vehicle: Vehicle, plan: Plan | None) -> PreflightCheck:
    """The tracker itself on the images. No visible marker is not a failure yet: the mission may search."""
    if plan is None:
        return skipped("marker", "no mission given (--mission)")
    if plan.bundle is None:
        return skipped("marker", NO_BUNDLE)
    if not images:
        return skipped("marker", "no image")
    tracker = build_node(ProcessName.TRACKER, LoadedFiles(vehicle, plan, site_of(plan)))
    answers = [m for image in images for m in tracker.handle(image, image.stamp_s) if isinstance(m, Markers)]
    seen = [o for m in answers for o in m.observations if o.bundle == plan.bundle]
    time_s = statistics.median(m.detect_time_s for m in answers) if answers else 0.0
    detail = f"'{plan.bundle}' in {len(seen)} of {len(images)} images, {time_s * 1e3:.0f} ms each"
    if len(seen) < SEEN_SHARE * len(images):
        return warning("marker", f"{detail}: not visible from here")
    distance_m = float(np.linalg.norm(seen[-1].best.p_CM))
    error_px = statistics.median(o.best.reprojection_rms_px for o in seen)
    detail += f", {distance_m:.2f} m away, {error_px:.2f} px"
    doubts = []
    if error_px > vehicle.tracking.max_reprojection_px / 3:
        doubts.append("corners do not fit well: calibration, size_m, or a bent board?")
    return worst("marker", [], doubts, detail)
