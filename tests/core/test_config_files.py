"""Configuration files are found by name from any folder, and a file of the wrong kind is named."""

from pathlib import Path

import pytest

from companion.core.config import ConfigError, read_layered
from companion.core.config_files import ConfigKind, check_kind, config_folder, find_config, kind_of, names_of

CONFIG = Path(__file__).parents[2] / "config"
FILES = sorted(path for kind in ConfigKind for path in (CONFIG / kind).glob("*.toml"))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """An empty folder, and no installation's configuration."""
    monkeypatch.delenv("COMPANION_CONFIG_DIR", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", ["bridge_hover", "bridge_hover.toml"])
def test_a_bare_name_is_found_from_an_empty_folder(name):
    assert find_config(name, ConfigKind.MISSION) == CONFIG / "missions/bridge_hover.toml"
    assert find_config(name, ConfigKind.SCENARIO) == CONFIG / "scenarios/bridge_hover.toml"


def test_a_name_may_have_a_folder_of_the_kind():
    assert find_config("safety/hold", ConfigKind.SCENARIO) == CONFIG / "scenarios/safety/hold.toml"


def test_a_path_that_exists_wins_and_a_folder_does_not(tmp_path):
    (tmp_path / "f550").mkdir()
    assert find_config("f550", ConfigKind.VEHICLE) == CONFIG / "vehicles/f550.toml"
    own = tmp_path / "f550.toml"
    own.write_text("")
    assert find_config("f550.toml", ConfigKind.VEHICLE).resolve() == own


def test_an_installation_names_its_own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("COMPANION_CONFIG_DIR", str(tmp_path))
    (tmp_path / "vehicles").mkdir()
    (tmp_path / "vehicles/own.toml").write_text("")
    assert config_folder() == tmp_path and names_of(ConfigKind.VEHICLE) == ["own"]
    assert find_config("own", ConfigKind.VEHICLE) == tmp_path / "vehicles/own.toml"


def test_a_folder_that_an_installation_does_not_have_is_the_packaged_one(tmp_path, monkeypatch):
    monkeypatch.setenv("COMPANION_CONFIG_DIR", str(tmp_path))
    assert find_config("x8", ConfigKind.AIRFRAME) == CONFIG / "airframes/x8.toml"
    (tmp_path / "airframes").mkdir()
    with pytest.raises(ConfigError, match="no airframe file of this name"):
        find_config("x8", ConfigKind.AIRFRAME)


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ("bridge_hovr", ConfigKind.MISSION, "did you mean 'bridge_hover'?"),
        ("f5500.toml", ConfigKind.VEHICLE, "did you mean 'f550'?"),
        ("qwertz", ConfigKind.VEHICLE, "(there are: aurelia_x6, f450,"),
        ("f550", ConfigKind.MISSION, "f550 is a vehicle file, and there is no mission of this name"),
        ("no/such/file.toml", ConfigKind.MISSION, "no/such/file.toml: no such file"),
        ("../etc", ConfigKind.MISSION, "no such file"),
        ("f55", ConfigKind.AIRFRAME, "did you mean 'f550'?"),
        ("x" * 5000, ConfigKind.MISSION, "longer than 200 characters"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(given, kind, words):
    with pytest.raises(ConfigError) as refused:
        find_config(given, kind)
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_a_misspelt_path_is_answered_with_the_file_beside_it():
    with pytest.raises(ConfigError, match="did you mean 'bridge_hover.toml'"):
        find_config(CONFIG / "missions/bridge_hoover.toml", ConfigKind.MISSION)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_kind_of_every_bundled_file_is_recognised(path):
    assert kind_of(read_layered(path)) == path.parent.name


@pytest.mark.parametrize("tables", [{}, {"name": "x"}, {"bundle": "pier"}, {"limits": {}}])
def test_a_file_that_could_be_anything_has_no_kind(tables):
    assert kind_of(tables) is None


@pytest.mark.parametrize(
    ("file", "kind", "line"),
    [
        ("missions/bridge_hover.toml", ConfigKind.SCENARIO, "bridge_hover.toml is a mission; `cmd` needs a scenario"),
        ("scenarios/bridge_hover.toml", ConfigKind.MISSION, "bridge_hover.toml is a scenario; `cmd` needs a mission"),
        ("vehicles/f550.toml", ConfigKind.MISSION, "f550.toml is a vehicle file; `cmd` needs a mission"),
        ("vehicles/f550_rtk.toml", ConfigKind.SCENARIO, "f550_rtk.toml is a vehicle file; `cmd` needs a scenario"),
        ("missions/run_5.toml", ConfigKind.VEHICLE, "run_5.toml is a mission; `cmd` needs a vehicle file"),
        ("markers/pier.toml", ConfigKind.MISSION, "pier.toml is a marker file; `cmd` needs a mission"),
    ],
)
def test_a_file_of_another_kind_is_named(file, kind, line):
    with pytest.raises(ConfigError) as refused:
        check_kind(CONFIG / file, kind, "cmd")
    assert str(refused.value).startswith(line)
    check_kind(CONFIG / file, ConfigKind(file.partition("/")[0]), "cmd")
