"""What the rules for PX4's parameters need of a mission, for preflight and for the link process alike."""

import math

from companion.core.px4_parameters import PlannedFlight
from companion.mission.plan import Plan


def planned_flight(plan: Plan) -> PlannedFlight:
    """Height, distance, switch; the stack's fence is the box and the two limits around the take-off point."""
    channel = plan.rc_switch.channel if plan.rc_switch else None
    limits = plan.limits
    (west, south, _), (east, north, top) = limits.fence_min_m, limits.fence_max_m
    corner_m = math.hypot(max(abs(west), abs(east)), max(abs(south), abs(north)))
    return PlannedFlight(min(limits.height_m, top), min(limits.distance_m, corner_m), channel, plan.satellites)
