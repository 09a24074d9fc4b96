"""The optimal control problem of the prior stack, for comparison: full SQP, hard bounds, dominant terminal cost.

    min  ∫₀ᵀ |x - x_r|²_Q + |u - u_r|²_R dt + |x(T) - x_r(T)|²_P      over x(·), u(·)
    s.t. ẋ = f(x, u; parameters, d, ψ̇_c),   x(0) = x̂,   u_min ≤ u ≤ u_max,   |φ|, |θ| ≤ tilt_max

(Kalaitzakis & Vitzilaios, Robotics 2023, 12(5), 123, section 2.3, and its published code.) Model, states, inputs and
stage parameters are those of `acados_gen.ocp`; what differs is how the problem is solved: to convergence by SQP, with
the bounds of roll and pitch hard. Weights, bounds and references are set at run time (sitl/opponents/paper_nmpc.c).
Run as ``python -m acados_gen.paper_ocp FOLDER`` in a process of its own.
"""

import sys
from pathlib import Path

import numpy as np

from acados_gen.ocp import build_ocp

NODES, HORIZON_S = 60, 3.0


def build_paper_ocp():
    """The `AcadosOcp`; needs casadi and acados_template."""
    ocp = build_ocp(NODES, HORIZON_S, NODES)
    none = np.array([])
    limits, cost = ocp.constraints, ocp.cost
    limits.idxsbx = limits.idxsbx_e = none
    cost.zl = cost.zu = cost.Zl = cost.Zu = cost.zl_e = cost.zu_e = cost.Zl_e = cost.Zu_e = none
    options = ocp.solver_options
    options.nlp_solver_type = "SQP"
    options.hpipm_mode = "BALANCE"  # acados' default, which the prior stack left as it is
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
