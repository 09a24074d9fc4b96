"""May one fly by this estimate, and does the filter still make sense at all?"""

from math import isfinite

import numpy as np

from acados_gen.eskf_layout import E_TH, E_V, D, V
from companion.estimation.filter import Belief

# Limits of a valid state; the position's limit is safety.position_std_m of the vehicle.
ATTITUDE_STD_MAX_RAD = 0.1
VELOCITY_STD_MAX_M_S = 0.5
ATTITUDE_AGE_MAX_S = 0.5  # the attitude is held up by measurements alone

# Beyond these the filter has diverged and starts anew.
SPEED_MAX_M_S = 40.0
DISTURBANCE_MAX_M_S2 = 15.0
REJECTED_MAX_S = 2.0  # all attitudes or all velocities rejected for this long
REJECTED_MIN_COUNT = 10
ATTITUDE_STD_LOST_RAD = 1.5
VELOCITY_STD_LOST_M_S = 50.0


def largest_std(covariance) -> float:
    """Largest standard deviation over all directions of a 3x3 covariance; inf when it is not one."""
    if not np.isfinite(covariance).all():
        return float("inf")
    return float(np.sqrt(max(np.linalg.eigvalsh(covariance)[-1], 0.0)))


def persistently_rejected(belief: Belief, sensor: str) -> bool:
    """True when nothing of a sensor was accepted for REJECTED_MAX_S although it kept coming."""
    streak = belief.streaks.get(sensor)
    return streak is not None and streak.count >= REJECTED_MIN_COUNT and belief.time_s - streak.start_s > REJECTED_MAX_S


def divergence(belief: Belief) -> str:
    """Why the filter must start anew, "" while it need not."""
    x, variances = belief.x, belief.P.diagonal()
    if not (np.isfinite(x).all() and np.isfinite(belief.P).all()):
        return "not finite"
    if variances.min() <= 0:
        return "covariance not positive"
    if np.abs(x[V]).max() > SPEED_MAX_M_S or np.abs(x[D]).max() > DISTURBANCE_MAX_M_S2:
        return "state beyond any flight"
    if variances[E_TH].max() > ATTITUDE_STD_LOST_RAD**2 or variances[E_V].max() > VELOCITY_STD_LOST_M_S**2:
        return "covariance grown without bound"
    return next((f"{s} rejected" for s in ("attitude", "velocity") if persistently_rejected(belief, s)), "")


def converged(belief: Belief, now_s: float, position_std_m: float, position_std_max_m: float) -> bool:
    """True while one may fly by the belief.

    position_std_m: the smaller of the standard deviations in the world and relative to the bundle.
    """
    return (
        isfinite(position_std_m)
        and position_std_m <= position_std_max_m
        and largest_std(belief.P[E_TH, E_TH]) <= ATTITUDE_STD_MAX_RAD
        and largest_std(belief.P[E_V, E_V]) <= VELOCITY_STD_MAX_M_S
        and now_s - belief.accepted_s.get("attitude", -float("inf")) <= ATTITUDE_AGE_MAX_S
    )
