"""Makes a scenario's faults happen at their time and end after their duration."""

from typing import TYPE_CHECKING

from sitl.scenario import Fault

if TYPE_CHECKING:
    from sitl.lockstep import Lockstep

RC_CENTRE_US, RC_LOW_US, RC_HIGH_US = 1500, 1000, 2000


class FaultInjector:
    """Schedules begin and end of each fault on the lockstep's event queue."""

    def __init__(self, lockstep: "Lockstep", faults: list[Fault]) -> None:
        self._lockstep = lockstep
        self._faults = faults
        self.link_down = False

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
        elif fault.kind == "battery_volts":
            world.sensors.set_fault("battery_volts", fault.value[0] if active else None)
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
            self._lockstep.runners["controller"].node.nmpc.fail = active
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
