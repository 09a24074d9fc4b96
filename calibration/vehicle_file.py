"""Writes calibrated numbers into a vehicle file, in place: comments, order and layout stay, a diff is shown first.

A note at the end of the comment of each number, in square brackets, says where it comes from: date, data file, figure
of merit. The next calibration replaces that note and nothing else of the comment. A key that the file has from its
``base`` is written into the file itself.
"""

import difflib
import re
import tomllib
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import click
import tomlkit
from tomlkit.container import Container, OutOfOrderTableProxy
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import Array, InlineTable, Item, Table, Whitespace

from calibration.results import plain, write_whole
from companion.core.config import ConfigError, parse, read_layered, read_toml
from companion.core.vehicle import Vehicle

COMMENT_COLUMN = 30  # of comments in the vehicle files that come with the stack
DIGITS = 8  # significant, of a number that is written
# Written by an earlier calibration: "date data file: figure of merit", and what `calibrate thrust` and `calibrate map` write
# without a figure. Other brackets are a person's.
_OWN_NOTE = re.compile(
    r"\s*\[\d{4}-\d\d-\d\d (?:[^\]]+: [^\]]*|\d+ hovers flown|calibrate map [^\]]*)\]\s*$",
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d\b")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\]]+")  # not allowed in a TOML comment, or the end of the note


@dataclass(frozen=True)
class Change:
    """One number of a vehicle file and where it comes from."""

    key: str  # dotted, e.g. "attitude.roll.time_constant_s"
    value: Any  # float, int, str, or a list of numbers; numpy's types, too
    note: str  # "data file: figure of merit"; today's date is put in front if it does not begin with one


@dataclass(frozen=True)
class Proposal:
    """The file's text before and after, already checked; nothing is written until `apply`."""

    path: Path
    before: str
    after: str
    replaced: tuple[str, ...] = ()  # one sentence for each number that was measured from other data

    @property
    def diff(self) -> str:
        """Unified diff; empty if nothing changes."""
        lines = difflib.unified_diff(
            self.before.splitlines(), self.after.splitlines(), str(self.path), f"{self.path} (proposed)", lineterm=""
        )
        return "\n".join(lines)

    def apply(self) -> None:
        """Write the file in one step; raises `ConfigError` if it was changed since, or cannot be written."""
        if _read(self.path) != self.before:
            raise ConfigError(
                f"{self.path}: another program changed it since it was read; nothing written: run the command again"
            )
        write_whole(self.path, self.after)


