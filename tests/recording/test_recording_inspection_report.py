"""The report of an inspection is one folder: photographs in their places, tables, places on the earth."""

import csv
import json
import math
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

import cv2
import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from PIL import Image

from companion.cli import main
from companion.core.config import ConfigError
from companion.core.exif import DATE_ORIGINAL, EXIF_IFD, OFFSET_ORIGINAL
from companion.core.frames import quat_from_matrix, rotation_matrix
from companion.core.geodesy import between
from companion.core.messages import Capture, CaptureTruth
from companion.core.refined_poses import read_poses
from companion.payload.tags import tags_of
from companion.recording.inspection import plan_of_log, shots_of, utc_offset_of
from companion.recording.inspection_figures import surface_results
from companion.recording.inspection_files import find_files
from companion.recording.inspection_mosaic import Pictures, Placed, level_sizes, warped, write_pyramid
from companion.recording.inspection_report import read_inspection, write_inspection_report
from companion.recording.inspection_tables import listed
from companion.recording.log import read_log
from companion.recording.report import write_report
from companion.recording.writer import LogWriter
from companion.runtime.flight_record import flight_metadata
from companion.view.photographs import camera_of
from tests.html_page import Page
from tests.planning.planning_world import PIER, planned_surface
from tests.recording.inspection_world import MISSION, ROOT, VEHICLE, Made, colour_at, make_log, plan_of, textures

FIRST, SECOND = frozenset(range(1, 21)), frozenset(range(18, 37))


def written(folder: Path, made: Made | None = None, **options):
    inspection = read_inspection([read_log(make_log(folder / "flight.mcap", made or Made()))])
    return write_inspection_report(inspection, folder, **options)


def run(*words) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["report", *map(str, words)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return written(
        tmp_path_factory.mktemp("report"), Made(skipped=frozenset({3, 4, 5, 6, 7, 8}), refused=frozenset({30}))
    )


@pytest.fixture(scope="module")
def complete_log(tmp_path_factory):
    return read_log(make_log(tmp_path_factory.mktemp("complete") / "flight.mcap"))


def data_of(folder: Path) -> dict:
    return json.loads((folder / "inspection.js").read_text().removeprefix("window.INSPECTION = ").removesuffix(";\n"))


def mosaic_of(folder: Path, number: int) -> np.ndarray:
    """The finest level of a surface's mosaic; cells without a tile are black."""
    surface = data_of(folder)["surfaces"][number]
    width, height = surface["levels"][-1]
    whole = np.zeros((height, width, 3), np.uint8)
    for column, row in surface["tiles"][-1]:
        tile = cv2.imread(str(folder / surface["folder"] / str(len(surface["levels"]) - 1) / f"{column}_{row}.jpg"))
        whole[row * 512 : row * 512 + tile.shape[0], column * 512 : column * 512 + tile.shape[1]] = tile
    return whole


def true_mosaic(folder: Path, number: int) -> np.ndarray:
    _, plan = plan_of()
    surface, shown = plan.items[number].surface, data_of(folder)["surfaces"][number]
    width, height = shown["levels"][-1]
    u = -surface.size_m[0] / 2 + (np.arange(width) + 0.5) * shown["pixel_m"]
    v = surface.size_m[1] / 2 - (np.arange(height) + 0.5) * shown["pixel_m"]
    return colour_at(textures(plan)[number], surface.size_m, np.dstack(np.meshgrid(u, v)))


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a.ravel().astype(float), b.ravel().astype(float))[0, 1])


# --- the mosaic -------------------------------------------------------------------------------------------------------


def test_the_mosaic_is_the_texture_of_the_surface(report):
    folder = report.page.parent
    for number in (1, 2):  # without gaps
        found, true = mosaic_of(folder, number), true_mosaic(folder, number)
        assert correlation(found, true) > 0.97
        for shift in ((0, 12), (12, 0)):  # 20 cm away
            assert correlation(found, np.roll(true, shift, axis=(0, 1))) < 0.85


def test_wrong_poses_make_a_wrong_mosaic(tmp_path):
    folder = written(tmp_path, Made(error=(0.3, 0.03))).page.parent
    assert correlation(mosaic_of(folder, 2), true_mosaic(folder, 2)) < 0.9


def test_where_nothing_was_photographed_the_mosaic_is_empty(report):
    mosaic = mosaic_of(report.page.parent, 0)
    surface = data_of(report.page.parent)["surfaces"][0]
    gap = surface["gaps"][0]
    row = round((4.0 - gap["uv"][1]) / surface["pixel_m"])
    np.testing.assert_allclose(mosaic[row].mean(axis=0), (242, 239, 236), atol=2)


@pytest.mark.verify
def test_each_level_of_the_pyramid_shows_the_same(tmp_path):
    folder = written(tmp_path, Made(width_px=600)).page.parent
    for number, surface in enumerate(data_of(folder)["surfaces"]):
        assert len(surface["levels"]) >= 2
        coarsest = cv2.imread(str(folder / "tiles" / str(number) / "0" / "0_0.jpg"))
        assert list(coarsest.shape[1::-1]) == surface["levels"][0] and max(coarsest.shape) <= 512
        small = cv2.resize(mosaic_of(folder, number), coarsest.shape[1::-1], interpolation=cv2.INTER_AREA)
        assert correlation(small, coarsest) > 0.98


def test_levels_halve_until_one_tile():
    _, plan = plan_of()
    sizes = level_sizes(plan.items[1].surface, 0.001)
    assert sizes[-1] == (12000, 4000) and max(sizes[0]) <= 512 < max(sizes[1])


