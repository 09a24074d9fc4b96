"""The witnesses of all bundles: each has its own place, and all have the flight controller's motion in common."""

import numpy as np

from companion.core.arrays import Array, Vector
from companion.core.messages import BundleWitness
from companion.estimation.given_up import HIDDEN_S
from companion.estimation.observations import MarkerId
from companion.estimation.witnesses import Expected, MotionRecord, Observed, PlaceWitness


class BundleWitnesses:
    """A `PlaceWitness` for each bundle; arguments as there."""

    def __init__(self, p_BC: Vector, q_BC: Vector, gnss_walk_m_sqrt_s: float) -> None:
        self._motion = MotionRecord()
        self._common = PlaceWitness(p_BC, q_BC, gnss_walk_m_sqrt_s, self._motion)  # of no bundle
        self._places: dict[str, PlaceWitness] = {}

    def _all(self) -> list[PlaceWitness]:
        return [self._common, *self._places.values()]

    # --- the flight controller

    def set_measured_walk(self, walk_m_sqrt_s: float) -> None:
        """See `PlaceWitness`."""
        for witness in self._all():
            witness.set_measured_walk(walk_m_sqrt_s)

    def add_attitude(self, stamp_s: float, q_WB: Array) -> None:
        self._motion.add_attitude(stamp_s, q_WB)

    def add_inertial(self, begin_s: float, end_s: float, mean: tuple[float, ...] | None) -> None:
        """Mean (ω_B, f_B) [rad/s, m/s²] between two times; None: there is none to be used."""
        q_WB = self._motion.attitude((begin_s + end_s) / 2)
        if mean is None or q_WB is None:
            self._motion.inertial.interrupt()
        else:
            self._motion.inertial.add(begin_s, end_s, np.array(mean[:3]), np.array(mean[3:]), q_WB)

    def add_position(self, stamp_s: float, p_W: Array, v_W: Array) -> None:
        for witness in self._all():
            witness.add_position(stamp_s, p_W, v_W)

    def add_fix(self, stamp_s: float, accuracy_m: float) -> None:
        """See `PlaceWitness`."""
        for witness in self._all():
            witness.add_fix(stamp_s, accuracy_m)

    def add_receiver(self, arrived_s: float, p_W: Array) -> None:
        """The receiver's own position."""
        for witness in self._all():
            witness.add_receiver(arrived_s, p_W)

    def set_taking_off(self, taking_off: bool) -> None:
        """See `MotionRecord.taking_off`."""
        self._motion.taking_off = taking_off

    def set_barometer(self, altitude_m: float) -> None:
        """See `MotionRecord.barometer_m`."""
        self._motion.barometer_m = altitude_m

    def disarmed(self) -> None:
        """On the ground a crew may carry aircraft and bundles."""
        for witness in self._all():
            witness.disarmed()

    def follows_satellites(self, now_s: float) -> bool:
        """Whether GNSS has a fix that the flight controller follows."""
        return self._common.has_fix(now_s)

    # --- bundles

    @property
    def breaks(self) -> int:
        """Interruptions of the positions."""
        return self._motion.breaks

    def attitude(self, stamp_s: float) -> Array | None:
        """Of the flight controller, see `MotionRecord`."""
        return self._motion.attitude(stamp_s)

    def observed(self, stamp_s: float, p_CM: Array, std_m: float) -> Observed | None:
        """A bundle at p_CM [m] in the world of the flight controller; None while its motion is unknown."""
        return self._common.observed(stamp_s, p_CM, std_m=std_m)

    def agrees(
        self,
        name: str,
        stamp_s: float,
        p_CM: Array,
        markers: frozenset[MarkerId],
        std_m: float,
        expected: Expected | None,
    ) -> bool:
        """False for an observation of a bundle that must not be used, see `PlaceWitness`."""
        if name not in self._places:
            self._places[name] = self._common.sibling()
        return self._places[name].agrees(stamp_s, p_CM, markers, std_m, expected)

    def report(self, name: str | None, now_s: float) -> BundleWitness:
        """The evidence about the bundle `name`; while that is out of sight, about the one that is seen best."""
        own = self._places.get(name or "", self._common)
        if now_s - own.seen_s < HIDDEN_S:
            return own.report(now_s)
        in_sight = [witness for witness in self._places.values() if now_s - witness.seen_s < HIDDEN_S]
        return min(in_sight, key=lambda witness: witness.seen_std_m, default=own).report(now_s)
