"""The simulated camera: images of a scene, or the exact corners of the markers in them.

An image is drawn in three steps: every plane of the scene is warped by its homography into an ideal (undistorted)
picture, farthest first; the picture is remapped once through the lens distortion; blur, light and noise come last.
So marker corners lie exactly where the distortion model (OpenCV's k1, k2, p1, p2, k3) puts them.

The parameters here are the *true* ones of the simulated camera. The stack uses those of its vehicle file, and a
scenario may make the two differ.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, NamedTuple, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from companion.core.arrays import Array, Image8, Vector
from companion.core.config import ConfigError, Section, check_unit_quaternion, integer, number
from companion.core.frames import quat_exp, quat_multiply, quat_normalized, rotation_matrix
from companion.core.messages import Image
from companion.core.site import Marker, Site
from sitl.camera_effects import Effects, EffectsConfig, Frame
from sitl.camera_errors import CornerDrift, ImageTransport
from sitl.scene import SKY, Plane, SceneConfig, SceneMarker, backdrop_plane, marker_plane, place_markers
from sitl.solids.solids import Solids
from sitl.views import Pinhole

MIN_SIDE_PX = 12.0  # shortest side of a marker that counts as visible
NEAR_M = 0.05  # nothing closer is drawn
MIN_BLUR_PX = 0.5  # motion over the exposure below which no blur is drawn
MAX_BLUR_PX = 41.0  # longest motion blur drawn
MIN_FACING = 0.05  # cosine between a face and the ray below which a marker is seen edge-on
NOISE_MARGIN_PX = 128  # the noise of a frame is a random window of one larger field
MARKER_SUPERSAMPLING = 2  # markers are drawn finer by this factor and averaged: detectors measure their edges
FOG_GREY = 0x60  # of an image in which nothing is seen
EDGE_MARGIN_PX = 2  # the ideal picture reaches this far beyond the field of view


class CameraConfig(Section, frozen=True):
    """The true camera of the simulator."""

    width: Annotated[int, integer(64, 4096, "px")]
    height: Annotated[int, integer(48, 4096, "px")]
    fx: Annotated[float, number(50, 20000, "px")]
    fy: Annotated[float, number(50, 20000, "px")]
    cx: Annotated[float, number(0, 4096, "px")]
    cy: Annotated[float, number(0, 4096, "px")]
    distortion: tuple[
        Annotated[float, number(-2, 2, "(k1)")],
        Annotated[float, number(-2, 2, "(k2)")],
        Annotated[float, number(-0.2, 0.2, "(p1)")],
        Annotated[float, number(-0.2, 0.2, "(p2)")],
        Annotated[float, number(-2, 2, "(k3)")],
    ]
    p_BC: tuple[
        Annotated[float, number(-5, 5, "m")], Annotated[float, number(-5, 5, "m")], Annotated[float, number(-5, 5, "m")]
    ]
    q_BC: tuple[
        Annotated[float, number(-1, 1, "")],
        Annotated[float, number(-1, 1, "")],
        Annotated[float, number(-1, 1, "")],
        Annotated[float, number(-1, 1, "")],
    ]
    rate_hz: Annotated[float, number(1, 240, "Hz")]
    # from mid-exposure to arrival; applied by the caller that delivers the images
    latency_s: Annotated[float, number(0, 1, "s")]
    exposure_s: Annotated[float, number(0, 0.1, "s")]
    noise_std: Annotated[float, number(0, 50, "grey levels")]
    blur_px: Annotated[float, number(0, 5, "px (standard deviation of the lens blur)")]
    corner_noise_px: Annotated[
        float, number(0, 10, "px (standard deviation per coordinate, for corners without images)")
    ]
    vignetting: Annotated[float, number(0, 1, "(loss of light in the corners)")]
    sway_std_rad: Annotated[float, number(0, 0.2, "rad (rotation of the camera's mount, per axis)")]
    sway_time_constant_s: Annotated[float, number(0.01, 10, "s")]
    # Errors that `sitl.unkind` draws; see `sitl.camera_errors`
    corner_drift_px: Annotated[float, number(0, 10, "px (standard deviation of the slow part, per coordinate)")] = 0.0
    corner_drift_time_s: Annotated[float, number(0.01, 1000, "s")] = 10.0
    image_corner_noise_px: Annotated[float, number(0, 10, "px (as corner_noise_px, in drawn images)")] = 0.0
    latency_jitter_s: Annotated[float, number(0, 0.2, "s, standard deviation")] = 0.0
    images_lost: Annotated[float, number(0, 0.95, "(share of the images that do not arrive)")] = 0.0
    effects: EffectsConfig | None = None  # of drawn images: rolling shutter, glare, auto-exposure

    def __post_init__(self) -> None:
        check_unit_quaternion("q_BC", self.q_BC)


class VisibleMarker(NamedTuple):
    """A marker in view: its bundle's name, the marker, its corners in the distorted image, shape (4, 2) [px]."""

    bundle: str
    marker: Marker
    corners_px: Array


