"""One lockstep flight for each monitor of the safety table.

``python -m tests.scenarios.safety_flights [MONITOR …]`` prints the results.

All flights have the same beginning: the aircraft takes off and holds in front of a pier
(config/scenarios/safety/hold.toml). This beginning is flown once; each flight continues from there in a fork of the
process, with its fault.
"""

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from pymavlink.dialects.v20 import common

from companion.core.enums import FcuMode, FcuSystem, FilterOffset, Phase, ProcessName, Sensor
from companion.core.frames import quat_from_rpy, quat_multiply, rotation_matrix, rpy_from_quat
from companion.core.messages import (
    EstimatorStatus,
    FcuAttitude,
    FcuPosition,
    FcuStatus,
    Health,
    LinkRx,
    Message,
    MissionStatus,
    SafetyEvent,
    SentSetpoint,
    State,
)
from companion.core.site import Bundle, Marker
from companion.mission import phases as ph
from companion.mission.conditions import SAFETY_DEMANDS
from companion.mission.monitors import MONITORS, Monitor
from companion.mission.plan import load_plan
from companion.mission.safety_monitor import SafetyMonitor
from companion.mission.transitions import TRANSITIONS
from companion.planning.sections import BundlePlace, Inspection, Viewpoint, ViewpointsItem
from sitl.link_attacks import ForeignOdometry, ForeignParameter
from sitl.lockstep import Lockstep
from sitl.scenario import Fault, FaultKind, LoadedScenario, load_scenario
from sitl.sensors import RangeFinderConfig
from tests.scenarios.forked import in_fork

CONFIG = Path(__file__).parents[2] / "config"
SCENARIO = CONFIG / "scenarios/safety/hold.toml"
SEED = 1
SETTLED_S = 3.0  # from the beginning of the phase to the fault
LONGEST_S = 60.0  # flown after the fault
OBSERVED_S = 8.0  # flown after this stack has handed the aircraft over
SAMPLE_US = 20_000
RESIZED = 0.72  # of its size, the print of "resized"; one of 0.78 is not found on the way to the hold
SETPOINT_AGE_MAX_S = 0.7  # COM_OF_LOSS_T of the scenario is 0.5 s, and PX4 checks 50 times a second
SWITCH_CHANNEL, SWITCH_ON_US = 8, 1900
RANGE_FINDER = RangeFinderConfig(rate_hz=20.0, noise_m=0.02, min_m=0.2, max_m=12.0)  # a small laser sensor
LEAVING = (
    Phase.RETREAT,
    Phase.RETURN,
    Phase.LAND,
    Phase.DONE,
)  # phases in which the aircraft leaves the hold point on purpose
# The beginnings of the reasons of a status whose phase was entered on demand of the safety table.
SAFETY_REASONS = tuple(f"{row.reason}: " for row in TRANSITIONS if row.condition in SAFETY_DEMANDS.values())


Attack = Callable[[Lockstep], None]  # begins something that no kind of fault describes


class SafetyFlight(NamedTuple):
    """The faults of one flight, and what must follow."""

    faults: tuple[tuple, ...]  # (kind, duration [s], numbers, name)
    within_s: float  # from the fault to the monitor's first action
    # last phase: DONE (landed), PX4_HOLD or PILOT (handed over; WAIT_READY after the mission switch), HOLD (continued)
    end: str
    excursion_m: float = 0.5  # farthest from the hold point before it is left on purpose
    # which beginning: hold, near and far (limits close by), low (a lowest reference close by), search, corridor and short (search, limits close by),
    # resized (search, markers printed too small), copy (search, range finder, the bundle stands 1.7 m behind the face),
    # pair (a second bundle beside the pier's), payload (an inspection follows the hold), takeoff, switch, station (a ground station on the forward)
    begins: str = "hold"
    parameters: tuple[tuple[str, int | float], ...] = ()  # of PX4, where they differ from the scenario's
    attack: Attack | None = None
    cause: str = ""  # the monitor that ends the flight, where it is another one
    longest_s: float = LONGEST_S


class AutopilotSample(NamedTuple):
    """The autopilot, 50 times a second."""

    now_s: float
    armed: bool
    mode: str
    setpoint_age_s: float  # since the last setpoint left


class FlightOutcome(NamedTuple):
    """What happened in a flight; times since the fault."""

    events: list[SafetyEvent]
    statuses: list[MissionStatus]
    samples: list[AutopilotSample]
    modes: list[tuple[float, str, str]]  # time, left, entered: of PX4
    requests: list[tuple[float, str]]  # time, action: of the mission
    excursion_m: float
    nearest_m: float  # to the face of the pier, of the aircraft's centre in the air
    limit: float

    @property
    def actions(self) -> list[tuple[float, str]]:
        """(time, phase) of each phase that was entered on demand of the safety table."""
        found, phase = [], self.statuses[0].phase
        for status in self.statuses:
            if status.phase != phase and status.reason.startswith(SAFETY_REASONS):
                found.append((status.stamp_s, status.phase))
            phase = status.phase
        return found


