"""The figures of a flight whose errors are known."""

import math

import msgspec
import numpy as np
import pytest
from scipy.stats import chi2

from companion.core.frames import quat_from_rpy, quat_multiply, rotation_matrix
from companion.core.messages import WORLD, EstimatorStatus, Innovation, MissionStatus, Reference, State
from companion.core.trajectories import sample
from companion.core.trajectory_messages import Hold, Line, Move
from companion.recording import series as sr
from companion.recording.metrics import (
    estimate_errors,
    flight_metrics,
    largest,
    metrics_from_messages,
    nis_by_sensor,
    rms,
    rms_per_axis,
    state_errors,
)


@pytest.fixture(scope="module")
def metrics(flight):
    return metrics_from_messages(flight)


def test_position_error_is_true_position_minus_reference_in_the_bundles_frame(metrics):
    assert metrics["frame"] == "pier"
    assert metrics["hold_s"] == pytest.approx(10.0)
    assert metrics["position_rms_m"] == pytest.approx(0.13, abs=1e-6)
    assert metrics["position_rms_axis_m"] == pytest.approx([0.03, 0.04, 0.12], abs=1e-6)
    assert metrics["position_mean_xyz_m"] == pytest.approx([0.03, -0.04, 0.12], abs=1e-6)
    assert metrics["position_max_m"] == pytest.approx(0.13, abs=1e-6)
    R = rotation_matrix(quat_from_rpy(math.pi / 2, 0.0, -math.pi / 2 + 0.3))
    assert metrics["position_rms_world_xyz_m"] == pytest.approx(np.abs(R @ (0.03, -0.04, 0.12)).tolist(), abs=1e-6)
    assert metrics["yaw_rms_deg"] == pytest.approx(math.degrees(0.02), abs=1e-6)


def test_estimate_error_in_the_bundles_frame_does_not_see_the_drift_of_the_world(metrics):
    assert metrics["estimate_rms_m"] == pytest.approx(0.03, abs=1e-6)
    assert metrics["estimate_rms_axis_m"] == pytest.approx([0.01, 0.02, 0.02], abs=1e-6)
    assert 0.45 < metrics["estimate_abs_rms_m"] < 0.55, "drift of 0.5 m and the same 0.03 m"
    assert metrics["gnss_rms_m"] == pytest.approx(1.0, abs=1e-6)
    assert metrics["velocity_rms_m_s"] == pytest.approx(0.1, rel=2e-3)  # the made-up flight has noise
    assert metrics["disturbance_rms_m_s2"] == pytest.approx(0.3)


def test_estimated_figures_need_no_truth(metrics, flight_without_truth):
    without = metrics_from_messages(flight_without_truth)
    error = np.array([0.04, -0.02, 0.10])
    assert without["estimated_position_rms_m"] == pytest.approx(np.linalg.norm(error), abs=1e-6)
    assert without["estimated_position_rms_axis_m"] == pytest.approx(np.abs(error).tolist(), abs=1e-6)
    for key in ("position_rms_m", "position_max_m", "estimate_rms_m", "gnss_rms_m", "yaw_rms_deg"):
        assert without[key] is None, key
    assert without["estimated_position_rms_m"] == metrics["estimated_position_rms_m"]


def test_control_filter_and_mission_figures(metrics):
    assert metrics["setpoint_rate_hz"] == pytest.approx(50.0, rel=0.01)
    assert metrics["setpoint_gap_s"] == pytest.approx(0.06, abs=1e-6)
    assert metrics["solve_ms"]["p50"] == pytest.approx(1.0)
    assert metrics["solve_ms"]["p99"] == pytest.approx(4.0)
    assert metrics["fallback_cycles"] == 3
    assert metrics["deadline_misses"] == 1
    assert metrics["rejected"] == {"marker": 40}
    assert metrics["dropped_late"] == 2
    marker = metrics["nis"]["marker"]
    assert marker["low"] < marker["mean"] < marker["high"]
    assert (marker["dof"], marker["rejected"]) == (6.0, 20)
    assert marker["late_max_s"] == pytest.approx(0.06)
    assert metrics["success"] is True
    assert [p["phase"] for p in metrics["phases"]] == ["APPROACH", "HOLD", "RETURN", "DONE"]
    assert metrics["events"][0]["monitor"] == "marker_lost"
    assert metrics["processes"][0]["cpu_percent"] == pytest.approx(5.0)
    msgspec.json.encode(metrics)
    assert b"null" not in msgspec.json.encode(metrics["solve_ms"])


