"""States of the filter that run away are put back to their prior, and nothing else changes."""

import numpy as np
import pytest

from companion.core.clock import SimulatedStopwatch
from companion.core.enums import FilterOffset
from companion.core.messages import FcuAttitude, FcuPosition
from companion.estimation.estimator import EstimatorNode
from companion.estimation.layout import ERROR_SIZE
from companion.estimation.noise import initial_variances
from companion.estimation.runaway import BOUNDS, put_back


@pytest.fixture
def correlated(vehicle, eskf):
    """A filter state whose errors are all correlated."""
    filter_state = eskf.start(0.0, np.zeros(3), np.zeros(3), (1.0, 0.0, 0.0, 0.0))
    rng = np.random.default_rng(1)
    A = rng.normal(size=(ERROR_SIZE, ERROR_SIZE))
    filter_state.covariance[:] = A @ A.T / ERROR_SIZE * 1e-4 + 1e-6 * np.eye(ERROR_SIZE)
    return filter_state


def test_every_offset_has_a_bound_well_beyond_its_prior(vehicle):
    prior = initial_variances(vehicle)
    assert {bound.offset for bound in BOUNDS} == set(FilterOffset)
    for bound in BOUNDS:
        assert np.sqrt(prior[bound.error]).max() < bound.limit / 1.7, bound.offset


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.offset)
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_state_beyond_its_bound_is_put_back_alone(vehicle, correlated, bound, sign):
    prior = initial_variances(vehicle)
    correlated.nominal[bound.state.start] = bound.prior + 0.99 * sign * bound.limit
    before = correlated.copy()
    assert put_back(correlated, prior) == () and np.array_equal(before.numbers, correlated.numbers)

    correlated.nominal[bound.state.start] = bound.prior + 1.01 * sign * bound.limit
    assert put_back(correlated, prior) == (bound.offset,)
    assert np.all(correlated.nominal[bound.state] == bound.prior)
    rows = np.arange(ERROR_SIZE)[bound.error]
    others = np.setdiff1d(np.arange(ERROR_SIZE), rows)
    P, Q = correlated.covariance, before.covariance
    assert np.array_equal(P[np.ix_(rows, rows)], np.diag(prior[bound.error]))
    assert not P[np.ix_(rows, others)].any() and not P[np.ix_(others, rows)].any()
    assert np.array_equal(P[np.ix_(others, others)], Q[np.ix_(others, others)])
    assert np.linalg.eigvalsh(P).min() > 0.0
    kept = np.setdiff1d(np.arange(len(before.nominal)), np.arange(len(before.nominal))[bound.state])
    assert np.array_equal(before.nominal[kept], correlated.nominal[kept])


def test_several_states_at_once(vehicle, correlated):
    for bound in BOUNDS:
        correlated.nominal[bound.state] = bound.prior + bound.limit
    found = put_back(correlated, initial_variances(vehicle))
    sizes = {bound.offset: bound.state.stop - bound.state.start for bound in BOUNDS}
    assert found == tuple(offset for offset, size in sizes.items() if size > 1)  # one number is just at its limit


def test_the_node_counts_a_runaway_and_goes_on(vehicle):
    node = EstimatorNode(vehicle, None, SimulatedStopwatch())

    def run(start_s, duration_s):
        for i in range(round(50 * duration_s)):
            t = start_s + 0.02 * i
            node.handle(FcuAttitude(stamp_s=t, q_WB=(1.0, 0.0, 0.0, 0.0), omega_B=(0.0, 0.0, 0.0)), t)
            node.handle(FcuPosition(stamp_s=t, p_W=(0.0, 0.0, 2.0), v_W=(0.0, 0.0, 0.0)), t)
            state, status = node.step(t)
        return state, status

    state, status = run(10.0, 2.0)
    assert state.valid and status.runaways == {} and not any(status.rejected[offset] for offset in FilterOffset)
    bound = next(bound for bound in BOUNDS if bound.offset is FilterOffset.CAMERA_DELAY)
    node.history.newest.nominal[bound.state] = 0.3
    state, status = run(12.0, 2.0)
    assert state.valid and state.reset_count == 0
    assert status.runaways == {FilterOffset.CAMERA_DELAY: 1} and status.rejected[FilterOffset.CAMERA_DELAY] == 1
    assert node.history.newest.nominal[bound.state] == 0.0
