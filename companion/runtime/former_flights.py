"""Going on with an inspection after power-on: what former flights have photographed, read once before the processes start.

``python -m companion.runtime.former_flights --mission M --resume FOLDER --out FILE`` is the unit ``resume-companion``.
Reading the logs takes longer than a process that is started again in flight has; the mission and the recorder therefore
take the result from a file. `companion fly --resume` reads the logs itself and hands the result over as arguments.
"""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from companion.core.config import ConfigError, read_layered
from companion.core.text import plain
from companion.runtime.resume import NoFormerFlight, Place, photographed


class FormerFlights(msgspec.Struct):
    """The content of the file.

    photographed: item, row and column of each. problem: why it is not known what was taken, in one line; "" it is.
    """

    photographed: list[Place] = []
    problem: str = ""


def former_flights(mission: Path, resume: Path | None, say: Callable[[str], None] = lambda line: None) -> FormerFlights:
    """What the flights in a folder have taken of a mission's photographs.

    resume: log, or folder of logs; None: the mission begins with its first photograph, as it does with a folder without a
    log of its present plan, which the first battery of an inspection finds. say: called with a line on logs that count or do not.
    """
    try:
        if resume is None or "inspection" not in read_layered(mission):
            return FormerFlights()
        if not resume.exists():
            return FormerFlights(problem=f"COMPANION_RESUME={resume}: no such log or folder")
        return FormerFlights(photographed(mission, [resume], say=say))
    except NoFormerFlight:
        return FormerFlights()
    except ConfigError as error:
        return FormerFlights(problem=str(error))


def write(found: FormerFlights, file: Path) -> None:
    """Whole or not at all; raises `OSError`."""
    part = file.with_suffix(".part")
    part.write_bytes(msgspec.json.encode(found))
    os.replace(part, file)


def read(file: Path) -> list[Place]:
    """The photographs in the file; raises `ConfigError`, one line, where it is not known what was taken."""
    try:
        found = msgspec.json.decode(file.read_bytes(), type=FormerFlights)
    except (OSError, msgspec.MsgspecError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(
            f"{file}: the former flights are not known ({why}): see systemctl status resume-companion"
        ) from None
    if found.problem:
        raise ConfigError(found.problem)
    return found.photographed


def main() -> int:
    """Entry of the unit; exit status 1 when the file cannot be written."""
    parser = argparse.ArgumentParser(prog="companion.runtime.former_flights")
    parser.add_argument("--mission", type=Path, required=True)
    parser.add_argument(
        "--resume", required=True, help="log, or folder of logs; empty: begin with the first photograph"
    )
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    found = former_flights(given.mission, Path(given.resume) if given.resume else None, lambda line: print(plain(line)))
    print(
        plain(found.problem) or f"{len(found.photographed)} photographs of {given.mission.name} taken by former flights"
    )
    try:
        write(found, given.out)
    except OSError as error:
        print(f"{given.out}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
