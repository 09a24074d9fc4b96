"""The remote beside a flying mission: for the companion it is a pilot, and a killed page disturbs no setpoint."""

import itertools
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from companion.core.enums import FcuMode
from companion.recording.log import read_log
from companion.remote.aircraft import Aircraft
from companion.remote.station import Station
from sitl.autopilot.manual_selector import InMode
from sitl.lockstep import Lockstep
from sitl.scenario import load_scenario
from tests.remote.browser import CHROMIUM, Browser
from tests.remote.latency import Client
from tests.remote.remote_flight import TOKEN, FakePage
from tests.scenarios.real_flight import RealFlight

ROOT = Path(__file__).parents[2]
PERIOD_US = 20_000
HOLD_S = 3.0  # of the hold before the page acts


class PageInLockstep:
    """A page that takes the sticks `HOLD_S` after the hold began, and then does what ``act(page, now_s)`` says."""

    def __init__(self, lockstep: Lockstep, act) -> None:
        self.lockstep, self.act = lockstep, act
        self.aircraft = Aircraft()
        self.station = Station(self.aircraft, TOKEN)
        self.page = FakePage(self.station, 1, 0.0)
        self.hold_s = self.acted_s = math.inf
        autopilot = lockstep.world.autopilot
        take_output = autopilot.take_output

        def heard() -> bytes:
            data = take_output()
            if data:
                self.aircraft.receive(data, lockstep.now_s)
            return data

        autopilot.take_output = heard
        self.step()

    def step(self) -> None:
        lockstep, now_s, page = self.lockstep, self.lockstep.now_s, self.page
        page.step(now_s)
        self.station.step(now_s)
        for _, text in self.station.take().texts:
            page.inbox.append(json.loads(text))
        for frame in self.aircraft.take_output():
            lockstep.world.autopilot.receive(frame, now_s)
        pilot = lockstep.pilot
        if pilot is not None and pilot.phase == "HOLD" and self.hold_s == math.inf:
            self.hold_s = now_s
            # only now: with a joystick as PX4's first source no flight begins
            assert lockstep.world.autopilot.parameters.set("COM_RC_IN_MODE", int(InMode.LINKS_UP_THEN_RC))
        if now_s > self.hold_s + HOLD_S - 1.0 and not page.answers("take"):
            page.send(now_s, type="take")
        if now_s > self.hold_s + HOLD_S and self.acted_s == math.inf:
            self.acted_s = now_s
            self.act(page, now_s)
        lockstep.at(lockstep.now_us + PERIOD_US, self.step)


def by_the_mode(page: FakePage, now_s: float) -> None:
    page.send(now_s, type="mode", mode="POSCTL")
    page.move(ahead=-0.4)


def by_the_stick(page: FakePage, now_s: float) -> None:
    page.move(ahead=-0.4)


@pytest.mark.verify
@pytest.mark.parametrize("act", [by_the_mode, by_the_stick])
def test_the_companion_treats_the_page_as_a_pilot(act):
    loaded = load_scenario(ROOT / "config/scenarios/bridge_hover.toml", camera_mode="corners")
    lockstep = Lockstep(loaded, 1)
    flown = PageInLockstep(lockstep, act)
    lockstep.start()
    lockstep.run_until(lambda: lockstep.now_s > flown.acted_s + 4.0)
    assert flown.page.answers("take") == ["you have the sticks"]
    assert lockstep.world.autopilot.mode == FcuMode.POSCTL
    events = [e for e in lockstep.messages["safety"] if e.active and e.stamp_s > flown.acted_s]
    assert [e.monitor for e in events] == ["rc_takeover"]
    assert lockstep.pilot.phase == "PILOT"
    last = lockstep.messages["sent_setpoint"][-1].stamp_s
    assert flown.acted_s < last < flown.acted_s + 0.5, "no setpoint after the takeover"
    # the stick flies it back from the pier
    assert math.hypot(*lockstep.world.plant.v_W[:2]) > 0.8
    gaps = [b.stamp_s - a.stamp_s for a, b in itertools.pairwise(lockstep.messages["sent_setpoint"])]
    assert max(gaps[-100:]) < 0.1


def largest_gap_s(setpoints, since_s: float, until_s: float) -> float:
    stamps = [m.stamp_s for m in setpoints if since_s <= m.stamp_s <= until_s]
    return max(b - a for a, b in itertools.pairwise(stamps))


@pytest.mark.realtime
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH: the page is not opened")
def test_a_killed_page_and_a_killed_remote_leave_no_gap_in_the_setpoints(tmp_path, capsys):
    """kill -9 of the browser with the sticks, then of the remote, in a hold: no gap above 100 ms."""
    made = RealFlight(tmp_path)
    scenario = tmp_path / "scenario.toml"  # without images: this test is about the page, not the camera
    scenario.write_text(scenario.read_text().replace('camera_mode = "images"', 'camera_mode = "corners"'))
    with made as flight:
        fcu = f"udpout:127.0.0.1:{18570 + flight.instance}"
        command = [sys.executable, "-m", "companion.cli", "remote", "--fcu", fcu, "--port", "0"]
        remote = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        browser = Browser(tmp_path / "profile")
        try:
            url = remote.stdout.readline().split()[1]
            page = browser.page(url)
            assert flight.run(60.0, lambda: flight.phases[-1:] == ["HOLD"]), flight.phases
            flight.run(5.0)
            page.wait("state && state.connected")
            page.wait("(held || document.getElementById('take').click(), held)")
            flight.run(4.0)
            port, token = url.removeprefix("http://127.0.0.1:").split("/#")
            watching = Client(int(port), token)
            os.kill(browser.process.pid, signal.SIGKILL)
            watching.until(lambda m: m["type"] == "state" and not m["owner"], 3.0)
            flight.run(3.0)
            os.kill(remote.pid, signal.SIGKILL)
            flight.run(3.0)
        finally:
            remote.kill()
            remote.wait()
            browser.close()
        end_s = flight.sent[-1].stamp_s
        without_s = largest_gap_s(flight.sent, end_s - 16.0, end_s - 11.0)
        with_s = largest_gap_s(flight.sent, end_s - 10.0, end_s)
        with capsys.disabled():
            print(
                f"largest gap of the setpoints: {1e3 * without_s:.0f} ms before, {1e3 * with_s:.0f} ms with the kills"
            )
        assert with_s <= 0.1
        if flight.phases[-1] != "HOLD":
            assert [e.monitor for e in read_log(flight.log)["safety"] if e.active] == ["cpu_starved"]
            pytest.skip("this machine was too busy: the mission paused")
        assert flight.modes[-1] == "OFFBOARD"
