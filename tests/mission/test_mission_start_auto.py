"""A mission that takes off by itself is for simulators: refused on every link, and not installed on an aircraft."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from companion.core.config import ConfigError
from companion.mission.plan import load_plan
from companion.runtime.processes import RC_SWITCH, YES_AUTO, Context, refuse_auto

ROOT = Path(__file__).parents[2]
VEHICLE = ROOT / "config/vehicles/f550.toml"
AUTO, BY_SWITCH = ROOT / "config/missions/bridge_hover.toml", ROOT / "config/missions/hover_marker.toml"
SERIAL, UDP = "serial:/dev/ttyAMA0:921600", "udpin:127.0.0.1:14540"


def context(mission, url=SERIAL, **run):
    return Context(VEHICLE, mission, url, Path(), Path(), run=run)


@pytest.mark.parametrize("url", [SERIAL, UDP, "tcp:192.168.10.2:5760", ""])  # "": the vehicle file's
def test_a_start_by_itself_is_refused_on_every_link(url):
    """A flight controller on Ethernet, or behind a router on this computer, is an aircraft, too."""
    with pytest.raises(ConfigError, match='start = "auto" takes off as soon as all checks have passed') as error:
        refuse_auto(context(AUTO, url))
    assert "--yes-auto" in str(error.value) and "\n" not in str(error.value)


def test_it_is_flown_where_it_is_allowed_or_in_a_simulation():
    refuse_auto(context(AUTO, **{YES_AUTO: True}))
    refuse_auto(replace(context(AUTO, UDP), scenario_file=ROOT / "config/scenarios/bridge_hover.toml"))
    refuse_auto(context(BY_SWITCH))


def test_a_rehearsal_starts_any_mission_by_the_switch():
    switch = {"channel": 8, "off_us": [900, 1300], "on_us": [1700, 2100]}
    flown = context(AUTO, **{RC_SWITCH: switch}).plan
    assert flown.start == "rc_switch" and flown.rc_switch.channel == 8
    with pytest.raises(ConfigError, match="rc_switch"):
        context(AUTO, **{RC_SWITCH: {"channel": 99}}).plan  # noqa: B018


def test_the_installer_leaves_out_missions_that_take_off_by_themselves(tmp_path):
    command = ["sh", str(ROOT / "systemd/install.sh"), "--root", str(tmp_path), "--no-venv"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    installed = sorted((tmp_path / "etc/companion/missions").glob("*.toml"))
    there = [path.stem for path in installed]
    assert "hover_marker" in there and "bridge_hover" not in there
    assert all('start = "auto"' not in path.read_text(encoding="utf-8") for path in installed)
    starts = {path.stem: load_plan(path).start for path in (ROOT / "config/missions").glob("*.toml")}
    assert sorted(name for name, start in starts.items() if start == "rc_switch") == there
