"""A pilot who flies by sight with the sticks, in Altitude or Position mode: take-off, hand-over by the mission switch, take-over.

The pilot may take the aircraft back by plan, and hand it over again (`TakeBack`). The pilot sees the aircraft late and not exactly and moves the sticks like a slow controller of the position. The sticks move slowly
while the mission takes over, then go back to their centres more slowly still: a stick that moves fast takes over from
offboard (COM_RC_OVERRIDE). When PX4 gives the sticks the aircraft again, the pilot stops it where it is and lands.
"""

import math
from collections import deque
from enum import Enum, auto
from typing import Annotated, Literal, NamedTuple, Protocol

import numpy as np

from companion.core.arrays import Vector
from companion.core.config import Section, number
from companion.core.enums import FcuMode
from companion.core.frames import rpy_from_quat, wrap_angle
from companion.core.trajectory_messages import Vec3
from companion.mission.modes import MANUAL_MODES
from companion.mission.plan import RcSwitch
from sitl.autopilot.modes import CommanderMode

PERIOD_S = 0.05
SIGHT_DELAY_S = 0.25
SIGHT_STD_M, SIGHT_TIME_S = 0.1, 1.0  # error of the position by sight, correlated
ARM_S = 1.5  # PX4 arms after a second
KP, KD, KI = 0.10, 0.22, 0.03  # stick per metre, per metre per second, per metre second
STICK_MAX = 0.5
CLIMB_MAX, CLIMB_PER_M = 0.55, 0.5
TURN_PER_RAD = 0.6
POSITION_KP, POSITION_STICK, DEAD_STICK, CENTRED_M = 0.04, 0.3, 0.08, 0.5  # in Position mode; 0.1 is a metre per second
GRAB = -0.4  # backwards, away from what the nose looks at
REFUSED_S = 10.0  # without offboard after the switch was turned on
NEAR_M, SLOW_M_S, STEADY_S = 1.0, 0.6, 1.0  # before the hand-over
SLOWLY_1_S = 0.15  # a quarter of a movement that takes over
RELAX_1_S = 0.05  # the sticks go back to their centres so slowly that PX4 sees no movement
DESCENT, ON_GROUND_M = -0.7, 0.35  # stick; height of a standing aircraft's centre and of the error by sight
CENTRE_US, RANGE_US = 1500, 500


class TakeBack(Section, frozen=True, kw_only=True):
    """The pilot takes the aircraft back from the mission, once."""

    after_s: Annotated[float, number(0, 3600, "s after PX4 went to offboard")]
    by: Literal["sticks", "switch"] = "sticks"  # moves a stick; or turns the mission switch off
    again_s: Annotated[float, number(1, 600, "s until the next hand-over")] | None = None  # None: the pilot lands


class PilotConfig(Section, frozen=True):
    """When and to where the pilot flies, in the true world."""

    takes_off_s: Annotated[float, number(0, 600, "s")]
    goal_W: tuple[
        Annotated[float, number(-1e3, 1e3, "m")],
        Annotated[float, number(-1e3, 1e3, "m")],
        Annotated[float, number(0.5, 1e3, "m")],
    ]
    yaw_rad: Annotated[float, number(-3.15, 3.15, "rad")]
    reaction_s: Annotated[float, number(0.2, 60, "s until the pilot flies after PX4 has given the sticks the aircraft")]
    mode: Literal["ALTCTL", "POSCTL"] = "ALTCTL"  # of the mode switch
    take_back: list[TakeBack] = []  # in order, one after each hand-over


class Stage(Enum):
    """What the pilot does."""

    WAIT = auto()
    ARM = auto()
    FLY = auto()  # to the goal
    HAND_OVER = auto()  # the switch is on; the sticks move slowly
    WATCH = auto()  # the mission flies
    GRAB = auto()  # takes the aircraft back, by plan
    HOLD = auto()  # flies at the place where that was
    TAKE_OVER = auto()  # the sticks move the aircraft again
    LAND = auto()


class Sight(NamedTuple):
    """The aircraft as the pilot sees it."""

    stamp_s: float
    p_W: Vec3
    v_W: Vec3
    yaw_rad: float


class Receiver(Protocol):
    """The RC of the flight controller."""

    @property
    def rc_us(self) -> list[int] | None: ...

    @property
    def rc_neutral_us(self) -> tuple[int, ...]: ...

    @property
    def rc_mode_channel(self) -> int: ...

    @property
    def rc_mode_positions_us(self) -> dict[FcuMode | CommanderMode, int]: ...

    def set_rc(self, channels_us: list[int] | None) -> None: ...


