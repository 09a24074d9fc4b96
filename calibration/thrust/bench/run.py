"""A run of the bench: ports, questions, the loop. The motor is stopped at its end, for whatever reason it ends."""

import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Protocol

from calibration.thrust.bench.bench_file import Bench, probe_us
from calibration.thrust.bench.endings import ended_by_signals
from calibration.thrust.bench.motor import TIMEOUT_S, Motor
from calibration.thrust.bench.output import (
    UNCONFIRMED,
    MotorState,
    armed_text,
    is_disarmed_level,
    state_since,
)
from calibration.thrust.bench.pause import PAUSE_S, Clock, PauseWatch
from calibration.thrust.bench.raw_file import Progress, RawFile, read_progress
from calibration.thrust.bench.scale import Scale
from calibration.thrust.bench.stop_conditions import BenchSnapshot, StopMonitor, output_is_wrong
from calibration.thrust.bench.sweep import Reading, Step, Sweep, SweepState, plan
from calibration.thrust.bench.terminal import terminal_lost
from companion.core.config import ConfigError
from companion.core.errors import UserError
from companion.fcu.link.codec import AUTOPILOT_COMPONENT
from companion.fcu.link.link import open_link
from companion.fcu.link.sender import ANY_SENDER, Sender

TICK_S = 0.02
READY_S = 10.0  # until every device must have answered
FRESH_S = 2.0  # an older value is from before a change of battery, or its source is gone
FACTOR_S = 3.0  # for the answer to the one parameter request
TARE_S = 2.0
SMOOTH_S = 0.2
STOP_EVERY_S = 0.04  # so long a motor test may go on that an armed and disarmed flight controller resumes
OFF_S = 2.0  # for the output to go down after a stop, and for two heartbeats where they cannot be requested
PROBE_S = 1.0  # for the output to follow, and beyond `TIMEOUT_S` to go off by itself
PASSWORD = "spin"


class BenchStopped(UserError):
    """A run was stopped; the motor is off, or the message says that this is not confirmed."""


class Display(Protocol):
    """Output for the user; `calibration.thrust.bench.display` has a live one and one for a log."""

    def begin(self, bench: Bench, battery: int, sweep: Sweep, progress: Progress) -> None: ...

    def update(self, sweep: Sweep, sample: BenchSnapshot) -> None: ...

    def reading(self, reading: Reading) -> None: ...

    def end(self) -> None: ...

    def say(self, text: str) -> None: ...

    def ask(self, question: str, tick: Callable[[], float]) -> str: ...


