"""Markers that are not what the marker file says: moved, displaced, copied, resized, mirrored, flickering bundles.

Each attack is a pure function of the markers of one image. Several attacks act one after the other, in the order in
which they began.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from sitl.scenario import Fault, FaultKind
from sitl.scene import SceneMarker

SMALLEST_SCALE = 0.05  # a print that shrinks ends here


class Exposure(NamedTuple):
    """One image under one attack."""

    since_s: float  # the attack began
    number: int  # images since then
    draw: Callable[[], float]  # a random number between 0 and 1


Attack = Callable[[list[SceneMarker], Sequence[float], Exposure], list[SceneMarker]]


def _displaced(marker: SceneMarker, displacement_W: Array) -> SceneMarker:
    return SceneMarker(
        marker.bundle, marker.marker, marker.p_WM + displacement_W, marker.R_WM, marker.scale, marker.mirrored
    )


def _scaled(marker: SceneMarker, factor: float) -> SceneMarker:
    """The marker of a bundle that is printed `factor` times as large, about the origin of the bundle."""
    scale = max(factor * marker.scale, SMALLEST_SCALE)
    return SceneMarker(marker.bundle, marker.marker, marker.p_WM, marker.R_WM, scale, marker.mirrored)


def _moves(markers: list[SceneMarker], value: Sequence[float], exposure: Exposure) -> list[SceneMarker]:
    return [_displaced(m, exposure.since_s * np.array(value)) for m in markers]


def _jumps(markers: list[SceneMarker], value: Sequence[float], exposure: Exposure) -> list[SceneMarker]:
    return [_displaced(m, np.array(value)) for m in markers]


def _copied(markers: list[SceneMarker], value: Sequence[float], exposure: Exposure) -> list[SceneMarker]:
    return markers + _jumps(markers, value, exposure)


def _alternates(markers: list[SceneMarker], value: Sequence[float], exposure: Exposure) -> list[SceneMarker]:
    return _jumps(markers, value, exposure) if exposure.number % 2 else markers


def _resized(markers: list[SceneMarker], value: Sequence[float], exposure: Exposure) -> list[SceneMarker]:
    return [_scaled(m, value[0]) for m in markers]


def _grows(markers: list[SceneMarker], value: Sequence[float], exposure: Exposure) -> list[SceneMarker]:
    return [_scaled(m, 1.0 + value[0] * exposure.since_s) for m in markers]


def _mirrored(markers: list[SceneMarker], value: Sequence[float], exposure: Exposure) -> list[SceneMarker]:
    return [SceneMarker(m.bundle, m.marker, m.p_WM, m.R_WM, m.scale, not m.mirrored) for m in markers]


def _bundle_flickers(markers: list[SceneMarker], value: Sequence[float], exposure: Exposure) -> list[SceneMarker]:
    return [] if exposure.draw() < value[0] else markers


def _markers_flicker(markers: list[SceneMarker], value: Sequence[float], exposure: Exposure) -> list[SceneMarker]:
    return [m for m in markers if exposure.draw() >= value[0]]


MARKER_ATTACKS: dict[FaultKind, Attack] = {
    FaultKind.BUNDLE_MOVES: _moves,
    FaultKind.BUNDLE_JUMPS: _jumps,
    FaultKind.BUNDLE_COPIED: _copied,
    FaultKind.BUNDLE_ALTERNATES: _alternates,
    FaultKind.BUNDLE_RESIZED: _resized,
    FaultKind.BUNDLE_GROWS: _grows,
    FaultKind.BUNDLE_MIRRORED: _mirrored,
    FaultKind.BUNDLE_FLICKERS: _bundle_flickers,
    FaultKind.MARKERS_FLICKER: _markers_flicker,
}


class _Active(NamedTuple):
    fault: Fault
    begin_s: float
    first: int  # number of the first image under it


class MarkerAttacks:
    """The attacks of this moment on the printed markers of a scene; the same seed gives the same images."""

    def __init__(self, printed: Sequence[SceneMarker], seed: int) -> None:
        self._printed = printed
        self._rng = np.random.default_rng(np.random.SeedSequence((seed, 1)))
        self._active: list[_Active] = []
        self._images = 0
        self._restore = False

    def begin(self, fault: Fault, now_s: float) -> None:
        self._active.append(_Active(fault, now_s, self._images))

    def end(self, fault: Fault) -> None:
        self._active = [active for active in self._active if active.fault is not fault]
        self._restore = True

    def exposed(self, now_s: float) -> Sequence[SceneMarker] | None:
        """The markers of an image that is exposed now; None: nothing has changed since the last image."""
        self._images += 1
        if not self._active:
            restored, self._restore = self._restore, False
            return self._printed if restored else None
        markers = list(self._printed)
        for fault, begin_s, first in self._active:
            exposure = Exposure(now_s - begin_s, self._images - first, self._rng.random)
            chosen = [m for m in markers if fault.name in ("", m.bundle)]
            others = [m for m in markers if fault.name not in ("", m.bundle)]
            markers = others + MARKER_ATTACKS[fault.kind](chosen, fault.value, exposure)
        return markers
