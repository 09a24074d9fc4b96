"""Corrupts the measurements of a recorded flight and replays it through the estimator.

`python -m tests.scenarios.abuse [SCENARIO] [--seed N]` flies a scenario once in lockstep. For every kind of abuse it
prints the error of the estimate while the bundle is in sight, also over that of the clean run, and the share of the
time out of sight in which the true error is within the published uncertainty (three standard deviations of the position
relative to the bundle).
"""

import argparse
import copy
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from companion.core.frames import quat_from_rpy, quat_multiply
from companion.core.messages import FcuPosition, Markers, PoseSolution, State
from companion.core.vehicle import Vehicle
from companion.estimation.estimator import EstimatorNode
from companion.recording import series as sr
from companion.recording.log import LogEntry, read_log
from companion.recording.metrics import estimate_errors, rms
from companion.recording.replay import arrivals, replay
from companion.runtime.flight_record import flight_metadata, open_recorder
from sitl.lockstep import Lockstep
from sitl.scenario import load_scenario

SCENARIO = Path("config/scenarios/hover_marker.toml")
SETTLED_S = 5.0  # of the hold; every abuse begins after it
SEEN_S = 0.5  # a bundle seen within this time counts as in sight
SIGMAS = 3.0


class Flown(NamedTuple):
    """A recorded flight: its log and the messages that reached the estimator."""

    log: dict
    entries: list[LogEntry]
    hold: tuple[float, float]  # of the mission [s]
    vehicle: Vehicle
    bundle: str


def fly(scenario: Path, seed: int, until_s: float | None = None) -> Flown:
    """Fly a scenario in lockstep, to its end or until_s; raises `ConfigError` when it cannot be read."""
    loaded = load_scenario(scenario)
    if until_s is not None:
        ended = msgspec.structs.replace(loaded.scenario, duration_max_s=until_s)
        loaded = msgspec.structs.replace(loaded, scenario=ended)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "flight.mcap"
        recorder = open_recorder(path, flight_metadata(loaded.vehicle_path, loaded.mission_path))
        Lockstep(loaded, seed, record=recorder.handle).run()
        recorder.close()
        log = read_log(path)
    entries = arrivals(log, EstimatorNode.inputs)
    return Flown(log, entries, sr.hold_intervals(log["mission_status"])[0], loaded.vehicle, loaded.plan.bundle)


# --- kinds of abuse: (entries, begin of the abuse [s], random numbers) -> entries -----------------------------------


def untouched(entries, begin_s, rng) -> list[LogEntry]:
    return entries


def flips_and_outliers(entries, begin_s, rng) -> list[LogEntry]:
    """Every fifth observation is replaced: by its mirror image about the line of sight, or by a random pose."""

    def replaced(message: Markers) -> Markers:
        if not message.observations or rng.random() > 0.2:
            return message
        message = copy.deepcopy(message)
        for seen in message.observations:
            p_CM, q_CM = seen.best.p_CM, seen.best.q_CM
            if rng.random() < 0.5:
                axis_turn = quat_from_rpy(*rng.choice([-1, 1], 2) * rng.uniform(0.3, 1.0, 2), 0.0)
                q_CM = tuple(quat_multiply(q_CM, axis_turn))
            else:
                p_CM = tuple(np.array(p_CM) + rng.normal(0, 1.0, 3))
                q_CM = tuple(quat_multiply(q_CM, quat_from_rpy(*rng.uniform(-3, 3, 3))))
            seen.best = PoseSolution(p_CM=p_CM, q_CM=q_CM, reprojection_rms_px=seen.best.reprojection_rms_px)
            seen.alternative, seen.ambiguous = None, False
            for marker in seen.markers:
                corners = np.array(marker.corners_xy)
                marker.corners_xy = tuple(corners + rng.normal(0, 0.1, corners.shape))
        return message

    return _each(entries, Markers, begin_s, None, replaced)


def gnss_jumps(entries, begin_s, rng) -> list[LogEntry]:
    """The position jumps by 5 m every 15 s, sideways and up, and back."""
    jumps = rng.normal(size=(100, 3))
    jumps *= 5.0 / np.linalg.norm(jumps, axis=1, keepdims=True)

    def moved(message: FcuPosition) -> FcuPosition:
        number = int((message.stamp_s - begin_s) / 15.0)
        if number % 2:  # every second position is the true one
            return message
        message = copy.copy(message)
        message.p_W = tuple(np.array(message.p_W) + jumps[number])
        return message

    return _each(entries, FcuPosition, begin_s, None, moved)


