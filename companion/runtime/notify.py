"""Notifies the supervisor of this process: ready, still stepping, present status.

The protocol is systemd's (sd_notify(3)): datagrams to the socket that $NOTIFY_SOCKET names. A process that has been
silent for longer than $WATCHDOG_USEC is killed and started again. `companion.runtime.manager` uses the same protocol as
systemd, so that a process works in the same way under both.
"""

import math
import os
import socket
import struct
from collections.abc import Mapping

from companion.core.text import plain

PINGS_PER_TIMEOUT = 4  # so that one late step does no harm
READY_AGAIN_S = 0.25  # between two attempts to report ready: the queue of a busy supervisor is full for a moment
DATAGRAM_MAX = 4096
CREDENTIALS = struct.Struct("3i")  # struct ucred of unix(7): process, user, group


class Notifier:
    """This process's end of the socket; without a supervisor in ``environment`` it sends nothing."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        name = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + name[1:] if name.startswith("@") else name  # @: abstract, without a file
        self._socket: socket.socket | None = None
        if name[:1] in ("/", "@"):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        self._ping_period_s = _timeout_s(environment) / PINGS_PER_TIMEOUT
        self._pinged_s = -math.inf
        self._ready_at_s = -math.inf  # of the next attempt; inf: it was sent
        self.has_stepped = False  # the start is over

    def stepped(self, now_s: float) -> None:
        """Report one step of the loop: READY=1 after the first, until it was sent, and WATCHDOG=1 `PINGS_PER_TIMEOUT` times per timeout.

        Only the step itself calls this, so that a loop which hangs, or is kept from its steps, becomes silent.
        """
        self.has_stepped = True
        if now_s >= self._ready_at_s:
            self._ready_at_s = math.inf if self._send("READY=1") else now_s + READY_AGAIN_S
        if now_s - self._pinged_s >= self._ping_period_s:
            self._pinged_s = now_s
            self._send("WATCHDOG=1")

    def status(self, text: str) -> None:
        """One line for ``systemctl status``."""
        self._send("STATUS=" + " ".join(plain(text).split()))

    def _send(self, text: str) -> bool:
        """Whether it was sent; the process goes on when its supervisor is gone or busy."""
        if self._socket is not None:
            try:
                self._socket.sendto(text.encode("utf-8", "replace"), self._address)
            except OSError:
                return False
        return True


def _timeout_s(environment: Mapping[str, str]) -> float:
    """$WATCHDOG_USEC in seconds; inf when it is absent, not a number, or meant for another process."""
    meant_for = environment.get("WATCHDOG_PID", "")
    microseconds = environment.get("WATCHDOG_USEC", "")
    if not microseconds.isdecimal() or int(microseconds) == 0 or meant_for not in ("", str(os.getpid())):
        return math.inf
    return int(microseconds) / 1e6


class NotifySocket:
    """A supervisor's end: an abstract socket, so that a killed supervisor leaves no file behind."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind("")  # the kernel chooses a free name

    def environment(self, timeout_s: float) -> dict[str, str]:
        """The environment variables with which a process reports to this socket."""
        name = self._socket.getsockname()
        return {"NOTIFY_SOCKET": "@" + name[1:].decode(), "WATCHDOG_USEC": str(round(timeout_s * 1e6))}

    def receive(self) -> list[tuple[int, list[str]]]:
        """(process id, lines) of each datagram that has arrived; the kernel guarantees the process id."""
        received: list[tuple[int, list[str]]] = []
        while True:
            try:
                data, ancillary, _, _ = self._socket.recvmsg(DATAGRAM_MAX, socket.CMSG_SPACE(CREDENTIALS.size))
            except OSError:
                return received
            for _, kind, content in ancillary:
                if kind == socket.SCM_CREDENTIALS and len(content) == CREDENTIALS.size:
                    process, _, _ = CREDENTIALS.unpack(content)
                    received.append((process, data.decode("utf-8", "replace").splitlines()))

    def close(self) -> None:
        """Release the socket."""
        self._socket.close()
