"""What the estimator's kernels look like from outside: state layout, names, sources. Free of CasADi.

State x, 26 numbers: p_W, v_W, q_WB, disturbance_W, gnss_bias_W, p_WM, q_WM, velocity_bias_W.
Error, 24 numbers: the same with rotation vectors δθ on the body side: q_true = q ⊗ exp(δθ), for both attitudes.
"""

from pathlib import Path

import companion.frames
from companion.kernel import fingerprint

NAME = "eskf"

STATE_SIZE, ERROR_SIZE = 26, 24
P, V, Q, D, B, PM, QM, C = (
    slice(0, 3),
    slice(3, 6),
    slice(6, 10),
    slice(10, 13),
    slice(13, 16),
    slice(16, 19),
    slice(19, 23),
    slice(23, 26),
)
E_P, E_V, E_TH, E_D, E_B, E_PM, E_THM, E_C = (slice(i, i + 3) for i in range(0, ERROR_SIZE, 3))

SENSORS = {"position": 3, "velocity": 3, "attitude": 3, "marker": 6}  # size of each residual


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
