"""The controller node in closed loop with a plant that differs from its model (control_plant.py)."""

import itertools
import math

import msgspec
import numpy as np
import pytest
from control_plant import Loop

from companion.control.controller import PLAN_REUSE_CYCLES, ControllerNode
from companion.control.fallback import BLEND_TIME_S
from companion.control.solver import Nmpc
from companion.core.clock import SimulatedStopwatch
from companion.core.enums import FcuMode
from companion.core.frames import quat_from_matrix, wrap_angle
from companion.core.messages import ControlStatus, Setpoint

HOME = (0.0, 0.0, 2.0)


def failing(nmpc):
    """The solver with a switch: while `.broken`, every solution reports a failed QP."""

    class Failing:
        def __init__(self):
            self.broken = False

        def __getattr__(self, name):
            return getattr(nmpc, name)

        def solve(self, *arguments):
            result = nmpc.solve(*arguments)
            if self.broken:
                nmpc.reset()
                return result._replace(status=4, inputs=result.inputs * np.nan)
            return result

    return Failing()


class SilentNode:
    """Replaces a crashed controller: takes messages, sends nothing."""

    def __init__(self, node):
        self.rate_hz = node.rate_hz

    def handle(self, message, now_s):
        pass

    def step(self, now_s):
        return []


def error_m(loop, target=HOME):
    return float(np.linalg.norm(loop.plant.p - target))


def test_hover_settles_on_the_point_with_a_wrong_plant(vehicle, nmpc):
    loop = Loop(vehicle, nmpc, p=(0.5, -0.3, 1.7))
    loop.hold(HOME)
    loop.run(8)
    assert error_m(loop) < 0.005
    assert all(s.active == "nmpc" for s in loop.statuses[1:])  # the first state is still in transit


def test_hover_is_free_of_offset_under_a_constant_disturbance(vehicle, nmpc):
    loop = Loop(vehicle, nmpc)
    loop.hold(HOME)
    loop.run(2)
    loop.plant.disturbance_W = np.array([1.5, -0.8, 0.4])
    loop.run(10)
    assert error_m(loop) < 0.005
    assert np.linalg.norm(np.array(loop.positions) - HOME, axis=1).max() < 0.25


@pytest.mark.parametrize(("gust_m_s2", "height_m"), [(5.0, 0.1), (6.0, 0.15), (8.0, 0.5)])
def test_a_gust_from_the_side_that_the_tilt_cannot_hold_costs_little_height(vehicle, nmpc, gust_m_s2, height_m):
    """29° hold 5.4 m/s². With a plan that foresaw the whole drift, 6 m/s² cost 0.5 m, and in flight 1.4 m."""
    loop = Loop(vehicle, nmpc)
    loop.hold(HOME)
    loop.run(3)
    begin = len(loop.positions)
    loop.plant.disturbance_W = np.array([0.0, gust_m_s2, 0.0])
    loop.run(1)
    loop.plant.disturbance_W = np.zeros(3)
    loop.run(5)
    height = np.array(loop.positions)[begin:, 2] - HOME[2]
    assert np.abs(height).max() < height_m
    assert error_m(loop) < 0.01


def test_a_heading_that_jumps_between_half_turns_changes_no_command(vehicle, nmpc):
    """Hover with the nose at ±180°: noise flips the sign of the estimated heading; the commands stay constant."""
    loop = Loop(vehicle, nmpc, yaw=math.pi)
    loop.hold(HOME, yaw=math.pi)
    loop.plant.disturbance_W = np.array([1.5, -0.8, 0.0])  # a level aircraft would not show it
    loop.run(8)
    settled = loop.commands()[-1]
    cycles = itertools.count()

    def flip_heading(_):
        loop.plant.rpy[2] = math.copysign(math.pi - 0.002, (-1) ** next(cycles))

    before = len(loop.setpoints)
    loop.run(2, before_step=flip_heading)
    assert next(cycles) > 50
    assert np.abs(loop.commands()[before:] - settled).max() < 0.05
    assert error_m(loop) < 0.02


