"""A start that fails is one line for the supervisor, then a pause: systemd starts the process again at once."""

import math
from pathlib import Path

import pytest

from companion.core.config import ConfigError
from companion.runtime import processes
from companion.runtime.notify import NotifySocket

CONFIG = Path(__file__).parents[2] / "config"
LIMIT = "must be a number, 0 (no limit) or more"


@pytest.fixture
def supervised(monkeypatch, tmp_path, capsys):
    """Calls the entry as the units do: (exit status, lines for the supervisor, pauses [s], last line printed)."""
    opened = NotifySocket()
    for name, value in opened.environment(1.0).items():
        monkeypatch.setenv(name, value)
    pauses = []
    monkeypatch.setattr(processes.time, "sleep", pauses.append)

    def start(mb="8000", days="60"):
        words = ["fcu", "--vehicle", CONFIG / "vehicles/f550.toml", "--mission", CONFIG / "missions/hover_marker.toml"]
        words += ["--fcu", "", "--bus", tmp_path / "bus", "--log", tmp_path, "--log-max-mb", mb, "--log-max-days", days]
        monkeypatch.setattr("sys.argv", ["processes", *map(str, words), "--pause-when-refused", "2"])
        status = processes.main()
        sent = [line for _, lines in opened.receive() for line in lines]
        return status, sent, pauses, (capsys.readouterr().err.splitlines() or [""])[-1]

    yield start
    opened.close()


@pytest.mark.parametrize("text", ["8000 # MB", "", "nan", "inf", "-1"])
@pytest.mark.parametrize("unit", ["mb", "days"])
def test_a_limit_of_the_environment_file_that_is_no_number_is_a_refused_start(supervised, unit, text):
    status, sent, pauses, printed = supervised(**{unit: text})
    line = f"argument --log-max-{unit}: COMPANION_LOG_MAX_{unit.upper()} = '{text}': {LIMIT}"
    assert (status, sent, pauses, printed) == (2, [f"STATUS={line}"], [2.0], f"fcu: {line}")


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (ConfigError("vehicle.toml: mass_kg is missing"), 2, "vehicle.toml: mass_kg is missing"),
        (
            ImportError("libcamera.so.0.3: cannot open shared object file"),
            1,
            "ImportError: libcamera.so.0.3: cannot open",
        ),
        (MemoryError(), 1, "MemoryError: "),
        (SystemExit("no licence"), 1, "SystemExit: no licence"),
    ],
)
def test_any_error_at_the_start_is_one_line_and_a_pause(supervised, monkeypatch, error, status, line):
    def fail(*given):
        raise error

    monkeypatch.setattr(processes, "run", fail)
    ended, sent, pauses, printed = supervised()
    assert (ended, pauses) == (status, [2.0])
    assert (
        len(sent) == 1 and sent[0].startswith(f"STATUS={line.strip()}") and printed.startswith(f"fcu: {line}".strip())
    )


def test_a_process_that_ends_after_its_first_step_runs_again_at_once(supervised, monkeypatch):
    def fail(name, context, notifier):
        notifier.stepped(0.0)
        raise RuntimeError("in flight")

    monkeypatch.setattr(processes, "run", fail)
    status, sent, pauses, printed = supervised()
    assert (status, pauses, printed) == (1, [], "fcu: RuntimeError: in flight")
    assert sent == ["READY=1", "WATCHDOG=1"]


def test_help_and_an_ordinary_end_are_no_failed_start(supervised, monkeypatch):
    monkeypatch.setattr(processes, "run", lambda *given: None)
    assert supervised() == (0, [], [], "")
    monkeypatch.setattr("sys.argv", ["processes", "--help"])
    with pytest.raises(SystemExit):
        processes.main()


def test_the_limits_are_those_of_the_arguments(supervised, monkeypatch):
    found = []
    monkeypatch.setattr(processes, "run", lambda name, context, notifier: found.append(context))
    assert supervised("0", "1.5")[0] == 0
    assert (found[0].log_max_mb, found[0].log_max_days) == (0.0, 1.5) and math.isfinite(found[0].log_max_days)
