"""MAVSDK's CameraServer as the payload camera, on a UDP link of its own: every photograph is accounted for.

MAVSDK is another implementation of MAVLink's camera protocol than the simulated camera of this project.
"""

import math
import socket
import threading
import time

import msgspec
import pytest

from companion.core.clock import monotonic_s
from companion.core.enums import CaptureOutcome, ExposureClock
from companion.core.messages import CaptureRequest, FcuAttitude, State
from companion.fcu.link.link import open_link
from companion.fcu.link.sender import ANY_SENDER
from companion.payload.payload_node import PayloadNode
from companion.runtime.camera_device import CameraLink
from tests.payload.rig import BUNDLE_P, BUNDLE_Q, FIXED, VEHICLE, with_control

mavsdk = pytest.importorskip("mavsdk.mavsdk")
camera_server = pytest.importorskip("mavsdk.plugins.camera_server")

ANSWER_S = 1.5


class MavsdkCamera:
    """A camera by MAVSDK. `refused`, `late`: which of its requests, counted from 1."""

    def __init__(self, port: int, refused: int, late: int, storage: bool = True) -> None:
        from mavsdk.component_type import ComponentType
        from mavsdk.logging import log_subscribe

        log_subscribe(lambda *_: True)
        plugin = camera_server.camera_server if hasattr(camera_server, "camera_server") else camera_server
        self._plugin = plugin
        self._refused, self._late = refused, late
        self.requests = self.taken = 0
        self.exposures: list[float] = []
        self._timers: list[threading.Timer] = []
        self._mavsdk = mavsdk.Mavsdk(mavsdk.Configuration.create_with_component_type(ComponentType.CAMERA))
        self._mavsdk.add_any_connection(f"udpout://127.0.0.1:{port}")
        component = self._mavsdk.server_component_by_type(ComponentType.CAMERA, 0)
        self.server = plugin.CameraServer(component)
        self.server.subscribe_take_photo(self._take)
        self.server.subscribe_storage_information(lambda *_: self._storage(storage))
        self.server.subscribe_capture_status(lambda *_: None)
        self.server.set_information(
            plugin.Information("MAVSDK", "camera", "1.0.0", 35.0, 35.8, 23.9, 6000, 4000, 0, 0, "", False, False)
        )

    def _storage(self, there: bool) -> None:
        plugin = self._plugin
        status = plugin.StorageInformation.StorageStatus
        info = plugin.StorageInformation(
            0.0, 8000.0 if there else 0.0, 8000.0 if there else 0.0,
            status.FORMATTED if there else status.UNFORMATTED, 1,
            plugin.StorageInformation.StorageType.MICROSD, 10.0, 10.0,
        )  # fmt: skip
        self.server.respond_storage_information(plugin.CameraFeedback.OK, info)

    def _take(self, *_: object) -> None:
        self.requests += 1
        exposed_us = round(time.time() * 1e6)
        if self.requests == self._refused:
            self._answer(self._plugin.CameraFeedback.BUSY, exposed_us, -1)
            return
        index, self.taken = self.taken, self.taken + 1
        self.exposures.append(monotonic_s())
        delay_s = ANSWER_S + 0.6 if self.requests == self._late else 0.05
        timer = threading.Timer(delay_s, self._answer, (self._plugin.CameraFeedback.OK, exposed_us, index))
        self._timers.append(timer)
        timer.start()

    def _answer(self, feedback: int, exposed_us: int, index: int) -> None:
        plugin = self._plugin
        info = plugin.CaptureInfo(
            plugin.Position(34.0, -81.0, 60.0, 3.0), plugin.Quaternion(1.0, 0.0, 0.0, 0.0), exposed_us, index >= 0, index,
            f"{index:05d}.jpg",
        )  # fmt: skip
        self.server.respond_take_photo(feedback, info)

    def close(self) -> None:
        for timer in self._timers:
            timer.join()
        self._mavsdk.destroy()


