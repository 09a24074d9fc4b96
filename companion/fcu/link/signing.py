"""MAVLink 2 signatures: proof that the sender of a frame has the key and that the frame is not a replay.

Thirteen bytes behind the checksum: link id, 48 bits of time in units of 10 µs since 2015, and the first 48 bits of
SHA-256 over key, frame and those two (mavlink.io, message signing). A stream is (link id, system, component); its time
must rise from frame to frame, and the time of a new stream may be a minute behind at most. The packing is pymavlink's;
the check is not, because pymavlink stores a stream's time before it has checked the signature, so that any sender could
block a stream with one frame from the future.
"""

import hashlib
import hmac
import os
import stat
import struct
import time
from enum import StrEnum
from pathlib import Path

from companion.core.clock import monotonic_s
from companion.core.config import ConfigError

KEY_LENGTH = 32
LINK_ID = 1  # of our own frames
UNITS_PER_S = 100_000  # 10 µs
EPOCH_S = 1_420_070_400  # 2015-01-01 in UNIX time
NEW_STREAM_BEHIND = 60 * UNITS_PER_S
STREAMS_MAX = 64  # streams remembered; only a holder of the key can begin one


def load_key(file: str | Path) -> bytes:
    """The 32 bytes of a key file; raises `ConfigError` for a file that other users can read or of another size."""
    path = Path(file)
    try:
        with path.open("rb") as opened:
            state = os.fstat(opened.fileno())
            key = opened.read(KEY_LENGTH + 1)
    except OSError as error:
        why = os.strerror(error.errno).lower() if error.errno else str(error)
        raise ConfigError(f"fcu.signing_key_file {path}: cannot be read: {why}") from None
    if not stat.S_ISREG(state.st_mode):
        raise ConfigError(f"fcu.signing_key_file {path}: not a file")
    if state.st_mode & 0o077:
        mode = stat.S_IMODE(state.st_mode)
        raise ConfigError(f"fcu.signing_key_file {path}: others can read it (mode {mode:03o}); chmod 600 {path}")
    if state.st_uid not in (0, os.geteuid()):
        raise ConfigError(f"fcu.signing_key_file {path}: belongs to another user (uid {state.st_uid})")
    if len(key) != KEY_LENGTH:
        size = len(key) if len(key) < KEY_LENGTH else f"more than {KEY_LENGTH}"
        raise ConfigError(f"fcu.signing_key_file {path}: {size} bytes, a key has {KEY_LENGTH}")
    return key


def has_signature(key: bytes, frame: bytes) -> bool:
    """True when a signed frame, header to signature, was signed with the key; it may be a replay."""
    return hmac.compare_digest(hashlib.sha256(key + frame[:-6]).digest()[:6], frame[-6:])


class Rejection(StrEnum):
    """Why a signed frame is not accepted, as text; NONE, which is false, for one that is."""

    NONE = ""
    KEY = "without the key's signature"
    REPLAYED = "received before, or overtaken by a later one"
    OLD = "signed more than a minute ago: the sender's clock is behind this computer's, or the frame is a replay"
    STREAMS = f"of one stream more than the {STREAMS_MAX} that are remembered"


class Signer:
    """Signs outgoing frames and checks the signatures of incoming frames."""

    def __init__(self, key: bytes, start_s: float, unix_s: float) -> None:
        """key: 32 bytes; start_s, unix_s: the same moment in companion time and in UNIX time [s]."""
        if len(key) != KEY_LENGTH:
            raise ValueError(f"a signing key has {KEY_LENGTH} bytes, not {len(key)}")
        self.key = key
        self._zero_s = start_s
        self._zero = max(0, round((unix_s - EPOCH_S) * UNITS_PER_S))
        self._newest = 0  # time of the newest frame that was signed here or accepted
        self._streams: dict[tuple[int, int, int], int] = {}
        self.wrong_signatures = 0  # not made with this key

    @property
    def streams(self) -> int:
        """Number of streams from which a frame was accepted."""
        return len(self._streams)

    def next_time(self, now_s: float) -> int:
        """The time of the next outgoing frame; it rises even after the computer's clock was set back."""
        self._newest = max(self._newest + 1, self._time(now_s))
        return self._newest

    def _time(self, now_s: float) -> int:
        return self._zero + round((now_s - self._zero_s) * UNITS_PER_S)

    def rejection(self, frame: bytes, system: int, component: int, now_s: float) -> Rejection:
        """Why a signed frame, header to signature, is not accepted: another key, or a time that is not new."""
        if not has_signature(self.key, frame):
            self.wrong_signatures += 1
            return Rejection.KEY
        low, high = struct.unpack("<IH", frame[-12:-6])
        signed_at = low | high << 32
        stream = (frame[-13], system, component)
        last = self._streams.get(stream)
        if last is None and signed_at < self._time(now_s) - NEW_STREAM_BEHIND:
            return Rejection.OLD
        if last is None and len(self._streams) >= STREAMS_MAX:
            return Rejection.STREAMS
        if last is not None and signed_at <= last:
            return Rejection.REPLAYED
        self._streams[stream] = signed_at
        self._newest = max(self._newest, signed_at)
        return Rejection.NONE


def open_key(key_file: str | None, folder: Path) -> bytes | None:
    """The key of a vehicle file, None when it names none; a relative path counts from `folder`.

    Raises `ConfigError` when the key file cannot be used.
    """
    return None if key_file is None else load_key(folder / key_file)


def open_signer(key_file: str | None, folder: Path) -> Signer | None:
    """The signer of a vehicle file, as `open_key`."""
    key = open_key(key_file, folder)
    return None if key is None else Signer(key, monotonic_s(), time.time())
