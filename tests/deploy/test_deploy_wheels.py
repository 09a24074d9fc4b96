"""Every pinned package has a wheel for the aircraft's computer: nothing is compiled there but the solver."""

import pytest
from aarch64_wheels import LIST, LOCKS, PYTHONS, ROOT, locked, tags
from packaging.utils import canonicalize_name, parse_wheel_filename

WHEELS = [line.split() for line in LIST.read_text(encoding="utf-8").splitlines()]
AGAIN = "run: python tests/deploy/aarch64_wheels.py"


def fits(requirement, hashes, runs_there) -> bool:
    """A listed file has a pinned hash, the pinned name and version, and tags that run there."""
    for sha256, name in WHEELS:
        package, version, _, its_tags = parse_wheel_filename(name)
        same = package == canonicalize_name(requirement.name) and version in requirement.specifier
        if same and sha256 in hashes and its_tags & runs_there:
            return True
    return False


@pytest.mark.parametrize("python", PYTHONS, ids="{0[0]}.{0[1]}".format)
def test_every_pinned_package_has_a_wheel_for_aarch64(python):
    runs_there = tags(python)
    pinned = list(locked(python))
    assert len(pinned) > 40
    missing = [str(requirement) for requirement, hashes in pinned if not fits(requirement, hashes, runs_there)]
    assert not missing, AGAIN


def test_the_list_holds_nothing_that_is_not_pinned():
    hashes = {sha256 for python in PYTHONS for _, allowed in locked(python) for sha256 in allowed}
    assert {sha256 for sha256, _ in WHEELS} <= hashes, AGAIN


def test_the_solver_generator_is_among_them():
    names = {requirement.name for requirement, _ in locked(PYTHONS[0])}
    assert {"numpy", "casadi", "comma-deps-acados", "opencv-contrib-python-headless", "mavsdk"} <= names
    assert len(LOCKS) == 2


def test_a_wheel_for_another_machine_does_not_fit():
    runs_there = tags((3, 11))
    for name, runs in (
        ("numpy-2.4.6-cp311-cp311-manylinux_2_27_aarch64.manylinux_2_28_aarch64.whl", True),
        ("numpy-2.4.6-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl", False),
        ("numpy-2.4.6-cp312-cp312-manylinux_2_27_aarch64.manylinux_2_28_aarch64.whl", False),
        ("numpy-2.4.6-cp311-cp311-musllinux_1_2_aarch64.whl", False),
        ("click-8.5.1-py3-none-any.whl", True),
    ):
        assert bool(parse_wheel_filename(name)[3] & runs_there) is runs, name


@pytest.mark.parametrize("file", ["Makefile", "systemd/install.sh"])
def test_a_later_release_of_a_package_does_not_change_what_is_installed(file):
    text = (ROOT / file).read_text(encoding="utf-8").replace("\\\n", " ")
    (command,) = [line for line in text.splitlines() if "pip install" in line and "requirements.lock" in line]
    assert {"--no-deps", "--require-hashes"} <= set(command.split())
