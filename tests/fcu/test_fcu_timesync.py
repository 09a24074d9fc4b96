"""The clock filter: convergence, drift, one-sided delays, slow links, restarts."""

import random

import pytest

from companion.fcu.timesync import JUMP_SAMPLES, RESTART_ANSWERS, SLIP_MAX_S, SYNC_SAMPLES, TYPICAL_DELAY_S, TimeSync


class Wire:
    """A flight controller's clock behind a link with random delays each way."""

    def __init__(self, seed=1, offset_s=100.0, drift=0.0, base_s=0.001, jitter_s=0.0005):
        self.random = random.Random(seed)
        self.offset_s, self.drift, self.base_s, self.jitter_s = offset_s, drift, base_s, jitter_s
        self.extra_back_s = 0.0

    def true_offset(self, now_s):
        return self.offset_s + self.drift * now_s

    def exchange(self, sync, now_s):
        ts1 = sync.request(now_s)
        there = self.base_s + self.random.random() * self.jitter_s
        back = self.base_s + self.random.random() * self.jitter_s + self.extra_back_s
        fcu_s = now_s + there - self.true_offset(now_s + there)
        return sync.answer(round(fcu_s * 1e9), ts1, now_s + there + back)


def run(sync, wire, start_s, seconds, rate_hz=10.0):
    n = round(seconds * rate_hz)
    for i in range(n):
        wire.exchange(sync, start_s + i / rate_hz)
    return start_s + n / rate_hz


def test_synchronises_within_a_second_to_half_a_millisecond():
    sync, wire = TimeSync(), Wire()
    now_s = run(sync, wire, 50.0, 1.0)
    assert sync.synced
    assert sync.offset_at(now_s) == pytest.approx(100.0, abs=5e-4)


def test_before_synchronisation_stamps_are_estimates_and_marked_so():
    sync, wire = TimeSync(), Wire()
    run(sync, wire, 50.0, (SYNC_SAMPLES - 1) / 10)
    assert sync.stamp(12.0, 112.5) == (112.5 - TYPICAL_DELAY_S, False)


@pytest.mark.parametrize("drift", [50e-6, -100e-6])
def test_follows_a_drifting_clock_over_ten_minutes(drift):
    """The node's schedule: 10 Hz until settled, 2 Hz after."""
    sync, wire = TimeSync(), Wire(seed=2, drift=drift)
    now_s, worst_s = 10.0, 0.0
    while now_s < 610.0:
        wire.exchange(sync, now_s)
        now_s += 0.5 if sync.settled else 0.1
        if now_s > 15.0:
            worst_s = max(worst_s, abs(sync.offset_at(now_s) - wire.true_offset(now_s)))
    assert worst_s < 1e-3
    assert sync.resets == 0


def test_one_sided_delays_neither_pass_the_gate_nor_move_the_offset():
    sync, wire = TimeSync(), Wire(seed=3)
    now_s = run(sync, wire, 10.0, 20.0)
    for i in range(600):
        wire.extra_back_s = (0.0, 0.006, 0.050)[i % 3]  # six milliseconds pass the gate, fifty do not
        wire.exchange(sync, now_s + i * 0.1)
        assert abs(sync.offset_at(now_s + i * 0.1) - 100.0) < 1e-3
    assert sync.rejected == 200
    assert sync.resets == 0


def test_a_slow_serial_link_synchronises_through_an_adapted_gate():
    sync, wire = TimeSync(), Wire(seed=4, base_s=0.020, jitter_s=0.004)
    now_s = run(sync, wire, 10.0, 5.0)
    assert sync.synced
    assert sync.offset_at(now_s) == pytest.approx(100.0, abs=2e-3)


def test_a_restart_needs_several_answers_that_agree_and_resets_the_filter():
    sync, wire = TimeSync(), Wire(seed=5, offset_s=2.0)
    now_s = run(sync, wire, 100.0, 5.0)
    wire.offset_s = now_s  # its clock begins at zero now
    now_s += 3.0
    for i in range(RESTART_ANSWERS - 1):
        wire.exchange(sync, now_s + 0.1 * i)
        assert sync.restarts == 0 and sync.synced and not sync.settled  # requests are frequent
    wire.exchange(sync, now_s + 0.3)
    assert sync.restarts == 1
    assert not sync.synced
    now_s = run(sync, wire, now_s + 0.4, 2.0)
    assert sync.offset_at(now_s) == pytest.approx(wire.offset_s, abs=1e-3)


@pytest.mark.parametrize("error_s", [-1e9, -90.0, -50.0, -1.0, -0.2, -0.09, 0.09, 0.2, 1.0, 50.0, 1e9])
def test_one_answer_decides_nothing(error_s):
    """One forged or corrupted answer: no restart, no reset, and the offset moves by no more than `SLIP_MAX_S`."""
    sync, wire = TimeSync(), Wire(seed=5)
    now_s = run(sync, wire, 200.0, 20.0)
    for _ in range(20):
        ts1 = sync.request(now_s)
        sync.answer(round((now_s + error_s - 100.0) * 1e9), ts1, now_s + 0.002)
        assert abs(sync.offset_at(now_s) - 100.0) < SLIP_MAX_S + 0.001
        now_s = run(sync, wire, now_s + 0.1, 0.5)
    assert (sync.restarts, sync.resets) == (0, 0) and sync.synced
    assert sync.offset_at(now_s) == pytest.approx(100.0, abs=4e-3)  # what the next round trip proves


