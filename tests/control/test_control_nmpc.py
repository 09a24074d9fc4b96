import ctypes

import msgspec
import numpy as np
import pytest

from companion.control.horizon import Horizon
from companion.control.solver import Nmpc
from companion.control.trajectories import sample
from companion.core import control_artifacts as artifacts
from companion.core.frames import GRAVITY_M_S2
from companion.core.kernel import ArtifactMissing, Kernel
from companion.core.trajectory_messages import Hold


def with_controller(vehicle, **changes):
    return msgspec.structs.replace(vehicle, controller=msgspec.structs.replace(vehicle.controller, **changes))


def problem(vehicle, nmpc, p=(0.0, 0.0, 2.0), disturbance_W=(0.0, 0.0, 0.0)):
    parameters = np.array(vehicle.model_parameters())
    horizon = Horizon(vehicle, nmpc.times_s)
    horizon.fill(sample(Hold(p=p, yaw_rad=0.0), 0.0, nmpc.times_s), 0.0, np.array(disturbance_W, float), parameters)
    return horizon.references, horizon.parameters


def state(p=(0.0, 0.0, 2.0)):
    return np.array([*p, 0, 0, 0, 0, 0, 0], float)


def test_at_rest_on_the_reference_the_plan_is_hover(vehicle, nmpc):
    result = nmpc.solve(state(), *problem(vehicle, nmpc))
    assert result.status == 0
    hover = GRAVITY_M_S2 / vehicle.thrust.coefficient_m_s2
    np.testing.assert_allclose(result.inputs, np.tile([hover, 0, 0], (nmpc.nodes, 1)), atol=1e-6)
    assert 0 < result.solve_time_s < 0.1
    assert result.qp_iterations >= 1


def test_wind_is_compensated_without_leaving_the_reference(vehicle, nmpc):
    wind = (1.5, -0.8, 0.4)
    tilt = problem(vehicle, nmpc, disturbance_W=wind)[0][0, 6:9]
    x0 = state()
    x0[6:9] = tilt
    result = nmpc.solve(x0, *problem(vehicle, nmpc, disturbance_W=wind))
    assert np.abs(result.states[:, 0:3] - [0, 0, 2]).max() < 1e-4
    assert result.inputs[0, 2] < -0.1  # the nose pitches up against a tailwind


def test_inputs_stay_within_the_vehicle_files_bounds(vehicle, nmpc):
    result = nmpc.solve(state((8.0, -8.0, -3.0)), *problem(vehicle, nmpc))
    controller = vehicle.controller
    assert result.status == 0
    assert result.inputs[:, 0].max() == pytest.approx(controller.thrust_max, abs=1e-3)
    assert np.abs(result.inputs[:, 1:]).max() == pytest.approx(controller.tilt_max_rad, abs=1e-3)
    assert np.abs(result.states[:, 6:8]).max() < 1.02 * controller.tilt_max_rad


def test_a_start_outside_the_tilt_bound_still_has_a_plan(vehicle, nmpc):
    x0 = state()
    x0[6] = 1.5 * vehicle.controller.tilt_max_rad
    assert nmpc.solve(x0, *problem(vehicle, nmpc)).status == 0


def test_a_nan_is_a_status_and_the_next_solution_is_that_of_a_new_solver(vehicle, nmpc):
    references, parameters = problem(vehicle, nmpc)
    fresh = Nmpc(vehicle).solve(state((1.0, 0.5, 2.0)), references, parameters)
    nmpc.solve(state((-2.0, 0.0, 5.0)), references, parameters)  # a plan from another place
    assert nmpc.solve(np.full(9, np.nan), references, parameters).status != 0
    again = nmpc.solve(state((1.0, 0.5, 2.0)), references, parameters)
    assert again.status == 0
    np.testing.assert_array_equal(again.inputs, fresh.inputs)
    nmpc.solve(state((-2.0, 0.0, 5.0)), references, parameters)
    nmpc.reset()
    np.testing.assert_array_equal(nmpc.solve(state((1.0, 0.5, 2.0)), references, parameters).inputs, fresh.inputs)


