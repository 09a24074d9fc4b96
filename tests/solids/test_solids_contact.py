"""An aircraft bounces off solids, slides on them and stands on them; it never goes through one and gains no energy."""

import math

import numpy as np
import pytest
import trimesh

from companion.core.frames import GRAVITY_M_S2, quat_from_rpy
from sitl.airframe import load_airframe
from sitl.plant import FEET, Plant
from sitl.solids.contact import SolidContact
from sitl.solids.world_file import Box, Mesh, Plate
from tests.solids.throws import (
    CALM,
    CENTRE_W,
    NO_FORCE,
    OFF,
    TARGETS,
    energy_j,
    set_random,
    target,
    throw,
    watch,
    without_drag,
)
from tests.solids.world_makers import COMMON, solids_of


def check(throws):
    assert sum(t.touched for t in throws) >= 0.8 * len(throws)
    assert not any(t.entered for t in throws)
    assert max(t.gained_j for t in throws) < 1e-6  # of 810 J


@pytest.mark.parametrize("kind", TARGETS)
def test_a_throw_at_30_m_s_does_not_go_through_a_solid_and_gains_no_energy(kind, tmp_path):
    solids = target(kind, tmp_path)
    check([throw(solids, seed) for seed in range(12)])


@pytest.mark.verify
@pytest.mark.parametrize("kind", TARGETS)
def test_a_hundred_throws_do_not_go_through_a_solid_and_gain_no_energy(kind, tmp_path):
    solids = target(kind, tmp_path)
    check([throw(solids, seed) for seed in range(100, 200)])


def cage(kind, folder, half_m=2.0):
    """Six plates or one hollow mesh around `CENTRE_W`."""
    if kind == "mesh":
        outer, inner = trimesh.creation.box((2 * half_m + 0.1,) * 3), trimesh.creation.box((2 * half_m,) * 3)
        inner.invert()
        trimesh.util.concatenate([outer, inner]).export(folder / "cage.ply")
        return [Mesh(name="cage", file="cage.ply", p_W=CENTRE_W, **COMMON)]
    turns = ((0.0, 0.0, 0.0), (0.0, math.pi / 2, 0.0), (math.pi / 2, 0.0, 0.0))
    return [
        Plate(
            name=f"side_{axis}_{sign}",
            p_W=tuple(np.array(CENTRE_W) + sign * half_m * np.eye(3)[axis]),
            rpy_rad=turns[(axis + 1) % 3],
            size_m=(2 * half_m,) * 2,
            **COMMON,
        )
        for axis in range(3)
        for sign in (-1, 1)
    ]


@pytest.mark.parametrize("kind", ["plates", "mesh"])
def test_an_aircraft_stays_in_a_closed_space_and_comes_to_rest_in_it(kind, tmp_path):
    solids = solids_of(*cage(kind, tmp_path), folder=tmp_path)
    for seed in range(2):
        rng, plant = np.random.default_rng(seed), Plant(without_drag(), 1)
        plant.p_W[:] = CENTRE_W
        plant.v_W[:] = rng.normal(size=3)
        plant.v_W *= 30 / np.linalg.norm(plant.v_W)
        set_random(plant, rng)
        flown = watch(solids, SolidContact(solids, plant), plant, 2.0)
        assert flown.touched and not flown.entered and flown.gained_j < 1e-6
        assert np.abs(plant.p_W - CENTRE_W).max() < 2.0


def test_a_craft_in_a_corner_comes_to_rest_and_does_not_creep(tmp_path):
    solids = solids_of(*cage("plates", tmp_path))
    plant = Plant(load_airframe("f550"), 1)
    plant.p_W[:] = np.array(CENTRE_W) + (1.4, 1.4, -1.6)
    plant.q_WB[:] = quat_from_rpy(0.3, 0.2, 0.4)
    plant.v_W[:] = 3.0, 3.0, -1.0
    contact, lean = SolidContact(solids, plant), (6.0, 6.0, 0.0)  # a wind that presses it into the corner
    places = []
    for _ in range(1200):
        contact.step(OFF, 4, CALM, lean)
        places.append(plant.p_W.copy())
    assert np.ptp(places[-500:], axis=0).max() < 2e-3
    assert plant.contact_depth_m.max() < 0.02


def flat(name="table", top_m=5.0, size_m=(2.0, 2.0, 0.1)):
    return Box(name=name, p_W=(0.0, 0.0, top_m - size_m[2] / 2), size_m=size_m, **COMMON)


