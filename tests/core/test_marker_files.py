"""Marker files: every family the detectors know may be flown, and a file that cannot be used is named in one line."""

import re

import pytest

from companion.core.config import ConfigError, Section, parse
from companion.core.site import FAMILIES, KNOWN_FAMILIES, Bundle, Site, load_site
from companion.planning.sections import BundlePlace
from companion.tracking.detectors import detector_for
from sitl.scene import PlacedBundle

DICTIONARY = '%YAML:1.0\nnmarkers: 2\nmarkersize: 4\nmarker_0: "1100101000111001"\nmarker_1: "1000101000110001"\n'


def marker_file(folder, family, more=""):
    path = folder / "markers.toml"
    marker = f'{{ family = "{family}", id = 1, size_m = 0.2 }}'
    path.write_text(f'[[bundle]]\nname = "a"\nmarkers = [{marker}{more}]\n')
    return path


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_of_a_marker_file_has_a_detector(tmp_path, family):
    marker = load_site(marker_file(tmp_path, family)).bundle[0].markers[0]
    assert marker.family == family
    detector_for([(marker.family, marker.id)])


def test_a_dictionary_is_found_beside_its_marker_file_from_anywhere(tmp_path, monkeypatch):
    (tmp_path / "boards").mkdir()
    (tmp_path / "boards/own.yml").write_text(DICTIONARY)
    path = marker_file(tmp_path, "dictionary:boards/own.yml")
    monkeypatch.chdir(tmp_path)
    for given in (path, path.name):
        marker = load_site(given).bundle[0].markers[0]
        assert marker.family == f"dictionary:{tmp_path / 'boards/own.yml'}"
        detector_for([(marker.family, 1)])
        with pytest.raises(ConfigError, match="own.yml 2: this family has ids 0 to 1"):
            detector_for([(marker.family, 2)])


def test_one_dictionary_under_two_names_is_still_one(tmp_path):
    (tmp_path / "own.yml").write_text(DICTIONARY)
    twice = ', { family = "dictionary:./own.yml", id = 1, size_m = 0.2 }'
    with pytest.raises(ConfigError, match="own.yml 1 stands in 'a' and in 'a'"):
        load_site(marker_file(tmp_path, "dictionary:own.yml", twice))


def two_markers(folder, first, second):
    """A file with two markers of 0.3 m on one bundle; first, second: their further keys."""
    path = folder / "markers.toml"
    keys = [key if "size_m" in key else f"size_m = 0.3, {key}".rstrip(", ") for key in (first, second)]
    rows = ", ".join(f'{{ family = "aruco_6x6_250", id = {i}, {key} }}' for i, key in enumerate(keys))
    path.write_text(f'[[bundle]]\nname = "pier"\nmarkers = [{rows}]\n')
    return path


@pytest.mark.parametrize(
    "second",
    [
        "p_M = [0.4, 0.1, 0.0]",
        "p_M = [0.4, 0.35, 0.0]",  # beyond one side of the first, before the other
        "p_M = [0.4, 0.1, 0.0], rpy_rad = [0.0, 0.0, 1.5708]",
        "p_M = [0.4, 0.1, 0.05]",  # five centimetres in front of it
        "size_m = 0.1, p_M = [0.4, 0.2, 0.0]",  # larger than a cell
    ],
)
def test_two_prints_of_a_bundle_in_one_place_are_one_line(tmp_path, second):
    file = two_markers(tmp_path, "p_M = [0.4, 0.1, 0.0]", second)
    with pytest.raises(
        ConfigError, match=r"'pier': markers aruco_6x6_250 0 and aruco_6x6_250 1 overlap \(0\.\d+ m apart\)"
    ):
        load_site(file)


@pytest.mark.parametrize(
    "second",
    [
        "p_M = [0.7, 0.1, 0.0]",  # side by side
        "p_M = [0.67, 0.37, 0.0], rpy_rad = [0.0, 0.0, 0.785]",  # its side at a corner: only that side separates them
        "p_M = [0.4, 0.1, -0.01], rpy_rad = [0.0, 3.1416, 0.0]",  # two sides of one board
        "p_M = [0.55, 0.1, -0.15], rpy_rad = [0.0, 1.5708, 0.0]",  # two sides of an edge
        "p_M = [0.45, 0.15, 0.3]",  # another face, 0.3 m in front
        "size_m = 0.04, p_M = [0.42, 0.12, 0.0]",  # drawn into a cell
    ],
)
def test_prints_of_a_bundle_that_can_all_be_there_load(tmp_path, second):
    assert len(load_site(two_markers(tmp_path, "p_M = [0.4, 0.1, 0.0]", second)).bundle[0].markers) == 2


def test_a_second_marker_without_a_place_is_one_line(tmp_path):
    """One without a place is at the origin of its bundle."""
    assert load_site(two_markers(tmp_path, "p_M = [0.4, 0.0, 0.0]", ""))
    with pytest.raises(
        ConfigError, match=r"bundle\[0\].markers\[1\].p_M: missing key: marker 0 of bundle 'pier' is at the"
    ):
        load_site(two_markers(tmp_path, "", ""))


