"""Sign, steps, limits of the supply and order of a stand's readings, each rule against the fault it is for."""

import numpy as np
import pytest
from thrust_stand import Battery, Motor, sweep, up_and_down

from calibration.results import DataError
from calibration.thrust.steps import steps_of
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
    assert slow.sum() > 15 and steps.readings.sum() <= len(rows) - 5 * 19
    settled = MOTOR.thrust_n(steps.command, steps.voltage_v)
    assert np.abs(steps.thrust_n - settled)[steps.command > 0.1].max() < 0.05
