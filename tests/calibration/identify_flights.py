"""Flights made up for identification with known response, thrust and drag, as ULogs of PX4 and as flight logs."""

import struct
from pathlib import Path

import numpy as np
from calibration_paths import MISSIONS, VEHICLES
from scipy.signal import lfilter

from companion.core.frames import GRAVITY_M_S2, quat_from_rpy, rotation_matrix
from companion.core.messages import FcuAttitude, FcuInfo, FcuPosition, FcuStatus, Message, SentSetpoint
from companion.fcu.ned import swap_attitude, swap_world
from companion.runtime.flight_record import flight_metadata, open_recorder

STEP_S = 0.005
MAGIC = b"ULog\x01\x12\x35\x01"


class Truth:
    """What the made-up aircraft is."""

    time_constant_s = 0.15
    delay_s = 0.06
    gain = 0.97
    k_T_m_s2 = 27.0
    reference_v = 15.0
    exponent = 1.5
    drag_1_s = (0.4, 0.4, 0.2)
    thrust_delay_s = 0.04


def steps(rng: np.random.Generator, count: int, dwell_s: float, size: float) -> np.ndarray:
    """A staircase of random heights, `count` samples of STEP_S."""
    each = round(dwell_s / STEP_S)
    return np.repeat(rng.uniform(-size, size, count // each + 1), each)[:count]


def fly(seed: int = 0, duration_s: float = 60.0, tilt: float = 0.25, truth=Truth, sag_v: float = 1.5) -> dict:
    """A flight with random steps of roll, pitch and thrust, 5 s on the ground before and after; arrays on a grid."""
    rng = np.random.default_rng(seed)
    n = round(duration_s / STEP_S)
    t_s = STEP_S * np.arange(n)
    air = (t_s > 5.0) & (t_s < duration_s - 5.0)
    commands = np.stack([steps(rng, n, 0.8, tilt), steps(rng, n, 1.1, tilt), np.zeros(n)]) * air
    rpy = np.zeros((n, 3))
    for i in (0, 1):
        late = np.roll(commands[i], round(truth.delay_s / STEP_S))
        pole = np.exp(-STEP_S / truth.time_constant_s)
        rpy[:, i] = truth.gain * lfilter([0, 1 - pole], [1, -pole], late)
    volts = 15.8 - sag_v * t_s / duration_s
    hover = GRAVITY_M_S2 / truth.k_T_m_s2 * (truth.reference_v / volts) ** truth.exponent
    thrust = np.where(air, hover * (1.0 + steps(rng, n, 0.7, 0.12)), 0.05)
    q = np.array([quat_from_rpy(*row) for row in rpy])
    force = np.roll(thrust, round(truth.thrust_delay_s / STEP_S))
    force = truth.k_T_m_s2 * force * (volts / truth.reference_v) ** truth.exponent
    v, velocity, felt = np.zeros(3), np.zeros((n, 3)), np.zeros((n, 3))
    for k in range(n):
        R = rotation_matrix(q[k])
        push = R[:, 2] * force[k] - np.array(truth.drag_1_s) * v
        velocity[k] = v
        felt[k] = R.T @ push if air[k] else (0.0, 0.0, GRAVITY_M_S2)
        v = v + STEP_S * (push - (0.0, 0.0, GRAVITY_M_S2)) if air[k] else np.zeros(3)
    return {
        "t_s": t_s,
        "air": air,
        "commands": commands,
        "rpy": rpy + 0.001 * rng.standard_normal((n, 3)),
        "q": q,
        "thrust": thrust,
        "velocity_W": velocity + 0.01 * rng.standard_normal((n, 3)),
        "felt_B": felt + 0.2 * rng.standard_normal((n, 3)),
        "volts": volts + 0.01 * rng.standard_normal(n),
    }


class ULogFile:
    """Writes the file format of PX4's user guide: header, definitions, data in order of time."""

    TYPES = {"float": "f", "uint64_t": "Q", "uint8_t": "B", "bool": "?", "int32_t": "i"}

    def __init__(self, parameters: dict[str, int | float] | None = None) -> None:
        self._definitions, self._rows, self._ids = b"", [], {}
        for name, value in (parameters or {}).items():
            kind = "int32_t" if isinstance(value, int) else "float"
            key = f"{kind} {name}".encode()
            self._message("P", bytes([len(key)]) + key + struct.pack("<" + self.TYPES[kind], value))

    def _message(self, kind: str, body: bytes) -> None:
        self._definitions += struct.pack("<HB", len(body), ord(kind)) + body

    def add(self, topic: str, t_s: np.ndarray, instance: int = 0, **fields) -> None:
        """One topic; fields by name, a value is (kind, array). An array field is named `q__0`, `q__1`, …"""
        names: dict[str, tuple[str, int]] = {}
        for name, (kind, _) in fields.items():
            base, _, index = name.partition("__")
            names[base] = (f"{kind}[{int(index) + 1}]" if index else kind, 0)
        form = ";".join(["uint64_t timestamp", *(f"{kind} {name}" for name, (kind, _) in names.items())])
        if not any(known == topic for known, _ in self._ids):
            self._message("F", f"{topic}:{form};".encode())
        number = self._ids.setdefault((topic, instance), len(self._ids))
        packer = struct.Struct("<Q" + "".join(self.TYPES[kind] for kind, _ in fields.values()))
        columns = [np.asarray(values).tolist() for _, values in fields.values()]
        stamps = np.round((np.asarray(t_s) + 100.0) * 1e6).astype(int).tolist()
        for row in zip(stamps, *columns, strict=True):
            body = struct.pack("<H", number) + packer.pack(*row)
            self._rows.append((row[0], struct.pack("<HB", len(body), ord("D")) + body))

    def write(self, path: Path) -> Path:
        added = b""
        for (topic, instance), number in self._ids.items():
            body = struct.pack("<BH", instance, number) + topic.encode()
            added += struct.pack("<HB", len(body), ord("A")) + body
        rows = b"".join(row for _, row in sorted(self._rows, key=lambda row: row[0]))
        path.write_bytes(MAGIC + struct.pack("<Q", 100_000_000) + self._definitions + added + rows)
        return path


def every(flight: dict, rate_hz: float) -> np.ndarray:
    """Indices of samples at a rate."""
    return np.arange(0, len(flight["t_s"]), round(1.0 / (rate_hz * STEP_S)))


def floats(prefix: str, values: np.ndarray) -> dict:
    return {f"{prefix}__{i}": ("float", column) for i, column in enumerate(np.asarray(values).T)}


def write_ulog(path: Path, flight: dict, names: str = "new", skip: tuple[str, ...] = (), **options) -> Path:
    """A flight as PX4 logs it. names: "new" (1.14 and later) or "old" (1.9); skip: topics that are left out.

    options: parameters (dict), pwm (mean pulse width 1500 µs), system_type, setpoint_hz, velocity_valid, vehicle_type (new) / is_rotary_wing (old).
    """
    parameters = options.get("parameters", {"CA_ROTOR_COUNT": 6} if names == "new" else {"MAV_TYPE": 13})
    log = ULogFile(parameters)
    t_s = flight["t_s"]

    def add(topic: str, rows: np.ndarray, **fields) -> None:
        if topic not in skip:
            picked = {name: (kind, np.asarray(values)[rows]) for name, (kind, values) in fields.items()}
            log.add(topic, t_s[rows], **picked)

    fast, slow = every(flight, 50), every(flight, 2)
    q = np.array([swap_attitude(row) for row in flight["q"].tolist()])
    add("vehicle_attitude", every(flight, 100), **floats("q", q))
    roll, pitch, yaw = flight["commands"]
    thrust = flight["thrust"]
    wanted = every(flight, options.get("setpoint_hz", 50))
    none = np.zeros_like(thrust)
    if names == "new":
        q_d = np.array([swap_attitude(tuple(quat_from_rpy(*row))) for row in flight["commands"].T.tolist()])
        body = floats("thrust_body", np.column_stack([none, none, -thrust]))
        add("vehicle_attitude_setpoint", wanted, **floats("q_d", q_d), **body)
        add("vehicle_rates_setpoint", fast, yaw=("float", none), **body)
    else:
        heading = np.full(len(thrust), np.pi / 2)
        angles = {"roll_body": ("float", roll), "pitch_body": ("float", -pitch), "yaw_body": ("float", heading)}
        add("vehicle_attitude_setpoint", wanted, **angles, thrust=("float", thrust))
        add("vehicle_rates_setpoint", fast, yaw=("float", none), thrust=("float", thrust))
    ned = np.array([swap_world(row) for row in flight["velocity_W"].tolist()])
    valid = np.full(len(thrust), options.get("velocity_valid", True))
    velocity = {name: ("float", ned[:, i]) for i, name in enumerate(("vx", "vy", "vz"))}
    up = np.ones(len(thrust), dtype=bool)
    add("vehicle_local_position", fast, **velocity, v_xy_valid=("bool", valid), v_z_valid=("bool", up))
    felt = flight["felt_B"] * (1.0, -1.0, -1.0)
    add("sensor_combined", every(flight, 100), **floats("accelerometer_m_s2", felt), **floats("gyro_rad", 0.0 * felt))
    add("battery_status", slow, voltage_v=("float", flight["volts"]), connected=("bool", up))
    if options.get("pwm"):
        half = np.full((len(thrust), 6), 1500.0)
        add("actuator_outputs", every(flight, 10), **floats("output", half))
    add("vehicle_land_detected", slow, landed=("bool", ~flight["air"]))
    kind = options.get("system_type", 13)
    status = {"arming_state": ("uint8_t", np.full(len(thrust), 2)), "nav_state": ("uint8_t", np.full(len(thrust), 14))}
    status["system_type"] = ("uint8_t", np.full(len(thrust), kind))
    if names == "new":
        status["vehicle_type"] = ("uint8_t", np.full(len(thrust), options.get("vehicle_type", 1)))
    else:
        status["is_rotary_wing"] = ("bool", np.full(len(thrust), options.get("is_rotary_wing", True)))
    add("vehicle_status", slow, **status)
    return log.write(path)


def status(stamp_s: float, volts: float, landed: bool, mode: str) -> FcuStatus:
    return FcuStatus(
        stamp_s=stamp_s,
        connected=True,
        armed=True,
        mode=mode,
        landed=landed,
        battery_voltage_v=volts,
        battery_remaining=0.8,
        rc_ok=True,
        rc_channels_us=(),
        gnss_ok=True,
        home_W=None,
        timesync_offset_s=0.0,
        timesync_rtt_s=0.0,
        link_errors=0,
    )


def write_flight_log(path, flight, mode="OFFBOARD", sent=True, vehicle=VEHICLES / "f550_rtk.toml", factors=()) -> Path:
    """The flight as the recorder writes it; `mode` from take-off on; vehicle: the file that flew.

    factors: THR_MDL_FAC in each report of the flight controller's parameters.
    """
    messages: list[Message] = [
        FcuInfo(stamp_s=1.0 + i, version="1.17.0", commit="", hardware_id=0, parameters={"THR_MDL_FAC": factor})
        for i, factor in enumerate(factors)
    ]
    roll, pitch, yaw = flight["commands"]
    for k in every(flight, 50):
        t_s = float(flight["t_s"][k])
        q, v = tuple(flight["q"][k].tolist()), tuple(flight["velocity_W"][k].tolist())
        messages.append(FcuAttitude(stamp_s=t_s, q_WB=q, omega_B=(0.0, 0.0, 0.0)))
        messages.append(FcuPosition(stamp_s=t_s, p_W=(0.0, 0.0, 2.0), v_W=v))
        if sent and flight["air"][k]:
            angles = {"roll_rad": float(roll[k]), "pitch_rad": float(pitch[k]), "yaw_rad": float(yaw[k])}
            thrust = float(flight["thrust"][k])
            messages.append(SentSetpoint(stamp_s=t_s, **angles, yaw_rate_rad_s=0.0, thrust=thrust))
    for k in every(flight, 10):
        air = bool(flight["air"][k])
        volts = float(flight["volts"][k])
        messages.append(status(float(flight["t_s"][k]), volts, not air, mode if air else "AUTO_LOITER"))
    writer = open_recorder(path, flight_metadata(vehicle, MISSIONS / "identification.toml"))
    for message in sorted(messages, key=lambda m: m.stamp_s):
        writer.handle(message, message.stamp_s)
    writer.close()
    return path
