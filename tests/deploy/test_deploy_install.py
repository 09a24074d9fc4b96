"""install.sh: prints without changing, installs, installs again, keeps the user's files, uninstalls."""

import os
import shutil
import subprocess
import sys

import pytest
from unit_files import ROOT

from companion.core.config import load
from companion.core.vehicle import Vehicle
from companion.mission.plan import load_plan

INSTALL = ROOT / "systemd/install.sh"


def install(*words, status: int = 0, source=INSTALL, **environment) -> str:
    done = subprocess.run([source, *map(str, words)], capture_output=True, text=True, env=os.environ | environment)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def listing(root) -> dict[str, tuple]:
    """Every file below a folder with what it holds or points to, and when it was last written."""
    found = {}
    for path in sorted(root.rglob("*")):
        if path.is_symlink():
            found[str(path.relative_to(root))] = (os.readlink(path),)
        elif path.is_file():
            found[str(path.relative_to(root))] = (path.read_bytes(), path.stat().st_mtime_ns)
    return found


@pytest.fixture
def root(tmp_path):
    install("--root", tmp_path, "--no-venv")
    return tmp_path


def test_a_dry_run_prints_and_changes_nothing(tmp_path):
    output = install("--root", tmp_path, "--dry-run", PYTHON="python3")
    assert list(tmp_path.iterdir()) == []
    for words in ("-m venv", "--require-hashes", "generate --vehicle", "companion-fcu.service", "70-companion.rules"):
        assert words in output, words
    install("--root", tmp_path, "--no-venv")
    before = listing(tmp_path)
    install("--root", tmp_path, "--no-venv", "--dry-run")
    install("--root", tmp_path, "--uninstall", "--dry-run")
    assert listing(tmp_path) == before


@pytest.mark.parametrize("last", ["/mine.toml", '"/mine.toml"', "'/mine.toml'", " /mine.toml \t\r"])
def test_the_kernels_are_compiled_for_the_last_vehicle_of_the_environment_file(tmp_path, last):
    env_file = tmp_path / "etc/companion/companion.env"
    env_file.parent.mkdir(parents=True)
    env_file.write_text(f"COMPANION_VEHICLE=/first.toml\n COMPANION_VEHICLE ={last}\n#COMPANION_VEHICLE=/no.toml\n")
    output = install("--root", tmp_path, "--dry-run", PYTHON="python3")
    assert f"compile for {tmp_path}/mine.toml" in output.splitlines()


def test_everything_is_in_its_place(root):
    for name in ("companion.target", "companion-fcu.service", "companion-.service.d/10-common.conf"):
        assert (root / "etc/systemd/system" / name).is_file()
    assert (root / "etc/udev/rules.d/70-companion.rules").is_file()
    assert os.access(root / "usr/local/bin/companion", os.X_OK)
    assert (root / "opt/companion/current/source/companion/runtime/processes.py").is_file()
    assert (root / "opt/companion/current/docs/deploy.md").is_file()  # which the units name


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a repository")
def test_the_installed_copy_names_its_commit(root):
    head = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
    words = (root / "opt/companion/current/source/companion/core/commit.txt").read_text().split()
    assert words[0] == head.strip() and words[1:] in ([], ["modified"])


def test_the_installed_configuration_is_whole(root):
    lines = (root / "etc/companion/companion.env").read_text().splitlines()
    names = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    assert load(f"{root}{names['COMPANION_VEHICLE']}", Vehicle).mass_kg > 0
    plan = load_plan(f"{root}{names['COMPANION_MISSION']}")
    assert plan.start == "rc_switch"  # what starts at power-on must wait for the pilot
    assert names["OMP_NUM_THREADS"] == "1"


def test_a_second_time_changes_nothing(root):
    before = listing(root)
    output = install("--root", root, "--no-venv")
    assert listing(root) == before
    assert "install " not in output


