"""On every fault of the bench the motor stops at once, one line names the cause, and the measurements are saved."""

import math

import pytest
from bench_user import User

from calibration.thrust.bench import run
from calibration.thrust.bench.raw_file import RawFile
from calibration.thrust.bench.stop_conditions import BenchSnapshot, StopMonitor
from sitl.bench import Faults

BEGIN_S = 1013.0  # the sweep is under way, the motor at about half


@pytest.mark.parametrize(
    ("fault", "words", "within_s"),
    [
        ({"scale_silent_s": BEGIN_S}, "the scale is silent for 0.5 s", 0.6),
        ({"scale_text_s": BEGIN_S}, "the scale sends text: 'ERR overload' does not match scale.pattern", 0.6),
        ({"short_circuit_s": BEGIN_S}, "is above 25 A", 0.2),
        ({"propeller_lost_s": BEGIN_S}, "thrust collapsed to", 0.7),
        ({"battery_dies_s": BEGIN_S}, "is below 13.2 V", 0.6),
        ({"link_lost_s": BEGIN_S}, "no message from the flight controller for ", 1.2),
        ({"ctrl_c_s": BEGIN_S}, "Ctrl-C", 0.1),
    ],
)
def test_the_motor_stops(tmp_path, monkeypatch, fault, words, within_s):
    user = User(monkeypatch, tmp_path, faults=Faults(**fault))
    done = user.call()
    assert done.exit_code == 1 and words in done.output
    assert user.world.off_s > BEGIN_S and user.world.off_s - BEGIN_S < within_s + run.TICK_S
    assert user.motor_is_off()
    last = done.output.strip().splitlines()[-1]
    assert last.startswith("companion: stopped at 1") and "--resume continues" in last
    expected = "motor off"
    if "link_lost_s" in fault:
        expected = "not confirmed: pull the battery plug"
    assert expected in last and ("motor off" in last) == (expected == "motor off")
    assert len(user.rows()) >= 15 and all(float(r["thrust_n"]) < 9.5 for r in user.rows())


def test_a_propeller_that_never_pushes_is_noticed_at_half_throttle(tmp_path, monkeypatch):
    user = User(monkeypatch, tmp_path, faults=Faults(propeller_lost_s=0.0))
    done = user.call()
    assert done.exit_code == 1 and "no thrust at 1500 µs: check that the motor turns" in done.output


def test_a_scale_that_counts_the_other_way_is_noticed(tmp_path, monkeypatch):
    user = User(monkeypatch, tmp_path, sign=-1)
    done = user.call()
    assert done.exit_code == 1 and "check scale.sign" in done.output
    assert max(float(row["target_us"]) for row in user.rows()) < 1250, "long before half of the sweep"


def healthy(now_s, thrust_n, pwm_us):
    """A moment without another danger."""
    ages = {"pwm_age_s": 0.0, "scale_age_s": 0.0, "battery_age_s": 0.0, "link_age_s": 0.0}
    return BenchSnapshot(now_s, thrust_n=thrust_n, pwm_us=pwm_us, voltage_v=15.0, current_a=5.0, rest_us=900.0, **ages)


@pytest.mark.parametrize(("thrust_n", "reason"), [(20.5, "thrust 20.5 N is above 20 N"), (19.5, "")])
def test_the_limit_of_thrust_holds_for_either_sign(hx711, thrust_n, reason):
    pulled, pushed = (StopMonitor(hx711).check(healthy(1.0, n, 1400.0), 1400.0) for n in (thrust_n, -thrust_n))
    assert pulled == reason
    assert pushed == (reason and "thrust -20.5 N is below -20 N: check scale.sign of the bench file")


@pytest.mark.parametrize(("thrust_n", "named"), [(-0.15, False), (-0.25, True), (-3.0, True)])
def test_thrust_well_below_zero_is_a_wrong_sign_at_the_first_step(hx711, thrust_n, named):
    monitor = StopMonitor(hx711)
    said = [monitor.check(healthy(0.05 * tick, thrust_n, 1020.0), 1020.0) for tick in range(30)]
    assert not any(said[:20]), "it must last"
    assert said[-1] == (f"thrust is {thrust_n:.2f} N: check scale.sign of the bench file" if named else "")


def test_an_output_that_is_not_the_one_named_is_noticed(tmp_path, monkeypatch):
    user = User(monkeypatch, tmp_path, faults=Faults(wrong_pwm_us=40.0), settle_s=2.0)
    done = user.call()
    assert done.exit_code == 1 and "the output is at 1051 µs, not 1011: check motor.output, pwm_min_us" in done.output


def test_a_refused_motor_test_is_reported_with_its_reason(tmp_path, monkeypatch):
    user = User(monkeypatch, tmp_path, faults=Faults(refuses=True))
    done = user.call()
    assert done.exit_code == 1 and "COM_MOT_TEST_EN = 0" in done.output and user.world.thrust == 0.0