def test_a_round_pier_is_put_together_from_all_sides(tmp_path):
    world, planned, photographs = planned_surface(PIER)
    surface, placed = planned.surface, []
    for number, shot in enumerate(photographs):
        # Brightness by the angle around the pier, as each pixel sees it.
        x, y = ((np.arange(n) + 0.5) / n * 2 - 1 for n in (60, 40))
        xs, ys = np.meshgrid(x, y)
        fx, fy = world.camera.focal_px
        rays = np.dstack([xs * 3000 / fx, ys * 2000 / fy, np.ones_like(xs)]) @ shot.pose.R_WC.T
        offset = shot.pose.p_W - surface.base
        a, b = (rays[..., :2] ** 2).sum(-1), rays[..., :2] @ offset[:2]
        along = (-b - np.sqrt(np.maximum(b * b - a * (offset[:2] @ offset[:2] - surface.radius_m**2), 0))) / a
        points = offset + along[..., None] * rays
        picture = 128 + 100 * np.cos(3 * np.arctan2(points[..., 1], points[..., 0]))
        cv2.imwrite(str(tmp_path / f"{number}.png"), np.dstack([picture] * 3).astype(np.uint8))
        placed.append(Placed(tmp_path / f"{number}.png", shot.pose, True, shot.uv[0]))
    pictures = Pictures(world.camera, 0.02, 0.001)
    pyramid = write_pyramid(tmp_path / "tiles", surface, world.camera, placed, 0.02, pictures)
    assert pyramid.tiles[-1]
    u = np.linspace(-0.49, 0.49, 200) * surface.size_m[0]
    tile, filled = warped(surface, world.camera, placed, u, np.array([1.0, 0.0]), pictures)
    assert filled.all()
    expected = 128 + 100 * np.cos(3 * (surface.angle_mid_rad + u / surface.radius_m))
    assert np.abs(tile[0, :, 0] - expected).mean() < 12


# --- places on the earth ------------------------------------------------------------------------------------------------


def test_a_photograph_is_at_its_place_in_geojson(report, tmp_path):
    collection = json.loads((report.page.parent / "inspection.geojson").read_text())
    assert collection["type"] == "FeatureCollection"
    cameras = {f["properties"]["id"]: f for f in collection["features"] if f["properties"]["kind"] == "camera"}
    log = read_log(report.page.parent.parent / "flight.mcap")
    origin = (34.0007, -81.0348, 60.0)
    for shot in shots_of(log, plan_of_log(log)):
        if not shot.taken:
            continue
        longitude, latitude, altitude = cameras[shot.capture.id]["geometry"]["coordinates"]
        np.testing.assert_allclose(between(origin, (latitude, longitude, altitude)), shot.pose.p_W, atol=2e-3)
        assert (report.page.parent / cameras[shot.capture.id]["properties"]["file"]).is_file()
    # The first pier's face looks west: the camera is 5 m west of it and looks east.
    assert cameras[1]["properties"]["heading_deg"] == pytest.approx(90.0, abs=3)
    assert between(origin, tuple(np.array(cameras[1]["geometry"]["coordinates"])[[1, 0, 2]]))[0] == pytest.approx(
        7.0, abs=0.2
    )


def test_footprints_are_polygons_of_level_and_lines_of_steep_surfaces(report):
    features = json.loads((report.page.parent / "inspection.geojson").read_text())["features"]
    footprints = [f for f in features if f["properties"]["kind"] == "footprint"]
    assert {f["geometry"]["type"] for f in footprints if f["properties"]["item"] == "deck"} == {"Polygon"}
    assert {f["geometry"]["type"] for f in footprints if f["properties"]["item"] != "deck"} == {"LineString"}
    for feature in footprints:
        if feature["geometry"]["type"] == "Polygon":
            ((*ring, last),) = feature["geometry"]["coordinates"]
            assert ring[0] == last and len(ring) == 4
            x, y = np.array(ring)[:, :2].T
            assert x @ np.roll(y, -1) - y @ np.roll(x, -1) > 0, "anticlockwise"


def test_gaps_and_missing_photographs_are_on_the_map(report):
    kinds = [
        f["properties"]["kind"] for f in json.loads((report.page.parent / "inspection.geojson").read_text())["features"]
    ]
    assert kinds.count("missing") == 7 and kinds.count("gap") == 1 and kinds.count("camera") == 29


def mission_without_origin(folder: Path) -> Path:
    text = MISSION.read_text().replace('"../../', f'"{ROOT}/')
    start, end = text.index("[inspection.origin]"), text.index("[[inspection.bundle]]")
    (folder / "mission.toml").write_text(text[:start] + text[end:])
    return folder / "mission.toml"


def test_a_photograph_is_where_the_aircraft_was_also_after_another_take_off_point_than_planned(tmp_path):
    """The receiver says where it took off; items at bundles count from the take-off point of the plan."""
    gnss, away = (34.0007, -81.0348, 60.0), np.array((6.0, -9.0, 0.5))
    made = Made(skipped=frozenset(range(28, 37)), gnss=gnss, error=(0.0, 0.0))
    log = read_log(make_log(tmp_path / "flight.mcap", made, mission=mission_without_origin(tmp_path)))
    takeoff_W = np.array(log["state"][0].p_W) - away
    log["state"][0].p_W = tuple(takeoff_W.tolist())
    report = write_inspection_report(read_inspection([log]), tmp_path)
    features = json.loads((report.page.parent / "inspection.geojson").read_text())["features"]
    cameras = {f["properties"]["id"]: f for f in features if f["properties"]["kind"] == "camera"}
    captures = {capture.id: capture for capture in log.of(Capture)}
    assert cameras.keys() == captures.keys() and len(captures) == 27
    for number, capture in captures.items():
        longitude, latitude, altitude = cameras[number]["geometry"]["coordinates"]
        np.testing.assert_allclose(between(gnss, (latitude, longitude, altitude)), capture.p_WC - takeoff_W, atol=2e-3)
    # the second pier has no photograph: its places are off as those of the first are
    missing = [f for f in features if f["properties"]["kind"] == "missing"]
    plan = plan_of_log(log).find("second pier").planned
    assert len(missing) == 9
    for feature in missing:
        longitude, latitude, altitude = feature["geometry"]["coordinates"]
        place = (feature["properties"]["row"], feature["properties"]["column"])
        np.testing.assert_allclose(
            between(gnss, (latitude, longitude, altitude)), plan[place].pose.p_W + away, atol=2e-3
        )
    assert report.notes == ["geographic places count from the receiver's position before the take-off"]


