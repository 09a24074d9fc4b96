"""PX4's ULog as `FlightData`: old and new names of topics and fields, NED/FRD to ENU/FLU.

Names and units: PX4, msg/*.msg of v1.8 to v1.17; file format: PX4 user guide, "ULog File Format". pyulog reads it.
A file that was cut off is used as far as it can be read; the notes say so.
"""

import contextlib
import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
from pyulog import ULog

from calibration.identification.flight_data import (
    FlightData,
    LogKind,
    Signal,
    Span,
    airborne_spans,
    clean,
    intersection,
    model_factor,
    nothing,
    rpy_of,
    spans_where,
    tilt_in_heading,
)
from calibration.results import DataError
from companion.core.arrays import Array
from companion.core.px4_parameters import MODEL_FACTOR
from companion.fcu.ned import swap_attitude, swap_body, swap_world

MAGIC = b"ULog\x01\x12\x35"
ARMED = 2  # vehicle_status.arming_state
ACRO = 10  # vehicle_status.nav_state: sticks command rates, there is no attitude setpoint
RESET_GUARD_S = 0.3  # samples this close to a jump of PX4's estimate are left out; the gap divides the flight
THRUST_MIN = 0.05  # a command that never exceeds it did not control the flight
VALID_SHARE = 0.5  # of the samples: a velocity that is valid less often is not used

# MAV_TYPE of the MAVLink common message set, and the number of rotors if the type determines it.
AIRCRAFT: dict[int, tuple[str, int | None]] = {
    2: ("quadrotor", 4),
    3: ("coaxial helicopter", None),
    4: ("helicopter", None),
    13: ("hexarotor", 6),
    14: ("octorotor", 8),
    15: ("tricopter", 3),
    29: ("dodecarotor", 12),
    35: ("decarotor", 10),
}
OTHERS = {1: "fixed wing", 7: "airship", 8: "balloon", 10: "rover", 11: "boat", 12: "submarine"}
OTHERS |= dict.fromkeys(range(19, 26), "VTOL")
VEHICLE_TYPE = {2: "fixed wing", 3: "rover", 4: "airship"}  # vehicle_status.vehicle_type
BY_ROTORS = {rotors: name for name, rotors in AIRCRAFT.values() if rotors}
FRD_TO_FLU = np.array(swap_body((1.0, 1.0, 1.0)))  # the change of frame is a sign of each axis

Dataset = dict[str, Any]  # of pyulog: arrays (n,) by field

TOPICS = (
    "actuator_armed",
    "actuator_controls_0",
    "actuator_motors",
    "actuator_outputs",
    "battery_status",
    "sensor_combined",
    "vehicle_acceleration",
    "vehicle_angular_velocity",
    "vehicle_attitude",
    "vehicle_attitude_setpoint",
    "vehicle_control_mode",
    "vehicle_land_detected",
    "vehicle_local_position",
    "vehicle_rates_setpoint",
    "vehicle_status",
    "vehicle_thrust_setpoint",
)


class _Topics:
    """The topics of a file: fields as float arrays, the instance with the most samples."""

    def __init__(self, ulog: ULog) -> None:
        self.parameters: dict[str, Any] = dict(ulog.initial_parameters)
        self.changed = [(name, value) for _, name, value in ulog.changed_parameters]
        self._data: dict[str, list[Dataset]] = {}
        for dataset in ulog.data_list:
            if len(dataset.data.get("timestamp", ())):
                self._data.setdefault(dataset.name, []).append(dataset.data)
        stamps = [data["timestamp"] for several in self._data.values() for data in several]
        self.empty = not stamps
        # Times start within the log: large stamps would cost digits.
        self._zero_us = float(np.median([np.median(t) for t in stamps])) if stamps else 0.0

    def instances(self, topic: str) -> list[Dataset]:
        """All instances of a topic."""
        return self._data.get(topic, [])

    def get(self, topic: str) -> Dataset | None:
        """The first instance with at least half of the most samples: PX4 numbers the one it uses lowest."""
        several = self.instances(topic)
        if not several:
            return None
        most = max(len(data["timestamp"]) for data in several)
        return next(data for data in several if len(data["timestamp"]) >= 0.5 * most)

    def time_s(self, data: Dataset) -> Array:
        """Times of the samples [s]."""
        t_s: Array = (data["timestamp"].astype(float) - self._zero_us) * 1e-6
        return t_s

    def signal(self, topic: str, *fields: str) -> Signal:
        """The fields of a topic, empty if the log has none of it or lacks a field."""
        data = self.get(topic)
        if data is None or any(name not in data for name in fields):
            return nothing(len(fields))
        values = np.column_stack([data[name].astype(float) for name in fields])
        return clean(self.time_s(data), values[:, 0] if len(fields) == 1 else values)


