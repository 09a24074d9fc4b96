"""`companion plan`: its example, its files, and what it refuses."""

import json
import re
import shutil

import pytest
from click.testing import CliRunner
from planning_world import EXAMPLE, REPOSITORY

from companion.cli import main
from companion.core.config import ConfigError, load
from companion.core.config_files import ConfigKind, find_config
from companion.core.site import load_site
from companion.core.vehicle import Vehicle
from companion.mission.mission_node import MissionNode
from companion.mission.plan import load_plan
from companion.planning.camera import load_camera
from companion.planning.qgc import read_plan
from companion.planning.sections import Battery
from companion.preflight.files import mission_file
from companion.view.inspection_plan import Loaded, lines, mav_type, summary

TEXT = EXAMPLE.read_text(encoding="utf-8")
F550 = REPOSITORY / "config/vehicles/f550.toml"
WITH_CAMERA = REPOSITORY / "config/vehicles/f550_inspection.toml"


def mission(folder, old="", new="", count=1):
    for name in ("markers", "cameras", "batteries"):
        if not (folder / name).exists():
            shutil.copytree(REPOSITORY / "config" / name, folder / name)
    (folder / "missions").mkdir(exist_ok=True)
    path = folder / "missions" / "mission.toml"
    assert old in TEXT
    path.write_text(TEXT.replace(old, new, count) if old else TEXT, encoding="utf-8")
    return path


def run(*words):
    return CliRunner().invoke(main, ["plan", *map(str, words)], catch_exceptions=False)


@pytest.fixture(scope="module")
def example():
    return Loaded(EXAMPLE, WITH_CAMERA)


def test_the_example_meets_what_it_asks_for(example):
    surfaces = {f.name: f for f in example.plan.figures}
    assert set(surfaces) == {"first pier", "deck", "second pier"}
    for figures in surfaces.values():
        assert figures.coverage == pytest.approx(1.0) and figures.gsd_p95_mm_px <= 1.0
        assert figures.overlap_along >= 0.8
        assert figures.overlap_between is None or figures.overlap_between >= 0.7
    assert surfaces["deck"].overlap_between >= 0.7
    assert 0 < example.plan.flights[0].energy_share <= 1.0


def test_the_page_shows_the_output_of_the_command(example):
    page = (REPOSITORY / "docs/inspection_plan.md").read_text(encoding="utf-8")
    shown = re.search(r"<!-- output: begin -->\n\n```\n(.*?)\n```", page, flags=re.S)
    assert shown is not None and shown[1].splitlines() == lines(example)


def test_all_files_of_a_plan_are_written(tmp_path):
    files = {kind: tmp_path / f"plan.{kind}" for kind in ("json", "svg", "png", "qgc")}
    result = run("two_piers_inspection", *(word for kind, path in files.items() for word in (f"--{kind}", path)))
    assert result.exit_code == 0 and "photographs  40" in result.stdout
    plan = json.loads(files["json"].read_text())
    assert plan["photographs"] == sum(s["photograph"] is not None for s in plan["stations"]) == 40
    assert plan["surfaces"][1]["name"] == "deck" and len(plan["stations"][0]["photograph"]["footprint_m"]) == 4
    assert files["svg"].read_text().lstrip().startswith("<?xml") and files["png"].read_bytes()[:4] == b"\x89PNG"
    read = read_plan(files["qgc"], load_plan(EXAMPLE).inspection.origin)
    assert [stop.photograph for stop in read] == [False] + [True] * 40 + [False] * 2  # the ways out and home
    assert read[0].p_W == read[-2].p_W == pytest.approx((6.0, 0.0, 4.0), abs=1e-6)
    assert read[1].p_W == pytest.approx(plan["stations"][0]["p_m"], abs=1e-6)
    assert str(files["qgc"]) in result.stdout.splitlines()[-1]


def test_each_battery_has_a_file_of_its_own(tmp_path):
    path = mission(tmp_path)
    battery = tmp_path / "batteries/f550_4s_5ah.toml"
    battery.write_text(battery.read_text().replace("capacity_ah = 5.0", "capacity_ah = 1.6"))
    result = run(path, "--vehicle", WITH_CAMERA, "--qgc", tmp_path / "piers.plan")
    files = [tmp_path / "piers-1.plan", tmp_path / "piers-2.plan"]
    assert result.exit_code == 0 and sorted(tmp_path.glob("*.plan")) == files
    assert [line.split()[-1] for line in result.stdout.splitlines()[-2:]] == [str(file) for file in files]
    read = [read_plan(file, load_plan(EXAMPLE).inspection.origin) for file in files]
    assert sum(stop.photograph for stops in read for stop in stops) == 40
    assert all(any(stop.photograph for stop in stops) for stops in read)


def test_a_stand_off_at_the_limit_of_the_gsd_is_said(tmp_path):
    result = run(mission(tmp_path, "standoff_m = 5.0", "standoff_m = 5.8"))
    said = [line for line in result.stdout.splitlines() if "has no reserve" in line]
    assert result.exit_code == 0 and len(said) == 1
    assert said[0].startswith("'first pier' has no reserve: 0.15 m farther, ") and " 0.0 % of it is within" in said[0]