def test_a_log_that_begins_in_the_air_gives_no_places_that_count_from_the_take_off(tmp_path):
    log = read_log(
        make_log(tmp_path / "flight.mcap", Made(only=frozenset({1})), mission=mission_without_origin(tmp_path))
    )
    log["fcu_status"] = [status for status in log["fcu_status"] if status.armed]
    report = write_inspection_report(read_inspection([log]), tmp_path)
    assert not (report.page.parent / "inspection.geojson").exists()
    assert report.notes[0].startswith(
        "flight.mcap: does not show the aircraft disarmed on the ground: its take-off point"
    )
    assert report.notes[0] in Page(report.page.read_text()).text


def test_without_an_origin_there_is_no_geojson_and_a_note(tmp_path):
    mission_without_origin(tmp_path)
    for gnss, there in ((None, False), ((34.0, -81.0, 60.0), True)):
        folder = tmp_path / str(there)
        made = Made(only=frozenset({1}), gnss=gnss)
        log = make_log(folder / "flight.mcap", made, mission=tmp_path / "mission.toml", folder=folder / "camera")
        found = write_inspection_report(read_inspection([read_log(log)]), folder)
        assert (found.page.parent / "inspection.geojson").exists() is there
        assert len(found.notes) == 1 and ("no geographic places" in found.notes[0]) is not there


# --- tables and page ------------------------------------------------------------------------------------------------------


def test_the_tables_have_a_line_for_each_photograph_surface_and_gap(report):
    folder = report.page.parent
    tables = {
        name: list(csv.DictReader((folder / f"{name}.csv").open())) for name in ("photographs", "surfaces", "gaps")
    }
    assert [len(rows) for rows in tables.values()] == [36, 3, 1]
    states = [row["state"] for row in tables["photographs"]]
    assert (states.count("taken"), states.count("missing")) == (29, 7)
    refused = next(row for row in tables["photographs"] if row["id"] == "30")
    assert refused["reason"] == "the camera is busy" and refused["file"] == "" and refused["x_m"] == ""
    assert float(tables["gaps"][0]["area_m2"]) > 2 and "row 0 column 4" in tables["gaps"][0]["missing_photographs"]
    assert float(tables["surfaces"][1]["coverage"]) == pytest.approx(1.0)


def test_the_gsd_of_a_photograph_is_that_of_where_it_was_taken(complete_log, report):
    """As the figures of its surface; the plan's, which each capture carries, is the same for all of them."""
    inspection = read_inspection([complete_log])
    plan, lens = inspection.plan, inspection.plan.planning.camera
    far = [s._replace(pose=s.pose._replace(p_W=s.pose.p_W - 2.0 * s.pose.R_WC[:, 2])) for s in inspection.shots]
    for shots in (inspection.shots, far):
        for entry in listed(plan, shots, {}):
            surface, pose = entry.item.surface, entry.shot.pose
            away_m = surface.n @ (pose.p_W - surface.centre)
            assert entry.gsd_m == pytest.approx(lens.gsd_m(away_m), rel=5e-3)
    worst_mm = {r.item.name: r.gsd_p95_mm_px for r in surface_results(plan, far)}
    assert all(entry.gsd_m * 1e3 > 0.95 * worst_mm[entry.item.name] > 1.1 for entry in listed(plan, far, {}))
    # in the table, on the map and in the page
    folder = report.page.parent
    rows = {row["id"]: row for row in csv.DictReader((folder / "photographs.csv").open()) if row["state"] == "taken"}
    shown = [float(row["gsd_mm_px"]) for row in rows.values()]
    assert max(shown) - min(shown) > 0.01
    features = json.loads((folder / "inspection.geojson").read_text())["features"]
    cameras = [f["properties"] for f in features if f["properties"]["kind"] == "camera"]
    assert [c["gsd_mm_px"] for c in cameras] == shown
    facts = [dict(photograph["facts"]) for photograph in data_of(folder)["photographs"]]
    said = [float(f["GSD"].removesuffix(" mm/px")) for f in facts if f.get("state") == "taken"]
    assert said == pytest.approx(shown, abs=0.0051)
    nowhere = inspection.shots[0]._replace(pose=None)
    assert math.isnan(listed(plan, [nowhere], {})[0].gsd_m)


def test_times_are_those_of_the_tags_where_the_clock_was_set_after_the_start(tmp_path):
    """The log began at 09:00 by a clock that was 90 s slow until the receiver set it."""
    slow_s = datetime.fromisoformat("2026-11-23T09:00:00+00:00").timestamp() - 1000.0
    for name, clocks_s, start, taken in (
        ("set", (slow_s, slow_s + 90.0, math.nan), "09:01:30", "09:01:54"),
        ("unknown", (), "09:00:00", "09:00:24"),
    ):
        log = read_log(make_log(tmp_path / name / "flight.mcap", Made(only=frozenset({1}), clocks_s=clocks_s)))
        log.metadata |= {"start_time": "2026-11-23T09:00:00+00:00", "start_s": "1000.0"}
        page = write_inspection_report(read_inspection([log]), tmp_path / name).page
        row = next(csv.DictReader((page.parent / "photographs.csv").open()))
        assert row["time_utc"] == f"2026-11-23T{taken}.000Z"
        assert dict(data_of(page.parent)["photographs"][0]["facts"])["time"] == f"2026-11-23 {taken} UTC"
        assert f"2026-11-23T{taken}.000Z" in (page.parent / "inspection.geojson").read_text()
        assert f"2026-11-23 {start} UTC" in Page(page.read_text()).text
        if clocks_s:
            tags = tags_of(log.of(Capture)[0], camera_of(log), utc_offset_of(log))
            assert tags.utc == f"2026-11-23T{taken}.000+00:00"


def test_the_page_needs_nothing_outside_its_folder(report):
    html = report.page.read_text()
    page = Page(html)
    for link in page.links:
        assert not link.startswith(("http", "/", "..")), link
        assert link.startswith(("#", "data:")) or (report.page.parent / link).is_file(), link
    for words in ("Coverage", "first pier", "no sharp photograph", "29", "of 36", "1 request refused"):
        assert words in page.text, words
    for photograph in data_of(report.page.parent)["photographs"]:
        for key in ("file", "preview"):
            assert not photograph[key] or (report.page.parent / photograph[key]).is_file()


