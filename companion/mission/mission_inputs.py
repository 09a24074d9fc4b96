"""The mission's inputs: newest messages, ages, the take-off point, and whether the mission chose the mode."""

import math
from collections import deque

from companion.core.enums import ControlSource, FcuMode, FcuSystem, Phase, ProcessName
from companion.core.frames import rpy_from_quat
from companion.core.messages import (
    TOPICS,
    BundleWitness,
    ControlStatus,
    EstimatorStatus,
    FcuAttitude,
    FcuPosition,
    FcuStatus,
    Health,
    HostStatus,
    ImuReport,
    Markers,
    Message,
    PayloadStatus,
    Reference,
    SentSetpoint,
    State,
)
from companion.core.node import Latest
from companion.core.trajectory_messages import Vec3
from companion.core.vehicle import Vehicle
from companion.core.voltage import outside_range_v
from companion.mission import phases as ph
from companion.mission import reference_geometry as geometry
from companion.mission.flown_way import FlownWay
from companion.mission.height_guard import HeightGuard
from companion.mission.inspection_progress import Sight
from companion.mission.inspection_route import Nearest
from companion.mission.modes import MANUAL_MODES
from companion.mission.plan import Plan, leaves_limits
from companion.mission.range_finder import measured_m
from companion.mission.raw_guard import GNSS_AGE_S, POSITION_AGE_S, RESETS_S, RawGuard
from companion.mission.rc_switch import SwitchReader
from companion.mission.snapshot import SEEN_S, SafetySnapshot
from companion.mission.tilt_error import TiltErrorTrend, tilt_error
from companion.mission.trends import (
    BatteryTrend,
    CarriedTrend,
    ControlTrend,
    InnovationTrend,
    TiltTrend,
    WindTrend,
    balanced_W,
)

GROUND_HEARD_S = 5.0  # a ground station was there at the start if it was heard within this time; it sends at 1 Hz
OUTLIVED_S = 1.5  # longer than COM_OF_LOSS_T, which preflight bounds by 1 s, and the report of the mode
OUTSIDE_S = 0.5  # a voltage counts as implausible for this long after the last one that was
WIND_HEIGHT_M = 1.0  # above or below the take-off point; nearer to the ground its push counts as wind
CLIMB_ENDS_M = 1.3  # below its height PX4 ends a take-off: NAV_MC_ALT_RAD 0.8 m, and an overshoot of its estimate
LATE_S = 1.0  # of one SYS_STATUS
# Satellites that PX4 refused for this long before it had no position have jumped; else its position drifts from theirs.
JUMPED_S = 3.0
UNFOLLOWED_S = 5.0  # of dead reckoning (EKF2_NOAID_TOUT), after which PX4 reports that it has no position
# The height may be wrong by the first; in gusts the aircraft lags a descent by less than the second while it sinks.
TOUCH_BELOW_M, TOUCH_BEHIND_M, TOUCH_STILL_M_S = 1.0, 0.12, 0.15
COPIES_S, COPIES_MAX = 2.0, 100  # images that show two bundles of one name are counted over this time
FACES, FACE_PERIOD_S = 5, 0.5  # the oldest is two seconds older than the newest: longer than a monitor takes to act
NOT_BY_HEALTH = (FcuSystem.GNSS, FcuSystem.BATTERY)  # have monitors of their own
# Processes whose death is not an event here; the row `payload_camera` has that of the payload process.
NOT_MONITORED = (ProcessName.MISSION, ProcessName.SIMULATOR, ProcessName.PAYLOAD)


