"""A payload node and the simulated camera, joined without a link; time moves in steps of 4 ms."""

import math
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
from pymavlink.dialects.v20 import common

from companion.core.config import load
from companion.core.enums import FcuMode
from companion.core.frames import quat_from_rpy, quat_multiply
from companion.core.messages import (
    CameraRx,
    CameraTx,
    Capture,
    CaptureRequest,
    CaptureTruth,
    FcuAttitude,
    FcuPosition,
    FcuStatus,
    Message,
    PayloadStatus,
    State,
)
from companion.core.vehicle import Vehicle
from companion.fcu.camera_pass import RawMessage
from companion.payload.identity import payload_component
from companion.payload.payload_node import PayloadNode
from companion.planning.camera import PayloadCamera, load_camera
from sitl.payload_camera import PayloadConfig, SimulatedPayload

ROOT = Path(__file__).parents[2]
VEHICLE = load(ROOT / "config/vehicles/f550.toml", Vehicle)
CAMERA = load_camera(str(ROOT / "config/cameras/sony_rx1_gimbal.toml"))
FIXED = msgspec.structs.replace(
    CAMERA,
    pitch_range_rad=(0.0, 0.0),
    control=msgspec.structs.replace(
        CAMERA.control, gimbal_component_id=None, gimbal_settle_s=None, gimbal_std_rad=None
    ),
)
EXACT = PayloadConfig(mount_std_rad=0.0, place_std_m=0.0, level_std_rad=0.0, gimbal_jitter_rad_s=0.0)
STEP_S = 0.004
BUNDLE_P, BUNDLE_Q = (6.0, 0.0, 3.0), tuple(quat_from_rpy(math.pi / 2, 0.0, -math.pi / 2).tolist())
ORIGIN = (34.0, -81.0, 60.0)


def with_control(camera: PayloadCamera, **changes: object) -> PayloadCamera:
    return msgspec.structs.replace(camera, control=msgspec.structs.replace(camera.control, **changes))


class Body:
    """An aircraft that moves as a test says."""

    def __init__(self) -> None:
        self.p_W, self.v_W = np.array([0.0, 0.0, 3.0]), np.zeros(3)
        self.q_WB, self.omega_B = np.array([1.0, 0.0, 0.0, 0.0]), np.zeros(3)


