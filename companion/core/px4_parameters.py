"""The PX4 parameters that this stack relies on: allowed values, recommended values, and the reasons.

This is the only table of them. ``companion preflight`` checks and corrects parameters by it, the link process refuses
a flight by it, and `markdown_table` writes it for the pages. Names and meanings are those of PX4 1.14 to 1.17
(src/modules/commander/commander_params.c, src/modules/navigator, src/modules/ekf2/module.yaml, docs.px4.io parameter
reference).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from companion.core.vehicle import OFFBOARD_LOSS_MAX_S, Vehicle

Number = int | float
Values = Mapping[str, Number]  # by parameter name, as the flight controller has them
Judgement = Literal["ok", "warning", "failed"]

FIRMWARE_OLDEST = (1, 14)  # the first with failsafes and EKF2_EV_CTRL in the form of this table
FIRMWARE_NEWEST = (1, 17)  # the newest version that this stack was tested with

OFFBOARD_LOSS_MIN_S = 0.2  # shorter: a short interruption of the link ends the flight
OFFBOARD_LOSS_S = 0.5
STICK_MAX_PERCENT = 30.0
TILT_SPARE_RAD = math.radians(15)  # between the controller's bound, which is soft, and PX4's failure detector
# PX4's fence lies outside the mission's, so that the stack acts first: by what GNSS may be wrong between the arming, when
# home is set, and now. Three times the accuracy that a good receiver reports (0.9 m) is the least, then five metres.
FENCE_SPARE_MIN_M = 3.0
FENCE_SPARE_M = 5.0
FENCE_SPARE_MAX_M = 15.0  # a fence farther outside does not protect what is around the mission
MODEL_FACTOR = "THR_MDL_FAC"  # PX4's thrust model: thrust = F signal² + (1 - F) signal
MODEL_FACTOR_DIFFERENCE = 0.005  # of THR_MDL_FAC: at the hover it changes the thrust by 0.3 % at most
HOVER_DIFFERENCE = 0.1  # a larger one between PX4's hover thrust and the vehicle file's is reported

RETURN = 3  # of COM_OBL_RC_ACT, GF_ACTION, COM_LOW_BAT_ACT, COM_FLTT_LOW_ACT, COM_WIND_MAX_ACT and COM_ACT_FAIL_ACT
RETURN_ON_LOSS = 2  # of NAV_RCL_ACT and NAV_DLL_ACT
RETURN_ON_IMBALANCE = 1  # of COM_IMB_PROP_ACT
OFFBOARD_SLOT = 7  # of COM_FLTMODE1…6
OVERRIDE_AUTO, OVERRIDE_OFFBOARD = 1, 2  # bits of COM_RC_OVERRIDE
EXCEPT_OFFBOARD = 4  # bit of COM_RCL_EXCEPT
EV_HORIZONTAL = 1  # bit of EKF2_EV_CTRL
SUPPLY_CHECK_OFF = 894281  # CBRK_SUPPLY_CHK_KEY of PX4's circuit_breaker.h
NAMES_IN_FULL = 4  # of parameters that share a row of the table; more are a numbered series
MODE_SLOTS = tuple(f"COM_FLTMODE{i}" for i in range(1, 7))


class PlannedFlight(NamedTuple):
    """The numbers of a mission that the rules depend on."""

    height_m: float  # of the stack's fence above the take-off point
    distance_m: float  # horizontal, from the take-off point to the farthest place inside the stack's fence
    switch_channel: int | None  # the RC channel that hands over to the mission
    satellites: bool = True


class Condition(NamedTuple):
    """A condition on a parameter's value, and its description."""

    description: str
    holds: Callable[[Number, Values], bool]


def _no_fix(value: Number, values: Values) -> Number | None:
    return None


@dataclass(frozen=True)
class Rule:
    """The allowed and the recommended values of one parameter.

    fix: (present value, all values) -> value to set, or None where only a person can choose.
    """

    name: str
    why: str
    required: Condition | None = None  # a value that violates it is "failed": no flight
    preferred: Condition | None = None  # a value that violates it is a "warning"
    fix: Callable[[Number, Values], Number | None] = _no_fix
    optional: bool = False  # not every firmware has it
    note: str = ""  # further explanation for the pages; not part of a message

    def judge(self, values: Values) -> tuple[Judgement, str]:
        """The judgement and its explanation; the parameter must be in `values`."""
        value = values[self.name]
        if self.required is not None and not self.required.holds(value, values):
            return "failed", f"{shown(value)}, must be {self.required.description}: {self.why}"
        if self.preferred is not None and not self.preferred.holds(value, values):
            return "warning", f"{shown(value)}, should be {self.preferred.description}: {self.why}"
        return "ok", shown(value)


