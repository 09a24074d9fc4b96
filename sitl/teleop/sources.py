"""Sources of sticks: a CSV file and a simulated pilot; the numbers of MANUAL_CONTROL."""

import csv
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from companion.core.arrays import Array
from companion.core.errors import UserError
from companion.remote.flight_modes import FlightMode, turned_sticks
from sitl.teleop.sticks import CENTRED, Sticks, Vehicle

COLUMNS = ("t_s", "ahead", "right", "climb", "yaw")
ROWS_MAX = 2_000_000  # eleven hours at 50 Hz


class StickFile:
    """Sticks from a CSV file with the columns t_s, ahead, right, climb, yaw and, optional, mode; each row is held until the next."""

    def __init__(self, path: Path, mode: FlightMode = FlightMode.BODY) -> None:
        """mode: where the file has no column for it. Raises `UserError` with file and row."""
        self._times, self._sticks = _read(path, mode)
        self.end_s = self._times[-1]
        self.modes = {sticks.mode for sticks in self._sticks}

    def sticks(self, now_s: float) -> Sticks | None:
        """The row that holds at this time; the centre before the first."""
        at = bisect_right(self._times, now_s) - 1
        return CENTRED if at < 0 else self._sticks[at]


def _read(path: Path, mode: FlightMode) -> tuple[list[float], list[Sticks]]:
    times: list[float] = []
    sticks: list[Sticks] = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            if missing := [name for name in COLUMNS if name not in (rows.fieldnames or ())]:
                raise UserError(f"{path}: no column {missing[0]}; needed: {', '.join(COLUMNS)}")
            for number, row in enumerate(rows, start=2):
                if number > ROWS_MAX:
                    raise UserError(f"{path}: more than {ROWS_MAX} rows")
                t_s, ahead, right, climb, yaw = (_number(path, number, name, row[name]) for name in COLUMNS)
                if times and t_s <= times[-1]:
                    raise UserError(f"{path}: row {number}: t_s = {t_s:g} is not after the row before")
                for name, value in zip(COLUMNS[1:], (ahead, right, climb, yaw), strict=True):
                    if abs(value) > 1.0:
                        raise UserError(f"{path}: row {number}: {name} = {value:g} (allowed: -1 to 1)")
                times.append(t_s)
                sticks.append(Sticks(ahead, right, climb, yaw, _mode(path, number, row.get("mode"), mode)))
    except UnicodeDecodeError:
        raise UserError(f"{path}: not a text file") from None
    except csv.Error as error:
        raise UserError(f"{path}: not a CSV file: {error}") from None
    if not times:
        raise UserError(f"{path}: no rows")
    return times, sticks


def _number(path: Path, row: int, name: str, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{path}: row {row}: {name} = {text!r} is not a number")
    return value


def _mode(path: Path, row: int, text: str | None, otherwise: FlightMode) -> FlightMode:
    if not text:
        return otherwise
    try:
        return FlightMode(text)
    except ValueError:
        raise UserError(f"{path}: row {row}: mode = {text!r} (allowed: {', '.join(FlightMode)})") from None


class SimulatedPilot:
    """A person at the sticks: flies from point to point by what was seen a reaction time ago, with an unsteady hand.

    points_W: in order; the next one follows when the aircraft is near and slow. The last one is held; landing: then the stick goes
    down. Chosen as moderate training flying, not fitted to a person.
    """

    reaction_s = 0.2
    # Stick per metre away and per m/s: a person gets used to an aircraft. The tello leans slowly in thick air.
    feel: ClassVar[dict[str, tuple[float, float]]] = {"tello": (0.45, 0.40), "paper4": (0.12, 0.17)}
    climb_per_m = 0.8
    trim_per_m_s, trim_max, trim_near_m = 0.04, 0.4, 1.0  # against wind, learnt near a point
    stick_max = 0.6
    unsteady = 0.03  # standard deviation of each stick
    near_m, slow_m_s = 0.25, 0.35
    sample_s = 0.04  # 25 Hz
    turn = 0.15  # amplitude of the yaw stick while the aircraft is on its way

    def __init__(
        self,
        vehicle: Vehicle,
        points_W: Sequence[Array],
        landing: bool,
        seed: int,
        mode: FlightMode = FlightMode.BODY,
        trims: bool = False,
    ) -> None:
        """trims: leans against a steady wind; in still air that only makes the slow `tello` swing."""
        self._vehicle, self._points, self._landing, self._mode = vehicle, list(points_W), landing, mode
        self._rng = np.random.default_rng(seed)
        self._seen: deque[tuple[float, Array, Array, float]] = deque()
        self._next_s, self._held, self._down = -math.inf, Sticks(mode=mode), False
        self._trims, self._trim = trims, np.zeros(2)

    def sticks(self, now_s: float) -> Sticks | None:
        """The sticks at a time; call with increasing times while the vehicle flies."""
        if now_s < self._next_s:
            return self._held
        self._next_s = now_s + self.sample_s
        pose = self._vehicle.pose()
        self._seen.append((now_s, pose.p_W, pose.v_W, pose.yaw_rad))
        while len(self._seen) > 1 and self._seen[1][0] <= now_s - self.reaction_s:
            self._seen.popleft()
        _, p_W, v_W, yaw_rad = self._seen[0]
        self._held = self._decide(now_s, p_W, v_W, yaw_rad)
        return self._held

    def _decide(self, now_s: float, p_W: Array, v_W: Array, yaw_rad: float) -> Sticks:
        away = self._points[0] - p_W
        if float(np.linalg.norm(away)) < self.near_m and float(np.linalg.norm(v_W)) < self.slow_m_s:
            if len(self._points) > 1:
                self._points.pop(0)
                away = self._points[0] - p_W
            else:
                self._down = self._landing
        if self._trims and float(np.linalg.norm(away)) < self.trim_near_m and not self._down:
            learnt = self._trim + self.trim_per_m_s * self.sample_s * away[:2]
            self._trim = np.clip(learnt, -self.trim_max, self.trim_max)
        per_m, per_m_s = self.feel[self._vehicle.name]
        wanted = np.clip(per_m * away[:2], -self.stick_max, self.stick_max) - per_m_s * v_W[:2] + self._trim
        wanted = np.clip(wanted, -self.stick_max, self.stick_max)
        ahead, right = float(wanted[0]), -float(wanted[1])  # in the world, x ahead, y left
        if self._mode is FlightMode.BODY:
            ahead, right = turned_sticks(ahead, right, yaw_rad)
        climb = -0.3 if self._down else float(np.clip(self.climb_per_m * away[2], -0.5, 0.5))
        yaw = self.turn * math.sin(0.7 * now_s) if not self._down else 0.0
        d_ahead, d_right, d_climb, d_yaw = (self.unsteady * self._rng.standard_normal(4)).tolist()
        return Sticks(ahead + d_ahead, right + d_right, climb + d_climb, yaw + d_yaw, self._mode).within_range()


def from_manual_control(x: int, y: int, z: int, r: int, mode: FlightMode = FlightMode.BODY) -> Sticks | None:
    """Sticks of a MANUAL_CONTROL: x, y, r in ±1000, z in 0…1000 with 500 the centre; None when one is out of range.

    r is positive to the right (clockwise), as PX4 reads it.
    """
    if not (all(abs(value) <= 1000 for value in (x, y, r)) and 0 <= z <= 1000):
        return None
    return Sticks(x / 1000.0, y / 1000.0, z / 500.0 - 1.0, r / 1000.0, mode)
