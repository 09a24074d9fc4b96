"""Recognises the columns of a thrust stand's table (command, thrust, voltage, current) and their units.

Names are those of RCbenchmark's and Tyto's exports ("ESC signal (µs)", "Thrust (kgf)", "Vol - V"), of this stack's own
file and of common spreadsheets. A name is compared without case, unit and punctuation.
"""

import re
from dataclasses import dataclass

from companion.core.frames import GRAVITY_M_S2

NEWTONS = {
    "n": 1.0, "newton": 1.0, "newtons": 1.0, "mn": 1e-3, "kn": 1e3,
    "g": 1e-3 * GRAVITY_M_S2, "gf": 1e-3 * GRAVITY_M_S2, "gr": 1e-3 * GRAVITY_M_S2, "gram": 1e-3 * GRAVITY_M_S2,
    "grams": 1e-3 * GRAVITY_M_S2, "kg": GRAVITY_M_S2, "kgf": GRAVITY_M_S2, "kilogram": GRAVITY_M_S2,
    "lb": 4.4482216, "lbs": 4.4482216, "lbf": 4.4482216, "oz": 0.27801385, "ozf": 0.27801385,
}  # fmt: skip
VOLTS = {"": 1.0, "v": 1.0, "volt": 1.0, "volts": 1.0, "vdc": 1.0, "mv": 1e-3}
AMPERES = {"": 1.0, "a": 1.0, "amp": 1.0, "amps": 1.0, "ampere": 1.0, "ma": 1e-3}
SECONDS = {"": 1.0, "s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3}
COMMAND_UNITS = {"us": "us", "ms": "ms", "usec": "us", "pwm": "us", "%": "%", "pct": "%", "percent": "%", "perc": "%"}
COMMAND_UNITS |= {"0..1": "1", "0-1": "1", "0 1": "1", "0 to 1": "1", "1": "1", "norm": "1", "normalized": "1", "": ""}
COMMAND_UNITS |= {"-": "1", "us pwm": "us", "microseconds": "us", "microsecond": "us", "fraction": "1"}

_SUFFIXES = {"us", "ms", "s", "pct", "percent", "0_1", "0..1", "0-1", "norm"}
_SUFFIXES |= {unit for known in (NEWTONS, VOLTS, AMPERES) for unit in known if unit}


@dataclass(frozen=True)
class _Kind:
    """How the title of one kind of column is recognised."""

    exact: tuple[str, ...]  # names, the best first
    words: tuple[str, ...]  # otherwise a name that contains one of these
    never: tuple[str, ...]  # and none of these
    units: frozenset[str]


_KINDS = {
    "command": _Kind(
        ("esc signal", "pwm", "esc throttle", "motor throttle", "throttle", "command", "pulse width", "esc pulse width",
         "signal", "esc", "esc pwm", "motor pwm", "motor signal", "motor command", "pulse", "cmd", "control", "input",
         "duty", "duty cycle", "u"),
        ("pwm", "throttle", "esc signal", "pulse", "command"),
        ("servo", "rpm", "speed", "temperature", "temp", "voltage", "current", "power", "thrust"),
        frozenset(COMMAND_UNITS),
    ),
    "thrust": _Kind(
        ("thrust", "thrust force", "force", "lift", "pull", "load", "weight", "scale", "load cell", "mass", "fz"),
        ("thrust", "force", "lift"),
        ("coefficient", "efficiency", "per", "specific", "torque", "std", "raw", "target", "error", "factor", "left",
         "right", "side", "ratio", "drag", "throttle", "tare"),
        frozenset(NEWTONS) | {""},
    ),
    "voltage": _Kind(
        ("voltage", "battery voltage", "supply voltage", "bus voltage", "input voltage", "esc voltage", "vbat", "volt",
         "volts", "vol", "v", "vin", "vcc", "batt voltage", "batt", "battery"),
        ("voltage", "volts", "vbat", "volt"),
        ("cell", "min", "std", "max", "nominal", "cutoff"),
        frozenset(VOLTS),
    ),
    "current": _Kind(
        ("current", "battery current", "supply current", "esc current", "input current", "cur", "amps", "amp",
         "ampere", "amperage", "amperes", "i"),
        ("current", "amps"),
        ("cutoff", "limit", "burst", "max", "std", "time"),
        frozenset(AMPERES),
    ),
    "time": _Kind(("time", "t", "timestamp", "elapsed", "seconds"), (), (), frozenset(SECONDS)),
    "run": _Kind(("run", "run number", "run id", "battery", "battery number", "battery id"), (), (), frozenset({""})),
}  # fmt: skip
REQUIRED = ("command", "thrust")
NAMES = {
    "command": "the command (like 'pwm (µs)' or 'throttle (%)')",
    "thrust": "the thrust (like 'thrust (gf)')",
    "voltage": "the voltage (like 'voltage (V)')",
}


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    index: int
    title: str  # as in the file
    unit: str  # lower case, "" if the title has none


def split_title(title: str) -> tuple[str, str]:
    """A column's title as (name, unit), both in lower case and without decoration: ``Thrust (kgf)`` → thrust, kgf."""
    text = title.strip().strip("\"'#").strip().lower()
    for micro in ("\u00e2\u00b5", "\u00b5", "\u03bc", "\ufffd"):  # mis-decoded, micro, mu, undecodable
        text = text.replace(micro, "u")
    text = text.replace("\u00b7", "").replace("\u22c5", "")
    unit = ""
    if found := re.search(r"[(\[{]([^)\]}]*)[)\]}]?\s*$", text):
        text, unit = text[: found.start()], found[1].strip()
    elif (found := re.search(r"(?:\s+[-/]\s+|\s*,\s*|[\s_]+)(0_1|\S+)$", text)) and (
        found[1] in _SUFFIXES or "%" in found[1]
    ):
        text, unit = text[: found.start()], found[1]
    if text.endswith("%"):
        text, unit = text[:-1], "%"
    return re.sub(r"[^a-z0-9]+", " ", text).strip(), unit.replace("_", " ").strip()


def find_columns(titles: list[str]) -> dict[str, Column]:
    """The columns of a header by kind: command, thrust, voltage, current, time, run, as far as they are present."""
    split = [split_title(title) for title in titles]
    found: dict[str, Column] = {}
    for kind, rule in _KINDS.items():
        best = None
        for index, (name, unit) in enumerate(split):
            rank = _rank(rule, name, unit)
            if rank is not None and (best is None or rank < best[0]):
                best = rank, index
        if best is not None:
            found[kind] = Column(best[1], titles[best[1]].strip(), split[best[1]][1])
    if "run" in found and "voltage" in found and found["run"].index == found["voltage"].index:
        del found["run"]  # "battery" without another column is its voltage
    return found


def _rank(rule: _Kind, name: str, unit: str) -> int | None:
    if unit not in rule.units:
        return None
    if name in rule.exact:
        return rule.exact.index(name)
    words = set(name.split())
    if words & set(rule.never):
        return None
    for position, word in enumerate(rule.words):
        if set(word.split()) <= words:
            return len(rule.exact) + 10 * position + len(words)
    return None
