"""The table of attacks: what an attacker, a broken device or an accident does to a flight, drawn at random.

An attack is a list of faults (`sitl.scenario.Fault`, relative to the moment of the attack) or a change of the
conversation with the flight controller (`tests.attack.conversation`). The numbers of each attack are drawn in every
flight, from ranges that stand here.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from companion.core.enums import ProcessName
from sitl.scenario import Fault, FaultKind
from tests.attack.conversation import Conversation, Corrupted, Forged

PROCESSES = (ProcessName.ESTIMATOR, ProcessName.CONTROLLER, ProcessName.TRACKER, ProcessName.FCU, ProcessName.MISSION)
LASTING_S = 600.0


class Drawn(NamedTuple):
    """One attack of one flight."""

    name: str
    begins_s: float  # after the beginning that the flight continues from
    lasts_s: float
    faults: tuple[Fault, ...] = ()  # `at_s` counts from the beginning of the attack
    conversation: Conversation | None = None
    numbers: str = ""  # what was drawn, for the table of results


class Attack(NamedTuple):
    """A row of the table. draw: (random numbers, duration [s]) → the faults or the conversation, and its numbers."""

    name: str
    draw: Callable[[Generator, float], tuple[tuple[Fault, ...], Conversation | None, str]]
    lasts_s: tuple[float, float] = (0.1, 6.0)  # shortest and longest duration; a third of the attacks last


def _fault(
    kind: FaultKind, lasts_s: float, *value: float, name: str = ""
) -> tuple[tuple[Fault, ...], Conversation | None, str]:
    fault = Fault(at_s=0.0, kind=kind, duration_s=lasts_s, value=[float(v) for v in value], name=name)
    return (fault,), None, name or " ".join(f"{v:.3g}" for v in value)


def _along(rng: Generator, length: float) -> tuple[float, float, float]:
    """A vector of a length in a random direction, mostly horizontal."""
    angle = rng.uniform(-math.pi, math.pi)
    x, y, z = length * math.cos(angle), length * math.sin(angle), 0.3 * length * rng.uniform(-1.0, 1.0)
    return x, y, z


def _put_elsewhere(rng: Generator, lasts_s: float) -> tuple[tuple[Fault, ...], Conversation | None, str]:
    """A bundle that stands elsewhere after a time out of sight, while satellites jump as they do near structures."""
    away = _along(rng, rng.uniform(0.5, 3.0))
    jump = (*(float(v) for v in rng.uniform(-3.0, 3.0, 2)), 0.0)
    hidden_s = float(rng.uniform(0.0, 5.0))
    faults = (
        Fault(at_s=0.0, kind=FaultKind.GNSS_JUMP, duration_s=LASTING_S, value=list(jump)),
        Fault(at_s=float(rng.uniform(0.0, 2.0)), kind=FaultKind.MARKERS_HIDDEN, duration_s=hidden_s),
        Fault(at_s=float(rng.uniform(0.0, 2.0)), kind=FaultKind.BUNDLE_JUMPS, duration_s=lasts_s, value=list(away)),
    )
    return faults, None, f"by {np.round(away, 1)}, hidden {hidden_s:.1f} s, jump {np.round(jump, 1)}"


def _voltages(rng: Generator) -> list[float]:
    return [float(v) for v in rng.choice([65.0, 30.0, 17.0, 11.0, 8.0, 1.0, 0.0], size=int(rng.integers(1, 4)))]


def _one_of(rng: Generator, *choices: float) -> float:
    return float(rng.choice(choices))


ATTACKS: tuple[Attack, ...] = (
    # the bundle
    Attack("bundle hidden", lambda rng, s: _fault(FaultKind.MARKERS_HIDDEN, s)),
    Attack("camera shaken",
        lambda rng, s: _fault(FaultKind.MARKERS_OUTLIERS, s, rng.uniform(0.02, 0.4))),
    Attack("camera frozen", lambda rng, s: _fault(FaultKind.CAMERA_FROZEN, s)),
    Attack("camera slipped",
        lambda rng, s: _fault(FaultKind.CAMERA_SLIPPED, s, *rng.normal(0.0, 0.15, 3))),
    Attack("bundle moves",
        lambda rng, s: _fault(FaultKind.BUNDLE_MOVES, s, *_along(rng, rng.uniform(0.5, 2.0)))),
    Attack("bundle jumps",
        lambda rng, s: _fault(FaultKind.BUNDLE_JUMPS, s, *_along(rng, rng.uniform(0.3, 5.0)))),
    Attack("bundle copied",
        lambda rng, s: _fault(FaultKind.BUNDLE_COPIED, s, *_along(rng, rng.uniform(0.3, 5.0)))),
    Attack("bundle alternates",
        lambda rng, s: _fault(FaultKind.BUNDLE_ALTERNATES, s, *_along(rng, rng.uniform(0.3, 5.0)))),
    Attack("bundle resized", lambda rng, s: _fault(FaultKind.BUNDLE_RESIZED, s, rng.uniform(0.7, 1.4))),
    Attack("bundle mirrored", lambda rng, s: _fault(FaultKind.BUNDLE_MIRRORED, s)),
    Attack("bundle flickers", lambda rng, s: _fault(FaultKind.BUNDLE_FLICKERS, s, rng.uniform(0.2, 0.95))),
    Attack("markers flicker", lambda rng, s: _fault(FaultKind.MARKERS_FLICKER, s, rng.uniform(0.2, 0.95))),
    Attack("bundle put elsewhere while satellites jump", _put_elsewhere),
    # iron and satellites
    Attack("heading disturbed",
        lambda rng, s: _fault(FaultKind.HEADING_DISTURBED, s, rng.uniform(-1.0, 1.0))),
    Attack("satellites lost", lambda rng, s: _fault(FaultKind.GNSS_LOST, s)),
    Attack("satellites refused", lambda rng, s: _fault(FaultKind.GNSS_REFUSED, s)),
    Attack("satellites jump",
        lambda rng, s: _fault(FaultKind.GNSS_JUMP, s, *rng.uniform(-3.0, 3.0, 2), rng.uniform(-0.5, 0.5))),
    # voltages
    Attack("voltage wrong", lambda rng, s: _fault(FaultKind.VOLTAGE_WRONG, s, *_voltages(rng))),
    # the link
    Attack("second companion",
        lambda rng, s: _fault(FaultKind.FOREIGN_SETPOINTS, s, _one_of(rng, 5, 10, 20, 50, 100), rng.uniform(-0.17, 0.17),
            rng.uniform(0.25, 0.45), float(rng.integers(2))), (0.1, 5.0)),
    Attack("second companion takes offboard",
        lambda rng, s: _fault(FaultKind.FOREIGN_OFFBOARD, s, _one_of(rng, 10, 20, 50, 100), rng.uniform(-0.17, 0.17),
            rng.uniform(0.25, 0.45), float(rng.integers(2))), (0.1, 5.0)),
    Attack("frames copied and changed",
        lambda rng, s: _fault(FaultKind.FRAMES_WRONG, s, rng.uniform(-5, 5), rng.uniform(-0.8, 0.8))),
    Attack("link lost", lambda rng, s: _fault(FaultKind.LINK_LOST, s)),
    Attack("clock synchronisation lost", lambda rng, s: _fault(FaultKind.TIMESYNC_LOST, s)),
    Attack("bytes corrupted",
        lambda rng, s: ((), Corrupted(int(rng.integers(2**31)), rng.uniform(0.01, 0.5)), "")),
    Attack("frames forged",
        lambda rng, s: ((), Forged(int(rng.integers(2**31)), rng.uniform(0.5, 8.0)), ""), (0.1, 3.0)),
    # the computer
    Attack("process dies",
        lambda rng, s: _fault(FaultKind.PROCESS_DEAD, s, name=str(rng.choice(PROCESSES)))),
    Attack("processes starved", lambda rng, s: _fault(FaultKind.CPU_STARVED, s, rng.uniform(0.2, 0.95))),
    Attack("control cycles slow",
        lambda rng, s: _fault(FaultKind.CONTROLLER_SLOW, s, rng.uniform(0.005, 0.2))),
    Attack("solver fails", lambda rng, s: _fault(FaultKind.SOLVER_FAILS, s)),
)  # fmt: skip


def draw(
    rng: Generator, attacks: tuple[Attack, ...] = ATTACKS, within_s: float = 4.0, later_s: float = 14.0
) -> list[Drawn]:
    """The attacks of one flight: one, sometimes two or three.

    The first begins within `within_s`; the others within it, too, or as often within `later_s`: what PX4 and the filter know by
    themselves lasts for seconds.
    """
    count = int(rng.choice([1, 2, 3], p=[0.6, 0.3, 0.1]))
    chosen = rng.choice(len(attacks), size=min(count, len(attacks)), replace=False)
    drawn = []
    for n, index in enumerate(chosen):
        attack = attacks[index]
        longest_s = later_s if n and rng.random() < 0.5 else within_s
        low, high = attack.lasts_s
        lasts_s = LASTING_S if high > 5.0 and rng.random() < 1 / 3 else float(rng.uniform(low, high))
        faults, conversation, numbers = attack.draw(rng, lasts_s)
        drawn.append(Drawn(attack.name, float(rng.uniform(0.0, longest_s)), lasts_s, faults, conversation, numbers))
    return drawn
