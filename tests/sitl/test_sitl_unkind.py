"""Unkind sensors are drawn from their ranges alone, reproducibly, and change a scenario as its surroundings allow."""

import json
import math
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from companion.cli import DEFAULT_SENSORS, SENSORS, main
from companion.core.config import ConfigError
from companion.core.frames import quat_conjugate, quat_log, quat_multiply
from sitl.airframe import load_airframe, with_thrust
from sitl.autopilot.step_response import overshoot
from sitl.refly import refly
from sitl.scenario import LoadedScenario, SensorKind, load_scenario
from sitl.sensors import PAPER
from sitl.unkind import (
    CAMERA_LATENCY_MIN_S,
    RANGES_FILE,
    UnkindWorld,
    apply,
    check_draw,
    check_ranges,
    draw,
    flown_parameters,
    load_ranges,
    with_sensors,
)

ROOT = Path(__file__).parents[2]
FILE = ROOT / "config" / RANGES_FILE
RANGES = load_ranges(FILE)
SEEDS = range(1, 9)
UP_TO_ROUNDING = 1e-9
ROWS_OF_WORLD = (  # drawn numbers that stand in the world as they were drawn, with an ordinary receiver
    "tilt_std_rad", "tilt_time_s", "heading_offset_rad", "heading_walk_std_rad", "heading_walk_time_s",
    "fcu_velocity_time_s", "corner_noise_px", "corner_drift_px", "corner_drift_time_s", "images_lost",
    "mount_sway_std_rad", "mount_sway_time_s", "thrust_scale", "attitude_overshoot", "wind_m_s",
)  # fmt: skip
replace = msgspec.structs.replace


def scenario(name: str) -> LoadedScenario:
    return load_scenario(ROOT / f"config/scenarios/{name}.toml", camera_mode="corners")


HOVER = scenario("bridge_hover")


@pytest.fixture(scope="module")
def worlds() -> list[UnkindWorld]:
    return [draw(RANGES, HOVER, seed) for seed in SEEDS]


def inside(value: float, row: str) -> bool:
    low, high = getattr(RANGES, row)
    return low - UP_TO_ROUNDING <= value <= high + UP_TO_ROUNDING


def test_every_number_is_inside_its_range(worlds):
    vehicle, gnss = HOVER.vehicle, HOVER.scenario.sensors.gnss
    for world in worlds:
        assert [row for row in ROWS_OF_WORLD if not inside(getattr(world, row), row)] == []
        assert inside(world.gnss_walk_variance_m2 / gnss.walk_variance_m2, "gnss_walk_factor")
        assert inside(world.camera_latency_s - vehicle.latency.camera_s, "latency_error_s")
        assert all(inside(each, "mount_rotation_rad") for each in world.mount_rotation_rad)
        assert all(inside(each, "mount_shift_m") for each in world.mount_shift_m)
        assert len(world.marker_scale) == 5 and len(set(world.marker_scale.values())) == 5
        assert all(inside(each - 1.0, "marker_size_error") for each in world.marker_scale.values())
        assert inside(world.print_scale - 1.0, "print_size_error")
        for jump in world.gnss_jumps:
            assert inside(math.hypot(*jump.offset_m), "gnss_jump_m") and jump.at_s < HOVER.scenario.duration_max_s
            assert inside(jump.duration_s, "gnss_jump_duration_s")
        before = flown_parameters(HOVER.scenario)
        assert len(world.attitude_gains) == 8
        assert all(inside(v / before[name], "attitude_gain_factor") for name, v in world.attitude_gains.items())


@pytest.mark.parametrize("camera_s", [0.0, 0.02, 0.5])
def test_an_image_arrives_after_its_exposure_and_the_errors_stay_even(camera_s):
    vehicle = HOVER.vehicle
    measured = replace(vehicle, latency=replace(vehicle.latency, camera_s=camera_s))
    drawn = [draw(RANGES, replace(HOVER, vehicle=measured), seed).camera_latency_s for seed in range(12)]
    low, high = (camera_s + error for error in RANGES.latency_error_s)
    assert all(max(low, CAMERA_LATENCY_MIN_S) <= latency_s <= high for latency_s in drawn)
    assert len(set(drawn)) == len(drawn)  # not all at the shortest that is possible


def test_a_range_of_delays_that_cannot_be_is_refused():
    short = replace(RANGES, latency_error_s=(-0.2, -0.1))
    with pytest.raises(
        ConfigError, match=r"latency_error_s: its highest number is -0.1, less than -0.055 is impossible"
    ):
        draw(short, HOVER, 1)
    with pytest.raises(ConfigError, match="is impossible"):
        check_ranges(short, HOVER)


