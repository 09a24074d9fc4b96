"""Every process dies or hangs in the hold: the aircraft stays, nothing opposes PX4, the log survives.

Real processes in real time; the simulator is not among them (it takes the place of the aircraft). This is a sample;
`kill_campaign.py` beside this file also does it at random times of whole flights, and to the manager.
"""

import math
import shutil

import numpy as np
import pytest
from ground_observer import GroundObserver, ModeChange
from process_faults import STREAM_ENDS, STREAM_SURVIVES, Outcome, in_charge_gap_s, inject_and_watch, largest_step
from real_flight import RealFlight

from companion.core.folders import holder
from companion.core.messages import MissionStatus, SentSetpoint
from companion.recording.log import read_log

FLIGHTS = [  # faults that the flight survives, and one that ends it
    [("tracker", "kill"), ("camera", "hang"), ("estimator", "hang")],
    [("recorder", "hang"), ("controller", "kill")],
    [("tracker", "busy"), ("fcu", "hang")],
    [("camera", "kill"), ("mission", "kill")],
]
LOG_GAP_S = 3.0  # of states in the log: until a hang is noticed, the start, and what the old one had not yet written


@pytest.mark.realtime
@pytest.mark.parametrize("faults", FLIGHTS, ids=lambda faults: "+".join(f"{name}-{kind}" for name, kind in faults))
def test_a_process_that_dies_or_hangs_in_the_hold(tmp_path, faults):
    with RealFlight(tmp_path, camera=True) as flight:
        observer = GroundObserver(flight.instance)

        def in_hold() -> bool:
            observer.receive()
            return flight.phases[-1:] == ["HOLD"]

        assert flight.run(60.0, in_hold), f"no hold: {flight.phases}, {flight.latest.get(MissionStatus)}"
        for name, kind in faults:
            assert flight.run(20.0, in_hold), f"the hold did not come back before {name}"
            flight.run(1.0, observer.receive)
            outcome = inject_and_watch(flight, observer, name, kind)
            print(outcome)
            assert outcome.problems() == []
            # A controller that is back before the stream counts as lost may go on.
            assert not outcome.px4_took_over or name in STREAM_ENDS
            flight.phases.append(flight.latest.get(MissionStatus).phase)
        observer.close()
    log = read_log(flight.log)
    assert len(log["state"]) > 1000
    assert len(log["host"]) > 5
    if ("recorder", "hang") in faults:
        assert np.diff([m.stamp_s for m in log["state"]]).max() < LOG_GAP_S


@pytest.mark.realtime
def test_a_process_that_starts_after_the_bus_folder_was_deleted_is_heard(tmp_path):
    with RealFlight(tmp_path, camera=True) as flight:
        observer = GroundObserver(flight.instance)
        assert flight.until_hold()
        shutil.rmtree(tmp_path / "bus")
        assert flight.run(10.0, lambda: (tmp_path / "bus" / "camera.sock").exists())
        flight.run(1.0, observer.receive)
        names = {*STREAM_SURVIVES, *STREAM_ENDS} - {"camera"}  # that is a relay of this test
        assert {name for name in names if holder(tmp_path / "bus", name) is not None} == names
        outcome = inject_and_watch(flight, observer, "tracker", "kill")
        assert outcome.problems() == [] and not outcome.px4_took_over
        flight.run(12.0)  # longer than `marker_lost` and `process_dead` wait
        assert flight.phases[-1:] == ["HOLD"], flight.latest.get(MissionStatus)
        observer.close()


def test_every_process_is_in_the_sample():
    assert {name for faults in FLIGHTS for name, _ in faults} == {*STREAM_SURVIVES, *STREAM_ENDS}


# --- the problems that an outcome reports


GOOD = Outcome("tracker", "kill", 0.3, 0.6, 0.1, 0.05, 0.05, 0.01, ("OFFBOARD",), ("HOLD",), 0.5)
LEFT = GOOD._replace(modes=("OFFBOARD", "POSCTL"), phases=("PX4_HOLD",))


@pytest.mark.parametrize(
    "outcome, problem",
    [
        (GOOD, ""),
        (LEFT, ""),
        (GOOD._replace(restarted_s=2.1), "started again after"),
        (GOOD._replace(farthest_m=1.0), "from the hold point"),
        (GOOD._replace(farthest_m=math.nan), "from the hold point"),
        (GOOD._replace(in_charge_gap_s=0.9), "no controller for"),
        (GOOD._replace(step_rad=0.56), "setpoint jumped"),
        (LEFT._replace(modes=("OFFBOARD", "POSCTL", "OFFBOARD")), "entered again"),
        (LEFT._replace(phases=("HOLD",)), "the mission is in"),
    ],
)
def test_an_outcome_reports_what_must_not_happen(outcome, problem):
    problems = outcome.problems()
    assert (problems == []) if problem == "" else (problem in problems[0] and len(problems) == 1)


def sent(*stamps_s: float, roll_rad: float = 0.0) -> list[SentSetpoint]:
    return [
        SentSetpoint(stamp_s=s, roll_rad=roll_rad * i, pitch_rad=0.0, yaw_rad=0.0, yaw_rate_rad_s=0.0, thrust=0.3)
        for i, s in enumerate(stamps_s)
    ]


@pytest.mark.parametrize(
    "left_s, gap_s",
    [
        (None, 1.7),  # it never left offboard: there was no controller until now
        (10.6, 0.5),  # it left half a second after the last setpoint
        (10.05, 0.05),  # it left while setpoints still came
    ],
)
def test_the_longest_time_without_a_controller(left_s, gap_s):
    observer = GroundObserver(99)
    observer.close()
    observer.modes = [ModeChange(0.0, "OFFBOARD")] + ([ModeChange(left_s, "POSCTL")] if left_s else [])
    assert in_charge_gap_s(sent(10.0, 10.1), observer, 11.8) == pytest.approx(gap_s)


def test_the_largest_step_between_two_setpoints():
    assert largest_step(sent(1.0, 1.1, 5.0, roll_rad=0.3), "roll_rad", "pitch_rad") == pytest.approx(0.3)
