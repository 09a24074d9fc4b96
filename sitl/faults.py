"""Makes a scenario's faults happen at their time and end after their duration."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from pymavlink.dialects.v20 import common

from companion.control.solver import Nmpc, NmpcResult
from companion.core.messages import LinkTx, Message, State
from companion.core.vehicle import Vehicle
from sitl.autopilot.conversion import q_ned
from sitl.scenario import Fault

if TYPE_CHECKING:
    from sitl.lockstep import Lockstep

RC_HIGH_US = 2000
SOLVER_FAILURE = 4  # acados' status for a QP that was not solved
HOST_FAULTS = {"cpu_hot": "cpu_temperature_c", "disk_full": "disk_free_mb", "memory_low": "memory_free_mb"}
MAVLINK_2, MAVLINK_2_HEADER, CHECKSUM = 0xFD, 10, 2  # start byte, length of the header, length of the checksum
TIMESYNC = 111  # MAVLink message id
INTRUDER_PERIOD_US = 20_000


class FailableNmpc(Nmpc):
    """The solver, which fails as long as the injector says so."""

    def __init__(self, vehicle: Vehicle, injector: "FaultInjector") -> None:
        super().__init__(vehicle)
        self._injector = injector

    def solve(self, x0, references, parameters) -> NmpcResult:
        result = super().solve(x0, references, parameters)
        return result._replace(status=SOLVER_FAILURE) if self._injector.solver_fails else result


class Intruder:
    """A second companion that holds the aircraft level."""

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
        data = target.pack(self._mavlink)
        self._mavlink.seq = (self._mavlink.seq + 1) % 256
        return data


class FaultInjector:
    """Schedules begin and end of each fault on the lockstep's event queue.

    `changes`: by type, what becomes of a message on its way to the bus.
    """

    def __init__(self, lockstep: "Lockstep", faults: list[Fault]) -> None:
        self._lockstep = lockstep
        self._faults = faults
        self.link_down = False
        self.solver_fails = False
        self._intruder: Intruder | None = None
        self.changes: dict[type[Message], Callable[[Message], Message]] = {}

    def schedule(self) -> None:
        for fault in self._faults:
            self.add(fault)

    def add(self, fault: Fault) -> None:
        """Schedule one fault; also while the flight goes on."""
        begin_us = round(fault.at_s * 1e6)
        self._lockstep.at(begin_us, lambda: self._set(fault, True))
        self._lockstep.at(begin_us + round(fault.duration_s * 1e6), lambda: self._set(fault, False))

    def _set(self, fault: Fault, active: bool) -> None:
        getattr(self, f"_{fault.kind}")(fault, active)

    # --- what the sensors say ---------------------------------------------------------------------------------------

    def _gnss_lost(self, fault: Fault, active: bool) -> None:
        self._lockstep.world.sensors.set_fault("gnss_lost", True if active else None)

    def _gnss_jump(self, fault: Fault, active: bool) -> None:
        self._lockstep.world.sensors.set_fault("gnss_jump", tuple(fault.value) if active else None)

    def _battery_low(self, fault: Fault, active: bool) -> None:
        self._lockstep.world.sensors.set_fault("battery_low", tuple(fault.value) if active else None)

    def _markers_hidden(self, fault: Fault, active: bool) -> None:
        self._lockstep.world.markers_hidden = active

    def _markers_garbage(self, fault: Fault, active: bool) -> None:
        self._lockstep.world.camera_error_std_m = fault.value[0] if active else 0.0

    # --- the aircraft -----------------------------------------------------------------------------------------------

    def _gust(self, fault: Fault, active: bool) -> None:
        self._lockstep.world.push_m_s2 = tuple(fault.value) if active else (0.0, 0.0, 0.0)

    def _motors_weak(self, fault: Fault, active: bool) -> None:
        self._lockstep.world.motor_shares = np.array(fault.value) if active else None

    # --- the transmitter --------------------------------------------------------------------------------------------

    def _rc_lost(self, fault: Fault, active: bool) -> None:
        autopilot = self._lockstep.world.autopilot
        autopilot.set_rc(None if active else list(autopilot.rc_neutral_us))

    def _rc_sticks(self, fault: Fault, active: bool) -> None:
        self._set_channel(2, RC_HIGH_US, active)

    def _rc_mode_switch(self, fault: Fault, active: bool) -> None:
        autopilot = self._lockstep.world.autopilot
        self._set_channel(autopilot.rc_mode_channel, autopilot.rc_mode_positions_us["ALTCTL"], active)

    def _rc_channel(self, fault: Fault, active: bool) -> None:
        self._set_channel(int(fault.value[0]), int(fault.value[1]), active)

    def _set_channel(self, channel: int, pulse_us: int, active: bool) -> None:
        autopilot = self._lockstep.world.autopilot
        channels = list(autopilot.rc_us or autopilot.rc_neutral_us)
        channels[channel - 1] = pulse_us if active else autopilot.rc_neutral_us[channel - 1]
        autopilot.set_rc(channels)

    # --- the link ---------------------------------------------------------------------------------------------------

    def _link_lost(self, fault: Fault, active: bool) -> None:
        self.link_down = active

    def _timesync_lost(self, fault: Fault, active: bool) -> None:
        self._change(LinkTx, _without_timesync if active else None)

    def _second_companion(self, fault: Fault, active: bool) -> None:
        self._intruder = Intruder(fault.value[0]) if active else None
        if active:
            self._intrude()

    def _intrude(self) -> None:
        """What it sends reaches the autopilot and, as behind a router, everybody else on the link."""
        if self._intruder is None:
            return
        lockstep = self._lockstep
        data = self._intruder.setpoint(lockstep.now_s)
        lockstep.world.autopilot.receive(data, lockstep.now_s)
        lockstep.arrive(data)
        lockstep.at(lockstep.now_us + INTRUDER_PERIOD_US, self._intrude)

    # --- the software -----------------------------------------------------------------------------------------------

    def _process_dead(self, fault: Fault, active: bool) -> None:
        runner = self._lockstep.runners[fault.name]
        runner.kill() if active else runner.restart()

    def _solver_fails(self, fault: Fault, active: bool) -> None:
        self.solver_fails = active

    def _controller_slow(self, fault: Fault, active: bool) -> None:
        self._lockstep.controller_watch.cost_s = fault.value[0] if active else 0.0

    def _estimator_unsure(self, fault: Fault, active: bool) -> None:
        position_m, relative_m = fault.value

        def unsure(state: State) -> State:
            return msgspec.structs.replace(
                state,
                position_std_m=max(state.position_std_m, position_m),
                relative_std_m=max(state.relative_std_m, relative_m),
            )

        self._change(State, unsure if active else None)

    def _estimator_reset(self, fault: Fault, active: bool) -> None:
        def anew(state: State) -> State:
            return msgspec.structs.replace(state, reset_count=state.reset_count + 1)

        self._change(State, anew if active else None)

    def _change(self, kind: type[Message], change: Callable[[Message], Message] | None) -> None:
        if change is None:
            self.changes.pop(kind, None)
        else:
            self.changes[kind] = change

    # --- the computer -----------------------------------------------------------------------------------------------

    def _cpu_starved(self, fault: Fault, active: bool) -> None:
        for runner in self._lockstep.runners.values():
            runner.share = fault.value[0] if active else 1.0
        self._tell_host("cpu_load", 1.0 if active else None)

    def _cpu_throttled(self, fault: Fault, active: bool) -> None:
        self._tell_host("throttled", True if active else None)

    def _host_number(self, fault: Fault, active: bool) -> None:
        self._tell_host(HOST_FAULTS[fault.kind], fault.value[0] if active else None)

    _cpu_hot = _disk_full = _memory_low = _host_number

    def _tell_host(self, name: str, value: float | bool | None) -> None:
        """Change one field of the computer's state; None: as it was."""
        world = self._lockstep.world
        value = getattr(world.healthy_host, name) if value is None else value
        world.host = msgspec.structs.replace(world.host, **{name: value})


def _without_timesync(message: LinkTx) -> LinkTx:
    """The same bytes without the MAVLink 2 frames of TIMESYNC."""
    data, kept, at = message.data, b"", 0
    while at + MAVLINK_2_HEADER <= len(data) and data[at] == MAVLINK_2:
        end = at + MAVLINK_2_HEADER + data[at + 1] + CHECKSUM
        if int.from_bytes(data[at + 7 : at + 10], "little") != TIMESYNC:
            kept += data[at:end]
        at = end
    return msgspec.structs.replace(message, data=kept + data[at:])
