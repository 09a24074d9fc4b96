"""What a campaign file may say, and that every mistake is one line with file and field before any flight."""

import re
import shutil
import time

import msgspec
import pytest

from companion.core.config import ConfigError
from companion.core.config_files import config_folder
from sitl.airframe import load_airframe
from sitl.campaign import flights
from sitl.campaign.campaign_file import load_campaign
from sitl.campaign.flights import _Base, _inputs, plan_campaign
from tests.campaign.small_campaigns import MASS, SHORT, campaign, draw

UNIFORM = {"distribution": "uniform", "low": 0.5, "high": 1.0}
BAD_DRAWS = {
    "a field that does not exist": (
        draw("vehicle.masss_kg", **UNIFORM), ("draw[0] vehicle.masss_kg", "f550.toml", "unknown key", "mass_kg")),
    "a table that does not exist": (
        draw("scenario.winds.mean_m_s[0]", **UNIFORM), ("scenario.winds", "bridge_hover.toml", "winds: unknown key")),
    "a file that does not exist": (draw("vehicel.mass_kg", **UNIFORM), ("vehicel", "did you mean 'vehicle'?")),
    "no path": (draw("vehicle..mass_kg", **UNIFORM), ("not a dotted path",)),
    "a whole file": (draw("vehicle", **UNIFORM), ("names a whole file",)),
    "a file's name": (draw("scenario.mission", distribution="choice", values=["a"]), ("scenario.mission", "cannot be drawn")),
    "an index too far": (draw("scenario.start.p_W[7]", **UNIFORM), ("the list has 3 elements",)),
    "through a number": (draw("vehicle.mass_kg.low", **UNIFORM), ("vehicle.mass_kg", "is not a table")),
    "every element of no list": (draw("fault[*].at_s", **UNIFORM), ("fault[*].at_s", "no such list")),
    "a range that is forbidden above": (
        draw("vehicle.mass_kg", distribution="uniform", low=1.5, high=500.0), ("vehicle.mass_kg = 500", "f550.toml", "allowed")),
    "a range that is forbidden below": (
        draw("airframe.mass_kg", distribution="uniform", low=-1.0, high=2.0), ("airframe.mass_kg = -1", "allowed")),
    "a factor that leads out of the range": (
        draw("airframe.mass_kg", distribution="uniform", low=1.0, high=99.0, apply="factor"), ("airframe.mass_kg", "allowed")),
    "a bound of a normal distribution": (
        draw("vehicle.mass_kg", distribution="normal", mean=1.8, std=0.0, low=-5.0), ("vehicle.mass_kg = -5", "allowed")),
    "one of several values": (
        draw("vehicle.mass_kg", distribution="choice", values=[1.8, "heavy"]), ("vehicle.mass_kg = heavy", "expected")),
    "a contradiction of the vehicle file": (
        draw("vehicle.safety.battery_low_v", distribution="uniform", low=5.0, high=13.6), ("battery",)),
    "a stand-off nearer than the safety table permits": (
        draw("mission.standoff.offset_M[2]", distribution="uniform", low=0.6, high=3.0), ("standoff_min_m", "bridge_hover.toml")),
    "an unknown fault": (
        draw("fault", distribution="choice", values=[[{"kind": "gnss_lots", "at_s": 1.0}]]), ("gnss_lots", "gnss_lost")),
    "a fault without its numbers": (
        draw("fault", distribution="choice", values=[[{"kind": "gust", "at_s": 1.0}]]), ("gust", "needs 3")),
    "a factor of no number": (
        draw("scenario.name", distribution="uniform", low=1.0, high=2.0, apply="factor"), ("scenario.name", "needs a number")),
    "an unknown parameter of PX4": (
        draw("scenario.fcu_parameters.NAV_RLC_ACT", distribution="choice", values=[3]), ("NAV_RLC_ACT", "no such parameter")),
    "ranges of unkind sensors for kind ones": (draw("unkind.wind_m_s", **UNIFORM), ("has no use with sensors",)),
    "a solid of no world": (draw("world.solid[0].size_m[0]", **UNIFORM), ("bridge_hover names no world file",)),
    "low above high": (draw("vehicle.mass_kg", distribution="uniform", low=2.0, high=1.0), ("draw[0].low = 2", "high = 1")),
    "a range without end": (draw("vehicle.mass_kg", distribution="uniform", low=-1e308, high=1e308), ("low = -1e+308: too far",)),
    "a field that a later draw replaces": (
        draw("fault[0].at_s", **UNIFORM) + draw("fault", distribution="fixed", value=[]),
        ("draw[1]: fault: replaces fault[0].at_s",)),
    "an element that a later draw of all replaces": (
        draw("fault[0].at_s", **UNIFORM) + draw("scenario.fault[*].at_s", **UNIFORM),
        ("draw[1]: scenario.fault[*].at_s: replaces fault[0].at_s",)),
    "no logarithm": (draw("vehicle.mass_kg", distribution="log_uniform", low=0.0, high=1.0), ("logarithm",)),
    "a mean outside": (draw("vehicle.mass_kg", distribution="normal", mean=1.0, std=0.1, low=1.5), ("the mean 1",)),
    "an unknown distribution": (draw("vehicle.mass_kg", distribution="unform", low=1.0, high=2.0), ("unform", "uniform")),
    "a missing number": (draw("vehicle.mass_kg", distribution="uniform", low=1.0), ("draw[0].high: missing key",)),
    "an unknown key of a draw": (draw("vehicle.mass_kg", **UNIFORM, step=1.0), ("draw[0].step: unknown key",)),
    "no values": (draw("vehicle.mass_kg", distribution="list", values=[]), ("draw[0].values",)),
    "weights of other values": (
        draw("vehicle.mass_kg", distribution="choice", values=[1.8, 2.0], weights=[1.0]), ("1 numbers for 2 values",)),
    "labels of other values": (
        draw("vehicle.mass_kg", distribution="choice", values=[1.8], labels=["a", "b"]), ("2 names for 1 values",)),
    "a field twice": (MASS + MASS, ("airframe.mass_kg is drawn twice",)),
}  # fmt: skip
BAD_HEADS = {
    "no such scenario": ({"scenarios": '["bridge_hoover"]'}, ("bridge_hoover", "did you mean 'bridge_hover'?")),
    "no scenario": ({"scenarios": "[]"}, ("scenarios",)),
    "a mission for a scenario": ({"scenarios": '["lab_line"]'}, ("lab_line is a mission",)),
    "a scenario twice": ({"scenarios": '["bridge_hover", "bridge_hover"]'}, ("stands there twice",)),
    "an unknown stack": ({"stacks": '["ful"]'}, ("did you mean 'full'?",)),
    "unknown sensors": ({"sensors": '"rude"'}, ("allowed: kind, unkind, both",)),
    "a seed twice": ({"seeds": "[1, 2, 1]"}, ("seeds: 1 stands there twice",)),
    "no seeds": ({"seeds": "{ first = 1, count = 0 }"}, ("seeds.count",)),
    "an unknown key": ({"jobs": "2"}, ("jobs: unknown key",)),
    "an unknown vehicle": ({"vehicle": '"f505"'}, ("f505", "did you mean 'f550'?")),
    "a limit out of its range": ({"limits": "{ wall_s = 0.0 }"}, ("limits.wall_s = 0.0", "allowed")),
}


