"""PX4 parameters that this stack relies on: one table of what is allowed, what is better, and why.

``companion preflight`` judges and mends by it, and whoever refuses a flight because of a parameter looks here: no
number of it stands twice. Names and meanings are those of PX4 1.14 to 1.17 (src/modules/commander/commander_params.c,
src/modules/navigator, src/modules/ekf2/module.yaml, docs.px4.io parameter reference).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from companion.core.frames import GRAVITY_M_S2
from companion.core.vehicle import Vehicle

Number = int | float
Values = Mapping[str, Number]  # by parameter name, as the flight controller has them

FIRMWARE_OLDEST = (1, 14)  # failsafes and EKF2_EV_CTRL in the form this table speaks of
FIRMWARE_NEWEST = (1, 17)  # the newest this stack was tried on

OFFBOARD_LOSS_MIN_S = 0.2  # shorter: a hiccup of the link ends the flight
OFFBOARD_LOSS_MAX_S = 1.0  # longer: the last setpoint is held for too long after the stack has stopped on purpose
OFFBOARD_LOSS_S = 0.5
STICK_MAX_PERCENT = 30.0
TILT_SPARE_RAD = math.radians(15)  # between the controller's bound, which is soft, and PX4's failure detector
FENCE_SPARE_M = 5.0  # of PX4's fence outside the mission's, so that the stack acts first
HOVER_DIFFERENCE = 0.1  # between PX4's hover thrust and the vehicle file's above which one of them is doubted

RETURN = 3  # of COM_OBL_RC_ACT, GF_ACTION and COM_LOW_BAT_ACT
RETURN_ON_LOSS = 2  # of NAV_RCL_ACT and NAV_DLL_ACT
OFFBOARD_SLOT = 7  # of COM_FLTMODE1…6
OVERRIDE_AUTO, OVERRIDE_OFFBOARD = 1, 2  # bits of COM_RC_OVERRIDE
EXCEPT_OFFBOARD = 4  # bit of COM_RCL_EXCEPT
EV_HORIZONTAL = 1  # bit of EKF2_EV_CTRL
SUPPLY_CHECK_OFF = 894281  # CBRK_SUPPLY_CHK_KEY of PX4's circuit_breaker.h
MODE_SLOTS = tuple(f"COM_FLTMODE{i}" for i in range(1, 7))


class Flight(NamedTuple):
    """What a rule must know of the mission."""

    height_m: float  # limits, over the take-off point
    distance_m: float
    at_structure: bool
    switch_channel: int | None  # the channel that hands over to the mission


class Test(NamedTuple):
    """A question to a parameter's value, and the words for a yes."""

    words: str
    holds: Callable[[Number, Values], bool]


@dataclass(frozen=True)
class Rule:
    """What one parameter must be. ``fix`` gives the value to set, or None where only a person can choose."""

    name: str
    why: str
    required: Test | None = None  # else the flight is refused
    preferred: Test | None = None  # else a warning
    fix: Callable[[Number, Values], Number | None] = lambda value, values: None
    optional: bool = False  # not every firmware has it

    def judge(self, values: Values) -> tuple[str, str]:
        """("ok", "warning" or "failed", words); the parameter must be in `values`."""
        value = values[self.name]
        if self.required is not None and not self.required.holds(value, values):
            return "failed", f"{shown(value)}, must be {self.required.words}: {self.why}"
        if self.preferred is not None and not self.preferred.holds(value, values):
            return "warning", f"{shown(value)}, should be {self.preferred.words}: {self.why}"
        return "ok", shown(value)


