"""PX4's own fence: a cylinder of GF_MAX_HOR_DIST and GF_MAX_VER_DIST round home, and what GF_ACTION does about leaving.

As PX4 1.17's navigator (`Navigator::geofence_breach_check`): looked at five times a second and only while GF_ACTION is
not 0, each limit off when it is 0. A breach is over when the aircraft is back inside, but not while it holds because
of it. Polygons and the prediction (GF_PREDICT) are not here.
"""

import math

from sitl.autopilot.failsafe import HOLD, LAND, NEVER, NONE, RTL, SWITCH, TERMINATE, WARN, Action
from sitl.autopilot.mode_table import Conditions
from sitl.autopilot.parameters import Parameters

PERIOD_S = 0.2
TOO_FAR = "exceeding maximum distance to Home"
TOO_HIGH = "exceeding maximum altitude above Home"
_ACTIONS = {0: NONE, 1: WARN, 2: HOLD, 3: RTL, 4: TERMINATE, 5: LAND}


class Fence:
    """`check` tells the commander's conditions whether the fence is broken."""

    def __init__(self, parameters: Parameters) -> None:
        self._get = parameters
        self._checked_s = -math.inf

    def check(self, conditions: Conditions, holding: bool, p_W, home_W, now_s: float) -> None:
        """p_W, home_W: the aircraft and home [m], ENU; holding: the mode that flies is Hold."""
        get = self._get
        if get["GF_ACTION"] == 0 or home_W is None or not conditions.position or now_s - self._checked_s < PERIOD_S:
            return
        self._checked_s = now_s
        far_m, high_m = get["GF_MAX_HOR_DIST"], get["GF_MAX_VER_DIST"]
        if far_m > 0 and math.dist(p_W[:2], home_W[:2]) >= far_m:
            conditions.fence = TOO_FAR
        elif high_m > 0 and p_W[2] - home_W[2] >= high_m:
            conditions.fence = TOO_HIGH
        elif not (holding and get["GF_ACTION"] == 2):
            conditions.fence = ""


def fence_action(parameters: Parameters) -> Action:
    """What a broken fence asks for: the pilot escapes from a Hold by the mode switch only, from an end not at all."""
    action = _ACTIONS.get(int(parameters["GF_ACTION"]), WARN)
    takeover = {HOLD: SWITCH, TERMINATE: NEVER}.get(action)
    return Action(action, "geofence", takeover, until_mode_change=action in (HOLD, RTL, LAND))
