"""Identification of one aircraft from its flights: which parts can be used, what they tell, and what they cannot."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from calibration.flight_data import Flight, Signal, Span, without_gaps
from calibration.flight_log import MAGIC as FLIGHT_LOG_MAGIC
from calibration.flight_log import read_flight_log
from calibration.flight_merge import merge
from calibration.flight_motion import Motion, fit_motion
from calibration.flight_windows import WINDOW_S, usable_spans
from calibration.response import Response, Stretch, fit_percent, fit_response, stretches
from calibration.results import DataError
from calibration.ulog import MAGIC as ULOG_MAGIC
from calibration.ulog import read_ulog
from companion.vehicle import Vehicle

AIRBORNE_MIN_S = 15.0
HELD_OUT = 1.0 / 3.0  # of the excitation, the last part of it, that no fit has seen
BIN_S = 0.5  # in which a setpoint either moves or does not
MOVES_RAD = 0.017  # within a bin: 1°
MOVES_SHARE = 0.1  # of its largest move
MOVING_MIN_S = 3.0  # altogether, for a fit and its check
YAW_MOVES_RAD_S = 0.1
HELD_WORTH = 0.1  # of the squared error: reading setpoints as steps must take away that much to be right

FIT_MIN_PERCENT = 50.0  # on the held-out part: a worse model is not written
TIME_CONSTANT_SURE = 0.5  # interval over value: a less certain one is not written
DELAY_SURE_S = 0.04
VEHICLE_TIME_CONSTANT_MIN_S = 0.02  # the least that a vehicle file may hold
WINDOWS_MIN = 4
BARE_MOTORS_EXPONENT = 1.5  # of thrust over voltage, without compensation; as in config/vehicles


@dataclass
class Axis:
    """What was found of one axis, or why nothing was."""

    name: str
    response: Response | None = None  # from all usable parts
    fit_percent: float = float("nan")  # on the parts the fit saw
    held_out_percent: float = float("nan")  # of a fit to the other parts, on the part that it did not see
    second_order_percent: float | None = None
    pieces: list[Stretch] = field(default_factory=list)
    held_out: list[Stretch] = field(default_factory=list)
    moving_s: float = 0.0
    setpoint_rate_hz: float = 0.0
    held: bool = False
    reason: str = ""  # why there is no response, or why it cannot be trusted

    @property
    def trusted(self) -> bool:
        return self.response is not None and not self.reason


@dataclass
class Identification:
    """Everything that the logs told."""

    flight: Flight
    roll: Axis
    pitch: Axis
    yaw_rate: Axis
    motion: Motion | None
    motion_reason: str
    notes: list[str]
    believed: Vehicle | None  # the vehicle file in question, or that of the flight


def read(path: str | Path) -> Flight:
    """A log of either kind; raises `DataError` (or `LogError`) with one line if it is none."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(8)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    if head[: len(ULOG_MAGIC)] == ULOG_MAGIC:
        return read_ulog(path)
    if head[: len(FLIGHT_LOG_MAGIC)] == FLIGHT_LOG_MAGIC:
        return read_flight_log(path)
    raise DataError(f"{path}: neither a ULog of PX4 nor a flight log of this stack")


def identify(paths: Sequence[str | Path], vehicle: Vehicle | None = None) -> Identification:
    """Identify from logs of one aircraft; raises `DataError` with one line when they tell nothing.

    vehicle: what is believed of it, for what the logs cannot tell; None: the file that the flight was flown with, where
    the log knows it.
    """
    flights, idle = [], []
    for path in paths:
        flight = read(path)
        if problem := unusable(flight):
            idle.append(f"{path}: {problem}")
        else:
            flights.append(flight)
    if not flights:
        raise DataError(idle[0])
    flight = merge(flights)
    roll = identify_axis("roll", flight, flight.setpoint.column(0), flight.attitude.column(0), MOVES_RAD)
    pitch = identify_axis("pitch", flight, flight.setpoint.column(1), flight.attitude.column(1), MOVES_RAD)
    yaw_rate = identify_axis("yaw rate", flight, flight.yaw_rate_setpoint, flight.yaw_rate, YAW_MOVES_RAD_S)
    vehicle = vehicle or flight.believed
    motion, reason = _motion(flight, vehicle.thrust.voltage_exponent if vehicle else BARE_MOTORS_EXPONENT)
    if not roll.response and not pitch.response and motion is None:
        raise DataError(
            f"{flights[0].path}: lacks excitation: roll {roll.reason}; pitch {pitch.reason}; thrust {reason}"
        )
    return Identification(flight, roll, pitch, yaw_rate, motion, reason, [*idle, *flight.notes], vehicle)


def unusable(flight: Flight) -> str:
    """Why a log cannot be used at all, "" if it can."""
    for signal, name in (
        (flight.attitude, "attitude"),
        (flight.setpoint, "attitude setpoints"),
        (flight.thrust, "thrust commands"),
    ):
        if len(signal) < 10:
            return f"no {name} in the log"
    if not flight.airborne:
        return "did not fly (never off the ground with attitude control for more than a moment)"
    if flight.airborne_s < AIRBORNE_MIN_S:
        return f"flew for {flight.airborne_s:.0f} s only; at least {AIRBORNE_MIN_S:.0f} s are needed"
    return ""


