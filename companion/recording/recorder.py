"""The recorder node: writes every logged message into the log, and each photograph beside it with its camera pose.

Unlike other nodes its output goes to a `LogWriter`, not to the bus. It still reads no clock and starts no thread. It
publishes the state of the computer, because its log fills the disk; a function that reads the computer is passed in.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from companion.core.config import ConfigError
from companion.core.frames import quat_conjugate, quat_exp, quat_log, quat_multiply, rotation_matrix
from companion.core.messages import RECORDER, TOPIC_OF, TOPICS, FcuStatus, HostStatus, Message, Photo, State
from companion.core.node import Node
from companion.recording.retention import Retention
from companion.recording.writer import LogWriter

STATES_KEPT = 500  # 5 s at 100 Hz: longer than the delay of any photograph
FLUSH_PERIOD_S = 1.0  # a killed process loses at most this, and messages that the bus had not delivered
PHOTO_TIMEOUT_S = 0.5  # a photograph waits this long for a state with a later stamp
HOST_PERIOD_S = 1.0 / TOPICS["host"].rate_hz
CLOSE_S = 0.5  # twice for each log at the end of the process: two logs in less than its supervisor waits
AFTER_FLIGHT_S = 10.0  # a log continues for this long after disarming
LARGEST_MB = 500.0  # a log that grows beyond this on the ground is ended, too


class RecorderNode(Node):
    """Feeds a `LogWriter`, and flushes it once in `FLUSH_PERIOD_S`: fewer, longer parts take fewer bytes.

    read_host: returns the state of this computer; None: it is not published.
    next_writer: opens the log of the next flight, begun when the aircraft has been disarmed for `AFTER_FLIGHT_S`
    or waits so long that the log grows beyond `LARGEST_MB`; may raise `ConfigError`; then the old log continues. None:
    one log for all. A log whose last bytes the disk refuses is kept until it takes them, and only then is a further one begun.
    retention: limits the size of the log folder; works on the ground only.
    """

    name = RECORDER
    inputs = (*(topic for topic, row in TOPICS.items() if row.logged), "photo")
    rate_hz = 4.0
    batch_window_s = 0.005  # resolution of the arrival times in the log

    def __init__(
        self,
        writer: LogWriter,
        read_host: Callable[[float], HostStatus] | None = None,
        next_writer: Callable[[], LogWriter] | None = None,
        retention: Retention | None = None,
    ) -> None:
        self._writer = writer
        self._read_host = read_host
        self._host_s = -float("inf")
        self._next_writer = next_writer
        self._retention = retention
        if retention is not None:
            retention.begin(writer.path)
        self._unwritten: LogWriter | None = None  # the log before this one, while the disk refuses its last bytes
        self._errors_before, self._last_error_before = 0, ""  # of the logs before these
        self._flying = True  # until the flight controller says that it is disarmed
        self._state_known = False  # a status has arrived since this recorder began
        self._was_armed = bool(writer.continues)  # in the flight of this log
        if writer.continues and retention is not None:
            writer.mark_flown()
        self._disarmed_s: float | None = None
        self._flushed_s = -float("inf")
        self._states: deque[State] = deque(maxlen=STATES_KEPT)
        self._photos: list[tuple[Photo, float]] = []  # with their arrival

    def handle(self, message: Message, now_s: float) -> Iterable[Message]:
        """Take one message; a topic that the table does not log is ignored."""
        topic = TOPIC_OF[type(message)]
        if isinstance(message, Photo):
            self._photos.append((message, now_s))
            return ()
        if not TOPICS[topic].logged:
            return ()
        if isinstance(message, State):
            self._states.append(message)
        elif isinstance(message, FcuStatus):
            self._note_armed(message, now_s)
        self._writer.put(topic, message, now_s)
        if now_s - self._flushed_s > FLUSH_PERIOD_S:  # also where `step` is never called
            return self.step(now_s)
        return ()

    def step(self, now_s: float) -> Iterable[Message]:
        """Save photographs whose pose is known, flush the log, read the computer; on the ground, delete old logs."""
        if self._photos:
            self._save_photos(now_s, PHOTO_TIMEOUT_S)
        published = self._host(now_s)
        if now_s - self._flushed_s > FLUSH_PERIOD_S - 0.5 / self.rate_hz:
            self._writer.flush()
            self._flush_unwritten()
            self._flushed_s = now_s
        if self._next_writer is not None and self._is_complete(now_s):
            self._begin_next(self._next_writer, now_s)
        if self._retention is not None and not self._flying:
            self._retention.step()
        return published

    def _host(self, now_s: float) -> list[Message]:
        if self._read_host is None or now_s - self._host_s < HOST_PERIOD_S - 0.5 / self.rate_hz:
            return []
        self._host_s = now_s
        host = self._read_host(now_s)
        self._writer.put("host", host, now_s)  # a process does not receive its own messages
        return [host]

    def _note_armed(self, status: FcuStatus, now_s: float) -> None:
        if not (status.valid and status.connected):
            return  # without a connection the last known state stays
        if self._flying and self._state_known and not status.armed:
            self._flushed_s = -float("inf")  # at once: the battery may be unplugged in a moment
        self._flying = status.armed
        if status.armed:
            if not self._was_armed and self._retention is not None:
                self._writer.mark_flown(begun_armed=not self._state_known)
            self._was_armed, self._disarmed_s = True, None
        elif self._disarmed_s is None:
            self._disarmed_s = now_s
        self._state_known = True

    def _is_complete(self, now_s: float) -> bool:
        if self._flying or self._disarmed_s is None or now_s - self._disarmed_s < AFTER_FLIGHT_S:
            return False
        if self._unwritten is not None:
            return False
        return self._was_armed or self._writer.size_mb > LARGEST_MB

    def _begin_next(self, next_writer: Callable[[], LogWriter], now_s: float) -> None:
        try:
            following = next_writer()
        except ConfigError as error:
            self._writer.note_error(str(error))
            self._disarmed_s = now_s  # the next attempt is made after `AFTER_FLIGHT_S`
            if self._retention is not None:
                self._retention.begin(self._writer.path)  # the disk may be full: old flights make way
            return
        self._was_armed = False
        self._unwritten, self._writer = self._writer, following
        self._unwritten.finish()
        self._flush_unwritten()
        if self._retention is not None:
            self._retention.begin(following.path)

    def _flush_unwritten(self) -> None:
        """Hand the last bytes of the log before this one to the disk, and close it when it has all of them."""
        if (former := self._unwritten) is None:
            return
        former.flush()
        if former.unwritten_bytes == 0:
            former.close()
            self._errors_before += former.errors + former.dropped
            self._last_error_before = former.last_error or self._last_error_before
            self._unwritten = None

    def close(self) -> None:
        """End the log, after the node's last step."""
        self._save_photos(0.0, -float("inf"))
        for writer in self._open_logs:
            writer.close(CLOSE_S)

    @property
    def _open_logs(self) -> list[LogWriter]:
        """The present log, and the one before it while the disk refuses its last bytes."""
        return [self._writer] if self._unwritten is None else [self._writer, self._unwritten]

    @property
    def errors(self) -> int:
        """Failed writes and dropped messages of all logs so far, for the process's health message."""
        return self._errors_before + sum(writer.errors + writer.dropped for writer in self._open_logs)

    @property
    def last_error(self) -> str:
        return next((w.last_error for w in self._open_logs if w.last_error), self._last_error_before)

    def _save_photos(self, now_s: float, timeout_s: float) -> None:
        waiting = []
        for photo, arrival_s in self._photos:
            newest_s = self._states[-1].stamp_s if self._states else -float("inf")
            if newest_s < photo.stamp_s and now_s - arrival_s < timeout_s:
                waiting.append((photo, arrival_s))
                continue
            facts = {"id": photo.id, "stamp_s": photo.stamp_s, "time": self._writer.wall_time(photo.stamp_s)}
            self._writer.save_photograph(photo.id, photo.png, facts | pose_at(self._states, photo.stamp_s))
        self._photos = waiting


