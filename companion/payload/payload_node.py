"""The node of the payload camera: exposes when the aircraft is still enough, and says from where each photograph was taken.

A request goes through: gimbal at its pitch → still enough, or the time is over → command → ack → answer → pose at the
exposure. Each request ends in one `Capture`; one that had no answer in time and is answered later ends in a second one
with the same id and attempt. Whatever the camera does or leaves out, nothing here raises and nothing waits for ever.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pymavlink.dialects.v20 import common

from companion.core.config import ConfigError
from companion.core.enums import CaptureOutcome, ExposureClock, TopicName
from companion.core.frames import quat_conjugate, quat_multiply
from companion.core.messages import (
    PAYLOAD,
    CameraRx,
    Capture,
    CaptureRequest,
    FcuAttitude,
    FcuPosition,
    FcuStatus,
    Message,
    PayloadStatus,
    State,
)
from companion.core.node import Node
from companion.core.trajectory_messages import Quat, Vec3
from companion.core.vehicle import Vehicle
from companion.payload.camera_clock import CameraClock, ExposureTime, exposure_time
from companion.payload.geotag import Georeference
from companion.payload.gimbal import REPORT_US, Gimbal
from companion.payload.gimbal_manager import CLAIM, TURN, GimbalManager
from companion.payload.history import History, Moment
from companion.payload.identity import STILL_COMPONENT, payload_component
from companion.payload.introduction import Introduction
from companion.payload.mavlink import RESULTS, Packable, decode, encode, text
from companion.payload.shots import LATE_MAX_S, Answer, Shot, Shots
from companion.payload.view import (
    DISTANCE_M,
    CameraMotion,
    as_quat,
    as_vec3,
    attitude_std_rad,
    blur_px,
    camera_motion,
    nearest_bundle,
)
from companion.planning.camera import PayloadCamera, can_pitch

STATUS_PERIOD_S = 0.5
HEARTBEAT_PERIOD_S = 1.0
TIMESYNC_PERIOD_S = 1.0
GIMBAL_PERIOD_S = 1.0  # between two requests for its control, or for more reports
TRIES = 3  # commands without an ack
RETRY_S = 0.5
STILL_WINDOW_S = 0.2  # the expected blur of all these is below the limit before the camera is triggered
TRIGGER_SHARE = 0.7  # of blur_max_px: the rest is for the motion's change until the exposure
FUTURE_S = 0.1  # by which a good clock may seem to be ahead
POSE_WAIT_S = 0.3  # the state of the exposure arrives a moment later
SEQUENCE_MAX = 2**24  # whole numbers that a parameter, a float32, has exactly
NAMES_GIMBAL = (common.MAVLINK_MSG_ID_GIMBAL_MANAGER_INFORMATION, common.MAVLINK_MSG_ID_GIMBAL_MANAGER_STATUS)
AUTOPILOT = common.MAV_COMP_ID_AUTOPILOT1
NAN = math.nan
NO_VECTOR: Vec3 = (NAN, NAN, NAN)
NO_ROTATION: Quat = (NAN, NAN, NAN, NAN)
LEVEL: Quat = (1.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class _Answered:
    """A photograph whose pose is still to be found."""

    shot: Shot
    late: bool
    exposure: ExposureTime
    arrival_s: float
    index: int
    file: str


class PayloadNode(Node):
    """One payload camera, with or without a gimbal."""

    name = PAYLOAD
    inputs: tuple[TopicName, ...] = (
        "capture_request", "camera_rx", "state", "fcu_attitude", "fcu_position", "fcu_status",
    )  # fmt: skip
    rate_hz = 50.0

    def __init__(
        self, camera: PayloadCamera, vehicle: Vehicle, read_utc_offset_s: Callable[[], float] | None = None
    ) -> None:
        """read_utc_offset_s: UTC minus companion time [s], by the computer's clock.

        Raises `ConfigError` when the camera's file does not say how the camera is commanded.
        """
        super().__init__()
        if camera.control is None:
            raise ConfigError(
                f"camera {camera.name}: control: missing table: the camera can be planned with, not triggered"
            )
        self.camera, self.control = camera, camera.control
        self._system, self._component = vehicle.fcu.system_id, payload_component(vehicle)
        self._autopilot = vehicle.fcu.autopilot_system_id
        self._by_px4 = self.control.trigger == "px4"
        self.introduction = Introduction(self.control.component_id or STILL_COMPONENT)
        manager = self.control.gimbal_component_id
        self.gimbal = None if manager is None else Gimbal(manager)
        self.manager = GimbalManager((self._system, self._component))
        self.shots = Shots(self.control.shutter_delay_s)
        self.history = History()
        self.clock = CameraClock()
        self.georeference = Georeference()
        self._read_utc_offset_s = read_utc_offset_s or (lambda: NAN)
        self._fcu: FcuStatus | None = None
        self._answered: list[_Answered] = []
        self._out: list[Message] = []
        self._due_s = dict.fromkeys(("status", "heartbeat", "timesync", "gimbal", "gimbal reports"), -math.inf)
        self._triggered_s = -math.inf
        self._sequence = 0
        self._gimbal_system: int | None = None
        self._requested_message = -1

    # --- inputs ---------------------------------------------------------------------------------------------------

    def handle_state(self, message: State, now_s: float) -> list[Message]:
        self.history.put_state(message)
        if self._answered:
            self._locate(now_s)
        return self._take_out()

    def handle_fcu_attitude(self, message: FcuAttitude, now_s: float) -> None:
        self.history.put_attitude(message)

    def handle_fcu_position(self, message: FcuPosition, now_s: float) -> None:
        self.georeference.put_position(message)

    def handle_fcu_status(self, message: FcuStatus, now_s: float) -> None:
        self._fcu = message
        self.georeference.put_status(message)

    def handle_capture_request(self, message: CaptureRequest, now_s: float) -> list[Message]:
        """Begin a photograph, or refuse it at once; a repeated request for the one in work is ignored."""
        shots = self.shots
        if not message.valid or (shots.open is not None and shots.open.request.id == message.id):
            return []
        shot = shots.begin(message, now_s)
        if problem := self._refusal(message, now_s):
            self._refuse(shot, problem, now_s)
            return self._take_out()
        shots.open = shot
        if self.gimbal is not None:
            self.gimbal.want(message.pitch_rad)
            self._command_gimbal(now_s)
        return self._take_out()

    def _refusal(self, request: CaptureRequest, now_s: float) -> str:
        if self.shots.open is not None:
            return f"photograph {self.shots.open.request.id} is in work"
        if not can_pitch(self.camera, request.pitch_rad):
            return f"a pitch of {math.degrees(request.pitch_rad):.0f}° is beyond the gimbal's range"
        return self.problem(now_s)

    def problem(self, now_s: float) -> str:
        """Why no photograph can be taken now, "" when one can."""
        if self._by_px4:
            if self._fcu is None or not self._fcu.connected:
                return "no flight controller to trigger the camera"
        elif problem := self.introduction.problem(now_s):
            return problem
        if self.gimbal is not None and not self.gimbal.is_reporting(now_s):
            other = ", another one does" if self.gimbal.foreign else ""
            return f"gimbal {self.control.gimbal_component_id}: does not report its attitude{other}"
        if self.gimbal is not None and (problem := self.manager.problem(now_s)):
            return f"gimbal {self.control.gimbal_component_id}: {problem}"
        return ""

    # --- MAVLink --------------------------------------------------------------------------------------------------

    def handle_camera_rx(self, message: CameraRx, now_s: float) -> list[Message]:
        """Take a message of camera, gimbal or flight controller."""
        m = decode(message)
        if m is None:
            return []
        of_camera = message.component == self.introduction.component
        of_autopilot = (message.system, message.component) == (self._autopilot, AUTOPILOT)
        of_manager = message.component == self.control.gimbal_component_id
        number = message.number
        if of_manager and number == common.MAVLINK_MSG_ID_COMMAND_ACK:
            self.manager.put_ack(m.command, m.result, now_s)
        if number == common.MAVLINK_MSG_ID_GIMBAL_DEVICE_ATTITUDE_STATUS and self.gimbal is not None:
            heading_rad = self.history.fcu_yaw_rad(now_s)
            self.gimbal.put(m, message.system, message.component, now_s, self.history.q_WB, heading_rad)
        elif number in NAMES_GIMBAL and self.gimbal is not None:
            if of_manager:
                self._on_manager(m, number)
        elif number == common.MAVLINK_MSG_ID_HEARTBEAT:
            if of_manager:
                self._gimbal_system = message.system
            if of_camera:
                self.introduction.put_heartbeat(message.system, now_s)
        elif number == common.MAVLINK_MSG_ID_CAMERA_TRIGGER and of_autopilot and self._by_px4:
            self._on_trigger(m, now_s)
        elif of_camera or (of_autopilot and number == common.MAVLINK_MSG_ID_COMMAND_ACK):
            self._on_camera(m, number, of_camera, now_s)
        return self._take_out()

    def _on_manager(self, m: Any, number: int) -> None:
        assert self.gimbal is not None
        self.gimbal.name_device(m.gimbal_device_id)
        # A manager of several gimbals reports each.
        own = self.gimbal.device == 0 or m.gimbal_device_id in (0, self.gimbal.device)
        if number == common.MAVLINK_MSG_ID_GIMBAL_MANAGER_STATUS and own:
            self.manager.put_status(m)

    def _on_camera(self, m: Any, number: int, of_camera: bool, now_s: float) -> None:
        if number == common.MAVLINK_MSG_ID_COMMAND_ACK:
            self._on_ack(m, of_camera, now_s)
        elif number == common.MAVLINK_MSG_ID_CAMERA_IMAGE_CAPTURED and not self._by_px4:
            self._on_captured(m, now_s)
        elif number == common.MAVLINK_MSG_ID_TIMESYNC and m.tc1 != 0:
            self.clock.answer(m.tc1, m.ts1, now_s)
        elif number in (
            common.MAVLINK_MSG_ID_CAMERA_INFORMATION,
            common.MAVLINK_MSG_ID_STORAGE_INFORMATION,
            common.MAVLINK_MSG_ID_CAMERA_CAPTURE_STATUS,
        ):
            self.introduction.put(m, now_s)

    def _on_ack(self, m: Any, of_camera: bool, now_s: float) -> None:
        trigger = common.MAV_CMD_DO_DIGICAM_CONTROL if self._by_px4 else common.MAV_CMD_IMAGE_START_CAPTURE
        if m.command != trigger or of_camera == self._by_px4:
            if of_camera:
                self.introduction.put_ack(m.command, m.result, self._requested_message)
            return
        shot = self.shots.open
        if shot is None or not shot.triggered:
            return
        if m.result in (common.MAV_RESULT_ACCEPTED, common.MAV_RESULT_IN_PROGRESS):
            shot.acked = True
        elif not shot.acked:
            self.shots.open = None
            who = "PX4" if self._by_px4 else "the camera"
            self._refuse(shot, f"{who} refused: {RESULTS.get(m.result, f'result {m.result}')}", now_s)

    def _on_captured(self, m: Any, now_s: float) -> None:
        by_clock = self.clock.stamp(m.time_boot_ms, now_s)
        utc_offset_s = self._read_utc_offset_s()
        # A camera may answer TIMESYNC by another clock than it stamps with, or never have been set: the first that can be true.
        stamps_s = (NAN if by_clock is None else by_clock[0], m.time_utc * 1e-6 - utc_offset_s if m.time_utc else NAN)
        by_utc, exposed_s = next(
            ((i == 1, s) for i, s in enumerate(stamps_s) if now_s - LATE_MAX_S < s <= now_s + FUTURE_S), (False, NAN)
        )
        key = (m.time_utc or m.time_boot_ms, m.capture_result)
        found = self.shots.take(Answer(m.image_index, key, exposed_s, m.time_boot_ms, by_utc), now_s)
        if found is None:
            return
        shot, late = found
        if m.capture_result != 1:
            self._refuse(shot, "the camera reports that the photograph failed", now_s, late, m.image_index)
            return
        expected = (shot.triggered_s + self.control.shutter_delay_s, self.control.shutter_delay_std_s)
        window = (shot.triggered_s, now_s)
        utc_us = 0 if self.shots.utc_is_wrong else m.time_utc
        exposure = exposure_time(by_clock, utc_us, utc_offset_s, window, expected)
        self._answered.append(_Answered(shot, late, exposure, now_s, m.image_index, text(m.file_url)))
        self._locate(now_s)

    def _on_trigger(self, m: Any, now_s: float) -> None:
        """PX4 has triggered the camera, at a time of its own clock."""
        control, status = self.control, self._fcu
        offset_s = status.timesync_offset_s if status is not None else NAN
        triggered_s = m.time_usec * 1e-6 + offset_s
        known = now_s - LATE_MAX_S < triggered_s <= now_s + FUTURE_S
        answer = Answer(m.seq, (m.time_usec, 1), triggered_s if known else NAN, m.time_usec // 1000)
        found = self.shots.take(answer, now_s)
        if found is None:
            return
        shot, late = found
        stamp_s = (triggered_s if known else shot.triggered_s) + control.shutter_delay_s
        clock = ExposureClock.SYNCHRONISED if known else ExposureClock.ARRIVAL
        exposure = ExposureTime(stamp_s, control.shutter_delay_std_s, clock)
        self._answered.append(_Answered(shot, late, exposure, max(now_s, stamp_s), m.seq, ""))
        self._locate(now_s)

    # --- periodic work --------------------------------------------------------------------------------------------

    def step(self, now_s: float) -> list[Message]:
        """Requests to camera and gimbal, the photograph in work, the status."""
        if self._is_due("heartbeat", HEARTBEAT_PERIOD_S, now_s):
            self._send(
                common.MAVLink_heartbeat_message(
                    common.MAV_TYPE_ONBOARD_CONTROLLER, common.MAV_AUTOPILOT_INVALID, 0, 0, common.MAV_STATE_ACTIVE, 3
                ),
                now_s,
            )
        if not self._by_px4:
            self._introduce(now_s)
        self._command_gimbal(now_s)
        if (shot := self.shots.open) is not None:
            self._work_on(shot, now_s)
        self._locate(now_s)
        if self._is_due("status", STATUS_PERIOD_S, now_s):
            self._out.append(self._status(now_s))
        return self._take_out()

    def _introduce(self, now_s: float) -> None:
        introduction = self.introduction
        for command, parameters, number in introduction.requests(now_s):
            if command == common.MAV_CMD_REQUEST_MESSAGE:
                self._requested_message = number
            self._send(self._to_camera(command, parameters), now_s)
        if introduction.is_connected(now_s) and self._is_due("timesync", TIMESYNC_PERIOD_S, now_s):
            self._send(common.MAVLink_timesync_message(0, self.clock.request(now_s)), now_s)

    def _command_gimbal(self, now_s: float) -> None:
        gimbal = self.gimbal
        if gimbal is None:
            return
        slow = gimbal.is_slow(now_s)
        if (slow or self.manager.must_be_claimed) and self._is_due("gimbal", GIMBAL_PERIOD_S, now_s):
            claim = (self._system, self._component, -1, -1, 0, 0, gimbal.device)
            self._send(self._to_gimbal(CLAIM, claim), now_s)
        if slow and self._is_due("gimbal reports", GIMBAL_PERIOD_S, now_s):
            number = common.MAVLINK_MSG_ID_GIMBAL_DEVICE_ATTITUDE_STATUS
            self._send(self._to_gimbal(common.MAV_CMD_SET_MESSAGE_INTERVAL, (number, REPORT_US)), now_s)
        if gimbal.command_due(now_s, self.manager.refuses(now_s)):
            self._send(self._to_gimbal(TURN, gimbal.parameters()), now_s)

    def _work_on(self, shot: Shot, now_s: float) -> None:
        control = self.control
        if not shot.triggered:
            if self._may_trigger(shot, now_s):
                self._trigger(shot, now_s)
            return
        waited_s = now_s - shot.triggered_s
        if waited_s >= control.answer_time_s:
            self.shots.lose(now_s)
            reason = f"no answer within {control.answer_time_s:g} s" + (
                "" if shot.acked else ", nor an acknowledgement"
            )
            self._publish(shot, CaptureOutcome.LOST, reason, now_s)
        elif not shot.acked and now_s >= shot.due_s and shot.sent < TRIES:
            self._send_trigger(shot, now_s)
        elif shot.acked and not shot.asked_again and waited_s >= 0.5 * control.answer_time_s and not self._by_px4:
            shot.asked_again = True
            self._ask_again(now_s)

    def _may_trigger(self, shot: Shot, now_s: float) -> bool:
        """Decide whether to expose now; ends the request when the gimbal never arrives."""
        control = self.control
        over = now_s - shot.requested_s >= control.still_time_s
        if self.gimbal is not None and not self.gimbal.has_settled(control.gimbal_settle_s or 0.0, now_s):
            if over:
                self.shots.open = None
                self._refuse(shot, self.gimbal.why_not_settled(), now_s)
            return False
        if now_s - self._triggered_s < self.camera.trigger_period_s:
            return False
        shot.blurs.append((now_s, self._expected_blur_px(shot.request, now_s)))
        while shot.blurs[0][0] < now_s - STILL_WINDOW_S:
            shot.blurs.popleft()
        long_enough = shot.blurs[-1][0] - shot.blurs[0][0] >= STILL_WINDOW_S - 1.5 / self.rate_hz
        limit_px = TRIGGER_SHARE * control.blur_max_px
        still = long_enough and all(blur <= limit_px for _, blur in shot.blurs)
        shot.was_still = still
        return still or over

    def _expected_blur_px(self, request: CaptureRequest, now_s: float) -> float:
        """Of an exposure now; NaN, which is not below any limit, when the motion is not known."""
        moment = self.history.at(min(now_s, self.history.newest_s))
        if moment is None or now_s - moment.stamp_s > POSE_WAIT_S or not all(map(math.isfinite, moment.omega_B)):
            return NAN
        motion = camera_motion(self.camera, moment, self.gimbal)
        return NAN if motion is None else blur_px(self.camera, motion, self._distance_m(request, moment, motion))

    def _distance_m(self, request: CaptureRequest, moment: Moment, motion: CameraMotion) -> float:
        if math.isfinite(request.distance_m) and request.distance_m > 0:
            return request.distance_m
        bundle = nearest_bundle(moment.state, motion.p_W, motion.q_WC)
        distance_m = DISTANCE_M if bundle is None else math.hypot(*bundle.p_MC)
        return max(distance_m, self.camera.nearest_focus_m)

    def _trigger(self, shot: Shot, now_s: float) -> None:
        shot.triggered_s = self._triggered_s = now_s
        # Above those of an earlier start of this process: the camera would take a number that it has had for a command sent again.
        self._sequence = max(self._sequence, int(now_s), self.introduction.image_count or 0) + 1
        self._send_trigger(shot, now_s)

    def _send_trigger(self, shot: Shot, now_s: float) -> None:
        """Send the command; with the same sequence number again, a camera takes no second photograph."""
        if self._by_px4:
            command = common.MAV_CMD_DO_DIGICAM_CONTROL
            message = self._command(self._autopilot, AUTOPILOT, command, (0, 0, 0, 0, 1, 0, 0), shot.sent)
        else:
            message = self._to_camera(
                common.MAV_CMD_IMAGE_START_CAPTURE, (0, 0, 1, self._sequence % SEQUENCE_MAX), shot.sent
            )
        shot.sent += 1
        shot.sent_s = now_s
        shot.due_s = now_s + RETRY_S
        self._send(message, now_s)

    def _ask_again(self, now_s: float) -> None:
        """The answer itself may have been lost: request it by the camera's next count."""
        if (last := self.shots.last_index) is not None:
            self._requested_message = common.MAVLINK_MSG_ID_CAMERA_IMAGE_CAPTURED
            parameters = (float(self._requested_message), last + 1)
            self._send(self._to_camera(common.MAV_CMD_REQUEST_MESSAGE, parameters), now_s)

    # --- results --------------------------------------------------------------------------------------------------

    def _refuse(self, shot: Shot, reason: str, now_s: float, late: bool = False, index: int = -1) -> None:
        self.shots.counts.refused += 1
        self._publish(shot, CaptureOutcome.REFUSED, reason, now_s, late=late, index=index)

    def _locate(self, now_s: float) -> None:
        """Publish the photographs whose state is known by now."""
        waiting, self._answered = self._answered, []
        for answered in waiting:
            known = self.history.newest_s >= answered.exposure.stamp_s
            if known or now_s - answered.arrival_s > POSE_WAIT_S:
                self._finish(answered, now_s)
            else:
                self._answered.append(answered)

    def _finish(self, answered: _Answered, now_s: float) -> None:
        shot, exposure = answered.shot, answered.exposure
        moment = self.history.at(exposure.stamp_s)
        motion = None if moment is None else camera_motion(self.camera, moment, self.gimbal)
        blur = NAN
        if moment is not None and motion is not None:
            blur = blur_px(self.camera, motion, self._distance_m(shot.request, moment, motion))
        outcome, reason = CaptureOutcome.TAKEN, ""
        if not blur <= self.control.blur_max_px:
            outcome = CaptureOutcome.BLURRED
            limit = f"more than {self.control.blur_max_px:g} px"
            reason = "the motion at the exposure is not known" if math.isnan(blur) else f"moved {blur:.1f} px, {limit}"
        if outcome is CaptureOutcome.TAKEN:
            self.shots.counts.taken += 1
        else:
            self.shots.counts.blurred += 1
        self._publish(
            shot, outcome, reason, now_s, answered.late, answered.index, answered.file, exposure, blur, moment, motion
        )

    def _publish(
        self,
        shot: Shot,
        outcome: CaptureOutcome,
        reason: str,
        now_s: float,
        late: bool = False,
        index: int = -1,
        file: str = "",
        exposure: ExposureTime | None = None,
        blur: float = NAN,
        moment: Moment | None = None,
        motion: CameraMotion | None = None,
    ) -> None:
        request = shot.request
        tried_s = shot.triggered_s if shot.triggered else now_s
        capture = Capture(
            stamp_s=tried_s if exposure is None else exposure.stamp_s,
            valid=motion is not None,
            id=request.id,
            item=request.item,
            row=request.row,
            column=request.column,
            attempt=shot.attempt,
            outcome=outcome,
            reason=reason,
            image_index=index,
            file=file,
            blur_px=blur,
            gsd_m=self.camera.gsd_m(request.distance_m),
            p_WC=NO_VECTOR,
            q_WC=NO_ROTATION,
            bundle="",
            p_MC=NO_VECTOR,
            q_MC=NO_ROTATION,
            position_std_m=NAN,
            attitude_std_rad=NAN,
            distance_m=request.distance_m,
            late=late,
        )
        if exposure is not None:
            capture.clock, capture.time_std_s = exposure.clock, exposure.std_s
        if moment is not None and motion is not None:
            self._fill_pose(capture, moment, motion)
        self._out.append(capture)

    def _fill_pose(self, capture: Capture, moment: Moment, motion: CameraMotion) -> None:
        state = moment.state
        capture.p_WC, capture.q_WC = as_vec3(motion.p_W), as_quat(motion.q_WC)
        bundle = nearest_bundle(state, motion.p_W, motion.q_WC)
        position_std_m = state.position_std_m
        if bundle is not None:
            capture.bundle, capture.p_MC, capture.q_MC = bundle.name, as_vec3(bundle.p_MC), as_quat(bundle.q_MC)
            position_std_m = bundle.position_std_m
        attitude_std = attitude_std_rad(self.camera, state, bundle, self.gimbal)
        capture.speed_m_s = math.hypot(*motion.v_W)
        moved_m = capture.speed_m_s * capture.time_std_s
        turned_rad = math.hypot(*motion.omega_W) * capture.time_std_s
        capture.position_std_m = math.hypot(position_std_m, moved_m, math.hypot(*self.camera.p_BC) * attitude_std)
        capture.attitude_std_rad = math.hypot(attitude_std, turned_rad)
        capture.geo = self.georeference.place(capture.p_WC)
        capture.geo_std_m = math.hypot(state.position_std_m, self.georeference.h_std_m)
        capture.geo_v_std_m = math.hypot(state.position_std_m, self.georeference.v_std_m)

    def _status(self, now_s: float) -> PayloadStatus:
        counts, introduction = self.shots.counts, self.introduction
        problem = self.problem(now_s)
        connected = self._fcu is not None and self._fcu.connected if self._by_px4 else introduction.is_connected(now_s)
        return PayloadStatus(
            stamp_s=now_s,
            connected=connected,
            problem=problem,
            model=introduction.model,
            storage_free_mb=introduction.storage_free_mb,
            pending=0 if self.shots.open is None else self.shots.open.request.id,
            requested=counts.requested,
            taken=counts.taken,
            blurred=counts.blurred,
            refused=counts.refused,
            lost=counts.lost,
            late=counts.late,
            duplicated=counts.duplicated,
            foreign=counts.foreign,
            missing=self.shots.missing,
            gimbal=self.gimbal is not None and self.gimbal.is_reporting(now_s),
            gimbal_q_BG=self._gimbal_q_BG(),
            utc_offset_s=self._read_utc_offset_s(),
            gimbal_foreign=0 if self.gimbal is None else self.gimbal.foreign,
        )

    def _gimbal_q_BG(self) -> Quat:
        moment = None if self.gimbal is None else self.history.at(self.history.newest_s)
        if self.gimbal is None or moment is None or (attitude := self.gimbal.attitude(moment)) is None:
            return LEVEL
        return as_quat(quat_multiply(quat_conjugate(moment.q_WB), attitude[0]))

    # --- commands -------------------------------------------------------------------------------------------------

    def _command(
        self, system: int, component: int, command: int, parameters: tuple[float, ...], confirmation: int = 0
    ) -> Packable:
        seven = (*parameters, 0, 0, 0, 0, 0, 0, 0)[:7]
        message: Packable = common.MAVLink_command_long_message(system, component, command, confirmation, *seven)
        return message

    def _to_camera(self, command: int, parameters: tuple[float, ...], confirmation: int = 0) -> Packable:
        system = self.introduction.system
        system = self._autopilot if system is None else system
        return self._command(system, self.introduction.component, command, parameters, confirmation)

    def _to_gimbal(self, command: int, parameters: tuple[float, ...]) -> Packable:
        system = self._autopilot if self._gimbal_system is None else self._gimbal_system
        return self._command(system, self.control.gimbal_component_id or AUTOPILOT, command, parameters)

    def _is_due(self, what: str, period_s: float, now_s: float) -> bool:
        if now_s < self._due_s[what]:
            return False
        self._due_s[what] = now_s + period_s
        return True

    def _send(self, message: Packable, now_s: float) -> None:
        self._out.append(encode(message, now_s))

    def _take_out(self) -> list[Message]:
        out, self._out = self._out, []
        return out
