"""The live view of a stack that falls silent: nothing is shown as true that was true once, and nothing is called done."""

import threading
import time

import pytest
from headless import browser, chromium
from served import served
from test_view_digest import state, status
from test_view_server import ANNA

from companion.core.bus import ZmqBus
from companion.core.clock import monotonic_s
from companion.core.enums import FcuMode, Phase
from companion.core.messages import FcuStatus
from companion.view.access import Access
from companion.view.live import LiveSource
from companion.view.scene import scene_of


class Stack:
    """Publishes what the view shows, until it is silent."""

    def __init__(self, folder) -> None:
        self.phase = Phase.HOLD
        self._mission, self._fcu = ZmqBus(folder, "mission", ()), ZmqBus(folder, "fcu", ())
        self._estimator = ZmqBus(folder, "estimator", ())
        self.silent = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self.silent.wait(0.05):
            now_s = monotonic_s()
            self._mission.publish(status(now_s, self.phase, "arrived"))
            self._fcu.publish(fcu_status(now_s))
            self._estimator.publish(state(now_s))

    def close(self) -> None:
        self.silent.set()
        self._thread.join()
        for bus in (self._mission, self._fcu, self._estimator):
            bus.close()


def fcu_status(stamp_s: float) -> FcuStatus:
    return FcuStatus(
        stamp_s=stamp_s, connected=True, armed=True, landed=False, mode=FcuMode.OFFBOARD, battery_voltage_v=15.0,
        battery_remaining=0.7, gnss_ok=True, rc_ok=True, rc_channels_us=(), home_W=None, timesync_offset_s=0.0,
        timesync_rtt_s=0.002, link_errors=0,
    )  # fmt: skip


@pytest.mark.verify
@pytest.mark.skipif(chromium() is None, reason="no Chromium on this computer")
def test_a_silent_stack_is_shown_with_its_age_and_does_not_answer(tmp_path):
    stack = Stack(tmp_path / "bus")
    source = LiveSource(tmp_path / "bus", scene_of({}))
    try:
        with served(source, Access([ANNA], False)) as (_, port), browser(tmp_path / "browser", (900, 600)) as page:
            page.open(f"http://127.0.0.1:{port}/#token={ANNA.token}")
            page.wait("window.view && view.loaded && document.getElementById('phase').textContent === 'HOLD'", 40)
            page.wait("document.getElementById('monitors').textContent === 'safety table: no monitor active'")
            page.wait("document.getElementById('facts').textContent.includes('offboard')")
            stack.silent.set()
            page.wait("document.getElementById('phase').textContent.endsWith('s ago')")
            page.wait("document.getElementById('monitors').textContent.includes('not known')")
            page.wait("document.getElementById('note').textContent.startsWith('no data from the mission for')")
            page.wait("document.getElementById('battery-text').textContent === 'no battery data'")
            assert "offboard" not in page.run("document.getElementById('facts').textContent")
            page.click("[data-ask='land']")
            page.wait("document.getElementById('confirm').open")
            page.click("#confirm-yes")
            page.wait("document.getElementById('answer').textContent === 'land: no answer from the mission'")
            page.run("view.socket.close()")
            page.run("view.commands.chosenIn = 'HOLD', view.commands.ask('land')")
            assert "NOT sent" in page.run("document.getElementById('answer').textContent")
            assert page.errors == []
    finally:
        stack.close()
        source.close()


def test_ages_are_given_for_what_is_too_old_only(tmp_path):
    stack = Stack(tmp_path / "bus")
    source = LiveSource(tmp_path / "bus", scene_of({}))
    source.wake(1, 0)
    try:
        until_s = time.monotonic() + 10.0
        while source.digest.silent(monotonic_s()).keys() != {"control"}:
            assert time.monotonic() < until_s
            source.work()
            time.sleep(0.02)
        assert source.digest.silent(monotonic_s())["control"] is None and source.phase == "HOLD"
        stack.silent.set()
        later = source.digest.silent(monotonic_s() + 5.0)
        assert later["mission_status"] == pytest.approx(5.0, abs=0.3) and later["fcu_status"] >= 5.0
    finally:
        stack.close()
        source.close()
