"""The sanity check of HIGHRES_IMU: wrong streams are found in time, unkind ones are used."""

import math

import numpy as np
import pytest

from companion.core.enums import ImuFault
from companion.core.frames import quat_exp, quat_from_rpy, quat_multiply, rotation_matrix
from companion.estimation.imu_check import GOOD_S, RATE_MIN_HZ, STOPPED_S, ImuCheck

G = 9.80665
STEP_S = 0.005


class Flight:
    """A hover in gusts: sums of sines in roll, pitch, yaw and position. The flight controller's errors are settable.

    swing_rad, heave_m: amplitudes; white_rad, tilt_rad, heading_rad: errors of its attitude; velocity_m_s: of its
    velocity, with a correlation of 1 s; wrong: (gyro, accel) -> (gyro, accel), what the stream makes of a good sample.
    """

    def __init__(
        self, seed=1, *, swing_rad=0.05, heave_m=0.3, white_rad=0.00175, tilt_rad=0.0, velocity_m_s=0.0, imu_hz=200
    ):
        self.rng = np.random.default_rng(seed)
        self.check = ImuCheck()
        self.t = 100.0
        self.swing_rad, self.heave_m = swing_rad, heave_m
        self.white_rad, self.tilt_rad, self.velocity_m_s = white_rad, tilt_rad, velocity_m_s
        self.c = velocity_m_s * self.rng.normal(size=3)
        self.phases = self.rng.uniform(0, 2 * np.pi, (6, 3))
        self.wrong = lambda gyro, force: (gyro, force)
        self.shift_s = lambda t: 0.0  # of the stamps
        self.heading_rad = lambda t: 0.0
        self.kick_m_s = lambda t: np.zeros(3)
        self.gyro_bias, self.accel_bias, self.vibration = np.zeros(3), np.zeros(3), 0.15
        self.drag_W = np.zeros(3)  # specific force of the air
        self.imu_hz, self.alive, self.at_rest = imu_hz, True, False
        self.used = []  # (time, use) of every sample that was sent
        self._last = None

    def rpy(self, t):
        """The thrust follows the acceleration; beyond it wind tilts the aircraft."""
        east, north, _ = (self.velocity(t + 1e-3) - self.velocity(t - 1e-3)) / 2e-3
        roll, pitch = (
            tilt + self.swing_rad * sum(np.sin(w * t + self.phases[i, j]) for j, w in enumerate((1.1, 2.7, 4.9))) / 1.2
            for i, tilt in enumerate((-north / G, east / G))
        )
        return np.array((roll, pitch, 2 * self.swing_rad * np.sin(0.5 * t)))

    def position(self, t):
        waves = ((0.7, 1.0), (1.9, 0.5), (3.1, 0.2))
        return self.heave_m * np.array(
            [sum(a * np.sin(w * t + self.phases[3 + i, j]) for j, (w, a) in enumerate(waves)) for i in range(3)]
        )

    def velocity(self, t):
        return (self.position(t + 1e-4) - self.position(t - 1e-4)) / 2e-4

    def sample(self, start, end):
        """Means of an interval: ω_B, and f_B by the change of the velocity."""
        q0, q1 = quat_from_rpy(*self.rpy(start)), quat_from_rpy(*self.rpy(end))
        conjugate = np.array((q0[0], *(-np.asarray(q0[1:]))))
        turn = 2 * np.asarray(quat_multiply(conjugate, q1))[1:] / (end - start)
        a_W = (self.velocity(end) - self.velocity(start)) / (end - start) + (0, 0, G)
        R = rotation_matrix(quat_from_rpy(*self.rpy((start + end) / 2)))
        return turn, R.T @ a_W

    def run(self, duration_s):
        for _ in range(round(duration_s / STEP_S)):
            self._step()
        return self

    def _step(self):
        t, rng = round(self.t + STEP_S, 9), self.rng
        self.t, tick = t, round(t / STEP_S)
        self.check.set_at_rest(self.at_rest)
        every = round(1 / self.imu_hz / STEP_S)
        if self.alive and tick % every == 0:
            gyro, force = self.sample(t - every * STEP_S, t)
            gyro = gyro + self.gyro_bias + 0.005 * rng.normal(size=3)
            force = force + self.accel_bias + self.vibration * rng.normal(size=3)
            gyro, force = self.wrong(gyro, force)
            stamp = t + self.shift_s(t)
            verdict = self.check.add(stamp, tuple(map(float, gyro)), tuple(map(float, force)), t + 0.02)
            self.used.append((t, verdict.use))
        if tick % 4 == 0:
            error = quat_multiply(quat_exp((self.tilt_rad, 0.0, self.heading_rad(t))), quat_from_rpy(*self.rpy(t)))
            q = quat_multiply(error, quat_exp(self.white_rad * rng.normal(size=3)))
            self.check.add_attitude(t, tuple(map(float, q)))
        if tick % 6 == 0:
            keep = math.exp(-6 * STEP_S)
            self.c = keep * self.c + self.velocity_m_s * math.sqrt(1 - keep**2) * rng.normal(size=3)
            v = self.velocity(t) + self.c + self.kick_m_s(t) + 0.03 * rng.normal(size=3)
            self.check.add_velocity(t, tuple(map(float, v)))
        if tick % 2 == 0:
            self.check.note_time(t)

    def first_refused_s(self, since_s):
        return next((t - since_s for t, use in self.used if t > since_s and not use), math.inf)


