"""Every reason for which the filter restarts, and none for a sound state."""

import numpy as np
import pytest

from companion.core.enums import Sensor
from companion.estimation.innovation_monitor import RejectionRun
from companion.estimation.layout import ErrorIndex, StateIndex
from companion.estimation.validity import (
    ATTITUDE_STD_LOST_RAD,
    DISTURBANCE_MAX_M_S2,
    REASONS,
    REJECTED_MAX_S,
    SPEED_MAX_M_S,
    VELOCITY_STD_LOST_M_S,
    divergence,
)

LEVEL = (1.0, 0.0, 0.0, 0.0)


@pytest.fixture
def state(eskf):
    return eskf.start(10.0, (1.0, 2.0, 3.0), (0.0, 0.0, 0.0), LEVEL)


def variance(state, block, value):
    state.covariance[block.stop - 1, block.stop - 1] = value


CASES = {
    "state not finite": (lambda s: s.nominal.__setitem__(StateIndex.MOUNT.start, np.nan), REASONS[1]),
    "covariance not finite": (lambda s: s.covariance.__setitem__((0, 50), np.inf), REASONS[1]),
    "a variance of zero": (lambda s: variance(s, ErrorIndex.MOUNT_OFFSET, 0.0), REASONS[2]),
    "speed": (lambda s: s.nominal.__setitem__(StateIndex.VELOCITY.stop - 1, -1.01 * SPEED_MAX_M_S), REASONS[3]),
    "disturbance": (
        lambda s: s.nominal.__setitem__(StateIndex.DISTURBANCE.start, 1.01 * DISTURBANCE_MAX_M_S2),
        REASONS[3],
    ),
    "attitude": (lambda s: variance(s, ErrorIndex.ATTITUDE, 1.01 * ATTITUDE_STD_LOST_RAD**2), REASONS[4]),
    "velocity": (lambda s: variance(s, ErrorIndex.VELOCITY, 1.01 * VELOCITY_STD_LOST_M_S**2), REASONS[4]),
    "rejections": (
        lambda s: s.rejection_runs.update({Sensor.VELOCITY: RejectionRun(9.9 - REJECTED_MAX_S, 100, np.zeros(3))}),
        "velocity rejected",
    ),
}


@pytest.mark.parametrize(("damage", "reason"), CASES.values(), ids=CASES.keys())
def test_a_state_that_makes_no_sense_is_named(state, damage, reason):
    assert divergence(state) == ""
    damage(state)
    assert divergence(state) == reason


def test_a_map_has_its_rows_checked_too(eskf, state):
    assert eskf.allocate(state, "east") and divergence(state) == ""
    state.covariance[-1, -1] = -1.0
    assert divergence(state) == "covariance not positive"
