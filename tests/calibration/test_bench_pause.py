"""A program that stood still never starts a motor again: not in one step, not without a person who types `spin`."""

import contextlib
import fcntl
import math
import os
import pty
import socket

import msgspec
import pytest
from bench_user import QUICK, User
from pymavlink.dialects.v20 import common

from calibration.thrust.bench import motor as bench_motor
from calibration.thrust.bench import terminal
from calibration.thrust.bench.motor import QUEUE_MAX, TIMEOUT_S, Motor
from calibration.thrust.bench.pause import PAUSE_S, PauseWatch
from calibration.thrust.bench.sweep import MOVE_MAX_S, Sweep
from companion.core.config import ConfigError
from companion.fcu.link.link import Link
from sitl.bench import Faults

STEP_MAX_US = QUICK["ramp_us_s"] * MOVE_MAX_S + 1  # of a rising pulse width
REST_US = 1011  # the probe of the expiry


def watched(monkeypatch, folder, **options):
    """A user, and every change of the output: (time, pulse width)."""
    user, pulses = User(monkeypatch, folder, step_us=200, **options), [(0.0, 900.0)]
    user.world.on_output = lambda time_s, pwm_us: pulses.append((time_s, pwm_us))
    return user, pulses


def never_jumps(pulses):
    return all(b <= REST_US or b - max(a, 1000.0) <= STEP_MAX_US for (_, a), (_, b) in zip(pulses, pulses[1:]))  # noqa: B905


# Times of one quick run: tare to 1002.1, question to 1003.1, expiry to 1004.1, then ramp, settling and reading by turns.
@pytest.mark.parametrize("asleep", [False, pytest.param(True, marks=pytest.mark.verify)])
@pytest.mark.parametrize("at_s", [1000.5, 1002.5, 1003.15, 1003.6, 1004.3, 1005.9, 1006.5, 1007.63, 1009.2, 1011.05])
def test_after_a_pause_anywhere_the_motor_stays_off(tmp_path, monkeypatch, at_s, asleep):
    faults = Faults(paused_s=at_s, pause_s=0.6, asleep=asleep)
    user, pulses = watched(monkeypatch, tmp_path, faults=faults)
    done = user.call("--mass", 1.8)
    assert never_jumps(pulses)
    if at_s < 1003.1:  # nothing turned yet, and `spin` is still to be typed
        assert done.exit_code == 0, done.output
        return
    assert done.exit_code in (1, 2) and "the program was paused for 0.6 s" in done.output
    assert all(pwm <= REST_US for time_s, pwm in pulses if time_s > at_s + TIMEOUT_S + 0.05)
    assert user.motor_is_off() and user.questions == ["Type spin to start"]
    if user.raw.exists():
        assert "# stopped at" in user.raw.read_text() and f"--save {user.raw} --resume" in user.raw.read_text()


@pytest.mark.parametrize("pause_s", [pytest.param(0.1, marks=pytest.mark.verify), 0.3])
@pytest.mark.parametrize("at_s", [1004.9, 1006.5, 1009.2])
def test_a_short_pause_is_no_step_of_the_motor(tmp_path, monkeypatch, at_s, pause_s):
    user, pulses = watched(monkeypatch, tmp_path, faults=Faults(paused_s=at_s, pause_s=pause_s))
    done = user.call("--mass", 1.8)
    assert done.exit_code == 0, done.output
    assert never_jumps(pulses) and sum(pwm == 900 for _, pwm in pulses) <= 3, "the output went off in between"
    rows = user.rows()
    times = [float(row["time_s"]) for row in rows]
    assert times == sorted(times) and len(rows) == 11 * 5


@pytest.mark.parametrize("pause_s", [0.41, pytest.param(0.6, marks=pytest.mark.verify), 5.0])
@pytest.mark.parametrize("where", ["computed", "written", "sent"])
def test_a_pulse_computed_before_a_pause_is_not_sent_after_it(tmp_path, monkeypatch, where, pause_s):
    """`computed`: between sweep and motor; `written`: between the look at the clock and the port; `sent`: after it."""
    user, pulses = watched(monkeypatch, tmp_path)
    advance, write, at_s = Sweep.advance, Link.write, 1008.0

    def computed(self, sample):
        reading = advance(self, sample)
        if user.world.time_s > at_s:
            user.world.pause(pause_s)
        return reading

    def written(self, data):
        if user.world.time_s > at_s and where == "written" and data[-1:] and len(data) > 30:
            user.world.pause(pause_s)
        left = write(self, data)
        if user.world.time_s > at_s and where == "sent":
            user.world.pause(pause_s)
        return left

    monkeypatch.setattr(Sweep, "advance", computed) if where == "computed" else monkeypatch.setattr(
        Link, "write", written
    )
    done = user.call()
    assert done.exit_code == 1 and "the program was paused for" in done.output and "motor off" in done.output
    assert pulses[-2][1] > 1100 and pulses[-1][1] == 900
    assert pulses[-1][0] <= at_s + TIMEOUT_S + 0.08, "the flight controller switched it off during the pause"


