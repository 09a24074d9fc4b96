"""A thrust bench in simulated time: scale on a pseudo-terminal, PX4's side of a motor test over UDP, motor, batteries.

`SimulatedBench.sleep` advances the simulation, so the program under test, which calls it, needs no thread and no real
time. The flight controller follows the behaviour of PX4 1.17 (the table is in `calibration.thrust.bench.output`): a
motor test expires by itself, and its value goes through THR_MDL_FAC; while armed it is refused, and the output idles at
PWM_MAIN_MIN; a kill switch holds the disarmed output whatever is accepted. `python -m sitl.bench` runs one against the
clock, to try the command.
"""

import argparse
import contextlib
import math
import os
import random
import shlex
import socket
import sys
import tempfile
import time
import tty
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from pymavlink.dialects.v20 import common

from companion.core.config_files import ConfigKind, config_folder
from companion.core.errors import UserError
from sitl.airframe import Airframe, load_airframe
from sitl.battery import Battery

STEP_S = 0.005
SCALE_HZ, TELEMETRY_HZ = 40.0, 10.0
TEST_TIMEOUT_MAX_S = 3.0
DISARMED_US = 900.0  # PWM_MAIN_DIS, if not given
ARMING_S = 0.5  # in which an output rises to its armed value; at once if a motor test runs (`MixingOutput`)
GRAM_N = 9.80665e-3


@dataclass
class Faults:
    """Faults and the times from which they occur [s]; infinite: never."""

    scale_silent_s: float = math.inf
    scale_text_s: float = math.inf  # instead of readings
    short_circuit_s: float = math.inf  # draws 60 A
    propeller_lost_s: float = math.inf
    battery_dies_s: float = math.inf  # loses a fifth of its voltage
    link_lost_s: float = math.inf
    link_back_s: float = math.inf
    restart_s: float = math.inf  # of the flight controller, which is then silent and without outputs until
    restarted_s: float = math.inf
    armed_s: float = math.inf
    disarmed_s: float = math.inf  # after `armed_s`
    killed_s: float = math.inf  # kill switch on
    kill_released_s: float = math.inf
    ctrl_c_s: float = math.inf
    scale_unplugged_s: float = math.inf
    scale_frozen_s: float = math.inf  # repeats its last line
    paused_s: float = math.inf  # the program under test stands still from then on,
    pause_s: float = 0.0  # for this long
    asleep: bool = False  # with the whole computer: the monotonic clock stands still, too
    refuses: bool = False  # COM_MOT_TEST_EN = 0
    keeps_running: bool = False  # a motor test never expires
    wrong_pwm_us: float = 0.0  # difference of the output from the bench file
    current_sensor: bool = True


@dataclass
class BenchMotor:
    """Steady thrust [N] and electrical power [W] of a motor at a signal (0..1 of the output's range) and a voltage."""

    thrust_n: Callable[[float, float], float]
    power_w: Callable[[float], float]  # of the thrust
    rise_time_s: float = 0.05


def airframe_motor(airframe: Airframe, thrust_model_factor: float) -> BenchMotor:
    """The airframe's rotor behind a speed controller that THR_MDL_FAC compensates.

    In the flying simulation the command c = F s² + (1 - F) s comes first, F = THR_MDL_FAC; here it is the signal s.
    """
    r, reference_v = airframe.rotor, airframe.battery.reference_voltage_v

    def thrust_n(signal: float, voltage_v: float) -> float:
        c = thrust_model_factor * signal**2 + (1 - thrust_model_factor) * signal
        share = r.quadratic_fraction * c**2 + (1 - r.quadratic_fraction) * c
        return r.thrust_max_n * share * math.pow(voltage_v / reference_v, 2 * r.speed_voltage_exponent)

    def power_w(thrust: float) -> float:
        return r.power_max_w * math.pow(max(thrust / r.thrust_max_n, 0.0), 1.5)

    return BenchMotor(thrust_n, power_w, r.rise_time_s)


