"""Several logs of one aircraft as one flight, each after the other on one clock."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from calibration.identification.flight_data import Flight, Signal
from calibration.results import DataError

PAUSE_S = 100.0  # between two logs on the common clock: any gap cuts, and no block of samples holds two flights
SIGNALS = (
    "attitude",
    "setpoint",
    "yaw_rate",
    "yaw_rate_setpoint",
    "thrust",
    "velocity_W",
    "accelerometer_B",
    "voltage",
)


def merge(flights: Sequence[Flight]) -> Flight:
    """One flight of at least one; a signal that a log lacks is missing there. Raises `DataError` for logs that do not
    belong together."""
    first = flights[0]
    for other in flights[1:]:
        if other.rotors and first.rotors and other.rotors != first.rotors:
            raise DataError(
                f"{other.path}: log of a {other.aircraft}, but {first.path} of a {first.aircraft};"
                " one aircraft at a time"
            )
        if other.kind != first.kind:
            raise DataError(f"{other.path}: a {other.kind}, but {first.path} a {first.kind}; one kind at a time")
    if len(flights) == 1:
        return first
    offsets, next_s = [], 0.0
    for flight in flights:
        ends = [(s.t_s[0], s.t_s[-1]) for name in SIGNALS if len(s := getattr(flight, name))]
        start_s, end_s = min(a for a, _ in ends), max(b for _, b in ends)
        offsets.append(next_s - start_s)
        next_s += end_s - start_s + PAUSE_S
    merged = {}
    for name in SIGNALS:
        signals = [(getattr(f, name), offset) for f, offset in zip(flights, offsets, strict=True)]
        signals = [(s, offset) for s, offset in signals if len(s)]
        if signals:
            t_s = np.concatenate([s.t_s + offset for s, offset in signals])
            merged[name] = Signal(t_s, np.concatenate([s.value for s, _ in signals]), signals[0][0].held)
    both = zip(flights, offsets, strict=True)
    return replace(
        first,
        **merged,
        rotors=next((f.rotors for f in flights if f.rotors), None),
        aircraft=next((f.aircraft for f in flights if f.aircraft), ""),
        velocity_axes=tuple(all(f.velocity_axes[i] for f in flights) for i in (0, 1)),
        battery_compensated=any(f.battery_compensated for f in flights),
        airborne=[(a + offset, b + offset) for f, offset in both for a, b in f.airborne],
        notes=[f"{f.path.name}: {note}" for f in flights for note in f.notes],
    )