def test_json_on_standard_output_is_json_alone():
    result = run("two_piers_inspection", "--json", "-")
    assert json.loads(result.stdout)["batteries"] == 1 and "photographs  40" in result.stderr


def test_the_summary_has_the_figures_of_the_plan(example):
    plan = summary(example)
    assert plan["energy_wh"] == pytest.approx(example.plan.power_w * example.plan.duration_s / 3600)
    assert plan["duration_s"] == sum(f["duration_s"] for f in plan["flights"])
    assert json.loads(json.dumps(plan)) is not None


def test_an_inspection_that_cannot_be_flown_is_refused_wherever_it_would_be(tmp_path):
    """By the mission process, preflight and the simulator, with one line, as by `companion plan`."""
    text = EXAMPLE.read_text(encoding="utf-8").replace("../", f"{REPOSITORY}/config/")
    file = tmp_path / "m.toml"
    file.write_text(text.replace("standoff_m = 5.0", "standoff_m = 0.5", 1), encoding="utf-8")
    plan, vehicle = load_plan(file), load(F550, Vehicle)
    line = "inspection.item[0] 'first pier': standoff_m = 0.5: the smallest is 1 m"
    with pytest.raises(ConfigError) as error:
        MissionNode(vehicle, plan, load_site(plan.marker_file))
    assert str(error.value).endswith(line)
    check, _ = mission_file(file, vehicle)
    assert check.status == "failed" and check.detail == f"{file}: {line}"


