"""A training flight as a log of this stack: `companion view` shows it, and `companion tune` reads its sticks.

The sticks are MANUAL_CONTROL among the bytes of the link, as in a flight with the virtual remote. These vehicles have no filter: the
estimate is the true pose.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from pymavlink.dialects.v20 import common

from companion.core.enums import FcuMode
from companion.core.frames import quat_from_rpy
from companion.core.messages import FcuAttitude, FcuInfo, FcuPosition, FcuStatus, LinkRx, State
from companion.core.text import plain
from companion.recording.writer import LogWriter
from sitl.teleop.flight import COLUMNS, Row

EVERY = 2  # rows of 10 ms: 50 Hz
STATUS_EVERY = 20
VARIANCES = 31  # of `State.covariance_diag`
ROTORS = 4  # of both vehicles
ORIGIN = (0.0, 0.0, 0.0)


def write_session_log(path: Path, rows: Sequence[Row], vehicle: str, task: str) -> None:
    """Write rows of `COLUMNS`; raises `ConfigError` where the log exists or cannot be created."""
    facts = f"name = {json.dumps(plain(f'{vehicle}, {task}'))}\n"
    writer, link = LogWriter(path, {"scenario": facts}, start_s=0.0), common.MAVLink(None, srcSystem=255)
    rotors = FcuInfo(stamp_s=0.0, version="", commit="", hardware_id=0, parameters={"CA_ROTOR_COUNT": ROTORS})
    writer.put("fcu_info", rotors, 0.0)
    place = {name: i for i, name in enumerate(COLUMNS)}
    for number, row in enumerate(rows[::EVERY]):

        def of(*names: str, row: Row = row) -> tuple[float, ...]:
            return tuple(float(row[place[name]]) for name in names)

        (t_s,) = of("t_s")
        roll, pitch, yaw = of("roll_rad", "pitch_rad", "yaw_rad")
        w, x, y, z = quat_from_rpy(roll, pitch, yaw).tolist()
        p_x, p_y, p_z = of("x_m", "y_m", "z_m")
        v_x, v_y, v_z = of("vx_m_s", "vy_m_s", "vz_m_s")
        p_W, v_W, q_WB = (p_x, p_y, p_z), (v_x, v_y, v_z), (w, x, y, z)
        state = State(
            stamp_s=t_s, p_W=p_W, v_W=v_W, q_WB=q_WB, disturbance_W=ORIGIN, gnss_bias_W=ORIGIN, velocity_bias_W=ORIGIN,
            bundle="", p_WM=ORIGIN, q_WM=(1.0, 0.0, 0.0, 0.0), marker_age_s=float("inf"), position_std_m=0.0,
            relative_std_m=float("inf"), covariance_diag=(0.0,) * VARIANCES, battery_voltage_v=float("nan"), reset_count=0,
        )  # fmt: skip
        writer.put("state", state, t_s)
        writer.put("fcu_attitude", FcuAttitude(stamp_s=t_s, seq=number, q_WB=q_WB, omega_B=ORIGIN), t_s)
        writer.put("fcu_position", FcuPosition(stamp_s=t_s, seq=number, p_W=p_W, v_W=v_W), t_s)
        ahead, right, climb, turn = of("ahead", "right", "climb", "yaw")
        ints = (round(1000 * ahead), round(1000 * right), round(500 + 500 * climb), round(1000 * turn))
        data = link.manual_control_encode(1, *ints, 0).pack(link)
        writer.put("link_rx", LinkRx(stamp_s=t_s, data=data, ground=True), t_s)
        if number % STATUS_EVERY == 0:
            status = FcuStatus(
                stamp_s=t_s, connected=True, armed=True, mode=FcuMode.ALTCTL, landed=bool(row[place["on_floor"]]),
                battery_voltage_v=float("nan"), battery_remaining=float("nan"), rc_ok=not row[place["sticks_lost"]],
                rc_channels_us=(), gnss_ok=False, home_W=ORIGIN, timesync_offset_s=0.0, timesync_rtt_s=0.0, link_errors=0,
            )  # fmt: skip
            writer.put("fcu_status", status, t_s)
    writer.close()
