"""``python -m tests.attack``: random attack flights, and a table of what came of them.

It may be stopped at any time and started again with the same ``--out``. ``--only WORLD:INDEX`` flies one of them again
and prints its events.
"""

import argparse
import sys
from collections import Counter, defaultdict
from pathlib import Path

from tests.attack.attacks import ATTACKS
from tests.attack.flights import campaign, fly_world

PER_WORLD = 20


def main() -> int:
    """Exit status 0 when every flight kept every promise."""
    parser = argparse.ArgumentParser(prog="tests.attack", description=__doc__)
    parser.add_argument("--flights", type=int, default=100)
    parser.add_argument("--first-world", type=int, default=1, help="seed of the first world")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("attack_flights.jsonl"))
    parser.add_argument("--attack", help="only attacks whose name contains this")
    parser.add_argument("--only", metavar="WORLD:INDEX", help="fly one flight again")
    given = parser.parse_args()
    attacks = tuple(a for a in ATTACKS if given.attack is None or given.attack in a.name)
    if not attacks:
        parser.error(f"no such attack (there are: {', '.join(a.name for a in ATTACKS)})")
    if given.only:
        world, index = map(int, given.only.split(":"))
        for flight in fly_world(world, PER_WORLD, attacks, {index}):
            for name, value in flight._asdict().items():
                print(f"{name}: {value}")
        return 0
    worlds = range(given.first_world, given.first_world + -(-given.flights // PER_WORLD))
    rows = campaign(worlds, PER_WORLD, attacks, given.out, given.jobs)[: given.flights]
    print(table(rows))
    broken = [row for row in rows if row["broken"]]
    for row in broken:
        print(f"{row['world']}:{row['index']} {row['phase']}: {'; '.join(row['broken'])[:200]} | {row['attacks']}")
    apart = Counter(row["apart"] for row in rows if row.get("apart"))
    print(
        ", ".join(
            [f"{len(rows)} attack flights, {len(broken)} broke a promise", *(f"{n} {why}" for why, n in apart.items())]
        )
    )
    return 1 if broken else 0


def table(rows: list[dict]) -> str:
    """One line for each attack: flights, worst figures, endings."""
    groups = defaultdict(list)
    for row in rows:
        for name in row["attacks"]:
            kind = max((a.name for a in ATTACKS if name.startswith(a.name)), key=len, default=name)
            groups[kind].append(row)
    lines = [
        "| attack | flights | nearest to the face, m | beyond a limit, m | excursion, m | broken | endings |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind, flown in sorted(groups.items()):
        ends = defaultdict(int)
        for row in flown:
            ends[row["end"]] += 1
        endings = ", ".join(f"{end} {count}" for end, count in sorted(ends.items()))
        lines.append(
            f"| {kind} | {len(flown)} | {min(r['nearest_m'] for r in flown):.2f} | {max(r['beyond_m'] for r in flown):.2f} "
            f"| {max(r['excursion_m'] for r in flown):.2f} | {sum(bool(r['broken']) for r in flown)} | {endings} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
