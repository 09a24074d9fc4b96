"""ULogs from users: of other vehicles, cut off, with gaps, slow, several flights in one; or not a flight."""

import re

import numpy as np
import pytest
import tomlkit
from calibration_paths import F550
from click.testing import CliRunner
from identify_flights import Truth, ULogFile, every, floats, write_ulog

from calibration.identification.command import identify as identify_command
from calibration.identification.identify import identify, read
from calibration.results import DataError
from companion.core.config import ConfigError, load, read_layered
from companion.core.frames import quat_from_rpy
from companion.core.vehicle import Vehicle
from companion.fcu.ned import swap_attitude


@pytest.fixture
def flight(made_up_flight):
    return made_up_flight(seed=3, duration_s=42.0)


def refusal(path) -> str:
    with pytest.raises(ConfigError) as caught:
        identify([path])
    text = str(caught.value)
    assert str(path) in text and "\n" not in text
    return text


def near_truth(found) -> None:
    assert found.roll.response.time_constant_s == pytest.approx(Truth.time_constant_s, rel=0.1)
    forces = found.forces
    k_T = forces.thrust_coefficient_m_s2 * (Truth.reference_v / forces.reference_voltage_v) ** forces.voltage_exponent
    assert k_T == pytest.approx(Truth.k_T_m_s2, rel=0.02)


def part(flight, mask) -> dict:
    """The samples of a flight where mask is true."""
    return {k: v[:, mask] if k == "commands" else v[mask] for k, v in flight.items()}


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"system_type": 1, "vehicle_type": 2}, "fixed wing"),
        ({"system_type": 1, "names": "old", "is_rotary_wing": False}, "fixed wing"),
        ({"system_type": 22}, "VTOL"),
        ({"system_type": 10, "vehicle_type": 3}, "rover"),
        ({"system_type": 0, "names": "old", "is_rotary_wing": False, "parameters": {}}, "without rotors"),
    ],
)
def test_a_log_of_another_kind_of_vehicle_is_refused(tmp_path, flight, options, kind):
    assert kind in refusal(write_ulog(tmp_path / "other.ulg", flight, **options))


def test_the_number_of_rotors_is_that_of_the_airframe_geometry_not_of_the_default_type(tmp_path, flight):
    read_back = read(write_ulog(tmp_path / "a.ulg", flight, system_type=2, parameters={"CA_ROTOR_COUNT": 6}))
    assert (read_back.aircraft, read_back.rotors) == ("hexarotor", 6)
    read_back = read(write_ulog(tmp_path / "b.ulg", flight, system_type=2, parameters={}))
    assert (read_back.aircraft, read_back.rotors) == ("quadrotor", 4)


def test_what_is_not_a_log_is_refused(tmp_path):
    path = tmp_path / "notes.ulg"
    path.write_bytes(b"")
    assert "neither a ULog" in refusal(path)
    path.write_bytes(b"ULog\x01\x12\x35")
    assert "damaged" in refusal(path)
    path.write_bytes(b"<html>404</html>")
    assert "neither a ULog" in refusal(path)
    assert "cannot be read" in refusal(tmp_path / "nowhere.ulg")
    assert "cannot be read" in refusal(tmp_path)
    assert "holds none of the topics" in refusal(ULogFile().write(path))


def test_a_flight_log_of_this_stack_cut_to_nothing_is_refused(tmp_path):
    path = tmp_path / "flight.mcap"
    path.write_bytes(b"\x89MCAP0\r\n")
    assert "not a flight log" in refusal(path)


def test_a_log_that_did_not_fly_is_refused(tmp_path, flight):
    grounded = dict(flight, air=np.zeros_like(flight["air"]))
    assert "did not fly" in refusal(write_ulog(tmp_path / "a.ulg", grounded))
    hop = part(flight, flight["t_s"] < 15.0)
    assert "s only; at least 15 s are needed" in refusal(write_ulog(tmp_path / "b.ulg", hop))