def test_an_empty_flight_gives_none_and_not_an_error():
    metrics = metrics_from_messages({})
    assert metrics["frame"] == WORLD
    assert metrics["hold_s"] == 0
    assert metrics["position_rms_m"] is None
    assert metrics["nis"] == {}
    assert metrics["success"] is None


def test_a_log_gives_the_same_figures_as_its_messages(flight, metrics, tmp_path):
    from companion.recording.writer import LogWriter

    writer = LogWriter(tmp_path / "f.mcap", {})
    for message in sorted((m for ms in flight.values() for m in ms), key=lambda m: m.stamp_s):
        topic = next(t for t, ms in flight.items() if ms and type(ms[0]) is type(message))
        writer.put(topic, message, message.stamp_s)
    writer.close()
    assert flight_metrics(tmp_path / "f.mcap") == metrics


def test_a_world_hold_is_measured_in_the_world(flight):
    log = dict(flight)
    point = (1.0, 2.0, 3.0)
    log["reference"] = [
        msgspec.structs.replace(r, frame=WORLD, trajectory=Hold(p=point, yaw_rad=0.3)) for r in flight["reference"]
    ]
    log["truth"] = [msgspec.structs.replace(m, p_W=(1.0, 2.0, 3.2)) for m in flight["truth"]]
    metrics = metrics_from_messages(log)
    assert metrics["frame"] == WORLD
    assert metrics["position_rms_axis_m"] == pytest.approx([0.0, 0.0, 0.2])
    assert metrics["yaw_rms_deg"] == pytest.approx(math.degrees(0.02))


def test_truth_is_interpolated_to_the_estimates_stamps(flight):
    log = dict(flight)
    log["truth"] = [msgspec.structs.replace(m, p_W=(m.stamp_s, 0.0, 0.0)) for m in flight["truth"][::8]]
    log["state"] = [msgspec.structs.replace(s, p_W=(s.stamp_s + 0.25, 0.0, 0.0)) for s in flight["state"]]
    assert metrics_from_messages(log)["estimate_abs_rms_m"] == pytest.approx(0.25, abs=1e-9)


def test_no_sample_outside_the_hold_counts(flight):
    log = dict(flight)
    log["mission_status"] = [msgspec.structs.replace(p, phase="SEARCH") for p in flight["mission_status"]]
    metrics = metrics_from_messages(log)
    assert metrics["hold_s"] == 0
    assert metrics["position_rms_m"] is None


def test_setpoint_gaps_count_only_while_the_flight_controller_listens(flight):
    log = dict(flight)
    log["fcu_status"] = [
        msgspec.structs.replace(s, mode="POSCTL" if 7.5 < s.stamp_s - 1000 < 8.6 else "OFFBOARD")
        for s in flight["fcu_status"]
    ]
    assert metrics_from_messages(log)["setpoint_gap_s"] == pytest.approx(0.02, abs=1e-6)


# --- a process that is started again in flight counts from zero


RESTART_S = 1008.0  # in the middle of the hold


def started_again(messages: list, restart_s: float = RESTART_S, away_s: float = 0.0, **fields) -> list:
    """The messages with the numbers of two processes; the second one is back after `away_s`, with other `fields`."""
    first = [m for m in messages if m.stamp_s < restart_s]
    second = [msgspec.structs.replace(m, **fields) for m in messages if m.stamp_s >= restart_s + away_s]
    return [msgspec.structs.replace(m, seq=i) for run in (first, second) for i, m in enumerate(run, 1)]


def test_counters_of_the_controller_are_summed_over_its_restarts(flight):
    again = started_again(flight["control"], fallback_cycles=2, deadline_misses=1, solver_failures=0)
    metrics = metrics_from_messages({**flight, "control": again})
    assert (metrics["fallback_cycles"], metrics["deadline_misses"]) == (3 + 2, 1 + 1)
    assert metrics["solver_failures"] == 0


