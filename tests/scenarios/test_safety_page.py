"""docs/safety.md and ``companion safety`` agree with the safety table."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from companion.cli import main
from companion.core.config import load
from companion.core.vehicle import Vehicle
from companion.mission.monitors import ACTIONS, MONITORS
from companion.mission.plan import load_plan
from companion.mission.start_monitors import NOT_BEFORE_START
from companion.preflight.files import mission_file
from companion.view.safety_table import ROWS, cells

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/safety.md").read_text(encoding="utf-8")
VEHICLE = load(ROOT / "config/vehicles/f550.toml", Vehicle)
PLAN = load_plan(ROOT / "config/missions/bridge_hover.toml")


def table(heading: str) -> list[tuple[str, ...]]:
    """Cells of the first table under a heading, without its header."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [tuple(cell.strip().strip("`") for cell in line.strip("|").split("|")) for line in lines]


def test_the_page_has_the_monitors_and_limits_of_the_table():
    assert table("Monitors") == [cells(monitor, VEHICLE, PLAN) for monitor in ROWS]


def test_the_page_explains_every_action():
    assert [action for action, _ in table("Actions")] == list(ACTIONS)


def test_the_page_says_which_monitors_do_not_refuse_a_start():
    section = PAGE.split("\n## Before the start\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    assert {name.strip("`"): why for names, why in rows for name in names.split(", ")} == NOT_BEFORE_START


def test_the_page_has_the_flight_of_every_monitor():
    assert [name.removesuffix("*").rstrip("` ") for name, *_ in table("One flight for each monitor")] == [
        monitor.name for monitor in MONITORS
    ]


@pytest.mark.parametrize("vehicle", sorted((ROOT / "config/vehicles").glob("*.toml")), ids=lambda path: path.stem)
def test_the_command_prints_every_monitor_for_every_vehicle(vehicle):
    mission = ROOT / "config/missions/bridge_hover.toml"
    result = CliRunner().invoke(main, ["safety", "--vehicle", str(vehicle), "--mission", str(mission)])
    assert result.exit_code == 0, result.output
    assert all(monitor.name in result.output for monitor in ROWS)


def test_the_command_refuses_a_mission_that_leads_too_near_to_the_structure(tmp_path):
    text = (ROOT / "config/missions/bridge_hover.toml").read_text().replace('"../markers/', f'"{ROOT}/config/markers/')
    near = tmp_path / "near.toml"
    near.write_text(text.replace("offset_M = [0.0, 0.0, 3.0]", "offset_M = [0.0, 0.0, 0.8]"))
    vehicle = str(ROOT / "config/vehicles/f550.toml")
    for command in (["safety", "--mission", str(near)], ["fly", str(near), "--fcu", "udpin:127.0.0.1:14599"]):
        result = CliRunner().invoke(main, [*command, "--vehicle", vehicle])
        assert result.exit_code == 2 and result.stderr == (
            f"companion: {near}: standoff.offset_M = [0.0, 0.0, 0.8]: z must be above safety.standoff_min_m = 1 m of the"
            " vehicle file\n"
        )
    check, plan = mission_file(near, load(vehicle, Vehicle))
    assert check.status == "failed" and str(near) in check.detail and plan is not None