class ScriptedPilot:
    """Moves the channels of a receiver; `step` every `PERIOD_S`.

    switch: of the mission, or None for a flight without a hand-over.
    """

    def __init__(self, config: PilotConfig, switch: RcSwitch | None, receiver: Receiver, seed: int) -> None:
        self._config, self._switch, self._receiver = config, switch, receiver
        self._random = np.random.default_rng(seed)
        self._error = np.zeros(3)
        self._seen: deque[Sight] = deque()
        self.stage = Stage.WAIT
        self._since_s = 0.0
        self._steady_s: float | None = None
        self._goal: Vector = config.goal_W
        self._trim = [0.0, 0.0]  # right, forward: against the wind, world axes east and north
        self._sticks = [0.0, 0.0, 0.0, 0.0]  # right, forward, up, right turn
        self._on = False
        self._take_backs = list(config.take_back)
        self._again_s: float | None = None
        self._by_sticks = False
        self._yaw_rad = config.yaw_rad

    def step(
        self, now_s: float, p_W: Vector, v_W: Vector, q_WB: Vector, mode: FcuMode | CommanderMode, armed: bool
    ) -> None:
        """Look and move the sticks; the mode and `armed` are what the ground station shows."""
        sight = self._look(now_s, p_W, v_W, q_WB)
        self._change_stage(now_s, sight, mode, armed)
        self._move(now_s, sight)
        self._send()

    def take_over(self, now_s: float) -> None:
        """The pilot moves the sticks while the mission flies, and lands."""
        self._goal = self._seen[-1].p_W
        self._enter(Stage.LAND, now_s)

    def take_back(self, how: TakeBack, now_s: float) -> None:
        """The pilot takes the aircraft back while the mission flies."""
        self._again_s, self._by_sticks = how.again_s, how.by == "sticks"
        if not self._by_sticks:
            self._on = False
        self._enter(Stage.GRAB, now_s)

    def turn_switch_off(self) -> None:
        """The pilot turns the mission switch off, the sticks still in their centres."""
        self._on = False

    def _look(self, now_s: float, p_W: Vector, v_W: Vector, q_WB: Vector) -> Sight:
        decay = math.exp(-PERIOD_S / SIGHT_TIME_S)
        self._error = decay * self._error + math.sqrt(1 - decay**2) * SIGHT_STD_M * self._random.standard_normal(3)
        x, y, z = (float(p) + float(e) for p, e in zip(p_W, self._error, strict=True))
        vx, vy, vz = map(float, v_W)
        self._seen.append(Sight(now_s, (x, y, z), (vx, vy, vz), rpy_from_quat(q_WB)[2]))
        while len(self._seen) > 1 and self._seen[1].stamp_s <= now_s - SIGHT_DELAY_S:
            self._seen.popleft()
        return self._seen[0]

    def _enter(self, stage: Stage, now_s: float) -> None:
        self.stage, self._since_s, self._steady_s = stage, now_s, None

    def _change_stage(self, now_s: float, sight: Sight, mode: FcuMode | CommanderMode, armed: bool) -> None:
        in_stage_s = now_s - self._since_s
        if self.stage is Stage.WAIT and now_s >= self._config.takes_off_s:
            self._enter(Stage.ARM, now_s)
        elif self.stage is Stage.ARM and in_stage_s >= ARM_S:
            self._enter(Stage.FLY, now_s)
        elif self.stage is Stage.FLY and self._switch is not None and self._steady(now_s, sight):
            self._on = True
            self._enter(Stage.HAND_OVER, now_s)
        elif self.stage is Stage.HAND_OVER and in_stage_s > REFUSED_S and mode in MANUAL_MODES:
            self._on = False  # the mission refused; the next movement of the switch is the next request
            self._enter(Stage.FLY, now_s)
        elif self.stage is Stage.WATCH and self._take_backs and in_stage_s >= self._take_backs[0].after_s and armed:
            self.take_back(self._take_backs.pop(0), now_s)
        elif self.stage is Stage.GRAB and mode in MANUAL_MODES:
            self._goal, self._on = sight.p_W, False
            self._yaw_rad = sight.yaw_rad
            self._enter(Stage.LAND if self._again_s is None else Stage.HOLD, now_s)
        elif self.stage is Stage.HOLD and self._again_s is not None and in_stage_s >= self._again_s:
            self._enter(Stage.FLY, now_s)
        elif self.stage is Stage.HAND_OVER and mode == FcuMode.OFFBOARD:
            self._enter(Stage.WATCH, now_s)
        elif self.stage in (Stage.WATCH, Stage.HAND_OVER) and mode in MANUAL_MODES and armed:
            if self.stage is Stage.WATCH:
                self._enter(Stage.TAKE_OVER, now_s)
        elif self.stage is Stage.TAKE_OVER and in_stage_s >= self._config.reaction_s:
            self._goal = sight.p_W
            self._enter(Stage.LAND, now_s)

    def _steady(self, now_s: float, sight: Sight) -> bool:
        away_m = math.dist(sight.p_W, self._goal)
        turned = abs(wrap_angle(self._yaw_rad - sight.yaw_rad))
        if away_m > NEAR_M or math.hypot(*sight.v_W) > SLOW_M_S or turned > 0.2:
            self._steady_s = None
        elif self._steady_s is None:
            self._steady_s = now_s
        return self._steady_s is not None and now_s - self._steady_s >= STEADY_S

    def _move(self, now_s: float, sight: Sight) -> None:
        sticks = self._sticks
        if self.stage is Stage.ARM:
            sticks[:] = [0.0, 0.0, -1.0, 1.0]
        elif self.stage in (Stage.FLY, Stage.HOLD, Stage.LAND):
            self._fly(sight)
        elif self.stage is Stage.GRAB:
            if self._by_sticks:
                sticks[1] = GRAB
        elif self.stage is Stage.HAND_OVER:
            before, step = list(sticks), SLOWLY_1_S * PERIOD_S
            self._fly(sight)
            sticks[:] = [min(max(new, old - step), old + step) for new, old in zip(sticks, before, strict=True)]
        elif self.stage in (Stage.WATCH, Stage.WAIT):
            step = RELAX_1_S * PERIOD_S
            sticks[:] = [math.copysign(max(0.0, abs(s) - step), s) for s in sticks]

    def _fly(self, sight: Sight) -> None:
        sticks = self._sticks
        push = [0.0, 0.0]
        for i in range(2) if self._config.mode == FcuMode.ALTCTL else ():
            error = self._goal[i] - sight.p_W[i]
            speed = min(max(KP * error, -0.25), 0.25)
            self._trim[i] = min(max(self._trim[i] + KI * min(max(error, -1.0), 1.0) * PERIOD_S, -0.4), 0.4)
            push[i] = speed - KD * sight.v_W[i] + self._trim[i]
        if self._config.mode == FcuMode.POSCTL:
            push = self._towards_goal(sight)
        right, forward = _turned(push, sight.yaw_rad)
        sticks[0] = min(max(right, -STICK_MAX), STICK_MAX)
        sticks[1] = min(max(forward, -STICK_MAX), STICK_MAX)
        climb = CLIMB_PER_M * (self._goal[2] - sight.p_W[2])
        sticks[2] = min(max(climb, -CLIMB_MAX), CLIMB_MAX)
        if self.stage is Stage.LAND:
            sticks[2] = DESCENT if sight.p_W[2] > ON_GROUND_M else -1.0
        turn = 0.0 if self.stage is Stage.LAND else wrap_angle(self._yaw_rad - sight.yaw_rad)
        sticks[3] = min(max(-TURN_PER_RAD * turn, -0.4), 0.4)

    def _towards_goal(self, sight: Sight) -> list[float]:
        """Sticks east and north in Position mode, in which they are velocities: centred near the goal, where PX4 holds."""
        away = [goal - p for goal, p in zip(self._goal[:2], sight.p_W[:2], strict=True)]
        distance_m = math.hypot(*away)
        if distance_m < CENTRED_M:
            return [0.0, 0.0]
        stick = min(DEAD_STICK + POSITION_KP * distance_m, POSITION_STICK)
        return [stick * part / distance_m for part in away]

    def _send(self) -> None:
        receiver = self._receiver
        if receiver.rc_us is None:  # RC is lost
            return
        channels = list(receiver.rc_us)
        for index, stick in enumerate(self._sticks):
            channels[index] = round(CENTRE_US + RANGE_US * stick)
        channels[receiver.rc_mode_channel - 1] = receiver.rc_mode_positions_us[FcuMode(self._config.mode)]
        if self._switch is not None:
            low, high = self._switch.on_us if self._on else self._switch.off_us
            channels[self._switch.channel - 1] = (low + high) // 2
        receiver.set_rc(channels)


def _turned(push: list[float], yaw_rad: float) -> tuple[float, float]:
    """(right, forward) of a push east and north."""
    c, s = math.cos(yaw_rad), math.sin(yaw_rad)
    forward, left = c * push[0] + s * push[1], c * push[1] - s * push[0]
    return -left, forward