def test_names_from_files_cannot_become_markup(tmp_path):
    text = MISSION.read_text().replace('"../../', f'"{ROOT}/')
    text = text.replace('kind = "underside"\nname = "deck"', 'kind = "underside"\nname = "<b>deck</b>&"')
    (tmp_path / "mission.toml").write_text(text)
    log = make_log(tmp_path / "flight.mcap", Made(only=frozenset({12})), mission=tmp_path / "mission.toml")
    page = write_inspection_report(read_inspection([read_log(log)]), tmp_path).page
    assert "<b>deck" not in page.read_text() and "<b>deck</b>&" in Page(page.read_text()).text


# --- photographs on the disk --------------------------------------------------------------------------------------------


def test_photographs_that_are_not_on_the_disk_are_listed_and_nothing_else_is_lost(tmp_path):
    log = make_log(tmp_path / "flight.mcap")
    (tmp_path / "flight_camera/IMG_0002.JPG").unlink()
    (tmp_path / "flight_camera/IMG_0003.JPG").write_bytes(b"not a picture")
    status, output = run(log)
    assert status == 0
    lines = [line for line in output.splitlines() if "IMG_000" in line]
    assert lines[0] == "companion: photograph 2 (first pier row 0 column 1): flight_camera/IMG_0002.JPG: not found"
    assert lines[1].endswith("IMG_0003.JPG: cannot be opened as a picture")
    html = (tmp_path / "inspection/index.html").read_text()
    assert "2 photographs that were taken are not shown" in html and "100.0 %" in Page(html).text
    assert len(list((tmp_path / "inspection/photographs").iterdir())) == 34  # nothing that is no picture


@pytest.mark.verify
def test_many_missing_photographs_do_not_fill_the_terminal(tmp_path):
    log = make_log(tmp_path / "flight.mcap")
    for file in (tmp_path / "flight_camera").iterdir():
        file.unlink()
    status, output = run(log)
    assert status == 0 and sum("not found" in line for line in output.splitlines()) == 10
    assert "26 photographs more are not shown" in output
    html = (tmp_path / "inspection/index.html").read_text()
    assert "36 photographs that were taken are not shown" in html and html.count(": not found") == 36


def test_photographs_without_a_name_are_one_line(complete_log):
    shots = read_inspection([complete_log]).shots
    nameless = [s._replace(capture=replace(s.capture, file="")) for s in shots[:9]]
    found = find_files([*nameless, *shots[9:]], [complete_log.path])
    (line,) = found.missing
    assert line.startswith("9 of the photographs 1 to 9: the camera did not say where it stored them")
    assert found.not_found == 9 and len(found.paths) == 27


def test_a_tagged_photograph_is_known_by_its_pose_whatever_its_name(complete_log, tmp_path):
    shots = read_inspection([complete_log]).shots[:3]
    files = find_files(shots, [complete_log.path]).paths
    card = tmp_path / "card" / "tagged"
    card.mkdir(parents=True)
    for number, shot in enumerate(shots):
        (card / f"{number}.jpg").write_bytes(files[shot.key].read_bytes())
        tags = {"id": shot.capture.id, "attempt": 1, "p_WC": shot.capture.p_WC, "item": "of a newer version"}
        (card / f"{number}.json").write_bytes(msgspec.json.encode(tags))
    (card / "2.json").write_bytes(b'{"id": 3, "attempt": 1, "p_WC": [0.0, 0.0, 0.0]}')  # of another flight
    (card / "3.json").write_text("no tags")
    nameless = [s._replace(capture=replace(s.capture, file="")) for s in shots]
    found = find_files(nameless, [tmp_path / "flight.mcap"], [tmp_path / "card"])
    assert found.paths == {shots[0].key: card / "0.jpg", shots[1].key: card / "1.jpg"} and found.not_found == 1
    assert find_files(nameless, [card / "flight.mcap"]).paths == found.paths


def test_one_file_is_not_the_photograph_of_two_flights(complete_log, tmp_path):
    shot = read_inspection([complete_log]).shots[0]
    (tmp_path / "IMG_0001.JPG").write_bytes(b"picture")
    both = [shot, shot._replace(flight=1)]
    found = find_files(both, [tmp_path / "a.mcap", tmp_path / "b.mcap"])
    assert found.paths == {} and len(found.missing) == 2 and "would be another photograph, too" in found.missing[0]


def test_photographs_are_found_by_name_below_another_folder(tmp_path):
    log = make_log(tmp_path / "flight.mcap", Made(only=frozenset({1, 2, 3})))
    card = tmp_path / "card/DCIM/100"
    card.mkdir(parents=True)
    for number in (1, 2, 3):
        (tmp_path / f"flight_camera/IMG_000{number}.JPG").rename(card / f"img_000{number}.jpg")
    (tmp_path / "card/DCIM/101").mkdir()
    (tmp_path / "card/DCIM/101/IMG_0003.JPG").write_bytes((card / "img_0003.jpg").read_bytes())
    status, output = run(log, "--photographs", tmp_path / "card")
    assert status == 0 and "IMG_0002.JPG" not in output
    assert "IMG_0003.JPG: found 2 times" in output
    assert len(list((tmp_path / "inspection/photographs").iterdir())) == 2
    assert list(card.iterdir()), "the originals stay where they are"


def test_a_bare_name_is_not_looked_up_where_the_command_runs(complete_log, tmp_path, monkeypatch):
    """All cards number from 1: the folder of another flight has the same names."""
    shot = read_inspection([complete_log]).shots[0]
    shot = shot._replace(capture=replace(shot.capture, file="DSC00001.JPG"))
    for folder in ("tuesday", "monday", "flight"):
        (tmp_path / folder).mkdir()
    for folder in ("tuesday", "monday"):
        (tmp_path / folder / "DSC00001.JPG").write_bytes(folder.encode())
    monkeypatch.chdir(tmp_path / "tuesday")
    card, log = tmp_path / "monday/DSC00001.JPG", tmp_path / "flight/flight.mcap"
    assert find_files([shot], [log], [tmp_path / "monday"]).paths == {shot.key: card}
    assert find_files([shot], [log]).paths == {}
    absolute = shot._replace(capture=replace(shot.capture, file=str(tmp_path / "tuesday/DSC00001.JPG")))
    both = [tmp_path / "monday", tmp_path / "tuesday"]
    assert find_files([absolute], [log], both).paths[shot.key].parent.name == "tuesday"
    # Beside the log and on the card: no source is better than the other.
    beside = tmp_path / "flight/DSC00001.JPG"
    beside.write_bytes(b"another picture")
    found = find_files([shot], [log], [tmp_path / "monday"])
    assert found.paths == {}
    assert found.missing == [
        f"photograph 1 (first pier row 0 column 0): DSC00001.JPG: found 2 times, as {card} and {beside}"
    ]
    assert find_files([shot], [log], [tmp_path]).missing[0].count("found 3 times") == 1
    assert find_files([shot], [log], [tmp_path / "flight"]).paths == {shot.key: beside}  # one file, found twice


