"""A log holds what is needed to explain its flight and to fly it again."""

import subprocess
from pathlib import Path

import msgspec
import pytest

from companion.core import provenance
from companion.core.config import load, read_layered
from companion.core.vehicle import Vehicle
from companion.recording.log import LogError, read_log
from companion.recording.writer import LogWriter
from companion.runtime.flight_record import flight_metadata

ROOT = Path(__file__).parents[2]
VARIANT = ROOT / "config/vehicles/f550_rtk.toml"  # has a base
MISSION = ROOT / "config/missions/bridge_hover.toml"
SCENARIO = ROOT / "config/scenarios/bridge_hover.toml"


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("record") / "flight.mcap"
    LogWriter(path, flight_metadata(VARIANT, MISSION, SCENARIO, {"kind": "lockstep", "seed": 4})).close()
    return read_log(path)


def test_the_effective_tables_have_their_base_merged(log):
    assert log.tables("vehicle") == read_layered(VARIANT) and "base" not in log.tables("vehicle")
    assert log.vehicle() == load(VARIANT, Vehicle)
    assert log.tables("scenario") == read_layered(SCENARIO)
    assert log.tables("mission")["name"] and log.tables("site")["bundle"]


def test_the_raw_files_stand_beside_them(log):
    assert log.metadata["vehicle"] == VARIANT.read_text()
    assert log.metadata["vehicle_base"] == (ROOT / "config/vehicles/f550.toml").read_text()
    assert log.metadata["mission"] == MISSION.read_text() and log.metadata["scenario"] == SCENARIO.read_text()


def test_software_computer_artefacts_and_schemas_are_named(log):
    software = provenance.software()
    assert log.metadata["source_hash"] == software.source_hash and log.metadata["commit"] == software.commit
    assert set(msgspec.json.decode(log.metadata["fingerprints"])) == {"solver", "prediction", "filter", "pose"}
    assert {"state", "truth", "safety"} <= set(msgspec.json.decode(log.metadata["schemas"]))
    for name in ("host", "processor", "python", "system", "command_line", "state_layout"):
        assert log.metadata[name], name
    assert msgspec.json.decode(log.metadata["run"]) == {"kind": "lockstep", "seed": 4}


def test_a_log_with_the_text_of_a_layered_file_alone_has_no_vehicle(tmp_path):
    LogWriter(tmp_path / "old.mcap", {"vehicle": VARIANT.read_text()}).close()
    old = read_log(tmp_path / "old.mcap")
    assert old.tables("vehicle") is None and old.vehicle() is None


@pytest.mark.parametrize("tables", ["{", "[1]", '{"name": "f550", "mass_kg": -3}'])
def test_corrupted_vehicle_tables_are_one_line(tmp_path, tables):
    LogWriter(tmp_path / "bad.mcap", {"vehicle_tables": tables}).close()
    with pytest.raises(LogError, match="bad.mcap.*vehicle") as caught:
        read_log(tmp_path / "bad.mcap").vehicle()
    assert "\n" not in str(caught.value)


def test_the_commit_is_that_of_git_and_changes_are_seen(tmp_path, monkeypatch):
    repository = tmp_path / "clone"
    for words in (["init", "-q"], ["config", "user.email", "a@b"], ["config", "user.name", "c"]):
        subprocess.run(
            ["git", "-C", str(repository), *words] if words[0] != "init" else ["git", "init", "-q", str(repository)],
            check=True,
        )
    (repository / "companion").mkdir()
    (repository / "companion/x.py").write_text("a = 1\n")
    subprocess.run(["git", "-C", str(repository), "add", "-A"], check=True)
    subprocess.run(["git", "-C", str(repository), "commit", "-qm", "first"], check=True)
    monkeypatch.setattr(provenance, "ROOT", repository)
    provenance.software.cache_clear()
    first = provenance.software()
    before = provenance.source_hash(repository)
    (repository / "companion/x.py").write_text("a = 2\n")
    provenance.software.cache_clear()
    second = provenance.software()
    provenance.software.cache_clear()
    assert len(first.commit) == 40 and first.commit == second.commit
    assert (first.modified, second.modified) == (False, True)
    assert provenance.source_hash(repository) != before


def test_without_a_repository_the_installers_file_names_the_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    monkeypatch.setattr(provenance, "COMMIT_FILE", tmp_path / "commit.txt")
    provenance.software.cache_clear()
    assert provenance.software().commit == ""
    assert "no repository" in provenance.version_line()
    (tmp_path / "commit.txt").write_text("abc123 modified\n")
    provenance.software.cache_clear()
    assert provenance.software()[1:3] == ("abc123", True) and "abc123, modified" in provenance.version_line()
    provenance.software.cache_clear()
