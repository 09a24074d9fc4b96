"""Makes a scenario's faults happen at their time and end after their duration."""

from typing import TYPE_CHECKING

from companion.control.solver import Nmpc, NmpcResult
from companion.vehicle import Vehicle
from sitl.scenario import Fault

if TYPE_CHECKING:
    from sitl.lockstep import Lockstep

RC_HIGH_US = 2000
SOLVER_FAILURE = 4  # acados' status for a QP that was not solved


class FailableNmpc(Nmpc):
    """The solver, which fails as long as the injector says so."""

    def __init__(self, vehicle: Vehicle, injector: "FaultInjector") -> None:
        super().__init__(vehicle)
        self._injector = injector

    def solve(self, x0, references, parameters) -> NmpcResult:
        result = super().solve(x0, references, parameters)
        return result._replace(status=SOLVER_FAILURE) if self._injector.solver_fails else result


class FaultInjector:
    """Schedules begin and end of each fault on the lockstep's event queue."""

    def __init__(self, lockstep: "Lockstep", faults: list[Fault]) -> None:
        self._lockstep = lockstep
        self._faults = faults
        self.link_down = False
        self.solver_fails = False

    def schedule(self) -> None:
        for fault in self._faults:
            begin_us = round(fault.at_s * 1e6)
            self._lockstep.at(begin_us, lambda f=fault: self._set(f, True))
            self._lockstep.at(begin_us + round(fault.duration_s * 1e6), lambda f=fault: self._set(f, False))

    def _set(self, fault: Fault, active: bool) -> None:
        world = self._lockstep.world
        if fault.kind in ("gnss_lost", "gnss_jump"):
            value = True if fault.kind == "gnss_lost" else tuple(fault.value)
            world.sensors.set_fault(fault.kind, value if active else None)
        elif fault.kind == "battery_low":
            world.sensors.set_fault("battery_low", tuple(fault.value) if active else None)
        elif fault.kind == "markers_hidden":
            world.markers_hidden = active
        elif fault.kind in ("rc_lost", "rc_sticks", "rc_mode_switch"):
            self._set_rc(fault.kind, active)
        elif fault.kind == "link_lost":
            self.link_down = active
        elif fault.kind == "process_dead":
            runner = self._lockstep.runners[fault.name]
            runner.kill() if active else runner.restart()
        elif fault.kind == "solver_fails":
            self.solver_fails = active
        elif fault.kind == "controller_slow":
            self._lockstep.controller_watch.cost_s = fault.value[0] if active else 0.0

    def _set_rc(self, kind: str, active: bool) -> None:
        autopilot = self._lockstep.world.autopilot
        channels = list(autopilot.rc_neutral_us)
        if active and kind == "rc_lost":
            autopilot.set_rc(None)
            return
        if active and kind == "rc_sticks":
            channels[1] = RC_HIGH_US
        if active and kind == "rc_mode_switch":
            channels[autopilot.rc_mode_channel - 1] = autopilot.rc_mode_positions_us["ALTCTL"]
        autopilot.set_rc(channels)