def identify_axis(name: str, flight: Flight, setpoint: Signal, measured: Signal, moves: float) -> Axis:
    """One axis: excitation, fit, held-out check."""
    axis = Axis(name, setpoint_rate_hz=setpoint.rate_hz, held=setpoint.held)
    if len(setpoint) < 10 or len(measured) < 10:
        axis.reason = f"has no {'setpoints' if len(setpoint) < 10 else 'measurement'} in the log"
        return axis
    spans = without_gaps(flight.airborne, measured, setpoint, shortest_s=2.5)
    times_s = moving_times(setpoint, spans, moves)
    axis.moving_s = BIN_S * len(times_s)
    if axis.moving_s < MOVING_MIN_S:
        axis.reason = f"setpoint moved for {axis.moving_s:.1f} s only; at least {MOVING_MIN_S:g} s are needed"
        return axis
    cut_s = times_s[int(len(times_s) * (1.0 - HELD_OUT))]
    seen = stretches(setpoint, measured, [(a, min(b, cut_s)) for a, b in spans if a < cut_s])
    axis.held_out = stretches(setpoint, measured, [(max(a, cut_s), b) for a, b in spans if b > cut_s])
    if not seen or not axis.held_out:
        axis.reason = "moved in pieces of flight that are too short"
        return axis
    if not setpoint.held:
        # Logged less often than it was published: a line between samples is right on average. Unless it really was
        # a staircase that was logged whole, as setpoints that come slowly are.
        stairs = [_as_steps(piece) for piece in seen]
        line, steps = fit_response(seen, False), fit_response(stairs, False)
        if _squares(stairs, steps) < (1.0 - HELD_WORTH) * _squares(seen, line):
            seen, axis.held_out, axis.held = stairs, [_as_steps(piece) for piece in axis.held_out], True
    axis.held_out_percent = fit_percent(axis.held_out, fit_response(seen, False))
    axis.pieces = stretches(Signal(setpoint.t_s, setpoint.value, axis.held), measured, spans)
    axis.response = fit_response(axis.pieces)
    axis.fit_percent = fit_percent(axis.pieces, axis.response)
    axis.reason = _doubt(axis)
    return axis


def moving_times(setpoint: Signal, spans: Sequence[Span], moves: float) -> np.ndarray:
    """Beginnings of the bins of BIN_S in which the setpoint moves, shape (n,)."""
    starts, sizes = [], []
    for a, b in spans:
        for start in np.arange(a, b - BIN_S, BIN_S):
            values = setpoint.at(np.append(setpoint.within((start, start + BIN_S)).t_s, [start, start + BIN_S]))
            starts.append(start)
            sizes.append(float(np.ptp(values)))
    if not starts:
        return np.zeros(0)
    return np.array(starts)[np.array(sizes) > max(moves, MOVES_SHARE * max(sizes))]


def _as_steps(piece: Stretch) -> Stretch:
    return Stretch(Signal(piece.setpoint.t_s, piece.setpoint.value, True), piece.t_s, piece.y)


def _squares(pieces: Sequence[Stretch], response: Response) -> float:
    return (1.0 - fit_percent(pieces, response) / 100.0) ** 2


def _doubt(axis: Axis) -> str:
    """Why a fitted response is not to be trusted, "" if it is."""
    response = axis.response
    interval = response.intervals or {}
    if axis.held_out_percent < FIT_MIN_PERCENT:
        return (
            f"the model explains {axis.held_out_percent:.0f} % of the held-out part, {FIT_MIN_PERCENT:.0f} % are needed"
        )
    if axis.name in ("roll", "pitch") and response.time_constant_s < VEHICLE_TIME_CONSTANT_MIN_S:
        return f"the time constant of {response.time_constant_s:.3f} s is not one of an attitude loop"
    if response.at_bound:
        return f"{', '.join(response.at_bound)} ran to the edge of its range"
    if interval["time_constant_s"] > TIME_CONSTANT_SURE * response.time_constant_s:
        return f"the time constant is uncertain by {interval['time_constant_s']:.3f} s: too few or too slow moves"
    if interval["delay_s"] > DELAY_SURE_S:
        return f"the delay is uncertain by {interval['delay_s']:.3f} s: too few or too slow moves"
    return ""


def _motion(flight: Flight, exponent: float) -> tuple[Motion | None, str]:
    if len(flight.velocity_W) < 10:
        return None, "no valid velocity in the log"
    spans = usable_spans(flight)
    if sum(int((b - a) // WINDOW_S) for a, b in spans) < WINDOWS_MIN:
        return None, "too little flight with velocity, attitude and thrust together"
    total = sum(b - a for a, b in spans)
    seen, rest, used = [], [], 0.0
    for a, b in spans:
        cut = a + min(max((1.0 - HELD_OUT) * total - used, 0.0), b - a)
        used += b - a
        seen += [(a, cut)] if cut - a > WINDOW_S else []
        rest += [(cut, b)] if b - cut > WINDOW_S else []
    return fit_motion(flight, spans, exponent, (seen, rest) if seen and rest else None), ""
