"""Repeatedly reads and checks the PX4 parameters whose wrong values make offboard flight unsafe.

The allowed values are in `companion.core.px4_parameters`. A wrong value of a parameter listed here forbids a flight.
``companion preflight`` checks the whole table.
"""

import struct
from collections.abc import Callable

from companion.core.px4_parameters import Rule, rules
from companion.core.vehicle import Vehicle
from companion.fcu.link.codec import OutgoingMessage
from companion.fcu.link.decoded import ParamValue
from companion.fcu.link.params import decode_value, read_request

# PX4's timeout, actions and exceptions for lost setpoints and lost RC; preflight checks the rest of the table
FATAL = ("COM_OF_LOSS_T", "COM_OBL_RC_ACT", "NAV_RCL_ACT", "COM_RCL_EXCEPT")
SUPPLY = "CBRK_SUPPLY_CHK"  # checked where it exists; a firmware without it is accepted
WATCHED = (*FATAL, SUPPLY)
# of a flight that is declared to be without satellites, beside `FATAL`
FATAL_ALONE = ("EKF2_GPS_CTRL",)
REQUEST_S = 0.05  # between two requests while something is unknown
RETRY_S = 1.0  # between two requests for the same unknown parameter
REREAD_S = 2.0  # between two requests, one parameter each, when all are known: a ground station may change one


def _rules(vehicle: Vehicle, satellites: bool) -> dict[str, Rule]:
    watched = WATCHED if satellites else (*WATCHED, *FATAL_ALONE)
    return {rule.name: rule for rule in rules(vehicle, satellites=satellites) if rule.name in watched}


class ParameterWatch:
    """The watched parameters of one flight controller."""

    def __init__(self, vehicle: Vehicle, send: Callable[[OutgoingMessage], None], satellites: bool = True) -> None:
        """send: takes a pymavlink message; satellites: False for a flight without them."""
        self._rules = _rules(vehicle, satellites)
        self._fatal = FATAL if satellites else (*FATAL, *FATAL_ALONE)
        self._system_id = vehicle.fcu.autopilot_system_id
        self._send = send
        self.values: dict[str, int | float] = {}
        self.bad_content = 0
        self.reset()

    def reset(self) -> None:
        """Forget all values, so that they are read again: for another or a restarted flight controller."""
        self.values.clear()
        self._due_s = -float("inf")
        self._requested_s: dict[str, float] = {}
        self.problem = self._problem()

    def step(self, now_s: float) -> None:
        """If due, request one parameter: an unknown one, or, when all are known, the one requested longest ago."""
        if now_s < self._due_s:
            return
        unknown = self._unknown()
        names = [n for n in unknown if now_s - self._requested_s.get(n, -float("inf")) >= RETRY_S]
        if not unknown:
            names = sorted(self._rules, key=lambda n: self._requested_s.get(n, 0.0))
        self._due_s = now_s + (REQUEST_S if unknown else REREAD_S)
        if names:
            self._requested_s[names[0]] = now_s
            self._send(read_request(names[0], self._system_id))

    def put(self, m: ParamValue) -> bool:
        """Take a PARAM_VALUE; returns True when all that may forbid a flight are known and the result of the check is new."""
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
        """All parameters that a flight needs are known."""
        return not self._unknown()

    def _unknown(self) -> list[str]:
        return [name for name in self._fatal if name not in self.values]

    def _problem(self) -> str:
        """The reason that forbids a flight, "" if there is none."""
        bad = []
        for name, rule in self._rules.items():
            if name in self.values:
                verdict, text = rule.judge(self.values)
                if verdict == "failed":
                    bad.append(f"{name} is {text}")
        if bad:
            return "; ".join(bad)
        unknown = self._unknown()
        return f"the flight controller has not reported {', '.join(unknown)}" if unknown else ""
