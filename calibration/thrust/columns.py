"""Recognises the columns of a thrust stand's table (command, thrust, voltage, current) and their units.

Names are those of RCbenchmark's and Tyto's exports ("ESC signal (µs)", "Thrust (kgf)", "Vol - V"), of this stack's own
file and of common spreadsheets in English and German. A name is compared without case, unit and punctuation; ä, ö, ü
and ß as ae, oe, ue and ss.
"""

import re
import unicodedata
from dataclasses import dataclass

from companion.core.frames import GRAVITY_M_S2

NEWTONS = {
    "n": 1.0, "newton": 1.0, "newtons": 1.0, "mn": 1e-3, "kn": 1e3,
    "g": 1e-3 * GRAVITY_M_S2, "gf": 1e-3 * GRAVITY_M_S2, "gr": 1e-3 * GRAVITY_M_S2, "gram": 1e-3 * GRAVITY_M_S2,
    "grams": 1e-3 * GRAVITY_M_S2, "kg": GRAVITY_M_S2, "kgf": GRAVITY_M_S2, "kilogram": GRAVITY_M_S2,
    "gramm": 1e-3 * GRAVITY_M_S2, "kilogramm": GRAVITY_M_S2, "kp": GRAVITY_M_S2,
    "lb": 4.4482216, "lbs": 4.4482216, "lbf": 4.4482216, "oz": 0.27801385, "ozf": 0.27801385,
}  # fmt: skip
VOLTS = {"": 1.0, "v": 1.0, "volt": 1.0, "volts": 1.0, "vdc": 1.0, "mv": 1e-3}
AMPERES = {"": 1.0, "a": 1.0, "amp": 1.0, "amps": 1.0, "ampere": 1.0, "ma": 1e-3}
SECONDS = {"": 1.0, "s": 1.0, "sec": 1.0, "seconds": 1.0, "sekunden": 1.0, "sek": 1.0, "ms": 1e-3, "us": 1e-6}
SECONDS |= {"min": 60.0, "hh:mm:ss": 1.0, "h:m:s": 1.0}
COMMAND_UNITS = {"us": "us", "ms": "ms", "usec": "us", "pwm": "us", "%": "%", "pct": "%", "percent": "%", "perc": "%"}
COMMAND_UNITS |= {"0..1": "1", "0-1": "1", "0 1": "1", "0 to 1": "1", "1": "1", "norm": "1", "normalized": "1", "": ""}
COMMAND_UNITS |= {"-": "1", "us pwm": "us", "microseconds": "us", "microsecond": "us", "fraction": "1"}
COMMAND_UNITS |= {"prozent": "%", "mikrosekunden": "us", "mikrosekunde": "us"}
COMMAND_UNITS |= {
    "dshot": "dshot",
    "48-2047": "dshot",
    "48..2047": "dshot",
    "48 to 2047": "dshot",
    "48 bis 2047": "dshot",
}
COMMAND_UNITS |= {unit: "2000" for unit in ("0-2000", "0..2000", "0 to 2000", "0 bis 2000", "0-1999", "0..1999")}

_SUFFIXES = {"us", "ms", "s", "pct", "percent", "0_1", "0..1", "0-1", "norm"}
_SUFFIXES |= {"dshot", "0-2000", "0..2000", "48-2047", "48..2047", "prozent"}
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
         "duty", "duty cycle", "u", "dshot", "dshot command", "dshot value", "dshot throttle", "esc dshot", "gas",
         "gasstellung", "drossel", "pulsbreite", "pulsweite", "pulslaenge", "impulsbreite", "impulslaenge", "stellsignal",
         "stellgroesse", "ansteuerung", "aussteuerung", "regler", "reglersignal", "motorsignal", "tastgrad",
         "tastverhaeltnis", "schubhebel", "kommando", "befehl", "vorgabe", "sollwert", "dshot wert"),
        ("pwm", "throttle", "esc signal", "pulse", "command", "dshot", "gas", "pulsbreite", "pulslaenge", "impulsbreite"),
        ("servo", "rpm", "speed", "temperature", "temp", "voltage", "current", "power", "thrust", "drehzahl", "temperatur",
         "spannung", "strom", "leistung", "schub", "telemetry"),
        frozenset(COMMAND_UNITS),
    ),
    "thrust": _Kind(
        ("thrust", "thrust force", "force", "lift", "pull", "load", "weight", "scale", "load cell", "mass", "fz",
         "schub", "schubkraft", "standschub", "zugkraft", "kraft", "auftrieb", "gewicht", "waage", "last", "masse"),
        ("thrust", "force", "lift", "schub", "schubkraft", "standschub", "zugkraft", "kraft"),
        ("coefficient", "efficiency", "per", "specific", "torque", "std", "raw", "target", "error", "factor", "left",
         "right", "side", "ratio", "drag", "throttle", "tare", "pro", "spezifischer", "drehmoment", "soll", "links",
         "rechts", "wirkungsgrad", "effizienz"),
        frozenset(NEWTONS) | {""},
    ),
    "voltage": _Kind(
        ("voltage", "battery voltage", "supply voltage", "bus voltage", "input voltage", "esc voltage", "vbat", "volt",
         "volts", "vol", "v", "vin", "vcc", "batt voltage", "batt", "battery", "spannung", "akkuspannung",
         "batteriespannung", "versorgungsspannung", "eingangsspannung", "betriebsspannung", "reglerspannung", "ubat",
         "u akku", "u bat", "u batt", "u", "akku", "batterie"),
        ("voltage", "volts", "vbat", "volt", "spannung", "akkuspannung", "batteriespannung"),
        ("cell", "min", "std", "max", "nominal", "cutoff", "zelle", "zellen", "zellenspannung", "nennspannung"),
        frozenset(VOLTS),
    ),
    "current": _Kind(
        ("current", "battery current", "supply current", "esc current", "input current", "cur", "amps", "amp",
         "ampere", "amperage", "amperes", "i", "strom", "motorstrom", "akkustrom", "batteriestrom", "stromaufnahme",
         "gesamtstrom", "i akku"),
        ("current", "amps", "strom", "stromaufnahme"),
        ("cutoff", "limit", "burst", "max", "std", "time"),
        frozenset(AMPERES),
    ),
    "time": _Kind(
        ("time", "t", "timestamp", "elapsed", "elapsed time", "seconds", "zeit", "zeitstempel", "messzeit", "uhrzeit",
         "sekunden"),
        (), (), frozenset(SECONDS),
    ),
    "run": _Kind(
        ("run", "run number", "run id", "battery", "battery number", "battery id", "lauf", "durchlauf", "messreihe",
         "versuch", "akku", "akku nr", "batterie"),
        (), (), frozenset({""}),
    ),
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
    text = unicodedata.normalize("NFC", title).strip().strip("\"'#").strip().lower()
    for micro in ("\u00e2\u00b5", "\u00b5", "\u03bc", "\ufffd"):  # mis-decoded, micro, mu, undecodable
        text = text.replace(micro, "u")
    for letter, plain in (("\u00b7", ""), ("\u22c5", ""), ("ä", "ae"), ("ö", "oe"), ("ü", "ue"), ("ß", "ss")):
        text = text.replace(letter, plain)
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
    if "command" in found and "voltage" in found and found["command"].index == found["voltage"].index:
        del found["command"]  # a single "u"
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
