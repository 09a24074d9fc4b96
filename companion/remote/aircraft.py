"""The remote's own MAVLink link to the aircraft: a ground station with a joystick.

Pure: bytes and the time in, bytes out. It decodes what a pilot needs to see, asks for it where it comes too rarely, and
sends MANUAL_CONTROL, changes of the mode, arming and a ground station's heartbeat; never a setpoint.
"""

import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from pymavlink.dialects.v20 import common

from companion.core.enums import FcuMode
from companion.core.messages import FcuStatus
from companion.core.trajectory_messages import Quat, Vec3
from companion.fcu.actions import SECOND_ACK_S
from companion.fcu.commands import Answer, Commands, Outcome
from companion.fcu.link.codec import AUTOPILOT_COMPONENT, Codec, OutgoingMessage
from companion.fcu.link.decoded import (
    AttitudeQuaternion,
    BatteryStatus,
    CommandAck,
    CurrentMode,
    ExtendedSysState,
    Heartbeat,
    LocalPositionNed,
    ParamValue,
    RcChannels,
    StatusText,
    SysStatus,
)
from companion.fcu.link.framing import CURRENT_MODE
from companion.fcu.link.params import decode_value, read_request
from companion.fcu.link.rate_limiter import RateLimiter
from companion.fcu.link.sender import Sender
from companion.fcu.link.signing import Signer
from companion.fcu.link.statustext import TextJoiner
from companion.fcu.modes import mode_number
from companion.fcu.ned import swap_attitude, swap_world
from companion.fcu.status import LANDED_AGE_S, VehicleStatus
from companion.remote.sticks import ManualControl
from companion.remote.watches import ArmWatch, DisarmWatch, ModeWatch, Unwanted

SYSTEM_ID, COMPONENT_ID = 254, common.MAV_COMP_ID_MISSIONPLANNER  # beside QGroundControl, which is 255/190
SILENCE_S = 1.0  # without a frame of the autopilot the link counts as lost
ATTITUDE_AGE_S = 0.3  # an older attitude has no heading for the sticks
BEAT_S = 1.0  # PX4's period of a heartbeat
BEAT_AGE_S = 3.0  # an older heartbeat does not say whether the aircraft is armed: two may be lost
STREAM_CHECK_S = 2.0
PARAMETER_RETRY_S = 1.0
TEXTS_MAX = 6
REPLACED_S = 2.0  # for which a request that a newer one has replaced may still be followed
# message: (least rate, rate to request) [Hz]; PX4's other links keep their rates
STREAMS = {
    common.MAVLINK_MSG_ID_ATTITUDE_QUATERNION: (20.0, 50.0),
    common.MAVLINK_MSG_ID_LOCAL_POSITION_NED: (5.0, 10.0),
    common.MAVLINK_MSG_ID_EXTENDED_SYS_STATE: (0.9, 5.0),
    common.MAVLINK_MSG_ID_SYS_STATUS: (0.4, 1.0),
    common.MAVLINK_MSG_ID_BATTERY_STATUS: (0.4, 1.0),
    common.MAVLINK_MSG_ID_RC_CHANNELS: (0.9, 5.0),
    CURRENT_MODE: (0.9, 10.0),  # sent on change and every half second: a mode that is chosen for a moment shows, too
}
PARAMETERS = ("COM_RC_IN_MODE", "COM_RC_LOSS_T", "NAV_RCL_ACT", "MAN_DEADZONE", "MPC_MAN_TILT_MAX")


def autopilot_sender(system_id: int, signer: Signer | None = None) -> Sender:
    """Whose frames make an address the peer of the remote's link: heartbeats of the vehicle's autopilot, by its key if any."""
    key = None if signer is None else signer.key
    return Sender(system_id, AUTOPILOT_COMPONENT, key, common.MAVLINK_MSG_ID_HEARTBEAT)


