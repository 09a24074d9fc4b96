"""A log of a vehicle that something holds or carries is refused by name: its fit would be smooth and wrong."""

import numpy as np
import pytest
from calibration_paths import SHARED, needs_shared_data
from click.testing import CliRunner
from held_flights import HELD, held
from identify_flights import write_flight_log, write_ulog

from calibration.identification.command import identify as identify_command
from calibration.identification.free_flight import Motion, evidence, refusal
from calibration.identification.identify import cut, identify, read
from calibration.results import DataError

REAL = ("hexa_altitude_4s", "hexa_stabilised_3s", "quad_mission_esc_status", "px4_v117_hexa_excitation")


@pytest.fixture
def flight(made_up_flight):
    return made_up_flight()


@pytest.mark.parametrize("write", [write_ulog, pytest.param(write_flight_log, marks=pytest.mark.verify)])
@pytest.mark.parametrize(("kind", "words"), HELD.items())
def test_nothing_is_written_from_a_vehicle_that_is_not_free(tmp_path, flight, vehicle, kind, words, write):
    log = write(tmp_path / "flight.log", held(flight, kind))
    before = vehicle.read_bytes()
    done = CliRunner().invoke(
        identify_command, [str(log), "--vehicle", str(vehicle), "--yes", "--this-aircraft"], catch_exceptions=False
    )
    assert done.exit_code == 2 and vehicle.read_bytes() == before
    assert f"{log}: " in done.output and words in done.output and "free flight with climbs" in done.output
    assert len(done.output.strip().splitlines()) == 1


@pytest.mark.parametrize("write", [write_ulog, write_flight_log])
def test_a_free_vehicle_is_accepted_with_or_without_accelerometer(tmp_path, flight, write):
    assert refusal(read(write(tmp_path / "flight.log", flight))) == ""


@pytest.mark.verify  # many logs
@pytest.mark.parametrize("seed", range(1, 7))
@pytest.mark.parametrize("write", [write_ulog, write_flight_log])
def test_noise_never_decides_between_a_flight_and_a_stand(tmp_path, made_up_flight, seed, write):
    assert refusal(read(write(tmp_path / "free.log", made_up_flight(seed)))) == ""
    for kind in HELD:
        seen = read(write(tmp_path / f"{kind}.log", held(made_up_flight(seed), kind, seed)))
        assert evidence(seen, seen.airborne).motion is not Motion.FREE


def test_a_slow_ramp_of_the_command_on_a_stand_is_named(tmp_path, flight):
    """Within two seconds such a command hardly moves; over the log it moves by more than a battery makes it."""
    tied = held(flight, "steady stand")
    ramp = np.interp(tied["t_s"], [5.0, 55.0], [0.2, 0.6])
    log = write_ulog(tmp_path / "ramp.ulg", tied | {"thrust": np.where(tied["air"], ramp, 0.05)})
    assert "the vehicle was held" in refusal(read(log))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda v: 0.0 * v, "the vehicle was held"),
        (lambda v: v * (1, 1, -1), "not as its thrust and its lean command"),
    ],
    ids=["velocity at rest while the accelerometer moves", "the velocity moves against the command"],
)
def test_signals_that_contradict_each_other_are_refused(tmp_path, flight, change, words):
    seen = read(write_ulog(tmp_path / "flight.ulg", flight))
    seen.velocity_W.value[:] = change(seen.velocity_W.value)
    assert words in refusal(seen)


def test_one_held_log_among_free_ones_is_refused(tmp_path, flight):
    free = write_ulog(tmp_path / "free.ulg", flight)
    tied = write_ulog(tmp_path / "tied.ulg", held(flight, "stand"))
    with pytest.raises(DataError, match=r"tied\.ulg: the vehicle was held"):
        identify([free, tied])


def one_after_the_other(first: dict, second: dict) -> dict:
    """Two flights in one log."""
    joined = {key: np.concatenate([first[key], second[key]]) for key in first if key not in ("commands", "t_s")}
    joined["commands"] = np.concatenate([first["commands"], second["commands"]], axis=1)
    return joined | {"t_s": np.concatenate([first["t_s"], first["t_s"][-1] + first["t_s"][1] + second["t_s"]])}


def test_a_log_with_a_run_on_a_stand_is_refused_with_its_times_and_its_flight_is_used_with_from(tmp_path, flight):
    log = write_ulog(tmp_path / "both.ulg", one_after_the_other(held(flight, "stand"), flight))
    both = read(log)
    assert refusal(both).startswith("from 7 to 53 s the vehicle was held")
    cut(both, (60.0, None))
    assert refusal(both) == "" and both.airborne_s == pytest.approx(47, abs=1)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (["--from", "300"], "--from 300: the log is 60 s long"),
        (["--from", "30", "--to", "20"], "--to 20: must be later than --from 30"),
        (["--to", "4"], "not in the air from 0 to 4 s (it was: 7 to 53 s)"),
        (["--from", "30", "--to", "40"], "flew for 10 s only"),
    ],
)
def test_a_part_that_cannot_be_is_refused_in_one_line(tmp_path, flight, part, words):
    log = write_ulog(tmp_path / "flight.ulg", flight)
    done = CliRunner().invoke(identify_command, [str(log), *part])
    assert done.exit_code == 2 and words in done.output and len(done.output.strip().splitlines()) == 1


def test_a_part_is_of_one_log(tmp_path, flight):
    logs = [str(write_ulog(tmp_path / name, flight)) for name in ("flight.ulg", "other.ulg")]
    with open(logs[1], "ab") as other:
        other.write(b"\0")  # another flight: the same one twice is refused
    done = CliRunner().invoke(identify_command, [*logs, "--from", "10"])
    assert done.exit_code == 2 and "--from and --to are of one log" in done.output


@needs_shared_data("ulog")
@pytest.mark.parametrize("name", REAL)
def test_every_real_flight_is_free(name):
    assert refusal(read(SHARED / "ulog" / f"{name}.ulg")) == ""


@needs_shared_data("ulog")
@pytest.mark.parametrize("name", REAL)
def test_a_real_flight_whose_vehicle_had_not_moved_is_refused(name):
    """The real commands and vibration, with the velocity and the mean specific force of a stand."""
    flight = read(SHARED / "ulog" / f"{name}.ulg")
    flight.velocity_W.value[:] *= 0.02
    felt = flight.accelerometer_B.value
    if len(felt) > 1000:
        kernel = np.ones(400) / 400
        slow = np.column_stack([np.convolve(column, kernel, mode="same") for column in felt.T])
        felt -= slow - (0.0, 0.0, 9.80665)
        quick = np.column_stack([np.convolve(column, np.ones(25) / 25, mode="same") for column in felt.T])
        felt -= quick - (0.0, 0.0, 9.80665)
    assert "held" in refusal(flight)
