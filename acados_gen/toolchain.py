"""Provides acados: the user's own build, or a pinned wheel in a private folder.

acados is needed only to generate the solver. A generated solver has copies of the libraries in its own folder, so
flight code does not use the folder of acados.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from acados_gen.compile import compiler
from companion.core.errors import UserError
from companion.core.kernel import build_root, is_whole

REQUIREMENTS = Path(__file__).with_name("requirements-acados.txt")
NEEDED = (
    "include/acados_c/ocp_nlp_interface.h",
    "lib/libacados.so",
    "bin/t_renderer",
    "interfaces/acados_template/acados_template/__init__.py",
)
# Layout of an acados source tree as links into the wheel (link: target, relative to the link's folder).
LINKS = {
    "include": "acados/install/include",
    "lib": "acados/install/lib",
    "bin": "acados/install/bin",
    "interfaces/acados_template/acados_template": "../../acados/acados_template",
}
INSTALL_TIMEOUT_S = 600.0  # 13 MB over a slow field connection


class ToolchainError(UserError):
    """acados is not available; the message is one line for the user."""


def ensure_acados() -> Path:
    """Folder laid out as an acados source tree (include, lib, bin, interfaces/acados_template).

    A set ACADOS_SOURCE_DIR has priority. Otherwise the pinned wheel is installed once into
    <build root>/acados-<version>; the folder gets this name only when it is complete and on the disk. One with a damaged
    library is installed again.

    Raises ToolchainError (no network, unusable ACADOS_SOURCE_DIR) and `acados_gen.compile.CompileError` (no C
    compiler), each with one line.
    """
    compiler()
    if own := os.environ.get("ACADOS_SOURCE_DIR"):
        if missing := _missing(Path(own)):
            raise ToolchainError(f"ACADOS_SOURCE_DIR={own}: {missing} is missing; build acados or unset the variable")
        return Path(own)
    home = build_root() / f"acados-{pinned_version()}"
    if not _is_installed(home):
        _install(home)
    if missing := _missing(home):
        raise ToolchainError(f"{home}: {missing} is missing; delete the folder and generate again")
    return home


def pinned_version() -> str:
    """The version in requirements-acados.txt."""
    match = re.search(r"^comma-deps-acados==(\S+)", REQUIREMENTS.read_text(encoding="utf-8"), re.MULTILINE)
    if match is None:
        raise ToolchainError(f"{REQUIREMENTS}: no line 'comma-deps-acados==<version>'")
    return match.group(1)


def _missing(home: Path) -> str | None:
    return next((path for path in NEEDED if not (home / path).exists()), None)


def _is_installed(home: Path) -> bool:
    return home.exists() and all(map(is_whole, (home / "lib").glob("*.so*")))


def _install(home: Path) -> None:
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix="acados-") as scratch:
        target = Path(scratch) / "complete"
        command = [sys.executable, "-m", "pip", "install", "--no-deps", "--require-hashes", "--quiet"]
        command += ["--disable-pip-version-check", "--target", str(target), "-r", str(REQUIREMENTS)]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise ToolchainError(f"acados: pip did not finish within {INSTALL_TIMEOUT_S:.0f} s") from None
        if result.returncode != 0:
            raise ToolchainError(f"acados: pip cannot install {REQUIREMENTS.name}: {_cause(result.stderr)}")
        shutil.rmtree(target / "casadi", ignore_errors=True)  # built for another Python; would shadow the installed one
        for link, points_to in LINKS.items():
            (target / link).parent.mkdir(parents=True, exist_ok=True)
            (target / link).symlink_to(points_to)
        os.sync()  # some hundred files, once; with the name alone after a loss of power they would count as installed
        if home.exists() and not _is_installed(home):
            shutil.rmtree(home)
        try:
            target.rename(home)
        except OSError:
            if not home.exists():  # otherwise another process has finished first, with the same content
                raise


def _cause(stderr: str) -> str:
    """pip's error in one line: its first error line is the cause, later ones are consequences."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
    # Without an answer from the index, pip --quiet only reports that it found no version.
    signs = ("connection", "name resolution", "from versions: none")
    network = any(sign in line.lower() for line in lines for sign in signs)
    return ("no network? " if network else "") + (errors or lines or ["no message"])[0]
