"""One lockstep flight for each action of the safety table in a flight without satellites.

``python -m tests.scenarios.alone_flights [NAME …]`` prints the results.

All flights have the same beginning (config/scenarios/bridge_no_satellites.toml): the pilot takes off in Altitude mode and
hands over by the switch, and the mission holds in front of the pier. It is flown once; each flight continues from there in a
fork of the process.
"""

import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from companion.core.enums import Phase
from sitl.lockstep import Lockstep
from sitl.scenario import Fault, load_scenario
from tests.scenarios.forked import in_fork
from tests.scenarios.safety_flights import SETTLED_S, Attack, AutopilotSample, FlightOutcome, fault, outcome_of, sampled

SCENARIO = Path(__file__).parents[2] / "config/scenarios/bridge_no_satellites.toml"
SEED = 1
CLEARANCE_M = 0.4  # rotor tips of the F550 from its centre
LONGEST_S = 70.0
AFTER_S = 0.5  # flown on after the end, so that the mission has seen it
CONTINUED_S = 15.0  # flown after a fault after which the mission goes on


class AloneFlight(NamedTuple):
    """A fault in the hold, and what must follow."""

    monitor: str  # that acts first
    faults: tuple[tuple, ...]  # (kind, duration [s], numbers, name)
    phases: tuple[str, ...]  # the phases of the mission after HOLD, in order
    modes: tuple[str, ...]  # the modes of PX4 after OFFBOARD, in order
    excursion_m: float = 0.5  # farthest from the hold point before it is left on purpose
    landed_m: float = 1.5  # farthest from where the aircraft was at the fault, or from the hand-over after a return
    nearest_m: float = CLEARANCE_M  # to the plane of the face
    attack: Attack | None = None


class AloneOutcome(NamedTuple):
    """What happened in a flight."""

    flight: FlightOutcome
    phases: tuple[str, ...]
    modes: tuple[str, ...]
    landed: bool
    from_hold_m: float  # horizontal, of the end
    from_handover_m: float


def _pilot_takes_over(lockstep: Lockstep) -> None:
    lockstep.world.pilot.take_over(lockstep.now_s)


def _pilot_turns_switch_off(lockstep: Lockstep) -> None:
    lockstep.world.pilot.turn_switch_off()


FLIGHTS = {
    "warn": AloneFlight("cpu_throttled", (fault("cpu_throttled", lasts_s=6.0),), (), ()),
    "hold": AloneFlight(
        "solver_failing", (fault("solver_fails", lasts_s=3.0),), (Phase.PAUSE, Phase.APPROACH, Phase.HOLD), ()
    ),
    "hidden_short": AloneFlight(
        "bundle_lost",
        (fault("markers_hidden", lasts_s=2.5),),
        (Phase.PAUSE, Phase.APPROACH, Phase.HOLD),
        (),
    ),
    "retreat": AloneFlight(
        "bundle_lost",
        (fault("markers_hidden", lasts_s=4.2),),
        (Phase.PAUSE, Phase.RETREAT, Phase.RETURN, Phase.LAND, Phase.DONE),
        ("DESCEND",),
    ),
    "hidden": AloneFlight(
        "bundle_lost",
        (fault("markers_hidden"),),
        (Phase.PAUSE, Phase.RETREAT, Phase.LAND, Phase.DONE),
        ("DESCEND",),
        landed_m=4.0,  # it backs away by 2 m at most
    ),
    "return": AloneFlight(
        "battery_low",
        (fault("battery_low", 13.3, 0.2),),
        (Phase.RETURN, Phase.LAND, Phase.DONE),
        ("DESCEND",),
    ),
    "land": AloneFlight(
        "battery_critical",
        (fault("battery_low", 12.8, 0.1),),
        (Phase.LAND, Phase.DONE),
        ("DESCEND",),
    ),
    "stop_streaming": AloneFlight(
        "state_stale",
        (fault("process_dead", name="estimator"),),
        (Phase.PX4_HOLD,),
        ("ALTCTL",),
        excursion_m=6.0,
        landed_m=4.0,
    ),
    "relinquish": AloneFlight(
        "rc_takeover", (), (Phase.PILOT,), ("ALTCTL",), excursion_m=6.0, landed_m=4.0, attack=_pilot_takes_over
    ),
    "switch_off": AloneFlight(
        "switch_off",
        (),
        (Phase.PILOT, Phase.WAIT_READY),
        ("ALTCTL",),
        excursion_m=6.0,
        landed_m=4.0,
        attack=_pilot_turns_switch_off,
    ),
    "rc_lost": AloneFlight("rc_lost", (fault("rc_lost"),), (Phase.RETURN, Phase.LAND, Phase.DONE), ("DESCEND",)),
    "rc_and_estimator_lost": AloneFlight(
        "state_stale",
        (fault("rc_lost"), fault("process_dead", name="estimator")),
        (Phase.PX4_HOLD,),
        ("DESCEND",),
        excursion_m=27.0,
        landed_m=27.0,
        nearest_m=-2.0,  # the wind carries it past the pier, on its side
    ),
}


