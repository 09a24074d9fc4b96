"""Draws follow from campaign, scenario, seed and field, and from nothing else."""

import numpy as np
import pytest

from companion.core.config import parse
from sitl.campaign.campaign_file import Campaign, load_campaign
from sitl.campaign.distributions import Choice, Cycle, LogUniform, Normal, Uniform
from sitl.campaign.flights import chosen_for, plan_campaign
from tests.campaign.small_campaigns import MASS, SHORT, campaign, draw


def values(campaign_file, seed, scenario="bridge_hover"):
    loaded = load_campaign(campaign_file)
    chosen = chosen_for(loaded, scenario, seed, loaded.all_seeds.index(seed))
    return {drawer.field: drawn.value for drawer, drawn in chosen}


def test_a_draw_depends_on_no_other_draw_and_not_on_their_order(tmp_path):
    more = draw("vehicle.mass_kg", distribution="normal", mean=1.8, std=0.01)
    one = values(campaign(tmp_path, MASS, name="a.toml"), 2)
    two = values(campaign(tmp_path, more, SHORT, MASS, name="b.toml"), 2)
    assert one["airframe.mass_kg"] == two["airframe.mass_kg"]


def test_flights_differ_by_seed_scenario_and_field(tmp_path):
    path = campaign(
        tmp_path, MASS, draw("airframe.wheelbase_m", distribution="uniform", low=0.9, high=1.1, apply="factor")
    )
    drawn = [values(path, 1), values(path, 2), values(path, 1, "hover_wind")]
    numbers = [v for one in drawn for v in one.values()]
    assert len(set(numbers)) == len(numbers)


def test_more_seeds_leave_the_flights_of_the_others_as_they_were(tmp_path):
    few = plan_campaign(campaign(tmp_path, MASS, seeds="{ first = 3, count = 2 }", name="few.toml")).flights
    more = plan_campaign(campaign(tmp_path, MASS, seeds="{ first = 3, count = 4 }", name="more.toml")).flights
    assert [f.fields for f in few] == [f.fields for f in more[:2]] and [f.seed for f in more] == [3, 4, 5, 6]


def test_stacks_and_sensors_of_a_seed_fly_in_the_same_world(tmp_path):
    flights = plan_campaign(
        campaign(tmp_path, MASS, stacks='["full", "px4"]', sensors='"both"', seeds="[1, 2]")
    ).flights
    assert [f.number for f in flights] == list(range(1, 9))
    assert len({(f.seed, f.sensors, f.stack) for f in flights}) == 8
    for seed in (1, 2):
        assert len({f.fields["airframe.mass_kg"] for f in flights if f.seed == seed}) == 1


def test_the_distributions_are_what_they_are_called():
    rng = np.random.default_rng(0)

    def drawn(one, n=4000):
        return np.array([one.draw(rng, i).value for i in range(n)])

    uniform = drawn(Uniform(field="x", low=2.0, high=4.0))
    assert uniform.min() >= 2.0 and uniform.max() <= 4.0 and uniform.mean() == pytest.approx(3.0, abs=0.05)
    log = np.log(drawn(LogUniform(field="x", low=0.01, high=100.0)))
    assert abs(log.mean()) < 0.2 and log.std() == pytest.approx(np.log(1e4) / np.sqrt(12), rel=0.05)
    normal = drawn(Normal(field="x", mean=1.0, std=2.0), 1000)
    assert normal.mean() == pytest.approx(1.0, abs=0.25) and normal.std() == pytest.approx(2.0, rel=0.1)
    cut = drawn(Normal(field="x", mean=1.0, std=2.0, low=0.5, high=2.0), 500)
    assert cut.min() >= 0.5 and cut.max() <= 2.0
    chosen = drawn(Choice(field="x", values=["a", "b", "c"], weights=[1.0, 0.0, 3.0]), 2000)
    assert np.mean(chosen == "c") == pytest.approx(0.75, abs=0.04) and "b" not in chosen
    assert drawn(Cycle(field="x", values=[5, 6, 7]), 7).tolist() == [5, 6, 7, 5, 6, 7, 5]


def test_the_draw_of_every_field_of_a_campaign_is_in_the_range_of_its_table(tmp_path):
    tables = {"name": "c", "description": "", "scenarios": ["bridge_hover"], "sensors": "kind", "stacks": ["full"]}
    tables |= {"seeds": {"first": 0, "count": 300}}
    tables["draw"] = [{"field": "vehicle.mass_kg", "distribution": "log_uniform", "low": 1e-9, "high": 1e-8}]
    made = parse(tables, Campaign, "c")
    found = [chosen_for(made, "bridge_hover", seed, place)[0][1].value for place, seed in enumerate(made.all_seeds)]
    assert min(found) >= 1e-9 and max(found) <= 1e-8 and len(set(found)) == 300
