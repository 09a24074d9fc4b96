"""What the page draws of each message: rows of numbers by track, and events.

A track is a table of float32 whose first column is the time since the base of the view. Events are small dictionaries
with a time "t" and a kind "k"; a state that lasts (phase, reference, bundles) is an event when it changes. Live view and
log give the page the same data, so it has one way to draw and to play.
"""

import math
import struct
from array import array
from typing import Any

import msgspec
import numpy as np

from companion.core import messages
from companion.core.enums import CommandAction, TopicName
from companion.core.messages import TOPIC_OF, TOPICS, Message
from companion.core.trajectories import duration_s, sample
from companion.core.trajectory_messages import Hold
from companion.estimation.layout import ErrorIndex

MOTORS = 12
HORIZON_POINTS = 16  # as `companion.control.horizon.STATUS_POINTS`; more are left out
TRACKS: dict[str, tuple[str, ...]] = {
    "state": (
        "t", "x", "y", "z", "qw", "qx", "qy", "qz", "vx", "vy", "vz", "dx", "dy", "dz", "std", "rstd", "age", "valid",
    ),
    "cov": ("t", "xx", "xy", "xz", "yy", "yz", "zz"),
    "truth": ("t", "x", "y", "z", "qw", "qx", "qy", "qz", "dx", "dy", "dz", *(f"m{i}" for i in range(MOTORS))),
    "control": ("t", "x", "y", "z", "yaw", "error", "solve", "cycle", "source"),
    "horizon": ("t", "step", "n", *(f"{axis}{i}" for i in range(HORIZON_POINTS) for axis in "xyz")),
    "sent": ("t", "roll", "pitch", "yaw", "thrust"),
    "fcu": ("t", "voltage", "remaining", "armed", "landed", "offboard"),
}  # fmt: skip

# Shortest time between two rows or events of a topic [s]; what is not named is taken whenever it comes.
PERIODS_S: dict[TopicName, float] = {
    "state": 0.045,
    "truth": 0.045,
    "control": 0.045,
    "sent_setpoint": 0.045,
    "estimator": 0.19,
    "markers": 0.095,
    "fcu_status": 0.24,
    "health": 0.0,
    "host": 0.9,
}
INPUTS: tuple[TopicName, ...] = (
    "state",
    "estimator",
    "truth",
    "control",
    "sent_setpoint",
    "fcu_status",
    "markers",
    "reference",
    "mission_status",
    "safety",
    "fcu_text",
    "fcu_command",
    "fcu_info",
    "operator_request",
    "photo_request",
    "capture",
    "contact",
    "host",
    "health",
)
# Topics that the page calls unknown when they are older than their limit in `TOPICS`: what was seen last is no state any more.
WATCHED: tuple[TopicName, ...] = ("mission_status", "fcu_status", "state", "control")
SILENT_MIN_S = 1.0  # a view may be this late itself
BUNDLES_S = 0.5
HEALTH_S = 1.0
HORIZON_S = 0.15
STATUS_S = 1.0  # a reason that changes all the time (what the start waits for) makes an event this often
REFERENCE_POINTS = 240
REFERENCE_STEP_S = 0.1
EVENTS_MAX = 60_000  # then the older half of those that do not last goes
PASSING = ("markers", "health", "host", "bundles", "true_bundles")
ROWS_MAX = 80_000  # of a track: more than an hour at 20 Hz; then the older half goes
Event = dict[str, Any]


