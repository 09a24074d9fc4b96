"""kill -9 of any process during the hold: nothing falls, nothing fights PX4, the log survives.

Real processes in real time; the simulator is not one of them (on an aircraft it is the air).
"""

import numpy as np
import pytest
from real_flight import RealFlight

from companion.clock import monotonic_s
from companion.recording.log import read_log

STREAM_SURVIVES = {"tracker", "recorder"}  # without these the setpoint stream never pauses
FLIGHTS = [("tracker", "recorder"), ("estimator",), ("controller",), ("fcu",), ("mission",)]
WATCH_S = 6.0


def kill_and_watch(flight: RealFlight, name: str) -> None:
    """Kill one process in the hold; check restart, distance, modes and phases."""
    hold_W = np.array(flight.truth[-1].p_W)
    for record in (flight.truth, flight.modes, flight.phases):
        record.clear()
    before = flight.kill(name)
    restarted = flight.run(2.0, lambda: flight.manager.pid(name) not in (None, before))
    assert restarted, f"{name}: not restarted within 2 s"
    flight.run(WATCH_S)
    farthest_m = max(np.linalg.norm(np.array(t.p_W) - hold_W) for t in flight.truth)
    print(f"killed {name}: farthest {farthest_m:.2f} m, modes {flight.modes}, phases {flight.phases}")
    assert farthest_m < 1.0, f"{name}: {farthest_m:.2f} m from the hold point"
    assert flight.manager.pid(name) is not None, f"{name}: did not stay up"
    left = [i for i, mode in enumerate(flight.modes) if mode != "OFFBOARD"]
    if name in STREAM_SURVIVES or not left:
        # The stream went on, or was back before PX4 gave up on it: still flying the mission, by setpoints.
        assert flight.modes == ["OFFBOARD"]
        assert set(flight.phases) <= {"HOLD", "PAUSE", "APPROACH"}
        assert flight.latest.age_s("sent_setpoint", monotonic_s()) < 0.2
    else:
        assert "OFFBOARD" not in flight.modes[left[0] :], f"{name}: offboard re-entered behind the pilot's back"
        assert flight.phases[-1] in ("PX4_HOLD", "PILOT")


@pytest.mark.realtime
@pytest.mark.parametrize("names", FLIGHTS, ids="+".join)
def test_killed_in_the_hold(tmp_path, names):
    with RealFlight(tmp_path) as flight:
        assert flight.until_hold(), f"no hold: {flight.phases}, {flight.latest.get('pilot')}"
        for name in names:
            kill_and_watch(flight, name)
    log = read_log(flight.log)
    assert len(log["state"]) > 1000
    if "recorder" in names:
        gaps = np.diff([m.stamp_s for m in log["state"]])
        assert gaps.max() < 2.5, "more than a second lost beside the restart"
