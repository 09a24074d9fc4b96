"""Compiled artefacts are found by what shaped them, called without copies, and refused when absent."""

import os
import shutil
import stat

import casadi as ca
import numpy as np
import pytest

from acados_gen.compile import CompileError, compile_functions, compile_library
from acados_gen.generate_control import copy_whole
from companion.core.kernel import (
    ArtifactMissing,
    Kernel,
    artifact,
    fingerprint,
    is_built,
    is_whole,
    long_calls,
    require,
    short_calls,
)


@pytest.fixture(autouse=True)
def own_build_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("COMPANION_BUILD_DIR", str(tmp_path))


def test_a_generated_function_computes_on_bound_buffers():
    x, A = ca.SX.sym("x", 3), ca.SX.sym("A", 3, 3)
    library = compile_functions("trial", "0", [ca.Function("trial", [x, A], [A @ x, ca.diag(x)])])
    kernel = Kernel(library, "trial")
    rng = np.random.default_rng(1)
    for _ in range(3):
        kernel.inputs[0][:] = rng.normal(size=3)
        kernel.inputs[1][:] = rng.normal(size=(3, 3))
        product, diagonal = kernel()
        assert np.allclose(product, kernel.inputs[1] @ kernel.inputs[0])
        assert np.allclose(diagonal, np.diag(kernel.inputs[0]))  # a sparse result arrives dense


def test_the_fingerprint_follows_sources_and_options(tmp_path):
    source = tmp_path / "a.c"
    source.write_text("int a;")
    first = fingerprint([source], {"nodes": 60})
    assert first == fingerprint([source], {"nodes": 60})
    assert first != fingerprint([source], {"nodes": 30})
    source.write_text("int b;")
    assert first != fingerprint([source], {"nodes": 60})


def test_a_missing_artefact_is_refused_with_what_to_do():
    with pytest.raises(ArtifactMissing, match="companion generate"):
        require("nothing", "0123")


def test_a_failed_compilation_leaves_nothing_behind(tmp_path):
    broken = tmp_path / "broken.c"
    broken.write_text("int f( {")
    with pytest.raises(CompileError, match="error"):
        compile_library("broken", "0", [broken])
    assert not artifact("broken", "0").exists()


def test_an_existing_artefact_is_not_built_again(tmp_path):
    source = tmp_path / "fine.c"
    source.write_text("int f(void) { return 1; }")
    library = compile_library("fine", "0", [source])
    stamp = library.stat().st_mtime_ns
    assert compile_library("fine", "0", [source]).stat().st_mtime_ns == stamp


@pytest.fixture
def fine(tmp_path):
    """Builds a library of one function and returns its path."""
    source = tmp_path / "fine.c"
    source.write_text("int f(void) { return 7; }")
    return lambda: compile_library("fine", "0", [source])


def cut(library, length):
    library.write_bytes(library.read_bytes()[:length])


def zeroed(library, _length):
    library.write_bytes(bytes(library.stat().st_size))


@pytest.mark.parametrize("damage, length", [(cut, 0), (cut, 63), (cut, 200), (cut, 5000), (cut, -1), (zeroed, 0)])
def test_a_damaged_artefact_is_refused_with_what_to_do_and_built_again(fine, damage, length):
    """A battery that was unplugged after the installation; generating it again said that it exists."""
    library = fine()
    assert is_whole(library) and require("fine", "0") == library
    damage(library, length)
    with pytest.raises(ArtifactMissing, match="a library is damaged.*run 'companion generate'") as refused:
        require("fine", "0")
    assert str(library.parent) in str(refused.value) and "\n" not in str(refused.value)
    assert short_calls(fine()).f() == 7


def test_a_damaged_library_beside_an_artefact_counts_as_its_own(fine):
    """The solver loads those of acados from its folder."""
    library = fine()
    beside = library.with_name("libacados.so.3.1")
    shutil.copy(library, beside)
    assert is_built(library)
    cut(beside, 0)
    assert not is_built(library)
    beside.rename(library.with_name(".libacados.so.3.1.123"))  # that another build is just copying
    assert is_built(library)


@pytest.mark.parametrize("load", [short_calls, long_calls])
def test_a_library_that_cannot_be_loaded_is_one_line(tmp_path, load):
    library = tmp_path / "libempty.so"
    library.write_bytes(b"")
    with pytest.raises(ArtifactMissing, match=f"{library}: cannot be loaded .*; delete its folder") as refused:
        load(library)
    assert "\n" not in str(refused.value)


def functions():
    x = ca.SX.sym("x", 3)
    return compile_functions("fine", "1", [ca.Function("fine", [x], [2 * x])])


@pytest.mark.parametrize("build", ["c", "casadi", "copy"])
def test_a_library_is_on_the_disk_before_it_has_its_name(fine, tmp_path, monkeypatch, build):
    made = fine() if build == "copy" else None
    target = {"c": artifact("fine", "0"), "casadi": artifact("fine", "1"), "copy": tmp_path / "libcopy.so"}[build]
    steps = []

    def note(descriptor):
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        steps.append((kind, os.fstat(descriptor).st_size > 0, target.exists()))

    monkeypatch.setattr(os, "fsync", note)
    {"c": fine, "casadi": functions, "copy": lambda: copy_whole(made, target)}[build]()
    assert steps == [("file", True, False), ("folder", True, True)]
    assert is_whole(target)


def test_no_compiler_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    source = tmp_path / "x.c"
    source.write_text("int f(void) { return 1; }")
    with pytest.raises(CompileError, match="no C compiler"):
        compile_library("x", "0", [source])
