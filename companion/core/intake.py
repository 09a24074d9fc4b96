"""What a node takes of the messages that arrive: none without a time, and none that only repeats an old one.

A process whose loop runs on with the content of a moment ago publishes it with new stamps, and no age by the stamp shows
it. In flight the numbers of an estimate are never the same twice: they carry the noise of the sensors down to their last
bit (0 of 30,583 states and 15,292 positions of PX4 SIH in an inspection, 0 of 11,840 and 5,920 of the emulator in
`bridge_hover`). A message that repeats them is refused, and so the newest good one ages by its own stamp. On the ground an
estimate may stand still.
"""

from math import isfinite
from operator import attrgetter

from companion.core.messages import (
    TOPIC_OF,
    EstimatorStatus,
    FcuAttitude,
    FcuPosition,
    FcuStatus,
    Message,
    SentSetpoint,
    State,
)

# The numbers of a message that change from one to the next in flight.
CONTENTS = {
    State: attrgetter("p_W", "v_W", "q_WB"),
    FcuPosition: attrgetter("p_W", "v_W"),
    FcuAttitude: attrgetter("q_WB", "omega_B"),
    EstimatorStatus: attrgetter("innovations", "covariance_blocks"),
}
# A status of the estimator with neither innovations nor covariance: in order for a tenth of a second.
NO_UPDATE: tuple[list[object], tuple[float, ...]] = ([], ())
SENT = attrgetter("roll_rad", "pitch_rad", "yaw_rad", "yaw_rate_rad_s", "thrust")


class Intake:
    """Decides by one message at a time and counts what it refuses.

    flying: by the newest status of the flight controller; a node that receives none may set it.
    """

    def __init__(self) -> None:
        self.errors = 0
        self.last_error = ""
        self.flying = False
        self._contents: dict[type[Message], tuple[object, float]] = {}

    def takes(self, message: Message) -> bool:
        """Whether the node may use the message."""
        kind = type(message)
        if not isfinite(message.stamp_s):
            return self._refuse(kind, "has no time")
        if isinstance(message, SentSetpoint) and not all(map(isfinite, SENT(message))):
            return self._refuse(kind, "is not finite")
        if isinstance(message, FcuStatus) and message.valid and message.connected:
            self.flying = message.armed and not message.landed
        content_of = CONTENTS.get(kind)
        if content_of is None or not message.valid:
            return True
        content = content_of(message)
        before, before_s = self._contents.get(kind, (None, 0.0))
        self._contents[kind] = content, message.stamp_s
        if not self.flying or content != before or message.stamp_s == before_s:  # or the same message once more
            return True
        return False if content == NO_UPDATE else self._refuse(kind, "repeats the one before with a new time")

    def _refuse(self, kind: type[Message], why: str) -> bool:
        self.errors += 1
        self.last_error = f"{TOPIC_OF[kind]} {why}"
        return False
