"""PX4's ULog and the log of the same flight come onto one clock; of another flight they are refused."""

import re
import struct
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from mcap.reader import make_reader

from companion.cli import main
from companion.core.messages import FcuAttitude, FcuInfo, FcuStatus
from companion.recording.align import read_ulog, ulog_rates
from companion.recording.writer import LogWriter

BOOT_S = 880.0  # PX4's boot in companion time
DATA = Path(__file__).parents[3] / "shared" / "data" / "ulog"
NAMES = ("px4_v117_hexa_excitation", "quad_mission_esc_status", "hexa_altitude_4s")


def rates(t_s, seed, slowest_hz=0.2, fastest_hz=3.0):
    """Angular rates [rad/s] of a flight, (n, 3): eight slow waves on each axis."""
    rng = np.random.default_rng(seed)
    waves = zip(
        rng.uniform(slowest_hz, fastest_hz, (8, 3)),
        rng.uniform(0, 6.3, (8, 3)),
        rng.uniform(0.02, 0.1, (8, 3)),
        strict=True,
    )
    return sum(size * np.sin(2 * np.pi * hz * t_s[:, None] + phase) for hz, phase, size in waves)


def write_ulog(path, t_s, omega_FLU, **info):
    """A ULog with vehicle_angular_velocity alone; format: PX4 user guide, "ULog File Format". info: texts by name."""

    def message(kind, content):
        return struct.pack("<HB", len(content), ord(kind)) + content

    fields = b"vehicle_angular_velocity:uint64_t timestamp;uint64_t timestamp_sample;float[3] xyz;"
    data = b"ULog\x01\x12\x35\x01" + struct.pack("<Q", 0) + message("F", fields)
    for name, text in info.items():
        key = f"char[{len(text)}] {name}".encode()
        data += message("I", bytes([len(key)]) + key + text.encode())
    data += message("A", struct.pack("<BH", 0, 0) + b"vehicle_angular_velocity")
    for t, (x, y, z) in zip(t_s, omega_FLU, strict=True):
        us = round(t * 1e6)
        data += message("D", struct.pack("<HQQfff", 0, us + 300, us, x, -y, -z))
    path.write_bytes(data)


def write_log(path, t_s, omega, timesync_s=None, info=None):
    """timesync_s: PX4's boot; or a function of the time."""
    writer = LogWriter(path, {})
    if info is not None:
        writer.put("fcu_info", info, t_s[0])
    for i, (t, row) in enumerate(zip(t_s.tolist(), omega.tolist(), strict=True)):
        writer.put(
            "fcu_attitude", FcuAttitude(stamp_s=t, seq=i, q_WB=(1.0, 0.0, 0.0, 0.0), omega_B=tuple(row)), t + 0.002
        )
        if timesync_s is not None and i % 50 == 0:
            facts = {"connected": True, "armed": True, "mode": "OFFBOARD", "landed": False, "battery_voltage_v": 15.0}
            facts |= {"battery_remaining": 0.5, "rc_ok": True, "rc_channels_us": (), "gnss_ok": True, "home_W": None}
            boot_s = timesync_s(t) if callable(timesync_s) else timesync_s
            synced = {"timesync_offset_s": boot_s, "timesync_rtt_s": 0.004, "link_errors": 0}
            writer.put("fcu_status", FcuStatus(stamp_s=t, **facts, **synced), t + 0.002)
    writer.close()


def made(folder, timesync_s, seeds=(1, 1), hz=(0.2, 3.0), info=None, damage=None, **ulog_info):
    """A log of 40 s and the ULog of its middle 30 s. damage: changes the times of the ULog."""
    ours, theirs = 900.0 + np.arange(2000) / 50, 25.0 + np.arange(3000) / 100
    write_log(folder / "flight.mcap", ours, rates(ours, seeds[0], *hz), timesync_s, info)
    noise = np.random.default_rng(5).normal(0.0, 0.02, (len(theirs), 3))
    omega = rates(theirs + BOOT_S, seeds[1], *hz) + noise
    if damage is not None:
        damage(theirs)
    write_ulog(folder / "flight.ulg", theirs, omega, **ulog_info)


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


def refused(folder, what):
    result = align(folder)
    assert result.exit_code == 2 and what in result.output, result.output
    assert len(result.output.strip().splitlines()) == 1 and not (folder / "both.mcap").exists()


@pytest.mark.parametrize("seed", [2, 12, 15, 28])
def test_slow_motions_of_another_flight_that_resemble_each_other_by_chance_are_refused(tmp_path, seed):
    made(tmp_path, None, seeds=(seed, seed + 100), hz=(0.05, 0.4))
    refused(tmp_path, "not of the flight of flight.mcap")


def test_the_slow_motions_of_one_flight_are_found_again_by_timesync(tmp_path):
    made(tmp_path, BOOT_S, hz=(0.05, 0.4))
    assert "by TIMESYNC, correlation" in align(tmp_path).output


def test_of_two_boots_in_one_log_that_of_the_ulog_is_taken(tmp_path):
    made(tmp_path, lambda t: BOOT_S - 400.0 if t < 925.0 else BOOT_S)
    result = align(tmp_path)
    assert f"offset {BOOT_S:.4f} s ± 2.0 ms by TIMESYNC," in result.output, result.output


