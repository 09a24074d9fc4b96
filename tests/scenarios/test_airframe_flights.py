"""The quad and the X8 hold in front of a pier with the vehicle files that the commands made."""

from pathlib import Path

import pytest

from sitl.kernels import build_missing
from sitl.scenario import load_scenario
from sitl.simulate import fly_loaded

CONFIG = Path(__file__).parents[2] / "config"


@pytest.mark.verify
@pytest.mark.parametrize("name", ["f450", "x8"])
def test_another_aircraft_holds_within_five_centimetres(name):
    vehicle, airframe = CONFIG / f"vehicles/{name}.toml", CONFIG / f"airframes/{name}.toml"
    loaded = load_scenario(CONFIG / "scenarios/bridge_hover.toml", vehicle, "corners", airframe)
    build_missing(vehicle, print)
    result = fly_loaded(loaded, seed=3).result
    print(name, result["position_rms_m"], result["position_max_m"])
    assert result["completed"] and result["events"] == [] and result["fallback_cycles"] == 0
    assert result["position_rms_m"] < 0.05 and result["position_max_m"] < 0.15