def test_the_first_solution_equals_the_converged_one(vehicle, nmpc):
    """For the errors of a hover in wind, one real-time iteration per cycle is sufficient."""
    references, parameters = problem(vehicle, nmpc)
    x0 = state((0.2, -0.15, 2.1))
    first = nmpc.solve(x0, references, parameters)
    for _ in range(5):
        last = nmpc.solve(x0, references, parameters)
    assert np.abs(first.inputs[0] - last.inputs[0]).max() < 1e-3


def test_shift_moves_the_plan_by_whole_and_partial_nodes(vehicle, nmpc):
    """After shifting by one node, one iteration from the predicted state keeps the old plan's tail."""
    references, parameters = problem(vehicle, nmpc)
    for _ in range(4):
        plan = nmpc.solve(state((0.5, 0.0, 2.0)), references, parameters)
    nmpc.shift(nmpc.step_s)
    shifted = nmpc.solve(plan.states[1], references, parameters)
    assert np.abs(shifted.inputs[:10] - plan.inputs[1:11]).max() < 5e-3


def test_solver_predicts_with_the_same_model_as_the_prediction_kernel(vehicle, nmpc):
    result = nmpc.solve(state((0.5, 0.3, 1.8)), *problem(vehicle, nmpc, disturbance_W=(0.5, 0.2, -0.1)))
    for _ in range(3):
        result = nmpc.solve(state((0.5, 0.3, 1.8)), *problem(vehicle, nmpc, disturbance_W=(0.5, 0.2, -0.1)))
    kernel = Kernel(artifacts.require_prediction(), artifacts.PREDICT)
    for k in (0, 5, 30):
        for buffer, value in zip(
            kernel.inputs,
            (result.states[k], [*result.inputs[k], 0.0], (0.5, 0.2, -0.1), vehicle.model_parameters(), nmpc.step_s),
            strict=True,
        ):
            buffer[:] = value
        np.testing.assert_allclose(kernel()[0], result.states[k + 1], atol=1e-4)


def test_jacobian_the_solver_linearises_with_matches_finite_differences(vehicle, nmpc):
    """The generated step compared with the prediction kernel, and its derivatives with its finite differences."""
    library = ctypes.CDLL(str(artifacts.require_solver(vehicle)))
    name = "flight_nmpc_dyn_disc_phi_fun_jac"
    sparsity = getattr(library, f"{name}_sparsity_out")
    sparsity.restype = ctypes.POINTER(ctypes.c_int)  # rows, columns, start of each column, row of each number
    begins = np.array(sparsity(1)[2 : 2 + 8 + 1])
    rows, columns = np.array(sparsity(1)[11 : 11 + begins[-1]]), np.repeat(np.arange(8), np.diff(begins))

    def step(x, u, p):
        inputs = [np.array(a, dtype=float) for a in (x, u, p)]
        outputs = [np.zeros(8), np.zeros(len(rows))]
        arguments, results = ((ctypes.c_void_p * 16)(*[a.ctypes.data for a in each]) for each in (inputs, outputs))
        assert getattr(library, name)(arguments, results, (ctypes.c_int * 100)(), (ctypes.c_double * 10000)(), 0) == 0
        jacobian = np.zeros((11, 8))
        jacobian[rows, columns] = outputs[1]
        return outputs[0], jacobian

    kernel = Kernel(artifacts.require_prediction(), artifacts.PREDICT)
    rng = np.random.default_rng(3)
    xu, yaw, yaw_rate = np.array([*(rng.normal(size=8) * 0.3), 0.4, 0.1, -0.2]), 0.7, 0.3
    model, disturbance = np.array([*vehicle.model_parameters()[:-2], 0.12, 0.02]), rng.normal(size=3)
    p = np.array([*model, *disturbance, yaw, yaw_rate])

    after, jacobian = step(xu[:8], xu[8:], p)
    parts = 10  # in shorter steps, because the kernel integrates roll and pitch too
    values = ([*xu[:8], yaw], [*xu[8:], yaw_rate], disturbance, model, nmpc.step_s / parts)
    for buffer, value in zip(kernel.inputs, values, strict=True):
        buffer[:] = value
    for _ in range(parts):
        kernel.inputs[0][:] = kernel()[0]
    np.testing.assert_allclose(after, kernel.inputs[0][:8], atol=1e-5)

    e = 1e-5
    moved = [[step(*np.split(xu + s * d, [8]), p)[0] for s in (e, -e)] for d in np.eye(11)]
    differences = np.array([(high - low) / (2 * e) for high, low in moved])
    np.testing.assert_allclose(jacobian, np.vstack([differences[8:], differences[:8]]), atol=1e-8)