def fault(kind: str, *numbers: float, lasts_s: float = 600.0, name: str = "") -> tuple:
    return (kind, lasts_s, numbers, name)


# --- attacks --------------------------------------------------------------------------------------------------------


def _edited(kind: type[Message], **fields: object) -> Attack:
    """Fields of every message of a kind from now on."""
    return lambda lockstep: lockstep.faults.change(kind, lambda m: msgspec.structs.replace(m, **fields))


def _a_process_errs(lockstep: Lockstep) -> None:
    """The tracker counts errors and works on."""
    errs = {"errors": 3, "last_error": "OSError: no space left"}

    def change(m: Health) -> Health:
        return msgspec.structs.replace(m, **errs) if m.process == ProcessName.TRACKER else m

    lockstep.faults.change(Health, change)


def _filter_drifts(east: float, north: float, up: float) -> Attack:
    """The filter says that the aircraft stands, while it moves with this velocity [m/s]."""

    def attack(lockstep: Lockstep) -> None:
        begin_s, v = lockstep.now_s, np.array((east, north, up))

        def change(m: State) -> State:
            p_W = np.array(m.p_W) - v * (m.stamp_s - begin_s)
            return msgspec.structs.replace(m, p_W=tuple(p_W.tolist()), v_W=tuple((np.array(m.v_W) - v).tolist()))

        lockstep.faults.change(State, change)

    return attack


def _filter_displaced(east: float, north: float, up: float) -> Attack:
    """The filter says that the aircraft is elsewhere by this much [m]."""

    def change(m: State) -> State:
        return msgspec.structs.replace(m, p_W=tuple((np.array(m.p_W) + (east, north, up)).tolist()))

    return lambda lockstep: lockstep.faults.change(State, change)


def _position_contradicts(lockstep: Lockstep) -> None:
    """The filter reports that the flight controller's positions contradict it."""

    def change(m: EstimatorStatus) -> EstimatorStatus:
        wide = [
            msgspec.structs.replace(i, nis=10.0 * i.dof) if i.sensor == Sensor.POSITION else i for i in m.innovations
        ]
        return msgspec.structs.replace(m, innovations=wide)

    lockstep.faults.change(EstimatorStatus, change)


def _too_fast(lockstep: Lockstep) -> None:
    """Filter and flight controller agree on 5 m/s."""
    for kind in (State, FcuPosition):
        _edited(kind, v_W=(0.0, 5.0, 0.0))(lockstep)


def _px4_climbs_on(lockstep: Lockstep) -> None:
    """PX4 takes off to 25 m."""
    lockstep.world.autopilot.stack.guidance._target[2] += 22.0


def _charge_falls(lockstep: Lockstep) -> None:
    begin_s = lockstep.now_s
    lockstep.faults.change(
        FcuStatus, lambda m: msgspec.structs.replace(m, battery_remaining=0.8 - 0.011 * (m.stamp_s - begin_s))
    )


def _something_ahead(lasts_s: float) -> Attack:
    """A range finder measures 0.6 m."""

    def attack(lockstep: Lockstep) -> None:
        end_s = lockstep.now_s + lasts_s
        lockstep.faults.change(FcuStatus, lambda m: msgspec.structs.replace(m, range_m=0.6) if m.stamp_s < end_s else m)

    return attack


def _something_on_the_way_home(lockstep: Lockstep) -> None:
    """A range finder measures 0.6 m from the return on."""
    node = lockstep.runners["mission"].node

    def change(m: FcuStatus) -> FcuStatus:
        ahead = node.phase in (Phase.RETURN, Phase.PAUSE)
        return msgspec.structs.replace(m, range_m=0.6) if ahead else m

    lockstep.faults.change(FcuStatus, change)


def _bundle_and_satellites_jump_in_return(lockstep: Lockstep) -> None:
    """By 3 m into the pier, when the way home has begun; PX4 resets its position to these satellites some seconds later."""
    for kind in (FaultKind.GNSS_JUMP, FaultKind.BUNDLE_JUMPS):
        lockstep.faults.add(Fault(at_s=lockstep.now_s + 3.8, kind=kind, duration_s=600.0, value=[3.0, 0.0, 0.0]))


def _satellites_lost_later(lockstep: Lockstep) -> None:
    """When the hold for another cause is over, so that the retreat after it counts from its own beginning."""
    lockstep.faults.add(Fault(at_s=lockstep.now_s + 1.0, kind=FaultKind.GNSS_LOST, duration_s=600.0))