def test_most_flights_have_jumps_and_no_two_seeds_the_same_world(worlds):
    assert sum(bool(world.gnss_jumps) for world in worlds) >= len(worlds) - 2
    assert len({world.tilt_std_rad for world in worlds}) == len(worlds)


def test_the_same_seed_draws_the_same_world(worlds):
    assert draw(load_ranges(FILE), HOVER, SEEDS[0]) == worlds[0]


def test_a_changed_row_leaves_the_draws_of_the_others(worlds):
    other = draw(replace(RANGES, corner_noise_px=(5.0, 6.0)), HOVER, SEEDS[0])
    assert other.corner_noise_px > 5.0 and replace(other, corner_noise_px=worlds[0].corner_noise_px) == worlds[0]


def test_the_drawn_gains_overshoot_as_stated_and_some_draws_overshoot_much(worlds):
    for world in worlds[:3]:
        parameters = flown_parameters(HOVER.scenario)
        for name, value in world.attitude_gains.items():
            assert parameters.set(name, value)
        airframe = with_thrust(load_airframe("f550"), world.thrust_scale)
        assert overshoot(airframe, parameters) == pytest.approx(world.attitude_overshoot, abs=1e-6)
    assert overshoot(load_airframe("f550"), flown_parameters(HOVER.scenario)) == pytest.approx(0.0, abs=0.002)
    assert max(world.attitude_overshoot for world in worlds) > 0.04


def test_gains_that_cannot_be_found_are_refused_with_the_row():
    with pytest.raises(ConfigError, match="attitude_overshoot = \\[0.8, 0.9\\]"):
        draw(replace(RANGES, attitude_overshoot=(0.8, 0.9)), HOVER, 1)


def test_the_check_refuses_what_the_draw_refuses():
    """A narrow range, for which some seeds have gains and the others have none."""
    narrow = replace(RANGES, attitude_overshoot=(0.3, 0.32), attitude_gain_factor=(0.5, 3.0))

    def refused(what, seed):
        try:
            what(narrow, HOVER, seed)
        except ConfigError as error:
            return str(error)
        return ""

    found = [refused(draw, seed) for seed in range(6)]
    assert [refused(check_draw, seed) for seed in range(6)] == found and len(set(found)) == 2, found


def test_the_drawn_world_is_in_the_scenario(worlds):
    world = worlds[0]
    flown = apply(HOVER, world).scenario
    gnss, camera, vehicle = flown.sensors.gnss, flown.camera, HOVER.vehicle.camera
    assert flown.thrust_scale == world.thrust_scale
    assert gnss.jumps == world.gnss_jumps and gnss.walk_variance_m2 == world.gnss_walk_variance_m2
    assert np.array(camera.p_BC) - vehicle.p_BC == pytest.approx(world.mount_shift_m)
    turned = quat_log(quat_multiply(quat_conjugate(np.array(vehicle.q_BC)), np.array(camera.q_BC)))
    assert turned == pytest.approx(world.mount_rotation_rad, abs=1e-9)
    assert (camera.fx, camera.distortion) == (HOVER.scenario.camera.fx, HOVER.scenario.camera.distortion)
    assert flown.fcu_parameters["COM_OF_LOSS_T"] == 0.5, "what the crew has set stays"
    assert flown.fcu_parameters["MC_ROLL_P"] == world.attitude_gains["MC_ROLL_P"]


def test_thrust_is_one_draw_in_place_of_the_scenarios():
    laboratory = scenario("hover_wind")
    assert laboratory.scenario.thrust_scale == 0.92
    assert apply(laboratory, draw(RANGES, laboratory, 3)).scenario.thrust_scale == draw(RANGES, HOVER, 3).thrust_scale


def test_outdoors_there_is_dryden_air_from_the_scenarios_direction(worlds):
    wind = apply(HOVER, worlds[0]).scenario.wind
    assert math.hypot(*wind.mean_m_s) == pytest.approx(worlds[0].wind_m_s)
    assert wind.mean_m_s[1] / wind.mean_m_s[0] == pytest.approx(4.0)
    assert not any(wind.gust_std_m_s) and wind.dryden is not None
    assert wind.dryden.wind_at_20_ft_m_s == worlds[0].wind_m_s and wind.dryden.height_m == 4.0


@pytest.mark.parametrize("name", ["hover_wind", "spiral_side", "figure8_wind_8"])
def test_an_experiment_keeps_its_air(name):
    laboratory = scenario(name)
    flown = with_sensors(laboratory, SensorKind.UNKIND, 2)
    assert flown.drawn is not None and flown.scenario.wind == laboratory.scenario.wind


