"""Flights are flown by the project and the configuration that their campaign was begun with."""

import shutil

import msgspec
import pytest

from companion.core.config_files import config_folder
from sitl.autopilot.parameters import defaults_file
from sitl.campaign.project import OtherVersion, check_project, check_unchanged, project_here
from sitl.campaign.slot import Slot


@pytest.fixture
def own(tmp_path, monkeypatch):
    shutil.copytree(config_folder(), tmp_path / "config")
    monkeypatch.setenv("COMPANION_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path / "config"


def change(path):
    path.write_text(path.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")


@pytest.mark.parametrize("name", ["autopilots/px4_1_17.toml", "autopilots/f550.toml", "scenarios/safety/hold.toml"])
def test_a_worker_with_another_configuration_is_refused_and_its_file_named(own, name):
    project = project_here(everything=True)
    check_project(project)
    change(own / name)
    with pytest.raises(OtherVersion, match=rf"config/{name}: another configuration"):
        check_project(project)


def test_files_that_no_flight_reads_there_are_no_difference(own):
    """Campaign files are read where a campaign is begun; files of an aircraft may be there alone."""
    (own / "vehicles/mine.toml").write_text("", encoding="utf-8")
    project = project_here(everything=True)
    assert "vehicles/mine.toml" in project.configuration
    (own / "vehicles/mine.toml").unlink()
    change(own / "campaigns/robustness.toml")
    (own / "airframes/another.toml").write_text("", encoding="utf-8")
    check_project(project)


def test_a_folder_that_the_own_configuration_lacks_is_that_of_the_project(own):
    shutil.rmtree(own / "autopilots")
    assert "autopilots/px4_1_17.toml" in project_here(everything=True).configuration


def test_here_only_what_flights_read_counts(own):
    project = project_here()
    change(own / "vehicles/f550.toml")
    check_unchanged(project)
    change(defaults_file())
    with pytest.raises(OtherVersion, match=r"px4_1_17\.toml: another configuration than that of the campaign"):
        check_unchanged(project)


def test_a_launcher_compares_the_configuration(own):
    project = msgspec.structs.replace(project_here(), configuration={"autopilots/px4_1_17.toml": "0" * 64})
    slot = Slot(project)
    with pytest.raises(OtherVersion, match=r"px4_1_17\.toml: another configuration"):
        slot._started()
    slot.close()
