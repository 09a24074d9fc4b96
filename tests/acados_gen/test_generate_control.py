import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from acados_gen import generate_control, toolchain
from acados_gen.compile import CompileError
from companion.core import control_artifacts as artifacts
from companion.core.config import load
from companion.core.vehicle import Vehicle

REPOSITORY = Path(__file__).parents[2]
F550 = REPOSITORY / "config" / "vehicles" / "f550.toml"


@pytest.fixture(scope="module")
def vehicle():
    return load(F550, Vehicle)


def one_line(error):
    """True when the message of a raised error is one short line."""
    return "\n" not in str(error.value) and len(str(error.value)) < 400


def fake_acados(folder):
    """A folder with empty files in place of acados."""
    for name in toolchain.NEEDED:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    return folder


def test_an_existing_artefact_is_not_built_again(vehicle):
    first = generate_control.generate(vehicle)
    stamps = [path.stat().st_mtime_ns for path in first]
    progress = []
    assert generate_control.generate(vehicle, progress.append) == first
    assert progress == []
    assert [path.stat().st_mtime_ns for path in first] == stamps


def test_the_folder_of_the_solver_works_at_any_place(vehicle, tmp_path):
    """Without acados in the environment, only the libraries in the solver's own folder are loaded."""
    generate_control.generate(vehicle)
    folder = tmp_path / "moved"
    shutil.copytree(artifacts.solver_path(vehicle).parent, folder)
    code = (
        "import ctypes; c = ctypes.CDLL('libnmpc.so'.join([%r, ''])); c.nmpc_create.restype = ctypes.c_void_p; "
        "assert c.nmpc_create(); "
        "print('\\n'.join(l.split()[-1] for l in open('/proc/self/maps') if 'acados' in l or 'hpipm' in l))"
    ) % (str(folder) + os.sep)
    environment = {"PATH": os.environ["PATH"]}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    mapped = set(result.stdout.split())
    assert mapped == {str(folder / "libacados.so"), str(folder / "libhpipm.so")}


def test_flight_code_needs_neither_casadi_nor_acados_template():
    code = (
        "import sys, companion.control.controller; "
        "sys.exit(any(name.split('.')[0] in ('casadi', 'acados_template') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY).returncode == 0


def test_the_users_own_acados_has_priority(monkeypatch, tmp_path):
    monkeypatch.setenv("ACADOS_SOURCE_DIR", str(fake_acados(tmp_path)))
    assert toolchain.ensure_acados() == tmp_path


def test_an_unusable_acados_source_dir_is_one_line(monkeypatch, tmp_path):
    fake_acados(tmp_path)
    (tmp_path / "bin" / "t_renderer").unlink()
    monkeypatch.setenv("ACADOS_SOURCE_DIR", str(tmp_path))
    with pytest.raises(toolchain.ToolchainError, match="t_renderer") as error:
        toolchain.ensure_acados()
    assert one_line(error)


def test_without_network_the_error_is_one_line_and_no_file_remains(monkeypatch, tmp_path):
    monkeypatch.delenv("ACADOS_SOURCE_DIR", raising=False)
    monkeypatch.setenv("COMPANION_BUILD_DIR", str(tmp_path))
    for name, value in {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_RETRIES": "0",
        "PIP_TIMEOUT": "1",
        "PIP_NO_CACHE_DIR": "1",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(toolchain.ToolchainError, match="no network") as error:
        toolchain.ensure_acados()
    assert one_line(error)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_acados_is_installed_again(monkeypatch, tmp_path):
    """A loss of power after its installation left the names without their content; it was taken for installed."""
    monkeypatch.delenv("ACADOS_SOURCE_DIR", raising=False)
    monkeypatch.setenv("COMPANION_BUILD_DIR", str(tmp_path))
    library = Path(shutil.which(sys.executable)).resolve()  # an ELF file that is whole
    synchronised = []
    monkeypatch.setattr(os, "sync", lambda: synchronised.append(sorted(path.name for path in tmp_path.iterdir())))

    def pip(command, **_):
        target = Path(command[command.index("--target") + 1])
        for name in ("lib", "include/acados_c", "bin"):
            (target / "acados/install" / name).mkdir(parents=True)
        (target / "acados/install/include/acados_c/ocp_nlp_interface.h").write_text("")
        (target / "acados/install/bin/t_renderer").write_text("")
        (target / "acados/acados_template").mkdir()
        (target / "acados/acados_template/__init__.py").write_text("")
        shutil.copy(library, target / "acados/install/lib/libacados.so")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(toolchain.subprocess, "run", pip)
    home = toolchain.ensure_acados()
    assert len(synchronised) == 1 and home.name not in synchronised[0]  # before it had its name
    toolchain.ensure_acados()
    assert len(synchronised) == 1
    (home / "lib/libacados.so").write_bytes(b"")
    assert toolchain.ensure_acados() == home
    assert len(synchronised) == 2 and (home / "lib/libacados.so").read_bytes() == library.read_bytes()
    assert list(tmp_path.iterdir()) == [home]


@pytest.mark.parametrize("name", ["libnmpc.so", "libhpipm.so"])
def test_a_damaged_solver_is_built_again(vehicle, tmp_path, monkeypatch, name):
    generate_control.generate(vehicle)
    folder = artifacts.solver_path(vehicle).parent
    monkeypatch.setenv("COMPANION_BUILD_DIR", str(tmp_path))
    shutil.copytree(folder, tmp_path / folder.name)
    assert artifacts.require_solver(vehicle)
    (tmp_path / folder.name / name).write_bytes(b"")
    monkeypatch.setattr(generate_control, "ensure_acados", lambda: pytest.fail("built again"))
    with pytest.raises(pytest.fail.Exception, match="built again"):
        generate_control._solver(vehicle, generate_control.print_nothing)


def test_a_missing_compiler_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(CompileError, match="no C compiler") as error:
        toolchain.ensure_acados()
    assert one_line(error)


def test_both_architectures_are_pinned_by_hash():
    text = toolchain.REQUIREMENTS.read_text()
    assert text.count("--hash=sha256:") == 2
    assert toolchain.pinned_version() in text


def test_a_failed_generation_is_one_line(monkeypatch, tmp_path, vehicle):
    """With an acados whose Python interface is empty."""
    monkeypatch.setenv("ACADOS_SOURCE_DIR", str(fake_acados(tmp_path / "acados")))
    monkeypatch.setenv("COMPANION_BUILD_DIR", str(tmp_path / "build"))
    with pytest.raises(CompileError, match="AcadosOcpSolver|AcadosModel") as error:
        generate_control.generate(vehicle)
    assert one_line(error)
    assert not artifacts.solver_path(vehicle).exists()
