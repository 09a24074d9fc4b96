"""``companion calibrate map`` on made-up logs: what it writes, and what it refuses."""

import json
import re
import shutil
import tomllib
from dataclasses import replace

import numpy as np
import pytest
from calibration_paths import F550
from click.testing import CliRunner
from map_flights import Course, Flight, fly, site_text, write_log

from calibration.map import command
from calibration.map.adjust import Adjusted, Jump, adjust
from calibration.map.flight_log import read_map_log
from calibration.map.relative import difference, relative
from calibration.results import DataError
from companion.cli import main
from companion.core.config import ConfigError
from companion.core.frames import quat_from_rpy, rotation_matrix
from companion.core.site import Plumb, load_site

COURSE = Course(spacing_m=6.0, standoff_m=2.5, sway_m=1.0, laps=1, stop_s=0.5)
VEHICLE = {"vehicle": F550.read_text()}
OTHER_VERSION = {"vehicle": F550.read_text().replace("width_px = 640", "former_key = 1\nwidth_px = 640")}
SURVEY = "\nsurvey = {{ p_S = [{x}, 0.0, 0.0], rpy_S_rad = [0.0, 0.0, 0.0], std_m = 0.02, std_rad = 0.005 }}"


@pytest.fixture(scope="module")
def flight():
    return fly(5, COURSE)


@pytest.fixture(scope="module")
def log(flight, tmp_path_factory):
    return write_log(tmp_path_factory.mktemp("map") / "flight.mcap", flight, VEHICLE)


@pytest.fixture(scope="module")
def results():
    """Adjusted flights by the name of their log."""
    return {}


@pytest.fixture
def adjusted_once(results, monkeypatch):
    """The same log is adjusted once for all tests that do not change what the adjustment is given."""

    def adjusted(data):
        if data.name not in results:
            results[data.name] = adjust(data)
        return results[data.name]

    monkeypatch.setattr(command, "adjust", adjusted)


@pytest.fixture
def site(tmp_path):
    file = tmp_path / "site.toml"
    file.write_text(site_text())
    return file


def run(*arguments):
    """Output and exit status."""
    result = CliRunner().invoke(main, ["calibrate", "map", *map(str, arguments)])
    return result.output.replace("\n", " "), result.exit_code


def only(flight, bundle):
    """The flight without its other bundles."""
    mine = flight.data.seen.bundle == bundle
    seen = flight.data.seen
    kept = replace(seen, image=seen.image[mine], bundle=seen.bundle[mine], seen=seen.seen[mine], xy=seen.xy[mine])
    return Flight(replace(flight.data, seen=kept), flight.true)


def test_the_surveys_of_a_flight_are_written_and_the_rest_of_the_file_stays(flight, log, site, tmp_path, adjusted_once):
    out, result = tmp_path / "mapped.toml", tmp_path / "map.json"
    output, status = run(log, "--site", site, "--out", out, "--json", result)
    assert status == 0, output
    before, after = site_text().splitlines(), out.read_text().splitlines()
    assert [line for line in after if not line.startswith("survey")] == before
    surveys = [bundle.survey for bundle in load_site(out).bundle]
    R = np.array([rotation_matrix(quat_from_rpy(*survey.rpy_S_rad)) for survey in surveys])
    p = np.array([survey.p_S for survey in surveys])
    none = np.zeros((12, 12))
    error = difference(relative(R, p, none, 0, 1), relative(flight.true.R_WM, flight.true.p_WM, none, 0, 1))
    details = json.loads(result.read_text())["details"]["relative"]["bundle_1"]
    covariance = np.array(details["covariance"])
    assert error @ np.linalg.solve(covariance, error) / 6 < 4.0
    assert details["std_m"] < 0.15 and details["std_deg"] < 1.0
    assert np.linalg.norm(error[3:]) < 0.15
    # Written once, the file is not replaced without being asked for.
    assert run(log, "--site", site, "--out", out) == (f"companion: {out}: exists already; --force replaces it ", 2)


def test_a_bundle_that_stands_elsewhere_is_named_and_nothing_is_written(log, site, adjusted_once):
    moved = site_text().replace("# the 1. pier", SURVEY.format(x=0.0)).replace("# the 2. pier", SURVEY.format(x=-7.0))
    site.write_text(moved)
    output, status = run(log, "--site", site, "--force")
    assert status == 2
    assert "'bundle_0' or 'bundle_1' does not stand where" in output and "seen from 'bundle_0'" in output
    assert site.read_text() == moved