def _wind_rises(lockstep: Lockstep) -> None:
    """The mission sees a steady tilt, and setpoints of it, of nearly all that the controller may use, in the direction of the wind.

    A real wind so near to the limit carries the aircraft away before a minute is over.
    """
    recent = [rotation_matrix(m.q_WB)[:2, 2] for m in lockstep.messages["fcu_attitude"][-150:]]
    east, north = np.mean(recent, axis=0)
    most = np.sin(lockstep.loaded.vehicle.controller.tilt_max_rad)
    missing_rad = np.arcsin(0.94 * most) - np.arcsin(np.hypot(east, north))
    axis = np.array((-north, east, 0.0)) / np.hypot(east, north)
    turn = np.array((np.cos(missing_rad / 2), *(np.sin(missing_rad / 2) * axis)))
    node = lockstep.runners["mission"].node
    handle = node.handle

    def tilted(message: Message, now_s: float) -> object:
        if isinstance(message, FcuAttitude):
            q_WB = tuple(np.asarray(quat_multiply(turn, message.q_WB)).tolist())
            message = msgspec.structs.replace(message, q_WB=q_WB)
        elif isinstance(message, SentSetpoint):
            q_WB = quat_from_rpy(message.roll_rad, message.pitch_rad, message.yaw_rad)
            roll, pitch, _ = rpy_from_quat(quat_multiply(turn, q_WB))
            message = msgspec.structs.replace(message, roll_rad=roll, pitch_rad=pitch)
        return handle(message, now_s)

    node.handle = tilted


def _wind_freshens(push_m_s2: float, lasts_s: float) -> Callable[[Lockstep], None]:
    """Within four seconds as much as the controller may balance: PX4 holds in it, with up to 45 degrees of tilt."""

    def begin(lockstep: Lockstep) -> None:
        begin_s, world = lockstep.now_s, lockstep.world

        def push() -> None:
            since_s = lockstep.now_s - begin_s
            share = max(0.0, min(since_s / 4.0, (lasts_s - since_s) / 4.0, 1.0))
            world.push_m_s2 = (0.0, push_m_s2 * share, 0.0)
            if since_s < lasts_s:
                lockstep.at(lockstep.now_us + 100_000, push)

        push()

    return begin


def _landed_too_early(lockstep: Lockstep) -> None:
    """PX4 reports the landing that has just begun as its end."""

    def change(m: FcuStatus) -> FcuStatus:
        return msgspec.structs.replace(m, landed=m.landed or m.mode == FcuMode.AUTO_LAND)

    lockstep.faults.change(FcuStatus, change)


def _another_sends_odometry(lockstep: Lockstep) -> None:
    other = ForeignOdometry(lockstep.faults.target, 30.0)
    lockstep.at(lockstep.now_us + 5_000_000, other.stop)


def _another_sets_a_parameter(lockstep: Lockstep) -> None:
    other = ForeignParameter(lockstep.faults.target, 1.0, b"MPC_LAND_SPEED", 1.2)
    lockstep.at(lockstep.now_us + 5_000_000, other.stop)


def _station_leaves(lockstep: Lockstep) -> None:
    STATION[0] = False


STATION = [True]  # the ground station of this process sends its heartbeat


def _station_sends(lockstep: Lockstep) -> None:
    mavlink = common.MAVLink(None, srcSystem=255, srcComponent=common.MAV_COMP_ID_MISSIONPLANNER)

    def send() -> None:
        if STATION[0]:
            data = common.MAVLink_heartbeat_message(common.MAV_TYPE_GCS, common.MAV_AUTOPILOT_INVALID, 0, 0, 4, 3)
            lockstep.runners["fcu"].bus.inbox.append(
                LinkRx(stamp_s=lockstep.now_s, data=data.pack(mavlink), ground=True)
            )
        lockstep.at(lockstep.now_us + 1_000_000, send)

    lockstep.at(1_000_000, send)


