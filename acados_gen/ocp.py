"""The optimal control problem of the position controller, for acados.

    min  ∫₀ᵀ |x - x_r|²_Q + |u - u_r|²_R dt + |x(T) - x_r(T)|²_P      over x(·), u(·)
    s.t. ẋ = f(x, u; parameters, d, ψ̇_c),   x(0) = x̂,   u_min ≤ u ≤ u_max,   |φ|, |θ| ≤ tilt_max (soft)

(Kalaitzakis & Vitzilaios, Robotics 2023, 12(5), 123, section 2.3.) f is `acados_gen.flight_model.euler_model`.

    x = p_W, v_W, roll, pitch, yaw               [m, m/s, rad]
    u = thrust, roll command, pitch command      [1, rad, rad]
    stage parameters = flight_model.PARAMETERS, disturbance_W [m/s²], yaw rate [rad/s]

Only N, T and the number of condensed blocks shape the generated code; weights, bounds, references and parameters
are set at run time (acados_gen/nmpc.c). Run as ``python -m acados_gen.ocp FOLDER N T BLOCKS`` in a process of its
own, because acados_template changes the working directory and prints.
"""

import sys
from pathlib import Path

import numpy as np

MODEL_NAME = "flight_nmpc"
STATES, INPUTS, STAGE_PARAMETERS = 9, 3, 12
# Cost of leaving the tilt bound by e [rad]: LINEAR e + QUADRATIC e²/2. Far above the tracking cost, so that the
# bound is left only when the aircraft is already outside; finite, so that the problem always has a solution.
TILT_SLACK_LINEAR, TILT_SLACK_QUADRATIC = 100.0, 1000.0
INTEGRATOR_STAGES, INTEGRATOR_STEPS = 4, 1  # classic RK4 once per node: error below 1e-4 m over 50 ms
QP_ITERATIONS_MAX = 50


def build_ocp(nodes: int, horizon_s: float, condensed_nodes: int):
    """The `AcadosOcp`; needs casadi and acados_template."""
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
    ocp.dims.N = nodes
    ocp.parameter_values = np.ones(STAGE_PARAMETERS)

    cost = ocp.cost
    cost.cost_type = cost.cost_type_e = "LINEAR_LS"
    cost.W, cost.W_e = np.eye(STATES + INPUTS), np.eye(STATES)
    cost.Vx, cost.Vx_e = np.eye(STATES + INPUTS, STATES), np.eye(STATES)
    cost.Vu = np.eye(STATES + INPUTS, INPUTS, -STATES)
    cost.yref, cost.yref_e = np.zeros(STATES + INPUTS), np.zeros(STATES)
    linear, quadratic = TILT_SLACK_LINEAR * np.ones(2), TILT_SLACK_QUADRATIC * np.ones(2)
    cost.zl, cost.zu, cost.Zl, cost.Zu = linear, linear, quadratic, quadratic
    cost.zl_e, cost.zu_e, cost.Zl_e, cost.Zu_e = linear, linear, quadratic, quadratic

    limits = ocp.constraints
    limits.x0 = np.zeros(STATES)
    limits.idxbu, limits.lbu, limits.ubu = np.arange(INPUTS), -np.ones(INPUTS), np.ones(INPUTS)
    tilt = np.array([6, 7])
    limits.idxbx, limits.lbx, limits.ubx, limits.idxsbx = tilt, -np.ones(2), np.ones(2), np.arange(2)
    limits.idxbx_e, limits.lbx_e, limits.ubx_e, limits.idxsbx_e = tilt, -np.ones(2), np.ones(2), np.arange(2)

    options = ocp.solver_options
    options.tf = horizon_s
    options.nlp_solver_type = "SQP_RTI"
    options.hessian_approx = "GAUSS_NEWTON"
    options.qp_solver = "PARTIAL_CONDENSING_HPIPM"
    options.qp_solver_cond_N = min(condensed_nodes, nodes)
    options.qp_solver_iter_max = QP_ITERATIONS_MAX
    # A cycle takes two thirds of the default's time. On random problems up to metres away the first input is the same
    # within 1e-3, which is less than one real-time iteration leaves; SPEED lies between, within 1e-5.
    options.hpipm_mode = "SPEED_ABS"
    options.integrator_type = "ERK"
    options.sim_method_num_stages, options.sim_method_num_steps = INTEGRATOR_STAGES, INTEGRATOR_STEPS
    options.print_level = 0
    return ocp


def main() -> None:
    """Write the C code of the solver into a folder."""
    folder, nodes, horizon_s, condensed_nodes = (
        Path(sys.argv[1]),
        int(sys.argv[2]),
        float(sys.argv[3]),
        int(sys.argv[4]),
    )
    from acados_template import AcadosOcpSolver

    ocp = build_ocp(nodes, horizon_s, condensed_nodes)
    ocp.code_export_directory = str(folder)
    AcadosOcpSolver.generate(ocp, json_file=str(folder / "ocp.json"))


if __name__ == "__main__":
    main()
