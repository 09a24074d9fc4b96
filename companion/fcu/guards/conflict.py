"""Detects another controller on the link; blocks setpoints and new flights and reports it.

Signs of it: frames with our own ids that we did not send, setpoints of another sender, a flight controller that follows
setpoints which this stack did not send, and two flight controllers with one id. A conflict ends when there has been no
sign of it for `HOLD_S` and the aircraft is disarmed. In the air it stays, because two controllers that take turns are
worse than PX4's own failsafe.
"""

from companion.fcu.link.codec import Codec
from companion.fcu.link.influence import ForeignMessage

HOLD_S = 5.0


class Conflict:
    """The newest sign of another controller."""

    def __init__(self) -> None:
        self.text = ""  # "" while there is no conflict
        self.signs = 0
        self._newest_s = 0.0
        self._own_frames = 0  # counter of the codec at the last check

    def check(self, codec: Codec, now_s: float) -> None:
        """Compare the counter of the codec with that of the last call."""
        if codec.own_frames != self._own_frames:
            self._own_frames = codec.own_frames
            ids = f"{codec.system_id}/{codec.component_id}"
            self.note(f"another sender on the link uses this companion's ids {ids} (or the link echoes)", now_s)

    def note_setpoint(self, message: ForeignMessage, now_s: float) -> None:
        """Take a setpoint of another sender."""
        sender = f"{message.system}/{message.component}"
        self.note(f"another sender ({sender}) sends setpoints to the flight controller", now_s)

    def note(self, text: str, now_s: float) -> None:
        """Take a sign of a conflict."""
        self.text, self._newest_s = text, now_s
        self.signs += 1

    def step(self, armed: bool, now_s: float) -> None:
        """End the conflict when it is over."""
        if self.text and not armed and now_s - self._newest_s > HOLD_S:
            self.text = ""