HIDDEN = fault("markers_hidden")
SLOW_CLIMB = (("MPC_TKO_SPEED", 0.6),)
SLUGGISH = (("MC_ROLL_P", 1.0), ("MC_PITCH_P", 1.0))
FLIGHTS: dict[str, SafetyFlight] = {
    "rc_takeover": SafetyFlight((fault("rc_mode_switch", lasts_s=1.0),), 0.5, "PILOT", 2.5),
    "switch_off": SafetyFlight((fault("rc_channel", SWITCH_CHANNEL, 1100),), 1.0, "WAIT_READY", 1.5, "switch"),
    # 5 s of another companion on a port of its own, at 20 Hz with 10 degrees of tilt: seen in the echoes of PX4 alone
    "conflict": SafetyFlight((fault("foreign_setpoints", 20, 0.1745, 0.344, 0, lasts_s=5.0),), 0.6, "PILOT", 1.5),
    "foreign_estimate": SafetyFlight((), 0.5, "HOLD", attack=_another_sends_odometry),
    "foreign_change": SafetyFlight((), 0.5, "HOLD", attack=_another_sets_a_parameter),
    # PX4 with the parameters of docs/real_aircraft.md acts on a lost RC itself; here it leaves that to offboard. Its
    # Return lets a landing continue, where Land would hold for COM_FAIL_ACT_T and land by itself
    "rc_lost": SafetyFlight((fault("rc_lost"),), 2.0, "DONE", parameters=(("COM_RCL_EXCEPT", 4), ("NAV_RCL_ACT", 2))),
    # during a flight of this stack the state is stale before the link counts as lost
    "link_lost": SafetyFlight((fault("link_lost"),), 2.2, "PX4_HOLD", 3.5, "takeoff"),
    "timesync_lost": SafetyFlight((fault("timesync_lost"),), 11.0, "DONE"),
    "state_stale": SafetyFlight((fault("process_dead", name="estimator"),), 0.5, "PX4_HOLD", 1.5),
    "estimator_reset": SafetyFlight((fault("estimator_reset"),), 0.2, "PX4_HOLD", 1.5),
    "innovation": SafetyFlight((HIDDEN,), 2.0, "DONE", 6.0, "search", attack=_position_contradicts),
    "innovation_at_bundle": SafetyFlight((fault("markers_outliers", 0.15),), 2.0, "DONE"),
    # axes and signs; the filter propagates by the commands meanwhile
    "imu_unused": SafetyFlight((fault("imu_inverted", lasts_s=8.0),), 2.0, "HOLD"),
    "state_runaway": SafetyFlight(
        (), 0.5, "HOLD", attack=_edited(EstimatorStatus, runaways={FilterOffset.GYRO_BIAS: 4})
    ),
    # the bundle goes away along the face, steps back behind it, stands there a second time, goes away slowly
    "bundle_moving": SafetyFlight((fault("bundle_moves", 0.0, 1.0, 0.0),), 1.5, "DONE", 2.5),
    "bundle_displaced": SafetyFlight((fault("bundle_jumps", 2.0, 0.0, 0.0),), 1.0, "DONE"),
    "bundle_given_up": SafetyFlight(
        (fault("battery_low", 13.3, 0.12),),
        8.0,
        "DONE",
        attack=_bundle_and_satellites_jump_in_return,
        cause="battery_low",
    ),
    "bundle_twice": SafetyFlight((fault("bundle_copied", 2.0, 0.0, 0.0),), 0.5, "DONE"),
    "bundle_against_gnss": SafetyFlight((fault("bundle_moves", 0.0, 0.2, 0.0),), 30.0, "DONE", 6.0),
    "bundle_size": SafetyFlight((), 60.0, "DONE", 4.0, "resized", longest_s=90.0),
    # the aircraft follows it by 9 cm/s
    "bundle_shrinks": SafetyFlight((fault("bundle_grows", -0.03),), 18.0, "DONE", 2.0),
    # the bundle goes into the pier, more slowly than PX4's velocity may be wrong; another one beside it stands
    "bundles_disagree": SafetyFlight(
        (fault("bundle_moves", 0.2, 0.0, 0.0, name="pier"),),
        6.0,
        "DONE",
        1.2,
        "pair",
        longest_s=80.0,
    ),
    "range_finder": SafetyFlight((), 30.0, "DONE", 4.0, "copy"),
    # PX4 follows such a jump by a reset of its position 7 s later, when the return has begun
    "gnss_jumped": SafetyFlight((HIDDEN, fault("gnss_jump", 0.0, 8.0, 0.0)), 3.0, "DONE", 2.5, "search"),
    # PX4's velocity follows the jump in part, and the estimate follows PX4's velocity
    "hidden_at_jump": SafetyFlight((HIDDEN, fault("gnss_jump", -4.0, -1.0, 0.0)), 2.6, "DONE"),
    "uncertainty_relative": SafetyFlight((fault("estimator_uncertain", 0.0, 0.8),), 1.0, "DONE"),
    "uncertainty_position": SafetyFlight((fault("estimator_uncertain", 4.0, 0.0),), 2.0, "DONE", 6.0, "search"),
    "marker_lost": SafetyFlight((HIDDEN,), 3.5, "DONE"),
    "gnss_lost_at_bundle": SafetyFlight((fault("gnss_lost", lasts_s=10.0),), 3.0, "HOLD"),
    "gnss_lost_too_long": SafetyFlight((fault("gnss_lost"),), 62.0, "DONE", longest_s=110.0),
    "gnss_and_imu_lost": SafetyFlight((fault("gnss_lost"), fault("imu_stops")), 3.5, "DONE"),
    "gnss_lost": SafetyFlight((fault("gnss_lost"), HIDDEN), 3.0, "DONE", 6.0, "search"),
    "both_lost": SafetyFlight((fault("gnss_lost"), HIDDEN), 2.0, "DONE"),
    # two bundles of one name while the satellites are lost: hold and retreat follow each other, then the time is over
    "unaided": SafetyFlight(
        (fault("bundle_copied", 0.7, -0.5, 0.1),),
        6.5,
        "DONE",
        6.0,
        "search",
        attack=_satellites_lost_later,
        cause="bundle_twice",
    ),
    "control_error": SafetyFlight((fault("gust", -7.3, 0.0, 0.0, lasts_s=1.5),), 2.2, "HOLD", 4.0),
    "carried_away": SafetyFlight((), 7.0, "DONE", 6.0, attack=_wind_freshens(6.0, 25.0)),
    # for longer it turns over, and where it comes to is chance
    "tilt": SafetyFlight((fault("motors_weak", 0, 0, 0, 1, 1, 1, lasts_s=0.27),), 1.0, "PX4_HOLD", 3.0),
    # a gust that the controller tilts against, and an attitude loop with a fifth of its gain
    "tilt_error": SafetyFlight((fault("gust", 0.0, 3.0, 0.0, lasts_s=1.5),), 1.5, "DONE", 1.5, parameters=SLUGGISH),
    "throttle": SafetyFlight((fault("motors_weak", *[0.55] * 6),), 2.0, "DONE", 3.0),
    "standoff": SafetyFlight((fault("gust", 4.6, 0.0, 0.0, lasts_s=1.0),), 2.0, "DONE", 1.5, "near"),
    "obstacle": SafetyFlight((HIDDEN,), 0.6, "DONE", 1.0, "search", attack=_something_ahead(4.0)),
    "obstacle_return": SafetyFlight(
        (fault("battery_low", 13.3, 0.12),), 8.0, "DONE", 6.0, attack=_something_on_the_way_home, cause="battery_low"
    ),
    "fence": SafetyFlight((fault("gust", 0.0, 5.4, 0.0, lasts_s=1.0),), 2.5, "HOLD", 2.0, "near"),
    "height": SafetyFlight((fault("gust", 0.0, 0.0, 7.0, lasts_s=1.0),), 2.5, "HOLD", 2.0, "near"),
    "low": SafetyFlight((fault("gust", 0.0, 0.0, -9.0, lasts_s=1.0),), 2.5, "HOLD", 2.0, "low"),
    "distance": SafetyFlight((fault("gust", 4.2, 0.0, 0.0, lasts_s=1.0),), 2.5, "HOLD", 2.0, "far"),
    "speed": SafetyFlight((HIDDEN,), 1.0, "DONE", 10.0, "search", attack=_too_fast, cause="raw_speed"),
    "takeoff_limits": SafetyFlight((), 1.0, "DONE", 6.0, "takeoff", attack=_filter_displaced(0.0, 8.0, 0.0)),
    "takeoff_height": SafetyFlight((), 6.0, "DONE", 6.0, "takeoff", attack=_px4_climbs_on),
    "takeoff_slow": SafetyFlight((), 30.0, "DONE", 6.0, "takeoff", (("MPC_TKO_SPEED", 0.05),)),
    "takeoff_wind": SafetyFlight((), 8.0, "DONE", 6.0, "takeoff", SLOW_CLIMB, attack=_wind_freshens(4.8, 20.0)),
    "takeoff_gnss_lost": SafetyFlight((fault("gnss_lost"),), 2.0, "DONE", 3.0, "takeoff"),
    "raw_fence": SafetyFlight((HIDDEN,), 15.0, "DONE", 8.0, "corridor", attack=_filter_drifts(0.0, 0.4, 0.0)),
    "raw_height": SafetyFlight((HIDDEN,), 15.0, "DONE", 8.0, "corridor", attack=_filter_drifts(0.0, 0.0, 0.4)),
    "raw_distance": SafetyFlight((HIDDEN,), 18.0, "DONE", 8.0, "short", attack=_filter_drifts(0.0, 0.4, 0.0)),
    "raw_speed": SafetyFlight((), 1.5, "DONE", 6.0, "takeoff", attack=_too_fast),
    "raw_velocity": SafetyFlight((HIDDEN,), 3.0, "DONE", 6.0, "search", attack=_filter_drifts(0.0, 1.0, 0.0)),
    "raw_lost": SafetyFlight((), 1.5, "DONE", 6.0, attack=_edited(FcuPosition, valid=False)),
    "raw_off": SafetyFlight((fault("gnss_lost", lasts_s=10.0),), 8.0, "HOLD"),
    # PX4 rejects fixes that jump, for seven seconds; then it resets to them
    "fcu_reset": SafetyFlight((fault("gnss_jump", 0.0, 8.0, 0.0),), 9.0, "DONE", 6.0),
    "fcu_unhealthy": SafetyFlight((), 1.5, "DONE", attack=_edited(FcuStatus, unhealthy_systems=(FcuSystem.GYRO,))),
    "clipping": SafetyFlight((fault("imu_clips", 400.0),), 4.0, "DONE"),
    "battery_low": SafetyFlight((fault("battery_low", 13.3, 0.12),), 4.0, "DONE"),
    "battery_implausible": SafetyFlight((fault("voltage_wrong", 65.0),), 2.0, "DONE"),
    "implausible": SafetyFlight((fault("frames_wrong", 8.0, 0.5, lasts_s=8.0),), 3.0, "HOLD"),
    "battery_critical": SafetyFlight((fault("battery_low", 12.8, 0.06),), 3.0, "DONE"),
    "battery_unmeasured": SafetyFlight((), 3.5, "DONE", attack=_edited(FcuStatus, battery_voltage_v=np.nan)),
    "weak_cell": SafetyFlight((), 3.5, "DONE", attack=_edited(FcuStatus, cells_v=(3.9, 3.9, 3.9, 3.4))),
    "energy": SafetyFlight((), 40.0, "DONE", attack=_charge_falls, longest_s=80.0),
    "sustained_wind": SafetyFlight((), 90.0, "DONE", attack=_wind_rises, longest_s=160.0),
    "strong_wind": SafetyFlight((), 13.5, "DONE", 4.0, attack=_wind_freshens(4.2, 25.0)),
    "ground_lost": SafetyFlight((), 11.5, "DONE", begins="station", attack=_station_leaves, longest_s=80.0),
    "touchdown": SafetyFlight(
        (fault("battery_low", 12.8, 0.06),), 5.0, "DONE", attack=_landed_too_early, cause="battery_critical"
    ),
    "landing_slow": SafetyFlight(
        (fault("battery_low", 12.8, 0.06),),
        45.0,
        "LAND",
        parameters=(("LNDMC_Z_VEL_MAX", 0.0),),
        cause="battery_critical",
    ),
    "setpoints_lost": SafetyFlight((fault("process_dead", name="controller"),), 0.8, "PX4_HOLD", 1.5),
    "fallback_too_long": SafetyFlight((fault("solver_fails"),), 5.5, "DONE"),
    "solver_failing": SafetyFlight((fault("solver_fails", lasts_s=4.0),), 2.0, "HOLD"),
    "deadline": SafetyFlight((fault("controller_slow", 0.03, lasts_s=4.0),), 2.0, "HOLD"),
    "process_dead": SafetyFlight((fault("process_dead", name="tracker"),), 3.6, "DONE"),
    "process_errors": SafetyFlight((), 1.0, "HOLD", attack=_a_process_errs),
    # a plan that returns without its camera; the camera counts as silent after 3.5 s, the row waits for 5 s
    "payload_camera": SafetyFlight((fault("payload_silent"),), 9.5, "DONE", begins="payload"),
    "cpu_starved": SafetyFlight((fault("cpu_starved", 0.6),), 2.5, "DONE"),
    "cpu_hot": SafetyFlight((fault("cpu_hot", 88.0),), 5.0, "DONE"),
    "cpu_throttled": SafetyFlight((fault("cpu_throttled", lasts_s=8.0),), 5.0, "HOLD"),
    "disk_full": SafetyFlight((fault("disk_full", 50.0),), 4.0, "DONE"),
    "memory_low": SafetyFlight((fault("memory_low", 30.0),), 4.0, "DONE"),
}


