"""The baselines fly the same missions in the same air, and the result of `compare` is well formed."""

import json
import math
from pathlib import Path

import msgspec
import pytest

from companion.cli import STACKS
from companion.core.config import ConfigError
from sitl.baselines.stacks import STACKS as FLOWN_STACKS
from sitl.compare import compare, consistency, consistency_line, mean_and_std, plot, table
from sitl.lockstep import Lockstep
from sitl.scenario import load_scenario

pytest.importorskip("casadi")
ROOT = Path(__file__).parents[2]
SCENARIO = ROOT / "config/scenarios/bridge_hover.toml"
HELD_S = 20
MISSION_STEP_S = 0.05  # the measured hold ends with the last message of its phase
OFFBOARD_S = 15.0  # by then every stack flies


@pytest.fixture(scope="module")
def short(tmp_path_factory) -> Path:
    """The bridge hover in its own air, from a start nearer to the pier, with a hold of 20 s."""
    folder = tmp_path_factory.mktemp("short")
    mission = (ROOT / "config/missions/bridge_hover.toml").read_text()
    changes = {
        '"../markers': f'"{ROOT}/config/markers',
        "duration_s = 60.0": f"duration_s = {HELD_S}.0",
        "at_s = [10.0, 25.0, 40.0, 55.0]": "at_s = [10.0]",
        "p_m = [7.0, 0.0, 4.0]": "p_m = [0.5, 0.0, 4.0]",
    }
    for old, new in changes.items():
        assert old in mission
        mission = mission.replace(old, new)
    (folder / "mission.toml").write_text(mission)
    scenario = SCENARIO.read_text().replace('"../missions/bridge_hover.toml"', '"mission.toml"')
    scenario = scenario.replace('"../vehicles', f'"{ROOT}/config/vehicles')
    scenario = scenario.replace("p_W = [0.0, 0.0, 0.0]\nyaw", "p_W = [7.0, 0.0, 0.0]\nyaw")
    assert "p_W = [7.0, 0.0, 0.0]" in scenario
    scenario = scenario.replace("duration_max_s = 240", "duration_max_s = 66")
    (folder / "short.toml").write_text(scenario)
    return folder / "short.toml"


@pytest.fixture(scope="module")
def result(short) -> dict:
    return compare(short, [21], ["px4", "paper"], camera="corners", workers=1)


def fly(scenario: Path, stack: str, until_s: float) -> Lockstep:
    loaded = load_scenario(scenario, camera_mode="corners")
    ends = msgspec.structs.replace(loaded.scenario, duration_max_s=until_s)
    lockstep = Lockstep(msgspec.structs.replace(loaded, scenario=ends), 5, stack=stack)
    lockstep.run()
    return lockstep


@pytest.fixture(scope="module")
def two_px4(short) -> list[Lockstep]:
    return [fly(short, "px4", OFFBOARD_S) for _ in range(2)]


def path_of(lockstep: Lockstep) -> list:
    return [(m.p_W, m.q_WB) for m in lockstep.messages["truth"]]


@pytest.mark.verify
def test_both_baselines_hold_in_front_of_the_pier(result):
    runs = {run["stack"]: run for run in result["runs"]}
    for stack, run in runs.items():
        assert run["hold_s"] > HELD_S - MISSION_STEP_S, (stack, run["final_phase"], run["final_reason"])
    assert runs["paper"]["position_rms_m"] < 0.4
    assert runs["px4"]["position_rms_m"] < 2.0


def test_the_comparison_is_plain_data_with_every_figure(result, tmp_path):
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["seeds"] == [21] and result["stacks"] == ["px4", "paper"]
    for row in result["summary"].values():
        assert row["flown"] == 1 and row["position_rms_m"]["n"] == 1
        total = math.sqrt(sum(axis["mean"] ** 2 for axis in row["position_rms_axis_m"]))
        assert total == pytest.approx(row["position_rms_m"]["mean"], rel=1e-6)
    px4, paper = (result["summary"][stack] for stack in ("px4", "paper"))
    assert px4["ratio"] == 1.0
    assert paper["ratio"] == pytest.approx(paper["position_rms_m"]["mean"] / px4["position_rms_m"]["mean"])
    assert all(len(run["series"]["t_s"]) > 5 * HELD_S for run in result["runs"])
    assert table(result).row_count == 2
    plot(result, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000


def test_a_run_that_never_held_is_counted_and_has_no_error(short, tmp_path):
    early = short.with_name("early.toml")
    early.write_text(short.read_text().replace("duration_max_s = 66", "duration_max_s = 2"))
    result = compare(early, [1, 2], ["px4", "full"], camera="corners", workers=1)
    for row in result["summary"].values():
        assert row["completed"] == 0 and row["flown"] == 2 and row["position_rms_m"]["mean"] is None
        assert row["ratio"] is None
    assert table(result).row_count == 2
    plot(result, tmp_path / "plot.png")


def test_the_same_seed_gives_the_same_flight_of_the_autopilot_alone(two_px4):
    first, second = map(path_of, two_px4)
    assert len(first) > 1500 and first == second


def test_the_same_seed_gives_the_same_flight_of_the_prior_stack(short):
    first, second = (fly(short, "paper", OFFBOARD_S) for _ in range(2))
    assert len(first.messages["sent_setpoint"]) > 10
    assert path_of(first) == path_of(second)


def test_the_autopilot_alone_gets_positions_and_no_attitudes(two_px4):
    lockstep = two_px4[0]
    assert lockstep.messages["sent_setpoint"] == []
    assert lockstep.messages["fcu_status"][-1].mode == "OFFBOARD"
    commanded, control = lockstep.world.autopilot.position_sp, lockstep.messages["control"][-1]
    assert commanded.p == pytest.approx(control.reference_p_W, abs=0.05)
    state = lockstep.messages["state"][-1]
    assert state.gnss_bias_W == (0.0, 0.0, 0.0)
    assert state.p_W in [m.p_W for m in lockstep.messages["fcu_position"][-10:]]


def test_an_unknown_stack_is_refused(short):
    with pytest.raises(ConfigError, match="best"):
        fly(short, "best", 1.0)


def test_the_command_line_offers_every_stack():
    assert tuple(FLOWN_STACKS) == STACKS


def test_mean_and_deviation_ignore_missing_values():
    assert mean_and_std([1.0, None, 3.0, math.nan]) == {"mean": 2.0, "std": pytest.approx(math.sqrt(2)), "n": 2}
    assert mean_and_std([None]) == {"mean": None, "std": None, "n": 0}


def test_consistency_is_judged_by_chi_square_of_the_mean_over_flights():
    flights = [{"position": 3.0, "velocity": 0.5}, {"position": 3.4, "velocity": 0.7}]
    nees = consistency(flights)
    low, high = nees["bounds"]
    assert (low, high) == (pytest.approx(0.6187, abs=1e-3), pytest.approx(7.2247, abs=1e-3))  # chi-square of 6, over 2
    assert nees["position"] == {"mean": pytest.approx(3.2), "inside": True}
    assert nees["velocity"] == {"mean": pytest.approx(0.6), "inside": False}
    assert "velocity 0.60*" in consistency_line("full", nees)
    assert consistency([]) == {}
