"""The manager ends a process that hangs, however it hangs, and starts it again within two seconds."""

import os
import signal
import sys
import time

import pytest

from companion.core.clock import monotonic_s
from companion.runtime.manager import START_MAX_S, WATCHDOG_S, Manager, wait_until

# Steps until it finds the file "hang" in its folder, then hangs in the way that the file names.
STEPPING = """
import os, sys, time
from companion.core.clock import monotonic_s
from companion.runtime.notify import Notifier
notifier = Notifier()
while True:
    notifier.stepped(monotonic_s())
    time.sleep(0.02)
    if os.path.exists("hang"):
        how = open("hang").read()
        os.remove("hang")
        while how == "busy":
            pass
        time.sleep(60)
"""
RESTARTED_WITHIN_S = 2.0


@pytest.fixture
def manager(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(os.path.dirname(os.path.dirname(os.path.dirname(__file__)))))
    supervised = Manager({"stepping": [sys.executable, "-c", STEPPING]}, tmp_path)
    supervised.start()
    assert wait_until(lambda: supervised.check() or supervised.children[0].notifies, 20.0)
    yield supervised
    supervised.stop(patience_s=0.5)


@pytest.mark.parametrize("how", ["stopped", "busy", "asleep"])
def test_a_process_that_hangs_is_killed_and_started_again(manager, tmp_path, how):
    first, began_s = manager.pid("stepping"), monotonic_s()
    if how == "stopped":
        os.kill(first, signal.SIGSTOP)
    else:
        (tmp_path / "hang").write_text(how)
    assert wait_until(lambda: manager.check() or manager.pid("stepping") not in (None, first), 10.0)
    assert monotonic_s() - began_s < RESTARTED_WITHIN_S
    assert manager.events == ["stepping hung and was killed, starting it again"]


def test_a_process_that_steps_keeps_running(manager):
    first = manager.pid("stepping")
    assert not wait_until(lambda: manager.check() or manager.pid("stepping") != first, 2 * WATCHDOG_S)


def test_a_pause_of_the_manager_kills_no_process(manager):
    first = manager.pid("stepping")
    time.sleep(2 * WATCHDOG_S)  # longer than the watchdog, and with more datagrams than the socket keeps
    assert not wait_until(lambda: manager.check() or manager.pid("stepping") != first, WATCHDOG_S / 2)


def test_a_restarted_process_without_a_first_step_counts_as_hung(manager):
    child = manager.children[0]
    child.command = [sys.executable, "-c", "import time; time.sleep(60)"]
    os.kill(manager.pid("stepping"), signal.SIGKILL)
    assert wait_until(lambda: manager.check() or child.restarts == 1, 5.0)
    assert child.silent_at_s == pytest.approx(monotonic_s() + START_MAX_S, abs=1.0)
    child.silent_at_s = monotonic_s()  # as if the time were over
    assert wait_until(lambda: manager.check() or child.restarts == 2, 5.0)
    assert "hung" in manager.events[-1]


def test_a_process_that_never_notifies_is_not_killed(tmp_path):
    manager = Manager({"silent": [sys.executable, "-c", "import time; time.sleep(60)"]}, tmp_path)
    manager.start()
    first = manager.pid("silent")
    assert not wait_until(lambda: manager.check() or manager.pid("silent") != first, 1.5 * WATCHDOG_S)
    manager.stop(patience_s=0.5)