def resting(**options):
    flight = Flight(swing_rad=0.0, heave_m=0.0, **options)
    flight.at_rest = True
    return flight


SWAPPED_XY = lambda gyro, force: (gyro[[1, 0, 2]], force[[1, 0, 2]])  # noqa: E731
SWAPPED_XZ = lambda gyro, force: (gyro[[2, 1, 0]], force[[2, 1, 0]])  # noqa: E731
INVERTED = lambda gyro, force: (-gyro, -force)  # noqa: E731


# --- healthy streams ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed, swing_rad", [(0, 0.0), (1, 0.01), (2, 0.05), (3, 0.1)])
def test_an_unkind_healthy_stream_is_always_used(seed, swing_rad):
    """Every error of docs at its limit together: attitude, velocity, biases, vibration, kicks of GNSS."""
    flight = Flight(seed, swing_rad=swing_rad, white_rad=0.006, tilt_rad=math.radians(1.5), velocity_m_s=0.2)
    flight.gyro_bias, flight.accel_bias = np.full(3, 0.02 / math.sqrt(3)), np.full(3, 0.3 / math.sqrt(3))
    flight.vibration = 3.0
    flight.kick_m_s = lambda t: (0.5 * math.exp(-(t - 106)) if t > 106 else 0.0) * np.ones(3) / math.sqrt(3)
    flight.run(15.0)
    assert all(use for _, use in flight.used) and flight.check.fault is None and flight.check.problem == ""
    assert sum(flight.check.rejected.values()) == 0
    assert flight.check.rate_hz == pytest.approx(200.0, rel=0.01)


def test_a_healthy_stream_at_rest_is_used():
    flight = resting(tilt_rad=math.radians(1.5))
    flight.accel_bias = np.array((0.0, 0.3, 0.0))  # in the direction of the tilt
    assert all(use for _, use in flight.run(10.0).used)


def test_an_aircraft_that_lies_on_its_side_or_its_back_is_no_fault():
    check = ImuCheck()
    for q, force_B in (((0.5**0.5, 0.5**0.5, 0.0, 0.0), (0.0, G, 0.0)), ((0.0, 1.0, 0.0, 0.0), (0.0, 0.0, -G))):
        check.add_attitude(100.0, q)
        for i in range(600):
            assert check.add(100.0 + STEP_S * i, (0.0, 0.0, 0.0), force_B, 100.0 + STEP_S * i).use
            if i % 4 == 0:
                check.add_attitude(100.0 + STEP_S * i, q)
        check = ImuCheck()


def test_an_impact_is_no_fault():
    flight = Flight().run(3.0)
    for direction in (0, 1, 2):
        push = -100.0 * np.eye(3)[direction]
        flight.wrong = lambda gyro, force, push=push: (gyro, force + push)
        flight.run(STEP_S)
        flight.wrong = lambda gyro, force: (gyro, force)
        flight.run(1.0)
    assert all(use for _, use in flight.used)


def test_a_heading_that_iron_turns_and_resets_of_the_estimator_are_no_fault_of_the_imu():
    flight = Flight(swing_rad=0.01)
    flight.heading_rad = lambda t: math.radians(20) * (1 - math.exp(-(t - 105) / 2.0)) if t > 105 else 0.0
    flight.run(12.0)
    flight.heading_rad = lambda t: 1.0  # a reset of the heading, and of the velocity
    flight.kick_m_s = lambda t: np.array((6.0, 0.0, 0.0))
    flight.run(8.0)
    assert all(use for _, use in flight.used)


def test_fifty_hertz_with_lost_samples_is_used():
    flight = Flight(imu_hz=50)
    flight.run(5.0)
    assert all(use for _, use in flight.used)


# --- wrong streams --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [SWAPPED_XZ, INVERTED, lambda gyro, force: (gyro, force / G), lambda gyro, force: (gyro, 1.3 * force)],
    ids=["swapped", "inverted", "unit", "scale"],
)
def test_a_wrong_stream_is_found_on_the_ground(wrong):
    flight = resting()
    flight.wrong = wrong
    flight.run(3.0)
    assert flight.check.fault in (ImuFault.DIRECTION, ImuFault.FORCES) and "check" in flight.check.problem
    assert flight.first_refused_s(100.0) < 1.0 and not flight.used[-1][1]
    assert flight.check.rejected[flight.check.fault] > 300