def read_ulog(path: str | Path) -> FlightData:
    """The flight of a ULog; raises `DataError` with one line if it is not one, or not of a multirotor."""
    path = Path(path)
    flight = FlightData(path, LogKind.ULOG)
    topics = _Topics(_parsed(path, flight))
    if topics.empty:
        raise DataError(f"{path}: holds none of the topics that identification needs (vehicle_attitude, setpoints, …)")
    _name_aircraft(flight, topics)
    _read_attitude(flight, topics)
    _read_thrust(flight, topics)
    _read_motion(flight, topics)
    flight.voltage = _voltage(topics)
    flight.battery_compensated = topics.parameters.get("MC_BAT_SCALE_EN", 0) == 1
    flight.model_factor = _model_factor(path, topics)
    flight.airborne = airborne_spans(flight.thrust, _allowed(topics, flight))
    return flight


def _model_factor(path: Path, topics: _Topics) -> float | None:
    """THR_MDL_FAC of the log; raises `DataError` if it was changed while the log was written."""
    first = topics.parameters.get(MODEL_FACTOR)
    later = [value for name, value in topics.changed if name == MODEL_FACTOR and value != first]
    if later:
        raise DataError(
            f"{path}: {MODEL_FACTOR} was changed from {first:g} to {later[-1]:g} in this log: a thrust coefficient belongs"
            " to one value; give a log with one"
            if first is not None
            else f"{path}: {MODEL_FACTOR} was set to {later[-1]:g} in this log: a thrust coefficient belongs to one value"
        )
    return model_factor(first)


def _parsed(path: Path, flight: FlightData) -> ULog:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    if content[: len(MAGIC)] != MAGIC:
        raise DataError(f"{path}: not a ULog")
    whole = _whole_messages(content)
    if whole < len(content):
        flight.notes.append(
            f"the file is cut off or damaged after {whole / 1e6:.1f} of {len(content) / 1e6:.1f} MB;"
            " what can be read is used"
        )
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # pyulog prints remarks
            return ULog(io.BytesIO(content), list(TOPICS))
    except Exception as error:  # any: pyulog does not handle every kind of damage
        raise DataError(f"{path}: damaged beyond reading ({type(error).__name__})") from None


def _whole_messages(content: bytes) -> int:
    """Bytes up to the end of the last whole message; all of them if the file ends with one."""
    at, size = 16, len(content)
    while at + 3 <= size:
        length, kind = struct.unpack_from("<HB", content, at)
        if kind < 32 or kind > 126 or at + 3 + length > size:
            return at
        at += 3 + length
    return min(at, size)


def _name_aircraft(flight: FlightData, topics: _Topics) -> None:
    """Type of aircraft and number of rotors; raises `DataError` for anything that is not a multirotor."""
    status = topics.get("vehicle_status") or {}
    last = {name: int(values[-1]) for name, values in status.items() if name != "timestamp"}
    mav_type = last.get("system_type", int(topics.parameters.get("MAV_TYPE", 0)))
    rotors = int(topics.parameters.get("CA_ROTOR_COUNT", 0))
    other = OTHERS.get(mav_type) or VEHICLE_TYPE.get(last.get("vehicle_type", 0))
    if last.get("is_vtol", 0):
        other = "VTOL"
    elif other is None and mav_type not in AIRCRAFT and last.get("is_rotary_wing", 1) == 0:
        other = "vehicle without rotors"
    if other:
        raise DataError(f"{flight.path}: log of a {other}; this stack flies multirotors")
    # The geometry of the airframe determines the mixer; MAV_TYPE often keeps its default.
    if rotors:
        flight.aircraft, flight.rotors = BY_ROTORS.get(rotors, f"multirotor with {rotors} rotors"), rotors
    elif mav_type in AIRCRAFT:
        flight.aircraft, flight.rotors = AIRCRAFT[mav_type]


