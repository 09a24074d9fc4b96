"""The real process: it uses the link of the vehicle file, and a wrong key file stops the start."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fcu_peer import HEXAROTOR, PX4
from pymavlink.dialects.v20 import common

from companion.fcu.link.signing import EPOCH_S, UNITS_PER_S

ROOT = Path(__file__).parents[2]
KEY = bytes(range(32))
START_TIMEOUT_S = 60.0  # for a process to start on a busy machine
AT_PX4 = {"HEARTBEAT", "COMMAND_LONG", "PARAM_SET"}  # ours, ours for streams, the ground station's
AT_GROUND = {(1, 1), (1, 191)}  # the flight controller and this companion


def udp():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("127.0.0.1", 0))
    s.settimeout(0.2)
    return s


def start(folder, url, **fcu):
    """The fcu process with the F550's file and these keys of [fcu] changed."""
    (folder / "f550.toml").symlink_to(ROOT / "config/vehicles/f550.toml")
    keys = "\n".join(f"{name} = {value}" for name, value in fcu.items())
    (folder / "mine.toml").write_text(f'base = "f550.toml"\n[fcu]\n{keys}\n')
    options = ["--vehicle", folder / "mine.toml", "--mission", ROOT / "config/missions/hover_marker.toml", "--fcu", url]
    options += ["--bus", folder / "bus", "--log", folder / "flight.mcap"]
    return subprocess.Popen(
        [sys.executable, "-m", "companion.runtime.processes", "fcu", *map(str, options)],
        stderr=subprocess.PIPE,
        text=True,
    )


def signing(system, component):
    """pymavlink with the key."""
    mav = common.MAVLink(None, srcSystem=system, srcComponent=component)
    mav.signing.secret_key, mav.signing.sign_outgoing = KEY, True
    mav.signing.timestamp = round((time.time() - EPOCH_S) * UNITS_PER_S)
    return mav


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "mavlink.key"
    path.write_bytes(KEY)
    path.chmod(0o600)
    return path


def test_a_ground_station_shares_the_signed_link_of_the_process(tmp_path, key_file):
    px4, ground = udp(), udp()
    with px4, ground:
        process = start(
            tmp_path, f"udpout:127.0.0.1:{px4.getsockname()[1]}",
            forward=[f"udpout:127.0.0.1:{ground.getsockname()[1]}"], signing_key_file=f'"{key_file.name}"',
        )  # fmt: skip
        px4_mav, station, px4_parser, ground_parser = (signing(*ids) for ids in ((1, 1), (255, 190), (9, 9), (9, 9)))
        received_by_px4, received_by_ground, forward, until_s = set(), set(), None, time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < until_s and not (received_by_px4 >= AT_PX4 and received_by_ground >= AT_GROUND):
            try:
                data, address = px4.recvfrom(65536)
                received_by_px4 |= {m.get_type() for m in px4_parser.parse_buffer(data) or []}
                px4.sendto(common.MAVLink_heartbeat_message(HEXAROTOR, PX4, 1, 3 << 16, 4, 3).pack(px4_mav), address)
                data, forward = ground.recvfrom(65536)
                received_by_ground |= {
                    (m.get_srcSystem(), m.get_srcComponent()) for m in ground_parser.parse_buffer(data) or []
                }
                setpoint = common.MAVLink_set_attitude_target_message(1, 1, 1, 7, [1.0, 0, 0, 0], 0, 0, 0, 0.5)
                ground.sendto(setpoint.pack(station), forward)
                ground.sendto(common.MAVLink_param_set_message(1, 1, b"MC_ROLL_P", 6.5, 9).pack(station), forward)
            except TimeoutError:
                assert process.poll() is None, process.stderr.read()
        process.terminate()
        process.wait(10.0)
    assert received_by_px4 >= AT_PX4 and received_by_ground >= AT_GROUND
    assert "SET_ATTITUDE_TARGET" not in received_by_px4


@pytest.mark.parametrize(
    ("keys", "text"),
    [({"signing_key_file": '"mavlink.key"'}, "chmod 600"), ({"signing_key_file": '"none.key"'}, "no such file"),
     ({"forward": ["tcp:127.0.0.1:1"]}, "fcu.forward 'tcp:127.0.0.1:1'"),
     ({"component_id": 1}, "fcu.component_id = 1")],
)  # fmt: skip
def test_a_start_with_a_wrong_configuration_is_one_line(tmp_path, key_file, keys, text):
    key_file.chmod(0o644)
    process = start(tmp_path, "udpout:127.0.0.1:14999", **keys)
    _, errors = process.communicate(timeout=START_TIMEOUT_S)
    assert process.returncode == 2
    assert len(errors.strip().splitlines()) == 1 and text in errors
