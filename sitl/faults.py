"""Makes a scenario's faults begin at their time and end after their duration."""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

import msgspec
import numpy as np
from pymavlink.dialects.v20 import common

from companion.control.solver import Nmpc, NmpcResult
from companion.core.arrays import Array, Vector
from companion.core.clock import SimulatedStopwatch
from companion.core.enums import FcuMode
from companion.core.messages import FcuStatus, LinkRx, LinkTx, Message, State
from companion.core.vehicle import Vehicle
from sitl import imu_faults
from sitl.autopilot.conversion import q_ned
from sitl.link_attacks import ForeignSetpoints, WrongFrames, WrongVoltage
from sitl.marker_attacks import MARKER_ATTACKS
from sitl.scenario import Fault, FaultKind
from sitl.world import World

RC_HIGH_US = 2000
PITCH_CHANNEL = 2  # counted from 1
SOLVER_FAILURE = 4  # acados' status for a QP that was not solved
MAVLINK_2, MAVLINK_2_HEADER, CHECKSUM = 0xFD, 10, 2  # start byte, length of the header, length of the checksum
TIMESYNC = 111  # MAVLink message id
SECOND_COMPANION_PERIOD_US = 20_000
OFFBOARD_AFTER_US = 500_000  # setpoints before a second companion requests offboard; PX4 demands them

M = TypeVar("M", bound=Message)


class FaultyProcess(Protocol):
    """A process that a fault can kill, restart or starve."""

    share: float  # of its steps that it manages

    def kill(self) -> None: ...

    def restart(self) -> None: ...


class FaultTarget(Protocol):
    """The run that faults act on; `sitl.lockstep.Lockstep` is one."""

    now_us: int
    controller_watch: SimulatedStopwatch

    @property
    def world(self) -> World: ...

    @property
    def runners(self) -> Mapping[str, FaultyProcess]: ...

    @property
    def now_s(self) -> float: ...

    def at(self, time_us: int, action: Callable[[], None]) -> None: ...  # run an action at a simulated time

    def arrive(self, data: bytes) -> None: ...  # bytes come over the link


class FailableNmpc(Nmpc):
    """The solver, which returns a failure as long as ``fails()`` is true."""

    def __init__(self, vehicle: Vehicle, fails: Callable[[], bool]) -> None:
        super().__init__(vehicle)
        self._fails = fails

    def solve(self, x0: Vector, references: Array, parameters: Array) -> NmpcResult:
        result = super().solve(x0, references, parameters)
        return result._replace(status=SOLVER_FAILURE) if self._fails() else result


class SecondCompanion:
    """Another companion computer on the link, which holds the aircraft level."""

    def __init__(self, thrust: float) -> None:
        self._mavlink = common.MAVLink(None, srcSystem=1, srcComponent=common.MAV_COMP_ID_ONBOARD_COMPUTER2)
        self._thrust = thrust

    def setpoint(self, now_s: float) -> bytes:
        """The bytes of one SET_ATTITUDE_TARGET; without rates, the nose to the east."""
        target = common.MAVLink_set_attitude_target_message(
            int(now_s * 1e3),
            1,
            common.MAV_COMP_ID_AUTOPILOT1,
            0b111,
            q_ned((1.0, 0.0, 0.0, 0.0)),
            0,
            0,
            0,
            self._thrust,
        )
        data: bytes = target.pack(self._mavlink)
        self._mavlink.seq = (self._mavlink.seq + 1) % 256
        return data


class FaultInjector:
    """Schedules begin and end of each fault on the run's event queue."""

    def __init__(self, target: FaultTarget, faults: list[Fault]) -> None:
        self.target = target
        self.link_down = False
        self.solver_fails = False
        self.second_companion: SecondCompanion | None = None
        self.foreign_setpoints: ForeignSetpoints | None = None
        self._faults = faults
        self.changes: dict[type[Message], Callable[[Message], Message]] = {}

    def schedule(self) -> None:
        for fault in self._faults:
            self.add(fault)

    def add(self, fault: Fault) -> None:
        """Schedule one fault; also while the flight goes on."""
        effect = EFFECTS[FaultKind(fault.kind)]
        begin_us = round(fault.at_s * 1e6)
        self.target.at(begin_us, lambda: effect(self, fault, True))
        self.target.at(begin_us + round(fault.duration_s * 1e6), lambda: effect(self, fault, False))

    def changed(self, message: Message) -> Message:
        """A message as the faults of this moment let it reach the bus."""
        change = self.changes.get(type(message))
        return message if change is None else change(message)

    def change(self, kind: type[M], change: Callable[[M], M] | None) -> None:
        """Replace every message of a type on its way to the bus; None: no longer."""
        self.changes.pop(kind, None)
        if change is None:
            return

        def checked(message: Message) -> Message:
            return change(message) if isinstance(message, kind) else message

        self.changes[kind] = checked


