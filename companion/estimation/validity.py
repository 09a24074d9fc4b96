"""May one fly by this estimate, and does the filter still make sense at all?"""

from math import acos, cos, inf, isfinite, sqrt

from companion.estimation.filter import Belief
from companion.estimation.layout import E_TH, E_V, D, V

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
    """Largest standard deviation over all directions of a 3x3 covariance; inf when it is not one.

    The largest root of the characteristic polynomial in closed form (O. Smith, Communications of the ACM 4(4), 1961):
    four of these are wanted for every state, and LAPACK takes five times as long.
    """
    (xx, xy, xz), (_, yy, yz), (_, _, zz) = rows = covariance.tolist()
    if not isfinite(sum(map(sum, rows))):
        return inf
    mean = (xx + yy + zz) / 3
    xx, yy, zz = xx - mean, yy - mean, zz - mean
    spread = sqrt((xx * xx + yy * yy + zz * zz + 2 * (xy * xy + xz * xz + yz * yz)) / 6)
    largest = mean
    if spread > 0:
        det = xx * (yy * zz - yz * yz) - xy * (xy * zz - yz * xz) + xz * (xy * yz - yy * xz)
        # the cosine of three times the angle, out of its range only by rounding
        largest += 2 * spread * cos(acos(max(-1.0, min(1.0, det / (2 * spread**3)))) / 3)
    return sqrt(max(largest, 0.0))


def persistently_rejected(belief: Belief, sensor: str) -> bool:
    """True when nothing of a sensor was accepted for REJECTED_MAX_S although it kept coming."""
    streak = belief.streaks.get(sensor)
    return streak is not None and streak.count >= REJECTED_MIN_COUNT and belief.time_s - streak.start_s > REJECTED_MAX_S


def divergence(belief: Belief) -> str:
    """Why the filter must start anew, "" while it need not."""
    # a sum is finite when all of it is; lists, because on a few numbers NumPy's own time is all there is
    if not (isfinite(belief.x.sum()) and isfinite(belief.P.sum())):
        return "not finite"
    x, variances = belief.x.tolist(), belief.P.diagonal().tolist()
    if min(variances) <= 0:
        return "covariance not positive"
    if max(map(abs, x[V])) > SPEED_MAX_M_S or max(map(abs, x[D])) > DISTURBANCE_MAX_M_S2:
        return "state beyond any flight"
    if max(variances[E_TH]) > ATTITUDE_STD_LOST_RAD**2 or max(variances[E_V]) > VELOCITY_STD_LOST_M_S**2:
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