@dataclass
class SimulatedBench:
    """The bench; `scale_url` and `motor_url` are what a bench file names.

    charges: remaining charge (0..1) of the batteries, in the order in which `next_battery` connects them.
    """

    motor: BenchMotor
    airframe: Airframe
    charges: list[float]
    seed: int = 1
    faults: Faults = field(default_factory=Faults)
    thrust_model_factor: float = 0.0
    pwm_min_us: float = 1000.0
    pwm_max_us: float = 2000.0
    disarmed_us: float = DISARMED_US
    scale_zero_g: float = 137.0
    scale_noise_g: float = 0.5
    by_hand: Callable[[float], float] | None = None  # throttle as pulse width over time, instead of motor tests
    on_output: Callable[[float, float], None] | None = None  # each change of the output: time [s], pulse width [µs]

    def __post_init__(self) -> None:
        self.time_s = 1000.0
        self._asleep_s = 0.0  # of the monotonic clock
        self.thrust = 0.0
        self.pwm_us = self.disarmed_us
        self.off_s = -math.inf  # when the output last went to its disarmed value
        self.tests = 0  # motor tests obeyed
        self.stops = 0
        self._charges = list(self.charges)
        self.next_battery()
        self._random = random.Random(self.seed)
        self._test = (math.nan, -math.inf)  # value, until when
        self._armed_from_us: float | None = None  # the output at arming, None while disarmed
        self._line = ""  # of the scale
        self._master, slave = os.openpty()
        tty.setraw(slave)
        os.set_blocking(self._master, False)
        self._slave = slave
        self.scale_url = f"serial:{os.ttyname(slave)}:115200"
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self._peer: tuple[str, int] | None = None
        self.motor_url = f"udpout:127.0.0.1:{self._socket.getsockname()[1]}"
        self._mav = common.MAVLink(None, srcSystem=1, srcComponent=1)
        self._parser = common.MAVLink(None)
        self._parser.robust_parsing = True
        self._due = {"scale": 0.0, "telemetry": 0.0, "heartbeat": 0.0}
        self._interrupted = False
        self._paused = False

    def close(self) -> None:
        for descriptor in (self._master, self._slave):
            with contextlib.suppress(OSError):  # unplugged
                os.close(descriptor)
        self._socket.close()

    def next_battery(self) -> None:
        """Connect the next battery; the last one stays."""
        remaining = self._charges.pop(0) if len(self._charges) > 1 else self._charges[0]
        self.battery = Battery(msgspec.structs.replace(self.airframe.battery, initial_remaining=remaining))

    # ---- the clock of the program under test

    def now_s(self) -> float:
        return self.time_s - self._asleep_s

    def boot_s(self) -> float:
        return self.time_s

    def sleep(self, duration_s: float) -> None:
        """Advance the time; raises KeyboardInterrupt at the time of the user's Ctrl-C."""
        self.follow(self.time_s + duration_s)
        if self.time_s >= self.faults.paused_s and not self._paused:
            self.pause(self.faults.pause_s)
        if self.time_s >= self.faults.ctrl_c_s and not self._interrupted:
            self._interrupted = True
            raise KeyboardInterrupt

    def pause(self, duration_s: float) -> None:
        """The program under test stands still, and the world does not; once."""
        if not self._paused:
            self._paused = True
            self.follow(self.time_s + duration_s)
            self._asleep_s += duration_s if self.faults.asleep else 0.0

    def follow(self, until_s: float) -> None:
        """Advance the world to a time [s]."""
        while self.time_s < until_s - 1e-9:
            self.time_s += STEP_S
            self._step()

    # ---- the world

    def truth_n(self, pwm_us: float, voltage_v: float) -> float:
        """Steady thrust [N] at a pulse width and voltage."""
        signal = (pwm_us - self.pwm_min_us) / (self.pwm_max_us - self.pwm_min_us)
        return self.motor.thrust_n(signal, voltage_v) if signal > 0 else 0.0

    def _step(self) -> None:
        self._receive()
        output_us = self._output()
        if output_us <= self.disarmed_us < self.pwm_us:
            self.off_s = self.time_s
        if output_us != self.pwm_us and self.on_output is not None:
            self.on_output(self.time_s, output_us)
        self.pwm_us = output_us
        steady = self.truth_n(self.pwm_us, self.battery.voltage_v)
        if self.time_s >= self.faults.propeller_lost_s:
            steady = 0.0
        self.thrust += (steady - self.thrust) * (1 - math.exp(-STEP_S / self.motor.rise_time_s))
        load_w = self.motor.power_w(self.thrust)
        if self.time_s >= self.faults.short_circuit_s and self.thrust > 0.1:
            load_w = 60.0 * self.battery.voltage_v
        self.battery.step(load_w, STEP_S)
        for name, rate, work in (
            ("scale", SCALE_HZ, self._send_reading),
            ("telemetry", TELEMETRY_HZ, self._send_telemetry),
            ("heartbeat", 1.0, self._send_heartbeat),
        ):
            if self.time_s >= self._due[name]:
                self._due[name] = self.time_s + 1 / rate - STEP_S / 2
                work()

    def _output(self) -> float:
        if self.by_hand is not None:
            return self.by_hand(self.time_s)
        value, until_s = self._test
        if not self._runs():
            self._test = (math.nan, -math.inf)
            return 0.0
        if self._killed():
            return self.disarmed_us
        if self._armed():
            return self._armed_us()
        self._armed_from_us = None
        expired = self.time_s > until_s and not self.faults.keeps_running
        if expired or not math.isfinite(value):
            return self.disarmed_us
        factor = self.thrust_model_factor
        if factor > 0:
            signal = (math.sqrt((1 - factor) ** 2 + 4 * factor * value) - (1 - factor)) / (2 * factor)
        else:
            signal = value
        return self.pwm_min_us + signal * (self.pwm_max_us - self.pwm_min_us) + self.faults.wrong_pwm_us

    def _armed_us(self) -> float:
        """The output of an armed flight controller without a throttle command: its idle."""
        if self._armed_from_us is None:
            self._armed_from_us = self.pwm_us
        if self._armed_from_us > self.disarmed_us:  # out of a motor test
            return self.pwm_min_us
        share = min((self.time_s - self.faults.armed_s) / ARMING_S, 1.0)
        return self.disarmed_us + share * (self.pwm_min_us - self.disarmed_us)

    def _armed(self) -> bool:
        return self.faults.armed_s <= self.time_s < self.faults.disarmed_s

    def _killed(self) -> bool:
        return self.faults.killed_s <= self.time_s < self.faults.kill_released_s

    def _runs(self) -> bool:
        """Whether the flight controller is not restarting."""
        return not self.faults.restart_s <= self.time_s < self.faults.restarted_s

    def _reachable(self) -> bool:
        return self._runs() and not self.faults.link_lost_s <= self.time_s < self.faults.link_back_s

    def _send_reading(self) -> None:
        if self.time_s >= self.faults.scale_silent_s:
            return
        if self.time_s >= self.faults.scale_unplugged_s:
            with contextlib.suppress(OSError):  # once
                os.close(self._master)
            self.faults.scale_silent_s = 0.0
            return
        grams = self.scale_zero_g + self.thrust / GRAM_N + self.scale_noise_g * self._random.gauss(0, 1)
        line = "ERR overload" if self.time_s >= self.faults.scale_text_s else f"{grams:.1f}"
        line = self._line if self.time_s >= self.faults.scale_frozen_s else line
        self._line = line
        with contextlib.suppress(BlockingIOError):  # no reader: the buffer of a real port is full then, too
            os.write(self._master, (line + "\r\n").encode())

    # ---- the flight controller

    def _receive(self) -> None:
        while True:
            try:
                data, peer = self._socket.recvfrom(4096)
            except (BlockingIOError, ConnectionError):
                return
            if not self._reachable():
                continue
            self._peer = peer
            for message in self._parser.parse_buffer(data) or []:
                kind = message.get_type()
                if kind == "COMMAND_LONG":
                    self._command(message)
                elif kind == "PARAM_REQUEST_READ" and message.param_id == "THR_MDL_FAC":
                    self._send(
                        common.MAVLink_param_value_message(
                            b"THR_MDL_FAC", self.thrust_model_factor, common.MAV_PARAM_TYPE_REAL32, 1, 0
                        )
                    )

    def _command(self, m: common.MAVLink_message) -> None:
        result = common.MAV_RESULT_ACCEPTED
        if m.command == common.MAV_CMD_ACTUATOR_TEST:
            if self.faults.refuses or self._armed():
                result = common.MAV_RESULT_DENIED
            elif m.param2 > 0 and int(m.param5) == 1:
                self._test = (m.param1, self.time_s + min(m.param2, TEST_TIMEOUT_MAX_S))
                self.tests += 1
            else:
                self._test = (math.nan, -math.inf)
                self.stops += 1
        elif m.command == common.MAV_CMD_REQUEST_MESSAGE and int(m.param1) == common.MAVLINK_MSG_ID_HEARTBEAT:
            self._send_heartbeat()
        self._send(common.MAVLink_command_ack_message(m.command, result))

    def _send_heartbeat(self) -> None:
        armed = common.MAV_MODE_FLAG_SAFETY_ARMED if self._armed() else 0
        state = common.MAV_STATE_FLIGHT_TERMINATION if self._killed() else common.MAV_STATE_STANDBY
        self._send(
            common.MAVLink_heartbeat_message(common.MAV_TYPE_HEXAROTOR, common.MAV_AUTOPILOT_PX4, armed, 0, state, 3)
        )

    def _send_telemetry(self) -> None:
        voltage_v = self.battery.voltage_v * (0.8 if self.time_s >= self.faults.battery_dies_s else 1.0)
        current_ca = round(100 * self.battery.current_a) if self.faults.current_sensor else -1
        cells = self.airframe.battery.cells
        per_cell = [round(1000 * voltage_v / cells)] * cells + [65535] * (10 - cells)
        outputs = [round(self.pwm_us), *[900] * 5, *[0] * 10]
        time_us = round(self.time_s * 1e6) % 2**32
        self._send(common.MAVLink_servo_output_raw_message(time_us, 0, *outputs))
        self._send(common.MAVLink_servo_output_raw_message(time_us, 1, *[900] * 8, *[0] * 8))  # PWM_AUX
        self._send(common.MAVLink_battery_status_message(0, 0, 0, 32767, per_cell, current_ca, -1, -1, 50))

    def _send(self, message: common.MAVLink_message) -> None:
        if self._peer is None or not self._reachable():
            return
        try:
            self._socket.sendto(message.pack(self._mav), self._peer)
        except ConnectionError:
            self._peer = None
        self._mav.seq = (self._mav.seq + 1) % 256


