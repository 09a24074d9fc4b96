"""Logs of any length out of a short one: ``python -m tests.view.long_log SHORT LONG MINUTES [MEGABYTES]``.

The messages of the short log follow each other again and again, each with its time moved. MEGABYTES of bytes that do not
compress are added as raw bytes of the link, which a view does not read.
"""

import os
import sys
from pathlib import Path

import msgspec

from companion.core.messages import LinkTx
from companion.recording.log import iterate, read_log
from companion.recording.recorder import FLUSH_PERIOD_S
from companion.recording.writer import LogWriter


def write_long_log(short: Path, long: Path, seconds: float, filler_mb: float = 0.0) -> None:
    """Write `long`, `seconds` of flight out of the log `short`."""
    entries = list(iterate(short))
    first_s = entries[0].arrival_s
    period_s = entries[-1].arrival_s - first_s + 0.01
    filler = int(filler_mb * 1e6 / (seconds / FLUSH_PERIOD_S))
    long.unlink(missing_ok=True)
    writer = LogWriter(long, read_log(short, ("host",)).metadata, start_s=first_s)
    shift_s, flushed_s = 0.0, first_s
    while shift_s < seconds:
        for arrival_s, topic, message in entries:
            at_s = arrival_s + shift_s
            if at_s - first_s > seconds:
                break
            if at_s - flushed_s > FLUSH_PERIOD_S:
                if filler:
                    writer.put("link_tx", LinkTx(stamp_s=at_s, data=os.urandom(filler)), at_s)
                writer.flush()
                flushed_s = at_s
            writer.put(topic, msgspec.structs.replace(message, stamp_s=round(message.stamp_s + shift_s, 6)), at_s)
        shift_s += period_s
    writer.close()


if __name__ == "__main__":
    write_long_log(Path(sys.argv[1]), Path(sys.argv[2]), 60 * float(sys.argv[3]), float([*sys.argv, "0"][4]))