@pytest.mark.parametrize("wrong", [SWAPPED_XZ, INVERTED], ids=["swapped", "inverted"])
def test_forces_that_are_swapped_or_inverted_are_found_at_once_in_flight(wrong):
    flight = Flight().run(3.0)
    flight.wrong = wrong
    flight.run(2.0)
    assert flight.check.fault is ImuFault.DIRECTION and flight.first_refused_s(103.0) <= 0.04


@pytest.mark.parametrize(
    "wrong",
    [
        SWAPPED_XY,
        lambda gyro, force: (-gyro, force),
        lambda gyro, force: (gyro * (-1, 1, 1), force),
        lambda gyro, force: (np.degrees(gyro), force),
        lambda gyro, force: (2.0 * gyro, force),
    ],
    ids=["swapped x y", "inverted", "one axis", "degrees", "scale"],
)
def test_wrong_rates_are_found_in_flight(wrong):
    flight = Flight(swing_rad=0.08).run(2.0)
    begin_s, flight.wrong = flight.t, wrong
    flight.run(4.0)
    assert flight.check.fault is ImuFault.TURNS and flight.first_refused_s(begin_s) < 3.0
    assert flight.used[-1][1] is False


@pytest.mark.parametrize("axis", range(6))
@pytest.mark.parametrize("at_rest", [False, True])
def test_an_axis_that_is_dead_is_found_within_a_second(at_rest, axis):
    """A dead axis is 0 less the bias that the flight controller estimates: it changes once a second."""
    flight = (resting() if at_rest else Flight()).run(3.0)
    assert flight.check.fault is None

    def wrong(gyro, force):
        sample = np.concatenate((gyro, force))
        sample[axis] = 0.001 * (math.floor(flight.t) % 10) + (9.81 if axis == 5 else 0.0)
        return sample[:3], sample[3:]

    begin_s, flight.wrong = flight.t, wrong
    flight.run(10.0)
    assert flight.check.fault is ImuFault.FROZEN and flight.first_refused_s(begin_s) < 1.0
    assert not any(use for t, use in flight.used if t > begin_s + 1.0)
    flight.wrong = lambda gyro, force: (gyro, force)
    flight.run(GOOD_S + 5.0)  # the turns that were not measured fade first
    assert flight.check.fault is None and flight.used[-1][1]


def test_a_simulator_without_noise_that_stands_still_is_no_fault():
    flight = resting(white_rad=0.0)
    flight.wrong = lambda gyro, force: (np.zeros(3), np.array((0.0, 0.0, G)))
    flight.run(5.0)
    assert all(use for _, use in flight.used)


def test_wrong_rates_are_found_when_the_stack_starts_in_flight():
    flight = Flight(swing_rad=0.08)
    flight.wrong = SWAPPED_XY
    flight.run(4.0)
    assert flight.check.fault is ImuFault.TURNS and flight.first_refused_s(100.0) < 3.0


def test_rates_about_the_vertical_with_the_wrong_sign_are_found_while_the_aircraft_turns():
    flight = Flight(swing_rad=0.4)
    flight.wrong = lambda gyro, force: (gyro * (1, 1, -1), force)
    flight.run(10.0)
    assert flight.check.rejected[ImuFault.TURNS] > 0


def test_a_wrong_unit_is_found_in_flight():
    flight = Flight().run(3.0)
    flight.wrong = lambda gyro, force: (gyro, force / G)
    flight.run(2.0)
    assert flight.check.fault is ImuFault.FORCES and flight.first_refused_s(103.0) < 0.8


def test_hard_flight_in_strong_wind_is_no_fault():
    """Accelerations of 6 m/s² and forces of the air of 5 m/s²."""
    flight = Flight(swing_rad=0.2, heave_m=1.5)
    flight.vibration = 3.0
    assert all(use for _, use in flight.run(10.0).used)


def test_a_constant_force_that_is_not_there_is_found():
    flight = Flight().run(5.0)
    flight.accel_bias = np.array((3.0, 0.0, 0.0))
    flight.run(5.0)
    assert flight.check.fault is ImuFault.FORCES


# --- rate, stamps, stops --------------------------------------------------------------------------------------------


def test_a_stream_of_twenty_hertz_is_not_used_and_says_its_rate():
    flight = Flight(imu_hz=20).run(4.0)
    assert flight.check.fault is ImuFault.SLOW and flight.check.problem == "slower than 45 Hz"
    assert flight.check.rate_hz == pytest.approx(20.0, rel=0.01) and flight.check.rate_hz < RATE_MIN_HZ
    assert sum(use for _, use in flight.used) < 12


