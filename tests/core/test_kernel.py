"""Compiled artefacts are found by what shaped them, called without copies, and refused when absent."""

import casadi as ca
import numpy as np
import pytest

from acados_gen.compile import CompileError, compile_functions, compile_library
from companion.core.kernel import ArtifactMissing, Kernel, artifact, fingerprint, require


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


def test_no_compiler_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    source = tmp_path / "x.c"
    source.write_text("int f(void) { return 1; }")
    with pytest.raises(CompileError, match="no C compiler"):
        compile_library("x", "0", [source])
