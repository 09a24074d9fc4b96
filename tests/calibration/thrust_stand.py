"""A motor and a stand for the tests of the thrust curve: physics of its own, faults of real stands on demand."""

import numpy as np
from scipy.signal import lfilter

GRAM = 9.80665e-3  # [N]


class Motor:
    """A brushless motor with a propeller: s V = ω / K + R c ω², thrust = k ω²; starts at a duty of `start`.

    At full duty on 16 V it gives `full_n`; `sag` is the share of the voltage lost in the windings there.
    """

    def __init__(self, full_n=12.0, sag=0.25, start=0.06, full_v=16.0, full_a=22.0):
        self.full_n, self.sag, self.start, self.full_v, self.full_a = full_n, sag, start, full_v, full_a

    def thrust_n(self, command, voltage_v):
        s = np.clip((np.asarray(command) - self.start) / (1 - self.start), 0, None) * voltage_v / self.full_v
        speed = (np.sqrt((1 - self.sag) ** 2 + 4 * self.sag * s) - (1 - self.sag)) / (2 * self.sag)
        return self.full_n * speed**2

    def current_a(self, command, voltage_v):
        share = self.thrust_n(command, voltage_v) / self.full_n
        return 0.3 + self.full_a * share**1.5 * self.full_v / voltage_v


class Battery:
    def __init__(self, open_v=16.4, resistance_ohm=0.04, capacity_c=1e9):
        self.open_v, self.resistance_ohm, self.capacity_c, self.used_c = open_v, resistance_ohm, capacity_c, 0.0

    def voltage_v(self, current_a):
        return self.open_v * (1 - 0.2 * self.used_c / self.capacity_c) - self.resistance_ohm * current_a


def sweep(motor, battery, commands, seed=1, readings=5, noise_n=0.015, seconds=5.0, limit_a=None):
    """Rows (command, thrust_n, voltage_v, current_a) of a sweep; limit_a: the supply gives no more than that."""
    rng, rows = np.random.default_rng(seed), []
    for u in commands:
        volts = battery.voltage_v(motor.current_a(u, battery.open_v))
        volts = battery.voltage_v(motor.current_a(u, volts))
        if limit_a is not None and motor.current_a(u, volts) > limit_a:
            while motor.current_a(u, volts) > limit_a:
                volts -= 0.01
            volts *= 0.95  # a limiter's output is not quiet
        amperes = motor.current_a(u, volts)
        battery.used_c += amperes * seconds
        thrust = motor.thrust_n(u, volts)
        rows += [(u, thrust + noise_n * rng.standard_normal(), volts, amperes) for _ in range(readings)]
    return np.array(rows)


def up_and_down(low=0.0, high=0.95, step=0.02):
    up = np.arange(low, high + 1e-9, step)
    return np.concatenate([up, up[::-1]])


def write_csv(path, rows, header="pwm_us,thrust_gf,voltage_v,current_a", decimal=".", encoding="utf-8", unit=GRAM):
    """The rows as a file; the first column's title decides how the command is written."""
    separator = next(s for s in (";", "\t", ",") if s in header)
    lines = [header]
    for u, thrust, volts, amperes in rows:
        first = u if "0..1" in header else 100 * u if "%" in header else 1000 + 1000 * u
        cells = (f"{first:.6g}", f"{thrust / unit:.6g}", f"{volts:.5g}", f"{amperes:.4g}")
        lines.append(separator.join(cells[: header.count(separator) + 1]).replace(".", decimal))
    path.write_text("\n".join(lines) + "\n", encoding=encoding)
    return path


def script(levels, hz=40.0, hold_s=3.0, ramp_s=2.0, idle_s=2.0):
    """Commands of a stand's step script, recorded all the time: ramps between plateaus, idle before and after."""
    parts, last = [np.zeros(round(idle_s * hz))], 0.0
    for level in [*levels, 0.0]:
        parts.append(np.linspace(last, level, round(ramp_s * hz) + 2)[1:-1])
        parts.append(np.full(round((hold_s if level else idle_s) * hz), level))
        last = level
    return np.concatenate(parts)


def record(motor, battery, commands, hz=40.0, lag_s=0.3, seed=1, noise_n=0.02, jitter=0.0):
    """(rows (command, thrust_n, voltage_v, current_a), time_s) of a recording; motor and scale follow with a lag."""
    rng, u = np.random.default_rng(seed), np.asarray(commands)
    amperes, used_c = np.zeros(len(u)), battery.used_c
    for _ in range(4):  # voltage, current and charge follow from each other
        battery.used_c = used_c + np.cumsum(amperes) / hz
        amperes = motor.current_a(u, battery.voltage_v(amperes))
    volts = battery.voltage_v(amperes)
    battery.used_c = float(battery.used_c[-1])
    share = 1 - np.exp(-1 / (hz * lag_s))
    thrust = lfilter([share], [1, share - 1], motor.thrust_n(u, volts))
    series = thrust + noise_n * rng.standard_normal(len(u)), volts + 0.01 * rng.standard_normal(len(u))
    return np.stack([u + jitter * rng.standard_normal(len(u)), *series, amperes], axis=1), np.arange(len(u)) / hz
