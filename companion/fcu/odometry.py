"""ODOMETRY for PX4's own estimator, so that PX4 holds by the marker, too, when the companion has stopped.

What PX4 1.17 makes of it (mavlink_receiver.cpp handle_message_odometry, EKF2.cpp UpdateExtVisionSample,
EKF/aid_sources/external_vision):

* it uses the three variances of position, of attitude and of velocity, none of the rest; both frames must be known
  ones, or everything is dropped; a quaternion must have length 1 to 1e-5;
* in MAV_FRAME_LOCAL_NED a position is fused as it is, or, while satellites are fused, with a bias of its own. In
  MAV_FRAME_LOCAL_FRD it would be turned by the difference of the two attitudes about an origin that may be far away,
  and its variance raised to that of the attitude; W is north-aligned, so NED it is;
* `time_usec` is ours: PX4 has the offset from its own TIMESYNC requests, which are answered with this clock;
* a change of `reset_counter` makes it take the next position as a new beginning; `quality` counts against EKF2_EV_QMIN.

The filter's position in W drifts with the satellites, by which PX4 lives anyway. What it does not have is the place
relative to the bundle. So the bundle is nailed down where it was first believed to be, and what is sent is that point
and the aircraft's place relative to the bundle, with the deviation of the latter, only while the bundle is in sight.
"""

import math

from pymavlink.dialects.v20 import common

from companion.core.messages import State, Vec3
from companion.fcu.ned import swap_attitude, swap_world

PERIOD_S = 1.0 / 30.0  # PX4 asks for 30 to 50 Hz; it stops fusing after gaps of 0.2 s
MARKER_AGE_MAX_S = 0.3  # after so long without the bundle the place relative to it is dead reckoning
QUALITY_STD_M = 0.3  # of the relative position, at which the quality is 1 %
NAN = math.nan


def covariance(x: float, y: float, z: float, a: float, b: float, c: float) -> list[float]:
    """Upper triangle, row by row, of the 6x6 matrix with this diagonal: 21 numbers."""
    out = [0.0] * 21
    for i, variance in zip((0, 6, 11, 15, 18, 20), (x, y, z, a, b, c), strict=True):
        out[i] = variance
    return out


class OdometrySource:
    """States to ODOMETRY messages."""

    def __init__(self) -> None:
        self._anchor_W: Vec3 = (0.0, 0.0, 0.0)  # where the bundle was nailed down
        self._bundle = ""
        self._resets = -1  # of the filter, when the bundle was nailed down
        self._due_s = -math.inf
        self.reset_counter = 0
        self.sent = 0

    def message(self, state: State, now_s: float) -> common.MAVLink_odometry_message | None:
        """The message of a state, None when none is due or the state says nothing of the bundle."""
        if now_s < self._due_s or not self._is_of_use(state):
            return None
        self._nail_down(state)
        self._due_s = self._due_s + PERIOD_S if now_s - self._due_s < PERIOD_S else now_s + PERIOD_S
        p = swap_world(tuple(a + b - c for a, b, c in zip(self._anchor_W, state.p_W, state.p_WM, strict=True)))
        v = swap_world(state.v_W)
        q = swap_attitude(state.q_WB)
        length = math.sqrt(sum(x * x for x in q))
        variance = state.relative_std_m * state.relative_std_m  # the largest over all directions
        d = state.covariance_diag  # p, v in W; θ in the body, whose axes differ from FRD's in sign alone
        quality = round(100 * max(0.01, 1.0 - state.relative_std_m / QUALITY_STD_M))
        self.sent += 1
        return common.MAVLink_odometry_message(
            round(state.stamp_s * 1e6), common.MAV_FRAME_LOCAL_NED, common.MAV_FRAME_LOCAL_NED,
            *p, [x / length for x in q], *v, NAN, NAN, NAN,
            covariance(variance, variance, variance, d[6], d[7], d[8]),
            covariance(d[4], d[3], d[5], NAN, NAN, NAN),
            self.reset_counter, common.MAV_ESTIMATOR_TYPE_VISION, quality,
        )  # fmt: skip

    @staticmethod
    def _is_of_use(s: State) -> bool:
        if not s.valid or not s.bundle or not s.marker_age_s <= MARKER_AGE_MAX_S or len(s.covariance_diag) < 9:
            return False
        numbers = (s.stamp_s, *s.p_W, *s.v_W, *s.q_WB, *s.p_WM, s.relative_std_m, *s.covariance_diag[:9])
        return all(map(math.isfinite, numbers)) and s.stamp_s >= 0.0 and any(s.q_WB) and max(map(abs, numbers)) < 1e9

    def _nail_down(self, s: State) -> None:
        """Keep the bundle's place, or take a new one and tell PX4 that everything begins anew.

        That the filter moves aircraft and bundle together, because it thinks otherwise of the satellites, is no reason.
        """
        if s.bundle == self._bundle and s.reset_count == self._resets:
            return
        if self._bundle:
            self.reset_counter = (self.reset_counter + 1) % 256
        self._anchor_W, self._bundle, self._resets = s.p_WM, s.bundle, s.reset_count
