"""``companion calibrate …``: the group of the calibration commands, one module for each."""

import click

from companion.core.command_line import HELP, LazyGroup

COMMANDS: dict[str, str] = {  # name → "module:object"
    "board": "calibration.camera.board_page:command",
    "camera": "calibration.camera.command:command",
    "extrinsics": "calibration.mount.extrinsics:command",
    "latency": "calibration.mount.latency:command",
    "map": "calibration.map.command:command",
    "photographs": "calibration.map.photographs_command:command",
    "thrust": "calibration.thrust.command:command",
}


@click.group(cls=LazyGroup, lazy=COMMANDS, context_settings=HELP)
def calibrate() -> None:
    """Measure the numbers of a vehicle file, on the bench and in flight."""
