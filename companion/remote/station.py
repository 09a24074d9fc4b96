"""The remote: who has the sticks, when they are sent, and when they stop. Pure: texts, bytes and the time in and out.

Rules:
* one page at a time has the sticks; another page sees the aircraft and gets a refusal;
* a sample of the sticks is sent when it arrives, at most `RATE_MAX_HZ`, and repeated at `RATE_MIN_HZ` while it is young;
* without a sample for `DEAD_MAN_S` nothing is sent any more, and PX4's rules for lost sticks act (COM_RC_LOSS_T,
  NAV_RCL_ACT). The sticks do not come back by themselves: a person takes them again, centred;
* a sample counts only if the page has just seen the aircraft: it names the newest state that reached the page, and one
  older than `DEAD_MAN_S` makes the sample as old. Samples that waited in a network therefore move nothing;
* likewise a request counts only if the page had seen a state of the last `COMMAND_AGE_S`. Giving the sticks back always counts;
* a request that was not answered is sent again only for the page that made it, while the sticks have not changed hands;
* connections without the token give way to newer ones, so that they keep no pilot out;
* nothing that cannot be decoded, nothing beyond its range and nothing without the token has an effect.
"""

import hmac
import math
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from companion.core.addresses import computer_of
from companion.core.enums import FcuMode
from companion.core.frames import wrap_angle
from companion.core.text import plain
from companion.fcu.commands import Outcome
from companion.remote import protocol
from companion.remote.aircraft import Aircraft
from companion.remote.flight_modes import FlightMode, StickModes
from companion.remote.protocol import (
    PROTOCOL,
    Arm,
    ChooseFrame,
    ChooseMode,
    Command,
    Confirm,
    Hello,
    ProtocolError,
    Release,
    SetAhead,
    StickSample,
    Take,
)
from companion.remote.sticks import MANUAL, RELEASED, ManualControl, Sticks, StickShape, heading_rad, manual_control

DEAD_MAN_S = 0.3
RATE_MIN_HZ, RATE_MAX_HZ = 25.0, 50.0
STEP_S = 0.02  # between two calls of `step`
SOONEST_S = 1.0 / RATE_MAX_HZ - 1e-6  # after the sticks before
LATEST_S = 1.0 / RATE_MIN_HZ - STEP_S / 2  # of the last step before they are due
STATE_PERIOD_S = 0.05
HELLO_S = 5.0  # a connection without a token is closed after this
WRONG_TOKEN_S = 1.0  # the answer to a wrong token waits this long
UNKNOWN_MAX = 20  # connections without the token at one time: one more ends an older one
KNOWN_MAX = 30  # pages with the token
# A request is a decision about the aircraft that the page showed. A state leaves every 0.05 s; with 0.3 s there and back over
# a slow network and a pause of the browser its stamp is half a second old at most. After a second the page itself shows the
# link as lost, and an aircraft at 10 m/s is elsewhere.
COMMAND_AGE_S = 1.0
QUESTION_S = 5.0  # a question to arm is open this long
REPORT_PERIOD_S = 1.0  # between two answers to invalid messages of one page
LOG_MAX = 200
JOYSTICK_MODES_OFF = (0.0, 4.0)  # COM_RC_IN_MODE: RC only, no sticks at all
RC_FIRST = frozenset((5, 7))  # COM_RC_IN_MODE: RC has priority
FIRST_KEPT = frozenset((2, 3))  # likewise: the source that was there first stays
TILT_MAX_DEG = (1.0, 89.0)
SENT_WINDOW_S = 2.0


@dataclass
class _Client:
    """One connection."""

    address: str
    since_s: float
    known: bool = False  # its token was right
    closes_s: float = math.inf  # refused: closed then
    refusal: str = ""
    final: bool = False  # another attempt of this page would be refused, too

    @property
    def computer(self) -> str:
        return computer_of(self.address.rpartition(":")[0])

    reported_s: float = -math.inf
    invalid: int = 0


class _Question(NamedTuple):
    """What one page was asked, and the aircraft's state then: a yes counts for that state alone."""

    number: int
    arm: bool
    until_s: float
    armed: bool | None
    landed: bool | None


