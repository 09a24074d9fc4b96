"""Sign, steps, limits of the supply and order of a stand's readings, each rule against the fault it is for."""

import numpy as np
import pytest
from thrust_stand import Battery, Motor, record, script, sweep, up_and_down

from calibration.results import DataError
from calibration.thrust.curve import fit_thrust
from calibration.thrust.steps import all_steps, steps_of, sweeps_of
from calibration.thrust.table import StandRun

MOTOR = Motor()


def run(rows, current=True, time_s=None):
    amperes = rows[:, 3] if current else np.full(len(rows), np.nan)
    time_s = np.full(len(rows), np.nan) if time_s is None else time_s
    return StandRun("a.csv", rows[:, 0], rows[:, 1], rows[:, 2], amperes, time_s, np.arange(len(rows)), True)


def clean(**faults):
    return sweep(MOTOR, Battery(), up_and_down(), **faults)


def test_five_readings_are_one_point_and_up_and_down_stay_apart():
    steps = steps_of(run(clean()))
    assert len(steps.command) == 2 * 48 - 1  # the turning point is one step
    assert steps.readings.sum() == 96 * 5 and not steps.left_out and steps.sign == 1


def test_readings_of_opposite_sign_are_inverted():
    rows = clean()
    right = steps_of(run(rows))
    rows[:, 1] = 30 - rows[:, 1]  # a motor that lifts its own weight off a kitchen scale
    turned = steps_of(run(rows))
    assert turned.sign == -1 and np.allclose(turned.thrust_n + 30, right.thrust_n)


def test_single_outliers_do_not_move_a_point():
    rows = clean()
    rows[::5, 1] += 25
    assert np.abs(steps_of(run(rows)).thrust_n - steps_of(run(clean())).thrust_n).max() < 0.05


@pytest.mark.parametrize("current", [True, False])
@pytest.mark.parametrize("limit_a", [12, 16])
@pytest.mark.parametrize("step", [0.02, 0.05, 0.095])
def test_what_the_supply_limits_is_left_out_and_nothing_else(current, limit_a, step):
    u = np.arange(0.05, 1.001, step)
    rows = sweep(MOTOR, Battery(), u, limit_a=limit_a)
    free = MOTOR.current_a(u, Battery().voltage_v(MOTOR.current_a(u, 16.0))) < limit_a - 0.3
    steps = steps_of(run(rows, current))
    kept = np.isin(np.round(u, 6), np.round(steps.command, 6))
    assert kept[free].all(), "points below the limit are kept"
    assert (kept & ~free).sum() <= max(1, 0.04 / step), "hardly a point beyond the limit is kept"
    assert {point.reason.split(" ")[1] for point in steps.left_out} <= {"thrust", "supply's"}
    assert len(steps.left_out) + len(steps.command) == len(u)


def test_a_speed_controller_at_its_end_is_left_out():
    rows = clean()
    rows[:, 1] = np.minimum(rows[:, 1], MOTOR.thrust_n(0.85, 16.0))
    steps = steps_of(run(rows))
    assert 0.82 <= steps.command.max() <= 0.87
    assert {point.reason for point in steps.left_out} == {"the thrust does not rise above"}


@pytest.mark.parametrize("current", [True, False])
@pytest.mark.parametrize("resistance_ohm", [0.01, 0.1, 0.2])
@pytest.mark.parametrize("capacity_c", [3000, 8000, 1e9])
@pytest.mark.parametrize("down", [True, False])
def test_a_battery_that_sags_and_runs_down_is_no_limit(current, resistance_ohm, capacity_c, down):
    u = up_and_down() if down else up_and_down()[:48]
    rows = sweep(MOTOR, Battery(resistance_ohm=resistance_ohm, capacity_c=capacity_c), u)
    assert steps_of(run(rows, current)).left_out == ()


def test_a_ramp_is_gathered_by_command():
    u = np.repeat(np.linspace(0, 1, 5000), 1)
    steps = steps_of(run(sweep(MOTOR, Battery(), u, readings=1, seconds=0.01)))
    assert 150 < len(steps.command) < 250 and steps.left_out == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda u, t: np.where((u > 0.4) & (u < 0.6), 0.3 * t, t), "not monotone: the thrust falls from"),
        (lambda u, t: np.where(u > 0.4, 8 * (0.8 - u), t), "not a thrust curve"),
        (lambda u, t: np.random.default_rng(1).standard_normal(len(u)), "does not follow the command"),
        (lambda u, t: np.zeros_like(u), "does not follow the command"),
        (lambda u, t: np.sin(2 * np.pi * u), "not a thrust curve|not monotone|does not follow"),
    ],
)
def test_thrust_that_does_not_rise_with_the_command_is_refused_in_one_line(change, words):
    rows = clean()
    rows[:, 1] = change(rows[:, 0], rows[:, 1])
    with pytest.raises(DataError, match=words) as error:
        steps_of(run(rows))
    assert "a.csv" in str(error.value) and "\n" not in str(error.value)