def refusal(path) -> str:
    with pytest.raises(ConfigError) as error:
        plan_campaign(path)
    line = str(error.value)
    assert "\n" not in line and line.startswith(str(path)), line
    assert "/companion-campaign-" not in line, "the temporary folder of the check"
    return line


@pytest.mark.parametrize("case", BAD_DRAWS)
def test_a_bad_draw_is_one_line_that_names_file_and_field(tmp_path, case):
    table, words = BAD_DRAWS[case]
    line = refusal(campaign(tmp_path, table, seeds="[1]"))
    assert all(word in line for word in words), line


@pytest.mark.parametrize("case", BAD_HEADS)
def test_a_bad_key_is_one_line_that_names_the_file(tmp_path, case):
    changes, words = BAD_HEADS[case]
    line = refusal(campaign(tmp_path, **changes))
    assert all(word in line for word in words), line


def test_a_drawn_field_that_unkind_sensors_replace_is_refused(tmp_path):
    table = draw("scenario.thrust_scale", distribution="uniform", low=0.9, high=1.1)
    line = refusal(campaign(tmp_path, table, sensors='"unkind"', seeds="[1]"))
    assert "scenario.thrust_scale: unkind sensors replace it" in line


CALM, WIND = [0.0, 0.0, 0.0], [0.0, 6.0, 0.0]


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ((draw("scenario.wind.mean_m_s", distribution="list", values=[CALM, WIND]),), "draw[0] "),
        ((draw("scenario.wind.mean_m_s[1]", distribution="uniform", low=0.0, high=6.0),
          draw("scenario.wind.mean_m_s[0]", distribution="fixed", value=0.0)), "draw[0] "),
        ((draw("scenario.wind.mean_m_s", distribution="list", values=[CALM, WIND]),
          draw("scenario.wind.gust_std_m_s", distribution="list", values=[CALM, WIND])), "flight 2 "),
        ((draw("scenario.gnss_gates_apart", distribution="list", values=[True, False]),), "draw[0] "),
    ],
)  # fmt: skip
def test_a_field_that_unkind_sensors_replace_in_some_flights_only_is_refused(tmp_path, tables, said):
    """Whether they replace the wind depends on the drawn wind: the first seed keeps it here."""
    line = refusal(campaign(tmp_path, *tables, sensors='"unkind"', seeds="[1, 2]"))
    assert said in line and "unkind sensors replace it" in line
    plan_campaign(campaign(tmp_path, *tables, seeds="[1, 2]"))


