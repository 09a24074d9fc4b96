"""The schedule of the telemetry: PX4's default rates, changed by SET_MESSAGE_INTERVAL."""

import heapq
import math
from collections.abc import Callable

from sitl.autopilot.wire import layout

# PX4 1.17's onboard link (MAVLINK_MODE_ONBOARD), without the messages that the emulator does not have.
ONBOARD_RATES_HZ: dict[str, float] = {
    "HEARTBEAT": 1,
    "TIMESYNC": 10,
    "HIGHRES_IMU": 50,
    "LOCAL_POSITION_NED": 30,
    "ATTITUDE": 100,
    "ALTITUDE": 10,
    "ODOMETRY": 30,
    "ATTITUDE_QUATERNION": 50,
    "ATTITUDE_TARGET": 10,
    "BATTERY_STATUS": 0.5,
    "CURRENT_MODE": 0.5,
    "ESTIMATOR_STATUS": 1,
    "EXTENDED_SYS_STATE": 5,
    "GLOBAL_POSITION_INT": 50,
    "GPS_GLOBAL_ORIGIN": 1,
    "GPS_RAW_INT": 50,  # unlimited: every fix
    "HOME_POSITION": 0.5,
    "PING": 1,
    "POSITION_TARGET_LOCAL_NED": 10,
    "RC_CHANNELS": 20,
    "SERVO_OUTPUT_RAW": 10,
    "SYS_STATUS": 5,
    "SYSTEM_TIME": 1,
    "VFR_HUD": 10,
    "VIBRATION": 0.5,
}
RATE_MAX_HZ = 250.0
RETRY_S = 0.1  # a message without data is tried again after this


class TelemetryStreams:
    """Calls message functions at their rates.

    functions: by message name; each sends its message and returns True, or False when it has no data yet.
    """

    def __init__(self, functions: dict[str, Callable[[], bool]], rates_hz: dict[str, float]) -> None:
        self._functions = functions
        self._names = {layout(name).id: name for name in functions}
        self.default_hz = rates_hz
        self._interval: dict[str, float] = {}
        self._version: dict[str, int] = {}
        self._queue: list[tuple[float, int, str, int]] = []
        for i, (name, rate) in enumerate(rates_hz.items()):
            self._schedule(name, rate, 0.003 * i)  # apart, so that they are not all sent in one step

    def _schedule(self, name: str, rate_hz: float, start_s: float) -> None:
        self._version[name] = self._version.get(name, 0) + 1
        if rate_hz <= 0:
            self._interval[name] = -1.0
            return
        self._interval[name] = 1.0 / min(rate_hz, RATE_MAX_HZ)
        heapq.heappush(self._queue, (start_s, layout(name).id, name, self._version[name]))

    def set_interval(self, message_id: int, interval_us: float, now_s: float) -> bool:
        """Interval in microseconds: 0 the default, -1 off. False for messages that cannot be streamed."""
        name = self._names.get(message_id)
        if name is None or name == "HEARTBEAT" or not math.isfinite(interval_us):
            return False
        if interval_us < 0:
            rate = 0.0
        elif interval_us == 0:
            rate = self.default_hz.get(name, 0.0)
        else:
            rate = 1e6 / interval_us
        self._schedule(name, rate, now_s)
        return True

    def interval_us(self, message_id: int) -> int:
        """The interval as in MESSAGE_INTERVAL: -1 off, 0 not known."""
        name = self._names.get(message_id)
        if name is None:
            return 0
        interval = self._interval.get(name, -1.0)
        return round(interval * 1e6) if interval > 0 else -1

    def request(self, message_id: int) -> bool:
        """Send a message once; False if it does not exist or has no data yet."""
        name = self._names.get(message_id)
        return name is not None and self._functions[name]()

    def run(self, now_s: float) -> None:
        """Send everything that is due."""
        queue = self._queue
        while queue and queue[0][0] <= now_s + 1e-9:
            due, message_id, name, version = queue[0]
            if version != self._version[name]:
                heapq.heappop(queue)
                continue
            interval = self._interval[name]
            if not self._functions[name]():
                due = now_s + min(interval, RETRY_S)
            else:
                due = due + interval if due > now_s - interval else now_s + interval
            heapq.heapreplace(queue, (due, message_id, name, version))
