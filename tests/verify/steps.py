"""The steps of ``make verify``: each a name, what it shows, and a function that flies it."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sitl.compare import compare
from tests.verify.limits import FIRST_SEED, LIMITS, SEEDS

ROOT = Path(__file__).parents[2]
COVERAGE_MIN = 85  # percent
ATTACK_FLIGHTS = 100  # `python -m tests.attack --flights N` flies more
KILLS_EACH = 1  # kills, stops and hangs of every process and of the manager; the campaign's command flies more


class Result(NamedTuple):
    """What came of a step."""

    passed: bool | None  # None: not possible here
    figures: str


class Step(NamedTuple):
    """One line of the table. run: gets the folder for its output."""

    name: str
    run: Callable[[Path], Result]


def scenario(name: str, _folder: Path) -> Result:
    """Fly a scenario with five seeds against its limits; every flight must reach its end."""
    found = compare(ROOT / f"config/scenarios/{name}.toml", range(FIRST_SEED, FIRST_SEED + SEEDS), ["full"])
    summary = found["summary"]["full"]
    shown, passed = [], summary["completed"] == SEEDS
    for figure, limit in LIMITS[name].items():
        mean = summary[figure]["mean"]
        passed = passed and mean is not None and mean <= limit
        shown.append(f"{figure} {'–' if mean is None else f'{mean:.4f}'} (≤ {limit:g})")
    return Result(passed, f"{summary['completed']}/{SEEDS} flown to their end, " + ", ".join(shown))


def tests(folder: Path, *words: str) -> Result:
    """Run pytest with these words."""
    return command(folder, sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words)


def command(folder: Path, *words: str) -> Result:
    """Run a command in the repository; its output goes into a file, its last line into the table."""
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    name = re.sub(r"\W+", "_", " ".join(words[1:]))[:80]
    (folder / f"{name}.txt").write_text(done.stdout, encoding="utf-8")
    lines = [line for line in done.stdout.splitlines() if re.search(r"\w", line)] or ["no output"]
    return Result(done.returncode == 0, lines[-1].strip("= "))


def slow_tests(folder: Path) -> Result:
    """The tests that are marked `verify`, except for the safety flights, which have a step of their own."""
    return tests(
        folder, "-m", "verify and not realtime", "--ignore", "tests/scenarios/test_safety_rows.py", "-n", "2",
        "--dist", "worksteal",
    )  # fmt: skip


def coverage(folder: Path) -> Result:
    """Line coverage of companion/ by the quick tests."""
    quick = ("-m", "not realtime and not verify", "-n", "2", "--dist", "worksteal")
    done = tests(folder, *quick, "--cov=companion", "--cov-report=term", f"--cov-fail-under={COVERAGE_MIN}")
    output = max(folder.glob("*.txt"), key=lambda file: file.stat().st_mtime).read_text(encoding="utf-8")
    total = next((line.split()[-1] for line in output.splitlines() if line.startswith("TOTAL")), "no total")
    return Result(done.passed, f"{total} of the lines of companion/ (≥ {COVERAGE_MIN} %); {done.figures}")


def attacks(folder: Path) -> Result:
    """Random attack flights; a step that was stopped goes on with the flights that are missing."""
    out = folder / "attacks.jsonl"
    words = ("-m", "tests.attack", "--flights", str(ATTACK_FLIGHTS), "--jobs", "2", "--out", str(out))
    return command(folder, sys.executable, *words)


def px4(folder: Path) -> Result:
    """The flights with PX4's simulation build, where one is found."""
    if not os.environ.get("PX4_BUILD") and shutil.which("px4") is None:
        return Result(None, "no PX4 build: set PX4_BUILD (docs/px4_sitl.md)")
    return tests(folder, "tests/px4", "tests/conformance", "-m", "realtime")


STEPS: tuple[Step, ...] = (
    *(Step(f"scenario {name}", partial(scenario, name)) for name in LIMITS),
    Step("safety flights", lambda folder: tests(folder, "tests/scenarios/test_safety_rows.py", "-n", "2")),
    Step("attacks", attacks),
    Step("slow tests", slow_tests),
    Step("coverage", coverage),
    Step("mutated frames", lambda folder: tests(folder, "tests/fcu/test_fcu_fuzz.py")),
    Step("abuse", lambda folder: command(folder, sys.executable, "-m", "tests.scenarios.abuse", "--seed", "101")),
    Step("real time", lambda folder: tests(folder, "-m", "realtime", "--ignore", "tests/px4")),
    Step(
        "kills and hangs",
        lambda folder: command(
            folder,
            sys.executable,
            "tests/scenarios/kill_campaign.py",
            "--each",
            str(KILLS_EACH),
            "--keep",
            str(folder / "kills"),
            "--out",
            str(folder / "kills.json"),
        ),
    ),
    Step("PX4", px4),
)
