"""PX4's ULog and the log of the same flight come onto one clock; of another flight they are refused."""

import re
import struct
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from mcap.reader import make_reader

from companion.cli import main
from companion.core.messages import FcuAttitude, FcuStatus
from companion.recording.align import read_topics, ulog_rates
from companion.recording.writer import LogWriter

BOOT_S = 880.0  # PX4's boot in companion time
DATA = Path(__file__).parents[3] / "shared" / "data" / "ulog"
NAMES = ("px4_v117_hexa_excitation", "quad_mission_esc_status", "hexa_altitude_4s")


def rates(t_s, seed):
    """Angular rates [rad/s] of a flight, (n, 3): eight slow waves on each axis."""
    rng = np.random.default_rng(seed)
    waves = zip(rng.uniform(0.2, 3.0, (8, 3)), rng.uniform(0, 6.3, (8, 3)), rng.uniform(0.02, 0.1, (8, 3)), strict=True)
    return sum(size * np.sin(2 * np.pi * hz * t_s[:, None] + phase) for hz, phase, size in waves)


def write_ulog(path, t_s, omega_FLU):
    """A ULog with vehicle_angular_velocity alone; format: PX4 user guide, "ULog File Format"."""

    def message(kind, content):
        return struct.pack("<HB", len(content), ord(kind)) + content

    fields = b"vehicle_angular_velocity:uint64_t timestamp;uint64_t timestamp_sample;float[3] xyz;"
    data = b"ULog\x01\x12\x35\x01" + struct.pack("<Q", 0) + message("F", fields)
    data += message("A", struct.pack("<BH", 0, 0) + b"vehicle_angular_velocity")
    for t, (x, y, z) in zip(t_s, omega_FLU, strict=True):
        us = round(t * 1e6)
        data += message("D", struct.pack("<HQQfff", 0, us + 300, us, x, -y, -z))
    path.write_bytes(data)


def write_log(path, t_s, omega, timesync_s=None):
    writer = LogWriter(path, {})
    for i, (t, row) in enumerate(zip(t_s.tolist(), omega.tolist(), strict=True)):
        writer.put(
            "fcu_attitude", FcuAttitude(stamp_s=t, seq=i, q_WB=(1.0, 0.0, 0.0, 0.0), omega_B=tuple(row)), t + 0.002
        )
        if timesync_s is not None and i % 50 == 0:
            facts = {"connected": True, "armed": True, "mode": "OFFBOARD", "landed": False, "battery_voltage_v": 15.0}
            facts |= {"battery_remaining": 0.5, "rc_ok": True, "rc_channels_us": (), "gnss_ok": True, "home_W": None}
            synced = {"timesync_offset_s": timesync_s, "timesync_rtt_s": 0.004, "link_errors": 0}
            writer.put("fcu_status", FcuStatus(stamp_s=t, **facts, **synced), t + 0.002)
    writer.close()


def made(folder, timesync_s, seeds=(1, 1)):
    """A log of 40 s and the ULog of its middle 30 s."""
    ours, theirs = 900.0 + np.arange(2000) / 50, 25.0 + np.arange(3000) / 100
    write_log(folder / "flight.mcap", ours, rates(ours, seeds[0]), timesync_s)
    noise = np.random.default_rng(5).normal(0.0, 0.02, (len(theirs), 3))
    write_ulog(folder / "flight.ulg", theirs, rates(theirs + BOOT_S, seeds[1]) + noise)


def align(folder, ulog="flight.ulg", out="both.mcap"):
    arguments = ["log", "align", str(folder / "flight.mcap"), str(folder / ulog), "--out", str(folder / out)]
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize(
    ("timesync_s", "method"),
    [(BOOT_S, "by TIMESYNC,"), (None, "no TIMESYNC in the log"), (BOOT_S + 300.0, "of another boot")],
    ids=["timesync", "rates", "rates after a reboot"],
)
def test_the_offset_is_found_and_its_origin_is_stated(tmp_path, timesync_s, method):
    made(tmp_path, timesync_s)
    result = align(tmp_path)
    assert result.exit_code == 0, result.output
    assert method in result.output
    offset_s, uncertainty_ms = re.search(r"offset ([\d.]+) s ± ([\d.]+) ms", result.output).groups()
    assert abs(float(offset_s) - BOOT_S) <= 1e-3 * float(uncertainty_ms) + 1e-4
    with (tmp_path / "both.mcap").open("rb") as stream:
        times = {}
        for _, channel, message in make_reader(stream).iter_messages():
            times.setdefault(channel.topic, []).append(message.log_time)
    ours, theirs = times["fcu_attitude"], times["px4/vehicle_angular_velocity"]
    assert (theirs[0] - ours[0]) / 1e9 == pytest.approx(25.0 + BOOT_S - 900.0, abs=0.03)
    assert len(theirs) == 3000


def test_a_ulog_of_another_flight_is_refused(tmp_path):
    for timesync_s in (None, BOOT_S):
        folder = tmp_path / str(timesync_s)
        folder.mkdir()
        made(folder, timesync_s, seeds=(1, 2))
        result = align(folder)
        assert result.exit_code == 2 and "not of the flight of flight.mcap" in result.output
        assert len(result.output.strip().splitlines()) == 1
        assert not (folder / "both.mcap").exists()


def test_what_is_no_ulog_is_one_line(tmp_path):
    made(tmp_path, BOOT_S)
    whole = (tmp_path / "flight.ulg").read_bytes()
    for content, what in ((b"", "not a ULog"), (b"hello" * 99, "not a ULog"), (whole[:16], "without any data")):
        (tmp_path / "bad.ulg").write_bytes(content)
        result = align(tmp_path, "bad.ulg")
        assert result.exit_code == 2 and what in result.output
        assert len(result.output.strip().splitlines()) == 1
    assert "No such file" in align(tmp_path, "none.ulg").output
    (tmp_path / "cut.ulg").write_bytes(whole[:-777])
    assert align(tmp_path, "cut.ulg").exit_code == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_real_ulog_is_found_again_in_its_own_flight_and_in_no_other(tmp_path, name):
    path = DATA / f"{name}.ulg"
    if not path.exists():
        pytest.skip("without the data")
    t_s, omega = ulog_rates(read_topics(path))
    t_s, omega = t_s[: 60 * 250], omega[: 60 * 250]
    keep = np.searchsorted(t_s, np.arange(t_s[0] + 5.0, t_s[-1] - 5.0, 0.02))
    write_log(tmp_path / "flight.mcap", t_s[keep] + BOOT_S, omega[keep])
    write_ulog(tmp_path / "flight.ulg", t_s, omega)
    result = align(tmp_path)
    assert result.exit_code == 0, result.output
    assert float(re.search(r"offset ([\d.]+) s", result.output).group(1)) == pytest.approx(BOOT_S, abs=0.011)
    write_ulog(tmp_path / "flight.ulg", t_s, rates(t_s, 3))
    assert "not of the flight" in align(tmp_path, out="none.mcap").output