@dataclass
class BenchRun:
    """One call of the command; `measure` raises `ConfigError` before anything turns and `BenchStopped` after."""

    bench: Bench
    raw: Path
    resume: bool
    display: Display
    clock: Clock
    again: str  # the command that continues this run

    def measure(self) -> None:
        """Measure the steps that are missing in the raw file."""
        progress = self._progress()
        if not any(progress.missing(self.bench, b) for b in self._batteries()):
            self.display.say(f"{self.raw}: complete, no step is left to measure")
            return
        scale_link = open_link(self.bench.scale.url, self.clock.now_s, sender=ANY_SENDER)
        try:
            autopilot = Sender(self.bench.motor.autopilot_system_id, AUTOPILOT_COMPONENT)
            motor_link = open_link(self.bench.motor.url, self.clock.now_s, sender=autopilot)
        except BaseException:
            scale_link.close()
            raise
        self.scale = Scale(scale_link, self.bench.scale)
        self.motor = Motor(motor_link, self.bench.motor, self.clock)
        self._cycle = PauseWatch(self.clock)
        self._polled_s = self.clock.now_s()
        self._recent: deque[tuple[float, float]] = deque()
        self.tare_n = 0.0
        self._rest_us = math.nan  # the output of the disarmed flight controller
        try:
            self._ready()
            self._all(progress)
        finally:
            scale_link.close()
            self.motor.close()

    def _batteries(self) -> range:
        return range(1, self.bench.sweep.batteries + 1)

    def _progress(self) -> Progress:
        if not self.raw.exists():
            if self.resume:
                raise ConfigError(f"{self.raw}: no such file; leave --resume out to begin a new one")
            return Progress()
        if not self.raw.is_file():
            raise ConfigError(f"{self.raw}: not a file (a folder or a device); name another one with --save")
        if not self.resume:
            raise ConfigError(f"{self.raw}: exists; continue it with --resume, or name another file with --save")
        return read_progress(self.raw, self.bench)

    # ---- ports

    def _sample(self) -> BenchSnapshot:
        pause_s = self._cycle.look()
        now_s = self.clock.now_s()
        self.motor.poll(now_s)
        values = [value - self.tare_n for value in self.scale.poll(now_s)]
        since_s, self._polled_s = self._polled_s, now_s  # the readings came evenly since then
        for i, value in enumerate(values):
            self._recent.append((since_s + (i + 1) / len(values) * (now_s - since_s), value))
        while self._recent and self._recent[0][0] < now_s - SMOOTH_S:
            self._recent.popleft()
        m = self.motor
        return BenchSnapshot(
            now_s=now_s,
            new_thrust_n=values,
            thrust_n=fmean(value for _, value in self._recent) if self._recent else math.nan,
            scale_age_s=now_s - self.scale.value_s,
            scale_text=self.scale.text,
            pwm_us=m.pwm_us,
            pwm_age_s=now_s - m.pwm_s,
            voltage_v=m.voltage_v,
            current_a=m.current_a,
            battery_age_s=now_s - m.battery_s,
            link_age_s=now_s - m.received_s,
            rest_us=self._rest_us,
            armed=m.armed,
            refusal=m.refusal,
            trouble=self.scale.trouble or m.trouble,
            thrust_s=self._recent[-1][0] if self._recent else math.nan,
            pause_s=max(pause_s, m.paused_s),
            unanswered_s=m.unanswered_s,
            terminal_lost=terminal_lost(),
        )

    def _ready(self) -> None:
        """Wait until every device answers; raises `ConfigError` that names one that does not."""
        begin_s = self.clock.now_s()
        while True:
            sample = self._sample()
            missing = self._missing(sample)
            if self._is_armed(sample):
                raise ConfigError(missing)
            if missing and sample.now_s > begin_s + READY_S:
                raise ConfigError(missing)
            if not missing and (self._knows_factor() or sample.now_s > begin_s + FACTOR_S):
                break
            self.clock.sleep(TICK_S)
        self._rest_us = sample.pwm_us
        if not self._knows_factor():
            self.display.say("the flight controller does not answer the request of THR_MDL_FAC; 0 is assumed")

    def _knows_factor(self) -> bool:
        return self._manual or self.motor.factor is not None

    def _missing(self, s: BenchSnapshot) -> str:
        bench, limits = self.bench, self.bench.limits
        if s.trouble:
            return s.trouble
        if s.scale_age_s > FRESH_S and s.scale_text:
            return f"{bench.scale.url}: the scale sends text: '{s.scale_text}' does not match scale.pattern"
        if s.scale_age_s > FRESH_S:
            return f"{bench.scale.url}: no data from the scale: check cable, port and baud rate"
        if s.link_age_s > FRESH_S:
            return f"{bench.motor.url}: no flight controller with system id {bench.motor.autopilot_system_id}"
        if self._is_armed(s):
            return f"{bench.motor.url}: {armed_text(s.pwm_us, bench.motor)}; the bench needs it disarmed"
        if self.motor.killed and not self._manual:
            return f"{bench.motor.url}: the kill switch of the flight controller is on, or its flight is terminated"
        if s.pwm_us > self._idle_us and s.pwm_age_s <= FRESH_S:
            return (
                f"{bench.motor.url}: the output is at {s.pwm_us:.0f} µs already: the throttle is up, or another program "
                "drives the motor"
            )
        if s.pwm_age_s > FRESH_S:
            return f"{bench.motor.url}: no pulse widths are received (SERVO_OUTPUT_RAW)"
        if s.battery_age_s > FRESH_S:
            return f"{bench.motor.url}: no battery voltage is received (BATTERY_STATUS)"
        if limits.current_max_a is not None and math.isnan(s.current_a):
            return f"{bench.motor.url}: no current is received; without a sensor leave limits.current_max_a out"
        if s.voltage_v < limits.voltage_min_v:
            return f"the battery has {s.voltage_v:.2f} V, less than limits.voltage_min_v = {limits.voltage_min_v:g} V"
        return ""

    def _is_armed(self, s: BenchSnapshot) -> bool:
        """Whether an armed flight controller drives the motor; with a manual throttle it is armed on purpose."""
        return s.armed and s.link_age_s <= FRESH_S and not self._manual

    @property
    def _idle_us(self) -> float:
        """The largest pulse width before a start: the throttle is down, or no motor test runs."""
        return self.bench.motor.pwm_min_us + self.bench.motor.tolerance_us

    @property
    def _manual(self) -> bool:
        return self.bench.motor.drive == "manual"

    def _ask(self, question: str) -> str:
        """Ask while the ports are read, so that nothing old waits in them afterwards.

        Raises `ConfigError` when the flight controller is armed meanwhile: a person may have a hand at the motor.
        """

        def tick() -> float:
            sample = self._sample()
            if self._is_armed(sample):
                raise ConfigError(f"{self.bench.motor.url}: {armed_text(sample.pwm_us, self.bench.motor)}")
            return sample.pause_s

        return self.display.ask(question, tick)

    # ---- batteries

    def _all(self, progress: Progress) -> None:
        file: RawFile | None = None
        try:
            for battery in self._batteries():
                missing = progress.missing(self.bench, battery)
                if not missing:
                    continue
                if battery > 1:
                    self._ask(f"Battery {battery} of {self.bench.sweep.batteries}: connect it, then Enter")
                    self._ready()
                self._tare()
                self._confirm(battery)
                file = file or RawFile(self.raw, self.bench)  # not before: a run that was not started leaves no file
                progress.run += 1
                self._one(battery, missing, progress, file)
        except BenchStopped as stopped:
            if file is not None:
                file.remark(str(stopped))
            raise
        except (UserError, KeyboardInterrupt, EOFError, OSError) as error:
            if file is None:
                raise
            reason = "interrupted" if isinstance(error, (KeyboardInterrupt, EOFError)) else str(error)
            ended = BenchStopped(f"stopped between two batteries: {reason}; no motor test runs; {self.again} continues")
            file.remark(str(ended))
            raise ended from None
        finally:
            if file is not None:
                file.close()

    def _tare(self) -> None:
        """The scale's zero: the median of readings with the motor off."""
        self.tare_n, values = 0.0, []
        self._sample()  # data that waited in the port are old
        until_s = self.clock.now_s() + TARE_S
        while (s := self._sample()).now_s < until_s:
            values += s.new_thrust_n
            self.clock.sleep(TICK_S)
        if len(values) < 3:
            raise ConfigError(
                f"{self.bench.scale.url}: {len(values)} readings in {TARE_S:g} s, too few to tare: use a faster scale"
            )
        self.tare_n = median(values)
        noise = pstdev(values)
        self.display.say(f"tare {self.tare_n:+.3f} N, noise {noise:.4f} N, {len(values) / TARE_S:.0f} readings/s")

    def _confirm(self, battery: int) -> None:
        s, motor = self._sample(), self.bench.motor
        self.display.say(
            f"battery {battery}: {s.voltage_v:.2f} V. Motor {motor.number} is about to turn, up to "
            f"{self.bench.sweep.highest_us:g} µs. Keep the propeller plane clear; a second person at the battery plug."
        )
        if self._manual:
            self.display.say(
                "This program cannot stop this motor, and nothing else does if the program is paused or dies: "
                "keep a hand on the throttle."
            )
        else:
            self.display.say(
                "If this program is paused or dies, the flight controller switches the motor off by itself after "
                f"{TIMEOUT_S:g} s; this is checked before the motor turns."
            )
        if self._ask(f"Type {PASSWORD} to start").strip().lower() != PASSWORD:
            raise ConfigError("not confirmed; the motor was not started")
        s = self._sample()
        if s.pause_s > PAUSE_S:
            raise ConfigError(
                f"the program was paused for {s.pause_s:.1f} s after {PASSWORD}; the motor was not started"
            )
        if missing := self._missing(s):
            raise ConfigError(missing)

    def _one(self, battery: int, steps: list[Step], progress: Progress, file: RawFile) -> None:
        sweep, monitor = Sweep(self.bench, steps), StopMonitor(self.bench)
        for pwm, thrust in progress.thrust_n.get(battery, {}).items():
            monitor.note_measured(pwm, thrust)
        with ended_by_signals((lambda: None) if self._manual else self.motor.stop) as ending:
            try:
                reason = "" if self._manual else self._check_expiry()
                if not reason:
                    self.display.begin(self.bench, battery, sweep, progress)
                    self.motor.release()
                    reason = self._sweep(sweep, monitor, battery, progress, file)
            except KeyboardInterrupt:
                reason = ending.reason or "Ctrl-C"
            except OSError as error:  # of the display; those of the file are caught where they occur
                reason = f"the terminal is gone ({error.strerror or error})"
            except BaseException:
                ending.begin()
                text = self._stopped(sweep, battery, steps, file, "an error of this program")
                file.remark(text)
                with suppress(OSError):
                    self.display.say(text)
                raise
            ending.begin()
            if reason:
                raise BenchStopped(self._stopped(sweep, battery, steps, file, reason))
            state = self._off()
        self.display.end()
        if not state.off:
            ended = f"battery {battery} is measured, but {state.text}; {self.again} continues"
            file.remark(f"stopped: {ended}")
            raise BenchStopped(ended)
        self.display.say(f"battery {battery}: done, {state.text}")

    def _stopped(self, sweep: Sweep, battery: int, steps: list[Step], file: RawFile, reason: str) -> str:
        """Stop the motor; the line that says why, and how to continue."""
        state = self._off()
        with suppress(OSError):
            self.display.end()
        count = len(plan(self.bench.sweep))
        done = count - len(steps) + steps.index(sweep.step) + (sweep.state is SweepState.DONE)
        return (
            f"stopped at {sweep.step.pwm_us:.0f} µs: {reason}; {state.text}; "
            f"{done} of {count} steps of battery {battery} are in {file.path}; {self.again} continues"
        )

    def _sweep(self, sweep: Sweep, monitor: StopMonitor, battery: int, progress: Progress, file: RawFile) -> str:
        """Measure the steps of one battery; returns the reason to stop, "" at the end."""
        while sweep.state is not SweepState.DONE:
            sample = self._sample()
            commanded = sample.pwm_us if self._manual else sweep.pwm_us
            if reason := monitor.check(sample, commanded):
                return reason
            reading = sweep.advance(sample)
            if not self._manual:
                self.motor.drive(sweep.pwm_us, self._cycle)
            if reading is not None:
                try:
                    file.write(progress.run, battery, self.tare_n, reading)
                except OSError as error:
                    return f"{file.path}: {error.strerror or error}"
                monitor.note_measured(reading.step.pwm_us, reading.thrust_n)
                self.display.reading(reading)
            self.display.update(sweep, sample)
            self.clock.sleep(TICK_S)
        return ""

    def _check_expiry(self) -> str:
        """See the output go off by itself when no command follows, at the lowest pulse width distinguishable from off.

        The heartbeat after it must say disarmed: an armed flight controller ends a motor test, too, and idles the motor.
        Returns the reason to stop, or "".
        """
        config, monitor = self.bench.motor, StopMonitor(self.bench)
        held_us = probe_us(self._rest_us, config)
        self.motor.release()
        until_s = self.clock.now_s() + PROBE_S
        while not abs(self.motor.pwm_us - held_us) <= config.tolerance_us:
            sample = self._sample()
            if reason := monitor.check(sample, math.nan):
                return reason
            if sample.now_s > until_s:
                return output_is_wrong(sample.pwm_us, held_us, self._rest_us, config.tolerance_us)
            self.motor.drive(held_us, self._cycle)
            self.clock.sleep(TICK_S)
        self.motor.rest()
        until_s = self.clock.now_s() + TIMEOUT_S + PROBE_S
        off_s = math.nan
        while True:
            sample = self._sample()
            if reason := monitor.check(sample, math.nan):
                return reason
            if not is_disarmed_level(self.motor.pwm_us, self._rest_us, config):
                off_s = math.nan
                if sample.now_s > until_s:
                    return (
                        f"the flight controller keeps the output at {sample.pwm_us:.0f} µs without commands: it would "
                        "not stop the motor if this program died"
                    )
            elif math.isnan(off_s):
                off_s = sample.now_s
                self.motor.request_state()
            elif (state := state_since(self.motor, off_s, self._rest_us, config)) is not None:
                return "" if state.off else state.text
            elif sample.now_s > off_s + OFF_S:
                return f"no heartbeat of the flight controller for {OFF_S:g} s: whether it is armed is unknown"
            self.clock.sleep(TICK_S)

    def _off(self) -> MotorState:
        """Stop the motor and check that the output went down; Ctrl-C does not interrupt this.

        An armed PX4 refuses the stop, too, and goes on with a motor test when it is disarmed before that expires: then
        the stop is repeated until it has expired.
        """
        if self._manual:
            with suppress(OSError):
                self.display.say("\a*** THROTTLE DOWN ***")
            return MotorState(True, "throttle down by hand")
        asked_s = self.clock.now_s()
        while self.clock.now_s() < asked_s + OFF_S:
            with suppress(KeyboardInterrupt):
                self.motor.stop()
                self.motor.request_state()
                self.clock.sleep(STOP_EVERY_S)
                self.motor.poll(self.clock.now_s())
                state = state_since(self.motor, asked_s, self._rest_us, self.bench.motor)
                expired = self.clock.now_s() > asked_s + TIMEOUT_S + STOP_EVERY_S
                if state is not None and (expired or self.motor.refused_s < asked_s):
                    return state
        return UNCONFIRMED
