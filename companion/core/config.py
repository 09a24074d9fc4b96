"""Strict, typed configuration: TOML files into frozen structs.

Unknown, missing and out-of-range keys stop the start with one line that names the file, the key, what is allowed
and the unit. There are no silent defaults: a key that a file may leave out says so in its type (``| None``).
"""

import math
import os
import re
import stat
import tomllib
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from companion.core.errors import UserError
from companion.core.suggestions import did_you_mean

T = TypeVar("T")
Tables = dict[str, Any]  # of a TOML file

SIZE_MAX_BYTES = 1_000_000  # the largest bundled file has 6 kB
NESTING_MAX = 64  # parts of a dotted key; the reader's time and memory grow with the square of this number
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # marks at the beginning of a file
SHOWN_MAX = 60  # characters of a value in an error message


class ConfigError(UserError):
    """A configuration file cannot be used; the message is one line for the user."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every table of a configuration file."""

    def contradiction(self) -> str:
        """A contradiction between two keys, beginning with the key; "" if none. `load` asks the table of a whole file."""
        return ""


def number(low: float, high: float, unit: str) -> Meta:
    """Allowed range and unit of a number, e.g. ``Annotated[float, number(0.05, 2.0, "s")]``."""
    return Meta(ge=low, le=high, description=f"{low:g} to {high:g} {unit}".rstrip())


def integer(low: int, high: int, unit: str = "") -> Meta:
    """Allowed range and unit of a whole number, e.g. ``Annotated[int, integer(1, 16)]``."""
    return Meta(ge=low, le=high, description=f"whole number, {low} to {high} {unit}".rstrip())


UNIT_TOLERANCE = 0.01  # of the length of a quaternion in a file, which may have few digits


def check_unit_quaternion(key: str, q: Sequence[float]) -> None:
    """Raise ValueError, which becomes a `ConfigError`, when a quaternion of a table has not the length 1."""
    length = math.sqrt(sum(number * number for number in q))
    if abs(length - 1.0) > UNIT_TOLERANCE:
        raise ValueError(f"{key} = {[float(number) for number in q]}: a rotation needs length 1, this has {length:.3g}")


def load(path: str | Path, schema: type[T], changes: Tables | None = None) -> T:
    """Read a TOML file as `schema`; raises `ConfigError` with one line if it cannot be used.

    changes: tables that are laid over those of the file.
    """
    tables = read_layered(path)
    made = parse(tables if changes is None else _laid_over(tables, changes), schema, str(path))
    if isinstance(made, Section) and (problem := made.contradiction()):
        raise ConfigError(f"{path}: {problem}")
    return made


def read_layered(path: str | Path) -> Tables:
    """The tables of a file laid over those of the file that its key ``base`` names, if any; raises `ConfigError`.

    A key of the file replaces the same key of its base; all other keys are the base's, table by table. A list is one
    value. A base has no base of its own.
    """
    own = read_toml(path)
    name = own.pop("base", None)
    if name is None:
        return own
    if not isinstance(name, str):
        raise ConfigError(f"{path}: base = {_shown(name)}: must be the name of a file")
    base = read_toml(Path(path).parent / name)
    if "base" in base:
        raise ConfigError(
            f"{path}: base = {name!r}: that file has itself the base {base['base']!r}, and a base has no base of its "
            f"own: name {base['base']!r} as base and copy the keys of {name!r}"
        )
    try:
        return _laid_over(base, own)
    except RecursionError:
        raise _nested_too_deeply(path) from None


def _laid_over(base: Tables, own: Tables) -> Tables:
    both = {k: _laid_over(base[k], v) for k, v in own.items() if isinstance(v, dict) and isinstance(base.get(k), dict)}
    return base | own | both


def read_toml(path: str | Path) -> Tables:
    """The raw tables of a TOML file; raises `ConfigError` if it cannot be read or is larger than any sensible one."""
    data = read_file(path, SIZE_MAX_BYTES)
    if data is None:
        raise ConfigError(f"{path}: larger than {SIZE_MAX_BYTES / 1e6:g} MB: this is not a configuration file")
    if data.startswith(_UTF_16):
        raise ConfigError(f"{path}: cannot be read: its text is UTF-16: save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")  # with or without the mark that some editors put in front
        if _longest_key(text) > NESTING_MAX:
            raise _nested_too_deeply(path)
        tables = tomllib.loads(text)
        if key := _too_large(tables, ""):
            raise ConfigError(f"{path}: {key}: the number is too large: TOML has 64 bits for a whole number")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {_one_line(str(error))}") from None
    except RecursionError:
        raise _nested_too_deeply(path) from None
    except ValueError:  # of Python's own limit of the digits of a whole number
        raise ConfigError(f"{path}: not valid TOML: a number has too many digits") from None
    return tables


