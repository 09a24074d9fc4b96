"""A flight log of this stack (MCAP) as `FlightData`: the parts in offboard mode, with the setpoints really sent."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from calibration.flown_vehicle import flown_vehicle
from calibration.identification.flight_data import (
    FlightData,
    LogKind,
    Signal,
    airborne_spans,
    clean,
    intersection,
    model_factor,
    rpy_of,
    spans_where,
    tilt_in_heading,
)
from calibration.logs import log_warnings, messages, no_messages
from calibration.results import DataError
from companion.core.arrays import Array
from companion.core.enums import FcuMode, TopicName
from companion.core.messages import FcuAttitude, FcuImu, FcuInfo, FcuPosition, FcuStatus, Message, SentSetpoint
from companion.core.px4_parameters import MODEL_FACTOR
from companion.recording.log import Log, read_log

MAGIC = b"\x89MCAP0\r\n"
TOPICS: tuple[TopicName, ...] = ("sent_setpoint", "fcu_attitude", "fcu_position", "fcu_status", "fcu_info", "fcu_imu")


def read_flight_log(path: str | Path, vehicle_file: Path | None = None) -> FlightData:
    """The flight of a log; raises `DataError` (or `LogError`) with one line if it cannot be used.

    vehicle_file: that of the command line, for what flew if the log does not hold it.
    """
    log = read_log(path, TOPICS)
    flight = FlightData(Path(path), LogKind.FLIGHT_LOG)
    flight.notes += log_warnings(log)
    flight.flown = flown_vehicle(log, vehicle_file)
    flight.notes += flight.flown.notes
    flight.doubts += flight.flown.doubts
    attitude = [m for m in messages(log, FcuAttitude) if m.valid]
    position = [m for m in messages(log, FcuPosition) if m.valid]
    status = [m for m in messages(log, FcuStatus) if m.valid and m.connected]
    setpoints = messages(log, SentSetpoint)
    if not attitude:
        raise no_messages(log, (FcuAttitude,), "no attitude of a flight controller in the log")
    if not status:
        raise no_messages(log, (FcuStatus,), "no status of a flight controller in the log")
    if not setpoints:
        raise no_messages(
            log,
            (SentSetpoint,),
            "the stack sent no setpoints in this flight; for a flight by hand give the ULog from the flight"
            " controller's card",
        )
    q = clean(_stamps(attitude), np.array([m.q_WB for m in attitude]))
    flight.attitude = Signal(q.t_s, rpy_of(q.value))
    flight.yaw_rate = clean(_stamps(attitude), np.array([m.omega_B[2] for m in attitude]))
    sent = clean(
        _stamps(setpoints),
        np.array([(m.roll_rad, m.pitch_rad, m.yaw_rad, m.yaw_rate_rad_s, m.thrust) for m in setpoints]),
        held=True,
    )
    sent.value[:, 2] = np.unwrap(sent.value[:, 2])
    commanded = tilt_in_heading(sent.value[:, :3], flight.attitude.column(2).at(sent.t_s))
    flight.setpoint = Signal(sent.t_s, commanded, held=True)
    flight.yaw_rate_setpoint = sent.column(3)
    flight.thrust = sent.column(4)
    if position:
        flight.velocity_W = clean(_stamps(position), np.array([m.v_W for m in position]))
        flight.velocity_axes = (True, True)
    if imu := [m for m in messages(log, FcuImu) if m.valid]:
        flight.imu_B = clean(_stamps(imu), np.array([m.accel_B for m in imu]))
    volts = np.array([m.battery_voltage_v for m in status])
    flight.voltage = clean(_stamps(status)[volts > 3.0], volts[volts > 3.0])
    flight.model_factor = _model_factor(log, flight)
    t_s = _stamps(status)
    offboard = np.array([m.armed and not m.landed and m.mode == FcuMode.OFFBOARD for m in status])
    allowed = intersection([(float(sent.t_s[0]), float(sent.t_s[-1]))], spans_where(t_s, offboard))
    flight.airborne = airborne_spans(flight.thrust, allowed)
    return flight


def _model_factor(log: Log, flight: FlightData) -> float | None:
    """THR_MDL_FAC as the flight controller reported it, else that of the vehicle that flew."""
    reported = [m.parameters[MODEL_FACTOR] for m in messages(log, FcuInfo) if MODEL_FACTOR in m.parameters]
    if len(set(reported)) > 1:
        raise DataError(
            f"{log.path}: {MODEL_FACTOR} was changed from {reported[0]:g} to {reported[-1]:g} in this log: a thrust"
            " coefficient belongs to one value; give a log with one"
        )
    if reported:
        return model_factor(reported[0])
    return model_factor(flight.flown.value("thrust.model_factor")) if flight.flown else None


def _stamps(received: Sequence[Message]) -> Array:
    return np.array([m.stamp_s for m in received])
