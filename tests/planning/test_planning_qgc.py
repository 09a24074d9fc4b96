"""QGroundControl's .plan: written, read back, accepted by MAVSDK's importer, and refused where it cannot be flown."""

import json
import math
import os
import time

import pytest
from planning_world import DECK, WALL, around, battery, plan_of, planning

from companion.core.config import ConfigError, parse
from companion.core.geodesy import between
from companion.planning.planner import make_plan
from companion.planning.qgc import (
    EXPOSED_S,
    QgcStation,
    compass_deg,
    geographic,
    local,
    plan_document,
    read_plan,
    yaw_of,
)
from companion.planning.sections import Origin
from companion.view.inspection_plan import qgc_stations

ORIGIN = {"latitude_deg": 34.0007, "longitude_deg": -81.0348, "altitude_m": 60.0}
SITE = parse(ORIGIN, Origin, "origin")
HIGH = DECK | {"centre_m": [-10.0, 5.0, 14.0]}  # beside the way to the wall
WAYPOINT = {
    "AMSLAltAboveTerrain": None,
    "Altitude": 5,
    "AltitudeMode": 1,
    "autoContinue": True,
    "command": 16,
    "doJumpId": 2,
    "frame": 3,
    "params": [2.0, 0, 0, 90.0, 34.0008, -81.0347, 5],
    "type": "SimpleItem",
}


def simple(command, *params, frame=2):
    numbers = [*params, *[0] * (7 - len(params))]
    return {
        "autoContinue": True,
        "command": command,
        "doJumpId": 1,
        "frame": frame,
        "params": numbers,
        "type": "SimpleItem",
    }


def document(*items):
    made = plan_document([], SITE, 4.0, 1.0, 13)
    made["mission"]["items"] = list(items)
    return made


def written(folder, made):
    path = folder / "test.plan"
    path.write_text(made if isinstance(made, str) else json.dumps(made), encoding="utf-8")
    return path


@pytest.mark.parametrize("p", [(0.0, 0.0, 0.0), (12.0, -7.0, 8.0), (-400.0, 350.0, 60.0)])
@pytest.mark.parametrize("changes", [{}, {"longitude_deg": 180.0}, {"latitude_deg": -70.0}])
def test_a_point_and_its_geographic_position_are_inverse(p, changes):
    site = parse(ORIGIN | changes, Origin, "origin")
    position = geographic(p, site)
    assert -180.0 <= position[1] < 180.0
    assert local(position, site) == pytest.approx(p, abs=1e-6)
    east, north, _ = between((site.latitude_deg, site.longitude_deg, site.altitude_m), position)
    assert (east, north) == pytest.approx(p[:2])  # as the flight takes the axes of a plan


def test_headings_are_those_of_a_compass():
    assert [compass_deg(math.radians(a)) for a in (90.0, 0.0, -90.0, 180.0)] == pytest.approx([0, 90, 180, 270])
    assert yaw_of(compass_deg(1.3)) == pytest.approx(1.3)


def test_a_plan_is_read_back_as_it_was_written(tmp_path):
    hold = {"kind": "hold", "name": "wait", "frame": "world", "p_m": [5.0, 2.0, 6.0], "yaw_rad": 0.5, "duration_s": 20}
    _, plan = plan_of([hold, WALL, HIGH])
    stations = qgc_stations(plan)
    path = written(tmp_path, plan_document(stations, SITE, 4.0, 1.0, 13))
    for before, after in zip(stations, read_plan(path, SITE), strict=True):
        assert after.p_W == pytest.approx(before.p_W, abs=1e-6)
        assert math.cos(after.yaw_rad - before.yaw_rad) == pytest.approx(1.0)
        assert (after.stop_s, after.photograph) == (before.stop_s, before.photograph)
        if before.photograph:
            assert after.pitch_rad == pytest.approx(before.pitch_rad, abs=1e-9)
    # As an item of a mission: the same photographs from the same places, and the same file again.
    world = planning([{"kind": "qgc", "name": "old", "file": path.name}], folder=tmp_path, origin=ORIGIN)
    again = make_plan("test", "mission.toml", world, battery(), around())
    assert again.photographs == plan.photographs
    assert len(again.stations) == len(plan.stations) + 1  # above the take-off point, where the way home ends
    for before, after in zip(plan.stations, again.stations, strict=False):
        assert after.p_W == pytest.approx(before.p_W, abs=1e-6)
        if before.photograph is not None:
            assert after.photograph.pose.p_W == pytest.approx(before.photograph.pose.p_W, abs=1e-6)
            assert pytest.approx(before.photograph.pose.R_WC, abs=1e-6) == after.photograph.pose.R_WC