class AdvisedParameter(NamedTuple):
    """A parameter that a person sets once, and that preflight does not check: for the pages."""

    names: tuple[str, ...]
    value: str
    why: str


class TableRow(NamedTuple):
    """A row of the table in the pages; parameters with the same text share a row."""

    names: tuple[str, ...]
    allowed: str
    recommended: str
    reason: str


LINK_PARAMETERS = (
    AdvisedParameter(("MAV_1_CONFIG",), "102 (TELEM 2)", "MAVLink on that port"),
    AdvisedParameter(
        ("MAV_1_MODE",),
        "2 (Onboard)",
        "the companion's set of messages; the stack requests its own rates, and requests them again when they are lost",
    ),
    AdvisedParameter(
        ("MAV_1_RATE",),
        "0, or at least 45000",
        "0 is half of the port's capacity, 46 kB/s, of which the stack's streams take 40; a smaller number reduces the rates of all messages",
    ),
    AdvisedParameter(("MAV_1_FLOW_CTRL",), "0", "three wires, no RTS and CTS"),
    AdvisedParameter(
        ("MAV_1_RADIO_CTL",),
        "0",
        "a RADIO_STATUS of any sender with a full buffer, one in a second, reduces all rates of the port to a twentieth",
    ),
    AdvisedParameter(
        ("SER_TEL2_BAUD",),
        "921600",
        "the IMU at 200 Hz alone is 15 kB/s; on a slower line set `fcu.imu_rate_hz` to 0; 57600 is too slow at all",
    ),
    AdvisedParameter(
        ("IMU_INTEG_RATE",),
        "200, as `fcu.imu_rate_hz`",
        "HIGHRES_IMU is the mean over one such interval; a slower stream leaves gaps that no sample covers",
    ),
    AdvisedParameter(("UXRCE_DDS_CFG",), "not TELEM 2", "otherwise it takes the port"),
    AdvisedParameter(
        ("MAV_SYS_ID",), "as `fcu.autopilot_system_id`", "the stack exchanges messages with this system only"
    ),
)
TUNING_PARAMETERS = (
    AdvisedParameter(
        ("EKF2_GPS_P_NOISE", "EKF2_GPS_V_NOISE"),
        "the accuracy of the position source",
        "the defaults (0.5 m, 0.3 m/s) waste RTK or motion capture; set `estimator.position.std` and "
        "`gnss_bias_m_sqrt_s` to match",
    ),
    AdvisedParameter(
        ("MC_*",),
        "tuned, then left unchanged",
        "the vehicle file's attitude response is identified with them; identify again after a change",
    ),
)
VISION_PARAMETERS = (
    AdvisedParameter(("EKF2_HGT_REF",), "unchanged", "height stays with barometer or GNSS"),
    AdvisedParameter(
        ("EKF2_EV_DELAY",),
        "0",
        "stamps are in PX4's time once its TIMESYNC with the companion has converged, 50 s after the start",
    ),
    AdvisedParameter(
        ("EKF2_EV_QMIN",), "0, or 1 to 100", "quality falls from 100 to 1 while the deviation grows to 0.3 m"
    ),
)


