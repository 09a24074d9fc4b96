"""One process holds a name on a bus; a second one finds it and says so, also after kill -9."""

import os
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from companion.cli import main
from companion.core.bus import ZmqBus
from companion.core.config import ConfigError
from companion.core.folders import Hold, Holder, holder
from companion.runtime import bus_folders, fly, processes
from companion.runtime.bus_folders import flight_on_link, newest_bus, remove_left_behind
from companion.runtime.manager import wait_until
from companion.runtime.notify import Notifier
from companion.view.live import LiveSource

ROOT = Path(__file__).parents[2]
HOLDING = """
import sys, time
from pathlib import Path
from companion.core.folders import Hold
hold = Hold(Path(sys.argv[1]), "fcu", "serial:/dev/ttyX:1")
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr("companion.core.folders.HOLD_PATIENCE_S", 0.01)


def test_a_second_process_finds_the_first_and_a_killed_one_holds_nothing(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HOLDING, str(tmp_path)], stdout=subprocess.PIPE) as first:
        assert first.stdout.readline() == b"held\n"
        assert holder(tmp_path, "fcu") == Holder(str(first.pid), "serial:/dev/ttyX:1")
        with pytest.raises(ConfigError) as refused:
            Hold(tmp_path, "fcu")
        assert str(refused.value) == f"fcu already runs on the bus {tmp_path} as process {first.pid}; end it first"
        Hold(tmp_path, "mission").release()  # another name is free
        first.kill()
    assert wait_until(lambda: holder(tmp_path, "fcu") is None, 5.0)
    with Hold(tmp_path, "fcu"):
        assert holder(tmp_path, "fcu") == Holder(str(os.getpid()), "")
    assert holder(tmp_path, "fcu") is None


@pytest.mark.parametrize("folder_too", [True, False])
def test_a_name_whose_file_was_deleted_is_held_again_and_a_second_flight_finds_it(tmp_path, folder_too):
    folder = tmp_path / "companion-x"
    folder.mkdir()
    with Hold(folder, "manager", "udpin::1") as hold:
        assert hold.restore() == ""
        shutil.rmtree(folder) if folder_too else (folder / "manager.lock").unlink()
        assert flight_on_link("udpin::1", tmp_path) is None
        assert hold.restore() == f"{folder}/manager.lock: was deleted, held again"
        assert flight_on_link("udpin::1", tmp_path) == str(os.getpid())
        with pytest.raises(ConfigError, match="already runs"):
            Hold(folder, "manager")
        remove_left_behind(tmp_path)
        assert hold.restore() == "" and stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert holder(folder, "manager") is None and hold.restore() == ""  # given back: not taken again


def test_a_name_that_another_process_has_taken_since_stays_with_it_and_comes_back_after_it(tmp_path):
    first = Hold(tmp_path, "fcu", "first")
    (tmp_path / "fcu.lock").unlink()
    second = Hold(tmp_path, "fcu", "second")
    assert "cannot be held again: fcu already runs on the bus" in first.restore()
    assert holder(tmp_path, "fcu").note == "second" and second.restore() == ""
    second.release()
    assert first.restore().endswith("was deleted, held again") and holder(tmp_path, "fcu").note == "first"
    first.release()


def test_a_file_that_is_removed_while_it_is_locked_is_not_taken_for_the_name(tmp_path, monkeypatch):
    removed = []

    def lock(descriptor, kind):
        if not removed:
            removed.append(True)
            (tmp_path / "fcu.lock").unlink()
        return True

    with monkeypatch.context() as race:
        race.setattr("companion.core.folders._lock", lock)
        hold = Hold(tmp_path, "fcu")
    assert removed and (tmp_path / "fcu.lock").exists() and hold.restore() == ""
    with monkeypatch.context() as race:
        removed.clear()
        (tmp_path / "fcu.lock").unlink()
        race.setattr("companion.core.folders._lock", lock)
        assert hold.restore().endswith("fcu.lock: was removed at that moment")
        assert hold.restore().endswith("held again")
    hold.release()


@pytest.mark.parametrize("case", ["link", "link to the moved folder", "file", "foreign", "lock link", "lock folder"])
def test_what_lies_in_the_place_of_a_removed_folder_is_refused_and_never_followed(tmp_path, monkeypatch, case):
    bus, other = tmp_path / "bus", tmp_path / "other"
    bus.mkdir(mode=0o700)
    end = ZmqBus(bus, "fcu", (), Hold(bus, "fcu"))
    if case == "link to the moved folder":
        bus.rename(other)
    else:
        shutil.rmtree(bus)
        other.mkdir()
    (other / "precious").write_text("kept")
    if case.startswith("link"):
        bus.symlink_to(other)
    elif case == "file":
        bus.write_text("")
    else:
        bus.mkdir(mode=0o700)
    if case.startswith("lock"):
        (bus / "fcu.sock").touch()
        (bus / "fcu.lock").symlink_to(other / "precious") if case == "lock link" else (bus / "fcu.lock").mkdir()
    user = os.geteuid()
    with monkeypatch.context() as context:
        if case == "foreign":
            context.setattr("companion.core.folders.os.geteuid", lambda: user + 1)
        before = sorted(other.iterdir())
        said = [end.restore() for _ in range(3)]
    assert all("fcu.lock: was deleted, cannot be held again: " in line for line in said), said
    assert end.errors >= 3 and sorted(other.iterdir()) == before and (other / "precious").read_text() == "kept"
    bus.unlink() if bus.is_symlink() or bus.is_file() else shutil.rmtree(bus)
    assert "fcu.lock: was deleted, held again" in end.restore() and end.restore() == ""
    assert holder(bus, "fcu").pid == str(os.getpid())
    end.close()


def test_a_bus_folder_that_is_a_link_gets_no_lock_file(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "bus").symlink_to(tmp_path / "other")
    with pytest.raises(ConfigError, match="is a link"):
        Hold(tmp_path / "bus", "view")
    assert not list((tmp_path / "other").iterdir())


def test_a_process_without_work_and_a_view_hold_their_names_again(tmp_path):
    calls = iter([False, True])

    class Stop:
        def __bool__(self):
            return next(calls)

    with Hold(tmp_path, "payload") as hold:
        (tmp_path / "payload.lock").unlink()
        processes._idle(Stop(), hold, Notifier({}))
        assert holder(tmp_path, "payload") is not None
    source = LiveSource(tmp_path, {})
    (tmp_path / "view.lock").unlink()
    source._restored_s -= 1.0
    source.work()
    assert holder(tmp_path, "view") is not None
    source.close()


def test_a_process_of_the_table_gives_its_name_to_its_end_of_the_bus(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "StopFlag", lambda: None)
    ends = []

    def end(folder, name, inputs, hold=None):
        ends.append((name, hold))
        raise ConfigError("enough")

    monkeypatch.setattr(processes, "ZmqBus", end)
    files = ROOT / "config/vehicles/f550.toml", ROOT / "config/missions/bridge_hover.toml"
    with pytest.raises(ConfigError, match="enough"):
        processes.run("mission", processes.Context(*files, "sim", tmp_path, tmp_path / "log", scenario_file=Path("s")))
    assert ends[0][0] == "mission" and isinstance(ends[0][1], Hold)


def test_a_lock_file_that_is_a_link_or_no_file_is_refused(tmp_path):
    (tmp_path / "target").write_text("precious")
    (tmp_path / "fcu.lock").symlink_to(tmp_path / "target")
    with pytest.raises(ConfigError, match=r"fcu\.lock: cannot be opened"):
        Hold(tmp_path, "fcu")
    assert (tmp_path / "target").read_text() == "precious"
    (tmp_path / "mission.lock").mkdir()
    with pytest.raises(ConfigError, match=r"mission\.lock: cannot be opened"):
        Hold(tmp_path, "mission")


def test_a_process_of_the_table_refuses_to_run_twice_on_a_bus(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "StopFlag", lambda: None)
    context = processes.Context(ROOT / "config/vehicles/f550.toml", Path("m.toml"), "", tmp_path, tmp_path / "log")
    with Hold(tmp_path, "fcu"), pytest.raises(ConfigError, match="fcu already runs on the bus"):
        processes.run("fcu", context)


def test_a_process_refuses_a_bus_folder_that_is_a_link(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "StopFlag", lambda: None)
    (tmp_path / "bus").symlink_to(tmp_path)
    context = processes.Context(Path("v"), Path("m"), "", tmp_path / "bus", tmp_path / "log")
    with pytest.raises(ConfigError, match="is a link"):
        processes.run("mission", context)


# --- what `companion fly` judges before anything starts


def never(*_args, **_kwargs):
    raise AssertionError("this must not be reached")


@pytest.fixture
def nothing_starts(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fly, "temporary_folder", lambda: tmp_path)
    monkeypatch.setattr(bus_folders, "SYSTEM_BUS", tmp_path / "system")
    monkeypatch.setattr(fly, "Manager", never)
    monkeypatch.setattr(fly, "new_flight_folder", never)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--fcu", "simm"], "--fcu simm: no such link, did you mean 'sim'?"),
        (["--fcu", "serial:/dev/ttyX"], "link 'serial:/dev/ttyX': not one of serial:"),
        (["--fcu", "udpin:127.0.0.1:99999"], "port 99999 is not in 1 to 65535"),
        (["--fcu", "udpin:127.0.0.1:14999", "--vehicle", "broken.toml"], "broken.toml"),
    ],
)
def test_files_and_the_link_are_judged_before_anything_starts(nothing_starts, tmp_path, words, expected):
    (tmp_path / "broken.toml").write_bytes(b"name = '\xff'")
    result = CliRunner().invoke(main, ["fly", "bridge_hover", *words])
    lines = result.stderr.strip().splitlines()
    assert result.exit_code == 2 and len(lines) == 1 and expected in lines[0], result.output


def test_a_missing_marker_file_is_found_before_anything_starts(nothing_starts, tmp_path):
    mission = (ROOT / "config/missions/bridge_hover.toml").read_text().replace("pier.toml", "no_such.toml")
    (tmp_path / "mission.toml").write_text(mission)
    result = CliRunner().invoke(main, ["fly", str(tmp_path / "mission.toml"), "--fcu", "udpin:127.0.0.1:14999"])
    assert result.exit_code == 2 and "no_such.toml" in result.stderr and len(result.stderr.splitlines()) == 1


def test_a_second_flight_on_a_link_finds_the_first(nothing_starts, tmp_path, monkeypatch):
    url = "udpin:127.0.0.1:14999"
    (tmp_path / "companion-first").mkdir()
    with Hold(tmp_path / "companion-first", "manager", url):
        result = CliRunner().invoke(main, ["fly", "bridge_hover", "--yes-auto", "--fcu", url])
        assert flight_on_link("udpin:127.0.0.1:15000", tmp_path) is None
        with monkeypatch.context() as other_user:
            user = os.geteuid()
            other_user.setattr("companion.core.folders.os.geteuid", lambda: user + 1)
            assert flight_on_link(url, tmp_path) is None  # what another user claims keeps no one from flying
    assert result.exit_code == 2
    line = f"companion: link {url}: another flight already runs on it, started by process {os.getpid()}; end it first"
    assert result.stderr.strip() == line
    assert flight_on_link(url, tmp_path) is None


def test_a_full_folder_for_temporary_files_is_one_line_and_leaves_no_flight(tmp_path, monkeypatch):
    def full(**_settings):
        raise OSError(28, "No space left on device", "/tmp/companion-x")

    monkeypatch.setattr(fly.tempfile, "mkdtemp", full)
    monkeypatch.setattr(fly, "temporary_folder", lambda: tmp_path)
    monkeypatch.setattr(fly, "Manager", never)
    words = ["fly", "bridge_hover", "--yes-auto", "--fcu", "udpin:127.0.0.1:14999", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2 and not (tmp_path / "out").exists()
    assert result.stderr.strip() == "companion: /tmp/companion-x: no space left on device"


def test_what_a_killed_flight_left_is_removed_and_nothing_else(tmp_path):
    killed, running, other, foreign = (tmp_path / f"companion-{name}" for name in ("a", "b", "c", "d"))
    for folder in (killed, running, other, foreign):
        folder.mkdir()
    Hold(killed, "manager").release()
    (foreign / "notes.txt").write_text("not a bus")
    (tmp_path / "companion-link").symlink_to(killed)
    Hold(other, "manager").release()
    with Hold(running, "manager"), Hold(other, "fcu"):  # a stopped process has outlived its manager
        remove_left_behind(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "companion-b",
        "companion-c",
        "companion-d",
        "companion-link",
    ]


# --- whose stack is shown


def test_only_the_stack_of_this_user_is_watched(tmp_path, monkeypatch, request):
    folder = tmp_path / "companion-x"
    folder.mkdir()
    made = socket.socket(socket.AF_UNIX)
    request.addfinalizer(made.close)
    made.bind(str(folder / "fcu.sock"))
    made.listen()
    assert newest_bus(tmp_path, tmp_path / "system") == folder
    (tmp_path / "companion-link").symlink_to(folder)
    os.utime(folder)
    assert newest_bus(tmp_path, tmp_path / "system") == folder
    user = os.geteuid()
    monkeypatch.setattr("companion.core.folders.os.geteuid", lambda: user + 1)
    with pytest.raises(ConfigError, match="no running stack"):
        newest_bus(tmp_path, tmp_path / "system")
    result = CliRunner().invoke(main, ["watch", str(folder)])
    assert result.exit_code == 2 and "belongs to another user" in result.stderr
