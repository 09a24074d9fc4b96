"""The search for a PX4 build, the messages when none is found, and the folder in which PX4 runs."""

import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from companion.cli import main
from companion.core.config import ConfigError, load
from companion.core.vehicle import Vehicle
from sitl.airframe import load_airframe
from sitl.autopilot.parameters import load_parameters
from sitl.px4.build import AIRFRAMES, OWN_AIRFRAMES, external_model, find_build, prepare_run
from sitl.px4.process import Px4Process

MISSION = str(Path(__file__).parents[2] / "config/missions/bridge_hover.toml")


@pytest.fixture
def build(tmp_path, monkeypatch) -> Path:
    """A folder that looks like PX4's build; its program prints PX4's line for an unknown parameter."""
    monkeypatch.delenv("PX4_BUILD", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    folder = tmp_path / "build"
    (folder / "etc" / AIRFRAMES).mkdir(parents=True)
    (folder / "etc" / "init.d").mkdir()
    (folder / "etc" / AIRFRAMES.parent / "rcS").write_text("true\n")
    (folder / "etc" / AIRFRAMES / "10044_sihsim_hex").write_text("true\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "px4").write_text("#!/bin/sh\necho 'ERROR [param] Parameter NO_SUCH not found.'\nsleep 60\n")
    (folder / "bin" / "px4").chmod(0o755)
    return folder


def test_a_build_is_found_by_option_variable_and_path(build, monkeypatch, tmp_path):
    assert find_build(build).etc == build / "etc"
    with pytest.raises(ConfigError, match=r"^no PX4 found: .*--px4-build or PX4_BUILD, or see https://docs\.px4\.io"):
        find_build()
    monkeypatch.setenv("PX4_BUILD", str(build))
    assert find_build().program == build / "bin" / "px4"
    monkeypatch.delenv("PX4_BUILD")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "px4").symlink_to(build / "bin" / "px4")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assert find_build().etc == build / "etc"


@pytest.mark.parametrize("missing", ["bin/px4", "etc"])
def test_a_folder_that_is_no_build_is_refused_by_name(build, missing):
    (build / missing).rename(build / "elsewhere")
    with pytest.raises(ConfigError, match=f"^--px4-build {build}: no (program|folder) {build}"):
        find_build(build)


def test_the_command_line_says_where_to_get_px4(build):
    result = CliRunner().invoke(main, ["fly", MISSION, "--fcu", "px4"])
    assert result.exit_code == 2
    assert "no PX4 found" in result.output and len(result.output.strip().splitlines()) == 1


def test_speed_is_refused_with_px4_s_own_simulator(build):
    line = ["fly", MISSION, "--fcu", "px4", "--px4-build", str(build), "--px4-mode", "sih", "--speed", "2"]
    result = CliRunner().invoke(main, line)
    assert result.exit_code == 2 and "--speed: only with --px4-mode external" in result.output


def test_the_run_folder_adds_to_the_build_and_does_not_change_it(build, tmp_path):
    before = sorted(build.rglob("*"))
    run = tmp_path / "run"
    etc = prepare_run(find_build(build), run, "none_f550", {"COM_OF_LOSS_T": 0.5})
    text = (etc / AIRFRAMES / "22001_none_f550").read_text()
    assert text.splitlines()[1:] == [
        f". {OWN_AIRFRAMES / '22001_none_f550'}", "param set MAV_SYS_ID 1", "param set COM_OF_LOSS_T 0.5",
    ]  # fmt: skip
    assert (etc / AIRFRAMES.parent / "rcS").read_text() == "true\n" and (etc / "init.d").is_dir()
    assert sorted(build.rglob("*")) == before
    prepare_run(find_build(build), run, "sihsim_hex", {})  # a second time in the same folder
    assert str(build) in (etc / AIRFRAMES / "10044_sihsim_hex").read_text()
    with pytest.raises(ConfigError, match="no airframe sihsim_octo"):
        prepare_run(find_build(build), run, "sihsim_octo", {})


def test_a_relative_run_folder_works_from_px4_s_own_working_folder(build, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    etc = prepare_run(find_build(build), Path("flights/px4"), "none_f550", {})
    assert etc.is_absolute(), "PX4 runs in another folder than the command"
    assert etc == tmp_path / "flights" / "px4" / "etc_flight"


def test_an_airframe_without_a_file_for_px4_is_refused():
    assert external_model("f550") == "none_f550"
    with pytest.raises(ConfigError, match=r"no PX4 airframe for 'dart' \(there are: aurelia_x6, f550\)"):
        external_model("dart")


def test_unknown_parameters_are_read_from_px4_s_output_and_stop_ends_it(build, tmp_path):
    run = tmp_path / "run"
    etc = prepare_run(find_build(build), run, "none_f550", {})
    px4 = Px4Process(find_build(build), run, etc, "none_f550", 0)
    try:
        for _ in range(200):
            if px4.unknown_parameters():
                break
            time.sleep(0.02)
        assert px4.unknown_parameters() == ["NO_SUCH"]
        px4.check()
    finally:
        px4.stop()
    with pytest.raises(Exception, match="PX4 ended with status"):
        px4.check()


@pytest.mark.parametrize("name, file", [("f550", "22001_none_f550"), ("aurelia_x6", "22002_none_aurelia_x6")])
def test_px4_s_airframe_is_the_simulated_aircraft(name, file):
    rows = [line.split() for line in (OWN_AIRFRAMES / file).read_text().splitlines() if line.startswith("param ")]
    set_to = {row[2]: float(row[3]) for row in rows}
    airframe, gains = load_airframe(name), load_parameters(name)
    for i, hub in enumerate(airframe.hubs):
        assert set_to[f"CA_ROTOR{i}_PX"] == pytest.approx(hub.p_m[0], abs=5e-4)
        assert set_to[f"CA_ROTOR{i}_PY"] == pytest.approx(-hub.p_m[1], abs=5e-4)
        assert set_to[f"CA_ROTOR{i}_KM"] == pytest.approx(hub.spin.sign * airframe.rotor.torque_per_thrust_m)
    assert set_to["BAT1_N_CELLS"] == airframe.battery.cells
    shared = [key for key in set_to if key.startswith("MC_") or key == "MPC_THR_HOVER"]
    assert len(shared) == 7
    for key in shared:
        assert set_to[key] == pytest.approx(gains[key]), key


def test_the_sih_vehicle_file_differs_from_the_f550_in_its_aircraft_only():
    root = Path(__file__).parents[2] / "config/vehicles"
    sih, f550 = load(root / "px4_sih_hex.toml", Vehicle), load(root / "f550.toml", Vehicle)
    assert sih.thrust.coefficient_m_s2 == pytest.approx(6 * 5.0 / sih.mass_kg)  # SIH_T_MAX, SIH_MASS
    assert sih.camera == f550.camera and sih.safety == f550.safety
