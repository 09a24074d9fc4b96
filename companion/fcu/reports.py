"""Reports to the crew: `FcuText` for the stack and its log, STATUSTEXT for the ground station, both rate-limited."""

from collections.abc import Callable

from companion.core.messages import FcuText, Message
from companion.fcu.link.codec import OutgoingMessage
from companion.fcu.link.rate_limiter import RateLimiter
from companion.fcu.link.statustext import TextSplitter


class Reports:
    """Sends reports unless one of the same kind was sent recently. Severities are MAV_SEVERITY."""

    def __init__(
        self, limiter: RateLimiter, publish: Callable[[Message], None], send: Callable[[OutgoingMessage], None]
    ) -> None:
        """publish: takes a message for the stack; send: takes a pymavlink message for the flight controller."""
        self._limiter, self._publish, self._send = limiter, publish, send
        self._splitter = TextSplitter()

    def log(self, kind: str, text: str, severity: int, now_s: float, once: bool = False) -> bool:
        """Report to the stack; returns False when the limit forbids it. once: never a second time."""
        if not self._limiter.should_log(kind, now_s, once):
            return False
        self._publish(FcuText(stamp_s=now_s, severity=severity, text=text))
        return True

    def warn(self, kind: str, text: str, severity: int, now_s: float) -> bool:
        """Report to the stack and to the ground station; returns False when the limit forbids it."""
        if not self.log(kind, text, severity, now_s):
            return False
        self.send_text(severity, text)
        return True

    def send_text(self, severity: int, text: str) -> None:
        """Send a text to the ground station without limit."""
        for chunk in self._splitter.split(severity, text):
            self._send(chunk)
