"""The bench command on a terminal of its own, against a simulated bench, both against the clock."""

import fcntl
import os
import select
import shlex
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

ANSWER_S = 0.8  # a person reads before answering
START_S = 40.0  # for a program to come up on a busy computer


class BenchOnTerminal:
    """Starts `python -m sitl.bench` and ``companion calibrate thrust --bench`` on a pseudo-terminal."""

    def __init__(self, folder: Path, environment=None, companion=(sys.executable, "-m", "companion.cli")):
        self.record, self.raw, self.text = folder / "pulses.csv", folder / "raw.csv", ""
        self._companion, self._environment = companion, environment or dict(os.environ)
        line = [sys.executable, "-m", "sitl.bench", "--quick", "--record", str(self.record)]
        self.world = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
        self.bench_file = shlex.split(self.world.stdout.readline())[-1]
        self.command = None

    def start(self, *arguments, answer="spin"):
        """Run the command until the motor is about to turn; answer: typed at the first question, None: nothing."""
        self.text = ""
        self._master, slave = os.openpty()
        line = ["calibrate", "thrust", "--bench", self.bench_file, "--save", str(self.raw), *arguments]
        self.command = subprocess.Popen(
            [*self._companion, *line], stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0), env=self._environment,
        )  # fmt: skip
        os.close(slave)
        if answer is not None:
            self.until(lambda: "Type spin" in self.text)
            self.read(ANSWER_S)
            self.type(answer)

    def type(self, text):
        os.write(self._master, (text + "\n").encode())

    def read(self, duration_s):
        """Take what the command prints for a time."""
        end_s = time.monotonic() + duration_s
        while self._master is not None and (left_s := end_s - time.monotonic()) > 0:
            if not select.select([self._master], [], [], left_s)[0]:
                continue
            try:
                data = os.read(self._master, 4096)
            except OSError:  # the command has ended
                data = b""
            if not data:
                time.sleep(left_s)
                return
            self.text += data.decode("utf-8", "replace")

    def until(self, condition, within_s=START_S):
        end_s = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < end_s, f"waited in vain; the terminal shows: {self.text[-2000:]}"
            self.read(0.02) if self._master is not None else time.sleep(0.02)

    def turning(self, pwm_us=1300.0):
        """Wait until the motor has reached a pulse width."""
        self.until(lambda: (pulses := self.pulses()) and pulses[-1][1] >= pwm_us)

    def pulses(self):
        """The record of the speed controller: (time [s] of the monotonic clock, pulse width [µs]) of each change."""
        lines = self.record.read_text(encoding="utf-8").splitlines()[1:]
        return [tuple(map(float, line.split(","))) for line in lines if line.count(",") == 1]

    def pause(self, duration_s):
        """Stop and continue the command; returns the times of both."""
        self.command.send_signal(signal.SIGSTOP)
        stopped_s = time.monotonic()
        time.sleep(duration_s)
        continued_s = time.monotonic()
        self.command.send_signal(signal.SIGCONT)
        return stopped_s, continued_s

    def hang_up(self):
        """Close the terminal."""
        os.close(self._master)
        self._master = None

    def status(self, within_s=20.0):
        """The exit status of the command."""
        self.until(lambda: self.command.poll() is not None, within_s)
        if self._master is not None:
            self.read(0.2)
        return self.command.returncode

    def close(self):
        for process in (self.command, self.world):
            if process is not None:
                process.kill()
                process.wait()
        self.world.stdout.close()
        if getattr(self, "_master", None) is not None:
            os.close(self._master)


def pulse_at(pulses, time_s):
    """The pulse width at a time."""
    return [pwm for t, pwm in pulses if t <= time_s][-1]


def highest_after(pulses, time_s):
    """The largest pulse width from a time on."""
    return max([pulse_at(pulses, time_s), *(pwm for t, pwm in pulses if t > time_s)])


def off_after(pulses, time_s, off_us=1000.0):
    """Seconds from a time until the output is off for good."""
    last_on = max((i for i, (_, pwm) in enumerate(pulses) if pwm > off_us), default=None)
    if last_on is None or last_on + 1 >= len(pulses):
        return 0.0 if last_on is None else float("inf")
    return max(pulses[last_on + 1][0] - time_s, 0.0)
