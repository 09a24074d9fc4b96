"""Named checks before the mission may begin.

Each check looks at the newest messages and says why it is not content; nothing is remembered, so a check that was
passed can fail again while the aircraft waits.
"""

from collections.abc import Iterable
from typing import NamedTuple

from companion.core.messages import (
    TOPICS,
    ControlStatus,
    FcuAttitude,
    FcuPosition,
    FcuStatus,
    Health,
    Markers,
    Message,
    State,
)
from companion.core.node import Latest
from companion.core.vehicle import Vehicle
from companion.mission.plan import Plan

# Modes from which no mission may be started; PX4 itself does not arm in those that end a flight.
NO_START_MODES = ("", "OFFBOARD", "AUTO_RTL", "AUTO_LAND", "AUTO_PRECLAND", "TERMINATION")


class Check(NamedTuple):
    """One named check; ``problem`` is empty when it passed."""

    name: str
    problem: str


def run_checks(
    latest: Latest,
    healths: dict[str, Health],
    vehicle: Vehicle,
    plan: Plan,
    home_inputs: bool,
    now_s: float,
    required_processes: Iterable[str] = (),
) -> list[Check]:
    """All checks, in the order in which a user would mend them.

    latest: newest message of each topic; healths: newest `Health` of each process; home_inputs: the take-off point in
    the estimator's world has been taken; required_processes: processes whose `Health` must be arriving.
    """
    status = latest.fresh(FcuStatus, now_s)
    linked = isinstance(status, FcuStatus) and status.connected
    checks = [Check("link", "" if linked else "no word from the flight controller")]
    if linked:
        checks += _fcu_checks(status, vehicle, plan)
    checks.append(_alive(latest, FcuPosition, "position", "no position from the flight controller", now_s))
    checks.append(_alive(latest, FcuAttitude, "attitude", "no attitude from the flight controller", now_s))
    checks.append(_state_check(latest, vehicle, now_s))
    checks.append(Check("take-off point", "" if home_inputs else "not known: no valid state on the ground yet"))
    checks.append(_alive(latest, ControlStatus, "controller", "no status from the controller", now_s))
    if plan.bundle is not None:
        checks.append(_alive(latest, Markers, "tracker", "no markers message, is the camera running?", now_s))
    checks += [_process_check(name, healths.get(name), now_s) for name in required_processes]
    return checks


def problems(checks: list[Check]) -> str:
    """The checks that are not content, in one line; empty when all passed."""
    return "; ".join(f"{check.name}: {check.problem}" for check in checks if check.problem)


def _fcu_checks(status: FcuStatus, vehicle: Vehicle, plan: Plan) -> list[Check]:
    unfit = status.mode in NO_START_MODES or status.mode.startswith("UNKNOWN")
    mode_problem = f"mode is {status.mode or 'unknown'}" if unfit else ""
    voltage_v, low_v = status.battery_voltage_v, vehicle.safety.battery_low_v
    if not voltage_v > 0:
        battery_problem = "voltage not measured"
    else:
        battery_problem = "" if voltage_v > low_v else f"{voltage_v:.1f} V, must be above {low_v:.1f} V"
    checks = [
        Check("flight controller", status.refused),
        Check("mode", mode_problem),
        Check("gnss", "" if status.gnss_ok else "no fix"),
        Check("battery", battery_problem),
        Check("home", "" if status.home_W is not None else "the flight controller has no home position"),
    ]
    if plan.start == "auto":
        checks.append(Check("on the ground", "" if status.landed and not status.armed else "must be landed, disarmed"))
    else:
        checks.append(Check("rc", "" if status.rc_ok else "no transmitter"))
    return checks


def _state_check(latest: Latest, vehicle: Vehicle, now_s: float) -> Check:
    state = latest.fresh(State, now_s)
    if state is None:
        age_s = latest.age_s(State, now_s)
        problem = "no state from the estimator" if age_s > vehicle.safety.state_age_s else "not converged yet"
    elif state.position_std_m > vehicle.safety.position_std_m:
        problem = f"uncertain by {state.position_std_m:.1f} m"
    else:
        problem = ""
    return Check("state", problem)


def _alive(latest: Latest, kind: type[Message], name: str, problem: str, now_s: float) -> Check:
    return Check(name, "" if latest.fresh(kind, now_s) is not None else problem)


def _process_check(name: str, health: Health | None, now_s: float) -> Check:
    if health is None or now_s - health.stamp_s > TOPICS["health"].max_age_s:
        return Check(name, "no health message")
    return Check(name, f"{health.errors} errors, last: {health.last_error}" if health.errors else "")
