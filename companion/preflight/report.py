"""The output of a preflight: one line per named check, and the same as JSON."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Status = Literal["ok", "warning", "failed", "skipped"]
NAME_WIDTH = 18
WORDS: dict[Status, str] = {"ok": "ok", "warning": "warning", "failed": "FAILED", "skipped": "skipped"}
STATUSES: dict[str, Status] = {"ok": "ok", "warning": "warning", "failed": "failed", "skipped": "skipped"}
COLOURS: dict[Status, str] = {"ok": "green", "warning": "yellow", "failed": "red", "skipped": "bright_black"}


class Check(msgspec.Struct, frozen=True):
    """One named check and what it found."""

    name: Annotated[str, Meta(min_length=1)]
    status: Status
    detail: str


class Change(msgspec.Struct, frozen=True):
    """A parameter that was set, read back from the flight controller."""

    parameter: str
    old: int | float
    new: int | float


class Report(msgspec.Struct, frozen=True):
    """A whole preflight. ``passed``: no check failed; warnings and skipped checks do not count against it."""

    at_utc: str  # ISO 8601
    vehicle_file: str
    mission_file: str | None
    fcu_url: str
    passed: bool
    checks: list[Check]
    changes: list[Change]


def ok(name: str, detail: str = "") -> Check:
    return Check(name, "ok", detail)


def warning(name: str, detail: str) -> Check:
    return Check(name, "warning", detail)


def failed(name: str, detail: str) -> Check:
    return Check(name, "failed", detail)


def skipped(name: str, why: str) -> Check:
    return Check(name, "skipped", why)


def worst(name: str, failures: list[str], warnings: list[str], detail: str) -> Check:
    """One check of several findings: it has the status of the worst finding, and the worst findings come first."""
    findings = "; ".join([*failures, *warnings])
    if findings:
        return Check(name, "failed" if failures else "warning", findings + (f" ({detail})" if detail else ""))
    return ok(name, detail)


def line(check: Check) -> str:
    """The check as one line for a person."""
    return f"{check.name:<{NAME_WIDTH}} {WORDS[check.status]:<8} {check.detail}".rstrip()


def summary(checks: list[Check]) -> str:
    """The last line."""
    count = {status: sum(check.status == status for check in checks) for status in WORDS}
    parts = [f"{count[status]} {WORDS[status]}" for status in ("failed", "warning", "skipped", "ok") if count[status]]
    return f"{'not ready' if count['failed'] else 'ready'}: {', '.join(parts)}"


def schema() -> dict[str, Any]:
    """JSON schema of what ``--json`` writes."""
    return msgspec.json.schema(Report)
