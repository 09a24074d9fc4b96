"""The page of campaigns agrees with the code."""

import re
from pathlib import Path
from typing import get_args

from companion.core.config_files import ConfigKind, config_folder
from sitl.campaign.distributions import Draw
from sitl.campaign.fields import ROOTS
from sitl.campaign.flights import plan_campaign

PAGE = (Path(__file__).parents[2] / "docs/campaigns.md").read_text(encoding="utf-8")


def first_cells(head: str) -> set[str]:
    """The names in the first column of the table with this first cell."""
    lines = PAGE.split(f"| {head} |")[1].split("\n\n")[0].splitlines()[2:]
    return {name for line in lines for name in re.findall(r"`([^`]+)`", line.split("|")[1])}


def test_the_campaign_of_the_page_can_be_flown(tmp_path):
    (text,) = re.findall(r"<!-- checked by [\w/.]+ -->\n```toml\n(.*?)```", PAGE, flags=re.S)
    path = tmp_path / "heavier.toml"
    path.write_text(text.replace("count = 50", "count = 2"), encoding="utf-8")
    flights = plan_campaign(path).flights
    assert len(flights) == 2 and 1.8 <= flights[0].fields["airframe.mass_kg"] <= 2.34


def test_the_tables_name_every_campaign_distribution_and_file():
    assert first_cells("campaign") == {path.stem for path in (config_folder() / ConfigKind.CAMPAIGN).glob("*.toml")}
    assert first_cells("distribution") == {one.__struct_config__.tag for one in get_args(Draw)}
    assert first_cells("first part") == set(ROOTS)
