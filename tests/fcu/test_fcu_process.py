"""The real process: what the vehicle file says of the link reaches its sockets, and a bad key stops the start."""

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
PATIENCE_S = 60.0  # for a process to start on a busy machine
BELOW = {"HEARTBEAT", "COMMAND_LONG", "PARAM_SET"}  # at the flight controller: ours, ours for streams, the ground's
ABOVE = {(1, 1), (1, 191)}  # at the ground station: the flight controller and this companion


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
    words = ["--vehicle", folder / "mine.toml", "--mission", ROOT / "config/missions/hover_marker.toml", "--fcu", url]
    words += ["--bus", folder / "bus", "--log", folder / "flight.mcap"]
    return subprocess.Popen(
        [sys.executable, "-m", "companion.runtime.processes", "fcu", *map(str, words)],
        stderr=subprocess.PIPE,
        text=True,
    )


def signing(system, component):
    """pymavlink with the key, at both ends."""
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
        mouth, station, below, above = (signing(*ids) for ids in ((1, 1), (255, 190), (9, 9), (9, 9)))
        heard_below, heard_above, forward, until_s = set(), set(), None, time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s and not (heard_below >= BELOW and heard_above >= ABOVE):
            try:
                data, us = px4.recvfrom(65536)
                heard_below |= {m.get_type() for m in below.parse_buffer(data) or []}
                px4.sendto(common.MAVLink_heartbeat_message(HEXAROTOR, PX4, 1, 3 << 16, 4, 3).pack(mouth), us)
                data, forward = ground.recvfrom(65536)
                heard_above |= {(m.get_srcSystem(), m.get_srcComponent()) for m in above.parse_buffer(data) or []}
                steering = common.MAVLink_set_attitude_target_message(1, 1, 1, 7, [1.0, 0, 0, 0], 0, 0, 0, 0.5)
                ground.sendto(steering.pack(station), forward)
                ground.sendto(common.MAVLink_param_set_message(1, 1, b"MC_ROLL_P", 6.5, 9).pack(station), forward)
            except TimeoutError:
                assert process.poll() is None, process.stderr.read()
        process.terminate()
        process.wait(10.0)
    assert heard_below >= BELOW and heard_above >= ABOVE
    assert "SET_ATTITUDE_TARGET" not in heard_below


@pytest.mark.parametrize(
    ("keys", "words"),
    [({"signing_key_file": '"mavlink.key"'}, "chmod 600"), ({"signing_key_file": '"none.key"'}, "no such file"),
     ({"forward": ["tcp:127.0.0.1:1"]}, "fcu.forward 'tcp:127.0.0.1:1'"),
     ({"component_id": 1}, "fcu.component_id = 1")],
)  # fmt: skip
def test_a_start_that_cannot_be_is_one_line(tmp_path, key_file, keys, words):
    key_file.chmod(0o644)
    process = start(tmp_path, "udpout:127.0.0.1:14999", **keys)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert len(errors.strip().splitlines()) == 1 and words in errors