def test_an_unkind_latency_that_is_impossible_for_the_vehicle_is_refused_before_the_first_flight(tmp_path):
    """Whether a seed of the campaign draws it or not: the range of the draw has it."""
    latency = draw("unkind.latency_error_s", distribution="uniform", low=-0.03, high=0.03)
    fast = draw("vehicle.latency.camera_s", distribution="fixed", value=0.02)
    line = refusal(campaign(tmp_path, fast, latency, sensors='"unkind"', seeds="[1]"))
    assert "unkind.latency_error_s = -0.03 in bridge_hover" in line and "less than -0.015 is impossible" in line
    normal = draw("unkind.latency_error_s", distribution="normal", mean=0.0, std=0.03)  # has no ends
    line = refusal(campaign(tmp_path, fast, normal, sensors='"both"', seeds="{ first = 1, count = 9 }"))
    number = int(re.search(r"flight (\d+) of bridge_hover: latency_error_s: ", line)[1])
    assert number % 2 == 0, "the even ones have unkind sensors"
    plan_campaign(campaign(tmp_path, fast, normal, sensors='"both"', seeds="{ first = 1, count = 9 }"), only=number - 1)
    plan_campaign(campaign(tmp_path, SHORT, fast, sensors='"unkind"', seeds="[1]"))  # a range that is possible in part


def test_unkind_gains_that_cannot_be_found_are_refused_before_the_first_flight(tmp_path):
    overshoot = draw("unkind.attitude_overshoot", distribution="list", values=[[0.0, 0.12], [0.8, 0.9]])
    line = refusal(campaign(tmp_path, overshoot, sensors='"unkind"', seeds="[1, 2, 3]"))
    assert "flight 2 of bridge_hover: sensors/unkind.toml: attitude_overshoot = [0.8, 0.9]: 20 draws" in line


def test_only_a_flight_shows_what_two_draws_together_forbid(tmp_path):
    """Each range is allowed by itself; the line names the flight."""
    fence = draw("mission.limits.height_m", distribution="list", values=[8.0, 3.0])
    line = refusal(campaign(tmp_path, fence, draw("mission.takeoff.height_m", distribution="list", values=[2.0, 4.0])))
    assert re.search(r"(flight 2 of bridge_hover|draw\[\d\])", line), line


def test_a_file_of_another_kind_is_named(tmp_path):
    path = campaign(tmp_path)
    path.write_text('[[bundle]]\nname = "x"\n')
    assert "bundle: unknown key" in refusal(path)