# --- beginnings -----------------------------------------------------------------------------------------------------


def loaded_for(begins: str) -> LoadedScenario:
    loaded = load_scenario(SCENARIO)
    scenario = msgspec.structs.replace(loaded.scenario, duration_max_s=600.0)
    plan = loaded.plan
    if begins in ("near", "far"):  # a hold 1.8 m in front of the face, 4.2 m from the take-off point
        limits = msgspec.structs.replace(plan.limits, distance_m=4.5)
        if begins == "near":
            limits = msgspec.structs.replace(
                plan.limits, fence_min_m=(-5.0, -1.0, -1.0), fence_max_m=(6.0, 1.0, 8.0), height_m=3.8
            )
        standoff = msgspec.structs.replace(plan.standoff, offset_M=(0.0, 0.0, 1.8))
        plan = msgspec.structs.replace(plan, limits=limits, standoff=standoff)
    elif begins == "low":  # a hold 0.2 m over the lowest reference
        plan = msgspec.structs.replace(plan, limits=msgspec.structs.replace(plan.limits, height_min_m=2.6))
    elif begins in ("corridor", "short"):
        narrow = {"fence_min_m": (-5.0, -1.2, -1.0), "fence_max_m": (5.0, 1.2, 8.0), "height_m": 4.0}
        limits = msgspec.structs.replace(plan.limits, **(narrow if begins == "corridor" else {"distance_m": 2.0}))
        plan = msgspec.structs.replace(plan, limits=limits)
    elif begins == "resized":
        small = Fault(at_s=0.0, kind=FaultKind.BUNDLE_RESIZED, value=[RESIZED])
        # It looks farther away: no fence may act before.
        limits = msgspec.structs.replace(plan.limits, fence_max_m=(15.0, 10.0, 12.0), distance_m=20.0)
        plan = msgspec.structs.replace(plan, limits=limits)
        scenario = msgspec.structs.replace(scenario, fault=[small])
    elif begins == "pair":
        return _with_second_bundle(msgspec.structs.replace(loaded, scenario=scenario))
    elif begins == "copy":
        copy = Fault(at_s=0.0, kind=FaultKind.BUNDLE_JUMPS, value=[1.7, 0.0, 0.0])
        sensors = msgspec.structs.replace(scenario.sensors, range_finder=RANGE_FINDER)
        scenario = msgspec.structs.replace(scenario, fault=[copy], sensors=sensors)
    elif begins == "payload":
        plan = msgspec.structs.replace(plan, inspection=_inspection(loaded))
    elif begins == "switch":
        mission = load_scenario(SCENARIO.parents[1] / "hover_marker.toml").mission_path.parent / "hover_marker.toml"
        plan = msgspec.structs.replace(plan, start="rc_switch", rc_switch=load_plan(mission).rc_switch)
    return msgspec.structs.replace(loaded, scenario=scenario, plan=plan)


