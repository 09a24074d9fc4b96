"""A running stack flies the files that its processes read at their start, perhaps not those that preflight judges."""

import contextlib
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from companion.cli import main
from companion.core.bus import ZmqBus
from companion.core.clock import monotonic_s
from companion.core.input_files import fingerprint
from companion.core.messages import Health
from companion.mission.plan import load_plan
from companion.preflight import command
from companion.preflight.running_stack import stack_check

CONFIG = Path(__file__).parents[2] / "config"
MISSION = CONFIG / "missions/bridge_hover.toml"


@pytest.fixture
def vehicle(tmp_path) -> Path:
    """A copy of the F550's vehicle file, which the test may change."""
    return Path(shutil.copy(CONFIG / "vehicles/f550.toml", tmp_path / "mine.toml"))


@pytest.fixture
def bus(tmp_path) -> Path:
    folder = tmp_path / "bus"
    folder.mkdir(mode=0o700)
    return folder


ALL = ("recorder", "fcu", "estimator", "controller", "tracker", "camera", "mission")  # of a mission without inspection


def check_of(bus: Path, vehicle: Path):
    return stack_check(bus, vehicle, MISSION, load_plan(MISSION))


@contextlib.contextmanager
def stack(folder: Path, steps_per_s: float = 1.0, errors: int = 0, **files: str) -> Iterator[None]:
    """Processes on a bus by their names that say which files they have read. steps_per_s, errors: of the first of them."""
    first = next(iter(files))
    processes, stop = {name: ZmqBus(folder, name, ()) for name in files}, threading.Event()

    def publish() -> None:
        while not stop.is_set():
            for name, process in processes.items():
                rate, count = (steps_per_s, errors) if name == first else (1.0, 0)
                process.publish(Health(stamp_s=monotonic_s(), process=name, pid=1, steps_per_s=rate, nominal_steps_per_s=1.0,
                                       late_steps=0, errors=count, last_error="", step_time_max_s=0.0, cpu_s=0.0,
                                       memory_mb=0.0, files=files[name]))  # fmt: skip
            time.sleep(0.1)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        for process in processes.values():
            process.close()


def test_a_stack_that_has_read_the_same_files_passes(vehicle, bus):
    files = fingerprint(vehicle, MISSION)
    with stack(bus, **dict.fromkeys(ALL, files)):
        check = check_of(bus, vehicle)
    assert (check.status, check.detail) == ("ok", f"7 processes fly {vehicle} and {MISSION}")


def test_processes_that_do_not_report_fail_by_name(vehicle, bus):
    with stack(bus, fcu=fingerprint(vehicle, MISSION), errors=57):
        check = check_of(bus, vehicle)
    missing = ", ".join(sorted({*ALL} - {"fcu"}))
    assert check.status == "failed"
    assert check.detail.startswith(
        f"{missing}: no report in 1.5 s (systemctl status 'companion-*'); fcu: 1 of 1 steps/s"
    )


def test_a_simulated_stack_has_no_process_of_a_camera(vehicle, bus):
    files = dict.fromkeys((name for name in ALL if name != "camera"), fingerprint(vehicle, MISSION))
    with stack(bus, **files, simulator=""):
        assert check_of(bus, vehicle).status == "ok"


@pytest.mark.parametrize(("fault", "words"), [({"steps_per_s": 0.5}, "0 of 1 steps/s"), ({"errors": 57}, "57 errors")])
def test_a_process_with_errors_or_a_low_rate_is_a_warning(vehicle, bus, fault, words):
    with stack(bus, **dict.fromkeys(ALL, fingerprint(vehicle, MISSION)), **fault):
        check = check_of(bus, vehicle)
    assert check.status == "warning" and check.detail.startswith("recorder: ") and words in check.detail


def test_a_file_that_was_changed_after_the_start_fails_and_is_named(vehicle, bus):
    files = fingerprint(vehicle, MISSION)
    text = vehicle.read_text()
    vehicle.write_text(text.replace("width_px = 640", "width_px = 1280"))
    assert vehicle.read_text() != text
    with stack(bus, mission=files, estimator=fingerprint(vehicle, MISSION)):
        check = check_of(bus, vehicle)
    assert check.status == "failed"
    assert check.detail.startswith(
        f"mission: started with other files than {vehicle} and {MISSION}, or before a change"
    )
    assert "systemctl restart companion.target" in check.detail


def test_without_a_mission_or_a_stack_nothing_is_compared(vehicle, bus):
    assert stack_check(bus, vehicle, None, None).status == "skipped"
    assert check_of(bus, vehicle).status == "skipped"
    with stack(bus, recorder=""):
        assert "says which files it flies" in check_of(bus, vehicle).detail


def test_preflight_of_a_stack_with_other_files_is_not_ready(vehicle, bus, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "HEARTBEAT_TIMEOUT_S", 0.1)
    with stack(bus, mission="other"):
        words = ["--vehicle", vehicle, "--mission", MISSION, "--bus", bus, "--fcu", "serial:/dev/ttyNOWHERE:921600"]
        done = CliRunner().invoke(main, ["preflight", *map(str, words), "--out", str(tmp_path)])
    assert done.exit_code == 1
    (found,) = [text for text in done.output.splitlines() if text.startswith("running stack ")]
    assert "FAILED   mission: started with other files" in found