def shown(value: Number) -> str:
    """A value as a person writes it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _one_of(description: str, *allowed: int) -> Condition:
    return Condition(description, lambda value, values: value in allowed)


def _between(low: float, high: float, unit: str) -> Condition:
    # the wire has float32: 0.2 arrives as 0.200000003
    return Condition(f"{low:g} to {high:g} {unit}", lambda value, values: low - 1e-6 <= value <= high + 1e-6)


def _set(value: Number) -> Callable[[Number, Values], Number]:
    return lambda old, values: value


def _add_bits(bits: int) -> Callable[[Number, Values], Number]:
    return lambda old, values: int(old) | bits


def rules(
    vehicle: Vehicle, flight: PlannedFlight | None = None, send_odometry: bool = False, satellites: bool = True
) -> list[Rule]:
    """The rules for one aircraft and one mission, in the order in which a user would read them.

    flight: None where no mission is known; then the rules that depend on one are left out.
    send_odometry: the stack sends ODOMETRY to PX4's estimator.
    satellites: False for a flight without them; also by the mission.
    """
    if not satellites or (flight is not None and not flight.satellites):
        pilot = [rule for rule in _pilot(flight) if rule.name != "COM_RCL_EXCEPT"]
        table = [*_alone(vehicle), *pilot, *_failsafes_alone()]
    else:
        table = [*_offboard(vehicle, flight), *_pilot(flight), *_failsafes(flight), *_fence(flight)]
    table += [*_tilt(vehicle), *_thrust(vehicle), *_breakers()]
    others_measure = vehicle.fcu.measurement_senders != []
    return [*table, *(_vision() if send_odometry else [] if others_measure else _no_vision())]


def table_rows(vehicle: Vehicle, flight: PlannedFlight) -> list[TableRow]:
    """All parameters for a page: those of the link, those that preflight checks, those for ODOMETRY."""
    judged = rules(vehicle, flight)  # ends with what holds while no ODOMETRY is sent
    vision = _vision()
    return [
        *(_advised_row(parameter) for parameter in LINK_PARAMETERS),
        *_merged([_rule_row(rule) for rule in judged]),
        *(_advised_row(parameter) for parameter in TUNING_PARAMETERS),
        *_merged([_rule_row(rule) for rule in vision]),
        *(_advised_row(parameter) for parameter in VISION_PARAMETERS),
    ]


def markdown_table(vehicle: Vehicle, flight: PlannedFlight) -> str:
    """`table_rows` as Markdown; the numbers are those of this vehicle file and this mission."""
    lines = ["| parameter | allowed | recommended | reason |", "|---|---|---|---|"]
    for row in table_rows(vehicle, flight):
        names = [f"`{name}`" for name in row.names]
        shown_names = ", ".join(names) if len(names) <= NAMES_IN_FULL else f"{names[0]} … {names[-1]}"
        lines.append(f"| {shown_names} | {row.allowed} | {row.recommended} | {row.reason} |")
    return "\n".join(lines) + "\n"


def _advised_row(parameter: AdvisedParameter) -> TableRow:
    return TableRow(parameter.names, "", parameter.value, parameter.why)


def _rule_row(rule: Rule) -> TableRow:
    value = rule.fix(0, {})
    recommended = rule.preferred.description if rule.preferred is not None else "" if value is None else shown(value)
    reason = f"{rule.why}. {rule.note}" if rule.note else rule.why
    return TableRow((rule.name,), "any" if rule.required is None else rule.required.description, recommended, reason)


def _merged(rows: list[TableRow]) -> list[TableRow]:
    """Neighbouring rows with the same text as one."""
    merged: list[TableRow] = []
    for row in rows:
        if merged and merged[-1][1:] == row[1:]:
            merged[-1] = row._replace(names=(*merged[-1].names, *row.names))
        else:
            merged.append(row)
    return merged


def _return_below(flight: PlannedFlight | None) -> Callable[[Values], bool]:
    """Whether PX4's Return mode stays below the mission's height limit; Return climbs to RTL_RETURN_ALT first."""

    def safe(values: Values) -> bool:
        if flight is None:
            return True
        altitude_m = values.get("RTL_RETURN_ALT")
        return altitude_m is not None and altitude_m <= flight.height_m

    return safe


def _or_return(flight: PlannedFlight | None, what: str = "Return") -> str:
    """The end of a description that also allows Return; what: how it is called there."""
    if flight is None:
        return f", or {what}"
    return f", or {what} with RTL_RETURN_ALT <= {flight.height_m:g} m (the mission's limit)"


def _action(description: str, allowed: tuple[int, ...], returns: int, flight: PlannedFlight | None) -> Condition:
    """A failsafe's action: one of `allowed`, or Return where that stays below the mission's height."""
    safe = _return_below(flight)
    return Condition(
        description + _or_return(flight),
        lambda value, values: value in allowed or (value == returns and safe(values)),
    )


def _offboard(vehicle: Vehicle, flight: PlannedFlight | None) -> list[Rule]:
    pause_s = vehicle.safety.setpoint_pause_s
    return [
        Rule(
            "COM_OF_LOSS_T",
            "the stack's emergency exit is to stop streaming; PX4 then holds the last setpoint for this time",
            required=_between(max(OFFBOARD_LOSS_MIN_S, pause_s), OFFBOARD_LOSS_MAX_S, "s"),
            fix=_set(max(OFFBOARD_LOSS_S, pause_s)),
            note="After a shorter time PX4 has left offboard in a pause of the stream that the stack still accepts "
            "(0.8 of `safety.setpoints_lost_s`). PX4's default is 1.0 s",
        ),
        Rule(
            "COM_OBL_RC_ACT",
            "PX4's action when the stream stops; Return climbs first, the other modes need a quick pilot",
            required=_action("0 (Position), 4 (Land) or 5 (Hold)", (0, 4, 5), RETURN, flight),
            fix=_set(0),
            note="In Position the pilot's sticks act at once. It needs GNSS, so the pilot must be ready. "
            "Without RC PX4 does `NAV_RCL_ACT` instead",
        ),
    ]


def _pilot(flight: PlannedFlight | None) -> list[Rule]:
    channel = None if flight is None else flight.switch_channel
    table = [
        Rule(
            "COM_RC_OVERRIDE",
            "moved sticks must take over from offboard (bit 1) and from automatic modes (bit 0)",
            required=Condition("2 or 3", lambda value, values: bool(int(value) & OVERRIDE_OFFBOARD)),
            preferred=Condition("3", lambda value, values: bool(int(value) & OVERRIDE_AUTO)),
            fix=_add_bits(OVERRIDE_AUTO | OVERRIDE_OFFBOARD),
            note="Bit 1 is not PX4's default",
        ),
        Rule(
            "COM_RC_STICK_OV",
            "the stick movement with which the pilot takes over",
            preferred=Condition(f"at most {STICK_MAX_PERCENT:g} %", lambda value, values: value <= STICK_MAX_PERCENT),
            fix=_set(STICK_MAX_PERCENT),
        ),
        Rule(
            "COM_RC_IN_MODE",
            "PX4 obeys one source of sticks; while that is a joystick, sticks, mode switch and kill switch of the "
            "transmitter have no effect",
            required=Condition("0 (RC only), 2, 3, 5 or 7", lambda value, values: value in (0, 2, 3, 5, 7)),
            preferred=Condition("0 (RC only), 5 or 7 (RC first)", lambda value, values: value in (0, 5, 7)),
            fix=_set(0),
            note="PX4's default is 3: the first source after power-on, until the next power-on",
        ),
        Rule(
            "COM_RCL_EXCEPT",
            "loss of RC must be a failsafe in offboard, too",
            required=Condition("without bit 2 (offboard)", lambda value, values: not int(value) & EXCEPT_OFFBOARD),
            fix=lambda old, values: int(old) & ~EXCEPT_OFFBOARD,
        ),
        Rule(
            "RC_MAP_KILL_SW",
            "the kill switch is the last resort and needs its own channel",
            required=Condition(
                "a channel" + (f" other than {channel}, the mission's switch" if channel else ""),
                lambda value, values: value > 0 and value != channel,
            ),
        ),
        Rule(
            "RC_MAP_FLTMODE",
            "the pilot takes over with the mode switch",
            preferred=Condition(
                "a channel" + (f" other than {channel}, the mission's switch" if channel else ""),
                lambda value, values: value > 0 and value != channel,
            ),
        ),
    ]
    if channel is not None:
        table += _switches(channel)
    table.append(
        Rule(
            "RC_MAP_OFFB_SW",
            "only the mission requests offboard",
            required=Condition("0 (none)", lambda value, values: value == 0),
            fix=_set(0),
            note="With such a switch PX4 enters Offboard by the pilot's hand",
        )
    )
    table += [
        Rule(
            slot,
            "with any movement of the mode switch the pilot takes over; only the mission requests offboard",
            required=Condition("not 7 (Offboard)", lambda value, values: value != OFFBOARD_SLOT),
        )
        for slot in MODE_SLOTS
    ]
    return table


def _switches(channel: int) -> list[Rule]:
    """PX4's other switches, none of which may be the mission's. `RC_MAP_OFFB_SW` has a stricter rule."""
    why = "with the movement that hands over to the mission PX4 would also carry out this switch"
    other = Condition(
        f"0 (none) or a channel other than {channel}, the mission's switch", lambda v, values: v != channel
    )
    bit = channel - 1
    table = [
        Rule(name, why, required=other, optional=name == "RC_MAP_TERM_SW")
        for name in ("RC_MAP_RETURN_SW", "RC_MAP_LOITER_SW", "RC_MAP_ARM_SW", "RC_MAP_TERM_SW")
    ]
    table.append(
        Rule(
            "RC_MAP_FLTM_BTN",
            "a mode button on the mission's channel would change the mode with the same movement",
            required=Condition(
                f"without bit {bit} (channel {channel}, the mission's switch), or any with RC_MAP_FLTMODE above 0",
                lambda value, values: not int(value) >> bit & 1 or values.get("RC_MAP_FLTMODE", 0) > 0,
            ),
            fix=lambda old, values: int(old) & ~(1 << bit),
        )
    )
    return table


def _failsafes(flight: PlannedFlight | None) -> list[Rule]:
    why = "Return climbs to RTL_RETURN_ALT first, which means a collision under a deck"
    return [
        Rule(
            "NAV_RCL_ACT",
            f"action on loss of RC; {why}",
            required=_action("1 (Hold) or 3 (Land)", (1, 3), RETURN_ON_LOSS, flight),
            fix=_set(3),
        ),
        Rule(
            "NAV_DLL_ACT",
            f"action on loss of the ground station; {why}",
            required=_action("0 (off), 1 (Hold) or 3 (Land)", (0, 1, 3), RETURN_ON_LOSS, flight),
            fix=_set(0),
        ),
        Rule(
            "COM_LOW_BAT_ACT",
            f"action on a low battery; {why}",
            required=_action("0 (Warning) or 2 (Land)", (0, 2), RETURN, flight),
            preferred=Condition("2 (Land)", lambda value, values: value != 0),
            fix=_set(2),
        ),
        *_rare_failsafes(why, flight),
    ]


def _rare_failsafes(why: str, flight: PlannedFlight | None, position: bool = True) -> list[Rule]:
    """Of flight time, wind and motors: they act in offboard, too, and PX4 1.17 as delivered has none of them.

    why: the reason against Return; position: False for a flight without satellites, which allows neither Return nor Hold.
    """
    returns_safely = _return_below(flight)

    def action(modes: dict[int, str], returns: int) -> Condition:
        allowed = [value for value, mode in modes.items() if position or mode != "Hold"]
        texts = [f"{value} ({modes[value]})" for value in allowed]
        text = f"{', '.join(texts[:-1])} or {texts[-1]}"
        return _action(text, tuple(allowed), returns, flight) if position else _one_of(text, *allowed)

    return [
        Rule(
            "COM_FLT_TIME_MAX",
            f"the flight time after which PX4 returns; {why}",
            required=Condition(
                "-1 or 0 (off)" + (_or_return(flight, "any") if position else ""),
                lambda value, values: value <= 0 or (position and returns_safely(values)),
            ),
            fix=_set(-1),
            optional=True,
        ),
        Rule(
            "COM_FLTT_LOW_ACT",
            f"action when the battery lasts no longer than the way home; {why}",
            required=action({0: "off", 1: "Warning"}, RETURN),
            fix=_set(1),
            optional=True,
        ),
        Rule(
            "COM_WIND_MAX_ACT",
            f"action in wind above COM_WIND_MAX, which must not stop the motors; {why}",
            required=action({0: "off", 1: "Warning", 2: "Hold", 5: "Land"}, RETURN),
            fix=_set(1),
            optional=True,
        ),
        Rule(
            "COM_ACT_FAIL_ACT",
            f"action on a failed motor, which must not stop the others; {why}",
            required=action({0: "Warning", 1: "Hold", 2: "Land"}, RETURN),
            fix=_set(0),
            optional=True,
        ),
        Rule(
            "COM_IMB_PROP_ACT",
            f"action on an imbalanced propeller; {why}",
            required=action({-1: "off", 0: "Warning", 2: "Land"}, RETURN_ON_IMBALANCE),
            fix=_set(0),
            optional=True,
        ),
    ]


def _alone(vehicle: Vehicle) -> list[Rule]:
    """In place of `_offboard` and `_fence`, which needs a position."""
    loss, _ = _offboard(vehicle, None)
    return [
        Rule(
            "EKF2_GPS_CTRL",
            "the mission declares a flight without satellites (satellites = false); with a doubtful fix PX4 would fly "
            "Hold, Position and Land by it",
            required=_one_of("0 (off)", 0),
            fix=_set(0),
            note="For flights with satellites it is 7",
        ),
        Rule(
            "COM_ARM_WO_GPS",
            "PX4 must arm without a position",
            required=Condition("1 (warning) or 2 (allowed)", lambda value, values: value in (1, 2)),
            fix=_set(1),
            optional=True,
        ),
        loss,
        Rule(
            "COM_OBL_RC_ACT",
            "PX4's action when the stream stops; without a position it can fly Altitude mode by the pilot's sticks, or sink on "
            "the spot (Descend), which it does in place of Hold, Return and Land",
            required=_one_of(
                "0 (Position, which becomes Altitude), 1 (Altitude) or 4 (Land, which becomes Descend)", 0, 1, 4
            ),
            preferred=_one_of("1 (Altitude)", 1),
            fix=_set(1),
        ),
    ]


def _failsafes_alone() -> list[Rule]:
    """In place of `_failsafes`: what PX4 can do without a position."""
    why = "without a position PX4 sinks on the spot (Descend) in place of Hold, Return and Land"
    return [
        Rule(
            "COM_RCL_EXCEPT",
            "on loss of RC the stack returns by the bundle and lands; PX4's own action is Descend, which drifts with the wind",
            preferred=Condition("with bit 2 (offboard)", lambda value, values: bool(int(value) & EXCEPT_OFFBOARD)),
            fix=_add_bits(EXCEPT_OFFBOARD),
            note="Where the stream stops as well, PX4 does `NAV_RCL_ACT`",
        ),
        Rule("NAV_RCL_ACT", f"action on loss of RC; {why}", required=_one_of("3 (Land)", 3), fix=_set(3)),
        Rule(
            "NAV_DLL_ACT",
            f"action on loss of the ground station; {why}",
            required=_one_of("0 (off) or 3 (Land)", 0, 3),
            fix=_set(0),
        ),
        Rule(
            "COM_LOW_BAT_ACT",
            f"action on a low battery; {why}",
            required=_one_of("0 (Warning) or 2 (Land)", 0, 2),
            preferred=_one_of("0 (Warning): the stack lands by the bundle earlier than PX4 would sink", 0),
            fix=_set(0),
        ),
        *_rare_failsafes(why, None, position=False),
    ]


def _fence(flight: PlannedFlight | None) -> list[Rule]:
    table = [
        Rule(
            "GF_ACTION",
            "PX4's own fence works when the companion fails; its action must not stop the motors or climb into a deck",
            required=_action("2 (Hold) or 5 (Land)", (2, 5), RETURN, flight),
            fix=_set(2),
            note="It acts in offboard, too, and the stack then has no control until the pilot changes the mode",
        ),
        Rule(
            "GF_SOURCE",
            "raw GNSS altitude is wrong by metres, and PX4 would hold or land inside the fence",
            preferred=Condition("0 (estimated position)", lambda value, values: value == 0),
            fix=_set(0),
        ),
        Rule(
            "GF_PREDICT",
            "PX4's prediction of a breach is experimental and, by its own description, may cause flyaways",
            required=Condition("0 (off)", lambda value, values: value == 0),
            fix=_set(0),
        ),
    ]
    if flight is None:
        return table
    for name, quantity, limit_m in (
        ("GF_MAX_HOR_DIST", "distance", flight.distance_m),
        ("GF_MAX_VER_DIST", "height", flight.height_m),
    ):
        table.append(
            Rule(
                name,
                f"PX4's fence lies outside the mission's [limits], whose largest {quantity} is {limit_m:g} m, so that "
                "the stack acts first",
                required=_between(limit_m + FENCE_SPARE_MIN_M, limit_m + FENCE_SPARE_MAX_M, "m"),
                fix=_set(float(math.ceil(limit_m + FENCE_SPARE_M))),
                note="It counts from home, which PX4 sets at arming: move home no more after that",
            )
        )
    return table


def _tilt(vehicle: Vehicle) -> list[Rule]:
    tilt_rad = vehicle.controller.tilt_max_rad
    tilt_deg, spare_deg = math.degrees(tilt_rad), math.degrees(TILT_SPARE_RAD)
    detector_deg = math.ceil(math.degrees(tilt_rad + TILT_SPARE_RAD))
    table = [
        Rule(
            name,
            f"beyond this angle PX4's failure detector may stop the motors; controller.tilt_max_rad is {tilt_deg:.0f}°",
            required=Condition(
                f"0 (off) or at least {detector_deg}° (controller.tilt_max_rad + {spare_deg:.0f}°)",
                lambda value, values: value == 0 or value >= detector_deg,
            ),
            fix=_set(max(60, detector_deg)),
        )
        for name in ("FD_FAIL_R", "FD_FAIL_P")
    ]
    table += [
        Rule(
            name,
            f"{whose} must be able to tilt as far into the wind as the controller does ({tilt_deg:.0f}°)",
            preferred=Condition(
                f"at least {math.ceil(tilt_deg)}°", lambda value, values: value >= math.ceil(tilt_deg) - 1e-3
            ),
            fix=_set(float(math.ceil(tilt_deg))),
        )
        for name, whose in (("MPC_TILTMAX_AIR", "Position mode"), ("MPC_MAN_TILT_MAX", "the pilot"))
    ]
    return table


def _thrust(vehicle: Vehicle) -> list[Rule]:
    hover = vehicle.hover_thrust()
    low, high = round(hover - HOVER_DIFFERENCE, 2), round(hover + HOVER_DIFFERENCE, 2)
    exponent, factor = vehicle.thrust.voltage_exponent, vehicle.thrust.model_factor
    return [
        Rule(
            MODEL_FACTOR,
            "the vehicle file's thrust.coefficient_m_s2 was identified with it (thrust.model_factor); with another one the "
            "same command gives another thrust",
            required=Condition(f"{factor:g}", lambda value, values: abs(value - factor) <= MODEL_FACTOR_DIFFERENCE),
            fix=_set(float(factor)),
            note="Attitude gains depend on it, too: tune and identify again after a change",
        ),
        Rule(
            "MPC_THR_HOVER",
            f"the vehicle file's thrust.coefficient_m_s2 says {hover:.2f}; one of the two is wrong",
            preferred=_between(low, high, "of full thrust"),
            note=f"Hover thrust is 9.81 / `thrust.coefficient_m_s2`; a difference of {HOVER_DIFFERENCE:g} is accepted",
        ),
        Rule(
            "MC_BAT_SCALE_EN",
            f"thrust.voltage_exponent is {exponent:g}; the battery's voltage must be compensated once",
            preferred=Condition(
                "0 (off)" if exponent > 0.1 else "1 (on)", lambda value, values: (value == 0) == (exponent > 0.1)
            ),
        ),
    ]


def _breakers() -> list[Rule]:
    return [
        Rule(
            "CBRK_SUPPLY_CHK",
            "this circuit breaker switches PX4's power checks off",
            required=Condition(f"not {SUPPLY_CHECK_OFF}", lambda value, values: value != SUPPLY_CHECK_OFF),
            fix=_set(0),
            optional=True,
            note="PX4 then checks neither power nor battery, and no battery failsafe acts",
        )
    ]


def _no_vision() -> list[Rule]:
    return [
        Rule(
            "EKF2_EV_CTRL",
            "this stack sends no position to PX4's estimator (fcu.send_odometry = false), so PX4 would follow that of "
            "another sender, and the independent guard with it; motion capture belongs into fcu.measurement_senders",
            preferred=Condition("0", lambda value, values: value == 0),
            fix=_set(0),
            optional=True,
            note="Any sender on a link can send ODOMETRY or VISION_POSITION_ESTIMATE",
        )
    ]


def _vision() -> list[Rule]:
    return [
        Rule(
            "EKF2_EV_CTRL",
            "PX4's estimator takes the position that this stack sends (ODOMETRY)",
            required=Condition(
                "with bit 0 (horizontal position)", lambda value, values: bool(int(value) & EV_HORIZONTAL)
            ),
            fix=_add_bits(EV_HORIZONTAL),
            note="PX4 does not hold by the marker with it while it fuses the position of GNSS. Bit 1 is height, bit 2 "
            "velocity, bit 3 heading; leave the heading to the compass",
        ),
        Rule(
            "EKF2_EV_NOISE_MD",
            "PX4 uses the covariance that the stack sends with every position",
            preferred=Condition("0", lambda value, values: value == 0),
            fix=_set(0),
        ),
    ]
