"""How wrong the velocity of a flight controller was in a flight whose truth is known: ``python -m sitl.velocity_error LOG``.

LOG is a ULog of PX4 in simulation (vehicle_local_position against vehicle_local_position_groundtruth) or a log of this
stack's simulator (`FcuPosition` against `Truth`). For each axis east, north, up: mean, standard deviation, and the correlation time,
after which the autocorrelation is below 1/e. These numbers are the reason of the ranges in config/sensors/unkind.toml.
"""

import argparse
import math
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from companion.core.errors import UserError
from companion.core.messages import FcuPosition, Truth
from companion.recording.log import read_log

AXES = ("east", "north", "up")
AIRBORNE_M = 0.5  # above the lowest point of the flight
GRID_S = 0.02
SHORTEST_S = 10.0  # of a flight with a statistic


class Statistic(NamedTuple):
    """Of one axis."""

    mean_m_s: float
    std_m_s: float
    time_s: float


def statistic(error: Array, step_s: float) -> Statistic:
    """Of an error at equal steps, shape (n,) [m/s]."""
    centred = error - error.mean()
    n = len(centred)
    spectrum = np.fft.rfft(centred, 2 * n)
    correlation = np.fft.irfft(spectrum * np.conj(spectrum))[:n]
    below = np.flatnonzero(correlation < correlation[0] / math.e)
    return Statistic(float(error.mean()), float(error.std()), float(below[0]) * step_s if len(below) else math.inf)


def flown_error(path: Path) -> tuple[Array, float]:
    """Error of the velocity while airborne, shape (n, 3) [m/s], east, north, up, and its step [s]; raises `UserError`."""
    t, v, truth_t, truth = _of_ulog(path) if path.suffix == ".ulg" else _of_log(path)
    if not len(t) or not len(truth_t):
        raise UserError(f"{path}: holds no velocity of the flight controller together with the true one")
    flying = truth_t[truth[:, 3] > truth[:, 3].min() + AIRBORNE_M]
    if not len(flying) or flying[-1] - flying[0] < SHORTEST_S:
        raise UserError(f"{path}: less than {SHORTEST_S:g} s of flight")
    grid = np.arange(max(flying[0], t[0]), min(flying[-1], t[-1]), GRID_S)
    columns = [np.interp(grid, t, v[:, i]) - np.interp(grid, truth_t, truth[:, i]) for i in range(3)]
    return np.column_stack(columns), GRID_S


def _of_log(path: Path) -> tuple[Array, Array, Array, Array]:
    """(t, v, t, (v, z)) of a log of this stack."""
    log = read_log(path)
    seen, true = log.of(FcuPosition), log.of(Truth)
    return (
        np.array([m.stamp_s for m in seen]),
        np.array([m.v_W for m in seen]),
        np.array([m.stamp_s for m in true]),
        np.array([(*m.v_W, m.p_W[2]) for m in true]),
    )


def _of_ulog(path: Path) -> tuple[Array, Array, Array, Array]:
    """(t, v, t, (v, z)) of PX4's log."""
    from pyulog import ULog

    names = ("vehicle_local_position", "vehicle_local_position_groundtruth")
    try:
        tables = {table.name: table.data for table in ULog(str(path), list(names)).data_list}
        seen, true = (tables[name] for name in names)
    except KeyError as error:
        raise UserError(f"{path}: holds no {error.args[0]}: only a log of PX4 in simulation has the truth") from None
    except Exception as error:  # pyulog raises whatever its parser meets
        raise UserError(f"{path}: cannot be read as a ULog: {error}") from None
    ok = np.asarray(seen["v_xy_valid"], dtype=bool)
    return (
        seen["timestamp_sample"][ok] * 1e-6,
        np.column_stack([seen["vy"], seen["vx"], -seen["vz"]])[ok],
        true["timestamp_sample"] * 1e-6,
        np.column_stack([true["vy"], true["vx"], -true["vz"], -true["z"]]),
    )


def main() -> int:
    """Print the table; exit status 2 with one line for a log that cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m sitl.velocity_error", description=__doc__.partition("\n")[0])
    parser.add_argument("log", type=Path)
    path = parser.parse_args().log
    try:
        error, step_s = flown_error(path)
    except UserError as refused:
        print(f"velocity_error: {refused}", file=sys.stderr)
        return 2
    print(f"{path}: {len(error) * step_s:.0f} s in the air")
    for name, values in zip(AXES, error.T, strict=True):
        s = statistic(values, step_s)
        print(f"{name:>6}: mean {s.mean_m_s:+.3f} m/s, standard deviation {s.std_m_s:.3f} m/s, time {s.time_s:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
