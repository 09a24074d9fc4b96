"""A world with solids: what the camera sees, what the air does, how a flight ends, what a log holds."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from companion.core.enums import Phase
from companion.core.frames import quat_from_rpy
from companion.core.messages import Contact, MissionStatus, Truth
from companion.mission.plan import Limits
from companion.recording.log import read_log
from companion.runtime.flight_record import flight_metadata, open_recorder
from sitl.airframe import load_airframe
from sitl.camera import SceneCamera
from sitl.campaign.flights import plan_campaign
from sitl.flight_end import FlightEnd, judge
from sitl.refly import unpack
from sitl.scenario import load_scenario, world_problem
from sitl.sensors import RangeFinderConfig
from sitl.simulate import simulate
from sitl.solids.solids import Solids
from sitl.solids.world_file import Box, Cylinder, Plate
from sitl.world import World
from tests.campaign.small_campaigns import campaign, draw
from tests.solids.world_makers import COMMON, rock, solids_of

ROOT = Path(__file__).parents[2]
SCENARIO = ROOT / "config/scenarios/bridge_solid.toml"
replace = msgspec.structs.replace


@pytest.fixture(scope="module")
def loaded():
    return load_scenario(SCENARIO)


def hover(world, p_W):
    world.plant.p_W[:] = p_W
    world.plant.v_W[:] = 0.0


def markers_seen(loaded, solids, p_WB):
    scenario = loaded.scenario
    camera = SceneCamera(scenario.camera, scenario.scene, loaded.site, 1, draw=False, solids=solids)
    return len(camera.project_corners(0.0, p_WB, (1.0, 0.0, 0.0, 0.0)))


def test_markers_are_seen_on_the_pier_and_hidden_behind_a_solid(loaded):
    p_WB = (9.0, 0.0, 4.0)
    assert markers_seen(loaded, None, p_WB) == markers_seen(loaded, loaded.solids, p_WB) == 5
    curtain = Box(name="curtain", p_W=(10.5, 1.0, 4.0), size_m=(0.05, 2.0, 3.0), **COMMON)  # before the left half
    assert 0 < markers_seen(loaded, solids_of(curtain), p_WB) < 5
    assert markers_seen(loaded, solids_of(replace(curtain, p_W=(10.5, 0.0, 4.0))), p_WB) == 0
    assert markers_seen(loaded, solids_of(replace(curtain, p_W=(12.5, 0.0, 4.0))), p_WB) == 5  # behind the markers


def test_an_aircraft_begins_on_the_top_of_a_solid(loaded):
    table = Box(name="table", p_W=(0.0, 0.0, 1.0), size_m=(2.0, 2.0, 2.0), **COMMON)
    start = replace(loaded.scenario.start, p_W=(0.0, 0.0, 2.0))
    scenario = replace(loaded.scenario, start=start)
    world = World(replace(loaded, scenario=scenario, solids=solids_of(table)), 1)
    for _ in range(100):
        world.advance()
    assert world.plant.on_ground and world.plant.p_W[2] == pytest.approx(2.0 + world.plant.rest_height_m, abs=5e-3)
    assert world.contacts and all(contact.landing for contact in world.contacts)


def start_problem(loaded, p_W, *solids, airframe="f550"):
    scenario = replace(loaded.scenario, start=replace(loaded.scenario.start, p_W=p_W))
    return world_problem(
        scenario, loaded.plan, solids_of(*solids) if solids else loaded.solids, load_airframe(airframe)
    )


@pytest.mark.parametrize("x_m", [12.2, 13.0, 11.9, 11.65, 14.1])  # in the pier, and its rotors from both sides
def test_a_start_on_the_ground_in_a_pier_is_refused(loaded, x_m):
    said = start_problem(loaded, (x_m, 0.0, 0.0))
    assert said.startswith("start.p_W: the aircraft stands in the solid 'pier': its rotors reach 0.40 m"), said


def test_a_start_beside_a_pier_is_allowed_as_far_as_the_rotors_reach(loaded):
    assert start_problem(loaded, (11.6, 0.0, 0.0)) == ""
    assert "'pier'" in start_problem(loaded, (11.6, 0.0, 0.0), *loaded.solids.file.solid, airframe="aurelia_x6")


def test_starts_on_a_table_a_deck_and_a_slope_are_allowed(loaded):
    table = Box(name="table", p_W=(0.0, 0.0, 1.0), size_m=(2.0, 2.0, 2.0), **COMMON)
    assert start_problem(loaded, (0.0, 0.0, 2.0), table) == ""
    assert start_problem(loaded, (0.9, 0.9, 2.0), table) == ""
    slab = replace(table, p_W=(0.0, 0.0, 0.05), size_m=(2.0, 2.0, 0.1))  # the ground is raised to its top
    assert start_problem(loaded, (0.0, 0.0, 0.0), slab) == ""
    slope = replace(table, p_W=(0.0, 0.0, 0.0), rpy_rad=(0.0, 0.3, 0.0), size_m=(4.0, 4.0, 1.0))
    assert start_problem(loaded, (0.0, 0.0, 0.5 / np.cos(0.3)), slope) == ""


@pytest.mark.parametrize(
    "solid",
    [
        Box(name="it", p_W=(0.3, 0.0, 1.0), size_m=(0.02, 2.0, 2.0), **COMMON),  # a thin wall through the rotors
        Cylinder(name="it", p_W=(0.1, 0.1, 1.0), radius_m=0.03, length_m=2.0, **COMMON),
        Plate(name="it", p_W=(0.0, 0.0, 0.19), size_m=(2.0, 2.0), **COMMON),  # over the hull and under the rotors
        Box(name="it", p_W=(0.2, 0.0, 0.05), size_m=(0.2, 1.0, 0.1), **COMMON),  # a kerb under two feet
    ],
)
def test_a_thin_solid_between_the_parts_of_the_aircraft_is_found(loaded, solid):
    assert "stands in the solid 'it'" in start_problem(loaded, (0.0, 0.0, 0.0), solid)


def test_rotors_feel_the_deck_above_and_the_pier_beside(loaded):
    world = World(loaded, 1)
    hover(world, (9.5, 6.0, 8.0))  # between two girders, 1 m under the deck
    world.advance()
    above = 9.0 - 8.0 - world.plant.airframe.rotor.height_m
    np.testing.assert_allclose(world.plant.clearance_m[:, 1], above, atol=2e-3)
    assert np.isinf(world.plant.clearance_m[:, 0]).all()
    hover(world, (11.2, 0.0, 4.0))
    world.advance()
    assert world.plant.clearance_m[:, 2].min() == pytest.approx(
        12.01 - 11.2 - 0.275 * np.cos(np.pi / 6 - 0.1), abs=0.01
    )
    assert world.plant.side_W[:, 0].min() > 0.95
    hover(world, (5.0, 6.0, 3.0))
    world.advance()
    assert np.isinf(world.plant.clearance_m).all() and not world.plant.surfaces_W.any()


@pytest.mark.parametrize(
    ("p_W", "rpy", "true_m"),
    [
        ((8.0, 6.0, 4.0), (0.0, 0.0, 0.0), 40.0),  # between the piers: nothing in range
        ((8.0, 0.0, 4.0), (0.0, 0.0, 0.0), 4.01),  # the pier
        ((16.0, 0.0, 4.0), (0.0, 0.0, np.pi), 1.99),  # its other side
        ((8.0, 6.0, 3.0), (0.0, np.pi / 2, 0.0), 3.0),  # the ground
    ],
)
def test_the_range_finder_of_the_flight_controller_measures_the_solids_and_the_ground(loaded, p_W, rpy, true_m):
    finder = RangeFinderConfig(rate_hz=20.0, noise_m=0.0, min_m=0.2, max_m=40.0)
    scenario = replace(loaded.scenario, sensors=replace(loaded.scenario.sensors, range_finder=finder))
    world = World(replace(loaded, scenario=scenario), 1)
    hover(world, p_W)
    world.plant.q_WB[:] = quat_from_rpy(*rpy)
    assert world.sensors.sample(0.0, world.plant).range.range_m == pytest.approx(true_m, abs=1e-6)


def test_the_wind_is_weaker_behind_the_pier_unless_the_world_says_otherwise(loaded):
    wind_W = (1.0, 4.0, 0.0)
    world = World(loaded, 1)
    hover(world, (13.0, 4.0, 4.0))
    assert np.linalg.norm(world.air.wind(wind_W)) < 2.0
    hover(world, (-200.0, 6.0, 4.0))
    np.testing.assert_allclose(world.air.wind(wind_W), wind_W, atol=0.05)
    still = Solids(replace(loaded.solids.file, shapes_wind=False), loaded.solids.path)
    world = World(replace(loaded, solids=still), 1)
    hover(world, (13.0, 4.0, 4.0))
    np.testing.assert_array_equal(world.air.wind(wind_W), wind_W)


def test_a_world_without_solids_has_no_contacts(loaded):
    world = World(load_scenario(ROOT / "config/scenarios/transit.toml"), 1)
    world.advance()
    assert world.contacts is None and world.take_contacts() == [] and not world.plant.surfaces_W.any()
    assert world.plant.surfaces_W.shape == (4 + 6 + 1, 4)  # feet, discs, hull


LIMITS = Limits(fence_min_m=(-5.0, -5.0, -1.0), fence_max_m=(20.0, 5.0, 8.0), height_m=8.0, distance_m=25.0)
DONE = MissionStatus(
    stamp_s=9.0, phase=Phase.DONE, reason="", phase_time_s=0.0, finished=True, success=True, photographs=0
)


def truth(*places):
    return [
        Truth(
            stamp_s=float(i), p_W=place, v_W=(0.0,) * 3, q_WB=(1.0, 0.0, 0.0, 0.0), omega_B=(0.0,) * 3,
            disturbance_W=(0.0,) * 3, gnss_bias_W=(0.0,) * 3, battery_voltage_v=16.0, motor_thrust_n=(),
            bundles={"pier": ((6.0, 0.0, 3.0), (0.5, 0.5, -0.5, -0.5))},
        )
        for i, place in enumerate(places)
    ]  # fmt: skip


def contact(stamp_s, landing=False):
    return Contact(
        stamp_s=stamp_s, solid="pier", p_W=(6.0, 0.1, 3.0), normal_W=(-1.0, 0.0, 0.0), speed_m_s=0.84, force_n=200.0,
        landing=landing,
    )  # fmt: skip


FLOWN = truth((0.0, 0.0, 0.0), (0.0, 0.0, 3.0), (5.9, 0.0, 3.0), (0.0, 0.0, 0.0))


def test_a_contact_is_a_failure_and_a_landing_is_none():
    said = "contact with pier at (6.00, 0.10, 3.00), 0.8 m/s"
    assert judge(FLOWN, DONE, LIMITS, contacts=[contact(1.5)]) == (FlightEnd.FAILED, said)
    assert judge(FLOWN, DONE, LIMITS, contacts=[contact(0.5, landing=True), contact(9.5)]) == (FlightEnd.FAILED, said)
    assert judge(FLOWN, DONE, LIMITS, contacts=[contact(1.5, landing=True)]) == (FlightEnd.COMPLETED, "")


def test_what_was_wrong_before_a_contact_is_the_cause():
    beyond = truth((0.0, 0.0, 0.0), (0.0, 9.0, 3.0), (5.9, 0.0, 3.0))
    assert judge(beyond, DONE, LIMITS, contacts=[contact(1.5)])[1] == "4.0 m beyond a limit of the mission"
    assert judge(beyond, DONE, LIMITS, contacts=[contact(0.5)])[1].startswith("contact with pier")


def test_a_log_holds_the_world_of_its_flight(tmp_path):
    stone = rock(tmp_path, subdivisions=1, p_W=(30.0, 0.0, 1.0))
    (tmp_path / "w.toml").write_text(
        f'name = "w"\ndescription = ""\n[[solid]]\nkind = "mesh"\nname = "rock"\nfile = "{stone.file}"\n'
        f'p_W = [30.0, 0.0, 1.0]\ntexture = "grass"\nmaterial = "cement"\n'
    )
    text = SCENARIO.read_text().replace('"../worlds/bridge.toml"', f'"{tmp_path}/w.toml"')
    (tmp_path / "s.toml").write_text(
        text.replace("../", f"{ROOT}/config/").replace('"bridge_hover', f'"{ROOT}/config/scenarios/bridge_hover')
    )
    loaded = load_scenario(tmp_path / "s.toml")
    metadata = flight_metadata(loaded.vehicle_path, loaded.mission_path, loaded.path)
    open_recorder(tmp_path / "flight.mcap", metadata).close()
    (tmp_path / "rock.ply").unlink()
    (tmp_path / "again").mkdir()
    again = unpack(read_log(tmp_path / "flight.mcap"), tmp_path / "again")
    points = np.array([[29.0, 0.2, 1.0], [30.0, 0.0, 1.0]])
    np.testing.assert_array_equal(again.solids.nearest(points).distance_m, loaded.solids.nearest(points).distance_m)


@pytest.mark.verify
def test_a_flight_that_is_planned_into_a_pier_fails_with_the_contact():
    result = simulate(ROOT / "config/scenarios/safety/into_the_pier.toml", seed=1)
    assert result["end"] == FlightEnd.FAILED and result["failure"].startswith("contact with pier at (12.01, ")
    first = result["contacts"][0]
    assert first["solid"] == "pier" and not first["landing"] and 0.3 < first["speed_m_s"] < 2.0
    assert first["force_n"] > 0 and 20.0 < first["stamp_s"] < 60.0


@pytest.mark.verify
@pytest.mark.parametrize("seed", [1, 2])
def test_the_hold_under_the_deck_is_as_accurate_as_before_the_pier_alone(seed):
    result = simulate(SCENARIO, seed=seed)
    assert result["end"] == FlightEnd.COMPLETED and result["contacts"] == []
    assert result["position_rms_m"] < 0.05


def test_a_campaign_draws_fields_of_a_world(tmp_path):
    drawn = draw("world.solid[0].p_W[2]", distribution="uniform", low=9.0, high=12.0)
    flights = plan_campaign(campaign(tmp_path, drawn, scenarios='["bridge_solid"]', seeds="[1, 2]")).flights
    heights = []
    for flight in flights:
        (tmp_path / str(flight.number)).mkdir()
        solids = flight.loaded(tmp_path / str(flight.number)).solids
        deck = solids.file.solid[0]
        assert deck.name == "deck" and deck.p_W[2] == flight.fields["world.solid[0].p_W[2]"]
        heights.append(deck.p_W[2] - float(solids.first_hit((9.5, 6.0, 4.0), np.array([0.0, 0.0, 1.0]))) - 4.0)
    assert flights[0].fields != flights[1].fields and heights == pytest.approx([0.2, 0.2])  # half the deck's height
