"""The inspection hover in lockstep: it completes, holds still, and repeats itself."""

from pathlib import Path

import msgspec
import pytest

from sitl.lockstep import Lockstep
from sitl.scenario import Fault, load_scenario
from sitl.simulate import simulate

ROOT = Path(__file__).parents[2]
SCENARIO = ROOT / "config/scenarios/bridge_hover.toml"
INTO_THE_HOLD_S = 50.0
REPEATED = ("truth", "fcu_attitude", "fcu_position", "state", "setpoint", "sent_setpoint", "mission_status")


@pytest.mark.parametrize(
    "camera, seed",
    [
        ("corners", 1),
        pytest.param("corners", 2, marks=pytest.mark.verify),
        pytest.param("corners", 3, marks=pytest.mark.verify),
        pytest.param("images", 2, marks=pytest.mark.verify),
    ],
)
def test_the_hover_completes_and_holds_still(camera, seed):
    result = simulate(SCENARIO, seed, camera=camera)
    assert result["completed"], result["phases"][-1]
    assert result["position_rms_m"] <= 0.08
    assert result["estimate_rms_m"] <= 0.05
    assert result["photographs"] == 4
    assert result["fallback_cycles"] == 0 and result["deadline_misses"] == 0
    assert result["setpoint_rate_hz"] >= 45 and result["setpoint_gap_s"] <= 0.1
    assert result["events"] == []
    # the world drifts with the GNSS; the bundle's frame does not
    assert result["estimate_rms_m"] < result["gnss_rms_m"] / 3


def fly_with(*faults: Fault, seed: int = 1, until_s: float = 150) -> Lockstep:
    loaded = load_scenario(SCENARIO, camera_mode="corners")
    scenario = msgspec.structs.replace(loaded.scenario, fault=list(faults), duration_max_s=until_s)
    lockstep = Lockstep(msgspec.structs.replace(loaded, scenario=scenario), seed)
    lockstep.run()
    return lockstep


@pytest.mark.verify
def test_the_same_seed_gives_the_same_flight_to_the_last_digit():
    first, second = (fly_with(seed=4, until_s=INTO_THE_HOLD_S).messages for _ in range(2))
    assert first["mission_status"][-1].phase == "HOLD"
    for topic in REPEATED:
        assert first[topic] and first[topic] == second[topic], topic


def modes_after(lockstep: Lockstep, t_s: float) -> list[str]:
    modes = []
    for status in lockstep.messages["fcu_status"]:
        if status.stamp_s > t_s and status.connected and modes[-1:] != [status.mode]:
            modes.append(status.mode)
    return modes


@pytest.mark.parametrize(
    "name",
    [
        "controller",
        *(pytest.param(name, marks=pytest.mark.verify) for name in ("tracker", "estimator", "fcu", "mission")),
    ],
)
def test_a_process_that_dies_in_the_hold_never_leads_back_to_offboard(name):
    at_s = 50.0
    lockstep = fly_with(Fault(at_s=at_s, kind="process_dead", duration_s=2.0, name=name), until_s=64)
    phases = [p.phase for p in lockstep.messages["mission_status"] if p.stamp_s > at_s]
    modes = modes_after(lockstep, at_s)
    if name == "tracker":
        assert modes == ["OFFBOARD"] and set(phases) == {"HOLD"}
        return
    assert modes[-1] != "OFFBOARD", "PX4 did not take over"
    assert "OFFBOARD" not in modes[1:]
    assert phases[-1] in ("PX4_HOLD", "PILOT")
    sent_late = [s for s in lockstep.messages["sent_setpoint"] if s.stamp_s > at_s + 4.0]
    assert sent_late == [], "setpoints were streamed again after PX4 had taken over"
    near = [t for t in lockstep.messages["truth"] if at_s < t.stamp_s < at_s + 6.0]
    assert max(abs(t.p_W[0] - 9.0) for t in near) < 1.0 and min(t.p_W[2] for t in near) > 3.0


@pytest.mark.verify
def test_the_pilot_takes_over_with_the_mode_switch():
    lockstep = fly_with(Fault(at_s=50.0, kind="rc_mode_switch", duration_s=3.0), until_s=60)
    assert "OFFBOARD" not in modes_after(lockstep, 52.0)
    assert lockstep.pilot.phase == "PILOT"


@pytest.mark.verify
def test_while_the_solver_fails_the_pid_flies_and_then_the_nmpc_again():
    lockstep = fly_with(Fault(at_s=45.0, kind="solver_fails", duration_s=3.0))
    active = [c.active for c in lockstep.messages["control"] if 45.2 < c.stamp_s < 48.0]
    assert set(active) == {"pid"}
    assert lockstep.messages["control"][-1].fallback_cycles > 100
    assert lockstep.pilot.success
    commands = [(s.roll_rad, s.pitch_rad) for s in lockstep.messages["sent_setpoint"] if 44.9 < s.stamp_s < 50.0]
    largest = max(max(abs(b[0] - a[0]), abs(b[1] - a[1])) for a, b in zip(commands, commands[1:], strict=False))
    assert largest < 0.1, "the hand-over jumped"


@pytest.mark.verify
def test_a_controller_that_misses_its_deadline_falls_back():
    lockstep = fly_with(Fault(at_s=45.0, kind="controller_slow", duration_s=2.0, value=[0.03]))
    last = lockstep.messages["control"][-1]
    assert last.deadline_misses > 50 and last.fallback_cycles > 50
    assert lockstep.pilot.success


@pytest.mark.verify
def test_hidden_markers_end_the_hold_with_a_retreat():
    lockstep = fly_with(Fault(at_s=50.0, kind="markers_hidden", duration_s=100.0))
    phases = {p.phase for p in lockstep.messages["mission_status"]}
    assert {"PAUSE", "RETREAT", "RETURN", "LAND"} <= phases
    closest = max(t.p_W[0] for t in lockstep.messages["truth"])
    assert closest < 10.5, "came nearer to the structure than half the stand-off"


@pytest.mark.verify
def test_a_gnss_jump_does_not_move_the_hold():
    """Of multipath's size; after a larger one PX4 resets its position, and the row `fcu_reset` ends the hold."""
    lockstep = fly_with(Fault(at_s=50.0, kind="gnss_jump", duration_s=20.0, value=[3.0, 0.0, 0.0]), until_s=96)
    held = [t.p_W for t in lockstep.messages["truth"] if 50.0 < t.stamp_s < 95.0]
    assert max(abs(p[0] - 9.0) for p in held) < 0.3
    assert lockstep.pilot.phase == "HOLD"
