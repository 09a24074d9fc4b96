"""Checks of the computer, each with good and bad numbers, and the files of Linux that they come from."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

from companion.core.config import load
from companion.core.vehicle import Vehicle
from companion.preflight import computer

SAFETY = load(Path(__file__).parents[2] / "config/vehicles/f550.toml", Vehicle).safety


@pytest.mark.parametrize(
    ("check", "status", "words"),
    [
        (computer.disk(80_000.0, 200.0, Path("flights")), "ok", "80.0 GB free for flights"),
        (computer.disk(1500.0, 200.0, Path("flights")), "warning", "not much"),
        (computer.disk(100.0, 200.0, Path("flights")), "failed", "must be above 0.2 GB (safety.disk_free_mb)"),
        (computer.disk(math.nan, 200.0, Path("flights")), "failed", "must be above"),
        (computer.temperature(51.0, 80.0), "ok", "51 °C"),
        (computer.temperature(72.0, 80.0), "warning", "on the ground"),
        (computer.temperature(85.0, 80.0), "failed", "85 °C"),
        (computer.temperature(math.nan, 80.0), "skipped", "does not report"),
        (computer.throttling(False, 0), "ok", "never"),
        (computer.throttling(True, 0x50005), "failed", "now: under-voltage, throttled"),
        (computer.throttling(False, 0x50000), "warning", "since power-on: under-voltage, throttled"),
        (computer.throttling(False, None), "skipped", "does not report"),
        (computer.throttling(True, None), "failed", "now: under-voltage"),
        (computer.memory(900.0, 100.0), "ok", "900 MB free"),
        (computer.memory(300.0, 100.0), "warning", "not much"),
        (computer.memory(100.0, 100.0), "failed", "must be above 100 MB"),
        (computer.load(0.4, 4), "ok", "load 0.4 on 4 cores, mean of the last minute"),
        (
            computer.load(9.5, 4, lambda: "make (process 7) 98%"),
            "warning",
            "load 9.5 on 4 cores, mean of the last minute, more than 2.8: most by make (process 7) 98%",
        ),
        (computer.load(3.5, 4), "warning", "no program uses much at this moment: wait a minute"),
        (computer.clock(0.3, False, 2e9, 1e9), "ok", "+0.3 s from GNSS time"),
        (computer.clock(-90.0, True, 2e9, 1e9), "warning", "-90 s from GNSS time"),
        (computer.clock(3e7, True, 2e9, 1e9), "warning", "(+347 days)"),
        (computer.clock(None, True, 2e9, 1e9), "ok", "NTP"),
        (computer.clock(None, False, 2e9, 1e9), "warning", "not synchronised"),
        (computer.clock(None, None, 2e9, 1e9), "skipped", "neither"),
        (computer.clock(0.0, True, 1e9, 2e9), "warning", "earlier than this program"),
    ],
)
def test_each_check_judges_its_numbers(check, status, words):
    assert check.status == status and words in check.detail


def test_a_raspberry_pis_files_are_read(tmp_path):
    zone = tmp_path / "class/thermal/thermal_zone0"
    zone.mkdir(parents=True)
    (zone / "type").write_text("cpu-thermal\n")
    (zone / "temp").write_text("81234\n")
    firmware = tmp_path / "devices/platform/soc/soc:firmware"
    firmware.mkdir(parents=True)
    (firmware / "get_throttled").write_text("50000\n")
    checks = {
        check.name: check for check in computer.computer_checks(SAFETY, tmp_path / "not/yet/there", 0.0, tmp_path)
    }
    assert (checks["cpu temperature"].status, checks["cpu temperature"].detail[:5]) == ("failed", "81 °C")
    assert checks["cpu throttling"].status == "warning"
    assert set(checks) == {"disk", "memory", "cpu temperature", "cpu throttling", "cpu load", "clock"}


def test_broken_files_count_as_absent(tmp_path):
    zone = tmp_path / "class/thermal/thermal_zone0"
    zone.mkdir(parents=True)
    (zone / "type").write_text("cpu-thermal\n")
    (zone / "temp").write_text("hot\n")
    checks = {check.name: check for check in computer.computer_checks(SAFETY, tmp_path, None, tmp_path)}
    assert checks["cpu temperature"].status == checks["cpu throttling"].status == "skipped"


def test_without_a_vehicle_file_there_are_no_limits(tmp_path):
    checks = {check.name: check.status for check in computer.computer_checks(None, tmp_path, 0.0, tmp_path)}
    assert checks["disk"] == checks["memory"] == checks["cpu temperature"] == "skipped"


def test_a_program_that_uses_the_processor_is_named(monkeypatch):
    monkeypatch.setattr(computer, "BUSY_SHOWN", 1000)  # other tests may run
    monkeypatch.setattr(computer, "BUSY_SHARE", 0.01)
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            assert f"(process {busy.pid}) " in computer.busiest_programs()
        finally:
            busy.kill()