def test_a_plan_of_several_batteries_is_flown_along_the_checked_ways_and_lands():
    """A return straight up from the last photograph would lead through the deck above it."""
    surroundings = around(search=[((3.0, -3.0, 5.0), 0.2)])
    world = planning([WALL, HIGH], origin=ORIGIN)
    plan = make_plan("test", "mission.toml", world, battery(capacity_ah=1.2), surroundings)
    assert len(plan.flights) > 1
    flown, photographs = [], 0
    for number in range(len(plan.flights)):
        stops = qgc_stations(plan, number)
        photographs += sum(stop.photograph for stop in stops)
        items = plan_document(stops, SITE, 4.0, 1.0, 13)["mission"]["items"]
        assert items[0]["command"] == 22 and items[-1]["command"] == 21 and 20 not in {i["command"] for i in items}
        assert items[-1]["params"][4:] == [SITE.latitude_deg, SITE.longitude_deg, 0.0]
        ways = [local((*i["params"][4:6], SITE.altitude_m + i["params"][6]), SITE) for i in items if i["command"] == 16]
        sinking = (0.0, 0.0, surroundings.sink_end_m)
        flown += [(0.0, 0.0, 0.0), (0.0, 0.0, 4.0), *ways, sinking, (0.0, 0.0, 0.0)]
    assert photographs == plan.photographs
    assert len(flown) == len(plan.path)
    assert all(a == pytest.approx(b, abs=1e-6) for a, b in zip(flown, plan.path, strict=True))


def test_the_gimbal_settles_while_the_aircraft_stops(tmp_path):
    """PX4 photographs as soon as the stop is over, and does not wait for the gimbal; it turns after an exposure."""
    stops = [QgcStation((x, 0.0, 5.0), 0.0, pitch, 3.0, True) for x, pitch in ((1.0, 0.0), (2.0, 0.0), (3.0, 1.2))]
    corner = QgcStation((4.0, 0.0, 5.0), 0.0, None, 0.0, False)
    stops += [corner, QgcStation((5.0, 0.0, 5.0), 0.0, 0.0, 3.0, True)]
    made = plan_document(stops, SITE, 4.0, 1.0, 13)
    commands = [item["command"] for item in made["mission"]["items"]]
    first, turned, after_a_corner = [1000, 16, 2000, 93, 16, 2000, 93], [1000, 16, 2000, 93], [16, 1000, 16, 2000, 93]
    assert commands == [22, 178, *first, *turned, *after_a_corner, 21]
    read = read_plan(written(tmp_path, made), SITE)
    assert [(s.stop_s, s.photograph) for s in read] == [(s.stop_s, s.photograph) for s in stops]
    pitches = [s.pitch_rad for s in read if s.photograph]
    assert pitches == pytest.approx([0.0, 0.0, 1.2, 0.0])


def test_the_aircraft_stays_until_the_exposure_is_over_and_the_camera_is_ready():
    _, plan = plan_of([WALL], camera_changes={"trigger_period_s": 20.0})
    stops = qgc_stations(plan)
    assert [stop.stop_s for stop in stops if stop.photograph] == plan.stops_s and max(plan.stops_s) > 10.0
    items = plan_document(stops, SITE, 4.0, 1.0, 13)["mission"]["items"]
    after = [other for item, other in zip(items, items[1:], strict=False) if item["command"] == 2000]
    assert len(after) == plan.photographs
    assert all((item["command"], item["params"][0]) == (93, EXPOSED_S) for item in after)


def test_every_key_that_the_format_demands_is_written():
    made = plan_document([QgcStation((1.0, 2.0, 5.0), 0.3, 0.2, 3.0, True)], SITE, 4.0, 1.5, 14)
    assert made["mission"]["vehicleType"] == 14
    assert {"fileType", "geoFence", "groundStation", "mission", "rallyPoints", "version"} == set(made)
    assert (made["fileType"], made["version"], made["groundStation"]) == ("Plan", 1, "QGroundControl")
    required = (
        "version firmwareType globalPlanAltitudeMode vehicleType cruiseSpeed hoverSpeed items plannedHomePosition"
    )
    assert set(required.split()) == set(made["mission"])
    assert made["mission"]["plannedHomePosition"] == [34.0007, -81.0348, 60.0]
    items = made["mission"]["items"]
    assert [item["command"] for item in items] == [22, 178, 1000, 16, 2000, 93, 21]
    assert [item["doJumpId"] for item in items] == [1, 2, 3, 4, 5, 6, 7]
    assert all(len(item["params"]) == 7 and item["type"] == "SimpleItem" for item in items)
    assert items[1]["params"] == [1, 1.5, -1, 0, 0, 0, 0], "PX4 does not know cruiseSpeed"
    assert items[3]["frame"] == 3 and items[3]["Altitude"] == 5.0 == items[3]["params"][6]
    assert "NaN" not in json.dumps(made)