def test_without_the_estimated_disturbance_there_is_an_offset(vehicle, nmpc):
    """Counterpart of the test above: the estimated disturbance removes the offset."""
    loop = Loop(vehicle, nmpc, observe=False)
    loop.hold(HOME)
    loop.plant.disturbance_W = np.array([1.5, -0.8, 0.4])
    loop.run(8)
    assert error_m(loop) > 0.1


def test_a_move_is_tracked_and_finished(vehicle, nmpc):
    loop = Loop(vehicle, nmpc)
    loop.hold(HOME)
    loop.run(3)
    loop.move(HOME, (3.0, 2.0, 3.0), yaw_end=2.0)
    loop.statuses.clear()
    loop.run(11)
    errors = np.array([s.position_error_m for s in loop.statuses])
    assert errors.max() < 0.05
    assert not loop.statuses[50].reference_finished
    assert loop.statuses[-1].reference_finished
    assert error_m(loop, (3, 2, 3)) < 0.01
    assert abs(wrap_angle(loop.plant.rpy[2] - 2.0)) < math.radians(0.5)


@pytest.mark.parametrize("heading_error_degrees", [5.0, -5.0])
def test_yaw_and_position_have_no_offset_when_the_fcus_heading_is_off(vehicle, nmpc, heading_error_degrees):
    loop = Loop(vehicle, nmpc, heading_error=math.radians(heading_error_degrees))
    loop.hold(HOME, yaw=0.5)
    loop.run(12)
    assert abs(loop.plant.rpy[2] - 0.5) < math.radians(0.1)
    assert error_m(loop) < 0.005


def test_a_reference_in_a_bundles_frame_is_flown_to(vehicle, nmpc):
    R = np.array([[0, 0, -1.0], [-1, 0, 0], [0, 1, 0]])  # a face towards -x of W
    loop = Loop(vehicle, nmpc, p=(0.8, 0.1, 2.0))
    loop.bundle = ("pier", (5.0, 0.0, 2.0), tuple(quat_from_matrix(R).tolist()))
    loop.hold((0.0, 0.0, 4.0), frame="pier")
    loop.run(7)
    assert error_m(loop, (1.0, 0.0, 2.0)) < 0.01
    assert abs(wrap_angle(loop.plant.rpy[2])) < math.radians(0.2)


def test_failed_solutions_lead_to_the_fallback_and_back_without_a_jump(vehicle, nmpc):
    solver = failing(nmpc)
    loop = Loop(vehicle, solver)
    loop.hold(HOME)
    loop.plant.disturbance_W = np.array([1.2, 0.6, 0.0])
    loop.run(5)
    quiet = np.abs(np.diff(loop.commands(), axis=0))[-50:].max()
    loop.setpoints.clear(), loop.statuses.clear(), loop.positions.clear()
    solver.broken = True
    loop.run(4)
    solver.broken = False
    loop.run(3)
    sources = [s.source for s in loop.setpoints]
    assert sources[: PLAN_REUSE_CYCLES + 1] == ["nmpc"] * PLAN_REUSE_CYCLES + ["pid"]
    first_return = sources.index("nmpc", PLAN_REUSE_CYCLES)
    assert first_return == 200 + vehicle.controller.fallback.clean_cycles_to_return - 1
    assert set(sources[first_return:]) == {"nmpc"}
    # Largest step of a blend from an offset of 0.15 rad, plus the steps of the loop at rest.
    largest = 0.15 * (1 - math.exp(-1 / (vehicle.controller.rate_hz * BLEND_TIME_S))) + quiet
    assert np.abs(np.diff(loop.commands(), axis=0)).max() < largest
    assert np.linalg.norm(np.array(loop.positions) - HOME, axis=1).max() < 0.1
    assert loop.statuses[-1].solver_failures == 200
    assert loop.statuses[-1].fallback_cycles == 200 - PLAN_REUSE_CYCLES + 49
    assert loop.statuses[10].reason == "solver status 4"


