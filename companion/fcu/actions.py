"""What the mission may ask for: FcuCommand to MAV_CMD, each answered by one FcuCommandAck.

Arming, take-off and offboard begin a flight or take it over; they are refused while something is against it. What ends
one (disarm, hold, land, return) never is.
"""

import math
from collections.abc import Callable

from pymavlink.dialects.v20 import common

from companion.core.messages import FcuCommand, FcuCommandAck, Message
from companion.fcu.commands import Commands
from companion.fcu.modes import MODE_OF_ACTION, RESULT_TEXTS, custom_mode, mode_name
from companion.fcu.status import VehicleStatus

TAKEOFF_HEIGHT_MAX_M = 120.0
SECOND_WORD_S = 0.15  # PX4's commander answers some 10 ms after its receiver, at most one cycle of a slow link later
REASON_AGE_S = 2.0  # a warning of PX4 this young explains its refusal
WORDS_S = 0.3  # by which the words may come after the refusal: PX4 sends acks first in each of its cycles
BEGINNING = ("arm", "takeoff", "offboard")
NAN = math.nan


class Actions:
    """Turns requests into commands and their answers into acks."""

    def __init__(
        self,
        commands: Commands,
        status: VehicleStatus,
        publish: Callable[[Message], None],
        ask_for_heartbeat: Callable[[float], None],
    ) -> None:
        self._commands, self._status = commands, status
        self._publish = publish
        self._ask_for_heartbeat = ask_for_heartbeat
        self._warning = (-math.inf, "")
        self._refused: list[tuple[float, FcuCommand, str, str]] = []  # until when words are waited for
        self.texts_come = False  # PX4 sends texts on this link: it hears a ground station on it
        self.now_s = 0.0  # of what is being handled; answers may come much later than requests

    def note_warning(self, text: str) -> None:
        """PX4 warned of something; it may explain a refusal."""
        self._warning = (self.now_s, text)
        self.step(math.inf)

    def step(self, now_s: float) -> None:
        """Answer the refusals whose words have come, or do not come."""
        due = [entry for entry in self._refused if now_s >= entry[0]]
        self._refused = [entry for entry in self._refused if now_s < entry[0]]
        for _, message, reason, otherwise in due:
            self._publish_refusal(message, reason, otherwise)

    def begin(self, message: FcuCommand, against: str, height_m: float) -> None:
        """Start what is asked for; it is answered now or when the flight controller has.

        against: why no flight may begin, "" when one may; height_m: of the aircraft in the local frame, NaN if unknown.
        """
        action = message.action
        if action in BEGINNING and against:
            self.answer(message, False, against)
        elif action in MODE_OF_ACTION:
            self._change_mode(message)
        elif action in ("arm", "disarm"):
            # the second parameter would force it in the air; it stays 0
            self._arm(message, (1.0 if action == "arm" else 0.0, 0, 0, 0, 0, 0, 0))
        elif action == "takeoff":
            self._takeoff(message, height_m)
        else:
            self.answer(message, False, f"unknown action {action!r}")

    def answer(self, message: FcuCommand, accepted: bool, reason: str, otherwise: str = "") -> None:
        """Answer a request; otherwise: what is said of a refusal that PX4 does not explain."""
        if accepted or reason not in RESULT_TEXTS.values():
            self._publish(FcuCommandAck(stamp_s=self.now_s, id=message.id, accepted=accepted, reason=reason))
        elif self.texts_come and not self._px4s_words():
            self._refused.append((self.now_s + WORDS_S, message, reason, otherwise))
        else:
            self._publish_refusal(message, reason, otherwise)

    def _publish_refusal(self, message: FcuCommand, reason: str, otherwise: str) -> None:
        words = self._px4s_words()
        reason = f"{reason}: {words}" if words else reason + otherwise
        self._publish(FcuCommandAck(stamp_s=self.now_s, id=message.id, accepted=False, reason=reason))

    def _change_mode(self, message: FcuCommand) -> None:
        main, sub = MODE_OF_ACTION[message.action]

        def answer(accepted: bool, reason: str) -> None:
            # The heartbeat with the news may be a second away; until then the estimator would believe in
            # setpoints that the autopilot no longer follows.
            if accepted:
                self._status.mode = mode_name(custom_mode(main, sub))
            self.answer(message, accepted, reason)

        parameters = (float(common.MAV_MODE_FLAG_CUSTOM_MODE_ENABLED), main, sub, 0, 0, 0, 0)
        self._commands.start(common.MAV_CMD_DO_SET_MODE, parameters, answer, self.now_s, SECOND_WORD_S)

    def _arm(self, message: FcuCommand, parameters: tuple) -> None:
        def answer(accepted: bool, reason: str) -> None:
            otherwise = ""
            if accepted:
                self._ask_for_heartbeat(self.now_s)
            elif parameters[0] and (unhealthy := self._status.unhealthy(self.now_s)):
                otherwise = f" (not in order: {unhealthy})"
            self.answer(message, accepted, reason, otherwise)

        self._commands.start(common.MAV_CMD_COMPONENT_ARM_DISARM, parameters, answer, self.now_s)

    def _takeoff(self, message: FcuCommand, height_m: float) -> None:
        """MAV_CMD_NAV_TAKEOFF: PX4 wants the altitude over mean sea level; NaN means here and with this heading."""
        ground_m, climb_m = self._status.standing_altitude_m(height_m), message.height_m
        if not 0.0 < climb_m <= TAKEOFF_HEIGHT_MAX_M:
            self.answer(message, False, f"take-off height {climb_m:g} m is not in 0 to {TAKEOFF_HEIGHT_MAX_M:g} m")
        elif ground_m is None:
            self.answer(message, False, "home position not known yet")
        else:
            parameters = (NAN, 0, 0, NAN, NAN, NAN, ground_m + climb_m)
            command = common.MAV_CMD_NAV_TAKEOFF
            self._commands.start(command, parameters, lambda ok, why: self.answer(message, ok, why), self.now_s)

    def _px4s_words(self) -> str:
        """A warning it sent just now; PX4 1.17 sends texts to links with a ground station alone."""
        warned_s, warning = self._warning
        return warning if self.now_s - warned_s <= REASON_AGE_S else ""