EDITS = {  # file in the folder of the configuration: text, other text, and the entry that is to change
    "sensors/unkind.toml": ("wind_m_s = [", "wind_m_s = [ ", None),  # a comment or a space is no change
    "scenarios/bridge_hover.toml": ("duration_max_s = 240", "duration_max_s = 241", "scenario bridge_hover.toml of scenario bridge_hover"),
    "missions/bridge_hover.toml": ("timeout_s = 20.0", "timeout_s = 21.0", "mission bridge_hover.toml of scenario bridge_hover"),
    "autopilots/px4_1_17.toml": ("MPC_XY_P = 0.95", "MPC_XY_P = 0.96", "autopilot px4_1_17.toml"),
    "autopilots/f550.toml": ("MC_ROLL_P = 5.0", "MC_ROLL_P = 5.1", "autopilot f550.toml of scenario"),
    "airframes/f550.toml": ("mass_kg = 1.8", "mass_kg = 1.81", "airframe f550 of scenario"),
    "vehicles/f550.toml": ("mass_kg = 1.8", "mass_kg = 1.81", "vehicle f550"),
    "markers/pier.toml": ("size_m = 0.30", "size_m = 0.31", "markers pier.toml of scenario bridge_hover"),
    "worlds/two_piers.toml": ("shapes_wind = false", "shapes_wind = true", "world two_piers.toml of scenario two_piers"),
    "cameras/sony_rx1_gimbal.toml": ("exposure_s = 0.002", "exposure_s = 0.003", "payload camera sony_rx1_gimbal.toml of scenario two_piers"),
    "batteries/f550_4s_5ah.toml": ("cell_v = 3.7", "cell_v = 3.6", "payload battery f550_4s_5ah.toml of scenario two_piers"),
}  # fmt: skip


