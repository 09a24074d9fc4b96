"""Detects problems with the senders on the link: no MAVLink, other flight controllers, a wrong signing key.

Each problem is reported once, and again when it has ended and returned.
"""

import math
from typing import NamedTuple

from companion.fcu.link.codec import Codec
from companion.fcu.link.statustext import ERROR, WARNING

NOISE_S = 3.0  # bytes without a frame for this long are not MAVLink
NOISE_BYTES = 100


class Problem(NamedTuple):
    """One line for the crew; each kind is reported once until it has ended."""

    kind: str
    severity: int  # MAV_SEVERITY
    text: str


class PeerMonitor:
    """Watches the counters of a codec."""

    def __init__(self, codec: Codec, target_system: int) -> None:
        self._codec = codec
        self._target = target_system
        self._frames = 0  # of any sender, when bytes last arrived
        self._noise_bytes = 0  # since the last of them
        self._noise_since_s = math.inf
        self._rejected = 0  # frames without the key's signature or with an old one, at the last step
        self._rejected_s = -math.inf
        self._reported: set[str] = set()

    def note_bytes(self, size: int, now_s: float) -> None:
        """The codec has decoded `size` bytes."""
        frames = self._codec.good_frames
        if frames != self._frames:
            self._frames, self._noise_bytes, self._noise_since_s = frames, 0, math.inf
            return
        self._noise_bytes += size
        self._noise_since_s = min(self._noise_since_s, now_s)

    def new_problems(self, heartbeat_s: float, waiting_since_s: float, now_s: float) -> list[Problem]:
        """The problems that are new since the last call.

        heartbeat_s: time of the flight controller's newest heartbeat, -inf before the first; waiting_since_s: time of
        the node's first step.
        """
        checks = (self._noise(now_s), self._others(heartbeat_s, waiting_since_s, now_s), self._wrong_key(now_s))
        found = [problem for problem in checks if problem]
        new = [problem for problem in found if problem.kind not in self._reported]
        self._reported = {problem.kind for problem in found}
        return new

    def _noise(self, now_s: float) -> Problem | None:
        if now_s - self._noise_since_s < NOISE_S or self._noise_bytes < NOISE_BYTES:
            return None
        text = (
            "bytes arrive but contain no MAVLink frame, no connection: wrong baud rate, or another protocol on this "
            "port; check SER_TEL2_BAUD and fcu.url"
        )
        return Problem("noise", ERROR, text)

    def _others(self, heartbeat_s: float, waiting_since_s: float, now_s: float) -> Problem | None:
        others = sorted(self._codec.foreign_autopilots)
        if not others:
            return None
        if heartbeat_s > -math.inf:
            text = f"other flight controllers on the link, their messages are ignored: system id {others}"
            return Problem("others", WARNING, text)
        if now_s - waiting_since_s <= NOISE_S:
            return None
        text = (
            f"received flight controllers with system id {others}, but the vehicle file expects {self._target}: no "
            "connection; check fcu.autopilot_system_id and MAV_SYS_ID"
        )
        return Problem("others", ERROR, text)

    def _wrong_key(self, now_s: float) -> Problem | None:
        codec = self._codec
        if codec.signer is None:
            return None
        rejected = codec.unsigned_frames + codec.signer.wrong_signatures + codec.old_frames
        if rejected == self._rejected:
            return Problem("key", ERROR, "") if now_s - self._rejected_s < NOISE_S else None
        self._rejected, self._rejected_s = rejected, now_s
        found = []
        if wrong := codec.unsigned_frames + codec.signer.wrong_signatures:
            found.append(
                f"{codec.unsigned_frames} without a signature, {wrong - codec.unsigned_frames} of another key; "
                "fcu.signing_key_file must be the key the flight controller signs with"
            )
        if codec.old_frames:
            found.append(f"{codec.old_frames} of the right key, signed more than a minute ago; set the sender's clock")
        return Problem("key", ERROR, f"frames rejected: {'; '.join(found)}")
