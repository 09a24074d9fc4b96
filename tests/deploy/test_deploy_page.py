"""docs/deploy.md names what exists: parameters, paths, variables, options."""

import re

from unit_files import ROOT

from companion.core.config import load
from companion.core.px4_parameters import PlannedFlight, rules, table_rows
from companion.core.vehicle import Vehicle

PAGE = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
FLIGHT = PlannedFlight(height_m=8.0, distance_m=10.0, switch_channel=8)


def section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def test_the_table_that_the_page_links_to_has_every_parameter_that_preflight_judges():
    assert "(real_aircraft.md#px4-parameters)" in section("PX4 parameters")
    vehicle = load(ROOT / "config/vehicles/f550.toml", Vehicle)
    listed = {name for row in table_rows(vehicle, FLIGHT) for name in row.names}
    assert {rule.name for rule in rules(vehicle, FLIGHT, send_odometry=True)} <= listed


def test_every_px4_parameter_of_the_page_is_in_the_table():
    vehicle = load(ROOT / "config/vehicles/f550.toml", Vehicle)
    listed = {name for row in table_rows(vehicle, FLIGHT) for name in row.names}
    named = {n for n in re.findall(r"`([A-Z0-9]+_[A-Z0-9_]+)`", PAGE) if not n.startswith("COMPANION_")}
    assert named and named <= listed


def test_the_variables_of_the_page_are_those_of_the_environment_file():
    lines = (ROOT / "systemd/companion.env").read_text(encoding="utf-8").splitlines()
    defined = {line.split("=")[0] for line in lines if "=" in line and not line.startswith("#")}
    named = set(re.findall(r"COMPANION_[A-Z_]+", PAGE))
    assert named and named <= defined


def test_the_options_of_the_page_are_those_of_the_installer():
    script = (ROOT / "systemd/install.sh").read_text(encoding="utf-8")
    named = set(re.findall(r"install\.sh[^`\n]*?(--[a-z-]+)", PAGE)) | {"--uninstall", "--root"}
    assert {"--dry-run", "--rollback"} <= named
    assert all(re.search(rf"{option}\b", script) for option in named)