class Digest:
    """Collects rows and events; `take` messages in order of arrival, `packet` what is new.

    base_s: companion time that the page calls 0. stretch: factor on `PERIODS_S`, for long logs. tolerance: part of a period
    after which a message is due, for a reader that has thinned them out by their arrival.
    """

    def __init__(self, base_s: float, stretch: float = 1.0, tolerance: float = 1.0) -> None:
        self.base_s = base_s
        self.rows = {name: array("f") for name in TRACKS}
        self.dropped = dict.fromkeys(TRACKS, 0)  # rows that were removed from the front
        self.events: list[Event] = []
        self.events_dropped = 0
        self.newest_s = base_s
        self.stretch, self._tolerance = stretch, tolerance
        self.bundle_errors = ErrorIndex.MARKER_POSITION  # in `State.covariance_diag`; a log may have another layout
        self._due_s: dict[TopicName, float] = {}
        self._newest_s: dict[TopicName, float] = {}  # stamp of the newest message
        self._state_due_s: dict[str, float] = {}
        self._phase: tuple[str, str] = ("", "")
        self._reference: tuple[int, float, str] | None = None
        self._values: dict[str, Any] = {}  # of states that last, by name

    @property
    def phase(self) -> str:
        """The newest phase of the mission, "" before the first."""
        return self._phase[0]

    def silent(self, now_s: float) -> dict[str, float | None]:
        """Ages [s] of the watched topics that are too old; None: nothing has arrived."""
        ages_s = {topic: now_s - self._newest_s.get(topic, -math.inf) for topic in WATCHED}
        limits_s = {topic: max(TOPICS[topic].max_age_s, SILENT_MIN_S) for topic in WATCHED}
        return {t: round(s, 1) if math.isfinite(s) else None for t, s in ages_s.items() if s > limits_s[t]}

    def wants(self, topic: TopicName, stamp_s: float) -> bool:
        """A message of this time is due; a reader of logs decodes only these."""
        return stamp_s >= self._due_s.get(topic, -math.inf)

    def take(self, message: Message) -> None:
        """Keep what the page draws of a message; never raises for one that decodes."""
        topic, stamp_s = TOPIC_OF[type(message)], message.stamp_s
        if not math.isfinite(stamp_s):
            return
        t = stamp_s - self.base_s
        if (
            isinstance(message, messages.ControlStatus) and message.horizon_W
        ):  # of one in ten: not thinned with the rest
            self._note_horizon(message, t)
        self._newest_s[topic] = max(stamp_s, self._newest_s.get(topic, -math.inf))
        if not self.wants(topic, stamp_s):
            return
        self.newest_s = max(self.newest_s, stamp_s)
        taken = self._take(message, t)
        if taken and (period_s := PERIODS_S.get(topic)):
            self._due_s[topic] = stamp_s + period_s * self.stretch * self._tolerance

    def _take(self, message: Message, t: float) -> bool:
        match message:
            case messages.State() as state:
                numbers = (
                    *state.p_W,
                    *state.q_WB,
                    *state.v_W,
                    *state.disturbance_W,
                    state.position_std_m,
                    state.relative_std_m,
                )
                self._row("state", t, *numbers, state.marker_age_s, float(state.valid))
                self._note_bundles(state, t)
            case messages.EstimatorStatus():
                if not message.covariance_blocks:
                    return False
                self._row("cov", t, *message.covariance_blocks[:6])
            case messages.Truth():
                motors = (*message.motor_thrust_n, *(math.nan,) * MOTORS)[:MOTORS]
                self._row("truth", t, *message.p_W, *message.q_WB, *message.disturbance_W, *motors)
                rows = [[name, _rounded(p), _rounded(q, 4)] for name, (p, q) in message.bundles.items()]
                if self._changed("true_bundles", rows):
                    self._event(t, "true_bundles", rows=rows)
            case messages.ControlStatus() as control:
                ms = (1e3 * control.solve_time_s, 1e3 * control.cycle_time_s)
                source = {"nmpc": 2.0, "pid": 1.0}.get(control.active, 0.0)
                self._row(
                    "control",
                    t,
                    *control.reference_p_W,
                    control.reference_yaw_rad,
                    control.position_error_m,
                    *ms,
                    source,
                )
            case messages.SentSetpoint():
                self._row("sent", t, message.roll_rad, message.pitch_rad, message.yaw_rad, message.thrust)
            case messages.FcuStatus():
                self._note_status(message, t)
            case _:
                self._note(message, t)
        return True

    def _note(self, message: Message, t: float) -> None:
        """Messages that become events."""
        match message:
            case messages.Markers():
                seen = [[round(u, 1) for u in marker.corners_px] for o in message.observations for marker in o.markers]
                names = [o.bundle for o in message.observations]
                self._event(t, "markers", corners=seen, bundles=names)
            case messages.Reference():
                self._note_reference(message, t)
            case messages.MissionStatus():
                self._note_phase(message, t)
            case messages.SafetyEvent() as event:
                self._event(
                    t, "safety", monitor=event.monitor, active=event.active, text=event.text, action=str(event.action)
                )
            case messages.FcuText():
                self._event(t, "text", source="PX4", text=message.text, severity=message.severity)
            case messages.FcuCommand(action=CommandAction.TEXT):
                self._event(t, "text", source="mission", text=message.text, severity=message.severity)
            case messages.OperatorRequest():
                self._event(t, "text", source="view", text=f"{message.action}, asked by {message.who}", severity=5)
            case messages.Contact():
                self._event(t, "text", source="world", text=f"touched '{message.solid}'", severity=3)
            case messages.PhotoRequest():
                self._event(t, "photo", id=message.id)
            case messages.Capture() as capture:
                self._event(
                    t,
                    "capture",
                    id=capture.id,
                    outcome=str(capture.outcome),
                    p=_known(capture.p_WC),
                    q=_known(capture.q_WC),
                )
            case messages.FcuInfo():
                rotors = message.parameters.get("CA_ROTOR_COUNT")
                if rotors is not None and rotors > 0:
                    self._event(t, "rotors", n=int(rotors))
            case messages.HostStatus() as host:
                numbers = {"load": host.cpu_load, "temperature": host.cpu_temperature_c, "disk": host.disk_free_mb}
                self._event(t, "host", **{k: round(v, 3) if math.isfinite(v) else None for k, v in numbers.items()})
            case messages.Health():
                if t >= self._state_due_s.get(message.process, -math.inf):
                    self._state_due_s[message.process] = t + HEALTH_S * self.stretch
                    share = message.steps_per_s / max(message.nominal_steps_per_s, 1e-9)
                    name = str(message.process)
                    self._event(t, "health", process=name, share=round(share, 3), errors=message.errors)

    def _note_status(self, m: messages.FcuStatus, t: float) -> None:
        offboard = float(m.mode == "OFFBOARD")
        self._row("fcu", t, m.battery_voltage_v, m.battery_remaining, float(m.armed), float(m.landed), offboard)
        facts = (str(m.mode), m.connected, m.rc_ok, m.gnss_ok, m.armed, m.landed)
        if self._changed("fcu", facts):
            names = ("mode", "connected", "rc", "gnss", "armed", "landed")
            self._event(t, "fcu", **dict(zip(names, facts, strict=True)))
        if m.home_W is not None and self._changed("home", tuple(round(v, 2) for v in m.home_W)):
            self._event(t, "home", p=list(m.home_W))

    def _note_phase(self, m: messages.MissionStatus, t: float) -> None:
        phase = (str(m.phase), m.reason)
        same_phase = phase[0] == self._phase[0]
        if phase == self._phase or (same_phase and t < self._state_due_s.get("phase", -math.inf)):
            return
        self._phase, self._state_due_s["phase"] = phase, t + STATUS_S
        self._event(t, "phase", phase=phase[0], reason=m.reason, cause=m.cause, success=m.success)

    def _note_reference(self, m: messages.Reference, t: float) -> None:
        key = (m.id, m.start_s, m.frame)
        if key == self._reference:
            return
        self._reference = key
        try:
            lasts_s = duration_s(m.trajectory)
            n = 1 if isinstance(m.trajectory, Hold) else min(REFERENCE_POINTS, 2 + int(lasts_s / REFERENCE_STEP_S))
            times_s = m.start_s + np.linspace(0.0, lasts_s, n)
            points = np.round(sample(m.trajectory, m.start_s, times_s).p_W, 3).tolist()
        except (ValueError, OverflowError, ArithmeticError, IndexError):  # a curve of another version, or not finite
            return
        self._event(t, "reference", frame=m.frame, start=m.start_s - self.base_s, lasts=lasts_s, points=points)

    def _note_horizon(self, m: messages.ControlStatus, t: float) -> None:
        if t < self._state_due_s.get("horizon", -math.inf):
            return
        self._state_due_s["horizon"] = t + HORIZON_S * self.stretch
        points = m.horizon_W[:HORIZON_POINTS]
        numbers = [value for point in points for value in point]
        self._row(
            "horizon", t, m.horizon_step_s, len(points), *numbers, *(math.nan,) * (3 * HORIZON_POINTS - len(numbers))
        )

    def _note_bundles(self, m: messages.State, t: float) -> None:
        if not m.bundle or t < self._state_due_s.get("bundles", -math.inf):
            return
        self._state_due_s["bundles"] = t + BUNDLES_S * self.stretch
        place = self.bundle_errors
        known = len(m.covariance_diag) >= place.stop
        std = [math.sqrt(max(v, 0.0)) for v in m.covariance_diag[place]] if known else [0.0] * 3
        rows: list[Any] = [[m.bundle, _rounded(m.p_WM), _rounded(m.q_WM, 4), [round(v, 3) for v in std]]]
        rows += [[b.name, _rounded(b.p_WM), _rounded(b.q_WM, 4), []] for b in m.bundles]
        if self._changed("bundles", msgspec.json.encode(rows)):
            self._event(t, "bundles", rows=rows)

    def _changed(self, name: str, value: Any) -> bool:
        same = self._values.get(name) == value
        self._values[name] = value
        return not same

    def _row(self, track: str, *numbers: float) -> None:
        rows, width = self.rows[track], len(TRACKS[track])
        rows.extend(numbers)
        if len(rows) > ROWS_MAX * width:
            half = ROWS_MAX // 2
            del rows[: half * width]
            self.dropped[track] += half

    def _event(self, t: float, kind: str, **facts: Any) -> None:
        self.events.append({"t": round(t, 3), "k": kind, **facts})
        if len(self.events) > EVENTS_MAX:
            half = EVENTS_MAX // 2
            kept = [event for event in self.events[:half] if event["k"] not in PASSING][-half // 2 :]
            self.events_dropped += half - len(kept)
            self.events = kept + self.events[half:]


class Cursor:
    """How far one page has read a digest."""

    def __init__(self) -> None:
        self.rows = dict.fromkeys(TRACKS, 0)
        self.events = 0

    def packet(self, digest: Digest, rows_max: int = 1 << 30, **head: Any) -> bytes:
        """All that is new since the last packet, at most rows_max of a track; see `packed`."""
        tracks: dict[str, bytes] = {}
        for name, columns in TRACKS.items():
            width, dropped, rows = len(columns), digest.dropped[name], digest.rows[name]
            first = max(self.rows[name] - dropped, 0)
            count = min(len(rows) // width - first, rows_max)
            tracks[name] = rows[first * width : (first + count) * width].tobytes()
            self.rows[name] = dropped + first + count
        events = digest.events[max(self.events - digest.events_dropped, 0) :]
        self.events = digest.events_dropped + len(digest.events)
        return packed(tracks, events, now=digest.newest_s - digest.base_s, **head)


def packed(tracks: dict[str, bytes], events: list[Event], **head: Any) -> bytes:
    """One binary message: length of the head (uint32), head as JSON, padding to 4 bytes, rows as float32."""
    rows = {name: len(data) // (4 * len(TRACKS[name])) for name, data in tracks.items() if data}
    text = msgspec.json.encode({**head, "tracks": rows, "events": events})
    text += b" " * (-len(text) % 4)
    return b"".join([struct.pack("<I", len(text)), text, *(data for data in tracks.values() if data)])


def _rounded(numbers: tuple[float, ...], digits: int = 3) -> list[float]:
    return [round(v, digits) for v in numbers]


def _known(numbers: tuple[float, ...]) -> list[float] | None:
    return _rounded(numbers, 4) if all(map(math.isfinite, numbers)) else None
