"""The result of a calibration command: refused data, the schema of ``--json FILE``, files written whole or not at all.

The schema: ``schema`` (1), ``command``, ``date``, ``inputs`` (data files), ``values`` (dotted key of the vehicle file →
value), ``merit`` (name with its unit → number: how good the values are), ``warnings`` (sentences) and ``details`` (the
command's own). What is not a finite number is null.
"""

import json
import math
import os
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

from companion.core.config import ConfigError
from companion.core.disk import put_in_place

SCHEMA = 1

Result = dict[str, Any]  # in the schema above


class DataError(ConfigError):
    """Measured data cannot be used; the message is one line for the user that names the file."""


def refuse_twice(files: Iterable[Path]) -> None:
    """Raise `DataError` when data are among the files twice: they would count as two independent measurements."""
    from companion.recording.same_flight import repetition

    if line := repetition(files):
        raise DataError(line)


def result(
    command: str,
    inputs: Iterable[str | Path],
    values: Mapping[str, Any],
    merit: Mapping[str, Any],
    warnings: Iterable[str] = (),
    details: Mapping[str, Any] | None = None,
) -> Result:
    """The result of a calibration command in the common schema, of plain JSON types only."""
    content: Result = plain(
        {
            "schema": SCHEMA,
            "command": command,
            "date": date.today().isoformat(),
            "inputs": [str(name) for name in inputs],
            "values": dict(values),
            "merit": dict(merit),
            "warnings": list(warnings),
            "details": dict(details or {}),
        }
    )
    return content


def write_json(path: str | Path, content: Mapping[str, Any]) -> None:
    """Write a result whole or not at all; makes the folder; "-": to stdout. Raises `ConfigError` if it cannot be written."""
    if str(path) == "-":
        print(json.dumps(plain(content), indent=2, ensure_ascii=False))
        return
    write_whole(path, json.dumps(plain(content), indent=2, ensure_ascii=False) + "\n")


def plain(value: Any) -> Any:
    """Values of numpy and Python as those of JSON: arrays become lists, numbers that are not finite become None."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, list | tuple | set):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)


def write_whole(path: str | Path, text: str) -> None:
    """Replace a file's text in one step (a new file beside it, then a rename); its mode and a link to it stay.

    Makes the folder. Raises `ConfigError` with one line; the old content is then untouched.
    """
    target = Path(path).resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        before = target.stat() if target.exists() else None
        if before is not None and not os.access(target, os.W_OK):
            raise PermissionError("write-protected")
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with open(handle, "w", encoding="utf-8", newline="") as file:
                file.write(text)
            os.chmod(name, before.st_mode & 0o7777 if before else 0o666 & ~_umask())
            if before is not None:
                with suppress(OSError):  # only root may change the owner
                    os.chown(name, before.st_uid, before.st_gid)
            put_in_place(Path(name), target)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(name)
            raise
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
