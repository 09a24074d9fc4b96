"""THE safety table: one monitor per abnormal event.

A monitor names the value that it watches, the phases, the limit (from the vehicle file or the plan), how long the
value must be beyond the limit, the actions, and the text for the ground station. `companion.mission.safety_monitor`
evaluates the table; ``companion safety`` prints it.

Actions, from mild to strong: warn (report to the ground station, continue), hold (stay at the present position),
retreat (back away from the structure), return (fly home and land), land (PX4 lands on the spot), stop streaming (no
setpoints; PX4's own failsafe acts), relinquish (another station is in charge: no setpoints, no requests).

The choice of monitors and the order of their actions follow published systems, foremost the MRS UAV system
(T. Baca et al., J. Intelligent & Robotic Systems 102:26, 2021): limits on estimate, innovation, control error, tilt
error (20° for 0.5 s) and throttle (0.8 for 1 s); hover, then land, then failsafe.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from companion.core.enums import ControlSource, Phase, ProcessName, SafetyAction, Sensor
from companion.core.frames import rotation_matrix
from companion.core.messages import BundleWitness, HostStatus
from companion.core.vehicle import Vehicle
from companion.mission import phases as ph
from companion.mission import raw_guard
from companion.mission.plan import Plan, outside_m
from companion.mission.range_finder import RANGE_AGE_S, measured_m, shortfall
from companion.mission.raw_guard import RawMotion
from companion.mission.reference_geometry import to_bundle
from companion.mission.requests import CRITICAL, WARNING
from companion.mission.snapshot import SafetySnapshot
from companion.mission.tilt_error import angle

TAKEOFF_SLOWEST_M_S = 0.3  # a climb slower than this has failed
LANDING_SLOWEST_M_S = 0.35  # half of MPC_LAND_SPEED, from the highest that the mission may be
LANDING_SPARE_S = 15.0  # beyond the way down: the stop before it, PX4's land detector, the disarming after it
TAKEOFF_SPARE_S = 15.0  # beyond the climb: rotors start, PX4's ramp, the last decimetres
TAKEOFF_DRIFT_M = 1.0  # over a limit: wind moves the aircraft by this much until PX4 has learnt it
TAKEOFF_OVER_M = 1.0  # gusts lift the aircraft by half of this while PX4 climbs
TAKEOFF_OVER_LIMIT_M = 0.25  # over limits.height_m, where that is less
CLIMB_DELAY_S = 0.5  # from the position to PX4's answer to a command
CLIMB_CONFIRM_S = 0.1  # for which it lasts before it counts: not by one message
CLIMB_BRAKE_M_S2 = 2.0  # MPC_ACC_DOWN_MAX is 3, reached after a limited jerk
SPEED_SPARE_M_S = 3.0  # over the plan's fastest reference: a gust of some seconds
# Mean of two seconds. The error of EKF2's velocity reaches 0.2 m/s on each axis for some seconds: together 0.35 m/s, and
# 0.57 m/s in a flight of two minutes that is healthy.
VELOCITY_DIFFERENCE_M_S = 0.8
VELOCITY_KICK_S = 0.6  # a fix that jumps by 3 m gives PX4's velocity an error that decays within seconds
RAW_AGE_S = 1.0
RAW_OFF_S = 5.0  # without a value of the independent guard; after a fix has come back it has none for as long
RESET_M = 6.0  # receivers jump by 3 m near structures; PX4 resets to such a fix after seconds of dead reckoning at 0.2 m/s and more
VOLTAGE_AGE_S = 3.0  # a status without a voltage comes 5 s after the last measurement
LOW_M = 0.25  # below the lowest reference; a gust moves a hovering aircraft by less
WEAK_CELL_V = 0.3  # below the mean of the cells; a healthy lithium pack keeps 0.1 V under load
# Lasting, of one accelerometer: PX4 1.17 says "not safe to fly" from 1000 samples on (vehicle_imu), no more than once in 3 s.
CLIPPING_HZ = 100.0
RESERVE_S = 30.0  # of flight time beyond the way home and the landing
WAY_SPARE = 1.2  # time of the way home over that of its moves: arrival at each place, wind
LANDING_M_S = 0.7  # MPC_LAND_SPEED
LANDING_SPARE_S = 15.0  # ground detection, disarming
STRONG_WIND_SHARE = 0.95  # the same in the mean of ten seconds: the next gust carries the aircraft away
CARRIED_PART = 0.5  # of safety.control_error_m: with no tilt left there is nothing to wait for
CARRIED_M = 0.5  # in two seconds: slower, the wind and the tilt are nearly even
WIND_SHARE = 0.85  # of controller.tilt_max_rad, in the mean of a minute: no gust can be answered any more
GROUND_AGE_S = 10.0  # its heartbeat comes once a second
TOUCHDOWN_TILT_RAD = 0.26  # 15°: the slope on which legs of this width still stand
TOUCHDOWN_CLIMB_M_S = 0.5  # a landing at MPC_LAND_SPEED has not ended
TOUCHDOWN_SPEED_M_S = 3.0  # twice LNDMC_XY_VEL_MAX: in 12 m/s of wind an aircraft slides on smooth ground at 2
AHEAD_HEIGHT_M = 1.5  # above or below the take-off point
PAYLOAD_CAMERA = "payload_camera"
PAYLOAD_S = 5.0  # a camera on a serial port may miss heartbeats for some seconds
ESCALATION_MIN_S = 2.0  # least time between two actions, so that each has time to help
ACTIONS = tuple(action for action in SafetyAction if action != SafetyAction.NONE)
LOOP = (ProcessName.ESTIMATOR, ProcessName.CONTROLLER, ProcessName.FCU)  # the processes of the control loop
# Sensors that determine the position for the controller, at the bundle (True) and away from it (False).
HELD_BY = {
    True: (Sensor.MARKER, Sensor.VELOCITY, Sensor.ATTITUDE),
    False: (Sensor.POSITION, Sensor.VELOCITY, Sensor.ATTITUDE),
}
# Of the estimate by the inertial measurements alone, which is valid for about 14 s; this stack sinks by 4 m in six of them.
UNAIDED_S = 4.0
RUNAWAYS = 3.0  # once may be an outlier; a state that runs away again and again explains an error that stays
OFFSET_LEAST_M = 0.01  # no sensor explains less: a bound of 0 is none
GNSS_JUMP_M = 3.5  # multipath moves a position by up to 3 m
HIDDEN_AT_JUMP_S = (
    2.0  # PX4's velocity errs by up to 0.5 m/s some seconds after a jump, and nothing but the bundle shows it
)
SIZE_ERROR = 0.08  # more than twice the error of a good print, beyond the uncertainty of its measurement
# Of that uncertainty: for a print that is too small, and for one that is too large, which keeps the aircraft away.
SIZE_SIGMAS, SIZE_SIGMAS_LARGE = 3.0, 5.0
SIZE_STD_MAX = 0.1
SIZE_AFTER_S = 5.0  # a velocity that has just become bad makes a print look wrong for some seconds
RANGE_GAIN = 1.4  # 1.23 at most in 17 healthy logs, 16 of them with unkind sensors; `bundle_size` finds smaller errors

Value = Callable[[SafetySnapshot], float | None]


class Monitor(NamedTuple):
    """One abnormal event."""

    name: str
    text: str  # what happened
    unit: str  # "": the message has no value and limit
    severity: int  # of the message
    phases: tuple[Phase, ...]
    value: Value  # None: cannot be determined, the monitor is not evaluated
    limit: Callable[[Vehicle, Plan], float]
    escalation: tuple[SafetyAction, ...]  # first action, then those that follow while the monitor stays active
    escalation_s: float = ESCALATION_MIN_S  # time between two levels of the escalation
    below: bool = False  # the event is a value below the limit (else above)
    hysteresis: float = 0.0  # how far inside the limit a value must come back, in its unit
    after_s: float = 0.0  # how long the limit must be exceeded
    advice: str = ""  # what the crew can do
    detail: Callable[[SafetySnapshot], str] | None = None  # which of several, in the message
    alone: bool = True  # evaluated in a flight without satellites, too
    # This stack's own estimate, or that the aircraft follows it: a landing that is the first action begins at once and is PX4's.
    doubts: bool = False
    at_once: bool = False  # its first action, to land, begins at once
    halts_return: bool = False  # its first action, to hold, begins at once and stops a return that another demands


def may_sink_by(monitor: Monitor, seen: bool) -> bool:
    """Whether this stack may sink by its own estimate, where PX4 has no position and the monitor demands a landing.

    PX4 would level the aircraft and let the wind take it. seen: the bundle is in sight.
    """
    if monitor.doubts or monitor.name == INNOVATION:
        return False
    return seen or monitor.name not in DOUBTED_BLIND


# --- values ---------------------------------------------------------------------------------------------------------


def _own_estimate(value: Value) -> Value:
    """The value until PX4 has taken over the landing; from then on PX4's estimate counts, not this stack's."""
    return lambda s: None if s.phase == Phase.LAND and not s.in_offboard else value(s)


def _in_offboard(value: Value) -> Value:
    """The value while the setpoints of this stack move the aircraft."""
    return lambda s: value(s) if s.in_offboard else None


def _mode_taken(s: SafetySnapshot) -> float:
    """Another mode than those that the mission requested; offboard is none that a pilot could fly in.

    A mode of PX4's own after this stack was silent is its failsafe: nothing was taken over.
    """
    return float(s.mode_left and not s.in_offboard and (s.by_pilot or not s.silent))


def _mode_seen(s: SafetySnapshot) -> str:
    if s.status is None:
        return ""
    mode, without_rc = s.status.mode, "" if s.status.rc_ok else ", not by RC, which is lost"
    return f"{mode}, flown by the sticks" if s.by_pilot else f"{mode}, by PX4, RC or a ground station{without_rc}"


def _in_conflict(s: SafetySnapshot) -> float | None:
    """Another sender is in control or near to it; without our setpoints it is so only while PX4 is in offboard."""
    if s.status is None:
        return None
    if s.phase in ph.CONTROLLING:
        return float(bool(s.status.conflict))
    return float(s.in_offboard and (s.mode_left or bool(s.status.conflict)))


def _conflict(s: SafetySnapshot) -> str:
    if s.status is None:
        return ""
    unrequested = "PX4 is in offboard, which this stack did not request" if s.mode_left and s.in_offboard else ""
    return "; ".join(filter(None, (unrequested, s.status.conflict)))


def _relative_std(s: SafetySnapshot) -> float | None:
    if s.state is None or not s.at_bundle:
        return None
    return s.state.relative_std_m if s.sight is None else s.sight.std_m


def _position_std(s: SafetySnapshot) -> float | None:
    return s.state.position_std_m if s.state is not None and not s.at_bundle else None


def _marker_age(s: SafetySnapshot) -> float | None:
    return s.marker_age_s if s.state is not None and s.at_bundle else None


def _hidden_while_gnss_jumps(s: SafetySnapshot) -> float | None:
    """Age of the bundle [s] while the receiver has jumped against the flight controller, else 0."""
    age_s = _marker_age(s)
    refused = s.witness is not None and s.witness.satellites_refused
    return age_s if age_s is None or refused else 0.0


def _gnss_age(at_bundle: bool) -> Value:
    """Age of the GNSS fix [s]; away from the bundle, a visible bundle substitutes for GNSS."""

    def value(s: SafetySnapshot) -> float | None:
        if not s.gnss_expected or s.at_bundle != at_bundle:
            return None
        return s.gnss_age_s if at_bundle else min(s.gnss_age_s, s.marker_age_s)

    return value


def _gnss_age_without_imu(s: SafetySnapshot) -> float | None:
    """Age of the GNSS fix [s] at the bundle; 0 while the filter uses the inertial measurements."""
    age_s = _gnss_age(True)(s)
    return age_s if age_s is None or (s.imu is not None and s.imu.fault is not None) else 0.0


def _alone_age(s: SafetySnapshot) -> float | None:
    """Age of the bundle [s] where it is all that gives a position; not in the last part of a landing, which it leaves."""
    return None if s.plan.satellites or s.descending else s.marker_age_s


def _both_age(s: SafetySnapshot) -> float | None:
    near = s.at_bundle or s.phase == Phase.RETREAT
    return min(s.gnss_age_s, s.marker_age_s) if s.gnss_expected and near else None


def _unaided(s: SafetySnapshot) -> float | None:
    """How long nothing has shown the horizontal position [s]; fixes that PX4 did not follow do not count."""
    return min(s.gnss_followed_age_s, s.marker_age_s) if s.gnss_expected else None


def _nis(s: SafetySnapshot, at_bundle: bool) -> dict[Sensor, float]:
    """Of the sensors in `HELD_BY`; at the bundle an error of GNSS does not count."""
    return {sensor: s.nis[sensor] for sensor in HELD_BY[at_bundle] if sensor in s.nis}


def _px4_takes_over(s: SafetySnapshot) -> bool:
    """At the bundle, where PX4 has a position of its own: an estimate in doubt need not be flown by for another second."""
    return (s.at_bundle or s.landing_at_bundle) and s.plan.satellites and s.raw is not None


def _innovation(s: SafetySnapshot) -> float | None:
    return None if _px4_takes_over(s) else max(_nis(s, s.at_bundle).values(), default=None)


def _innovation_at_bundle(s: SafetySnapshot) -> float | None:
    return max(_nis(s, True).values(), default=None) if _px4_takes_over(s) else None


def _worst_sensor(s: SafetySnapshot) -> str:
    found = _nis(s, s.at_bundle or s.landing_at_bundle)
    return max(found, key=lambda sensor: found[sensor], default="")


def _witness(number: Callable[[BundleWitness], float]) -> Value:
    """A number of the bundle's witness; None while it knows nothing."""

    def value(s: SafetySnapshot) -> float | None:
        present = math.nan if s.witness is None else number(s.witness)
        return None if math.isnan(present) else present

    return value


