"""Where the photographs of an inspection are on the disk: beside the log, where it says, or below other folders.

A photograph that `companion photographs tag` has tagged is known by the pose in the file beside it, whatever its name is.
A name alone counts only where one file has it, and one photograph; of files with the same name the one with the longest
equal end of its path. A file whose tags, or whose time, are those of another photograph does not count. The log does not
choose among all files of the computer: what it names lies beside it, or below a folder that the user has named.
"""

import filecmp
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from companion.core import exif
from companion.core.config import ConfigError
from companion.core.messages import Capture
from companion.recording.inspection import Shot, ShotKey

SEARCH_MAX = 200_000  # files below a folder of photographs
TAGS, TAGS_MAX_BYTES = ".json", 20_000
BESIDE = "photographs"  # the folder of a local camera beside the log
SAME_M = 1e-6  # of a position that was written as text
SAME_S = 0.002  # of a time that was written as text, in milliseconds
CLOCK_WRONG_S = 600.0  # of a camera's clock that a person has set
ZONES_S = 14 * 3600.0  # of a clock that does not name its offset from UTC


class FoundFiles(NamedTuple):
    """Where the photographs of a report are."""

    paths: dict[ShotKey, Path]
    missing: list[str]  # one line each: photograph, file, reason; those without a name in one line
    not_found: int  # photographs


class _Tags(msgspec.Struct):
    """Of a tagged photograph, as far as it identifies one."""

    id: int
    attempt: int
    p_WC: tuple[float, float, float] | None = None
    utc: str | None = None
    pose_source: str = "flight"  # else the pose was found after the flight, and is not that of the log


class _Found(NamedTuple):
    """Files that may be a photograph, and why another one with its name is not."""

    paths: list[Path]
    refused: str = ""


def find_files(
    shots: Sequence[Shot],
    logs: Sequence[Path],
    folders: Sequence[Path] = (),
    without: Sequence[Path] = (),
    former: Mapping[ShotKey, Path] | None = None,
) -> FoundFiles:
    """Look for the photographs that were taken. logs: by the number of the flight; folders: searched with all below them.

    without: folders that are left out below those, such as the report that is replaced. former: the photographs of that
    report, which count where no other file does, or where it is not known which one.
    Raises `ConfigError` for a folder that is too large to be one of photographs.
    """
    found: dict[ShotKey, _Found] = {}
    below = _Below(folders, without)
    beside = {folder: [*_tagged_in(folder), *_tagged_in(folder / BESIDE)] for folder in {log.parent for log in logs}}
    for shot in shots:
        if shot.taken:
            folder = logs[shot.flight].parent
            known = [*beside[folder], *below.tagged(shot.capture)]
            exact = [path for path, tags in known if _is_of(tags, shot)]
            found[shot.key] = _Found(exact[:1]) if exact else _by_name(shot, folder, folders, below)
    kept = {key: path for key, path in (former or {}).items() if _is_file(path)}
    _divide(found, kept)
    uses = _claims(found)
    paths, missing, nameless = {}, [], []
    for shot in shots:
        if not shot.taken:
            continue
        capture, (there, refused) = shot.capture, found[shot.key]
        if len(there) == 1 and len(uses[there[0].resolve()]) == 1:
            paths[shot.key] = there[0]
        elif shot.key in kept:
            paths[shot.key] = kept[shot.key]
        elif not there and not capture.file:
            nameless.append(capture.id)
        else:
            missing.append(f"{photograph_name(capture)}: {capture.file}: {_why(there, refused)}")
    if nameless:
        ids = f"{nameless[0]}" if len(nameless) == 1 else f"{nameless[0]} to {nameless[-1]}"
        line = (
            f"{len(nameless)} of the photographs {ids}: the camera did not say where it stored them; tag its pictures"
        )
        missing.insert(0, f"{line} (companion photographs tag)")
    return FoundFiles(paths, missing, sum(shot.taken for shot in shots) - len(paths))


def _claims(found: Mapping[ShotKey, _Found]) -> dict[Path, list[ShotKey]]:
    """The photographs that have one file each, by that file."""
    claims: dict[Path, list[ShotKey]] = {}
    for key, (paths, _) in found.items():
        if len(paths) == 1:
            claims.setdefault(paths[0].resolve(), []).append(key)
    return claims


def _divide(found: dict[ShotKey, _Found], kept: Mapping[ShotKey, Path]) -> None:
    """Decide whose a file is that several photographs have, where the former report knows them.

    It is the one's whose photograph there was this file; else that of the only one which the former report lacks: a card
    that was used again, with the same names.
    """
    for path, keys in _claims(found).items():
        if len(keys) == 1:
            continue
        lacked = [key for key in keys if key not in kept]
        owner = next((key for key in keys if key in kept and same_bytes(kept[key], path)), None)
        if owner is None and len(lacked) == 1 < len(keys):
            owner = lacked[0]
        if owner is not None:
            for key in keys:
                if key != owner:
                    found[key] = _Found([], f"{path} is another photograph")


def photograph_name(capture: Capture) -> str:
    """Names a photograph in a message."""
    return f"photograph {capture.id} ({capture.item} row {capture.row} column {capture.column})"


def same_bytes(a: Path, b: Path) -> bool:
    """Whether two files that can be read have the same content."""
    try:
        return os.path.samefile(a, b) or (a.stat().st_size == b.stat().st_size and filecmp.cmp(a, b, shallow=False))
    except OSError:
        return False


def _why(there: Sequence[Path], refused: str) -> str:
    if not there:
        return f"not found: {refused}" if refused else "not found"
    if len(there) == 1:
        return f"{there[0]} would be another photograph, too; name the folder of each flight, or tag its pictures"
    return f"found {len(there)} times, as {there[0]} and {there[1]}"