def test_counters_of_the_filter_are_summed_over_its_restarts(flight):
    again = started_again(flight["estimator"], rejected={"gnss": 4}, dropped_late=1)
    metrics = metrics_from_messages({**flight, "estimator": again})
    assert metrics["rejected"] == {"marker": 16, "gnss": 4}
    assert metrics["dropped_late"] == 2 + 1


def test_a_counter_that_falls_is_a_restart_where_the_numbers_of_the_messages_go_on(flight):
    again = [msgspec.structs.replace(m, fallback_cycles=1) if m.stamp_s >= RESTART_S else m for m in flight["control"]]
    metrics = metrics_from_messages({**flight, "control": again})
    assert metrics["fallback_cycles"] == 3 + 1
    assert metrics["deadline_misses"] == 1 + 1, "of the same process"


def test_every_restart_counts_and_a_log_that_begins_later_keeps_what_was_counted():
    values = [7, 8, 0, 2, 1, 1, 5]
    statuses = [
        EstimatorStatus(stamp_s=float(i), innovations=[], rejected={}, dropped_late=n, update_time_s=0.0)
        for i, n in enumerate(values)
    ]
    assert sr.totals(statuses, "dropped_late") == {"dropped_late": 8 + 2 + 5}
    assert sr.totals([], "dropped_late") == {"dropped_late": None}
    assert [len(run) for run in sr.runs(statuses, "dropped_late")] == [2, 2, 3]
    assert [len(run) for run in sr.runs(statuses)] == [7]


@pytest.mark.parametrize("same", [{"pid": 1}, {"seq": 0}])
def test_errors_and_processor_time_are_those_of_all_starts_of_a_process(flight, same):
    """Either number separates the processes, also where the second one's start took more time than the first had used."""
    first = [msgspec.structs.replace(m, errors=2, last_error="ValueError: x") for m in flight["health"]]
    again = [
        msgspec.structs.replace(m, **same, **({"cpu_s": 0.5 + m.cpu_s} if m.pid == 2 else {}))
        for m in started_again(first, errors=0, last_error="", pid=2)
    ]
    (row,) = metrics_from_messages({**flight, "health": again})["processes"]
    assert (row["errors"], row["last_error"], row["late_steps"]) == (2, "ValueError: x", 4 + 4)
    used_s = 0.05 * 7.5 + (0.5 + 0.05 * 19.5)
    assert row["cpu_percent"] == pytest.approx(100 * used_s / 19.5)


def test_photographs_of_both_missions_count_and_one_that_is_taken_again_counts_once(flight):
    statuses = [
        msgspec.structs.replace(m, photographs=5 if m.stamp_s != 1007.0 else 4) for m in flight["mission_status"]
    ]
    assert metrics_from_messages({**flight, "mission_status": statuses})["photographs"] == 5
    again = started_again(statuses, photographs=2)
    assert metrics_from_messages({**flight, "mission_status": again})["photographs"] == 5 + 2


def test_a_hold_ends_with_the_last_status_of_a_mission_that_was_restarted(flight):
    again = started_again(flight["mission_status"], away_s=2.0, phase="PX4_HOLD")
    metrics = metrics_from_messages({**flight, "mission_status": again})
    assert metrics["hold_s"] == pytest.approx(2.9)


def test_the_gap_while_the_process_of_the_link_is_restarted_counts_in_offboard(flight):
    """The new process knows the mode half a second after its first message."""
    unheard = {"mode": "UNKNOWN", "connected": False, "valid": False}
    statuses = started_again(flight["fcu_status"], away_s=1.0)
    statuses = [msgspec.structs.replace(m, **unheard) if 1009.0 <= m.stamp_s < 1009.5 else m for m in statuses]
    sent = [m for m in flight["sent_setpoint"] if not RESTART_S < m.stamp_s < 1009.5]
    metrics = metrics_from_messages({**flight, "fcu_status": statuses, "sent_setpoint": sent})
    assert metrics["setpoint_gap_s"] == pytest.approx(9.5 - 7.98, abs=1e-6)
    assert metrics["offboard_s"] == pytest.approx(19.9, abs=1e-6)


