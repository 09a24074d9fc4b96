"""Small services of PX4's MAVLink receiver: clocks, pings, who is there; files and missions, of which it has none."""

import struct

from pymavlink.dialects.v20 import common

from sitl.autopilot.wire import layout

FTP_NAK, FTP_FILE_NOT_FOUND = 129, 10


class Services:
    """Base of `sitl.autopilot.mavlink.Receiver`: a handler for each message, by its name; ``_a`` is the autopilot."""

    def _for_us(self, message, broadcast: bool = True) -> bool:
        raise NotImplementedError

    def _on_timesync(self, m, now_s: float) -> None:
        if m.tc1 == 0:
            self._a.writer.send("TIMESYNC", self._a.boot_us(now_s) * 1000, m.ts1)

    def _on_ping(self, m, now_s: float) -> None:
        if m.target_system == 0 and m.target_component == 0:
            self._a.writer.send("PING", m.time_usec, m.seq, m.get_srcSystem(), m.get_srcComponent())

    def _on_heartbeat(self, m, now_s: float) -> None:
        if m.type == common.MAV_TYPE_GCS:
            self._a.texts.ground_station_s = now_s

    def _on_file_transfer_protocol(self, m, now_s: float) -> None:
        """There are no files: every request is refused as PX4 refuses a missing file."""
        if not self._for_us(m):
            return
        request = bytes(m.payload[:12])
        seq, session, opcode = struct.unpack("<HBB", request[:4])
        answer = struct.pack("<HBBBBBBI", (seq + 1) & 0xFFFF, session, FTP_NAK, 1, opcode, 0, 0, 0)
        body = (answer + bytes([FTP_FILE_NOT_FOUND])).ljust(251, b"\0")
        header = bytes([0, m.get_srcSystem(), m.get_srcComponent()])
        self._a.writer.send_payload(layout("FILE_TRANSFER_PROTOCOL"), header + body)

    def _on_mission_request_list(self, m, now_s: float) -> None:
        if self._for_us(m):
            self._a.writer.send("MISSION_COUNT", 0, m.get_srcSystem(), m.get_srcComponent(), m.mission_type)

    def _on_mission_count(self, m, now_s: float) -> None:
        if self._for_us(m):
            self._mission_ack(m, 0 if m.count == 0 else common.MAV_MISSION_NO_SPACE)

    def _on_mission_clear_all(self, m, now_s: float) -> None:
        if self._for_us(m):
            self._mission_ack(m, 0)

    def _on_mission_request_int(self, m, now_s: float) -> None:
        if self._for_us(m):
            self._mission_ack(m, common.MAV_MISSION_INVALID_SEQUENCE)

    _on_mission_request = _on_mission_request_int

    def _mission_ack(self, m, result: int) -> None:
        self._a.writer.send("MISSION_ACK", m.get_srcSystem(), m.get_srcComponent(), result, m.mission_type)
