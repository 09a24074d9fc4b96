"""Flight logs as calibrations read them: messages by type, and warnings on what a log lacks."""

from typing import TypeVar

from calibration.results import DataError
from companion.core.messages import TOPIC_OF, Message
from companion.recording.log import Log

M = TypeVar("M", bound=Message)


def messages(log: Log, kind: type[M]) -> list[M]:
    """The messages of one type in order of arrival."""
    return [message for message in log[TOPIC_OF[kind]] if isinstance(message, kind)]


def log_warnings(log: Log) -> list[str]:
    """One sentence if the end of the log is missing, and one for each topic with messages that cannot be decoded."""
    found = ["the end of the log is missing; what can be read is used"] if log.truncated else []
    return found + [_undecodable(log, topic) for topic in sorted(log.undecodable)]


def no_messages(log: Log, kinds: tuple[type[Message], ...], otherwise: str) -> DataError:
    """The error for a log without usable messages of some types; it names the log.

    otherwise: the text for a log without such messages. Messages that cannot be decoded are named in addition, or alone
    if there are no others.
    """
    topics = [TOPIC_OF[kind] for kind in kinds]
    lost = [_undecodable(log, topic) for topic in topics if topic in log.undecodable]
    text = [] if lost and not any(log[topic] for topic in topics) else [otherwise]
    return DataError(f"{log.path}: {'; '.join([*text, *lost])}")


def _undecodable(log: Log, topic: str) -> str:
    lost = log.undecodable[topic]
    return f"{lost.messages} messages of the topic '{topic}' cannot be decoded by this version ({lost.reason})"