def _by_name(shot: Shot, folder: Path, folders: Sequence[Path], below: "_Below") -> _Found:
    """Where the log says; else of the files beside the log and below the other folders those that fit its path best.

    Several are as good: it is not known which one is the photograph. A relative path counts from the log, not from where the
    command runs. A path that leads out of the folder of the log and of those named by the user is not followed.
    """
    if not shot.capture.file:
        return _Found([])
    named, refused = Path(shot.capture.file), ""
    there: list[Path] = []
    for path in (folder / named, folder / named.name, folder / BESIDE / named.name):
        if not _is_file(path):
            continue
        if _is_below(path, [folder, *folders]):
            there.append(path)
        else:
            refused = f"{path} is neither below the folder of the log nor below one that --photographs names"
    candidates = list({path.resolve(): path for path in [*below.named(named.name), *there]}.values())
    fitting = []
    for path in candidates:
        if why := _contradiction(path, shot):
            refused = f"{path} {why}"
        else:
            fitting.append(path)
    if named.is_absolute() and any(path.resolve() == named.resolve() for path in fitting):
        return _Found([named])
    ends = (
        same
        for length in range(len(named.parts), 1, -1)
        if (same := [path for path in fitting if path.parts[-length:] == named.parts[-length:]])
    )
    return _Found(next(ends, fitting), refused)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _is_below(path: Path, folders: Iterable[Path]) -> bool:
    """Whether a file lies below one of the folders, its links followed."""
    place = path.resolve()
    return any(place.is_relative_to(folder.resolve()) for folder in folders)


def _contradiction(path: Path, shot: Shot) -> str:
    """What says that a file is not a photograph although it has its name; "" nothing."""
    judged = None if (tags := _tags_in(path.with_suffix(TAGS))) is None else _is_of(tags, shot)
    if judged is not None:
        return "" if judged else "has the tags of another photograph"
    try:
        taken = exif.taken(path)
    except ImportError:  # without Pillow times are not compared
        return ""
    if taken is None or shot.utc_s is None:
        return ""
    limit_s = CLOCK_WRONG_S if taken.has_offset else CLOCK_WRONG_S + ZONES_S
    if abs(taken.clock_s - shot.utc_s) <= limit_s:
        return ""
    hours = (taken.clock_s - shot.utc_s) / 3600
    when = f"{abs(hours):.1f} h {'after' if hours > 0 else 'before'} this one"
    return f"was taken {when} by its EXIF data; where the camera's clock is wrong, tag its pictures"


def _is_of(tags: _Tags, shot: Shot) -> bool | None:
    """Whether tags are those of a photograph; None: they do not say it."""
    capture = shot.capture
    if (tags.id, tags.attempt) != (capture.id, capture.attempt):
        return False
    if tags.pose_source == "flight" and tags.p_WC is not None:
        return bool(np.allclose(tags.p_WC, capture.p_WC, rtol=0.0, atol=SAME_M))
    if tags.utc is None or shot.utc_s is None:
        return None
    try:
        same = abs(datetime.fromisoformat(tags.utc).timestamp() - shot.utc_s) < SAME_S
    except ValueError:
        return None
    # Tags of the flight itself have the clock of that moment, which may have been set since.
    return same if same or tags.pose_source != "flight" else None


Tagged = tuple[Path, _Tags]


def _tagged_in(folder: Path) -> list[Tagged]:
    """The pictures of a folder with their tags."""
    try:
        names = sorted(folder.iterdir())
    except OSError:
        return []
    return _tagged(names)


def _tagged(files: Sequence[Path]) -> list[Tagged]:
    pictures = {path.with_suffix(""): path for path in files if path.suffix.lower() in (".jpg", ".jpeg")}
    found = []
    for path in files:
        if path.suffix != TAGS or (picture := pictures.get(path.with_suffix(""))) is None:
            continue
        if (tags := _tags_in(path)) is not None:
            found.append((picture, tags))
    return found


def _tags_in(path: Path) -> _Tags | None:
    """The tags in a file; None: there is none, or it holds none."""
    try:
        if path.stat().st_size <= TAGS_MAX_BYTES:
            return msgspec.json.decode(path.read_bytes(), type=_Tags)
    except (OSError, ValueError, msgspec.MsgspecError):
        pass
    return None


class _Below:
    """Finds files below folders by their tags, or by name."""

    def __init__(self, folders: Sequence[Path], without: Sequence[Path]) -> None:
        self._by_name: dict[str, list[Path]] = {}
        files: list[Path] = []
        left_out = {folder.resolve() for folder in without}
        for folder in folders:
            for where, below, names in os.walk(folder):
                below[:] = [name for name in below if (Path(where) / name).resolve() not in left_out]
                files += [Path(where) / name for name in names]
                if len(files) > SEARCH_MAX:
                    raise ConfigError(f"{folder}: more than {SEARCH_MAX} files: name the folder of the photographs")
        for file in files:
            self._by_name.setdefault(file.name.lower(), []).append(file)
        self._tagged: dict[int, list[Tagged]] = {}
        for picture, tags in _tagged(files):
            self._tagged.setdefault(tags.id, []).append((picture, tags))

    def tagged(self, capture: Capture) -> list[Tagged]:
        """Pictures whose tags have the same number of the plan."""
        return self._tagged.get(capture.id, [])

    def named(self, name: str) -> list[Path]:
        """Files of this name, in upper or lower case."""
        return self._by_name.get(name.lower(), [])