class Box(NamedTuple):
    """Pixels of a picture; right and bottom are the first ones outside."""

    left: int
    top: int
    right: int
    bottom: int


class PlacedMarkers:
    """Markers in their places of one moment, as arrays; planes: drawn, empty for a camera that does not draw."""

    def __init__(self, markers: Sequence[SceneMarker], planes: Sequence[Plane]) -> None:
        self.markers = markers
        self.planes = planes
        self.corners_W = np.array([m.corners_W for m in markers]).reshape(-1, 4, 3)
        self.centres_W = np.array([m.centre_W for m in markers]).reshape(-1, 3)
        self.normals_W = np.array([m.R_WF[:, 2] for m in markers]).reshape(-1, 3)


Displaced = Sequence[tuple[Plane, Array | None]]  # planes with the homography of the picture that moves them


class Painter(Protocol):
    """Draws the planes in place of the homographies, and what else is there (`sitl.rendering.painter`)."""

    def paint(self, picture: Image8, view: Pinhole, p_WC: Array, R_WC: Array, planes: Displaced) -> None: ...


class SceneCamera:
    """Looks at a scene; the same seed and the same calls give the same output.

    solids: they hide markers; None: there are none.
    draw: False builds no textures; then `render` may not be called, and bundles of any family are allowed.
    painter: draws the undistorted picture; None: each plane by its homography.
    Raises `ConfigError` for what cannot be drawn: an unknown bundle or family, a distortion that folds the image.
    """

    def __init__(
        self,
        config: CameraConfig,
        scene: SceneConfig,
        site: Site,
        seed: int,
        draw: bool = True,
        solids: Solids | None = None,
        painter: Painter | None = None,
    ) -> None:
        self.config = config
        self._solids = solids
        self._painter = painter
        view = Pinhole(config.width, config.height, config.fx, config.fy, config.cx, config.cy)
        self._effects = None if config.effects is None else Effects(config.effects, view)
        self._distortion = config.distortion
        self._R_BC = rotation_matrix(quat_normalized(config.q_BC))
        self._q_BC = quat_normalized(config.q_BC)
        self._p_BC = np.asarray(config.p_BC, dtype=float)
        streams = [np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(4)]
        pixel_rng, corner_rng, sway_rng, transport_rng = streams
        self._pixel_rng, self._corner_rng, self._sway_rng = pixel_rng, corner_rng, sway_rng
        c = config
        self.transport = ImageTransport(c.latency_s, c.latency_jitter_s, c.images_lost, transport_rng)
        white_px = c.image_corner_noise_px if draw else 0.0  # corners without images have white noise already
        drifts = c.corner_drift_px > 0 or white_px > 0
        self._drift = CornerDrift(c.corner_drift_px, c.corner_drift_time_s, white_px, seed) if drifts else None
        self._sway = np.zeros(3)
        self._sway_t_s: float | None = None
        self.slip: Array | None = None  # rotation vector [rad] of the camera on its mount, in the camera's frame
        self._light = scene.light
        self.printed = place_markers(scene, site)  # the markers where the scenario puts them
        self._backdrops = [backdrop_plane(b) for b in scene.backdrops]
        planes = [marker_plane(m) for m in self.printed] if draw else []
        self._planes_by_marker = {(m.marker.family, m.marker.id): p for m, p in zip(self.printed, planes, strict=False)}
        self.placed = PlacedMarkers(self.printed, planes)
        self._build_field()
        if draw:
            self._build_pixels()
        self._drawn = draw

    # --- geometry ---------------------------------------------------------------------------------------------

    def place(self, markers: Sequence[SceneMarker]) -> None:
        """From now on the camera sees these markers; each is one of `printed`, possibly in another place."""
        planes = []
        for m in markers if self._drawn else ():
            plane = self._planes_by_marker[m.marker.family, m.marker.id]
            planes.append(plane.placed(m.centre_W, m.R_WF, m.scale, m.mirrored))
        self.placed = PlacedMarkers(markers, planes)

    def camera_pose(self, t_s: float, p_WB: Vector, q_WB: Vector) -> tuple[Array, Array]:
        """(p_WC, R_WC) of the camera, sway and slip of its mount included."""
        R_WB = rotation_matrix(np.asarray(q_WB).tolist())  # plain numbers, which are three times as fast
        p_WC = np.asarray(p_WB, dtype=float) + R_WB @ self._p_BC
        q_BC = self._q_BC
        if self.config.sway_std_rad > 0:
            q_BC = quat_multiply(q_BC, quat_exp(self._sway_at(t_s)).tolist())
        elif self.slip is None:
            return p_WC, R_WB @ self._R_BC
        if self.slip is not None:
            q_BC = quat_multiply(q_BC, quat_exp(self.slip))
        return p_WC, R_WB @ rotation_matrix(np.asarray(q_BC).tolist())

    def _sway_at(self, t_s: float) -> Array:
        """First-order Gauss-Markov rotation vector of the mount [rad]; unchanged for a time that is not newer."""
        std = self.config.sway_std_rad
        if self._sway_t_s is None:
            self._sway = std * self._sway_rng.standard_normal(3)
            self._sway_t_s = t_s
        elif t_s > self._sway_t_s:
            decay = math.exp(-(t_s - self._sway_t_s) / self.config.sway_time_constant_s)
            noise = std * math.sqrt(1 - decay * decay)
            self._sway = decay * self._sway + noise * self._sway_rng.standard_normal(3)
            self._sway_t_s = t_s
        return self._sway

    def project(self, points_C: Array) -> Array:
        """Image points [px], shape (n, 2), of points in front of the camera, shape (n, 3)."""
        xy = points_C[:, :2] / points_C[:, 2:]
        distorted = distort(xy, self._distortion)
        c = self.config
        pixels: Array = distorted * np.array([c.fx, c.fy]) + np.array([c.cx, c.cy])
        return pixels

    def project_corners(self, t_s: float, p_WB: Vector, q_WB: Vector) -> list[VisibleMarker]:
        """The markers in view, facing the camera, not hidden by a backdrop or a solid, with sides of at least 12 px."""
        p_WC, R_WC = self.camera_pose(t_s, p_WB, q_WB)
        c, placed = self.config, self.placed
        # All markers at once: one by one, the calls on small arrays would cost ten times as much.
        rays = placed.centres_W - p_WC
        facing = -(rays * placed.normals_W).sum(axis=1) >= MIN_FACING * np.sqrt((rays * rays).sum(axis=1))
        points_C = (placed.corners_W - p_WC) @ R_WC
        candidates = np.flatnonzero(facing & (points_C[:, :, 2] >= NEAR_M).all(axis=1))
        if not candidates.size:
            return []
        points_C = points_C[candidates]
        ideal = points_C[:, :, :2] / points_C[:, :, 2:]
        # far beyond the field of view, where the distortion polynomial has no meaning, nothing is seen
        seen = ((ideal >= self._field_low) & (ideal <= self._field_high)).all(axis=(1, 2))
        corners = self.project(points_C.reshape(-1, 3)).reshape(-1, 4, 2)
        seen &= ((corners >= 0) & (corners <= (c.width - 1, c.height - 1))).all(axis=(1, 2))
        sides = corners - corners[:, (3, 0, 1, 2)]
        seen &= (sides * sides).sum(axis=2).min(axis=1, initial=np.inf) >= MIN_SIDE_PX**2
        for backdrop in self._backdrops if seen.any() else ():
            seen &= ~backdrop.hides(p_WC, placed.corners_W[candidates]).any(axis=1)
        if self._solids is not None:
            seen &= ~self._solids.hides(p_WC, placed.corners_W[candidates]).any(axis=1)
        found = ((placed.markers[candidates[i]], corners[i]) for i in np.flatnonzero(seen))
        return [VisibleMarker(marker.bundle, marker.marker, pixels) for marker, pixels in found]

    def noisy_corners(self, t_s: float, p_WB: Vector, q_WB: Vector) -> list[VisibleMarker]:
        """`project_corners` with Gaussian noise of ``corner_noise_px`` on every coordinate, and the slow errors."""
        visible = self.project_corners(t_s, p_WB, q_WB)
        noise_px = self.config.corner_noise_px * self._corner_rng.standard_normal((len(visible), 4, 2))
        if self._drift is not None:
            for i, (_, marker, _) in enumerate(visible):
                noise_px[i] += self._drift.at(t_s, (marker.family, marker.id))
        return [
            VisibleMarker(bundle, marker, corners + noise)
            for (bundle, marker, corners), noise in zip(visible, noise_px, strict=True)
        ]

    # --- pixels -----------------------------------------------------------------------------------------------

    def render(
        self,
        t_s: float,
        p_WB: Vector,
        q_WB: Vector,
        v_W: Vector,
        omega_B: Vector,
        placed: PlacedMarkers | None = None,
    ) -> Image:
        """The image exposed around ``t_s``, as 8 bit grey.

        v_W, omega_B: velocity [m/s] and body rates [rad/s] during the exposure, for the motion blur.
        placed: the markers of the exposure; None: as they are placed now.
        """
        placed = placed or self.placed
        if not self._drawn:
            raise RuntimeError("this camera was built with draw=False")
        p_WC, R_WC = self.camera_pose(t_s, p_WB, q_WB)
        self._draw_picture(t_s, p_WC, R_WC, (*self._backdrops, *placed.planes))
        image = cv2.remap(
            self._ideal, self._map_xy, self._map_fraction, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE
        )
        if self._effects is not None:
            image = self._with_effects(
                self._effects, image.astype(np.uint8, copy=False), t_s, p_WC, R_WC, q_WB, v_W, omega_B, placed
            )
        motion = self.motion_px(p_WC, R_WC, q_WB, v_W, omega_B, placed)
        if np.hypot(*motion) > MIN_BLUR_PX:
            image = cv2.filter2D(image, -1, _line_kernel(motion), borderType=cv2.BORDER_REPLICATE)
        if self.config.blur_px > 0:
            image = cv2.GaussianBlur(image, (0, 0), self.config.blur_px, borderType=cv2.BORDER_REPLICATE)
        if self._gain is not None:
            image = cv2.multiply(image, self._gain, scale=self._gain_scale, dtype=cv2.CV_8U)
        if self._noise is not None:
            i, j = self._pixel_rng.integers(0, NOISE_MARGIN_PX, 2)
            window = self._noise[i : i + self.config.height, j : j + self.config.width]
            image = cv2.add(image, window, dtype=cv2.CV_8U)
        return Image(stamp_s=t_s, width=self.config.width, height=self.config.height, data=image.tobytes())

    def _draw_picture(self, t_s: float, p_WC: Array, R_WC: Array, planes: Sequence[Plane]) -> None:
        if self._painter is None:
            self._ideal[:] = SKY
            self._draw_planes(t_s, p_WC, R_WC, planes)
            return
        displaced = []
        for plane in planes:
            A_C = R_WC.T @ np.column_stack([plane.right_W, plane.down_W, plane.origin_W - p_WC])
            displaced.append((plane, self._displacement(t_s, plane, A_C)))
        height, width = self._ideal.shape
        (fx, fy), (cx, cy) = self._ideal_focal.tolist(), self._ideal_centre.tolist()
        self._painter.paint(self._ideal, Pinhole(width, height, fx, fy, cx, cy), p_WC, R_WC, displaced)

    def _draw_planes(self, t_s: float, p_WC: Array, R_WC: Array, planes: Iterable[Plane]) -> None:
        """Warp all planes into the ideal picture, the one with the farthest visible point first.

        By its farthest point a marker comes after the wall or ground it stands on, and a wall after the ground. A plane is
        left out where a later one is drawn over all of it.
        """
        jobs = []
        for plane in planes:
            if not plane.two_sided and plane.normal_W @ (p_WC - plane.p_W) <= 0:
                continue
            # columns: change per texture column, per row, and the origin, in the camera frame
            A_C = R_WC.T @ np.column_stack([plane.right_W, plane.down_W, plane.origin_W - p_WC])
            polygon = clip(plane.outline_px, self._frustum @ A_C, self._frustum_offset)
            if len(polygon) < 3:
                continue
            points_C = np.column_stack([polygon, np.ones(len(polygon))]) @ A_C.T
            jobs.append((float(np.max(np.sum(points_C**2, axis=1))), plane, A_C, polygon, points_C))
        jobs.sort(key=lambda job: -job[0])
        drawn = []
        for _, plane, A_C, polygon, points_C in jobs:
            displacement = self._displacement(t_s, plane, A_C)
            drawn.append((plane, A_C, polygon, self._outline(points_C, displacement), displacement))
        for i, (plane, A_C, polygon, outline, displacement) in enumerate(drawn):
            box = self._box(outline)
            # What is beyond the field of view is in no image.
            seen = np.clip(outline, EDGE_MARGIN_PX, self._ideal_span - EDGE_MARGIN_PX)
            if box is not None and not any(covers(later[3], seen) for later in drawn[i + 1 :] if later[0].two_sided):
                self._draw(plane, A_C, polygon, outline, box, displacement)

    def _displacement(self, t_s: float, plane: Plane, A_C: Array) -> Array | None:
        """Homography of the ideal picture that moves the corners of a marker by their errors; None: no errors."""
        if self._drift is None or plane.marker is None:
            return None
        points_C = plane.marker_px @ A_C.T
        if points_C[:, 2].min() < NEAR_M:
            return None
        true = points_C[:, :2] / points_C[:, 2:] * self._ideal_focal + self._ideal_centre
        # a pixel of the image is one of the ideal picture, except for the distortion
        moved = true + self._drift.at(t_s, plane.marker)
        H = cv2.getPerspectiveTransform(true.astype(np.float32), moved.astype(np.float32))
        return H.astype(np.float64)

    def _outline(self, points_C: Array, displacement: Array | None) -> Array:
        """Convex polygon in the ideal picture [px], shape (n, 2), of points in the camera frame, shape (n, 3)."""
        outline: Array = points_C[:, :2] / points_C[:, 2:] * self._ideal_focal + self._ideal_centre
        if displacement is not None:
            homogeneous = np.column_stack([outline, np.ones(len(outline))]) @ displacement.T
            outline = homogeneous[:, :2] / homogeneous[:, 2:]
        return outline

    def _box(self, outline: Array) -> Box | None:
        """The pixels of the ideal picture within which a polygon lies; None: it lies outside of the picture."""
        rows, columns = self._ideal.shape
        left, top = np.maximum(np.floor(outline.min(axis=0)).astype(int), 0)
        right, bottom = np.minimum(np.ceil(outline.max(axis=0)).astype(int) + 1, (columns, rows))
        return None if right <= left or bottom <= top else Box(left, top, right, bottom)

    def _draw(
        self, plane: Plane, A_C: Array, polygon: Array, outline: Array, box: Box, displacement: Array | None
    ) -> None:
        left, top, right, bottom = box
        area_px = max(_area(outline), 1e-6)
        # the reduced copy whose pixels are about as large as those of the image: no aliasing, little blur
        fine = 1 if plane.two_sided else MARKER_SUPERSAMPLING
        level = round(0.5 * math.log2(max(_area(polygon) / (area_px * fine * fine), 1.0)))
        texture = plane.levels[min(level, len(plane.levels) - 1)]
        step_x = plane.levels[0].shape[1] / texture.shape[1]
        step_y = plane.levels[0].shape[0] / texture.shape[0]
        to_full = np.array([[step_x, 0, 0.5 * step_x - 0.5], [0, step_y, 0.5 * step_y - 0.5], [0, 0, 1.0]])
        (fx, fy), (cx, cy) = self._ideal_focal, self._ideal_centre - (left, top)
        K = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1.0]])
        if displacement is not None:
            shift = np.array([[1.0, 0, left], [0, 1.0, top], [0, 0, 1.0]])
            K = np.linalg.inv(shift) @ displacement @ shift @ K
        finer = np.array([[fine, 0, (fine - 1) / 2], [0, fine, (fine - 1) / 2], [0, 0, 1.0]])
        size = (int(right - left), int(bottom - top))
        H = finer @ K @ A_C @ to_full
        fine_size = (size[0] * fine, size[1] * fine)
        warped = cv2.warpPerspective(texture, H, fine_size, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        if fine > 1:
            warped = cv2.resize(warped, size, interpolation=cv2.INTER_AREA)
        mask = self._mask[top:bottom, left:right]
        mask[:] = 0
        fixed = np.round((outline - (left, top)) * 16).astype(np.int32)
        cv2.fillConvexPoly(mask, fixed, 255, lineType=cv2.LINE_8, shift=4)
        cv2.copyTo(warped, mask, self._ideal[top:bottom, left:right])

    def motion_px(
        self,
        p_WC: Array,
        R_WC: Array,
        q_WB: Vector,
        v_W: Vector,
        omega_B: Vector,
        placed: PlacedMarkers | None = None,
    ) -> Array:
        """Motion [px] of the picture over the exposure, shape (2,).

        One direction for the whole image: that of the middle of the markers before the camera, or of a point 4 m
        ahead. Roll about the optical axis therefore does not blur.
        """
        c = self.config
        target = self._target_C(p_WC, R_WC, placed or self.placed)
        omega_C, v_C = self._motion_C(R_WC, q_WB, v_W, omega_B)
        rate = -v_C - np.cross(omega_C, target)
        x, y, z = target
        flow = np.array([c.fx * (rate[0] - x / z * rate[2]) / z, c.fy * (rate[1] - y / z * rate[2]) / z])
        motion = flow * c.exposure_s
        limited: Array = motion * min(1.0, MAX_BLUR_PX / max(np.hypot(*motion), 1e-9))
        return limited

    def _target_C(self, p_WC: Array, R_WC: Array, placed: PlacedMarkers) -> Array:
        """What the camera looks at: the middle of the markers before it, or a point 4 m ahead."""
        points_C = (placed.centres_W - p_WC) @ R_WC
        points_C = points_C[points_C[:, 2] > 0.2]
        if len(points_C):
            points_C = points_C[np.all(np.abs(points_C[:, :2] / points_C[:, 2:]) < 1.0, axis=1)]
        target: Array = points_C.mean(axis=0) if len(points_C) else np.array([0.0, 0.0, 4.0])
        return target

    def _motion_C(self, R_WC: Array, q_WB: Vector, v_W: Vector, omega_B: Vector) -> tuple[Array, Array]:
        """Angular rate and velocity of the camera in its own axes."""
        R_WB = rotation_matrix(q_WB)
        omega_W = R_WB @ np.asarray(omega_B, dtype=float)
        v_C = R_WC.T @ (np.asarray(v_W, dtype=float) + np.cross(omega_W, R_WB @ self._p_BC))
        return R_WC.T @ omega_W, v_C

    def _with_effects(
        self,
        effects: Effects,
        image: Image8,
        t_s: float,
        p_WC: Array,
        R_WC: Array,
        q_WB: Vector,
        v_W: Vector,
        omega_B: Vector,
        placed: PlacedMarkers,
    ) -> Image8:
        # A single pixel of a texture may have the sky's grey level; the sky is more than three pixels wide.
        sky = cv2.erode((image == SKY).astype(np.uint8), np.ones((3, 3), np.uint8)) > 0
        distance_m = float(self._target_C(p_WC, R_WC, placed)[2])
        motion = self._motion_C(R_WC, q_WB, v_W, omega_B)
        return effects.apply(t_s, [Frame(image, sky)], *motion, distance_m, self._light)[0]

    # --- preparation --------------------------------------------------------------------------------------------

    def _build_field(self) -> None:
        """The ideal picture that covers the field of view, and its frustum."""
        c = self.config
        u, v = np.meshgrid(np.arange(c.width), np.arange(c.height))
        distorted = np.column_stack([(u.ravel() - c.cx) / c.fx, (v.ravel() - c.cy) / c.fy])
        ideal = undistort(distorted, self._distortion)
        focal = np.array([c.fx, c.fy])
        margin = EDGE_MARGIN_PX / focal
        self._field_low, self._field_high = ideal.min(axis=0) - margin, ideal.max(axis=0) + margin
        self._ideal_focal = focal
        self._ideal_centre = -self._field_low * focal
        self._ideal_span = (self._field_high - self._field_low) * focal
        self._ideal_size = np.ceil(self._ideal_span).astype(int) + 1
        self._rays = ideal
        (x0, y0), (x1, y1) = self._field_low, self._field_high
        # rows n with n · p_C ≥ offset inside
        self._frustum = np.array([[0, 0, 1.0], [1, 0, -x0], [-1, 0, x1], [0, 1, -y0], [0, -1, y1]])
        self._frustum_offset = np.array([NEAR_M, 0, 0, 0, 0])

    def _build_pixels(self) -> None:
        c = self.config
        shape = (int(self._ideal_size[1]), int(self._ideal_size[0]))
        if shape[0] * shape[1] > 16 * c.width * c.height:
            raise ConfigError("camera: distortion: widens the field of view more than 16 times")
        self._ideal = np.empty(shape, dtype=np.uint8)
        self._mask = np.empty(shape, dtype=np.uint8)
        maps = (self._rays * self._ideal_focal + self._ideal_centre).astype(np.float32).reshape(c.height, c.width, 2)
        self._map_xy, self._map_fraction = cv2.convertMaps(maps[..., 0].copy(), maps[..., 1].copy(), cv2.CV_16SC2)
        self._gain: Image8 | None = None
        self._gain_scale = 1.0
        light = 1.0 if self._effects is not None and self._effects.develops else self._light
        if c.vignetting > 0 or light != 1.0:
            radius = np.hypot(self._rays[:, 0], self._rays[:, 1]).reshape(c.height, c.width)
            gain = 1.0 - c.vignetting * (radius / radius.max()) ** 2
            self._gain = np.round(255 * gain).astype(np.uint8)
            self._gain_scale = light / 255
        self._noise: NDArray[np.int16] | None = None
        if c.noise_std > 0:
            size = (c.height + NOISE_MARGIN_PX, c.width + NOISE_MARGIN_PX)
            # dithered by half a level so that a standard deviation below one level survives the rounding
            noise = self._pixel_rng.normal(0.0, c.noise_std, size)
            self._noise = np.clip(np.floor(noise + self._pixel_rng.random(size)), -127, 127).astype(np.int16)


def distort(xy: Array, k: Vector) -> Array:
    """Brown-Conrady distortion of ideal image coordinates, shape (n, 2) (OpenCV's k1, k2, p1, p2, k3)."""
    k1, k2, p1, p2, k3 = k
    x, y = xy[:, 0], xy[:, 1]
    r2 = x * x + y * y
    radial = 1 + r2 * (k1 + r2 * (k2 + r2 * k3))
    distorted = np.empty_like(xy)
    distorted[:, 0] = x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x)
    distorted[:, 1] = y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y
    return distorted


