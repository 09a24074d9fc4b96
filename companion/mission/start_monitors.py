"""The safety table before the start: a monitor that would act as soon as the mission has the aircraft refuses the start.

Every monitor whose actions go beyond "warn" is evaluated by its own function against its own limit, as if the mission had
taken the aircraft now, unless `NOT_BEFORE_START` says why not. A new monitor is evaluated without a further word.
"""

from collections.abc import Container
from dataclasses import replace
from types import MappingProxyType

import msgspec

from companion.core.enums import FcuMode, Phase, SafetyAction
from companion.core.vehicle import Vehicle
from companion.mission.monitors import Monitor, monitors_for
from companion.mission.plan import Plan
from companion.mission.safety_monitor import SafetyMonitor
from companion.mission.snapshot import SafetySnapshot

# A pilot's flight has spikes: what does not last is no reason to refuse. What lasts need not last as long as in flight, where
# a monitor waits before it ends a mission.
LASTS_S = 0.5
# Their own times: a velocity that has just become bad makes a true print look wrong for some seconds, one message about vibration
# lasts half a second, and a cell sags under load.
WAITED_FOR = ("bundle_size", "bundle_shrinks", "clipping", "weak_cell")

_NO_SETPOINTS = "before the start this stack sends no setpoints"
_FIX = "counts a fix that was there at the start; the checks `gnss` and `position` ask for one"
_CLIMB = "watches the take-off that PX4 flies for this stack; a hand-over is checked against the limits themselves"
_UNDER_CONTROL = "known after 30 s under control of this stack"

# Monitors beyond "warn" that are not evaluated before the start, and why.
NOT_BEFORE_START: MappingProxyType[str, str] = MappingProxyType(
    {
        "rc_takeover": "compares the mode with what the mission has requested; before the start it has requested none",
        "switch_off": "the movement of the switch to on is the start",
        "rc_lost": "counts an RC that was there at the start; the check `rc` asks for one in a start by switch",
        "estimator_reset": "counts from the take-off point, a check of its own; without satellites the hand-over takes that point again",
        "hidden_at_jump": "away from the bundle it may be out of sight: the mission looks for it first",
        "marker_lost": "away from the bundle it may be out of sight: the mission looks for it first",
        "uncertainty_relative": "with satellites the mission flies nearer to the bundle first; without them it is evaluated",
        "gnss_lost_too_long": _FIX,
        "gnss_and_imu_lost": _FIX,
        "gnss_lost": _FIX,
        "both_lost": _FIX,
        "unaided": _FIX,
        "takeoff_gnss_lost": _FIX,
        "control_error": _NO_SETPOINTS,
        "carried_away": _NO_SETPOINTS,
        "tilt_error": _NO_SETPOINTS,
        "throttle": _NO_SETPOINTS,
        "setpoints_lost": _NO_SETPOINTS,
        "obstacle": "`standoff` has the same distances and the same limit",
        "obstacle_return": "`standoff` has the same range and the same limit",
        "takeoff_limits": _CLIMB,
        "takeoff_height": _CLIMB,
        "takeoff_slow": _CLIMB,
        "takeoff_wind": "the hand-over has the same limit of the wind; before a take-off the wind is not known",
        "sustained_wind": f"{_UNDER_CONTROL}; the hand-over has a limit of the wind",
        "energy": f"{_UNDER_CONTROL}; the check `battery` asks for more than `safety.battery_low_v`",
        "raw_lost": "counts a position that was there at the start; the check `position` asks for one",
        "fcu_reset": "counts from the start: what PX4 did under the pilot is no event",
        "fcu_unhealthy": "counts from the start; the check `health` names the faults with which no mission starts",
        "battery_unmeasured": "counts a voltage that was there at the start; the check `battery` asks for one",
        "ground_lost": "counts a ground station that was there at the start; a flight needs none",
        "process_dead": "counts the processes that were there at the start; those that a flight needs have a check each",
    }
)

EVALUATED_ALONE = ("uncertainty_relative",)  # of these, in a flight without satellites: its place is that of the bundle

