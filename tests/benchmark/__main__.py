"""``make benchmark``: measures everything and writes docs/benchmark.md.

``python -m tests.benchmark SECTION …`` measures some sections again and leaves the others unchanged.
"""

import importlib
import sys
import time
from pathlib import Path

from acados_gen.compile import CompileError
from acados_gen.toolchain import ToolchainError
from companion.core.config import ConfigError
from companion.core.errors import StartRefused
from companion.core.kernel import ArtifactMissing
from tests.benchmark.figures import Figure, table
from tests.benchmark.machine import description, load

# Errors that end a section: an incomplete installation, a port in use, a flight that did not reach its hold.
REFUSALS = (ConfigError, ArtifactMissing, CompileError, ToolchainError, StartRefused, RuntimeError)

PAGE = Path(__file__).parents[2] / "docs/benchmark.md"
SECTIONS = {  # module: title
    "control": "Controller",
    "estimation": "Estimator",
    "tracking": "Tracker",
    "autopilot_link": "Link to the flight controller",
    "bus": "Bus",
    "simulation": "Simulation",
    "devices": "Simulated sensors",
    "flight": "Process graph in flight",
}
PREFACE = """# Benchmark

Written by `make benchmark`; do not edit. Each figure is compared with a reference that was measured in the same run, on
the same machine, and in turns where calls are compared. Figures are medians; computing times of single calls are
processor time of one thread on one core.

Machine: {machine}. Each section states the load of the machine at its beginning.
"""


def measure(section: str) -> list[Figure]:
    """The figures of one section."""
    return importlib.import_module(f"tests.benchmark.{section}").figures()


def stored() -> dict[str, str]:
    """The sections of the present page: title → text."""
    if not PAGE.exists():
        return {}
    _, *parts = PAGE.read_text(encoding="utf-8").split("\n## ")
    return {title: text.strip() for title, _, text in (part.partition("\n") for part in parts)}


def write(sections: dict[str, str]) -> None:
    """Write the page with these sections, in the order of `SECTIONS`."""
    parts = [f"## {title}\n\n{sections[title]}" for title in SECTIONS.values() if title in sections]
    PAGE.write_text("\n\n".join([PREFACE.format(machine=description()).strip(), *parts]) + "\n", encoding="utf-8")


def section(name: str, load_then: str, text: str) -> str:
    """The text of a section of the page."""
    module_doc = importlib.import_module(f"tests.benchmark.{name}").__doc__.strip()
    return f"`python -m tests.benchmark {name}`, load {load_then}. {module_doc}\n\n{text}"


def main() -> int:
    """Measure the named sections, or all, and write them into the page.

    Exit status: 1 if a section failed, 2 if a name is not that of a section. A section that failed is left out of the
    page, and the others are still measured.
    """
    wanted = sys.argv[1:] or list(SECTIONS)
    if unknown := [name for name in wanted if name not in SECTIONS]:
        print(f"{unknown[0]}: no such section (sections: {', '.join(SECTIONS)})", file=sys.stderr)
        return 2
    status = 0
    for name in wanted:
        begun_s, load_then, title = time.perf_counter(), load(), SECTIONS[name]
        page = stored()
        page.pop(title, None)
        try:
            text = table(measure(name))
        except REFUSALS as error:
            print(f"benchmark: {name}: {error}", file=sys.stderr)
            status = 1
        else:
            print(f"\n{title} ({time.perf_counter() - begun_s:.0f} s)\n{text}", flush=True)
            page[title] = section(name, load_then, text)
        write(page)
    return status


if __name__ == "__main__":
    sys.exit(main())
