"""One flight of a campaign, in this process, and its row of results."""

import tempfile
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from companion.core import provenance
from companion.core.errors import UserError
from companion.runtime.flight_record import fingerprints
from companion.runtime.fly import ending_line
from sitl.baselines.stacks import prepare
from sitl.campaign.flights import Flight
from sitl.flight_end import FlightEnd
from sitl.kernels import build_missing
from sitl.lockstep import Lockstep
from sitl.simulate import SimulatedFlight, drawn_facts, fly_loaded

Row = dict[str, Any]  # JSON-ready
Progress = Callable[[Lockstep], None]


class Outcome(StrEnum):
    """What came of a flight: as `FlightEnd` judges it, or a crash of its process."""

    COMPLETED = "completed"
    EARLY = "early"
    FAILED = "failed"
    CRASHED = "crashed"  # no result: an error of the program, too much time or memory


class NotFlown(UserError):
    """A flight cannot be begun here. Its numbers are no reason: the plan of the campaign has accepted them."""


def fly_flight(
    flight: Flight,
    log_file: Path | None = None,
    progress: Progress | None = None,
    drawn: Callable[[Row], None] | None = None,
) -> tuple[SimulatedFlight, Row]:
    """Fly; returns the flight and its row. Raises `NotFlown` when it cannot be begun here, another `UserError` when the world refuses its numbers.

    drawn: gets, before the flight, the part of its result that says what was drawn for its sensors.
    """
    with tempfile.TemporaryDirectory(prefix="companion-campaign-") as name:
        try:
            loaded = flight.in_its_world(flight.loaded(Path(name)))
            if drawn is not None:
                drawn(drawn_facts(loaded))
            build_missing(loaded.vehicle_path, lambda line: None)
            prepare(flight.stack, loaded.vehicle)
        except UserError as error:
            raise NotFlown(str(error)) from None
        flown = fly_loaded(loaded, flight.seed, flight.stack, log_file, progress)
    row = described(flight) | {
        "outcome": str(Outcome(str(flown.result["end"]))),
        "cause": _cause(flown),
        "fingerprints": fingerprints(loaded.vehicle),
        "result": flown.result,
    }
    if log_file is not None:
        row["log"] = str(log_file)
        row["log_problem"] = flown.log_problem
    return flown, row


def crashed(flight: Flight, cause: str, trace: str = "") -> Row:
    """The row of a flight without a result."""
    return described(flight) | {"outcome": str(Outcome.CRASHED), "cause": cause, "trace": trace, "result": {}}


def described(flight: Flight) -> Row:
    """What a row says of its flight in any case, and where it was flown."""
    software, computer = provenance.software(), provenance.computer()
    return {
        "flight": flight.number,
        "scenario": flight.scenario,
        "sensors": str(flight.sensors),
        "stack": flight.stack,
        "seed": flight.seed,
        "fields": flight.fields,
        "commit": software.commit,
        "modified": software.modified,
        "source_hash": software.source_hash,
        "host": computer.host,
        "processor": computer.processor,
    }


def _cause(flown: SimulatedFlight) -> str:
    """Why a flight was not completed, "" when it was: few words that are the same for the same cause."""
    result, status = flown.result, flown.status
    if result["end"] == FlightEnd.COMPLETED:
        return ""
    if result["end"] == FlightEnd.FAILED:
        return str(result["failure"])
    return (status.cause if status is not None else "") or ending_line(status)


def flight_of_json(data: bytes) -> Flight:
    """A flight that came from another process."""
    return msgspec.json.decode(data, type=Flight)
