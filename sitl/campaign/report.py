"""``report.html`` of a campaign: shares, causes, distributions, what explains them, the worst flights. One page without a network."""

import datetime
import math
import re
import shlex
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from companion.core.config_files import ConfigKind, config_folder
from companion.core.provenance import version_line
from companion.recording.metrics import NEES_BLOCKS
from companion.recording.pages import page_environment
from sitl.campaign import charts
from sitl.campaign.flights import CampaignPlan
from sitl.campaign.fly import Outcome, Row
from sitl.campaign.statistics import CROSSED, PERMUTATIONS, Place, Share, influences, quantiles, share_of
from sitl.campaign.store import write_at_once
from sitl.compare import consistency

TEMPLATE = "campaign_report.html.j2"
WORST = 10
SHOWN_FIELDS = 12  # rows of a table of sensitivity
PICTURES = 3  # fields with a picture each
SIGNIFICANT = 0.05
FAILURE_BINS = 6
FIRST_SEEDS = 50  # the NEES is also stated over this many
BAD = (Outcome.FAILED, Outcome.CRASHED)
ORDER = (Outcome.CRASHED, Outcome.FAILED, Outcome.EARLY, Outcome.COMPLETED)  # the worst first


class Figure(NamedTuple):
    """A figure of a flight that the report shows. scale: from the unit of the result to the one that is shown."""

    name: str
    title: str
    unit: str
    scale: float


FIGURES = (
    Figure("position_rms_m", "hold error, RMS", "cm", 100.0),
    Figure("position_max_m", "hold error, largest", "cm", 100.0),
    Figure("estimate_rms_m", "estimate error, RMS", "cm", 100.0),
    Figure("yaw_rms_deg", "yaw error, RMS", "°", 1.0),
    Figure("velocity_rms_m_s", "velocity estimate error, RMS", "cm/s", 100.0),
    Figure("gnss_rms_m", "position error of the flight controller, RMS", "m", 1.0),
    Figure("marker_seen_fraction", "images with the bundle", "%", 100.0),
    Figure("duration_s", "length of the flight", "s", 1.0),
)
HOLD = FIGURES[0]


def write_campaign_report(plan: CampaignPlan, rows: list[Row], path: Path) -> None:
    """Write the page; raises `OutputError`. rows: of the finished flights, at least one."""
    page = (
        page_environment(Path(__file__).parent)
        .get_template(TEMPLATE)
        .render(
            name=plan.campaign.name,
            description=plan.campaign.description,
            planned=len(plan.flights),
            flown=len(rows),
            cards=_cards(rows),
            worth=_worth,
            groups=_groups(rows),
            causes=_causes(rows),
            monitors=_monitors(rows),
            figures=_figures(rows),
            sensitivity=_sensitivity(rows),
            repeated=len({row["seed"] for row in rows}) < len(rows),
            permutations=PERMUTATIONS,
            nees=_nees(rows),
            nees_blocks=NEES_BLOCKS,
            first_seeds=FIRST_SEEDS,
            worst=_worst(plan, rows),
            drawn=_drawn(rows),
            provenance=_provenance(plan, rows),
            generated=f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
            version=version_line(),
        )
    )
    write_at_once(path, page.encode())


def summary_lines(rows: list[Row]) -> list[str]:
    """The report's first figures for a terminal, and every cause with its count."""
    lines = [f"{card['name']}: {card['value']} {card['unit']} ({card['note']})" for card in _cards(rows)]
    return lines + [f"{c['share'].hits} {c['outcome']}: {c['cause']}" for c in _causes(rows)]


def figure_of(row: Row, name: str) -> float | None:
    """A figure of a flight, None where it has none."""
    value = row["result"].get(name)
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


# --- shares and causes ----------------------------------------------------------------------------------------------


def _share(members: list[Row], rows: list[Row]) -> Share:
    """Share of the flights that are members."""
    numbers = {row["flight"] for row in members}
    return share_of([row["flight"] in numbers for row in rows], [row["seed"] for row in rows])


def _count(rows: list[Row], *outcomes: Outcome) -> Share:
    return _share([row for row in rows if row["outcome"] in outcomes], rows)


def _worth(share: Share) -> str:
    """What is to be said of an interval over flights that have seeds in common, "" where each has its own."""
    if share.independent >= share.of:
        return ""
    count = round(share.independent)
    return f"as of {count} independent flight{'' if count == 1 else 's'}"