def test_a_stream_that_ends_before_offboard_ends_is_a_gap(flight):
    """The controller has died at 8 s, and the flight controller leaves offboard for it."""
    statuses = [
        msgspec.structs.replace(m, mode="POSCTL" if m.stamp_s > 1008.55 else "OFFBOARD") for m in flight["fcu_status"]
    ]
    sent = [m for m in flight["sent_setpoint"] if not RESTART_S < m.stamp_s < 1010.0]
    metrics = metrics_from_messages({**flight, "fcu_status": statuses, "sent_setpoint": sent})
    assert metrics["setpoint_gap_s"] == pytest.approx(8.5 - 7.98, abs=1e-6), "one status before the one that says so"
    assert metrics["setpoint_rate_hz"] == pytest.approx(50.0, rel=0.01)


def nis_row(scale: float, rng) -> dict:
    updates = [
        Innovation(stamp_s=0.0, sensor="gnss", nis=nis, dof=3, accepted=True, noise_scale=1.0, late_s=0.0)
        for nis in (scale * rng.chisquare(3, 400)).tolist()
    ]
    status = EstimatorStatus(stamp_s=0.0, innovations=updates, rejected={}, dropped_late=0, update_time_s=0.0)
    return nis_by_sensor([status])["gnss"]


def test_nis_bounds_hold_95_percent_of_consistent_filters_and_few_others():
    rng = np.random.default_rng(3)
    row = nis_row(1.0, rng)
    assert row["low"] == pytest.approx(chi2.ppf(0.025, 1200) / 400)
    assert row["high"] == pytest.approx(chi2.ppf(0.975, 1200) / 400)

    def inside(scale: float) -> float:
        rows = [nis_row(scale, rng) for _ in range(100)]
        return np.mean([r["low"] < r["mean"] < r["high"] for r in rows])

    assert 0.88 <= inside(1.0) <= 1.0
    assert inside(1.2) < 0.1
    assert inside(0.8) < 0.1


def test_rms_ignores_nan_rows_and_is_that_of_the_vectors():
    error = np.array([[3.0, 4.0, 0.0], [np.nan, 0.0, 0.0], [0.0, 0.0, 5.0]])
    assert rms(error) == pytest.approx(5.0)
    assert rms_per_axis(error[[0, 2]]) == pytest.approx([math.sqrt(4.5), math.sqrt(8), math.sqrt(12.5)])
    assert largest(error) == 5.0
    assert math.isnan(rms(np.zeros((0, 3))))
    assert math.isnan(largest(np.zeros((0, 3))))


def test_intervals_begin_and_end_with_the_messages_that_say_so():
    def pilot(t, phase):
        return MissionStatus(
            stamp_s=t, phase=phase, reason="", phase_time_s=0.0, finished=False, success=False, photographs=0
        )

    names = ["ARM", "HOLD", "HOLD", "PAUSE", "HOLD"]
    assert sr.hold_intervals([pilot(float(i), n) for i, n in enumerate(names)]) == [(1.0, 3.0), (4.0, 4.0)]
    assert sr.hold_intervals([]) == []


def test_references_change_with_time_and_moves_count_as_their_end():
    move = Move(
        p_start=(0.0, 0.0, 0.0),
        yaw_start_rad=0.0,
        p_end=(1.0, 0.0, 0.0),
        yaw_end_rad=0.5,
        speed_m_s=1.0,
        acceleration_m_s2=1.0,
        yaw_rate_rad_s=1.0,
    )
    references = [
        Reference(stamp_s=1.0, id=1, frame="pier", start_s=0.0, trajectory=Hold(p=(0.0, 0.0, 2.0), yaw_rad=0.1)),
        Reference(stamp_s=2.0, id=2, frame="pier", start_s=0.0, trajectory=move),
        Reference(stamp_s=3.0, id=3, frame=WORLD, start_s=0.0, trajectory=move),
    ]
    points, yaws = sr.reference_at(references, np.array([0.5, 1.0, 1.9, 2.5, 3.5]), "pier")
    assert np.isnan(points[[0, 4]]).all()
    assert points[1:4].tolist() == [[0, 0, 2], [0, 0, 2], [1, 0, 0]]
    assert yaws[1:4].tolist() == [0.1, 0.1, 0.5]


