"""Logs of any length out of a short one: ``python -m tests.view.long_log SHORT LONG MINUTES [MEGABYTES]``.

The messages of the short log follow each other again and again, each with its time moved. MEGABYTES of bytes that do not
compress are added as raw bytes of the link, which a view does not read.
"""

import os
import re
import sys
from pathlib import Path

from mcap.reader import make_reader
from mcap.writer import CompressionType, Writer

STAMP = re.compile(rb'"stamp_s":(-?[0-9.eE+-]+)')
FLUSH_S = 0.25


def write_long_log(short: Path, long: Path, seconds: float, filler_mb: float = 0.0) -> None:
    """Write `long`, `seconds` of flight out of the log `short`."""
    rows = []
    channels: dict[str, bytes] = {}
    with short.open("rb") as stream:
        reader = make_reader(stream)
        metadata = {name: text for record in reader.iter_metadata() for name, text in record.metadata.items()}
        for schema, channel, message in reader.iter_messages():
            found = ([None, *STAMP.finditer(message.data)])[-1]  # of the message; an update within it has one, too
            if schema is None or found is None:
                continue
            channels[channel.topic] = schema.data
            before, stamp_s, after = message.data[: found.start(1)], float(found[1]), message.data[found.end(1) :]
            rows.append((message.log_time / 1e9, channel.topic, before, stamp_s, after))
    period_s = rows[-1][0] - rows[0][0] + 0.01
    filler = int(filler_mb * 1e6 / (seconds / FLUSH_S))
    with long.open("wb") as stream:
        writer = Writer(stream, chunk_size=1 << 30, compression=CompressionType.ZSTD)
        writer.start(profile="", library="test")
        writer.add_metadata("flight", metadata)
        numbers = {
            topic: writer.register_channel(topic, "json", writer.register_schema(topic, "jsonschema", data))
            for topic, data in channels.items()
        }
        shift_s, flushed_s, first_s = 0.0, rows[0][0], rows[0][0]
        while shift_s < seconds:
            for log_s, topic, before, stamp_s, after in rows:
                at_s = log_s + shift_s
                if at_s - first_s > seconds:
                    break
                if at_s - flushed_s > FLUSH_S:
                    if filler:
                        writer.add_message(numbers["link_tx"], round(at_s * 1e9), os.urandom(filler), round(at_s * 1e9))
                    writer.flush()
                    flushed_s = at_s
                moved_s = stamp_s + shift_s
                data = b"%s%.6f%s" % (before, moved_s, after)
                writer.add_message(numbers[topic], round(at_s * 1e9), data, max(0, round(moved_s * 1e9)))
            shift_s += period_s
        writer.finish()


if __name__ == "__main__":
    write_long_log(Path(sys.argv[1]), Path(sys.argv[2]), 60 * float(sys.argv[3]), float([*sys.argv, "0"][4]))
