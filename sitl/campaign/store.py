"""The folder of a campaign's results.

::

    DIR/campaign.json      what is flown: campaign file, hashes of all inputs, version of the project
    DIR/flights/00017.json one finished flight, written at once (a temporary file that is renamed)
    DIR/results.parquet    a row for each finished flight, made from those files
    DIR/report.html

A campaign that is killed at any time leaves whole files of finished flights, and at most temporary files of others. Only one
campaign at a time writes into a folder.
"""

import fcntl
from pathlib import Path
from typing import Any

import msgspec

from companion.core import provenance
from companion.core.command_line import check_output_folder
from companion.core.disk import put_in_place
from companion.core.errors import OutputError, UserError
from sitl.campaign.flights import CampaignPlan, Flight
from sitl.campaign.fly import Outcome, Row

MANIFEST, FLIGHTS, RESULTS, REPORT = "campaign.json", "flights", "results.parquet", "report.html"
LOCK = ".lock"
TEMPORARY = ".part"


class Store:
    """Results of one campaign. Raises `OutputError` for a folder that cannot be used, `UserError` for one of another campaign.

    resume: go on with the campaign that is in the folder; else the folder must be empty or absent. An empty folder is
    no obstacle to resume: the campaign was killed before its first flight.
    """

    def __init__(self, folder: Path, plan: CampaignPlan, resume: bool, any_version: bool = False) -> None:
        check_output_folder(folder)
        self.folder = folder
        self._plan = plan
        manifest = folder / MANIFEST
        begun = manifest.is_file()
        if not begun and _holds_something(folder):
            raise OutputError(f"{folder}: is not empty and holds no campaign ({MANIFEST}); name another folder")
        if begun and not resume:
            raise OutputError(f"{folder}: holds a campaign; name another folder, or go on with it by --resume")
        try:
            (folder / FLIGHTS).mkdir(parents=True, exist_ok=True)
            self._lock = (folder / LOCK).open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError(f"{folder}: another campaign is writing there") from None
        except OSError as error:
            raise OutputError(f"{folder}: cannot be written: {(error.strerror or str(error)).lower()}") from None
        try:
            if begun:
                self._check(_read(manifest), any_version)
            else:
                self._write(manifest, self._described())
        except BaseException:
            self.close()
            raise
        for left in (folder / FLIGHTS).glob(f"*{TEMPORARY}"):
            left.unlink()
        self.rows, self.unreadable = self._read_flights()

    def _described(self) -> dict[str, Any]:
        return {
            "campaign": self._plan.campaign.name,
            "file": str(self._plan.path),
            "flights": len(self._plan.flights),
            "inputs": self._plan.inputs,
            **provenance.software()._asdict(),
        }

    @classmethod
    def of_any_version(cls, folder: Path, plan: CampaignPlan) -> "Store":
        """A folder with a campaign of this file, flown by any version of the project; to read it."""
        if not (folder / MANIFEST).is_file():
            raise OutputError(f"{folder}: holds no campaign ({MANIFEST})")
        return cls(folder, plan, resume=True, any_version=True)

    def _check(self, manifest: dict[str, Any], any_version: bool) -> None:
        """Raise `UserError` unless the folder's campaign is this one, of this version of the project."""
        here = provenance.software()
        same_version = manifest.get("source_hash") == here.source_hash
        if not same_version and not any_version:
            flown_by = f"commit {str(manifest.get('commit'))[:12]}{' with changes' if manifest.get('modified') else ''}"
            raise UserError(
                f"{self.folder}: cannot be resumed: its flights were flown by {flown_by}, and this is "
                f"{provenance.version_line()}"
            )
        inputs, flown = self._plan.inputs, manifest.get("inputs", {})
        if same_version:
            changed = [name for name in {**flown, **inputs} if flown.get(name) != inputs.get(name)]
        else:
            changed = [name for name, digest in flown.items() if digest not in _called(name, inputs)]
        if changed:
            raise UserError(f"{self.folder}: cannot be resumed: {changed[0]} is not what its flights were drawn from")

    def _read_flights(self) -> tuple[dict[int, Row], list[Path]]:
        """The finished flights by number, and files that hold none (of a disk that failed): those are flown again."""
        rows, unreadable = {}, []
        for path in sorted((self.folder / FLIGHTS).glob("*.json")):
            try:
                row = msgspec.json.decode(path.read_bytes())
                rows[int(row["flight"])] = row
            except (OSError, msgspec.DecodeError, KeyError, TypeError, ValueError):
                unreadable.append(path)
        return rows, unreadable

    @property
    def missing(self) -> list[Flight]:
        """The flights that are not finished."""
        return [flight for flight in self._plan.flights if flight.number not in self.rows]

    def fly_again(self, outcome: Outcome) -> int:
        """Let the finished flights with an outcome be flown again; returns how many. Each row stays on the disk until the new one takes its place."""
        again = [number for number, row in self.rows.items() if row["outcome"] == outcome]
        for number in again:
            del self.rows[number]
        return len(again)

    def add(self, row: Row) -> None:
        """Keep a finished flight; it is on the disk when this returns. Raises `OutputError`. The first row of a flight stays, but for `fly_again`."""
        number = int(row["flight"])
        if number in self.rows:
            return
        self._write(self.folder / FLIGHTS / f"{number:05d}.json", row)
        self.rows[number] = row

    def _write(self, path: Path, content: Any) -> None:
        write_at_once(path, msgspec.json.format(msgspec.json.encode(content), indent=1))

    def ordered(self) -> list[Row]:
        """The finished flights in order of their numbers."""
        return [self.rows[number] for number in sorted(self.rows)]

    def close(self) -> None:
        """Let another campaign write here."""
        self._lock.close()


def _called(name: str, inputs: dict[str, str]) -> list[str]:
    """The hashes of a file of which a folder has the name, of another version: former ones did not say its role."""
    return [digest for own, digest in inputs.items() if own == name or own.endswith(f" {name}")]


def _holds_something(folder: Path) -> bool:
    """Whether a folder has more than what a campaign has made that ended before its first line."""
    if not folder.is_dir():
        return False
    found = {path.name for path in folder.iterdir() if path.suffix != TEMPORARY}
    return bool(found - {LOCK, FLIGHTS}) or (FLIGHTS in found and any((folder / FLIGHTS).iterdir()))


def write_at_once(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole or not at all, also when the machine stops; raises `OutputError`."""
    part = path.with_name(path.name + TEMPORARY)
    try:
        part.write_bytes(data)
        put_in_place(part, path)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(path.read_bytes())
        assert isinstance(found, dict)
        return found
    except (OSError, msgspec.DecodeError, AssertionError):
        raise UserError(f"{path}: cannot be read: not what a campaign writes") from None