def test_array_rotations_agree_with_frames():
    rng = np.random.default_rng(1)
    q = np.array([quat_from_rpy(*rng.uniform(-1, 1, 3)) for _ in range(20)])
    v = rng.normal(size=(20, 3))
    expected = np.array([rotation_matrix(a) @ b for a, b in zip(q, v, strict=True)])
    assert np.allclose(sr.rotate(q, v), expected)
    assert np.allclose(sr.rotate_back(q, expected), v)
    turned = np.array([quat_multiply(q[0], quat_from_rpy(0, 0, a)) for a in (0.0, 0.1)])
    halfway = sr.interpolate_quaternion(np.array([0.5, 2.0]), np.array([0.0, 1.0]), turned * [[1], [-1]])
    assert np.allclose(np.abs(halfway[0]), np.abs(quat_multiply(q[0], quat_from_rpy(0, 0, 0.05))))
    assert np.isnan(halfway[1]).all(), "nothing is extrapolated"


def test_a_trajectory_is_measured_against_where_it_should_be_at_the_time():
    line = Line(p_start=(0, 0, 1), p_end=(2, 0, 1), yaw_rad=0.5, speed_m_s=1, acceleration_m_s2=1, stop_s=1.0, laps=1)
    references = [Reference(stamp_s=5 + 0.05 * i, id=3, frame=WORLD, start_s=5.0, trajectory=line) for i in range(200)]
    # after a restart of the mission the same number means another reference
    later = Reference(stamp_s=20.0, id=3, frame=WORLD, start_s=20.0, trajectory=Hold(p=(9, 9, 9), yaw_rad=0.0))
    t = np.array([4.9, 5.0, 9.0, 14.0, 21.0])
    points, yaws = sr.reference_at([*references, later], t, WORLD)
    assert np.isnan(points[0]).all()
    asked = sample(line, 5.0, t[1:4])
    assert np.allclose(points[1:4], asked.p_W) and np.ptp(points[1:4, 0]) > 1.0
    assert np.allclose(yaws[1:], [0.5, 0.5, 0.5, 0.0]) and np.allclose(points[4], 9)
    phases = ["TRANSFER", "TRAJECTORY", "TRAJECTORY", "RETURN"]
    pilot = [
        MissionStatus(
            stamp_s=float(i), phase=n, reason="", phase_time_s=0, finished=False, success=False, photographs=0
        )
        for i, n in enumerate(phases)
    ]
    assert sr.hold_intervals(pilot) == [(1.0, 3.0)]


def test_nees_is_the_squared_error_in_units_of_the_published_covariance(flight):
    """Errors of the flight's truth are known: position 1, 2, 2 cm in the bundle's axes, with 1 cm claimed: 9."""
    block = (1e-4, 0.0, 0.0, 1e-4, 0.0, 1e-4)
    statuses = [
        EstimatorStatus(
            stamp_s=s.stamp_s,
            innovations=[],
            rejected={},
            dropped_late=0,
            update_time_s=0.0,
            covariance_blocks=5 * block,
        )
        for s in flight["state"][::10]
    ]
    nees = metrics_from_messages({**flight, "estimator": statuses})["nees"]
    t, v = state_errors(flight, State, "v_W", "v_W")
    assert nees["velocity"] == pytest.approx(np.mean(np.sum(v**2, axis=1)) / 1e-4, rel=0.05)
    t, p = estimate_errors(flight, WORLD)
    inside = np.concatenate([p[(t >= a) & (t <= b)] for a, b in sr.hold_intervals(flight["mission_status"])])
    assert nees["position"] == pytest.approx(np.mean(np.sum(inside**2, axis=1)) / 1e-4, rel=0.05)
    assert metrics_from_messages({**flight, "estimator": statuses, "truth": []})["nees"] in ({}, None)


def test_relative_rotation_is_the_rotation_vector_between_two_attitudes():
    a = quat_from_rpy(0.3, -0.2, 2.0)
    r = np.array([0.02, -0.3, 0.1])
    angle = np.linalg.norm(r)
    turn = np.array([math.cos(angle / 2), *(math.sin(angle / 2) / angle * r)])
    b = np.array([quat_multiply(a, turn), -np.array(quat_multiply(a, turn)), a])
    expected = [r, r, np.zeros(3)]
    np.testing.assert_allclose(sr.relative_rotation(np.array([a, a, a]), b), expected, atol=1e-12)