def size_error(w: BundleWitness) -> float:
    """What remains of the error of the print's size beyond its uncertainty, while that is small enough to judge by.

    Before the aircraft has moved much, the flight controller's velocity errs as much as it has moved: in PX4's SIH a true print
    looked far too small for a second. A print that is too large keeps the aircraft away, and needs more certainty.
    """
    if w.size_error_std > SIZE_STD_MAX:
        return math.nan
    return max(w.size_error - SIZE_SIGMAS * w.size_error_std, -w.size_error - SIZE_SIGMAS_LARGE * w.size_error_std)


def _imu_problem(s: SafetySnapshot) -> str:
    return "" if s.imu is None else s.imu.problem


def _runaway(s: SafetySnapshot) -> str:
    return max(s.runaways, key=lambda offset: s.runaways[offset], default="").removesuffix("_runaway").replace("_", " ")


def _bundles_apart(s: SafetySnapshot) -> str:
    return "" if s.witness is None else ", ".join(s.witness.bundles_apart)


def _control_error(s: SafetySnapshot) -> float | None:
    return s.control.position_error_m if s.control is not None and s.control.active != ControlSource.IDLE else None


def _carried(s: SafetySnapshot) -> float | None:
    """How far the aircraft is from its reference while the wind carries it, with no more tilt to bring it back [m]."""
    if s.carried_m is None:
        return None
    return _control_error(s) if s.carried_m >= CARRIED_M else 0.0


