"""An estimator that is restarted in flight: no setpoint mixes its new origin with a reference of the old one."""

import math
from pathlib import Path

import msgspec
import pytest

from companion.core.config import load
from companion.core.vehicle import Vehicle
from companion.runtime.processes import PROCESSES, Context, silence_s
from sitl.lockstep import Lockstep
from sitl.scenario import Fault, load_scenario

ROOT = Path(__file__).parents[2]
F550 = ROOT / "config/vehicles/f550.toml"
SCENARIO = ROOT / "config/scenarios/hover_wind.toml"  # force steps: the restarted estimator lacks the disturbance
CONTEXT = Context(F550, Path(), "", Path(), Path())
AT_S = 40.0
STEP_MAX_RAD = 0.1  # between two setpoints in a row, in a hold


def fly(away_s: float, seed: int) -> Lockstep:
    """A flight whose estimator is away for a while."""
    loaded = load_scenario(SCENARIO, camera_mode="corners")
    fault = Fault(at_s=AT_S, kind="process_dead", duration_s=away_s, name="estimator")
    scenario = msgspec.structs.replace(loaded.scenario, fault=[fault], duration_max_s=AT_S + 5.0)
    lockstep = Lockstep(msgspec.structs.replace(loaded, scenario=scenario), seed)
    lockstep.run()
    return lockstep


def test_only_the_estimator_listens_first():
    silent = {row.name for row in PROCESSES if silence_s(row.name, CONTEXT) > 0}
    assert silent == {"estimator"}
    assert silence_s("estimator", CONTEXT) > load(F550, Vehicle).safety.state_age_s


@pytest.mark.parametrize("away_s", [0.1, *(pytest.param(s, marks=pytest.mark.verify) for s in (0.25, 0.4))])
def test_no_setpoint_is_made_of_an_old_reference_even_by_one_that_speaks_at_once(away_s):
    flight = fly(away_s, seed=1)
    first = next(s for s in flight.messages["state"] if s.valid and s.stamp_s > AT_S + away_s)
    assert first.reset_count > 0
    assert not [s for s in flight.messages["sent_setpoint"] if s.stamp_s > first.stamp_s]
    assert flight.pilot.phase == "PX4_HOLD"


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.verify)])
def test_the_setpoint_does_not_jump_after_an_immediate_restart_of_the_estimator(seed):
    flight = fly(silence_s("estimator", CONTEXT), seed)  # as if its start took no time
    sent = [s for s in flight.messages["sent_setpoint"] if s.stamp_s > AT_S - 1.0]
    assert sent[0].stamp_s < AT_S, "the flight was not under way"
    steps = [
        max(abs(b.roll_rad - a.roll_rad), abs(b.pitch_rad - a.pitch_rad)) for a, b in zip(sent, sent[1:], strict=False)
    ]
    assert max(steps) < STEP_MAX_RAD
    states = [s for s in flight.messages["state"] if s.valid and s.stamp_s > AT_S + 0.5]
    assert states, "the restarted estimator published no state"
    assert all(s.stamp_s < states[0].stamp_s for s in sent), "a setpoint from the new origin"
    assert math.isclose(states[0].stamp_s - AT_S, silence_s("estimator", CONTEXT), abs_tol=0.2)
