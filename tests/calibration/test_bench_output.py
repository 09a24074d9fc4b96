"""The output of the flight controller in each of PX4's states, and that no other state is taken for a motor that is off."""

import math

import msgspec
import pytest
from bench_user import QUICK, User
from pymavlink.dialects.v20 import common

from calibration.thrust.bench.motor import TIMEOUT_S, Motor
from calibration.thrust.bench.scale import Scale
from calibration.thrust.bench.stop_conditions import BenchSnapshot, StopMonitor
from calibration.thrust.bench.sweep import MOVE_MAX_S
from sitl.airframe import load_airframe
from sitl.bench import Faults, SimulatedBench, airframe_motor

PROBE_US = 1011  # of the expiry: above the armed idle and the disarmed output by twice the tolerance
TURNING_S = 1009.2  # a plateau of the quick sweep
ARMED = "the flight controller is armed and drives the motor (output "
DO = "the propeller may turn; disarm by RC or ground station, or pull the battery plug"


def watched(monkeypatch, folder, **options):
    user = User(monkeypatch, folder, step_us=200, **options)
    pulses = [(0.0, user.world.disarmed_us)]
    user.world.on_output = lambda time_s, pwm_us: pulses.append((time_s, pwm_us))
    return user, pulses


def never_jumps(pulses):
    most = QUICK["ramp_us_s"] * MOVE_MAX_S + 1
    return all(b <= PROBE_US or b - max(a, 1000.0) <= most for (_, a), (_, b) in zip(pulses, pulses[1:]))  # noqa: B905


# ---- the simulated flight controller


@pytest.fixture
def world():
    airframe = load_airframe("f550")
    world = SimulatedBench(airframe_motor(airframe, 0.0), airframe, [0.9])
    yield world
    world.close()


def test_an_armed_flight_controller_idles_at_its_lowest_pulse(world):
    world.faults.armed_s, world.faults.disarmed_s = 1001.0, 1003.0
    world.follow(1000.9)
    assert world.pwm_us == 900
    world.follow(1001.25)
    assert 900 < world.pwm_us < 1000, "PX4 takes half a second"
    world.follow(1001.6)
    assert world.pwm_us == 1000
    world.follow(1003.1)
    assert world.pwm_us == 900


def test_arming_ends_a_motor_test_at_idle_at_once(world):
    world.faults.armed_s = 1001.0
    world.follow(1000.9)
    world._test = (0.5, 1002.0)
    world.follow(1000.95)
    assert world.pwm_us == 1500
    world.follow(1001.02)
    assert world.pwm_us == 1000


def test_a_kill_switch_holds_the_disarmed_output_whatever_is_accepted(world):
    world.faults.killed_s, world.faults.kill_released_s = 1001.0, 1002.0
    world._test = (0.5, 1005.0)
    for until_s, pwm_us in ((1000.9, 1500), (1001.1, 900), (1002.1, 1500)):
        world.follow(until_s)
        assert world.pwm_us == pwm_us


# ---- the program


@pytest.mark.parametrize("disarmed_us", [900.0, 1000.0])
@pytest.mark.parametrize("since_s", [0.0, 0.33])  # between two heartbeats, too
def test_an_armed_flight_controller_ends_the_run_and_is_no_motor_that_is_off(
    tmp_path, monkeypatch, disarmed_us, since_s
):
    armed_s = TURNING_S + since_s
    user, pulses = watched(monkeypatch, tmp_path, disarmed_us=disarmed_us, faults=Faults(armed_s=armed_s))
    done = user.call()
    last = done.output.strip().splitlines()[-1]
    assert done.exit_code == 1 and f"{ARMED}1000 µs" in last and DO in last and "motor off" not in last
    assert user.world.time_s < armed_s + 0.8, "the refused motor test shows it at once"
    assert pulses[-1] == (pytest.approx(armed_s, abs=0.01), 1000)
    assert ARMED in user.raw.read_text() and len(user.rows()) > 5


@pytest.mark.parametrize("disarmed_us", [900.0, 1000.0])
@pytest.mark.parametrize("armed_for_s", [0.08, 0.145, 0.3, 0.44])
def test_a_motor_test_that_arming_interrupted_does_not_go_on(tmp_path, monkeypatch, disarmed_us, armed_for_s):
    """PX4 in its simulation disarmed by a failsafe after 0.145 s and then resumed the test of 1500 µs in one step."""
    faults = Faults(armed_s=TURNING_S, disarmed_s=TURNING_S + armed_for_s)
    user, pulses = watched(monkeypatch, tmp_path, disarmed_us=disarmed_us, faults=faults)
    done = user.call()
    last = done.output.strip().splitlines()[-1]
    assert done.exit_code == 1 and "; motor off; " in last and user.motor_is_off()
    assert "denied (armed" in last or (disarmed_us == 1000 and "is commanded: kill switch, arming" in last)
    resumed = [i for i, (time_s, pwm) in enumerate(pulses) if time_s > TURNING_S and pwm > 1000]
    assert all(pulses[i + 1][0] - pulses[i][0] < 0.06 for i in resumed) and len(resumed) <= 1


