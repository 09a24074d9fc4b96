"""What the safety monitors evaluate: a snapshot of the flight, taken by the mission in every step."""

import math
from dataclasses import dataclass, field

from companion.core.enums import FcuMode, FcuSystem, Phase, ProcessName, Sensor
from companion.core.messages import (
    BundleWitness,
    ControlStatus,
    FcuAttitude,
    FcuStatus,
    HostStatus,
    ImuReport,
    PayloadStatus,
    SentSetpoint,
    State,
)
from companion.core.trajectory_messages import Vec3
from companion.mission.inspection_progress import Sight
from companion.mission.modes import MANUAL_MODES
from companion.mission.plan import Plan
from companion.mission.raw_guard import RawMotion
from companion.mission.reference_geometry import difference

SEEN_S = 0.5  # a bundle counts as seen while its last accepted observation is younger


@dataclass
class SafetySnapshot:
    """Messages, their ages [s] and what was computed from them over time (`companion.mission.trends`)."""

    now_s: float
    phase: Phase
    at_bundle: bool  # flying relative to the bundle, or paused while doing so
    plan: Plan
    status: FcuStatus | None  # the newest, whatever its age
    status_age_s: float  # of the newest that reported a connection
    state: State | None  # the newest valid one, whatever its age
    state_age_s: float
    control: ControlStatus | None  # None when it is too old
    setpoints_age_s: float  # since the controller last reported that it sends
    fallback_time_s: float  # how long the controller has been on its fallback
    home_W: Vec3 | None  # the take-off point in the estimator's world
    resets: int  # of the estimator since the take-off point was taken
    mode_left: bool  # the mission did not choose the present mode
    silent: bool  # this stack should send setpoints and sends none, so PX4 leaves offboard by itself
    rc_expected: bool  # RC was there at the start
    rc_age_s: float  # since RC was last there
    switched_off: bool  # the mission switch was turned off
    gnss_expected: bool = False  # there was a fix at the start
    gnss_age_s: float = math.inf  # since the last fix
    gnss_followed_age_s: float = math.inf  # since the last fix that the flight controller did not refuse
    attitude: FcuAttitude | None = None  # None when it is too old
    sent: SentSetpoint | None = None  # likewise
    host: HostStatus | None = None  # likewise
    witness: BundleWitness | None = None  # likewise; of the plan's bundle
    imu: ImuReport | None = None  # None: not used at the start, or not reported
    runaways: dict[str, int] = field(default_factory=dict)  # of the filter's states since the start
    copies: int = 0  # images of the last seconds that show the plan's bundle twice
    nis: dict[Sensor, float] = field(default_factory=dict)  # over degrees of freedom, median of the last second
    solver_failures: float = 0.0  # share of the last cycles whose solve failed
    deadline_misses: float = 0.0  # share of the last cycles that came late
    health_ages_s: dict[ProcessName, float] = field(default_factory=dict)  # of the processes seen in this flight
    step_rates: dict[ProcessName, float] = field(default_factory=dict)  # steps done over nominal steps
    # Of the processes that counted errors since the start: how many, and the last of them.
    new_errors: dict[ProcessName, tuple[int, str]] = field(default_factory=dict)

    tilt_error_rad: float | None = (
        None  # of the attitude against the setpoints sent, see `companion.mission.tilt_error`
    )
    payload_age_s: float | None = None  # since the payload camera was ready; None: it never was, or there is none
    payload: PayloadStatus | None = None  # the newest, whatever its age
    structure_m: float | None = None  # to the nearest surface of an inspection that is flown
    sight: Sight | None = None  # of the bundles of an inspection that is flown
    landing_at_bundle: bool = False  # in LAND: it began while flying relative to the bundle
    phase_time_s: float = 0.0  # in the present phase
    sinks: bool = False  # in LAND, this stack still flies the aircraft down by its own estimate
    raw: RawMotion | None = None  # by the flight controller's own data; None: not known
    raw_difference_m_s: float | None = None  # between its velocity and the filter's
    raw_reset_m: float = 0.0  # how far the resets that it counts have moved its frame since the start
    raw_off_s: float = 0.0  # since the independent guard last had a value, or since the start
    raw_missing: str = ""  # why it has none
    raw_age_s: float | None = None  # of its newest position; None: there was none at the start
    climb: tuple[float, float] | None = None  # height over the record and climb rate, by which PX4 climbs
    new_faults: tuple[FcuSystem, ...] = ()  # systems that were healthy at the start and no longer are
    voltage_age_s: float | None = None  # since the battery was last measured; None: it was not at the start
    voltage_outside_v: float = 0.0  # of what a battery in flight has, newest voltage or one of the last half second
    flight_time_left_s: float | None = None  # by the trend of the battery; None: not known yet
    wind_share: float | None = None  # mean tilt over the tilt that the controller may use; None: not known yet
    strong_wind: float | None = (
        None  # part of that tilt that the disturbance of the last seconds takes; None: not known
    )
    # Moved against the lean in two seconds, with no tilt left; None: not known, or PX4 cannot land by its position, so that this
    # stack would sink with the same tilt.
    carried_m: float | None = None
    way_home_s: float | None = None  # to the end of the return; None: not known
    paused_phase: Phase | None = None  # in PAUSE: the phase that it interrupted
    ground_age_s: float | None = None  # since a ground station was last heard; None: there was none at the start
    px4_without_position: bool = False  # in a flight in which it had one
    descending: bool = False  # by this stack, over the place where it lands

    def from_home(self) -> Vec3 | None:
        """The aircraft relative to the take-off point [m]."""
        if self.state is None or self.home_W is None:
            return None
        return difference(self.state.p_W, self.home_W)

    @property
    def in_offboard(self) -> bool:
        """The setpoints of this stack move the aircraft; not while it is disarmed, when PX4 shows an earlier mode."""
        return self.status is not None and self.status.armed and self.status.mode == FcuMode.OFFBOARD

    @property
    def by_pilot(self) -> bool:
        """The pilot's sticks move the aircraft."""
        return self.status is not None and self.status.mode in MANUAL_MODES

    @property
    def marker_age_s(self) -> float:
        """Since the plan's bundle was last seen [s], inf before that; in an inspection any of its bundles."""
        if self.sight is not None:
            return self.sight.age_s + self.state_age_s
        if self.state is None or self.plan.bundle is None or self.state.bundle != self.plan.bundle:
            return math.inf
        return self.state.marker_age_s + self.state_age_s

    @property
    def bundle_seen(self) -> bool:
        """The plan's bundle was observed just now; in an inspection any of its bundles."""
        return self.marker_age_s < SEEN_S
