"""Going on with an inspection after power-on: what former flights have photographed, read beside the start of the processes.

``python -m companion.runtime.former_flights --mission M --resume FOLDER --out FILE`` is the unit ``resume-companion``.
Reading the logs takes longer than a process that is started again in flight has; the mission and the recorder therefore
take the result from a file. The file says for which mission and which folder it was made, and of which logs: the mission takes no other
one, and each of its starts lets the unit run again. `companion fly --resume` reads the logs itself and hands the result over as arguments.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from companion.core.config import ConfigError, read_layered
from companion.core.input_files import fingerprint
from companion.core.text import plain
from companion.recording.retention import LOG_SUFFIX, is_written
from companion.recording.writer import FLOWN_SUFFIX
from companion.runtime.log_readings import Place, write_whole
from companion.runtime.resume import NoFormerFlight, ended_logs, photographed

AGAIN = "the logs are read again, see systemctl status resume-companion"


class FormerFlights(msgspec.Struct):
    """The content of the file.

    photographed: item, row and column of each. problem: why it is not known what was taken, in one line; "" it is.
    files: fingerprint of the mission and the files that it names. resume: the log or folder. logs: files of the folder, by name.
    """

    photographed: list[Place] = []
    problem: str = ""
    files: str = ""
    resume: str = ""
    logs: list[str] = []


def former_flights(
    mission: Path, resume: str, say: Callable[[str], None] = lambda line: None, kept: Path | None = None
) -> FormerFlights:
    """What the flights in a folder have taken of a mission's photographs.

    resume: log, or folder of logs; "": the mission begins with its first photograph, as it does with a folder without a
    log of its present plan, which the first battery of an inspection finds. say: called with a line on logs that count or do not.
    kept: see `companion.runtime.resume.photographed`.
    """
    files = fingerprint(
        None, mission
    )  # before the files are read, and the names before the logs: what changes meanwhile shows
    found = FormerFlights(files=files, resume=resume)
    named = Path(resume)
    try:
        if not resume or "inspection" not in read_layered(mission):
            return found
        if not named.exists():
            found.problem = f"COMPANION_RESUME={resume}: no such log or folder"
            return found
        found.logs = sorted(log.name for log in ended_logs(named)) if named.is_dir() else []
        found.photographed = photographed(mission, [named], say=say, kept=kept)
    except NoFormerFlight:
        pass
    except ConfigError as error:
        found.problem = str(error)
    return found


def read(file: Path, mission: Path, resume: str) -> list[Place]:
    """The photographs in the file, made for this mission and this log or folder, "" for none.

    Raises `ConfigError`, one line, where it is not known what was taken.
    """
    try:
        found = msgspec.json.decode(file.read_bytes(), type=FormerFlights)
    except (OSError, msgspec.MsgspecError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(
            f"{file}: the former flights are not known ({why}): see systemctl status resume-companion"
        ) from None
    if found.resume != resume:
        raise ConfigError(f"{file}: made with COMPANION_RESUME={found.resume}, not {resume}: {AGAIN}")
    if found.files != fingerprint(None, mission):
        raise ConfigError(f"{file}: made before a change of {mission} or of a file that it names: {AGAIN}")
    if found.problem:
        raise ConfigError(found.problem)
    if ended := _ended_since(found):
        raise ConfigError(f"{file}: made before the end of the flight {ended}: {AGAIN}")
    return found.photographed


def _ended_since(found: FormerFlights) -> str:
    """A flight of the folder that ended after the logs were read, "" without one, and while another one is flown.

    In the air a mission that is started again waits for nothing: it only observes.
    """
    folder = Path(found.resume)
    if not found.resume or not folder.is_dir():
        return ""
    flown = [log for mark in folder.glob(f"*{FLOWN_SUFFIX}") if (log := mark.with_suffix(LOG_SUFFIX)).exists()]
    if any(is_written(log) for log in flown):
        return ""
    return next((log.name for log in sorted(flown) if log.name not in found.logs), "")


def main() -> int:
    """Entry of the unit; exit status 1 when the file cannot be written."""
    parser = argparse.ArgumentParser(prog="companion.runtime.former_flights")
    parser.add_argument("--mission", type=Path, required=True)
    parser.add_argument(
        "--resume", required=True, help="log, or folder of logs; empty: begin with the first photograph"
    )
    parser.add_argument("--kept", type=Path, default=None, help="file that keeps what each log said")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    found = former_flights(given.mission, given.resume, lambda line: print(plain(line)), given.kept)
    print(
        plain(found.problem) or f"{len(found.photographed)} photographs of {given.mission.name} taken by former flights"
    )
    try:
        write_whole(given.out, msgspec.json.encode(found))
    except OSError as error:
        print(f"{given.out}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
