"""Named checks before the mission may begin.

Each check evaluates the newest messages and returns why it fails. No result is kept, so a check that passed can fail
again while the aircraft waits.
"""

from collections.abc import Iterable, Mapping
from math import inf, isfinite
from types import MappingProxyType
from typing import NamedTuple

from companion.core.enums import FcuMode, FcuSystem, ImuFault, ProcessName
from companion.core.messages import (
    TOPICS,
    ControlStatus,
    EstimatorStatus,
    FcuAttitude,
    FcuPosition,
    FcuStatus,
    Health,
    Markers,
    Message,
    PayloadStatus,
    State,
)
from companion.core.node import Latest
from companion.core.vehicle import Vehicle
from companion.core.voltage import is_plausible
from companion.mission.plan import Plan

# Modes from which no mission may be started; PX4 itself does not arm in those that end a flight.
NO_START_MODES = (
    FcuMode.UNKNOWN,
    FcuMode.OFFBOARD,
    FcuMode.AUTO_RTL,
    FcuMode.AUTO_LAND,
    FcuMode.AUTO_PRECLAND,
    FcuMode.TERMINATION,
)
# A stream that is slow or absent is no reason not to fly: the filter propagates by the commands.
IMU_WRONG = (ImuFault.DIRECTION, ImuFault.TURNS, ImuFault.FORCES, ImuFault.FROZEN, ImuFault.STAMPS)
NEVER_WITHOUT = (FcuSystem.GYRO, FcuSystem.ACCELEROMETER, FcuSystem.ATTITUDE, FcuSystem.MOTORS)
# Steel of a bridge disturbs the compass, and wind before a pier the barometer: a crew may want to fly nevertheless, and must know.
WARNED_OF = (FcuSystem.COMPASS, FcuSystem.BAROMETER)
CAMERA_PROCESSES = (ProcessName.CAMERA, ProcessName.TRACKER)
ERRORS_QUIET_S = 10.0  # without a new error of a process before a mission starts
EMPTY: Mapping[ProcessName, float] = MappingProxyType({})
SEEN_S = 0.5  # oldest observation of a bundle that is in sight


class StartCheck(NamedTuple):
    """One named check; ``problem`` is empty when it passed."""

    name: str
    problem: str


def run_checks(
    latest: Latest,
    healths: dict[ProcessName, Health],
    vehicle: Vehicle,
    plan: Plan,
    home_known: bool,
    now_s: float,
    required_processes: Iterable[ProcessName] = (),
    files: str = "",
    errors_s: Mapping[ProcessName, float] = EMPTY,
) -> list[StartCheck]:
    """All checks, in the order in which a user would correct them.

    latest: newest message of each topic; healths: newest `Health` of each process; home_known: the take-off point in
    the estimator's world has been taken; required_processes: processes whose `Health` must be arriving; those of
    the camera only if the plan needs one. files: fingerprint of those that the mission was started with. errors_s: when
    each process counted its newest error.
    """
    status = latest.fresh(FcuStatus, now_s)
    linked = status is not None and status.connected
    checks = [StartCheck("link", "" if linked else "no data from the flight controller")]
    if status is not None and linked:
        checks += _fcu_checks(status, vehicle, plan)
    if plan.satellites:
        checks.append(_alive(latest, FcuPosition, "position", "no position from the flight controller", now_s))
    checks.append(_alive(latest, FcuAttitude, "attitude", "no attitude from the flight controller", now_s))
    checks.append(_state_check(latest, vehicle, plan, now_s))
    checks.append(_imu_check(latest, plan, now_s))
    if not plan.satellites:
        checks.append(_bundle_check(latest, plan, now_s))
    if plan.needs_camera:
        checks.append(_upright_check(latest, plan, now_s))
    checks.append(StartCheck("take-off point", "" if home_known else "not known: no valid state on the ground yet"))
    checks.append(_alive(latest, ControlStatus, "controller", "no status from the controller", now_s))
    if plan.needs_camera:
        checks.append(_alive(latest, Markers, "tracker", "no markers message, is the camera running?", now_s))
    if plan.inspection is not None:
        checks.append(_payload_check(latest, now_s))
    required = [name for name in required_processes if plan.needs_camera or name not in CAMERA_PROCESSES]
    quiet = {name for name in required if now_s - errors_s.get(name, -inf) > ERRORS_QUIET_S}
    return checks + [_process_check(name, healths.get(name), files, name in quiet, now_s) for name in required]


def problems(checks: list[StartCheck]) -> str:
    """The checks that fail, in one line; empty when all passed."""
    return "; ".join(f"{check.name}: {check.problem}" for check in checks if check.problem)


def _fcu_checks(status: FcuStatus, vehicle: Vehicle, plan: Plan) -> list[StartCheck]:
    mode_problem = f"mode is {status.mode}" if status.mode in NO_START_MODES else ""
    voltage_v, low_v = status.battery_voltage_v, vehicle.safety.battery_low_v
    reference_v = vehicle.thrust.reference_voltage_v
    if not voltage_v > 0:
        battery_problem = "voltage not measured"
    elif not is_plausible(voltage_v, reference_v) and voltage_v > low_v:
        battery_problem = f"{voltage_v:.1f} V is not possible with thrust.reference_voltage_v = {reference_v:g}: wrong battery or file"
    else:
        battery_problem = "" if voltage_v > low_v else f"{voltage_v:.1f} V, must be above {low_v:.1f} V"
    checks = [
        StartCheck("flight controller", status.refused),
        StartCheck("mode", mode_problem),
        StartCheck("battery", battery_problem),
        StartCheck("health", _unhealthy(status)),
    ]
    if plan.satellites:
        home_problem = "" if status.home_W is not None else "the flight controller has no home position"
        checks.insert(2, StartCheck("gnss", "" if status.gnss_ok else "no fix"))
        checks.append(StartCheck("home", home_problem))
    else:
        measured = isfinite(status.baro_altitude_m)
        checks.append(
            StartCheck("height", "" if measured else "no height by pressure from the flight controller (ALTITUDE)")
        )
    if plan.start == "auto":
        checks.append(
            StartCheck("on the ground", "" if status.landed and not status.armed else "must be landed, disarmed")
        )
    else:
        checks.append(StartCheck("rc", "" if status.rc_ok else "no RC"))
    return checks