def test_a_stream_that_becomes_slow_is_withdrawn_and_used_again_when_it_is_fast():
    flight = Flight().run(3.0)
    flight.imu_hz = 20
    flight.run(3.0)
    assert flight.check.fault is ImuFault.SLOW
    flight.imu_hz = 200
    flight.run(GOOD_S + 1.5)
    assert flight.check.fault is None and flight.used[-1][1]


@pytest.mark.parametrize("shift_s", [-3.0, -0.7])
def test_stamps_that_jump_are_counted_and_not_used(shift_s):
    flight = Flight().run(3.0)
    flight.shift_s = lambda t: shift_s
    flight.run(min(1.0, -shift_s - 0.51))
    jumped = [use for t, use in flight.used if t > 103.0]
    assert not any(jumped) and flight.check.rejected[ImuFault.STAMPS] >= len(jumped) - 5
    flight.shift_s = lambda t: 0.0
    flight.run(GOOD_S + 2.0)
    assert flight.used[-1][1] and flight.check.fault is None


def test_a_late_sample_is_used_and_does_not_disturb_the_judgement():
    check = Flight().run(3.0).check
    assert check.add(102.65, (0.0, 0.0, 0.0), (0.0, 0.0, G), 103.02).use
    assert check.rejected[ImuFault.STAMPS] == 0


def test_samples_that_come_late_in_order_are_used():
    """An interrupted link delivers what it has kept."""
    flight = Flight().run(3.0)
    add = flight.check.add
    flight.check.add = lambda stamp_s, gyro, force, now_s: add(stamp_s, gyro, force, now_s + 0.8)
    flight.run(2.0)
    flight.check.add_unusable(flight.t, flight.t + 0.8)  # too old for the link
    assert all(use for _, use in flight.used) and not sum(flight.check.rejected.values())


def test_a_stamp_ahead_of_the_clock_is_counted():
    check = Flight().run(3.0).check
    check.add_unusable(103.7, 103.0)
    check.add_unusable(102.99, 103.0)  # as the link gives it: the time of its arrival
    assert check.rejected[ImuFault.STAMPS] == 2


def test_a_stream_that_stops_is_named_once_and_used_again_at_once():
    flight = Flight().run(3.0)
    flight.alive = False
    flight.run(STOPPED_S + 0.5)
    assert flight.check.fault is ImuFault.STOPPED and flight.check.rate_hz == 0.0
    assert flight.check.rejected[ImuFault.STOPPED] == 1 and flight.check.problem == "the stream has stopped"
    flight.alive = True
    flight.run(1.0)
    assert flight.check.fault is None and all(use for _, use in flight.used)
    assert flight.check.rejected[ImuFault.STOPPED] == 1


def test_a_stream_that_was_wrong_before_it_stopped_stays_wrong():
    flight = resting().run(2.0)
    flight.wrong = INVERTED
    flight.run(1.0)
    flight.alive = False
    flight.run(5.0)
    assert flight.check.fault is ImuFault.DIRECTION and flight.check.rejected[ImuFault.STOPPED] == 1


def test_a_stream_that_never_began_is_no_fault():
    flight = Flight()
    flight.alive = False
    flight.check.add_unusable(99.0, 100.0)
    flight.run(5.0)
    assert flight.check.fault is None and flight.check.rate_hz == 0.0 and not sum(flight.check.rejected.values())


# --- trust ----------------------------------------------------------------------------------------------------------


def test_a_refused_stream_is_used_again_after_a_good_stretch_and_later_after_a_relapse():
    flight = Flight().run(5.0)
    gaps = []
    for _ in range(2):
        flight.wrong = INVERTED
        flight.run(1.0)
        assert not flight.used[-1][1]
        begin_s, flight.wrong = flight.t, lambda gyro, force: (gyro, force)
        flight.run(14.0)
        gaps.append(next(t - begin_s for t, use in flight.used if t > begin_s and use))
    assert gaps[0] >= GOOD_S and gaps[1] > 2 * GOOD_S and flight.check.fault is None


def test_the_samples_before_a_fault_was_found_are_withdrawn_once():
    flight = Flight().run(5.0)
    withdrawn = []
    add = flight.check.add

    def note(*arguments):
        verdict = add(*arguments)
        if verdict.withdraw_s < math.inf:
            withdrawn.append((arguments[0], verdict.withdraw_s))
        return verdict

    flight.check.add, flight.wrong = note, INVERTED
    flight.run(2.0)
    assert len(withdrawn) == 1 and withdrawn[0][1] < 105.0 < withdrawn[0][0]
