"""A flight log of this stack (MCAP) as a `Flight`: the parts flown in offboard mode, with the setpoints really sent."""

from pathlib import Path

import numpy as np

from calibration.identification.flight_data import (
    Flight,
    airborne_spans,
    clean,
    intersection,
    rpy_of,
    spans_where,
    tilt_in_heading,
)
from calibration.results import DataError
from companion.core.config import ConfigError, load
from companion.core.vehicle import Vehicle
from companion.recording.log import read_log

KIND = "flight log"
MAGIC = b"\x89MCAP0\r\n"
TOPICS = ("sent_setpoint", "fcu_attitude", "fcu_position", "fcu_status")


def read_flight_log(path: str | Path) -> Flight:
    """The flight of a log; raises `DataError` (or `LogError`) with one line if it cannot be used."""
    log = read_log(path, TOPICS)
    flight = Flight(Path(path), KIND)
    if log.truncated:
        flight.notes.append("the end of the log is missing; what can be read is used")
    attitude = [m for m in log["fcu_attitude"] if m.valid]
    position = [m for m in log["fcu_position"] if m.valid]
    status = [m for m in log["fcu_status"] if m.valid and m.connected]
    setpoints = log["sent_setpoint"]
    if not attitude or not status:
        raise DataError(f"{path}: no {'attitude' if status else 'status'} of a flight controller in the log")
    if not setpoints:
        raise DataError(
            f"{path}: the stack sent no setpoints in this flight; for a flight by hand give the ULog from the"
            " flight controller's card"
        )
    q = clean(_stamps(attitude), np.array([m.q_WB for m in attitude]))
    flight.attitude = type(q)(q.t_s, rpy_of(q.value))
    flight.yaw_rate = clean(_stamps(attitude), np.array([m.omega_B[2] for m in attitude]))
    sent = clean(
        _stamps(setpoints),
        np.array([(m.roll_rad, m.pitch_rad, m.yaw_rad, m.yaw_rate_rad_s, m.thrust) for m in setpoints]),
        held=True,
    )
    sent.value[:, 2] = np.unwrap(sent.value[:, 2])
    wanted = tilt_in_heading(sent.value[:, :3], flight.attitude.column(2).at(sent.t_s))
    flight.setpoint = type(q)(sent.t_s, wanted, held=True)
    flight.yaw_rate_setpoint = sent.column(3)
    flight.thrust = sent.column(4)
    if position:
        flight.velocity_W = clean(_stamps(position), np.array([m.v_W for m in position]))
        flight.velocity_axes = (True, True)
    volts = np.array([m.battery_voltage_v for m in status])
    flight.voltage = clean(_stamps(status)[volts > 3.0], volts[volts > 3.0])
    t_s = _stamps(status)
    offboard = np.array([m.armed and not m.landed and m.mode == "OFFBOARD" for m in status])
    allowed = intersection([(float(sent.t_s[0]), float(sent.t_s[-1]))], spans_where(t_s, offboard))
    flight.airborne = airborne_spans(flight.thrust, allowed)
    flight.believed = _vehicle(log.metadata)
    return flight


def _vehicle(metadata: dict[str, str]) -> Vehicle | None:
    """The vehicle file of the flight, if it still is what it was then: the log has its text, but not its base's."""
    path = Path(metadata.get("vehicle_file", ""))
    try:
        same = path.read_text(encoding="utf-8") == metadata.get("vehicle")
        return load(path, Vehicle) if same else None
    except (ConfigError, OSError, UnicodeDecodeError):
        return None


def _stamps(messages: list) -> np.ndarray:
    return np.array([m.stamp_s for m in messages])