class Process:
    """The payload process's loop, without the bus: the aircraft stands still."""

    def __init__(self, port: int) -> None:
        camera = with_control(FIXED, link=f"udpin:127.0.0.1:{port}", answer_time_s=ANSWER_S, shutter_delay_s=0.05)
        camera = msgspec.structs.replace(camera, trigger_period_s=0.05)
        self.node = PayloadNode(camera, VEHICLE, lambda: time.time() - monotonic_s())
        self._link = open_link(camera.control.link, sender=ANY_SENDER)
        self.device = CameraLink(self._link, VEHICLE)
        self.captures = []

    def run(self, duration_s: float, until) -> bool:
        end_s = monotonic_s() + duration_s
        while monotonic_s() < end_s:
            if until():
                return True
            now_s = monotonic_s()
            for message in self.device.read():
                self._take(self.node.handle(message, message.stamp_s))
            self._take(self.node.handle(state(now_s), now_s))
            self._take(self.node.handle(FcuAttitude(stamp_s=now_s, q_WB=(1, 0, 0, 0), omega_B=(0, 0, 0)), now_s))
            self._take(self.node.step(now_s))
            time.sleep(0.01)
        return until()

    def _take(self, messages) -> None:
        for message in self.device.write(messages or ()):
            if type(message).__name__ == "Capture":
                self.captures.append(message)

    def request(self, id: int) -> None:
        count = len(self.captures)
        request = CaptureRequest(
            stamp_s=monotonic_s(), id=id, item="face", row=0, column=id, frame="pier", pitch_rad=0.0, distance_m=5.0
        )
        self._take(self.node.handle(request, monotonic_s()))
        answered = self.run(20.0, lambda: any(c.id == id for c in self.captures[count:]))
        assert answered, f"photograph {id}: no result"

    def close(self) -> None:
        self._link.close()


def state(now_s: float) -> State:
    zero = (0.0, 0.0, 0.0)
    return State(
        stamp_s=now_s, p_W=(0.0, 0.0, 3.0), v_W=zero, q_WB=(1.0, 0.0, 0.0, 0.0), disturbance_W=zero, gnss_bias_W=zero,
        velocity_bias_W=zero, bundle="pier", p_WM=BUNDLE_P, q_WM=BUNDLE_Q, marker_age_s=0.0, position_std_m=1.0,
        relative_std_m=0.01, covariance_diag=(1e-6,) * 31, battery_voltage_v=15.0, reset_count=1,
    )  # fmt: skip


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def photograph(count: int, refused: int, late: int) -> None:
    port = free_port()
    process = Process(port)
    camera = MavsdkCamera(port, refused, late)
    try:
        ready = process.run(15.0, lambda: not process.node.problem(monotonic_s()))
        assert ready, process.node.problem(monotonic_s())
        for id in range(1, count + 1):
            process.request(id)
        process.run(3.0, lambda: False)
    finally:
        camera.close()
        process.close()
    counts = process.node.shots.counts
    assert (camera.requests, camera.taken) == (count, count - 1)
    assert (counts.requested, counts.taken, counts.refused, counts.late) == (count, count - 1, 1, 1)
    assert (counts.lost, counts.blurred, counts.foreign) == (0, 0, 0) and process.node.shots.missing == 0
    taken = [c for c in process.captures if c.outcome is CaptureOutcome.TAKEN]
    assert [c.image_index for c in sorted(taken, key=lambda c: c.stamp_s)] == list(range(count - 1))
    assert [c.id for c in process.captures if c.outcome is CaptureOutcome.REFUSED] == [refused]
    assert [(c.id, c.late) for c in taken if c.late] == [(late, True)]
    assert [c.id for c in process.captures if c.outcome is CaptureOutcome.LOST] == [late]
    for capture in taken:
        assert capture.clock is not ExposureClock.ARRIVAL
        assert capture.stamp_s == pytest.approx(camera.exposures[capture.image_index], abs=0.03)
        assert capture.valid and math.isfinite(capture.position_std_m)


@pytest.mark.realtime
def test_photographs_by_mavsdks_camera_server_are_each_accounted_for():
    photograph(12, refused=5, late=8)


@pytest.mark.realtime
@pytest.mark.verify
def test_two_hundred_photographs_by_mavsdks_camera_server_are_each_accounted_for():
    photograph(200, refused=50, late=120)


@pytest.mark.realtime
def test_mavsdks_camera_without_formatted_storage_is_refused():
    port = free_port()
    process = Process(port)
    camera = MavsdkCamera(port, 0, 0, storage=False)
    try:
        assert process.run(15.0, lambda: "not formatted" in process.node.problem(monotonic_s()))
    finally:
        camera.close()
        process.close()
