"""One table builds the nodes of processes and lockstep runs, and a process imports its own package only."""

import subprocess
import sys
from pathlib import Path

import pytest

from companion.core.enums import ProcessName
from companion.core.node import Node
from companion.runtime.nodes import BUILDERS, LoadedFiles, build_node
from companion.runtime.processes import PROCESSES
from sitl.lockstep import Lockstep
from sitl.scenario import load_scenario

ROOT = Path(__file__).parents[2]
HOLD = ROOT / "config/scenarios/safety/hold.toml"
PACKAGE_OF = {
    ProcessName.TRACKER: "tracking",
    ProcessName.ESTIMATOR: "estimation",
    ProcessName.CONTROLLER: "control",
    ProcessName.FCU: "fcu",
    ProcessName.MISSION: "mission",
}
BUILD_AND_LIST_IMPORTS = """
import sys
from pathlib import Path
from companion.core.enums import ProcessName
from companion.runtime.nodes import build_node
from companion.runtime.processes import Context
name, vehicle, mission = sys.argv[1:]
context = Context(Path(vehicle), Path(mission), "", Path(), Path())
build_node(ProcessName(name), context)
print(*(module for module in sys.modules if module.startswith("companion.") or module == "cv2"))
"""


def test_every_process_but_the_camera_has_a_builder():
    assert set(BUILDERS) == {spec.name for spec in PROCESSES} - {ProcessName.CAMERA}


@pytest.mark.parametrize("name", list(PACKAGE_OF))
def test_a_builder_builds_the_node_of_its_process(name):
    loaded = load_scenario(HOLD)
    assert build_node(name, LoadedFiles(loaded.vehicle, loaded.plan, loaded.site)).name == name


@pytest.mark.parametrize("name", list(PACKAGE_OF))
def test_a_process_imports_its_own_package_only(name):
    loaded = load_scenario(HOLD)
    command = [sys.executable, "-c", BUILD_AND_LIST_IMPORTS, name, str(loaded.vehicle_path), str(loaded.mission_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    modules = result.stdout.split()
    packages = {module.split(".")[1] for module in modules if module.startswith("companion.")}
    # The files of the plan and the site are read with `companion.mission.plan`, inspections in them with `companion.planning`.
    assert packages <= {"core", "runtime", "mission", "planning", PACKAGE_OF[name]}
    assert ("cv2" in modules) == (name == ProcessName.TRACKER)


class OtherTracker(Node):
    name = "tracker"


def test_lockstep_takes_its_nodes_from_the_same_table(monkeypatch):
    monkeypatch.setitem(BUILDERS, ProcessName.TRACKER, lambda files, options: OtherTracker())
    lockstep = Lockstep(load_scenario(HOLD), 1)
    assert isinstance(lockstep.runners[ProcessName.TRACKER].node, OtherTracker)


def test_a_baseline_replaces_its_own_nodes_only():
    own, baseline = (Lockstep(load_scenario(HOLD), 1, stack=stack).runners for stack in ("full", "px4"))
    replaced = {name for name in own if type(own[name].node) is not type(baseline[name].node)}
    assert replaced == {ProcessName.ESTIMATOR, ProcessName.CONTROLLER}
