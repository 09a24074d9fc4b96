"""The simulator's own MAVLink link with PX4, separate from the companion's.

It carries the messages of a pilot and a battery to PX4, and PX4's messages to a simulator. No process of the stack uses
it.
"""

from sitl.autopilot.udp import UdpEndpoint
from sitl.autopilot.wire import Writer, layout

# Links of PX4's simulation start-up that the companion does not use: (PX4's port, ours), both + instance.
PAYLOAD_PORTS = (14280, 14030)
SIH_PORTS = (19450, 19410)
SYSTEM_ID = 1  # of PX4 and of all components of the aircraft (`sitl.px4.build`)
_BATTERY_COMPONENT = 180  # MAV_COMP_ID_BATTERY
_TYPE_BATTERY, _NO_AUTOPILOT, _ACTIVE = 34, 8, 4  # of its heartbeat: neither ground station nor companion
_HEADER = 10


class SideLink:
    """One of PX4's spare UDP links; raises `ConfigError` when our port is taken."""

    def __init__(self, ports: tuple[int, int], instance: int) -> None:
        theirs, ours = ports
        self._udp = UdpEndpoint(ours + instance, theirs + instance)
        self._writer = Writer(SYSTEM_ID, _BATTERY_COMPONENT)

    def send(self, name: str, *values: float | bytes) -> None:
        """Send a message; values in wire order."""
        self._writer.send(name, *values)
        self._udp.send(self._writer.take())

    def heartbeat(self) -> None:
        """HEARTBEAT of a battery."""
        self.send("HEARTBEAT", 0, _TYPE_BATTERY, _NO_AUTOPILOT, 0, _ACTIVE, 3)

    def battery(self, voltage_v: float, current_a: float, remaining: float, cells: int) -> None:
        """BATTERY_STATUS of an outside monitor (PX4: SIM_BAT_ENABLE 0)."""
        cell_mv = round(1000 * voltage_v / cells)
        voltages = [cell_mv] * cells + [65535] * (10 - cells)
        percent = max(0, min(100, round(100 * remaining)))
        self.send(
            "BATTERY_STATUS", -1, -1, 2500, *voltages, round(100 * current_a), 0, 0, 1, percent, 0, 1, *[0] * 4, 0, 0
        )

    def sticks_centred(self) -> None:
        """MANUAL_CONTROL with centred sticks."""
        self.send("MANUAL_CONTROL", 0, 0, 500, 0, 0, SYSTEM_ID, *[0] * 10)

    def origin(self, latitude_deg: float, longitude_deg: float, altitude_m: float) -> None:
        """SET_GPS_GLOBAL_ORIGIN: where PX4's local frame begins."""
        place = (round(latitude_deg * 1e7), round(longitude_deg * 1e7), round(altitude_m * 1e3))
        self.send("SET_GPS_GLOBAL_ORIGIN", *place, SYSTEM_ID, 0)

    def request(self, message_id: int, rate_hz: float) -> None:
        """Request a stream of a message on this link."""
        nan = float("nan")
        interval_us = 1e6 / rate_hz
        self.send("COMMAND_LONG", message_id, interval_us, nan, nan, nan, nan, 0.0, 511, SYSTEM_ID, 1, 0)

    def receive(self, name: str) -> list[tuple[float, ...]]:
        """Values, in wire order, of the messages of this name that have arrived.

        A datagram on this machine arrives complete or not at all, so checksums are not verified.
        """
        wanted = layout(name)
        form = wanted.form
        found: list[tuple[float, ...]] = []
        data, at = self._udp.receive(), 0
        while at + _HEADER + 2 <= len(data):
            end = at + _HEADER + data[at + 1]
            if data[at] != 0xFD or end + 2 > len(data):
                at += 1
                continue
            if int.from_bytes(data[at + 7 : at + 10], "little") == wanted.id:
                found.append(form.unpack(data[at + _HEADER : end][: form.size].ljust(form.size, b"\0")))
            at = end + 2
        return found

    def close(self) -> None:
        """Release the port."""
        self._udp.close()