@dataclass
class _Holder:
    """The page that has the sticks."""

    client: int
    modes: StickModes
    since_s: float
    sample: Sticks = RELEASED
    sample_s: float = -math.inf
    dead_zone: float = 0.1  # PX4's MAN_DEADZONE
    begun: bool = False  # a first, centred sample came


@dataclass
class Outbox:
    """What leaves since the last `Station.take`."""

    texts: list[tuple[int, str]] = field(default_factory=list)  # client, text
    closed: list[tuple[int, str]] = field(default_factory=list)  # client to close, reason
    log: list[str] = field(default_factory=list)  # lines for the console


class Station:
    """All connections and the one aircraft; call `step` every `STEP_S`."""

    def __init__(self, aircraft: Aircraft, token: str, shape: StickShape | None = None) -> None:
        self.aircraft = aircraft
        self._token = token.encode()
        self._shape = shape or StickShape()
        self._clients: dict[int, _Client] = {}
        self._holder: _Holder | None = None
        self._stopped = ""  # why the sticks stopped last
        self._hands = 0  # counts that the sticks were taken or have stopped
        self._ahead_rad = math.nan
        self._sent: deque[float] = deque()
        self._sent_s = -math.inf
        self._control = ManualControl(0, 0, 500, 0)
        self._questions: dict[int, _Question] = {}  # by the client that was asked
        self._asked = 0
        self._state_s = -math.inf
        self._ground_m = 0.0  # height of the ground in PX4's local frame, when it was last known
        self._out = Outbox()
        self.gamepad: Callable[[float], Sticks | str] | None = None  # at this computer; a text: why it has no sticks
        self.wrong_tokens = 0
        self.foreign = 0  # datagrams of senders on the link that are not the flight controller
        self.foreign_senders: tuple[str, ...] = ()  # addresses of the newest of them

    # --- connections ------------------------------------------------------------------------------------------------

    def open(self, client: int, address: str, now_s: float) -> None:
        """A connection begins."""
        self._clients[client] = _Client(address, now_s)
        unknown = {number: c for number, c in self._clients.items() if not c.known}
        if len(unknown) > UNKNOWN_MAX:
            # of the computer with the most of them: a computer that opens many ends its own
            computers = Counter(c.computer for c in unknown.values())
            computer = max(computers, key=computers.__getitem__)
            self._end(next(number for number, c in unknown.items() if c.computer == computer), now_s)

    def knows(self, client: int) -> bool:
        """Whether a connection has shown the token."""
        return client in self._clients and self._clients[client].known

    def close(self, client: int, now_s: float) -> None:
        """A connection has ended."""
        if self._holds(client):
            self._stop("the page was closed", now_s)
        self._clients.pop(client, None)
        self._questions.pop(client, None)

    def receive(self, client: int, text: str | bytes, now_s: float) -> None:
        """A message of a page."""
        known = self._clients.get(client)
        if known is None or known.closes_s < math.inf:
            return
        try:
            message = protocol.decode(text)
        except ProtocolError as error:
            self._report_invalid(client, known, str(error), now_s)
            return
        if isinstance(message, Hello):
            self._greet(client, known, message, now_s)
        elif not known.known:
            self._refuse(client, "the first message must be hello, with the token", now_s)
        elif isinstance(message, Command) and not 0.0 <= now_s - message.seen_s <= COMMAND_AGE_S:
            self._answer(client, message.request, False, _too_old(now_s - message.seen_s))
        else:
            match message:
                case StickSample():
                    self._take_sample(client, message, now_s)
                case Take():
                    self._give_sticks(client, known, now_s)
                case Release():
                    if self._holds(client):
                        self._stop(plain(message.reason, 80) or "given back", now_s)
                case ChooseMode():
                    self._choose_mode(client, message.mode, now_s)
                case ChooseFrame():
                    self._choose_frame(client, message.frame, now_s)
                case SetAhead():
                    self._set_ahead(client, now_s)
                case Arm():
                    self._ask(client, message.arm, now_s)
                case Confirm():
                    self._confirm(client, message.question, now_s)

    def _greet(self, client: int, known: _Client, hello: Hello, now_s: float) -> None:
        if known.known:  # it has shown the token: what it says of itself now ends neither its place nor its sticks
            self._report_invalid(client, known, "hello is the first message only", now_s)
        elif hello.protocol != PROTOCOL:
            text = f"this page is of protocol {hello.protocol}, the remote of {PROTOCOL}: reload the page"
            self._refuse(client, text, now_s, final=True)
        elif not hmac.compare_digest(hello.token.encode(), self._token):
            self.wrong_tokens += 1
            if self.wrong_tokens == 1 or self.wrong_tokens % 10 == 0:
                self._log(f"wrong token from {known.address} ({self.wrong_tokens} so far)")
            text = "wrong token: open the address that companion remote printed"
            self._refuse(client, text, now_s, WRONG_TOKEN_S, final=True)
        elif sum(c.known for c in self._clients.values()) >= KNOWN_MAX:
            self._refuse(client, f"{KNOWN_MAX} pages are open: close one of them", now_s)
        else:
            known.known = True
            self._tell(client, "welcome", protocol=PROTOCOL, modes=protocol.MODES, gamepad=self.gamepad is not None)

    def _refuse(self, client: int, reason: str, now_s: float, delay_s: float = 0.0, final: bool = False) -> None:
        known = self._clients[client]
        known.refusal, known.final, known.closes_s = reason, final, now_s + delay_s

    def _end(self, client: int, now_s: float) -> None:
        """Tell a refused connection why, and close it."""
        known = self._clients[client]
        reason = known.refusal or "too many connections without the token"
        self._tell(client, "refused", reason=reason, final=known.final)
        self.close(client, now_s)
        self._out.closed.append((client, reason))

    def _report_invalid(self, client: int, known: _Client, reason: str, now_s: float) -> None:
        known.invalid += 1
        if not known.known:
            self._refuse(client, reason, now_s)
        elif now_s - known.reported_s >= REPORT_PERIOD_S:
            known.reported_s = now_s
            self._answer(client, "message", False, f"{reason} ({known.invalid} not used)")

    # --- sticks -----------------------------------------------------------------------------------------------------

    def _holds(self, client: int) -> bool:
        return self._holder is not None and self._holder.client == client

    def _give_sticks(self, client: int, known: _Client, now_s: float) -> None:
        if self._holds(client):
            return
        if self._holder is not None:
            other = self._clients[self._holder.client].address
            text = f"another page has the sticks ({other}, for {now_s - self._holder.since_s:.0f} s)"
            self._answer(client, "take", False, text)
        elif reason := self._no_sticks(now_s):
            self._answer(client, "take", False, reason)
        else:
            low, high = TILT_MAX_DEG
            tilt = math.radians(min(max(self.aircraft.parameters["MPC_MAN_TILT_MAX"], low), high))
            modes = StickModes(tilt)
            modes.set_ahead(self._ahead_rad)
            dead_zone = min(max(self.aircraft.parameters["MAN_DEADZONE"], 0.0), 0.9)
            self._holder = _Holder(client, modes, now_s, sample_s=now_s, dead_zone=dead_zone)
            self._stopped = ""
            self._hands += 1
            self._drop_questions()
            self._log(f"sticks taken by {known.address}")
            self._answer(client, "take", True, "you have the sticks")

    def _no_sticks(self, now_s: float) -> str:
        """Why the aircraft could not be flown by these sticks now, "" when it can."""
        aircraft = self.aircraft
        if aircraft.vehicle.wrong:
            return f"this vehicle cannot be flown: {aircraft.vehicle.wrong}"
        if not aircraft.connected(now_s):
            return "no flight controller on the link"
        if missing := aircraft.missing_parameters:
            return f"waiting for the flight controller's {missing[0]}"
        if (in_mode := aircraft.parameters["COM_RC_IN_MODE"]) in JOYSTICK_MODES_OFF:
            return f"the flight controller takes no joystick: COM_RC_IN_MODE is {in_mode:.0f}"
        at_computer = "" if self.gamepad is None else self.gamepad(now_s)
        return at_computer if isinstance(at_computer, str) else ""

    def _take_sample(self, client: int, message: StickSample, now_s: float) -> None:
        holder = self._holder
        if holder is None or holder.client != client:
            return
        if now_s - message.seen_s > DEAD_MAN_S or message.seen_s > now_s:
            return  # the page sees an old state, or its samples waited on the way
        sticks = message.sticks
        if self.gamepad is not None:
            at_computer = self.gamepad(now_s)
            if isinstance(at_computer, str):
                self._stop(at_computer, now_s)
                return
            sticks = at_computer
        sticks = self._shape.apply(sticks)
        if not holder.begun and not sticks.centred:
            self._stop("centre the sticks, then take them", now_s)
            return
        holder.begun, holder.sample, holder.sample_s = True, sticks, now_s
        if now_s - self._sent_s >= SOONEST_S:
            self._send_sticks(holder, now_s)

    @property
    def sticks_due_s(self) -> float | None:
        """When a sample that came too soon after the one before may be sent; None: none waits."""
        holder = self._holder
        if holder is None or not holder.begun or holder.sample_s <= self._sent_s:
            return None
        return self._sent_s + SOONEST_S

    def send_due(self, now_s: float) -> None:
        """Send the sample that waits, when it is due."""
        due_s = self.sticks_due_s
        if self._holder is not None and due_s is not None and now_s >= due_s:
            self._send_sticks(self._holder, now_s)

    def _send_sticks(self, holder: _Holder, now_s: float) -> None:
        aircraft = self.aircraft
        q_WB, mode = aircraft.attitude(now_s), aircraft.vehicle.mode
        heading = math.nan if q_WB is None else heading_rad(q_WB, mode)
        self._control = manual_control(holder.sample, holder.modes, heading, mode, holder.dead_zone, now_s)
        aircraft.manual_control(self._control)
        self._sent_s = now_s
        self._sent.append(now_s)

    def _stop(self, reason: str, now_s: float) -> None:
        """The sticks stop, at once and for good: PX4's rules act."""
        holder, self._holder = self._holder, None
        if holder is None:
            return
        self._stopped = reason
        self._hands += 1
        self._drop_questions()
        address = self._clients[holder.client].address if holder.client in self._clients else "a closed page"
        self._log(f"sticks of {address} stopped: {reason}")
        if holder.client in self._clients:
            self._answer(holder.client, "stopped", False, f"{reason}: the sticks are no longer sent")

    # --- frame, mode, arming ----------------------------------------------------------------------------------------

    def _choose_frame(self, client: int, frame: FlightMode, now_s: float) -> None:
        if not self._holds(client) or self._holder is None:
            self._answer(client, "frame", False, "take the sticks first")
            return
        if frame is FlightMode.HEADLESS and not math.isfinite(self._ahead_rad):
            self._set_ahead(client, now_s)
            if not math.isfinite(self._ahead_rad):
                return
        self._holder.modes.mode = frame
        self._log(f"frame {frame}")
        self._answer(client, "frame", True, f"{frame} frame")

    def _set_ahead(self, client: int, now_s: float) -> None:
        q_WB = self.aircraft.attitude(now_s)
        if not self._holds(client) or self._holder is None:
            self._answer(client, "ahead", False, "take the sticks first")
        elif q_WB is None:
            self._answer(client, "ahead", False, "no attitude from the flight controller")
        else:
            yaw = heading_rad(q_WB, FcuMode.POSCTL)
            if self._holder.modes.set_ahead(yaw):
                self._ahead_rad = yaw
                self._answer(client, "ahead", True, "ahead is where the nose points")
            else:
                self._answer(client, "ahead", False, "choose the body frame first")

    def _no_command(self, client: int, now_s: float) -> str:
        """Why a page may not command now, "" when it may: the one with the sticks, every page while none has them."""
        if self._holder is not None and not self._holds(client):
            return f"another page has the sticks ({self._clients[self._holder.client].address})"
        return "" if self.aircraft.connected(now_s) else "no flight controller on the link"

    def _choose_mode(self, client: int, mode: FcuMode, now_s: float) -> None:
        if reason := self._no_command(client, now_s):
            self._answer(client, "mode", False, reason)
        elif mode in MANUAL and not self._holds(client):
            self._answer(client, "mode", False, f"take the sticks first: {mode} is flown by sticks")
        else:
            self._log(f"mode {mode} requested by {self._clients[client].address}")
            answer = partial(self._answered, client, "mode", mode)
            self.aircraft.set_mode(mode, answer, now_s, partial(self._unwanted, client, self._hands))

    def _no_arming(self, client: int, arm: bool, now_s: float) -> str:
        """Why a page may not arm or disarm now, "" when it may; checked for the question and again for the yes."""
        if reason := self._no_command(client, now_s):
            return reason
        return "take the sticks first" if arm and not self._holds(client) else ""

    def _ask(self, client: int, arm: bool, now_s: float) -> None:
        """A question before motors start or stop."""
        if reason := self._no_arming(client, arm, now_s):
            self._answer(client, "arm", False, reason)
            return
        self._asked += 1
        reported = self.aircraft.reported(now_s)
        self._questions[client] = _Question(self._asked, arm, now_s + QUESTION_S, reported.armed, reported.landed)
        text = (
            "Arm: the rotors start to turn. Are all people away from the aircraft?"
            if arm
            else "Disarm: the rotors stop."
        )
        self._tell(client, "question", question=self._asked, text=text, arm=arm, seconds=QUESTION_S)

    def _confirm(self, client: int, number: int, now_s: float) -> None:
        question = self._questions.get(client)
        if question is None or question.number != number or now_s > question.until_s:
            self._answer(client, "arm", False, "the question is no longer open: ask again")
            return
        del self._questions[client]
        reported = self.aircraft.reported(now_s)
        if reason := self._no_arming(client, question.arm, now_s):
            self._answer(client, "arm", False, reason)
        elif (reported.armed, reported.landed) != (question.armed, question.landed):
            self._answer(client, "arm", False, "the aircraft's state has changed since the question: ask again")
        else:
            word = "arm" if question.arm else "disarm"
            self._log(f"{word} requested by {self._clients[client].address}")
            answer = partial(self._answered, client, "arm", word)
            unwanted = (
                partial(self._unwanted, client, self._hands) if question.arm else partial(self._others_now, client)
            )
            self.aircraft.arm(question.arm, answer, now_s, unwanted)

    def _unwanted(self, client: int, hands: int) -> str:
        """Why a request of a page is not to be sent again, "" while it is. hands: `_hands` when it was made."""
        if client not in self._clients:
            return "the page was closed"
        if hands == self._hands:
            return ""
        return f"the sticks have stopped ({self._stopped})" if self._stopped else "the sticks have changed hands"

    def _others_now(self, client: int) -> str:
        """Why rotors that a page has stopped are not its business any more: a page that went to sleep still wants them to stop."""
        return "another page has the sticks" if self._holder is not None and not self._holds(client) else ""

    def _drop_questions(self) -> None:
        """The sticks change hands: a yes to what was asked before would be another page's."""
        for client in self._questions:
            self._answer(client, "question", False, "the question is closed: the sticks have changed hands")
        self._questions.clear()

    def _answered(self, client: int, request: str, what: str, outcome: Outcome) -> None:
        """PX4's answer to a request."""
        text = f"{what}: {outcome.reason}"
        self._log(text)
        if client in self._clients:
            self._answer(client, request, outcome.accepted, text)

    # --- periodic work ----------------------------------------------------------------------------------------------

    def step(self, now_s: float) -> None:
        """Dead man, repeated sticks, states for the pages, closed connections."""
        aircraft = self.aircraft
        aircraft.step(now_s)
        holder = self._holder
        if holder is not None:
            if now_s - holder.sample_s > DEAD_MAN_S:
                self._stop(f"no sample of the sticks for {DEAD_MAN_S:g} s", now_s)
            elif not aircraft.connected(now_s):
                self._stop("the link to the flight controller is lost", now_s)
            elif holder.begun and now_s - self._sent_s >= LATEST_S:
                self._send_sticks(holder, now_s)
            else:
                self.send_due(now_s)
        while self._sent and self._sent[0] <= now_s - SENT_WINDOW_S:
            self._sent.popleft()
        for client, known in self._clients.items():
            if not known.known and known.closes_s == math.inf and now_s - known.since_s > HELLO_S:
                self._refuse(client, "no token", now_s)
        for client in [client for client, known in self._clients.items() if known.closes_s <= now_s]:
            self._end(client, now_s)
        if now_s - self._state_s >= STATE_PERIOD_S - STEP_S / 2:
            self._state_s = now_s
            self._publish_state(now_s)

    def _publish_state(self, now_s: float) -> None:
        aircraft, holder = self.aircraft, self._holder
        reported = aircraft.reported(now_s)
        (_, _, height), velocity = aircraft.motion(now_s)
        if math.isfinite(height) and reported.landed and reported.armed is False:
            self._ground_m = height
        q_WB = aircraft.attitude(now_s)
        yaw = math.nan if q_WB is None else heading_rad(q_WB, FcuMode.POSCTL)
        frame = holder.modes.mode if holder is not None else FlightMode.BODY
        owner = self._clients[holder.client].address if holder is not None else ""
        shared = {
            "s": now_s,
            "connected": aircraft.connected(now_s),
            "wrong": aircraft.vehicle.wrong,
            "ages_s": aircraft.ages_s(now_s),
            "mode": reported.mode,
            "armed": reported.armed,
            "landed": reported.landed,
            "height_m": height - self._ground_m,
            "speed_m_s": math.hypot(velocity[0], velocity[1]),
            "climb_m_s": velocity[2],
            "heading_deg": math.degrees(math.pi / 2 - yaw) % 360.0,
            "ahead_deg": math.degrees(math.pi / 2 - self._ahead_rad) % 360.0,
            "nose_deg": math.degrees(wrap_angle(self._ahead_rad - yaw)),
            "battery": reported.battery,
            "voltage_v": reported.battery_v,
            "rc": reported.rc,
            "frame": frame,
            "centred": holder is not None and holder.modes.centred,
            "owner": owner,
            "stopped": self._stopped,
            "rate_hz": len(self._sent) / SENT_WINDOW_S,
            "control": self._control if holder is not None and holder.begun else None,
            "texts": [text for _, text in aircraft.texts],
            "rc_loss": _loss_rule(aircraft.parameters),
            "ignored": _ignored(aircraft.parameters, bool(reported.rc)),
            "foreign": _foreign(self.foreign, self.foreign_senders, aircraft.others),
        }
        for client, known in self._clients.items():
            if known.known:
                self._tell(client, "state", you=self._holds(client), **shared)

    def take(self) -> Outbox:
        """What leaves since the last call: texts, connections to close, lines for the console."""
        out, self._out = self._out, Outbox()
        return out

    def _tell(self, client: int, kind: str, **fields: object) -> None:
        self._out.texts.append((client, protocol.encode(kind, **fields)))

    def _answer(self, client: int, request: str, ok: bool, text: str) -> None:
        self._tell(client, "answer", to=request, ok=ok, text=text)

    def _log(self, line: str) -> None:
        if len(self._out.log) < LOG_MAX:
            self._out.log.append(line)


