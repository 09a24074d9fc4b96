"""The commander: PX4's flight modes, arming, failsafes and pilot takeover.

Two modes are kept apart, as in PX4: the mode that the user intends and the mode that flies (``mode``). The requirements
of a mode are in `sitl.autopilot.modes`. When a requirement is not met, the list of active failsafe conditions decides
at every update: the most severe action is taken, or the next one that can run.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from companion.core.enums import FcuMode
from sitl.autopilot.failsafe import (
    ACTION_MODE,
    BATTERY_ACTION,
    LINK_LOSS_ACTION,
    OFFBOARD_LOSS_ACTION,
    FailsafeAction,
    FailsafeRequest,
    Failsafes,
    Takeover,
)
from sitl.autopilot.fence import fence_request
from sitl.autopilot.modes import (
    AUTO_MODES,
    MANUAL_CLIMB_RATE_MODES,
    MANUAL_MODES,
    MODE_OF_SLOT,
    MODES,
    FlightMode,
    Requirement,
)
from sitl.autopilot.parameters import Parameters
from sitl.autopilot.rc import ManualControl
from sitl.autopilot.wire import MavSeverity

FORCE_MAGIC = 21196  # param2 of ARM_DISARM
GESTURE_S = 1.0  # sticks held to arm or disarm
SIDE, LOW = 0.9, -0.8  # stick positions of the gesture, and "throttle low"
THROTTLE_HIGH = 0.2  # above centre: no arming in climb-rate modes
REARM_GRACE_S = 5.0
SUPPLY_CHECK_OFF = 894281  # of CBRK_SUPPLY_CHK
TERMINATION_OFF = 121212  # of CBRK_FLIGHTTERM
RC_IGNORED = 4  # of COM_RC_IN_MODE: no manual control is expected
BATTERY_OK, BATTERY_LOW, BATTERY_CRITICAL, BATTERY_EMERGENCY = range(4)  # of `Commander.battery_warning`
BATTERY_NAMES = ("", "low", "critical", "emergency")


class ModeTransition(NamedTuple):
    """One change of the flying mode, kept for logs and tests."""

    time_s: float
    old: FlightMode
    new: FlightMode
    reason: str


@dataclass
class CommanderInputs:
    """The commander's inputs from the rest of the autopilot."""

    attitude: bool = False
    position: bool = False
    height: bool = False
    home: bool = False
    landed: bool = True
    maybe_landed: bool = True
    takeoff_finished: bool = False
    battery_remaining: float = 1.0
    tilt_rad: float = 0.0
    fence: str = ""  # how PX4's own fence is broken


