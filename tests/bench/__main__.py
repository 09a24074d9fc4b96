"""``make bench``: measure everything and write BENCH.md; ``python -m tests.bench SECTION …`` prints some of it."""

import importlib
import sys
import time
from pathlib import Path

from acados_gen.compile import CompileError
from acados_gen.toolchain import ToolchainError
from companion.config import ConfigError
from companion.kernel import ArtifactMissing
from companion.manager import StartRefused
from tests.bench.figures import Figure, table
from tests.bench.machine import description, load

# What stops a section: an installation that is not complete, a port in use, a flight that did not go as planned.
REFUSALS = (ConfigError, ArtifactMissing, CompileError, ToolchainError, StartRefused, RuntimeError)

PAGE = Path(__file__).parents[2] / "BENCH.md"
SECTIONS = {  # module: title
    "control": "Controller",
    "estimation": "Estimator",
    "tracking": "Tracker",
    "autopilot_link": "Link to the flight controller",
    "bus": "Bus",
    "simulation": "Simulation",
    "flight": "Process graph in flight",
}
PREFACE = """# Benchmark

Written by `make bench`; do not edit. Every figure stands beside what it is measured against in the same run, on the
same machine, in turns where calls are compared. Medians; computing times of single calls are processor time of one
thread on one core.

Machine: {machine}; load when it began {load}.
"""


def measure(section: str) -> list[Figure]:
    """The figures of one section."""
    return importlib.import_module(f"tests.bench.{section}").figures()


def main() -> int:
    """Measure the sections named, or all and write the page; exit status 1 if one refuses, 2 for an unknown name."""
    wanted = sys.argv[1:] or list(SECTIONS)
    if unknown := [name for name in wanted if name not in SECTIONS]:
        print(f"{unknown[0]}: no such section (there are: {', '.join(SECTIONS)})", file=sys.stderr)
        return 2
    page = [PREFACE.format(machine=description(), load=load())]
    for name in wanted:
        begun_s = time.perf_counter()
        module_doc = importlib.import_module(f"tests.bench.{name}").__doc__
        try:
            text = table(measure(name))
        except REFUSALS as error:
            print(f"bench: {name}: {error}", file=sys.stderr)
            return 1
        print(f"\n{SECTIONS[name]} ({time.perf_counter() - begun_s:.0f} s)\n{text}", flush=True)
        page += [f"## {SECTIONS[name]}", f"`python -m tests.bench {name}`. {module_doc.strip()}", text]
    if wanted == list(SECTIONS):
        PAGE.write_text("\n\n".join(page) + "\n", encoding="utf-8")
        print(f"\nwritten to {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
