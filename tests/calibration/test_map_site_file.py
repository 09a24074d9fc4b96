"""Surveys in marker files: what stood there stays."""

from datetime import date

import pytest
from map_flights import site_text

from calibration.map.site_file import check_output, with_surveys
from companion.core.command_line import OutputError
from companion.core.config import ConfigError
from companion.core.site import Survey, load_site

SURVEY = Survey(p_S=(1.0, 2.0, 3.0), rpy_S_rad=(1.57, 0.0, 0.1), std_m=0.02, std_rad=0.003)
OLD = """
[bundle.survey] # by a total station
p_S = [9.0, 9.0, 9.0] # m
rpy_S_rad = [0.0, 0.0, 0.0]
std_m = 0.005
std_rad = 0.002
"""


@pytest.fixture
def written(tmp_path):
    def made(text):
        file = tmp_path / "site.toml"
        file.write_text(text, newline="")
        return file

    return made


def test_a_survey_is_added_with_its_origin(written):
    file = written(site_text())
    text = with_surveys(file, {"bundle_1": SURVEY}, ["flight.mcap"])
    added = [line for line in text.splitlines() if line not in site_text().splitlines()]
    assert len(added) == 1 and added[0].startswith("survey = {") and "calibrate map flight.mcap]" in added[0]
    file.write_text(text)
    first, second = load_site(file).bundle
    assert first.survey is None and second.survey == SURVEY


def test_a_survey_is_replaced_and_its_comments_stay(written):
    file = written(site_text(1) + OLD)
    text = with_surveys(file, {"bundle_0": SURVEY}, ["flight.mcap"])
    assert "[bundle.survey] # by a total station [" in text and "p_S = [1.0, 2.0, 3.0] # m" in text
    file.write_text(text)
    assert load_site(file).bundle[0].survey == SURVEY


@pytest.mark.parametrize(
    "old",
    [
        OLD,
        "survey = { p_S = [9.0, 9.0, 9.0], rpy_S_rad = [0.0, 0.0, 0.0], std_m = 0.1, std_rad = 0.1 } # by a total station\n",
        "survey.p_S = [9.0, 9.0, 9.0] # by a total station\nsurvey.rpy_S_rad = [0.0, 0.0, 0.0]\n"
        "survey.std_m = 0.1\nsurvey.std_rad = 0.1 # tape\n",
    ],
    ids=["table", "inline table", "dotted keys"],
)
def test_a_replaced_survey_has_the_origin_of_its_last_numbers(written, old):
    file = written(site_text(1) + old)
    for log in ("first.mcap", "second.mcap"):
        file.write_text(with_surveys(file, {"bundle_0": SURVEY}, [log]))
    text = file.read_text()
    note = f"# by a total station [{date.today().isoformat()} calibrate map second.mcap]\n"
    assert text.count(note) == 1 and "first.mcap" not in text and text.count("tape") == old.count("tape")
    assert load_site(file).bundle[0].survey == SURVEY


def test_a_survey_inside_an_inline_table_is_replaced_without_a_comment(written):
    survey = "survey = { p_S = [9.0, 9.0, 9.0], rpy_S_rad = [0.0, 0.0, 0.0], std_m = 0.1, std_rad = 0.1 }"
    file = written(
        f'bundle = [{{ name = "a", {survey}, markers = [{{ family = "aruco_6x6_250", id = 1, size_m = 0.3 }}] }}]\n'
    )
    file.write_text(with_surveys(file, {"a": SURVEY}, ["flight.mcap"]))
    assert load_site(file).bundle[0].survey == SURVEY


def test_a_file_that_cannot_be_edited_is_refused_before_the_work(written, tmp_path, monkeypatch):
    file = written(site_text())
    site = load_site(file)
    monkeypatch.setattr("tomlkit.dumps", lambda _: "")
    assert check_output(file, site, None, force=False) is None
    for out, force in ((None, True), (tmp_path / "new.toml", False)):
        with pytest.raises(ConfigError, match=r"site.toml: cannot be edited in place"):
            check_output(file, site, out, force)


def test_a_site_file_that_cannot_be_written_is_refused_before_the_work(written, monkeypatch):
    file = written(site_text())
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(OutputError, match=r"site.toml: cannot be written"):
        check_output(file, load_site(file), None, force=True)


def test_two_surveys_in_one_place_are_not_written(written):
    file = written(site_text())
    with pytest.raises(ConfigError, match="nothing written: bundle.survey: marker 10 of 'bundle_1' stands on marker 0"):
        with_surveys(file, {"bundle_0": SURVEY, "bundle_1": SURVEY}, ["flight.mcap"])


def test_a_file_that_exists_needs_to_be_named_twice(written, tmp_path):
    file = written(site_text())
    site = load_site(file)
    assert check_output(file, site, None, force=False) is None
    assert check_output(file, site, None, force=True) == file
    assert check_output(file, site, file, force=True) == file
    with pytest.raises(ConfigError, match=r"site.toml: exists already; --force replaces it"):
        check_output(file, site, file, force=False)


def test_dictionaries_keep_their_folder(written, tmp_path):
    (tmp_path / "own.yml").write_text("%YAML:1.0\n")
    site_file = written(site_text(families="dictionary:own.yml"))
    site = load_site(site_file)
    assert check_output(site_file, site, tmp_path / "new.toml", force=False) == tmp_path / "new.toml"
    with pytest.raises(ConfigError, match="write into that folder"):
        check_output(site_file, site, tmp_path / "other" / "new.toml", force=False)
