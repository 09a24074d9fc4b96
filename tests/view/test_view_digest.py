"""Messages become rows and events; whatever arrives, the digest stays bounded and never raises."""

import json
import math
import struct

import numpy as np
import pytest

from companion.core.enums import Phase
from companion.core.messages import (
    ControlStatus,
    EstimatorStatus,
    FcuCommand,
    Markers,
    MissionStatus,
    OperatorRequest,
    Reference,
    SafetyEvent,
    State,
    Truth,
)
from companion.core.trajectory_messages import Hold, Move, Waypoints
from companion.view import digest as module
from companion.view.digest import TRACKS, Cursor, Digest

NAN = math.nan


def state(stamp_s: float, **fields) -> State:
    given = {
        "p_W": (1.0, 2.0, 3.0), "v_W": (0.0, 0.0, 0.0), "q_WB": (1.0, 0.0, 0.0, 0.0), "disturbance_W": (0.1, 0.0, 0.0),
        "gnss_bias_W": (0.0,) * 3, "velocity_bias_W": (0.0,) * 3, "bundle": "pier", "p_WM": (4.0, 0.0, 1.0),
        "q_WM": (1.0, 0.0, 0.0, 0.0), "marker_age_s": 0.1, "position_std_m": 0.2, "relative_std_m": 0.02,
        "covariance_diag": (0.01,) * 60, "battery_voltage_v": 15.0, "reset_count": 1,
    }  # fmt: skip
    return State(stamp_s=stamp_s, **(given | fields))


def truth(stamp_s: float, motors: int) -> Truth:
    zero = (0.0, 0.0, 0.0)
    return Truth(
        stamp_s=stamp_s, p_W=zero, v_W=zero, q_WB=(1.0, 0.0, 0.0, 0.0), omega_B=zero, disturbance_W=zero, gnss_bias_W=zero,
        bundles={}, battery_voltage_v=16.0, motor_thrust_n=(1.0,) * motors,
    )  # fmt: skip


def status(stamp_s: float, phase: Phase, reason: str = "") -> MissionStatus:
    return MissionStatus(
        stamp_s=stamp_s, phase=phase, reason=reason, phase_time_s=0.0, finished=False, success=False, photographs=0
    )


def opened(packet: bytes) -> tuple[dict, dict[str, np.ndarray]]:
    """Head and rows of a packet, as the page reads it."""
    (size,) = struct.unpack_from("<I", packet)
    head, at, rows = json.loads(packet[4 : 4 + size]), 4 + size, {}
    for name, columns in TRACKS.items():
        n = head["tracks"].get(name, 0) * len(columns)
        rows[name] = np.frombuffer(packet, "<f4", n, at).reshape(-1, len(columns))
        at += 4 * n
    assert at == len(packet) and (4 + size) % 4 == 0
    return head, rows


def test_a_state_is_a_row_with_its_time_since_the_base():
    digest = Digest(100.0)
    digest.take(state(101.5))
    head, rows = opened(Cursor().packet(digest))
    row = dict(zip(TRACKS["state"], rows["state"][0].tolist(), strict=True))
    assert row["t"] == 1.5 and (row["x"], row["y"], row["z"]) == (1.0, 2.0, 3.0) and row["valid"] == 1.0
    bundles = [event for event in head["events"] if event["k"] == "bundles"]
    assert bundles[0]["rows"][0][:2] == ["pier", [4.0, 0.0, 1.0]] and bundles[0]["rows"][0][3] == [0.1, 0.1, 0.1]


def test_a_hundred_states_a_second_are_thinned_out_to_what_a_page_draws():
    digest = Digest(0.0)
    for i in range(1000):
        digest.take(state(i / 100))
    assert 190 <= len(digest.rows["state"]) // len(TRACKS["state"]) <= 210


@pytest.mark.parametrize("motors", [4, 6, 8, 12, 20])
def test_any_number_of_motors_fits(motors):
    digest = Digest(0.0)
    digest.take(truth(0.0, motors))
    _, rows = opened(Cursor().packet(digest))
    assert np.isfinite(rows["truth"][0, -module.MOTORS :]).sum() == min(motors, module.MOTORS)


def test_what_lasts_is_an_event_when_it_changes():
    digest = Digest(0.0)
    for i in range(100):
        digest.take(status(i * 0.1, Phase.HOLD if i >= 50 else Phase.SEARCH, "seen"))
        digest.take(
            Reference(stamp_s=i * 0.1, id=1, frame="world", start_s=0.0, trajectory=Hold(p=(1, 2, 3), yaw_rad=0))
        )
    kinds = [event["k"] for event in digest.events]
    assert kinds.count("phase") == 2 and kinds.count("reference") == 1


def test_a_reason_that_changes_all_the_time_is_shown_once_a_second():
    digest = Digest(0.0)
    for i in range(100):
        digest.take(status(i * 0.1, Phase.WAIT_READY, f"waiting {i}"))
    assert len(digest.events) <= 11


