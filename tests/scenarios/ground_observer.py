"""The flight mode as a ground station on the autopilot's second link receives it, independent of the stack."""

import socket
from typing import NamedTuple

import numpy as np
from pymavlink.dialects.v20 import common

from companion.core.clock import monotonic_s
from companion.fcu.link.framing import CURRENT_MODE
from companion.fcu.modes import mode_name
from sitl.autopilot.udp import GROUND_PORTS

HEARTBEAT_PERIOD_S = 1.0
GROUND_SYSTEM_ID = 255
HEADER_BYTES = 10  # of a MAVLink 2 frame; its second byte is the length of the payload
ARMED = 128  # MAV_MODE_FLAG_SAFETY_ARMED


class ModeChange(NamedTuple):
    """A flight mode and the time since which the autopilot reports it."""

    since_s: float
    mode: str


class GroundObserver:
    """Receives the modes of the autopilot, whatever the stack does; call `receive` often.

    The built-in autopilot reports a change of mode at once (CURRENT_MODE), and whether it is armed once a second.
    """

    def __init__(self, instance: int) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._address = ("127.0.0.1", GROUND_PORTS[0] + instance)
        self._mavlink = common.MAVLink(None, srcSystem=GROUND_SYSTEM_ID, srcComponent=common.MAV_COMP_ID_MISSIONPLANNER)
        self._mavlink.robust_parsing = True
        self._sent_s = -HEARTBEAT_PERIOD_S
        self.armed = False
        self.modes: list[ModeChange] = []
        self._received_s: list[float] = []
        self._boot_s: list[float] = []

    def receive(self) -> None:
        now_s = monotonic_s()
        if now_s - self._sent_s >= HEARTBEAT_PERIOD_S:  # the autopilot sends to the peer that sent last
            self._sent_s = now_s
            beat = common.MAVLink_heartbeat_message(
                common.MAV_TYPE_GCS, common.MAV_AUTOPILOT_INVALID, 0, 0, common.MAV_STATE_ACTIVE, 3
            )
            self._socket.sendto(beat.pack(self._mavlink), self._address)
        while True:
            try:
                data = self._socket.recv(65535)
            except (BlockingIOError, ConnectionError):
                return
            for message in self._mavlink.parse_buffer(data) or ():
                self._take(message, now_s)

    def _take(self, message, now_s: float) -> None:
        kind = message.get_type()
        if kind == "ATTITUDE":
            self._received_s.append(now_s)
            self._boot_s.append(message.time_boot_ms / 1e3)
        if kind == "HEARTBEAT" and message.get_srcComponent() == common.MAV_COMP_ID_AUTOPILOT1:
            self.armed = bool(message.base_mode & ARMED)
        if kind == f"UNKNOWN_{CURRENT_MODE}":  # this pymavlink does not know it
            payload = bytes(message.data[HEADER_BYTES : HEADER_BYTES + message.data[1]])  # its last zeros are not sent
            mode = mode_name(int.from_bytes(payload[:4], "little"))
            if not self.modes or self.modes[-1].mode != mode:
                self.modes.append(ModeChange(now_s, mode))

    def autopilot_s(self, at_s: float) -> float:
        """The autopilot's clock at a companion time: on a busy machine the simulated world is slower than real time."""
        return float(np.interp(at_s, self._received_s, self._boot_s)) if self._received_s else at_s

    def left_offboard_s(self, after_s: float) -> float | None:
        """The time after which the mode was first another than OFFBOARD; None: it was OFFBOARD until now."""
        for i, change in enumerate(self.modes):
            until_s = self.modes[i + 1].since_s if i + 1 < len(self.modes) else float("inf")
            if change.mode != "OFFBOARD" and until_s > after_s:
                return max(change.since_s, after_s)
        return None

    def modes_after(self, after_s: float) -> list[str]:
        """The mode at that time and all later ones."""
        before = [change.mode for change in self.modes if change.since_s <= after_s]
        return before[-1:] + [change.mode for change in self.modes if change.since_s > after_s]

    def close(self) -> None:
        self._socket.close()
