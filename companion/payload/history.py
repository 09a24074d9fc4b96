"""States and body rates of the last seconds, the state at the time of an exposure, and the flight controller's heading."""

import bisect
import math
from collections import deque
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from companion.core.frames import quat_conjugate, quat_exp, quat_log, quat_multiply, rpy_from_quat
from companion.core.messages import FcuAttitude, State
from companion.core.trajectory_messages import Quat, Vec3

KEPT_S = 30.0  # a camera may answer this late
GAP_MAX_S = 0.3  # between two states of which one is made
BEHIND_MAX_S = 0.05  # by which an exposure may be later than the newest state
RATES_KEPT_S = 35.0


class Moment(NamedTuple):
    """The aircraft at one time."""

    stamp_s: float
    state: State  # the nearer one, for what is not interpolated
    p_W: Array
    v_W: Array
    q_WB: Array
    omega_B: Array  # rad/s; NaN without attitudes of the flight controller


class History:
    """The messages `State` and `FcuAttitude` of the last seconds."""

    def __init__(self) -> None:
        self._states: deque[State] = deque()
        self._rates: deque[tuple[float, Vec3]] = deque()
        self._attitude: FcuAttitude | None = None

    def put_state(self, state: State) -> None:
        """Keep a valid state; one of a restarted filter forgets those before, which had another origin."""
        states = self._states
        if states and (states[-1].reset_count != state.reset_count or state.stamp_s < states[-1].stamp_s):
            states.clear()
        if not state.valid or not all(map(math.isfinite, (*state.p_W, *state.v_W, *state.q_WB))):
            return
        states.append(state)
        while states[0].stamp_s < state.stamp_s - KEPT_S:
            states.popleft()

    def put_attitude(self, attitude: FcuAttitude) -> None:
        """Keep the body rates of a valid attitude."""
        if not attitude.valid or (self._rates and attitude.stamp_s <= self._rates[-1][0]):
            return
        self._attitude = attitude
        self._rates.append((attitude.stamp_s, attitude.omega_B))
        while self._rates[0][0] < attitude.stamp_s - RATES_KEPT_S:
            self._rates.popleft()

    @property
    def newest_s(self) -> float:
        """Stamp of the newest state, -inf without one."""
        return self._states[-1].stamp_s if self._states else -math.inf

    @property
    def q_WB(self) -> Array | None:
        """Attitude of the body in the newest state, None without one."""
        return np.array(self._states[-1].q_WB) if self._states else None

    def fcu_yaw_rad(self, now_s: float) -> float | None:
        """Heading of the body by the flight controller's own estimate, in W; None without a new one."""
        attitude = self._attitude
        if attitude is None or now_s - attitude.stamp_s > GAP_MAX_S:
            return None
        return rpy_from_quat(attitude.q_WB)[2]

    def at(self, stamp_s: float) -> Moment | None:
        """The aircraft at a time between two states, or just after the newest; None: not known."""
        states = self._states
        i = bisect.bisect_left(states, stamp_s, key=lambda state: state.stamp_s)
        if not states or (i == 0 and states[0].stamp_s > stamp_s):
            return None
        if i == len(states):
            last = states[-1]
            late_s = stamp_s - last.stamp_s
            if late_s > BEHIND_MAX_S:
                return None
            omega_B = self.rate(stamp_s)
            turn = quat_exp(late_s * np.nan_to_num(omega_B))
            p_W = np.array(last.p_W) + late_s * np.array(last.v_W)
            return Moment(stamp_s, last, p_W, np.array(last.v_W), quat_multiply(last.q_WB, turn), omega_B)
        after = states[i]
        before = states[i - 1] if i > 0 else after
        span_s = after.stamp_s - before.stamp_s
        if span_s > GAP_MAX_S:
            return None
        share = (stamp_s - before.stamp_s) / span_s if span_s > 0 else 0.0
        p_W, v_W = (
            (1 - share) * np.array(a) + share * np.array(b)
            for a, b in ((before.p_W, after.p_W), (before.v_W, after.v_W))
        )
        nearer = after if share > 0.5 else before
        return Moment(stamp_s, nearer, p_W, v_W, interpolated(before.q_WB, after.q_WB, share), self.rate(stamp_s))

    def rate(self, stamp_s: float) -> Array:
        """Body rates at a time [rad/s]; those of the newest attitude shortly after it; NaN when not known."""
        rates = self._rates
        i = bisect.bisect_left(rates, stamp_s, key=lambda entry: entry[0])
        if i == len(rates):
            known = bool(rates) and stamp_s - rates[-1][0] <= GAP_MAX_S
            return np.array(rates[-1][1]) if known else np.full(3, math.nan)
        if i == 0 or rates[i][0] - rates[i - 1][0] > GAP_MAX_S:
            return np.full(3, math.nan)
        (t0, first), (t1, second) = rates[i - 1], rates[i]
        share = (stamp_s - t0) / (t1 - t0)
        mixed: Array = (1 - share) * np.array(first) + share * np.array(second)
        return mixed


def interpolated(first: Quat | Array, second: Quat | Array, share: float) -> Array:
    """Rotation at a share of the way from one to another, the short way round."""
    return quat_multiply(first, quat_exp(share * quat_log(quat_multiply(quat_conjugate(first), second))))
