"""Flies a mission with real PX4; the body of ``companion fly --fcu px4``."""

from pathlib import Path

from companion.fly import fly
from companion.generate import generate_all
from companion.manager import python
from sitl.px4.build import external_model, find_build
from sitl.realtime import fcu_url
from sitl.scenario import load_scenario, scenario_for

SIH_VEHICLE = "px4_sih_hex.toml"  # beside the scenario's own vehicle file
START_S = 30.0  # PX4's start-up, before the scenario's time begins


def fly_px4(
    mission: Path,
    vehicle: Path | None,
    scenario: Path | None,
    mode: str,
    build_folder: Path | None,
    seed: int,
    speed: float | None,
    out: Path,
) -> int:
    """Start PX4 and all processes; returns the exit status (0: flown to its end).

    vehicle, scenario: None for what the scenario, or the mode, names. mode: "external" or "sih". speed: None for real
    processes in real time, else simulated time at most so many times as fast as the clock.
    Raises `ConfigError` or `StartRefused` when the start is refused.
    """
    build = find_build(build_folder)
    scenario = scenario or scenario_for(mission)
    loaded = load_scenario(scenario, vehicle)
    if mode == "external":
        external_model(loaded.scenario.airframe)
    elif vehicle is None:
        loaded = load_scenario(scenario, loaded.vehicle_path.with_name(SIH_VEHICLE))
    list(generate_all([loaded.vehicle_path], print))

    def simulator(bus: Path, folder: Path) -> dict[str, list[str]]:
        words = ("--mode", mode, "--build", str(build.etc.parent), "--run", str(folder / "px4"), "--seed", str(seed))
        return {"simulator": python("sitl.px4.realtime", str(scenario.resolve()), *words, "--bus", str(bus))}

    timeout_s = START_S + loaded.scenario.duration_max_s
    return fly(mission, loaded.vehicle_path, fcu_url(), out, simulated=True, extra=simulator, timeout_s=timeout_s)