class Reported(NamedTuple):
    """What the flight controller has reported lately; None: unknown, because its report is old or never came."""

    mode: FcuMode | None
    armed: bool | None
    landed: bool | None
    battery: float | None  # 0..1
    battery_v: float | None
    rc: bool | None


class Aircraft:
    """One flight controller; `receive`, `step`, then send what `take_output` returns."""

    def __init__(self, autopilot_system_id: int = 1, signer: Signer | None = None) -> None:
        self._target = autopilot_system_id
        self._codec = Codec(SYSTEM_ID, COMPONENT_ID, autopilot_system_id, signer)
        self.vehicle = VehicleStatus()  # mode, armed, and why it cannot be flown
        self._commands = Commands(autopilot_system_id, self._send)
        self._limiter = RateLimiter()
        self._joiner = TextJoiner()
        self._counts: dict[int, int] = {}  # messages by number since `_counted_s`
        self._counted_s = 0.0
        self._out: list[bytes] = []
        self._now_s = self._heard_s = self._attitude_s = self._position_s = -math.inf
        self._beat_s = self._landed_s = self._battery_s = -math.inf
        self._requested_mode: tuple[FcuMode, float] | None = None  # the last one, and when
        self._q_WB: Quat = (1.0, 0.0, 0.0, 0.0)
        self._p_W: Vec3 = (math.nan, math.nan, math.nan)
        self._v_W: Vec3 = (math.nan, math.nan, math.nan)
        self.parameters: dict[str, float] = {}
        self.texts: deque[tuple[int, str]] = deque(maxlen=TEXTS_MAX)  # severity, text; the newest last
        self._readers: dict[type[object], Callable[..., object]] = {
            Heartbeat: self._on_heartbeat,
            CurrentMode: self._on_current_mode,
            ExtendedSysState: self._on_landed,
            SysStatus: lambda m: self.vehicle.put_sys_status(m, self._now_s),
            BatteryStatus: self._on_battery,
            RcChannels: lambda m: self.vehicle.put_rc_channels(m, self._now_s),
            AttitudeQuaternion: self._on_attitude,
            LocalPositionNed: self._on_position,
            CommandAck: self._on_ack,
            StatusText: self._on_text,
            ParamValue: self._on_parameter,
        }

    # --- what is known ----------------------------------------------------------------------------------------------

    def age_s(self, now_s: float) -> float:
        """Time since the newest frame of the autopilot; inf before the first."""
        return now_s - self._heard_s

    def connected(self, now_s: float) -> bool:
        """Frames arrive, and a heartbeat has come: only that makes a peer of the link."""
        known = self._beat_s > -math.inf and self.vehicle.mode is not FcuMode.UNKNOWN
        return known and self.age_s(now_s) <= SILENCE_S and not self.vehicle.wrong

    def status(self, now_s: float) -> FcuStatus:
        """Mode, arming, battery and RC."""
        return self.vehicle.message(now_s, self.connected(now_s))

    def reported(self, now_s: float) -> Reported:
        """Mode, arming, landing, battery and RC for a person: only what is recent, nothing of a silent flight controller."""
        if self.age_s(now_s) > SILENCE_S:
            return Reported(None, None, None, None, None, None)
        status = self.status(now_s)
        beats = now_s - self._beat_s <= BEAT_AGE_S
        return Reported(
            status.mode if beats else None,
            status.armed if beats else None,
            status.landed if now_s - self._landed_s <= LANDED_AGE_S else None,
            status.battery_remaining,
            status.battery_voltage_v,
            status.rc_ok,
        )

    def ages_s(self, now_s: float) -> dict[str, float]:
        """Age of what each fact on the page comes from [s]; inf: it never came."""
        return {
            "link": self.age_s(now_s),
            "mode": now_s - self._beat_s,
            "landed": now_s - self._landed_s,
            "position": now_s - self._position_s,
            "attitude": now_s - self._attitude_s,
            "battery": now_s - self._battery_s,
        }

    @property
    def others(self) -> list[int]:
        """System ids of other flight controllers on the link; their messages are not used."""
        return sorted(self._codec.foreign_autopilots)

    @property
    def missing_parameters(self) -> list[str]:
        """Those of `PARAMETERS` that have not arrived."""
        return [name for name in PARAMETERS if name not in self.parameters]

    def attitude(self, now_s: float) -> Quat | None:
        """q_WB (w, x, y, z), ENU and FLU; None when the newest is older than `ATTITUDE_AGE_S`."""
        return self._q_WB if now_s - self._attitude_s <= ATTITUDE_AGE_S else None

    def motion(self, now_s: float) -> tuple[Vec3, Vec3]:
        """Position [m] and velocity [m/s] in PX4's local frame, ENU; NaN when unknown."""
        if now_s - self._position_s > SILENCE_S:
            nothing = (math.nan, math.nan, math.nan)
            return nothing, nothing
        return self._p_W, self._v_W

    # --- requests ---------------------------------------------------------------------------------------------------

    def set_mode(self, mode: FcuMode, answer: Answer, now_s: float, unwanted: Unwanted) -> None:
        """Request a flight mode of PX4; the answer is PX4's, or that none came.

        unwanted: why the request is not to be sent again, "" while it is.
        """
        main, sub = mode_number(mode)
        custom = float(common.MAV_MODE_FLAG_CUSTOM_MODE_ENABLED)
        parameters = (custom, float(main), float(sub), 0.0, 0.0, 0.0, 0.0)
        self._now_s = now_s
        replaced, self._requested_mode = self._requested_mode, (mode, now_s)
        recent = replaced[0] if replaced is not None and now_s - replaced[1] < REPLACED_S else None
        watch = ModeWatch(self.vehicle, self._clock, self._request_heartbeat, unwanted, mode, recent)
        self._commands.start(common.MAV_CMD_DO_SET_MODE, parameters, answer, now_s, SECOND_ACK_S, watch)

    def arm(self, arm: bool, answer: Answer, now_s: float, unwanted: Unwanted) -> None:
        """Request to arm or disarm, with all of PX4's checks; to arm is never sent again. `unwanted` as for a mode."""

        def answered(outcome: Outcome) -> None:
            self._request_heartbeat()
            answer(outcome)

        parameters = (1.0 if arm else 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        self._now_s = now_s
        watch = (ArmWatch if arm else DisarmWatch)(self.vehicle, self._clock, self._request_heartbeat, unwanted)
        self._commands.start(common.MAV_CMD_COMPONENT_ARM_DISARM, parameters, answered, now_s, watch=watch)

    def manual_control(self, control: ManualControl) -> None:
        """Send the sticks once."""
        x, y, z, r = control
        self._send(common.MAVLink_manual_control_message(self._target, x, y, z, r, 0))

    # --- bytes ------------------------------------------------------------------------------------------------------

    def receive(self, data: bytes, now_s: float) -> None:
        """Take bytes of the link."""
        self._now_s = now_s
        frames = self._codec.frames
        messages = self._codec.decode(data, now_s)
        if self._codec.frames != frames:
            self._heard_s = now_s
        for number, message in messages:
            self._counts[number] = self._counts.get(number, 0) + 1
            if reader := self._readers.get(type(message)):
                reader(message)

    def step(self, now_s: float) -> None:
        """Heartbeat, requests of streams and parameters, retries."""
        self._now_s = now_s
        if self._limiter.is_due("heartbeat", 1.0, now_s):
            station = (common.MAV_TYPE_GCS, common.MAV_AUTOPILOT_INVALID, 0, 0, common.MAV_STATE_ACTIVE, 3)
            self._send(common.MAVLink_heartbeat_message(*station))
        if self.age_s(now_s) > SILENCE_S:
            self._commands.cancel_all("the link to the flight controller is lost")
            self._counts.clear()
            self._counted_s = now_s
            self.parameters.clear()  # another aircraft, or this one after a restart, may have others
            return
        self._commands.step(now_s)
        if now_s - self._beat_s > 1.5 * BEAT_S and self._limiter.is_due("beat", BEAT_S, now_s):
            self._request_heartbeat()
        self.texts.extend(self._joiner.expire(now_s))
        if now_s - self._counted_s >= STREAM_CHECK_S:
            self._counted_s = now_s
            self._request_streams(now_s)
        missing = self.missing_parameters
        if missing and self._limiter.is_due("parameters", PARAMETER_RETRY_S, now_s):
            for name in missing:
                self._send(read_request(name, self._target))

    def take_output(self) -> list[bytes]:
        """The frames to send since the last call."""
        out, self._out = self._out, []
        return out

    def _request_streams(self, now_s: float) -> None:
        """Ask for one stream that came too rarely since the last check; PX4 takes one such command at a time."""
        counts, self._counts = self._counts, {}
        for number, (least_hz, rate_hz) in STREAMS.items():
            busy = self._commands.busy(common.MAV_CMD_SET_MESSAGE_INTERVAL)
            if busy or counts.get(number, 0) >= least_hz * STREAM_CHECK_S:
                continue
            parameters = (float(number), 1e6 / rate_hz, 0.0, 0.0, 0.0, 0.0, 0.0)
            self._commands.start(common.MAV_CMD_SET_MESSAGE_INTERVAL, parameters, lambda outcome: None, now_s)

    def _clock(self) -> float:
        return self._now_s

    def _send(self, message: OutgoingMessage) -> None:
        self._out.append(self._codec.encode(message, self._now_s))

    # --- messages of the flight controller --------------------------------------------------------------------------

    def _on_heartbeat(self, m: Heartbeat) -> None:
        self.vehicle.put_heartbeat(m, self._now_s)
        self._beat_s = self._now_s

    def _on_landed(self, m: ExtendedSysState) -> None:
        self.vehicle.put_extended_sys_state(m, self._now_s)
        self._landed_s = self._now_s

    def _on_battery(self, m: BatteryStatus) -> None:
        self.vehicle.put_battery_status(m, self._now_s)
        self._battery_s = self._now_s

    def _on_current_mode(self, m: CurrentMode) -> None:
        if self.vehicle.put_current_mode(m, self._now_s):
            self._request_heartbeat()

    def _on_ack(self, m: CommandAck) -> None:
        if m.target_system in (0, SYSTEM_ID):
            self._commands.acknowledge(m.command, m.result, self._now_s)

    def _request_heartbeat(self) -> None:
        """Only a heartbeat has mode and armed together, and PX4 sends it once a second."""
        if not self._commands.busy(common.MAV_CMD_REQUEST_MESSAGE):
            parameters = (float(common.MAVLINK_MSG_ID_HEARTBEAT), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
            self._commands.start(common.MAV_CMD_REQUEST_MESSAGE, parameters, lambda outcome: None, self._now_s)

    def _on_attitude(self, m: AttitudeQuaternion) -> None:
        length = math.hypot(m.q1, m.q2, m.q3, m.q4)
        if abs(length - 1.0) < 0.01:  # False for NaN
            self._q_WB = swap_attitude((m.q1 / length, m.q2 / length, m.q3 / length, m.q4 / length))
            self._attitude_s = self._now_s

    def _on_position(self, m: LocalPositionNed) -> None:
        if all(map(math.isfinite, (m.x, m.y, m.z, m.vx, m.vy, m.vz))):
            self._p_W, self._v_W = swap_world((m.x, m.y, m.z)), swap_world((m.vx, m.vy, m.vz))
            self._position_s = self._now_s

    def _on_text(self, m: StatusText) -> None:
        self.texts.extend(self._joiner.put(m.severity, m.text, m.id, m.chunk_seq, self._now_s))

    def _on_parameter(self, m: ParamValue) -> None:
        name = m.param_id.split(b"\0", 1)[0].decode("ascii", "replace")
        if name in PARAMETERS:
            try:
                self.parameters[name] = float(decode_value(m.param_value, m.param_type))
            except ValueError:
                return