@pytest.mark.parametrize("disarmed_us", [900.0, 1000.0])
@pytest.mark.parametrize("at_s", [1003.15, 1003.2, 1003.3, 1003.45, 1003.55, 1003.62, 1003.65, 1003.7])
def test_arming_during_the_check_of_the_expiry_is_no_expiry(tmp_path, monkeypatch, disarmed_us, at_s):
    user, pulses = watched(monkeypatch, tmp_path, disarmed_us=disarmed_us, faults=Faults(armed_s=at_s))
    done = user.call()
    last = done.output.strip().splitlines()[-1]
    assert done.exit_code == 1 and ARMED in last and DO in last and "motor off" not in last
    assert max(pwm for _, pwm in pulses) <= PROBE_US + QUICK["ramp_us_s"] * 0.1


def test_the_expiry_is_checked_at_a_pulse_that_is_neither_idle_nor_disarmed(tmp_path, monkeypatch):
    for disarmed_us in (900.0, 1000.0):
        (folder := tmp_path / f"{disarmed_us:.0f}").mkdir()
        user, pulses = watched(monkeypatch, folder, disarmed_us=disarmed_us)
        assert user.call("--mass", 1.8).exit_code == 0
        first = next(i for i, (_, pwm) in enumerate(pulses) if pwm > 1000)
        (begun_s, held_us), (ended_s, off_us) = pulses[first], pulses[first + 1]
        assert held_us == pytest.approx(PROBE_US) and off_us == disarmed_us
        assert ended_s - begun_s > TIMEOUT_S


def test_an_armed_flight_controller_is_refused_at_once(tmp_path, monkeypatch):
    user, _ = watched(monkeypatch, tmp_path, faults=Faults(armed_s=0.0))
    done = user.call()
    assert done.exit_code == 2 and ARMED in done.output and "the bench needs it disarmed" in done.output
    assert user.world.tests == 0 and user.world.time_s < 1002.0 and len(done.output.strip().splitlines()) == 1


def test_arming_while_a_question_waits_is_said_at_once(tmp_path, monkeypatch):
    user, _ = watched(monkeypatch, tmp_path, charges=(0.9, 0.2), answers=["spin", "plug", "spin"])
    ask = user.ask

    def arm(question, tick):
        if "connect it" in question:
            user.world.faults.armed_s = user.world.time_s
            user.world.sleep(1.2)
        return ask(question, tick)

    monkeypatch.setattr(user, "ask", arm)
    done = user.call()
    last = done.output.strip().splitlines()[-1]
    assert done.exit_code == 1 and "stopped between two batteries" in last and ARMED in last and DO in last
    assert "motor off;" not in last and "--resume continues" in last


def test_a_kill_switch_is_named_before_the_start(tmp_path, monkeypatch):
    user, _ = watched(monkeypatch, tmp_path, faults=Faults(killed_s=0.0))
    done = user.call()
    assert done.exit_code == 2 and "the kill switch of the flight controller is on" in done.output


@pytest.mark.parametrize("lasts_s", [0.6, 5.0])
@pytest.mark.parametrize(
    ("begin", "end", "words"),
    [
        ("killed_s", "kill_released_s", "is commanded: kill switch"),
        ("link_lost_s", "link_back_s", "no message from the flight controller for 0."),
        ("restart_s", "restarted_s", "no message from the flight controller for 0."),
    ],
)
def test_what_stopped_the_motor_does_not_start_it_by_its_end(tmp_path, monkeypatch, begin, end, words, lasts_s):
    """A link of 0.6 s without messages let the motor jump from rest to 1500 µs in one step."""
    faults = Faults(**{begin: TURNING_S, end: TURNING_S + lasts_s})
    user, pulses = watched(monkeypatch, tmp_path, faults=faults)
    done = user.call()
    assert done.exit_code == 1 and words in done.output and never_jumps(pulses)
    off_s = next(time_s for time_s, pwm in pulses if time_s >= TURNING_S and pwm <= 900)
    assert off_s - TURNING_S <= 0.5 and max(pwm for time_s, pwm in pulses if time_s >= off_s) <= 900
    user.world.sleep(6.0)
    assert user.motor_is_off() and never_jumps(pulses)
    seen = lasts_s < 1.0 or begin == "killed_s"
    assert ("motor off" if seen else "not confirmed: pull the battery plug") in done.output