def test_a_log_does_not_put_files_from_elsewhere_into_a_report(tmp_path):
    """A report is handed on; a camera may report any path."""
    secret, picture = tmp_path / "home/id_rsa", tmp_path / "home/private.jpg"
    secret.parent.mkdir()
    secret.write_text("a key")
    cv2.imwrite(str(picture), np.zeros((20, 30, 3), np.uint8))
    log = read_log(make_log(tmp_path / "flight/flight.mcap", Made(only=frozenset({1, 2, 3}))))
    first, second, third = log.of(Capture)
    first.file, second.file, third.file = str(secret), "../home/private.jpg", str(picture)
    found = write_inspection_report(read_inspection([log]), tmp_path / "flight")
    assert not list((found.page.parent / "photographs").iterdir())
    assert len(found.missing_files) == 3 and all(
        "neither below the folder of the log" in w for w in found.missing_files
    )
    # Below a folder that the user has named they count, as far as they are pictures.
    first.file = str(secret)
    found = write_inspection_report(read_inspection([log]), tmp_path / "flight", [tmp_path / "home"])
    kept = sorted(path.name for path in (found.page.parent / "photographs").iterdir())
    assert kept == [] and "would be another photograph" in " ".join(found.missing_files)
    assert "id_rsa: cannot be opened as a picture" in " ".join(found.missing_files)


def test_an_edited_copy_in_the_report_leaves_the_original(tmp_path):
    page = written(tmp_path, Made(only=frozenset({1}))).page
    original = (tmp_path / "flight_camera/IMG_0001.JPG").read_bytes()
    (copy,) = (page.parent / "photographs").iterdir()
    assert copy.read_bytes() == original
    with copy.open("r+b") as file:
        file.write(b"edited")
    assert (tmp_path / "flight_camera/IMG_0001.JPG").read_bytes() == original


def test_a_file_with_the_tags_of_another_photograph_is_not_this_one(complete_log, tmp_path):
    """A local camera begins at 00001.jpg again when its folder was emptied."""
    shot = read_inspection([complete_log]).shots[0]
    picture = tmp_path / "photographs/00001.jpg"
    picture.parent.mkdir()
    picture.write_bytes(b"picture")
    absolute = shot._replace(capture=replace(shot.capture, file=str(picture)))
    log = tmp_path / "flight.mcap"
    own = {"id": 1, "attempt": 1, "p_WC": shot.capture.p_WC, "pose_source": "flight", "utc": None}
    utc = datetime.fromtimestamp(shot.utc_s, UTC).isoformat(timespec="milliseconds")
    for changes, there in (
        ({}, True),
        ({"id": 2}, False),
        ({"p_WC": (1.0, 2.0, 3.0)}, False),
        # Poses that were found after the flight are others than those of the log; the time is the same.
        ({"p_WC": (1.0, 2.0, 3.0), "pose_source": "adjustment", "utc": utc}, True),
        ({"p_WC": (1.0, 2.0, 3.0), "pose_source": "adjustment", "utc": "2026-01-01T00:00:00.000+00:00"}, False),
        ({"p_WC": None, "utc": "2026-01-01T00:00:00.000+00:00"}, True),  # by a clock that was set later
    ):
        picture.with_suffix(".json").write_bytes(msgspec.json.encode(own | changes))
        found = find_files([absolute], [log])
        assert found.paths == ({shot.key: picture} if there else {}), changes
        assert there or found.missing[0].endswith(f"not found: {picture} has the tags of another photograph")


@pytest.mark.parametrize(
    ("hours", "offset", "there"),
    [(0.05, "+00:00", True), (2.0, None, True), (2.0, "+02:00", True), (2.0, "+00:00", False), (-24.0, None, False)],
)
def test_a_file_that_was_taken_at_another_time_is_not_this_photograph(complete_log, tmp_path, hours, offset, there):
    """hours: by which the camera's clock is ahead of UTC; a clock without an offset may show the time of any zone."""
    shot = read_inspection([complete_log]).shots[0]
    exif = Image.Exif()
    exif[EXIF_IFD] = {DATE_ORIGINAL: f"{datetime.fromtimestamp(shot.utc_s + 3600 * hours, UTC):%Y:%m:%d %H:%M:%S}"}
    if offset:
        exif[EXIF_IFD][OFFSET_ORIGINAL] = offset
    Image.new("RGB", (30, 20)).save(tmp_path / "IMG_0001.JPG", exif=exif)
    found = find_files([shot], [tmp_path / "flight.mcap"])
    assert bool(found.paths) is there
    assert there or "by its EXIF data" in found.missing[0]


def test_a_picture_of_another_format_is_in_neither_mosaic_nor_coverage(tmp_path):
    log = make_log(tmp_path / "flight.mcap")
    whole = write_inspection_report(read_inspection([read_log(log)]), tmp_path / "whole").page.parent
    cropped = sorted((tmp_path / "flight_camera").iterdir())[9:27]  # the deck
    for path in cropped:
        picture = cv2.imread(str(path))
        cv2.imwrite(str(path), picture[16:185])  # 16:9
    found = write_inspection_report(read_inspection([read_log(log)]), tmp_path)
    first, deck, second = csv.DictReader((found.page.parent / "surfaces.csv").open())
    assert float(deck["coverage"]) == 0.0 and deck["taken"] == "18" and float(first["coverage"]) == 1.0
    assert data_of(found.page.parent)["surfaces"][1]["tiles"] == []
    assert data_of(whole)["surfaces"][1]["tiles"] and found.totals.coverage < 0.7
    (note,) = [note for note in found.notes if "format" in note]
    assert note.startswith(
        "18 pictures have another format than the 6000 x 4000 px of the camera file, such as photograph 10"
    )
    html = found.page.read_text()
    assert html.count(".JPG: 300 x 169 px</li>") == 18
    shown = [p for p in data_of(found.page.parent)["photographs"] if p["title"].startswith("deck")]
    assert all(p["preview"] and not p["edge"] for p in shown)
    kinds = [f["properties"] for f in json.loads((found.page.parent / "inspection.geojson").read_text())["features"]]
    assert {p["kind"] for p in kinds if p.get("item") == "deck"} == {"camera"}


