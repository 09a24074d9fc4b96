"""Missions with real PX4, arm to disarm, in both ways; skipped where no PX4 is found."""

import numpy as np
import pytest
from px4_flight import Px4Flight, fly

pytestmark = pytest.mark.realtime


def tell(figures: dict) -> None:
    keys = ("position_rms_m", "position_max_m", "estimate_rms_m", "gnss_rms_m", "setpoint_rate_hz", "setpoint_gap_s")
    print({key: round(figures[key], 4) for key in keys})


@pytest.mark.parametrize(
    "words", [(), ("--speed", "2"), ("--px4-mode", "sih")], ids=["external", "external-simulated-time", "sih"]
)
def test_bridge_hover_from_arming_to_disarming(tmp_path, words):
    figures, log = fly("bridge_hover", tmp_path, *words)
    tell(figures)
    assert figures["hold_s"] > 59.0
    assert figures["position_rms_m"] <= 0.10
    assert log["pilot"][-1].photographs == 4
    if "sih" not in words:
        assert figures["gnss_rms_m"] > 0.2, "the satellites did not drift"
        assert np.std([t.disturbance_W[1] for t in log["truth"]]) > 0.2, "there was no wind"


@pytest.mark.parametrize(
    "words", [(), ("--speed", "2"), ("--px4-mode", "sih")], ids=["external", "external-simulated-time", "sih"]
)
def test_figure_eight_of_four_metres_in_eight_seconds(tmp_path, words):
    figures, log = fly("figure_eight_pier", tmp_path, *words)
    tell(figures)
    assert figures["hold_s"] > 40.0
    assert figures["position_rms_m"] <= 0.15
    speeds = [float(np.linalg.norm(t.v_W)) for t in log["truth"]]
    assert max(speeds) > 1.8, "it did not fly the figure"


@pytest.mark.parametrize("mode", ["external", "sih"])
def test_a_stream_that_stops_leads_to_px4_s_failsafe(tmp_path, mode):
    with Px4Flight(mode, tmp_path) as flight:
        assert flight.run(120.0, lambda: flight.phases[-1:] == ["HOLD"]), flight.phases
        flight.run(3.0)
        assert flight.modes[-1] == "OFFBOARD"
        here_W = np.array(flight.truth[-1].p_W)
        flight.truth.clear()
        flight.kill("controller")
        assert flight.run(3.0, lambda: flight.modes[-1] != "OFFBOARD"), "PX4 stayed in offboard"
        flight.run(6.0)
        farthest_m = max(np.linalg.norm(np.array(t.p_W) - here_W) for t in flight.truth)
        print(f"modes {flight.modes}, phases {flight.phases}, farthest {farthest_m:.2f} m")
        assert "OFFBOARD" not in flight.modes[flight.modes.index("OFFBOARD") + 1 :], "offboard came back by itself"
        assert flight.modes[-1] == "POSCTL" and flight.phases[-1] in ("PX4_HOLD", "PILOT")
        assert farthest_m < 3.0