def test_too_few_commands_are_refused():
    with pytest.raises(DataError, match="3 different commands"):
        steps_of(run(sweep(MOTOR, Battery(), [0.2, 0.4, 0.8])))


def test_a_recording_forgets_what_it_saw_while_the_motor_followed_a_jump():
    hz, hold_s, lag_s = 20, 2.0, 0.15
    u = np.repeat([0.6, 0.05, 0.2, 0.4, 0.6, 0.8], round(hz * hold_s))
    rows = sweep(MOTOR, Battery(), u, readings=1, noise_n=0.0)
    steady = rows[:, 1].copy()
    for i in range(1, len(rows)):
        rows[i, 1] = rows[i - 1, 1] + (steady[i] - rows[i - 1, 1]) / (hz * lag_s)
    rows[40:50, 0] = np.linspace(0.055, 0.075, 10)  # a ramp that begins before the motor has come down
    slow = np.abs(rows[:, 1] - steady) > 0.05 * steady.max()
    steps = steps_of(run(rows, time_s=np.arange(len(rows)) / hz))
    assert slow.sum() > 15 and steps.readings.sum() <= len(rows) - slow.sum() and steps.plateaus == 6
    settled = MOTOR.thrust_n(steps.command, steps.voltage_v)
    assert np.abs(steps.thrust_n - settled)[steps.command > 0.1].max() < 0.05


# ---- recordings: plateaus with ramps between them

LEVELS = np.arange(0.1, 0.96, 0.1)


def recording(open_v=16.4, timed=True, levels=LEVELS, capacity_c=1e9, seed=1, **options):
    stand = {key: options.pop(key) for key in ("lag_s", "noise_n", "jitter") if key in options}
    hz = options.get("hz", 40.0)
    battery = Battery(open_v, capacity_c=capacity_c)
    rows, time_s = record(MOTOR, battery, script(levels, **options), hz=hz, seed=seed, **stand)
    return run(rows, time_s=time_s if timed else None)


def curve_error(fit, voltages=(14.0, 15.0, 16.0)):
    """Largest difference between fitted and true motor, as a share of full thrust."""
    u = np.linspace(0.15, 0.9, 16)
    return max(np.abs(fit.curve.thrust_n(u, v) - MOTOR.thrust_n(u, v)).max() for v in voltages) / MOTOR.full_n


