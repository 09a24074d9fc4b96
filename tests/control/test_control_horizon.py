"""The predicted path in `ControlStatus`: where the NMPC expects to fly, five times a second, and nothing when it does not fly."""

import itertools

import msgspec
import numpy as np
import pytest
from control_plant import Loop

from companion.control.horizon import STATUS_POINTS, predicted_path
from companion.core.enums import FcuMode
from companion.recording.codec import decode


def horizons(loop):
    return [status for status in loop.statuses if status.horizon_W]


def test_the_predicted_path_is_where_the_aircraft_then_flies(vehicle, nmpc):
    loop = Loop(vehicle, nmpc, p=(0.0, 0.0, 2.0))
    loop.move((0.0, 0.0, 2.0), (4.0, 2.0, 3.0))
    loop.run(9)
    times, flown = np.array(loop.times), np.array(loop.positions)
    along_m, apart_m = [], []
    for status in horizons(loop):
        points = np.array(status.horizon_W)
        at_s = status.stamp_s + vehicle.latency.actuation_s + status.horizon_step_s * np.arange(len(points))
        if 11.0 < status.stamp_s < 14.0:  # begun, and the plant's errors are in the estimated disturbance
            then = np.array([np.interp(at_s, times, column) for column in flown.T]).T
            near = at_s < at_s[0] + 1.0
            apart_m.append(np.linalg.norm(points - then, axis=1)[near].max())
            along_m.append(np.linalg.norm(points[-1] - points[0]))
    assert len(apart_m) > 10 and min(along_m) > 0.5
    assert max(apart_m) < 0.10  # within the next second, with a plant that is 8 to 40 % wrong


def test_it_comes_five_times_a_second_with_a_bounded_number_of_points(vehicle, nmpc):
    loop = Loop(vehicle, nmpc)
    loop.hold((0.0, 0.0, 2.0))
    loop.run(4)
    found = horizons(loop)
    gaps = [b.stamp_s - a.stamp_s for a, b in itertools.pairwise(found)]
    assert min(gaps) > 0.19 and max(gaps) < 0.23
    controller = vehicle.controller
    for status in found:
        assert 2 <= len(status.horizon_W) <= STATUS_POINTS
        assert status.horizon_step_s * (len(status.horizon_W) - 1) == pytest.approx(controller.horizon_s, rel=0.1)
    assert len(msgspec.json.encode(found[-1])) - len(msgspec.json.encode(loop.statuses[-2])) < 500


def test_none_is_sent_while_another_flies_or_the_plan_is_not_used(vehicle, nmpc):
    loop = Loop(vehicle, nmpc)
    loop.mode = FcuMode.POSCTL
    loop.hold((0.0, 0.0, 2.0))
    loop.run(1)
    assert horizons(loop) == []
    loop.mode = FcuMode.OFFBOARD
    loop.run(1)
    assert horizons(loop)
    late = Loop(vehicle, nmpc)
    late.hold((0.0, 0.0, 2.0))
    late.stopwatch.cost_s = 1.0  # every cycle misses its deadline
    late.run(1)
    assert late.statuses[-1].active == "pid" and horizons(late) == []


@pytest.mark.parametrize("nodes", [1, 7, 15, 16, 60, 100])
def test_any_number_of_nodes_gives_a_bounded_path_from_the_first(nodes):
    states = np.arange(9.0 * (nodes + 1)).reshape(-1, 9)
    path = predicted_path(states, np.array([1.0, 0.0, 0.0]))
    assert 2 <= len(path) <= STATUS_POINTS and path[0] == (1.0, 1.0, 2.0)


def test_a_status_of_an_older_log_has_no_predicted_path():
    names = ("reference_yaw_rad", "position_error_m", "yaw_error_rad", "solve_time_s", "cycle_time_s")
    counts = ("reference_id", "solver_status", "fallback_cycles", "deadline_misses", "solver_failures")
    older = {"stamp_s": 1.0, "active": "nmpc", "reason": "", "reference_finished": False, "reference_p_W": [0, 0, 1]}
    message = decode("control", msgspec.json.encode(older | dict.fromkeys(names, 0.0) | dict.fromkeys(counts, 0)))
    assert message.horizon_W == ()