def test_wrong_answers_that_do_not_agree_are_no_restart():
    sync, wire = TimeSync(), Wire(seed=5)
    now_s = run(sync, wire, 200.0, 20.0)
    for i in range(50):
        now_s += 0.1
        ts1 = sync.request(now_s)
        sync.answer(round((50.0 - i) * 1e9), ts1, now_s + 0.002)
    assert sync.restarts == 0


def test_a_forward_jump_is_followed_when_it_persists_and_the_stamps_stay_trusted():
    sync, wire = TimeSync(), Wire(seed=6, offset_s=100.0)
    now_s = run(sync, wire, 10.0, 5.0)
    wire.offset_s = 99.0
    wire.exchange(sync, now_s)
    assert sync.resets == 0
    assert sync.offset_at(now_s) == pytest.approx(100.0, abs=1e-3)
    for i in range(1, JUMP_SAMPLES):
        wire.exchange(sync, now_s + 0.1 * i)
    assert sync.resets == 1
    assert sync.offset_at(now_s + 0.3) == pytest.approx(99.0, abs=2e-3)
    assert sync.synced and not sync.settled  # stamps stay valid, and requests are frequent until it has settled again
    now_s = run(sync, wire, now_s + 1.0, 2.0)
    assert sync.offset_at(now_s) == pytest.approx(99.0, abs=1e-3)


def test_answers_to_another_senders_request_and_repeated_answers_are_ignored():
    sync = TimeSync()
    assert not sync.answer(1_000_000_000, 123_456_789, 5.0)
    ts1 = sync.request(5.0)
    assert sync.answer(1_000_000_000, ts1, 5.002)
    assert not sync.answer(1_000_000_000, ts1, 5.004)
    assert sync.samples == 1


def test_a_stamp_is_never_in_the_future_and_never_follows_a_clock_that_restarted():
    sync, wire = TimeSync(), Wire(seed=7)
    now_s = run(sync, wire, 10.0, 5.0)
    stamp_s, good = sync.stamp(now_s - 100.0 + 0.003, now_s)
    assert good and stamp_s == now_s
    stamp_s, good = sync.stamp(0.5, now_s)  # boot time fell to half a second
    assert not good and stamp_s == now_s - TYPICAL_DELAY_S


def test_stamps_are_right_to_a_millisecond_while_arrivals_jitter():
    sync, wire = TimeSync(), Wire(seed=8, jitter_s=0.003)
    now_s = run(sync, wire, 10.0, 30.0)
    for i in range(100):
        true_s = now_s + 0.02 * i
        stamp_s, good = sync.stamp(true_s - 100.0, true_s + 0.004 + wire.random.random() * 0.02)
        assert good and stamp_s == pytest.approx(true_s, abs=1e-3)


class SteppingWire(Wire):
    """A simulated PX4 on a busy machine: its clock moves in steps of 4 ms and is stopped for 0.03 s now and then."""

    def __init__(self, rate, seed=5):
        super().__init__(seed=seed, base_s=0.0001, jitter_s=0.002)
        self.rate = rate
        self.stops: list[float] = []

    def true_offset(self, now_s):
        stopped_s = sum(0.03 for at_s in self.stops if at_s <= now_s)
        return 100.0 + self.rate * now_s + stopped_s

    def exchange(self, sync, now_s):
        ts1 = sync.request(now_s)
        there, back = (self.base_s + self.random.random() * self.jitter_s for _ in range(2))
        fcu_s = now_s + there - self.true_offset(now_s + there)
        fcu_s -= fcu_s % 0.004
        return sync.answer(round(fcu_s * 1e9), ts1, now_s + there + back)


def test_a_clock_that_slips_by_a_percent_is_followed_within_milliseconds():
    sync, wire = TimeSync(), SteppingWire(rate=0.01)
    wire.stops = [30.03 + 7.3 * i for i in range(10)]
    now_s, errors_s = 10.0, []
    while now_s < 100.0:
        wire.exchange(sync, now_s)
        if now_s > 15.0:
            errors_s.append(abs(sync.offset_at(now_s) - wire.true_offset(now_s)))
        now_s += 0.5 if sync.settled else 0.1
    assert sync.slips > 0 and sync.resets == 0
    assert max(errors_s) < 8e-3  # half a step, half the longest round trip, the margin


def test_the_offset_stays_within_the_bound_of_a_round_trip():
    """Half the round trip of every answer, and the margin, bound the error whatever the delays each way."""
    sync, wire = TimeSync(), Wire(seed=6)
    now_s = run(sync, wire, 10.0, 60.0)
    wire.offset_s += 0.02  # far below a jump, far above what the delays explain
    wire.exchange(sync, now_s)
    assert sync.offset_at(now_s) == pytest.approx(wire.true_offset(now_s), abs=0.004)
    assert not sync.settled  # requests are frequent until it has settled again


def test_a_steady_clock_has_no_slips():
    sync, wire = TimeSync(), Wire(seed=7, drift=100e-6, jitter_s=0.004)
    run(sync, wire, 10.0, 300.0, rate_hz=2.0)
    assert sync.slips == 0