def _tilt(s: SafetySnapshot) -> float | None:
    """Angle between body z and up [rad]."""
    return None if s.attitude is None else angle(rotation_matrix(s.attitude.q_WB)[2, 2])


def _throttle(s: SafetySnapshot) -> float | None:
    return None if s.sent is None else s.sent.thrust


def _throttle_limit(v: Vehicle, p: Plan) -> float:
    return v.throttle_limit


def _face_distance(s: SafetySnapshot) -> float | None:
    """Distance to the plane of the bundle's face [m], while the mission flies in front of it; in an inspection to its surfaces."""
    if s.structure_m is not None:
        return s.structure_m
    if s.state is None or s.state.bundle != s.plan.bundle or not (s.at_bundle or s.phase == Phase.RETREAT):
        return None
    return to_bundle(s.state.p_W, 0.0, s.state.p_WM, s.state.q_WM)[0][2]


def _range(s: SafetySnapshot) -> float | None:
    """Forward range [m]; None without a range finder, or while it measures nothing."""
    return measured_m(s.status, s.status_age_s)


def _nearest(s: SafetySnapshot) -> float | None:
    """The shorter of the distance to the face and the forward range [m]; NaN where the state is."""
    if s.paused_phase in (Phase.SEARCH, Phase.RETURN):
        return None  # other rows
    face_m, range_m = _face_distance(s), _range(s)
    if face_m is None or range_m is None:
        return range_m if face_m is None else face_m
    return face_m if math.isnan(face_m) else min(face_m, range_m)


def _ahead_in_search(s: SafetySnapshot) -> float | None:
    """What is nearest ahead in the search [m]: by the forward range, and by the plan's bundle while it is in sight."""
    if Phase.SEARCH not in (s.phase, s.paused_phase):
        return None
    range_m, state = _range(s), s.state
    if state is None or state.bundle != s.plan.bundle or s.marker_age_s > RANGE_AGE_S:
        return range_m
    face_m = to_bundle(state.p_W, 0.0, state.p_WM, state.q_WM)[0][2]
    return face_m if range_m is None else min(face_m, range_m)


def _ahead_on_return(s: SafetySnapshot) -> float | None:
    """The forward range on the way home [m]; not near the ground, where it meets the crew's things."""
    p = s.from_home()
    if Phase.RETURN not in (s.phase, s.paused_phase) or p is None or abs(p[2]) < AHEAD_HEIGHT_M:
        return None
    return _range(s)


def _range_shortfall(s: SafetySnapshot) -> float | None:
    range_m, state = _range(s), s.state
    if s.structure_m is not None:  # the beam may meet another surface than that with the bundle
        return None
    if range_m is None or state is None or state.bundle != s.plan.bundle or not s.at_bundle:
        return None
    return shortfall(range_m, state, s.home_W)


def _voltage(s: SafetySnapshot) -> float | None:
    voltage_v = s.status.battery_voltage_v if s.status is not None else math.nan
    return voltage_v if voltage_v > 0 else None  # 0 and NaN: not measured


def _voltage_of_own_flight(s: SafetySnapshot) -> float | None:
    """The voltage, unless the pilot flies: he lands by himself."""
    return None if s.by_pilot else _voltage(s)


def _implausible(s: SafetySnapshot) -> str:
    """The quantities of the link, without the battery's, that had implausible values lately."""
    return "" if s.status is None else ", ".join(name for name in s.status.implausible if name != BATTERY_VOLTAGE)


def _foreign_estimate(s: SafetySnapshot) -> str:
    return "" if s.status is None else s.status.foreign_estimate


def _foreign_change(s: SafetySnapshot) -> str:
    return "" if s.status is None else s.status.foreign_change


def _voltage_outside(s: SafetySnapshot) -> float | None:
    return None if s.status is None else s.voltage_outside_v


def _outside_fence(s: SafetySnapshot) -> float | None:
    p = s.from_home()
    return None if p is None else outside_m(p, s.plan.limits)


def _height(s: SafetySnapshot) -> float | None:
    p = s.from_home()
    return None if p is None else p[2]


def _distance(s: SafetySnapshot) -> float | None:
    p = s.from_home()
    return None if p is None else math.hypot(p[0], p[1])


def _speed(s: SafetySnapshot) -> float | None:
    return None if s.state is None else math.hypot(*s.state.v_W)


def _outside_before_offboard(s: SafetySnapshot) -> float | None:
    """How far the filter's position is outside of any limit [m], while PX4 flies the take-off."""
    p = s.from_home()
    if p is None or s.by_pilot or s.in_offboard:
        return None
    limits = s.plan.limits
    return max(outside_m(p, limits), p[2] - limits.height_m, math.hypot(p[0], p[1]) - limits.distance_m)


def _gnss_age_before_offboard(s: SafetySnapshot) -> float | None:
    """Age of the GNSS fix [s] while PX4 flies the take-off or holds."""
    return None if s.by_pilot or s.in_offboard or not s.gnss_expected else s.gnss_age_s


def _wind_before_offboard(s: SafetySnapshot) -> float | None:
    """The share of the tilt that the wind takes while PX4 flies the take-off or holds."""
    return None if s.by_pilot or s.in_offboard else s.strong_wind


def _stop_height(s: SafetySnapshot) -> float | None:
    """Height over the record at which PX4 could end its climb [m]: delays and braking added to the present height."""
    if s.climb is None or s.by_pilot or s.plan.start != "auto":
        return None
    height_m, climb_m_s = s.climb
    up_m_s = max(climb_m_s, 0.0)
    return height_m + up_m_s * (CLIMB_CONFIRM_S + CLIMB_DELAY_S) + up_m_s * up_m_s / (2.0 * CLIMB_BRAKE_M_S2)


def _takeoff_height_limit(v: Vehicle, p: Plan) -> float:
    return min(p.takeoff.height_m + TAKEOFF_OVER_M, p.limits.height_m + TAKEOFF_OVER_LIMIT_M)


def takeoff_time_s(plan: Plan) -> float:
    """How long a take-off may take [s]."""
    return TAKEOFF_SPARE_S + plan.takeoff.height_m / TAKEOFF_SLOWEST_M_S


def _takeoff_time(s: SafetySnapshot) -> float | None:
    landed = s.status is None or s.status.landed
    return None if landed else s.phase_time_s


def _raw(number: Callable[[RawMotion], float]) -> Value:
    """A number of the motion by the flight controller's own data; not while the pilot flies."""

    def value(s: SafetySnapshot) -> float | None:
        return None if s.raw is None or s.by_pilot else number(s.raw)

    return value


