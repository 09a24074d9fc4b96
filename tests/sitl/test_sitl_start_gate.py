"""Simulated crews set PX4's parameters as the stack requires them for the mission of the scenario."""

from pathlib import Path

import msgspec
import pytest

from companion.core.enums import ProcessName
from companion.fcu.link import params
from companion.fcu.link.decoded import ParamValue
from companion.runtime.nodes import build_node
from sitl.scenario import load_scenario
from sitl.unkind import flown_parameters

ROOT = Path(__file__).parents[2]
SCENARIOS = sorted(
    [*(ROOT / "config/scenarios").glob("*.toml"), *(ROOT / "config/scenarios/safety").glob("*.toml")],
)
FLOWN = [path for path in SCENARIOS if not path.stem.endswith("mission")]


def watch_of(loaded):
    """The watch of the link process that flies a scenario, which has read the emulator's parameters."""
    watch = build_node(ProcessName.FCU, loaded).parameters
    parameters = flown_parameters(loaded.scenario)
    for name in watch.names:
        if name not in parameters:
            continue
        kind = params.INT32 if parameters.is_integer(name) else params.REAL32
        field = params.encode_value(parameters[name], kind)
        watch.put(ParamValue(field, 1, 1, params.name_field(name).ljust(16, b"\0"), kind))
    return watch


@pytest.mark.parametrize("file", FLOWN, ids=lambda path: path.stem)
def test_the_parameters_of_every_scenario_pass_the_gate_of_its_mission(file):
    watch = watch_of(load_scenario(file))
    assert watch.complete and watch.problem == ""


def test_the_link_process_judges_by_the_mission_that_it_was_given():
    loaded = load_scenario(ROOT / "config/scenarios/under_deck.toml")
    px4s_own = {**loaded.scenario.fcu_parameters, "NAV_RCL_ACT": 2}  # and RTL_RETURN_ALT 60
    changed = msgspec.structs.replace(loaded.scenario, fcu_parameters=px4s_own)
    problem = watch_of(msgspec.structs.replace(loaded, scenario=changed)).problem
    assert problem.startswith("NAV_RCL_ACT is 2, must be ") and "the mission's limit" in problem