# The start check with the same quantity, by its name: while it fails, the monitor adds nothing to its line.
HAS_CHECK: MappingProxyType[str, str] = MappingProxyType(
    {
        "conflict": "flight controller",
        "link_lost": "link",
        "state_stale": "state",
        "uncertainty_position": "state",
        "bundle_lost": "bundle",
        "battery_low": "battery",
        "battery_critical": "battery",
        "battery_implausible": "battery",
        "payload_camera": "payload camera",
    }
)

# They mean something in the air only: on the ground a range meets the grass or the crew's things, and a fence may begin above it.
IN_THE_AIR = (
    "standoff",
    "range_finder",
    "fence",
    "height",
    "low",
    "distance",
    "speed",
    "strong_wind",
    "raw_fence",
    "raw_height",
    "raw_distance",
    "raw_speed",
)


def before_start(plan: Plan) -> tuple[Monitor, ...]:
    """The monitors of a plan that are evaluated before its start, with the times that count there."""
    acting = (m for m in monitors_for(plan) if any(action != SafetyAction.WARN for action in m.escalation))
    left_out = NOT_BEFORE_START.keys() - (() if plan.satellites else EVALUATED_ALONE)
    return tuple(_at_start(m) for m in acting if m.name not in left_out)


def _at_start(monitor: Monitor) -> Monitor:
    after_s = monitor.after_s if monitor.name in WAITED_FOR else min(monitor.after_s, LASTS_S)
    return monitor._replace(phases=tuple(Phase), after_s=after_s, hysteresis=0.0)


class StartMonitors:
    """Evaluates them while the mission waits for its start: as in the search, and as at the bundle while it is in sight."""

    def __init__(self, vehicle: Vehicle, plan: Plan) -> None:
        monitors = before_start(plan)
        in_search = {m.name for m in monitors_for(plan) if Phase.SEARCH in m.phases}
        self._in_search = SafetyMonitor(vehicle, plan, tuple(m for m in monitors if m.name in in_search))
        self._at_bundle = SafetyMonitor(vehicle, plan, monitors)

    def reset(self) -> None:
        """Forget everything; when the mission begins to wait again."""
        self._in_search.reset()
        self._at_bundle.reset()

    def update(self, snapshot: SafetySnapshot) -> None:
        """Evaluate all of them; called in every step before the mission has the aircraft."""
        self._in_search.update(_as_taken(snapshot, at_bundle=not snapshot.plan.satellites))
        # Out of sight the witness has what it found last, which the search would correct before the aircraft is at the bundle.
        seen = snapshot.bundle_seen
        self._at_bundle.update(_as_taken(snapshot if seen else replace(snapshot, witness=None), at_bundle=seen))

    @property
    def evaluations(self) -> tuple[SafetyMonitor, SafetyMonitor]:
        """Both, for the count of those that failed."""
        return self._in_search, self._at_bundle

    def found(self) -> dict[str, str]:
        """What they have found that still holds, in words with value and limit, by name."""
        return self._in_search.found() | self._at_bundle.found()

    def problems(self, failing: Container[str]) -> list[str]:
        """What refuses the start on the ground as well as in the air. failing: names of the start checks that fail."""
        found = self.found()
        return [found[n] for n in found if n not in IN_THE_AIR and HAS_CHECK.get(n) not in failing]

    def problems_in_the_air(self) -> list[str]:
        """What refuses a hand-over in flight, too."""
        found = self.found()
        return [found[name] for name in found if name in IN_THE_AIR]

    def problems_in_handover(self) -> list[str]:
        """What ends a hand-over that has begun: all of it, because no start check follows."""
        return list(self.found().values())


def _as_taken(s: SafetySnapshot, at_bundle: bool) -> SafetySnapshot:
    """The snapshot as if the setpoints of this stack moved the aircraft."""
    status, state, home_W = s.status, s.state, s.home_W
    if status is not None:
        status = msgspec.structs.replace(status, armed=True, landed=False, mode=FcuMode.OFFBOARD)
    if not s.plan.satellites and state is not None and home_W is not None:
        home_W = (state.p_W[0], state.p_W[1], home_W[2])  # the hand-over takes the place again
    return replace(s, phase=Phase.TRANSFER, paused_phase=None, at_bundle=at_bundle, status=status, home_W=home_W)
