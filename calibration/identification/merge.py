"""Several logs of one aircraft as one flight, one after the other on one clock."""

from collections.abc import Callable, Sequence

import numpy as np

from calibration.identification.flight_data import FlightData, Signal
from calibration.results import DataError

PAUSE_S = 100.0  # between two logs on the common clock: larger than any gap and any block of samples
EXPONENT = "thrust.voltage_exponent"  # the one number of the vehicle file that the fit uses


def merge(flights: Sequence[FlightData]) -> FlightData:
    """One flight from at least one; a signal that a log lacks has a gap there.

    The vehicle that flew is that of the first log. Raises `DataError` for logs of different aircraft or kinds.
    """
    first = flights[0]
    for other in flights[1:]:
        if other.rotors and first.rotors and other.rotors != first.rotors:
            raise DataError(
                f"{other.path}: log of a {other.aircraft}, but {first.path} of a {first.aircraft};"
                " give the logs of one aircraft"
            )
        if other.kind != first.kind:
            raise DataError(f"{other.path}: a {other.kind}, but {first.path} a {first.kind}; give logs of one kind")
        if other.model_factor != first.model_factor:
            shown = ["unknown" if f is None else f"{f:g}" for f in (other.model_factor, first.model_factor)]
            raise DataError(
                f"{other.path}: flown with THR_MDL_FAC {shown[0]}, but {first.path} with {shown[1]}; a thrust coefficient"
                " belongs to one value: give the logs one by one"
            )
        if other.battery_compensated != first.battery_compensated:
            raise DataError(
                f"{other.path}: flown with another MC_BAT_SCALE_EN than {first.path}, so that the battery acts in another"
                " way on thrust: give the logs one by one"
            )
    if len(flights) == 1:
        return first
    offsets, next_s = [], 0.0
    for flight in flights:
        ends = [(s.t_s[0], s.t_s[-1]) for s in flight.signals if len(s)]
        start_s, end_s = min(a for a, _ in ends), max(b for _, b in ends)
        offsets.append(next_s - start_s)
        next_s += end_s - start_s + PAUSE_S

    def joined(signal_of: Callable[[FlightData], Signal]) -> Signal:
        shifted = [(signal_of(f), offset) for f, offset in zip(flights, offsets, strict=True) if len(signal_of(f))]
        if not shifted:
            return signal_of(first)
        t_s = np.concatenate([s.t_s + offset for s, offset in shifted])
        return Signal(t_s, np.concatenate([s.value for s, _ in shifted]), shifted[0][0].held)

    return FlightData(
        path=first.path,
        kind=first.kind,
        aircraft=next((f.aircraft for f in flights if f.aircraft), ""),
        rotors=next((f.rotors for f in flights if f.rotors), None),
        attitude=joined(lambda f: f.attitude),
        setpoint=joined(lambda f: f.setpoint),
        yaw_rate=joined(lambda f: f.yaw_rate),
        yaw_rate_setpoint=joined(lambda f: f.yaw_rate_setpoint),
        thrust=joined(lambda f: f.thrust),
        velocity_W=joined(lambda f: f.velocity_W),
        velocity_axes=(all(f.velocity_axes[0] for f in flights), all(f.velocity_axes[1] for f in flights)),
        accelerometer_B=joined(lambda f: f.accelerometer_B),
        imu_B=joined(lambda f: f.imu_B),
        voltage=joined(lambda f: f.voltage),
        battery_compensated=first.battery_compensated,
        model_factor=first.model_factor,
        flown=first.flown,
        airborne=[(a + dt, b + dt) for f, dt in zip(flights, offsets, strict=True) for a, b in f.airborne],
        doubts=[f"{f.path.name}: {doubt}" for f in flights for doubt in f.doubts],
        notes=[f"{f.path.name}: {note}" for f in flights for note in f.notes] + _other_vehicles(flights),
    )


def _other_vehicles(flights: Sequence[FlightData]) -> list[str]:
    """A sentence for each log that was flown with other numbers than the first."""
    first = flights[0]
    return [
        f"{other.path.name}: flown with another {EXPONENT} than {first.path.name}; the fit uses that of the first"
        for other in flights[1:]
        if other.flown and first.flown and other.flown.value(EXPONENT) != first.flown.value(EXPONENT)
    ]
