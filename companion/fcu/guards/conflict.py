"""Is anybody else in our place? Then no setpoint leaves, no flight is started, and it is told.

What counts: frames with our own ids that are not ours, setpoints of others, a flight controller that flies by setpoints
which did not leave here, and two flight controllers with one id. A conflict ends when there has been no sign of it for
`HOLD_S` and the aircraft is disarmed: in the air it stays, because two that take turns at steering are worse than PX4's
own failsafe.
"""

from companion.fcu.link.codec import Codec

HOLD_S = 5.0


class Conflict:
    """The newest sign of somebody else in our place."""

    def __init__(self) -> None:
        self.text = ""  # "" while there is none
        self.signs = 0
        self._seen_s = 0.0
        self._own_frames = self._setpoints = 0  # of what a codec counts, when it was last looked at

    def look_at(self, codec: Codec, now_s: float) -> None:
        """Take what the codec heard of others."""
        if codec.own_frames != self._own_frames:
            self._own_frames = codec.own_frames
            ids = f"{codec.system_id}/{codec.component_id}"
            self.note(f"somebody else on the link has this companion's ids {ids} (or the link echoes)", now_s)
        if codec.foreign_setpoints != self._setpoints:
            self._setpoints = codec.foreign_setpoints
            sender = "{}/{}".format(*codec.setpoint_sender)
            self.note(f"somebody else sends setpoints to the flight controller ({sender})", now_s)

    def note(self, text: str, now_s: float) -> None:
        """A sign of it."""
        self.text, self._seen_s = text, now_s
        self.signs += 1

    def step(self, armed: bool, now_s: float) -> None:
        """Let go of what is over."""
        if self.text and not armed and now_s - self._seen_s > HOLD_S:
            self.text = ""