# --- sensors --------------------------------------------------------------------------------------------------------


def _gnss_lost(faults: FaultInjector, fault: Fault, active: bool) -> None:
    faults.target.world.sensors.set_fault("gnss_lost", True if active else None)


def _gnss_jump(faults: FaultInjector, fault: Fault, active: bool) -> None:
    faults.target.world.sensors.set_fault("gnss_jump", tuple(fault.value) if active else None)


def _gnss_refused(faults: FaultInjector, fault: Fault, active: bool) -> None:
    faults.target.world.autopilot.set_gnss_refused(active)


def _battery_low(faults: FaultInjector, fault: Fault, active: bool) -> None:
    faults.target.world.sensors.set_fault("battery_low", tuple(fault.value) if active else None)


def _markers_hidden(faults: FaultInjector, fault: Fault, active: bool) -> None:
    faults.target.world.markers_hidden = active


def _camera_frozen(faults: FaultInjector, fault: Fault, active: bool) -> None:
    faults.target.world.camera_frozen = active


def _camera_slipped(faults: FaultInjector, fault: Fault, active: bool) -> None:
    faults.target.world.camera.slip = np.array(fault.value) if active else None


def _heading_disturbed(faults: FaultInjector, fault: Fault, active: bool) -> None:
    faults.target.world.sensors.set_fault("heading", tuple(fault.value) if active else None)


def _markers_outliers(faults: FaultInjector, fault: Fault, active: bool) -> None:
    faults.target.world.camera_error_std_m = fault.value[0] if active else 0.0


def _marker_attack(faults: FaultInjector, fault: Fault, active: bool) -> None:
    world = faults.target.world
    if active:
        world.marker_attacks.begin(fault, world.now_s)
    else:
        world.marker_attacks.end(fault)


IMU_FAULTS: dict[FaultKind, Callable[[Fault], imu_faults.ImuFault]] = {
    FaultKind.IMU_STOPS: lambda fault: imu_faults.stops(),
    FaultKind.IMU_SLOW: lambda fault: imu_faults.slow(fault.value[0]),
    FaultKind.IMU_TIME_JUMPS: lambda fault: imu_faults.time_jumps(fault.value[0]),
    FaultKind.IMU_SWAPPED: lambda fault: imu_faults.swapped(int(fault.value[0]), int(fault.value[1])),
    FaultKind.IMU_INVERTED: lambda fault: imu_faults.inverted(),
    FaultKind.IMU_FROZEN: lambda fault: imu_faults.frozen(int(fault.value[0])),
    FaultKind.IMU_CLIPS: lambda fault: imu_faults.clips(fault.value[0]),
}


def _imu_wrong(faults: FaultInjector, fault: Fault, active: bool) -> None:
    faults.target.world.autopilot.set_imu_fault(IMU_FAULTS[FaultKind(fault.kind)](fault) if active else None)


# --- aircraft -------------------------------------------------------------------------------------------------------


def _gust(faults: FaultInjector, fault: Fault, active: bool) -> None:
    x, y, z = fault.value if active else (0.0, 0.0, 0.0)
    faults.target.world.push_m_s2 = (x, y, z)


def _motors_weak(faults: FaultInjector, fault: Fault, active: bool) -> None:
    faults.target.world.motor_shares = np.array(fault.value) if active else None


def _motor_stops(faults: FaultInjector, fault: Fault, active: bool) -> None:
    world = faults.target.world
    shares = np.ones(world.plant.rotors)
    shares[[int(number) for number in fault.value]] = 0.0
    world.motor_shares = shares if active else None


# --- RC -------------------------------------------------------------------------------------------------------------


def _rc_lost(faults: FaultInjector, fault: Fault, active: bool) -> None:
    autopilot = faults.target.world.autopilot
    autopilot.set_rc(None if active else list(autopilot.rc_neutral_us))


def _rc_sticks(faults: FaultInjector, fault: Fault, active: bool) -> None:
    _set_channel(faults.target.world, PITCH_CHANNEL, RC_HIGH_US, active)


def _rc_mode_switch(faults: FaultInjector, fault: Fault, active: bool) -> None:
    autopilot = faults.target.world.autopilot
    pulse_us = autopilot.rc_mode_positions_us[FcuMode.ALTCTL]
    _set_channel(faults.target.world, autopilot.rc_mode_channel, pulse_us, active)


