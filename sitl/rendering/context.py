"""An OpenGL context without a screen: EGL on Mesa's surfaceless platform, else on the first EGL device.

Mesa's software renderer (llvmpipe) needs neither a graphics card nor a display.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from companion.core.errors import UserError

SURFACELESS = 0x31DD  # EGL_PLATFORM_SURFACELESS_MESA
DEVICE = 0x313F  # EGL_PLATFORM_DEVICE_EXT
MAJOR, MINOR, PROFILE, CORE = 0x3098, 0x30FB, 0x30FD, 1  # EGL_CONTEXT_MAJOR_VERSION …
VERSION = (3, 3)
WITHOUT = 'camera_mode = "corners" without stereo and depth cameras flies without it'


class NoRenderer(UserError):
    """Nothing can be drawn on this machine; the message is one line for the user."""


class OffScreen:
    """A context that one thread at a time may use, between `current`'s begin and end.

    Raises `NoRenderer` when PyOpenGL, EGL or OpenGL 3.3 is absent.
    """

    def __init__(self) -> None:
        self._egl = egl = _import_egl()
        self._error = _error_of_opengl()
        self._display = _display(egl)
        try:
            egl.eglBindAPI(egl.EGL_OPENGL_API)
            wanted = [egl.EGL_SURFACE_TYPE, egl.EGL_PBUFFER_BIT, egl.EGL_RENDERABLE_TYPE, egl.EGL_OPENGL_BIT]
            attributes = (egl.EGLint * (len(wanted) + 1))(*wanted, egl.EGL_NONE)
            configs, count = (egl.EGLConfig * 1)(), egl.EGLint()
            egl.eglChooseConfig(self._display, attributes, configs, 1, count)
            if count.value < 1:
                raise NoRenderer(f"rendering: EGL has no configuration for OpenGL; {WITHOUT}")
            version = [MAJOR, VERSION[0], MINOR, VERSION[1], PROFILE, CORE]
            attributes = (egl.EGLint * (len(version) + 1))(*version, egl.EGL_NONE)
            self._context = egl.eglCreateContext(self._display, configs[0], egl.EGL_NO_CONTEXT, attributes)
            with self.current():
                pass
        except NoRenderer:
            raise
        except Exception as error:  # PyOpenGL has an exception for each of EGL's errors
            raise NoRenderer(
                f"rendering: EGL gives no OpenGL {VERSION[0]}.{VERSION[1]} ({_line(error)}); {WITHOUT}"
            ) from None

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """The calling thread draws with this context; an error of OpenGL becomes a `NoRenderer`."""
        if self._context is None:
            raise NoRenderer("rendering: the renderer was closed")
        egl, none = self._egl, self._egl.EGL_NO_SURFACE
        egl.eglMakeCurrent(self._display, none, none, self._context)
        try:
            yield
        except self._error as error:
            raise NoRenderer(f"rendering: OpenGL failed: {_line(error)}") from None
        finally:
            egl.eglMakeCurrent(self._display, none, none, egl.EGL_NO_CONTEXT)

    def close(self) -> None:
        """Free the context and all that was made with it."""
        if self._context is not None:
            self._egl.eglDestroyContext(self._display, self._context)
            self._context = None


def _import_egl() -> Any:
    os.environ.setdefault("PYOPENGL_PLATFORM", "egl")  # read by the first import of OpenGL
    try:
        from OpenGL import EGL
    except ImportError as error:
        if error.name is not None and error.name.split(".")[0] == "OpenGL":
            raise NoRenderer("rendering: PyOpenGL is not installed: pip install 'companion[world]'") from None
        raise NoRenderer(f"rendering: libEGL cannot be loaded ({_line(error)}); {WITHOUT}") from None
    except Exception as error:  # a missing library shows as OSError, AttributeError or TypeError inside PyOpenGL
        raise NoRenderer(f"rendering: libEGL cannot be loaded ({_line(error)}); {WITHOUT}") from None
    return EGL


def _error_of_opengl() -> type[Exception]:
    from OpenGL.error import GLError

    kind: type[Exception] = GLError
    return kind


def _display(egl: Any) -> Any:
    """The first display that can be initialised."""
    from OpenGL.EGL.EXT.device_enumeration import eglQueryDevicesEXT
    from OpenGL.EGL.EXT.platform_base import eglGetPlatformDisplayEXT

    def devices() -> list[Any]:
        found, count = (egl.EGLDeviceEXT * 8)(), egl.EGLint()
        eglQueryDevicesEXT(8, found, count)
        return list(found[: count.value])

    problem = "no platform"
    for platform, natives in ((SURFACELESS, lambda: [None]), (DEVICE, devices)):
        try:
            for native in natives():
                display = eglGetPlatformDisplayEXT(platform, native, None)
                if display and egl.eglInitialize(display, egl.EGLint(), egl.EGLint()):
                    return display
        except Exception as error:
            problem = _line(error)
    raise NoRenderer(f"rendering: EGL has no display without a screen ({problem}); {WITHOUT}")


def _line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return " ".join(text.split())[:120]
