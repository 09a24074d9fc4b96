"""Checks of files and artefacts: what cannot be used is one line that names it."""

from pathlib import Path

import msgspec
import pytest

from companion.core.config import load
from companion.core.vehicle import Vehicle
from companion.preflight.files import artefact_checks, battery_range, mission_file, vehicle_file

ROOT = Path(__file__).parents[2]
F550 = ROOT / "config/vehicles/f550.toml"


def test_good_files_are_named_and_loaded():
    check, vehicle = vehicle_file(F550)
    assert check.status == "ok" and vehicle.name == "F550"
    check, plan = mission_file(ROOT / "config/missions/bridge_hover.toml")
    assert check.status == "ok" and plan.bundle == "pier"


def test_a_bad_vehicle_file_fails_with_its_key(tmp_path):
    file = tmp_path / "v.toml"
    file.write_text(F550.read_text().replace("mass_kg = 1.8", "mass_kg = -1.8"))
    check, vehicle = vehicle_file(file)
    assert (check.status, vehicle) == ("failed", None) and "mass_kg" in check.detail


def test_a_mission_without_its_markers_fails(tmp_path):
    file = tmp_path / "m.toml"
    file.write_text((ROOT / "config/missions/bridge_hover.toml").read_text())
    check, plan = mission_file(file)
    assert (check.status, plan) == ("failed", None) and "no such file" in check.detail


def test_no_mission_is_skipped():
    assert mission_file(None)[0].status == "skipped"


@pytest.mark.parametrize("file", sorted((ROOT / "config/vehicles").glob("*.toml")), ids=lambda file: file.stem)
def test_a_full_and_an_empty_battery_of_every_vehicle_file_are_plausible_in_flight(file):
    check = battery_range(load(file, Vehicle))
    assert check.status == "ok", check.detail


@pytest.mark.parametrize(
    ("reference_v", "says"),
    [
        (14.0, "a full battery of 4 cells has 16.8 V, plausible in flight is 10.5 to 16.1 V"),
        (16.8, "an empty battery of 4 cells has 12.0 V, plausible in flight is 12.6 to 19.3 V"),
    ],
)
def test_a_reference_voltage_that_makes_a_battery_implausible_in_flight_is_a_warning(reference_v, says):
    vehicle = load(F550, Vehicle)
    thrust = msgspec.structs.replace(vehicle.thrust, reference_voltage_v=reference_v)
    check = battery_range(msgspec.structs.replace(vehicle, thrust=thrust))
    assert check.status == "warning" and says in check.detail
    assert f"thrust.reference_voltage_v = {reference_v:g}" in check.detail


def test_artefacts_made_for_this_vehicle_file_pass():
    assert {check.name: check.status for check in artefact_checks(load(F550, Vehicle))} == {
        "solver": "ok",
        "kernels": "ok",
    }


def test_a_solver_made_for_another_vehicle_file_fails():
    vehicle = load(F550, Vehicle)
    other = msgspec.structs.replace(vehicle, controller=msgspec.structs.replace(vehicle.controller, horizon_s=2.75))
    checks = {check.name: check for check in artefact_checks(other)}
    assert checks["solver"].status == "failed" and "companion generate" in checks["solver"].detail


def test_nothing_built_at_all_fails(tmp_path, monkeypatch):
    monkeypatch.setenv("COMPANION_BUILD_DIR", str(tmp_path))
    assert {check.status for check in artefact_checks(load(F550, Vehicle))} == {"failed"}


def test_a_file_of_another_kind_is_named():
    check, plan = mission_file(F550)
    assert (check.status, plan) == ("failed", None)
    assert check.detail.startswith("f550.toml is a vehicle file; `companion preflight` needs a mission")
    check, vehicle = vehicle_file(ROOT / "config/missions/bridge_hover.toml")
    assert (check.status, vehicle) == ("failed", None) and "is a mission; `companion preflight` needs" in check.detail