def _too_old(age_s: float) -> str:
    """Why a request does not count, for the person who made it."""
    if age_s < 0.0:
        return "not done: the request names a state that was not sent yet; reload the page"
    return (
        f"not done: the request shows the aircraft as it was {age_s:.1f} s ago, at most {COMMAND_AGE_S:g} s; try again"
    )


def _foreign(datagrams: int, senders: tuple[str, ...], systems: list[int]) -> str:
    """Who else sends on the link, for the page; "" when there are none."""
    parts = []
    if datagrams:
        parts.append(f"{datagrams} datagrams of {', '.join(senders) or 'others'} are ignored")
    if systems:
        parts.append(f"flight controllers of other system ids are ignored: {', '.join(map(str, systems))}")
    return "; ".join(parts)


def _ignored(parameters: dict[str, float], transmitter: bool) -> str:
    """Why PX4 may not obey these sticks beside a transmitter that is on, for the page; "" when it does."""
    in_mode = round(parameters.get("COM_RC_IN_MODE", 1.0))
    if not transmitter or in_mode not in RC_FIRST | FIRST_KEPT:
        return ""
    text = "has priority" if in_mode in RC_FIRST else "may be the source"
    return f"the transmitter is on and {text} (COM_RC_IN_MODE {in_mode})"


_LOSS_ACTIONS = {1: "Hold", 2: "Return", 3: "Land", 5: "termination", 6: "disarming"}  # NAV_RCL_ACT


def _loss_rule(parameters: dict[str, float]) -> str:
    """What PX4 does when the sticks stop, for the page."""
    if "NAV_RCL_ACT" not in parameters or "COM_RC_LOSS_T" not in parameters:
        return ""
    action = _LOSS_ACTIONS.get(round(parameters["NAV_RCL_ACT"]), "nothing")
    return f"{action} after {parameters['COM_RC_LOSS_T']:g} s without sticks"
