"""What the estimator's kernels look like from outside: state layout, names, sources. Free of CasADi.

State x, 30 numbers: p_W, v_W, q_WB, disturbance_W, gnss_bias_W, p_WM, q_WM, velocity_bias_W, attitude_bias_W,
thrust_scale. Error, 28 numbers: the same with rotation vectors δθ on the body side: q_true = q ⊗ exp(δθ), for both
attitudes. The attitude bias is a rotation vector in W: the flight controller measures exp(β) ⊗ q.
"""

from pathlib import Path

import companion.frames
from companion.kernel import fingerprint

NAME = "eskf"

STATE_SIZE, ERROR_SIZE = 30, 28
P, V, Q, D, B, PM, QM, C, A, S = (
    slice(0, 3),
    slice(3, 6),
    slice(6, 10),
    slice(10, 13),
    slice(13, 16),
    slice(16, 19),
    slice(19, 23),
    slice(23, 26),
    slice(26, 29),
    slice(29, 30),
)
E_P, E_V, E_TH, E_D, E_B, E_PM, E_THM, E_C, E_A = (slice(i, i + 3) for i in range(0, 27, 3))
E_S = slice(27, 28)

SENSORS = {"position": 3, "velocity": 3, "attitude": 3, "marker": 6, "corners": 8}  # size of each residual


def kernel_name(function: str) -> str:
    """Name of a kernel in the library: predict, predict_coast, relative, update_<sensor>."""
    return f"{NAME}_{function}"


def sources() -> list[Path]:
    """The files that shape the kernels."""
    here = Path(__file__).parent
    own = [here / file for file in ("eskf_layout.py", "eskf_model.py", "flight_model.py", "compile.py")]
    return [*own, Path(companion.frames.__file__)]


def eskf_fingerprint() -> str:
    """Fingerprint of the kernels; vehicles share them, because parameters are arguments."""
    return fingerprint(sources())
