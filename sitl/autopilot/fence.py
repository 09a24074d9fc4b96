"""PX4's own fence: a cylinder of GF_MAX_HOR_DIST and GF_MAX_VER_DIST round home, and its action GF_ACTION.

As PX4 1.17's navigator (`Navigator::geofence_breach_check`): checked five times a second and only while GF_ACTION is
not 0, each limit off when it is 0. A breach is over when the aircraft is back inside, but not while it holds because
of the breach. Polygons and the prediction (GF_PREDICT) are not emulated.
"""

import math

from sitl.autopilot.conversion import Vector
from sitl.autopilot.failsafe import FailsafeAction, FailsafeRequest, Takeover
from sitl.autopilot.parameters import Parameters

PERIOD_S = 0.2
TOO_FAR = "exceeding maximum distance to Home"
TOO_HIGH = "exceeding maximum altitude above Home"
GF_HOLD = 2  # of GF_ACTION
_A = FailsafeAction
_ACTIONS = {0: _A.NONE, 1: _A.WARN, GF_HOLD: _A.HOLD, 3: _A.RTL, 4: _A.TERMINATE, 5: _A.LAND}
_TAKEOVER = {_A.HOLD: Takeover.SWITCH, _A.TERMINATE: Takeover.NEVER}


class Fence:
    """Checks the position; ``breach`` says how the fence is broken, "" when it is not."""

    def __init__(self, parameters: Parameters) -> None:
        self._get = parameters
        self._checked_s = -math.inf
        self.breach = ""

    def check(self, position_valid: bool, holding: bool, p_W: Vector, home_W: Vector | None, now_s: float) -> None:
        """p_W, home_W: the aircraft and home [m], ENU; holding: the aircraft flies in Hold."""
        get = self._get
        if get["GF_ACTION"] == 0 or home_W is None or not position_valid or now_s - self._checked_s < PERIOD_S:
            return
        self._checked_s = now_s
        far_m, high_m = get["GF_MAX_HOR_DIST"], get["GF_MAX_VER_DIST"]
        if far_m > 0 and math.dist((p_W[0], p_W[1]), (home_W[0], home_W[1])) >= far_m:
            self.breach = TOO_FAR
        elif high_m > 0 and p_W[2] - home_W[2] >= high_m:
            self.breach = TOO_HIGH
        elif not (holding and get["GF_ACTION"] == GF_HOLD):
            self.breach = ""


def fence_request(parameters: Parameters) -> FailsafeRequest:
    """The action on a breach: the pilot ends a Hold by the mode switch only and cannot end a termination."""
    action = _ACTIONS.get(parameters.integer("GF_ACTION"), FailsafeAction.WARN)
    lasting = action in (FailsafeAction.HOLD, FailsafeAction.RTL, FailsafeAction.LAND)
    return FailsafeRequest(action, "geofence", _TAKEOVER.get(action), until_mode_change=lasting)
