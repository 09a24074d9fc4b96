"""What the safety rows look at: one plain picture of the flight, made anew by the pilot in every step."""

import math
from dataclasses import dataclass, field

from companion.core.messages import ControlStatus, FcuAttitude, FcuStatus, HostStatus, SentSetpoint, State, Vec3
from companion.mission.plan import Plan


@dataclass
class SafetySnapshot:
    """Messages, their ages [s] and what was gathered from them over time (`companion.mission.trends`)."""

    now_s: float
    phase: str
    at_bundle: bool  # flying relative to the bundle, or paused while doing so
    plan: Plan
    status: FcuStatus | None  # the newest, whatever its age
    status_age_s: float  # of the newest that said it was connected
    state: State | None  # the newest valid one, whatever its age
    state_age_s: float
    control: ControlStatus | None  # only while young enough to be trusted
    setpoints_age_s: float  # since the controller last said it was sending
    fallback_time_s: float  # how long the controller has been on its fallback
    home_W: Vec3 | None  # the take-off point in the estimator's world
    resets: int  # of the estimator since the take-off point was taken
    mode_left: bool  # the mode is neither the one asked for nor the one before
    rc_expected: bool  # a transmitter was there at the start
    rc_age_s: float  # since it was last there
    switched_off: bool  # the mission switch was turned off
    gnss_expected: bool = False  # there was a fix at the start
    gnss_age_s: float = math.inf  # since the last fix
    attitude: FcuAttitude | None = None  # only while young enough to be trusted
    sent: SentSetpoint | None = None  # likewise
    host: HostStatus | None = None  # likewise
    nis: dict[str, float] = field(default_factory=dict)  # by sensor, over degrees of freedom, median of late
    solver_failures: float = 0.0  # share of the last cycles whose solve failed
    deadline_misses: float = 0.0  # share of the last cycles that came late
    health_ages_s: dict[str, float] = field(default_factory=dict)  # of the processes that were there in this flight
    step_rates: dict[str, float] = field(default_factory=dict)  # steps done over steps wanted, by process

    def from_home(self) -> Vec3 | None:
        """The aircraft relative to the take-off point [m]."""
        if self.state is None or self.home_W is None:
            return None
        return tuple(a - b for a, b in zip(self.state.p_W, self.home_W, strict=True))

    @property
    def flown_by_us(self) -> bool:
        """Our setpoints move the aircraft. Disarmed: no; PX4 then shows the mode it had before the landing again."""
        return self.status is not None and self.status.armed and self.status.mode == "OFFBOARD"

    @property
    def marker_age_s(self) -> float:
        """Since the plan's bundle was last seen [s]; inf when it never was."""
        if self.state is None or self.plan.bundle is None or self.state.bundle != self.plan.bundle:
            return math.inf
        return self.state.marker_age_s + self.state_age_s