class MissionInputs:
    """Everything that the mission received, with its age; takes no decisions."""

    def __init__(self, plan: Plan, vehicle: Vehicle) -> None:
        self.plan = plan
        self._limits = vehicle.safety
        self.raw = RawGuard(vehicle.fcu.send_odometry) if plan.satellites else HeightGuard()
        self.latest = Latest()
        self.healths: dict[ProcessName, Health] = {}  # the newest of each process
        self.errors_s: dict[ProcessName, float] = {}  # when a process counted its newest error
        self.state: State | None = None  # the newest valid and finite one
        self.status: FcuStatus | None = None
        self.home_W: Vec3 | None = None  # where the aircraft stood on the ground, in the estimator's world
        self._way = FlownWay()
        self.way_out: list[Vec3] = []  # the pilot's, from the take-off point to the hand-over, relative to the former
        self.switch = SwitchReader(plan.rc_switch) if plan.rc_switch else None
        # Time and normal of the bundle's face, taken while no monitor demanded anything.
        self._faces: deque[tuple[float, Vec3]] = deque(maxlen=FACES)
        self._innovations = InnovationTrend()
        self._cycles = ControlTrend()
        self._payload_s: float | None = None  # when the payload camera was last ready
        self.structure: Nearest | None = None  # the nearest surface of an inspection that has begun
        self.sight: Sight | None = None  # of its bundles
        self._copies_s: deque[float] = deque(maxlen=COPIES_MAX)
        self._battery = BatteryTrend(vehicle.safety.battery_critical_v)
        self._tilt = TiltTrend(vehicle.controller.tilt_max_rad)
        self._wind, self._wind_by_tilt = WindTrend(vehicle.controller.tilt_max_rad), False
        self._tilt_error = TiltErrorTrend(vehicle.safety.tilt_error_rad)
        self._carried = CarriedTrend(vehicle.controller.tilt_max_rad)
        self._unhealthy_at_start: frozenset[FcuSystem] = frozenset()
        self._position_expected = self._voltage_expected = self._ground_expected = False
        self._voltage_s = -math.inf
        self._reference_v = vehicle.thrust.reference_voltage_v
        self._voltage_outside = (-math.inf, 0.0)  # when a voltage was last implausible, and by how much
        self._rc_expected = self._gnss_expected = self._imu_expected = self._checks_expected = False
        self._runaways_at_start: dict[str, int] = {}
        self._errors_at_start: dict[ProcessName, tuple[int, int]] = {}  # process number, errors; or when first heard
        self._start_s = math.inf
        self._resets_at_home = 0
        self._linked_s = -math.inf
        self._guarded_s = math.inf  # when the independent guard last had a value
        self._rc_s = self._fixed_s = self._gnss_s = self._followed_s = self._positioned_s = -math.inf
        self._positioned, self._by_receiver = True, vehicle.fcu.send_odometry
        self._refused_s = (-math.inf, -math.inf)  # from when until when PX4 last refused the satellites
        self._resets = False  # PX4 lost its position by a jump of the satellites
        self._sending_s = -math.inf
        self._fallback_since_s: float | None = None
        self._expected_modes: set[FcuMode] = set()
        self._mode_at_entry: FcuMode | None = None
        self._target_mode_seen = False
        self._climbed = False  # PX4 was in its take-off since the mission requested it

    # --- messages ---

    def take(self, message: Message) -> None:
        self.latest.put(message)

    def take_status(self, status: FcuStatus, now_s: float) -> None:
        self.latest.put(status)
        if not status.valid or not status.connected:
            return
        self.status = status
        self.raw.take_status(status, now_s)
        self._linked_s = status.stamp_s
        if status.battery_voltage_v > 0:
            self._voltage_s = status.stamp_s
            if outside_v := outside_range_v(status.battery_voltage_v, self._reference_v):
                self._voltage_outside = (now_s, outside_v)
        if status.rc_ok:
            self._rc_s = status.stamp_s
        self._take_fix(status, now_s)
        if self.switch is not None:
            self.switch.read(status, now_s)

    def _take_fix(self, status: FcuStatus, now_s: float) -> None:
        """A fix counts while PX4 follows it. After a jump PX4 has no position for a moment, and then resets to the satellites."""
        stamp_s = status.stamp_s
        refused = self.px4_refuses_satellites(now_s)
        positioned = self._by_receiver or status.position_ok is not False
        if self._positioned and not positioned and stamp_s - self._fixed_s <= GNSS_AGE_S:
            self._followed_s = min(self._followed_s, stamp_s - UNFOLLOWED_S)
            began_s, ended_s = self._refused_s
            self._resets = ended_s - began_s > JUMPED_S and stamp_s - ended_s < JUMPED_S
        self._positioned = positioned
        if refused:
            began_s, ended_s = self._refused_s
            self._refused_s = (began_s if stamp_s - ended_s < LATE_S else stamp_s), stamp_s
        if not status.gnss_ok:
            return
        self._fixed_s = stamp_s
        if positioned:
            self._positioned_s = stamp_s
            if not refused:
                self._followed_s = stamp_s
        # Before its first position PX4 does not arm, and SYS_STATUS is up to a second old.
        if stamp_s - self._positioned_s <= RESETS_S or self._positioned_s == -math.inf:
            self._gnss_s = stamp_s

    def _followed_age_s(self, now_s: float) -> float:
        """Since the last fix that PX4 followed [s]; while more of them come and they have jumped, PX4 may yet reset to one."""
        age_s = now_s - self._followed_s
        if now_s - self._fixed_s > GNSS_AGE_S:
            return age_s
        spared_s = RESETS_S if self._resets else LATE_S
        return 0.0 if self._positioned else max(0.0, age_s - spared_s)

    def take_state(self, state: State) -> None:
        self.latest.put(state)
        numbers = (*state.p_W, *state.v_W, *state.q_WB, *state.p_WM, *state.q_WM)
        if state.valid and all(map(math.isfinite, numbers)):
            self.state = state
            self.raw.take_state(state)

    def take_position(self, position: FcuPosition) -> None:
        self.latest.put(position)
        self.raw.take_position(position)

    def take_markers(self, markers: Markers) -> None:
        self.latest.put(markers)
        if any(self.plan.uses(bundle) for bundle in markers.copied):
            self._copies_s.append(markers.stamp_s)

    def take_payload(self, status: PayloadStatus) -> None:
        self.latest.put(status)
        if not status.problem:
            self._payload_s = status.stamp_s

    def take_health(self, health: Health) -> None:
        before = self.healths.get(health.process)
        if health.errors > (before.errors if before is not None and before.pid == health.pid else 0):
            self.errors_s[health.process] = health.stamp_s
        self.healths[health.process] = health
        self._errors_at_start.setdefault(health.process, (health.pid, health.errors))

    def take_estimator(self, status: EstimatorStatus) -> None:
        self.latest.put(status)
        self._innovations.take(status)

    def take_control(self, control: ControlStatus) -> None:
        self.latest.put(control)
        self._cycles.take(control)
        if control.valid and control.active in (ControlSource.NMPC, ControlSource.PID):
            self._sending_s = control.stamp_s
        if control.active == ControlSource.PID:
            self._fallback_since_s = control.stamp_s if self._fallback_since_s is None else self._fallback_since_s
        else:
            self._fallback_since_s = None

    # --- questions ---

    def linked(self, now_s: float) -> bool:
        """The flight controller reports, and reported lately that it is connected."""
        fresh = self.latest.fresh(FcuStatus, now_s) is not None
        return fresh and self.status_age_s(now_s) < self._limits.link_lost_s

    def connected(self, now_s: float) -> bool:
        """The newest report of the link says that the flight controller is there: it hears a request of now."""
        newest = self.latest.fresh(FcuStatus, now_s)
        return newest is not None and newest.connected

    @property
    def mode(self) -> FcuMode:
        return FcuMode.UNKNOWN if self.status is None else self.status.mode

    @property
    def armed(self) -> bool:
        return self.status is not None and self.status.armed

    @property
    def landed(self) -> bool:
        return self.status is not None and self.status.landed

    def status_age_s(self, now_s: float) -> float:
        return now_s - self._linked_s

    def state_age_s(self, now_s: float) -> float:
        """An estimate whose own checks are not reported any more is as old as these."""
        if self.state is None:
            return math.inf
        checked = not self._checks_expected or self.latest.fresh(EstimatorStatus, now_s) is not None
        age_s = now_s - self.state.stamp_s
        return age_s if checked else max(age_s, self.latest.age_s(EstimatorStatus, now_s))

    def setpoints_age_s(self, now_s: float) -> float:
        return now_s - self._sending_s

    def fallback_time_s(self, now_s: float) -> float:
        return 0.0 if self._fallback_since_s is None else now_s - self._fallback_since_s

    def control(self, now_s: float) -> ControlStatus | None:
        return self.latest.fresh(ControlStatus, now_s)

    def airborne(self) -> bool:
        return self.armed and not self.landed

    def on_ground(self) -> bool:
        return self.landed and not self.armed

    def pilots_mode(self) -> bool:
        return self.mode in MANUAL_MODES

    def resets(self) -> int:
        return 0 if self.state is None else self.state.reset_count - self._resets_at_home

    def from_home(self) -> Vec3 | None:
        """The aircraft relative to the take-off point [m]."""
        if self.state is None or self.home_W is None:
            return None
        return geometry.difference(self.state.p_W, self.home_W)

    def gnss_lost(self, now_s: float) -> bool:
        """There was a fix at the start, and there has been none for `safety.gnss_lost_s`."""
        return self._gnss_expected and now_s - self._gnss_s > self._limits.gnss_lost_s

    def without_gnss(self, now_s: float) -> bool:
        """There is no fix: it was lost, or the flight is one without satellites."""
        return not self.plan.satellites or self.gnss_lost(now_s)

    def px4_without_position(self) -> bool:
        """PX4 reports that it has no position, in a flight in which it had one: it can land level only, with the wind."""
        return self.plan.satellites and self.status is not None and self.status.position_ok is False

    def px4_refuses_satellites(self, now_s: float) -> bool:
        """PX4's position does not follow the receiver: it dead-reckons, and has no position after some seconds."""
        estimator = self.latest.fresh(EstimatorStatus, now_s)
        witness = None if estimator is None else estimator.witness
        return self.plan.satellites and witness is not None and witness.satellites_refused

    def px4_loses_position(self, now_s: float) -> bool:
        """PX4 has no position, or dead-reckons and has none in some seconds: until then it lands where it takes itself to be."""
        return self.without_gnss(now_s) or self.px4_without_position() or self.px4_refuses_satellites(now_s)

    def bundle_seen(self, now_s: float) -> bool:
        """The plan's bundle was observed within the last `SEEN_S`; an older observation does not count.

        In an inspection any of its bundles counts.
        """
        state = self.state
        if self.sight is not None:
            return self.sight.age_s + self.state_age_s(now_s) < SEEN_S
        if state is None or state.bundle != self.plan.bundle:
            return False
        return state.marker_age_s + self.state_age_s(now_s) < SEEN_S

    def touched(self, now_s: float) -> bool:
        """Without satellites, and below the take-off point, this stack sinks to the ground: the aircraft stands, its reference sinks on."""
        state, p, control = self.state, self.from_home(), self.control(now_s)
        below = p is not None and p[2] < 0.0
        if (self.plan.satellites and not below) or state is None or p is None or control is None:
            return False
        behind_m = state.p_W[2] - control.reference_p_W[2]
        return p[2] < TOUCH_BELOW_M and behind_m > TOUCH_BEHIND_M and state.v_W[2] > -TOUCH_STILL_M_S

    def reference_point(self, reference: Reference | None, now_s: float) -> tuple[Vec3, float] | None:
        """Point and heading in the world where the reference is now, else where the aircraft is; None: unknown."""
        control = self.control(now_s)
        if reference is not None and control is not None and control.reference_id == reference.id:
            point = (*control.reference_p_W, control.reference_yaw_rad)
            if control.active != ControlSource.IDLE and all(map(math.isfinite, point)):
                return control.reference_p_W, control.reference_yaw_rad
        return self.aircraft_point()

    def position_lost(self, now_s: float) -> str:
        """Why the flight controller gives no position in a flight with satellites, by the times of the monitors; "" else."""
        if not self.plan.satellites:
            return ""
        age_s = self.raw.position_age_s(now_s)
        if age_s > POSITION_AGE_S:
            return f"no position from the flight controller ({age_s:.1f} s)"
        return self.raw.missing(now_s)

    def position_doubt(self, now_s: float) -> str:
        """The same, for a check of a start: also when the newest message alone is missing or has no fix."""
        if not self.plan.satellites:
            return ""
        if self.latest.fresh(FcuPosition, now_s) is None:
            return "no position from the flight controller"
        if self.status is not None and not self.status.gnss_ok:
            return "no position fix"
        if self.px4_without_position():
            return "the flight controller has no position"
        return self.position_lost(now_s)

    def aircraft_point(self) -> tuple[Vec3, float] | None:
        return None if self.state is None else (self.state.p_W, rpy_from_quat(self.state.q_WB)[2])

    # --- take-off point ---

    def note_ground(self, now_s: float) -> None:
        """Take the take-off point while the aircraft stands disarmed with a valid state."""
        state = self.state
        if self.linked(now_s) and self.on_ground():
            self.raw.note_ground()
        if state is not None and self.linked(now_s) and self.on_ground() and self.latest.fresh(State, now_s) is state:
            self.home_W = state.p_W
            self._way.begin()
            self._resets_at_home = state.reset_count

    def note_handover(self) -> int:
        """The pilot's way is kept; returns how many of its points are outside the limits, which are left out.

        Without satellites the place where the motors started is lost on that way: limits count from here. The height still
        counts from the ground; the horizontal position is that where the mission takes the aircraft.
        """
        if self.plan.satellites:
            way = self._way.after_takeoff()
            self.way_out = [p for p in way if not leaves_limits(p, self.plan.limits)]
            return len(way) - len(self.way_out)
        if self.state is not None and self.home_W is not None:
            self.home_W = (self.state.p_W[0], self.state.p_W[1], self.home_W[2])
            self._resets_at_home = self.state.reset_count
        return 0

    def note_start(self, now_s: float) -> None:
        """Note what is there when the mission takes the aircraft: only that can be lost."""
        self._rc_expected = now_s - self._rc_s < self._limits.rc_lost_s
        self._gnss_expected = self.plan.satellites and now_s - self._gnss_s < self._limits.gnss_lost_s
        self._position_expected = self.raw.position_age_s(now_s) < TOPICS["fcu_position"].max_age_s
        self._voltage_expected = now_s - self._voltage_s < TOPICS["fcu_status"].max_age_s
        status = self.status
        self._unhealthy_at_start = frozenset() if status is None else frozenset(status.unhealthy_systems)
        self._ground_expected = status is not None and status.ground_station_age_s < GROUND_HEARD_S
        estimator = self.latest.fresh(EstimatorStatus, now_s)
        self._checks_expected = estimator is not None
        imu = None if estimator is None else estimator.imu
        self._imu_expected = imu is not None and imu.rate_hz > 0.0 and imu.fault is None
        self._runaways_at_start = {} if estimator is None else estimator.runaways
        self._errors_at_start = {h.process: (h.pid, h.errors) for h in self.healths.values()}
        self._start_s = self._guarded_s = now_s
        self.raw.note_start()
        self._faces.clear()
        self._battery.reset()
        self._tilt.reset()

    def note_guard(self, now_s: float) -> None:
        """Follow whether the independent guard has a value; called in every step."""
        if self.raw.motion(now_s) is not None:
            self._guarded_s = now_s

    def note_way(self, now_s: float) -> None:
        """Follow where the aircraft flies, also by the pilot; called in every step."""
        p = self.from_home()
        if p is not None and self.airborne() and self.state_age_s(now_s) <= self._limits.state_age_s:
            self._way.take(p)

    def flown_W(self) -> list[Vec3]:
        """The way since the take-off in few straight legs, from the take-off point to here; empty while one is not known."""
        if self.state is None or self.home_W is None:
            return []
        flown = (geometry.added(p, self.home_W) for p in self._way.simplified())
        return [self.home_W, *flown, self.state.p_W]

    def note_wind(self, now_s: float) -> None:
        """Follow the wind, also while PX4 or a pilot flies; called in every step."""
        p = self.from_home()
        if self.state is None or p is None or not self.airborne() or abs(p[2]) < WIND_HEIGHT_M:
            self._wind.reset()
        elif self.state_age_s(now_s) <= self._limits.state_age_s:
            attitude = None if self._feels_the_wind(now_s) else self.latest.fresh(FcuAttitude, now_s)
            if self._wind_by_tilt != (attitude is not None):
                self._wind_by_tilt = attitude is not None
                self._wind.reset()
            self._wind.take(now_s, self.state.disturbance_W if attitude is None else balanced_W(attitude.q_WB))

    def _feels_the_wind(self, now_s: float) -> bool:
        """The filter knows the disturbance: by inertial samples, or in offboard by the thrust of its own setpoints."""
        if self.mode == FcuMode.OFFBOARD:
            return True
        status = self.latest.fresh(EstimatorStatus, now_s)
        return status is None or (status.imu is not None and status.imu.rate_hz > 0.0 and status.imu.fault is None)

    @property
    def strong_wind(self) -> float | None:
        """The part of the controller's tilt that the wind of the last seconds takes; None: not known."""
        return self._wind.share()

    def note_tilt(self, now_s: float) -> None:
        """Follow the setpoints and how the aircraft follows them; called in every step."""
        attitude, sent = self.latest.fresh(FcuAttitude, now_s), self.latest.fresh(SentSetpoint, now_s)
        if attitude is None or sent is None or self.mode != FcuMode.OFFBOARD:
            self._tilt_error.reset()
        else:
            self._tilt_error.take(now_s, tilt_error(attitude.q_WB, sent))
        if self.mode != FcuMode.OFFBOARD:
            self._carried.reset()
        elif sent is not None and self.state is not None and self.state_age_s(now_s) <= self._limits.state_age_s:
            control = self.control(now_s)
            cone = control is not None and control.active == ControlSource.PID
            self._carried.take(now_s, sent, self.state, cone)

    def note_flight(self, now_s: float) -> None:
        """Follow battery and wind; called in every step in which the setpoints of this stack move the aircraft."""
        if self.status is not None:
            self._battery.take(now_s, self.status.battery_voltage_v, self.status.battery_remaining)
        attitude = self.latest.fresh(FcuAttitude, now_s)
        if attitude is not None:
            self._tilt.take(now_s, attitude.q_WB)

    def note_face(self, now_s: float) -> None:
        """Remember where the structure faces, by the bundle or the nearest surface; called while no safety monitor demands anything."""
        if self.state is None or not (self.structure is not None or self.bundle_seen(now_s)):
            return
        if not (self._faces and now_s - self._faces[-1][0] < FACE_PERIOD_S):
            away = geometry.face_normal(self.state.q_WM) if self.structure is None else self.structure.away_W
            self._faces.append((now_s, away))

    @property
    def away_W(self) -> Vec3 | None:
        """Unit vector away from the structure; None while the bundle has not been seen.

        As it was some seconds before the fault: monitors need time to become active, and an estimate that is in doubt
        must not choose the direction of a retreat.
        """
        return self._faces[0][1] if self._faces else None

    def range_ahead_m(self, now_s: float) -> float | None:
        """What the forward range finder measures; None without one, or while it measures nothing."""
        return measured_m(self.status, self.status_age_s(now_s))

    # --- mode ---

    def expect_modes(self, *modes: FcuMode) -> None:
        """From now on `modes` are in order; the present mode too, until one of them was seen."""
        self._expected_modes = set(modes)
        self._mode_at_entry = self.status.mode if self.status is not None else None
        self._target_mode_seen = self._climbed = False

    def expect_also(self, mode: FcuMode) -> None:
        """A further mode is in order from now on."""
        self._expected_modes.add(mode)

    def _climb_was_ended(self, phase: Phase, now_s: float) -> bool:
        """PX4 left its take-off for Hold far below the height at which it does so itself: a person wants it."""
        climb, mode = self.raw.climb(now_s), self.mode
        self._climbed |= phase == Phase.TAKEOFF and mode == FcuMode.AUTO_TAKEOFF
        if phase != Phase.TAKEOFF or mode != FcuMode.AUTO_LOITER or not self._climbed or climb is None:
            return False
        return climb[0] < self.plan.takeoff.height_m - CLIMB_ENDS_M

    def mode_left(self) -> bool:
        """The mission did not choose the present mode; a mode that PX4 shows while disarmed does not count."""
        if self.status is None or not self.status.armed or not self._expected_modes:
            return False
        mode = self.status.mode
        if mode in self._expected_modes:
            self._target_mode_seen = True
            return False
        return self._target_mode_seen or mode != self._mode_at_entry

    def offboard_of_others(self, phase: Phase) -> bool:
        """PX4 flies in offboard by another sender: the mission did not request this mode, or the link reports it."""
        status = self.status
        if status is None or not status.armed or status.mode != FcuMode.OFFBOARD:
            return False
        return bool(status.conflict) or (phase in ph.UNDER_WAY and self.mode_left())

    def setpoints_lost(self, now_s: float) -> bool:
        return self.setpoints_age_s(now_s) > self._limits.setpoints_lost_s

    def outlived(self, now_s: float) -> bool:
        """PX4 has reported offboard later after this stack's last setpoint than its failsafe waits."""
        status, age_s = self.status, self.latest.age_s(SentSetpoint, now_s)
        if status is None or not status.armed or status.mode != FcuMode.OFFBOARD or age_s == math.inf:
            return False
        return age_s - (now_s - status.mode_s) > OUTLIVED_S

    def silent(self, now_s: float) -> bool:
        """No setpoint has left for so long that PX4 leaves offboard by itself; a controller that paused sends again."""
        age_s = self.latest.age_s(SentSetpoint, now_s)
        return self._limits.setpoint_pause_s < age_s < math.inf

    # --- for the safety monitors ---

    def _health_ages_s(self, now_s: float) -> dict[ProcessName, float]:
        """Of the processes that published health in this flight or just before; others were absent from the start."""
        since_s = self._start_s - TOPICS["health"].max_age_s
        others = (h for h in self.healths.values() if h.process not in NOT_MONITORED)
        return {h.process: now_s - h.stamp_s for h in others if h.stamp_s >= since_s}

    def _step_rates(self, now_s: float) -> dict[ProcessName, float]:
        """Steps done over nominal steps, of the processes whose health is not too old."""
        oldest_s = now_s - TOPICS["health"].max_age_s
        recent = (h for h in self.healths.values() if h.stamp_s >= oldest_s and h.nominal_steps_per_s > 0)
        return {h.process: h.steps_per_s / h.nominal_steps_per_s for h in recent}

    def _new_errors(self) -> dict[ProcessName, tuple[int, str]]:
        """Errors since the start, or since a restart of the process, and the last of them."""
        found = {}
        for health in self.healths.values():
            pid, before = self._errors_at_start[health.process]
            if (count := health.errors - (before if pid == health.pid else 0)) > 0:
                found[health.process] = count, health.last_error
        return found

    def _witness(self, now_s: float) -> BundleWitness | None:
        """What speaks for and against the plan's bundle."""
        status = self.latest.fresh(EstimatorStatus, now_s)
        return None if status is None or self.plan.bundle is None else status.witness

    def _imu(self, now_s: float) -> ImuReport | None:
        """How the filter uses the inertial measurements; None where they were not used at the start."""
        status = self.latest.fresh(EstimatorStatus, now_s)
        return status.imu if status is not None and self._imu_expected else None

    def _runaways(self) -> dict[str, int]:
        """How often each state of the filter was put back since the start."""
        status, before = self.latest.get(EstimatorStatus), self._runaways_at_start
        counts = {} if status is None else status.runaways
        return {offset: count - before.get(offset, 0) for offset, count in counts.items()}

    def _at_bundle(self, phase: Phase | None) -> bool:
        if phase == Phase.INSPECT and self.plan.satellites:
            return self.sight is not None and self.sight.at_bundle
        if not self.plan.satellites:  # everything is flown relative to the bundle
            return True
        return phase in ph.AT_BUNDLE or (phase in ph.ON_TRAJECTORY and self.plan.trajectory_at_bundle)

    def _new_faults(self) -> tuple[FcuSystem, ...]:
        unhealthy = () if self.status is None else self.status.unhealthy_systems
        return tuple(s for s in unhealthy if s not in self._unhealthy_at_start and s not in NOT_BY_HEALTH)

    def _ground_age_s(self, now_s: float) -> float | None:
        if self.status is None or not self._ground_expected:
            return None
        return self.status.ground_station_age_s + now_s - self.status.stamp_s

    def snapshot(
        self,
        phase: Phase,
        paused_phase: Phase | None,
        now_s: float,
        phase_time_s: float = 0.0,
        sinks: bool = False,
        came_from: Phase | None = None,
    ) -> SafetySnapshot:
        """What the safety monitors evaluate.

        paused_phase: the one that PAUSE interrupted; sinks: see the snapshot; came_from: the phase before the present one.
        """
        landing = phase == Phase.LAND
        left = paused_phase if came_from == Phase.PAUSE else came_from
        failures, misses = self._cycles.shares(now_s)
        return SafetySnapshot(
            now_s=now_s,
            phase=phase,
            at_bundle=self._at_bundle(paused_phase if phase == Phase.PAUSE else phase),
            sight=self.sight,
            structure_m=None if self.structure is None else self.structure.distance_m,
            tilt_error_rad=self._tilt_error.lasting_rad(now_s),
            landing_at_bundle=landing and self._at_bundle(left),
            plan=self.plan,
            status=self.status,
            status_age_s=self.status_age_s(now_s),
            state=self.state,
            state_age_s=self.state_age_s(now_s),
            control=self.control(now_s),
            setpoints_age_s=self.setpoints_age_s(now_s),
            fallback_time_s=self.fallback_time_s(now_s),
            home_W=self.home_W,
            resets=self.resets(),
            silent=phase in ph.CONTROLLING and self.silent(now_s),
            mode_left=phase in ph.UNDER_WAY and (self.mode_left() or self._climb_was_ended(phase, now_s)),
            rc_expected=self._rc_expected,
            rc_age_s=now_s - self._rc_s,
            switched_off=self.switch is not None and self.switch.on is False,
            gnss_expected=self._gnss_expected,
            gnss_age_s=now_s - self._gnss_s,
            gnss_followed_age_s=self._followed_age_s(now_s),
            attitude=self.latest.fresh(FcuAttitude, now_s),
            sent=self.latest.fresh(SentSetpoint, now_s),
            host=self.latest.fresh(HostStatus, now_s),
            witness=self._witness(now_s),
            imu=self._imu(now_s),
            runaways=self._runaways(),
            copies=sum(now_s - stamp_s < COPIES_S for stamp_s in self._copies_s),
            nis=self._innovations.medians(now_s),
            solver_failures=failures,
            deadline_misses=misses,
            health_ages_s=self._health_ages_s(now_s),
            payload_age_s=None if self._payload_s is None else now_s - self._payload_s,
            payload=self.latest.get(PayloadStatus),
            step_rates=self._step_rates(now_s),
            new_errors=self._new_errors(),
            phase_time_s=phase_time_s,
            sinks=sinks,
            raw=self.raw.motion(now_s),
            raw_difference_m_s=self.raw.velocity_difference_m_s(now_s),
            raw_reset_m=self.raw.reset_m,
            raw_off_s=max(0.0, now_s - self._guarded_s),
            raw_missing=self.raw.missing(now_s),
            raw_age_s=self.raw.position_age_s(now_s) if self._position_expected else None,
            climb=self.raw.climb(now_s),
            new_faults=self._new_faults(),
            voltage_age_s=now_s - self._voltage_s if self._voltage_expected else None,
            voltage_outside_v=self._voltage_outside[1] if now_s - self._voltage_outside[0] <= OUTSIDE_S else 0.0,
            flight_time_left_s=self._battery.time_left_s,
            wind_share=self._tilt.share(now_s),
            strong_wind=self.strong_wind,
            carried_m=None if self.px4_loses_position(now_s) else self._carried.moved_m(now_s),
            paused_phase=paused_phase if phase == Phase.PAUSE else None,
            ground_age_s=self._ground_age_s(now_s),
            px4_without_position=self.px4_without_position(),
        )