def _inspection(loaded: LoadedScenario) -> Inspection:
    """One photograph of the pier from the hold point; without the camera the aircraft returns."""
    pier = loaded.scenario.scene.bundles[0]
    point = Viewpoint(p_m=(0.0, 0.0, 3.0), yaw_rad=0.0)
    return Inspection(
        camera=str(CONFIG / "cameras/sony_rx1_gimbal.toml"),
        battery=str(CONFIG / "batteries/f550_4s_5ah.toml"),
        resumable=True,
        speed_m_s=1.0,
        acceleration_m_s2=0.5,
        yaw_rate_rad_s=0.4,
        settle_s=1.0,
        on_camera_failure="return",
        camera_in_vehicle_mass=True,
        bundle=[BundlePlace(name="pier", p_m=pier.p_W, rpy_rad=pier.rpy_rad)],
        item=[ViewpointsItem(name="face", frame="pier", settle_s=1.0, points=[point])],
    )


def _with_second_bundle(loaded: LoadedScenario) -> LoadedScenario:
    """Two smaller markers, 0.8 m beside the middle of the pier's bundle."""
    markers = [Marker("aruco_6x6_250", id, 0.2, (0.0, y, 0.0)) for id, y in ((3, 0.2), (7, -0.2))]
    site = msgspec.structs.replace(loaded.site, bundle=[*loaded.site.bundle, Bundle("beside", markers)])
    pier = loaded.scenario.scene.bundles[0]
    beside = msgspec.structs.replace(pier, name="beside", p_W=(pier.p_W[0], pier.p_W[1] + 0.8, pier.p_W[2]))
    scene = msgspec.structs.replace(loaded.scenario.scene, bundles=[pier, beside])
    return msgspec.structs.replace(loaded, site=site, scenario=msgspec.structs.replace(loaded.scenario, scene=scene))


