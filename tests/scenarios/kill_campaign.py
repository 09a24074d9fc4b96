"""Kill, hang and busy loop of every process at random times of the hold, in the real process graph.

``python tests/scenarios/kill_campaign.py --times 20 --seed 1 --out outcomes.jsonl`` flies until every process has had
every fault so often, and prints the table. A flight carries some faults that it survives and one that ends it. It may
be stopped at any time and called again: the outcomes in the file are not flown again. It runs in real time, so it needs
a quiet machine; the table has the machine's load. 20 times kill and hang take about two hours.
"""

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from ground_observer import GroundObserver
from process_faults import KINDS, STREAM_ENDS, STREAM_SURVIVES, Outcome, inject_and_watch
from real_flight import RealFlight

from companion.core.messages import MissionStatus

SURVIVED_PER_FLIGHT = 3
SETTLE_S = 20.0  # a survived fault is over when the hold is back within this
GAP_S = (0.5, 4.0)  # between the hold and the first fault, and between faults
FAILED_STARTS_MAX = 5  # flights in a row that do not reach their hold: the machine is too busy

Fault = tuple[str, str]  # process, kind


def still_to_do(times: int, kinds: list[str], done: list[Outcome]) -> list[Fault]:
    """Every fault as often as it has not happened yet."""
    counted = Counter((outcome.process, outcome.kind) for outcome in done)
    pairs = [(process, kind) for process in (*STREAM_SURVIVES, *STREAM_ENDS) for kind in kinds]
    return [pair for pair in pairs for _ in range(times - counted[pair])]


def plan_flight(faults: list[Fault], chance: random.Random) -> list[Fault]:
    """Some faults that a flight survives, in a random order, then one that ends it."""
    survived = [fault for fault in faults if fault[0] in STREAM_SURVIVES]
    ending = [fault for fault in faults if fault[0] in STREAM_ENDS]
    planned = chance.sample(survived, min(SURVIVED_PER_FLIGHT, len(survived)))
    return planned + ([chance.choice(ending)] if ending else [])


def fly(folder: Path, faults: list[Fault], chance: random.Random) -> list[Outcome]:
    """One flight with these faults, up to the one that ends it; no outcome if it did not reach its hold."""
    outcomes: list[Outcome] = []
    with RealFlight(folder, chance.randrange(1, 1_000_000), camera=True) as flight:
        observer = GroundObserver(flight.instance)
        try:
            if not flight.run(60.0, lambda: observer.receive() or flight.phases[-1:] == ["HOLD"]):
                return []
            for process, kind in faults:
                flight.run(chance.uniform(*GAP_S), lambda: observer.receive())
                holding = flight.run(
                    SETTLE_S, lambda: observer.receive() or flight.latest.get(MissionStatus).phase == "HOLD"
                )
                if not holding or observer.modes[-1].mode != "OFFBOARD":
                    break
                outcomes.append(inject_and_watch(flight, observer, process, kind))
        finally:
            observer.close()
    return outcomes


def read(file: Path) -> list[Outcome]:
    """The outcomes of earlier calls."""
    if not file.exists():
        return []
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [Outcome(**row | {name: tuple(row[name]) for name in ("modes", "phases")}) for row in rows]


def table(outcomes: list[Outcome]) -> str:
    """A line for each process and kind, the worst of each column."""
    lines = [
        "process     fault  times  again s  first step s  farthest m  uncontrolled s  step rad  PX4 took over  bad  load"
    ]
    for process in (*STREAM_SURVIVES, *STREAM_ENDS):
        for kind in KINDS:
            group = [o for o in outcomes if (o.process, o.kind) == (process, kind)]
            if group:
                worst = [max(getattr(o, name) for o in group) for name in Outcome._fields[2:7]]
                again, ready, farthest, gap, step = worst
                bad = sum(bool(o.problems()) for o in group)
                took = sum(o.px4_took_over for o in group)
                load = max(o.load for o in group)
                lines.append(
                    f"{process:<11} {kind:<5} {len(group):6} {again:8.2f} {ready:13.2f} {farthest:11.2f} {gap:15.2f} "
                    f"{step:9.2f} {took:9} {bad:5} {load:5.1f}"
                )
    return "\n".join(lines)


def main() -> int:
    """Fly; exit status 1 when a flight had a problem."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=20, help="of each fault, for each process")
    parser.add_argument("--kinds", default="kill,hang", help=f"of {','.join(KINDS)}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--flights", type=int, default=10_000, help="stop after so many")
    parser.add_argument("--out", type=Path, required=True, help="outcomes, a line each; continued if it exists")
    given = parser.parse_args()
    outcomes = read(given.out)
    failed_starts = flights = 0
    while faults := still_to_do(given.times, given.kinds.split(","), outcomes):
        chance = random.Random(f"{given.seed} {len(outcomes)} {failed_starts}")
        with tempfile.TemporaryDirectory(prefix="companion-") as folder:
            new = fly(Path(folder), plan_flight(faults, chance), chance)
        failed_starts = 0 if new else failed_starts + 1
        if failed_starts == FAILED_STARTS_MAX:
            print(f"{failed_starts} flights in a row did not reach their hold: the machine is too busy")
            break
        for outcome in new:
            print(f"{outcome.process:<11} {outcome.kind:<5} {outcome.farthest_m:5.2f} m, {outcome.modes}"
                  f"{''.join(f'; {problem}' for problem in outcome.problems())}", flush=True)  # fmt: skip
        with given.out.open("a", encoding="utf-8") as out:
            out.writelines(json.dumps(outcome._asdict()) + "\n" for outcome in new)
        outcomes += new
        flights += 1
        if flights == given.flights:
            break
    print(table(outcomes))
    return int(any(outcome.problems() for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