def test_surveys_in_another_frame_are_not_written_beside_those_of_the_file(log, site, adjusted_once):
    third = site_text(3).replace("# the 3. pier", SURVEY.format(x=-24.0))
    site.write_text(third)
    output, status = run(log, "--site", site, "--force")
    assert status == 2
    assert f"{site}: of the bundles of this map ('bundle_0', 'bundle_1') none is surveyed" in output
    assert "fly in sight of one that is ('bundle_2'), too, or take all surveys out of the file" in output
    assert site.read_text() == third


def test_the_surveys_are_shown_where_they_cannot_be_written(log, site, monkeypatch, adjusted_once):
    def full(path, text):
        raise ConfigError(f"{path}: cannot be written: No space left on device")

    monkeypatch.setattr("calibration.map.site_file.write_whole", full)
    output, status = run(log, "--site", site, "--force")
    assert status == 2 and output.endswith(f"companion: {site}: cannot be written: No space left on device ")
    lines = re.findall(r"survey = \{[^}]*\} # '\w+'", output)
    assert [line.partition(" # ")[2] for line in lines] == ["'bundle_0'", "'bundle_1'"]
    for line in lines:
        assert set(tomllib.loads(line)["survey"]) == {"p_S", "rpy_S_rad", "std_m", "std_rad"}


@pytest.mark.parametrize("other", ["uncertain", "apart"])
def test_a_flight_that_the_map_does_not_use_is_named_as_such_and_nowhere_else(
    flight, log, tmp_path, monkeypatch, adjusted_once, other
):
    """uncertain: its second bundle is not determined; apart: it has no bundle of the other flight."""
    site, out, result = tmp_path / "site.toml", tmp_path / "mapped.toml", tmp_path / "map.json"
    site.write_text(site_text(4))
    second = write_log(tmp_path / "second.mcap", flight, VEHICLE)

    def adjusted(data):
        found = once(replace(data, name=str(log)))
        data = replace(found.data, name=data.name)
        if data.name == str(log):
            return replace(found, data=data)
        if other == "uncertain":
            return replace(found, data=data, covariance=1e4 * found.covariance, corner_px=2.9)
        data = replace(data, bundles=("bundle_2", "bundle_3"))
        outliers = dict(zip(data.bundles, found.outliers.values(), strict=True))
        return replace(found, data=data, outliers=outliers, corner_px=2.9)

    once = command.adjust
    monkeypatch.setattr(command, "adjust", adjusted)
    output, status = run(log, second, "--site", site, "--out", out, "--json", result)
    assert status == 0, output
    assert output.count("second.mcap") == 1  # in the warning
    assert "second.mcap" not in out.read_text()
    content = json.loads(result.read_text())
    assert [used["log"] for used in content["details"]["flights"]] == [str(log)]
    assert list(content["details"]["filter"]) == [str(log)] and content["merit"]["corner_px"] < 2.0
    (warning,) = content["warnings"]
    assert warning.startswith(f"{second}: ") and warning.endswith(": not used")


@pytest.mark.parametrize("moved_m", [0.3, 1.0])
@pytest.mark.verify
def test_a_bundle_that_moved_during_the_flight_is_no_map(site, tmp_path, moved_m):
    log = write_log(tmp_path / "moved.mcap", fly(5, COURSE, moved_m=moved_m), VEHICLE)
    output, status = run(log, "--site", site, "--force")
    assert status == 2 and "moved.mcap: 'bundle_1' moved during the flight: at " in output
    assert site.read_text() == site_text()


def test_a_log_of_one_bundle_is_no_map(flight, site, tmp_path):
    one = write_log(tmp_path / "one.mcap", only(flight, 0), VEHICLE)
    output, status = run(one, "--site", site, "--force")
    assert status == 2 and "one.mcap: a map needs two bundles in one flight" in output


def test_bundles_that_the_site_file_does_not_have_are_named(log, tmp_path):
    other = tmp_path / "other.toml"
    other.write_text(site_text(1))
    output, status = run(log, "--site", other)
    assert status == 2 and f"bundle 'bundle_1' of this flight is not in {other}" in output


def test_another_print_than_in_the_flight_is_named(log, tmp_path):
    other = tmp_path / "other.toml"
    other.write_text(site_text().replace("size_m = 0.12", "size_m = 0.15"))
    output, status = run(log, "--site", other)
    assert status == 2 and "marker 4 of bundle 'bundle_0' had another place or size in this flight than in" in output


