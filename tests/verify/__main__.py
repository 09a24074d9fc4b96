"""``make verify``: everything that is too slow for ``make test``, in steps, with a table at the end.

``python -m tests.verify [STEP …]`` runs the named steps (by the beginning of their name) or all. It may be stopped at
any time and started again: a step that has passed with the same sources is not repeated; ``--again`` repeats it.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from companion.core.provenance import source_hash
from tests.verify.steps import ROOT, STEPS, Result, Step

PACKAGES = ("companion", "acados_gen", "calibration", "sitl", "tests", "config")
WORDS = {True: "passed", False: "FAILED", None: "not here"}


class Record:
    """The results of one state of the sources, in a file that is written after each step."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "results.json"
        try:
            self._results = json.loads(self._file.read_text())
        except (OSError, ValueError):
            self._results = {}

    def passed(self, step: Step) -> bool:
        return self._results.get(step.name, {}).get("passed") is True

    def put(self, step: Step, result: Result, seconds: float) -> None:
        self._results[step.name] = {**result._asdict(), "seconds": round(seconds, 1)}
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps(self._results, indent=2))
        part.replace(self._file)

    def table(self, steps: list[Step]) -> Table:
        table = Table(box=None)
        for name in ("step", "result", "time", "figures"):
            table.add_column(name, justify="right" if name == "time" else "left", no_wrap=name != "figures")
        for step in steps:
            row = self._results.get(step.name)
            if row is None:
                table.add_row(step.name, "not run", "", "")
            else:
                minutes, seconds = divmod(round(row["seconds"]), 60)
                table.add_row(step.name, WORDS[row["passed"]], f"{minutes}:{seconds:02d}", row["figures"])
        return table

    def failed(self, steps: list[Step]) -> bool:
        """Whether a step failed or has not run."""
        return any(self._results.get(step.name, {"passed": False})["passed"] is False for step in steps)


def main() -> int:
    """Exit status 0 when no step failed."""
    parser = argparse.ArgumentParser(prog="tests.verify", description=__doc__)
    parser.add_argument("steps", nargs="*", help="beginnings of names; default: all")
    parser.add_argument("--again", action="store_true", help="repeat steps that have passed")
    parser.add_argument("--list", action="store_true", help="name the steps and end")
    parser.add_argument("--out", type=Path, default=ROOT / ".verify")
    given = parser.parse_args()
    chosen = [s for s in STEPS if not given.steps or any(s.name.startswith(word) for word in given.steps)]
    if not chosen:
        parser.error(f"no such step (there are: {', '.join(step.name for step in STEPS)})")
    if given.list:
        print("\n".join(step.name for step in chosen))
        return 0
    folder = given.out / source_hash(ROOT, PACKAGES)[:12]
    folder.mkdir(parents=True, exist_ok=True)
    record = Record(folder)
    console = Console()
    try:
        for step in chosen:
            if record.passed(step) and not given.again:
                continue
            console.print(f"{step.name} …")
            started_s = time.monotonic()
            result = step.run(folder)
            record.put(step, result, time.monotonic() - started_s)
            console.print(f"  {WORDS[result.passed]}: {result.figures}", markup=False)
    except KeyboardInterrupt:
        console.print("stopped; the same command goes on with the next step")
    if not console.is_terminal:
        console.width = 160
    console.print(record.table(chosen))
    console.print(f"details: {folder}", markup=False)
    return 1 if record.failed(chosen) else 0


if __name__ == "__main__":
    sys.exit(main())
