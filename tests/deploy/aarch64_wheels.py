"""Which wheels the lock files mean on a 64-bit ARM computer: ``python tests/deploy/aarch64_wheels.py`` asks the package
index and writes ``aarch64_wheels.txt`` beside this file. To be run after every change of a lock file.

A lock file names hashes, and a hash does not say for which machine its file is. pip is asked to choose as it would
on the aircraft's computer, downloads what it chose, and compares the hashes; the list keeps hash and file name.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags

ROOT = Path(__file__).parents[2]
LOCKS = (ROOT / "requirements.lock", ROOT / "acados_gen/requirements-acados.txt")
LIST = Path(__file__).with_suffix(".txt")
PYTHONS = ((3, 11), (3, 12), (3, 13))  # Raspberry Pi OS and Debian 12, Ubuntu 24.04, Debian 13
# For the C library of the oldest of them and older ones: Debian 12 has glibc 2.36.
PLATFORMS = [*(f"manylinux_2_{minor}_aarch64" for minor in range(28, 16, -1)), "manylinux2014_aarch64"]


def locked(python: tuple[int, int]) -> Iterator[tuple[Requirement, set[str]]]:
    """What the lock files pin for a Python version on ARM Linux: requirement without marker, allowed sha256."""
    environment = {
        "python_version": "{}.{}".format(*python),
        "python_full_version": "{}.{}.0".format(*python),
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "platform_machine": "aarch64",
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
    }
    for lock in LOCKS:
        lines = (line.split("#")[0] for line in lock.read_text(encoding="utf-8").splitlines())
        for entry in "\n".join(lines).replace("\\\n", " ").splitlines():
            words, *hashes = entry.split("--hash=sha256:")
            if not words.strip():
                continue
            requirement = Requirement(words)
            if requirement.marker is None or requirement.marker.evaluate(environment):
                requirement.marker = None
                yield requirement, {sha256.strip() for sha256 in hashes}


def tags(python: tuple[int, int]) -> set[Tag]:
    """All tags of wheels that run there."""
    interpreter = "cp{}{}".format(*python)
    return {*cpython_tags(python, platforms=PLATFORMS), *compatible_tags(python, interpreter, PLATFORMS)}


def chosen(python: tuple[int, int]) -> Iterator[tuple[str, str]]:
    """(sha256, file name) of each wheel that pip takes there; raises CalledProcessError when there is none."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, report = Path(folder) / "wanted.txt", Path(folder) / "report.json"
        lines = [f"{pin} {' '.join(f'--hash=sha256:{h}' for h in hashes)}\n" for pin, hashes in locked(python)]
        wanted.write_text("".join(lines))
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--ignore-installed", "--quiet"]
        # pip would compare with the Python that it runs in; the lock's markers have done that already
        command += ["--require-hashes", "--only-binary", ":all:", "--implementation", "cp", "--ignore-requires-python"]
        command += ["--python-version", "{}.{}".format(*python), *(f"--platform={name}" for name in PLATFORMS)]
        subprocess.run([*command, "--target", folder, "--report", report, "-r", wanted], check=True)
        for item in json.loads(report.read_text())["install"]:
            download = item["download_info"]
            yield download["archive_info"]["hashes"]["sha256"], download["url"].rsplit("/", 1)[1]


def main() -> None:
    """Write the list."""
    found = {wheel for python in PYTHONS for wheel in chosen(python)}
    lines = [f"{sha256}  {name}\n" for sha256, name in sorted(found, key=lambda wheel: wheel[1].lower())]
    LIST.write_text("".join(lines), encoding="utf-8")
    print(f"{LIST}: {len(lines)} wheels")


if __name__ == "__main__":
    main()
