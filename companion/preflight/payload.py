"""Check of the payload camera of a mission with an inspection: it answers, and has a place for its pictures."""

import time
from pathlib import Path

from companion.core.clock import monotonic_s
from companion.core.config import ConfigError
from companion.core.messages import PayloadStatus
from companion.core.subscriber import Subscriber
from companion.core.vehicle import Vehicle
from companion.mission.plan import Plan
from companion.payload.payload_node import PayloadNode
from companion.planning.camera import PayloadCamera
from companion.preflight.report import PreflightCheck, failed, ok, skipped
from companion.runtime.camera_device import CameraLink, StillDevice, open_camera
from companion.runtime.nodes import payload_camera

NAME = "payload camera"
PATIENCE_S = 8.0  # three heartbeats, and the camera's introduction
BUS_PATIENCE_S = 2.0
STEP_S = 0.02


def payload_check(vehicle: Vehicle, plan: Plan, bus: Path | None, folder: Path) -> PreflightCheck:
    """One line for a mission with an inspection. bus: of the running stack, which is asked; else a camera on a link of its own is opened.

    folder: where flights are stored; nothing is written.
    """
    try:
        camera = payload_camera(plan)
        assert camera is not None
        if bus is not None:
            return _of_stack(camera, bus)
        node = PayloadNode(camera, vehicle)
        device = open_camera(camera, vehicle, folder / "photographs")
    except ConfigError as error:
        return failed(NAME, str(error))
    if device is None:
        return skipped(
            NAME, f"{camera.name}: behind the flight controller; the running stack checks it before take-off"
        )
    try:
        return _result(camera, node, *_observed(node, device))
    finally:
        device.close()


def _of_stack(camera: PayloadCamera, bus: Path) -> PreflightCheck:
    subscriber = Subscriber(bus, ["payload"])
    try:
        end_s = monotonic_s() + BUS_PATIENCE_S
        newest: PayloadStatus | None = None
        while monotonic_s() < end_s and newest is None:
            found = [m for m in subscriber.receive(0.1) if isinstance(m, PayloadStatus)]
            newest = found[-1] if found else None
    finally:
        subscriber.close()
    if newest is None:
        return failed(NAME, f"{camera.name}: the running stack has no payload process; start it with this mission")
    return failed(NAME, newest.problem) if newest.problem else ok(NAME, newest.model or camera.name)


def _observed(node: PayloadNode, device: CameraLink | StillDevice) -> tuple[str, str]:
    """What is wrong after a while, "" as soon as nothing is; and what is wrong with the device."""
    end_s = monotonic_s() + PATIENCE_S
    while (problem := node.problem(monotonic_s())) and monotonic_s() < end_s:
        for message in device.read():
            list(device.write(node.handle(message, message.stamp_s)))
        list(device.write(node.step(monotonic_s())))
        time.sleep(STEP_S)
    return problem, device.trouble


def _result(camera: PayloadCamera, node: PayloadNode, problem: str, trouble: str) -> PreflightCheck:
    if problem:
        return failed(NAME, f"{problem} ({trouble})" if trouble else problem)
    free_mb = node.introduction.storage_free_mb
    free = f", {free_mb / 1000:.1f} GB free" if free_mb == free_mb else ""
    return ok(NAME, f"{node.introduction.model or camera.name}{free}")
