"""THE safety table: one row per abnormal event.

A row says what is watched, in which phases, the limit (from the vehicle file or the plan), for how long it must be
beyond the limit, what is done and what the ground station reads. `companion.mission.safety_monitor` evaluates it;
``companion safety`` prints it.

Actions, from mild to strong: warn (tell the ground station, go on), hold (stay where the aircraft is), retreat (back
away from the structure), return (fly home and land), land (PX4 lands on the spot), stop (stop streaming; PX4's own
failsafe acts), yield (somebody else is in charge: stop streaming, ask for nothing any more).

Which rows, and the order of their actions: the failsafe ladders of published systems, foremost the MRS UAV system
(T. Baca et al., J. Intelligent & Robotic Systems 102:26, 2021): limits on estimate, innovation, control error, tilt
error (20° for 0.5 s) and throttle (0.8 for 1 s); hover, then land, then failsafe.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from companion.core.enums import Phase, SafetyAction
from companion.core.frames import rotation_matrix
from companion.core.messages import CONTROLLER, ESTIMATOR, FCU, SentSetpoint
from companion.core.vehicle import Vehicle
from companion.mission import phases as ph
from companion.mission.plan import Plan, outside_m
from companion.mission.reference_geometry import to_bundle
from companion.mission.snapshot import SafetySnapshot

ESCALATION_MIN_S = 2.0  # least time between two actions, so that each has a chance to help
ACTIONS = tuple(action for action in SafetyAction if action != SafetyAction.NONE)
LOOP = (ESTIMATOR, CONTROLLER, FCU)  # the processes that hold the aircraft still
# Sensors that the aircraft is held by, at the bundle and elsewhere.
HELD_BY = {True: ("marker", "velocity", "attitude"), False: ("position", "velocity", "attitude")}

Value = Callable[[SafetySnapshot], float | None]


class Monitor(NamedTuple):
    """One abnormal event."""

    name: str
    value: Value  # None: cannot be said, the row rests
    limit: Callable[[Vehicle, Plan], float]
    below: bool  # the event is a value below the limit (else above)
    hysteresis: float  # how far inside the limit a value must come back, in its unit
    after_s: float  # how long the limit must be exceeded
    escalation: tuple[SafetyAction, ...]  # first action, then what follows while the row stays active
    escalation_s: float  # time between two rungs
    phases: tuple[Phase, ...]
    severity: int  # MAV_SEVERITY of the message: 2 critical, 4 warning, 6 information
    text: str
    unit: str
    detail: Callable[[SafetySnapshot], str] | None = None  # which of several, in the message


# --- values ---------------------------------------------------------------------------------------------------------


def _ours(value: Value) -> Value:
    """The value until PX4 has taken over the landing; from then on its estimate counts, not this stack's."""
    return lambda s: None if s.phase == ph.LAND and not s.flown_by_us else value(s)


def _flying(value: Value) -> Value:
    """The value while our setpoints move the aircraft."""
    return lambda s: value(s) if s.flown_by_us else None


def _in_conflict(s: SafetySnapshot) -> float | None:
    return None if s.status is None else float(bool(s.status.conflict))


def _relative_std(s: SafetySnapshot) -> float | None:
    return s.state.relative_std_m if s.state is not None and s.at_bundle else None


def _position_std(s: SafetySnapshot) -> float | None:
    return s.state.position_std_m if s.state is not None and not s.at_bundle else None


def _marker_age(s: SafetySnapshot) -> float | None:
    return s.marker_age_s if s.state is not None and s.at_bundle else None


def _gnss_age(at_bundle: bool) -> Value:
    """Elsewhere than at the bundle a bundle in sight stands in for the satellites."""

    def value(s: SafetySnapshot) -> float | None:
        if not s.gnss_expected or s.at_bundle != at_bundle:
            return None
        return s.gnss_age_s if at_bundle else min(s.gnss_age_s, s.marker_age_s)

    return value


