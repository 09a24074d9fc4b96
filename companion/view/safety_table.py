"""``companion safety``: the safety table with the limits of one aircraft and one mission."""

from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from companion.core.command_line import DEFAULT_VEHICLE, one_line_errors
from companion.core.config import load
from companion.core.vehicle import Vehicle
from companion.mission.monitors import ESCALATION_MIN_S, MONITORS, Monitor
from companion.mission.plan import Plan, check_standoff, load_plan

DEFAULT_MISSION = Path("config/missions/bridge_hover.toml")
HEADER = ("row", "what the ground station reads", "limit", "for, s", "actions", "s apart")
TABLE_WIDTH = 170  # characters, where no terminal says how many there are


def cells(row: Monitor, vehicle: Vehicle, plan: Plan) -> tuple[str, ...]:
    """One row of the table, under `HEADER`."""
    limit = f"{'<' if row.below else '>'} {row.limit(vehicle, plan):.4g} {row.unit}" if row.unit else ""
    apart = f"{max(row.escalation_s, ESCALATION_MIN_S):g}" if len(row.escalation) > 1 else ""
    return row.name, row.text, limit, f"{row.after_s:g}", " → ".join(row.escalation), apart


@click.command()
@click.option("--vehicle", type=click.Path(path_type=Path), default=DEFAULT_VEHICLE, show_default=True)
@click.option("--mission", type=click.Path(path_type=Path), default=DEFAULT_MISSION, show_default=True)
@one_line_errors
def safety(vehicle: Path, mission: Path) -> None:
    """Print the safety table: what is watched, the limits of this vehicle and mission, what is done."""
    aircraft, plan = load(vehicle, Vehicle), load_plan(mission)
    check_standoff(plan, aircraft)
    table = Table(*HEADER)
    for row in MONITORS:
        table.add_row(*cells(row, aircraft, plan))
    console = Console()
    if not console.is_terminal:
        console.width = TABLE_WIDTH
    console.print(table)
