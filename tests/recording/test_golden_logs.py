"""Logs of earlier versions stay readable: one small log is kept for each layout of the filter's state."""

import math
from pathlib import Path

import numpy as np
import pytest

from companion.core.enums import FcuMode, Phase, SafetyAction
from companion.core.frames import rotation_matrix
from companion.core.messages import TOPICS, EstimatorStatus, FcuStatus, MissionStatus, SafetyEvent, State, Truth
from companion.estimation.estimator import EstimatorNode
from companion.recording.log import read_log
from companion.recording.metrics import flight_metrics
from companion.recording.replay import arrivals, replay
from companion.recording.report import write_report

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.mcap"))
# Of the first format: topic `pilot`, field `row`, actions "stop" and "yield"; state of 33 numbers.
FIRST = Path(__file__).parent / "golden" / "2026-11-21_state33.mcap"
# Without an IMU, state of 33 numbers; between 41 and 43 s with all inputs of the estimator.
BY_COMMAND = Path(__file__).parent / "golden" / "2026-11-22_by_command.mcap"
# topics that are newer than the log, or that its flight did not have
ABSENT = {FIRST.stem: {"fcu_info", "fcu_imu"}, BY_COMMAND.stem: {"fcu_imu", "safety", "photo_request"}}
# of devices that these aircraft did not have
PAYLOAD = {"capture_request", "operator_request", "capture", "payload", "camera_rx", "camera_tx", "capture_truth"}
OPTIONAL = {"fcu_text", "camera_imu", "range", "contact"} | PAYLOAD
NEVER_LOGGED = {topic for topic, row in TOPICS.items() if not row.logged}


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_every_message_of_an_old_log_is_read(path):
    log = read_log(path)
    assert log.undecodable == {} and not log.truncated and log.problems() == []
    absent = NEVER_LOGGED | OPTIONAL | ABSENT.get(path.stem, set())
    assert {topic for topic in TOPICS if log[topic]} >= set(TOPICS) - absent
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


def test_an_old_log_is_replayed_as_it_was_flown():
    """With the keys that are newer than the log the filter has the errors that it had, and predicts by the commands."""
    log = read_log(BY_COMMAND)
    vehicle = log.vehicle()
    assert vehicle.fcu.imu_rate_hz == 0.0
    node = EstimatorNode(vehicle, "floor")
    window = [entry for entry in arrivals(log, node.inputs) if 41.0 < entry.arrival_s < 43.0]
    replayed = [m for m in replay(window, node) if type(m) is State and 42.0 < m.stamp_s < 43.0]
    flown = {round(m.stamp_s, 3): m for m in log.of(State)}
    apart_m = [
        math.dist(place_in_bundle(state), place_in_bundle(flown[stamp]))
        for state in replayed
        if (stamp := round(state.stamp_s, 3)) in flown
    ]
    assert len(apart_m) > 5 and all(state.valid and state.bundle == "floor" for state in replayed)
    assert max(apart_m) < 0.003


def place_in_bundle(state):
    return rotation_matrix(state.q_WM).T @ np.subtract(state.p_W, state.p_WM)
