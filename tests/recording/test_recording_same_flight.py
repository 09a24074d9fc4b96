"""A flight counts once, under whatever names its log is given."""

import pytest

from companion.core.messages import FcuText
from companion.recording.same_flight import flight_of, repetition
from companion.recording.writer import LogWriter


def written(path, **metadata):
    writer = LogWriter(path, metadata)
    writer.put("fcu_text", FcuText(stamp_s=5.0, severity=4, text="a text"), 5.0)
    writer.close()
    return path


@pytest.fixture
def flight(tmp_path):
    return written(tmp_path / "flight.mcap")


def test_two_flights_are_two(flight, tmp_path):
    other = written(tmp_path / "other.mcap")
    assert repetition([flight, other]) == "" and flight_of(flight) != flight_of(other) != ""


def test_the_part_that_a_restarted_recorder_wrote_is_read_with_its_log(flight, tmp_path):
    part = written(tmp_path / "flight_2.mcap", continues="flight.mcap")
    for given in ([flight, part], [part, flight]):
        assert repetition(given) == f"{part}: is a part of {flight}, which is given and read with it: leave it out"
    assert repetition([part]) == ""


def test_a_copy_is_the_same_flight_also_where_it_is_not_complete(flight, tmp_path):
    whole, part = tmp_path / "whole.mcap", tmp_path / "part.mcap"
    whole.write_bytes(flight.read_bytes())
    part.write_bytes(flight.read_bytes()[:-40])
    for copy in (whole, part):
        assert repetition([flight, copy]) == f"{copy}: holds the same data as {flight}: given twice"


def test_files_that_are_no_logs_are_compared_by_their_bytes(tmp_path):
    tables = [tmp_path / name for name in ("a.csv", "a_2.csv", "b.csv")]
    for table, text in zip(tables, ("1,2", "3,4", "1,2"), strict=True):
        table.write_text(text)
    assert repetition(tables[:2]) == ""
    assert repetition(tables) == f"{tables[2]}: holds the same data as {tables[0]}: given twice"
    assert repetition([tmp_path / "none.csv", tmp_path / "nothing.csv"]) == ""