def _pilot_takes_off(lockstep: Lockstep) -> None:
    """Arm with the sticks, climb in Position mode, turn the mission switch from off to on."""
    autopilot = lockstep.world.autopilot
    neutral = list(autopilot.rc_neutral_us)

    def sticks(at_s: float, **pulses: int) -> None:
        channels = neutral.copy()
        for name, pulse_us in pulses.items():
            channels[{"throttle": 2, "yaw": 3, "switch": SWITCH_CHANNEL - 1}[name]] = pulse_us
        lockstep.at(round(at_s * 1e6), lambda: autopilot.set_rc(channels))

    sticks(6.0, throttle=1000, yaw=2000)
    sticks(7.5)
    sticks(8.0, throttle=1800)
    sticks(11.5)
    sticks(15.0, switch=SWITCH_ON_US)


@cache
def beginning(begins: str) -> Lockstep:
    """A flight up to the moment before the fault; to be continued in a fork only."""
    lockstep = Lockstep(loaded_for(begins), SEED)
    if begins == "switch":
        _pilot_takes_off(lockstep)
    elif begins == "station":
        _station_sends(lockstep)
    lockstep.start()
    searches = dict.fromkeys(("search", "corridor", "short", "resized", "copy"), Phase.SEARCH)
    phase = (searches | {"takeoff": Phase.TAKEOFF}).get(begins, Phase.HOLD)
    reached = lockstep.run_until(lambda: lockstep.pilot is not None and lockstep.pilot.phase == phase)
    assert reached, f"{begins}: not in {phase}: {lockstep.pilot}"
    wait_s = SETTLED_S if phase == Phase.HOLD else 1.0
    until_s = lockstep.now_s + wait_s
    lockstep.run_until(lambda: lockstep.now_s >= until_s)
    assert not lockstep.messages["safety"], f"{begins}: {lockstep.messages['safety'][0].text}"
    return lockstep


# --- one flight -----------------------------------------------------------------------------------------------------


def fly(name: str) -> FlightOutcome:
    """Fly the monitor's flight in a fork of this process."""
    lockstep = beginning(FLIGHTS[name].begins)
    return in_fork(lambda: _continue(lockstep, name))