def test_jacobian_of_the_prediction_kernel_matches_finite_differences(vehicle):
    """Over a whole step: the symbolic Jacobian of the same function compared with differences of the compiled one."""
    import casadi as ca

    from acados_gen.flight_model import euler_model, rk4

    x, u, d, p, h = (ca.SX.sym(n, k) for n, k in (("x", 9), ("u", 4), ("d", 3), ("p", 10), ("h", 1)))
    after = rk4(lambda s: euler_model(s, u, d, p), x, h)
    jacobian = ca.Function("j", [x, u, d, p, h], [ca.jacobian(after, x), ca.jacobian(after, u)])
    kernel = Kernel(artifacts.require_prediction(), artifacts.PREDICT)
    rng = np.random.default_rng(5)
    values = [
        rng.normal(size=9) * 0.4,
        np.array([0.4, 0.2, -0.1, 0.3]),
        rng.normal(size=3),
        (*vehicle.model_parameters()[:-2], 0.12, 0.02),  # with rotor drag
        0.02,
    ]
    for buffer, value in zip(kernel.inputs, values, strict=True):
        buffer[:] = value
    for index, expected in zip((0, 1), jacobian(*values), strict=True):
        columns = []
        for i in range(len(kernel.inputs[index])):
            pair = []
            for e in (1e-6, -1e-6):
                kernel.inputs[index][:] = values[index]
                kernel.inputs[index][i] += e
                pair.append(kernel()[0].copy())
            kernel.inputs[index][:] = values[index]
            columns.append((pair[0] - pair[1]) / 2e-6)
        np.testing.assert_allclose(np.array(columns).T, np.array(expected), atol=1e-7)


def test_the_fingerprint_depends_on_the_options_that_shape_the_code_only(vehicle):
    own = artifacts.solver_fingerprint(vehicle)
    assert artifacts.solver_fingerprint(with_controller(vehicle, nodes=30)) != own
    assert artifacts.solver_fingerprint(with_controller(vehicle, horizon_s=2.0)) != own
    assert artifacts.solver_fingerprint(with_controller(vehicle, condensed_nodes=5)) != own
    weights = msgspec.structs.replace(vehicle.controller.weights, thrust=1.0)
    assert artifacts.solver_fingerprint(with_controller(vehicle, weights=weights, tilt_max_rad=0.2)) == own


def test_a_solver_that_was_not_generated_is_one_line(vehicle):
    other = with_controller(vehicle, nodes=17)
    with pytest.raises(ArtifactMissing) as error:
        Nmpc(other)
    assert "companion generate" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_solver_of_other_dimensions_is_refused(vehicle):
    with pytest.raises(ArtifactMissing, match="does not fit"):
        Nmpc(with_controller(vehicle, nodes=17), library=artifacts.require_solver(vehicle))


def test_a_broken_library_is_one_line(vehicle, tmp_path):
    broken = tmp_path / "libnmpc.so"
    broken.write_bytes(b"not a library")
    with pytest.raises(ArtifactMissing, match="cannot be loaded") as error:
        Nmpc(vehicle, library=broken)
    assert "\n" not in str(error.value)


def test_weights_of_the_vehicle_file_reach_the_solver(vehicle):
    """With a cost of tilt a hundred times larger, the same error causes less tilt."""
    weights = msgspec.structs.replace(vehicle.controller.weights, roll_pitch=(6000.0, 6000.0))
    lazy_vehicle = with_controller(vehicle, weights=weights)
    lazy, eager = Nmpc(lazy_vehicle), Nmpc(vehicle)
    x0 = state((0.3, 0.0, 2.0))
    tilt = [abs(n.solve(x0, *problem(vehicle, n)).inputs[0, 2]) for n in (lazy, eager)]
    assert tilt[0] < 0.5 * tilt[1]
