"""A replay in compiled code gives the numbers of `Eskf`, bit for bit, and leaves every decision to it."""

from math import inf

import numpy as np
import pytest

from companion.core.enums import Sensor
from companion.estimation import replay
from companion.estimation.filter import Eskf
from companion.estimation.inputs import ActingThrust, Inputs

STEP_S = 0.01
P_W, LEVEL, FORCE = np.array([0.0, 0, 2]), np.array([1.0, 0, 0, 0]), (0.1, 0.2, 9.8)


@pytest.fixture
def inputs(vehicle):
    inputs, rng = Inputs(vehicle.latency.actuation_s, vehicle.estimator.history_s), np.random.default_rng(1)
    for i in range(100):
        inputs.imu.add(0.005 * i, (*(0.01 * rng.normal(size=3)), *(FORCE + 0.1 * rng.normal(size=3))))
    return inputs


def measurements(k, noisy=1.0):
    """(stamp, sensor, data) of a quarter of a second; the last forces are along the thrust."""
    rng, found = np.random.default_rng(2), []
    for i in range(1, 25):
        t = STEP_S * i
        found.append((t, Sensor.ATTITUDE, LEVEL))
        found.append((t, Sensor.VELOCITY, noisy * 0.1 * rng.normal(size=3)))
        if i % 3 == 0:
            found.append((t, Sensor.POSITION, P_W + noisy * 0.3 * rng.normal(size=3)))
            acting = ActingThrust(0.4, k) if i > 12 else None
            found.append((t, Sensor.SPECIFIC_FORCE, ((*(FORCE + noisy * rng.normal(size=3)),), acting)))
    return found


def packed(stamp_s, sensor, data, lost_s=inf):
    if sensor is Sensor.SPECIFIC_FORCE:
        return replay.pack_force(stamp_s, *data, 0.02)
    return replay.pack(stamp_s, sensor, data, stamp_s > lost_s and sensor is not Sensor.ATTITUDE)


def by_eskf(eskf, start, found, inputs, lost_s=inf):
    states, state = [], start
    for stamp_s, sensor, data in found:
        state = state.copy()
        eskf.advance(state, stamp_s, inputs)
        if sensor is Sensor.SPECIFIC_FORCE:
            eskf.measure_force(state, *data, 0.02)
        else:
            eskf.measure(state, sensor, data, lost=stamp_s > lost_s)
        states.append(state)
    return states


def start_of(eskf):
    return eskf.start(0.0, P_W, np.zeros(3), LEVEL)


@pytest.mark.parametrize("lost_s", [inf, 0.1], ids=["with satellites", "which are lost"])
@pytest.mark.parametrize("noisy", [0.1, 2.0], ids=["nominal noise", "adapted noise"])
def test_a_replay_gives_the_numbers_of_the_filter(vehicle, inputs, noisy, lost_s):
    eskf, other = Eskf(vehicle), Eskf(vehicle)
    k = np.array(vehicle.model_parameters())
    found = measurements(k, noisy)
    expected = by_eskf(other, start_of(other), found, inputs, lost_s)
    state, states = start_of(eskf), []
    while len(states) < len(found):
        taken = replay.Replay(eskf).run(state, [packed(*each, lost_s) for each in found[len(states) :]], inputs).states
        states += [each.filter_state() for each in taken]
        if not taken:  # rejected: the filter's own decision
            states += by_eskf(eskf, state, found[len(states) : len(states) + 1], inputs, lost_s)
        state = states[-1]
    for ours, theirs in zip(states, expected, strict=True):
        np.testing.assert_array_equal(ours.numbers, theirs.numbers)
        assert (ours.time_s, ours.by, ours.accepted_s) == (theirs.time_s, theirs.by, theirs.accepted_s)
        for sensor in replay.AIDS:
            np.testing.assert_array_equal(ours.windows[sensor].numbers, theirs.windows[sensor].numbers)


def test_a_flight_controller_without_satellites_gives_height_alone(vehicle, inputs):
    eskf = Eskf(vehicle)
    calm = [
        (STEP_S * i, sensor, y)
        for i in range(1, 25)
        for sensor, y in ((Sensor.VELOCITY, np.zeros(3)), (Sensor.POSITION, P_W))
    ]
    away = [(t, s, y + (30.0 * t, 9.0, 0.02)) for t, s, y in calm]  # as PX4 dead-reckons
    by_away, by_calm = (by_eskf(eskf, start_of(eskf), found, inputs, 0.0)[-1] for found in (away, calm))
    np.testing.assert_allclose(by_away.nominal[:2], by_calm.nominal[:2], atol=1e-3)
    np.testing.assert_allclose(by_away.nominal[3:5], by_calm.nominal[3:5], atol=1e-3)
    assert by_away.nominal[2] > by_calm.nominal[2] + 0.002
    followed = by_eskf(eskf, start_of(eskf), away, inputs)[-1]
    assert followed.nominal[3] > 0.5  # with satellites it is the velocity


def test_a_rejected_measurement_ends_a_replay_before_it(vehicle, inputs):
    eskf = Eskf(vehicle)
    wrong = P_W + (200.0, 0, 0)
    found = [(0.01, Sensor.VELOCITY, np.zeros(3)), (0.02, Sensor.POSITION, wrong), (0.03, Sensor.ATTITUDE, LEVEL)]
    taken = replay.Replay(eskf).run(start_of(eskf), [packed(*each) for each in found], inputs)
    assert len(taken.states) == 1


def test_a_gap_in_the_samples_ends_a_replay(vehicle, inputs):
    found = [replay.pack_nothing(0.3), replay.pack_nothing(2.0)]
    eskf = Eskf(vehicle)
    assert len(replay.Replay(eskf).run(start_of(eskf), found, inputs).states) == 1


def test_a_state_beyond_its_bound_ends_a_replay(vehicle, inputs):
    eskf = Eskf(vehicle)
    start = start_of(eskf)
    start.nominal[33] = 1.0  # gyroscope bias [rad/s]
    assert replay.Replay(eskf).run(start, [replay.pack_nothing(0.3)], inputs).states == []


def test_other_noise_ends_a_replay(vehicle, inputs):
    eskf = Eskf(vehicle)
    inputs.gnss_walk._schedule.append(0.15, 1.0)
    found = [replay.pack_nothing(t) for t in (0.1, 0.2, 0.3)]
    assert len(replay.Replay(eskf).run(start_of(eskf), found, inputs).states) == 2
    assert inputs.noise_changes_s(0.1) == 0.15 and inputs.noise_changes_s(0.2) == inf


def test_a_missing_force_only_moves_the_state(vehicle, inputs):
    eskf = Eskf(vehicle)
    taken = replay.Replay(eskf).run(start_of(eskf), [replay.pack_nothing(0.1)], inputs)
    assert np.isnan(taken.nis[0]) and taken.states[0].filter_state().time_s == 0.1
