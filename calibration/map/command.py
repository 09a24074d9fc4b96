"""``companion calibrate map``: the bundles of a site relative to each other, from flights past them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from calibration.map.adjust import Adjusted, adjust
from calibration.map.combine import FlightMap, SiteMap, check_frame, check_survey, combine, into_survey_frame
from calibration.map.flight_log import MapLog, read_map_log
from calibration.map.relative import Relative, difference
from calibration.map.site_file import check_output, survey_lines, surveys_of, write_surveys
from calibration.results import DataError, Result, refuse_twice, result, write_json
from companion.core.command_line import HELP, ConfigFile, OutputFile, one_line_errors
from companion.core.config_files import ConfigKind
from companion.core.errors import UserError
from companion.core.frames import quat_from_matrix
from companion.core.site import Site, Survey, load_site

OUTLIERS_MAX = 0.2  # share of a bundle's markers that may be left out
STD_MAX_M, STD_MAX_RAD = 0.3, float(np.radians(3.0))  # a less certain bundle is left out of the map
JUMP_MAX = 5.0  # standard deviations
CORNER_MAX_PX = 3.0  # root mean square of what remains


@dataclass(frozen=True)
class FoundMap:
    """The map of all logs; flights: those that it is made of; left_out: reason by bundle; kept: surveys of other bundles, which
    stay in the file."""

    logs: list[MapLog]
    flights: list[Adjusted]
    map: SiteMap
    left_out: dict[str, str]
    kept: dict[str, Survey]
    warnings: list[str]

    @property
    def used(self) -> list[MapLog]:
        """The logs of the flights."""
        names = {flight.data.name for flight in self.flights}
        return [log for log in self.logs if str(log.path) in names]


def find_map(logs: Sequence[Path], site: Site, site_file: Path, vehicle: Path | None) -> FoundMap:
    """The map from flight logs; raises `DataError` for what cannot be a map, naming log and bundle."""
    refuse_twice(logs)
    read = [read_map_log(log, site, site_file, vehicle) for log in logs]
    left_out: dict[str, str] = {}
    warnings = [note for log in read for note in log.notes]
    flights, maps = [], []
    for log in read:
        left_out |= {name: f"{log.path}: {reason}" for name, reason in log.left_out.items()}
        if log.data is None:
            warnings.append(f"{log.path}: no two bundles were seen long enough in this flight: not used")
            continue
        adjusted = adjust(log.data)
        check_flight(adjusted)
        flights.append(adjusted)
        maps.append(FlightMap(str(log.path), _certain(adjusted, left_out)))
    several = [flight for flight in maps if len(flight.map.bundles) > 1]
    if not several:
        reasons = "; ".join(f"'{name}': {reason}" for name, reason in left_out.items())
        raise DataError(
            f"{', '.join(map(str, logs))}: a map needs two bundles in one flight{': ' + reasons if reasons else ''}"
        )
    found = combine(several)
    used = []
    for adjusted, flight in zip(flights, maps, strict=True):
        if len(flight.map.bundles) < 2:
            warnings.append(f"{flight.log}: only one bundle is determined in this flight: not used")
        elif not set(flight.map.bundles) & set(found.bundles):
            warnings.append(f"{flight.log}: no bundle of this flight is connected with those of the others: not used")
        else:
            used.append(adjusted)
    for flight in maps:
        for name in set(flight.map.bundles) - set(found.bundles):
            left_out[name] = "no flight connects it with the others"
    left_out = {name: reason for name, reason in left_out.items() if name not in found.bundles}
    check_survey(found, site, str(site_file))
    check_frame(found, site, str(site_file), left_out)
    surveys = {b.name: b.survey for b in site.bundle if b.survey is not None}
    surveyed = {name: survey for name, survey in surveys.items() if name in found.bundles}
    kept = {name: survey for name, survey in surveys.items() if name not in found.bundles}
    if kept:
        names = ", ".join(f"'{name}'" for name in kept)
        warnings.append(
            f"{site_file}: {names} not in this map: the survey stays, and the new ones are no more certain than the frame "
            "that they have in common; without that survey they may be"
        )
    placed = into_survey_frame(found, surveyed) if surveyed else found
    return FoundMap(read, used, placed, left_out, kept, warnings)


def check_flight(flight: Adjusted) -> None:
    """Raise `DataError` where the corners of a flight fit no motion, a bundle moved, or one hangs upside down."""
    if flight.corner_px > CORNER_MAX_PX:
        raise DataError(
            f"{flight.data.name}: corners do not fit any motion by {flight.corner_px:.1f} px: the lens of the vehicle file is "
            "not that of this flight, or a bundle moved"
        )
    if flight.jump.size > JUMP_MAX:
        names = " or ".join(f"'{name}'" for name in flight.jump.bundles) or "a bundle"
        raise DataError(
            f"{flight.data.name}: {names} moved during the flight: at {flight.jump.t_s:.1f} s the corners jump by "
            f"{flight.jump.size:.0f} standard deviations of the inertial samples"
        )
    for name, R_WM, plumb in zip(flight.data.bundles, flight.unknowns.R_WM, flight.data.plumb, strict=False):
        # The adjustment makes the axis vertical whichever way it points.
        if plumb is not None and R_WM[2, "xyz".index(plumb.axis)] < 0.0:
            raise DataError(
                f"{flight.data.name}: bundle '{name}' hangs upside down: its {plumb.axis} axis points down, and plumb in the "
                "marker file says that it points up; turn the print, or correct plumb"
            )
    for name, count in flight.outliers.items():
        if count.left_out > OUTLIERS_MAX * count.seen:
            raise DataError(
                f"{flight.data.name}: {100 * count.left_out / count.seen:.0f} % of the markers of bundle '{name}' do not fit: "
                "it moved during the flight, or its print is not that of the site file"
            )


def _certain(flight: Adjusted, left_out: dict[str, str]) -> SiteMap:
    """The bundles that are determined relative to the one that was seen most."""
    u = flight.unknowns
    whole = SiteMap(flight.data.bundles, u.R_WM, u.p_WM, flight.covariance)
    most = max(whole.bundles, key=lambda name: flight.outliers[name].seen)
    kept = [most]
    for name in whole.bundles:
        if name == most:
            continue
        pair = whole.between(most, name)
        if pair.std_m > STD_MAX_M or pair.std_rad > STD_MAX_RAD:
            left_out[name] = (
                f"{flight.data.name}: not determined, ± {pair.std_m:.2f} m and {np.degrees(pair.std_rad):.1f}° from '{most}'"
            )
        else:
            kept.append(name)
    return whole.of([name for name in whole.bundles if name in kept])


@click.command(context_settings=HELP)
@click.argument("logs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--site", type=ConfigFile(ConfigKind.MARKERS), required=True, help="Marker file with the bundles.")
@click.option("--out", type=OutputFile(), help="Write the marker file with the surveys here.")
@click.option(
    "--vehicle",
    type=ConfigFile(ConfigKind.VEHICLE),
    help="Vehicle file of logs that hold none that this version reads.",
)
@click.option("--json", "json_file", type=OutputFile(), help="Write the result here; -: standard output.")
@click.option("--force", is_flag=True, help="Replace the file of --out, or write into that of --site.")
@one_line_errors
def command(
    logs: tuple[Path, ...], site: Path, out: Path | None, vehicle: Path | None, json_file: Path | None, force: bool
) -> None:
    """Poses of all bundles of a site relative to each other, from LOGS of flights past them, as surveys in the marker file.

    Without --out or --force nothing is written.
    """
    loaded = load_site(site)
    target = check_output(site, loaded, out, force)
    found = find_map(logs, loaded, site, vehicle)
    surveys = surveys_of(found.map, found.kept)
    content = as_result(found, surveys)
    if json_file is None or str(json_file) != "-":
        _show(found, content)
    try:
        if json_file:
            write_json(json_file, content)
        if target is not None:
            write_surveys(site, target, surveys, [log.path.name for log in found.used])
    except UserError:
        for line in survey_lines(surveys):
            click.echo(line, err=True)
        raise
    if target is None:
        click.echo("nothing written: --out FILE writes a new marker file, --force writes into that of --site", err=True)
    else:
        click.echo(f"{target}: {len(surveys)} surveys written", err=True)


def as_result(found: FoundMap, surveys: dict[str, Survey]) -> Result:
    """The result in the schema of all calibration commands."""
    first, *others = found.map.bundles
    pairs = {name: found.map.between(first, name) for name in others}
    merit = {
        "std_m": max(pair.std_m for pair in pairs.values()),
        "std_deg": float(np.degrees(max(pair.std_rad for pair in pairs.values()))),
        "corner_px": max(flight.corner_px for flight in found.flights),
        "outliers": sum(count.left_out for flight in found.flights for count in flight.outliers.values()),
    }
    details = {
        "relative_to": first,
        "bundles": {
            name: {
                "p_S": found.map.p[i],
                "q_S": quat_from_matrix(found.map.R[i]),
                "survey": {"std_m": surveys[name].std_m, "std_rad": surveys[name].std_rad},
            }
            for i, name in enumerate(found.map.bundles)
        },
        "relative": {name: _as_table(pair) for name, pair in pairs.items()},
        "left_out": found.left_out,
        "flights": [_flight_table(flight) for flight in found.flights],
        "filter": {str(log.path): _filter_table(log, pairs, first) for log in found.used},
    }
    if truth := _truth(found, pairs, first):
        details["truth"] = truth
    inputs = [log.path for log in found.logs]
    return result("calibrate map", inputs, {}, merit, found.warnings, details)


def _as_table(pair: Relative) -> dict[str, object]:
    return {
        "p_m": pair.p_AB,
        "q": quat_from_matrix(pair.R_AB),
        "std_m": pair.std_m,
        "std_deg": float(np.degrees(pair.std_rad)),
        "covariance": pair.covariance,  # rotation, then place
    }


def _flight_table(flight: Adjusted) -> dict[str, object]:
    u, noise = flight.unknowns, flight.noise
    return {
        "log": flight.data.name,
        "images": len(np.unique(flight.data.seen.image)),
        "duration_s": float(flight.data.t_s[-1] - flight.data.t_s[0]),
        "markers": {name: count._asdict() for name, count in flight.outliers.items()},
        "corner_px": flight.corner_px,
        "largest_jump": flight.jump.size,
        "mount_deg": np.degrees(u.mount),
        "lever_m": u.lever_m,
        "camera_late_s": flight.delay_s,
        "lens": u.lens,
        "print_scale": u.print_scale,
        "marker_scale": u.marker_scale,
        "noise": {
            "corner_px": list(noise.corner),
            "gyro_rad_sqrt_s": noise.gyro,
            "accel_m_s_sqrt_s": noise.accel,
            "sway_rad": noise.sway.std,
        },
    }


def _filter_table(log: MapLog, pairs: dict[str, Relative], first: str) -> dict[str, object]:
    """How far the filter's own map of a flight is from this one."""
    return {
        name: _size(difference(between, pairs[name]))
        for name, between in log.filter_map.relative(first)
        if name in pairs
    }


