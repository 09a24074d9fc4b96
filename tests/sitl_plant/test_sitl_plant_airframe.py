"""Airframe files are strict; the battery follows its equations."""

import msgspec
import numpy as np
import pytest

from companion.core.config import ConfigError
from companion.core.config_files import ConfigKind, config_folder
from companion.core.frames import quat_from_rpy
from sitl.airframe import airframe_file, load_airframe
from sitl.battery import BEYOND_EMPTY, SOURCE_MIN_V, Battery
from sitl.plant import Plant

replace = msgspec.structs.replace


@pytest.mark.parametrize("path", sorted((config_folder() / ConfigKind.AIRFRAME).glob("*.toml")), ids=lambda p: p.stem)
def test_every_airframe_file_loads_by_name_and_by_path(path):
    assert load_airframe(path.stem) == load_airframe(str(path))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("mass_kg = 1.8", "", ("mass_kg", "missing key")),
        ("mass_kg = 1.8", "mass_kg = -1.0", ("mass_kg = -1", "0.1 to 100 kg")),
        ("mass_kg = 1.8", "mass_kg = nan", ("mass_kg", "finite")),
        ("mass_kg = 1.8", 'mass_kg = "heavy"', ("mass_kg", "kg")),
        ("thrust_max_n = 9.164", "thrust_max = 9.164", ("rotor.thrust_max", "unknown key")),
        ("command_delay_s = 0.005", "command_delay_s = 0.3", ("command_delay_s = 0.3", "0.2 s")),
        ("cells = 4", "cells = 0", ("battery.cells = 0",)),
        ("[3.30, 3.61, ", "[3.30, ", ("battery.open_circuit_v",)),
        ("[ground]", "[gruond]", ("gruond", "unknown key")),
        ("height_m = 0.03", "height_m = -0.2", ("ground.foot_height_m = 0.18", "above 0.200", "rotor 0")),
    ],
)
def test_a_bad_key_is_refused_by_name(tmp_path, old, new, expected):
    source = airframe_file("f550").read_text(encoding="utf-8")
    assert old in source
    path = tmp_path / "bad.toml"
    path.write_text(source.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        load_airframe(str(path))
    assert all(part in str(error.value) for part in (*expected, "bad.toml"))
    assert "\n" not in str(error.value)


SMALL = {"mass_kg": 0.25, "inertia_kg_m2": (5e-4, 5e-4, 9e-4), "wheelbase_m": 0.16}


@pytest.mark.parametrize(
    ("changes", "feet", "said"),
    [
        (SMALL, {}, "ground.damping_n_s_m = 25: must be at most 5.77 "),
        ({}, {"stiffness_n_m": 1e5}, "ground.stiffness_n_m = 100000: must be at most 7.44e+04 "),
        ({"mass_kg": 100.0}, {}, "ground.stiffness_n_m = 1200: must be at least 1.54e+04 "),
        ({}, {"foot_radius_m": 0.01}, "ground.stiffness_n_m = 1200: must be at least 2.21e+04 "),
    ],
)
def test_feet_on_which_an_aircraft_cannot_stand_still_are_refused_with_key_and_limit(changes, feet, said):
    f450 = load_airframe("f450")
    strong = replace(f450.rotor, thrust_max_n=500.0, radius_m=0.05)  # so that nothing else is a reason
    other = replace(f450, rotor=strong, ground=replace(f450.ground, **feet), **changes)
    assert other.contradiction().startswith(said) and "\n" not in other.contradiction()


@pytest.mark.parametrize(("name", "changes"), [("f450", {}), ("f450", SMALL), ("aurelia_x6", {})])
@pytest.mark.parametrize("share", [1.0, 1.5])
def test_at_the_limit_of_the_damping_it_stands_still_and_rocks_beyond_the_margin(name, changes, share):
    airframe = load_airframe(name)
    airframe = replace(airframe, rotor=replace(airframe.rotor, radius_m=0.05, thrust_max_n=20.0), **changes)
    most = replace(airframe, ground=replace(airframe.ground, damping_n_s_m=1e6))
    limit = float(most.contradiction().split("at most ")[1].split()[0])
    airframe = replace(airframe, ground=replace(airframe.ground, damping_n_s_m=share * limit))
    assert (airframe.contradiction() == "") == (share == 1.0)
    plant = Plant(airframe, 1)
    plant.p_W[2] += 0.03
    plant.q_WB[:] = quat_from_rpy(0.02, 0.01, 0.3)
    plant.step([0.0] * plant.rotors, 5000)
    rates = []
    for _ in range(100):
        plant.step([0.0] * plant.rotors, 3)
        rates.append(np.abs(plant.omega_B).max())
    assert max(rates) < 1e-9 if share == 1.0 else max(rates) > 1e-3


def test_an_unknown_airframe_is_named():
    with pytest.raises(ConfigError, match="no_such_craft"):
        load_airframe("no_such_craft")


@pytest.fixture
def config():
    return replace(load_airframe("f550").battery, initial_remaining=1.0, avionics_power_w=0.0)


def test_voltage_and_current_deliver_the_power_through_the_resistance(config):
    battery = Battery(config)
    source_v = battery.open_circuit_v
    voltage_v = battery.step(200.0, 0.02)
    assert voltage_v * battery.current_a == pytest.approx(200.0)
    assert voltage_v == pytest.approx(source_v - config.internal_resistance_ohm * battery.current_a)


def test_the_charge_decreases_by_the_charge_drawn(config):
    battery = Battery(config)
    drawn_ah = 0.0
    for _ in range(600):
        battery.step(250.0, 1.0)
        drawn_ah += battery.current_a / 3600
    assert battery.remaining == pytest.approx(1 - drawn_ah / config.capacity_ah)
    assert 0.3 < battery.remaining < 0.6


def test_polarisation_builds_up_and_recovers_with_its_time_constant(config):
    # With a flat curve only the polarisation changes.
    flat = replace(config, open_circuit_v=(3.8,) * 11)
    battery = Battery(flat)
    first_v = battery.step(200.0, 0.02)
    for _ in range(int(5 * flat.polarisation_time_s / 0.02)):
        battery.step(200.0, 0.02)
    sunk_v = flat.polarisation_resistance_ohm * battery.current_a
    assert first_v - battery.voltage_v == pytest.approx(sunk_v, rel=0.03)
    for _ in range(int(flat.polarisation_time_s / 0.02)):
        battery.step(0.0, 0.02)
    assert battery.open_circuit_v - battery.voltage_v == pytest.approx(sunk_v * 0.368, rel=0.02)


def test_open_circuit_voltage_follows_the_curve_between_and_beyond_its_points(config):
    for remaining, cell_v in ((0.0, 3.30), (0.05, 3.455), (0.5, 3.80), (0.95, 4.125), (1.0, 4.18)):
        battery = Battery(replace(config, initial_remaining=remaining))
        assert battery.open_circuit_v == pytest.approx(4 * cell_v)


def test_an_impossible_load_and_an_empty_pack_stay_finite(config):
    battery = Battery(replace(config, initial_remaining=0.01))
    for _ in range(1000):
        voltage_v = battery.step(20000.0, 0.1)
        assert 0 < voltage_v < 4 * 4.2
    assert battery.remaining == 0.0


def test_beyond_empty_the_voltage_collapses(config):
    battery = Battery(replace(config, initial_remaining=0.0))
    assert battery.open_circuit_v == 4 * config.open_circuit_v[0]
    drawn_ah = 0.0
    while drawn_ah < BEYOND_EMPTY * config.capacity_ah:
        expected_v = 4 * config.open_circuit_v[0] * (1 - drawn_ah / (BEYOND_EMPTY * config.capacity_ah))
        assert battery.open_circuit_v == pytest.approx(expected_v, abs=1e-6)
        battery.step(300.0, 0.02)
        drawn_ah += battery.current_a * 0.02 / 3600
    assert battery.open_circuit_v == 0.0 and battery.remaining == 0.0
    assert 0 < battery.step(300.0, 0.02) <= SOURCE_MIN_V


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.0])
def test_an_empty_battery_does_not_fly_for_ever(exponent):
    f550 = load_airframe("f550")
    empty = replace(f550.battery, initial_remaining=0.0)
    rotor = replace(f550.rotor, speed_voltage_exponent=exponent)
    plant = Plant(replace(f550, battery=empty, rotor=rotor), 1, p_W=(0, 0, 500))
    plant.step([0.35] * 6, 500)
    begun_n = plant.motor_thrust_n.sum()  # about the weight
    plant.step([0.35] * 6, 60_000)
    assert plant.motor_thrust_n.sum() < 0.2 * begun_n


def test_a_polarisation_as_large_as_the_source_leaves_a_positive_voltage():
    f550 = load_airframe("f550")
    battery = replace(f550.battery, polarisation_resistance_ohm=0.5, polarisation_time_s=0.1)
    plant = Plant(replace(f550, battery=battery), 1, p_W=(0, 0, 500))
    for _ in range(100):
        plant.step([1.0] * 6, 20)
        assert 0 < plant.battery_voltage_v < 4 * 4.2


def test_f550_hovers_for_a_plausible_time():
    airframe = load_airframe("f550")
    battery = Battery(airframe.battery)
    hover_power_w = 6 * airframe.rotor.power_max_w * (0.321**1.5)  # thrust fraction at hover, power ~ T^1.5
    seconds = 0
    while battery.remaining > 0.1:
        battery.step(hover_power_w, 1.0)
        seconds += 1
    assert 12 * 60 < seconds < 30 * 60
