"""Campaigns of flights that are a second long, and rows as flights would give them."""

from pathlib import Path

HEAD = """
name = "small"
description = "short flights"
scenarios = ["bridge_hover"]
sensors = "kind"
stacks = ["full"]
seeds = [1, 2, 3]
camera_mode = "corners"
"""
SHORT = """
[[draw]]
field = "scenario.duration_max_s"
distribution = "fixed"
value = 1.5
"""
MASS = """
[[draw]]
field = "airframe.mass_kg"
distribution = "uniform"
low = 0.9
high = 1.1
apply = "factor"
"""


def draw(field: str, **keys: object) -> str:
    """A ``[[draw]]`` table; values as TOML writes them."""
    lines = [f"{name} = {_toml(value)}" for name, value in keys.items()]
    return "\n".join(["", "[[draw]]", f'field = "{field}"', *lines, ""])


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


def campaign(folder: Path, *tables: str, head: str = HEAD, name: str = "small.toml", **changes: str) -> Path:
    """A campaign file. changes: other values of keys of the head, as TOML."""
    lines = []
    for line in head.strip().splitlines():
        key = line.split(" = ")[0]
        lines.append(f"{key} = {changes.pop(key)}" if key in changes else line)
    lines += [f"{key} = {value}" for key, value in changes.items()]
    path = folder / name
    path.write_text("\n".join([*lines, *tables]), encoding="utf-8")
    return path


def row(number: int, outcome: str = "completed", cause: str = "", **changes) -> dict:
    """A row as a flight gives it."""
    result = {
        "scenario": "bridge_hover",
        "duration_s": 120.0 + number,
        "position_rms_m": 0.03 + 0.001 * (number % 7),
        "position_rms_axis_m": [0.01, 0.02, None],
        "position_max_m": 0.1,
        "success": outcome == "completed",
        "filter_resets": 0,
        "nees": {name: 3.0 + 0.1 * number for name in ("position", "velocity", "attitude", "disturbance", "bias")},
        "nis": {"marker": {"mean": 1.0, "accepted": 3}},
        "events": [{"monitor": "bundle_displaced", "active": True, "action": "hold", "t_s": 1.0}],
        "drawn": {"thrust_scale": 0.9 + 0.01 * number, "gnss_jumps": [{"offset_m": [3.0, 4.0, 0.0]}]},
        "cause": "of the mission",
    }
    made = {
        "flight": number,
        "scenario": "bridge_hover",
        "sensors": "unkind",
        "stack": "full",
        "seed": number,
        "fields": {"airframe.mass_kg": 1.7 + 0.01 * number, "fault": ["gust", "gnss_lost"][number % 2]},
        "outcome": outcome,
        "cause": cause,
        "result": {} if outcome == "crashed" else result,
        "commit": "0123456789abcdef",
        "modified": False,
        "source_hash": "fedcba",
        "host": "here",
        "processor": "x86_64",
        "wall_s": 40.0,
        "cpu_s": 39.0,
        "memory_mb": 300.0,
        "finished": "2026-11-22T00:00:00+00:00",
    }
    return made | changes
