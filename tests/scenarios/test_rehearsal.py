"""The pilot of the simulator: take-off in Position mode, hand-over by the switch, take-back, hand-over again."""

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from companion.core.enums import FcuMode, Phase
from companion.core.messages import CaptureRequest, FcuPosition, FcuStatus, MissionStatus
from companion.recording.series import of
from sitl.lockstep import Lockstep
from sitl.pilot import Stage, TakeBack
from sitl.scenario import DEFAULT_PILOT, Fault, load_scenario, with_pilot
from tests.scenarios.forked import in_fork

SCENARIOS = Path(__file__).parents[2] / "config/scenarios"
SEED = 1
IN_EVERY_PHASE = (  # of bridge_hover, with what the pilot does it by
    (Phase.SEARCH, "sticks"),
    (Phase.APPROACH, "switch"),
    (Phase.HOLD, "sticks"),
    (Phase.RETURN, "switch"),
    (Phase.LAND, "sticks"),
)


def rehearsal(name: str) -> Lockstep:
    """A flight with the default pilot, who takes nothing back by plan; the hold is short."""
    loaded = with_pilot(load_scenario(SCENARIOS / f"{name}.toml", camera_mode="corners"), DEFAULT_PILOT)
    pilot = msgspec.structs.replace(loaded.scenario.pilot, take_back=[])
    plan = loaded.plan
    if plan.hold is not None:
        quick = msgspec.structs.replace(plan.hold, duration_s=3.0)
        plan = msgspec.structs.replace(plan, hold=quick, photographs=msgspec.structs.replace(plan.photographs, at_s=[]))
    scenario = msgspec.structs.replace(loaded.scenario, pilot=pilot, duration_max_s=900.0)
    lockstep = Lockstep(msgspec.structs.replace(loaded, scenario=scenario, plan=plan), SEED)
    lockstep.start()
    return lockstep


def until(lockstep: Lockstep, phase: Phase, limit_s: float = 120.0) -> None:
    end_s = lockstep.now_s + limit_s
    lockstep.run_until(lambda: lockstep.now_s > end_s or (lockstep.pilot is not None and lockstep.pilot.phase == phase))
    assert lockstep.pilot is not None and lockstep.pilot.phase == phase, (
        phase,
        lockstep.pilot,
        lockstep.world.pilot.stage,
    )


def take_back(lockstep: Lockstep, by: str, again_s: float | None = 3.0) -> FcuMode:
    """The mode in which the pilot flies then."""
    lockstep.world.pilot.take_back(TakeBack(after_s=0.0, by=by, again_s=again_s), lockstep.now_s)
    end_s = lockstep.now_s + 5.0
    lockstep.run_until(lambda: lockstep.now_s > end_s or lockstep.world.pilot.stage in (Stage.HOLD, Stage.LAND))
    assert lockstep.now_s <= end_s, (lockstep.pilot, lockstep.world.pilot.stage)
    return of(lockstep.messages, FcuStatus)[-1].mode


def test_the_pilot_takes_off_in_position_mode_and_hands_over():
    def flown():
        lockstep = rehearsal("hover_wind")
        until(lockstep, Phase.SEARCH)
        modes = [m.mode for m in of(lockstep.messages, FcuStatus) if m.armed]
        return modes, take_back(lockstep, "sticks", None), lockstep.world.pilot.stage

    modes, mode, stage = in_fork(flown)
    assert set(modes) == {FcuMode.POSCTL, FcuMode.OFFBOARD} and modes[0] == FcuMode.POSCTL
    assert mode == FcuMode.POSCTL and stage is Stage.LAND