QUICK = {"step_us": "100", "down": "false", "settle_s": "0.5", "readings": "2", "interval_s": "0.5", "batteries": "1"}


def bench_file(bench: SimulatedBench, quick: bool = False) -> str:
    """The text of a bench file for a simulated bench; quick: a sweep of half a minute on one battery."""
    template = (config_folder() / ConfigKind.BENCH / "hx711.toml").read_text(encoding="utf-8")
    urls = iter((bench.scale_url, bench.motor_url))
    lines = []
    for line in template.splitlines():
        key = line.partition("=")[0].strip()
        if key == "url":
            line = f'url = "{next(urls)}"'
        elif quick and key in QUICK:
            line = f"{key} = {QUICK[key]}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> None:
    """Run a bench against the clock and print the command that uses it."""
    parser = argparse.ArgumentParser(
        "python -m sitl.bench",
        description="Simulated thrust bench, to try `companion calibrate thrust` without hardware.",
    )
    parser.add_argument("airframe", nargs="?", default="f550", help="of config/airframes (default: f550)")
    parser.add_argument("--charge", type=float, default=0.9, help="of the battery, 0.05 to 1 (default: 0.9)")
    parser.add_argument("--quick", action="store_true", help="a bench file with a sweep of half a minute")
    parser.add_argument("--record", type=Path, help="file for the pulse widths of the speed controller: time_s,pwm_us")
    given = parser.parse_args(arguments)
    if not 0.05 <= given.charge <= 1:
        parser.error(f"--charge {given.charge:g}: not 0.05 to 1")
    try:
        airframe = load_airframe(given.airframe)
        record = given.record.open("w", encoding="utf-8", buffering=1) if given.record else None
    except (UserError, OSError) as error:
        parser.error(str(error))
    bench = SimulatedBench(airframe_motor(airframe, 0.0), airframe, [given.charge])
    bench.time_s = time.monotonic()
    if record is not None:
        record.write("time_s,pwm_us\n")
        bench.on_output = lambda time_s, pwm_us: print(f"{time_s:.3f},{pwm_us:.1f}", file=record)
    path = Path(tempfile.mkdtemp()) / "simulated.toml"
    path.write_text(bench_file(bench, given.quick), encoding="utf-8")
    print(f"companion calibrate thrust --bench {shlex.quote(str(path))}", flush=True)
    try:
        while True:
            bench.follow(time.monotonic())
            time.sleep(STEP_S)
    except KeyboardInterrupt:
        bench.close()


if __name__ == "__main__":
    main(sys.argv[1:])
