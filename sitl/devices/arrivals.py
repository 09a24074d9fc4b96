"""Messages of devices between measurement and arrival."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from companion.core.messages import Message


class Arrival(NamedTuple):
    """A message on its way: the time of its arrival in the world's time, and the call that gives it."""

    at_s: float
    message: Callable[[], Message]


class ArrivalQueue:
    """Messages that wait for their time, for a world that moves with the clock."""

    def __init__(self) -> None:
        self._waiting: list[Arrival] = []

    def keep(self, arrivals: Iterable[Arrival]) -> None:
        """Keep messages that were just measured."""
        self._waiting.extend(arrivals)

    def arrived(self, now_s: float) -> Iterator[Message]:
        """The messages whose time has come, in its order."""
        if not self._waiting:
            return
        ready = sorted((a for a in self._waiting if a.at_s <= now_s), key=lambda arrival: arrival.at_s)
        self._waiting = [a for a in self._waiting if a.at_s > now_s]
        for arrival in ready:
            yield arrival.message()
