"""The response to setpoints of attitude, rates and thrust. The limits are the same for both autopilots."""

import numpy as np
import pytest
from conformance_flight import ConformanceFlight

STEP_RAD = 0.14  # 8 degrees


def record(flight: ConformanceFlight, duration_s: float, quantity) -> tuple[np.ndarray, np.ndarray]:
    """(times from now, values) while the flight continues."""
    started_s, times, values = flight.now_s, [], []

    def sample() -> bool:
        times.append(flight.now_s - started_s)
        values.append(quantity())
        return False

    flight.run(duration_s, sample)
    return np.array(times), np.array(values)


def rise_s(times: np.ndarray, values: np.ndarray, fraction: float) -> float:
    """Time at which a step response that ends at 1 first exceeds a fraction."""
    return float(times[np.argmax(values >= fraction)])


@pytest.mark.parametrize("axis", ["roll", "pitch"])
def test_attitude_steps(begin, axis):
    flight = begin()
    flight.take_off(8.0)
    flight.enter_offboard()
    flight.run(3.0)
    i = ("roll", "pitch").index(axis)
    yaw = flight.rpy[2]
    flight.stream = lambda t: flight.hover(yaw=yaw, **{axis: STEP_RAD})
    times, values = record(flight, 1.2, lambda: flight.rpy[i] / STEP_RAD)
    end = values[times > 0.8].mean()
    early_s, rise = rise_s(times, values, 0.1), rise_s(times, values, 0.63)
    print(f"{axis}: 10 % {early_s:.3f} s, 63 % {rise:.3f} s, end {end:.3f}, peak {values.max():.3f}")
    assert 0.03 <= early_s <= 0.12
    assert 0.15 <= rise <= 0.28
    assert end == pytest.approx(1.0, abs=0.08)
    assert values.max() < 1.2


def test_yaw_follows_the_setpoint_s_yaw_rate(begin):
    flight = begin()
    flight.take_off()
    flight.enter_offboard()
    yaw0, t0 = flight.rpy[2], flight.now_s
    flight.stream = lambda t: flight.hover(yaw=yaw0 + 0.3 * (t - t0), yaw_rate=0.3)
    flight.run(1.5)
    times, values = record(flight, 2.0, lambda: flight.plant.omega_B[2])
    lag = yaw0 + 0.3 * (flight.now_s - t0) - flight.rpy[2]
    print("yaw rate", values.mean(), "behind by", lag)
    assert values.mean() == pytest.approx(0.3, abs=0.03)
    assert abs(lag) < 0.15


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_body_rates_are_followed(begin, axis):
    flight = begin()
    flight.take_off(8.0)
    flight.enter_offboard()
    wanted = np.zeros(3)
    flight.stream = lambda t: flight.rate_target(wanted, flight.hover_thrust)
    flight.run(0.6)  # PX4's commander takes up to 0.3 s to change from attitudes to rates
    wanted[axis] = 0.5 if axis < 2 else 0.3
    times, values = record(flight, 0.7, lambda: flight.plant.omega_B.copy())
    late = values[times > 0.35].mean(axis=0)
    rise = rise_s(times, values[:, axis] / wanted[axis], 0.63)
    print(f"axis {axis}: rates {late}, 63 % {rise:.3f} s")
    assert 0.02 <= rise <= (0.12 if axis < 2 else 0.3)
    assert late[axis] == pytest.approx(wanted[axis], rel=0.15)
    assert np.abs(np.delete(late, axis)).max() < 0.08


def test_thrust_is_followed(begin):
    flight = begin()
    flight.take_off(8.0)
    flight.enter_offboard()
    flight.run(2.0)
    hover = flight.hover_thrust
    yaw = flight.rpy[2]
    flight.stream = lambda t: flight.attitude_target(yaw=yaw, thrust=hover + 0.08)
    times, values = record(flight, 0.6, lambda: flight.plant.specific_force_B[2])
    late = values[times > 0.3].mean()
    print("hover", hover, "specific force", late, "per unit", late / (hover + 0.08))
    assert late == pytest.approx(9.81 * (hover + 0.08) / hover, rel=0.06)
    assert flight.motor_commands[-1].mean() == pytest.approx(hover + 0.08, abs=0.01)
    before = values[times < 0.03].mean()
    assert 0.02 <= rise_s(times, (values - before) / (late - before), 0.63) <= 0.12


def test_zero_thrust_stops_neither_motors_nor_control(begin):
    flight = begin()
    flight.take_off(12.0)
    flight.enter_offboard()
    yaw = flight.rpy[2]
    flight.stream = lambda t: flight.attitude_target(yaw=yaw, thrust=0.0)
    flight.run(0.5)
    print("commands", flight.motor_commands[-1])
    assert flight.plant.specific_force_B[2] < 2.0 and flight.armed
    flight.stream = lambda t: flight.hover(yaw=yaw)
    flight.run(5.0)
    assert np.abs(flight.rpy[:2]).max() < 0.15 and abs(flight.plant.v_W[2]) < 1.0