def test_a_motionless_hover_is_refused_with_what_is_missing(tmp_path, made_up_flight):
    still = made_up_flight(seed=1, duration_s=40.0, tilt=0.0)
    text = refusal(write_ulog(tmp_path / "still.ulg", still, skip=("vehicle_local_position",)))
    assert "lacks excitation" in text and "setpoint moved for 0.0 s only; at least 3 s" in text
    assert "no valid velocity" in text


@pytest.mark.parametrize(
    ("topic", "lost"),
    [
        ("vehicle_attitude", "no attitude in the log"),
        ("vehicle_attitude_setpoint", "no attitude setpoints in the log"),
    ],
)
def test_a_log_without_what_every_fit_needs_is_refused(tmp_path, flight, topic, lost):
    assert lost in refusal(write_ulog(tmp_path / "flight.ulg", flight, skip=(topic,)))


@pytest.mark.verify
def test_without_velocity_the_attitude_is_found_and_the_rest_is_reported_as_missing(tmp_path, flight):
    found = identify([write_ulog(tmp_path / "flight.ulg", flight, skip=("vehicle_local_position",))])
    assert found.roll.trusted and found.forces is None and "no valid velocity" in found.forces_reason


@pytest.mark.verify
def test_without_horizontal_velocity_there_is_no_horizontal_drag(tmp_path, flight):
    found = identify([write_ulog(tmp_path / "flight.ulg", flight, velocity_valid=False)])
    near_truth(found)
    assert found.forces.drag_horizontal_1_s is None and found.forces.rotor_drag_1_s is None
    assert "no valid horizontal velocity" in found.forces.missing["drag_horizontal"]


def test_without_a_voltage_thrust_is_found_for_the_battery_of_the_log(tmp_path, made_up_flight):
    steady = made_up_flight(seed=4, duration_s=40.0, sag_v=0.0)
    found = identify([write_ulog(tmp_path / "flight.ulg", steady, skip=("battery_status",))])
    in_log = Truth.k_T_m_s2 * (15.8 / Truth.reference_v) ** Truth.exponent
    assert found.forces.thrust_coefficient_m_s2 == pytest.approx(in_log, rel=0.02)
    assert "no battery voltage" in found.forces.missing["exponent"]


@pytest.mark.parametrize(
    "skip",
    [
        "vehicle_status",
        *(
            pytest.param(topic, marks=pytest.mark.verify)
            for topic in ("vehicle_land_detected", "vehicle_rates_setpoint", "sensor_combined")
        ),
    ],
)
def test_topics_that_only_help_may_be_missing(tmp_path, flight, skip):
    near_truth(identify([write_ulog(tmp_path / "flight.ulg", flight, skip=(skip,))]))


def test_the_part_of_a_cut_off_log_that_can_be_read_is_used_and_reported(tmp_path, flight):
    path = write_ulog(tmp_path / "flight.ulg", flight)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(0.8 * len(whole)) + 7])
    found = identify([path])
    near_truth(found)
    assert "cut off or damaged" in found.notes[0] and found.flight.airborne_s < 27.0


