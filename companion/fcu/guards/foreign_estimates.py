"""Reports messages of other senders that feed PX4's own estimator with positions.

PX4 takes VISION_POSITION_ESTIMATE, ODOMETRY and ATT_POS_MOCAP of any sender, and with `EKF2_EV_CTRL` it follows them.
That is no conflict of authority: this stack keeps its setpoints, because Hold and Land would fly by the same estimate of
PX4, while the filter of this stack checks PX4's position by the bundle and the guard by its record. The crew is warned.
Where this stack sends ODOMETRY itself (`fcu.send_odometry`), no flight begins beside another one: PX4 has one input for
both, and jumps between them.
"""

import math

from pymavlink.dialects.v20 import common

from companion.fcu.link.codec import Codec

RECENT_S = 5.0  # an estimate of 1 Hz with losses is one event


class ForeignEstimates:
    """The newest message of another sender with an estimate for PX4."""

    def __init__(self) -> None:
        self._count = 0  # of the codec at the last check
        self._newest_s = -math.inf
        self._text = ""

    def check(self, codec: Codec, now_s: float) -> None:
        """Compare the counter of the codec with that of the last call."""
        if codec.foreign_estimates == self._count:
            return
        self._count, self._newest_s = codec.foreign_estimates, now_s
        (system, component), number = codec.estimate_sender, codec.estimate_message
        self._text = f"{common.mavlink_map[number].msgname} of {system}/{component}"

    def lately(self, now_s: float) -> str:
        """Message and sender of the newest, "" when there was none lately."""
        return self._text if now_s - self._newest_s <= RECENT_S else ""