def _unhealthy(status: FcuStatus) -> str:
    """The faults with which no mission starts."""
    unhealthy = [system for system in status.unhealthy_systems if system in NEVER_WITHOUT]
    return f"the flight controller reports a fault: {', '.join(unhealthy)}" if unhealthy else ""


def health_warning(status: FcuStatus | None) -> str:
    """Faults with which a mission may start, "" without one: the monitor `fcu_unhealthy` reports those that come later."""
    faults = () if status is None else tuple(s for s in status.unhealthy_systems if s in WARNED_OF)
    return f"the flight controller reported a fault before the start: {', '.join(faults)}" if faults else ""


def _state_check(latest: Latest, vehicle: Vehicle, plan: Plan, now_s: float) -> StartCheck:
    state = latest.fresh(State, now_s)
    std_m = 0.0
    if state is not None:  # without satellites the place in the world does not matter, once the bundle is known
        std_m = state.position_std_m if plan.satellites else min(state.position_std_m, state.relative_std_m)
    if state is None:
        age_s = latest.age_s(State, now_s)
        problem = "no state from the estimator" if age_s > vehicle.safety.state_age_s else "not converged yet"
    elif std_m > vehicle.safety.position_std_m:
        problem = f"uncertain by {std_m:.1f} m"
    else:
        problem = ""
    return StartCheck("state", problem)


def _bundle_check(latest: Latest, plan: Plan, now_s: float) -> StartCheck:
    """In a flight without satellites the bundle is the only position: the mission takes over in sight of it."""
    state = latest.fresh(State, now_s)
    seen = state is not None and state.bundle == plan.bundle and state.marker_age_s + now_s - state.stamp_s < SEEN_S
    return StartCheck(
        "bundle",
        "" if seen else f"'{plan.bundle}' is not in sight, and without satellites nothing else gives a position",
    )


def _upright_check(latest: Latest, plan: Plan, now_s: float) -> StartCheck:
    """A print that hangs the wrong way up: its bundle is not used, and the mission would search it in vain."""
    status = latest.fresh(EstimatorStatus, now_s)
    named = () if status is None else status.upside_down
    used = ", ".join(f"'{name}'" for name in named if plan.uses(name))
    problem = f"{used} hangs upside down: turn the print, or correct plumb in the marker file"
    return StartCheck("bundle upright", problem if used else "")


def _imu_check(latest: Latest, plan: Plan, now_s: float) -> StartCheck:
    status = latest.fresh(EstimatorStatus, now_s)
    imu = None if status is None else status.imu
    if not plan.satellites and (imu is None or not imu.rate_hz > 0.0 or imu.fault is not None):
        why = "" if imu is None else imu.problem
        return StartCheck(
            "inertial measurements", f"not used{f' ({why})' if why else ''}; without satellites they are needed"
        )
    return StartCheck("inertial measurements", imu.problem if imu is not None and imu.fault in IMU_WRONG else "")


def imu_warning(latest: Latest, vehicle: Vehicle, now_s: float) -> str:
    """What a crew must know of a stream of inertial measurements that is too slow or absent; "" when it is used."""
    status, wanted_hz = latest.fresh(EstimatorStatus, now_s), vehicle.fcu.imu_rate_hz
    imu = None if status is None else status.imu
    if imu is None or wanted_hz == 0.0 or (imu.rate_hz > 0.0 and imu.fault is None):
        return ""
    return (
        f"inertial measurements at {imu.rate_hz:.0f} of {wanted_hz:g} Hz are not used: the filter propagates by the "
        "commands, gusts move the aircraft more; a faster link, or fcu.imu_rate_hz = 0"
    )


def _alive(latest: Latest, kind: type[Message], name: str, problem: str, now_s: float) -> StartCheck:
    return StartCheck(name, "" if latest.fresh(kind, now_s) is not None else problem)


def _payload_check(latest: Latest, now_s: float) -> StartCheck:
    """A flight without its photographs is worth nothing: the payload camera must be able to take one."""
    status = latest.fresh(PayloadStatus, now_s)
    return StartCheck("payload camera", "no status from the payload process" if status is None else status.problem)


def _process_check(name: ProcessName, health: Health | None, files: str, quiet: bool, now_s: float) -> StartCheck:
    """quiet: it counts no errors at present, such as those of a log that cannot be written."""
    if health is None or now_s - health.stamp_s > TOPICS["health"].max_age_s:
        return StartCheck(name, "no health message, is it running?")
    if files and health.files not in ("", files):
        problem = "a file of this flight was changed after it or the mission was started: start the whole stack again"
        return StartCheck(name, problem)
    return StartCheck(name, "" if quiet else f"{health.errors} errors, last: {health.last_error}")
