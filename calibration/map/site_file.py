"""Writes surveys into a marker file: everything else in it stays as it is, comments too."""

import tomllib
from collections.abc import Mapping
from itertools import permutations
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable, Table

from calibration.map.combine import SiteMap, with_surveyed
from calibration.results import write_whole
from calibration.vehicle_file import bracketed, with_note
from companion.core.command_line import check_output_file
from companion.core.config import ConfigError, parse, read_toml
from companion.core.frames import quat_from_matrix, rpy_from_quat
from companion.core.site import CUSTOM_PREFIX, Site, Survey

LEAST_STD = 0.001  # of a survey, as `companion.core.site.Survey` allows
PLACE_DIGITS, ANGLE_DIGITS, STD_DIGITS = 4, 6, 4
TRIAL = Survey(p_S=(0.0, 0.0, 0.0), rpy_S_rad=(0.0, 0.0, 0.0), std_m=1.0, std_rad=0.5)


def surveys_of(found: SiteMap, kept: Mapping[str, Survey] | None = None) -> dict[str, Survey]:
    """A survey of each bundle, whose standard deviations make no pair of bundles more certain than it is.

    kept: surveys of other bundles, which stay in the file as they are; the map is then in their frame. The filter takes
    std_A² + std_B² + (distance std_rad_A)² for the place of B by A, and the sum of the squares for its rotation. Of a pair that the map determines
    both bundles take half; of a pair with a kept survey the other one takes what is missing.
    """
    kept = kept or {}
    whole, count = with_surveyed(found, kept), len(found.bundles)
    rad = [LEAST_STD] * count + [survey.std_rad for survey in kept.values()]
    m = [LEAST_STD] * count + [survey.std_m for survey in kept.values()]
    pairs = [
        (i, j, whole.between(whole.bundles[i], whole.bundles[j]))
        for i, j in permutations(range(len(whole.bundles)), 2)
        if min(i, j) < count
    ]
    for i, j, pair in pairs:
        _raise(rad, i, j, count, pair.std_rad**2)
    for i, j, pair in pairs:
        lever_m2 = float(pair.p_AB @ pair.p_AB) * rad[i] ** 2
        _raise(m, i, j, count, pair.std_m**2 - lever_m2)
    surveys = {}
    for name, R, p, std_m, std_rad in zip(found.bundles, found.R, found.p, m[:count], rad[:count], strict=True):
        place, angles = [round(float(x), PLACE_DIGITS) for x in p], rpy_from_quat(quat_from_matrix(R))
        roll, pitch, yaw = (round(angle, ANGLE_DIGITS) for angle in angles)
        surveys[name] = Survey(
            p_S=(place[0], place[1], place[2]),
            rpy_S_rad=(roll, pitch, yaw),
            std_m=_rounded_up(std_m),
            std_rad=_rounded_up(std_rad),
        )
    return surveys


def _raise(std: list[float], i: int, j: int, count: int, variance: float) -> None:
    """Raise standard deviations of a pair so that their squares add up to a variance; those from `count` on stay as they are."""
    if max(i, j) < count:
        half = (max(0.0, variance) / 2) ** 0.5
        std[i], std[j] = max(std[i], half), max(std[j], half)
    else:
        new, fixed = min(i, j), max(i, j)
        std[new] = max(std[new], max(0.0, variance - std[fixed] ** 2) ** 0.5)


def _rounded_up(std: float) -> float:
    return float(round(std + 0.5 * 10.0**-STD_DIGITS, STD_DIGITS))


def with_surveys(path: Path, surveys: Mapping[str, Survey], logs: list[str]) -> str:
    """The text of the marker file with the surveys in it; raises `ConfigError` if it cannot be edited in place."""
    text, tables = _edited(path, surveys, bracketed(f"calibrate map {', '.join(logs)}"))
    if problem := parse(tables, Site, str(path)).contradiction():
        raise ConfigError(f"{path}: nothing written: {problem}")
    return text


def _edited(path: Path, surveys: Mapping[str, Survey], note: str) -> tuple[str, dict[str, Any]]:
    """Text and tables of the marker file with the surveys, each with the note; raises `ConfigError`."""
    tables = read_toml(path)
    try:
        with open(path, encoding="utf-8", newline="") as file:
            document = tomlkit.parse(file.read().removeprefix("\ufeff"))
        for bundle, plain in zip(document["bundle"], tables["bundle"], strict=True):
            if (survey := surveys.get(str(bundle["name"]))) is None:
                continue
            plain["survey"] = _values(survey)
            if "survey" in bundle:
                _replace(bundle["survey"], _values(survey), "" if isinstance(bundle, InlineTable) else note)
            else:
                inline = tomlkit.inline_table()
                inline.update(_values(survey))
                inline.comment(note)
                bundle.append("survey", inline)
        text = tomlkit.dumps(document)
        if tomllib.loads(text) != tables:
            raise ValueError("the editor does not support its layout: write the surveys by hand")
    except (OSError, TOMLKitError, tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be edited in place: {error}") from None
    return text, tables


def _values(survey: Survey) -> dict[str, Any]:
    return {
        "p_S": list(survey.p_S),
        "rpy_S_rad": list(survey.rpy_S_rad),
        "std_m": survey.std_m,
        "std_rad": survey.std_rad,
    }


def _replace(table: Any, values: dict[str, Any], note: str) -> None:
    """New values in the table of a survey; the note goes behind the table's head, or, without one, behind its place.

    note: "" inside an inline table, which cannot hold comments.
    """
    for key, value in values.items():
        item = tomlkit.item(value)
        if note and key == "p_S" and not _has_head(table):  # survey.p_S = [...]
            old = table[key].trivia.comment if key in table else ""
            item.comment(with_note(old, note).removeprefix("# "))
        table[key] = item
    if note and _has_head(table):
        table.comment(with_note(table.trivia.comment, note).removeprefix("# "))


def _has_head(table: Any) -> bool:
    """False: its keys are dotted."""
    return isinstance(table, InlineTable) or (isinstance(table, Table) and not table.is_super_table())


def check_output(site_file: Path, site: Site, out: Path | None, force: bool) -> Path | None:
    """Where the surveys go; None: nowhere.

    Raises `ConfigError` for a file that must not be replaced, or cannot be edited, and `OutputError` for one that cannot be written.
    """
    if out is None and not force:
        return None
    _edited(site_file, {bundle.name: TRIAL for bundle in site.bundle}, bracketed("trial"))
    if out is None:
        check_output_file(site_file)
        return site_file
    if out.exists() and not force:
        raise ConfigError(f"{out}: exists already; --force replaces it")
    moved = out.resolve().parent != site_file.resolve().parent
    if moved and any(m.family.startswith(CUSTOM_PREFIX) for bundle in site.bundle for m in bundle.markers):
        raise ConfigError(
            f"{out}: {site_file} names marker dictionaries relative to its folder: write into that folder"
        )
    return out


def survey_lines(surveys: Mapping[str, Survey]) -> list[str]:
    """Lines for a marker file, to be written by hand."""
    lines = []
    for name, survey in surveys.items():
        inline = tomlkit.inline_table()
        inline.update(_values(survey))
        lines.append(f"survey = {inline.as_string()} # '{name}'")
    return lines


def write_surveys(site_file: Path, out: Path, surveys: Mapping[str, Survey], logs: list[str]) -> None:
    """Write the marker file with the surveys; raises `ConfigError`."""
    write_whole(out, with_surveys(site_file, surveys, logs))