def _raw_speed(raw: RawMotion) -> float:
    return math.hypot(*(v for v in raw.v if not math.isnan(v)))


def _raw_outside_fence(s: SafetySnapshot) -> float | None:
    return None if s.raw is None or s.by_pilot else raw_guard.outside_fence_m(s.raw, s.plan.limits)


def _raw_difference(s: SafetySnapshot) -> float | None:
    return None if s.by_pilot else s.raw_difference_m_s


def _speed_limit(v: Vehicle, p: Plan) -> float:
    return p.speed_m_s + SPEED_SPARE_M_S


def _clipping(s: SafetySnapshot) -> float | None:
    clipping_hz = math.nan if s.status is None else s.status.clipping_hz
    return None if s.by_pilot or math.isnan(clipping_hz) else clipping_hz


def _cell_below_mean(s: SafetySnapshot) -> float | None:
    cells = s.status.cells_v if s.status is not None else ()
    return sum(cells) / len(cells) - min(cells) if cells else None


def _spare_time(s: SafetySnapshot) -> float | None:
    """Flight time that is left when the aircraft has landed at home [s]."""
    if s.way_home_s is None or s.flight_time_left_s is None:
        return None
    home_s = WAY_SPARE * s.way_home_s
    return s.flight_time_left_s - home_s - s.plan.return_.height_m / LANDING_M_S - LANDING_SPARE_S


def _touchdown(s: SafetySnapshot) -> float | None:
    """Tilt or speed of an aircraft that is reported as landed, over its limit; None while it is not."""
    if s.status is None or not (s.status.landed and s.status.armed):
        return None
    tilt_rad = _tilt(s) or 0.0
    x, y, z = (0.0, 0.0, 0.0) if s.raw is None else (0.0 if math.isnan(v) else v for v in s.raw.v)
    speeds = (abs(z) / TOUCHDOWN_CLIMB_M_S, math.hypot(x, y) / TOUCHDOWN_SPEED_M_S)
    return max(tilt_rad / TOUCHDOWN_TILT_RAD, *speeds)


def _faulty_systems(s: SafetySnapshot) -> str:
    return ", ".join(s.new_faults)


def _timesync_age(s: SafetySnapshot) -> float | None:
    age_s = math.nan if s.status is None else s.status.timesync_age_s
    return None if math.isnan(age_s) else age_s


def _payload_problem(s: SafetySnapshot) -> str:
    if s.payload is None or s.now_s - s.payload.stamp_s > PAYLOAD_S:
        return "the payload process is silent"
    return s.payload.problem


def _oldest_health(s: SafetySnapshot) -> float | None:
    return max(s.health_ages_s.values(), default=None)


def _silent_process(s: SafetySnapshot) -> str:
    return max(s.health_ages_s, key=lambda name: s.health_ages_s[name], default="")


def _most_errors(s: SafetySnapshot) -> float:
    return float(max((count for count, _ in s.new_errors.values()), default=0))


def _failing_process(s: SafetySnapshot) -> str:
    name = max(s.new_errors, key=lambda name: s.new_errors[name][0], default=None)
    return "" if name is None else f"{name}: {s.new_errors[name][1]}"


def _slowest_rate(s: SafetySnapshot) -> float | None:
    return min((s.step_rates[name] for name in LOOP if name in s.step_rates), default=None)


def _slowest_process(s: SafetySnapshot) -> str:
    return min((name for name in LOOP if name in s.step_rates), key=lambda n: s.step_rates[n], default="")


def _host(number: Callable[[HostStatus], float]) -> Value:
    """A number of the computer's own state; None where the computer does not report it."""

    def value(s: SafetySnapshot) -> float | None:
        present = math.nan if s.host is None else float(number(s.host))
        return None if math.isnan(present) else present

    return value


# --- the table ------------------------------------------------------------------------------------------------------

WARN, HOLD, RETREAT, RETURN = SafetyAction.WARN, SafetyAction.HOLD, SafetyAction.RETREAT, SafetyAction.RETURN
LAND, STOP_STREAMING, RELINQUISH = SafetyAction.LAND, SafetyAction.STOP_STREAMING, SafetyAction.RELINQUISH

OFFBOARD_OR_LAND = (*ph.CONTROLLING, Phase.LAND)  # together with `_own_estimate` or `_in_offboard`
PX4_CLIMBS = (Phase.TAKEOFF, Phase.ENTER_OFFBOARD)
FLYING = (*PX4_CLIMBS, *ph.CONTROLLING, Phase.LAND)
IN_AIR = (Phase.TAKEOFF, Phase.ENTER_OFFBOARD, *ph.CONTROLLING)
BEFORE_RETURN = (*ph.WORKING, Phase.PAUSE)
# where the mission may fly relative to the bundle
NEAR = (*ph.AT_BUNDLE, *ph.ON_TRAJECTORY, Phase.INSPECT, Phase.PAUSE)
BATTERY_VOLTAGE = "battery voltage"  # in `FcuStatus.implausible`; it has a monitor of its own
TOUCHDOWN = "touchdown"  # while this monitor is active, the mission does not ask for disarming
CONTROL_ERROR = "control_error"  # the name of the monitor whose hold begins at the aircraft, not at the reference
INNOVATION = "innovation"
# Where no bundle is in sight, these are no less a doubt in the estimate than in the aircraft.
DOUBTED_BLIND = (CONTROL_ERROR, "clipping", "speed", "uncertainty_position")

