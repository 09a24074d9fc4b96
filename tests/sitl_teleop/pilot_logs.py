"""Logs of a simulated pilot: a path of `teleop`, the same as a ULog and as a flight log of this stack."""

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from companion.core.frames import quat_from_rpy
from companion.core.messages import FcuAttitude, FcuPosition, FcuStatus, LinkTx
from companion.fcu.ned import swap_attitude
from companion.recording.writer import LogWriter
from sitl.teleop.faults import Faults
from sitl.teleop.flight import COLUMNS, TrainingFlight
from sitl.teleop.paper4 import Paper4
from sitl.teleop.results import write_rows
from sitl.teleop.sources import SimulatedPilot
from sitl.teleop.tasks import Square
from sitl.teleop.tello import Tello
from sitl.wind import CALM, Wind

sys.path.append(str(Path(__file__).parents[1] / "calibration"))  # its writer of ULogs

NOISE = {"z_m": 0.01, "roll_rad": 0.003, "pitch_rad": 0.003, "yaw_rad": 0.003}  # of a good autopilot's estimate


class Pilot(NamedTuple):
    """Columns of a path, each (n,), with the errors of an estimate."""

    columns: dict[str, Array]
    modes: list[str]

    def __getitem__(self, name: str) -> Array:
        return self.columns[name]

    def write(self, path: Path) -> Path:
        rows = zip(*(self.modes if name == "mode" else self.columns[name] for name in COLUMNS), strict=True)
        write_rows(path, COLUMNS, rows)
        return path


def fly(vehicle_name: str, duration_s: float, seed: int) -> Pilot:
    vehicle = Tello() if vehicle_name == "tello" else Paper4()
    task = Square(np.array([0.0, 0.0, 1.5]), 3.0, 20)  # longer than the flight, and every stick moves all the time
    pilot = SimulatedPilot(vehicle, task.points_W, False, seed)
    rows = TrainingFlight(vehicle, pilot, task, Wind(CALM, seed), Faults([])).run(duration_s).rows
    rng = np.random.default_rng(seed)
    columns = {name: np.array([row[i] for row in rows]) for i, name in enumerate(COLUMNS) if name != "mode"}
    for name, std in NOISE.items():
        columns[name] = columns[name] + std * rng.standard_normal(len(rows))
    return Pilot(columns, [str(row[COLUMNS.index("mode")]) for row in rows])


class Resets(NamedTuple):
    """Jumps of PX4's estimate at a time: of its heading (clockwise) and its z (down)."""

    at_s: float
    heading_rad: float
    z_m: float
    by_attitude: bool  # `vehicle_attitude` says so, else `vehicle_local_position`