def read_file(path: str | Path, size_max_bytes: int) -> bytes | None:
    """The content of a file, None if it is larger; raises `ConfigError` if it cannot be read or is no regular file.

    A pipe or a device is never waited for: it may have no end, or no beginning.
    """
    try:
        if problem := _irregular(os.stat(path).st_mode):
            raise ConfigError(f"{path}: cannot be read: {problem}")
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if problem := _irregular(os.fstat(file.fileno()).st_mode):  # another file since then
                raise ConfigError(f"{path}: cannot be read: {problem}")
            data = file.read(size_max_bytes + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    except ValueError:
        raise ConfigError(f"{str(path)!r}: not the name of a file: it has a NUL byte") from None
    return None if len(data) > size_max_bytes else data


def _irregular(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "is a directory"
    return "" if stat.S_ISREG(mode) else "not a regular file, but a device, a pipe or a socket"


def _nested_too_deeply(path: str | Path) -> ConfigError:
    return ConfigError(f"{path}: nested too deeply: this is not a configuration file")


def _longest_key(text: str) -> int:
    """Parts of the longest dotted key of a TOML text; only lines with many dots before the value are counted."""
    heads = (line.split("=", 1)[0] for line in text.splitlines() if not line.lstrip().startswith("#"))
    dotted = (head for head in heads if head.count(".") > NESTING_MAX and "," not in head)
    return max((1 + len(re.findall(r"(?<=[\w\"'-])[ \t]*\.(?=[ \t]*[\w\"'-])", head)) for head in dotted), default=0)


def parse(tables: Tables, schema: type[T], where: str) -> T:
    """Check plain tables against `schema`; `where` names the source in errors."""
    try:
        if bad := _not_finite(tables, ""):
            raise ConfigError(f"{where}: {bad}: must be a finite number")
        return msgspec.convert(tables, schema)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {_one_line(_explain(str(error), schema, tables))}") from None
    except RecursionError:
        raise _nested_too_deeply(where) from None


def _too_large(value: Any, key: str) -> str | None:
    if isinstance(value, int):
        return key if not -(2**63) <= value < 2**63 else None
    return next((bad for k, v in _items(value, key) if (bad := _too_large(v, k))), None)


def _not_finite(value: Any, key: str) -> str | None:
    if isinstance(value, float):
        return None if math.isfinite(value) else key
    return next((bad for k, v in _items(value, key) if (bad := _not_finite(v, k))), None)


def _items(value: Any, key: str) -> list[tuple[str, Any]]:
    """What a table or a list holds, with full keys; nothing of any other value."""
    if isinstance(value, dict):
        return [(f"{key}.{k}" if key else k, v) for k, v in value.items()]
    return [(f"{key}[{i}]", v) for i, v in enumerate(value)] if isinstance(value, list) else []


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _shown(value: Any) -> str:
    """A value as Python writes it, cut to `SHOWN_MAX` characters."""
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX - 1]}…"


def _explain(message: str, schema: type, tables: Tables) -> str:
    """msgspec's message with the key in front, and behind it the allowed range or values and the nearest name."""
    text, _, path = message.partition(" - at `")
    key = path.rstrip("`").removeprefix("$").removeprefix(".")
    if text.startswith(("Object contains unknown field", "Object missing required field")):
        field = text.split("`")[1]
        full = f"{key}.{field}" if key else field
        if "missing" in text:
            return f"{full}: missing key{_allowed(schema, full, tables)}"
        known = _keys(schema, key, tables)
        unused = [name for name in known if name not in _table(tables, key)]
        near = did_you_mean(field, unused) or _belongs(schema, field, tables) or did_you_mean(field, known)
        return f"{full}: unknown key{near}"
    value = _lookup(tables, key)
    if isinstance(value, dict) and not text.startswith(("Expected", "Invalid")):  # of a table's own check, with its key
        return f"{key}.{text}" if key else text
    problem = f"{key} = {_shown(value)}: " if key else ""
    if choices := _choices(schema, key, tables):
        near = did_you_mean(value, choices) if isinstance(value, str) else ""
        return f"{problem}invalid value{near} (allowed: {', '.join(choices)})"
    return f"{problem}{text[0].lower()}{text[1:]}{_allowed(schema, key, tables)}"


