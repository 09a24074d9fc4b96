"""PX4's land detector: whether the aircraft stands on the ground, from thrust, motion and command.

Three conditions, each held for a third of LNDMC_TRIG_TIME: ground contact (low thrust while descending, no motion),
maybe landed (least thrust, no rotation), landed. A condition ends at once. No vertical motion is a small velocity or, since
1.17, a small derivative of the estimated height: on the ground a velocity with a bias is not small, its height stays.
"""

import math

from sitl.autopilot.conversion import Vector
from sitl.autopilot.parameters import Parameters

LANDED_FACTOR = 2.5  # on the limits of motion while landed, against vibration of the rotors
RATE_TIME_S = 0.25  # of the derivative of the height, as the vertical output filter of EKF2 (vert_pos, vert_vel)
LEAST_THRUST_S = 8.0  # hold time of the least thrust without a vertical estimate


class Held:
    """A condition that becomes true after it has held for a time, and false at once."""

    __slots__ = ("since_s", "state")

    def __init__(self, state: bool) -> None:
        self.state = state
        self.since_s: float | None = None

    def update(self, condition: bool, now_s: float, hold_s: float) -> bool:
        if not condition:
            self.state, self.since_s = False, None
        elif not self.state:
            if self.since_s is None:
                self.since_s = now_s
            self.state = now_s - self.since_s >= hold_s - 1e-6
        return self.state


class LandDetector:
    """Call `update` at 50 Hz; ``landed``, ``maybe_landed`` and ``contact`` hold the result."""

    def __init__(self, parameters: Parameters) -> None:
        self._get = parameters
        self._contact, self._maybe, self._landed = Held(True), Held(True), Held(True)
        self._least = Held(False)
        self._height: tuple[float, float] | None = None  # of the last update: time, z [m]
        self._rate_m_s = math.inf
        self._velocity_m_s = 0.0  # vertical, through the same filter
        self._descends = self._hover_is_known = False

    @property
    def rate_error_m_s(self) -> float:
        """Slow difference of the height's derivative and the vertical velocity; 0 before the second update."""
        return self._rate_m_s - self._velocity_m_s if math.isfinite(self._rate_m_s) else 0.0

    @property
    def contact(self) -> bool:
        return self._contact.state

    @property
    def maybe_landed(self) -> bool:
        return self._maybe.state

    @property
    def landed(self) -> bool:
        return self._landed.state

    def update(
        self,
        now_s: float,
        armed: bool,
        thrust: float,
        hover: float,
        hover_is_valid: bool,
        v: Vector,
        z: float,
        gyro_B: Vector,
        climb_rate_control: bool,
        v_sp_z: float,
        vertical_valid: bool,
        horizontal_valid: bool,
    ) -> None:
        """thrust: collective command 0..1; hover_is_valid: the estimate of the hover thrust is; v: velocity (ENU); z: estimated height [m] without its resets;
        v_sp_z: commanded by the mode's setpoint, up, NaN when none.
        """
        get = self._get
        hold_s = get["LNDMC_TRIG_TIME"] / 3.0
        z_max = get["LNDMC_Z_VEL_MAX"]
        factor = LANDED_FACTOR if self.landed else 1.0
        self._follow_height(now_s, z, v[2])
        vertical = not vertical_valid or min(abs(v[2]), abs(self._rate_m_s)) > z_max * factor
        horizontal = horizontal_valid and math.hypot(v[0], v[1]) > get["LNDMC_XY_VEL_MAX"]
        least = get["MPC_THR_MIN"]
        if not self._descends or hover_is_valid:  # one that becomes invalid in a descent goes on to be used
            self._hover_is_known = hover_is_valid
        contact = thrust <= least + (hover - least) * (0.6 if self._hover_is_known else 0.3)
        self._descends = climb_rate_control and math.isfinite(v_sp_z) and -v_sp_z >= 1.1 * z_max
        if climb_rate_control and not self.maybe_landed and not self.landed:
            contact = contact and self._descends
        self._contact.update(not armed or (contact and not horizontal and not vertical), now_s, hold_s)

        limit = least + 0.1 * (hover - least) if climb_rate_control else get["MPC_MANTHR_MIN"] + 0.01
        quiet = math.hypot(gyro_B[0], gyro_B[1]) <= math.radians(get["LNDMC_ROT_MAX"]) * factor
        idle = thrust <= limit
        long_idle = self._least.update(idle, now_s, LEAST_THRUST_S)
        touched = self.contact if vertical_valid else long_idle
        self._maybe.update(not armed or (idle and quiet and touched), now_s, hold_s)
        self._landed.update(not armed or self.maybe_landed, now_s, hold_s)

    def _follow_height(self, now_s: float, z: float, v_z: float) -> None:
        before, self._height = self._height, (now_s, z)
        if before is None or not now_s > before[0]:
            return
        rate_m_s, dt = (z - before[1]) / (now_s - before[0]), now_s - before[0]
        share = min(dt / RATE_TIME_S, 1.0) if math.isfinite(self._rate_m_s) else 1.0
        known = self._rate_m_s if share < 1.0 else rate_m_s
        self._rate_m_s = known + share * (rate_m_s - known)
        self._velocity_m_s += share * (v_z - self._velocity_m_s)
