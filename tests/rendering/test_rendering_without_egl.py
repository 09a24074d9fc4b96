"""Without a renderer: one line where something must be drawn, and nothing of it where nothing is."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from sitl.rendering import context
from sitl.rendering.context import NoRenderer, OffScreen
from sitl.rendering.rasteriser import Rasteriser
from sitl.views import Pinhole
from tests.rendering.drawn_worlds import AHEAD, draws, wall


def refused():
    with pytest.raises(NoRenderer) as error:
        Rasteriser([wall(4.0)])
    assert "\n" not in str(error.value) and str(error.value).startswith("rendering: ")
    return str(error.value)


def test_without_pyopengl_the_line_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "OpenGL", None)
    assert "companion[world]" in refused()


def test_without_libegl_the_line_says_what_flies(monkeypatch):
    class Broken:
        def find_spec(self, name, path=None, target=None):
            if name == "OpenGL.EGL":
                raise AttributeError("'NoneType' object has no attribute 'eglQueryString'")

    for name in [name for name in sys.modules if name.split(".")[0] == "OpenGL"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    line = refused()
    assert "libEGL cannot be loaded" in line and 'camera_mode = "corners"' in line


@draws
def test_without_a_display_of_egl_the_line_says_so(monkeypatch):
    monkeypatch.setattr(context, "SURFACELESS", 0)
    monkeypatch.setattr(context, "DEVICE", 0)
    assert "no display without a screen" in refused()


@draws
def test_without_this_version_of_opengl_the_line_names_it(monkeypatch):
    monkeypatch.setattr(context, "VERSION", (9, 0))
    assert "OpenGL 9.0" in refused()


@draws
def test_a_context_that_is_lost_is_one_line():
    rasteriser = Rasteriser([wall(4.0)])
    rasteriser.close()
    with pytest.raises(NoRenderer, match="closed"):
        _ = rasteriser.renderer


@draws
def test_an_error_of_opengl_is_one_line():
    rasteriser = Rasteriser([wall(4.0)])
    with pytest.raises(NoRenderer, match="^rendering: OpenGL failed: [^\n]+$"):
        rasteriser.draw(Pinhole(-4, 8, 4.0, 4.0, 2.0, 4.0), np.zeros(3), AHEAD)
    assert rasteriser.draw(Pinhole(8, 8, 4.0, 4.0, 4.0, 4.0), np.zeros(3), AHEAD).grey.shape == (8, 8)


def test_a_world_without_devices_loads_no_opengl():
    code = "import sys, sitl.lockstep, sitl.realtime; print([m for m in sys.modules if m.split('.')[0] in ('OpenGL', 'trimesh')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@draws
def test_an_error_of_many_lines_becomes_one(monkeypatch):
    def fails(*_):
        raise RuntimeError("first\n  second")

    egl = SimpleNamespace(eglBindAPI=fails, EGL_OPENGL_API=0)
    monkeypatch.setattr(context, "_import_egl", lambda: egl)
    monkeypatch.setattr(context, "_display", lambda _: 1)
    with pytest.raises(NoRenderer, match="first second"):
        OffScreen()
