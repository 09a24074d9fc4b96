"""Small pictures as SVG text, for a page that needs no network and no plotting library."""

import math
from html import escape
from typing import NamedTuple

INK, QUIET, LINE = "#1f2933", "#66727f", "#e4e7eb"
BLUE, RED, AMBER = "#3b6fb3", "#b23b3b", "#c98a1b"
BINS = 24


class Frame(NamedTuple):
    """The place of a chart and its axes, in pixels and units."""

    width: int
    height: int
    left: int
    bottom: int
    x: tuple[float, float]
    y: tuple[float, float]

    def px(self, x: float) -> float:
        low, high = self.x
        return self.left + (x - low) / (high - low) * (self.width - self.left - 12)

    def py(self, y: float) -> float:
        low, high = self.y
        return self.height - self.bottom - (y - low) / (high - low) * (self.height - self.bottom - 12)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers between two numbers."""
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(s * power for s in (1.0, 2.0, 5.0, 10.0) if s * power >= raw * 0.999)
    if math.floor(high / step) - math.ceil(low / step) < 2:
        step /= 2.0
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def histogram(values: list[float], unit: str, marks: list[float]) -> str:
    """Counts over the values; outliers (`reach`) are in the first or last bar. marks: values with a vertical line."""
    low, high = reach(values)
    values = [min(max(value, low), high) for value in values]
    counts = [0] * BINS
    for value in values:
        counts[min(BINS - 1, int((value - low) / (high - low) * BINS))] += 1
    frame = Frame(330, 170, 38, 38, (low, high), (0.0, 1.1 * max(counts)))
    width = (high - low) / BINS
    parts = _axes(frame, unit, "flights", whole=True)
    for place, count in enumerate(counts):
        if count:
            x0, x1 = frame.px(low + place * width), frame.px(low + (place + 1) * width)
            y = frame.py(count)
            parts.append(_rectangle(x0 + 0.5, y, x1 - x0 - 1.0, frame.py(0.0) - y, BLUE))
    parts += [_vertical(frame, mark) for mark in marks]
    return _svg(frame, parts)


def scatter(points: list[tuple[float, float, bool]], x_name: str, y_name: str) -> str:
    """Points (x, y, marked); outliers (`reach`) are on the edge."""
    low, high = reach([p[1] for p in points])
    frame = Frame(330, 220, 52, 40, _spread([p[0] for p in points]), (low, high))
    points = [(x, min(max(y, low), high), marked) for x, y, marked in points]
    parts = _axes(frame, x_name, y_name)
    for x, y, marked in sorted(points, key=lambda p: p[2]):
        colour = RED if marked else BLUE
        parts.append(
            f'<circle cx="{frame.px(x):.1f}" cy="{frame.py(y):.1f}" r="2.6" fill="{colour}" fill-opacity="0.6"/>'
        )
    return _svg(frame, parts)


def shares(bins: list[tuple[float, float, int, int]], x_name: str) -> str:
    """Share of marked flights in each part of a field's range: (from, to, marked, all)."""
    top = max(marked / of for _, _, marked, of in bins if of) or 1.0
    frame = Frame(330, 220, 52, 40, (bins[0][0], bins[-1][1]), (0.0, 110.0 * top))
    parts = _axes(frame, x_name, "% of the flights")
    for low, high, marked, of in bins:
        if of:
            x0, x1, y = frame.px(low), frame.px(high), frame.py(100.0 * marked / of)
            parts.append(_rectangle(x0 + 1, y, x1 - x0 - 2, frame.py(0.0) - y, RED))
            parts.append(_text((x0 + x1) / 2, y - 3, f"{marked}/{of}", "middle", QUIET, 10))
    return _svg(frame, parts)


def reach(values: list[float]) -> tuple[float, float]:
    """The range that a chart shows: all values, but not those that are twice the spread of 90 % beyond that spread."""
    low, high = (sorted(values)[round(share * (len(values) - 1))] for share in (0.05, 0.95))
    inside = [v for v in values if low - 2.0 * (high - low) <= v <= high + 2.0 * (high - low)]
    return _spread(inside)


def _spread(values: list[float]) -> tuple[float, float]:
    """The range of values, never empty."""
    low, high = min(values), max(values)
    if high - low < 1e-12 * max(1.0, abs(low)):
        half = 0.5 * abs(low) or 0.5
        return low - half, high + half
    return low, high


def _axes(frame: Frame, x_name: str, y_name: str, whole: bool = False) -> list[str]:
    parts = []
    x_ticks, y_ticks = ticks(*frame.x, about=4), ticks(*frame.y, about=4)
    for value in y_ticks:
        if whole and value != int(value):
            continue
        y = frame.py(value)
        parts.append(f'<line x1="{frame.left}" x2="{frame.width - 12}" y1="{y:.1f}" y2="{y:.1f}" stroke="{LINE}"/>')
        parts.append(_text(frame.left - 5, y + 3.5, _shown(value), "end", QUIET, 11))
    base = frame.height - frame.bottom
    parts.append(f'<line x1="{frame.left}" x2="{frame.width - 12}" y1="{base}" y2="{base}" stroke="{QUIET}"/>')
    parts += [_text(frame.px(value), base + 14, _shown(value), "middle", QUIET, 11) for value in x_ticks]
    parts.append(_text((frame.left + frame.width - 12) / 2, frame.height - 6, x_name, "middle", INK, 12))
    parts.append(
        f'<text transform="translate(11 {(base + 12) / 2:.0f}) rotate(-90)" text-anchor="middle" font-size="11" '
        f'fill="{QUIET}">{escape(y_name)}</text>'
    )
    return parts


def _shown(value: float) -> str:
    return f"{value:.4g}".replace("-", "−") if value else "0"


def _vertical(frame: Frame, x: float) -> str:
    place = frame.px(x)
    return (
        f'<line x1="{place:.1f}" x2="{place:.1f}" y1="12" y2="{frame.height - frame.bottom}" stroke="{AMBER}" '
        f'stroke-dasharray="4 3"/>'
    )


def _rectangle(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height:.1f}" fill="{colour}"/>'


def _text(x: float, y: float, text: str, anchor: str, colour: str, size: int) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">{escape(text)}</text>'
    )


def _svg(frame: Frame, parts: list[str]) -> str:
    return f'<svg viewBox="0 0 {frame.width} {frame.height}" role="img">{"".join(parts)}</svg>'
