"""Replay: a recorded flight is fed to one node again, as a regression test of that node.

The node gets the recorded messages at the times they had reached the recorder, and its steps at its own rate in
between, exactly as the lockstep runner does it. Its outputs can be compared with those of the flight.
"""

import math
from collections.abc import Iterable

from companion.core.enums import TopicName
from companion.core.messages import TOPIC_OF, Message
from companion.core.node import Node
from companion.recording.log import Log, LogEntry, LogError


def arrivals(log: Log | Iterable[LogEntry], topics: Iterable[TopicName]) -> list[LogEntry]:
    """The messages of some topics in order of arrival; ties keep the order within their topic."""
    wanted = set(topics)
    if isinstance(log, Log):
        entries = [
            LogEntry(arrival_s, topic, message)
            for topic in sorted(wanted)
            for arrival_s, message in zip(log.arrival_s[topic], log[topic], strict=True)
        ]
    else:
        entries = [entry for entry in log if entry.topic in wanted]
    return sorted(entries, key=lambda entry: entry.arrival_s)


def replay(log: Log | Iterable[LogEntry], node: Node, topics: Iterable[TopicName] | None = None) -> list[Message]:
    """All messages the node returns, in order, numbered per topic as on the bus.

    topics: what to feed, default the node's inputs; raises `LogError` for a topic the node does not take and for a
    log without any of them. A message that arrives at the time of a step comes before it.
    """
    topics = tuple(node.inputs if topics is None else topics)
    if strange := [topic for topic in topics if topic not in node.inputs]:
        raise LogError(f"replay: {node.name or type(node).__name__} does not take '{strange[0]}'")
    entries = arrivals(log, topics)
    if not entries:
        raise LogError(f"replay: the log holds none of: {', '.join(topics)}")
    outputs: list[Message] = []
    sequence: dict[TopicName, int] = {}

    def keep(messages: Iterable[Message] | None) -> None:
        for message in messages or ():
            topic = TOPIC_OF[type(message)]
            message.seq = sequence.get(topic, 0)
            sequence[topic] = message.seq + 1
            outputs.append(message)

    start_s = entries[0].arrival_s
    steps = 0
    for entry in entries:
        while (next_s := start_s + steps / node.rate_hz) < entry.arrival_s:
            keep(node.step(next_s))
            steps += 1
        keep(node.handle(entry.message, entry.arrival_s))
    end_s = math.nextafter(entries[-1].arrival_s + 1.0 / node.rate_hz, math.inf)
    while (next_s := start_s + steps / node.rate_hz) <= end_s:
        keep(node.step(next_s))
        steps += 1
    return outputs
