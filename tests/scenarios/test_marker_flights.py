"""Attacked markers in whole flights: given up in time, and never near to the real face."""

import pytest

from tests.scenarios.marker_flights import ATTACKS, fly

CLEARANCE_M = 0.4  # rotor tips of the F550 from its centre
SAMPLE = ("copy_then",)  # of `make test`

ALL = [pytest.param(name, marks=() if name in SAMPLE else pytest.mark.verify) for name in ATTACKS]


@pytest.mark.parametrize("name", ALL)
def test_an_attack_by_markers(name: str):
    outcome = fly(ATTACKS[name])
    assert outcome.nearest_m > CLEARANCE_M
    assert outcome.excursion_m <= 6.0
    if name.startswith("moves"):
        assert outcome.given_up_s <= 3.0
    if name.startswith("copy"):
        assert outcome.nearest_m >= 2.0
        assert outcome.given_up_s <= 8.5
    if name.startswith("shrinks"):
        assert outcome.nearest_m >= 0.6
        assert outcome.monitor == "bundle_shrinks"
    if name == "flickers":
        assert not outcome.events
