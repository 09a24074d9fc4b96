"""Attacks that once led the stack away in silence: a bundle that moves, and altitudes that are wrong before a take-off."""

import math
from typing import NamedTuple

import numpy as np
import pytest
from pymavlink.dialects.v20 import common
from safety_flights import SCENARIO, SEED, beginning

from companion.core.enums import Phase
from companion.mission import phases as ph
from sitl.lockstep import Lockstep
from sitl.scenario import load_scenario
from tests.scenarios.forked import in_fork

GIVEN_UP_S, EXCURSION_M = 3.0, 6.0
OVER_LIMIT_M = 0.5
LONGEST_S = 40.0


class Moved(NamedTuple):
    given_up_s: float
    excursion_m: float
    cause: str


def follow_a_moving_bundle(east: float, north: float) -> Moved:
    """The bundle in sight moves with this velocity [m/s] from now on, without a jump."""
    lockstep = beginning("hold")
    begin_s, point = lockstep.now_s, np.array(lockstep.messages["truth"][-1].p_W)
    camera = lockstep.world.corners
    expose = camera.expose

    def displaced(now_s, p_W, q_WB, hidden):
        moved = np.array((east, north, 0.0)) * (now_s - begin_s)
        return expose(now_s, p_W - moved, q_WB, hidden)  # the camera sees what it would see from there

    camera.expose = displaced
    working = (*ph.WORKING, Phase.PAUSE)
    lockstep.run_until(lambda: lockstep.pilot.phase not in working or lockstep.now_s > begin_s + LONGEST_S)
    given_up_s = lockstep.now_s - begin_s
    lockstep.run_until(lambda: lockstep.now_s > begin_s + given_up_s + 15.0)
    truth = [m for m in lockstep.messages["truth"] if m.stamp_s > begin_s and m.p_W[2] > 0.3]
    excursion_m = max(math.dist(m.p_W[:2], point[:2]) for m in truth)
    return Moved(given_up_s, excursion_m, lockstep.messages["mission_status"][-1].cause)


SLOW = pytest.mark.verify


@pytest.mark.parametrize(
    "velocity", [(0.0, 1.5), pytest.param((0.0, 1.0), marks=SLOW), pytest.param((0.0, -2.0), marks=SLOW)]
)
def test_a_bundle_that_moves_sideways_is_given_up(velocity):
    """Followed for 40 m without a message: the filter took it for an error of GNSS and of its velocity."""
    moved = in_fork(lambda: follow_a_moving_bundle(*velocity))
    assert moved.given_up_s <= GIVEN_UP_S, moved
    assert moved.excursion_m <= EXCURSION_M, moved
    assert moved.cause, moved


# --- take-off -------------------------------------------------------------------------------------------------------


class HomeChanger:
    """Changes the altitude of every HOME_POSITION, in bytes that come from the flight controller."""

    def __init__(self, shift_m, nan=False) -> None:
        self._shift_m, self._nan = shift_m, nan  # shift_m: of the number of the message and of the aircraft's height
        self._parser = common.MAVLink(None)
        self._parser.robust_parsing = True
        self.changed = 0

    def change(self, data: bytes, height_m: float) -> bytes:
        out = b""
        for message in self._parser.parse_buffer(data) or []:
            if message.get_type() == "HOME_POSITION":
                message.altitude += round(1e3 * self._shift_m(self.changed, height_m))
                if self._nan:
                    message.x = message.y = message.z = math.nan
                self.changed += 1
                mavlink = common.MAVLink(None, srcSystem=message.get_srcSystem(), srcComponent=1)
                mavlink.seq = message.get_seq()
                out += message.pack(mavlink)
            else:
                out += bytes(message.get_msgbuf())
        return out


ATTACKS = {
    "20 m too high": HomeChanger(lambda number, height_m: 20.0),
    "4 m too high": HomeChanger(lambda number, height_m: 4.0),
    "20 m too high from the climb on": HomeChanger(lambda number, height_m: 20.0 if height_m > 0.3 else 0.0),
    "jumping": HomeChanger(lambda number, height_m: 20.0 * (number % 2)),
    "no number": HomeChanger(lambda number, height_m: 0.0, nan=True),
}


class TakeOff(NamedTuple):
    highest_m: float
    phase: str
    changed: int


def take_off(changer: HomeChanger) -> TakeOff:
    lockstep = Lockstep(load_scenario(SCENARIO), SEED)
    arrive = lockstep.arrive
    lockstep.arrive = lambda data: arrive(
        changer.change(data, lockstep.messages["truth"][-1].p_W[2] if lockstep.messages["truth"] else 0.0)
    )
    lockstep.start()
    lockstep.run_until(lambda: lockstep.now_s > 22.0)
    highest_m = max(m.p_W[2] for m in lockstep.messages["truth"])
    return TakeOff(highest_m, str(lockstep.pilot.phase), changer.changed)


@pytest.mark.verify
@pytest.mark.parametrize("name", ATTACKS)
def test_an_own_take_off_never_goes_above_the_limit(name):
    """A home altitude 20 m too high once led a take-off to 3 m up to 23 m, with a limit of 7 m."""
    flown = in_fork(lambda: take_off(ATTACKS[name]))
    plan = load_scenario(SCENARIO).plan
    assert flown.changed > 0
    assert flown.highest_m <= plan.takeoff.height_m + OVER_LIMIT_M < plan.limits.height_m + OVER_LIMIT_M, flown


@pytest.mark.verify
def test_a_take_off_that_px4_does_not_end_stays_below_the_limit():
    """Whatever leads PX4 higher: the climb is judged by its own height over the place where the motors started."""

    def climb_on() -> TakeOff:
        lockstep = beginning("takeoff")
        lockstep.world.autopilot.stack.guidance._target[2] += 22.0
        lockstep.run_until(lambda: lockstep.pilot.phase == Phase.DONE)
        return TakeOff(max(m.p_W[2] for m in lockstep.messages["truth"]), str(lockstep.pilot.phase), 0)

    flown = in_fork(climb_on)
    plan = load_scenario(SCENARIO).plan
    assert flown.phase == Phase.DONE
    assert flown.highest_m <= plan.takeoff.height_m + 1.0 < plan.limits.height_m + OVER_LIMIT_M
