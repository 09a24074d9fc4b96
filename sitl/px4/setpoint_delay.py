"""A scenario's ``command_delay_s`` on the way from the companion to real PX4.

The PX4 emulator delays the setpoints that enter its loops. The loops of real PX4 are closed; the same delay therefore
lies on the link, before PX4. Only setpoints are delayed: a delayed TIMESYNC would also move the clocks apart. Gyroscope
and motors have no part of it, so PX4's rate loop is as fast as on the aircraft.
"""

from collections import deque

from sitl.autopilot.wire import layout

SETPOINTS = frozenset(
    layout(name).id
    for name in ("SET_ATTITUDE_TARGET", "SET_POSITION_TARGET_LOCAL_NED", "SET_POSITION_TARGET_GLOBAL_INT")
)
_MAVLINK_2, _HEADER, _CHECKSUM, _SIGNATURE, _SIGNED = 0xFD, 10, 2, 13, 0x01


class SetpointDelay:
    """Holds setpoints back for ``delay_s``; everything else passes at once."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._waiting: deque[tuple[float, bytes]] = deque()  # (when it is due, frame)

    def put(self, data: bytes, now_s: float) -> bytes:
        """Take bytes of whole frames at a time of the world [s]; returns those that go on now.

        Bytes that are no MAVLink 2 frame pass unchanged.
        """
        if self._delay_s <= 0.0:
            return data
        passed, at = b"", 0
        while at + _HEADER <= len(data) and data[at] == _MAVLINK_2:
            signature = _SIGNATURE if data[at + 2] & _SIGNED else 0
            end = at + _HEADER + data[at + 1] + _CHECKSUM + signature
            frame = data[at:end]
            if int.from_bytes(data[at + 7 : at + 10], "little") in SETPOINTS:
                self._waiting.append((now_s + self._delay_s, frame))
            else:
                passed += frame
            at = end
        return passed + data[at:]

    def due(self, now_s: float) -> bytes:
        """The setpoints whose time has come, in the order in which they were put."""
        found = b""
        while self._waiting and self._waiting[0][0] <= now_s + 1e-9:
            found += self._waiting.popleft()[1]
        return found
