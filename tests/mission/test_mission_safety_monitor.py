"""Evaluation of the safety table: limits, times, escalation, and the time between two actions of one aircraft."""

import math

from mission_world import bridge_plan, vehicle

from companion.core.enums import Phase
from companion.mission.mission_inputs import MissionInputs
from companion.mission.monitors import ESCALATION_MIN_S, Monitor
from companion.mission.safety_monitor import CLEAR_S, SafetyMonitor


class Probes:
    """A safety table with one monitor for each of `monitors` (fields that differ), whose values the test sets."""

    def __init__(self, *monitors: dict, **fields) -> None:
        self.values: list[float | None] = []
        made = tuple(self._probe(index, changed) for index, changed in enumerate(monitors or (fields,)))
        self.monitor = SafetyMonitor(vehicle(), bridge_plan(), made)
        self.inputs = MissionInputs(bridge_plan(), vehicle())
        self.now_s = 10.0
        self.phase = Phase.HOLD

    def _probe(self, index: int, fields: dict) -> Monitor:
        return Monitor(
            name=f"probe{index}",
            value=lambda s: self.values[index],
            limit=lambda v, p: 1.0,
            below=False,
            hysteresis=0.2,
            after_s=0.5,
            escalation=("hold", "retreat", "land", "stop streaming"),
            escalation_s=2.0,
            phases=(Phase.HOLD, Phase.LAND),
            severity=4,
            text="probe",
            unit="m",
        )._replace(**fields)

    def run(self, seconds: float, *values: float | None) -> list:
        """The events of some time with these values."""
        self.values, events = list(values), []
        for _ in range(round(seconds / 0.05)):
            self.now_s += 0.05
            events += self.monitor.update(self.inputs.snapshot(self.phase, None, self.now_s))
        return events

    @property
    def action(self) -> str:
        return self.monitor.demand.action if self.monitor.demand else ""


def test_a_short_excess_is_not_an_event():
    probes = Probes()
    assert probes.run(0.45, 1.5) == [] and probes.run(1.0, 0.5) == [] and probes.run(0.45, 1.5) == []


def test_a_monitor_escalates_with_two_seconds_between_levels_and_stays_at_the_last():
    probes = Probes()
    events = probes.run(12.0, 1.5)
    assert [e.action for e in events] == ["hold", "retreat", "land", "stop streaming"]
    gaps = [b.stamp_s - a.stamp_s for a, b in zip(events, events[1:], strict=False)]
    assert min(gaps) >= ESCALATION_MIN_S - 1e-9
    assert probes.action == "stop streaming"


def test_an_escalation_faster_than_two_seconds_is_slowed_down():
    events = Probes(escalation_s=0.1).run(5.0, 1.5)
    assert min(b.stamp_s - a.stamp_s for a, b in zip(events, events[1:], strict=False)) >= ESCALATION_MIN_S - 1e-9


def test_a_monitor_clears_only_well_inside_the_limit_and_after_a_while():
    probes = Probes(escalation=("hold",))
    probes.run(1.0, 1.5)
    assert probes.run(5.0, 0.9) == [] and probes.action == "hold"  # inside, but not by the hysteresis
    assert probes.run(CLEAR_S - 0.1, 0.7) == []
    events = probes.run(0.3, 0.7)
    assert [e.active for e in events] == [False] and probes.action == ""


def test_chatter_around_the_limit_neither_clears_nor_repeats():
    probes = Probes(escalation=("hold",))
    events = []
    for _ in range(20):
        events += probes.run(0.6, 1.5) + probes.run(0.6, 0.7)
    assert len(events) == 1


def test_monitors_of_a_lower_limit_become_active_below_and_clear_above():
    probes = Probes(below=True, escalation=("land",))
    assert probes.run(2.0, 1.1) == []
    assert [e.active for e in probes.run(1.0, 0.9)] == [True]
    assert probes.run(3.0, 1.1) == []
    assert [e.active for e in probes.run(2.0, 1.3)] == [False]


def test_not_a_number_counts_as_beyond_the_limit():
    probes = Probes()
    assert [e.active for e in probes.run(1.0, math.nan)] == [True]


def test_a_value_that_cannot_be_determined_clears_the_monitor():
    probes = Probes()
    probes.run(1.0, 1.5)
    assert [e.active for e in probes.run(0.1, None)] == [False] and probes.action == ""


def test_a_monitor_outside_its_phases_is_not_evaluated():
    probes = Probes()
    probes.phase = Phase.RETURN
    assert probes.run(5.0, 9.0) == []


# --- a monitor that cannot be evaluated -------------------------------------------------------------------------------


