"""The prior stack's controller hovers, turns the short way, and its fallback flies to the target at any heading."""

import math

import numpy as np
import pytest

from companion.core.config import ConfigError
from companion.core.frames import GRAVITY_M_S2, quat_from_rpy, rotation_matrix, wrap_angle
from companion.core.messages import WORLD, Reference, Setpoint, State
from companion.core.trajectory_messages import Hold
from sitl.baselines.paper_controller import PaperControllerNode, YawPid, fallback_velocity_B
from sitl.baselines.paper_nmpc import PaperNmpc
from sitl.baselines.paper_tables import paper_vehicle

pytest.importorskip("casadi")
F550 = paper_vehicle("F550")


@pytest.fixture(scope="module")
def nmpc():
    return PaperNmpc(F550)


def state_of(now_s, p, v, rpy, d=(0.0, 0.0, 0.0)) -> State:
    zero, unit = (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)
    return State(
        stamp_s=now_s, p_W=tuple(p), v_W=tuple(v), q_WB=tuple(quat_from_rpy(*rpy)), disturbance_W=d, gnss_bias_W=zero,
        velocity_bias_W=zero, bundle="", p_WM=zero, q_WM=unit, marker_age_s=math.inf, position_std_m=0.1,
        relative_std_m=math.inf, covariance_diag=(0.0,) * 24, battery_voltage_v=15.0, reset_count=0,
    )  # fmt: skip


def fly(node, p, yaw, seconds, d=(0.0, 0.0, 0.0), goal=(0.0, 0.0, 2.0), goal_yaw=0.0):
    """The model itself, in steps of 10 ms; returns position, yaw and the sources of all setpoints."""
    p, v, rpy = np.array(p, float), np.zeros(3), np.array([0.0, 0.0, yaw])
    sources, command = set(), (GRAVITY_M_S2 / F550.model.thrust_coefficient_m_s2, 0.0, 0.0, 0.0)
    dt, period = 0.01, round(100 / node.rate_hz)
    for i in range(round(seconds / dt)):
        now_s = 1.0 + i * dt
        if i % period == 0:
            trajectory = Hold(p=goal, yaw_rad=goal_yaw)
            node.handle(Reference(stamp_s=now_s, id=1, frame=WORLD, start_s=1.0, trajectory=trajectory), now_s)
            node.handle(state_of(now_s, p, v, rpy, d), now_s)
            for message in node.step(now_s):
                if isinstance(message, Setpoint):
                    sources.add(message.source)
                    command = (message.thrust, message.roll_rad, message.pitch_rad, message.yaw_rate_rad_s)
        lift = rotation_matrix(quat_from_rpy(*rpy))[:, 2] * F550.model.thrust_coefficient_m_s2 * command[0]
        v += dt * (lift - (0, 0, GRAVITY_M_S2) - np.array(F550.model.drag_1_s) * v + d)
        p += dt * v
        rpy[0] += dt * (F550.model.roll_gain * command[1] - rpy[0]) / F550.model.roll_time_constant_s
        rpy[1] += dt * (F550.model.pitch_gain * command[2] - rpy[1]) / F550.model.pitch_time_constant_s
        rpy[2] += dt * command[3]
    return p, rpy[2], sources


def test_it_hovers_in_a_steady_wind(nmpc):
    p, yaw, sources = fly(PaperControllerNode(F550, nmpc), (1.0, -0.5, 1.5), 0.3, 12.0, d=(0.8, -0.4, -0.2))
    # The references are level, so wind leaves an offset; the terminal weight keeps it small.
    assert np.linalg.norm(p - (0.0, 0.0, 2.0)) < 0.1
    assert abs(yaw) < 0.05
    assert sources == {"nmpc"}


@pytest.mark.parametrize("yaw", [0.0, math.pi / 2, math.pi, -math.pi / 2])
def test_the_fallback_flies_to_the_target_at_any_heading(nmpc, yaw):
    node = PaperControllerNode(F550, nmpc, solver_fails=lambda: True)
    p, _, sources = fly(node, (1.0, -0.5, 1.5), yaw, 12.0, goal_yaw=yaw)
    assert sources == {"pid"}
    assert np.linalg.norm(p - (0.0, 0.0, 2.0)) < 0.1


def test_the_fallback_turns_the_error_into_the_body_frame():
    q = quat_from_rpy(0.0, 0.0, math.pi / 2)
    np.testing.assert_allclose(fallback_velocity_B((1.0, 0.0, 0.0), (0.0, 0.0, 0.0), q), (0.0, -0.95, 0.0), atol=1e-12)


def test_yaw_turns_the_short_way():
    for reference, yaw, sign in ((-1.745, 0.0, -1), (1.745, 0.0, 1), (3.0, -3.0, -1), (-3.0, 3.0, 1)):
        rate = YawPid((0.3, 0.0, 0.4)).update(reference, yaw, 0.1)
        assert math.copysign(1, rate) == sign


def test_yaw_follows_a_steady_turn_with_a_constant_offset():
    pid, yaw, rate_rad_s, dt = YawPid(F550.yaw_gains), 0.0, 2 * math.pi / 40, 0.1  # three turns in two minutes
    offsets = []
    for i in range(1200):
        reference = rate_rad_s * i * dt
        offsets.append(reference - yaw)
        yaw += dt * pid.update(wrap_angle(reference), wrap_angle(yaw), dt)
    assert offsets[-1] == pytest.approx(offsets[600], abs=1e-3) and 0.1 < offsets[-1] < 0.4


def test_the_yaw_setpoint_moves_at_the_commanded_rate(nmpc):
    node = PaperControllerNode(F550, nmpc)
    sent = [node.yaw_setpoint(1.0 + 0.01 * i, 0.1) for i in range(20)]
    np.testing.assert_allclose(sent, 1.0 + 0.01 * np.arange(1, 21), atol=1e-12)
    assert max(node.yaw_setpoint(1.0, 3.0) for _ in range(20)) == pytest.approx(1.3)


def test_an_aircraft_without_published_numbers_is_refused():
    with pytest.raises(ConfigError, match="Quad"):
        paper_vehicle("Quad")


def test_the_same_problem_gives_the_same_plan(nmpc):
    references, parameters = np.zeros((61, 12)), np.zeros((61, 14))
    references[:, 9] = GRAVITY_M_S2 / F550.model.thrust_coefficient_m_s2
    parameters[:, :8] = F550.model.parameters
    x0 = np.array([0.3, -0.2, 0.1, 0, 0, 0, 0, 0, 0])
    results = [PaperNmpc(F550).solve(x0, references, parameters) for _ in range(2)]
    assert results[0].status == 0
    np.testing.assert_array_equal(results[0].inputs, results[1].inputs)
    assert np.all(np.abs(results[0].inputs[:, 1:]) <= F550.tilt_command_max_rad + 1e-6)
