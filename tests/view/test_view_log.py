"""Logs as the view reads them: whole, cut, damaged, long, and files that are none."""

import struct
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from test_view_digest import opened

from companion.core.config import ConfigError
from companion.recording.log import LogError, read_log
from companion.view import log_window
from companion.view.digest import TRACKS
from companion.view.log_window import LogIndex
from companion.view.logged import LogSource, line
from companion.view.scene import scene_of, tables_of_log
from tests.view.long_log import write_long_log

GOLDEN = sorted((Path(__file__).parents[1] / "recording" / "golden").glob("*.mcap"))
LOG = GOLDEN[-1]


@pytest.fixture(scope="module")
def long_log(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "long.mcap"
    write_long_log(LOG, path, 170.0)
    return path


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_old_logs_are_shown(path):
    index, log = LogIndex(path), read_log(path)
    digest = index.read(*index.window_s(0))
    states = np.array(digest.rows["state"]).reshape(-1, len(TRACKS["state"]))
    assert index.windows == 1 and not index.truncated
    assert len(states) >= 20  # these logs hold few, or those of one second
    first = log["state"][0]
    assert states[0, 1:4] == pytest.approx(first.p_W, abs=1e-4)
    assert {event["phase"] for event in digest.events if event["k"] == "phase"} == {
        m.phase for m in log["mission_status"]
    }
    assert scene_of(tables_of_log(index.metadata))["title"]


def test_a_log_without_its_end_is_shown_up_to_there(tmp_path, long_log):
    whole, cut = long_log.read_bytes(), tmp_path / "cut.mcap"
    cut.write_bytes(whole[: len(whole) // 2])
    index = LogIndex(cut)
    digest = index.read(*index.window_s(0))
    assert index.truncated and len(digest.rows["state"]) > 0
    assert "not complete" in line(index)


def test_every_cut_and_damage_is_answered(tmp_path, long_log):
    whole = long_log.read_bytes()
    random = np.random.default_rng(1)
    for i in range(60):
        data = bytearray(whole[: random.integers(0, len(whole))] if i % 2 else whole)
        for place in random.integers(0, max(len(data), 1), size=i % 7) if data else ():
            data[place] = random.integers(256)
        path = tmp_path / "damaged.mcap"
        path.write_bytes(data)
        try:
            index = LogIndex(path)
            index.read(*index.window_s(0))
        except LogError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize("data", [b"", b"\x89MCAP0\r\n", b"not a log" * 1000, bytes(5000)])
def test_a_file_that_is_no_log_is_one_line(tmp_path, data):
    path = tmp_path / "file.mcap"
    path.write_bytes(data)
    with pytest.raises(ConfigError) as found:
        LogIndex(path)
    assert str(path) in str(found.value) and "\n" not in str(found.value)


def test_a_chunk_that_claims_to_be_huge_is_left_out(tmp_path, long_log):
    data = bytearray(long_log.read_bytes())
    index = LogIndex(long_log)
    struct.pack_into("<Q", data, index.chunks[1].begin + 16, 1 << 60)
    path = tmp_path / "huge.mcap"
    path.write_bytes(data)
    damaged = LogIndex(path)
    assert len(damaged.read(*damaged.window_s(0)).rows["state"]) > 0 and damaged.truncated


@pytest.mark.parametrize("times", [(0, None), (None, (1 << 63) - 1), (0, 0), (1 << 62, 5)])
def test_a_chunk_with_impossible_times_does_not_stretch_the_time_line(tmp_path, long_log, times):
    data, whole = bytearray(long_log.read_bytes()), LogIndex(long_log)
    begin = whole.chunks[2].begin
    for place, value in enumerate(times):
        if value is not None:
            struct.pack_into("<Q", data, begin + 8 * place, value)
    path = tmp_path / "times.mcap"
    path.write_bytes(data)
    damaged = LogIndex(path)
    assert (damaged.start_s, damaged.end_s) == pytest.approx((whole.start_s, whole.end_s), abs=1.0)
    assert len(damaged.chunks) == len(whole.chunks)


def test_damage_in_the_middle_is_said_when_it_has_been_read(tmp_path, long_log):
    """The page opens before the log has been read; what is found later comes with the window."""
    data, index = bytearray(long_log.read_bytes()), LogIndex(long_log)
    begin = index.chunks[1].begin
    data[begin + 200 : begin + 400] = bytes(200)
    path = tmp_path / "middle.mcap"
    path.write_bytes(data)
    index = LogIndex(path)
    source = LogSource(index, scene_of(tables_of_log(index.metadata)))
    try:
        head, _ = opened(source.window(0))
        assert "a part is damaged" in head["notes"][0] and path.name in head["notes"][0]
    finally:
        source.close()


@pytest.mark.parametrize("bytes_left", [0, 5000, None])
def test_a_file_that_changes_while_it_is_shown_is_said_and_ends_nothing(tmp_path, long_log, bytes_left):
    """Written again in place, or cut: a part of memory that stood for it would end the process."""
    path = tmp_path / "changing.mcap"
    path.write_bytes(long_log.read_bytes())
    index = LogIndex(path)
    source = LogSource(index, scene_of(tables_of_log(index.metadata)))
    try:
        with path.open("r+b") as file:
            if bytes_left is None:
                file.write(bytes(index.bytes))
            else:
                file.truncate(bytes_left)
        head, _ = opened(source.window(0))
        assert "the file has changed since it was opened" in head["notes"][0]
    finally:
        source.close()


def test_a_log_that_grows_while_it_is_shown_has_not_changed(tmp_path, long_log):
    whole, path = long_log.read_bytes(), tmp_path / "growing.mcap"
    path.write_bytes(whole[: len(whole) // 2])
    index = LogIndex(path)
    path.write_bytes(whole)
    assert len(index.read(*index.window_s(0)).rows["state"]) > 0 and not index.changed


def test_a_long_log_is_shown_in_windows(long_log, monkeypatch):
    monkeypatch.setattr(log_window, "WINDOW_S", 50.0)
    index = LogIndex(long_log)
    assert index.windows == 4
    source = LogSource(index, scene_of(tables_of_log(index.metadata)))
    for number in range(4):
        head, rows = opened(source.window(number))
        times_s = rows["state"][:, 0]
        assert head["window"] == number and times_s.min() > -0.3 and times_s.max() < 50.3 and len(times_s) >= 10
    assert "4 windows" in source.hello()["notes"][0]


class AskedPage:
    """A page as far as a source knows it."""

    def __init__(self, window):
        self.window, self.state, self.sent = window, None, 1


def packets(source, *pages, limit_s=20.0):
    """What a source has for each page, asked as the server does."""
    got, until_s = {}, time.monotonic() + limit_s
    while len(got) < len(pages) and time.monotonic() < until_s:
        source.work()
        for number, page in enumerate(pages):
            if (data := source.packet(page)) is not None:
                assert number not in got, "a page gets its window once"
                got[number] = data
        time.sleep(0.001)
    return [opened(got[number])[0]["window"] for number in range(len(pages))]


def test_pages_that_look_at_different_windows_all_get_theirs_and_nothing_waits_for_the_file(long_log, monkeypatch):
    monkeypatch.setattr(log_window, "WINDOW_S", 50.0)
    index = LogIndex(long_log)
    source = LogSource(index, scene_of(tables_of_log(index.metadata)))
    try:
        began = threading.Event()
        read = index.read
        monkeypatch.setattr(index, "read", lambda *window: began.wait(20.0) and read(*window))
        source.work()
        pages = [AskedPage(window) for window in (0, 3, 1, 99)]
        assert all(source.packet(page) is None for page in pages), "the server goes on while a window is read"
        began.set()
        assert packets(source, *pages) == [0, 3, 1, 3]
        assert all(source.packet(page) is None for page in pages)
    finally:
        source.close()


def test_a_view_that_is_closed_ends_its_reading(long_log):
    index = LogIndex(long_log)
    index.closed = True
    assert len(index.read(*index.window_s(0)).rows["state"]) == 0


@pytest.mark.verify
def test_half_an_hour_is_read_within_five_seconds_of_processor_time(tmp_path):
    path = tmp_path / "half_hour.mcap"
    write_long_log(LOG, path, 1800.0)
    began_s = time.process_time()
    index = LogIndex(path)
    packet = LogSource(index, scene_of(tables_of_log(index.metadata))).window(0)
    took_s = time.process_time() - began_s
    print(f"{index.bytes / 1e6:.0f} MB, {took_s:.1f} s, a packet of {len(packet) / 1e6:.1f} MB")
    assert took_s < 5.0