def shown(value: Number) -> str:
    """A value as a person writes it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _one_of(words: str, *allowed: int) -> Test:
    return Test(words, lambda value, values: value in allowed)


def _between(low: float, high: float, unit: str) -> Test:
    # the wire has float32: 0.2 arrives as 0.200000003
    return Test(f"{low:g} to {high:g} {unit}", lambda value, values: low - 1e-6 <= value <= high + 1e-6)


def _set(value: Number) -> Callable[[Number, Values], Number]:
    return lambda old, values: value


def _add_bits(bits: int) -> Callable[[Number, Values], Number]:
    return lambda old, values: int(old) | bits


def rules(vehicle: Vehicle, flight: Flight | None = None, send_odometry: bool = False) -> list[Rule]:
    """The table for one aircraft and one mission, in the order in which a user would read it.

    flight: None where no mission is known; then nothing is asked that depends on one.
    send_odometry: the stack sends ODOMETRY to PX4's estimator.
    """
    table = [*_offboard(flight), *_pilot(flight), *_failsafes(flight), *_fence(flight), *_tilt(vehicle)]
    table += [*_thrust(vehicle), *_breakers()]
    if send_odometry:
        table += _vision()
    return table


def _return_below(flight: Flight | None) -> Callable[[Values], bool]:
    """Whether PX4's Return mode stays inside the mission's heights: it climbs to RTL_RETURN_ALT first."""

    def safe(values: Values) -> bool:
        if flight is None:
            return True
        altitude_m = values.get("RTL_RETURN_ALT")
        return altitude_m is not None and altitude_m <= flight.height_m

    return safe


def _action(words: str, allowed: tuple[int, ...], returns: int, flight: Flight | None) -> Test:
    """A failsafe's action: one of `allowed`, or Return where that stays below the mission's height."""
    safe = _return_below(flight)
    if flight is not None:
        words += f", or Return with RTL_RETURN_ALT <= {flight.height_m:g} m (limits.height_m)"
    else:
        words += ", or Return"
    return Test(words, lambda value, values: value in allowed or (value == returns and safe(values)))


def _offboard(flight: Flight | None) -> list[Rule]:
    return [
        Rule(
            "COM_OF_LOSS_T",
            "to stop streaming is the stack's emergency exit; PX4 holds the last setpoint for so long",
            required=_between(OFFBOARD_LOSS_MIN_S, OFFBOARD_LOSS_MAX_S, "s"),
            fix=_set(OFFBOARD_LOSS_S),
        ),
        Rule(
            "COM_OBL_RC_ACT",
            "what follows when the stream stops; Return climbs first, the rest needs a pilot who is quick",
            required=_action("0 (Position), 4 (Land) or 5 (Hold)", (0, 4, 5), RETURN, flight),
            fix=_set(0),
        ),
    ]


def _pilot(flight: Flight | None) -> list[Rule]:
    channel = None if flight is None else flight.switch_channel
    table = [
        Rule(
            "COM_RC_OVERRIDE",
            "moved sticks must take over from offboard (bit 1) and from automatic modes (bit 0)",
            required=Test("2 or 3", lambda value, values: bool(int(value) & OVERRIDE_OFFBOARD)),
            preferred=Test("3", lambda value, values: bool(int(value) & OVERRIDE_AUTO)),
            fix=_add_bits(OVERRIDE_AUTO | OVERRIDE_OFFBOARD),
        ),
        Rule(
            "COM_RC_STICK_OV",
            "how far a stick must move to take over",
            preferred=Test(f"at most {STICK_MAX_PERCENT:g} %", lambda value, values: value <= STICK_MAX_PERCENT),
            fix=_set(STICK_MAX_PERCENT),
        ),
        Rule(
            "COM_RC_IN_MODE",
            "1 ignores the transmitter, 4 everybody's sticks",
            required=Test(
                "a mode that listens to the transmitter (0, 2, 3, 5 to 8)", lambda value, values: value not in (1, 4)
            ),
        ),
        Rule(
            "COM_RCL_EXCEPT",
            "a lost transmitter must be a failsafe in offboard, too",
            required=Test("without bit 2 (offboard)", lambda value, values: not int(value) & EXCEPT_OFFBOARD),
            fix=lambda old, values: int(old) & ~EXCEPT_OFFBOARD,
        ),
        Rule(
            "RC_MAP_KILL_SW",
            "the last resort needs a switch of its own",
            required=Test(
                "a channel" + (f" other than {channel}, the mission's switch" if channel else ""),
                lambda value, values: value > 0 and value != channel,
            ),
        ),
        Rule(
            "RC_MAP_FLTMODE",
            "the pilot takes over with the mode switch",
            preferred=Test(
                "a channel" + (f" other than {channel}, the mission's switch" if channel else ""),
                lambda value, values: value > 0 and value != channel,
            ),
        ),
    ]
    table += [
        Rule(
            slot,
            "any movement of the mode switch is the pilot taking over; offboard is asked for by the mission alone",
            required=Test("not 7 (Offboard)", lambda value, values: value != OFFBOARD_SLOT),
        )
        for slot in MODE_SLOTS
    ]
    return table


def _failsafes(flight: Flight | None) -> list[Rule]:
    why = "Return climbs to RTL_RETURN_ALT first: under a deck that is a collision"
    return [
        Rule(
            "NAV_RCL_ACT",
            f"action on a lost transmitter; {why}",
            required=_action("1 (Hold) or 3 (Land)", (1, 3), RETURN_ON_LOSS, flight),
            fix=_set(3),
        ),
        Rule(
            "NAV_DLL_ACT",
            f"action on a lost ground station; {why}",
            required=_action("0 (off), 1 (Hold) or 3 (Land)", (0, 1, 3), RETURN_ON_LOSS, flight),
            fix=_set(0),
        ),
        Rule(
            "COM_LOW_BAT_ACT",
            f"action on a low battery; {why}",
            required=_action("0 (Warning) or 2 (Land)", (0, 2), RETURN, flight),
            preferred=Test("2 (Land)", lambda value, values: value != 0),
            fix=_set(2),
        ),
    ]


def _fence(flight: Flight | None) -> list[Rule]:
    table = [
        Rule(
            "GF_ACTION",
            "PX4's own fence works when the companion does not; it may not kill the motors, nor climb into a deck",
            required=_action("0 (None), 1 (Warning), 2 (Hold) or 5 (Land)", (0, 1, 2, 5), RETURN, flight),
            preferred=Test("2 (Hold) or 5 (Land)", lambda value, values: value not in (0, 1)),
            fix=_set(2),
        )
    ]
    if flight is None:
        return table
    for name, key, limit_m in (
        ("GF_MAX_HOR_DIST", "limits.distance_m", flight.distance_m),
        ("GF_MAX_VER_DIST", "limits.height_m", flight.height_m),
    ):
        table.append(
            Rule(
                name,
                f"PX4's fence a little outside the mission's {key} = {limit_m:g} m, so that the stack acts first",
                required=Test(
                    f"0 or above {limit_m:g} m",
                    lambda value, values, limit_m=limit_m: value == 0 or value > limit_m,
                ),
                preferred=Test(f"above {limit_m:g} m (0 is no fence)", lambda value, values: value > 0),
                fix=_set(float(math.ceil(limit_m + FENCE_SPARE_M))),
            )
        )
    return table


def _tilt(vehicle: Vehicle) -> list[Rule]:
    tilt_rad = vehicle.controller.tilt_max_rad
    tilt_deg, detector_deg = math.degrees(tilt_rad), math.ceil(math.degrees(tilt_rad + TILT_SPARE_RAD))
    table = [
        Rule(
            name,
            f"controller.tilt_max_rad is {tilt_deg:.0f}°; at this angle PX4's failure detector may stop the motors",
            required=Test(
                f"0 (off) or at least {detector_deg}°",
                lambda value, values: value == 0 or value >= detector_deg,
            ),
            fix=_set(max(60, detector_deg)),
        )
        for name in ("FD_FAIL_R", "FD_FAIL_P")
    ]
    table += [
        Rule(
            name,
            f"{whose} must be able to lean as far into the wind as the controller does ({tilt_deg:.0f}°)",
            preferred=Test(
                f"at least {math.ceil(tilt_deg)}°", lambda value, values: value >= math.ceil(tilt_deg) - 1e-3
            ),
            fix=_set(float(math.ceil(tilt_deg))),
        )
        for name, whose in (("MPC_TILTMAX_AIR", "Position mode"), ("MPC_MAN_TILT_MAX", "the pilot"))
    ]
    return table


def _thrust(vehicle: Vehicle) -> list[Rule]:
    hover = GRAVITY_M_S2 / vehicle.thrust.coefficient_m_s2
    low, high = round(hover - HOVER_DIFFERENCE, 2), round(hover + HOVER_DIFFERENCE, 2)
    exponent = vehicle.thrust.voltage_exponent
    return [
        Rule(
            "MPC_THR_HOVER",
            f"the vehicle file's thrust.coefficient_m_s2 says {hover:.2f}; one of the two is wrong",
            preferred=_between(low, high, "of full thrust"),
        ),
        Rule(
            "MC_BAT_SCALE_EN",
            f"thrust.voltage_exponent is {exponent:g}; the battery's voltage must be compensated once",
            preferred=Test(
                "0 (off)" if exponent > 0.1 else "1 (on)", lambda value, values: (value == 0) == (exponent > 0.1)
            ),
        ),
    ]


def _breakers() -> list[Rule]:
    return [
        Rule(
            "CBRK_SUPPLY_CHK",
            "a circuit breaker has PX4's power checks off",
            required=Test(f"not {SUPPLY_CHECK_OFF}", lambda value, values: value != SUPPLY_CHECK_OFF),
            fix=_set(0),
            optional=True,
        )
    ]


def _vision() -> list[Rule]:
    return [
        Rule(
            "EKF2_EV_CTRL",
            "PX4's estimator takes the position that this stack sends (ODOMETRY)",
            required=Test("with bit 0 (horizontal position)", lambda value, values: bool(int(value) & EV_HORIZONTAL)),
            fix=_add_bits(EV_HORIZONTAL),
        ),
        Rule(
            "EKF2_EV_NOISE_MD",
            "the covariance that is sent with every position is to be used",
            preferred=Test("0", lambda value, values: value == 0),
            fix=_set(0),
        ),
    ]
