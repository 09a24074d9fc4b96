"""The report of a flight: one HTML file that needs nothing else, with figures, tables and photographs."""

import base64
import datetime
import io
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import cv2
import matplotlib
import msgspec
import numpy as np
import tomlkit
from matplotlib.figure import Figure

from companion.core.config import ConfigError
from companion.core.messages import WORLD, FcuInfo, FcuText, Truth
from companion.core.text import plain
from companion.recording import plots
from companion.recording import series as sr
from companion.recording.inspection_figures import SurfaceResult, Totals, surface_results, totals
from companion.recording.inspection_former import FOLDER, PAGE, read_content
from companion.recording.inspection_report import read_inspection
from companion.recording.log import Log, LogError, parts, read_log, side_cars
from companion.recording.metrics import metrics_from_messages
from companion.recording.pages import page_environment
from companion.recording.same_flight import flight_of

TEMPLATE = "report.html.j2"
THUMBNAIL_PX = 420  # width
LINE_MAX = 200  # characters of a reason
OVERVIEW, METRICS = "overview.png", "metrics.json"
OVERVIEW_DPI = 110
D = TypeVar("D")
# Metadata that says which software, computer and configuration flew.
PROVENANCE = (
    "start_time",
    "software_version",
    "commit",
    "modified",
    "source_hash",
    "fingerprints",
    "state_layout",
    "host",
    "processor",
    "system",
    "python",
    "command_line",
    "run",
)

SECTIONS: tuple[tuple[str, str, Callable[[plots.ShownFlight], Figure | None]], ...] = (
    ("Position", "Reference, estimate and truth over the hold, {where}.", plots.position),
    ("Error", "Over the hold, {where}.", plots.errors),
    ("Disturbance", "Mass-normalised force of the moving air, world axes.", plots.disturbance),
    ("GNSS error", "Bias of the flight controller's local position, world axes.", plots.gnss_bias),
    ("Confidence", "Three standard deviations of the filter beside the true error; age of the last accepted marker.",
     plots.confidence),
    ("Consistency", "Normalised innovation squared by sensor (degrees of freedom), expected value and 95 % band.",
     plots.nis),
    ("Attitude", "What was sent to the flight controller and what it flew.", plots.attitude),
    ("Computing times", "Per cycle, on the machine that flew.", plots.times),
    ("Battery", "Voltage under load.", plots.battery),
)  # fmt: skip


def report_folder(log_path: Path) -> Path:
    """Where the reports of a log are by default: beside it, or in ``<log>_report`` where other flights lie beside it, too.

    They stay beside a log that has them there already.
    """
    beside, own = log_path.parent, {part.name for part in parts(log_path)}
    alone = all(other.name in own for other in beside.glob("*.mcap"))
    if alone or _is_reported(beside, flight_of(log_path)):
        return beside
    return beside / f"{log_path.stem}_report"


def _is_reported(folder: Path, flight: str) -> bool:
    content = read_content(folder / FOLDER)
    shown = [] if content is None else [shown.flight for shown in content.flights]
    return bool(flight) and flight in (*shown, reported_flight(folder)[1])


def reported_flight(folder: Path) -> tuple[str, str]:
    """Log and flight (`flight_of`) of the flight report in a folder; "" for both where there is none or it does not say it."""
    try:
        said = msgspec.json.decode((folder / METRICS).read_bytes(), type=dict[str, Any]).get("log")
        return (str(said["name"]), str(said["flight"])) if isinstance(said, dict) else ("", "")
    except (OSError, KeyError, msgspec.MsgspecError):
        return "", ""


