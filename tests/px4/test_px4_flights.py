"""Missions with real PX4 from arming to disarming, with both simulators; skipped where no PX4 is found."""

import math

import msgspec
import numpy as np
import pytest
from px4_flight import HOLD_S, ROOT, Px4Flight, fly, need_px4, simulated

from sitl.px4.build import find_build
from sitl.px4.fly import simulate_px4
from sitl.scenario import Fault, FaultKind, load_scenario

pytestmark = pytest.mark.realtime


def show(figures: dict) -> None:
    keys = ("position_rms_m", "position_max_m", "estimate_rms_m", "gnss_rms_m", "setpoint_rate_hz", "setpoint_gap_s")
    print({key: round(figures[key], 4) for key in keys})


@pytest.mark.parametrize(
    "options", [(), ("--speed", "2"), ("--px4-mode", "sih")], ids=["external", "external-simulated-time", "sih"]
)
def test_bridge_hover_from_arming_to_disarming(tmp_path, options):
    figures, log = fly("bridge_hover", 0.10, tmp_path, *options)
    show(figures)
    assert figures["hold_s"] > 59.0
    assert log["mission_status"][-1].photographs == 4
    if "sih" not in options:
        assert figures["gnss_rms_m"] > 0.2, "GNSS did not drift"
        assert np.std([t.disturbance_W[1] for t in log["truth"]]) > 0.2, "there was no wind"


@pytest.mark.parametrize(
    "options", [(), ("--speed", "2"), ("--px4-mode", "sih")], ids=["external", "external-simulated-time", "sih"]
)
def test_figure_eight_of_four_metres_in_eight_seconds(tmp_path, options):
    figures, log = fly("figure_eight_pier", 0.15, tmp_path, *options)
    show(figures)
    assert figures["hold_s"] > 40.0
    speeds = [float(np.linalg.norm(t.v_W)) for t in log["truth"]]
    assert max(speeds) > 1.8, "it did not fly the figure"


def test_a_controller_that_dies_leaves_px4_in_charge(tmp_path):
    """In simulated time, so that the load of the machine does not matter."""
    need_px4()
    loaded = load_scenario(ROOT / "config/scenarios/bridge_hover.toml", camera_mode="corners")
    dead = Fault(at_s=50.0, kind="process_dead", duration_s=2.0, name="controller")
    scenario = msgspec.structs.replace(loaded.scenario, fault=[dead], duration_max_s=62.0)
    loaded = msgspec.structs.replace(loaded, scenario=scenario)
    lockstep = simulate_px4(find_build(), loaded, 1, 3.0, tmp_path)
    modes, phases = [], []
    for status in lockstep.messages["fcu_status"]:
        if status.connected and modes[-1:] != [status.mode]:
            modes.append(status.mode)
    for status in lockstep.messages["mission_status"]:
        if phases[-1:] != [status.phase]:
            phases.append(status.phase)
    left_s = next(s.stamp_s for s in lockstep.messages["fcu_status"] if s.stamp_s > 50.0 and s.mode != "OFFBOARD")
    here_W = next(np.array(t.p_W) for t in lockstep.messages["truth"] if t.stamp_s > 50.0)
    farthest_m = max(np.linalg.norm(np.array(t.p_W) - here_W) for t in lockstep.messages["truth"] if t.stamp_s > 50.0)
    print(f"modes {modes}, phases {phases}, left after {left_s - 50.0:.2f} s, farthest {farthest_m:.2f} m")
    assert 0.5 <= left_s - 50.0 < 1.2  # COM_OF_LOSS_T is 0.5 s
    assert modes[-1] == "POSCTL" and "OFFBOARD" not in modes[modes.index("OFFBOARD") + 1 :]
    assert phases[-1] in ("PX4_HOLD", "PILOT")
    assert farthest_m < 3.0, "position mode holds by GNSS, which drifts, but not so far"
    assert list((tmp_path / "px4").glob("log/*/*.ulg")) and (tmp_path / "flight.mcap").exists()


