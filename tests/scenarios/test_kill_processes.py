"""kill -9 of any process during the hold: nothing falls, nothing fights PX4, the log survives.

Real processes in real time; the simulator is not one of them (on an aircraft it is the air).
"""

import numpy as np
import pytest
from real_flight import RealFlight

from companion.clock import monotonic_s
from companion.manager import wait_until
from companion.recording.log import read_log

# Without these the setpoint stream never pauses.
STREAM_SURVIVES = {"tracker", "recorder"}


@pytest.mark.slow
@pytest.mark.xdist_group("realtime")
@pytest.mark.parametrize("name", ["tracker", "recorder", "estimator", "controller", "fcu", "mission"])
def test_killed_in_the_hold(tmp_path, name):
    with RealFlight(tmp_path) as flight:
        assert flight.until_hold(), f"no hold: {flight.phases}, {flight.latest.get('pilot')}"
        hold_W = np.array(flight.truth[-1].p_W)
        flight.truth.clear()
        flight.modes.clear()
        flight.phases.clear()
        before = flight.kill(name)
        flight.run(2.0, lambda: flight.manager.pid(name) not in (None, before))
        assert flight.manager.pid(name) not in (None, before), "not restarted within 2 s"
        flight.run(10.0)

        farthest_m = max(np.linalg.norm(np.array(t.p_W) - hold_W) for t in flight.truth)
        assert farthest_m < 1.0, f"{farthest_m:.2f} m from the hold point"
        assert flight.manager.pid(name) is not None
        left = [i for i, mode in enumerate(flight.modes) if mode != "OFFBOARD"]
        if name in STREAM_SURVIVES or not left:
            # The stream went on, or was back before PX4 gave up on it: still flying the mission, by setpoints.
            assert flight.modes == ["OFFBOARD"]
            assert set(flight.phases) <= {"HOLD", "PAUSE", "APPROACH"}
            assert flight.latest.age_s("sent_setpoint", monotonic_s()) < 0.2
        else:
            assert "OFFBOARD" not in flight.modes[left[0] :], "offboard re-entered behind the pilot's back"
            assert flight.phases[-1] in ("PX4_HOLD", "PILOT")
        print(f"killed {name}: farthest {farthest_m:.2f} m, modes {flight.modes}, phases {flight.phases}")
    assert wait_until(flight.log.exists, 1.0)
    log = read_log(flight.log)
    assert len(log["state"]) > 1000
    gaps = np.diff([m.stamp_s for m in log["sent_setpoint"]])
    if name == "recorder":
        assert gaps.max() < 2.5, "more than a second lost beside the restart"