def propose(path: str | Path, changes: Sequence[Change]) -> Proposal:
    """The file with the changes; raises `ConfigError` if it would not be a valid vehicle file any more."""
    path = Path(path)
    own, layered = read_toml(path), read_layered(path)
    before = _read(path)
    replaced = []
    try:
        document = tomlkit.parse(before.removeprefix("\ufeff"))
        for change in changes:
            old = _get(layered, change.key)
            value = _written(change.value, old)
            if (origin := _origin(document, change.key)) and _data_file(origin) != _data_file(bracketed(change.note)):
                replaced.append(f"{change.key}: {value} replaces {old}, measured by {origin.strip('[]')}")
            for tables in (own, layered):
                _put(tables, change.key, value)
            edit(document, change.key.split("."), value, bracketed(change.note))
        after = _tidy(tomlkit.dumps(document), before)
        if tomllib.loads(after) != own:
            raise ValueError("the editor does not support its layout: write the numbers by hand")
    except (TOMLKitError, tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be edited in place: {error}") from None
    if problem := parse(layered, Vehicle, str(path)).contradiction():
        raise ConfigError(f"{path}: nothing written: {problem}")
    return Proposal(path, before, after, tuple(replaced))


def confirm_and_write(
    path: str | Path, changes: Sequence[Change], yes: bool, ask: Callable[[str], bool] = click.confirm
) -> bool:
    """Show the diff, ask unless `yes`, write; prints what it did and returns whether the file was written.

    Raises `ConfigError` as `propose` and `Proposal.apply`.
    """
    proposal = propose(path, changes)
    colours = {"+": "green", "-": "red", "@": "cyan"}
    for line in proposal.diff.splitlines():
        click.echo(click.style(line, fg=colours.get(line[:1])))
    for sentence in proposal.replaced:
        click.echo(sentence)
    try:
        agreed = yes or ask(f"Write this into {path}?")
    except click.Abort:  # no terminal to ask
        click.echo()
        agreed = False
    if not agreed:
        click.echo(f"{path}: nothing written (--yes writes without asking)")
        return False
    proposal.apply()
    click.echo(f"{path}: {len(changes)} {'number' if len(changes) == 1 else 'numbers'} written")
    return True


def _read(path: Path) -> str:
    try:
        with open(path, encoding="utf-8", newline="") as file:  # line ends stay what they are
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None


def _written(value: Any, old: Any = None) -> Any:
    """The value as it will stand in the file: plain types, floats to `DIGITS` digits.

    old: the value before; a float does not become a whole number.
    """
    value = plain(value)
    if isinstance(value, list):
        floats = isinstance(old, list) and any(isinstance(item, float) for item in old)
        return [_written(item, 0.0 if floats else None) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and isinstance(old, float):
        return float(value)
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _get(tables: Any, key: str) -> Any:
    for step in key.split("."):
        tables = tables.get(step) if isinstance(tables, dict) else None
    return tables


def _origin(document: Any, key: str) -> str:
    """The note that a calibration left behind a key: "[date data file: figure of merit]"; "" without one."""
    *parents, name = key.split(".")
    table = document
    for step in parents:
        table = table.get(step) if isinstance(table, dict) else None
    if not isinstance(table, dict) or isinstance(table, InlineTable) or name not in table:
        return ""
    found = _OWN_NOTE.search(_item(table, name).trivia.comment)
    return found.group().strip() if found else ""


def _data_file(note: str) -> str:
    return note.strip("[]").partition(" ")[2].partition(":")[0]


def _tidy(after: str, before: str) -> str:
    """Keeps the line ends of the file, the number of them at its end, and adds no second blank line."""
    if not re.search(r"\n\s*\n\s*\n", before):
        after = re.sub(r"\n\n\n+", "\n\n", after)
    if not before.endswith("\n\n"):
        after = after.rstrip("\n") + "\n"
    dos = before.count("\r\n") == before.count("\n") > 0
    return re.sub("\r?\n", "\r\n", after) if dos else after


def bracketed(text: str) -> str:
    """A note "[date text]" that is allowed in a comment; without a date in the text, today's."""
    text = " ".join(_CONTROL.sub(" ", text).split())
    return f"[{text if _DATE.match(text) else f'{date.today().isoformat()} {text}'}]"


def _put(tables: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key of plain tables; raises KeyError where a part of it is not a table."""
    *parents, name = key.split(".")
    for step in parents:
        tables = tables.setdefault(step, {})
        if not isinstance(tables, dict):
            raise KeyError(f"{key}: '{step}' is not a table")
    tables[name] = deepcopy(value)


def edit(table: Any, steps: list[str], value: Any, note: str) -> None:
    """Set steps[-1] below `table`, keeping all around it, and put the note behind it."""
    name, *rest = steps
    if not rest:
        _set(table, name, value)
        _annotate(_item(table, name), name, note)
    elif name not in table:
        table.append(name, _new_table(rest, value, note))
        if not isinstance(table, tomlkit.TOMLDocument):  # another table follows it, or the end of the file
            new = table[name]
            for step in rest[:-1]:
                new = new[step]
            new.add(tomlkit.nl())
    elif isinstance(table[name], InlineTable):  # it cannot hold comments: the note goes behind it
        inner = table[name]
        for step in rest[:-1]:
            inner = inner[step]
        inner[rest[-1]] = value
        _annotate(_item(table, name), name, note)
    else:
        edit(table[name], rest, value, note)


def _new_table(steps: list[str], value: Any, note: str) -> Any:
    """A table that is not in the file yet: ``[a.b]`` without a line for ``[a]``."""
    name, *rest = steps
    table = tomlkit.table(is_super_table=bool(rest))
    if rest:
        table.append(name, _new_table(rest, value, note))
    else:
        table.append(name, value)
        _annotate(_item(table, name), name, note)
    return table


def _item(table: Any, name: str) -> Any:
    """The element with its comment; indexing gives a bare bool instead of a boolean's."""
    found = table[name]
    if isinstance(found, Item):
        return found
    if isinstance(table, OutOfOrderTableProxy):  # a table in several places of the file
        return table._internal_container.item(name)
    return (table if isinstance(table, Container) else table.value).item(name)


def _set(table: Any, name: str, value: Any) -> None:
    old = _item(table, name) if name in table else None
    if old is None:
        body = table.value.body if isinstance(table, Table) else []
        blank = body.pop() if body and isinstance(body[-1][1], Whitespace) else None  # it stays behind the last key
        table.append(name, value)
        if blank and not isinstance(body[-1][1], Whitespace):
            body.append(blank)
    elif old == value:
        return  # 0.40 stays 0.40
    elif isinstance(old, Array) and isinstance(value, list):  # element by element: comments between them stay
        for index in range(min(len(old), len(value))):
            old[index] = value[index]
        while len(old) > len(value):
            del old[-1]
        for item in value[len(old) :]:
            old.append(item)
    else:
        item = tomlkit.item(value)
        item.trivia.indent, item.trivia.trail = old.trivia.indent, old.trivia.trail
        item.trivia.comment, item.trivia.comment_ws = old.trivia.comment, old.trivia.comment_ws
        if old.trivia.comment:  # the comment stays in its column if there is room
            room = len(old.as_string()) + len(old.trivia.comment_ws) - len(item.as_string())
            item.trivia.comment_ws = " " * max(1, room)
        table[name] = item


def _annotate(item: Any, name: str, note: str) -> None:
    if not item.trivia.comment:
        width = len(f"{name} = {item.as_string().splitlines()[-1]}")
        item.trivia.comment_ws = " " * max(1, COMMENT_COLUMN - width)
    item.trivia.comment = with_note(item.trivia.comment, note)


def with_note(comment: str, note: str) -> str:
    """A comment ("" or with its "#") with the note at its end, in place of that of an earlier calibration."""
    kept = _OWN_NOTE.sub("", comment.removeprefix("#")).strip()
    return f"# {kept} {note}" if kept else f"# {note}"
