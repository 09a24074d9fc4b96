"""The optimal control problem of the position controller, for acados.

    min  ∫₀ᵀ |x - x_r|²_Q + |u - u_r|²_R dt + |x(T) - x_r(T)|²_P      over x(·), u(·)
    s.t. x_{k+1} = f(x_k, u_k; parameters, d, ψ_k, ψ̇_k),   x(0) = x̂,   u_min ≤ u ≤ u_max,
         |φ|, |θ| ≤ tilt_max,   |v| ≤ v_max,   n·p ≥ c   (soft: linear and quadratic cost of leaving)

(Kalaitzakis & Vitzilaios, Robotics 2023, 12(5), 123, section 2.3; the limits of speed and distance are added.)

    x = p_W, v_W, roll, pitch                    [m, m/s, rad]
    u = thrust, roll command, pitch command      [1, rad, rad]
    stage parameters = flight_model.PARAMETERS, disturbance_W [m/s²], yaw [rad], yaw rate [rad/s]

The heading is not optimised but predicted (companion/control/horizon.py), so it is a parameter, not a state; f is
`acados_gen.flight_model.discrete_model`. The plane n·p = c lies in front of the structure, and n points towards the
aircraft; n = 0 is no plane. |v| is linearised about the last plan in every cycle, as the dynamics are,
v̄·v / |v̄| ≤ v_max, and its curvature enters the cost with the multiplier of the last cycle (acados_gen/nmpc.c).

Each soft constraint row costs time in every iteration of the QP solver, so rows exist only at nodes where they have an
effect:

- tilt at the first TILT_NODES nodes. The bounds of the commands keep the tilt that follows from them within its bound,
  and tilt follows the commands as a first-order lag: a tilt within the bound stays there, a tilt outside of it has
  returned by the last of these nodes;
- speed and plane ROW_LEAD_S ahead (without this row every new plan would be fast at first and slow later), then at
  every node whose state partial condensing keeps (0.3 s apart as configured), including the last one.

Only N, T and the number of condensed blocks determine the generated code; weights, bounds, references and parameters
are set at run time (acados_gen/nmpc.c). Run as ``python -m acados_gen.ocp FOLDER N T BLOCKS`` in a separate process,
because acados_template changes the working directory and prints.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from companion.core.vehicle import MODEL_PARAMETERS

if TYPE_CHECKING:
    from acados_template import AcadosOcp, AcadosOcpCost

MODEL_NAME = "flight_nmpc"
STATES, INPUTS, STAGE_PARAMETERS = 8, 3, MODEL_PARAMETERS + 5
TILT_NODES = 12  # 0.6 s as configured, four time constants of the attitude
ROWS = 2  # speed, plane
ROW_LEAD_S = 0.15  # one time constant of the attitude; nearer rows make the commands chatter with noise
QP_ITERATIONS_MAX = 50


def build_ocp(nodes: int, horizon_s: float, condensed_nodes: int) -> "AcadosOcp":
    """The problem with soft rows at every node (`keep_rows` removes most); needs casadi and acados_template."""
    import casadi as ca
    from acados_template import AcadosModel, AcadosOcp

    from acados_gen.flight_model import PARAMETERS, discrete_model

    x, u = ca.SX.sym("x", STATES), ca.SX.sym("u", INPUTS)
    parameters, disturbance = ca.SX.sym("q", len(PARAMETERS)), ca.SX.sym("d", 3)
    yaw, yaw_rate = ca.SX.sym("psi"), ca.SX.sym("r")

    model = AcadosModel()
    model.name, model.x, model.u = MODEL_NAME, x, u
    model.p = ca.vertcat(parameters, disturbance, yaw, yaw_rate)
    model.disc_dyn_expr = discrete_model(x, u, yaw, yaw_rate, disturbance, parameters, horizon_s / nodes)

    ocp = AcadosOcp()
    ocp.model = model
    ocp.dims.N = nodes
    ocp.parameter_values = np.ones(STAGE_PARAMETERS)

    cost = ocp.cost
    set_least_squares(cost, STATES, INPUTS)

    tilt = np.array([6, 7])
    ones = np.ones(len(tilt) + ROWS)  # costs of the slacks: acados_gen/nmpc.c
    cost.zl, cost.zu, cost.Zl, cost.Zu = ones, ones, ones, ones
    cost.zl_e, cost.zu_e, cost.Zl_e, cost.Zu_e = (ones[:ROWS] for _ in range(4))

    limits = ocp.constraints
    limits.x0 = np.zeros(STATES)
    limits.idxbu, limits.lbu, limits.ubu = np.arange(INPUTS), -np.ones(INPUTS), np.ones(INPUTS)
    limits.idxbx, limits.lbx, limits.ubx, limits.idxsbx = tilt, -np.ones(2), np.ones(2), np.arange(2)
    limits.C, limits.D = np.zeros((ROWS, STATES)), np.zeros((ROWS, INPUTS))
    limits.lg, limits.ug, limits.idxsg = -np.ones(ROWS), np.ones(ROWS), np.arange(ROWS)
    limits.C_e = np.zeros((ROWS, STATES))
    limits.lg_e, limits.ug_e, limits.idxsg_e = -np.ones(ROWS), np.ones(ROWS), np.arange(ROWS)

    options = ocp.solver_options
    options.tf = horizon_s
    options.nlp_solver_type = "SQP_RTI"
    options.hessian_approx = "GAUSS_NEWTON"
    options.qp_solver = "PARTIAL_CONDENSING_HPIPM"
    options.qp_solver_cond_N = min(condensed_nodes, nodes)
    options.qp_solver_iter_max = QP_ITERATIONS_MAX
    # SPEED_ABS takes two thirds of the default mode's time. For random problems up to metres from the reference, its
    # first input differs by at most 1e-3, less than the error of one real-time iteration. SPEED is between the two in
    # time and differs by 1e-5.
    options.hpipm_mode = "SPEED_ABS"
    options.nlp_solver_warm_start_first_qp = True  # a cycle solves one QP only; acados_gen/nmpc.c selects the start
    options.integrator_type = "DISCRETE"
    options.print_level = 0
    return ocp


def set_least_squares(cost: "AcadosOcpCost", states: int, inputs: int) -> None:
    """Set the cost of a problem: every state and input against its reference; weights are set at run time."""
    cost.cost_type = cost.cost_type_e = "LINEAR_LS"
    cost.W, cost.W_e = np.eye(states + inputs), np.eye(states)
    cost.Vx, cost.Vx_e = np.eye(states + inputs, states), np.eye(states)
    cost.Vu = np.eye(states + inputs, inputs, -states)
    cost.yref, cost.yref_e = np.zeros(states + inputs), np.zeros(states)


def keep_rows(source: str, rows_at: list[int]) -> str:
    """The generated solver with soft rows of speed and plane at the nodes rows_at only, and of tilt at the first ones.

    acados_template generates the same rows for all nodes. Raises ValueError when its code has another form.
    """
    marker = "/* create and set ocp_nlp_dims */"
    if marker not in source:
        raise ValueError("this version of acados_template writes code in an unknown form")
    lines = ["for (int i = 0; i <= N; i++) nbx[i] = i == 0 ? NBX0 : 0, nsbx[i] = ng[i] = nsg[i] = ns[i] = 0;"]
    lines += [f"for (int i = 1; i <= {TILT_NODES} && i < N; i++) ns[i] = nsbx[i] = nbx[i] = NBX;"]
    lines += [f"ns[{k}] += {ROWS}, ng[{k}] = nsg[{k}] = {ROWS};" for k in rows_at]
    return source.replace(marker, "\n    ".join([*lines, marker]))


def row_nodes(nodes: int, horizon_s: float, condensed_nodes: int) -> list[int]:
    """The nodes with rows of speed and plane: ROW_LEAD_S ahead, the first of each condensed block after block 0, the last.

    acados' partial condensing makes blocks of equal length; the remainder lengthens the first blocks by one node.
    """
    blocks = min(condensed_nodes, nodes)
    begins = np.cumsum([nodes // blocks + (i < nodes % blocks) for i in range(blocks)]).tolist()
    lead = min(max(round(ROW_LEAD_S * nodes / horizon_s), 1), nodes)
    return sorted({lead, *begins})


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
    rows_at = row_nodes(nodes, horizon_s, condensed_nodes)
    solver = folder / f"acados_solver_{MODEL_NAME}.c"
    solver.write_text(keep_rows(solver.read_text(encoding="utf-8"), rows_at), encoding="utf-8")


if __name__ == "__main__":
    main()