LOSSES = {
    "position": lambda lockstep: lockstep.faults.change(FcuPosition, lambda m: msgspec.structs.replace(m, valid=False)),
    "fix": lambda lockstep: lockstep.faults.add(Fault(at_s=lockstep.now_s, duration_s=60.0, kind="gnss_lost")),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_without_a_position_the_pilot_keeps_the_aircraft(loss):
    """Lost after the switch, before PX4 was asked for offboard: the mission turned home at once before."""

    def flown():
        lockstep = rehearsal("hover_wind")
        until(lockstep, Phase.ENTER_OFFBOARD)
        LOSSES[loss](lockstep)
        begin_s = lockstep.now_s
        lockstep.run_until(lambda: lockstep.now_s > begin_s + 4.0)
        late = [m for m in of(lockstep.messages, FcuStatus) if m.stamp_s > begin_s]
        return {m.mode for m in late}, lockstep.pilot

    modes, status = in_fork(flown)
    assert FcuMode.OFFBOARD not in modes, modes
    assert status.phase == Phase.PX4_HOLD and "no position" in status.cause, status


@pytest.mark.verify
def test_the_pilot_takes_the_aircraft_back_in_every_phase_and_hands_it_over_again():
    def flown():
        lockstep, modes = rehearsal("bridge_hover"), []
        for phase, by in IN_EVERY_PHASE:
            until(lockstep, phase, 240.0)
            if phase != Phase.LAND:
                lockstep.run_until(lambda since_s=lockstep.now_s: lockstep.now_s > since_s + 1.0)
            modes.append(take_back(lockstep, by))
        until(lockstep, Phase.SEARCH, 60.0)
        until(lockstep, Phase.DONE, 240.0)
        return modes, lockstep.pilot

    modes, status = in_fork(flown)
    assert all(mode == FcuMode.POSCTL for mode in modes)
    assert status.success, status


def hide_markers(lockstep: Lockstep, duration_s: float) -> None:
    """The bundle is out of sight from now on: PAUSE after a time, RETREAT after some more."""
    lockstep.faults.add(Fault(at_s=lockstep.now_s, duration_s=duration_s, kind="markers_hidden"))


@pytest.mark.verify
def test_the_pilot_takes_back_while_offboard_is_entered_in_a_pause_and_in_a_retreat():
    def flown():
        lockstep, modes = rehearsal("bridge_hover"), []
        until(lockstep, Phase.ENTER_OFFBOARD)
        modes.append(take_back(lockstep, "switch"))
        until(lockstep, Phase.ENTER_OFFBOARD, 60.0)
        modes.append(take_back(lockstep, "sticks"))
        for phase, by in ((Phase.PAUSE, "sticks"), (Phase.RETREAT, "switch")):
            until(lockstep, Phase.HOLD, 240.0)
            hide_markers(lockstep, 12.0)
            until(lockstep, phase, 60.0)
            modes.append(take_back(lockstep, by))
        until(lockstep, Phase.SEARCH, 60.0)
        until(lockstep, Phase.DONE, 300.0)
        return modes, lockstep.pilot, [m.phase for m in of(lockstep.messages, MissionStatus)]

    modes, status, phases = in_fork(flown)
    assert modes == [FcuMode.POSCTL] * 4
    assert status.success, status
    followed = set(pairwise(phases))
    for phase in (Phase.ENTER_OFFBOARD, Phase.PAUSE, Phase.RETREAT):
        assert {(phase, Phase.PILOT), (phase, Phase.WAIT_READY)} & followed, (phase, followed)


@pytest.mark.verify
def test_an_inspection_goes_on_where_the_pilot_took_the_aircraft():
    def flown():
        lockstep = rehearsal("two_piers")
        until(lockstep, Phase.INSPECT, 120.0)
        lockstep.run_until(lambda: len(lockstep.messages["capture_request"]) >= 5)
        take_back(lockstep, "sticks")
        until(lockstep, Phase.INSPECT, 90.0)
        lockstep.run_until(lambda: len(lockstep.messages["capture_request"]) >= 9)
        return [m.id for m in of(lockstep.messages, CaptureRequest)]

    ids = in_fork(flown)
    assert sorted(set(ids)) == list(range(1, max(ids) + 1)) and len(ids) - len(set(ids)) <= 1, ids
