"""Draws meshes and the planes of a scene with OpenGL into grey, depth and material, each of the size of the picture.

The picture is that of a pinhole camera without distortion; `sitl.rendering.lens` bends it. Coordinates of the picture follow
the image convention of the project: the centre of the top left pixel is (0, 0). The depth is that along the optical
axis. The same calls give the same picture on one machine; another version of Mesa may round a grey level otherwise.
"""

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from companion.core.arrays import Array, Image8
from companion.core.config import ConfigError
from sitl.light import LightConfig
from sitl.rendering.context import NoRenderer, OffScreen
from sitl.rendering.meshes import Drawable, check
from sitl.scene import SKY, Plane
from sitl.solids.solids import GLUED_M
from sitl.solids.world_file import MATERIALS
from sitl.views import Picture, Pinhole

NOISE_PER_M = {material.name: material.depth_noise_per_m or 0.0 for material in MATERIALS}
BACKDROP_PER_M, MARKER_PER_M = NOISE_PER_M["cement"], NOISE_PER_M["foam_board"]  # of rectangles
MATERIALS_MAX = 255  # number 0 of a pixel's material: nothing was hit

VERTEX = """
#version 330 core
layout(location = 0) in vec3 position;
layout(location = 1) in vec3 mapped;  // uv, light
uniform mat4 to_clip;
uniform vec4 to_depth;
out vec3 surface;
out float depth;
void main() {
    gl_Position = to_clip * vec4(position, 1.0);
    depth = dot(to_depth, vec4(position, 1.0));
    surface = mapped;
}
"""
FRAGMENT = """
#version 330 core
in vec3 surface;
in float depth;
uniform sampler2D grey;
uniform float material;
layout(location = 0) out vec2 picture;
layout(location = 1) out float distance;
float at(float right, float down) {
    return texture(grey, surface.xy + 0.25 * (right * dFdx(surface.xy) + down * dFdy(surface.xy)), -1.0).r;
}
void main() {
    float level = LEVEL;
    picture = vec2(level * surface.z, material);
    distance = depth;
}
"""


# Two programs: with a branch in one, the software renderer would do the work of both sides for each pixel.
FACE_LEVEL = "texture(grey, surface.xy).r"
# Four points of the pixel, from the reduced copy that is finer by two: as `sitl.camera` draws markers.
MARKER_LEVEL = "0.25 * (at(-1.0, -1.0) + at(1.0, -1.0) + at(-1.0, 1.0) + at(1.0, 1.0))"


class DrawnPlane(NamedTuple):
    """A plane of a scene and the homography of the picture by which it is drawn displaced; None: where it is."""

    plane: Plane
    displacement: Array | None = None


class _Program(NamedTuple):
    name: int
    to_clip: int  # places of its uniforms
    to_depth: int
    material: int


class _Mesh(NamedTuple):
    vertices: int  # names of OpenGL's objects
    texture: int
    corners: int
    material: int
    low_W: Array
    high_W: Array


