"""Identification of one aircraft from its flights: usable parts, fits, and the reason for each missing number."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from calibration.identification.drag_models import DragModels, compare_drags
from calibration.identification.flight_data import FlightData, LogKind, Signal, Span, intersection, without_gaps
from calibration.identification.flight_log import MAGIC as FLIGHT_LOG_MAGIC
from calibration.identification.flight_log import read_flight_log
from calibration.identification.forces import Forces, fit_forces
from calibration.identification.free_flight import refusal
from calibration.identification.merge import EXPONENT, merge
from calibration.identification.response import Response, Stretch, fit_percent, fit_response, stretches
from calibration.identification.ulog import MAGIC as ULOG_MAGIC
from calibration.identification.ulog import read_ulog
from calibration.identification.windows import WINDOW_S, usable_spans, with_voltage
from calibration.results import DataError
from companion.core.arrays import Array
from companion.core.config import load
from companion.core.vehicle import Vehicle

Part = tuple[float | None, float | None]  # of a log: from, to [s] since its start; None: its start, its end

AIRBORNE_MIN_S = 15.0
PARTS = 3  # of the movements of an axis: each is simulated by a fit to the others
HELD_OUT = 1.0 / 3.0  # of the flight, its last part, on which the velocity is checked
BIN_S = 0.5  # in which a setpoint counts as moving or not
MOVES_RAD = 0.017  # within a bin: 1°
MOVES_SHARE = 0.1  # of its largest move
MOVING_MIN_S = 3.0  # in sum, for a fit and its check
YAW_MOVES_RAD_S = 0.1
SECOND_ORDER_MIN_HZ = 15.0  # of the setpoints: slower sampling looks like an additional order
DENSE_HZ = 100.0  # setpoints at this rate need no interpolation
HELD_WORTH = 0.1  # of the squared error: setpoints are read as steps if that lowers it by more

FIT_MIN_PERCENT = 50.0  # on held-out flight: a worse model is not written
TIME_CONSTANT_CERTAIN = 0.5  # interval over value: a less certain one is not written
DELAY_CERTAIN_S = 0.04
VEHICLE_TIME_CONSTANT_MIN_S = 0.02  # the least value of a vehicle file
WINDOWS_MIN = 4
BARE_MOTORS_EXPONENT = 1.5  # of thrust over voltage, without compensation; as in config/vehicles


@dataclass
class Axis:
    """The result of one axis, or the reason why there is none."""

    name: str
    response: Response | None = None  # from all usable parts
    fit_percent: float = float("nan")  # on the parts of the fit
    held_out_percent: float = float("nan")  # on parts that were simulated by fits to the others
    held_out_each: list[float] = field(default_factory=list)  # the same for each of the parts
    pieces: list[Stretch] = field(default_factory=list)
    parts: list[list[Stretch]] = field(default_factory=list)
    moving_s: float = 0.0
    setpoint_rate_hz: float = 0.0
    held: bool = False
    reason: str = ""  # why there is no response, or why it is too uncertain

    @property
    def trusted(self) -> bool:
        """Whether the response is certain enough to be written."""
        return self.trusted_response is not None

    @property
    def trusted_response(self) -> Response | None:
        """The response if it is certain enough to be written."""
        return None if self.reason else self.response


@dataclass
class Identification:
    """The results of all logs together."""

    flight: FlightData
    roll: Axis
    pitch: Axis
    yaw: Axis  # "yaw rate", or "heading" where that is what was commanded
    forces: Forces | None
    forces_reason: str
    notes: list[str]
    vehicle: Vehicle | None  # the file to write into; without one the file that flew
    drags: DragModels | None = None
    drags_reason: str = ""


def read(path: str | Path, vehicle_file: Path | None = None) -> FlightData:
    """A log of either kind; raises `DataError` (or `LogError`) with one line if it is not a log.

    vehicle_file: that of the command line, for what flew if a flight log does not hold it.
    """
    try:
        with Path(path).open("rb") as file:
            head = file.read(8)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    if head[: len(ULOG_MAGIC)] == ULOG_MAGIC:
        return read_ulog(path)
    if head[: len(FLIGHT_LOG_MAGIC)] == FLIGHT_LOG_MAGIC:
        return read_flight_log(path, vehicle_file)
    raise DataError(f"{path}: neither a ULog of PX4 nor a flight log of this stack")


def identify(
    paths: Sequence[str | Path], vehicle_file: Path | None = None, part_s: Part = (None, None)
) -> Identification:
    """Identify from logs of one aircraft; raises `DataError` with one line when they determine nothing.

    vehicle_file: the file to write into, whose reference voltage is used and whose numbers stay where the logs do not
    determine them. The fit itself uses the vehicle that flew, as far as the log holds it. part_s: from, to [s] since the
    start of the one log; None: its start, its end.
    """
    given = load(vehicle_file, Vehicle) if vehicle_file else None
    if part_s != (None, None) and len(paths) > 1:
        raise DataError(f"{paths[1]}: --from and --to are of one log: give the logs one by one")
    flights, idle = [], []
    for path in paths:
        flight = read(path, vehicle_file)
        if problem := unusable(flight):
            idle.append(f"{path}: {problem}")
            continue
        cut(flight, part_s)
        if (flight.airborne_s >= AIRBORNE_MIN_S or len(paths) > 1) and (problem := refusal(flight)):
            raise DataError(f"{path}: {problem}")
        flights.append(flight)
    if not flights:
        raise DataError(idle[0])
    flight = merge(flights)
    if flight.airborne_s < AIRBORNE_MIN_S:
        raise DataError(
            f"{flight.path}: flew for {flight.airborne_s:.0f} s only; at least {AIRBORNE_MIN_S:.0f} s are needed"
        )
    roll = identify_axis("roll", flight, flight.setpoint.column(0), flight.attitude.column(0), MOVES_RAD)
    pitch = identify_axis("pitch", flight, flight.setpoint.column(1), flight.attitude.column(1), MOVES_RAD)
    yaw = _yaw(flight)
    forces, reason = _forces(flight, _flown_exponent(flight, given))
    if not roll.response and not pitch.response and forces is None:
        raise DataError(
            f"{flights[0].path}: lacks excitation: roll {roll.reason}; pitch {pitch.reason}; thrust {reason}"
        )
    vehicle = given or (flight.flown.vehicle if flight.flown else None)
    drags, drags_reason = compare_drags(flight, usable_spans(flight), forces) if forces else (None, reason)
    notes = [*idle, *flight.notes, *_without_voltage(flight)]
    return Identification(flight, roll, pitch, yaw, forces, reason, notes, vehicle, drags, drags_reason)


def cut(flight: FlightData, part_s: Part) -> None:
    """Leave the part of the flight from, to [s] since the start of the log; raises `DataError` if nothing is left."""
    start_s, length_s = flight.start_s, flight.end_s - flight.start_s
    from_s, to_s = part_s[0] or 0.0, length_s if part_s[1] is None else part_s[1]
    if part_s == (None, None):
        return
    if not 0.0 <= from_s < length_s:
        raise DataError(f"{flight.path}: --from {from_s:g}: the log is {length_s:.0f} s long")
    if not to_s > from_s:
        raise DataError(f"{flight.path}: --to {to_s:g}: must be later than --from {from_s:g}")
    kept = intersection(flight.airborne, [(start_s + from_s, start_s + to_s)])
    if not kept:
        flown = ", ".join(f"{a - start_s:.0f} to {b - start_s:.0f} s" for a, b in flight.airborne)
        raise DataError(f"{flight.path}: not in the air from {from_s:g} to {to_s:g} s (it was: {flown})")
    flight.airborne = kept


def unusable(flight: FlightData) -> str:
    """Why a log cannot be used at all; "" if it can."""
    for signal, name in (
        (flight.attitude, "attitude"),
        (flight.setpoint, "attitude setpoints"),
        (flight.thrust, "thrust commands"),
    ):
        if len(signal) < 10:
            return f"no {name} in the log"
    if not flight.airborne:
        return "did not fly (never off the ground with attitude control for more than a moment)"
    return ""


def identify_axis(name: str, flight: FlightData, setpoint: Signal, measured: Signal, moves: float) -> Axis:
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
    source = setpoint if setpoint.held else _best_reading(setpoint, measured, spans)
    axis.held = source.held
    whole = stretches(source, measured, spans)
    axis.parts = [found for part in _parts(times_s, spans) if (found := stretches(source, measured, part))]
    if not whole or len(axis.parts) < PARTS:
        axis.reason = "moved in pieces of flight that are too short"
        return axis
    second_order = setpoint.rate_hz >= SECOND_ORDER_MIN_HZ
    axis.pieces = whole
    axis.response = fit_response(axis.pieces, second_order=second_order)
    axis.held_out_percent, axis.held_out_each = _held_out(axis.parts, second_order, axis.response)
    axis.fit_percent = fit_percent(axis.pieces, axis.response)
    axis.reason = _doubt(axis, axis.response)
    return axis


def _yaw(flight: FlightData) -> Axis:
    """The yaw rate against PX4's setpoint of it; in a flight log of this stack the heading, which it commands."""
    if flight.kind is LogKind.FLIGHT_LOG:
        return identify_axis("heading", flight, flight.setpoint.column(2), flight.attitude.column(2), MOVES_RAD)
    return identify_axis("yaw rate", flight, flight.yaw_rate_setpoint, flight.yaw_rate, YAW_MOVES_RAD_S)


