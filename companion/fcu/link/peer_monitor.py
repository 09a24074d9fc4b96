"""Who is on the line: the flight controller, somebody else, both, or nobody that speaks MAVLink.

The node asks once a step; what is said here is said once for each trouble, and again when it has come back.
"""

import math
from typing import NamedTuple

from companion.fcu.link.codec import Codec

NOISE_S = 3.0  # bytes without a frame for so long are no MAVLink
NOISE_BYTES = 100


class Remark(NamedTuple):
    """One line for the crew; each kind is told once until it is over."""

    kind: str
    severity: int  # MAV_SEVERITY
    text: str


class Listener:
    """Watches what a codec counts."""

    def __init__(self, codec: Codec, target_system: int) -> None:
        self._codec = codec
        self._target = target_system
        self._frames = 0  # of anybody, at the last look
        self._noise_bytes = 0  # since the last of them
        self._noise_since_s = math.inf
        self._unsigned = 0
        self._forged_s = -math.inf
        self._told: set[str] = set()

    def bytes_came(self, size: int, now_s: float) -> None:
        """Bytes were given to the codec."""
        frames = self._codec.good_frames
        if frames != self._frames:
            self._frames, self._noise_bytes, self._noise_since_s = frames, 0, math.inf
            return
        self._noise_bytes += size
        self._noise_since_s = min(self._noise_since_s, now_s)

    def remarks(self, heard_s: float, waiting_s: float, now_s: float) -> list[Remark]:
        """What is new. heard_s: when the flight controller last spoke; waiting_s: since when it is waited for."""
        found = [r for r in (self._noise(now_s), self._others(heard_s, waiting_s, now_s), self._forged(now_s)) if r]
        kinds = {r.kind for r in found}
        new = [r for r in found if r.kind not in self._told]
        self._told = kinds
        return new

    def _noise(self, now_s: float) -> Remark | None:
        if now_s - self._noise_since_s < NOISE_S or self._noise_bytes < NOISE_BYTES:
            return None
        text = "bytes come, but no MAVLink frame among them: wrong baud rate, or another protocol on this port"
        return Remark("noise", 3, text)

    def _others(self, heard_s: float, waiting_s: float, now_s: float) -> Remark | None:
        others = sorted(self._codec.foreign_autopilots)
        if not others:
            return None
        if heard_s > -math.inf:
            return Remark("others", 4, f"other flight controllers on the link, not listened to: system id {others}")
        if now_s - waiting_s <= NOISE_S:
            return None
        text = f"heard flight controllers with system id {others}, but the vehicle file says {self._target}"
        return Remark("others", 3, text)

    def _forged(self, now_s: float) -> Remark | None:
        codec = self._codec
        if codec.signer is None:
            return None
        unsigned = codec.unsigned_frames + codec.signer.wrong
        if unsigned == self._unsigned:
            return Remark("forged", 3, "") if now_s - self._forged_s < NOISE_S else None
        self._unsigned, self._forged_s = unsigned, now_s
        text = (
            f"frames rejected: {codec.unsigned_frames} without a signature, {codec.signer.wrong} of another key; "
            "fcu.signing_key_file must be the key the flight controller signs with"
        )
        return Remark("forged", 3, text)