def _rc_channel(faults: FaultInjector, fault: Fault, active: bool) -> None:
    _set_channel(faults.target.world, int(fault.value[0]), int(fault.value[1]), active)


def _set_channel(world: World, channel: int, pulse_us: int, active: bool) -> None:
    autopilot = world.autopilot
    channels = list(autopilot.rc_us or autopilot.rc_neutral_us)
    channels[channel - 1] = pulse_us if active else autopilot.rc_neutral_us[channel - 1]
    autopilot.set_rc(channels)


# --- link -----------------------------------------------------------------------------------------------------------


def _link_lost(faults: FaultInjector, fault: Fault, active: bool) -> None:
    faults.link_down = active


def _timesync_lost(faults: FaultInjector, fault: Fault, active: bool) -> None:
    faults.change(LinkTx, without_timesync if active else None)


def _second_companion(faults: FaultInjector, fault: Fault, active: bool) -> None:
    faults.second_companion = SecondCompanion(fault.value[0]) if active else None
    if active:
        _send_as_second_companion(faults)


def _send_as_second_companion(faults: FaultInjector) -> None:
    """The bytes reach the autopilot and, as behind a router, every other participant of the link."""
    if faults.second_companion is None:
        return
    target = faults.target
    data = faults.second_companion.setpoint(target.now_s)
    target.world.autopilot.receive(data, target.now_s)
    target.arrive(data)
    target.at(target.now_us + SECOND_COMPANION_PERIOD_US, lambda: _send_as_second_companion(faults))


def _foreign_setpoints(faults: FaultInjector, fault: Fault, active: bool) -> None:
    if faults.foreign_setpoints is not None:
        faults.foreign_setpoints.stop()
    rate_hz, tilt_rad, thrust, routed = fault.value
    faults.foreign_setpoints = (
        ForeignSetpoints(faults.target, rate_hz, tilt_rad, thrust, bool(routed)) if active else None
    )
    if faults.foreign_setpoints is not None and fault.kind == FaultKind.FOREIGN_OFFBOARD:
        faults.target.at(faults.target.now_us + OFFBOARD_AFTER_US, faults.foreign_setpoints.request_offboard)


def _voltage_wrong(faults: FaultInjector, fault: Fault, active: bool) -> None:
    faults.change(FcuStatus, WrongVoltage(fault.value).changed if active else None)


def _frames_wrong(faults: FaultInjector, fault: Fault, active: bool) -> None:
    faults.change(LinkRx, WrongFrames(fault.value[0], fault.value[1]).changed if active else None)


# --- payload camera -------------------------------------------------------------------------------------------------

PAYLOAD_FLAGS: dict[FaultKind, str] = {
    FaultKind.PAYLOAD_SILENT: "silent",
    FaultKind.PAYLOAD_REFUSES: "refuses",
    FaultKind.PAYLOAD_LOSES: "loses_answers",
    FaultKind.PAYLOAD_REPEATS: "repeats_answers",
    FaultKind.PAYLOAD_WITHOUT_STORAGE: "without_storage",
    FaultKind.GIMBAL_STUCK: "gimbal_stuck",
}


def _payload(faults: FaultInjector, fault: Fault, active: bool) -> None:
    payload = faults.target.world.payload
    if payload is None:
        return
    if fault.kind == FaultKind.PAYLOAD_LATE:
        payload.faults.late_s = fault.value[0] if active else 0.0
    else:
        setattr(payload.faults, PAYLOAD_FLAGS[FaultKind(fault.kind)], active)


# --- software -------------------------------------------------------------------------------------------------------


def _process_dead(faults: FaultInjector, fault: Fault, active: bool) -> None:
    runner = faults.target.runners[fault.name]
    if active:
        runner.kill()
    else:
        runner.restart()


def _solver_fails(faults: FaultInjector, fault: Fault, active: bool) -> None:
    faults.solver_fails = active


def _controller_slow(faults: FaultInjector, fault: Fault, active: bool) -> None:
    faults.target.controller_watch.cost_s = fault.value[0] if active else 0.0


def _estimator_uncertain(faults: FaultInjector, fault: Fault, active: bool) -> None:
    position_m, relative_m = fault.value

    def uncertain(state: State) -> State:
        return msgspec.structs.replace(
            state,
            position_std_m=max(state.position_std_m, position_m),
            relative_std_m=max(state.relative_std_m, relative_m),
        )

    faults.change(State, uncertain if active else None)


