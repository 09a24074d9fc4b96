"""Replays the flight of the EuRoC recording through the estimator: ``python -m tests.estimation.euroc [FOLDER]``.

The inertial samples and the motion are those of a real hexrotor; flight controller, satellites and camera are made from the
true motion with unkind errors (`tests.estimation.euroc_sensors`). One row for each seed, and the median of all:

- sight: error of the position in the bundle's frame while the tracker sees the bundle, from 0.3 s after the beginning of each
  sight on, RMS and largest; settled: RMS from 2 s on [cm];
- gap: the same error 3 s after the last observation, RMS and largest over all such moments [cm]. For this column every
  flight is replayed a second time, with the bundle hidden for 3 s again and again;
- W: RMS of the position in the world, and of the flight controller's own [m]; velocity: RMS of both [cm/s];
- NEES per dimension of position, velocity and attitude in W (5 s after each jump of the satellites left out), and of the
  position in the bundle's frame: 1 is consistent;
- IMU: rate of the samples [Hz]; sample: processor time of the estimator for each of them [µs];
- refused: observations of the bundle that its witness took for displaced, of both replays. The bundle never moves.
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from acados_gen import eskf_model
from companion.core.arrays import Array
from companion.core.clock import SimulatedStopwatch
from companion.core.enums import TopicName
from companion.core.errors import UserError
from companion.core.frames import quat_from_rpy, rotation_matrix
from companion.core.messages import TOPIC_OF, EstimatorStatus, FcuImu, FcuPosition, Markers, Message, State, Truth
from companion.estimation.estimator import EstimatorNode, Rejection
from companion.estimation.filter import Eskf
from companion.recording import series as sr
from companion.recording.metrics import estimate_errors, largest, nees_by_block, rms, state_errors
from sitl.scenario import LoadedScenario, SensorKind
from sitl.unkind import UnkindWorld
from tests.estimation.euroc_recording import Motion, Recording, read_recording, smoothed
from tests.estimation.euroc_sensors import BUNDLE, START_S, airborne, arrivals, truth_messages, world

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("COMPANION_SHARED_DATA", ROOT.parent / "shared/data")) / "euroc_v1_01"
TARGETS = "targets: sight 2 cm, gap 15 cm, NEES 0.6 to 1.6"

GAP_S = 3.0
GAP_AFTER_S, GAP_EVERY_S = 2.0, 7.0  # from the beginning of a sight to the first gap, from gap to gap
HIDDEN_S = GAP_S + 0.15  # so that no image ends a gap before GAP_S
SIGHT_ENDS_S = 0.5  # without an observation
ENTERED_S = 0.3  # of a sight, before it counts: the first image arrives 0.1 s after its exposure
SETTLED_S = 2.0
JUMP_S = 5.0  # after a jump of the satellites, in which NEES is not judged
NEES_EVERY = 10  # steps
BLOCKS = ("position", "velocity", "attitude")


class Flight(NamedTuple):
    """A recording with its true motion."""

    recording: Recording
    motion: Motion


class Replay(NamedTuple):
    """What the estimator made of one flight."""

    log: dict[TopicName, list[Message]]
    bundle_nees: float  # of the position in the bundle's frame, per dimension
    sample_us: float  # processor time of the estimator over the number of samples


class Row(NamedTuple):
    """The figures of a seed [m, m/s]."""

    seed: str
    sight: float
    sight_max: float
    settled: float
    gap: float
    gap_max: float
    gaps: float
    world: float
    fcu_world: float
    velocity: float
    fcu_velocity: float
    nees_position: float
    nees_velocity: float
    nees_attitude: float
    nees_bundle: float
    rate_hz: float
    sample_us: float
    displaced: float  # observations that the witness of the bundle refused, of both replays


def load_flight(folder: Path, start_s: float = 0.0, end_s: float = np.inf) -> Flight:
    """A part of the recording in a folder; raises `UserError`."""
    recording = read_recording(folder, start_s, end_s)
    return Flight(recording, smoothed(recording))


def replay(flight: Flight, loaded: LoadedScenario, seed: int, hidden: Sequence[sr.Interval] = ()) -> Replay:
    """Feed the estimator with all messages in the order of arrival; hidden: when the camera sees no marker."""
    recording, motion = flight
    node = EstimatorNode(loaded.vehicle, stopwatch=SimulatedStopwatch())
    log: dict[TopicName, list[Message]] = {TOPIC_OF[Truth]: list(truth_messages(motion, recording))}
    relative = _RelativeNees(loaded, motion)
    used_s, samples, steps = 0.0, 0, 0

    def keep(messages: Iterable[Message]) -> None:
        for message in messages:
            log.setdefault(TOPIC_OF[type(message)], []).append(message)

    for at_s, message in arrivals(recording, motion, loaded, seed, hidden):
        while (step_s := START_S + steps / node.rate_hz) <= at_s:
            before_s = time.process_time()
            outputs = node.step(step_s)
            used_s += time.process_time() - before_s
            keep(outputs)
            steps += 1
            if steps % NEES_EVERY == 0:
                relative.add(node)
        before_s = time.process_time()
        node.handle(message, at_s)
        used_s += time.process_time() - before_s
        samples += isinstance(message, FcuImu)
        keep([message])
    return Replay(log, relative.mean(), 1e6 * used_s / max(samples, 1))


class _RelativeNees:
    """NEES of the position in the bundle's frame after the newest measurement; `EstimatorStatus` has no such covariance."""

    def __init__(self, loaded: LoadedScenario, motion: Motion) -> None:
        self._eskf, self._motion, self._airborne = Eskf(loaded.vehicle), motion, airborne(motion)
        placed = loaded.scenario.scene.bundles[0]
        self._p_WM, self._R_WM = np.array(placed.p_W), rotation_matrix(quat_from_rpy(*placed.rpy_rad))
        self._values: list[float] = []

    def add(self, node: EstimatorNode) -> None:
        if node.history is None or not node.history.newest.marker_known:
            return
        newest = node.history.newest
        if not self._airborne[0] <= newest.time_s <= self._airborne[1]:
            return
        position_M, covariance = self._eskf.relative(newest)
        true_W = sr.interpolate(np.array([newest.time_s - START_S]), self._motion.t, self._motion.p_W)[0]
        error = position_M - self._R_WM.T @ (true_W - self._p_WM)
        self._values.append(float(error @ np.linalg.solve(covariance, error)) / 3.0)

    def mean(self) -> float:
        return float(np.mean(self._values)) if self._values else math.nan


