"""Which software this is: version, commit, hash of the sources, computer.

A log names these facts, so that a flight can be tied to the code that flew it. The hash of the sources identifies the
code also where there is no repository and where files were changed after the last commit.
"""

import functools
import hashlib
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]  # of the packages: the repository, or site-packages
PACKAGES = ("companion", "acados_gen", "calibration", "sitl")
SOURCES = (".py", ".c", ".h", ".j2", ".toml")
COMMIT_FILE = Path(__file__).with_name("commit.txt")  # written by the installer, where no repository is left
GIT_TIMEOUT_S = 5.0
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # random(4): drawn at each start of the computer


class Software(NamedTuple):
    """One state of the code."""

    version: str  # of the package; "source tree" when it runs without having been installed
    commit: str  # full hash, "" where it is not known
    modified: bool  # files under version control differ from the commit
    source_hash: str  # over all source files of the four packages


class Computer(NamedTuple):
    """Where the code runs. Floating-point results may differ between processors."""

    host: str
    processor: str  # architecture and model
    system: str
    python: str


@functools.cache
def software() -> Software:
    """This code, as it was when it was first asked for in this process."""
    commit, modified = _commit()
    return Software(package_version(), commit, modified, source_hash())


def package_version() -> str:
    """Version of the installed package, or "source tree"."""
    try:
        return version("companion")
    except PackageNotFoundError:
        return "source tree"


def version_line() -> str:
    """One line for ``companion --version``, e.g. "companion 0.1.0 (7fb6cb8d1c2e, modified)"."""
    known = software()
    commit = known.commit[:12] or f"no repository, sources {known.source_hash[:12]}"
    return f"companion {known.version} ({commit}{', modified' if known.modified else ''})"


def computer() -> Computer:
    """This computer."""
    uname = os.uname()
    return Computer(uname.nodename, _processor(), f"{uname.sysname} {uname.release}", platform.python_version())


def boot_id() -> str:
    """Which start of this computer this is: companion times are comparable within one. "" where the system has none."""
    return _text(BOOT_ID)


def command_line() -> list[str]:
    """The words with which this process was started."""
    return [os.fsencode(word).decode("utf-8", "backslashreplace") for word in sys.argv]


def source_hash(root: Path = ROOT, packages: tuple[str, ...] = PACKAGES) -> str:
    """SHA-256 over names and bytes of all source files of the packages, in hexadecimal digits."""
    digest = hashlib.sha256()
    for package in packages:
        for path in sorted((root / package).rglob("*")):
            if path.suffix in SOURCES and "__pycache__" not in path.parts and path.is_file():
                digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _commit() -> tuple[str, bool]:
    """(commit, modified) from git, else from the installer's file, else unknown."""
    if (ROOT / ".git").exists():
        commit = _git("rev-parse", "HEAD")
        if commit is not None:
            return commit, _git("status", "--porcelain", "--untracked-files=no") != ""
    try:
        words = COMMIT_FILE.read_text(encoding="utf-8").split()
    except OSError:
        words = []
    return (words[0] if words else ""), "modified" in words[1:]


def _git(*words: str) -> str | None:
    """What git prints, or None where it cannot say."""
    try:
        # safe.directory: the installer runs as root on a repository of the user
        command = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _processor() -> str:
    """Architecture and model, e.g. "x86_64 AMD EPYC"; a Raspberry Pi names its board instead."""
    model = _first_value(Path("/proc/cpuinfo"), "model name") or _text(Path("/proc/device-tree/model"))
    return f"{os.uname().machine} {model}".strip()


def _first_value(path: Path, key: str) -> str:
    lines = _text(path).splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip("\0\n ")
    except OSError:
        return ""
