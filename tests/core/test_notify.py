"""A process tells its supervisor that it steps, and only then; systemd's protocol, both ends."""

import os
import socket
import subprocess
import sys

import pytest

from companion.runtime.notify import Notifier, NotifySocket


@pytest.fixture
def listener():
    with_socket = NotifySocket()
    yield with_socket
    with_socket.close()


def heard(listener: NotifySocket) -> list[str]:
    return [line for _, lines in listener.receive() for line in lines]


def test_the_first_step_says_ready_and_steps_keep_the_watchdog_quiet(listener):
    notifier = Notifier(listener.environment(1.0))
    assert heard(listener) == []  # not before the node runs
    notifier.stepped(10.0)
    assert heard(listener) == ["READY=1", "WATCHDOG=1"]
    notifier.stepped(10.1)
    assert heard(listener) == []  # four times in the second that it has are enough
    notifier.stepped(10.25)
    assert heard(listener) == ["WATCHDOG=1"]


def test_a_status_is_one_line(listener):
    Notifier(listener.environment(1.0)).status("50 steps/s\n3 errors")
    assert heard(listener) == ["STATUS=50 steps/s 3 errors"]


def test_the_kernel_says_who_spoke(listener):
    code = "from companion.runtime.notify import Notifier; import os; Notifier().stepped(0.0); print(os.getpid())"
    environment = os.environ | listener.environment(1.0)
    spoke = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    Notifier(listener.environment(1.0)).status("me")
    assert [pid for pid, _ in listener.receive()] == [int(spoke.stdout)] * 2 + [os.getpid()]


def test_a_socket_with_a_path_as_systemd_has_it(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(tmp_path / "notify"))
        Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify")}).stepped(0.0)
        assert supervisor.recv(100) == b"READY=1"


@pytest.mark.parametrize("name", ["", "relative", "/nobody/listens/here", "@nobody-listens-here", "/" + 200 * "x"])
def test_without_a_supervisor_nothing_happens(name):
    notifier = Notifier({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "1000000"})
    notifier.stepped(0.0)
    notifier.status("still here")


@pytest.mark.parametrize("wrong", ["", "0", "-1", "1e6", "soon", "１s"])
def test_a_timeout_that_is_none_asks_for_one_ping(listener, wrong):
    notifier = Notifier(listener.environment(1.0) | {"WATCHDOG_USEC": wrong})
    for second in range(5):
        notifier.stepped(float(second))
    assert heard(listener) == ["READY=1", "WATCHDOG=1"]


def test_a_watchdog_meant_for_another_process_is_not_ours(listener):
    notifier = Notifier(listener.environment(1.0) | {"WATCHDOG_PID": "1"})
    notifier.stepped(0.0)
    notifier.stepped(5.0)
    assert heard(listener) == ["READY=1", "WATCHDOG=1"]


def test_a_flood_of_datagrams_is_read_and_bytes_that_are_no_text_do_no_harm(listener):
    name = "\0" + listener.environment(1.0)["NOTIFY_SOCKET"][1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        stranger.setblocking(False)
        stranger.sendto(b"\xff\xfe\x00", name)
        stranger.sendto(b"", name)
    assert [pid for pid, _ in listener.receive()] == [os.getpid()] * 2