def test_what_qgroundcontrol_itself_writes_is_read(tmp_path):
    path = written(
        tmp_path,
        document(
            simple(22, 15, 0, 0, None, 34.0007, -81.0348, 50, frame=3),
            simple(530, 0, 0),
            WAYPOINT,
            simple(205, 30, 0, 0, 0, 0, 0, 2),
            simple(93, 4, -1, -1, -1),
            simple(203, 0, 0, 0, 0, 1),
            WAYPOINT | {"frame": 0, "params": [0, 0, 0, None, 34.0009, -81.0347, 68.0]},
            simple(2000, 0, 0, 1, 0, None, None, None),
            simple(20),
        ),
    )
    first, second = read_plan(path, SITE)
    assert first.stop_s == 6.0 and first.photograph and first.pitch_rad == pytest.approx(math.radians(30))
    assert first.yaw_rad == pytest.approx(0.0) and first.p_W[2] == 5.0
    assert second.p_W[2] == pytest.approx(8.0)  # above sea level less the origin's altitude
    assert second.yaw_rad == pytest.approx(math.pi / 2)  # without a heading the nose points along the way, to the north
    assert second.photograph and second.pitch_rad == first.pitch_rad


def test_camera_and_gimbal_of_the_mission_start_may_stand_before_the_take_off(tmp_path):
    """QGroundControl writes the settings of its panel "Mission Start" in front of all others."""
    settings = [simple(530, 0, 0), simple(1000, 20, 0, None, None, 12)]
    takeoff = simple(22, 0, 0, 0, None, 34.0007, -81.0348, 50, frame=3)
    made = document(*settings, takeoff, WAYPOINT, simple(2000, 0, 0, 1), simple(20))
    (station,) = read_plan(written(tmp_path, made), SITE)
    assert station.photograph and station.pitch_rad == pytest.approx(math.radians(20))


def test_a_second_photograph_from_one_place_is_a_station_of_its_own(tmp_path):
    shot = simple(2000, 0, 0, 1)
    one, other = read_plan(written(tmp_path, document(WAYPOINT, shot, shot)), SITE)
    assert one.p_W == other.p_W and (one.stop_s, other.stop_s) == (2.0, 0.0) and other.photograph
    late = document(WAYPOINT, shot, simple(93, 4), shot, simple(93, 7), WAYPOINT)
    assert [s.stop_s for s in read_plan(written(tmp_path, late), SITE)] == [2.0, 4.0, 2.0]


