"""ODOMETRY for PX4's own estimator: a witness beside GNSS, which makes PX4's position drift less, not stop.

While PX4 fuses the position of GNSS (bit 0 of EKF2_GPS_CTRL), it raises the variances of this position to at least
EKF2_GPS_P_NOISE² and subtracts a bias that it estimates against its own, GNSS-driven position. PX4 therefore does not
hold by the marker after the stack has stopped streaming; docs/real_aircraft.md has the measurements.

How PX4 1.17 uses it (mavlink_receiver.cpp handle_message_odometry, EKF2.cpp UpdateExtVisionSample,
EKF/aid_sources/external_vision):

* it uses the three variances of position, of attitude and of velocity and no covariances; both frames must be known,
  otherwise the whole message is dropped; a quaternion must have length 1 to 1e-5;
* in MAV_FRAME_LOCAL_NED a position is fused as it is, or, while GNSS is fused, with a bias of its own. In
  MAV_FRAME_LOCAL_FRD it would be rotated by the difference of the two attitudes about an origin that may be far away,
  and its variance raised to that of the attitude; W is north-aligned, therefore NED is used;
* `time_usec` is our time: PX4 has the offset from its own TIMESYNC requests, which are answered with this clock;
* after a change of `reset_counter` PX4 resets to the next position; `quality` is compared with EKF2_EV_QMIN.

The filter's position in W drifts with GNSS, which PX4 uses anyway. PX4 does not have the position relative to the
bundle. The bundle is therefore anchored at its first estimated position, and the message contains that point plus the
aircraft's position relative to the bundle, with the deviation of the latter, only while the bundle is in sight.
"""

import math

from pymavlink.dialects.v20 import common

from companion.core.messages import State
from companion.core.trajectory_messages import Vec3
from companion.fcu.ned import swap_attitude, swap_world

PERIOD_S = 1.0 / 30.0  # PX4 asks for 30 to 50 Hz; it stops fusing after gaps of 0.2 s
MARKER_AGE_MAX_S = 0.3  # after this long without the bundle the position relative to it is dead reckoning
QUALITY_STD_M = 0.3  # of the relative position, at which the quality is 1 %
NAN = math.nan


def covariance(x: float, y: float, z: float, a: float, b: float, c: float) -> list[float]:
    """Upper triangle, row by row, of the 6x6 matrix with this diagonal: 21 numbers."""
    out = [0.0] * 21
    for i, variance in zip((0, 6, 11, 15, 18, 20), (x, y, z, a, b, c), strict=True):
        out[i] = variance
    return out


class OdometrySource:
    """Converts states to ODOMETRY messages."""

    def __init__(self) -> None:
        self._anchor_W: Vec3 = (0.0, 0.0, 0.0)  # position of the anchored bundle
        self._bundle = ""
        self._resets = -1  # of the filter, when the bundle was anchored
        self._due_s = -math.inf
        self.reset_counter = 0
        self.sent = 0

    def message(self, state: State, now_s: float) -> common.MAVLink_odometry_message | None:
        """The message of a state, None when none is due or the bundle is not in sight."""
        if now_s < self._due_s or not self._is_usable(state):
            return None
        self._anchor(state)
        self._due_s = self._due_s + PERIOD_S if now_s - self._due_s < PERIOD_S else now_s + PERIOD_S
        a, p_W, p_WM = self._anchor_W, state.p_W, state.p_WM
        p = swap_world((a[0] + p_W[0] - p_WM[0], a[1] + p_W[1] - p_WM[1], a[2] + p_W[2] - p_WM[2]))
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
    def _is_usable(s: State) -> bool:
        if not s.valid or not s.bundle or not s.marker_age_s <= MARKER_AGE_MAX_S or len(s.covariance_diag) < 9:
            return False
        numbers = (s.stamp_s, *s.p_W, *s.v_W, *s.q_WB, *s.p_WM, s.relative_std_m, *s.covariance_diag[:9])
        return all(map(math.isfinite, numbers)) and s.stamp_s >= 0.0 and any(s.q_WB) and max(map(abs, numbers)) < 1e9

    def _anchor(self, s: State) -> None:
        """Keep the bundle's position; for another bundle or after a filter reset take a new one and reset PX4's fusion.

        A correction of the filter's GNSS bias moves aircraft and bundle together and does not move the anchor.
        """
        if s.bundle == self._bundle and s.reset_count == self._resets:
            return
        if self._bundle:
            self.reset_counter = (self.reset_counter + 1) % 256
        self._anchor_W, self._bundle, self._resets = s.p_WM, s.bundle, s.reset_count
