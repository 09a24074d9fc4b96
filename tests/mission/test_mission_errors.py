"""Errors of a process since the start: of the log's disk, and after a restart of the process."""

import errno
import math
import os

import msgspec
from mission_world import World

from companion.core.messages import FcuAttitude, Health
from companion.recording import writer
from companion.recording.recorder import RecorderNode
from companion.recording.writer import LogWriter
from companion.runtime.process import HealthMonitor


def errors_of(world) -> dict:
    return world.node.snapshot(world.now_s).new_errors


def report(world, **fields):
    """Every health message of the recorder from now on."""
    world.edit[Health] = lambda m: msgspec.structs.replace(m, **fields) if m.process == "recorder" else m
    world.run(1.0)


def test_a_disk_that_fails_in_flight_is_named(tmp_path, monkeypatch):
    node = RecorderNode(LogWriter(tmp_path / "flight.mcap", {}))
    health = HealthMonitor(node.name, node.rate_hz)
    assert health.message(1.0, None, node).errors == 0

    def write(descriptor, data):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(writer.os, "write", write)
    node.handle(FcuAttitude(stamp_s=1.0, q_WB=(1.0, 0.0, 0.0, 0.0), omega_B=(0.0, 0.0, 0.0)), 1.0)
    list(node.step(1.0))
    failed = health.message(2.0, None, node)
    monkeypatch.undo()
    world = World().run_until("HOLD")
    report(world, errors=failed.errors, last_error=failed.last_error)
    assert errors_of(world) == {"recorder": (failed.errors, f"{tmp_path}/flight.mcap: Read-only file system")}
    world.run(3.0)
    said = [e.text for e in world.events if e.monitor == "process_errors" and e.active]
    assert len(said) == 1 and "recorder" in said[0] and "Read-only file system" in said[0]
    assert world.phase == "HOLD"


def test_the_last_error_of_the_mission_is_the_newest_whichever_part_counts_it():
    """A monitor that failed once before the start hid every message that was refused afterwards."""
    world = World()
    world.run(1.0)
    monitors = world.node._mission.start_monitors.evaluations[0]
    monitors._note_error(monitors.monitors[0], ValueError("once"))
    world.run(0.1)
    assert world.node.errors == 1 and world.node.last_error.endswith("ValueError: once")
    world.node.handle(FcuAttitude(stamp_s=math.nan, q_WB=(1.0, 0.0, 0.0, 0.0), omega_B=(0.0, 0.0, 0.0)), world.now_s)
    assert world.node.errors == 2 and world.node.last_error == "fcu_attitude has no time"
    world.node._mission.safety._note_error(monitors.monitors[0], ValueError("again"))
    world.run(0.1)
    assert world.node.errors == 3 and world.node.last_error.endswith("ValueError: again")


def test_errors_before_the_start_do_not_count_and_a_restarted_process_begins_at_none():
    world = World()
    report(world, errors=5, last_error="old")
    world.run_until("HOLD")
    assert errors_of(world) == {}
    report(world, errors=6, last_error="new")
    assert errors_of(world) == {"recorder": (1, "new")}
    report(world, pid=2, errors=0, last_error="")
    assert errors_of(world) == {}
    report(world, pid=2, errors=2, last_error="again")
    assert errors_of(world) == {"recorder": (2, "again")}
