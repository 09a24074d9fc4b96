"""Identification from this stack's own logs: the parts in offboard mode, with the setpoints that were really sent."""

from pathlib import Path

import pytest
from identify_flights import Truth, every, fly, write_ulog

from calibration.identification.identify import identify, read
from calibration.results import DataError
from companion.core.config import load
from companion.core.messages import FcuAttitude, FcuPosition, FcuStatus, SentSetpoint
from companion.core.vehicle import Vehicle
from companion.recording.recorder import open_recorder

ROOT = Path(__file__).parents[2]
VEHICLE = ROOT / "config/vehicles/f550_rtk.toml"
MISSION = ROOT / "config/missions/identification.toml"


@pytest.fixture(scope="module")
def flight():
    return fly(seed=6, duration_s=45.0)


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


def write_log(path, flight, mode="OFFBOARD", sent=True, until_s=1e9):
    """The flight as the recorder writes it; `mode` from take-off on."""
    messages = []
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
    writer = open_recorder(path, VEHICLE, MISSION)
    for message in sorted(messages, key=lambda m: m.stamp_s):
        if message.stamp_s < until_s:
            writer.handle(message, message.stamp_s)
    writer.close()
    return path


def test_the_numbers_of_a_flight_in_offboard_mode_come_back(tmp_path, flight):
    found = identify([write_log(tmp_path / "flight.mcap", flight)])
    for axis in (found.roll, found.pitch):
        assert axis.trusted
        assert axis.response.time_constant_s == pytest.approx(Truth.time_constant_s, rel=0.05)
        assert axis.response.delay_s == pytest.approx(Truth.delay_s, abs=0.01)
    forces = found.forces
    k_T = forces.thrust_coefficient_m_s2 * (Truth.reference_v / forces.reference_voltage_v) ** forces.voltage_exponent
    assert k_T == pytest.approx(Truth.k_T_m_s2, rel=0.02)
    assert forces.drag_horizontal_1_s == pytest.approx(Truth.drag_1_s[0], rel=0.15)


def test_the_vehicle_file_of_the_flight_is_what_is_believed(tmp_path, flight):
    assert read(write_log(tmp_path / "flight.mcap", flight)).flown.vehicle == load(VEHICLE, Vehicle)


def test_only_the_part_in_offboard_mode_counts(tmp_path, flight):
    with pytest.raises(DataError, match="did not fly"):
        identify([write_log(tmp_path / "a.mcap", flight, mode="POSCTL")])


def test_a_flight_by_hand_is_referred_to_the_flight_controllers_own_log(tmp_path, flight):
    with pytest.raises(DataError, match="sent no setpoints.*give the ULog"):
        identify([write_log(tmp_path / "hand.mcap", flight, sent=False)])


def test_a_log_whose_writer_was_killed_is_used_and_said_so(tmp_path, flight):
    path = write_log(tmp_path / "flight.mcap", flight)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(0.9 * len(whole))])
    found = identify([path])
    assert found.roll.trusted and "the end of the log is missing" in found.notes[0]


def test_a_log_and_a_ulog_are_not_mixed(tmp_path, flight):
    both = [write_log(tmp_path / "a.mcap", flight), write_ulog(tmp_path / "b.ulg", flight)]
    with pytest.raises(DataError, match="logs of one kind"):
        identify(both)
