"""The experiments' scenario files: each loads and names its source; short flights follow their trajectories."""

from pathlib import Path

import msgspec
import pytest

from companion.core.config import ConfigError
from companion.core.messages import WORLD
from companion.recording.metrics import metrics_from_messages
from sitl.lockstep import Lockstep
from sitl.scenario import FaultKind, load_scenario

ROOT = Path(__file__).parents[2]
SCENARIOS = sorted((ROOT / "config/scenarios").glob("*.toml"))
EXPERIMENTS = {
    "hover_marker", "hover_wind", "line_headwind", "line_sidegust", "spiral_calm", "spiral_side", "spiral_up",
    "spiral_down", "bridge_field", "figure8_wind_0", "figure8_wind_4", "figure8_wind_8", "figure8_wind_12", "run_5",
    "run_10",
}  # fmt: skip


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_every_scenario_file_loads_and_has_the_name_of_its_file(path):
    assert load_scenario(path).scenario.name == path.stem


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
def test_in_every_experiment_the_plant_is_not_the_model(name):
    scenario = load_scenario(ROOT / f"config/scenarios/{name}.toml").scenario
    assert scenario.thrust_scale == 0.92 and scenario.command_delay_s == 0.03 and scenario.camera.latency_s == 0.06
    text = (ROOT / f"config/scenarios/{name}.toml").read_text(encoding="utf-8")
    assert text.startswith("# ") and ("Paper 1" in text or "Neural-Fly" in text or "not in any paper" in text)


def test_every_experiment_has_its_file():
    assert {path.stem for path in SCENARIOS} >= EXPERIMENTS


def shortened(name: str, **trajectory):
    loaded = load_scenario(ROOT / f"config/scenarios/{name}.toml")
    curve = msgspec.structs.replace(loaded.plan.trajectory, **trajectory)
    return msgspec.structs.replace(loaded, plan=msgspec.structs.replace(loaded.plan, trajectory=curve))


@pytest.mark.parametrize(
    ("name", "changes", "limit_m"),
    [("figure8_wind_4", {"laps": 2}, 0.06), ("line_sidegust", {"laps": 1, "stop_s": 2.0}, 0.06)],
)
def test_a_short_flight_in_wind_follows_its_trajectory(name, changes, limit_m):
    lockstep = Lockstep(shortened(name, **changes), seed=21)
    lockstep.run()
    assert lockstep.pilot.success, lockstep.pilot.reason
    metrics = metrics_from_messages(lockstep.messages)
    assert metrics["frame"] == WORLD and metrics["hold_s"] > 10
    assert metrics["position_rms_m"] < limit_m
    assert metrics["yaw_rms_deg"] < 1.0
    assert metrics["events"] == [] and metrics["fallback_cycles"] == 0


def scenario_file(folder: Path, text: str, base: str = "") -> Path:
    (folder / "base.toml").write_text(base + (ROOT / "config/scenarios/bridge_hover.toml").read_text())
    path = folder / "scenario.toml"
    path.write_text(text.replace("../", f"{ROOT}/config/"))
    return path


DIFFERENCES = 'base = "base.toml"\nmission = "../missions/bridge_hover.toml"\nvehicle = "../vehicles/f550.toml"\n'


def test_a_scenario_lays_its_keys_over_those_of_its_base(tmp_path):
    path = scenario_file(tmp_path, DIFFERENCES + "thrust_scale = 0.9\n[sensors.gnss]\nrate_hz = 5.0\n")
    loaded, base = load_scenario(path), load_scenario(ROOT / "config/scenarios/bridge_hover.toml")
    assert loaded.scenario.sensors.gnss.rate_hz == 5.0 and loaded.scenario.thrust_scale == 0.9
    back = msgspec.structs.replace(loaded.scenario.sensors.gnss, rate_hz=10.0)
    sensors = msgspec.structs.replace(loaded.scenario.sensors, gnss=back)
    assert sensors == base.scenario.sensors and loaded.scenario.camera == base.scenario.camera


@pytest.mark.parametrize(
    ("text", "base", "message"),
    [
        (DIFFERENCES + "[sensors.gnss]\nrate = 5.0\n", "", "sensors.gnss.rate: unknown key"),
        (DIFFERENCES, 'base = "other.toml"\n', "has no base of its own"),
        ('base = "none.toml"\n', "", "none.toml: no such file"),
        ("base = 3\n", "", "must be the name of a file"),
    ],
)
def test_a_layered_file_stays_strict(tmp_path, text, base, message):
    with pytest.raises(ConfigError, match=message):
        load_scenario(scenario_file(tmp_path, text, base))


@pytest.mark.parametrize(
    ("former", "value", "kind"),
    [
        ("markers_garbage", "[0.1]", FaultKind.MARKERS_OUTLIERS),
        ("estimator_unsure", "[0.0, 0.8]", FaultKind.ESTIMATOR_UNCERTAIN),
    ],
)
def test_the_former_name_of_a_fault_is_read_as_the_present_one(tmp_path, former, value, kind):
    text = f'fault = [{{ at_s = 1.0, kind = "{former}", value = {value} }}]\n'
    (fault,) = load_scenario(scenario_file(tmp_path, DIFFERENCES + text)).scenario.fault
    assert fault.kind is kind


def test_an_unknown_fault_is_refused_by_name(tmp_path):
    text = 'fault = [{ at_s = 1.0, kind = "meteor" }]\n'
    with pytest.raises(ConfigError, match=r"fault\[0\].kind = 'meteor'"):
        load_scenario(scenario_file(tmp_path, DIFFERENCES + text))