class Rig:
    """`run` moves everything; what the node published is in `captures` and `statuses`."""

    def __init__(self, camera: PayloadCamera = CAMERA, config: PayloadConfig = EXACT, seed: int = 1) -> None:
        self.camera, self.body = camera, Body()
        self.node = PayloadNode(camera, VEHICLE, lambda: 1.79e9)
        bundles = {"pier": (BUNDLE_P, BUNDLE_Q)}
        simulated = with_control(camera, link="fcu") if camera.control.link != "fcu" else camera
        self.payload = SimulatedPayload(simulated, config, self.body, bundles, seed)
        self.now_s = 0.0
        self.steps = 0
        self.captures: list[Capture] = []
        self.statuses: list[PayloadStatus] = []
        self.truths: list[CaptureTruth] = []
        self.sent: list[CameraTx] = []
        self.change_rx: Callable[[CameraRx], list[CameraRx]] = lambda message: [message]
        self.change_tx: Callable[[CameraTx], list[CameraTx]] = lambda message: [message]
        self.timesync_offset_s = 0.0
        self.compass_rad = 0.0  # error of the flight controller's heading
        self.has_attitude = True  # of the flight controller
        self._mav = common.MAVLink(None, srcSystem=1, srcComponent=payload_component(VEHICLE))
        self._parser = common.MAVLink(None)
        self._parser.robust_parsing = True

    def run(self, duration_s: float, until: Callable[[], bool] = lambda: False) -> None:
        for _ in range(round(duration_s / STEP_S)):
            if until():
                return
            self._step()

    def ready(self) -> "Rig":
        """Run until the camera has introduced itself."""
        self.run(5.0, lambda: not self.node.problem(self.now_s) and self.now_s > 1.0)
        assert self.node.problem(self.now_s) == ""
        return self

    def request(self, id: int = 1, pitch_rad: float = 0.0, distance_m: float = 5.0, wait_s: float = 20.0) -> Capture:
        """Request a photograph and run until the next answer."""
        count = len(self.captures)
        self.ask(id, pitch_rad, distance_m)
        self.run(wait_s, lambda: any(capture.id == id for capture in self.captures[count:]))
        return self.captures[-1]

    def ask(self, id: int = 1, pitch_rad: float = 0.0, distance_m: float = 5.0) -> None:
        request = CaptureRequest(
            stamp_s=self.now_s, id=id, item="face", row=0, column=id - 1, frame="pier", pitch_rad=pitch_rad,
            distance_m=distance_m,
        )  # fmt: skip
        self._take(self.node.handle(request, self.now_s))

    @property
    def counts(self) -> dict[str, int]:
        counts = self.node.shots.counts
        names = ("requested", "taken", "blurred", "refused", "lost", "late", "duplicated", "foreign")
        return {name: getattr(counts, name) for name in names if getattr(counts, name)}

    def _step(self) -> None:
        self.steps += 1
        self.now_s = round(self.steps * STEP_S, 6)
        body = self.body
        body.p_W = body.p_W + STEP_S * body.v_W
        noise = 1e-12 * (self.steps % 1000)  # no estimate of an aircraft in the air repeats its numbers
        self.payload.step(self.now_s, STEP_S)
        for frame in self._parser.parse_buffer(self.payload.take_output()) or ():
            message = CameraRx(
                stamp_s=self.now_s, system=frame.get_srcSystem(), component=frame.get_srcComponent(),
                number=frame.get_msgId(), payload=bytes(frame.get_msgbuf()[10:-2]),
            )  # fmt: skip
            for changed in self.change_rx(message):
                self._take(self.node.handle(changed, self.now_s))
        self.truths += self.payload.take_captures()
        if self.steps % 5 == 0:
            self._take(self.node.step(self.now_s))
            q_WB = quat_multiply(quat_from_rpy(0.0, 0.0, self.compass_rad), body.q_WB)
            attitude = FcuAttitude(
                stamp_s=self.now_s, q_WB=tuple(q_WB.tolist()), omega_B=tuple((body.omega_B + noise).tolist())
            )
            if self.has_attitude:
                self._take(self.node.handle(attitude, self.now_s))
        if self.steps % 3 == 0:
            self._take(self.node.handle(self.state(), self.now_s))
        if self.steps % 25 == 0:
            self._take(
                self.node.handle(FcuPosition(stamp_s=self.now_s, p_W=tuple(body.p_W), v_W=(noise, 0, 0)), self.now_s)
            )
            self._take(self.node.handle(self.status(), self.now_s))

    def _take(self, messages: list[Message] | None) -> None:
        for message in messages or ():
            if isinstance(message, Capture):
                self.captures.append(message)
            elif isinstance(message, PayloadStatus):
                self.statuses.append(message)
            elif isinstance(message, CameraTx):
                self.sent.append(message)
                for changed in self.change_tx(message):
                    frame = RawMessage(changed.number, changed.payload).pack(self._mav)
                    self.payload.receive(frame, self.now_s)

    def state(self) -> State:
        body = self.body
        return State(
            stamp_s=self.now_s,
            p_W=tuple(body.p_W.tolist()),
            v_W=tuple((body.v_W + 1e-12 * (self.steps % 1000)).tolist()),
            q_WB=tuple(body.q_WB.tolist()),
            disturbance_W=(0.0, 0.0, 0.0),
            gnss_bias_W=(0.0, 0.0, 0.0),
            velocity_bias_W=(0.0, 0.0, 0.0),
            bundle="pier",
            p_WM=BUNDLE_P,
            q_WM=BUNDLE_Q,
            marker_age_s=0.0,
            position_std_m=1.0,
            relative_std_m=0.01,
            covariance_diag=(1e-6,) * 31,
            battery_voltage_v=15.0,
            reset_count=1,
        )

    def status(self) -> FcuStatus:
        x, y, z = self.body.p_W
        latitude = ORIGIN[0] + math.degrees(y / 6_371_000.0)
        longitude = ORIGIN[1] + math.degrees(x / 6_371_000.0 / math.cos(math.radians(ORIGIN[0])))
        return FcuStatus(
            stamp_s=self.now_s, connected=True, armed=True, mode=FcuMode.OFFBOARD, landed=False, battery_voltage_v=15.0,
            battery_remaining=0.8, rc_ok=True, rc_channels_us=(), gnss_ok=True, home_W=None,
            timesync_offset_s=self.timesync_offset_s, timesync_rtt_s=0.001, link_errors=0,
            gnss_position=(latitude, longitude, ORIGIN[2] + z), gnss_s=self.now_s, gnss_h_acc_m=0.9, gnss_v_acc_m=1.7,
        )  # fmt: skip