def undistort(xy: Array, k: Vector) -> Array:
    """Inverse of `distort` by fixed-point iteration; raises `ConfigError` if it has none over the image."""
    ideal = xy.copy()
    for _ in range(200):
        error = distort(ideal, k) - xy
        ideal -= error
        worst = float(np.max(np.abs(error)))
        if worst < 1e-9:
            return ideal
        if not worst < 10.0:
            break
    raise ConfigError(f"camera: distortion = {list(k)}: folds the image inside its field of view")


def clip(polygon: Array, planes: Array, offset: Array) -> Array:
    """The part of a convex polygon, shape (n, 2), with planes @ (u, v, 1) ≥ offset (Sutherland and Hodgman)."""
    for (a, b, c), o in zip(planes, offset, strict=True):
        if not len(polygon):
            break
        value = polygon @ (a, b) + (c - o)
        if value.min() >= 0:
            continue
        kept = []
        for i in range(len(polygon)):
            j = i - 1
            if (value[i] >= 0) != (value[j] >= 0):
                kept.append(polygon[j] + (polygon[i] - polygon[j]) * value[j] / (value[j] - value[i]))
            if value[i] >= 0:
                kept.append(polygon[i])
        polygon = np.array(kept).reshape(-1, 2)
    return polygon


def covers(polygon: Array, other: Array) -> bool:
    """Whether a convex polygon [px], shape (n, 2), holds all of another one, no nearer to its edge than a pixel."""
    contour = polygon.astype(np.float32)
    return all(cv2.pointPolygonTest(contour, (x, y), True) >= 1.0 for x, y in other.tolist())


def _area(polygon: Array) -> float:
    return cv2.contourArea(polygon.astype(np.float32))


def _line_kernel(motion: Array) -> NDArray[np.float32]:
    """Kernel that averages along a line of ``motion`` [px], centred, so it does not shift the picture."""
    length = float(np.hypot(*motion))
    radius = math.ceil(length / 2 + 0.5)
    kernel = np.zeros((2 * radius + 1, 2 * radius + 1), dtype=np.float32)
    samples = np.linspace(-0.5, 0.5, 8 * radius + 1)
    for du, dv in samples[:, None] * motion:
        i, j = math.floor(dv), math.floor(du)
        fi, fj = dv - i, du - j
        for k, wk in ((i, 1 - fi), (i + 1, fi)):
            for l, wl in ((j, 1 - fj), (j + 1, fj)):
                if wk * wl > 0:
                    kernel[radius + k, radius + l] += wk * wl
    normalized: NDArray[np.float32] = kernel / kernel.sum()
    return normalized