class Rasteriser:
    """Pictures of a fixed set of meshes, and of planes that are given with each picture.

    near_m, far_m: nothing outside of this range of depths is drawn.
    Raises `NoRenderer` when this machine cannot draw, `ConfigError` for a mesh that cannot be drawn.
    """

    def __init__(
        self,
        meshes: Sequence[Drawable],
        light: LightConfig | None = None,
        near_m: float = 0.05,
        far_m: float = 1000.0,
    ) -> None:
        for i, mesh in enumerate(meshes):
            check(f"mesh {i}", mesh)
        exponents = sorted({BACKDROP_PER_M, MARKER_PER_M, *(_noise(m) for m in meshes)})
        if len(exponents) > MATERIALS_MAX:
            raise ConfigError(f"meshes: {len(exponents)} materials, at most {MATERIALS_MAX}")
        self.depth_noise_per_m = np.array([0.0, *exponents], dtype=np.float32)
        self._numbers = {m: i for i, m in enumerate(exponents, 1)}
        self._near_m, self._far_m = near_m, far_m
        self._light = light or LightConfig()
        self._screen = OffScreen()
        self._targets: dict[tuple[int, int], int] = {}
        self._textures: dict[tuple[int, bool], tuple[int, Image8]] = {}
        with self._screen.current():
            from OpenGL import GL

            self._gl: Any = GL
            self._build_programs()
            self._meshes = [self._upload(mesh) for mesh in meshes]
            self._quad = self._quad_buffer()

    @property
    def renderer(self) -> str:
        """Name of the machine's renderer."""
        with self._screen.current():
            return str(self._gl.glGetString(self._gl.GL_RENDERER).decode(errors="replace"))

    def close(self) -> None:
        self._screen.close()

    def draw(
        self,
        view: Pinhole,
        p_WC: Array,
        R_WC: Array,
        planes: Sequence[DrawnPlane] = (),
        depth: bool = True,
    ) -> Picture:
        """The picture of a camera at p_WC [m] whose optical axes are the columns of R_WC."""
        with self._screen.current():
            return self._draw(view, np.asarray(p_WC, dtype=float), R_WC, planes, depth)

    # --- a picture --------------------------------------------------------------------------------------------

    def _draw(self, view: Pinhole, p_WC: Array, R_WC: Array, planes: Sequence[DrawnPlane], depth: bool) -> Picture:
        gl = self._gl
        w, h = view.width, view.height
        self._target(w, h, depth)
        gl.glViewport(0, 0, w, h)
        gl.glClearBufferfv(gl.GL_COLOR, 0, np.array([SKY / 255.0, 0, 0, 0], dtype=np.float32))
        if depth:
            gl.glClearBufferfv(gl.GL_COLOR, 1, np.array([np.inf, 0, 0, 0], dtype=np.float32))
        gl.glClearBufferfv(gl.GL_DEPTH, 0, np.ones(1, dtype=np.float32))
        program = self._use(self._faces)
        gl.glEnable(gl.GL_DEPTH_TEST)
        gl.glFrontFace(gl.GL_CW)  # y of the picture points down: what is anticlockwise appears clockwise to OpenGL
        view_from_world = np.eye(4)
        view_from_world[:3, :3], view_from_world[:3, 3] = R_WC.T, -R_WC.T @ p_WC
        clip_from_view = self._projection(view)
        clip = clip_from_view @ view_from_world
        gl.glUniform4fv(program.to_depth, 1, view_from_world[2].astype(np.float32))
        gl.glUniformMatrix4fv(program.to_clip, 1, gl.GL_TRUE, clip.astype(np.float32))
        gl.glEnable(gl.GL_CULL_FACE)
        for mesh in self._meshes:
            if _outside(clip, mesh.low_W, mesh.high_W):
                continue
            gl.glUniform1f(program.material, mesh.material / 255.0)
            gl.glBindTexture(gl.GL_TEXTURE_2D, mesh.texture)
            gl.glBindVertexArray(mesh.vertices)
            gl.glDrawArrays(gl.GL_TRIANGLES, 0, mesh.corners)
        self._draw_planes(view, clip_from_view, view_from_world, p_WC, planes)
        picture = np.empty((h, w, 2), dtype=np.uint8)
        gl.glReadBuffer(gl.GL_COLOR_ATTACHMENT0)
        gl.glReadPixels(0, 0, w, h, gl.GL_RG, gl.GL_UNSIGNED_BYTE, picture)
        distances = None
        if depth:
            distances = np.empty((h, w), dtype=np.float32)
            gl.glReadBuffer(gl.GL_COLOR_ATTACHMENT1)
            gl.glReadPixels(0, 0, w, h, gl.GL_RED, gl.GL_FLOAT, distances)
        grey, material = np.ascontiguousarray(picture[..., 0]), np.ascontiguousarray(picture[..., 1])
        return Picture(grey, distances, material)

    def _draw_planes(
        self, view: Pinhole, clip_from_view: Array, view_from_world: Array, p_WC: Array, planes: Sequence[DrawnPlane]
    ) -> None:
        gl = self._gl
        gl.glDisable(gl.GL_CULL_FACE)
        gl.glBindVertexArray(self._quad)
        for plane, displacement in planes:
            if not plane.two_sided and plane.normal_W @ (p_WC - plane.p_W) <= 0:
                continue
            rows, columns = plane.levels[0].shape
            world_from_quad = np.eye(4)  # the quad's u and v from 0 to 1, from the texture's top left corner
            world_from_quad[:3, 0], world_from_quad[:3, 1] = columns * plane.right_W, rows * plane.down_W
            world_from_quad[:3, 3] = plane.origin_W - 0.5 * plane.right_W - 0.5 * plane.down_W
            view_from_quad = view_from_world @ world_from_quad
            clip = clip_from_view @ view_from_quad
            if displacement is not None:
                clip = _displaced(clip, displacement, view)
            is_marker = not plane.two_sided
            if is_marker and (distance_m := view_from_world[2] @ (*plane.p_W, 1.0)) > self._near_m:
                # A marker less than GLUED_M behind a face is on it: nearer by that, to first order, for the depth test.
                clip[2] += clip_from_view[2, 3] * GLUED_M / distance_m**2 * clip[3]
            program = self._use(self._markers if is_marker else self._faces)
            gl.glUniform1f(program.material, self._numbers[MARKER_PER_M if is_marker else BACKDROP_PER_M] / 255.0)
            gl.glUniform4fv(program.to_depth, 1, view_from_quad[2].astype(np.float32))
            gl.glUniformMatrix4fv(program.to_clip, 1, gl.GL_TRUE, clip.astype(np.float32))
            gl.glBindTexture(gl.GL_TEXTURE_2D, self._texture_of(plane.levels[0], repeats=False))
            gl.glDrawArrays(gl.GL_TRIANGLE_STRIP, 0, 4)

    def _use(self, program: _Program) -> _Program:
        self._gl.glUseProgram(program.name)
        return program

    def _projection(self, view: Pinhole) -> Array:
        """OpenGL's clip coordinates of points in the camera frame; the first row of memory is the top one."""
        near, far = self._near_m, self._far_m
        P = np.zeros((4, 4))
        P[0, 0], P[0, 2] = 2 * view.fx / view.width, (2 * view.cx + 1) / view.width - 1
        P[1, 1], P[1, 2] = 2 * view.fy / view.height, (2 * view.cy + 1) / view.height - 1
        P[2, 2], P[2, 3] = (far + near) / (far - near), -2 * far * near / (far - near)
        P[3, 2] = 1.0
        return P

    def _target(self, width: int, height: int, depth: bool) -> None:
        """Draw into the buffers of this size, made at the first picture of it."""
        gl = self._gl
        if (width, height) not in self._targets:
            largest = int(gl.glGetIntegerv(gl.GL_MAX_RENDERBUFFER_SIZE))
            if max(width, height) > largest:
                raise ConfigError(f"rendering: a picture of {width} x {height} px, at most {largest} px a side")
            frame = int(gl.glGenFramebuffers(1))
            gl.glBindFramebuffer(gl.GL_FRAMEBUFFER, frame)
            colours = ((gl.GL_COLOR_ATTACHMENT0, gl.GL_RG8), (gl.GL_COLOR_ATTACHMENT1, gl.GL_R32F))
            for place, form in (*colours, (gl.GL_DEPTH_ATTACHMENT, gl.GL_DEPTH_COMPONENT32F)):
                buffer = int(gl.glGenRenderbuffers(1))
                gl.glBindRenderbuffer(gl.GL_RENDERBUFFER, buffer)
                gl.glRenderbufferStorage(gl.GL_RENDERBUFFER, form, width, height)
                gl.glFramebufferRenderbuffer(gl.GL_FRAMEBUFFER, place, gl.GL_RENDERBUFFER, buffer)
            if gl.glCheckFramebufferStatus(gl.GL_FRAMEBUFFER) != gl.GL_FRAMEBUFFER_COMPLETE:
                raise NoRenderer("rendering: OpenGL gives no frame buffer of grey and float depth")
            self._targets[width, height] = frame
        gl.glBindFramebuffer(gl.GL_FRAMEBUFFER, self._targets[width, height])
        gl.glDrawBuffers(2 if depth else 1, [gl.GL_COLOR_ATTACHMENT0, gl.GL_COLOR_ATTACHMENT1][: 2 if depth else 1])

    # --- preparation ------------------------------------------------------------------------------------------

    def _build_programs(self) -> None:
        gl = self._gl
        gl.glBindVertexArray(gl.glGenVertexArrays(1))  # a core profile validates a program only with one
        self._faces, self._markers = (self._program(level) for level in (FACE_LEVEL, MARKER_LEVEL))

    def _program(self, level: str) -> _Program:
        from OpenGL.GL import shaders

        gl = self._gl
        try:
            parts = [
                shaders.compileShader(VERTEX, gl.GL_VERTEX_SHADER),
                shaders.compileShader(FRAGMENT.replace("LEVEL", level), gl.GL_FRAGMENT_SHADER),
            ]
            name = shaders.compileProgram(*parts, validate=False)
        except RuntimeError as error:
            raise NoRenderer(
                f"rendering: this OpenGL refuses the shaders: {str(error).splitlines()[0][:200]}"
            ) from None
        return _Program(name, *(gl.glGetUniformLocation(name, u) for u in ("to_clip", "to_depth", "material")))

    def _upload(self, mesh: Drawable) -> _Mesh:
        corners = np.asarray(mesh.vertices_W, dtype=float)[np.asarray(mesh.triangles)]  # (k, 3, 3)
        normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-30)
        light = self._light.on(normals)
        data = np.empty((len(corners), 3, 6), dtype=np.float32)
        data[..., :3] = corners
        data[..., 3:5] = np.asarray(mesh.uv)[np.asarray(mesh.triangles)]
        data[..., 5] = light[:, None]
        return _Mesh(
            vertices=self._buffer(data.reshape(-1, 6)),
            texture=self._texture_of(mesh.texture, repeats=True),
            corners=3 * len(corners),
            material=self._numbers[_noise(mesh)],
            low_W=corners.min(axis=(0, 1)),
            high_W=corners.max(axis=(0, 1)),
        )

    def _quad_buffer(self) -> int:
        corners = [(u, v, 0, u, v, 1) for u, v in ((0, 0), (1, 0), (0, 1), (1, 1))]
        return self._buffer(np.array(corners, dtype=np.float32))

    def _buffer(self, data: NDArray[np.float32]) -> int:
        """A vertex array of rows x y z u v light."""
        gl = self._gl
        array = int(gl.glGenVertexArrays(1))
        gl.glBindVertexArray(array)
        gl.glBindBuffer(gl.GL_ARRAY_BUFFER, gl.glGenBuffers(1))
        gl.glBufferData(gl.GL_ARRAY_BUFFER, data.nbytes, data, gl.GL_STATIC_DRAW)
        for place in (0, 1):
            gl.glEnableVertexAttribArray(place)
            gl.glVertexAttribPointer(place, 3, gl.GL_FLOAT, False, 24, ctypes.c_void_p(12 * place))
        return array

    def _texture_of(self, image: Image8, repeats: bool) -> int:
        """The texture of an image, uploaded once; solids of one material and planes that were moved share it."""
        key = id(image), repeats
        if key not in self._textures:
            self._textures[key] = self._texture(image, repeats), image  # kept, so that its id is not used again
        return self._textures[key][0]

    def _texture(self, image: Image8, repeats: bool) -> int:
        gl = self._gl
        largest = int(gl.glGetIntegerv(gl.GL_MAX_TEXTURE_SIZE))
        rows, columns = image.shape
        if max(rows, columns) > largest:
            raise ConfigError(f"rendering: a texture of {columns} x {rows} px, at most {largest} px a side")
        texture = int(gl.glGenTextures(1))
        gl.glBindTexture(gl.GL_TEXTURE_2D, texture)
        gl.glPixelStorei(gl.GL_UNPACK_ALIGNMENT, 1)
        data = np.ascontiguousarray(image)
        gl.glTexImage2D(gl.GL_TEXTURE_2D, 0, gl.GL_R8, columns, rows, 0, gl.GL_RED, gl.GL_UNSIGNED_BYTE, data)
        gl.glGenerateMipmap(gl.GL_TEXTURE_2D)
        edge = gl.GL_REPEAT if repeats else gl.GL_CLAMP_TO_EDGE
        for name, value in (
            (gl.GL_TEXTURE_MIN_FILTER, gl.GL_LINEAR_MIPMAP_LINEAR),
            (gl.GL_TEXTURE_MAG_FILTER, gl.GL_LINEAR),
            (gl.GL_TEXTURE_WRAP_S, edge),
            (gl.GL_TEXTURE_WRAP_T, edge),
        ):
            gl.glTexParameteri(gl.GL_TEXTURE_2D, name, value)
        return texture


