"""Random attack flights keep the promises of `tests.attack.promises`, and the judge of these promises sees what breaks them."""

import math

import numpy as np
import pytest

from companion.core.enums import CommandAction, Phase
from companion.core.messages import LinkRx, MissionStatus, Truth
from companion.mission.mission_context import MissionContext
from companion.mission.plan import Limits
from sitl.scenario import Fault, FaultKind
from tests.attack.attacks import ATTACKS, Attack, draw
from tests.attack.conversation import Corrupted, Forged
from tests.attack.flights import NO_POSITION, UNREACHABLE, campaign, plan_of, read
from tests.attack.promises import judge

LIMITS = Limits(fence_min_m=(-5.0, -6.0, -1.0), fence_max_m=(5.0, 6.0, 8.0), height_m=7.0, distance_m=15.0)
FACE_X_M = 6.0
LEVEL, ON_ITS_BACK = (1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0)


def truth(*points, v_z=0.0, q_WB=LEVEL):
    return [
        Truth(
            stamp_s=0.1 * i, p_W=p, v_W=(0.0, 0.0, v_z), q_WB=q_WB, omega_B=(0.0, 0.0, 0.0),
            disturbance_W=(0.0, 0.0, 0.0), gnss_bias_W=(0.0, 0.0, 0.0), bundles={}, battery_voltage_v=15.0,
            motor_thrust_n=(0.0,) * 6,
        )
        for i, p in enumerate(points)
    ]  # fmt: skip


def status(phase, cause="", success=False):
    return MissionStatus(
        stamp_s=0.0,
        phase=phase,
        reason="",
        phase_time_s=0.0,
        finished=True,
        success=success,
        photographs=0,
        cause=cause,
    )


def judged(flown, statuses=None):
    return judge(flown, statuses or [status(Phase.HOLD)], LIMITS, (0.0, 0.0, 0.0), FACE_X_M)


@pytest.mark.parametrize(
    ("flown", "broken"),
    [
        (truth((3.0, 0.0, 3.0), (5.7, 0.0, 3.0)), "contact"),
        (truth((3.0, 0.0, 3.0), (3.0, 8.1, 3.0)), "2.1 m beyond a limit"),
        (truth((3.0, 0.0, 3.0), (3.0, 0.0, 9.5)), "2.5 m beyond a limit"),
        (truth((3.0, 0.0, 1.0), (3.0, 0.0, 0.1), v_z=-2.0), "fell: 2.0 m/s"),
        (truth((3.0, 0.0, 3.0), q_WB=ON_ITS_BACK), "tilted"),
    ],
)
def test_a_broken_promise_is_found(flown, broken):
    assert len(judged(flown).broken) == 1 and judged(flown).broken[0].startswith(broken)


def test_a_quiet_hold_and_a_landing_break_nothing():
    assert judged(truth((3.0, 0.0, 3.0), (3.1, 0.0, 3.0))).broken == ()
    assert judged(truth((3.0, 0.0, 1.0), (3.0, 0.0, 0.1), v_z=-0.7), [status(Phase.DONE, success=True)]).broken == ()


def test_after_a_hand_over_without_a_position_the_fall_and_the_cause_are_judged_alone():
    flown = truth((3.0, 0.0, 3.0), (5.7, 0.0, 3.0), (5.7, 0.0, 1.0), (5.7, 0.0, 0.1), v_z=-2.0)
    left = judge(flown, [status(Phase.HOLD)], LIMITS, (0.0, 0.0, 0.0), FACE_X_M, 0.05, NO_POSITION)
    assert left.broken == ("fell: 2.0 m/s at the ground",) and left.apart and left.nearest_m == 3.0


@pytest.mark.parametrize("phase", [Phase.PX4_HOLD, Phase.PILOT, Phase.FAILED, Phase.DONE])
def test_an_early_end_needs_a_cause(phase):
    assert judged(truth((3.0, 0.0, 3.0)), [status(phase)]).broken[0].startswith(f"{phase} without a cause")
    assert judged(truth((3.0, 0.0, 3.0)), [status(phase, cause="battery low: landed")]).broken == ()


def test_the_excursion_ends_when_the_aircraft_leaves_on_purpose():
    flown = truth((3.0, 0.0, 3.0), (3.0, 0.5, 3.0), (0.0, 0.0, 3.0))
    left = status(Phase.RETURN)
    left.stamp_s = 0.15
    assert judged(flown, [status(Phase.HOLD), left]).excursion_m == pytest.approx(0.5)


def test_a_flight_that_ends_its_stream_without_a_position_of_px4_is_left_to_the_pilot(tmp_path, monkeypatch):
    estimator_dies = Fault(at_s=8.0, kind=FaultKind.PROCESS_DEAD, duration_s=600.0, name="estimator")
    both = (Fault(at_s=0.0, kind=FaultKind.GNSS_LOST, duration_s=600.0), estimator_dies)
    second = Attack("a second fault", lambda rng, s: (both, None, ""))
    monkeypatch.setattr("tests.attack.flights.plan_of", lambda world, per_world: ("hold", [Phase.HOLD]))
    (flown,) = campaign(range(2, 3), 1, (second,), tmp_path / "flights.jsonl")
    assert flown["end"] == Phase.PX4_HOLD and flown["apart"] == NO_POSITION and flown["broken"] == []


