"""The monitor of the safety table: limits, times, ladders, and the time between two actions of one aircraft."""

import math

from mission_world import bridge_plan, vehicle

from companion.mission import phases as ph
from companion.mission.mission_inputs import MissionInputs
from companion.mission.monitors import ESCALATION_MIN_S, Monitor
from companion.mission.safety_monitor import CLEAR_S, SafetyMonitor


class Rig:
    """A monitor with one row for each of `rows` (fields that differ), whose values the test sets."""

    def __init__(self, *rows: dict, **fields) -> None:
        self.values: list[float | None] = []
        made = tuple(self._row(index, row) for index, row in enumerate(rows or (fields,)))
        self.monitor = SafetyMonitor(vehicle(), bridge_plan(), made)
        self.known = MissionInputs(bridge_plan(), vehicle().safety)
        self.now_s = 10.0
        self.phase = ph.HOLD

    def _row(self, index: int, fields: dict) -> Monitor:
        return Monitor(
            name=f"probe{index}",
            value=lambda s: self.values[index],
            limit=lambda v, p: 1.0,
            below=False,
            hysteresis=0.2,
            after_s=0.5,
            escalation=("hold", "retreat", "land", "stop streaming"),
            escalation_s=2.0,
            phases=(ph.HOLD,),
            severity=4,
            text="probe",
            unit="m",
        )._replace(**fields)

    def run(self, seconds: float, *values: float | None) -> list:
        """The events of some time with these values."""
        self.values, events = list(values), []
        for _ in range(round(seconds / 0.05)):
            self.now_s += 0.05
            events += self.monitor.update(self.known.situation(self.phase, "", self.now_s))
        return events

    @property
    def action(self) -> str:
        return self.monitor.demand.action if self.monitor.demand else ""


def test_a_short_excess_is_not_an_event():
    rig = Rig()
    assert rig.run(0.45, 1.5) == [] and rig.run(1.0, 0.5) == [] and rig.run(0.45, 1.5) == []


def test_ladder_is_climbed_with_two_seconds_between_rungs_and_stays_at_the_top():
    rig = Rig()
    events = rig.run(12.0, 1.5)
    assert [e.action for e in events] == ["hold", "retreat", "land", "stop streaming"]
    gaps = [b.stamp_s - a.stamp_s for a, b in zip(events, events[1:], strict=False)]
    assert min(gaps) >= ESCALATION_MIN_S - 1e-9
    assert rig.action == "stop streaming"


def test_a_row_that_asks_for_faster_rungs_is_held_back():
    events = Rig(escalation_s=0.1).run(5.0, 1.5)
    assert min(b.stamp_s - a.stamp_s for a, b in zip(events, events[1:], strict=False)) >= ESCALATION_MIN_S - 1e-9


def test_row_clears_only_well_inside_the_limit_and_after_a_while():
    rig = Rig(escalation=("hold",))
    rig.run(1.0, 1.5)
    assert rig.run(5.0, 0.9) == [] and rig.action == "hold"  # inside, but not by the hysteresis
    assert rig.run(CLEAR_S - 0.1, 0.7) == []
    events = rig.run(0.3, 0.7)
    assert [e.active for e in events] == [False] and rig.action == ""


def test_chatter_around_the_limit_neither_clears_nor_repeats():
    rig = Rig(escalation=("hold",))
    events = []
    for _ in range(20):
        events += rig.run(0.6, 1.5) + rig.run(0.6, 0.7)
    assert len(events) == 1


def test_below_rows_trigger_below_and_clear_above():
    rig = Rig(below=True, escalation=("land",))
    assert rig.run(2.0, 1.1) == []
    assert [e.active for e in rig.run(1.0, 0.9)] == [True]
    assert rig.run(3.0, 1.1) == []
    assert [e.active for e in rig.run(2.0, 1.3)] == [False]


def test_not_a_number_counts_as_beyond_the_limit():
    rig = Rig()
    assert [e.active for e in rig.run(1.0, math.nan)] == [True]


def test_a_value_that_cannot_be_said_rests_the_row():
    rig = Rig()
    rig.run(1.0, 1.5)
    assert [e.active for e in rig.run(0.1, None)] == [False] and rig.action == ""


def test_a_row_outside_its_phases_is_not_evaluated():
    rig = Rig()
    rig.phase = ph.LAND
    assert rig.run(5.0, 9.0) == []


# --- two rows, one aircraft -----------------------------------------------------------------------------------------


def changes(rig: Rig, seconds: float, *values: float | None) -> list[tuple[float, str]]:
    """(time, action) whenever the demand changes."""
    found, action = [], rig.action
    for _ in range(round(seconds / 0.05)):
        rig.run(0.05, *values)
        if rig.action != action:
            action = rig.action
            found.append((rig.now_s, action))
    return found


def test_actions_of_two_rows_lie_two_seconds_apart():
    rig = Rig({"escalation": ("hold",), "after_s": 0.0}, {"escalation": ("land",), "after_s": 1.0})
    (hold_s, hold), (land_s, land) = changes(rig, 5.0, 2.0, 2.0)
    assert (hold, land) == ("hold", "land")
    assert land_s - hold_s >= ESCALATION_MIN_S - 1e-9


def test_a_weaker_action_that_remains_waits_as_well():
    rig = Rig({"escalation": ("hold",), "after_s": 0.0}, {"escalation": ("retreat",), "after_s": 0.0})
    assert [action for _, action in changes(rig, 0.5, 2.0, 2.0)] == ["retreat"]
    since_s = rig.now_s - 0.5
    ((hold_s, hold),) = changes(rig, 5.0, 2.0, 0.0)
    assert hold == "hold" and hold_s - since_s >= ESCALATION_MIN_S - 1e-9


def test_the_pilot_and_what_cannot_be_flown_wait_for_nobody():
    for action in ("stop streaming", "relinquish"):
        rig = Rig({"escalation": ("hold",), "after_s": 0.0}, {"escalation": (action,), "after_s": 0.5})
        (hold_s, _), (then_s, then) = changes(rig, 5.0, 2.0, 2.0)
        assert then == action and then_s - hold_s < 0.6


def test_a_stop_at_the_end_of_a_ladder_has_to_wait():
    rig = Rig(
        {"escalation": ("hold", "stop streaming"), "after_s": 0.0, "escalation_s": 2.5},
        {"escalation": ("land",), "after_s": 1.0},
    )
    times = [at_s for at_s, _ in changes(rig, 8.0, 2.0, 2.0)]
    assert len(times) == 3 and min(b - a for a, b in zip(times, times[1:], strict=False)) >= ESCALATION_MIN_S - 1e-9


def test_a_row_that_warns_asks_for_nothing():
    rig = Rig({"escalation": ("warn",)})
    events = rig.run(3.0, 2.0)
    assert [(e.active, e.action) for e in events] == [(True, "warn")] and rig.monitor.demand is None


def test_the_detail_of_a_row_stands_in_its_message():
    (event,) = Rig({"detail": lambda s: "which one"}).run(1.0, 1.5)
    assert event.text == "probe: which one (1.5 m, limit 1)"


def test_reset_forgets_active_rows_and_the_time_of_the_last_action():
    rig = Rig({"escalation": ("hold",), "after_s": 0.0})
    rig.run(0.1, 2.0)
    rig.monitor.reset()
    assert rig.monitor.demand is None
    rig.run(0.05, 2.0)
    assert rig.action == "hold"