def _noise(mesh: Drawable) -> float:
    """m of a mesh; a depth camera is refused where a material has none, so the number is not used then."""
    return 0.0 if mesh.depth_noise_per_m is None else float(mesh.depth_noise_per_m)


def _outside(clip: Array, low_W: Array, high_W: Array) -> bool:
    """Whether a box lies wholly on the outer side of one of the six planes of the view."""
    corners = np.array([low_W, high_W])
    x, y, z = np.meshgrid(corners[:, 0], corners[:, 1], corners[:, 2])
    points = clip @ np.array([x.ravel(), y.ravel(), z.ravel(), np.ones(8)])
    w = points[3]
    return bool(((points[:3] < -w).all(axis=1) | (points[:3] > w).all(axis=1)).any())


def _displaced(clip: Array, H: Array, view: Pinhole) -> Array:
    """Clip coordinates whose pixels are moved by a homography; the order in depth is kept."""
    to_pixel = np.array(
        [[view.width / 2, 0, (view.width - 1) / 2], [0, view.height / 2, (view.height - 1) / 2], [0, 0, 1.0]]
    )
    moved = np.linalg.inv(to_pixel) @ (H / H[2, 2]) @ to_pixel
    result = clip.copy()
    result[[0, 1, 3]] = moved @ clip[[0, 1, 3]]
    return result