@pytest.mark.parametrize(
    ("link", "apart"),
    [
        (Fault(at_s=0.0, kind=FaultKind.LINK_LOST, duration_s=4.0), UNREACHABLE),
        (Fault(at_s=0.0, kind=FaultKind.PROCESS_DEAD, duration_s=600.0, name="fcu"), UNREACHABLE),
        (Fault(at_s=0.0, kind=FaultKind.LINK_LOST, duration_s=0.3), ""),
    ],
    ids=["link", "process", "short"],
)
def test_another_sender_that_flies_while_nothing_reaches_px4_is_counted_apart(tmp_path, monkeypatch, link, apart):
    other = Fault(at_s=0.0, kind=FaultKind.FOREIGN_OFFBOARD, duration_s=5.0, value=[50.0, 0.1, 0.4, 0.0])
    attack = Attack("another sender, unheard", lambda rng, s: ((link, other), None, ""))
    monkeypatch.setattr("tests.attack.flights.plan_of", lambda world, per_world: ("hold", [Phase.HOLD]))
    (flown,) = campaign(range(2, 3), 1, (attack,), tmp_path / "flights.jsonl")
    assert flown["apart"] == apart and flown["broken"] == []


def test_another_sender_that_is_not_held_when_the_link_is_back_breaks_a_promise(tmp_path, monkeypatch):
    lost = Fault(at_s=0.05, kind=FaultKind.LINK_LOST, duration_s=1.5)
    other = Fault(at_s=0.0, kind=FaultKind.FOREIGN_OFFBOARD, duration_s=600.0, value=[50.0, 0.17, 0.4, 0.0])
    attack = Attack("another sender, unheard", lambda rng, s: ((lost, other), None, ""))
    monkeypatch.setattr("tests.attack.flights.plan_of", lambda world, per_world: ("hold", [Phase.HOLD]))
    (held,) = campaign(range(2, 3), 1, (attack,), tmp_path / "held.jsonl")
    assert held["apart"] == UNREACHABLE and held["broken"] == []
    request, never = MissionContext.request, (CommandAction.HOLD, CommandAction.LAND)

    def mute(mission, action, *rest, **named):
        return None if action in never else request(mission, action, *rest, **named)

    monkeypatch.setattr(MissionContext, "request", mute)
    (flown,) = campaign(range(2, 3), 1, (attack,), tmp_path / "flown.jsonl")
    assert flown["broken"] == ["another sender flew on for 3 s after the link was back"]


def test_every_attack_is_drawn_from_its_seed_alone():
    for attack in ATTACKS:
        first, second = (draw(np.random.default_rng(5), (attack,)) for _ in range(2))
        assert [(d.name, d.begins_s, d.faults, d.numbers) for d in first] == [
            (d.name, d.begins_s, d.faults, d.numbers) for d in second
        ]
        assert bool(first[0].faults) != (first[0].conversation is not None)


def test_the_second_attack_often_begins_when_the_first_has_worked_for_long():
    pairs = [drawn for seed in range(300) if len(drawn := draw(np.random.default_rng(seed))) > 1]
    assert all(drawn[0].begins_s < 4.0 for drawn in pairs)
    late = sum(drawn[1].begins_s > drawn[0].begins_s + 5.0 for drawn in pairs)
    assert 0.2 < late / len(pairs) < 0.5


def test_every_phase_in_the_air_is_attacked():
    phases = {phase for world in range(1, 5) for phase in plan_of(world, 20)[1]}
    assert phases == {
        Phase.TAKEOFF, Phase.ENTER_OFFBOARD, Phase.SEARCH, Phase.APPROACH, Phase.HOLD, Phase.RETURN, Phase.LAND
    }  # fmt: skip


def test_conversations_are_changed():
    clean = [LinkRx(stamp_s=0.01 * i, data=bytes(range(60))) for i in range(400)]
    corrupted, forged = Corrupted(1, 0.3), Forged(1, 5.0)
    changed = [corrupted.change(m).data != m.data for m in clean]
    assert 0.15 < np.mean(changed) < 0.4
    added = [m for m in clean if len(forged.change(m).data) > len(m.data)]
    assert len(added) == len(forged.sent) and 10 < len(added) < 40 and len(set(forged.sent)) > 5


def test_the_campaign_goes_on_where_it_stopped(tmp_path):
    out = tmp_path / "flights.jsonl"
    quick = tuple(a for a in ATTACKS if a.name == "link lost")
    first = campaign(range(1, 2), 1, quick, out)
    out.write_text(out.read_text() + '{"world": 1, "ind')  # the process was killed while it wrote
    assert campaign(range(1, 2), 1, quick, out) == first == read(out)
    assert first[0]["broken"] == [] and math.isfinite(first[0]["nearest_m"])