def test_commands_without_answer_end_the_run(tmp_path, monkeypatch):
    """Commands lost on their way, while telemetry arrives."""
    user, pulses = watched(monkeypatch, tmp_path)
    receive = user.world._receive

    def lossy():
        if TURNING_S <= user.world.time_s < TURNING_S + 0.6:
            while True:
                try:
                    user.world._socket.recvfrom(4096)
                except BlockingIOError:
                    return
        receive()

    monkeypatch.setattr(user.world, "_receive", lossy)
    done = user.call()
    assert done.exit_code == 1 and "the flight controller answered no command for 0." in done.output
    assert never_jumps(pulses) and "motor off" in done.output


def test_a_scale_that_repeats_itself_while_the_pulse_rises_stops_the_motor(tmp_path, monkeypatch):
    user, pulses = watched(monkeypatch, tmp_path, faults=Faults(scale_frozen_s=TURNING_S))
    done = user.call()
    assert done.exit_code == 1 and "the scale repeats one reading" in done.output and "motor off" in done.output
    at_us = next(pwm for time_s, pwm in reversed(pulses) if time_s <= TURNING_S)
    assert max(pwm for _, pwm in pulses) <= at_us + 401


# ---- the parts by themselves


class Bytes:
    """A link that has these bytes to read."""

    trouble = ""

    def __init__(self, data=b""):
        self.data, self.sent = data, []

    def fileno(self):
        return -1

    def read(self):
        data, self.data = self.data, b""
        return data

    def write(self, data):
        self.sent.append(data)
        return True


class Still:
    def now_s(self):
        return 1.0

    boot_s = now_s


def packed(*messages):
    mav = common.MAVLink(None, srcSystem=1, srcComponent=1)
    return b"".join(message.pack(mav) for message in messages)


def outputs(port, pwm_us):
    return common.MAVLink_servo_output_raw_message(0, port, pwm_us, *[0] * 15)


def test_the_outputs_of_the_other_port_are_not_the_motor(hx711):
    link = Bytes(packed(outputs(0, 1500), outputs(1, 900)))
    motor = Motor(link, hx711.motor, Still())
    motor.poll(1.0)
    assert motor.pwm_us == 1500
    on_aux = Motor(
        Bytes(packed(outputs(1, 1200), outputs(0, 900))), msgspec.structs.replace(hx711.motor, port=1), Still()
    )
    on_aux.poll(1.0)
    assert on_aux.pwm_us == 1200


def test_an_answer_to_another_station_is_not_ours(hx711):
    test = common.MAV_CMD_ACTUATOR_TEST
    denied = common.MAVLink_command_ack_message(test, common.MAV_RESULT_DENIED)
    other = common.MAVLink_command_ack_message(test, common.MAV_RESULT_ACCEPTED, target_system=255)
    motor = Motor(Bytes(packed(denied, other)), hx711.motor, Still())
    motor.poll(1.0)
    assert "denied" in motor.refusal
    motor.release()
    assert motor.refusal == "", "of a former battery"


@pytest.mark.parametrize("text", ["nan", "-nan", "inf", "1e999", "-Infinity"])
def test_a_scale_that_sends_no_number_sends_text(hx711, text):
    config = msgspec.structs.replace(hx711.scale, pattern=r"\s*(\S+)\s*")
    scale = Scale(Bytes(f"{text}\r\n".encode()), config)
    assert scale.poll(1.0) == [] and scale.text == text and math.isinf(scale.value_s)


def test_a_scale_of_coarse_steps_is_not_frozen(hx711):
    """One gram, ten readings a second: constant where the motor stands still, and between two steps."""
    monitor, now_s = StopMonitor(hx711), 0.0
    for pwm_us in range(1000, 1960, 10):
        grams = max(round(1200 * ((pwm_us - 1080) / 1000) ** 2), 0) if pwm_us > 1080 else 0
        for _ in range(5):
            now_s += 0.1
            thrust_n = 9.81e-3 * grams
            sample = BenchSnapshot(
                now_s, [thrust_n], thrust_n, 0.0, "", float(pwm_us), 0.0, 16.0, 3.0, rest_us=900.0, battery_age_s=0.0,
                link_age_s=0.0,
            )  # fmt: skip
            reason = monitor.check(sample, float(pwm_us))
            assert "repeats" not in reason


def test_a_port_that_broke_is_named_without_a_promise(hx711):
    """The link says that it tries again; after the end of the run nothing does."""
    link = Bytes()
    link.trouble, link.losses, link.url = "link x: unplugged; trying again every 1 s", 1, "serial:/dev/ttyACM0:57600"
    assert Motor(link, hx711.motor, Still()).trouble == (
        "serial:/dev/ttyACM0:57600: the connection broke (unplugged, or switched off)"
    )
    link.losses = 0
    assert Scale(link, hx711.scale).trouble == link.trouble
