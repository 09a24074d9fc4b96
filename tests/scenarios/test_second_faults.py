"""A fault of the computer or of a process at a moment that others have made delicate."""

import pytest

from companion.core.enums import FcuMode, Phase
from sitl.scenario import Fault, FaultKind
from tests.scenarios.forked import in_fork
from tests.scenarios.safety_flights import beginning


def asleep(duration_s):
    """Sleep in the hold; setpoints that left afterwards, modes and end of the flight."""
    lockstep = beginning("switch")
    begin_s, sent = lockstep.now_s, len(lockstep.messages["sent_setpoint"])
    lockstep.sleep(duration_s)
    lockstep.run_until(lambda: lockstep.now_s >= begin_s + duration_s + 15.0)
    modes = [change.new for change in lockstep.world.autopilot.commander.transitions if change.time_s > begin_s]
    return len(lockstep.messages["sent_setpoint"]) - sent, modes, lockstep.pilot.phase, lockstep.pilot.cause


@pytest.mark.parametrize("duration_s", [1.0, pytest.param(12.0, marks=pytest.mark.verify), 30.0])
def test_no_setpoint_leaves_after_the_computer_has_slept(duration_s):
    """PX4 left offboard in the sleep and would enter it again with the first setpoint."""
    sent, modes, phase, cause = in_fork(lambda: asleep(duration_s))
    assert sent == 0 and modes == [FcuMode.POSCTL]
    assert phase == Phase.PX4_HOLD and "PX4 has control" in cause


def controller_dies_in_the_landing():
    lockstep = beginning("hold")
    begin_s = lockstep.now_s
    for kind, after_s, lasts_s, name in (
        (FaultKind.GNSS_LOST, 0.0, 600.0, ""),
        (FaultKind.MARKERS_HIDDEN, 2.0, 600.0, ""),
        (FaultKind.PROCESS_DEAD, 7.5, 2.0, "controller"),  # this stack sinks from 7 s on
    ):
        lockstep.faults.add(Fault(at_s=begin_s + after_s, kind=kind, duration_s=lasts_s, name=name))
    lockstep.run_until(lambda: lockstep.pilot.phase == Phase.DONE or lockstep.now_s > begin_s + 40.0)
    face_m = lockstep.loaded.scenario.scene.bundles[0].p_W[0]
    truth = [m for m in lockstep.messages["truth"] if m.stamp_s > begin_s]
    in_the_air = [m for m in truth if m.p_W[2] > 0.5]
    return lockstep.pilot.phase, min(face_m - m.p_W[0] for m in in_the_air), truth[-1].p_W[2]


def test_a_landing_without_gnss_goes_on_when_the_controller_dies():
    """PX4 left offboard for Altitude mode, in which nothing landed: the wind took the aircraft into the pier."""
    phase, nearest_m, height_m = in_fork(controller_dies_in_the_landing)
    assert phase == Phase.DONE and nearest_m > 2.0 and height_m < 0.5
