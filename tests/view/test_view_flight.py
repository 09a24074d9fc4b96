"""The view of a running flight: a click holds, and a view that is killed or floods disturbs nothing."""

import json
import os
import signal
import time

import pytest
from headless import browser, chromium
from running_view import running_view

from companion.core.clock import monotonic_s
from companion.core.enums import OperatorAction
from companion.core.messages import MissionStatus, OperatorRequest, SentSetpoint
from companion.recording.log import read_log
from tests.scenarios.real_flight import RealFlight

GAP_MAX_S = 0.100


def watch(flight: RealFlight, seconds: float) -> float:
    """The longest time between two setpoints that were sent [s]."""
    flight.sent.clear()
    flight.run(seconds)
    stamps = [message.stamp_s for message in flight.sent]
    assert len(stamps) > 10 * seconds
    return max(b - a for a, b in zip(stamps, stamps[1:], strict=False))


@pytest.mark.realtime
@pytest.mark.skipif(chromium() is None, reason="no Chromium on this computer")
def test_a_click_on_hold_here_holds_and_go_on_goes_on(tmp_path):
    with RealFlight(tmp_path) as flight:
        assert flight.until_hold()
        files = ("--mission", str(tmp_path / "bridge_hover.toml"), "--scenario", str(tmp_path / "scenario.toml"))
        with running_view(str(tmp_path / "bus"), "--commands", *files) as view, browser(tmp_path, (900, 600)) as page:
            page.open(view.url)
            page.wait("window.view && view.loaded && view.data.events.of('phase').length", 40)
            assert "token" not in page.run("location.href")
            page.wait("document.getElementById('phase').textContent === 'HOLD'")
            for action, phase in (("hold here", "PAUSE"), ("go on", "APPROACH")):
                page.click(f"[data-ask='{action}']")
                page.wait("document.getElementById('confirm').open")
                flight.run(0.5)
                assert phase not in flight.phases[-1:]  # nothing before it is confirmed
                page.click("#confirm-yes")
                assert flight.run(10.0, lambda phase=phase: flight.phases[-1:] == [phase]), flight.phases
                # A request names the phase that its page showed, and is refused when the mission is in another.
                page.wait(f"document.getElementById('phase').textContent === '{phase}'")
            page.wait("document.getElementById('lines').textContent.includes('at the view')")
            assert page.errors == []
        assert flight.modes[-1] == "OFFBOARD"
    asked = read_log(flight.log).of(OperatorRequest)
    assert [(m.action, bool(m.who)) for m in asked] == [("hold here", True), ("go on", True)]


@pytest.mark.realtime
def test_a_view_that_is_killed_in_a_hold_leaves_no_gap_in_the_setpoints(tmp_path):
    from websockets.sync.client import connect

    with RealFlight(tmp_path) as flight:
        assert flight.until_hold()
        alone_s = watch(flight, 5.0)
        with running_view(str(tmp_path / "bus")) as view:
            with connect(view.url.replace("http", "ws") + "live", max_size=None) as page:
                until_s, packets = time.monotonic() + 2.0, 0
                while time.monotonic() < until_s:
                    packets += isinstance(page.recv(10.0), bytes)
                    page.send(json.dumps({"ack": packets}))
                assert packets > 10
                flight.sent.clear()
                flight.run(1.0)
                os.kill(view.process.pid, signal.SIGKILL)
                flight.run(4.0)
            stamps = [message.stamp_s for message in flight.sent]
            killed_s = max(b - a for a, b in zip(stamps, stamps[1:], strict=False))
        print(f"longest gap: {alone_s * 1e3:.0f} ms without a view, {killed_s * 1e3:.0f} ms when it is killed")
        assert killed_s <= max(GAP_MAX_S, alone_s)
        assert flight.phases[-1:] == ["HOLD"] and flight.modes[-1] == "OFFBOARD", flight.latest.get(MissionStatus)


@pytest.mark.realtime
def test_a_view_that_floods_is_counted_and_ignored(tmp_path):
    from companion.core.bus import ZmqBus

    with RealFlight(tmp_path) as flight:
        assert flight.until_hold()
        bus = ZmqBus(tmp_path / "bus", "view", ())
        flight.run(1.0)
        until_s, sent = monotonic_s() + 3.0, 0
        while monotonic_s() < until_s:
            for _ in range(100):
                old_s = monotonic_s() - 10.0
                bus.publish(OperatorRequest(stamp_s=old_s, action=OperatorAction.LAND, who="flood"))
                sent += 1
            flight.run(0.02)
        flight.run(2.0)
        bus.close()
        assert sent > 1000
        assert flight.phases[-1:] == ["HOLD"] and flight.modes[-1] == "OFFBOARD", flight.latest.get(MissionStatus)
        stamps = [m.stamp_s for m in flight.sent if isinstance(m, SentSetpoint)]
        assert max(b - a for a, b in zip(stamps[-200:], stamps[-199:], strict=False)) < 1.0