def test_the_users_files_are_kept_and_an_older_unit_is_replaced(root):
    mine, unit = root / "etc/companion/vehicles/f550.toml", root / "etc/systemd/system/companion-fcu.service"
    mine.write_text("# measured by me\n" + mine.read_text())
    own = root / "etc/companion/vehicles/own.toml"
    own.write_text('base = "f550.toml"\n')
    unit.write_text("[Service]\n")
    before = mine.read_bytes(), own.read_bytes()
    assert f"kept    {mine}" in install("--root", root, "--no-venv")
    assert (mine.read_bytes(), own.read_bytes()) == before
    assert unit.read_bytes() == (ROOT / "systemd/units/companion-fcu.service").read_bytes()


def test_uninstalling_leaves_the_users_files_and_the_flights(root):
    flight = root / "var/lib/companion/flights/a.mcap"
    flight.parent.mkdir(parents=True)
    flight.write_text("a flight")
    mine = {name for name in listing(root) if name.startswith("etc/companion/")}
    install("--root", root, "--uninstall")
    assert set(listing(root)) == mine | {"var/lib/companion/flights/a.mcap"}
    install("--root", root, "--uninstall")  # and once more


@pytest.mark.parametrize("umask", [0o077, 0o027])
def test_the_user_of_the_units_can_read_what_was_installed_under_any_umask(tmp_path, umask):
    source, root = tmp_path / "source", tmp_path / "root"
    source.mkdir()
    root.mkdir(mode=0o755)
    for part in ("companion", "acados_gen", "calibration", "sitl", "docs", "systemd", "config"):
        shutil.copytree(ROOT / part, source / part, ignore=shutil.ignore_patterns("__pycache__"))
    for part in ("pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / part, source / part)
    for path in source.rglob("*"):  # a checkout that was made under this umask
        path.chmod(path.stat().st_mode & ~umask)
    build = root / "opt/companion/build"
    build.mkdir(parents=True)
    kernel = build / "kernel.so"  # compiled under this umask by an earlier version
    kernel.write_text("")
    for path in (kernel, build, build.parent):
        path.chmod(path.stat().st_mode & ~umask)
    before = os.umask(umask)
    try:
        install("--root", root, "--no-venv", source=source / "systemd/install.sh")
    finally:
        os.umask(before)
    closed = [path for path in root.rglob("*") if not path.is_symlink() and not path.stat().st_mode & 0o004]
    closed += [path for path in root.rglob("*") if path.is_dir() and not path.stat().st_mode & 0o001]
    assert not closed


def test_an_update_can_be_taken_back(root, tmp_path_factory):
    newer = tmp_path_factory.mktemp("newer")
    for part in ("companion", "acados_gen", "calibration", "sitl", "docs", "systemd", "config"):
        shutil.copytree(ROOT / part, newer / part, ignore=shutil.ignore_patterns("__pycache__"))
    for part in ("pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / part, newer / part)
    unit = newer / "systemd/units/companion-mission.service"
    unit.write_text(unit.read_text() + "# newer\n")
    added = newer / "systemd/units/added.service"  # by the newer version alone
    added.write_text("[Unit]\n")
    script = newer / "systemd/install.sh"
    script.write_text(script.read_text().replace("UNITS='companion.target", "UNITS='added.service companion.target"))
    first = os.readlink(root / "opt/companion/current")
    install("--root", root, "--no-venv", source=newer / "systemd/install.sh")
    second = os.readlink(root / "opt/companion/current")
    installed = root / "etc/systemd/system/companion-mission.service"
    assert first != second and installed.read_bytes() == unit.read_bytes()
    assert (installed.parent / "added.service").is_file()
    install("--root", root, "--rollback", source=script)
    assert not (installed.parent / "added.service").exists()
    assert os.readlink(root / "opt/companion/current") == first
    assert "# newer" not in installed.read_text()
    install("--root", root, "--rollback")  # forward again
    assert os.readlink(root / "opt/companion/current") == second


@pytest.mark.parametrize(
    "words, output",
    [
        (["--colour"], "unknown option --colour"),
        (["--root"], "--root needs a value"),
        (["--root", "relative"], "must be an absolute path"),
        (["--root", "/"], "leave the option out"),
        (["--root", "/no/such/folder"], "no such folder"),
    ],
)
def test_a_wrong_option_is_one_line(words, output):
    said = install(*words, status=2)
    assert output in said and len(said.splitlines()) == 1


def test_a_rollback_needs_an_earlier_version(root):
    assert "there is no earlier version" in install("--root", root, "--rollback", status=2)


# `made` of a release counts its environments; the command is not of this version where a file has the key of the next one.
FAKE_PYTHON = """#!/bin/sh
case "$*" in
*"-m venv"*)
    for folder; do :; done
    mkdir -p "$folder/bin"
    rm -f "$folder/bin/python"
    cp "$0" "$folder/bin/python"
    printf '#!/bin/sh\\nwhile [ $# -gt 0 ]; do case $1 in *.toml) grep -l next_key "$1" >&2 && exit 2 ;; esac; shift; done\\n' \
        >"$folder/bin/companion"
    chmod 755 "$folder/bin/companion"
    echo made >>"$folder/../made"
    ;;
*"-m pip"*) [ -z "$NO_NETWORK" ] ;;
*"-m compileall"*) [ -z "$COMPILE" ] || exec "$COMPILE" "$@" ;;
*print*) echo VERSION ;;
esac
"""


@pytest.fixture
def pythons(tmp_path_factory):
    """In place of interpreters: each makes an environment in a moment, and says of which version it is."""
    folder = tmp_path_factory.mktemp("pythons")
    for version in ("3.11", "3.13"):
        path = folder / f"python{version}"
        path.write_text(FAKE_PYTHON.replace("VERSION", version))
        path.chmod(0o755)
    return folder


def removed(python) -> None:
    """The system's upgrade took the interpreter away: its name in the environment leads nowhere."""
    python.unlink()
    python.symlink_to("/no/such/python3.11")


def without_packages(python) -> None:
    """Another interpreter is behind the name, which does not look where the packages are."""
    python.write_text("#!/bin/sh\nexit 1\n")


@pytest.mark.parametrize("fault", [removed, without_packages])
def test_a_release_whose_environment_no_longer_works_gets_a_new_one(tmp_path, pythons, fault):
    """It was taken for complete, and no process started."""
    install("--root", tmp_path, PYTHON=str(pythons / "python3.11"))
    venv = tmp_path / "opt/companion/current/venv"
    made = venv.parent / "made"
    assert "have " in install("--root", tmp_path, PYTHON=str(pythons / "python3.11"))
    assert made.read_text() == "made\n"
    fault(venv / "bin/python")
    dry = install("--root", tmp_path, "--dry-run", PYTHON=str(pythons / "python3.11"))
    assert "would run" in dry and made.read_text() == "made\n"
    output = install("--root", tmp_path, PYTHON=str(pythons / "python3.11"))
    (line,) = [line for line in output.splitlines() if line.startswith("rebuild ")]
    assert "venv: its " in line and made.read_text() == "made\nmade\n"
    assert [path.name for path in venv.parent.glob("venv-*")] == [os.readlink(venv)]  # the broken one takes no space
    assert "rebuild" not in install("--root", tmp_path, PYTHON=str(pythons / "python3.11"))


def test_a_release_gets_an_environment_of_the_python_that_is_asked_for(tmp_path, pythons):
    install("--root", tmp_path, PYTHON=str(pythons / "python3.11"))
    output = install("--root", tmp_path, PYTHON=str(pythons / "python3.13"))
    assert f"it is of Python 3.11, and {pythons}/python3.13 is 3.13" in output
    python = tmp_path / "opt/companion/current/venv/bin/python"
    assert subprocess.run([python, "-c", "print"], capture_output=True, text=True).stdout == "3.13\n"
    assert "rebuild" not in install("--root", tmp_path, PYTHON=str(pythons / "python3.13"))


@pytest.mark.parametrize("fault", [None, removed, without_packages])
def test_a_rollback_makes_a_new_environment_only_where_the_former_no_longer_works(tmp_path, pythons, fault):
    install("--root", tmp_path, PYTHON=str(pythons / "python3.11"))
    opt = tmp_path / "opt/companion"
    newest = opt / os.readlink(opt / "current")
    former = newest.with_name("0.0.9-former")
    shutil.copytree(newest, former, symlinks=True)
    (opt / "previous").symlink_to("releases/0.0.9-former")
    if fault:
        fault(former / "venv/bin/python")
    output = install("--root", tmp_path, "--rollback", PYTHON=str(pythons / "python3.13"))
    assert os.readlink(opt / "current") == "releases/0.0.9-former"
    assert (f"rebuild {former}/venv" in output) == (fault is not None)
    assert "compile for" in output  # the vehicle file may have been edited since
    assert (former / "made").read_text().count("made") == (2 if fault else 1)


def current_python(root) -> str:
    python = root / "opt/companion/current/venv/bin/python"
    return subprocess.run([python, "-c", "print"], capture_output=True, text=True, check=True).stdout.strip()


def test_an_environment_that_works_stays_where_no_python_is_asked_for(tmp_path, pythons, monkeypatch):
    """sudo drops PYTHON: after an edit of the vehicle file the next run cleared the environment, in the field."""
    install("--root", tmp_path, PYTHON=str(pythons / "python3.11"))
    monkeypatch.setenv("PATH", f"{pythons}:{os.environ['PATH']}")
    (pythons / "python3").symlink_to("python3.13")
    output = install("--root", tmp_path, PYTHON="", NO_NETWORK="yes")
    assert "rebuild" not in output and "have " in output
    assert current_python(tmp_path) == "3.11"
    (pythons / "python3").unlink()
    (pythons / "python3").symlink_to("/bin/false")  # nor is another interpreter needed
    assert "have " in install("--root", tmp_path, PYTHON="")


@pytest.mark.parametrize("layout", ["link", "folder"])
def test_without_a_network_the_environment_that_is_there_stays(tmp_path, pythons, layout):
    install("--root", tmp_path, PYTHON=str(pythons / "python3.11"))
    venv = tmp_path / "opt/companion/current/venv"
    if layout == "folder":  # as an earlier version installed it
        environment = venv.resolve()
        venv.unlink()
        environment.rename(venv)
    output = install("--root", tmp_path, status=2, PYTHON=str(pythons / "python3.13"), NO_NETWORK="yes")
    assert "no new Python environment" in output.splitlines()[-1]
    assert current_python(tmp_path) == "3.11" and venv.is_symlink() == (layout == "link")
    assert "have " in install("--root", tmp_path, PYTHON=str(pythons / "python3.11"), NO_NETWORK="yes")
    install("--root", tmp_path, PYTHON=str(pythons / "python3.13"))
    assert current_python(tmp_path) == "3.13"
    assert [path.name for path in venv.parent.glob("venv-*")] == [os.readlink(venv)]


@pytest.mark.parametrize("folder, name", [("vehicles", "f550_floor.toml"), ("missions", "hover_marker.toml")])
def test_a_version_that_cannot_read_todays_files_does_not_become_the_current_one(tmp_path, pythons, folder, name):
    """An update whose new key was entered, then a rollback: it said done, and every process refused the key."""
    python = str(pythons / "python3.11")
    install("--root", tmp_path, PYTHON=python)
    opt, file = tmp_path / "opt/companion", tmp_path / "etc/companion" / folder / name
    newest = os.readlink(opt / "current")
    shutil.copytree(opt / newest, opt / "releases/0.0.9-former", symlinks=True)
    (opt / "previous").symlink_to("releases/0.0.9-former")
    file.write_text("next_key = 1\n" + file.read_text())
    before = listing(tmp_path)
    for words in (["--rollback"], []):
        output = install("--root", tmp_path, *words, status=2, PYTHON=python)
        reason, line = output.splitlines()[-2:]
        assert reason == str(file) and "cannot read these files" in line and "--force" in line
        assert listing(tmp_path) == before
    assert "cannot read" not in install("--root", tmp_path, "--rollback", "--dry-run", PYTHON=python)
    output = install("--root", tmp_path, "--rollback", "--force", PYTHON=python)
    assert "left out by --force: check of the files" in output
    assert os.readlink(opt / "current") == "releases/0.0.9-former"


def test_a_mission_that_the_environment_file_does_not_name_is_one_line(tmp_path, pythons):
    env_file = tmp_path / "etc/companion/companion.env"
    env_file.parent.mkdir(parents=True)
    env_file.write_text("COMPANION_VEHICLE=/etc/companion/vehicles/f550.toml\nCOMPANION_MISSION=/no.toml\n")
    output = install("--root", tmp_path, status=2, PYTHON=str(pythons / "python3.11"))
    assert f"{tmp_path}/no.toml: no such mission file" in output.splitlines()[-1]
    assert not (tmp_path / "opt/companion/current").exists()


def test_the_installed_program_is_compiled_and_an_edit_is_noticed(tmp_path, pythons):
    """The units may not write: each start compiled all modules."""
    install("--root", tmp_path, PYTHON=str(pythons / "python3.11"), COMPILE=sys.executable)
    source = tmp_path / "opt/companion/current/source"
    module = source / "companion/core/clock.py"
    for path in (path for path in source.rglob("*.py") if path.stat().st_size):
        compiled = list((path.parent / "__pycache__").glob(f"{path.stem}.cpython-*.pyc"))
        assert len(compiled) == 1, path
        assert int.from_bytes(compiled[0].read_bytes()[4:8], "little") == 0b11, "by a hash that is checked"
    stamp = module.stat()
    module.write_text("edited = 1" + " " * (stamp.st_size - 10))
    os.utime(module, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    words = [sys.executable, "-Bc", "from companion.core.clock import edited"]
    subprocess.run(words, cwd=source, env={"PATH": os.environ["PATH"]}, check=True)


def test_names_that_say_that_all_is_there_come_after_what_they_name(tmp_path, pythons, monkeypatch):
    """A loss of power after the installation: the names were there without their content, and it was taken for complete."""
    root, folder = tmp_path / "root", tmp_path / "bin"
    root.mkdir()
    folder.mkdir()
    sync = folder / "sync"
    opt = root / "opt/companion"
    sync.write_text(
        f"#!/bin/sh\n[ $2 = {opt} ] || exit 0\ncd {opt}\n"
        "{ ls -d current releases/*/venv releases/*/.complete build/made 2>/dev/null; echo; }"
        f" | sed s/-[0-9a-f]*// | tr '\\n' ' ' >>{tmp_path}/steps\necho >>{tmp_path}/steps\n"
    )
    sync.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    install("--root", root, PYTHON=str(pythons / "python3.11"))
    release = "releases/0.1.0"
    assert [line.split() for line in (tmp_path / "steps").read_text().splitlines()] == [
        [],
        [f"{release}/venv"],
        [f"{release}/.complete", f"{release}/venv"],
        ["current", f"{release}/.complete", f"{release}/venv"],
    ]


def test_a_file_that_a_loss_of_power_has_emptied_is_installed_again(root):
    file = root / "etc/companion/vehicles/f550.toml"
    whole = file.read_bytes()
    file.write_bytes(b"")
    install("--root", root, "--no-venv")
    assert file.read_bytes() == whole


def test_a_missing_interpreter_is_reported_before_anything_is_changed(tmp_path):
    assert "no-such-python: no such program" in install("--root", tmp_path, status=2, PYTHON="no-such-python")
    assert list(tmp_path.iterdir()) == []
