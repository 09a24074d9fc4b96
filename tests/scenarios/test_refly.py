"""`companion refly` repeats a simulated flight from its log alone."""

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from companion.cli import main
from companion.core import provenance
from companion.recording.log import LogError, read_log
from companion.recording.writer import LogWriter
from sitl import refly as refly_module
from sitl.airframe import airframe_file, load_airframe
from sitl.autopilot.parameters import load_parameters
from sitl.flight_files import metadata_of
from sitl.refly import comparison_lines, difference, path_difference_m, refly, unpack
from sitl.scenario import load_scenario
from sitl.simulate import fly_loaded

ROOT = Path(__file__).parents[2]
VARIANT = 'base = "{base}"\n[controller]\ntilt_max_rad = 0.22\n'
SCENARIO = """base = "{root}/config/scenarios/bridge_hover.toml"
name = "short"
mission = "{root}/config/missions/bridge_hover.toml"
vehicle = "{vehicle}"
duration_max_s = 14.0
camera_mode = "corners"
"""


@pytest.fixture(scope="module")
def log_file(tmp_path_factory):
    """The log of a flight whose files are gone: a vehicle with a base, a scenario with a base."""
    folder = tmp_path_factory.mktemp("flight")
    (folder / "vehicle.toml").write_text(VARIANT.format(base=ROOT / "config/vehicles/f550.toml"))
    (folder / "scenario.toml").write_text(SCENARIO.format(root=ROOT, vehicle=folder / "vehicle.toml"))
    fly_loaded(load_scenario(folder / "scenario.toml"), 5, log_file=folder / "flight.mcap")
    for name in ("vehicle.toml", "scenario.toml"):
        (folder / name).unlink()
    return folder / "flight.mcap"


def test_a_flight_from_a_vehicle_file_with_a_base_comes_again_to_the_last_message(log_file):
    comparison = refly(log_file)
    assert comparison.equal and comparison.differences == [] and comparison.messages > 5000
    assert "equal: all" in comparison_lines(comparison)[0]


def test_the_configuration_in_the_log_is_the_one_that_flew(log_file, tmp_path):
    loaded = unpack(read_log(log_file), tmp_path)
    assert loaded.vehicle.controller.tilt_max_rad == 0.22
    assert loaded.scenario.camera_mode == "corners" and loaded.scenario.duration_max_s == 14.0
    assert loaded.plan.bundle == "pier" and loaded.site.find("pier") is not None


def test_a_log_holds_the_airframe_and_the_parameters_that_flew(tmp_path):
    text = airframe_file("f550").read_text(encoding="utf-8").replace("../autopilots/f550.toml", "own_gains.toml")
    (tmp_path / "own.toml").write_text(text.replace("mass_kg = 1.8", "mass_kg = 1.77"), encoding="utf-8")
    (tmp_path / "own_gains.toml").write_text("MC_ROLL_P = 4.25\nCA_ROTOR_COUNT = 6\n", encoding="utf-8")
    flown = load_scenario(ROOT / "config/scenarios/hover_wind.toml", airframe=tmp_path / "own.toml")
    LogWriter(tmp_path / "flight.mcap", metadata_of(flown, {"kind": "lockstep", "seed": 1})).close()
    for name in ("own.toml", "own_gains.toml"):
        (tmp_path / name).unlink()
    (tmp_path / "again").mkdir()
    again = unpack(read_log(tmp_path / "flight.mcap"), tmp_path / "again").scenario.airframe
    assert Path(again).stem == "own" and load_airframe(again).mass_kg == 1.77
    assert load_parameters(again)["MC_ROLL_P"] == 4.25


def test_another_seed_is_found_and_named(log_file, monkeypatch):
    run = refly_module.flown_run
    monkeypatch.setattr(refly_module, "flown_run", lambda log: run(log)._replace(seed=6))
    comparison = refly(log_file)
    assert not comparison.equal
    first = next(d for d in comparison.differences if d.topic == "truth")
    assert first.fields and first.stamp_s is not None
    assert comparison_lines(comparison)[0].startswith("NOT equal")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("source_hash", "0" * 64, "flown by commit"),
        ("processor", "aarch64 Raspberry Pi 5", "flown on aarch64 Raspberry Pi 5"),
        ("run", '{"kind": "realtime", "seed": 5}', "flown in real time"),
        ("run", "[", "cannot be read"),
        ("scenario_tables", "", "holds no scenario"),
        ("scenario_tables", "{", "scenario tables in the log cannot be read"),
    ],
)
def test_a_log_that_cannot_be_repeated_exactly_is_refused_in_one_line(log_file, monkeypatch, name, value, message):
    def changed(path):
        log = read_log(path)
        log.metadata[name] = value
        if not value:
            log.metadata.pop(name), log.metadata.pop("scenario")
        return log

    monkeypatch.setattr(refly_module, "read_log", changed)
    with pytest.raises(LogError, match=message) as caught:
        refly(log_file)
    assert "\n" not in str(caught.value) and str(log_file) in str(caught.value)


def test_flights_without_a_hold_have_no_common_path(log_file):
    log = read_log(log_file)
    assert path_difference_m(log, log) == float("inf"), "there is no hold in fourteen seconds"


def test_a_computing_time_is_no_difference_and_a_missing_message_is(log_file):
    control = read_log(log_file)["control"]
    later = [msgspec.structs.replace(m, solve_time_s=m.solve_time_s + 1.0) for m in control]
    assert difference("control", control, later) is None
    found = difference("control", control, control[:-1])
    assert (
        found is not None and found.fields == () and (found.flown, found.repeated) == (len(control), len(control) - 1)
    )


def test_the_sources_of_a_log_are_those_of_this_code(log_file):
    assert read_log(log_file).metadata["source_hash"] == provenance.software().source_hash


def test_the_command_ends_with_zero_when_equal_one_when_not_and_two_when_refused(log_file, tmp_path, monkeypatch):
    result = CliRunner().invoke(main, ["refly", str(log_file), "--json", str(tmp_path / "comparison.json")])
    assert result.exit_code == 0 and "equal: all" in result.output
    assert msgspec.json.decode((tmp_path / "comparison.json").read_bytes())["equal"] is True
    run = refly_module.flown_run
    monkeypatch.setattr(refly_module, "flown_run", lambda log: run(log)._replace(seed=6))
    result = CliRunner().invoke(main, ["refly", str(log_file)])
    assert result.exit_code == 1 and "NOT equal" in result.output and "truth" in result.output
    result = CliRunner().invoke(main, ["refly", str(ROOT / "README.md")])
    assert result.exit_code == 2 and "not a flight log" in result.output


def test_a_log_that_is_cut_off_is_refused_and_named_once(log_file, tmp_path):
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(log_file.read_bytes()[:-20000])
    with pytest.raises(LogError) as refused:
        refly(cut)
    assert str(refused.value).startswith(f"{cut}: the log is not complete: its end is missing")
    assert str(refused.value).count(str(cut)) == 1