# --- figures


def sights(log: sr.Messages) -> list[sr.Interval]:
    """When the tracker saw the bundle, without interruptions above SIGHT_ENDS_S."""
    found: list[sr.Interval] = []
    for message in sr.of(log, Markers):
        if not message.observations:
            continue
        if found and message.stamp_s - found[-1][1] <= SIGHT_ENDS_S:
            found[-1] = (found[-1][0], message.stamp_s)
        else:
            found.append((message.stamp_s, message.stamp_s))
    return found


def gaps_in(seen: Sequence[sr.Interval]) -> list[sr.Interval]:
    """Gaps of GAP_S inside of the sights: the bundle is seen before and after each of them."""
    return [
        (float(begin_s), float(begin_s) + HIDDEN_S)
        for start_s, end_s in seen
        for begin_s in np.arange(start_s + GAP_AFTER_S, end_s - HIDDEN_S, GAP_EVERY_S)
    ]


def _judged(flight: Flight, loaded: LoadedScenario, log: sr.Messages) -> list[sr.Interval]:
    """The flight from the first valid state on, without the time after jumps of the satellites."""
    start_s, end_s = airborne(flight.motion)
    valid_s = next((m.stamp_s for m in sr.of(log, State) if m.valid), math.inf)
    spans, jumps = [], loaded.drawn.gnss_jumps if isinstance(loaded.drawn, UnkindWorld) else []
    begin_s = max(start_s, valid_s)
    for jump_s in sorted(START_S + at_s for jump in jumps for at_s in (jump.at_s, jump.at_s + jump.duration_s)):
        spans.append((begin_s, min(jump_s, end_s)))
        begin_s = max(begin_s, jump_s + JUMP_S)
    return [span for span in (*spans, (begin_s, end_s)) if span[1] > span[0]]


def bundle_errors(log: sr.Messages) -> tuple[Array, Array]:
    """(times, errors of the position in the bundle's frame) of all valid states that have the bundle."""
    t, error = estimate_errors(log, BUNDLE)
    known = np.isfinite(error).all(axis=1)
    return t[known], error[known]


def gap_errors(log: sr.Messages) -> Array:
    """Errors in the bundle's frame GAP_S after each last image of the bundle, where none follows earlier; (n, 3).

    It counts what the tracker has seen, whether the filter has used it or not.
    """
    spans, (t, error) = sights(log), bundle_errors(log)
    begins = [start_s for start_s, _ in spans[1:]] + [math.inf]
    ends_s = [end_s + GAP_S for (_, end_s), begin_s in zip(spans, begins, strict=True) if begin_s > end_s + GAP_S]
    at = np.searchsorted(t, ends_s)
    return error[at[at < len(t)]]