def drop(
    solids, speed_m_s=0.0, seconds=1.0, height_m=0.01, rpy=(0.0, 0.0, 0.0), p_xy=(0.0, 0.0), v_xy=(0.0, 0.0), frame=None
):
    plant = Plant(frame or load_airframe("f550"), 1)
    plant.p_W[:] = *p_xy, 5.0 + plant.airframe.ground.foot_height_m + height_m
    plant.v_W[:] = *v_xy, -speed_m_s
    plant.q_WB[:] = quat_from_rpy(*rpy)
    contact = SolidContact(solids, plant)
    for _ in range(round(seconds / 0.004)):
        contact.step(np.zeros(plant.rotors), 4, CALM, NO_FORCE)
    return contact, plant


def test_a_slow_descent_onto_a_top_is_a_landing_and_the_top_carries():
    contact, plant = drop(solids_of(flat()), speed_m_s=0.7)
    assert [c.landing for c in contact.contacts] == [True]
    landing = contact.contacts[0]
    assert landing.solid == "table" and landing.normal_W == pytest.approx((0, 0, 1))
    assert landing.speed_m_s == pytest.approx(math.hypot(0.7, math.sqrt(2 * GRAVITY_M_S2 * 0.01)), rel=0.02)
    assert plant.on_ground and np.linalg.norm(plant.v_W) < 1e-3
    assert plant.p_W[2] == pytest.approx(5.0 + plant.airframe.ground.foot_height_m, abs=1e-3)
    weight = plant.mass_kg * GRAVITY_M_S2
    assert plant.contact_force_W[:FEET, 2].sum() == pytest.approx(weight, rel=1e-2)
    assert landing.force_n > weight


@pytest.mark.parametrize("name", ["f450", "f550", "aurelia_x6", "x8"])
def test_on_short_legs_the_feet_touch_a_top_before_the_hull(name):
    frame = load_airframe(name, {"ground": {"foot_height_m": 0.08}})
    assert frame.arm_m - frame.rotor.radius_m > 0.08  # as far as a sphere between the discs would reach
    contact, plant = drop(solids_of(flat(size_m=(4.0, 4.0, 0.1))), speed_m_s=1.4, frame=frame)
    assert [c.landing for c in contact.contacts] == [True]
    assert plant.on_ground and plant.p_W[2] == pytest.approx(5.08, abs=5e-3)


@pytest.mark.parametrize("name", ["f450", "f550", "aurelia_x6", "x8"])
def test_an_aircraft_that_rises_to_a_deck_touches_it_with_its_rotors(name):
    plant = Plant(load_airframe(name), 1)
    top_m = max(hub.p_m[2] for hub in plant.airframe.hubs)
    plant.p_W[:] = 0.0, 0.0, 5.0 - top_m - 0.02
    plant.v_W[2] = 0.8
    contact = SolidContact(solids_of(flat(top_m=5.1, size_m=(4.0, 4.0, 0.1))), plant)
    for _ in range(50):
        before_m = float(plant.p_W[2])
        contact.step(np.zeros(plant.rotors), 1, CALM, NO_FORCE)
        if contact.contacts:
            break
    assert contact.contacts and 5.0 - top_m - before_m < 2e-3
    assert plant.contact_peak_n[FEET : FEET + plant.rotors].max() > 0.0


@pytest.mark.parametrize(
    "how", [{"speed_m_s": 2.0}, {"rpy": (math.pi, 0.0, 0.0), "height_m": 0.1}, {"v_xy": (2.0, 0.0)}]
)
def test_a_hard_an_inverted_or_a_fast_touch_is_no_landing(how):
    contact, _ = drop(solids_of(flat()), **how)
    assert not contact.contacts[0].landing and not all(c.landing for c in contact.contacts)


def test_a_touch_of_the_side_is_a_contact_with_place_speed_force_and_name():
    wall = Box(name="wall", p_W=(2.0, 0.0, 5.0), size_m=(1.0, 10.0, 10.0), **COMMON)
    contact, plant = drop(solids_of(flat(top_m=-1.0), wall), height_m=0.0, v_xy=(3.0, 0.0), seconds=0.6)
    touched = contact.contacts[0]
    assert (touched.solid, touched.landing) == ("wall", False)
    assert touched.normal_W == pytest.approx((-1, 0, 0)) and touched.p_W[0] == pytest.approx(1.5, abs=0.01)
    assert touched.speed_m_s == pytest.approx(math.hypot(3.0, plant.v_W[2] * 0.7), rel=0.2)
    reach_m = 1.5 - plant.airframe.wheelbase_m / 2 - plant.airframe.rotor.radius_m
    assert touched.stamp_s == pytest.approx(reach_m / 3.0, abs=0.03)
    assert plant.v_W[0] < 0 and touched.force_n > 3.0 * plant.mass_kg / 0.1