class Faulty:
    """A safety table of two: the first raises while `broken`, the second can be evaluated."""

    def __init__(self, **fields) -> None:
        self.broken = False
        self.probes = Probes(fields, {"escalation": ("land",)})
        first, second = self.probes.monitor.monitors
        before = first.value

        def value(s):
            return 1.0 / 0.0 if self.broken else before(s)

        self.probes.monitor = SafetyMonitor(vehicle(), bridge_plan(), (first._replace(value=value), second))

    def run(self, seconds: float, *values: float | None, broken: bool = True) -> list:
        self.broken = broken
        return self.probes.run(seconds, *values)


def test_a_monitor_that_raises_warns_once_and_the_others_watch_on():
    """One that raised ended the evaluation of all, and no limit counted any more."""
    faulty = Faulty()
    events = faulty.run(3.0, 0.5, 0.5)
    assert [(e.monitor, e.active, e.action) for e in events] == [("probe0", True, "warn")]
    assert events[0].text == (
        "Monitor probe0 cannot be evaluated (ZeroDivisionError: float division by zero); the mission continues without it;"
        " be ready to take over"
    )
    assert faulty.probes.action == ""
    assert [(e.monitor, e.action) for e in faulty.run(1.0, 0.5, 1.5)] == [("probe1", "land")]
    assert faulty.probes.action == "land"
    assert faulty.probes.monitor.errors == 80 and "probe0: ZeroDivisionError" in faulty.probes.monitor.last_error


def test_a_monitor_that_is_evaluated_again_says_so_and_demands_as_before():
    faulty = Faulty()
    faulty.run(1.0, 0.5, 0.5)
    events = faulty.run(2.0, 0.5, 0.5, broken=False)
    assert [(e.active, e.action, e.text) for e in events] == [(False, "", "Monitor probe0 is evaluated again")]
    assert [e.action for e in faulty.run(1.0, 1.5, 0.5, broken=False)] == ["hold"]
    assert [e.action for e in Faulty().run(0.05, 0.5, 0.5)] == ["warn"], "by a new table at once"


def test_an_active_monitor_that_raises_goes_on_as_beyond_its_limit():
    faulty = Faulty(escalation=("hold", "land"))
    faulty.run(1.0, 1.5, 0.5, broken=False)
    assert faulty.probes.action == "hold"
    events = faulty.run(0.1, 0.5, 0.5)
    assert [(e.active, e.action) for e in events] == [(True, "hold")] and "beyond its limit" in events[0].text
    assert [e.action for e in faulty.run(3.0, 0.5, 0.5)] == ["land"]
    assert faulty.probes.action == "land"


def test_a_warning_ends_with_the_phases_of_its_monitor():
    faulty = Faulty()
    faulty.run(1.0, 0.5, 0.5)
    faulty.probes.phase = Phase.RETURN
    assert [(e.active, e.text) for e in faulty.run(2.0, 0.5, 0.5)] == [(False, "Monitor probe0 is no longer watched")]


def test_a_detail_that_raises_leaves_its_monitor_alone():
    probes = Probes(detail=lambda s: str(1 / 0), escalation=("land",))
    assert [(e.action, e.text) for e in probes.run(1.0, 1.5)] == [("land", "Probe (1.5 m, limit 1); landing")]
    assert probes.monitor.errors == 20


# --- two monitors, one aircraft -------------------------------------------------------------------------------------


def changes(probes: Probes, seconds: float, *values: float | None) -> list[tuple[float, str]]:
    """(time, action) whenever the demand changes."""
    found, action = [], probes.action
    for _ in range(round(seconds / 0.05)):
        probes.run(0.05, *values)
        if probes.action != action:
            action = probes.action
            found.append((probes.now_s, action))
    return found


def test_actions_of_two_monitors_lie_two_seconds_apart():
    probes = Probes({"escalation": ("hold",), "after_s": 0.0}, {"escalation": ("land",), "after_s": 1.0})
    (hold_s, hold), (land_s, land) = changes(probes, 5.0, 2.0, 2.0)
    assert (hold, land) == ("hold", "land")
    assert land_s - hold_s >= ESCALATION_MIN_S - 1e-9


def test_a_weaker_action_that_remains_waits_as_well():
    probes = Probes({"escalation": ("hold",), "after_s": 0.0}, {"escalation": ("retreat",), "after_s": 0.0})
    assert [action for _, action in changes(probes, 0.5, 2.0, 2.0)] == ["retreat"]
    since_s = probes.now_s - 0.5
    ((hold_s, hold),) = changes(probes, 5.0, 2.0, 0.0)
    assert hold == "hold" and hold_s - since_s >= ESCALATION_MIN_S - 1e-9


def test_first_actions_that_end_the_stream_do_not_wait():
    for action in ("stop streaming", "relinquish"):
        probes = Probes({"escalation": ("hold",), "after_s": 0.0}, {"escalation": (action,), "after_s": 0.5})
        (hold_s, _), (then_s, then) = changes(probes, 5.0, 2.0, 2.0)
        assert then == action and then_s - hold_s < 0.6


