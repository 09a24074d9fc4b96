"""What another sender on the link does: setpoints beside ours, wrong voltages, frames in PX4's name.

Each class is one attack while it is active; `sitl.faults` starts and ends it.
"""

import math
from collections.abc import Callable
from typing import Protocol

import msgspec
from pymavlink.dialects.v20 import common

from companion.core.frames import quat_from_rpy, quat_multiply
from companion.core.messages import FcuStatus, LinkRx
from sitl.autopilot.conversion import q_ned
from sitl.world import World

SYSTEM_ID, AUTOPILOT = 1, common.MAV_COMP_ID_AUTOPILOT1
PX4_OFFBOARD = 6  # main mode
ATTITUDE_AND_THRUST = 0b111  # type_mask without body rates
RATES_AND_THRUST = 0b1000_0000  # without the attitude


class Run(Protocol):
    """The run that an attack acts on; `sitl.faults.FaultTarget` is one."""

    now_us: int

    @property
    def world(self) -> World: ...

    @property
    def now_s(self) -> float: ...

    def at(self, time_us: int, action: Callable[[], None]) -> None: ...

    def arrive(self, data: bytes) -> None: ...


class Repeated:
    """Calls `act` at a rate until it is stopped."""

    def __init__(self, run: Run, rate_hz: float, act: Callable[[], None]) -> None:
        self._run, self._period_us, self._act = run, round(1e6 / rate_hz), act
        self.active = True
        self._again()

    def _again(self) -> None:
        if self.active:
            self._act()
            self._run.at(self._run.now_us + self._period_us, self._again)


class ForeignSetpoints:
    """A second companion: SET_ATTITUDE_TARGET with the nose to the east, or with body rates."""

    def __init__(
        self, run: Run, rate_hz: float, tilt_rad: float, thrust: float, routed: bool, roll_rad_s: float | None = None
    ) -> None:
        """tilt_rad: towards the south; routed: its frames reach this companion, too, as behind a router.

        roll_rad_s: body rates with this one in place of the attitude, which PX4 does not echo.
        """
        self._run, self._routed, self._thrust = run, routed, thrust
        self._roll_rad_s = roll_rad_s
        self._q = q_ned(quat_from_rpy(tilt_rad, 0.0, 0.0).tolist())
        self._mavlink = common.MAVLink(None, srcSystem=SYSTEM_ID, srcComponent=common.MAV_COMP_ID_ONBOARD_COMPUTER2)
        self._repeated = Repeated(run, rate_hz, self._send)

    def stop(self) -> None:
        self._repeated.active = False

    def request_offboard(self) -> None:
        """MAV_CMD_DO_SET_MODE: this companion takes the aircraft itself."""
        if not self._repeated.active:
            return
        number, flags = common.MAV_CMD_DO_SET_MODE, common.MAV_MODE_FLAG_CUSTOM_MODE_ENABLED
        self._transmit(
            common.MAVLink_command_long_message(SYSTEM_ID, AUTOPILOT, number, 0, flags, PX4_OFFBOARD, 0, 0, 0, 0, 0)
        )

    def _send(self) -> None:
        mask = ATTITUDE_AND_THRUST if self._roll_rad_s is None else RATES_AND_THRUST
        rates = self._roll_rad_s or 0.0, 0.0, 0.0
        self._transmit(
            common.MAVLink_set_attitude_target_message(
                int(self._run.now_s * 1e3), SYSTEM_ID, AUTOPILOT, mask, self._q, *rates, self._thrust
            )
        )

    def _transmit(self, message: common.MAVLink_message) -> None:
        run = self._run
        data = message.pack(self._mavlink)
        self._mavlink.seq = (self._mavlink.seq + 1) % 256
        run.world.autopilot.receive(data, run.now_s)
        if self._routed:
            run.arrive(data)


