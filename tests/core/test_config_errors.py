"""A wrong configuration file stops the start with one line that names file, key, range and unit."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import pytest

from companion.core.config import ConfigError, Section, check_unit_quaternion, load, number, parse, read_toml
from companion.core.site import load_site
from companion.core.vehicle import Vehicle

ROOT = Path(__file__).parents[2]
F550 = ROOT / "config/vehicles/f550.toml"


def changed(tmp_path, old: str, new: str) -> Path:
    text = F550.read_text()
    assert old in text
    path = tmp_path / "vehicle.toml"
    path.write_text(text.replace(old, new, 1))
    return path


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("mass_kg = 1.8", "mass_kg = -1.0", ["mass_kg", "-1", "0.1 to 100 kg"]),
        ("mass_kg = 1.8\n", "", ["mass_kg", "missing key", "kg"]),
        ("[drag]", "[drag]\nquadratic = 1.0", ["drag.quadratic", "unknown key"]),
        ("[0.26057, 0.26057, 0.0]", "[0.26057, 90.0, 0.0]", ["drag.linear_1_s[1]", "90", "0 to 5 1/s"]),
        ("[0.26057, 0.26057, 0.0]", "[0.26057]", ["drag.linear_1_s", "length 3"]),
        ("mass_kg = 1.8", "mass_kg = nan", ["mass_kg", "finite"]),
        ("mass_kg = 1.8", 'mass_kg = "heavy"', ["mass_kg", "heavy"]),
        ("mass_kg = 1.8", "mass_kg = ", ["TOML"]),
        ("[attitude.pitch]", "[attitude.pich]", ["attitude.pich", "unknown key"]),
    ],
)
def test_a_bad_key_is_refused_in_one_line(tmp_path, old, new, words):
    path = changed(tmp_path, old, new)
    with pytest.raises(ConfigError) as refused:
        load(path, Vehicle)
    line = str(refused.value)
    assert "\n" not in line
    for word in [str(path), *words]:
        assert word in line


class _Shape(Section, tag_field="kind"):
    size_m: Annotated[float, number(0, 5, "m")]


class _Round(_Shape, tag="round"):
    radius_m: Annotated[float, number(0, 2, "m")]


class _Long(_Shape, tag="long"):
    length_m: Annotated[float, number(0, 30, "m")]


class _Drawing(Section):
    shape: _Round | _Long | None = None
    shapes: list[_Round | _Long] = []


@pytest.mark.parametrize(
    ("shape", "line"),
    [
        (
            {"kind": "long", "size_m": 1.0, "length_m": 31.0},
            "length_m = 31.0: expected `float` <= 30.0 (allowed: 0 to 30 m)",
        ),
        ({"kind": "long", "size_m": 1.0}, "length_m: missing key (allowed: 0 to 30 m)"),
        ({"kind": "round", "size_m": 1.0, "radius_m": 1.0, "length_m": 3.0}, "length_m: unknown key"),
        ({"kind": "flat", "size_m": 1.0}, "kind = 'flat': invalid value (allowed: round, long)"),
        ({"size_m": 1.0}, "kind: missing key (allowed: round, long)"),
    ],
)
def test_a_bad_key_of_a_table_of_several_kinds_is_refused_with_what_that_kind_allows(shape, line):
    for tables, where in (({"shape": shape}, "shape"), ({"shapes": [shape]}, "shapes[0]")):
        with pytest.raises(ConfigError) as refused:
            parse(tables, _Drawing, "file.toml")
        assert str(refused.value) == f"file.toml: {where}.{line}"


def test_a_base_of_a_base_is_refused_with_what_to_do(tmp_path):
    (tmp_path / "b.toml").write_text('base = "a.toml"\n')
    (tmp_path / "c.toml").write_text('base = "b.toml"\n')
    with pytest.raises(ConfigError) as refused:
        load(tmp_path / "c.toml", Vehicle)
    line = str(refused.value)
    assert "\n" not in line and "'b.toml'" in line and "name 'a.toml' as base and copy the keys" in line


@pytest.mark.parametrize("path", sorted((ROOT / "config/vehicles").glob("*.toml")), ids=lambda p: p.stem)
def test_every_shipped_vehicle_file_is_accepted(path):
    load(path, Vehicle)


def test_fault_7_every_key_of_a_vehicle_file_is_required(tmp_path):
    """The prior stack read past the end of an array when a key was missing."""
    lines = F550.read_text().splitlines()
    keys = [i for i, line in enumerate(lines) if "=" in line.partition("#")[0]]
    assert len(keys) > 80
    for index in keys:
        path = tmp_path / "vehicle.toml"
        path.write_text("\n".join(lines[:index] + lines[index + 1 :]))
        key = lines[index].split("=")[0].strip()
        with pytest.raises(ConfigError, match=key):
            load(path, Vehicle)


def test_a_missing_file_is_named():
    with pytest.raises(ConfigError, match="nowhere.toml: no such file"):
        load("nowhere.toml", Vehicle)


def test_a_marker_may_belong_to_one_bundle_only(tmp_path):
    marker = '{ family = "aruco_6x6_250", id = 3, size_m = 0.2 }'
    path = tmp_path / "markers.toml"
    path.write_text(f'[[bundle]]\nname = "a"\nmarkers = [{marker}]\n[[bundle]]\nname = "b"\nmarkers = [{marker}]\n')
    with pytest.raises(ConfigError, match="marker aruco_6x6_250 3 stands in 'a' and in 'b'"):
        load_site(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"mass_kg = 1.8\0", "not valid TOML"),
        (b"a = " + b"[" * 100_000, "nested too deeply"),
        (b".".join([b"a"] * 50_000) + b" = 1", "nested too deeply"),
        (b"# " + b"." * 1000 + b"\na = 1\n", "unknown key"),  # dots in a comment are no key
        (b"\xff\xfe", "cannot be read"),
        ("mass_kg = 1.8\n".encode("utf-16"), "its text is UTF-16: save it as UTF-8"),
        (b"a = 1\n" * 400_000, "larger than 1 MB"),
        (b'base = "a\\u0000b"', "NUL byte"),
        (b'mass_kg = "' + b"9" * 100_000 + b'"', "mass_kg = '999"),
        (b"mass_kg = " + b"9" * 5000, "not valid TOML: a number has too many digits"),
        (b"[a]\nb = [0x" + b"f" * 5000 + b"]", "a.b[0]: the number is too large"),
        (b"mass_kg = 1" + b"0" * 400, "mass_kg: the number is too large"),
    ],
    ids=[
        *("nul", "arrays", "dotted", "comment", "binary", "utf-16", "large", "base", "long value"),
        *("digits", "hexadecimal", "no float"),
    ],
)
def test_a_monstrous_file_is_refused_in_one_short_line(tmp_path, content, words):
    path = tmp_path / "vehicle.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        load(path, Vehicle)
    line = str(refused.value)
    assert words in line and "\n" not in line and len(line) < 1000


def test_a_file_with_the_mark_of_a_windows_editor_is_read(tmp_path):
    (tmp_path / "a.toml").write_bytes(b"\xef\xbb\xbfmass_kg = 1.8\n")
    assert read_toml(tmp_path / "a.toml") == {"mass_kg": 1.8}


def test_a_file_without_end_or_beginning_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "vehicle.toml").write_text('base = "pipe"')
    for path in ("/dev/zero", tmp_path / "pipe", tmp_path / "vehicle.toml"):
        with pytest.raises(ConfigError, match="cannot be read: not a regular file, but a device, a pipe or a socket"):
            load(path, Vehicle)
    with pytest.raises(ConfigError, match="cannot be read: is a directory"):
        load(tmp_path, Vehicle)


class _Colour(StrEnum):
    RED = "red"
    GREEN = "green"


class _Painted(Section):
    colour: _Colour
    finish: Literal["matt", "glossy"] | None = None
    width_m: Annotated[float, number(0, 1, "m")] | None = None


@pytest.mark.parametrize(
    ("tables", "line"),
    [
        ({"colour": "gren"}, "colour = 'gren': invalid value, did you mean 'green'? (allowed: red, green)"),
        ({"colour": "violet"}, "colour = 'violet': invalid value (allowed: red, green)"),
        ({"colour": 3}, "colour = 3: invalid value (allowed: red, green)"),
        ({}, "colour: missing key (allowed: red, green)"),
        (
            {"colour": "red", "finish": "mat"},
            "finish = 'mat': invalid value, did you mean 'matt'? (allowed: matt, glossy)",
        ),
        ({"colour": "red", "with_m": 0.5}, "with_m: unknown key, did you mean 'width_m'?"),
        ({"colour": "red", "storm": 1}, "storm: unknown key"),
    ],
)
def test_the_nearest_name_and_the_allowed_values_are_offered(tables, line):
    with pytest.raises(ConfigError) as refused:
        parse(tables, _Painted, "file.toml")
    assert str(refused.value) == f"file.toml: {line}"


def test_a_misspelt_key_of_a_vehicle_file_is_answered_with_the_right_one(tmp_path):
    path = changed(tmp_path, "mass_kg = 1.8", "mass_kgs = 1.8")
    with pytest.raises(ConfigError, match="mass_kgs: unknown key, did you mean 'mass_kg'"):
        load(path, Vehicle)


@pytest.mark.parametrize("q_BC", ["[0.0, 0.0, 0.0, 0.0]", "[0.5, 0.5, 0.5, 0.0]"])
def test_a_quaternion_that_is_no_rotation_is_refused(tmp_path, q_BC):
    (tmp_path / "mine.toml").write_text(f'base = "{ROOT}/config/vehicles/f550.toml"\n[camera]\nq_BC = {q_BC}\n')
    with pytest.raises(ConfigError, match=r"mine.toml: camera.*q_BC.*a rotation needs length 1"):
        load(tmp_path / "mine.toml", Vehicle)


class _Turned(Section):
    q_BC: tuple[float, float, float, float]

    def __post_init__(self) -> None:
        check_unit_quaternion("q_BC", self.q_BC)


def test_the_error_of_a_whole_file_begins_with_the_key():
    with pytest.raises(ConfigError) as refused:
        parse({"q_BC": [1.0, 1.0, 1.0, 1.0]}, _Turned, "file.toml")
    assert str(refused.value) == "file.toml: q_BC = [1.0, 1.0, 1.0, 1.0]: a rotation needs length 1, this has 2"


def test_the_error_of_a_table_names_its_key(tmp_path):
    (tmp_path / "mine.toml").write_text(f'base = "{F550}"\n[camera]\nq_BC = [1.0, 1.0, 1.0, 1.0]\n')
    with pytest.raises(ConfigError) as refused:
        load(tmp_path / "mine.toml", Vehicle)
    expected = "camera.q_BC = [1.0, 1.0, 1.0, 1.0]: a rotation needs length 1, this has 2"
    assert str(refused.value) == f"{tmp_path}/mine.toml: {expected}"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("tilt_max_rad = 0.3\n", "tilt_max_rad: unknown key, it belongs in [controller]"),
        ("[controller]\nmarker_lost_s = 5.0\n", "controller.marker_lost_s: unknown key, it belongs in [safety]"),
        ("device = 1\nspoke = 2\n", "device: unknown key, it belongs in [camera]"),
        ("spoke = 2\n", "spoke: unknown key"),
    ],
)
def test_a_key_in_the_wrong_table_is_answered_with_the_right_one(tmp_path, text, line):
    (tmp_path / "mine.toml").write_text(f'base = "{F550}"\n{text}')
    with pytest.raises(ConfigError) as refused:
        load(tmp_path / "mine.toml", Vehicle)
    assert str(refused.value) == f"{tmp_path}/mine.toml: {line}"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "[controller]\nthrust_min = 0.5\nthrust_max = 0.3\n",
            "controller.thrust_min = 0.5: must be below controller.thrust_max = 0.3",
        ),
        (
            "[thrust]\ncoefficient_m_s2 = 15.0\n",
            "thrust.coefficient_m_s2 = 15: hover takes 0.654 of full command at thrust.reference_voltage_v = 15.2 V, must be"
            " below 0.65 (controller.thrust_max)",
        ),
        (
            "[thrust]\ncoefficient_m_s2 = 66.0\n",
            "thrust.coefficient_m_s2 = 66: hover takes 0.149 of full command at thrust.reference_voltage_v = 15.2 V, must be"
            " above controller.thrust_min = 0.15",
        ),
        (
            "[controller]\nthrust_max = 0.35\n",
            "thrust.coefficient_m_s2 = 28.542: hover takes 0.344 of full command at thrust.reference_voltage_v = 15.2 V,"
            " must be below 0.31 (safety.throttle_share of the way from controller.thrust_min to thrust_max)",
        ),
        (
            "[controller]\nthrust_max = 0.43\n",
            "thrust.coefficient_m_s2 = 28.542: hover takes 0.434 of full command at safety.battery_critical_v = 13 V, must be"
            " below 0.43 (controller.thrust_max)",
        ),
        (
            "[safety]\ntilt_rad = 0.3\n",
            "safety.tilt_rad = 0.3: must be above controller.tilt_max_rad = 0.5, the tilt that the controller may use",
        ),
        (
            "[drag]\nrotor_1_s = 0.27\n",
            "drag.linear_1_s = [0.26057, 0.26057, …] across and rotor drag (drag.rotor_1_s = 0.27, drag.rotor_s_m = 0)"
            " are the same force: one of them must be 0",
        ),
        (
            "[safety]\nbattery_low_v = 12.0\n",
            "safety.battery_low_v = 12: must be above safety.battery_critical_v = 13: the return comes before the landing"
            " on the spot",
        ),
        (
            "[controller]\nrate_hz = 10\n[safety]\nsetpoints_lost_s = 0.3\n",
            "safety.setpoints_lost_s = 0.3: must be at least 0.375: 0.8 of it is the longest pause of the stream, at least 3"
            " periods of controller.rate_hz = 10",
        ),
        (
            "[safety]\nsetpoints_lost_s = 1.5\n",
            "safety.setpoints_lost_s = 1.5: must be at most 1.25: 0.8 of it is the longest pause of the stream, at most 1 s"
            " (COM_OF_LOSS_T of PX4)",
        ),
        (  # the lens of a mode with twice as many pixels
            "[camera]\nfx_px = 1220.0\nfy_px = 1220.0\ncx_px = 640.5\ncy_px = 480.5\n",
            "camera.cx_px = 640.5: must be 191.5 to 447.5 px with camera.width_px = 640: fx_px, fy_px, cx_px, cy_px and"
            " distortion are those of one size of the picture, width_px x height_px (companion calibrate camera)",
        ),
        (
            "[camera]\ncy_px = 130.0\n",
            "camera.cy_px = 130: must be 143.5 to 335.5 px with camera.height_px = 480: fx_px, fy_px, cx_px, cy_px and"
            " distortion are those of one size of the picture, width_px x height_px (companion calibrate camera)",
        ),
    ],
)
def test_limits_of_a_vehicle_file_that_exclude_each_other_are_refused(tmp_path, text, line):
    (tmp_path / "mine.toml").write_text(f'base = "{F550}"\n{text}')
    with pytest.raises(ConfigError) as refused:
        load(tmp_path / "mine.toml", Vehicle)
    assert str(refused.value) == f"{tmp_path}/mine.toml: {line}"
