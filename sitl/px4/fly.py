"""Flies a mission with real PX4; the body of ``companion fly --fcu px4``."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from companion.core.config import ConfigError
from companion.core.enums import Phase
from companion.core.messages import Message
from companion.mission.plan import check_vehicle, handed_over, load_plan
from companion.runtime.display import show
from companion.runtime.flight_record import open_recorder
from companion.runtime.fly import Ending, conclude, fly, new_flight_folder
from companion.runtime.manager import python
from companion.runtime.resume import Place, run_with
from sitl.kernels import build_missing
from sitl.lockstep import Lockstep
from sitl.ports import check_ports_free
from sitl.px4.autopilot import Px4Autopilot
from sitl.px4.build import Px4Build, external_model, find_build
from sitl.px4.process import Px4Ended
from sitl.px4.realtime import warmed_up
from sitl.realtime import fcu_url
from sitl.scenario import LoadedScenario, load_scenario, scenario_for, with_pilot
from sitl.simulate import PX4, log_metadata

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
    instance: int = 0,
    photographed: Sequence[Place] = (),
    pilot: str | None = None,
) -> int:
    """Start PX4 and all processes; returns the exit status (0: flown to its end).

    vehicle, scenario: None for what the scenario, or the mode, names. mode: "external" or "sih". speed: None for real
    processes in real time, else simulated time at most so many times as fast as the clock. instance: shifts all UDP
    ports.
    Raises `ConfigError` or `StartRefused` when the start is refused.
    """
    check_ports_free(instance, px4=True)
    build = find_build(build_folder)
    scenario = scenario or scenario_for(mission)
    loaded = load_scenario(scenario, vehicle)
    if mode == "external":
        external_model(loaded.scenario.airframe)
    elif speed is not None:
        raise ConfigError("--speed: only with --px4-mode external: PX4's own simulator runs in real time")
    elif vehicle is None:
        loaded = load_scenario(scenario, loaded.vehicle_path.with_name(SIH_VEHICLE))
    if pilot is not None:
        loaded = with_pilot(loaded, pilot)
    if speed is None:
        check_real_time(loaded, mode)
    build_missing(loaded.vehicle_path, print)
    if speed is not None:
        plan = load_plan(mission)
        if loaded.piloted and loaded.plan.rc_switch is not None:
            plan = handed_over(plan, loaded.plan.rc_switch)
        loaded = msgspec.structs.replace(loaded, plan=plan, mission_path=mission.resolve())
        check_vehicle(loaded.plan, loaded.vehicle, f"{mission}: ")
        return _fly_in_simulated_time(build, loaded, seed, speed, out, instance, photographed)

    def simulator(bus: Path, folder: Path) -> dict[str, list[str]]:
        words = ("--mode", mode, "--build", str(build.etc.parent), "--run", str(folder / "px4"), "--seed", str(seed),
                 "--instance", str(instance))  # fmt: skip
        return {"simulator": python("sitl.px4.realtime", str(scenario.resolve()), *words, "--bus", str(bus))}

    timeout_s = START_S + loaded.scenario.duration_max_s
    return fly(
        mission,
        loaded.vehicle_path,
        fcu_url(instance),
        out,
        simulated=True,
        extra=simulator,
        timeout_s=timeout_s,
        scenario=scenario,
        run=run_with({"kind": PX4, "seed": seed, "mode": mode}, photographed),
    )


def check_real_time(loaded: LoadedScenario, mode: str) -> None:
    """Raises `ConfigError` for what a scenario asks of PX4 that needs simulated time."""
    if loaded.scenario.pilot is not None:
        way = (
            "add --speed 2" if mode == "external" else f"--px4-mode {mode} has none; fly --px4-mode external --speed 2"
        )
        raise ConfigError(f"{loaded.path}: pilot: with PX4 only in simulated time: {way}")
    if not (faults := loaded.scenario.fault) and (mode != "external" or loaded.scenario.command_delay_s == 0.0):
        return
    key = f"fault[0] ({faults[0].kind})" if faults else f"command_delay_s = {loaded.scenario.command_delay_s:g}"
    way = "add --speed 2" if mode == "external" else f"--px4-mode {mode} has none; fly --px4-mode external --speed 2"
    raise ConfigError(f"{loaded.path}: {key}: with PX4 only in simulated time: {way}")


def _fly_in_simulated_time(
    build: Px4Build,
    loaded: LoadedScenario,
    seed: int,
    speed: float,
    out: Path,
    instance: int,
    photographed: Sequence[Place],
) -> int:
    console = Console()
    folder = new_flight_folder(out, loaded.mission_path)
    shown: tuple[Phase, str] | None = None
    running: Lockstep | None = None

    def progress(lockstep: Lockstep) -> None:
        nonlocal shown, running
        running, status = lockstep, lockstep.pilot
        if status is not None and (status.phase, status.reason) != shown:
            shown = (status.phase, status.reason)
            show(console, f"{lockstep.now_s:6.1f} s  {status.phase}  {status.reason}")

    try:
        lockstep = simulate_px4(build, loaded, seed, speed, folder, instance, progress, photographed)
    except Px4Ended as error:
        show(console, f"simulator: {error}")
        return 1
    except KeyboardInterrupt:
        return conclude(folder, Ending(None if running is None else running.pilot, interrupted=True), console)
    show(console, f"{lockstep.now_s:.0f} s of flight in {lockstep.wall_s:.0f} s")
    return conclude(folder, Ending(lockstep.pilot), console)


def simulate_px4(
    build: Px4Build,
    loaded: LoadedScenario,
    seed: int,
    speed: float,
    folder: Path,
    instance: int = 0,
    progress: Callable[[Lockstep], None] | None = None,
    photographed: Sequence[Place] = (),
) -> Lockstep:
    """The nodes that fly, in one process and in simulated time, in lockstep with PX4; the log goes to the folder.

    Computing takes no simulated time, so the load of the machine does not matter. But PX4 sends and receives MAVLink in
    threads of its own, in real time: the faster the simulation, the later, in simulated time, a message arrives, and two
    flights are never exactly the same. Raises `ConfigError` or `Px4Ended`.
    """
    autopilot = Px4Autopilot(build, loaded, folder / "px4", seed, instance, carry_mavlink=True, speed=speed)
    try:
        world = warmed_up(loaded, seed, autopilot)
        while autopilot.take_output():  # of the time before the flight; one call takes a limited number of datagrams
            pass
        recorder = open_recorder(
            folder / "flight.mcap", log_metadata(loaded, seed, kind=PX4, photographed=photographed)
        )

        def record(message: Message, now_s: float) -> None:
            recorder.handle(message, now_s)

        try:
            lockstep = Lockstep(loaded, seed, record=record, world=world, photographed=photographed)
            lockstep.run(progress)
        finally:
            recorder.close()
    finally:
        autopilot.close()
    return lockstep