def _cards(rows: list[Row]) -> list[dict[str, str]]:
    def share(name: str, found: Share) -> dict[str, str]:
        interval = f"95 %: {100 * found.low:.1f} to {100 * found.high:.1f} %"
        note = "; ".join(filter(None, (f"{found.hits} of {found.of}", interval, _worth(found))))
        return {"name": name, "value": f"{100 * found.share:.1f}", "unit": "%", "note": note}

    cards = [
        share("Completed", _count(rows, Outcome.COMPLETED)),
        share("Completed or ended early and safely", _count(rows, Outcome.COMPLETED, Outcome.EARLY)),
        share("Failed", _count(rows, Outcome.FAILED)),
        share("Crashed", _count(rows, Outcome.CRASHED)),
    ]
    if holds := [v for row in rows if (v := figure_of(row, HOLD.name)) is not None]:
        _, median, high = (HOLD.scale * q for q in quantiles(holds))
        note = f"RMS; 95 % of {len(holds)} flights: {high:.1f} cm or less"
        cards.append({"name": "Median hold error", "value": f"{median:.1f}", "unit": HOLD.unit, "note": note})
    return cards


def _groups(rows: list[Row]) -> list[dict[str, Any]]:
    """One row for each scenario, kind of sensors and stack."""
    found: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        found[row["scenario"], row["sensors"], row["stack"]].append(row)
    groups = []
    for key, members in found.items():
        holds = [v for row in members if (v := figure_of(row, HOLD.name)) is not None]
        groups.append(
            {
                "key": key,
                "completed": _count(members, Outcome.COMPLETED),
                "safe": _count(members, Outcome.COMPLETED, Outcome.EARLY),
                "outcomes": [_count(members, outcome).hits for outcome in (Outcome.EARLY, *BAD)],
                "hold": [HOLD.scale * q for q in quantiles(holds)] if holds else None,
            }
        )
    return groups