def _both_age(s: SafetySnapshot) -> float | None:
    near = s.at_bundle or s.phase == ph.RETREAT
    return min(s.gnss_age_s, s.marker_age_s) if s.gnss_expected and near else None


def _innovation(s: SafetySnapshot) -> float | None:
    """The worst of the sensors that the aircraft is held by; at the bundle GNSS may be as wrong as it likes."""
    return max((s.nis[sensor] for sensor in HELD_BY[s.at_bundle] if sensor in s.nis), default=None)


def _worst_sensor(s: SafetySnapshot) -> str:
    return max((sensor for sensor in HELD_BY[s.at_bundle] if sensor in s.nis), key=s.nis.get, default="")


def _control_error(s: SafetySnapshot) -> float | None:
    return s.control.position_error_m if s.control is not None and s.control.active != "idle" else None


def _tilt(s: SafetySnapshot) -> float | None:
    """Angle between body z and up [rad]."""
    return None if s.attitude is None else math.acos(_clip(rotation_matrix(s.attitude.q_WB)[2, 2]))


def _tilt_error(s: SafetySnapshot) -> float | None:
    """Angle between body z and the z axis of the setpoint that was sent, each in its own heading frame [rad]."""
    if s.attitude is None or s.sent is None:
        return None
    R = rotation_matrix(s.attitude.q_WB)
    heading = math.atan2(R[1, 0], R[0, 0])
    c, d = math.cos(heading), math.sin(heading)
    x, y, z = R[:, 2]
    sent = _setpoint_axis(s.sent)
    return math.acos(_clip(sent[0] * (c * x + d * y) + sent[1] * (c * y - d * x) + sent[2] * z))


def _setpoint_axis(sent: SentSetpoint) -> tuple[float, float, float]:
    """Body z of Ry(pitch) Rx(roll)."""
    roll, pitch = sent.roll_rad, sent.pitch_rad
    return math.sin(pitch) * math.cos(roll), -math.sin(roll), math.cos(pitch) * math.cos(roll)


def _clip(cosine: float) -> float:
    return float(cosine) if math.isnan(cosine) else max(-1.0, min(1.0, float(cosine)))


def _throttle(s: SafetySnapshot) -> float | None:
    return None if s.sent is None else s.sent.thrust


def _throttle_limit(v: Vehicle, p: Plan) -> float:
    low, high = v.controller.thrust_min, v.controller.thrust_max
    return low + v.safety.throttle_share * (high - low)


def _face_distance(s: SafetySnapshot) -> float | None:
    """Distance to the plane of the bundle's face [m], while the aircraft is in front of it on purpose."""
    if s.state is None or s.state.bundle != s.plan.bundle or not (s.at_bundle or s.phase == ph.RETREAT):
        return None
    return to_bundle(s.state.p_W, 0.0, s.state.p_WM, s.state.q_WM)[0][2]


def _voltage(s: SafetySnapshot) -> float | None:
    voltage_v = s.status.battery_voltage_v if s.status is not None else math.nan
    return voltage_v if voltage_v > 0 else None  # 0 and NaN: not measured


def _outside_fence(s: SafetySnapshot) -> float | None:
    p = s.from_home()
    return None if p is None else outside_m(p, s.plan.limits)


def _height(s: SafetySnapshot) -> float | None:
    p = s.from_home()
    return None if p is None else p[2]


def _distance(s: SafetySnapshot) -> float | None:
    p = s.from_home()
    return None if p is None else math.hypot(p[0], p[1])


def _timesync_age(s: SafetySnapshot) -> float | None:
    age_s = math.nan if s.status is None else s.status.timesync_age_s
    return None if math.isnan(age_s) else age_s


def _oldest_health(s: SafetySnapshot) -> float | None:
    return max(s.health_ages_s.values(), default=None)


def _silent_process(s: SafetySnapshot) -> str:
    return max(s.health_ages_s, key=s.health_ages_s.get, default="")


