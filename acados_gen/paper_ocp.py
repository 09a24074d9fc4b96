"""The optimal control problem of the prior stack, for comparison: full SQP, hard bounds, dominant terminal cost.

    min  ∫₀ᵀ |x - x_r|²_Q + |u - u_r|²_R dt + |x(T) - x_r(T)|²_P      over x(·), u(·)
    s.t. ẋ = f(x, u; parameters, d, ψ̇_c),   x(0) = x̂,   u_min ≤ u ≤ u_max,   |φ|, |θ| ≤ tilt_max

(Kalaitzakis & Vitzilaios, Robotics 2023, 12(5), 123, section 2.3, and its published code.) f is
`acados_gen.flight_model.euler_model`, integrated by the classic Runge-Kutta method.

    x = p_W, v_W, roll, pitch, yaw               [m, m/s, rad]
    u = thrust, roll command, pitch command      [1, rad, rad]
    stage parameters = flight_model.PARAMETERS, disturbance_W [m/s²], yaw rate [rad/s]

Differences from `acados_gen.ocp`: yaw is a state, SQP iterates to convergence, and the bounds of roll and pitch are
hard. Weights, bounds and references are set at run time (sitl/baselines/paper_nmpc.c). Run as
``python -m acados_gen.paper_ocp FOLDER`` in a separate process.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from acados_gen.ocp import MODEL_NAME, QP_ITERATIONS_MAX, set_least_squares
from companion.core.vehicle import MODEL_PARAMETERS

if TYPE_CHECKING:
    from acados_template import AcadosOcp

NODES, HORIZON_S = 60, 3.0
STATES, INPUTS, STAGE_PARAMETERS = 9, 3, MODEL_PARAMETERS + 4
INTEGRATOR_STAGES, INTEGRATOR_STEPS = 4, 1  # classic RK4 once per node: error below 1e-4 m over 50 ms


def build_paper_ocp() -> "AcadosOcp":
    """The problem; needs casadi and acados_template."""
    import casadi as ca
    from acados_template import AcadosModel, AcadosOcp

    from acados_gen.flight_model import PARAMETERS, euler_model

    x, u = ca.SX.sym("x", STATES), ca.SX.sym("u", INPUTS)
    parameters, disturbance, yaw_rate = ca.SX.sym("q", len(PARAMETERS)), ca.SX.sym("d", 3), ca.SX.sym("r")
    derivative = euler_model(x, ca.vertcat(u, yaw_rate), disturbance, parameters)

    model = AcadosModel()
    model.name, model.x, model.u = MODEL_NAME, x, u
    model.xdot = ca.SX.sym("xdot", STATES)
    model.p = ca.vertcat(parameters, disturbance, yaw_rate)
    model.f_expl_expr, model.f_impl_expr = derivative, model.xdot - derivative

    ocp = AcadosOcp()
    ocp.model = model
    ocp.dims.N = NODES
    ocp.parameter_values = np.ones(STAGE_PARAMETERS)
    set_least_squares(ocp.cost, STATES, INPUTS)

    limits = ocp.constraints
    limits.x0 = np.zeros(STATES)
    limits.idxbu, limits.lbu, limits.ubu = np.arange(INPUTS), -np.ones(INPUTS), np.ones(INPUTS)
    tilt = np.array([6, 7])
    limits.idxbx, limits.lbx, limits.ubx = tilt, -np.ones(2), np.ones(2)
    limits.idxbx_e, limits.lbx_e, limits.ubx_e = tilt, -np.ones(2), np.ones(2)

    options = ocp.solver_options
    options.tf = HORIZON_S
    options.nlp_solver_type = "SQP"
    options.hessian_approx = "GAUSS_NEWTON"
    options.qp_solver = "PARTIAL_CONDENSING_HPIPM"
    options.qp_solver_cond_N = NODES
    options.qp_solver_iter_max = QP_ITERATIONS_MAX
    options.hpipm_mode = "BALANCE"  # acados' default, unchanged in the prior stack
    options.integrator_type = "ERK"
    options.sim_method_num_stages, options.sim_method_num_steps = INTEGRATOR_STAGES, INTEGRATOR_STEPS
    options.print_level = 0
    return ocp


def main() -> None:
    """Write the C code of the solver into a folder."""
    folder = Path(sys.argv[1])
    from acados_template import AcadosOcpSolver

    ocp = build_paper_ocp()
    ocp.code_export_directory = str(folder)
    AcadosOcpSolver.generate(ocp, json_file=str(folder / "ocp.json"))


if __name__ == "__main__":
    main()
