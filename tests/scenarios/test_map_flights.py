"""Flights with several bundles."""

import numpy as np
import pytest

from sitl.scenario import SensorKind
from tests.scenarios.forked import in_fork
from tests.scenarios.map_flights import FIRST_SEED, guided_by_the_other, transit


@pytest.mark.verify
def test_the_hold_goes_on_by_the_other_bundle():
    guided = in_fork(lambda: guided_by_the_other((0.0, 0.0, 0.0)))
    assert guided.given_up_s == np.inf, guided
    assert guided.excursion_m < 0.4, guided


@pytest.mark.verify
@pytest.mark.parametrize(
    ("velocity_m_s", "within_s"), [((0.0, 1.0, 0.0), 3.0), ((0.7, 0.0, 0.0), 3.5), ((-1.0, 0.0, 0.0), 3.0)]
)
def test_a_bundle_that_moves_while_it_alone_guides_is_given_up(velocity_m_s, within_s):
    guided = in_fork(lambda: guided_by_the_other(velocity_m_s))
    assert guided.given_up_s <= within_s, guided
    assert guided.excursion_m <= 6.0 and guided.nearest_m >= 0.4, guided


@pytest.mark.verify
@pytest.mark.parametrize("sensors", SensorKind)
def test_a_transit_between_two_piers_has_no_step_beyond_the_ordinary(sensors):
    flown = transit(sensors, FIRST_SEED)
    assert flown.completed, flown
    # On the commit before corrections were let in gradually: 25 degrees (kind), 14 (unkind).
    assert flown.largest_step_deg < 2.5 * flown.usual_step_deg and flown.largest_step_deg < 9.0, flown
