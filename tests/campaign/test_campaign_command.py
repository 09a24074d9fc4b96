"""The command refuses with one line and exit status 2, repeats a flight, and resumes."""

import errno
import json

import pytest
from click.testing import CliRunner

from companion.cli import main
from companion.core.config_files import ConfigKind, config_folder
from sitl.campaign.campaign_file import load_campaign
from sitl.campaign.fly import NotFlown
from tests.campaign.small_campaigns import MASS, SHORT, campaign, draw, row

OWN = sorted((config_folder() / ConfigKind.CAMPAIGN).glob("*.toml"))


def run(*words):
    return CliRunner().invoke(main, ["campaign", *map(str, words)])


def refused(result, *words):
    lines = result.stderr.strip().splitlines()
    assert result.exit_code == 2 and len(lines) == 1 and lines[0].startswith("companion: "), result.output
    for word in words:
        assert word in lines[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("robustnes", "--out", "x"), "did you mean 'robustness'?"),
        (("bridge_hover", "--out", "x"), "bridge_hover is a mission"),
        (("FILE",), "--out: missing"),
        (("FILE", "--log", "x.mcap", "--out", "x"), "--log: only with --only"),
        (("FILE", "--json", "-", "--out", "x"), "--json: only with --only"),
        (("FILE", "--only", "9"), "the campaign has 3 flights"),
        (("FILE", "--out", "OUT", "--jobs", "2", "--scheduler", "tcp://127.0.0.1:1"), "--jobs: not with --scheduler"),
        (("FILE", "--out", "/proc/no/folder"), "cannot be written"),
        (("FILE", "--out", "OUT", "--logs", "/proc/no/folder"), "/proc/no/folder: cannot be written"),
        (("FILE", "--out", "OUT", "--logs", "FILE"), "is a file, must be a folder"),
        (("FILE", "--out", "OUT", "--again", "crashed"), "--again: only with --resume"),
        (("FILE", "--out", "OUT", "--report"), "holds no campaign"),
        (("FILE", "--out", "OUT", "--scheduler", "nonsense://"), "--scheduler nonsense://"),
    ],
)
def test_a_wrong_command_is_one_line(tmp_path, words, said):
    file = campaign(tmp_path, SHORT)
    names = {"FILE": str(file), "OUT": str(tmp_path / "out")}
    refused(run(*(names.get(word, word) for word in words)), said)
    assert "--logs" not in words or not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NotFlown("flight 2: /logs: cannot be written"), "flight 2: /logs: cannot be written"),
        (OSError(errno.ENOSPC, "No space left on device", "/tmp/x"), "/tmp/x: no space left on device"),
    ],
)
def test_a_campaign_that_cannot_go_on_keeps_its_flights_and_flies_the_crashed_ones_again(
    tmp_path, monkeypatch, error, said
):
    file, out, flown = campaign(tmp_path, SHORT), tmp_path / "out", []

    def rows(flights, jobs, scheduler):
        flown.append([flight.number for flight in flights])
        for flight in flights:
            if flight.number == 2 and len(flown) == 1:
                raise error
            yield row(flight.number, "crashed" if len(flown) == 1 else "completed")

    monkeypatch.setattr("sitl.campaign.command._rows", rows)
    monkeypatch.setattr("sitl.campaign.command._prepare", lambda flights, scheduler: None)
    ended = run(file, "--out", out)
    assert ended.exit_code == 2
    assert ended.stderr.strip().splitlines()[-1] == f"companion: {said}: 1 of 3 flights flown; go on with --resume"
    assert (out / "report.html").is_file() and [p.name for p in (out / "flights").iterdir()] == ["00001.json"]
    again = run(file, "--out", out, "--resume", "--again", "crashed")
    assert again.exit_code == 0 and "1 crashed flights are flown again" in again.stderr, again.output
    assert flown == [[1, 2, 3], [1, 2, 3]]
    assert run(file, "--out", out, "--resume").exit_code == 0 and len(flown) == 2


def test_a_scheduler_that_is_not_there_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("sitl.campaign.cluster.CONNECT_S", 0.5)
    result = run(campaign(tmp_path, SHORT), "--out", tmp_path / "out", "--scheduler", "tcp://127.0.0.1:9")
    refused(result, "--scheduler tcp://127.0.0.1:9: no scheduler answers there")


def test_a_missing_package_names_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    refused(run(campaign(tmp_path, SHORT), "--out", tmp_path / "out"), "pyarrow", "companion[campaign]")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_the_campaigns_of_the_project_are_of_their_kind(path):
    loaded = load_campaign(path)
    assert (
        loaded.name == path.stem and loaded.sensors == "unkind" and len(loaded.all_seeds) * len(loaded.scenarios) >= 200
    )


@pytest.mark.verify
@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_every_flight_of_the_campaigns_of_the_project_can_be_flown(path):
    result = run(path, "--check")
    assert result.exit_code == 0 and "all of them can be flown" in result.output


def test_a_campaign_is_flown_resumed_and_repeated(tmp_path):
    """One flight fails, as time runs out: status 1. Then a flight is removed, as if it had not been finished."""
    file, out = campaign(tmp_path, SHORT, MASS, seeds="[4]"), tmp_path / "out"
    result = run(file, "--out", out, "--jobs", "1", "--logs", tmp_path / "logs")
    assert result.exit_code == 1, result.output
    assert "1 failed: the time of the scenario ran out" in result.output
    assert (out / "results.parquet").is_file() and "Campaign small" in (out / "report.html").read_text()
    first = json.loads((out / "flights/00001.json").read_bytes())
    assert (tmp_path / "logs/00001.mcap").stat().st_size > 10_000 and first["log"] == str(tmp_path / "logs/00001.mcap")
    refused(run(file, "--out", out), "holds a campaign")
    assert run(file, "--out", out, "--resume").exit_code == 1, "nothing is missing, and the flight has failed"
    refused(run(campaign(tmp_path, SHORT, MASS, seeds="[5]"), "--out", out, "--resume"), "small.toml is not what")
    campaign(tmp_path, SHORT, MASS, seeds="[4]")
    again = run(file, "--only", "1", "--json", tmp_path / "1.json", "--log", tmp_path / "1.mcap")
    assert again.exit_code == 1 and "airframe.mass_kg = " in again.output
    repeated = json.loads((tmp_path / "1.json").read_bytes())
    assert repeated["fields"] == first["fields"] and repeated["cause"] == first["cause"]
    assert repeated["result"]["position_rms_m"] == first["result"]["position_rms_m"]
    assert repeated["result"]["control_cycles"] == first["result"]["control_cycles"]


@pytest.mark.verify
def test_the_log_of_a_flight_can_be_flown_again(tmp_path):
    """The log alone has the drawn fields, those of the airframe and of unkind sensors, too."""
    range_row = draw("unkind.thrust_scale", distribution="uniform", low=0.9, high=1.1)
    file = campaign(tmp_path, SHORT, MASS, range_row, sensors='"unkind"', seeds="[6]")
    assert run(file, "--only", "1", "--log", tmp_path / "1.mcap").exit_code == 1
    result = CliRunner().invoke(main, ["refly", str(tmp_path / "1.mcap")])
    assert result.exit_code == 0 and "equal: all" in result.output, result.output
