"""The list of the files of a flight: complete for every mission and scenario here, and calm about nonsense."""

from pathlib import Path
from typing import Any

import pytest

from companion.core.config import ConfigError, read_layered
from companion.core.input_files import input_files, texts

ROOT = Path(__file__).parents[2]
MISSIONS = sorted((ROOT / "config/missions").glob("*.toml"))
SCENARIOS = sorted((ROOT / "config/scenarios").glob("*.toml"))
NONSENSE = ["1", "[1, 2]", "{ a = 1 }", "true"]


@pytest.mark.parametrize("mission", MISSIONS, ids=lambda path: path.stem)
def test_every_file_that_a_mission_names_is_in_the_list(mission):
    files = input_files(mission=mission)
    found = {*files.tables.values(), *files.dictionaries.values(), *files.plans.values()}
    assert {path.resolve() for path in found} >= {mission, *named_in(mission)}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.stem)
def test_the_world_of_a_scenario_is_in_the_list(scenario):
    worlds = {path for path in named_in(scenario) if path.parent.name == "worlds"}
    assert {path.resolve() for name, path in input_files(scenario=scenario).tables.items() if name == "world"} == worlds


def test_a_key_of_the_base_names_a_file_beside_the_mission(tmp_path):
    (tmp_path / "base.toml").write_text('marker_file = "site.toml"')
    (tmp_path / "mission.toml").write_text('base = "base.toml"')
    (tmp_path / "site.toml").write_text('[[bundle]]\nmarkers = [{ family = "dictionary:own.yml" }, { family = 3 }]')
    files = input_files(mission=tmp_path / "mission.toml")
    assert files.tables["site"] == tmp_path / "site.toml"
    assert files.dictionaries == {"own.yml": tmp_path / "own.yml"}
    with pytest.raises(ConfigError, match=r"own\.yml: cannot be read: No such file"):
        texts(files.dictionaries)


@pytest.mark.parametrize("value", NONSENSE)
@pytest.mark.parametrize("key", ["marker_file", "inspection", "inspection.camera", "inspection.item", "world"])
def test_a_name_that_is_no_text_names_no_file(tmp_path, key, value):
    file = tmp_path / "file.toml"
    file.write_text(f"{key} = {value}")
    kind = "scenario" if key == "world" else "mission"
    assert dict(input_files(**{kind: file}).tables) == {kind: file}


@pytest.mark.parametrize("value", [*NONSENSE, "[{ markers = 1 }]", "[{ markers = [1, { family = 1 }] }]"])
def test_a_site_without_sense_names_no_dictionary(tmp_path, value):
    (tmp_path / "mission.toml").write_text('marker_file = "site.toml"')
    (tmp_path / "site.toml").write_text(f"bundle = {value}")
    assert input_files(mission=tmp_path / "mission.toml").dictionaries == {}


def named_in(file: Path) -> set[Path]:
    """The files that exist under the texts anywhere in the tables of a TOML file."""
    found = set()
    pending: list[Any] = [read_layered(file)]
    while pending:
        value = pending.pop()
        pending += value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
        if isinstance(value, str) and value.endswith((".toml", ".plan", ".yml")) and (file.parent / value).is_file():
            found.add((file.parent / value).resolve())
    return found