def _estimator_reset(faults: FaultInjector, fault: Fault, active: bool) -> None:
    def reset(state: State) -> State:
        return msgspec.structs.replace(state, reset_count=state.reset_count + 1)

    faults.change(State, reset if active else None)


# --- computer -------------------------------------------------------------------------------------------------------


def _cpu_starved(faults: FaultInjector, fault: Fault, active: bool) -> None:
    for runner in faults.target.runners.values():
        runner.share = fault.value[0] if active else 1.0
    _set_host(faults.target.world, "cpu_load", 1.0 if active else None)


def _cpu_throttled(faults: FaultInjector, fault: Fault, active: bool) -> None:
    _set_host(faults.target.world, "throttled", True if active else None)


def _cpu_hot(faults: FaultInjector, fault: Fault, active: bool) -> None:
    _set_host(faults.target.world, "cpu_temperature_c", fault.value[0] if active else None)


def _disk_full(faults: FaultInjector, fault: Fault, active: bool) -> None:
    _set_host(faults.target.world, "disk_free_mb", fault.value[0] if active else None)


def _memory_low(faults: FaultInjector, fault: Fault, active: bool) -> None:
    _set_host(faults.target.world, "memory_free_mb", fault.value[0] if active else None)


def _set_host(world: World, name: str, value: float | bool | None) -> None:
    """Change one field of the computer's state; None: as it was."""
    value = getattr(world.healthy_host, name) if value is None else value
    world.host = msgspec.structs.replace(world.host, **{name: value})


EFFECTS: dict[FaultKind, Callable[[FaultInjector, Fault, bool], None]] = {
    FaultKind.GNSS_LOST: _gnss_lost,
    FaultKind.GNSS_JUMP: _gnss_jump,
    FaultKind.GNSS_REFUSED: _gnss_refused,
    FaultKind.MARKERS_HIDDEN: _markers_hidden,
    FaultKind.CAMERA_FROZEN: _camera_frozen,
    FaultKind.CAMERA_SLIPPED: _camera_slipped,
    FaultKind.HEADING_DISTURBED: _heading_disturbed,
    FaultKind.MARKERS_OUTLIERS: _markers_outliers,
    **dict.fromkeys(IMU_FAULTS, _imu_wrong),
    FaultKind.RC_LOST: _rc_lost,
    FaultKind.RC_MODE_SWITCH: _rc_mode_switch,
    FaultKind.RC_STICKS: _rc_sticks,
    FaultKind.RC_CHANNEL: _rc_channel,
    FaultKind.LINK_LOST: _link_lost,
    FaultKind.SECOND_COMPANION: _second_companion,
    FaultKind.TIMESYNC_LOST: _timesync_lost,
    **dict.fromkeys(PAYLOAD_FLAGS, _payload),
    FaultKind.PAYLOAD_LATE: _payload,
    FaultKind.PROCESS_DEAD: _process_dead,
    FaultKind.SOLVER_FAILS: _solver_fails,
    FaultKind.CONTROLLER_SLOW: _controller_slow,
    FaultKind.BATTERY_LOW: _battery_low,
    FaultKind.ESTIMATOR_UNCERTAIN: _estimator_uncertain,
    FaultKind.ESTIMATOR_RESET: _estimator_reset,
    FaultKind.GUST: _gust,
    FaultKind.MOTORS_WEAK: _motors_weak,
    FaultKind.MOTOR_STOPS: _motor_stops,
    FaultKind.CPU_STARVED: _cpu_starved,
    FaultKind.CPU_HOT: _cpu_hot,
    FaultKind.CPU_THROTTLED: _cpu_throttled,
    FaultKind.DISK_FULL: _disk_full,
    FaultKind.MEMORY_LOW: _memory_low,
    FaultKind.FOREIGN_SETPOINTS: _foreign_setpoints,
    FaultKind.FOREIGN_OFFBOARD: _foreign_setpoints,
    FaultKind.VOLTAGE_WRONG: _voltage_wrong,
    FaultKind.FRAMES_WRONG: _frames_wrong,
    **dict.fromkeys(MARKER_ATTACKS, _marker_attack),
}


def without_timesync(message: LinkTx) -> LinkTx:
    """The same bytes without the MAVLink 2 frames of TIMESYNC."""
    data, kept, at = message.data, b"", 0
    while at + MAVLINK_2_HEADER <= len(data) and data[at] == MAVLINK_2:
        end = at + MAVLINK_2_HEADER + data[at + 1] + CHECKSUM
        if int.from_bytes(data[at + 7 : at + 10], "little") != TIMESYNC:
            kept += data[at:end]
        at = end
    return msgspec.structs.replace(message, data=kept + data[at:])