def test_a_reference_is_sampled_over_its_time():
    limits = dict.fromkeys(("speed_m_s", "acceleration_m_s2", "yaw_rate_rad_s"), 1)
    move = Move(p_start=(0, 0, 1), yaw_start_rad=0, p_end=(4, 0, 1), yaw_end_rad=0, **limits)
    digest = Digest(10.0)
    digest.take(Reference(stamp_s=12.0, id=1, frame="pier", start_s=11.5, trajectory=move))
    event = digest.events[-1]
    assert event["frame"] == "pier" and event["start"] == 1.5
    assert event["points"][0] == [0, 0, 1] and event["points"][-1] == pytest.approx([4, 0, 1])
    assert len(event["points"]) <= module.REFERENCE_POINTS


@pytest.mark.parametrize(
    "message",
    [
        state(math.nan),
        state(math.inf),
        state(1.0, p_W=(NAN, NAN, NAN), q_WB=(NAN,) * 4, covariance_diag=(NAN,) * 60),
        state(1.0, covariance_diag=(-1.0,) * 60),
        state(1.0, covariance_diag=()),
        EstimatorStatus(
            stamp_s=1.0, innovations=[], rejected={}, dropped_late=0, update_time_s=0.0, covariance_blocks=(NAN,) * 30
        ),
        Reference(stamp_s=1.0, id=1, frame="?", start_s=NAN, trajectory=Waypoints((), (), 1.0, 1.0, 1.0)),
        Reference(
            stamp_s=1.0,
            id=2,
            frame="world",
            start_s=0.0,
            trajectory=Waypoints(((NAN,) * 3, (1.0,) * 3), (0.0, 0.0), 1.0, 1.0, 1.0),
        ),
        SafetyEvent(stamp_s=1.0, monitor="", active=True, value=NAN, limit=NAN, action="warn", text="\x00" * 1000),
        Markers(stamp_s=1.0, observations=[], detect_time_s=NAN, search="full"),
    ],
)
def test_what_is_not_finite_raises_nothing_and_can_be_packed(message):
    digest = Digest(0.0)
    digest.take(message)
    head, _ = opened(Cursor().packet(digest))
    assert isinstance(head["events"], list)


def test_what_was_said_and_asked_is_a_text():
    digest = Digest(0.0)
    digest.take(FcuCommand(stamp_s=1.0, id=1, action="text", text="HOLD: arrived"))
    digest.take(FcuCommand(stamp_s=1.0, id=2, action="arm"))
    digest.take(OperatorRequest(stamp_s=2.0, action="hold here", who="anna"))
    assert [event["text"] for event in digest.events] == ["HOLD: arrived", "hold here, asked by anna"]


def test_a_cursor_gets_everything_once():
    digest, cursor = Digest(0.0), Cursor()
    for i in range(10):
        digest.take(state(i * 0.1))
    assert len(opened(cursor.packet(digest, 4))[1]["state"]) == 4
    assert len(opened(cursor.packet(digest))[1]["state"]) == 6
    head, rows = opened(cursor.packet(digest))
    assert len(rows["state"]) == 0 and head["events"] == []


def test_a_view_of_many_hours_stays_bounded(monkeypatch):
    monkeypatch.setattr(module, "ROWS_MAX", 100)
    monkeypatch.setattr(module, "EVENTS_MAX", 100)
    digest, cursor, late = Digest(0.0), Cursor(), Cursor()
    digest.take(status(0.0, Phase.HOLD))
    seen = 0
    for i in range(1000):
        digest.take(state(i * 0.1))
        digest.take(Markers(stamp_s=i * 0.1, observations=[], detect_time_s=0.0, search="full"))
        seen += len(opened(cursor.packet(digest))[1]["state"])
    assert seen == 1000
    assert len(digest.rows["state"]) <= 100 * len(TRACKS["state"]) and len(digest.events) <= 100
    head, rows = opened(late.packet(digest))
    assert head["events"][0]["k"] == "phase" and len(rows["state"]) <= 100


def control(t: float, **facts) -> ControlStatus:
    counters = dict.fromkeys(("solver_status", "fallback_cycles", "deadline_misses", "solver_failures"), 0)
    times = {"cycle_time_s": 0.003, "solve_time_s": 0.002}
    errors = {"yaw_error_rad": 0.0, "position_error_m": 0.02}
    reference = {"reference_p_W": (1, 2, 3), "reference_yaw_rad": 0.5, "reference_id": 1, "reference_finished": False}
    return ControlStatus(stamp_s=t, active="nmpc", reason="", **reference, **errors, **times, **counters, **facts)


def test_control_is_a_row():
    digest = Digest(0.0)
    digest.take(control(1.0))
    _, rows = opened(Cursor().packet(digest))
    assert rows["control"][0].tolist() == pytest.approx([1, 1, 2, 3, 0.5, 0.02, 2, 3, 2])


def test_a_predicted_path_is_kept_also_where_its_message_is_not_due():
    digest = Digest(0.0)
    for i in range(100):
        points = tuple((0.1 * k, 0.0, 2.0) for k in range(4 if i % 20 else 30)) if i % 10 == 3 else ()
        digest.take(control(0.02 * i, horizon_W=points, horizon_step_s=0.2))
    _, rows = opened(Cursor().packet(digest))
    assert len(rows["control"]) < 40
    paths = rows["horizon"]
    assert paths[:, 0] == pytest.approx(0.2 * np.arange(10) + 0.06)
    assert paths[0, 1:9] == pytest.approx([0.2, 4, 0, 0, 2, 0.1, 0, 2]) and np.isnan(paths[0, -1])
