"""All devices of a simulated aircraft: what they measure after each step of the world, and when it arrives.

A scenario without the section ``[devices]`` has none of them; then this module is not imported, and nothing is drawn.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from companion.core.arrays import Array
from companion.core.frames import quat_normalized, rotation_matrix
from companion.core.messages import Message, StereoImages
from sitl.camera import FOG_GREY, SceneCamera
from sitl.camera_effects import Effects, Frame
from sitl.devices.arrivals import Arrival
from sitl.devices.camera_imu import CameraInertial
from sitl.devices.config import DevicesConfig
from sitl.devices.depth_camera import DepthCameraConfig, DepthNoiseField, depth_image
from sitl.devices.mount import Mount
from sitl.devices.range_finder import Look, RangeFinder
from sitl.devices.stereo import PixelNoise, StereoConfig, finished, right_of, stereo_message
from sitl.devices.timing import Clock
from sitl.light import LightConfig
from sitl.rendering.lens import Lens
from sitl.rendering.meshes import Drawable
from sitl.rendering.rasteriser import DrawnPlane, Rasteriser
from sitl.scene import Plane, SceneConfig, SceneMarker, backdrop_plane, marker_plane
from sitl.solids.solids import Solids

PICTURES_MAX = 4  # on their way in real time
NORMAL_RANGE_M = 4.0  # distance for the shutter's shift where nothing is in sight


class Aircraft(Protocol):
    """The motion of the aircraft; `sitl.plant.Plant` has it."""

    p_W: Array
    v_W: Array
    q_WB: Array
    omega_B: Array
    specific_force_B: Array


class Surroundings(NamedTuple):
    """What the devices see: meshes of the world, its rectangles as they stand at a moment, distances along rays."""

    meshes: Sequence[Drawable]
    planes: Callable[[], Sequence[Plane]]
    look: Look
    light: LightConfig = LightConfig()
    brightness: float = 1.0  # of everything, `[scene].light`; a stereo camera's own `light` comes on top of it


class _Pose(NamedTuple):
    p_WC: Array
    R_WC: Array
    omega_C: Array
    v_C: Array


class Devices:
    """The devices of one aircraft; everything random follows from the seed.

    scene: what there is to be seen.
    Pictures are drawn in a thread of their own while the world goes on, one after the other. Raises `NoRenderer` when a camera is
    configured and nothing can be drawn, `ConfigError` for what cannot be drawn.
    """

    def __init__(self, config: DevicesConfig, scene: Surroundings, seed: int) -> None:
        self._scene = scene
        self._drawing: ThreadPoolExecutor | None = None
        self._pictures: deque[Future[Message]] = deque()  # not drawn yet, or not asked for since
        self.hidden = False  # the cameras look into fog
        self.in_real_time = False  # a slow machine then leaves exposures out and delays nothing else
        self._steps: list[Callable[[float, Aircraft], list[Arrival]]] = []
        # one stream for each device: one more of them leaves the others as they were
        streams = np.random.SeedSequence((seed, 0xDE)).spawn(8)
        if config.draws:
            self._rasteriser = Rasteriser(scene.meshes, scene.light)
            self._drawing = ThreadPoolExecutor(max_workers=1)
        if config.stereo is not None:
            self._steps.append(_Stereo(config.stereo, self, streams[0], streams[1]).step)
        if config.depth is not None:
            self._steps.append(_Depth(config.depth, self, streams[2], seed).step)
        if config.imu is not None:
            timing, noise = streams[3], streams[4]
            clock = Clock(config.imu, np.random.default_rng(timing))
            inertial = CameraInertial(config.imu, np.random.default_rng(noise), clock)
            self._steps.append(lambda now_s, motion: _sent(clock, inertial.step(now_s, motion)))
        if config.range_finder is not None:
            timing, noise = streams[5], streams[6]
            ranging = Clock(config.range_finder, np.random.default_rng(timing))
            finder = RangeFinder(config.range_finder, scene.look, np.random.default_rng(noise), ranging)

            def measure(now_s: float, motion: Aircraft) -> list[Arrival]:
                if not ranging.due(now_s):
                    return []
                return _sent(ranging, [(now_s, finder.read(now_s, motion.p_W, motion.q_WB))])

            self._steps.append(measure)

    def step(self, now_s: float, motion: Aircraft) -> list[Arrival]:
        """What the devices measured in the step of the world that ends now."""
        return [arrival for step in self._steps for arrival in step(now_s, motion)]

    def close(self) -> None:
        """End the thread that draws."""
        if self._drawing is not None:
            self._drawing.shutdown()
            self._rasteriser.close()

    # --- for the cameras ------------------------------------------------------------------------------------------

    @property
    def brightness(self) -> float:
        return self._scene.brightness

    @property
    def rasteriser(self) -> Rasteriser:
        return self._rasteriser

    def planes(self) -> list[DrawnPlane]:
        """The rectangles as they stand now."""
        return [DrawnPlane(plane) for plane in self._scene.planes()]

    def is_busy(self) -> bool:
        """Whether an exposure is left out because the last ones are not drawn yet; never in lockstep."""
        while self._pictures and self._pictures[0].done():
            self._pictures.popleft()
        return self.in_real_time and len(self._pictures) >= PICTURES_MAX

    def draw(self, at_s: float, make: Callable[[], Message]) -> Arrival:
        """Draw in the thread; the arrival waits for the result."""
        assert self._drawing is not None
        picture = self._drawing.submit(make)
        self._pictures.append(picture)
        return Arrival(at_s, picture.result, picture.done)


class _Stereo:
    def __init__(
        self, config: StereoConfig, devices: Devices, timing: np.random.SeedSequence, noise: np.random.SeedSequence
    ) -> None:
        self._config, self._devices = config, devices
        self._clock = Clock(config, np.random.default_rng(timing))
        self._lens = Lens(config.view, config.distortion)
        left, right = (np.random.default_rng(s) for s in noise.spawn(2))
        self._noises = [PixelNoise(config.noise_std, config.width, config.height, rng) for rng in (left, right)]
        self._effects = Effects(config.effects, config.view)

    def step(self, now_s: float, motion: Aircraft) -> list[Arrival]:
        if not self._clock.due(now_s) or self._devices.is_busy() or (at_s := self._clock.arrival_s(now_s)) is None:
            return []
        if self._devices.hidden:
            fog = np.full((self._config.height, self._config.width), FOG_GREY, dtype=np.uint8)
            return [self._devices.draw(at_s, lambda: stereo_message(self._clock.stamp_s(now_s), fog, fog))]
        pose, planes = _pose(self._config.mount, motion), self._devices.planes()
        return [self._devices.draw(at_s, lambda: self._expose(now_s, pose, planes))]

    def _expose(self, now_s: float, pose: _Pose, planes: list[DrawnPlane]) -> StereoImages:
        c, lens, distance_m = self._config, self._lens, NORMAL_RANGE_M
        light = c.light * self._devices.brightness
        frames: list[Frame] = []
        for place_W in (pose.p_WC, right_of(pose.p_WC, pose.R_WC, c.baseline_m)):
            wanted = self._effects.needs_distance and not frames
            picture = self._devices.rasteriser.draw(lens.view, place_W, pose.R_WC, planes, depth=wanted)
            frames.append(Frame(lens.bend(picture.grey), lens.bend_depth(picture.material) == 0))
            if picture.depth_m is not None and (seen := np.isfinite(picture.depth_m)).any():
                distance_m = float(np.median(picture.depth_m[seen]))
        images = self._effects.apply(now_s, frames, pose.omega_C, pose.v_C, distance_m, light)
        light = 1.0 if self._effects.develops else light
        left, right = (finished(image, c, light, noise) for image, noise in zip(images, self._noises, strict=True))
        return stereo_message(self._clock.stamp_s(now_s), left, right)


class _Depth:
    def __init__(self, config: DepthCameraConfig, devices: Devices, timing: np.random.SeedSequence, seed: int) -> None:
        self._config, self._devices = config, devices
        self._clock = Clock(config, np.random.default_rng(timing))
        self._noise = DepthNoiseField(config.noise, config.min_m, config.max_m, seed)
        self._count = 0

    def step(self, now_s: float, motion: Aircraft) -> list[Arrival]:
        if not self._clock.due(now_s) or self._devices.is_busy():
            return []
        self._count += 1
        if (at_s := self._clock.arrival_s(now_s)) is None:
            return []
        if self._devices.hidden:
            nothing = np.zeros((self._config.height, self._config.width), dtype=np.uint16)
            return [self._devices.draw(at_s, lambda: depth_image(self._clock.stamp_s(now_s), nothing))]
        pose, planes, number = _pose(self._config.mount, motion), self._devices.planes(), self._count
        return [self._devices.draw(at_s, lambda: self._expose(now_s, pose, planes, number))]

    def _expose(self, now_s: float, pose: _Pose, planes: list[DrawnPlane], number: int) -> Message:
        rasteriser = self._devices.rasteriser
        picture = rasteriser.draw(self._config.view, pose.p_WC, pose.R_WC, planes)
        assert picture.depth_m is not None
        readings = self._noise.readings(picture.depth_m, picture.material, rasteriser.depth_noise_per_m, number)
        return depth_image(self._clock.stamp_s(now_s), readings)


def _pose(mount: Mount, motion: Aircraft) -> _Pose:
    """Of a camera at this moment, as copies: the motion goes on while it is drawn."""
    R_WB = rotation_matrix(motion.q_WB)
    R_BC = rotation_matrix(quat_normalized(mount.q_B))
    p_B = np.asarray(mount.p_B)
    v_C = R_BC.T @ (R_WB.T @ motion.v_W + np.cross(motion.omega_B, p_B))
    return _Pose(motion.p_W + R_WB @ p_B, R_WB @ R_BC, R_BC.T @ motion.omega_B, v_C)


def _sent(clock: Clock, measured: Sequence[tuple[float, Message]]) -> list[Arrival]:
    arrivals = []
    for measured_s, message in measured:
        if (at_s := clock.arrival_s(measured_s)) is not None:
            arrivals.append(Arrival(at_s, partial(_ready, message)))
    return arrivals


def _ready(message: Message) -> Message:
    return message


def scene_of(camera: SceneCamera, scene: SceneConfig, solids: Solids | None = None, draw: bool = True) -> Surroundings:
    """The surroundings of the camera of a world: its markers where they stand, the backdrops, and the solids.

    The range finder measures against solids, backdrops and the ground at z = 0. A camera that does not draw has no
    textures of markers; they get their own here. draw: False when no device draws; then any family of markers is allowed.
    """
    backdrops = [backdrop_plane(b) for b in scene.backdrops]
    markers = {marker_key(m): marker_plane(m) for m in camera.printed} if draw else {}

    def planes() -> list[Plane]:
        placed = camera.placed.markers
        return [*backdrops, *(markers[marker_key(m)].placed(m.centre_W, m.R_WF, m.scale, m.mirrored) for m in placed)]

    def look(origin_W: Array, direction_W: Array) -> float:
        found_m = [distance_to(plane, origin_W, direction_W) for plane in backdrops]
        if direction_W[2] < 0.0 <= origin_W[2]:
            found_m.append(float(-origin_W[2] / direction_W[2]))
        if solids is not None:
            found_m.append(float(solids.first_hit(origin_W, direction_W)))
        return min(found_m, default=math.inf)

    return Surroundings([] if solids is None or not draw else solids.meshes(), planes, look, brightness=scene.light)


def distance_to(plane: Plane, origin_W: Array, direction_W: Array) -> float:
    """From a point along a unit vector to a rectangle [m]; inf: it is not there."""
    approach = float(direction_W @ plane.normal_W)
    distance_m = float((plane.p_W - origin_W) @ plane.normal_W) / approach if approach else -1.0
    if distance_m <= 0.0:
        return math.inf
    rows, columns = plane.levels[0].shape
    offset = origin_W + distance_m * direction_W - plane.p_W
    u = abs(offset @ plane.right_W) / (plane.right_W @ plane.right_W) / columns
    v = abs(offset @ plane.down_W) / (plane.down_W @ plane.down_W) / rows
    return distance_m if max(u, v) <= 0.5 else math.inf


def marker_key(marker: SceneMarker) -> tuple[str, str, int]:
    """What distinguishes a marker from all others of a scene."""
    return marker.bundle, marker.marker.family, marker.marker.id
