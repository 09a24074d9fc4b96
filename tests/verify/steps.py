"""The steps of ``make verify``: each a name, what it shows, and a function that flies it."""

import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from companion.core.config import ConfigError
from companion.core.enums import Phase
from companion.core.errors import UserError
from companion.core.px4_parameters import rules
from companion.preflight.parameters import flight_of
from companion.recording.metrics import flight_metrics
from sitl.compare import compare
from sitl.px4.build import Px4Build, find_build
from sitl.px4.fly import simulate_px4
from sitl.scenario import LoadedScenario, load_scenario
from tests.verify.limits import FIRST_SEED, LIMITS, PX4_RMS_MAX_M, SEEDS

ROOT = Path(__file__).parents[2]
COVERAGE_MIN = 85  # percent
NO_PX4 = "no PX4 build: set PX4_BUILD (docs/px4_sitl.md)"
PX4_SPEED = 4.0  # at most so many times real time; see docs/px4_sitl.md, "Time"
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


def campaigns(folder: Path) -> Result:
    """Campaigns that are killed and resumed, and a cluster that loses a worker."""
    return command(folder, sys.executable, "-m", "tests.campaign", "--skip-speed", "--flights", "12", "--seconds", "10")


def px4_build() -> Px4Build | None:
    """PX4's simulation build when this machine has one."""
    try:
        return find_build()
    except ConfigError:
        return None


def attacks(folder: Path) -> Result:
    """Random attack flights; a step that was stopped goes on with the flights that are missing."""
    out = folder / "attacks.jsonl"
    words = ("-m", "tests.attack", "--flights", str(ATTACK_FLIGHTS), "--jobs", "2", "--out", str(out))
    return command(folder, sys.executable, *words)


def kills(folder: Path, *more: str) -> Result:
    """Kills, stops and hangs; a step that was stopped goes on with the flights that are missing."""
    kept = folder / ("px4_kills" if more else "kills")
    words = ("--each", str(KILLS_EACH), "--keep", str(kept), "--out", str(kept.with_suffix(".json")))
    return command(folder, sys.executable, "tests/scenarios/kill_campaign.py", *words, *more)


def px4_kills(folder: Path) -> Result:
    """The same with PX4's simulation build, where one is found."""
    build = px4_build()
    return Result(None, NO_PX4) if build is None else kills(folder, "--px4", str(build.etc.parent))


def px4(folder: Path) -> Result:
    """The tests with PX4's simulation build, where one is found."""
    if px4_build() is None:
        return Result(None, NO_PX4)
    return tests(folder, "tests/px4", "tests/conformance", "-m", "realtime")


def with_fence(loaded: LoadedScenario) -> LoadedScenario:
    """The scenario with PX4's own fence as preflight sets it: it must not act in a healthy flight."""
    fence = {
        rule.name: value
        for rule in rules(loaded.vehicle, flight_of(loaded.plan))
        if rule.name.startswith("GF_") and (value := rule.fix(0, {})) is not None
    }
    parameters = loaded.scenario.fcu_parameters | fence
    return msgspec.structs.replace(loaded, scenario=msgspec.structs.replace(loaded.scenario, fcu_parameters=parameters))


def px4_scenario(name: str, folder: Path) -> Result:
    """Fly a scenario once with PX4's simulation build, in simulated time, against its limit."""
    build = px4_build()
    if build is None:
        return Result(None, NO_PX4)
    flight = folder / f"px4_{name}"
    shutil.rmtree(flight, ignore_errors=True)
    flight.mkdir()
    loaded = with_fence(load_scenario(ROOT / f"config/scenarios/{name}.toml"))
    try:
        lockstep = simulate_px4(build, loaded, FIRST_SEED, PX4_SPEED, flight)
    except UserError as error:
        return Result(False, str(error))
    status, limit_m = lockstep.pilot, PX4_RMS_MAX_M[name]
    if status is None or status.phase != Phase.DONE or status.cause:
        return Result(False, f"not flown to its end: {status.cause or status.phase if status else 'no status'}")
    rms_m, speed = flight_metrics(flight / "flight.mcap")["position_rms_m"], lockstep.now_s / lockstep.wall_s
    shown = "" if rms_m is None else f", position_rms_m {rms_m:.4f} (≤ {limit_m:g})"
    passed = limit_m == math.inf or (rms_m is not None and rms_m <= limit_m)
    return Result(passed, f"flown to its end{shown}, {speed:.1f} times real time")


STEPS: tuple[Step, ...] = (
    *(Step(f"scenario {name}", partial(scenario, name)) for name in LIMITS),
    Step("safety flights", lambda folder: tests(folder, "tests/scenarios/test_safety_rows.py", "-n", "2")),
    Step("attacks", attacks),
    Step("campaigns", campaigns),
    Step("slow tests", slow_tests),
    Step("coverage", coverage),
    Step("mutated frames", lambda folder: tests(folder, "tests/fcu/test_fcu_fuzz.py")),
    Step("abuse", lambda folder: command(folder, sys.executable, "-m", "tests.scenarios.abuse", "--seed", "101")),
    Step("real time", lambda folder: tests(folder, "-m", "realtime", "--ignore", "tests/px4")),
    Step("kills and hangs", kills),
    *(Step(f"PX4 scenario {name}", partial(px4_scenario, name)) for name in PX4_RMS_MAX_M),
    Step("PX4 kills and hangs", px4_kills),
    Step("PX4 tests", px4),
)
