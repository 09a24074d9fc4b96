"""The replay of the EuRoC recording: its parser, and a part of the flight."""

import itertools
import math
import shutil

import msgspec
import numpy as np
import pytest

from companion.core.errors import UserError
from companion.core.frames import quat_conjugate, quat_from_matrix, quat_log, quat_multiply, rotation_matrix
from companion.core.messages import FcuImu, State
from companion.recording import series as sr
from companion.recording.metrics import rms, state_errors
from sitl.scenario import SensorKind
from tests.estimation import euroc
from tests.estimation.euroc_recording import IMU_FILE, body_axes, read_recording, smoothed
from tests.estimation.euroc_sensors import START_S, arrivals, world

G = 9.80665
STEP_S, POSES_EVERY = 0.005, 10
STAMP_NS = 1403715273262142976
TRUTH_FILE = "groundtruth_V1_01_easy.txt"
PART_S = (89.0, 97.0)  # of the recording: in sight from 91 s on, the filter starts 3 s after its beginning
SHORT_S = 2.0
SEED = 101


@pytest.fixture
def folder(tmp_path):
    """A recording of an aircraft that hovers and turns, without errors, in the data set's format."""
    R_IB = body_axes().T
    q_BI = quat_from_matrix(R_IB.T)
    imu, truth = ["#timestamp [ns],w_x,w_y,w_z,a_x,a_y,a_z"], ["# timestamp(s) tx ty tz qx qy qz qw"]
    gyro_I, force_I = R_IB @ (0.0, 0.0, 0.1), R_IB @ (0.0, 0.0, G)
    for i in range(1201):
        imu.append(",".join([str(STAMP_NS + 5_000_000 * i), *(repr(float(x)) for x in (*gyro_I, *force_I))]))
        if i % POSES_EVERY == 0:
            t = STEP_S * i
            q_WB = np.array([math.cos(0.05 * t), 0.0, 0.0, math.sin(0.05 * t)])
            w, x, y, z = quat_multiply(q_WB, q_BI)
            truth.append(f"{1e-9 * STAMP_NS + t:.5f} 1.0 2.0 3.0 {x:.6f} {y:.6f} {z:.6f} {w:.6f}")
    (tmp_path / IMU_FILE).write_text("\n".join(imu))
    (tmp_path / TRUTH_FILE).write_text("\n".join(truth))
    return tmp_path


def _replace_line(path, number, text):
    lines = path.read_text().splitlines()
    lines[number] = text
    path.write_text("\n".join(lines))


# --- the parser and the smoother


def test_a_level_hover_is_level_in_body_axes(folder):
    recording = read_recording(folder)
    assert len(recording.t) == len(recording.gyro_B) == len(recording.accel_B) > 1190
    np.testing.assert_allclose(recording.accel_B - (0.0, 0.0, G), 0.0, atol=1e-9)
    np.testing.assert_allclose(recording.gyro_B - (0.0, 0.0, 0.1), 0.0, atol=1e-9)
    assert np.diff(recording.t) == pytest.approx(STEP_S, abs=1e-9)


