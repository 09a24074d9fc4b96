"""A step of the wall clock changes nothing in flight: it names files and dates logs, and decides nothing."""

import ast
import time
from datetime import datetime
from pathlib import Path

import pytest

from companion.core.clock import monotonic_s
from companion.runtime import fly

PACKAGE = Path(__file__).parents[2] / "companion"
# What may read the wall clock, and why.
DATES = {
    "recording/retention.py": "age of old logs, on the ground; the newest ten are kept at any age",
    "recording/writer.py": "start of a log, read once",
    "recording/report.py": "date of a report",
    "runtime/fly.py": "name of a flight's folder",
    "runtime/processes.py": "name of a log",
    "payload/still_camera.py": "date in the tags of a photograph",
    "fcu/link/signing.py": "first time stamp of a signed link, read once",
    "preflight/command.py": "date of a report",
    "preflight/computer.py": "is the subject of the check",
    "runtime/resume.py": "age of a former flight in days",
    "preflight/ground.py": "is the subject of the check",
}


def test_the_time_of_the_stack_counts_on_while_the_computer_sleeps(monkeypatch):
    monkeypatch.setattr(time, "clock_gettime", {time.CLOCK_BOOTTIME: 100.0, time.CLOCK_MONOTONIC: 60.0}.get)
    assert monotonic_s() == 100.0


def reads_the_wall_clock(source: str) -> bool:
    names = {
        f"{node.value.id}.{node.attr}" if isinstance(node.value, ast.Name) else f".{node.attr}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
    }
    return bool(names & {"time.time", "time.time_ns", "datetime.now", ".now", "time.localtime", "time.gmtime"})


def test_only_dates_and_names_of_files_come_from_the_wall_clock():
    found = {
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("*.py")
        if reads_the_wall_clock(file.read_text(encoding="utf-8"))
    }
    assert found <= set(DATES), f"{found - set(DATES)}: use companion.core.clock.monotonic_s"


@pytest.mark.parametrize("line", ["time.time()", "datetime.now()", "datetime.datetime.now(UTC)", "clock = time.time"])
def test_a_reading_of_the_wall_clock_is_found(line):
    assert reads_the_wall_clock(line) and not reads_the_wall_clock("time.monotonic()")


def test_two_flights_of_the_same_second_have_folders_of_their_own(tmp_path, monkeypatch):
    class Stopped(datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(1970, 1, 1)  # a computer without a clock battery

    monkeypatch.setattr(fly, "datetime", Stopped)
    names = [fly.new_flight_folder(tmp_path, Path("hover.toml")).name for _ in range(3)]
    assert names == [f"1970-01-01_00-00-00_hover{suffix}" for suffix in ("", "_2", "_3")]
