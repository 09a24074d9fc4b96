"""The mission file is strict, and an error in it is reported in one line."""

import re
import shutil

import msgspec
import pytest
from mission_world import REPOSITORY, line_plan, vehicle

from companion.core.config import ConfigError
from companion.mission.curves import Curve
from companion.mission.plan import check_vehicle, leaves_limits, load_plan, site_of

BRIDGE = (REPOSITORY / "config/missions/bridge_hover.toml").read_text(encoding="utf-8")
FLOOR = (REPOSITORY / "config/missions/hover_marker.toml").read_text(encoding="utf-8")


def write(folder, text):
    (folder / "missions").mkdir()
    shutil.copytree(REPOSITORY / "config/markers", folder / "markers")
    path = folder / "missions" / "mission.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("path", sorted((REPOSITORY / "config/missions").glob("*.toml")), ids=lambda path: path.stem)
def test_every_mission_loads_and_names_an_existing_bundle_or_a_trajectory(path):
    plan = load_plan(path)
    if plan.bundle is None:
        assert plan.trajectory is not None and site_of(plan).bundle == []
    else:
        assert site_of(plan).find(plan.bundle) is not None
        assert all(not leaves_limits(w.p_m, plan.limits) for w in plan.search.waypoints)


LINE = (REPOSITORY / "config/missions/lab_line.toml").read_text(encoding="utf-8")
SPIRAL = (REPOSITORY / "config/missions/lab_spiral.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "old", "new", "message"),
    [
        (LINE, 'frame = "world"', 'frame = "pier"', "trajectory.frame = 'pier': is neither 'world' nor"),
        (LINE, "end_m = [-1.0,", "end_m = [-9.0,", r"trajectory passes = .*outside the fence"),
        (LINE, 'kind = "line"', 'kind = "loop"', "trajectory.kind|Invalid value 'loop'|loop"),
        (LINE, "laps = 4", "laps = 0", r"trajectory.laps = 0"),
        (LINE, "laps = 4", "", "laps: missing key"),
        (LINE, "[return]", "[hold]\nduration_s = 5.0\n[return]", "hold: has no use without a bundle"),
        (LINE, 'start = "auto"', 'start = "auto"\nbundle = "pier"', "marker_file: missing key"),
        (SPIRAL, "duration_s = 120.0", "duration_s = 7.0", "shorter than two ramps"),
        (BRIDGE, "[hold]\nduration_s = 60.0", "", "hold: missing key"),
    ],
)
def test_a_plan_with_a_table_too_many_or_too_few_is_refused(tmp_path, text, old, new, message):
    assert old in text
    with pytest.raises(ConfigError, match=message) as error:
        load_plan(write(tmp_path, text.replace(old, new, 1)))
    assert "\n" not in str(error.value)


