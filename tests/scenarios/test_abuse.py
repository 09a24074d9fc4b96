"""The estimate of hover_marker stays good with corrupted measurements: one flight, replayed for every abuse."""

import math

import abuse
import pytest

ALLOWED = 1.5  # error while the bundle is in sight, over that of the untouched run
UNTIL_S = 95.0  # of the flight, in its hold
LONGEST_S = 62.0  # abuse: a minute without GNSS, and a little of what comes after it
HELD = 0.99  # of the time out of sight, by three published standard deviations


@pytest.mark.verify
def test_the_estimate_survives_every_abuse(monkeypatch, pytestconfig):
    monkeypatch.chdir(pytestconfig.rootpath)
    flown = abuse.fly(abuse.SCENARIO, seed=101, until_s=UNTIL_S)
    assert flown.hold[1] - flown.hold[0] > abuse.SETTLED_S + LONGEST_S
    figures = {name: abuse.endure(flown, kind) for name, kind in abuse.ABUSES.items()}
    clean = figures["clean"]
    assert clean.rms_in_sight_m < 0.03
    for name, seen in figures.items():
        assert seen.rms_in_sight_m <= ALLOWED * clean.rms_in_sight_m, (name, seen)
        assert seen.resets == 0, (name, seen)
        assert math.isnan(seen.bounded_out_of_sight) or seen.bounded_out_of_sight >= HELD, (name, seen)
    assert figures["30 s without markers"].out_of_sight_s > 25