# --- the report before --------------------------------------------------------------------------------------------------


def flown_on(folder: Path, day: str, made: Made, seed: int) -> Path:
    """A log whose pictures are on the card, under the same names on each day."""
    card = folder / "card/camera"
    shutil.rmtree(card, ignore_errors=True)
    return make_log(folder / day / "flight.mcap", made, seed=seed, folder=card)


def test_photographs_of_a_card_that_was_formatted_stay_in_the_report(tmp_path):
    """Both days have IMG_0001 and so on; the card holds those of the second."""
    monday = flown_on(tmp_path, "monday", Made(only=frozenset({1, 2, 3})), 1)
    card = ["--photographs", tmp_path / "card"]
    assert run(monday, *card)[0] == 0
    tuesday = flown_on(tmp_path, "tuesday", Made(only=frozenset({4, 5, 6})), 2)
    second = {path.read_bytes() for path in (tmp_path / "card/camera").iterdir()}
    folder = tmp_path / "monday/inspection"
    first = {path.read_bytes() for path in (folder / "photographs").iterdir()}
    for _ in range(2):  # made again it is the same
        status, output = run(monday, tuesday, *card)
        assert status == 0 and "not found" not in output and "kept" not in output, output
        files = {int(path.name[:4]): path.read_bytes() for path in (folder / "photographs").iterdir()}
        assert {files[number] for number in (1, 2, 3)} == first and {files[number] for number in (4, 5, 6)} == second
        assert not list(folder.parent.glob("inspection_*"))
    assert sorted(path.name for path in (folder / "photographs").iterdir())[0] == "0001_IMG_0001.JPG"


def test_a_report_with_photographs_that_the_new_one_lacks_is_kept(tmp_path):
    monday = flown_on(tmp_path, "monday", Made(only=frozenset({1, 2})), 1)
    out = ["--photographs", tmp_path / "card", "--out", tmp_path / "out"]
    assert run(monday, *out)[0] == 0
    first = {path.read_bytes() for path in (tmp_path / "out/inspection/photographs").iterdir()}
    tuesday = flown_on(tmp_path, "tuesday", Made(only=frozenset({1, 2})), 2)
    before = (tmp_path / "out/inspection/index.html").read_text()
    status, output = run(tuesday, *out)
    assert status == 2 and "inspection: is the report of flight.mcap: name all logs" in output.splitlines()[-1]
    assert (tmp_path / "out/inspection/index.html").read_text() == before
    status, output = run(tuesday, *out, "--replace")
    kept = tmp_path / "out/inspection_former"
    assert (
        status == 0 and f"{kept}: the report before, kept because 2 of its photographs are not in the new one" in output
    )
    assert {path.read_bytes() for path in (kept / "photographs").iterdir()} == first
    # and from there they come back
    status, output = run(monday, tuesday, "--photographs", tmp_path / "card", "--out", tmp_path / "out")
    assert status == 0 and len(list((tmp_path / "out/inspection/photographs").iterdir())) == 4


def test_a_run_that_was_ended_between_two_names_loses_no_photograph(tmp_path):
    page = written(tmp_path, Made(only=frozenset({1}))).page
    shutil.rmtree(tmp_path / "flight_camera")
    page.parent.rename(tmp_path / ".inspection.old")
    found = write_inspection_report(read_inspection([read_log(tmp_path / "flight.mcap")]), tmp_path)
    assert found.missing_files == [] and len(list((page.parent / "photographs").iterdir())) == 1


def test_a_report_does_not_take_files_from_outside_of_the_one_before(tmp_path):
    page = written(tmp_path, Made(only=frozenset({1}))).page
    shutil.rmtree(tmp_path / "flight_camera")
    cv2.imwrite(str(tmp_path / "private.jpg"), np.zeros((20, 30, 3), np.uint8))
    content = page.parent / "report.json"
    content.write_text(re.sub(r"photographs/[^\"]*", "../private.jpg", content.read_text()))
    found = write_inspection_report(read_inspection([read_log(tmp_path / "flight.mcap")]), tmp_path)
    assert len(found.missing_files) == 1 and not list((page.parent / "photographs").iterdir())


def test_removing_the_report_leaves_the_photographs(tmp_path):
    written(tmp_path, Made(only=frozenset({1})))
    found = written_again = write_inspection_report(read_inspection([read_log(tmp_path / "flight.mcap")]), tmp_path)
    assert found.page.exists() and written_again.missing_files == []
    assert (tmp_path / "flight_camera/IMG_0001.JPG").stat().st_size > 0


def test_a_folder_that_is_no_report_is_not_replaced(tmp_path):
    (tmp_path / "inspection").mkdir()
    (tmp_path / "inspection/notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not a report of an inspection"):
        written(tmp_path, Made(only=frozenset({1})))
    assert (tmp_path / "inspection/notes.txt").read_text() == "mine"


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_an_interrupted_report_leaves_the_one_before(tmp_path, monkeypatch, interruption):
    before = written(tmp_path, Made(only=frozenset({1}))).page.read_text()
    inspection = read_inspection([read_log(tmp_path / "flight.mcap")])

    def interrupted(*_):
        raise interruption

    with monkeypatch.context() as patched:
        patched.setattr("companion.recording.inspection_report._mosaic", interrupted)
        with pytest.raises((KeyboardInterrupt, ConfigError)):
            write_inspection_report(inspection, tmp_path)
    assert (tmp_path / "inspection/index.html").read_text() == before
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    # a run that was killed, at any point
    for left in (".inspection.part", ".inspection.old"):
        (tmp_path / left / "photographs").mkdir(parents=True)
    page = write_inspection_report(inspection, tmp_path).page
    assert page == tmp_path / "inspection/index.html" and page.read_text() == before
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_photographs_in_the_report_that_is_replaced_are_not_found_twice(tmp_path):
    log = make_log(tmp_path / "flight.mcap", Made(only=frozenset({1})))
    (tmp_path / "flight_camera").rename(tmp_path / "card")
    inspection = read_inspection([read_log(log)])
    for _ in range(2):
        report = write_inspection_report(inspection, tmp_path, [tmp_path])
        assert report.missing_files == []
        copied = next((tmp_path / "inspection/photographs").iterdir())
        copied.with_name("IMG_0001.JPG").write_bytes(copied.read_bytes())


