"""Where a flight took off, from its log: what items in the world count from, and what the receiver measured there."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from companion.core.enums import Phase
from companion.core.messages import FcuStatus, MissionStatus, State
from companion.core.trajectory_messages import Vec3
from companion.recording import series as sr


class TakeOff(NamedTuple):
    """The take-off point of a flight as its mission notes it; None: the log does not say it."""

    p_W: Array | None  # (3,) in the estimator's world [m]
    noted_s: float  # NaN: unknown
    received: Vec3 | None  # latitude, longitude [°], altitude [m] of the same point by the satellite receiver


def take_off_of(messages: sr.Messages, satellites: bool) -> TakeOff:
    """Of a flight: the last valid state before arming, and the receiver's last position before it.

    Without satellites the horizontal place of both is where the mission takes the aircraft. A log that begins in the air
    says neither: the place where it begins is not where the aircraft took off.
    """
    armed_s = _armed_s(messages)
    if armed_s is None:
        return TakeOff(None, math.nan, None)
    states = [state for state in sr.of(messages, State) if state.valid]
    fixes = [status for status in sr.of(messages, FcuStatus) if _is_fix(status.gnss_position)]
    ground, fix = _last_before(states, armed_s), _last_before(fixes, armed_s)
    here, here_fix = ground, fix
    if not satellites and (handed_over_s := _handed_over_s(messages)) is not None:
        here, here_fix = _last_before(states, handed_over_s), _last_before(fixes, handed_over_s)
    received = None
    if fix is not None and here_fix is not None:
        assert fix.gnss_position is not None and here_fix.gnss_position is not None
        received = (*here_fix.gnss_position[:2], fix.gnss_position[2])
    if ground is None or here is None:
        return TakeOff(None, math.nan, received)
    return TakeOff(np.array((*here.p_W[:2], ground.p_W[2])), here.stamp_s, received)


def _armed_s(messages: sr.Messages) -> float | None:
    """When the aircraft was armed after it had been seen disarmed [s]; inf: never; None: it was not seen disarmed before.

    A process of the link that was started again reports "disarmed" until it hears the flight controller, which does not count.
    """
    known = [status for status in sr.of(messages, FcuStatus) if status.connected]
    if not known or known[0].armed:
        return None
    return next((status.stamp_s for status in known if status.armed), math.inf)


def _handed_over_s(messages: sr.Messages) -> float | None:
    """When the mission first took the aircraft [s]; None: never."""
    statuses = sr.of(messages, MissionStatus)
    return next((status.stamp_s for status in statuses if status.phase == Phase.ENTER_OFFBOARD), None)


def _is_fix(position: Vec3 | None) -> bool:
    return position is not None and all(map(math.isfinite, position))


def _last_before(messages: Sequence[sr.M], time_s: float) -> sr.M | None:
    return next((message for message in reversed(messages) if message.stamp_s < time_s), None)