@pytest.mark.parametrize("mode", ["external", "sih"])
def test_a_stream_that_stops_leads_to_px4_s_failsafe(tmp_path, mode):
    with Px4Flight(mode, tmp_path) as flight:
        assert flight.run(120.0, lambda: flight.phases[-1:] == ["HOLD"]), flight.phases
        flight.run(3.0)
        assert flight.modes[-1] == "OFFBOARD"
        here_W = np.array(flight.truth[-1].p_W)
        flight.truth.clear()
        flight.hang("controller")  # a killed controller sometimes runs again before PX4's timeout
        assert flight.run(3.0, lambda: flight.modes[-1] != "OFFBOARD"), "PX4 stayed in offboard"
        flight.run(6.0)
        farthest_m = max(np.linalg.norm(np.array(t.p_W) - here_W) for t in flight.truth)
        print(f"modes {flight.modes}, phases {flight.phases}, farthest {farthest_m:.2f} m")
        assert "OFFBOARD" not in flight.modes[flight.modes.index("OFFBOARD") + 1 :], "offboard came back by itself"
        assert flight.modes[-1] == "POSCTL" and flight.phases[-1] in ("PX4_HOLD", "PILOT")
        assert farthest_m < 3.0


def test_without_a_position_this_stack_sinks_against_the_wind_and_px4_takes_the_last_decimetres(tmp_path):
    """PX4's own descent from the hold moved the aircraft by 10 m, and met the ground at 4 m/s."""
    lost = [Fault(at_s=HOLD_S, kind=kind, duration_s=600.0) for kind in (FaultKind.GNSS_LOST, FaultKind.MARKERS_HIDDEN)]
    lockstep = simulated(tmp_path, HOLD_S + 28.0, lost)
    assert lockstep.pilot is not None and lockstep.pilot.phase == "DONE"
    home, truth = lockstep.loaded.scenario.start.p_W, [m for m in lockstep.messages["truth"] if m.stamp_s >= HOLD_S]
    touched = next(m for m in truth if m.p_W[2] - home[2] < 0.25)
    moved_m, speed_m_s = math.dist(touched.p_W[:2], truth[0].p_W[:2]), math.hypot(*touched.v_W[:2])
    print(f"moved by {moved_m:.1f} m, {speed_m_s:.1f} m/s at the ground")
    assert moved_m < 4.0 and speed_m_s < 2.0


def test_satellites_that_px4_does_not_use_count_as_lost(tmp_path):
    """Their stated accuracy is beyond 50 m; the receiver has its fix. The hold goes on, and ends when the bundle is hidden."""
    refused = Fault(at_s=HOLD_S, kind=FaultKind.GNSS_REFUSED, duration_s=600.0)
    hidden = Fault(at_s=HOLD_S + 20.0, kind=FaultKind.MARKERS_HIDDEN, duration_s=600.0)
    lockstep = simulated(tmp_path, HOLD_S + 50.0, [refused, hidden])
    face_m = lockstep.loaded.scenario.scene.bundles[0].p_W[0]
    truth = [m for m in lockstep.messages["truth"] if m.stamp_s >= HOLD_S]
    status = [m for m in lockstep.messages["fcu_status"] if m.stamp_s >= HOLD_S]
    events = [
        (round(e.stamp_s - HOLD_S, 1), e.monitor)
        for e in lockstep.messages["safety"]
        if e.stamp_s >= HOLD_S and e.active
    ]
    no_position_s = next(m.stamp_s for m in status if m.position_ok is False) - HOLD_S
    held_m = max(math.dist(m.p_W, truth[0].p_W) for m in truth if m.stamp_s < hidden.at_s)
    nearest_m = min(face_m - m.p_W[0] for m in truth)
    print(
        f"no position after {no_position_s:.1f} s, held within {held_m:.2f} m, {nearest_m:.2f} m from the face, {events}"
    )
    assert all(m.gnss_ok for m in status) and no_position_s < 15.0
    assert "gnss_lost_at_bundle" in [name for _, name in events] and held_m < 0.3 and nearest_m > 1.0
    assert lockstep.pilot.phase == "DONE"
