"""The simulated payload camera and its gimbal: MAVLink components behind the autopilot, as PX4 forwards their messages.

It exposes a while after the command, stamps the exposure by a clock of its own, answers later, and counts. Its mount is not
where the camera file says: the error is drawn for the seed, as are those of the gimbal's level. Faults make it refuse, lose
or repeat answers. As PX4's, the gimbal's manager obeys its primary controller alone and says who that is. The true pose of each exposure leaves as `CaptureTruth`.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple, Protocol

import numpy as np
from pymavlink.dialects.v20 import common

from companion.core.arrays import Array
from companion.core.config import ConfigError, Section, number
from companion.core.frames import (
    quat_exp,
    quat_from_rpy,
    quat_multiply,
    quat_normalized,
    rotation_matrix,
    rpy_from_quat,
)
from companion.core.messages import CaptureTruth
from companion.core.trajectory_messages import Quat, Vec3
from companion.planning.camera import PayloadCamera
from companion.planning.camera_control import BY_FLIGHT_CONTROLLER
from sitl.autopilot.wire import Writer, layout
from sitl.vectors import quat, vec3

MAVLINK_2, HEADER, SYSTEM_AT, ID_AT, CHECKSUM = 0xFD, 10, 5, 7, 2
READ = frozenset((common.MAVLINK_MSG_ID_COMMAND_LONG, common.MAVLINK_MSG_ID_TIMESYNC))
PHOTOGRAPH_MB = 12.0
GIMBAL_PERIOD_S = 1.0  # of its report, until another is requested
GIMBAL_COMPONENT = common.MAV_COMP_ID_GIMBAL
DISTANCE_M = 5.0  # to the surface, where nothing is known to be in the picture's centre
LENS_STREAM = 11  # of the random numbers of a seed
UTC_AT_START_S = 1_790_000_000.0  # of simulated time 0: 21 September 2026


class PayloadConfig(Section, frozen=True, kw_only=True):
    """The table `[payload]` of a scenario: how the real camera differs from the camera file, and how fast it is."""

    mount_std_rad: Annotated[float, number(0, 0.2, "rad, drawn for each axis of q_BC")] = 0.0035  # calibrated to 0.2°
    place_std_m: Annotated[float, number(0, 0.2, "m, drawn for each axis of p_BC")] = 0.005
    level_std_rad: Annotated[float, number(0, 0.2, "rad, drawn for roll and pitch that the gimbal reports")] = 0.001
    # Of the lens, drawn evenly within ± this against the camera file, which has the maker's focal length and a pinhole.
    focal_error: Annotated[float, number(0, 0.1, "share of the focal length")] = 0.01
    principal_point_error: Annotated[float, number(0, 0.05, "share of the width, each axis")] = 0.003
    k1_error: Annotated[float, number(0, 0.1, "of the radial distortion k1")] = 0.02
    gimbal_rate_rad_s: Annotated[float, number(0.05, 20, "rad/s")] = 0.8
    gimbal_jitter_rad_s: Annotated[float, number(0, 1, "rad/s, standard deviation of what stabilisation leaves")] = (
        0.003
    )
    latency_s: Annotated[float, number(0, 5, "s from the command to mid-exposure, on average")] = 0.12
    latency_std_s: Annotated[float, number(0, 1, "s")] = 0.02
    answer_s: Annotated[float, number(0.01, 10, "s from the exposure to CAMERA_IMAGE_CAPTURED")] = 0.35
    clock_offset_s: Annotated[float, number(0, 1e6, "s of the camera's clock at simulated time 0")] = 41.5
    answers_timesync: bool = True
    storage_mb: Annotated[float, number(0, 1e6, "MB free at the start; 0: without a card")] = 30_000.0


class TrueLens(NamedTuple):
    """Errors of the real lens: share of the focal length, principal point as a share of the width, radial distortion."""

    focal: float
    principal_point: tuple[float, float]
    k1: float


def true_lens(config: PayloadConfig, seed: int) -> TrueLens:
    """The lens that a seed draws; it has a stream of its own, so that the flight of the seed stays as it is."""
    rng = np.random.default_rng((seed, LENS_STREAM))
    focal, x, y, k1 = (float(n) for n in rng.uniform(-1.0, 1.0, 4))
    shift = config.principal_point_error
    return TrueLens(config.focal_error * focal, (shift * x, shift * y), config.k1_error * k1)


class Body(Protocol):
    """The true motion of the aircraft (`sitl.plant.Plant`)."""

    @property
    def p_W(self) -> Array: ...

    @property
    def v_W(self) -> Array: ...

    @property
    def q_WB(self) -> Array: ...

    @property
    def omega_B(self) -> Array: ...


class Exposure(NamedTuple):
    """A photograph that was commanded."""

    at_s: float
    number: int


class TruePose(NamedTuple):
    p_WC: Array
    q_WC: Array
    v_W: Array
    omega_W: Array


class PayloadFaults:
    """What is wrong with the camera at present; `sitl.faults` sets it."""

    def __init__(self) -> None:
        self.silent = False
        self.refuses = False
        self.loses_answers = False
        self.repeats_answers = False
        self.without_storage = False
        self.gimbal_stuck = False
        self.late_s = 0.0


class SimulatedPayload:
    """One camera, with a gimbal if its file has one. `step` with every step of the world, `receive` all bytes of the link."""

    def __init__(
        self,
        camera: PayloadCamera,
        config: PayloadConfig,
        body: Body,
        bundles: dict[str, tuple[Vec3, Quat]],
        seed: int,
        distance_m: Callable[[Array, Array], float] | None = None,
        system: int = 1,
    ) -> None:
        """distance_m: from a point along a direction to the nearest surface, both in W.

        Raises `ConfigError` for a camera that is not behind the flight controller.
        """
        control = camera.control
        if control is None or control.link != BY_FLIGHT_CONTROLLER:
            raise ConfigError(f'camera {camera.name}: control.link: only a camera with link = "fcu" can be simulated')
        self.camera, self.config, self.faults = camera, config, PayloadFaults()
        self._by_px4 = control.trigger == "px4"
        self._body, self._bundles, self._distance_m = body, bundles, distance_m
        self._rng = np.random.default_rng(seed)
        mount = config.mount_std_rad * self._rng.standard_normal(3)
        self.q_BC = quat_multiply(quat_normalized(camera.q_BC), quat_exp(mount))
        self.p_BC = np.array(camera.p_BC) + config.place_std_m * self._rng.standard_normal(3)
        self._level = config.level_std_rad * self._rng.standard_normal(2)  # true minus reported roll, pitch
        self._component = control.component_id or common.MAV_COMP_ID_CAMERA
        self._writer = Writer(system, self._component)
        self._gimbal_writer: Writer | None = None
        if control.gimbal_component_id is not None:
            self._gimbal_writer = Writer(system, GIMBAL_COMPONENT)
        self._gimbal_addresses = {GIMBAL_COMPONENT, control.gimbal_component_id}
        self._system = system
        self._parser = common.MAVLink(None)
        self._parser.robust_parsing = True
        self.pitch_rad = self._wanted_rad = 0.0
        self._jitter = np.zeros(3)
        self._waiting: deque[Exposure] = deque()
        self._answers: deque[tuple[float, bytes]] = deque()
        self._captures: list[CaptureTruth] = []
        self.count = 0
        self._sequence = -1.0
        self._free_s = 0.0  # the camera is ready again
        self._heartbeat_s = self._gimbal_s = 0.0
        self._gimbal_period_s = GIMBAL_PERIOD_S
        self.gimbal_controller = (0, 0)  # system and component that the gimbal's manager obeys; (0, 0): none
        self._now_s = 0.0

    # --- the link -------------------------------------------------------------------------------------------------

    def receive(self, data: bytes, now_s: float) -> None:
        """Take bytes that the companion sends; whole MAVLink 2 frames."""
        self._now_s = now_s
        at = 0
        while at + HEADER <= len(data) and data[at] == MAVLINK_2:
            end = at + HEADER + data[at + 1] + CHECKSUM + (13 if data[at + 2] & 1 else 0)
            if int.from_bytes(data[at + ID_AT : at + HEADER], "little") in READ:
                for message in self._parser.parse_buffer(data[at:end]) or ():
                    self._take(message, now_s)
            at = end

    def take_output(self) -> bytes:
        """Bytes for the companion since the last call."""
        gimbal = b"" if self._gimbal_writer is None else self._gimbal_writer.take()
        data = self._writer.take() + gimbal
        return b"" if self.faults.silent else data

    def take_captures(self) -> list[CaptureTruth]:
        """The exposures since the last call."""
        captures, self._captures = self._captures, []
        return captures

    def _take(self, m: Any, now_s: float) -> None:
        if self.faults.silent:
            return
        kind = m.get_type()
        if kind == "TIMESYNC" and m.tc1 == 0 and self.config.answers_timesync:
            self._writer.send("TIMESYNC", self._clock_us(now_s) * 1000, m.ts1)
        elif kind == "COMMAND_LONG" and m.target_system == self._system:
            if m.target_component == self._component and not self._by_px4:
                self._acknowledge(self._writer, m, self._execute(m, now_s))
            elif (writer := self._gimbal_writer) is not None and m.target_component in self._gimbal_addresses:
                result = self._execute_gimbal(m)
                if result is not None:
                    self._acknowledge(writer, m, result)

    @staticmethod
    def _acknowledge(writer: Writer, m: Any, result: int) -> None:
        writer.send("COMMAND_ACK", m.command, result, 0, 0, m.get_srcSystem(), m.get_srcComponent())

    def _execute(self, m: Any, now_s: float) -> int:
        if m.command == common.MAV_CMD_REQUEST_MESSAGE:
            return self._send_requested(round(m.param1), m.param2, now_s)
        if m.command != common.MAV_CMD_IMAGE_START_CAPTURE:
            return int(common.MAV_RESULT_UNSUPPORTED)
        if m.param4 == self._sequence:  # repeated: the acknowledgement was lost
            return int(common.MAV_RESULT_ACCEPTED)
        if self.faults.refuses or now_s < self._free_s or self._free_mb < PHOTOGRAPH_MB:
            return int(common.MAV_RESULT_TEMPORARILY_REJECTED)
        self._sequence = m.param4
        self.expose_after_latency(now_s)
        return int(common.MAV_RESULT_ACCEPTED)

    def expose_after_latency(self, now_s: float) -> None:
        """The shutter was released, by the camera's own protocol or by PX4's trigger output."""
        config = self.config
        delay_s = max(0.0, config.latency_s + config.latency_std_s * float(self._rng.standard_normal()))
        self._free_s = now_s + self.camera.trigger_period_s
        self._waiting.append(Exposure(now_s + delay_s, self.count))
        self.count += 1

    def _execute_gimbal(self, m: Any) -> int | None:
        sender = m.get_srcSystem(), m.get_srcComponent()
        if m.command == common.MAV_CMD_DO_GIMBAL_MANAGER_PITCHYAW:
            if sender != self.gimbal_controller:
                return int(common.MAV_RESULT_DENIED)
            low, high = self.camera.pitch_range_rad
            self._wanted_rad = min(high, max(low, math.radians(m.param1)))
        elif m.command == common.MAV_CMD_SET_MESSAGE_INTERVAL:
            self._gimbal_period_s = GIMBAL_PERIOD_S if m.param2 <= 0 else m.param2 * 1e-6
            self._gimbal_s = min(self._gimbal_s, self._now_s + self._gimbal_period_s)
        elif m.command == common.MAV_CMD_DO_GIMBAL_MANAGER_CONFIGURE:
            self.gimbal_controller = round(m.param1), round(m.param2)
        else:
            return None
        return int(common.MAV_RESULT_ACCEPTED)

    @property
    def _free_mb(self) -> float:
        if self.faults.without_storage:
            return 0.0
        return max(0.0, self.config.storage_mb - PHOTOGRAPH_MB * self.count)

    def _send_requested(self, number: int, parameter: float, now_s: float) -> int:
        camera, boot_ms = self.camera, self._clock_us(now_s) // 1000
        writer = self._writer
        if number == common.MAVLINK_MSG_ID_CAMERA_INFORMATION:
            pitch_mm = (camera.pixel_pitch_um or 5.0) * 1e-3
            values: dict[str, Any] = {
                "time_boot_ms": boot_ms,
                "firmware_version": 1,
                "focal_length": camera.focal_px[0] * pitch_mm,
                "sensor_size_h": camera.width_px * pitch_mm,
                "sensor_size_v": camera.height_px * pitch_mm,
                "flags": common.CAMERA_CAP_FLAGS_CAPTURE_IMAGE,
                "resolution_h": camera.width_px,
                "resolution_v": camera.height_px,
                "vendor_name": _letters("simulated", 32),
                "model_name": _letters(camera.name, 32),
            }
        elif number == common.MAVLINK_MSG_ID_STORAGE_INFORMATION:
            ready = not self.faults.without_storage and self.config.storage_mb > 0
            values = {
                "time_boot_ms": boot_ms,
                "total_capacity": self.config.storage_mb,
                "available_capacity": self._free_mb,
                "storage_id": 1,
                "storage_count": 1,
                "status": common.STORAGE_STATUS_READY if ready else common.STORAGE_STATUS_EMPTY,
            }
        elif number == common.MAVLINK_MSG_ID_CAMERA_CAPTURE_STATUS:
            values = {"time_boot_ms": boot_ms, "available_capacity": self._free_mb, "image_count": self.count}
        else:
            return int(common.MAV_RESULT_UNSUPPORTED)
        name = common.mavlink_map[number].msgname
        writer.send(name, *_in_order(name, values))
        return int(common.MAV_RESULT_ACCEPTED)

    def _clock_us(self, now_s: float) -> int:
        return round((now_s + self.config.clock_offset_s) * 1e6)

    # --- time -----------------------------------------------------------------------------------------------------

    def step(self, now_s: float, step_s: float) -> None:
        """Move gimbal and shutter on to a time."""
        self._now_s = now_s
        if self._gimbal_writer is not None:
            self._step_gimbal(now_s, step_s)
        while self._waiting and self._waiting[0].at_s <= now_s:
            self._expose(self._waiting.popleft(), now_s)
        while self._answers and self._answers[0][0] <= now_s:
            _, payload = self._answers.popleft()
            for _ in range(2 if self.faults.repeats_answers else 1):
                self._writer.send_payload(layout("CAMERA_IMAGE_CAPTURED"), payload)
        if now_s >= self._heartbeat_s:
            self._heartbeat_s = now_s + 1.0
            kinds = ((self._writer, common.MAV_TYPE_CAMERA), (self._gimbal_writer, common.MAV_TYPE_GIMBAL))
            for writer, kind in kinds:
                if writer is not None and not (self._by_px4 and kind == common.MAV_TYPE_CAMERA):
                    writer.send("HEARTBEAT", 0, kind, common.MAV_AUTOPILOT_INVALID, 0, common.MAV_STATE_ACTIVE, 3)
            self._send_manager_status(now_s)

    def _step_gimbal(self, now_s: float, step_s: float) -> None:
        most = self.config.gimbal_rate_rad_s * step_s
        if not self.faults.gimbal_stuck:
            self.pitch_rad += min(most, max(-most, self._wanted_rad - self.pitch_rad))
        self._jitter = self.config.gimbal_jitter_rad_s * self._rng.standard_normal(3)
        if now_s < self._gimbal_s or self._gimbal_writer is None:
            return
        self._gimbal_s = now_s + self._gimbal_period_s
        w, x, y, z = quat_from_rpy(0.0, -self.pitch_rad, 0.0).tolist()
        values = {
            "time_boot_ms": self._clock_us(now_s) // 1000,
            "q": (w, x, -y, -z),  # front, right, down
            "angular_velocity_x": math.nan,
            "angular_velocity_y": math.nan,
            "angular_velocity_z": math.nan,
            "flags": common.GIMBAL_DEVICE_FLAGS_ROLL_LOCK
            | common.GIMBAL_DEVICE_FLAGS_PITCH_LOCK
            | common.GIMBAL_DEVICE_FLAGS_YAW_IN_VEHICLE_FRAME,
        }
        name = "GIMBAL_DEVICE_ATTITUDE_STATUS"
        self._gimbal_writer.send(name, *_in_order(name, values))

    def _send_manager_status(self, now_s: float) -> None:
        if self._gimbal_writer is None:
            return
        system, component = self.gimbal_controller
        values = {
            "time_boot_ms": self._clock_us(now_s) // 1000,
            "gimbal_device_id": GIMBAL_COMPONENT,
            "primary_control_sysid": system,
            "primary_control_compid": component,
        }
        name = "GIMBAL_MANAGER_STATUS"
        self._gimbal_writer.send(name, *_in_order(name, values))

    def true_pose(self) -> TruePose:
        """The camera at this moment."""
        body = self._body
        R_WB = rotation_matrix(body.q_WB)
        lever_W, omega_W = R_WB @ self.p_BC, R_WB @ body.omega_B
        q_WG: Array = np.asarray(body.q_WB)
        omega_camera_W = omega_W
        if self._gimbal_writer is not None:
            heading = rpy_from_quat(body.q_WB)[2]
            roll, pitch = self._level
            q_WG = quat_from_rpy(roll, -(self.pitch_rad + pitch), heading)
            omega_camera_W = np.array([0.0, 0.0, omega_W[2]]) + self._jitter
        q_WC = quat_normalized(quat_multiply(q_WG, self.q_BC))
        return TruePose(body.p_W + lever_W, q_WC, body.v_W + np.cross(omega_W, lever_W), omega_camera_W)

    def _expose(self, exposure: Exposure, now_s: float) -> None:
        pose = self.true_pose()
        truth = CaptureTruth(
            stamp_s=now_s,
            image_index=exposure.number,
            p_WC=vec3(pose.p_WC),
            q_WC=quat(pose.q_WC),
            blur_px=self._blur_px(pose),
            bundles=self._bundles,
            file=file_name(exposure.number),
        )
        self._captures.append(truth)
        if self._by_px4 or self.faults.loses_answers:
            return
        boot_us = self._clock_us(now_s)
        values = {
            "time_utc": round((UTC_AT_START_S + now_s) * 1e6) if not self.config.answers_timesync else 0,
            "time_boot_ms": boot_us // 1000,
            "q": (1.0, 0.0, 0.0, 0.0),
            "image_index": exposure.number,
            "capture_result": 1,
            "file_url": truth.file.encode()[:204],
        }
        payload = layout("CAMERA_IMAGE_CAPTURED").pack(*_in_order("CAMERA_IMAGE_CAPTURED", values))
        self._answers.append((now_s + self.config.answer_s + self.faults.late_s, payload))

    def _blur_px(self, pose: TruePose) -> float:
        """How far the pictures of a plane's points move between the beginning and the end of the exposure."""
        camera = self.camera
        R = rotation_matrix(pose.q_WC)
        distance_m = DISTANCE_M if self._distance_m is None else self._distance_m(pose.p_WC, R[:, 2])
        distance_m = distance_m if math.isfinite(distance_m) else DISTANCE_M
        fx, fy = camera.focal_px
        half = np.array([camera.width_px / fx, camera.height_px / fy]) / 2
        rays = np.array([(0, 0, 1), *((sx * half[0], sy * half[1], 1) for sx in (-1, 1) for sy in (-1, 1))])
        points_W = pose.p_WC + distance_m * rays @ R.T
        ends = []
        for sign in (-0.5, 0.5):
            t = sign * camera.exposure_s
            turned = rotation_matrix(quat_multiply(quat_exp(t * pose.omega_W), pose.q_WC))
            seen = (points_W - (pose.p_WC + t * pose.v_W)) @ turned
            ends.append(seen[:, :2] / seen[:, 2:] * (fx, fy))
        return float(np.max(np.linalg.norm(ends[1] - ends[0], axis=1)))


def file_name(index: int) -> str:
    """Of a photograph on the camera's card."""
    return f"{index + 1:05d}.jpg"


def _letters(text: str, length: int) -> tuple[int, ...]:
    return tuple(text.encode()[:length].ljust(length, b"\0"))


def _in_order(name: str, values: dict[str, Any]) -> Iterator[Any]:
    """The fields of a message in wire order, arrays flattened; absent ones are 0."""
    kind = next(kind for kind in common.mavlink_map.values() if kind.msgname == name)
    types = dict(zip(kind.fieldnames, kind.fieldtypes, strict=True))
    for field, length in zip(kind.ordered_fieldnames, kind.lengths, strict=True):
        if types[field] == "char":
            yield values.get(field, b"")
        elif length == 1:
            yield values.get(field, 0)
        else:
            given = values.get(field, ())
            yield from (*given, *(0 for _ in range(length - len(given))))
