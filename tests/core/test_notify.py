"""A process notifies its supervisor when it steps, and only then; systemd's protocol, both ends."""

import contextlib
import os
import socket
import subprocess
import sys

import pytest

from companion.runtime.notify import Notifier, NotifySocket


@pytest.fixture
def notify_socket():
    opened = NotifySocket()
    yield opened
    opened.close()


def received(notify_socket: NotifySocket) -> list[str]:
    return [line for _, lines in notify_socket.receive() for line in lines]


def test_the_first_step_reports_ready_and_further_steps_reset_the_watchdog(notify_socket):
    notifier = Notifier(notify_socket.environment(1.0))
    assert received(notify_socket) == []  # not before the node runs
    notifier.stepped(10.0)
    assert received(notify_socket) == ["READY=1", "WATCHDOG=1"]
    notifier.stepped(10.1)
    assert received(notify_socket) == []  # four times per timeout are enough
    notifier.stepped(10.25)
    assert received(notify_socket) == ["WATCHDOG=1"]


def test_ready_is_reported_again_until_it_was_sent(tmp_path):
    """A supervisor whose queue is full for a moment would end the process 20 s later, in flight."""
    name = tmp_path / "notify"
    notifier = Notifier({"NOTIFY_SOCKET": str(name), "WATCHDOG_USEC": "1000000"})
    notifier.stepped(0.0)  # nothing listens yet
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(name))
        supervisor.setblocking(False)
        for step in range(1, 11):
            notifier.stepped(0.1 * step)
        sent = []
        with contextlib.suppress(BlockingIOError):
            while True:
                sent.append(supervisor.recv(100))
    assert sent == [b"READY=1", *3 * [b"WATCHDOG=1"]]


def test_a_status_is_one_line(notify_socket):
    Notifier(notify_socket.environment(1.0)).status("50 steps/s\n3 errors")
    assert received(notify_socket) == ["STATUS=50 steps/s 3 errors"]


def test_the_process_id_of_the_sender_comes_from_the_kernel(notify_socket):
    code = "from companion.runtime.notify import Notifier; import os; Notifier().stepped(0.0); print(os.getpid())"
    environment = os.environ | notify_socket.environment(1.0)
    sender = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    Notifier(notify_socket.environment(1.0)).status("me")
    assert [pid for pid, _ in notify_socket.receive()] == [int(sender.stdout)] * 2 + [os.getpid()]


def test_a_socket_with_a_path_as_systemd_has_it(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(tmp_path / "notify"))
        Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify")}).stepped(0.0)
        assert supervisor.recv(100) == b"READY=1"


@pytest.mark.parametrize("name", ["", "relative", "/no/such/socket", "@no-such-socket", "/" + 200 * "x"])
def test_without_a_supervisor_nothing_happens(name):
    notifier = Notifier({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "1000000"})
    notifier.stepped(0.0)
    notifier.status("still here")


@pytest.mark.parametrize("wrong", ["", "0", "-1", "1e6", "soon", "１s"])
def test_without_a_valid_timeout_there_is_one_ping(notify_socket, wrong):
    notifier = Notifier(notify_socket.environment(1.0) | {"WATCHDOG_USEC": wrong})
    for second in range(5):
        notifier.stepped(float(second))
    assert received(notify_socket) == ["READY=1", "WATCHDOG=1"]


def test_a_watchdog_of_another_process_is_ignored(notify_socket):
    notifier = Notifier(notify_socket.environment(1.0) | {"WATCHDOG_PID": "1"})
    notifier.stepped(0.0)
    notifier.stepped(5.0)
    assert received(notify_socket) == ["READY=1", "WATCHDOG=1"]


def test_datagrams_that_are_no_text_do_no_harm(notify_socket):
    name = "\0" + notify_socket.environment(1.0)["NOTIFY_SOCKET"][1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.setblocking(False)
        other.sendto(b"\xff\xfe\x00", name)
        other.sendto(b"", name)
    assert [pid for pid, _ in notify_socket.receive()] == [os.getpid()] * 2