@pytest.mark.parametrize(
    "family", ["aruco_9x9", "stag_hd20", "stag_hd", "stag_hd021", "apriltag_36h11 ", "Dictionary:x"]
)
def test_an_unknown_family_is_answered_with_all_known_ones_in_one_line(tmp_path, family):
    with pytest.raises(ConfigError) as error:
        load_site(marker_file(tmp_path, family))
    message = str(error.value)
    assert "markers.toml: bundle[0].markers[0].family = " in message
    assert f"unknown family (allowed: {KNOWN_FAMILIES})" in message
    assert "\n" not in message
    assert all(f in message for f in ("aruco_4x4_50", "apriltag_36h11", "stag_hd11", "stag_hd23", "dictionary:PATH"))


@pytest.mark.parametrize("family", ["dictionary:absent.yml", "dictionary:", "dictionary:."])
def test_a_missing_dictionary_names_both_files(tmp_path, family):
    with pytest.raises(ConfigError, match=r"markers.toml: bundle\[0\].*no such marker dictionary$") as error:
        load_site(marker_file(tmp_path, family))
    assert str(tmp_path) in str(error.value).split("family = ")[1]


@pytest.mark.parametrize("family", ['""', "5", "true"])
def test_a_family_that_is_no_name_is_refused(tmp_path, family):
    path = marker_file(tmp_path, "FAMILY")
    path.write_text(path.read_text().replace('"FAMILY"', family))
    with pytest.raises(ConfigError, match=r"markers.toml: bundle\[0\].markers\[0\].family") as error:
        load_site(path)
    assert "\n" not in str(error.value)


BROKEN = {
    "a marker is missing": ("marker_1", "marker_7", "marker_1 must be"),
    "a code is short": ("1100101000111001", "11001", "marker_0 must be"),
    "a code is long": ("1100101000111001", "11001010001110011", "marker_0 must be"),
    "a code has letters": ("1100101000111001", "11001x1000111001", "marker_0 must be"),
    "a code is a number": ('"1100101000111001"', "5", "marker_0 must be"),
    "no markers": ("nmarkers: 2", "nmarkers: 0", "nmarkers must be a whole number"),
    "too many markers": ("nmarkers: 2", "nmarkers: 2000000000", "nmarkers must be a whole number"),
    "nmarkers is a word": ("nmarkers: 2", "nmarkers: two", "nmarkers must be a whole number"),
    "no size": ("markersize: 4", "markersize: 0", "markersize must be a whole number"),
    "negative size": ("markersize: 4", "markersize: -4", "markersize must be a whole number"),
    "huge size": ("markersize: 4", "markersize: 100000", "markersize must be a whole number"),
    "bits to correct": ("markersize: 4", "markersize: 4\nmaxCorrectionBits: 99", "maxCorrectionBits must be"),
    "symmetric": ("1000101000110001", "1001000000001001", "marker_1 looks the same when turned"),
    "twice the same": ("1000101000110001", "1100101000111001", "marker_1 looks like marker_0"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_dictionary_stops_the_start_and_says_where(tmp_path, case):
    old, new, words = BROKEN[case]
    assert old in DICTIONARY
    (tmp_path / "own.yml").write_text(DICTIONARY.replace(old, new))
    marker = load_site(marker_file(tmp_path, "dictionary:own.yml")).bundle[0].markers[0]
    with pytest.raises(ConfigError, match=re.escape(f"{tmp_path / 'own.yml'}: ") + ".*" + words) as error:
        detector_for([(marker.family, marker.id)])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["world", "World", " world"])
def test_a_bundle_with_the_name_of_the_world_frame_is_one_line(tmp_path, name):
    path = tmp_path / "markers.toml"
    path.write_text(marker_file(tmp_path, "apriltag_36h11").read_text().replace('"a"', f'"{name}"'))
    line = f"bundle[0].name = {name!r}: reserved for the frame of the take-off point: a bundle needs another name"
    with pytest.raises(ConfigError, match=re.escape(line)) as error:
        load_site(path)
    assert str(error.value) == f"{path}: {line}"


class Places(Section, frozen=True):
    """Bundles in a mission file and in a scenario."""

    inspection: list[BundlePlace] = []
    scene: list[PlacedBundle] = []


@pytest.mark.parametrize("table", [{"inspection": [{"p_m": [0, 0, 0]}]}, {"scene": [{"p_W": [0, 0, 0]}]}])
def test_no_file_places_a_bundle_with_the_name_of_the_world_frame(table):
    [(key, [place])] = table.items()
    with pytest.raises(ConfigError, match=rf"^file: {key}\[0\].name = 'world': reserved"):
        parse({key: [place | {"rpy_rad": [0, 0, 0], "name": "world"}]}, Places, "file")


def test_a_renamed_bundle_is_checked_too():
    bundle = parse({"bundle": [{"name": "a", "markers": [{"family": "x", "id": 1, "size_m": 1}]}]}, Site, "").bundle[0]
    with pytest.raises(ValueError, match="reserved"):
        Bundle(name="world", markers=bundle.markers)