# A number of its flight: none that is a part of a name (girder_1, MC_ROLL_P2) or a line of a program (filter.py:120).
_NUMBER = re.compile(r"0x[0-9a-f]+|(?<![\w:.])(?<![\w:]-)[-−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
_CONTACT = re.compile(r"contact with .+?(?= at \(|$)")  # of `sitl.flight_end`; the name of a solid may have any numbers


def general(cause: str) -> str:
    """A cause without the numbers of its flight, so that equal causes are counted together, and different ones are not."""
    if contact := _CONTACT.match(cause):
        return contact[0]
    return _NUMBER.sub("N", re.sub(r" ?\([^)]*\)", "", cause)).strip()


def _causes(rows: list[Row]) -> list[dict[str, Any]]:
    """Every cause of a flight that was not completed, the worst outcome first."""
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row["outcome"] != Outcome.COMPLETED or row["cause"]:
            found[row["outcome"], general(row["cause"])].append(row)
    ordered = sorted(found.items(), key=lambda item: (ORDER.index(Outcome(item[0][0])), -len(item[1])))
    return [
        {"outcome": outcome, "cause": cause, "share": _share(members, rows), "flights": _numbers(members)}
        for (outcome, cause), members in ordered
    ]


def _numbers(rows: list[Row], most: int = 12) -> str:
    numbers = [str(row["flight"]) for row in rows]
    return ", ".join(numbers[:most]) + (", …" if len(numbers) > most else "")


def _monitors(rows: list[Row]) -> list[dict[str, Any]]:
    """The monitors of the safety table that became active, in how many flights, and what they did."""
    flights: dict[str, list[Row]] = defaultdict(list)
    actions: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        active = [event for event in row["result"].get("events", []) if event["active"]]
        for monitor in dict.fromkeys(event["monitor"] for event in active):
            flights[monitor].append(row)
        for event in active:
            actions[event["monitor"]][event["action"] or "none"] += 1
    ordered = sorted(flights.items(), key=lambda item: -len(item[1]))
    return [
        {
            "monitor": monitor,
            "share": _share(members, rows),
            "actions": ", ".join(f"{action} {count}" for action, count in actions[monitor].most_common()),
            "flights": _numbers(members),
        }
        for monitor, members in ordered
    ]


def _figures(rows: list[Row]) -> list[dict[str, Any]]:
    shown = []
    for figure in FIGURES:
        values = [figure.scale * v for row in rows if (v := figure_of(row, figure.name)) is not None]
        if len(values) > 1:
            low, median, high = quantiles(values)
            from_, to = charts.reach(values)
            beyond = sum(not from_ <= v <= to for v in values)
            shown.append(
                {
                    "title": figure.title,
                    "svg": charts.histogram(values, figure.unit, [median, high]),
                    "note": f"5 / 50 / 95 %: {low:.3g} / {median:.3g} / {high:.3g} {figure.unit}, largest "
                    f"{max(values):.3g} {figure.unit}; {len(values)} flights"
                    + (f", {beyond} beyond the axis, in its last bars" if beyond else ""),
                }
            )
    return shown


# --- what explains them ---------------------------------------------------------------------------------------------


def explaining(rows: list[Row]) -> dict[str, list[Any]]:
    """Everything that differs from flight to flight and was there before the flight: fields, and draws of unkind sensors."""
    columns: dict[str, dict[int, Any]] = defaultdict(dict)
    for place, row in enumerate(rows):
        found = {name: row[name] for name in CROSSED}
        found |= row["fields"] | _drawn_numbers(row["result"].get("drawn") or {}, "drawn")
        for name, value in found.items():
            if isinstance(value, (int, float, str)) and not isinstance(value, bool):
                columns[name][place] = value
    everywhere = {name: [values.get(i) for i in range(len(rows))] for name, values in columns.items()}
    return {name: values for name, values in everywhere.items() if not _repeats(name, values, everywhere)}


def _drawn_numbers(value: Any, name: str) -> dict[str, float]:
    if isinstance(value, dict):
        return {k: v for key, inner in value.items() for k, v in _drawn_numbers(inner, f"{name}.{key}").items()}
    if isinstance(value, list) and all(isinstance(v, (int, float)) for v in value):
        found = {f"{name}[{i}]": float(v) for i, v in enumerate(value)}
        return found | ({f"{name} (length)": float(np.linalg.norm(value))} if len(value) > 1 else {})
    if isinstance(value, list):  # jumps of the satellites
        sizes = [
            float(np.linalg.norm(jump["offset_m"])) for jump in value if isinstance(jump, dict) and "offset_m" in jump
        ]
        return {f"{name} (largest)": max(sizes, default=0.0)}
    return {name: float(value)} if isinstance(value, (int, float)) and not isinstance(value, bool) else {}


def _repeats(name: str, values: list[Any], everywhere: dict[str, list[Any]]) -> bool:
    """A draw of unkind sensors that is a field of the campaign already, or PX4's pitch gain, which is as roll's."""
    if "MC_PITCH" in name:
        return True
    return name.startswith("drawn.") and any(
        field.startswith("unkind.") and _ordered_alike(values, own) for field, own in everywhere.items()
    )


def _ordered_alike(a: list[Any], b: list[Any]) -> bool:
    """Two columns of numbers that rise together, one in place of the other."""
    both = [(x, y) for x, y in zip(a, b, strict=True) if isinstance(x, (int, float)) and isinstance(y, (int, float))]
    if not both:
        return False
    first, second = zip(*both, strict=True)
    if min(len(set(first)), len(set(second))) < 3:
        return False
    return bool(np.array_equal(np.argsort(first, kind="stable"), np.argsort(second, kind="stable")))


def _sensitivity(rows: list[Row]) -> list[dict[str, Any]]:
    """The failures, and the hold error of the flights that have one."""
    fields = explaining(rows)
    places = [Place(row["seed"], row["scenario"], row["sensors"], row["stack"]) for row in rows]
    bad = [row["outcome"] in BAD for row in rows]
    early = [row["outcome"] in (*BAD, Outcome.EARLY) for row in rows]
    holds = [figure_of(row, HOLD.name) for row in rows]
    parts = []
    questions: tuple[tuple[str, list[float | None], str], ...] = (
        ("Which field explains the failures", [float(b) for b in bad], f"{sum(bad)} failed or crashed flights"),
        ("Which field explains the flights that were not completed", [float(e) for e in early],
         f"{sum(early)} flights that ended early, failed or crashed"),
        ("Which field explains the hold error", holds, f"{sum(h is not None for h in holds)} flights with a hold"),
    )  # fmt: skip
    for title, figure, what in questions:
        found = influences(fields, figure, places)
        pictures = [
            svg
            for one in found[:PICTURES]
            if one.p <= SIGNIFICANT and (svg := _picture(one.field, fields[one.field], figure, figure is holds, bad))
        ]
        parts.append(
            {"title": title, "what": what, "found": found[:SHOWN_FIELDS], "of": len(found), "pictures": pictures}
        )
    return parts


def _picture(field: str, values: list[Any], figure: list[float | None], is_hold: bool, bad: list[bool]) -> str:
    """The figure over the field, for a field of numbers."""
    rows = [
        (float(x), y, b)
        for x, y, b in zip(values, figure, bad, strict=True)
        if isinstance(x, (int, float)) and y is not None
    ]
    if len(rows) < 2:
        return ""
    if is_hold:
        return charts.scatter([(x, HOLD.scale * y, b) for x, y, b in rows], field, f"hold error [{HOLD.unit}]")
    edges = np.linspace(min(r[0] for r in rows), max(r[0] for r in rows), FAILURE_BINS + 1)
    if edges[0] == edges[-1]:
        return ""
    places = np.clip(np.searchsorted(edges, [r[0] for r in rows], "right") - 1, 0, FAILURE_BINS - 1)
    bins = []
    for i in range(FAILURE_BINS):
        inside = [row for row, place in zip(rows, places, strict=True) if place == i]
        bins.append((float(edges[i]), float(edges[i + 1]), int(sum(row[1] for row in inside)), len(inside)))
    return charts.shares(bins, field)


# --- consistency, worst flights, inputs -----------------------------------------------------------------------------


def _nees(rows: list[Row]) -> list[dict[str, Any]]:
    """Median and mean NEES of each scenario with this stack, and the flights in which the filter started again."""
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row["result"].get("nees"):
            found[row["scenario"], row["sensors"]].append(row)
    parts = []
    for key, members in found.items():
        diverged = [row for row in members if row["result"].get("filter_resets")]
        for some in dict.fromkeys((min(FIRST_SEEDS, len(members)), len(members))):
            flights = [{b: v for b, v in row["result"]["nees"].items() if v is not None} for row in members[:some]]
            flights = [flight for flight in flights if len(flight) == len(NEES_BLOCKS)]
            if not flights:
                continue
            parts.append(
                {
                    "key": key,
                    "n": len(flights),
                    "median": {b: float(np.median([flight[b] for flight in flights])) for b in NEES_BLOCKS},
                    "mean": consistency(flights),
                    "diverged": _share([row for row in members[:some] if row in diverged], members[:some]),
                    "diverged_flights": _numbers([row for row in members[:some] if row in diverged]),
                }
            )
    return parts


def _worst(plan: CampaignPlan, rows: list[Row]) -> list[dict[str, Any]]:
    """Crashed, failed, early, then by the hold error; each with the command that repeats it."""

    def badness(row: Row) -> tuple[int, float]:
        return ORDER.index(Outcome(row["outcome"])), -(figure_of(row, HOLD.name) or 0.0)

    return [
        {
            "row": row,
            "hold": figure_of(row, HOLD.name),
            "command": repeat_command(plan, row["flight"]),
            "fields": ", ".join(f"{k} = {_shown(v)}" for k, v in row["fields"].items() if _is_plain(v)),
            "trace": row.get("trace", ""),
        }
        for row in sorted(rows, key=badness)[:WORST]
    ]


def repeat_command(plan: CampaignPlan, number: int) -> str:
    """The command that flies a flight again and keeps its log."""
    own = config_folder() / ConfigKind.CAMPAIGN
    known = plan.path.resolve().parent == own.resolve()
    file = plan.path.stem if known else str(plan.path.resolve())
    return f"companion campaign {shlex.quote(file)} --only {number} --log flight_{number}.mcap"


def _is_plain(value: Any) -> bool:
    return isinstance(value, (int, float, str))


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _drawn(rows: list[Row]) -> list[dict[str, str]]:
    """What was drawn for each field of the campaign file."""
    columns: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        for field, value in row["fields"].items():
            columns[field].append(value)
    shown = []
    for field, values in columns.items():
        if all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values):
            low, median, high = quantiles(values, (0.0, 0.5, 1.0))
            text = f"{low:.4g} to {high:.4g}, median {median:.4g}" if low < high else f"{low:.6g} in every flight"
        else:
            counts = Counter(_shown(v) for v in values)
            text = (
                ", ".join(f"{v} ({n})" for v, n in counts.most_common())
                if len(counts) > 1
                else f"{next(iter(counts))} in every flight"
            )
        shown.append({"field": field, "text": text})
    return shown


def _provenance(plan: CampaignPlan, rows: list[Row]) -> list[tuple[str, str]]:
    def each(name: str) -> str:
        return ", ".join(sorted({str(row.get(name, "")) for row in rows}))

    commit = ", ".join(
        sorted({f"{row['commit'] or 'unknown'}{' (modified)' if row['modified'] else ''}" for row in rows})
    )
    cpu_s = sum(row.get("cpu_s", 0.0) for row in rows)
    return [
        ("campaign file", str(plan.path)),
        ("commit", commit),
        ("sources", each("source_hash")),
        ("flown on", each("host")),
        ("processor", each("processor")),
        (
            "finished",
            f"{min(str(row.get('finished', '')) for row in rows)} to {max(str(row.get('finished', '')) for row in rows)}",
        ),
        ("processor time", f"{cpu_s / 3600:.2f} h, {cpu_s / len(rows):.1f} s a flight"),
        ("largest memory of a flight", f"{max(row.get('memory_mb', 0.0) for row in rows):.0f} MB"),
    ]
