"""Messages of devices between measurement and arrival."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from companion.core.messages import Message


class Arrival(NamedTuple):
    """A message on its way."""

    at_s: float  # of its arrival, in the world's time
    message: Callable[[], Message]  # waits for a picture that is being drawn
    ready: Callable[[], bool] = lambda: True  # whether `message` need not wait


class ArrivalQueue:
    """Messages that wait for their time, for a world that moves with the clock."""

    def __init__(self) -> None:
        self._waiting: list[Arrival] = []

    def keep(self, arrivals: Iterable[Arrival]) -> None:
        """Keep messages that were just measured."""
        self._waiting.extend(arrivals)

    def arrived(self, now_s: float) -> Iterator[Message]:
        """The messages whose time has come, in its order; a picture that is not drawn yet arrives later."""
        if not self._waiting:
            return
        here = [a.at_s <= now_s and a.ready() for a in self._waiting]
        ready = [arrival for arrival, is_here in zip(self._waiting, here, strict=True) if is_here]
        self._waiting = [arrival for arrival, is_here in zip(self._waiting, here, strict=True) if not is_here]
        for arrival in sorted(ready, key=lambda arrival: arrival.at_s):
            yield arrival.message()