def _slowest_rate(s: SafetySnapshot) -> float | None:
    return min((s.step_rates[name] for name in LOOP if name in s.step_rates), default=None)


def _slowest_process(s: SafetySnapshot) -> str:
    return min((name for name in LOOP if name in s.step_rates), key=s.step_rates.get, default="")


def _host(name: str) -> Value:
    """A number of the computer's own state; one that it does not tell rests the row."""

    def value(s: SafetySnapshot) -> float | None:
        number = math.nan if s.host is None else float(getattr(s.host, name))
        return None if math.isnan(number) else number

    return value


# --- the table ------------------------------------------------------------------------------------------------------

OURS = (*ph.CONTROLLING, ph.LAND)  # together with `_ours` or `_flying`
IN_AIR = (ph.TAKEOFF, ph.ENTER_OFFBOARD, *ph.CONTROLLING)
BEFORE_RETURN = (*ph.WORKING, ph.PAUSE)
NEAR = (*ph.AT_BUNDLE, *ph.ON_TRAJECTORY, ph.PAUSE)  # the rows of the bundle rest while nothing is flown relative to it

MONITORS: tuple[Monitor, ...] = (
    # who is in charge, and whether it can be reached
    Monitor("rc_takeover", lambda s: float(s.mode_left), lambda v, p: 0.5, False, 0.0, 0.0,
        (SafetyAction.RELINQUISH,), ESCALATION_MIN_S, ph.UNDER_WAY, 4, "mode changed, pilot has control", ""),
    Monitor("switch_off", lambda s: float(s.switched_off), lambda v, p: 0.5, False, 0.0, 0.0,
        (SafetyAction.RELINQUISH,), ESCALATION_MIN_S, (ph.ENTER_OFFBOARD, *ph.CONTROLLING, ph.LAND), 4, "mission switch turned off", ""),
    Monitor("conflict", _in_conflict, lambda v, p: 0.5, False, 0.0, 0.0,
        (SafetyAction.RELINQUISH,), ESCALATION_MIN_S, ph.CONTROLLING, 2, "not alone on the link", "",
        lambda s: s.status.conflict),  # before it, offboard is refused and the flight ends by itself
    Monitor("rc_lost", lambda s: s.rc_age_s if s.rc_expected else None, lambda v, p: v.safety.rc_lost_s, False, 0.2, 0.0,
        (SafetyAction.RETURN,), ESCALATION_MIN_S, BEFORE_RETURN, 4, "no transmitter", "s"),
    Monitor("link_lost", lambda s: s.status_age_s, lambda v, p: v.safety.link_lost_s, False, 0.5, 0.0,
        (SafetyAction.STOP_STREAMING,), ESCALATION_MIN_S, ph.UNDER_WAY, 2, "no word from the flight controller", "s"),
    Monitor("timesync_lost", _timesync_age, lambda v, p: v.safety.timesync_lost_s, False, 0.5, 0.0,
        (SafetyAction.RETURN,), ESCALATION_MIN_S, BEFORE_RETURN, 4, "clocks no longer synchronised", "s"),
    # where the aircraft is
    Monitor("state_stale", _ours(lambda s: s.state_age_s), lambda v, p: v.safety.state_age_s, False, 0.0, 0.0,
        (SafetyAction.STOP_STREAMING,), ESCALATION_MIN_S, OURS, 2, "no valid state", "s"),
    Monitor("estimator_reset", _ours(lambda s: float(s.resets)), lambda v, p: 0.0, False, 0.0, 0.0,
        (SafetyAction.STOP_STREAMING,), ESCALATION_MIN_S, OURS, 2, "estimator started anew, world has moved", "resets"),
    Monitor("innovation", _ours(_innovation), lambda v, p: v.safety.innovation_nis, False, 0.5, 0.5,
        (SafetyAction.HOLD, SafetyAction.LAND, SafetyAction.STOP_STREAMING), 2.0, OURS, 2, "measurements contradict the estimate", "NIS per number",
        _worst_sensor),  # no retreat: an estimate that is in doubt must not fly near a structure
    Monitor("uncertainty_relative", _relative_std, lambda v, p: v.safety.relative_std_m, False, 0.05, 0.5,
        (SafetyAction.HOLD, SafetyAction.RETREAT), 3.0, NEAR, 4, "position to the bundle uncertain", "m"),
    Monitor("uncertainty_position", _ours(_position_std), lambda v, p: v.safety.position_std_m, False, 0.2, 1.0,
        (SafetyAction.HOLD, SafetyAction.LAND, SafetyAction.STOP_STREAMING), 5.0, OURS, 2, "position uncertain", "m"),
    Monitor("marker_lost", _marker_age, lambda v, p: v.safety.marker_lost_s, False, 0.0, 0.0,
        (SafetyAction.HOLD, SafetyAction.RETREAT), 5.0, NEAR, 4, "bundle not seen", "s"),
    Monitor("gnss_lost_at_bundle", _gnss_age(True), lambda v, p: v.safety.gnss_lost_s, False, 0.5, 0.0,
        (SafetyAction.WARN,), ESCALATION_MIN_S, NEAR, 4, "no satellite fix, held by the bundle alone", "s"),
    Monitor("gnss_lost", _ours(_gnss_age(False)), lambda v, p: v.safety.gnss_lost_s, False, 0.5, 0.0,
        (SafetyAction.HOLD, SafetyAction.LAND, SafetyAction.STOP_STREAMING), 2.0, (*ph.WORKING, ph.PAUSE, ph.RETURN, ph.LAND), 2, "no satellite fix", "s"),
    Monitor("both_lost", _both_age, lambda v, p: v.safety.both_lost_s, False, 0.5, 0.0,
        (SafetyAction.RETREAT, SafetyAction.LAND, SafetyAction.STOP_STREAMING), 4.0, (*NEAR, ph.RETREAT), 2, "neither satellites nor bundle", "s"),
    # whether it goes where it is sent
    Monitor("control_error", _ours(_control_error), lambda v, p: v.safety.control_error_m, False, 0.3, 0.5,
        (SafetyAction.HOLD, SafetyAction.RETREAT, SafetyAction.LAND, SafetyAction.STOP_STREAMING), 3.0, OURS, 2, "off the reference", "m"),
    Monitor("tilt", _flying(_tilt), lambda v, p: v.safety.tilt_rad, False, 0.1, 0.1,
        (SafetyAction.STOP_STREAMING,), ESCALATION_MIN_S, OURS, 2, "tilted too far", "rad"),
    Monitor("tilt_error", _flying(_tilt_error), lambda v, p: v.safety.tilt_error_rad, False, 0.1, 0.5,
        (SafetyAction.LAND, SafetyAction.STOP_STREAMING), 3.0, OURS, 2, "does not tilt as commanded", "rad"),
    Monitor("throttle", _flying(_throttle), _throttle_limit, False, 0.02, 1.0,
        (SafetyAction.HOLD, SafetyAction.LAND, SafetyAction.STOP_STREAMING), 2.5, OURS, 2, "hardly any thrust left", "of full command"),
    Monitor("standoff", _face_distance, lambda v, p: v.safety.standoff_min_m, True, 0.1, 0.2,
        (SafetyAction.RETREAT, SafetyAction.LAND, SafetyAction.STOP_STREAMING), 4.0, (*NEAR, ph.RETREAT), 2, "too near to the structure", "m"),
    Monitor("fence", _ours(_outside_fence), lambda v, p: 0.0, False, 0.1, 0.5,
        (SafetyAction.HOLD, SafetyAction.RETREAT, SafetyAction.LAND, SafetyAction.STOP_STREAMING), 4.0, OURS, 2, "outside the fence", "m"),
    Monitor("height", _ours(_height), lambda v, p: p.limits.height_m, False, 0.1, 0.5,
        (SafetyAction.HOLD, SafetyAction.LAND, SafetyAction.STOP_STREAMING), 4.0, OURS, 2, "too high", "m"),
    Monitor("distance", _ours(_distance), lambda v, p: p.limits.distance_m, False, 0.1, 0.5,
        (SafetyAction.HOLD, SafetyAction.RETREAT, SafetyAction.LAND, SafetyAction.STOP_STREAMING), 4.0, OURS, 2, "too far from the take-off point", "m"),
    # what it flies with
    Monitor("battery_low", _voltage, lambda v, p: v.safety.battery_low_v, True, 0.3, 3.0,
        (SafetyAction.RETURN,), ESCALATION_MIN_S, BEFORE_RETURN, 4, "battery low", "V"),
    Monitor("battery_critical", _voltage, lambda v, p: v.safety.battery_critical_v, True, 0.3, 2.0,
        (SafetyAction.LAND,), ESCALATION_MIN_S, IN_AIR, 2, "battery critical", "V"),
    # the software
    Monitor("setpoints_lost", _ours(lambda s: s.setpoints_age_s), lambda v, p: v.safety.setpoints_lost_s, False, 0.2, 0.0,
        (SafetyAction.STOP_STREAMING,), ESCALATION_MIN_S, OURS, 2, "controller sends no setpoints", "s"),
    Monitor("fallback_too_long", lambda s: s.fallback_time_s, lambda v, p: v.safety.fallback_s, False, 0.0, 0.0,
        (SafetyAction.RETURN,), ESCALATION_MIN_S, BEFORE_RETURN, 4, "controller stays on its fallback", "s"),
    Monitor("solver_failing", lambda s: s.solver_failures, lambda v, p: v.safety.failing_share, False, 0.1, 1.0,
        (SafetyAction.HOLD, SafetyAction.RETURN), 5.0, BEFORE_RETURN, 4, "solver fails", "of its cycles"),
    Monitor("deadline", lambda s: s.deadline_misses, lambda v, p: v.safety.failing_share, False, 0.1, 1.0,
        (SafetyAction.HOLD, SafetyAction.RETURN), 5.0, BEFORE_RETURN, 4, "controller comes too late", "of its cycles"),
    Monitor("process_dead", _oldest_health, lambda v, p: v.safety.process_dead_s, False, 0.5, 0.0,
        (SafetyAction.HOLD, SafetyAction.RETURN), 5.0, BEFORE_RETURN, 4, "a process is silent", "s", _silent_process),
    # the computer
    Monitor("cpu_starved", _slowest_rate, lambda v, p: v.safety.step_rate_share, True, 0.05, 1.0,
        (SafetyAction.HOLD, SafetyAction.RETURN), 3.0, BEFORE_RETURN, 4, "processes come too late", "of their rate", _slowest_process),
    Monitor("cpu_hot", _host("cpu_temperature_c"), lambda v, p: v.safety.cpu_temperature_c, False, 3.0, 3.0,
        (SafetyAction.RETURN,), ESCALATION_MIN_S, BEFORE_RETURN, 4, "companion computer too hot", "°C"),
    Monitor("cpu_throttled", _host("throttled"), lambda v, p: 0.5, False, 0.0, 3.0,
        (SafetyAction.WARN,), ESCALATION_MIN_S, IN_AIR, 4, "companion computer throttled", ""),
    Monitor("disk_full", _host("disk_free_mb"), lambda v, p: v.safety.disk_free_mb, True, 20.0, 2.0,
        (SafetyAction.RETURN,), ESCALATION_MIN_S, BEFORE_RETURN, 4, "no space for the flight log", "MB"),
    Monitor("memory_low", _host("memory_free_mb"), lambda v, p: v.safety.memory_free_mb, True, 20.0, 2.0,
        (SafetyAction.RETURN,), ESCALATION_MIN_S, BEFORE_RETURN, 4, "companion computer has no memory left", "MB"),
)  # fmt: skip
