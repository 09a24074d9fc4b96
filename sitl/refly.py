"""Flies a simulated flight again from its log alone, and compares; the body of ``companion refly``.

A lockstep flight is determined by its configuration, its seed, the code and the processor. All four stand in the log.
Where they are equal, every message must be equal, except for computing times. Where they are not (another commit,
another processor, a flight in real time) only the flown path can be compared, within a tolerance.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from companion.core import provenance
from companion.core.enums import TopicName
from companion.core.messages import TOPICS, WORLD, ControlStatus, Message, MissionStatus, Truth
from companion.mission.plan import RcSwitch
from companion.recording import series
from companion.recording.codec import encode
from companion.recording.log import Log, LogError, read_log
from companion.recording.recorder import RecorderNode
from companion.recording.writer import LogWriter
from companion.runtime.processes import RC_SWITCH
from companion.runtime.resume import RUN_KEY, Place
from sitl.flight_files import FlightFiles
from sitl.lockstep import Lockstep
from sitl.pilot import PilotConfig
from sitl.scenario import LoadedScenario, load_scenario, piloted
from sitl.simulate import LOCKSTEP
from sitl.unkind import UnkindWorld, apply

TIMES: dict[type[Message], tuple[str, ...]] = {
    ControlStatus: ("solve_time_s",)
}  # computing times: measured on the machine, different in every run


class Difference(NamedTuple):
    """The first message of a topic that differs."""

    topic: TopicName
    flown: int  # messages in the log
    repeated: int
    stamp_s: float | None  # of the first one that differs; None where only the number of messages does
    fields: tuple[str, ...]


class Comparison(NamedTuple):
    """What came of a repeated flight."""

    equal: bool
    messages: int  # of the log, compared one by one; 0 when only the paths were
    differences: list[Difference]
    path_difference_m: float | None  # largest distance of the true positions over the hold; None: not compared
    tolerance_m: float | None


class FlownRun(NamedTuple):
    """How the flight of a log was flown."""

    kind: str
    seed: int
    stack: str
    drawn: UnkindWorld | None = None  # None: kind sensors
    photographed: tuple[Place, ...] = ()  # of an inspection, by flights before
    pilot: PilotConfig | None = None  # None: the scenario's
    switch: RcSwitch | None = None


class Prepared(NamedTuple):
    """A flight that is ready to be repeated."""

    log: Log
    run: FlownRun
    loaded: LoadedScenario
    folder: Path
    tolerance_m: float | None


def refly(log_path: str | Path, tolerance_m: float | None = None) -> Comparison:
    """Fly the flight of a log again and compare; arguments and errors as `prepare_refly`."""
    with prepare_refly(log_path, tolerance_m) as prepared:
        return refly_prepared(prepared)


@contextlib.contextmanager
def prepare_refly(log_path: str | Path, tolerance_m: float | None = None) -> Iterator[Prepared]:
    """Read a log and load its configuration, which exists as files until the context ends.

    tolerance_m: compare the true positions over the hold, within this distance; None: every message must be equal.
    Raises `LogError` when the log cannot be repeated, or not exactly; `ConfigError` when this version refuses its
    configuration.
    """
    log = read_log(log_path)
    run = flown_run(log)
    if tolerance_m is None and (obstacle := inexact(log, run)):
        raise LogError(f"{log.path}: {obstacle}; give --tolerance METRES to compare the flown paths")
    with tempfile.TemporaryDirectory(prefix="companion-refly-") as folder:
        loaded = unpack(log, Path(folder))
        if run.pilot is not None and run.switch is not None:
            loaded = piloted(loaded, run.pilot, run.switch)
        loaded = loaded if run.drawn is None else apply(loaded, run.drawn)
        yield Prepared(log, run, loaded, Path(folder), tolerance_m)


def refly_prepared(prepared: Prepared, progress: Callable[[Lockstep], None] | None = None) -> Comparison:
    """Fly and compare; progress: called once per simulated second."""
    log, tolerance_m = prepared.log, prepared.tolerance_m
    repeated = _fly(prepared.loaded, prepared.run, prepared.folder / "repeated.mcap", progress)
    if tolerance_m is not None:
        distance_m = path_difference_m(log, repeated)
        return Comparison(distance_m <= tolerance_m, 0, [], distance_m, tolerance_m)
    differences = [d for topic in TOPICS if (d := difference(topic, log[topic], repeated[topic])) is not None]
    return Comparison(not differences, sum(map(len, log.values())), differences, None, None)


def comparison_lines(comparison: Comparison) -> list[str]:
    """What came of it, for a person."""
    if comparison.path_difference_m is not None:
        verdict = "within" if comparison.equal else "beyond"
        return [
            f"the flown paths differ by {comparison.path_difference_m:.4f} m at most over the hold, "
            f"{verdict} the tolerance of {comparison.tolerance_m:g} m"
        ]
    if comparison.equal:
        return [f"equal: all {comparison.messages} messages of the log came again (computing times apart)"]
    lines = [f"NOT equal: {len(comparison.differences)} topics differ"]
    for d in comparison.differences:
        counts = f"{d.flown} messages flown, {d.repeated} repeated"
        first = f"first difference at {d.stamp_s:.3f} s in {', '.join(d.fields)}" if d.fields else "number of messages"
        lines.append(f"  {d.topic}: {counts}; {first}")
    return lines


def inexact(log: Log, run: FlownRun) -> str:
    """Why a flight cannot be repeated to the last digit here, "" when it can."""
    if run.kind != LOCKSTEP:
        return "flown in real time, which is never repeated exactly"
    software, computer = provenance.software(), provenance.computer()
    if log.metadata.get("source_hash") != software.source_hash:
        return f"flown by {_code(log.metadata)}, and this is {_code(software._asdict())}"
    if log.metadata.get("processor") != computer.processor:
        return f"flown on {log.metadata.get('processor') or 'an unknown processor'}, and this is {computer.processor}"
    if log.undecodable or log.truncated:
        return "; ".join(problem.removeprefix(f"{log.path}: ") for problem in log.problems())
    return ""


def _code(facts: dict[str, Any]) -> str:
    commit = f"commit {facts['commit'][:12]}" if facts.get("commit") else "a version that the log does not name"
    return commit + (" with changes" if str(facts.get("modified")).lower() == "true" else "")


def flown_run(log: Log) -> FlownRun:
    """How the flight of a log was flown; raises `LogError` where the log does not hold it."""
    try:
        facts = msgspec.json.decode(log.metadata.get("run", "{}"), type=dict[str, Any])
        drawn = facts.get("drawn")
        run = FlownRun(
            str(facts.get("kind", "")),
            int(facts.get("seed", 0)),
            str(facts.get("stack", "full")),
            None if drawn is None else msgspec.convert(drawn, UnkindWorld),
            msgspec.convert(facts.get(RUN_KEY, []), tuple[Place, ...]),
            None if "pilot" not in facts else msgspec.convert(facts["pilot"], PilotConfig),
            None if RC_SWITCH not in facts else msgspec.convert(facts[RC_SWITCH], RcSwitch),
        )
    except (msgspec.MsgspecError, TypeError, ValueError):
        raise LogError(f"{log.path}: the description of the run in the log cannot be read") from None
    if log.tables("scenario") is None:
        raise LogError(f"{log.path}: holds no scenario: only a simulated flight of this version can be flown again")
    return run


def unpack(log: Log, folder: Path) -> LoadedScenario:
    """Write the effective files of a log into a folder and load them; raises `ConfigError`."""
    tables = {name: log.tables(name) for name in ("scenario", "vehicle", "mission", "site", "world")}
    scenario, mission = tables["scenario"], tables["mission"]
    if scenario is None or mission is None or tables["vehicle"] is None:
        raise LogError(f"{log.path}: holds no complete configuration")
    texts = msgspec.json.decode(log.metadata.get("dictionaries", "{}"), type=dict[str, str])
    beside = msgspec.json.decode(log.metadata.get("world_files", "{}"), type=dict[str, bytes])
    files = FlightFiles(
        scenario,
        tables["vehicle"],
        mission,
        tables["site"],
        texts,
        tables["world"],
        beside,
        log.tables("payload_camera"),
        log.tables("payload_battery"),
        msgspec.json.decode(log.metadata.get("plans", "{}"), type=dict[str, str]),
    )
    return load_scenario(files.write(folder))


def _fly(loaded: LoadedScenario, run: FlownRun, log_file: Path, progress: Callable[[Lockstep], None] | None) -> Log:
    """Through a log of its own, so that both sides of the comparison were written and read alike."""
    recorder = RecorderNode(LogWriter(log_file, {}))

    def record(message: Message, now_s: float) -> None:
        recorder.handle(message, now_s)

    lockstep = Lockstep(loaded, run.seed, record=record, stack=run.stack, photographed=run.photographed)
    try:
        lockstep.run(progress)
    finally:
        recorder.close()
    return read_log(log_file)


def difference(topic: TopicName, flown: list[Message], repeated: list[Message]) -> Difference | None:
    """The first difference between two lists of messages, None when there is none."""
    for a, b in zip(flown, repeated, strict=False):
        if a != b and (fields := _different_fields(a, b)):
            return Difference(topic, len(flown), len(repeated), a.stamp_s, fields)
    if len(flown) != len(repeated):
        return Difference(topic, len(flown), len(repeated), None, ())
    return None


def _different_fields(a: Message, b: Message) -> tuple[str, ...]:
    """Names of the fields that differ; NaN equals NaN, computing times do not count."""
    times = TIMES.get(type(a), ())
    a, b = (msgspec.structs.replace(m, **dict.fromkeys(times, 0.0)) for m in (a, b))
    if encode(a) == encode(b):
        return ()
    return tuple(name for name in a.__struct_fields__ if repr(getattr(a, name)) != repr(getattr(b, name)))


def path_difference_m(flown: Log, repeated: Log) -> float:
    """Largest distance of the true positions over the first hold or trajectory, each counted from its start [m].

    Infinite where one of the two flights has none.
    """
    tracks = []
    for log in (flown, repeated):
        holds = series.hold_intervals(log.of(MissionStatus))
        track = series.truth_track(log.of(Truth), WORLD)
        if not holds or not len(track.t):
            return float("inf")
        tracks.append((holds[0], track))
    (first, a), (second, b) = tracks
    since_s = np.arange(0.0, min(first[1] - first[0], second[1] - second[0]), 0.02)
    p_a = series.interpolate(first[0] + since_s, a.t, a.p)
    p_b = series.interpolate(second[0] + since_s, b.t, b.p)
    return float(np.nanmax(np.linalg.norm(p_a - p_b, axis=1), initial=0.0))