def write_report(log_path: str | Path, out_dir: str | Path, replace: bool = False) -> Path:
    """Write ``report.html``, ``overview.png`` and ``metrics.json`` into a folder; returns the report's path.

    A figure that cannot be drawn is left out, and a line of the report says so.
    replace: also the report of another flight.
    Raises `LogError` if the log is not one, `ConfigError` if the folder cannot be written or has the report of another flight.
    """
    log_path, out_dir = Path(log_path), Path(out_dir)
    name, flight_there = reported_flight(out_dir)
    if flight_there and flight_there != (flight_of(log_path) or log_path.name) and not replace:
        raise ConfigError(
            f"{out_dir}: has the report of {name}: name another folder (--out), or replace it (--replace)"
        )
    log, unstamped = read_stamped(log_path)
    flight = plots.ShownFlight(log, _deadline_s(log))
    metrics = metrics_from_messages(log, flight.frame)
    metrics["log"] = {"name": log_path.name, "flight": flight_of(log_path) or log_path.name}
    figures: list[dict[str, str]] = []
    not_drawn: list[str] = []
    with matplotlib.rc_context(rc=cast(Any, plots.STYLE)):
        for title, caption, draw in SECTIONS:
            if svg := _drawn(title, partial(_svg_of, draw, flight), not_drawn):
                figures.append({"title": title, "caption": caption.format(where=flight.where), "svg": svg})
        picture = _drawn("overview", lambda: _png(plots.overview(flight)), not_drawn)
    inspection, no_inspection = _inspection(log)
    if inspection is not None:
        metrics["inspection"] = inspection.totals._asdict()
    html = page_environment().get_template(TEMPLATE).render(
        title=f"Flight {log.metadata.get('start_time', '')[:19].replace('T', ' ')}".strip(),
        log=log_path.name,
        metadata=log.metadata,
        truncated=log.truncated,
        problems=[*log.problems(), *unstamped, *not_drawn, *no_inspection],
        metrics=metrics,
        has_truth=bool(sr.of(log, Truth)),
        where=flight.where,
        in_bundle=flight.frame != WORLD,
        goal=plots.asked_point(flight),
        start_s=flight.start_s,
        duration_s=flight.end_s - flight.start_s,
        texts=[m for m in sr.of(log, FcuText) if m.severity <= 4],
        figures=figures,
        photographs=photographs(log_path),
        inspection=inspection,
        inspection_page=_inspection_page(out_dir, flight_of(log_path)),
        configuration=_configuration(log),
        provenance=_provenance(log),
        generated=f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
    )  # fmt: skip
    report = out_dir / "report.html"
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        if picture is not None:
            (out_dir / OVERVIEW).write_bytes(picture)
        else:
            (out_dir / OVERVIEW).unlink(missing_ok=True)
        (out_dir / METRICS).write_bytes(msgspec.json.format(msgspec.json.encode(metrics), indent=2))
        report.write_text(html, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{out_dir}: report cannot be written: {error.strerror}") from None
    return report


def _drawn(title: str, draw: Callable[[], D], not_drawn: list[str]) -> D | None:
    """A figure; None, with a line, where it cannot be drawn: the others are worth having."""
    try:
        return draw()
    except Exception as error:  # noqa: BLE001 - a log may hold any numbers, and matplotlib raises many kinds
        not_drawn.append(f"figure '{title}' cannot be drawn: {type(error).__name__}: {plain(str(error), LINE_MAX)}")
        return None


def _inspection_page(out_dir: Path, flight: str) -> str:
    """The report of the inspection in the same folder, if it is one of this flight."""
    content = read_content(out_dir / FOLDER)
    shown = content is not None and any(shown.flight == flight for shown in content.flights)
    return f"{FOLDER}/{PAGE}" if shown and (out_dir / FOLDER / PAGE).is_file() else ""


def read_stamped(path: Path) -> tuple[Log, list[str]]:
    """A log without the messages that have no finite stamp, and one line for each topic that had some.

    They have no place in a figure, and one of them would end it. Raises `LogError`.
    """
    log, lines = read_log(path), []
    for topic, messages in log.items():
        kept = [index for index, message in enumerate(messages) if math.isfinite(message.stamp_s)]
        if left_out := len(messages) - len(kept):
            log[topic] = [messages[index] for index in kept]
            log.arrival_s[topic] = [log.arrival_s[topic][index] for index in kept]
            lines.append(f"{path}: {left_out} messages of '{topic}' have no finite stamp and are left out")
    return log, lines


class InspectionFigures(NamedTuple):
    """What the flight report shows of an inspection."""

    totals: Totals
    results: list[SurfaceResult]


def _inspection(log: Log) -> tuple[InspectionFigures | None, list[str]]:
    """The figures of the flight's inspection, None: it had none; and why they cannot be computed."""
    try:
        found = read_inspection([log])
    except ConfigError as error:
        return None, [str(error)]
    if found is None:
        return None, []
    results = surface_results(found.plan, found.shots)
    return InspectionFigures(totals(found.plan, found.shots, results), results), []


def _deadline_s(log: Log) -> float | None:
    """The controller's deadline from the vehicle tables in the log, None where they do not say."""
    try:
        return float((log.tables("vehicle") or {})["controller"]["deadline_s"])
    except (LogError, KeyError, TypeError, ValueError):
        return None


def _provenance(log: Log) -> list[tuple[str, str]]:
    """(name, value) of what identifies the flight: software, computer, flight controller."""
    shown = [(name.replace("_", " "), log.metadata[name]) for name in PROVENANCE if log.metadata.get(name)]
    if infos := log.of(FcuInfo):
        parameters = ", ".join(f"{name} {value:g}" for name, value in infos[-1].parameters.items())
        shown += [("PX4", f"{infos[-1].version}, commit {infos[-1].commit}"), ("PX4 parameters", parameters)]
    return shown


def _configuration(log: Log) -> list[tuple[str, str]]:
    """(name, text) of the files of the flight: a file with a base as its effective tables, else as it was written."""
    shown = []
    for name in ("mission", "vehicle", "site", "scenario"):
        if log.metadata.get(f"{name}_base"):
            tables = log.tables(name)
            shown.append(
                (f"{name} file, with its base {log.metadata[f'{name}_base_file']}", tomlkit.dumps(tables or {}))
            )
        elif log.metadata.get(name):
            shown.append((f"{name} file", log.metadata[name]))
    return shown


def photographs(log_path: Path) -> list[dict[str, Any]]:
    """The photographs beside a log: side-car data, thumbnail as data URL, number of the file."""
    found = []
    for side_car in side_cars(log_path):
        try:
            facts = msgspec.json.decode(side_car.read_bytes())
            image = cv2.imdecode(np.frombuffer(side_car.with_suffix(".png").read_bytes(), np.uint8), cv2.IMREAD_COLOR)
        except (OSError, msgspec.MsgspecError, cv2.error):
            continue
        if image is None or not isinstance(facts, dict) or not {"id", "stamp_s"} <= facts.keys():
            continue
        height = max(1, round(image.shape[0] * THUMBNAIL_PX / image.shape[1]))
        small = cv2.resize(image, (THUMBNAIL_PX, height), interpolation=cv2.INTER_AREA)
        jpeg = cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, 85])[1].tobytes()
        found.append({**facts, "file": side_car.with_suffix(".png").name, "thumbnail": _data_url(jpeg, "jpeg")})
    return found


def _data_url(data: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def _svg_of(draw: Callable[[plots.ShownFlight], Figure | None], flight: plots.ShownFlight) -> str:
    """A figure of `SECTIONS`, "" where the log holds nothing to draw."""
    figure = draw(flight)
    return "" if figure is None else _svg(figure)


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None}, dpi=150)
    return text.getvalue()[text.getvalue().index("<svg") :]


def _png(figure: Figure) -> bytes:
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=OVERVIEW_DPI)
    return data.getvalue()