def test_every_cut_of_a_log_gives_a_result_or_one_line(tmp_path, flight):
    path = write_ulog(tmp_path / "flight.ulg", flight)
    whole = path.read_bytes()
    for length in np.linspace(0, len(whole) // 3, 25).astype(int):
        path.write_bytes(whole[:length])
        assert refusal(path)


def test_damage_in_the_middle_of_a_log_is_tolerated(tmp_path, flight):
    path = write_ulog(tmp_path / "flight.ulg", flight)
    whole = bytearray(path.read_bytes())
    rng = np.random.default_rng(5)
    for _ in range(3):
        damaged = bytearray(whole)
        for at in rng.integers(16, len(whole), 40):
            damaged[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            identify([path])
        except DataError as error:
            assert "\n" not in str(error)


def test_gaps_nan_and_impossible_times_are_left_out(tmp_path, flight):
    gaps = dict(part(flight, (flight["t_s"] % 17.0) > 1.0))  # dropouts of a second
    gaps["velocity_W"] = gaps["velocity_W"].copy()
    gaps["velocity_W"][::50] = np.nan
    gaps["q"] = gaps["q"].copy()
    gaps["q"][5000:5040] = np.nan
    gaps["t_s"] = gaps["t_s"].copy()
    gaps["t_s"][4000:4002] += 1e5  # a damaged stamp
    near_truth(identify([write_ulog(tmp_path / "flight.ulg", gaps)]))


def test_a_clock_that_steps_back_costs_only_what_it_repeats(tmp_path, flight):
    back = dict(flight, t_s=flight["t_s"] - 2.0 * (flight["t_s"] > 30.0))
    found = identify([write_ulog(tmp_path / "flight.ulg", back)])
    assert found.roll.response.time_constant_s == pytest.approx(Truth.time_constant_s, rel=0.1)


@pytest.mark.verify
def test_a_log_that_looks_like_another_aircrafts_is_written_only_with_this_aircraft(tmp_path, flight):
    vehicle = tmp_path / "mine.toml"
    tables = read_layered(F550)
    tables["thrust"]["coefficient_m_s2"] = 40.0
    vehicle.write_text(tomlkit.dumps(tables))
    before = vehicle.read_text()
    line = [str(write_ulog(tmp_path / "flight.ulg", flight)), "--vehicle", str(vehicle), "--yes"]
    refused = CliRunner().invoke(identify_command, line)
    assert refused.exit_code == 2 and vehicle.read_text() == before
    assert "against 40.0 in the vehicle file: is it this aircraft's log? (--this-aircraft" in refused.output
    written = CliRunner().invoke(identify_command, [*line, "--this-aircraft"])
    assert written.exit_code == 0 and vehicle.read_text() != before
    k_T = load(vehicle, Vehicle).thrust.coefficient_m_s2
    said = " ".join(re.sub("[│┃]", " ", written.output).split())  # a narrow table wraps
    assert any(float(n) == pytest.approx(k_T, abs=0.006) for n in re.findall(r"(\d+\.\d\d) m/s²", said)), said
    assert "at the reference of 15.2 V, as written" in said


@pytest.mark.parametrize(
    ("rotors", "name"),
    [
        (4, "quadrotor"),
        *(pytest.param(*p, marks=pytest.mark.verify) for p in ((5, "multirotor with 5 rotors"), (8, "octorotor"))),
    ],
)
def test_the_log_of_an_aircraft_with_4_to_16_rotors_is_written_with_yes(tmp_path, flight, vehicle, rotors, name):
    log = write_ulog(tmp_path / "flight.ulg", flight, parameters={"CA_ROTOR_COUNT": rotors})
    done = CliRunner().invoke(identify_command, [str(log), "--vehicle", str(vehicle), "--yes"])
    assert done.exit_code == 0, done.output
    assert f"ULog of a {name}" in done.output and "is it the right log?" not in done.output
    assert load(vehicle, Vehicle).attitude.roll.time_constant_s == pytest.approx(Truth.time_constant_s, rel=0.1)


@pytest.mark.verify
def test_the_log_of_another_number_of_rotors_is_written_only_with_this_aircraft(tmp_path, flight, vehicle):
    before = vehicle.read_bytes()
    line = [str(write_ulog(tmp_path / "flight.ulg", flight, parameters={"CA_ROTOR_COUNT": 3}))]
    line += ["--vehicle", str(vehicle), "--yes"]
    refused = CliRunner().invoke(identify_command, line)
    assert refused.exit_code == 2 and vehicle.read_bytes() == before
    assert "the log is of a tricopter, and this stack is made for 4 to 16 rotors" in refused.output
    assert CliRunner().invoke(identify_command, [*line, "--this-aircraft"]).exit_code == 0


@pytest.mark.verify
def test_two_flights_in_one_log_and_two_logs_give_what_one_flight_gives(tmp_path, flight, made_up_flight):
    second = made_up_flight(seed=8, duration_s=30.0)
    apart = dict(second, t_s=second["t_s"] + 70.0)
    both = {k: np.concatenate([flight[k], apart[k]], axis=1 if k == "commands" else 0) for k in flight}
    one = identify([write_ulog(tmp_path / "both.ulg", both)])
    near_truth(one)
    assert len(one.flight.airborne) == 2
    two = identify([write_ulog(tmp_path / "a.ulg", flight), write_ulog(tmp_path / "b.ulg", second)])
    near_truth(two)
    assert two.flight.airborne_s == pytest.approx(one.flight.airborne_s, abs=0.5)


def test_logs_of_two_aircraft_are_refused(tmp_path, flight):
    one = write_ulog(tmp_path / "a.ulg", flight)
    other = write_ulog(tmp_path / "b.ulg", flight, parameters={"CA_ROTOR_COUNT": 4})
    with pytest.raises(DataError, match="logs of one aircraft"):
        identify([one, other])


@pytest.mark.verify
def test_a_log_that_did_not_fly_beside_one_that_did_is_named_and_left_out(tmp_path, flight):
    idle = write_ulog(tmp_path / "idle.ulg", dict(flight, air=np.zeros_like(flight["air"])))
    found = identify([idle, write_ulog(tmp_path / "flight.ulg", flight)])
    near_truth(found)
    assert "idle.ulg: did not fly" in found.notes[0]


def test_setpoints_that_were_logged_slowly_give_a_doubt_or_the_truth(tmp_path, flight):
    found = identify([write_ulog(tmp_path / "flight.ulg", flight, setpoint_hz=2)])
    assert not found.roll.trusted or found.roll.response.time_constant_s == pytest.approx(0.15, rel=0.3)


def test_angles_left_at_zero_beside_a_quaternion_are_not_used(tmp_path, flight):
    rows = every(flight, 50)
    wanted = flight["commands"].T[rows]
    q_d = np.array([swap_attitude(tuple(quat_from_rpy(*row))) for row in wanted.tolist()])
    zero = ("float", np.zeros(len(rows)))
    for valid in (True, False):
        log = ULogFile({"CA_ROTOR_COUNT": 6})
        angles = {"roll_body": zero, "pitch_body": zero, "yaw_body": zero}
        validity = ("bool", np.full(len(rows), valid))
        log.add("vehicle_attitude_setpoint", flight["t_s"][rows], **angles, **floats("q_d", q_d), q_d_valid=validity)
        setpoint = read(log.write(tmp_path / "setpoints.ulg")).setpoint
        assert setpoint.value[:, :2] == pytest.approx(wanted[:, :2] if valid else 0.0, abs=1e-5)


def test_a_second_battery_that_is_not_connected_is_not_read(tmp_path, flight):
    log = ULogFile({"CA_ROTOR_COUNT": 6})
    rows = every(flight, 2)
    volts, up = flight["volts"][rows], np.ones(len(rows), dtype=bool)
    log.add("battery_status", flight["t_s"][rows], voltage_v=("float", 0 * volts), connected=("bool", ~up))
    log.add("battery_status", flight["t_s"][rows], 1, voltage_v=("float", volts), connected=("bool", up))
    read_back = read(log.write(tmp_path / "battery.ulg"))
    assert read_back.voltage.value == pytest.approx(volts, abs=1e-4)


def test_logs_without_a_thrust_setpoint_use_the_motors(tmp_path, flight):
    log = ULogFile({"CA_ROTOR_COUNT": 6, "PWM_MAIN_MIN": 1000, "PWM_MAIN_MAX": 2000})
    rows = every(flight, 20)
    thrust = flight["thrust"][rows]
    outputs = {f"output__{i}": ("float", 1000 + 1000 * thrust if i < 6 else 900 + 0 * thrust) for i in range(8)}
    log.add("actuator_outputs", flight["t_s"][rows], **outputs)
    read_back = read(log.write(tmp_path / "pwm.ulg"))
    assert read_back.thrust.value == pytest.approx(thrust, abs=1e-4)
    assert "mean PWM" in read_back.notes[0]
