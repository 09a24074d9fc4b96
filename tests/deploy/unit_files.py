"""Reads the systemd units as systemd would, as far as these tests need it."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "systemd/units"
COMMON = UNITS / "companion-.service.d/10-common.conf"
SPAN_S = {"": 1.0, "ms": 1e-3, "s": 1.0, "min": 60.0}


def settings(*files: Path) -> dict[str, list[str]]:
    """ "Section.Key" → all its values, in the order of the files; an empty value forgets those before it."""
    found: dict[str, list[str]] = {}
    section = ""
    for file in files:
        for line in file.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
            line = line.strip()
            if line.startswith("["):
                section = line.strip("[]")
            elif line and line[0] not in "#;":
                key, _, value = line.partition("=")
                found.setdefault(f"{section}.{key.strip()}", []).append(value.strip())
    return found


def unit(process: str) -> dict[str, list[str]]:
    """Settings of a process's unit with the common settings."""
    return settings(UNITS / f"companion-{process}.service", COMMON)


def processes() -> set[str]:
    """The processes that have a unit."""
    return {file.stem.removeprefix("companion-") for file in UNITS.glob("companion-*.service")}


def span_s(text: str) -> float:
    """A time span as "100ms" or "2s" [s]."""
    number, suffix = re.fullmatch(r"([\d.]+)(ms|s|min|)", text).groups()
    return float(number) * SPAN_S[suffix]


def environment(process: str, env_file: Path) -> dict[str, str]:
    """Variables of a unit: its own, then those of the user's file."""
    lines = [word for line in unit(process)["Service.Environment"] for word in shlex.split(line)]
    lines += [line for line in env_file.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def command(process: str, variables: dict[str, str]) -> list[str]:
    """The words of ExecStart, expanded."""
    (line,) = unit(process)["Service.ExecStart"]
    words = line.replace("%j", process).split()
    return [re.sub(r"\$\{(\w+)\}", lambda name: variables[name[1]], word) for word in words]