def test_a_change_of_source_begins_exactly_at_the_last_command(vehicle, nmpc):
    """During a step of one metre, where the commands of NMPC and PID differ much."""
    solver = failing(nmpc)
    loop = Loop(vehicle, solver)
    loop.hold(HOME)
    loop.run(1)
    loop.hold((1.0, 0.5, 2.5))
    loop.run(0.3)
    solver.broken = True
    loop.run(0.5)
    solver.broken = False
    loop.run(1.5)
    sources = [s.source for s in loop.setpoints]
    switches = [i for i in range(1, len(sources)) if sources[i] != sources[i - 1]]
    assert len(switches) == 2
    commands = loop.commands()
    for i in switches:
        np.testing.assert_allclose(commands[i], commands[i - 1], atol=1e-9)
        # The blend changes a command by 1/16 of the sources' difference in a cycle; the tilt bound limits that.
        assert np.abs(np.diff(commands[i - 1 : i + 20, 1:], axis=0)).max() < 2 * vehicle.controller.tilt_max_rad / 10


def test_a_restarted_controller_starts_at_the_present_attitude(vehicle, nmpc):
    """After half a second without control in a new gust the correction fades in without a jump."""
    loop = Loop(vehicle, nmpc)
    loop.hold(HOME)
    loop.plant.disturbance_W = np.array([1.0, -1.0, 0.0])
    loop.run(4)
    before = loop.commands()[-1]
    loop.plant.disturbance_W = np.array([3.0, 2.0, 0.0])
    loop.node = SilentNode(loop.node)
    loop.run(0.5)
    nmpc.reset()
    loop.node = ControllerNode(vehicle, nmpc, loop.stopwatch)
    assert error_m(loop) > 0.2
    loop.run(4)
    commands = np.vstack([before, loop.commands()[-200:]])
    assert np.abs(commands[:, 1:] - before[1:]).max() > 0.3  # size of the correction
    fading_in = np.diff(commands[:26, 1:], axis=0)
    assert np.abs(fading_in).max() < 0.1 * vehicle.controller.tilt_max_rad
    assert error_m(loop) < 0.05


def test_after_a_single_failed_solution_the_old_plan_is_used(vehicle, nmpc):
    solver = failing(nmpc)
    loop = Loop(vehicle, solver)
    loop.hold(HOME)
    loop.run(2)
    solver.broken = True
    loop.run(0.02)
    solver.broken = False
    loop.run(1)
    assert {s.source for s in loop.setpoints} == {"nmpc"}
    assert loop.statuses[-1].solver_failures == 1
    assert loop.statuses[-1].fallback_cycles == 0


def test_fallback_alone_holds_position_at_90_degrees_yaw_in_wind(vehicle, nmpc):
    """Fault 5 of the prior stack in closed loop."""
    solver = failing(nmpc)
    solver.broken = True
    loop = Loop(vehicle, solver, p=(0.5, 0.5, 2.0), yaw=math.pi / 2)
    loop.hold(HOME, yaw=math.pi / 2)
    loop.plant.disturbance_W = np.array([1.0, -1.0, 0.0])
    loop.run(12)
    assert {s.source for s in loop.setpoints} == {"pid"}
    assert error_m(loop) < 0.05


def test_missed_deadlines_are_counted_and_lead_to_the_fallback(vehicle, nmpc):
    loop = Loop(vehicle, nmpc, stopwatch=SimulatedStopwatch())
    loop.hold(HOME)
    loop.run(1)
    loop.stopwatch.cost_s = 2 * vehicle.controller.deadline_s
    loop.run(0.2)
    assert loop.setpoints[-1].source == "pid"
    assert loop.statuses[-1].deadline_misses == 10
    assert loop.statuses[-1].reason == "deadline missed"
    assert loop.statuses[-1].cycle_time_s > vehicle.controller.deadline_s
    loop.stopwatch.cost_s = 0.0
    loop.run(2)
    assert loop.setpoints[-1].source == "nmpc"
    assert loop.statuses[-1].deadline_misses == 10


@pytest.mark.parametrize("field", ["p_W", "v_W", "disturbance_W"])
@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_state_that_is_not_finite_makes_it_idle_and_is_counted(vehicle, nmpc, field, number):
    loop = Loop(vehicle, nmpc)
    loop.hold(HOME)
    loop.run(0.5)
    sent = len(loop.setpoints)
    loop.edit_state = lambda s: msgspec.structs.replace(s, **{field: (0.0, number, 0.0)})
    loop.run(0.5)
    assert loop.statuses[-1].active == "idle"
    assert "not finite" in loop.statuses[-1].reason
    assert loop.node.bad_inputs > 10
    assert len(loop.setpoints) <= sent + 1  # one state was still in transit
    loop.edit_state = lambda s: s
    loop.run(0.5)
    assert loop.statuses[-1].active == "nmpc"


