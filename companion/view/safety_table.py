"""``companion safety``: the safety table with the limits of one aircraft and one mission."""

from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from companion.core.command_line import HELP, VEHICLE_OF_COMMAND, ConfigFile, one_line_errors
from companion.core.config import load
from companion.core.config_files import ConfigKind
from companion.core.vehicle import Vehicle
from companion.mission.monitors import ESCALATION_MIN_S, MONITORS, MONITORS_ALONE, Monitor
from companion.mission.plan import Plan, check_vehicle, load_plan

HEADER = (
    "monitor",
    "what the ground station reads",
    "limit",
    "for, s",
    "actions",
    "s apart",
    "what the crew can do",
    "without satellites",
)
ROWS = (*MONITORS, *MONITORS_ALONE)
TABLE_WIDTH = 170  # characters, where no terminal reports its width


def cells(monitor: Monitor, vehicle: Vehicle, plan: Plan) -> tuple[str, ...]:
    """The cells of one monitor, under `HEADER`."""
    sign = "<" if monitor.below else ">"
    limit = f"{sign} {monitor.limit(vehicle, plan):.4g} {monitor.unit}" if monitor.unit else ""
    apart = f"{max(monitor.escalation_s, ESCALATION_MIN_S):g}" if len(monitor.escalation) > 1 else ""
    actions = " → ".join(monitor.escalation)
    alone = "only" if monitor in MONITORS_ALONE else "yes" if monitor.alone else "no"
    return monitor.name, monitor.text, limit, f"{monitor.after_s:g}", actions, apart, monitor.advice, alone


@click.command(context_settings=HELP)
@VEHICLE_OF_COMMAND
@click.option(
    "--mission",
    type=ConfigFile(ConfigKind.MISSION),
    default="bridge_hover",
    envvar="COMPANION_MISSION",
    show_default=True,
)
@one_line_errors
def safety(vehicle: Path, mission: Path) -> None:
    """Print the safety table: monitors, limits of this vehicle and mission, actions."""
    aircraft, plan = load(vehicle, Vehicle), load_plan(mission)
    check_vehicle(plan, aircraft, f"{mission}: ")
    table = Table(*HEADER)
    for monitor in ROWS:
        table.add_row(*cells(monitor, aircraft, plan))
    console = Console(markup=False)
    if not console.is_terminal:
        console.width = TABLE_WIDTH
    console.print(table)
