"""Repeatedly reads and checks the PX4 parameters whose wrong values make offboard flight unsafe.

The allowed values are in `companion.core.px4_parameters`. What preflight requires, this requires for a start, by the
same rules and for the same mission. ``companion preflight`` alone judges two things: the values that are allowed but
not recommended, and the size of PX4's own fence (`LEFT_TO_PREFLIGHT`).
"""

import struct
from collections.abc import Callable

from companion.core.px4_parameters import PlannedFlight, Rule, rules
from companion.core.vehicle import Vehicle
from companion.fcu.link.codec import OutgoingMessage
from companion.fcu.link.decoded import ParamValue
from companion.fcu.link.params import decode_value, read_request

# PX4's timeout, actions and exceptions for lost setpoints and lost RC: without a report of them no flight begins.
# Every firmware of the table has them. Of the other parameters one that a firmware does not have is accepted.
FATAL = ("COM_OF_LOSS_T", "COM_OBL_RC_ACT", "NAV_RCL_ACT", "COM_RCL_EXCEPT")
FATAL_ALONE = ("EKF2_GPS_CTRL",)  # of a flight that is declared to be without satellites, beside `FATAL`
# PX4's fence is a second one round the stack's own, which acts first. Without it, or with one of another size, PX4 does
# nothing that `GF_ACTION` does not allow. It is off in a PX4 that was not set up, as in simulations.
LEFT_TO_PREFLIGHT = ("GF_MAX_HOR_DIST", "GF_MAX_VER_DIST")
RETURN_ALTITUDE = "RTL_RETURN_ALT"  # has no rule of its own: the rules of PX4's actions use its value
REQUEST_S = 0.02  # between two requests while something is unknown: all arrive within a second of the connection
RETRY_S = 1.0  # between two requests for the same unknown parameter
TRIES = 3  # unanswered requests after which this firmware does not have a parameter
NAMED = 4  # of the parameters that have not been reported, at most; `FATAL` come first
REREAD_S = 0.5  # between two requests, one parameter each, when all are known: a ground station may change one


def _rules(vehicle: Vehicle, satellites: bool, flight: PlannedFlight | None) -> dict[str, Rule]:
    table = rules(vehicle, flight, vehicle.fcu.send_odometry, satellites)
    required = [rule for rule in table if rule.required is not None or rule.name in FATAL]
    return {rule.name: rule for rule in required if rule.name not in LEFT_TO_PREFLIGHT}


class ParameterWatch:
    """The watched parameters of one flight controller; `names` has them all."""

    def __init__(
        self,
        vehicle: Vehicle,
        send: Callable[[OutgoingMessage], None],
        satellites: bool = True,
        flight: PlannedFlight | None = None,
    ) -> None:
        """send: takes a pymavlink message; satellites: False for a flight without them.

        flight: None where no mission is known; then Return is accepted with any altitude, and a switch on any channel.
        """
        satellites = satellites and (flight is None or flight.satellites)
        self._rules = _rules(vehicle, satellites, flight)
        self._fatal = FATAL if satellites else (*FATAL, *FATAL_ALONE)
        others = [name for name in self._rules if name not in self._fatal]
        self.names = (*self._fatal, *others, RETURN_ALTITUDE)
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
        self._tries: dict[str, int] = {}
        self._absent: set[str] = set()
        self.problem = self._problem()

    def step(self, now_s: float) -> bool:
        """If due, request one parameter: an unknown one, or, when all are known, the one requested longest ago.

        Returns True as `put` does, when a parameter that this firmware does not have was the last to wait for.
        """
        if now_s < self._due_s:
            return False
        was_complete = self.complete
        if absent := self._newly_absent(now_s):
            self._absent.update(absent)
            self.problem = self._problem()
        unknown = self._unknown()
        names = [n for n in unknown if now_s - self._requested_s.get(n, -float("inf")) >= RETRY_S]
        if not unknown:
            names = sorted(self.names, key=lambda n: self._requested_s.get(n, 0.0))
        self._due_s = now_s + (REQUEST_S if unknown else REREAD_S)
        if names:
            self._requested_s[names[0]] = now_s
            self._tries[names[0]] = self._tries.get(names[0], 0) + 1
            self._send(read_request(names[0], self._system_id))
        return self.complete and not was_complete

    def _newly_absent(self, now_s: float) -> list[str]:
        tried = [n for n in self._unknown() if n not in self._fatal and self._tries.get(n, 0) >= TRIES]
        return [name for name in tried if now_s - self._requested_s[name] >= RETRY_S]

    def put(self, m: ParamValue) -> bool:
        """Take a PARAM_VALUE; returns True when all that may forbid a flight are known and the result of the check is new."""
        name = m.param_id.split(b"\0", 1)[0].decode("ascii", "replace")
        if name not in self.names:
            return False
        try:
            value = decode_value(m.param_value, m.param_type)
        except (ValueError, struct.error):
            self.bad_content += 1
            self._tries[name] = 0  # it exists
            return False
        if self.values.get(name) == value:
            return False
        was_complete, before = self.complete, self.problem
        self.values[name] = value
        self.problem = self._problem()
        return self.complete and (self.problem != before or not was_complete)

    @property
    def complete(self) -> bool:
        """All parameters that a flight needs are known, and of the others those that this firmware has."""
        return not self._unknown()

    def _unknown(self) -> list[str]:
        return [name for name in self.names if name not in self.values and name not in self._absent]

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
        more = f" and {len(unknown) - NAMED} more parameters" if len(unknown) > NAMED else ""
        return f"the flight controller has not reported {', '.join(unknown[:NAMED])}{more}" if unknown else ""
