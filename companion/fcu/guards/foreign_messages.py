"""Reports what other senders do to the flight controller, besides setpoints (`companion.fcu.guards.conflict`).

Which messages count stands in `companion.fcu.link.influence`. That PX4 gets positions or measurements of others, or that
others change its settings, is no conflict of authority: this stack keeps its setpoints, because Hold and Land would fly
by the same estimate of PX4, while the filter of this stack checks PX4's position by the bundle and the guard by its
record. The crew is warned. Senders that belong to the aircraft (motion capture, a flow sensor, a smart battery) are
named in the vehicle file (`fcu.measurement_senders`), and their measurements are not reported. Where this stack sends
ODOMETRY itself (`fcu.send_odometry`), no flight begins beside another position: PX4 has one input for both, and jumps
between them.
"""

import math
from collections.abc import Iterable

from companion.fcu.link.influence import ForeignMessage, Influence

RECENT_S = 5.0  # an estimate of 1 Hz with losses is one event
MEASURED = (Influence.POSITION, Influence.MEASUREMENT)
CHANGED = (Influence.CHANGE, Influence.STICKS)


class ForeignMessages:
    """The newest message of each influence by another sender."""

    def __init__(self, own: Iterable[tuple[int, int]] = ()) -> None:
        """own: system and component of the senders whose measurements belong to the aircraft."""
        self._own = frozenset(own)
        self._newest: dict[tuple[Influence, bool], tuple[float, ForeignMessage]] = {}

    def note(self, message: ForeignMessage, now_s: float) -> None:
        own = (message.system, message.component) in self._own
        self._newest[message.influence, own] = now_s, message

    def estimate(self, now_s: float) -> str:
        """The newest position or measurement of a sender that the vehicle file does not name; "": none lately."""
        return self._lately(((influence, False) for influence in MEASURED), now_s)

    def position(self, now_s: float) -> str:
        """The newest position, by whatever sender; "": none lately."""
        return self._lately(((Influence.POSITION, own) for own in (False, True)), now_s)

    def change(self, now_s: float) -> str:
        """The newest change of mode, settings or sticks; "": none lately."""
        return self._lately(((influence, own) for influence in CHANGED for own in (False, True)), now_s)

    def _lately(self, kinds: Iterable[tuple[Influence, bool]], now_s: float) -> str:
        found = (self._newest[kind] for kind in kinds if kind in self._newest)
        at_s, message = max(found, key=lambda pair: pair[0], default=(-math.inf, None))
        return message.text if message is not None and now_s - at_s <= RECENT_S else ""