def pose_at(states: Iterable[State], stamp_s: float) -> dict[str, Any]:
    """The pose of the aircraft at a time, from states in order of their stamps, as plain data for a side-car file.

    Between two states position and attitude are interpolated (linearly, and along the shortest rotation); outside
    them the nearest state is used. ``pose`` says which: "interpolated", "nearest", "none". The state is
    "trusted" if all states used were valid.
    """
    before = after = None
    for state in states:
        if state.stamp_s <= stamp_s:
            before = state
        elif after is None:
            after = state
    first, last = before or after, after or before
    if first is None or last is None:
        return {"pose": "none"}
    fraction = 0.0 if first is last else (stamp_s - first.stamp_s) / (last.stamp_s - first.stamp_s)
    p_WB = (1 - fraction) * np.asarray(first.p_W) + fraction * np.asarray(last.p_W)
    turn = quat_log(quat_multiply(quat_conjugate(first.q_WB), last.q_WB))
    q_WB = quat_multiply(first.q_WB, quat_exp(fraction * turn))
    nearest = last if fraction > 0.5 else first
    facts: dict[str, Any] = {
        "pose": "nearest" if first is last else "interpolated",
        "trusted": first.valid and last.valid,
        "state_age_s": stamp_s - nearest.stamp_s,
        "p_WB": p_WB.tolist(),
        "q_WB": q_WB.tolist(),
        "position_std_m": nearest.position_std_m,
        "bundle": nearest.bundle,
    }
    if nearest.bundle:
        R_MW = rotation_matrix(nearest.q_WM).T
        facts |= {
            "p_MB": (R_MW @ (p_WB - np.asarray(nearest.p_WM))).tolist(),
            "q_MB": quat_multiply(quat_conjugate(nearest.q_WM), q_WB).tolist(),
            "relative_std_m": nearest.relative_std_m,
            "marker_age_s": nearest.marker_age_s,
        }
    return facts
