"""Gate, bounded adaptation and history: what outliers, lateness and new levels may and may not do."""

import numpy as np
import pytest

from companion.core.frames import quat_exp, quat_multiply
from companion.estimation.adaptation import SCALE_MAX, new_window
from companion.estimation.filter import LEVEL_TIME_S
from companion.estimation.gating import Gate
from companion.estimation.history import Entry, History

HOVER = np.array([0.0, 0, 2])
LEVEL = np.array([1.0, 0, 0, 0])
P_CM, Q_CM, R_MARKER = np.array([0.1, -0.2, 4.0]), np.array([0.0, 1.0, 0, 0]), np.diag([0.005**2] * 3 + [0.005**2] * 3)


class Hover:
    """A filter on an aircraft that stands still; measurements at 50 Hz, bundle at 25 Hz."""

    def __init__(self, eskf, vehicle, marker=False, seed=0):
        self.eskf, self.marker = eskf, marker
        self.rng = np.random.default_rng(seed)
        self.velocity_std = vehicle.estimator.velocity.std
        self.k = np.array(vehicle.model_parameters())
        self.u = np.array([9.80665 / self.k[0], 0, 0, 0])
        self.belief = eskf.start(0.0, HOVER, np.zeros(3), LEVEL)
        self.count = 0

    def step(self, offset=(0, 0, 0), std=0.1):
        self.eskf.predict(self.belief, self.u, self.k, 0.02)
        self.belief.time_s += 0.02
        self.count += 1
        self.eskf.measure(self.belief, "attitude", LEVEL)
        self.eskf.measure(self.belief, "velocity", self.velocity_std * self.rng.normal(size=3))
        if self.marker and self.count % 2 == 0:
            e = 0.005 * self.rng.normal(size=3)
            self.eskf.measure_marker(self.belief, P_CM + e, Q_CM, R_MARKER)
        return self.eskf.measure(self.belief, "position", HOVER + std * self.rng.normal(size=3) + np.asarray(offset))

    def run(self, steps, **options):
        return [self.step(**options) for _ in range(steps)]

    @property
    def scale(self):
        return self.belief.windows["position"].scale


def test_gate_rejects_the_stated_share_and_what_is_not_a_number():
    gate = Gate(0.99, 3)
    samples = np.random.default_rng(0).normal(size=(20000, 3))
    rejected = np.mean([not gate.accepts(nis) for nis in (samples**2).sum(axis=1)])
    assert rejected == pytest.approx(0.01, abs=0.002)
    assert not gate.accepts(float("nan"))
    assert gate.clip_factor(4 * gate.limit) == pytest.approx(0.5)
    assert gate.clip_factor(float("nan")) == 0.0


def test_one_five_metre_outlier_is_rejected_and_does_not_poison_the_noise(eskf, vehicle):
    hover = Hover(eskf, vehicle)
    hover.run(200)
    x, scale = hover.belief.x.copy(), hover.scale.copy()
    update = hover.step(offset=(5, 0, 0))
    assert not update.accepted
    assert np.linalg.norm(hover.belief.x[0:3] + hover.belief.x[13:16] - x[0:3] - x[13:16]) < 0.05
    limit = eskf.gates["position"].limit
    assert (hover.scale <= scale * (1 + limit / 50) + 1e-9).all()
    assert all(u.accepted for u in hover.run(20))


def test_an_outlier_of_any_size_has_the_same_bounded_influence(eskf, vehicle):
    scales = []
    for size in (5.0, 5e6):
        hover = Hover(eskf, vehicle)
        hover.run(200)
        hover.step(offset=(size, 0, 0))
        scales.append(hover.scale)
    np.testing.assert_allclose(scales[0], scales[1], rtol=1e-6)


def test_a_stream_of_outliers_cannot_open_its_own_gate(eskf, vehicle):
    hover = Hover(eskf, vehicle)
    hover.run(200)
    x = hover.belief.x.copy()
    for _ in range(500):
        direction = hover.rng.normal(size=3)
        update = hover.step(offset=5 * direction / np.linalg.norm(direction))
        assert not update.accepted
        assert (hover.scale <= SCALE_MAX**2 + 1e-9).all()
    assert np.linalg.norm(hover.belief.x[13:16] - x[13:16]) < 0.2
    assert hover.scale.max() > 4  # they were not ignored either
    hover.run(100)
    assert np.mean([u.accepted for u in hover.run(50)]) > 0.95
    assert hover.scale.max() < 3


def test_every_second_measurement_an_outlier_is_survived(eskf, vehicle):
    hover = Hover(eskf, vehicle, marker=True)
    hover.run(200)
    updates = [hover.step(offset=(5, 5, 0) if i % 2 else (0, 0, 0)) for i in range(400)]
    assert not any(u.accepted for u in updates[1::2])
    assert np.mean([u.accepted for u in updates[0::2]]) > 0.98
    assert np.abs(hover.belief.x[0:3] + hover.belief.x[13:16] - HOVER).max() < 0.3