def test_a_better_position_source_gets_its_share_of_the_errors(worlds):
    """Motion capture: 1 mm, no walk, heading by the body's markers."""
    captured, outdoors = draw(RANGES, scenario("spiral_side"), SEEDS[0]), worlds[0]
    source = scenario("spiral_side").scenario.sensors
    share = math.sqrt(source.gnss.white_variance_m2 / PAPER.gnss.white_variance_m2)
    assert captured.gnss_walk_variance_m2 == 0.0
    assert max(math.hypot(*jump.offset_m) for jump in captured.gnss_jumps) <= 3.0 * share < 0.1
    assert captured.heading_offset_rad == pytest.approx(outdoors.heading_offset_rad / 7, rel=0.01)
    assert captured.fcu_velocity_std_m_s <= 0.4 * RANGES.fcu_velocity_std_m_s[1] + UP_TO_ROUNDING


def test_kind_sensors_are_the_scenario_file():
    assert with_sensors(HOVER, SensorKind.KIND, 1) is HOVER and HOVER.sensors == SensorKind.KIND


# --- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("tilt_std_rad = [0.00524, 0.02618]", "tilt_std_rad = [0.03, 0.02]", ["tilt_std_rad", "0.03", "above"]),
        ("tilt_std_rad =", "tilt_sdt_rad =", ["tilt_sdt_rad", "unknown key"]),
        ("tilt_time_s = [10.0, 60.0]", "tilt_time_s = [0.0, 60.0]", ["tilt_time_s", "0.1 to 1000 s"]),
        ("images_lost = [0.0, 0.10]", "images_lost = [0.0, 1.5]", ["images_lost", "1.5"]),
        ("tilt_std_rad = [0.00524", "tilt_std_rad = [-0.1", ["tilt_std_rad", "0 to 0.5 rad"]),
        ("images_lost = [0.0, 0.10]", "images_lost = [0.1]", ["images_lost"]),
        ("images_lost = [0.0, 0.10]", 'images_lost = "few"', ["images_lost"]),
        ("wind_m_s = [3.0, 8.0]", "", ["wind_m_s", "missing"]),
        ("wind_m_s = [3.0, 8.0]", "wind_m_s = [nan, 8.0]", ["wind_m_s"]),
    ],
)
def test_a_bad_ranges_file_is_refused_in_one_line(tmp_path, old, new, words):
    text = FILE.read_text()
    assert text.count(old) == 1
    path = tmp_path / "unkind.toml"
    path.write_text(text.replace(old, new))
    with pytest.raises(ConfigError) as refused:
        load_ranges(path)
    line = str(refused.value)
    assert "\n" not in line and str(path) in line
    assert [word for word in words if word not in line] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sim", "bridge_hover", "--sensors", "unkid"], "'unkid' is not one of 'kind', 'unkind'"),
        (["compare", "bridge_hover", "--sensors", "evil"], "'evil' is not one of 'kind', 'unkind'"),
        (["fly", "bridge_hover", "--fcu", "sim", "--sensors", "evil"], "'evil' is not one of 'kind', 'unkind'"),
        (["fly", "bridge_hover", "--fcu", "udpin:127.0.0.1:14999", "--sensors", "unkind"], "only with --fcu sim"),
    ],
)
def test_a_wrong_choice_is_refused_in_one_line(tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2 and said in result.output
    assert len(result.output.strip().splitlines()) == 1


def test_the_simulator_process_refuses_a_wrong_choice_in_one_line(tmp_path):
    words = [sys.executable, "-m", "sitl.realtime", HOVER.path, "--bus", tmp_path / "bus", "--sensors", "evil"]
    result = subprocess.run(list(map(str, words)), cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    assert result.stderr.splitlines() == ["simulator: --sensors evil: must be one of kind, unkind"]


def test_the_command_line_knows_the_same_kinds():
    assert tuple(SensorKind) == SENSORS and DEFAULT_SENSORS in SENSORS


# --- a flight -------------------------------------------------------------------------------------------------------


def test_the_result_says_what_was_drawn_and_the_flight_comes_again_from_its_log_alone(tmp_path):
    short, out, log = tmp_path / "short.toml", tmp_path / "result.json", tmp_path / "flight.mcap"
    short.write_text(
        f'base = "{ROOT}/config/scenarios/bridge_hover.toml"\nduration_max_s = 3.0\ncamera_mode = "corners"\n'
        f'mission = "{ROOT}/config/missions/bridge_hover.toml"\nvehicle = "{ROOT}/config/vehicles/f550.toml"\n'
    )
    words = ["sim", str(short), "--sensors", "unkind", "--seed", "3", "--json", str(out), "--log", str(log)]
    CliRunner().invoke(main, words)
    result = json.loads(out.read_text())
    expected = with_sensors(load_scenario(short), SensorKind.UNKIND, 3).drawn
    assert result["sensors"] == "unkind" and msgspec.convert(result["drawn"], UnkindWorld) == expected
    comparison = refly(log)
    assert comparison.equal and comparison.messages > 1000
