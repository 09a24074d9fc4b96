"""HTML pages that hold everything they show, from templates."""

from pathlib import Path

import jinja2


def page_environment(*folders: Path) -> jinja2.Environment:
    """Templates of this folder and of others, with the filters ``number`` and ``axes`` for figures that may be absent."""

    def number(value: float | None, scale: float = 1.0, digits: int = 1) -> str:
        return "–" if value is None else f"{value * scale:.{digits}f}"

    def axes(values: list[float | None] | None, scale: float = 1.0, digits: int = 1) -> str:
        return " / ".join(number(v, scale, digits) for v in values or [])

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, Path(__file__).parent]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = number
    environment.filters["axes"] = axes
    return environment
