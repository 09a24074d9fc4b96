"""STATUSTEXT: what the autopilot says to a ground station, when there is one.

As PX4 1.17 (`STATUSTEXT.hpp`): nothing is sent while no ground station's heartbeat is heard, not even to a companion;
what was said in the last five seconds is told when one comes.
"""

import math
from collections import deque

from sitl.autopilot.wire import Writer

TEXT_MAX = 50  # characters of one message
KEPT = 8  # texts, while nobody is there to be told
AGE_MAX_S = 5.0
GROUND_STATION_S = 2.5  # since its last heartbeat it counts as there


class Texts:
    """Texts on their way to the ground station; ``ground_station_s`` is when its last heartbeat came."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._waiting: deque[tuple[float, int, str]] = deque(maxlen=KEPT)
        self._id = 0
        self.ground_station_s = -math.inf

    def say(self, severity: int, text: str, now_s: float) -> None:
        self._waiting.append((now_s, severity, text))

    def run(self, now_s: float) -> None:
        """Send what waits, if somebody listens."""
        if not self._waiting or now_s - self.ground_station_s > GROUND_STATION_S:
            return
        while self._waiting:
            said_s, severity, text = self._waiting.popleft()
            if now_s - said_s < AGE_MAX_S:
                self._send(severity, text.encode())

    def _send(self, severity: int, data: bytes) -> None:
        """One text, a long one in numbered pieces; every text has an id."""
        self._id = self._id % 65535 + 1
        for number, start in enumerate(range(0, len(data), TEXT_MAX)):
            self._writer.send("STATUSTEXT", severity, data[start : start + TEXT_MAX], self._id, number)