SURVEY = {"type": "ComplexItem", "complexItemType": "survey", "version": 5}
BROKEN = {
    "survey": ([WAYPOINT, SURVEY], r"items\[1\]: complex item 'survey' cannot be flown"),
    "jump": ([WAYPOINT, simple(177, 1, 3)], r"items\[1\]: command 177 \(MAV_CMD_DO_JUMP\) cannot be flown"),
    "speed": ([WAYPOINT, simple(178, 1, 12)], r"items\[1\]: another speed in the middle of a plan cannot be flown"),
    "distance": ([WAYPOINT, simple(206, 5)], r"command 206 \(MAV_CMD_DO_SET_CAM_TRIGG_DIST\) cannot be flown"),
    "unknown": ([WAYPOINT, simple(31337)], r"command 31337 cannot be flown"),
    "endless": ([WAYPOINT, simple(2000, 0, 1, 0)], r"takes 0 photographs at one place \(0: without end\)"),
    "photograph first": ([simple(2000, 0, 0, 1), WAYPOINT], r"items\[0\]: a photograph before the first waypoint"),
    "terrain": ([WAYPOINT | {"frame": 10}], r"items\[0\]: frame = 10: heights above the take-off point"),
    "no place": ([WAYPOINT | {"params": [0, 0, 0, 0, None, 0, 5]}], r"a waypoint without latitude"),
    "long stop": ([WAYPOINT | {"params": [9e9, 0, 0, 0, 34, -81, 5]}], r"stop of 9e\+09 s: 0 to 3600 s"),
    "text": ([WAYPOINT | {"params": ["a", 0, 0, 0, 34, -81, 5]}], r"params: 'a' is not a number"),
    "endless number": (
        [WAYPOINT | {"params": [0, 0, 0, 0, 10**400, -81, 5]}],
        r"items\[0\]: params: a number is too large",
    ),
    "infinite": (
        [WAYPOINT | {"params": [math.inf, 0, 0, 0, 34, -81, 5]}],
        r"items\[0\]: params: a number is too large",
    ),
    "endless command": ([simple(10**400)], r"items\[0\]: command \? cannot be flown"),
    "short": ([WAYPOINT | {"params": [0, 0]}], r"items\[0\]: needs a command and 7 params"),
    "landing": ([simple(21), WAYPOINT], r"items\[0\]: a landing or return in the middle"),
    "take-off": ([WAYPOINT, simple(22)], r"items\[1\]: a take-off in the middle"),
    "video": ([WAYPOINT, simple(530, 0, 1)], r"a camera mode other than photographs"),
    "gimbal yaw": ([WAYPOINT, simple(1000, 10, 45)], r"gimbal yaw of 45° cannot be flown"),
    "gimbal pitch": ([WAYPOINT, simple(1000, 120)], r"gimbal pitch of 120°"),
    "mount mode": ([WAYPOINT, simple(205, 10)], r"mount mode 0 cannot be flown"),
    "delay first": ([simple(93, 4), WAYPOINT], r"items\[0\]: a delay before the first waypoint"),
    "empty": ([], r"mission.items: no waypoint"),
    "number": ([7], r"items\[0\]: is not an item"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_an_item_that_cannot_be_flown_is_refused_in_one_line(tmp_path, case):
    items, message = BROKEN[case]
    path = written(tmp_path, document(*items))
    with pytest.raises(ConfigError, match=message) as error:
        read_plan(path, SITE)
    assert str(error.value).startswith(f"{path}: mission.items") and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "not a plan of QGroundControl"),
        ('{"fileType": "Plan", "version": 1}', "mission: needs version = 2"),
        ('{"fileType": "Plan", "version": 1, "mission": {"version": 1, "items": []}}', "mission: needs version = 2"),
        ("\udce4", "not valid JSON"),
    ],
)
def test_a_file_that_is_no_plan_is_refused_in_one_line(tmp_path, text, message):
    path = tmp_path / "test.plan"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match=message) as error:
        read_plan(path, SITE)
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match="no such file"):
        read_plan(tmp_path / "absent.plan", SITE)
    os.mkfifo(tmp_path / "pipe.plan")
    with pytest.raises(ConfigError, match="not a regular file"):
        read_plan(tmp_path / "pipe.plan", SITE)


def test_a_plan_without_an_origin_is_refused(tmp_path):
    world = planning([{"kind": "qgc", "name": "old", "file": "test.plan"}], folder=tmp_path)
    with pytest.raises(ConfigError, match=r"item\[0\] 'old': file: needs \[inspection.origin\]"):
        make_plan("test", "mission.toml", world, battery(), around())


def test_the_importer_of_mavsdk_reads_the_same_items():
    mavsdk = pytest.importorskip("mavsdk.mavsdk")
    from mavsdk.logging import log_subscribe
    from mavsdk.plugins.mission_raw import MissionRaw
    from pymavlink.dialects.v20 import common

    _, plan = plan_of([WALL, HIGH])
    made = plan_document(qgc_stations(plan), SITE, 4.0, 1.0, 13)
    log_subscribe(lambda *_: True)
    client = mavsdk.Mavsdk(mavsdk.Configuration.create_manual(245, 190, False))
    try:
        client.add_any_connection("raw://")
        beat = common.MAVLink_heartbeat_message(13, 12, 0, 0, 4, 3).pack(common.MAVLink(None, 1, 1))
        until_s = time.monotonic() + 20.0
        while not client.get_systems() and time.monotonic() < until_s:
            client.pass_received_raw_bytes(beat)
            time.sleep(0.01)
        (system,) = client.get_systems()
        items = MissionRaw(system).import_qgroundcontrol_mission_from_string(json.dumps(made)).mission_items
    finally:
        client.destroy()
    assert [item.command for item in items] == [item["command"] for item in made["mission"]["items"]]
    for read, item in zip(items, made["mission"]["items"], strict=True):
        if item["command"] == 16:
            stop_s, _, _, heading_deg, latitude, longitude, up_m = item["params"]
            assert (read.x, read.y) == (pytest.approx(latitude * 1e7, abs=1), pytest.approx(longitude * 1e7, abs=1))
            assert (read.z, read.param1) == (pytest.approx(up_m), pytest.approx(stop_s))
            assert read.param4 == pytest.approx(heading_deg, rel=1e-5) and read.frame in (3, 6)