@cache
def beginning() -> Lockstep:
    """The flight up to the moment before the fault; to be continued in a fork only."""
    lockstep = Lockstep(load_scenario(SCENARIO, camera_mode="corners"), SEED)
    lockstep.start()
    reached = lockstep.run_until(lambda: lockstep.pilot is not None and lockstep.pilot.phase == Phase.HOLD)
    assert reached, f"not in the hold: {lockstep.pilot}"
    until_s = lockstep.now_s + SETTLED_S
    lockstep.run_until(lambda: lockstep.now_s >= until_s)
    assert not lockstep.messages["safety"], lockstep.messages["safety"][0].text
    return lockstep


def fly(name: str) -> AloneOutcome:
    """Fly one of `FLIGHTS` in a fork of this process."""
    lockstep = beginning()
    return in_fork(lambda: _continue(lockstep, FLIGHTS[name]))


def _continue(lockstep: Lockstep, flight: AloneFlight) -> AloneOutcome:
    begin_s = lockstep.now_s
    for kind, lasts_s, numbers, process in flight.faults:
        values = [float(n) for n in numbers]
        lockstep.faults.add(Fault(at_s=begin_s, kind=kind, duration_s=lasts_s, value=values, name=process))
    if flight.attack is not None:
        flight.attack(lockstep)
    samples = sampled(lockstep, begin_s)
    longest_s = CONTINUED_S if not flight.modes else LONGEST_S
    lockstep.run_until(lambda: not lockstep.world.autopilot.armed or lockstep.now_s > begin_s + longest_s)
    until_s = lockstep.now_s + AFTER_S
    lockstep.run_until(lambda: lockstep.now_s >= until_s)
    outcome = outcome_of(lockstep, flight.monitor, begin_s, samples)
    phases = [s.phase for s in outcome.statuses]
    changes = [b for a, b in zip(phases, phases[1:], strict=False) if a != b]
    truth, statuses = lockstep.messages["truth"], lockstep.messages["mission_status"]
    taken_s = next(s.stamp_s for s in statuses if s.phase == Phase.ENTER_OFFBOARD)
    handover = next(m for m in truth if m.stamp_s >= taken_s)
    at_fault = next(m for m in truth if m.stamp_s >= begin_s)
    end = np.array(truth[-1].p_W)
    return AloneOutcome(
        flight=outcome,
        phases=tuple(changes),
        modes=tuple(entered for at_s, _, entered in outcome.modes if samples_armed(samples, at_s)),
        landed=not lockstep.world.autopilot.armed,
        from_hold_m=float(np.hypot(*(end - at_fault.p_W)[:2])),
        from_handover_m=float(np.hypot(*(end - handover.p_W)[:2])),
    )


def samples_armed(samples: list[AutopilotSample], at_s: float) -> bool:
    """Armed at a time; after disarming PX4 shows an earlier mode."""
    return next((sample.armed for sample in samples if sample.now_s >= at_s + 0.03), False)


HEADER = ("flight", "monitor", "phases", "modes of PX4", "first action after, s", "excursion, m", "nearest to the face, m", "ends, m from the hold", "from the hand-over")  # fmt: skip


def table_row(name: str, outcome: AloneOutcome) -> tuple[str, ...]:
    """The cells of one flight, under `HEADER`."""
    monitor = FLIGHTS[name].monitor
    first_s = next((f"{e.stamp_s:.1f}" for e in outcome.flight.events if e.monitor == monitor), "never")
    return (
        f"`{name}`",
        f"`{monitor}`",
        ", ".join(outcome.phases) or "HOLD",
        ", ".join(outcome.modes) or "OFFBOARD",
        first_s,
        f"{outcome.flight.excursion_m:.2f}",
        f"{outcome.flight.nearest_m:.2f}",
        f"{outcome.from_hold_m:.1f}" + ("" if outcome.landed else " (in the air)"),
        f"{outcome.from_handover_m:.1f}",
    )


def main() -> None:
    print("| " + " | ".join(HEADER) + " |\n|" + "---|" * len(HEADER), flush=True)
    for name in FLIGHTS:
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        print("| " + " | ".join(table_row(name, fly(name))) + " |", flush=True)


if __name__ == "__main__":
    main()