BROKEN = {
    "unknown bundle": ('bundle = "pier"', 'bundle = "peer"', r"bundle 'peer': not in pier.toml \(has: pier\)"),
    "misspelt key": ("confirm_s = 1.0", "confirm = 1.0", r"search.confirm: unknown key"),
    "missing key": ("confirm_s = 1.0", "", r"search.confirm_s: missing key \(allowed: 0.2 to 30 s\)"),
    "missing table": ("[return]", "[retrun]", r"retrun: unknown key"),
    "out of range": ("duration_s = 60.0", "duration_s = 0", r"hold.duration_s = 0: .*allowed: 1 to 3600 s"),
    "wrong type": ("duration_s = 60.0", 'duration_s = "long"', r"hold.duration_s = 'long'"),
    "not finite": ("speed_m_s = 1.0", "speed_m_s = nan", r"search.speed_m_s: must be a finite number"),
    "behind the face": ("[0.0, 0.0, 3.0]", "[0.0, 0.0, -3.0]", r"standoff.offset_M.*m out of the face"),
    "no waypoint": ("[{ p_m = [7.0, 0.0, 4.0], yaw_rad = 0.0 }]", "[]", r"search.waypoints"),
    "waypoint outside": ("p_m = [7.0,", "p_m = [70.0,", r"search.waypoints\[0\].p_m .*outside the fence"),
    "waypoint too high": ("p_m = [7.0, 0.0, 4.0]", "p_m = [7.0, 0.0, 7.5]", r"higher than limits.height_m = 7"),
    "waypoint in the ground": (
        "p_m = [7.0, 0.0, 4.0]",
        "p_m = [7.0, 0.0, -0.9]",
        r"waypoints\[0\].p_m .*lower than limits.height_min_m = 0.5 m",
    ),
    "waypoint on the ground": (
        "p_m = [7.0, 0.0, 4.0]",
        "p_m = [7.0, 0.0, 0.0]",
        r"waypoints\[0\].p_m .*lower than limits.height_min_m = 0.5 m",
    ),
    "floor over the ceiling": (
        "\nheight_m = 8.0",
        "\nheight_m = 8.0\nheight_min_m = 8.0",
        r"limits.height_min_m = 8: is not below",
    ),
    "take-off below the floor": (
        "\nheight_m = 8.0",
        "\nheight_m = 8.0\nheight_min_m = 4.5",
        r"takeoff.height_m .*lower than limits.height_min_m = 4.5",
    ),
    "take-off too high": ("[takeoff]\nheight_m = 4.0", "[takeoff]\nheight_m = 30.0", r"takeoff.height_m .*outside"),
    "fence inside out": ("fence_min_m = [-5.0,", "fence_min_m = [15.0,", r"limits.fence_min_m: x = 15 is not below"),
    "photograph too late": ("40.0, 55.0]", "40.0, 61.0]", r"photographs.at_s: 61 s is after the hold of 60 s"),
    "switch missing": ('start = "auto"', 'start = "rc_switch"', r"the table \[rc_switch\] is missing"),
    "unknown start": ('start = "auto"', 'start = "now"', r"start = 'now'"),
    "not TOML": ("[hold]", "[hold", r"not valid TOML"),
    "no marker file": ("../markers/pier.toml", "../markers/pear.toml", r"pear.toml: no such file"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_mission_file_is_refused_in_one_line(tmp_path, case):
    old, new, message = BROKEN[case]
    text = BRIDGE.replace("\nheight_m = 8.0", "\nheight_m = 7.0") if case == "waypoint too high" else BRIDGE
    assert old in text
    path = write(tmp_path, text.replace(old, new, 1))
    with pytest.raises(ConfigError) as error:
        load_plan(path)
    line = str(error.value)
    assert re.search(message, line), line
    assert "\n" not in line and ("mission.toml" in line or "pear.toml" in line)


def test_a_mission_below_its_take_off_point_says_so(tmp_path):
    """From the top of a bridge to its foot."""
    low = BRIDGE.replace("p_m = [7.0, 0.0, 4.0]", "p_m = [7.0, 0.0, -12.0]").replace("-6.0, -1.0]", "-6.0, -20.0]")
    plan = load_plan(write(tmp_path, low.replace("\nheight_m = 8.0", "\nheight_m = 8.0\nheight_min_m = -15.0")))
    assert not leaves_limits((7.0, 0.0, -15.0), plan.limits)
    assert "lower than limits.height_min_m = -15" in leaves_limits((7.0, 0.0, -15.1), plan.limits)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("on_us = [1700, 2100]", "on_us = [1200, 2100]", "overlap"),
        ("on_us = [1700, 2100]", "on_us = [2100, 1700]", "must be below"),
        ('start = "rc_switch"', 'start = "auto"', "has no use"),
    ],
)
def test_switch_ranges_must_make_sense(tmp_path, old, new, message):
    with pytest.raises(ConfigError, match=message):
        load_plan(write(tmp_path, FLOOR.replace(old, new, 1)))


def test_missing_mission_file_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        load_plan(tmp_path / "none.toml")


def test_a_spiral_that_turns_faster_than_the_vehicle_is_refused():
    table = {
        "kind": "spiral", "frame": "world", "centre_m": [3.0, 0.0], "radius_m": 2.0, "height_start_m": 2.0,
        "height_end_m": 4.0, "angle_start_rad": 0.0, "turns": 6.0, "duration_s": 60.0, "ramp_s": 2.0,
    }  # fmt: skip
    slow = line_plan(trajectory=msgspec.convert(table | {"turns": 4.0}, Curve))
    check_vehicle(slow, vehicle())
    with pytest.raises(ConfigError, match=r"turns by 0\.65 rad/s; 0\.9 times controller\.yaw\.rate_max_rad_s = 0\.6"):
        check_vehicle(line_plan(trajectory=msgspec.convert(table, Curve)), vehicle(), "m.toml: ")