BROKEN = {
    "behind the fence": ("fence_max_m = [14.5,", "fence_max_m = [6.5,", r"inspection.item\[0\] 'first pier': the station at .* is outside the fence"),
    "too high": ("\nheight_m = 9.0", "\nheight_m = 4.2", r"'first pier': the station at .* is higher than limits.height_m = 4.2"),
    "too near to the fence": ("fence_max_m = [14.5,", "fence_max_m = [6.9,", r"item\[0\] 'first pier': the station at .* is 0.05 m within the fence; 0.15 m are needed .*: 0.10 m are missing"),
    "too near to the height": ("\nheight_m = 9.0", "\nheight_m = 5.0", r"'first pier': the station at .* is 0.11 m within limits.height_m = 5; 0.15 m are needed .*: 0.04 m are missing"),
    "too near to the distance": ("distance_m = 20.0", "distance_m = 14.1", r"'deck': .* is 0.10 m within limits.distance_m = 14.1; 0.15 m are needed"),
    "lens": ("gsd_mm_px = 1.0", "gsd_mm_px = 0.1", r"item\[0\] 'first pier': gsd_mm_px = 0.1: Sony RX1, 35 mm gives 0.171 mm/px at the smallest stand-off of 1 m"),
    "overlap": ("overlap_along = 0.83", "overlap_along = 0.97", r"inspection.item\[0\].overlap_along = 0.97: .*allowed: 0 to 0.95"),
    "kind": ('kind = "underside"', 'kind = "upside"', r"inspection.item\[1\].kind = 'upside': .*\(allowed: "),
    "key": ("along = \"y\"", "alongside = \"y\"", r"inspection.item\[0\].alongside: unknown key, did you mean 'along'"),
    "axis": ('along = "y"', 'along = "z"', r"inspection.item\[0\].along = 'z': .*x, y"),
    "frame": ('frame = "pier"', 'frame = "peer"', r"frame = 'peer': no such bundle \(has: world, pier, deck, "),
    "place of no bundle": ('name = "second_pier"', 'name = "third_pier"', r"inspection.bundle 'third_pier': not in the marker file"),
    "place named twice": ('[[inspection.bundle]]\nname = "deck"', '[[inspection.bundle]]\nname = "pier"\np_m = [2.0, 0.0, 4.0]\nrpy_rad = [0.0, 0.0, 0.0]\n[[inspection.bundle]]\nname = "deck"', r"mission.toml: inspection.bundle: the name 'pier' is used twice"),
    "no place": ('[[inspection.bundle]]\nname = "second_pier"\np_m = [12.0, 12.0, 4.0]\nrpy_rad = [1.5707963, 0.0, -1.5707963]', "", r"'second pier': frame = 'second_pier': where this bundle stands is not known"),
    "no camera": ("sony_rx1_gimbal.toml", "sony.toml", r"sony.toml: no such file"),
    "a battery as camera": ("cameras/sony_rx1_gimbal", "batteries/f550_4s_5ah", r"f550_4s_5ah.toml: "),
    "no items": ("\n[inspection]\n", "\n[inspection_of]\n", r"inspection_of: unknown key"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_mission_that_cannot_be_planned_is_refused_in_one_line(tmp_path, case):
    old, new, message = BROKEN[case]
    result = run(mission(tmp_path, old, new))
    assert result.exit_code == 2 and result.stdout == ""
    assert re.search(message, result.stderr) and result.stderr.count("\n") == 1
    assert ".toml" in result.stderr


STANDOFF = """
[standoff]
offset_M = [0.0, 0.0, 6.0]
yaw_rad = 0.0
speed_m_s = 1.0
acceleration_m_s2 = 0.5
yaw_rate_rad_s = 0.4
[hold]
duration_s = 600.0
[photographs]
at_s = []
max_error_m = 0.2

[limits]"""


def test_stand_off_and_hold_are_part_of_the_battery(tmp_path, example):
    held = Loaded(mission(tmp_path, "\n[limits]", STANDOFF), WITH_CAMERA).plan
    assert len(example.plan.flights) == 1 < len(held.flights)
    assert all(flight.duration_s > 600.0 for flight in held.flights), "each battery begins with the search and the hold"


def test_the_way_from_the_stand_off_point_is_checked_where_its_bundle_stands(tmp_path):
    result = run(
        mission(tmp_path, "\n[limits]", STANDOFF.replace("[0.0, 0.0, 6.0]", "[0.0, 0.0, 1.05]")),
        "--vehicle",
        WITH_CAMERA,
    )
    assert result.exit_code == 2
    passed = r"from take-off to its stand-off point at \[10.95, -?0.00, 4.00\] passes 'first pier' at 1.05 m"
    assert re.search(passed, result.stderr) and result.stderr.count("\n") == 1


def test_a_plan_beyond_one_battery_is_refused_unless_it_may_be_resumed(tmp_path):
    path = mission(tmp_path, "resumable = true", "resumable = false")
    battery = tmp_path / "batteries/f550_4s_5ah.toml"
    battery.write_text(battery.read_text().replace("capacity_ah = 5.0", "capacity_ah = 0.9"))
    result = run(path)
    assert result.exit_code == 2 and re.search(r"inspection: takes 2 batteries .*resumable = true", result.stderr)
    result = run(mission(tmp_path))
    assert result.exit_code == 0 and "flight 2" in result.stdout


def test_a_camera_that_is_too_heavy_is_refused(tmp_path):
    path = mission(tmp_path, "camera_in_vehicle_mass = true", "camera_in_vehicle_mass = false")
    camera = tmp_path / "cameras/sony_rx1_gimbal.toml"
    camera.write_text(camera.read_text().replace("mass_kg = 0.75", "mass_kg = 3.0"))
    result = run(path)
    assert result.exit_code == 2 and "a hover takes" in result.stderr and "mission.toml" in result.stderr


def test_a_mission_without_an_inspection_has_nothing_to_plan():
    result = run("bridge_hover")
    assert result.exit_code == 2 and "inspection: missing table" in result.stderr


def test_a_plan_for_qgroundcontrol_needs_an_origin(tmp_path):
    start, end = TEXT.index("[inspection.origin]"), TEXT.index("[[inspection.bundle]]")
    path = mission(tmp_path, TEXT[start:end], "")
    assert run(path).exit_code == 0
    result = run(path, "--qgc", tmp_path / "out.plan")
    assert result.exit_code == 2 and "inspection.origin: missing table" in result.stderr


def test_a_plan_that_is_turned_on_the_map_is_refused(tmp_path):
    """The flight takes its axes as east and north: a waypoint 8 m north on the map would be flown 8 m west."""
    place = "altitude_m = 60.0\n"
    assert run(mission(tmp_path, place, place + "heading_deg = 0.0\n")).exit_code == 0
    result = run(mission(tmp_path, place, place + "heading_deg = 90.0\n"))
    assert result.exit_code == 2 and result.stderr.count("\n") == 1
    assert re.search(r"mission.toml: inspection.origin.heading_deg = 90: is flown with 0 alone", result.stderr)


def test_two_results_in_one_file_are_refused(tmp_path):
    result = run("two_piers_inspection", "--json", tmp_path / "x", "--qgc", tmp_path / "x")
    assert result.exit_code == 2 and "name two files" in result.stderr


@pytest.mark.parametrize("path", sorted((REPOSITORY / "config/cameras").glob("*.toml")), ids=lambda path: path.stem)
def test_every_camera_file_loads(path):
    assert load_camera(str(path)).focal_px[0] > 1000


@pytest.mark.parametrize("path", sorted((REPOSITORY / "config/batteries").glob("*.toml")), ids=lambda path: path.stem)
def test_every_battery_file_loads(path):
    assert load(path, Battery).power_w(1.8) > 0


@pytest.mark.parametrize(("vehicle", "kind"), [("f550", 13), ("f550_inspection", 13), ("f450", 2), ("x8", 14)])
def test_the_vehicle_type_is_that_of_the_airframe(vehicle, kind):
    assert mav_type(find_config(vehicle, ConfigKind.VEHICLE)) == kind


def test_a_vehicle_without_an_airframe_is_any_multirotor(tmp_path):
    (tmp_path / "own.toml").write_text("mass_kg = 2.0\n", encoding="utf-8")
    assert mav_type(tmp_path / "own.toml") == 2
