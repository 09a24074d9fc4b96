"""Whether a datagram comes from the flight controller: for the choice of the address that gets our frames.

One whole frame with the right checksum, of the flight controller's ids and, where there is a key, with its signature.
Any program that reaches the port can forge ids; only a key or a fixed peer keeps such a sender out.
"""

from companion.fcu.link.framing import Framer
from companion.fcu.link.signing import has_signature


class Sender:
    """The sender whose frames are looked for; system, component None: any; key: its signature is needed, too.

    number: only this message is looked for, as HEARTBEAT, where frames that pass through another component do not count.
    """

    def __init__(
        self,
        system: int | None = None,
        component: int | None = None,
        key: bytes | None = None,
        number: int | None = None,
    ) -> None:
        self._system, self._component, self._key, self._number = system, component, key, number

    def sent(self, datagram: bytes) -> bool:
        """True when the datagram has a verified frame of this sender."""
        buffer, frames = Framer().frames(datagram)
        for frame, known in frames:
            own = self._system in (None, frame.system) and self._component in (None, frame.component)
            if not known or not own or self._number not in (None, frame.number):
                continue
            if self._key is None or (frame.signed and has_signature(self._key, buffer[frame.start : frame.end])):
                return True
        return False


# Where no ids are known: a camera may have any, a scale sends no MAVLink. The first sender on a port becomes the peer.
ANY_SENDER = Sender()


def is_mavlink(datagram: bytes) -> bool:
    """True when the datagram has a verified frame of any sender."""
    return ANY_SENDER.sent(datagram)