def test_a_landing_because_the_estimate_is_in_doubt_does_not_wait():
    """2 s of hold by an estimate in doubt led an aircraft 2 m nearer to the structure."""
    hold, land = {"escalation": ("hold",), "after_s": 0.0}, {"escalation": ("land",), "after_s": 0.5, "doubts": True}
    (hold_s, _), (then_s, then) = changes(Probes(hold, land), 5.0, 2.0, 2.0)
    assert then == "land" and then_s - hold_s < 0.6
    other_first = Probes({"escalation": ("land",), "after_s": 0.5}, hold, land)
    (hold_s, _), (then_s, then) = changes(other_first, 5.0, 2.0, 2.0, 2.0)
    assert then == "land" and then_s - hold_s < 0.6


def test_a_later_level_of_a_monitor_that_doubts_the_estimate_waits():
    probes = Probes(
        {"escalation": ("hold",), "after_s": 1.9}, {"escalation": ("retreat", "land"), "after_s": 0.0, "doubts": True}
    )
    times = [at_s for at_s, _ in changes(probes, 8.0, 2.0, 2.0)]
    assert len(times) == 2 and times[1] - times[0] >= ESCALATION_MIN_S - 1e-9


def test_the_end_of_the_stream_as_last_level_has_to_wait():
    probes = Probes(
        {"escalation": ("hold", "stop streaming"), "after_s": 0.0, "escalation_s": 2.5},
        {"escalation": ("land",), "after_s": 1.0},
    )
    times = [at_s for at_s, _ in changes(probes, 8.0, 2.0, 2.0)]
    assert len(times) == 3 and min(b - a for a, b in zip(times, times[1:], strict=False)) >= ESCALATION_MIN_S - 1e-9


def test_a_monitor_that_warns_demands_nothing():
    probes = Probes({"escalation": ("warn",)})
    events = probes.run(3.0, 2.0)
    assert [(e.active, e.action) for e in events] == [(True, "warn")] and probes.monitor.demand is None


def test_the_message_says_what_happened_what_the_stack_does_and_what_the_crew_can_do():
    probes = Probes({"detail": lambda s: "which one", "advice": "look"})
    texts = [event.text for event in probes.run(8.0, 1.5)]
    assert texts == [
        "Probe (which one, 1.5 m, limit 1); holding position, backing away if it lasts; look",
        "Probe (which one, 1.5 m, limit 1); backing away, landing if it lasts; look",
        "Probe (which one, 1.5 m, limit 1); landing, PX4 takes over if it lasts; look",
        "Probe (which one, 1.5 m, limit 1); setpoints stopped, PX4 has control, take over by RC",
    ]
    assert [event.text for event in probes.run(1.5, 0.1)] == ["Probe: cleared"]


def test_the_message_shows_on_which_side_of_the_limit_the_value_is():
    (event,) = Probes({"limit": lambda v, p: 16.1, "below": True}).run(1.0, 16.06)
    assert event.text.startswith("Probe (16.06 m, limit 16.1);")


def test_a_monitor_whose_phase_has_ended_is_not_reported_as_over():
    probes = Probes()
    probes.run(1.0, 1.5)
    probes.phase = Phase.RETURN
    assert [event.text for event in probes.run(0.1, 1.5)] == ["Probe: no longer watched"]


def test_the_message_does_not_promise_an_action_that_a_stronger_one_prevents():
    hold, land = {"escalation": ("hold",), "after_s": 1.0}, {"escalation": ("land",), "after_s": 0.0}
    assert [event.text for event in Probes(hold, land).run(2.0, 1.5, 1.5)] == [
        "Probe (1.5 m, limit 1); landing",
        "Probe (1.5 m, limit 1)",
    ]


def test_the_message_in_a_landing_says_that_it_goes_on():
    probes = Probes({"escalation": ("hold", "land", "stop streaming"), "after_s": 0.0})
    probes.phase = Phase.LAND
    assert [event.text for event in probes.run(5.0, 1.5)] == [
        "Probe (1.5 m, limit 1); landing continues",
        "Probe (1.5 m, limit 1); landing continues, PX4 takes over if it lasts",
        "Probe (1.5 m, limit 1); setpoints stopped, PX4 has control, take over by RC",
    ]


def test_reset_forgets_active_monitors_and_the_time_of_the_last_action():
    probes = Probes({"escalation": ("hold",), "after_s": 0.0})
    probes.run(0.1, 2.0)
    probes.monitor.reset()
    assert probes.monitor.demand is None
    probes.run(0.05, 2.0)
    assert probes.action == "hold"