def test_a_quaternion_without_length_makes_it_idle(vehicle, nmpc):
    loop = Loop(vehicle, nmpc)
    loop.hold(HOME)
    loop.edit_state = lambda s: msgspec.structs.replace(s, q_WB=(0.0, 0.0, 0.0, 0.0))
    loop.run(0.2)
    assert not loop.setpoints
    assert loop.statuses[-1].active == "idle"


def test_an_unknown_battery_voltage_is_harmless(vehicle, nmpc):
    loop = Loop(vehicle, nmpc)
    loop.hold(HOME)
    loop.edit_state = lambda s: msgspec.structs.replace(s, battery_voltage_v=math.nan)
    loop.run(3)
    assert error_m(loop) < 0.05


def idle_reason(loop):
    assert loop.statuses[-1].active == "idle"
    assert loop.statuses[-1].solver_status == -1
    return loop.statuses[-1].reason


def test_the_idle_controller_reports_the_missing_input(vehicle, nmpc):
    loop = Loop(vehicle, nmpc)
    assert [type(m) for m in loop.cycle()] == [ControlStatus]
    assert idle_reason(loop) == "no state yet"
    loop.run(0.1)
    assert idle_reason(loop) == "no reference yet"
    loop.hold(HOME, frame="pier")
    loop.run(0.1)
    assert "bundle 'pier'" in idle_reason(loop)
    loop.edit_state = lambda s: msgspec.structs.replace(s, valid=False)
    loop.run(0.1)
    loop.hold(HOME)
    loop.run(0.1)
    assert idle_reason(loop) == "state is not valid"
    assert not loop.setpoints


def test_old_messages_lead_to_no_setpoint(vehicle, nmpc):
    loop = Loop(vehicle, nmpc)
    loop.hold(HOME)
    loop.run(0.5)
    loop.reference = None
    sent = len(loop.setpoints)
    loop.run(1.0)
    assert "reference is 0.5" in idle_reason(loop) or "old" in idle_reason(loop)
    assert len(loop.setpoints) - sent <= 26  # the reference's half second


def test_setpoints_expire_after_five_periods_and_stay_within_limits(vehicle, nmpc):
    loop = Loop(vehicle, nmpc, p=(-6.0, 5.0, 0.0))
    loop.hold(HOME, yaw=3.0)
    loop.run(4)
    controller = vehicle.controller
    commands = loop.commands()
    assert (np.abs(commands[:, 1:]) <= controller.tilt_max_rad).all()
    assert (commands[:, 0] >= controller.thrust_min).all()
    assert (commands[:, 0] <= controller.thrust_max).all()
    for setpoint in loop.setpoints:
        assert setpoint.expires_s == pytest.approx(setpoint.stamp_s + 5 / controller.rate_hz)
        assert abs(setpoint.yaw_rate_rad_s) <= controller.yaw.rate_max_rad_s


def test_while_the_pilot_flies_the_setpoints_follow_the_aircraft(vehicle, nmpc):
    """Integrals must not grow while setpoints stream before offboard."""
    loop = Loop(vehicle, nmpc, p=(2.0, 0.0, 2.0))
    loop.mode = FcuMode.POSCTL
    loop.hold(HOME, yaw=1.0)
    for _ in range(200):
        loop.now_s += 0.02
        loop.estimates.append(loop.state())
        loop.now_s += 0.02
        loop.cycle()
    assert isinstance(loop.setpoints[-1], Setpoint)
    assert loop.setpoints[-1].yaw_rad == pytest.approx(0.0, abs=0.05)
    spread = np.ptp(loop.commands()[-50:], axis=0)
    assert spread.max() < 1e-3


def test_the_loop_is_deterministic(vehicle):
    def fly():
        loop = Loop(vehicle, Nmpc(vehicle), p=(0.3, 0.2, 1.9))
        loop.hold(HOME, yaw=0.3)
        return loop.run(1).commands()

    np.testing.assert_array_equal(fly(), fly())
