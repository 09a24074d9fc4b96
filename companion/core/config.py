"""Strict, typed configuration: TOML files into frozen structs.

Unknown, missing and out-of-range keys stop the start with one line that names the file, the key, what is allowed
and the unit. There are no silent defaults: a key that a file may leave out says so in its type (``| None``).
"""

import math
import tomllib
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from companion.core.errors import UserError

T = TypeVar("T")


class ConfigError(UserError):
    """A configuration file cannot be used; the message is one line for the user."""


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every table of a configuration file."""


def number(low: float, high: float, unit: str) -> Meta:
    """Allowed range and unit of a number, e.g. ``Annotated[float, number(0.05, 2.0, "s")]``."""
    return Meta(ge=low, le=high, description=f"{low:g} to {high:g} {unit}".rstrip())


def integer(low: int, high: int, unit: str = "") -> Meta:
    """Allowed range and unit of a whole number, e.g. ``Annotated[int, integer(1, 16)]``."""
    return Meta(ge=low, le=high, description=f"whole number, {low} to {high} {unit}".rstrip())


def load(path: str | Path, schema: type[T]) -> T:
    """Read a TOML file as `schema`; raises `ConfigError` with one line if it cannot be used."""
    return parse(read_layered(path), schema, str(path))


def read_layered(path: str | Path) -> dict:
    """The tables of a file laid over those of the file it names as its ``base``, if it does; raises `ConfigError`.

    A key of the file replaces that of its base, keys it does not have are the base's, table by table; a list is one
    value. A base has no base of its own.
    """
    own = read_toml(path)
    name = own.pop("base", None)
    if name is None:
        return own
    if not isinstance(name, str):
        raise ConfigError(f"{path}: base = {name!r}: must be the name of a file")
    base = read_toml(Path(path).parent / name)
    if "base" in base:
        raise ConfigError(
            f"{path}: base = {name!r}: that file is laid over {base['base']!r} itself, and a base has no base of its "
            f"own: name {base['base']!r} as base and copy the keys of {name!r}"
        )
    return _laid_over(base, own)


def _laid_over(base: dict, own: dict) -> dict:
    both = {k: _laid_over(base[k], v) for k, v in own.items() if isinstance(v, dict) and isinstance(base.get(k), dict)}
    return base | own | both


def read_toml(path: str | Path) -> dict:
    """The raw tables of a TOML file; raises `ConfigError` if it cannot be read."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def parse(tables: dict, schema: type[T], where: str) -> T:
    """Check plain tables against `schema`; `where` names the source in errors."""
    if bad := _not_finite(tables, ""):
        raise ConfigError(f"{where}: {bad}: must be a finite number")
    try:
        return msgspec.convert(tables, schema)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {_explain(str(error), schema, tables)}") from None


def _not_finite(value: Any, key: str) -> str | None:
    if isinstance(value, dict):
        items = [(f"{key}.{k}" if key else k, v) for k, v in value.items()]
    elif isinstance(value, list):
        items = [(f"{key}[{i}]", v) for i, v in enumerate(value)]
    else:
        return key if isinstance(value, float) and not math.isfinite(value) else None
    return next((bad for k, v in items if (bad := _not_finite(v, k))), None)


def _explain(message: str, schema: type, tables: dict) -> str:
    """msgspec's message with the key in front and the allowed range behind."""
    text, _, path = message.partition(" - at `")
    key = path.rstrip("`").removeprefix("$").removeprefix(".")
    if text.startswith(("Object contains unknown field", "Object missing required field")):
        field = text.split("`")[1]
        kind = "unknown key" if "unknown" in text else "missing key"
        full = f"{key}.{field}" if key else field
        allowed = "" if "unknown" in text else _allowed(schema, full, tables)
        return f"{full}: {kind}{allowed}"
    value = _lookup(tables, key)
    return f"{key} = {value!r}: {text[0].lower()}{text[1:]}{_allowed(schema, key, tables)}"


def _steps(key: str) -> list[str]:
    return [part for part in key.replace("[", ".[").split(".") if part]


def _lookup(tables: Any, key: str) -> Any:
    for step in _steps(key):
        try:
            tables = tables[int(step[1:-1])] if step.startswith("[") else tables[step]
        except (KeyError, IndexError, TypeError, ValueError):
            return "?"
    return tables


def _allowed(schema: Any, key: str, tables: Any) -> str:
    """The description of a key's type, in brackets, or an empty string. tables tell which of several kinds is meant."""
    kind, description, above = schema, None, ""
    for step in _steps(key):
        members = _members(kind)
        if tags := {m.__struct_config__.tag: m for m in members if hasattr(m, "__struct_config__")}:
            tag_field = members[0].__struct_config__.tag_field
            if step == tag_field and tag_field is not None:
                return f" (allowed: {', '.join(str(tag) for tag in tags)})"
            kind = tags.get(_lookup(tables, f"{above}.{tag_field}"), members[0])
        else:
            kind = members[0]
        above = f"{above}{'' if step.startswith('[') else '.'}{step}"
        if step.startswith("["):
            arguments = get_args(kind)
            if not arguments:
                return ""
            index = int(step[1:-1]) if step[1:-1].isdigit() else 0
            kind = arguments[index] if index < len(arguments) and arguments[index] is not ... else arguments[0]
        else:
            try:
                kind = get_type_hints(kind, include_extras=True)[step]
            except (KeyError, TypeError):
                return ""
        description = next((m.description for m in getattr(kind, "__metadata__", ()) if m.description), None)
    return f" (allowed: {description})" if description else ""


def _members(kind: Any) -> list[Any]:
    """The bare types behind Annotated[...], A | B and ... | None; one if it is no union."""
    if hasattr(kind, "__metadata__"):
        kind = get_args(kind)[0]
    if get_origin(kind) not in (Union, UnionType):
        return [kind]
    return [member for argument in get_args(kind) if argument is not type(None) for member in _members(argument)]
