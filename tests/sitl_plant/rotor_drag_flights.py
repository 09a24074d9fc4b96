"""``python -m tests.sitl_plant.rotor_drag_flights [SEED …]``: `run_10` with rotor drag in the flight model (docs/aerodynamics.md).

The plant has per-rotor drag (equation 11 of Kim et al. 2023). The vehicle file has the true numbers, those that `companion
identify --drag rotor` finds in the log of an identification flight with the same plant, linear drag found in the same log, or none.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from calibration.identification.identify import identify
from calibration.identification.values import changes
from calibration.vehicle_file import Change
from companion.core.vehicle import Drag
from sitl.airframe import load_airframe
from sitl.plant import ROTORS
from sitl.scenario import LoadedScenario, load_scenario
from sitl.simulate import fly_loaded

SCENARIOS = Path(__file__).parents[2] / "config/scenarios"
PLANT: dict[str, Any] = {"k": 0.2, "b": 0.9, "c_d": 0.05, "each_rotor": True}  # 0.25 1/s in a hover
MASS_KG = load_airframe("f550").mass_kg
TRUE = Drag(
    linear_1_s=(0.0, 0.0, 0.0),
    rotor_1_s=ROTORS * PLANT["b"] * PLANT["c_d"] / MASS_KG,
    rotor_s_m=PLANT["k"] * PLANT["c_d"],
)
NONE = Drag(linear_1_s=(0.0, 0.0, 0.0))


def with_plant(name: str) -> LoadedScenario:
    """A scenario whose aircraft has rotor drag, with cameras that need no drawing."""
    loaded = load_scenario(SCENARIOS / f"{name}.toml", None, "corners")
    scenario = msgspec.structs.replace(loaded.scenario, airframe_changes={"rotor_drag": PLANT})
    return msgspec.structs.replace(loaded, scenario=scenario)


def drag_of(made: Sequence[Change]) -> Drag:
    """The drag that these changes write into a vehicle file."""
    found = {change.key.removeprefix("drag."): change.value for change in made if change.key.startswith("drag.")}
    return msgspec.convert(found, Drag)


def identified(seed: int) -> tuple[Drag, Drag]:
    """(rotor drag, linear drag) from the log of one identification flight."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "identification.mcap"
        fly_loaded(with_plant("identification"), seed, log_file=log)
        found = identify([log], None, (None, None))
    return drag_of(changes(found, log.name, rotor_drag=True)), drag_of(changes(found, log.name))


def hold_cm(drag: Drag, seed: int) -> tuple[float, float]:
    """(RMS, largest) position error of `run_10` with this drag in the vehicle file [cm]."""
    loaded = with_plant("run_10")
    vehicle = msgspec.structs.replace(loaded.vehicle, drag=drag)
    result = fly_loaded(msgspec.structs.replace(loaded, vehicle=vehicle), seed).result
    return 100.0 * result["position_rms_m"], 100.0 * result["position_max_m"]


def main(seeds: Sequence[int]) -> None:
    print("| drag in the vehicle file | seed | linear, 1/s | rotors, 1/s | rotors, s/m | RMS, cm | largest, cm |")
    print("|---|---|---|---|---|---|---|")
    for seed in seeds:
        rotor, linear = identified(seed)
        for name, drag in (("true", TRUE), ("identified", rotor), ("linear, identified", linear), ("none", NONE)):
            rms, largest = hold_cm(drag, seed)
            numbers = f"{drag.linear_1_s[0]:.3f} | {drag.rotor_1_s:.3f} | {drag.rotor_s_m:.4f}"
            print(f"| {name} | {seed} | {numbers} | {rms:.2f} | {largest:.1f} |", flush=True)


if __name__ == "__main__":
    main([int(seed) for seed in sys.argv[1:]] or [1])