def test_the_readings_of_a_pause_are_not_kept_and_all_others_are(tmp_path, monkeypatch):
    user, _ = watched(monkeypatch, tmp_path, faults=Faults(paused_s=1008.0, pause_s=3.0), answers=["spin", "spin"])
    assert user.call().exit_code == 1
    kept = user.rows()
    assert len(kept) > 8 and all(float(row["time_s"]) < 1008.0 for row in kept)
    done = user.call("--resume", "--mass", 1.8)
    assert done.exit_code == 0, done.output
    assert user.rows()[: len(kept)] == kept
    complete = [row["step"] for row in user.rows() if row["reading"] == "5"]
    assert sorted(map(int, complete)) == list(range(11))


def test_a_sweep_begins_at_rest_wherever_its_lowest_step_is(tmp_path, monkeypatch):
    user, pulses = watched(monkeypatch, tmp_path, lowest_us=1500)
    assert user.call("--mass", 1.8).exit_code == 0
    assert never_jumps(pulses)


def test_a_flight_controller_whose_motor_test_does_not_expire_is_refused(tmp_path, monkeypatch):
    user, pulses = watched(monkeypatch, tmp_path, faults=Faults(keeps_running=True))
    done = user.call()
    assert done.exit_code == 1 and "it would not stop the motor if this program died" in done.output
    assert max(pwm for _, pwm in pulses) <= REST_US and user.motor_is_off()


@pytest.mark.parametrize("changes", [{"faults": Faults(wrong_pwm_us=40.0)}, {"output": 9}])
def test_an_output_that_does_not_follow_is_noticed_before_the_motor_turns(tmp_path, monkeypatch, changes):
    user, pulses = watched(monkeypatch, tmp_path, **changes)
    done = user.call()
    assert done.exit_code == 1 and "not 1011: check motor." in done.output
    assert max(pwm for _, pwm in pulses) <= 1051 and user.world.thrust < 0.2


def test_a_pause_with_the_throttle_in_the_hand_ends_the_run_and_rings(tmp_path, monkeypatch):
    hand = lambda now_s: 1000.0 + max(now_s - 1006.0, 0.0) * 20  # noqa: E731
    user, _ = watched(monkeypatch, tmp_path, by_hand=hand, faults=Faults(paused_s=1015.0, pause_s=2.0))
    user.write_bench("hx711", drive="manual", tolerance_us=50, batteries=1)
    done = user.call()
    assert done.exit_code == 1 and "the program was paused for 2.0 s" in done.output
    assert "This program cannot stop this motor" in done.output and "*** THROTTLE DOWN ***" in done.output
    assert user.world.tests == user.world.stops == 0


def test_an_output_that_another_program_drives_is_refused(tmp_path, monkeypatch):
    user, _ = watched(monkeypatch, tmp_path, by_hand=lambda _: 1200.0)
    done = user.call()
    assert done.exit_code == 2 and "the output is at 1200 µs already" in done.output and user.world.tests == 0


def test_an_unplugged_scale_stops_the_motor(tmp_path, monkeypatch):
    user, pulses = watched(monkeypatch, tmp_path, faults=Faults(scale_unplugged_s=1008.0))
    done = user.call()
    assert done.exit_code == 1 and "unplugged" in done.output and "--resume continues" in done.output
    assert pulses[-1][1] == 900 and pulses[-1][0] < 1008.5


def test_a_lost_terminal_stops_the_motor(tmp_path, monkeypatch):
    """Without a signal, as a program that was started with nohup or setsid sees it."""
    user, pulses = watched(monkeypatch, tmp_path)
    monkeypatch.setattr("calibration.thrust.bench.run.terminal_lost", lambda: user.world.time_s > 1008.0)
    done = user.call()
    assert done.exit_code == 1 and "the terminal is gone; motor off" in done.output
    assert "the terminal is gone" in user.raw.read_text() and pulses[-1][0] < 1008.1


def test_a_display_that_cannot_write_stops_the_motor(tmp_path, monkeypatch):
    user, pulses = watched(monkeypatch, tmp_path)

    def broken(*_):
        if user.world.time_s > 1008.0:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("calibration.thrust.bench.display.LogDisplay.update", broken)
    assert user.call().exit_code == 1
    assert pulses[-1] == (pytest.approx(1008.1, abs=0.1), 900)
    assert "the terminal is gone (Input/output error); motor off" in user.raw.read_text()