def _continue(lockstep: Lockstep, name: str) -> FlightOutcome:
    flight, begin_s = FLIGHTS[name], lockstep.now_s
    for kind, lasts_s, numbers, process in flight.faults:
        lockstep.faults.add(
            Fault(at_s=begin_s, kind=kind, duration_s=lasts_s, value=[float(n) for n in numbers], name=process)
        )
    for parameter, value in flight.parameters:
        assert lockstep.world.autopilot.parameters.set(parameter, value)
    if flight.attack is not None:
        flight.attack(lockstep)
    samples = sampled(lockstep, begin_s)
    handed_over: list[float] = []

    def over() -> bool:
        pilot = lockstep.pilot
        if pilot.phase in ph.OBSERVING and not handed_over:
            handed_over.append(lockstep.now_s)
        observed = bool(handed_over) and lockstep.now_s > handed_over[0] + OBSERVED_S
        continued = flight.end == Phase.HOLD and lockstep.now_s > begin_s + 20.0
        return observed or continued or lockstep.now_s > begin_s + flight.longest_s

    lockstep.run_until(over)
    return outcome_of(lockstep, name, begin_s, samples)


def sampled(lockstep: Lockstep, begin_s: float) -> list[AutopilotSample]:
    samples: list[AutopilotSample] = []
    autopilot, sent = lockstep.world.autopilot, lockstep.messages["sent_setpoint"]

    def look() -> None:
        age_s = lockstep.now_s - sent[-1].stamp_s if sent else np.inf
        samples.append(AutopilotSample(lockstep.now_s - begin_s, autopilot.armed, autopilot.mode, age_s))
        lockstep.at(lockstep.now_us + SAMPLE_US, look)

    lockstep.at(lockstep.now_us + SAMPLE_US, look)
    return samples


def outcome_of(lockstep: Lockstep, name: str, begin_s: float, samples: list[AutopilotSample]) -> FlightOutcome:
    def since(topic: str) -> list:
        """The topic's messages since the fault, stamped from there."""
        late = (m for m in lockstep.messages[topic] if m.stamp_s > begin_s)
        return [msgspec.structs.replace(m, stamp_s=m.stamp_s - begin_s) for m in late]

    truth = since("truth")
    before = [s for s in lockstep.messages["mission_status"] if s.stamp_s <= begin_s][-1]
    statuses = [msgspec.structs.replace(before, stamp_s=0.0), *since("mission_status")]
    left_s = next((s.stamp_s for s in statuses if s.phase in LEAVING), np.inf)
    over_s = next((s.stamp_s + OBSERVED_S for s in statuses if s.phase in ph.OBSERVING), np.inf)
    point = np.array(truth[0].p_W)
    near_point = [m for m in truth if m.stamp_s < min(left_s, over_s)]
    face = lockstep.loaded.scenario.scene.bundles[0].p_W[0]
    loaded = lockstep.loaded
    limits = SafetyMonitor(loaded.vehicle, loaded.plan).limits
    return FlightOutcome(
        events=since("safety"),
        statuses=statuses,
        samples=samples,
        modes=[
            (t.time_s - begin_s, t.old, t.new)
            for t in lockstep.world.autopilot.commander.transitions
            if t.time_s > begin_s
        ],
        requests=[(c.stamp_s, c.action) for c in since("fcu_command") if c.action != "text"],
        excursion_m=float(max(np.linalg.norm(np.array(m.p_W) - point) for m in near_point)),
        nearest_m=float(min((face - m.p_W[0] for m in truth if m.p_W[2] > 0.5), default=face - truth[0].p_W[0])),
        limit=limits[name],
    )


# --- the table ------------------------------------------------------------------------------------------------------

HEADER = (
    "monitor",
    "limit",
    "first action after, s",
    "actions taken",
    "ends in",
    "excursion, m",
    "nearest to the face, m",
)


def table_row(monitor: Monitor, outcome: FlightOutcome) -> tuple[str, ...]:
    """The cells of one flight, under `HEADER`."""
    first_s = next((f"{e.stamp_s:.1f}" for e in outcome.events if e.monitor == monitor.name), "never")
    actions = ", ".join(f"{phase} {at_s:.1f}" for at_s, phase in outcome.actions) or monitor.escalation[0]
    return (
        f"`{monitor.name}`" + (" *" if FLIGHTS[monitor.name].begins in ("near", "far") else ""),
        f"{outcome.limit:.3g} {monitor.unit}" if monitor.unit else "",
        first_s,
        actions,
        outcome.statuses[-1].phase,
        f"{outcome.excursion_m:.2f}",
        f"{outcome.nearest_m:.2f}",
    )


def main() -> None:
    print("| " + " | ".join(HEADER) + " |\n|" + "---|" * len(HEADER), flush=True)
    for monitor in MONITORS:
        if len(sys.argv) > 1 and monitor.name not in sys.argv[1:]:
            continue
        print("| " + " | ".join(table_row(monitor, fly(monitor.name))) + " |", flush=True)


if __name__ == "__main__":
    main()