def _parts(times_s: Array, spans: Sequence[Span]) -> list[list[Span]]:
    """The spans cut into PARTS with about equally much movement in each."""
    cuts = [-np.inf, *(times_s[len(times_s) * i // PARTS] for i in range(1, PARTS)), np.inf]
    return [
        [(max(a, low), min(b, high)) for a, b in spans if a < high and b > low]
        for low, high in zip(cuts, cuts[1:], strict=False)
    ]


def _held_out(parts: Sequence[Sequence[Stretch]], second_order: bool, near: Response) -> tuple[float, list[float]]:
    """Fit percentage where every part is simulated by a fit to the others: (of all parts together, of each)."""
    pieces: list[Stretch] = []
    responses: list[Response] = []
    each: list[float] = []
    for i, part in enumerate(parts):
        others = [piece for j, other in enumerate(parts) if j != i for piece in other]
        response = fit_response(others, False, second_order, near)
        each.append(fit_percent(part, response))
        pieces += part
        responses += [response] * len(part)
    return fit_percent(pieces, responses), each


def moving_times(setpoint: Signal, spans: Sequence[Span], moves: float) -> Array:
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


def _best_reading(setpoint: Signal, measured: Signal, spans: Sequence[Span]) -> Signal:
    """Setpoints with their course between two samples, which is unknown if not every setpoint was logged.

    On average a smooth line is right, and steps would be late by half an interval. Where slow setpoints were all
    logged, steps are right and explain the flight better.
    """
    steps = Signal(setpoint.t_s, setpoint.value, True)
    line = setpoint if setpoint.rate_hz > DENSE_HZ else setpoint.between(1.0 / DENSE_HZ)
    errors = []
    for reading in (line, steps):
        pieces = stretches(reading, measured, spans)
        if not pieces:
            return line
        errors.append(_squares(pieces, fit_response(pieces, False, False)))
    return steps if errors[1] < (1.0 - HELD_WORTH) * errors[0] else line


def _squares(pieces: Sequence[Stretch], response: Response) -> float:
    return (1.0 - fit_percent(pieces, response) / 100.0) ** 2


def _doubt(axis: Axis, response: Response) -> str:
    """Why a fitted response is too uncertain; "" if it is not."""
    interval = response.intervals
    if axis.held_out_percent < FIT_MIN_PERCENT:
        return (
            f"the model explains {axis.held_out_percent:.0f} % of held-out flight, {FIT_MIN_PERCENT:.0f} % are needed"
        )
    if axis.name in ("roll", "pitch") and response.time_constant_s < VEHICLE_TIME_CONSTANT_MIN_S:
        return f"the time constant of {response.time_constant_s:.3f} s is too short for an attitude loop"
    if response.at_bound:
        return f"{', '.join(response.at_bound)} is at the edge of its range"
    if interval["time_constant_s"] > TIME_CONSTANT_CERTAIN * response.time_constant_s:
        return f"the time constant is uncertain by {interval['time_constant_s']:.3f} s: too few or too slow moves"
    if interval["delay_s"] > DELAY_CERTAIN_S:
        return f"the delay is uncertain by {interval['delay_s']:.3f} s: too few or too slow moves"
    return ""


def _flown_exponent(flight: FlightData, given: Vehicle | None) -> float:
    """The voltage exponent: 0 where PX4 compensated it, else of the vehicle that flew, of the file given, of bare motors."""
    if flight.battery_compensated:
        return 0.0
    flown = flight.flown.value(EXPONENT) if flight.flown else None
    if isinstance(flown, int | float):
        return float(flown)
    return given.thrust.voltage_exponent if given else BARE_MOTORS_EXPONENT


def _without_voltage(flight: FlightData) -> list[str]:
    """A sentence on the part of the flight that the battery topic does not cover."""
    left_out_s = flight.airborne_s - sum(b - a for a, b in with_voltage(flight))
    if left_out_s < WINDOW_S:
        return []
    return [
        f"no battery voltage for {left_out_s:.0f} of {flight.airborne_s:.0f} s in the air: thrust and drag are those of the"
        " rest"
    ]


def _forces(flight: FlightData, exponent: float) -> tuple[Forces | None, str]:
    if len(flight.velocity_W) < 10:
        return None, "no valid velocity in the log"
    spans = usable_spans(flight)
    if sum(int((b - a) // WINDOW_S) for a, b in spans) < WINDOWS_MIN:
        battery = ", thrust and battery voltage" if len(flight.voltage) else " and thrust"
        return None, f"too little flight with velocity, attitude{battery} together"
    total = sum(b - a for a, b in spans)
    seen, rest, used = [], [], 0.0
    for a, b in spans:
        cut = a + min(max((1.0 - HELD_OUT) * total - used, 0.0), b - a)
        used += b - a
        seen += [(a, cut)] if cut - a > WINDOW_S else []
        rest += [(cut, b)] if b - cut > WINDOW_S else []
    return fit_forces(flight, spans, exponent, (seen, rest) if seen and rest else None), ""
