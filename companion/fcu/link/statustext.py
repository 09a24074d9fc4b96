"""STATUSTEXT: a long text is sent in chunks of 50 bytes that share an id."""

from pymavlink.dialects.v20 import common

from companion.core.text import plain

CRITICAL: int = common.MAV_SEVERITY_CRITICAL
ERROR: int = common.MAV_SEVERITY_ERROR
WARNING: int = common.MAV_SEVERITY_WARNING
INFO: int = common.MAV_SEVERITY_INFO
SEVERITY_MAX: int = common.MAV_SEVERITY_DEBUG

CHUNK = 50
TEXT_MAX = 500  # bytes; ten chunks, so that one text does not flood a slow link
GAP_S = 1.0  # the rest of a text counts as lost after this


class TextSplitter:
    """Converts texts to messages."""

    def __init__(self) -> None:
        self._id = 0

    def split(self, severity: int, text: str) -> list[common.MAVLink_statustext_message]:
        """The messages that carry `text`; id 0 marks one that fits a single chunk."""
        raw = text.encode("utf-8").replace(b"\0", b" ")[:TEXT_MAX]
        severity = min(SEVERITY_MAX, max(0, severity))
        if len(raw) <= CHUNK:
            return [common.MAVLink_statustext_message(severity, raw, 0, 0)]
        self._id = self._id % 65535 + 1
        chunks = [raw[i : i + CHUNK] for i in range(0, len(raw), CHUNK)]
        if len(chunks[-1]) == CHUNK:
            chunks.append(b"")  # a chunk with room left ends the text
        return [common.MAVLink_statustext_message(severity, c, self._id, i) for i, c in enumerate(chunks)]


class TextJoiner:
    """Converts messages to texts; a missing chunk is shown as "…"."""

    def __init__(self) -> None:
        self._id = 0
        self._severity = 0
        self._chunks: dict[int, bytes] = {}
        self._last = -1
        self._time_s = 0.0

    def put(self, severity: int, raw: bytes, text_id: int, chunk: int, now_s: float) -> list[tuple[int, str]]:
        """Take one STATUSTEXT; returns the texts (severity, text) that it completes."""
        part = raw.split(b"\0", 1)[0]
        if text_id == 0:
            return [(severity, _plain(part))]
        done = self._finish() if self._chunks and text_id != self._id else []
        self._id, self._severity, self._time_s = text_id, severity, now_s
        self._chunks[chunk] = part
        if len(part) < CHUNK:
            self._last = chunk
        if self._last >= 0 and len(self._chunks) == self._last + 1:
            done += self._finish()
        return done

    def expire(self, now_s: float) -> list[tuple[int, str]]:
        """The text whose remaining chunks did not arrive in time."""
        return self._finish() if self._chunks and now_s - self._time_s > GAP_S else []

    def _finish(self) -> list[tuple[int, str]]:
        last = max(max(self._chunks), self._last)
        text = b"".join(self._chunks.get(i, "…".encode()) for i in range(last + 1))
        if self._last < 0:
            text += "…".encode()
        self._chunks, self._last = {}, -1
        return [(self._severity, _plain(text))]


def _plain(raw: bytes) -> str:
    return plain(raw.decode("utf-8", errors="replace")).rstrip()