def test_an_offset_that_timesync_contradicts_needs_almost_the_same_motion(tmp_path):
    ours, theirs = 900.0 + np.arange(2000) / 50, 25.0 + np.arange(3000) / 100
    write_log(tmp_path / "flight.mcap", ours, rates(ours, 1), BOOT_S + 300.0)
    alike = rates(theirs + BOOT_S, 1) + 0.8 * rates(theirs, 2)  # the same mission in another wind
    write_ulog(tmp_path / "flight.ulg", theirs, alike)
    refused(tmp_path, "must be 0.90")


def test_without_rates_timesync_must_give_both_files_a_time_in_common(tmp_path):
    made(tmp_path, BOOT_S)
    ours = 900.0 + np.arange(2000) / 50
    (tmp_path / "flight.mcap").unlink()
    write_log(tmp_path / "flight.mcap", ours, np.zeros((2000, 3)), BOOT_S)
    assert "by TIMESYNC alone" in align(tmp_path).output
    (tmp_path / "both.mcap").unlink()
    write_ulog(tmp_path / "flight.ulg", 300.0 + np.arange(3000) / 100, np.zeros((3000, 3)))
    refused(tmp_path, "no time in common")


OWN = FcuInfo(
    stamp_s=900.0, version="1.17.0 release", commit="d6f12ad1c4", hardware_id=0x3138510C38393830, parameters={}
)
COMMIT = "d6f12ad1c4f70ad3230afd7d86e971421e02fef4"
SERIAL = "000600000000383938303138510c00430026"


@pytest.mark.parametrize(
    ("info", "other"),
    [
        ({}, ""),
        ({"ver_sw": COMMIT, "sys_uuid": SERIAL}, ""),
        ({"ver_sw": "a" * 40}, f"its firmware is aaaaaaaaaa, that of the log {COMMIT[:10]}"),
        ({"ver_sw": "0" * 40}, ""),
        ({"ver_sw": "a release"}, ""),
        ({"sys_uuid": SERIAL.replace("3138510c", "3138510d")}, "the hardware id of the log 0x3138510c38393830"),
        ({"sys_uuid": "0005" + SERIAL[4:24] + "ffffffffffff"}, ""),  # of a processor with another numbering
    ],
)
def test_a_ulog_of_another_firmware_or_flight_controller_is_refused(tmp_path, info, other):
    made(tmp_path, BOOT_S, info=OWN, **info)
    if other:
        refused(tmp_path, other)
    else:
        assert align(tmp_path).exit_code == 0


def test_a_log_that_does_not_know_its_flight_controller_refuses_none(tmp_path):
    unknown = FcuInfo(stamp_s=900.0, version="", commit="0000000000", hardware_id=0, parameters={})
    made(tmp_path, BOOT_S, info=unknown, ver_sw=COMMIT, sys_uuid=SERIAL)
    assert align(tmp_path).exit_code == 0


def one_far_ahead(t_s):
    t_s[1500] = 1e9


def some_anywhere(t_s):
    t_s[100:2900:97] = np.random.default_rng(3).uniform(1e3, 1.8e13, len(t_s[100:2900:97]))


def some_backwards(t_s):
    t_s[100:2900:97] = 0.0


@pytest.mark.parametrize(
    ("damage", "damaged"), [(one_far_ahead, 1), (some_anywhere, 29), (some_backwards, 0)], ids=["one", "some", "zero"]
)
def test_damaged_times_of_a_ulog_are_left_out(tmp_path, damage, damaged):
    made(tmp_path, BOOT_S, damage=damage)
    result = align(tmp_path)
    assert result.exit_code == 0 and "by TIMESYNC, correlation" in result.output, result.output
    assert (f"; {damaged} with a damaged time are left out" in result.output) == (damaged > 0)
    with (tmp_path / "both.mcap").open("rb") as stream:
        found = list(make_reader(stream).iter_messages(topics=["px4/vehicle_angular_velocity"]))
    assert len(found) == 3000 - damaged


def test_a_ulog_without_one_usable_time_is_one_line(tmp_path):
    made(tmp_path, None, damage=lambda t_s: np.copyto(t_s, 1e4 * np.arange(len(t_s))))
    refused(tmp_path, "no angular rates")


def test_rates_of_more_hours_than_can_be_compared_are_one_line(tmp_path):
    made(tmp_path, BOOT_S, damage=lambda t_s: np.copyto(t_s, 59.0 * np.arange(len(t_s))))
    refused(tmp_path, "its angular rates last 49 h, must be 6 h at most")


def test_damaged_times_of_a_log_are_left_out(tmp_path):
    made(tmp_path, None)
    ours = 900.0 + np.arange(2000) / 50
    omega = rates(ours, 1)
    ours[700] = 8e9
    (tmp_path / "flight.mcap").unlink()
    write_log(tmp_path / "flight.mcap", ours, omega)
    result = align(tmp_path)
    assert result.exit_code == 0 and "correlation" in result.output, result.output


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
    t_s, omega = ulog_rates(read_ulog(path).topics)
    t_s, omega = t_s[: 60 * 250], omega[: 60 * 250]
    keep = np.searchsorted(t_s, np.arange(t_s[0] + 5.0, t_s[-1] - 5.0, 0.02))
    write_log(tmp_path / "flight.mcap", t_s[keep] + BOOT_S, omega[keep])
    write_ulog(tmp_path / "flight.ulg", t_s, omega)
    result = align(tmp_path)
    assert result.exit_code == 0, result.output
    assert float(re.search(r"offset ([\d.]+) s", result.output).group(1)) == pytest.approx(BOOT_S, abs=0.011)
    write_ulog(tmp_path / "flight.ulg", t_s, rates(t_s, 3))
    assert "not of the flight" in align(tmp_path, out="none.mcap").output
