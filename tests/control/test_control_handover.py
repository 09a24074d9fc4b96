"""The first seconds in offboard: setpoints of PX4's attitude, a smooth stop, and an estimate that is corrected."""

import math

import msgspec
import numpy as np
import pytest
from control_plant import STATE_AGE_S, Loop

from companion.control.correction_smoothing import HANDOVER_S, HANDOVER_TIME_S, LARGEST_M, CorrectionSmoothing
from companion.control.solver import NmpcResult
from companion.control.tilt_offset import OFFSET_MAX_RAD, TiltOffset
from companion.core.enums import FcuMode
from companion.core.frames import quat_from_rpy
from companion.core.messages import WORLD, FcuAttitude, Reference
from companion.mission.handover import ACCELERATION_MAX_M_S2, come_to_rest

WIND_M_S2 = 2.7  # 8 m/s of wind on the F550
HANDOVER_AT_S = 1.0


class Failing:
    """A solver that never succeeds: the fallback flies."""

    def __init__(self, nmpc):
        self._nmpc = nmpc
        self.times_s, self.step_s, self.set_plane, self.shift = nmpc.times_s, nmpc.step_s, nmpc.set_plane, nmpc.shift

    def solve(self, x0, references, parameters):
        result = self._nmpc.solve(x0, references, parameters)
        return NmpcResult(4, result.inputs, result.states, result.solve_time_s, result.qp_iterations)


class Flown(Loop):
    """An aircraft in wind that a pilot flies with constant acceleration to a velocity, then hands over."""

    def __init__(self, vehicle, nmpc, v, a=(0.0, 0.0, 0.0), **options):
        super().__init__(vehicle, nmpc, **options)
        self.pilot_v, self.pilot_a = np.array(v), np.array(a)
        self.mode = FcuMode.POSCTL
        self.begins_s = self.now_s

    def fly(self, seconds):
        """Until the hand-over the reference follows as in `ENTER_OFFBOARD`; then it stays."""
        plant = self.plant
        plant.disturbance_W = np.array([0.0, WIND_M_S2, 0.0])
        plant.observed_W = plant.disturbance_W.copy()

        def before_step(loop):
            t = loop.now_s - loop.begins_s
            if t >= HANDOVER_AT_S:
                loop.mode = FcuMode.OFFBOARD
                return
            left = HANDOVER_AT_S - t  # the acceleration is that of the hand-over
            plant.v = loop.pilot_v - left * loop.pilot_a
            drag = 1.4 * plant.parameters[1:4] + 0.05
            force = loop.pilot_a + drag * plant.v + [0, 0, 9.80665] - plant.disturbance_W
            plant.rpy[:2] = math.atan2(-force[1], math.hypot(force[0], force[2])), math.atan2(force[0], force[2])
            plant.thrust = float(np.linalg.norm(force)) / (plant.parameters[0] * plant.thrust_gain)
            plant.command = (plant.thrust, plant.rpy[0], plant.rpy[1], 0.0, 0.0)
            plant.pending.clear()
            state = loop.state()
            if round(t / 0.02) % 3 == 0:
                trajectory = come_to_rest(state, plant.vehicle, loop.now_s)
                number = 1 if loop.reference is None else loop.reference.id + 1
                loop.reference = Reference(
                    stamp_s=loop.now_s, id=number, frame=WORLD, start_s=loop.now_s, trajectory=trajectory
                )

        self.run(seconds, before_step)
        self.first = round(HANDOVER_AT_S * self.node.rate_hz)  # index of the first setpoint that acts
        return self


def attitude_held(loop):
    """Roll and pitch of the pilot's flight at the hand-over."""
    plant = loop.plant
    force = loop.pilot_a + (1.4 * plant.parameters[1:4] + 0.05) * loop.pilot_v + [0, 0, 9.80665] - [0, WIND_M_S2, 0]
    return np.array([math.atan2(-force[1], math.hypot(force[0], force[2])), math.atan2(force[0], force[2])])


@pytest.mark.parametrize("solver", ["nmpc", "pid"])
@pytest.mark.parametrize(
    "v, a, within_degrees",
    [
        ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 0.5),
        ((0.15, -0.1, 0.05), (0.0, 0.0, 0.0), 2.0),
        ((1.5, 0.0, 0.0), (0.0, 0.0, 0.0), 2.5),  # the NMPC begins to brake a response of the attitude ahead
        ((0.0, 1.5, 0.0), (0.0, 0.0, 0.0), 2.5),
        ((1.0, 1.0, 0.3), (-1.5, 0.0, 0.0), 2.5),
        ((1.5, 0.0, 0.0), (1.5, 0.0, 0.0), 4.0),
    ],
    ids=["at rest", "drifting", "forward", "with the wind", "braking", "speeding up"],
)
def test_the_first_setpoint_is_about_the_attitude_and_the_aircraft_stops(vehicle, nmpc, solver, v, a, within_degrees):
    """With a reference at rest, the first setpoint of a pilot's 1.5 m/s was 26° away, with steps of 5°."""
    loop = Flown(vehicle, nmpc if solver == "nmpc" else Failing(nmpc), v, a).fly(HANDOVER_AT_S + 6.0)
    tilts = loop.commands()[loop.first :, 1:]
    assert np.degrees(np.abs(tilts[0] - attitude_held(loop))).max() < within_degrees
    assert np.degrees(np.abs(np.diff(tilts, axis=0))).max() < 3.0
    assert np.abs(tilts).max() <= vehicle.controller.tilt_max_rad
    begins, stop = loop.positions[loop.first], loop.reference.trajectory.p_end
    assert math.dist(loop.positions[-1], stop) < 0.03
    farthest_m = np.linalg.norm(np.array(loop.positions[loop.first :]) - begins, axis=1).max()
    assert farthest_m < math.dist(begins, stop) + (0.05 if solver == "nmpc" else 0.25)


