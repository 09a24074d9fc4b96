"""The real command on a real terminal against a simulated bench, judged by the pulses that the speed controller got."""

import os
import signal
import sys
import time

import pytest
from bench_terminal import BenchOnTerminal, highest_after, off_after, pulse_at
from calibration_paths import ROOT

from calibration.thrust.bench.motor import TIMEOUT_S

pytestmark = [pytest.mark.realtime, pytest.mark.verify]
OFF_S = 0.5  # within which every way out is off
LATE_S = 0.1  # for a busy computer that simulates the bench
STEP_US = 40  # 200 µs/s for the longest time for which the ramp moves on at once, and rounding
REST_US = 1011  # the probe of the expiry


@pytest.fixture
def bench(tmp_path):
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    bench = BenchOnTerminal(tmp_path, environment, (sys.executable, "-m", "companion.cli"))
    yield bench
    bench.close()


def never_jumps(pulses):
    widths = [pwm for _, pwm in pulses]
    return all(b <= REST_US or b - max(a, 1000.0) <= STEP_US for a, b in zip(widths, widths[1:], strict=False))


def says_how_to_resume(bench):
    remark = [line for line in bench.raw.read_text().splitlines() if line.startswith("# stopped")]
    return bool(remark) and f"--bench {bench.bench_file} --save {bench.raw} --resume" in remark[-1]


@pytest.mark.parametrize("at_us", [1450.0, 1500.0])  # in a ramp, on a plateau
@pytest.mark.parametrize("pause_s", [0.6, 5.0])
def test_after_a_pause_the_motor_stays_off_until_spin(bench, at_us, pause_s, capsys):
    bench.start()
    bench.turning(at_us)
    stopped_s, continued_s = bench.pause(pause_s)
    assert bench.status() == 1
    pulses = bench.pulses()
    off_s = off_after(pulses, stopped_s)
    with capsys.disabled():
        print(f"\npause of {pause_s} s at {pulse_at(pulses, stopped_s):.0f} µs: off {off_s:.3f} s after its begin, "
              f"highest pulse after its end {highest_after(pulses, continued_s):.0f} µs")  # fmt: skip
    assert off_s <= TIMEOUT_S + LATE_S and highest_after(pulses, continued_s) == 900
    assert f"the program was paused for {pause_s:.1f} s" in bench.text and "motor off" in bench.text
    assert says_how_to_resume(bench) and never_jumps(pulses)
    kept = bench.raw.read_text()
    bench.start("--resume")
    bench.turning(1700)
    resumed = [(t, pwm) for t, pwm in bench.pulses() if t > continued_s]
    assert never_jumps([(0.0, 900.0), *resumed])
    assert bench.raw.read_text().startswith(kept)


def test_a_short_pause_is_no_pause(bench, capsys):
    bench.start()
    bench.turning(1500)
    stopped_s, continued_s = bench.pause(0.3)
    bench.read(1.0)
    pulses = bench.pulses()
    with capsys.disabled():
        during = {pwm for t, pwm in pulses if stopped_s < t < continued_s + 0.2}
        print(f"\npause of 0.3 s at {pulse_at(pulses, stopped_s):.0f} µs: pulses until 0.2 s after it {sorted(during)}")
    assert never_jumps(pulses)
    assert bench.command.poll() is None and pulse_at(pulses, time.monotonic()) >= 1500


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGTERM, "(SIGTERM)"),
        (signal.SIGHUP, "the terminal is gone (SIGHUP)"),
        (signal.SIGINT, "Ctrl-C"),
        (signal.SIGTSTP, "Ctrl-Z"),
        (signal.SIGQUIT, "Ctrl-\\"),
    ],
)
def test_a_signal_stops_the_motor_and_says_how_to_resume(bench, number, words, capsys):
    bench.start()
    bench.turning(1400)
    sent_s = time.monotonic()
    bench.command.send_signal(number)
    assert bench.status() == 1
    off_s = off_after(bench.pulses(), sent_s)
    with capsys.disabled():
        print(f"\n{signal.Signals(number).name}: off after {off_s:.3f} s")
    assert off_s <= OFF_S and words in bench.text and says_how_to_resume(bench)


def test_a_lost_terminal_stops_the_motor(bench, capsys):
    bench.start()
    bench.turning(1400)
    lost_s = time.monotonic()
    bench.hang_up()
    assert bench.status() not in (0, None)
    off_s = off_after(bench.pulses(), lost_s)
    with capsys.disabled():
        print(f"\nlost terminal: off after {off_s:.3f} s")
    assert off_s <= OFF_S and says_how_to_resume(bench)


def test_a_killed_program_leaves_a_motor_that_stops_by_itself(bench, capsys):
    bench.start()
    bench.turning(1400)
    killed_s = time.monotonic()
    bench.command.kill()
    bench.command.wait()
    time.sleep(1.0)
    off_s = off_after(bench.pulses(), killed_s)
    with capsys.disabled():
        print(f"\nSIGKILL: off after {off_s:.3f} s")
    assert off_s <= OFF_S


def test_spin_typed_in_advance_starts_nothing(bench):
    bench.start(answer=None)
    bench.until(lambda: bench.text != "" or time.sleep(0.1))
    for _ in range(5):
        bench.type("spin")
    bench.until(lambda: "Type spin" in bench.text)
    bench.read(2.0)
    assert {pwm for _, pwm in bench.pulses()} <= {900.0} and bench.command.poll() is None
    bench.command.send_signal(signal.SIGSTOP)
    bench.type("spin")  # into the terminal of a program that stands still
    time.sleep(1.0)
    bench.command.send_signal(signal.SIGCONT)
    bench.read(2.0)
    assert {pwm for _, pwm in bench.pulses()} <= {900.0} and "the program was paused: answer again" in bench.text
