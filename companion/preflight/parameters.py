"""Checks of PX4's parameters by `companion.core.px4_parameters`, and ``--fix``."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from companion.core.px4_parameters import PlannedFlight, Rule, Values, shown
from companion.mission.plan import Plan
from companion.mission.planned_flight import planned_flight
from companion.preflight.observation import LinkFailed, Number
from companion.preflight.report import STATUSES, ParameterChange, PreflightCheck, failed, skipped, warning

ALSO_READ = ("RTL_RETURN_ALT",)  # other rules use its value


class Server(Protocol):
    """Reads and writes the parameters (`companion.preflight.ground.GroundConnection`)."""

    def armed(self) -> bool: ...

    def read(self, names: Iterable[str]) -> dict[str, Number]: ...

    def write(self, name: str, value: Number) -> Number: ...


class ParameterProposal(NamedTuple):
    """What ``--fix`` would set."""

    rule: Rule
    old: Number
    new: Number


def flight_of(plan: Plan | None) -> PlannedFlight | None:
    """What the rules need of a mission; None without one."""
    return None if plan is None else planned_flight(plan)


def names_of(rules: list[Rule]) -> list[str]:
    """The parameters to read."""
    return [*(rule.name for rule in rules), *ALSO_READ]


def parameter_checks(rules: list[Rule], values: Values) -> list[PreflightCheck]:
    """A check for each rule, named after its parameter."""
    return [_check(rule, values) for rule in rules]


def _check(rule: Rule, values: Values) -> PreflightCheck:
    if rule.name in values:
        status, detail = rule.judge(values)
        return PreflightCheck(rule.name, STATUSES[status], detail)
    if rule.optional:
        return skipped(rule.name, "this flight controller has no such parameter")
    return warning(rule.name, f"this flight controller has no such parameter: {rule.why}")


def without_parameters(rules: list[Rule], why: str) -> list[PreflightCheck]:
    """The checks when no parameter can be read."""
    return [skipped("parameters", f"{why} ({len(rules)} of them)")]


def proposals(rules: list[Rule], values: Values) -> list[ParameterProposal]:
    """The values with which no rule fails, where they follow without a person's choice."""
    found: list[ParameterProposal] = []
    for rule in rules:
        if rule.name not in values or rule.judge(values)[0] == "ok":
            continue
        old = values[rule.name]
        new = rule.fix(old, values)
        if new is not None:
            found.append(ParameterProposal(rule, old, type(old)(new)))
    return found


def fix(
    server: Server, wanted: list[ParameterProposal], ask: Callable[[str], str], say: Callable[[str], None]
) -> list[ParameterChange]:
    """Show each change, ask, set, read back. Answers: y, a (this and all that follow), everything else is no.

    Nothing is set while the aircraft is armed; this is checked before every parameter.
    """
    changes: list[ParameterChange] = []
    set_all = False
    for rule, old, new in wanted:
        say(f"{rule.name}: {shown(old)} → {shown(new)}   {rule.why}")
        if not set_all:
            answer = ask("set it? [y/N/a] ").strip().lower()
            set_all = answer in ("a", "all")
            if not set_all and answer not in ("y", "yes"):
                continue
        if server.armed():
            say("no further parameter is set: the aircraft is armed, or does not answer")
            break
        try:
            got = server.write(rule.name, new)
        except LinkFailed as error:
            say(str(error))
            continue
        if abs(got - new) > 1e-6 * max(1.0, abs(new)):
            say(f"{rule.name}: the flight controller kept {shown(got)}")
            continue
        changes.append(ParameterChange(rule.name, old, got))
    return changes


def unreadable(error: LinkFailed) -> list[PreflightCheck]:
    """The check when reading failed."""
    return [failed("parameters", str(error))]