@pytest.mark.parametrize("factor", [2.0, 3.0])
def test_a_real_change_of_noise_is_followed_up_and_down(eskf, vehicle, factor):
    hover = Hover(eskf, vehicle)
    hover.run(200)
    hover.run(200, std=0.1 * factor)
    updates = hover.run(200, std=0.1 * factor)
    scale = np.mean([u.noise_scale for u in updates])
    assert scale == pytest.approx(factor, rel=0.2)
    assert np.mean([u.accepted for u in updates]) > 0.98
    hover.run(100)
    assert np.mean([u.noise_scale for u in hover.run(100)]) < 1.2


@pytest.mark.parametrize("factor", [1.0, 2.5])
def test_marker_noise_is_followed_although_attitude_dominates_its_innovations(eskf, vehicle, factor):
    """Position innovations of the bundle are mostly attitude error times distance, correlated with the rotation."""
    hover = Hover(eskf, vehicle)
    claimed = np.array([0.0015, 0.0015, 0.008, 0.005, 0.005, 0.002])
    updates = []
    for i in range(1200):
        hover.step()
        if i % 2:
            e = factor * claimed * hover.rng.normal(size=6)
            q_CM = quat_multiply(Q_CM, quat_exp(e[3:6]))
            updates.append(eskf.measure_marker(hover.belief, P_CM + e[0:3], q_CM, np.diag(claimed**2)))
    scale = np.mean([u.noise_scale for u in updates[200:]])
    assert 0.8 * factor < scale < 1.3 * factor
    assert np.mean([u.accepted for u in updates[200:]]) > 0.97


def test_noise_is_never_below_nominal(eskf, vehicle):
    hover = Hover(eskf, vehicle)
    hover.run(300, std=0.0)
    assert (hover.scale >= 1.0).all()
    window = new_window("marker", 10)
    assert np.linalg.eigvalsh(window.noise(R_MARKER) - R_MARKER)[0] >= 0


def test_adapted_noise_is_positive_definite_and_keeps_correlations():
    rng = np.random.default_rng(0)
    M = rng.normal(size=(6, 6))
    R = M @ M.T + np.eye(6)
    window = new_window("marker", 10)
    for _ in range(30):
        window = window.with_innovation(100 * rng.uniform(size=6), np.ones(6), 1.0, 22.0)
    assert window.scale.max() > 4
    adapted = window.noise(R)
    assert np.linalg.eigvalsh(adapted)[0] > 0
    std, std_adapted = np.sqrt(R.diagonal()), np.sqrt(adapted.diagonal())
    np.testing.assert_allclose(adapted / std_adapted[:, None] / std_adapted, R / std[:, None] / std)


def test_a_new_gnss_level_goes_into_the_bias_and_leaves_the_marker_position_alone(eskf, vehicle):
    hover = Hover(eskf, vehicle, marker=True)
    hover.run(300)
    before, bias = hover.belief.copy(), hover.belief.x[13:16].copy()
    relative = eskf.relative(before)[0]
    jump = np.array([4.0, -3.0, 1.0])
    updates = hover.run(round(LEVEL_TIME_S / 0.02) - 2, offset=jump)
    assert not any(u.accepted for u in updates)
    np.testing.assert_allclose(hover.belief.x[13:16], bias, atol=0.15)
    updates = hover.run(100, offset=jump)
    assert all(u.accepted for u in updates[10:])
    np.testing.assert_allclose(hover.belief.x[13:16] - bias, jump, atol=0.2)
    assert np.linalg.norm(eskf.relative(hover.belief)[0] - relative) < 0.02
    assert np.linalg.norm(hover.belief.x[0:3] - before.x[0:3]) < 0.1


def test_history_drops_and_counts_what_is_too_old(eskf):
    history = History(eskf.start(10.0, HOVER, np.zeros(3), LEVEL), 1.0)
    assert not history.insert(Entry(9.9, "position", HOVER), 10.0)
    assert history.insert(Entry(10.5, "position", HOVER), 11.0)
    assert not history.insert(Entry(10.5, "position", HOVER), 11.6)
    assert history.dropped_late == 2


def test_history_is_bounded_and_keeps_an_anchor(eskf):
    history = History(eskf.start(0.0, HOVER, np.zeros(3), LEVEL), 1.0)
    moves = []

    def apply(belief, entry):
        moves.append(entry.stamp_s)
        belief.time_s = entry.stamp_s

    for i in range(1, 500):
        now = 0.02 * i
        history.insert(Entry(now, "position", HOVER), now)
        history.run(apply)
        history.forget(now)
    assert len(history) < 60
    assert len(moves) == 499  # in order: nothing is run twice
    history.insert(Entry(now - 0.5, "velocity", HOVER), now)
    history.run(apply)
    assert 520 < len(moves) < 530  # only what came after the late one


def test_history_re_runs_after_a_change_of_inputs(eskf):
    history = History(eskf.start(0.0, HOVER, np.zeros(3), LEVEL), 1.0)
    stamps = []
    for t in (0.1, 0.2, 0.3):
        history.insert(Entry(t, "position", HOVER), 0.3)
    history.run(lambda belief, entry: stamps.append(entry.stamp_s))
    history.touch(0.15)
    history.run(lambda belief, entry: stamps.append(entry.stamp_s))
    assert stamps == [0.1, 0.2, 0.3, 0.2, 0.3]
