"""The estimator node with a wrong IMU stream: the state is as it would be without the stream."""

import numpy as np
import pytest
from eskf_truth import status

from companion.core.clock import SimulatedStopwatch
from companion.core.enums import FcuMode, ImuFault, Sensor
from companion.core.messages import FcuAttitude, FcuImu, FcuPosition
from companion.estimation.estimator import EstimatorNode

G = 9.80665
START_S = 10.0
LEVEL = (1.0, 0.0, 0.0, 0.0)


def good(t):
    """Gyroscope and accelerometer of an aircraft that hovers in still air."""
    return (0.0, 0.0, 0.0), (0.0, 0.0, G)


def inverted(t):
    return (0.0, 0.0, 0.0), (0.0, 0.0, -G)


class Hover:
    """Messages of an aircraft that stands still in the air; imu: (time) -> (gyro, accel), or None: none is sent."""

    def __init__(self, vehicle, imu_every=1) -> None:
        self.node = EstimatorNode(vehicle, None, SimulatedStopwatch())
        self.imu_every, self.tick, self.innovations = imu_every, 0, []

    def run(self, duration_s, imu):
        node = self.node
        for _ in range(round(200 * duration_s)):
            t = START_S + 0.005 * self.tick
            if imu is not None and self.tick % self.imu_every == 0:
                gyro_B, accel_B = imu(t)
                node.handle(FcuImu(stamp_s=t, gyro_B=gyro_B, accel_B=accel_B), t + 0.002)
            if self.tick % 4 == 0:
                noise = 1e-9 * (self.tick % 1000)  # an estimate that never changes in flight counts as silent
                node.handle(FcuAttitude(stamp_s=t, q_WB=LEVEL, omega_B=(noise, 0.0, 0.0)), t + 0.002)
                node.handle(FcuPosition(stamp_s=t, p_W=(noise, 0.0, 2.0), v_W=(0.0, 0.0, 0.0)), t + 0.002)
            if self.tick % 20 == 0:
                node.handle(status(t, FcuMode.POSCTL), t + 0.002)
            if self.tick % 2 == 0:
                self.state, self.status = node.step(t + 0.002)
                self.innovations += self.status.innovations
            self.tick += 1
        return self


def motion(state):
    return np.array((*state.p_W, *state.v_W, *state.q_WB, *state.disturbance_W))


def test_the_filter_is_propagated_by_a_good_stream(vehicle):
    flight = Hover(vehicle).run(3.0, good)
    assert flight.state.valid and flight.status.imu.fault is None and flight.status.note == ""
    assert flight.status.imu.rate_hz == pytest.approx(200.0, rel=0.01)
    assert any(innovation.sensor is Sensor.SPECIFIC_FORCE for innovation in flight.innovations)


def test_samples_that_point_down_are_withdrawn_and_the_state_does_not_move(vehicle):
    flight = Hover(vehicle).run(3.0, good)
    before = motion(flight.state)
    worst = 0.0
    for _ in range(100):
        flight.run(0.01, inverted)
        worst = max(worst, np.abs(motion(flight.state) - before).max())
    assert worst < 0.5  # 2 g for 25 ms
    assert np.abs(motion(flight.state) - before).max() < 0.01
    assert flight.state.valid and flight.state.reset_count == 0
    assert flight.status.imu.fault is ImuFault.DIRECTION and flight.status.rejected[ImuFault.DIRECTION] > 190
    assert flight.status.note == f"inertial measurements are not used: {flight.status.imu.problem}"


def test_a_stream_of_twenty_hertz_gives_the_state_of_no_stream(vehicle):
    slow = Hover(vehicle, imu_every=10).run(4.0, lambda t: ((0.05, 0.0, 0.0), (0.5, 0.0, G)))
    none = Hover(vehicle).run(4.0, None)
    assert slow.status.imu.fault is ImuFault.SLOW and none.status.imu.fault is None
    assert slow.status.imu.rate_hz == pytest.approx(20.0, rel=0.01) and none.status.imu.rate_hz == 0.0
    np.testing.assert_allclose(motion(slow.state), motion(none.state), atol=1e-6)


def test_the_state_without_the_stream_is_that_of_no_stream_and_the_stream_is_used_again(vehicle):
    flight = Hover(vehicle).run(2.0, good).run(1.0, None)
    assert flight.status.imu.fault is ImuFault.STOPPED and flight.status.rejected[ImuFault.STOPPED] == 1
    assert flight.state.valid
    flight.run(0.5, good)
    assert flight.status.imu.fault is None and flight.status.note == "" and flight.state.valid


def test_stamps_ahead_of_the_clock_are_counted_by_name(vehicle):
    flight = Hover(vehicle).run(1.0, good)
    t = START_S + 0.005 * flight.tick
    for i in range(10):
        late = FcuImu(stamp_s=t + 0.7 + 0.005 * i, gyro_B=(0.0, 0.0, 0.0), accel_B=(0.0, 0.0, -G))
        flight.node.handle(late, t)
    _, report = flight.node.step(t)
    assert report.rejected[ImuFault.STAMPS] == 10