def test_the_smoother_finds_the_motion_and_the_biases(folder):
    recording = read_recording(folder)
    bias_g, bias_a = np.array([0.07, -0.02, -0.03]), np.array([0.05, -0.1, 0.02])
    motion = smoothed(recording._replace(gyro_B=recording.gyro_B + bias_g, accel_B=recording.accel_B + bias_a))
    middle = slice(300, 900)
    assert np.abs(motion.v_W[middle]).max() < 0.02
    assert np.abs(motion.p_W[middle] - motion.p_W[600]).max() < 0.005
    np.testing.assert_allclose(motion.gyro_bias_B[600], bias_g, atol=0.002)
    assert motion.accel_bias_B[600][2] == pytest.approx(bias_a[2], abs=0.02)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: shutil.rmtree(folder), "no such folder"),
        (lambda folder: (folder / IMU_FILE).unlink(), "imu0.csv: cannot be read"),
        (lambda folder: (folder / TRUTH_FILE).unlink(), "needs one file groundtruth_"),
        (lambda folder: (folder / IMU_FILE).write_text(""), "imu0.csv: is empty"),
        (lambda folder: (folder / TRUTH_FILE).write_text("# timestamp(s) tx ty tz qx qy qz qw\n"), "is empty"),
        (lambda folder: (folder / IMU_FILE).write_bytes(b"\xff\xfe\x00"), "cannot be read"),
        (lambda folder: _replace_line(folder / IMU_FILE, 5, "1,2,3"), "line 6 has 3 columns, needs 7"),
        (lambda folder: _replace_line(folder / TRUTH_FILE, 3, "1 2 3"), "line 4 has 3 columns, needs 8"),
        (lambda folder: _replace_line(folder / IMU_FILE, 5, f"{STAMP_NS},1,2,x,4,5,6"), "could not convert"),
        (lambda folder: _replace_line(folder / IMU_FILE, 5, "1.4e9,1,2,3,4,5,6"), "not a whole number of nanoseconds"),
        (lambda folder: _replace_line(folder / IMU_FILE, 5, f"{STAMP_NS},0,0,0,0,0,9"), "do not ascend"),
        (lambda folder: _replace_line(folder / IMU_FILE, 5, f"{STAMP_NS + 20000001},0,nan,0,0,0,9"), "not finite"),
        (lambda folder: _keep_lines(folder / IMU_FILE, 400), "less than 5 s in common"),
        (lambda folder: _remove_lines(folder / IMU_FILE, 300, 400), "0.505 s without a row"),
        (lambda folder: _scale(folder / IMU_FILE, 1 / G), "not gravity in m/s²"),
        (lambda folder: _replace_line(folder / TRUTH_FILE, 3, _row_of_truth(3, "0 0 0 2")), "not a unit quaternion"),
    ],
)
def test_a_folder_that_cannot_be_used_gives_one_line(folder, spoil, words, capsys):
    spoil(folder)
    with pytest.raises(UserError) as refused:
        read_recording(folder)
    assert words in str(refused.value) and str(folder) in str(refused.value)
    assert euroc.main([str(folder)]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err == f"euroc: {refused.value}\n" and printed.err.count("\n") == 1


def _keep_lines(path, count):
    path.write_text("\n".join(path.read_text().splitlines()[:count]))


def _remove_lines(path, first, last):
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:first] + lines[last:]))


def _scale(path, factor):
    head, *lines = path.read_text().splitlines()
    rows = [line.split(",") for line in lines]
    scaled = [",".join(row[:4] + [repr(factor * float(x)) for x in row[4:]]) for row in rows]
    path.write_text("\n".join([head, *scaled]))


def _row_of_truth(row, rotation):
    return f"{1e-9 * STAMP_NS + 0.05 * (row - 1):.5f} 1 2 3 {rotation}"


def test_gaps_lie_inside_of_the_sights():
    gaps = euroc.gaps_in([(10.0, 14.0), (20.0, 36.0)])
    assert gaps == [(22.0, 22.0 + euroc.HIDDEN_S), (29.0, 29.0 + euroc.HIDDEN_S)]
    assert euroc.HIDDEN_S > euroc.GAP_S


# --- the recording itself

needs_recording = pytest.mark.skipif(
    not euroc.FOLDER.is_dir(), reason=f"needs {euroc.FOLDER} (another place: COMPANION_SHARED_DATA)"
)


@pytest.fixture(scope="module")
def flight():
    return euroc.load_flight(euroc.FOLDER, *PART_S)


