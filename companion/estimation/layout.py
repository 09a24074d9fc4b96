"""What the estimator's kernels look like from outside: state layout, names, sources. Free of CasADi.

State x, 33 numbers: p_W, v_W, q_WB, disturbance_W, gnss_bias_W, p_WM, q_WM, velocity_bias_W, attitude_bias_W,
thrust_scale, mount_C. Error, 31 numbers: the same with rotation vectors δθ on the body side: q_true = q ⊗ exp(δθ), for
both attitudes. The attitude bias is a rotation vector in W: the flight controller measures exp(β) ⊗ q. The mount is
one in C: the camera looks along q_BC ⊗ exp(μ).

A belief is what a kernel takes and gives in one piece: state, covariance, and what is remembered of gusts.
"""

from pathlib import Path

from companion.core import frames
from companion.core.kernel import GENERATORS, fingerprint

NAME = "eskf"
ALGEBRA = Path(__file__).with_name("eskf.c")

STATE_SIZE, ERROR_SIZE = 33, 31
MOTION_SIZE = 9  # errors of position, velocity and attitude: these move each other, the rest only fades
P, V, Q, D, B, PM, QM, C, A, S, U = (
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
    slice(30, 33),
)
E_P, E_V, E_TH, E_D, E_B, E_PM, E_THM, E_C, E_A = (slice(i, i + 3) for i in range(0, 27, 3))
E_S, E_U = slice(27, 28), slice(28, 31)

GUST_SIZE = 6  # see `follow_gusts` in eskf.c
BELIEF_X = slice(0, STATE_SIZE)
BELIEF_P = slice(BELIEF_X.stop, BELIEF_X.stop + ERROR_SIZE**2)
BELIEF_GUST = slice(BELIEF_P.stop, BELIEF_P.stop + GUST_SIZE)
BELIEF_SIZE = BELIEF_GUST.stop

SENSORS = {"position": 3, "velocity": 3, "attitude": 3, "marker": 6, "corners": 8}  # size of each residual
MEASURED = {  # sizes of what each is measured with: numbers of the sensor, then the camera's p_BC and q_BC
    "position": (3,),
    "velocity": (3,),
    "attitude": (4,),
    "marker": (3, 4, 3, 4),
    "corners": (8, 12, 3, 4),
}
RATES = 6  # of forgetting, see `acados_gen.eskf_model.forget`
COMMAND_SIZE, PARAMETER_SIZE = 4, 8  # (thrust, roll, pitch, yaw rate); `acados_gen.flight_model.PARAMETERS`


def kernel_name(function: str) -> str:
    """Name of a kernel in the library: predict, predict_coast, relative, update_<sensor>."""
    return f"{NAME}_{function}"


def shapes(function: str) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
    """Shapes of a kernel's arguments and results, as `companion.core.kernel.Kernel` binds them.

    predict: (belief, command, parameters, rates, noise, most, dt) -> (belief,), noise: of still air, most: how many
    times the disturbance's may be; predict_coast: (belief, rates, noise, dt) -> (belief,);
    update_<sensor>: (belief, *measured, R) -> (ν, whitened, NIS, belief, matched, expected).
    """
    belief, rates, noise, number = (BELIEF_SIZE,), (RATES,), (ERROR_SIZE,), (1,)
    if function == "predict":
        return (belief, (COMMAND_SIZE,), (PARAMETER_SIZE,), rates, noise, number, number), (belief,)
    if function == "predict_coast":
        return (belief, rates, noise, number), (belief,)
    sensor = function.removeprefix("update_")
    m = SENSORS[sensor]
    measured = tuple((n,) for n in MEASURED[sensor])
    return (belief, *measured, (m, m)), ((m,), (m,), number, belief, (m,), (m,))


def sources() -> list[Path]:
    """The files that shape the kernels."""
    own = [Path(__file__), ALGEBRA]
    generators = [GENERATORS / file for file in ("eskf_model.py", "flight_model.py", "compile.py")]
    return [*own, *generators, Path(frames.__file__)]


def eskf_fingerprint() -> str:
    """Fingerprint of the kernels; vehicles share them, because parameters are arguments."""
    return fingerprint(sources())
