"""STATUSTEXT: texts to a ground station.

As PX4 1.17 (`STATUSTEXT.hpp`): no text is sent while no heartbeat of a ground station arrives, not even to a companion.
The texts of the last five seconds are sent when a ground station connects.
"""

import math
from collections import deque

from sitl.autopilot.wire import MavSeverity, Writer

TEXT_MAX = 50  # characters of one message
KEPT = 8  # texts, while no ground station is connected
AGE_MAX_S = 5.0
GROUND_STATION_S = 2.5  # since its last heartbeat; after this it counts as disconnected


class Texts:
    """Texts that wait for the ground station; ``ground_station_s``: time of its last heartbeat."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._waiting: deque[tuple[float, MavSeverity, str]] = deque(maxlen=KEPT)
        self._id = 0
        self.ground_station_s = -math.inf

    def put(self, severity: MavSeverity, text: str, now_s: float) -> None:
        """Put a text into the queue."""
        self._waiting.append((now_s, severity, text))

    def run(self, now_s: float) -> None:
        """Send the waiting texts if a ground station is connected."""
        if not self._waiting or now_s - self.ground_station_s > GROUND_STATION_S:
            return
        while self._waiting:
            said_s, severity, text = self._waiting.popleft()
            if now_s - said_s < AGE_MAX_S:
                self._send(severity, text.encode())

    def _send(self, severity: MavSeverity, data: bytes) -> None:
        """One text, a long one in numbered pieces; every text has an id."""
        self._id = self._id % 65535 + 1
        for number, start in enumerate(range(0, len(data), TEXT_MAX)):
            self._writer.send("STATUSTEXT", severity, data[start : start + TEXT_MAX], self._id, number)
