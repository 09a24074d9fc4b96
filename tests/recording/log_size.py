"""Size of a log by topic, packed and as JSON, and the recorder's processor time: ``python -m tests.recording.log_size LOG``."""

import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import zstandard

from companion.recording.batches import BatchPacker, dictionary, row_of
from companion.recording.codec import encode
from companion.recording.log import LogEntry, iterate
from companion.recording.recorder import FLUSH_PERIOD_S, RecorderNode
from companion.recording.writer import LogWriter

JSON_FLUSH_S = 0.25  # of the recorder before 2026-11-25


def by_topic(entries: list[LogEntry], packed: bool) -> Counter[str]:
    """Bytes of each topic, compressed alone in parts of the recorder's length."""
    packer, compressor, sizes = BatchPacker(dictionary()), zstandard.ZstdCompressor(), Counter[str]()
    for topic in {entry.topic for entry in entries}:
        parts: dict[int, list[LogEntry]] = {}
        for entry in entries:
            if entry.topic == topic:
                parts.setdefault(int(entry.arrival_s / (FLUSH_PERIOD_S if packed else JSON_FLUSH_S)), []).append(entry)
        for part in parts.values():
            if packed:
                data = packer.pack([row_of(topic, one.message, round(one.arrival_s * 1e9)) for one in part])
            else:
                data = compressor.compress(b"".join(encode(one.message) for one in part))
            sizes[topic] += len(data)
    return sizes


def record(entries: list[LogEntry], path: Path) -> float:
    """Write the messages again as the recorder does; returns its processor time [s]."""
    began_s, step_s = time.process_time(), entries[0].arrival_s
    node = RecorderNode(LogWriter(path, {}))
    for entry in entries:
        while step_s < entry.arrival_s:
            node.step(step_s)
            step_s += 1 / node.rate_hz
        node.handle(entry.message, entry.arrival_s)
    node.close()
    return time.process_time() - began_s


def main(path: Path) -> None:
    entries = list(iterate(path))
    length_s = entries[-1].arrival_s - entries[0].arrival_s
    mb_h = 3600 / length_s / 1e6
    json, packed = by_topic(entries, packed=False), by_topic(entries, packed=True)
    for topic, size in packed.most_common():
        print(f"| {topic} | {json[topic] * mb_h:.1f} | {size * mb_h:.1f} |")
    print(f"| **file** | | **{path.stat().st_size * mb_h:.0f}** |")
    with TemporaryDirectory() as folder:
        again = Path(folder) / "again.mcap"
        writing_s = record(entries, again)
        began_s = time.process_time()
        back = list(iterate(again))
        reading_s = time.process_time() - began_s
    equal = [msgspec.msgpack.encode(a.message) for a in back] == [msgspec.msgpack.encode(b.message) for b in entries]
    print(
        f"recorder: {100 * writing_s / length_s:.1f} % of a core; reading: {reading_s:.1f} s; equal to the last bit: {equal}"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
