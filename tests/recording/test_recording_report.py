"""The report of any flight is one self-contained page."""

import math
import re

import cv2
import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from companion.core.config import ConfigError
from companion.core.messages import Photo
from companion.recording.plots import ShownFlight, envelope
from companion.recording.recorder import RecorderNode
from companion.recording.report import write_report
from companion.recording.writer import LogWriter
from tests.html_page import Page

VEHICLE = "name = 'F550'\n[controller]\ndeadline_s = 0.015\n"


def recorded(path, flight, photo=False, close=True):
    node = RecorderNode(LogWriter(path, {"vehicle": VEHICLE, "vehicle_file": "f550.toml"}))
    for message in sorted((m for messages in flight.values() for m in messages), key=lambda m: m.stamp_s):
        node.handle(message, message.stamp_s)
    if photo:
        png = cv2.imencode(".png", np.full((48, 64), 120, np.uint8))[1].tobytes()
        node.handle(Photo(stamp_s=flight["state"][700].stamp_s, id=1, png=png), 1010.0)
        node.step(1021.0)
    if close:
        node.close()
    return path


def headings(html: str) -> list[str]:
    return re.findall(r"<h2>(.*?)</h2>", html)


def test_the_report_of_a_simulated_flight_shows_everything_in_one_file(flight, tmp_path):
    report = write_report(recorded(tmp_path / "flight.mcap", flight, photo=True), tmp_path / "out")
    html = report.read_text()
    page = Page(html)
    assert report == tmp_path / "out" / "report.html"
    outside = [u for u in page.links if not u.startswith(("data:", "#"))]
    assert outside == ["flight_photo_001.png"], "nothing is loaded; the photograph is a link"
    for words in (
        "13.0",
        "Mission completed",
        "estimate minus truth",
        "marker <lost> & gone",
        "f550.toml",
        "estimator",
    ):
        assert words in page.text, words
    expected = [
        "Summary",
        "Position",
        "Error",
        "Disturbance",
        "GNSS error",
        "Confidence",
        "Consistency",
        "Attitude",
    ]
    assert headings(html)[:8] == expected
    assert {"Computing times", "Safety events", "Phases", "Photographs", "Processes"} <= set(headings(html))
    assert "deadline" in page.text
    assert len(html) < 3_000_000
    overview = cv2.imread(str(tmp_path / "out" / "overview.png"))
    assert overview.shape[1] > 1000
    assert msgspec.json.decode((tmp_path / "out" / "metrics.json").read_bytes())["position_rms_m"] == pytest.approx(
        0.13
    )


def test_the_report_of_a_real_flight_says_what_it_cannot_know(flight_without_truth, tmp_path):
    html = write_report(recorded(tmp_path / "flight.mcap", flight_without_truth), tmp_path).read_text()
    page = Page(html)
    assert "no truth in a real flight" in page.text
    assert "estimate minus truth" not in page.text
    assert "simulated" not in page.text
    assert "Position" in headings(html)


def test_a_killed_recorder_still_gets_its_report(flight, tmp_path):
    part = {"mission_status": flight["mission_status"]}
    html = write_report(recorded(tmp_path / "flight.mcap", part, close=False), tmp_path).read_text()
    assert "the log is not complete" in html


@pytest.mark.parametrize("kept", [(), ("state", "fcu_status"), ("truth", "mission_status", "reference")])
def test_a_log_with_almost_nothing_in_it_gets_a_report(flight, tmp_path, kept):
    part = {topic: (messages[:200] if topic in kept else []) for topic, messages in flight.items()}
    Page(write_report(recorded(tmp_path / "flight.mcap", part), tmp_path).read_text())


def test_a_bundle_may_have_any_name(flight, tmp_path):
    """In a figure two dollar signs would make it a formula, which this one is not."""
    name = "a$^$b"
    renamed = dict(flight)
    renamed["state"] = [replace(m, bundle=m.bundle and name) for m in flight["state"]]
    renamed["reference"] = [replace(m, frame=name) for m in flight["reference"]]
    renamed["truth"] = [replace(m, bundles={name: m.bundles["pier"]}) for m in flight["truth"]]
    report = write_report(recorded(tmp_path / "flight.mcap", renamed), tmp_path)
    assert f"in the frame of “{name}”" in Page(report.read_text()).text and (tmp_path / "overview.png").exists()


@pytest.mark.parametrize("stamp_s", [math.nan, math.inf])
def test_a_message_without_a_stamp_is_left_out_with_a_line(flight, tmp_path, stamp_s):
    broken = dict(flight) | {"state": [*flight["state"][:-1], replace(flight["state"][-1], stamp_s=stamp_s)]}
    path = tmp_path / "flight.mcap"
    writer = LogWriter(path, {"vehicle": VEHICLE})
    for topic, messages in broken.items():
        for number, message in enumerate(messages):
            writer.put(topic, message, 1000.0 + 0.01 * number)
    writer.close()
    html = write_report(path, tmp_path).read_text()
    assert f"{path}: 1 messages of &#39;state&#39; have no finite stamp and are left out" in html
    assert "Position" in headings(html)


def test_a_figure_that_cannot_be_drawn_does_not_keep_the_others_from_the_report(flight, tmp_path):
    first, *others = flight["sent_setpoint"]
    broken = dict(flight) | {"sent_setpoint": [replace(first, thrust=1e308), *others]}
    html = write_report(recorded(tmp_path / "flight.mcap", broken), tmp_path).read_text()
    assert "figure &#39;Attitude&#39; cannot be drawn: OverflowError" in html
    assert "Attitude" not in headings(html) and "Position" in headings(html)


def test_a_report_that_cannot_be_written_is_one_line(flight_without_truth, tmp_path):
    path = recorded(tmp_path / "flight.mcap", {"mission_status": flight_without_truth["mission_status"]})
    with pytest.raises(ConfigError, match="report cannot be written"):
        write_report(path, path / "out")


def test_thinned_lines_keep_their_extremes_and_their_order():
    t = np.linspace(0, 100, 50_000)
    y = np.sin(t)
    y[12_345] = 7.0
    y[30_000:31_000] = np.nan
    thin_t, thin_y = envelope(t, y, 1000)
    assert len(thin_t) <= 1000
    assert np.nanmax(thin_y) == 7.0
    assert np.all(np.diff(thin_t) > 0)


def test_times_start_with_the_mission(flight):
    shown = ShownFlight(flight)
    assert shown.start_s == flight["mission_status"][0].stamp_s
    assert shown.hold_window() == pytest.approx((0.0, 20.0))
