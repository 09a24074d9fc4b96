"""Filters the frames of ground stations on the forward: which of them may go to the flight controller.

Nearly all pass: the crew arms, changes modes and writes parameters, and the mission treats a changed mode like one of
the pilot's. Blocked are setpoints, because only one sender may steer; positions, measurements and RC channels, because
PX4's estimate and the pilot's switch would follow them, also as commands; frames with the ids of this companion or of the
flight controller, because acks and restarts would be misread; SETUP_SIGNING, which would lock this companion out.
Blocked frames are counted and reported. RADIO_STATUS ends here without a word: a telemetry radio on the forward sends it
once a second, and PX4 would reduce the rates of the companion's own port by the radio's full buffer
(`MAV_n_RADIO_CTL`, on as delivered) to a twentieth. Changes of mode and settings pass and are kept for a report. A flood is thinned out, so that a setpoint never waits behind it.
"""

import math

from pymavlink.dialects.v20 import common

from companion.fcu.link.codec import (
    AUTOPILOT_COMPONENT,
    FOREIGN_MAX,
    Codec,
    is_station,
)
from companion.fcu.link.framing import Frame, Framer
from companion.fcu.link.influence import MESSAGES, ForeignMessage, Influence, influence_of
from companion.fcu.link.signing import Rejection

BYTES_PER_S = 20_000  # a quarter of a port at 921600 baud; parameters and missions need far less
BURST = 8_000
STATION_S = 2.5  # PX4's HEARTBEAT_TIMEOUT_US
BLOCKED = {number for number, influence in MESSAGES.items() if influence is not Influence.CHANGE}
BLOCKED.add(common.MAVLINK_MSG_ID_SETUP_SIGNING)
# Of commands: a position, an attitude or a wind of a ground station, which PX4 gives to its estimator.
BLOCKED_IN_COMMANDS = (Influence.POSITION, Influence.MEASUREMENT)
_NAMES = {number: kind.msgname for number, kind in common.mavlink_map.items()}


class GroundFilter:
    """Cuts the bytes of ground stations into frames and returns those that may pass."""

    def __init__(self, codec: Codec, autopilot_system_id: int) -> None:
        self._codec = codec
        self._autopilot = (autopilot_system_id, AUTOPILOT_COMPONENT)
        self._framer = Framer()
        self._allowance = float(BURST)
        self._last_s = 0.0
        self.passed = 0
        self.blocked = 0  # because of their content or sender
        self.unsigned = 0  # blocked because a key is set and they are not signed with it, or not now
        self.thinned = 0  # dropped in a flood
        self.station_s = -math.inf  # when a ground station's heartbeat last went through
        self.reason = ""  # of the newest blocked frame
        self._changes: dict[ForeignMessage, None] = {}  # that passed since the last report

    def filter(self, data: bytes, now_s: float) -> list[bytes]:
        """The frames in `data` that may go to the flight controller, whole and unchanged; never raises."""
        self._allowance = min(BURST, self._allowance + BYTES_PER_S * max(0.0, now_s - self._last_s))
        self._last_s = now_s
        buffer, frames = self._framer.frames(data)
        out = []
        for frame, _ in frames:
            raw = buffer[frame.start : frame.end]
            sender = (frame.system, frame.component)
            change = influence_of(frame.number, buffer[frame.payload : frame.tail], sender, self._autopilot[0])
            if not self._may_pass(frame, raw, change, now_s):
                continue
            if len(raw) > self._allowance:
                self.thinned += 1
                continue
            self._allowance -= len(raw)
            self.passed += 1
            if change is not None and len(self._changes) < FOREIGN_MAX:
                self._changes[change] = None
            if frame.number == common.MAVLINK_MSG_ID_HEARTBEAT and is_station(buffer[frame.payload : frame.tail]):
                self.station_s = now_s
            out.append(raw)
        return out

    def take_changes(self) -> list[ForeignMessage]:
        """What ground stations changed in the flight controller since the last call; each kind once."""
        changes, self._changes = list(self._changes), {}
        return changes

    def has_station(self, now_s: float) -> bool:
        """The flight controller receives a ground station on this link and sends texts (PX4's `STATUSTEXT.hpp`)."""
        return now_s - self.station_s < STATION_S

    def _may_pass(self, frame: Frame, raw: bytes, change: ForeignMessage | None, now_s: float) -> bool:
        codec, sender = self._codec, (frame.system, frame.component)
        if codec.signer is not None:
            why = codec.signer.rejection(raw, *sender, now_s) if frame.signed else Rejection.KEY
            if why:
                self.unsigned += 1
                self.reason = f"frame from {frame.system}/{frame.component} {why}"
                return False
        if frame.number == common.MAVLINK_MSG_ID_RADIO_STATUS:
            return False
        if frame.number in BLOCKED:
            self.reason = f"{_NAMES[frame.number]} from {frame.system}/{frame.component}"
        elif change is not None and change.influence in BLOCKED_IN_COMMANDS:
            self.reason = f"{change.name} from {frame.system}/{frame.component}"
        elif sender == (codec.system_id, codec.component_id):
            self.reason = f"frame with this companion's own ids {frame.system}/{frame.component}"
        elif sender == self._autopilot:
            self.reason = f"frame with the flight controller's ids {frame.system}/{frame.component}"
        else:
            return True
        self.blocked += 1
        return False