MONITORS: tuple[Monitor, ...] = (
    # control of the aircraft, and the links
    Monitor("rc_takeover", "mode changed, not by this stack", "", WARNING, ph.UNDER_WAY,
        _mode_taken, lambda v, p: 0.5, escalation=(RELINQUISH,), detail=_mode_seen),
    Monitor("switch_off", "mission switch turned off", "", WARNING, (Phase.ENTER_OFFBOARD, *ph.CONTROLLING, Phase.LAND),
        lambda s: float(s.switched_off), lambda v, p: 0.5, escalation=(RELINQUISH,)),
    # before offboard its setpoints have no effect: offboard is refused and the flight ends
    Monitor("conflict", "another sender on the link", "", CRITICAL, ph.UNDER_WAY,
        _in_conflict, lambda v, p: 0.5, escalation=(RELINQUISH,), advice="stop the other sender", detail=_conflict),
    Monitor("rc_lost", "RC lost", "s", WARNING, BEFORE_RETURN,
        lambda s: s.rc_age_s if s.rc_expected else None, lambda v, p: v.safety.rc_lost_s, hysteresis=0.2,
        escalation=(RETURN,), advice="restore RC"),
    Monitor("link_lost", "no data from the flight controller", "s", CRITICAL, ph.UNDER_WAY,
        lambda s: s.status_age_s, lambda v, p: v.safety.link_lost_s, hysteresis=0.5, escalation=(STOP_STREAMING,)),
    Monitor("timesync_lost", "clock synchronisation lost", "s", WARNING, BEFORE_RETURN,
        _timesync_age, lambda v, p: v.safety.timesync_lost_s, hysteresis=0.5, escalation=(RETURN,)),
    Monitor("implausible", "implausible values from the flight controller", "", WARNING, FLYING,
        lambda s: None if s.status is None else float(bool(_implausible(s))), lambda v, p: 0.5, after_s=2.0,
        escalation=(WARN,), advice="be ready to take over", detail=_implausible),
    # not `conflict`: Hold and Land would fly by the same estimate of PX4
    Monitor("foreign_estimate", "another sender gives PX4 positions or measurements", "", WARNING, FLYING,
        lambda s: None if s.status is None else float(bool(_foreign_estimate(s))), lambda v, p: 0.5,
        escalation=(WARN,), advice="be ready to take over, stop the sender or name it in fcu.measurement_senders",
        detail=_foreign_estimate),
    Monitor("foreign_change", "another sender changes the flight controller", "", WARNING, FLYING,
        lambda s: None if s.status is None else float(bool(_foreign_change(s))), lambda v, p: 0.5,
        escalation=(WARN,), advice="be ready to take over", detail=_foreign_change),
    # the estimate of the position
    Monitor("state_stale", "no valid state estimate", "s", CRITICAL, OFFBOARD_OR_LAND,
        _own_estimate(lambda s: s.state_age_s), lambda v, p: v.safety.state_age_s, escalation=(STOP_STREAMING,)),
    Monitor("estimator_reset", "estimator was reset, its origin has moved", "resets", CRITICAL, OFFBOARD_OR_LAND,
        _own_estimate(lambda s: float(s.resets)), lambda v, p: 0.0, escalation=(STOP_STREAMING,)),
    # no retreat: an estimate in doubt must not fly near a structure
    Monitor(INNOVATION, "measurements contradict the estimate", "NIS per number", CRITICAL, OFFBOARD_OR_LAND,
        _own_estimate(_innovation), lambda v, p: v.safety.innovation_nis, hysteresis=0.5, after_s=0.5,
        escalation=(HOLD, LAND, STOP_STREAMING), escalation_s=2.0, advice="be ready to take over",
        detail=_worst_sensor),
    # no hold either, where PX4 has a position: a hold by this estimate is one at an unknown place beside the structure
    Monitor("innovation_at_bundle", "measurements contradict the estimate at the bundle", "NIS per number", CRITICAL,
        (*NEAR, Phase.LAND), _own_estimate(_innovation_at_bundle), lambda v, p: v.safety.innovation_nis, hysteresis=0.5, after_s=0.5,
        escalation=(LAND, STOP_STREAMING), escalation_s=3.0, advice="be ready to take over",
        detail=_worst_sensor, alone=False, doubts=True),
    # the filter goes on by the commands; what that costs is the business of the other monitors
    Monitor("imu_unused", "inertial measurements are not used", "", WARNING, FLYING,
        lambda s: None if s.imu is None else float(s.imu.fault is not None), lambda v, p: 0.5, after_s=1.0,
        escalation=(WARN,), advice="be ready to take over", detail=_imu_problem),
    Monitor("state_runaway", "a state of the filter ran away", "times", WARNING, FLYING,
        lambda s: float(max(s.runaways.values(), default=0)), lambda v, p: RUNAWAYS,
        escalation=(WARN,), advice="be ready to take over", detail=_runaway),
    # the bundle against its witnesses; a filter that followed a moving bundle has a wrong velocity: PX4 flies
    Monitor("bundle_moving", "bundle moves", "m/s", CRITICAL, ph.CONTROLLING,
        _witness(lambda w: w.moving_m_s), lambda v, p: 0.0, escalation=(LAND, STOP_STREAMING), escalation_s=3.0,
        advice="be ready to take over", alone=False, doubts=True),
    # Its observations are not used, so the position in the world is as before. Not for long: where GNSS has jumped, too, the
    # velocity is wrong by 0.4 m/s
    Monitor("bundle_displaced", "bundle is not where it was", "m", CRITICAL, (*ph.WORKING, Phase.PAUSE),
        _witness(lambda w: w.displaced_m), lambda v, p: 0.0, escalation=(HOLD, RETREAT), escalation_s=2.0,
        advice="be ready to take over", alone=False),
    Monitor("bundle_given_up", "bundle stands elsewhere, it is not used", "", WARNING, (Phase.RETURN,),
        _witness(lambda w: float(w.given_up)), lambda v, p: 0.5, escalation=(WARN,), advice="be ready to take over", alone=False),
    Monitor("bundle_twice", "two bundles of the same name in view", "images", CRITICAL, (*ph.WORKING, Phase.PAUSE),
        lambda s: float(s.copies), lambda v, p: 1.0, escalation=(HOLD, RETREAT), escalation_s=3.0,
        advice="remove the copy"),
    Monitor("bundle_against_gnss", "bundle and GNSS or barometer have gone apart", "of their errors", CRITICAL, NEAR,
        _witness(lambda w: w.gnss_offset_m / max(w.gnss_offset_max_m, OFFSET_LEAST_M)), lambda v, p: 1.0, hysteresis=0.1, after_s=0.5,
        escalation=(RETREAT, LAND, STOP_STREAMING), escalation_s=10.0, advice="be ready to take over", alone=False),
    Monitor("bundle_size", "bundle is not as large as its marker file says", "of its size", CRITICAL, NEAR,
        _witness(size_error), lambda v, p: SIZE_ERROR, hysteresis=0.02, after_s=SIZE_AFTER_S,
        escalation=(RETREAT, LAND, STOP_STREAMING), escalation_s=10.0, advice="measure the printed markers", alone=False),
    # the aircraft has followed it, and the position control is too stiff by the same factor: PX4 flies
    Monitor("bundle_shrinks", "structure is nearer than the bundle looks", "times", CRITICAL, NEAR,
        _witness(lambda w: w.range_gain), lambda v, p: RANGE_GAIN, hysteresis=0.1, after_s=1.0,
        escalation=(LAND, STOP_STREAMING), escalation_s=3.0, advice="be ready to take over", alone=False, doubts=True),
    # Two bundles cannot tell which of them is wrong: neither is used. No hold: the filter may have followed a slow one, and
    # its velocity is wrong by that until satellites correct it. Away from the structure is right by both.
    Monitor("bundles_disagree", "bundles are not where they were to each other", "m", CRITICAL,
        (*ph.WORKING, Phase.PAUSE), _witness(lambda w: w.bundles_apart_m), lambda v, p: 0.0,
        escalation=(RETREAT,), advice="be ready to take over", detail=_bundles_apart, alone=False),
    # only a structure that is nearer than estimated; away from it is right by both
    Monitor("range_finder", "range finder contradicts the bundle", "of its tolerance", CRITICAL, NEAR,
        _range_shortfall, lambda v, p: 1.0, hysteresis=0.1, after_s=0.5,
        escalation=(RETREAT, LAND, STOP_STREAMING), escalation_s=10.0, advice="be ready to take over"),
    # the filter takes a jump for an error of GNSS; it must stay so until the aircraft is home
    Monitor("gnss_jumped", "GNSS has jumped while the bundle is out of sight", "m", WARNING, BEFORE_RETURN,
        _witness(lambda w: w.gnss_jump_m), lambda v, p: GNSS_JUMP_M, hysteresis=0.5, after_s=0.5,
        escalation=(HOLD, RETURN), escalation_s=5.0, advice="be ready to take over", alone=False),
    # beside the structure it is the velocity that errs, long before the jump is one of `gnss_jumped`: no hold
    Monitor("hidden_at_jump", "bundle not seen, and GNSS has jumped", "s", WARNING, NEAR,
        _hidden_while_gnss_jumps, lambda v, p: HIDDEN_AT_JUMP_S, hysteresis=0.5, after_s=0.2,
        escalation=(RETREAT,), advice="be ready to take over", alone=False),
    Monitor("uncertainty_relative", "position relative to the bundle uncertain", "m", WARNING, NEAR,
        _relative_std, lambda v, p: v.safety.relative_std_m, hysteresis=0.05, after_s=0.5,
        escalation=(HOLD, RETREAT), escalation_s=3.0),
    Monitor("uncertainty_position", "position uncertain", "m", CRITICAL, OFFBOARD_OR_LAND,
        _own_estimate(_position_std), lambda v, p: v.safety.position_std_m, hysteresis=0.2, after_s=1.0,
        escalation=(HOLD, LAND, STOP_STREAMING), escalation_s=5.0, advice="be ready to take over", alone=False),
    Monitor("marker_lost", "bundle not seen", "s", WARNING, NEAR,
        _marker_age, lambda v, p: v.safety.marker_lost_s, escalation=(HOLD, RETREAT), escalation_s=5.0, alone=False),
    Monitor("gnss_lost_at_bundle", "no GNSS fix, position from the bundle alone", "s", WARNING, NEAR,
        _gnss_age(True), lambda v, p: v.safety.gnss_lost_s, hysteresis=0.5,
        escalation=(WARN,), advice="be ready to take over", alone=False),
    # every second that this lasts, nothing but this stack keeps the aircraft from the structure: PX4 alone has no position
    Monitor("gnss_lost_too_long", "no GNSS fix for too long", "s", WARNING, NEAR,
        _gnss_age(True), lambda v, p: v.safety.gnss_lost_work_s, hysteresis=0.5,
        escalation=(RETURN,), advice="be ready to take over", alone=False),
    # the bundle alone is left: the aircraft is home before that is lost, too
    Monitor("gnss_and_imu_lost", "no GNSS fix, inertial measurements are not used", "s", CRITICAL, NEAR,
        _gnss_age_without_imu, lambda v, p: v.safety.gnss_lost_s, hysteresis=0.5, after_s=1.0,
        escalation=(RETURN,), advice="be ready to take over", alone=False),
    Monitor("gnss_lost", "no GNSS fix", "s", CRITICAL, (*ph.WORKING, Phase.PAUSE, Phase.RETURN, Phase.LAND),
        _own_estimate(_gnss_age(False)), lambda v, p: v.safety.gnss_lost_s, hysteresis=0.5,
        escalation=(HOLD, LAND, STOP_STREAMING), escalation_s=2.0, advice="be ready to take over", alone=False),
    Monitor("both_lost", "no GNSS fix and bundle not seen", "s", CRITICAL, (*NEAR, Phase.RETREAT),
        _both_age, lambda v, p: v.safety.both_lost_s, hysteresis=0.5,
        escalation=(RETREAT, LAND, STOP_STREAMING), escalation_s=4.0, advice="be ready to take over", alone=False),
    # whatever holds and retreats are under way: there is just the time left to sink by the inertial measurements
    Monitor("unaided", "nothing gives a position any more", "s", CRITICAL, ph.CONTROLLING,
        _unaided, lambda v, p: v.safety.both_lost_s + UNAIDED_S, hysteresis=0.5,
        escalation=(LAND, STOP_STREAMING), escalation_s=4.0, advice="be ready to take over", alone=False, at_once=True),
    # whether the aircraft follows the controller
    Monitor(CONTROL_ERROR, "too far from the reference", "m", CRITICAL, OFFBOARD_OR_LAND,
        _own_estimate(_control_error), lambda v, p: v.safety.control_error_m, hysteresis=0.3, after_s=0.5,
        escalation=(HOLD, RETREAT, LAND, STOP_STREAMING), escalation_s=3.0, advice="be ready to take over"),
    # holds and retreats are flown with the same tilt; PX4 has more (`MPC_TILTMAX_AIR`)
    Monitor("carried_away", "wind carries the aircraft away", "m", CRITICAL, ph.CONTROLLING,
        _in_offboard(_carried), lambda v, p: CARRIED_PART * v.safety.control_error_m, hysteresis=0.1,
        escalation=(LAND,), advice="be ready to take over", alone=False, at_once=True),
    Monitor("tilt", "tilted too far", "rad", CRITICAL, OFFBOARD_OR_LAND,
        _in_offboard(_tilt), lambda v, p: v.safety.tilt_rad, hysteresis=0.1, after_s=0.1, escalation=(STOP_STREAMING,)),
    Monitor("tilt_error", "attitude does not follow the command", "rad", CRITICAL, OFFBOARD_OR_LAND,
        _in_offboard(lambda s: s.tilt_error_rad), lambda v, p: v.safety.tilt_error_rad, hysteresis=0.1,
        escalation=(LAND, STOP_STREAMING), escalation_s=3.0, advice="be ready to take over", doubts=True),
    Monitor("throttle", "thrust near its limit", "of full command", CRITICAL, OFFBOARD_OR_LAND,
        _in_offboard(_throttle), _throttle_limit, hysteresis=0.02, after_s=1.0,
        escalation=(HOLD, LAND, STOP_STREAMING), escalation_s=2.5, advice="be ready to take over"),
    Monitor("standoff", "too near to the structure", "m", CRITICAL, (*NEAR, Phase.RETREAT),
        _nearest, lambda v, p: v.safety.standoff_min_m, below=True, hysteresis=0.1, after_s=0.2,
        escalation=(RETREAT, LAND, STOP_STREAMING), escalation_s=4.0, advice="be ready to take over"),
    # away from the structure the place is that of the satellites, and nothing but these says that something is ahead
    Monitor("obstacle", "something is ahead in the search", "m", CRITICAL, (Phase.SEARCH, Phase.PAUSE),
        _ahead_in_search, lambda v, p: v.safety.standoff_min_m, below=True, hysteresis=0.1, after_s=0.2,
        escalation=(HOLD, RETREAT), escalation_s=2.0, advice="be ready to take over"),
    # the way home is known to be free, and satellites may have moved it: no other way is known
    Monitor("obstacle_return", "something is ahead on the way home", "m", CRITICAL, (Phase.RETURN, Phase.PAUSE),
        _ahead_on_return, lambda v, p: v.safety.standoff_min_m, below=True, hysteresis=0.1, after_s=0.2,
        escalation=(HOLD, LAND, STOP_STREAMING), escalation_s=10.0, advice="take over and fly home", halts_return=True),
    Monitor("fence", "outside the fence", "m", CRITICAL, OFFBOARD_OR_LAND,
        _own_estimate(_outside_fence), lambda v, p: 0.0, hysteresis=0.1, after_s=0.5,
        escalation=(HOLD, RETREAT, LAND, STOP_STREAMING), escalation_s=4.0),
    Monitor("height", "too high", "m", CRITICAL, OFFBOARD_OR_LAND,
        _own_estimate(_height), lambda v, p: p.limits.height_m, hysteresis=0.1, after_s=0.5,
        escalation=(HOLD, LAND, STOP_STREAMING), escalation_s=4.0),
    # a reference may follow a bundle down; home is higher, and the way there leads up
    Monitor("low", "too low", "m", CRITICAL, BEFORE_RETURN,
        _height, lambda v, p: p.limits.lowest_m - LOW_M, below=True, hysteresis=0.1, after_s=0.3,
        escalation=(HOLD, RETURN), escalation_s=3.0),
    Monitor("distance", "too far from the take-off point", "m", CRITICAL, OFFBOARD_OR_LAND,
        _own_estimate(_distance), lambda v, p: p.limits.distance_m, hysteresis=0.1, after_s=0.5,
        escalation=(HOLD, RETREAT, LAND, STOP_STREAMING), escalation_s=4.0),
    Monitor("speed", "too fast", "m/s", CRITICAL, OFFBOARD_OR_LAND,
        _own_estimate(_speed), _speed_limit, hysteresis=0.3, after_s=0.5,
        escalation=(HOLD, LAND, STOP_STREAMING), escalation_s=4.0, advice="be ready to take over"),
    # the take-off: PX4 flies it, and only a command ends it
    Monitor("takeoff_limits", "outside the limits before offboard", "m", CRITICAL, PX4_CLIMBS,
        _outside_before_offboard, lambda v, p: TAKEOFF_DRIFT_M, hysteresis=0.1, after_s=0.5,
        escalation=(LAND,), advice="be ready to take over", alone=False),
    Monitor("takeoff_height", "take-off does not end at its height", "m", CRITICAL, PX4_CLIMBS,
        _stop_height, _takeoff_height_limit, hysteresis=0.1, after_s=CLIMB_CONFIRM_S,
        escalation=(LAND,), advice="be ready to take over", alone=False),
    Monitor("takeoff_slow", "take-off height not reached in time", "s", WARNING, (Phase.TAKEOFF,),
        _takeoff_time, lambda v, p: takeoff_time_s(p), escalation=(LAND,), alone=False),
    # PX4 may tilt more than the controller: what it holds this stack may not hold
    Monitor("takeoff_wind", "too much wind to take control", "of its tilt", WARNING, PX4_CLIMBS,
        _wind_before_offboard, lambda v, p: WIND_SHARE, hysteresis=0.05, after_s=0.5,
        escalation=(LAND,), advice="fly in less wind"),
    # PX4 dead-reckons for 5 s (EKF2_NOAID_TOUT), which is a landing from this height; then it would let the wind take it
    Monitor("takeoff_gnss_lost", "no GNSS fix before offboard", "s", CRITICAL, PX4_CLIMBS,
        _gnss_age_before_offboard, lambda v, p: v.safety.gnss_lost_s, escalation=(LAND,), advice="be ready to take over",
        alone=False),
    # The same limits by the flight controller's own data (`companion.mission.raw_guard`). When these are exceeded and
    # the filter's are not, the filter is wrong, and with it every hold and every path home: PX4 lands on the spot, by
    # its own estimate. It does so near a structure, too: a landing is over in seconds, a hold by GNSS drifts on, and the
    # pilot can take over from both.
    Monitor("raw_fence", "outside the fence by PX4's own position", "m", CRITICAL, FLYING,
        _raw_outside_fence, lambda v, p: 0.0, hysteresis=0.1, after_s=0.5,
        escalation=(LAND, STOP_STREAMING), escalation_s=4.0, advice="be ready to take over", alone=False, doubts=True),
    Monitor("raw_height", "too high by PX4's own position", "m", CRITICAL, FLYING,
        _raw(raw_guard.height_m), lambda v, p: p.limits.height_m, hysteresis=0.1,
        after_s=0.5, escalation=(LAND, STOP_STREAMING), escalation_s=4.0, advice="be ready to take over", doubts=True),
    Monitor("raw_distance", "too far from the take-off point by PX4's position", "m", CRITICAL,
        FLYING, _raw(raw_guard.distance_m), lambda v, p: p.limits.distance_m,
        hysteresis=0.1, after_s=0.5, escalation=(LAND, STOP_STREAMING), escalation_s=4.0, advice="be ready to take over", alone=False, doubts=True),
    Monitor("raw_speed", "too fast by PX4's own velocity", "m/s", CRITICAL, FLYING,
        _raw(_raw_speed), lambda v, p: _speed_limit(v, p) + VELOCITY_DIFFERENCE_M_S, hysteresis=0.3, after_s=1.0,
        escalation=(LAND, STOP_STREAMING), escalation_s=4.0, advice="be ready to take over", alone=False, doubts=True),
    Monitor("raw_velocity", "velocity contradicts the flight controller's", "m/s", CRITICAL, FLYING,
        _own_estimate(_raw_difference), lambda v, p: VELOCITY_DIFFERENCE_M_S, hysteresis=0.1,
        after_s=VELOCITY_KICK_S, escalation=(LAND, STOP_STREAMING), escalation_s=3.0,
        advice="be ready to take over", alone=False, doubts=True),
    Monitor("raw_lost", "no position from the flight controller", "s", WARNING, BEFORE_RETURN,
        lambda s: s.raw_age_s, lambda v, p: RAW_AGE_S, hysteresis=0.3, escalation=(RETURN,),
        advice="be ready to take over", alone=False),
    Monitor("raw_off", "independent guard off", "s", WARNING, FLYING,
        lambda s: s.raw_off_s, lambda v, p: RAW_OFF_S, escalation=(WARN,),
        advice="keep the limits in sight, be ready to take over", detail=lambda s: s.raw_missing),
    Monitor("fcu_reset", "the flight controller has reset its position", "m", WARNING, BEFORE_RETURN,
        lambda s: s.raw_reset_m, lambda v, p: RESET_M, escalation=(RETURN,), advice="be ready to take over", alone=False),
    Monitor("fcu_unhealthy", "the flight controller reports a fault", "", CRITICAL, BEFORE_RETURN,
        lambda s: float(len(s.new_faults)), lambda v, p: 0.5, after_s=1.0, escalation=(WARN, RETURN), escalation_s=5.0,
        advice="be ready to take over", detail=_faulty_systems),
    # A propeller or an arm is damaged. PX4's own estimate errs by it, and so may every other by the same accelerometer
    Monitor("clipping", "vibration beyond the range of the accelerometer", "samples/s", CRITICAL, IN_AIR,
        _clipping, lambda v, p: CLIPPING_HZ, hysteresis=50.0, after_s=2.0, escalation=(LAND,),
        advice="be ready to take over, look at propellers and arms"),
    # the battery
    Monitor("battery_low", "battery low", "V", WARNING, BEFORE_RETURN,
        _voltage, lambda v, p: v.safety.battery_low_v, below=True, hysteresis=0.3, after_s=3.0, escalation=(RETURN,)),
    Monitor("battery_critical", "battery critical", "V", CRITICAL, IN_AIR,
        _voltage_of_own_flight, lambda v, p: v.safety.battery_critical_v, below=True, hysteresis=0.3, after_s=2.0,
        escalation=(LAND,)),
    # in flight no battery has such a voltage: the measurement is wrong, and the charge unknown
    Monitor("battery_implausible", "battery voltage implausible", "V outside of a battery's range", WARNING, BEFORE_RETURN,
        _voltage_outside, lambda v, p: 0.0, after_s=1.0, escalation=(RETURN,),
        advice="check the battery monitor"),
    Monitor("battery_unmeasured", "battery voltage no longer measured", "s", WARNING, BEFORE_RETURN,
        lambda s: s.voltage_age_s, lambda v, p: VOLTAGE_AGE_S, hysteresis=0.5, escalation=(RETURN,)),
    Monitor("weak_cell", "one battery cell is weak", "V below the mean", WARNING, BEFORE_RETURN,
        _cell_below_mean, lambda v, p: WEAK_CELL_V, hysteresis=0.05, after_s=3.0, escalation=(RETURN,),
        advice="check the battery"),
    Monitor("energy", "battery lasts just for the way home", "s to spare", WARNING, BEFORE_RETURN,
        _spare_time, lambda v, p: RESERVE_S, below=True, hysteresis=30.0, after_s=5.0, escalation=(RETURN,)),
    # the surroundings
    Monitor("sustained_wind", "wind near the limit of the aircraft", "of its tilt", WARNING, BEFORE_RETURN,
        lambda s: s.wind_share, lambda v, p: WIND_SHARE, hysteresis=0.05, after_s=5.0,
        escalation=(WARN, RETURN), escalation_s=30.0),
    Monitor("strong_wind", "wind takes the tilt of the aircraft", "of its tilt", CRITICAL, BEFORE_RETURN,
        lambda s: s.strong_wind, lambda v, p: STRONG_WIND_SHARE, hysteresis=0.1, after_s=0.5,
        escalation=(RETURN,), advice="be ready to take over"),
    Monitor("ground_lost", "ground station lost", "s", WARNING, BEFORE_RETURN,
        lambda s: s.ground_age_s, lambda v, p: GROUND_AGE_S, hysteresis=2.0, escalation=(WARN, RETURN),
        escalation_s=20.0, advice="the pilot can take over by RC"),
    Monitor(TOUCHDOWN, "landed, but not level or still moving", "of its limit", CRITICAL, (Phase.LAND,),
        _touchdown, lambda v, p: 1.0, hysteresis=0.1, after_s=0.2, escalation=(WARN,),
        advice="not disarmed by the companion: disarm by RC when the aircraft stands"),
    # with a wrong vertical velocity PX4 does not notice the ground, and the motors turn on
    Monitor("landing_slow", "landing does not end", "s", CRITICAL, (Phase.LAND,),
        lambda s: s.phase_time_s, lambda v, p: LANDING_SPARE_S + p.limits.height_m / LANDING_SLOWEST_M_S, escalation=(WARN,),
        advice="if the aircraft stands, PX4 has not noticed it: disarm by RC; else take over"),
    # the software
    Monitor("setpoints_lost", "controller sends no setpoints", "s", CRITICAL, OFFBOARD_OR_LAND,
        _own_estimate(lambda s: s.setpoints_age_s), lambda v, p: v.safety.setpoints_lost_s, hysteresis=0.2,
        escalation=(STOP_STREAMING,)),
    Monitor("fallback_too_long", "controller on its fallback for too long", "s", WARNING, BEFORE_RETURN,
        lambda s: s.fallback_time_s, lambda v, p: v.safety.fallback_s, escalation=(RETURN,)),
    Monitor("solver_failing", "solver of the controller fails", "of its cycles", WARNING, BEFORE_RETURN,
        lambda s: s.solver_failures, lambda v, p: v.safety.failing_share, hysteresis=0.1, after_s=1.0,
        escalation=(HOLD, RETURN), escalation_s=5.0),
    Monitor("deadline", "controller misses its deadlines", "of its cycles", WARNING, BEFORE_RETURN,
        lambda s: s.deadline_misses, lambda v, p: v.safety.failing_share, hysteresis=0.1, after_s=1.0,
        escalation=(HOLD, RETURN), escalation_s=5.0),
    Monitor("process_dead", "no health messages from a process", "s", WARNING, BEFORE_RETURN,
        _oldest_health, lambda v, p: v.safety.process_dead_s, hysteresis=0.5,
        escalation=(HOLD, RETURN), escalation_s=5.0, detail=_silent_process),
    # Such as a log that cannot be written any more. What the process no longer does is the business of other monitors
    Monitor("process_errors", "errors of a process", "errors", WARNING, FLYING,
        _most_errors, lambda v, p: 0.0, escalation=(WARN,), detail=_failing_process,
        advice="look at its last error after the flight"),
    Monitor(PAYLOAD_CAMERA, "payload camera does not answer", "s", WARNING, BEFORE_RETURN,
        lambda s: s.payload_age_s, lambda v, p: PAYLOAD_S, hysteresis=1.0, escalation=(WARN,), detail=_payload_problem,
        advice="its photographs are missing; the plan goes on"),
    # the computer
    Monitor("cpu_starved", "processes run too slowly", "of their rate", WARNING, BEFORE_RETURN,
        _slowest_rate, lambda v, p: v.safety.step_rate_share, below=True, hysteresis=0.05, after_s=1.0,
        escalation=(HOLD, RETURN), escalation_s=3.0, detail=_slowest_process),
    Monitor("cpu_hot", "companion computer too hot", "°C", WARNING, BEFORE_RETURN,
        _host(lambda h: h.cpu_temperature_c), lambda v, p: v.safety.cpu_temperature_c, hysteresis=3.0, after_s=3.0,
        escalation=(RETURN,), advice="check cooling"),
    Monitor("cpu_throttled", "companion computer throttled", "", WARNING, IN_AIR,
        _host(lambda h: h.throttled), lambda v, p: 0.5, after_s=3.0,
        escalation=(WARN,), advice="check cooling and supply"),
    Monitor("disk_full", "little space left for the flight log", "MB", WARNING, BEFORE_RETURN,
        _host(lambda h: h.disk_free_mb), lambda v, p: v.safety.disk_free_mb, below=True, hysteresis=20.0, after_s=2.0,
        escalation=(RETURN,), advice="free space before the next flight"),
    Monitor("memory_low", "little memory left on the companion computer", "MB", WARNING, BEFORE_RETURN,
        _host(lambda h: h.memory_free_mb), lambda v, p: v.safety.memory_free_mb, below=True, hysteresis=20.0,
        after_s=2.0, escalation=(RETURN,)),
)  # fmt: skip

# In place of those that a flight without satellites cannot evaluate.
MONITORS_ALONE: tuple[Monitor, ...] = (
    # for some seconds the inertial sensors hold the place; then backing away and landing are worth more than waiting
    Monitor("bundle_lost", "no bundle seen, and nothing else gives a position", "s", CRITICAL, ph.CONTROLLING,
        _alone_age, lambda v, p: v.safety.both_lost_s, hysteresis=0.5,
        escalation=(HOLD, RETREAT, LAND, STOP_STREAMING), advice="be ready to take over in Altitude mode"),
)  # fmt: skip


def monitors_for(plan: Plan) -> tuple[Monitor, ...]:
    """The monitors that are evaluated in a flight of the plan."""
    monitors = MONITORS if plan.satellites else (*(m for m in MONITORS if m.alone), *MONITORS_ALONE)
    if plan.inspection is not None and plan.inspection.on_camera_failure == "return":
        advice = "the plan returns without photographs"
        changed = (m._replace(escalation=(WARN, RETURN), advice=advice) for m in monitors if m.name == PAYLOAD_CAMERA)
        monitors = (*(m for m in monitors if m.name != PAYLOAD_CAMERA), *changed)
    return monitors
