"""The result of a simulated inspection has the figures of its photographs."""

from pathlib import Path

from companion.core.messages import TOPICS
from sitl.scenario import load_scenario
from sitl.simulate import flown_plan, inspection_figures, inspection_text

SCENARIOS = Path(__file__).parents[2] / "config/scenarios"


def test_an_inspection_without_photographs_covers_nothing():
    plan = flown_plan(load_scenario(SCENARIOS / "two_piers.toml"))
    figures = inspection_figures(plan, {topic: [] for topic in TOPICS})
    assert (figures["planned"], figures["missing"], figures["coverage"]) == (40, 40, 0.0)
    assert (
        inspection_text(figures) == "0 of 40 photographs, 0 blurred, coverage 0.0 %, GSD –, pose in flight –, – (95 %)"
    )


def test_a_mission_without_an_inspection_has_no_figures():
    assert flown_plan(load_scenario(SCENARIOS / "bridge_hover.toml")) is None
