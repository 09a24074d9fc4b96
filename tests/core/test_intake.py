"""A node takes no message without a time, and in flight none that only repeats the one before under a new time."""

import math

import pytest

from companion.core.enums import ProcessName
from companion.core.messages import (
    EstimatorStatus,
    FcuAttitude,
    FcuPosition,
    FcuStatus,
    Innovation,
    SentSetpoint,
    State,
)
from companion.core.node import Node
from companion.runtime.process import HealthMonitor

ZERO, UPRIGHT = (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)


class Taker(Node):
    name = ProcessName.MISSION
    inputs = ("state", "fcu_position", "fcu_attitude", "estimator", "fcu_status", "sent_setpoint")

    def __init__(self):
        self.taken = []
        for topic in self.inputs:
            setattr(self, f"handle_{topic}", lambda message, now_s: self.taken.append(message))
        super().__init__()

    def give(self, *messages):
        """How many of these were taken."""
        before = len(self.taken)
        for message in messages:
            assert not list(self.handle(message, 10.0))
        return len(self.taken) - before


def status(armed=True, landed=False):
    return FcuStatus(
        stamp_s=1.0, connected=True, armed=armed, mode="OFFBOARD", landed=landed, battery_voltage_v=15.0,
        battery_remaining=0.9, rc_ok=True, rc_channels_us=(), gnss_ok=True, home_W=None, timesync_offset_s=0.0,
        timesync_rtt_s=0.0, link_errors=0,
    )  # fmt: skip


def state(stamp_s, v=0.0, **others):
    fields = dict(
        p_W=ZERO, v_W=(v, 0.0, 0.0), q_WB=UPRIGHT, disturbance_W=ZERO, gnss_bias_W=ZERO, velocity_bias_W=ZERO,
        bundle="", p_WM=ZERO, q_WM=UPRIGHT, marker_age_s=stamp_s, position_std_m=0.1, relative_std_m=0.1,
        covariance_diag=(), battery_voltage_v=15.0, reset_count=0,
    )  # fmt: skip
    return State(stamp_s=stamp_s, **fields | others)


def estimator(stamp_s, *nis, blocks=()):
    innovations = [Innovation(5.0, "attitude", n, 3, True, 1.0, 0.0) for n in nis]
    return EstimatorStatus(
        stamp_s=stamp_s, innovations=innovations, rejected={}, dropped_late=0, update_time_s=stamp_s,
        covariance_blocks=blocks,
    )  # fmt: skip


REPEATED = {
    "state": state,
    "fcu_position": lambda t: FcuPosition(stamp_s=t, p_W=(1.0, 2.0, 3.0), v_W=ZERO),
    "fcu_attitude": lambda t: FcuAttitude(stamp_s=t, q_WB=UPRIGHT, omega_B=ZERO),
    "estimator": lambda t: estimator(t, 2.5),
}


@pytest.mark.parametrize("topic", REPEATED)
def test_numbers_that_repeat_are_refused_in_flight_alone(topic):
    node, message = Taker(), REPEATED[topic]
    assert node.give(status(armed=False, landed=True), *(message(1.0 + 0.02 * i) for i in range(5))) == 6
    assert node.give(status(landed=True), *(message(2.0 + 0.02 * i) for i in range(5))) == 6  # the motors turn
    assert node.errors == 0
    assert node.give(status(), *(message(3.0 + 0.02 * i) for i in range(5))) == 1
    assert node.errors == 5 and node.last_error == f"{topic} repeats the one before with a new time"
    report = HealthMonitor("mission", 20.0).message(10.0, None, node)
    assert report.errors == 5 and report.last_error == node.last_error


def test_the_last_bit_of_one_number_is_a_new_content():
    node = Taker()
    assert node.give(status(), *(state(1.0 + 0.01 * i, v=math.nextafter(0.0, 1.0) * i) for i in range(5))) == 6


def test_the_same_message_twice_and_invalid_ones_are_no_repetition():
    node = Taker()
    assert node.give(status(), state(1.0), state(1.0), state(1.1, valid=False), state(1.2, valid=False)) == 5
    assert node.errors == 0


def test_an_estimator_without_measurements_is_alive_by_its_covariances():
    node = Taker()
    pause = [estimator(1.0 + 0.01 * i) for i in range(10)]
    assert (
        node.give(status(), *pause, estimator(1.1, blocks=(0.1,)), estimator(1.11), estimator(1.2, blocks=(0.2,))) == 5
    )
    assert node.errors == 0  # nothing that an error would have to say


@pytest.mark.parametrize("stamp_s", [math.nan, math.inf, -math.inf])
def test_a_message_without_a_time_is_refused(stamp_s):
    node = Taker()
    assert node.give(*(message(stamp_s) for message in REPEATED.values())) == 0
    assert node.errors == len(REPEATED) and node.last_error == "estimator has no time"


@pytest.mark.parametrize("number", [math.nan, math.inf])
@pytest.mark.parametrize("field", ["roll_rad", "pitch_rad", "yaw_rad", "yaw_rate_rad_s", "thrust"])
def test_a_sent_setpoint_that_is_not_finite_is_refused(field, number):
    numbers = dict.fromkeys(("roll_rad", "pitch_rad", "yaw_rad", "yaw_rate_rad_s", "thrust"), 0.1)
    node = Taker()
    assert node.give(SentSetpoint(stamp_s=1.0, **numbers | {field: number})) == 0
    assert node.give(SentSetpoint(stamp_s=1.0, **numbers)) == 1 and node.errors == 1
