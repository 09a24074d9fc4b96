"""``companion calibrate extrinsics`` and ``latency`` on logs: a hover with a wrong vehicle file, and bad logs."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tomlkit
from calibration_paths import F550, MISSIONS, ROOT, SCENARIOS, VEHICLES
from click.testing import CliRunner
from mount_logs import fly, rotation_error_rad
from scipy.spatial.transform import Rotation

from calibration.mount import extrinsics, latency
from calibration.mount.observations import OWN_POSITION, read_mount_log
from companion.core.config import load, read_layered
from companion.core.frames import quat_normalized, rotation_matrix
from companion.core.messages import BundleObservation, FcuAttitude, FcuPosition, Markers, PoseSolution
from companion.core.vehicle import Vehicle
from companion.recording.writer import LogWriter
from sitl.scenario import load_scenario
from sitl.simulate import simulate

SCENARIO = SCENARIOS / "calibration.toml"
HOVER_S = 25.0
FLOWN_S = 0.035  # latency.camera_s of the vehicle file; the delay of the simulated camera is 60 ms


@pytest.fixture(scope="module")
def flown(tmp_path_factory) -> tuple[Path, Path]:
    """The log of a hover and the vehicle file it was flown with, wrong in mount and delay.

    The hover is in a gusty wind under motion capture: no rotation, and no lean except for holding the position. Its
    images are stamped as on an aircraft, with their arrival less the delay of the vehicle file.
    """
    folder = tmp_path_factory.mktemp("hover")
    vehicle, scenario = folder / "wrong.toml", folder / "hover.toml"
    tables = read_layered(VEHICLES / "f550_floor.toml")
    tables["latency"]["camera_s"] = FLOWN_S
    vehicle.write_text(tomlkit.dumps(tables))
    mission = tomllib.loads((MISSIONS / "lab_hover_marker.toml").read_text())
    mission["marker_file"] = str(ROOT / "config/markers/lab_floor.toml")
    mission["hold"]["duration_s"] = HOVER_S
    (folder / "mission.toml").write_text(tomlkit.dumps(mission))
    tables = read_layered(SCENARIO) | {"mission": "mission.toml", "vehicle": "wrong.toml"}
    tables["wind"] |= {"mean_m_s": [2.0, 1.0, 0.0], "gust_std_m_s": [1.5, 1.5, 0.5]}
    scenario.write_text(tomlkit.dumps(tables))
    result = simulate(scenario, seed=3, log_file=folder / "hover.mcap")
    assert result["completed"]
    return folder / "hover.mcap", vehicle


def run(command, *arguments) -> dict:
    """The JSON of a call that succeeds."""
    out = Path(arguments[0]).parent / "out.json"
    result = CliRunner().invoke(command, [str(a) for a in (*arguments, "--json", out)])
    assert result.exit_code == 0, result.output
    return json.loads(out.read_text()) | {"output": result.output}


@pytest.mark.verify
def test_a_simulated_hover_gives_the_mount_within_five_millimetres_and_a_third_of_a_degree(flown):
    log, vehicle = flown
    truth = load_scenario(SCENARIO).scenario.camera
    before = load(vehicle, Vehicle).camera
    result = run(extrinsics.command, log, "--vehicle", vehicle, "--yes")
    camera = load(vehicle, Vehicle).camera
    assert np.abs(np.subtract(before.p_BC, truth.p_BC)).max() > 0.015  # there was something to find
    assert np.abs(np.subtract(camera.p_BC, truth.p_BC)).max() < 0.005
    R = rotation_matrix(quat_normalized(truth.q_BC)).T @ rotation_matrix(camera.q_BC)
    assert np.degrees(Rotation.from_matrix(R).magnitude()) < 0.3
    assert result["details"]["motion"]["yaw_span_deg"] < 90  # not the calibration flight
    assert result["merit"]["changed_deg"] > 3 and max(result["merit"]["translation_std_m"]) < 0.005
    assert "+p_BC = [" in result["output"] and "+q_BC = [" in result["output"]
    assert any("latency.camera_s was 35 ms in this flight and should be 6" in w for w in result["warnings"])
    message = refused(extrinsics.command, log, "--bundle", "pier")
    assert message.endswith("bundle 'pier' was not seen (seen: floor)")


@pytest.mark.verify
def test_the_same_hover_gives_the_cameras_delay_within_five_milliseconds_and_the_actuators(flown):
    log, vehicle = flown
    result = run(latency.command, log, "--vehicle", vehicle, "--yes")
    written = load(vehicle, Vehicle).latency
    assert written.camera_s == pytest.approx(0.06, abs=0.005)
    assert result["merit"]["camera_std_s"] < 0.002
    # 30 ms of the scenario's delay, and what the loops and motors of the simulated aircraft need beyond a first order
    assert 0.05 < written.actuation_s < 0.12 and result["merit"]["actuation_interval_s"] < 0.01
    assert result["details"]["camera_flown_s"] == FLOWN_S
    # the file was corrected, the log was not: the correction is not made twice
    again = run(latency.command, log, "--vehicle", vehicle, "--yes")
    assert any("latency.camera_s = 0.0" in w and "(flown: 0.035)" in w for w in again["warnings"])
    assert again["values"]["latency.camera_s"] == pytest.approx(result["values"]["latency.camera_s"], abs=1e-6)


def refused(command, *arguments) -> str:
    result = CliRunner().invoke(command, [str(a) for a in arguments])
    assert result.exit_code == 2, result.output
    (line,) = [line for line in result.output.splitlines() if line.startswith("companion: ")]
    return line.removeprefix("companion: ")


@pytest.fixture
def empty_log(tmp_path) -> Path:
    """Ten seconds of a disarmed aircraft whose camera saw no marker."""
    text = F550.read_text()
    path = tmp_path / "desk.mcap"
    writer = LogWriter(path, {"vehicle": text, "vehicle_file": "f550.toml"})
    for i in range(500):
        t = 0.02 * i
        writer.put("fcu_attitude", FcuAttitude(stamp_s=t, q_WB=(1.0, 0.0, 0.0, 0.0), omega_B=(0.0, 0.0, 0.0)), t)
        writer.put("markers", Markers(stamp_s=t, observations=[], detect_time_s=0.003, search="full"), t)
    writer.close()
    return path


@pytest.mark.parametrize("command", [extrinsics.command, latency.command], ids=["extrinsics", "latency"])
def test_logs_that_cannot_be_used_are_refused_in_one_line(command, empty_log, tmp_path):
    assert "desk.mcap: no marker was seen in this log, in 500 images" in refused(command, empty_log)
    (tmp_path / "text.mcap").write_text("not a log")
    assert "text.mcap: " in refused(command, tmp_path / "text.mcap")
    assert "gone.mcap: cannot be read" in refused(command, tmp_path / "gone.mcap")
    assert "gone.toml: no such file" in refused(command, empty_log, "--vehicle", tmp_path / "gone.toml")


def written(path: Path, vehicle: str) -> Path:
    """The log of a made-up flight over the board on the floor."""
    flight = fly(duration_s=20.0)
    writer = LogWriter(path, {"vehicle": vehicle, "vehicle_file": "mine.toml"})
    for t, q, p in zip(flight.attitude.t_s, flight.attitude.value, flight.position.value, strict=True):
        writer.put("fcu_attitude", FcuAttitude(stamp_s=t, q_WB=tuple(q), omega_B=(0.0, 0.0, 0.0)), t)
        writer.put("fcu_position", FcuPosition(stamp_s=t, p_W=tuple(p), v_W=(0.0, 0.0, 0.0)), t)
    seen = flight.observations
    q_CM = np.roll(Rotation.from_matrix(seen.R_CM).as_quat(), 1, axis=1)
    for t, q, p, covariance in zip(seen.t_s, q_CM, seen.p_CM, seen.covariance, strict=True):
        best = PoseSolution(tuple(p), tuple(q), 0.3)
        found = BundleObservation("floor", [], best, None, False, tuple(covariance.ravel()), 0.3)
        writer.put("markers", Markers(stamp_s=t, observations=[found], detect_time_s=0.003, search="full"), t)
    writer.close()
    return path


@pytest.mark.parametrize("own", [False, True])
def test_a_position_that_contains_the_estimate_of_this_stack_is_not_fitted(tmp_path, own):
    """It would confirm the camera's place in the vehicle file, however wrong that is."""
    text = F550.read_text().replace("send_odometry = false", f"send_odometry = {str(own).lower()}")
    log = read_mount_log(written(tmp_path / "flight.mcap", text), None, None)
    assert (log.position is None) is own
    assert ("fcu.send_odometry was true in this flight" in log.no_position) is own


def test_without_a_position_of_its_own_the_rotation_is_found_and_the_reason_named():
    log = replace(fly(with_position=False), no_position=OWN_POSITION)
    found = extrinsics.find_extrinsics(log)
    assert not found.with_position and np.degrees(np.abs(rotation_error_rad(found.fit.mount.R_BC))).max() < 0.3
    assert f"{OWN_POSITION}: camera.p_BC stays as it is" in found.warnings