@pytest.fixture
def own_configuration(tmp_path, monkeypatch):
    shutil.copytree(config_folder(), tmp_path / "config")
    monkeypatch.setenv("COMPANION_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path / "config"


def test_a_changed_file_of_any_kind_is_another_campaign(tmp_path, own_configuration):
    """Also a scenario whose mission has the same file name, and what a flight reads beside the files of its scenario."""

    def inputs():
        return plan_campaign(campaign(tmp_path, scenarios='["bridge_hover", "two_piers"]', seeds="[1]")).inputs

    before = inputs()
    for name, (text, other, entry) in EDITS.items():
        file = own_configuration / name
        assert text in file.read_text(), name
        file.write_text(file.read_text().replace(text, other, 1))
        after = inputs()
        changed = [key for key in before if after[key] != before[key]]
        assert after.keys() == before.keys() and (changed and changed[0].startswith(entry) if entry else not changed), (
            name,
            changed,
        )
        before = after


def test_every_file_has_an_entry_with_its_role(tmp_path):
    inputs = plan_campaign(campaign(tmp_path, scenarios='["bridge_solid"]', seeds="[1]")).inputs
    files = (
        "scenario bridge_solid.toml", "vehicle f550.toml", "mission bridge_hover.toml", "markers pier.toml", "world bridge.toml",
        "airframe f550", "autopilot f550.toml",
    )  # fmt: skip
    named = {f"{file} of scenario bridge_solid" for file in files}
    assert set(inputs) == {"campaign small.toml", "ranges sensors/unkind.toml", "autopilot px4_1_17.toml", *named}


def test_texts_and_pictures_beside_the_files_have_entries_before_those_that_name_them(tmp_path):
    path = campaign(tmp_path)
    base = _Base(path, load_campaign(path), "bridge_solid")

    def hashes(**files):
        base.files = msgspec.structs.replace(base.files, **files)
        return _inputs(path, [base])

    before = hashes(plans={"a.plan": "1"}, dictionaries={"own.yml": "1"}, world_files={"wall.png": b"1"})
    for files, entry in (
        ({"plans": {"a.plan": "2"}}, "plan a.plan"),
        ({"dictionaries": {"own.yml": "2"}}, "marker dictionary own.yml"),
        ({"world_files": {"wall.png": b"2"}}, "mesh or image wall.png"),
    ):
        after = hashes(**files)
        assert next(n for n in before if after[n] != before[n]) == f"{entry} of scenario bridge_solid"
        before = after


def test_too_many_solvers_are_refused(tmp_path):
    from sitl.campaign.flights import solver_vehicles

    table = draw("vehicle.controller.horizon_s", distribution="uniform", low=1.0, high=1.2)
    plan = plan_campaign(campaign(tmp_path, table, seeds="{ first = 1, count = 9 }"))
    with pytest.raises(ConfigError, match="9 different solvers"):
        solver_vehicles(plan.flights)


def test_fields_of_every_file_reach_the_flight(tmp_path):
    path = campaign(
        tmp_path,
        SHORT,
        MASS,
        draw("vehicle.mass_kg", distribution="fixed", value=1.9),
        draw("mission.standoff.offset_M[2]", distribution="list", values=[2.0, 2.5, 3.5]),
        draw("markers.bundle[0].markers[1].size_m", distribution="uniform", low=1.1, high=1.2, apply="factor"),
        draw("scenario.wind.mean_m_s[1]", distribution="uniform", low=0.5, high=1.5, apply="offset"),
        draw("fault", distribution="choice", values=[[{"kind": "gnss_lost", "at_s": 0.0}, {"kind": "markers_hidden", "at_s": 0.0}]], labels=["both_lost"]),
        draw("fault[*].at_s", distribution="uniform", low=0.5, high=1.0),
        draw("scenario.thrust_scale", distribution="normal", mean=1.0, std=0.2, low=0.9, high=1.1, apply="factor"),
    )  # fmt: skip
    plan = plan_campaign(path)
    flight = plan.flights[1]
    (tmp_path / "files").mkdir()
    loaded = flight.loaded(tmp_path / "files")
    drawn, scenario = flight.fields, loaded.scenario
    assert loaded.vehicle.mass_kg == 1.9 and scenario.duration_max_s == 1.5
    assert (
        scenario.airframe_changes == {"mass_kg": drawn["airframe.mass_kg"]}
        and 1.62 <= drawn["airframe.mass_kg"] <= 1.98
    )
    assert loaded.plan.standoff.offset_M[2] == 2.5 and loaded.plan.standoff.offset_M[0] == 0.0
    assert loaded.site.find("pier").markers[1].size_m == drawn["markers.bundle[0].markers[1].size_m"] > 0.3
    assert scenario.wind.mean_m_s[1] == drawn["scenario.wind.mean_m_s[1]"] and 4.5 <= scenario.wind.mean_m_s[1] <= 5.5
    assert [fault.at_s for fault in scenario.fault] == [drawn["fault[*].at_s"]] * 2 and drawn["fault"] == "both_lost"
    assert scenario.thrust_scale == drawn["scenario.thrust_scale"] != 1.0
    assert len({f.fields["airframe.mass_kg"] for f in plan.flights}) == 3


def test_a_draw_that_changes_every_element_is_recorded_itself(tmp_path):
    """Each fault has a time of its own: that of the last one would stand for all."""
    offset = draw("fault[*].at_s", distribution="uniform", low=-5.0, high=5.0, apply="offset")
    same = draw("fault[*].duration_s", distribution="uniform", low=1.0, high=2.0)
    plan = plan_campaign(campaign(tmp_path, offset, same, scenarios='["two_piers"]', seeds="[1]"))
    (flight,) = plan.flights
    drawn = flight.fields["fault[*].at_s (offset)"]
    base = _Base(plan.path, plan.campaign, "two_piers")
    own, flown = base.files.scenario["fault"], flight.files.scenario["fault"]
    assert len(own) > 1 and [fault["at_s"] - drawn for fault in flown] == pytest.approx([f["at_s"] for f in own])
    assert {fault["duration_s"] for fault in flown} == {flight.fields["fault[*].duration_s"]}
    assert len(flight.fields) == 2 and -5.0 <= drawn <= 5.0


def scenario_of(folder, airframe):
    """bridge_hover with another airframe; its name for a campaign file."""
    text = (config_folder() / "scenarios/bridge_hover.toml").read_text(encoding="utf-8")
    for old, new in (('"../', f'"{config_folder()}/'), ('airframe = "f550"', f'airframe = "{airframe}"')):
        assert old in text
        text = text.replace(old, new)
    (folder / "own.toml").write_text(text, encoding="utf-8")
    return '["own.toml"]'


def test_numbers_of_a_table_with_keys_that_the_file_leaves_out_can_be_drawn(tmp_path):
    """An airframe with [[hub]] has no rotor.height_m."""
    thrust = draw("airframe.rotor.thrust_max_n", distribution="uniform", low=0.9, high=1.1, apply="factor")
    place = draw("airframe.hub[0].p_m[2]", distribution="uniform", low=0.06, high=0.07)
    path = campaign(tmp_path, thrust, place, scenarios=scenario_of(tmp_path, "x8"), vehicle='"x8"', seeds="[1]")
    (flight,) = plan_campaign(path).flights
    (tmp_path / "files").mkdir()
    scenario = flight.loaded(tmp_path / "files").scenario
    airframe = load_airframe(scenario.airframe, scenario.airframe_changes)
    assert airframe.rotor.thrust_max_n == flight.fields["airframe.rotor.thrust_max_n"] != 22.0
    assert airframe.hubs[0].p_m[2] == flight.fields["airframe.hub[0].p_m[2]"] and airframe.hubs[1].p_m[2] == 0.06


def test_a_table_that_the_file_leaves_out_is_made(tmp_path):
    speed = draw("airframe.motor.idle_speed_rad_s", distribution="uniform", low=800.0, high=900.0)
    torque = draw("airframe.motor.starting_torque_n_m", distribution="fixed", value=0.9)
    (flight,) = plan_campaign(campaign(tmp_path, speed, torque, seeds="[1]")).flights
    motor = {"idle_speed_rad_s": flight.fields["airframe.motor.idle_speed_rad_s"], "starting_torque_n_m": 0.9}
    assert flight.files.scenario["airframe_changes"] == {"motor": motor}
    assert "motor.starting_torque_n_m: missing key" in refusal(campaign(tmp_path, speed, seeds="[1]"))


def test_of_a_single_flight_no_other_is_drawn(tmp_path, monkeypatch):
    """A hundred thousand flights, of which one is to be flown: the time to plan does not grow with them."""
    seeds, drawn = "{ first = 1, count = 100000 }", []
    chosen = flights.chosen_for
    monkeypatch.setattr(flights, "chosen_for", lambda *given: drawn.append(given[2]) or chosen(*given))
    path = campaign(tmp_path, MASS, stacks='["full", "px4"]', seeds=seeds)
    plan = plan_campaign(path, only=150_001)
    (flight,) = plan.flights
    assert (flight.number, flight.seed, flight.stack, drawn) == (150_001, 75_001, "full", [75_001])
    assert plan.campaign.size == 200_000
    few = plan_campaign(campaign(tmp_path, MASS, stacks='["full", "px4"]', seeds="[75001]"))
    assert flight.fields == few.flights[0].fields


def test_a_long_list_of_seeds_is_read_at_once(tmp_path):
    """Each seed was compared with all before it: minutes for this list."""
    began_s = time.process_time()
    loaded = load_campaign(campaign(tmp_path, seeds=str(list(range(100_000)))))
    assert len(loaded.all_seeds) == 100_000 and time.process_time() - began_s < 10.0


def test_tables_of_which_nothing_is_drawn_are_shared_by_the_flights(tmp_path):
    one, two, _ = plan_campaign(campaign(tmp_path, MASS)).flights
    assert one.files.mission is two.files.mission and one.files.vehicle is two.files.vehicle
    assert one.files.scenario["airframe_changes"] != two.files.scenario["airframe_changes"]


def test_ranges_of_unkind_sensors_are_drawn_for_the_seed(tmp_path):
    path = campaign(
        tmp_path,
        draw("unkind.wind_m_s", distribution="uniform", low=9.0, high=12.0),
        draw("unkind.mount_shift_m", distribution="fixed", value=[-0.001, 0.001]),
        sensors='"both"',
        seeds="[5]",
    )
    kind, unkind = plan_campaign(path).flights
    assert (kind.sensors, unkind.sensors) == ("kind", "unkind")
    assert kind.fields == {} and unkind.fields["unkind.wind_m_s"] > 9.0
    (tmp_path / "files").mkdir()
    world = unkind.in_its_world(unkind.loaded(tmp_path / "files")).drawn
    assert world.wind_m_s == unkind.fields["unkind.wind_m_s"]
    assert max(map(abs, world.mount_shift_m)) <= 0.001 and world.tilt_std_rad > 0.005