def figures(flight: Flight, loaded: LoadedScenario, seed: int) -> Row:
    """Replay a flight with the sensors of a seed, as it is and with gaps."""
    seen = replay(flight, loaded, seed)
    log, spans = seen.log, sights(seen.log)
    interrupted = replay(flight, loaded, seed, gaps_in(spans))
    t, error = bundle_errors(log)
    in_sight, settled = (
        sr.within(t, [(start_s + after_s, end_s) for start_s, end_s in spans]) for after_s in (ENTERED_S, SETTLED_S)
    )
    gaps = gap_errors(interrupted.log)
    judged = _judged(flight, loaded, log)
    nees = nees_by_block(log, judged)
    rates = [m.imu.rate_hz for m in sr.of(log, EstimatorStatus) if m.imu is not None and m.imu.rate_hz]
    return Row(
        str(seed),
        rms(error[in_sight]),
        largest(error[in_sight]) if in_sight.any() else math.nan,
        rms(error[settled]),
        rms(gaps),
        largest(gaps) if len(gaps) else math.nan,
        len(gaps),
        *(rms(state_errors(log, kind, "p_W", "p_W")[1]) for kind in (State, FcuPosition)),
        *(rms(state_errors(log, kind, "v_W", "v_W")[1]) for kind in (State, FcuPosition)),
        *(nees.get(block, math.nan) / 3.0 for block in BLOCKS),
        seen.bundle_nees,
        float(np.median(rates)) if rates else math.nan,
        seen.sample_us,
        _displaced(log) + _displaced(interrupted.log),
    )


def _displaced(log: sr.Messages) -> int:
    return sr.of(log, EstimatorStatus)[-1].rejected[Rejection.MARKER_DISPLACED]


def median(rows: Sequence[Row]) -> Row:
    """Of every figure."""
    return Row("median", *(float(np.median([row[i] for row in rows])) for i in range(1, len(Row._fields))))


COLUMNS = (  # heading, width, figure of a row as text
    ("seed", 6, lambda r: r.seed),
    ("sight", 6, lambda r: f"{100 * r.sight:.1f}"),
    ("max", 5, lambda r: f"{100 * r.sight_max:.0f}"),
    ("settled", 8, lambda r: f"{100 * r.settled:.1f}"),
    ("gap", 6, lambda r: f"{100 * r.gap:.1f}"),
    ("max", 4, lambda r: f"{100 * r.gap_max:.0f}"),
    ("n", 4, lambda r: f"{r.gaps:.0f}"),
    ("W", 6, lambda r: f"{r.world:.2f}"),
    ("FCU", 5, lambda r: f"{r.fcu_world:.2f}"),
    ("velocity", 9, lambda r: f"{100 * r.velocity:.1f}"),
    ("FCU", 5, lambda r: f"{100 * r.fcu_velocity:.1f}"),
    ("NEES p", 7, lambda r: f"{r.nees_position:.2f}"),
    ("v", 5, lambda r: f"{r.nees_velocity:.2f}"),
    ("q", 5, lambda r: f"{r.nees_attitude:.2f}"),
    ("bundle", 7, lambda r: f"{r.nees_bundle:.2f}"),
    ("IMU", 5, lambda r: f"{r.rate_hz:.0f}"),
    ("sample", 7, lambda r: f"{r.sample_us:.0f}"),
    ("refused", 8, lambda r: f"{r.displaced:.0f}"),
)


def line(row: Row) -> str:
    """A row as text."""
    return "".join(text(row).rjust(width) for _, width, text in COLUMNS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; exit status 2 with one line for a folder that cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m tests.estimation.euroc", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER, help="of the recording (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=5, help="how many (default: %(default)s)")
    parser.add_argument("--first-seed", type=int, default=101, help="(default: %(default)s)")
    parser.add_argument("--sensors", type=SensorKind, choices=list(SensorKind), default=SensorKind.UNKIND)
    given = parser.parse_args(arguments)
    try:
        flight = load_flight(given.folder)
        eskf_model.generate()
    except UserError as refused:
        print(f"euroc: {refused}", file=sys.stderr)
        return 2
    print("".join(name.rjust(width) for name, width, _ in COLUMNS), flush=True)
    rows = []
    for seed in range(given.first_seed, given.first_seed + given.seeds):
        rows.append(figures(flight, world(given.sensors, seed, float(flight.motion.t[-1])), seed))
        print(line(rows[-1]), flush=True)
    if rows:
        print(line(median(rows)))
    print(TARGETS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