def _read_attitude(flight: FlightData, topics: _Topics) -> None:
    q = topics.signal("vehicle_attitude", *(f"q[{i}]" for i in range(4)))
    flight.attitude = _attitude(q)
    setpoint = _attitude_setpoint(topics)
    if len(setpoint) and len(flight.attitude):
        yaw = flight.attitude.column(2).at(setpoint.t_s)
        setpoint = Signal(setpoint.t_s, tilt_in_heading(setpoint.value, yaw))
    flight.setpoint = setpoint

    rates = topics.signal("vehicle_rates_setpoint", "yaw")
    flight.yaw_rate_setpoint = Signal(rates.t_s, -rates.value)
    for topic, name in (
        ("vehicle_angular_velocity", "xyz[2]"),
        ("sensor_combined", "gyro_rad[2]"),
        ("vehicle_attitude", "yawspeed"),
    ):
        if len(measured := topics.signal(topic, name)):
            flight.yaw_rate = Signal(measured.t_s, -measured.value)
            break


def _attitude_setpoint(topics: _Topics) -> Signal:
    """The quaternion that PX4 follows, or the angles of PX4 before 1.9; later senders may leave these at zero."""
    name = "vehicle_attitude_setpoint"
    angles = topics.signal(name, "roll_body", "pitch_body", "yaw_body")
    q_d = topics.signal(name, *(f"q_d[{i}]" for i in range(4)), "q_d_valid")
    if len(q_d):
        q_d = Signal(q_d.t_s[q_d.value[:, 4] > 0], q_d.value[q_d.value[:, 4] > 0, :4])
    else:
        q_d = topics.signal(name, *(f"q_d[{i}]" for i in range(4)))
    setpoint = _attitude(q_d)
    if len(setpoint) >= 0.5 * len(angles):
        return setpoint
    roll, pitch, yaw = angles.value.T
    return Signal(angles.t_s, np.column_stack([roll, -pitch, np.unwrap(np.pi / 2 - yaw)]))


def _attitude(q: Signal) -> Signal:
    """Quaternions NED/FRD as roll, pitch, yaw in ENU/FLU; those without unit length are left out."""
    good = np.abs(np.linalg.norm(q.value, axis=1) - 1.0) < 0.1
    if not good.any():
        return nothing(3)
    turned = np.array([swap_attitude(row) for row in q.value[good].tolist()])
    return Signal(q.t_s[good], rpy_of(turned))


def _read_thrust(flight: FlightData, topics: _Topics) -> None:
    """The thrust command in the unit of an attitude setpoint, from the topic that was logged most often."""
    candidates = []
    for topic in ("vehicle_rates_setpoint", "vehicle_attitude_setpoint"):
        for name, sign in (("thrust_body[2]", -1.0), ("thrust", 1.0)):
            found = topics.signal(topic, name)
            if len(found) and np.max(sign * found.value) > THRUST_MIN:
                candidates.append(Signal(found.t_s, sign * found.value))
                break
    if candidates:
        flight.thrust = max(candidates, key=lambda signal: signal.rate_hz)
        return
    for topic, name, sign in (("vehicle_thrust_setpoint", "xyz[2]", -1.0), ("actuator_controls_0", "control[3]", 1.0)):
        found = topics.signal(topic, name)
        if len(found) and np.max(sign * found.value) > THRUST_MIN:
            flight.thrust = Signal(found.t_s, sign * found.value)
            return
    flight.thrust = _mean_of_motors(flight, topics)


def _mean_of_motors(flight: FlightData, topics: _Topics) -> Signal:
    """Mean motor command 0..1 as the thrust command, for logs without any thrust setpoint."""
    motors = topics.get("actuator_motors")
    if motors is not None:
        controls = np.column_stack([v for k, v in motors.items() if k.startswith("control[")]).astype(float)
        used = np.isfinite(controls).mean(axis=0) > 0.5
        if used.any():
            flight.notes.append("no thrust setpoint in the log: the mean of actuator_motors is used")
            return clean(topics.time_s(motors), controls[:, used].mean(axis=1))
    low = float(topics.parameters.get("PWM_MAIN_MIN", topics.parameters.get("PWM_MIN", 1000)))
    high = float(topics.parameters.get("PWM_MAIN_MAX", topics.parameters.get("PWM_MAX", 2000)))
    for outputs in topics.instances("actuator_outputs"):
        pwm = np.column_stack([v for k, v in outputs.items() if k.startswith("output[")]).astype(float)
        count = flight.rotors or int((pwm.max(axis=0) > low + 0.1 * (high - low)).sum())
        motors_pwm = pwm[:, :count]
        if count and high > low and np.median(motors_pwm.max(axis=0)) > low:
            flight.notes.append(
                f"no thrust setpoint in the log: the mean PWM is used, {low:g} to {high:g} µs as 0 to 1"
            )
            signal = np.clip((motors_pwm - low) / (high - low), 0.0, 1.0)
            factor = model_factor(topics.parameters.get(MODEL_FACTOR)) or 0.0
            return clean(topics.time_s(outputs), (factor * signal**2 + (1.0 - factor) * signal).mean(axis=1))
    return nothing()


