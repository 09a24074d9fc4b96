"""Where the photographs of an inspection are on the disk: beside the log, where it says, or below other folders.

A photograph that `companion photographs tag` has tagged is known by the pose in the file beside it, whatever its name is.
A name alone counts only where one file has it, and one photograph; of files with the same name the one with the longest
equal end of its path.
"""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from companion.core.config import ConfigError
from companion.core.messages import Capture
from companion.recording.inspection import Shot, ShotKey

SEARCH_MAX = 200_000  # files below a folder of photographs
TAGS, TAGS_MAX_BYTES = ".json", 20_000
SAME_M = 1e-6  # of a position that was written as text


class FoundFiles(NamedTuple):
    """Where the photographs of a report are."""

    paths: dict[ShotKey, Path]
    missing: list[str]  # one line each: photograph, file, reason; those without a name in one line
    not_found: int  # photographs


class _Tags(msgspec.Struct):
    """Of a tagged photograph, as far as it identifies one."""

    id: int
    attempt: int
    p_WC: tuple[float, float, float]


def find_files(
    shots: Sequence[Shot], logs: Sequence[Path], folders: Sequence[Path] = (), without: Sequence[Path] = ()
) -> FoundFiles:
    """Look for the photographs that were taken. logs: by the number of the flight; folders: searched with all below them.

    without: folders that are left out below those, such as the report that is replaced.
    Raises `ConfigError` for a folder that is too large to be one of photographs.
    """
    found: dict[ShotKey, list[Path]] = {}
    below, beside = _Below(folders, without), {folder: _tagged_in(folder) for folder in {log.parent for log in logs}}
    for shot in shots:
        if shot.taken:
            folder = logs[shot.flight].parent
            known = [*beside[folder], *below.tagged(shot.capture)]
            exact = [path for path, tags in known if _is_of(tags, shot.capture)]
            found[shot.key] = exact[:1] or _by_name(shot.capture, folder, below)
    uses = Counter(paths[0].resolve() for paths in found.values() if len(paths) == 1)
    paths, missing, nameless = {}, [], []
    for shot in shots:
        if not shot.taken:
            continue
        capture, there = shot.capture, found[shot.key]
        if len(there) == 1 and uses[there[0].resolve()] == 1:
            paths[shot.key] = there[0]
        elif not there and not capture.file:
            nameless.append(capture.id)
        else:
            missing.append(f"{photograph_name(capture)}: {capture.file}: {_why(there)}")
    if nameless:
        ids = f"{nameless[0]}" if len(nameless) == 1 else f"{nameless[0]} to {nameless[-1]}"
        line = (
            f"{len(nameless)} of the photographs {ids}: the camera did not say where it stored them; tag its pictures"
        )
        missing.insert(0, f"{line} (companion photographs tag)")
    return FoundFiles(paths, missing, sum(shot.taken for shot in shots) - len(paths))


def photograph_name(capture: Capture) -> str:
    """Names a photograph in a message."""
    return f"photograph {capture.id} ({capture.item} row {capture.row} column {capture.column})"


def _why(there: Sequence[Path]) -> str:
    if not there:
        return "not found"
    if len(there) == 1:
        return f"{there[0]} would be another photograph, too; name the folder of each flight, or tag its pictures"
    return f"found {len(there)} times, as {there[0]} and {there[1]}"


def _by_name(capture: Capture, folder: Path, below: "_Below") -> list[Path]:
    """Where the log says; else of the files beside the log and below the other folders those that fit its path best.

    Several are as good: it is not known which one is the photograph. A relative path counts from the log, not from where the
    command runs.
    """
    if not capture.file:
        return []
    named = Path(capture.file)
    if named.is_absolute() and _is_file(named):
        return [named]
    beside = [path for path in (folder / named, folder / named.name) if _is_file(path)]
    found = list({path.resolve(): path for path in [*below.named(named.name), *beside]}.values())
    return next(
        (
            same
            for length in range(len(named.parts), 1, -1)
            if (same := [path for path in found if path.parts[-length:] == named.parts[-length:]])
        ),
        found,
    )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _is_of(tags: _Tags, capture: Capture) -> bool:
    same = (tags.id, tags.attempt) == (capture.id, capture.attempt)
    return same and bool(np.allclose(tags.p_WC, capture.p_WC, rtol=0.0, atol=SAME_M))


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
        try:
            if path.stat().st_size <= TAGS_MAX_BYTES:
                found.append((picture, msgspec.json.decode(path.read_bytes(), type=_Tags)))
        except (OSError, msgspec.MsgspecError):
            continue
    return found


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