def test_an_error_of_the_program_says_how_to_continue(tmp_path, monkeypatch):
    user, _ = watched(monkeypatch, tmp_path)
    monkeypatch.setattr("calibration.thrust.bench.run.Sweep.advance", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        user.call()
    assert "an error of this program; motor off" in user.raw.read_text() and user.motor_is_off()


def test_an_end_between_two_batteries_says_how_to_continue(tmp_path, monkeypatch):
    user, _ = watched(monkeypatch, tmp_path, charges=(0.9, 0.1), answers=["spin", "plug", "no"])
    done = user.call()
    assert done.exit_code == 1 and "not confirmed" in done.output and f"--save {user.raw} --resume" in done.output


def test_two_runs_do_not_write_into_one_file(tmp_path, monkeypatch):
    user, pulses = watched(monkeypatch, tmp_path, answers=["spin", "spin"])
    user.world.faults.ctrl_c_s = 1008.0
    assert user.call().exit_code == 1
    with open(user.raw) as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        before = len(pulses)
        done = user.call("--resume")
    assert done.exit_code == 2 and "another run of the bench writes into it" in done.output and len(pulses) == before


# ---- the motor by itself


class Clock:
    """Two clocks that a test moves."""

    def __init__(self):
        self.monotonic = self.boot = 0.0

    def now_s(self):
        return self.monotonic

    def boot_s(self):
        return self.boot

    def move(self, duration_s):
        self.monotonic += duration_s
        self.boot += duration_s


class Port:
    """Keeps what is written; `socket`: its bytes wait there until they are read."""

    trouble = ""

    def __init__(self):
        self.near, self.far = socket.socketpair()
        self.accepts, self.written = True, 0

    def fileno(self):
        return self.near.fileno()

    def write(self, data):
        if self.accepts:
            self.near.send(data)
            self.written += 1
        return self.accepts

    def drain(self):
        return self.far.recv(65536)


@pytest.fixture
def driven(hx711):
    """A released motor on a port, its clock, and the watch of its cycle."""
    port, clock = Port(), Clock()
    motor, cycle = Motor(port, hx711.motor, clock), PauseWatch(clock)
    motor.release()
    yield motor, port, clock, cycle
    port.near.close()
    port.far.close()


def test_a_motor_is_driven_only_after_its_release(driven):
    motor, port, clock, cycle = driven
    motor.stop()
    port.drain()
    before = port.written
    motor.drive(1500.0, cycle)
    assert port.written == before
    motor.release()
    motor.drive(1500.0, cycle)
    assert port.written == before + 1


@pytest.mark.parametrize("which", ["monotonic", "boot"])
def test_either_clock_shows_a_pause(driven, which):
    motor, port, clock, cycle = driven
    motor.drive(1500.0, cycle)
    port.drain()
    setattr(clock, which, getattr(clock, which) + PAUSE_S + 0.01)
    cycle.look()
    motor.drive(1500.0, cycle)
    assert motor.paused_s == pytest.approx(PAUSE_S + 0.01) and port.written == 2, "the stop, and no other command"
    cycle.look()
    motor.drive(1500.0, cycle)
    assert port.written == 2, "it stays off until it is released"


def test_commands_do_not_queue_in_the_port(driven):
    motor, port, clock, cycle = driven
    for _ in range(9):
        cycle.look()
        motor.drive(1500.0, cycle)
        clock.move(0.1)
    assert port.written <= QUEUE_MAX // 40 + 1, "what waits there would be sent after a pause"
    assert "the port does not take the commands" in motor.trouble or motor.paused_s > PAUSE_S


def test_a_stop_discards_what_waits_in_a_serial_port(hx711, monkeypatch):
    """Commands that a flight controller did not take before a pause are not sent after it."""
    far, near = pty.openpty()  # it delivers at once, so only the order of the calls can be seen
    calls, port, clock = [], Port(), Clock()
    port.fileno = lambda: near
    port.write = lambda data: calls.append("stop" if len(calls) == 2 else "drive") or True
    flush = bench_motor.termios.tcflush
    monkeypatch.setattr(bench_motor.termios, "tcflush", lambda d, q: calls.append((d, q)) or flush(d, q))
    motor, cycle = Motor(port, hx711.motor, clock), PauseWatch(clock)
    motor.release()
    motor.drive(1500.0, cycle)
    clock.move(1.0)
    motor.drive(1500.0, cycle)
    os.close(far)
    os.close(near)
    assert calls == ["drive", (near, bench_motor.termios.TCOFLUSH), "stop"]


def test_a_port_that_takes_nothing_is_a_fault(driven):
    motor, port, clock, cycle = driven
    port.accepts = False
    for _ in range(3):
        cycle.look()
        motor.drive(1500.0, cycle)
        clock.move(0.1)
    assert "the port does not take the commands" in motor.trouble


def test_the_command_expires_before_a_pause_ends_unnoticed():
    assert bench_motor.REFRESH_S < PAUSE_S < TIMEOUT_S <= 0.5


def test_dshot_is_read_back_as_pulse_widths(tmp_path, monkeypatch, hx711):
    for raw, pwm_us in ((0, 1000.0), (1999, 2000.0), (110, 1055.03)):
        config = msgspec.structs.replace(hx711.motor, read_back="dshot")

        class Fcu(Port):
            def read(self, raw=raw):
                mav = common.MAVLink(None, srcSystem=1, srcComponent=1)
                return common.MAVLink_servo_output_raw_message(0, 0, raw, *[0] * 15).pack(mav)

        motor = Motor(Fcu(), config, Clock())
        motor.poll(0.0)
        assert motor.pwm_us == pytest.approx(pwm_us, abs=0.01)
    assert math.isnan(Motor(Port(), hx711.motor, Clock()).pwm_us)


# ---- the terminal by itself


@pytest.fixture
def screen(monkeypatch):
    """(descriptor of the keyboard, text shown, answer to a question while `tick` runs)."""
    keyboard, slave = pty.openpty()
    shown = []

    class Stdin:
        def fileno(self):
            return slave

    monkeypatch.setattr("sys.stdin", Stdin())
    yield keyboard, shown
    for descriptor in (keyboard, slave):
        os.close(descriptor)


def typed_when(monkeypatch, keyboard, texts):
    """A tick that types `texts[n]` at its n-th call, and a clock that it moves: (tick, pauses to come)."""
    count, pauses = [0], {}
    clock = [100.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: clock[0])

    def tick():
        count[0] += 1
        clock[0] += 0.3
        if text := texts.get(count[0]):
            os.write(keyboard, text)
        return pauses.get(count[0], 0.0)

    return tick, pauses


def test_an_answer_typed_in_advance_is_thrown_away(monkeypatch, screen):
    keyboard, shown = screen
    os.write(keyboard, b"spin\n" * 3 + b"sp")
    tick, _ = typed_when(monkeypatch, keyboard, {5: b"spin \n"})
    assert terminal.ask_line("Type spin to start", shown.append, tick) == "spin"
    assert shown == ["Type spin to start: "]


def test_an_answer_faster_than_a_person_is_not_taken(monkeypatch, screen):
    keyboard, shown = screen
    clock = [0.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: clock[0])
    texts = {1: b"spin\n", 2: b"", 20: b"no\n"}
    count = [0]

    def tick():
        count[0] += 1
        clock[0] += 0.1
        os.write(keyboard, texts.get(count[0], b""))
        return 0.0

    assert terminal.ask_line("Type spin", shown.append, tick) == "no"
    assert any("typed or pasted before the question" in text for text in shown)


def test_a_paste_of_several_lines_is_not_an_answer(monkeypatch, screen):
    keyboard, shown = screen
    tick, _ = typed_when(monkeypatch, keyboard, {5: b"spin\nand more\n", 9: b"no\n"})
    assert terminal.ask_line("Type spin", shown.append, tick) == "no"
    assert any("more than one line came at once" in text for text in shown)


def test_an_answer_typed_while_the_program_was_paused_is_not_taken(monkeypatch, screen):
    keyboard, shown = screen
    tick, pauses = typed_when(monkeypatch, keyboard, {8: b"spin\n", 15: b"later\n"})
    pauses[8] = 3600.0
    assert terminal.ask_line("Type spin", shown.append, tick) == "later"
    assert "\nthe program was paused: answer again\n" in shown


def test_questions_need_a_terminal(monkeypatch, tmp_path):
    for stdin in (open(tmp_path / "a", "w+"), None):  # noqa: SIM115 - a file, and a closed standard input
        monkeypatch.setattr("sys.stdin", stdin)
        with pytest.raises(ConfigError, match="standard input is not a terminal"):
            terminal.ask_line("Type spin", print, lambda: 0.0)


def test_a_terminal_that_closes_ends_the_question(monkeypatch):
    keyboard, slave = pty.openpty()
    monkeypatch.setattr("sys.stdin", os.fdopen(slave))
    assert not terminal.terminal_lost()
    with pytest.raises((EOFError, OSError)):
        terminal.ask_line("Type spin", lambda _: None, lambda: _close(keyboard))
    assert terminal.terminal_lost()


def _close(descriptor):
    with contextlib.suppress(OSError):
        os.close(descriptor)
    return 0.0