def test_a_full_disk_stops_the_motor(tmp_path, monkeypatch):
    user = User(monkeypatch, tmp_path)
    write = RawFile.write

    def full(self, *reading):
        if user.world.time_s > BEGIN_S:
            raise OSError(28, "No space left on device")
        write(self, *reading)

    monkeypatch.setattr(RawFile, "write", full)
    done = user.call()
    assert done.exit_code == 1 and "No space left on device; motor off" in done.output and user.motor_is_off()


def test_an_error_of_the_program_stops_the_motor(tmp_path, monkeypatch):
    user = User(monkeypatch, tmp_path)

    def broken(*_):
        if user.world.time_s > BEGIN_S:
            raise ZeroDivisionError

    monkeypatch.setattr(run.StopMonitor, "note_measured", broken)
    with pytest.raises(ZeroDivisionError):
        user.call()
    assert user.world.tests > 10 and user.motor_is_off()


def test_a_program_that_dies_leaves_a_motor_that_stops_by_itself(tmp_path, monkeypatch):
    user = User(monkeypatch, tmp_path)

    class Killed(BaseException):
        pass

    def killed(*_):
        if user.world.time_s > BEGIN_S:
            monkeypatch.setattr(run.Motor, "stop", lambda self: None)
            raise Killed

    monkeypatch.setattr(run.StopMonitor, "note_measured", killed)
    with pytest.raises(Killed):
        user.call()
    assert user.world.stops == 0 and user.motor_is_off()


@pytest.mark.parametrize(
    ("fault", "changes", "words"),
    [
        ({"scale_silent_s": 0.0}, {}, "no data from the scale"),
        ({"scale_text_s": 0.0}, {}, "the scale sends text: 'ERR overload'"),
        ({"link_lost_s": 0.0}, {}, "no flight controller with system id 1"),
        ({"armed_s": 0.0}, {}, "the flight controller is armed"),
        ({"current_sensor": False}, {}, "no current is received; without a sensor leave limits.current_max_a out"),
        ({"battery_dies_s": 0.0}, {"voltage_min_v": 15.0}, "less than limits.voltage_min_v = 15 V"),
        ({}, {"autopilot_system_id": 7}, "no flight controller with system id 7"),
        ({}, {"output": 9}, None),
    ],
)
def test_a_missing_device_is_named_before_the_motor_turns(tmp_path, monkeypatch, fault, changes, words):
    user = User(monkeypatch, tmp_path, faults=Faults(**fault), **changes)
    done = user.call()
    if words is not None:
        assert done.exit_code == 2 and words in done.output and user.world.tests == 0
        assert len(done.output.strip().splitlines()) == 1
    else:  # an output at 0 µs is detected as soon as the motor should turn
        assert done.exit_code == 1 and "the output is at 0 µs, not 1011: check motor.number, output and" in done.output


def test_without_a_current_sensor_the_rest_still_works(tmp_path, monkeypatch):
    user = User(monkeypatch, tmp_path, faults=Faults(current_sensor=False), current_max_a=None, step_us=100)
    assert user.call().exit_code == 0
    assert {r["current_a"] for r in user.rows()} == {""}


def test_ports_that_are_not_there_are_one_line(tmp_path, monkeypatch):
    user = User(monkeypatch, tmp_path)
    text = user.bench_file.read_text()
    user.bench_file.write_text(text.replace(user.world.scale_url, "serial:/dev/ttyNONE:9600"))
    done = user.call()
    assert done.exit_code == 2 and "no serial device /dev/ttyNONE" in done.output
    assert math.isfinite(user.world.time_s)


@pytest.mark.parametrize("option", ["--max-us", "--min-us", "--min-voltage"])
def test_a_limit_that_is_no_number_is_refused(tmp_path, monkeypatch, option):
    user = User(monkeypatch, tmp_path)
    done = user.call(option, "nan")
    assert done.exit_code == 2 and f"'{option}': 'nan' is not a finite number" in done.output and user.world.tests == 0


@pytest.mark.parametrize("arguments", [(), ("--resume",)])
def test_raw_data_that_are_no_file_are_refused_before_the_start(tmp_path, monkeypatch, arguments):
    user = User(monkeypatch, tmp_path)
    for place, why in ((tmp_path, "is a folder, must be a file"), ("/dev/full", "not a file")):
        user.raw = place
        done = user.call(*arguments)
        assert done.exit_code == 2 and f"{place}: {why}" in done.output and user.world.tests == 0


def test_a_file_that_is_removed_during_the_run_stops_the_motor(tmp_path, monkeypatch):
    user = User(monkeypatch, tmp_path)
    write = RawFile.write

    def removed(self, *reading):
        if user.world.time_s > BEGIN_S:
            user.raw.unlink(missing_ok=True)
        write(self, *reading)

    monkeypatch.setattr(RawFile, "write", removed)
    done = user.call()
    assert done.exit_code == 1 and "the file was removed during the run" in done.output and user.motor_is_off()