def test_contacts_are_reported_once_with_the_force_of_the_blow():
    solids = solids_of(flat())
    plant = Plant(load_airframe("f550"), 1)
    plant.p_W[:] = 0.0, 0.0, 6.0
    contact, reported = SolidContact(solids, plant), []
    for _ in range(250):
        contact.step(OFF, 4, CALM, NO_FORCE)
        reported += [(plant.time_s, c) for c in contact.take()]
    times, messages = zip(*reported, strict=True)
    old = [c.stamp_s for c in contact.contacts if plant.time_s - c.stamp_s >= 0.1]
    assert [c.stamp_s for c in messages] == old
    assert 0.1 <= times[0] - messages[0].stamp_s < 0.11
    assert messages[0].force_n == max(c.force_n for c in contact.contacts)


def test_a_craft_slides_with_friction_and_stops():
    contact, plant = drop(solids_of(flat(size_m=(20.0, 20.0, 0.1))), height_m=0.0, v_xy=(1.2, 0.0), seconds=1.5)
    slid_m = float(plant.p_W[0])
    expected_m = 1.2**2 / (2 * plant.airframe.ground.friction * GRAVITY_M_S2)
    assert slid_m == pytest.approx(expected_m, rel=0.3) and np.linalg.norm(plant.v_W) < 0.02


def test_a_craft_over_an_edge_falls_off_and_the_table_does_not_hold_it():
    _, plant = drop(solids_of(flat()), p_xy=(1.3, 0.0), seconds=1.2)
    assert plant.p_W[2] < 4.0
    _, plant = drop(solids_of(flat()), p_xy=(0.7, 0.0), seconds=1.2)
    assert plant.p_W[2] == pytest.approx(5.0 + plant.airframe.ground.foot_height_m, abs=1e-3)


def test_around_the_edge_of_a_plate_the_other_side_is_solid_too():
    plate = Plate(name="plate", p_W=(0.0, 0.0, 200.0), rpy_rad=(0.0, math.pi / 2, 0.0), size_m=(2.0, 2.0), **COMMON)
    solids = solids_of(plate)
    plant = Plant(without_drag(), 1)
    plant.p_W[:] = -0.6, 0.0, 200.0
    contact = SolidContact(solids, plant)
    for goal in ((-0.6, 0.0, 201.6), (0.6, 0.0, 201.6), (0.6, 0.0, 200.0)):  # led over the upper edge
        while np.linalg.norm(goal - plant.p_W) > 0.02:
            plant.v_W[:] = 2.0 * (goal - plant.p_W) / np.linalg.norm(goal - plant.p_W)
            plant.omega_B[:] = 0.0
            contact.step(OFF, 1, CALM, NO_FORCE)
    assert not contact.contacts
    plant.v_W[:] = -5.0, 0.0, 0.0
    for _ in range(40):
        contact.step(OFF, 4, CALM, NO_FORCE)
    assert contact.contacts[0].normal_W[0] > 0.9 and plant.v_W[0] > 0 and plant.p_W[0] > 0


def test_the_planes_change_nothing_for_a_craft_that_passes_close(tmp_path):
    wall = Box(name="wall", p_W=(2.0, 0.0, 205.0), size_m=(1.0, 10.0, 10.0), **COMMON)
    alone, beside = (Plant(load_airframe("f550"), 1) for _ in range(2))
    contact = SolidContact(solids_of(wall), beside)
    for plant in (alone, beside):
        plant.p_W[:], plant.v_W[:], plant.omega_B[:] = (0.9, -3.0, 205.0), (-0.2, 6.0, 0.0), (0.0, 0.0, 1.0)
    motors, wind_W = np.full(6, 0.4), (0.5, 0.2, -0.1)
    for _ in range(200):
        alone.step(motors, 4, wind_W)
        contact.step(motors, 4, wind_W, NO_FORCE)
    np.testing.assert_array_equal(alone.p_W, beside.p_W)
    np.testing.assert_array_equal(alone.q_WB, beside.q_WB)
    assert alone.battery_voltage_v == beside.battery_voltage_v and not contact.contacts


def test_energy_counts_motion_and_height():
    plant = Plant(without_drag(), 1, p_W=(0.0, 0.0, 10.0))
    before = energy_j(plant)
    plant.v_W[:] = 3.0, 0.0, 0.0
    assert energy_j(plant) - before == pytest.approx(4.5 * plant.mass_kg)