class Commander:
    """Modes, arming and failsafes of one aircraft; `update` runs at 50 Hz.

    send_text(severity, text): sends a STATUSTEXT.
    """

    def __init__(self, parameters: Parameters, send_text: Callable[[MavSeverity, str], None]) -> None:
        self._get, self._send_text = parameters, send_text
        self.armed = False
        self.intended: FlightMode = FcuMode.AUTO_LOITER
        self.mode: FlightMode = FcuMode.AUTO_LOITER
        self.transitions: list[ModeTransition] = []
        self.inputs = CommanderInputs()
        self.manual = ManualControl()
        self.failsafe = False
        self.killed = False
        self.terminated = False
        self.battery_warning = BATTERY_OK
        self.armed_since_s = -math.inf
        self.home_due = False  # home must be set to the present position
        self._after_disarm: FlightMode = FcuMode.AUTO_LOITER
        self._disarmed_s = -math.inf
        self._taken_off = False
        self._landed_since_s: float | None = None
        self._was_landed = True
        self._killed_since_s: float | None = None
        self._gesture = (0, 0.0)  # direction and since when
        self._slot = 0
        self._mode_switched = False
        self._stick_request = False
        self._tilt_since_s: float | None = None
        # offboard stream
        self._stream_last_s = -math.inf
        self._stream_needs_position = False
        self._failsafes = Failsafes(parameters["COM_FAIL_ACT_T"])
        self._manual_lost_at_arming = False
        self._battery_at_arming = BATTERY_OK
        self._last_s: float | None = None
        self._previous_armed = False
        self._reason = "start"
        inputs = self.inputs
        self._checks: dict[Requirement, Callable[[float], bool]] = {
            Requirement.ATTITUDE: lambda now_s: inputs.attitude,
            Requirement.POSITION: lambda now_s: inputs.position,
            Requirement.HEIGHT: lambda now_s: inputs.height,
            Requirement.HOME: lambda now_s: inputs.home,
            Requirement.MANUAL_CONTROL: lambda now_s: self.manual.ok,
            Requirement.OFFBOARD_SIGNAL: self._offboard_signal,
            Requirement.MISSION: lambda now_s: False,  # the emulator flies no missions
        }

    # --- what can run --------------------------------------------------------------------------------------------

    def offboard_setpoint(self, now_s: float, needs_position: bool) -> None:
        """A valid offboard setpoint came; needs_position: it can only be flown with a position."""
        self._stream_last_s, self._stream_needs_position = now_s, needs_position

    def _offboard_signal(self, now_s: float) -> bool:
        if now_s - self._stream_last_s >= self._get["COM_OF_LOSS_T"]:
            return False
        return not self._stream_needs_position or self.inputs.position

    def missing(self, mode: FlightMode, now_s: float, manual: bool = True) -> str:
        """The first requirement of a mode that is not met, or ""; manual: RC is one of them."""
        for requirement in MODES[mode].requirements:
            if (manual or requirement is not Requirement.MANUAL_CONTROL) and not self._checks[requirement](now_s):
                return requirement.value
        return ""

    # --- requests ------------------------------------------------------------------------------------------------

    def request_mode(self, mode: FlightMode, now_s: float, force: bool = False, reason: str = "command") -> bool:
        """Change the intended mode; always possible while disarmed, else only if the mode can run."""
        if self.terminated:
            return False
        if self.armed and not force and self.missing(mode, now_s):
            return False
        self._mode_switched = True
        self.intended = mode
        self._reason = reason
        if MODES[mode].arming and mode != FcuMode.AUTO_TAKEOFF:
            self._after_disarm = mode
        self._run_failsafes(now_s, 0.0)
        return True

    def arm(self, now_s: float, reason: str, checks: bool = True, by_stick: bool = False) -> bool:
        """Arm if the checks pass; a STATUSTEXT says why not."""
        if self.armed:
            return True
        if self.killed:
            self._send_text(MavSeverity.CRITICAL, "Arming denied: kill switch engaged\t")
            return False
        if by_stick and now_s - self._disarmed_s < REARM_GRACE_S:
            checks = False
        if checks and (why := self._arming_refusal(now_s, by_stick)):
            self._send_text(MavSeverity.CRITICAL, f"Arming denied: {why}\t")
            return False
        self.armed, self.armed_since_s = True, now_s
        self._taken_off, self._landed_since_s = False, None
        self._send_text(MavSeverity.INFO, f"Armed by {reason}\t")
        self.home_due = bool(self._get["COM_HOME_EN"])
        return True

    def _arming_refusal(self, now_s: float, by_stick: bool) -> str:
        if self.mode in MANUAL_MODES:
            up = self.manual.sticks[2]
            if self.manual.ok and self.mode in MANUAL_CLIMB_RATE_MODES and up > THROTTLE_HIGH:
                return "throttle above center"
            if self.manual.ok and self.mode not in MANUAL_CLIMB_RATE_MODES and up > LOW:
                return "high throttle"
        elif by_stick:
            return "switch to manual mode first"
        return "Resolve system health failures first" if not self.can_arm(now_s) else ""

    def can_arm(self, now_s: float) -> bool:
        """Whether the health checks would let the present mode arm."""
        least = self._get["COM_ARM_BAT_MIN"]
        battery_bad = self.battery_warning >= BATTERY_CRITICAL or (least >= 0 and self.inputs.battery_remaining < least)
        if self._get["CBRK_SUPPLY_CHK"] == SUPPLY_CHECK_OFF:
            battery_bad = False
        return (
            self.inputs.attitude
            and MODES[self.mode].arming
            and not self.missing(self.mode, now_s)
            and not battery_bad
            and not (self.inputs.fence and self._get["GF_ACTION"])
            and (self.inputs.position or self._get["COM_ARM_WO_GPS"] != 0)
        )

    def disarm(self, now_s: float, reason: str, force: bool = False, by_stick: bool = False) -> bool:
        """Disarm when landed, or always with force; in manual thrust modes the sticks may do it in the air."""
        if not self.armed:
            return True
        if not force and not (self.inputs.landed or self.inputs.maybe_landed):
            manual_thrust = self.mode in MANUAL_MODES and self.mode not in MANUAL_CLIMB_RATE_MODES
            if not (manual_thrust and by_stick and self._get["COM_DISARM_MAN"]):
                if not by_stick:
                    self._send_text(MavSeverity.CRITICAL, "Disarming denied: not landed\t")
                return False
        self.armed, self._disarmed_s = False, now_s
        self._taken_off = False
        self.intended = self._after_disarm
        self._reason = "disarmed"
        self._send_text(MavSeverity.INFO, f"Disarmed by {reason}\t")
        self._run_failsafes(now_s, 0.0)
        return True

    def terminate(self, now_s: float) -> None:
        """Stop the motors until the end of the flight."""
        self.terminated = True
        self.intended = FcuMode.TERMINATION
        self._run_failsafes(now_s, 0.0)

    # --- periodic work -------------------------------------------------------------------------------------------

    def update(self, now_s: float) -> None:
        """Bring modes, arming and failsafes up to date."""
        dt = 0.0 if self._last_s is None else now_s - self._last_s
        self._last_s = now_s
        self._pilot(now_s, dt)
        self._battery()
        self._landing(now_s)
        self._tilt(now_s)
        if (
            self.mode == FcuMode.AUTO_TAKEOFF
            and self.inputs.takeoff_finished
            and self._failsafes.selected <= FailsafeAction.WARN
        ):
            self.request_mode(FcuMode.AUTO_LOITER, now_s, reason="take-off finished")
        self._run_failsafes(now_s, dt)

    def _pilot(self, now_s: float, dt: float) -> None:
        manual, get = self.manual, self._get
        if manual.ok and manual.slot and manual.slot != self._slot:
            self._slot = manual.slot
            mode = MODE_OF_SLOT.get(get.integer(f"COM_FLTMODE{manual.slot}"))
            if mode and not self.request_mode(mode, now_s, reason="mode switch"):
                fallback = mode == FcuMode.POSCTL and not self.missing(FcuMode.ALTCTL, now_s)
                if fallback:
                    self.request_mode(mode, now_s, force=True, reason="mode switch")
                else:
                    self._send_text(MavSeverity.CRITICAL, f"Switching to {mode} is currently not available\t")
        moving = dt > 0.0 and manual.moving(dt, get["COM_RC_STICK_OV"])
        if self.armed and moving and self.mode not in MANUAL_MODES:
            bits = get.integer("COM_RC_OVERRIDE")
            if (self.mode in AUTO_MODES and bits & 1) or (self.mode == FcuMode.OFFBOARD and bits & 2):
                if self._failsafes.selected > FailsafeAction.WARN:
                    self._stick_request = True
                else:
                    can = not self.missing(FcuMode.POSCTL, now_s) or not self.missing(FcuMode.ALTCTL, now_s)
                    if can and self.request_mode(FcuMode.POSCTL, now_s, force=True, reason="sticks"):
                        self._send_text(MavSeverity.INFO, "Pilot took over using sticks\t")
        self._gestures(now_s)
        self.killed = manual.ok and manual.kill
        if not self.killed:
            self._killed_since_s = None
            return
        since_s = self._killed_since_s = self._killed_since_s or now_s
        if self.armed and now_s - since_s >= get["COM_KILL_DISARM"]:
            self.disarm(now_s, "kill switch", force=True)

    def _gestures(self, now_s: float) -> None:
        manual = self.manual
        direction = 0
        if manual.ok and self._get["MAN_ARM_GESTURE"] and manual.sticks[2] < LOW:
            turn = manual.sticks[3]
            if abs(turn) > SIDE and abs(manual.sticks[0]) < 0.1 and abs(manual.sticks[1]) < 0.1:
                direction = 1 if turn > 0 else -1
        if direction != self._gesture[0]:
            self._gesture = (direction, now_s)
        elif direction and now_s - self._gesture[1] >= GESTURE_S:
            self._gesture = (direction, math.inf)
            if direction > 0:
                self.arm(now_s, "stick gesture", by_stick=True)
            else:
                self.disarm(now_s, "stick gesture", by_stick=True)

    def _battery(self) -> None:
        if self._get["CBRK_SUPPLY_CHK"] == SUPPLY_CHECK_OFF:
            self.battery_warning = BATTERY_OK
            return
        get, left = self._get, self.inputs.battery_remaining
        limits = (get["BAT_EMERGEN_THR"], get["BAT_CRIT_THR"], get["BAT_LOW_THR"])
        level = 3 - next((i for i, limit in enumerate(limits) if left < limit), 3)
        # a warning stays until the aircraft is disarmed: voltage recovers when the thrust goes, charge does not
        self.battery_warning = max(level, self.battery_warning) if self.armed else level

    def _landing(self, now_s: float) -> None:
        landed = self.inputs.landed
        if not self.armed:
            self._was_landed, self._landed_since_s = landed, None
            return
        if landed and not self._was_landed:
            self._send_text(MavSeverity.INFO, "Landing detected\t")
        elif self._was_landed and not landed:
            self._send_text(MavSeverity.INFO, "Takeoff detected\t")
            self._taken_off = True
            self.home_due = bool(self._get["COM_HOME_EN"])
        self._was_landed = landed
        limit_s = self._get["COM_DISARM_LAND"]
        if self._taken_off:
            if not landed:
                self._landed_since_s = None
                return
            since_s = self._landed_since_s = self._landed_since_s or now_s
            if limit_s > 0 and now_s - since_s >= limit_s:
                self.disarm(now_s, "landing")
        elif self._get["COM_DISARM_PRFLT"] > 0:
            limit_s = self._get["COM_DISARM_PRFLT"] + self._get["COM_SPOOLUP_TIME"]
            if now_s - self.armed_since_s >= limit_s:
                self.disarm(now_s, "auto preflight disarming", force=True)

    def _tilt(self, now_s: float) -> None:
        """The failure detector's attitude check: it disarms in the first seconds; later it terminates the flight, only
        with CBRK_FLIGHTTERM off.
        """
        get = self._get
        over = self.armed and self.inputs.tilt_rad > math.radians(max(get["FD_FAIL_R"], get["FD_FAIL_P"], 1))
        if not over:
            self._tilt_since_s = None
            return
        if self._tilt_since_s is None:
            self._tilt_since_s = now_s
        if now_s - self._tilt_since_s < get["FD_FAIL_R_TTRI"]:
            return
        if now_s - self.armed_since_s < get["COM_LKDOWN_TKO"] + get["COM_SPOOLUP_TIME"]:
            self._send_text(MavSeverity.CRITICAL, "Attitude failure detected\t")
            self.disarm(now_s, "failure detector", force=True)
        elif get["CBRK_FLIGHTTERM"] != TERMINATION_OFF:
            self.terminate(now_s)

    # --- failsafes -------------------------------------------------------------------------------------------------

    def _requests(self, now_s: float) -> dict[str, FailsafeRequest]:
        """The failsafe conditions that hold at this moment, by name."""
        get = self._get
        found: dict[str, FailsafeRequest] = {}
        lost = not self.manual.ok
        if not lost:
            self._manual_lost_at_arming = False
        excepted = get.integer("COM_RCL_EXCEPT") & MODES[self.intended].rc_loss_bit
        if lost and get["COM_RC_IN_MODE"] != RC_IGNORED and not excepted and not self._manual_lost_at_arming:
            action = self._link_loss_action()
            takeover = Takeover.NEVER if action in (FailsafeAction.TERMINATE, FailsafeAction.DISARM) else None
            cause = "manual control lost"
            found[cause] = FailsafeRequest(action, cause, takeover, until_mode_change=True)
        if self.battery_warning:
            worse = self.battery_warning > self._battery_at_arming
            warn = FailsafeAction.WARN
            critical, emergency = BATTERY_ACTION.get(get.integer("COM_LOW_BAT_ACT") if worse else 0, (warn, warn))
            action = (FailsafeAction.NONE, warn, critical, emergency)[self.battery_warning]
            cause = f"battery {BATTERY_NAMES[self.battery_warning]}"
            found[cause] = FailsafeRequest(action, cause, None)
        if self.inputs.fence:
            found["geofence"] = fence_request(get)
        if (action := self._fallback(self.intended, now_s)) != FailsafeAction.NONE:
            why = self.missing(self.intended, now_s, manual=False) or "mode requirement"
            found["mode fallback"] = FailsafeRequest(action, f"{why} lost")
        return found

    def _link_loss_action(self) -> FailsafeAction:
        return LINK_LOSS_ACTION.get(self._get.integer("NAV_RCL_ACT"), FailsafeAction.NONE)

    def _fallback(self, mode: FlightMode, now_s: float) -> FailsafeAction:
        """The action for a mode that cannot run any more (RC has a failsafe of its own)."""
        action = FailsafeAction.NONE
        if mode == FcuMode.OFFBOARD and not self._offboard_signal(now_s):
            action = OFFBOARD_LOSS_ACTION.get(self._get.integer("COM_OBL_RC_ACT"), FailsafeAction.POSCTL)
            if action == FailsafeAction.DISARM:
                return action
            mode = ACTION_MODE[action]
            by_sticks = (FailsafeAction.POSCTL, FailsafeAction.ALTCTL, FailsafeAction.STABILIZED)
            if action in by_sticks and not self.manual.ok:
                action = self._link_loss_action()
        if mode == FcuMode.POSCTL and self.missing(mode, now_s, manual=False):
            action, mode = FailsafeAction.ALTCTL, FcuMode.ALTCTL
        if mode == FcuMode.ALTCTL and self.missing(mode, now_s, manual=False):
            action, mode = FailsafeAction.STABILIZED, FcuMode.STABILIZED
        if mode != FcuMode.OFFBOARD and self.missing(mode, now_s, manual=False):
            action = FailsafeAction.RTL
        return action

    def _run_failsafes(self, now_s: float, dt: float) -> None:
        """Take the failsafe framework's decision and change the flying mode."""
        switched, self._mode_switched = self._mode_switched, False
        sticks, self._stick_request = self._stick_request, False
        if self.armed != self._previous_armed:
            self._failsafes.disarmed_or_armed()
            self._battery_at_arming = self.battery_warning
            self._previous_armed = self.armed
        if not self.armed or now_s == self.armed_since_s:
            self._manual_lost_at_arming = not self.manual.ok
        before = self._failsafes.selected
        if self.terminated:
            self._fly(FcuMode.TERMINATION, now_s, "terminated")
            return
        decision = self._failsafes.update(
            dt,
            self._get["COM_FAIL_ACT_T"],
            self.armed,
            self.intended,
            switched,
            sticks,
            self._requests(now_s),
            lambda mode: not self.missing(mode, now_s, manual=False),
            lambda mode: self._fallback(mode, now_s),
        )
        action = decision.action
        if decision.pilot_took_over:
            self.intended = self._after_disarm = FcuMode.POSCTL
            self._reason = "sticks"
            self._send_text(MavSeverity.INFO, "Pilot took over using sticks\t")
        if action > max(before, FailsafeAction.WARN):
            tail = f": entering Hold for {round(self._failsafes.delay_s)} seconds" if decision.delayed else ""
            self._send_text(MavSeverity.CRITICAL, f"Failsafe activated{tail}\t")
        self.failsafe = action > FailsafeAction.WARN
        if action == FailsafeAction.DISARM:
            self.disarm(now_s, "failsafe", force=True)
            return
        self.terminated = action == FailsafeAction.TERMINATE
        mode = ACTION_MODE.get(action, self.intended)
        self._fly(mode, now_s, f"failsafe: {decision.cause}" if action > FailsafeAction.WARN else self._reason)

    def _fly(self, mode: FlightMode, now_s: float, reason: str) -> None:
        if mode != self.mode:
            self.transitions.append(ModeTransition(now_s, self.mode, mode, reason))
            self.mode = mode
