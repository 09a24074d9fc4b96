"""The link to the flight controller as a device of the process loop (`companion.runtime.process.Device`)."""

from collections.abc import Iterable

from companion.core.clock import monotonic_s
from companion.core.messages import LinkRx, LinkTx, Message, SentSetpoint
from companion.fcu.link.link import Link


class LinkDevice:
    """Turns the bytes of a link into `LinkRx` messages and writes the bytes of `LinkTx` messages at once."""

    def __init__(self, link: Link) -> None:
        self._link = link

    @property
    def trouble(self) -> str:
        """One line, "" while the link works."""
        return self._link.trouble

    def fileno(self) -> int:
        """Descriptor to poll for reading, -1 while there is none."""
        return self._link.fileno()

    def read(self) -> Iterable[Message]:
        """The bytes of the flight controller, then those of ground stations on the forward, marked so.

        Raises SystemExit with one line when the system keeps the device closed to this process: systemd resolves
        `DeviceAllow=` again at the next start, and no attempt of this process can succeed. In flight, too, nothing is lost
        by it: without the link PX4 has left offboard, and only a new process gets the link back.
        """
        for data, ground in ((self._link.read(), False), (self._link.read_ground(), True)):
            if data:
                yield LinkRx(stamp_s=monotonic_s(), data=data, ground=ground)
        if self._link.refused:
            raise SystemExit(
                f"fcu: link {self._link.url}: operation not permitted (DeviceAllow= of the unit); ends, for a new start"
            )

    def write(self, messages: Iterable[Message]) -> Iterable[Message]:
        """Send the bytes of each `LinkTx`; returns all messages, without setpoints whose bytes the link did not take.

        The bytes of a `SentSetpoint` are in the `LinkTx` before it.
        """
        sent = True
        for message in messages:
            if isinstance(message, LinkTx):
                sent = self._link.write(message.data)
            elif isinstance(message, SentSetpoint) and not sent:
                continue
            yield message