@pytest.mark.parametrize(
    "options",
    [
        {}, {"timed": False}, {"lag_s": 0.8}, {"ramp_s": 4.0, "hold_s": 2.0}, {"ramp_s": 6.0, "hold_s": 4.0, "lag_s": 1.0},
        {"hz": 100.0}, {"hz": 10.0}, {"jitter": 0.001}, {"jitter": 0.002}, {"hold_s": 1.0, "ramp_s": 1.0, "lag_s": 0.2},
        {"ramp_s": 0.5, "hold_s": 5.0}, {"ramp_s": 0.0, "lag_s": 0.5}, {"ramp_s": 0.0, "lag_s": 0.5, "timed": False},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("down", [False, True])
def test_plateaus_with_ramps_between_them_are_found(options, down):
    levels = np.concatenate([LEVELS, LEVELS[-2::-1]]) if down else LEVELS
    steps = all_steps([recording(v, levels=levels, seed=n, **options) for n, v in enumerate((16.4, 14.2))])
    assert all(part.plateaus == len(levels) + 2 for part in steps), "and the idle at both ends"
    assert all(len(part.command) + len(part.left_out) == part.plateaus for part in steps)
    assert all(part.dropped > 0 for part in steps)
    fit = fit_thrust(steps)
    assert curve_error(fit) < 0.012 and fit.r2 > 0.9996
    assert fit.curve.exponent == pytest.approx(1.64, abs=0.06)  # of this motor's physics


@pytest.mark.parametrize("ramp_s", [0.5, 4.0])
def test_slow_ramps_are_no_plateaus_and_a_scale_without_tare_is_seen_at_idle(ramp_s):
    levels = np.arange(0.2, 0.9, 0.05)
    runs = [recording(v, False, levels, seed=n, hz=80.0, ramp_s=ramp_s, hold_s=1.2) for n, v in enumerate((16.4, 14.2))]
    for data in runs:
        data.thrust_n[:] += 0.6
    steps = all_steps(runs)
    assert all(part.plateaus == len(levels) + 2 for part in steps)
    fit = fit_thrust(steps)
    assert curve_error(fit) < 0.012 and fit.tare_n == pytest.approx([0.6, 0.6], abs=0.05)


def test_plateaus_that_are_too_short_for_the_thrust_are_refused_with_the_reason():
    with pytest.raises(DataError, match=r"steady on \d+ of 11 plateaus: hold each step longer"):
        steps_of(recording(lag_s=3.0, hold_s=1.0, ramp_s=0.5, noise_n=0.005))


def test_a_plateau_on_which_the_thrust_is_not_steady_is_listed():
    data = recording(noise_n=0.005)
    rows = np.flatnonzero(np.abs(data.command - 0.5) < 1e-6)
    data.thrust_n[rows] += np.linspace(0, 1.0, len(rows))
    out = [point for point in steps_of(data).left_out if point.reason == "thrust not steady"]
    assert len(out) == 1 and out[0].command == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("levels", "options"),
    [(np.append(LEVELS, 0.0), {"hold_s": 1.5, "ramp_s": 2.0}), ([0.95, 0.0], {"ramp_s": 25.0})],
    ids=["plateaus", "ramps"],
)
def test_a_long_file_over_a_falling_battery_keeps_its_voltages(levels, options):
    """Sweeps on one battery without a column that counts them."""
    battery = Battery(16.8, capacity_c=2000)
    rows, time_s = record(MOTOR, battery, script(np.tile(levels, 4), hz=10.0, **options), hz=10.0, lag_s=0.05)
    data = run(rows, time_s=time_s)
    sweeps = sweeps_of(data)
    assert [sweep.name for sweep in sweeps] == [f"a.csv, sweep {n}" for n in range(1, 5)]
    assert sum(len(sweep.command) for sweep in sweeps) == len(rows)
    assert all(sweep.command[0] < 0.03 and sweep.command[-1] < 0.03 for sweep in sweeps)
    fit = fit_thrust(all_steps([data]))
    low, high = fit.curve.voltage_range_v
    assert high - low > 1.4 and fit.curve.exponent_known
    assert fit.curve.exponent == pytest.approx(1.64, abs=0.12) and curve_error(fit, (14.5, 15.5)) < 0.02


def test_one_sweep_is_one_run():
    for data in (run(clean()), recording(), run(sweep(MOTOR, Battery(), np.arange(0.1, 1, 0.1)))):
        assert sweeps_of(data) == [data]


def test_the_few_steps_of_an_interrupted_run_stay():
    """They would be refused by themselves, and all measurements with them."""
    whole, rows = run(clean()), clean(seed=2)
    begun = run(rows[:10])
    steps = all_steps([begun, whole])
    assert {len(part.command) for part in steps} == {2, 95}
    assert curve_error(fit_thrust(steps), (16.0,)) < 0.015
    with pytest.raises(DataError, match="2 different commands"):
        all_steps([begun])


@pytest.mark.parametrize("seed", range(20))
def test_broken_recordings_give_points_or_one_line(seed):
    """Rows lost, doubled and shuffled, clocks that jump, commands and thrusts that are stuck or wild."""
    rng = np.random.default_rng(seed)
    data = recording(hz=10.0)
    n = len(data.command)
    rows = np.sort(rng.choice(n, rng.integers(20, n), replace=bool(rng.integers(2))))
    if rng.random() < 0.3:
        rng.shuffle(rows)
    broken = run(
        np.stack([data.command, data.thrust_n, data.voltage_v, data.current_a], axis=1)[rows], time_s=data.time_s[rows]
    )
    begin = int(rng.integers(0, max(len(rows) - 10, 1)))
    part = slice(begin, begin + int(rng.integers(1, len(rows))))
    which = rng.integers(5)
    if which == 0:
        broken.command[part] = broken.command[begin]
    elif which == 1:
        broken.thrust_n[part] = 30 * rng.standard_normal(len(broken.thrust_n[part]))
    elif which == 2:
        broken.time_s[part] += rng.choice([-1e3, 1e6])
    elif which == 3:
        broken.voltage_v[part] = 2.0
    try:
        fit = fit_thrust(all_steps([broken]))
    except DataError as error:
        assert "a.csv" in str(error) and "\n" not in str(error)
    else:
        assert np.isfinite(fit.curve.full_n) and fit.curve.full_n > 0
