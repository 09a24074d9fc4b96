"""A landing without GNSS: while the bundle is in sight, this stack sinks to just above the ground itself.

PX4's own landing without a fix drifts by metres per second in wind: 11 m from a height of 3 m in this world.
"""

import math

import pytest

from companion.core.enums import Phase
from companion.mission import phases as ph
from sitl.lockstep import Lockstep
from sitl.scenario import Fault, FaultKind
from tests.attack.flights import load

WORLD = 7  # of the campaign, whose landing left the fence


@pytest.mark.verify
def test_a_landing_in_sight_of_the_bundle_stays_near_the_take_off_point():
    lockstep = Lockstep(load("return", WORLD), WORLD)
    lockstep.start()
    assert lockstep.run_until(lambda: lockstep.pilot is not None and lockstep.pilot.phase == Phase.RETURN)
    lockstep.faults.add(Fault(at_s=lockstep.now_s + 0.4, kind=FaultKind.GNSS_LOST, duration_s=600.0))
    assert lockstep.run_until(lambda: lockstep.pilot.phase in ph.ENDED)
    assert lockstep.pilot.phase == Phase.DONE
    place, home = lockstep.messages["truth"][-1].p_W, lockstep.loaded.scenario.start.p_W
    assert math.dist(place[:2], home[:2]) < 2.0