def _read_motion(flight: FlightData, topics: _Topics) -> None:
    """Velocity, its axes that PX4 declares valid, and specific force."""
    data = topics.get("vehicle_local_position")
    if data is not None and all(name in data for name in ("vx", "vy", "vz")):
        ones = np.ones(len(data["timestamp"]))
        good = [data.get(name, ones).astype(bool) for name in ("v_xy_valid", "v_z_valid")]
        flight.velocity_axes = bool(good[0].mean() > VALID_SHARE), bool(good[1].mean() > VALID_SHARE)
        rows = np.ones(len(ones), dtype=bool)
        for used, valid in zip(flight.velocity_axes, good, strict=True):
            rows &= valid if used else True
        t_s = topics.time_s(data)
        for name in ("vxy_reset_counter", "vz_reset_counter"):
            if name in data:
                for jump_s in t_s[1:][np.diff(data[name].astype(int)) != 0]:
                    rows &= np.abs(t_s - jump_s) > RESET_GUARD_S
        ned = np.column_stack([data[name].astype(float) for name in ("vx", "vy", "vz")])[rows]
        if any(flight.velocity_axes):
            flight.velocity_W = clean(t_s[rows], np.array([swap_world(row) for row in ned.tolist()]).reshape(-1, 3))
    for topic, name in (("sensor_combined", "accelerometer_m_s2"), ("vehicle_acceleration", "xyz")):
        if len(found := topics.signal(topic, *(f"{name}[{i}]" for i in range(3)))):
            flight.accelerometer_B = Signal(found.t_s, found.value * FRD_TO_FLU)
            break


def _voltage(topics: _Topics) -> Signal:
    """Of the connected battery with the most samples; empty without a measurement."""
    best = nothing()
    for data in topics.instances("battery_status"):
        if "voltage_v" not in data:
            continue
        voltage = data["voltage_v"].astype(float)
        good = (voltage > 3.0) & (np.asarray(data.get("connected", np.ones(len(voltage)))) > 0)
        if good.sum() > len(best):
            best = clean(topics.time_s(data)[good], voltage[good])
    return best


def _allowed(topics: _Topics, flight: FlightData) -> list[Span]:
    """When the log says: armed, not landed, attitude controlled."""
    ends = [signal.t_s[-1] for signal in (flight.attitude, flight.thrust) if len(signal)]
    starts = [signal.t_s[0] for signal in (flight.attitude, flight.thrust) if len(signal)]
    if not ends:
        return []
    end_s = float(max(ends))
    spans = [(float(min(starts)), end_s)]
    landed = topics.signal("vehicle_land_detected", "landed")
    if len(landed):
        spans = intersection(spans, spans_where(landed.t_s, landed.value == 0, end_s))
    else:
        flight.notes.append("no vehicle_land_detected in the log: the flight is recognised by thrust alone")
    armed = topics.signal("vehicle_status", "arming_state")
    if len(armed):
        spans = intersection(spans, spans_where(armed.t_s, armed.value == ARMED, end_s))
    elif len(armed := topics.signal("actuator_armed", "armed")):
        spans = intersection(spans, spans_where(armed.t_s, armed.value > 0, end_s))
    attitude = topics.signal("vehicle_control_mode", "flag_control_attitude_enabled")
    if len(attitude):
        return intersection(spans, spans_where(attitude.t_s, attitude.value > 0, end_s))
    mode = topics.signal("vehicle_status", "nav_state")
    if len(mode):
        spans = intersection(spans, spans_where(mode.t_s, mode.value != ACRO, end_s))
    return spans