def _steps(key: str) -> list[str]:
    return [part for part in key.replace("[", ".[").split(".") if part]


def _lookup(tables: Any, key: str) -> Any:
    for step in _steps(key):
        try:
            tables = tables[int(step[1:-1])] if step.startswith("[") else tables[step]
        except (KeyError, IndexError, TypeError, ValueError):
            return "?"
    return tables


def _table(tables: Tables, key: str) -> Tables:
    value = _lookup(tables, key)
    return value if isinstance(value, dict) else {}


def _resolve(schema: Any, key: str, tables: Tables) -> tuple[Any, str | None]:
    """(type of a key, its description); (None, None) for a key that the schema does not have.

    tables: they decide which of several kinds of table is meant.
    """
    kind, description, above = schema, None, ""
    for step in _steps(key):
        members = _members(kind)
        tags, tag_field = _tags(members)
        if tags:
            if step == tag_field:
                return Literal[tuple(tags)], None
            kind = tags.get(_lookup(tables, f"{above}.{tag_field}"), members[0])
        else:
            kind = members[0]
        above = f"{above}{'' if step.startswith('[') else '.'}{step}"
        if step.startswith("["):
            arguments = get_args(kind)
            if not arguments:
                return None, None
            index = int(step[1:-1]) if step[1:-1].isdigit() else 0
            kind = arguments[index] if index < len(arguments) and arguments[index] is not ... else arguments[0]
        else:
            try:
                kind = get_type_hints(kind, include_extras=True)[_field(kind, step)]
            except (KeyError, TypeError):
                return None, None
        description = next((m.description for m in getattr(kind, "__metadata__", ()) if m.description), None)
    return kind, description


def _field(kind: Any, key: str) -> str:
    """Name of the attribute that holds a key; they differ where the key is a keyword of Python."""
    fields: tuple[str, ...] = getattr(kind, "__struct_fields__", ())
    keys: tuple[str, ...] = getattr(kind, "__struct_encode_fields__", ())
    return dict(zip(keys, fields, strict=True)).get(key, key)


def _tags(members: list[Any]) -> tuple[dict[str, Any], str | None]:
    """The tables among which a key chooses, by their tags, and the name of that key."""
    structs = [member for member in members if hasattr(member, "__struct_config__")]
    tags = {m.__struct_config__.tag: m for m in structs if m.__struct_config__.tag is not None}
    return tags, structs[0].__struct_config__.tag_field if tags else None


def _allowed(schema: Any, key: str, tables: Tables) -> str:
    """The allowed range or values of a key, in brackets, or an empty string."""
    kind, description = _resolve(schema, key, tables)
    choices = _values(kind)
    return f" (allowed: {', '.join(choices) or description})" if choices or description else ""


def _choices(schema: Any, key: str, tables: Tables) -> list[str]:
    """The allowed values of a key that takes one of a few, else none."""
    return _values(_resolve(schema, key, tables)[0])


def _values(kind: Any) -> list[str]:
    """The members of a `Literal` or an enumeration; none for any other type."""
    found: list[str] = []
    for member in _members(kind):
        if get_origin(member) is Literal:
            found += [str(value) for value in get_args(member)]
        elif isinstance(member, type) and issubclass(member, Enum):
            found += [str(value.value) for value in member]
        else:
            return []
    return found


def _keys(schema: Any, key: str, tables: Tables) -> list[str]:
    """The keys that a table may have."""
    members = _members(_resolve(schema, key, tables)[0])
    tags, tag_field = _tags(members)
    chosen = tags.get(str(_table(tables, key).get(tag_field or "")), members[0]) if tags else members[0]
    return [*getattr(chosen, "__struct_encode_fields__", ()), *([tag_field] if tag_field is not None else [])]


def _belongs(schema: Any, field: str, tables: Tables) -> str:
    """In which table of the file a key belongs that stands in another one, or an empty string."""
    found = [name for name in _keys(schema, "", tables) if field in _keys(schema, name, tables)]
    return f", it belongs in [{found[0]}]" if len(found) == 1 else ""


def _members(kind: Any) -> list[Any]:
    """The bare types behind Annotated[...], A | B and ... | None; one if it is no union."""
    if hasattr(kind, "__metadata__"):
        kind = get_args(kind)[0]
    if get_origin(kind) not in (Union, UnionType):
        return [kind]
    return [member for argument in get_args(kind) if argument is not type(None) for member in _members(argument)]
