"""The battery modules of one aircraft, by the id of their BATTERY_STATUS: voltage, charge and cells for the others to judge.

The module with id 0, or SYS_STATUS where none reports, is the first. It counts as it is reported, so that its faults have
the same consequences with and without other modules: not measured, or out of a battery's range.

The others, ids 1 to 3, can only make the result lower, for the safety table: the lowest voltage, the lowest charge, and
the cells of the pack whose weakest cell lies farthest below its own mean. Two packs behind diodes stand at different
voltages, so their cells are not mixed. PX4's failsafes watch each pack likewise.

The thrust model keeps the first module alone, because it was identified with it. Packs in parallel have one voltage.
Where diodes separate them, the rotors have about the highest: with the lowest, the model would give a healthy aircraft
more thrust the lower one pack gets, in the same minutes in which the safety table makes it land.

What another module reports counts only with a voltage that this aircraft's battery can have: a broken one, and the pack
of an avionics or payload bus, are left out (`left_out`). An id that appears in flight is no pack of this aircraft, and
one that falls silent is forgotten soon: forged frames of an id that no module corrects would otherwise last.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from pymavlink.dialects.v20 import common

from companion.fcu.guards.plausible import TABLE, Quantity
from companion.fcu.link.decoded import BatteryStatus

FIRST_AGE_S = TABLE[Quantity.VOLTAGE].age_s
OTHER_AGE_S = 3.0  # six periods of the requested stream
IDS = range(4)  # PX4 has three at most
CELL_UNKNOWN_MV = 65535
CELL_MAX_MV = 5000  # no lithium cell has more
NOT_FOR_FLIGHT = (common.MAV_BATTERY_FUNCTION_AVIONICS, common.MAV_BATTERY_FUNCTION_PAYLOAD)


class Pack(NamedTuple):
    """The newest status of one module. Voltage [V] and charge (0..1): NaN, not measured; cells [V]: empty, not measured."""

    voltage_v: float = math.nan
    remaining: float = math.nan
    cells_v: tuple[float, ...] = ()
    arrival_s: float = -math.inf


def _of_message(m: BatteryStatus, now_s: float) -> Pack:
    cells = [v for v in m.voltages if v != CELL_UNKNOWN_MV]
    cells += [v for v in m.voltages_ext if v not in (0, CELL_UNKNOWN_MV)]
    # A monitor that does not measure cells reports the whole voltage in the place of the first.
    measured = len(cells) > 1 and max(cells) < CELL_MAX_MV
    cells_v = tuple(v / 1000 for v in cells) if measured else ()
    return Pack(sum(cells) / 1000 if cells else math.nan, charge(m.battery_remaining), cells_v, now_s)


def charge(percent: int) -> float:
    """Of a percentage of BATTERY_STATUS or SYS_STATUS: 0..1, NaN when it is not known."""
    return percent / 100 if 0 <= percent <= 100 else math.nan


def _below_mean_v(cells_v: tuple[float, ...]) -> float:
    return sum(cells_v) / len(cells_v) - min(cells_v)


class Batteries:
    """Collects the modules; the results are as of the time that is asked."""

    def __init__(self, plausible: Callable[[float], bool] | None = None) -> None:
        """plausible: whether the battery of this aircraft can have a voltage [V]; None: any, as for a display."""
        self._plausible = plausible if plausible is not None else lambda voltage_v: True
        self.first = Pack()
        self._first_s = -math.inf  # of the newest BATTERY_STATUS of the first
        self._others: dict[int, Pack] = {}
        self.left_out = ""  # the newest other module that is left out for its voltage, as text; "": none so far

    def put(self, m: BatteryStatus, armed: bool, now_s: float) -> None:
        """Take a BATTERY_STATUS. armed: ids that were not heard before are not taken any more."""
        if m.id == 0:
            self.first, self._first_s = _of_message(m, now_s), now_s
            return
        if m.id not in IDS or m.battery_function in NOT_FOR_FLIGHT or (armed and m.id not in self._others):
            return
        pack = self._others[m.id] = _of_message(m, now_s)
        if pack.voltage_v > 0 and not self._plausible(pack.voltage_v):
            self.left_out = (
                f"battery module {m.id + 1} reports {pack.voltage_v:.1f} V, which this aircraft's battery cannot have: "
                "it is left out; check the module"
            )

    def put_sys_status(self, voltage_v: float, percent: int, now_s: float) -> None:
        """Take PX4's summary, whose voltage is NaN when it is not measured, unless the first module itself reports."""
        if now_s - self._first_s > FIRST_AGE_S:  # BATTERY_STATUS is more precise while it arrives
            self.first = Pack(voltage_v, charge(percent), (), now_s)

    def lowest(self, now_s: float) -> Pack:
        """Voltage, charge and cells that the safety table judges; an empty `Pack` when the first is silent."""
        if not (first := self._recent_first(now_s)).voltage_v > 0 or not self._plausible(first.voltage_v):
            return first
        packs = [first, *self._counted(now_s)]
        charges = [pack.remaining for pack in packs if not math.isnan(pack.remaining)]
        cells_v = max((pack.cells_v for pack in packs if pack.cells_v), key=_below_mean_v, default=())
        voltage_v = min(pack.voltage_v for pack in packs)
        return Pack(voltage_v, min(charges, default=math.nan), cells_v, first.arrival_s)

    def thrust_voltage_v(self, now_s: float) -> float:
        """The voltage for the thrust model, where it may differ from that of `lowest`; NaN: the same."""
        return self._recent_first(now_s).voltage_v if self._counted(now_s) else math.nan

    def _recent_first(self, now_s: float) -> Pack:
        return self.first if now_s - self.first.arrival_s <= FIRST_AGE_S else Pack()

    def _counted(self, now_s: float) -> list[Pack]:
        recent = [pack for pack in self._others.values() if now_s - pack.arrival_s <= OTHER_AGE_S]
        return [pack for pack in recent if pack.voltage_v > 0 and self._plausible(pack.voltage_v)]
