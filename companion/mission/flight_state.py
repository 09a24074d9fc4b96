"""What the mission remembers of one flight, and the cause of an early end in words."""

from dataclasses import dataclass, field
from enum import StrEnum

from companion.core.enums import Phase
from companion.core.trajectory_messages import Resumed, Vec3
from companion.mission.inspection_progress import Inspecting
from companion.mission.requests import Photographer


class Timer(StrEnum):
    """What is timed within a phase; `FlightState.timers` holds since when it is true."""

    TAKEOFF_HEIGHT = "take-off height kept"
    SENDING = "controller sends"
    SEEN = "bundle seen"
    LOOKING = "looking from a waypoint"
    CONFIRMED = "bundle confirmed"
    ARRIVED = "at the goal"
    CHECKED = "trajectory compared with the limits"
    TOUCHDOWN = "on the ground, armed"
    OFFBOARD_LEFT = "PX4 has left offboard"
    PERSON = "a person has chosen what PX4 does, or has stopped this stack"
    UNSEEN = "a choice was possible that the lost link did not show"
    ASKED = "what PX4 was asked for is settled"
    UNHEARD = "the link was lost while PX4 was asked for Hold"
    DEAF = "the link is lost"
    REPORTED = "another sender that entered offboard again was reported"


# What the mission does after the cause of an early end: while it does so, when it has finished, when it was cut short.
MEASURES: dict[Phase, tuple[str, str, str]] = {
    Phase.RETREAT: ("backing away", "backed away", "began to back away"),
    Phase.RETURN: ("returning", "returned", "began to return"),
    Phase.LAND: ("landing", "landed", "began to land"),
    Phase.PX4_HOLD: ("stopped streaming, PX4 has control",) * 3,
    Phase.PILOT: ("stopped streaming, control handed over",) * 3,
}


@dataclass
class FlightState:
    """State of one flight; a deliberate new start begins with a new one."""

    photographer: Photographer
    inspection: Inspecting | None = None
    phase: Phase = Phase.WAIT_READY
    reason: str = "started"  # why the phase was entered
    phase_since_s: float | None = None  # None before the first step
    timers: dict[Timer, float] = field(default_factory=dict)  # since when something is true, in this phase
    early_end: str = ""  # what ended the mission early, the first cause; "" while all is well
    measures: dict[Phase, bool] = field(default_factory=dict)  # phases entered since then; True: finished
    cause_before: str = ""  # of the flight before this one, until this one begins
    came_from: Phase | None = None  # the phase before the present one
    last_step_s: float | None = None
    hold_time_s: float = 0.0  # spent in HOLD, all times together
    trajectory_flown: bool = False
    interrupted: Resumed | None = None  # what is left of the trajectory, in its own frame, after an interruption
    interrupted_hold_s: float = 0.0  # flown of a trajectory that holds a point, before an interruption
    paused_phase: Phase | None = None  # the phase that PAUSE interrupted last
    pauses: int = 0
    waypoint: int = 0  # index of the waypoint of the search to look from
    waypoints_reached: int = 0
    return_path: list[tuple[Vec3, float]] | None = None  # points in the world and headings that are still to be flown
    descended: bool = False  # by this stack, to just above the take-off point
    sinks: bool = False  # by this stack, without a position, until PX4 lands the last decimetres
    waits: bool = False  # in control, until PX4 has a position again and can be asked to land
    brakes: bool = False  # by the flight controller's velocity, until PX4 lands: this stack's estimate is in doubt
    land_attempts: int = 0
    intended_changes: int | None = None  # by the first status of the present phase
    switch_used_s: float | None = None  # the movement of the mission switch that was last acted on

    def phase_time_s(self, now_s: float) -> float:
        """Time in the present phase [s]."""
        return 0.0 if self.phase_since_s is None else now_s - self.phase_since_s

    def lasts(self, timer: Timer, holds: bool, time_s: float, now_s: float) -> bool:
        """`holds` has been true in every step of the last `time_s` of this phase."""
        if not holds:
            self.timers.pop(timer, None)
            return False
        return now_s - self.timers.setdefault(timer, now_s) >= time_s

    def change_phase(self, phase: Phase, reason: str, now_s: float, cause: str = "") -> None:
        """Enter a phase. cause: what ends the mission early, "" for a transition of an ordinary flight."""
        left = self.phase
        if phase == Phase.WAIT_READY:
            self.cause_before = self.cause
        self.phase, self.reason, self.phase_since_s, self.came_from = phase, reason, now_s, left
        self.timers.clear()
        self.intended_changes = None
        if left == Phase.WAIT_READY:
            self.cause_before = ""
        if cause and not self.early_end:
            self.early_end = cause
        if left in self.measures:
            self.measures[left] = not cause and phase != Phase.PAUSE
        if self.early_end and phase in MEASURES:
            self.measures[phase] = False

    @property
    def cause(self) -> str:
        """Why the mission ended early or without success, and what it did then; "" while all is well."""
        if not self.early_end:
            missing = self.phase == Phase.DONE and self.photographer.taken < self.photographer.wanted
            taken = f"{self.photographer.taken} of {self.photographer.wanted} photographs taken"
            if self.phase == Phase.DONE and self.inspection is not None and self.inspection.shortfall:
                return self.inspection.shortfall
            return taken if missing else self.cause_before
        done = []
        for phase, finished in self.measures.items():
            during, after, cut_short = MEASURES[phase]
            done.append(during if phase == self.phase else after if finished else cut_short)
        return f"{self.early_end}: {_listed(done)}" if done else self.early_end


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