def test_an_acceleration_that_is_no_manoeuvre_is_not_continued(vehicle):
    loop = Flown(vehicle, None, (1.0, 0.0, 0.0))
    state = msgspec.structs.replace(loop.state(), q_WB=tuple(quat_from_rpy(0.0, 1.5, 0.0).tolist()))
    move = come_to_rest(state, vehicle, loop.now_s)
    assert math.hypot(*move.a_start) == pytest.approx(ACCELERATION_MAX_M_S2)
    assert move.a_start[2] == 0.0


# --- corrections of the estimate ---


def with_jump(loop, at_s, jump_W):
    """From a time on the estimated position is wrong by a jump."""
    loop.edit_state = lambda s: (
        s if s.stamp_s < at_s else msgspec.structs.replace(s, p_W=tuple(np.add(s.p_W, jump_W).tolist()))
    )


@pytest.mark.parametrize("after_s, least_m, most_m", [(0.5, 0.0, 0.02), (HANDOVER_S + 0.5, 0.03, 0.1)])
def test_a_correction_of_the_position_moves_the_aircraft_only_later(vehicle, nmpc, after_s, least_m, most_m):
    """Corrections of 9 cm half a second after the hand-over moved the aircraft by as much."""
    loop = Flown(vehicle, nmpc, (0.0, 0.0, 0.0))
    at_s = loop.now_s + HANDOVER_AT_S + after_s
    with_jump(loop, at_s, (0.0, 0.04, 0.0))
    loop.fly(HANDOVER_AT_S + after_s + 1.2)
    path = np.array(loop.positions[loop.first :])
    assert least_m <= np.linalg.norm(path - path[0], axis=1).max() < most_m


def test_in_the_hand_over_small_corrections_are_held_back_until_a_new_reference(vehicle):
    loop = Flown(vehicle, None, (0.0, 0.0, 0.0))
    smoothing = CorrectionSmoothing()

    def offset(at_s, x):
        state = msgspec.structs.replace(loop.state(), stamp_s=at_s, p_W=(x, 0.0, 0.0), v_W=(0.0, 0.0, 0.0))
        return smoothing.offset_W(state, WORLD)[0]

    smoothing.hand_over(0.0, 1)
    offset(0.0, 0.0)
    assert offset(0.05, 0.02) == pytest.approx(0.02)
    smoothing.hand_over(0.06, 1)  # the same reference
    assert offset(0.1, 0.02) == pytest.approx(0.02 * math.exp(-0.05 / HANDOVER_TIME_S), rel=1e-6)
    smoothing.hand_over(0.11, 2)  # it began after the correction
    assert offset(0.15, 0.02) == 0.0
    assert offset(0.2, 5.0) == pytest.approx(LARGEST_M)
    smoothing.forget()
    offset(0.2 + HANDOVER_S, 0.0)
    assert offset(0.25 + HANDOVER_S, 0.02) == 0.0  # the ordinary work of the filter


# --- the flight controller's own tilt ---


@pytest.mark.parametrize("degrees", [-2.0, 1.0])
def test_a_wrong_tilt_of_the_flight_controller_moves_no_hold(vehicle, nmpc, degrees):
    """Without the offset in the setpoint: 2 cm per degree and axis."""
    loop = Loop(vehicle, nmpc, tilt_error=(math.radians(degrees), math.radians(-degrees)))
    loop.hold((0.0, 0.0, 2.0))
    loop.run(6)
    assert np.linalg.norm(np.array(loop.positions[-50:]) - [0.0, 0.0, 2.0], axis=1).max() < 0.005


def test_broken_rates_of_the_flight_controller_break_no_command(vehicle, nmpc):
    loop = Loop(vehicle, nmpc)
    loop.hold((0.0, 0.0, 2.0))
    loop.plant.p[0] += 0.03  # it moves: an attitude that repeats to the last bit counts as old
    handle = loop.node.handle

    def broken(message, now_s):
        if isinstance(message, FcuAttitude):
            message = msgspec.structs.replace(message, omega_B=(math.nan, math.inf, 0.0))
        return handle(message, now_s)

    loop.node.handle = broken
    loop.run(1)
    assert len(loop.setpoints) == len(loop.times) - 1  # all but the first, without a state
    assert np.isfinite(loop.commands()).all()
    assert math.dist(loop.positions[-1], (0.0, 0.0, 2.0)) < 0.05


def test_the_tilt_offset_is_an_average_within_a_bound(vehicle):
    loop = Loop(vehicle, None)
    offset = TiltOffset()
    assert offset.value == (0.0, 0.0)
    state = loop.state()

    def update(at_s, roll, rate=0.0):
        q = tuple(quat_from_rpy(roll, 0.0, 1.0).tolist())  # another heading
        stamp_s = at_s - STATE_AGE_S
        attitude = FcuAttitude(stamp_s=stamp_s, q_WB=q, omega_B=(rate, 0.0, 0.0))
        offset.update(msgspec.structs.replace(state, stamp_s=at_s), attitude)
        return offset.value[0]

    assert update(0.0, 0.02) == pytest.approx(0.02)
    assert update(0.1, 0.03) == pytest.approx(0.02 + 0.01 * (1 - math.exp(-0.1)), rel=1e-6)
    for i in range(2, 100):
        last = update(0.1 * i, 0.02, rate=1.0)
    assert last == pytest.approx(0.02 + STATE_AGE_S, abs=1e-4)  # it turned meanwhile
    for i in range(100, 300):
        last = update(0.1 * i, 0.5)
    assert last == pytest.approx(OFFSET_MAX_RAD, rel=1e-3)
    offset.reset()
    assert offset.value == (0.0, 0.0)
