"""Logs of earlier versions stay readable: one small log is kept for each layout of the filter's state."""

from pathlib import Path

import pytest

from companion.core.enums import FcuMode, Phase, SafetyAction
from companion.core.messages import TOPICS, EstimatorStatus, FcuStatus, MissionStatus, SafetyEvent, State, Truth
from companion.recording.log import read_log
from companion.recording.metrics import flight_metrics
from companion.recording.report import write_report

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.mcap"))
# Of the first format: topic `pilot`, field `row`, actions "stop" and "yield"; state of 33 numbers.
FIRST = Path(__file__).parent / "golden" / "2026-11-21_state33.mcap"
SINCE = {FIRST.stem: {"fcu_info", "fcu_imu"}}  # topics that are newer than the log
NEVER_LOGGED = {topic for topic, row in TOPICS.items() if not row.logged}


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_every_message_of_an_old_log_is_read(path):
    log = read_log(path)
    assert log.undecodable == {} and not log.truncated and log.problems() == []
    assert {topic for topic in TOPICS if log[topic]} >= set(TOPICS) - NEVER_LOGGED - SINCE.get(path.stem, set()) - {
        "fcu_text"
    }
    assert log.vehicle() is not None


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_figures_and_report_of_an_old_log(path, tmp_path):
    metrics = flight_metrics(path)
    assert metrics["final_phase"] == Phase.DONE and metrics["filter_resets"] == 0
    assert 0.0 < metrics["position_rms_m"] < 0.1
    assert write_report(path, tmp_path).exists()


def test_old_names_have_their_present_meaning():
    log = read_log(FIRST)
    assert log.of(MissionStatus)[-1].phase is Phase.DONE
    events = log.of(SafetyEvent)
    assert [event.monitor for event in events] == ["marker_lost", "marker_lost"]
    assert [event.action for event in events] == [SafetyAction.HOLD, SafetyAction.NONE]
    assert FcuMode.OFFBOARD in {status.mode for status in log.of(FcuStatus)}
    assert {len(state.covariance_diag) for state in log.of(State)} == {31}
    assert log.of(EstimatorStatus) and log.of(Truth)