class ForeignOdometry:
    """A camera computer on the same link: ODOMETRY of a place that the aircraft has left."""

    def __init__(self, run: Run, rate_hz: float) -> None:
        self._run = run
        self._mavlink = common.MAVLink(
            None, srcSystem=SYSTEM_ID, srcComponent=common.MAV_COMP_ID_VISUAL_INERTIAL_ODOMETRY
        )
        self._repeated = Repeated(run, rate_hz, self._send)

    def stop(self) -> None:
        self._repeated.active = False

    def _send(self) -> None:
        run = self._run
        frames = common.MAV_FRAME_LOCAL_FRD, common.MAV_FRAME_BODY_FRD
        unknown = [math.nan] * 21
        message = common.MAVLink_odometry_message(
            round(run.now_s * 1e6), *frames, 0, 0, 0, [1.0, 0, 0, 0], *[0.0] * 6, unknown, unknown, 0, 0, 100
        )
        data = message.pack(self._mavlink)
        self._mavlink.seq = (self._mavlink.seq + 1) % 256
        run.world.autopilot.receive(data, run.now_s)
        run.arrive(data)


class ForeignParameter:
    """A third program on the same link: PARAM_SET of a parameter of PX4."""

    def __init__(self, run: Run, rate_hz: float, name: bytes, value: float) -> None:
        self._run = run
        self._mavlink = common.MAVLink(None, srcSystem=SYSTEM_ID, srcComponent=common.MAV_COMP_ID_ONBOARD_COMPUTER3)
        self._message = common.MAVLink_param_set_message(
            SYSTEM_ID, AUTOPILOT, name, value, common.MAV_PARAM_TYPE_REAL32
        )
        self._repeated = Repeated(run, rate_hz, self._send)

    def stop(self) -> None:
        self._repeated.active = False

    def _send(self) -> None:
        data = self._message.pack(self._mavlink)
        self._mavlink.seq = (self._mavlink.seq + 1) % 256
        self._run.world.autopilot.receive(data, self._run.now_s)
        self._run.arrive(data)


class WrongVoltage:
    """Battery voltages in the place of the measured ones, in turn; NaN: not measured."""

    def __init__(self, voltages_v: list[float]) -> None:
        self._voltages_v = voltages_v
        self._count = 0

    def changed(self, status: FcuStatus) -> FcuStatus:
        """A status as it reaches the bus."""
        self._count += 1
        return msgspec.structs.replace(status, battery_voltage_v=self._voltages_v[self._count % len(self._voltages_v)])


class WrongFrames:
    """Behind each position and attitude of PX4 a copy with other content, as from a second estimator with its ids."""

    def __init__(self, velocity_m_s: float, tilt_rad: float) -> None:
        """Added to the velocity north, and to the roll."""
        self._velocity_m_s, self._tilt_rad = velocity_m_s, tilt_rad
        self._parser = common.MAVLink(None)
        self._parser.robust_parsing = True
        self._mavlink = common.MAVLink(None, srcSystem=SYSTEM_ID, srcComponent=AUTOPILOT)

    def changed(self, message: LinkRx) -> LinkRx:
        """Received bytes with the copies behind them; their sequence numbers are those of the originals."""
        data = message.data
        for m in self._parser.parse_buffer(data) or []:
            copy = self._copy(m)
            if copy is not None:
                self._mavlink.seq = m.get_seq()
                data += copy.pack(self._mavlink)
        return msgspec.structs.replace(message, data=data)

    def _copy(self, m: common.MAVLink_message) -> common.MAVLink_message | None:
        kind = m.get_type()
        if kind == "LOCAL_POSITION_NED" and self._velocity_m_s:
            return common.MAVLink_local_position_ned_message(
                m.time_boot_ms + 1, m.x, m.y, m.z, m.vx + self._velocity_m_s, m.vy, m.vz
            )
        if kind == "ATTITUDE_QUATERNION" and self._tilt_rad:
            q = quat_multiply([m.q1, m.q2, m.q3, m.q4], quat_from_rpy(self._tilt_rad, 0.0, 0.0))
            return common.MAVLink_attitude_quaternion_message(
                m.time_boot_ms + 1, *q, m.rollspeed, m.pitchspeed, m.yawspeed
            )
        return None
