"""A recorder with a log for each flight, and the time of a flight."""

from pathlib import Path

from companion.core.config import ConfigError
from companion.core.messages import FcuStatus
from companion.recording.recorder import RecorderNode
from companion.recording.retention import Retention
from companion.recording.writer import LogWriter


def status(now_s: float, armed: bool, connected: bool = True) -> FcuStatus:
    return FcuStatus(
        stamp_s=now_s,
        connected=connected,
        armed=armed,
        mode="OFFBOARD",
        landed=not armed,
        battery_voltage_v=15.0,
        battery_remaining=0.5,
        rc_ok=True,
        rc_channels_us=(),
        gnss_ok=True,
        home_W=None,
        timesync_offset_s=0.0,
        timesync_rtt_s=0.002,
        link_errors=0,
    )


def fly(node: RecorderNode, begin_s: float, seconds: float, armed: bool, connected: bool = True) -> float:
    """Feed a recorder for some seconds, four times a second; returns the end [s]."""
    for _ in range(round(seconds * 4)):
        begin_s += 0.25
        node.handle(status(begin_s, armed, connected), begin_s)
        node.step(begin_s)
    return begin_s


def kill(node: RecorderNode) -> None:
    """What is left of a recorder after kill -9: nothing more is written, and the kernel closes its file."""
    node._writer._disk.wait(9.0)
    node._writer._spool.close()


class Bench:
    """A recorder with a log for each flight, and time."""

    def __init__(self, folder: Path, retention: Retention | None = None) -> None:
        self.folder, self.now_s, self.logs = folder, 100.0, 0
        self.full = False
        self.node = RecorderNode(self.next_writer(), None, self.next_writer, retention)

    def next_writer(self) -> LogWriter:
        if self.full:
            raise ConfigError("no space")
        self.logs += 1
        return LogWriter(self.folder / f"{self.logs}.mcap", {})

    def run(self, seconds: float, armed: bool, connected: bool = True) -> None:
        self.now_s = fly(self.node, self.now_s, seconds, armed, connected)
