"""Calibration commands refuse an output that cannot be written before they begin to work."""

import pytest
from click.testing import CliRunner

from companion.cli import main

BELOW_A_FILE = "occupied/result"


@pytest.mark.parametrize(
    "words",
    [
        ("calibrate", "camera", "a.png", "--board", "grid_a4", "--json", BELOW_A_FILE),
        ("calibrate", "camera", "a.png", "--board", "grid_a4", "--plots", BELOW_A_FILE),
        ("calibrate", "extrinsics", "a.mcap", "--json", BELOW_A_FILE),
        ("calibrate", "latency", "a.mcap", "--json", BELOW_A_FILE),
        ("calibrate", "thrust", "--fit", "a.csv", "--plot", BELOW_A_FILE),
        ("identify", "a.ulg", "--plots", BELOW_A_FILE),
        ("identify", "a.ulg", "--vehicle", "protected.toml"),
    ],
    ids=lambda words: " ".join(words[:2]) + " " + words[-2],
)
def test_an_output_that_cannot_be_written_is_refused_before_the_input_is_read(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "occupied").write_text("a file, not a folder")
    (tmp_path / "protected.toml").mkdir()  # cannot be written by root either
    result = CliRunner().invoke(main, words)
    (line,) = result.output.splitlines()
    assert result.exit_code == 2 and words[-1] in line


@pytest.mark.parametrize("words", [["identify"], ["calibrate", "thrust", "--fit"]])
def test_a_data_file_that_is_given_twice_is_refused(words, tmp_path):
    file = tmp_path / "data"
    file.write_text("")
    (tmp_path / "folder").mkdir()
    again = tmp_path / "folder/../data"
    refused = CliRunner().invoke(main, [*words, str(file), str(again)])
    assert refused.exit_code == 2 and f"{again}: given twice" in refused.stderr