@needs_recording
def test_the_recording_is_in_body_axes_and_upright(flight):
    recording, motion = flight
    x, y, z = recording.accel_B.mean(axis=0)
    assert z == pytest.approx(G, abs=0.15) and math.hypot(x, y) < 0.2  # the thrust is along z
    forces_W = np.array([rotation_matrix(q) @ f for q, f in zip(motion.q_WB, recording.accel_B, strict=True)])
    gained = (motion.v_W[-1] - motion.v_W[0]) / motion.t[-1]
    np.testing.assert_allclose(forces_W.mean(axis=0) - gained, (0.0, 0.0, G), atol=0.2)  # of this, 0.16 is the bias


@needs_recording
def test_the_smoothed_motion_agrees_with_the_poses_and_finds_the_gyroscopes_bias(flight):
    recording, motion = flight
    at = [int(np.argmin(np.abs(motion.t - t))) for t in recording.pose_t]
    assert np.abs(motion.p_W[at] - recording.pose_p_W).max() < 0.003
    turns = [
        quat_log(quat_multiply(quat_conjugate(a), b)) for a, b in zip(motion.q_WB[at], recording.pose_q_WB, strict=True)
    ]
    assert np.abs(turns).max() < math.radians(1.0)
    assert np.linalg.norm(motion.gyro_bias_B, axis=1) == pytest.approx(0.08, abs=0.005)
    # between two poses the velocity is the change of the position
    v = (motion.p_W[at][2:] - motion.p_W[at][:-2]) / (recording.pose_t[2:] - recording.pose_t[:-2])[:, None]
    assert rms(motion.v_W[at][1:-1] - v) < 0.02


@needs_recording
def test_the_stream_is_the_recorded_one_less_biases_that_are_published_in_steps(flight):
    recording, motion = flight
    loaded = world(SensorKind.UNKIND, SEED, SHORT_S)
    messages = list(itertools.takewhile(lambda a: a.at_s < START_S + SHORT_S, arrivals(*flight, loaded, SEED)))
    assert [a.at_s for a in messages] == sorted(a.at_s for a in messages)
    samples = [a.message for a in messages if isinstance(a.message, FcuImu)]
    n = len(samples)
    assert n / SHORT_S == pytest.approx(200.0, rel=0.02)
    assert [m.stamp_s - START_S for m in samples] == pytest.approx(recording.t[:n] + 0.0025, abs=0.0011)  # TIMESYNC
    left = sr.column(samples, "gyro_B") - (recording.gyro_B - motion.gyro_bias_B)[:n]
    assert 1e-4 < np.linalg.norm(left, axis=1).mean() < 0.01  # EKF2's error; the bias is 0.08 rad/s
    steps = np.linalg.norm(np.diff(left, axis=0), axis=1)
    assert 2 <= np.sum(steps > 1e-4) < n / 4 and np.median(steps) < 1e-5
    again = itertools.islice(arrivals(*flight, loaded, SEED), len(messages))
    assert [msgspec.msgpack.encode(a.message) for a in again] == [msgspec.msgpack.encode(a.message) for a in messages]


@needs_recording
def test_the_filter_follows_a_part_of_the_flight(vehicle, flight):
    log = euroc.replay(flight, world(SensorKind.UNKIND, SEED, PART_S[1] - PART_S[0]), SEED).log
    states = sr.of(log, State)
    assert states[-1].valid and {m.reset_count for m in states} == {0}
    t, error = euroc.bundle_errors(log)
    in_sight = sr.within(t, euroc.sights(log))
    assert in_sight.sum() > 200 and rms(error[in_sight]) < 0.12
    _, velocity = state_errors(log, State, "v_W", "v_W")
    assert rms(velocity[len(velocity) // 2 :]) < 0.12  # the flight controller's is wrong by more


@needs_recording
@pytest.mark.verify
@pytest.mark.parametrize("sensors", list(SensorKind))
def test_no_observation_of_a_bundle_that_stands_still_is_taken_for_displaced(sensors):
    flight = euroc.load_flight(euroc.FOLDER)
    row = euroc.figures(flight, world(sensors, SEED, float(flight.motion.t[-1])), SEED)
    assert row.displaced == 0
