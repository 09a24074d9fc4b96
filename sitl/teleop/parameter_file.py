"""The parameters of a model as a TOML file: what `companion tune` writes and `companion teleop` reads."""

import math
import tomllib
from pathlib import Path

from companion.core.errors import UserError
from companion.core.suggestions import did_you_mean
from sitl.teleop.response import PARAMETERS as RESPONSE
from sitl.teleop.tello import DYNAMICS, GAINS, PUBLISHED

TABLE = "parameters"
LARGEST = 1000.0


def read_parameters(path: Path) -> dict[str, float]:
    """Parameters of the vehicle tello by name; raises `UserError` with file and key."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a TOML file: {str(error).splitlines()[0]}") from None
    table = content.get(TABLE)
    if not isinstance(table, dict) or not table:
        raise UserError(f"{path}: no table [{TABLE}]")
    found = {}
    for name, value in table.items():
        if name not in (*GAINS, *DYNAMICS, "delay_s", "tilt_by_steps"):
            if name in RESPONSE:
                raise UserError(
                    f"{path}: {TABLE}.{name}: of the set 'emulator', the response of a flight controller; "
                    "the vehicle tello flies with the other sets"
                )
            raise UserError(f"{path}: {TABLE}.{name}: unknown parameter{did_you_mean(name, PUBLISHED)}")
        positive = name in DYNAMICS and not name.startswith("b_")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= LARGEST:
            raise UserError(f"{path}: {TABLE}.{name} = {value!r} (allowed: 0 to {LARGEST:g})")
        if positive and not value > 0.0:
            raise UserError(f"{path}: {TABLE}.{name} = {value!r}: must be above 0")
        found[name] = float(value)
    return found


def parameter_text(values: dict[str, float], notes: list[str]) -> str:
    """The file's text: notes as comments, then the table; raises ValueError for a number that is not finite."""
    if not all(math.isfinite(value) for value in values.values()):
        raise ValueError("a parameter is not a number")
    lines = [*(f"# {note}" for note in notes), "", f"[{TABLE}]", *(f"{k} = {v:.6g}" for k, v in values.items())]
    return "\n".join(lines).lstrip("\n") + "\n"