def ulog(
    path: Path,
    pilot: Pilot,
    names: str = "new",
    skip: str = "",
    resets: Resets | None = None,
    status: dict[str, int] | None = None,
    valid: Array | None = None,
    **changed: Array,
) -> Path:
    """The flight as PX4 logs it: sticks at 25 Hz beside a second, idle instance, attitude at 50 Hz, height at 10 Hz.

    status: further fields of vehicle_status; valid: of each stick sample; changed: columns of the pilot.
    """
    from identify_flights import ULogFile, floats

    file, t_s = ULogFile(), pilot["t_s"]
    x, y, r, climb = (changed.get(name, pilot[name])[::4] for name in ("ahead", "right", "yaw", "climb"))
    if names == "old":
        sticks = {"x": x, "y": y, "z": (climb + 1.0) / 2.0, "r": r}
    else:
        sticks = {"pitch": x, "roll": y, "throttle": climb, "yaw": r}
    sticks_fields = {k: ("float", v) for k, v in sticks.items()}
    if valid is not None:
        sticks_fields["valid"] = ("bool", valid[::4])
    after = t_s >= resets.at_s if resets else np.zeros(len(t_s), bool)
    yaw = pilot["yaw_rad"] - after * (resets.heading_rad if resets else 0.0)
    z = -changed.get("z_m", pilot["z_m"]) + after * (resets.z_m if resets else 0.0)
    rpy = np.column_stack([pilot["roll_rad"], pilot["pitch_rad"], yaw])[::2]
    q_ned = np.array([swap_attitude(tuple(quat_from_rpy(*row))) for row in rpy])
    topics = {
        "manual_control_setpoint": (t_s[::4], sticks_fields),
        "vehicle_attitude": (t_s[::2], floats("q", q_ned)),
        "vehicle_local_position": (t_s[::10], {"z": ("float", z[::10])}),
        "vehicle_land_detected": (t_s[::100], {"landed": ("bool", pilot["on_floor"][::100] > 0)}),
        "vehicle_status": (
            t_s[::100],
            {k: ("uint8_t", np.full(len(t_s[::100]), v)) for k, v in ({"arming_state": 2} | (status or {})).items()},
        ),
    }
    if resets:
        count, half = {n: ("uint8_t", (3 + after[::n]).astype(np.uint8)) for n in (2, 10)}, 0.5 * resets.heading_rad
        position = topics["vehicle_local_position"][1]
        position |= {"z_reset_counter": count[10], "delta_z": ("float", np.full(len(z[::10]), resets.z_m))}
        if resets.by_attitude:
            turn = np.tile([-np.cos(half), 0.0, 0.0, -np.sin(half)], (len(rpy), 1))  # of the two signs the unusual one
            topics["vehicle_attitude"][1].update({"quat_reset_counter": count[2], **floats("delta_q_reset", turn)})
        else:
            heading = ("float", np.full(len(z[::10]), resets.heading_rad))
            position |= {"heading_reset_counter": count[10], "delta_heading": heading}
    if skip != "manual_control_setpoint":
        idle = {k: (kind, np.zeros(len(x))) for k, (kind, _) in sticks_fields.items()}
        file.add("manual_control_setpoint", t_s[::4], 0, **idle)
    for topic, (times, fields) in topics.items():
        if topic != skip:
            file.add(topic, times, 1 if topic == "manual_control_setpoint" else 0, **fields)
    return file.write(path)


def flight_log(path: Path, pilot: Pilot, with_sticks: bool = True, mode: str = "POSCTL") -> Path:
    """The flight as this stack logs it, with MANUAL_CONTROL among the bytes that were sent."""
    from pymavlink.dialects.v20 import common

    writer, link = LogWriter(path, {}), common.MAVLink(None, srcSystem=255)
    facts = {"connected": True, "armed": True, "mode": mode, "landed": False, "battery_voltage_v": 15.0}
    facts |= {"battery_remaining": 0.5, "rc_ok": True, "rc_channels_us": (), "gnss_ok": True, "home_W": None}
    facts |= {"timesync_offset_s": 0.0, "timesync_rtt_s": 0.004, "link_errors": 0}
    for i in range(0, len(pilot["t_s"]), 2):
        t = 500.0 + float(pilot["t_s"][i])
        q = tuple(quat_from_rpy(*(float(pilot[f"{name}_rad"][i]) for name in ("roll", "pitch", "yaw"))).tolist())
        writer.put("fcu_attitude", FcuAttitude(stamp_s=t, seq=i, q_WB=q, omega_B=(0.0, 0.0, 0.0)), t)
        p = (0.0, 0.0, float(pilot["z_m"][i]))
        writer.put("fcu_position", FcuPosition(stamp_s=t, seq=i, p_W=p, v_W=(0.0, 0.0, 0.0)), t)
        if with_sticks and i % 4 == 0:
            x, y, r = (round(1000 * float(pilot[name][i])) for name in ("ahead", "right", "yaw"))
            z = round(500 + 500 * float(pilot["climb"][i]))
            message = link.manual_control_encode(1, x, y, z, r, 0).pack(link)
            writer.put("link_tx", LinkTx(stamp_s=t, data=message), t)
        if i % 10 == 0:
            writer.put("fcu_status", FcuStatus(stamp_s=t, **facts), t)
    writer.close()
    return path
