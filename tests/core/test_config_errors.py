"""A wrong configuration file stops the start with one line that names file, key, range and unit."""

from pathlib import Path
from typing import Annotated

import pytest

from companion.core.config import ConfigError, Section, load, number, parse
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
        ({"kind": "flat", "size_m": 1.0}, "kind = 'flat': invalid value 'flat' (allowed: round, long)"),
        ({"size_m": 1.0}, "kind: missing key (allowed: round, long)"),
    ],
)
def test_a_bad_key_of_a_table_of_several_kinds_is_told_with_what_that_kind_allows(shape, line):
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
