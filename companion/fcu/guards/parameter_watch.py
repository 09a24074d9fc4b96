"""The parameters that make offboard unsafe when they are wrong: read at the start and again and again, judged, told.

What is allowed stands in `companion.core.px4_parameters`; here is only what no flight may begin with.
``companion preflight`` judges the whole table.
"""

import struct
from collections.abc import Callable
from types import SimpleNamespace

from companion.core.px4_parameters import Rule, rules
from companion.core.vehicle import Vehicle
from companion.fcu.params import decode_value, read_request

# what PX4 does when the stream stops, or the transmitter; the rest of the table is preflight's
FATAL = ("COM_OF_LOSS_T", "COM_OBL_RC_ACT", "NAV_RCL_ACT", "COM_RCL_EXCEPT")
SUPPLY = "CBRK_SUPPLY_CHK"  # judged when it is told, not missed when it is not
ASK_S = 0.05  # between two requests while something is unknown
RETRY_S = 1.0  # between two requests for the same one
REREAD_S = 2.0  # between two requests when all are known: somebody may change one at any time


def _rules(vehicle: Vehicle) -> dict[str, Rule]:
    return {rule.name: rule for rule in rules(vehicle) if rule.name in (*FATAL, SUPPLY)}


class ParameterWatch:
    """Knows the watched parameters of one flight controller."""

    def __init__(self, vehicle: Vehicle, send: Callable[[object], None]) -> None:
        """send: takes a pymavlink message."""
        self._rules = _rules(vehicle)
        self._system_id = vehicle.fcu.autopilot_system_id
        self._send = send
        self.values: dict[str, int | float] = {}
        self.bad_content = 0
        self.forget()

    def forget(self) -> None:
        """Another flight controller, or the same one restarted: read anew."""
        self.values.clear()
        self._due_s = -float("inf")
        self._asked_s: dict[str, float] = {}
        self.problem = self._problem()

    def step(self, now_s: float) -> None:
        """Ask for what is unknown, and now and then for what is known."""
        if now_s < self._due_s:
            return
        unknown = self._unknown()
        names = [n for n in unknown if now_s - self._asked_s.get(n, -float("inf")) >= RETRY_S]
        if not unknown:
            names = sorted(self._rules, key=lambda n: self._asked_s.get(n, 0.0))
        self._due_s = now_s + (ASK_S if unknown else REREAD_S)
        if names:
            self._asked_s[names[0]] = now_s
            self._send(read_request(names[0], self._system_id))

    def put(self, m: SimpleNamespace) -> bool:
        """Take a PARAM_VALUE; returns whether there is a new verdict."""
        name = m.param_id.split(b"\0", 1)[0].decode("ascii", "replace")
        if name not in self._rules:
            return False
        try:
            value = decode_value(m.param_value, m.param_type)
        except (ValueError, struct.error):
            self.bad_content += 1
            return False
        if self.values.get(name) == value:
            return False
        was_complete, before = self.complete, self.problem
        self.values[name] = value
        self.problem = self._problem()
        return self.complete and (self.problem != before or not was_complete)

    @property
    def complete(self) -> bool:
        """All that must be known is."""
        return not self._unknown()

    def _unknown(self) -> list[str]:
        return [name for name in FATAL if name not in self.values]

    def _problem(self) -> str:
        """Why no flight may begin, "" when nothing is against it."""
        bad = []
        for name, rule in self._rules.items():
            if name in self.values:
                verdict, words = rule.judge(self.values)
                if verdict == "failed":
                    bad.append(f"{name} is {words}")
        if bad:
            return "; ".join(bad)
        unknown = self._unknown()
        return f"the flight controller has not told {', '.join(unknown)}" if unknown else ""
