"""The simulator process with real PX4: as `sitl.realtime`, which flies the PX4 emulator.

``python -m sitl.px4.realtime SCENARIO --mode external|sih --build DIR --run DIR --seed N --bus DIR``
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from companion.core.config import ConfigError
from companion.runtime.process import StopFlag
from sitl.autopilot.udp import UdpLinks
from sitl.ports import check_instance
from sitl.px4.autopilot import WARM_UP_S, Px4Autopilot
from sitl.px4.build import find_build
from sitl.px4.process import Px4Ended
from sitl.realtime import open_bus, run
from sitl.scenario import LoadedScenario, load_scenario
from sitl.world import STEP_S, World

MODES = ("external", "sih")


def main() -> int:
    """Entry of the process; status 2 with one line when it cannot start, 1 with one line when PX4 ends."""
    parser = argparse.ArgumentParser(prog="sitl.px4.realtime")
    parser.add_argument("scenario", type=Path)
    parser.add_argument("--mode", choices=MODES, default=MODES[0])
    parser.add_argument("--build", type=Path, default=None)
    parser.add_argument("--run", type=Path, required=True, help="the folder PX4 runs in")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bus", type=Path, required=True)
    parser.add_argument("--instance", type=int, default=0)
    given = parser.parse_args()
    stop = StopFlag()
    try:
        check_instance(given.instance, px4=True)
        loaded = load_scenario(given.scenario)
        build = find_build(given.build)
        bus = open_bus(given.bus)
        if given.mode == "sih":
            from sitl.px4.sih import fly_sih

            fly_sih(build, loaded, given.run, given.seed, given.instance, bus, stop)
        else:
            autopilot = Px4Autopilot(build, loaded, given.run, given.seed, given.instance)
            try:
                world = warmed_up(loaded, given.seed, autopilot, lambda: bool(stop))
                run(world, UdpLinks([]), bus, stop)
            finally:
                autopilot.close()
    except ConfigError as error:
        print(f"simulator: {error}", file=sys.stderr)
        return 2
    except Px4Ended as error:
        print(f"simulator: {error}", file=sys.stderr)
        return 1
    return 0


def warmed_up(
    loaded: LoadedScenario, seed: int, autopilot: Px4Autopilot, stop: Callable[[], bool] = lambda: False
) -> World:
    """A world at time 0 whose PX4 has booted and settled on the ground for `WARM_UP_S`; takes a few seconds.

    Raises `ConfigError` when PX4 does not know one of the scenario's parameters, `Px4Ended` when PX4 ends.
    """
    world = World(loaded, seed, autopilot=autopilot)
    world.steps = -round(WARM_UP_S / STEP_S)
    while world.steps < 0 and not stop():
        world.advance()
    autopilot.check_parameters()
    return world


if __name__ == "__main__":
    sys.exit(main())
