"""Lockstep flights whose HIGHRES_IMU is wrong.

``python -m tests.scenarios.imu_fault_flights`` prints the results.

In the hold the fault begins after the settled beginning of the safety flights and lasts. "From the start" it is there
before the aircraft takes off.
"""

import sys
from typing import NamedTuple

import msgspec
import numpy as np

from companion.core.enums import Phase
from sitl.lockstep import Lockstep
from sitl.scenario import Fault, FaultKind, LoadedScenario
from tests.scenarios.forked import in_fork
from tests.scenarios.safety_flights import SEED, SETTLED_S, beginning, loaded_for

HELD_S = 20.0  # of the hold with the fault
START_S = 15.0  # after which a flight that is refused would have taken off
FAULTS: dict[str, Fault] = {
    "imu_stops": Fault(at_s=0.0, kind=FaultKind.IMU_STOPS),
    "imu_slow": Fault(at_s=0.0, kind=FaultKind.IMU_SLOW, value=[20.0]),
    "imu_time_jumps": Fault(at_s=0.0, kind=FaultKind.IMU_TIME_JUMPS, value=[0.7]),
    "imu_swapped, x and y": Fault(at_s=0.0, kind=FaultKind.IMU_SWAPPED, value=[1.0, 2.0]),
    "imu_swapped, x and z": Fault(at_s=0.0, kind=FaultKind.IMU_SWAPPED, value=[1.0, 3.0]),
    "imu_inverted": Fault(at_s=0.0, kind=FaultKind.IMU_INVERTED),
    "imu_frozen, x": Fault(at_s=0.0, kind=FaultKind.IMU_FROZEN, value=[1.0]),
    "imu_frozen, z": Fault(at_s=0.0, kind=FaultKind.IMU_FROZEN, value=[3.0]),
}


class ImuFlight(NamedTuple):
    """What came of a flight."""

    phase: Phase
    reason: str
    rms_m: float  # of the distance from the point that is to be held, in HELD_S of hold
    largest_m: float
    events: tuple[str, ...]  # monitors of the safety table that were active
    rejected: dict[str, int]  # of the estimator at the end
    notes: tuple[str, ...]  # of the estimator, in their order
    resets: int
    texts: tuple[str, ...]  # to the ground station


def in_hold(fault: Fault | None) -> ImuFlight:
    """Hold with a fault that begins there; None: none."""
    return in_fork(lambda: _hold(beginning("hold"), fault))


def _hold(lockstep: Lockstep, fault: Fault | None) -> ImuFlight:
    begin_s = lockstep.now_s
    if fault is not None:
        lockstep.faults.add(msgspec.structs.replace(fault, at_s=begin_s))
    lockstep.run_until(lambda: lockstep.now_s >= begin_s + HELD_S)
    return _outcome(lockstep, begin_s)


def from_start(fault: Fault | None, without_imu: bool = False) -> ImuFlight:
    """Take off, if the preflight permits it, and hold; without_imu: the stream is not requested at all."""
    return in_fork(lambda: _from_start(loaded_for("hold"), fault, without_imu))


def _from_start(loaded: LoadedScenario, fault: Fault | None, without_imu: bool) -> ImuFlight:
    if fault is not None:
        loaded = msgspec.structs.replace(loaded, scenario=msgspec.structs.replace(loaded.scenario, fault=[fault]))
    if without_imu:
        fcu = msgspec.structs.replace(loaded.vehicle.fcu, imu_rate_hz=0.0)
        loaded = msgspec.structs.replace(loaded, vehicle=msgspec.structs.replace(loaded.vehicle, fcu=fcu))
    lockstep = Lockstep(loaded, SEED)
    lockstep.start()

    def settled() -> bool:
        pilot = lockstep.pilot
        if pilot is None or lockstep.now_s < START_S:
            return False
        return (
            pilot.phase == Phase.WAIT_READY
            or pilot.finished
            or (pilot.phase == Phase.HOLD and pilot.phase_time_s > SETTLED_S)
        )

    lockstep.run_until(lambda: settled() or lockstep.now_s > 120.0)
    if lockstep.pilot is not None and lockstep.pilot.phase == Phase.HOLD:
        return _hold(lockstep, None)
    return _outcome(lockstep, 0.0)


def _outcome(lockstep: Lockstep, begin_s: float) -> ImuFlight:
    bundle, plan = lockstep.loaded.scenario.scene.bundles[0], lockstep.loaded.plan
    point = np.array(bundle.p_W) - (plan.standoff.offset_M[2], 0.0, 0.0)
    away_m = [np.linalg.norm(np.array(m.p_W) - point) for m in lockstep.messages["truth"] if m.stamp_s > begin_s]
    statuses = lockstep.messages["estimator"]
    last = lockstep.pilot
    return ImuFlight(
        phase=last.phase,
        reason=last.reason,
        rms_m=float(np.sqrt(np.mean(np.square(away_m)))),
        largest_m=float(max(away_m)),
        events=tuple(dict.fromkeys(event.monitor for event in lockstep.messages["safety"] if event.active)),
        rejected={name: count for name, count in statuses[-1].rejected.items() if count and name.startswith("imu_")},
        notes=tuple(dict.fromkeys(status.note for status in statuses if status.note)),
        resets=lockstep.messages["state"][-1].reset_count,
        texts=tuple(m.text for m in lockstep.messages["fcu_command"] if m.action == "text"),
    )


def main() -> None:
    print("| fault | ends in | hold, RMS, cm | largest, cm | monitors | counted |\n|" + "---|" * 6, flush=True)

    def show(name: str, flight: ImuFlight) -> None:
        held = (
            (f"{100 * flight.rms_m:.1f}", f"{100 * flight.largest_m:.1f}") if flight.phase == Phase.HOLD else ("–", "–")
        )
        counted = ", ".join(f"{key} {count}" for key, count in flight.rejected.items())
        cells = (name, flight.phase, *held, ", ".join(flight.events), counted)
        print("| " + " | ".join(cells) + " |", flush=True)
        print(flight.reason, flight.notes, flight.resets, file=sys.stderr)

    show("none", in_hold(None))
    for name, fault in FAULTS.items():
        show(f"{name}, in the hold", in_hold(fault))
    show("no stream at all", from_start(None, without_imu=True))
    for name, fault in FAULTS.items():
        show(f"{name}, from the start", from_start(fault))


if __name__ == "__main__":
    main()
