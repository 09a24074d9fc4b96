"""The whole stack holds under a deck, whose ceiling effect draws the aircraft up."""

from pathlib import Path

import numpy as np
import pytest

from sitl.airframe import load_airframe
from sitl.scenario import load_scenario
from sitl.simulate import simulate

SCENARIO = Path(__file__).parents[2] / "config/scenarios/structure/under_deck.toml"


def test_the_rotors_are_held_0_6_m_under_the_deck():
    loaded = load_scenario(SCENARIO)
    home_W = loaded.scenario.start.p_W
    (_, _, z) = loaded.plan.trajectory.start_m
    airframe = load_airframe(loaded.scenario.airframe)
    hubs_z = z + airframe.ground.foot_height_m + airframe.rotor.height_m
    above = loaded.solids.first_hit((home_W[0], home_W[1], hubs_z), np.array([[0.0, 0.0, 1.0]]))[0]
    assert above == pytest.approx(0.6, abs=0.01)


@pytest.mark.verify
def test_a_minute_under_a_deck_is_held_within_centimetres():
    result = simulate(SCENARIO, seed=1)
    assert result["completed"] and result["contacts"] == [] and result["hold_s"] >= 60.0
    assert result["position_rms_m"] <= 0.05
    assert result["position_max_m"] <= 0.15