@pytest.mark.parametrize(
    ("changes", "metadata", "message"),
    [
        ({"markers": False}, VEHICLE, "no marker was seen in this log"),
        ({"inertial": False}, VEHICLE, "no inertial samples of the flight controller in the log"),
        ({}, {}, "the log does not hold its vehicle file: name that file with --vehicle"),
        ({}, OTHER_VERSION, "vehicle in the log: camera.former_key: unknown key"),
        (
            {},
            {
                "vehicle": F550.read_text()
                .replace("width_px = 640", "width_px = 320")
                .replace("cx_px = 320.0", "cx_px = 160.0")
            },
            "markers were seen outside of the picture of 320 x 480 px",
        ),
    ],
    ids=["no markers", "no inertial samples", "no vehicle", "another version", "another camera"],
)
def test_a_log_that_cannot_be_used_is_one_line(flight, site, tmp_path, changes, metadata, message):
    log = write_log(tmp_path / "bad.mcap", flight, metadata, **changes)
    output, status = run(log, "--site", site)
    assert status == 2
    assert output.startswith(f"companion: {tmp_path / 'bad.mcap'}: {message}")


def test_a_vehicle_file_serves_a_log_whose_own_this_version_does_not_read(flight, site, tmp_path):
    log, given = write_log(tmp_path / "old.mcap", flight, OTHER_VERSION), tmp_path / "given.toml"
    given.write_text(F550.read_text().replace("mass_kg = 1.8", "mass_kg = 1.9"))
    taken, difference = read_map_log(log, load_site(site), site, given).notes
    assert taken.startswith(f"{log}: vehicle in the log: camera.former_key: unknown key")
    assert taken.endswith(f"; {given} is taken for the vehicle that flew")
    assert difference == f"{given} differs from the vehicle that flew: mass_kg = 1.9 (flown: 1.8)"


def without_samples(flight, *gaps):
    """The flight without the inertial samples of some times [s]."""
    samples = flight.data.samples
    kept = np.ones(len(samples.t_s), bool)
    for start_s, duration_s in gaps:
        kept &= (samples.t_s < start_s) | (samples.t_s > start_s + duration_s)
    fewer = type(samples)(*(part[kept] for part in samples))
    return Flight(replace(flight.data, samples=fewer), flight.true)


def test_a_gap_in_the_inertial_samples_is_named_with_the_time_that_is_used(flight, site, tmp_path):
    end_s = flight.data.samples.t_s[-1]
    log = write_log(tmp_path / "gap.mcap", without_samples(flight, (0.6 * end_s, 0.12)), VEHICLE)
    read = read_map_log(log, load_site(site), site, None)
    assert read.data.t_s[-1] < 0.6 * end_s
    (note,) = read.notes
    assert note.startswith(f"{log}: 0 to {0.6 * end_s:.0f} s are used, ")
    assert note.endswith(f" images are not: no inertial samples for 0.12 s at {0.6 * end_s:.1f} s")


def test_both_gaps_around_the_time_that_is_used_are_named(flight, site, tmp_path):
    log = write_log(tmp_path / "gaps.mcap", without_samples(flight, (4.0, 0.293), (20.0, 0.493), (20.6, 30.0)), VEHICLE)
    (note,) = read_map_log(log, load_site(site), site, None).notes
    assert ": 4 to 20 s are used, " in note
    assert note.endswith("no inertial samples for 0.30 s at 4.0 s and for 0.50 s at 20.0 s")


def test_a_whole_flight_has_no_notes(log, site):
    assert read_map_log(log, load_site(site), site, None).notes == []


def test_a_flight_counts_once(log, site, tmp_path):
    """A standard deviation of the map would be too small by a factor of √2."""
    output, status = run(log, log, "--site", site)
    assert status == 2 and f"{log}: given twice" in output
    copied = tmp_path / "copied.mcap"
    shutil.copy(log, copied)
    output, status = run(log, copied, "--site", site)
    assert status == 2 and f"{copied}: holds the same data as {log}: given twice" in output


def test_a_bundle_that_hangs_upside_down_is_refused(flight):
    """Its axis is as vertical as that of an upright one."""
    data = replace(flight.data, plumb=(None, Plumb("y", 0.005)))
    R_WM = flight.true.R_WM.copy()
    found = Adjusted(data, flight.true, data.noise, np.eye(12), {}, Jump(0.0, 0.0, ()), 0.1, 0.0, data.t_s, None)
    command.check_flight(found)
    R_WM[1] = R_WM[1] @ np.diag([-1.0, -1.0, 1.0])
    with pytest.raises(DataError, match="bundle 'bundle_1' hangs upside down: its y axis points down"):
        command.check_flight(replace(found, unknowns=replace(flight.true, R_WM=R_WM)))
