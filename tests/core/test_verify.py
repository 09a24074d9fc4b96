"""The runner of `make verify`: it goes on where it was stopped, and a failure is never shown as passed."""

import io

import pytest
from rich.console import Console

from tests.verify import __main__ as runner
from tests.verify.limits import LIMITS, PX4_RMS_MAX_M
from tests.verify.steps import ROOT, Result, Step


@pytest.fixture
def steps(monkeypatch):
    """Three steps that count their runs; the second fails once."""
    runs = {"one": 0, "two": 0, "three": 0}

    def step(name, results):
        def run(folder):
            runs[name] += 1
            return results[min(runs[name], len(results)) - 1]

        return Step(name, run)

    made = (
        step("one", [Result(True, "1.0 cm (≤ 2)")]),
        step("two", [Result(False, "3.0 cm (≤ 2)"), Result(True, "1.5 cm (≤ 2)")]),
        step("three", [Result(None, "no PX4 build")]),
    )
    monkeypatch.setattr(runner, "STEPS", made)
    return runs


def verify(monkeypatch, tmp_path, *words):
    monkeypatch.setattr("sys.argv", ["tests.verify", "--out", str(tmp_path), *words])
    return runner.main()


def test_what_has_passed_is_not_repeated_and_what_failed_is(monkeypatch, tmp_path, steps):
    assert verify(monkeypatch, tmp_path) == 1
    assert verify(monkeypatch, tmp_path) == 0
    assert steps == {"one": 1, "two": 2, "three": 2}
    assert verify(monkeypatch, tmp_path, "--again", "one") == 0
    assert steps["one"] == 2


def test_an_interrupted_run_keeps_its_results(monkeypatch, tmp_path, steps):
    def interrupt(folder):
        raise KeyboardInterrupt

    first, *_ = runner.STEPS
    monkeypatch.setattr(runner, "STEPS", (first, Step("stopped", interrupt)))
    assert verify(monkeypatch, tmp_path) == 1, "a step that has not run is no success"
    assert verify(monkeypatch, tmp_path, "one") == 0 and steps["one"] == 1


def test_the_table_names_steps_that_have_not_run(tmp_path):
    console = Console(file=io.StringIO(), width=120)
    console.print(runner.Record(tmp_path).table([Step("scenario x", lambda folder: Result(True, ""))]))
    assert "not run" in console.file.getvalue()


def test_every_scenario_has_limits_and_every_limit_a_scenario():
    # Three scenarios make data for calibrations; their flights are judged by tests/calibration and test_airframe_flights.
    scenarios = {path.stem for path in (ROOT / "config/scenarios").glob("*.toml")}
    assert set(LIMITS) == scenarios - {"calibration", "identification", "identification_own"}
    assert list(PX4_RMS_MAX_M) == list(LIMITS)