# --- several logs in one folder -----------------------------------------------------------------------------------------


def test_each_log_of_a_folder_has_reports_of_its_own(tmp_path):
    logs = [make_log(tmp_path / f"00004{n}_a.mcap", Made(only=frozenset({n})), seed=n) for n in (1, 2)]
    for log in logs:
        status, output = run(log)
        folder = tmp_path / f"{log.stem}_report"
        assert status == 0 and output.splitlines()[-1] == str(folder / "inspection/index.html")
        assert "inspection/index.html" in Page((folder / "report.html").read_text()).links
    status, output = run(*logs)
    assert status == 0, output
    names = [json.loads((tmp_path / f"{log.stem}_report/metrics.json").read_text())["log"]["name"] for log in logs]
    assert names == [log.name for log in logs]
    rows = list(csv.DictReader((tmp_path / "000041_a_report/inspection/photographs.csv").open()))
    assert {row["log"] for row in rows if row["log"]} == {log.name for log in logs}
    # the inspection of one of them alone would replace that of both
    status, output = run(logs[0])
    assert status == 2 and "is the report of 000042_a.mcap" in output.splitlines()[-1]


def test_reports_stay_beside_a_log_to_which_another_one_came(tmp_path):
    first = make_log(tmp_path / "a.mcap", Made(only=frozenset({1})))
    assert run(first)[0] == 0
    shutil.rmtree(tmp_path / "a_camera")
    second = make_log(tmp_path / "b.mcap", Made(only=frozenset({2})), seed=2)
    status, output = run(first)
    assert status == 0 and "not found" not in output and not (tmp_path / "a_report").exists()
    assert run(second)[0] == 0 and (tmp_path / "b_report/report.html").exists()


def test_a_flight_report_does_not_replace_that_of_another_flight(tmp_path):
    logs = [make_log(tmp_path / f"{name}.mcap", Made(only=frozenset({1})), seed=1) for name in "ab"]
    assert run(logs[0], "--out", tmp_path / "out")[0] == 0
    status, output = run(logs[1], "--out", tmp_path / "out")
    assert status == 2 and "out: has the report of a.mcap" in output and "--replace" in output.splitlines()[-1]
    assert run(logs[1], "--out", tmp_path / "out", "--replace")[0] == 0


def test_the_flight_report_links_the_inspection_of_its_own_flight_alone(tmp_path):
    logs = [make_log(tmp_path / name / "flight.mcap", Made(only=frozenset({1})), seed=1) for name in "ab"]
    write_inspection_report(read_inspection([read_log(logs[0])]), tmp_path / "b")
    assert "inspection/index.html" not in Page(write_report(logs[1], tmp_path / "b").read_text()).links


@pytest.mark.parametrize("broken", ["not a log", "another plan"])
def test_one_log_that_fails_does_not_keep_the_others_from_their_reports(tmp_path, broken):
    good, bad = make_log(tmp_path / "good.mcap", Made(only=frozenset({1}))), tmp_path / "bad.mcap"
    if broken == "not a log":
        bad.write_text("no log")
    else:
        LogWriter(bad, flight_metadata(VEHICLE, ROOT / "config/missions/bridge_hover.toml")).close()
    status, output = run(bad, good)
    assert status == 2 and "bad.mcap" in output.splitlines()[-1]
    assert (tmp_path / "good_report/report.html").exists()
    assert not list(tmp_path.glob("*/inspection"))


# --- the command --------------------------------------------------------------------------------------------------------


def test_two_flights_of_one_plan_make_one_report(tmp_path):
    logs = [
        make_log(tmp_path / "a/flight.mcap", Made(only=FIRST), seed=1),
        make_log(tmp_path / "b/flight.mcap", Made(only=SECOND), seed=2),
    ]
    status, output = run(*logs, "--out", tmp_path / "out")
    assert status == 0, output
    page = tmp_path / "out/inspection/index.html"
    assert output.splitlines()[-1] == str(page)
    assert (tmp_path / "out/flight_1/report.html").exists() and (tmp_path / "out/flight_2/report.html").exists()
    rows = list(csv.DictReader((page.parent / "photographs.csv").open()))
    assert [row["state"] for row in rows] == ["taken"] * 36
    assert {row["log"] for row in rows} == {"a/flight.mcap", "b/flight.mcap"}
    assert [row["attempts"] for row in rows].count("2") == 3  # 18 to 20 were taken in both
    assert correlation(mosaic_of(page.parent, 2), true_mosaic(page.parent, 2)) > 0.97
    alone = json.loads((tmp_path / "out/flight_1/metrics.json").read_text())["inspection"]
    assert alone["taken"] == 20 and alone["missing"] == 16


def test_the_flight_report_has_the_figures_of_the_inspection(tmp_path):
    log = make_log(tmp_path / "flight.mcap", Made(skipped=frozenset({3, 4, 5, 6, 7, 8})))
    status, output = run(log)
    assert status == 0 and output.splitlines()[-2:] == [
        str(tmp_path / "report.html"),
        str(tmp_path / "inspection/index.html"),
    ]
    page = Page((tmp_path / "report.html").read_text())
    assert "30 of 36 photographs sharp" in page.text and "inspection/index.html" in page.links


# --- poses that were found after the flight ---------------------------------------------------------------------------


