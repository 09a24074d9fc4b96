"""What a camera says about itself: MAVLink's camera protocol, information, storage and count of photographs.

Requested at the first heartbeat and until answered; storage again every few seconds. MAV_CMD_REQUEST_MESSAGE comes first, the
older commands (MAV_CMD_REQUEST_CAMERA_INFORMATION and so on) in turn with it, because many cameras know only those.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from pymavlink.dialects.v20 import common

from companion.payload.mavlink import Packable, text

SILENT_S = 3.5  # three heartbeats
RETRY_S = 1.0
STORAGE_PERIOD_S = 5.0
FREE_MIN_MB = 50.0  # two pictures of a large camera
NO_STORAGE = {  # the last that applies to any of its slots is named
    common.STORAGE_STATUS_EMPTY: "it has no storage; insert a card",
    common.STORAGE_STATUS_UNFORMATTED: "its storage is not formatted",
}
OLD_COMMANDS = {
    common.MAVLINK_MSG_ID_CAMERA_INFORMATION: common.MAV_CMD_REQUEST_CAMERA_INFORMATION,
    common.MAVLINK_MSG_ID_STORAGE_INFORMATION: common.MAV_CMD_REQUEST_STORAGE_INFORMATION,
    common.MAVLINK_MSG_ID_CAMERA_CAPTURE_STATUS: common.MAV_CMD_REQUEST_CAMERA_CAPTURE_STATUS,
}
OF_OLD_COMMAND = {command: number for number, command in OLD_COMMANDS.items()}
Command = Callable[[int, tuple[float, ...]], Packable]  # MAV_CMD, parameters → COMMAND_LONG to the camera


class Storage(NamedTuple):
    """One card slot, as reported."""

    status: int
    free_mb: float  # NaN: not reported

    @property
    def holds_photographs(self) -> bool:
        """There is a card with enough free, or nothing is known against it."""
        return self.status not in NO_STORAGE and not self.free_mb < FREE_MIN_MB


class Introduction:
    """The camera's own account of itself; `system` is None until its first heartbeat."""

    def __init__(self, component: int) -> None:
        self.component = component
        self.system: int | None = None
        self.model = ""
        self.image_count: int | None = None
        self._storages: dict[int, Storage] = {}  # by storage_id: a camera with two slots reports both
        self._heard_s = -math.inf
        self._answered: set[int] = set()
        self._asked: dict[int, int] = {}  # message → the last command that asked for it
        self._works: dict[int, set[int]] = {}  # message → commands that have been answered with it
        self._unsupported: dict[int, set[int]] = {}  # message → commands that the camera does not know
        self._denied: dict[int, set[int]] = {}  # likewise, that it denied: perhaps only now, so they are sent again
        self._due_s: dict[int, float] = dict.fromkeys(OLD_COMMANDS, -math.inf)
        self._tries: dict[int, int] = dict.fromkeys(OLD_COMMANDS, 0)

    def put_heartbeat(self, system: int, now_s: float) -> None:
        """The camera is there; after a silence it introduces itself again."""
        if now_s - self._heard_s > SILENT_S:
            for known in (self._answered, self._asked, self._works, self._unsupported, self._denied):
                known.clear()
            self._storages.clear()
            self._due_s = dict.fromkeys(OLD_COMMANDS, -math.inf)
        self.system, self._heard_s = system, now_s

    def put(self, m: Any, now_s: float) -> None:
        """Take one of the three answers."""
        kind = m.get_msgId()
        self._answered.add(kind)
        if (command := self._asked.get(kind)) is not None:
            self._works.setdefault(kind, set()).add(command)
        if kind == common.MAVLINK_MSG_ID_CAMERA_INFORMATION:
            self.model = f"{text(m.vendor_name)} {text(m.model_name)}".strip()
        elif kind == common.MAVLINK_MSG_ID_STORAGE_INFORMATION:
            free = m.available_capacity
            known = math.isfinite(free) and m.total_capacity > 0
            self._storages[m.storage_id] = Storage(m.status, free if known else math.nan)
            self._due_s[kind] = now_s + STORAGE_PERIOD_S
        else:
            self.image_count = m.image_count

    def put_ack(self, command: int, result: int, requested: int) -> None:
        """Take the answer to one of our requests; requested: the message that was asked for last by this command.

        A refusal after the same command has been answered is no news of what the camera knows. MAV_RESULT_DENIED means that
        the parameters are not valid, which is how a camera may say that it does not have a message, or not at present.
        """
        number = OF_OLD_COMMAND.get(command, requested)
        refused = {common.MAV_RESULT_UNSUPPORTED: self._unsupported, common.MAV_RESULT_DENIED: self._denied}.get(result)
        if refused is not None and number in OLD_COMMANDS and command not in self._works.get(number, ()):
            refused.setdefault(number, set()).add(command)

    def _refuses(self, number: int) -> bool:
        """It has refused all commands that ask for a message."""
        return len(self._unsupported.get(number, set()) | self._denied.get(number, set())) == 2

    @property
    def storage_free_mb(self) -> float:
        """Of the card with the most of it free [MB]; NaN: not reported."""
        cards = [storage for storage in self._storages.values() if storage.status not in NO_STORAGE]
        free_mb = [storage.free_mb for storage in cards or self._storages.values()]
        return max((free for free in free_mb if math.isfinite(free)), default=math.nan)

    def is_connected(self, now_s: float) -> bool:
        return now_s - self._heard_s <= SILENT_S

    def problem(self, now_s: float) -> str:
        """Why the camera cannot be used, "" when it can."""
        name = self.model or f"component {self.component}"
        if not self.is_connected(now_s):
            return f"camera {name}: no heartbeat"
        if common.MAVLINK_MSG_ID_CAMERA_INFORMATION not in self._answered:
            return f"camera {name}: has not introduced itself (CAMERA_INFORMATION)"
        storage = common.MAVLINK_MSG_ID_STORAGE_INFORMATION
        if storage not in self._answered and not self._refuses(storage):
            return f"camera {name}: has not reported its storage (STORAGE_INFORMATION)"
        if why := self._full_or_absent():
            return f"camera {name}: {why}"
        return ""

    def _full_or_absent(self) -> str:
        """Why none of its cards can take a photograph, "" when one can or none was reported."""
        storages = self._storages.values()
        if not storages or any(storage.holds_photographs for storage in storages):
            return ""
        if any(storage.status not in NO_STORAGE for storage in storages):
            return f"{self.storage_free_mb:.0f} MB of its storage are free, less than {FREE_MIN_MB:g}"
        return [why for status, why in NO_STORAGE.items() if any(s.status == status for s in storages)][-1]

    def requests(self, now_s: float) -> Iterator[tuple[int, tuple[float, ...], int]]:
        """(MAV_CMD, parameters, message asked for) of what is due now."""
        if not self.is_connected(now_s):
            return
        for number, old in OLD_COMMANDS.items():
            again = number == common.MAVLINK_MSG_ID_STORAGE_INFORMATION
            if (number in self._answered and not again) or now_s < self._due_s[number]:
                continue
            known = [c for c in (common.MAV_CMD_REQUEST_MESSAGE, old) if c not in self._unsupported.get(number, ())]
            if not known:
                continue
            command = known[self._tries[number] % len(known)]
            self._tries[number] += number not in self._answered
            self._due_s[number] = now_s + (STORAGE_PERIOD_S if self._refuses(number) else RETRY_S)
            self._asked[number] = command
            if command == old:
                # storage: id 0 means all; the request itself is the last parameter of each
                yield command, (0.0, 1.0) if again else (1.0,), number
            else:
                yield command, (float(number), 0.0), number
            if number not in self._answered:
                return  # one at a time: an ack names the command, not the message