def no_markers(entries, begin_s, rng) -> list[LogEntry]:
    """Nothing is seen for 30 s."""

    def empty(message: Markers) -> Markers:
        message = copy.copy(message)
        message.observations = []
        return message

    return _each(entries, Markers, begin_s, begin_s + 30.0, empty)


def no_gnss(entries, begin_s, rng) -> list[LogEntry]:
    """The flight controller sends no position and velocity for 60 s."""
    return _each(entries, FcuPosition, begin_s, begin_s + 60.0, lambda message: None)


def late_and_out_of_order(entries, begin_s, rng) -> list[LogEntry]:
    """Observations arrive up to 200 ms after their exposure, and out of order."""
    out = []
    for entry in entries:
        if isinstance(entry.message, Markers) and entry.message.stamp_s >= begin_s:
            late_s = rng.uniform(0.06, 0.2)
            entry = entry._replace(arrival_s=max(entry.arrival_s, entry.message.stamp_s + late_s))
        out.append(entry)
    return sorted(out, key=lambda entry: entry.arrival_s)


ABUSES: dict[str, Callable] = {
    "clean": untouched,
    "20 % flips and outliers": flips_and_outliers,
    "GNSS jumps of 5 m": gnss_jumps,
    "30 s without markers": no_markers,
    "60 s without GNSS": no_gnss,
    "200 ms late, out of order": late_and_out_of_order,
}


def _each(
    entries: Iterable[LogEntry], kind: type, begin_s: float, end_s: float | None, change: Callable
) -> list[LogEntry]:
    out = []
    for entry in entries:
        message = entry.message
        if isinstance(message, kind) and message.stamp_s >= begin_s and (end_s is None or message.stamp_s < end_s):
            message = change(message)
            if message is None:
                continue
            entry = entry._replace(message=message)
        out.append(entry)
    return out


# --- figures ----------------------------------------------------------------------------------------------------------


class Figures(NamedTuple):
    """The figures of one replay, over the hold after its first seconds."""

    rms_in_sight_m: float
    bounded_out_of_sight: float  # share of the time; NaN: never out of sight
    out_of_sight_s: float
    resets: int
    largest_m: float  # while valid


def endure(flown: Flown, abuse: Callable, seed: int = 0) -> Figures:
    """Replay the log through the estimator after an abuse."""
    begin_s = flown.hold[0] + SETTLED_S
    entries = abuse(flown.entries, begin_s, np.random.default_rng(seed))
    outputs = replay(entries, EstimatorNode(flown.vehicle, flown.bundle))
    states = [m for m in outputs if isinstance(m, State)]
    t, error = estimate_errors({"state": states, "truth": flown.log["truth"]}, flown.bundle)
    by_stamp = {m.stamp_s: m for m in states}
    inside = (t >= begin_s) & (t <= flown.hold[1]) & np.isfinite(error).all(axis=1)
    used = [by_stamp[stamp] for stamp in t[inside]]
    error = error[inside]
    seen = np.array([m.marker_age_s < SEEN_S for m in used])
    length = np.linalg.norm(error, axis=1)
    bound = SIGMAS * np.array([m.relative_std_m for m in used])
    hidden = ~seen
    return Figures(
        rms(error[seen]),
        float(np.mean(length[hidden] <= bound[hidden])) if hidden.any() else float("nan"),
        float(hidden.sum() / flown.vehicle.estimator.rate_hz),
        states[-1].reset_count,
        float(length.max(initial=0.0)),
    )


def main() -> None:
    from rich.console import Console
    from rich.table import Table

    parser = argparse.ArgumentParser(prog="tests.scenarios.abuse", description=__doc__)
    parser.add_argument("scenario", nargs="?", type=Path, default=SCENARIO)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    flown = fly(given.scenario, given.seed)
    table = Table(title=f"{given.scenario.stem}, seed {given.seed}: the estimate under abuse")
    for column in (
        "abuse",
        "RMS in sight [cm]",
        "over clean",
        "within 3 σ out of sight",
        "out of sight [s]",
        "resets",
    ):
        table.add_column(column, justify="left" if column == "abuse" else "right")
    clean = None
    for name, abuse in ABUSES.items():
        figures = endure(flown, abuse)
        clean = clean or figures
        within = "–" if np.isnan(figures.bounded_out_of_sight) else f"{100 * figures.bounded_out_of_sight:.1f} %"
        table.add_row(
            name,
            f"{100 * figures.rms_in_sight_m:.2f}",
            f"{figures.rms_in_sight_m / clean.rms_in_sight_m:.2f}",
            within,
            f"{figures.out_of_sight_s:.0f}",
            str(figures.resets),
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