def _truth(found: FoundMap, pairs: dict[str, Relative], first: str) -> dict[str, object]:
    """Of simulated flights: errors of this map and of the filter's own."""
    known = next((log.truth for log in found.logs if log.truth is not None), None)
    if known is None:
        return {}
    true = {name: pair for name, pair in known.relative(first) if name in pairs}
    errors: dict[str, object] = {"map": {}, "filter": {}}
    errors["map"] = {name: _size(difference(pairs[name], pair)) for name, pair in true.items()}
    errors["filter"] = {
        str(log.path): {
            name: _size(difference(pair, true[name])) for name, pair in log.filter_map.relative(first) if name in true
        }
        for log in found.used
    }
    errors["nees"] = {
        name: float(d @ np.linalg.solve(pairs[name].covariance, d)) / len(d)
        for name, pair in true.items()
        if (d := difference(pairs[name], pair)) is not None
    }
    return errors


def _size(error: np.ndarray) -> dict[str, float]:
    return {"m": float(np.linalg.norm(error[3:])), "deg": float(np.degrees(np.linalg.norm(error[:3])))}


def _show(found: FoundMap, content: Result) -> None:
    details = content["details"]
    for flight in details["flights"]:
        counts = ", ".join(f"'{n}' {c['seen']} ({c['left_out']} left out)" for n, c in flight["markers"].items())
        click.echo(f"{flight['log']}: {flight['images']} images, {flight['duration_s']:.0f} s; markers: {counts}")
        click.echo(f"  corners {flight['corner_px']:.2f} px; images {1e3 * flight['camera_late_s']:+.0f} ms late")
    first = details["relative_to"]
    for name, pair in details["relative"].items():
        place = ", ".join(f"{x:.3f}" for x in pair["p_m"])
        click.echo(f"'{name}' from '{first}': [{place}] m ± {pair['std_m']:.3f} m, ± {pair['std_deg']:.2f}°")
        for log, own in details["filter"].items():
            if name in own:
                click.echo(f"  the filter's map of {log}: {own[name]['m']:.3f} m and {own[name]['deg']:.2f}° from it")
    if "truth" in details:
        for name, error in details["truth"]["map"].items():
            click.echo(f"  true error of '{name}': {error['m']:.3f} m, {error['deg']:.2f}°")
        for log, own in details["truth"]["filter"].items():
            for name, error in own.items():
                click.echo(
                    f"  true error of '{name}' in the filter's map of {log}: {error['m']:.3f} m, {error['deg']:.2f}°"
                )
    for name, reason in details["left_out"].items():
        click.echo(f"left out: '{name}': {reason}")
    for warning in content["warnings"]:
        click.echo(f"warning: {warning}")