def poses_file(path: Path, log: Path, numbers: frozenset[int], **changes) -> Path:
    """The true poses of a made-up flight's photographs, as `companion calibrate photographs --json` writes poses."""
    flight = read_log(log)
    entries = [
        {
            "id": shot.capture.id, "attempt": shot.capture.attempt, "stamp_s": shot.capture.stamp_s,
            "bundle": shot.capture.bundle, "p_MC": p_MC.tolist(), "q_MC": quat_from_matrix(R_MC).tolist(),
            "position_std_m": 0.012, "attitude_std_rad": 0.003, "covariance": np.eye(6).tolist(),
        } | changes
        for shot in shots_of(flight, plan_of_log(flight))
        if shot.capture.id in numbers
        for p_MC, R_MC in [true_in_bundle(flight, shot)]
    ]  # fmt: skip
    path.write_text(json.dumps({"command": "calibrate photographs", "details": {"photographs": entries}}))
    return path


def true_in_bundle(log, shot) -> tuple[np.ndarray, np.ndarray]:
    truth = next(t for t in log.of(CaptureTruth) if t.image_index == shot.capture.image_index)
    p_WM, q_WM = truth.bundles[shot.capture.bundle]
    R_MW = rotation_matrix(q_WM).T
    return R_MW @ (np.array(truth.p_WC) - p_WM), R_MW @ rotation_matrix(truth.q_WC)


def test_poses_found_after_the_flight_count_in_the_report(tmp_path):
    """Each file belongs to the flight that has its exposures, in whatever order they are given."""
    wrong, second = (0.15, 0.03), SECOND - FIRST
    logs = [
        make_log(tmp_path / "a/flight.mcap", Made(only=FIRST, error=wrong), seed=1),
        make_log(tmp_path / "b/flight.mcap", Made(only=second, error=wrong), seed=2),
    ]
    poses = [poses_file(tmp_path / "b.json", logs[1], second), poses_file(tmp_path / "a.json", logs[0], FIRST - {4})]
    status, output = run(*logs, "--out", tmp_path / "out", *(word for file in poses for word in ("--poses", file)))
    assert status == 0, output
    assert "the poses of 35 of 36 photographs were found after the flight" in output
    folder = tmp_path / "out/inspection"
    rows = {int(row["id"]): row for row in csv.DictReader((folder / "photographs.csv").open())}
    assert {number for number, row in rows.items() if row["pose_source"] == "flight"} == {4}
    assert {row["position_std_m"] for number, row in rows.items() if number != 4} == {"0.012"}
    errors = {f[1]: dict(d["facts"])["true error"] for d in data_of(folder)["photographs"] for f in d["facts"][:1]}
    assert errors.pop("4") != "0.0 cm, 0.00°" and set(errors.values()) == {"0.0 cm, 0.00°"}
    assert correlation(mosaic_of(folder, 2), true_mosaic(folder, 2)) > 0.97
    flown = written(tmp_path / "flown", Made(error=wrong)).page.parent
    assert correlation(mosaic_of(flown, 2), true_mosaic(flown, 2)) < 0.9


def test_a_pose_in_the_frame_of_another_bundle_does_not_change_the_photograph(tmp_path):
    log = make_log(tmp_path / "flight.mcap", Made(only=frozenset({1, 2})))
    flight = read_log(log)
    plan = plan_of_log(flight)
    elsewhere = read_poses(poses_file(tmp_path / "poses.json", log, frozenset({1, 2}), bundle="elsewhere"))
    assert repr(shots_of(flight, plan, poses=elsewhere)) == repr(shots_of(flight, plan))


@pytest.mark.parametrize(
    ("changes", "words", "message"),
    [
        ({"stamp_s": 1.0}, [], "poses.json: holds no photograph of these flights: it is of another flight"),
        ({"stamp_s": None}, [], "poses.json: an earlier version wrote it, without times: make it again"),
        ({"attempt": 7}, [], "poses.json: holds no photograph of these flights"),
        ({}, ["--poses", "no.json"], "no.json: No such file"),
    ],
)
def test_poses_that_are_not_of_the_flight_are_refused(tmp_path, monkeypatch, changes, words, message):
    monkeypatch.chdir(tmp_path)
    log = make_log(tmp_path / "flight.mcap", Made(only=frozenset({1})))
    poses_file(tmp_path / "poses.json", log, frozenset({1}), **changes)
    status, output = run("flight.mcap", "--poses", "poses.json", *words)
    assert status == 2 and message in output.splitlines()[-1]
    assert not (tmp_path / "inspection").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["flight.mcap", "flight.mcap"], "given twice"),
        (["flight.mcap", "copy.mcap"], "copy.mcap: holds the same data as flight.mcap"),
        (["flight.mcap", "plain.mcap"], "plain.mcap: has no inspection"),
        (["plain.mcap", "flight.mcap"], "plain.mcap: has no inspection"),
        (["plain.mcap", "plain_b.mcap"], "several logs make one report of an inspection only"),
        (["flight.mcap", "--photographs", "nowhere"], "no such folder"),
        (["none.mcap"], "none.mcap: cannot be read"),
        ([], "Missing argument"),
    ],
)
def test_bad_input_is_one_line(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    make_log(tmp_path / "flight.mcap", Made(only=frozenset({1})))
    shutil.copy("flight.mcap", "copy.mcap")
    for name in ("plain.mcap", "plain_b.mcap"):
        LogWriter(tmp_path / name, flight_metadata(VEHICLE, ROOT / "config/missions/bridge_hover.toml")).close()
    status, output = run(*words)
    assert status == 2 and message in output.splitlines()[-1]
    assert not (tmp_path / "inspection").exists()


def test_a_log_without_its_camera_file_gets_its_flight_report(tmp_path):
    metadata = flight_metadata(VEHICLE, MISSION)
    LogWriter(
        tmp_path / "flight.mcap", {k: v for k, v in metadata.items() if not k.startswith("payload_camera")}
    ).close()
    status, output = run(tmp_path / "flight.mcap")
    assert status == 2 and "without its camera file" in output.splitlines()[-1]
    assert "without its camera file" in (tmp_path / "report.html").read_text()


def test_figures_are_finite_in_the_metrics(report):
    totals = msgspec.json.decode(msgspec.json.encode(report.totals._asdict()))
    assert all(value is None or math.isfinite(value) for value in totals.values())
